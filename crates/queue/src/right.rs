//! The right to call a procedure by its name, and what that right spares the caller.
//!
//! The instance asks when a call begins, and remembers the answer as long as [`Store::access_version`] stays. A call that waits is
//! asked again when it is served, if that version has changed: a user whose right was revoked in between gets the refusal, and
//! the task stays. Rights to spaces are checked in [`crate::grant`].

pub(crate) mod claim;

use lycosa_store::{Access, Object, Store, UserId, user};

use crate::Caller;
use crate::error::StoreResult;
use crate::procedure::{Procedure, QueueMethod, gives_rights};

/// The role of users who may use every tube, create tubes and drop them, and nothing else. It counts if `admin` owns it.
pub const EVERY_TUBE: &str = "lycosa_tubes";

/// Why a user may call a procedure, beside rights to its spaces.
#[derive(Debug, Clone, Copy, Default)]
pub struct Right {
    /// The caller needs the right to execute the procedure by its name. A program's function that calls the queue inside needs
    /// none.
    pub by_name: bool,
    /// The user was granted to execute the called function itself, so the spaces that it touches need no right of their own. A
    /// right to execute everything is not enough for that.
    pub granted: bool,
    /// The user has every tube ([`EVERY_TUBE`]).
    pub every_tube: bool,
}

impl Right {
    /// The right of a user to the procedure of a name; [`check_execute`] says whether there is one.
    #[must_use]
    pub fn by_name(store: &Store, user: UserId, procedure: &Procedure, name: &str) -> Self {
        let single = procedure.single_name(name);
        let granted = [Some(name), single.as_deref()];
        let granted = granted.into_iter().flatten().any(|name| store.is_granted_function(user, name));
        Self { by_name: true, granted, ..Self::inside(store, user, procedure) }
    }

    /// The right of a user inside a program's function.
    #[must_use]
    pub fn inside(store: &Store, user: UserId, procedure: &Procedure) -> Self {
        Self { every_tube: has_every_tube(store, user, procedure), ..Self::default() }
    }

    /// Whether the caller is trusted in a call of the procedure.
    #[inline]
    pub(crate) fn makes_trusted(self, caller: &Caller, procedure: &Procedure) -> bool {
        caller.is_trusted_for(Some(procedure)) || self.every_tube
    }
}

/// Refuses a caller who may not execute a procedure by its name. Who may put one task may put many: grants know only the Lua
/// module's functions. What the rule for `guest` allows ends with the rule: it gives no rights that outlast it.
///
/// # Errors
/// [`AccessDenied`](StoreError::AccessDenied).
pub fn check_execute(store: &Store, caller: &Caller, procedure: &Procedure, name: &str) -> StoreResult<()> {
    // These lists show each caller the tubes and sessions that the caller may look at.
    let is_for_all =
        matches!(procedure.queue_method(), Some(QueueMethod::Tubes | QueueMethod::Audit | QueueMethod::Jobs));
    if is_for_all
        || caller.is_trusted_for(Some(procedure))
        || has_every_tube(store, caller.effective, procedure)
    {
        return Ok(());
    }
    let may_execute =
        |name: &str| store.check_access(caller.effective, Object::Function(name), Access::EXECUTE);
    may_execute(name).or_else(|error| match procedure.single_name(name) {
        Some(single) if may_execute(&single).is_ok() => Ok(()),
        _ => Err(error),
    })
}

/// Whether the user may call the procedure because every tube is the user's: the procedure changes no rights and no configuration.
fn has_every_tube(store: &Store, user: UserId, procedure: &Procedure) -> bool {
    !gives_rights(procedure)
        && procedure.queue_method() != Some(QueueMethod::Cfg)
        && store.has_role(user, EVERY_TUBE, user::ADMIN)
}
