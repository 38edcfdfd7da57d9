//! Calls that are made once: what a call answered, kept under its caller's key for some time.
//!
//! A client that does not hear the answer repeats its call with the same key, and has the first answer instead of a second
//! effect. The answer is a row of [`SPACE_NAME`], written in the transaction of the effect: after a crash both exist or neither
//! does, and both reach replicas. A row is `[owner, key, fingerprint, expires, answer]`; the owner is the caller's token.
//! Payloads are left out of answers, which the client has sent itself.
//!
//! Invariants: of an owner's key at most one row exists; each new row removes up to [`PRUNED`] expired ones, so rows do not
//! outnumber the calls of two windows. Absent: the call itself, see [`crate::front::idempotency`].

use lycosa_queue::SystemSpace;
use lycosa_store::{IteratorType, SpaceId, Statement, Store, user};
use lycosa_tuple::value::Value;

use crate::Result;
use crate::shard::admission::Growth;
use crate::shard::data::Data;
use crate::shard::wire_error::OnWire;

/// The space of the answers.
pub(crate) const SPACE_NAME: &str = "_lycosa_once";

const BY_KEY: u32 = 0;
const BY_EXPIRY: u32 = 1;

/// Expired rows that a new row removes.
const PRUNED: usize = 4;

static ONCE: SystemSpace = SystemSpace {
    name: SPACE_NAME,
    fields: "owner unsigned, key string, fingerprint string, expires unsigned, answer array",
    indexes: &[("key", true, &[0, 1]), ("expires", false, &[3])],
};

/// A kept answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kept {
    /// Of the call that was answered.
    pub(crate) fingerprint: String,
    /// Its only value.
    pub(crate) answer: Value,
}

fn key(owner: u64, key: &str) -> Vec<u8> {
    Value::Array(vec![owner.into(), key.into()]).encode()
}

/// The kept answer of a call with this key, if it has not expired.
pub(crate) fn find(store: &Store, owner: u64, name: &str, now: u64) -> Option<Kept> {
    let row = store.get(ONCE.known(store, 0)?, BY_KEY, &key(owner, name)).ok().flatten()?;
    let row = Value::decode(row).ok()?;
    let [_, _, fingerprint, expires, answer, ..] = row.as_array()? else { return None };
    let answer = answer.as_array()?.first()?.clone();
    let kept = Kept { fingerprint: fingerprint.as_str()?.to_owned(), answer };
    (expires.as_u64()? > now).then_some(kept)
}

/// Removes some of the expired rows.
fn prune(store: &mut Store, space: SpaceId, now: u64) -> Result<(), lycosa_store::Error> {
    for _ in 0..PRUNED {
        let Some(row) = store.first(space, BY_EXPIRY, IteratorType::Ge, &[0x90])? else { break };
        let Ok(Value::Array(fields)) = Value::decode(row) else { break };
        let [owner, name, _, expires, ..] = fields.as_slice() else { break };
        if expires.as_u64().is_none_or(|expires| expires > now) {
            break;
        }
        let key = Value::Array(vec![owner.clone(), name.clone()]).encode();
        store.execute(&Statement::Delete { space, index: BY_KEY, key: &key })?;
    }
    Ok(())
}

impl Data {
    /// Keeps an answer until `expires`, µs since the epoch, in the open transaction.
    pub(crate) fn keep_answer(&mut self, owner: u64, name: &str, kept: Kept, expires: u64) -> Result<()> {
        let now = self.now;
        let Kept { fingerprint, answer } = kept;
        let answer = Value::Array(vec![answer]);
        let row =
            Value::from(vec![owner.into(), name.into(), fingerprint.into(), expires.into(), answer]).encode();
        let keep = |store: &mut Store| -> lycosa_queue::Result<()> {
            let space = ONCE.find_or_create(store, false)?;
            prune(store, space, now)?;
            Ok(store.execute(&Statement::Replace { space, tuple: &row }).map(drop)?)
        };
        self.transaction(Growth::Adds, user::ADMIN, |store| keep(store).on_wire())
    }
}
