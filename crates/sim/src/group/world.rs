//! A group, its clients and its operator, in a world where everything fails.

mod failures;
mod operator;

use std::collections::{BTreeMap, BTreeSet};

use lycosa_group::base::{Base, FEATURE_LEVEL};
use lycosa_group::link::{ConnectionNumber, Hello, HelloError};
use lycosa_group::members::{NodeId, Standing};
use lycosa_group::node::{Committed, Event, Incoming, Outgoing, Payload, Role, StepError};
use lycosa_journal::memory::{Crash, Fault};

use super::GroupTotals;
use super::history::{History, digest, hash};
use super::link::{Link, Parcel};
use super::server::{GROUP, Server, read_snapshot};
use crate::random::Random;
use crate::violation::{Checked, Violation, hold};
use crate::{BEGINNING, Trace};

/// A group without faults is at rest within this time, in microseconds.
const REST: u64 = 60_000_000;
/// The level of a newer program.
const NEWER: u32 = FEATURE_LEVEL + 1;

#[derive(Debug, Clone, Copy)]
enum Action {
    Advance,
    Propose,
    Read,
    Snapshot,
    Cut,
    Block,
    Swallow,
    Heal,
    Stop,
    Stall,
    Scarce,
    Refuse,
    Kill,
    Crash,
    Start,
    Add,
    Remove,
    Transfer,
    Raise,
}

const ACTIONS: [(u32, Action); 19] = [
    (600, Action::Advance),
    (120, Action::Propose),
    (30, Action::Read),
    (8, Action::Snapshot),
    (10, Action::Cut),
    (4, Action::Block),
    (4, Action::Swallow),
    (24, Action::Heal),
    (5, Action::Stop),
    (4, Action::Stall),
    (3, Action::Scarce),
    (3, Action::Refuse),
    (3, Action::Kill),
    (5, Action::Crash),
    (24, Action::Start),
    (10, Action::Add),
    (6, Action::Remove),
    (4, Action::Transfer),
    (2, Action::Raise),
];

pub(crate) struct World<'a> {
    pub(super) random: Random,
    trace: &'a mut Trace,
    pub(crate) step: u64,
    pub(crate) now: u64,
    pub(super) servers: BTreeMap<NodeId, Server>,
    pub(super) links: BTreeMap<(NodeId, NodeId), Link<Vec<u64>>>,
    pub(super) history: History,
    /// Servers that were voters.
    joined: BTreeSet<NodeId>,
    actions: Vec<(u32, Action)>,
    next_operation: u64,
    next_address: u64,
    /// Latency of a link and time of a sync at most, in microseconds.
    latency: u64,
    sync: u64,
    /// The group rises, or has risen, to the newer level.
    is_raised: bool,
    pub(crate) totals: GroupTotals,
}

fn violation(text: impl std::fmt::Display) -> Violation {
    Violation(text.to_string())
}

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, trace: &'a mut Trace) -> Checked<Self> {
        let mut random = Random::new(seed);
        let latency = *random.pick(&[200, 2_000, 20_000]);
        let sync = *random.pick(&[100, 5_000, 60_000]);
        let size = random.between(1, 3);
        let mut world = Self::quiet(random, trace)?;
        (world.latency, world.sync) = (latency, sync);
        // In calm worlds much is confirmed, in others hardly anything.
        let calm = *world.random.pick(&[1, 3, 10]);
        for (weight, action) in &mut world.actions {
            if matches!(action, Action::Advance | Action::Propose) {
                *weight *= calm;
            }
        }
        for _ in 0..size {
            world.operate_add()?;
            world.pass(2_000_000)?;
        }
        Ok(world)
    }

    /// A group of one in which nothing fails.
    pub(super) fn quiet(random: Random, trace: &'a mut Trace) -> Checked<Self> {
        let mut world = Self {
            random,
            trace,
            step: 0,
            now: BEGINNING,
            servers: BTreeMap::new(),
            links: BTreeMap::new(),
            history: History::default(),
            joined: BTreeSet::new(),
            actions: ACTIONS.to_vec(),
            next_operation: 1,
            next_address: 2,
            latency: 200,
            sync: 100,
            is_raised: false,
            totals: GroupTotals::default(),
        };
        let first = Server::first().map_err(violation)?;
        world.settle_in(first)?;
        world.pass(1_000_000)?;
        Ok(world)
    }

    fn settle_in(&mut self, mut server: Server) -> Checked<()> {
        server.offset = self.random.below(10_000_000_000);
        server.drift = self.random.below(3_000);
        server.knows = if self.is_raised || self.random.one_in(2) { NEWER } else { FEATURE_LEVEL };
        server.start(self.now).map_err(violation)?;
        let node = server.identity.node;
        self.trace.line(format_args!("{node} begins, rank {}", server.identity.rank));
        self.servers.insert(node, server);
        Ok(())
    }

    /// One thing happens, and everything that follows from it at once.
    pub(crate) fn next(&mut self) -> Checked<()> {
        self.step += 1;
        let action = self.random.weighted(&self.actions);
        self.act(action)?;
        self.run()
    }

    fn act(&mut self, action: Action) -> Checked<()> {
        let all: Vec<NodeId> = self.servers.keys().copied().collect();
        let node = *self.random.pick(&all);
        let other = *self.random.pick(&all);
        match action {
            Action::Advance => self.advance(),
            Action::Propose => self.propose(),
            Action::Read => self.read(),
            Action::Snapshot => self.snapshot(node),
            Action::Cut if node != other => self.cut(node, other),
            Action::Block | Action::Swallow if node != other => {
                let swallows = matches!(action, Action::Swallow);
                let isolates = self.random.one_in(3);
                self.separate(node, (!isolates).then_some(other), swallows)
            }
            Action::Cut | Action::Block | Action::Swallow => Ok(()),
            Action::Heal => {
                self.heal();
                Ok(())
            }
            Action::Stop => {
                self.totals.stops += 1;
                let until = self.now + self.random.between(50_000, 4_000_000);
                self.trace.line(format_args!("{node} stops"));
                self.server(node).stopped_until = until;
                Ok(())
            }
            Action::Stall => {
                let until = self.now + self.random.between(50_000, 7_000_000);
                self.trace.line(format_args!("the disk of {node} stalls"));
                self.server(node).stalled_until = until;
                Ok(())
            }
            Action::Scarce => {
                self.totals.shortages += 1;
                let until = self.now + self.random.between(50_000, 7_000_000);
                self.trace.line(format_args!("the disk of {node} is full"));
                self.server(node).scarce_until = until;
                Ok(())
            }
            Action::Refuse => {
                let operations = self.random.below(6);
                self.trace.line(format_args!("the disk of {node} refuses something"));
                self.server(node).disk.fail_after(operations, Fault::Fail(std::io::ErrorKind::StorageFull));
                Ok(())
            }
            Action::Kill => self.kill(node),
            Action::Crash => self.crash(node),
            Action::Start => self.start(node),
            Action::Add => self.operate_add(),
            Action::Remove => self.operate_remove(node),
            Action::Transfer => self.operate_transfer(node),
            Action::Raise => self.operate_raise(),
        }
    }

    pub(super) fn server(&mut self, node: NodeId) -> &mut Server {
        self.servers.get_mut(&node).expect("a node that was picked from the servers")
    }

    /// The time of the next event.
    fn next_due(&self) -> u64 {
        let ends =
            |(from, to): &(NodeId, NodeId)| self.servers.contains_key(from) && self.servers.contains_key(to);
        let links = self.links.iter().filter(|(pair, _)| ends(pair)).filter_map(|((_, to), link)| {
            let due = link.next_due()?;
            Some(due.max(self.servers[to].stopped_until))
        });
        let servers = self.servers.values().filter_map(|server| {
            let running = server.running.as_ref()?;
            let tick = running.next_tick;
            let disk = running.writes.front().map(|(due, _)| (*due).max(server.stalled_until));
            Some(disk.unwrap_or(u64::MAX).min(tick).max(server.stopped_until))
        });
        let next = links.chain(servers).min().unwrap_or(self.now + 25_000);
        next.max(self.now)
    }

    /// Time passes up to the next event, which happens.
    fn advance(&mut self) -> Checked<()> {
        self.now = self.next_due();
        let now = self.now;
        let all: Vec<NodeId> = self.servers.keys().copied().collect();
        for &node in &all {
            let server = self.server(node);
            if !server.is_awake(now) {
                continue;
            }
            if server.stalled_until <= now {
                self.write(node)?;
            }
            let server = self.server(node);
            let (local, mut due) = (server.local(now), None);
            let is_scarce = server.scarce_until > now;
            if let Some(running) = &mut server.running
                && running.next_tick <= now
            {
                running.node.set_scarce(is_scarce);
                due = Some(running.node.tick(local));
            }
            if let Some(due) = due {
                let next = server.global(due, now);
                server.running.as_mut().expect("it has ticked").next_tick = next;
            }
        }
        let pairs: Vec<(NodeId, NodeId)> = self.links.keys().copied().collect();
        for pair in pairs {
            self.deliver(pair)?;
        }
        Ok(())
    }

    fn write(&mut self, node: NodeId) -> Checked<()> {
        let now = self.now;
        let installs = |server: &Server| {
            let running = server.running.as_ref();
            running.is_some_and(|running| running.writes.iter().any(|(_, write)| write.install.is_some()))
        };
        let installs_before = installs(&self.servers[&node]);
        match self.server(node).write(now) {
            Ok(messages) => self.send(node, messages),
            Err(error) => {
                // The node leaves its service, as the server would.
                self.trace.line(format_args!("{node}: {error}"));
                self.totals.faults += 1;
                self.totals.lost_snapshots += u64::from(installs_before);
                self.end(node, Crash::Process)
            }
        }
    }

    fn deliver(&mut self, pair: (NodeId, NodeId)) -> Checked<()> {
        let (from, to) = pair;
        let now = self.now;
        loop {
            if !self.servers.get(&to).is_some_and(|server| server.is_awake(now)) {
                return Ok(());
            }
            let Some((connection, parcel)) = self.links.get_mut(&pair).and_then(|link| link.receive(now))
            else {
                return Ok(());
            };
            let running = self.servers.get_mut(&to).and_then(|server| server.running.as_mut());
            let running = running.expect("it is awake");
            match parcel {
                Parcel::Hello(hello) => match running.peers.greet(hello) {
                    Ok(()) => {}
                    Err(HelloError::Old { .. }) => self.totals.late_messages += 1,
                    Err(error) => return Err(violation(error)),
                },
                Parcel::Message { .. } if !running.peers.is_newest(from, connection) => {
                    self.totals.late_messages += 1;
                }
                Parcel::Message { bytes, content } => {
                    let incoming = Incoming::decode(&bytes).map_err(violation)?;
                    let brings_snapshot = incoming.base().is_some();
                    if let (Some(base), Some(content)) = (incoming.base(), content) {
                        running.staged.push((base.clone(), content));
                    }
                    self.trace.bytes(&bytes);
                    let taken = running.node.step(incoming);
                    self.events(to, brings_snapshot)?;
                    match taken {
                        Ok(()) => {}
                        Err(StepError::NoSpace) => {
                            self.totals.lost_snapshots += 1;
                            self.cut(from, to)?;
                        }
                        Err(error) => return Err(violation(format!("{to} from {from}: {error}"))),
                    }
                }
            }
        }
    }

    /// All nodes do what they have to.
    pub(super) fn run(&mut self) -> Checked<()> {
        let all: Vec<NodeId> = self.servers.keys().copied().collect();
        for node in all {
            loop {
                self.events(node, false)?;
                let (now, sync) = (self.now, self.random.between(50, self.sync));
                let server = self.server(node);
                if !server.is_awake(now) {
                    break;
                }
                let local = server.local(now);
                let running = server.running.as_mut().expect("it is awake");
                let write = running.node.poll(local);
                let is_last = write.is_none();
                running.writes.extend(write.map(|write| (now + sync, write)));
                let messages = running.messages();
                self.send(node, messages)?;
                if is_last {
                    break;
                }
            }
            self.check_leader(node)?;
        }
        Ok(())
    }

    fn check_leader(&mut self, node: NodeId) -> Checked<()> {
        let server = self.server(node);
        if server.leads()
            && let Some(running) = &server.running
        {
            hold!(running.node.members().get(node).is_some(), "node {node} leads and is no member");
        }
        Ok(())
    }

    fn send(&mut self, from: NodeId, messages: Vec<Outgoing>) -> Checked<()> {
        for Outgoing { to, bytes, base } in messages {
            let content = base.as_ref().map(|base| read_snapshot(&self.servers[&from].disk, base.signature));
            let latency = self.random.between(50, self.latency);
            let now = self.now;
            let knows = self.servers[&from].knows;
            let is_reachable = self.servers.get(&to).is_some_and(|server| server.running.is_some());
            let link = self.links.entry((from, to)).or_default();
            if link.open.is_none() {
                if link.is_blocked || !is_reachable {
                    self.totals.lost_snapshots += u64::from(base.is_some());
                    self.tell_lost(from, to);
                    continue;
                }
                let running = self.servers.get_mut(&from).and_then(|server| server.running.as_mut());
                let running = running.expect("it sends");
                running.connections += 1;
                let connection =
                    ConnectionNumber { incarnation: running.log.incarnation(), number: running.connections };
                link.open = Some(connection);
                let hello = Hello { group: GROUP, from, to, connection, knows };
                link.send(now + latency, Parcel::Hello(hello));
            }
            match content {
                // The file was removed meanwhile: the sender ends the link.
                Some(None) => self.cut(from, to)?,
                content => {
                    let delay = if content.is_some() { 20 * latency } else { latency };
                    let content = content.flatten();
                    link.send(now + delay, Parcel::Message { bytes, content });
                }
            }
        }
        Ok(())
    }

    fn tell_lost(&mut self, from: NodeId, to: NodeId) {
        if let Some(running) = self.servers.get_mut(&from).and_then(|server| server.running.as_mut()) {
            running.node.link_lost(to);
        }
    }

    fn events(&mut self, node: NodeId, brought_snapshot: bool) -> Checked<()> {
        loop {
            let Some(server) = self.servers.get_mut(&node) else { return Ok(()) };
            let Some(running) = &mut server.running else { return Ok(()) };
            let Some(event) = running.node.next_event() else { return Ok(()) };
            self.event(node, event, brought_snapshot)?;
        }
    }

    fn event(&mut self, node: NodeId, event: Event, brought_snapshot: bool) -> Checked<()> {
        let server = self.servers.get_mut(&node).expect("it has an event");
        let running = server.running.as_mut().expect("it has an event");
        match event {
            Event::Role { role, term, leader } => {
                self.trace.line(format_args!("{node} is {role:?} of term {term}, leader {leader:?}"));
                if role == Role::Leader && self.history.lead(term, node)? {
                    self.totals.elections += 1;
                }
            }
            Event::Confirmed(position) => {
                while running.proposed.front().is_some_and(|(own, _)| own.index <= position.index)
                    && let Some((own, operation)) = running.proposed.pop_front()
                {
                    self.totals.confirmed += 1;
                    self.history.confirm(own, operation)?;
                }
            }
            Event::Lost(position) => {
                let kept = running.proposed.partition_point(|(own, _)| own.index < position.index);
                for (own, _) in running.proposed.split_off(kept) {
                    self.totals.lost += 1;
                    if !brought_snapshot {
                        self.history.lose(own)?;
                    }
                }
            }
            Event::Committed(committed) => self.hand_out(node, committed)?,
            Event::Read { number, index } => {
                let at = running.reads.iter().position(|(read, _)| *read == number);
                let at = at.ok_or_else(|| violation(format!("{node}: read {number} was never asked")))?;
                let (_, least) = running.reads.remove(at);
                hold!(index >= least, "{node} reads at {index}, and {least} was confirmed before");
                self.totals.reads += 1;
            }
            Event::ReadLost { number } => {
                running.reads.retain(|(read, _)| *read != number);
                self.totals.lost_reads += 1;
            }
            Event::Installed(base) => self.install(node, &base)?,
            Event::Members(members) => {
                let list: Vec<_> = members.iter().map(|member| (member.node, member.standing)).collect();
                self.trace.line(format_args!("{node}: members {list:?}"));
                let is_voter = members.get(node).is_some_and(|member| member.standing == Standing::Voter);
                if is_voter && !members.is_joint() && self.joined.insert(node) {
                    self.totals.joins += 1;
                }
            }
            Event::Removed => {
                self.trace.line(format_args!("{node} is removed"));
                server.is_removed = true;
                self.totals.removals += 1;
                self.totals.removed_leaders += u64::from(running.node.leader().is_none());
            }
            Event::EntriesWanted(wanted) => {
                self.totals.readings += 1;
                let fails = self.random.one_in(10);
                let found = if fails { None } else { running.log.read(&wanted).ok() };
                running.node.found(&wanted, found);
            }
            Event::SnapshotWanted { .. } => self.snapshot(node)?,
            Event::HandOverWanted(ailment) => {
                let successor = running.node.transfer(None);
                self.trace.line(format_args!("{node} hands over, {successor:?}: {ailment}"));
                self.totals.hand_overs += u64::from(successor.is_ok());
            }
            Event::Halted { level } => return Err(violation(format!("{node} does not know level {level}"))),
        }
        Ok(())
    }

    /// A node hands out a committed entry.
    fn hand_out(&mut self, node: NodeId, Committed { position, payload }: Committed) -> Checked<()> {
        let running = self.servers.get_mut(&node).and_then(|server| server.running.as_mut());
        let running = running.expect("it has an event");
        let follows = position.index == running.applied + 1;
        hold!(follows, "{node} hands out {position:?} after {}", running.applied);
        running.applied = position.index;
        match &payload {
            Payload::Rows(rows) => {
                let operation = rows.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                running.data.push(operation);
                running.digest = hash(running.digest, &operation.to_le_bytes());
            }
            Payload::Level(level) => {
                running.log.set_level(*level);
                self.totals.levels += u64::from(running.node.status().role == Role::Leader);
            }
            Payload::Nothing | Payload::Change(_) => {}
        }
        self.history.hand_out(node, position, &payload, running.digest)?;
        Ok(())
    }

    /// A node has a snapshot in the place of its data.
    fn install(&mut self, node: NodeId, installed: &Base) -> Checked<()> {
        let running = self.servers.get_mut(&node).and_then(|server| server.running.as_mut());
        let running = running.expect("it has an event");
        let at = running.staged.iter().position(|(staged, _)| *staged == *installed);
        let at = at.ok_or_else(|| violation("a snapshot is installed that has not arrived"))?;
        let (base, data) = running.staged.swap_remove(at);
        running.staged.retain(|(staged, _)| staged.index > base.index);
        running.digest = digest(&data);
        (running.data, running.applied) = (data, base.index);
        self.trace.line(format_args!("{node} has the snapshot of entry {}", base.index));
        self.totals.installs += 1;
        self.history.install(node, base.index, running.digest)?;
        Ok(())
    }

    pub(super) fn leader(&self) -> Option<NodeId> {
        let leading = self.servers.values().filter(|server| server.leads() && server.is_awake(self.now));
        let newest =
            leading.max_by_key(|server| server.running.as_ref().map(|running| running.node.status().term));
        newest.map(|server| server.identity.node)
    }

    /// A server that leads, or believes so.
    fn some_leader(&mut self) -> Option<NodeId> {
        let now = self.now;
        let leading = self.servers.values().filter(|server| server.leads() && server.is_awake(now));
        let leading: Vec<NodeId> = leading.map(|server| server.identity.node).collect();
        (!leading.is_empty()).then(|| *self.random.pick(&leading))
    }

    pub(super) fn propose(&mut self) -> Checked<()> {
        let Some(node) = self.some_leader() else { return Ok(()) };
        let operation = self.next_operation;
        let padding = *self.random.pick(&[0, 100, 700, 3_000]);
        let mut rows = operation.to_le_bytes().to_vec();
        rows.resize(8 + padding, operation as u8);
        let running = self.server(node).running.as_mut().expect("it leads");
        if let Ok(position) = running.node.propose(rows) {
            running.proposed.push_back((position, operation));
            self.next_operation += 1;
        }
        self.events(node, false)
    }

    pub(super) fn read(&mut self) -> Checked<()> {
        let Some(node) = self.some_leader() else { return Ok(()) };
        let least = self.history.newest_confirmed;
        let running = self.server(node).running.as_mut().expect("it leads");
        let number = running.node.read().map_err(violation)?;
        running.reads.push((number, least));
        self.events(node, false)
    }

    pub(super) fn snapshot(&mut self, node: NodeId) -> Checked<()> {
        let kept = *self.random.pick(&[0, 0, 5, 50]);
        let now = self.now;
        let server = self.server(node);
        if !server.is_awake(now) {
            return Ok(());
        }
        match server.take_snapshot().and_then(|is_taken| server.forget(kept).map(|()| is_taken)) {
            Ok(is_taken) => {
                self.totals.snapshots += u64::from(is_taken);
                Ok(())
            }
            Err(error) => {
                self.trace.line(format_args!("{node}: no snapshot: {error}"));
                self.totals.faults += 1;
                Ok(())
            }
        }
    }

    /// Lets time pass without new faults or requests.
    pub(super) fn pass(&mut self, time: u64) -> Checked<()> {
        let until = self.now + time;
        while self.next_due() <= until {
            self.advance()?;
            self.run()?;
        }
        self.now = until;
        Ok(())
    }

    /// Nothing fails any more: the group comes to rest.
    pub(crate) fn settle(&mut self) -> Checked<()> {
        self.trace.line(format_args!("nothing fails any more"));
        self.heal();
        (self.latency, self.sync) = (self.latency.min(2_000), self.sync.min(5_000));
        for node in self.servers.keys().copied().collect::<Vec<_>>() {
            let server = self.server(node);
            (server.stopped_until, server.stalled_until, server.scarce_until) = (0, 0, 0);
            server.disk.fail_after(u64::MAX / 2, Fault::Freeze);
            self.start(node)?;
        }
        let end = self.now + REST;
        let mut proof = None;
        loop {
            self.pass(200_000)?;
            let confirmed = self.history.newest_confirmed;
            if self.is_at_rest() {
                match proof {
                    None => {
                        let before = self.next_operation;
                        self.propose()?;
                        self.run()?;
                        // A leader that hands over refuses it.
                        proof = (self.next_operation > before).then_some(confirmed);
                    }
                    Some(before) if confirmed > before => return Ok(()),
                    Some(_) => {}
                }
            }
            hold!(self.now < end, "the group is not at rest after a minute: {}", self.standing());
        }
    }

    fn standing(&self) -> String {
        let standing = |(node, server): (&NodeId, &Server)| {
            let status = server.running.as_ref().map(|running| {
                let members: Vec<_> = running.node.members().iter().map(|m| (m.node, m.standing)).collect();
                format!("{:?} {members:?}", running.node.status())
            });
            format!("{node}: {status:?}")
        };
        self.servers.iter().map(standing).collect::<Vec<_>>().join("; ")
    }

    /// All members are voters and have everything.
    pub(super) fn is_at_rest(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let Some(running) = &self.servers[&leader].running else { return false };
        let (members, status) = (running.node.members(), running.node.status());
        let has_everything = |node: NodeId| {
            let running = self.servers.get(&node).and_then(|server| server.running.as_ref());
            running.is_some_and(|other| {
                other.applied == status.last
                    && other.data == running_data(self, leader)
                    && other.node.members() == members
            })
        };
        let mut all = members.iter();
        !members.is_joint()
            && all.all(|member| member.standing == Standing::Voter && has_everything(member.node))
    }
}

fn running_data<'w>(world: &'w World<'_>, node: NodeId) -> &'w [u64] {
    world.servers[&node].running.as_ref().map_or(&[], |running| running.data.as_slice())
}
