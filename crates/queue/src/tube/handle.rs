//! Handles of tubes, for files that name a tube and know nothing else of it.
//!
//! A tube has a slot in a table for as long as it exists. A slot is used again after its tube. A [`TubeHandle`] holds
//! the slot's generation, so a procedure that was resolved for a former tube does not reach the present one.

/// Number of a slot in the table of tubes.
pub(crate) type TubeIndex = u32;

/// Names one tube: its slot, and which of the tubes that have used the slot it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TubeHandle {
    pub(crate) index: TubeIndex,
    pub(super) generation: u32,
}
