//! The parser's tree to a plan: names become fields, and unsupported clauses are refused.
//!
//! Every structure of the parser is taken apart whole, so that an unread clause cannot be passed over.

mod collations;
mod explain;
mod expressions;
mod fields;
mod from;
mod general;
mod names;
mod pragma;
mod queries;
mod recursive;
pub(crate) mod reserved;
mod select;
mod types;
pub(crate) mod views;

use std::collections::HashMap;
use std::rc::Rc;

use lycosa_store::{Access, Space, Store};
use sqlparser::ast::{self, Ident, ObjectName, SetExpr, Statement, TableFactor};

use self::fields::collated_fields;
pub(crate) use self::fields::{check_default, defaults_of};
use self::names::{Catalog, Names};
use self::select::query_of;
use crate::changes::{Updated, insert_of, on_null_of, update_of};
use crate::define::Field;
use crate::parse::{Parsed, QueryCount};
use crate::query::Origin;
use crate::tree::{Aggregate, Body, Expr, OnConflict, Plan, Target};
use crate::{Asker, Error, SqlFault, strings};

/// Codes of Tarantool 2.6.
const UNSUPPORTED: u32 = 5;
const NO_SUCH_SPACE: u32 = 36;
pub(crate) const NO_SUCH_FUNCTION: u32 = 51;
const NO_SUCH_FIELD_NAME: u32 = 153;
const CANT_RESOLVE_FIELD: u32 = 176;
const SYNTAX_NEAR: u32 = 184;
const GENERIC: u32 = 186;
const INTEGER_LIMIT: u32 = 190;
const FUNC_WRONG_ARG_COUNT: u32 = 202;
const PARSER_LIMIT: u32 = 191;

/// Columns of a result, terms of ORDER BY, columns that an INSERT or UPDATE names, and arguments of a function, as in
/// Tarantool.
pub(crate) const MAX_COLUMNS: usize = 2000;
const MAX_ARGUMENTS: usize = 127;

/// Values of an INSERT, those of columns that it does not name included.
pub(crate) const MAX_VALUES: usize = 1 << 17;

/// Parts of all expressions that the names of columns stand for: each use of a name is a copy.
const MAX_ALIASED: usize = 1 << 16;

pub(crate) fn unsupported(what: &str) -> SqlFault {
    SqlFault::new(
        UNSUPPORTED,
        format!(
            "Lycosa does not support {what} in SQL: it supports SELECT (JOIN, LEFT JOIN, subqueries, WHERE, GROUP BY, \
             HAVING, ORDER BY, LIMIT, OFFSET, COUNT, SUM, MIN, MAX, AVG, TOTAL), UNION, INTERSECT, EXCEPT, VALUES, INSERT, \
             UPDATE, DELETE, CREATE and DROP of a TABLE, a VIEW, an INDEX and a TRIGGER, ALTER TABLE, START TRANSACTION, \
             COMMIT, ROLLBACK, SAVEPOINT and RELEASE"
        ),
    )
}

pub(crate) fn generic(text: impl Into<String>) -> SqlFault {
    SqlFault::new(GENERIC, text)
}

/// Refuses more of something than a statement may have, in Tarantool's words.
///
/// # Errors
/// `count` is over `limit`.
pub(crate) fn at_most(limit: usize, what: &str, count: usize) -> Result<(), SqlFault> {
    if count <= limit {
        return Ok(());
    }
    Err(SqlFault::new(PARSER_LIMIT, format!("{what} {count} exceeds the limit ({limit})")))
}

/// A name as the schema has it: in capitals unless it stands in quotes.
///
/// # Errors
/// A reserved word without quotes.
pub(crate) fn name(ident: &Ident) -> Result<String, SqlFault> {
    if ident.quote_style.is_some() {
        return Ok(ident.value.clone());
    }
    let upper = ident.value.to_uppercase();
    reserved::check(ident, &upper)?;
    Ok(upper)
}

/// The name of a function, which may be a reserved word.
fn function_name(object: &ObjectName) -> Result<String, SqlFault> {
    match &object.0[..] {
        [part] => match part.as_ident() {
            Some(ident) if ident.quote_style.is_none() => Ok(ident.value.to_uppercase()),
            Some(ident) => Ok(ident.value.clone()),
            None => Err(unsupported("such a name")),
        },
        _ => Err(unsupported("a name with a schema")),
    }
}

pub(crate) fn simple_name(object: &ObjectName) -> Result<String, SqlFault> {
    match &object.0[..] {
        [part] => part.as_ident().ok_or_else(|| unsupported("such a name")).and_then(name),
        _ => Err(unsupported("a name with a schema")),
    }
}

pub(crate) fn no_such_space(name: &str) -> SqlFault {
    SqlFault::new(NO_SUCH_SPACE, format!("Space '{}' does not exist", shortened(name)))
}

/// Refuses a clause.
pub(crate) fn none(is_absent: bool, clause: &str) -> Result<(), SqlFault> {
    if is_absent { Ok(()) } else { Err(unsupported(clause)) }
}

/// Makes a plan.
///
/// # Errors
/// Unsupported clauses, and names that do not exist.
pub(crate) fn resolve(parsed: Parsed, store: &Store, asker: Asker<'_>) -> Result<Plan, Error> {
    let Parsed { statement, with, parameters, count, depth, checks: _, engine: _ } = parsed;
    let catalog = Catalog::new(store, asker, depth);
    let resolved = match with {
        Some(with) => general::plan_of(statement, Some(with), &parameters, &catalog),
        None => resolve_by(statement, &parameters, &catalog, count),
    };
    resolved.map_err(|failure| catalog.error(failure))
}

/// The format that a new view has.
///
/// # Errors
/// The errors of [`resolve`]; a statement that is no CREATE VIEW.
pub(crate) fn fields_of_view(parsed: Parsed, store: &Store, asker: Asker<'_>) -> Result<Vec<Field>, Error> {
    let Statement::CreateView(view) = parsed.statement else {
        return Err(generic("the statement is no CREATE VIEW").into());
    };
    let catalog = Catalog::new(store, asker, parsed.depth);
    let fields =
        views::view_of(view).and_then(|view| views::fields_of(view, !parsed.parameters.is_empty(), &catalog));
    fields.map_err(|failure| catalog.error(failure))
}

fn resolve_by(
    statement: Statement,
    parameters: &[String],
    catalog: &Catalog<'_>,
    count: QueryCount,
) -> Result<Plan, SqlFault> {
    let store = catalog.store;
    if let Statement::Explain {
        describe_alias: ast::DescribeAlias::Explain,
        analyze: false,
        verbose: false,
        query_plan: _,
        estimate: false,
        statement,
        format: None,
        options: None,
    } = statement
    {
        let plan = resolve_by(*statement, parameters, catalog, count)?;
        return Ok(explain::plan_about(plan, store));
    }
    if let Statement::Pragma { name, value, is_eq: false } = &statement {
        return pragma::plan_of(name, value.as_ref().map(|value| &value.value), catalog);
    }
    if is_general(&statement, count, store) {
        return general::plan_of(statement, None, parameters, catalog);
    }
    let plan = |context: &Context<'_>, filter: Option<Expr>, body: Body| Plan {
        parameters: parameters.to_vec(),
        space: context.space.map_or(0, Space::id),
        filter,
        weight: context.parts + parameters.len() + body.column_count(),
        body,
        schema_version: store.schema_version(),
    };
    match statement {
        Statement::Query(query) => {
            let (context, filter, select) = query_of(*query, store)?;
            Ok(plan(&context, filter, Body::Select(select)))
        }
        Statement::Insert(insert) => {
            let (context, body) = insert_of(insert, store)?;
            Ok(plan(&context, None, body))
        }
        Statement::Update(update) => {
            let Updated { mut context, written, selection, conflict } = update_of(update, store, |_| Ok(()))?;
            let filter = selection.map(|filter| context.expression(filter)).transpose()?;
            Ok(plan(&context, filter, Body::Update(written, conflict)))
        }
        Statement::Delete(delete) => {
            let (from, selection) = delete_of(delete)?;
            let mut context = Context::of_table(from, store)?;
            let filter = selection.map(|filter| context.expression(filter)).transpose()?;
            Ok(plan(&context, filter, Body::Delete))
        }
        other => {
            let text = other.to_string();
            let first: String = text.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            Err(unsupported(&shortened(&first)))
        }
    }
}

/// FROM and WHERE of a DELETE.
pub(crate) fn delete_of(
    delete: ast::Delete,
) -> Result<(Vec<ast::TableWithJoins>, Option<ast::Expr>), SqlFault> {
    let ast::Delete {
        delete_token: _,
        optimizer_hints,
        tables,
        from,
        using,
        selection,
        returning,
        output,
        order_by,
        limit,
    } = delete;
    none(optimizer_hints.is_empty() && tables.is_empty() && using.is_none(), "DELETE of several spaces")?;
    none(returning.is_none() && output.is_none(), "RETURNING")?;
    none(order_by.is_empty() && limit.is_none(), "ORDER BY and LIMIT of DELETE")?;
    let ast::FromTable::WithFromKeyword(from) = from else {
        return Err(unsupported("DELETE without FROM"));
    };
    Ok((from, selection))
}

/// Whether a statement has several sources or queries, or reads a view. A statement without is resolved into the plan that runs without
/// slots.
fn is_general(statement: &Statement, count: QueryCount, store: &Store) -> bool {
    match statement {
        Statement::Query(query) => match &*query.body {
            SetExpr::Select(select) => {
                count.selects + count.values > 1
                    || select.from.len() > 1
                    || select
                        .from
                        .iter()
                        .any(|table| !table.joins.is_empty() || !is_space(&table.relation, store))
            }
            _ => true,
        },
        Statement::Insert(_) => count.selects > 0,
        Statement::Update(update) => {
            count.selects + count.values > 0 || !is_space(&update.table.relation, store)
        }
        Statement::Delete(delete) => match &delete.from {
            ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from) => {
                count.selects + count.values > 0 || from.iter().any(|table| !is_space(&table.relation, store))
            }
        },
        _ => false,
    }
}

/// Whether a source is a space that has its rows itself.
fn is_space(factor: &TableFactor, store: &Store) -> bool {
    let TableFactor::Table { name, .. } = factor else { return false };
    let space = simple_name(name).ok().and_then(|name| store.space_by_name(&name));
    !space.is_some_and(Space::is_view)
}

/// The name of the space that a statement is about, and what it needs there first. `None` for statements that
/// [`resolve`] refuses before it looks at a name in a space.
pub(crate) fn first_need(statement: &Statement) -> Option<(String, Access)> {
    let of_tables = |from: &[ast::TableWithJoins]| match &from.first()?.relation {
        TableFactor::Table { name, .. } => simple_name(name).ok(),
        _ => None,
    };
    match statement {
        Statement::Explain { statement, .. } => first_need(statement),
        Statement::Query(query) => match &*query.body {
            SetExpr::Select(select) => Some((of_tables(&select.from)?, Access::READ)),
            _ => None,
        },
        Statement::Insert(insert) => match &insert.table {
            ast::TableObject::TableName(name) => Some((simple_name(name).ok()?, Access::WRITE)),
            _ => None,
        },
        Statement::Update(update) => Some((of_tables(std::slice::from_ref(&update.table))?, Access::READ)),
        Statement::Delete(delete) => match &delete.from {
            ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from) => {
                Some((of_tables(from)?, Access::READ))
            }
        },
        _ => None,
    }
}

/// What names mean.
pub(crate) struct Context<'a> {
    pub(crate) space: Option<&'a Space>,
    /// The name that the statement has for the space.
    alias: String,
    /// The fields whose strings have a collation.
    collated: Vec<(u32, strings::Order)>,
    /// Where collations are looked up.
    pub(crate) store: Option<&'a Store>,
    aggregates: Vec<Aggregate>,
    /// Aggregate functions are allowed here.
    may_aggregate: bool,
    /// Parts of expressions so far.
    pub(crate) parts: usize,
    /// What names mean in a statement of several sources.
    pub(crate) names: Option<Names<'a>>,
    /// The names that AS has given to columns of the SELECT.
    aliases: Aliases,
    /// The queries that WITH has given names to.
    named_queries: Vec<(String, usize)>,
    /// How often a name has meant a query of WITH.
    uses: usize,
    /// The slot and the origin of the rows that a change with subqueries, or of a view, changes.
    changed: (u32, Origin),
}

/// Columns of a SELECT by the names that AS gives.
#[derive(Default)]
struct Aliases {
    columns: HashMap<String, Rc<Expr>>,
    /// Parts of expressions that names stand for so far.
    parts: usize,
    /// How often such a name was used.
    used: usize,
}

impl<'a> Context<'a> {
    pub(crate) fn nothing() -> Context<'a> {
        Context {
            space: None,
            alias: String::new(),
            collated: Vec::new(),
            store: None,
            aggregates: Vec::new(),
            may_aggregate: false,
            parts: 0,
            names: None,
            aliases: Aliases::default(),
            named_queries: Vec::new(),
            uses: 0,
            changed: (0, Origin::Space(0)),
        }
    }

    /// Whether an expression names no parameter.
    ///
    /// # Errors
    /// An expression that names a column or has a query.
    pub(crate) fn constant(expr: ast::Expr) -> Result<bool, SqlFault> {
        let mut is_constant = true;
        let expr = Context::nothing().expression(expr)?;
        expr.visit(&mut |part| is_constant &= !matches!(part, Expr::Parameter(_)));
        Ok(is_constant)
    }

    /// Names of no space.
    pub(crate) fn of_store(store: &'a Store) -> Context<'a> {
        Context { store: Some(store), ..Context::nothing() }
    }

    pub(crate) fn of_space(
        name: &str,
        alias: Option<String>,
        store: &'a Store,
    ) -> Result<Context<'a>, SqlFault> {
        let Some(space) = store.space_by_name(name) else {
            return Err(no_such_space(name));
        };
        from::check_format(space)?;
        let alias = alias.unwrap_or_else(|| name.to_owned());
        Ok(Context {
            space: Some(space),
            alias,
            collated: collated_fields(space, store)?,
            ..Context::of_store(store)
        })
    }

    pub(crate) fn of_table(
        mut from: Vec<ast::TableWithJoins>,
        store: &'a Store,
    ) -> Result<Context<'a>, SqlFault> {
        let table = from.pop();
        let Some(ast::TableWithJoins { relation, joins }) = table.filter(|_| from.is_empty()) else {
            return Err(unsupported("several spaces"));
        };
        none(joins.is_empty(), "JOIN")?;
        let (name, alias) = from::table_of(relation)?;
        Context::of_space(&name, alias, store)
    }

    fn field(&self, ident: &Ident) -> Result<u32, SqlFault> {
        let wanted = name(ident)?;
        let found = self.space.and_then(|space| space.field_by_name(&wanted));
        found.ok_or_else(|| SqlFault::new(CANT_RESOLVE_FIELD, format!("Can’t resolve field '{wanted}'")))
    }

    /// A field by `alias.name`.
    fn field_of(&self, parts: &[Ident]) -> Result<u32, SqlFault> {
        let [alias, field] = parts else { return Err(unsupported("a name of more than two parts")) };
        if name(alias)? == self.alias {
            return self.field(field);
        }
        let text = format!("Field '{}' was not found in space '{}' format", name(field)?, name(alias)?);
        Err(SqlFault::new(NO_SUCH_FIELD_NAME, text))
    }

    /// The column that a name means, or the one that AS has given the name to.
    fn column(&mut self, ident: &Ident) -> Result<Expr, SqlFault> {
        match self.column_of_source(ident) {
            Err(failure) if failure.code == CANT_RESOLVE_FIELD => self.column_by_alias(ident, failure),
            found => found,
        }
    }

    /// The column of a source that a name means.
    fn column_of_source(&mut self, ident: &Ident) -> Result<Expr, SqlFault> {
        match &mut self.names {
            Some(names) => names.find(None, &name(ident)?),
            None => self.field(ident).map(Expr::Column),
        }
    }

    /// The column that AS has given a name to.
    fn column_by_alias(&mut self, ident: &Ident, failure: SqlFault) -> Result<Expr, SqlFault> {
        let Some(expr) = self.aliases.columns.get(&name(ident)?) else { return Err(failure) };
        let (mut parts, mut aggregate) = (0, None);
        expr.visit(&mut |part| {
            parts += 1;
            if let Expr::Aggregate(number) = part {
                aggregate = Some(*number);
            }
        });
        self.aliases.used += 1;
        self.aliases.parts += parts;
        at_most(MAX_ALIASED, "The number of parts of expressions that names stand for", self.aliases.parts)?;
        if let Some(kind) = aggregate.and_then(|number| self.aggregates.get(number)).map(|it| it.kind)
            && !self.may_aggregate
        {
            return Err(generic(format!("misuse of aggregate: {}()", kind.name())));
        }
        Ok((**expr).clone())
    }

    /// The column that `alias.name` means.
    fn column_of(&mut self, parts: &[Ident]) -> Result<Expr, SqlFault> {
        match (&mut self.names, parts) {
            (Some(names), [alias, field]) => names.find(Some(&name(alias)?), &name(field)?),
            _ => self.field_of(parts).map(Expr::Column),
        }
    }

    pub(crate) fn target(&self, name: &str) -> Result<Target, SqlFault> {
        let found =
            self.space.and_then(|space| Some((space.name(), space.format(), space.field_by_name(name)?)));
        let Some((space, format, field)) = found else {
            let text = format!("Field '{name}' was not found in space '{}' format", self.alias);
            return Err(SqlFault::new(NO_SUCH_FIELD_NAME, text));
        };
        let (ty, required) = (format.field_type(field), !format.is_nullable(field));
        let on_null = format.fields().get(field as usize).map_or(OnConflict::Default, on_null_of);
        Ok(Target { field, name: format!("{space}.{name}"), ty, required, on_null, default: None })
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
