//! A shard: data with their queue, the batches for their journal, and what happens to them without a request.
//!
//! A [`Shard`] owns the commit door ([`data`]), deadlines of the queue and of expiration tasks, checkpoints, its role
//! among replicas, and the answers of calls that were parked. What asks it is an argument: a user, a number of a session, a
//! number of a request. [`Shard::poll`] hands out the answers of parked calls in the order in which they became known.
//!
//! Invariants: a call is parked under the number that its caller has given; each number is answered at most once, unless
//! its session ends or the call is taken back before. Absent: sockets, frames, connections, replies, log-ins, programs.

pub(crate) mod admission;
pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod checkpoint;
pub(crate) mod clocks;
pub(crate) mod data;
pub(crate) mod disk_space;
pub(crate) mod expiration_tasks;
pub(crate) mod group;
pub(crate) mod idempotency;
pub(crate) mod lineage;
pub(crate) mod loss;
pub(crate) mod queries;
pub(crate) mod replication;
pub(crate) mod request;
pub(crate) mod role;
pub(crate) mod rules;
pub(crate) mod tokens;
pub(crate) mod wire_error;
pub(crate) mod write_concern;

use std::collections::VecDeque;

use lycosa_iproto::vclock::Vclock;
use lycosa_queue::sampled::{Sampled, with_held_back};
use lycosa_queue::{LogLevel, LogLine, Queue};
use lycosa_store::{Access, Budget, Object, Retired, Store, UserId};
use uuid::Uuid;

use crate::Result;
use crate::shard::admission::{Admitted, Need};
use crate::shard::batch::{Batch, Buffers, Journaling};
use crate::shard::checkpoint::Checkpoints;
use crate::shard::clocks::Clocks;
use crate::shard::data::Data;
use crate::shard::disk_space::FreeSpace;
use crate::shard::expiration_tasks::Expiring;
use crate::shard::lineage::Roles;
use crate::shard::replication::Replication;
use crate::shard::request::{Answer, NULL, RequestId};
use crate::shard::role::RoleDeadlines;
use crate::shard::rules::Rules;
use crate::shard::wire_error::OnWire;

/// The identity of this instance in its replica set.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// Of this instance; stands in the greeting and in every file.
    pub instance: Uuid,
    /// Of the replica set that it belongs to.
    pub cluster: Uuid,
    /// Its number in `_cluster`, 1 to 31.
    pub replica_id: u32,
}

/// How late deadlines fired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// Of the last one that fired, in microseconds.
    pub last: u64,
    /// The longest since the start, in microseconds.
    pub longest: u64,
}

impl Lag {
    pub(crate) fn record(&mut self, lag: u64) {
        self.last = lag;
        self.longest = self.longest.max(lag);
    }
}

/// Data and everything that changes them.
pub(crate) struct Shard {
    rules: Rules,
    identity: Identity,
    data: Data,
    /// Data that a loss of rows has replaced, until their memory is given back.
    former: Vec<Retired>,
    checkpoints: Checkpoints,
    role: RoleDeadlines,
    leader_time: group::LeaderTime,
    /// Of a member of a group: the last state from its host.
    election: Option<group::Election>,
    roles: Roles,
    expiring: Expiring,
    replication: Replication,
    /// Which of the lines about new spaces of vinyl are logged.
    vinyl_lines: Sampled,
    lag: Lag,
    /// See [`Instance::set_queue_step`](crate::Instance::set_queue_step).
    queue_step: usize,
    started_at: u64,
    /// Answers that are not the queue's.
    answers: VecDeque<Answer>,
}

/// Tasks, calls and sessions that one step of the queue handles, unless the host sets another number.
const QUEUE_STEP: usize = 64;

/// Tuples whose memory one step gives back.
const GARBAGE_STEP: u64 = 256;

/// One step of long calls and jobs of the queue: rows that it looks at, of which a change counts for some, and microseconds. Its
/// commit takes about as long again.
const JOBS_STEP: Budget<'static> = Budget::of_rows(512);
const JOBS_MICROSECONDS: u64 = 100;

impl Shard {
    /// A shard over recovered data. `vclock` is that of the last recovered row; `mark` is random.
    pub(crate) fn new(
        rules: Rules,
        identity: Identity,
        mut store: Store,
        queue: Queue,
        vclock: Vclock,
        mark: u64,
        now: u64,
    ) -> Self {
        // Recovery does not know it, and the instance's own row of `_cluster` must stay.
        store.set_replica_id(identity.replica_id);
        if rules.native_queue {
            Queue::protect(&mut store);
        }
        let signature = vclock.signature();
        Self {
            rules,
            identity,
            data: Data::new(store, queue, Journaling::new(identity.replica_id, vclock), now),
            former: Vec::new(),
            checkpoints: Checkpoints::new(signature, now),
            role: RoleDeadlines::default(),
            leader_time: group::LeaderTime::default(),
            election: None,
            roles: Roles::new(mark),
            expiring: Expiring::default(),
            replication: Replication::default(),
            vinyl_lines: Sampled::default(),
            lag: Lag::default(),
            queue_step: QUEUE_STEP,
            started_at: now,
            answers: VecDeque::new(),
        }
    }

    /// An input begins: time goes on, and a transaction that a program has left open is rolled back.
    #[inline]
    pub(crate) fn begin_input(&mut self, now: u64) {
        self.data.now = now;
        if self.data.in_transaction() {
            self.data.rollback();
        }
    }

    /// Whether [`Self::poll`] may have an answer.
    #[inline]
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty() || self.data.queue().has_woken()
    }

    /// The next answer of a parked call. The rows of what it has done are in the journal's batch.
    pub(crate) fn poll(&mut self) -> Option<Answer> {
        if !self.answers.is_empty() {
            return self.answers.pop_front();
        }
        while let Some(woken) = self.data.vault.poll_woken() {
            let request = RequestId { session: woken.connection, number: woken.request };
            if !self.replication.write_concerns.is_empty()
                && let Some(wanted) = self.take_concern(request)
                && let Ok((count, values)) = &woken.result
                && values != NULL
            {
                self.park_concern(request, wanted, *count, values.clone());
                continue;
            }
            let result = woken.result.on_wire();
            return Some(Answer::To(request, result));
        }
        None
    }

    fn answer(&mut self, request: RequestId, result: Result<(u32, Vec<u8>)>) {
        self.answers.push_back(Answer::To(request, result));
    }

    /// A session has ended: its parked calls are forgotten, its tasks are released, now or in slices.
    pub(crate) fn end_session(&mut self, session: u64) {
        self.replication.write_concerns.forget_session(session);
        self.data.disconnect(session);
    }

    /// Takes a parked call back: it is not answered any more. A take or put that waits gives up its place; a long call goes
    /// on.
    pub(crate) fn cancel(&mut self, request: RequestId) {
        self.replication.write_concerns.forget(request);
        self.data.cancel(request);
    }

    /// Starts the queue on the recovered data.
    ///
    /// # Errors
    /// Data that the queue's spaces cannot hold.
    pub(crate) fn start(&mut self) -> Result<lycosa_queue::StartReport, lycosa_queue::Error> {
        self.begin_epoch();
        let Admitted { queue, store, now, .. } = &mut self.data.bookkeep();
        queue.start(store, *now)
    }

    /// Whether the queue has not started because nothing has asked for it.
    pub(crate) fn awaits_demand(&self) -> bool {
        self.rules.queue_on_demand
            && self.rules.native_queue
            && self.data.queue().state() == lycosa_queue::QueueState::Init
    }

    /// Changes limits and rules. `memory_limit` is in bytes.
    pub(crate) fn reconfigure(&mut self, rules: Rules, memory_limit: u64) {
        self.rules = rules;
        self.data.upkeep().set_memory_limit(memory_limit);
    }

    pub(crate) fn set_max_tuple_size(&mut self, bytes: u32) {
        self.data.upkeep().set_max_tuple_size(bytes);
    }

    /// Names that begin with `queue.` are the native queue's, or not any more.
    pub(crate) fn set_native_queue(&mut self, native: bool) {
        self.rules.native_queue = native;
        if native || self.data.queue().state() == lycosa_queue::QueueState::Init {
            self.data.upkeep().protect_queue(native);
        }
    }

    /// Adds a type of tube that a program brings: see [`Queue::register`].
    ///
    /// # Errors
    /// As [`Queue::register`].
    pub(crate) fn register_tube_type(
        &mut self,
        tube_type: lycosa_queue::driver::TubeType,
    ) -> Result<lycosa_queue::StartReport, lycosa_queue::Error> {
        let Admitted { queue, store, now, .. } = &mut self.data.bookkeep();
        queue.register(store, tube_type, *now)
    }

    /// Whether `user` may do what needs `access` to the universe.
    ///
    /// # Errors
    /// The user may not.
    pub(crate) fn check_universe(&self, user: UserId, access: Access) -> Result<()> {
        self.data.store().check_access(user, Object::Universe, access).on_wire()
    }

    /// The batch that ended with `lsn` is durable.
    pub(crate) fn handle_durable(&mut self, lsn: u64, buffers: Buffers) {
        self.data.journaling.mark_durable(lsn, buffers);
        self.await_replicas();
    }

    /// The journal has failed for good: from now on data are neither read nor changed.
    pub(crate) fn handle_failed(&mut self, cause: &str) {
        self.data.conditions.set(|facts| facts.failure = Some(cause.to_owned()));
        self.data.journaling.fail();
        self.abandon_checkpoint(cause);
    }

    /// The disk is short of free space, or has enough again. Returns whether that has changed.
    pub(crate) fn handle_free_space(&mut self, scarce: Option<FreeSpace>) -> bool {
        let has_changed = self.data.conditions.facts().scarce_space.is_some() != scarce.is_some();
        let snapshot = self.checkpoints.snapshot_bytes();
        self.data
            .conditions
            .set(|facts| facts.scarce_space = scarce.map(|space| space.beside_snapshot(snapshot)));
        self.checkpoints.free_space_changed(has_changed);
        has_changed
    }

    /// The free space on the disk, while it is short.
    pub(crate) fn scarce_space(&self) -> Option<FreeSpace> {
        self.data.conditions.facts().scarce_space
    }

    /// The data folder is not where the next start looks for it, or is back in its place. Returns whether that is news.
    pub(crate) fn handle_displaced(&mut self, displaced: Option<&str>) -> bool {
        let is_news = self.data.conditions.facts().displaced.as_deref() != displaced;
        if is_news {
            self.data.conditions.set(|facts| facts.displaced = displaced.map(str::to_owned));
        }
        is_news
    }

    /// Whether the journal's backlog exceeds its bound, so that the loop should take nothing more for the moment.
    #[inline]
    pub(crate) fn is_journal_behind(&self) -> bool {
        self.data.journaling.pending_bytes() > self.rules.max_journal_backlog
    }

    /// The rows of the turn, to be made durable together.
    pub(crate) fn poll_append(&mut self) -> Option<Batch> {
        if self.data.conditions.has_failed() { None } else { self.data.journaling.take() }
    }

    /// Whether there are rows for a batch to which others may be added.
    pub(crate) fn has_open_batch(&self) -> bool {
        !self.data.conditions.has_failed() && self.data.journaling.has_open_batch()
    }

    /// The condition that keeps the shard from changing data, if any.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.data.conditions.facts().failure.as_deref().or(self.data.conditions.facts().displaced.as_deref())
    }

    /// Handles expired deadlines of the queue, at most `queue_step`.
    pub(crate) fn step_queue(&mut self) -> lycosa_queue::Tick {
        let Ok(admitted) = self.data.admit(Need::Deadline) else { return lycosa_queue::Tick::default() };
        let tick = admitted.queue.tick(admitted.store, admitted.now, self.queue_step);
        drop(admitted);
        if tick.handled > 0 {
            self.lag.record(tick.lag_us);
        }
        tick
    }

    forward! { data.queue():
        /// When a deadline of the queue comes, µs since the epoch. May be in the past.
        pub(crate) fn next_deadline(&self) -> Option<u64>;
        /// When long calls and jobs of the queue have something to do, µs since the epoch. May be in the past.
        #[inline]
        pub(crate) fn next_work(&self) -> Option<u64>;
    }

    /// Does a step of long calls and jobs of the queue; when there is something to do next, µs since the epoch.
    pub(crate) fn step_jobs(&mut self, clocks: &Clocks) -> Option<u64> {
        let Admitted { queue, store, now, .. } = &mut self.data.admit(Need::Deadline).ok()?;
        clocks.limit(JOBS_STEP, JOBS_MICROSECONDS, |budget| queue.work(store, *now, budget))
    }

    /// Gives back a little memory of truncated and dropped spaces, and of data that were lost. Whether some is left.
    pub(crate) fn step_garbage(&mut self) -> bool {
        self.free_former(GARBAGE_STEP) || self.data.upkeep().collect_garbage(GARBAGE_STEP)
    }

    /// Log lines of the queue, of expiration tasks, and about spaces that a Tarantool would refuse.
    pub(crate) fn poll_log(&mut self) -> Option<LogLine> {
        let own = self.data.vault.poll_log().or_else(|| self.expiring.poll_log());
        let own = own.or_else(|| self.roles.poll_log());
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
}
