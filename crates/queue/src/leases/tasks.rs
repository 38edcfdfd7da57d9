//! Leased tasks: a take gives a lease, `touch` renews it, and a task whose lease has ended is ready again.

use super::{ENDED, Lease, Token, span};
use crate::account::Side;
use crate::driver::{Change, Event};
use crate::error::{Error, Result};
use crate::operation::{Decided, keep_name, not_found};
use crate::statistics::Operation;
use crate::task::{State, Task, TaskKey};
use crate::time::NEVER;
use crate::tube_call::TubeCall;
use crate::turn::{LeasesTurn, TubeTurn, Turn};
use crate::{Answer, Client};

impl LeasesTurn<'_> {
    /// Ends the leases that are due, at most `budget`. Returns how many.
    pub(crate) fn expire(&mut self, budget: usize) -> usize {
        let (mut count, now) = (0, self.turn.now);
        while count < budget && self.turn.common.owners.leases.due <= now {
            let limit = (budget - count).min(Turn::BATCH);
            let ended = self.turn.transact(|turn| {
                for ended in 0..limit {
                    match turn.common.owners.leases.first(turn.store)? {
                        Some((task, ends)) if ends <= now => turn.leases().end(task)?,
                        first => return Ok((ended, first.map_or(NEVER, |(_, ends)| ends))),
                    }
                }
                Ok((limit, 0))
            });
            match ended {
                Ok((ended, due)) => {
                    count += ended;
                    self.turn.common.owners.leases.due = due;
                }
                Err(error) => {
                    self.turn.common.log_failure("the end of leases", &error);
                    self.turn.common.owners.leases.due = now + Turn::RETRY;
                }
            }
        }
        count
    }

    /// Ends a lease. One of a tube that the process does not know (its type is not registered yet) is forgotten; the task is
    /// released with the start of the tube.
    fn end(&mut self, task: TaskKey) -> Result<()> {
        if let Some(index) = self.turn.tubes.by_id(task.0) {
            let mut tube = self.turn.tube(index)?;
            if tube.is_taken(task.1)? {
                tube.end_lease(task.1)?;
            }
        }
        self.turn.common.owners.leases.forget(self.turn.store, task)
    }
}

impl TubeCall<'_> {
    /// `touch(token, seconds)`
    pub(crate) fn renew(&mut self, token: Token, out: &mut Vec<u8>) -> Result<Answer> {
        let micros = self.call.arguments.present(1).and_then(span).ok_or(Error::LeaseSpan)?;
        self.transact(|tube| tube.renew(token, micros, out))?;
        Ok(Answer::one())
    }
}

impl TubeTurn<'_> {
    /// The id of the task that a token's lease owns.
    pub(crate) fn leased_task(&self, token: Token) -> Result<u64> {
        self.lease(token).map(|_| token.task.1)
    }

    fn lease(&self, token: Token) -> Result<Lease> {
        let stale = || Error::StaleLease(token.to_string());
        if token.task.0 != self.tube.id {
            return Err(stale());
        }
        let lease = self.common.owners.leases.of(self.store, token.task)?;
        // The timer may be behind.
        lease.filter(|lease| lease.token(token.task) == token && lease.ends > self.now).ok_or_else(stale)
    }

    /// Gives the task that a take has found to a new lease. Appends the task in extended form, with the token.
    pub(crate) fn take_leased(
        &mut self,
        id: u64,
        client: Client,
        micros: u64,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.common.owners.leases.prepare(self.store)?;
        let key = self.key(id);
        let Self { store, tube, common, now, .. } = self;
        let (layout, now) = (tube.kind.layout(), *now);
        let task = tube.task(store, id)?.ok_or(Error::NotTaken)?;
        let mut change = tube.driver.change(&task, Event::Take, now)?;
        let mut ends = now.saturating_add(micros);
        if layout.timed {
            ends = ends.min(task.times.death());
            change.next_event = Some(ends);
        }
        let decided = Decided::of(&task, change, Operation::Take, &mut common.assignments);
        keep_name(&mut common.name, &task);
        self.carry_out(&decided, None)?;
        let Self { store, common, .. } = self;
        common.attempts.count(store, key)?;
        let secret = (common.new_session_id.0)();
        let secret = secret.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let user = common.actor_name(store, client.connection, client.user);
        let leases = &mut common.owners.leases;
        let epoch = leases.next_epoch(store)?;
        let lease = Lease { epoch, secret, ends, taken_at: now, user };
        leases.write(store, key, &lease)?;
        self.write_leased(id, &lease, out)
    }

    /// Moves the end of a lease to `micros` from now, never to an earlier time: repeating a renewal is harmless.
    fn renew(&mut self, token: Token, micros: u64, out: &mut Vec<u8>) -> Result<()> {
        let mut lease = self.lease(token)?;
        let id = token.task.1;
        lease.ends = lease.ends.max(self.now.saturating_add(micros));
        let Self { store, tube, common, .. } = self;
        let layout = tube.kind.layout();
        let tuple = tube.tasks(store).get(id)?.ok_or_else(|| not_found(id))?;
        let task = Task::read(tuple, layout).ok_or(Error::NotTaken)?;
        if layout.timed {
            // As any touch, it lets the task live on.
            let created = task.times.created;
            let ttl = (lease.ends > task.times.death()).then(|| lease.ends.saturating_sub(created));
            let change = Change { next_event: Some(lease.ends), ttl, ..Change::to(State::Taken) };
            let decided = Decided::of(&task, change, Operation::Touch, &mut common.assignments);
            keep_name(&mut common.name, &task);
            self.carry_out(&decided, None)?;
        } else {
            let tuple = tuple.to_vec();
            let side = Side::read(&tuple, layout);
            let observed = tube.observed.then(|| tuple.clone());
            let operation = Some(Operation::Touch);
            self.account_rarely(id, (side, side), operation, observed)?;
        }
        self.common.owners.leases.write(self.store, token.task, &lease)?;
        self.write_leased(id, &lease, out)
    }

    /// The end of the time for which a task was taken: its ttr, or its lease.
    pub(crate) fn ttr_over(&mut self, id: u64) -> Result<bool> {
        if self.common.owners.leases.of(self.store, self.key(id))?.is_some() {
            return self.end_lease(id);
        }
        self.change(id, Event::TtrOver, None)
    }

    /// Makes a task ready whose lease has ended, and notes why its attempt has failed.
    fn end_lease(&mut self, id: u64) -> Result<bool> {
        self.note_failure(id, Some(ENDED))?;
        self.change(id, Event::TtrOver, None)
    }

    fn is_taken(&self, id: u64) -> Result<bool> {
        Ok(self.task(id)?.is_some_and(|task| task.state() == Some(State::Taken)))
    }
}
