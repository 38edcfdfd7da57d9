//! Names in a statement of several sources.
//!
//! Each query has a scope with the sources of its FROM. A name is looked for in the innermost scope first. A name that a
//! scope further out knows makes the queries in between read the slot of its source.

use std::cell::RefCell;
use std::collections::HashMap;

use lycosa_store::{Access, Space, Store};

use super::fields::collated_fields;
use super::{CANT_RESOLVE_FIELD, NO_SUCH_FIELD_NAME, generic, no_such_space};
use crate::query::{Joined, Part, Query, SetOperation, Term};
use crate::strings;
use crate::tree::{Column, Expr};
use crate::{Asker, Error, SqlFault};

/// Sources of a statement and of its subqueries together: each may keep some rows in memory.
const MAX_SOURCES: usize = 256;

/// Where names of spaces are looked up.
pub(crate) struct Catalog<'a> {
    pub(crate) store: &'a Store,
    asker: Asker<'a>,
    /// Words and signs in the deepest expression of the statement.
    depth: usize,
    /// Why the user must not read a space, if that is why the statement fails.
    denied: RefCell<Option<Error>>,
}

impl<'a> Catalog<'a> {
    pub(crate) fn asker(&self) -> Asker<'a> {
        self.asker
    }

    pub(crate) fn new(store: &'a Store, asker: Asker<'a>, depth: usize) -> Catalog<'a> {
        Catalog { store, asker, depth, denied: RefCell::new(None) }
    }

    /// A space that the user may read.
    pub(crate) fn space(&self, name: &str) -> Result<&'a Space, SqlFault> {
        let Some(space) = self.store.space_by_name(name) else { return Err(no_such_space(name)) };
        if let Err(error) = crate::check_access(self.store, self.asker, space, Access::READ) {
            self.denied.replace(Some(error));
            return Err(SqlFault::new(0, "the space must not be read"));
        }
        Ok(space)
    }

    /// The error of a statement that failed.
    pub(crate) fn error(&self, failure: SqlFault) -> Error {
        self.denied.take().unwrap_or(Error::Statement(failure))
    }
}

/// A field as a statement knows it.
#[derive(Debug, Clone)]
pub(crate) struct NamedField {
    pub(crate) name: String,
    pub(crate) ty: &'static str,
    /// The order of its strings.
    pub(crate) order: strings::Order,
}

/// The fields of a slot.
#[derive(Debug, Default)]
struct Fields {
    list: Vec<NamedField>,
    by_name: HashMap<String, u32>,
}

/// A source of a scope.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) slot: u32,
    /// Empty for a derived table without a name.
    pub(crate) alias: String,
    /// Fields that USING or NATURAL has merged with fields of a source before.
    pub(crate) merged: Vec<u32>,
}

/// The names of a query.
#[derive(Debug, Default)]
struct Scope {
    sources: Vec<Named>,
    /// Sources that a condition may name.
    visible: usize,
    /// The slots of the scopes around it that its query reads.
    outer: Vec<u32>,
}

/// All names of a statement, and the queries that are resolved so far.
pub(crate) struct Names<'a> {
    pub(crate) catalog: &'a Catalog<'a>,
    scopes: Vec<Scope>,
    /// By slot.
    fields: Vec<Fields>,
    pub(crate) joined: Vec<Joined>,
    pub(crate) queries: Vec<Query>,
    pub(crate) spaces: Vec<u32>,
    /// The views around the query that is resolved: their number, and the words and signs of the deepest expressions.
    pub(crate) nested: (usize, usize),
    /// The scopes before this one are hidden by a view.
    base: usize,
    /// Columns that were called by a number.
    numbered: usize,
    /// A column of the outermost query is called by its source too.
    shows_sources: bool,
    hides_sources: bool,
}

impl<'a> Names<'a> {
    pub(crate) fn new(catalog: &'a Catalog<'a>) -> Names<'a> {
        Names {
            catalog,
            scopes: Vec::new(),
            fields: Vec::new(),
            joined: Vec::new(),
            queries: Vec::new(),
            spaces: Vec::new(),
            nested: (0, catalog.depth),
            base: 0,
            numbered: 0,
            shows_sources: false,
            hides_sources: false,
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.fields.len()
    }

    /// A new slot with these fields.
    pub(crate) fn add_slot(&mut self, list: Vec<NamedField>) -> Result<u32, SqlFault> {
        if self.fields.len() >= MAX_SOURCES {
            return Err(generic(format!("a statement may have {MAX_SOURCES} sources in all FROM clauses")));
        }
        let mut by_name = HashMap::with_capacity(list.len());
        for (number, field) in (0..).zip(&list) {
            by_name.entry(field.name.clone()).or_insert(number);
        }
        self.fields.push(Fields { list, by_name });
        Ok(u32::try_from(self.fields.len() - 1).unwrap_or(u32::MAX))
    }

    /// A slot for the rows of a space.
    pub(crate) fn add_space(&mut self, space: &Space) -> Result<u32, SqlFault> {
        let collated = collated_fields(space, self.catalog.store)?;
        let fields = (0..).zip(space.format().fields()).map(|(number, field)| NamedField {
            name: field.name.clone(),
            ty: field.ty.name(),
            order: collated.iter().find(|(of, _)| *of == number).and_then(|(_, order)| order.clone()),
        });
        let slot = self.add_slot(fields.collect())?;
        self.spaces.push(space.id());
        Ok(slot)
    }

    /// Hides all names from the query of a view. Returns what [`Names::leave_view`] wants.
    pub(crate) fn enter_view(&mut self, depth: usize) -> usize {
        self.nested = (self.nested.0 + 1, self.nested.1 + depth);
        std::mem::replace(&mut self.base, self.scopes.len())
    }

    /// Shows the names again that a view has hidden.
    pub(crate) fn leave_view(&mut self, base: usize, depth: usize) {
        self.nested = (self.nested.0 - 1, self.nested.1 - depth);
        self.base = base;
    }

    /// Opens the scope of a query. `outer` has the slots that its derived tables read from around it.
    pub(crate) fn push(&mut self, sources: Vec<Named>, outer: Vec<u32>) {
        let visible = sources.len();
        self.scopes.push(Scope { sources, visible, outer });
    }

    /// Closes a scope. Returns the slots that its query reads from around it.
    pub(crate) fn pop(&mut self) -> Vec<u32> {
        let mut outer = self.scopes.pop().unwrap_or_default().outer;
        outer.sort_unstable();
        outer.dedup();
        outer
    }

    /// Lets names mean only the first sources of the innermost scope.
    pub(crate) fn limit(&mut self, visible: usize) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.visible = visible.min(scope.sources.len());
        }
    }

    /// Gives numbers to the columns of a part of a query that have no name. As in Tarantool, each row of VALUES uses up its
    /// own numbers, and the last ones stay.
    pub(crate) fn number(&mut self, part: &Part, columns: &mut [Column]) {
        if let Part::Values(rows) = part {
            self.numbered += columns.len() * rows.len().saturating_sub(1);
        }
        for column in columns.iter_mut().filter(|column| column.name.is_empty()) {
            self.numbered += 1;
            column.name = format!("COLUMN_{}", self.numbered);
        }
    }

    /// Whether a column `alias.name` of the innermost query is called so, as Tarantool does beside a derived table whose rows
    /// are not made distinct.
    pub(crate) fn shows_sources(&self) -> bool {
        self.shows_sources && !self.hides_sources && self.scopes.len() == 1
    }

    /// Calls no column by its source: the columns of a view.
    pub(crate) fn hide_sources(&mut self) {
        self.hides_sources = true;
    }

    /// Notes a derived table.
    pub(crate) fn derive(&mut self, query: usize) {
        let is_distinct = |part: &Part| match part {
            Part::Select(number) => self.joined.get(*number).is_some_and(|joined| joined.select.distinct),
            Part::Values(_) => true,
        };
        let others = |query: &Query| {
            query
                .others
                .iter()
                .all(|(operation, part)| *operation == SetOperation::UnionAll && !is_distinct(part))
        };
        let is_plain =
            self.queries.get(query).is_some_and(|query| !is_distinct(&query.first) && others(query));
        self.shows_sources |= is_plain && self.scopes.is_empty();
    }

    /// The name of a source of the innermost scope.
    pub(crate) fn alias_of(&self, slot: u32) -> &str {
        self.sources().iter().find(|source| source.slot == slot).map_or("", |source| &source.alias)
    }

    /// The sources of the innermost scope.
    pub(crate) fn sources(&self) -> &[Named] {
        self.scopes.last().map_or(&[], |scope| &scope.sources)
    }

    /// Merges a field of a source with one of a source before.
    pub(crate) fn merge(&mut self, source: usize, field: u32) {
        if let Some(source) = self.scopes.last_mut().and_then(|scope| scope.sources.get_mut(source)) {
            source.merged.push(field);
        }
    }

    pub(crate) fn fields(&self, slot: u32) -> &[NamedField] {
        self.fields.get(slot as usize).map_or(&[], |fields| &fields.list)
    }

    pub(crate) fn field(&self, slot: u32, field: u32) -> Option<&NamedField> {
        self.fields(slot).get(field as usize)
    }

    pub(crate) fn field_number(&self, slot: u32, name: &str) -> Option<u32> {
        self.fields.get(slot as usize)?.by_name.get(name).copied()
    }

    /// The field that a name means; `alias` is the name of its source.
    pub(crate) fn find(&mut self, alias: Option<&str>, name: &str) -> Result<Expr, SqlFault> {
        for depth in (self.base..self.scopes.len()).rev() {
            let scope = &self.scopes[depth];
            let mut found = None;
            for source in &scope.sources[..scope.visible] {
                if alias.is_some_and(|alias| alias != source.alias) {
                    continue;
                }
                let Some(field) = self.field_number(source.slot, name) else { continue };
                if alias.is_none() && source.merged.contains(&field) {
                    continue;
                }
                if found.is_some() {
                    return Err(ambiguous(alias, name));
                }
                found = Some((source.slot, field));
            }
            if let Some((slot, field)) = found {
                for inner in &mut self.scopes[depth + 1..] {
                    if !inner.outer.contains(&slot) {
                        inner.outer.push(slot);
                    }
                }
                return Ok(Expr::Slot(slot, field));
            }
        }
        Err(match alias {
            None => SqlFault::new(CANT_RESOLVE_FIELD, format!("Can’t resolve field '{name}'")),
            Some(alias) => SqlFault::new(
                NO_SUCH_FIELD_NAME,
                format!("Field '{name}' was not found in space '{alias}' format"),
            ),
        })
    }

    /// A query inside of the innermost scope reads these slots.
    pub(crate) fn read(&mut self, slots: &[u32]) {
        if let Some(scope) = self.scopes.last_mut() {
            let own: Vec<u32> = scope.sources.iter().map(|source| source.slot).collect();
            for slot in slots {
                if !own.contains(slot) && !scope.outer.contains(slot) {
                    scope.outer.push(*slot);
                }
            }
        }
    }

    /// The conditions that AND joins in an expression.
    pub(crate) fn terms_of(&self, expr: Expr, terms: &mut Vec<Term>) {
        if let Expr::And(left, right) = expr {
            self.terms_of(*left, terms);
            self.terms_of(*right, terms);
            return;
        }
        let mut slots = Vec::new();
        expr.visit(&mut |part| match part {
            Expr::Slot(slot, _) | Expr::Tuple(slot) => slots.push(*slot),
            Expr::Scalar(query) | Expr::Exists(query) | Expr::InQuery(_, query) => {
                slots.extend(self.queries.get(*query).map_or(&[][..], |query| &query.slots));
            }
            _ => {}
        });
        slots.sort_unstable();
        slots.dedup();
        terms.push(Term { expr, slots });
    }
}

pub(crate) fn ambiguous(alias: Option<&str>, name: &str) -> SqlFault {
    let alias = alias.map_or(String::new(), |alias| format!("{alias}."));
    generic(format!("ambiguous column name: {alias}{name}"))
}

/// Whether an expression has a subquery.
pub(crate) fn has_query(expr: &Expr) -> bool {
    let mut has = false;
    expr.visit(&mut |part| has |= matches!(part, Expr::Scalar(_) | Expr::Exists(_) | Expr::InQuery(..)));
    has
}
