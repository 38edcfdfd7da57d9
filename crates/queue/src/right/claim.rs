//! The claim of a call that waits: the right by which it was made, asked for again when an access has changed since.

#[cfg(test)]
use lycosa_store::user;
use lycosa_store::{Store, UserId};

use crate::command::Call;
use crate::procedure::Procedure;
use crate::{Caller, Command};

/// By what right a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The user whose rights count.
    pub(crate) user: UserId,
    /// The caller is trusted, and not because of a right to every tube.
    pub(crate) trusted: bool,
    pub(crate) by_name: bool,
    pub(crate) procedure: Procedure,
    /// When the right was asked for, by [`Store::access_version`].
    version: u64,
}

impl Claim {
    pub(crate) fn of_call(call: &Call<'_>, store: &Store) -> Self {
        let Command { procedure, right, .. } = *call.command;
        let Caller { effective: user, trusted, .. } = *call.asker;
        let version = store.access_version();
        Self { user, trusted, by_name: right.by_name, procedure: *procedure, version }
    }

    /// Whether no right has changed since the call began to wait.
    #[inline]
    pub(crate) fn is_current(&self, store: &Store) -> bool {
        self.version == store.access_version()
    }
}

#[cfg(test)]
impl Claim {
    pub(crate) fn of_instance() -> Self {
        let procedure = Procedure::of_state();
        Self { user: user::ADMIN, trusted: true, by_name: false, procedure, version: 0 }
    }
}
