//! Rows of `_priv`: the privileges of users and roles on objects, each with its grantor.

use crate::access::{Access, ObjectType};
use crate::arena::Handle;
use crate::error::Error;
use crate::schema::SchemaObject;
use crate::schema::row::Row;
use crate::{Store, UserId, system, user};

use lycosa_tuple::field::FieldType;
use lycosa_tuple::format::{FieldPath, FormatError};
use lycosa_tuple::mp::Reader;

/// The privileges there are.
const KNOWN: u32 = 0x7fff;
/// Every privilege there is or may be.
const FULL: u32 = 0x7fff_ffff;

/// A row of `_priv`, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Privilege {
    pub(crate) grantor: UserId,
    pub(crate) grantee: UserId,
    pub(crate) object_type: ObjectType,
    /// `None`: all objects of the type (an empty string in the row).
    pub(crate) object_id: Option<u32>,
    pub(crate) access: Access,
}

impl Privilege {
    pub(crate) fn decode(row: Row<'_>) -> Result<Self, Error> {
        let (grantor, grantee) = (row.id(0)?, row.id(1)?);
        let name = row.text(2)?;
        let object = row.raw(3)?;
        let object_id = match (Reader::new(object).str(), Reader::new(object).uint()) {
            (Ok(b""), _) => None,
            // A Tarantool forgets the upper half, too.
            (_, Ok(id)) => Some(id as u32),
            _ => {
                let field = FieldPath { field: 3, tokens: Vec::new() };
                return Err(FormatError::FieldType { field, expected: FieldType::Unsigned }.into());
            }
        };
        let object_type = ObjectType::parse(&name).ok_or(Error::UnknownSchemaObject(name))?;
        let access = Access(row.uint(4)? as u32);
        Ok(Self { grantor, grantee, object_type, object_id, access })
    }

    /// Refuses all objects of the kind of which there is one.
    fn check_entity(&self) -> Result<(), Error> {
        let is_universe = self.object_type == ObjectType::Universe && self.object_id.is_none();
        if is_universe { Err(Error::UnknownSchemaObject("universe".to_owned())) } else { Ok(()) }
    }

    /// Refuses a row that grants nothing there is.
    pub(crate) fn check_known(&self) -> Result<(), Error> {
        self.check_entity()?;
        let is_nothing = self.access.0 & KNOWN == 0;
        if is_nothing { Err(Error::Grant("the grant tuple has no privileges".to_owned())) } else { Ok(()) }
    }

    /// Whether two rows have one key.
    pub(crate) fn is_about_the_same(&self, other: &Self) -> bool {
        self.grantee == other.grantee
            && self.object_type == other.object_type
            && self.object_id == other.object_id
    }
}

/// The object of a privilege as far as granting goes: its name, and its possible grantors.
struct Granted {
    name: String,
    owner: UserId,
    /// Every user may grant it, as the role `public`.
    is_public: bool,
}

impl Store {
    /// A row of `_priv` was replaced, added or removed.
    pub(crate) fn privilege_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        if let Some(new) = new {
            let privilege = Privilege::decode(Row::new(self.arena.get(new)))?;
            if !self.is_history() {
                privilege.check_entity()?;
            }
            self.check_grant(&privilege, Access::GRANT)?;
            if !self.is_history() {
                privilege.check_known()?;
            }
            self.check_admin_keeps(&privilege, privilege.access)?;
        } else if let Some(old) = old {
            let privilege = Privilege::decode(Row::new(self.arena.get(old)))?;
            self.check_grant(&privilege, Access::REVOKE)?;
            self.check_admin_keeps(&privilege, Access::default())?;
        }
        self.apply_system_row(system::PRIV, old, new);
        Ok(())
    }

    /// Checks that `admin` may do everything if a privilege shrinks to this.
    fn check_admin_keeps(&self, privilege: &Privilege, left: Access) -> Result<(), Error> {
        let is_everything = left.0 & FULL == FULL;
        let is_universe = privilege.object_type == ObjectType::Universe;
        if privilege.grantee == user::ADMIN && is_universe && !is_everything && !self.is_history() {
            return Err(Error::Grant("can't revoke universe from the admin user".to_owned()));
        }
        Ok(())
    }

    /// Checks that the parties of a grant exist and that the grantor may grant or revoke this: an object is granted by
    /// its owner, the universe and all objects of a kind by `admin`.
    fn check_grant(&self, privilege: &Privilege, access: Access) -> Result<(), Error> {
        let unknown = |id: UserId| Error::NoSuchUser(id.to_string());
        let grantor = self.user(privilege.grantor).ok_or_else(|| unknown(privilege.grantor))?;
        let grantee = self.user(privilege.grantee).ok_or_else(|| unknown(privilege.grantee))?;
        let object = self.granted_object(privilege)?;
        let acting = SchemaObject {
            kind: privilege.object_type,
            id: privilege.object_id.unwrap_or(u32::MAX),
            owner: grantor.id,
            name: &object.name,
        };
        self.check_schema_access(acting, access)?;
        // A snapshot shows the object's last owner, who need not be the one that granted: see `check_owner_stays`.
        let may_grant = self.is_history()
            || grantor.id == user::ADMIN
            || privilege.object_type != ObjectType::Universe && object.owner == grantor.id
            || privilege.object_type == ObjectType::Collation
            || object.is_public && privilege.access == Access::EXECUTE;
        if !may_grant {
            return Err(self.denied_to(grantor.id, access, privilege.object_type, object.name));
        }
        if privilege.object_type == ObjectType::Role
            && let Some(role) = privilege.object_id
            && self.schema.users.has_role(role, grantee.id)
        {
            return Err(Error::RoleLoop { role: object.name, grantee: grantee.name.clone() });
        }
        Ok(())
    }

    /// Refuses another owner for an object of which the present one has granted something. A Tarantool accepts it, and then no
    /// Tarantool opens the next snapshot: in it the grantor of the grant has no right to grant.
    pub(crate) fn check_owner_stays(&self, present: SchemaObject<'_>, owner: UserId) -> Result<(), Error> {
        let SchemaObject { kind, id, owner: former, name } = present;
        let may_stay = former == owner || former == user::ADMIN || self.is_history();
        if may_stay || !self.schema.users.has_granted(former, kind, id) {
            return Ok(());
        }
        let (kind, grantor) = (kind.name(), self.user(former).map_or("", |user| user.name.as_str()));
        Err(Error::lacks(&format!(
            "another owner for the {kind} '{name}' while rights on it stand that '{grantor}' granted (revoke them first)"
        )))
    }

    fn granted_object(&self, privilege: &Privilege) -> Result<Granted, Error> {
        let everything = Granted { name: String::new(), owner: user::ADMIN, is_public: false };
        let Some(id) = privilege.object_id else {
            return Ok(everything);
        };
        let granted = |name: &str, owner| Granted { name: name.to_owned(), owner, is_public: false };
        let party = |wanted| self.user(id).filter(|user| user.kind.object_type() == wanted);
        let name_of = || self.user(id).map_or_else(|| id.to_string(), |user| user.name.clone());
        match privilege.object_type {
            ObjectType::Universe => Ok(everything),
            ObjectType::Space => self.space(id).map(|space| granted(space.name(), space.owner())),
            ObjectType::Function => match self.schema.functions.get(id) {
                Some(function) => Ok(granted(&function.name, function.owner)),
                None => Err(Error::NoSuchFunction(id.to_string())),
            },
            ObjectType::Sequence => match self.schema.sequences.get(id) {
                Some(sequence) => Ok(granted(&sequence.name, sequence.owner)),
                None => Err(Error::NoSuchSequence(id.to_string())),
            },
            ObjectType::User => match party(ObjectType::User) {
                Some(user) => Ok(granted(&user.name, user.owner)),
                None => Err(Error::NoSuchUser(name_of())),
            },
            ObjectType::Role => match party(ObjectType::Role) {
                Some(role) => {
                    Ok(Granted { is_public: id == user::PUBLIC, ..granted(&role.name, role.owner) })
                }
                None => Err(Error::NoSuchRole(name_of())),
            },
            ObjectType::Collation => Ok(everything),
        }
    }
}
