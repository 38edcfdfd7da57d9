//! The data folder of a member: begun from a single server's, joined, opened, and given back to a single server.
//!
//! A member's folder has snapshots (`N.snap`), their states in the group (`S.group`) and the group's log (`N.grouplog`), and no
//! `.xlog`. A start without group would not see what stands in the log, so the server refuses it.
//!
//! Absent: locks of the folder, forced starts, and progress of long ones, which are the server's.

use std::io;

use lycosa_group::base::{Base, BaseError};
use lycosa_group::log::{GroupLog, OpenLogError};
use lycosa_group::node::{Node, Settings as NodeSettings};
use lycosa_group::record::Identity as NodeIdentity;
use lycosa_instance::{Confirmed, Identity};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::decision::Mode;
use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::log::LogError;
use lycosa_journal::meta::FileKind;
use lycosa_journal::recovery::{Recovered, Recovery};
use lycosa_journal::snap::SnapshotError;
use lycosa_journal::writer::{Settings as WriterSettings, XlogWriter};
use lycosa_store::{Settings as StoreSettings, Store};
use uuid::Uuid;

use super::data::{OpenError, Told, load, load_entries};
use super::disk::GroupDisk;
use super::journal::GroupJournal;
use crate::folder::write_snapshot;
use crate::replay::{LoadError, Replay};

/// A member that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The data of all entries that are known to be committed, once the member has a snapshot. An empty server that joins has
    /// none: its host moves messages and orders until [`GroupJournal::has_snapshot`], then opens the folder anew.
    pub data: Option<Confirmed>,
    /// The UUID in the snapshot, which is that of every member's instance.
    pub instance: Option<Uuid>,
    /// Signature of the snapshot.
    pub snapshot: u64,
    /// The node.
    pub journal: GroupJournal,
    /// Its disk.
    pub disk: GroupDisk,
}

/// Why a folder does not become a member's, or a single server's again.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// It has the log of a group.
    #[error("the folder belongs to a group already: node {}, group {}", .0.node, .0.group)]
    Member(NodeIdentity),
    /// It is not empty.
    #[error(
        "the folder is not empty: a server that joins a group gets all data from there. Give it an empty folder"
    )]
    NotEmpty,
    /// The group has other members.
    #[error("the group has {0} members: remove the others first, or their data part from these")]
    Members(usize),
    /// The group goes on without this member.
    #[error(
        "node {} was removed from group {}, which goes on without it, so these data are out of date. Empty the folder to let the \
         server join again",
        .0.node,
        .0.group
    )]
    Removed(NodeIdentity),
    /// The folder cannot be read or changed.
    #[error("can't change the folder: {0}")]
    Io(#[from] io::Error),
    /// The files cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The member's files cannot be loaded.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A snapshot cannot be written.
    #[error("can't write a snapshot: {0}")]
    Snapshot(#[from] SnapshotError),
    /// The state of the snapshot cannot be written.
    #[error(transparent)]
    Base(#[from] BaseError),
    /// The log cannot be begun.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Whose log the folder has, if it has the log of a group.
///
/// # Errors
/// The log cannot be read.
pub fn member_of(directory: &Directory) -> Result<Option<NodeIdentity>, OpenLogError> {
    GroupLog::find(directory)
}

/// A group that begins.
#[derive(Debug, Clone)]
pub struct NewGroup {
    /// Its number.
    pub group: Uuid,
    /// At which other members reach the first one.
    pub address: String,
    /// The level at which it begins: [`FEATURE_LEVEL`](super::FEATURE_LEVEL), or less if older programs are to join.
    pub level: u32,
}

/// Makes a single server's folder the first member of a new group. No process may have the folder open. A crash
/// in the middle leaves a folder of a single server, or of a member; a second call goes on.
///
/// # Errors
/// [`BeginError`].
pub fn begin(
    directory: &Directory,
    store: StoreSettings,
    log: WriterSettings,
    identity: &Identity,
    new: NewGroup,
    now: u64,
) -> Result<(), BeginError> {
    let NewGroup { group, address, level } = new;
    if let Some(identity) = member_of(directory).map_err(OpenError::from)? {
        return Err(BeginError::Member(identity));
    }
    directory.remove_left_overs()?;
    let listing = directory.list()?;
    for state in listing.group_states {
        // A left-over of an attempt: without a log it belongs to no group.
        directory.disk().remove(&file_name(FileKind::GroupState, state))?;
    }
    let (data, vclock, snapshot) = match Recovery::open(directory, Mode::Strict).map_err(LoadError::from)? {
        None => {
            let mut data = Store::new(store);
            let bootstrapped = data.bootstrap(&identity.cluster.to_string(), &identity.instance.to_string());
            bootstrapped.map_err(LoadError::from)?;
            (data, Vclock::new(), None)
        }
        Some(recovery) => {
            let (data, recovered) = recover(recovery, store)?;
            (data, recovered.vclock, Some(recovered.snapshot.signature()))
        }
    };
    let base = Base::first(group, vclock.signature(), level, address);
    base.write(directory, b"")?;
    if snapshot != Some(vclock.signature()) {
        write_snapshot(directory, &data, identity, &vclock, now)?;
    }
    let node = NodeIdentity { group, node: 1, rank: 0 };
    GroupLog::create(directory.clone(), log, node, Some(&base))?;
    remove_xlogs(directory)?;
    Ok(())
}

fn remove_xlogs(directory: &Directory) -> io::Result<()> {
    for xlog in directory.list()?.xlogs {
        directory.disk().remove(&file_name(FileKind::Xlog, xlog))?;
    }
    directory.disk().sync()
}

/// Makes an empty folder that of a member which joins: its number and rank come from
/// [`GroupJournal::add`] on the leader.
///
/// # Errors
/// [`BeginError`].
pub fn join(directory: &Directory, log: WriterSettings, identity: NodeIdentity) -> Result<(), BeginError> {
    if let Some(identity) = member_of(directory).map_err(OpenError::from)? {
        return Err(BeginError::Member(identity));
    }
    directory.remove_left_overs()?;
    let listing = directory.list()?;
    if !listing.snapshots.is_empty() || !listing.xlogs.is_empty() {
        return Err(BeginError::NotEmpty);
    }
    GroupLog::create(directory.clone(), log, identity, None)?;
    Ok(())
}

/// Makes the folder of the last member that of a single server: a snapshot of everything that its log holds, and no
/// log of a group. With `forced` the other members are given up: rows that they have confirmed without this one
/// are missing, and rows of this one that they did not confirm are in the data. No process may have the folder open. A crash in the
/// middle leaves a folder of a member or of a single server; a second call goes on.
///
/// # Errors
/// [`BeginError`].
pub fn leave(
    directory: &Directory,
    store: StoreSettings,
    log: WriterSettings,
    identity: &Identity,
    forced: bool,
    now: u64,
) -> Result<(), BeginError> {
    directory.remove_left_overs()?;
    let read = GroupLog::read_back(directory).map_err(OpenError::from)?.ok_or(OpenError::NoSnapshot)?;
    // Alone, or with the other members given up, what the disk has is what there is.
    let last = read.state_at_end(0);
    let member = member_of(directory).map_err(OpenError::from)?.ok_or(OpenError::NoSnapshot)?;
    if !forced && last.members.get(member.node).is_none() {
        return Err(BeginError::Removed(member));
    }
    if !forced && last.members.len() > 1 {
        return Err(BeginError::Members(last.members.len()));
    }
    let (_, Confirmed { store: data, vclock }) = load(directory, store, last.index)?;
    let signature = vclock.signature();
    if !directory.list()?.snapshots.contains(&signature) {
        read.state_at_end(signature).write(directory, b"")?;
        write_snapshot(directory, &data, identity, &vclock, now)?;
    }
    let listing = directory.list()?;
    for (kind, files) in
        [(FileKind::GroupLog, listing.group_logs), (FileKind::GroupState, listing.group_states)]
    {
        // The newest log goes first: without it the other files are no member's.
        for file in files.into_iter().rev() {
            directory.disk().remove(&file_name(kind, file))?;
        }
        directory.disk().sync()?;
    }
    XlogWriter::create(directory.clone(), log, identity.instance, vclock)?;
    Ok(())
}

/// What [`extract`] has made a single server's.
#[derive(Debug, Clone, Copy)]
pub struct Extracted {
    /// Whose folder it was.
    pub member: NodeIdentity,
    /// Entries in the data that the log did not know to be committed.
    pub unconfirmed: u64,
}

/// Makes a copy of a member's folder that of a single server, with everything that the log holds in one snapshot. A copy must not
/// become the member again: it may lack promises that the member has made since. `None`: the folder is no member's.
///
/// # Errors
/// [`BeginError`].
pub fn extract(
    directory: &Directory,
    log: WriterSettings,
    now: u64,
) -> Result<Option<Extracted>, BeginError> {
    let Some(member) = member_of(directory).map_err(OpenError::from)? else { return Ok(None) };
    let read = GroupLog::read_back(directory).map_err(OpenError::from)?.ok_or(OpenError::NoSnapshot)?;
    let unconfirmed = read.state_at_end(0).index.saturating_sub(read.committed());
    let recovery = Recovery::open(directory, Mode::Strict).map_err(LoadError::from)?;
    let instance = recovery.ok_or(OpenError::NoSnapshot)?.instance();
    let identity = Identity { instance, cluster: Uuid::nil(), replica_id: 1 };
    let store =
        StoreSettings { memory_limit: u64::MAX, max_tuple_size: u32::MAX, ..StoreSettings::default() };
    leave(directory, store, log, &identity, true, now)?;
    let snapshots = directory.list()?.snapshots;
    for snapshot in snapshots.iter().rev().skip(1) {
        directory.disk().remove(&file_name(FileKind::Snapshot, *snapshot))?;
    }
    directory.disk().sync()?;
    Ok(Some(Extracted { member, unconfirmed }))
}

/// Opens a member's folder.
///
/// # Errors
/// [`OpenError`].
pub fn open(
    directory: &Directory,
    store: StoreSettings,
    log: WriterSettings,
    settings: NodeSettings,
) -> Result<Opened, OpenError> {
    open_told(directory, store, log, settings, &|_, _| {})
}

/// As [`open`]. `told` hears how many bytes of the snapshot and of the log's entries are in the data, and of how many; the log
/// itself has been read before the first time.
///
/// # Errors
/// [`OpenError`].
pub fn open_told(
    directory: &Directory,
    store: StoreSettings,
    log: WriterSettings,
    settings: NodeSettings,
    told: Told<'_>,
) -> Result<Opened, OpenError> {
    let store =
        StoreSettings { transaction_limit: store.transaction_limit.min(super::MAX_TRANSACTION), ..store };
    let opened = GroupLog::open(directory.clone(), log, settings.knows)?;
    let committed = opened.committed();
    let Some(base) = opened.base.as_ref().map(|(base, _)| base.clone()) else {
        let (node, log) = Node::new(opened, settings)?;
        let journal = GroupJournal::new(node, None, 0);
        let disk = GroupDisk::new(log, store);
        return Ok(Opened { data: None, instance: None, snapshot: 0, journal, disk });
    };
    let held = committed.max(base.index);
    let (data, instance) = load_entries(directory, store, &base, || opened.rows(held), told)?;
    let (node, log) = Node::new(opened, settings)?;
    let snapshot = base.signature;
    Ok(Opened {
        data: Some(data),
        instance: Some(instance),
        snapshot,
        journal: GroupJournal::new(node, Some(base), held),
        disk: GroupDisk::new(log, store),
    })
}

fn recover(recovery: Recovery, store: StoreSettings) -> Result<(Store, Recovered), LoadError> {
    let mut replay = Replay::new(Store::new(store));
    let recovered = recovery.run(&mut replay)?;
    Ok((replay.finish()?, recovered))
}
