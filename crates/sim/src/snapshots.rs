//! The rules of checkpoints: they begin when they are due, hold the data of their time, replace old files, keep
//! to the bound of the disk, and are nothing to the journal when they fail.
//!
//! The bound is the contract of `docs/checkpoints.md`: twice the live data and four times the threshold, for all
//! files when a snapshot is complete and the old ones are still there. It is checked more closely than it is
//! promised: of the two times the live data, one is the most that lived since this snapshot was begun, the other that
//! or the last snapshot as large as it is.
//!
//! A world may journal many thresholds between two turns, or while a snapshot is written by a few bytes at a time, as
//! no real one does. So bytes that were journaled too much since the last snapshot are measured and added; bytes that were journaled
//! before it are not, and neither are older snapshots. Bytes that were being written when a checkpoint began count as
//! if they had been journaled while that ran: no check could see them in the files then. A snapshot may also be larger than
//! the last one let expect. The check is left to find files that stay.

use std::time::Duration;

use lycosa_instance::{CheckpointOrder, CheckpointStatus, Written};
use lycosa_journal::memory::Fault;
use lycosa_journal::retention::{self, Inventory};

use crate::simulation::Simulation;
use crate::storage;
use crate::violation::{Checked, Violation, hold};

/// How late a size may be looked at, in µs.
const LOOK_EVERY: u64 = 1_000_000;

/// The pause after a failure before the next checkpoint begins, in µs.
const RETRY_AFTER: u64 = 60_000_000;

/// Bytes of a file's text header, blocks' headers and end marker, at most.
const FILE_OVERHEAD: u64 = 600;

/// The known checkpoints of one life of the process.
#[derive(Debug)]
pub(crate) struct Watch {
    /// When the last one that was completed began, or the life.
    base_at: u64,
    /// Its signature, or that of the snapshot that the life began with.
    base: u64,
    /// Live data when it began, or the life.
    base_live: u64,
    /// No checkpoint has to begin before.
    retry_at: u64,
    /// Since when there is more journal than there may be.
    overdue_since: Option<u64>,
    /// What the instance said before the turn's step of a checkpoint.
    pub(crate) before_step: Option<CheckpointStatus>,
    begun: Option<Begun>,
}

/// A checkpoint under way, as it was when it began.
#[derive(Debug)]
struct Begun {
    at: u64,
    signature: u64,
    live: u64,
    /// Bytes of the snapshot before it.
    last_snapshot: u64,
    /// Bytes of the journal over what makes a checkpoint due.
    over: u64,
    /// What the instance held all files to take.
    disk_used: u64,
    /// Bytes of that which were not in the files yet.
    on_the_way: u64,
    /// Bytes of the snapshot if its rows compress as those of the last one did.
    expected: u64,
}

/// Live data, as the instance measures them.
pub(crate) fn live(status: &CheckpointStatus, threshold: u64) -> u64 {
    status.disk_bound.saturating_sub(4 * threshold) / 2
}

impl Watch {
    pub(crate) fn new(base: u64, base_live: u64, now: u64) -> Self {
        Self {
            base_at: now,
            base,
            base_live,
            retry_at: 0,
            overdue_since: None,
            before_step: None,
            begun: None,
        }
    }
}

/// What a turn takes while nothing but a checkpoint is waited for.
const HASTE: Duration = Duration::from_micros(100);

impl Simulation<'_> {
    /// The operator wants a snapshot.
    pub(crate) fn want_checkpoint(&mut self) {
        if !self.life.has_failed {
            let is_due = self.life.instance.request_checkpoint();
            self.trace.line(format_args!("{} a snapshot is wanted: {is_due}", self.step));
        }
    }

    /// The instance orders something of the writer of snapshots.
    pub(crate) fn note_order(&mut self, order: &CheckpointOrder) {
        let before = self.life.watch.before_step.take();
        if let (CheckpointOrder::Begin { vclock, .. }, Some(before)) = (order, before) {
            let threshold = self.plan.instance.checkpoint_wal_threshold;
            let signature = vclock.signature();
            self.shadow.mark(signature);
            let files = self.life.checkpointer.files().unwrap_or_default();
            let (live, then) = (live(&before, threshold), self.life.watch.base_live);
            self.life.watch.begun = Some(Begun {
                at: self.now,
                signature,
                live,
                last_snapshot: files.snapshot,
                over: before.journal_bytes.saturating_sub(before.journal_limit),
                disk_used: before.disk_used,
                on_the_way: before.disk_used.saturating_sub(files.total),
                expected: (files.snapshot * live).checked_div(then).map_or(live, |bytes| bytes.min(live)),
            });
        }
    }

    /// After a tick a checkpoint that is due must be under way.
    pub(crate) fn check_due(&mut self) -> Checked {
        let has_small_backlog =
            self.plan.instance.max_journal_backlog < lycosa_instance::Settings::default().max_journal_backlog;
        if self.plan.backwards || has_small_backlog || self.life.has_failed {
            return Ok(());
        }
        let status = self.life.instance.checkpoint_status();
        let (now, watch) = (self.now, &mut self.life.watch);
        let signature = self.life.instance.standing().signature;
        if self.life.instance.has_checkpoint() || signature == watch.base || now < watch.retry_at {
            watch.overdue_since = None;
            return Ok(());
        }
        let interval = self.plan.instance.checkpoint_interval;
        hold!(
            interval == 0 || now < watch.base_at + interval,
            "at {now} no checkpoint is under way, although the last one began at {}",
            watch.base_at
        );
        if status.journal_bytes < status.journal_limit {
            watch.overdue_since = None;
            return Ok(());
        }
        let since = *watch.overdue_since.get_or_insert(now);
        hold!(
            now < since + LOOK_EVERY,
            "no checkpoint is under way although there are {} bytes of journal since {since}, more than {}",
            status.journal_bytes,
            status.journal_limit
        );
        Ok(())
    }

    /// The writer of snapshots does the next thing.
    pub(crate) fn checkpointer_step(&mut self) -> Checked {
        let life = &mut self.life;
        let used = life.instance.checkpoint_status().disk_used;
        let Some(step) = life.checkpointer.step(&mut life.instance, self.now) else { return Ok(()) };
        self.trace.line(format_args!("{} snapshot {}", self.step, step.text));
        if let Some(cause) = step.failure {
            self.totals.snapshot_failures += 1;
            life.watch.retry_at = self.now + RETRY_AFTER;
            life.watch.begun = None;
            let may_fail = life.is_faulty || life.is_snapshot_faulty || cause.contains("disk_reserve");
            hold!(may_fail, "a snapshot {}", step.text);
        }
        if let Some(written) = step.written
            && let Some(begun) = life.watch.begun.take()
        {
            self.totals.snapshots += 1;
            self.check_written(&written, &begun, used)?;
            if let Some(kept) = &mut self.kept {
                kept.advance(begun.signature)?;
                self.forget_history(begun.signature);
            }
            let watch = &mut self.life.watch;
            (watch.base, watch.base_live, watch.base_at) = (begun.signature, begun.live, begun.at);
            watch.retry_at = 0;
        }
        Ok(())
    }

    /// A snapshot is complete. `used`: what the instance held all files to take when it was told so.
    fn check_written(&self, written: &Written, begun: &Begun, used: u64) -> Checked {
        let Begun { signature, .. } = *begun;
        let digest = storage::snapshot_digest(&self.disk, signature)?;
        hold!(
            self.shadow.marked(signature) == Some(digest),
            "the snapshot at {signature} does not hold what the rows up to it make"
        );
        let life = &self.life;
        if life.is_faulty || life.is_snapshot_faulty || self.has_rotted {
            return Ok(());
        }
        let unreadable = |error| Violation(format!("the folder cannot be read: {error}"));
        let directory = storage::directory(&self.disk);
        let listing = directory.list().map_err(unreadable)?;
        let most = self.plan.instance.checkpoint_count.max(1);
        hold!(
            listing.snapshots.len() <= most,
            "{} snapshots are left after a checkpoint, not {most}",
            listing.snapshots.len()
        );
        hold!(
            listing.in_progress.iter().all(|name| !name.contains(".snap")),
            "left after a checkpoint: {:?}",
            listing.in_progress
        );
        let status = life.instance.checkpoint_status();
        let threshold = self.plan.instance.checkpoint_wal_threshold;
        let live = begun.live.max(live(&status, threshold));
        let inventory = Inventory::of(&directory).map_err(unreadable)?;
        let files = (inventory.xlogs.len() + inventory.snapshots.len() + 2) as u64;
        let while_running = used.saturating_sub(begun.disk_used) + begun.on_the_way;
        let unexpected = written.bytes.saturating_sub(begun.expected);
        let allowed = live
            + live.max(begun.last_snapshot)
            + 4 * threshold
            + begun.over
            + while_running.saturating_sub(threshold)
            + unexpected.saturating_sub(threshold)
            + files * FILE_OVERHEAD;
        hold!(
            written.peak <= allowed,
            "all files took {} bytes, not {allowed}: {live} bytes of data, {} too much journaled before and \
             {while_running} during the checkpoint; snapshots of {} bytes and of {}, {unexpected} more than expected",
            written.peak,
            begun.over,
            begun.last_snapshot,
            written.bytes
        );
        Ok(())
    }

    /// Begins a checkpoint, if none is under way, and lets it come to where there is only its name to be given and old
    /// files to be removed. Requests are not served meanwhile.
    pub(crate) fn hasten_checkpoint(&mut self) -> Checked {
        self.want_checkpoint();
        while self.life.instance.has_checkpoint() && !self.life.has_failed {
            if self.life.checkpointer.is_about_to_complete() {
                break;
            }
            if !self.life.checkpointer.is_idle() {
                self.checkpointer_step()?;
            } else if self.life.journal.is_idle() {
                self.turn()?;
                // Rows may wait for those of clients that were just answered.
                self.clock += HASTE;
            } else {
                self.journal_step();
            }
        }
        Ok(())
    }

    /// The process or the machine ends while the writer of snapshots is in the middle of something. Whether it was.
    pub(crate) fn interrupt_checkpointer(&mut self) -> bool {
        if !self.life.checkpointer.has_orders() {
            return false;
        }
        let before = self.disk.operations();
        let files = self.disk.files().len();
        let operations = self.random.below(14);
        self.disk.fail_after(operations, Fault::Freeze);
        self.life.checkpointer.carry_on();
        let is_frozen = self.disk.operations() - before > operations;
        let is_collecting = is_frozen && self.disk.files().len() < files && self.has_removable_files();
        self.totals.crashes_collecting += u64::from(is_collecting);
        self.trace.line(format_args!(
            "{} the writer of snapshots is interrupted after {operations} operations: {is_frozen}",
            self.step
        ));
        is_frozen
    }

    fn has_removable_files(&self) -> bool {
        let inventory = Inventory::of(&storage::directory(&self.disk)).unwrap_or_default();
        let rule = self.life.checkpointer.rule();
        rule.is_some_and(|rule| !retention::removable(&inventory, &rule).is_empty())
    }

    /// The process has ended: notes in which phase of a checkpoint.
    pub(crate) fn note_interrupted_checkpoint(&mut self) {
        let files = self.disk.files();
        let is_unfinished = files.keys().any(|name| name.ends_with(".snap.inprogress"));
        self.totals.crashes_writing += u64::from(is_unfinished);
        let newest =
            storage::directory(&self.disk).list().ok().and_then(|list| list.snapshots.last().copied());
        let begun = self.life.watch.begun.as_ref().map(|begun| begun.signature);
        self.totals.crashes_unreported += u64::from(begun.is_some() && newest == begun);
    }
}
