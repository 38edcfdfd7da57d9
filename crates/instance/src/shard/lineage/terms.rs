//! Epochs and terms of a shard: what its rows say, what it begins, and which replicas and masters it refuses.

use crate::Lsn;
use crate::Result;
use crate::shard::Shard;
use crate::shard::admission::{Growth, Need};
use crate::shard::wire_error::OnWire;
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_replication::applier::Row;
use lycosa_replication::lineage::{self, Confirmation, Divergence, Lineage, Term, TermMark};
use lycosa_replication::relay::{OwnRows, SubscribeRequest};
use lycosa_store::{IteratorType, Statement, user};
use lycosa_tuple::value::Value;
use std::mem::discriminant;
use uuid::Uuid;

impl Shard {
    /// The epochs and the term, as the rows say.
    pub(crate) fn lineage(&mut self) -> &Lineage {
        let version = self.data.journaling.system_version();
        if std::mem::replace(&mut self.roles.version, version) != version {
            let mut known = Lineage::default();
            // The space is always there.
            let rows = self.data.store().range(lineage::SPACE, 0, IteratorType::All, &[0x90], 0);
            rows.into_iter().flatten().for_each(|row| known.read(row));
            self.roles.known = known;
        }
        &self.roles.known
    }

    /// The latest term that the instance has heard of.
    pub(crate) fn latest_term(&mut self) -> TermMark {
        self.lineage().term_mark().max(self.roles.heard)
    }

    /// Whether another instance was promoted, so that this one takes no writes.
    pub(crate) fn is_fenced(&mut self) -> bool {
        let known = self.lineage().term_mark();
        let latest = known.max(self.roles.heard);
        let is_own = latest.owner == self.identity.replica_id && latest == known;
        latest.owner != lineage::OPEN && !is_own
    }

    /// The instance takes writes if nothing but a term of another one stands against it. A member of a group takes writes while
    /// it leads and is not about to hand over: `read_only` has no effect there.
    fn may_write(&self) -> bool {
        let replication = &self.replication;
        let is_told = match self.data.conditions.facts().is_member {
            true => self.data.journaling.confirms_reads() && !self.data.conditions.facts().is_handing_over,
            false => !replication.is_read_only_configured,
        };
        is_told && !replication.is_orphan && self.identity.replica_id != 0
    }

    /// Refuses a choice of the master by an operator: a group elects its leader.
    pub(crate) fn check_elects_none(&self, what: &str) -> Result<()> {
        if !self.data.conditions.facts().is_member {
            return Ok(());
        }
        let message = format!(
            "A member of a group does not support {what}: the group elects its leader. `lycosa cluster transfer [NODE]` hands \
             over, `lycosa cluster status` shows the members"
        );
        Err(ErrorObject::client(ErrorCode::Unsupported, message))
    }

    /// The instance is to be the only master of its replica set: `read_only` is taken back, and a term begins with the first
    /// row, unless it is the master of the present one already. An orphan does so once it is in sync.
    ///
    /// # Errors
    /// The rows are refused, for want of memory for example, the journal has failed, or the instance is a member of a group. The
    /// instance takes no writes then.
    pub(crate) fn promote(&mut self, now: u64) -> Result<()> {
        self.check_elects_none("promotion")?;
        self.data.conditions.check(Need::Read)?;
        let owns_term = self.latest_term().owner == self.identity.replica_id && !self.is_fenced();
        let is_owner = owns_term && !self.data.is_read_only();
        self.replication.is_read_only_configured = false;
        self.roles.is_promoting = !is_owner;
        if self.may_write() {
            self.begin_term().inspect_err(|_| self.replication.is_read_only_configured = true)?;
        }
        self.update_read_only(now);
        Ok(())
    }

    /// The instance takes no writes from now on. If it is the master of a term, that ends with its last row: any instance may
    /// be the next master then, a Tarantool too, which knows nothing of terms.
    ///
    /// # Errors
    /// As [`Self::promote`]. The instance takes writes as before then.
    pub(crate) fn demote(&mut self, now: u64) -> Result<()> {
        self.check_elects_none("demotion")?;
        self.data.conditions.check(Need::Read)?;
        let latest = self.latest_term();
        if latest.owner == self.identity.replica_id && !self.data.is_read_only() {
            let mark = TermMark { number: latest.number + 1, owner: lineage::OPEN };
            let term = Term { mark, vclock: self.data.journaling.vclock().replicated() };
            self.write_rows(&[term.row()])?;
        }
        self.set_read_only(true, now);
        Ok(())
    }

    /// Writes the row of a term if the instance was promoted. An instance that is alone in its replica set needs no term.
    fn begin_term(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.roles.is_promoting) || self.cluster().len() < 2 {
            return Ok(());
        }
        let owner = self.identity.replica_id;
        let mark = TermMark { number: self.latest_term().number + 1, owner };
        let term = Term { mark, vclock: self.data.journaling.vclock().replicated() };
        let mut rows = vec![term.row()];
        rows.extend((!self.roles.has_begun_epoch).then(|| self.epoch_row()));
        let written = self.write_rows(&rows);
        self.roles.is_promoting = written.is_err();
        self.roles.has_begun_epoch |= written.is_ok();
        written
    }

    fn epoch_row(&mut self) -> Vec<u8> {
        // A loss of rows may take the epoch of this process; the next one is another.
        self.roles.mark = self.roles.mark.wrapping_add(1).max(1);
        let mark = self.roles.mark;
        let id = self.identity.replica_id;
        let begin = self.data.journaling.vclock().get(id);
        self.lineage().begin_epoch(id, mark, begin)
    }

    fn write_rows(&mut self, rows: &[Vec<u8>]) -> Result<()> {
        // A read-only instance writes the row that ends that, and a full disk has space for it.
        self.data.admit(Need::Local(Growth::Shrinks))?.transaction(user::ADMIN, |store| {
            for tuple in rows {
                store.execute(&Statement::Replace { space: lineage::SPACE, tuple }).on_wire()?;
            }
            Ok(())
        })
    }

    /// Begins an epoch if this process has not, takes writes, and is not alone in its replica set or was not once. To be called
    /// before it writes, and when a replica joins.
    pub(crate) fn begin_epoch(&mut self) {
        let version = self.data.journaling.system_version();
        if self.roles.has_begun_epoch || self.data.is_read_only() || self.roles.alone_at == version {
            return;
        }
        let id = self.identity.replica_id;
        if id == 0 || self.cluster().len() < 2 && self.lineage().epoch(id).is_none() {
            self.roles.alone_at = version;
            return;
        }
        let row = self.epoch_row();
        // Without the row it is tried again before the next one.
        self.roles.has_begun_epoch = self.write_rows(&[row]).is_ok();
    }

    /// A peer knows of a term: if it is a later one, this instance takes no writes any more. Whether it is.
    pub(crate) fn hear_term(&mut self, mark: TermMark, now: u64) -> bool {
        if mark <= self.latest_term() {
            return false;
        }
        self.roles.heard = mark;
        self.roles.is_news = true;
        self.update_read_only(now);
        true
    }

    /// At the start: the latest term that the former process had heard of.
    pub(crate) fn recall_term(&mut self, mark: TermMark) {
        self.roles.heard = mark;
    }

    /// A later term than any before, of which the instance has no row yet; once. To be kept for [`Self::recall_term`].
    pub(crate) fn take_heard_term(&mut self) -> Option<TermMark> {
        std::mem::take(&mut self.roles.is_news).then_some(self.roles.heard)
    }

    /// Rows of system spaces have changed, or who may write: whether the instance takes writes. Says so in the log if a term
    /// stands against it.
    pub(crate) fn decide_read_only(&mut self) -> bool {
        if !self.may_write() {
            return true;
        }
        if self.roles.is_promoting
            && let Err(error) = self.begin_term()
        {
            self.roles.warn(format!("the promotion is not done yet: {}", error.message));
        }
        let (is_fenced, latest) = (self.is_fenced(), self.latest_term());
        if is_fenced && std::mem::replace(&mut self.roles.told, latest) != latest {
            let TermMark { number, owner } = latest;
            let who = if owner == self.identity.replica_id {
                "this instance was promoted, and has lost the row that says so".to_owned()
            } else {
                format!("instance {owner} was promoted")
            };
            self.roles.warn(format!(
                "{who} (term {number}): this instance takes no writes. Name the new master in `replication` and set read_only, \
                 or make this one the master again with `lycosa promote`"
            ));
        }
        is_fenced
    }

    /// Applies a transaction of another instance if it belongs to the history of this one: see
    /// [`Instance::apply`](crate::Instance::apply).
    pub(crate) fn apply_checked(&mut self, rows: &[Row<'_>], skips_conflicts: bool) -> Result<Lsn> {
        self.check_history(rows)?;
        let version = self.data.journaling.system_version();
        let applied = self.data.apply(rows, skips_conflicts);
        if self.data.journaling.system_version() != version {
            // It may be the row of a term.
            self.update_read_only(self.data.now);
        }
        applied
    }

    /// Checks that a transaction of another instance belongs to the history of this one.
    fn check_history(&mut self, rows: &[Row<'_>]) -> Result<()> {
        let known = self.data.journaling.vclock();
        let is_known = rows.iter().all(|(header, _)| header.lsn <= known.get(header.replica_id));
        self.lineage();
        let checked = self.roles.known.check_rows(self.data.journaling.vclock(), rows, is_known);
        if let Err(divergence) = checked {
            // The term fences this instance whether it can take the row or not.
            lineage::term_in(rows).map(|mark| self.hear_term(mark, self.data.now));
            return Err(divergence.object());
        }
        Ok(())
    }

    /// Checks that a replica has the history of this instance, and hears the term that it tells.
    pub(crate) fn check_subscription(&mut self, request: &SubscribeRequest, id: u32) -> Result<()> {
        if let Some(theirs) = &request.lineage {
            self.hear_term(theirs.term_mark(), self.data.now);
        }
        self.lineage();
        let own = (self.identity.replica_id, self.data.journaling.durable_vclock());
        let checked = self.roles.known.check_replica(own, request.lineage.as_ref(), (id, &request.vclock));
        let Err(divergence) = checked else {
            self.roles.refused.remove(&request.replica);
            return Ok(());
        };
        self.report_parted(request.replica, id, &divergence);
        Err(divergence.object())
    }

    /// Says in the log that a replica has another history: once, however often it comes.
    pub(crate) fn report_parted(&mut self, replica: Uuid, id: u32, divergence: &Divergence) {
        let kind = discriminant(divergence);
        let is_news = id != 0 && self.roles.refused.insert(replica, kind) != Some(kind);
        if is_news || id == 0 {
            self.roles.warn(format!("replica {id} ({replica}) is refused: {divergence}"));
        }
    }

    /// What replicas may say of this instance's rows.
    pub(crate) fn own_rows(&mut self) -> OwnRows<'_> {
        self.lineage();
        let id = self.identity.replica_id;
        OwnRows { id, durable: self.data.journaling.durable_vclock(), epoch: self.roles.known.epoch(id) }
    }

    /// What this instance tells the master with that number with each ACK.
    pub(crate) fn confirmation(&mut self, master: u32) -> Confirmation {
        let epoch = self.lineage().epoch(master).map_or(0, |epoch| epoch.mark);
        Confirmation { term: self.latest_term(), epoch }
    }

    /// `box.info.term`: the latest promotion, if there was one.
    pub(crate) fn term_value(&self) -> Option<Value> {
        let latest = self.roles.known.term_mark().max(self.roles.heard);
        let owner = self.cluster().into_iter().find(|&(id, _)| id == latest.owner);
        (latest.number > 0).then(|| {
            Value::map([
                ("number", Value::from(latest.number)),
                ("owner", if latest.owner == lineage::OPEN { Value::Nil } else { latest.owner.into() }),
                ("owner_uuid", owner.map_or(Value::Nil, |(_, uuid)| uuid.to_string().into())),
            ])
        })
    }
}
