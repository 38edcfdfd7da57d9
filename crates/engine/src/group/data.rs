//! The data of a member, read from its newest snapshot and the entries of its log.
//!
//! Absent: the node, and any change of the folder.

use lycosa_group::base::Base;
use lycosa_group::log::{GroupLog, OpenLogError};
use lycosa_group::node::SettingsError;
use lycosa_instance::Confirmed;
use lycosa_journal::decision::Mode;
use lycosa_journal::directory::Directory;
use lycosa_journal::recovery::{Recovery, Transaction};
use lycosa_store::{Settings as StoreSettings, Store};
use uuid::Uuid;

use super::entry::{self, EntryError};
use crate::replay::{LoadError, Observer, Replay};

/// Why a member's folder was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log.
    #[error(transparent)]
    Log(#[from] OpenLogError),
    /// The snapshot.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The newest snapshot is damaged, and an older one stands in for it.
    #[error(
        "the snapshot {expected} of the group's state cannot be used, recovery came to {found}. Remove this node from the group, and add an empty server in its place"
    )]
    Snapshot {
        /// Signature in the state.
        expected: u64,
        /// Signature that recovery came to.
        found: u64,
    },
    /// The folder has no snapshot.
    #[error("the folder has no snapshot of the group yet")]
    NoSnapshot,
    /// An entry.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The node's settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// The data of everything up to `index`, or of the newest snapshot if that holds more. Returns the last entry in them.
pub(super) fn load(
    directory: &Directory,
    store: StoreSettings,
    index: u64,
) -> Result<(u64, Confirmed), OpenError> {
    let read = GroupLog::read_back(directory)?.ok_or(OpenError::NoSnapshot)?;
    let index = index.max(read.base.index);
    let (data, _) = load_entries(directory, store, &read.base, || read.rows(index), &|_, _| {})?;
    Ok((index, data))
}

/// Hears how many bytes are in the data, and of how many.
pub type Told<'a> = &'a dyn Fn(u64, u64);

/// Tells of the bytes of a snapshot, which `more` bytes follow.
struct Teller<'a> {
    told: Told<'a>,
    more: u64,
}

impl Observer for Teller<'_> {
    fn applied(&mut self, _: u64, transaction: &Transaction<'_>) {
        let progress = &transaction.progress;
        (self.told)(progress.bytes_done, progress.bytes_total + self.more);
    }
}

/// The data of the snapshot of `base` with these entries, and the UUID in the snapshot.
pub(super) fn load_entries<'a, I: Iterator<Item = &'a [u8]>>(
    directory: &Directory,
    store: StoreSettings,
    base: &Base,
    entries: impl Fn() -> I,
    told: Told<'_>,
) -> Result<(Confirmed, Uuid), OpenError> {
    let recovery = Recovery::open(directory, Mode::Strict).map_err(LoadError::from)?;
    let recovery = recovery.ok_or(OpenError::NoSnapshot)?;
    let more: u64 = entries().map(|entry| entry.len() as u64).sum();
    let total = recovery.progress().bytes_total + more;
    let mut replay = Replay::observed(Store::new(store), Teller { told, more });
    let recovered = recovery.run(&mut replay).map_err(LoadError::from)?;
    let found = recovered.vclock.signature();
    if found != base.signature {
        return Err(OpenError::Snapshot { expected: base.signature, found });
    }
    let mut vclock = recovered.vclock;
    let mut left = more;
    for bytes in entries() {
        let entry = entry::decode(bytes)?;
        for (header, body) in entry.rows() {
            replay.apply(body).map_err(LoadError::from)?;
            let known = vclock.set(header.replica_id, header.lsn);
            known.map_err(|error| EntryError::Damaged(error.to_string()))?;
        }
        for body in entry.owner_rows()? {
            replay.apply(&body).map_err(LoadError::from)?;
        }
        left -= bytes.len() as u64;
        told(total - left, total);
    }
    told(total, total);
    let store = replay.finish().map_err(LoadError::from)?;
    Ok((Confirmed { store, vclock }, recovered.instance))
}
