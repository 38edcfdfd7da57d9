//! Parking calls, and answering them when what they wait for is there.
//!
//! After each commit the tubes in which something became takeable, or in which room was made, are looked through:
//! who waited longest gets the first task, and so on until one of the two runs out. A batch of puts that waits for room
//! holds up the puts behind it, or it would wait for ever. A call that waits for tasks has a row in `_queue_consumers`;
//! puts that wait for room have not.

use lycosa_store::{Statement, Store, user};
use lycosa_tuple::mp;

use crate::error::Error;
use crate::procedure::Call;
use crate::task::ShortKey;
use crate::tube::SlotIndex;
use crate::waiter::{Line, Waiter, Wanted};
use crate::{Answer, Caller, Client, Queue, Woken};

/// Refuses a call that would have to be parked and may not.
pub(crate) fn check_may_wait(caller: &Caller) -> Result<(), Error> {
    if caller.may_wait { Ok(()) } else { Err(Error::MayNotWait) }
}

impl Queue {
    pub(crate) fn park(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        wanted: Wanted,
        deadline: u64,
    ) -> Result<Answer, Error> {
        let Call { index, now, caller, .. } = *call;
        let Caller { connection, user, request, .. } = caller;
        check_may_wait(&caller)?;
        let is_take = wanted.line() == Line::Takes;
        self.waiters.push(index, Waiter { connection, user, request, wanted, since: now, deadline });
        if is_take {
            let shown = self.transact(store, user::ADMIN, |queue, store| {
                queue.write_consumer(store, index, request, connection, now, deadline)
            });
            if let Err(error) = shown {
                self.waiters.remove(connection, request);
                return Err(error);
            }
        }
        Ok(Answer::Parked)
    }

    /// Serves those who wait in tubes in which something has changed. Outside a transaction.
    pub(crate) fn serve(&mut self, store: &mut Store, now: u64) {
        if store.in_transaction() {
            return;
        }
        while let Some(index) = self.ready.pop() {
            if self.is_running() {
                while self.serve_first(store, index, Line::Puts, now) {}
                while self.serve_first(store, index, Line::Takes, now) {}
            }
        }
    }

    /// Serves who is first in a line. False if nobody is, or if there is nothing for him.
    fn serve_first(&mut self, store: &mut Store, index: SlotIndex, line: Line, now: u64) -> bool {
        let Some((request, waiter)) = self.waiters.first(index, line) else { return false };
        let connection = waiter.connection;
        let client = Client { connection, user: waiter.user };
        let mut values = Vec::new();
        let served = match &waiter.wanted {
            wanted @ (Wanted::Task | Wanted::ExtendedTask) => {
                let extended = matches!(wanted, Wanted::ExtendedTask);
                self.transact(store, user::ADMIN, |queue, store| {
                    let taken =
                        queue.take_in_transaction(store, index, client, now, extended, &mut values)?;
                    if taken {
                        queue.erase_consumer(store, connection, request)?;
                    }
                    Ok(taken)
                })
            }
            &Wanted::Tasks(limit) => self.transact(store, user::ADMIN, |queue, store| {
                let taken = queue.take_many_in_transaction(store, index, client, limit, now, &mut values)?;
                if taken > 0 {
                    queue.erase_consumer(store, connection, request)?;
                }
                Ok(taken > 0)
            }),
            Wanted::Room(arguments) => {
                let arguments = arguments.clone();
                self.put_of_waiter(store, index, &arguments, now, &mut values)
            }
            Wanted::RoomForMany { tasks, arguments } => match self.room(store, index) {
                Ok(room) if room < u64::from(*tasks) => Ok(false),
                Ok(_) => {
                    let arguments = arguments.clone();
                    self.put_many_of_waiter(store, index, &arguments, now, &mut values).map(|()| true)
                }
                Err(error) => Err(error),
            },
        };
        match served {
            Ok(false) => false,
            Ok(true) => {
                self.wake(connection, request, Ok((1, values)));
                true
            }
            Err(error) => {
                self.hide_consumer(store, connection, request);
                self.wake(connection, request, Err(error));
                true
            }
        }
    }

    /// Answers the calls whose time is over, at most `budget`. Returns how many.
    pub(crate) fn time_out(&mut self, store: &mut Store, now: u64, budget: usize) -> usize {
        let mut count = 0;
        while count < budget
            && let Some((connection, request)) = self.waiters.due(now)
        {
            count += 1;
            self.hide_consumer(store, connection, request);
            let Some(waiter) = self.give_up(connection, request) else { continue };
            let mut values = Vec::new();
            let count = match waiter.wanted {
                Wanted::Task | Wanted::ExtendedTask => 0,
                Wanted::Tasks(_) => {
                    mp::write_array(&mut values, 0);
                    1
                }
                Wanted::Room(_) | Wanted::RoomForMany { .. } => {
                    mp::write_nil(&mut values);
                    1
                }
            };
            let result = Ok((count, values));
            self.woken.push_back(Woken { connection, request, result });
        }
        count
    }

    /// Takes a call out of its line unserved. Behind a batch there may be puts for which there is room.
    fn give_up(&mut self, connection: u64, request: u64) -> Option<Waiter> {
        let (index, waiter) = self.waiters.remove(connection, request)?;
        if matches!(waiter.wanted, Wanted::RoomForMany { .. }) {
            self.ready.push(index);
        }
        Some(waiter)
    }

    fn wake(&mut self, connection: u64, request: u64, result: Result<(u32, Vec<u8>), Error>) {
        if self.waiters.remove(connection, request).is_some() {
            self.woken.push_back(Woken { connection, request, result });
        }
    }

    /// Takes a parked call back; it is not answered any more. False if it does not wait: it was answered, or is a long call,
    /// which goes on. Not to be called inside a transaction.
    pub fn cancel(&mut self, store: &mut Store, connection: u64, request: u64, now: u64) -> bool {
        let is_waiting = self.give_up(connection, request).is_some();
        if is_waiting {
            self.hide_consumer(store, connection, request);
            self.serve(store, now);
        }
        is_waiting
    }

    /// The connection is gone: nobody waits on it any more.
    pub(crate) fn forget_waiters(&mut self, store: &mut Store, connection: u64) {
        while let Some(request) = self.waiters.of_connection(connection) {
            self.hide_consumer(store, connection, request);
            self.give_up(connection, request);
        }
        self.woken.retain(|woken| woken.connection != connection);
    }

    /// The tube is gone: those who waited in it are told.
    pub(crate) fn dismiss_waiters(&mut self, store: &mut Store, index: SlotIndex) {
        let waiting: Vec<_> =
            self.waiters.of_tube(index).map(|(request, waiter)| (waiter.connection, request)).collect();
        for (connection, request) in waiting {
            self.hide_consumer(store, connection, request);
            self.wake(connection, request, Err(Error::TubeNotFound));
        }
    }

    fn write_consumer(
        &self,
        store: &mut Store,
        index: SlotIndex,
        request: u64,
        connection: u64,
        since: u64,
        deadline: u64,
    ) -> Result<(), Error> {
        let Some(tube) = self.tubes.at(index) else { return Ok(()) };
        let mut row = Vec::with_capacity(48);
        mp::write_array(&mut row, 5);
        for number in [connection, request, tube.id, deadline, since] {
            mp::write_uint(&mut row, number);
        }
        store.execute(&Statement::Replace { space: self.spaces.consumers, tuple: &row })?;
        Ok(())
    }

    /// Writes the rows of all waiting takes. Inside a transaction.
    pub(crate) fn write_consumers(&self, store: &mut Store) -> Result<(), Error> {
        for (index, request, waiter) in self.waiters.takes() {
            self.write_consumer(store, index, request, waiter.connection, waiter.since, waiter.deadline)?;
        }
        Ok(())
    }

    fn erase_consumer(&self, store: &mut Store, connection: u64, request: u64) -> Result<(), Error> {
        let key = ShortKey::numbers(&[connection, request]);
        let space = self.spaces.consumers;
        if store.get(space, 0, &key)?.is_some() {
            store.execute(&Statement::Delete { space, index: 0, key: &key })?;
        }
        Ok(())
    }

    /// Removes the row of a waiting call in a transaction of its own. A row that cannot be removed does no harm: it
    /// is only looked at by people.
    fn hide_consumer(&mut self, store: &mut Store, connection: u64, request: u64) {
        let erased = self
            .transact(store, user::ADMIN, |queue, store| queue.erase_consumer(store, connection, request));
        if let Err(error) = erased {
            self.log_failure("removal of a consumer", &error);
        }
    }
}
