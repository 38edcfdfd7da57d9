//! The queue module of a server: its tubes, state and configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::array::Array;
use crate::client::{CallMode, Client};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::statistics::Statistics;
use crate::steering::{AuditEntry, TubeJob};
use crate::tube::{Tube, seconds};

/// The queue module of a server.
#[derive(Debug, Clone)]
pub struct Queue {
    client: Client,
}

impl Client {
    /// The queue module of the server.
    pub fn queue(&self) -> Queue {
        Queue::new(self.clone())
    }
}

impl Queue {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// A tube by its name. Whether it exists is not asked. Names with `.` or `:` cannot be called.
    pub fn tube(&self, name: &str) -> Tube {
        Tube::new(self.client.clone(), name)
    }

    /// Makes a tube.
    ///
    /// # Errors
    /// It exists ([`TubeOptions::if_not_exists`] makes that no error), the type is unknown, the user may not; see
    /// [`Error`].
    pub async fn create_tube(&self, name: &str, kind: TubeType, options: TubeOptions) -> Result<Tube> {
        let args = [Value::from(name), Value::from(kind.name()), Value::Map(options.pairs)];
        match self.client.call("queue.create_tube", &Array::from(args), CallMode::CHANGE).await {
            Ok(_) => Ok(self.tube(name)),
            Err(error) if error.kind() == Some(Kind::MadeSilently) => Ok(self.tube(name)),
            Err(error) => Err(error),
        }
    }

    /// The names of all tubes, in no order.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn tubes(&self) -> Result<Vec<String>> {
        let response = self.client.call("queue.tube", &Array::from(()), CallMode::READ).await?;
        let names = response.first_value()?;
        let names = names.as_array().ok_or_else(|| Error::protocol("the names of tubes are not an array"))?;
        Ok(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// What each tube counts, by its name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn statistics(&self) -> Result<BTreeMap<String, Statistics>> {
        let response = self.client.call("queue.statistics", &Array::from(()), CallMode::READ).await?;
        match response.first_value()? {
            Value::Map(tubes) => tubes
                .iter()
                .filter_map(|(name, statistics)| Some((name.as_str()?.to_owned(), statistics)))
                .map(|(name, statistics)| Ok((name, Statistics::from_value(statistics)?)))
                .collect(),
            // How Lua shows an empty table.
            Value::Array(tubes) if tubes.is_empty() => Ok(BTreeMap::new()),
            other => Err(Error::protocol(format!("statistics are not a map: {other}"))),
        }
    }

    /// What the queue is doing.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn state(&self) -> Result<QueueState> {
        let response = self.client.call("queue.state", &Array::from(()), CallMode::READ).await?;
        let state = response.first_value()?;
        state
            .as_str()
            .and_then(QueueState::parse)
            .ok_or_else(|| Error::protocol(format!("{state} is no queue state")))
    }

    /// The newest `limit` (at most 1 000) entries of the audit log about tubes that this user may look at, the newest first;
    /// those before the entry `before` if it is given.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn audit(&self, limit: u32, before: Option<u64>) -> Result<Vec<AuditEntry>> {
        let mut pairs = vec![(Value::from("limit"), Value::from(u64::from(limit)))];
        pairs.extend(before.map(|before| (Value::from("before"), Value::from(before))));
        let args = Array::from([Value::Map(pairs)]);
        let entries = self.client.call("queue.audit", &args, CallMode::READ).await?.first_value()?;
        let entries = entries.as_array().ok_or_else(|| Error::protocol("the audit log is not an array"))?;
        entries.iter().map(AuditEntry::read).collect()
    }

    /// The newest `limit` (at most 100) jobs of the tubes that this user may look at, the newest first; those before the job
    /// `before` if it is given.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn jobs(&self, limit: u32, before: Option<u64>) -> Result<Vec<TubeJob>> {
        let mut pairs = vec![(Value::from("limit"), Value::from(u64::from(limit)))];
        pairs.extend(before.map(|before| (Value::from("before"), Value::from(before))));
        let args = Array::from([Value::Map(pairs)]);
        let jobs = self.client.call("queue.jobs", &args, CallMode::READ).await?.first_value()?;
        let jobs = jobs.as_array().ok_or_else(|| Error::protocol("the jobs are not an array"))?;
        jobs.iter().cloned().map(TubeJob::read).collect()
    }

    /// Configures the queue.
    ///
    /// # Errors
    /// A ttr that is not a number ≥ 0; see [`Error`].
    pub async fn cfg(&self, config: &QueueConfig) -> Result<()> {
        let mut pairs = vec![(Value::from("in_replicaset"), Value::from(config.in_replicaset))];
        if let Some(ttr) = config.ttr {
            pairs.push((Value::from("ttr"), seconds(ttr)));
        }
        self.client.call("queue.cfg", &Array::from([Value::Map(pairs)]), CallMode::CHANGE).await.map(drop)
    }

    /// Which session this client has; with a UUID, the session that it is to have from now on. The server
    /// disconnects the old one first, which may release its tasks.
    ///
    /// Not needed for the client's own session, which survives broken connections.
    ///
    /// # Errors
    /// The server does not know the UUID (code 32); see [`Error`].
    pub async fn identify(&self, session: Option<Uuid>) -> Result<Uuid> {
        self.client.identify(session).await
    }
}

/// What `queue.cfg` sets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueConfig {
    /// How long a session survives its last connection; zero not at all. `None` leaves it as it is.
    pub ttr: Option<Duration>,
    /// Whether the queue is part of a replica set. Always sent, since the server takes its absence for `false`.
    pub in_replicaset: bool,
}

/// What the queue is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueState {
    /// Not configured yet.
    Init,
    /// Taking up its work: releases tasks whose sessions are gone.
    Startup,
    /// Working.
    Running,
    /// Giving up its work because the instance has become read-only.
    Ending,
    /// Read-only.
    Waiting,
}

impl QueueState {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "INIT" => Self::Init,
            "STARTUP" => Self::Startup,
            "RUNNING" => Self::Running,
            "ENDING" => Self::Ending,
            "WAITING" => Self::Waiting,
            _ => return None,
        })
    }
}

/// As the server names it.
impl fmt::Display for QueueState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Init => "INIT",
            Self::Startup => "STARTUP",
            Self::Running => "RUNNING",
            Self::Ending => "ENDING",
            Self::Waiting => "WAITING",
        })
    }
}

/// How a tube orders its tasks and what it can do with them.
///
/// The default is [`FifoTtl`](Self::FifoTtl), as for the command line and the server's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TubeType {
    /// First in, first out.
    Fifo,
    /// The same with priorities, lifetimes, delays and time to run.
    #[default]
    FifoTtl,
    /// The same with a limited number of tasks.
    LimFifoTtl,
    /// Sub-queues, of each of which one task is taken at a time.
    Utube,
    /// The same with priorities, lifetimes, delays and time to run.
    UtubeTtl,
    /// A type that the server's program has registered.
    Custom(String),
}

impl TubeType {
    /// The name under which the server knows it.
    pub fn name(&self) -> &str {
        match self {
            Self::Fifo => "fifo",
            Self::FifoTtl => "fifottl",
            Self::LimFifoTtl => "limfifottl",
            Self::Utube => "utube",
            Self::UtubeTtl => "utubettl",
            Self::Custom(name) => name,
        }
    }
}

/// Any name; those of the built-in types become these types.
impl From<&str> for TubeType {
    fn from(name: &str) -> Self {
        [Self::Fifo, Self::FifoTtl, Self::LimFifoTtl, Self::Utube, Self::UtubeTtl]
            .into_iter()
            .find(|kind| kind.name() == name)
            .unwrap_or_else(|| Self::Custom(name.to_owned()))
    }
}

/// How a utube keeps its ready tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageMode {
    /// All in one space.
    Default,
    /// The next task of each sub-queue in a space of its own, which makes Tarantool's `take` fast however many
    /// sub-queues are busy. Lycosa is fast in either mode.
    ReadyBuffer,
}

/// Options of a new tube. The server ignores options that a type does not have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TubeOptions {
    pairs: Vec<(Value, Value)>,
}

impl TubeOptions {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// An existing tube of any type and options is taken as it is.
    pub fn if_not_exists(self) -> Self {
        self.option("if_not_exists", true)
    }

    /// Tasks are kept in memory only and do not survive a restart.
    pub fn temporary(self) -> Self {
        self.option("temporary", true)
    }

    /// How long a task lives, unless `put` says otherwise.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.option("ttl", seconds(ttl))
    }

    /// How long a task may stay taken, unless `put` says otherwise.
    pub fn ttr(self, ttr: Duration) -> Self {
        self.option("ttr", seconds(ttr))
    }

    /// Priority of a task, unless `put` says otherwise; 0 is taken first.
    pub fn priority(self, priority: u64) -> Self {
        self.option("pri", priority)
    }

    /// The most tasks that a limfifottl holds; 0 for no limit.
    pub fn capacity(self, capacity: u64) -> Self {
        self.option("capacity", capacity)
    }

    /// How a utube keeps its ready tasks.
    pub fn storage_mode(self, mode: StorageMode) -> Self {
        let name = match mode {
            StorageMode::Default => "default",
            StorageMode::ReadyBuffer => "ready_buffer",
        };
        self.option("storage_mode", name)
    }

    /// Any other option, such as those of a custom type. Of an option given twice the server takes the last.
    pub fn option(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.pairs.push((Value::from(name), value.into()));
        self
    }
}
