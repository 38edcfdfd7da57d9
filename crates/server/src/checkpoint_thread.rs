//! The checkpoint thread: writes snapshots and removes files that are not needed any more.
//!
//! It does what the instance orders: begins a snapshot under its temporary name, adds rows, completes it. The loop gives it
//! rows only when it has asked for them, so no more than [`CHUNKS`] chunks are ever under way: one that is written while
//! the next one is made. After a failure what there is of the snapshot is removed, the failure is told, and the thread
//! waits for the next order to begin.
//!
//! A snapshot never takes the last free space on the disk, which the journal needs: below `disk_reserve` it is given
//! up. When the disk is short already and the snapshot is to make space, it may take a part of the reserve
//! ([`Room::journal_share`]).
//!
//! Xlogs that known replicas still read stay longer, within `replication_journal_limit` ([`Holds`]). When the disk is
//! short of space none stay for replicas.
//!
//! The thread asks the system for less of the processor than the others have: a checkpoint may take longer, requests
//! may not.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use lycosa_instance::{CheckpointOrder, Chunk, Files, Keep, Room, Written};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::meta::FileKind;
use lycosa_journal::retention::{self, Held, Inventory, Rule};
use lycosa_journal::snap::SnapshotWriter;
use lycosa_journal::tail::{Tail, TailError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use uuid::Uuid;

/// Chunks under way at a time.
const CHUNKS: usize = 2;

/// Orders that can wait for the thread: the chunks, and what begins and ends the snapshot.
const ORDERS: usize = CHUNKS + 4;

/// Bytes of a snapshot after which the room on the disk is looked at again.
const ROOM_STEP: u64 = 4 << 20;

/// How far the thread stands back behind the others, from 0 to 19.
const NICENESS: i32 = 10;

/// What the loop sends to the thread.
enum Job {
    Order(CheckpointOrder),
    Close,
}

/// What the thread sends to the loop. Each names the checkpoint by its number.
pub(crate) enum News {
    /// The next rows may come; the buffer is for them.
    Wants { number: u64, buffer: Chunk },
    /// The snapshot is complete and old files are gone.
    Done { number: u64, written: Written },
    /// There is no snapshot.
    Failed { number: u64, cause: String },
    /// Xlogs that these replicas would read have to go: they take more than `limit` bytes.
    Lost { replicas: Vec<Uuid>, limit: u64 },
}

/// Which replicas read the journal, and from where on. The loop says so before it orders anything and before files are
/// opened for a replica; the thread looks when it removes files.
#[derive(Clone, Default)]
pub(crate) struct Holds(Arc<Mutex<Readers>>);

/// What [`Holds`] share.
#[derive(Default)]
pub(crate) struct Readers {
    /// Bytes of xlogs that may stay for replicas alone.
    pub(crate) limit: u64,
    /// The replicas with what each has. `None`: nobody knows, so that all xlogs stay.
    pub(crate) places: Vec<(Uuid, Option<Vclock>)>,
}

impl Holds {
    /// What is shared. Both threads hold it for moments only.
    pub(crate) fn readers(&self) -> MutexGuard<'_, Readers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The loop's end of the channel to the thread.
pub(crate) struct CheckpointSender(mpsc::SyncSender<Job>);

impl CheckpointSender {
    /// Hands an order over without waiting. False if the thread is gone.
    pub(crate) fn send(&self, order: CheckpointOrder) -> bool {
        self.0.try_send(Job::Order(order)).is_ok()
    }
}

/// The running thread.
pub(crate) struct CheckpointThread {
    thread: JoinHandle<()>,
    closer: mpsc::SyncSender<Job>,
}

/// The folder that snapshots are written to, and what is known of the snapshots in it.
pub(crate) struct SnapshotFolder {
    pub(crate) directory: Directory,
    /// The folder of the directory, to look at its disk.
    pub(crate) folder: PathBuf,
    /// Bytes of the disk that a snapshot does not take; 0 never looks.
    pub(crate) reserve: u64,
    /// Whose data they are.
    pub(crate) instance: Uuid,
    /// Signature of the snapshot that the data were recovered from.
    pub(crate) sound: u64,
    pub(crate) holds: Holds,
}

impl CheckpointThread {
    /// Starts the thread.
    pub(crate) fn spawn(
        place: SnapshotFolder,
    ) -> std::io::Result<(CheckpointThread, CheckpointSender, UnboundedReceiver<News>)> {
        let (jobs, inbox) = mpsc::sync_channel(ORDERS);
        let (outbox, news) = unbounded_channel();
        let worker = Worker { place, outbox, writing: None };
        let thread =
            thread::Builder::new().name("checkpoint".to_owned()).spawn(move || worker.run(&inbox))?;
        Ok((CheckpointThread { thread, closer: jobs.clone() }, CheckpointSender(jobs), news))
    }

    /// Ends the thread and waits for it. A snapshot that has not been completed is given up.
    pub(crate) fn close(self) {
        // The thread is gone if it cannot be told.
        let _ = self.closer.send(Job::Close);
        if self.thread.join().is_err() {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

struct Worker {
    place: SnapshotFolder,
    outbox: UnboundedSender<News>,
    writing: Option<Writing>,
}

/// A snapshot that is being written.
struct Writing {
    writer: SnapshotWriter,
    vclock: Vclock,
    keep: Keep,
    began: Instant,
    /// Bytes in the file when the room on the disk was looked at.
    looked_at: u64,
}

impl Worker {
    fn run(mut self, inbox: &mpsc::Receiver<Job>) {
        // Refused where the system does not let us; then it has as much as the others.
        let _ = rustix::process::getpriority_process(None)
            .and_then(|present| rustix::process::setpriority_process(None, (present + NICENESS).min(19)));
        for job in inbox {
            let news = match job {
                Job::Order(order) => self.carry_out(order),
                Job::Close => break,
            };
            for news in news {
                if self.outbox.send(news).is_err() {
                    break;
                }
            }
        }
        self.give_up();
    }

    fn carry_out(&mut self, order: CheckpointOrder) -> Vec<News> {
        match order {
            CheckpointOrder::Begin { number, vclock, timestamp, keep } => {
                self.give_up();
                match self.begin(&vclock, timestamp, keep) {
                    Ok(()) => (0..CHUNKS).map(|_| News::Wants { number, buffer: Chunk::default() }).collect(),
                    Err(cause) => vec![self.failed(number, cause)],
                }
            }
            CheckpointOrder::Rows { number, chunk } => match self.add(&chunk) {
                // Rows of a snapshot that has failed already.
                None => Vec::new(),
                Some(Ok(())) => vec![News::Wants { number, buffer: chunk }],
                Some(Err(cause)) => vec![self.failed(number, cause)],
            },
            CheckpointOrder::Complete { number, keep, view } => {
                let news = self.writing.take().map(|writing| match self.complete(writing, keep) {
                    Ok(written) => News::Done { number, written },
                    Err(cause) => self.failed(number, cause),
                });
                drop(view);
                news.into_iter().collect()
            }
            CheckpointOrder::Abandon { view, .. } => {
                self.give_up();
                drop(view);
                Vec::new()
            }
        }
    }

    fn failed(&mut self, number: u64, cause: String) -> News {
        self.give_up();
        News::Failed { number, cause }
    }

    /// Removes what there is of a snapshot.
    fn give_up(&mut self) {
        if let Some(writing) = self.writing.take()
            && let Err(error) = writing.writer.abandon()
        {
            tracing::warn!("an unfinished snapshot could not be removed; the next start does it: {error}");
        }
    }

    fn begin(&mut self, vclock: &Vclock, timestamp: f64, keep: Keep) -> Result<(), String> {
        self.collect(keep);
        self.check_room(keep, keep.scarce.unwrap_or(0))?;
        let signature = vclock.signature();
        let directory = &self.place.directory;
        let is_in_the_way =
            directory.list().map_err(|error| error.to_string())?.snapshots.contains(&signature);
        if is_in_the_way && signature == self.place.sound {
            return Err("the newest snapshot is of this moment already".to_owned());
        }
        if is_in_the_way {
            // The start has passed it over.
            let name = file_name(FileKind::Snapshot, signature);
            let aside = directory.set_aside(&name).map_err(|error| error.to_string())?;
            tracing::warn!("the snapshot '{name}' is not sound and is replaced; it is now called '{aside}'");
        }
        let writer = SnapshotWriter::create(directory.clone(), self.place.instance, vclock, timestamp);
        let writer = writer.map_err(|error| error.to_string())?;
        let vclock = vclock.clone();
        self.writing = Some(Writing { writer, vclock, keep, began: Instant::now(), looked_at: 0 });
        Ok(())
    }

    fn add(&mut self, chunk: &Chunk) -> Option<Result<(), String>> {
        let writing = self.writing.as_mut()?;
        if let Err(error) = writing.writer.add_rows(&chunk.rows, &chunk.ends) {
            return Some(Err(error.to_string()));
        }
        if writing.writer.bytes() - writing.looked_at < ROOM_STEP {
            return Some(Ok(()));
        }
        writing.looked_at = writing.writer.bytes();
        let keep = writing.keep;
        self.collect_ended(keep);
        Some(self.check_room(keep, 0))
    }

    fn complete(&mut self, writing: Writing, keep: Keep) -> Result<Written, String> {
        let Writing { writer, vclock, began, .. } = writing;
        self.collect_ended(keep);
        let snapshot = writer.finish().map_err(|error| error.to_string())?;
        self.place.sound = vclock.signature();
        let elapsed = began.elapsed();
        let (rows, bytes) = (snapshot.rows, snapshot.bytes);
        tracing::info!("checkpoint at {vclock}: {rows} rows, {bytes} bytes in {elapsed:.2?}");
        let peak = Inventory::of(&self.place.directory).map_or(bytes, |inventory| inventory.bytes());
        let files = match self.collect(keep) {
            Some((inventory, held)) => Files { replicas: held.bytes, ..files(&inventory, self.place.sound) },
            None => Files { snapshot: bytes, journal: 0, total: peak, replicas: 0 },
        };
        Ok(Written { bytes, peak, files })
    }

    /// Removes the journal file that ends where the last snapshot stands, if nobody needs it. That can be told only
    /// when there is a file after it, and the first rows of that one may still have been on their way when this
    /// snapshot was begun.
    fn collect_ended(&self, keep: Keep) {
        self.collect(Keep { bytes: u64::MAX, ..keep });
    }

    /// Removes files that need not stay. `None` if the folder cannot be read or changed.
    fn collect(&self, keep: Keep) -> Option<(Inventory, Held)> {
        let directory = &self.place.directory;
        let rule = Rule {
            sound: self.place.sound,
            snapshots: keep.snapshots,
            bytes: keep.bytes,
            held_from: u64::MAX,
        };
        let collected = self.hold(&rule, keep).and_then(|held| {
            let rule = Rule { held_from: held.from, ..rule };
            retention::collect(directory, &rule).map(|(removed, inventory)| (removed, inventory, held))
        });
        match collected {
            Ok((removed, inventory, held)) => {
                if !removed.is_empty() {
                    let bytes: u64 = removed.iter().map(|(_, file)| file.bytes).sum();
                    tracing::info!("removed {} old files of {bytes} bytes", removed.len());
                }
                Some((inventory, held))
            }
            Err(error) => {
                tracing::warn!("old files could not be removed; the next checkpoint tries again: {error}");
                None
            }
        }
    }

    /// Which xlogs stay for replicas. Tells the loop of those that are too far behind.
    fn hold(&self, rule: &Rule, keep: Keep) -> std::io::Result<Held> {
        let (places, limit) = {
            let readers = self.place.holds.readers();
            (readers.places.clone(), if keep.scarce.is_some() { 0 } else { readers.limit })
        };
        let inventory = Inventory::of(&self.place.directory)?;
        let oldest = inventory.xlogs.first().map_or(0, |file| file.signature);
        let needed = |(_, place): &(Uuid, Option<Vclock>)| match place {
            None => Some(oldest),
            Some(place) => match Tail::after(&self.place.directory, place) {
                Ok(tail) => Some(tail.signature()),
                // Nothing that stays would help.
                Err(TailError::Gap { .. }) => None,
                Err(_) => Some(oldest),
            },
        };
        let needed: Vec<_> = places.iter().filter_map(|place| Some((place.0, needed(place)?))).collect();
        let signatures: Vec<_> = needed.iter().map(|(_, signature)| *signature).collect();
        let held = retention::hold(&inventory, rule, &signatures, limit);
        if !held.lost.is_empty() {
            let replicas = held.lost.iter().map(|&place| needed[place].0).collect();
            // Nobody is there to be told when the server ends.
            let _ = self.outbox.send(News::Lost { replicas, limit });
        }
        Ok(held)
    }

    /// Refuses if after `expected` bytes more the disk had less free space than the journal may need.
    fn check_room(&self, keep: Keep, expected: u64) -> Result<(), String> {
        let SnapshotFolder { folder, reserve, .. } = &self.place;
        if *reserve == 0 {
            return Ok(());
        }
        let Ok(disk) = rustix::fs::statvfs(folder) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let kept = if keep.scarce.is_some() { Room::journal_share(*reserve) } else { *reserve };
        if free >= kept.saturating_add(expected) {
            return Ok(());
        }
        Err(match keep.scarce {
            None => format!("only {free} bytes are free on the disk, which is less than disk_reserve"),
            Some(snapshot) => format!(
                "only {free} bytes are free on the disk: a snapshot of some {snapshot} bytes would leave less than the {kept} \
                 bytes (an eighth of disk_reserve) that the journal keeps"
            ),
        })
    }
}

/// What the files take, as the instance wants to know it.
pub(crate) fn files(inventory: &Inventory, snapshot: u64) -> Files {
    Files {
        snapshot: inventory.snapshot_bytes(snapshot),
        journal: inventory.journal_bytes(snapshot),
        total: inventory.bytes(),
        replicas: 0,
    }
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::row::encode_snapshot_row;

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
        let place = SnapshotFolder {
            directory,
            folder: folder.path().to_owned(),
            reserve,
            instance,
            sound: 0,
            holds: Holds::default(),
        };
        let (thread, sender, news) = CheckpointThread::spawn(place).unwrap();
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
            assert!(self.sender.send(CheckpointOrder::Begin { number, vclock, timestamp: 1.5, keep: KEEP }));
        }

        fn rows(&self, number: u64) {
            let mut chunk = Chunk::default();
            encode_snapshot_row(&mut chunk.rows, 0, 1.5, 0, 512, &[0x91, 0x01]);
            chunk.ends.push(u32::try_from(chunk.rows.len()).unwrap());
            assert!(self.sender.send(CheckpointOrder::Rows { number, chunk }));
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
            assert!(rig.sender.send(CheckpointOrder::Complete { number, keep: KEEP, view: None }));
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
            assert!(rig.sender.send(CheckpointOrder::Complete { number, keep, view: None }));
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
        assert!(rig.sender.send(CheckpointOrder::Abandon { number: 1, view: None }));
        // Rows that were on their way are dropped, and the next one begins.
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
        assert!(rig.sender.send(CheckpointOrder::Complete { number: 1, keep: KEEP, view: None }));
        assert!(matches!(rig.next(), News::Done { .. }));
        let expected =
            ["00000000000000000000.snap", "00000000000000000010.snap", "00000000000000000010.snap.corrupted"];
        assert_eq!(rig.names(), expected);
        rig.thread.close();
    }
}
