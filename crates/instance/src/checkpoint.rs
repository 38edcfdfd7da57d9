//! Checkpoints: when one is due, and the way of all data into a snapshot in small steps.
//!
//! A checkpoint begins between two transactions, when every row so far is in the journal's batches. Its moment is the
//! vclock after the last of these rows: a read view of the store is opened, and the batch ends a journal file, so that the
//! next one begins where the snapshot stands. Then rows of the view are encoded in chunks, one whenever the writer of the
//! file asks for it. The snapshot may get its name only when the rows before its moment are durable, so the order to complete it
//! waits for that.
//!
//! The instance writes no file. It gives [`CheckpointOrder`]s ([`Instance::poll_checkpoint`]) and is told what has
//! come of them; they carry the checkpoint's number, so that news of one that was given up is not taken for news of the next.
//!
//! A checkpoint is due when the journal has grown to the limit, when the interval has passed and something has changed,
//! when the files take more room than they may, when the disk is short of free space and it would make some, and when
//! somebody asks. After a failure the next one waits for a minute, unless somebody asks or its snapshot fits the disk now.

mod disk;

use std::collections::VecDeque;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::row;
use lycosa_iproto::vclock::Vclock;
use lycosa_store::{Budget, ClosedView};
use lycosa_tuple::mp;

use self::disk::Bound;
use crate::caller::{ParkedCall, ReplyTo};
use crate::{Called, Caller, Instance, RequestId};

pub use self::disk::Files;

/// Pause after a failure before the next checkpoint begins by itself, in microseconds.
const RETRY_AFTER: u64 = 60_000_000;

/// Time after which sizes are looked at again, in microseconds.
const LOOK_EVERY: u64 = 1_000_000;

/// Share of the threshold after which sizes are looked at again.
const LOOKS_PER_THRESHOLD: u64 = 64;

/// Rows of a snapshot as its file holds them, back to back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The rows.
    pub rows: Vec<u8>,
    /// The offset in `rows` after each row.
    pub ends: Vec<u32>,
}

impl Chunk {
    fn clear(&mut self) {
        self.rows.clear();
        self.ends.clear();
    }
}

/// What is to be done about a snapshot, by whoever writes files.
#[derive(Debug)]
pub enum CheckpointOrder {
    /// Begin one, and say when it takes rows ([`Instance::handle_checkpoint_wants`]), once for each chunk that may be
    /// under way.
    Begin {
        /// Of the checkpoint.
        number: u64,
        /// Its moment.
        vclock: Box<Vclock>,
        /// The same in seconds since the epoch.
        timestamp: f64,
        /// Which files may stay.
        keep: Keep,
    },
    /// Add rows.
    Rows {
        /// Of the checkpoint.
        number: u64,
        /// The rows.
        chunk: Chunk,
    },
    /// All rows are there: complete the snapshot, give it its name, remove files that are not needed any more, and say so
    /// ([`Instance::handle_checkpoint_done`]).
    Complete {
        /// Of the checkpoint.
        number: u64,
        /// Which files may stay.
        keep: Keep,
        /// To be dropped.
        view: Option<ClosedView>,
    },
    /// Give the snapshot up, if it has been begun.
    Abandon {
        /// Of the checkpoint.
        number: u64,
        /// To be dropped.
        view: Option<ClosedView>,
    },
}

impl CheckpointOrder {
    /// The number of the checkpoint.
    #[must_use]
    pub fn number(&self) -> u64 {
        match *self {
            Self::Begin { number, .. }
            | Self::Rows { number, .. }
            | Self::Complete { number, .. }
            | Self::Abandon { number, .. } => number,
        }
    }
}

/// Which files may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Snapshots; at least one.
    pub snapshots: usize,
    /// Bytes of all snapshots and xlogs, as far as they are not needed for a start.
    pub bytes: u64,
    /// The disk is short of free space ([`Room`](crate::Room)): the bytes that the snapshot is expected to take. It is refused if these
    /// do not fit; it may take the reserve down to [`Room::journal_share`](crate::Room::journal_share).
    pub scarce: Option<u64>,
}

/// A snapshot that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes of its file.
    pub bytes: u64,
    /// Bytes of all files before old ones were removed.
    pub peak: u64,
    /// The files that are left.
    pub files: Files,
}

/// The last checkpoint that was completed.
#[derive(Debug, Clone, PartialEq)]
pub struct LastCheckpoint {
    /// Its moment.
    pub vclock: Vclock,
    /// The same in microseconds since the epoch.
    pub at: u64,
    /// Rows of the snapshot.
    pub rows: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// How long it took, in microseconds.
    pub duration: u64,
}

/// Checkpoints at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointStatus {
    /// `idle`, `running`, or `failed`: the last one was given up.
    pub state: &'static str,
    /// Why the last one was given up.
    pub failure: Option<String>,
    /// The last one that was completed since the start.
    pub last: Option<LastCheckpoint>,
    /// Completed since the start.
    pub count: u64,
    /// Given up since the start.
    pub failures: u64,
    /// The longest that the caller's loop was held by one step, in microseconds, as it has measured
    /// ([`Instance::note_checkpoint_pause`]).
    pub longest_pause: u64,
    /// Bytes that the read view takes beside the data.
    pub memory: u64,
    /// Bytes journaled since the last snapshot.
    pub journal_bytes: u64,
    /// Bytes of that which make a checkpoint due.
    pub journal_limit: u64,
    /// Bytes of all snapshots and xlogs.
    pub disk_used: u64,
    /// What they may take.
    pub disk_bound: u64,
    /// How often they took more.
    pub disk_excesses: u64,
}

/// A checkpoint under way.
#[derive(Debug)]
struct Running {
    vclock: Box<Vclock>,
    /// Signature of the vclock.
    lsn: u64,
    /// What has to be durable before it is completed.
    awaited: u64,
    began_at: u64,
    /// Bytes journaled when it began.
    journaled: u64,
    live: u64,
    rows: u64,
    /// Buffers for chunks that the writer waits for.
    wanted: VecDeque<Chunk>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The view is being handed out.
    Walking,
    /// Rows from before its moment may not be durable yet.
    Waiting,
    /// The writer was told to complete it.
    Completing,
}

/// The snapshot that a start would begin with, and the files around it.
#[derive(Debug, Clone, Copy, Default)]
struct Base {
    /// Signature of its vclock.
    signature: u64,
    /// When it was taken, or the instance started.
    at: u64,
    files: Files,
    /// Live data when it was taken, or at the start.
    live: u64,
    /// Bytes journaled before it by this process, less those that other processes have journaled after it.
    journaled: i128,
    /// Bytes journaled by this process when the files were measured.
    measured: u64,
}

/// Everything about checkpoints.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    running: Option<Box<Running>>,
    /// Of the last one that was begun.
    number: u64,
    /// One is due.
    is_wanted: bool,
    /// It must write a new snapshot even if nothing has changed since the last one.
    is_forced: bool,
    /// Calls that wait for it.
    waiting: Vec<RequestId>,
    /// One was given up; the writer is to be told, and to drop this.
    given_up: Option<Option<ClosedView>>,
    base: Base,
    /// Nothing is begun before, unless somebody asks.
    retry_at: u64,
    /// One was tried since the disk is short of free space.
    has_tried_for_room: bool,
    next_look: Look,
    last: Option<LastCheckpoint>,
    failure: Option<String>,
    count: u64,
    failures: u64,
    excesses: u64,
    longest_pause: u64,
}

/// When to look at sizes: at a time, or when so many bytes have been journaled.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    at: u64,
    journaled: u64,
}

impl Checkpoints {
    pub(crate) fn new(signature: u64, now: u64) -> Self {
        Self {
            running: None,
            number: 0,
            is_wanted: false,
            is_forced: false,
            waiting: Vec::new(),
            given_up: None,
            base: Base { signature, at: now, ..Base::default() },
            retry_at: 0,
            has_tried_for_room: false,
            next_look: Look::default(),
            last: None,
            failure: None,
            count: 0,
            failures: 0,
            excesses: 0,
            longest_pause: 0,
        }
    }

    /// There is other free space on the disk than before; `has_changed`: it has become short, or has ceased to be.
    pub(crate) fn room_changed(&mut self, has_changed: bool) {
        self.has_tried_for_room &= !has_changed;
    }

    fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Bytes journaled since the last snapshot.
    fn journal_bytes(&self, journaled: u64) -> u64 {
        u64::try_from(i128::from(journaled) - self.base.journaled).unwrap_or(0)
    }

    /// Bytes of all files.
    fn disk_used(&self, journaled: u64) -> u64 {
        self.base.files.total.saturating_add(journaled.saturating_sub(self.base.measured))
    }

    /// What a snapshot will take, judged by the last one.
    fn expected_snapshot(&self, live: u64) -> u64 {
        let Base { files, live: then, .. } = self.base;
        if then == 0 {
            return live;
        }
        let expected = u128::from(files.snapshot) * u128::from(live) / u128::from(then);
        u64::try_from(expected).unwrap_or(u64::MAX).min(live)
    }

    fn journal_limit(&self, bound: Bound) -> u64 {
        bound.journal_limit(self.base.files.snapshot, self.expected_snapshot(bound.live))
    }
}

impl Instance {
    /// Tells which snapshot the instance was started from (its signature), and what files there are.
    pub fn set_checkpoint_base(&mut self, signature: u64, files: Files) {
        let live = self.data.store().snapshot_bytes();
        self.checkpoints.base = Base {
            signature,
            at: self.data.now,
            files,
            live,
            journaled: -i128::from(files.journal),
            measured: self.data.journaling.written_bytes(),
        };
    }

    /// Wants a checkpoint as soon as possible, even if nothing has changed since the last snapshot: because its file, or a
    /// journal file after it, is damaged.
    pub fn force_checkpoint(&mut self) {
        self.checkpoints.is_wanted = true;
        self.checkpoints.is_forced = true;
    }

    /// Wants a checkpoint as soon as possible. False if nothing has changed since the last snapshot.
    pub fn request_checkpoint(&mut self) -> bool {
        let is_new = self.has_changed_since_snapshot();
        self.checkpoints.is_wanted |= is_new;
        is_new
    }

    fn has_changed_since_snapshot(&self) -> bool {
        self.checkpoints.is_forced || self.checkpoints.base.signature != self.data.journaling.lsn()
    }

    /// Whether a checkpoint is under way, about to begin or about to be given up.
    pub fn has_checkpoint(&self) -> bool {
        let Checkpoints { is_wanted, given_up, .. } = &self.checkpoints;
        self.checkpoints.is_running() || *is_wanted || given_up.is_some()
    }

    /// CALL of `box.snapshot`: answered when the snapshot is complete. Tarantool: refused while one is being written.
    pub(crate) fn call_snapshot(
        &mut self,
        caller: &Caller,
        reply: ReplyTo,
        out: &mut Vec<u8>,
    ) -> Result<Called, ErrorObject> {
        self.data.check_alive()?;
        if self.checkpoints.is_running() || !self.checkpoints.waiting.is_empty() {
            return Err(ErrorObject::client(
                ErrorCode::CheckpointInProgress,
                "Snapshot is already in progress",
            ));
        }
        if !caller.may_wait {
            return Err(crate::call::too_many_waiting(self.settings.max_waiting));
        }
        if !self.request_checkpoint() {
            mp::write_str(out, b"ok");
            return Ok(Called::Done { count: 1 });
        }
        let request = self.parked.next_request();
        self.park(request, ParkedCall { session: caller.session, reply, is_invoke: false });
        self.checkpoints.waiting.push(request);
        Ok(Called::Parked(request))
    }

    fn answer_snapshots(&mut self, result: &Result<(), ErrorObject>) {
        let mut values = Vec::new();
        mp::write_str(&mut values, b"ok");
        for request in std::mem::take(&mut self.checkpoints.waiting) {
            self.answer(request, result.clone().map(|()| (1, values.as_slice())));
        }
    }

    /// Looks whether a checkpoint is due. When the interval will have passed, if that is what it waits for.
    pub(crate) fn tick_checkpoints(&mut self) -> Option<u64> {
        let now = self.data.now;
        if self.has_checkpoint() || !self.has_changed_since_snapshot() {
            return None;
        }
        if self.would_make_room() {
            self.checkpoints.is_wanted = true;
            return None;
        }
        let interval = self.settings.checkpoint_interval;
        let due_at = (interval > 0).then(|| self.checkpoints.base.at.saturating_add(interval));
        if now < self.checkpoints.retry_at {
            return due_at.map(|due_at| due_at.max(self.checkpoints.retry_at));
        }
        let is_time = due_at.is_some_and(|due_at| due_at <= now);
        self.checkpoints.is_wanted = is_time || self.is_too_large();
        due_at.filter(|_| !is_time)
    }

    /// Whether the disk is short of free space, and a checkpoint that can be taken would make some. The first attempt removes old
    /// files, so that only the next ones are held against what is free.
    fn would_make_room(&mut self) -> bool {
        let Some(room) = self.data.scarce_room else { return false };
        let checkpoints = &self.checkpoints;
        let expected = checkpoints.expected_snapshot(self.data.store().snapshot_bytes());
        let used = checkpoints.disk_used(self.data.journaling.written_bytes());
        if used < expected.saturating_add(room.worth()) {
            return false;
        }
        let is_first = !std::mem::replace(&mut self.checkpoints.has_tried_for_room, true);
        is_first
            || room.fits(expected)
                && self.checkpoints.retry_at <= self.data.now.saturating_add(RETRY_AFTER - LOOK_EVERY)
    }

    /// Which files may stay beside a snapshot; `bytes` is what they may take if there is free space.
    fn keep(&self, bytes: u64) -> Keep {
        let snapshots = self.settings.checkpoint_count.max(1);
        match self.data.scarce_room {
            None => Keep { snapshots, bytes, scarce: None },
            Some(_) => {
                let live = self.data.store().snapshot_bytes();
                Keep { snapshots: 1, bytes: 0, scarce: Some(self.checkpoints.expected_snapshot(live)) }
            }
        }
    }

    /// Whether the journal or all files together are larger than they may be; looks only now and then.
    fn is_too_large(&mut self) -> bool {
        let journaled = self.data.journaling.written_bytes();
        let threshold = self.settings.checkpoint_wal_threshold;
        if self.data.now < self.checkpoints.next_look.at && journaled < self.checkpoints.next_look.journaled {
            return false;
        }
        let step = (threshold / LOOKS_PER_THRESHOLD).max(1);
        self.checkpoints.next_look =
            Look { at: self.data.now.saturating_add(LOOK_EVERY), journaled: journaled.saturating_add(step) };
        let live = self.data.store().snapshot_bytes();
        let bound = Bound { live, threshold };
        self.checkpoints.journal_bytes(journaled) >= self.checkpoints.journal_limit(bound)
            || self.checkpoints.disk_used(journaled) > bound.total()
    }

    /// What is to be done next about snapshots: at most one thing a turn, within the budget.
    pub fn poll_checkpoint(&mut self, budget: Budget) -> Option<CheckpointOrder> {
        let number = self.checkpoints.number;
        if let Some(view) = self.checkpoints.given_up.take() {
            return Some(CheckpointOrder::Abandon { number, view });
        }
        match self.checkpoints.running.as_ref().map(|running| running.stage) {
            None => self.begin_checkpoint(),
            Some(Stage::Walking) => self.next_chunk(budget),
            Some(Stage::Waiting) => self.complete_checkpoint(),
            Some(Stage::Completing) => None,
        }
    }

    fn begin_checkpoint(&mut self) -> Option<CheckpointOrder> {
        if !self.checkpoints.is_wanted || self.data.failure.is_some() {
            return None;
        }
        self.settle();
        if self.checkpoints.base.signature == self.data.journaling.lsn() {
            // Two snapshots cannot have one moment.
            if !std::mem::take(&mut self.checkpoints.is_forced) {
                // It was wanted while the one that holds everything was being written.
                self.checkpoints.is_wanted = false;
                self.answer_snapshots(&Ok(()));
                return None;
            }
            self.data.journaling.add_nop(self.data.now);
        }
        self.checkpoints.is_forced = false;
        self.data.journaling.end_file();
        self.data.upkeep().open_read_view();
        let live = self.data.store().snapshot_bytes();
        let bound = Bound { live, threshold: self.settings.checkpoint_wal_threshold };
        let keep = self.keep(bound.before_snapshot(self.checkpoints.expected_snapshot(live)));
        let checkpoints = &mut self.checkpoints;
        checkpoints.is_wanted = false;
        checkpoints.number += 1;
        let vclock = Box::new(self.data.journaling.vclock().clone());
        checkpoints.running = Some(Box::new(Running {
            vclock: vclock.clone(),
            lsn: self.data.journaling.lsn(),
            awaited: self.data.journaling.lsn(),
            began_at: self.data.now,
            journaled: self.data.journaling.written_bytes(),
            live,
            rows: 0,
            wanted: VecDeque::new(),
            stage: Stage::Walking,
        }));
        if keep.scarce.is_some() {
            // The file that ends here can only go when there is a next one, and nobody may add anything to begin it.
            self.data.journaling.add_nop(self.data.now);
            if let Some(running) = &mut self.checkpoints.running {
                running.awaited = self.data.journaling.lsn();
            }
        }
        Some(CheckpointOrder::Begin {
            number: self.checkpoints.number,
            vclock,
            timestamp: seconds(self.data.now),
            keep,
        })
    }

    fn next_chunk(&mut self, budget: Budget) -> Option<CheckpointOrder> {
        let number = self.checkpoints.number;
        let running = self.checkpoints.running.as_mut()?;
        let mut chunk = running.wanted.pop_front()?;
        chunk.clear();
        let timestamp = seconds(running.began_at);
        let has_more = self.data.upkeep().read_view_next(budget, &mut |space, tuple, is_local| {
            row::encode_snapshot_row(
                &mut chunk.rows,
                running.rows,
                timestamp,
                u32::from(is_local),
                space,
                tuple,
            );
            chunk.ends.push(
                u32::try_from(chunk.rows.len()).expect("a chunk is not longer than its budget and a tuple"),
            );
            running.rows += 1;
        });
        if !has_more {
            running.stage = Stage::Waiting;
        }
        Some(CheckpointOrder::Rows { number, chunk })
    }

    fn complete_checkpoint(&mut self) -> Option<CheckpointOrder> {
        let running = self.checkpoints.running.as_mut()?;
        if self.data.journaling.durable() < running.awaited {
            return None;
        }
        running.stage = Stage::Completing;
        let bound = Bound { live: running.live, threshold: self.settings.checkpoint_wal_threshold };
        let keep = self.keep(bound.after_snapshot(self.checkpoints.expected_snapshot(bound.live)));
        let view = self.data.upkeep().close_read_view();
        Some(CheckpointOrder::Complete { number: self.checkpoints.number, keep, view })
    }

    /// The writer of the snapshot waits for rows; `buffer` is for them.
    pub fn handle_checkpoint_wants(&mut self, number: u64, buffer: Chunk) {
        if let Some(running) = self.running_checkpoint(number) {
            running.wanted.push_back(buffer);
        }
    }

    fn running_checkpoint(&mut self, number: u64) -> Option<&mut Running> {
        self.checkpoints.running.as_deref_mut().filter(|_| self.checkpoints.number == number)
    }

    /// The snapshot is complete. Returns how many bytes more than they may the files took, if they did.
    pub fn handle_checkpoint_done(&mut self, number: u64, written: &Written, now: u64) -> Option<u64> {
        self.data.now = now;
        self.running_checkpoint(number)?;
        let running = self.checkpoints.running.take()?;
        let threshold = self.settings.checkpoint_wal_threshold;
        // Data have come and gone while it ran.
        let live = self.data.store().snapshot_bytes().max(running.live);
        let excess = written.peak.saturating_sub(Bound { live, threshold }.total());
        let checkpoints = &mut self.checkpoints;
        checkpoints.excesses += u64::from(excess > 0);
        checkpoints.count += 1;
        checkpoints.failure = None;
        checkpoints.retry_at = 0;
        checkpoints.base = Base {
            signature: running.lsn,
            at: running.began_at,
            files: written.files,
            live: running.live,
            journaled: i128::from(running.journaled),
            measured: self.data.journaling.written_bytes(),
        };
        checkpoints.last = Some(LastCheckpoint {
            vclock: *running.vclock,
            at: running.began_at,
            rows: running.rows,
            bytes: written.bytes,
            duration: now.saturating_sub(running.began_at),
        });
        self.answer_snapshots(&Ok(()));
        (excess > 0).then_some(excess)
    }

    /// The snapshot could not be written. Returns whether the one before it had been completed: whether this is news.
    pub fn handle_checkpoint_failed(&mut self, number: u64, cause: &str, now: u64) -> bool {
        self.data.now = now;
        if self.running_checkpoint(number).is_none() {
            return false;
        }
        let is_news = self.checkpoints.failure.is_none();
        self.checkpoints.failure = Some(cause.to_owned());
        self.checkpoints.failures += 1;
        self.checkpoints.retry_at = now.saturating_add(RETRY_AFTER);
        self.give_checkpoint_up(cause);
        is_news
    }

    /// Gives up the checkpoint that is under way: the server ends, or the journal has failed. While the journal is sound, one
    /// that the writer was told to complete goes on: the snapshot may have its name already, and another one of the same
    /// moment would be refused.
    pub fn abandon_checkpoint(&mut self, cause: &str) {
        self.checkpoints.is_wanted = false;
        let running = self.checkpoints.running.as_ref();
        if self.data.failure.is_some() || running.is_none_or(|running| running.stage != Stage::Completing) {
            self.give_checkpoint_up(cause);
        }
    }

    fn give_checkpoint_up(&mut self, cause: &str) {
        if self.checkpoints.running.take().is_some() {
            self.checkpoints.given_up = Some(self.data.upkeep().close_read_view());
        }
        let message = format!("the checkpoint was given up: {cause}");
        self.answer_snapshots(&Err(ErrorObject::client(ErrorCode::System, message)));
    }

    /// A step of a checkpoint has held the caller's loop for so many microseconds.
    pub fn note_checkpoint_pause(&mut self, microseconds: u64) {
        self.checkpoints.longest_pause = self.checkpoints.longest_pause.max(microseconds);
    }

    /// Checkpoints at this moment.
    pub fn checkpoint_status(&self) -> CheckpointStatus {
        let checkpoints = &self.checkpoints;
        let journaled = self.data.journaling.written_bytes();
        let bound = Bound {
            live: self.data.store().snapshot_bytes(),
            threshold: self.settings.checkpoint_wal_threshold,
        };
        CheckpointStatus {
            state: match &checkpoints.failure {
                _ if checkpoints.is_running() => "running",
                Some(_) => "failed",
                None => "idle",
            },
            failure: checkpoints.failure.clone(),
            last: checkpoints.last.clone(),
            count: checkpoints.count,
            failures: checkpoints.failures,
            longest_pause: checkpoints.longest_pause,
            memory: self.data.store().read_view_memory(),
            journal_bytes: checkpoints.journal_bytes(journaled),
            journal_limit: checkpoints.journal_limit(bound),
            disk_used: checkpoints.disk_used(journaled),
            disk_bound: bound.total(),
            disk_excesses: checkpoints.excesses,
        }
    }
}

fn seconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}
