//! A server: a node, its log and its disk, and a list of operations as its data.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use lycosa_group::base::Base;
use lycosa_group::link::Peers;
use lycosa_group::log::GroupLog;
use lycosa_group::members::NodeId;
use lycosa_group::node::{Node, Outgoing, Role, Settings, Write};
use lycosa_group::record::{Identity, Position};
use lycosa_group::{Limits, base::FEATURE_LEVEL};
use lycosa_journal::directory::{Directory, IN_PROGRESS, file_name};
use lycosa_journal::disk::{Disk, write_all_at};
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::meta::FileKind;
use lycosa_journal::writer;
use uuid::Uuid;

/// The one group.
pub(super) const GROUP: Uuid = Uuid::from_u128(0x6_0042);

/// A process.
pub(super) struct Running {
    pub(super) node: Node,
    pub(super) log: GroupLog,
    /// Operations in the order of the log.
    pub(super) data: Vec<u64>,
    pub(super) digest: u64,
    pub(super) applied: u64,
    pub(super) proposed: VecDeque<(Position, u64)>,
    /// What each read has to see.
    pub(super) reads: Vec<(u64, u64)>,
    /// The newest connections of the other servers.
    pub(super) peers: Peers,
    /// With the disk, each with the time at which it is done.
    pub(super) writes: VecDeque<(u64, Write)>,
    /// Contents of snapshots that have arrived, until the node has installed a newer one. A newer one's arrival changes nothing: the
    /// node may refuse it.
    pub(super) staged: Vec<(Base, Vec<u64>)>,
    pub(super) next_tick: u64,
    pub(super) connections: u64,
}

impl Running {
    /// Messages that may leave.
    pub(super) fn messages(&mut self) -> Vec<Outgoing> {
        std::iter::from_fn(|| self.node.poll_message()).collect()
    }
}

pub(super) struct Server {
    pub(super) identity: Identity,
    pub(super) disk: MemoryDisk,
    pub(super) running: Option<Box<Running>>,
    /// The level that its program knows.
    pub(super) knows: u32,
    /// Its clock is ahead by this much, and gains `drift` microseconds in a million.
    pub(super) offset: u64,
    pub(super) drift: u64,
    /// Stopped until then.
    pub(super) stopped_until: u64,
    /// Its disk does nothing until then.
    pub(super) stalled_until: u64,
    /// Its disk is short of free space until then.
    pub(super) scarce_until: u64,
    /// The group has removed it.
    pub(super) is_removed: bool,
}

fn directory(disk: &MemoryDisk) -> Directory {
    Directory::on(Arc::new(disk.clone()))
}

fn log_settings() -> writer::Settings {
    writer::Settings { max_file_bytes: 6_000, preallocated_bytes: 1 << 13, ..writer::Settings::default() }
}

fn node_settings(knows: u32) -> Settings {
    let limits = Limits {
        memory_bytes: 4_000,
        message_bytes: 2_000,
        messages_in_flight: 4,
        uncommitted_bytes: 20_000,
    };
    Settings { limits, knows, ..Settings::default() }
}

/// Writes a snapshot and its state, durably, and removes older ones.
pub(super) fn write_snapshot(disk: &MemoryDisk, base: &Base, data: &[u64]) -> io::Result<()> {
    let directory = directory(disk);
    base.write(&directory, b"beside").map_err(io::Error::other)?;
    let name = file_name(FileKind::Snapshot, base.signature);
    if !directory.list()?.snapshots.contains(&base.signature) {
        let temporary = format!("{name}{IN_PROGRESS}");
        // A failed attempt may have left it.
        let _ = disk.remove(&temporary);
        let mut file = disk.create(&temporary)?;
        let bytes: Vec<u8> = data.iter().flat_map(|operation| operation.to_le_bytes()).collect();
        write_all_at(&mut *file, &bytes, 0)?;
        file.sync()?;
        disk.rename(&temporary, &name)?;
        disk.sync()?;
    }
    let snapshots = directory.list()?.snapshots;
    for older in snapshots.iter().filter(|signature| **signature < base.signature) {
        disk.remove(&file_name(FileKind::Snapshot, *older))?;
    }
    Ok(())
}

/// A snapshot's content.
pub(super) fn read_snapshot(disk: &MemoryDisk, signature: u64) -> Option<Vec<u64>> {
    let bytes = disk.files().remove(&file_name(FileKind::Snapshot, signature))?;
    let operation = |chunk: &[u8]| chunk.try_into().map_or(0, u64::from_le_bytes);
    Some(bytes.chunks(8).map(operation).collect())
}

impl Server {
    /// The first server of a group.
    pub(super) fn first() -> Result<Self, String> {
        let base = Base::first(GROUP, 0, FEATURE_LEVEL, "n1".to_owned());
        let disk = MemoryDisk::new();
        write_snapshot(&disk, &base, &[]).map_err(|error| error.to_string())?;
        let identity = Identity { group: GROUP, node: 1, rank: 0 };
        Self::create(identity, disk, Some(&base))
    }

    /// An empty server that joins.
    pub(super) fn joiner(node: NodeId, rank: u8) -> Result<Self, String> {
        Self::create(Identity { group: GROUP, node, rank }, MemoryDisk::new(), None)
    }

    fn create(identity: Identity, disk: MemoryDisk, base: Option<&Base>) -> Result<Self, String> {
        GroupLog::create(directory(&disk), log_settings(), identity, base)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            identity,
            disk,
            running: None,
            knows: FEATURE_LEVEL,
            offset: 0,
            drift: 0,
            stopped_until: 0,
            stalled_until: 0,
            scarce_until: 0,
            is_removed: false,
        })
    }

    /// The time on the server's own clock.
    pub(super) fn local(&self, now: u64) -> u64 {
        self.offset + now + now / 1_000_000 * self.drift
    }

    /// When its own clock shows `local`, or a little later.
    pub(super) fn global(&self, local: u64, now: u64) -> u64 {
        now + local.saturating_sub(self.local(now)).max(1)
    }

    /// Starts the process.
    pub(super) fn start(&mut self, now: u64) -> Result<(), String> {
        let opened = GroupLog::open(directory(&self.disk), log_settings(), self.knows);
        let opened = opened.map_err(|error| error.to_string())?;
        let data = match &opened.base {
            Some((base, beside)) if beside == b"beside" => {
                read_snapshot(&self.disk, base.signature).ok_or("the snapshot of a state is missing")?
            }
            Some(_) => return Err("what stands beside the state has changed".to_owned()),
            None => Vec::new(),
        };
        let applied = opened.base.as_ref().map_or(0, |(base, _)| base.index);
        let (node, log) = Node::new(opened, node_settings(self.knows)).map_err(|error| error.to_string())?;
        let digest = super::history::digest(&data);
        self.running = Some(Box::new(Running {
            node,
            log,
            digest,
            data,
            applied,
            proposed: VecDeque::new(),
            reads: Vec::new(),
            peers: Peers::new(GROUP, self.identity.node),
            writes: VecDeque::new(),
            staged: Vec::new(),
            next_tick: now,
            connections: 0,
        }));
        Ok(())
    }

    pub(super) fn is_awake(&self, now: u64) -> bool {
        self.running.is_some() && self.stopped_until <= now
    }

    /// Whether it never had a snapshot.
    pub(super) fn is_empty(&self) -> bool {
        !self.disk.files().keys().any(|name| name.ends_with(FileKind::GroupState.suffix()))
    }

    pub(super) fn leads(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.node.status().role == Role::Leader)
    }

    /// Takes a snapshot of the present data.
    pub(super) fn take_snapshot(&mut self) -> io::Result<bool> {
        let Some(running) = &mut self.running else { return Ok(false) };
        let Some(base) = running.node.base(running.data.len() as u64) else { return Ok(false) };
        write_snapshot(&self.disk, &base, &running.data)?;
        running.node.snapshot_taken(base.clone());
        Ok(true)
    }

    /// Forgets entries that the newest snapshot has, but for the last `kept`.
    pub(super) fn forget(&mut self, kept: u64) -> io::Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let newest = Base::newest(&directory(&self.disk)).map_err(io::Error::other)?;
        let Some((base, _)) = newest else { return Ok(()) };
        let index = base.index.saturating_sub(kept);
        running.node.forget(index);
        running.log.forget(&base, index).map_err(io::Error::other)
    }

    /// The disk does everything that it has: one sync for all of it. Returns messages that waited for that.
    pub(super) fn write(&mut self, due: u64) -> io::Result<Vec<Outgoing>> {
        let Some(running) = &mut self.running else { return Ok(Vec::new()) };
        let mut last = None;
        while running.writes.front().is_some_and(|(done, _)| *done <= due)
            && let Some((_, write)) = running.writes.pop_front()
        {
            if let Some(base) = &write.install {
                let staged = running.staged.iter().find(|(staged, _)| staged == base);
                let (_, data) = staged.ok_or_else(|| io::Error::other("a snapshot has not arrived"))?;
                write_snapshot(&self.disk, base, data)?;
            }
            running.log.append(&write.records).map_err(io::Error::other)?;
            last = Some(write.number);
        }
        let Some(last) = last else { return Ok(Vec::new()) };
        running.log.sync().map_err(io::Error::other)?;
        running.node.persisted(last);
        Ok(running.messages())
    }
}
