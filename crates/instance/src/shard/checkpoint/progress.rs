//! The progress of a checkpoint: it begins, hands out its rows in chunks, and is completed or given up.

use super::disk::{Bound, Files};
use super::order::{CheckpointOrder, Chunk, Written};
use super::schedule::RETRY_AFTER;
use super::{Base, Checkpoints, LastCheckpoint, Running, Snapshot, Stage};
use crate::Result;
use crate::shard::Shard;
use crate::shard::admission::Need;
use crate::shard::clocks::Clocks;
use crate::shard::request::RequestId;
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::row;
use lycosa_store::Budget;
use lycosa_tuple::mp;
use std::collections::VecDeque;

/// Microseconds after which a step hands its rows to the writer, however few they are.
const STEP_MICROSECONDS: u64 = 300;

impl Shard {
    /// Tells which snapshot the instance was started from (its signature), and what files there are.
    pub(crate) fn set_checkpoint_base(&mut self, signature: u64, files: Files) {
        let (live, at) = (self.data.store().snapshot_bytes(), self.data.now);
        let (journaled, measured) = (-i128::from(files.journal), self.data.journaling.written_bytes());
        self.checkpoints.base = Base { signature, at, files, live, journaled, measured };
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

    pub(super) fn has_changed_since_snapshot(&self) -> bool {
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
    pub(crate) fn call_snapshot(&mut self, request: Option<RequestId>) -> Result<Snapshot> {
        self.data.conditions.check(Need::Read)?;
        if self.checkpoints.is_running() || !self.checkpoints.waiting.is_empty() {
            let message = "Snapshot is already in progress";
            return Err(ErrorObject::client(ErrorCode::CheckpointInProgress, message));
        }
        let Some(request) = request else { return Ok(Snapshot::MayNotWait) };
        if !self.request_checkpoint() {
            return Ok(Snapshot::Exists);
        }
        self.checkpoints.waiting.push(request);
        Ok(Snapshot::Awaited)
    }

    fn answer_snapshots(&mut self, result: &Result<()>) {
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
            if !is_forced || self.data.conditions.facts().is_member {
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
        let is_member = self.data.conditions.facts().is_member;
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
        if keep.scarce.is_some() && !self.data.conditions.facts().is_member {
            // The file that ends here can only go when there is a next one, and perhaps no later row begins one.
            self.data.journaling.add_nop(self.data.now);
            if let Some(running) = &mut self.checkpoints.running {
                running.awaited = self.data.journaling.lsn();
            }
        }
        let (number, timestamp) = (self.checkpoints.number, seconds(self.data.now));
        Some(CheckpointOrder::Begin { number, vclock, timestamp, keep })
    }

    fn next_chunk(&mut self, budget: Budget<'_>) -> Option<CheckpointOrder> {
        let number = self.checkpoints.number;
        let running = self.checkpoints.running.as_mut()?;
        let mut chunk = running.wanted.pop_front()?;
        chunk.clear();
        let timestamp = seconds(running.began_at);
        let has_more = self.data.upkeep().read_view_next(budget, &mut |space, tuple, is_local| {
            let group = u32::from(is_local);
            row::encode_snapshot_row(&mut chunk.rows, running.rows, timestamp, group, space, tuple);
            let end = u32::try_from(chunk.rows.len());
            chunk.ends.push(end.expect("a chunk is not longer than its budget and a tuple"));
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
        let is_completing = running.is_some_and(|running| running.stage == Stage::Completing);
        if self.data.conditions.has_failed() || !is_completing {
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
