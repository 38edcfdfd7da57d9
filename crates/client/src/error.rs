//! Errors of requests.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::greeting::GreetingError;
use lycosa_tuple::mp::MpError;

use crate::kind::Kind;

/// The result of everything that talks to a server.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request has no answer, or not the one that was hoped for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused the request; nothing was changed by it, unless the kind is [`Kind::OutcomeUnknown`].
    #[error("{message}")]
    Server {
        /// The code, mostly one of [`ErrorCode`].
        code: u32,
        /// The server's text.
        message: String,
        /// What a program can decide on; see [`Error::kind`].
        kind: Kind,
    },
    /// No answer arrived in time. The server may still execute the request.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// No connection could be made.
    #[error("cannot connect to {address}: {cause}")]
    Connect {
        /// Where to.
        address: String,
        /// Why not.
        cause: io::Error,
    },
    /// No server of several takes writes.
    #[error("no master: {0}")]
    NoMaster(String),
    /// No connection with TLS could be made: a file is wrong, or one side does not trust the other.
    #[error("no TLS connection to {address}: {reason}")]
    Tls {
        /// Where to.
        address: String,
        /// Why not.
        reason: String,
    },
    /// The server runs and has not read its data yet; the text says how far it is.
    #[error("{0}")]
    Starting(String),
    /// The connection ended before the answer, or there is none. Whether the server has executed the request is
    /// unknown.
    #[error("disconnected: {0}")]
    Disconnected(Arc<str>),
    /// The peer's first words are not those of a server.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// An answer was not of the form that belongs to the request.
    #[error("unexpected answer: {0}")]
    Protocol(String),
    /// A payload cannot be made of a value, or is not of the type that was asked for.
    #[error("{0}")]
    Payload(String),
    /// The queue answered with nothing where a task belongs: it is not in state RUNNING, or the tube is full.
    #[error("the queue is not running, or the tube is full")]
    Unavailable,
}

impl Error {
    /// The code of an error that the server sent, if Tarantool 2.6 knows it.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Server { code, .. } => ErrorCode::from_u32(*code),
            _ => None,
        }
    }

    /// Whether the connection is gone, so that the next request needs another.
    pub fn is_disconnected(&self) -> bool {
        matches!(
            self,
            Self::Disconnected(_)
                | Self::Connect { .. }
                | Self::Tls { .. }
                | Self::NoMaster(_)
                | Self::Starting(_)
        )
    }

    /// The kind of an error that the server sent.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Server { kind, .. } => Some(*kind),
            _ => None,
        }
    }

    /// Whether the server said that the task is not taken by this session (any more).
    pub fn is_not_taken(&self) -> bool {
        self.kind() == Some(Kind::NotTaken)
    }

    /// Whether the server said that a lease ended, or that its task was settled already.
    pub fn is_stale_lease(&self) -> bool {
        self.kind() == Some(Kind::StaleLease)
    }

    /// Whether the server may have executed the request although no answer says so: the connection ended, the
    /// time was over, or the server's journal has lost the request's rows.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Disconnected(_) | Self::Timeout(_)) || self.kind() == Some(Kind::OutcomeUnknown)
    }

    pub(crate) fn disconnected(reason: impl Into<Arc<str>>) -> Self {
        Self::Disconnected(reason.into())
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol(what.into())
    }
}

impl From<MpError> for Error {
    fn from(error: MpError) -> Self {
        Self::Protocol(error.to_string())
    }
}
