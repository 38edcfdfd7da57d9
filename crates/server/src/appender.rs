//! Appends batches to the log of a data folder.
//!
//! It also watches the free space of the disk, and says when that becomes scarce and when it is back. So tasks are
//! refused while there is still space to journal how the accepted ones end. And it watches whether the data folder is
//! still in its place: no start finds rows that are journaled into a removed or moved folder.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lycosa_engine::files;
use lycosa_engine::journal::News;
use lycosa_instance::{Batch, FreeSpace};
use lycosa_journal::directory::Directory;
use lycosa_journal::writer::XlogWriter;

/// Appends batches to a log and watches the folder and the free space for it.
pub(crate) struct Appender {
    pub(crate) log: XlogWriter,
    pub(crate) watch: Watch,
}

impl Appender {
    /// Makes a batch durable in the sense of the `wal_mode`. Returns the news of the batch, and of the free space if that has
    /// changed.
    pub(crate) fn append(&mut self, batch: Batch) -> [Option<News>; 2] {
        let bytes = batch.rows.len() as u64;
        let news = files::append(&mut self.log, batch);
        if let News::Failed(cause) = &news {
            tracing::error!("the journal failed, no more changes are taken: {cause}");
        }
        [Some(news), self.watch.written(bytes)]
    }

    /// Ends the log cleanly.
    ///
    /// # Errors
    /// The log is not closed, or it is where no start looks for it: [`Unclosed`].
    pub(crate) fn close(&mut self) -> Result<(), Unclosed> {
        self.log.close().map_err(|error| Unclosed(error.to_string()))?;
        self.watch.look_for_folder();
        self.watch.displaced.take().map_or(Ok(()), |displaced| Err(Unclosed(displaced)))
    }
}

/// Watches the folder of a log and the free space on its disk.
pub(crate) struct Watch {
    directory: Directory,
    /// The state of the folder.
    displaced: Option<String>,
    room: RoomWatch,
    looked: Instant,
}

impl Watch {
    pub(crate) fn new(directory: Directory, room: RoomWatch) -> Self {
        Self { directory, displaced: None, room, looked: Instant::now() }
    }

    /// Rows of this length in bytes were written: looks if it is time to.
    pub(crate) fn written(&mut self, bytes: u64) -> Option<News> {
        self.room.written(bytes).or_else(|| self.look())
    }

    /// Looks at the folder and at the free space if that has not been done for [`FREE_SPACE_INTERVAL`].
    pub(crate) fn look(&mut self) -> Option<News> {
        if self.looked.elapsed() < FREE_SPACE_INTERVAL {
            return None;
        }
        self.looked = Instant::now();
        self.look_for_folder().or_else(|| self.room.look())
    }

    /// Looks whether the folder is in its place; says so if that has changed.
    fn look_for_folder(&mut self) -> Option<News> {
        let displaced = self.directory.disk().check_place().err();
        let displaced =
            displaced.map(|what| format!("the data folder {} {what}", self.directory.path("").display()));
        if displaced == self.displaced {
            return None;
        }
        self.displaced.clone_from(&displaced);
        Some(News::Displaced(displaced))
    }
}

/// The journal did not end as it should.
#[derive(Debug, thiserror::Error)]
#[error("the journal was not closed cleanly: {0}")]
pub struct Unclosed(pub(crate) String);

/// How often the free space is looked at when nothing is written.
pub(crate) const FREE_SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of rows after which the free space is looked at again.
const FREE_SPACE_STEP: u64 = 1 << 20;

/// Free bytes of the disk of a folder, if the system says so.
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Watches the free space on the disk of the journal.
pub(crate) struct RoomWatch {
    folder: PathBuf,
    reserve: u64,
    unseen: u64,
    is_scarce: bool,
}

impl RoomWatch {
    /// Space is scarce when fewer than `reserve` bytes are free on the disk of `folder`; 0 never looks.
    pub(crate) fn new(folder: PathBuf, reserve: u64) -> RoomWatch {
        RoomWatch { folder, reserve, unseen: FREE_SPACE_STEP, is_scarce: false }
    }

    /// Counts written rows in bytes: looks if it is time to.
    pub(crate) fn written(&mut self, bytes: u64) -> Option<News> {
        self.unseen += bytes;
        if self.unseen < FREE_SPACE_STEP { None } else { self.look() }
    }

    /// Looks, and returns the free space while it is short, and once when it is enough again. It is enough again once it is
    /// a quarter more than the reserve, so that the answer does not flutter.
    pub(crate) fn look(&mut self) -> Option<News> {
        self.unseen = 0;
        if self.reserve == 0 {
            return None;
        }
        let free = free_bytes(&self.folder)?;
        let is_scarce = free < if self.is_scarce { self.reserve + self.reserve / 4 } else { self.reserve };
        let was_scarce = std::mem::replace(&mut self.is_scarce, is_scarce);
        (is_scarce || was_scarce)
            .then_some(News::FreeSpace { room: FreeSpace::new(free, self.reserve), is_scarce })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scarce_room_is_said_while_it_lasts_and_its_return_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = RoomWatch::new(folder.path().to_owned(), u64::MAX / 2);
        assert!(matches!(watch.written(1), Some(News::FreeSpace { is_scarce: true, .. })));
        assert!(matches!(watch.look(), Some(News::FreeSpace { is_scarce: true, .. })));
        watch.reserve = 1;
        assert!(watch.written(FREE_SPACE_STEP - 1).is_none());
        assert!(matches!(watch.written(1), Some(News::FreeSpace { is_scarce: false, .. })));
        assert!(watch.look().is_none());
        watch.reserve = 0;
        assert!(watch.look().is_none());
    }
}
