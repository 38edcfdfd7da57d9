//! Changes: statements, transactions, savepoints.

use std::cell::Cell;

use lycosa_instance::{OwnedStatement, Proposal};
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::keys::RequestType;
use lycosa_store::{Access, Decision, Hooks, Object, OwnedChange, Statement, StatementKind, system, user};
use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;

use super::call::tell_callbacks;
use super::tuple::PROPOSED;
use super::{id, key, of_store, tuple};
use crate::api::{Kind, Lua, Native};
use crate::error::Error;

pub(super) const FUNCTIONS: &[(&str, Native)] = &[
    ("execute", execute),
    ("execute_seen", execute_seen),
    ("check_sequence", check_sequence),
    ("set_sequence", set_sequence),
    ("submit", submit),
    ("decide", decide),
    ("changes", changes),
    ("forget_request", forget_request),
    ("set_hooks", set_hooks),
    ("begin", begin),
    ("commit", commit),
    ("rollback", rollback),
    ("savepoint", savepoint),
    ("is_live", is_live),
    ("rollback_to", rollback_to),
    ("in_txn", in_txn),
    ("wait_durable", wait_durable),
];

pub(super) fn define_classes(lua: Lua) {
    lua.new_class::<Proposed>("proposal", &[], &[]);
    lua.new_class::<SavepointHandle>("savepoint", &[], &[]);
    lua.pop(2);
}

/// The statement that the arguments from 1 on describe: kind, space, index, key or tuple, operations, and the number of the
/// first field in operations (1 if it is not given).
fn statement(lua: Lua) -> Result<OwnedStatement, Error> {
    let kind = match lua.bytes(1).unwrap_or_default() {
        b"insert" => "insert",
        b"replace" => "replace",
        b"update" => "update",
        b"upsert" => "upsert",
        _ => "delete",
    };
    let (space, index) = (id(lua, 2, "the space")?, id(lua, 3, "the index")?);
    let first = if matches!(kind, "update" | "delete") { key(lua, 4)? } else { tuple(lua, 4)? };
    let operations = if matches!(kind, "update" | "upsert") { tuple(lua, 5)? } else { Vec::new() };
    let base = lua.number(6).map_or(1, |base| base as i64);
    Ok(OwnedStatement { kind, space, index, first, operations, base })
}

/// The request that asks a server for such a statement.
fn request_type(kind: &[u8]) -> RequestType {
    match kind {
        b"insert" => RequestType::Insert,
        b"replace" => RequestType::Replace,
        b"update" => RequestType::Update,
        b"upsert" => RequestType::Upsert,
        _ => RequestType::Delete,
    }
}

/// `forget_request(kind)`: the program carries out a request, which was counted when it came.
fn forget_request(lua: Lua) -> Result<i32, Error> {
    let kind = request_type(lua.bytes(1).unwrap_or_default());
    lua.with_instance(|instance| {
        instance.count_statement(kind, -1);
        Ok(())
    })?;
    Ok(0)
}

fn push_shown(lua: Lua, space: u32, tuple: &[u8]) -> Result<(), Error> {
    if tuple.is_empty() {
        lua.push_nil();
        return Ok(());
    }
    lua.push_tuple_of(space, tuple)
}

fn push_side(lua: Lua, space: u32, tuple: Option<&[u8]>) -> Result<(), Error> {
    push_shown(lua, space, tuple.unwrap_or_default())
}

/// Refuses to build an index over tuples in a transaction that has done something else before. The store could, but a
/// Tarantool cannot.
fn check_build(lua: Lua, statement: &OwnedStatement) -> Result<(), Error> {
    if statement.space != system::INDEX || statement.kind != "insert" || !lua.in_transaction() {
        return Ok(());
    }
    let space = TupleRef::trusted(&statement.first).at(0).and_then(|mut field| field.uint().ok());
    let is_build = lua.with_instance(|instance| {
        let store = instance.store();
        let space = space.and_then(|space| store.space(u32::try_from(space).ok()?).ok());
        Ok(store.has_changes() && space.is_some_and(|space| !space.is_empty()))
    })?;
    if is_build {
        let code = ErrorCode::MultistatementTransaction;
        return Err(Error::Box { code: code.into(), message: code.template().replace("%s", "index build") });
    }
    Ok(())
}

/// `execute(kind, space, index, key or tuple, operations, base)`: the tuple of the reply.
fn execute(lua: Lua) -> Result<i32, Error> {
    lua.join_transaction()?;
    let statement = statement(lua)?;
    check_build(lua, &statement)?;
    let user = lua.session()?.caller.effective;
    let mut out = Vec::new();
    let rows = lua.with_instance(|instance| {
        let before = instance.awaited();
        instance.count_statement(request_type(statement.kind.as_bytes()), 1);
        instance.execute(user, &statement.get(), &mut out)?;
        Ok(before..instance.awaited())
    })?;
    if !lua.in_transaction() {
        tell_callbacks(lua)?;
        lua.wait_rows(rows)?;
    }
    if out.is_empty() {
        return Ok(0);
    }
    lua.push_tuple_of(statement.space, &out)?;
    Ok(1)
}

/// `check_sequence(id)`: its last value, which inserts move without a row, or nil; an error unless the fiber's user may move it.
fn check_sequence(lua: Lua) -> Result<i32, Error> {
    match last_value(lua)? {
        Some(value) => lua.push_int64(value),
        None => lua.push_nil(),
    }
    Ok(1)
}

/// The last value of the sequence whose number is the first argument, for a user that may move it.
fn last_value(lua: Lua) -> Result<Option<i64>, Error> {
    let (sequence, user) = (id(lua, 1, "the sequence")?, lua.session()?.caller.effective);
    lua.with_instance(|instance| {
        let store = instance.store();
        let checked = store.check_access(user, Object::Sequence(sequence), Access::WRITE);
        checked.map_err(|error| of_store(&error))?;
        Ok(store.sequence(sequence).and_then(|sequence| sequence.value))
    })
}

/// `set_sequence(id, value)`: sets the last value of a sequence, or resets it, for who may move it: the row of the system space
/// is written by the server.
fn set_sequence(lua: Lua) -> Result<i32, Error> {
    last_value(lua)?;
    lua.join_transaction()?;
    let (sequence, value) = (id(lua, 1, "the sequence")?, lua.integer(2));
    let mut row = Vec::with_capacity(16);
    mp::write_array(&mut row, if value.is_some() { 2 } else { 1 });
    mp::write_uint(&mut row, u64::from(sequence));
    let statement = match value {
        Some(value) => {
            match i64::try_from(value) {
                Ok(value) => mp::write_int(&mut row, value),
                Err(_) => mp::write_uint(&mut row, u64::try_from(value).unwrap_or(u64::MAX)),
            }
            Statement::Replace { space: system::SEQUENCE_DATA, tuple: &row }
        }
        None => Statement::Delete { space: system::SEQUENCE_DATA, index: 0, key: &row },
    };
    let rows = lua.with_instance(|instance| {
        let before = instance.awaited();
        let kind = if value.is_some() { RequestType::Replace } else { RequestType::Delete };
        instance.count_statement(kind, 1);
        instance.execute(user::ADMIN, &statement, &mut Vec::new())?;
        Ok(before..instance.awaited())
    })?;
    if !lua.in_transaction() {
        lua.wait_rows(rows)?;
    }
    Ok(0)
}

/// `execute_seen(…)` with the arguments of `execute`: a statement on a space whose triggers see what it did. It is a part of
/// the open transaction, or begins one, which stays open. Returns the fiber's number; a savepoint before the statement, nil
/// if it has begun the transaction; the tuple of the reply; and its changes in spaces with triggers. Those are a
/// table as of `changes`, or nil and then the kind, the old and the new tuple of the only one, if it is of this space.
fn execute_seen(lua: Lua) -> Result<i32, Error> {
    lua.join_transaction()?;
    let statement = statement(lua)?;
    let (fiber, user, space) = (lua.fiber()?.id, lua.session()?.caller.effective, statement.space);
    let is_own = !lua.in_transaction();
    let mut out = Vec::new();
    let (place, changes) = lua.with_instance(|instance| {
        if is_own {
            instance.begin(user)?;
        }
        let place = instance.savepoint();
        instance.count_statement(request_type(statement.kind.as_bytes()), 1);
        match instance.execute(user, &statement.get(), &mut out) {
            Ok(_) => Ok((place, instance.changes_since(Some(place), true))),
            Err(error) => {
                if is_own {
                    instance.rollback();
                }
                Err(error)
            }
        }
    })?;
    // Before anything is pushed: a finalizer may run there.
    if is_own {
        lua.set_transaction(true)?;
        lua.join_transaction()?;
    }
    lua.push_number(fiber as f64);
    if is_own {
        lua.push_nil();
    } else {
        lua.push_userdata(SavepointHandle(place));
    }
    push_shown(lua, space, &out)?;
    match changes.as_slice() {
        [] => Ok(3),
        [change] if change.space == space => {
            lua.push_nil();
            lua.push_str(kind_name(change.kind));
            push_side(lua, space, change.old.as_deref())?;
            push_side(lua, space, change.new.as_deref())?;
            Ok(7)
        }
        changes => {
            push_changes(lua, changes)?;
            Ok(4)
        }
    }
}

/// A statement that waits for what its before triggers decide.
struct Proposed {
    statement: OwnedStatement,
    proposal: Cell<Option<Proposal>>,
}

/// `submit(…)` with the arguments of `execute`, in an open transaction: the tuple of the reply; or `nil`, the proposal,
/// and the old and the new tuple.
fn submit(lua: Lua) -> Result<i32, Error> {
    lua.join_transaction()?;
    let statement = statement(lua)?;
    let (user, space) = (lua.session()?.caller.effective, statement.space);
    let mut out = Vec::new();
    let proposal = lua.with_instance(|instance| {
        instance.count_statement(request_type(statement.kind.as_bytes()), 1);
        instance.submit(user, &statement.get(), &mut out)
    })?;
    let Some(proposal) = proposal else {
        push_shown(lua, space, &out)?;
        return Ok(1);
    };
    let (old, new) = (proposal.old_tuple().map(<[u8]>::to_vec), proposal.new_tuple().map(<[u8]>::to_vec));
    lua.push_nil();
    lua.push_userdata(Proposed { statement, proposal: Cell::new(Some(proposal)) });
    push_side(lua, space, old.as_deref())?;
    push_side(lua, space | PROPOSED, new.as_deref())?;
    Ok(4)
}

/// `decide(proposal, decision, tuple)`: completes a statement; `decision` is `proceed`, `skip`, `put` or `remove`. Returns
/// the tuple of the reply.
fn decide(lua: Lua) -> Result<i32, Error> {
    lua.join_transaction()?;
    let Some(proposed) = lua.userdata::<Proposed>(1) else {
        return Err(Error::here("the argument is no proposal"));
    };
    let Some(proposal) = proposed.proposal.take() else {
        return Err(Error::here("the proposal was decided"));
    };
    let wanted =
        if lua.kind(3) == Kind::Nil || lua.kind(3) == Kind::None { Vec::new() } else { tuple(lua, 3)? };
    let decision = match lua.text(2).unwrap_or_default().as_str() {
        "proceed" => Decision::Proceed,
        "put" => Decision::Put(&wanted),
        "remove" => Decision::Remove,
        _ => Decision::Skip,
    };
    let user = lua.session()?.caller.effective;
    let mut out = Vec::new();
    lua.with_instance(|instance| {
        instance.decide(user, &proposed.statement.get(), proposal, decision, &mut out)
    })?;
    push_shown(lua, proposed.statement.space, &out)?;
    Ok(1)
}

/// `changes(savepoint, hooked)`: the changes of the open transaction since a savepoint, or all: an array of `{space, kind,
/// old, new}`; `hooked`: only in spaces with triggers.
fn changes(lua: Lua) -> Result<i32, Error> {
    let place = lua.userdata::<SavepointHandle>(1).map(|place| place.0);
    let hooked = lua.truth(2);
    let changes = lua.with_instance(|instance| Ok(instance.changes_since(place, hooked)))?;
    push_changes(lua, &changes)?;
    Ok(1)
}

fn push_changes(lua: Lua, changes: &[OwnedChange]) -> Result<(), Error> {
    lua.new_table(changes.len(), 0);
    for (number, change) in changes.iter().enumerate() {
        push_change(lua, change)?;
        lua.raw_set_item(-2, i32::try_from(number + 1).unwrap_or(i32::MAX));
    }
    Ok(())
}

fn kind_name(kind: StatementKind) -> &'static str {
    match kind {
        StatementKind::Insert => "INSERT",
        StatementKind::Replace => "REPLACE",
        StatementKind::Update => "UPDATE",
        StatementKind::Upsert => "UPSERT",
        StatementKind::Delete => "DELETE",
    }
}

/// Pushes `{space, kind, old, new}`.
pub(super) fn push_change(lua: Lua, change: &OwnedChange) -> Result<(), Error> {
    lua.new_table(0, 4);
    lua.push_number(f64::from(change.space));
    lua.raw_set_field(-2, "space");
    lua.push_str(kind_name(change.kind));
    lua.raw_set_field(-2, "kind");
    push_side(lua, change.space, change.old.as_deref())?;
    lua.raw_set_field(-2, "old");
    push_side(lua, change.space, change.new.as_deref())?;
    lua.raw_set_field(-2, "new");
    Ok(())
}

/// `set_hooks(space, before, after)`: statements on the space are proposed, and its changes are noted, for triggers.
fn set_hooks(lua: Lua) -> Result<i32, Error> {
    let space = id(lua, 1, "the space")?;
    let (before, after) = (lua.truth(2), lua.truth(3));
    lua.with_instance(|instance| instance.set_hooks(space, Hooks { before, after }))?;
    Ok(0)
}

fn begin(lua: Lua) -> Result<i32, Error> {
    lua.check_not_aborted()?;
    lua.begin_again()?;
    let user = lua.session()?.caller.effective;
    lua.with_instance(|instance| instance.begin(user))?;
    lua.set_transaction(true)?;
    Ok(0)
}

fn commit(lua: Lua) -> Result<i32, Error> {
    if let Err(error) = lua.check_not_aborted() {
        take_back(lua)?;
        lua.set_transaction(false)?;
        return Err(error);
    }
    if !lua.in_transaction() {
        return Ok(0);
    }
    lua.begin_again()?;
    lua.set_transaction(false)?;
    let rows = lua.with_instance(|instance| {
        let before = instance.awaited();
        Ok(before..instance.commit()?)
    })?;
    tell_callbacks(lua)?;
    lua.wait_rows(rows)?;
    Ok(0)
}

fn rollback(lua: Lua) -> Result<i32, Error> {
    let aborted = lua.check_not_aborted().is_err();
    if !lua.in_transaction() {
        return Ok(0);
    }
    if !aborted {
        lua.begin_again()?;
    }
    take_back(lua)?;
    lua.set_transaction(false)?;
    Ok(0)
}

/// Rolls back what the fiber has in its transaction, which a yield may have aborted before.
fn take_back(lua: Lua) -> Result<(), Error> {
    if lua.owns_transaction() {
        lua.with_instance(|instance| {
            instance.rollback();
            Ok(())
        })?;
    }
    Ok(())
}

/// The userdata that holds a savepoint for Lua.
struct SavepointHandle(lycosa_instance::Savepoint);

fn savepoint(lua: Lua) -> Result<i32, Error> {
    if lua.check_not_aborted().is_err() {
        lua.join_transaction()?;
    }
    lua.begin_again()?;
    if !lua.in_transaction() {
        return Err(Error::Box {
            code: ErrorCode::NoTransaction.into(),
            message: "No active transaction".to_owned(),
        });
    }
    let place = lua.with_instance(|instance| Ok(instance.savepoint()))?;
    lua.push_userdata(SavepointHandle(place));
    Ok(1)
}

fn rollback_to(lua: Lua) -> Result<i32, Error> {
    lua.check_not_aborted()?;
    lua.begin_again()?;
    let place = lua.userdata::<SavepointHandle>(1).map(|place| place.0);
    let Some(place) = place else { return Err(Error::here("Usage: box.rollback_to_savepoint(savepoint)")) };
    if !lua.in_transaction() {
        return Err(Error::Box {
            code: ErrorCode::NoSuchSavepoint.into(),
            message: ErrorCode::NoSuchSavepoint.template().to_owned(),
        });
    }
    lua.with_instance(|instance| instance.rollback_to(place))?;
    Ok(0)
}

/// `is_live(savepoint)`: whether its transaction is open, and has not gone back before it.
fn is_live(lua: Lua) -> Result<i32, Error> {
    let place = lua.userdata::<SavepointHandle>(1).map(|place| place.0);
    let Some(place) = place else { return Err(Error::here("usage: is_live(savepoint)")) };
    let is_live = lua.with_instance(|instance| Ok(instance.is_live(place)))?;
    lua.push_bool(is_live);
    Ok(1)
}

fn in_txn(lua: Lua) -> Result<i32, Error> {
    lua.push_bool(lua.in_transaction());
    Ok(1)
}
fn wait_durable(lua: Lua) -> Result<i32, Error> {
    lua.wait_durable()?;
    Ok(0)
}
