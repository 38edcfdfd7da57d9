//! Reading operations: shapes, operators, fields and arguments, before any of them is applied.
//!
//! The order of the checks is Tarantool's, because the first error is what a client sees: the number of operations, then
//! operation by operation its shape, the operator, the number of arguments, the field, the arguments from left to right.

use super::arithmetic::Number;
use super::{FieldFault, OPERATION_LIMIT, UpdateError};
use crate::format::Format;
use crate::mp::{self, Kind, Reader};
use crate::path::{Lexer, Step};

/// One operation that could be read.
#[derive(Debug)]
pub(super) struct Operation<'a> {
    pub(super) target: UpdatePath<'a>,
    pub(super) action: Action<'a>,
}

/// Where an operation applies.
#[derive(Debug)]
pub(super) struct UpdatePath<'a> {
    /// From 0; negative numbers count from the end.
    pub(super) field: i64,
    /// The name or path, if the field was not sent as a number.
    text: Option<&'a [u8]>,
    /// What follows the field in a path; at its end already if the whole field is meant.
    pub(super) path: Lexer<'a>,
}

/// What an operation does.
#[derive(Debug)]
pub(super) enum Action<'a> {
    Set(&'a [u8]),
    Insert(&'a [u8]),
    /// A number of fields, at least one.
    Delete(u32),
    Compute(Computation<'a>),
}

/// What an operation makes of the value that it finds.
#[derive(Debug)]
pub(super) enum Computation<'a> {
    Add(Number),
    Subtract(Number),
    And(u64),
    Or(u64),
    Xor(u64),
    Splice(Splice<'a>),
}

/// Replaces `length` bytes at `position` by `paste`. Both count back from the end if they are negative.
#[derive(Debug)]
pub(super) struct Splice<'a> {
    pub(super) position: i64,
    pub(super) length: i64,
    pub(super) paste: &'a [u8],
}

impl UpdatePath<'_> {
    /// The field as errors show it.
    pub(super) fn shown(&self) -> String {
        match self.text {
            Some(text) => format!("'{}'", String::from_utf8_lossy(text)),
            None => self.number().to_string(),
        }
    }

    /// The error "there is no such field".
    pub(super) fn not_found(&self) -> UpdateError {
        match self.text {
            Some(_) => UpdateError::NoSuchFieldName(self.shown()),
            None => UpdateError::NoSuchFieldNo(self.number()),
        }
    }

    /// An error about this field.
    pub(super) fn fault(&self, reason: impl Into<FieldFault>) -> UpdateError {
        UpdateError::UpdateField { field: self.shown(), reason: reason.into() }
    }

    const fn number(&self) -> i64 {
        if self.field < 0 { self.field } else { self.field + 1 }
    }
}

impl Computation<'_> {
    pub(super) const fn operator(&self) -> char {
        match self {
            Self::Add(_) => '+',
            Self::Subtract(_) => '-',
            Self::And(_) => '&',
            Self::Or(_) => '|',
            Self::Xor(_) => '^',
            Self::Splice(_) => ':',
        }
    }
}

/// Reads all of `operations`, which must be exactly one array.
pub(super) fn read_all<'a>(
    operations: &'a [u8],
    format: &Format,
    index_base: i64,
) -> Result<Vec<Operation<'a>>, UpdateError> {
    let mut reader = Reader::new(operations);
    let count = reader.array()?;
    if count > OPERATION_LIMIT {
        return Err(UpdateError::IllegalParams("too many operations for update"));
    }
    let base = cut_base(index_base);
    let read = (1..=count)
        .map(|number| Operation::read(&mut reader, number, format, base))
        .collect::<Result<_, _>>()?;
    if reader.is_empty() { Ok(read) } else { Err(UpdateError::InvalidMsgpack) }
}

/// Tarantool keeps 32 bits of the index base.
pub(super) const fn cut_base(index_base: i64) -> i64 {
    index_base & 0xffff_ffff
}

impl<'a> Operation<'a> {
    fn read(reader: &mut Reader<'a>, number: u32, format: &Format, base: i64) -> Result<Self, UpdateError> {
        if reader.kind()? != Kind::Array {
            return Err(UpdateError::IllegalParams("update operation must be an array {op,..}"));
        }
        let length = reader.array()?;
        if length == 0 {
            return Err(UpdateError::IllegalParams(
                "update operation must be an array {op,..}, got empty array",
            ));
        }
        if reader.kind()? != Kind::Str {
            return Err(UpdateError::IllegalParams("update operation name must be a string"));
        }
        let name = reader.str()?;
        let operator = match name {
            [byte @ (b'=' | b'!' | b'#' | b'+' | b'-' | b'&' | b'|' | b'^' | b':')] => char::from(*byte),
            _ => {
                // The text ends at a zero byte, as C strings do.
                let printed = name.split(|&byte| byte == 0).next().unwrap_or_default();
                let reason = format!("\"{}\"", String::from_utf8_lossy(printed));
                return Err(UpdateError::UnknownUpdateOp { number, reason });
            }
        };
        let expected = if operator == ':' { 5 } else { 3 };
        if length != expected {
            let reason = format!("wrong number of arguments, expected {expected}, got {length}");
            return Err(UpdateError::UnknownUpdateOp { number, reason });
        }
        let target = UpdatePath::read(reader, operator, format, base)?;
        let action = Action::read(reader, operator, &target, base)?;
        Ok(Self { target, action })
    }
}

impl<'a> UpdatePath<'a> {
    fn read(
        reader: &mut Reader<'a>,
        operator: char,
        format: &Format,
        base: i64,
    ) -> Result<Self, UpdateError> {
        match reader.kind()? {
            Kind::Uint | Kind::Int => Self::by_number(reader.int()?, operator, base),
            Kind::Str => Self::by_text(reader.str()?, format),
            _ => Err(UpdateError::IllegalParams("field id must be a number or a string")),
        }
    }

    fn by_number(number: i128, operator: char, base: i64) -> Result<Self, UpdateError> {
        let Ok(sent) = i32::try_from(number) else {
            let field = if number < 0 { number } else { number - i128::from(base) + 1 }.to_string();
            return Err(UpdateError::UpdateArgType { operator, field, expected: "an integer" });
        };
        let sent = i64::from(sent);
        let field = if sent < 0 { sent } else { sent - base };
        if sent >= 0 && field < 0 {
            return Err(UpdateError::NoSuchFieldNo(sent));
        }
        Ok(Self { field, text: None, path: Lexer::new(&[]) })
    }

    /// A whole name goes before a path: a field may be called `a.b`.
    fn by_text(text: &'a [u8], format: &Format) -> Result<Self, UpdateError> {
        let mut target = Self { field: 0, text: Some(text), path: Lexer::new(&[]) };
        if let Some(field) = format.field_by_name(text) {
            target.field = i64::from(field);
            return Ok(target);
        }
        target.path = Lexer::new(text);
        let field = match target.path.step() {
            Err(error) => return Err(target.fault(error)),
            Ok(Some(Step::Index(index))) => Some(index),
            Ok(Some(Step::Key(name))) => format.field_by_name(name),
            Ok(Some(Step::Any) | None) => None,
        };
        match field {
            Some(field) => target.field = i64::from(field),
            None => return Err(UpdateError::NoSuchFieldName(String::from_utf8_lossy(text).into_owned())),
        }
        Ok(target)
    }
}

impl<'a> Action<'a> {
    fn read(
        reader: &mut Reader<'a>,
        operator: char,
        target: &UpdatePath<'_>,
        base: i64,
    ) -> Result<Self, UpdateError> {
        let mismatch = |expected| UpdateError::UpdateArgType { operator, field: target.shown(), expected };
        let integer = |value: &[u8]| {
            let number = Reader::new(value).int().ok().and_then(|number| i32::try_from(number).ok());
            number.map(i64::from).ok_or_else(|| mismatch("an integer"))
        };
        let argument = reader.raw()?;
        let bits = || Reader::new(argument).uint().map_err(|_| mismatch("a positive integer"));
        let computation = match operator {
            '=' => return Ok(Self::Set(argument)),
            '!' => return Ok(Self::Insert(argument)),
            '#' => {
                // The number is cut to 32 bits.
                return match bits()? as u32 {
                    0 => Err(target.fault(FieldFault::DeleteNone)),
                    count => Ok(Self::Delete(count)),
                };
            }
            '&' => Computation::And(bits()?),
            '|' => Computation::Or(bits()?),
            '^' => Computation::Xor(bits()?),
            '+' | '-' => match Number::read(argument) {
                Some(number) if operator == '+' => Computation::Add(number),
                Some(number) => Computation::Subtract(number),
                None if matches!(Reader::new(argument).ext(), Ok((mp::EXT_DECIMAL, _))) => {
                    return Err(UpdateError::IllegalParams("can't unpack update operations"));
                }
                None => return Err(mismatch("a number")),
            },
            _ => {
                let mut position = integer(argument)?;
                if position >= 0 {
                    position -= base;
                    if position < 0 {
                        return Err(out_of_bound(target));
                    }
                }
                let length = integer(reader.raw()?)?;
                let paste = Reader::new(reader.raw()?).str().map_err(|_| mismatch("a string"))?;
                Computation::Splice(Splice { position, length, paste })
            }
        };
        Ok(Self::Compute(computation))
    }
}

/// The error of a splice that begins before the string.
pub(super) fn out_of_bound(target: &UpdatePath<'_>) -> UpdateError {
    UpdateError::UpdateSplice { field: target.shown(), reason: "offset is out of bound" }
}
