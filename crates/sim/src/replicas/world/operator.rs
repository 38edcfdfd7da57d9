//! The operator, who changes the master and brings dead instances back, as `docs/replication.md` tells.

use lycosa_iproto::vclock::Vclock;

use super::World;
use crate::replicas::client::{Ask, Client};
use crate::replicas::node::{Life, Node};
use crate::violation::{Checked, Violation, hold};

/// What the operator is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operator {
    /// There is a master, or one is coming up.
    Content { master: usize },
    /// The old master takes no writes; the new one must have everything up to the clock first.
    Waits { old: usize, new: usize, clock: Box<Vclock> },
    /// The master has died.
    Alarmed { dead: usize },
}

impl World<'_> {
    pub(super) fn begin_switch(&mut self) {
        let Operator::Content { master: old } = self.operator else { return };
        let new = self.any_node();
        let now = self.nodes[old].now(self.now);
        let Some(life) = self.nodes[old].life.as_mut().filter(|_| new != old) else { return };
        if life.instance.demote(now).is_err() {
            // Its journal has failed.
            return;
        }
        let clock = life.instance.vclock().replicated();
        self.trace.line(format_args!("{} {old} is demoted at {clock}; {new} comes next", self.step));
        self.operator = Operator::Waits { old, new, clock: Box::new(clock) };
    }

    /// A replica that the master's journals do not reach joins again, if it may: no client writes there, the master takes
    /// writes and has everything that it has, and no other one that lives brings rows that it lacks.
    fn rejoin(&mut self, master: usize) -> Checked {
        for number in 0..self.nodes.len() {
            let Some(life) = &self.nodes[number].life else { continue };
            if number == master || life.has_failed {
                continue;
            }
            let own = life.instance.vclock().replicated();
            let behind = &self.nodes[number].behind;
            let lives = |other: &Node| other.number != number && other.life.is_some();
            let brings_more = |other: &Node| {
                let theirs = other.durable().unwrap_or_default();
                !behind.contains(&other.number) && theirs.iter().any(|(id, lsn)| lsn > own.get(id))
            };
            let is_lost = behind.contains(&master)
                && self.nodes.iter().all(|other| !lives(other) || !brings_more(other));
            let known = self.nodes[master].durable().unwrap_or_default();
            let has_all = own.iter().all(|(id, lsn)| lsn <= known.get(id));
            if !life.instance.standing().is_read_only || !has_all || !is_lost {
                continue;
            }
            self.trace
                .line(format_args!("{} {number} is too far behind {master} and joins again", self.step));
            self.crash(number);
            self.nodes[number] = Node::empty(number, self.nodes[number].next_offset);
            self.totals.returns += 1;
        }
        Ok(())
    }

    /// An instance whose history is not the master's joins again, as its log says.
    fn replace_parted(&mut self, master: usize) {
        for number in 0..self.nodes.len() {
            if number != master && self.nodes[number].life.is_some() && self.has_parted(number, master) {
                self.trace.line(format_args!("{} {number} has another history and joins again", self.step));
                self.crash(number);
                self.nodes[number] = Node::empty(number, self.nodes[number].next_offset);
                self.nodes.iter_mut().for_each(|node| _ = node.parted.remove(&number));
                self.totals.rejoins += 1;
            }
        }
    }

    fn has_parted(&self, one: usize, other: usize) -> bool {
        self.nodes[one].parted.contains_key(&other) || self.nodes[other].parted.contains_key(&one)
    }

    /// The operator does the next thing: a dead instance is started, a change of the master goes on.
    pub(super) fn operate(&mut self) -> Checked {
        for number in 0..self.nodes.len() {
            if self.nodes[number].life.as_ref().is_some_and(|life| life.has_failed) {
                self.crash(number);
            }
        }
        match self.operator.clone() {
            Operator::Content { master } => {
                let now = self.nodes[master].now(self.now);
                let has_to_join = self.nodes.iter().any(|node| node.is_empty);
                if let Some(life) = self.nodes[master].life.as_mut().filter(|_| has_to_join) {
                    // It may wait for the one that has no data, which cannot join an instance that takes no writes.
                    life.lower_quorum(now);
                }
                let is_fenced = |life: &mut Life| !life.instance.is_orphan() && life.instance.is_fenced();
                if self.nodes[master].life.as_mut().is_some_and(is_fenced) {
                    // It has lost the row of its term, and hears of a later one than it knew.
                    self.promote(master)?;
                }
                self.replace_parted(master);
                self.rejoin(master)?;
                self.revive(Some(master))
            }
            Operator::Waits { old, new, clock } => {
                let reached = self.nodes[new].durable();
                let has_all = reached.is_some_and(|own| clock.iter().all(|(id, lsn)| own.get(id) >= lsn));
                if has_all {
                    self.totals.switches += 1;
                    return self.promote(new);
                }
                if self.nodes[new].behind.contains(&old)
                    || self.nodes[new].is_empty
                    || self.has_parted(new, old)
                {
                    // Journals that it needs were removed, and a read-only instance lets no other one join: the change is taken back.
                    self.trace.line(format_args!("{} {new} cannot get what it lacks", self.step));
                    self.totals.taken_back += 1;
                    return self.promote(old);
                }
                self.revive(Some(old))
            }
            Operator::Alarmed { dead } => self.replace(dead),
        }
    }

    fn promote(&mut self, number: usize) -> Checked {
        let now = self.nodes[number].now(self.now);
        self.trace.line(format_args!("{} {number} is promoted", self.step));
        if let Some(life) = &mut self.nodes[number].life {
            life.instance.promote(now).map_err(|error| Violation(error.message))?;
        }
        self.operator = Operator::Content { master: number };
        // A session that owned nothing may have ended under another master, so clients say again who they are.
        for client in 0..self.clients.len() {
            let Client { connection, pending, .. } = &mut self.clients[client];
            let Some(connection) = connection.as_mut().filter(|connection| connection.node == number) else {
                continue;
            };
            connection.is_identified = false;
            if *pending == Some(Ask::Identify) {
                self.leave(client);
            }
        }
        Ok(())
    }

    /// Starts dead instances as replicas. One that has rows which the master lacks joins again.
    fn revive(&mut self, master: Option<usize>) -> Checked {
        for number in 0..self.nodes.len() {
            if self.nodes[number].life.is_some() || self.nodes[number].is_empty || !self.random.one_in(2) {
                continue;
            }
            let Some(known) = master.and_then(|master| self.nodes[master].life.as_ref()) else { continue };
            let known = known.instance.vclock().clone();
            self.start(number)?;
            let own = self.nodes[number].durable().unwrap_or_default();
            if self.nodes[number].must_join && own.iter().any(|(id, lsn)| lsn > known.get(id)) {
                self.trace.line(format_args!(
                    "{} {number} has {own}, the master {known}: it joins again",
                    self.step
                ));
                self.nodes[number] = Node::empty(number, self.nodes[number].next_offset);
                self.totals.rejoins += 1;
            }
            self.nodes[number].must_join = false;
        }
        Ok(())
    }

    pub(super) fn start(&mut self, number: usize) -> Checked {
        self.trace.line(format_args!("{} {number} is started", self.step));
        self.nodes[number].start(&self.plan, &mut self.random, self.now)
    }

    /// The master has died: it is started again, or the replica with the greatest vclock takes its place.
    fn replace(&mut self, dead: usize) -> Checked {
        let others: Vec<_> = (0..self.nodes.len()).filter(|number| *number != dead).collect();
        let is_there = |node: &Node| node.life.is_some() && !node.must_join;
        // A replica with void rows has to join again, as its log says, and is no candidate.
        let may_choose =
            others.iter().all(|&number| is_there(&self.nodes[number]) && !self.has_parted(number, dead));
        if !may_choose || self.random.one_in(2) {
            self.start(dead)?;
            return self.promote(dead);
        }
        // Nothing of the dead one arrives any more.
        for place in 0..self.links.len() {
            let link = &mut self.links[place];
            if link.master == dead {
                let replica = link.replica;
                link.leave(&mut self.nodes[replica]);
            }
        }
        let clock = |number: usize| self.nodes[number].durable().unwrap_or_default();
        let best = others.iter().copied().max_by_key(|&number| clock(number).signature());
        let best = best.ok_or_else(|| Violation("nobody is left".to_owned()))?;
        let greatest = clock(best);
        for &other in &others {
            let own = clock(other);
            hold!(
                own.iter().all(|(id, lsn)| lsn <= greatest.get(id)),
                "{other} is at {own} and {best} at {greatest}: neither has everything"
            );
        }
        // Rows that only the dead one has will be written differently.
        self.digests.clear();
        self.nodes[dead].must_join = true;
        self.totals.failovers += 1;
        self.promote(best)
    }
}
