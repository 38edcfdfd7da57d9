//! Native part of `box`: statements, reads, transactions and calls of the instance.

use std::cell::RefCell;

use lycosa_instance::{Called, Instance, Invoke, InvokeKind, Lsn, Select};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_store::{Access, Budget, Cursor, Hooks, IteratorType, Object, Progress, Statement, user};
use lycosa_tuple::format::Format;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::update;
use lycosa_tuple::value::Value;

use crate::api::{Kind, Lua};
use crate::error::Error;
use crate::host::to_error;

/// A walk over an index that survives changes.
struct Walk {
    cursor: RefCell<Cursor>,
}

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_class::<Walk>("cursor", &[], &[]);
    lua.pop(1);
    lua.new_library(&[
        ("configured", configured),
        ("configure", configure),
        ("select", select),
        ("get", get),
        ("count", count),
        ("bsize", bsize),
        ("execute", execute),
        ("set_hooked", set_hooked),
        ("cursor", cursor),
        ("advance", advance),
        ("begin", begin),
        ("commit", commit),
        ("rollback", rollback),
        ("savepoint", savepoint),
        ("rollback_to", rollback_to),
        ("in_txn", in_txn),
        ("call", call),
        ("schema_version", schema_version),
        ("session", session),
        ("push", push),
        ("wait_durable", wait_durable),
        ("set_error_maker", set_error_maker),
        ("set_tuple_type", set_tuple_type),
        ("tuple_new", tuple_new),
        ("tuple_field", tuple_field),
        ("tuple_len", tuple_len),
        ("tuple_table", tuple_table),
        ("tuple_display", tuple_display),
        ("tuple_update", tuple_update),
        ("tuple_equal", tuple_equal),
        ("exit", exit),
        ("read_line", read_line),
        ("memory", memory),
        ("observe", observe),
        ("set_native_queue", set_native_queue),
    ]);
    Ok(1)
}

/// Defines the global `box`.
pub(crate) fn define_box(lua: Lua) -> Result<(), Error> {
    lua.push_global("require");
    lua.push_str("box");
    lua.call(1, 0)?;
    lua.push_global("require");
    lua.push_str("lycosa.program");
    lua.call(1, 0)
}

// ---- arguments

/// An index as a number of C.
fn id(lua: Lua, index: i32, what: &str) -> Result<u32, Error> {
    let number = lua.integer(index).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| Error::here(format!("{what} is not a number from 0 to 4294967295")))
}

/// A key: a table, a tuple, a scalar, or nothing.
fn key(lua: Lua, index: i32) -> Result<Vec<u8>, Error> {
    if let Some(tuple) = lua.tuple(index) {
        return Ok(tuple.to_vec());
    }
    let mut out = Vec::new();
    match lua.kind(index) {
        Kind::None | Kind::Nil => mp::write_array(&mut out, 0),
        Kind::Table => lua.encode(index, &mut out)?,
        _ => {
            mp::write_array(&mut out, 1);
            lua.encode(index, &mut out)?;
        }
    }
    Ok(out)
}

/// A tuple: a `box.tuple` or a table.
fn tuple(lua: Lua, index: i32) -> Result<Vec<u8>, Error> {
    match lua.kind(index) {
        Kind::Table | Kind::Cdata if !lua.is_null(index) => key(lua, index),
        _ => Err(Error::Box {
            code: ErrorCode::TupleNotArray.into(),
            message: "Tuple/Key must be MsgPack array".to_owned(),
        }),
    }
}

fn iterator(lua: Lua, index: i32) -> Result<IteratorType, Error> {
    let number = id(lua, index, "the iterator")?;
    IteratorType::try_from(number).map_err(|_| Error::Box {
        code: ErrorCode::IllegalParams.into(),
        message: "Illegal parameters, Invalid iterator type".to_owned(),
    })
}

// ---- configuration

fn configured(lua: Lua) -> Result<i32, Error> {
    let known = lua.host().is_ok_and(|host| host.instance().is_some());
    lua.push_bool(known);
    Ok(1)
}

/// `configure(options)`: `box.cfg` with a checked table.
fn configure(lua: Lua) -> Result<i32, Error> {
    let mut bytes = Vec::new();
    lua.encode(1, &mut bytes)?;
    let options = match Value::decode(&bytes) {
        Ok(Value::Map(options)) => options,
        _ => Vec::new(),
    };
    let options: Vec<(String, Value)> = options
        .into_iter()
        .map(|(name, value)| (name.as_str().unwrap_or_default().to_owned(), value))
        .collect();
    let host = lua.host()?;
    if !host.configure(&options, lua.ticket()?).map_err(Error::Text)? {
        let _ = lua.park(None)?;
        host.configured().map_err(Error::Text)?;
    }
    Ok(0)
}

// ---- reading

/// `select(space, index, iterator, key, offset, limit)`: a table of tuples.
fn select(lua: Lua) -> Result<i32, Error> {
    let (space, index) = (id(lua, 1, "the space")?, id(lua, 2, "the index")?);
    let iterator = iterator(lua, 3)?;
    let key = key(lua, 4)?;
    let offset = lua.integer(5).and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    let limit = lua.integer(6).and_then(|number| u64::try_from(number).ok()).unwrap_or(u64::MAX);
    let user = lua.session()?.caller.effective;
    let mut out = Vec::new();
    let count = lua.with_instance(|instance| {
        let select = Select { space, index, iterator, key: &key, offset, limit };
        instance.select(user, &select, &mut out)
    })?;
    let mut reader = Reader::new(&out);
    lua.new_table(count as usize, 0);
    for number in 1..=count {
        lua.push_tuple_of(space, reader.raw().unwrap_or(&[0x90]))?;
        lua.raw_set_item(-2, i32::try_from(number).unwrap_or(i32::MAX));
    }
    Ok(1)
}

fn check_read(instance: &Instance, user: u32, space: u32) -> Result<(), ErrorObject> {
    let checked = instance.store().check_access(user, Object::Space(space), Access::READ);
    checked.map_err(|error| of_store(&error))
}

fn of_store(error: &lycosa_store::Error) -> ErrorObject {
    lycosa_instance::store_error(error)
}

/// `get(space, index, key)`
fn get(lua: Lua) -> Result<i32, Error> {
    let (space, index) = (id(lua, 1, "the space")?, id(lua, 2, "the index")?);
    let key = key(lua, 3)?;
    let user = lua.session()?.caller.effective;
    let found = lua.with_instance(|instance| {
        check_read(instance, user, space)?;
        let store = instance.read(space, index)?;
        let found = store.get(space, index, &key).map_err(|error| of_store(&error))?;
        Ok(found.map(<[u8]>::to_vec))
    })?;
    let Some(tuple) = found else { return Ok(0) };
    lua.push_tuple_of(space, &tuple)?;
    Ok(1)
}

/// `count(space, index, iterator, key)`
fn count(lua: Lua) -> Result<i32, Error> {
    let (space, index) = (id(lua, 1, "the space")?, id(lua, 2, "the index")?);
    let iterator = iterator(lua, 3)?;
    let key = key(lua, 4)?;
    let user = lua.session()?.caller.effective;
    let count = lua.with_instance(|instance| {
        check_read(instance, user, space)?;
        let store = instance.read(space, index)?;
        store.count(space, index, iterator, &key).map_err(|error| of_store(&error))
    })?;
    lua.push_uint(count);
    Ok(1)
}

/// `bsize(space)`: bytes of its tuples.
fn bsize(lua: Lua) -> Result<i32, Error> {
    let space = id(lua, 1, "the space")?;
    let bytes = lua.with_instance(|instance| {
        let store = instance.read(space, 0)?;
        let walk = store.range(space, 0, IteratorType::All, &[0x90], 0).map_err(|error| of_store(&error))?;
        Ok(walk.map(|tuple| tuple.len() as u64).sum::<u64>())
    })?;
    lua.push_uint(bytes);
    Ok(1)
}

/// `cursor(space, index, iterator, key, offset)`
fn cursor(lua: Lua) -> Result<i32, Error> {
    let (space, index) = (id(lua, 1, "the space")?, id(lua, 2, "the index")?);
    let iterator = iterator(lua, 3)?;
    let key = key(lua, 4)?;
    let offset = lua.integer(5).and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    let user = lua.session()?.caller.effective;
    let cursor = Cursor::new(user, space, index, iterator, &key).with_offset(offset);
    lua.push_userdata(Walk { cursor: RefCell::new(cursor) });
    Ok(1)
}

/// `advance(cursor)`: the next tuple, nothing at the end.
fn advance(lua: Lua) -> Result<i32, Error> {
    let Some(walk) = lua.userdata::<Walk>(1) else { return Err(Error::here("the argument is no cursor")) };
    let mut cursor = walk.cursor.borrow_mut();
    let mut found = None;
    lua.with_instance(|instance| {
        let budget = Budget { rows: 1, bytes: 1 };
        loop {
            let step = instance.transaction(user::ADMIN, |store| {
                let advanced =
                    store.advance(&mut cursor, budget, &mut |tuple: &[u8]| found = Some(tuple.to_vec()));
                advanced.map_err(|error| match error {
                    lycosa_store::CursorError::Refused(error) => of_store(&error),
                    error => ErrorObject::lua(error.to_string()),
                })
            })?;
            if found.is_some() || step == Progress::End {
                return Ok(());
            }
        }
    })?;
    let space = cursor.space();
    drop(cursor);
    match found {
        Some(tuple) => lua.push_tuple_of(space, &tuple)?,
        None => lua.push_nil(),
    }
    Ok(1)
}

// ---- changing

/// `execute(kind, space, index, key or tuple, operations, hooked)`: the tuple of the reply; for a hooked space the old and
/// the new tuple too.
fn execute(lua: Lua) -> Result<i32, Error> {
    lua.check_not_aborted()?;
    let kind = lua.text(1).unwrap_or_default();
    let (space, index) = (id(lua, 2, "the space")?, id(lua, 3, "the index")?);
    let first = match kind.as_str() {
        "update" | "delete" => key(lua, 4)?,
        _ => tuple(lua, 4)?,
    };
    let mut operations = Vec::new();
    if matches!(kind.as_str(), "update" | "upsert") {
        operations = tuple(lua, 5)?;
    }
    let hooked = lua.truth(6);
    let user = lua.session()?.caller.effective;
    let mut out = Vec::new();
    let changed = lua.with_instance(|instance| {
        let (first, operations) = (first.as_slice(), operations.as_slice());
        let statement = match kind.as_str() {
            "insert" => Statement::Insert { space, tuple: first },
            "replace" => Statement::Replace { space, tuple: first },
            "update" => Statement::Update { space, index, key: first, operations, base: 1 },
            "upsert" => Statement::Upsert { space, tuple: first, operations, base: 1 },
            _ => Statement::Delete { space, index, key: first },
        };
        instance.execute(user, &statement, &mut out)?;
        if !hooked {
            return Ok(None);
        }
        let store = instance.store();
        let change = store.hooked_changes(None).next_back();
        Ok(change.map(|change| (change.gone().map(|old| old.to_vec()), change.came().map(<[u8]>::to_vec))))
    })?;
    if !hooked {
        lua.wait_durable()?;
    }
    if out.is_empty() {
        if changed.is_none() {
            return Ok(0);
        }
        lua.push_nil();
    } else {
        lua.push_tuple_of(space, &out)?;
    }
    let Some((old, new)) = changed else { return Ok(1) };
    for side in [old, new] {
        match side {
            Some(tuple) => lua.push_tuple_of(space, &tuple)?,
            None => lua.push_nil(),
        }
    }
    Ok(3)
}

/// `set_hooked(space, yes)`: changes of the space are noted for triggers.
fn set_hooked(lua: Lua) -> Result<i32, Error> {
    let space = id(lua, 1, "the space")?;
    let after = lua.truth(2);
    lua.with_instance(|instance| {
        instance.transaction(user::ADMIN, |store| {
            store.set_hooks(space, Hooks { before: false, after }).map_err(|error| of_store(&error))
        })
    })?;
    Ok(0)
}

fn begin(lua: Lua) -> Result<i32, Error> {
    lua.check_not_aborted()?;
    let user = lua.session()?.caller.effective;
    lua.with_instance(|instance| instance.begin(user))?;
    lua.set_transaction(true)?;
    Ok(0)
}

fn commit(lua: Lua) -> Result<i32, Error> {
    if let Err(error) = lua.check_not_aborted() {
        lua.set_transaction(false)?;
        return Err(error);
    }
    if !lua.in_transaction() {
        return Ok(0);
    }
    lua.set_transaction(false)?;
    let _: Lsn = lua.with_instance(Instance::commit)?;
    lua.wait_durable()?;
    Ok(0)
}

fn rollback(lua: Lua) -> Result<i32, Error> {
    let aborted = lua.check_not_aborted().is_err();
    if !lua.in_transaction() {
        return Ok(0);
    }
    lua.set_transaction(false)?;
    if !aborted {
        lua.with_instance(|instance| {
            instance.rollback();
            Ok(())
        })?;
    }
    Ok(0)
}

/// A savepoint as Lua holds it.
struct Place(lycosa_instance::Savepoint);

fn savepoint(lua: Lua) -> Result<i32, Error> {
    lua.check_not_aborted()?;
    if !lua.in_transaction() {
        return Err(Error::Box {
            code: ErrorCode::NoTransaction.into(),
            message: "No active transaction".to_owned(),
        });
    }
    let place = lua.with_instance(|instance| Ok(instance.savepoint()))?;
    lua.new_class::<Place>("savepoint", &[], &[]);
    lua.pop(1);
    lua.push_userdata(Place(place));
    Ok(1)
}

fn rollback_to(lua: Lua) -> Result<i32, Error> {
    lua.check_not_aborted()?;
    let place = lua.userdata::<Place>(1).map(|place| place.0);
    let Some(place) = place else { return Err(Error::here("Usage: box.rollback_to_savepoint(savepoint)")) };
    if !lua.in_transaction() {
        return Err(Error::Box {
            code: ErrorCode::NoTransaction.into(),
            message: "No active transaction".to_owned(),
        });
    }
    lua.with_instance(|instance| {
        instance.rollback_to(place);
        Ok(())
    })?;
    Ok(0)
}

fn in_txn(lua: Lua) -> Result<i32, Error> {
    lua.push_bool(lua.in_transaction());
    Ok(1)
}

/// `call(name, args)`: a native function; waits for its answer. Returns its values.
fn call(lua: Lua) -> Result<i32, Error> {
    lua.check_not_aborted()?;
    let name = lua.bytes(1).unwrap_or_default().to_vec();
    let mut args = Vec::new();
    encode_list(lua, 2, &mut args)?;
    let caller = lua.session()?.caller;
    let mut out = Vec::new();
    let called = lua.with_instance(|instance| instance.call(&caller, &name, &args, &mut out))?;
    let count = match called {
        Called::Done { count } => {
            lua.wait_durable()?;
            count
        }
        Called::Parked(request) => {
            let (count, values) = lua.wait_answer(request)?;
            lua.wait_durable()?;
            out = values;
            count
        }
    };
    push_values(lua, count, &out)
}

/// The table at `index`, whose field `n` counts its items, as an array.
fn encode_list(lua: Lua, index: i32, out: &mut Vec<u8>) -> Result<(), Error> {
    lua.raw_field(index, "n");
    let count = lua.number(-1).map_or(lua.raw_len(index) as u32, |count| count as u32);
    lua.pop(1);
    mp::write_array(out, count);
    for number in 1..=count {
        lua.raw_item(index, i32::try_from(number).unwrap_or(i32::MAX));
        lua.encode(-1, out)?;
        lua.pop(1);
    }
    Ok(())
}

fn push_values(lua: Lua, count: u32, bytes: &[u8]) -> Result<i32, Error> {
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    lua.reserve(count)?;
    let mut reader = Reader::new(bytes);
    for _ in 0..count {
        lua.decode(&mut reader)?;
    }
    Ok(count)
}

fn wait_durable(lua: Lua) -> Result<i32, Error> {
    lua.wait_durable()?;
    Ok(0)
}

fn schema_version(lua: Lua) -> Result<i32, Error> {
    let version = lua.with_instance(|instance| Ok(instance.store().schema_version()))?;
    lua.push_number(f64::from(version));
    Ok(1)
}

// ---- sessions

/// Returns number, peer, user's number, effective user's number of the session.
fn session(lua: Lua) -> Result<i32, Error> {
    let session = lua.session()?;
    lua.push_uint(session.caller.session);
    lua.push_str(&session.peer);
    lua.push_number(f64::from(session.caller.user));
    lua.push_number(f64::from(session.caller.effective));
    Ok(4)
}

/// `push(value)`: `box.session.push`
fn push(lua: Lua) -> Result<i32, Error> {
    let mut value = Vec::new();
    lua.encode(1, &mut value)?;
    let request = lua.session()?.request.ok_or_else(|| Error::Box {
        code: ErrorCode::Unsupported.into(),
        message: "Session 'background' does not support push()".to_owned(),
    })?;
    lua.with_instance(|instance| instance.push(request, &value))?;
    lua.host()?.touch();
    lua.push_bool(true);
    Ok(1)
}

// ---- the process

fn exit(lua: Lua) -> Result<i32, Error> {
    let code = lua.number(1).unwrap_or(0.0) as i32;
    lua.host()?.exit(code);
    // Nothing of the program runs any more.
    loop {
        let _ = lua.park(None)?;
    }
}

fn read_line(lua: Lua) -> Result<i32, Error> {
    let host = lua.host()?;
    loop {
        let ticket = lua.ticket()?;
        if let Some(line) = host.read_line(ticket) {
            match line {
                Some(line) => lua.push_str(line),
                None => lua.push_nil(),
            }
            return Ok(1);
        }
        let _ = lua.park(None)?;
        lua.test_cancel()?;
    }
}

fn memory(lua: Lua) -> Result<i32, Error> {
    lua.push_number(lua.shared().used.get() as f64);
    Ok(1)
}

/// `observe(tube, yes)`: changes of the tube's tasks are told to `task_changed`.
fn observe(lua: Lua) -> Result<i32, Error> {
    let (tube, observed) = (lua.text(1).unwrap_or_default(), lua.truth(2));
    let known = lua.with_instance(|instance| Ok(instance.observe(&tube, observed)))?;
    lua.push_bool(known);
    Ok(1)
}

/// `set_native_queue(yes)`: whether clients mean the native queue by `queue.*`.
fn set_native_queue(lua: Lua) -> Result<i32, Error> {
    let native = lua.truth(1);
    lua.with_instance(|instance| {
        instance.set_native_queue(native);
        Ok(())
    })?;
    Ok(0)
}

// ---- errors and tuples

fn set_error_maker(lua: Lua) -> Result<i32, Error> {
    lua.set_top(1);
    let maker = lua.pop_ref();
    let former = lua.shared().make_error.replace(Some(maker));
    drop(former);
    Ok(0)
}

fn set_tuple_type(lua: Lua) -> Result<i32, Error> {
    let mut types = lua.shared().types.get();
    types.tuple = id(lua, 1, "the type")?;
    lua.shared().types.set(types);
    Ok(0)
}

/// `tuple_new(table, space)`
fn tuple_new(lua: Lua) -> Result<i32, Error> {
    let bytes = key(lua, 1)?;
    let space = lua.number(2).unwrap_or(0.0) as u32;
    lua.push_tuple_of(space, &bytes)?;
    Ok(1)
}

fn tuple_at(lua: &Lua, index: i32) -> Result<&[u8], Error> {
    lua.tuple(index).ok_or_else(|| Error::here("the argument is no tuple"))
}

/// `tuple_field(tuple, number)`: a field from 1; nothing beyond the end.
fn tuple_field(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?;
    let number = lua.number(2).unwrap_or(0.0);
    if !(1.0..=4_294_967_295.0).contains(&number) {
        lua.push_nil();
        return Ok(1);
    }
    match TupleRef::trusted(bytes).field(number as u32 - 1) {
        Some(field) => lua.decode(&mut Reader::new(field))?,
        None => lua.push_nil(),
    }
    Ok(1)
}

fn tuple_len(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?;
    lua.push_number(f64::from(TupleRef::trusted(bytes).len()));
    Ok(1)
}

/// The tuple as a table of its fields.
fn tuple_table(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?.to_vec();
    lua.decode(&mut Reader::new(&bytes))?;
    Ok(1)
}

fn tuple_equal(lua: Lua) -> Result<i32, Error> {
    let same = matches!((lua.tuple(1), lua.tuple(2)), (Some(one), Some(other)) if one == other);
    lua.push_bool(same);
    Ok(1)
}

/// `tuple_update(tuple, operations, space)`
fn tuple_update(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?.to_vec();
    let operations = tuple(lua, 2)?;
    let space = lua.number(3).unwrap_or(0.0) as u32;
    let updated =
        update::apply(&operations, TupleRef::trusted(&bytes), &Format::default(), 1, update::Mode::Update);
    let updated = updated.map_err(|error| to_error(of_store(&lycosa_store::Error::Update(error))))?;
    lua.push_tuple_of(space, &updated)?;
    Ok(1)
}

/// The tuple as `tostring` shows it: `[1, 'a', {'b': 2}]`.
fn tuple_display(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?;
    let mut text = String::new();
    display(&mut Reader::new(bytes), &mut text, 0);
    lua.push_str(text);
    Ok(1)
}

fn display(reader: &mut Reader<'_>, out: &mut String, depth: usize) {
    use std::fmt::Write as _;
    if depth > crate::MAX_NESTING {
        let _ = reader.skip();
        out.push_str("...");
        return;
    }
    match reader.kind() {
        Ok(mp::Kind::Array) => {
            let count = reader.array().unwrap_or(0);
            out.push('[');
            for number in 0..count {
                if number > 0 {
                    out.push_str(", ");
                }
                display(reader, out, depth + 1);
            }
            out.push(']');
        }
        Ok(mp::Kind::Map) => {
            let count = reader.map().unwrap_or(0);
            out.push('{');
            for number in 0..count {
                if number > 0 {
                    out.push_str(", ");
                }
                display(reader, out, depth + 1);
                out.push_str(": ");
                display(reader, out, depth + 1);
            }
            out.push('}');
        }
        _ => match Value::read(reader) {
            Ok(Value::Nil) => out.push_str("null"),
            Ok(Value::Bool(value)) => {
                let _ = write!(out, "{value}");
            }
            Ok(Value::Uint(value)) => {
                let _ = write!(out, "{value}");
            }
            Ok(Value::Int(value)) => {
                let _ = write!(out, "{value}");
            }
            Ok(Value::Float(value)) => {
                let _ = write!(out, "{value}");
            }
            Ok(Value::Double(value)) => {
                let _ = write!(out, "{value}");
            }
            Ok(Value::Str(text)) => {
                let text = String::from_utf8_lossy(&text).replace('\'', "''");
                {
                    let _ = write!(out, "'{text}'");
                };
            }
            Ok(Value::Bin(_)) => out.push_str("!!binary"),
            Ok(_) => out.push_str("..."),
            Err(_) => out.push('?'),
        },
    }
}

// ---- requests of clients

/// Runs CALL or EVAL and answers the request.
pub(crate) fn run_invoke(lua: Lua, invoke: &Invoke) -> Result<i32, Error> {
    let result = invoke_values(lua, invoke);
    // A program that leaves a transaction open has not committed it.
    if lua.in_transaction() {
        lua.set_top(0);
        let _ = rollback(lua);
    }
    let waited = lua.wait_durable();
    let result = match (result, waited) {
        (Ok(values), Ok(())) => Ok(values),
        (Err(error), _) | (_, Err(error)) => Err(error_object(lua, error)),
    };
    lua.with_instance(|instance| {
        match result {
            Ok((count, ref values)) => instance.finish_invoke(invoke.request, Ok((count, values))),
            Err(ref error) => instance.finish_invoke(invoke.request, Err(error.clone())),
        }
        Ok(())
    })?;
    lua.host()?.touch();
    Ok(0)
}

fn invoke_values(lua: Lua, invoke: &Invoke) -> Result<(u32, Vec<u8>), Error> {
    // `program.call(name, …)` or `program.eval(text, …)`
    lua.push_global("require");
    lua.push_str("lycosa.program");
    lua.call(1, 1)?;
    let (field, text) = match &invoke.kind {
        InvokeKind::Call { name } => ("call", name),
        InvokeKind::Eval { expression } => ("eval", expression),
    };
    lua.raw_field(-1, field);
    lua.remove(-2);
    lua.push_str(text);
    let mut reader = Reader::new(&invoke.args);
    let count = reader.array().map_err(|error| Error::text(error.to_string()))?;
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    lua.reserve(count)?;
    for _ in 0..count {
        lua.decode(&mut reader)?;
    }
    let below = lua.top() - count - 2;
    lua.call(count + 1, -1)?;
    let (mut values, top) = (Vec::new(), lua.top());
    for index in below + 1..=top {
        lua.encode(index, &mut values)?;
    }
    Ok(((top - below).unsigned_abs(), values))
}

/// The error of a program as a client sees it.
fn error_object(lua: Lua, error: Error) -> ErrorObject {
    match error {
        Error::Object(error) => *error,
        error => {
            error.push(lua);
            let index = lua.top();
            let object = (lua.kind(index) == Kind::Cdata).then(|| box_error(lua, index)).flatten();
            let object = object.unwrap_or_else(|| ErrorObject::lua(lua.display(index)));
            lua.set_top(index - 1);
            object
        }
    }
}

/// A `box.error` object's kind, code and text.
fn box_error(lua: Lua, index: i32) -> Option<ErrorObject> {
    let text = |name: &str| {
        lua.field(index, name).ok()?;
        let text = lua.text(-1);
        lua.pop(1);
        text
    };
    let (kind, message) = (text("type")?, text("message")?);
    lua.field(index, "code").ok()?;
    let code = lua.number(-1).unwrap_or(32.0) as u32;
    lua.pop(1);
    let mut object = ErrorObject::lua(message);
    object.kind = kind.into();
    object.code = code;
    Some(object)
}

/// Runs the triggers of `box.session.on_connect` or `on_disconnect`.
pub(crate) fn run_session_triggers(lua: Lua, connected: bool) -> Result<i32, Error> {
    lua.push_global("require");
    lua.push_str("lycosa.program");
    lua.call(1, 1)?;
    lua.raw_field(-1, if connected { "connected" } else { "disconnected" });
    lua.call(0, 0)?;
    Ok(0)
}

/// Runs the callback of a tube for a change of a task.
pub(crate) fn run_task_callback(lua: Lua, tube: &str, operation: &str, tuple: &[u8]) -> Result<i32, Error> {
    lua.push_global("require");
    lua.push_str("lycosa.box");
    lua.call(1, 1)?;
    lua.raw_field(-1, "task_changed");
    if lua.kind(-1) != Kind::Function {
        return Ok(0);
    }
    lua.push_str(tube);
    lua.push_str(operation);
    lua.push_tuple(tuple)?;
    lua.call(3, 0)?;
    Ok(0)
}
