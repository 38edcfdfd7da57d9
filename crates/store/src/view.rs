//! Views: `_vspace`, `_vindex`, … show of the system spaces what a user may know.
//!
//! The rules are those that a real server shows: objects that one may read, write, alter or drop (functions and sequences
//! also those that one may execute) or owns; of users oneself, those whom one created and the role `public`; of
//! privileges those that one gave or has. Whoever may read or write the universe sees everything.

use crate::access::{Access, ObjectType};
use crate::schema::row::Row;
use crate::{SpaceId, Store, UserId, system, user};

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

    /// Whether the view of `base` shows a row to `user`.
    pub(crate) fn is_visible(&self, user: UserId, base: SpaceId, tuple: &[u8]) -> bool {
        if user == user::ADMIN {
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
