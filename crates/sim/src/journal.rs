//! The journal without a thread: each of its steps is a step of the world.
//!
//! With `fsync` a batch is written, then synced, then the file ended if a snapshot stands there, then reported;
//! anything may happen in between. In the other modes all that happens when the batch is submitted, as in the server.
//! The turn hears of it when it asks.

use std::collections::VecDeque;

use lycosa_engine::journal::{self, News, Pace};
use lycosa_instance::{Batch, Buffers};
use lycosa_journal::log::{self, WalMode};
use lycosa_journal::writer::XlogWriter;

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

/// A batch that is being written.
#[derive(Debug)]
struct Work {
    batch: log::Batch,
    lsn: u64,
    ends_file: bool,
}

/// The log and the one batch that it is busy with.
#[derive(Debug)]
pub(crate) struct SimJournal {
    log: XlogWriter,
    mode: WalMode,
    stage: Stage,
    durable: u64,
    news: VecDeque<News>,
}

impl SimJournal {
    /// A journal over an open log whose rows up to `durable` are on the disk.
    pub(crate) fn new(log: XlogWriter, mode: WalMode, durable: u64) -> Self {
        Self { log, mode, stage: Stage::Idle, durable, news: VecDeque::new() }
    }

    /// Whether it has nothing to do, though the turn may have something to hear.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle | Stage::Dead)
    }

    /// The signature of the last row that survives everything that the mode promises to survive, as the disk knows it.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// The log, for a checkpoint or an end in order.
    pub(crate) fn log(&mut self) -> &mut XlogWriter {
        &mut self.log
    }

    /// Whether batches wait for a thread.
    pub(crate) fn has_thread(&self) -> bool {
        self.mode == WalMode::Fsync
    }

    /// Does the next thing. Returns its name.
    pub(crate) fn step(&mut self) -> &'static str {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => "nothing",
            Stage::Queued(work) => {
                let written = self.log.append(&work.batch);
                self.advance(written, self.mode != WalMode::Fsync, work.lsn, Stage::Written(work));
                "write"
            }
            Stage::Written(work) => {
                let synced = self.log.sync();
                self.advance(synced, self.mode == WalMode::Fsync, work.lsn, Stage::Synced(work));
                "sync"
            }
            Stage::Synced(work) if work.ends_file => {
                let ended = self.log.rotate();
                self.advance(ended, false, work.lsn, Stage::Ended(work));
                "end of the file"
            }
            Stage::Synced(work) | Stage::Ended(work) => {
                let log::Batch { rows, ends, .. } = work.batch;
                self.news.push_back(News::Durable { lsn: work.lsn, buffers: Buffers { rows, ends } });
                "report"
            }
            Stage::Failed(cause) => {
                self.stage = Stage::Dead;
                self.news.push_back(News::Failed(cause));
                "report of a failure"
            }
            Stage::Dead => {
                self.stage = Stage::Dead;
                "nothing"
            }
        }
    }

    /// Goes on to `next`, unless the disk has refused. `is_durable`: the rows up to `lsn` are durable then.
    fn advance(&mut self, done: Result<(), log::LogError>, is_durable: bool, lsn: u64, next: Stage) {
        self.stage = match done {
            Ok(()) => next,
            Err(error) => return self.stage = Stage::Failed(error.to_string()),
        };
        if is_durable {
            self.durable = lsn;
        }
    }
}

impl journal::Journal for SimJournal {
    type Membership = journal::NoMembership;

    fn pace(&self) -> Pace {
        if self.has_thread() { Pace::Pipelined(1) } else { Pace::Immediate }
    }

    fn submit(&mut self, batch: Batch) {
        assert!(self.is_idle(), "one batch is under way at a time");
        let Batch { rows, ends, vclock, previous, lsn, ends_file, .. } = batch;
        assert_eq!(previous, self.log.vclock().signature(), "a batch follows the one before it");
        self.stage = Stage::Queued(Work { batch: log::Batch { rows, ends, vclock }, lsn, ends_file });
        while !self.has_thread() && !self.is_idle() {
            self.step();
        }
    }

    fn poll(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn membership(&mut self) -> Option<&mut journal::NoMembership> {
        None
    }
}
