//! The shortcut: `=` on a few existing fields by number, which is what a queue does to its tasks all day.
//!
//! One pass over the operations, one over the leading fields of the tuple, one allocation: the result. Whatever is not
//! such an update, be it wrong or only rare, is left to the general path.

use super::operation::cut_base;
use crate::field::FieldSet;
use crate::format::Format;
use crate::mp::{self, Reader};
use crate::tuple::TupleRef;

/// The most fields that the shortcut assigns.
const CAPACITY: usize = 8;

/// The assignments of a request, by field; of several to one field the last.
struct Assignments<'a> {
    sorted: [(i64, &'a [u8]); CAPACITY],
    count: usize,
}

impl<'a> Assignments<'a> {
    /// `None` if there is anything but `=` by a number that is not negative, or too much of it.
    #[inline]
    fn read(operations: &'a [u8], base: i64) -> Option<Self> {
        let mut reader = Reader::new(operations);
        let mut assignments = Self { sorted: [(0, &[]); CAPACITY], count: 0 };
        let count = reader.array().ok()?;
        if count > super::OPERATION_LIMIT {
            return None;
        }
        for _ in 0..count {
            if reader.array().ok()? != 3 || reader.str().ok()? != b"=" {
                return None;
            }
            let field = i64::from(i32::try_from(reader.uint().ok()?).ok()?) - base;
            assignments.put(field, reader.raw().ok()?)?;
        }
        (reader.is_empty() && assignments.count > 0).then_some(assignments)
    }

    #[inline]
    fn put(&mut self, field: i64, value: &'a [u8]) -> Option<()> {
        let is_last = self.count == 0 || self.sorted[self.count - 1].0 < field;
        if is_last && self.count < CAPACITY {
            self.sorted[self.count] = (field, value);
            self.count += 1;
            return Some(());
        }
        let place = self.sorted[..self.count].partition_point(|&(other, _)| other < field);
        if place < self.count && self.sorted[place].0 == field {
            self.sorted[place].1 = value;
            return Some(());
        }
        if self.count == CAPACITY {
            return None;
        }
        self.count += 1;
        self.sorted[place..self.count].rotate_right(1);
        self.sorted[place] = (field, value);
        Some(())
    }

    /// Appends the updated tuple; `None` if the general path has to look at it, and then some of it may stand in `out`.
    #[inline]
    fn write(&self, tuple: TupleRef<'_>, out: &mut Vec<u8>) -> Option<()> {
        let assigned = &self.sorted[..self.count];
        let bytes = tuple.bytes();
        let mut reader = Reader::new(bytes);
        let field_count = reader.array().ok()?;
        let (first, last) = (assigned.first()?.0, assigned.last()?.0);
        if first < 0 || last >= i64::from(field_count) {
            return None;
        }
        out.reserve(bytes.len() + assigned.iter().map(|(_, value)| value.len()).sum::<usize>());
        mp::write_array(out, field_count);
        let mut copied = reader.position();
        let mut next = 0;
        for &(field, value) in assigned {
            while next < field {
                reader.skip().ok()?;
                next += 1;
            }
            if copied < reader.position() {
                out.extend_from_slice(&bytes[copied..reader.position()]);
            }
            out.extend_from_slice(value);
            reader.skip().ok()?;
            next += 1;
            copied = reader.position();
        }
        out.extend_from_slice(&bytes[copied..]);
        Some(())
    }
}

/// The updated tuple; `None` if the general path has to look at it.
pub(super) fn apply(operations: &[u8], tuple: TupleRef<'_>, index_base: i64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    Assignments::read(operations, cut_base(index_base))?.write(tuple, &mut out)?;
    Some(out)
}

/// Appends what [`apply`](super::apply) makes of `tuple`, which fits the format, and returns the fields that may differ: if
/// `operations` only assign, by number, values that their fields take whatever is behind the first byte. The result then fits
/// the format too. `None` if it is not so simple; what `out` has then is of no use.
#[inline]
pub fn assign(
    operations: &[u8],
    tuple: TupleRef<'_>,
    format: &Format,
    index_base: i64,
    out: &mut Vec<u8>,
) -> Option<FieldSet> {
    let assignments = Assignments::read(operations, cut_base(index_base))?;
    let mut fields = FieldSet::default();
    for &(field, value) in &assignments.sorted[..assignments.count] {
        let field = u32::try_from(field).ok()?;
        if !format.admits_at_once(field, value) {
            return None;
        }
        fields.insert(field);
    }
    assignments.write(tuple, out)?;
    Some(fields)
}
