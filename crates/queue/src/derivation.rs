//! Derivation: reads the rows of a tube with sub-queues or deadlines, a portion at a time, for the queue's memory beside them.
//!
//! It finds the candidates of sub-queues, and wrong rows ([`Amiss`](crate::follower::amiss::Amiss)). The start of a process
//! derives both in one go. After a loss of rows ([`Queue::rebuild`](crate::Queue::rebuild)) the derivation takes steps over
//! many turns, between which the rows must not change.

mod portion;

use crate::driver::candidates::{Candidate, Rebuild};

/// How far what derives from a tube's rows is found.
#[derive(Debug)]
pub(crate) struct Finding {
    stage: Stage,
    /// Candidates that the ready buffer shows.
    shown: usize,
}

/// The index that is read, and the key that was read last.
#[derive(Debug)]
enum Stage {
    Candidates(Rebuild),
    /// Rows of the ready buffer, by the task's id.
    Buffer(Option<u64>),
    /// Candidates that the ready buffer may not show.
    Hidden(Option<Candidate>),
    /// Tasks, by id. The index of deadlines would have to flush the entries that it defers.
    Events(Option<u64>),
    Done,
}

impl Default for Finding {
    fn default() -> Self {
        Self { stage: Stage::Candidates(Rebuild::default()), shown: 0 }
    }
}
