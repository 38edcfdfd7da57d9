//! One owner: a row of `_queue_taken_2`.

use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;

use crate::repeat::TakeName;
use crate::session::{SessionId, session_field};
use crate::task::TaskKey;

/// Number of the connection's field in a row.
const CONNECTION: u32 = 2;

/// Number of the session's field.
pub(super) const SESSION: u32 = 3;

/// Number of the field of the time of the take.
pub(super) const MOMENT: u32 = 4;

/// Number of the field of the take's name, in the rows of takes that have one.
const NAME: u32 = 5;

/// The session that has taken a task, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) connection: u64,
    pub(crate) session: SessionId,
    /// µs since the epoch.
    pub(crate) moment: u64,
    /// The name of the take ([`crate::repeat`]).
    pub(crate) name: Option<TakeName>,
}

impl Owner {
    /// Reads a row of `_queue_taken_2`.
    pub(crate) fn read(row: &[u8]) -> Option<Self> {
        Some(Self {
            connection: number(row, CONNECTION)?,
            session: session_field(row, SESSION)?,
            moment: number(row, MOMENT)?,
            name: name_field(row),
        })
    }

    /// Appends the row of `_queue_taken_2`.
    pub(crate) fn encode(&self, (tube, task): TaskKey, out: &mut Vec<u8>) {
        mp::write_array(out, 5 + u32::from(self.name.is_some()));
        mp::write_uint(out, tube);
        mp::write_uint(out, task);
        mp::write_uint(out, self.connection);
        mp::write_str(out, &self.session);
        mp::write_uint(out, self.moment);
        if let Some(name) = &self.name {
            mp::write_bin(out, name);
        }
    }
}

/// Reads the name of the take.
pub(super) fn name_field(row: &[u8]) -> Option<TakeName> {
    Reader::new(TupleRef::trusted(row).field(NAME)?).bin().ok()?.try_into().ok()
}

/// Reads a number of a row.
pub(super) fn number(row: &[u8], field: u32) -> Option<u64> {
    Reader::new(TupleRef::trusted(row).field(field)?).uint().ok()
}
