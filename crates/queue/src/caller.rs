//! Callers: on whose behalf something is done, and where its answers go.
//!
//! The connections, fibers and HTTP requests of an instance have the same [`Caller`], and so has the instance itself. The rule
//! for trusted callers is [`Caller::is_trusted_for`].

use lycosa_store::{UserId, user};

use crate::procedure::{Procedure, gives_rights};

/// What stands behind a caller: where answers go that come later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerKind {
    /// A connection: its answers are replies.
    Connection,
    /// A fiber of a program.
    Fiber,
    /// A request over HTTP.
    Http,
    /// The instance itself.
    Internal,
}

/// The number of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u64);

/// On whose behalf something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// What stands behind it.
    pub kind: CallerKind,
    /// Number of its session, as `box.session.id` shows it, never used again for another one. Tasks that it takes belong to the
    /// queue session of this one.
    pub session: u64,
    /// The user that has logged in.
    pub user: UserId,
    /// Whose rights count: another user inside a function that runs with its owner's rights.
    pub effective: UserId,
    /// The rights to the queue's functions and spaces are not checked, see [`Self::is_trusted_for`].
    pub trusted: bool,
    /// Its calls may be parked. If not, a call that would have to wait is refused with [`Error::MayNotWait`](crate::Error).
    pub may_wait: bool,
    /// Its calls are admitted by this token.
    pub token: Option<TokenId>,
}

impl Caller {
    /// The instance itself, as `admin`. It does not wait.
    #[must_use]
    pub const fn internal() -> Self {
        Self {
            kind: CallerKind::Internal,
            session: 0,
            user: user::ADMIN,
            effective: user::ADMIN,
            trusted: true,
            may_wait: false,
            token: None,
        }
    }

    /// The same session and rights, for a fiber that acts on the caller's behalf. It may wait.
    #[must_use]
    pub const fn in_fiber(self) -> Self {
        Self { kind: CallerKind::Fiber, may_wait: true, ..self }
    }

    /// The same caller with the rights of another user.
    #[must_use]
    pub const fn acting_as(self, effective: UserId) -> Self {
        Self { effective, trusted: false, ..self }
    }

    /// Whether no rights are checked when the caller calls a function of the queue. The rule for `guest` reaches no procedure
    /// that writes privileges.
    #[must_use]
    #[inline]
    pub fn is_trusted_for(&self, procedure: Option<&Procedure>) -> bool {
        self.trusted && !(self.effective == user::GUEST && procedure.is_some_and(gives_rights))
    }

    /// Who acts in statements that need the caller's own rights.
    pub(crate) fn acting(&self) -> UserId {
        if self.trusted { user::ADMIN } else { self.effective }
    }

    pub(crate) const fn client(&self) -> Client {
        Client { connection: self.session, user: self.effective }
    }
}

/// Whose connection something is done for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) connection: u64,
    pub(crate) user: UserId,
}

/// How logs, lists and the audit log name the callers of a connection that act as a user and are someone else.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) name: Box<str>,
    /// The name of the token, and its role.
    pub(crate) token: [Box<str>; 2],
}
