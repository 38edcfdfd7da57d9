//! `box.schema` as functions over the open transaction.
use crate::*;

/// One field of a format.
#[derive(Debug, Clone, Copy)]
pub struct FieldSpec<'a> {
    /// Name.
    pub name: &'a str,
    /// Type name.
    pub ty: &'a str,
    /// May be nil or absent.
    pub nullable: bool,
}

/// A space to be created.
#[derive(Debug, Clone, Copy)]
pub struct SpaceSpec<'a> {
    /// Name.
    pub name: &'a str,
    /// Id; None: the next one.
    pub id: Option<SpaceId>,
    /// Owner; None: the acting user.
    pub owner: Option<UserId>,
    /// `memtx`, …
    pub engine: &'a str,
    /// Exact number of fields; 0 = any.
    pub field_count: u32,
    /// Data are never logged.
    pub temporary: bool,
    /// Rows stay on this instance.
    pub local: bool,
    /// Format.
    pub format: &'a [FieldSpec<'a>],
}
impl<'a> SpaceSpec<'a> {
    /// An ordinary space in memory.
    pub fn new(name: &'a str, format: &'a [FieldSpec<'a>]) -> Self {
        Self { name, id: None, owner: None, engine: "memtx", field_count: 0, temporary: false, local: false, format }
    }
}
/// One part of an index.
#[derive(Debug, Clone, Copy)]
pub struct PartSpec<'a> {
    /// Field from 0.
    pub field: u32,
    /// Type name.
    pub ty: &'a str,
    /// May be nil or absent.
    pub nullable: bool,
    /// Name of the collation.
    pub collation: Option<&'a str>,
    /// JSON path inside the field, empty for the field itself.
    pub path: &'a str,
}
impl<'a> PartSpec<'a> {
    /// A plain part.
    pub fn new(field: u32, ty: &'a str) -> Self {
        Self { field, ty, nullable: false, collation: None, path: "" }
    }
}
/// How a sequence fills the first part's field.
#[derive(Debug, Clone, Copy)]
pub enum SequenceUse<'a> {
    /// Make `<space>_seq`.
    Generate,
    /// Take an existing one.
    Existing(&'a str),
}
/// An index to be created.
#[derive(Debug, Clone, Copy)]
pub struct IndexSpec<'a> {
    /// Name.
    pub name: &'a str,
    /// Id; None: the next one.
    pub id: Option<IndexId>,
    /// Kind.
    pub kind: IndexKind,
    /// A key occurs at most once.
    pub unique: bool,
    /// Parts.
    pub parts: &'a [PartSpec<'a>],
    /// Sequence of the first part.
    pub sequence: Option<SequenceUse<'a>>,
}
impl<'a> IndexSpec<'a> {
    /// A unique tree.
    pub fn new(name: &'a str, parts: &'a [PartSpec<'a>]) -> Self {
        Self { name, id: None, kind: IndexKind::Tree, unique: true, parts, sequence: None }
    }
}
/// A sequence to be created.
#[derive(Debug, Clone, Copy)]
pub struct SequenceSpec<'a> {
    /// Name.
    pub name: &'a str,
    /// Id; None: the next one.
    pub id: Option<u32>,
    /// Step.
    pub step: i64,
    /// First value; None: min or max by the sign of the step.
    pub start: Option<i64>,
    /// Least value.
    pub min: Option<i64>,
    /// Largest value.
    pub max: Option<i64>,
    /// Begins anew instead of overflowing.
    pub cycle: bool,
}

/// Creates a space. Rows: `_schema` (only if no id is given), `_space`.
pub fn create_space(store: &mut Store, spec: &SpaceSpec<'_>) -> Result<SpaceId, Error> { todo!() }
/// Drops a space with everything that belongs to it.
pub fn drop_space(store: &mut Store, space: SpaceId) -> Result<(), Error> { todo!() }
/// Renames a space.
pub fn rename_space(store: &mut Store, space: SpaceId, name: &str) -> Result<(), Error> { todo!() }
/// Changes a space's format.
pub fn set_format(store: &mut Store, space: SpaceId, format: &[FieldSpec<'_>]) -> Result<(), Error> { todo!() }
/// Removes all tuples of a space.
pub fn truncate(store: &mut Store, space: SpaceId) -> Result<(), Error> { todo!() }
/// Creates an index.
pub fn create_index(store: &mut Store, space: SpaceId, spec: &IndexSpec<'_>) -> Result<IndexId, Error> { todo!() }
/// Renames an index.
pub fn rename_index(store: &mut Store, space: SpaceId, index: IndexId, name: &str) -> Result<(), Error> { todo!() }
/// Drops an index.
pub fn drop_index(store: &mut Store, space: SpaceId, index: IndexId) -> Result<(), Error> { todo!() }
/// Creates a sequence.
pub fn create_sequence(store: &mut Store, spec: &SequenceSpec<'_>) -> Result<u32, Error> { todo!() }
/// Drops a sequence.
pub fn drop_sequence(store: &mut Store, sequence: u32) -> Result<(), Error> { todo!() }
/// Creates a user; `hash2` is `sha1(sha1(password))`.
pub fn create_user(store: &mut Store, name: &str, hash2: Option<[u8; 20]>, if_not_exists: bool) -> Result<(), Error> { todo!() }
/// Drops a user with everything it owns.
pub fn drop_user(store: &mut Store, name: &str, if_exists: bool) -> Result<(), Error> { todo!() }
/// Sets a password.
pub fn set_password(store: &mut Store, name: &str, hash2: [u8; 20]) -> Result<(), Error> { todo!() }
/// Creates a role.
pub fn create_role(store: &mut Store, name: &str, if_not_exists: bool) -> Result<(), Error> { todo!() }
/// Drops a role.
pub fn drop_role(store: &mut Store, name: &str, if_exists: bool) -> Result<(), Error> { todo!() }
/// Grants privileges (`"read,write"`) on an object to a user or role. `object_name` is empty for the universe and for all objects of the type.
pub fn grant(store: &mut Store, grantee: &str, privileges: &str, object_type: &str, object_name: &str, if_not_exists: bool) -> Result<(), Error> { todo!() }
/// Revokes privileges.
pub fn revoke(store: &mut Store, grantee: &str, privileges: &str, object_type: &str, object_name: &str, if_exists: bool) -> Result<(), Error> { todo!() }
/// A function to be registered.
#[derive(Debug, Clone, Copy)]
pub struct FunctionSpec<'a> {
    /// Name.
    pub name: &'a str,
    /// Runs with the rights of its owner.
    pub setuid: bool,
    /// `LUA` …
    pub language: &'a str,
    /// Source text, or empty.
    pub body: &'a str,
}
/// Registers a function.
pub fn create_function(store: &mut Store, spec: &FunctionSpec<'_>, now: &str, if_not_exists: bool) -> Result<(), Error> { todo!() }
/// Forgets a function.
pub fn drop_function(store: &mut Store, name: &str, if_exists: bool) -> Result<(), Error> { todo!() }
