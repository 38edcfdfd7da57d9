//! A server of the group: its disk, its clocks, and the process on it while that lives.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use lycosa_engine::group::{self, Done, GroupDisk, GroupJournal, NewGroup, Order, Peers};
use lycosa_engine::snapshots::{self, Outcome, Snapshots, Surroundings};
use lycosa_engine::turn::{self, Host, Parts, TurnState};
use lycosa_group::Limits;
use lycosa_group::members::NodeId;
use lycosa_instance::{CheckpointOrder, Confirmed, ConnectionSlot, Instance, Process, Settings};
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::writer;
use lycosa_queue::{Configuration, LogLine, Queue, Seconds};
use uuid::Uuid;

use super::client::Reign;
use crate::random::Random;
use crate::storage::{self, IDENTITY};
use crate::violation::{Checked, Violation, hold};

/// The one group.
pub(super) const GROUP: Uuid = Uuid::from_u128(0x6_0043);

/// What all servers of a world have in common.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Seconds for which a queue session outlives its last connection.
    pub(super) session_ttr: f64,
    /// The level at which the group begins.
    pub(super) level: u32,
    /// Whether there is a temporary tube.
    pub(super) temporary: bool,
    pub(super) settings: Settings,
    pub(super) log: writer::Settings,
    pub(super) limits: Limits,
}

impl Plan {
    fn node(&self, knows: u32) -> group::Settings {
        group::Settings { limits: self.limits, knows, ..group::Settings::default() }
    }
}

/// The parts of a process that a joiner has, too.
pub(super) struct Core {
    pub(super) journal: GroupJournal,
    pub(super) disk: GroupDisk,
    /// The newest connections of the other servers.
    pub(super) peers: Peers,
    pub(super) connections: u64,
    /// With the disk, each with the time at which it is done.
    pub(super) orders: VecDeque<(u64, Order)>,
    pub(super) next_tick: u64,
}

/// An instance and its surroundings.
pub(super) struct Body {
    pub(super) instance: Instance,
    turn: TurnState,
    snapshots: Snapshots<Plenty>,
    /// By the server's own clock, and by one that never goes back.
    now: u64,
    clock: Instant,
    /// Microseconds by which the time of the instance is ahead of the server's own: that of the leaders before.
    pub(super) ahead: i64,
    pub(super) failure: Option<String>,
    /// What it has logged since the world looked last.
    pub(super) lines: Vec<String>,
    pub(super) snapshots_taken: u64,
    pub(super) restored: u64,
    /// Times that it began to lead or to follow.
    pub(super) reigns: u64,
}

/// A process.
pub(super) struct Running {
    pub(super) core: Core,
    /// `None` while it waits for its first snapshot.
    pub(super) body: Option<Body>,
    /// The next deadline of the instance, by the world's clock.
    pub(super) next_turn: u64,
}

/// A disk without a check of its free space.
#[derive(Debug)]
pub(super) struct Plenty;

impl Surroundings for Plenty {
    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

/// See the module.
pub(super) struct Server {
    pub(super) node: NodeId,
    pub(super) disk: MemoryDisk,
    pub(super) running: Option<Box<Running>>,
    /// The level of rows and records that its program knows.
    pub(super) knows: u32,
    /// Its clock that never goes back is ahead by this much, and gains `drift` microseconds in a million.
    pub(super) offset: u64,
    pub(super) drift: u64,
    /// Microseconds by which its time of day is wrong.
    pub(super) wrong: i64,
    /// Stopped until then.
    pub(super) stopped_until: u64,
    /// Its disk does nothing until then.
    pub(super) stalled_until: u64,
    /// Its disk is short of space until then.
    pub(super) scarce_until: u64,
    /// Processes that have been started.
    processes: u64,
}

fn violation(error: impl std::fmt::Display) -> Violation {
    Violation(error.to_string())
}

impl Server {
    /// The first server of a group.
    pub(super) fn first(plan: &Plan, now: u64) -> Checked<Self> {
        let disk = MemoryDisk::new();
        let (directory, store) = (storage::directory(&disk), lycosa_store::Settings::default());
        let new = NewGroup { group: GROUP, address: "n1".to_owned(), level: plan.level };
        group::begin(&directory, store, plan.log, &IDENTITY, new, now).map_err(violation)?;
        Ok(Self::new(1, disk))
    }

    /// An empty server that joins.
    pub(super) fn joiner(plan: &Plan, node: NodeId, rank: u8) -> Checked<Self> {
        let disk = MemoryDisk::new();
        let identity = group::Identity { group: GROUP, node, rank };
        group::join(&storage::directory(&disk), plan.log, identity).map_err(violation)?;
        Ok(Self::new(node, disk))
    }

    fn new(node: NodeId, disk: MemoryDisk) -> Self {
        Self {
            node,
            disk,
            running: None,
            knows: group::FEATURE_LEVEL,
            offset: 0,
            drift: 0,
            wrong: 0,
            stopped_until: 0,
            stalled_until: 0,
            scarce_until: 0,
            processes: 0,
        }
    }

    /// The reign of the process that runs, or of the last one.
    pub(super) fn reign(&self) -> Reign {
        let number = self.body().map_or(0, |body| body.reigns);
        Reign { node: self.node, process: self.processes, number }
    }

    /// The time on the server's clock that never goes back.
    pub(super) fn local(&self, now: u64) -> u64 {
        self.offset + now + now / 1_000_000 * self.drift
    }

    /// When that clock shows `local`, or a little later.
    pub(super) fn global(&self, local: u64, now: u64) -> u64 {
        now + local.saturating_sub(self.local(now)).max(1)
    }

    /// The time of the instance.
    pub(super) fn instance_time(&self, now: u64) -> u64 {
        let ahead = self.body().map_or(0, |body| body.ahead);
        now.saturating_add_signed(self.wrong + ahead)
    }

    pub(super) fn body(&self) -> Option<&Body> {
        self.running.as_ref().and_then(|running| running.body.as_ref())
    }

    pub(super) fn body_mut(&mut self) -> Option<&mut Body> {
        self.running.as_mut().and_then(|running| running.body.as_mut())
    }

    pub(super) fn is_awake(&self, now: u64) -> bool {
        self.running.is_some() && self.stopped_until <= now
    }

    pub(super) fn leads(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.core.journal.leads())
    }

    /// The node that it takes for the leader, perhaps itself.
    pub(super) fn leader_known(&self) -> Option<NodeId> {
        let journal = &self.running.as_ref()?.core.journal;
        if journal.leads() {
            return Some(self.node);
        }
        journal.leader().filter(|leader| *leader != self.node)
    }

    /// Whether it never had a snapshot.
    pub(super) fn is_empty(&self) -> bool {
        storage::directory(&self.disk).list().is_ok_and(|listing| listing.group_states.is_empty())
    }

    /// Starts the process.
    pub(super) fn start(&mut self, plan: &Plan, random: &mut Random, now: u64) -> Checked {
        self.processes += 1;
        let store = lycosa_store::Settings::default();
        let directory = storage::directory(&self.disk);
        let opened = group::open(&directory, store, plan.log, plan.node(self.knows)).map_err(violation)?;
        let group::Opened { data, snapshot, journal, disk, .. } = opened;
        let peers = Peers::new(GROUP, self.node);
        let core = Core { journal, disk, peers, connections: 0, orders: VecDeque::new(), next_tick: now };
        let time = now.saturating_add_signed(self.wrong);
        let body = data.map(|data| Body::new(data, snapshot, plan, &directory, random, time)).transpose()?;
        self.running = Some(Box::new(Running { core, body, next_turn: now }));
        Ok(())
    }

    /// The disk does everything that is due. Whether anything was.
    pub(super) fn write(&mut self, due: u64) -> bool {
        let Some(running) = &mut self.running else { return false };
        let core = &mut running.core;
        let mut orders = Vec::new();
        while core.orders.front().is_some_and(|(done, _)| *done <= due)
            && let Some((_, order)) = core.orders.pop_front()
        {
            orders.push(order);
        }
        if orders.is_empty() {
            return false;
        }
        let mut done: Vec<Done> = Vec::new();
        core.disk.carry_out(orders, &mut done);
        done.into_iter().for_each(|done| core.journal.handle(done));
        true
    }

    /// A turn of the process.
    pub(super) fn turn(&mut self, now: u64) -> Checked {
        let (time, clock) = (self.instance_time(now), self.local(now));
        let Some(running) = &mut self.running else { return Ok(()) };
        let Running { core, body, next_turn } = &mut **running;
        let Some(body) = body else {
            *next_turn = u64::MAX;
            return Ok(());
        };
        body.now = time;
        let clock = body.clock + Duration::from_micros(clock);
        let mut whole = Whole { body, journal: &mut core.journal };
        let ended = turn::end(&mut whole, time, clock)?;
        let wait = ended.next.map_or(1_000_000, |next| next.saturating_sub(time));
        *next_turn = now + wait.clamp(1, 1_000_000);
        Ok(())
    }
}

impl Body {
    fn new(
        data: Confirmed,
        snapshot: u64,
        plan: &Plan,
        directory: &lycosa_journal::directory::Directory,
        random: &mut Random,
        now: u64,
    ) -> Checked<Self> {
        let Confirmed { store, vclock } = data;
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
        let mut instance = Instance::new(plan.settings.clone(), IDENTITY, process, store, queue, vclock, now);
        let settings = snapshots::Settings {
            directory: directory.clone(),
            reserve: 0,
            look_after: snapshots::LOOK_AFTER,
            instance: IDENTITY.instance,
            sound: snapshot,
        };
        let snapshots = Snapshots::new(settings, Plenty);
        instance.set_checkpoint_base(snapshot, snapshots.files().map_err(violation)?);
        instance.join_group(now);
        Ok(Self {
            instance,
            turn: TurnState::default(),
            snapshots,
            now,
            clock: Instant::now(),
            ahead: 0,
            failure: None,
            lines: Vec::new(),
            snapshots_taken: 0,
            restored: 0,
            reigns: 0,
        })
    }
}

/// What a turn moves.
struct Whole<'a> {
    body: &'a mut Body,
    journal: &'a mut GroupJournal,
}

impl Host for Whole<'_> {
    type Journal = GroupJournal;
    type Stop = Violation;

    fn parts(&mut self) -> Parts<'_, GroupJournal> {
        let Body { instance, turn, .. } = self.body;
        Parts { instance, turn, journal: self.journal }
    }

    fn order(&mut self, order: CheckpointOrder) -> Checked {
        let body = &mut *self.body;
        let signature = body.instance.checkpoint_signature();
        let completes = matches!(order, CheckpointOrder::Complete { .. });
        if completes {
            let base = signature.and_then(|signature| self.journal.base_of(signature)).cloned();
            hold!(base.is_some(), "snapshot {signature:?} is complete, and its state is not known");
            base.into_iter().for_each(|base| body.snapshots.seal_with(base));
        }
        let mut news = Vec::new();
        body.snapshots.carry_out(order, &mut news);
        for news in news {
            if let (snapshots::News::Done { .. }, Some(signature)) = (&news, signature) {
                self.journal.snapshot_taken(signature);
                body.snapshots_taken += 1;
            }
            if let Outcome::Failed { cause, .. } = snapshots::tell(&mut body.instance, news, body.now) {
                body.lines.push(format!("no snapshot: {cause}"));
            }
        }
        Ok(())
    }

    /// The world reads what clients are told, of all connections after each turn.
    fn write(&mut self, _: ConnectionSlot) -> Checked {
        Ok(())
    }

    fn leads(&mut self, ahead: i64) -> Checked {
        let term = self.journal.status().node.term;
        self.body.lines.push(format!("leads in term {term}, by a time that is {ahead} µs ahead"));
        self.body.ahead += ahead;
        self.body.reigns += 1;
        Ok(())
    }

    fn follows(&mut self, leader: Option<u64>) -> Checked {
        self.body.lines.push(format!("follows {leader:?}"));
        self.body.reigns += 1;
        Ok(())
    }

    fn restored(&mut self) -> Checked {
        self.body.lines.push(format!("has new data, up to entry {}", self.journal.held()));
        let Some(base) = self.journal.snapshot() else { return Ok(()) };
        self.body.snapshots.set_sound(base.signature);
        if let Ok(files) = self.body.snapshots.files() {
            self.body.instance.set_checkpoint_base(base.signature, files);
        }
        self.body.restored += 1;
        Ok(())
    }

    fn failed(&mut self, cause: &str) -> Checked {
        self.body.failure = Some(cause.to_owned());
        Ok(())
    }

    fn log(&mut self, line: &LogLine) {
        self.body.lines.push(line.text.clone());
    }
}
