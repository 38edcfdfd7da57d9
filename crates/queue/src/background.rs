//! Background work: long calls ([`crate::long_call`]) and jobs over many tasks ([`crate::bulk`]), in slices.
//!
//! Nothing here has a deadline, so the caller decides how much of each turn it gets ([`Queue::work`](crate::Queue::work)).
//! Deadlines of tasks, sessions, leases and waiting calls are [`crate::timer`]'s.
//!
//! A slice is one transaction. It does portions of [`PORTION`] changes, or of [`WALK`] tasks to look at, until its budget is
//! spent. Long calls and jobs take slices in turn.

mod work;

/// Changes of tasks between two looks at the budget.
pub(crate) const PORTION: usize = 4;
/// Tasks that are looked at between two looks at the budget.
pub(crate) const WALK: usize = 32;
/// Bytes of payloads between two looks at the budget; the last payload may reach beyond them.
pub(crate) const PORTION_BYTES: usize = 64 << 10;
