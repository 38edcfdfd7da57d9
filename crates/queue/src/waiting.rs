//! Parked calls, and their answers.
//!
//! After each commit the queue serves the waiting calls of tubes that have a new ready task or free capacity: the call
//! that has waited longest gets the first task, until calls or tasks run out. A batch of puts that waits for capacity
//! holds up later puts, or it would wait for ever. A take that waits has a row in `_queue_consumers` for its readers
//! ([`crate::consumers`]); a put that waits for capacity has none.

use crate::command::Call;
use crate::error::{Error, Result};
use crate::repeat::TakeName;
use crate::right::claim::Claim;
use crate::right::{Right, check_execute};
use crate::tube::handle::TubeIndex;
use crate::turn::{Turn, WaitersTurn};
use crate::waiter::{Line, Waiter, Wanted};
use crate::{Answer, Caller, Client, Woken};

/// Refuses a call that would have to be parked and may not.
pub(crate) fn check_may_wait(caller: &Caller) -> Result<()> {
    if caller.may_wait { Ok(()) } else { Err(Error::MayNotWait) }
}

impl WaitersTurn<'_> {
    /// Puts a call at the end of its line. A take may have a name.
    pub(crate) fn park(
        &mut self,
        call: &Call<'_>,
        wanted: Wanted,
        name: Option<TakeName>,
        deadline: u64,
    ) -> Result<Answer> {
        let Call { index, caller, command, .. } = *call;
        let request = command.request;
        check_may_wait(caller)?;
        let (connection, since) = (caller.session, self.turn.now);
        let claim = Claim::of_call(call, self.turn.store);
        let waiter = Waiter { connection, claim, request, wanted, name, since, deadline };
        self.turn.common.waiters.push(index, waiter);
        self.bound_rows();
        Ok(Answer::Parked)
    }

    /// Serves the calls that wait in tubes in which something has changed. Outside a transaction.
    #[inline]
    pub(crate) fn serve(&mut self) {
        if !self.turn.common.ready.is_empty() && !self.turn.store.in_transaction() {
            self.serve_some(usize::MAX);
        }
    }

    /// Serves up to `limit` calls. Returns their number, and one for each tube without a call to serve.
    pub(crate) fn serve_some(&mut self, limit: usize) -> usize {
        let mut count = 0;
        while count < limit
            && let Some(index) = self.turn.common.ready.pop()
        {
            let is_running = self.turn.common.is_running();
            if is_running && (self.serve_first(index, Line::Puts) || self.serve_first(index, Line::Takes)) {
                self.turn.common.ready.push(index);
            }
            count += 1;
        }
        count
    }

    /// Serves the first call of a line. False if there is none, or nothing for it.
    fn serve_first(&mut self, index: TubeIndex, line: Line) -> bool {
        let Some((request, waiter)) = self.turn.common.waiters.first(index, line) else { return false };
        let (connection, wanted, name) = (waiter.connection, waiter.wanted.clone(), waiter.name);
        let client = Client { connection, user: waiter.claim.user };
        if !waiter.claim.is_current(self.turn.store) {
            let claim = waiter.claim;
            if let Err(error) = self.turn.check_claim(index, &claim) {
                self.wake(connection, request, Err(error));
                return true;
            }
        }
        let mut values = Vec::new();
        self.turn.common.take_name = name;
        let served = self.turn.transact_at(index, |tube| match &wanted {
            Wanted::Task(form) => tube.take(client, *form, &mut values),
            Wanted::Tasks { limit, form } => Ok(tube.take_many(client, (*limit, *form), &mut values)? > 0),
            Wanted::Capacity(arguments) => tube.put_waiting(arguments, &mut values),
            Wanted::CapacityForMany { tasks, arguments } => {
                tube.put_all_waiting((*tasks, arguments), &mut values)
            }
        });
        self.turn.common.take_name = None;
        if served != Ok(false) {
            self.wake(connection, request, served.map(|_| (1, values)));
            return true;
        }
        false
    }

    /// Answers at most `budget` calls whose time is over. Returns their number.
    pub(crate) fn time_out(&mut self, budget: usize) -> usize {
        let mut count = 0;
        while count < budget
            && let Some((connection, request)) = self.turn.common.waiters.due(self.turn.now)
        {
            count += 1;
            self.end(connection, request);
        }
        count
    }

    /// Takes a call out of its line unserved. Behind a batch there may be puts for which there is free space.
    fn give_up(&mut self, connection: u64, request: u64) -> Option<Waiter> {
        let (index, waiter) = self.turn.common.waiters.remove(connection, request)?;
        self.bound_rows();
        if matches!(waiter.wanted, Wanted::CapacityForMany { .. }) {
            self.turn.common.ready.push(index);
        }
        Some(waiter)
    }

    fn wake(&mut self, connection: u64, request: u64, result: Result<(u32, Vec<u8>)>) {
        if self.turn.common.waiters.remove(connection, request).is_some() {
            self.bound_rows();
            self.turn.common.woken.push_back(Woken { connection, request, result });
        }
    }

    /// Takes a parked call back. False if it does not wait.
    pub(crate) fn cancel(&mut self, connection: u64, request: u64) -> bool {
        if self.turn.long_calls().forget_searches(connection, Some(request)) {
            return true;
        }
        let is_waiting = self.give_up(connection, request).is_some();
        if is_waiting {
            self.serve();
        }
        is_waiting
    }

    /// The connection has ended: its calls wait no longer.
    pub(crate) fn forget(&mut self, connection: u64) {
        while let Some(request) = self.turn.common.waiters.of_connection(connection) {
            self.give_up(connection, request);
        }
        self.turn.long_calls().forget_searches(connection, None);
        self.turn.common.woken.retain(|woken| woken.connection != connection);
    }

    /// Answers the waiting calls of a tube with an error.
    pub(crate) fn dismiss(&mut self, index: TubeIndex, error: &Error) {
        let waiting = self.turn.common.waiters.of_tube(index);
        let waiting: Vec<_> = waiting.map(|(request, waiter)| (waiter.connection, request)).collect();
        for (connection, request) in waiting {
            self.wake(connection, request, Err(error.clone()));
        }
    }

    pub(crate) fn refuse_all(&mut self) {
        let tubes: Vec<_> = self.turn.tubes.indexes().collect();
        tubes.into_iter().for_each(|index| self.dismiss(index, &Error::ReadOnly));
    }

    /// Ends a waiting call as if its time were over.
    pub(crate) fn end(&mut self, connection: u64, request: u64) {
        let Some(waiter) = self.give_up(connection, request) else { return };
        let values = match waiter.wanted {
            Wanted::Task(_) => vec![],
            Wanted::Tasks { .. } => vec![0x90],
            Wanted::Capacity(_) | Wanted::CapacityForMany { .. } => vec![0xc0],
        };
        let result = Ok((u32::from(!values.is_empty()), values));
        self.turn.common.woken.push_back(Woken { connection, request, result });
    }
}

impl Turn<'_> {
    /// Refuses a call that waited, if its caller has lost the right to it. To be asked where [`Claim::is_current`] says no.
    #[cold]
    fn check_claim(&mut self, index: TubeIndex, claim: &Claim) -> Result<()> {
        let Claim { user, trusted, by_name, procedure, .. } = claim;
        let caller = &Caller { effective: *user, trusted: *trusted, ..Caller::internal() };
        let Some(method) = procedure.tube_method() else { return Ok(()) };
        let tube = self.tube(index)?;
        let right = if *by_name {
            let name = format!("queue.tube.{}:{}", tube.tube.name, method.name());
            check_execute(tube.store, caller, procedure, &name)?;
            Right::by_name(tube.store, caller.effective, procedure, &name)
        } else {
            Right::inside(tube.store, caller.effective, procedure)
        };
        let caller = Caller { trusted: right.makes_trusted(caller, procedure), ..*caller };
        tube.check_access(&caller, method, right.granted)
    }
}
