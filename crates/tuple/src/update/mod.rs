//! UPDATE and UPSERT: operations that make a new tuple of an old one.
//!
//! An operation is `[operator, field, argument]` (`[':', field, position, length, string]` for a splice). A field is a
//! number, a name or a JSON path. Operations are read first, all of them, and then applied from left to right on the
//! changing numbering. Untouched fields keep their bytes; computed values get their shortest form.
//!
//! A tuple or a log that Tarantool wrote must come out of a replay byte for byte, so the rule for every corner is: where
//! Tarantool 2.6 succeeds, the same bytes; where it refuses, a refusal, with its text where that text states a fact.
//! Hence these oddities, all of them observed:
//!
//! - A field of the old tuple takes one arithmetic, bit or splice operation, and none after `=`; `=` and `#` may always
//!   follow. A field that was inserted or appended by the same request counts as an old one.
//! - The same *path* twice is refused even for `=`, unless another path into the same array or map came between
//!   (`draft` tells how that falls out of the structure).
//! - A map's keys move to the front when two different paths lead into that map; one path alone changes it in place.
//! - A sum with a double or float is stored as a 32-bit float if that is exact, except in fields of type double.
//!
//! Where Tarantool crashes, reads memory that is not its own, or writes tuples that are no MessagePack, nothing is owed:
//!
//! - a path through a field that this request has set or computed is a double update;
//! - a path through the end of the only other path into its field (`#` of `[2].a`, then `=` of `[2].a.b`) leads nowhere;
//!   Tarantool would repeat the first operation one level below, and lose it where it was;
//! - a map's integer keys can be reached by index, as long as that path is alone.
//!
//! Parts: `operation` reads operations, `arithmetic` computes values, `draft` is the tuple while it changes, made of
//! `container` and `trail`; `assignment` is a shortcut for what the queue does all day: `=` on a few fields by number.
//!
//! Absent: whether the result fits the format and keeps its primary key is the store's question.

mod arithmetic;
mod assignment;
mod container;
mod draft;
mod operation;
mod steps;
#[cfg(test)]
mod tests;
mod trail;

pub use assignment::{Assigned, assign};
pub use steps::STEP_LIMIT;

use crate::format::Format;
use crate::mp::MpError;
use crate::tuple::TupleRef;
use draft::Draft;
use steps::Steps;

/// The most operations that one request may carry.
pub const OPERATION_LIMIT: u32 = 4000;

/// What happens to an operation that fails while it is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The whole update fails.
    Update,
    /// The operation is skipped, the rest are applied. (An operation that cannot be read is an error all the same.)
    Upsert,
}

/// Why operations were refused. The texts are Tarantool's; the variants' names are those of its error codes.
///
/// A field is shown as its number from 1 (a negative one as it was sent), or as the name or path in single quotes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// Code 1.
    #[error("Illegal parameters, {0}")]
    IllegalParams(&'static str),
    /// Code 1: the operations step over more than [`STEP_LIMIT`] values.
    #[error(
        "Illegal parameters, the operations step over more than {STEP_LIMIT} values of the tuple: send fewer operations \
         by path in one request, or keep such a large map or array as tuples of a space"
    )]
    TooManySteps,
    /// Code 20: the operations are not one MessagePack array.
    #[error("Invalid MsgPack - packet body")]
    InvalidMsgpack,
    /// Code 25.
    #[error("SPLICE error on field {field}: {reason}")]
    UpdateSplice {
        /// The field.
        field: String,
        /// The reason.
        reason: &'static str,
    },
    /// Code 26: the argument, or the field that the operation finds, has another type.
    #[error(
        "Argument type in operation '{operator}' on field {field} does not match field type: expected {expected}"
    )]
    UpdateArgType {
        /// The operator's character.
        operator: char,
        /// The field.
        field: String,
        /// What would have been right.
        expected: &'static str,
    },
    /// Code 28.
    #[error("Unknown UPDATE operation #{number}: {reason}")]
    UnknownUpdateOp {
        /// Which operation, from 1.
        number: u32,
        /// The operator in double quotes, or the fault of its arguments.
        reason: String,
    },
    /// Code 29.
    #[error("Field {field} UPDATE error: {reason}")]
    UpdateField {
        /// The field.
        field: String,
        /// The reason.
        reason: FieldFault,
    },
    /// Code 37.
    #[error("Field {0} was not found in the tuple")]
    NoSuchFieldNo(i64),
    /// Code 201: a name as it was sent, or a path in quotes of its own.
    #[error("Field '{0}' was not found in the tuple")]
    NoSuchFieldName(String),
    /// Code 95.
    #[error("Integer overflow when performing '{operator}' operation on field {field}")]
    UpdateIntegerOverflow {
        /// The operator's character.
        operator: char,
        /// The field.
        field: String,
    },
    /// Code 160.
    #[error("Decimal overflow when performing operation '{operator}' on field {field}")]
    UpdateDecimalOverflow {
        /// The operator's character.
        operator: char,
        /// The field.
        field: String,
    },
}

/// The fault of a field; see [`UpdateError::UpdateField`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    /// `#` with 0.
    #[error("cannot delete 0 fields")]
    DeleteNone,
    /// `#` on a map's key with another number than 1.
    #[error("can delete only 1 field from a map in a row")]
    DeleteManyKeys,
    /// A second operation where only one is allowed.
    #[error("double update of the same field")]
    DoubleUpdate,
    /// `!` of a key that exists.
    #[error("the key exists already")]
    KeyExists,
    /// The path breaks the grammar.
    #[error(transparent)]
    Path(#[from] crate::path::PathError),
    /// The path ends with an index in something that is not an array.
    #[error("can not access by index a non-array field")]
    NotAnArray,
    /// The path ends with a key in something that is not a map.
    #[error("can not access by key a non-map field")]
    NotAMap,
    /// A key where an earlier path has found an array, or the path ends there.
    #[error("can not update array by non-integer index")]
    NotAnIndex,
    /// An index where an earlier path has found a map, or the path ends there.
    #[error("can not update map by non-string key")]
    NotAKey,
    /// A key in an array that several paths lead into.
    #[error("can't update an array by a non-numeric index")]
    KeyInArray,
    /// An index in a map that several paths lead into.
    #[error("can't update a map by not a string key")]
    IndexInMap,
}

/// Operations are MessagePack of one request, and tuples were checked when they came in: a value that cannot be read makes
/// the request invalid.
impl From<MpError> for UpdateError {
    fn from(_: MpError) -> Self {
        Self::InvalidMsgpack
    }
}

/// Applies `operations`, a MessagePack array, to `tuple`. Names are those of `format`, and its fields of type double
/// keep doubles. `index_base`, cut to 32 bits, is subtracted from field numbers and splice positions that are not
/// negative. `step_limit` is the most values of `tuple` that the operations may step over together ([`STEP_LIMIT`] for a
/// client's request, none for a row that was accepted before).
///
/// # Errors
/// The first operation that cannot be read, else, in [`Mode::Update`], the first that cannot be applied. In both modes
/// operations that step over too many values.
pub fn apply(
    operations: &[u8],
    tuple: TupleRef<'_>,
    format: &Format,
    index_base: i64,
    mode: Mode,
    step_limit: u64,
) -> Result<Vec<u8>, UpdateError> {
    match assignment::apply(operations, tuple, format, index_base) {
        Some(result) => Ok(result),
        None => apply_any(operations, tuple, format, index_base, mode, step_limit),
    }
}

/// [`apply`] without the shortcut.
fn apply_any(
    operations: &[u8],
    tuple: TupleRef<'_>,
    format: &Format,
    index_base: i64,
    mode: Mode,
    step_limit: u64,
) -> Result<Vec<u8>, UpdateError> {
    let steps = Steps::new(step_limit);
    let mut read = operation::read_all(operations, format, index_base)?;
    let mut draft = Draft::new(tuple, &steps)?;
    for operation in &mut read {
        match draft.apply(operation) {
            Err(error @ (UpdateError::InvalidMsgpack | UpdateError::TooManySteps)) => return Err(error),
            Err(error) if mode == Mode::Update => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(draft.finish(format, tuple.bytes().len() + operations.len()))
}

/// Reads `operations` without a tuple: an UPSERT refuses what cannot be read even when it inserts.
///
/// # Errors
/// The first operation that cannot be read.
pub fn check(operations: &[u8], format: &Format, index_base: i64) -> Result<(), UpdateError> {
    operation::read_all(operations, format, index_base).map(drop)
}
