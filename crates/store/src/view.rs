//! Views: `_vspace`, `_vindex`, … show of the system spaces what a user may know.
//!
//! The rules are a real server's:
//!
//! - A user sees objects that it owns or may read, write, alter or drop.
//! - A user sees functions and sequences also if it may execute them.
//! - Of users it sees itself, the users that it created and the role `public`.
//! - Of privileges it sees the ones that it gave or has.
//! - A user that may read or write the universe sees everything.
//! - A user that may read a system space sees all rows of its view.
//!
//! A space with [`Privacy::ByNamedSpace`] shows its own rows by the same rule for the spaces that they name.

use lycosa_tuple::mp::Reader;

use crate::access::{Access, ObjectType, Privacy};
use crate::schema::row::Row;
use crate::{Space, SpaceId, Store, UserId, system, user};

const ANY_USE: Access = Access(Access::READ.0 | Access::WRITE.0 | Access::DROP.0 | Access::ALTER.0);

impl Store {
    /// The space that a view shows.
    pub(crate) fn base_of_view(view: SpaceId) -> Option<SpaceId> {
        Some(match view {
            system::VCOLLATION => system::COLLATION,
            system::VSPACE => system::SPACE,
            system::VSEQUENCE => system::SEQUENCE,
            system::VINDEX => system::INDEX,
            system::VFUNC => system::FUNC,
            system::VUSER => system::USER,
            system::VPRIV => system::PRIV,
            _ => return None,
        })
    }

    /// Whether a user may know that a space exists: has a right to use or change it, or owns it.
    #[must_use]
    pub fn may_know_space(&self, user: UserId, space: SpaceId) -> bool {
        let owner = self.catalog.get(space).map(|space| space.def.owner);
        user == user::ADMIN
            || owner.is_some_and(|owner| self.may_know(user, ObjectType::Space, ANY_USE, space, owner))
    }

    /// The field with the name of a space by which `user`, who may read `space`, sees its rows; `None` if all.
    fn seen_by(&self, user: UserId, space: &Space) -> Option<u32> {
        let Privacy::ByNamedSpace(field) = space.privacy else { return None };
        let users = &self.schema.users;
        let access = users.universal(user) | users.on_all(user, ObjectType::Space);
        let sees_all = user == user::ADMIN || space.def.owner == user || access.contains(Access::READ);
        (!sees_all).then_some(field)
    }

    /// Whether reads by `user` have to leave out rows of the space.
    pub(crate) fn hides_rows(&self, user: UserId, space: &Space) -> bool {
        self.seen_by(user, space).is_some()
    }

    /// Whether `user`, who may read the space, sees a row of it.
    #[must_use]
    pub fn shows_row(&self, user: UserId, space: &Space, tuple: &[u8]) -> bool {
        let Some(field) = self.seen_by(user, space) else { return true };
        named_space(tuple, field)
            .and_then(|name| self.catalog.by_name(name))
            .is_some_and(|named| self.may_know_space(user, named.id()))
    }

    /// Whether the view of `base` shows a row to `user`.
    pub(crate) fn is_visible(&self, user: UserId, base: SpaceId, tuple: &[u8]) -> bool {
        if user == user::ADMIN
            || self.schema.users.on_object(user, ObjectType::Space, base).contains(Access::READ)
        {
            return true;
        }
        let row = Row::new(tuple);
        let id = |field| row.id(field).unwrap_or(u32::MAX);
        match base {
            system::SPACE => self.may_know(user, ObjectType::Space, ANY_USE, id(0), id(1)),
            system::INDEX => {
                let owner = self.catalog.get(id(0)).map_or(user::ADMIN, |space| space.def.owner);
                self.may_know(user, ObjectType::Space, ANY_USE, id(0), owner)
            }
            system::FUNC => {
                self.may_know(user, ObjectType::Function, ANY_USE | Access::EXECUTE, id(0), id(1))
            }
            system::SEQUENCE => {
                self.may_know(user, ObjectType::Sequence, ANY_USE | Access::EXECUTE, id(0), id(1))
            }
            system::USER => {
                self.schema.users.universal(user).intersects(ANY_USE)
                    || [user, user::PUBLIC].contains(&id(0))
                    || id(1) == user
            }
            system::PRIV => {
                self.schema.users.universal(user).intersects(ANY_USE) || id(0) == user || id(1) == user
            }
            _ => true,
        }
    }

    fn may_know(&self, user: UserId, kind: ObjectType, uses: Access, id: u32, owner: UserId) -> bool {
        let users = &self.schema.users;
        let access = users.universal(user) | users.on_all(user, kind) | users.on_object(user, kind, id);
        owner == user || access.intersects(uses)
    }
}

/// The string in a field of a tuple.
fn named_space(tuple: &[u8], field: u32) -> Option<&str> {
    let mut reader = Reader::new(tuple);
    let count = reader.array().ok()?;
    if field >= count {
        return None;
    }
    for _ in 0..field {
        reader.raw().ok()?;
    }
    str::from_utf8(reader.str().ok()?).ok()
}
