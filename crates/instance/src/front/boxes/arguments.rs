//! Arguments of functions, decoded.

use lycosa_iproto::error::ErrorObject;
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use crate::Result;
use crate::shard::wire_error::illegal;

/// Most values of the arguments of a call, with all that they hold. A decoded value takes up to forty times the byte that it
/// was sent as, and no function here has a use for this many.
const MAX_VALUES: u64 = 4096;

/// The arguments of one call, and the name of its function for error texts.
#[derive(Debug)]
pub(super) struct Arguments {
    usage: &'static str,
    values: Vec<Value>,
}

impl Arguments {
    /// Decodes `args`, a MessagePack array; `usage` shows how the function is called.
    pub(super) fn decode(usage: &'static str, args: &[u8]) -> Result<Arguments> {
        if !Reader::new(args).holds_at_most(MAX_VALUES) {
            return Err(illegal(&format!("the arguments of {usage} hold more than {MAX_VALUES} values")));
        }
        match Value::decode(args) {
            Ok(Value::Array(values)) => Ok(Arguments { usage, values }),
            _ => Err(ErrorObject::lua(format!("Usage: {usage}"))),
        }
    }

    /// The error for arguments that do not fit.
    pub(super) fn usage(&self) -> ErrorObject {
        ErrorObject::lua(format!("Usage: {}", self.usage))
    }

    /// The argument at `position` (from 0); nil and absent are the same.
    pub(super) fn get(&self, position: usize) -> Option<&Value> {
        self.values.get(position).filter(|value| !matches!(value, Value::Nil))
    }

    /// The text at `position`.
    pub(super) fn text(&self, position: usize) -> Result<&str> {
        self.get(position).and_then(Value::as_str).ok_or_else(|| self.usage())
    }

    /// The text at `position`, or nothing.
    pub(super) fn optional_text(&self, position: usize) -> Result<Option<&str>> {
        self.get(position).map(|value| value.as_str().ok_or_else(|| self.usage())).transpose()
    }

    /// The options at `position`: a map with no other keys than `known`.
    pub(super) fn options(&self, position: usize, known: &[&str]) -> Result<Options<'_>> {
        let pairs = match self.get(position) {
            None => return Ok(Options { pairs: &[] }),
            Some(Value::Map(pairs)) => pairs.as_slice(),
            Some(Value::Array(items)) if items.is_empty() => return Ok(Options { pairs: &[] }),
            Some(_) => return Err(illegal("options should be a table")),
        };
        for (key, _) in pairs {
            let key = key.as_str().unwrap_or_default();
            if !known.contains(&key) {
                return Err(illegal(&format!("unexpected option '{key}'")));
            }
        }
        Ok(Options { pairs })
    }
}

/// Options of a call by name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options<'a> {
    pairs: &'a [(Value, Value)],
}

impl<'a> Options<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        let pair = self.pairs.iter().find(|(key, _)| key.as_str() == Some(name));
        pair.map(|(_, value)| value).filter(|value| !matches!(value, Value::Nil))
    }

    /// A boolean option; absent means false.
    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        let unfit = || wrong_type(name, "boolean");
        self.get(name).map_or(Ok(false), |value| value.as_bool().ok_or_else(unfit))
    }

    /// A text option.
    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or_else(|| wrong_type(name, "string")),
        }
    }
}

fn wrong_type(option: &str, expected: &str) -> ErrorObject {
    illegal(&format!("options parameter '{option}' should be of type {expected}"))
}
