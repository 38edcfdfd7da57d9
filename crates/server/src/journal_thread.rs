//! The journal thread: the only place of the process that waits for the disk while requests are served.
//!
//! It takes one batch at a time, appends and syncs it, and says which LSN is durable.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};

use lycosa_engine::journal::News;
use lycosa_instance::Batch;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::appender::{Appender, FREE_SPACE_INTERVAL, Unclosed};

/// Messages of the loop to the journal thread: a batch to append; `None` closes the log.
type Job = Option<Box<Batch>>;

/// The loop's end of the channel to the journal thread.
pub(crate) struct JournalSender(mpsc::Sender<Job>);

impl JournalSender {
    /// Hands a batch over. The caller sends the next one only after [`News`] of it.
    pub(crate) fn send(&self, batch: Batch) {
        self.put(Some(Box::new(batch)));
    }

    fn put(&self, job: Job) {
        if self.0.send(job).is_err() {
            tracing::error!("the journal thread is gone");
        }
    }
}

/// The running thread.
pub(crate) struct JournalThread {
    thread: JoinHandle<Result<(), Unclosed>>,
    closer: JournalSender,
}

impl JournalThread {
    /// Starts the thread.
    pub(crate) fn spawn(
        appender: Appender,
    ) -> std::io::Result<(JournalThread, JournalSender, UnboundedReceiver<News>)> {
        let (jobs, inbox) = mpsc::channel();
        let (outbox, done) = unbounded_channel();
        let thread = thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || run(appender, &inbox, &outbox))?;
        let closer = JournalSender(jobs.clone());
        Ok((JournalThread { thread, closer }, JournalSender(jobs), done))
    }

    /// Closes the log cleanly and waits for the thread's end.
    ///
    /// # Errors
    /// As [`Appender::close`].
    pub(crate) fn close(self) -> Result<(), Unclosed> {
        self.closer.put(None);
        self.thread.join().unwrap_or_else(|_| Err(Unclosed("its thread panicked".to_owned())))
    }
}

fn run(
    mut appender: Appender,
    inbox: &mpsc::Receiver<Job>,
    outbox: &UnboundedSender<News>,
) -> Result<(), Unclosed> {
    loop {
        let news = match inbox.recv_timeout(FREE_SPACE_INTERVAL) {
            Ok(Some(batch)) => appender.append(*batch),
            Ok(None) => return appender.close(),
            Err(RecvTimeoutError::Timeout) => [None, appender.watch.look()],
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        for done in news.into_iter().flatten() {
            if outbox.send(done).is_err() {
                return Ok(());
            }
        }
    }
}
