//! Authentication: the AUTH of a connection, which is answered at once or at the pace of its place.

use super::{Delayed, Outcome, WaitingLine, shown};
use crate::Result;
use crate::front::Front;
use crate::front::caller::FrameReply;
use crate::shard::Shard;
use lycosa_iproto::auth::{self, Hash};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::greeting::SALT_SIZE;
use lycosa_iproto::request::AuthTuple;
use lycosa_store::{Access, UserId, UserKind, user};

/// Longest name of a user, in bytes. A client may send a longer one, as long as a frame.
const MAX_NAME: usize = 65_000;

impl Front {
    /// AUTH: finds out who it is and answers, now or later.
    pub(crate) fn authenticate(
        &mut self,
        shard: &Shard,
        to: FrameReply,
        name: &[u8],
        scramble: AuthTuple<'_>,
    ) -> Result<()> {
        let Some(connection) = self.connections.get(to.slot) else { return Ok(()) };
        let (id, salt, peer) = (connection.id, connection.salt, connection.origin.peer.clone());
        let line = if connection.has_failed_login { WaitingLine::Failed } else { WaitingLine::New };
        let now = shard.now();
        let Some(delay) = self.logins.delay(&peer, name, line, now) else {
            self.counts.failed_logins += 1;
            return Err(too_many_waiting(name));
        };
        let outcome = match self.identify(shard, name, scramble, &salt)? {
            Some(user) => Ok(user),
            None => Err(wrong_credentials(name)),
        };
        if outcome.is_err() {
            self.counts.failed_logins += 1;
            self.logins.failed(&peer, name, now);
            if let Some(connection) = self.connections.get_mut(to.slot) {
                connection.has_failed_login = true;
            }
        }
        if delay == 0 {
            return self.conclude(shard, to, &shown(name), outcome);
        }
        if let Some(connection) = self.connections.get_mut(to.slot) {
            connection.is_logging_in = true;
        }
        let delayed = Delayed { to, connection: id, name: shown(name), outcome };
        self.logins.hold(now + delay, delayed);
        Ok(())
    }

    /// The user with that name and password, if there is one. The look-up takes the same time without such a user.
    fn identify(
        &self,
        shard: &Shard,
        name: &[u8],
        scramble: AuthTuple<'_>,
        salt: &[u8; SALT_SIZE],
    ) -> Result<Option<UserId>> {
        let name = if name.len() <= MAX_NAME { name } else { &[] };
        let known = std::str::from_utf8(name).ok().and_then(|name| shard.store().user_by_name(name));
        let account = known.filter(|account| account.kind == UserKind::User);
        if matches!(scramble, AuthTuple::Empty) && account.is_some_and(|account| account.id == user::GUEST) {
            return Ok(Some(user::GUEST));
        }
        let scramble: &Hash =
            scramble.scramble().map_err(|reason| ErrorObject::client(ErrorCode::InvalidMsgpack, reason))?;
        let hash2 = account.and_then(|account| account.hash2);
        let is_right = auth::check(scramble, salt, &hash2.unwrap_or_default());
        Ok(account.filter(|_| is_right && hash2.is_some()).map(|account| account.id))
    }

    /// Answers a log-in, unless triggers are to run first.
    fn conclude(&mut self, shard: &Shard, to: FrameReply, name: &str, outcome: Outcome) -> Result<()> {
        if self.hold_login(to, name, &outcome) { Ok(()) } else { self.admit_as(shard, to, outcome) }
    }

    pub(crate) fn admit_as(&mut self, shard: &Shard, to: FrameReply, outcome: Outcome) -> Result<()> {
        let user = outcome?;
        shard.check_universe(user, Access::SESSION)?;
        if let Some(connection) = self.connections.get_mut(to.slot) {
            connection.user = user;
            connection.forget_names();
        }
        self.reply_empty(shard, to)
    }

    /// Answers the log-ins whose delay is over. When the next one is due.
    pub(crate) fn finish_logins(&mut self, shard: &Shard) -> Option<u64> {
        let now = shard.now();
        if let Some(count) = self.logins.sampled.overdue(now) {
            self.logins.log(format!("{count} more log-ins failed"));
        }
        while let Some(Delayed { to, connection, name, outcome }) = self.logins.take_due(now) {
            let Some(waiting) = self.connections.get_mut(to.slot).filter(|waiting| waiting.id == connection)
            else {
                continue;
            };
            waiting.is_logging_in = false;
            if let Err(error) = self.conclude(shard, to, &name, outcome) {
                self.reply_error(shard, to, &error);
            }
        }
        self.logins.next()
    }
}

/// The error for a wrong user, a wrong password, or both.
pub(super) fn wrong_credentials(name: &[u8]) -> ErrorObject {
    let message = format!("Incorrect password supplied for user '{}'", shown(name));
    ErrorObject::client(ErrorCode::PasswordMismatch, message)
}

/// The error for a log-in that would wait too long. It says nothing of the password.
fn too_many_waiting(name: &[u8]) -> ErrorObject {
    let message = format!(
        "Too many log-ins as user '{}' from this address have failed, and others wait: try again in a few seconds",
        shown(name)
    );
    ErrorObject::client(ErrorCode::PasswordMismatch, message)
}
