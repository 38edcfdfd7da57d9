//! Rights: what a user needs for a method, and `grant`, which gives it to him.
//!
//! The Lua module runs with the rights of its caller. So there a user who may call a function must also be able to
//! read and write the spaces that it touches, those of everybody's sessions and owners included. A native method runs
//! as the administrator. It needs the right to the function itself ([`Caller::granted`]), or the right to do with the
//! tube's own space what it does; never one on the queue's spaces, where such a right counts for nothing
//! ([`crate::system`]). The right to call the function by its name is the instance's to check.

use std::time::{Duration, UNIX_EPOCH};

use lycosa_store::ddl::{self, FunctionSpec};
use lycosa_store::{Access, Error as StoreError, Object, SpaceId, UserId, UserKind, user};

use crate::arguments::{Table, string};
use crate::error::Error;
use crate::lua_text;
use crate::procedure::{Call, TubeMethod};
use crate::turn::{TubeTurn, Turn};
use crate::{Answer, Caller};

const READ_WRITE: Access = Access(Access::READ.0 | Access::WRITE.0);

/// The access to the tube's space by which a method may be called without a right to the function itself. Nothing for
/// methods whose statements run with the caller's own rights.
const fn needs(method: TubeMethod) -> Access {
    match method {
        TubeMethod::Peek | TubeMethod::List => Access::READ,
        TubeMethod::Truncate => Access::WRITE,
        TubeMethod::Drop | TubeMethod::Grant | TubeMethod::GrantRole => Access::NONE,
        _ => READ_WRITE,
    }
}

/// Functions of a tube that `call = true` grants. Those for many tasks go with those for one ([`TubeMethod::single`]).
const GRANTED_METHODS: [&str; 8] = ["put", "take", "touch", "ack", "release", "peek", "bury", "kick"];

/// Whom `grant` is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grantee {
    User,
    Role,
}

impl Caller {
    /// Who acts in statements that need the caller's own rights.
    pub(crate) fn acting(&self) -> UserId {
        if self.trusted { user::ADMIN } else { self.user }
    }
}

impl TubeTurn<'_> {
    /// Refuses a method that the caller has not the rights for.
    pub(crate) fn check_access(&self, caller: &Caller, method: TubeMethod) -> Result<(), Error> {
        if caller.trusted || caller.user == user::ADMIN {
            return Ok(());
        }
        let access = needs(method);
        if caller.granted || access.is_empty() {
            return Ok(());
        }
        Ok(self.store.check_access(caller.user, Object::Space(self.tube.space), access)?)
    }

    /// Names of the spaces that a user of the tube needs, and what for.
    fn granted_spaces(&self) -> Result<Vec<(String, &'static str)>, Error> {
        let spaces = self.common.spaces;
        let written =
            [spaces.consumers, spaces.taken, spaces.session_ids, spaces.shared_sessions, self.tube.space];
        let all = [(spaces.queue, "read")]
            .into_iter()
            .chain(written.into_iter().chain(self.tube.buffer).map(|space| (space, "read,write")));
        all.map(|(space, privileges)| Ok((self.store.space(space)?.name().to_owned(), privileges))).collect()
    }
}

impl Turn<'_> {
    /// Refuses a caller who may not read a space.
    pub(crate) fn check_readable(&self, caller: &Caller, space: SpaceId) -> Result<(), Error> {
        if caller.trusted {
            return Ok(());
        }
        Ok(self.store.check_access(caller.user, Object::Space(space), Access::READ)?)
    }

    /// `grant(user[, {call, truncate, prefix}])`, `grant_role(role[, …])`
    pub(crate) fn grant(&mut self, call: &Call<'_>, grantee: Grantee) -> Result<Answer, Error> {
        let Call { index, arguments, caller, .. } = *call;
        let tube = self.tube(index)?;
        let name = lua_text::text(arguments.get(0));
        let known = tube.store.user_by_name(&name).map(|user| user.kind);
        match grantee {
            Grantee::User if known != Some(UserKind::User) => return Err(StoreError::NoSuchUser(name).into()),
            Grantee::Role if known != Some(UserKind::Role) => return Err(StoreError::NoSuchRole(name).into()),
            _ => {}
        }
        let options = Table::parse(arguments.get(1))?;
        let is_set = |option: &[u8]| options.clone().get(option).is_some_and(|value| value != [0xc2]);
        let prefix = options.clone().get(b"prefix").and_then(string);
        let prefix = prefix.map_or("queue.tube".into(), String::from_utf8_lossy);
        let mut functions = Vec::new();
        if is_set(b"call") {
            functions.extend(["queue.identify".to_owned(), "queue.statistics".to_owned()]);
            let methods = GRANTED_METHODS.iter().chain(&["delete"]);
            functions.extend(methods.map(|method| format!("{prefix}.{}:{method}", tube.tube.name)));
        }
        if is_set(b"truncate") {
            functions.push(format!("{prefix}.{}:truncate", tube.tube.name));
        }
        let spaces = tube.granted_spaces()?;
        self.transact_as(caller.acting(), |Turn { store, now, .. }| {
            for (space, privileges) in &spaces {
                ddl::grant(store, &name, privileges, "space", space, true)?;
            }
            for function in &functions {
                let spec = FunctionSpec { name: function, setuid: false, language: "LUA", body: "" };
                ddl::create_function(store, &spec, &date_and_time(*now), true)?;
                ddl::grant(store, &name, "execute", "function", function, true)?;
            }
            Ok(())
        })?;
        Ok(Answer::none())
    }
}

/// A time as `_func` stores it: `2026-11-20 11:03:56`, UTC. `now` is in µs since the epoch.
fn date_and_time(now: u64) -> String {
    let text = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_micros(now)).to_string();
    text.trim_end_matches('Z').replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        assert_eq!(date_and_time(0), "1970-01-01 00:00:00");
        assert_eq!(date_and_time(951_782_400_000_000), "2000-02-29 00:00:00");
        assert_eq!(date_and_time(1_795_172_636_000_000), "2026-11-20 11:03:56");
        assert_eq!(date_and_time(1_798_761_599_999_999), "2026-12-31 23:59:59");
    }
}
