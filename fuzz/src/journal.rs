//! A journal in memory that makes batches durable on demand.

use std::collections::VecDeque;

use lycosa_engine::journal::{Journal, News, NoMembership, Pace};
use lycosa_instance::{Batch, Buffers};

/// Most unconfirmed batches, so that rows gather for the next one.
const IN_FLIGHT: usize = 3;

#[derive(Default)]
pub(crate) struct MemoryJournal {
    /// Batches that were submitted and are not durable, the oldest first.
    in_flight: VecDeque<Batch>,
    /// All rows that it got.
    rows: Vec<u8>,
    news: VecDeque<News>,
    has_failed: bool,
}

impl MemoryJournal {
    /// All submitted batches become durable. False if there was none.
    pub(crate) fn confirm(&mut self) -> bool {
        let durable = self
            .in_flight
            .drain(..)
            .map(|Batch { rows, ends, lsn, .. }| News::Durable { lsn, buffers: Buffers { rows, ends } });
        let before = self.news.len();
        self.news.extend(durable);
        self.news.len() > before
    }

    /// The disk is gone.
    pub(crate) fn fail(&mut self) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.in_flight.clear();
            self.news.push_back(News::Failed("the disk is gone".to_owned()));
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// All rows that it got.
    pub(crate) fn rows(&self) -> &[u8] {
        &self.rows
    }
}

impl Journal for MemoryJournal {
    type Membership = NoMembership;

    fn pace(&self) -> Pace {
        Pace::Pipelined(IN_FLIGHT)
    }

    fn submit(&mut self, batch: Batch) {
        if self.has_failed {
            return;
        }
        assert_eq!(batch.ends.last().map_or(0, |&end| end as usize), batch.rows.len());
        self.rows.extend_from_slice(&batch.rows);
        self.in_flight.push_back(batch);
    }

    fn poll(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn membership(&mut self) -> Option<&mut NoMembership> {
        None
    }
}
