//! The table of error codes: number, name and text template, each stated once.

macro_rules! error_codes {
    ($($code:literal $variant:ident $name:literal $template:literal;)*) => {
        /// A code of Tarantool 2.6.0's `box.error` table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum ErrorCode {
            $(#[doc = concat!("`", $name, "`: ", $template)] $variant = $code,)*
        }

        impl ErrorCode {
            /// Every code, ascending.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The code with this number; `None` if Tarantool 2.6.0 has none.
            pub fn from_u32(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The name under which `box.error` knows the code, such as `TUPLE_FOUND`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The text of the error, with C's `printf` conversions in place of its arguments.
            pub fn template(self) -> &'static str {
                match self {
                    $(Self::$variant => $template,)*
                }
            }
        }
    };
}

error_codes! {
    0 Unknown "UNKNOWN" "Unknown error";
    1 IllegalParams "ILLEGAL_PARAMS" "Illegal parameters, %s";
    2 MemoryIssue "MEMORY_ISSUE" "Failed to allocate %d bytes in %s for %s";
    3 TupleFound "TUPLE_FOUND" "Duplicate key exists in unique index '%s' in space '%s'";
    4 TupleNotFound "TUPLE_NOT_FOUND" "Tuple doesn't exist in index '%s' in space '%s'";
    5 Unsupported "UNSUPPORTED" "%s does not support %s";
    6 Nonmaster "NONMASTER" "Can't modify data on a replication slave. My master is: %s";
    7 Readonly "READONLY" "Can't modify data because this instance is in read-only mode.";
    8 Injection "INJECTION" "Error injection '%s'";
    9 CreateSpace "CREATE_SPACE" "Failed to create space '%s': %s";
    10 SpaceExists "SPACE_EXISTS" "Space '%s' already exists";
    11 DropSpace "DROP_SPACE" "Can't drop space '%s': %s";
    12 AlterSpace "ALTER_SPACE" "Can't modify space '%s': %s";
    13 IndexType "INDEX_TYPE" "Unsupported index type supplied for index '%s' in space '%s'";
    14 ModifyIndex "MODIFY_INDEX" "Can't create or modify index '%s' in space '%s': %s";
    15 LastDrop "LAST_DROP" "Can't drop the primary key in a system space, space '%s'";
    16 TupleFormatLimit "TUPLE_FORMAT_LIMIT" "Tuple format limit reached: %d";
    17 DropPrimaryKey "DROP_PRIMARY_KEY" "Can't drop primary key in space '%s' while secondary keys exist";
    18 KeyPartType "KEY_PART_TYPE" "Supplied key type of part %d does not match index part type: expected %s";
    19 ExactMatch "EXACT_MATCH" "Invalid key part count in an exact match (expected %d, got %d)";
    20 InvalidMsgpack "INVALID_MSGPACK" "Invalid MsgPack - %s";
    21 ProcRet "PROC_RET" "msgpack.encode: can not encode Lua type '%s'";
    22 TupleNotArray "TUPLE_NOT_ARRAY" "Tuple/Key must be MsgPack array";
    23 FieldType "FIELD_TYPE" "Tuple field %s type does not match one required by operation: expected %s";
    24 IndexPartTypeMismatch "INDEX_PART_TYPE_MISMATCH" "Field %s has type '%s' in one index, but type '%s' in another";
    25 UpdateSplice "UPDATE_SPLICE" "SPLICE error on field %s: %s";
    26 UpdateArgType "UPDATE_ARG_TYPE" "Argument type in operation '%c' on field %s does not match field type: expected %s";
    27 FormatMismatchIndexPart "FORMAT_MISMATCH_INDEX_PART" "Field %s has type '%s' in space format, but type '%s' in index definition";
    28 UnknownUpdateOp "UNKNOWN_UPDATE_OP" "Unknown UPDATE operation #%d: %s";
    29 UpdateField "UPDATE_FIELD" "Field %s UPDATE error: %s";
    30 FunctionTxActive "FUNCTION_TX_ACTIVE" "Transaction is active at return from function";
    31 KeyPartCount "KEY_PART_COUNT" "Invalid key part count (expected [0..%d], got %d)";
    32 ProcLua "PROC_LUA" "%s";
    33 NoSuchProc "NO_SUCH_PROC" "Procedure '%.*s' is not defined";
    34 NoSuchTrigger "NO_SUCH_TRIGGER" "Trigger '%s' doesn't exist";
    35 NoSuchIndexId "NO_SUCH_INDEX_ID" "No index #%d is defined in space '%s'";
    36 NoSuchSpace "NO_SUCH_SPACE" "Space '%s' does not exist";
    37 NoSuchFieldNo "NO_SUCH_FIELD_NO" "Field %d was not found in the tuple";
    38 ExactFieldCount "EXACT_FIELD_COUNT" "Tuple field count %d does not match space field count %d";
    39 FieldMissing "FIELD_MISSING" "Tuple field %s required by space format is missing";
    40 WalIo "WAL_IO" "Failed to write to disk";
    41 MoreThanOneTuple "MORE_THAN_ONE_TUPLE" "Get() doesn't support partial keys and non-unique indexes";
    42 AccessDenied "ACCESS_DENIED" "%s access to %s '%s' is denied for user '%s'";
    43 CreateUser "CREATE_USER" "Failed to create user '%s': %s";
    44 DropUser "DROP_USER" "Failed to drop user or role '%s': %s";
    45 NoSuchUser "NO_SUCH_USER" "User '%s' is not found";
    46 UserExists "USER_EXISTS" "User '%s' already exists";
    47 PasswordMismatch "PASSWORD_MISMATCH" "Incorrect password supplied for user '%s'";
    48 UnknownRequestType "UNKNOWN_REQUEST_TYPE" "Unknown request type %d";
    49 UnknownSchemaObject "UNKNOWN_SCHEMA_OBJECT" "Unknown object type '%s'";
    50 CreateFunction "CREATE_FUNCTION" "Failed to create function '%s': %s";
    51 NoSuchFunction "NO_SUCH_FUNCTION" "Function '%s' does not exist";
    52 FunctionExists "FUNCTION_EXISTS" "Function '%s' already exists";
    53 BeforeReplaceRet "BEFORE_REPLACE_RET" "Invalid return value of space:before_replace trigger: expected tuple or nil, got %s";
    54 MultistatementTransaction "MULTISTATEMENT_TRANSACTION" "Can not perform %s in a multi-statement transaction";
    55 TriggerExists "TRIGGER_EXISTS" "Trigger '%s' already exists";
    56 UserMax "USER_MAX" "A limit on the total number of users has been reached: %d";
    57 NoSuchEngine "NO_SUCH_ENGINE" "Space engine '%s' does not exist";
    58 ReloadCfg "RELOAD_CFG" "Can't set option '%s' dynamically";
    59 Cfg "CFG" "Incorrect value for option '%s': %s";
    60 SavepointEmptyTx "SAVEPOINT_EMPTY_TX" "Can not set a savepoint in an empty transaction";
    61 NoSuchSavepoint "NO_SUCH_SAVEPOINT" "Can not rollback to savepoint: the savepoint does not exist";
    62 UnknownReplica "UNKNOWN_REPLICA" "Replica %s is not registered with replica set %s";
    63 ReplicasetUuidMismatch "REPLICASET_UUID_MISMATCH" "Replica set UUID mismatch: expected %s, got %s";
    64 InvalidUuid "INVALID_UUID" "Invalid UUID: %s";
    65 ReplicasetUuidIsRo "REPLICASET_UUID_IS_RO" "Can't reset replica set UUID: it is already assigned";
    66 InstanceUuidMismatch "INSTANCE_UUID_MISMATCH" "Instance UUID mismatch: expected %s, got %s";
    67 ReplicaIdIsReserved "REPLICA_ID_IS_RESERVED" "Can't initialize replica id with a reserved value %u";
    68 InvalidOrder "INVALID_ORDER" "Invalid LSN order for instance %u: previous LSN = %llu, new lsn = %llu";
    69 MissingRequestField "MISSING_REQUEST_FIELD" "Missing mandatory field '%s' in request";
    70 Identifier "IDENTIFIER" "Invalid identifier '%s' (expected printable symbols only or it is too long)";
    71 DropFunction "DROP_FUNCTION" "Can't drop function %d: %s";
    72 IteratorType "ITERATOR_TYPE" "Unknown iterator type '%s'";
    73 ReplicaMax "REPLICA_MAX" "Replica count limit reached: %d";
    74 InvalidXlog "INVALID_XLOG" "Failed to read xlog: %lld";
    75 InvalidXlogName "INVALID_XLOG_NAME" "Invalid xlog name: expected %lld got %lld";
    76 InvalidXlogOrder "INVALID_XLOG_ORDER" "Invalid xlog order: %lld and %lld";
    77 NoConnection "NO_CONNECTION" "Connection is not established";
    78 Timeout "TIMEOUT" "Timeout exceeded";
    79 ActiveTransaction "ACTIVE_TRANSACTION" "Operation is not permitted when there is an active transaction ";
    80 CursorNoTransaction "CURSOR_NO_TRANSACTION" "The transaction the cursor belongs to has ended";
    81 CrossEngineTransaction "CROSS_ENGINE_TRANSACTION" "A multi-statement transaction can not use multiple storage engines";
    82 NoSuchRole "NO_SUCH_ROLE" "Role '%s' is not found";
    83 RoleExists "ROLE_EXISTS" "Role '%s' already exists";
    84 CreateRole "CREATE_ROLE" "Failed to create role '%s': %s";
    85 IndexExists "INDEX_EXISTS" "Index '%s' already exists";
    86 SessionClosed "SESSION_CLOSED" "Session is closed";
    87 RoleLoop "ROLE_LOOP" "Granting role '%s' to role '%s' would create a loop";
    88 Grant "GRANT" "Incorrect grant arguments: %s";
    89 PrivGranted "PRIV_GRANTED" "User '%s' already has %s access on %s%s";
    90 RoleGranted "ROLE_GRANTED" "User '%s' already has role '%s'";
    91 PrivNotGranted "PRIV_NOT_GRANTED" "User '%s' does not have %s access on %s '%s'";
    92 RoleNotGranted "ROLE_NOT_GRANTED" "User '%s' does not have role '%s'";
    93 MissingSnapshot "MISSING_SNAPSHOT" "Can't find snapshot";
    94 CantUpdatePrimaryKey "CANT_UPDATE_PRIMARY_KEY" "Attempt to modify a tuple field which is part of index '%s' in space '%s'";
    95 UpdateIntegerOverflow "UPDATE_INTEGER_OVERFLOW" "Integer overflow when performing '%c' operation on field %s";
    96 GuestUserPassword "GUEST_USER_PASSWORD" "Setting password for guest user has no effect";
    97 TransactionConflict "TRANSACTION_CONFLICT" "Transaction has been aborted by conflict";
    98 UnsupportedPriv "UNSUPPORTED_PRIV" "Unsupported %s privilege '%s'";
    99 LoadFunction "LOAD_FUNCTION" "Failed to dynamically load function '%s': %s";
    100 FunctionLanguage "FUNCTION_LANGUAGE" "Unsupported language '%s' specified for function '%s'";
    101 RtreeRect "RTREE_RECT" "RTree: %s must be an array with %d (point) or %d (rectangle/box) numeric coordinates";
    102 ProcC "PROC_C" "%s";
    103 UnknownRtreeIndexDistanceType "UNKNOWN_RTREE_INDEX_DISTANCE_TYPE" "Unknown RTREE index distance type %s";
    104 Protocol "PROTOCOL" "%s";
    105 UpsertUniqueSecondaryKey "UPSERT_UNIQUE_SECONDARY_KEY" "Space %s has a unique secondary index and does not support UPSERT";
    106 WrongIndexRecord "WRONG_INDEX_RECORD" "Wrong record in _index space: got {%s}, expected {%s}";
    107 WrongIndexParts "WRONG_INDEX_PARTS" "Wrong index parts: %s; expected field1 id (number), field1 type (string), ...";
    108 WrongIndexOptions "WRONG_INDEX_OPTIONS" "Wrong index options (field %d): %s";
    109 WrongSchemaVersion "WRONG_SCHEMA_VERSION" "Wrong schema version, current: %d, in request: %d";
    110 MemtxMaxTupleSize "MEMTX_MAX_TUPLE_SIZE" "Failed to allocate %d bytes for tuple: tuple is too large. Check 'memtx_max_tuple_size' configuration option.";
    111 WrongSpaceOptions "WRONG_SPACE_OPTIONS" "Wrong space options (field %d): %s";
    112 UnsupportedIndexFeature "UNSUPPORTED_INDEX_FEATURE" "Index '%s' (%s) of space '%s' (%s) does not support %s";
    113 ViewIsRo "VIEW_IS_RO" "View '%s' is read-only";
    114 NoTransaction "NO_TRANSACTION" "No active transaction";
    115 System "SYSTEM" "%s";
    116 Loading "LOADING" "Instance bootstrap hasn't finished yet";
    117 ConnectionToSelf "CONNECTION_TO_SELF" "Connection to self";
    118 KeyPartIsTooLong "KEY_PART_IS_TOO_LONG" "Key part is too long: %d of %d bytes";
    119 Compression "COMPRESSION" "Compression error: %s";
    120 CheckpointInProgress "CHECKPOINT_IN_PROGRESS" "Snapshot is already in progress";
    121 SubStmtMax "SUB_STMT_MAX" "Can not execute a nested statement: nesting limit reached";
    122 CommitInSubStmt "COMMIT_IN_SUB_STMT" "Can not commit transaction in a nested statement";
    123 RollbackInSubStmt "ROLLBACK_IN_SUB_STMT" "Rollback called in a nested statement";
    124 Decompression "DECOMPRESSION" "Decompression error: %s";
    125 InvalidXlogType "INVALID_XLOG_TYPE" "Invalid xlog type: expected %s, got %s";
    126 AlreadyRunning "ALREADY_RUNNING" "Failed to lock WAL directory %s and hot_standby mode is off";
    127 IndexFieldCountLimit "INDEX_FIELD_COUNT_LIMIT" "Indexed field count limit reached: %d indexed fields";
    128 LocalInstanceIdIsReadOnly "LOCAL_INSTANCE_ID_IS_READ_ONLY" "The local instance id %d is read-only";
    129 BackupInProgress "BACKUP_IN_PROGRESS" "Backup is already in progress";
    130 ReadViewAborted "READ_VIEW_ABORTED" "The read view is aborted";
    131 InvalidIndexFile "INVALID_INDEX_FILE" "Invalid INDEX file %s: %s";
    132 InvalidRunFile "INVALID_RUN_FILE" "Invalid RUN file: %s";
    133 InvalidVylogFile "INVALID_VYLOG_FILE" "Invalid VYLOG file: %s";
    134 CheckpointRollback "CHECKPOINT_ROLLBACK" "Can't start a checkpoint while in cascading rollback";
    135 VyQuotaTimeout "VY_QUOTA_TIMEOUT" "Timed out waiting for Vinyl memory quota";
    136 PartialKey "PARTIAL_KEY" "%s index  does not support selects via a partial key (expected %d parts, got %d). Please Consider changing index type to TREE.";
    137 TruncateSystemSpace "TRUNCATE_SYSTEM_SPACE" "Can't truncate a system space, space '%s'";
    138 LoadModule "LOAD_MODULE" "Failed to dynamically load module '%.*s': %s";
    139 VinylMaxTupleSize "VINYL_MAX_TUPLE_SIZE" "Failed to allocate %d bytes for tuple: tuple is too large. Check 'vinyl_max_tuple_size' configuration option.";
    140 WrongDdVersion "WRONG_DD_VERSION" "Wrong _schema version: expected 'major.minor[.patch]'";
    141 WrongSpaceFormat "WRONG_SPACE_FORMAT" "Wrong space format (field %d): %s";
    142 CreateSequence "CREATE_SEQUENCE" "Failed to create sequence '%s': %s";
    143 AlterSequence "ALTER_SEQUENCE" "Can't modify sequence '%s': %s";
    144 DropSequence "DROP_SEQUENCE" "Can't drop sequence '%s': %s";
    145 NoSuchSequence "NO_SUCH_SEQUENCE" "Sequence '%s' does not exist";
    146 SequenceExists "SEQUENCE_EXISTS" "Sequence '%s' already exists";
    147 SequenceOverflow "SEQUENCE_OVERFLOW" "Sequence '%s' has overflowed";
    148 NoSuchIndexName "NO_SUCH_INDEX_NAME" "No index '%s' is defined in space '%s'";
    149 SpaceFieldIsDuplicate "SPACE_FIELD_IS_DUPLICATE" "Space field '%s' is duplicate";
    150 CantCreateCollation "CANT_CREATE_COLLATION" "Failed to initialize collation: %s.";
    151 WrongCollationOptions "WRONG_COLLATION_OPTIONS" "Wrong collation options (field %d): %s";
    152 NullablePrimary "NULLABLE_PRIMARY" "Primary index of space '%s' can not contain nullable parts";
    153 NoSuchFieldNameInSpace "NO_SUCH_FIELD_NAME_IN_SPACE" "Field '%s' was not found in space '%s' format";
    154 TransactionYield "TRANSACTION_YIELD" "Transaction has been aborted by a fiber yield";
    155 NoSuchGroup "NO_SUCH_GROUP" "Replication group '%s' does not exist";
    156 SqlBindValue "SQL_BIND_VALUE" "Bind value for parameter %s is out of range for type %s";
    157 SqlBindType "SQL_BIND_TYPE" "Bind value type %s for parameter %s is not supported";
    158 SqlBindParameterMax "SQL_BIND_PARAMETER_MAX" "SQL bind parameter limit reached: %d";
    159 SqlExecute "SQL_EXECUTE" "Failed to execute SQL statement: %s";
    160 UpdateDecimalOverflow "UPDATE_DECIMAL_OVERFLOW" "Decimal overflow when performing operation '%c' on field %s";
    161 SqlBindNotFound "SQL_BIND_NOT_FOUND" "Parameter %s was not found in the statement";
    162 ActionMismatch "ACTION_MISMATCH" "Field %s contains %s on conflict action, but %s in index parts";
    163 ViewMissingSql "VIEW_MISSING_SQL" "Space declared as a view must have SQL statement";
    164 ForeignKeyConstraint "FOREIGN_KEY_CONSTRAINT" "Can not commit transaction: deferred foreign keys violations are not resolved";
    165 NoSuchModule "NO_SUCH_MODULE" "Module '%s' does not exist";
    166 NoSuchCollation "NO_SUCH_COLLATION" "Collation '%s' does not exist";
    167 CreateFkConstraint "CREATE_FK_CONSTRAINT" "Failed to create foreign key constraint '%s': %s";
    168 DropFkConstraint "DROP_FK_CONSTRAINT" "Failed to drop foreign key constraint '%s': %s";
    169 NoSuchConstraint "NO_SUCH_CONSTRAINT" "Constraint '%s' does not exist in space '%s'";
    170 ConstraintExists "CONSTRAINT_EXISTS" "%s constraint '%s' already exists in space '%s'";
    171 SqlTypeMismatch "SQL_TYPE_MISMATCH" "Type mismatch: can not convert %s to %s";
    172 RowidOverflow "ROWID_OVERFLOW" "Rowid is overflowed: too many entries in ephemeral space";
    173 DropCollation "DROP_COLLATION" "Can't drop collation %s : %s";
    174 IllegalCollationMix "ILLEGAL_COLLATION_MIX" "Illegal mix of collations";
    175 SqlNoSuchPragma "SQL_NO_SUCH_PRAGMA" "Pragma '%s' does not exist";
    176 SqlCantResolveField "SQL_CANT_RESOLVE_FIELD" "Can’t resolve field '%s'";
    177 IndexExistsInSpace "INDEX_EXISTS_IN_SPACE" "Index '%s' already exists in space '%s'";
    178 InconsistentTypes "INCONSISTENT_TYPES" "Inconsistent types: expected %s got %s";
    179 SqlSyntaxWithPos "SQL_SYNTAX_WITH_POS" "Syntax error at line %d at or near position %d: %s";
    180 SqlStackOverflow "SQL_STACK_OVERFLOW" "Failed to parse SQL statement: parser stack limit reached";
    181 SqlSelectWildcard "SQL_SELECT_WILDCARD" "Failed to expand '*' in SELECT statement without FROM clause";
    182 SqlStatementEmpty "SQL_STATEMENT_EMPTY" "Failed to execute an empty SQL statement";
    183 SqlKeywordIsReserved "SQL_KEYWORD_IS_RESERVED" "At line %d at or near position %d: keyword '%.*s' is reserved. Please use double quotes if '%.*s' is an identifier.";
    184 SqlSyntaxNearToken "SQL_SYNTAX_NEAR_TOKEN" "Syntax error at line %d near '%.*s'";
    185 SqlUnknownToken "SQL_UNKNOWN_TOKEN" "At line %d at or near position %d: unrecognized token '%.*s'";
    186 SqlParserGeneric "SQL_PARSER_GENERIC" "%s";
    187 SqlAnalyzeArgument "SQL_ANALYZE_ARGUMENT" "ANALYZE statement argument %s is not a base table";
    188 SqlColumnCountMax "SQL_COLUMN_COUNT_MAX" "Failed to create space '%s': space column count %d exceeds the limit (%d)";
    189 HexLiteralMax "HEX_LITERAL_MAX" "Hex literal %s%s length %d exceeds the supported limit (%d)";
    190 IntLiteralMax "INT_LITERAL_MAX" "Integer literal %s%s exceeds the supported range [-9223372036854775808, 18446744073709551615]";
    191 SqlParserLimit "SQL_PARSER_LIMIT" "%s %d exceeds the limit (%d)";
    192 IndexDefUnsupported "INDEX_DEF_UNSUPPORTED" "%s are prohibited in an index definition";
    193 CkDefUnsupported "CK_DEF_UNSUPPORTED" "%s are prohibited in a ck constraint definition";
    194 MultikeyIndexMismatch "MULTIKEY_INDEX_MISMATCH" "Field %s is used as multikey in one index and as single key in another";
    195 CreateCkConstraint "CREATE_CK_CONSTRAINT" "Failed to create check constraint '%s': %s";
    196 CkConstraintFailed "CK_CONSTRAINT_FAILED" "Check constraint failed '%s': %s";
    197 SqlColumnCount "SQL_COLUMN_COUNT" "Unequal number of entries in row expression: left side has %d, but right side - %d";
    198 FuncIndexFunc "FUNC_INDEX_FUNC" "Failed to build a key for functional index '%s' of space '%s': %s";
    199 FuncIndexFormat "FUNC_INDEX_FORMAT" "Key format doesn't match one defined in functional index '%s' of space '%s': %s";
    200 FuncIndexParts "FUNC_INDEX_PARTS" "Wrong functional index definition: %s";
    201 NoSuchFieldName "NO_SUCH_FIELD_NAME" "Field '%s' was not found in the tuple";
    202 FuncWrongArgCount "FUNC_WRONG_ARG_COUNT" "Wrong number of arguments is passed to %s(): expected %s, got %d";
    203 BootstrapReadonly "BOOTSTRAP_READONLY" "Trying to bootstrap a local read-only instance as master";
    204 SqlFuncWrongRetCount "SQL_FUNC_WRONG_RET_COUNT" "SQL expects exactly one argument returned from %s, got %d";
    205 FuncInvalidReturnType "FUNC_INVALID_RETURN_TYPE" "Function '%s' returned value of invalid type: expected %s got %s";
    206 SqlParserGenericWithPos "SQL_PARSER_GENERIC_WITH_POS" "At line %d at or near position %d: %s";
    207 ReplicaNotAnon "REPLICA_NOT_ANON" "Replica '%s' is not anonymous and cannot register.";
    208 CannotRegister "CANNOT_REGISTER" "Couldn't find an instance to register this replica on.";
    209 SessionSettingInvalidValue "SESSION_SETTING_INVALID_VALUE" "Session setting %s expected a value of type %s";
    210 SqlPrepare "SQL_PREPARE" "Failed to prepare SQL statement: %s";
    211 WrongQueryId "WRONG_QUERY_ID" "Prepared statement with id %d does not exist";
    212 SequenceNotStarted "SEQUENCE_NOT_STARTED" "Sequence '%s' is not started";
    213 NoSuchSessionSetting "NO_SUCH_SESSION_SETTING" "Session setting %s doesn't exist";
    214 UncommittedForeignSyncTxns "UNCOMMITTED_FOREIGN_SYNC_TXNS" "Found uncommitted sync transactions from other instance with id %d";
    215 SyncMasterMismatch "SYNC_MASTER_MISMATCH" "CONFIRM message arrived for an unknown master id %d, expected %d";
    216 SyncQuorumTimeout "SYNC_QUORUM_TIMEOUT" "Quorum collection for a synchronous transaction is timed out";
    217 SyncRollback "SYNC_ROLLBACK" "A rollback for a synchronous transaction is received";
    218 TupleMetadataIsTooBig "TUPLE_METADATA_IS_TOO_BIG" "Can't create tuple: metadata size %d is too big";
}

impl From<ErrorCode> for u32 {
    fn from(code: ErrorCode) -> Self {
        code as Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_codes_agree() {
        for (number, &code) in (0..).zip(ErrorCode::ALL) {
            assert_eq!(u32::from(code), number);
            assert_eq!(ErrorCode::from_u32(number), Some(code));
        }
        assert_eq!(ErrorCode::ALL.len(), 219);
        for other in [219, 1234, u32::MAX] {
            assert_eq!(ErrorCode::from_u32(other), None);
        }
    }

    #[test]
    fn names_are_those_of_box_error() {
        assert_eq!(ErrorCode::TupleFound.name(), "TUPLE_FOUND");
        assert_eq!(ErrorCode::NoSuchProc as u32, 33);
        assert_eq!(ErrorCode::NoSuchProc.template(), "Procedure '%.*s' is not defined");
        for code in ErrorCode::ALL {
            let camel: String =
                code.name().split('_').map(|word| word[..1].to_owned() + &word[1..].to_lowercase()).collect();
            assert_eq!(format!("{code:?}"), camel);
        }
    }
}
