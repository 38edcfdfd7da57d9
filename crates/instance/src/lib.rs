//! The heart: one door for every request, every change and every deadline.
//!
//! An [`Instance`] owns all data and everything that changes it. It does no I/O and has no clock: bytes and time are
//! arguments, bytes and deadlines come out. The same instance runs in the server, in a simulator and in a program that
//! embeds it.
//!
//! The methods are of three kinds. *Inputs*: [`connect`](Instance::connect), [`disconnect`](Instance::disconnect),
//! [`handle_frame`](Instance::handle_frame), [`handle_durable`](Instance::handle_durable),
//! [`handle_failed`](Instance::handle_failed), [`tick`](Instance::tick). *Outputs*:
//! [`poll_append`](Instance::poll_append) (rows for the journal), [`poll_ready`](Instance::poll_ready) and
//! [`output`](Instance::output) (bytes for a socket). *Getters*: the rest. A turn of the caller's loop is: inputs, then
//! `tick`, then outputs until there are none.
//!
//! Invariants:
//! - every change of data is a committed transaction of the store, and its rows are in the journal's batch before the
//!   reply is encoded;
//! - a reply leaves only when everything that it has seen is durable;
//! - after the journal has failed no request reads or changes data: nobody is shown what a restart might not find;
//! - everything that a client can make grow has a bound in [`Settings`];
//! - until a connection has sent one valid request, anything else ends it: bytes of another protocol, which a web page can
//!   send to a loopback address, never fall into step.
//!
//! Connections, fibers of programs, HTTP requests and the instance itself ([`Caller`]) come through the same functions:
//! [`Instance::call`], [`Instance::execute`], [`Instance::select`], in a transaction of their own or between
//! [`Instance::begin`] and [`Instance::commit`]. A call that cannot be answered at once is parked under one number,
//! whatever it waits for. Programs run outside: see [`Instance::poll_invoke`].
//!
//! Absent: sockets, files, threads, Lua, and SQL (EXECUTE), which is answered with an error that says so.

mod admission;
mod batch;
mod boxes;
mod call;
mod caller;
mod checkpoint;
mod connection;
mod data;
mod deadlines;
mod declare;
mod expiring;
mod gates;
mod input;
mod invoke;
mod logins;
mod loop_time;
mod loss;
mod output;
mod replication;
mod replies;
mod request;
mod room;
mod selects;
mod settings;
mod status;
mod transaction;
mod wire_error;
mod wish;

use std::collections::VecDeque;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::FrameError;
use lycosa_iproto::greeting::{Greeting, SALT_SIZE};
use lycosa_iproto::reply;
use lycosa_iproto::request::RequestError;
use lycosa_iproto::vclock::Vclock;
use lycosa_queue::sampled::{Sampled, with_held_back};
use lycosa_queue::{LogLevel, LogLine, Queue, TaskEvent};
use lycosa_store::{IteratorType, Retired, Store, system, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;
use uuid::Uuid;

pub use batch::{Batch, Buffers, statement};
pub use caller::{Answered, Called, Caller, CallerKind, RequestId};
pub use checkpoint::{CheckpointOrder, CheckpointStatus, Chunk, Files, Keep, LastCheckpoint, Written};
pub use connection::{ConnectionSlot, Origin, Released, Trust};
pub use data::{Lsn, Select, WalkError};
pub use declare::{Declared, DeclaredTube, DeclaredUser};
pub use expiring::DeclaredExpiration;
pub use gates::LoginAttempt;
pub use invoke::{Invoke, InvokeKind, OwnedStatement};
pub use loop_time::{LongestTurn, TurnPart};
pub use loss::{Confirmed, OUTCOME_UNKNOWN};
pub use lycosa_queue::{Proposal, Savepoint};
pub use output::Excess;
pub use replication::{ReplicaRequest, Upstream};
pub use room::Room;
pub use settings::Settings;
pub use status::{Lag, RequestCounts, Status};

use batch::Journaling;
use caller::Parked;
use checkpoint::Checkpoints;
use connection::Connections;
use data::Data;
use deadlines::Deadlines;
use expiring::Expiring;
use logins::Logins;
use loop_time::LoopTime;
use output::Output;
use replication::Replication;
use selects::LongSelects;

/// The version that the greeting announces: the one from which the protocol's reference was taken, because clients
/// choose what to send by it.
pub const PROTOCOL_VERSION: &str = "2.6.0";

/// Who this instance is among others.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// Of this instance; stands in the greeting and in every file.
    pub instance: Uuid,
    /// Of the replica set that it belongs to.
    pub cluster: Uuid,
    /// Its number in `_cluster`, 1 to 31.
    pub replica_id: u32,
}

/// Why a connection is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// `max_connections` are open.
    #[error("{0} connections are open, which is max_connections; {1} was turned away")]
    TooMany(usize, String),
}

/// Why a connection's stream cannot be followed any more. Nothing of what comes behind can be trusted.
#[derive(Debug, Clone, PartialEq)]
pub struct Broken {
    /// `sync` of the request, as far as it could be read, else 0.
    pub sync: u64,
    /// What a client of this protocol is told.
    pub error: ErrorObject,
}

impl From<FrameError> for Broken {
    fn from(error: FrameError) -> Self {
        Self { sync: 0, error: ErrorObject::client(error.code(), error.to_string()) }
    }
}

/// All data and everything that changes it.
pub struct Instance {
    settings: Settings,
    identity: Identity,
    process: Process,
    data: Data,
    /// Data that a loss of rows has replaced, until their memory is given back.
    former: Vec<Retired>,
    connections: Connections,
    parked: Parked,
    selects: LongSelects,
    invokes: VecDeque<Invoke>,
    denied: invoke::Denied,
    checkpoints: Checkpoints,
    deadlines: Deadlines,
    loop_time: LoopTime,
    expiring: Expiring,
    replication: Replication,
    /// The vclock of the oldest journal file that is kept.
    oldest_vclock: Vclock,
    counts: RequestCounts,
    logins: Logins,
    /// Which of the lines about new spaces of vinyl are logged.
    vinyl_lines: Sampled,
    output: Output,
    lag: Lag,
    started_at: u64,
    /// What `box.cfg` shows, in the order of the configuration.
    configuration: Vec<(String, Value)>,
    /// Connections that wait for a program's triggers.
    gates: gates::Gates,
    /// Native functions that a program has replaced by its own, for connections.
    own_functions: Vec<String>,
}

/// What the store refused, as a client or a program sees it.
pub fn store_error(error: &lycosa_store::Error) -> ErrorObject {
    wire_error::of_store(error)
}

/// Null, as a value of a reply.
const NULL: &[u8] = &[0xc0];

/// Connections that the administrator's socket may have beyond `max_connections`.
pub const ADMIN_CONNECTIONS: usize = 16;

/// Fills the bytes that it is given.
pub type Entropy = Box<dyn FnMut(&mut [u8]) + Send>;

/// What the instance needs from the process that it runs in.
pub struct Process {
    /// The process id, which `box.info.pid` shows.
    pub id: u32,
    /// The bytes must be random where clients are not trusted: the salt of a greeting is made of them, which keeps a
    /// recorded password proof from being used again.
    pub entropy: Entropy,
}

impl Instance {
    /// An instance over recovered data. `vclock` is that of the last recovered row.
    pub fn new(
        settings: Settings,
        identity: Identity,
        process: Process,
        mut store: Store,
        queue: Queue,
        vclock: Vclock,
        now: u64,
    ) -> Instance {
        // Recovery does not know it, and the instance's own row of `_cluster` must stay.
        store.set_replica_id(identity.replica_id);
        if settings.native_queue {
            Queue::protect(&mut store);
        }
        let signature = vclock.signature();
        let output = Output::new(&settings);
        Instance {
            settings,
            identity,
            process,
            data: Data::new(store, queue, Journaling::new(identity.replica_id, vclock), now),
            former: Vec::new(),
            connections: Connections::default(),
            parked: Parked::default(),
            selects: LongSelects::default(),
            invokes: VecDeque::new(),
            denied: invoke::Denied::default(),
            checkpoints: Checkpoints::new(signature, now),
            deadlines: Deadlines::default(),
            loop_time: LoopTime::default(),
            expiring: Expiring::default(),
            replication: Replication::default(),
            oldest_vclock: Vclock::new(),
            counts: RequestCounts::default(),
            logins: Logins::default(),
            vinyl_lines: Sampled::default(),
            output,
            lag: Lag::default(),
            started_at: now,
            configuration: Vec::new(),
            gates: gates::Gates::default(),
            own_functions: Vec::new(),
        }
    }

    /// Starts the queue on the recovered data: releases the tasks of sessions that are gone, begins the timers.
    ///
    /// # Errors
    /// Data that the queue's spaces cannot hold, a tube without its index for example.
    pub fn start(&mut self, now: u64) -> Result<lycosa_queue::StartReport, lycosa_queue::Error> {
        self.input(now, |instance| {
            let mut admitted = instance.data.bookkeep();
            let (queue, store) = admitted.queue();
            queue.start(store, now)
        })
    }

    /// Whether the queue waits until it is asked for ([`Settings::queue_on_demand`]).
    pub fn set_queue_on_demand(&mut self, waits: bool) {
        self.settings.queue_on_demand = waits;
    }

    /// A program asks for the queue ([`Settings::queue_on_demand`]): it starts now, or as soon as the instance may write. Returns
    /// whether it has started now.
    ///
    /// # Errors
    /// As of [`Self::start`].
    pub fn start_on_demand(&mut self, now: u64) -> Result<bool, lycosa_queue::Error> {
        if !self.awaits_demand() || self.data.in_transaction() {
            return Ok(false);
        }
        self.settings.queue_on_demand = false;
        if self.data.is_read_only() {
            return Ok(false);
        }
        let started = self.start(now);
        self.settings.queue_on_demand = started.is_err();
        started.map(|_| true)
    }

    /// Whether the queue has not started because nobody has asked for it.
    fn awaits_demand(&self) -> bool {
        self.settings.queue_on_demand
            && self.settings.native_queue
            && self.data.queue().state() == lycosa_queue::QueueState::Init
    }

    /// The limits and rules now.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes limits and rules; connections that exceed a lower limit are not closed. `memory_limit` is in bytes.
    /// What [`Self::set_loading`], [`Self::set_lua`], [`Self::set_native_queue`], [`Self::set_queue_on_demand`],
    /// [`Self::set_program_tubes`] and [`Self::set_hooked_queue`] have set stays as it is.
    pub fn reconfigure(&mut self, settings: Settings, memory_limit: u64) {
        let rule_ends = self.settings.guest_on_loopback && !settings.guest_on_loopback;
        let Settings { loading, lua, native_queue, queue_on_demand, program_tubes, hooked_queue, .. } =
            std::mem::replace(&mut self.settings, settings);
        self.settings.loading = loading;
        self.settings.lua = lua;
        self.settings.native_queue = native_queue;
        self.settings.queue_on_demand = queue_on_demand;
        self.settings.program_tubes = program_tubes;
        self.settings.hooked_queue = hooked_queue;
        self.update_allowance();
        // Whether `guest` may call what it has called before is to be asked again.
        self.data.journaling.bump_system_version();
        self.data.upkeep().set_memory_limit(memory_limit);
        if rule_ends {
            self.dismiss_guests();
        }
    }

    /// Requests for programs will be handed out, but not yet ([`Settings::loading`]).
    pub fn set_loading(&mut self) {
        self.settings.loading = true;
    }

    /// Whether requests for programs are handed out ([`Settings::lua`]).
    pub fn set_lua(&mut self, lua: bool) {
        self.settings.lua = lua;
        self.settings.loading = false;
    }

    /// Whether names that begin with `queue.` are the native queue's ([`Settings::native_queue`]).
    ///
    /// A queue that has not started owns no spaces: a program's own module may have spaces of the same names, and
    /// privileges on them are those of any space.
    pub fn set_native_queue(&mut self, native: bool) {
        self.settings.native_queue = native;
        if native || self.data.queue().state() == lycosa_queue::QueueState::Init {
            self.data.upkeep().protect_queue(native);
        }
        // What connections have resolved is to be resolved again.
        self.data.journaling.bump_system_version();
    }

    /// Whether what is about all tubes goes to a program ([`Settings::program_tubes`]).
    pub fn set_program_tubes(&mut self, program: bool) {
        self.settings.program_tubes = program;
        self.data.journaling.bump_system_version();
    }

    /// Whether clients' operations on tubes go to a program, because a space of the queue has triggers.
    pub fn set_hooked_queue(&mut self, hooked: bool) {
        self.settings.hooked_queue = hooked;
        self.data.journaling.bump_system_version();
    }

    /// A program has a function of its own in the place of a native one: connections that call that name get the program's
    /// from now on.
    pub fn own_function(&mut self, name: &str) {
        if !self.own_functions.iter().any(|own| own == name) {
            self.own_functions.push(name.to_owned());
        }
        self.data.journaling.bump_system_version();
    }

    /// What `box.cfg` answers.
    pub fn set_configuration(&mut self, configuration: Vec<(String, Value)>) {
        self.configuration = configuration;
    }

    /// Refuses changes from now on, or takes them again.
    pub fn set_read_only(&mut self, read_only: bool, now: u64) {
        self.replication.is_read_only_configured = read_only;
        self.update_read_only(now);
    }

    /// The instance is read-only if it was told to be, as an orphan, and as long as it has no number in its replica set.
    fn update_read_only(&mut self, now: u64) {
        let Replication { is_read_only_configured, is_orphan, .. } = self.replication;
        let read_only = is_read_only_configured || is_orphan || self.identity.replica_id == 0;
        if self.data.is_read_only() != read_only {
            self.data.conditions.set_read_only(read_only);
            self.data.now = now;
            self.replication.own_until = self.data.journaling.lsn();
            self.settle(Self::apply_read_only);
        }
    }

    /// A client has connected; its greeting is ready to be written. The administrator gets in when `max_connections` are
    /// open, too: only so can whoever holds them be found.
    ///
    /// # Errors
    /// When `max_connections` are open.
    pub fn connect(&mut self, origin: Origin, now: u64) -> Result<ConnectionSlot, Refused> {
        let mut salt = [0; SALT_SIZE];
        (self.process.entropy)(&mut salt);
        let slot = self.connect_greeted(origin, salt, now)?;
        let greeting = Greeting { version: PROTOCOL_VERSION.to_owned(), uuid: self.identity.instance, salt };
        if let Some(connection) = self.connections.get_mut(slot) {
            let bytes = greeting.encode().expect("the version is short and without blanks");
            connection.replies.buffer().extend_from_slice(&bytes);
        }
        self.connections.finish_reply(slot, 0, 0);
        Ok(slot)
    }

    /// The same for a client that has had its greeting, with that salt, before there was an instance.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_greeted(
        &mut self,
        origin: Origin,
        salt: [u8; SALT_SIZE],
        now: u64,
    ) -> Result<ConnectionSlot, Refused> {
        self.input(now, |instance| instance.accept(origin, salt, now))
    }

    fn accept(&mut self, origin: Origin, salt: [u8; SALT_SIZE], now: u64) -> Result<ConnectionSlot, Refused> {
        let reserve = if origin.trust == Trust::Admin { ADMIN_CONNECTIONS } else { 0 };
        if self.connections.len() >= self.settings.max_connections.saturating_add(reserve) {
            self.counts.refused_connections += 1;
            return Err(Refused::TooMany(self.connections.len(), origin.peer));
        }
        if self.counts.connections == 0 {
            // Nobody was told of what the start has written.
            self.replication.start_until = self.data.journaling.lsn();
        }
        let user = if origin.trust == Trust::Admin { user::ADMIN } else { user::GUEST };
        let slot = self.connections.open(origin, user, salt, now);
        self.counts.connections += 1;
        self.hold_begin(slot);
        Ok(slot)
    }

    /// Whether a client that is connected was greeted with this salt: whoever was greeted so is connected to this instance.
    pub fn has_greeted(&self, salt: &[u8; SALT_SIZE]) -> bool {
        self.connections.iter().any(|connection| connection.salt == *salt)
    }

    /// Whether one more connection than `others` may be opened.
    pub fn has_room_for(&self, others: usize) -> bool {
        self.connections.len() + others < self.settings.max_connections
    }

    /// A connection has ended: its waits are over, and so is its queue session if it was the last one to share it.
    pub fn disconnect(&mut self, slot: ConnectionSlot, now: u64) {
        self.input(now, |instance| {
            let Some(connection) = instance.connections.close(slot) else { return };
            instance.gates.forget(connection.id);
            instance.measured(loop_time::Outside::Disconnect, |instance| instance.end_session(connection.id));
        });
    }

    /// A frame of a connection: decodes it and does what it asks.
    ///
    /// # Errors
    /// The frame is none that a client of this protocol sends, or it is malformed and nothing valid came before it: the
    /// bytes may be another protocol's, a web page's for example. Nothing was done, and nothing more is taken from the
    /// connection, which ends. The caller says how: [`Instance::refuse`] or [`Instance::refuse_stranger`].
    pub fn handle_frame(&mut self, slot: ConnectionSlot, frame: &[u8], now: u64) -> Result<(), Box<Broken>> {
        let decoded = lycosa_iproto::request::decode(frame);
        if let Ok(request) = &decoded {
            self.handle_request(slot, request, now);
        }
        // Taken apart only here, so that a request is used where it was decoded to.
        decoded.map(drop).or_else(|error| self.handle_malformed(slot, error))
    }

    #[cold]
    fn handle_malformed(&mut self, slot: ConnectionSlot, error: RequestError) -> Result<(), Box<Broken>> {
        let is_proven = self.connections.get(slot).is_some_and(|connection| connection.is_proven);
        if error.ends_stream || !is_proven {
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.broken = true;
            }
            return Err(Box::new(Broken { sync: error.sync, error: error.object() }));
        }
        self.counts.malformed += 1;
        self.reply_error(slot, error.sync, &error.object());
        Ok(())
    }

    /// The connection's stream is broken: says so in this protocol and lets the connection end.
    pub fn refuse(&mut self, slot: ConnectionSlot, broken: &Broken) {
        self.break_off(slot);
        self.reply_error(slot, broken.sync, &broken.error);
    }

    /// The connection's stream is another protocol's: answers with these bytes and lets the connection end.
    pub fn refuse_stranger(&mut self, slot: ConnectionSlot, answer: &[u8]) {
        self.break_off(slot);
        self.counts.errors += 1;
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.replies.buffer().extend_from_slice(answer);
        self.finish_reply(slot);
    }

    fn break_off(&mut self, slot: ConnectionSlot) {
        self.counts.malformed += 1;
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.broken = true;
        }
    }

    /// The batch that ended with `lsn` is durable: releases the replies that waited for it.
    pub fn handle_durable(&mut self, lsn: u64, buffers: Buffers) -> Released {
        self.data.journaling.mark_durable(lsn, buffers);
        self.await_replicas();
        if self.data.conditions.has_failed() {
            Released::default()
        } else {
            self.connections.release(self.data.journaling.released())
        }
    }

    /// Why the journal takes no more rows, once it has failed for good.
    pub fn failure(&self) -> Option<&str> {
        self.data.conditions.failure()
    }

    /// The journal has failed for good. Replies that wait for it and calls that wait for a task become errors, and from now
    /// on data are neither read nor changed.
    pub fn handle_failed(&mut self, cause: &str) {
        if self.data.conditions.has_failed() {
            return;
        }
        self.data.conditions.set_failure(cause);
        self.data.journaling.fail();
        let error = self.data.conditions.failure_error();
        let schema_version = self.data.store().schema_version();
        self.connections.replace_waiting(|frame, out| {
            if reply::is_push(frame) {
                return;
            }
            let sync = reply::sync_of(frame).unwrap_or(0);
            reply::error(out, sync, schema_version, &error);
        });
        self.invokes.clear();
        self.selects = LongSelects::default();
        self.answer_all(&error);
        self.abandon_checkpoint(cause);
    }

    /// The disk is short of free space, or has enough again: see [`Room`]. To be told again whenever the free space
    /// has changed while it is short. Returns whether the disk has become short or has ceased to be.
    pub fn handle_room(&mut self, scarce: Option<Room>) -> bool {
        let has_changed = self.data.conditions.scarce_room().is_some() != scarce.is_some();
        let snapshot = self.checkpoints.snapshot_bytes();
        self.data.conditions.set_scarce_room(scarce.map(|room| room.beside_snapshot(snapshot)));
        self.checkpoints.room_changed(has_changed);
        has_changed
    }

    /// The data folder is not where the next start looks for it, and what became of it; or it is there again. Until
    /// then changes are refused, as nobody would find them. Returns whether that is news.
    pub fn handle_displaced(&mut self, displaced: Option<&str>) -> bool {
        let is_news = self.data.conditions.displaced() != displaced;
        if is_news {
            self.data.conditions.set_displaced(displaced);
        }
        is_news
    }

    /// Whether a program waits for its rows even if nobody keeps them: replicas are to have them, or too many wait.
    pub fn paces_programs(&self) -> bool {
        self.settings.replicas_before_reply > 0 || self.is_journal_behind()
    }

    fn is_journal_behind(&self) -> bool {
        self.data.journaling.pending_bytes() > self.settings.max_journal_backlog
    }

    /// Handles what comes from outside: time goes on, and a transaction that a program has left open is rolled back.
    #[inline]
    fn input<T>(&mut self, now: u64, handle: impl FnOnce(&mut Self) -> T) -> T {
        self.data.now = now;
        if self.data.in_transaction() {
            self.data.rollback();
        }
        self.settle(handle)
    }

    /// Does a part of the work of an input or of a program, then answers the waiting calls that it woke.
    #[inline]
    fn settle<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let result = work(self);
        self.answer_woken();
        result
    }

    /// Answers the waiting calls that were woken. Their rows are in the journal's batch.
    #[inline]
    fn answer_woken(&mut self) {
        while let Some(woken) = self.data.vault.poll_woken() {
            if !self.replication.wishes.is_empty()
                && let Some(wanted) = self.wished_earlier(woken.request)
                && let Ok((count, values)) = &woken.result
                && values != NULL
            {
                self.wish(woken.request, wanted, *count, values.clone());
                continue;
            }
            let result = woken.result.as_ref().map(|(count, values)| (*count, values.as_slice()));
            self.answer(woken.request, result.map_err(wire_error::of_queue));
        }
    }

    /// The rows of the turn, to be made durable together. The next batch may be polled before this one is durable.
    pub fn poll_append(&mut self) -> Option<Batch> {
        if self.data.conditions.has_failed() { None } else { self.data.journaling.take() }
    }

    /// Whether there are rows for a batch to which others may be added.
    pub fn has_open_batch(&self) -> bool {
        !self.data.conditions.has_failed() && self.data.journaling.has_open_batch()
    }

    /// Whether a connection has bytes to write that its host has not asked for.
    pub fn has_ready(&self) -> bool {
        self.connections.has_ready()
    }

    /// The connection with bytes to write that waits longest.
    pub fn poll_ready(&mut self) -> Option<ConnectionSlot> {
        self.connections.pop_ready()
    }

    /// Log lines of the queue, of expiration tasks, of log-ins, and of spaces that a Tarantool would refuse.
    pub fn poll_log(&mut self) -> Option<LogLine> {
        let queue = self.data.vault.poll_log();
        let own = queue.or_else(|| self.expiring.poll_log()).or_else(|| self.logins.poll_log());
        own.or_else(|| self.poll_vinyl())
    }

    /// A line about a new space of vinyl. Clients cause any number of such lines, so they are sampled.
    fn poll_vinyl(&mut self) -> Option<LogLine> {
        let now = self.data.now;
        let warning = |text| Some(LogLine { level: LogLevel::Warning, text });
        while let Some(space) = self.data.upkeep().take_new_vinyl() {
            let text = format!(
                "space '{}' is of vinyl, which is memory here: once a snapshot was taken, no Tarantool opens this data \
                 folder (`lycosa check --for-tarantool`)",
                space.name()
            );
            if let Some(held_back) = self.vinyl_lines.event(now) {
                return warning(with_held_back(text, held_back));
            }
        }
        let count = self.vinyl_lines.overdue(now)?;
        warning(format!("{count} more spaces of vinyl were created"))
    }

    /// Adds a type of tube that a program brings: see [`lycosa_queue::Queue::register`].
    ///
    /// # Errors
    /// There is a type of that name; the store refuses to release tasks of stored tubes of that type.
    pub fn register_tube_type(
        &mut self,
        tube_type: lycosa_queue::driver::TubeType,
    ) -> Result<lycosa_queue::StartReport, lycosa_queue::Error> {
        self.settle(|instance| {
            let now = instance.data.now;
            let mut admitted = instance.data.bookkeep();
            let (queue, store) = admitted.queue();
            queue.register(store, tube_type, now)
        })
    }

    /// Whether changes of a tube's tasks are to be collected for [`Self::poll_event`]. False if there is no such tube.
    pub fn observe(&mut self, tube: &str, observed: bool) -> bool {
        self.data.vault.observe(tube, observed)
    }

    /// The next change of a task of an observed tube.
    pub fn poll_event(&mut self) -> Option<TaskEvent> {
        self.data.vault.poll_event()
    }

    /// What may be written to the connection's socket now, or the beginning of it. [`Instance::consume`] lists the connection
    /// again if there is more.
    pub fn output(&self, slot: ConnectionSlot) -> &[u8] {
        self.connections.get(slot).map_or(&[], |connection| connection.replies.ready())
    }

    /// The first `count` bytes of [`Instance::output`] were written.
    pub fn consume(&mut self, slot: ConnectionSlot, count: usize) {
        if let Some(connection) = self.connections.get_mut(slot)
            && connection.replies.consume(count)
        {
            self.connections.mark_ready(slot);
        }
        self.connections.took(slot, self.data.now);
        self.account_output(slot);
    }

    /// Bytes of replies that are not written yet, whether they may leave or not.
    pub fn pending_bytes(&self, slot: ConnectionSlot) -> usize {
        self.connections.get(slot).map_or(0, |connection| connection.replies.pending_bytes())
    }

    /// Whether no more requests of this connection are to be read for the moment: it has too much under way, its reader
    /// is slow, the journal is behind, or its stream is broken.
    pub fn is_paused(&self, slot: ConnectionSlot) -> bool {
        self.connections.get(slot).is_none_or(|connection| {
            connection.broken
                || connection.is_replica
                || connection.is_logging_in
                || connection.replies.pending_bytes() > self.output.allowance()
                || connection.replies.in_flight() + connection.invoked >= self.settings.max_in_flight.max(1)
                || self.is_journal_behind()
        })
    }

    /// Whether the connection is to be closed once everything is written.
    pub fn wants_close(&self, slot: ConnectionSlot) -> bool {
        self.connections.get(slot).is_none_or(|connection| connection.broken)
    }

    /// Whether every row is durable, or lost with the journal, and every reply written.
    pub fn is_drained(&self) -> bool {
        self.data.journaling.is_settled()
            && self.connections.iter().all(|connection| connection.replies.pending_bytes() == 0)
    }

    /// Largest request frame, in bytes.
    pub fn max_frame_size(&self) -> usize {
        self.settings.max_frame_size
    }

    /// Whether anyone but the built-in accounts can authenticate.
    pub fn has_users(&self) -> bool {
        let mut found = false;
        let mut look = |tuple: &[u8]| {
            let id = TupleRef::trusted(tuple).field(0).and_then(|id| Reader::new(id).uint().ok());
            let account = id.and_then(|id| u32::try_from(id).ok()).and_then(|id| self.data.store().user(id));
            found |= account.is_some_and(|account| account.hash2.is_some() && account.id != user::GUEST);
        };
        let all = &[0x90];
        let read = self.data.store().select(
            user::ADMIN,
            system::USER,
            0,
            IteratorType::All,
            all,
            0,
            u64::MAX,
            &mut look,
        );
        read.is_ok() && found
    }

    /// The queue, to be asked.
    pub fn queue(&self) -> &Queue {
        self.data.queue()
    }

    /// The data, to be read. Who owns what may not be entered yet, see [`Queue::taken_rows`].
    pub fn store(&self) -> &Store {
        self.data.store()
    }

    fn reply_error(&mut self, slot: ConnectionSlot, sync: u64, error: &ErrorObject) {
        // Whoever is not let in has seen nothing; who finds no replicas is to look for another server, or to wait, at once.
        let at_once = [ErrorCode::SyncQuorumTimeout, ErrorCode::PasswordMismatch].map(u32::from);
        self.reply_error_when(slot, sync, error, at_once.contains(&error.code));
    }

    /// The same. An error that replicas and operators need to see does not wait for replicas (`at_once`).
    fn reply_error_when(&mut self, slot: ConnectionSlot, sync: u64, error: &ErrorObject, at_once: bool) {
        self.counts.errors += 1;
        let schema_version = self.data.store().schema_version();
        let error = self.with_master(error);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        reply::error(connection.replies.buffer(), sync, schema_version, &error);
        if at_once {
            self.finish_reply_about_instance(slot);
        } else {
            self.finish_reply(slot);
        }
    }
}
