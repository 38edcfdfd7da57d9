//! Rights: the privileges that a method needs, and `grant`, which gives them to a user.
//!
//! The Lua module runs with the rights of its caller. So there a user who may call a function must also be able to
//! read and write the spaces that it touches, the spaces of all sessions and owners included. A native method runs
//! as the administrator. It needs the right to the function itself ([`granted`](crate::Right::granted)), or the right to do with the
//! tube's own space what it does; never one on the queue's spaces, where such a right counts for nothing
//! ([`crate::system`]). The right to call the function by its name is the instance's to check.

use lycosa_tuple::mp;
use std::time::{Duration, UNIX_EPOCH};

use lycosa_store::access::ObjectType;
use lycosa_store::ddl::{self, FunctionSpec, Grantee as Party};
use lycosa_store::{
    Access, Error as StoreError, IteratorType, Object, SpaceId, Store, UserId, UserKind, user,
};

use crate::arguments::{Table, string};
use crate::command::{Call, QueueCall};
use crate::error::{Error, Result, StoreResult};
use crate::lua_text;
use crate::procedure::TubeMethod;
use crate::right::EVERY_TUBE;
use crate::system::{QUEUE, rows};
use crate::tube::handle::TubeIndex;
use crate::tube_row::{BUFFER_SUFFIX, TubeRow};
use crate::turn::{GrantsTurn, TubeTurn, Turn};
use crate::{Answer, Caller};

const READ_WRITE: Access = Access(Access::READ.0 | Access::WRITE.0);

/// The access to the tube's space by which a method may be called without a right to the function itself. Nothing for
/// methods whose statements run with the caller's own rights.
const fn needs(method: TubeMethod) -> Access {
    match method {
        TubeMethod::Peek
        | TubeMethod::List
        | TubeMethod::Explain
        | TubeMethod::Find
        | TubeMethod::Count
        | TubeMethod::Job
        | TubeMethod::Jobs => Access::READ,
        TubeMethod::Truncate => Access::WRITE,
        TubeMethod::Drop | TubeMethod::Grant | TubeMethod::GrantRole => Access::NONE,
        _ => READ_WRITE,
    }
}

/// Functions of a tube that `call = true` grants. Those for many tasks go with those for one ([`TubeMethod::single`]).
const GRANTED_METHODS: [&str; 8] = ["put", "take", "touch", "ack", "release", "peek", "bury", "kick"];

/// The name that means every tube in [`grant_tubes`] and [`revoke_tubes`].
pub const ALL_TUBES: &str = "*";

/// The grant of older versions on the universe, in place of [`EVERY_TUBE`]. It made an administrator of the user.
const FORMER: &str = "read,write,execute,create,drop,alter";
const FORMER_ACCESS: Access = Access(1 | 2 | 4 | 32 | 64 | 128);

/// The grant of every user on the universe, needed to log in and to do anything at all.
const OF_EVERY_USER: Access = Access(Access::SESSION.0 | Access::USAGE.0);

/// Gives a user or role every tube, those to come included. Rights to everything that an older version has granted in its
/// place are taken away; returns whether there were any. In the open transaction, as `admin`.
///
/// # Errors
/// There is no such user or role; the name of the role [`EVERY_TUBE`] is taken by something that `admin` does not own.
pub fn grant_tubes(store: &mut Store, grantee: &str) -> StoreResult<bool> {
    let id = user_id(store, grantee)?;
    ddl::create_role(store, EVERY_TUBE, true)?;
    let role = store.user_by_name(EVERY_TUBE).filter(|role| role.kind == UserKind::Role);
    if role.is_none_or(|role| role.owner != user::ADMIN) {
        let reason = format!("the name is the queue's own for the role of every tube: rename '{EVERY_TUBE}'");
        return Err(StoreError::CreateRole { name: EVERY_TUBE.to_owned(), reason });
    }
    for space in tube_spaces(store)? {
        open_to_role(store, &space)?;
    }
    ddl::grant(store, Party::Any(grantee), "execute", "role", EVERY_TUBE, true)?;
    take_former(store, grantee, id)
}

/// Takes away what [`grant_tubes`] gives, and what older versions gave in its place. Whether there was any of it.
///
/// # Errors
/// There is no such user or role.
pub fn revoke_tubes(store: &mut Store, grantee: &str) -> StoreResult<bool> {
    let id = user_id(store, grantee)?;
    let role = store.user_by_name(EVERY_TUBE).map(|role| role.id);
    let had_role = role.is_some() && !store.granted_access(id, ObjectType::Role, role).is_empty();
    if had_role {
        ddl::revoke(store, Party::Any(grantee), "execute", "role", EVERY_TUBE, true)?;
    }
    Ok(take_former(store, grantee, id)? || had_role)
}

fn user_id(store: &Store, name: &str) -> StoreResult<UserId> {
    let user = store.user_by_name(name).ok_or_else(|| StoreError::NoSuchUser(name.to_owned()))?;
    Ok(user.id)
}

/// Revokes rights to everything that equal [`FORMER`].
fn take_former(store: &mut Store, grantee: &str, id: UserId) -> StoreResult<bool> {
    let own = store.granted_access(id, ObjectType::Universe, Some(0));
    if own & !OF_EVERY_USER != FORMER_ACCESS {
        return Ok(false);
    }
    ddl::revoke(store, Party::Any(grantee), FORMER, "universe", "", true)?;
    Ok(true)
}

/// Names of the spaces of all tubes, ready buffers included.
fn tube_spaces(store: &Store) -> StoreResult<Vec<String>> {
    let Some(queue) = QUEUE.known(store, 0) else { return Ok(Vec::new()) };
    let mut names = vec![];
    for row in rows(store, queue, 0, IteratorType::All, &[0x90])? {
        if let Some(row) = TubeRow::read(&row) {
            names.extend([row.space.to_owned(), format!("{}{BUFFER_SUFFIX}", row.space)]);
        }
    }
    names.retain(|name| store.space_by_name(name).is_some());
    Ok(names)
}

/// Lets the users of [`EVERY_TUBE`] read and write a tube's space, as `grant` lets those of one tube.
fn open_to_role(store: &mut Store, space: &str) -> StoreResult<()> {
    let role = Party::Role(EVERY_TUBE);
    if store.space_by_name(QUEUE.name).is_some() {
        ddl::grant(store, role, "read", "space", QUEUE.name, true)?;
    }
    ddl::grant(store, role, "read,write", "space", space, true)
}

/// The grants of `grant` beside those on spaces.
struct Granted<'a> {
    /// The prefix of the functions' names.
    prefix: &'a str,
    call: bool,
    truncate: bool,
}

/// The user or role that is granted something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grantee {
    User,
    Role,
}

impl TubeTurn<'_> {
    /// Refuses a method that the caller has not the rights for. `granted`: see [`Right`](crate::Right).
    pub(crate) fn check_access(&self, caller: &Caller, method: TubeMethod, granted: bool) -> Result<()> {
        if caller.trusted || caller.effective == user::ADMIN {
            return Ok(());
        }
        let access = needs(method);
        if granted || access.is_empty() {
            return Ok(());
        }
        Ok(self.store.check_access(caller.effective, Object::Space(self.tube.space), access)?)
    }

    /// Lets the users of [`EVERY_TUBE`] use a new tube, in the transaction that makes it.
    pub(crate) fn open_to_every_tube(&mut self) -> Result<()> {
        let role = self.store.user_by_name(EVERY_TUBE);
        if role.is_none_or(|role| role.kind != UserKind::Role || role.owner != user::ADMIN) {
            return Ok(());
        }
        for space in std::iter::once(self.tube.space).chain(self.tube.buffer) {
            let name = self.store.space(space)?.name().to_owned();
            open_to_role(self.store, &name)?;
        }
        Ok(())
    }

    /// Takes away what `grant` has given on the tube. The spaces and functions of all tubes go with the last one. Whether there
    /// was anything.
    fn revoke(&mut self, grantee: &str, keeps_others: bool) -> Result<bool> {
        let name = self.tube.name.clone();
        let own = std::iter::once(self.tube.space).chain(self.tube.buffer);
        let own = own.map(|space| Ok(self.store.space(space)?.name().to_owned()));
        let own: Vec<String> = own.collect::<Result<_>>()?;
        let all = self.granted_spaces()?;
        let id = user_id(self.store, grantee)?;
        let methods = GRANTED_METHODS.iter().chain(&["delete", "truncate"]);
        let mut functions: Vec<String> =
            methods.map(|method| format!("queue.tube.{name}:{method}")).collect();
        if !keeps_others {
            functions.extend(["queue.identify".to_owned(), "queue.statistics".to_owned()]);
        }
        let mut had_any = false;
        for function in functions {
            let known = self.store.function_by_name(&function).map(|function| function.id);
            let granted = self.store.granted_access(id, ObjectType::Function, known);
            if known.is_some() && granted.contains(Access::EXECUTE) {
                ddl::revoke(self.store, Party::Any(grantee), "execute", "function", &function, true)?;
                had_any = true;
            }
        }
        for (space, privileges) in all {
            let is_own = own.contains(&space);
            if is_own || !keeps_others {
                let space_id = self.store.space_by_name(&space).map(lycosa_store::Space::id);
                had_any |= is_own && !self.store.granted_access(id, ObjectType::Space, space_id).is_empty();
                ddl::revoke(self.store, Party::Any(grantee), privileges, "space", &space, true)?;
            }
        }
        Ok(had_any)
    }

    /// Names of the spaces that a user of the tube needs, and what for.
    fn granted_spaces(&self) -> Result<Vec<(String, &'static str)>> {
        let spaces = self.common.spaces;
        let written =
            [spaces.consumers, spaces.taken, spaces.session_ids, spaces.shared_sessions, self.tube.space];
        let all = [(spaces.queue, "read")]
            .into_iter()
            .chain(written.into_iter().chain(self.tube.buffer).map(|space| (space, "read,write")));
        all.map(|(space, privileges)| Ok((self.store.space(space)?.name().to_owned(), privileges))).collect()
    }
}

/// Refuses a caller who may not read a space.
pub(crate) fn check_readable(store: &Store, caller: &Caller, space: SpaceId) -> Result<()> {
    if caller.trusted {
        return Ok(());
    }
    Ok(store.check_access(caller.effective, Object::Space(space), Access::READ)?)
}

impl GrantsTurn<'_> {
    /// `queue.grant(user, tube)` and `queue.revoke(user, tube)` for `admin`; `"*"` is every tube. `grant` answers whether rights
    /// to everything were taken away that an older version had granted, `revoke` whether there was anything to take.
    pub(crate) fn by_name(
        &mut self,
        call: QueueCall<'_>,
        is_grant: bool,
        out: &mut Vec<u8>,
    ) -> Result<Answer> {
        let QueueCall { caller, arguments } = call;
        let method = if is_grant { "queue.grant" } else { "queue.revoke" };
        if caller.effective != user::ADMIN {
            let user =
                self.turn.store.user(caller.effective).map_or_else(String::new, |user| user.name.clone());
            let (access, object_type, object_name) =
                (Access::EXECUTE, ObjectType::Function, method.to_owned());
            return Err(StoreError::AccessDenied { access, object_type, object_name, user }.into());
        }
        let text = |place| arguments.get(place).and_then(string).and_then(|text| str::from_utf8(text).ok());
        let (Some(grantee), Some(tube)) = (text(0), text(1)) else {
            return Err(Error::Usage(method));
        };
        let answer = if tube == ALL_TUBES {
            self.turn.transact_as(user::ADMIN, |turn| {
                let change = if is_grant { grant_tubes } else { revoke_tubes };
                Ok(change(turn.store, grantee)?)
            })?
        } else {
            let handle = self.turn.tubes.by_name(tube).ok_or(Error::TubeNotFound)?;
            if is_grant {
                let granted = Granted { prefix: "queue.tube", call: true, truncate: true };
                self.grant_one(user::ADMIN, handle.index, grantee, &granted)?;
                false
            } else {
                let spaces: Vec<SpaceId> = self.turn.tubes.iter().map(|tube| tube.space).collect();
                let own = self.turn.tube(handle.index)?.tube.space;
                let id = user_id(self.turn.store, grantee)?;
                let keeps_others = spaces.into_iter().filter(|space| *space != own).any(|space| {
                    !self.turn.store.granted_access(id, ObjectType::Space, Some(space)).is_empty()
                });
                self.turn
                    .transact_as(user::ADMIN, |turn| turn.tube(handle.index)?.revoke(grantee, keeps_others))?
            }
        };
        mp::write_bool(out, answer);
        Ok(Answer::one())
    }

    /// `grant(user[, {call, truncate, prefix}])`, `grant_role(role[, …])`
    pub(crate) fn grant(&mut self, call: &Call<'_>, grantee: Grantee) -> Result<Answer> {
        let Call { index, arguments, caller, .. } = *call;
        let tube = self.turn.tube(index)?;
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
        let granted = Granted { prefix: &prefix, call: is_set(b"call"), truncate: is_set(b"truncate") };
        self.grant_one(caller.acting(), index, &name, &granted)?;
        Ok(Answer::none())
    }

    fn grant_one(
        &mut self,
        acting: UserId,
        index: TubeIndex,
        grantee: &str,
        granted: &Granted<'_>,
    ) -> Result<()> {
        let tube = self.turn.tube(index)?;
        let (prefix, name) = (granted.prefix, &tube.tube.name);
        let mut functions = Vec::new();
        if granted.call {
            functions.extend(["queue.identify".to_owned(), "queue.statistics".to_owned()]);
            let methods = GRANTED_METHODS.iter().chain(&["delete"]);
            functions.extend(methods.map(|method| format!("{prefix}.{name}:{method}")));
        }
        if granted.truncate {
            functions.push(format!("{prefix}.{name}:truncate"));
        }
        let spaces = tube.granted_spaces()?;
        self.turn.transact_as(acting, |Turn { store, now, .. }| {
            for (space, privileges) in &spaces {
                ddl::grant(store, grantee, privileges, "space", space, true)?;
            }
            for function in &functions {
                let spec = FunctionSpec { name: function, setuid: false, language: "LUA", body: "" };
                // An administrator grants on a full server too; other users choose the prefix, and so the number of functions.
                let former = store.lift_limit(acting == user::ADMIN);
                let created = ddl::create_function(store, &spec, &date_and_time(*now), true);
                store.lift_limit(former);
                created?;
                ddl::grant(store, grantee, "execute", "function", function, true)?;
            }
            Ok(())
        })
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
