//! The status of the instance, as plain data: `box.info`, `box.stat`, metrics and pages read it.

use lycosa_iproto::keys::RequestType;
use lycosa_iproto::vclock::Vclock;
use lycosa_store::Memory;
use lycosa_tuple::value::Value;

use crate::{CheckpointStatus, Election, Identity, Lag, LongestTurn};

/// Request types have one byte.
const TYPES: usize = 256;

/// UPSERT has the highest number of all statements.
const STATEMENT_TYPES: usize = RequestType::Upsert as usize + 1;

/// How many requests of each kind came since the start, and what happened to connections.
#[derive(Debug, Clone)]
pub struct RequestCounts {
    by_type: [u64; TYPES],
    /// Statements and reads of programs, which are no requests.
    statements: [i64; STATEMENT_TYPES],
    /// Errors by type; of requests that are answered later, as calls.
    errors_by_type: [u64; TYPES],
    /// The type of the request that is being answered.
    present: u8,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Frames that could not be decoded.
    pub malformed: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Connections turned away because too many were open.
    pub refused_connections: u64,
    /// Connections that were closed because their unserved requests had the most bytes.
    pub closed_for_input: u64,
    /// AUTH requests with a wrong user or password.
    pub failed_logins: u64,
}

impl Default for RequestCounts {
    fn default() -> Self {
        RequestCounts {
            by_type: [0; TYPES],
            statements: [0; STATEMENT_TYPES],
            errors_by_type: [0; TYPES],
            present: 0,
            errors: 0,
            malformed: 0,
            connections: 0,
            refused_connections: 0,
            closed_for_input: 0,
            failed_logins: 0,
        }
    }
}

impl RequestCounts {
    /// Counts a request of that type.
    pub(crate) fn count(&mut self, kind: u32) {
        self.present = kind as u8;
        self.by_type[kind as usize % TYPES] += 1;
    }

    /// The request that was counted last was deferred, and comes again.
    pub(crate) fn take_back(&mut self) {
        self.by_type[usize::from(self.present) % TYPES] -= 1;
    }

    /// The next reply is to a request of that type.
    pub(crate) fn set_type(&mut self, kind: RequestType) {
        self.present = kind as u8;
    }

    /// Counts an error in reply to the present request.
    pub(crate) fn count_error(&mut self) {
        self.errors += 1;
        self.errors_by_type[usize::from(self.present)] += 1;
    }

    /// Requests of that type that were answered with an error.
    pub fn errors_of(&self, kind: RequestType) -> u64 {
        self.errors_by_type[kind as usize % TYPES]
    }

    /// Requests of all types that were answered with an error.
    pub fn errors_total(&self) -> u64 {
        self.errors_by_type.iter().sum()
    }

    /// Requests of that type so far.
    pub fn of(&self, kind: RequestType) -> u64 {
        self.by_type[kind as usize % TYPES]
    }

    /// Requests of that type so far, with the statements of programs.
    pub(crate) fn with_statements(&self, kind: RequestType) -> u64 {
        let statements = self.statements.get(kind as usize).copied().unwrap_or(0);
        self.of(kind).saturating_add_signed(statements)
    }

    /// Counts `number` statements of programs.
    pub(crate) fn count_statements(&mut self, kind: RequestType, number: i64) {
        if let Some(count) = self.statements.get_mut(kind as usize) {
            *count += number;
        }
    }

    /// Requests so far.
    pub fn total(&self) -> u64 {
        self.by_type.iter().sum()
    }
}

/// The part of the status that programs ask for in loops: it is read without an allocation.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// `running`; `failed` once the journal takes no more rows, or while the data folder is not in its place; `orphan`.
    pub status: &'static str,
    /// Its names in the replica set.
    pub identity: Identity,
    /// The number of its process.
    pub pid: u32,
    /// Whether changes are refused.
    pub is_read_only: bool,
    /// Why, if they are: `config`, `orphan` or `fenced`.
    pub read_only_reason: Option<&'static str>,
    /// Since the instance was made, in microseconds.
    pub uptime: u64,
    /// Sum of the vclock's components: rows so far.
    pub signature: u64,
    /// The same of the durable rows.
    pub durable_signature: u64,
    /// The instance's own component of the durable vclock.
    pub lsn: u64,
}

/// The instance at one moment.
#[derive(Debug, Clone)]
pub struct Status {
    /// Its state, its names and its rows.
    pub standing: Standing,
    /// Why the journal takes no more rows, or what became of the data folder.
    pub failure: Option<String>,
    /// The clock of the rows that are durable. An operator who promotes a replica by clocks must not count on rows that a crash
    /// would lose.
    pub durable_vclock: Vclock,
    /// `box.info.replication`: the members of the replica set, from both sides.
    pub replication: Value,
    /// Anonymous replicas that are connected.
    pub anonymous_replicas: u64,
    /// `box.info.masters`: the masters of the configuration.
    pub masters: Value,
    /// `box.info.journals`: what stays on the disk for replicas alone.
    pub journals: Value,
    /// `box.info.term`, if there was an election of a master.
    pub term: Option<Value>,
    /// The group's election, in a member of a group.
    pub election: Option<Election>,
    /// Connections at the moment.
    pub connections: usize,
    /// Calls that wait at the moment, `take` for the most part.
    pub waiting_calls: usize,
    /// Bytes of replies that wait to be fetched by clients.
    pub unread_output: usize,
    /// Bytes of replies that may.
    pub max_output_total: usize,
    /// Connections that were closed because their clients did not fetch replies.
    pub closed_for_output: u64,
    /// Bytes of requests that have not come as a whole or wait for programs.
    pub unserved_input: usize,
    /// Bytes of such requests that may wait.
    pub max_input_total: usize,
    /// Bytes that tuples and indexes take, and may take.
    pub memory: Memory,
    /// Bytes that Lua has allocated.
    pub lua_memory: u64,
    /// Bytes of requests since the start.
    pub received: u64,
    /// Bytes of replies since the start.
    pub sent: u64,
    /// Snapshots, and the bytes that files take.
    pub checkpoint: CheckpointStatus,
    /// How late deadlines fire.
    pub lag: Lag,
    /// The longest that each source of deadlines and each other part of a turn have held the loop, in microseconds;
    /// `requests`: one request that may take long, `disconnects`: the end of one session.
    pub longest_turns: Vec<(&'static str, u64)>,
    /// The same in microseconds of the processor: what the system gave to others does not count.
    pub longest_turns_cpu: Vec<(&'static str, u64)>,
    /// The longest turn by the clock, and what it consisted of.
    pub longest_turn: Option<LongestTurn>,
    /// The longest turn by the processor's time.
    pub longest_turn_cpu: Option<LongestTurn>,
    /// Expiration tasks.
    pub expiration: lycosa_expiration::Summary,
    /// Requests since the start.
    pub requests: RequestCounts,
}
