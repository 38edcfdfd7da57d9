//! The status of a client: its connection and its session.

use std::sync::Arc;

use tokio::sync::watch;
use uuid::Uuid;

/// Whether there is a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// There is one, or so it seems.
    Connected,
    /// There is none, and the client tries to make one.
    Connecting {
        /// Why the last one ended or could not be made.
        last_error: Arc<str>,
    },
    /// The client has been closed.
    Closed,
}

/// What a client knows about its connection and its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Whether there is a connection.
    pub link: Link,
    /// Connections made so far.
    pub connects: u64,
    /// The queue session, once there is one.
    pub session: Option<Uuid>,
    /// How often the server has forgotten the session and another had to be begun. Earlier taken tasks no longer belong to
    /// this client.
    pub session_changes: u64,
}

/// A view of a client's [`Status`] that can wait for it to change.
#[derive(Debug, Clone)]
pub struct StatusWatch {
    receiver: watch::Receiver<Status>,
}

impl StatusWatch {
    pub(crate) fn new(receiver: watch::Receiver<Status>) -> Self {
        Self { receiver }
    }

    /// The status now.
    pub fn current(&self) -> Status {
        self.receiver.borrow().clone()
    }

    /// Waits until the status is another than the one seen last by this view. `None` if it cannot change any more.
    pub async fn changed(&mut self) -> Option<Status> {
        self.receiver.changed().await.ok()?;
        Some(self.receiver.borrow_and_update().clone())
    }
}
