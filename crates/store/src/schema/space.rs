//! Rows of `_space`: definitions of spaces, and what happens to a space when its row changes.

use std::collections::HashSet;

use lycosa_tuple::field::FieldType;
use lycosa_tuple::format::{FieldDef, Refusal};
use lycosa_tuple::mp::{Kind, Reader};
use lycosa_tuple::tuple::TupleRef;

use crate::access::{Access, ObjectType};
use crate::arena::Handle;
use crate::error::Error;
use crate::schema::expression::check_default;
use crate::schema::row::{OptionType, Options, Row};
use crate::schema::{Collations, SchemaObject};
use crate::space::Space;
use crate::transaction::SchemaUndo;
use crate::{SpaceId, Store, UserId, system};

/// The longest name of an engine, in bytes.
const ENGINE_NAME_MAX: usize = 16;

const ENGINE_TOO_LONG: &str = "space engine name is too long";

/// Where a space's tuples live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Engine {
    /// In memory.
    Memtx,
    /// Named `vinyl`, for data folders and programs that ask for it; the tuples are in memory all the same.
    Vinyl,
    /// Nowhere: a view of a system space.
    Sysview,
    /// Nowhere: statements are logged and forgotten.
    Blackhole,
    /// In the session (`_session_settings`); the store has only the definition.
    Service,
}

impl Engine {
    /// The name as `_space` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memtx => "memtx",
            Self::Vinyl => "vinyl",
            Self::Sysview => "sysview",
            Self::Blackhole => "blackhole",
            Self::Service => "service",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Memtx, Self::Vinyl, Self::Sysview, Self::Blackhole, Self::Service]
            .into_iter()
            .find(|engine| engine.name() == name)
    }

    /// Whether the store holds tuples of such spaces.
    #[must_use]
    pub const fn has_tuples(self) -> bool {
        matches!(self, Self::Memtx | Self::Vinyl)
    }
}

/// The collation that stands for none.
pub(crate) const NO_COLLATION: u64 = 0;

/// Largest id of a space.
const ID_MAX: u32 = 0x7fff_ffff;

/// A row of `_space`, decoded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SpaceDef {
    pub(crate) id: SpaceId,
    pub(crate) owner: UserId,
    pub(crate) name: String,
    pub(crate) engine: Engine,
    pub(crate) field_count: u32,
    pub(crate) temporary: bool,
    pub(crate) local: bool,
    pub(crate) sync: bool,
    pub(crate) view: bool,
    pub(crate) fields: Vec<FieldDef>,
}

impl SpaceDef {
    pub(crate) const OPTIONS: [(&'static str, OptionType); 6] = [
        ("group_id", OptionType::Unsigned),
        ("temporary", OptionType::Boolean),
        ("view", OptionType::Boolean),
        ("is_sync", OptionType::Boolean),
        ("sql", OptionType::String),
        ("checks", OptionType::Array),
    ];

    /// Decodes a row. `is_altered`: it changes a space. A `lenient` decoding takes
    /// defaults as they are: the rows of a data folder are history that cannot be refused. `sql` checks a default that is no literal.
    pub(crate) fn decode(
        row: Row<'_>,
        is_altered: bool,
        collations: &Collations,
        lenient: bool,
        sql: &dyn Fn(&str) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let wrong = |name: String, reason: &str| {
            let reason = reason.to_owned();
            if is_altered { Error::AlterSpace { name, reason } } else { Error::CreateSpace { name, reason } }
        };
        let name = row.name(2, |start| wrong(start, "space name is too long"))?;
        let id = row.uint(0)?;
        let id = u32::try_from(id).ok().filter(|&id| id <= ID_MAX);
        let id = id.ok_or_else(|| wrong(name.clone(), "space id is too big"))?;
        if id == 0 {
            return Err(wrong(name, "space id 0 is reserved"));
        }
        let owner = row.id(1)?;
        let field_count = row.id(4)?;
        let engine = row.name(3, |_| wrong(name.clone(), ENGINE_TOO_LONG))?;
        if engine.len() > ENGINE_NAME_MAX {
            return Err(wrong(name, ENGINE_TOO_LONG));
        }
        let options = Options::read(row.raw(5)?, &Self::OPTIONS, false, |reason| Error::WrongSpaceOptions {
            field: 5,
            reason,
        })?;
        let wrong_field = |reason: String| wrong(name.clone(), &reason);
        let fields = decode_format(row.raw(6)?, collations, lenient, sql, &wrong_field)?;
        if field_count != 0 && (field_count as usize) < fields.len() {
            return Err(wrong(name, "exact_field_count must be either 0 or >= formatted field count"));
        }
        let group = options.uint("group_id").unwrap_or(0);
        if group > 1 {
            return Err(Error::NoSuchGroup(group));
        }
        let view = options.bool("view").unwrap_or(false);
        if view && options.raw("sql").is_none() {
            return Err(Error::ViewMissingSql);
        }
        let (local, sync) = (group == 1, options.bool("is_sync").unwrap_or(false));
        if local && sync {
            return Err(wrong(name, "local space can't be synchronous"));
        }
        let temporary = options.bool("temporary").unwrap_or(false);
        let engine = Engine::parse(&engine).ok_or(Error::NoSuchEngine(engine))?;
        if temporary && engine == Engine::Vinyl {
            return Err(Error::AlterSpace { name, reason: "engine does not support temporary flag".into() });
        }
        Ok(Self { id, owner, name, engine, field_count, temporary, local, sync, view, fields })
    }
}

/// Whether all keys of a map are strings; `None` for a value of another type.
fn has_text_keys(entry: &[u8]) -> Option<bool> {
    let mut reader = Reader::new(entry);
    for _ in 0..reader.map().ok()? {
        if reader.skip_kind().ok()? != Kind::Str {
            return Some(false);
        }
        reader.skip().ok()?;
    }
    Some(true)
}

/// Decodes field 7 of a row: the declared fields.
fn decode_format(
    format: &[u8],
    collations: &Collations,
    lenient: bool,
    sql: &dyn Fn(&str) -> Result<(), Error>,
    wrong: &dyn Fn(String) -> Error,
) -> Result<Vec<FieldDef>, Error> {
    const KNOWN: [(&str, OptionType); 6] = [
        ("name", OptionType::String),
        ("type", OptionType::Enum),
        ("is_nullable", OptionType::Boolean),
        ("nullable_action", OptionType::Enum),
        ("collation", OptionType::Unsigned),
        ("default", OptionType::String),
    ];
    let mut fields: Vec<FieldDef> = Vec::new();
    let mut names = HashSet::new();
    for (number, entry) in (1..).zip(TupleRef::trusted(format).fields()) {
        match has_text_keys(entry) {
            None => return Err(wrong(format!("field {number} is not map"))),
            Some(false) => return Err(wrong(format!("field {number} format is not map with string keys"))),
            Some(true) => {}
        }
        let options =
            Options::read(entry, &KNOWN, true, |reason| Error::WrongSpaceFormat { field: number, reason })?;
        let name = options.bytes("name").unwrap_or_default();
        if name.is_empty() {
            return Err(wrong(format!("field {number} name is not specified")));
        }
        if name.len() > 65000 {
            return Err(wrong(format!("field {number} name is too long")));
        }
        let name = String::from_utf8_lossy(name);
        let ty = match options.text("type") {
            None => FieldType::Any,
            Some(ty) => FieldType::parse(&ty)
                .ok_or_else(|| wrong(format!("field {number} has unknown field type")))?,
        };
        let nullable = is_nullable(&options).map_err(|problem| {
            wrong(match problem {
                NullableProblem::Unknown => {
                    format!("field {number} has unknown field on conflict nullable action")
                }
                NullableProblem::Conflict => {
                    format!("field {number} has conflicting nullability and nullable action properties")
                }
            })
        })?;
        if let Some(collation) = options.uint("collation").filter(|&id| id != NO_COLLATION) {
            if !matches!(ty, FieldType::String | FieldType::Scalar | FieldType::Any) {
                return Err(wrong(
                    "collation is reasonable only for string, scalar and any fields".to_owned(),
                ));
            }
            if !collations.contains(collation) {
                let reason = "collation was not found by ID".to_owned();
                return Err(Error::WrongCollationOptions { field: number, reason });
            }
        }
        if let Some(default) = options.text("default").filter(|_| !lenient) {
            check_default(&default, sql)?;
        }
        // A format has as many fields as fit a tuple, so no name is compared with all others.
        if !names.insert(name.clone()) {
            return Err(Error::SpaceFieldIsDuplicate(name.into_owned()));
        }
        fields.push(FieldDef { name: name.into_owned(), ty, nullable, refusal: refusal(&options) });
    }
    Ok(fields)
}

/// Spaces of vinyl that the log warns of in one turn.
const MAX_NEW_VINYL: usize = 16;

/// What can be wrong between `is_nullable` and `nullable_action`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NullableProblem {
    Unknown,
    Conflict,
}

/// Reads the pair of options that say whether a field or part may be nil: a `nullable_action` of `none` says the same as
/// `is_nullable`, and any other one the opposite.
pub(crate) fn is_nullable(options: &Options<'_>) -> Result<bool, NullableProblem> {
    const ACTIONS: [&str; 7] = ["none", "rollback", "abort", "fail", "ignore", "replace", "default"];
    let nullable = options.bool("is_nullable").unwrap_or(false);
    match options.text("nullable_action") {
        None => Ok(nullable),
        Some(action) if !ACTIONS.iter().any(|known| known.eq_ignore_ascii_case(&action)) => {
            Err(NullableProblem::Unknown)
        }
        Some(action) if action.eq_ignore_ascii_case("none") == nullable => Ok(nullable),
        Some(_) => Err(NullableProblem::Conflict),
    }
}

/// How a nil is refused, as `nullable_action` says.
pub(crate) fn refusal(options: &Options<'_>) -> Refusal {
    let action = options.text("nullable_action").filter(|action| !action.eq_ignore_ascii_case("none"));
    action.map_or(Refusal::Default, |action| Refusal::parse(&action))
}

impl Store {
    /// A row of `_space` was replaced, added or removed.
    pub(crate) fn space_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        match (old, new) {
            (_, Some(new)) => self.define_space(new),
            (Some(old), None) => self.drop_space(Row::new(self.arena.get(old)).id(0)?),
            (None, None) => Ok(()),
        }
    }

    /// A row was written: a new space, or another definition of an existing one (those of the system always exist).
    fn define_space(&mut self, row: Handle) -> Result<(), Error> {
        let row = Row::new(self.arena.get(row));
        let id = row.uint(0)?;
        let present = u32::try_from(id).ok().and_then(|id| self.catalog.get(id));
        let (collations, is_history) = (&self.schema.collations, self.is_history());
        let def = SpaceDef::decode(row, present.is_some(), collations, is_history, &|text| {
            self.check_default(text)
        })?;
        let Some(present) = present else {
            let object =
                SchemaObject { kind: ObjectType::Space, id: def.id, owner: def.owner, name: &def.name };
            self.check_schema_access(object, Access::CREATE)?;
            if def.engine == Engine::Service && !system::EVERYWHERE.contains(&def.id) {
                let feature = "non-system space with 'service' engine.".into();
                return Err(Error::Unsupported { object: "Tarantool".into(), feature });
            }
            self.check_supported(&def, None)?;
            if def.view && !self.is_history() {
                self.check_view(row)?;
            }
            self.undo_schema(SchemaUndo::SpaceAdded(def.id));
            if def.engine == Engine::Vinyl && !self.is_recovering() && self.new_vinyl.len() < MAX_NEW_VINYL {
                self.new_vinyl.push(def.id);
            }
            self.vinyl_writes.space_defined(def.engine);
            self.catalog.insert(Box::new(Space::new(def)));
            self.schema.bump_version();
            return Ok(());
        };
        let object = SchemaObject::of_space(present);
        self.check_schema_access(object, Access::ALTER)?;
        self.check_alteration(present, &def)?;
        self.check_owner_stays(SchemaObject::of_space(present), def.owner)?;
        self.check_supported(&def, Some(&present.def))?;
        let id = def.id;
        let format =
            Space::format_with(&def, present.indexes.iter().map(|index| &index.def), self.is_history())?;
        if !self.is_loading() {
            for handle in present.handles(&self.arena) {
                let tuple = TupleRef::trusted(self.arena.get(handle));
                if self.is_history() { format.check_stored(tuple) } else { format.check(tuple) }?;
            }
        }
        if let Some((def, format)) = self.catalog.redefine(id, def, format) {
            self.undo_schema(SchemaUndo::SpaceAltered { def: Box::new(def), format: Box::new(format) });
        }
        self.check_checks(id)?;
        self.schema.bump_version();
        Ok(())
    }

    /// What a space of a Tarantool's folder may be, and a new one may not.
    fn check_supported(&self, def: &SpaceDef, present: Option<&SpaceDef>) -> Result<(), Error> {
        if self.is_history() {
            Ok(())
        } else if def.sync && !present.is_some_and(|present| present.sync) {
            Err(Error::lacks("synchronous spaces"))
        } else if present.is_some_and(|present| present != def) && system::EVERYWHERE.contains(&def.id) {
            let name = present.map_or("", |present| present.name.as_str());
            Err(Error::lacks(&format!("changes of the system space '{name}'")))
        } else {
            Ok(())
        }
    }

    /// Whether the definition of the space may change.
    pub(crate) fn check_guard(&self, space: &Space) -> Result<(), Error> {
        if !space.is_guarded || self.is_history() {
            return Ok(());
        }
        let reason = "the server needs it as it is and could not start otherwise".to_owned();
        Err(Error::AlterSpace { name: space.def.name.clone(), reason })
    }

    /// What cannot be changed in a space.
    fn check_alteration(&self, present: &Space, def: &SpaceDef) -> Result<(), Error> {
        if *def != present.def {
            self.check_guard(present)?;
        }
        let now = &present.def;
        let reason = if now.engine != def.engine {
            "can not change space engine"
        } else if now.view != def.view {
            "can not convert a space to a view and vice versa"
        } else if now.local != def.local {
            "replication group is immutable"
        } else if now.temporary != def.temporary && !present.is_empty() {
            "can not switch temporary flag on a non-empty space"
        } else if now.name != def.name && !self.is_history() && self.is_read_by_view(def.id) {
            "can not rename space which is referenced by view"
        } else {
            return Ok(());
        };
        Err(Error::AlterSpace { name: now.name.clone(), reason: reason.to_owned() })
    }

    fn drop_space(&mut self, id: SpaceId) -> Result<(), Error> {
        let Some(space) = self.catalog.get(id) else {
            return Ok(());
        };
        self.check_schema_access(SchemaObject::of_space(space), Access::DROP)?;
        if system::EVERYWHERE.contains(&id) && space.indexes.is_empty() && !self.is_history() {
            // Another space under its number keeps a Tarantool from reading the next snapshot.
            return Err(Error::lacks(&format!("changes of the system space '{}'", space.def.name)));
        }
        self.check_guard(space)?;
        let reason = if !space.indexes.is_empty() {
            "the space has indexes"
        } else if self.schema.users.has_grants(ObjectType::Space, id) {
            "the space has grants"
        } else if self.has_rows(system::TRUNCATE, 0, &[id]) {
            "the space has truncate record"
        } else if !self.is_history() && self.is_read_by_view(id) {
            "other views depend on this space"
        } else if !self.is_history() && !space.checks.is_empty() {
            "the space has check constraints"
        } else {
            if let Some(space) = self.catalog.remove(id) {
                self.undo_schema(SchemaUndo::SpaceRemoved(space));
            }
            self.schema.bump_version();
            return Ok(());
        };
        Err(Error::DropSpace { name: space.def.name.clone(), reason: reason.to_owned() })
    }
}
