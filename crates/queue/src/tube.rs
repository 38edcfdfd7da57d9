//! Tubes: named queues of tasks, each on a space of its own.
//!
//! What is durable about a tube lies in the store: its row in `_queue`, its space, its tasks. A [`Tube`] is what the
//! process knows beside it, all of it derived from the store at start: the driver, the ids of space and indexes, the
//! next id, the counters.
//!
//! A tube has a place in a table for as long as it exists. Places are used again; a generation tells a procedure that
//! was resolved for a former tube from one for the present tube.

use std::collections::{BTreeMap, HashMap};

use lycosa_store::{SpaceId, Store};

use crate::driver::{Driver, Indexes, Tasks, TubeOptions};
use crate::integer_map::IntegerMap;
use crate::statistics::Counters;

/// Number of a tube's place in the table.
pub(crate) type SlotIndex = u32;

/// A tube's place and which of the tubes that have been there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) index: SlotIndex,
    generation: u32,
}

/// What the process knows about a tube.
#[derive(Debug)]
pub(crate) struct Tube {
    pub(crate) name: String,
    /// The id in `_queue`, part of the keys of taken tasks and consumers.
    pub(crate) id: u64,
    pub(crate) space: SpaceId,
    pub(crate) indexes: Indexes,
    /// The space that shows the candidates.
    pub(crate) buffer: Option<SpaceId>,
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) options: TubeOptions,
    /// The sequence that keeps the largest id over restarts; temporary tubes have none.
    pub(crate) sequence: Option<u32>,
    /// One more than the largest id handed out since create or truncate; None: there are no more ids.
    pub(crate) next_id: Option<u64>,
    pub(crate) counters: Counters,
    /// Whether someone wants to see every change of a task.
    pub(crate) observed: bool,
}

impl Tube {
    pub(crate) fn tasks<'a>(&self, store: &'a Store) -> Tasks<'a> {
        Tasks { store, space: self.space, indexes: self.indexes }
    }
}

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    tube: Option<Box<Tube>>,
}

/// All tubes.
#[derive(Debug, Default)]
pub(crate) struct Tubes {
    places: Vec<Place>,
    free: Vec<SlotIndex>,
    by_name: HashMap<String, SlotIndex>,
    by_space: IntegerMap<SpaceId, SlotIndex>,
    by_id: BTreeMap<u64, SlotIndex>,
}

impl Tubes {
    /// Adds a tube. One that has the name already gives up its place, with its counters.
    pub(crate) fn insert(&mut self, mut tube: Tube) -> Slot {
        let index = match self.by_name.get(&tube.name) {
            Some(&index) => index,
            None => self.free.pop().unwrap_or_else(|| {
                self.places.push(Place::default());
                self.places.len() as SlotIndex - 1
            }),
        };
        let place = &mut self.places[index as usize];
        if let Some(former) = place.tube.take() {
            self.by_space.remove(&former.space);
            self.by_id.remove(&former.id);
            tube.counters = former.counters;
            tube.observed = former.observed;
        }
        self.by_name.insert(tube.name.clone(), index);
        self.by_space.insert(tube.space, index);
        self.by_id.insert(tube.id, index);
        place.tube = Some(Box::new(tube));
        Slot { index, generation: place.generation }
    }

    pub(crate) fn remove(&mut self, index: SlotIndex) -> Option<Box<Tube>> {
        let place = self.places.get_mut(index as usize)?;
        let tube = place.tube.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
        self.by_name.remove(&tube.name);
        self.by_space.remove(&tube.space);
        self.by_id.remove(&tube.id);
        Some(tube)
    }

    /// The tube that a slot was made for, unless it is gone.
    pub(crate) fn get(&self, slot: Slot) -> Option<&Tube> {
        let place = self.places.get(slot.index as usize)?;
        place.tube.as_deref().filter(|_| place.generation == slot.generation)
    }

    pub(crate) fn at(&self, index: SlotIndex) -> Option<&Tube> {
        self.places.get(index as usize)?.tube.as_deref()
    }

    pub(crate) fn at_mut(&mut self, index: SlotIndex) -> Option<&mut Tube> {
        self.places.get_mut(index as usize)?.tube.as_deref_mut()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Slot> {
        self.by_name.get(name).map(|&index| self.slot(index))
    }

    pub(crate) fn by_id(&self, id: u64) -> Option<SlotIndex> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn by_space(&self, space: SpaceId) -> Option<SlotIndex> {
        self.by_space.get(&space).copied()
    }

    /// The slots of all tubes in the order of their ids.
    pub(crate) fn slots(&self) -> impl Iterator<Item = SlotIndex> {
        self.by_id.values().copied()
    }

    pub(crate) fn slot(&self, index: SlotIndex) -> Slot {
        Slot { index, generation: self.places[index as usize].generation }
    }

    /// All tubes in the order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Tube> {
        self.slots().filter_map(|index| self.at(index))
    }
}
