//! Worlds of two masters: both take writes, and each follows the other.
//!
//! Each master writes keys of its own, in transactions of a few rows. In most worlds both also insert keys that the other may
//! have inserted meanwhile, which are conflicts. With `replication_skip_conflict` such a row is left out. Without it the
//! replication of that direction stops until the operator lets it skip conflicts once. Machines die, connections are cut, bytes
//! come late and in pieces. Sometimes one master makes a tube, and the other puts tasks into it as soon as it has the rows.
//!
//! Checked when everything is at rest:
//! - Both have the same vclock: a row that was left out counts as received.
//! - Keys of one master are the same on both. The rows that its transactions have left out of a conflict exist.
//! - A contested key is on both, each with what one of the masters has inserted. Without contested keys the digests are equal.

use std::collections::BTreeMap;
use std::fmt;

use lycosa_instance::{Caller, Settings};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::log::WalMode;
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::writer;
use lycosa_store::{IteratorType, Statement, system, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use super::link::{Conflicts, Link, TIMEOUT};
use super::node::{Node, Plan, disk_of, identity};
use crate::BEGINNING;
use crate::Trace;
use crate::random::Random;
use crate::storage;
use crate::violation::{Checked, Violation, hold};

/// The space of all keys.
const SPACE: u32 = 600;
/// Keys from here on are contested.
const CONTESTED: u64 = 1_000_000;
/// Rounds after which everything must be at rest.
const ROUNDS: usize = 3_000;
const ROUND: u64 = 20_000;

/// What happened in a world of two masters, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MasterTotals {
    /// Transactions that were committed.
    pub transactions: u64,
    /// Transactions that stopped replication.
    pub stops: u64,
    /// Contested keys that differ in the end.
    pub skipped: u64,
    /// Tubes that one master made and the other used.
    pub tubes: u64,
    /// Machines that died.
    pub crashes: u64,
    /// Connections that were cut.
    pub cuts: u64,
}

impl MasterTotals {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            transactions: self.transactions + other.transactions,
            stops: self.stops + other.stops,
            skipped: self.skipped + other.skipped,
            tubes: self.tubes + other.tubes,
            crashes: self.crashes + other.crashes,
            cuts: self.cuts + other.cuts,
        }
    }
}

impl fmt::Display for MasterTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transactions, stops, skipped, tubes, crashes, cuts } = self;
        write!(
            f,
            "{transactions} transactions, {stops} stops over a conflict, {skipped} contested keys that differ, {tubes} tubes used \
             by the other master, {crashes} crashes, {cuts} connections cut"
        )
    }
}

pub(crate) struct Masters<'a> {
    random: Random,
    trace: &'a mut Trace,
    pub(crate) step: u64,
    pub(crate) now: u64,
    plan: Plan,
    nodes: Vec<Node>,
    links: Vec<Link>,
    skips: bool,
    contests: bool,
    /// Directions in which the operator lets conflicts be skipped.
    helped: [bool; 2],
    next_value: u64,
    pub(crate) totals: MasterTotals,
}

fn refused(error: impl fmt::Display) -> Violation {
    Violation(error.to_string())
}

fn array(values: impl IntoIterator<Item = Value>) -> Vec<u8> {
    Value::array(values).encode()
}

/// The first master makes the space of all keys.
fn populate(node: &mut Node) -> Checked {
    let Some(life) = &mut node.life else { return Ok(()) };
    life.instance.set_read_only(false, BEGINNING);
    life.turn(BEGINNING)?;
    let none = || Value::Map(Vec::new());
    let text = |text: &str| Value::str(text);
    let space = [
        Value::from(u64::from(SPACE)),
        Value::from(1_u64),
        text("keys"),
        text("memtx"),
        Value::from(0_u64),
        none(),
        Value::Array(Vec::new()),
    ];
    let parts = Value::array([Value::array([Value::from(0_u64), text("unsigned")])]);
    let unique = Value::map([("unique", Value::from(true))]);
    let index = [Value::from(u64::from(SPACE)), Value::from(0_u64), text("pk"), text("tree"), unique, parts];
    let mut out = Vec::new();
    for (space, tuple) in [(system::SPACE, array(space)), (system::INDEX, array(index))] {
        let insert = Statement::Insert { space, tuple: &tuple };
        life.instance.execute(user::ADMIN, &insert, &mut out).map_err(|error| refused(error.message))?;
    }
    let registered = life.instance.register_replica(identity(1).instance, BEGINNING);
    registered.map_err(|error| refused(error.message))?;
    life.sync(BEGINNING)
}

impl<'a> Masters<'a> {
    pub(crate) fn new(seed: u64, trace: &'a mut Trace) -> Checked<Self> {
        let mut random = Random::new(seed);
        let plan = Plan {
            nodes: 2,
            session_ttr: 100_000.0,
            instance: Settings::default(),
            writer: writer::Settings {
                mode: WalMode::Fsync,
                max_file_bytes: *random.pick(&[3_000, 20_000, 256 << 20]),
                compression_level: None,
                preallocated_bytes: 0,
            },
            window: *random.pick(&[200, 5_000, 1 << 20]),
            quorum: 0,
            leases: false,
        };
        let store = storage::new_store().map_err(refused)?;
        let mut first = Node::new(0, disk_of(&identity(0), &store, &Vclock::new(), plan.writer)?);
        first.start(&plan, &mut random, BEGINNING)?;
        populate(&mut first)?;
        let mut second = Node::new(1, MemoryDisk::new());
        if let Some(life) = &first.life {
            let vclock = life.instance.durable_vclock().replicated();
            second.disk = disk_of(&second.identity, life.instance.store(), &vclock, plan.writer)?;
        }
        let (skips, contests) = (random.one_in(2), !random.one_in(4));
        trace.line(format_args!("conflicts: {contests}, skipped: {skips}"));
        let mut world = Self {
            random,
            trace,
            step: 0,
            now: BEGINNING,
            plan,
            nodes: vec![first, second],
            links: Vec::new(),
            skips,
            contests,
            helped: [false; 2],
            next_value: 0,
            totals: MasterTotals::default(),
        };
        world.start(1)?;
        Ok(world)
    }

    /// Starts a process, which is a master.
    fn start(&mut self, number: usize) -> Checked {
        self.nodes[number].start(&self.plan, &mut self.random, self.now)?;
        let now = self.nodes[number].now(self.now);
        if let Some(life) = &mut self.nodes[number].life {
            life.instance.set_read_only(false, now);
        }
        Ok(())
    }

    /// Lets something happen.
    pub(crate) fn next(&mut self) -> Checked {
        self.step += 1;
        let node = self.random.below(2) as usize;
        match self.random.below(100) {
            0..30 => self.write(node)?,
            30..50 => self.turn(node)?,
            50..65 => {
                if let Some(life) = &mut self.nodes[node].life {
                    life.journal.step();
                }
            }
            65..85 => {
                if !self.links.is_empty() {
                    let link = self.random.below(self.links.len() as u64) as usize;
                    let limit = *self.random.pick(&[1, 40, 1_000, 1 << 20]);
                    self.deliver(link, limit)?;
                }
            }
            85..90 => self.connect(),
            90..95 => self.now += self.random.between(1, 2 * TIMEOUT),
            95 => self.crash(node)?,
            96 => self.cut(),
            97 => self.use_tube(node)?,
            _ => {
                for _ in 0..self.random.between(1, 10) {
                    self.round()?;
                }
            }
        }
        self.links.retain(|link| link.is_followed() || link.is_served());
        Ok(())
    }

    /// A transaction of some rows on one of the masters.
    fn write(&mut self, node: usize) -> Checked {
        let now = self.nodes[node].now(self.now);
        let Some(life) = &mut self.nodes[node].life else { return Ok(()) };
        life.instance.set_now(now);
        let begun = life.instance.begin(user::ADMIN);
        begun.map_err(|error| refused(error.message))?;
        for _ in 0..self.random.between(1, 3) {
            self.next_value += 1;
            let is_contested = self.contests && self.random.one_in(12);
            let key = if is_contested {
                // One for some steps, so that both want it at about the same time.
                CONTESTED + self.step / 30
            } else {
                self.random.below(40) * 2 + node as u64
            };
            let tuple = array([Value::from(key), Value::from(node as u64), Value::from(self.next_value)]);
            let key = array([Value::from(key)]);
            let statement = match self.random.below(3) {
                _ if is_contested => Statement::Insert { space: SPACE, tuple: &tuple },
                0 => Statement::Delete { space: SPACE, index: 0, key: &key },
                _ => Statement::Replace { space: SPACE, tuple: &tuple },
            };
            // A contested key may be taken here already.
            let _ = life.instance.execute(user::ADMIN, &statement, &mut Vec::new());
        }
        life.instance.commit().map_err(|error| refused(error.message))?;
        self.totals.transactions += 1;
        Ok(())
    }

    fn turn(&mut self, number: usize) -> Checked {
        let now = self.nodes[number].now(self.now);
        let Some(life) = &mut self.nodes[number].life else { return Ok(()) };
        life.turn(now)?;
        life.lines.clear();
        for place in 0..self.links.len() {
            let link = &mut self.links[place];
            if link.replica == number && !link.follow_turn(&mut self.nodes[number], self.now) {
                link.leave(&mut self.nodes[number]);
            }
            let link = &mut self.links[place];
            if link.master == number && !link.serve_turn(&mut self.nodes[number], self.now)? {
                link.dismiss(&mut self.nodes[number], self.now);
            }
        }
        Ok(())
    }

    fn deliver(&mut self, place: usize, limit: usize) -> Checked {
        let link = &mut self.links[place];
        let (replica, master) = (link.replica, link.master);
        if link.is_followed() && !link.down.is_empty() {
            let delivered = link.deliver_down(&mut self.nodes[replica], self.now, limit)?;
            if let Some(error) = link.stopped.take() {
                self.trace.line(format_args!("{} {replica} stops following {master}: {error}", self.step));
                hold!(self.contests && !self.skips && !self.helped[replica], "{error}");
                hold!(error.contains("Duplicate key"), "replication stops for another reason: {error}");
                self.totals.stops += 1;
                self.helped[replica] = true;
            }
            let link = &mut self.links[place];
            if !delivered {
                link.leave(&mut self.nodes[replica]);
            }
        }
        let link = &mut self.links[place];
        if link.is_served()
            && !link.up.is_empty()
            && !link.deliver_up(&mut self.nodes[master], self.now, limit)?
        {
            link.dismiss(&mut self.nodes[master], self.now);
        }
        Ok(())
    }

    /// Each follows the other.
    fn connect(&mut self) {
        for (replica, master) in [(0, 1), (1, 0)] {
            let is_there =
                |link: &Link| link.replica == replica && link.master == master && link.is_followed();
            if self.nodes[replica].life.is_none() || self.links.iter().any(is_there) {
                continue;
            }
            let conflicts =
                if self.skips || self.helped[replica] { Conflicts::AreSkipped } else { Conflicts::Stop };
            let mut opened = Link::open(replica, &mut self.nodes[master], self.now);
            opened.iter_mut().for_each(|link| link.conflicts = conflicts);
            self.links.extend(opened);
        }
    }

    fn crash(&mut self, number: usize) -> Checked {
        if self.nodes[number].life.is_some() {
            self.trace.line(format_args!("{} {number} dies", self.step));
            self.totals.crashes += 1;
            self.nodes[number].die();
            for link in &mut self.links {
                if link.replica == number {
                    link.leave(&mut self.nodes[number]);
                } else {
                    link.dismiss(&mut self.nodes[number], self.now);
                }
            }
        }
        self.start(number)
    }

    fn cut(&mut self) {
        if self.links.is_empty() {
            return;
        }
        let place = self.random.below(self.links.len() as u64) as usize;
        let how = self.random.below(3);
        let link = &mut self.links[place];
        let (replica, master) = (link.replica, link.master);
        if how != 1 {
            link.leave(&mut self.nodes[replica]);
        }
        if how != 2 {
            link.dismiss(&mut self.nodes[master], self.now);
        }
        self.totals.cuts += 1;
    }

    fn round(&mut self) -> Checked {
        self.now += ROUND;
        self.links.retain(|link| link.is_followed() || link.is_served());
        self.connect();
        for node in 0..2 {
            self.turn(node)?;
            let now = self.nodes[node].now(self.now);
            if let Some(life) = &mut self.nodes[node].life {
                life.sync(now)?;
            }
            self.turn(node)?;
        }
        (0..self.links.len()).try_for_each(|link| self.deliver(link, usize::MAX))
    }

    /// Lets both get everything. What the operator has helped over is behind them then.
    fn rest(&mut self) -> Checked {
        for _ in 0..ROUNDS {
            let clock = |node: &Node| {
                let life = node.life.as_ref()?;
                let clock = life.instance.vclock();
                (clock == life.instance.durable_vclock()).then(|| clock.replicated())
            };
            if let (Some(first), Some(second)) = (clock(&self.nodes[0]), clock(&self.nodes[1]))
                && first == second
            {
                if std::mem::take(&mut self.helped) != [false; 2] {
                    for link in &mut self.links {
                        let replica = link.replica;
                        link.leave(&mut self.nodes[replica]);
                    }
                }
                return Ok(());
            }
            self.round()?;
        }
        let clocks: Vec<_> = self.nodes.iter().map(|node| node.durable().map(|c| c.to_string())).collect();
        Err(Violation(format!("two masters never agree: {clocks:?}")))
    }

    /// A master makes a tube, or drops it; the other one uses it once it has the rows. Two masters that make a space at the same time
    /// would give it the same number, so this is done at rest.
    fn use_tube(&mut self, maker: usize) -> Checked {
        self.rest()?;
        let name = format!("tube{}", self.totals.tubes);
        let kind = *self.random.pick(&["fifo", "fifottl", "utube", "utubettl"]);
        self.call(maker, "queue.create_tube", [Value::str(&name), Value::str(kind)])?;
        self.rest()?;
        let other = 1 - maker;
        let put = self.call(other, &format!("queue.tube.{name}:put"), [Value::from(self.totals.tubes)])?;
        let is_ready = put.as_array().and_then(|task| task.get(1)) == Some(&Value::str("r"));
        hold!(is_ready, "a put into a tube of the other master answers {put:?}");
        self.rest()?;
        self.call(maker, &format!("queue.tube.{name}:delete"), [Value::from(0_u64)])?;
        if self.random.one_in(2) {
            self.call(maker, &format!("queue.tube.{name}:drop"), [])?;
            self.rest()?;
            let gone = self.call(other, &format!("queue.tube.{name}:put"), [Value::from(1_u64)]);
            hold!(gone.is_err(), "a tube that the other master has dropped takes a task: {gone:?}");
        }
        self.totals.tubes += 1;
        Ok(())
    }

    /// Calls a procedure on one of the masters; its first value.
    fn call<const N: usize>(&mut self, node: usize, name: &str, arguments: [Value; N]) -> Checked<Value> {
        let now = self.nodes[node].now(self.now);
        let Some(life) = &mut self.nodes[node].life else {
            return Err(Violation(format!("{node} is dead")));
        };
        life.instance.set_now(now);
        let mut out = Vec::new();
        let called = life.instance.call(&Caller::internal(), name.as_bytes(), &array(arguments), &mut out);
        let answer = called.map(|_| Value::read(&mut Reader::new(&out)).unwrap_or(Value::Nil));
        self.trace.line(format_args!("{} {name} on {node}: {answer:?}", self.step));
        life.sync(now)?;
        answer.map_err(|error| Violation(format!("{name} on {node}: {}", error.message)))
    }

    /// Everything comes to rest; then both hold what they should.
    pub(crate) fn settle(&mut self) -> Checked {
        self.rest()?;
        let (first, second) = (self.keys(0)?, self.keys(1)?);
        for (key, value) in &first {
            match second.get(key) {
                Some(other) if other == value => {}
                Some(other) => {
                    hold!(*key >= CONTESTED, "key {key} is {value:?} on 0 and {other:?} on 1");
                    self.totals.skipped += 1;
                }
                None => return Err(Violation(format!("key {key} is on 0 alone"))),
            }
        }
        hold!(first.len() == second.len(), "1 has keys that 0 does not have");
        if !self.contests {
            let digest = |node: &Node| node.life.as_ref().map(|life| life.instance.store().digest());
            hold!(digest(&self.nodes[0]) == digest(&self.nodes[1]), "equal vclocks and different data");
        }
        Ok(())
    }

    fn keys(&self, node: usize) -> Checked<BTreeMap<u64, Vec<u8>>> {
        let Some(life) = &self.nodes[node].life else { return Ok(BTreeMap::new()) };
        let mut found = BTreeMap::new();
        let mut look = |tuple: &[u8]| {
            let Ok(Value::Array(fields)) = Value::decode(tuple) else { return };
            found.extend(fields.first().and_then(Value::as_u64).map(|key| (key, tuple.to_vec())));
        };
        let (store, all) = (life.instance.store(), IteratorType::All);
        store.select(user::ADMIN, SPACE, 0, all, &[0x90], 0, u64::MAX, &mut look).map_err(refused)?;
        Ok(found)
    }
}
