//! The order in which the sources of a join are read, and the terms that are checked at each of its levels.
//!
//! A join is a nest of loops. Each level reads one source, by an index if terms compare its fields with values that the levels
//! above give. [`crate::walk::Walk`] chooses the index anew for every row, as it depends on the types of the values. The order of
//! the levels is chosen once, by the numbers of rows that spaces have when the statement begins.
//!
//! Invariant: the right side of a LEFT JOIN is read after every source before it in FROM.

use lycosa_store::{IndexKind, Store};

use crate::eval::is_constant;
use crate::query::{Joined, Origin, Query, Source, Term};
use crate::tree::{Comparison, Expr};

/// Sources for which every first one is tried.
const MAX_TRIED: usize = 8;

/// Rows that a derived table is believed to have.
const OF_DERIVED: f64 = 100.0;

/// A level of the nest of loops.
#[derive(Debug)]
pub(crate) struct Level {
    /// The number of the source in FROM.
    pub(crate) source: usize,
    /// Comparisons of a field of the source with a value that is known when the level begins.
    pub(crate) comparisons: Vec<(u32, Comparison, Expr)>,
    /// A field with an index, and the subquery of its IN: the level looks up each value that the subquery gives.
    pub(crate) within: Option<(u32, usize)>,
    /// Numbers of the terms of the SELECT that are checked here.
    pub(crate) terms: Vec<usize>,
}

/// The levels, from the outermost one. A SELECT without sources has none.
pub(crate) fn levels(joined: &Joined, queries: &[Query], store: &Store) -> Vec<Level> {
    let order = order_of(joined, store);
    let mut levels = Vec::with_capacity(order.len());
    let own: Vec<u32> = joined.sources.iter().map(|source| source.slot).collect();
    let mut later = own.clone();
    for (place, &source) in order.iter().enumerate() {
        let from = &joined.sources[source];
        later.retain(|slot| *slot != from.slot);
        let is_known = |slot: &u32| !later.contains(slot);
        let mut known_before = later.clone();
        known_before.push(from.slot);
        let terms = (0..).zip(&joined.terms).filter(|(_, term)| {
            let is_first = place == 0 && !term.slots.iter().any(|slot| own.contains(slot));
            is_first || term.slots.contains(&from.slot) && term.slots.iter().all(is_known)
        });
        let terms: Vec<usize> = terms.map(|(number, _)| number).collect();
        let mut comparisons = Vec::new();
        let usable: Vec<&Term> = match &from.outer {
            Some(own) => own.iter().collect(),
            None => terms.iter().map(|number| &joined.terms[*number]).collect(),
        };
        for term in &usable {
            comparisons_of(&term.expr, from.slot, &|expr| is_free_of(expr, &known_before), &mut comparisons);
        }
        let has_equality = comparisons.iter().any(|(_, comparison, _)| *comparison == Comparison::Equal);
        let looked_up = usable.iter().filter(|_| !has_equality).find_map(|term| {
            let Expr::InQuery(inner, query) = &term.expr else { return None };
            let Expr::Slot(slot, field) = **inner else { return None };
            let reads_later = queries.get(*query)?.slots.iter().any(|slot| known_before.contains(slot));
            let is_usable = slot == from.slot && !reads_later && has_index(from, field, store);
            is_usable.then_some((field, *query))
        });
        levels.push(Level { source, comparisons, within: looked_up, terms });
    }
    levels
}

/// Whether an index finds the rows of a source with one value of a field.
fn has_index(source: &Source, field: u32, store: &Store) -> bool {
    let Origin::Space(id) = source.origin else { return false };
    store.space(id).is_ok_and(|space| {
        space.indexes().iter().any(|index| {
            let parts = index.key().parts();
            let is_first = parts.first().is_some_and(|part| part.field == field && part.path.is_none());
            let finds =
                index.kind() == IndexKind::Tree || index.kind() == IndexKind::Hash && parts.len() == 1;
            is_first && finds
        })
    })
}

/// Whether an expression has no subquery, and reads none of these slots.
fn is_free_of(expr: &Expr, slots: &[u32]) -> bool {
    let mut is_free = true;
    expr.visit(&mut |part| match part {
        Expr::Slot(slot, _) | Expr::Tuple(slot) => is_free &= !slots.contains(slot),
        Expr::Scalar(_) | Expr::Exists(_) | Expr::InQuery(..) | Expr::Aggregate(_) => is_free = false,
        _ => {}
    });
    is_free
}

/// The comparisons of a field of a source with a known value that a term is.
fn comparisons_of(
    expr: &Expr,
    slot: u32,
    is_known: &dyn Fn(&Expr) -> bool,
    found: &mut Vec<(u32, Comparison, Expr)>,
) {
    match expr {
        Expr::Compare(comparison, left, right) => {
            if let Expr::Slot(of, field) = **left
                && of == slot
                && is_known(right)
            {
                found.push((field, *comparison, (**right).clone()));
            } else if let Expr::Slot(of, field) = **right
                && of == slot
                && is_known(left)
            {
                found.push((field, comparison.mirrored(), (**left).clone()));
            }
        }
        Expr::Between(inner, low, high) => {
            if let Expr::Slot(of, field) = **inner
                && of == slot
            {
                for (comparison, value) in [(Comparison::AtLeast, low), (Comparison::AtMost, high)] {
                    if is_known(value) {
                        found.push((field, comparison, (**value).clone()));
                    }
                }
            }
        }
        _ => {}
    }
}

/// The comparisons of a field with a constant that every row has to pass, in a statement of one space.
pub(crate) fn comparisons_with_columns(filter: &Expr) -> Vec<(u32, Comparison)> {
    match filter {
        Expr::And(left, right) => {
            let mut found = comparisons_with_columns(left);
            found.extend(comparisons_with_columns(right));
            found
        }
        Expr::Compare(comparison, left, right) => match (&**left, &**right) {
            (Expr::Column(field), other) if is_constant(other) => vec![(*field, *comparison)],
            (other, Expr::Column(field)) if is_constant(other) => vec![(*field, comparison.mirrored())],
            _ => Vec::new(),
        },
        Expr::Between(inner, low, high) => match **inner {
            Expr::Column(field) => [(Comparison::AtLeast, low), (Comparison::AtMost, high)]
                .into_iter()
                .filter(|(_, value)| is_constant(value))
                .map(|(comparison, _)| (field, comparison))
                .collect(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// The numbers of the sources, in the order in which they are read.
fn order_of(joined: &Joined, store: &Store) -> Vec<usize> {
    let count = joined.sources.len();
    if count < 2 {
        return (0..count).collect();
    }
    let links = Links::of(joined, store);
    let first_may_be = |source: usize| source == 0 || joined.sources[source].outer.is_none();
    let tried = if count <= MAX_TRIED { count } else { 1 };
    let orders = (0..tried).filter(|first| first_may_be(*first)).map(|first| links.order_from(first, joined));
    let best = orders.reduce(|best, other| if other.0 < best.0 { other } else { best });
    best.map_or_else(|| (0..count).collect(), |(_, order)| order)
}

/// What comparisons say of the rows that a level reads.
struct Links {
    /// Of each source: the fields that are compared, whether for equality, and the sources that give the value.
    compared: Vec<Vec<(u32, bool, Vec<usize>)>>,
    /// Of each source: its rows, and the fields of its indexes with whether they are unique trees.
    sizes: Vec<f64>,
    indexes: Vec<Vec<(Vec<u32>, bool, bool)>>,
}

impl Links {
    fn of(joined: &Joined, store: &Store) -> Links {
        let mut links = Links { compared: Vec::new(), sizes: Vec::new(), indexes: Vec::new() };
        let place_of = |slot: u32| joined.sources.iter().position(|source| source.slot == slot);
        for source in &joined.sources {
            let space = match source.origin {
                Origin::Space(id) => store.space(id).ok(),
                Origin::Query(_) => None,
            };
            links.sizes.push(space.map_or(OF_DERIVED, |space| space.len().max(1) as f64));
            let indexes = space.map_or(&[][..], |space| space.indexes()).iter();
            let plain = indexes.filter(|index| matches!(index.kind(), IndexKind::Tree | IndexKind::Hash));
            let indexes = plain.map(|index| {
                let fields = index.key().parts().iter().map(|part| part.field).collect();
                (fields, index.is_unique(), index.kind() == IndexKind::Tree)
            });
            links.indexes.push(indexes.collect());
            let terms: &[Term] = source.outer.as_deref().unwrap_or(&joined.terms);
            let mut compared = Vec::new();
            for term in terms {
                let mut found = Vec::new();
                comparisons_of(
                    &term.expr,
                    source.slot,
                    &|value| is_free_of(value, &[source.slot]),
                    &mut found,
                );
                for (field, comparison, value) in found {
                    let mut givers = Vec::new();
                    value.visit(&mut |part| {
                        if let Expr::Slot(slot, _) = part {
                            givers.extend(place_of(*slot));
                        }
                    });
                    if comparison != Comparison::NotEqual {
                        compared.push((field, comparison == Comparison::Equal, givers));
                    }
                }
            }
            links.compared.push(compared);
        }
        links
    }

    /// Rows that a source gives for one row of the levels above.
    fn rows_of(&self, source: usize, read: &[bool]) -> f64 {
        let is_known = |field: u32, wants_equal: bool| {
            self.compared[source].iter().any(|(of, is_equal, givers)| {
                *of == field && *is_equal == wants_equal && givers.iter().all(|giver| read[*giver])
            })
        };
        let size = self.sizes[source];
        let by_index = self.indexes[source].iter().map(|(fields, is_unique, is_tree)| {
            let equal = fields.iter().take_while(|field| is_known(**field, true)).count();
            match (equal == fields.len(), is_unique, is_tree) {
                (true, true, _) => 1.0,
                (false, _, false) => size,
                (false, _, true) if equal == 0 && !is_known(fields[0], false) => size,
                (false, _, true) if equal == 0 => (size / 4.0).max(1.0),
                _ => (size / 10_f64.powi(i32::try_from(equal).unwrap_or(i32::MAX))).max(1.0),
            }
        });
        by_index.fold(size, f64::min)
    }

    /// An order that begins with a source and goes on with the source that gives the fewest rows, and the number of rows
    /// that it reads.
    fn order_from(&self, first: usize, joined: &Joined) -> (f64, Vec<usize>) {
        let count = joined.sources.len();
        let mut read = vec![false; count];
        let mut order = Vec::with_capacity(count);
        let (mut rows, mut sum, mut next) = (1.0, 0.0, first);
        loop {
            rows *= self.rows_of(next, &read);
            sum += rows;
            read[next] = true;
            order.push(next);
            let may_follow = |source: &usize| {
                let is_outer = joined.sources[*source].outer.is_some();
                !read[*source] && (!is_outer || read[..*source].iter().all(|is_read| *is_read))
            };
            let candidates =
                (0..count).filter(may_follow).map(|source| (self.rows_of(source, &read), source));
            match candidates.reduce(|best, other| if other.0 < best.0 { other } else { best }) {
                Some((_, source)) => next = source,
                None => return (sum, order),
            }
        }
    }
}

/// The source that a level reads.
pub(crate) fn source_of<'a>(joined: &'a Joined, level: &Level) -> &'a Source {
    &joined.sources[level.source]
}
