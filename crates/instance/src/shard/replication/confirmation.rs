//! Replicas of a shard: their numbers, what they have confirmed, and the masters that it follows.

use super::{Replication, Upstream, vclock_value};
use crate::Result;
use crate::shard::Shard;
use crate::shard::admission::{HANDING_OVER, Need};
use crate::shard::rules::Rules;
use crate::shard::wire_error::{self, OnWire};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::vclock::{VCLOCK_MAX, Vclock};
use lycosa_replication::sync::UpstreamState;
use lycosa_store::{IteratorType, Statement, system, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;
use std::borrow::Cow;
use uuid::Uuid;

impl Shard {
    /// Gives a replica a number in `_cluster`, the smallest that is free, or tells the one that it has.
    ///
    /// # Errors
    /// All numbers are taken; the instance is read-only, its data folder was moved, its disk is short of free space, or the
    /// journal has failed.
    pub(crate) fn register_replica(&mut self, replica: Uuid) -> Result<u32> {
        if let Some(id) = self.replica_id_of(replica) {
            return Ok(id);
        }
        self.data.conditions.check(Need::Register)?;
        let taken = self.cluster();
        let free = (1..VCLOCK_MAX as u32).find(|id| taken.iter().all(|(known, _)| known != id));
        let id = free.ok_or_else(|| {
            let message = format!("Replica count limit reached: {VCLOCK_MAX}");
            ErrorObject::client(ErrorCode::ReplicaMax, message)
        })?;
        let tuple = Value::from(vec![id.into(), replica.to_string().into()]).encode();
        self.data.admit(Need::Register)?.transaction(user::ADMIN, |store| {
            store.execute(&Statement::Insert { space: system::CLUSTER, tuple: &tuple }).map(drop).on_wire()
        })?;
        // From now on another instance has this one's rows.
        self.begin_epoch();
        Ok(id)
    }

    /// The rows of `_cluster`: number and instance.
    pub(crate) fn cluster(&self) -> Vec<(u32, Uuid)> {
        let member = |row| {
            let mut reader = Reader::new(row);
            let id = reader.array().ok().and_then(|_| reader.uint().ok());
            let uuid = reader.str().ok().and_then(lycosa_replication::stream::uuid);
            id.and_then(|id| u32::try_from(id).ok()).zip(uuid)
        };
        // The space always exists; without it the set has no members.
        let rows = self.data.store().range(system::CLUSTER, 0, IteratorType::All, &[0x90], 0);
        rows.into_iter().flatten().filter_map(member).collect()
    }

    pub(crate) fn replica_id_of(&self, replica: Uuid) -> Option<u32> {
        self.cluster().into_iter().find(|&(_, uuid)| uuid == replica).map(|(id, _)| id)
    }

    /// A batch has become durable here: says how far replies may leave.
    pub(crate) fn await_replicas(&mut self) {
        let durable = self.data.journaling.durable();
        if self.rules.replicas_before_reply > 0 {
            let vclock = self.data.journaling.durable_vclock().clone();
            self.replication.awaiting.push_back((durable, vclock));
        }
        self.count_replicas();
    }

    /// Releases replies up to the rows that enough replicas have.
    fn count_replicas(&mut self) {
        let wanted = self.rules.replicas_before_reply;
        let journaling = &mut self.data.journaling;
        let Replication { replicas, awaiting, own_until, start_until, .. } = &mut self.replication;
        if wanted == 0 {
            awaiting.clear();
            return journaling.set_released(journaling.durable());
        }
        let is_there = |(lsn, vclock): &mut (u64, Vclock)| {
            // A replica's rows are its master's to answer for.
            let is_foreign = self.data.conditions.facts().is_read_only && *lsn > *own_until;
            *lsn <= *start_until || is_foreign || replicas.count_with(vclock) >= wanted
        };
        while let Some((lsn, _)) = awaiting.pop_front_if(is_there) {
            journaling.set_released(lsn);
        }
    }

    /// Lets replies leave for which enough replicas have spoken; refuses changes while too few are connected.
    pub(crate) fn release_replicated(&mut self) {
        let Rules { replicas_before_reply: wanted, refuses_without_replicas, .. } = self.rules;
        self.count_replicas();
        self.answer_concerns();
        let connected = self.replication.replicas.following_count();
        let is_missing = refuses_without_replicas && connected < wanted && !self.data.is_read_only();
        self.data.conditions.set(|facts| facts.missing_replicas = is_missing.then_some((connected, wanted)));
    }

    /// Brings the known replicas in line with `_cluster`, if that may have changed.
    pub(crate) fn sync_with_cluster(&mut self) {
        let version = self.data.journaling.system_version();
        if std::mem::replace(&mut self.replication.cluster_version, version) != version {
            let own = self.identity.instance;
            let others: Vec<_> = self.cluster().into_iter().filter(|&(_, uuid)| uuid != own).collect();
            self.replication.replicas.sync_with_cluster(&others);
            self.update_read_only(self.data.now);
        }
        self.begin_epoch();
    }

    /// The error of a change that this instance refuses because it takes no writes, with the place where writes go.
    pub(crate) fn with_master<'a>(&self, error: &'a ErrorObject) -> Cow<'a, ErrorObject> {
        let is_read_only = match error.name() {
            Some(HANDING_OVER) => false,
            name => name == Some(wire_error::READ_ONLY) || error.code == u32::from(ErrorCode::Readonly),
        };
        if !is_read_only || !self.data.is_read_only() {
            return Cow::Borrowed(error);
        }
        use UpstreamState::{Following, Myself, Syncing};
        let others = self.replication.upstreams.iter().filter(|up| up.state != Myself);
        let following = others.clone().filter(|up| matches!(up.state, Following | Syncing));
        let mut masters: Vec<&str> = following.map(Upstream::address).collect();
        if masters.is_empty() {
            masters = others.map(Upstream::address).collect();
        }
        let masters = match masters.as_slice() {
            [] => return Cow::Borrowed(error),
            [master] => format!("its master is {master}"),
            several => format!("its masters are {}", several.join(", ")),
        };
        let mut error = error.clone();
        let joint = if error.message.ends_with('.') { " This" } else { ": this" };
        error.message += &format!("{joint} server takes no writes; {masters}");
        Cow::Owned(error)
    }

    /// `box.info.replication`: every instance of the replica set by its number, with its LSN, upstream and downstream.
    pub(crate) fn replication_value(&self) -> Value {
        let members = self.cluster();
        let described = members.into_iter().map(|(id, uuid)| {
            let lsn = self.data.journaling.durable_vclock().get(id);
            let mut shown =
                vec![("id", Value::from(id)), ("uuid", uuid.to_string().into()), ("lsn", lsn.into())];
            let upstream = self.replication.upstreams.iter().find(|up| up.uuid == Some(uuid));
            shown.extend(upstream.map(|upstream| ("upstream", self.upstream_value(upstream))));
            let downstream = self.replication.replicas.get(&uuid);
            shown.extend(downstream.and_then(|peer| self.downstream_value(peer)).map(|v| ("downstream", v)));
            (Value::from(id), Value::map(shown))
        });
        Value::Map(described.collect())
    }

    /// Anonymous replicas that are connected.
    pub(crate) fn guests(&self) -> u64 {
        let guests = self.replication.replicas.iter().filter(|peer| peer.id == 0 && peer.is_connected());
        guests.count() as u64
    }

    /// `box.info.masters`: every master in the order of the configuration, those too that were never reached.
    pub(crate) fn masters_value(&self) -> Value {
        Value::array(self.replication.upstreams.iter().map(|upstream| self.upstream_value(upstream)))
    }

    /// `box.info.journals`: what stays on the disk for replicas alone, and which replica is furthest behind.
    pub(crate) fn journals_value(&self) -> Value {
        let status = self.checkpoint_status();
        let mut shown = vec![
            ("replica_bytes", Value::from(status.replica_bytes)),
            ("replica_limit", status.replica_limit.into()),
        ];
        if let Some(peer) = self.replication.replicas.furthest_behind() {
            let behind = peer.acknowledged.as_ref().map(|acknowledged| self.rows_behind(acknowledged));
            shown.extend([
                ("held_by", Value::from(peer.id)),
                ("held_by_uuid", peer.uuid.to_string().into()),
                ("behind", behind.map_or(Value::Nil, Value::from)),
            ]);
        }
        Value::map(shown)
    }

    fn upstream_value(&self, upstream: &Upstream) -> Value {
        let heard_at = if upstream.heard_at == 0 { self.started_at } else { upstream.heard_at };
        let mut shown = vec![
            ("status", Value::from(upstream.state.name())),
            ("idle", Value::Double(self.data.now.saturating_sub(heard_at) as f64 / 1e6)),
            ("peer", upstream.peer.as_str().into()),
            ("lag", Value::Double(upstream.lag as f64 / 1e6)),
        ];
        shown.extend(upstream.honors_terms.then(|| ("honors_terms", Value::from(true))));
        shown.extend(upstream.message.as_ref().map(|message| ("message", message.as_str().into())));
        Value::map(shown)
    }

    fn downstream_value(&self, peer: &lycosa_replication::relay::Peer) -> Option<Value> {
        let status = match (peer.is_subscribed(), peer.is_connected()) {
            (true, _) => "follow",
            (false, true) => "join",
            (false, false) => "stopped",
        };
        let idle = self.data.now.saturating_sub(peer.heard_at) as f64 / 1e6;
        let mut shown = vec![("status", Value::from(status)), ("idle", Value::Double(idle))];
        match &peer.acknowledged {
            Some(acknowledged) => shown.extend([
                ("vclock", vclock_value(acknowledged)),
                ("behind", self.rows_behind(acknowledged).into()),
            ]),
            None if peer.is_connected() => {}
            // It was not heard since the start.
            None => return None,
        }
        if peer.is_lost {
            shown.push(("message", "journals that it needs were removed: it has to join again".into()));
        }
        Some(Value::map(shown))
    }

    /// Rows of this instance's log that a replica with that clock does not have on its disk.
    pub(crate) fn rows_behind(&self, acknowledged: &Vclock) -> u64 {
        let own = self.data.journaling.vclock();
        own.iter().filter(|&(id, _)| id != 0).map(|(id, lsn)| lsn.saturating_sub(acknowledged.get(id))).sum()
    }
}
