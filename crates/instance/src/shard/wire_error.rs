//! Errors of the inner crates as clients see them: code, class and text.
//!
//! The inner crates know no protocol; their variants carry Tarantool's names, and this is the only place where a name
//! meets its number.

use lycosa_iproto::error::{ErrorCode as C, ErrorObject};
use lycosa_store::error::Error as E;
use lycosa_tuple::format::FormatError;
use lycosa_tuple::key::KeyError;
use lycosa_tuple::update::UpdateError;

/// The error object of what the store refused.
pub(crate) fn of_store(error: &E) -> ErrorObject {
    if let E::AccessDenied { access, object_type, object_name, user } = error {
        let (access, object_type) = (access.to_string(), object_type.to_string());
        return ErrorObject::access_denied(&access, &object_type, object_name, user);
    }
    if let E::Raised(text) = error {
        return ErrorObject::lua(text.as_str());
    }
    let object = ErrorObject::client(code(error), error.to_string());
    match error {
        E::FunctionalKey { cause: Some(cause), .. } | E::FunctionalFormat { cause: Some(cause), .. } => {
            ErrorObject { cause: Some(Box::new(of_store(cause))), ..object }
        }
        _ => object,
    }
}

/// The error object of what the queue refused.
pub(crate) fn of_queue(error: &lycosa_queue::Error) -> ErrorObject {
    match error {
        lycosa_queue::Error::Store(error) => of_store(error),
        lycosa_queue::Error::ReadOnly => ErrorObject::client(C::Readonly, error.to_string()),
        lycosa_queue::Error::TakeUnknown(_) => named(
            ErrorObject::client(C::SyncRollback, error.to_string()),
            Some(crate::shard::loss::OUTCOME_UNKNOWN),
        ),
        lycosa_queue::Error::Refused { reason, .. } => {
            ErrorObject { message: error.to_string(), ..of_queue(reason) }
        }
        raised => named(ErrorObject::lua(raised.to_string()), kind_name(raised)),
    }
}

/// The error object of what an expiration task is refused for.
pub(crate) fn of_expiration(error: &lycosa_expiration::Error) -> ErrorObject {
    match error {
        lycosa_expiration::Error::Illegal(_) => ErrorObject::client(C::IllegalParams, error.to_string()),
        lycosa_expiration::Error::Store(error) => of_store(error),
        raised => ErrorObject::lua(raised.to_string()),
    }
}

/// The error object with the name of its kind, for clients that decide by it: field `name`. Code and text stay those of
/// the Lua module.
pub(crate) fn named(mut error: ErrorObject, name: Option<&'static str>) -> ErrorObject {
    error.fields.extend(name.map(|name| ("name".into(), name.to_owned())));
    error
}

fn kind_name(error: &lycosa_queue::Error) -> Option<&'static str> {
    use lycosa_queue::Error as Q;
    Some(match error {
        Q::NotTaken => "TASK_NOT_TAKEN",
        Q::StaleLease(_) => "STALE_LEASE",
        Q::NotBuried => "TASK_NOT_BURIED",
        Q::TaskNotFound(_) => "NO_SUCH_TASK",
        Q::TubeNotFound | Q::IndexNil => NO_SUCH_TUBE,
        Q::SpaceExists(_) => "TUBE_EXISTS",
        Q::UnknownTubeType(_) => "UNKNOWN_TUBE_TYPE",
        Q::TouchUnsupported(_) => "TOUCH_UNSUPPORTED",
        Q::TubeHasConsumers | Q::TubeHasTakenTasks => "TUBE_IN_USE",
        Q::UnknownUuid(_) => "NO_SUCH_SESSION",
        Q::InBatch { reason, .. } | Q::Refused { reason, .. } => return kind_name(reason),
        Q::NotConfigured => READ_ONLY,
        _ => return None,
    })
}

/// The kind of a call of a tube that does not exist.
pub(crate) const NO_SUCH_TUBE: &str = "NO_SUCH_TUBE";

/// The kind of a call of a queue that does not run because the server takes no writes.
pub(crate) const READ_ONLY: &str = "READ_ONLY";

fn code(error: &E) -> C {
    match error {
        E::IllegalParams(..) => C::IllegalParams,
        E::MemoryIssue { .. } => C::MemoryIssue,
        E::TupleFound { .. } => C::TupleFound,
        E::Unsupported { .. } => C::Unsupported,
        E::CreateSpace { .. } => C::CreateSpace,
        E::SpaceExists(..) => C::SpaceExists,
        E::DropSpace { .. } => C::DropSpace,
        E::AlterSpace { .. } => C::AlterSpace,
        E::IndexType { .. } => C::IndexType,
        E::ModifyIndex { .. } => C::ModifyIndex,
        E::LastDrop(..) => C::LastDrop,
        E::DropPrimaryKey(..) => C::DropPrimaryKey,
        E::InvalidMsgpack(..) => C::InvalidMsgpack,
        E::TupleNotArray => C::TupleNotArray,
        E::NoSuchIndexId { .. } => C::NoSuchIndexId,
        E::NoSuchSpace(..) => C::NoSuchSpace,
        E::MoreThanOneTuple => C::MoreThanOneTuple,
        E::CreateUser { .. } => C::CreateUser,
        E::DropUser { .. } => C::DropUser,
        E::NoSuchUser(..) => C::NoSuchUser,
        E::UserExists(..) => C::UserExists,
        E::UnknownSchemaObject(..) => C::UnknownSchemaObject,
        E::CreateFunction { .. } => C::CreateFunction,
        E::NoSuchFunction(..) => C::NoSuchFunction,
        E::FunctionExists(..) => C::FunctionExists,
        E::UserMax(..) => C::UserMax,
        E::NoSuchEngine(..) => C::NoSuchEngine,
        E::SavepointEmptyTx => C::SavepointEmptyTx,
        E::NoSuchSavepoint => C::NoSuchSavepoint,
        E::InvalidUuid(..) => C::InvalidUuid,
        E::ReplicasetUuidIsRo => C::ReplicasetUuidIsRo,
        E::Identifier(..) => C::Identifier,
        E::DropFunction { .. } => C::DropFunction,
        E::ReplicaMax(..) => C::ReplicaMax,
        E::NoSuchRole(..) => C::NoSuchRole,
        E::RoleExists(..) => C::RoleExists,
        E::CreateRole { .. } => C::CreateRole,
        E::IndexExists(..) => C::IndexExists,
        E::RoleLoop { .. } => C::RoleLoop,
        E::Grant(..) => C::Grant,
        E::PrivGranted { .. } => C::PrivGranted,
        E::RoleGranted { .. } => C::RoleGranted,
        E::PrivNotGranted { .. } => C::PrivNotGranted,
        E::RoleNotGranted { .. } => C::RoleNotGranted,
        E::CantUpdatePrimaryKey { .. } => C::CantUpdatePrimaryKey,
        E::GuestUserPassword => C::GuestUserPassword,
        E::UnsupportedPriv { .. } => C::UnsupportedPriv,
        E::LoadFunction { .. } => C::LoadFunction,
        E::FunctionalKey { .. } => C::FuncIndexFunc,
        E::FunctionalFormat { .. } => C::FuncIndexFormat,
        E::FunctionalParts(..) => C::FuncIndexParts,
        E::Raised(..) => C::ProcLua,
        E::FunctionLanguage { .. } => C::FunctionLanguage,
        E::WrongIndexRecord(..) => C::WrongIndexRecord,
        E::CreateForeignKey { .. } => C::CreateFkConstraint,
        E::CreateCheck { .. } => C::CreateCkConstraint,
        E::SqlSyntaxNearToken(..) => C::SqlSyntaxNearToken,
        E::SqlUnknownToken { .. } => C::SqlUnknownToken,
        E::WrongIndexParts(..) => C::WrongIndexParts,
        E::WrongIndexOptions { .. } => C::WrongIndexOptions,
        E::MemtxMaxTupleSize(..) => C::MemtxMaxTupleSize,
        E::WrongSpaceOptions { .. } => C::WrongSpaceOptions,
        E::UnsupportedIndexFeature { .. } => C::UnsupportedIndexFeature,
        E::ViewIsRo(..) => C::ViewIsRo,
        E::LocalInstanceIdIsReadOnly(..) => C::LocalInstanceIdIsReadOnly,
        E::PartialKey { .. } => C::PartialKey,
        E::TruncateSystemSpace(..) => C::TruncateSystemSpace,
        E::CreateSequence { .. } => C::CreateSequence,
        E::AlterSequence { .. } => C::AlterSequence,
        E::DropSequence { .. } => C::DropSequence,
        E::NoSuchSequence(..) => C::NoSuchSequence,
        E::SequenceExists(..) => C::SequenceExists,
        E::SequenceOverflow(..) => C::SequenceOverflow,
        E::NoSuchIndexName { .. } => C::NoSuchIndexName,
        E::SpaceFieldIsDuplicate(..) => C::SpaceFieldIsDuplicate,
        E::WrongCollationOptions { .. } => C::WrongCollationOptions,
        E::RtreeRect { .. } => C::RtreeRect,
        E::NullablePrimary(..) => C::NullablePrimary,
        E::ViewMissingSql => C::ViewMissingSql,
        E::NoSuchCollation(..) => C::NoSuchCollation,
        E::DropCollation { .. } => C::DropCollation,
        E::SessionSettingInvalidValue { .. } => C::SessionSettingInvalidValue,
        E::SequenceNotStarted(..) => C::SequenceNotStarted,
        E::ReplicaIdIsReserved(..) => C::ReplicaIdIsReserved,
        E::NoTransaction => C::NoTransaction,
        E::WrongSpaceFormat { .. } => C::WrongSpaceFormat,
        E::CantCreateCollation(..) => C::CantCreateCollation,
        E::NoSuchGroup(..) => C::NoSuchGroup,
        E::AccessDenied { .. } => C::AccessDenied,
        E::Format(error) => format_code(error),
        E::Key(error) => key_code(error),
        E::Update(error) => update_code(error),
    }
}

fn format_code(error: &FormatError) -> C {
    match error {
        FormatError::ExactFieldCount { .. } => C::ExactFieldCount,
        FormatError::FieldType { .. } => C::FieldType,
        FormatError::FieldMissing { .. } => C::FieldMissing,
        FormatError::IndexPartTypeMismatch { .. } => C::IndexPartTypeMismatch,
        FormatError::FormatMismatchIndexPart { .. } => C::FormatMismatchIndexPart,
        FormatError::ActionMismatch { .. } => C::ActionMismatch,
        FormatError::MultikeyMismatch { .. } => C::MultikeyIndexMismatch,
        FormatError::MultikeyNullable => C::Unsupported,
    }
}

fn key_code(error: &KeyError) -> C {
    match error {
        KeyError::PartType { .. } => C::KeyPartType,
        KeyError::PartCount { .. } => C::KeyPartCount,
        KeyError::ExactMatch { .. } => C::ExactMatch,
        KeyError::Malformed(_) => C::InvalidMsgpack,
    }
}

fn update_code(error: &UpdateError) -> C {
    match error {
        UpdateError::IllegalParams(..) | UpdateError::TooManySteps => C::IllegalParams,
        UpdateError::InvalidMsgpack => C::InvalidMsgpack,
        UpdateError::UpdateSplice { .. } => C::UpdateSplice,
        UpdateError::UpdateArgType { .. } => C::UpdateArgType,
        UpdateError::UnknownUpdateOp { .. } => C::UnknownUpdateOp,
        UpdateError::UpdateField { .. } => C::UpdateField,
        UpdateError::NoSuchFieldNo(..) => C::NoSuchFieldNo,
        UpdateError::NoSuchFieldName(..) => C::NoSuchFieldName,
        UpdateError::UpdateIntegerOverflow { .. } => C::UpdateIntegerOverflow,
        UpdateError::UpdateDecimalOverflow { .. } => C::UpdateDecimalOverflow,
    }
}
