//! The replica's side: what it asks a master for, and what it makes of the answers.

mod follower;
mod handshake;
mod join;
mod request;

pub use follower::{Follower, Progress, Received, Row};
pub use handshake::{Ballot, Handshake, Session, Step};
pub use join::{Join, JoinEvent, JoinKind};
pub use request::{Subscription, acknowledge};
