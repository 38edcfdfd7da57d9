//! The parser's tree to a plan: names become fields, and unsupported clauses are refused.
//!
//! Every structure of the parser is taken apart whole, so that an unread clause cannot be passed over.

mod from;
mod general;
mod names;
mod queries;
mod reserved;
mod select;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use lycosa_store::{Access, Space, Store, system};
use lycosa_tuple::field::FieldType;
use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;
use sqlparser::ast::{self, BinaryOperator, Ident, ObjectName, SetExpr, Statement, TableFactor};

use self::names::{Catalog, Names};
use self::select::query_of;
use crate::changes::{insert_of, update_of};
use crate::define;
use crate::effort::Effort;
use crate::eval::Row;
use crate::functions::Function;
use crate::parse::{QueryCount, parse};
use crate::tree::{Aggregate, AggregateKind, Body, Comparison, Expr, Plan, Target};
use crate::value::{Number, parse_number};
use crate::{Asker, Error, Failure};

/// Codes of Tarantool 2.6.
const UNSUPPORTED: u32 = 5;
const NO_SUCH_SPACE: u32 = 36;
const NO_SUCH_FUNCTION: u32 = 51;
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

/// The collation `none` and the binary one, by which strings are compared byte by byte.
const BINARY_COLLATIONS: [u64; 2] = [0, 3];

pub(crate) fn unsupported(what: &str) -> Failure {
    Failure::new(
        UNSUPPORTED,
        format!(
            "Lycosa does not support {what} in SQL: it supports SELECT (JOIN, LEFT JOIN, subqueries, WHERE, GROUP BY, \
             HAVING, ORDER BY, LIMIT, OFFSET, COUNT, SUM, MIN, MAX, AVG, TOTAL), UNION, INTERSECT, EXCEPT, VALUES, INSERT, \
             UPDATE, DELETE, CREATE and DROP of a TABLE and of an INDEX, START TRANSACTION, COMMIT, ROLLBACK, SAVEPOINT and \
             RELEASE"
        ),
    )
}

pub(crate) fn generic(text: impl Into<String>) -> Failure {
    Failure::new(GENERIC, text)
}

/// Refuses more of something than a statement may have, in Tarantool's words.
///
/// # Errors
/// `count` is over `limit`.
pub(crate) fn at_most(limit: usize, what: &str, count: usize) -> Result<(), Failure> {
    if count <= limit {
        return Ok(());
    }
    Err(Failure::new(PARSER_LIMIT, format!("{what} {count} exceeds the limit ({limit})")))
}

/// A name as the schema has it: in capitals unless it stands in quotes.
///
/// # Errors
/// A reserved word without quotes.
pub(crate) fn name(ident: &Ident) -> Result<String, Failure> {
    if ident.quote_style.is_some() {
        return Ok(ident.value.clone());
    }
    let upper = ident.value.to_uppercase();
    reserved::check(ident, &upper)?;
    Ok(upper)
}

/// The name of a function, which may be a reserved word.
fn function_name(object: &ObjectName) -> Result<String, Failure> {
    match &object.0[..] {
        [part] => match part.as_ident() {
            Some(ident) if ident.quote_style.is_none() => Ok(ident.value.to_uppercase()),
            Some(ident) => Ok(ident.value.clone()),
            None => Err(unsupported("such a name")),
        },
        _ => Err(unsupported("a name with a schema")),
    }
}

pub(crate) fn simple_name(object: &ObjectName) -> Result<String, Failure> {
    match &object.0[..] {
        [part] => part.as_ident().ok_or_else(|| unsupported("such a name")).and_then(name),
        _ => Err(unsupported("a name with a schema")),
    }
}

pub(crate) fn no_such_space(name: &str) -> Failure {
    Failure::new(NO_SUCH_SPACE, format!("Space '{}' does not exist", shortened(name)))
}

/// Refuses a clause.
pub(crate) fn none(is_absent: bool, clause: &str) -> Result<(), Failure> {
    if is_absent { Ok(()) } else { Err(unsupported(clause)) }
}

/// Makes a plan.
///
/// # Errors
/// Unsupported clauses, and names that do not exist.
pub(crate) fn resolve(
    statement: Statement,
    parameters: &[String],
    count: QueryCount,
    store: &Store,
    asker: Asker<'_>,
) -> Result<Plan, Error> {
    let catalog = Catalog::new(store, asker);
    let resolved = resolve_by(statement, parameters, &catalog, count);
    resolved.map_err(|failure| catalog.error(failure))
}

fn resolve_by(
    statement: Statement,
    parameters: &[String],
    catalog: &Catalog<'_>,
    count: QueryCount,
) -> Result<Plan, Failure> {
    let store = catalog.store;
    if is_general(&statement, count) {
        return general::plan_of(statement, parameters, catalog);
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
            let (mut context, written, selection) = update_of(update, store, |_| Ok(()))?;
            let filter = selection.map(|filter| context.expression(filter)).transpose()?;
            Ok(plan(&context, filter, Body::Update(written)))
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
) -> Result<(Vec<ast::TableWithJoins>, Option<ast::Expr>), Failure> {
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

/// Whether a statement has several sources or queries. A statement without is resolved into the plan that runs without
/// slots.
fn is_general(statement: &Statement, count: QueryCount) -> bool {
    match statement {
        Statement::Query(query) => match &*query.body {
            SetExpr::Select(select) => {
                count.selects + count.values > 1
                    || select.from.len() > 1
                    || select.from.iter().any(|table| {
                        !table.joins.is_empty() || !matches!(table.relation, TableFactor::Table { .. })
                    })
            }
            _ => true,
        },
        Statement::Insert(_) => count.selects > 0,
        Statement::Update(_) | Statement::Delete(_) => count.selects + count.values > 0,
        _ => false,
    }
}

/// The name of the space that a statement is about, and what it needs there first. `None` for statements that
/// [`resolve`] refuses before it looks at a name in a space.
pub(crate) fn first_need(statement: &Statement) -> Option<(String, Access)> {
    let of_tables = |from: &[ast::TableWithJoins]| match &from.first()?.relation {
        TableFactor::Table { name, .. } => simple_name(name).ok(),
        _ => None,
    };
    match statement {
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
    /// Fields whose strings have an order of their own.
    collated: Vec<u32>,
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
            aggregates: Vec::new(),
            may_aggregate: false,
            parts: 0,
            names: None,
            aliases: Aliases::default(),
            named_queries: Vec::new(),
        }
    }

    pub(crate) fn of_space(
        name: &str,
        alias: Option<String>,
        store: &'a Store,
    ) -> Result<Context<'a>, Failure> {
        let Some(space) = store.space_by_name(name) else {
            return Err(no_such_space(name));
        };
        from::check_format(space)?;
        let alias = alias.unwrap_or_else(|| name.to_owned());
        Ok(Context {
            space: Some(space),
            alias,
            collated: collated_fields(space, store),
            ..Context::nothing()
        })
    }

    pub(crate) fn of_table(
        mut from: Vec<ast::TableWithJoins>,
        store: &'a Store,
    ) -> Result<Context<'a>, Failure> {
        let table = from.pop();
        let Some(ast::TableWithJoins { relation, joins }) = table.filter(|_| from.is_empty()) else {
            return Err(unsupported("several spaces"));
        };
        none(joins.is_empty(), "JOIN")?;
        let (name, alias) = from::table_of(relation)?;
        Context::of_space(&name, alias, store)
    }

    fn field(&self, ident: &Ident) -> Result<u32, Failure> {
        let wanted = name(ident)?;
        let found = self.space.and_then(|space| space.field_by_name(&wanted));
        found.ok_or_else(|| Failure::new(CANT_RESOLVE_FIELD, format!("Can’t resolve field '{wanted}'")))
    }

    /// A field by `alias.name`.
    fn field_of(&self, parts: &[Ident]) -> Result<u32, Failure> {
        let [alias, field] = parts else { return Err(unsupported("a name of more than two parts")) };
        if name(alias)? == self.alias {
            return self.field(field);
        }
        let text = format!("Field '{}' was not found in space '{}' format", name(field)?, name(alias)?);
        Err(Failure::new(NO_SUCH_FIELD_NAME, text))
    }

    /// The column that a name means, or the one that AS has given the name to.
    fn column(&mut self, ident: &Ident) -> Result<Expr, Failure> {
        match self.column_of_source(ident) {
            Err(failure) if failure.code == CANT_RESOLVE_FIELD => self.column_by_alias(ident, failure),
            found => found,
        }
    }

    /// The column of a source that a name means.
    fn column_of_source(&mut self, ident: &Ident) -> Result<Expr, Failure> {
        match &mut self.names {
            Some(names) => names.find(None, &name(ident)?),
            None => self.field(ident).map(Expr::Column),
        }
    }

    /// The column that AS has given a name to.
    fn column_by_alias(&mut self, ident: &Ident, failure: Failure) -> Result<Expr, Failure> {
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
    fn column_of(&mut self, parts: &[Ident]) -> Result<Expr, Failure> {
        match (&mut self.names, parts) {
            (Some(names), [alias, field]) => names.find(Some(&name(alias)?), &name(field)?),
            _ => self.field_of(parts).map(Expr::Column),
        }
    }

    /// Whether an expression is a column whose strings have an order of their own.
    fn is_collated(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Column(field) => self.collated.contains(field),
            Expr::Slot(slot, field) => {
                let names = self.names.as_ref();
                names.and_then(|names| names.field(*slot, *field)).is_some_and(|field| field.is_collated)
            }
            Expr::Scalar(query) => {
                let query = self.names.as_ref().and_then(|names| names.queries.get(*query));
                query.is_some_and(|query| query.columns.iter().any(|column| column.is_collated))
            }
            _ => false,
        }
    }

    pub(crate) fn target(&self, name: &str) -> Result<Target, Failure> {
        let found =
            self.space.and_then(|space| Some((space.name(), space.format(), space.field_by_name(name)?)));
        let Some((space, format, field)) = found else {
            let text = format!("Field '{name}' was not found in space '{}' format", self.alias);
            return Err(Failure::new(NO_SUCH_FIELD_NAME, text));
        };
        let (ty, required) = (format.field_type(field), !format.is_nullable(field));
        Ok(Target { field, name: format!("{space}.{name}"), ty, required })
    }

    fn boxed(&mut self, expr: ast::Expr) -> Result<Box<Expr>, Failure> {
        self.expression(expr).map(Box::new)
    }

    /// An expression whose value is compared or computed with.
    pub(crate) fn expression(&mut self, expr: ast::Expr) -> Result<Expr, Failure> {
        let resolved = self.any(expr)?;
        if self.is_collated(&resolved) {
            return Err(unsupported("a comparison of a column that has a collation"));
        }
        Ok(resolved)
    }

    fn negated(expr: Expr, negated: bool) -> Expr {
        if negated { Expr::Not(Box::new(expr)) } else { expr }
    }

    pub(crate) fn any(&mut self, expr: ast::Expr) -> Result<Expr, Failure> {
        use ast::Expr as Ast;
        self.parts += 1;
        Ok(match expr {
            Ast::Identifier(ident) => self.column(&ident)?,
            Ast::CompoundIdentifier(parts) => self.column_of(&parts)?,
            Ast::Subquery(_) | Ast::Exists { .. } | Ast::InSubquery { .. } => return self.queried(expr),
            Ast::Nested(inner) => return self.any(*inner),
            Ast::Value(value) => literal(value.value)?,
            Ast::IsNull(inner) | Ast::IsUnknown(inner) => Expr::IsNull(Box::new(self.any(*inner)?)),
            Ast::IsNotNull(inner) | Ast::IsNotUnknown(inner) => {
                Context::negated(Expr::IsNull(Box::new(self.any(*inner)?)), true)
            }
            Ast::UnaryOp { op, expr } => match op {
                ast::UnaryOperator::Not => Expr::Not(self.boxed(*expr)?),
                ast::UnaryOperator::Plus => return self.any(*expr),
                ast::UnaryOperator::Minus => match self.expression(*expr)? {
                    Expr::Literal(Value::Uint(number)) => Expr::Literal(
                        Number::Int(-i128::from(number)).into_value().map_err(|_| too_large(number))?,
                    ),
                    inner => Expr::Minus(Box::new(inner)),
                },
                ast::UnaryOperator::BitwiseNot => Expr::Invert(self.boxed(*expr)?),
                other => return Err(unsupported(&format!("the operator {other}"))),
            },
            Ast::BinaryOp { left, op, right } => {
                let (left, right) = (self.boxed(*left)?, self.boxed(*right)?);
                binary(&op, left, right)?
            }
            Ast::InList { expr, list, negated } => {
                let inner = self.boxed(*expr)?;
                let list = list.into_iter().map(|item| self.expression(item)).collect::<Result<_, _>>()?;
                Context::negated(Expr::In(inner, list), negated)
            }
            Ast::Between { expr, negated, low, high } => {
                let (inner, low, high) = (self.boxed(*expr)?, self.boxed(*low)?, self.boxed(*high)?);
                Context::negated(Expr::Between(inner, low, high), negated)
            }
            Ast::Like { negated, any, expr, pattern, escape_char } => {
                none(!any, "LIKE ANY")?;
                let escape = match escape_char.map(|escape| self.expression(*escape)).transpose()? {
                    None => None,
                    Some(Expr::Literal(Value::Str(text)))
                        if String::from_utf8_lossy(&text).chars().count() == 1 =>
                    {
                        String::from_utf8_lossy(&text).chars().next()
                    }
                    Some(_) => return Err(generic("ESCAPE expression must be a single character")),
                };
                let (text, pattern) = (self.boxed(*expr)?, self.boxed(*pattern)?);
                Context::negated(Expr::Like(text, pattern, escape), negated)
            }
            Ast::Function(function) => return self.function(function),
            Ast::Substring { expr, substring_from, substring_for, special: _, shorthand } => {
                let name = if shorthand { "SUBSTR" } else { "SUBSTRING" };
                let parts = std::iter::once(expr).chain(substring_from).chain(substring_for);
                call_of(name, parts.map(|part| self.expression(*part)).collect::<Result<_, _>>()?, self)?
            }
            Ast::Trim { trim_where, trim_what, expr, trim_characters } => {
                self.trim(trim_where, trim_what, *expr, trim_characters.as_deref())?
            }
            Ast::Cast { kind, expr, data_type, format } => {
                none(kind == ast::CastKind::Cast && format.is_none(), "such a CAST")?;
                let ty = FieldType::parse(define::type_of(&data_type.to_string())?);
                Expr::Cast(self.boxed(*expr)?, ty.ok_or_else(|| unsupported("such a CAST"))?)
            }
            Ast::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.case(operand, conditions, else_result)?
            }
            other => return Err(unsupported(&format!("the expression {}", shortened(&other.to_string())))),
        })
    }

    fn trim(
        &mut self,
        side: Option<ast::TrimWhereField>,
        what: Option<Box<ast::Expr>>,
        text: ast::Expr,
        list: Option<&[ast::Expr]>,
    ) -> Result<Expr, Failure> {
        none(list.is_none(), "TRIM with a list of characters")?;
        let (text, what) = (self.expression(text)?, what.map(|what| self.expression(*what)).transpose()?);
        let default = if matches!(text, Expr::Literal(Value::Bin(_))) { "\0" } else { " " };
        let what = what.unwrap_or_else(|| Expr::Literal(Value::str(default)));
        let trims = |other| Expr::Literal(Value::Bool(side != Some(other)));
        let sides = [trims(ast::TrimWhereField::Trailing), trims(ast::TrimWhereField::Leading)];
        Ok(Expr::Call(Function::Trim, [text, what].into_iter().chain(sides).collect()))
    }

    fn case(
        &mut self,
        operand: Option<Box<ast::Expr>>,
        conditions: Vec<ast::CaseWhen>,
        otherwise: Option<Box<ast::Expr>>,
    ) -> Result<Expr, Failure> {
        let operand = operand.map(|operand| self.boxed(*operand)).transpose()?;
        let mut branches = Vec::with_capacity(conditions.len());
        for ast::CaseWhen { condition, result } in conditions {
            branches.push((self.expression(condition)?, self.any(result)?));
        }
        let otherwise = otherwise.map(|result| self.any(*result).map(Box::new)).transpose()?;
        Ok(Expr::Case(operand, branches, otherwise))
    }

    fn function(&mut self, function: ast::Function) -> Result<Expr, Failure> {
        let ast::Function {
            name,
            uses_odbc_syntax: _,
            parameters,
            args,
            within_group,
            filter,
            null_treatment,
            over,
        } = function;
        let name = function_name(&name)?;
        let is_plain = matches!(parameters, ast::FunctionArguments::None) && within_group.is_empty();
        none(
            is_plain && filter.is_none() && null_treatment.is_none() && over.is_none(),
            "a window function",
        )?;
        let ast::FunctionArguments::List(list) = args else { return Err(unsupported("a subquery")) };
        none(list.clauses.is_empty(), "such arguments of a function")?;
        let is_distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
        let aggregate = aggregate_of(&name);
        none(!is_distinct || aggregate.is_some(), "DISTINCT in such a function")?;
        at_most(MAX_ARGUMENTS, &format!("Number of arguments to function {name}"), list.args.len())?;
        let (mut arguments, mut is_all) = (Vec::new(), list.args.is_empty());
        let may_aggregate = self.may_aggregate;
        self.may_aggregate = may_aggregate && aggregate.is_none();
        for argument in list.args {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    arguments.push(self.expression(expr)?);
                }
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard) => is_all = true,
                _ => return Err(unsupported("a named argument")),
            }
        }
        self.may_aggregate = may_aggregate;
        if let Some(kind) = aggregate {
            if !self.may_aggregate {
                return Err(generic(format!("misuse of aggregate function {name}()")));
            }
            if is_distinct && is_all {
                return Err(Failure::new(SYNTAX_NEAR, "Syntax error at line 1 near '*'"));
            }
            if is_distinct && arguments.len() > 1 {
                return Err(generic("DISTINCT aggregates must have exactly one argument"));
            }
            let most = if kind == AggregateKind::GroupConcat { 2 } else { 1 };
            if is_all && kind != AggregateKind::Count || arguments.len() > most {
                let expected = if most == 2 { "1 or 2" } else { "1" };
                return Err(wrong_count(&name, expected, arguments.len()));
            }
            let separator = (arguments.len() > 1).then(|| arguments.pop()).flatten();
            let argument = arguments.pop();
            self.aggregates.push(Aggregate { kind, argument, distinct: is_distinct, separator });
            return Ok(Expr::Aggregate(self.aggregates.len() - 1));
        }
        call_of(&name, arguments, self)
    }
}

fn wrong_count(name: &str, expected: &str, count: usize) -> Failure {
    let text = format!("Wrong number of arguments is passed to {name}(): expected {expected}, got {count}");
    Failure::new(FUNC_WRONG_ARG_COUNT, text)
}

fn call_of(name: &str, mut arguments: Vec<Expr>, context: &Context<'_>) -> Result<Expr, Failure> {
    let (function, expected) = function_of(name)?;
    if !expected.contains(&arguments.len()) {
        let expected = match function {
            Function::Round | Function::Substr => "1 or 2".to_owned(),
            Function::Greatest | Function::Least => "at least two".to_owned(),
            _ if expected.end() == expected.start() => expected.start().to_string(),
            _ => format!("at least {}", expected.start()),
        };
        return Err(wrong_count(name, &expected, arguments.len()));
    }
    if function == Function::Typeof
        && let Some(argument @ (Expr::Column(_) | Expr::Slot(..) | Expr::Cast(..) | Expr::Concat(..))) =
            arguments.first()
        && let Some(ty) = type_of(argument, context).filter(|ty| *ty != FieldType::Scalar.name())
    {
        arguments.push(Expr::Literal(Value::str(ty)));
    }
    Ok(Expr::Call(function, arguments))
}

fn aggregate_of(name: &str) -> Option<AggregateKind> {
    Some(match name {
        "COUNT" => AggregateKind::Count,
        "SUM" => AggregateKind::Sum,
        "TOTAL" => AggregateKind::Total,
        "MIN" => AggregateKind::Min,
        "MAX" => AggregateKind::Max,
        "AVG" => AggregateKind::Avg,
        "GROUP_CONCAT" => AggregateKind::GroupConcat,
        _ => return None,
    })
}

/// A function of one row, and the numbers of arguments that it takes.
fn function_of(name: &str) -> Result<(Function, RangeInclusive<usize>), Failure> {
    Ok(match name {
        "ABS" => (Function::Abs, 1..=1),
        "CHAR" => (Function::Char, 0..=usize::MAX),
        "COALESCE" => (Function::Coalesce, 2..=usize::MAX),
        "GREATEST" => (Function::Greatest, 2..=usize::MAX),
        "HEX" => (Function::Hex, 1..=1),
        "IFNULL" => (Function::Ifnull, 2..=2),
        "LEAST" => (Function::Least, 2..=usize::MAX),
        "LENGTH" | "CHAR_LENGTH" | "CHARACTER_LENGTH" => (Function::Length, 1..=1),
        "LIKELY" | "UNLIKELY" => (Function::Likely, 1..=1),
        "LOWER" => (Function::Lower, 1..=1),
        "NULLIF" => (Function::Nullif, 2..=2),
        "POSITION" => (Function::Position, 2..=2),
        "QUOTE" => (Function::Quote, 1..=1),
        "REPLACE" => (Function::Replace, 3..=3),
        "ROUND" => (Function::Round, 1..=2),
        "SOUNDEX" => (Function::Soundex, 1..=1),
        "SUBSTR" => (Function::Substr, 2..=3),
        "TYPEOF" => (Function::Typeof, 1..=1),
        "UNICODE" => (Function::Unicode, 1..=1),
        "UPPER" => (Function::Upper, 1..=1),
        "ZEROBLOB" => (Function::Zeroblob, 1..=1),
        _ => {
            let text = format!(
                "Function '{name}' does not exist in Lycosa: it has ABS, CHAR, COALESCE, GREATEST, HEX, IFNULL, LEAST, \
                 LENGTH, LIKELY, LOWER, NULLIF, POSITION, QUOTE, REPLACE, ROUND, SOUNDEX, SUBSTR, TRIM, TYPEOF, \
                 UNICODE, UPPER, ZEROBLOB, and COUNT, SUM, TOTAL, MIN, MAX, AVG, GROUP_CONCAT"
            );
            return Err(Failure::new(NO_SUCH_FUNCTION, text));
        }
    })
}

fn too_large(number: impl std::fmt::Display) -> Failure {
    let text = format!(
        "Integer literal {number} exceeds the supported range [-9223372036854775808, 18446744073709551615]"
    );
    Failure::new(INTEGER_LIMIT, text)
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

fn binary(op: &BinaryOperator, left: Box<Expr>, right: Box<Expr>) -> Result<Expr, Failure> {
    let comparison = match op {
        BinaryOperator::Eq => Some(Comparison::Equal),
        BinaryOperator::NotEq => Some(Comparison::NotEqual),
        BinaryOperator::Lt => Some(Comparison::Less),
        BinaryOperator::LtEq => Some(Comparison::AtMost),
        BinaryOperator::Gt => Some(Comparison::Greater),
        BinaryOperator::GtEq => Some(Comparison::AtLeast),
        _ => None,
    };
    if let Some(comparison) = comparison {
        return Ok(Expr::Compare(comparison, left, right));
    }
    let arithmetic = match op {
        BinaryOperator::And => return Ok(Expr::And(left, right)),
        BinaryOperator::Or => return Ok(Expr::Or(left, right)),
        BinaryOperator::StringConcat => return Ok(Expr::Concat(left, right)),
        BinaryOperator::Plus => b'+',
        BinaryOperator::Minus => b'-',
        BinaryOperator::Multiply => b'*',
        BinaryOperator::Divide => b'/',
        BinaryOperator::Modulo => b'%',
        BinaryOperator::BitwiseAnd => b'&',
        BinaryOperator::BitwiseOr => b'|',
        other => return Err(unsupported(&format!("the operator {other}"))),
    };
    Ok(Expr::Arithmetic(arithmetic, left, right))
}

/// A literal that stands alone.
fn literal_of(expr: ast::Expr) -> Result<Expr, Failure> {
    match expr {
        ast::Expr::Value(value) => literal(value.value),
        other => Err(unsupported(&format!("the literal {}", shortened(&other.to_string())))),
    }
}

fn literal(value: ast::Value) -> Result<Expr, Failure> {
    Ok(Expr::Literal(match value {
        ast::Value::Null => Value::Nil,
        ast::Value::Boolean(value) => Value::Bool(value),
        ast::Value::SingleQuotedString(text) => Value::str(text),
        ast::Value::HexStringLiteral(digits) => {
            let pairs = digits.as_bytes().chunks(2);
            let bytes: Option<Vec<u8>> = pairs
                .map(|pair| {
                    u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|it| it.len() == 2)?, 16).ok()
                })
                .collect();
            Value::Bin(
                bytes.ok_or_else(|| generic(format!("X'{digits}' is not an even number of hex digits")))?,
            )
        }
        ast::Value::Number(text, _) => {
            let number = parse_number(&text);
            let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
            match number {
                Some(Number::Int(number)) => Number::Int(number).into_value().map_err(|_| too_large(text))?,
                Some(Number::Double(number)) if !is_digits => Value::Double(number),
                _ => return Err(too_large(text)),
            }
        }
        ast::Value::Placeholder(place) => {
            let number = place.strip_prefix('?').and_then(|digits| digits.parse().ok());
            return number.map(Expr::Parameter).ok_or_else(|| generic("such a parameter is not supported"));
        }
        other => return Err(unsupported(&format!("the literal {}", shortened(&other.to_string())))),
    }))
}

/// The fields of a space as its row of `_space` has them: a MessagePack array.
fn definition_of_fields<'a>(space: &Space, store: &'a Store) -> Option<&'a [u8]> {
    let mut key = Vec::new();
    mp::write_array(&mut key, 1);
    mp::write_uint(&mut key, space.id().into());
    let row = store.get(system::SPACE, 0, &key).ok().flatten()?;
    TupleRef::trusted(row).field(6)
}

/// The values of fields that an INSERT does not name.
pub(crate) fn defaults_of(space: &Space, store: &Store) -> Result<Vec<Value>, Failure> {
    const WORD: &[u8] = b"default";
    let count = space.format().fields().len();
    let bytes = definition_of_fields(space, store).unwrap_or_default();
    // Most definitions have no default values, and then nothing is decoded.
    if !bytes.windows(WORD.len()).any(|window| window == WORD) {
        return Ok(vec![Value::Nil; count]);
    }
    let definition = Value::decode(bytes).ok();
    let fields = definition.as_ref().and_then(Value::as_array).unwrap_or_default();
    let text_of = |number: usize| fields.get(number)?.get("default")?.as_str();
    let defaults = (0..count).map(|number| match text_of(number) {
        None => Ok(Value::Nil),
        Some(text) => {
            let wrong = || unsupported(&format!("the default value {}", shortened(text)));
            let parsed = parse(&format!("SELECT {text}")).map_err(|_| wrong())?;
            let Statement::Query(query) = parsed.statement else { return Err(wrong()) };
            let SetExpr::Select(select) = *query.body else { return Err(wrong()) };
            let Ok([ast::SelectItem::UnnamedExpr(expr)]) = <[_; 1]>::try_from(select.projection) else {
                return Err(wrong());
            };
            let expr = Context::nothing().expression(expr)?;
            Row::nothing(&[], &Effort::default()).evaluate(&expr)
        }
    });
    defaults.collect()
}

/// Fields of a space whose format names a collation that does not order byte by byte.
fn collated_fields(space: &Space, store: &Store) -> Vec<u32> {
    let definition = definition_of_fields(space, store).and_then(|bytes| Value::decode(bytes).ok());
    let fields = definition.as_ref().and_then(Value::as_array).unwrap_or_default();
    let has_order = |field: &Value| {
        field.get("collation").and_then(Value::as_u64).is_some_and(|id| !BINARY_COLLATIONS.contains(&id))
    };
    (0..).zip(fields).filter(|(_, field)| has_order(field)).map(|(number, _)| number).collect()
}

/// The type that an expression has in metadata; `None`: that of a parameter.
fn type_of(expr: &Expr, context: &Context<'_>) -> Option<&'static str> {
    let of = |expr: &Expr| type_of(expr, context).unwrap_or_default();
    Some(match expr {
        Expr::Parameter(_) => return None,
        Expr::Column(field) => context.space.map_or("any", |space| space.format().field_type(*field).name()),
        Expr::Slot(slot, field) => {
            let names = context.names.as_ref();
            names.and_then(|names| names.field(*slot, *field)).map_or("any", |field| field.ty)
        }
        Expr::Tuple(_) => "array",
        Expr::Scalar(query) => {
            let query = context.names.as_ref().and_then(|names| names.queries.get(*query));
            return query?.columns.first()?.ty;
        }
        Expr::Exists(_) | Expr::InQuery(..) => "boolean",
        Expr::Literal(value) => match value {
            Value::Nil => "scalar",
            Value::Bool(_) => "boolean",
            Value::Uint(_) | Value::Int(_) => "integer",
            Value::Double(_) => "double",
            Value::Str(_) => "string",
            _ => "varbinary",
        },
        Expr::Aggregate(number) => match context.aggregates.get(*number).map(|it| it.kind) {
            Some(AggregateKind::Count) => "integer",
            Some(AggregateKind::Min | AggregateKind::Max) => "scalar",
            Some(AggregateKind::GroupConcat) => "string",
            _ => "number",
        },
        Expr::And(..)
        | Expr::Or(..)
        | Expr::Not(_)
        | Expr::Compare(..)
        | Expr::Between(..)
        | Expr::IsNull(_)
        | Expr::In(..)
        | Expr::Like(..) => "boolean",
        Expr::Arithmetic(_, left, right) => {
            let is_whole = |ty: &str| matches!(ty, "integer" | "unsigned" | "scalar");
            if is_whole(of(left)) && is_whole(of(right)) { "integer" } else { "number" }
        }
        Expr::Minus(inner) => return type_of(inner, context),
        Expr::Invert(_) => "integer",
        Expr::Concat(..) => "string",
        Expr::Cast(_, ty) => ty.name(),
        Expr::Case(_, branches, otherwise) => {
            let mut types = branches.iter().map(|(_, result)| result).chain(otherwise.as_deref()).map(of);
            let first = types.next().unwrap_or_default();
            if types.all(|ty| ty == first) { first } else { "scalar" }
        }
        Expr::Call(Function::Likely, arguments) => return type_of(arguments.first()?, context),
        Expr::Call(function, _) => match function {
            Function::Abs => "number",
            Function::Coalesce | Function::Greatest | Function::Least | Function::Nullif => "scalar",
            Function::Ifnull | Function::Length | Function::Position | Function::Round => "integer",
            Function::Zeroblob => "varbinary",
            _ => "string",
        },
    })
}
