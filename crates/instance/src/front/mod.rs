//! A front: connections and what they send and get, before a [`Shard`].
//!
//! A [`Front`] holds connections, log-ins and parked calls, resolves names, encodes replies and keeps them until what they have
//! seen is durable. It reads the shard and changes nothing there. An [`Instance`] is a front and a shard: each of its methods
//! is an input, an output or a question of the host. An input changes data through the shard, then delivers the answers to
//! parked calls: [`Instance::input`] and, for each part of a program's work, [`Instance::settle`] see to that.
//!
//! Invariant: fields of [`Front`] are private to this module, those of [`Shard`] to the module `shard`.

pub(crate) mod boxes;
pub(crate) mod call;
pub(crate) mod call_16;
pub(crate) mod callee;
pub(crate) mod caller;
pub(crate) mod connection;
pub(crate) mod deadlines;
pub(crate) mod declare;
pub(crate) mod deferral;
pub(crate) mod group;
pub(crate) mod idempotency;
pub(crate) mod input;
pub(crate) mod invoke;
pub(crate) mod lineage;
pub(crate) mod logins;
pub(crate) mod loop_time;
pub(crate) mod loss;
pub(crate) mod measures;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod pulse;
pub(crate) mod replica;
pub(crate) mod replica_request;
pub(crate) mod replies;
pub(crate) mod request;
pub(crate) mod selects;
pub(crate) mod shard_access;
mod share;
pub(crate) mod status;
pub(crate) mod tokens;
pub(crate) mod transaction;
pub(crate) mod trigger_gates;
mod void_reply;
pub(crate) mod waits_for;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::greeting::{Greeting, SALT_SIZE};
use lycosa_iproto::reply;
use lycosa_iproto::request::RequestError;
use lycosa_iproto::vclock::Vclock;
use lycosa_queue::task::id_of;
use lycosa_queue::{LogLine, Queue, TaskEvent};
use lycosa_store::{IteratorType, Store, system, user};
use lycosa_tuple::value::Value;

use crate::front::caller::{FrameReply, Parked};
use crate::front::connection::{ConnectionSlot, Connections, Origin, Released, Trust};
use crate::front::deferral::Deferral;
use crate::front::invoke::line::Line;
use crate::front::logins::Logins;
use crate::front::loop_time::LoopTime;
use crate::front::measures::{Measures, Programs};
use crate::front::output::Output;
use crate::front::selects::LongSelects;
use crate::front::share::Share;
use crate::shard::Shard;
use crate::shard::batch::{Batch, Buffers};
use crate::shard::disk_space::FreeSpace;
use crate::shard::request::Answer;
use crate::{
    ADMIN_CONNECTIONS, Broken, Identity, OUTCOME_UNKNOWN, PROTOCOL_VERSION, Process, Refused, RequestCounts,
    Settings,
};

/// A leader of a group is to hand over.
#[derive(Debug, Clone, Copy)]
struct HandOver {
    /// The successor.
    node: u64,
    /// Not before replies that have seen rows up to this number may leave; known once the call is over.
    after: Option<u64>,
}

/// Connections, what they have asked for, and what they get.
///
/// A method that looks at data has the [`Shard`] as an argument: for the version of the schema that a reply carries, for the
/// row that it waits for, for names and rights. None of them changes data.
pub(crate) struct Front {
    settings: Settings,
    process: Process,
    connections: Connections,
    parked: Parked,
    selects: LongSelects,
    invokes: Line,
    denied: invoke::Denied,
    counts: RequestCounts,
    logins: Logins,
    output: Output,
    /// The options that `box.cfg` shows, in the order of the configuration.
    configuration: Vec<(String, Value)>,
    /// Connections that wait for a program's triggers.
    gates: trigger_gates::Gates,
    /// Native functions that a program has replaced by its own, for connections.
    own_functions: Vec<String>,
    hand_over: Option<HandOver>,
    deferral: Deferral,
}

impl Front {
    fn new(settings: Settings, process: Process) -> Self {
        Self {
            output: Output::new(&settings),
            settings,
            process,
            connections: Connections::default(),
            parked: Parked::default(),
            selects: LongSelects::default(),
            invokes: Line::default(),
            denied: invoke::Denied::default(),
            counts: RequestCounts::default(),
            logins: Logins::default(),
            configuration: Vec::new(),
            gates: trigger_gates::Gates::default(),
            own_functions: Vec::new(),
            hand_over: None,
            deferral: Deferral::default(),
        }
    }
}

/// A front over a shard, and how the loop around them does.
pub struct Instance {
    front: Front,
    shard: Shard,
    loop_time: LoopTime,
    share: Share,
    measures: Measures,
    /// None: no history is kept.
    pulse: Option<Box<pulse::Pulse>>,
}

impl Instance {
    /// An instance over recovered data. `vclock` is that of the last recovered row.
    pub fn new(
        settings: Settings,
        identity: Identity,
        mut process: Process,
        store: Store,
        queue: Queue,
        vclock: Vclock,
        now: u64,
    ) -> Instance {
        let mut mark = [0; 8];
        (process.entropy)(&mut mark);
        let mark = u64::from_be_bytes(mark);
        Instance {
            shard: Shard::new(settings.rules(), identity, store, queue, vclock, mark, now),
            front: Front::new(settings, process),
            loop_time: LoopTime::default(),
            share: Share::default(),
            measures: Measures::default(),
            pulse: None,
        }
    }

    /// Starts the queue on the recovered data: releases the tasks of sessions that are gone, begins the timers.
    ///
    /// # Errors
    /// Data that the queue's spaces cannot hold, a tube without its index for example.
    pub fn start(&mut self, now: u64) -> Result<lycosa_queue::StartReport, lycosa_queue::Error> {
        self.input(now, |instance| instance.shard.start())
    }

    /// Whether the queue waits until it is asked for ([`Settings::queue_on_demand`]).
    pub fn set_queue_on_demand(&mut self, waits: bool) {
        self.front.settings.queue_on_demand = waits;
        self.shard.set_rules(self.front.settings.rules());
    }

    /// A program asks for the queue ([`Settings::queue_on_demand`]): it starts now, or as soon as the instance may write. Returns
    /// whether it has started now.
    ///
    /// # Errors
    /// As of [`Self::start`].
    pub fn start_on_demand(&mut self, now: u64) -> Result<bool, lycosa_queue::Error> {
        if !self.shard.awaits_demand() || self.shard.in_transaction() {
            return Ok(false);
        }
        self.set_queue_on_demand(false);
        if self.shard.is_read_only() {
            return Ok(false);
        }
        let started = self.start(now);
        self.set_queue_on_demand(started.is_err());
        started.map(|_| true)
    }

    /// The limits and rules now.
    pub fn settings(&self) -> &Settings {
        &self.front.settings
    }

    /// Changes limits and rules; connections that exceed a lower limit are not closed. `memory_limit` is in bytes.
    /// What [`Self::set_loading`], [`Self::set_lua`], [`Self::set_native_queue`], [`Self::set_queue_on_demand`],
    /// [`Self::set_program_tubes`] and [`Self::set_hooked_queue`] have set stays as it is.
    pub fn reconfigure(&mut self, settings: Settings, memory_limit: u64) {
        let rule_ends = self.front.settings.guest_on_loopback && !settings.guest_on_loopback;
        let Settings { loading, lua, native_queue, queue_on_demand, program_tubes, hooked_queue, .. } =
            std::mem::replace(&mut self.front.settings, settings);
        let own = &mut self.front.settings;
        (own.loading, own.lua, own.native_queue) = (loading, lua, native_queue);
        (own.queue_on_demand, own.program_tubes, own.hooked_queue) =
            (queue_on_demand, program_tubes, hooked_queue);
        self.front.update_allowance();
        // Whether `guest` may call what it has called before is to be asked again.
        self.shard.forget_resolved();
        self.shard.reconfigure(self.front.settings.rules(), memory_limit);
        if rule_ends {
            self.dismiss_guests();
        }
    }

    /// Requests for programs will be handed out, but not yet ([`Settings::loading`]).
    pub fn set_loading(&mut self) {
        self.front.settings.loading = true;
    }

    /// Whether requests for programs are handed out ([`Settings::lua`]).
    pub fn set_lua(&mut self, lua: bool) {
        self.front.settings.lua = lua;
        self.front.settings.loading = false;
    }

    /// Whether names that begin with `queue.` are the native queue's ([`Settings::native_queue`]).
    ///
    /// A queue that has not started owns no spaces: a program's own module may have spaces of the same names, and
    /// privileges on them are those of any space.
    pub fn set_native_queue(&mut self, native: bool) {
        self.front.settings.native_queue = native;
        self.shard.set_native_queue(native);
        // Connections resolve their names again.
        self.shard.forget_resolved();
    }

    /// Whether functions about all tubes are a program's ([`Settings::program_tubes`]).
    pub fn set_program_tubes(&mut self, program: bool) {
        self.front.settings.program_tubes = program;
        self.shard.forget_resolved();
    }

    /// Whether clients' operations on tubes go to a program, because a space of the queue has triggers.
    pub fn set_hooked_queue(&mut self, hooked: bool) {
        self.front.settings.hooked_queue = hooked;
        self.shard.forget_resolved();
    }

    /// A program has a function of its own in the place of a native one: connections that call that name get the program's
    /// from now on.
    pub fn own_function(&mut self, name: &str) {
        if !self.front.own_functions.iter().any(|own| own == name) {
            self.front.own_functions.push(name.to_owned());
        }
        self.shard.forget_resolved();
    }

    /// Sets the answer of `box.cfg`.
    pub fn set_configuration(&mut self, configuration: Vec<(String, Value)>) {
        self.front.configuration = configuration;
    }

    /// Tells the instance by how many microseconds the system's clock is ahead of the time that its host gives, for its status.
    pub fn set_clock_ahead(&mut self, ahead: i64) {
        self.measures.clock_ahead = ahead;
    }

    /// Tells the instance what its programs take, for its status.
    pub fn set_programs(&mut self, programs: Programs) {
        self.measures.programs = programs;
    }

    /// Refuses changes from now on, or takes them again.
    pub fn set_read_only(&mut self, read_only: bool, now: u64) {
        self.settle(|instance| instance.shard.set_read_only(read_only, now));
    }

    /// A client has connected; its greeting is ready to be written. The administrator gets in when `max_connections` are
    /// open, too: so the operator can find the clients that hold them.
    ///
    /// # Errors
    /// When `max_connections` are open.
    pub fn connect(&mut self, origin: Origin, now: u64) -> Result<ConnectionSlot, Refused> {
        let mut salt = [0; SALT_SIZE];
        (self.front.process.entropy)(&mut salt);
        let slot = self.connect_greeted(origin, salt, now)?;
        let greeting =
            Greeting { version: PROTOCOL_VERSION.to_owned(), uuid: self.shard.identity().instance, salt };
        if let Some(connection) = self.front.connections.get_mut(slot) {
            let bytes = greeting.encode().expect("the version is short and without blanks");
            connection.replies.buffer().extend_from_slice(&bytes);
        }
        self.front.connections.finish_reply(slot, 0, 0, u64::MAX);
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

    /// The same for a client whose requests another member of the group passes on. Where this instance does not lead, each request is
    /// refused as one that was not executed ([`HANDING_OVER`](crate::HANDING_OVER)).
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_forwarded(
        &mut self,
        origin: Origin,
        salt: [u8; SALT_SIZE],
        now: u64,
    ) -> Result<ConnectionSlot, Refused> {
        self.input(now, |instance| {
            let slot = instance.accept(origin, salt, now)?;
            if let Some(connection) = instance.front.connections.get_mut(slot) {
                connection.is_forwarded = true;
            }
            Ok(slot)
        })
    }

    fn accept(&mut self, origin: Origin, salt: [u8; SALT_SIZE], now: u64) -> Result<ConnectionSlot, Refused> {
        let reserve = if origin.trust == Trust::Admin { ADMIN_CONNECTIONS } else { 0 };
        if self.front.connections.len() >= self.front.settings.max_connections.saturating_add(reserve) {
            self.front.counts.refused_connections += 1;
            return Err(Refused::TooMany(self.front.connections.len(), origin.peer));
        }
        if self.front.counts.connections == 0 {
            // No client has seen rows of the start.
            self.shard.begin_serving();
        }
        let user = if origin.trust == Trust::Admin { user::ADMIN } else { user::GUEST };
        let slot = self.front.connections.open(origin, user, salt, now);
        self.front.counts.connections += 1;
        self.front.hold_begin(slot);
        Ok(slot)
    }

    /// Whether a connected client holds the salt of this greeting.
    pub fn has_greeted(&self, salt: &[u8; SALT_SIZE]) -> bool {
        self.front.connections.iter().any(|connection| connection.salt == *salt)
    }

    /// Whether one more connection than `others` may be opened.
    pub fn has_room_for(&self, others: usize) -> bool {
        self.front.connections.len() + others < self.front.settings.max_connections
    }

    /// A connection has ended: its waits are over, and so is its queue session if it was the last one to share it.
    pub fn disconnect(&mut self, slot: ConnectionSlot, now: u64) {
        self.input(now, |instance| {
            let Some(connection) = instance.front.connections.close(slot) else { return };
            instance.front.gates.forget(connection.id);
            instance.front.forget_dismissed(slot);
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
        self.measures.received += frame.len() as u64;
        if let Some((header, name, args)) = lycosa_iproto::request::decode_plain_call(frame) {
            let to = FrameReply::new(slot, header.sync);
            self.input(now, |instance| instance.answer_call(to, &header, name, args));
            return Ok(());
        }
        self.handle_other_frame(slot, frame, now)
    }

    /// A frame that is no plain CALL.
    #[inline(never)]
    fn handle_other_frame(
        &mut self,
        slot: ConnectionSlot,
        frame: &[u8],
        now: u64,
    ) -> Result<(), Box<Broken>> {
        let decoded = lycosa_iproto::request::decode(frame);
        if let Ok(request) = &decoded {
            self.handle_request(slot, request, now);
        }
        // Taken apart only here, so that a request is used where it was decoded to.
        decoded.map(drop).or_else(|error| self.front.handle_malformed(&self.shard, slot, error))
    }

    /// The connection's stream is broken: says so in this protocol and lets the connection end.
    pub fn refuse(&mut self, slot: ConnectionSlot, broken: &Broken) {
        self.front.break_off(slot);
        self.front.reply_error(&self.shard, FrameReply::new(slot, broken.sync), &broken.error);
    }

    /// The connection's stream is another protocol's: answers with these bytes and lets the connection end.
    pub fn refuse_stranger(&mut self, slot: ConnectionSlot, answer: &[u8]) {
        self.front.break_off(slot);
        self.front.counts.count_error();
        let Some(connection) = self.front.connections.get_mut(slot) else { return };
        connection.replies.buffer().extend_from_slice(answer);
        self.front.finish_reply(&self.shard, slot);
    }

    /// The batch that ended with `lsn` is durable: releases the replies that waited for it.
    pub fn handle_durable(&mut self, lsn: u64, buffers: Buffers) -> Released {
        self.measures.end_batch(&self.loop_time);
        self.shard.handle_durable(lsn, buffers);
        self.front.release_replies(&self.shard)
    }

    /// Why the journal takes no more rows, once it has failed for good.
    pub fn failure(&self) -> Option<&str> {
        self.shard.conditions().facts().failure.as_deref()
    }

    /// The journal has failed for good. Replies that wait for rows and calls that wait for a task become errors with the name
    /// [`OUTCOME_UNKNOWN`]: the disk may have some of the rows. From now on data are neither read nor changed.
    pub fn handle_failed(&mut self, cause: &str) {
        if self.shard.conditions().has_failed() {
            return;
        }
        self.measures.journal_errors += 1;
        self.shard.handle_failed(cause);
        let error = self.shard.conditions().failure_error().with_name(OUTCOME_UNKNOWN);
        let schema_version = self.shard.store().schema_version();
        self.front.connections.replace_waiting(|frame, out| {
            void_reply::replace(frame, schema_version, &error, out);
        });
        self.front.invokes.clear();
        self.front.selects = LongSelects::default();
        self.front.answer_all(&self.shard, &error);
        self.settle(|_| ());
    }

    forward! { shard:
        /// The disk is short of free space, or has enough again: see [`FreeSpace`]. To be told again whenever the free space
        /// has changed while it is short. Returns whether the disk has become short or has ceased to be.
        pub fn handle_free_space(&mut self, scarce: Option<FreeSpace>) -> bool;
        /// The data folder is not where the next start looks for it, for the given reason; with `None` it is back in its place.
        /// Until then changes are refused, as no start would find them. Returns whether the state is new.
        pub fn handle_displaced(&mut self, displaced: Option<&str>) -> bool;
        /// Changes the size of the largest tuple, in bytes. Larger ones stay.
        pub fn set_max_tuple_size(&mut self, bytes: u32);
        /// Whether there are rows for a batch to which others may be added.
        pub fn has_open_batch(&self) -> bool;
        /// The queue, to be asked.
        pub fn queue(&self) -> &Queue;
        /// The data, to be read. Who owns what may not be entered yet, see [`Queue::taken_rows`].
        pub fn store(&self) -> &Store;
    }

    /// Whether a program waits for its rows even without a journal: replicas are to have them, or too many wait.
    pub fn paces_programs(&self) -> bool {
        self.front.settings.replicas_before_reply > 0 || self.shard.is_journal_behind()
    }

    /// Handles an input: time goes on, and a transaction that a program has left open is rolled back.
    #[inline]
    fn input<T>(&mut self, now: u64, handle: impl FnOnce(&mut Self) -> T) -> T {
        self.shard.begin_input(now);
        self.settle(handle)
    }

    /// Does a part of the work of an input or of a program, then answers the waiting calls that it woke.
    #[inline]
    fn settle<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let result = work(self);
        if self.shard.has_answers() {
            self.deliver_answers();
        }
        result
    }

    fn deliver_answers(&mut self) {
        while let Some(answer) = self.shard.poll() {
            match answer {
                Answer::To(request, result) => {
                    let result = result.as_ref().map(|(count, values)| (*count, values.as_slice()));
                    self.front.answer(&self.shard, request, result.map_err(ErrorObject::clone));
                }
                Answer::AllBut(kept) => self.front.void_calls(&self.shard, &kept),
            }
        }
    }

    /// The rows of the turn, to be made durable together. The next batch may be polled before this one is durable.
    pub fn poll_append(&mut self) -> Option<Batch> {
        let batch = self.shard.poll_append();
        if batch.is_some() {
            self.measures.begin_batch(&self.loop_time);
        }
        batch
    }

    /// Whether a connection has bytes to write that its host has not asked for.
    pub fn has_ready(&self) -> bool {
        self.front.connections.has_ready()
    }

    /// The connection with bytes to write that waits longest.
    pub fn poll_ready(&mut self) -> Option<ConnectionSlot> {
        self.front.connections.pop_ready()
    }

    /// Log lines of the queue, of expiration tasks, of log-ins, and of spaces that a Tarantool would refuse.
    pub fn poll_log(&mut self) -> Option<LogLine> {
        self.shard.poll_log().or_else(|| self.front.logins.poll_log())
    }

    /// Adds a type of tube that a program brings: see [`lycosa_queue::Queue::register`].
    ///
    /// # Errors
    /// There is a type of that name; the store refuses to release tasks of stored tubes of that type.
    pub fn register_tube_type(
        &mut self,
        tube_type: lycosa_queue::driver::TubeType,
    ) -> Result<lycosa_queue::StartReport, lycosa_queue::Error> {
        self.settle(|instance| instance.shard.register_tube_type(tube_type))
    }

    forward! { shard:
        /// Whether changes of a tube's tasks are to be collected for [`Self::poll_event`]. False if there is no such tube.
        pub fn observe(&mut self, tube: &str, observed: bool) -> bool;
        /// The next change of a task of an observed tube.
        pub fn poll_event(&mut self) -> Option<TaskEvent>;
    }

    /// What may be written to the connection's socket now, or the beginning of it. [`Instance::consume`] lists the connection
    /// again if there is more.
    pub fn output(&self, slot: ConnectionSlot) -> &[u8] {
        self.front.connections.get(slot).map_or(&[], |connection| connection.replies.ready())
    }

    /// The first `count` bytes of [`Instance::output`] were written.
    pub fn consume(&mut self, slot: ConnectionSlot, count: usize) {
        self.measures.sent += count as u64;
        if let Some(connection) = self.front.connections.get_mut(slot)
            && connection.replies.consume(count)
        {
            self.front.connections.mark_ready(slot);
        }
        self.front.connections.took(slot, self.shard.now());
        self.front.account_output(slot);
    }

    /// Bytes of replies that are not written yet, whether they may leave or not.
    pub fn pending_bytes(&self, slot: ConnectionSlot) -> usize {
        self.front.connections.get(slot).map_or(0, |connection| connection.replies.pending_bytes())
    }

    /// Whether no more requests of this connection are to be read for the moment: it has too much under way, its reader
    /// is slow, the journal is behind, or its stream is broken.
    pub fn is_paused(&self, slot: ConnectionSlot) -> bool {
        self.front.is_paused(&self.shard, slot)
    }

    /// Whether the connection is to be closed once everything is written.
    pub fn wants_close(&self, slot: ConnectionSlot) -> bool {
        self.front.connections.get(slot).is_none_or(|connection| connection.broken)
    }

    /// Whether every row is durable, or lost with the journal, and every reply written.
    pub fn is_drained(&self) -> bool {
        self.shard.journaling().is_settled()
            && self.front.connections.iter().all(|connection| connection.replies.pending_bytes() == 0)
    }

    /// Largest request frame, in bytes.
    pub fn max_frame_size(&self) -> usize {
        self.front.settings.max_frame_size
    }

    /// Whether anyone but the built-in accounts can authenticate.
    pub fn has_users(&self) -> bool {
        let store = self.shard.store();
        let rows = store.range(system::USER, 0, IteratorType::All, &[0x90], 0);
        let ids = rows.into_iter().flatten().filter_map(|row| u32::try_from(id_of(row)?).ok());
        let mut accounts = ids.filter(|id| *id != user::GUEST).filter_map(|id| store.user(id));
        accounts.any(|account| account.hash2.is_some())
    }

    /// The digest of all data; it is the same on all members of a group.
    pub fn digest(&self) -> u128 {
        self.queue().digest(self.store())
    }
}

impl Front {
    #[cold]
    fn handle_malformed(
        &mut self,
        shard: &Shard,
        slot: ConnectionSlot,
        error: RequestError,
    ) -> Result<(), Box<Broken>> {
        let mut connection = self.connections.get_mut(slot);
        if error.ends_stream || !connection.as_ref().is_some_and(|connection| connection.is_proven) {
            connection.iter_mut().for_each(|connection| connection.broken = true);
            return Err(Box::new(Broken { sync: error.sync, error: error.object() }));
        }
        self.counts.malformed += 1;
        self.reply_error(shard, FrameReply::new(slot, error.sync), &error.object());
        Ok(())
    }

    fn break_off(&mut self, slot: ConnectionSlot) {
        self.counts.malformed += 1;
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.broken = true;
        }
    }

    /// Lets replies leave that wait for rows which are durable now, on replicas too.
    fn release_replies(&mut self, shard: &Shard) -> Released {
        match shard.conditions().has_failed() {
            true => Released::default(),
            false => self.connections.release(shard.journaling().released()),
        }
    }

    /// Whether no more requests of this connection are to be read for the moment: it has too much under way, its reader
    /// is slow, the journal is behind, or its stream is broken.
    pub(crate) fn is_paused(&self, shard: &Shard, slot: ConnectionSlot) -> bool {
        self.connections.get(slot).is_none_or(|connection| {
            connection.broken
                || connection.is_replica
                || connection.is_logging_in
                || connection.replies.pending_bytes() > self.output.allowance()
                || connection.replies.in_flight() + connection.invoked >= self.settings.max_in_flight.max(1)
                || (connection.invoked_bytes > 0 && connection.invoked_bytes > self.input_allowance())
                || shard.is_journal_behind()
        })
    }

    fn reply_error(&mut self, shard: &Shard, to: FrameReply, error: &ErrorObject) {
        // A refused log-in has seen no data; a client that finds no replicas must learn it at once.
        let at_once = [ErrorCode::SyncQuorumTimeout, ErrorCode::PasswordMismatch].map(u32::from);
        self.reply_error_when(shard, to, error, at_once.contains(&error.code));
    }

    /// The same. An error that replicas and operators need to see does not wait for replicas (`at_once`).
    fn reply_error_when(&mut self, shard: &Shard, to: FrameReply, error: &ErrorObject, at_once: bool) {
        self.counts.count_error();
        let schema_version = shard.store().schema_version();
        let error = shard.with_master(error);
        let Some(connection) = self.connections.get_mut(to.slot) else { return };
        reply::error(connection.replies.buffer(), to.sync, schema_version, &error);
        if at_once {
            self.finish_reply_about_instance(shard, to.slot);
        } else {
            self.finish_reply(shard, to.slot);
        }
    }
}
