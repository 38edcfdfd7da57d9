//! All spaces by id and by name.
//!
//! Ids that were handed out one after another are found by position, scattered ones in a map. The catalog checks and undoes
//! nothing; the transaction keeps the spaces that it took out.
//!
//! The bytes of all indexes are asked for again and again, on a server with ten thousand tubes too, and no index tells when it
//! grows. So the catalog notes each space that it hands out to be changed, and a count looks at these alone.

use std::collections::{BTreeMap, HashMap};

use lycosa_tuple::format::Format;

use crate::access::{Privacy, PrivacyTable};
use crate::read_view::is_persistent;
use crate::schema::space::SpaceDef;
use crate::space::{Space, SpaceIndex};
use crate::weight::Sum;
use crate::{IndexId, SpaceId};

/// Ids below are looked up by position.
const NEAR: SpaceId = 1 << 16;

/// The privacy of the space with that name.
fn privacy_of(table: PrivacyTable, name: &str) -> Privacy {
    table.iter().find(|(known, _)| *known == name).map_or(Privacy::Open, |(_, privacy)| *privacy)
}

/// All spaces of a store.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    near: Vec<Option<Box<Space>>>,
    far: BTreeMap<SpaceId, Box<Space>>,
    names: HashMap<String, SpaceId>,
    /// Spaces and indexes that have had an identity.
    identities: u64,
    /// The privacy of the spaces with these names.
    privacy: PrivacyTable,
    /// Bytes of the rows that a snapshot has.
    persistent: Sum,
    /// Bytes of the tuples of all other spaces.
    transient: Sum,
    /// Bytes of all indexes at the last count: the sum of what the spaces are counted with.
    counted_indexes: u64,
    /// Spaces that were handed out to be changed since. An id stays when its space is removed.
    changed: Vec<SpaceId>,
}

/// Notes a space that is about to be changed.
#[inline]
fn note_change<'a>(changed: &mut Vec<SpaceId>, space: &'a mut Space) -> &'a mut Space {
    space.last_found.set(None);
    if !space.is_uncounted {
        space.is_uncounted = true;
        changed.push(space.def.id);
    }
    space
}

impl Catalog {
    #[inline]
    pub(crate) fn get(&self, id: SpaceId) -> Option<&Space> {
        if id < NEAR { self.near.get(id as usize)?.as_deref() } else { self.far.get(&id).map(Box::as_ref) }
    }

    /// The space, to be changed: its cache of the last read is cleared.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: SpaceId) -> Option<&mut Space> {
        let space = if id < NEAR {
            self.near.get_mut(id as usize)?.as_deref_mut()
        } else {
            self.far.get_mut(&id).map(Box::as_mut)
        }?;
        Some(note_change(&mut self.changed, space))
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Space> {
        self.get(*self.names.get(name)?)
    }

    /// In id order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Space> {
        self.near.iter().flatten().chain(self.far.values()).map(Box::as_ref)
    }

    /// The first space with this id or a higher one.
    pub(crate) fn next_from(&self, id: SpaceId) -> Option<&Space> {
        let near = self.near.get(id as usize..).unwrap_or_default();
        near.iter()
            .flatten()
            .next()
            .or_else(|| self.far.range(id..).next().map(|(_, space)| space))
            .map(Box::as_ref)
    }

    /// Bytes of the rows that a snapshot has, at most.
    pub(crate) fn persistent_bytes(&self) -> u64 {
        self.persistent.get()
    }

    /// In id order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Space> {
        let Self { near, far, changed, .. } = self;
        let spaces = near.iter_mut().flatten().chain(far.values_mut()).map(Box::as_mut);
        spaces.map(|space| note_change(changed, space))
    }

    /// Bytes of all indexes at the last count.
    pub(crate) fn counted_indexes(&self) -> u64 {
        self.counted_indexes
    }

    /// Bytes of all indexes.
    pub(crate) fn index_memory(&self) -> u64 {
        let changed = self.changed.iter().filter_map(|id| self.get(*id)).filter(|space| space.is_uncounted);
        changed.fold(self.counted_indexes, |sum, space| sum - space.counted_indexes + space.index_memory())
    }

    /// Counts the bytes of all indexes.
    pub(crate) fn count_indexes(&mut self) {
        let mut changed = std::mem::take(&mut self.changed);
        for id in changed.drain(..) {
            let space = if id < NEAR {
                self.near.get_mut(id as usize).and_then(Option::as_deref_mut)
            } else {
                self.far.get_mut(&id).map(Box::as_mut)
            };
            if let Some(space) = space.filter(|space| space.is_uncounted) {
                let now = space.index_memory();
                self.counted_indexes = self.counted_indexes - space.counted_indexes + now;
                (space.counted_indexes, space.is_uncounted) = (now, false);
            }
        }
        self.changed = changed;
    }

    pub(crate) fn privacy(&self) -> PrivacyTable {
        self.privacy
    }

    pub(crate) fn set_privacy(&mut self, table: PrivacyTable) {
        self.privacy = table;
        self.iter_mut().for_each(|space| space.privacy = privacy_of(table, &space.def.name));
    }

    /// An object restored by a rollback keeps the identity that it had.
    fn identify(identities: &mut u64, identity: &mut u64) {
        if *identity == 0 {
            *identities += 1;
            *identity = *identities;
        }
    }

    pub(crate) fn insert(&mut self, mut space: Box<Space>) {
        Self::identify(&mut self.identities, &mut space.identity);
        space.privacy = privacy_of(self.privacy, &space.def.name);
        let (sum, tuples) =
            (if is_persistent(&space) { &self.persistent } else { &self.transient }, space.len());
        space.weight.joins(sum, tuples);
        let id = space.def.id;
        (space.counted_indexes, space.is_uncounted) = (0, false);
        note_change(&mut self.changed, &mut space);
        self.names.insert(space.def.name.clone(), id);
        if id < NEAR {
            let place = id as usize;
            if self.near.len() <= place {
                self.near.resize_with(place + 1, || None);
            }
            self.near[place] = Some(space);
        } else {
            self.far.insert(id, space);
        }
    }

    pub(crate) fn remove(&mut self, id: SpaceId) -> Option<Box<Space>> {
        let mut space =
            if id < NEAR { self.near.get_mut(id as usize)?.take() } else { self.far.remove(&id) }?;
        space.last_found.set(None);
        self.counted_indexes -= space.counted_indexes;
        let tuples = space.len();
        space.weight.leaves(tuples);
        self.forget_name(&space.def.name, id);
        Some(space)
    }

    /// The name may belong to another space by now, while rows are undone one by one.
    fn forget_name(&mut self, name: &str, id: SpaceId) {
        if self.names.get(name) == Some(&id) {
            self.names.remove(name);
        }
    }

    /// Gives a space another definition, and returns the one that it had.
    pub(crate) fn redefine(
        &mut self,
        id: SpaceId,
        def: SpaceDef,
        format: Format,
    ) -> Option<(SpaceDef, Format)> {
        let name = def.name.clone();
        let privacy = privacy_of(self.privacy, &name);
        let is_far = id >= NEAR;
        let space = if is_far { self.far.get_mut(&id) } else { self.near.get_mut(id as usize)?.as_mut() }?;
        space.last_found.set(None);
        space.privacy = privacy;
        let old_def = std::mem::replace(&mut space.def, def);
        let (sum, tuples) =
            (if is_persistent(space) { &self.persistent } else { &self.transient }, space.len());
        space.weight.leaves(tuples);
        space.weight.joins(sum, tuples);
        let old_format = std::mem::replace(&mut space.format, format);
        space.checks.redefined();
        if old_def.name != name {
            self.forget_name(&old_def.name, id);
            self.names.insert(name, id);
        }
        Some((old_def, old_format))
    }

    pub(crate) fn set_format(&mut self, id: SpaceId, format: Format) {
        if let Some(space) = self.get_mut(id) {
            space.format = format;
            space.checks.forget_compiled();
        }
    }

    pub(crate) fn take_index(&mut self, id: SpaceId, index: IndexId) -> Option<SpaceIndex> {
        let space = self.get_mut(id)?;
        let place = space.indexes.iter().position(|present| present.def.id == index)?;
        let index = space.indexes.remove(place);
        space.count_special();
        Some(index)
    }

    pub(crate) fn put_index(&mut self, id: SpaceId, mut index: SpaceIndex) {
        Self::identify(&mut self.identities, &mut index.identity);
        if let Some(space) = self.get_mut(id) {
            let place = space.indexes.partition_point(|present| present.def.id < index.def.id);
            space.has_special |= index.is_special();
            space.indexes.insert(place, index);
        }
    }

    /// Renames an index and returns the name that it had.
    pub(crate) fn rename_index(&mut self, id: SpaceId, index: IndexId, name: String) -> Option<String> {
        let space = self.get_mut(id)?;
        let index = space.indexes.iter_mut().find(|present| present.def.id == index)?;
        Some(std::mem::replace(&mut index.def.name, name))
    }
}
