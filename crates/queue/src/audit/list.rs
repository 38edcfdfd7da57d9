//! `queue.audit`: entries of the audit log about tubes that the caller may look at.

use std::ops::ControlFlow;

use lycosa_tuple::mp::{self, Reader};

use super::{AUDIT, MAX_ENTRIES, Steered};
use crate::arguments::{Options, is_nil, string, unsigned};
use crate::command::QueueCall;
use crate::error::Result;
use crate::listing::may_look;
use crate::members::write_seconds;
use crate::system::write_newest;
use crate::turn::{AuditTurn, Turn};
use crate::{Answer, Caller};

/// Entries that one `queue.audit` looks at, and returns, at most.
const MAX_LOOKED_AT: u32 = 1_000;

/// Entries that one `queue.audit` returns unless `limit` says otherwise.
const DEFAULT_LIMIT: u32 = 100;

/// Fields of an entry that names no token: rows of versions that did not know of tokens here.
const FIRST_FIELDS: u32 = 8;

/// Appends an entry as a map: the row with names, the time in seconds.
fn write_entry(row: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut reader = Reader::new(row);
    let fields = reader.array().ok().filter(|fields| *fields >= FIRST_FIELDS)?;
    let mut entry = Vec::new();
    let mut count = 0;
    for (name, _) in AUDIT.columns().take(fields as usize) {
        let value = reader.raw().ok()?;
        if is_nil(value) || string(value).is_some_and(<[u8]>::is_empty) {
            continue;
        }
        count += 1;
        mp::write_str(&mut entry, name.as_bytes());
        match name {
            "time" => write_seconds(&mut entry, Reader::new(value).uint().ok()?),
            _ => entry.extend_from_slice(value),
        }
    }
    mp::write_map(out, count);
    out.extend_from_slice(&entry);
    Some(())
}

/// The tube that an entry is about.
fn tube_of(row: &[u8]) -> Option<&str> {
    let mut reader = Reader::new(row);
    reader.array().ok()?;
    (0..4).try_for_each(|_| reader.skip()).ok()?;
    str::from_utf8(reader.str().ok()?).ok()
}

impl AuditTurn<'_> {
    /// Writes an entry about what the caller does. Inside a transaction.
    pub(crate) fn note(&mut self, caller: &Caller, entry: &Steered<'_>) -> Result<()> {
        let Turn { store, common, now, .. } = &mut self.turn;
        let actor = common.actors.get(&caller.session);
        common.audit.note(store, (caller, actor), *now, entry)
    }

    /// `queue.audit([{tube, limit, before}])`: entries about tubes that the caller may look at, the newest first. Of tubes that
    /// were dropped only `admin` sees entries.
    pub(crate) fn list(&self, call: QueueCall<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let QueueCall { caller, arguments } = call;
        let options =
            Options::parse("audit", "argument #1", arguments.present(0), &["tube", "limit", "before"])?;
        let tube = options.read("tube", "option tube should be the name of a tube", string)?;
        let limit = options.read("limit", "option limit should be a number of entries", unsigned)?;
        let limit = limit.map_or(DEFAULT_LIMIT, |limit| limit.min(MAX_LOOKED_AT.into()) as u32);
        let before = options.read("before", "option before should be the id of an entry", unsigned)?;
        let Turn { store, tubes, common, .. } = &self.turn;
        let is_admin = caller.trusted || caller.effective == lycosa_store::user::ADMIN;
        let is_seen = |name: &str| {
            is_admin
                || tubes
                    .by_name(name)
                    .and_then(|handle| tubes.get(handle))
                    .is_some_and(|tube| may_look(store, caller, tube))
        };
        let mut looked_at = 0;
        write_newest(store, common.audit.existing(store), (before, limit), out, |row, out| {
            if looked_at == MAX_ENTRIES {
                return ControlFlow::Break(());
            }
            looked_at += 1;
            let name = tube_of(row).unwrap_or_default();
            let is_wanted = tube.is_none_or(|tube| tube == name.as_bytes()) && is_seen(name);
            ControlFlow::Continue(is_wanted && write_entry(row, out).is_some())
        })?;
        Ok(Answer::one())
    }
}
