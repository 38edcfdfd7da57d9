//! Everything that a request to the store can be refused for.
//!
//! A variant is named after Tarantool's error and prints Tarantool's text, because both reach clients: programs
//! compare codes, and people search for texts.

use lycosa_tuple::format::FormatError;
use lycosa_tuple::key::KeyError;
use lycosa_tuple::update::UpdateError;

use crate::access::{Access, ObjectType};
use crate::check::SqlFault;

/// The object of [`Error::lacks`].
const LYCOSA: &str = "Lycosa";

/// Why a statement, a read or a change of the schema was refused. `Display` is the text that the client sees.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Code 1: an argument that no operation accepts.
    #[error("Illegal parameters, {0}")]
    IllegalParams(String),
    /// Code 2: the memory limit is reached.
    #[error("Failed to allocate {bytes} bytes in slab allocator for memtx_tuple")]
    MemoryIssue {
        /// Size of the tuple that did not fit.
        bytes: u64,
    },
    /// Code 3: another tuple has this key in a unique index.
    #[error("Duplicate key exists in unique index '{index}' in space '{space}'")]
    TupleFound {
        /// Name of the first index, in id order, that conflicts.
        index: String,
        /// Name of the space.
        space: String,
    },
    /// Code 5: an engine or kind of object lacks a feature.
    #[error("{object} does not support {feature}")]
    Unsupported {
        /// Who lacks it.
        object: String,
        /// The missing part.
        feature: String,
    },
    /// Code 9.
    #[error("Failed to create space '{name}': {reason}")]
    CreateSpace {
        /// Name of the space.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Code 10.
    #[error("Space '{0}' already exists")]
    SpaceExists(String),
    /// Code 11.
    #[error("Can't drop space '{name}': {reason}")]
    DropSpace {
        /// Name of the space.
        name: String,
        /// What keeps it.
        reason: String,
    },
    /// Code 12.
    #[error("Can't modify space '{name}': {reason}")]
    AlterSpace {
        /// Name of the space.
        name: String,
        /// What cannot be changed.
        reason: String,
    },
    /// Code 13.
    #[error("Unsupported index type supplied for index '{index}' in space '{space}'")]
    IndexType {
        /// Name of the index.
        index: String,
        /// Name of the space.
        space: String,
    },
    /// Code 14.
    #[error("Can't create or modify index '{index}' in space '{space}': {reason}")]
    ModifyIndex {
        /// Name of the index.
        index: String,
        /// Name of the space.
        space: String,
        /// The reason.
        reason: String,
    },
    /// Code 15.
    #[error("Can't drop the primary key in a system space, space '{0}'")]
    LastDrop(String),
    /// Code 17.
    #[error("Can't drop primary key in space '{0}' while secondary keys exist")]
    DropPrimaryKey(String),
    /// Code 20: bytes that are not what they should be.
    #[error("Invalid MsgPack - {0}")]
    InvalidMsgpack(String),
    /// Code 22.
    #[error("Tuple/Key must be MsgPack array")]
    TupleNotArray,
    /// Code 35.
    #[error("No index #{index} is defined in space '{space}'")]
    NoSuchIndexId {
        /// Id of the index.
        index: u32,
        /// Name of the space.
        space: String,
    },
    /// Code 36: the id, or the name that was asked for.
    #[error("Space '{0}' does not exist")]
    NoSuchSpace(String),
    /// Code 41.
    #[error("Get() doesn't support partial keys and non-unique indexes")]
    MoreThanOneTuple,
    /// Code 42.
    #[error("{access} access to {object_type} '{object_name}' is denied for user '{user}'")]
    AccessDenied {
        /// The operation.
        access: Access,
        /// On what kind of object.
        object_type: ObjectType,
        /// On which one; empty for the universe.
        object_name: String,
        /// The user.
        user: String,
    },
    /// Code 43.
    #[error("Failed to create user '{name}': {reason}")]
    CreateUser {
        /// Name of the user.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Code 44.
    #[error("Failed to drop user or role '{name}': {reason}")]
    DropUser {
        /// Name of the user or role.
        name: String,
        /// What keeps it.
        reason: String,
    },
    /// Code 45: the name, or the id if there is no name.
    #[error("User '{0}' is not found")]
    NoSuchUser(String),
    /// Code 46.
    #[error("User '{0}' already exists")]
    UserExists(String),
    /// Code 49.
    #[error("Unknown object type '{0}'")]
    UnknownSchemaObject(String),
    /// Code 50.
    #[error("Failed to create function '{name}': {reason}")]
    CreateFunction {
        /// Name of the function.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Code 51.
    #[error("Function '{0}' does not exist")]
    NoSuchFunction(String),
    /// Code 52.
    #[error("Function '{0}' already exists")]
    FunctionExists(String),
    /// Code 56.
    #[error("A limit on the total number of users has been reached: {0}")]
    UserMax(u32),
    /// Code 57.
    #[error("Space engine '{0}' does not exist")]
    NoSuchEngine(String),
    /// Code 60.
    #[error("Can not set a savepoint in an empty transaction")]
    SavepointEmptyTx,
    /// Code 61.
    #[error("Can not rollback to savepoint: the savepoint does not exist")]
    NoSuchSavepoint,
    /// Code 64.
    #[error("Invalid UUID: {0}")]
    InvalidUuid(String),
    /// Code 65.
    #[error("Can't reset replica set UUID: it is already assigned")]
    ReplicasetUuidIsRo,
    /// Code 67.
    #[error("Can't initialize replica id with a reserved value {0}")]
    ReplicaIdIsReserved(u32),
    /// Code 70.
    #[error("Invalid identifier '{0}' (expected printable symbols only or it is too long)")]
    Identifier(String),
    /// Code 71.
    #[error("Can't drop function {id}: {reason}")]
    DropFunction {
        /// Id of the function.
        id: u32,
        /// What keeps it.
        reason: String,
    },
    /// Code 73.
    #[error("Replica count limit reached: {0}")]
    ReplicaMax(u32),
    /// Code 82.
    #[error("Role '{0}' is not found")]
    NoSuchRole(String),
    /// Code 83.
    #[error("Role '{0}' already exists")]
    RoleExists(String),
    /// Code 84.
    #[error("Failed to create role '{name}': {reason}")]
    CreateRole {
        /// Name of the role.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Code 85.
    #[error("Index '{0}' already exists")]
    IndexExists(String),
    /// Code 87.
    #[error("Granting role '{role}' to role '{grantee}' would create a loop")]
    RoleLoop {
        /// The role that was to be granted.
        role: String,
        /// The role that was to receive it.
        grantee: String,
    },
    /// Code 88.
    #[error("Incorrect grant arguments: {0}")]
    Grant(String),
    /// Code 89.
    #[error("User '{user}' already has {access} access on {object_type}{object}")]
    PrivGranted {
        /// The grantee.
        user: String,
        /// Comma-separated names of the privileges that were asked for.
        access: String,
        /// Kind of the object.
        object_type: String,
        /// ` 'name'`, or nothing for the universe and for all objects of a kind.
        object: String,
    },
    /// Code 90.
    #[error("User '{user}' already has role '{role}'")]
    RoleGranted {
        /// The grantee.
        user: String,
        /// The role.
        role: String,
    },
    /// Code 91.
    #[error("User '{user}' does not have {access} access on {object_type} '{object}'")]
    PrivNotGranted {
        /// The grantee.
        user: String,
        /// Comma-separated names of the privileges.
        access: String,
        /// Kind of the object.
        object_type: String,
        /// Its name.
        object: String,
    },
    /// Code 92.
    #[error("User '{user}' does not have role '{role}'")]
    RoleNotGranted {
        /// The grantee.
        user: String,
        /// The role.
        role: String,
    },
    /// Code 94.
    #[error("Attempt to modify a tuple field which is part of index '{index}' in space '{space}'")]
    CantUpdatePrimaryKey {
        /// Name of the primary index.
        index: String,
        /// Name of the space.
        space: String,
    },
    /// Code 96.
    #[error("Setting password for guest user has no effect")]
    GuestUserPassword,
    /// Code 98.
    #[error("Unsupported {object_type} privilege '{privilege}'")]
    UnsupportedPriv {
        /// Kind of the object.
        object_type: String,
        /// The privilege that means nothing on it.
        privilege: String,
    },
    /// Code 99.
    #[error("Failed to dynamically load function '{function}': {reason}")]
    LoadFunction {
        /// Name of the function.
        function: String,
        /// Why its body is none.
        reason: String,
    },
    /// Code 100.
    #[error("Unsupported language '{language}' specified for function '{function}'")]
    FunctionLanguage {
        /// The language as given.
        language: String,
        /// Name of the function.
        function: String,
    },
    /// Code 101: an RTREE index has coordinates of one number for all its tuples.
    #[error("RTree: {what} must be an array with {dimension} (point) or {} (rectangle/box) numeric coordinates", dimension * 2)]
    RtreeRect {
        /// `Field` of a tuple, or `Key`.
        what: &'static str,
        /// Dimension of the index.
        dimension: u32,
    },
    /// Code 106: the number of fields is not that of a definition.
    #[error(
        "Wrong record in _index space: got {{{0}}}, expected {{space id (unsigned), index id (unsigned), name (string), type (string), options (map), parts (array)}}"
    )]
    WrongIndexRecord(String),
    /// Code 107.
    #[error("Wrong index parts: {0}; expected field1 id (number), field1 type (string), ...")]
    WrongIndexParts(String),
    /// Code 108.
    #[error("Wrong index options (field {field}): {reason}")]
    WrongIndexOptions {
        /// Field of the row, or number of the part.
        field: u32,
        /// The reason.
        reason: String,
    },
    /// Code 198: the function of an index has made no key.
    #[error("Failed to build a key for functional index '{index}' of space '{space}': {reason}")]
    FunctionalKey {
        /// Name of the index.
        index: String,
        /// Name of the space.
        space: String,
        /// The reason.
        reason: String,
        /// What the function raised.
        cause: Option<Box<Self>>,
    },
    /// Code 199: what the function of an index returned is no key of it.
    #[error(
        "Key format doesn't match one defined in functional index '{index}' of space '{space}': {reason}"
    )]
    FunctionalFormat {
        /// Name of the index.
        index: String,
        /// Name of the space.
        space: String,
        /// The reason.
        reason: String,
        /// Which part is wrong, and why.
        cause: Option<Box<Self>>,
    },
    /// Code 200.
    #[error("Wrong functional index definition: {0}")]
    FunctionalParts(String),
    /// Code 32: the text that a function raised.
    #[error("{0}")]
    Raised(String),
    /// Code 110.
    #[error(
        "Failed to allocate {0} bytes for tuple: tuple is too large. Check 'memtx_max_tuple_size' configuration option."
    )]
    MemtxMaxTupleSize(u64),
    /// Code 111.
    #[error("Wrong space options (field {field}): {reason}")]
    WrongSpaceOptions {
        /// Field of the `_space` row, from 0.
        field: u32,
        /// The reason.
        reason: String,
    },
    /// Code 112.
    #[error("Index '{index}' ({kind}) of space '{space}' ({engine}) does not support {feature}")]
    UnsupportedIndexFeature {
        /// Name of the index.
        index: String,
        /// `TREE` or `HASH`.
        kind: &'static str,
        /// Name of the space.
        space: String,
        /// Engine of the space.
        engine: &'static str,
        /// The missing part.
        feature: Box<str>,
    },
    /// Code 113.
    #[error("View '{0}' is read-only")]
    ViewIsRo(String),
    /// Code 114: no transaction was begun.
    #[error("No active transaction")]
    NoTransaction,
    /// Code 128.
    #[error("The local instance id {0} is read-only")]
    LocalInstanceIdIsReadOnly(u32),
    /// Code 136. The doubled space stands where Tarantool prints an empty name.
    #[error(
        "{kind} index  does not support selects via a partial key (expected {expected} parts, got {got}). Please Consider changing index type to TREE."
    )]
    PartialKey {
        /// `HASH`.
        kind: &'static str,
        /// Parts of the index.
        expected: u32,
        /// Parts of the key.
        got: u32,
    },
    /// Code 137.
    #[error("Can't truncate a system space, space '{0}'")]
    TruncateSystemSpace(String),
    /// Code 141.
    #[error("Wrong space format (field {field}): {reason}")]
    WrongSpaceFormat {
        /// Number of the field from 1.
        field: u32,
        /// The reason.
        reason: String,
    },
    /// Code 142.
    #[error("Failed to create sequence '{name}': {reason}")]
    CreateSequence {
        /// Name of the sequence.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Code 143.
    #[error("Can't modify sequence '{name}': {reason}")]
    AlterSequence {
        /// Name of the sequence.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Code 144.
    #[error("Can't drop sequence '{name}': {reason}")]
    DropSequence {
        /// Name of the sequence.
        name: String,
        /// What keeps it.
        reason: String,
    },
    /// Code 145.
    #[error("Sequence '{0}' does not exist")]
    NoSuchSequence(String),
    /// Code 146.
    #[error("Sequence '{0}' already exists")]
    SequenceExists(String),
    /// Code 147.
    #[error("Sequence '{0}' has overflowed")]
    SequenceOverflow(String),
    /// Code 148.
    #[error("No index '{index}' is defined in space '{space}'")]
    NoSuchIndexName {
        /// Name of the index.
        index: String,
        /// Name of the space.
        space: String,
    },
    /// Code 149.
    #[error("Space field '{0}' is duplicate")]
    SpaceFieldIsDuplicate(String),
    /// Code 150.
    #[error("Failed to initialize collation: {0}.")]
    CantCreateCollation(String),
    /// Code 151.
    #[error("Wrong collation options (field {field}): {reason}")]
    WrongCollationOptions {
        /// Field of the `_collation` row, from 0.
        field: u32,
        /// The reason.
        reason: String,
    },
    /// Code 152.
    #[error("Primary index of space '{0}' can not contain nullable parts")]
    NullablePrimary(String),
    /// Code 155.
    #[error("Replication group '{0}' does not exist")]
    NoSuchGroup(u64),
    /// Code 163.
    #[error("Space declared as a view must have SQL statement")]
    ViewMissingSql,
    /// Code 167.
    #[error("Failed to create foreign key constraint '{name}': {reason}")]
    CreateForeignKey {
        /// Name of the constraint.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Code 184: text that is no SQL expression.
    #[error("Syntax error at line 1 near '{0}'")]
    SqlSyntaxNearToken(String),
    /// Code 185.
    #[error("At line 1 at or near position {position}: unrecognized token '{token}'")]
    SqlUnknownToken {
        /// Place of the token from 1, bytes.
        position: usize,
        /// The token.
        token: String,
    },
    /// Code 195.
    #[error("Failed to create check constraint '{name}': {reason}")]
    CreateCheck {
        /// Name of the constraint.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Code 170.
    #[error("{kind} constraint '{name}' already exists in space '{space}'")]
    ConstraintExists {
        /// `PRIMARY KEY`, `UNIQUE`, `FOREIGN KEY` or `CHECK`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Name of the space.
        space: String,
    },
    /// Code 196.
    #[error("Check constraint failed '{name}': {text}")]
    CheckFailed {
        /// Name of the constraint.
        name: String,
        /// Its expression.
        text: String,
    },
    /// The expression of a check constraint has no truth: the code is SQL's.
    #[error(transparent)]
    Sql(SqlFault),
    /// Code 166.
    #[error("Collation '{0}' does not exist")]
    NoSuchCollation(String),
    /// Code 173.
    #[error("Can't drop collation {name} : {reason}")]
    DropCollation {
        /// Name of the collation.
        name: String,
        /// What keeps it.
        reason: String,
    },
    /// Code 209.
    #[error("Session setting {setting} expected a value of type {expected}")]
    SessionSettingInvalidValue {
        /// Name of the setting.
        setting: String,
        /// Type that it has.
        expected: &'static str,
    },
    /// Code 212.
    #[error("Sequence '{0}' is not started")]
    SequenceNotStarted(String),
    /// Codes 23, 24, 27, 38, 39: a tuple does not fit the space's format, or an index part contradicts it.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Codes 18, 19, 20, 31: the key does not fit the index.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Codes 25, 26, 28, 29, 37, 95, 160, 201: the update operations cannot be applied.
    #[error(transparent)]
    Update(#[from] UpdateError),
}

impl Error {
    /// What a Tarantool has and Lycosa has not.
    pub(crate) fn lacks(feature: &str) -> Self {
        Self::Unsupported { object: LYCOSA.to_owned(), feature: feature.to_owned() }
    }

    /// Whether a Tarantool would not refuse this: Lycosa lacks a feature, or has a bound of its own.
    pub(crate) fn is_ours(&self) -> bool {
        match self {
            Self::Unsupported { object, .. } => object == LYCOSA,
            Self::Sql(fault) => fault.is_ours,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results with errors are moved through every call of a cycle: a larger variant is boxed.
    #[test]
    fn errors_are_small() {
        assert!(size_of::<Error>() <= 104, "{}", size_of::<Error>());
    }
}
