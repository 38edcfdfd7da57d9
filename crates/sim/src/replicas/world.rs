//! A replica set, its clients and its operator.

mod operator;

use std::collections::HashMap;

use lycosa_instance::{Origin, Settings, Trust};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::log::WalMode;
use lycosa_journal::memory::{Fault, MemoryDisk};
use lycosa_journal::writer;
use lycosa_queue::QueueState;
use lycosa_store::{IteratorType, user};
use lycosa_tuple::value::Value;

use operator::Operator;

use super::ReplicaTotals;
use super::client::{Ask, Client, Connection, Ledger, State, TUBES};
use super::joining::{Joining, Progress};
use super::link::{Link, TIMEOUT};
use super::node::{Life, Node, Plan, disk_of, identity};
use crate::BEGINNING;
use crate::Trace;
use crate::agreement;
use crate::random::Random;
use crate::storage;
use crate::violation::{Checked, Violation, hold};

/// Rounds after which a world in which nothing goes wrong must be at rest.
const ROUNDS: usize = 4_000;

/// Time between two rounds, in microseconds.
const ROUND: u64 = 20_000;

/// The most by which a clock is wrong, in microseconds.
const WRONG: i64 = 1_800_000_000;

/// Draws the worlds with leases. The numbers that other draws get are as they were before there were leases, and none of the kept
/// worlds has any.
const LEASES: u64 = 760;

#[derive(Debug, Clone, Copy)]
enum Action {
    Calm,
    Client,
    Turn,
    Journal,
    Deliver,
    Connect,
    Advance,
    Operate,
    Switch,
    Crash,
    Cut,
    Swallow,
    Fault,
    Jump,
    Prune,
}

pub(crate) struct World<'a> {
    random: Random,
    trace: &'a mut Trace,
    pub(crate) step: u64,
    pub(crate) now: u64,
    plan: Plan,
    actions: Vec<(u32, Action)>,
    nodes: Vec<Node>,
    links: Vec<Link>,
    joins: Vec<Joining>,
    clients: Vec<Client>,
    ledger: Ledger,
    next_payload: u64,
    operator: Operator,
    /// Vclocks that some instance had, and the digest then.
    digests: HashMap<String, (usize, u128)>,
    pub(crate) totals: ReplicaTotals,
}

/// Whether clients of a world also take by leases.
pub(crate) fn has_leases(seed: u64) -> bool {
    Random::new(seed ^ LEASES).one_in(2)
}

fn plan(seed: u64, random: &mut Random) -> Plan {
    Plan {
        nodes: random.between(2, 3) as usize,
        session_ttr: if random.one_in(3) { 1.0 } else { 100_000.0 },
        instance: Settings {
            replicas_before_reply: 1,
            refuses_without_replicas: random.one_in(3),
            ..Settings::default()
        },
        writer: writer::Settings {
            mode: WalMode::Fsync,
            max_file_bytes: *random.pick(&[3_000, 20_000, 256 << 20]),
            compression_level: None,
            preallocated_bytes: 0,
        },
        window: *random.pick(&[200, 5_000, 1 << 20]),
        quorum: random.below(4) as usize,
        leases: has_leases(seed),
    }
}

fn actions(random: &mut Random) -> Vec<(u32, Action)> {
    let mut some = |low, high| random.between(low, high) as u32;
    vec![
        (some(5, 40), Action::Calm),
        (some(60, 200), Action::Client),
        (some(60, 200), Action::Turn),
        (some(60, 200), Action::Journal),
        (some(60, 200), Action::Deliver),
        (some(10, 30), Action::Connect),
        (some(10, 40), Action::Advance),
        (some(10, 40), Action::Operate),
        (some(2, 12), Action::Switch),
        (some(0, 4), Action::Crash),
        (some(0, 4), Action::Cut),
        (some(0, 3), Action::Swallow),
        (some(0, 2), Action::Fault),
        (some(0, 3), Action::Jump),
        (some(0, 3), Action::Prune),
    ]
}

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, trace: &'a mut Trace) -> Checked<Self> {
        let mut random = Random::new(seed);
        let plan = plan(seed, &mut random);
        let actions = actions(&mut random);
        trace.line(format_args!("{} instances, sessions for {} s", plan.nodes, plan.session_ttr));
        let store = storage::new_store().map_err(|error| Violation(error.to_string()))?;
        let mut first = Node::new(0, disk_of(&identity(0), &store, &Vclock::new(), plan.writer)?);
        // No replica exists yet that could confirm its changes.
        let mut alone = plan.clone();
        alone.instance.replicas_before_reply = 0;
        alone.quorum = 0;
        first.start(&alone, &mut random, BEGINNING)?;
        let mut nodes = vec![first];
        let joins = random.below(4) > 0;
        populate(&mut nodes[0], if joins { 1 } else { plan.nodes })?;
        for number in 1..plan.nodes {
            if joins {
                nodes.push(Node::empty(number, 0));
                continue;
            }
            let mut node = Node::new(number, MemoryDisk::new());
            copy(&mut node, &mut nodes[0], &plan, BEGINNING)?;
            node.start(&plan, &mut random, BEGINNING)?;
            nodes.push(node);
        }
        nodes[0].start(&plan, &mut random, BEGINNING)?;
        if let Some(life) = &mut nodes[0].life {
            if joins {
                // An orphan takes no new members.
                life.lower_quorum(BEGINNING);
            }
            life.instance.set_read_only(false, BEGINNING);
        }
        let ledger = Ledger { sessions_stay: plan.session_ttr > 1_000.0, ..Ledger::default() };
        let clients = (0..random.between(1, 5) as usize).map(Client::new).collect();
        Ok(Self {
            random,
            trace,
            step: 0,
            now: BEGINNING,
            plan,
            actions,
            nodes,
            links: Vec::new(),
            joins: Vec::new(),
            clients,
            ledger,
            next_payload: 0,
            operator: Operator::Content { master: 0 },
            digests: HashMap::new(),
            totals: ReplicaTotals::default(),
        })
    }

    /// Lets something happen.
    pub(crate) fn next(&mut self) -> Checked {
        self.step += 1;
        match self.random.weighted(&self.actions) {
            Action::Calm => {
                for _ in 0..self.random.between(1, 20) {
                    self.now += self.random.between(1, ROUND);
                    self.round(true)?;
                }
            }
            Action::Client => {
                let client = self.random.below(self.clients.len() as u64) as usize;
                self.client(client, true)?;
            }
            Action::Turn => {
                let node = self.any_node();
                self.turn(node)?;
            }
            Action::Journal => {
                let node = self.any_node();
                if let Some(life) = &mut self.nodes[node].life {
                    life.journal.step();
                }
            }
            Action::Deliver => {
                if !self.joins.is_empty() {
                    let join = self.random.below(self.joins.len() as u64) as usize;
                    let limit = *self.random.pick(&[1, 400, 10_000, 1 << 20]);
                    self.deliver_join(join, limit)?;
                }
                if !self.links.is_empty() {
                    let link = self.random.below(self.links.len() as u64) as usize;
                    let limit = *self.random.pick(&[1, 40, 1_000, 1 << 20]);
                    self.deliver(link, limit)?;
                }
            }
            Action::Connect => {
                let (replica, master) = (self.any_node(), self.any_node());
                self.connect(replica, master);
                self.begin_joins();
            }
            Action::Advance => self.now += self.random.between(1, 3 * TIMEOUT),
            Action::Operate => self.operate()?,
            Action::Switch => self.begin_switch(),
            Action::Crash => {
                let node = self.any_node();
                self.crash(node);
            }
            Action::Cut => self.cut(),
            Action::Swallow => self.swallow(),
            Action::Fault => {
                let node = self.any_node();
                self.nodes[node].spoil_disk(&mut self.random);
                self.totals.faults += 1;
            }
            Action::Jump => {
                let node = self.any_node();
                let by = self.random.below(2 * WRONG as u64) as i64 - WRONG;
                self.nodes[node].next_offset = by;
                self.trace.line(format_args!("{} the clock of {node} is wrong by {by} µs", self.step));
            }
            Action::Prune => self.prune()?,
        }
        self.links.retain(|link| link.is_followed() || link.is_served());
        self.joins.retain(|join| !join.is_over());
        if self.random.one_in(16) { self.compare() } else { Ok(()) }
    }

    /// From now on a connection loses bytes in one direction, or in both.
    fn swallow(&mut self) {
        if !self.links.is_empty() {
            let link = self.random.below(self.links.len() as u64) as usize;
            let (up, down) = (self.random.one_in(2), self.random.one_in(2));
            self.links[link].up.is_swallowing |= up || !down;
            self.links[link].down.is_swallowing |= down;
            self.totals.cuts += 1;
        }
    }

    /// An instance removes the journals that a start does not need: any one at any time, or the master, after a replica
    /// was away for a while.
    fn prune(&mut self) -> Checked {
        let mut node = self.any_node();
        if let Operator::Content { master } = self.operator
            && self.random.one_in(2)
        {
            node = master;
            self.crash((master + 1) % self.nodes.len());
            for _ in 0..self.random.between(10, 80) {
                self.now += self.random.between(1, ROUND);
                self.round(true)?;
            }
        }
        if self.nodes[node].prune()? {
            self.trace.line(format_args!("{} {node} removes journals", self.step));
            self.totals.prunes += 1;
        }
        Ok(())
    }

    fn any_node(&mut self) -> usize {
        self.random.below(self.nodes.len() as u64) as usize
    }

    /// A client connects, says who it is, and asks for something. Without `works` it only says who it is.
    fn client(&mut self, number: usize, works: bool) -> Checked {
        let client = &mut self.clients[number];
        if client.pending.is_some() {
            if works && self.random.one_in(40) {
                self.leave(number);
            }
            return Ok(());
        }
        let Some(connection) = &client.connection else {
            let node = match self.operator {
                Operator::Content { master } if !works || !self.random.one_in(10) => master,
                _ => self.any_node(),
            };
            let now = self.nodes[node].now(self.now);
            if let Some(life) = &mut self.nodes[node].life {
                let origin = Origin { peer: format!("client {number}"), trust: Trust::Admin };
                let slot = life.instance.connect(origin, now);
                let slot = slot.map_err(|error| Violation(error.to_string()))?;
                self.clients[number].connection = Some(Connection::new(node, slot));
            }
            return Ok(());
        };
        let (node, slot) = (connection.node, connection.slot);
        let is_elsewhere = !matches!(self.operator, Operator::Content { master } if master == node);
        if is_elsewhere && self.random.one_in(3) {
            self.leave(number);
            return Ok(());
        }
        let ask = if !connection.is_identified {
            Ask::Identify
        } else if works {
            let tube = self.random.below(TUBES.len() as u64) as usize;
            let held = self.clients[number].held.clone();
            let by_lease = self.plan.leases && self.random.one_in(2);
            match if by_lease { u64::MAX } else { self.random.below(8) } {
                u64::MAX => self.clients[number].about_leases(&mut self.random, tube, &self.ledger),
                0..3 => {
                    self.next_payload += 1;
                    Ask::Put { tube, payload: self.next_payload }
                }
                3..6 => Ask::Take { tube },
                6 if !held.is_empty() => Ask::Ack(*self.random.pick(&held)),
                7 if !held.is_empty() && self.random.one_in(2) => Ask::Release(*self.random.pick(&held)),
                _ => Ask::Take { tube },
            }
        } else {
            return Ok(());
        };
        let frame = self.clients[number].send(ask, &mut self.ledger);
        self.trace.line(format_args!("{} client {number} asks {node}: {ask:?}", self.step));
        self.note_time(node);
        let now = self.nodes[node].now(self.now);
        let Some(life) = &mut self.nodes[node].life else { return Ok(()) };
        // Without the prefix of its length.
        let content = &frame[5..];
        let taken = life.instance.handle_frame(slot, content, now);
        taken.map_err(|broken| Violation(format!("a request is malformed: {}", broken.error.message)))
    }

    fn leave(&mut self, number: usize) {
        let Some(connection) = &self.clients[number].connection else { return };
        let (node, slot) = (connection.node, connection.slot);
        let now = self.nodes[node].now(self.now);
        if let Some(life) = &mut self.nodes[node].life {
            life.instance.disconnect(slot, now);
        }
        self.clients[number].lose_connection();
    }

    /// Leases end by the clock of an instance that takes writes.
    fn note_time(&mut self, number: usize) {
        let node = &self.nodes[number];
        if node.life.as_ref().is_some_and(|life| !life.instance.standing().is_read_only) {
            self.ledger.latest = self.ledger.latest.max(node.now(self.now));
        }
    }

    /// A turn of an instance's loop.
    fn turn(&mut self, number: usize) -> Checked {
        self.note_time(number);
        let now = self.nodes[number].now(self.now);
        let Some(life) = &mut self.nodes[number].life else { return Ok(()) };
        life.turn(now)?;
        for line in life.lines.drain(..) {
            self.trace.line(format_args!("{} {number} logs: {line}", self.step));
        }
        for client in &mut self.clients {
            let Some(connection) = client.connection.as_ref().filter(|c| c.node == number) else { continue };
            let slot = connection.slot;
            let bytes = life.instance.output(slot).to_vec();
            life.instance.consume(slot, bytes.len());
            let is_master = matches!(self.operator, Operator::Content { master } if master == number);
            client.receive(&bytes, is_master, &mut self.ledger)?;
        }
        for place in 0..self.joins.len() {
            let join = &mut self.joins[place];
            if join.master == number && !join.serve_turn(&mut self.nodes[number], self.now)? {
                join.dismiss(&mut self.nodes[number], self.now);
            }
        }
        for place in 0..self.links.len() {
            let link = &mut self.links[place];
            if link.replica == number && !link.follow_turn(&mut self.nodes[number], self.now) {
                link.leave(&mut self.nodes[number]);
            }
            let link = &mut self.links[place];
            if link.master == number && !link.serve_turn(&mut self.nodes[number], self.now)? {
                link.dismiss(&mut self.nodes[number], self.now);
                if std::mem::take(&mut link.is_too_far) {
                    let replica = link.replica;
                    self.nodes[replica].behind.insert(number);
                }
            }
        }
        Ok(())
    }

    /// Bytes arrive at both ends of a connection.
    fn deliver(&mut self, place: usize, limit: usize) -> Checked {
        let link = &mut self.links[place];
        let (replica, master) = (link.replica, link.master);
        if link.is_followed()
            && !link.down.is_empty()
            && !link.deliver_down(&mut self.nodes[replica], self.now, limit)?
        {
            link.leave(&mut self.nodes[replica]);
        }
        if let Some(said) = link.parted.take() {
            self.trace.line(format_args!("{} {replica} does not follow {master}: {said}", self.step));
            self.nodes[replica].parted.insert(master, said);
        }
        if link.is_served()
            && !link.up.is_empty()
            && !link.deliver_up(&mut self.nodes[master], self.now, limit)?
        {
            link.dismiss(&mut self.nodes[master], self.now);
        }
        Ok(())
    }

    fn connect(&mut self, replica: usize, master: usize) {
        let is_there = |link: &Link| link.replica == replica && link.master == master && link.is_followed();
        if replica == master || self.nodes[replica].life.is_none() || self.links.iter().any(is_there) {
            return;
        }
        self.links.extend(Link::open(replica, &mut self.nodes[master], self.now));
    }

    /// An instance without data connects to the master, if it does not already.
    fn begin_joins(&mut self) {
        let Operator::Content { master } = self.operator else { return };
        for number in 0..self.nodes.len() {
            if self.nodes[number].is_empty && !self.joins.iter().any(|join| join.is_joined_by(number)) {
                self.joins.extend(Joining::open(number, &mut self.nodes[master], self.now));
            }
        }
    }

    /// Bytes arrive at both ends of a connection on which an instance joins.
    fn deliver_join(&mut self, place: usize, limit: usize) -> Checked {
        let join = &mut self.joins[place];
        let (number, master) = (join.replica, join.master);
        if !join.up.is_empty() && !join.deliver_up(&mut self.nodes[master], self.now, limit)? {
            join.dismiss(&mut self.nodes[master], self.now);
        }
        let join = &mut self.joins[place];
        if !join.is_joined_by(number) {
            return Ok(());
        }
        let uuid = self.nodes[number].identity.instance;
        match join.deliver_down(uuid, self.now, limit)? {
            Progress::More if join.is_silent(self.now) => join.leave(),
            Progress::More => {}
            Progress::Failed(cause) => {
                self.trace.line(format_args!("{} {number} cannot join {master}: {cause}", self.step));
                join.leave();
                self.totals.broken_joins += 1;
            }
            Progress::Done(store, vclock) => {
                let node = &mut self.nodes[number];
                let breaks = self.random.one_in(5);
                if breaks {
                    node.disk.fail_after(self.random.below(12), Fault::Freeze);
                }
                node.keep(&store, &vclock, self.plan.writer)?;
                if breaks {
                    self.totals.crashes += 1;
                    node.die();
                }
                node.is_empty = !node.has_snapshot()?;
                self.trace.line(format_args!(
                    "{} {number} has joined {master} at {vclock}{}",
                    self.step,
                    if node.is_empty { ", and dies before it is on the disk" } else { "" }
                ));
                if node.is_empty {
                    self.totals.broken_joins += 1;
                } else {
                    self.totals.joins += 1;
                    self.start(number)?;
                }
            }
        }
        Ok(())
    }

    /// The process that joins dies: nothing of what it got is on its disk.
    fn give_up_join(&mut self, number: usize) {
        for place in 0..self.joins.len() {
            let join = &mut self.joins[place];
            if !join.is_joined_by(number) {
                continue;
            }
            self.trace.line(format_args!("{} {number} dies while it joins {}", self.step, join.master));
            join.leave();
            if self.random.one_in(2) {
                let master = self.joins[place].master;
                self.joins[place].dismiss(&mut self.nodes[master], self.now);
            }
            self.totals.crashes += 1;
            self.totals.broken_joins += 1;
        }
    }

    /// A connection ends at one side, or at both.
    fn cut(&mut self) {
        if !self.joins.is_empty() && self.random.one_in(2) {
            let place = self.random.below(self.joins.len() as u64) as usize;
            let (how, join) = (self.random.below(3), &mut self.joins[place]);
            if how != 1 {
                join.leave();
            }
            if how != 2 {
                let master = join.master;
                join.dismiss(&mut self.nodes[master], self.now);
            }
            self.totals.cuts += 1;
            self.totals.broken_joins += 1;
            return;
        }
        if self.links.is_empty() {
            return;
        }
        let place = self.random.below(self.links.len() as u64) as usize;
        let how = self.random.below(3);
        let link = &mut self.links[place];
        let (replica, master) = (link.replica, link.master);
        self.trace.line(format_args!("{} {replica} and {master} lose their connection: {how}", self.step));
        if how != 1 {
            link.leave(&mut self.nodes[replica]);
        }
        if how != 2 {
            link.dismiss(&mut self.nodes[master], self.now);
        }
        self.totals.cuts += 1;
    }

    fn crash(&mut self, number: usize) {
        if self.nodes[number].life.is_none() {
            self.give_up_join(number);
            return;
        }
        self.trace.line(format_args!("{} {number} dies", self.step));
        self.totals.crashes += 1;
        self.nodes[number].die();
        for client in 0..self.clients.len() {
            if self.clients[client].connection.as_ref().is_some_and(|c| c.node == number) {
                self.clients[client].lose_connection();
            }
        }
        for place in 0..self.links.len() {
            let tells = self.random.one_in(2);
            let link = &mut self.links[place];
            if link.replica == number {
                link.leave(&mut self.nodes[number]);
                let master = link.master;
                if tells {
                    link.dismiss(&mut self.nodes[master], self.now);
                }
            } else if link.master == number {
                link.dismiss(&mut self.nodes[number], self.now);
                let replica = link.replica;
                if tells {
                    link.leave(&mut self.nodes[replica]);
                }
            }
        }
        for place in 0..self.joins.len() {
            let join = &mut self.joins[place];
            if join.master == number {
                join.dismiss(&mut self.nodes[number], self.now);
                if self.random.one_in(2) {
                    self.joins[place].leave();
                }
                self.totals.broken_joins += 1;
            }
        }
        let was_master = match &self.operator {
            Operator::Content { master } => *master == number,
            Operator::Waits { old, .. } => *old == number,
            Operator::Alarmed { .. } => false,
        };
        if was_master {
            self.operator = Operator::Alarmed { dead: number };
        }
    }

    /// Instances with equal vclocks have equal data.
    fn compare(&mut self) -> Checked {
        for node in &self.nodes {
            let Some(life) = node.life.as_ref().filter(|life| !life.has_failed) else { continue };
            // Rows that are not durable yet may be lost, and written differently.
            if life.instance.vclock() != life.instance.durable_vclock() {
                continue;
            }
            let clock = life.instance.vclock().replicated().to_string();
            let digest = life.instance.store().digest();
            let &mut (other, known) = self.digests.entry(clock.clone()).or_insert((node.number, digest));
            self.totals.comparisons += u64::from(other != node.number);
            hold!(known == digest, "{other} and {} have the vclock {clock} and different data", node.number);
        }
        Ok(())
    }

    /// Nothing goes wrong any more, and everything comes to rest. Then all instances are equal, and the data are what the
    /// clients know.
    pub(crate) fn settle(&mut self) -> Checked {
        self.trace.line(format_args!("{} everything comes to rest", self.step));
        for link in &mut self.links {
            if link.up.is_swallowing || link.down.is_swallowing {
                let (replica, master) = (link.replica, link.master);
                link.leave(&mut self.nodes[replica]);
                link.dismiss(&mut self.nodes[master], self.now);
            }
        }
        for join in &mut self.joins {
            let master = join.master;
            join.leave();
            join.dismiss(&mut self.nodes[master], self.now);
        }
        for node in &self.nodes {
            node.disk.fail_after(u64::MAX >> 4, Fault::Freeze);
        }
        for _ in 0..ROUNDS {
            self.step += 1;
            self.now += ROUND;
            self.operate()?;
            self.round(false)?;
            if let Some(master) = self.rests() {
                self.compare()?;
                return self.check(master);
            }
        }
        let state = |node: &Node| match &node.life {
            None => "dead".to_owned(),
            Some(life) => format!(
                "{} durable {} queue {} following {}",
                life.instance.vclock(),
                life.instance.durable_vclock(),
                life.instance.queue().state(),
                life.instance.replicas().following_count()
            ),
        };
        let states: Vec<_> = self.nodes.iter().map(state).collect();
        let pending: Vec<_> = self.clients.iter().filter_map(|client| client.pending).collect();
        let joins: Vec<_> = self.joins.iter().map(Joining::state).collect();
        Err(Violation(format!(
            "nothing comes to rest: {:?}, {states:?}, {joins:?}, {pending:?}",
            self.operator
        )))
    }

    /// Every node does all its steps. With `works`, clients send requests.
    fn round(&mut self, works: bool) -> Checked {
        self.links.retain(|link| link.is_followed() || link.is_served());
        self.joins.retain(|join| !join.is_over());
        for replica in 0..self.nodes.len() {
            (0..self.nodes.len()).for_each(|master| self.connect(replica, master));
        }
        self.begin_joins();
        for node in 0..self.nodes.len() {
            self.turn(node)?;
            let now = self.nodes[node].now(self.now);
            if let Some(life) = &mut self.nodes[node].life {
                life.sync(now)?;
            }
            self.turn(node)?;
        }
        for link in 0..self.links.len() {
            self.deliver(link, usize::MAX)?;
        }
        for join in 0..self.joins.len() {
            self.deliver_join(join, usize::MAX)?;
        }
        (0..self.clients.len()).try_for_each(|client| self.client(client, works))
    }

    /// The master, if nothing is under way any more.
    fn rests(&self) -> Option<usize> {
        let Operator::Content { master } = self.operator else { return None };
        let life = |number: usize| self.nodes[number].life.as_ref();
        let first: &Life = life(master)?;
        let clock = first.instance.vclock().replicated();
        let is_equal = |node: &Node| {
            let life = node.life.as_ref();
            life.is_some_and(|life| life.instance.durable_vclock().replicated() == clock)
        };
        let is_done = first.instance.queue().state() == QueueState::Running
            && self.nodes.iter().all(is_equal)
            && self.clients.iter().all(|client| {
                client.pending.is_none()
                    && client.connection.as_ref().is_some_and(|c| c.node == master && c.is_identified)
            });
        is_done.then_some(master)
    }

    /// The data of the master against what clients were told.
    fn check(&mut self, master: usize) -> Checked {
        let lives = self.nodes.iter().filter_map(|node| node.life.as_ref());
        lives.map(|life| &life.instance).try_for_each(agreement::counts_hold)?;
        let Some(life) = &self.nodes[master].life else { return Ok(()) };
        agreement::owners_hold(&life.instance)?;
        let store = life.instance.store();
        let mut found: HashMap<u64, bool> = HashMap::new();
        for (name, _) in TUBES {
            let space = store.space_by_name(name).map(lycosa_store::Space::id);
            let space = space.ok_or_else(|| Violation(format!("tube {name} is gone")))?;
            let mut look = |tuple: &[u8]| {
                let Ok(Value::Array(fields)) = Value::decode(tuple) else { return };
                let is_taken = fields.get(1).and_then(Value::as_str) == Some("t");
                found.extend(fields.last().and_then(Value::as_u64).map(|payload| (payload, is_taken)));
            };
            let all = IteratorType::All;
            let selected = store.select(user::ADMIN, space, 0, all, &[0x90], 0, u64::MAX, &mut look);
            selected.map_err(|error| Violation(error.to_string()))?;
        }
        for (payload, entry) in &self.ledger.entries {
            let task = found.get(payload);
            match entry.state {
                State::Stored => hold!(task.is_some(), "task {payload} was acknowledged and is lost"),
                State::Finished => hold!(task.is_none(), "task {payload} was finished and is there again"),
                State::Asked | State::Finishing => {}
            }
            if let Some(holder) = entry.holder.filter(|_| self.ledger.sessions_stay) {
                hold!(task == Some(&true), "task {payload} of client {holder} is not taken any more");
            }
            if let Some(lease) = entry.lease.filter(|lease| lease.ends > self.ledger.latest) {
                let may_have_ended = entry.state == State::Finishing;
                hold!(
                    task == Some(&true) || may_have_ended,
                    "task {payload} is not taken any more, by {lease:?}"
                );
            }
        }
        let Ledger { replies, finished, leases, .. } = self.ledger;
        (self.totals.replies, self.totals.finished) = (replies, finished);
        (self.totals.leases, self.totals.ended) = (leases.given, leases.ended);
        self.totals.stale = leases.stale;
        Ok(())
    }
}

/// The first instance makes the tubes, and registers further ones if they get copies of its data.
fn populate(node: &mut Node, members: usize) -> Checked {
    let Some(life) = &mut node.life else { return Ok(()) };
    life.instance.set_read_only(false, BEGINNING);
    life.turn(BEGINNING)?;
    for number in 1..members {
        let registered = life.instance.register_replica(identity(number).instance, BEGINNING);
        registered.map_err(|error| Violation(error.message.clone()))?;
    }
    let origin = Origin { peer: "operator".to_owned(), trust: Trust::Admin };
    let slot = life.instance.connect(origin, BEGINNING).map_err(|error| Violation(error.to_string()))?;
    for (name, kind) in TUBES {
        let args = Value::array([Value::str(name), Value::str(kind)]).encode();
        let mut frame = Vec::new();
        let body = lycosa_iproto::request::Body::Call { name: b"queue.create_tube", args: &args };
        lycosa_iproto::request::encode(&mut frame, 1, &body);
        let created = life.instance.handle_frame(slot, &frame[5..], BEGINNING);
        created.map_err(|broken| Violation(broken.error.message.clone()))?;
    }
    life.instance.disconnect(slot, BEGINNING);
    life.sync(BEGINNING)
}

/// A new instance gets everything that the first one has, before anything happens.
fn copy(node: &mut Node, first: &mut Node, plan: &Plan, world: u64) -> Checked {
    let now = first.now(world);
    let Some(life) = &mut first.life else { return Ok(()) };
    life.sync(now)?;
    let vclock = life.instance.durable_vclock().replicated();
    node.disk = disk_of(&node.identity, life.instance.store(), &vclock, plan.writer)?;
    Ok(())
}
