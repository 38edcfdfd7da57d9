//! Replication in a shard: transactions of other instances, requests of replicas, the members in `_cluster`.
//!
//! Transactions of other instances come through [`Data::apply`](crate::shard::data::Data::apply).
//!
//! Absent: sockets and files; the server tells which instances are connected.

mod confirmation;

use std::collections::VecDeque;

use lycosa_iproto::vclock::Vclock;
use lycosa_replication::relay::Replicas;
use lycosa_replication::sync::UpstreamState;
use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::shard::write_concern::WriteConcerns;

/// A master of this instance, as far as it can be told now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Upstream {
    /// Its address, without the password.
    pub peer: String,
    /// Its UUID, once it has been reached.
    pub uuid: Option<Uuid>,
    /// The state of its applier.
    pub state: UpstreamState,
    /// Microseconds between the making of the last row there and its arrival here.
    pub lag: u64,
    /// When it was heard last, in microseconds since the epoch.
    pub heard_at: u64,
    /// Why it is not followed.
    pub message: Option<String>,
    /// Whether it takes no writes once it hears that another instance was promoted.
    pub honors_terms: bool,
}

impl Upstream {
    /// Host and port, without the user.
    fn address(&self) -> &str {
        self.peer.rsplit_once('@').map_or(self.peer.as_str(), |(_, address)| address)
    }
}

/// Everything about replication.
#[derive(Debug, Default)]
pub(crate) struct Replication {
    pub(super) replicas: Replicas,
    upstreams: Vec<Upstream>,
    /// The version of the system spaces at which `replicas` was brought in line with `_cluster`.
    cluster_version: u64,
    pub(super) is_read_only_configured: bool,
    pub(super) is_orphan: bool,
    /// Batches that are durable here and not on enough replicas: the LSN and the clock at the end of each.
    awaiting: VecDeque<(u64, Vclock)>,
    /// Rows up to here may be this instance's own; later ones come from masters, while it is read-only.
    pub(super) own_until: u64,
    /// Rows up to here were written before the first client came: no reply waits for replicas because of them.
    pub(super) start_until: u64,
    /// Answers that wait for more replicas than others.
    pub(super) write_concerns: WriteConcerns,
}

impl Replication {
    /// Replaces the states of the masters, in the order of the configuration.
    pub(crate) fn set_upstreams(&mut self, upstreams: Vec<Upstream>) {
        self.upstreams = upstreams;
    }

    /// The masters.
    pub(crate) fn upstreams(&self) -> &[Upstream] {
        &self.upstreams
    }

    /// One of the masters, to update its state.
    pub(crate) fn upstream_mut(&mut self, place: usize) -> Option<&mut Upstream> {
        self.upstreams.get_mut(place)
    }
}

/// A clock as a map of replica ids to LSNs.
pub(crate) fn vclock_value(vclock: &Vclock) -> Value {
    Value::Map(vclock.iter().map(|(id, lsn)| (u64::from(id).into(), lsn.into())).collect())
}
