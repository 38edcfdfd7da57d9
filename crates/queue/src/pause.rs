//! `pause` and `resume`: whether a tube hands out tasks.
//!
//! A paused tube is a row of [`PAUSED`], so the pause survives a restart and reaches replicas. A running queue keeps
//! [`Tube::paused`](crate::tube::Tube) in step with the rows of every origin. The driver of a paused tube finds no
//! next task ([`crate::driver::Paused`]); nothing else changes.

mod call;

use lycosa_store::{SpaceId, Statement, Store};
use lycosa_tuple::mp::{self, Reader};

use crate::error::Result;
use crate::system::{LateSpace, SystemSpace};
use crate::task::ShortKey;

pub(crate) static PAUSED: SystemSpace = SystemSpace {
    name: "_lycosa_paused",
    fields: "tube_id unsigned, since unsigned, user string, reason string",
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
    pub(crate) fn of(&self, store: &Store, tube: u64) -> Result<Option<Pause>> {
        let Some(space) = self.0.existing(store) else { return Ok(None) };
        Ok(store.get(space, 0, &ShortKey::id(tube))?.map(Pause::read))
    }

    fn write(&mut self, store: &mut Store, tube: u64, pause: &Pause) -> Result<()> {
        let mut row = Vec::new();
        mp::write_array(&mut row, 4);
        mp::write_uint(&mut row, tube);
        mp::write_uint(&mut row, pause.since);
        mp::write_str(&mut row, &pause.user);
        mp::write_str(&mut row, &pause.reason);
        self.0.write(store, &row)
    }

    /// The tube is resumed or dropped. Inside a transaction, as `admin`.
    pub(crate) fn forget(&self, store: &mut Store, tube: u64) -> Result<()> {
        let Some(space) = self.0.existing(store) else { return Ok(()) };
        let key = ShortKey::id(tube);
        if store.get(space, 0, &key)?.is_some() {
            store.execute(&Statement::Delete { space, index: 0, key: &key })?;
        }
        Ok(())
    }
}
