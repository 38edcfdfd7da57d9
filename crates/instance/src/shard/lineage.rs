//! Epochs and terms ([`lycosa_replication::lineage`]): which instance may write, and which rows are this instance's own.
//!
//! An instance of a replica set begins an epoch before its first row of each process. Promotion
//! ([`Shard::promote`](crate::shard::Shard::promote)) begins a term: its row is the first that the new master writes, and stands in
//! one transaction with that of the epoch. An instance that hears of a later term than its own takes no writes: it is *fenced* until
//! it is promoted itself. It hears of a term from a replica that subscribes or acknowledges, from the ballot of a master, and from
//! the row.
//!
//! Invariants: an instance writes no replicated row while it is fenced; the rows of a term and of an epoch come before the rows
//! that depend on them; nothing of another history is applied ([`Shard::apply_checked`](crate::shard::Shard::apply_checked)).
//!
//! Absent: keeping a term that was only heard of. The server writes it beside the data and tells it at the next start.

mod terms;

use std::collections::{BTreeMap, VecDeque};
use std::mem::Discriminant;

use lycosa_queue::{LogLevel, LogLine};
use lycosa_replication::lineage::{Divergence, Lineage, TermMark};
use uuid::Uuid;

/// The epochs and terms that an instance knows.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    /// What the rows say, and the version of the system spaces then.
    known: Lineage,
    version: u64,
    /// Random: the epochs of this process have the marks behind it.
    mark: u64,
    /// The latest term that was heard of otherwise, and whether the server has not taken it yet.
    heard: TermMark,
    is_news: bool,
    /// The version of the system spaces at which no epoch had to be begun.
    alone_at: u64,
    pub(crate) has_begun_epoch: bool,
    /// The instance begins a term as soon as it takes writes.
    is_promoting: bool,
    /// The term of which the log was told that it fences this instance.
    told: TermMark,
    /// Why replicas were refused last, so that the log says it once.
    refused: BTreeMap<Uuid, Discriminant<Divergence>>,
    lines: VecDeque<LogLine>,
}

impl Roles {
    /// `mark` is random.
    pub(crate) fn new(mark: u64) -> Self {
        Self { mark, ..Self::default() }
    }

    pub(crate) fn poll_log(&mut self) -> Option<LogLine> {
        self.lines.pop_front()
    }

    /// A promotion that waits is given up unless `may_go_on`: the instance was told to take no writes.
    pub(crate) fn promotes(&mut self, may_go_on: bool) {
        self.is_promoting &= may_go_on;
    }

    fn warn(&mut self, text: String) {
        self.lines.push_back(LogLine { level: LogLevel::Warning, text });
    }
}
