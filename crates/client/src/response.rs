//! The answer to a request that succeeded.

use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use crate::error::{Error, Result};

/// The answer to a request that succeeded: tuples or values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    data: Vec<u8>,
    schema_version: u64,
}

impl Response {
    /// `data` is a whole MessagePack array.
    pub(crate) fn new(data: Vec<u8>, schema_version: u64) -> Self {
        Self { data, schema_version }
    }

    /// The tuples or values: a MessagePack array.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The server's schema version when it answered. It changes whenever a space or index does.
    pub fn schema_version(&self) -> u64 {
        self.schema_version
    }

    /// The number of tuples or values.
    pub fn len(&self) -> usize {
        Reader::new(&self.data).array().map_or(0, |count| count as usize)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The MessagePack of the first tuple or value.
    pub fn first(&self) -> Option<&[u8]> {
        let mut reader = Reader::new(&self.data);
        if reader.array().ok()? == 0 {
            return None;
        }
        reader.raw().ok()
    }

    /// The first tuple or value.
    ///
    /// # Errors
    /// [`Error::Protocol`] if there is none or it is nested too deeply.
    pub fn first_value(&self) -> Result<Value> {
        let first = self.first().ok_or_else(|| Error::protocol("no value"))?;
        Ok(Value::decode(first)?)
    }

    /// All tuples or values.
    ///
    /// # Errors
    /// [`Error::Protocol`] if one is nested too deeply.
    pub fn values(&self) -> Result<Vec<Value>> {
        match Value::decode(&self.data)? {
            Value::Array(values) => Ok(values),
            other => Err(Error::protocol(format!("data is not an array: {other}"))),
        }
    }
}
