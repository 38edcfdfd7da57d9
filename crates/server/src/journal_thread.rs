//! The journal thread: the only place of the process that waits for the disk while requests are served.
//!
//! It takes one batch at a time, appends and syncs it, and says which LSN is durable. After a failure it says so
//! once and answers every later batch with the same failure: a journal that failed never writes again.
//!
//! It also watches the room on the disk and says when it becomes scarce and when it is back, so that tasks are refused
//! while there is still room to journal how the accepted ones end.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

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
    /// So many bytes are free where the journal is. Sent when that falls below the reserve, and when it is back.
    Room {
        /// Bytes that the server's account may still write.
        free: u64,
        /// Whether they are fewer than the reserve.
        is_scarce: bool,
    },
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
        room: RoomWatch,
    ) -> std::io::Result<(JournalThread, JournalSender, UnboundedReceiver<Done>)> {
        let (jobs, inbox) = mpsc::channel();
        let (outbox, done) = unbounded_channel();
        let thread = thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || run(log, room, &inbox, &outbox))?;
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

fn run<L: Log>(mut log: L, mut room: RoomWatch, inbox: &mpsc::Receiver<Job>, outbox: &UnboundedSender<Done>) {
    loop {
        let job = match inbox.recv_timeout(ROOM_INTERVAL) {
            Ok(job) => Some(job),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let mut news = Vec::new();
        match job {
            Some(Job::Append(batch)) => {
                let bytes = batch.rows.len() as u64;
                news.push(append(&mut log, *batch));
                news.extend(room.written(bytes));
            }
            Some(Job::Close) => {
                if let Err(error) = log.close() {
                    tracing::error!("the journal was not closed cleanly: {error}");
                }
                return;
            }
            None => news.extend(room.look()),
        }
        for done in news {
            if outbox.send(done).is_err() {
                return;
            }
        }
    }
}

/// How often the room on the disk is looked at when nothing is written.
const ROOM_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of rows after which the room on the disk is looked at again.
const ROOM_STEP: u64 = 1 << 20;

/// Watches the room on the disk where the journal is.
pub(crate) struct RoomWatch {
    folder: PathBuf,
    reserve: u64,
    unseen: u64,
    is_scarce: bool,
}

impl RoomWatch {
    /// Room is scarce when fewer than `reserve` bytes are free on the disk of `folder`; 0 never looks.
    pub(crate) fn new(folder: PathBuf, reserve: u64) -> RoomWatch {
        RoomWatch { folder, reserve, unseen: ROOM_STEP, is_scarce: false }
    }

    /// So many bytes of rows were written: looks if it is time to.
    fn written(&mut self, bytes: u64) -> Option<Done> {
        self.unseen += bytes;
        if self.unseen < ROOM_STEP { None } else { self.look() }
    }

    /// Looks, and says so if the answer has changed. Room is back once there is a quarter more than the reserve, so that
    /// the answer does not flutter.
    fn look(&mut self) -> Option<Done> {
        self.unseen = 0;
        if self.reserve == 0 {
            return None;
        }
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let is_scarce = free < if self.is_scarce { self.reserve + self.reserve / 4 } else { self.reserve };
        if std::mem::replace(&mut self.is_scarce, is_scarce) == is_scarce {
            return None;
        }
        Some(Done::Room { free, is_scarce })
    }
}

fn append<L: Log>(log: &mut L, batch: Batch) -> Done {
    let (lsn, ends_file) = (batch.lsn, batch.ends_file);
    let batch = log::Batch { rows: batch.rows, ends: batch.ends, vclock: batch.vclock };
    let written = log.append(&batch).and_then(|()| log.sync());
    match written.and_then(|()| if ends_file { log.rotate() } else { Ok(()) }) {
        Ok(()) => Done::Durable { lsn, buffers: Buffers { rows: batch.rows, ends: batch.ends } },
        Err(error) => {
            tracing::error!("the journal failed, no more changes are taken: {error}");
            Done::Failed(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scarce_room_is_said_once_and_so_is_its_return() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = RoomWatch::new(folder.path().to_owned(), u64::MAX / 2);
        assert!(matches!(watch.written(1), Some(Done::Room { is_scarce: true, .. })));
        assert!(watch.look().is_none());
        watch.reserve = 1;
        assert!(watch.written(ROOM_STEP - 1).is_none());
        assert!(matches!(watch.written(1), Some(Done::Room { is_scarce: false, .. })));
        watch.reserve = 0;
        assert!(watch.look().is_none());
    }
}
