//! Spaces, indexes, schema, transactions and privileges: all data, in memory, behind one door.
//!
//! A [`Store`] is a value without I/O, clock or threads. Every change is a [`Statement`] inside the one open
//! transaction; the schema is data too: rows of the system spaces (ids below 512, as Tarantool has them) define
//! spaces, indexes, users, privileges, functions and sequences, and changing a row changes the schema at once and
//! undoes it on rollback. What a committed transaction did leaves the store as [`Effect`]s, the canonical statements
//! that a journal keeps and a replica applies.
//!
//! Invariants:
//! - a tuple in a space fits the space's format, and every index of the space holds it exactly once, in
//!   its tree or deferred ([`Store::defer_entries`]), which no reader can tell;
//! - a statement that fails changes nothing, and neither does a transaction that is rolled back; sequences go back too
//!   (Tarantool's stay where they were), so that the data follow from the log alone;
//! - the schema in memory is a function of the rows of the system spaces.
//!
//! Absent: foreign keys and triggers of SQL (the rows of `_fk_constraint` and `_trigger` are checked and kept, and SQL obeys them); the
//! expressions of check constraints ([`RowCheck`]); the language of functions: a [`KeyMaker`] calls the functions
//! of functional indexes. Spaces of the engine `vinyl` are kept in memory like all spaces.

use std::cell::Cell;
use std::collections::VecDeque;

pub mod access;
pub mod arena;
mod bootstrap;
mod breaks;
mod budget;
mod check;
mod cursor;
pub mod ddl;
mod deferred;
mod digest;
pub mod effect;
pub mod error;
mod execute;
mod fifo_cache;
mod garbage;
mod handle_set;
mod hook;
pub mod index;
mod index_walk;
mod judge;
mod overwrite;
mod read_view;
mod recovery;
pub mod schema;
pub mod select;
mod sequence;
pub mod space;
mod space_index;
mod special;
pub mod statement;
#[cfg(test)]
mod tests;
pub mod transaction;
mod view;
mod vinyl;
mod weight;

pub use access::{Access, Object, ObjectType, Privacy, PrivacyTable};
pub use breaks::Breaks;
pub use budget::Budget;
pub use check::{Compiled, RowCheck, SqlFault};
pub use cursor::{Cursor, CursorError, Progress};
pub use effect::{Committed, Effect};
pub use error::Error;
pub use garbage::Retired;
pub use hook::{Decision, Hooks, Proposal, Submitted};
pub use overwrite::Overwrite;
pub use read_view::ClosedView;
pub use recovery::{IndexBuild, Origin};
pub use schema::{CompileCheck, Function, Sequence, SqlKnowledge, SqlText, User, UserKind};
pub use select::Range;
pub use space::{Engine, IndexKind, Space, SpaceIndex};
pub use space_index::Deferral;
pub use special::{KeyFault, KeyFunction, KeyMaker, MakeKeys};
pub use statement::{IteratorType, Statement, StatementKind};
pub use transaction::{Change, OwnedChange, Savepoint};

use arena::{Arena, Handle};
use effect::Effects;
use garbage::Discarded;
use read_view::ReadView;
use recovery::Phase;
use schema::Schema;
use schema::catalog::Catalog;
use transaction::Transaction;
use vinyl::VinylWrites;

/// Number of a space: 257…511 are the system's, users' begin at 512; at most 2147483647.
pub type SpaceId = u32;
/// Number of an index in its space: 0 is the primary one; at most 127.
pub type IndexId = u32;
/// Number of a user or role: 0…31 are the system's.
pub type UserId = u32;

/// Users and roles that every instance has.
pub mod user {
    use crate::UserId;

    /// The user of a connection that has not logged in.
    pub const GUEST: UserId = 0;
    /// Who may do everything; the store does not check its access.
    pub const ADMIN: UserId = 1;
    /// The role of every user.
    pub const PUBLIC: UserId = 2;
    /// The role of replicas.
    pub const REPLICATION: UserId = 3;
    /// The role that is granted everything.
    pub const SUPER: UserId = 31;
}

/// Numbers of the system spaces that other crates name.
pub mod system {
    use crate::SpaceId;

    /// `_schema`: the cluster's UUID, the largest space id handed out, the version of the system spaces.
    pub const SCHEMA: SpaceId = 272;
    /// `_collation`
    pub const COLLATION: SpaceId = 276;
    /// `_vcollation`
    pub const VCOLLATION: SpaceId = 277;
    /// `_space`
    pub const SPACE: SpaceId = 280;
    /// `_vspace`
    pub const VSPACE: SpaceId = 281;
    /// `_sequence`
    pub const SEQUENCE: SpaceId = 284;
    /// `_sequence_data`
    pub const SEQUENCE_DATA: SpaceId = 285;
    /// `_vsequence`
    pub const VSEQUENCE: SpaceId = 286;
    /// `_index`
    pub const INDEX: SpaceId = 288;
    /// `_vindex`
    pub const VINDEX: SpaceId = 289;
    /// `_func`
    pub const FUNC: SpaceId = 296;
    /// `_vfunc`
    pub const VFUNC: SpaceId = 297;
    /// `_user`
    pub const USER: SpaceId = 304;
    /// `_vuser`
    pub const VUSER: SpaceId = 305;
    /// `_priv`
    pub const PRIV: SpaceId = 312;
    /// `_vpriv`
    pub const VPRIV: SpaceId = 313;
    /// `_cluster`: instances by number, 1…31.
    pub const CLUSTER: SpaceId = 320;
    /// `_trigger`: triggers of SQL.
    pub const TRIGGER: SpaceId = 328;
    /// `_truncate`
    pub const TRUNCATE: SpaceId = 330;
    /// `_space_sequence`
    pub const SPACE_SEQUENCE: SpaceId = 340;
    /// `_fk_constraint`: foreign keys of SQL.
    pub const FK_CONSTRAINT: SpaceId = 356;
    /// `_ck_constraint`: check constraints of SQL.
    pub const CK_CONSTRAINT: SpaceId = 364;
    /// `_session_settings`: virtual, of the session; the store knows only its definition.
    pub const SESSION_SETTINGS: SpaceId = 380;
    /// `_func_index`
    pub const FUNC_INDEX: SpaceId = 372;
    /// The system spaces that every instance has.
    pub const EVERYWHERE: [SpaceId; 25] = [
        257,
        SCHEMA,
        COLLATION,
        VCOLLATION,
        SPACE,
        VSPACE,
        SEQUENCE,
        SEQUENCE_DATA,
        VSEQUENCE,
        INDEX,
        VINDEX,
        FUNC,
        VFUNC,
        USER,
        VUSER,
        PRIV,
        VPRIV,
        CLUSTER,
        TRIGGER,
        TRUNCATE,
        SPACE_SEQUENCE,
        FK_CONSTRAINT,
        CK_CONSTRAINT,
        FUNC_INDEX,
        SESSION_SETTINGS,
    ];
    /// The largest id of a system space.
    pub const MAX: SpaceId = 511;
}

/// Limits of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of tuples and indexes together beyond which nothing may grow (default 256 MiB).
    pub memory_limit: u64,
    /// Bytes of one tuple, with an overhead of 14 as Tarantool counts it (default 1 MiB).
    pub max_tuple_size: u32,
    /// Bytes of rows, about, that a transaction may have (default 960 MiB: a block of a journal holds a transaction as a whole, and at
    /// most 1 GiB).
    pub transaction_limit: u64,
    /// Calls the functions of functional indexes. Without it there are none: those of a data folder are left out, and new ones
    /// refused (default none).
    pub make_keys: Option<KeyMaker>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_limit: 256 << 20,
            max_tuple_size: 1 << 20,
            transaction_limit: 960 << 20,
            make_keys: None,
        }
    }
}

/// What the data costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// The limit of [`Settings`], bytes.
    pub limit: u64,
    /// Bytes in use by tuples and indexes.
    pub used: u64,
    /// Bytes in use by tuples, allocation overhead included.
    pub tuples: u64,
    /// Bytes in use by indexes.
    pub indexes: u64,
    /// Bytes taken from the system for tuples.
    pub reserved: u64,
}

/// Deferred index entries that a step of [`Store::read`] flushes at least, if the index has as many.
pub const FLUSH_PORTION: u64 = if cfg!(test) { 2 } else { 256 };

/// All data of an instance.
#[derive(Debug)]
pub struct Store {
    settings: Settings,
    arena: Arena,
    catalog: Catalog,
    schema: Schema,
    transaction: Transaction,
    effects: Effects,
    phase: Phase,
    /// Whether statements leave effects.
    is_logging: bool,
    replica_id: u32,
    /// A master has accepted the statement that is being executed, see [`Origin`].
    takes_history: bool,
    /// See [`Store::lift_limit`].
    limit_is_lifted: bool,
    statements_since_gauge: u32,
    /// Indexes and tuples that wait for their memory to be given back.
    garbage: Vec<Discarded>,
    /// Number of spaces that have hooks; one that was dropped may still be counted. One more with [`Self::has_functional`].
    hooked_spaces: usize,
    /// A functional index has been made.
    has_functional: bool,
    /// The hooks have seen what the open transaction did.
    hooks_run: bool,
    /// Committed changes that hooks have to learn of.
    reported: VecDeque<OwnedChange>,
    /// The view that is open.
    view: Option<Box<ReadView>>,
    /// Compiles the body of a function in Lua and returns the fault, if any; without a compiler every body passes.
    check_body: Option<BodyCheck>,
    /// Decides about views, triggers and check constraints of SQL; without it new ones are refused.
    sql: Option<SqlKnowledge>,
    /// The work that the check constraints of a transaction may do yet, and the number of that transaction.
    check_work: Cell<(u64, u64)>,
    /// Spaces of vinyl that were defined lately, of which the log warns.
    new_vinyl: Vec<SpaceId>,
    vinyl_writes: VinylWrites,
    /// An empty buffer, kept for its allocation: statements make tuples in it.
    scratch: Vec<u8>,
    /// The same for tuples that are deleted together.
    run: Vec<Handle>,
}

/// Says of the text of a function in Lua why it is none.
pub type BodyCheck = fn(&str) -> Result<(), String>;

impl Store {
    /// A store that has the definitions of the system spaces but no rows: ready for a snapshot to be loaded with
    /// [`Store::recover`], or for [`Store::bootstrap`].
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mut store = Self {
            settings,
            arena: Arena::new(),
            catalog: Catalog::default(),
            schema: Schema::default(),
            transaction: Transaction::default(),
            effects: Effects::default(),
            phase: Phase::Snapshot,
            is_logging: true,
            replica_id: 0,
            takes_history: false,
            limit_is_lifted: false,
            statements_since_gauge: 0,
            garbage: Vec::new(),
            hooked_spaces: 0,
            has_functional: false,
            hooks_run: false,
            reported: VecDeque::new(),
            view: None,
            check_body: None,
            sql: None,
            check_work: Cell::default(),
            new_vinyl: Vec::new(),
            vinyl_writes: VinylWrites::default(),
            scratch: Vec::new(),
            run: Vec::new(),
        };
        store.define_system_spaces();
        // A truncation, and the reset of a sequence that goes with it, free space. Accounts and grants are an administrator's, who
        // has to act on a full store too; promotions, epochs and replicas are rows of `_schema` and `_cluster`. Users and objects
        // have limits, and so do the rows about them.
        for space in [
            system::TRUNCATE,
            system::SEQUENCE_DATA,
            system::SCHEMA,
            system::CLUSTER,
            system::USER,
            system::PRIV,
        ] {
            store.exempt_from_limit(space);
        }
        store
    }

    /// The limits.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Lets `check` decide about the bodies of functions in Lua that are created from now on: the store knows no Lua.
    pub fn set_body_check(&mut self, check: BodyCheck) {
        self.check_body = Some(check);
    }

    /// Lets the space grow beyond the memory limit, as long as the process runs: for small rows without which the data
    /// could not be worked off (the owner of a task, for example).
    pub fn exempt_from_limit(&mut self, space: SpaceId) {
        if let Some(space) = self.catalog.get_mut(space) {
            space.beyond_limit = true;
        }
    }

    /// Whether the space grows beyond the memory limit.
    #[must_use]
    pub fn is_exempt_from_limit(&self, space: SpaceId) -> bool {
        self.space(space).is_ok_and(|space| space.beyond_limit)
    }

    /// Lifts the limits of memory and transactions and the check constraints for the statements to come, or restores them: for definitions
    /// and rows without which the data that exist could not be loaded or worked off. Returns whether they were lifted.
    pub fn lift_limit(&mut self, is_lifted: bool) -> bool {
        std::mem::replace(&mut self.limit_is_lifted, is_lifted)
    }

    /// Gives the spaces with these names their privacy, those too that are created or renamed later, as long as the
    /// process runs. The spaces with other names are open.
    pub fn set_privacy(&mut self, table: PrivacyTable) {
        self.catalog.set_privacy(table);
    }

    /// Lets the definition of the space and of its indexes stay as it is, as long as the process runs or until it is set free again:
    /// part of the program could not start without it.
    pub fn guard(&mut self, space: SpaceId, is_guarded: bool) {
        if let Some(space) = self.catalog.get_mut(space) {
            space.is_guarded = is_guarded;
        }
    }

    /// Lets an index defer entries, as long as the process runs. Reads see them all the same.
    ///
    /// An index that may have to refuse a tuple stays as it is: the primary one, and one that is unique unless its
    /// key holds that of the primary one. Entries that the index holds already stay in its tree.
    pub fn defer_entries(&mut self, space: SpaceId, index: IndexId, deferral: Deferral<'_>) {
        let Some(space) = self.catalog.get_mut(space) else { return };
        let Some(primary) = space.primary_key().cloned() else { return };
        if let Some(index) = space.index_mut(index).filter(|index| index.def.id != 0) {
            index.defer_entries(&primary, deferral);
        }
    }

    /// The store, to read any part of an index: its deferred entries are flushed. The few are flushed at once, those
    /// [beyond a bound](Deferral::Beyond) at most `budget` at a time, or [`FLUSH_PORTION`] if that is more. `None`:
    /// more are left; the reader lets others have a turn and calls again.
    ///
    /// Reads are right without it, and merge deferred entries. With many entries beyond the bound such a read would hold up
    /// the loop for up to 0.2 s for each million tuples.
    ///
    /// # Errors
    /// No such space or index.
    pub fn read(&mut self, space: SpaceId, index: IndexId, budget: u64) -> Result<Option<&Self>, Error> {
        if self.space(space)?.require_index(index)?.has_deferred() {
            let index = self.catalog.get_mut(space).and_then(|space| space.index_mut(index));
            if index.is_some_and(|index| !index.flush(&self.arena, budget.max(FLUSH_PORTION))) {
                return Ok(None);
            }
        }
        Ok(Some(self))
    }

    /// Changes the memory limit, in bytes. Tuples above it stay.
    pub fn set_memory_limit(&mut self, bytes: u64) {
        self.settings.memory_limit = bytes;
        self.gauge_indexes();
    }

    /// Changes the size of the largest tuple, in bytes. Larger ones stay.
    pub fn set_max_tuple_size(&mut self, bytes: u32) {
        self.settings.max_tuple_size = bytes;
    }

    /// Takes the place of `former`, whose last changes are void: takes over its settings, its checks of bodies and of SQL, and the hooks of
    /// its spaces that this store has too, under the same number and name. The schema and the rights get
    /// versions that nothing has seen.
    pub fn succeed(&mut self, former: &Store) {
        self.settings = former.settings;
        self.check_body = former.check_body;
        self.sql = former.sql;
        // Programs may hold savepoints and proposals of the former transactions.
        self.transaction.count_on_from(&former.transaction);
        self.catalog.set_privacy(former.catalog.privacy());
        self.schema.version = self.schema.version.max(former.schema.version) + 1;
        let access = &mut self.schema.users.version;
        *access = (*access).max(former.schema.users.version) + 1;
        for space in former.catalog.iter().filter(|space| space.hooks.any()) {
            if self.space(space.id()).is_ok_and(|own| own.name() == space.name()) {
                let hooked = self.set_hooks(space.id(), space.hooks);
                debug_assert!(hooked.is_ok(), "a space with hooks has tuples");
            }
        }
        self.gauge_indexes();
    }

    /// Takes a space of vinyl that was defined since the last call and exists.
    pub fn take_new_vinyl(&mut self) -> Option<&Space> {
        while let Some(id) = self.new_vinyl.pop() {
            if self.catalog.get(id).is_some_and(|space| space.def.engine == Engine::Vinyl) {
                return self.catalog.get(id);
            }
        }
        None
    }

    /// Grows by one with each change of a row of `_space` or `_index`, and when such a change is undone.
    #[must_use]
    pub fn schema_version(&self) -> u32 {
        self.schema.version
    }

    /// What the data costs.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let indexes = self.catalog.index_memory();
        let tuples = self.arena.used_bytes();
        Memory {
            limit: self.settings.memory_limit,
            used: tuples + indexes,
            tuples,
            indexes,
            reserved: self.arena.reserved_bytes(),
        }
    }
}
