//! Privileges: what can be granted, on what, and how the two are named.
//!
//! A user's effective access to an object is the union of the grants on the object itself, on all objects of
//! its kind and on the universe. Grants to the user count, and those to every role that the user has, directly or
//! through other roles. The masks and names are Tarantool's, because they are stored in `_priv`.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

use crate::{SpaceId, UserId};

/// A set of privileges: the mask that `_priv` stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(pub u32);

impl Access {
    /// No privilege.
    pub const NONE: Self = Self(0);
    /// Select from a space or view, read a sequence.
    pub const READ: Self = Self(1);
    /// Change a space's data, move a sequence.
    pub const WRITE: Self = Self(2);
    /// Call a function, have a role.
    pub const EXECUTE: Self = Self(4);
    /// Log in.
    pub const SESSION: Self = Self(8);
    /// Do anything at all.
    pub const USAGE: Self = Self(16);
    /// Create objects.
    pub const CREATE: Self = Self(32);
    /// Drop objects.
    pub const DROP: Self = Self(64);
    /// Alter objects.
    pub const ALTER: Self = Self(128);
    /// Refer to an object (stored, never checked).
    pub const REFERENCE: Self = Self(256);
    /// Set triggers (stored, never checked).
    pub const TRIGGER: Self = Self(512);
    /// SQL's insert (stored, never checked).
    pub const INSERT: Self = Self(1024);
    /// SQL's update (stored, never checked).
    pub const UPDATE: Self = Self(2048);
    /// SQL's delete (stored, never checked).
    pub const DELETE: Self = Self(4096);
    /// Only in refusals: an attempt to grant.
    pub const GRANT: Self = Self(8192);
    /// Only in refusals: an attempt to revoke.
    pub const REVOKE: Self = Self(16384);
    /// Everything.
    pub const ALL: Self = Self(u32::MAX);

    /// Names in the order of their bits, as texts and grants use them.
    const NAMES: [(&'static str, &'static str); 15] = [
        ("read", "Read"),
        ("write", "Write"),
        ("execute", "Execute"),
        ("session", "Session"),
        ("usage", "Usage"),
        ("create", "Create"),
        ("drop", "Drop"),
        ("alter", "Alter"),
        ("reference", "Reference"),
        ("trigger", "Trigger"),
        ("insert", "Insert"),
        ("update", "Update"),
        ("delete", "Delete"),
        ("grant", "Grant"),
        ("revoke", "Revoke"),
    ];

    /// Whether all of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is in this set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The privilege with that lower-case name, if it can be granted.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let grantable = Self::NAMES.iter().take(13);
        grantable.enumerate().find(|(_, (lower, _))| *lower == name).map(|(bit, _)| Self(1 << bit))
    }

    /// The lower-case names of the set's privileges, in the order of their bits.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .iter()
            .take(13)
            .enumerate()
            .filter(move |(bit, _)| self.0 & (1 << bit) != 0)
            .map(|(_, (lower, _))| *lower)
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Access {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for Access {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// The name of the lowest privilege of the set, as refusals print it: `Read`, `Write`, …
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.get(self.0.trailing_zeros() as usize).map_or("", |(_, upper)| upper);
        f.write_str(name)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Which users a space's privileges show its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Privacy {
    /// Users with a grant on the space.
    #[default]
    Open,
    /// None: the rows concern all users, and only a user with rights on all spaces, or the owner of this one, may read or change them.
    Closed,
    /// A reader, of each row, who may know the space whose name stands in that field. Who may read all spaces, or owns
    /// this one, reads all rows.
    ByNamedSpace(u32),
}

/// The privacy of spaces, by name.
pub type PrivacyTable = &'static [(&'static str, Privacy)];

/// What a privilege is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectType {
    /// Everything there is.
    Universe,
    /// A space.
    Space,
    /// A function.
    Function,
    /// A user.
    User,
    /// A role.
    Role,
    /// A sequence.
    Sequence,
    /// A collation (grants on it are stored, nothing checks them).
    Collation,
}

impl ObjectType {
    /// The type with that name, in any case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Universe, Self::Space, Self::Function, Self::User, Self::Role, Self::Sequence, Self::Collation]
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// The name as `_priv` and refusals have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Universe => "universe",
            Self::Space => "space",
            Self::Function => "function",
            Self::User => "user",
            Self::Role => "role",
            Self::Sequence => "sequence",
            Self::Collation => "collation",
        }
    }
}

impl fmt::Display for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One object that access is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object<'a> {
    /// Everything.
    Universe,
    /// The space with that id.
    Space(SpaceId),
    /// The function with that name, whether it is registered or not: a call is refused before it is known to exist.
    Function(&'a str),
    /// The sequence with that id.
    Sequence(u32),
    /// The user with that id.
    User(UserId),
    /// The role with that id.
    Role(UserId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_the_lowest_privilege() {
        assert_eq!(Access::READ.to_string(), "Read");
        assert_eq!((Access::USAGE | Access::DROP).to_string(), "Usage");
        assert_eq!(Access::GRANT.to_string(), "Grant");
    }

    #[test]
    fn names_and_parse_agree() {
        let all: Vec<_> = Access::ALL.names().collect();
        assert_eq!(
            all.join(","),
            "read,write,execute,session,usage,create,drop,alter,reference,trigger,insert,update,delete"
        );
        for name in all {
            assert_eq!(
                Access::parse(name).map(|access| access.names().collect::<Vec<_>>()),
                Some(vec![name])
            );
        }
        assert_eq!(Access::parse("grant"), None);
        assert_eq!(ObjectType::parse("UNIVERSE"), Some(ObjectType::Universe));
    }
}
