//! Native functions, by name.

use lycosa_queue::Procedure;

use crate::front::boxes::Function;
use crate::shard::expiration_tasks;

/// What a CALL of a name runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Callee {
    /// A function of the queue or a method of a tube, and why the user may call it.
    Queue(Procedure, Right),
    /// A function of `box`.
    Box(Function),
    /// A function of expiration.
    Expiration(expiration_tasks::Function),
}

/// Why a user may call a procedure of the queue, beside rights to its spaces.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Right {
    /// Just that was granted to the user.
    pub(crate) granted: bool,
    /// The user has every tube ([`EVERY_TUBE`](lycosa_queue::EVERY_TUBE)).
    pub(crate) every_tube: bool,
}
