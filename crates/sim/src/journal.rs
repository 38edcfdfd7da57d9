//! The journal without a thread: what it does next, it does when it is told to.
//!
//! With `fsync` a batch is written, then synced, then the file ended if a snapshot stands there, then reported; anything may
//! happen in between. In the other modes the server's loop does all that at once, at the end of a turn, and so does this.

use lycosa_instance::{Batch, Buffers};
use lycosa_journal::log::{self, Log, WalMode};
use lycosa_journal::writer::XlogWriter;

/// What the instance has to be told.
#[derive(Debug)]
pub(crate) enum Done {
    Durable { lsn: u64, buffers: Buffers },
    Failed(String),
}

#[derive(Debug)]
enum Stage {
    Idle,
    Queued(Work),
    Written(Work),
    Synced(Work),
    Ended(Work),
    Failed(String),
    /// A failure was reported.
    Dead,
}

/// A batch on its way.
#[derive(Debug)]
struct Work {
    batch: log::Batch,
    lsn: u64,
    ends_file: bool,
}

/// The log and the one batch that it is busy with.
#[derive(Debug)]
pub(crate) struct Journal {
    log: XlogWriter,
    mode: WalMode,
    stage: Stage,
    durable: u64,
}

impl Journal {
    /// A journal over an open log whose rows up to `durable` are on the disk.
    pub(crate) fn new(log: XlogWriter, mode: WalMode, durable: u64) -> Self {
        Self { log, mode, stage: Stage::Idle, durable }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// The signature of the last row that survives whatever the mode promises to survive, as the disk knows it.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// The log, for a checkpoint or an end in order.
    pub(crate) fn log(&mut self) -> &mut XlogWriter {
        &mut self.log
    }

    /// Takes a batch. The journal must be idle.
    pub(crate) fn send(&mut self, batch: Batch) {
        let Batch { rows, ends, vclock, lsn, ends_file } = batch;
        self.stage = Stage::Queued(Work { batch: log::Batch { rows, ends, vclock }, lsn, ends_file });
    }

    /// Whether batches wait for a thread. Otherwise the loop [appends](Self::append) them itself.
    pub(crate) fn has_thread(&self) -> bool {
        self.mode == WalMode::Fsync
    }

    /// Appends a batch, as the loop does it where there is no thread.
    pub(crate) fn append(&mut self, batch: Batch) -> Done {
        self.send(batch);
        loop {
            if let (_, Some(done)) = self.step() {
                return done;
            }
        }
    }

    /// Does the next thing. Returns its name, and what the instance has to be told after it.
    pub(crate) fn step(&mut self) -> (&'static str, Option<Done>) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => ("nothing", None),
            Stage::Queued(work) => {
                let written = self.log.append(&work.batch);
                self.enter(written, self.mode != WalMode::Fsync, work.lsn, Stage::Written(work));
                ("write", None)
            }
            Stage::Written(work) => {
                let synced = self.log.sync();
                self.enter(synced, self.mode == WalMode::Fsync, work.lsn, Stage::Synced(work));
                ("sync", None)
            }
            Stage::Synced(work) if work.ends_file => {
                let ended = self.log.rotate();
                self.enter(ended, false, work.lsn, Stage::Ended(work));
                ("end of the file", None)
            }
            Stage::Synced(work) | Stage::Ended(work) => {
                let log::Batch { rows, ends, .. } = work.batch;
                ("report", Some(Done::Durable { lsn: work.lsn, buffers: Buffers { rows, ends } }))
            }
            Stage::Failed(cause) => {
                self.stage = Stage::Dead;
                ("report of a failure", Some(Done::Failed(cause)))
            }
            Stage::Dead => {
                self.stage = Stage::Dead;
                ("nothing", None)
            }
        }
    }

    /// Goes on to `next`, unless the disk has refused. `is_durable`: the rows up to `lsn` are durable then.
    fn enter(&mut self, done: Result<(), log::LogError>, is_durable: bool, lsn: u64, next: Stage) {
        self.stage = match done {
            Ok(()) => next,
            Err(error) => return self.stage = Stage::Failed(error.to_string()),
        };
        if is_durable {
            self.durable = lsn;
        }
    }
}
