//! Definitions of SQL as tables of Lua.

use lycosa_sql::{self as sql, Definition, Field, ForeignKey, Key, KeyKind, Piece, Trigger};

use crate::api::Lua;
use crate::big_stack::on_big_stack;
use crate::error::Error;

/// `sql_definition(text)`: the words of a definition or of a step of a transaction, and nothing for any other statement.
///
/// - `create`: the name, whether the space may exist, the fields, the keys, the field that a sequence fills, the foreign keys,
///   the check constraints, and the engine;
/// - `create view`: the name, whether the space may exist, and the text of the statement;
/// - `drop`, `drop view`: the name, and whether the space may be absent;
/// - `truncate`: the name;
/// - `create index`, `drop index`: the name, whether the index may exist or be absent, and the space; then the fields of a new
///   index, whether it is unique, and the kind of constraint that an ALTER TABLE adds;
/// - `create trigger`, `drop trigger`: the name, whether the trigger may exist or be absent; then the new trigger;
/// - `add foreign key`: the space, `false`, and the key; `drop constraint`: the name, `false`, and the space;
/// - `add check`: the name, `false`, the space, and the text; `enable check`, `disable check`: the name, `false`, and the space;
/// - `rename`: the space, `false`, and the new name;
/// - a step of a transaction: the name of its savepoint.
pub(super) fn definition(lua: Lua) -> Result<i32, Error> {
    let text = lua.text(1).ok_or_else(|| Error::here("usage: sql_definition(text)"))?;
    let Some(definition) = on_big_stack(|| sql::definition(&text))? else { return Ok(0) };
    Ok(match definition {
        Definition::Create {
            name,
            is_optional,
            fields,
            collations,
            keys,
            sequence,
            foreign,
            checks,
            engine,
        } => {
            push_head(lua, "create", &name, is_optional);
            lua.new_table(fields.len(), 0);
            for (number, (field, collation)) in (1..).zip(fields.iter().zip(&collations)) {
                push_field(lua, field);
                push_optional(lua, collation.as_deref(), "collation");
                lua.raw_set_item(-2, number);
            }
            push_keys(lua, &keys);
            match sequence {
                Some(field) => lua.push_number(field as f64),
                None => lua.push_nil(),
            }
            lua.new_table(foreign.len(), 0);
            for (number, key) in (1..).zip(&foreign) {
                push_foreign_key(lua, key);
                lua.raw_set_item(-2, number);
            }
            lua.new_table(checks.len(), 0);
            for (number, (name, text)) in (1..).zip(&checks) {
                lua.new_table(0, 2);
                push_optional(lua, name.as_deref(), "name");
                push_optional(lua, Some(text), "text");
                lua.raw_set_item(-2, number);
            }
            match engine {
                Some(engine) => lua.push_str(&engine),
                None => lua.push_nil(),
            }
            9
        }
        Definition::Drop { name, is_optional, is_view } => {
            push_head(lua, if is_view { "drop view" } else { "drop" }, &name, is_optional)
        }
        Definition::CreateIndex { name, space, is_optional, is_unique, constraint, columns } => {
            push_head(lua, "create index", &name, is_optional);
            lua.push_str(&space);
            lua.new_table(columns.len(), 0);
            for (place, column) in (1..).zip(&columns) {
                lua.new_table(0, 2);
                push_optional(lua, Some(&column.field), "field");
                push_optional(lua, column.collation.as_deref(), "collation");
                lua.raw_set_item(-2, place);
            }
            lua.push_bool(is_unique);
            match constraint {
                Some(KeyKind::Primary) => lua.push_str("primary"),
                Some(KeyKind::Unique) => lua.push_str("unique"),
                None => lua.push_nil(),
            }
            7
        }
        Definition::Transaction(step, name) => {
            lua.push_str(step);
            match name {
                Some(name) => lua.push_str(&name),
                None => lua.push_nil(),
            }
            2
        }
        other => smaller(lua, &other),
    })
}

/// Pushes a definition of a name, a truth and at most one value more.
fn smaller(lua: Lua, definition: &Definition) -> i32 {
    let (kind, name, is_optional, last) = match definition {
        Definition::CreateView { name, is_optional, text } => ("create view", name, *is_optional, Some(text)),
        Definition::DropIndex { name, space, is_optional } => ("drop index", name, *is_optional, Some(space)),
        Definition::DropTrigger { name, is_optional } => ("drop trigger", name, *is_optional, None),
        Definition::Truncate { name } => ("truncate", name, false, None),
        Definition::DropConstraint { name, space } => ("drop constraint", name, false, Some(space)),
        Definition::Rename { name, to } => ("rename", name, false, Some(to)),
        Definition::SwitchCheck { name, space, is_enabled } => {
            (if *is_enabled { "enable check" } else { "disable check" }, name, false, Some(space))
        }
        Definition::AddCheck { name, space, text } => {
            push_head(lua, "add check", name, false);
            lua.push_str(space);
            lua.push_str(text);
            return 5;
        }
        Definition::CreateTrigger(trigger) => {
            push_head(lua, "create trigger", &trigger.name, trigger.is_optional);
            push_trigger(lua, trigger);
            return 4;
        }
        Definition::AddForeignKey { space, key } => {
            push_head(lua, "add foreign key", space, false);
            push_foreign_key(lua, key);
            return 4;
        }
        Definition::Create { .. }
        | Definition::Drop { .. }
        | Definition::CreateIndex { .. }
        | Definition::Transaction(..) => return 0,
    };
    let count = push_head(lua, kind, name, is_optional);
    last.map_or(count, |last| {
        lua.push_str(last);
        count + 1
    })
}

/// Pushes what a definition does, the name, and whether the object may exist or be absent.
fn push_head(lua: Lua, kind: &str, name: &str, is_optional: bool) -> i32 {
    lua.push_str(kind);
    lua.push_str(name);
    lua.push_bool(is_optional);
    3
}

/// Pushes keys as lists of parts, each with its name.
fn push_keys(lua: Lua, keys: &[Key]) {
    lua.new_table(keys.len(), 0);
    for (number, (name, key)) in (1..).zip(keys) {
        lua.new_table(key.len(), 1);
        push_optional(lua, name.as_deref(), "name");
        for (place, part) in (1..).zip(key) {
            lua.new_table(0, 2);
            lua.push_number(part.field as f64);
            lua.raw_set_field(-2, "field");
            push_optional(lua, part.collation.as_deref(), "collation");
            lua.raw_set_item(-2, place);
        }
        lua.raw_set_item(-2, number);
    }
}

/// Pushes a list of texts.
fn push_texts<'t>(lua: Lua, texts: impl ExactSizeIterator<Item = &'t String>) {
    lua.new_table(texts.len(), 0);
    for (place, text) in (1..).zip(texts) {
        lua.push_str(text);
        lua.raw_set_item(-2, place);
    }
}

/// Pushes a foreign key as a table with the fields of [`ForeignKey`].
fn push_foreign_key(lua: Lua, key: &ForeignKey) {
    lua.new_table(0, 8);
    push_optional(lua, key.name.as_deref(), "name");
    push_texts(lua, key.columns.iter());
    lua.raw_set_field(-2, "columns");
    push_optional(lua, Some(&key.parent), "parent");
    push_texts(lua, key.parent_columns.iter());
    lua.raw_set_field(-2, "parent_columns");
    push_optional(lua, Some(key.on_delete), "on_delete");
    push_optional(lua, Some(key.on_update), "on_update");
    push_optional(lua, Some(key.matches), "matches");
    lua.push_bool(key.is_deferred);
    lua.raw_set_field(-2, "is_deferred");
}

/// Pushes a piece of a trigger: its text, and the columns that are its parameters, each with whether it is of the new row.
fn push_piece(lua: Lua, piece: &Piece) {
    lua.new_table(0, 2);
    push_optional(lua, Some(&piece.text), "text");
    lua.new_table(piece.fields.len(), 0);
    for (place, (is_new, name)) in (1..).zip(&piece.fields) {
        lua.new_table(0, 2);
        lua.push_bool(*is_new);
        lua.raw_set_field(-2, "is_new");
        push_optional(lua, Some(name), "name");
        lua.raw_set_item(-2, place);
    }
    lua.raw_set_field(-2, "fields");
}

/// Pushes a trigger as a table with the fields of [`Trigger`].
fn push_trigger(lua: Lua, trigger: &Trigger) {
    lua.new_table(0, 7);
    for (name, text) in [
        ("name", &trigger.name[..]),
        ("space", &trigger.space),
        ("time", trigger.time),
        ("event", trigger.event),
        ("text", &trigger.text),
    ] {
        push_optional(lua, Some(text), name);
    }
    push_texts(lua, trigger.columns.iter());
    lua.raw_set_field(-2, "columns");
    if let Some(when) = &trigger.when {
        push_piece(lua, when);
        lua.raw_set_field(-2, "when");
    }
    lua.new_table(trigger.statements.len(), 0);
    for (place, piece) in (1..).zip(&trigger.statements) {
        push_piece(lua, piece);
        lua.raw_set_item(-2, place);
    }
    lua.raw_set_field(-2, "statements");
}

/// `sql_trigger(text)`: the trigger that a CREATE TRIGGER makes.
pub(super) fn trigger(lua: Lua) -> Result<i32, Error> {
    let text = lua.text(1).ok_or_else(|| Error::here("usage: sql_trigger(text)"))?;
    match on_big_stack(|| sql::definition(&text))? {
        Some(Definition::CreateTrigger(trigger)) => push_trigger(lua, &trigger),
        _ => return Err(Error::text("the text of a trigger is no CREATE TRIGGER")),
    }
    Ok(1)
}

/// `sql_renamed_trigger(text, space)`: the text of a trigger whose space has another name.
pub(super) fn renamed_trigger(lua: Lua) -> Result<i32, Error> {
    let (Some(text), Some(space)) = (lua.text(1), lua.text(2)) else {
        return Err(Error::here("usage: sql_renamed_trigger(text, space)"));
    };
    lua.push_str(sql::renamed_trigger(&text, &space));
    Ok(1)
}

/// Sets a field of the table on top, if there is a text.
pub(super) fn push_optional(lua: Lua, text: Option<&str>, name: &str) {
    if let Some(text) = text {
        lua.push_str(text);
        lua.raw_set_field(-2, name);
    }
}

/// Pushes a field of a format.
pub(super) fn push_field(lua: Lua, field: &Field) {
    lua.new_table(0, 5);
    lua.push_str(&field.name);
    lua.raw_set_field(-2, "name");
    lua.push_str(field.ty);
    lua.raw_set_field(-2, "type");
    lua.push_bool(field.nullable);
    lua.raw_set_field(-2, "is_nullable");
    push_optional(lua, field.default.as_deref(), "default");
    push_optional(lua, field.on_null, "nullable_action");
}
