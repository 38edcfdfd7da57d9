//! The load: connections that keep a server busy and check everything that it answers.
//!
//! One thread serves all connections by an event loop. Every connection has a fixed number of *slots*, and every slot
//! has one request under way: it does rounds through the steps of the current [`Plan`], such as put, take, acknowledge,
//! and sends each request after the answer to the one before. The requests that the slots of a connection have
//! after one read leaves in one write.
//!
//! A request's time begins with the read that brought its slot the answer before, and ends with the read that brings
//! its answer. The load generator's own work on the other answers of a read is part of it.
//!
//! A failed request, a task that the [`Account`] does not expect, or silence end the run with an error. There is no
//! retry, so a number that comes out is a number of flawless cycles.

mod connection;
mod course;
mod phase;
mod progress;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mio::{Events, Interest, Poll, Token};

pub(crate) use phase::{Bound, Outcome, Plan, Putting};

use crate::account::{Account, Payload};
use crate::protocol::Protocol;
use crate::wire::Wire;
use connection::Connection;
use phase::Phase;
use progress::Progress;

/// So long may a server say nothing while requests are under way.
const LONGEST_SILENCE: Duration = Duration::from_secs(180);

/// How many requests there are at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) connections: usize,
    /// Slots of each connection.
    pub(crate) depth: usize,
}

impl Shape {
    pub(crate) fn slots(self) -> usize {
        self.connections * self.depth
    }
}

/// Connections to a server, their account, and the loop that serves them.
#[derive(Debug)]
pub(crate) struct Load {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    account: Account,
    payload: Payload,
}

impl Load {
    /// Opens the connections; the queue must have been prepared.
    pub(crate) fn connect(
        protocol: &dyn Protocol,
        address: SocketAddr,
        shape: Shape,
        payload_size: usize,
    ) -> Result<Self> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(shape.connections);
        for index in 0..shape.connections {
            let mut wire = Wire::connect(address, protocol.tls())?;
            let dialogue = protocol.open(&mut wire, index, shape.depth)?;
            let mut wire = wire.into_nonblocking()?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(wire.socket(), Token(index), interest)?;
            connections.push(Connection::new(wire, dialogue, shape.depth, index * shape.depth));
        }
        let events = Events::with_capacity(shape.connections.max(64));
        let (account, payload) = (Account::default(), Payload::new(payload_size));
        Ok(Self { poll, events, connections, account, payload })
    }

    /// What became of the tasks so far.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Lets the slots do what `plan` says until its bound is reached and every slot has finished its round. Of the
    /// connections and their slots as many are used as `shape` has, and not more than there are.
    ///
    /// After [`Plan::Wake`] the connections still wait for tasks, so that nothing can follow.
    pub(crate) fn run(&mut self, plan: Plan, shape: Shape) -> Result<Outcome> {
        self.run_with(Progress::new(None), plan, shape)
    }

    /// The same. A terminal shows its progress under the name `what`.
    pub(crate) fn run_shown(&mut self, what: &str, plan: Plan, shape: Shape) -> Result<Outcome> {
        self.run_with(Progress::new(Some(what)), plan, shape)
    }

    fn run_with(&mut self, mut progress: Progress<'_>, plan: Plan, shape: Shape) -> Result<Outcome> {
        let taken_before = self.account.taken();
        let mut phase = Phase::new(plan, &mut self.account, &mut self.payload)?;
        let last = self.connections.len().min(shape.connections) - 1;
        for (index, connection) in self.connections[..=last].iter_mut().enumerate() {
            connection.begin(plan.role(index == last), shape.depth, &mut phase)?;
        }
        let mut last_sign_of_life = Instant::now();
        while phase.active() > 0 {
            match self.poll.poll(&mut self.events, Some(phase.patience())) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result.context("cannot wait for the server")?,
            }
            phase.look_at_clock();
            progress.show(&phase);
            if self.events.is_empty() {
                let silence = last_sign_of_life.elapsed();
                ensure!(
                    silence < LONGEST_SILENCE,
                    "the server owes answers to {} slots and has been silent for {silence:.0?}",
                    phase.active()
                );
                continue;
            }
            last_sign_of_life = Instant::now();
            for event in &self.events {
                let index = event.token().0;
                self.connections[index].serve(&mut phase).with_context(|| format!("connection {index}"))?;
            }
            if phase.take_turn_of_producer() {
                self.connections[last].begin_slot(0, &mut phase)?;
            }
        }
        let outcome = phase.finish();
        let expected = taken_before + if matches!(plan, Plan::Hold { .. }) { outcome.rounds } else { 0 };
        let taken = self.account.taken();
        ensure!(taken == expected, "{taken} tasks are taken at the end, {expected} should be");
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests;
