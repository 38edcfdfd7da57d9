//! Checkpoints: when one is due, and the way of all data into a snapshot in small steps.
//!
//! A checkpoint begins between two transactions, when every row so far is in the journal's batches. Its moment is the
//! vclock after the last of these rows: a read view of the store is opened, and the batch ends a journal file, so
//! that the next one begins where the snapshot stands. Then rows of the view are encoded in chunks, one whenever the
//! writer of the file asks for it. The snapshot may get its name only when the rows before its moment are durable, so
//! the order to complete it waits for that.
//!
//! The shard writes no file. It gives [`CheckpointOrder`]s ([`Shard::poll_checkpoint`]) and receives reports about
//! them. Both carry the checkpoint's number, so that a report about a checkpoint that was given up is not taken for one
//! about the next.
//!
//! [`schedule`] decides when one begins, [`order`] has the orders for the writer of files, [`status`] the numbers for the
//! operator, [`disk`] the bounds of the files' sizes.

mod disk;
mod order;
mod schedule;
mod status;

use std::collections::VecDeque;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::row;
use lycosa_iproto::vclock::Vclock;
use lycosa_store::{Budget, ClosedView};
use lycosa_tuple::mp;

use self::disk::Bound;
use self::schedule::{Look, RETRY_AFTER};
use crate::shard::admission::Need;
use crate::shard::clocks::Clocks;
use crate::shard::{RequestId, Shard};

pub use self::disk::Files;
pub use self::order::{CheckpointOrder, Chunk, Keep, Written};
pub use self::status::{CheckpointStatus, LastCheckpoint};

/// Microseconds after which a step hands its rows to the writer, however few they are.
const STEP_MICROSECONDS: u64 = 300;

/// A checkpoint under way.
#[derive(Debug)]
struct Running {
    vclock: Box<Vclock>,
    /// Signature of the vclock.
    signature: u64,
    /// The row that must be durable before the snapshot is completed.
    awaited: u64,
    began_at: u64,
    /// Bytes journaled when it began.
    journaled: u64,
    live: u64,
    rows: u64,
    /// Bytes of the rows, which take as much of the disk at most.
    bytes: u64,
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

/// The outcome of a call for a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Snapshot {
    /// Nothing has changed since the last one.
    Exists,
    /// The call is answered when it is complete.
    Awaited,
    /// It would have to be waited for, which this call may not.
    MayNotWait,
}

/// The snapshot that a start would begin with, and the files around it.
#[derive(Debug, Clone, Default)]
struct Base {
    /// Signature of its vclock.
    signature: u64,
    /// When it was taken, or the instance started.
    at: u64,
    files: Files,
    /// Live data when it was taken, or at the start.
    live: u64,
    /// Bytes journaled before it by this process, less the bytes that other processes have journaled after it.
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
    /// A backup copies snapshots: none is removed.
    is_held: bool,
    /// It must write a new snapshot even if nothing has changed since the last one.
    is_forced: bool,
    /// Calls that wait for it.
    waiting: Vec<RequestId>,
    /// One was given up; the writer is to be told, and to drop this.
    given_up: Option<Option<ClosedView>>,
    base: Base,
    /// No checkpoint begins before, unless one is requested.
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

impl Checkpoints {
    pub(crate) fn new(signature: u64, now: u64) -> Self {
        Self {
            running: None,
            number: 0,
            is_wanted: false,
            is_held: false,
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
    pub(crate) fn free_space_changed(&mut self, has_changed: bool) {
        self.has_tried_for_room &= !has_changed;
    }

    /// Bytes of the rows that the running checkpoint has handed out; 0 if none runs.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.bytes)
    }

    /// The calls that wait for a checkpoint.
    pub(crate) fn waiting_calls(&self) -> &[RequestId] {
        &self.waiting
    }

    fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

impl Shard {
    /// Tells which snapshot the instance was started from (its signature), and what files there are.
    pub(crate) fn set_checkpoint_base(&mut self, signature: u64, files: Files) {
        let live = self.data.store().snapshot_bytes();
        let journaled = -i128::from(files.journal);
        self.checkpoints.base = Base {
            signature,
            at: self.data.now,
            files,
            live,
            journaled,
            measured: self.data.journaling.written_bytes(),
        };
    }

    /// Wants a checkpoint as soon as possible, even if nothing has changed since the last snapshot: because its file, or a
    /// journal file after it, is damaged.
    pub(crate) fn force_checkpoint(&mut self) {
        self.checkpoints.is_wanted = true;
        self.checkpoints.is_forced = true;
    }

    /// Whether all snapshots stay, because a backup copies them. A disk that is short of free space ends that.
    pub(crate) fn hold_snapshots(&mut self, held: bool) {
        self.checkpoints.is_held = held;
    }

    /// Wants a checkpoint as soon as possible. False if nothing has changed since the last snapshot.
    pub(crate) fn request_checkpoint(&mut self) -> bool {
        let is_new = self.has_changed_since_snapshot();
        self.checkpoints.is_wanted |= is_new;
        is_new
    }

    fn has_changed_since_snapshot(&self) -> bool {
        self.checkpoints.is_forced || self.checkpoints.base.signature != self.data.journaling.signature()
    }

    /// The signature of the checkpoint that is under way.
    pub(crate) fn checkpoint_signature(&self) -> Option<u64> {
        self.checkpoints.running.as_ref().map(|running| running.signature)
    }

    /// Whether a checkpoint is under way, about to begin or about to be given up.
    pub(crate) fn has_checkpoint(&self) -> bool {
        let Checkpoints { is_wanted, given_up, .. } = &self.checkpoints;
        self.checkpoints.is_running() || *is_wanted || given_up.is_some()
    }

    /// Takes a snapshot for a call, which is answered when it is complete. `request` is the number of the call, if that may
    /// wait.
    ///
    /// # Errors
    /// One is being written, as in Tarantool; the journal has failed.
    pub(crate) fn call_snapshot(&mut self, request: Option<RequestId>) -> Result<Snapshot, ErrorObject> {
        self.data.conditions.check(Need::Read)?;
        if self.checkpoints.is_running() || !self.checkpoints.waiting.is_empty() {
            return Err(ErrorObject::client(
                ErrorCode::CheckpointInProgress,
                "Snapshot is already in progress",
            ));
        }
        let Some(request) = request else { return Ok(Snapshot::MayNotWait) };
        if !self.request_checkpoint() {
            return Ok(Snapshot::Exists);
        }
        self.checkpoints.waiting.push(request);
        Ok(Snapshot::Awaited)
    }

    fn answer_snapshots(&mut self, result: &Result<(), ErrorObject>) {
        let mut values = Vec::new();
        mp::write_str(&mut values, b"ok");
        for request in std::mem::take(&mut self.checkpoints.waiting) {
            self.answer(request, result.clone().map(|()| (1, values.clone())));
        }
    }

    /// The next order for the writer of snapshots: at most one a turn, within the budget.
    pub(crate) fn poll_checkpoint(&mut self, budget: Budget<'_>, clocks: &Clocks) -> Option<CheckpointOrder> {
        let began = clocks.clock();
        let order = clocks.limit(budget, STEP_MICROSECONDS, |budget| self.next_order(budget));
        let held = clocks.clock().zip(began).map_or(0, |(now, began)| now.saturating_sub(began));
        self.checkpoints.longest_pause = self.checkpoints.longest_pause.max(held);
        order
    }

    fn next_order(&mut self, budget: Budget<'_>) -> Option<CheckpointOrder> {
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
        if !self.checkpoints.is_wanted || self.data.conditions.has_failed() {
            return None;
        }
        if self.checkpoints.base.signature == self.data.journaling.signature() {
            // Two snapshots cannot have one moment.
            // A member of a group makes no row of its own for that.
            let is_forced = std::mem::take(&mut self.checkpoints.is_forced);
            if !is_forced || self.data.conditions.is_member() {
                // It was wanted while the one that holds everything was being written.
                self.checkpoints.is_wanted = false;
                self.answer_snapshots(&Ok(()));
                return None;
            }
            self.data.journaling.add_nop(self.data.now);
        }
        if let Err(error) = self.data.settle_owners() {
            self.checkpoints.is_wanted = false;
            self.checkpoints.retry_at = self.data.now.saturating_add(RETRY_AFTER);
            self.checkpoints.failure = Some(error.message.clone());
            self.answer_snapshots(&Err(error));
            return None;
        }
        self.checkpoints.is_forced = false;
        let is_member = self.data.conditions.is_member();
        self.data.journaling.end_file(is_member);
        self.data.upkeep().open_read_view();
        let live = self.data.store().snapshot_bytes();
        let bound = Bound { live, threshold: self.rules.checkpoint_wal_threshold };
        let keep = self.keep(bound.before_snapshot(self.checkpoints.expected_snapshot(live)));
        let checkpoints = &mut self.checkpoints;
        checkpoints.is_wanted = false;
        checkpoints.number += 1;
        let vclock = Box::new(self.data.journaling.vclock().clone());
        checkpoints.running = Some(Box::new(Running {
            vclock: vclock.clone(),
            signature: self.data.journaling.signature(),
            awaited: self.data.journaling.lsn(),
            began_at: self.data.now,
            journaled: self.data.journaling.written_bytes(),
            live,
            rows: 0,
            bytes: 0,
            wanted: VecDeque::new(),
            stage: Stage::Walking,
        }));
        if keep.scarce.is_some() && !self.data.conditions.is_member() {
            // The file that ends here can only go when there is a next one, and perhaps no later row begins one.
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

    fn next_chunk(&mut self, budget: Budget<'_>) -> Option<CheckpointOrder> {
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
        running.bytes += chunk.rows.len() as u64;
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
        let bound = Bound { live: running.live, threshold: self.rules.checkpoint_wal_threshold };
        let keep = self.keep(bound.after_snapshot(self.checkpoints.expected_snapshot(bound.live)));
        let view = self.data.upkeep().close_read_view();
        Some(CheckpointOrder::Complete { number: self.checkpoints.number, keep, view })
    }

    /// The writer of the snapshot waits for rows; `buffer` is for them.
    pub(crate) fn handle_checkpoint_wants(&mut self, number: u64, buffer: Chunk) {
        if let Some(running) = self.running_checkpoint(number) {
            running.wanted.push_back(buffer);
        }
    }

    fn running_checkpoint(&mut self, number: u64) -> Option<&mut Running> {
        self.checkpoints.running.as_deref_mut().filter(|_| self.checkpoints.number == number)
    }

    /// The snapshot is complete. Returns how many bytes more than they may the files took, if they did.
    pub(crate) fn handle_checkpoint_done(&mut self, number: u64, written: &Written, now: u64) -> Option<u64> {
        self.data.now = now;
        self.running_checkpoint(number)?;
        let running = self.checkpoints.running.take()?;
        self.data.upkeep().snapshot_completed();
        let threshold = self.rules.checkpoint_wal_threshold;
        // Data were added and deleted while it ran.
        let live = self.data.store().snapshot_bytes().max(running.live);
        let peak = written.peak.saturating_sub(written.files.replicas);
        let excess = peak.saturating_sub(Bound { live, threshold }.total());
        let checkpoints = &mut self.checkpoints;
        checkpoints.excesses += u64::from(excess > 0);
        checkpoints.count += 1;
        checkpoints.failure = None;
        checkpoints.retry_at = 0;
        checkpoints.base = Base {
            signature: running.signature,
            at: running.began_at,
            files: written.files.clone(),
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
    pub(crate) fn handle_checkpoint_failed(&mut self, number: u64, cause: &str, now: u64) -> bool {
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

    /// Gives up the checkpoint that is under way: the server ends, or the journal has failed. While the journal is
    /// sound, one that the writer was told to complete goes on: the snapshot may have its name already, and another
    /// one of the same moment would be refused.
    pub(crate) fn abandon_checkpoint(&mut self, cause: &str) {
        self.checkpoints.is_wanted = false;
        let running = self.checkpoints.running.as_ref();
        if self.data.conditions.has_failed()
            || running.is_none_or(|running| running.stage != Stage::Completing)
        {
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
}

fn seconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}
