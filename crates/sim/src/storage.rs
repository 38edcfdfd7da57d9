//! From a folder in memory to a store and an open log, as the server does it with a real one.

use std::sync::Arc;

use lycosa_instance::{Identity, statement};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::decision::Mode;
use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::log::LogError;
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::meta::FileKind;
use lycosa_journal::recovery::{ApplyError, Recovered, Recovery, RecoveryError, Target, Transaction};
use lycosa_journal::snap::{SnapshotError, SnapshotWriter};
use lycosa_journal::writer::{Settings, XlogWriter};
use lycosa_store::Store;
use uuid::Uuid;

use crate::violation::{Checked, Violation};

/// Who the simulated instance is.
pub(crate) const IDENTITY: Identity = Identity {
    instance: Uuid::from_u128(0x5eed_5eed_5eed_4000_8000_0000_0000_0001),
    cluster: Uuid::from_u128(0x5eed_5eed_5eed_4000_8000_0000_0000_0002),
    replica_id: 1,
};

/// Why a new instance was not begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootstrapError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Store(#[from] lycosa_store::Error),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Log(#[from] LogError),
}

pub(crate) fn directory(disk: &MemoryDisk) -> Directory {
    Directory::on(Arc::new(disk.clone()))
}

/// The data of a new instance.
pub(crate) fn new_store() -> Result<Store, lycosa_store::Error> {
    let mut store = Store::new(lycosa_store::Settings::default());
    store.bootstrap(&IDENTITY.cluster.to_string(), &IDENTITY.instance.to_string())?;
    Ok(store)
}

/// Begins a new instance in a folder that has no snapshot.
pub(crate) fn bootstrap(
    disk: &MemoryDisk,
    settings: Settings,
) -> Result<(Store, XlogWriter), BootstrapError> {
    let directory = directory(disk);
    directory.remove_left_overs()?;
    let store = new_store()?;
    write_snapshot(&directory, &store, &Vclock::new(), 0)?;
    let log = XlogWriter::create(directory, settings, IDENTITY.instance, Vclock::new())?;
    Ok((store, log))
}

/// Writes all data, which has to be that of `vclock`. `now` is in µs since the epoch.
pub(crate) fn write_snapshot(
    directory: &Directory,
    store: &Store,
    vclock: &Vclock,
    now: u64,
) -> Result<(), SnapshotError> {
    let mut writer = SnapshotWriter::create(directory.clone(), IDENTITY.instance, vclock, now as f64 / 1e6)?;
    let mut failed = None;
    store.for_each_snapshot_row(&mut |space, tuple, is_local| {
        if failed.is_none() {
            failed = writer.add(u32::from(is_local), space, tuple).err();
        }
    });
    match failed {
        Some(error) => Err(error),
        None => writer.finish().map(drop),
    }
}

/// The memory limit that leaves `memory` bytes beside what a new instance takes.
pub(crate) fn memory_limit(memory: Option<u64>) -> Option<u64> {
    let empty = new_store().map_or(0, |store| store.memory().used);
    memory.map(|memory| empty + memory)
}

/// Reads everything in the folder under a limit of memory (see [`memory_limit`]); `None` if it holds no instance yet.
pub(crate) fn recover(
    disk: &MemoryDisk,
    memory: Option<u64>,
) -> Result<Option<(Store, Recovered)>, RecoveryError> {
    let Some(recovery) = Recovery::open(&directory(disk), Mode::Strict)? else { return Ok(None) };
    let mut settings = lycosa_store::Settings::default();
    settings.memory_limit = memory_limit(memory).unwrap_or(settings.memory_limit);
    let mut replay = Replay(Store::new(settings));
    let recovered = recovery.run(&mut replay)?;
    Ok(Some((replay.0, recovered)))
}

/// The digest of what the snapshot with that signature holds, all by itself.
pub(crate) fn snapshot_digest(disk: &MemoryDisk, signature: u64) -> Checked<u128> {
    let name = file_name(FileKind::Snapshot, signature);
    let bytes = disk.files().remove(&name);
    let bytes = bytes.ok_or_else(|| Violation(format!("the snapshot {name} is not there")))?;
    let alone = MemoryDisk::with_files([(name.clone(), bytes)]);
    let found =
        recover(&alone, None).map_err(|error| Violation(format!("{name} cannot be read: {error}")))?;
    let (mut store, _) = found.ok_or_else(|| Violation(format!("{name} is no instance")))?;
    store.finish_recovery().map_err(|error| Violation(format!("{name} is not sound: {error}")))?;
    Ok(store.digest())
}

struct Replay(Store);

impl Target for Replay {
    fn apply(&mut self, transaction: &Transaction<'_>) -> Result<(), ApplyError> {
        for row in transaction.rows {
            if let Some(statement) = statement(&row.body) {
                self.0.recover(&statement)?;
            }
        }
        Ok(())
    }

    fn end_of_snapshot(&mut self) -> Result<(), ApplyError> {
        Ok(self.0.finish_snapshot()?)
    }
}
