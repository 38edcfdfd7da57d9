//! The shortcut: `=` on a few existing fields by number or by a whole name, which is what a queue does to its tasks all day.
//!
//! One pass over the operations, one over the leading fields of the tuple, one allocation: the result, or where the
//! new values are as long as the old ones, only the bytes that differ. Any other update, be it wrong or
//! only rare, is left to the general path.

use super::operation::cut_base;
use crate::field::FieldSet;
use crate::format::Format;
use crate::mp::{self, Kind, Reader};
use crate::tuple::TupleRef;

/// The most fields that the shortcut assigns.
pub(super) const CAPACITY: usize = 4;

/// The assignments of a request, by field; of several to one field the last.
struct Assignments<'a> {
    sorted: [(i64, &'a [u8]); CAPACITY],
    count: usize,
}

impl<'a> Assignments<'a> {
    /// `None` if there is anything but `=` by a number that is not negative or by the name of a field, or too much of it.
    #[inline]
    fn read(operations: &'a [u8], format: &Format, base: i64) -> Option<Self> {
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
            let field = match reader.kind().ok()? {
                Kind::Str => i64::from(format.field_by_name(reader.str().ok()?)?),
                _ => i64::from(i32::try_from(reader.uint().ok()?).ok()?) - base,
            };
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

    /// Finds the assigned fields; `None` if one of them is not there.
    #[inline]
    fn locate(&self, tuple: TupleRef<'a>) -> Option<Located<'_>> {
        let assigned = &self.sorted[..self.count];
        let bytes = tuple.bytes();
        let mut reader = Reader::new(bytes);
        let field_count = reader.array().ok()?;
        let (first, last) = (assigned.first()?.0, assigned.last()?.0);
        if first < 0 || last >= i64::from(field_count) {
            return None;
        }
        let fields = reader.position();
        let mut ranges = [(0, 0); CAPACITY];
        let mut next = 0;
        for (&(field, _), range) in assigned.iter().zip(&mut ranges) {
            while next < field {
                reader.skip().ok()?;
                next += 1;
            }
            let start = reader.position();
            reader.skip().ok()?;
            next += 1;
            *range = (start, reader.position());
        }
        Some(Located { bytes, field_count, fields, assigned, ranges })
    }
}

/// Where in a tuple the assigned fields are.
struct Located<'a> {
    bytes: &'a [u8],
    field_count: u32,
    /// Where the first field begins.
    fields: usize,
    assigned: &'a [(i64, &'a [u8])],
    /// Of each assigned field, its begin and its end.
    ranges: [(usize, usize); CAPACITY],
}

impl Located<'_> {
    /// Each assigned field's begin and end, and its value.
    fn places(&self) -> impl Iterator<Item = (usize, usize, &[u8])> {
        self.ranges.iter().zip(self.assigned).map(|(&(start, end), &(_, value))| (start, end, value))
    }

    /// Appends the updated tuple.
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes.len() + self.assigned.iter().map(|(_, value)| value.len()).sum::<usize>());
        mp::write_array(out, self.field_count);
        let copied = self.write_span(self.fields, out);
        out.extend_from_slice(&self.bytes[copied..]);
    }

    /// Appends what the tuple has from `begin` to the end of the last assigned field, and returns where that is.
    #[inline]
    fn write_span(&self, begin: usize, out: &mut Vec<u8>) -> usize {
        let mut copied = begin;
        for (start, end, value) in self.places() {
            out.extend_from_slice(&self.bytes[copied..start]);
            out.extend_from_slice(value);
            copied = end;
        }
        copied
    }

    /// Whether the updated tuple differs only in the bytes of the assigned fields.
    #[inline]
    fn is_equally_long(&self) -> bool {
        // A header that is longer than it has to be would be written anew.
        self.fields == 1 && self.places().all(|(start, end, value)| end - start == value.len())
    }
}

/// What [`assign`] has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assigned {
    /// The fields that may differ.
    pub fields: FieldSet,
    /// Where in the tuple the bytes belong that were appended, in the place of as many others; `None` if they are the whole
    /// updated tuple.
    pub offset: Option<usize>,
}

/// The updated tuple; `None` if the general path has to look at it.
pub(super) fn apply(
    operations: &[u8],
    tuple: TupleRef<'_>,
    format: &Format,
    index_base: i64,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    Assignments::read(operations, format, cut_base(index_base))?.locate(tuple)?.write(&mut out);
    Some(out)
}

/// Appends what [`apply`](super::apply) makes of `tuple`, which fits the format, if `operations` only assign, by
/// number or whole name, values that their fields take by the first byte alone. The result then fits the format too.
/// `None`, with nothing appended, if it is not so simple.
///
/// If all values are as long as what they replace and `in_place` says that these fields may be overwritten, only the
/// bytes from the first assigned field to the last one are appended: a task's state changes without its payload being
/// copied.
#[inline]
pub fn assign(
    operations: &[u8],
    tuple: TupleRef<'_>,
    format: &Format,
    index_base: i64,
    in_place: impl FnOnce(FieldSet) -> bool,
    out: &mut Vec<u8>,
) -> Option<Assigned> {
    let assignments = Assignments::read(operations, format, cut_base(index_base))?;
    let mut fields = FieldSet::default();
    for &(field, value) in &assignments.sorted[..assignments.count] {
        let field = u32::try_from(field).ok()?;
        if !format.admits_at_once(field, value) {
            return None;
        }
        fields.insert(field);
    }
    let located = assignments.locate(tuple)?;
    if located.is_equally_long() && in_place(fields) {
        let begin = located.ranges[0].0;
        located.write_span(begin, out);
        return Some(Assigned { fields, offset: Some(begin) });
    }
    located.write(out);
    Some(Assigned { fields, offset: None })
}
