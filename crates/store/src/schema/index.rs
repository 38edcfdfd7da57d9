//! Rows of `_index`: definitions of indexes, and what happens to a space when one of them changes.

use lycosa_tuple::collation::Collation;
use lycosa_tuple::field::FieldType;
use lycosa_tuple::key::{KeyDef, KeyPart};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::path::{Path, Token};
use lycosa_tuple::tuple::TupleRef;

use crate::access::Access;
use crate::arena::Handle;
use crate::error::Error;
use crate::index::{Distance, IndexKind, MAX_DIMENSION};
use crate::schema::row::{OptionType, Options, Row};
use crate::schema::sequence::check_filled_part;
use crate::schema::space::{NO_COLLATION, NullableProblem, is_nullable, refusal};
use crate::schema::{Collations, Schema, SchemaObject};
use crate::space::{Engine, Space, SpaceIndex};
use crate::special::{FunctionUse, KeyFunction, KeyMaker};
use crate::transaction::SchemaUndo;
use crate::{IndexId, SpaceId, Store, system};

/// Fields of a row.
const FIELDS: u32 = 6;
/// Ids of indexes are below.
const INDEX_MAX: u32 = 128;
/// Parts of a key, at most.
const PART_MAX: usize = 255;
/// The `page_size` of an index that names none, bytes.
const PAGE_SIZE: i128 = 8192;
/// Largest number of an indexed field, from 0.
const FIELD_MAX: u32 = 0x7fff;
/// What older versions took for it.
const OLD_FIELD_MAX: u32 = 0x7fff_ffff;

/// A row of `_index`, decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexDef {
    pub(crate) id: IndexId,
    pub(crate) name: String,
    pub(crate) kind: IndexKind,
    pub(crate) unique: bool,
    pub(crate) key: KeyDef,
    /// What makes the keys of a functional index.
    pub(crate) function: Option<FunctionUse>,
}

/// The type of an index as its row names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Tree,
    Hash,
    Rtree,
    Bitset,
    Unknown,
}

impl Named {
    fn parse(name: &str) -> Self {
        const NAMED: [(&str, Named); 4] = [
            ("tree", Named::Tree),
            ("hash", Named::Hash),
            ("rtree", Named::Rtree),
            ("bitset", Named::Bitset),
        ];
        let found = NAMED.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
        found.map_or(Self::Unknown, |(_, named)| named)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tree => "TREE",
            Self::Hash => "HASH",
            Self::Rtree => "RTREE",
            Self::Bitset => "BITSET",
            Self::Unknown => "",
        }
    }
}

impl IndexDef {
    const OPTIONS: [(&'static str, OptionType); 11] = [
        ("unique", OptionType::Boolean),
        ("dimension", OptionType::Integer),
        ("distance", OptionType::Enum),
        ("range_size", OptionType::Integer),
        ("page_size", OptionType::Integer),
        ("run_count_per_level", OptionType::Integer),
        ("run_size_ratio", OptionType::Number),
        ("bloom_fpr", OptionType::Number),
        ("lsn", OptionType::Integer),
        ("func", OptionType::Unsigned),
        ("sql", OptionType::String),
    ];

    /// Whether two tuples may have the same key, so that the primary key has to order them.
    pub(crate) fn may_repeat(&self) -> bool {
        !self.unique || self.key.parts().iter().any(|part| part.nullable)
    }

    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            IndexKind::Tree | IndexKind::Multikey | IndexKind::Functional => "TREE",
            IndexKind::Hash => "HASH",
            IndexKind::Bitset => "BITSET",
            IndexKind::Rtree { .. } => "RTREE",
        }
    }

    /// Decodes a row about an index of `space`. `None` stands for an index that the store does not have and, being
    /// `lenient`, leaves out: the rows of a data folder are history that cannot be refused.
    pub(crate) fn decode(
        row: Row<'_>,
        space: &Space,
        schema: &Schema,
        make: Option<KeyMaker>,
        lenient: bool,
    ) -> Result<Option<Self>, Error> {
        let space_name = || space.def.name.clone();
        if row.len() != FIELDS && !lenient {
            return Err(Error::WrongIndexRecord(row.types()));
        }
        let id = row.id(1)?;
        let named = Named::parse(&row.text(3)?);
        let options = Options::read(row.raw(4)?, &Self::OPTIONS, false, wrong_options)?;
        check_tuning(&options, lenient)?;
        let parts = decode_parts(row.raw(5)?, &schema.collations, lenient)?;
        let too_long = |start| Error::ModifyIndex {
            index: start,
            space: space_name(),
            reason: "index name is too long".to_owned(),
        };
        let name = row.name(2, too_long)?;
        let unique = options.bool("unique").unwrap_or(true);
        let wrong = |reason: &str| Error::ModifyIndex {
            index: name.clone(),
            space: space_name(),
            reason: reason.to_owned(),
        };
        let is_functional = options.raw("func").is_some_and(|_| options.uint("func") != Some(0));
        let function = match make {
            None if is_functional && lenient => return Ok(None),
            None if is_functional => {
                return Err(Error::lacks("functional indexes (this process runs no Lua)"));
            }
            Some(make) if is_functional => {
                let number = options.uint("func").and_then(|number| u32::try_from(number).ok());
                Some(function_use(number.unwrap_or(u32::MAX), make, &parts, schema, lenient)?)
            }
            _ => None,
        };
        check_shape(id, unique, &parts, lenient, &wrong)?;
        if function.is_some() {
            check_functional(id, space, named, &wrong)?;
        }
        if !lenient {
            check_engine(space, named, &name)?;
        }
        if id == 0 && parts.iter().any(|part| part.nullable) {
            return Err(Error::NullablePrimary(space_name()));
        }
        if named != Named::Tree && parts.iter().any(|part| part.nullable) {
            let feature = "nullable parts".to_owned();
            return Err(Error::Unsupported { object: named.name().to_owned(), feature });
        }
        check_kind(named, unique, &parts, &wrong)?;
        let kind = match named {
            Named::Unknown => return Err(Error::IndexType { index: name, space: space_name() }),
            Named::Tree if function.is_some() => IndexKind::Functional,
            Named::Tree if parts.iter().any(KeyPart::is_multikey) => IndexKind::Multikey,
            Named::Tree => IndexKind::Tree,
            Named::Hash => IndexKind::Hash,
            Named::Bitset => IndexKind::Bitset,
            Named::Rtree => rtree_kind(&options).map_err(|dimension| Error::UnsupportedIndexFeature {
                index: name.clone(),
                kind: named.name(),
                space: space_name(),
                engine: space.def.engine.name(),
                feature: format!("dimension ({dimension}): must belong to range [1, {MAX_DIMENSION}]").into(),
            })?,
        };
        let key = KeyDef::new(parts);
        Ok(Some(Self { id, name, kind, unique, key, function }))
    }
}

/// Refuses a functional index where there can be none.
fn check_functional(
    id: u32,
    space: &Space,
    named: Named,
    wrong: &dyn Fn(&str) -> Error,
) -> Result<(), Error> {
    if id == 0 {
        return Err(wrong("primary key can not use a function"));
    }
    if space.def.engine == Engine::Vinyl {
        let feature = "functional index".to_owned();
        return Err(Error::Unsupported { object: "Vinyl".to_owned(), feature });
    }
    if matches!(named, Named::Hash | Named::Rtree | Named::Bitset) {
        return Err(wrong(&format!("{} index can not use a function", named.name())));
    }
    Ok(())
}

/// The function with that number as the maker of keys with these parts. The index is disabled while the function does not
/// exist: rows of `_index` come before those of `_func` in a snapshot.
fn function_use(
    id: u32,
    make: KeyMaker,
    parts: &[KeyPart],
    schema: &Schema,
    lenient: bool,
) -> Result<FunctionUse, Error> {
    if parts.iter().any(|part| part.path.is_some()) {
        let feature = "json paths".to_owned();
        return Err(Error::Unsupported { object: "Functional index".to_owned(), feature });
    }
    if (0..).zip(parts).any(|(number, part)| part.field != number) {
        let reason = "key part numbers must be sequential and first part number must be 1".to_owned();
        return Err(Error::FunctionalParts(reason));
    }
    let function = match schema.functions.get(id) {
        Some(function) => match function.check_makes_keys() {
            Ok(()) => Some(KeyFunction::of(function)),
            Err(_) if lenient => None,
            Err(error) => return Err(error),
        },
        None => None,
    };
    Ok(FunctionUse { id, make, function })
}

/// Checks what indexes of one type ask of their parts.
fn check_kind(
    named: Named,
    unique: bool,
    parts: &[KeyPart],
    wrong: &dyn Fn(&str) -> Error,
) -> Result<(), Error> {
    let first = parts.first().map(|part| part.ty);
    let is_single = matches!(named, Named::Rtree | Named::Bitset);
    match named {
        Named::Hash if !unique => return Err(wrong("HASH index must be unique")),
        Named::Rtree | Named::Bitset if parts.len() != 1 => {
            return Err(wrong(&format!("{} index key can not be multipart", named.name())));
        }
        Named::Rtree if unique => return Err(wrong("RTREE index can not be unique")),
        Named::Bitset if unique => return Err(wrong("BITSET can not be unique")),
        Named::Rtree if first != Some(FieldType::Array) => {
            return Err(wrong("RTREE index field type must be ARRAY"));
        }
        Named::Bitset if !matches!(first, Some(FieldType::Unsigned | FieldType::String)) => {
            return Err(wrong("BITSET index field type must be NUM or STR"));
        }
        _ => {}
    }
    if !matches!(named, Named::Tree | Named::Unknown) && parts.iter().any(KeyPart::is_multikey) {
        return Err(wrong(&format!("{} index cannot be multikey", named.name())));
    }
    match parts.iter().find(|part| !part.ty.is_indexable()) {
        Some(part) if !is_single && named != Named::Unknown => {
            Err(wrong(&format!("field type '{}' is not supported", part.ty.name())))
        }
        _ => Ok(()),
    }
}

/// The kind that the options of an RTREE ask for; or the dimension, if no index can have it.
fn rtree_kind(options: &Options<'_>) -> Result<IndexKind, i128> {
    let wanted = options.int("dimension").unwrap_or(2);
    let dimension = u32::try_from(wanted).ok().filter(|dimension| (1..=MAX_DIMENSION).contains(dimension));
    let is_manhattan = options.text("distance").is_some_and(|name| name.eq_ignore_ascii_case("manhattan"));
    let distance = if is_manhattan { Distance::Manhattan } else { Distance::Euclid };
    dimension.map(|dimension| IndexKind::Rtree { dimension, distance }).ok_or(wanted)
}

fn mismatched_function() -> Error {
    let reason = "Function ids defined in _index and _func_index don't match".to_owned();
    Error::WrongIndexOptions { field: 0, reason }
}

fn wrong_options(reason: String) -> Error {
    Error::WrongIndexOptions { field: 4, reason }
}

/// Checks whether the engine of the space has indexes of that kind.
fn check_engine(space: &Space, named: Named, name: &str) -> Result<(), Error> {
    let (index, space_name) = (name.to_owned(), space.def.name.clone());
    let lacks = |object: &str, feature: &str| {
        Err(Error::Unsupported { object: object.to_owned(), feature: feature.to_owned() })
    };
    match space.def.engine {
        Engine::Vinyl if named != Named::Tree => Err(Error::IndexType { index, space: space_name }),
        Engine::Blackhole => lacks("Blackhole", "indexes"),
        Engine::Service => lacks("Session_settings space", "create_index()"),
        Engine::Sysview => {
            let reason = "unknown space for system view".to_owned();
            Err(Error::ModifyIndex { index, space: space_name, reason })
        }
        _ => Ok(()),
    }
}

/// Whether vinyl in a Tarantool would have to sort an index again. A type that contains the former one sorts as that did.
fn makes_vinyl_rebuild(former: &KeyDef, new: &KeyDef) -> bool {
    let (former, new) = (former.parts(), new.parts());
    let is_other = |(was, is): (&KeyPart, &KeyPart)| {
        (was.field, &was.collation, &was.path) != (is.field, &is.collation, &is.path)
            || !is.ty.contains(was.ty)
    };
    former.len() != new.len() || former.iter().zip(new).any(is_other)
}

/// Checks options that mean something to vinyl and RTREE only, because a program learns of its mistakes from them.
fn check_tuning(options: &Options<'_>, lenient: bool) -> Result<(), Error> {
    let distance = options.text("distance").unwrap_or_else(|| "euclid".to_owned());
    let page_size = options.int("page_size").unwrap_or(PAGE_SIZE);
    let range_size = options.int("range_size").unwrap_or(0);
    let reason = if !["euclid", "manhattan"].iter().any(|known| known.eq_ignore_ascii_case(&distance)) {
        "distance must be either 'euclid' or 'manhattan'"
    } else if !lenient && (page_size <= 0 || (range_size > 0 && page_size > range_size)) {
        "page_size must be greater than 0 and less than or equal to range_size"
    } else if options.int("run_count_per_level").is_some_and(|count| count <= 0) {
        "run_count_per_level must be greater than 0"
    } else if options.float("run_size_ratio").is_some_and(|ratio| ratio <= 1.0) {
        "run_size_ratio must be greater than 1"
    } else if options.float("bloom_fpr").is_some_and(|rate| rate <= 0.0 || rate > 1.0) {
        "bloom_fpr must be greater than 0 and less than or equal to 1"
    } else {
        return Ok(());
    };
    Err(wrong_options(reason.to_owned()))
}

/// Checks what holds for indexes of every kind.
fn check_shape(
    id: u32,
    unique: bool,
    parts: &[KeyPart],
    lenient: bool,
    wrong: &dyn Fn(&str) -> Error,
) -> Result<(), Error> {
    if id >= INDEX_MAX {
        return Err(wrong("index id too big"));
    }
    if id == 0 && !unique {
        return Err(wrong("primary key must be unique"));
    }
    if parts.is_empty() {
        return Err(wrong("part count must be positive"));
    }
    if parts.len() > PART_MAX {
        return Err(wrong("too many key parts"));
    }
    if id == 0 && parts.iter().any(KeyPart::is_multikey) {
        return Err(wrong("primary key cannot be multikey"));
    }
    for (number, part) in parts.iter().enumerate() {
        if part.field > FIELD_MAX && !(lenient && part.field <= OLD_FIELD_MAX) {
            return Err(wrong("field no is too big"));
        }
        let is_same = |other: &KeyPart| other.field == part.field && other.path == part.path;
        if parts[..number].iter().any(is_same) {
            return Err(wrong("same key part is indexed twice"));
        }
    }
    Ok(())
}

/// Decodes field 6 of a row: `[[field, type], …]` or `[{field, type, …}, …]`; the first part decides which.
fn decode_parts(parts: &[u8], collations: &Collations, lenient: bool) -> Result<Vec<KeyPart>, Error> {
    let parts: Vec<&[u8]> = TupleRef::trusted(parts).fields().collect();
    let is_array = parts.first().is_some_and(|first| Reader::new(first).array().is_ok());
    if is_array {
        return parts.into_iter().map(decode_pair).collect();
    }
    let decode = |(number, part)| decode_map(part, number, collations, lenient);
    let parts: Vec<KeyPart> = (1..).zip(parts).map(decode).collect::<Result<_, _>>()?;
    // The parts of a multikey index ask for the elements of one array.
    let mut arrays = (1..).zip(&parts).filter_map(|(number, part)| Some((number, part.array()?)));
    if let Some((_, first)) = arrays.next()
        && let Some((number, _)) = arrays.find(|(_, array)| *array != first)
    {
        let reason = "incompatable multikey index path".to_owned();
        return Err(Error::WrongIndexOptions { field: number, reason });
    }
    Ok(parts)
}

/// Decodes `[field, type]`; more elements are ignored.
fn decode_pair(pair: &[u8]) -> Result<KeyPart, Error> {
    let wrong = |reason: &str| Error::WrongIndexParts(reason.to_owned());
    let mut reader = Reader::new(pair);
    let count = reader.array().map_err(|_| wrong("expected an array"))?;
    match count {
        0 => return Err(wrong("expected a non-empty array")),
        1 => return Err(wrong("a field type is missing")),
        _ => {}
    }
    let field = reader.uint().map_err(|_| wrong("field id must be an integer"))?;
    let ty = reader.str().map_err(|_| wrong("field type must be a string"))?;
    let ty = std::str::from_utf8(ty).ok().and_then(FieldType::parse);
    let ty = ty.ok_or_else(|| wrong("unknown field type"))?;
    Ok(KeyPart::new(u32::try_from(field).unwrap_or(u32::MAX), ty))
}

/// Decodes `{field = , type = , is_nullable = , collation = , path = , …}`.
fn decode_map(map: &[u8], number: u32, collations: &Collations, lenient: bool) -> Result<KeyPart, Error> {
    const KNOWN: [(&str, OptionType); 7] = [
        ("field", OptionType::Unsigned),
        ("type", OptionType::Enum),
        ("is_nullable", OptionType::Boolean),
        ("nullable_action", OptionType::Enum),
        ("collation", OptionType::Unsigned),
        ("path", OptionType::String),
        ("sort_order", OptionType::Enum),
    ];
    let wrong = |reason: String| Error::WrongIndexOptions { field: number, reason };
    if Reader::new(map).map().is_err() {
        return Err(wrong("index part is expected to be a map".to_owned()));
    }
    let options = Options::read(map, &KNOWN, false, wrong)?;
    let field = options.uint("field").unwrap_or(0);
    let ty = options.text("type").and_then(|ty| FieldType::parse(&ty));
    let ty = ty.ok_or_else(|| wrong("index part: unknown field type".to_owned()))?;
    let nullable = match is_nullable(&options) {
        Ok(nullable) => nullable,
        // A Tarantool looks at the name only where parts contradict each other.
        Err(NullableProblem::Unknown) if !options.bool("is_nullable").unwrap_or(false) || lenient => {
            options.bool("is_nullable").unwrap_or(false)
        }
        Err(_) => {
            let reason = "index part: conflicting nullability and nullable action properties";
            return Err(wrong(reason.to_owned()));
        }
    };
    let order = options.text("sort_order").filter(|_| !lenient);
    if order
        .is_some_and(|order| !["asc", "desc", "undef"].iter().any(|known| known.eq_ignore_ascii_case(&order)))
    {
        return Err(wrong("index part: unknown sort order".to_owned()));
    }
    let text = options.bytes("path").unwrap_or_default();
    let path = match text {
        [] => None,
        text => Some(Path::parse(text).map_err(|_| wrong("invalid path".to_owned()))?),
    };
    if path.iter().flat_map(Path::tokens).filter(|token| **token == Token::Any).count() > 1 {
        let reason = "no more than one array index placeholder [*] is allowed in JSON path";
        return Err(wrong(reason.to_owned()));
    }
    let collation = match options.uint("collation").filter(|&id| id != NO_COLLATION) {
        None => Collation::Binary,
        Some(_) if !matches!(ty, FieldType::String | FieldType::Scalar) => {
            return Err(wrong("collation is reasonable only for string and scalar parts".to_owned()));
        }
        Some(id) => match collations.make(id) {
            None => return Err(wrong("collation was not found by ID".to_owned())),
            Some(Ok(collation)) => collation,
            Some(Err(_)) if lenient => Collation::Binary,
            Some(Err(problem)) => return Err(wrong(problem.to_string())),
        },
    };
    Ok(KeyPart {
        field: u32::try_from(field).unwrap_or(u32::MAX),
        ty,
        nullable,
        refusal: refusal(&options),
        collation,
        path,
    })
}

impl Store {
    /// A row of `_index` was replaced, added or removed.
    pub(crate) fn index_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        let Some(row) = new.or(old) else {
            return Ok(());
        };
        let row = Row::new(self.arena.get(row));
        let (space_id, index_id) = (row.id(0)?, row.id(1)?);
        let space = self.space(space_id)?;
        let access = match (old, new) {
            (Some(_), Some(_)) => Access::ALTER,
            (None, _) => Access::CREATE,
            (_, None) => Access::DROP,
        };
        self.check_schema_access(SchemaObject::of_space(space), access)?;
        self.check_guard(space)?;
        if space.def.view && new.is_some() && !self.is_history() {
            let reason = "can not add index on a view".to_owned();
            return Err(Error::AlterSpace { name: space.def.name.clone(), reason });
        }
        if new.is_some() && index_id != 0 && space.index(0).is_none() {
            let reason = "can not add a secondary key before primary".to_owned();
            return Err(Error::AlterSpace { name: space.def.name.clone(), reason });
        }
        if !self.is_history()
            && system::EVERYWHERE.contains(&space_id)
            && !(new.is_none() && space.index(index_id).is_none_or(|index| index.def.id == 0))
        {
            return Err(Error::lacks(&format!("changes of the system space '{}'", space.def.name)));
        }
        if new.is_none() {
            self.drop_index(space_id, index_id)?;
        } else if let Some(def) =
            IndexDef::decode(row, space, &self.schema, self.settings.make_keys, self.is_history())?
        {
            self.define_index(space_id, def)?;
        }
        self.schema.bump_version();
        Ok(())
    }

    /// A row of `_func_index` was added or removed: the index gets its function, or is disabled.
    pub(crate) fn key_function_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        let (row, is_added) = match (old, new) {
            (None, Some(new)) => (new, true),
            (Some(old), None) => (old, false),
            _ if self.is_history() => return Ok(()),
            _ => {
                let (object, feature) = ("functional index".to_owned(), "alter".to_owned());
                return Err(Error::Unsupported { object, feature });
            }
        };
        let row = Row::new(self.arena.get(row));
        let (space_id, index_id, function_id) = (row.id(0)?, row.id(1)?, row.id(2)?);
        if is_added && !self.is_history() {
            self.check_key_function(row)?;
            if self.settings.make_keys.is_none() {
                return Err(Error::lacks("functional indexes"));
            }
        }
        let Some(present) = self.space(space_id).ok().and_then(|space| space.index(index_id)) else {
            return Ok(());
        };
        let mut def = present.def.clone();
        let Some(usage) = &mut def.function else {
            return if is_added && !self.is_history() { Err(mismatched_function()) } else { Ok(()) };
        };
        if is_added && usage.id != function_id {
            return if self.is_history() { Ok(()) } else { Err(mismatched_function()) };
        }
        if is_added == usage.function.is_some() {
            return Ok(());
        }
        let function = self.schema.functions.get(function_id).filter(|_| is_added);
        usage.function = function.filter(|function| function.check_makes_keys().is_ok()).map(KeyFunction::of);
        self.define_index(space_id, def)
    }

    /// Checks that a row of `_func_index` names an index and a function that can make its keys.
    pub(crate) fn check_key_function(&self, row: Row<'_>) -> Result<(), Error> {
        let space = self.space(row.id(0)?)?;
        space.require_index(row.id(1)?)?;
        let id = row.id(2)?;
        let function = self.schema.functions.get(id).ok_or_else(|| Error::NoSuchFunction(id.to_string()))?;
        function.check_makes_keys()
    }

    /// Adds an index, or changes an existing one.
    fn define_index(&mut self, space_id: SpaceId, def: IndexDef) -> Result<(), Error> {
        let space = self.space(space_id)?;
        let names_constraint = |index: &IndexDef| index.unique && index.name == def.name;
        let is_named = space.index(def.id).is_some_and(|present| names_constraint(&present.def));
        if def.unique && !is_named && !self.is_history() {
            self.check_constraint_name(space, &def.name, system::INDEX)?;
        }
        let others = space.indexes.iter().map(|index| &index.def).filter(|other| other.id != def.id);
        let mut defs: Vec<&IndexDef> = others.chain([&def]).collect();
        defs.sort_by_key(|def| def.id);
        let format = Space::format_with(&space.def, defs.into_iter(), self.is_history())?;
        if let Some(attached) = space.sequence.as_ref().filter(|_| def.id == 0) {
            check_filled_part(space, &def, (attached.field, attached.path.as_deref()), self.is_history())?;
        }
        let present = space.index(def.id).map(|index| &index.def);
        let makes_rebuild = present.is_none_or(|present| makes_vinyl_rebuild(&present.key, &def.key));
        let written_in = space.index(def.id).filter(|_| !makes_rebuild).map_or(0, |index| index.written_in);
        if space.def.engine == Engine::Vinyl
            && def.id == 0
            && present.is_some()
            && makes_rebuild
            && self.has_vinyl_statements(space)
            && !self.is_history()
        {
            let feature = "rebuilding the primary index of a non-empty space".to_owned();
            return Err(Error::Unsupported { object: "Vinyl".to_owned(), feature });
        }
        for handle in space.handles(&self.arena) {
            let tuple = TupleRef::trusted(self.arena.get(handle));
            if self.is_history() { format.check_stored(tuple) } else { format.check(tuple) }?;
        }
        let is_same = present.is_some_and(|present| {
            present.kind == def.kind
                && present.unique == def.unique
                && present.key == def.key
                && present.function == def.function
        });
        if is_same {
            self.rename_index(space_id, def);
            return Ok(());
        }
        if present.is_some() {
            self.check_referenced(space, def.id, "alter")?;
        }
        // Equal keys of secondary indexes are ordered by the primary key, so a new one means a new order for them.
        let primary = if def.id == 0 { Some(def.key.clone()) } else { space.primary_key().cloned() };
        let mut built = Vec::new();
        for other in
            space.indexes.iter().filter(|other| def.id == 0 && other.def.id != 0 && other.def.may_repeat())
        {
            built.push(self.build_index(space, other.def.clone(), primary.as_ref())?);
        }
        let mut index = self.build_index(space, def, primary.as_ref())?;
        index.written_in = written_in;
        built.insert(0, index);
        for index in built {
            self.replace_index(space_id, index);
        }
        self.catalog.set_format(space_id, format);
        Ok(())
    }

    /// Makes an index over the tuples that the space has.
    fn build_index(
        &self,
        space: &Space,
        def: IndexDef,
        primary: Option<&KeyDef>,
    ) -> Result<SpaceIndex, Error> {
        let mut index = SpaceIndex::new(def, primary);
        let handles: Vec<Handle> = space.handles(&self.arena).collect();
        if index.is_special() {
            handles.iter().try_for_each(|&handle| index.check_tuple(self.arena.get(handle)))?;
        }
        if index.build(&self.arena, (&space.format, primary), &handles).is_err() {
            return Err(index.refusal(&space.def.name));
        }
        Ok(index)
    }

    /// Takes a built index into its space, in the place of the one with the same id.
    fn replace_index(&mut self, space: SpaceId, index: SpaceIndex) {
        let id = index.def.id;
        if index.def.function.is_some() && !self.has_functional {
            self.has_functional = true;
            self.hooked_spaces += 1;
        }
        if let Some(view) = self.view.as_mut().filter(|_| id == 0) {
            view.keep_rest(&self.catalog, &self.arena, space);
        }
        if let Some(old) = self.catalog.take_index(space, id) {
            self.undo_schema(SchemaUndo::IndexRemoved { space, index: Box::new(old), owned_bytes: None });
        }
        self.undo_schema(SchemaUndo::IndexAdded { space, index: id });
        self.catalog.put_index(space, index);
    }

    fn rename_index(&mut self, space: SpaceId, def: IndexDef) {
        let id = def.id;
        if let Some(old) = self.catalog.rename_index(space, id, def.name) {
            self.undo_schema(SchemaUndo::IndexRenamed { space, index: id, name: old });
        }
    }

    fn drop_index(&mut self, space_id: SpaceId, id: IndexId) -> Result<(), Error> {
        let space = self.space(space_id)?;
        if space.index(id).is_none() {
            return Ok(());
        }
        let name = || space.def.name.clone();
        if id == 0 {
            if space.is_system() {
                return Err(Error::LastDrop(name()));
            }
            if space.indexes.len() > 1 {
                return Err(Error::DropPrimaryKey(name()));
            }
            if space.sequence.is_some() {
                let reason = "can not drop primary key while space sequence exists".to_owned();
                return Err(Error::AlterSpace { name: name(), reason });
            }
        }
        self.check_referenced(space, id, "drop")?;
        let left = space.indexes.iter().map(|index| &index.def).filter(|def| def.id != id);
        let format = Space::format_with(&space.def, left, true)?;
        let (owned_bytes, tuples) = ((id == 0).then(|| space.bytes()), space.len());
        if let Some(index) = self.catalog.take_index(space_id, id) {
            self.undo_schema(SchemaUndo::IndexRemoved {
                space: space_id,
                index: Box::new(index),
                owned_bytes,
            });
        }
        if let (Some(bytes), Some(space)) = (owned_bytes, self.catalog.get_mut(space_id)) {
            space.weight.subtract_all(bytes, tuples);
        }
        self.catalog.set_format(space_id, format);
        Ok(())
    }
}
