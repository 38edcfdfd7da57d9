//! The journal as the loop sees it: batches go in, and it hears when they are durable.
//!
//! With `wal_mode` `fsync` the disk is waited for by a [thread](crate::journal_thread) while the loop goes on. In the other
//! modes nothing is waited for: a batch is a `write` into the system's cache, which costs less than waking a thread and being
//! woken by it, so the loop appends it itself. (Where the system's cache is full of what the disk has not taken yet, that
//! `write` waits; nobody's reply could leave before it anyway.)
//!
//! After a failure it says so once and answers every later batch with the same failure: a journal that failed never
//! writes again.
//!
//! It also watches the room on the disk and says when it becomes scarce and when it is back, so that tasks are refused
//! while there is still room to journal how the accepted ones end.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lycosa_instance::{Batch, Buffers, Room};
use lycosa_journal::log::{self, Log};

use crate::journal_thread::JournalSender;

/// Who appends.
pub(crate) enum Journal {
    /// The journal thread.
    Thread(JournalSender),
    /// The loop.
    Here(Box<RefCell<Appender>>),
}

/// What came of a batch, and of looking at the disk.
pub(crate) enum Done {
    /// Everything up to `lsn` is durable in the sense of the `wal_mode`; the buffers come back for reuse.
    Durable { lsn: u64, buffers: Buffers },
    /// The batch could not be made durable; nothing after it will be.
    Failed(String),
    /// What is free where the journal is. Sent when that falls below the reserve, whenever it was looked at while it is, and
    /// when it is back.
    Room {
        /// Free space and reserve.
        room: Room,
        /// Whether there is less free space than the reserve.
        is_scarce: bool,
    },
}

/// Appends batches to a log and watches the room for it.
pub(crate) struct Appender {
    log: Box<dyn Log + Send>,
    room: RoomWatch,
    looked: Instant,
}

impl Appender {
    /// Appends to `log` as long as there is room.
    pub(crate) fn new(log: Box<dyn Log + Send>, room: RoomWatch) -> Appender {
        Appender { log, room, looked: Instant::now() }
    }

    /// Makes a batch durable in the sense of the `wal_mode`. What is to be said of it, and what of the room if that has
    /// changed.
    pub(crate) fn append(&mut self, batch: Batch) -> (Done, Option<Done>) {
        let bytes = batch.rows.len() as u64;
        let done = append(&mut *self.log, batch);
        let room = self.room.written(bytes).or_else(|| self.look());
        (done, room)
    }

    /// Looks at the room on the disk if that has not been done for [`ROOM_INTERVAL`].
    pub(crate) fn look(&mut self) -> Option<Done> {
        if self.looked.elapsed() < ROOM_INTERVAL {
            return None;
        }
        self.looked = Instant::now();
        self.room.look()
    }

    /// Ends the log cleanly.
    pub(crate) fn close(&mut self) {
        if let Err(error) = self.log.close() {
            tracing::error!("the journal was not closed cleanly: {error}");
        }
    }
}

/// How often the room on the disk is looked at when nothing is written.
pub(crate) const ROOM_INTERVAL: Duration = Duration::from_secs(1);

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

    /// Looks, and says what there is while it is short, and once when it is not any more. Room is back once there is a quarter more than the reserve, so that
    /// the answer does not flutter.
    fn look(&mut self) -> Option<Done> {
        self.unseen = 0;
        if self.reserve == 0 {
            return None;
        }
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let is_scarce = free < if self.is_scarce { self.reserve + self.reserve / 4 } else { self.reserve };
        let was_scarce = std::mem::replace(&mut self.is_scarce, is_scarce);
        (is_scarce || was_scarce)
            .then_some(Done::Room { room: Room { free, reserve: self.reserve }, is_scarce })
    }
}

fn append(log: &mut dyn Log, batch: Batch) -> Done {
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
    fn scarce_room_is_said_while_it_lasts_and_its_return_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = RoomWatch::new(folder.path().to_owned(), u64::MAX / 2);
        assert!(matches!(watch.written(1), Some(Done::Room { is_scarce: true, .. })));
        assert!(matches!(watch.look(), Some(Done::Room { is_scarce: true, .. })));
        watch.reserve = 1;
        assert!(watch.written(ROOM_STEP - 1).is_none());
        assert!(matches!(watch.written(1), Some(Done::Room { is_scarce: false, .. })));
        assert!(watch.look().is_none());
        watch.reserve = 0;
        assert!(watch.look().is_none());
    }
}
