//! Users and roles: create, drop, passwords.

use super::row::{MapWriter, RowWriter};
use super::{acting_user, as_admin, assign, delete, insert, privilege, rows_of, whole};
use crate::error::Error;
use crate::schema::row::Row;
use crate::schema::user::base64;
use crate::{Access, ObjectType, Store, User, UserId, UserKind, system, user};

fn encode_auth(hash2: Option<[u8; 20]>) -> Vec<u8> {
    let map = MapWriter::default();
    match hash2 {
        Some(hash2) => map.text("chap-sha1", &base64::encode(&hash2)).finish(),
        None => map.finish(),
    }
}

fn insert_user(store: &mut Store, name: &str, kind: &str, auth: &[u8]) -> Result<UserId, Error> {
    let id = store.schema.users.next_id();
    let owner = acting_user(store);
    insert(store, system::USER, RowWriter::new(5).id(id).id(owner).text(name).text(kind).raw(auth))?;
    Ok(id)
}

/// Creates a user with the role `public`, the right to alter itself, to log in and to use the instance. `hash2` is
/// `sha1(sha1(password))`; without it the user cannot log in.
///
/// # Errors
/// [`Error::UserExists`] unless `if_not_exists`, and errors of the definition.
pub fn create_user(
    store: &mut Store,
    name: &str,
    hash2: Option<[u8; 20]>,
    if_not_exists: bool,
) -> Result<(), Error> {
    whole(store, |store| {
        if store.user_by_name(name).is_some() {
            return if if_not_exists { Ok(()) } else { Err(Error::UserExists(name.to_owned())) };
        }
        let id = insert_user(store, name, "user", &encode_auth(hash2))?;
        let creator = acting_user(store);
        privilege::write(store, creator, id, "role", Some(user::PUBLIC), Access::EXECUTE)?;
        privilege::write(store, creator, id, "user", Some(id), Access::ALTER)?;
        as_admin(store, |store| {
            let access = Access::SESSION | Access::USAGE;
            privilege::write(store, user::ADMIN, id, "universe", Some(0), access)
        })
    })
}

/// Sets a user's password: `hash2` is `sha1(sha1(password))`.
///
/// # Errors
/// [`Error::NoSuchUser`], [`Error::GuestUserPassword`], or no right to alter the user.
pub fn set_password(store: &mut Store, name: &str, hash2: [u8; 20]) -> Result<(), Error> {
    let Some(user) = store.user_by_name(name).filter(|user| user.kind == UserKind::User) else {
        return Err(Error::NoSuchUser(name.to_owned()));
    };
    if user.id == user::GUEST {
        return Err(Error::GuestUserPassword);
    }
    let key = RowWriter::ids([user.id]);
    assign(store, system::USER, key, 5, &encode_auth(Some(hash2)))
}

/// Creates a role.
///
/// # Errors
/// [`Error::RoleExists`] unless `if_not_exists`, and errors of the definition.
pub fn create_role(store: &mut Store, name: &str, if_not_exists: bool) -> Result<(), Error> {
    whole(store, |store| {
        if store.user_by_name(name).is_some() {
            return if if_not_exists { Ok(()) } else { Err(Error::RoleExists(name.to_owned())) };
        }
        insert_user(store, name, "role", &encode_auth(None)).map(drop)
    })
}

/// Drops a user with its spaces, functions, sequences and privileges.
///
/// # Errors
/// [`Error::NoSuchUser`] unless `if_exists`; [`Error::DropUser`]: a user of the system, who acts, or one that has
/// created other users or granted something.
pub fn drop_user(store: &mut Store, name: &str, if_exists: bool) -> Result<(), Error> {
    whole(store, |store| {
        let Some(user) = store.user_by_name(name).filter(|user| user.kind == UserKind::User) else {
            return if if_exists { Ok(()) } else { Err(Error::NoSuchUser(name.to_owned())) };
        };
        if user.id == acting_user(store) && user.id > user::SUPER {
            let reason = "the user is active in the current session".to_owned();
            return Err(Error::DropUser { name: name.to_owned(), reason });
        }
        let id = droppable(user)?;
        drop_party(store, id, true)
    })
}

/// Drops a role with its privileges; its grantees lose it.
///
/// # Errors
/// [`Error::NoSuchRole`] unless `if_exists`; [`Error::DropUser`]: a role of the system.
pub fn drop_role(store: &mut Store, name: &str, if_exists: bool) -> Result<(), Error> {
    whole(store, |store| {
        let Some(role) = store.user_by_name(name).filter(|role| role.kind == UserKind::Role) else {
            return if if_exists { Ok(()) } else { Err(Error::NoSuchRole(name.to_owned())) };
        };
        let id = droppable(role)?;
        drop_party(store, id, false)
    })
}

fn droppable(user: &User) -> Result<UserId, Error> {
    if user.id > user::SUPER {
        return Ok(user.id);
    }
    let reason = "the user or the role is a system".to_owned();
    Err(Error::DropUser { name: user.name.clone(), reason })
}

fn drop_party(store: &mut Store, id: UserId, is_user: bool) -> Result<(), Error> {
    for row in rows_of(store, system::SPACE, 1, RowWriter::ids([id]))? {
        super::drop_space(store, Row::new(&row).id(0)?)?;
    }
    for row in rows_of(store, system::FUNC, 1, RowWriter::ids([id]))? {
        super::drop_function(store, &Row::new(&row).text(2)?, false)?;
    }
    for row in rows_of(store, system::SEQUENCE, 1, RowWriter::ids([id]))? {
        super::drop_sequence(store, Row::new(&row).id(0)?)?;
    }
    if is_user {
        // A user that may drop the user need not be allowed to revoke the grants that `admin` made to it.
        as_admin(store, |store| {
            let access = Access::SESSION | Access::USAGE;
            privilege::take(store, user::ADMIN, id, ObjectType::Universe, Some(0), access).map(drop)
        })?;
    } else {
        privilege::revoke_all_on(store, "role", id)?;
    }
    for row in rows_of(store, system::PRIV, 0, RowWriter::ids([id]))? {
        privilege::delete_row(store, &row)?;
    }
    if is_user {
        privilege::revoke_all_on(store, "user", id)?;
    }
    delete(store, system::USER, RowWriter::ids([id]))
}
