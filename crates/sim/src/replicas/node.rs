//! One instance: its disk, its clock, and the process on it while that lives.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use lycosa_engine::folder;
use lycosa_engine::replay::Replay;
use lycosa_engine::turn::{self, Host, Parts, TurnState};
use lycosa_instance::{
    CheckpointOrder, ConnectionSlot, Identity, Instance, Lsn, Origin, Process, Settings, Trust, Upstream,
};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::decision::Mode;
use lycosa_journal::memory::{Crash, Fault, MemoryDisk};
use lycosa_journal::recovery::Recovery;
use lycosa_journal::retention::{self, Rule};
use lycosa_journal::writer::{self, XlogWriter};
use lycosa_queue::{Configuration, LogLine, Queue, Seconds};
use lycosa_replication::applier::{Handshake, Progress};
use lycosa_replication::relay::Window;
use lycosa_replication::sync::{Sync, SyncRule, UpstreamState};
use lycosa_replication::uri::Uri;
use lycosa_store::{IteratorType, Store, user};
use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::journal::SimJournal;
use crate::random::Random;
use crate::storage::{self, IDENTITY};
use crate::violation::{Checked, Violation};

/// The lag up to which a master counts as in sync, in microseconds: more than any clock is wrong.
const SYNC_LAG: u64 = 7_200_000_000;

/// What all instances of a world have in common.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    /// Seconds for which a queue session outlives its last connection.
    pub(super) session_ttr: f64,
    pub(super) instance: Settings,
    pub(super) writer: writer::Settings,
    /// Bytes of a relay window.
    pub(super) window: usize,
    /// Masters that have to be in sync before a process takes writes, itself included; 0: no process is ever an orphan.
    pub(super) quorum: usize,
    /// Whether clients also take by leases.
    pub(super) leases: bool,
}

/// A process.
pub(super) struct Life {
    pub(super) instance: Instance,
    pub(super) journal: SimJournal,
    pub(super) window: Window,
    turn: TurnState,
    /// When the last turn ended, by the instance's clock and by one that never goes back.
    turned: u64,
    clock: Instant,
    /// For the log.
    pub(super) lines: Vec<String>,
    /// The journal takes no more.
    pub(super) has_failed: bool,
    pub(super) sync: Sync,
    rule: SyncRule,
}

/// An instance, whether it lives or not.
pub(super) struct Node {
    pub(super) number: usize,
    pub(super) identity: Identity,
    pub(super) disk: MemoryDisk,
    pub(super) life: Option<Life>,
    /// Microseconds by which the clock of its process is ahead of the world's. It stays so for the process's life, as the
    /// server's own clock does.
    pub(super) offset: i64,
    /// The same for the next process.
    pub(super) next_offset: i64,
    /// What it has written and another master does not know, so that it has to join again before it lives.
    pub(super) must_join: bool,
    /// The disk holds no instance: it has to join before it can start.
    pub(super) is_empty: bool,
    /// The masters that have removed journals which this process lacks.
    pub(super) behind: BTreeSet<usize>,
    /// The masters with another history than this instance, and their refusals.
    pub(super) parted: BTreeMap<usize, String>,
}

fn violation(error: impl std::fmt::Display) -> Violation {
    Violation(error.to_string())
}

/// Who the instance with that number is.
pub(super) fn identity(number: usize) -> Identity {
    let instance = Uuid::from_u128(IDENTITY.instance.as_u128() + 0x100 * number as u128);
    Identity { instance, cluster: IDENTITY.cluster, replica_id: number as u32 + 1 }
}

/// A disk that holds a snapshot of these data and the beginning of a journal.
pub(super) fn disk_of(
    identity: &Identity,
    store: &Store,
    vclock: &Vclock,
    settings: writer::Settings,
) -> Checked<MemoryDisk> {
    let disk = MemoryDisk::new();
    let directory = storage::directory(&disk);
    folder::write_snapshot(&directory, store, identity, vclock, 0).map_err(violation)?;
    XlogWriter::create(directory, settings, identity.instance, vclock.clone()).map_err(violation)?;
    Ok(disk)
}

/// The number of an instance in the `_cluster` of a store.
fn member(store: &Store, instance: Uuid) -> Checked<Option<u32>> {
    let mut found = None;
    let mut look = |tuple: &[u8]| {
        let Ok(Value::Array(fields)) = Value::decode(tuple) else { return };
        if fields.get(1).and_then(Value::as_str) == Some(&instance.to_string()) {
            found = fields.first().and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        }
    };
    let (space, all) = (lycosa_store::system::CLUSTER, IteratorType::All);
    store.select(user::ADMIN, space, 0, all, &[0x90], 0, u64::MAX, &mut look).map_err(violation)?;
    Ok(found)
}

impl Node {
    pub(super) fn new(number: usize, disk: MemoryDisk) -> Self {
        Self {
            number,
            identity: identity(number),
            disk,
            life: None,
            offset: 0,
            next_offset: 0,
            must_join: false,
            is_empty: false,
            behind: BTreeSet::new(),
            parted: BTreeMap::new(),
        }
    }

    pub(super) fn now(&self, world: u64) -> u64 {
        world.saturating_add_signed(self.offset)
    }

    /// Starts a process on the disk. It takes no writes.
    pub(super) fn start(&mut self, plan: &Plan, random: &mut Random, world: u64) -> Checked {
        self.offset = self.next_offset;
        let now = self.now(world);
        let directory = storage::directory(&self.disk);
        let recovery = Recovery::open(&directory, Mode::Strict).map_err(violation)?;
        let recovery = recovery.ok_or_else(|| Violation("the disk holds no instance".to_owned()))?;
        let mut replay = Replay::new(Store::new(lycosa_store::Settings::default()));
        let recovered = recovery.run(&mut replay).map_err(violation)?;
        let store = replay.finish().map_err(violation)?;
        let log = XlogWriter::resume(directory, plan.writer, &recovered).map_err(violation)?;
        let vclock = recovered.vclock;
        let mut ids = random.fork();
        let new_session_id = Box::new(move || {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&ids.next().to_be_bytes());
            id[8..].copy_from_slice(&ids.next().to_be_bytes());
            id
        });
        let ttr = Some(Seconds::from_double(plan.session_ttr));
        let queue = Queue::new(Configuration { ttr, in_replicaset: true }, new_session_id);
        let mut salts = random.fork();
        let entropy = Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| salts.next() as u8));
        let process = Process { id: 1, entropy };
        let durable = vclock.clone();
        let mut instance =
            Instance::new(plan.instance.clone(), self.identity, process, store, queue, vclock, now);
        instance.set_read_only(true, now);
        let mut upstreams = vec![Upstream::default(); plan.nodes];
        upstreams[self.number].state = UpstreamState::Myself;
        instance.set_upstreams(upstreams);
        let sync = Sync::new(plan.quorum);
        instance.set_orphan(sync.is_orphan(), now);
        self.behind.clear();
        self.parted.clear();
        let journal = SimJournal::new(log, plan.writer.mode, durable.signature());
        let window = Window::new(durable, plan.window);
        self.life = Some(Life {
            instance,
            journal,
            window,
            turn: TurnState::default(),
            turned: now,
            clock: Instant::now(),
            lines: Vec::new(),
            has_failed: false,
            sync,
            rule: SyncRule { quorum: plan.quorum, sync_lag: SYNC_LAG },
        });
        Ok(())
    }

    /// Takes a connection, and what the other end begins it with. `None`: the instance does not run, or takes none.
    pub(super) fn accept(&mut self, peer: String, world: u64) -> Option<(ConnectionSlot, Handshake)> {
        let now = self.now(world);
        let slot = self.life.as_mut()?.instance.connect(Origin { peer, trust: Trust::Admin }, now).ok()?;
        let uri: Uri = "localhost:3301".parse().ok()?;
        Some((slot, Handshake::new(uri)))
    }

    /// An instance that has to join: its disk is a new one.
    pub(super) fn empty(number: usize, next_offset: i64) -> Self {
        Self { next_offset, is_empty: true, ..Self::new(number, MemoryDisk::new()) }
    }

    /// Everything that a JOIN has brought goes to the disk. Whether the disk holds an instance then: it may refuse in the middle.
    pub(super) fn keep(&mut self, store: &Store, vclock: &Vclock, settings: writer::Settings) -> Checked {
        let directory = storage::directory(&self.disk);
        directory.remove_left_overs().map_err(violation)?;
        let id = member(store, self.identity.instance)?;
        self.identity.replica_id =
            id.ok_or_else(|| Violation(format!("{} has joined and is not in _cluster", self.number)))?;
        let written = folder::write_snapshot(&directory, store, &self.identity, vclock, 0);
        if written.is_ok() {
            let instance = self.identity.instance;
            // A start without a journal begins one.
            let _ = XlogWriter::create(directory, settings, instance, vclock.clone());
        }
        Ok(())
    }

    /// Whether the disk holds a whole snapshot.
    pub(super) fn has_snapshot(&self) -> Checked<bool> {
        Ok(!storage::directory(&self.disk).list().map_err(violation)?.snapshots.is_empty())
    }

    /// The machine dies: unsynced bytes are gone.
    pub(super) fn die(&mut self) {
        self.life = None;
        // Nothing goes wrong with the disk of the next process.
        self.disk = self.disk.crash(Crash::Machine);
    }

    /// The disk is going to refuse something to the process.
    pub(super) fn spoil_disk(&self, random: &mut Random) {
        if self.life.is_some() {
            self.disk.fail_after(random.below(6), Fault::Fail(std::io::ErrorKind::StorageFull));
        }
    }

    /// Everything durable becomes a snapshot, and the journals before it go, as far as a start does not need them; no
    /// replica is asked. False: there is nothing new, or the disk refuses.
    pub(super) fn prune(&mut self) -> Checked<bool> {
        let Some(life) = self.life.as_mut().filter(|life| !life.has_failed) else { return Ok(false) };
        let vclock = life.instance.durable_vclock().clone();
        if life.instance.vclock() != &vclock {
            return Ok(false);
        }
        let directory = storage::directory(&self.disk);
        let sound = vclock.signature();
        if directory.list().map_err(violation)?.snapshots.contains(&sound) {
            return Ok(false);
        }
        let store = life.instance.store();
        if folder::write_snapshot(&directory, store, &self.identity, &vclock, 0).is_err() {
            return Ok(false);
        }
        let rule = Rule { sound, snapshots: 1, bytes: u64::MAX, held_from: u64::MAX };
        Ok(retention::collect(&directory, &rule).is_ok_and(|(removed, _)| !removed.is_empty()))
    }

    /// What the process has on its disk, or the disk of a dead one holds.
    pub(super) fn durable(&self) -> Option<Vclock> {
        self.life.as_ref().map(|life| life.instance.durable_vclock().replicated())
    }
}

impl Life {
    /// A master has been heard: whether the process is still an orphan.
    pub(super) fn update_sync(&mut self, now: u64) {
        let states: Vec<_> = self.instance.upstreams().iter().map(|upstream| upstream.state).collect();
        if self.sync.update(&self.rule, &states) {
            self.instance.set_orphan(self.sync.is_orphan(), now);
        }
    }

    /// The operator lets the process take writes with any number of masters in sync.
    pub(super) fn lower_quorum(&mut self, now: u64) {
        self.sync = Sync::new(0);
        self.rule.quorum = 0;
        if self.instance.is_orphan() {
            self.instance.set_orphan(false, now);
        }
    }

    /// The state of a follower.
    pub(super) fn following(&self, progress: &Progress) -> UpstreamState {
        let start = progress.master_at_start.as_ref();
        if self.rule.is_synced(progress.lag, self.instance.vclock(), start) {
            UpstreamState::Following
        } else {
            UpstreamState::Syncing
        }
    }

    /// A turn of the loop at a time of the instance's clock.
    pub(super) fn turn(&mut self, now: u64) -> Checked {
        self.clock += Duration::from_micros(now.saturating_sub(self.turned));
        self.turned = self.turned.max(now);
        turn::end(self, now, self.clock).map(|_| ())
    }

    /// Lets the journal do everything that there is to do.
    pub(super) fn sync(&mut self, now: u64) -> Checked {
        while !self.has_failed {
            // Longer than rows wait in any world.
            self.clock += Duration::from_millis(10);
            self.turn(now)?;
            if self.journal.is_idle() && !self.instance.has_open_batch() {
                break;
            }
            self.journal.step();
        }
        Ok(())
    }
}

impl Host for Life {
    type Journal = SimJournal;
    type Stop = Violation;

    fn parts(&mut self) -> Parts<'_, SimJournal> {
        Parts { instance: &mut self.instance, turn: &mut self.turn, journal: &mut self.journal }
    }

    fn order(&mut self, _: CheckpointOrder) -> Checked {
        Err(Violation("the settings of this world ask for no checkpoints".to_owned()))
    }

    /// The world reads what clients and replicas are told, of all connections after each turn.
    fn write(&mut self, _: ConnectionSlot) -> Checked {
        Ok(())
    }

    fn durable(&mut self, lsn: Lsn, rows: &[u8]) -> Checked {
        let Some(vclock) = self.instance.batch_vclock(lsn).cloned() else { return Ok(()) };
        self.window.push(rows, &vclock).map_err(violation)
    }

    fn failed(&mut self, _: &str) -> Checked {
        self.has_failed = true;
        Ok(())
    }

    fn log(&mut self, line: &LogLine) {
        self.lines.push(line.text.clone());
    }
}
