//! Statements about a space: one change of data, or the way of a walk over an index.

use crate::error::Error;
use crate::{IndexId, SpaceId};

/// One change of data. Schema changes are statements on the system spaces.
///
/// All byte slices are one complete MessagePack value each; the store checks everything about them but that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statement<'a> {
    /// Adds a tuple; refused if its key exists in any unique index.
    Insert {
        /// The space.
        space: SpaceId,
        /// A MessagePack array.
        tuple: &'a [u8],
    },
    /// Adds a tuple or puts it in the place of the one with the same primary key.
    Replace {
        /// The space.
        space: SpaceId,
        /// A MessagePack array.
        tuple: &'a [u8],
    },
    /// Applies operations to the tuple with that key, if there is one.
    Update {
        /// The space.
        space: SpaceId,
        /// A unique index.
        index: IndexId,
        /// All parts of the index: a MessagePack array.
        key: &'a [u8],
        /// A MessagePack array of operations.
        operations: &'a [u8],
        /// Subtracted from positive field numbers of the operations (0 on the wire, 1 from Lua).
        base: i64,
    },
    /// Applies operations to the tuple with the primary key of `tuple`, or inserts `tuple` if there is none.
    Upsert {
        /// The space.
        space: SpaceId,
        /// A MessagePack array.
        tuple: &'a [u8],
        /// A MessagePack array of operations.
        operations: &'a [u8],
        /// As in `Update`.
        base: i64,
    },
    /// Removes the tuple with that key, if there is one.
    Delete {
        /// The space.
        space: SpaceId,
        /// A unique index.
        index: IndexId,
        /// All parts of the index: a MessagePack array.
        key: &'a [u8],
    },
}

/// The kind of a [`Statement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementKind {
    /// [`Statement::Insert`]
    Insert,
    /// [`Statement::Replace`]
    Replace,
    /// [`Statement::Update`]
    Update,
    /// [`Statement::Upsert`]
    Upsert,
    /// [`Statement::Delete`]
    Delete,
}

impl StatementKind {
    /// The name by which triggers know the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Replace => "REPLACE",
            Self::Update => "UPDATE",
            Self::Upsert => "UPSERT",
            Self::Delete => "DELETE",
        }
    }
}

impl Statement<'_> {
    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> StatementKind {
        match self {
            Statement::Insert { .. } => StatementKind::Insert,
            Statement::Replace { .. } => StatementKind::Replace,
            Statement::Update { .. } => StatementKind::Update,
            Statement::Upsert { .. } => StatementKind::Upsert,
            Statement::Delete { .. } => StatementKind::Delete,
        }
    }

    /// The space that the statement changes.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        match *self {
            Statement::Insert { space, .. }
            | Statement::Replace { space, .. }
            | Statement::Update { space, .. }
            | Statement::Upsert { space, .. }
            | Statement::Delete { space, .. } => space,
        }
    }
}

/// How an index is walked. The numbers are those of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum IteratorType {
    /// Equal to the key, ascending. An empty key means the whole index.
    Eq = 0,
    /// Equal to the key, descending.
    Req = 1,
    /// As `Ge` in a TREE; everything, in any order, in a HASH.
    All = 2,
    /// Less than the key, descending.
    Lt = 3,
    /// Less than or equal to the key, descending.
    Le = 4,
    /// Greater than or equal to the key, ascending.
    Ge = 5,
    /// Greater than the key, ascending.
    Gt = 6,
    /// All bits of the key are set; in a BITSET only.
    BitsAllSet = 7,
    /// Some bit of the key is set; in a BITSET only.
    BitsAnySet = 8,
    /// No bit of the key is set; in a BITSET only.
    BitsAllNotSet = 9,
    /// RTREE indexes only, which the store does not have.
    Overlaps = 10,
    /// As above.
    Neighbor = 11,
}

impl TryFrom<u32> for IteratorType {
    type Error = Error;

    fn try_from(number: u32) -> Result<Self, Error> {
        Ok(match number {
            0 => Self::Eq,
            1 => Self::Req,
            2 => Self::All,
            3 => Self::Lt,
            4 => Self::Le,
            5 => Self::Ge,
            6 => Self::Gt,
            7 => Self::BitsAllSet,
            8 => Self::BitsAnySet,
            9 => Self::BitsAllNotSet,
            10 => Self::Overlaps,
            11 => Self::Neighbor,
            _ => return Err(Error::IllegalParams("Invalid iterator type".into())),
        })
    }
}
