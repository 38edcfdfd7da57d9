//! The master's side: what a replica asks for, and how it is sent.

mod replicas;
mod request;
mod snapshot;
mod subscription;
mod window;

pub use replicas::{Peer, Replicas};
pub use request::{IdFilter, JoinRequest, RequestError, SubscribeRequest};
pub use snapshot::{LogRows, SnapshotRows};
pub use subscription::{OwnRows, Pulse, Relay};
pub use window::{Cursor, Framed, Window};
