//! A group of instances, its clients and its operator, in a world where everything fails.

mod clients;
mod events;
mod orders;
mod relays;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use lycosa_engine::group::{
    ConnectionNumber, FEATURE_LEVEL, Hello, HelloError, Incoming, Order, Outgoing, StepError, transfer,
};
use lycosa_group::Limits;
use lycosa_group::members::{NodeId, Standing};
use lycosa_instance::{FreeSpace, Instance, Settings};
use lycosa_journal::log::WalMode;
use lycosa_journal::memory::{Crash, Fault};
use lycosa_journal::writer;
use lycosa_store::{IteratorType, Space, user};
use lycosa_tuple::value::Value;

use super::MemberTotals;
use super::client::{Ask, Client, Ledger, TEMPORARY, TUBES};
use super::server::{Core, GROUP, Plan, Running, Server};
use crate::group::link::{Link, Parcel};
use crate::random::Random;
use crate::violation::{Checked, Violation, hold};
use crate::{BEGINNING, Trace};
use orders::Orders;
use relays::Passage;

/// A group without faults is at rest within this time, in microseconds.
const REST: u64 = 60_000_000;
/// The most by which a time of day is wrong, in microseconds.
const WRONG: i64 = 1_800_000_000;

/// Draws the worlds with a temporary tube. The numbers that other draws get are as they were before, and none of the kept worlds has
/// one.
const TEMPORARY_TUBE: u64 = 63;

/// Draws the worlds with disks that are short of space, in the same way.
const SHORT_DISKS: u64 = 754;

/// Draws the worlds in which members open connections for clients, in the same way.
const FORWARDED: u64 = 271;

/// Draws the worlds in which members pass requests of their clients on, in the same way.
const RELAYED: u64 = 678;

/// What a disk that is short of space has left: tasks may be finished, and none added.
const SHORT: FreeSpace = FreeSpace::new(1 << 20, 2 << 20);

#[derive(Debug, Clone, Copy)]
enum Action {
    Advance,
    Client,
    Snapshot,
    Cut,
    Separate,
    Heal,
    Stop,
    Stall,
    Refuse,
    Kill,
    Crash,
    Start,
    Add,
    Remove,
    Transfer,
}

const ACTIONS: [(u32, Action); 15] = [
    (600, Action::Advance),
    (400, Action::Client),
    (5, Action::Snapshot),
    (6, Action::Cut),
    (5, Action::Separate),
    (24, Action::Heal),
    (5, Action::Stop),
    (4, Action::Stall),
    (2, Action::Refuse),
    (3, Action::Kill),
    (3, Action::Crash),
    (24, Action::Start),
    (4, Action::Add),
    (2, Action::Remove),
    (4, Action::Transfer),
];

pub(crate) struct World<'a> {
    random: Random,
    trace: &'a mut Trace,
    pub(crate) step: u64,
    pub(crate) now: u64,
    plan: Plan,
    servers: BTreeMap<NodeId, Server>,
    links: BTreeMap<(NodeId, NodeId), Link<Vec<u8>>>,
    clients: Vec<Client>,
    ledger: Ledger,
    /// Digests of the data that hold every entry up to an index, and nothing else.
    digests: BTreeMap<u64, (NodeId, u128)>,
    /// Terms that had a leader whose instance took writes.
    leaders: BTreeMap<u64, NodeId>,
    joined: BTreeSet<NodeId>,
    actions: Vec<(u32, Action)>,
    has_short_disks: bool,
    /// Whether members open connections for clients.
    are_forwarded: bool,
    /// Whether members pass requests of their clients on.
    are_relayed: bool,
    /// Clients of members that pass their requests on.
    relays: BTreeMap<usize, Passage>,
    /// Puts with a key, where the world has them.
    orders: Option<Orders>,
    /// A clock that never goes back.
    began: Instant,
    next_address: u64,
    /// Latency of a link and time of the disk at most, in microseconds.
    latency: u64,
    sync: u64,
    pub(crate) totals: MemberTotals,
}

fn violation(error: impl std::fmt::Display) -> Violation {
    Violation(error.to_string())
}

/// Whether a world has a temporary tube, if its members know such.
fn has_temporary_tube(seed: u64) -> bool {
    !Random::new(seed ^ TEMPORARY_TUBE).one_in(3)
}

/// Whether a disk that stalls may be short of space, too.
fn has_short_disks(seed: u64) -> bool {
    !Random::new(seed ^ SHORT_DISKS).one_in(3)
}

/// Whether members pass requests of their clients on.
fn are_relayed(seed: u64) -> bool {
    Random::new(seed ^ RELAYED).one_in(2)
}

/// Whether members open connections for clients.
fn are_forwarded(seed: u64) -> bool {
    Random::new(seed ^ FORWARDED).one_in(2)
}

fn plan(seed: u64, random: &mut Random) -> Plan {
    let threshold = *random.pick(&[4_000, 20_000, u64::MAX]);
    let session_ttr = if random.one_in(3) { 2.0 } else { 100_000.0 };
    let level = if random.one_in(2) { FEATURE_LEVEL } else { FEATURE_LEVEL - 1 };
    Plan {
        session_ttr,
        level,
        // Temporary tubes came with level 2.
        // What a request sees of a temporary tube depends on the node that handles the request, which a relay alone knows.
        temporary: level >= 2 && has_temporary_tube(seed) && !are_relayed(seed),
        settings: Settings {
            checkpoint_interval: 0,
            checkpoint_wal_threshold: threshold,
            checkpoint_count: 1,
            ..Settings::default()
        },
        log: writer::Settings {
            mode: WalMode::Fsync,
            max_file_bytes: *random.pick(&[6_000, 60_000]),
            compression_level: None,
            preallocated_bytes: 1 << 13,
        },
        limits: Limits {
            memory_bytes: 8_000,
            message_bytes: 4_000,
            messages_in_flight: 4,
            uncommitted_bytes: *random.pick(&[6_000, 100_000]),
        },
    }
}

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, trace: &'a mut Trace) -> Checked<Self> {
        let mut random = Random::new(seed);
        let plan = plan(seed, &mut random);
        let first = Server::first(&plan, BEGINNING)?;
        let mut ledger = Ledger::default();
        ledger.sessions_stay = plan.session_ttr > 1_000.0;
        ledger.tubes = if plan.temporary { TUBES.len() } else { TEMPORARY };
        let tubes = ledger.tubes;
        let latency = *random.pick(&[200, 2_000, 20_000]);
        let sync = *random.pick(&[100, 5_000, 60_000]);
        let (size, clients) = (random.between(2, 4), random.between(2, 5));
        // In calm worlds much is confirmed, in others hardly anything.
        let calm = *random.pick(&[1, 3, 10]);
        let mut world = Self {
            random,
            trace,
            step: 0,
            now: BEGINNING,
            plan,
            servers: BTreeMap::new(),
            links: BTreeMap::new(),
            clients: (0..clients as usize).map(Client::new).collect(),
            ledger,
            digests: BTreeMap::new(),
            leaders: BTreeMap::new(),
            joined: BTreeSet::new(),
            actions: ACTIONS.to_vec(),
            has_short_disks: has_short_disks(seed),
            are_forwarded: are_forwarded(seed),
            are_relayed: are_relayed(seed),
            relays: BTreeMap::new(),
            orders: Orders::new(seed),
            began: Instant::now(),
            next_address: 2,
            latency: 200,
            sync: 100,
            totals: MemberTotals::default(),
        };
        world.settle_in(first)?;
        world.pass(1_000_000)?;
        for tube in 0..tubes {
            world.connect(0, true)?;
            world.ask(0, Ask::Create { tube })?;
            world.pass(200_000)?;
        }
        (world.latency, world.sync) = (latency, sync);
        for _ in 0..size {
            world.operate_add()?;
            world.pass(4_000_000)?;
        }
        for (weight, action) in &mut world.actions {
            if matches!(action, Action::Advance | Action::Client) {
                *weight *= calm;
            }
        }
        Ok(world)
    }

    fn settle_in(&mut self, mut server: Server) -> Checked {
        server.offset = self.random.below(10_000_000_000);
        server.drift = self.random.below(3_000);
        if self.random.one_in(2) {
            server.wrong = self.random.below(2 * WRONG.unsigned_abs()).cast_signed() - WRONG;
        }
        // An older program, as long as the group may have one.
        if self.plan.level < FEATURE_LEVEL && !self.has_risen() && self.random.one_in(2) {
            server.knows = self.plan.level;
        }
        server.start(&self.plan, &mut self.random, self.now)?;
        let node = server.node;
        self.trace.line(format_args!("{node} begins, its clock is {} wrong", server.wrong));
        self.servers.insert(node, server);
        self.work(node)
    }

    /// One thing happens, and everything that follows from it at once.
    pub(crate) fn next(&mut self) -> Checked {
        self.step += 1;
        if self.orders.as_mut().is_some_and(Orders::is_next) {
            self.order()?;
        }
        let action = self.random.weighted(&self.actions);
        let all: Vec<NodeId> = self.servers.keys().copied().collect();
        let node = *self.random.pick(&all);
        let other = *self.random.pick(&all);
        match action {
            Action::Advance => self.advance(),
            Action::Client => self.client(),
            Action::Snapshot => self.snapshot(node),
            Action::Cut if node != other => self.cut(node, other),
            Action::Separate if node != other => {
                let isolates = self.random.one_in(2);
                let swallows = self.random.one_in(2);
                self.separate(node, (!isolates).then_some(other), swallows)
            }
            Action::Cut | Action::Separate => Ok(()),
            Action::Heal => self.heal(),
            Action::Stop => {
                self.totals.stops += 1;
                let until = self.now + self.random.between(50_000, 4_000_000);
                self.trace.line(format_args!("{node} stops"));
                self.server(node).stopped_until = until;
                Ok(())
            }
            Action::Stall => {
                let until = self.now + self.random.between(50_000, 7_000_000);
                // One in four such disks is short of space, one stalls too.
                let kind = if self.has_short_disks { until % 4 } else { 0 };
                if kind != 3 {
                    self.trace.line(format_args!("the disk of {node} stalls"));
                    self.server(node).stalled_until = until;
                }
                if kind >= 2 {
                    self.trace.line(format_args!("the disk of {node} is short of space"));
                    self.totals.shortages += 1;
                    self.server(node).scarce_until = until;
                }
                Ok(())
            }
            Action::Refuse => {
                let operations = self.random.below(6);
                self.trace.line(format_args!("the disk of {node} refuses something"));
                self.server(node).disk.fail_after(operations, Fault::Fail(std::io::ErrorKind::StorageFull));
                Ok(())
            }
            Action::Kill => self.end(node, Crash::Process),
            Action::Crash => self.crash(node),
            Action::Start => self.start(node),
            Action::Add => self.operate_add(),
            Action::Remove => self.operate_remove(node),
            Action::Transfer => self.operate_transfer(node),
        }
    }

    fn server(&mut self, node: NodeId) -> &mut Server {
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
            let disk = running.core.orders.front().map(|(due, _)| (*due).max(server.stalled_until));
            let next = disk.unwrap_or(u64::MAX).min(running.core.next_tick).min(running.next_turn);
            Some(next.max(server.stopped_until))
        });
        let next = links.chain(servers).min().unwrap_or(self.now + 25_000);
        next.max(self.now)
    }

    /// Time passes up to the next event, which happens.
    fn advance(&mut self) -> Checked {
        self.now = self.next_due();
        let now = self.now;
        let all: Vec<NodeId> = self.servers.keys().copied().collect();
        for &node in &all {
            let server = self.server(node);
            if !server.is_awake(now) {
                continue;
            }
            let mut has_work = server.stalled_until <= now && server.write(now);
            let (local, is_scarce) = (server.local(now), server.scarce_until > now);
            let mut due = None;
            if let Some(running) = &mut server.running {
                if running.core.next_tick <= now {
                    let Core { journal, peers, .. } = &mut running.core;
                    journal.set_scarce(is_scarce);
                    if let Some(body) = &mut running.body {
                        body.instance.handle_free_space(is_scarce.then_some(SHORT));
                    }
                    journal.raise_to_known(|node| peers.knows(node));
                    due = Some(journal.tick(local));
                }
                has_work |= running.next_turn <= now;
            }
            if let Some(due) = due {
                let next = server.global(due, now);
                if let Some(running) = &mut server.running {
                    running.core.next_tick = next;
                }
                has_work = true;
            }
            if has_work {
                self.work(node)?;
            }
        }
        let pairs: Vec<(NodeId, NodeId)> = self.links.keys().copied().collect();
        for pair in pairs {
            self.deliver(pair)?;
        }
        self.relay_some()
    }

    /// A process after an input: a turn, orders, messages, replies.
    fn work(&mut self, node: NodeId) -> Checked {
        let now = self.now;
        let server = self.server(node);
        if !server.is_awake(now) {
            return Ok(());
        }
        server.turn(now)?;
        let lines = server.body_mut().map(|body| std::mem::take(&mut body.lines)).unwrap_or_default();
        for line in lines {
            self.trace.line(format_args!("{node} says: {line}"));
        }
        self.take_orders(node)?;
        self.read_replies(node)?;
        self.answer_orders(node)?;
        self.check(node)
    }

    fn take_orders(&mut self, node: NodeId) -> Checked {
        let (now, sync) = (self.now, self.random.between(50, self.sync));
        let Some(running) = &mut self.server(node).running else { return Ok(()) };
        let Running { core, body, .. } = &mut **running;
        while let Some(order) = core.journal.poll_order() {
            if let (Order::Restore { .. }, Some(body)) = (&order, &body) {
                let store = body.instance.store();
                let left = store.spaces().filter(|space| !space.is_system()).map(Space::len).sum::<u64>();
                hold!(
                    left == 0 && !store.has_garbage(),
                    "{node} loads data beside {left} tuples of the former ones"
                );
            }
            core.orders.push_back((now + sync, order));
        }
        let notes: Vec<String> = std::iter::from_fn(|| core.journal.poll_note()).collect();
        let messages: Vec<Outgoing> = std::iter::from_fn(|| core.journal.poll_message()).collect();
        let has_first = running.body.is_none() && running.core.journal.has_snapshot();
        for note in notes {
            self.totals.hand_overs += u64::from(note.contains("this node hands the group over"));
            self.trace.line(format_args!("{node} notes: {note}"));
        }
        self.send(node, messages)?;
        if has_first {
            // The joiner has its first snapshot, and opens its folder with an instance.
            self.trace.line(format_args!("{node} has its first snapshot"));
            self.totals.joins += u64::from(self.joined.insert(node));
            self.end(node, Crash::Process)?;
            self.start(node)?;
        }
        Ok(())
    }

    /// Checks what holds of every process after each turn.
    fn check(&mut self, node: NodeId) -> Checked {
        let now = self.now;
        let Some(running) = &self.servers[&node].running else { return Ok(()) };
        // A server that joins has no instance yet.
        let failure =
            running.body.as_ref().map_or(running.core.journal.failure(), |body| body.failure.as_deref());
        if let Some(failure) = failure.map(str::to_owned) {
            // The process leaves its service, as the server would.
            self.trace.line(format_args!("{node} fails: {failure}"));
            hold!(
                !failure.contains("cannot be applied") && !failure.contains("contradicts"),
                "{node} leaves its service: {failure}"
            );
            self.totals.faults += 1;
            return self.end(node, Crash::Process);
        }
        let Some(body) = &running.body else { return Ok(()) };
        let journal = &running.core.journal;
        let status = journal.status();
        if journal.leads() {
            let term = status.node.term;
            if let Some(leader) = self.leaders.insert(term, node)
                && leader != node
            {
                return Err(violation(format!("{leader} and {node} lead in term {term}")));
            }
        }
        let instance = &body.instance;
        // A leader's data hold entries that its own disk does not have yet.
        let is_clean = !status.is_loading
            && status.in_flight == 0
            && status.held == status.node.committed
            && instance.vclock() == instance.durable_vclock()
            && !instance.is_suspended()
            && !instance.has_open_batch();
        // Digests cost a look at every tuple.
        if is_clean && (now / 1_000).is_multiple_of(7) {
            let digest = instance.digest();
            let (other, known) = *self.digests.entry(status.held).or_insert((node, digest));
            self.totals.comparisons += u64::from(other != node);
            hold!(known == digest, "{other} and {node} have other data at entry {}", status.held);
        }
        Ok(())
    }

    fn deliver(&mut self, pair: (NodeId, NodeId)) -> Checked {
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
            let core = &mut running.expect("it is awake").core;
            match parcel {
                Parcel::Hello(hello) => match core.peers.greet(hello) {
                    Ok(()) | Err(HelloError::Old { .. }) => {}
                    Err(error) => return Err(violation(error)),
                },
                Parcel::Message { .. } if !core.peers.is_newest(from, connection) => {}
                Parcel::Message { bytes, content } => {
                    self.trace.bytes(&bytes);
                    let incoming = Incoming::decode(&bytes).map_err(violation)?;
                    let received = match (incoming.base(), content) {
                        (Some(base), Some(content)) => receive(core.disk.directory(), base, &content),
                        _ => Ok(()),
                    };
                    if let Err(error) = received {
                        self.trace.line(format_args!("{to} cannot receive a snapshot: {error}"));
                        self.totals.lost_snapshots += 1;
                        self.cut(from, to)?;
                        continue;
                    }
                    match core.journal.receive(incoming) {
                        Ok(()) => {}
                        // A program that is too old for the group leaves its service.
                        Err(StepError::NoSpace | StepError::Level { .. }) => self.cut(from, to)?,
                        Err(error) => return Err(violation(format!("{to} from {from}: {error}"))),
                    }
                    self.work(to)?;
                }
            }
        }
    }

    fn send(&mut self, from: NodeId, messages: Vec<Outgoing>) -> Checked {
        for Outgoing { to, bytes, base } in messages {
            let latency = self.random.between(50, self.latency);
            let (now, knows) = (self.now, self.servers[&from].knows);
            let is_reachable = self.servers.get(&to).is_some_and(|server| server.running.is_some());
            let link = self.links.entry((from, to)).or_default();
            if link.open.is_none() {
                if link.is_blocked || !is_reachable {
                    self.tell_lost(from, to)?;
                    continue;
                }
                let running = self.servers.get_mut(&from).and_then(|server| server.running.as_mut());
                let core = &mut running.expect("it sends").core;
                core.connections += 1;
                let connection =
                    ConnectionNumber { incarnation: core.disk.incarnation(), number: core.connections };
                link.open = Some(connection);
                let hello = Hello { group: GROUP, from, to, connection, knows };
                link.send(now + latency, Parcel::Hello(hello));
            }
            let content = match &base {
                None => None,
                Some(base) => {
                    let running = self.servers[&from].running.as_ref().expect("it sends");
                    match read(running.core.disk.directory(), base) {
                        Ok(content) => {
                            self.totals.sent_snapshots += 1;
                            Some(content)
                        }
                        Err(_) => {
                            // The file was removed meanwhile: the sender ends the link.
                            self.cut(from, to)?;
                            continue;
                        }
                    }
                }
            };
            let delay = if content.is_some() { 20 * latency } else { latency };
            let link = self.links.entry((from, to)).or_default();
            link.send(now + delay, Parcel::Message { bytes, content });
        }
        Ok(())
    }

    fn tell_lost(&mut self, from: NodeId, to: NodeId) -> Checked {
        if let Some(running) = self.servers.get_mut(&from).and_then(|server| server.running.as_mut()) {
            running.core.journal.link_lost(to);
        }
        Ok(())
    }

    fn leader(&self) -> Option<NodeId> {
        let leading = self.servers.values().filter(|server| server.leads() && server.is_awake(self.now));
        let term =
            |server: &&Server| server.running.as_ref().map(|running| running.core.journal.status().node.term);
        leading.max_by_key(term).map(|server| server.node)
    }

    /// Whether some server's program has heard that the group has risen.
    fn has_risen(&self) -> bool {
        let levels = self
            .servers
            .values()
            .filter_map(|server| Some(server.running.as_ref()?.core.journal.status().node.level));
        levels.max().is_some_and(|level| level == FEATURE_LEVEL)
    }

    /// Lets time pass without new faults or requests.
    fn pass(&mut self, time: u64) -> Checked {
        let until = self.now + time;
        while self.next_due() <= until {
            self.advance()?;
        }
        self.now = until;
        Ok(())
    }

    /// Nothing fails any more: the group comes to rest with everything that was acknowledged.
    pub(crate) fn settle(&mut self) -> Checked {
        self.trace.line(format_args!("nothing fails any more"));
        self.heal()?;
        (self.latency, self.sync) = (self.latency.min(2_000), self.sync.min(5_000));
        for node in self.servers.keys().copied().collect::<Vec<_>>() {
            let server = self.server(node);
            (server.stopped_until, server.stalled_until, server.scarce_until) = (0, 0, 0);
            let is_old = std::mem::replace(&mut server.knows, FEATURE_LEVEL) < FEATURE_LEVEL;
            if is_old {
                self.end(node, Crash::Process)?;
            }
            let server = self.server(node);
            server.disk.fail_after(u64::MAX / 2, Fault::Freeze);
            self.start(node)?;
        }
        for number in 0..self.clients.len() {
            self.disconnect(number)?;
        }
        let end = self.now + REST;
        let mut has_put = false;
        loop {
            self.pass(200_000)?;
            if self.leader().is_some() {
                let before = self.ledger.puts;
                for number in 0..self.clients.len() {
                    // A request that the group has to confirm, and the takes whose answers were lost.
                    if (number == 0 && !has_put) || self.clients[number].has_lost_take() {
                        self.insist(number)?;
                    }
                }
                self.finish_orders()?;
                self.pass(200_000)?;
                has_put |= self.ledger.puts > before;
            }
            let has_lost = self.clients.iter().any(Client::has_lost_take);
            if has_put && !has_lost && self.orders.as_ref().is_none_or(Orders::are_done) && self.is_at_rest()
            {
                break;
            }
            hold!(self.now < end, "the group is not at rest after a minute: {}", self.standing());
        }
        self.check_data()?;
        for server in self.servers.values() {
            if let Some(body) = server.body() {
                self.totals.snapshots += body.snapshots_taken;
                self.totals.loads += body.restored;
            }
        }
        let Ledger { puts, brief, finished, peeks, unknown, refused, replies, forwarded, .. } = self.ledger;
        (self.totals.brief, self.totals.forwarded) = (brief, forwarded);
        self.totals.elections = self.leaders.len() as u64;
        (self.totals.puts, self.totals.finished, self.totals.peeks) = (puts, finished, peeks);
        (self.totals.unknown, self.totals.refused, self.totals.replies) = (unknown, refused, replies);
        Ok(())
    }

    fn standing(&self) -> String {
        let standing = |(node, server): (&NodeId, &Server)| {
            let status = server.running.as_ref().map(|running| running.core.journal.status());
            let failure = server.body().and_then(|body| body.failure.clone());
            format!("{node}: {failure:?} {status:?}")
        };
        self.servers.iter().map(standing).collect::<Vec<_>>().join("; ")
    }

    /// All members are voters and have everything.
    fn is_at_rest(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let Some(running) = &self.servers[&leader].running else { return false };
        let (journal, status) = (&running.core.journal, running.core.journal.status());
        let digest = running.body.as_ref().map(|body| body.instance.digest());
        let has_everything = |node: NodeId| {
            let running = self.servers.get(&node).and_then(|server| server.running.as_ref());
            running.is_some_and(|other| {
                let status = other.core.journal.status();
                let instance = other.body.as_ref().map(|body| &body.instance);
                status.held == journal.held()
                    && !status.is_loading
                    && instance.is_some_and(|instance| !instance.is_rebuilding())
                    && instance.map(Instance::digest) == digest
                    && other.core.journal.members() == journal.members()
            })
        };
        let mut all = status.members.iter();
        status.held == status.node.last
            && status.node.level == FEATURE_LEVEL
            && status.in_flight == 0
            && !status.members.is_joint()
            && all.all(|member| member.standing == Standing::Voter && has_everything(member.node))
    }

    /// Compares the tasks that the leader has with what clients know.
    fn check_data(&mut self) -> Checked {
        let Some(leader) = self.leader() else { return Err(violation("nobody leads")) };
        let Some(body) = self.servers[&leader].body() else {
            return Err(violation("the leader has no data"));
        };
        let (mut stored, mut taken) = (BTreeMap::new(), BTreeSet::new());
        for (name, _) in &TUBES[..self.ledger.tubes] {
            let found = body.instance.store().space_by_name(name);
            let space = found.ok_or_else(|| violation(format!("tube {name} is lost")))?.id();
            let mut look = |tuple: &[u8]| {
                if let Ok(Value::Array(fields)) = Value::decode(tuple)
                    && let Some(payload) = fields.last().and_then(Value::as_u64)
                {
                    *stored.entry(payload).or_insert(0) += 1;
                    if fields.get(1).and_then(Value::as_str) == Some("t") {
                        taken.insert(payload);
                    }
                }
            };
            let store = body.instance.store();
            store
                .select(user::ADMIN, space, 0, IteratorType::All, &[0x90], 0, u64::MAX, &mut look)
                .map_err(violation)?;
        }
        self.ledger.check(&stored, &taken, self.servers[&leader].reign())
    }
}

fn receive(
    directory: &lycosa_journal::directory::Directory,
    base: &lycosa_group::base::Base,
    content: &[u8],
) -> std::io::Result<()> {
    let mut receiver = transfer::Receiver::begin(directory, base, content.len() as u64)?;
    content.chunks(1_000).try_for_each(|piece| receiver.add(piece))?;
    receiver.finish()
}

fn read(
    directory: &lycosa_journal::directory::Directory,
    base: &lycosa_group::base::Base,
) -> std::io::Result<Vec<u8>> {
    let mut sender = transfer::Sender::open(directory, base)?;
    let mut content = Vec::new();
    while sender.read(&mut content, 1_000)? > 0 {}
    Ok(content)
}
