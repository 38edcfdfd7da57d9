//! The requests of the load generator to a queue, and the protocols that carry them.
//!
//! A [`Protocol`] makes the queue ready and opens connections; the [`Dialogue`] of a connection turns requests into
//! bytes and bytes into answers. A dialogue does no I/O, so its tests are literal bytes. A request belongs to a *slot*:
//! one of the places of a connection, each of which has at most one request under way. Protocols that number their
//! requests put the slot into the number; protocols that answer in order remember the order.

pub(crate) mod beanstalk;
pub(crate) mod iproto;
pub(crate) mod jetstream;
pub(crate) mod redis_list;
pub(crate) mod redis_stream;
mod resp;

use std::fmt::{self, Debug, Display};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use anyhow::{Result, bail};

use crate::wire::{Tls, Wire};

/// One of the three requests of a task's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Put,
    Take,
    Ack,
}

impl Operation {
    pub(crate) const ALL: [Self; 3] = [Self::Put, Self::Take, Self::Ack];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Take => "take",
            Self::Ack => "ack",
        }
    }
}

/// How a task is put, for queues that know such things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PutOptions {
    /// Lower goes first.
    pub(crate) priority: Option<u64>,
    pub(crate) delay_seconds: Option<u32>,
    pub(crate) sub_queue: Option<u64>,
}

/// What a slot asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request<'a> {
    Put {
        payload: &'a [u8],
        options: PutOptions,
    },
    Take {
        /// Whether to wait until there is a task.
        waits: bool,
    },
    /// `receipt` as it came with the task.
    Ack {
        receipt: &'a [u8],
    },
}

impl Request<'_> {
    pub(crate) fn operation(&self) -> Operation {
        match self {
            Self::Put { .. } => Operation::Put,
            Self::Take { .. } => Operation::Take,
            Self::Ack { .. } => Operation::Ack,
        }
    }
}

/// What a slot asks for with many tasks in one request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Batch<'a> {
    Put {
        /// One behind the other, each of `size` bytes.
        payloads: &'a [u8],
        size: usize,
    },
    Take {
        limit: u32,
    },
    Ack {
        /// As they came with the tasks, one behind the other.
        receipts: &'a [u8],
        count: u32,
    },
}

impl Batch<'_> {
    pub(crate) fn operation(&self) -> Operation {
        match self {
            Self::Put { .. } => Operation::Put,
            Self::Take { .. } => Operation::Take,
            Self::Ack { .. } => Operation::Ack,
        }
    }
}

/// A task in the answer to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Given<'a> {
    /// By which the task is acknowledged, in the form that the acknowledgement wants.
    pub(crate) receipt: &'a [u8],
    pub(crate) payload: &'a [u8],
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// It is done, and this is the task.
    Task {
        /// By which the task is acknowledged, in the form that the acknowledgement wants.
        receipt: &'a [u8],
        payload: &'a [u8],
    },
    /// A batch is done, and these are the tasks.
    Tasks(Vec<Given<'a>>),
    /// It is done.
    Done,
    /// There is no task to take.
    NoTask,
    /// It is not done; why.
    Refused(String),
}

/// What stands at the beginning of the received bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// Not a whole answer.
    NeedMore,
    /// Bytes that answer nothing.
    Skipped {
        consumed: usize,
    },
    Answer {
        consumed: usize,
        slot: usize,
        answer: Answer<'a>,
    },
}

/// One connection's side of a protocol.
pub(crate) trait Dialogue: Debug {
    /// Appends the request of `slot` to `out`.
    fn ask(&mut self, slot: usize, request: &Request<'_>, out: &mut Vec<u8>);

    /// Appends a request of `slot` about many tasks to `out`.
    ///
    /// # Errors
    /// The protocol has no such requests.
    fn ask_batch(&mut self, _slot: usize, _batch: &Batch<'_>, _out: &mut Vec<u8>) -> Result<()> {
        bail!("this protocol has no requests about many tasks")
    }

    /// Looks at the beginning of `input`. An immediate reply is appended to `out`.
    ///
    /// # Errors
    /// Bytes that are not of the protocol, or that answer no request.
    fn hear<'a>(&mut self, input: &'a [u8], out: &mut Vec<u8>) -> Result<Heard<'a>>;
}

/// A queue on a server, and how to speak to it.
pub(crate) trait Protocol: Debug {
    /// Makes the queue exist, empty.
    fn prepare(&self, address: SocketAddr) -> Result<()>;

    /// Leaves a server that is not ours as it was before [`Self::prepare`]. All connections are closed.
    fn leave(&self, _address: SocketAddr) -> Result<()> {
        Ok(())
    }

    /// How many tasks wait, the delayed ones included.
    fn count_tasks(&self, address: SocketAddr) -> Result<u64>;

    /// Makes the server, whose files are in `data`, write a snapshot from which it can start.
    fn write_snapshot(&self, _address: SocketAddr, _data: &Path) -> Result<()> {
        bail!("this protocol has no request for a snapshot")
    }

    /// How the server is spoken to, if it wants TLS.
    fn tls(&self) -> Option<&Tls> {
        None
    }

    /// Sends the messages that precede the first request on a new, blocking connection. `index` counts the connections.
    fn open(&self, stream: &mut Wire<TcpStream>, index: usize, slots: usize) -> Result<Box<dyn Dialogue>>;
}

/// Bytes in an error message: text as it is, the rest escaped, cut after a line's length.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 80;
        write!(f, "{}", self.0[..self.0.len().min(LONGEST)].escape_ascii())?;
        if self.0.len() > LONGEST { write!(f, "… ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}
