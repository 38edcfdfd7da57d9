//! Leases: owners of single taken tasks, independent of sessions and connections.
//!
//! `take(timeout, {lease = seconds})` gives its task to a *lease* in place of the caller's session. The answer has a
//! [`Token`], which is all that `ack`, `release`, `bury` and `touch` need later, over any connection or none that lasts.
//! When the lease ends, the task is ready again, in tubes of every type. The attempt was counted by the take; its reason
//! is [`ENDED`].
//!
//! A lease is a row of [`LEASES`], which is durable and replicated in every mode, so leases survive a restart and a
//! promotion. The space is created when a client first asks for a lease. A take without one reads and writes nothing here.
//!
//! Fencing: the epoch of a token is the number of its lease. Epochs only grow, over restarts, truncations and dropped tubes,
//! because a sequence reserves them in blocks; a program that writes elsewhere may refuse an epoch below the last one that it
//! has seen. A token also has 64 random bits, so that it cannot be guessed, and so that a master which has lost the newest
//! rows of the former one repeats no token.
//!
//! In tubes with deadlines the end of a lease takes the place of the ttr: it is the task's next event, and not later than the
//! end of the task's life. [`LeasesTurn::expire`](crate::turn::LeasesTurn::expire) finds the ends of all tubes in one index.
//!
//! Invariants:
//! - a lease's task is taken, and has neither a cached owner nor a row of `_queue_taken_2`;
//! - a row goes with the change that frees its task, in the same transaction, be it a statement of a client;
//! - the memory beside the space is a bound: no lease ends before [`Leases::due`].
//!
//! Absent: leases of temporary tubes over a restart or a change of the role, which end there: their tasks are not replicated.

mod tasks;

use std::fmt;

use lycosa_store::ddl::{self, SequenceSpec};
use lycosa_store::{IteratorType, SpaceId, Statement, Store};
use lycosa_tuple::mp::{self, Reader};

use crate::arguments::{Number, Table};
use crate::attempts::is_extended;
use crate::error::{Error, Result};
use crate::system::{LEASES_NAME, LateSpace, SystemSpace, delete_row, each_row, reserve_id, tasks_after};
use crate::task::{ShortKey, TaskKey, taken_key};
use crate::time::{MAX_LEASE_SECONDS, MICROSECONDS, NEVER};

/// The reason of a task's last failure when its lease has ended.
pub(crate) const ENDED: &[u8] = b"the lease ended";

pub(crate) static LEASES: SystemSpace = SystemSpace {
    name: LEASES_NAME,
    fields: "tube_id unsigned, task_id unsigned, epoch unsigned, secret unsigned, ends unsigned, taken_at unsigned, \
user string",
    indexes: &[("pk", true, &[0, 1]), ("ends", true, &[4, 0, 1])],
};

/// The index `ends`.
const BY_END: u32 = 1;

/// The sequence that reserves epochs.
const EPOCHS: &str = "_lycosa_leases_epoch";

/// The form of a take's answer, and the owner of its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `[id, state, payload]`, for the caller's session.
    Plain,
    /// In extended form, for the caller's session.
    Extended,
    /// In extended form with a token, for a lease of this length in µs.
    Leased(u64),
}

impl Form {
    /// The form of answer that the options of `take` and `take_many` ask for.
    pub(crate) fn parse(options: &[u8]) -> Result<Self> {
        match Table::parse(Some(options)).ok().and_then(|table| table.get(b"lease")) {
            Some(lease) => span(lease).map(Self::Leased).ok_or(Error::LeaseSpan),
            None if is_extended(Some(options)) => Ok(Self::Extended),
            None => Ok(Self::Plain),
        }
    }
}

/// The µs of a lease or a renewal: more than 0 s, at most [`MAX_LEASE_SECONDS`].
fn span(seconds: &[u8]) -> Option<u64> {
    let micros = Number::parse(seconds)?.seconds().duration();
    (1..=MAX_LEASE_SECONDS * MICROSECONDS).contains(&micros).then_some(micros)
}

/// The token of a lease: `TUBE-TASK-EPOCH-SECRET`, numbers in decimal, the secret in 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) task: TaskKey,
    pub(crate) epoch: u64,
    pub(crate) secret: u64,
}

impl Token {
    /// Reads what [`Self::fmt`] writes, and nothing else.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let mut parts = text.split('-');
        let mut number = || parts.next()?.parse().ok();
        let (task, epoch) = ((number()?, number()?), number()?);
        let secret = u64::from_str_radix(parts.next()?, 16).ok()?;
        let token = Self { task, epoch, secret };
        (token.to_string() == text).then_some(token)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task: (tube, task), epoch, secret } = self;
        write!(f, "{tube}-{task}-{epoch}-{secret:016x}")
    }
}

/// A row of [`LEASES`], apart from its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) epoch: u64,
    secret: u64,
    /// µs since the epoch of time.
    pub(crate) ends: u64,
    /// When the task was taken, µs since the epoch of time.
    pub(crate) taken_at: u64,
    /// Name of the user of the take.
    pub(crate) user: String,
}

impl Lease {
    fn read(row: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(row);
        reader.array().ok().filter(|count| *count >= 7)?;
        reader.skip().ok()?;
        reader.skip().ok()?;
        let mut number = || reader.uint().ok();
        let (epoch, secret, ends, taken_at) = (number()?, number()?, number()?, number()?);
        let user = String::from_utf8_lossy(reader.str().ok()?).into_owned();
        Some(Self { epoch, secret, ends, taken_at, user })
    }

    fn encode(&self, (tube, task): TaskKey) -> Vec<u8> {
        let mut row = Vec::with_capacity(self.user.len() + 60);
        mp::write_array(&mut row, 7);
        for number in [tube, task, self.epoch, self.secret, self.ends, self.taken_at] {
            mp::write_uint(&mut row, number);
        }
        mp::write_str(&mut row, self.user.as_bytes());
        row
    }

    pub(crate) fn token(&self, task: TaskKey) -> Token {
        Token { task, epoch: self.epoch, secret: self.secret }
    }
}

/// All leases.
#[derive(Debug)]
pub(crate) struct Leases {
    space: LateSpace,
    /// The epoch of the next lease, if the sequence is not ahead.
    next_epoch: u64,
    /// No lease ends before, µs since the epoch of time.
    pub(crate) due: u64,
}

impl Default for Leases {
    fn default() -> Self {
        Self { space: LateSpace::new(&LEASES), next_epoch: 1, due: NEVER }
    }
}

impl Leases {
    /// Finds the space at a start.
    pub(crate) fn find(&mut self, store: &mut Store) {
        self.space.find(store);
        if self.space.id() != 0 {
            self.adopt(store);
        }
    }

    /// Finds the space if rows of another origin may have created it.
    pub(crate) fn find_new(&mut self, store: &mut Store) {
        if self.space.existing(store).is_none() {
            self.find(store);
        }
    }

    /// Goes on with the epochs and rows that the store has.
    fn adopt(&mut self, store: &Store) {
        let reserved = store.sequence_by_name(EPOCHS).and_then(|epochs| u64::try_from(epochs.value?).ok());
        self.next_epoch = self.next_epoch.max(reserved.unwrap_or(0) + 1);
        self.look_again();
    }

    /// Rows have changed in ways that were not looked at: any lease may be due.
    pub(crate) fn look_again(&mut self) {
        self.due = 0;
    }

    /// Whether a change of that space may concern leases.
    #[inline]
    pub(crate) fn is_in(&self, space: SpaceId) -> bool {
        space == self.space.id() && space != 0
    }

    /// The lease that owns a task.
    pub(crate) fn of(&self, store: &Store, task: TaskKey) -> Result<Option<Lease>> {
        let Some(space) = self.space.kept(store) else { return Ok(None) };
        Ok(store.get(space, 0, &ShortKey::numbers(&[task.0, task.1]))?.and_then(Lease::read))
    }

    /// Whether a lease owns a task of the tube.
    pub(crate) fn has_tube(&self, store: &Store, tube: u64) -> Result<bool> {
        let Some(space) = self.space.kept(store) else { return Ok(false) };
        Ok(store.first(space, 0, IteratorType::Eq, &ShortKey::id(tube))?.is_some())
    }

    /// The tasks of up to `limit` leases behind a task.
    pub(crate) fn after(&self, store: &Store, after: Option<TaskKey>, limit: usize) -> Result<Vec<TaskKey>> {
        let Some(space) = self.space.kept(store) else { return Ok(Vec::new()) };
        Ok(tasks_after(store, space, after, limit)?)
    }

    /// Calls `f` for the tasks of at most `limit` leases. Returns whether the user has no more.
    pub(crate) fn each(
        &self,
        store: &Store,
        limit: usize,
        mut f: impl FnMut(TaskKey, Lease),
    ) -> Result<bool> {
        let Some(space) = self.space.kept(store) else { return Ok(true) };
        Ok(each_row(store, space, limit, |row| {
            if let (Some(task), Some(lease)) = (taken_key(row), Lease::read(row)) {
                f(task, lease);
            }
        })?)
    }

    /// The lease that ends first: its task and its end, µs since the epoch of time.
    fn first(&self, store: &Store) -> Result<Option<(TaskKey, u64)>> {
        let Some(space) = self.space.kept(store) else { return Ok(None) };
        let row = store.first(space, BY_END, IteratorType::All, &[0x90])?;
        Ok(row.and_then(|row| Some((taken_key(row)?, Lease::read(row)?.ends))))
    }

    /// The epoch of a new lease. Inside a transaction. An epoch of a transaction that is rolled back is not used again.
    fn next_epoch(&mut self, store: &mut Store) -> Result<u64> {
        let epoch = self.next_epoch;
        self.next_epoch = epoch.saturating_add(1);
        // A worker of a full server may be the first that needs the sequence, or its next block.
        let former = store.lift_limit(true);
        let reserved = sequence(store).and_then(|sequence| reserve_id(store, sequence, epoch));
        store.lift_limit(former);
        reserved?;
        Ok(epoch)
    }

    /// Writes a lease. Inside a transaction.
    fn write(&mut self, store: &mut Store, task: TaskKey, lease: &Lease) -> Result<()> {
        let space = self.space.existing(store).ok_or(Error::Stale)?;
        store.execute(&Statement::Replace { space, tuple: &lease.encode(task) })?;
        self.due = self.due.min(lease.ends);
        Ok(())
    }

    /// Makes sure that the space exists. Inside a transaction.
    fn prepare(&mut self, store: &mut Store) -> Result<()> {
        if self.space.existing(store).is_none() {
            self.space.obtain(store)?;
            self.adopt(store);
        }
        Ok(())
    }

    /// Forgets the lease of a task, if there is one. Inside a transaction.
    pub(crate) fn forget(&self, store: &mut Store, task: TaskKey) -> Result<()> {
        if self.of(store, task)?.is_some()
            && let Some(space) = self.space.kept(store)
        {
            delete_row(store, space, &[task.0, task.1])?;
        }
        Ok(())
    }

    /// Forgets the leases of all tasks of a tube. Inside a transaction.
    pub(crate) fn forget_tube(&self, store: &mut Store, tube: u64) -> Result<()> {
        self.space.tasks_of(store, tube)?.into_iter().try_for_each(|task| self.forget(store, task))
    }
}

/// The sequence of epochs, created if it is missing. Inside a transaction.
fn sequence(store: &mut Store) -> Result<u32, lycosa_store::Error> {
    if let Some(epochs) = store.sequence_by_name(EPOCHS) {
        return Ok(epochs.id);
    }
    let (start, min) = (Some(1), Some(1));
    let spec = SequenceSpec { name: EPOCHS, id: None, step: 1, start, min, max: None, cycle: false };
    ddl::create_sequence(store, &spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_written_and_nothing_else_is() {
        let token = Token { task: (3, u64::MAX), epoch: 42, secret: 0xab };
        assert_eq!(token.to_string(), "3-18446744073709551615-42-00000000000000ab");
        assert_eq!(Token::parse(token.to_string().as_bytes()), Some(token));
        for wrong in [
            "",
            "7",
            "3-1-42",
            "3-1-42-ab",
            "03-1-42-00000000000000ab",
            "+3-1-42-00000000000000ab",
            "3-1-42-00000000000000AB",
            "3-1-42-00000000000000ab-1",
            "3-1-42-00000000000000ab ",
            "3-1--42-00000000000000ab",
            "3-18446744073709551616-42-00000000000000ab",
        ] {
            assert_eq!(Token::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn leases_are_read_as_written() {
        let lease = Lease { epoch: 7, secret: u64::MAX, ends: 5, taken_at: 4, user: "bob".into() };
        assert_eq!(Lease::read(&lease.encode((1, 2))), Some(lease));
        assert_eq!(Lease::read(&[0x91, 1]), None);
    }
}
