//! Update operations on a tuple.

use lycosa_tuple::field::FieldType;
use lycosa_tuple::format::{FieldDef, Format, Refusal};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::update::{Mode, apply, check};

/// Bits of the first byte: field numbers count from 1; the space has names; an UPSERT.
const BASE_ONE: u8 = 1;
const NAMES: u8 = 2;
const UPSERT: u8 = 4;

/// An input: a first byte of bits, a tuple, operations.
pub(crate) fn seed(base: i64, is_upsert: bool, tuple: &[u8], operations: &[u8]) -> Vec<u8> {
    let bits = if base == 1 { BASE_ONE } else { 0 } | if is_upsert { UPSERT } else { 0 } | NAMES;
    [&[bits], tuple, operations].concat()
}

/// Applies operations to a tuple. The result is a tuple; what succeeds as an update is the same as an upsert; operations
/// that were applied could be read.
///
/// # Panics
/// If one of that is not so.
pub fn update_operations(data: &[u8]) {
    let Some((&bits, rest)) = data.split_first() else { return };
    let mut reader = Reader::new(rest);
    let (Ok(tuple), Ok(operations)) = (reader.raw(), reader.raw()) else { return };
    let Ok(tuple) = TupleRef::new(tuple) else { return };
    let format = format(bits & NAMES != 0);
    let base = i64::from(bits & BASE_ONE);
    let readable = check(operations, &format, base);
    let updated = apply(operations, tuple, &format, base, Mode::Update, u64::MAX);
    let upserted = apply(operations, tuple, &format, base, Mode::Upsert, u64::MAX);
    for result in [&updated, &upserted] {
        match result {
            Ok(bytes) => {
                TupleRef::new(bytes).expect("the result is a tuple");
                assert_eq!(readable, Ok(()));
            }
            Err(error) => drop(error.to_string()),
        }
    }
    if let Ok(updated) = updated {
        assert_eq!(upserted, Ok(updated));
    }
}

fn format(has_names: bool) -> Format {
    let field =
        |name: &str, ty| FieldDef { name: name.to_owned(), ty, nullable: true, refusal: Refusal::Default };
    let fields = vec![
        field("id", FieldType::Any),
        field("d", FieldType::Double),
        field("n", FieldType::Any),
        field("m", FieldType::Any),
        field("a.b", FieldType::Any),
    ];
    Format::new(if has_names { fields } else { Vec::new() }, 0)
}
