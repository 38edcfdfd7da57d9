//! The definition of a task, and its meaning for the space in its present state.

use lycosa_store::{IndexId, IndexKind, Space, SpaceId, SpaceIndex, Store, system};
use lycosa_tuple::decimal::Decimal;
use lycosa_tuple::field::FieldType;
use lycosa_tuple::mp;

use crate::deadline::Unit;
use crate::error::Error;

/// The space of the tasks.
pub(crate) const SPACE_NAME: &str = "_expiration";

/// Bytes that a task's name may have; the module of the article has 256 with the closing zero.
pub const MAX_NAME: usize = 255;
/// Microseconds of the loop that a slice may be given: the loop is not to be held for longer than 1 ms, and a slice
/// ends up to 32 tuples later.
pub const MAX_MICROSECONDS: u32 = 800;
/// Tuples that a slice may be given.
pub const MAX_ROWS: u32 = 100_000;
/// The longest `scan_time`, in seconds: a hundred years.
pub const MAX_SCAN_TIME: u64 = 3_153_600_000;

/// Spaces in which the queue, or a Lua module in its place, keeps sessions and owners. A queue that runs guards its
/// spaces; the names hold before it starts.
const BOOKKEEPING: [&str; 9] = [
    "_queue",
    "_queue_consumers",
    "_queue_taken",
    "_queue_taken_2",
    "_queue_session_ids",
    "_queue_shared_sessions",
    "_queue_inactive_sessions",
    "_lycosa_attempts",
    "_lycosa_leases",
];

/// The field that has the deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// By its number, from 1.
    Number(u32),
    /// By its name in the space's format. The name is looked up again whenever the schema changes.
    Name(String),
}

/// Where expired tuples go instead of vanishing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Archive {
    /// Each becomes the payload of a task of the tube with this name.
    Tube(String),
    /// Each replaces the tuple with its primary key in the space with this number.
    Space(SpaceId),
}

/// The budget of a slice. The first bound that is reached ends the slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Tuples that a slice looks at: 1 to [`MAX_ROWS`].
    pub rows: u32,
    /// Microseconds of the loop, the commit included as far as the [`Host`](crate::Host) foresees it: 10 to
    /// [`MAX_MICROSECONDS`].
    pub microseconds: u32,
    /// Percent of the loop's time that the task may take while it is behind: 1 to 100.
    pub share: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self { rows: 10_000, microseconds: 400, share: 45 }
    }
}

/// The orders of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Its name, unique among all tasks: 1 to [`MAX_NAME`] bytes.
    pub name: String,
    /// The space.
    pub space: SpaceId,
    /// The field with the deadline.
    pub field: Field,
    /// The field's unit.
    pub unit: Unit,
    /// The index that is walked.
    pub index: IndexId,
    /// A unique index by which tuples are deleted.
    pub delete_by: IndexId,
    /// Tuples that one transaction looks at, while the task keeps up. 0: none, the task only waits to be stopped.
    pub scan_size: u32,
    /// Seconds that a pass over an index takes which is not ordered by deadline.
    pub scan_time: u64,
    /// The bounds of a slice.
    pub budget: Budget,
    /// Where the tuples go.
    pub archive: Option<Archive>,
    /// Microseconds of lag from which on the log has a line. 0: none.
    pub lag_limit: u64,
    /// The task ends with the process.
    pub transient: bool,
    /// The task counts expired tuples, deletes nothing and ends after one pass.
    pub dry_run: bool,
}

impl Definition {
    /// Default values.
    pub const SCAN_SIZE: u32 = 1024;
    /// Default seconds of a pass.
    pub const SCAN_TIME: u64 = 3600;
    /// Default microseconds of lag from which on the log warns.
    pub const LAG_LIMIT: u64 = 60_000_000;

    /// A task over that field, with the defaults.
    #[must_use]
    pub fn new(name: &str, space: SpaceId, field: Field) -> Self {
        Self {
            name: name.to_owned(),
            space,
            field,
            unit: Unit::default(),
            index: 0,
            delete_by: 0,
            scan_size: Self::SCAN_SIZE,
            scan_time: Self::SCAN_TIME,
            budget: Budget::default(),
            archive: None,
            lag_limit: Self::LAG_LIMIT,
            transient: false,
            dry_run: false,
        }
    }

    /// Checks what does not depend on the data.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { name, budget, .. } = self;
        if name.is_empty() || name.len() > MAX_NAME {
            let length = name.len();
            return Err(Error::illegal(format!(
                "the name of an expiration task has 1 to {MAX_NAME} bytes, not {length}"
            )));
        }
        let out_of_range = |what: &str, value: u64, least: u64, most: u64| {
            Err(Error::illegal(format!("{what} is {least} to {most}, not {value}")))
        };
        if !(1..=MAX_ROWS).contains(&budget.rows) {
            return out_of_range("budget_rows", budget.rows.into(), 1, MAX_ROWS.into());
        }
        if !(10..=MAX_MICROSECONDS).contains(&budget.microseconds) {
            return out_of_range("budget_us", budget.microseconds.into(), 10, MAX_MICROSECONDS.into());
        }
        if !(1..=100).contains(&budget.share) {
            return out_of_range("share", budget.share.into(), 1, 100);
        }
        if self.scan_time > MAX_SCAN_TIME {
            return out_of_range("scan_time", self.scan_time, 0, MAX_SCAN_TIME);
        }
        Ok(())
    }

    /// What the definition means for the space as it is now.
    ///
    /// # Errors
    /// A space, index or field that does not exist, an index of the wrong kind, a space that no task may delete from.
    pub(crate) fn plan(&self, store: &Store) -> Result<Plan, Error> {
        self.check()?;
        let space = store.space(self.space)?;
        check_space(space, "delete from")?;
        let walked = index_of(space, self.index)?;
        let delete_by = index_of(space, self.delete_by)?;
        if !delete_by.is_unique() {
            return Err(Error::illegal(format!(
                "index '{}' of space '{}' is not unique: tuples are deleted by a unique index",
                delete_by.name(),
                space.name()
            )));
        }
        index_of(space, 0)?;
        let field = self.field_number(space)?;
        if let Some(Archive::Space(archive)) = self.archive {
            check_archive(store, space, archive)?;
        }
        let order = (self.scan_size > 0).then(|| Order::of(walked, field)).flatten();
        Ok(Plan { space: self.space, index: self.index, field, unit: self.unit, order })
    }

    fn field_number(&self, space: &Space) -> Result<u32, Error> {
        match &self.field {
            Field::Number(0) => Err(Error::illegal("fields are counted from 1: there is no field 0")),
            Field::Number(number) => Ok(number - 1),
            Field::Name(name) => space.field_by_name(name).ok_or_else(|| {
                Error::illegal(format!("the format of space '{}' has no field '{name}'", space.name()))
            }),
        }
    }

    /// The index of the space that is ordered by the field, or else the primary one.
    ///
    /// # Errors
    /// No such space or field.
    pub fn best_index(&self, store: &Store) -> Result<IndexId, Error> {
        let space = store.space(self.space)?;
        let field = self.field_number(space)?;
        let ordered = space.indexes().iter().find(|index| Order::of(index, field).is_some());
        Ok(ordered.map_or(0, SpaceIndex::id))
    }
}

fn index_of(space: &Space, id: IndexId) -> Result<&SpaceIndex, Error> {
    space.index(id).ok_or_else(|| {
        lycosa_store::Error::NoSuchIndexId { index: id, space: space.name().to_owned() }.into()
    })
}

/// Refuses the spaces whose rows mean something to the server itself. A tube of any name is no such space.
fn check_space(space: &Space, what: &str) -> Result<(), Error> {
    let name = space.name();
    let is_ours =
        space.id() <= system::MAX || space.is_guarded() || name == SPACE_NAME || BOOKKEEPING.contains(&name);
    if is_ours {
        return Err(Error::illegal(format!("space '{name}' is the server's own: no task may {what} it")));
    }
    if !space.engine().has_tuples() {
        return Err(Error::illegal(format!("space '{name}' keeps no tuples")));
    }
    Ok(())
}

fn check_archive(store: &Store, space: &Space, archive: SpaceId) -> Result<(), Error> {
    if archive == space.id() {
        let name = space.name();
        return Err(Error::illegal(format!("space '{name}' cannot be the archive of its own tuples")));
    }
    let missing = |_| Error::illegal(format!("the archive, space {archive}, does not exist"));
    let archive = store.space(archive).map_err(missing)?;
    check_space(archive, "archive tuples into")?;
    if archive.index(0).is_none() {
        return Err(Error::illegal(format!(
            "the archive, space '{}', has no primary index and takes no tuples: create an index first",
            archive.name()
        )));
    }
    if space.is_temporary() || !archive.is_temporary() {
        return Ok(());
    }
    Err(Error::illegal(format!(
        "space '{}' is temporary: archived tuples of '{}' would be lost with the process",
        archive.name(),
        space.name()
    )))
}

/// A definition, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) space: SpaceId,
    pub(crate) index: IndexId,
    /// From 0.
    pub(crate) field: u32,
    pub(crate) unit: Unit,
    /// How the index is ordered, if it is ordered by the field.
    pub(crate) order: Option<Order>,
}

/// The type of the field that orders an index by deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order(FieldType);

impl Order {
    fn of(index: &SpaceIndex, field: u32) -> Option<Self> {
        let part = index.key().parts().first()?;
        let is_number = matches!(
            part.ty,
            FieldType::Unsigned
                | FieldType::Integer
                | FieldType::Number
                | FieldType::Double
                | FieldType::Decimal
                | FieldType::Scalar
        );
        let is_ordered = index.kind() == IndexKind::Tree && part.field == field && part.path.is_none();
        (is_ordered && is_number).then_some(Self(part.ty))
    }

    /// The key, a MessagePack array, that a deadline of `microseconds` has in the index; rounded down to whole units where the
    /// index holds whole numbers only.
    pub(crate) fn key(self, microseconds: u64, unit: Unit) -> Vec<u8> {
        let mut key = Vec::new();
        mp::write_array(&mut key, 1);
        let exact = microseconds as f64 / unit.microseconds() as f64;
        match self.0 {
            FieldType::Unsigned | FieldType::Integer => {
                mp::write_uint(&mut key, microseconds / unit.microseconds());
            }
            FieldType::Decimal => Decimal::from_double(exact).unwrap_or(Decimal::ZERO).encode(&mut key),
            _ if microseconds.is_multiple_of(unit.microseconds()) && self.0 != FieldType::Double => {
                mp::write_uint(&mut key, microseconds / unit.microseconds());
            }
            _ => mp::write_double(&mut key, exact),
        }
        key
    }
}
