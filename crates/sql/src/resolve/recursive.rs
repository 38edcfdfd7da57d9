//! Recursive queries of WITH: the last part of a UNION reads the rows that the query has found so far.
//!
//! As in Tarantool the word RECURSIVE says nothing: a query is recursive if the FROM of its last part names it.

use sqlparser::ast::{self, SetExpr, TableFactor};

use super::queries::wrong_number_of_columns;
use super::select::{Clauses, bounds_of, clauses_of};
use super::{Context, generic, name, none, simple_name};
use crate::SqlFault;
use crate::query::{Query, Recursion, SetOperation, Wanted};

impl Context<'_> {
    /// Resolves a query of WITH that reads its own rows. Returns its number; `None` for any other query.
    pub(super) fn recursive(&mut self, own: &str, cte: &ast::Cte) -> Result<Option<usize>, SqlFault> {
        let Some(direct) = reads_itself(own, &cte.query) else { return Ok(None) };
        let (body, Clauses { with, order, limit }) = clauses_of((*cte.query).clone())?;
        let SetExpr::SetOperation { left, right, set_quantifier, .. } = body else { return Ok(None) };
        none(with.is_none(), "WITH inside of a recursive query")?;
        none(order.is_empty(), "ORDER BY of a recursive query")?;
        let is_distinct = set_quantifier != ast::SetQuantifier::All;
        let mut query = self.query_of_parts(*left, Vec::new(), None, Wanted::Rows)?;
        (query.limit, query.offset) = bounds_of(limit)?;
        self.name_columns(own, &cte.alias.columns, &mut query)?;
        let names = self.names()?;
        let (number, count) = (names.queries.len(), query.columns.len());
        names.queries.push(query);
        self.named_queries.push((own.to_owned(), number));
        let uses = self.uses;
        let part = self.part(*right);
        self.named_queries.pop();
        let (part, columns, slots) = part?;
        if self.uses - uses > direct {
            return Err(generic(format!("recursive reference in a subquery: {own}")));
        }
        if columns.len() != count {
            let operation = if is_distinct { SetOperation::Union } else { SetOperation::UnionAll };
            return Err(wrong_number_of_columns(operation));
        }
        let query = &mut self.names()?.queries[number];
        query.recursion = Some(Box::new(Recursion { number, part, is_distinct }));
        query.slots.extend(slots);
        query.slots.sort_unstable();
        query.slots.dedup();
        let read = query.slots.clone();
        self.names()?.read(&read);
        Ok(Some(number))
    }

    /// Gives the columns of a query the names that WITH has for them.
    pub(super) fn name_columns(
        &self,
        own: &str,
        aliases: &[ast::TableAliasColumnDef],
        query: &mut Query,
    ) -> Result<(), SqlFault> {
        let columns = &mut query.columns;
        if !aliases.is_empty() && aliases.len() != columns.len() {
            let (count, wanted) = (columns.len(), aliases.len());
            return Err(generic(format!("table {own} has {count} values for {wanted} columns")));
        }
        for (column, alias) in columns.iter_mut().zip(aliases) {
            none(alias.data_type.is_none(), "such a WITH")?;
            column.name = name(&alias.name)?;
        }
        Ok(())
    }
}

/// How often the FROM of the last part of a UNION names the query itself; `None` if it does not.
fn reads_itself(own: &str, query: &ast::Query) -> Option<usize> {
    let SetExpr::SetOperation { op: ast::SetOperator::Union, right, .. } = &*query.body else { return None };
    let SetExpr::Select(select) = &**right else { return None };
    let joined = |table: &ast::TableWithJoins| {
        let joins = table.joins.iter().map(|join| &join.relation);
        std::iter::once(&table.relation).chain(joins).filter(|factor| is_named(own, factor)).count()
    };
    let count: usize = select.from.iter().map(joined).sum();
    (count > 0).then_some(count)
}

fn is_named(own: &str, factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Table { name, .. } if simple_name(name).is_ok_and(|name| name == own))
}
