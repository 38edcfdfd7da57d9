//! The effort of a statement, and the bound that ends the statement.
//!
//! Native code is not interrupted: code that evaluates an expression, sorts or parses has to count. A unit is about 20 ns of a
//! processor of 2026. Bytes cost more when they are searched than when they are copied. Units are counted and not timed, so
//! that the same statement over the same rows ends in the same place on every machine.
//!
//! Bounds: [`MAX_ROW`] for the expressions of one row, [`STEP`] and one row more between two pauses, [`MAX_WHOLE`] for what a
//! client's UPDATE or DELETE does in one piece, [`MAX_TOTAL`] for a client's join.

use std::cell::Cell;

use lycosa_tuple::value::Value;

use crate::SqlFault;

/// Units of one row's expressions: about 10 ms.
pub(crate) const MAX_ROW: u64 = 1 << 19;

/// Units after which a statement pauses: about 1 ms.
pub(crate) const STEP: u64 = 1 << 16;

/// Units of an UPDATE or DELETE, whose rows are found without a pause, for a client without the right to run programs:
/// about 40 ms.
pub(crate) const MAX_WHOLE: u64 = 1 << 21;

/// Units of all steps of a join or of subqueries, for a client without the right to run programs: about 20 s. A join of a few
/// spaces has more rows than any server reads in a year.
pub(crate) const MAX_TOTAL: u64 = 1 << 30;

/// What each row costs beside its expressions: the look into the index, the key.
pub(crate) const ROW: u64 = 16;

/// Bytes that are copied or compared in a unit.
const COPIED: usize = 128;

/// `ER_SQL_EXECUTE` of Tarantool 2.6.
const EXECUTE: u32 = 159;

/// Units that are left for one row.
#[derive(Debug)]
pub(crate) struct Effort {
    left: Cell<u64>,
}

impl Default for Effort {
    fn default() -> Self {
        Self { left: Cell::new(MAX_ROW) }
    }
}

impl Effort {
    /// Works for this number of units.
    ///
    /// # Errors
    /// They are more than are left.
    pub(crate) fn spend(&self, units: u64) -> Result<(), SqlFault> {
        match self.left.get().checked_sub(units) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.left.set(0);
                let message = "Failed to execute SQL statement: its expressions take too long for one row: \
                               compute with fewer terms or shorter values";
                Err(SqlFault { is_ours: true, ..SqlFault::new(EXECUTE, message) })
            }
        }
    }

    /// Copies a value.
    ///
    /// # Errors
    /// As [`Self::spend`].
    pub(crate) fn copy(&self, value: &Value) -> Result<Value, SqlFault> {
        self.spend(weight(value))?;
        Ok(value.clone())
    }

    /// Units that were spent.
    pub(crate) fn spent(&self) -> u64 {
        MAX_ROW - self.left.get()
    }
}

/// Units of copying or comparing a value.
pub(crate) fn weight(value: &Value) -> u64 {
    1 + match value {
        Value::Str(bytes) | Value::Bin(bytes) | Value::Ext(_, bytes) => (bytes.len() / COPIED) as u64,
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Map(pairs) => pairs.iter().map(|(key, value)| weight(key) + weight(value)).sum(),
        _ => 0,
    }
}

/// Units of reading a value of this number of encoded bytes that may be nested.
pub(crate) fn weight_of_encoded(bytes: &[u8]) -> u64 {
    match bytes.first() {
        // Maps and arrays: each item is a value of its own.
        Some(0x80..=0x9f | 0xdc..=0xdf) => bytes.len() as u64,
        _ => 1 + (bytes.len() / COPIED) as u64,
    }
}

/// Units of what goes through a text a character at a time.
pub(crate) fn weight_of_text(bytes: usize) -> u64 {
    1 + (bytes / 4) as u64
}
