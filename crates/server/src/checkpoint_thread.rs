//! The checkpoint thread: carries out the orders of the instance about snapshots ([`lycosa_engine::snapshots`]) beside the
//! loop.
//!
//! The thread asks the system for less of the processor than the rest have: a checkpoint may take longer, requests
//! may not.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use lycosa_engine::group::Base;
use lycosa_engine::snapshots::{CHUNKS, News, Note, Readers, Settings, Snapshots, Surroundings};
use lycosa_instance::CheckpointOrder;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::appender::free_bytes;

/// Orders that can wait for the thread: the chunks, and what begins and ends the snapshot.
const ORDERS: usize = CHUNKS + 4;

/// How far the thread stands back, from 0 to 19.
const NICENESS: i32 = 10;

/// Messages of the loop to the thread; `None` ends it. In a group, the order that completes a snapshot has the snapshot's state.
type Job = Option<(CheckpointOrder, Option<Box<Base>>)>;

/// Which replicas read the journal, and from where on. The loop says so before it orders anything and before files are
/// opened for a replica; the thread looks when it removes files.
#[derive(Clone, Default)]
pub(crate) struct Holds(Arc<Mutex<Readers>>);

impl Holds {
    /// The shared state. Neither thread waits for anything while it holds it.
    pub(crate) fn readers(&self) -> MutexGuard<'_, Readers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The loop's end of the channel to the thread.
pub(crate) struct CheckpointSender(mpsc::SyncSender<Job>);

impl CheckpointSender {
    /// Hands an order over without waiting, in a group with the state of the snapshot that the order completes. False if the thread is
    /// gone.
    pub(crate) fn send(&self, order: CheckpointOrder, state: Option<Base>) -> bool {
        self.0.try_send(Some((order, state.map(Box::new)))).is_ok()
    }
}

/// The running thread.
pub(crate) struct CheckpointThread {
    thread: JoinHandle<()>,
    closer: mpsc::SyncSender<Job>,
}

impl CheckpointThread {
    /// Starts the thread. `folder` is that of the settings' directory, to look at its disk.
    pub(crate) fn spawn(
        settings: Settings,
        folder: PathBuf,
        holds: Holds,
    ) -> std::io::Result<(CheckpointThread, CheckpointSender, UnboundedReceiver<News>)> {
        let (jobs, inbox) = mpsc::sync_channel::<Job>(ORDERS);
        let (outbox, news) = unbounded_channel();
        let mut snapshots = Snapshots::new(settings, Disk { folder, holds, began: Instant::now() });
        let work = move || {
            // Refused where the system does not let us; then it has as much as the rest.
            let _ = rustix::process::getpriority_process(None)
                .and_then(|present| rustix::process::setpriority_process(None, (present + NICENESS).min(19)));
            let mut told = Vec::new();
            for job in inbox {
                let Some((order, state)) = job else { break };
                if let Some(state) = state {
                    snapshots.seal_with(*state);
                }
                snapshots.carry_out(order, &mut told);
                // As a lazily preempting kernel would not ask for it ([`lycosa_store::Breaks`]).
                thread::yield_now();
                for news in told.drain(..) {
                    // The loop may have ended: then the message has no receiver.
                    let _ = outbox.send(news);
                }
            }
            snapshots.give_up();
        };
        let thread = thread::Builder::new().name("checkpoint".to_owned()).spawn(work)?;
        Ok((CheckpointThread { thread, closer: jobs.clone() }, CheckpointSender(jobs), news))
    }

    /// Ends the thread and waits for it. A snapshot that has not been completed is given up.
    pub(crate) fn close(self) {
        // The thread is gone if it cannot be told.
        let _ = self.closer.send(None);
        if self.thread.join().is_err() {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

/// The disk of the folder, and the log.
struct Disk {
    folder: PathBuf,
    holds: Holds,
    /// When the last snapshot was begun.
    began: Instant,
}

impl Surroundings for Disk {
    fn free_bytes(&self) -> Option<u64> {
        free_bytes(&self.folder)
    }

    fn readers(&self) -> Readers {
        self.holds.readers().clone()
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Begun => self.began = Instant::now(),
            Note::Complete { vclock, rows, bytes } => {
                let elapsed = self.began.elapsed();
                tracing::info!("checkpoint at {vclock}: {rows} rows, {bytes} bytes in {elapsed:.2?}");
            }
            Note::Removed { files, bytes } => tracing::info!("removed {files} old files of {bytes} bytes"),
            Note::NotRemoved(error) => {
                tracing::warn!("old files could not be removed; the next checkpoint tries again: {error}");
            }
            Note::SetAside { name, aside } => tracing::warn!(
                "the snapshot '{name}' is not sound and is replaced; it is now called '{aside}'"
            ),
            Note::LeftOver(error) => {
                tracing::warn!(
                    "an unfinished snapshot could not be removed; the next start does it: {error}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lycosa_engine::snapshots::LOOK_AFTER;
    use lycosa_instance::{Chunk, Keep};
    use lycosa_iproto::row::encode_snapshot_row;
    use lycosa_iproto::vclock::Vclock;
    use lycosa_journal::directory::{Directory, file_name};
    use lycosa_journal::meta::FileKind;
    use lycosa_journal::snap::SnapshotWriter;
    use uuid::Uuid;

    use super::*;

    const KEEP: Keep = Keep { snapshots: 2, bytes: u64::MAX, scarce: None };

    struct Rig {
        folder: tempfile::TempDir,
        thread: CheckpointThread,
        sender: CheckpointSender,
        news: UnboundedReceiver<News>,
    }

    fn rig(reserve: u64) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let instance = Uuid::from_u128(7);
        SnapshotWriter::create(directory.clone(), instance, &Vclock::new(), 1.5).unwrap().finish().unwrap();
        let settings = Settings { directory, reserve, look_after: LOOK_AFTER, instance, sound: 0 };
        let path = folder.path().to_owned();
        let (thread, sender, news) = CheckpointThread::spawn(settings, path, Holds::default()).unwrap();
        Rig { folder, thread, sender, news }
    }

    impl Rig {
        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.folder.path()).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn begin(&self, number: u64, lsn: u64) {
            let mut vclock = Box::new(Vclock::new());
            vclock.set(1, lsn).unwrap();
            assert!(
                self.sender.send(CheckpointOrder::Begin { number, vclock, timestamp: 1.5, keep: KEEP }, None)
            );
        }

        fn rows(&self, number: u64) {
            let mut chunk = Chunk::default();
            encode_snapshot_row(&mut chunk.rows, 0, 1.5, 0, 512, &[0x91, 0x01]);
            chunk.ends.push(u32::try_from(chunk.rows.len()).unwrap());
            assert!(self.sender.send(CheckpointOrder::Rows { number, chunk }, None));
        }

        fn next(&mut self) -> News {
            self.news.blocking_recv().expect("the thread runs")
        }

        fn expect_wants(&mut self, wanted: u64, count: usize) {
            for _ in 0..count {
                assert!(matches!(self.next(), News::Wants { number, .. } if number == wanted));
            }
        }
    }

    #[test]
    fn a_snapshot_is_written_and_old_ones_go() {
        let mut rig = rig(1);
        for number in 1..4 {
            rig.begin(number, number * 10);
            rig.expect_wants(number, CHUNKS);
            rig.rows(number);
            rig.expect_wants(number, 1);
            assert!(rig.sender.send(CheckpointOrder::Complete { number, keep: KEEP, view: None }, None));
            let News::Done { written, .. } = rig.next() else { panic!("it is complete") };
            assert!(written.files.snapshot == written.bytes && written.peak >= written.files.total);
        }
        assert_eq!(rig.names(), ["00000000000000000020.snap", "00000000000000000030.snap"]);
        rig.thread.close();
    }

    #[test]
    fn the_file_that_the_last_snapshot_ended_goes_as_soon_as_there_is_one_after_it() {
        let mut rig = rig(1);
        let keep = Keep { snapshots: 1, bytes: u64::MAX, scarce: None };
        let xlog = |signature| rig.folder.path().join(file_name(FileKind::Xlog, signature));
        let (ended, next) = (xlog(0), xlog(10));
        std::fs::write(&ended, [0; 5000]).unwrap();
        for number in 1..3 {
            rig.begin(number, number * 10);
            rig.expect_wants(number, CHUNKS);
            assert!(ended.exists(), "the last file may be written on");
            if number == 2 {
                std::fs::write(&next, [0; 700]).unwrap();
            }
            assert!(rig.sender.send(CheckpointOrder::Complete { number, keep, view: None }, None));
            let News::Done { written, .. } = rig.next() else { panic!("it is complete") };
            assert_eq!(written.peak >= 5000, number == 1, "{written:?}");
        }
        assert!(!ended.exists() && next.exists());
        rig.thread.close();
    }

    #[test]
    fn what_is_given_up_leaves_nothing() {
        let mut rig = rig(1);
        rig.begin(1, 10);
        rig.expect_wants(1, CHUNKS);
        assert_eq!(rig.names().len(), 2);
        assert!(rig.sender.send(CheckpointOrder::Abandon { number: 1, view: None }, None));
        // Unwritten rows are dropped, and the next one begins.
        rig.rows(1);
        rig.begin(2, 10);
        rig.expect_wants(2, CHUNKS);
        let Rig { folder, thread, sender, .. } = rig;
        drop(sender);
        thread.close();
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "the end of the thread gives up too: {names:?}");
    }

    #[test]
    fn the_last_room_is_the_journal_s() {
        let mut rig = rig(u64::MAX);
        rig.begin(1, 10);
        let News::Failed { number: 1, cause } = rig.next() else { panic!("there is no room") };
        assert!(cause.contains("disk_reserve"), "{cause}");
        assert_eq!(rig.names().len(), 1);
        rig.thread.close();
    }

    #[test]
    fn a_snapshot_that_a_start_passed_over_is_set_aside() {
        let mut rig = rig(1);
        std::fs::write(rig.folder.path().join("00000000000000000010.snap"), "not one").unwrap();
        rig.begin(1, 10);
        rig.expect_wants(1, CHUNKS);
        assert!(rig.sender.send(CheckpointOrder::Complete { number: 1, keep: KEEP, view: None }, None));
        assert!(matches!(rig.next(), News::Done { .. }));
        let expected =
            ["00000000000000000000.snap", "00000000000000000010.snap", "00000000000000000010.snap.corrupted"];
        assert_eq!(rig.names(), expected);
        rig.thread.close();
    }
}
