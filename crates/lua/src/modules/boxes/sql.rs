//! Native part of `box.execute`: plans, and their steps; the bodies of replies to EXECUTE.

mod definitions;

use std::cell::RefCell;
use std::ops::ControlFlow;

use lycosa_instance::{Instance, WalkError};
use lycosa_iproto::error::ErrorObject;
use lycosa_iproto::keys;
use lycosa_sql::{self as sql, Advance, Asker, Inserted, Limits, Plan, Rows, Run};
use lycosa_store::{Access, Budget, Cursor, CursorError, Object, Progress, Store};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::value::Value;

use self::definitions::push_field;
use super::of_store;
use crate::api::{Lua, Native};
use crate::big_stack::{self, on_big_stack};
use crate::error::Error;
use crate::watchdog::check_time;

pub(super) const FUNCTIONS: &[(&str, Native)] = &[
    ("sql_definition", definitions::definition),
    ("sql_view_fields", view_fields),
    ("sql_collation", collation),
    ("sql_trigger", definitions::trigger),
    ("sql_renamed_trigger", definitions::renamed_trigger),
    ("sql_plan", plan),
    ("sql_check", check),
    ("sql_info", info),
    ("sql_hides", hides),
    ("sql_select", select),
    ("sql_body", body),
    ("sql_changes", changes),
    ("sql_rows", rows),
];

/// A plan as Lua holds it; the plan stays until the end.
struct Planned(Option<Plan>);

/// An expression is as deep as its text is long, and a finalizer runs on any stack.
impl Drop for Planned {
    fn drop(&mut self) {
        on_big_stack(|| drop(self.0.take()));
    }
}

/// The big stack is as large as the deepest statement needs.
const _: () = assert!(big_stack::SIZE >= sql::STACK);

impl From<sql::Error> for Error {
    fn from(error: sql::Error) -> Error {
        let object = match error {
            sql::Error::Statement(failure) => return failure.into(),
            sql::Error::Store(error) => of_store(&error),
        };
        Error::Object(Box::new(object))
    }
}

impl From<sql::SqlFault> for Error {
    fn from(failure: sql::SqlFault) -> Error {
        Error::Box { code: failure.code, message: failure.message }
    }
}

/// The instance, as statements read it.
struct OfInstance<'a>(&'a mut Instance);

impl Rows for OfInstance<'_> {
    type Refusal = Error;

    fn store(&self) -> &Store {
        self.0.store()
    }

    fn advance_while(
        &mut self,
        cursor: &mut Cursor,
        budget: Budget<'_>,
        f: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Progress, Advance<Error>> {
        self.0.advance_while(cursor, budget, f).map_err(|error| match error {
            WalkError::Cursor(CursorError::IndexAltered { .. }) => Advance::IndexAltered,
            error => Advance::Refused(Error::Object(Box::new(error.into()))),
        })
    }
}

/// The body of a reply: a MessagePack map.
pub(super) struct SqlBody(pub(super) RefCell<Vec<u8>>);

/// `sql_view_fields(text)`: the format that a CREATE VIEW gives its view.
fn view_fields(lua: Lua) -> Result<i32, Error> {
    let text = lua.text(1).ok_or_else(|| Error::here("usage: sql_view_fields(text)"))?;
    let fields = asking(lua, |store, asker| Ok(on_big_stack(|| sql::fields_of_view(&text, store, asker))?))?;
    lua.new_table(fields.len(), 0);
    for (number, field) in (1..).zip(&fields) {
        push_field(lua, field);
        if field.collation != 0 {
            lua.push_number(field.collation as f64);
            lua.raw_set_field(-2, "collation");
        }
        lua.raw_set_item(-2, number);
    }
    Ok(1)
}

/// `sql_collation(name)`: the number of a collation.
fn collation(lua: Lua) -> Result<i32, Error> {
    let name = lua.text(1).ok_or_else(|| Error::here("usage: sql_collation(name)"))?;
    let id = asking(lua, |store, _| Ok(sql::collation_id(&name, store)?))?;
    lua.push_number(id as f64);
    Ok(1)
}

/// Looks at the store as the running fiber's user.
fn asking<T>(lua: Lua, look: impl FnOnce(&Store, Asker<'_>) -> Result<T, Error>) -> Result<T, Error> {
    let caller = lua.session()?.caller;
    lua.with_instance(|instance| {
        let is_hidden = |space| instance.hides_space(&caller, space);
        Ok(look(instance.store(), Asker { user: caller.effective, is_hidden: &is_hidden }))
    })?
}

/// `sql_plan(text)`: a statement that can run.
fn plan(lua: Lua) -> Result<i32, Error> {
    let text = lua.text(1).ok_or_else(|| Error::here("usage: sql_plan(text)"))?;
    let plan = asking(lua, |store, asker| Ok(on_big_stack(|| sql::plan(&text, store, asker))?))?;
    lua.new_class::<Planned>("sql_plan", &[], &[]);
    lua.pop(1);
    lua.push_userdata(Planned(Some(plan)));
    Ok(1)
}

/// `sql_check(plan)`: refuses who may not run it.
fn check(lua: Lua) -> Result<i32, Error> {
    let plan = planned(&lua)?;
    asking(lua, |store, asker| Ok(sql::check_plan(plan, store, asker)?))?;
    Ok(0)
}

/// `sql_hides(name, creates)`: whether the caller must not learn that the space exists. A caller that wants to create it
/// without the right to do so gets an error that names this right.
fn hides(lua: Lua) -> Result<i32, Error> {
    let name = lua.text(1).ok_or_else(|| Error::here("usage: sql_hides(name, creates)"))?;
    let creates = lua.truth(2);
    let is_hidden = asking(lua, |store, asker| {
        let Some(space) = store.space_by_name(&name) else { return Ok(false) };
        let is_hidden = (asker.is_hidden)(space.id());
        if is_hidden && creates && store.check_access(asker.user, Object::Universe, Access::CREATE).is_err() {
            let user =
                store.user(asker.user).map_or_else(|| asker.user.to_string(), |user| user.name.clone());
            return Err(Error::Object(Box::new(ErrorObject::access_denied("Create", "space", &name, &user))));
        }
        Ok(is_hidden)
    })?;
    lua.push_bool(is_hidden);
    Ok(1)
}

fn planned(lua: &Lua) -> Result<&Plan, Error> {
    let planned = lua.userdata::<Planned>(1).and_then(|planned| planned.0.as_ref());
    planned.ok_or_else(|| Error::here("the argument is no plan"))
}

/// `sql_info(plan)`: what it does (`select`, `insert`, `update` or `delete`), the names of its parameters, the metadata of a
/// SELECT, the version of the schema that it is good for, the space, and what it takes to keep the plan. The last value is what becomes
/// of a key that is taken: `abort`, `fail`, `rollback`, `replace` or `ignore`.
fn info(lua: Lua) -> Result<i32, Error> {
    let plan = planned(&lua)?;
    lua.push_str(match plan.kind() {
        None => "select",
        Some(lycosa_store::StatementKind::Insert) => "insert",
        Some(lycosa_store::StatementKind::Update) => "update",
        Some(_) => "delete",
    });
    lua.new_table(plan.parameters.len(), 0);
    for (number, name) in (1..).zip(&plan.parameters) {
        lua.push_str(name);
        lua.raw_set_item(-2, number);
    }
    push_metadata(lua, &sql::metadata(plan, None));
    lua.push_number(f64::from(plan.schema_version));
    lua.push_number(f64::from(plan.space()));
    lua.push_number(plan.weight as f64);
    lua.push_str(plan.conflict());
    Ok(7)
}

/// Pushes `{{name = …, type = …}, …}`.
fn push_metadata(lua: Lua, columns: &[(String, String)]) {
    lua.new_table(columns.len(), 0);
    for (number, (name, ty)) in (1..).zip(columns) {
        lua.new_table(0, 2);
        lua.push_str(name);
        lua.raw_set_field(-2, "name");
        lua.push_str(ty);
        lua.raw_set_field(-2, "type");
        lua.raw_set_item(-2, number);
    }
}

/// The parameters' values: the table at `index`, whose field `n` counts them.
fn parameters(lua: Lua, index: i32) -> Result<Vec<Value>, Error> {
    let mut bytes = Vec::new();
    super::call::encode_list(lua, index, &mut bytes)?;
    match Value::decode(&bytes) {
        Ok(Value::Array(values)) => Ok(values),
        _ => Err(Error::text("a parameter's value is nested too deeply")),
    }
}

/// What the statement may take. `index` says whether it is a client's request. Clients that may run programs may do with SQL
/// what a program does, but for the size of a result.
fn limits(lua: Lua, index: i32) -> Result<Limits, Error> {
    if !lua.truth(index) {
        return Ok(Limits::PROGRAM);
    }
    let runs_programs = asking(lua, |store, asker| {
        Ok(store.check_access(asker.user, Object::Universe, Access::EXECUTE).is_ok())
    })?;
    Ok(if runs_programs { Limits::TRUSTED_CLIENT } else { Limits::CLIENT })
}

/// Bounds the work of check constraints on the rows that the statement changes: they are changed without a pause.
fn limit_checks(lua: Lua, limits: Limits) -> Result<(), Error> {
    let Some((units, _)) = limits.whole else { return Ok(()) };
    lua.with_instance(|instance| {
        instance.store().limit_check_work(units);
        Ok(())
    })
}

/// Runs a plan to its end. Others run between its steps unless a transaction is open or `alone` says so; then the watchdog's
/// budget is looked at between them.
fn run(lua: Lua, plan: &Plan, alone: bool) -> Result<Run, Error> {
    lua.join_transaction()?;
    let (limits, parameters, is_of_client) = (limits(lua, 3)?, parameters(lua, 2)?, lua.truth(3));
    limit_checks(lua, limits)?;
    let user = lua.session()?.caller.effective;
    let mut run = lua.with_instance(|instance| {
        Ok(on_big_stack(|| Run::new(plan, instance.store(), user, parameters, limits)))
    })??;
    let mut step = |lua: Lua| {
        lua.with_instance(|instance| Ok(on_big_stack(|| run.step(plan, &mut OfInstance(instance)))))?
    };
    while step(lua)? == Progress::More {
        if alone || lua.in_transaction() {
            check_time(lua)?;
        } else {
            lua.yield_now()?;
            if is_of_client {
                check_awaited(lua)?;
            }
        }
    }
    Ok(run)
}

/// Ends the statement of a request whose connection has closed. A statement of a program goes on, as the program does.
fn check_awaited(lua: Lua) -> Result<(), Error> {
    let Some(request) = lua.session()?.request else { return Ok(()) };
    let is_awaited = lua.with_instance(|instance| Ok(instance.is_awaited(request)))?;
    if is_awaited { Ok(()) } else { Err(Error::Cancelled) }
}

/// `sql_select(plan, parameters, of_client)`: metadata and rows. What it has read is durable.
fn select(lua: Lua) -> Result<i32, Error> {
    let plan = planned(&lua)?;
    let run = run(lua, plan, false)?;
    push_metadata(lua, &run.metadata(plan));
    let (count, rows) = run.rows();
    lua.new_table(count as usize, 0);
    let mut reader = Reader::new(rows);
    for number in 1..=i32::try_from(count).unwrap_or(i32::MAX) {
        lua.push_tuple(reader.raw().unwrap_or(&[0x90]))?;
        lua.raw_set_item(-2, number);
    }
    Ok(2)
}

/// `sql_body(plan, parameters, of_client)`: the body of the reply to a SELECT. The rows never become values of Lua.
fn body(lua: Lua) -> Result<i32, Error> {
    let plan = planned(&lua)?;
    let run = run(lua, plan, false)?;
    let (count, rows) = run.rows();
    let columns = run.metadata(plan);
    let mut body = Vec::with_capacity(rows.len() + 64 * columns.len() + 16);
    mp::write_map(&mut body, 2);
    mp::write_uint(&mut body, u64::from(keys::METADATA));
    mp::write_array(&mut body, u32::try_from(columns.len()).unwrap_or(u32::MAX));
    for (name, ty) in &columns {
        mp::write_map(&mut body, 2);
        for (key, text) in [(0, name), (1, ty)] {
            mp::write_uint(&mut body, key);
            mp::write_str(&mut body, text.as_bytes());
        }
    }
    mp::write_uint(&mut body, u64::from(keys::DATA));
    mp::write_array(&mut body, count);
    body.extend_from_slice(rows);
    lua.new_class::<SqlBody>("sql_body", &[], &[]);
    lua.pop(1);
    lua.push_userdata(SqlBody(RefCell::new(body)));
    Ok(1)
}

/// `sql_changes(plan, parameters, of_client)`: keys of the tuples that an UPDATE or DELETE changes, and the operations.
fn changes(lua: Lua) -> Result<i32, Error> {
    let plan = planned(&lua)?;
    let changes = run(lua, plan, true)?.into_changes();
    lua.new_table(changes.len(), 0);
    lua.new_table(changes.len(), 0);
    for (number, change) in (1..).zip(&changes) {
        lua.push_tuple(&change.key)?;
        lua.raw_set_item(-3, number);
        if !change.operations.is_empty() {
            lua.push_tuple(&change.operations)?;
            lua.raw_set_item(-2, number);
        }
    }
    Ok(2)
}

/// `sql_rows(plan, parameters, of_client)`: the tuples of an INSERT, the number of the field, from 1, that a sequence fills (or `nil`), and
/// which tuples it fills.
fn rows(lua: Lua) -> Result<i32, Error> {
    lua.join_transaction()?;
    let plan = planned(&lua)?;
    let Inserted { tuples, sequence } = if plan.inserts_query() {
        let run = run(lua, plan, true)?;
        sql::inserted_of_query(plan, &run, limits(lua, 3)?)?
    } else {
        let (limits, parameters) = (limits(lua, 3)?, parameters(lua, 2)?);
        limit_checks(lua, limits)?;
        on_big_stack(|| sql::inserted(plan, &parameters, limits))?
    };
    lua.new_table(tuples.len(), 0);
    for (number, tuple) in (1..).zip(&tuples) {
        lua.push_tuple(tuple)?;
        lua.raw_set_item(-2, number);
    }
    match sequence {
        Some(field) => lua.push_number(f64::from(field) + 1.0),
        None => lua.push_nil(),
    }
    // The field that a sequence fills is NULL in these rows.
    lua.new_table(tuples.len(), 0);
    for (number, tuple) in (1..).zip(&tuples) {
        let field = sequence.and_then(|field| lycosa_tuple::tuple::TupleRef::trusted(tuple).field(field));
        lua.push_bool(field.is_some_and(|field| matches!(Reader::new(field).kind(), Ok(mp::Kind::Nil))));
        lua.raw_set_item(-2, number);
    }
    Ok(3)
}
