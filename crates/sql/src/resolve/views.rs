//! Views: a view in a FROM is a derived table, whose query stands in the view's row of `_space`.
//!
//! The query sees neither the sources nor the queries of the statement around it. A view may read further views: the words and
//! signs in the deepest expression of the statement and of the views that it is inside of have one bound.

use lycosa_store::{Space, Store, system};
use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;
use sqlparser::ast::{self, Statement};

use super::from::unique_names;
use super::names::{Catalog, NamedField, Names};
use super::{Context, generic, name, none, simple_name, unsupported};
use crate::define::Field;
use crate::parse::{MAX_DEPTH, Parsed, parse};
use crate::query::Wanted;
use crate::{SqlFault, strings};

/// `ER_CREATE_SPACE` of Tarantool 2.6.
const CREATE_SPACE: u32 = 9;

/// Views inside of each other.
const MAX_NESTED: usize = 16;

/// A CREATE VIEW.
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) is_optional: bool,
    columns: Vec<String>,
    query: ast::Query,
}

/// The text of a view; `None` for any other space.
pub(crate) fn text_of(space: &Space, store: &Store) -> Option<String> {
    if !space.is_view() {
        return None;
    }
    let mut key = Vec::new();
    mp::write_array(&mut key, 1);
    mp::write_uint(&mut key, space.id().into());
    let row = store.get(system::SPACE, 0, &key).ok().flatten()?;
    let options = Value::decode(TupleRef::trusted(row).field(5)?).ok()?;
    options.get("sql").and_then(Value::as_str).map(str::to_owned)
}

/// The parts of a CREATE VIEW.
///
/// # Errors
/// A clause that is not supported.
pub(crate) fn view_of(view: ast::CreateView) -> Result<View, SqlFault> {
    let ast::CreateView {
        or_alter,
        or_replace,
        materialized,
        secure,
        name: own,
        name_before_not_exists: _,
        columns,
        query,
        options,
        cluster_by,
        comment,
        with_no_schema_binding,
        if_not_exists,
        temporary,
        copy_grants,
        to,
        params,
    } = view;
    let has_words = or_alter || or_replace || materialized || secure || temporary || copy_grants;
    let has_clauses = comment.is_some() || to.is_some() || params.is_some() || with_no_schema_binding;
    none(!has_words && !has_clauses && cluster_by.is_empty(), "this clause of CREATE VIEW")?;
    none(matches!(options, ast::CreateTableOptions::None), "options of a view")?;
    let columns = columns.iter().map(|column| {
        none(column.data_type.is_none() && column.options.is_none(), "a type of a view's column")?;
        name(&column.name)
    });
    Ok(View {
        name: simple_name(&own)?,
        is_optional: if_not_exists,
        columns: columns.collect::<Result<_, _>>()?,
        query: *query,
    })
}

/// The format of a new view.
///
/// # Errors
/// The errors of a SELECT; a parameter; another number of names than of columns.
pub(crate) fn fields_of(
    view: View,
    has_parameters: bool,
    catalog: &Catalog<'_>,
) -> Result<Vec<Field>, SqlFault> {
    let wrong = |reason: &str| {
        SqlFault::new(CREATE_SPACE, format!("Failed to create space '{}': {reason}", view.name))
    };
    if has_parameters {
        return Err(wrong("parameters are not allowed in views"));
    }
    let mut context = Context { names: Some(Names::new(catalog)), ..Context::of_store(catalog.store) };
    context.names()?.hide_sources();
    let columns = context.query(view.query, Wanted::Rows)?.columns;
    if !view.columns.is_empty() && view.columns.len() != columns.len() {
        return Err(wrong("number of aliases doesn't match provided columns"));
    }
    let named = columns.iter().enumerate().map(|(place, column)| NamedField {
        name: view.columns.get(place).unwrap_or(&column.name).clone(),
        ty: column.ty.unwrap_or("any"),
        order: column.order.clone(),
    });
    let fields = unique_names(named).into_iter().map(|field| Field {
        name: field.name,
        ty: field.ty,
        nullable: true,
        default: None,
        on_null: None,
        collation: strings::id_of(&field.order),
    });
    Ok(fields.collect())
}

impl Context<'_> {
    /// Resolves the query of a view. Returns its number.
    pub(super) fn view(&mut self, space: &Space, text: &str) -> Result<usize, SqlFault> {
        let damaged = || generic(format!("the text of view '{}' is no CREATE VIEW", space.name()));
        let Parsed { statement, depth, .. } = parse(text)?;
        let Statement::CreateView(view) = statement else { return Err(damaged()) };
        let view = view_of(view)?;
        let names = self.names()?;
        if names.nested.0 >= MAX_NESTED || names.nested.1 + depth > MAX_DEPTH {
            let text = format!(
                "view '{}' is nested too deeply: a statement reads at most {MAX_NESTED} views inside of each other, \
                 with {MAX_DEPTH} words and signs in their deepest expressions",
                space.name()
            );
            return Err(generic(text));
        }
        let before = names.enter_view(depth);
        let named_queries = std::mem::take(&mut self.named_queries);
        let number = self.subquery(view.query, Wanted::Rows);
        self.named_queries = named_queries;
        let names = self.names()?;
        names.leave_view(before, depth);
        let number = number?;
        let fields = space.format().fields();
        let columns = &mut names.queries[number].columns;
        if columns.len() != fields.len() {
            return Err(unsupported(&format!("view '{}' of a table that has changed", space.name())));
        }
        for (column, field) in columns.iter_mut().zip(fields) {
            column.name.clone_from(&field.name);
        }
        names.spaces.push(space.id());
        Ok(number)
    }
}
