//! The order of strings: collations of columns and of `COLLATE`, and which of them a comparison takes.
//!
//! A column has the collation of its field. `COLLATE` gives an expression another one, which wins. Two collations of equal
//! standing do not mix: such a comparison is refused, as in Tarantool.

use std::rc::Rc;
use std::sync::Arc;

use lycosa_store::Store;
use lycosa_tuple::collation::Collation;

use crate::SqlFault;

/// `ER_COLLATION_DOES_NOT_EXIST`, `ER_ILLEGAL_COLLATION_MIX` of Tarantool 2.6.
const NO_SUCH_COLLATION: u32 = 166;
const ILLEGAL_MIX: u32 = 174;

/// The collation of fields without one.
const NONE: u64 = 0;

/// A collation as a statement uses it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StringOrder {
    id: u64,
    pub(crate) collation: Collation,
}

/// The order of an expression's strings; `None` is the order of their bytes, without a collation.
pub(crate) type Order = Option<Arc<StringOrder>>;

/// The order of an expression's strings, and whether `COLLATE` has given it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    pub(crate) order: Order,
    pub(crate) is_explicit: bool,
}

impl Standing {
    /// The standing of a column.
    pub(crate) fn implicit(order: Order) -> Standing {
        Standing { order, is_explicit: false }
    }

    /// The standing of `left || right`: a column's collation stays if both sides have it.
    pub(crate) fn concatenated(self, other: Standing) -> Result<Standing, SqlFault> {
        match (self.is_explicit, other.is_explicit) {
            (true, true) if id_of(&self.order) != id_of(&other.order) => Err(illegal_mix()),
            (true, _) => Ok(self),
            (_, true) => Ok(other),
            _ if id_of(&self.order) == id_of(&other.order) => Ok(self),
            _ => Ok(Standing::default()),
        }
    }

    /// The order in which two expressions are compared.
    pub(crate) fn mixed(self, other: Standing) -> Result<Standing, SqlFault> {
        let (left, right) = (id_of(&self.order), id_of(&other.order));
        match (self.is_explicit, other.is_explicit) {
            (true, true) if left != right => Err(illegal_mix()),
            (true, _) => Ok(self),
            (_, true) => Ok(other),
            _ if left == right || right == NONE => Ok(self),
            _ if left == NONE => Ok(other),
            _ => Err(illegal_mix()),
        }
    }
}

/// The number of an order's collation.
pub(crate) fn id_of(order: &Order) -> u64 {
    order.as_ref().map_or(NONE, |order| order.id)
}

fn illegal_mix() -> SqlFault {
    SqlFault::new(ILLEGAL_MIX, "Illegal mix of collations")
}

/// The collation of an order.
pub(crate) fn collation_of(order: &Order) -> &Collation {
    order.as_ref().map_or(&Collation::Binary, |order| &order.collation)
}

/// The order, if it differs from that of the bytes.
pub(crate) fn unless_binary(order: Order) -> Order {
    order.filter(|order| !order.collation.is_binary())
}

/// Copies of the collations of several orders; none if all strings are ordered by their bytes.
pub(crate) fn collations_of<'a>(orders: impl Iterator<Item = &'a Order> + Clone) -> Rc<[Collation]> {
    if orders.clone().all(|order| collation_of(order).is_binary()) {
        return Rc::default();
    }
    orders.map(|order| collation_of(order).clone()).collect()
}

/// The order that a collation of the schema gives.
///
/// # Errors
/// A collation that this build cannot order by.
pub(crate) fn order_by_id(store: &Store, id: u64) -> Result<Order, SqlFault> {
    let Some(collation) = store.collation(id).filter(|_| id != NONE) else { return Ok(None) };
    let collation = collation
        .map_err(|error| crate::resolve::generic(format!("Failed to initialize collation: {error}")))?;
    Ok(Some(Arc::new(StringOrder { id, collation })))
}

/// The number of a collation.
///
/// # Errors
/// A name that no collation has.
pub(crate) fn id_by_name(store: &Store, name: &str) -> Result<u64, SqlFault> {
    store.collation_id(name).ok_or_else(|| {
        let name: String = name.chars().take(crate::parse::SHOWN).collect();
        SqlFault::new(NO_SUCH_COLLATION, format!("Collation '{name}' does not exist"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(id: u64, is_explicit: bool) -> Standing {
        Standing { order: Some(Arc::new(StringOrder { id, collation: Collation::Binary })), is_explicit }
    }

    /// COLLATE wins over a column; equal standings mix only if they are one collation.
    #[test]
    fn one_collation_wins_or_the_mix_is_refused() {
        let winner = |left: Standing, right: Standing| left.mixed(right).map(|mixed| id_of(&mixed.order));
        assert_eq!(winner(standing(1, true), standing(2, false)), Ok(1));
        assert_eq!(winner(standing(1, false), standing(2, true)), Ok(2));
        assert_eq!(winner(standing(1, false), Standing::default()), Ok(1));
        assert_eq!(winner(Standing::default(), standing(2, false)), Ok(2));
        for is_explicit in [false, true] {
            let refused =
                winner(standing(1, is_explicit), standing(2, is_explicit)).expect_err("two collations");
            assert_eq!((refused.code, &refused.message[..]), (ILLEGAL_MIX, "Illegal mix of collations"));
        }
        let joined = |left: Standing, right: Standing| left.concatenated(right).map(|it| id_of(&it.order));
        assert_eq!(joined(standing(1, false), standing(2, false)), Ok(NONE));
        assert_eq!(joined(standing(1, false), standing(1, false)), Ok(1));
        assert_eq!(joined(standing(1, true), standing(2, true)), Err(illegal_mix()));
    }
}
