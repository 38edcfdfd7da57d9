//! Privileges: grant, revoke.

use super::row::RowWriter;
use super::{acting_user, delete, replace, rows_of, whole};
use crate::access::{Access, ObjectType};
use crate::error::Error;
use crate::schema::row::Row;
use crate::{Store, User, UserId, UserKind, system};

/// Who receives or loses a privilege, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grantee<'a> {
    /// A user: `box.schema.user.grant`.
    User(&'a str),
    /// A role: `box.schema.role.grant`.
    Role(&'a str),
    /// Whichever has the name.
    Any(&'a str),
}

impl<'a> From<&'a str> for Grantee<'a> {
    fn from(name: &'a str) -> Self {
        Self::Any(name)
    }
}

impl<'a> From<&'a String> for Grantee<'a> {
    fn from(name: &'a String) -> Self {
        Self::Any(name)
    }
}

impl Grantee<'_> {
    fn resolve(self, store: &Store) -> Result<&User, Error> {
        let (name, kind, missing): (_, _, fn(String) -> Error) = match self {
            Self::User(name) => (name, Some(UserKind::User), Error::NoSuchUser),
            Self::Role(name) => (name, Some(UserKind::Role), Error::NoSuchRole),
            Self::Any(name) => (name, None, Error::NoSuchUser),
        };
        let found = store.user_by_name(name).filter(|user| kind.is_none_or(|kind| kind == user.kind));
        found.ok_or_else(|| missing(name.to_owned()))
    }
}

/// What can be granted on which kind of object.
fn grantable(kind: ObjectType) -> Access {
    let objects = Access::CREATE | Access::DROP;
    match kind {
        ObjectType::Universe => Access(0x1fff),
        ObjectType::Space => Access(0x1fff & !Access::SESSION.0),
        ObjectType::Sequence => objects | Access::READ | Access::WRITE | Access::USAGE | Access::ALTER,
        ObjectType::Function | ObjectType::Role => objects | Access::EXECUTE | Access::USAGE,
        ObjectType::User => objects | Access::ALTER,
        ObjectType::Collation => Access::NONE,
    }
}

/// What a grant is about, resolved.
struct Granted {
    kind: ObjectType,
    /// `None`: all objects of the kind.
    id: Option<u32>,
    access: Access,
}

impl Granted {
    fn resolve(store: &Store, privileges: &str, object_type: &str, object_name: &str) -> Result<Self, Error> {
        let all = [
            ObjectType::Universe,
            ObjectType::Space,
            ObjectType::Function,
            ObjectType::User,
            ObjectType::Role,
            ObjectType::Sequence,
        ];
        let kind = all.into_iter().find(|kind| kind.name() == object_type);
        let kind = kind.ok_or_else(|| Error::UnknownSchemaObject(object_type.to_owned()))?;
        let mut access = Access::NONE;
        for name in privileges.split(',').map(str::trim) {
            let privilege = Access::parse(&name.to_ascii_lowercase());
            let privilege = privilege.filter(|&privilege| grantable(kind).contains(privilege));
            access |= privilege.ok_or_else(|| Error::UnsupportedPriv {
                object_type: object_type.to_owned(),
                privilege: privileges.to_owned(),
            })?;
        }
        let party =
            |wanted| store.user_by_name(object_name).filter(|user| user.kind == wanted).map(|user| user.id);
        let name = || object_name.to_owned();
        let id = match kind {
            ObjectType::Universe => Ok(0),
            _ if object_name.is_empty() => return Ok(Self { kind, id: None, access }),
            ObjectType::Space => match (store.space_by_name(object_name), object_name.parse()) {
                (Some(space), _) => Ok(space.id()),
                (None, Ok(id)) if store.space(id).is_ok() => Ok(id),
                _ => Err(Error::NoSuchSpace(name())),
            },
            ObjectType::Function => {
                let function = store.function_by_name(object_name);
                function.map(|function| function.id).ok_or_else(|| Error::NoSuchFunction(name()))
            }
            ObjectType::Sequence => {
                let sequence = store.sequence_by_name(object_name);
                sequence.map(|sequence| sequence.id).ok_or_else(|| Error::NoSuchSequence(name()))
            }
            ObjectType::Role => party(UserKind::Role).ok_or_else(|| Error::NoSuchRole(name())),
            ObjectType::User => party(UserKind::User).ok_or_else(|| Error::NoSuchUser(name())),
            ObjectType::Collation => Err(Error::UnknownSchemaObject(object_type.to_owned())),
        };
        Ok(Self { kind, id: Some(id?), access })
    }

    fn is_role(&self) -> bool {
        self.kind == ObjectType::Role && self.access == Access::EXECUTE
    }
}

/// Grants privileges (`"read,write"`) on an object, in addition to the grantee's present ones. `object_name` is empty
/// for the universe, and for all objects of a kind. A role is granted as `execute` on the object type `role`.
///
/// # Errors
/// The grantee or the object does not exist; the privilege means nothing on it; it was granted already
/// ([`Error::PrivGranted`], [`Error::RoleGranted`]) unless `if_not_exists`; the acting user may not grant it.
pub fn grant<'a>(
    store: &mut Store,
    grantee: impl Into<Grantee<'a>>,
    privileges: &str,
    object_type: &str,
    object_name: &str,
    if_not_exists: bool,
) -> Result<(), Error> {
    let grantee = grantee.into();
    whole(store, |store| {
        let User { id: grantee, name, .. } = grantee.resolve(store)?;
        let granted = Granted::resolve(store, privileges, object_type, object_name)?;
        let present = present_access(store, *grantee, granted.kind, granted.id);
        if present.contains(granted.access) {
            let user = name.clone();
            return match granted.kind {
                _ if if_not_exists => Ok(()),
                _ if granted.is_role() => Err(Error::RoleGranted { user, role: object_name.to_owned() }),
                kind => Err(Error::PrivGranted {
                    user,
                    access: privileges.to_owned(),
                    object_type: object_type.to_owned(),
                    object: match kind {
                        ObjectType::Universe => String::new(),
                        _ => format!(" '{object_name}'"),
                    },
                }),
            };
        }
        let (grantor, grantee) = (acting_user(store), *grantee);
        write(store, grantor, grantee, granted.kind.name(), granted.id, present | granted.access)
    })
}

/// Revokes privileges from a grantee that has at least one of them. Arguments as in [`grant`].
///
/// # Errors
/// The grantee or the object does not exist; the privilege means nothing on it; it was not granted
/// ([`Error::PrivNotGranted`], [`Error::RoleNotGranted`]) unless `if_exists`; the acting user may not revoke it.
pub fn revoke<'a>(
    store: &mut Store,
    grantee: impl Into<Grantee<'a>>,
    privileges: &str,
    object_type: &str,
    object_name: &str,
    if_exists: bool,
) -> Result<(), Error> {
    let grantee = grantee.into();
    whole(store, |store| {
        let User { id, name, .. } = grantee.resolve(store)?;
        let (id, user) = (*id, name.clone());
        let granted = Granted::resolve(store, privileges, object_type, object_name)?;
        let grantor = acting_user(store);
        if take(store, grantor, id, granted.kind, granted.id, granted.access)? || if_exists {
            return Ok(());
        }
        Err(if granted.is_role() {
            Error::RoleNotGranted { user, role: object_name.to_owned() }
        } else {
            Error::PrivNotGranted {
                user,
                access: privileges.to_owned(),
                object_type: object_type.to_owned(),
                object: object_name.to_owned(),
            }
        })
    })
}

fn present_access(store: &Store, grantee: UserId, kind: ObjectType, id: Option<u32>) -> Access {
    let granted = store.schema.users.granted(grantee);
    let present = granted.iter().find(|privilege| privilege.object_type == kind && privilege.object_id == id);
    present.map_or(Access::NONE, |privilege| privilege.access)
}

fn object(row: RowWriter, object_type: &str, id: Option<u32>) -> RowWriter {
    let row = row.text(object_type);
    match id {
        Some(id) => row.id(id),
        None => row.text(""),
    }
}

/// Writes a row of `_priv`.
pub(super) fn write(
    store: &mut Store,
    grantor: UserId,
    grantee: UserId,
    object_type: &str,
    id: Option<u32>,
    access: Access,
) -> Result<(), Error> {
    let row = object(RowWriter::new(5).id(grantor).id(grantee), object_type, id).id(access.0);
    replace(store, system::PRIV, row)
}

/// Takes privileges away from a grantee; `false` if it has none of them.
pub(super) fn take(
    store: &mut Store,
    grantor: UserId,
    grantee: UserId,
    kind: ObjectType,
    id: Option<u32>,
    access: Access,
) -> Result<bool, Error> {
    let present = present_access(store, grantee, kind, id);
    if !present.intersects(access) {
        return Ok(false);
    }
    let left = present & !access;
    if left.is_empty() {
        delete(store, system::PRIV, object(RowWriter::new(3).id(grantee), kind.name(), id))?;
    } else {
        write(store, grantor, grantee, kind.name(), id, left)?;
    }
    Ok(true)
}

/// Deletes a row of `_priv`.
pub(super) fn delete_row(store: &mut Store, row: &[u8]) -> Result<(), Error> {
    let row = Row::new(row);
    let key = RowWriter::new(3).raw(row.raw(1)?).raw(row.raw(2)?).raw(row.raw(3)?);
    delete(store, system::PRIV, key)
}

/// Revokes every privilege of every grantee on one object.
pub(super) fn revoke_all_on(store: &mut Store, object_type: &str, id: u32) -> Result<(), Error> {
    for row in rows_of(store, system::PRIV, 2, RowWriter::new(2).text(object_type).id(id))? {
        delete_row(store, &row)?;
    }
    Ok(())
}
