//! Every number of the protocol that stands for a name: keys of headers and bodies, and request types.
//!
//! Keys are one byte on the wire (a positive fixint). A header and a body share one number space, so a key means the
//! same thing wherever it is allowed.

/// Type of the request, or code of the reply (header).
pub const REQUEST_TYPE: u8 = 0x00;
/// Number by which a reply is matched with its request (header).
pub const SYNC: u8 = 0x01;
/// Id of the instance that made a row (header; body of CONFIRM and ROLLBACK).
pub const REPLICA_ID: u8 = 0x02;
/// Log sequence number (header; body of CONFIRM and ROLLBACK).
pub const LSN: u8 = 0x03;
/// Seconds since the epoch as a double (header).
pub const TIMESTAMP: u8 = 0x04;
/// Version of the schema (header).
pub const SCHEMA_VERSION: u8 = 0x05;
/// Version of the server program, packed as [`crate::greeting::Version::packed`] does (body of SUBSCRIBE).
pub const SERVER_VERSION: u8 = 0x06;
/// Replication group: 1 for rows that stay on their instance (header).
pub const GROUP_ID: u8 = 0x07;
/// LSN of the transaction's first row, stored as a difference (header).
pub const TSN: u8 = 0x08;
/// Bit 0 marks the last row of a transaction (header).
pub const FLAGS: u8 = 0x09;

/// Space.
pub const SPACE_ID: u8 = 0x10;
/// Index of the space, 0 if absent.
pub const INDEX_ID: u8 = 0x11;
/// Greatest number of tuples.
pub const LIMIT: u8 = 0x12;
/// Number of tuples to pass over.
pub const OFFSET: u8 = 0x13;
/// Iterator type.
pub const ITERATOR: u8 = 0x14;
/// Number of the first field in update operations.
pub const INDEX_BASE: u8 = 0x15;
/// Key, an array.
pub const KEY: u8 = 0x20;
/// Tuple, or the arguments of a call; for UPDATE its operations.
pub const TUPLE: u8 = 0x21;
/// Name of the function of a CALL.
pub const FUNCTION_NAME: u8 = 0x22;
/// Name of the user of an AUTH.
pub const USER_NAME: u8 = 0x23;
/// UUID of an instance, as text.
pub const INSTANCE_UUID: u8 = 0x24;
/// UUID of a replica set, as text.
pub const CLUSTER_UUID: u8 = 0x25;
/// Vector clock.
pub const VCLOCK: u8 = 0x26;
/// Program text of an EVAL.
pub const EXPRESSION: u8 = 0x27;
/// Operations of an UPSERT.
pub const OPERATIONS: u8 = 0x28;
/// Answer to a VOTE.
pub const BALLOT: u8 = 0x29;
/// Options of an SQL statement.
pub const OPTIONS: u8 = 0x2b;
/// Tuples or values of a reply.
pub const DATA: u8 = 0x30;
/// Text of an error.
pub const ERROR_TEXT: u8 = 0x31;
/// Names and types of the columns of an SQL result.
pub const METADATA: u8 = 0x32;
/// Names and types of the parameters of a prepared statement.
pub const BIND_METADATA: u8 = 0x33;
/// Number of the parameters of a prepared statement.
pub const BIND_COUNT: u8 = 0x34;
/// SQL text.
pub const SQL_TEXT: u8 = 0x40;
/// Values for the parameters of an SQL statement.
pub const SQL_BIND: u8 = 0x41;
/// Row count and generated ids of an SQL statement.
pub const SQL_INFO: u8 = 0x42;
/// Id of a prepared statement.
pub const STATEMENT_ID: u8 = 0x43;
/// Whether a replica is anonymous (body of SUBSCRIBE).
pub const REPLICA_ANON: u8 = 0x50;
/// Ids of instances whose rows a replica does not want (body of SUBSCRIBE).
pub const ID_FILTER: u8 = 0x51;
/// Error object of a reply: a map with a stack of errors.
pub const ERROR_STACK: u8 = 0x52;
/// Version of the protocol (body of ID, since Tarantool 2.10).
pub const VERSION: u8 = 0x54;
/// Features of the protocol that a peer knows (body of ID, since Tarantool 2.10).
pub const FEATURES: u8 = 0x55;
/// The epochs and the term that a replica knows (body of SUBSCRIBE). Lycosa's own: a Tarantool skips it.
pub const LINEAGE: u8 = 0x62;
/// Which history a replica's ACK is about (body of an ACK). Lycosa's own: a Tarantool skips it.
pub const CONFIRMATION: u8 = 0x63;
/// The sender honors terms (body of the answer to SUBSCRIBE). Lycosa's own: a Tarantool skips it.
pub const HONORS_TERMS: u8 = 0x64;

/// Keys inside an error object.
pub mod error_object {
    /// Array of errors, the outermost first.
    pub const STACK: u8 = 0x00;
    /// Class of the error.
    pub const TYPE: u8 = 0x00;
    /// Source file that raised it.
    pub const FILE: u8 = 0x01;
    /// Line of that file.
    pub const LINE: u8 = 0x02;
    /// Text.
    pub const MESSAGE: u8 = 0x03;
    /// `errno` of a system error, else 0.
    pub const ERRNO: u8 = 0x04;
    /// Error code.
    pub const CODE: u8 = 0x05;
    /// Map of further facts.
    pub const FIELDS: u8 = 0x06;
}

/// Keys inside a ballot, the answer to a VOTE.
pub mod ballot {
    /// Whether the instance is configured read-only.
    pub const IS_READ_ONLY_CONFIGURED: u8 = 0x01;
    /// Vclock of the instance.
    pub const VCLOCK: u8 = 0x02;
    /// Vclock of the oldest log that the instance keeps.
    pub const OLDEST_VCLOCK: u8 = 0x03;
    /// Whether the instance takes no writes, for any reason.
    pub const IS_READ_ONLY: u8 = 0x04;
    /// How many registered replicas follow the instance. Not Tarantool's: its ballots count up from 1, and it passes over
    /// keys that it does not know. In ballots of instances only that know others, or wait for replicas.
    pub const REPLICAS_FOLLOWING: u8 = 0x60;
    /// How many of them each reply waits for. Comes with [`REPLICAS_FOLLOWING`].
    pub const REPLICAS_BEFORE_REPLY: u8 = 0x61;
    /// The latest term that the instance has heard of: its number and its owner, an array. Only after a promotion.
    pub const TERM: u8 = 0x62;
    /// In ballots of a group's members only: the term of the election, and whether the member that was asked passed the
    /// request on to the leader, an array.
    pub const ELECTION: u8 = 0x63;
}

/// Bit of [`FLAGS`]: the last row of its transaction.
pub const FLAG_COMMIT: u64 = 1;
/// [`GROUP_ID`] of a row that is never replicated and counts in component 0 of the vclock.
pub const GROUP_LOCAL: u32 = 1;
/// Code of a reply that says the request succeeded.
pub const CODE_OK: u32 = 0;
/// Code of a packet that the server pushes before the reply proper.
pub const CODE_PUSH: u32 = 0x80;
/// Bit of a reply's code that makes it an error; the rest is the number of an [`crate::error::ErrorCode`].
pub const CODE_ERROR: u32 = 0x8000;
/// Extension type of an error inside data.
pub const EXT_ERROR: i8 = 3;

macro_rules! request_types {
    ($($(#[$doc:meta])* $number:literal $variant:ident;)*) => {
        /// A request type that this implementation knows, as a request or as a row of a log.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum RequestType {
            $($(#[$doc])* $variant = $number,)*
        }

        impl RequestType {
            /// The type with this number.
            pub fn from_u32(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

request_types! {
    /// Reads tuples.
    1 Select;
    /// Adds a tuple.
    2 Insert;
    /// Adds a tuple in place of the one with its primary key.
    3 Replace;
    /// Changes the tuple with a key.
    4 Update;
    /// Removes the tuple with a key.
    5 Delete;
    /// Calls a function; values come back as tuples, as before Tarantool 1.7.
    6 Call16;
    /// Changes the connection's user.
    7 Auth;
    /// Runs a program text.
    8 Eval;
    /// Inserts a tuple, or changes the existing one.
    9 Upsert;
    /// Calls a function.
    10 Call;
    /// Runs an SQL statement.
    11 Execute;
    /// A row without an effect (logs and replication only).
    12 Nop;
    /// Prepares or forgets an SQL statement.
    13 Prepare;
    /// Makes waiting synchronous rows final (logs and replication only).
    40 Confirm;
    /// Makes waiting synchronous rows void (logs and replication only).
    41 Rollback;
    /// Answers at once.
    64 Ping;
    /// Asks for all data and an id in the replica set.
    65 Join;
    /// Asks for the log from a vclock on.
    66 Subscribe;
    /// Asks for the vclock; the vote of Tarantool 1.9.
    67 VoteDeprecated;
    /// Asks for the ballot.
    68 Vote;
    /// Asks for all data without an id.
    69 FetchSnapshot;
    /// Makes an anonymous replica a named one.
    70 Register;
    /// Exchanges protocol versions and features (since Tarantool 2.10).
    73 Id;
}
