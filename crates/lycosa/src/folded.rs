//! Values of answers for people and for JSON, also where a payload is nested too deeply.
//!
//! Any producer may put a payload of thousands of arrays in each other, and a [`Value`] has at most 256. Such a payload must not hide
//! the other tasks of a list: its depths are shown as the MessagePack that they are, in bytes.

use lycosa_client::{Error, Response, Value};
use lycosa_tuple::mp::{Kind, Reader};

/// Arrays and maps in each other that are shown of a payload that is nested too deeply. Readers of JSON take some more.
const LEVELS: u32 = 100;

/// The values of an answer.
pub(crate) fn values(response: &Response) -> Result<Vec<Value>, Error> {
    response.values().or_else(|error| match fold(&mut Reader::new(response.data()), LEVELS) {
        Some(Value::Array(values)) => Ok(values),
        _ => Err(error),
    })
}

fn fold(reader: &mut Reader<'_>, levels: u32) -> Option<Value> {
    Some(match reader.kind().ok()? {
        Kind::Array | Kind::Map if levels == 0 => Value::Bin(reader.raw().ok()?.to_vec()),
        Kind::Array => {
            let count = reader.array().ok()?;
            Value::Array((0..count).map(|_| fold(reader, levels - 1)).collect::<Option<_>>()?)
        }
        Kind::Map => {
            let count = reader.map().ok()?;
            let mut pair = || Some((fold(reader, levels - 1)?, fold(reader, levels - 1)?));
            Value::Map((0..count).map(|_| pair()).collect::<Option<_>>()?)
        }
        _ => Value::read(reader).ok()?,
    })
}
