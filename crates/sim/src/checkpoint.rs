//! The checkpoint thread without a thread: orders wait, are carried out one by one, and news of them wait too.

use std::collections::VecDeque;
use std::sync::Arc;

use lycosa_instance::{CheckpointOrder, Chunk, Files, Instance, Keep, Written};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::meta::FileKind;
use lycosa_journal::retention::{self, Inventory, Rule};
use lycosa_journal::snap::SnapshotWriter;

use crate::disk::SnapshotDisk;
use crate::storage::IDENTITY;

/// Chunks under way at a time.
const CHUNKS: usize = 2;

#[derive(Debug)]
enum News {
    Wants { number: u64, buffer: Chunk },
    Done { number: u64, written: Written },
    Failed { number: u64, cause: String },
}

/// A snapshot that is being written.
#[derive(Debug)]
struct Writing {
    writer: SnapshotWriter,
    signature: u64,
    keep: Keep,
}

/// Writes snapshots and removes old files, as the instance orders.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    directory: Directory,
    /// Signature of the newest snapshot that is known to be sound.
    sound: u64,
    orders: VecDeque<CheckpointOrder>,
    news: VecDeque<News>,
    writing: Option<Writing>,
    /// What was last ordered to be kept.
    keep: Option<Keep>,
    /// There is less room on the disk than the journal may need.
    pub(crate) is_short_of_room: bool,
    /// A snapshot was given up for that.
    pub(crate) has_yielded_room: bool,
    disk: SnapshotDisk,
}

/// What a step of the checkpointer was.
pub(crate) struct Step {
    pub(crate) text: String,
    /// The instance was told that there is no snapshot.
    pub(crate) has_failed: bool,
    /// The instance was told of this snapshot.
    pub(crate) written: Option<Written>,
}

impl Checkpointer {
    /// For a folder that was recovered from the snapshot `sound`.
    pub(crate) fn new(disk: &MemoryDisk, sound: u64) -> Self {
        let disk = SnapshotDisk::new(disk.clone());
        Self {
            directory: Directory::on(Arc::new(disk.clone())),
            sound,
            orders: VecDeque::new(),
            news: VecDeque::new(),
            writing: None,
            keep: None,
            is_short_of_room: false,
            has_yielded_room: false,
            disk,
        }
    }

    /// The disk, for what is to go wrong there.
    pub(crate) fn disk(&self) -> &SnapshotDisk {
        &self.disk
    }

    /// Signature of the newest snapshot that is known to be sound.
    pub(crate) fn sound(&self) -> u64 {
        self.sound
    }

    /// What files were last to be kept.
    pub(crate) fn rule(&self) -> Option<Rule> {
        self.keep.map(|keep| Rule {
            sound: self.sound,
            snapshots: keep.snapshots,
            bytes: keep.bytes,
            held_from: u64::MAX,
        })
    }

    /// Whether the next thing to do is to give a snapshot its name and to remove old files.
    pub(crate) fn is_about_to_complete(&self) -> bool {
        self.news.is_empty() && matches!(self.orders.front(), Some(CheckpointOrder::Complete { .. }))
    }

    /// Whether there is something to do, beside telling what was done.
    pub(crate) fn has_orders(&self) -> bool {
        !self.orders.is_empty()
    }

    /// What the files take, for the instance that starts on them.
    pub(crate) fn files(&self) -> std::io::Result<Files> {
        Ok(measure(&Inventory::of(&self.directory)?, self.sound))
    }

    pub(crate) fn send(&mut self, order: CheckpointOrder) {
        self.orders.push_back(order);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.orders.is_empty() && self.news.is_empty()
    }

    /// Tells the instance the next news, or carries out the next order.
    pub(crate) fn step(&mut self, instance: &mut Instance, now: u64) -> Option<Step> {
        let done = |text: &str| Some(Step { text: text.to_owned(), has_failed: false, written: None });
        match self.news.pop_front() {
            Some(News::Wants { number, buffer }) => {
                instance.handle_checkpoint_wants(number, buffer);
                done("wants rows")
            }
            Some(News::Done { number, written }) => {
                instance.handle_checkpoint_done(number, &written, now);
                Some(Step { text: "is complete".to_owned(), has_failed: false, written: Some(written) })
            }
            Some(News::Failed { number, cause }) => {
                instance.handle_checkpoint_failed(number, &cause, now);
                Some(Step { text: format!("has failed: {cause}"), has_failed: true, written: None })
            }
            None => self.carry_on().and_then(|text| done(&text)),
        }
    }

    /// Carries out the next order. Its name.
    pub(crate) fn carry_on(&mut self) -> Option<String> {
        let order = self.orders.pop_front()?;
        let text = match &order {
            CheckpointOrder::Begin { vclock, .. } => format!("begins at {vclock}"),
            CheckpointOrder::Rows { chunk, .. } => format!("takes {} rows", chunk.ends.len()),
            CheckpointOrder::Complete { .. } => "is completed".to_owned(),
            CheckpointOrder::Abandon { .. } => "is given up".to_owned(),
        };
        self.carry_out(order);
        Some(text)
    }

    fn carry_out(&mut self, order: CheckpointOrder) {
        let number = order.number();
        let done = match order {
            CheckpointOrder::Begin { vclock, timestamp, keep, .. } => {
                self.give_up();
                self.begin(&vclock, timestamp, keep).map(|()| {
                    let wants = || News::Wants { number, buffer: Chunk::default() };
                    self.news.extend((0..CHUNKS).map(|_| wants()));
                })
            }
            CheckpointOrder::Rows { chunk, .. } => match &mut self.writing {
                None => Ok(()),
                Some(writing) => {
                    let added = writing.writer.add_rows(&chunk.rows, &chunk.ends);
                    let added = added.map_err(|error| error.to_string());
                    let keep = writing.keep;
                    self.collect_ended(keep);
                    added.and_then(|()| self.check_room(keep)).map(|()| {
                        self.news.push_back(News::Wants { number, buffer: chunk });
                    })
                }
            },
            CheckpointOrder::Complete { keep, .. } => match self.writing.take() {
                None => Ok(()),
                Some(writing) => self.complete(writing, keep).map(|written| {
                    self.news.push_back(News::Done { number, written });
                }),
            },
            CheckpointOrder::Abandon { .. } => {
                self.give_up();
                Ok(())
            }
        };
        if let Err(cause) = done {
            self.give_up();
            self.news.push_back(News::Failed { number, cause });
        }
    }

    /// Removes what there is of a snapshot. A disk that refuses leaves it to the next start.
    pub(crate) fn give_up(&mut self) {
        if let Some(writing) = self.writing.take() {
            let _ = writing.writer.abandon();
        }
    }

    fn begin(&mut self, vclock: &Vclock, timestamp: f64, keep: Keep) -> Result<(), String> {
        self.collect(keep);
        self.check_room(keep)?;
        let signature = vclock.signature();
        let listing = self.directory.list().map_err(|error| error.to_string())?;
        if listing.snapshots.contains(&signature) && signature == self.sound {
            return Err("the newest snapshot is of this moment already".to_owned());
        }
        if listing.snapshots.contains(&signature) {
            let name = file_name(FileKind::Snapshot, signature);
            self.directory.set_aside(&name).map_err(|error| error.to_string())?;
        }
        let writer = SnapshotWriter::create(self.directory.clone(), IDENTITY.instance, vclock, timestamp);
        self.writing = Some(Writing { writer: writer.map_err(|error| error.to_string())?, signature, keep });
        Ok(())
    }

    fn complete(&mut self, writing: Writing, keep: Keep) -> Result<Written, String> {
        self.collect_ended(keep);
        let snapshot = writing.writer.finish().map_err(|error| error.to_string())?;
        self.sound = writing.signature;
        let bytes = snapshot.bytes;
        let peak = Inventory::of(&self.directory).map_or(bytes, |inventory| inventory.bytes());
        let files = match self.collect(keep) {
            Some(inventory) => measure(&inventory, self.sound),
            None => Files { snapshot: bytes, journal: 0, total: peak, replicas: 0 },
        };
        Ok(Written { bytes, peak, files })
    }

    /// A snapshot never takes the last room on the disk, unless it is to make some.
    fn check_room(&mut self, keep: Keep) -> Result<(), String> {
        if !self.is_short_of_room || keep.scarce.is_some() {
            return Ok(());
        }
        self.has_yielded_room = true;
        Err("the last room is the journal's".to_owned())
    }

    /// Removes the journal file that ends where the last snapshot stands, once there is one after it.
    fn collect_ended(&mut self, keep: Keep) {
        self.collect(Keep { bytes: u64::MAX, ..keep });
    }

    fn collect(&mut self, keep: Keep) -> Option<Inventory> {
        self.keep = Some(keep);
        let rule =
            Rule { sound: self.sound, snapshots: keep.snapshots, bytes: keep.bytes, held_from: u64::MAX };
        retention::collect(&self.directory, &rule).ok().map(|(_, inventory)| inventory)
    }
}

fn measure(inventory: &Inventory, snapshot: u64) -> Files {
    Files {
        snapshot: inventory.snapshot_bytes(snapshot),
        journal: inventory.journal_bytes(snapshot),
        total: inventory.bytes(),
        replicas: 0,
    }
}
