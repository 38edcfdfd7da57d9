//! Storage: a folder in memory becomes a store and an open log, as the server does it with a real one.

use std::sync::{Arc, OnceLock};

use lycosa_engine::folder::{self, OpenError};
use lycosa_engine::replay::{LoadError, Replay};
use lycosa_instance::Identity;
use lycosa_journal::decision::Mode;
use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::meta::FileKind;
use lycosa_journal::recovery::{Recovered, Recovery};
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
pub(crate) fn bootstrap(disk: &MemoryDisk, settings: Settings) -> Result<(Store, XlogWriter), OpenError> {
    folder::begin(&directory(disk), lycosa_store::Settings::default(), settings, &IDENTITY, 0)
}

/// The memory limit that leaves `memory` bytes beside what a new instance takes.
pub(crate) fn memory_limit(memory: Option<u64>) -> Option<u64> {
    static EMPTY: OnceLock<u64> = OnceLock::new();
    let empty = || *EMPTY.get_or_init(|| new_store().map_or(0, |store| store.memory().used));
    memory.map(|memory| empty() + memory)
}

/// Reads everything in the folder under a limit of memory (see [`memory_limit`]); `None` if it holds no instance yet.
pub(crate) fn recover(
    disk: &MemoryDisk,
    memory: Option<u64>,
) -> Result<Option<(Store, Recovered)>, LoadError> {
    let Some(recovery) = Recovery::open(&directory(disk), Mode::Strict)? else { return Ok(None) };
    let mut settings = lycosa_store::Settings::default();
    settings.memory_limit = memory_limit(memory).unwrap_or(settings.memory_limit);
    let mut replay = Replay::new(Store::new(settings));
    let recovered = recovery.run(&mut replay)?;
    Ok(Some((replay.finish()?, recovered)))
}

/// The digest of the snapshot with that signature, alone.
pub(crate) fn snapshot_digest(disk: &MemoryDisk, signature: u64) -> Checked<u128> {
    let name = file_name(FileKind::Snapshot, signature);
    let bytes = disk.files().remove(&name);
    let bytes = bytes.ok_or_else(|| Violation(format!("the snapshot {name} is not there")))?;
    let alone = MemoryDisk::with_files([(name.clone(), bytes)]);
    let found =
        recover(&alone, None).map_err(|error| Violation(format!("{name} cannot be read: {error}")))?;
    let (store, _) = found.ok_or_else(|| Violation(format!("{name} is no instance")))?;
    Ok(store.digest())
}
