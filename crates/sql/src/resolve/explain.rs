//! EXPLAIN: the loops of a plan in the order in which they run, and the index that each one walks.
//!
//! The answer is itself a plan, of constant rows, so it reaches clients like any other result. The columns are as in Tarantool's
//! EXPLAIN QUERY PLAN. An index is named by the fields that are compared, for values of the fields' types. With a value of
//! another type the statement reads the whole space.

use std::rc::Rc;

use lycosa_store::{IndexKind, Space, Store};
use lycosa_tuple::value::Value;

use crate::join::{comparisons_with_columns, levels, source_of};
use crate::query::{General, Origin, Part, Query, Wanted};
use crate::tree::{Body, Column, Comparison, Expr, Plan};

/// A loop: the number of its SELECT, its place in the nest, the number of its source in FROM, and what it reads.
type Loop = (usize, usize, usize, String);

/// A cache of plans keeps no plan of this weight: the order of loops follows the sizes of the spaces.
pub(super) const UNKEPT: usize = usize::MAX;

/// The plan that tells of another plan.
pub(super) fn plan_about(plan: Plan, store: &Store) -> Plan {
    let number = |number: usize| Value::Uint(number as u64);
    let rows = loops_of(&plan, store).into_iter().map(|(select, place, source, detail)| {
        vec![number(select), number(place), number(source), Value::str(detail)]
    });
    let columns = [("selectid", "integer"), ("order", "integer"), ("from", "integer"), ("detail", "text")];
    let body = constant_rows(rows.collect(), &columns);
    Plan { space: 0, filter: None, body, weight: UNKEPT, ..plan }
}

/// A query of constant rows, by the names and types of its columns.
pub(super) fn constant_rows(rows: Vec<Vec<Value>>, columns: &[(&str, &'static str)]) -> Body {
    let columns = columns.iter().map(|(name, ty)| Column {
        name: (*name).to_owned(),
        ty: Some(*ty),
        is_aggregate: false,
        order: None,
        expr: Rc::new(Expr::Literal(Value::Nil)),
    });
    let rows = rows.into_iter().map(|row| row.into_iter().map(Expr::Literal).collect()).collect();
    let root = Query::of_part(Wanted::Rows, Part::Values(rows), columns.collect(), Vec::new());
    let general = General {
        root,
        joined: Vec::new(),
        queries: Vec::new(),
        slots: 0,
        spaces: Vec::new(),
        target: 0,
        change: None,
    };
    Body::General(Rc::new(general))
}

fn loops_of(plan: &Plan, store: &Store) -> Vec<Loop> {
    let Body::General(general) = &plan.body else {
        let is_insert = matches!(plan.body, Body::Insert { .. });
        let Some(space) = store.space(plan.space).ok().filter(|_| plan.space != 0 && !is_insert) else {
            return Vec::new();
        };
        let compared = plan.filter.as_ref().map_or_else(Vec::new, comparisons_with_columns);
        return vec![(0, 0, 0, detail(space, &compared))];
    };
    let mut loops = Vec::new();
    for (number, joined) in general.joined.iter().enumerate() {
        for (place, level) in levels(joined, &general.queries, store).iter().enumerate() {
            let said = match source_of(joined, level).origin {
                Origin::Query(query) => format!("SCAN SUBQUERY {query}"),
                Origin::Space(id) => {
                    let looked_up = level.within.map(|(field, _)| (field, Comparison::Equal));
                    let compared =
                        level.comparisons.iter().map(|(field, comparison, _)| (*field, *comparison));
                    let compared: Vec<_> = compared.chain(looked_up).collect();
                    store.space(id).map_or_else(|_| String::new(), |space| detail(space, &compared))
                }
            };
            loops.push((number, place, level.source, said));
        }
    }
    loops
}

/// What a loop over a space reads, in Tarantool's words.
fn detail(space: &Space, compared: &[(u32, Comparison)]) -> String {
    let best = space.indexes().iter().filter_map(|index| {
        if !matches!(index.kind(), IndexKind::Tree | IndexKind::Hash) {
            return None;
        }
        let (parts, mut terms, mut rank) = (index.key().parts(), Vec::new(), 0_usize);
        for part in parts.iter().take_while(|part| part.path.is_none() && part.collation.is_binary()) {
            let of_part = |wanted: &dyn Fn(Comparison) -> bool| {
                compared.iter().find(|(field, comparison)| *field == part.field && wanted(*comparison))
            };
            let name = space.format().fields().get(part.field as usize).map_or("", |field| &field.name);
            if of_part(&|comparison| comparison == Comparison::Equal).is_some() {
                terms.push(format!("{name}=?"));
                rank += 4;
                continue;
            }
            for (sign, or_equal) in [(">", Comparison::AtLeast), ("<", Comparison::AtMost)] {
                let strict = if sign == ">" { Comparison::Greater } else { Comparison::Less };
                if of_part(&|comparison| comparison == strict || comparison == or_equal).is_some() {
                    terms.push(format!("{name}{sign}?"));
                    rank += 1;
                }
            }
            break;
        }
        let is_whole_key = rank == 4 * parts.len();
        if rank == 0 || index.kind() == IndexKind::Hash && !is_whole_key {
            return None;
        }
        let rank = if is_whole_key && index.is_unique() { usize::MAX } else { rank };
        let named = match index.id() {
            0 => "PRIMARY KEY".to_owned(),
            _ => format!("INDEX {}", index.name()),
        };
        Some((rank, std::cmp::Reverse(index.id()), format!("USING {named} ({})", terms.join(" AND "))))
    });
    match best.max() {
        Some((.., using)) => format!("SEARCH TABLE {} {using}", space.name()),
        None => format!("SCAN TABLE {}", space.name()),
    }
}
