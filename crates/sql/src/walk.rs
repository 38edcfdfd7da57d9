//! The choice of an index, and of the part of it that holds every row that a filter lets pass.
//!
//! Of the indexes whose first parts are compared with constants, the one with most equalities wins, then the one with a range.
//! With no such index a walk may still give the order that ORDER BY asks for.

use std::cmp::{Ordering, Reverse};

use lycosa_store::{IndexId, IndexKind, IteratorType, Space, SpaceIndex};
use lycosa_tuple::collation::Collation;
use lycosa_tuple::key::KeyDef;
use lycosa_tuple::mp;
use lycosa_tuple::scalar;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

use crate::effort::Effort;
use crate::eval::{Row, is_constant};
use crate::tree::{Body, Comparison, Expr, Order, Plan};
use crate::{SqlFault, strings, value};

/// A comparison of a field with a constant that every row has to pass.
pub(crate) type Term = (u32, Comparison, Value);

/// What a walk may stop at.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// A tuple whose first parts are no longer these ends the walk: their number and values.
    prefix: Option<(u32, Vec<u8>)>,
    /// A tuple whose part of that number is beyond the value ends it; `true`: or equal to it. The value is encoded.
    upper: Option<(usize, Vec<u8>, bool)>,
}

impl Ends {
    /// Whether the walk ends before its index does.
    pub(crate) fn is_some(&self) -> bool {
        self.prefix.is_some() || self.upper.is_some()
    }

    /// Whether the walk has passed its ends with a tuple. `key` is the definition of the walked index.
    pub(crate) fn are_before(&self, key: &KeyDef, tuple: &[u8]) -> bool {
        if let Some((count, values)) = &self.prefix
            && key.compare_with_key(tuple, values, *count) != Ordering::Equal
        {
            return true;
        }
        let Some((part, upper, or_equal)) = &self.upper else { return false };
        let field = key.parts().get(*part).map_or(u32::MAX, |part| part.field);
        let bytes = TupleRef::trusted(tuple).field(field).unwrap_or(&[0xc0]);
        let order = scalar::compare(bytes, upper, &Collation::Binary);
        order == Ordering::Greater || (*or_equal && order == Ordering::Equal)
    }
}

/// A part of an index.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) index: IndexId,
    pub(crate) iterator: IteratorType,
    key: Vec<Value>,
    pub(crate) ends: Ends,
    /// The rows come in the order that was asked for.
    pub(crate) is_ordered: bool,
    /// How good it is; 0 is all of the space.
    rank: u32,
}

impl Default for Walk {
    fn default() -> Walk {
        Walk {
            index: 0,
            iterator: IteratorType::All,
            key: Vec::new(),
            ends: Ends::default(),
            is_ordered: false,
            rank: 0,
        }
    }
}

impl Walk {
    /// The walk of a plan over a space.
    ///
    /// # Errors
    /// A constant of the filter that cannot be evaluated.
    pub(crate) fn choose(plan: &Plan, space: &Space, parameters: &[Value]) -> Result<Walk, SqlFault> {
        let mut terms = Vec::new();
        if let Some(filter) = &plan.filter {
            let effort = Effort::default();
            collect_terms(filter, &Row::nothing(parameters, &effort), &mut terms)?;
        }
        let (order, is_aggregate) = match &plan.body {
            Body::Select(select) => (&select.order[..], !select.aggregates.is_empty()),
            _ => (&[][..], false),
        };
        let mut walk = Walk::best(space, &terms);
        walk.is_ordered = order.is_empty() || is_aggregate;
        if !walk.is_ordered
            && walk.rank == 0
            && let Some(index) = space.indexes().iter().find(|index| is_in_order(index, order))
        {
            let iterator = if order[0].descending { IteratorType::Req } else { IteratorType::All };
            return Ok(Walk { index: index.id(), iterator, is_ordered: true, ..Walk::default() });
        }
        Ok(walk)
    }

    /// The walk that reads least of the rows that pass the terms.
    pub(crate) fn best(space: &Space, terms: &[Term]) -> Walk {
        let candidates = space.indexes().iter().filter_map(|index| Walk::over(index, terms));
        let best = candidates.max_by_key(|walk| (walk.rank, Reverse(walk.index)));
        best.unwrap_or_default()
    }

    /// Whether it reads all of the space.
    pub(crate) fn is_whole(&self) -> bool {
        self.rank == 0
    }

    /// The key at which the walk begins: a MessagePack array.
    pub(crate) fn encoded_key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        mp::write_array(&mut key, u32::try_from(self.key.len()).unwrap_or(0));
        self.key.iter().for_each(|value| value.write(&mut key));
        key
    }

    /// What of an index has the rows that pass; `None` if that is all of it.
    fn over(index: &SpaceIndex, terms: &[Term]) -> Option<Walk> {
        // The parts of other kinds say something else than the value of a field: those of a functional index are what its
        // function returns.
        if !matches!(index.kind(), IndexKind::Tree | IndexKind::Hash) {
            return None;
        }
        let parts = index.key().parts();
        let fitting = |place: usize, wanted: &[Comparison]| {
            let part = parts.get(place).filter(|part| part.path.is_none() && part.collation.is_binary())?;
            terms.iter().find_map(|(field, comparison, value)| {
                let is_wanted = *field == part.field && wanted.contains(comparison);
                let value = if is_wanted { value::assigned_exactly(value, part.ty) } else { None };
                value.map(|value| (*comparison, value))
            })
        };
        let mut key: Vec<Value> = Vec::new();
        while let Some((_, value)) = fitting(key.len(), &[Comparison::Equal]) {
            key.push(value);
        }
        let (equal, is_whole) = (key.len(), key.len() == parts.len());
        let rank = u32::try_from(equal).unwrap_or(u32::MAX).saturating_mul(4);
        let (index_id, walk) = (index.id(), Walk::default());
        if is_whole && index.is_unique() {
            return Some(Walk { index: index_id, iterator: IteratorType::Eq, key, rank: u32::MAX, ..walk });
        }
        if index.kind() != IndexKind::Tree {
            return is_whole.then_some(Walk {
                index: index_id,
                iterator: IteratorType::Eq,
                key,
                rank,
                ..walk
            });
        }
        let lower = fitting(equal, &[Comparison::Greater, Comparison::AtLeast]);
        let upper = fitting(equal, &[Comparison::Less, Comparison::AtMost]);
        if lower.is_none() && upper.is_none() {
            return (equal > 0).then_some(Walk {
                index: index_id,
                iterator: IteratorType::Eq,
                key,
                rank,
                ..walk
            });
        }
        let mut ends = Ends::default();
        if equal > 0 {
            let mut values = Vec::new();
            key.iter().for_each(|value| value.write(&mut values));
            ends.prefix = Some((u32::try_from(equal).unwrap_or(0), values));
        }
        let both = u32::from(lower.is_some()) + u32::from(upper.is_some());
        ends.upper = upper.map(|(comparison, value)| (equal, value.encode(), comparison == Comparison::Less));
        let iterator = match lower {
            Some((comparison, value)) => {
                key.push(value);
                if comparison == Comparison::Greater { IteratorType::Gt } else { IteratorType::Ge }
            }
            // NULL comes first, and is below nothing.
            None if parts.get(equal).is_some_and(|part| part.nullable) => {
                key.push(Value::Nil);
                IteratorType::Gt
            }
            None => IteratorType::Ge,
        };
        Some(Walk { index: index_id, iterator, key, ends, rank: rank + both, ..walk })
    }
}

/// Whether a walk over all of an index gives rows in an order, forwards or backwards.
fn is_in_order(index: &SpaceIndex, order: &[Order]) -> bool {
    let parts = index.key().parts();
    index.kind() == IndexKind::Tree
        && order.len() <= parts.len()
        && order.iter().zip(parts).all(|(order, part)| {
            let is_field = matches!(*order.expr, Expr::Column(field) if field == part.field);
            let is_same = *strings::collation_of(&order.order) == part.collation;
            is_field && is_same && part.path.is_none()
        })
        && order.windows(2).all(|pair| pair[0].descending == pair[1].descending)
}

/// Collects the comparisons of a field with a constant that every row has to pass. `nothing` evaluates constants.
fn collect_terms(filter: &Expr, nothing: &Row<'_>, terms: &mut Vec<Term>) -> Result<(), SqlFault> {
    match filter {
        Expr::And(left, right) => {
            collect_terms(left, nothing, terms)?;
            collect_terms(right, nothing, terms)
        }
        Expr::Compare(comparison, left, right) => {
            let (field, comparison, constant) = match (&**left, &**right) {
                (Expr::Column(field), constant) if is_constant(constant) => (*field, *comparison, constant),
                (constant, Expr::Column(field)) if is_constant(constant) => {
                    (*field, comparison.mirrored(), constant)
                }
                _ => return Ok(()),
            };
            terms.push((field, comparison, nothing.evaluate(constant)?));
            Ok(())
        }
        Expr::Between(inner, low, high) => {
            let Expr::Column(field) = **inner else { return Ok(()) };
            for (comparison, constant) in [(Comparison::AtLeast, low), (Comparison::AtMost, high)] {
                if is_constant(constant) {
                    terms.push((field, comparison, nothing.evaluate(constant)?));
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
