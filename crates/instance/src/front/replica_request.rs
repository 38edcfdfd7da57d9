//! A replica's request, as it is handed out.

use lycosa_iproto::vclock::Vclock;
use lycosa_replication::relay::{JoinRequest, SubscribeRequest};

/// A replica's checked request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaRequest {
    /// All data, and a number.
    Join(JoinRequest),
    /// All data.
    FetchSnapshot,
    /// A number, for a replica that has everything up to a clock.
    Register(JoinRequest, Box<Vclock>),
    /// The log. The number of the replica, 0 if it is anonymous.
    Subscribe(Box<SubscribeRequest>, u32),
}
