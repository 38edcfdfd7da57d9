//! Writes snapshots and removes files that are not needed any more, as an instance orders.
//!
//! [`Snapshots::carry_out`] does one order: it begins a snapshot under its temporary name, adds rows, completes it. The
//! instance gives rows only when they are asked for, so no more than [`CHUNKS`] chunks are ever under way: one that is
//! written while the next one is made. After a failure the unfinished file is removed and the failure is reported; the
//! next order that counts is one to begin. The caller may do so in a thread beside the loop; [`tell`] hands
//! came of it to the instance.
//!
//! A snapshot never takes the last free space on the disk, which the journal needs: below the reserve it is given up.
//! When the disk is short already and the snapshot is to make space, it may take a part of the reserve
//! ([`FreeSpace::journal_share`]).
//!
//! Xlogs that known replicas still read stay longer, within a bound ([`Readers`]). When the disk is short of space none
//! stay for replicas.
//!
//! Absent: threads, the clock, the disk's free space ([`Surroundings`] has it).

use std::io;

use lycosa_group::base::Base;
use lycosa_instance::{CheckpointOrder, Chunk, Files, FreeSpace, Instance, Keep, Written};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::meta::FileKind;
use lycosa_journal::retention::{self, Held, Inventory, Rule};
use lycosa_journal::snap::SnapshotWriter;
use lycosa_journal::tail::{Tail, TailError};
use uuid::Uuid;

/// Chunks under way at a time.
pub const CHUNKS: usize = 2;

/// Bytes of a snapshot after which the free space is looked at again, unless [`Settings::look_after`] says otherwise.
pub const LOOK_AFTER: u64 = 4 << 20;

/// What came of an order. Each names the checkpoint by its number.
#[derive(Debug)]
pub enum News {
    /// The next rows may come; the buffer is for them.
    Wants {
        /// The checkpoint.
        number: u64,
        /// An empty chunk, or one whose rows are written.
        buffer: Chunk,
    },
    /// The snapshot is complete and old files are gone.
    Done {
        /// The checkpoint.
        number: u64,
        /// The snapshot that was written, and the size of the files.
        written: Written,
    },
    /// There is no snapshot.
    Failed {
        /// The checkpoint.
        number: u64,
        /// Why.
        cause: String,
    },
    /// Xlogs that these replicas would read have to go: they take more than `limit` bytes.
    Lost {
        /// The replicas.
        replicas: Vec<Uuid>,
        /// Bytes that may stay for replicas alone.
        limit: u64,
    },
}

/// What became of the news that an instance was told.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing that a log would say.
    Quiet,
    /// The snapshot is complete. While it was made the folder grew by this number of bytes more than
    /// [`Instance::handle_checkpoint_done`] finds usual.
    Written {
        /// The snapshot that was written.
        written: Written,
        /// Bytes too many.
        excess: Option<u64>,
    },
    /// There is no snapshot.
    Failed {
        /// Why.
        cause: String,
        /// The first failure since the last success: later ones are of the same cause as a rule.
        is_first: bool,
    },
    /// These replicas have to join again.
    Lost {
        /// Uuids and ids of the known ones.
        replicas: Vec<(Uuid, u32)>,
        /// Bytes that may stay for replicas alone.
        limit: u64,
    },
}

/// Tells the instance what came of an order. `now` is the time in microseconds since the epoch.
pub fn tell(instance: &mut Instance, news: News, now: u64) -> Outcome {
    match news {
        News::Wants { number, buffer } => {
            instance.handle_checkpoint_wants(number, buffer);
            Outcome::Quiet
        }
        News::Done { number, written } => {
            let excess = instance.handle_checkpoint_done(number, &written, now);
            Outcome::Written { written, excess }
        }
        News::Failed { number, cause } => {
            let is_first = instance.handle_checkpoint_failed(number, &cause, now);
            Outcome::Failed { cause, is_first }
        }
        News::Lost { replicas, limit } => {
            let mut lost = Vec::new();
            for replica in replicas {
                let id = instance.replicas().get(&replica).map_or(0, |peer| peer.id);
                if instance.replicas_mut().lose(replica) {
                    lost.push((replica, id));
                }
            }
            Outcome::Lost { replicas: lost, limit }
        }
    }
}

/// Something for the log.
#[derive(Debug)]
pub enum Note {
    /// A snapshot was begun.
    Begun,
    /// A snapshot is complete.
    Complete {
        /// Where it stands.
        vclock: Box<Vclock>,
        /// Rows in it.
        rows: u64,
        /// Bytes in it.
        bytes: u64,
    },
    /// Old files were removed.
    Removed {
        /// How many.
        files: usize,
        /// Bytes in them.
        bytes: u64,
    },
    /// Old files could not be removed; the next checkpoint tries again.
    NotRemoved(io::Error),
    /// A snapshot of the same moment that a start has passed over was given another name.
    SetAside {
        /// Its name before.
        name: String,
        /// Its name now.
        aside: String,
    },
    /// What there was of a snapshot could not be removed; the next start does it.
    LeftOver(io::Error),
}

/// Which replicas read the journal, and from where on.
#[derive(Debug, Clone, Default)]
pub struct Readers {
    /// Bytes of xlogs that may stay for replicas alone.
    pub limit: u64,
    /// The replicas with the clock of each. `None`: unknown, so that all xlogs stay.
    pub positions: Vec<(Uuid, Option<Vclock>)>,
}

/// The surroundings of the writer of snapshots.
pub trait Surroundings {
    /// Free bytes on the folder's disk, if known.
    fn free_bytes(&self) -> Option<u64>;

    /// The replicas that read the journal.
    fn readers(&self) -> Readers {
        Readers::default()
    }

    /// Something for the log.
    fn note(&mut self, note: Note) {
        let _ = note;
    }
}

/// The folder that snapshots are written to, and the snapshots in it.
#[derive(Debug)]
pub struct Settings {
    /// The folder.
    pub directory: Directory,
    /// Bytes of the disk that a snapshot does not take; 0 never looks.
    pub reserve: u64,
    /// Bytes of a snapshot after which the free space is looked at again.
    pub look_after: u64,
    /// Whose data they are.
    pub instance: Uuid,
    /// Signature of the snapshot that the data were recovered from.
    pub sound: u64,
}

/// Writes the snapshots of one folder.
#[derive(Debug)]
pub struct Snapshots<S> {
    settings: Settings,
    surroundings: S,
    writing: Option<Writing>,
    /// The group's state of the snapshot that is being written.
    seal: Option<Base>,
    /// The last order about files to keep.
    keep: Option<Keep>,
}

/// A snapshot that is being written.
#[derive(Debug)]
struct Writing {
    writer: SnapshotWriter,
    vclock: Box<Vclock>,
    keep: Keep,
    /// Bytes in the file when the free space was looked at.
    looked_at: u64,
}

impl<S: Surroundings> Snapshots<S> {
    /// Nothing is being written yet.
    pub fn new(settings: Settings, surroundings: S) -> Self {
        Self { settings, surroundings, writing: None, seal: None, keep: None }
    }

    /// Signature of the newest snapshot that is known to be sound.
    pub fn sound(&self) -> u64 {
        self.settings.sound
    }

    /// In a group: a snapshot was received and is the one that the data come from.
    pub fn set_sound(&mut self, signature: u64) {
        self.settings.sound = signature;
    }

    /// What files were last to be kept, but for those of replicas.
    pub fn rule(&self) -> Option<Rule> {
        self.keep.map(|keep| self.rule_of(keep))
    }

    /// The surroundings.
    pub fn surroundings(&mut self) -> &mut S {
        &mut self.surroundings
    }

    /// What the files take, as an instance wants to know it ([`Instance::set_checkpoint_base`]).
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn files(&self) -> io::Result<Files> {
        Ok(self.measured(&Inventory::of(&self.settings.directory)?))
    }

    fn measured(&self, inventory: &Inventory) -> Files {
        measure(&self.settings.directory, inventory, self.settings.sound)
    }

    /// In a group: the state of the snapshot that the next order completes
    /// ([`GroupJournal::base_of`](crate::group::GroupJournal::base_of)). It is written before the snapshot gets its name.
    pub fn seal_with(&mut self, base: Base) {
        self.seal = Some(base);
    }

    /// Carries out an order and adds to `news` what came of it.
    pub fn carry_out(&mut self, order: CheckpointOrder, news: &mut impl Extend<News>) {
        match order {
            CheckpointOrder::Begin { number, vclock, timestamp, keep } => {
                self.give_up();
                match self.begin(vclock, timestamp, keep, news) {
                    Ok(()) => {
                        news.extend((0..CHUNKS).map(|_| News::Wants { number, buffer: Chunk::default() }));
                    }
                    Err(cause) => self.fail(number, cause, news),
                }
            }
            CheckpointOrder::Rows { number, chunk } => match self.add(&chunk, news) {
                // Rows of a snapshot that has failed already.
                None => {}
                Some(Ok(())) => news.extend([News::Wants { number, buffer: chunk }]),
                Some(Err(cause)) => self.fail(number, cause, news),
            },
            CheckpointOrder::Complete { number, keep, view } => {
                if let Some(writing) = self.writing.take() {
                    match self.complete(writing, keep, news) {
                        Ok(written) => news.extend([News::Done { number, written }]),
                        Err(cause) => self.fail(number, cause, news),
                    }
                }
                drop(view);
            }
            CheckpointOrder::Abandon { view, .. } => {
                self.give_up();
                drop(view);
            }
        }
    }

    fn fail(&mut self, number: u64, cause: String, news: &mut impl Extend<News>) {
        self.give_up();
        news.extend([News::Failed { number, cause }]);
    }

    /// Removes what there is of a snapshot.
    pub fn give_up(&mut self) {
        if let Some(writing) = self.writing.take()
            && let Err(error) = writing.writer.abandon()
        {
            self.surroundings.note(Note::LeftOver(error));
        }
    }

    fn begin(
        &mut self,
        vclock: Box<Vclock>,
        timestamp: f64,
        keep: Keep,
        news: &mut impl Extend<News>,
    ) -> Result<(), String> {
        self.collect(keep, news);
        self.check_free_space(keep, keep.scarce.unwrap_or(0))?;
        let signature = vclock.signature();
        let directory = &self.settings.directory;
        let is_in_the_way =
            directory.list().map_err(|error| error.to_string())?.snapshots.contains(&signature);
        if is_in_the_way && signature == self.settings.sound {
            return Err("the newest snapshot is of this moment already".to_owned());
        }
        if is_in_the_way {
            // The start has passed it over.
            let name = file_name(FileKind::Snapshot, signature);
            let aside = directory.set_aside(&name).map_err(|error| error.to_string())?;
            self.surroundings.note(Note::SetAside { name, aside });
        }
        let writer = SnapshotWriter::create(directory.clone(), self.settings.instance, &vclock, timestamp)
            .map_err(|error| error.to_string())?;
        self.writing = Some(Writing { writer, vclock, keep, looked_at: 0 });
        self.surroundings.note(Note::Begun);
        Ok(())
    }

    fn add(&mut self, chunk: &Chunk, news: &mut impl Extend<News>) -> Option<Result<(), String>> {
        let writing = self.writing.as_mut()?;
        if let Err(error) = writing.writer.add_rows(&chunk.rows, &chunk.ends) {
            return Some(Err(error.to_string()));
        }
        if writing.writer.bytes() - writing.looked_at < self.settings.look_after {
            return Some(Ok(()));
        }
        writing.looked_at = writing.writer.bytes();
        let keep = writing.keep;
        self.collect_ended(keep, news);
        Some(self.check_free_space(keep, 0))
    }

    fn complete(
        &mut self,
        writing: Writing,
        keep: Keep,
        news: &mut impl Extend<News>,
    ) -> Result<Written, String> {
        let Writing { writer, vclock, .. } = writing;
        self.collect_ended(keep, news);
        if let Some(base) = self.seal.take() {
            let signature = vclock.signature();
            if base.signature != signature {
                return Err(format!("the group's state is of snapshot {}, not {signature}", base.signature));
            }
            base.write(&self.settings.directory, b"").map_err(|error| error.to_string())?;
        }
        let snapshot = writer.finish().map_err(|error| error.to_string())?;
        self.settings.sound = vclock.signature();
        let (rows, bytes) = (snapshot.rows, snapshot.bytes);
        self.surroundings.note(Note::Complete { vclock, rows, bytes });
        let peak = Inventory::of(&self.settings.directory).map_or(bytes, |inventory| inventory.bytes());
        let files = match self.collect(keep, news) {
            Some((inventory, held)) => Files { replicas: held.bytes, ..self.measured(&inventory) },
            None => Files { snapshot: bytes, total: peak, ..Files::default() },
        };
        Ok(Written { bytes, peak, files })
    }

    /// Removes the xlog that ends where the last snapshot stands, if no replica needs it. That can be told only once
    /// a file follows it, and the first rows of that one may still have been unconfirmed when this snapshot was begun.
    fn collect_ended(&mut self, keep: Keep, news: &mut impl Extend<News>) {
        self.collect(Keep { bytes: u64::MAX, ..keep }, news);
    }

    /// Removes files that need not stay. `None` if the folder cannot be read or changed.
    fn collect(&mut self, keep: Keep, news: &mut impl Extend<News>) -> Option<(Inventory, Held)> {
        self.keep = Some(keep);
        let rule = self.rule_of(keep);
        let collected = self.hold(&rule, keep, news).and_then(|held| {
            let rule = Rule { held_from: held.from, ..rule };
            let (removed, inventory) = retention::collect(&self.settings.directory, &rule)?;
            Ok((removed, inventory, held))
        });
        match collected {
            Ok((removed, inventory, held)) => {
                if !removed.is_empty() {
                    let bytes = removed.iter().map(|(_, file)| file.bytes).sum();
                    self.surroundings.note(Note::Removed { files: removed.len(), bytes });
                }
                Some((inventory, held))
            }
            Err(error) => {
                self.surroundings.note(Note::NotRemoved(error));
                None
            }
        }
    }

    fn rule_of(&self, keep: Keep) -> Rule {
        Rule { sound: self.settings.sound, snapshots: keep.snapshots, bytes: keep.bytes, held_from: u64::MAX }
    }

    /// Which xlogs stay for replicas. Reports replicas that are too far behind.
    fn hold(&self, rule: &Rule, keep: Keep, news: &mut impl Extend<News>) -> io::Result<Held> {
        let Readers { limit, positions } = self.surroundings.readers();
        let limit = if keep.scarce.is_some() { 0 } else { limit };
        let inventory = Inventory::of(&self.settings.directory)?;
        let oldest = inventory.xlogs.first().map_or(0, |file| file.signature);
        let needed = |(replica, position): &(Uuid, Option<Vclock>)| match position {
            None => Some((*replica, oldest)),
            Some(position) => match Tail::after(&self.settings.directory, position) {
                Ok(tail) => Some((*replica, tail.signature())),
                // Nothing that stays would help.
                Err(TailError::Gap { .. }) => None,
                Err(_) => Some((*replica, oldest)),
            },
        };
        let needed: Vec<_> = positions.iter().filter_map(needed).collect();
        let signatures: Vec<_> = needed.iter().map(|(_, signature)| *signature).collect();
        let held = retention::hold(&inventory, rule, &signatures, limit);
        if !held.lost.is_empty() {
            let replicas = held.lost.iter().map(|&position| needed[position].0).collect();
            news.extend([News::Lost { replicas, limit }]);
        }
        Ok(held)
    }

    /// Refuses if after `expected` bytes more the disk had less free space than the journal may need.
    fn check_free_space(&self, keep: Keep, expected: u64) -> Result<(), String> {
        let reserve = self.settings.reserve;
        if reserve == 0 {
            return Ok(());
        }
        let Some(free) = self.surroundings.free_bytes() else { return Ok(()) };
        let kept = if keep.scarce.is_some() { FreeSpace::journal_share(reserve) } else { reserve };
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

/// What the files take, as an instance wants to know it, when it was recovered from the snapshot of this signature.
pub fn measure(directory: &Directory, inventory: &Inventory, snapshot: u64) -> Files {
    Files {
        snapshot: inventory.snapshot_bytes(snapshot),
        journal: inventory.journal_bytes(snapshot),
        total: inventory.bytes(),
        replicas: 0,
        oldest: inventory.oldest_vclock(directory).map(Box::new),
    }
}
