//! Indexes: create, rename, drop.

use lycosa_tuple::mp;

use super::row::{MapWriter, RowWriter};
use super::sequence::{SequenceSpec, create_sequence};
use super::space::detach_sequence;
use super::{assign, delete, insert, whole};
use crate::error::Error;
use crate::index::Distance;
use crate::{IndexId, IndexKind, SpaceId, Store, system};

/// One part of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartSpec<'a> {
    /// Number of the field from 0.
    pub field: u32,
    /// Name of the type.
    pub ty: &'a str,
    /// May be nil or missing.
    pub nullable: bool,
    /// Name of the collation; `None`: by bytes.
    pub collation: Option<&'a str>,
    /// JSON path inside the field; empty for the field itself.
    pub path: &'a str,
}

impl<'a> PartSpec<'a> {
    /// A part that is a whole field, not nullable, ordered by bytes.
    #[must_use]
    pub const fn new(field: u32, ty: &'a str) -> Self {
        Self { field, ty, nullable: false, collation: None, path: "" }
    }

    fn is_plain(&self) -> bool {
        !self.nullable && self.collation.is_none() && self.path.is_empty()
    }
}

/// The sequence that fills the first part of a primary index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceUse<'a> {
    /// One that is made for the space, `<space>_seq`, and goes with it.
    Generate,
    /// The one with that name.
    Existing(&'a str),
}

/// An index to be created.
#[derive(Debug, Clone, Copy)]
pub struct IndexSpec<'a> {
    /// Name, unique in the space.
    pub name: &'a str,
    /// Number; `None`: the next one.
    pub id: Option<IndexId>,
    /// Kind; of [`IndexKind::Multikey`] the paths of the parts decide. No functional index can be made so.
    pub kind: IndexKind,
    /// A key occurs at most once.
    pub unique: bool,
    /// The parts.
    pub parts: &'a [PartSpec<'a>],
    /// What fills the field of the first part where a tuple has nil.
    pub sequence: Option<SequenceUse<'a>>,
}

impl<'a> IndexSpec<'a> {
    /// A unique TREE.
    #[must_use]
    pub const fn new(name: &'a str, parts: &'a [PartSpec<'a>]) -> Self {
        Self { name, id: None, kind: IndexKind::Tree, unique: true, parts, sequence: None }
    }
}

/// The parts as `_index` has them: pairs, or maps if one of them needs more than a field and a type.
fn encode_parts(store: &Store, parts: &[PartSpec<'_>]) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    mp::write_array(&mut bytes, u32::try_from(parts.len()).unwrap_or(u32::MAX));
    let are_plain = parts.iter().all(PartSpec::is_plain);
    for part in parts {
        if are_plain {
            bytes.extend(RowWriter::new(2).id(part.field).text(part.ty).finish());
            continue;
        }
        let mut map = MapWriter::default().uint("field", u64::from(part.field)).text("type", part.ty);
        if let Some(name) = part.collation {
            let id = store.schema.collations.id_of(name);
            map = map.uint("collation", id.ok_or_else(|| Error::NoSuchCollation(name.to_owned()))?);
        }
        map = map.flag("is_nullable", part.nullable);
        if !part.path.is_empty() {
            map = map.text("path", part.path);
        }
        bytes.extend(map.finish());
    }
    Ok(bytes)
}

/// Creates an index over the existing tuples, all in this call: 0.15 to 0.3 s for each million of them, in which
/// nothing else happens. Returns the index's number. Rows: INSERT `_sequence` if one is to be
/// generated, INSERT `_index`, INSERT `_space_sequence`.
///
/// # Errors
/// [`Error::IndexExists`], errors of the definition, a tuple that does not fit, a duplicate key.
pub fn create_index(store: &mut Store, space: SpaceId, spec: &IndexSpec<'_>) -> Result<IndexId, Error> {
    whole(store, |store| {
        let target = store.space(space)?;
        if target.index_by_name(spec.name).is_some() {
            return Err(Error::IndexExists(spec.name.to_owned()));
        }
        if spec.parts.is_empty() {
            return Err(Error::IllegalParams("options.parts must have at least one part".to_owned()));
        }
        let id = spec.id.unwrap_or_else(|| target.indexes().last().map_or(0, |last| last.id() + 1));
        let generated_name = format!("{}_seq", target.name());
        let mut options = MapWriter::default().bool("unique", spec.unique);
        if let IndexKind::Rtree { dimension, distance } = spec.kind {
            let distance = if distance == Distance::Manhattan { "manhattan" } else { "euclid" };
            options = options.uint("dimension", u64::from(dimension)).text("distance", distance);
        }
        let row = RowWriter::new(6)
            .id(space)
            .id(id)
            .text(spec.name)
            .text(match spec.kind {
                IndexKind::Tree | IndexKind::Multikey | IndexKind::Functional => "tree",
                IndexKind::Hash => "hash",
                IndexKind::Bitset => "bitset",
                IndexKind::Rtree { .. } => "rtree",
            })
            .raw(&options.finish())
            .raw(&encode_parts(store, spec.parts)?);
        let sequence = match spec.sequence {
            None => None,
            Some(SequenceUse::Generate) => {
                Some((create_sequence(store, &SequenceSpec::new(&generated_name))?, true))
            }
            Some(SequenceUse::Existing(name)) => match store.sequence_by_name(name) {
                Some(sequence) => Some((sequence.id, false)),
                None => return Err(Error::NoSuchSequence(name.to_owned())),
            },
        };
        insert(store, system::INDEX, row)?;
        if let (Some((sequence, is_generated)), [first, ..]) = (sequence, spec.parts) {
            let row =
                RowWriter::new(5).id(space).id(sequence).bool(is_generated).id(first.field).text(first.path);
            insert(store, system::SPACE_SEQUENCE, row)?;
        }
        Ok(id)
    })
}

/// Renames an index.
///
/// # Errors
/// No such space or index, the name is taken or none, or no right to alter the space.
pub fn rename_index(store: &mut Store, space: SpaceId, index: IndexId, name: &str) -> Result<(), Error> {
    store.space(space)?.require_index(index)?;
    let mut value = Vec::new();
    mp::write_str(&mut value, name.as_bytes());
    assign(store, system::INDEX, RowWriter::ids([space, index]), 3, &value)
}

/// Drops an index; with a primary one the sequence that fills it, if it was made for the space, and all tuples.
///
/// # Errors
/// No such space or index, a primary index beside others, or no right to drop it.
pub fn drop_index(store: &mut Store, space: SpaceId, index: IndexId) -> Result<(), Error> {
    whole(store, |store| {
        let target = store.space(space)?;
        target.require_index(index)?;
        if index == 0 && target.indexes().len() > 1 {
            return Err(Error::DropPrimaryKey(target.name().to_owned()));
        }
        if index == 0 && target.sequence().is_some() {
            detach_sequence(store, space)?;
        }
        if store.has_rows(system::FUNC_INDEX, 0, &[space, index]) {
            delete(store, system::FUNC_INDEX, RowWriter::ids([space, index]))?;
        }
        delete(store, system::INDEX, RowWriter::ids([space, index]))
    })
}
