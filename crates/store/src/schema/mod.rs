//! The schema in memory, as a function of the rows of the system spaces.
//!
//! After a row of a system space has changed, `Store::system_row_changed` checks what the change means and applies it;
//! a refusal undoes the row. Spaces and indexes are objects with content and are undone by keeping the old object; users,
//! privileges, functions, collations and sequences are caches of rows and are undone by applying the opposite change of
//! the row.

pub(crate) mod catalog;
mod check;
mod cluster;
pub(crate) mod collation;
mod constraint;
mod expression;
pub(crate) mod function;
pub(crate) mod index;
pub(crate) mod privilege;
pub(crate) mod row;
pub(crate) mod sequence;
pub(crate) mod space;
mod sql_text;
mod truncate;
pub(crate) mod user;

use crate::access::{Access, Object, ObjectType, Privacy};
use crate::arena::Handle;
use crate::error::Error;
use crate::space::Space;
use crate::transaction::SchemaUndo;
use crate::{Store, UserId, system};

pub(crate) use collation::Collations;
pub use function::Function;
pub(crate) use function::Functions;
pub use sequence::Sequence;
pub(crate) use sequence::Sequences;
pub use sql_text::{CompileCheck, SqlKnowledge, SqlText};
pub(crate) use user::Users;
pub use user::{User, UserKind};

/// Everything that the system spaces define but for the spaces and indexes.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) version: u32,
    pub(crate) users: Users,
    pub(crate) functions: Functions,
    pub(crate) sequences: Sequences,
    pub(crate) collations: Collations,
}

impl Schema {
    pub(crate) fn bump_version(&mut self) {
        self.version = self.version.wrapping_add(1);
    }
}

/// An object that a change of the schema is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaObject<'a> {
    pub(crate) kind: ObjectType,
    pub(crate) id: u32,
    pub(crate) owner: UserId,
    pub(crate) name: &'a str,
}

impl<'a> SchemaObject<'a> {
    pub(crate) fn of_space(space: &'a Space) -> Self {
        Self { kind: ObjectType::Space, id: space.def.id, owner: space.def.owner, name: &space.def.name }
    }
}

impl Store {
    /// Whether changes of the space's rows change the schema.
    pub(crate) fn is_schema_space(space: u32) -> bool {
        matches!(
            space,
            system::SCHEMA
                | system::COLLATION
                | system::SPACE
                | system::SEQUENCE
                | system::SEQUENCE_DATA
                | system::INDEX
                | system::FUNC
                | system::USER
                | system::PRIV
                | system::CLUSTER
                | system::TRUNCATE
                | system::SPACE_SEQUENCE
                | system::TRIGGER
                | system::FK_CONSTRAINT
                | system::CK_CONSTRAINT
                | system::FUNC_INDEX
        )
    }

    /// Checks and applies what a changed row of a system space means.
    pub(crate) fn system_row_changed(
        &mut self,
        space: u32,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        match space {
            system::SCHEMA => self.schema_row_changed(old, new),
            system::COLLATION => self.collation_row_changed(old, new),
            system::SPACE => self.space_row_changed(old, new),
            system::SEQUENCE => self.sequence_row_changed(old, new),
            system::SEQUENCE_DATA => self.sequence_data_row_changed(old, new),
            system::INDEX => self.index_row_changed(old, new),
            system::FUNC => self.function_row_changed(old, new),
            system::USER => self.user_row_changed(old, new),
            system::PRIV => self.privilege_row_changed(old, new),
            system::CLUSTER => self.cluster_row_changed(old, new),
            system::TRUNCATE => self.truncate_row_changed(old, new),
            system::SPACE_SEQUENCE => self.space_sequence_row_changed(old, new),
            system::FUNC_INDEX => self.key_function_row_changed(old, new),
            system::TRIGGER | system::FK_CONSTRAINT | system::CK_CONSTRAINT => {
                match space {
                    system::CK_CONSTRAINT => self.check_row_changed(old, new)?,
                    _ => self.constraint_row_changed(space, new)?,
                }
                self.undo_schema(SchemaUndo::ConstraintChanged);
                self.schema.bump_version();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Applies to the caches that a row came in the place of another, without checks: to apply a checked change and,
    /// with the rows exchanged, to undo it.
    pub(crate) fn apply_system_row(&mut self, space: u32, old: Option<Handle>, new: Option<Handle>) {
        if space == system::SPACE_SEQUENCE {
            return self.apply_attachment(old, new);
        }
        if space == system::CK_CONSTRAINT {
            return self.apply_check(old, new);
        }
        let arena = &self.arena;
        let old = old.map(|handle| row::Row::new(arena.get(handle)));
        let new = new.map(|handle| row::Row::new(arena.get(handle)));
        if space == system::SEQUENCE
            && let (Some(view), Some(id)) = (&mut self.view, new.or(old).and_then(|row| row.id(0).ok()))
        {
            view.sequence_changed(id, self.schema.sequences.get(id).and_then(|sequence| sequence.value));
        }
        match space {
            system::COLLATION => self.schema.collations.apply(old, new),
            system::SEQUENCE => self.schema.sequences.apply(old, new),
            system::SEQUENCE_DATA => self.schema.sequences.apply_data(old, new),
            system::FUNC => self.schema.functions.apply(old, new),
            system::USER => self.schema.users.apply(old, new),
            system::PRIV => self.schema.users.apply_privilege(old, new),
            _ => return,
        }
        if matches!(space, system::USER | system::PRIV | system::FUNC) && !self.is_loading() {
            self.schema.users.refresh();
        }
    }

    /// Checks that the acting user may change the schema so. Tarantool: the owner of an object may do everything with
    /// it but needs `usage`; creating needs `create` on all objects of the kind.
    pub(crate) fn check_schema_access(&self, object: SchemaObject<'_>, access: Access) -> Result<(), Error> {
        let user = self.acting_user();
        if user == crate::user::ADMIN {
            return Ok(());
        }
        let users = &self.schema.users;
        let wanted = Access::USAGE | access;
        let missing = wanted & !users.universal(user) & !users.on_all(user, object.kind);
        let owns = object.owner == user;
        if missing.is_empty() || owns && !missing.intersects(Access::USAGE | Access::CREATE) {
            return Ok(());
        }
        if missing.contains(Access::USAGE) {
            return Err(self.denied(Access::USAGE, ObjectType::Universe, String::new()));
        }
        let missing = missing & !users.on_object(user, object.kind, object.id);
        if missing.is_empty() {
            return Ok(());
        }
        Err(self.denied(missing, object.kind, object.name.to_owned()))
    }

    /// The refusal of the acting user.
    pub(crate) fn denied(&self, access: Access, object_type: ObjectType, object_name: String) -> Error {
        self.denied_to(self.acting_user(), access, object_type, object_name)
    }

    pub(crate) fn denied_to(
        &self,
        user: UserId,
        access: Access,
        object_type: ObjectType,
        object_name: String,
    ) -> Error {
        let user = self.schema.users.get(user).map_or_else(|| user.to_string(), |user| user.name.clone());
        Error::AccessDenied { access, object_type, object_name, user }
    }

    /// Grows whenever an answer of [`Self::check_access`] may have changed because of users, roles, privileges or functions, and
    /// when such a change is undone.
    #[must_use]
    pub fn access_version(&self) -> u64 {
        self.schema.users.version
    }

    /// Whether the user, or a role that the user has, was granted to execute just this function: a privilege on all
    /// functions or on the universe is none.
    #[must_use]
    pub fn is_granted_function(&self, user: UserId, name: &str) -> bool {
        let function = self.schema.functions.by_name(name);
        function.is_some_and(|function| {
            let access = self.schema.users.on_object(user, ObjectType::Function, function.id);
            access.contains(Access::EXECUTE)
        })
    }

    /// Refuses if the user lacks the access to the object.
    ///
    /// # Errors
    /// [`Error::AccessDenied`]: names the missing `usage` of the universe first, which is needed for everything but to
    /// log in; then the missing right on the object. The owner of an object needs nothing else.
    pub fn check_access(&self, user: UserId, object: Object<'_>, access: Access) -> Result<(), Error> {
        if user == crate::user::ADMIN {
            return Ok(());
        }
        let users = &self.schema.users;
        let universal = users.universal(user);
        if access != Access::SESSION && !universal.contains(Access::USAGE) {
            return Err(self.denied_to(user, Access::USAGE, ObjectType::Universe, String::new()));
        }
        let missing = access & !universal;
        if missing.is_empty() {
            return Ok(());
        }
        let (kind, id, owner, name) = match object {
            Object::Universe => (ObjectType::Universe, None, None, ""),
            Object::Space(id) => match self.catalog.get(id) {
                Some(space) => (ObjectType::Space, Some(id), Some(space.def.owner), space.name()),
                None => return Err(Error::NoSuchSpace(id.to_string())),
            },
            Object::Function(name) => match self.schema.functions.by_name(name) {
                Some(function) => (ObjectType::Function, Some(function.id), Some(function.owner), name),
                None => (ObjectType::Function, None, None, name),
            },
            Object::Sequence(id) => match self.schema.sequences.get(id) {
                Some(sequence) => {
                    (ObjectType::Sequence, Some(id), Some(sequence.owner), sequence.name.as_str())
                }
                None => return Err(Error::NoSuchSequence(id.to_string())),
            },
            Object::User(id) | Object::Role(id) => match users.get(id) {
                Some(user) => (user.kind.object_type(), Some(id), Some(user.owner), user.name.as_str()),
                None => return Err(Error::NoSuchUser(id.to_string())),
            },
        };
        if owner == Some(user) {
            return Ok(());
        }
        let mut missing = missing;
        if let Some(id) = id {
            missing = missing & !users.on_all(user, kind);
            let is_closed = |space: &Space| space.privacy == Privacy::Closed;
            if kind != ObjectType::Space || !self.catalog.get(id).is_some_and(is_closed) {
                missing = missing & !users.on_object(user, kind, id);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(self.denied_to(user, missing, kind, name.to_owned()))
    }
}
