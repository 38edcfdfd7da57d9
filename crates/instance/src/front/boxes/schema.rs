//! `box.schema.user`, `box.schema.role` and `box.schema.func`: accounts and grants without Lua.

use std::time::{Duration, UNIX_EPOCH};

use lycosa_iproto::auth;
use lycosa_store::access::{Access, ObjectType};
use lycosa_store::ddl::{self, FunctionSpec, Grantee};
use lycosa_store::error::Error;
use lycosa_store::schema::UserKind;
use lycosa_store::{IteratorType, Object, Store, UserId, system, user};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::value::Value;

use super::Function;
use super::arguments::{Arguments, Options};
use crate::shard::admission::Growth;
use crate::shard::wire_error::{self, OnWire, illegal};
use crate::{Caller, Instance, Result};

impl Instance {
    /// Calls a function of `box.schema`; appends its values to `out` and returns how many they are.
    pub(super) fn box_schema(
        &mut self,
        caller: &Caller,
        function: Function,
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u32> {
        let arguments = Arguments::decode(usage(function), args)?;
        match function {
            Function::UserExists | Function::RoleExists | Function::FuncExists => {
                mp::write_bool(out, self.schema_exists(function, arguments.text(0)?));
                return Ok(1);
            }
            Function::UserInfo => {
                // Tarantool's function runs with its owner's rights and takes itself for that.
                let id = arguments.optional_text(0)?.map(|name| self.party(name, UserKind::User)).transpose();
                if id.as_ref().is_err()
                    || id.as_ref().is_ok_and(|id| id.is_some_and(|id| id != caller.effective))
                {
                    // Every user may execute it, and grants of other users name their tubes.
                    let users = Object::Space(system::USER);
                    self.shard.store().check_access(caller.effective, users, Access::READ).on_wire()?;
                }
                self.privileges_of(user::ADMIN, id?.unwrap_or(user::ADMIN))?.write(out);
                return Ok(1);
            }
            Function::RoleInfo => {
                let id = self.party(arguments.text(0)?, UserKind::Role)?;
                self.privileges_of(caller.effective, id)?.write(out);
                return Ok(1);
            }
            _ => {}
        }
        let timestamp = timestamp(self.shard.now());
        if let (Function::UserPasswd, Some(password), None) = (function, arguments.get(0), arguments.get(1)) {
            let password = password.as_str().ok_or_else(|| arguments.usage())?;
            return self.set_own_password(caller.user, password).map(|()| 0);
        }
        self.shard.data().transaction(growth_of(function), caller.effective, |store| {
            change(store, function, &arguments, &timestamp)
        })?;
        Ok(0)
    }

    /// A user may set its own password without any privilege.
    fn set_own_password(&mut self, user: UserId, password: &str) -> Result<()> {
        let name = self.user_name(user);
        let hash2 = auth::hash2(password.as_bytes());
        self.shard.data().transaction(Growth::Finishes, user::ADMIN, |store| {
            ddl::set_password(store, &name, hash2).on_wire()
        })
    }

    fn schema_exists(&self, function: Function, name: &str) -> bool {
        match function {
            Function::FuncExists => self.shard.store().function_by_name(name).is_some(),
            Function::RoleExists => self.party(name, UserKind::Role).is_ok(),
            _ => self.party(name, UserKind::User).is_ok(),
        }
    }

    /// The user, or the role, with that name.
    fn party(&self, name: &str, kind: UserKind) -> Result<UserId> {
        let found = self.shard.store().user_by_name(name).filter(|user| user.kind == kind);
        let missing = if kind == UserKind::User { Error::NoSuchUser } else { Error::NoSuchRole };
        found.map(|user| user.id).ok_or_else(|| wire_error::of_store(&missing(name.to_owned())))
    }

    /// The grants of a user or role that `viewer` may know: `[[privileges, object type, object name], …]`.
    fn privileges_of(&self, viewer: UserId, id: UserId) -> Result<Value> {
        let (key, mut list) = (Value::array([id]).encode(), Vec::new());
        let mut add = |tuple: &[u8]| list.extend(self.privilege_row(tuple));
        let (store, space) = (self.shard.store(), system::VPRIV);
        store.select(viewer, space, 0, IteratorType::Eq, &key, 0, u64::MAX, &mut add).on_wire()?;
        Ok(Value::Array(list))
    }

    /// A row of `_priv` for people.
    fn privilege_row(&self, tuple: &[u8]) -> Option<Value> {
        let mut reader = Reader::new(tuple);
        reader.array().ok()?;
        reader.skip().ok()?;
        reader.skip().ok()?;
        let kind = std::str::from_utf8(reader.str().ok()?).ok()?;
        let object = Value::read(&mut reader).ok()?;
        let mask = Access(u32::try_from(reader.uint().ok()?).ok()?);
        let names: Vec<_> = mask.names().collect();
        let object = match (ObjectType::parse(kind), object.as_u64()) {
            (Some(ObjectType::Universe), _) => Value::from(""),
            (Some(kind), Some(id)) => self.object_name(kind, id).map_or(object, Value::from),
            _ => object,
        };
        Some(Value::Array(vec![names.join(",").into(), kind.into(), object]))
    }

    fn object_name(&self, kind: ObjectType, id: u64) -> Option<String> {
        let (id, store) = (u32::try_from(id).ok()?, self.shard.store());
        Some(match kind {
            ObjectType::Space => store.space(id).ok()?.name().to_owned(),
            ObjectType::User | ObjectType::Role => store.user(id)?.name.clone(),
            ObjectType::Sequence => store.sequence(id)?.name.clone(),
            ObjectType::Function => store.functions().find(|function| function.id == id)?.name.clone(),
            ObjectType::Universe | ObjectType::Collation => return None,
        })
    }
}

/// The time as `_func` keeps it: `2026-01-31 23:59:59`, here in UTC.
fn timestamp(now: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_micros(now);
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', "")
}

fn usage(function: Function) -> &'static str {
    match function {
        Function::UserCreate => "box.schema.user.create(name[, {password = text, if_not_exists = true}])",
        Function::UserDrop => "box.schema.user.drop(name[, {if_exists = true}])",
        Function::UserExists => "box.schema.user.exists(name)",
        Function::UserPasswd => "box.schema.user.passwd([name,] password)",
        Function::UserGrant => {
            "box.schema.user.grant(user, privileges, object_type[, object_name[, {if_not_exists = true}]]) \
             or box.schema.user.grant(user, role)"
        }
        Function::UserRevoke => {
            "box.schema.user.revoke(user, privileges, object_type[, object_name[, {if_exists = true}]]) \
             or box.schema.user.revoke(user, role)"
        }
        Function::UserInfo => "box.schema.user.info([name])",
        Function::RoleCreate => "box.schema.role.create(name[, {if_not_exists = true}])",
        Function::RoleDrop => "box.schema.role.drop(name[, {if_exists = true}])",
        Function::RoleExists => "box.schema.role.exists(name)",
        Function::RoleGrant => {
            "box.schema.role.grant(role, privileges, object_type[, object_name[, {if_not_exists = true}]]) \
             or box.schema.role.grant(role, role)"
        }
        Function::RoleRevoke => {
            "box.schema.role.revoke(role, privileges, object_type[, object_name[, {if_exists = true}]]) \
             or box.schema.role.revoke(role, role)"
        }
        Function::RoleInfo => "box.schema.role.info(name)",
        Function::FuncCreate => {
            "box.schema.func.create(name[, {setuid = true, language = text, body = text, if_not_exists = true}])"
        }
        Function::FuncDrop => "box.schema.func.drop(name[, {if_exists = true}])",
        Function::FuncExists => "box.schema.func.exists(name)",
        _ => "",
    }
}

/// What the rows of a function add.
fn growth_of(function: Function) -> Growth {
    match function {
        Function::FuncCreate => Growth::Adds,
        Function::UserDrop | Function::RoleDrop | Function::UserRevoke | Function::RoleRevoke => {
            Growth::Shrinks
        }
        _ => Growth::Finishes,
    }
}

/// Carries out a function that changes accounts, grants or functions.
fn change(store: &mut Store, function: Function, arguments: &Arguments, timestamp: &str) -> Result<()> {
    let done = match function {
        Function::UserCreate => {
            let options = arguments.options(1, &["password", "if_not_exists"])?;
            let hash2 = options.text("password")?.map(|password| auth::hash2(password.as_bytes()));
            ddl::create_user(store, arguments.text(0)?, hash2, options.flag("if_not_exists")?)
        }
        Function::UserDrop => ddl::drop_user(store, arguments.text(0)?, if_exists(arguments, 1)?),
        Function::UserPasswd => {
            ddl::set_password(store, arguments.text(0)?, auth::hash2(arguments.text(1)?.as_bytes()))
        }
        Function::RoleCreate => ddl::create_role(store, arguments.text(0)?, if_not_exists(arguments, 1)?),
        Function::RoleDrop => ddl::drop_role(store, arguments.text(0)?, if_exists(arguments, 1)?),
        Function::UserGrant | Function::RoleGrant | Function::UserRevoke | Function::RoleRevoke => {
            let is_grant = matches!(function, Function::UserGrant | Function::RoleGrant);
            let lenient = if is_grant { "if_not_exists" } else { "if_exists" };
            let (options, Grant { privileges, object_type, object_name }) = granted(arguments, lenient)?;
            let name = arguments.text(0)?;
            check_grantable(store, function, name, privileges)?;
            let (grantee, lenient) = (grantee(function, name), options.flag(lenient)?);
            if is_grant {
                ddl::grant(store, grantee, privileges, object_type, object_name, lenient)
            } else {
                ddl::revoke(store, grantee, privileges, object_type, object_name, lenient)
            }
        }
        Function::FuncCreate => {
            let options = arguments.options(1, &["setuid", "language", "body", "if_not_exists"])?;
            let spec = FunctionSpec {
                name: arguments.text(0)?,
                setuid: options.flag("setuid")?,
                language: options.text("language")?.unwrap_or("LUA"),
                body: options.text("body")?.unwrap_or(""),
            };
            ddl::create_function(store, &spec, timestamp, options.flag("if_not_exists")?)
        }
        Function::FuncDrop => ddl::drop_function(store, arguments.text(0)?, if_exists(arguments, 1)?),
        _ => return Err(illegal("not a function of box.schema")),
    };
    done.map(drop).on_wire()
}

fn if_exists(arguments: &Arguments, position: usize) -> Result<bool> {
    arguments.options(position, &["if_exists"])?.flag("if_exists")
}

fn if_not_exists(arguments: &Arguments, position: usize) -> Result<bool> {
    arguments.options(position, &["if_not_exists"])?.flag("if_not_exists")
}

/// Who receives or loses a privilege: functions of users do not find roles, nor the other way round.
fn grantee(function: Function, name: &str) -> Grantee<'_> {
    let is_role = matches!(function, Function::RoleGrant | Function::RoleRevoke);
    if is_role { Grantee::Role(name) } else { Grantee::User(name) }
}

/// A role has no rights of a session: whether a user may log in and use anything is the user's own.
fn check_grantable(store: &Store, function: Function, name: &str, privileges: &str) -> Result<()> {
    let is_about_role = matches!(function, Function::RoleGrant | Function::RoleRevoke);
    let is_role = store.user_by_name(name).is_some_and(|user| user.kind == UserKind::Role);
    let privileges = privileges.to_ascii_lowercase();
    if is_about_role && is_role && ["session", "usage"].iter().any(|own| privileges.contains(own)) {
        let reason = "system privilege can not be granted to role".to_owned();
        return Err(wire_error::of_store(&Error::Grant(reason)));
    }
    Ok(())
}

struct Grant<'a> {
    privileges: &'a str,
    object_type: &'a str,
    object_name: &'a str,
}

/// The second to fifth argument of a grant: privileges on an object, or a role.
fn granted<'a>(arguments: &'a Arguments, lenient: &'static str) -> Result<(Options<'a>, Grant<'a>)> {
    let first = arguments.text(1)?;
    // Programs mix the two up, and Tarantool passes over the one that means nothing.
    let other = if lenient == "if_exists" { "if_not_exists" } else { "if_exists" };
    let options = arguments.options(4, &[lenient, other, "grantor"])?;
    let grant = match arguments.optional_text(2)? {
        None => Grant { privileges: "execute", object_type: "role", object_name: first },
        Some(object_type) => {
            let object_name = arguments.optional_text(3)?.unwrap_or("");
            Grant { privileges: first, object_type, object_name }
        }
    };
    Ok((options, grant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_calendar_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (4_102_444_800, "2100-01-01 00:00:00"),
        ] {
            assert_eq!(timestamp(seconds * 1_000_000), text);
        }
    }
}
