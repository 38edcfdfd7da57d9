//! Queries of a statement: SELECT over several sources, compound queries, VALUES, subqueries.

use std::collections::HashSet;
use std::rc::Rc;

use lycosa_tuple::value::Value;
use sqlparser::ast::{self, SetExpr};

use super::expressions::literal_of;
use super::names::{Names, has_query};
use super::select::{Clauses, bounds_of, clauses_of, parts_of};
use super::types::type_of;
use super::{Context, MAX_VALUES, at_most, generic, name, none, unsupported};
use crate::SqlFault;
use crate::parse::COMPOUNDS;
use crate::query::{Joined, Part, Query, SetOperation, Wanted};
use crate::strings;
use crate::tree::{Column, Expr, Select};

/// `ER_SQL_COLUMN_COUNT` of Tarantool 2.6.
const COLUMN_COUNT: u32 = 197;

/// Parts of a compound query, as in Tarantool.
const MAX_PARTS: usize = 30;

/// Stands for the number of a query of WITH inside of this query.
pub(super) const UNRESOLVED: usize = usize::MAX;

/// A part that is resolved, its columns, and the slots that it reads from around it.
type Resolved = (Part, Vec<Column>, Vec<u32>);

impl<'a> Context<'a> {
    /// The names of a statement of several sources.
    pub(super) fn names(&mut self) -> Result<&mut Names<'a>, SqlFault> {
        self.names.as_mut().ok_or_else(|| unsupported("a subquery"))
    }

    /// An expression that is made of a subquery.
    pub(super) fn queried(&mut self, expr: ast::Expr) -> Result<Expr, SqlFault> {
        let (expr, is_negated) = match expr {
            ast::Expr::Subquery(query) => (Expr::Scalar(self.subquery(*query, Wanted::Scalar)?), false),
            ast::Expr::Exists { subquery, negated } => {
                (Expr::Exists(self.subquery(*subquery, Wanted::Exists)?), negated)
            }
            ast::Expr::InSubquery { expr, subquery, negated } => {
                let inner = self.expression(*expr)?;
                let number = self.subquery(*subquery, Wanted::Set)?;
                let standing = self.standing(&inner)?;
                if let Some(query) = self.names()?.queries.get_mut(number) {
                    let order = query.columns.first().and_then(|column| column.order.clone());
                    query.compared = standing.mixed(strings::Standing::implicit(order))?.order;
                }
                (Expr::InQuery(Box::new(inner), number), negated)
            }
            _ => return Err(unsupported("such a subquery")),
        };
        Ok(Context::negated(expr, is_negated))
    }

    /// Resolves a subquery. Returns its number.
    pub(super) fn subquery(&mut self, query: ast::Query, wanted: Wanted) -> Result<usize, SqlFault> {
        self.names()?;
        let aggregates = std::mem::take(&mut self.aggregates);
        let aliases = std::mem::take(&mut self.aliases.columns);
        let may_aggregate = std::mem::replace(&mut self.may_aggregate, false);
        let query = self.query(query, wanted)?;
        (self.aggregates, self.may_aggregate) = (aggregates, may_aggregate);
        self.aliases.columns = aliases;
        if matches!(wanted, Wanted::Scalar | Wanted::Set) && query.columns.len() != 1 {
            let count = query.columns.len();
            let (left, right) = if wanted == Wanted::Scalar { (count, 1) } else { (1, count) };
            let text = format!(
                "Unequal number of entries in row expression: left side has {left}, but right side - {right}"
            );
            return Err(SqlFault::new(COLUMN_COUNT, text));
        }
        let names = self.names()?;
        names.read(&query.slots);
        names.queries.push(query);
        Ok(names.queries.len() - 1)
    }

    /// Resolves a query.
    pub(crate) fn query(&mut self, query: ast::Query, wanted: Wanted) -> Result<Query, SqlFault> {
        let (body, Clauses { with, order, limit }) = clauses_of(query)?;
        let Some(with) = with else { return self.query_of_parts(body, order, limit, wanted) };
        let known = self.named_queries.len();
        self.name_queries(with)?;
        let query = self.query_of_parts(body, order, limit, wanted);
        self.named_queries.truncate(known);
        query
    }

    /// Resolves the queries of a WITH. Each is one query, whose rows all sources of its name share.
    pub(super) fn name_queries(&mut self, with: ast::With) -> Result<(), SqlFault> {
        let ast::With { with_token: _, recursive: _, cte_tables } = with;
        let mut names = HashSet::new();
        for cte in &cte_tables {
            let own = name(&cte.alias.name)?;
            if names.contains(&own) {
                return Err(generic(format!("Ambiguous table name in WITH query: {own}")));
            }
            names.insert(own);
        }
        for cte in cte_tables {
            let own = name(&cte.alias.name)?;
            if let Some(number) = self.recursive(&own, &cte)? {
                self.named_queries.push((own, number));
                continue;
            }
            let ast::Cte { alias, query, from, materialized, closing_paren_token: _ } = cte;
            none(from.is_none() && materialized.is_none() && alias.at.is_none(), "such a WITH")?;
            self.named_queries.push((own.clone(), UNRESOLVED));
            let number = self.subquery(*query, Wanted::Rows)?;
            self.named_queries.pop();
            let mut query = self.names()?.queries[number].clone();
            self.name_columns(&own, &alias.columns, &mut query)?;
            self.names()?.queries[number] = query;
            self.named_queries.push((own, number));
        }
        Ok(())
    }

    pub(super) fn query_of_parts(
        &mut self,
        body: SetExpr,
        order: Vec<ast::OrderByExpr>,
        limit: Option<ast::LimitClause>,
        wanted: Wanted,
    ) -> Result<Query, SqlFault> {
        let mut parts = Vec::new();
        flatten(body, SetOperation::UnionAll, &mut parts)?;
        at_most(MAX_PARTS, COMPOUNDS, parts.len())?;
        let mut parts = parts.into_iter();
        let Some((_, first)) = parts.next() else { return Err(unsupported("such a query")) };
        if parts.len() == 0
            && let SetExpr::Select(select) = first
        {
            let (first, mut columns, slots) = self.select(*select, order, limit)?;
            if wanted == Wanted::Rows {
                self.names()?.number(&first, &mut columns);
            }
            return Ok(Query::of_part(wanted, first, columns, slots));
        }
        let (first, mut columns, mut slots) = self.part(first)?;
        let mut names = vec![columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>()];
        let (mut others, mut later) = (Vec::new(), Vec::new());
        for (operation, part) in parts {
            let (part, own, read) = self.part(part)?;
            if own.len() != columns.len() {
                return Err(wrong_number_of_columns(operation));
            }
            for (column, own) in columns.iter_mut().zip(&own) {
                let standing = strings::Standing::implicit(column.order.take());
                column.order = standing.mixed(strings::Standing::implicit(own.order.clone()))?.order;
            }
            names.push(own.iter().map(|column| column.name.clone()).collect());
            slots.extend(read);
            others.push((operation, part));
            later.push(own);
        }
        if wanted == Wanted::Rows {
            // As in Tarantool, the columns of later parts use up numbers first.
            let names = self.names()?;
            let parts = others.iter().map(|(_, part)| part).zip(&mut later).rev();
            parts.for_each(|(part, columns)| names.number(part, columns));
            names.number(&first, &mut columns);
        }
        slots.sort_unstable();
        slots.dedup();
        let order = (order.into_iter().enumerate())
            .map(|(place, term)| self.order_of_compound(place, term, &columns, &names))
            .collect::<Result<_, _>>()?;
        let (limit, offset) = bounds_of(limit)?;
        Ok(Query { others, order, limit, offset, ..Query::of_part(wanted, first, columns, slots) })
    }

    pub(super) fn part(&mut self, part: SetExpr) -> Result<Resolved, SqlFault> {
        match part {
            SetExpr::Select(select) => self.select(*select, Vec::new(), None),
            SetExpr::Values(values) => self.values(values),
            _ => Err(unsupported("a query in parentheses as a part of a compound query")),
        }
    }

    fn values(&mut self, values: ast::Values) -> Result<Resolved, SqlFault> {
        none(!values.explicit_row && !values.value_keyword, "such VALUES")?;
        // Its expressions may read the queries around it, which this scope notes.
        self.names()?.push(Vec::new(), Vec::new());
        let width = values.rows.first().map_or(0, |row| row.content.len());
        at_most(MAX_VALUES, "The number of VALUES", values.rows.len().saturating_mul(width))?;
        let mut rows = Vec::with_capacity(values.rows.len());
        for row in values.rows {
            if row.content.len() != width {
                return Err(generic("all VALUES must have the same number of terms"));
            }
            rows.push(
                row.content.into_iter().map(|expr| self.expression(expr)).collect::<Result<Vec<_>, _>>()?,
            );
        }
        let first = rows.first().map_or(&[][..], Vec::as_slice);
        let columns = first.iter().map(|expr| {
            Ok(Column {
                name: String::new(),
                ty: type_of(expr, self),
                is_aggregate: false,
                order: self.standing(expr)?.order,
                expr: Rc::new(expr.clone()),
            })
        });
        let columns = columns.collect::<Result<_, SqlFault>>()?;
        let slots = self.names()?.pop();
        Ok((Part::Values(rows), columns, slots))
    }

    fn select(
        &mut self,
        select: ast::Select,
        order: Vec<ast::OrderByExpr>,
        limit: Option<ast::LimitClause>,
    ) -> Result<Resolved, SqlFault> {
        let aggregates = std::mem::take(&mut self.aggregates);
        let may_aggregate = std::mem::replace(&mut self.may_aggregate, false);
        let (from, parts) = parts_of(select)?;
        let (sources, mut terms) = self.join(from)?;
        let (filter, select) = self.fill(parts, order, limit)?;
        (self.aggregates, self.may_aggregate) = (aggregates, may_aggregate);
        let names = self.names()?;
        if let Some(filter) = filter {
            names.terms_of(filter, &mut terms);
        }
        let slots = names.pop();
        let columns = select.columns.clone();
        let (of_row, of_result) = with_queries(&select);
        names.joined.push(Joined { select, sources, terms, of_row, of_result });
        Ok((Part::Select(names.joined.len() - 1), columns, slots))
    }
}

pub(super) fn wrong_number_of_columns(operation: SetOperation) -> SqlFault {
    let word = match operation {
        SetOperation::UnionAll => "UNION ALL",
        SetOperation::Union => "UNION",
        SetOperation::Intersect => "INTERSECT",
        SetOperation::Except => "EXCEPT",
    };
    generic(format!("SELECTs to the left and right of {word} do not have the same number of result columns"))
}

/// The expressions of a SELECT that have a subquery: of a row, and of a group.
fn with_queries(select: &Select) -> (Vec<Expr>, Vec<Expr>) {
    let columns = select.columns.iter().map(|column| &*column.expr);
    let order = select.order.iter().map(|order| &*order.expr);
    let chosen = |exprs: &mut dyn Iterator<Item = &Expr>| -> Vec<Expr> {
        exprs.filter(|expr| has_query(expr)).cloned().collect()
    };
    if !select.is_grouped() {
        return (chosen(&mut columns.chain(order)), Vec::new());
    }
    let arguments = select.aggregates.iter().flat_map(|it| it.argument.iter().chain(&it.separator));
    let of_row = chosen(&mut select.groups.iter().map(|(group, _)| &**group).chain(arguments));
    (of_row, chosen(&mut select.having.iter().chain(columns).chain(order)))
}

/// The parts of a compound query. All operators bind equally, from the left, as in Tarantool.
fn flatten(
    body: SetExpr,
    operation: SetOperation,
    parts: &mut Vec<(SetOperation, SetExpr)>,
) -> Result<(), SqlFault> {
    let SetExpr::SetOperation { left, op, set_quantifier, right } = body else {
        parts.push((operation, body));
        return Ok(());
    };
    let own = match (op, set_quantifier) {
        (ast::SetOperator::Union, ast::SetQuantifier::All) => SetOperation::UnionAll,
        (ast::SetOperator::Union, ast::SetQuantifier::None) => SetOperation::Union,
        (ast::SetOperator::Intersect, ast::SetQuantifier::None) => SetOperation::Intersect,
        (ast::SetOperator::Except, ast::SetQuantifier::None) => SetOperation::Except,
        (op, quantifier) => return Err(unsupported(&format!("{op} {quantifier}"))),
    };
    flatten(*left, operation, parts)?;
    flatten(*right, own, parts)
}

impl Context<'_> {
    /// A term of ORDER BY of a compound query: the number of a column, or its name in one of the parts.
    fn order_of_compound(
        &self,
        place: usize,
        term: ast::OrderByExpr,
        columns: &[Column],
        names: &[Vec<String>],
    ) -> Result<(u32, bool, strings::Order), SqlFault> {
        let (mut expr, descending) = super::select::direction_of(term)?;
        let mut given = None;
        if let ast::Expr::Collate { expr: inner, collation } = expr {
            (expr, given) = (*inner, Some(self.order_named(&collation)?));
        }
        let column = match &expr {
            ast::Expr::Identifier(ident) => {
                let wanted = name(ident)?;
                names.iter().find_map(|names| names.iter().position(|name| *name == wanted))
            }
            ast::Expr::Value(_) => match literal_of(expr)? {
                Expr::Literal(Value::Uint(number)) => {
                    super::select::column_at("ORDER", place, number, columns)?;
                    usize::try_from(number).ok().and_then(|number| number.checked_sub(1))
                }
                _ => None,
            },
            _ => None,
        };
        let Some(column) = column else {
            return Err(generic(format!(
                "Error at ORDER BY in place {}: term does not match any column in the result set",
                place + 1
            )));
        };
        let order = given.unwrap_or_else(|| columns[column].order.clone());
        Ok((u32::try_from(column).unwrap_or(u32::MAX), descending, order))
    }
}
