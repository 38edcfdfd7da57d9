//! The audit log: who steered what, when, and why.
//!
//! An entry is a row of [`AUDIT`], written in the transaction of what it tells of. The space holds the newest
//! [`MAX_ENTRIES`] entries. Puts, takes and the like make no entries.

mod list;

use lycosa_store::{IteratorType, SpaceId, Statement, Store};
use lycosa_tuple::mp;

use crate::Caller;
use crate::arguments::{Table, string};
use crate::caller::Actor;
use crate::error::{Error, Result};
use crate::members::write_optional;
use crate::system::{LateSpace, SystemSpace};
use crate::task::{ShortKey, id_of};

/// Entries that the space holds at most. The oldest ones make way.
pub(crate) const MAX_ENTRIES: u64 = 10_000;
/// Bytes of a reason that are kept.
pub(crate) const MAX_REASON: usize = 1024;

pub(crate) static AUDIT: SystemSpace = SystemSpace {
    name: "_lycosa_audit",
    fields: "id unsigned, time unsigned, user string, connection unsigned, tube string, operation string, job *, \
reason string, token string, role string",
    indexes: &[("pk", true, &[0])],
};

/// The subject of an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steered<'a> {
    pub(crate) tube: &'a str,
    pub(crate) operation: &'a str,
    pub(crate) job: Option<u64>,
    pub(crate) reason: &'a [u8],
}

/// The space of entries.
#[derive(Debug)]
pub(crate) struct Audit(LateSpace);

impl Default for Audit {
    fn default() -> Self {
        Self(LateSpace::new(&AUDIT))
    }
}

impl Audit {
    pub(crate) fn find(&mut self, store: &mut Store) {
        self.0.find(store);
    }

    /// Writes an entry and removes those beyond the bound. Inside a transaction, as `admin`.
    pub(crate) fn note(
        &mut self,
        store: &mut Store,
        (caller, actor): (&Caller, Option<&Actor>),
        now: u64,
        entry: &Steered<'_>,
    ) -> Result<()> {
        let space = self.0.obtain(store)?;
        let last = store.first(space, 0, IteratorType::Le, &[0x90])?.and_then(id_of);
        let id = last.map_or(0, |last| last.saturating_add(1));
        let user = store.user(caller.effective).map_or_else(String::new, |user| user.name.clone());
        let mut row = Vec::new();
        mp::write_array(&mut row, AUDIT.width());
        mp::write_uint(&mut row, id);
        mp::write_uint(&mut row, now);
        mp::write_str(&mut row, user.as_bytes());
        mp::write_uint(&mut row, caller.session);
        mp::write_str(&mut row, entry.tube.as_bytes());
        mp::write_str(&mut row, entry.operation.as_bytes());
        write_optional(&mut row, entry.job);
        mp::write_str(&mut row, entry.reason);
        for index in 0..2 {
            mp::write_str(&mut row, actor.map_or(b"", |actor| actor.token[index].as_bytes()));
        }
        store.execute(&Statement::Replace { space, tuple: &row })?;
        while store.space(space)?.len() > MAX_ENTRIES
            && let Some(oldest) = store.first(space, 0, IteratorType::Ge, &[0x90])?.and_then(id_of)
        {
            store.execute(&Statement::Delete { space, index: 0, key: &ShortKey::id(oldest) })?;
        }
        Ok(())
    }

    fn existing(&self, store: &Store) -> Option<SpaceId> {
        self.0.existing(store)
    }
}

/// The `reason` in a map of options, cut to [`MAX_REASON`] bytes; empty without one.
pub(crate) fn reason(method: &'static str, options: Option<&[u8]>) -> Result<Vec<u8>> {
    let unfit = |what: &str| Error::Unfit { method, what: what.into() };
    let options = Table::parse(options).map_err(|_| unfit("the options should be a map"))?;
    let Some(reason) = options.get(b"reason") else { return Ok(Vec::new()) };
    let reason = string(reason).ok_or_else(|| unfit("option reason should be a text"))?;
    Ok(reason[..reason.len().min(MAX_REASON)].to_vec())
}
