//! INSERT and UPDATE: from the parser's tree to the changes.

use std::collections::HashSet;
use std::rc::Rc;

use lycosa_store::{Space, Store, system};
use lycosa_tuple::format::{FieldDef, Refusal};
use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;
use sqlparser::ast::{self, SetExpr};

use crate::SqlFault;
use crate::parse::near;
use crate::resolve::{
    Context, MAX_COLUMNS, MAX_VALUES, at_most, defaults_of, generic, none, simple_name, unsupported,
};
use crate::tree::{Body, Expr, OnConflict, Target};

/// The parts of an INSERT.
pub(crate) struct InsertParts<'a> {
    /// Of the space that is written.
    pub(crate) context: Context<'a>,
    /// The fields that get a value, in the order of the values.
    pub(crate) written: Vec<u32>,
    /// The statement names them.
    pub(crate) has_columns: bool,
    /// `None` for DEFAULT VALUES.
    pub(crate) source: Option<ast::Query>,
    pub(crate) conflict: OnConflict,
}

pub(crate) fn insert_parts_of(insert: ast::Insert, store: &Store) -> Result<InsertParts<'_>, SqlFault> {
    let ast::Insert {
        insert_token: _,
        optimizer_hints,
        or,
        ignore,
        into,
        table,
        table_alias,
        columns,
        overwrite,
        source,
        assignments,
        partitioned,
        after_columns,
        has_table_keyword,
        on,
        returning,
        output,
        replace_into,
        priority,
        insert_alias,
        settings,
        format_clause,
        multi_table_insert_type,
        multi_table_into_clauses,
        multi_table_when_clauses,
        multi_table_else_clause,
    } = insert;
    none(on.is_none(), "ON CONFLICT")?;
    if let (false, ast::TableObject::TableName(table)) = (into, &table) {
        return Err(near(1, table));
    }
    none(returning.is_none() && output.is_none(), "RETURNING")?;
    let has_lists = !(optimizer_hints.is_empty() && assignments.is_empty() && after_columns.is_empty());
    let has_words = ignore || overwrite || has_table_keyword || priority.is_some() || partitioned.is_some();
    let has_names = insert_alias.is_some() || table_alias.is_some() || format_clause.is_some();
    let has_tables = multi_table_insert_type.is_some()
        || multi_table_else_clause.is_some()
        || !(multi_table_into_clauses.is_empty() && multi_table_when_clauses.is_empty());
    none(!(has_lists || has_words || has_names || has_tables || settings.is_some()), "such an INSERT")?;
    let conflict = if replace_into { OnConflict::Replace } else { conflict_of(or) };
    let ast::TableObject::TableName(table) = table else { return Err(unsupported("such an INSERT")) };
    let mut context = Context::of_space(&simple_name(&table)?, None, store)?;
    let space = context.space.ok_or_else(|| unsupported("such an INSERT"))?;
    let written = written_fields(&mut context, &columns)?;
    let count = u32::try_from(space.format().fields().len()).unwrap_or(u32::MAX);
    let written = if columns.is_empty() { (0..count).collect() } else { written };
    let source = source.map(|source| *source);
    let written = if source.is_none() { Vec::new() } else { written };
    Ok(InsertParts { context, written, has_columns: !columns.is_empty(), source, conflict })
}

/// Refuses rows of another number of values than there are fields to write.
pub(crate) fn wrong_count(space: &Space, has_columns: bool, wanted: usize, count: usize) -> SqlFault {
    generic(if has_columns {
        format!("{count} values for {wanted} columns")
    } else {
        format!("table {} has {wanted} columns but {count} values were supplied", space.name())
    })
}

/// All fields of a space as an INSERT writes them, and the field that a sequence fills.
pub(crate) fn targets_of(
    context: &Context<'_>,
    space: &Space,
    defaults: &[Option<Rc<Expr>>],
    store: &Store,
) -> Result<(Vec<Target>, Option<u32>), SqlFault> {
    let fields = space.format().fields().iter().zip(defaults);
    let targets: Result<Vec<Target>, SqlFault> = fields
        .map(|(field, default)| Ok(Target { default: default.clone(), ..context.target(&field.name)? }))
        .collect();
    Ok((targets?, sequence_field(space, store)))
}

/// What becomes of a NULL that a field refuses.
pub(crate) fn on_null_of(field: &FieldDef) -> OnConflict {
    match field.refusal {
        Refusal::Default | Refusal::Unknown => OnConflict::Default,
        Refusal::Abort => OnConflict::Abort,
        Refusal::Fail => OnConflict::Fail,
        Refusal::Rollback => OnConflict::Rollback,
        Refusal::Replace => OnConflict::Replace,
        Refusal::Ignore => OnConflict::Ignore,
    }
}

pub(crate) fn insert_of(insert: ast::Insert, store: &Store) -> Result<(Context<'_>, Body), SqlFault> {
    let InsertParts { mut context, written, has_columns, source, conflict } = insert_parts_of(insert, store)?;
    let space = context.space.ok_or_else(|| unsupported("such an INSERT"))?;
    let count = space.format().fields().len();
    let rows = source.map_or_else(|| Ok(vec![Vec::new()]), values_of)?;
    let defaults = defaults_of(space, store)?;
    at_most(MAX_VALUES, "The number of values of an INSERT", rows.len().saturating_mul(count))?;
    let mut constants = Context::of_store(store);
    let mut listed = Vec::new();
    for values in rows {
        if values.len() != written.len() {
            return Err(wrong_count(space, has_columns, written.len(), values.len()));
        }
        let default_of = |default: &Option<Rc<Expr>>| default.as_deref().cloned();
        let mut placed: Vec<Option<Expr>> = defaults.iter().map(default_of).collect();
        for (field, value) in written.iter().zip(values) {
            placed[*field as usize] = Some(constants.expression(value)?);
        }
        listed.push(placed);
    }
    context.parts += constants.parts;
    let (targets, sequence) = targets_of(&context, space, &defaults, store)?;
    let body = Body::Insert { targets, rows: listed, conflict, sequence };
    Ok((context, body))
}

fn conflict_of(or: Option<ast::SqliteOnConflict>) -> OnConflict {
    match or {
        None => OnConflict::Default,
        Some(ast::SqliteOnConflict::Abort) => OnConflict::Abort,
        Some(ast::SqliteOnConflict::Fail) => OnConflict::Fail,
        Some(ast::SqliteOnConflict::Rollback) => OnConflict::Rollback,
        Some(ast::SqliteOnConflict::Replace) => OnConflict::Replace,
        Some(ast::SqliteOnConflict::Ignore) => OnConflict::Ignore,
    }
}

/// The rows of VALUES.
fn values_of(source: ast::Query) -> Result<Vec<Vec<ast::Expr>>, SqlFault> {
    let SetExpr::Values(ast::Values { rows, .. }) = *source.body else {
        return Err(unsupported("INSERT of a query"));
    };
    let is_plain = source.order_by.is_none() && source.limit_clause.is_none() && source.with.is_none();
    none(is_plain, "such an INSERT")?;
    Ok(rows.into_iter().map(|row| row.content).collect())
}

/// The fields of the columns that an INSERT names.
fn written_fields(context: &mut Context<'_>, columns: &[ast::ObjectName]) -> Result<Vec<u32>, SqlFault> {
    let (mut written, mut named) = (Vec::new(), HashSet::new());
    at_most(MAX_COLUMNS, "The number of columns in set list", columns.len())?;
    for column in columns {
        let name = simple_name(column)?;
        let field = context.target(&name)?.field;
        if !named.insert(field) {
            return Err(generic(format!("table id list: duplicate column name {name}")));
        }
        written.push(field);
    }
    Ok(written)
}

/// The field that a sequence of the space fills.
fn sequence_field(space: &Space, store: &Store) -> Option<u32> {
    space.sequence()?;
    let mut key = Vec::new();
    mp::write_array(&mut key, 1);
    mp::write_uint(&mut key, space.id().into());
    let row = store.get(system::SPACE_SEQUENCE, 0, &key).ok().flatten()?;
    let field = TupleRef::trusted(row).at(3)?.uint().ok()?;
    u32::try_from(field).ok()
}

/// The parts of an UPDATE.
pub(crate) struct Updated<'a> {
    /// Of the space that is written.
    pub(crate) context: Context<'a>,
    pub(crate) written: Vec<(Target, Expr)>,
    /// The WHERE.
    pub(crate) selection: Option<ast::Expr>,
    pub(crate) conflict: OnConflict,
}

/// `prepare` sees the context before names are looked up.
pub(crate) fn update_of<'a>(
    update: ast::Update,
    store: &'a Store,
    prepare: impl FnOnce(&mut Context<'a>) -> Result<(), SqlFault>,
) -> Result<Updated<'a>, SqlFault> {
    let ast::Update {
        update_token: _,
        optimizer_hints,
        table,
        assignments,
        from,
        selection,
        returning,
        output,
        or,
        order_by,
        limit,
    } = update;
    none(optimizer_hints.is_empty() && from.is_none(), "UPDATE FROM")?;
    none(returning.is_none() && output.is_none(), "RETURNING")?;
    none(order_by.is_empty() && limit.is_none(), "ORDER BY and LIMIT of UPDATE")?;
    let mut context = Context::of_table(vec![table], store)?;
    prepare(&mut context)?;
    let conflict = conflict_of(or);
    let mut defaults = None;
    at_most(MAX_COLUMNS, "The number of columns in set list", assignments.len())?;
    // The last assignment to a field counts; earlier ones are evaluated, for their errors.
    let mut written: Vec<(Target, Expr)> = Vec::new();
    for ast::Assignment { target, value } in assignments {
        let ast::AssignmentTarget::ColumnName(column) = target else {
            return Err(unsupported("SET of several columns at once"));
        };
        let mut target = context.target(&simple_name(&column)?)?;
        let replaces_null = [target.on_null, conflict].contains(&OnConflict::Replace);
        if let Some(space) = context.space.filter(|_| target.required && replaces_null) {
            let known = match defaults.take() {
                Some(known) => known,
                None => defaults_of(space, store)?,
            };
            target.default = known.get(target.field as usize).cloned().flatten();
            defaults = Some(known);
        }
        written.push((target, context.expression(value)?));
    }
    Ok(Updated { context, written, selection, conflict })
}
