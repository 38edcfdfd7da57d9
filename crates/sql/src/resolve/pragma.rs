//! PRAGMA: questions about spaces, indexes and foreign keys. The answer is a plan of constant rows, with Tarantool's columns.

use lycosa_store::{IteratorType, Space, Store, system};
use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;
use sqlparser::ast::{self, ObjectName};

use super::explain::{UNKEPT, constant_rows};
use super::names::Catalog;
use super::{function_name, unsupported};
use crate::SqlFault;
use crate::rewrite::PRAGMA_SEPARATOR;
use crate::tree::Plan;

/// `ER_SQL_NO_SUCH_PRAGMA` of Tarantool 2.6.
const NO_SUCH_PRAGMA: u32 = 175;

/// The index of `_fk_constraint` by the child.
const BY_CHILD: u32 = 1;

type Columns = &'static [(&'static str, &'static str)];

/// The columns of a pragma, in the order of the names of pragmas.
const PRAGMAS: [(&str, Columns); 5] = [
    ("COLLATION_LIST", &[("seq", "integer"), ("name", "text")]),
    (
        "FOREIGN_KEY_LIST",
        &[
            ("id", "integer"),
            ("seq", "integer"),
            ("table", "text"),
            ("from", "text"),
            ("to", "text"),
            ("on_update", "text"),
            ("on_delete", "text"),
            ("match", "text"),
        ],
    ),
    (
        "INDEX_INFO",
        &[
            ("seqno", "integer"),
            ("cid", "integer"),
            ("name", "text"),
            ("desc", "integer"),
            ("coll", "text"),
            ("type", "text"),
        ],
    ),
    ("INDEX_LIST", &[("seq", "integer"), ("name", "text"), ("unique", "integer")]),
    (
        "TABLE_INFO",
        &[
            ("cid", "integer"),
            ("name", "text"),
            ("type", "text"),
            ("notnull", "integer"),
            ("dflt_value", "text"),
            ("pk", "integer"),
        ],
    ),
];

/// The plan that answers a PRAGMA. A space that does not exist, or that the user must not know of, has no rows.
pub(super) fn plan_of(
    name: &ObjectName,
    argument: Option<&ast::Value>,
    catalog: &Catalog<'_>,
) -> Result<Plan, SqlFault> {
    let name = function_name(name)?;
    let upper = name.to_uppercase();
    let Some((known, columns)) = PRAGMAS.iter().find(|(known, _)| *known == upper) else {
        if upper == "STATS" {
            return Err(unsupported("PRAGMA STATS"));
        }
        return Err(SqlFault::new(NO_SUCH_PRAGMA, format!("Pragma '{name}' does not exist")));
    };
    let argument = match argument {
        Some(ast::Value::SingleQuotedString(text)) => text.as_str(),
        _ => "",
    };
    let (table, index) = argument.split_once(PRAGMA_SEPARATOR).unwrap_or((argument, ""));
    let store = catalog.store;
    let space = store.space_by_name(table).filter(|space| !(catalog.asker().is_hidden)(space.id()));
    let of_space = |space| match *known {
        "FOREIGN_KEY_LIST" => foreign_keys(space, store),
        "INDEX_INFO" => parts(space, index, store),
        "INDEX_LIST" => indexes(space),
        _ => fields(space, store),
    };
    let rows =
        if *known == "COLLATION_LIST" { collations(store) } else { space.map_or_else(Vec::new, of_space) };
    Ok(Plan {
        parameters: Vec::new(),
        space: 0,
        filter: None,
        body: constant_rows(rows, columns),
        schema_version: store.schema_version(),
        weight: UNKEPT,
    })
}

fn number(number: usize) -> Value {
    Value::Uint(number as u64)
}

fn collations(store: &Store) -> Vec<Vec<Value>> {
    let rows = store.range(system::COLLATION, 0, IteratorType::All, &[0x90], 0);
    let names = rows.into_iter().flatten().filter_map(|row| decoded(row)?.into_iter().nth(1));
    names.enumerate().map(|(place, name)| vec![number(place), name]).collect()
}

fn fields(space: &Space, store: &Store) -> Vec<Vec<Value>> {
    let row = row_of(store, system::SPACE, &[space.id()]);
    let format = row.as_ref().and_then(|row| row.get(6)?.as_array()).unwrap_or_default();
    let key = space.index(0).map(|index| index.key().parts());
    let fields = space.format().fields().iter().enumerate();
    let row_of = |(place, field): (usize, &lycosa_tuple::format::FieldDef)| {
        let default = format.get(place).and_then(|field| field.get("default")).cloned();
        let in_key = match key {
            None => 1,
            Some(parts) => {
                parts.iter().position(|part| part.field as usize == place).map_or(0, |place| place + 1)
            }
        };
        vec![
            number(place),
            Value::str(field.name.as_str()),
            Value::str(field.ty.name()),
            number(usize::from(!field.nullable)),
            default.unwrap_or(Value::Nil),
            number(in_key),
        ]
    };
    fields.map(row_of).collect()
}

fn indexes(space: &Space) -> Vec<Vec<Value>> {
    let indexes = space.indexes().iter().enumerate();
    let row_of = |(place, index): (usize, &lycosa_store::SpaceIndex)| {
        vec![number(place), Value::str(index.name()), number(usize::from(index.is_unique()))]
    };
    indexes.map(row_of).collect()
}

fn parts(space: &Space, index: &str, store: &Store) -> Vec<Vec<Value>> {
    let Some(index) = space.index_by_name(index) else { return Vec::new() };
    let row = row_of(store, system::INDEX, &[space.id(), index.id()]);
    let defined = row.as_ref().and_then(|row| row.get(5)?.as_array()).unwrap_or_default();
    let row_of = |(place, part): (usize, &lycosa_tuple::key::KeyPart)| {
        let field = space.format().fields().get(part.field as usize);
        let collation = defined.get(place).and_then(|part| part.get("collation")?.as_u64());
        let collation = collation.and_then(|id| row_of(store, system::COLLATION, &[u32::try_from(id).ok()?]));
        let collation = collation.and_then(|row| row.get(1).cloned());
        vec![
            number(place),
            number(part.field as usize),
            Value::str(field.map_or("", |field| field.name.as_str())),
            number(0),
            collation.unwrap_or_else(|| Value::str("BINARY")),
            Value::str(field.map_or("any", |field| field.ty.name())),
        ]
    };
    index.key().parts().iter().enumerate().map(row_of).collect()
}

fn foreign_keys(space: &Space, store: &Store) -> Vec<Vec<Value>> {
    let (mut rows, mut child) = (Vec::new(), Vec::new());
    mp::write_array(&mut child, 1);
    mp::write_uint(&mut child, space.id().into());
    let keys = store.range(system::FK_CONSTRAINT, BY_CHILD, IteratorType::Eq, &child, 0);
    let keys: Vec<_> = keys.into_iter().flatten().filter_map(decoded).collect();
    let column = |space: Option<&Space>, number: &Value| {
        let number = number.as_u64().and_then(|number| usize::try_from(number).ok());
        let field = space.and_then(|space| space.format().fields().get(number?));
        Value::str(field.map_or("", |field| field.name.as_str()))
    };
    for (id, key) in keys.iter().enumerate() {
        let parent =
            key.get(2).and_then(Value::as_u64).and_then(|id| store.space(u32::try_from(id).ok()?).ok());
        let list = |place: usize| key.get(place).and_then(Value::as_array).unwrap_or_default();
        for (place, (own, other)) in list(7).iter().zip(list(8)).enumerate() {
            rows.push(vec![
                number(id),
                number(place),
                Value::str(parent.map_or("", Space::name)),
                column(Some(space), own),
                column(parent, other),
                key.get(6).cloned().unwrap_or(Value::Nil),
                key.get(5).cloned().unwrap_or(Value::Nil),
                Value::str("NONE"),
            ]);
        }
    }
    rows
}

fn decoded(row: &[u8]) -> Option<Vec<Value>> {
    match Value::decode(row) {
        Ok(Value::Array(fields)) => Some(fields),
        _ => None,
    }
}

/// A row of a system space by its primary key.
fn row_of(store: &Store, space: u32, key: &[u32]) -> Option<Vec<Value>> {
    let mut encoded = Vec::new();
    mp::write_array(&mut encoded, u32::try_from(key.len()).ok()?);
    key.iter().for_each(|part| mp::write_uint(&mut encoded, (*part).into()));
    decoded(TupleRef::trusted(store.get(space, 0, &encoded).ok()??).bytes())
}
