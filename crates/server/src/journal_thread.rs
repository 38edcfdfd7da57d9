//! The journal thread: the only place of the process that waits for the disk while requests are served.
//!
//! It takes one batch at a time, appends and syncs it, and says which LSN is durable. After a failure it says so
//! once and answers every later batch with the same failure: a journal that failed never writes again.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use lycosa_instance::{Batch, Buffers};
use lycosa_journal::log::{self, Log};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What the loop sends to the journal thread.
enum Job {
    Append(Box<Batch>),
    Close,
}

/// What the journal thread sends to the loop.
pub(crate) enum Done {
    /// Everything up to `lsn` is durable in the sense of the `wal_mode`; the buffers come back for reuse.
    Durable { lsn: u64, buffers: Buffers },
    /// The batch could not be made durable; nothing after it will be.
    Failed(String),
}

/// The loop's end of the channel to the journal thread.
pub(crate) struct JournalSender(mpsc::Sender<Job>);

impl JournalSender {
    /// Hands a batch over. The caller sends the next one only after [`Done`].
    pub(crate) fn send(&self, batch: Batch) {
        self.put(Job::Append(Box::new(batch)));
    }

    fn close(&self) {
        self.put(Job::Close);
    }

    fn put(&self, job: Job) {
        if self.0.send(job).is_err() {
            tracing::error!("the journal thread is gone");
        }
    }
}

/// The running thread.
pub(crate) struct JournalThread {
    thread: JoinHandle<()>,
    closer: JournalSender,
}

impl JournalThread {
    /// Starts the thread on an open log.
    pub(crate) fn spawn<L: Log + Send + 'static>(
        log: L,
    ) -> std::io::Result<(JournalThread, JournalSender, UnboundedReceiver<Done>)> {
        let (jobs, inbox) = mpsc::channel();
        let (outbox, done) = unbounded_channel();
        let thread =
            thread::Builder::new().name("journal".to_owned()).spawn(move || run(log, &inbox, &outbox))?;
        let closer = JournalSender(jobs.clone());
        Ok((JournalThread { thread, closer }, JournalSender(jobs), done))
    }

    /// Closes the log cleanly and waits for the thread's end.
    pub(crate) fn close(self) {
        self.closer.close();
        if self.thread.join().is_err() {
            tracing::error!("the journal thread panicked");
        }
    }
}

fn run<L: Log>(mut log: L, inbox: &mpsc::Receiver<Job>, outbox: &UnboundedSender<Done>) {
    for job in inbox {
        match job {
            Job::Append(batch) => {
                let done = append(&mut log, *batch);
                if outbox.send(done).is_err() {
                    return;
                }
            }
            Job::Close => {
                if let Err(error) = log.close() {
                    tracing::error!("the journal was not closed cleanly: {error}");
                }
                return;
            }
        }
    }
}

fn append<L: Log>(log: &mut L, batch: Batch) -> Done {
    let lsn = batch.lsn;
    let batch = log::Batch { rows: batch.rows, ends: batch.ends, vclock: batch.vclock };
    match log.append(&batch).and_then(|()| log.sync()) {
        Ok(()) => Done::Durable { lsn, buffers: Buffers { rows: batch.rows, ends: batch.ends } },
        Err(error) => {
            tracing::error!("the journal failed, no more changes are taken: {error}");
            Done::Failed(error.to_string())
        }
    }
}
