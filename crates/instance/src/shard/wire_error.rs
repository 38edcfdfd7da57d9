//! Errors of the inner crates as clients see them: code, class and text.
//!
//! The inner crates know no protocol; their variants carry Tarantool's names, and this is the only place where a name
//! meets its number.

use lycosa_iproto::error::{ErrorCode as C, ErrorObject};
use lycosa_store::error::Error as E;
use lycosa_tuple::format::FormatError;
use lycosa_tuple::key::KeyError;
use lycosa_tuple::update::UpdateError;

/// The result of what a client or a program may be refused.
pub type Result<T, E = ErrorObject> = std::result::Result<T, E>;

/// The name of the kind of error (field `name` of the error object) of a request whose rows were lost.
pub const OUTCOME_UNKNOWN: &str = "OUTCOME_UNKNOWN";

/// Results of the inner crates as clients see them.
pub(crate) trait OnWire<T> {
    /// Turns the refusal into the error object that a client sees.
    fn on_wire(self) -> Result<T>;
}

macro_rules! on_wire {
    ($($refused:ty => $object:ident),*) => { $(
        impl<T> OnWire<T> for Result<T, $refused> {
            #[inline]
            fn on_wire(self) -> Result<T> {
                self.map_err(|error| $object(&error))
            }
        }
    )* };
}

on_wire! { E => of_store, lycosa_queue::Error => of_queue, lycosa_expiration::Error => of_expiration }

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
        lycosa_queue::Error::TakeUnknown(_) => {
            ErrorObject::client(C::SyncRollback, error.to_string()).with_name(OUTCOME_UNKNOWN)
        }
        lycosa_queue::Error::Refused { reason, .. } => {
            ErrorObject { message: error.to_string(), ..of_queue(reason) }
        }
        raised => {
            let error = ErrorObject::lua(raised.to_string());
            match kind_name(raised) {
                Some(name) => error.with_name(name),
                None => error,
            }
        }
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

/// The error about a parameter of a call.
pub(crate) fn illegal(reason: &str) -> ErrorObject {
    ErrorObject::client(C::IllegalParams, format!("Illegal parameters, {reason}"))
}

/// The name of the error's kind, by which clients may decide. The code and the text are the Lua module's.
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

/// A match in which an error has the code of its own name, but for the arms behind it.
macro_rules! code_of {
    ($error:ident; $( $same:ident ),*; $( $pattern:pat => $code:expr, )*) => {
        match $error {
            $( E::$same { .. } => C::$same, )*
            $( $pattern => $code, )*
        }
    };
}

fn code(error: &E) -> C {
    code_of! {
        error;
            IllegalParams, MemoryIssue, TupleFound, Unsupported, CreateSpace, SpaceExists, DropSpace,
            AlterSpace, IndexType, ModifyIndex, LastDrop, DropPrimaryKey, InvalidMsgpack, TupleNotArray,
            NoSuchIndexId, NoSuchSpace, MoreThanOneTuple, CreateUser, DropUser, NoSuchUser, UserExists,
            UnknownSchemaObject, CreateFunction, NoSuchFunction, FunctionExists, UserMax, NoSuchEngine,
            SavepointEmptyTx, NoSuchSavepoint, InvalidUuid, ReplicasetUuidIsRo, Identifier, DropFunction,
            ReplicaMax, NoSuchRole, RoleExists, CreateRole, IndexExists, RoleLoop, Grant, PrivGranted,
            RoleGranted, PrivNotGranted, RoleNotGranted, CantUpdatePrimaryKey, GuestUserPassword,
            UnsupportedPriv, LoadFunction, FunctionLanguage, WrongIndexRecord, SqlSyntaxNearToken,
            SqlUnknownToken, WrongIndexParts, WrongIndexOptions, MemtxMaxTupleSize, WrongSpaceOptions,
            UnsupportedIndexFeature, ViewIsRo, LocalInstanceIdIsReadOnly, PartialKey, TruncateSystemSpace,
            CreateSequence, AlterSequence, DropSequence, NoSuchSequence, SequenceExists, SequenceOverflow,
            NoSuchIndexName, SpaceFieldIsDuplicate, WrongCollationOptions, RtreeRect, NullablePrimary,
            ViewMissingSql, NoSuchCollation, DropCollation, SessionSettingInvalidValue, SequenceNotStarted,
            ReplicaIdIsReserved, NoTransaction, WrongSpaceFormat, CantCreateCollation, NoSuchGroup,
            AccessDenied, ConstraintExists;
            E::FunctionalKey { .. } => C::FuncIndexFunc,
            E::FunctionalFormat { .. } => C::FuncIndexFormat,
            E::FunctionalParts(..) => C::FuncIndexParts,
            E::Raised(..) => C::ProcLua,
            E::CreateForeignKey { .. } => C::CreateFkConstraint,
            E::CreateCheck { .. } => C::CreateCkConstraint,
            E::CheckFailed { .. } => C::CkConstraintFailed,
            E::Sql(fault) => C::from_u32(fault.code).unwrap_or(C::SqlExecute),
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
