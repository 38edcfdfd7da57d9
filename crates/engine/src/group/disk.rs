//! The disk of a member: its log, the states of its snapshots, and data that are read back.
//!
//! [`GroupDisk::carry_out`] takes the orders of a [`GroupJournal`](super::GroupJournal) as they came. Records of several rounds
//! become durable with one sync. The caller may do so in a thread beside the loop.
//!
//! Invariants:
//! - Orders are carried out in order. A round is reported when its records are durable.
//! - A received snapshot gets its name after its state is durable, and before the log is reset to it.
//! - After a failure of the log no order is carried out.
//!
//! Absent: threads, the clock.

use lycosa_group::base::Base;
use lycosa_group::log::{Found, GroupLog, Wanted};
use lycosa_group::node::Write;
use lycosa_instance::Confirmed;
use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::log::LogStatus;
use lycosa_journal::meta::FileKind;
use lycosa_store::Settings as StoreSettings;

use super::data;
use super::transfer;

/// Something for the disk of a member.
#[derive(Debug)]
pub enum Order {
    /// Records of a round, with the snapshot that replaces the log if there is one.
    Write(Write),
    /// Entries that a member needs and that have left the memory.
    Read(Wanted),
    /// The data of everything up to this entry are needed.
    Restore {
        /// The entry.
        index: u64,
    },
    /// A snapshot has another state: the group has decided something that changes no data.
    State(Box<Base>),
    /// A snapshot is complete: entries up to `index` may go, older states, and older snapshots that were received.
    Forget {
        /// The snapshot's state.
        base: Box<Base>,
        /// The last entry that no member is expected to need.
        index: u64,
    },
    /// The group has risen to this level.
    Level(u32),
}

/// What came of an order.
#[derive(Debug)]
pub enum Done {
    /// Rounds up to this one are durable.
    Written(u64),
    /// Entries that were asked for; `None` if the disk does not give them.
    Read(Wanted, Option<Found>),
    /// The data of everything up to `index`.
    Restored {
        /// The last entry in them: the one that was asked for, or a newer snapshot's.
        index: u64,
        /// The data.
        confirmed: Box<Confirmed>,
    },
    /// The state is durable.
    State(Box<Base>),
    /// The log has failed for good, for this reason: the member leaves its service.
    Failed(String),
    /// Something for the log of the process: old files stay until the next snapshot, a state was not written.
    Note(String),
}

/// See the module.
#[derive(Debug)]
pub struct GroupDisk {
    log: GroupLog,
    store: StoreSettings,
    has_failed: bool,
}

impl GroupDisk {
    pub(super) fn new(log: GroupLog, store: StoreSettings) -> Self {
        Self { log, store, has_failed: false }
    }

    /// The folder.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        self.log.directory()
    }

    /// A number that is greater at each start, for [`ConnectionNumber`](super::ConnectionNumber).
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.log.incarnation()
    }

    /// Files, bytes and syncs of the log.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        self.log.status()
    }

    /// Carries out orders and adds to `done` what came of them.
    pub fn carry_out(&mut self, orders: impl IntoIterator<Item = Order>, done: &mut impl Extend<Done>) {
        let mut unsynced = None;
        for order in orders {
            if self.has_failed {
                return;
            }
            let result = match order {
                Order::Write(write) => {
                    let written = self.write(&write);
                    unsynced = Some(write.number);
                    written
                }
                other => self.sync(&mut unsynced, done).and_then(|()| self.carry_out_one(other, done)),
            };
            if let Err(cause) = result {
                return self.fail(cause, done);
            }
        }
        if let Err(cause) = self.sync(&mut unsynced, done) {
            self.fail(cause, done);
        }
    }

    fn fail(&mut self, cause: String, done: &mut impl Extend<Done>) {
        self.has_failed = true;
        done.extend([Done::Failed(cause)]);
    }

    fn sync(&mut self, unsynced: &mut Option<u64>, done: &mut impl Extend<Done>) -> Result<(), String> {
        let Some(number) = unsynced.take() else { return Ok(()) };
        self.log.sync().map_err(|error| error.to_string())?;
        done.extend([Done::Written(number)]);
        Ok(())
    }

    fn write(&mut self, write: &Write) -> Result<(), String> {
        if let Some(base) = &write.install {
            self.install(base)?;
        }
        self.log.append(&write.records).map_err(|error| error.to_string())
    }

    /// Gives a snapshot that was received its name.
    fn install(&self, base: &Base) -> Result<(), String> {
        let directory = self.directory();
        let name = file_name(FileKind::Snapshot, base.signature);
        let failed = |error: std::io::Error| format!("can't install the snapshot '{name}': {error}");
        base.write(directory, b"").map_err(|error| error.to_string())?;
        let exists = directory.list().map_err(failed)?.snapshots.contains(&base.signature);
        let received = transfer::received_name(base);
        if exists {
            // Rows behind a state are the same wherever the snapshot was made.
            let _ = directory.disk().remove(&received);
            return Ok(());
        }
        directory.disk().rename(&received, &name).map_err(failed)?;
        directory.disk().sync().map_err(failed)
    }

    fn carry_out_one(&mut self, order: Order, done: &mut impl Extend<Done>) -> Result<(), String> {
        match order {
            Order::Write(write) => return self.write(&write),
            Order::Read(wanted) => {
                let found = self.log.read(&wanted).ok();
                done.extend([Done::Read(wanted, found)]);
            }
            Order::Restore { index } => {
                let (index, confirmed) =
                    data::load(self.directory(), self.store, index).map_err(|error| error.to_string())?;
                done.extend([Done::Restored { index, confirmed: Box::new(confirmed) }]);
            }
            Order::State(base) => done.extend([match base.write(self.directory(), b"") {
                Ok(()) => Done::State(base),
                Err(error) => Done::Note(error.to_string()),
            }]),
            Order::Forget { base, index } => {
                let forgotten = self.log.forget(&base, index);
                done.extend(forgotten.err().map(|error| Done::Note(error.to_string())));
                let removed = transfer::remove_older(self.directory(), &base);
                let note = |error| Done::Note(format!("can't remove a snapshot that came too late: {error}"));
                done.extend(removed.err().map(note));
            }
            Order::Level(level) => self.log.set_level(level),
        }
        Ok(())
    }

    /// Ends the log's file in order, for a clean stop.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn close(&mut self) -> Result<(), String> {
        if self.has_failed {
            return Ok(());
        }
        self.log.rotate().map_err(|error| error.to_string())
    }
}
