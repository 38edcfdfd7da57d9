//! The newest xlog of a folder where it has no rows: recovery finds it, and the writer goes on with it.

use lycosa_iproto::vclock::Vclock;

/// An xlog without rows. The next batch is written into it, or into one that takes its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptyXlog {
    /// Its name.
    pub name: String,
    /// Length of its text header. What follows is at most an end marker or a torn tail.
    pub header_bytes: u64,
    /// Whether it ends in the end marker.
    pub is_closed: bool,
    /// `PrevVClock` of its text header.
    pub prev_vclock: Option<Box<Vclock>>,
    /// Whether its blocks are to say how much of it is synced.
    pub has_synced_length: bool,
}
