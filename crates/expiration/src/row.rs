//! Tasks as rows of the space `_expiration`, and as the maps that calls return.
//!
//! The space is an ordinary one, made when the first task is to be kept, so that a Tarantool opens the data folder
//! and shows it. A row is `[name, space id, options]`. Changing the rows changes the tasks.

use std::ops::ControlFlow;

use lycosa_store::ddl::{self, FieldSpec, IndexSpec, PartSpec, SpaceSpec};
use lycosa_store::{IteratorType, Space, SpaceId, Statement, Store};
use lycosa_tuple::mp;
use lycosa_tuple::value::Value;

use crate::arguments::{self, Options};
use crate::definition::{Archive, Definition, Field, SPACE_NAME};
use crate::error::Error;

const FIELDS: [FieldSpec<'static>; 3] = [
    FieldSpec { name: "name", ty: "string", nullable: false },
    FieldSpec { name: "space_id", ty: "unsigned", nullable: false },
    FieldSpec { name: "options", ty: "map", nullable: false },
];

/// The options of a definition, as [`arguments::definition`] reads them.
pub(crate) fn options(definition: &Definition) -> Value {
    let Definition { field, unit, index, delete_by, scan_size, scan_time, budget, archive, .. } = definition;
    let mut pairs: Vec<(Value, Value)> = Vec::new();
    let mut add = |name: &str, value: Value| pairs.push((name.into(), value));
    match field {
        Field::Number(number) => add("field", (*number).into()),
        Field::Name(name) => add("field", name.as_str().into()),
    }
    add("unit", unit.name().into());
    add("index", (*index).into());
    add("delete_by", (*delete_by).into());
    add("scan_size", (*scan_size).into());
    add("scan_time", (*scan_time).into());
    add("budget_rows", budget.rows.into());
    add("budget_us", budget.microseconds.into());
    add("share", budget.share.into());
    add("lag_limit", Value::Double(definition.lag_limit as f64 / 1e6));
    match archive {
        Some(Archive::Tube(tube)) => add("archive_tube", tube.as_str().into()),
        Some(Archive::Space(space)) => add("archive_space", (*space).into()),
        None => {}
    }
    Value::Map(pairs)
}

/// The space of the tasks, if there is one.
pub(crate) fn space(store: &Store) -> Option<&Space> {
    store.space_by_name(SPACE_NAME)
}

fn find_or_create(store: &mut Store) -> Result<SpaceId, Error> {
    if let Some(space) = space(store) {
        return Ok(space.id());
    }
    let id = ddl::create_space(store, &SpaceSpec::new(SPACE_NAME, &FIELDS))?;
    let parts = [PartSpec::new(0, "string")];
    ddl::create_index(store, id, &IndexSpec::new("name", &parts))?;
    Ok(id)
}

/// Adds the task's row, in the open transaction.
pub(crate) fn insert(store: &mut Store, definition: &Definition) -> Result<(), Error> {
    let space = find_or_create(store)?;
    let row =
        Value::Array(vec![definition.name.as_str().into(), definition.space.into(), options(definition)]);
    store.execute(&Statement::Replace { space, tuple: &row.encode() })?;
    Ok(())
}

/// Removes the task's row, in the open transaction.
pub(crate) fn delete(store: &mut Store, name: &str) -> Result<(), Error> {
    let Some(space) = space(store).map(Space::id) else { return Ok(()) };
    let mut key = Vec::new();
    mp::write_array(&mut key, 1);
    mp::write_str(&mut key, name.as_bytes());
    store.execute(&Statement::Delete { space, index: 0, key: &key })?;
    Ok(())
}

/// The definitions of all rows. A row that is none goes to `refuse`.
pub(crate) fn load(store: &Store, refuse: &mut dyn FnMut(String)) -> Vec<Definition> {
    let mut definitions = Vec::new();
    let Some(space) = space(store) else { return definitions };
    let mut read = |tuple: &[u8]| {
        match decode(store, tuple) {
            Ok(definition) => definitions.push(definition),
            Err(error) => refuse(error.to_string()),
        }
        ControlFlow::Continue(())
    };
    if let Err(error) = store.scan(space.id(), 0, IteratorType::All, &[0x90], &mut read) {
        refuse(error.to_string());
    }
    definitions
}

fn decode(store: &Store, tuple: &[u8]) -> Result<Definition, Error> {
    let row = Value::decode(tuple).map_err(|error| Error::illegal(error.to_string()))?;
    let fields = row.as_array().unwrap_or_default();
    let (Some(name), Some(space)) =
        (fields.first().and_then(Value::as_str), fields.get(1).and_then(Value::as_u64))
    else {
        return Err(Error::illegal(format!(
            "the row {row:?} of {SPACE_NAME} is not [name, space id, options]"
        )));
    };
    let space = SpaceId::try_from(space)
        .map_err(|_| Error::illegal(format!("the row of task '{name}' names a space that cannot be")))?;
    let options = Options::new(fields.get(2), arguments::STORED)?;
    arguments::definition(store, name, space, &options, &|_| Ok(()))
        .map_err(|error| Error::illegal(format!("the row of task '{name}' in {SPACE_NAME}: {error}")))
}
