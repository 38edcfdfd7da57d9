//! The journal thread without a thread: what it does next, it does when it is told to.
//!
//! A batch is written, then synced, then reported, and anything may happen in between.

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
    Queued(u64, log::Batch),
    Written(u64, log::Batch),
    Synced(u64, log::Batch),
    Failed(String),
    /// A failure was reported.
    Dead,
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
        assert!(!ends_file, "the simulator takes no checkpoints");
        self.stage = Stage::Queued(lsn, log::Batch { rows, ends, vclock });
    }

    /// Does the next thing. Returns its name, and what the instance has to be told after it.
    pub(crate) fn step(&mut self) -> (&'static str, Option<Done>) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => ("nothing", None),
            Stage::Queued(lsn, batch) => {
                let written = self.log.append(&batch);
                self.enter(written, lsn, WalMode::Write, Stage::Written(lsn, batch));
                ("write", None)
            }
            Stage::Written(lsn, batch) => {
                let synced = self.log.sync();
                self.enter(synced, lsn, WalMode::Fsync, Stage::Synced(lsn, batch));
                ("sync", None)
            }
            Stage::Synced(lsn, log::Batch { rows, ends, .. }) => {
                ("report", Some(Done::Durable { lsn, buffers: Buffers { rows, ends } }))
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

    fn enter(&mut self, done: Result<(), log::LogError>, lsn: u64, keeps: WalMode, next: Stage) {
        self.stage = match done {
            Ok(()) => next,
            Err(error) => return self.stage = Stage::Failed(error.to_string()),
        };
        if self.mode == keeps {
            self.durable = lsn;
        }
    }
}
