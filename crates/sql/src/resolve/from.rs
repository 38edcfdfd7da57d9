//! FROM: sources, and the conditions that join them.

use lycosa_store::Space;
use sqlparser::ast::{self, JoinConstraint, JoinOperator, ObjectName, TableFactor};

use super::names::Named;
use super::queries::UNRESOLVED;
use super::{Context, UNSUPPORTED, at_most, generic, name, none, simple_name, unsupported, views};
use crate::SqlFault;
use crate::query::{Origin, Source, Term, Wanted};
use crate::resolve::names::NamedField;
use crate::tree::{Comparison, Expr};

/// Sources of a FROM, as in Tarantool.
const MAX_JOINED: usize = 64;

/// A source that is not looked up yet.
struct Item {
    factor: TableFactor,
    is_outer: bool,
    constraint: JoinConstraint,
}

/// The name of a space that stands in a FROM, and its alias.
pub(super) fn table_of(factor: TableFactor) -> Result<(String, Option<String>), SqlFault> {
    let TableFactor::Table {
        name,
        alias,
        args,
        with_hints,
        version,
        with_ordinality,
        partitions,
        json_path,
        sample,
        index_hints,
    } = factor
    else {
        return Err(unsupported("such a FROM"));
    };
    let is_plain = args.is_none() && with_hints.is_empty() && version.is_none() && !with_ordinality;
    none(is_plain && partitions.is_empty() && json_path.is_none() && sample.is_none(), "such a FROM")?;
    none(index_hints.is_empty(), "INDEXED BY")?;
    Ok((simple_name(&name)?, alias_of(alias)?))
}

fn alias_of(alias: Option<ast::TableAlias>) -> Result<Option<String>, SqlFault> {
    let Some(ast::TableAlias { explicit: _, name: alias, columns, at }) = alias else { return Ok(None) };
    none(columns.is_empty() && at.is_none(), "an alias with columns")?;
    name(&alias).map(Some)
}

/// Refuses a space that SQL cannot read.
pub(super) fn check_format(space: &Space) -> Result<(), SqlFault> {
    if space.format().fields().is_empty() {
        return Err(SqlFault::new(UNSUPPORTED, "SQL does not support space without format"));
    }
    Ok(())
}

/// The sources of a FROM in its order, with their joins.
fn items_of(from: Vec<ast::TableWithJoins>) -> Result<Vec<Item>, SqlFault> {
    let mut items = Vec::new();
    for table in from {
        add_items(table, &mut items)?;
    }
    at_most(MAX_JOINED, "The number of tables in a join", items.len())?;
    Ok(items)
}

fn add_items(table: ast::TableWithJoins, items: &mut Vec<Item>) -> Result<(), SqlFault> {
    let ast::TableWithJoins { relation, joins } = table;
    add_item(relation, false, JoinConstraint::None, items)?;
    for ast::Join { relation, global, join_operator } in joins {
        none(!global, "GLOBAL")?;
        let (is_outer, constraint) = match join_operator {
            JoinOperator::Join(on) | JoinOperator::Inner(on) | JoinOperator::CrossJoin(on) => (false, on),
            JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (true, on),
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_) => {
                let text = "Tarantool does not support RIGHT and FULL OUTER JOINs";
                return Err(SqlFault::new(UNSUPPORTED, text));
            }
            _ => return Err(unsupported("such a JOIN")),
        };
        add_item(relation, is_outer, constraint, items)?;
    }
    Ok(())
}

fn add_item(
    factor: TableFactor,
    is_outer: bool,
    constraint: JoinConstraint,
    items: &mut Vec<Item>,
) -> Result<(), SqlFault> {
    let TableFactor::NestedJoin { table_with_joins, alias } = factor else {
        items.push(Item { factor, is_outer, constraint });
        return Ok(());
    };
    // The sources of the parentheses are sources of the FROM; its condition is that of the last of them.
    none(alias.is_none(), "a name for a join in parentheses")?;
    let count = items.len();
    add_items(*table_with_joins, items)?;
    let is_single = items.len() == count + 1;
    none(is_single || !is_outer, "LEFT JOIN of a join in parentheses")?;
    if let (true, Some(item)) = (is_single, items.last_mut()) {
        (item.is_outer, item.constraint) = (is_outer, constraint);
        return Ok(());
    }
    none(
        matches!(constraint, JoinConstraint::None | JoinConstraint::On(_)),
        "USING and NATURAL of a join in parentheses",
    )?;
    if let Some(item) = items.get_mut(count) {
        item.constraint = constraint;
    }
    Ok(())
}

impl Context<'_> {
    /// Resolves a FROM: opens the scope of its query. Returns the sources, and the conditions of inner joins.
    pub(super) fn join(
        &mut self,
        from: Vec<ast::TableWithJoins>,
    ) -> Result<(Vec<Source>, Vec<Term>), SqlFault> {
        let items = items_of(from)?;
        let (mut sources, mut named, mut constraints) = (Vec::new(), Vec::new(), Vec::new());
        let mut outer = Vec::new();
        for Item { factor, is_outer, constraint } in items {
            let (slot, alias, origin) = match factor {
                TableFactor::Derived { lateral, subquery, alias, sample } => {
                    none(!lateral && sample.is_none(), "such a FROM")?;
                    let number = self.subquery(*subquery, Wanted::Rows)?;
                    let slot = self.derived(number, is_outer, &mut outer)?;
                    (slot, alias_of(alias)?.unwrap_or_default(), Origin::Query(number))
                }
                factor => {
                    let (name, alias) = table_of(factor)?;
                    let (slot, origin) = match self.query_named(&name)? {
                        Some(number) => (self.derived(number, is_outer, &mut outer)?, Origin::Query(number)),
                        None => {
                            let names = self.names()?;
                            let space = names.catalog.space(&name)?;
                            check_format(space)?;
                            (names.add_space(space)?, Origin::Space(space.id()))
                        }
                    };
                    (slot, alias.unwrap_or(name), origin)
                }
            };
            named.push(Named { slot, alias, merged: Vec::new() });
            sources.push(Source { slot, origin, outer: is_outer.then(Vec::new) });
            constraints.push(constraint);
        }
        self.names()?.push(named, outer);
        let mut terms = Vec::new();
        for (place, constraint) in constraints.into_iter().enumerate() {
            let is_outer = sources[place].outer.is_some();
            // The condition of a LEFT JOIN is checked before later sources are read.
            let all = sources.len();
            self.names()?.limit(if is_outer { place + 1 } else { all });
            let expr = match constraint {
                JoinConstraint::None => None,
                JoinConstraint::On(expr) => Some(self.expression(expr)?),
                JoinConstraint::Using(columns) => self.using(place, &columns)?,
                JoinConstraint::Natural => self.natural(place)?,
            };
            self.names()?.limit(all);
            if let Some(expr) = expr {
                let to = sources[place].outer.as_mut().unwrap_or(&mut terms);
                self.names()?.terms_of(expr, to);
            }
        }
        Ok((sources, terms))
    }

    /// The number of the query that WITH has given a name to, or of a view; `None` for the name of a space.
    fn query_named(&mut self, name: &str) -> Result<Option<usize>, SqlFault> {
        if let Some(&(_, number)) = self.named_queries.iter().rfind(|(known, _)| known == name) {
            if number == UNRESOLVED {
                return Err(generic(format!("circular reference: {name}")));
            }
            self.uses += 1;
            return Ok(Some(number));
        }
        let catalog = self.names()?.catalog;
        let space = catalog.space(name)?;
        match views::text_of(space, catalog.store) {
            Some(text) => self.view(space, &text).map(Some),
            None => Ok(None),
        }
    }

    /// A slot for the rows of a query. `outer` gets the slots around it that it reads.
    pub(super) fn derived(
        &mut self,
        number: usize,
        is_outer: bool,
        outer: &mut Vec<u32>,
    ) -> Result<u32, SqlFault> {
        let names = self.names()?;
        if !is_outer {
            names.derive(number);
        }
        let query = &names.queries[number];
        outer.extend_from_slice(&query.slots);
        let fields = unique_names(query.columns.iter().map(|column| NamedField {
            name: column.name.clone(),
            ty: column.ty.unwrap_or("any"),
            order: column.order.clone(),
        }));
        names.add_slot(fields)
    }

    fn using(&mut self, place: usize, columns: &[ObjectName]) -> Result<Option<Expr>, SqlFault> {
        let mut all = None;
        for column in columns {
            let column = simple_name(column)?;
            let Some(equal) = self.merged(place, &column)? else {
                let text = format!("cannot join using column {column} - column not present in both tables");
                return Err(generic(text));
            };
            all = Some(both(all, equal));
        }
        Ok(all)
    }

    fn natural(&mut self, place: usize) -> Result<Option<Expr>, SqlFault> {
        let names = self.names()?;
        let slot = names.sources()[place].slot;
        let fields: Vec<String> = names.fields(slot).iter().map(|field| field.name.clone()).collect();
        let mut all = None;
        for field in fields {
            if let Some(equal) = self.merged(place, &field)? {
                all = Some(both(all, equal));
            }
        }
        Ok(all)
    }

    /// Equality of a column of a source with that of the first source before that has it; `None` if one of them has it not.
    fn merged(&mut self, place: usize, column: &str) -> Result<Option<Expr>, SqlFault> {
        let names = self.names()?;
        let own = names.sources()[place].slot;
        let Some(field) = names.field_number(own, column) else { return Ok(None) };
        let mut before = names.sources()[..place].iter();
        let first = before.find_map(|source| Some((source.slot, names.field_number(source.slot, column)?)));
        let Some((slot, first)) = first else { return Ok(None) };
        names.merge(place, field);
        let (left, right) = (Expr::Slot(slot, first), Expr::Slot(own, field));
        self.ordered(Expr::Compare(Comparison::Equal, Box::new(left), Box::new(right))).map(Some)
    }
}

fn both(all: Option<Expr>, one: Expr) -> Expr {
    match all {
        None => one,
        Some(all) => Expr::And(Box::new(all), Box::new(one)),
    }
}

/// The columns of a derived table: a name that is taken gets a number.
pub(super) fn unique_names(fields: impl Iterator<Item = NamedField>) -> Vec<NamedField> {
    let mut taken = std::collections::HashSet::new();
    let mut list: Vec<NamedField> = Vec::new();
    for mut field in fields {
        if taken.contains(&field.name) {
            let numbered = (1_u32..).map(|number| format!("{}_{number}", field.name));
            field.name = numbered.into_iter().find(|name| !taken.contains(name)).unwrap_or_default();
        }
        taken.insert(field.name.clone());
        list.push(field);
    }
    list
}
