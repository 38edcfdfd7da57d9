//! The replica's side: what it asks a master for, and what it makes of the answers.

mod follow;
mod handshake;
mod join;
mod request;

pub use follow::{Follower, Progress, Received, Row};
pub use handshake::{Ballot, Handshake, Session, Step};
pub use join::{Join, JoinEvent, JoinKind};
pub use request::{Subscription, acknowledge};
