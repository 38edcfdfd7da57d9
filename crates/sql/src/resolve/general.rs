//! A statement of several sources or queries to a plan.

use std::rc::Rc;

use lycosa_store::Space;
use sqlparser::ast::{Statement, With};

use super::names::{Catalog, Named, Names, has_query};
use super::{Context, delete_of, generic, unsupported};
use crate::SqlFault;
use crate::changes::{self, InsertParts, Updated, insert_parts_of};
use crate::query::{General, GeneralChange, Joined, Origin, Part, Query, Source, Wanted};
use crate::tree::{Body, Column, Expr, Plan, Select};

pub(super) fn plan_of(
    statement: Statement,
    with: Option<With>,
    parameters: &[String],
    catalog: &Catalog<'_>,
) -> Result<Plan, SqlFault> {
    let store = catalog.store;
    let (context, root, target, change) = match statement {
        Statement::Query(query) => {
            let mut context = Context { names: Some(Names::new(catalog)), ..Context::of_store(store) };
            let root = context.query(*query, Wanted::Rows)?;
            (context, root, 0, None)
        }
        Statement::Insert(insert) => insert_of(insert, catalog)?,
        Statement::Update(update) => {
            let Updated { context, written, selection, conflict } =
                changes::update_of(update, store, |context| context.open(catalog, with))?;
            let (targets, values): (Vec<_>, Vec<_>) = written.into_iter().unzip();
            changed(context, selection, values, GeneralChange::Update(targets, conflict))?
        }
        Statement::Delete(delete) => {
            let (from, selection) = delete_of(delete)?;
            let mut context = Context::of_table(from, store)?;
            context.open(catalog, with)?;
            changed(context, selection, Vec::new(), GeneralChange::Delete)?
        }
        _ => return Err(unsupported("such a statement")),
    };
    let Context { names, parts, .. } = context;
    let names = names.ok_or_else(|| unsupported("such a statement"))?;
    let general = General {
        slots: names.slots(),
        joined: names.joined,
        queries: names.queries,
        spaces: names.spaces,
        root,
        target,
        change,
    };
    let body = Body::General(Rc::new(general));
    Ok(Plan {
        parameters: parameters.to_vec(),
        space: target,
        filter: None,
        weight: parts + parameters.len() + body.column_count(),
        body,
        schema_version: store.schema_version(),
    })
}

/// Names, the query, the space that is changed, and the change.
type Changed<'a> = (Context<'a>, Query, u32, Option<GeneralChange>);

fn insert_of<'a>(insert: sqlparser::ast::Insert, catalog: &'a Catalog<'a>) -> Result<Changed<'a>, SqlFault> {
    let InsertParts { context: target, written, has_columns, source, conflict } =
        insert_parts_of(insert, catalog.store)?;
    let space = target.space.ok_or_else(|| unsupported("such an INSERT"))?;
    let mut context = Context { names: Some(Names::new(catalog)), ..Context::of_store(catalog.store) };
    let source = source.ok_or_else(|| unsupported("such an INSERT"))?;
    let root = context.query(source, Wanted::Rows)?;
    if root.columns.len() != written.len() {
        return Err(changes::wrong_count(space, has_columns, written.len(), root.columns.len()));
    }
    let defaults = super::defaults_of(space, catalog.store)?;
    let (targets, sequence) = changes::targets_of(&target, space, &defaults, catalog.store)?;
    let change = GeneralChange::Insert { targets, written, conflict, sequence, defaults };
    Ok((context, root, space.id(), Some(change)))
}

/// The query of an UPDATE or DELETE: its rows are the tuples to change, each with the values to write.
fn changed<'a>(
    mut context: Context<'a>,
    selection: Option<sqlparser::ast::Expr>,
    values: Vec<Expr>,
    change: GeneralChange,
) -> Result<Changed<'a>, SqlFault> {
    let space = context.space.map(Space::id).ok_or_else(|| unsupported("such a change"))?;
    let filter = selection.map(|filter| context.expression(filter)).transpose()?;
    let names = context.names()?;
    let mut terms = Vec::new();
    if let Some(filter) = filter {
        names.terms_of(filter, &mut terms);
    }
    let of_row = values.iter().filter(|value| has_query(value)).cloned().collect();
    let (slot, origin) = context.changed;
    let names = context.names()?;
    let columns = std::iter::once(Expr::Tuple(slot)).chain(values).map(|expr| Column {
        name: String::new(),
        ty: None,
        is_aggregate: false,
        order: None,
        expr: Rc::new(expr),
    });
    let select = Select { columns: columns.collect(), ..Select::default() };
    let slots = names.pop();
    let sources = vec![Source { slot, origin, outer: None }];
    names.joined.push(Joined { select, sources, terms, of_row, of_result: Vec::new() });
    let root = Query::of_part(Wanted::Rows, Part::Select(names.joined.len() - 1), Vec::new(), slots);
    Ok((context, root, space, Some(change)))
}

impl<'a> Context<'a> {
    /// Lets expressions of a change of one space have subqueries, also of the queries that WITH names. A view has the rows of its
    /// query.
    pub(crate) fn open(&mut self, catalog: &'a Catalog<'a>, with: Option<With>) -> Result<(), SqlFault> {
        let space = self.space.ok_or_else(|| generic("no space to change"))?;
        self.names = Some(Names::new(catalog));
        with.map_or(Ok(()), |with| self.name_queries(with))?;
        self.changed = match super::views::text_of(space, catalog.store) {
            Some(text) => {
                let number = self.view(space, &text)?;
                (self.derived(number, false, &mut Vec::new())?, Origin::Query(number))
            }
            None => (self.names()?.add_space(space)?, Origin::Space(space.id())),
        };
        let named = Named { slot: self.changed.0, alias: self.alias.clone(), merged: Vec::new() };
        self.names()?.push(vec![named], Vec::new());
        Ok(())
    }
}
