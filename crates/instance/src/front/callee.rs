//! Native functions, by name.

use lycosa_queue::{Procedure, Right};

use crate::front::boxes::Function;
use crate::shard::expiration_tasks;

/// The native function that a CALL of a name runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Callee {
    /// A function of the queue or a method of a tube, and why the user may call it.
    Queue(Procedure, Right),
    /// A function of `box`.
    Box(Function),
    /// A function of expiration.
    Expiration(expiration_tasks::Function),
}
