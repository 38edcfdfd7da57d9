//! A recovery from its beginning, the choice of files, to its end.

use uuid::Uuid;

use super::choice::{self, Chosen};
use super::replay::RecoveryRun;
use super::{Ledger, Progress, Recovered, RecoveryError, RecoveryTarget, Repair, Xlog, io_error};
use crate::decision::{Finding, Mode, Resolution};
use crate::directory::Directory;

/// A recovery about to run: the files are chosen, none of their rows read.
#[derive(Debug)]
pub struct Recovery {
    directory: Directory,
    mode: Mode,
    snapshot: Chosen,
    xlogs: Vec<Xlog>,
    resolutions: Vec<Resolution>,
    repairs: Vec<Repair>,
    progress: Progress,
}

impl Recovery {
    /// Chooses what to recover from. `None` for a folder with neither snapshots nor xlogs: a new instance,
    /// whose writer begins with [`Directory::remove_left_overs`].
    ///
    /// # Errors
    /// [`RecoveryError`].
    pub fn open(directory: &Directory, mode: Mode) -> Result<Option<Self>, RecoveryError> {
        let mut listing = directory.list().map_err(|cause| io_error(directory, "", cause))?;
        let mut ledger = Ledger { mode, resolutions: Vec::new(), repairs: Vec::new() };
        for file in std::mem::take(&mut listing.strangers) {
            ledger.resolve(Finding::Stranger { file })?;
        }
        for file in std::mem::take(&mut listing.in_progress) {
            ledger.resolve(Finding::LeftOver { file })?;
        }
        if listing.snapshots.is_empty() {
            if listing.xlogs.is_empty() {
                return Ok(None);
            }
            ledger.resolve(Finding::NoSnapshot { xlogs: listing.xlogs.len() })?;
        }
        let snapshot = choice::choose_snapshot(directory, &listing, &mut ledger)?;
        let xlogs = choice::choose_xlogs(directory, &listing.xlogs, snapshot.reader.meta(), &mut ledger)?;
        let snapshot_bytes =
            snapshot.reader.size().map_err(|cause| io_error(directory, &snapshot.name, cause))?;
        let bytes_total = snapshot_bytes + xlogs.iter().map(|xlog| xlog.bytes).sum::<u64>();
        let progress = Progress { bytes_total, ..Progress::default() };
        let Ledger { resolutions, repairs, .. } = ledger;
        Ok(Some(Self { directory: directory.clone(), mode, snapshot, xlogs, resolutions, repairs, progress }))
    }

    /// Whose database it is.
    #[must_use]
    pub fn instance(&self) -> Uuid {
        self.snapshot.reader.meta().instance
    }

    /// How much there is to read.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Hands everything over to `target`.
    ///
    /// # Errors
    /// [`RecoveryError`]. The target then has a part of the database, which is of no use.
    pub fn run(self, target: &mut dyn RecoveryTarget) -> Result<Recovered, RecoveryError> {
        for resolution in &self.resolutions {
            target.report(resolution);
        }
        let instance = self.instance();
        let Self { directory, mode, snapshot: Chosen { mut reader, name, replaced }, xlogs, .. } = self;
        let snapshot = reader.meta().vclock.clone();
        let ledger = Ledger { mode, resolutions: self.resolutions, repairs: self.repairs };
        let mut replay = RecoveryRun::new(&directory, target, ledger, snapshot.clone(), self.progress);
        replay.read_snapshot(&mut reader, &name)?;
        drop(reader);

        let (mut newest_xlog, mut empty_xlog, mut in_the_way) = (None, None, None);
        let mut last_name = String::new();
        for xlog in xlogs {
            let empty = replay.read_xlog(&xlog)?;
            (empty_xlog, in_the_way) = (None, None);
            last_name.clone_from(&xlog.name);
            if xlog.signature != replay.vclock.signature() {
                newest_xlog = Some(xlog.vclock);
            } else if let Some(empty) = empty {
                empty_xlog = Some(empty);
                newest_xlog = Some(xlog.vclock);
            } else {
                // Nothing in it is sound, and the next file needs its name.
                in_the_way = Some(Repair::SetAside(xlog.name));
            }
        }
        replay.ledger.repairs.extend(in_the_way);
        replay.end_limbo(&last_name)?;
        replay.check_replaced(&replaced)?;
        let RecoveryRun { ledger: Ledger { resolutions, repairs, .. }, vclock, progress, .. } = replay;
        Ok(Recovered { vclock, instance, snapshot, resolutions, repairs, newest_xlog, empty_xlog, progress })
    }
}
