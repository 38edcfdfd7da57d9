//! The checkpoint thread without a thread: orders wait, [`Snapshots`] carries them out one by one, and news of them wait too.

use std::collections::VecDeque;
use std::sync::Arc;

use lycosa_engine::snapshots::{self, News, Outcome, Settings, Snapshots, Surroundings};
use lycosa_instance::{CheckpointOrder, Files, Instance, Written};
use lycosa_journal::directory::Directory;
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::retention::Rule;

use crate::disk::SnapshotDisk;
use crate::storage::IDENTITY;

/// The free space that a snapshot leaves to the journal.
const RESERVE: u64 = 1 << 60;

/// The free space of the disk: either more than any writer needs, or less than the reserve.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub(crate) is_short: bool,
}

impl Surroundings for Space {
    fn free_bytes(&self) -> Option<u64> {
        Some(if self.is_short { RESERVE / 2 } else { u64::MAX })
    }
}

/// Writes snapshots and removes old files, as the instance orders.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    snapshots: Snapshots<Space>,
    orders: VecDeque<CheckpointOrder>,
    news: VecDeque<News>,
    disk: SnapshotDisk,
}

/// What a step of the checkpointer was.
pub(crate) struct Step {
    pub(crate) text: String,
    /// The instance was told that there is no snapshot, for this cause.
    pub(crate) failure: Option<String>,
    /// The instance was told of this snapshot.
    pub(crate) written: Option<Written>,
}

impl Checkpointer {
    /// For a folder that was recovered from the snapshot `sound`.
    pub(crate) fn new(disk: &MemoryDisk, sound: u64) -> Self {
        let disk = SnapshotDisk::new(disk.clone());
        let directory = Directory::on(Arc::new(disk.clone()));
        let settings =
            Settings { directory, reserve: RESERVE, look_after: 0, instance: IDENTITY.instance, sound };
        let snapshots = Snapshots::new(settings, Space::default());
        Self { snapshots, orders: VecDeque::new(), news: VecDeque::new(), disk }
    }

    /// The disk, for the faults that are planned there.
    pub(crate) fn disk(&self) -> &SnapshotDisk {
        &self.disk
    }

    /// The free space of the disk.
    pub(crate) fn space(&mut self) -> &mut Space {
        self.snapshots.surroundings()
    }

    /// Signature of the newest snapshot that is known to be sound.
    pub(crate) fn sound(&self) -> u64 {
        self.snapshots.sound()
    }

    /// What files were last to be kept.
    pub(crate) fn rule(&self) -> Option<Rule> {
        self.snapshots.rule()
    }

    /// Whether the next thing to do is to give a snapshot its name and to remove old files.
    pub(crate) fn is_about_to_complete(&self) -> bool {
        self.news.is_empty() && matches!(self.orders.front(), Some(CheckpointOrder::Complete { .. }))
    }

    /// Whether a step is left to do, beside telling of the last one.
    pub(crate) fn has_orders(&self) -> bool {
        !self.orders.is_empty()
    }

    /// What the files take, for the instance that starts on them.
    pub(crate) fn files(&self) -> std::io::Result<Files> {
        self.snapshots.files()
    }

    pub(crate) fn send(&mut self, order: CheckpointOrder) {
        self.orders.push_back(order);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.orders.is_empty() && self.news.is_empty()
    }

    /// Tells the instance the next news, or carries out the next order.
    pub(crate) fn step(&mut self, instance: &mut Instance, now: u64) -> Option<Step> {
        let Some(news) = self.news.pop_front() else {
            return self.carry_on().map(|text| Step { text, failure: None, written: None });
        };
        Some(match snapshots::tell(instance, news, now) {
            Outcome::Quiet => Step { text: "wants rows".to_owned(), failure: None, written: None },
            Outcome::Written { written, .. } => {
                Step { text: "is complete".to_owned(), failure: None, written: Some(written) }
            }
            Outcome::Failed { cause, .. } => {
                Step { text: format!("has failed: {cause}"), failure: Some(cause), written: None }
            }
            Outcome::Lost { .. } => unreachable!("nobody reads the journals of this world"),
        })
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
        self.snapshots.carry_out(order, &mut self.news);
        Some(text)
    }

    /// Removes what there is of a snapshot. A disk that refuses leaves it to the next start.
    pub(crate) fn give_up(&mut self) {
        self.snapshots.give_up();
    }
}
