//! A data folder from its beginning: the first snapshot, the journal behind it, and both found again.
//!
//! Absent: joining a master, forced starts and progress of long ones, which are the server's.

use std::io;

use lycosa_instance::Identity;
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::decision::Mode;
use lycosa_journal::directory::Directory;
use lycosa_journal::log::LogError;
use lycosa_journal::recovery::Recovery;
use lycosa_journal::snap::{SnapshotError, SnapshotWriter};
use lycosa_journal::writer::{Settings as WriterSettings, XlogWriter};
use lycosa_store::{Settings as StoreSettings, Store};

use crate::replay::{LoadError, Replay};

/// The data of a folder, and its journal.
#[derive(Debug)]
pub struct Opened {
    /// All data.
    pub store: Store,
    /// The clock of the last row.
    pub vclock: Vclock,
    /// Goes on behind it.
    pub log: XlogWriter,
    /// Signature of the snapshot that the data come from.
    pub snapshot: u64,
}

/// Why a folder was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be read or changed.
    #[error("cannot remove unfinished files: {0}")]
    Io(#[from] io::Error),
    /// The first rows were refused.
    #[error("{0}")]
    Store(#[from] lycosa_store::Error),
    /// The first snapshot cannot be written.
    #[error("cannot write the first snapshot: {0}")]
    Snapshot(#[from] SnapshotError),
    /// The journal cannot be begun or continued.
    #[error("{0}")]
    Log(#[from] LogError),
    /// The files cannot be loaded.
    #[error("{0}")]
    Load(#[from] LoadError),
}

/// Opens a folder: recovers its data, or begins `identity` in an empty one. `now` is in microseconds since
/// the epoch.
///
/// # Errors
/// [`OpenError`]. Damage that an operator has to decide about is one: `lycosa check` says more about it.
pub fn open(
    directory: &Directory,
    settings: StoreSettings,
    writer: WriterSettings,
    identity: &Identity,
    now: u64,
) -> Result<Opened, OpenError> {
    let Some(recovery) = Recovery::open(directory, Mode::Strict).map_err(LoadError::from)? else {
        let (store, log) = begin(directory, settings, writer, identity, now)?;
        return Ok(Opened { store, vclock: Vclock::new(), log, snapshot: 0 });
    };
    let mut replay = Replay::new(Store::new(settings));
    let recovered = recovery.run(&mut replay).map_err(LoadError::from)?;
    let store = replay.finish().map_err(LoadError::from)?;
    let log = XlogWriter::resume(directory.clone(), writer, &recovered)?;
    let snapshot = recovered.snapshot.signature();
    Ok(Opened { store, vclock: recovered.vclock, log, snapshot })
}

/// Begins a new instance in a folder that has no snapshot.
///
/// # Errors
/// [`OpenError`].
pub fn begin(
    directory: &Directory,
    settings: StoreSettings,
    writer: WriterSettings,
    identity: &Identity,
    now: u64,
) -> Result<(Store, XlogWriter), OpenError> {
    directory.remove_left_overs()?;
    let mut store = Store::new(settings);
    store.bootstrap(&identity.cluster.to_string(), &identity.instance.to_string())?;
    write_snapshot(directory, &store, identity, &Vclock::new(), now)?;
    let log = XlogWriter::create(directory.clone(), writer, identity.instance, Vclock::new())?;
    Ok((store, log))
}

/// Writes all data at once, which have to be those of `vclock`.
///
/// # Errors
/// The disk refuses.
pub fn write_snapshot(
    directory: &Directory,
    store: &Store,
    identity: &Identity,
    vclock: &Vclock,
    now: u64,
) -> Result<(), SnapshotError> {
    let mut writer = SnapshotWriter::create(directory.clone(), identity.instance, vclock, now as f64 / 1e6)?;
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
