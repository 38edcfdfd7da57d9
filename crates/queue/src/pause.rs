//! `pause` and `resume`: whether a tube hands out tasks.
//!
//! A paused tube is a row of [`PAUSED`], so the pause survives a restart and reaches replicas. A running queue keeps
//! [`Tube::paused`](crate::tube::Tube) in step with the rows of every origin. The driver of a paused tube finds no
//! next task ([`crate::driver::Paused`]); nothing else changes.

use lycosa_store::{SpaceId, Statement, Store};
use lycosa_tuple::mp::{self, Reader};

use crate::Answer;
use crate::audit::{Steered, reason};
use crate::command::Call;
use crate::error::Error;
use crate::system::{LateSpace, SystemSpace};
use crate::task::ShortKey;
use crate::tube_call::TubeCall;
use crate::turn::{CatalogTurn, Turn};

pub(crate) static PAUSED: SystemSpace = SystemSpace {
    name: "_lycosa_paused",
    fields: &[("tube_id", "unsigned"), ("since", "unsigned"), ("user", "string"), ("reason", "string")],
    indexes: &[("pk", true, &[0])],
};

/// A row of [`PAUSED`], without the tube's id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pause {
    /// µs since the epoch.
    pub(crate) since: u64,
    /// The user who paused the tube.
    pub(crate) user: Vec<u8>,
    /// Empty if none was given.
    pub(crate) reason: Vec<u8>,
}

impl Pause {
    /// Reads a row. One that a user wrote in another form pauses the tube, too.
    fn read(row: &[u8]) -> Self {
        let read = |row| {
            let mut reader = Reader::new(row);
            reader.array().ok()?;
            reader.skip().ok()?;
            let since = reader.uint().ok()?;
            let user = reader.str().ok()?.to_vec();
            Some(Self { since, user, reason: reader.str().ok()?.to_vec() })
        };
        read(row).unwrap_or_default()
    }
}

/// The space of paused tubes.
#[derive(Debug)]
pub(crate) struct Pauses(LateSpace);

impl Default for Pauses {
    fn default() -> Self {
        Self(LateSpace::new(&PAUSED))
    }
}

impl Pauses {
    pub(crate) fn find(&mut self, store: &mut Store) {
        self.0.find(store);
    }

    pub(crate) fn space(&self) -> SpaceId {
        self.0.id()
    }

    /// The pause of a tube.
    pub(crate) fn of(&self, store: &Store, tube: u64) -> Result<Option<Pause>, Error> {
        let Some(space) = self.0.existing(store) else { return Ok(None) };
        Ok(store.get(space, 0, &ShortKey::id(tube))?.map(Pause::read))
    }

    fn write(&mut self, store: &mut Store, tube: u64, pause: &Pause) -> Result<(), Error> {
        let space = self.0.obtain(store)?;
        let mut row = Vec::new();
        mp::write_array(&mut row, 4);
        mp::write_uint(&mut row, tube);
        mp::write_uint(&mut row, pause.since);
        mp::write_str(&mut row, &pause.user);
        mp::write_str(&mut row, &pause.reason);
        store.execute(&Statement::Replace { space, tuple: &row })?;
        Ok(())
    }

    /// The tube is resumed or dropped. Inside a transaction, as `admin`.
    pub(crate) fn forget(&self, store: &mut Store, tube: u64) -> Result<(), Error> {
        let Some(space) = self.0.existing(store) else { return Ok(()) };
        let key = ShortKey::id(tube);
        if store.get(space, 0, &key)?.is_some() {
            store.execute(&Statement::Delete { space, index: 0, key: &key })?;
        }
        Ok(())
    }
}

impl TubeCall<'_> {
    /// `pause([{reason}])` and `resume([{reason}])`. Replies whether anything has changed.
    pub(crate) fn set_paused(&mut self, paused: bool, out: &mut Vec<u8>) -> Result<Answer, Error> {
        let operation = if paused { "pause" } else { "resume" };
        if self.turn.store.in_transaction() {
            return Err(Error::InTransaction(operation));
        }
        let Call { index, caller, arguments, .. } = self.call;
        let reason = reason(operation, arguments.present(0))?;
        let Some(tube) = self.turn.tubes.at(index) else { return Err(Error::Stale) };
        let (id, name, was_paused) = (tube.id, tube.name.clone(), tube.paused);
        if was_paused != paused {
            self.turn.transact(|turn| {
                let Turn { store, common, now, .. } = turn;
                if paused {
                    let user = common.actor_name(store, caller.session, caller.effective).into_bytes();
                    let pause = Pause { since: *now, user, reason: reason.clone() };
                    common.pauses.write(store, id, &pause)?;
                } else {
                    common.pauses.forget(store, id)?;
                }
                let entry = Steered { tube: &name, operation, job: None, reason: &reason };
                turn.audit().note(caller, &entry)
            })?;
            if let Some(tube) = self.turn.tubes.at_mut(index) {
                tube.set_paused(paused);
            }
            // Calls that waited while the tube was paused.
            self.turn.common.ready.push(index);
        }
        mp::write_bool(out, was_paused != paused);
        Ok(Answer::one())
    }
}

impl CatalogTurn<'_> {
    /// Rows of another origin may have paused or resumed any tube.
    pub(crate) fn find_pauses(&mut self) {
        self.turn.common.pauses.find(self.turn.store);
        let tubes: Vec<_> = self.turn.tubes.indexes().collect();
        for index in tubes {
            let Some(tube) = self.turn.tubes.at_mut(index) else { continue };
            match self.turn.common.pauses.of(self.turn.store, tube.id) {
                Ok(pause) => tube.set_paused(pause.is_some()),
                Err(error) => self.turn.common.log_failure("a look at the paused tubes", &error),
            }
            self.turn.common.ready.push(index);
        }
    }
}
