//! Reads of a leader, which the majority confirms in the place of rows.

use std::cell::Cell;
use std::collections::VecDeque;

/// Reads that replies wait for.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// This node leads a group.
    pub(super) are_confirmed: bool,
    /// The number of the present turn's read, if a reply waits for it.
    pub(super) wanted: Cell<u64>,
    /// Reads that are not durable: the number of each, and the last row before it.
    pub(super) pending: VecDeque<(u64, u64)>,
    /// The majority has confirmed reads up to this number.
    pub(super) confirmed: u64,
}
