//! Current rows of sources, and answers of subqueries.
//!
//! An expression cannot read a space: reading may take many steps. An expression that needs the answer of a subquery
//! therefore fails with [`not_answered`], and [`Slots`] notes the number of the subquery. The machine finds the answer
//! and evaluates the expression again. A subquery in a branch that is not taken never runs.
//!
//! Invariant: an answer is good for the rows that its subquery has read from the queries around it, and for no other row.

use std::cell::Cell;
use std::cmp::Ordering;
use std::rc::Rc;

use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

use crate::SqlFault;
use crate::effort::{Effort, weight};
use crate::limits::Share;
use crate::strings;
use crate::value::{self, order_by};

/// Fails an expression until its subquery is answered.
pub(crate) fn not_answered() -> SqlFault {
    SqlFault::new(0, String::new())
}

/// What a subquery says.
#[derive(Debug)]
pub(crate) enum Answer {
    Scalar(Value),
    Exists(bool),
    Set(Set),
    /// Rows of a derived table, back to back.
    Rows(Rc<Vec<u8>>),
}

/// The values of `IN (SELECT …)`. As in Tarantool, a value is looked up as in an index: a number is never equal to a text, and
/// a column of numbers takes no other value.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// In the order of scalar values.
    values: Rc<Vec<Value>>,
    has_null: bool,
    /// The type of the column, if it is one of numbers.
    number: Option<&'static str>,
    /// The order of its strings.
    order: strings::Order,
}

impl Set {
    /// A set of the values of a column of this type.
    pub(crate) fn of(mut values: Vec<Value>, ty: Option<&'static str>, order: strings::Order) -> Set {
        let collation = strings::collation_of(&order);
        let count = values.len();
        values.retain(|value| *value != Value::Nil);
        let has_null = values.len() < count;
        values.sort_by(|left, right| order_by(left, right, collation));
        values.dedup_by(|left, right| order_by(left, right, collation) == Ordering::Equal);
        let number = ty.filter(|ty| matches!(*ty, "integer" | "unsigned" | "number" | "double"));
        Set { values: Rc::new(values), has_null, number, order }
    }

    /// The values but NULL, each once.
    pub(crate) fn values(&self) -> Rc<Vec<Value>> {
        Rc::clone(&self.values)
    }

    /// Whether a value is in the set; `None` is unknown.
    pub(crate) fn has(&self, wanted: &Value, effort: &Effort) -> Result<Option<bool>, SqlFault> {
        if *wanted == Value::Nil {
            return Ok(if self.values.is_empty() && !self.has_null { Some(false) } else { None });
        }
        if let Some(ty) = self.number
            && value::number_of(wanted).is_none()
            && !matches!(wanted, Value::Ext(..))
        {
            return Err(value::mismatch(wanted, ty));
        }
        effort.spend(16 * weight(wanted))?;
        let collation = strings::collation_of(&self.order);
        let is_found = self.values.binary_search_by(|value| order_by(value, wanted, collation)).is_ok();
        Ok(if !is_found && self.has_null { None } else { Some(is_found) })
    }
}

/// The current row of a source.
#[derive(Debug, Default)]
struct Slot {
    /// Empty for a row of NULLs.
    tuple: Vec<u8>,
    /// The number of the change that brought the row.
    change: u64,
}

/// An answer, and the changes of the slots that its subquery has read.
struct Known {
    changes: Vec<u64>,
    answer: Answer,
    /// Bytes of the answer.
    _share: Share,
}

/// Current rows and answers.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    known: Vec<Option<Known>>,
    /// The slots that each subquery reads.
    read: Vec<Vec<u32>>,
    wanted: Cell<Option<usize>>,
    changes: u64,
}

impl Slots {
    /// Slots without rows. `read` has the slots that each subquery reads.
    pub(crate) fn new(count: usize, read: Vec<Vec<u32>>) -> Slots {
        let known = read.iter().map(|_| None).collect();
        let slots = (0..count).map(|_| Slot::default()).collect();
        Slots { slots, known, read, wanted: Cell::new(None), changes: 0 }
    }

    pub(crate) fn tuple(&self, slot: u32) -> Option<TupleRef<'_>> {
        let tuple = &self.slots.get(slot as usize)?.tuple;
        (!tuple.is_empty()).then(|| TupleRef::trusted(tuple))
    }

    /// Makes a tuple the current row; an empty one is a row of NULLs.
    pub(crate) fn put(&mut self, slot: u32, tuple: &[u8]) {
        self.changes += 1;
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.tuple.clear();
            slot.tuple.extend_from_slice(tuple);
            slot.change = self.changes;
        }
    }

    fn changes_of(&self, query: usize) -> impl Iterator<Item = u64> {
        let read = self.read.get(query).map_or(&[][..], Vec::as_slice);
        read.iter().map(|slot| self.slots.get(*slot as usize).map_or(0, |slot| slot.change))
    }

    /// Notes an answer for the current rows.
    pub(crate) fn answer(&mut self, query: usize, answer: Answer, share: Share) {
        let changes = self.changes_of(query).collect();
        if let Some(known) = self.known.get_mut(query) {
            *known = Some(Known { changes, answer, _share: share });
        }
    }

    /// The answer of a subquery for the current rows. Notes the number of a subquery that has none.
    pub(crate) fn known(&self, query: usize) -> Option<&Answer> {
        let known = self.known.get(query).and_then(Option::as_ref);
        let good = known.filter(|known| known.changes.iter().copied().eq(self.changes_of(query)));
        if good.is_none() {
            self.wanted.set(Some(query));
        }
        good.map(|known| &known.answer)
    }

    /// The number of the subquery without which an expression has failed.
    pub(crate) fn take_wanted(&self) -> Option<usize> {
        self.wanted.take()
    }

    pub(crate) fn scalar(&self, query: usize) -> Result<&Value, SqlFault> {
        match self.known(query) {
            Some(Answer::Scalar(value)) => Ok(value),
            _ => Err(not_answered()),
        }
    }

    pub(crate) fn exists(&self, query: usize) -> Result<bool, SqlFault> {
        match self.known(query) {
            Some(Answer::Exists(exists)) => Ok(*exists),
            _ => Err(not_answered()),
        }
    }

    pub(crate) fn set(&self, query: usize) -> Result<&Set, SqlFault> {
        match self.known(query) {
            Some(Answer::Set(set)) => Ok(set),
            _ => Err(not_answered()),
        }
    }
}
