//! Rows of `_user`: users and roles, and what each of them may do.
//!
//! What a user may do follows from rows of `_priv` and from the roles that the user has. It is worked out for all users
//! whenever one of those rows changes, so that a check is a look-up: there are at most 32 users and roles.

use std::collections::BTreeMap;

use lycosa_tuple::mp::Reader;

use crate::access::{Access, ObjectType};
use crate::arena::Handle;
use crate::error::Error;
use crate::schema::SchemaObject;
use crate::schema::privilege::Privilege;
use crate::schema::row::Row;
use crate::{Store, UserId, system, user};

/// Users and roles together, at most.
const USER_MAX: u32 = 32;

/// Hash of the empty password, the only one that `guest` may have.
const EMPTY_PASSWORD: &[u8] = b"vhvewKp0tNyweZQ+cFKAlsyphfg=";

/// What an entry of `_user` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserKind {
    /// A user that can log in.
    User,
    /// A set of privileges with a name.
    Role,
}

impl UserKind {
    pub(crate) fn object_type(self) -> ObjectType {
        match self {
            Self::User => ObjectType::User,
            Self::Role => ObjectType::Role,
        }
    }
}

/// A user or role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Number: 0…31 are the system's.
    pub id: UserId,
    /// Who created it.
    pub owner: UserId,
    /// Name, unique among users and roles.
    pub name: String,
    /// User or role.
    pub kind: UserKind,
    /// `sha1(sha1(password))`; `None` if no password was set, and the user cannot log in.
    pub hash2: Option<[u8; 20]>,
}

impl User {
    pub(crate) fn decode(row: Row<'_>) -> Result<Self, Error> {
        let is_role = row.text(3)?.eq_ignore_ascii_case("role");
        let wrong = |name: String, reason: &str| {
            let reason = reason.to_owned();
            if is_role { Error::CreateRole { name, reason } } else { Error::CreateUser { name, reason } }
        };
        let name = row.bytes(2)?;
        let shown = String::from_utf8_lossy(&name[..name.len().min(64)]).into_owned();
        if !is_role && !row.text(3)?.eq_ignore_ascii_case("user") {
            return Err(wrong(shown, "unknown user type"));
        }
        let name = row.name(2, |start| wrong(start, "user name is too long"))?;
        let kind = if is_role { UserKind::Role } else { UserKind::User };
        let mut hash2 = None;
        let mut reader = Reader::new(row.raw(4)?);
        let count = reader.map().unwrap_or(0);
        for _ in 0..count {
            let is_known = reader.raw().is_ok_and(|key| Reader::new(key).str() == Ok(b"chap-sha1"));
            let Ok(value) = reader.raw() else { break };
            if !is_known || is_role {
                continue;
            }
            let hash = Reader::new(value).str().ok();
            let hash = hash.filter(|hash| [0, base64::LENGTH].contains(&hash.len()));
            let hash = hash.ok_or_else(|| wrong(name.clone(), "invalid user password"))?;
            hash2 = (!hash.is_empty()).then(|| base64::decode(hash));
        }
        Ok(Self { id: row.id(0)?, owner: row.id(1)?, name, kind, hash2 })
    }

    /// Checks what a new row must be besides, but rows of a folder need not.
    pub(crate) fn check_new(&self, row: Row<'_>) -> Result<(), Error> {
        let count = Reader::new(row.raw(4)?).map().unwrap_or(0);
        if self.kind == UserKind::Role && count > 0 {
            let reason = "authentication data can not be set for a role".to_owned();
            return Err(Error::CreateRole { name: self.name.clone(), reason });
        }
        if self.id == user::GUEST && self.hash2.is_some_and(|hash2| hash2 != base64::decode(EMPTY_PASSWORD)) {
            return Err(Error::GuestUserPassword);
        }
        Ok(())
    }
}

/// The one use of base64 in the store: 20 bytes of a hash in 28 characters.
pub(crate) mod base64 {
    /// Characters of 20 encoded bytes.
    pub(crate) const LENGTH: usize = 28;
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    /// Decodes as far as possible: characters outside of the alphabet count as zero, as a hash that no password has.
    pub(crate) fn decode(text: &[u8]) -> [u8; 20] {
        let digit = |byte: &u8| ALPHABET.iter().position(|known| known == byte).unwrap_or(0) as u32;
        let bytes = text.chunks(4).flat_map(|four| {
            let bits = four.iter().fold(0, |bits, byte| bits << 6 | digit(byte));
            [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8]
        });
        let mut out = [0; 20];
        for (place, byte) in out.iter_mut().zip(bytes) {
            *place = byte;
        }
        out
    }

    /// Encodes with padding.
    pub(crate) fn encode(hash: &[u8; 20]) -> String {
        let mut out = String::with_capacity(LENGTH);
        for three in hash.chunks(3) {
            let byte = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for place in 0..4 {
                let digit = ALPHABET[(bits >> (18 - 6 * place)) as usize & 63];
                out.push(if place <= three.len() { char::from(digit) } else { '=' });
            }
        }
        out
    }
}

/// What a user may do: its own privileges and those of all its roles.
#[derive(Debug, Default)]
struct Effective {
    /// The user itself and its roles.
    roles: Vec<UserId>,
    universal: Access,
    /// On all objects of a kind.
    on_all: BTreeMap<ObjectType, Access>,
    on_object: BTreeMap<(ObjectType, u32), Access>,
}

/// All users and roles.
#[derive(Debug, Default)]
pub(crate) struct Users {
    by_id: BTreeMap<UserId, User>,
    /// Rows of `_priv` by grantee.
    privileges: BTreeMap<UserId, Vec<Privilege>>,
    effective: BTreeMap<UserId, Effective>,
    /// Grows when `effective` is worked out anew.
    pub(crate) version: u64,
}

impl Users {
    pub(crate) fn get(&self, id: UserId) -> Option<&User> {
        self.by_id.get(&id)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&User> {
        self.by_id.values().find(|user| user.name == name)
    }

    pub(crate) fn apply(&mut self, old: Option<Row<'_>>, new: Option<Row<'_>>) {
        if let Some(id) = old.and_then(|row| row.id(0).ok()) {
            self.by_id.remove(&id);
        }
        if let Some(user) = new.and_then(|row| User::decode(row).ok()) {
            self.by_id.insert(user.id, user);
        }
    }

    pub(crate) fn apply_privilege(&mut self, old: Option<Row<'_>>, new: Option<Row<'_>>) {
        if let Some(old) = old.and_then(|row| Privilege::decode(row).ok())
            && let Some(granted) = self.privileges.get_mut(&old.grantee)
        {
            granted.retain(|privilege| !privilege.is_about_the_same(&old));
        }
        if let Some(new) = new.and_then(|row| Privilege::decode(row).ok()) {
            self.privileges.entry(new.grantee).or_default().push(new);
        }
    }

    /// Recomputes the access of every user.
    pub(crate) fn refresh(&mut self) {
        self.version += 1;
        self.effective = self.by_id.keys().map(|&id| (id, self.effective_of(id))).collect();
    }

    fn effective_of(&self, user: UserId) -> Effective {
        let mut effective = Effective { roles: self.roles_of(user), ..Effective::default() };
        for role in effective.roles.clone() {
            for privilege in self.privileges.get(&role).into_iter().flatten() {
                let access = privilege.access;
                match (privilege.object_type, privilege.object_id) {
                    (ObjectType::Universe, _) => effective.universal |= access,
                    (kind, None) => *effective.on_all.entry(kind).or_default() |= access,
                    (kind, Some(id)) => *effective.on_object.entry((kind, id)).or_default() |= access,
                }
            }
        }
        effective
    }

    /// The user itself and all roles that it has, directly or through other roles.
    fn roles_of(&self, user: UserId) -> Vec<UserId> {
        let mut reached = vec![user];
        let mut next = 0;
        while let Some(&role) = reached.get(next) {
            next += 1;
            for role in self.direct_roles(role) {
                if !reached.contains(&role) {
                    reached.push(role);
                }
            }
        }
        reached
    }

    fn direct_roles(&self, user: UserId) -> impl Iterator<Item = UserId> {
        self.privileges.get(&user).into_iter().flatten().filter_map(|privilege| {
            let is_role =
                privilege.object_type == ObjectType::Role && privilege.access.contains(Access::EXECUTE);
            privilege.object_id.filter(|_| is_role)
        })
    }

    /// Whether `role` is granted, directly or not, `other`.
    pub(crate) fn has_role(&self, role: UserId, other: UserId) -> bool {
        self.roles_of(role).contains(&other)
    }

    /// Whether something about data was granted to the user itself, or to a role other than `public`.
    fn is_granted_data(&self, id: UserId) -> bool {
        let access = Access::READ | Access::WRITE | Access::EXECUTE | Access::CREATE | Access::ALTER;
        self.roles_of(id).into_iter().filter(|role| *role != user::PUBLIC).any(|role| {
            self.granted(role).iter().any(|privilege| {
                matches!(privilege.object_type, ObjectType::Universe | ObjectType::Space)
                    && privilege.access.intersects(access)
            })
        })
    }

    pub(crate) fn universal(&self, user: UserId) -> Access {
        self.effective.get(&user).map_or(Access::NONE, |effective| effective.universal)
    }

    pub(crate) fn on_all(&self, user: UserId, kind: ObjectType) -> Access {
        let effective = self.effective.get(&user);
        effective.and_then(|effective| effective.on_all.get(&kind)).copied().unwrap_or_default()
    }

    pub(crate) fn on_object(&self, user: UserId, kind: ObjectType, id: u32) -> Access {
        let effective = self.effective.get(&user);
        effective.and_then(|effective| effective.on_object.get(&(kind, id))).copied().unwrap_or_default()
    }

    /// The direct grants of a user or role.
    pub(crate) fn granted(&self, grantee: UserId) -> &[Privilege] {
        self.privileges.get(&grantee).map_or(&[], Vec::as_slice)
    }

    /// Everything that was granted on one object.
    pub(crate) fn grants_on(&self, kind: ObjectType, id: u32) -> impl Iterator<Item = &Privilege> {
        let all = self.privileges.values().flatten();
        all.filter(move |privilege| privilege.object_type == kind && privilege.object_id == Some(id))
    }

    pub(crate) fn has_grants(&self, kind: ObjectType, id: u32) -> bool {
        self.grants_on(kind, id).next().is_some()
    }

    /// Whether that user has granted something on the object.
    pub(crate) fn has_granted(&self, grantor: UserId, kind: ObjectType, id: u32) -> bool {
        self.grants_on(kind, id).any(|privilege| privilege.grantor == grantor)
    }

    /// The lowest number from 32 that is above all users' and roles'.
    pub(crate) fn next_id(&self) -> UserId {
        self.by_id.keys().next_back().map_or(user::SUPER, |&id| id.max(user::SUPER)).saturating_add(1)
    }
}

impl Store {
    /// The user or role with that id.
    #[must_use]
    pub fn user(&self, id: UserId) -> Option<&User> {
        self.schema.users.get(id)
    }

    /// Whether the user has the role of that name, itself or through other roles. A role that another user than `owner` has made
    /// does not count.
    #[must_use]
    pub fn has_role(&self, user: UserId, name: &str, owner: UserId) -> bool {
        let users = &self.schema.users;
        let roles = users.effective.get(&user).map_or(&[][..], |effective| &effective.roles);
        roles
            .iter()
            .filter_map(|role| users.get(*role))
            .any(|role| role.kind == UserKind::Role && role.owner == owner && role.name == name)
    }

    /// The direct grants of the user or role on one object, or on all of the kind (`None`).
    #[must_use]
    pub fn granted_access(&self, grantee: UserId, kind: ObjectType, id: Option<u32>) -> Access {
        let granted = self.schema.users.granted(grantee).iter();
        let on_object = |privilege: &&Privilege| privilege.object_type == kind && privilege.object_id == id;
        granted.filter(on_object).fold(Access::NONE, |all, privilege| all | privilege.access)
    }

    /// Whether a grant gives the user a right to a space, or to all; the rights of the role `public` do not count.
    #[must_use]
    pub fn is_granted_data(&self, user: UserId) -> bool {
        self.schema.users.is_granted_data(user)
    }

    /// The user or role with that name.
    #[must_use]
    pub fn user_by_name(&self, name: &str) -> Option<&User> {
        self.schema.users.by_name(name)
    }

    /// A row of `_user` was replaced, added or removed.
    pub(crate) fn user_row_changed(&mut self, old: Option<Handle>, new: Option<Handle>) -> Result<(), Error> {
        let object = |user: &User, access| {
            let User { id, owner, name, kind, .. } = user;
            self.check_schema_access(
                SchemaObject { kind: kind.object_type(), id: *id, owner: *owner, name },
                access,
            )
        };
        match (old, new) {
            (_, Some(new)) => {
                let row = Row::new(self.arena.get(new));
                let user = User::decode(row)?;
                if !self.is_history() {
                    user.check_new(row)?;
                }
                match self.user(user.id) {
                    Some(present) => {
                        object(present, Access::ALTER)?;
                        self.check_user_alteration(present, &user)?;
                        let User { id, owner, name, kind, .. } = present;
                        let present = SchemaObject { kind: kind.object_type(), id: *id, owner: *owner, name };
                        self.check_owner_stays(present, user.owner)?;
                    }
                    None => {
                        object(&user, Access::CREATE)?;
                        if self.schema.users.by_id.len() >= USER_MAX as usize {
                            return Err(Error::UserMax(USER_MAX));
                        }
                    }
                }
            }
            (Some(old), None) => {
                let user = User::decode(Row::new(self.arena.get(old)))?;
                object(&user, Access::DROP)?;
                let is_of_system = [user::GUEST, user::ADMIN, user::PUBLIC, user::SUPER].contains(&user.id);
                let reason = if is_of_system {
                    "the user or the role is a system"
                } else if self.owns_something(user.id) {
                    "the user has objects"
                } else {
                    ""
                };
                if !reason.is_empty() {
                    return Err(Error::DropUser { name: user.name, reason: reason.to_owned() });
                }
            }
            (None, None) => {}
        }
        self.apply_system_row(system::USER, old, new);
        Ok(())
    }

    /// A change that a Tarantool lets an administrator make, and that cannot be loaded again: a user that has a role needs the role.
    fn check_user_alteration(&self, present: &User, user: &User) -> Result<(), Error> {
        let lacks = |what| Err(Error::lacks(&format!("a change of the {what} of '{}'", present.name)));
        if self.is_history() {
            Ok(())
        } else if present.kind != user.kind {
            lacks("type")
        } else if present.id <= user::SUPER && present.name != user.name {
            lacks("name")
        } else {
            Ok(())
        }
    }

    /// Whether the user owns objects, was a party to a grant, or was granted itself: without the row a grant could
    /// not be loaded.
    fn owns_something(&self, user: UserId) -> bool {
        let owned = [system::SPACE, system::FUNC, system::SEQUENCE, system::PRIV];
        owned.into_iter().any(|space| self.has_rows(space, 1, &[user]))
            || self.has_rows(system::PRIV, 0, &[user])
            || [ObjectType::Role, ObjectType::User]
                .into_iter()
                .any(|kind| self.schema.users.has_grants(kind, user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_survive_base64() {
        // The hash of the password `secret`: iproto.md, section 1.
        let hash = [
            0x14, 0xe6, 0x55, 0x67, 0xab, 0xdb, 0x51, 0x35, 0xd0, 0xcf, 0xd9, 0xa7, 0x0b, 0x30, 0x32, 0xc1,
            0x79, 0xa4, 0x9e, 0xe7,
        ];
        assert_eq!(base64::encode(&hash), "FOZVZ6vbUTXQz9mnCzAywXmknuc=");
        assert_eq!(base64::decode(b"FOZVZ6vbUTXQz9mnCzAywXmknuc="), hash);
    }
}
