//! Names of tubes in memory: the slot of a tube, and a handle that does not outlive its tube.

/// Number of a slot in the table of tubes.
pub(crate) type TubeIndex = u32;

/// Names one tube: its slot, and which of the tubes that have used the slot it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TubeHandle {
    pub(crate) index: TubeIndex,
    pub(super) generation: u32,
}
