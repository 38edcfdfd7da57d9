//! Native part of `box.execute`: plans, and their steps.

use lycosa_iproto::error::ErrorObject;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::value::Value;

use super::of_store;
use crate::api::{Lua, Native};
use crate::big_stack::on_big_stack;
use crate::error::Error;
use crate::sql::{self, Definition, Inserted, Plan, Run, Step};

pub(super) const FUNCTIONS: &[(&str, Native)] = &[
    ("sql_definition", definition),
    ("sql_plan", plan),
    ("sql_check", check),
    ("sql_info", info),
    ("sql_select", select),
    ("sql_changes", changes),
    ("sql_rows", rows),
];

/// A plan as Lua holds it.
struct Planned(Plan);

/// `sql_definition(text)`: `create`, the name, whether the space may exist, the fields, the keys and the field that a sequence
/// fills; or `drop`, the name and whether the space may be absent. Nothing for any other statement.
fn definition(lua: Lua) -> Result<i32, Error> {
    let text = lua.text(1).ok_or_else(|| Error::here("usage: sql_definition(text)"))?;
    match sql::definition(&text)? {
        None => Ok(0),
        Some(Definition::Drop { name, is_optional }) => {
            lua.push_str("drop");
            lua.push_str(&name);
            lua.push_bool(is_optional);
            Ok(3)
        }
        Some(Definition::Create { name, is_optional, fields, keys, sequence }) => {
            lua.push_str("create");
            lua.push_str(&name);
            lua.push_bool(is_optional);
            lua.new_table(fields.len(), 0);
            for (number, field) in (1..).zip(&fields) {
                lua.new_table(0, 3);
                lua.push_str(&field.name);
                lua.raw_set_field(-2, "name");
                lua.push_str(field.ty);
                lua.raw_set_field(-2, "type");
                lua.push_bool(field.nullable);
                lua.raw_set_field(-2, "is_nullable");
                lua.raw_set_item(-2, number);
            }
            lua.new_table(keys.len(), 0);
            for (number, key) in (1..).zip(&keys) {
                lua.new_table(key.len(), 0);
                for (place, field) in (1..).zip(key) {
                    lua.push_number(*field as f64);
                    lua.raw_set_item(-2, place);
                }
                lua.raw_set_item(-2, number);
            }
            match sequence {
                Some(field) => lua.push_number(field as f64),
                None => lua.push_nil(),
            }
            Ok(6)
        }
    }
}

/// `sql_plan(text)`: a statement that can run.
fn plan(lua: Lua) -> Result<i32, Error> {
    let text = lua.text(1).ok_or_else(|| Error::here("usage: sql_plan(text)"))?;
    let user = lua.session()?.caller.effective;
    let plan = lua.with_instance(|instance| sql::plan(&text, instance.store(), user))?;
    lua.new_class::<Planned>("sql_plan", &[], &[]);
    lua.pop(1);
    lua.push_userdata(Planned(plan));
    Ok(1)
}

/// `sql_check(plan)`: refuses who may not run it.
fn check(lua: Lua) -> Result<i32, Error> {
    let (plan, user) = (planned(&lua)?, lua.session()?.caller.effective);
    lua.with_instance(|instance| sql::check_plan(plan, instance.store(), user))?;
    Ok(0)
}

fn planned(lua: &Lua) -> Result<&Plan, Error> {
    Ok(&lua.userdata::<Planned>(1).ok_or_else(|| Error::here("the argument is no plan"))?.0)
}

/// `sql_info(plan)`: what it does (`select`, `insert`, `update` or `delete`), the names of its parameters, the metadata of a
/// SELECT, the version of the schema that it is good for, and the space.
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
    Ok(5)
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

/// Runs a plan to its end. Others run between its steps unless a transaction is open or `alone` says so.
fn run(lua: Lua, plan: &Plan, alone: bool) -> Result<Run, Error> {
    lua.check_not_aborted()?;
    let parameters = parameters(lua, 2)?;
    let user = lua.session()?.caller.effective;
    let mut run =
        lua.with_instance(|instance| on_big_stack(|| Run::new(plan, instance.store(), user, parameters)))?;
    while lua.with_instance(|instance| on_big_stack(|| run.step(plan, instance)))? == Step::More {
        if !alone && !lua.in_transaction() {
            lua.yield_now()?;
        }
    }
    Ok(run)
}

/// `sql_select(plan, parameters)`: metadata and rows. What it has read is durable.
fn select(lua: Lua) -> Result<i32, Error> {
    let plan = planned(&lua)?;
    let run = run(lua, plan, false)?;
    push_metadata(lua, &run.metadata(plan));
    let rows = on_big_stack(|| run.into_rows(plan))?;
    lua.new_table(rows.len(), 0);
    for (number, row) in (1..).zip(&rows) {
        lua.push_tuple(row)?;
        lua.raw_set_item(-2, number);
    }
    Ok(2)
}

/// `sql_changes(plan, parameters)`: keys of the tuples that an UPDATE or DELETE changes, and the operations.
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

/// `sql_rows(plan, parameters)` returns five values about an INSERT. The first two are its tuples and their primary keys. The
/// third says what becomes of a key that is taken: `fail`, `replace` or `ignore`. The last two are the number of the field,
/// from 1, that a sequence fills (or `nil`), and which tuples it fills.
fn rows(lua: Lua) -> Result<i32, Error> {
    lua.check_not_aborted()?;
    let plan = planned(&lua)?;
    let parameters = parameters(lua, 2)?;
    let Inserted { tuples, conflict, sequence } = on_big_stack(|| sql::inserted(plan, &parameters))?;
    let keys = lua.with_instance(|instance| {
        let space = instance.store().space(plan.space()).map_err(|error| of_store(&error))?;
        let key = space.index(0).map(lycosa_store::SpaceIndex::key);
        let keys = tuples.iter().map(|tuple| {
            let mut out = Vec::new();
            if let Some(key) = key {
                mp::write_array(&mut out, key.part_count());
                key.extract(tuple, &mut out);
            }
            out
        });
        Ok::<Vec<Vec<u8>>, ErrorObject>(keys.collect())
    })?;
    for list in [&tuples, &keys] {
        lua.new_table(list.len(), 0);
        for (number, tuple) in (1..).zip(list.iter()) {
            lua.push_tuple(tuple)?;
            lua.raw_set_item(-2, number);
        }
    }
    lua.push_str(conflict);
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
    Ok(5)
}
