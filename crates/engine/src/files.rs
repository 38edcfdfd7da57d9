//! Local files as a journal: batches go to the log in the data folder.
//!
//! [`append`] makes one batch durable and says so; a thread may do that beside the loop. [`FileJournal`] does it in
//! the turn itself, which is what a program without a thread for it wants, and what costs least where nothing is
//! synced.

use std::collections::VecDeque;

use lycosa_instance::{Batch, Buffers};
use lycosa_journal::log::{self, LogError};
use lycosa_journal::writer::XlogWriter;

use crate::journal::{Journal, News, NoMembership, Pace};

/// Makes a batch durable in the sense of the log's mode. The news is [`News::Durable`] or [`News::Failed`]: a log
/// that failed once never writes again.
#[must_use]
pub fn append(log: &mut XlogWriter, batch: Batch) -> News {
    let Batch { rows, ends, vclock, previous, lsn, ends_file, .. } = batch;
    let before = log.vclock().signature();
    if previous != before {
        return News::Failed(format!(
            "a batch follows LSN {previous}, and the journal has rows up to {before}"
        ));
    }
    let batch = log::Batch { rows, ends, vclock };
    let written = log.append(&batch).and_then(|()| log.sync());
    match written.and_then(|()| if ends_file { log.rotate() } else { Ok(()) }) {
        Ok(()) => News::Durable { lsn, buffers: Buffers { rows: batch.rows, ends: batch.ends } },
        Err(error) => News::Failed(error.to_string()),
    }
}

/// A log that the turn appends to itself.
#[derive(Debug)]
pub struct FileJournal {
    log: XlogWriter,
    news: VecDeque<News>,
}

impl FileJournal {
    /// Appends to `log`.
    #[must_use]
    pub fn new(log: XlogWriter) -> Self {
        Self { log, news: VecDeque::new() }
    }

    /// Ends the log in order and makes it durable.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.log.close()
    }
}

impl Journal for FileJournal {
    type Membership = NoMembership;

    fn pace(&self) -> Pace {
        Pace::Immediate
    }

    fn submit(&mut self, batch: Batch) {
        self.news.push_back(append(&mut self.log, batch));
    }

    fn poll(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn membership(&mut self) -> Option<&mut NoMembership> {
        None
    }
}
