//! Tubes: named queues of tasks, each on a space of its own.
//!
//! The durable part of a tube lies in the store: its row in `_queue`, its space, its tasks. A [`Tube`] is what the
//! process knows beside it, all of it derived from the store at start: the driver, the ids of space and indexes, the
//! next id, the counters.

pub(crate) mod handle;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use lycosa_store::{SpaceId, Store};

use crate::counted::{Counted, Event, KeptTasks, Place};
use crate::driver::fifo::Fifo;
use crate::driver::{Driver, Indexes, Paused, Tasks, TubeOptions, TubeType};
use crate::error::Result;
use crate::follower::amiss::Amiss;
use crate::integer_map::IntegerMap;
use crate::recount::Recount;
use crate::statistics::{Counters, TubeStatistics};
use crate::status::history::{Claim, Histories};
use crate::status::meter::{Closed, MAX_METERS, Meter, Totals};
use crate::status::oldest::Oldest;
use crate::task::Task;
use crate::tube::handle::{TubeHandle, TubeIndex};

/// A tube in memory: the data derived from its rows.
#[derive(Debug)]
pub(crate) struct Tube {
    pub(crate) name: String,
    /// The id in `_queue`, part of the keys of taken tasks and consumers.
    pub(crate) id: u64,
    pub(crate) space: SpaceId,
    pub(crate) indexes: Indexes,
    /// The space that shows the candidates.
    pub(crate) buffer: Option<SpaceId>,
    pub(crate) kind: Arc<TubeType>,
    pub(crate) driver: Box<dyn Driver>,
    /// Wrong rows for the next start, or the timer of a running queue, to correct.
    pub(crate) amiss: Amiss,
    /// Whether the driver's candidates and `amiss` are those of the rows.
    pub(crate) candidates_follow: bool,
    pub(crate) options: TubeOptions,
    /// The sequence that keeps the largest id over restarts. That of a temporary tube is ahead.
    pub(crate) sequence: Option<u32>,
    /// One more than the largest id handed out since create or truncate; None: there are no more ids.
    pub(crate) next_id: Option<u64>,
    pub(crate) counters: Counters,
    /// Numbers of its tasks, as of the last commit.
    pub(crate) counts: KeptTasks,
    /// Its measures. None: [`MAX_METERS`] other tubes have meters already.
    pub(crate) meter: Option<Box<Meter>>,
    /// What the last look at its ready tasks found.
    pub(crate) oldest: Oldest,
    /// A walk over its tasks that counts them again.
    pub(crate) recount: Option<Box<Recount>>,
    /// Whether someone wants to see every change of a task.
    pub(crate) observed: bool,
    /// Whether the driver is [`Paused`].
    pub(crate) paused: bool,
}

impl Tube {
    pub(crate) fn tasks<'a>(&self, store: &'a Store) -> Tasks<'a> {
        Tasks { store, space: self.space, indexes: self.indexes }
    }

    /// The task with that id.
    #[inline]
    pub(crate) fn task<'a>(&self, store: &'a Store, id: u64) -> Result<Option<Task<'a>>> {
        Ok(self.tasks(store).get(id)?.and_then(|tuple| Task::read(tuple, self.kind.layout())))
    }

    /// From now on the tube hands out no tasks, or does again.
    pub(crate) fn set_paused(&mut self, paused: bool) {
        if self.paused == paused {
            return;
        }
        if paused {
            let own = std::mem::replace(&mut self.driver, Box::new(Fifo));
            self.driver = Box::new(Paused(own));
        } else if let Some(own) = self.driver.resume() {
            self.driver = own;
        }
        self.paused = paused;
    }

    /// The counters of `queue.statistics`.
    pub(crate) fn statistics(&self) -> TubeStatistics {
        TubeStatistics { tasks: self.counts.shown(), counters: self.counters }
    }

    /// The tube was truncated; `total` has its tasks.
    #[cold]
    fn count_truncation(&mut self, total: &mut KeptTasks) {
        total.subtract(&self.counts);
        self.counts = KeptTasks::default();
        if let Some(meter) = &mut self.meter {
            meter.puts.clear();
            meter.takes.clear();
        }
    }

    /// Counts a truncation, the end of an owner's session, or the move of a task by a statement.
    #[cold]
    fn count_without_operation(&mut self, counted: &Counted, total: &mut KeptTasks, totals: &mut Totals) {
        if counted.from == Place::Everywhere {
            self.count_truncation(total);
        } else {
            total.apply(counted.from, counted.to);
            self.counts.apply(counted.from, counted.to);
        }
        if counted.event == Event::Disconnected {
            self.counters.add_disconnect();
            totals.counters.add_disconnect();
        }
        if counted.from == Place::Taken
            && counted.to != Place::Taken
            && let Some(meter) = &mut self.meter
        {
            meter.takes.remove(counted.id);
        }
        if let Some(recount) = &mut self.recount {
            recount.apply(counted);
        }
    }

    /// Its period has ended. Returns the tube whose history ends because this one is busier.
    #[cold]
    fn close_period(&mut self, index: TubeIndex, histories: &mut Histories, now: u64) -> Option<TubeIndex> {
        let Self { meter, counters, counts, .. } = self;
        let meter = meter.as_deref_mut()?;
        let Closed { period, counts: done, idle } = meter.pace.close(now, counters)?;
        let business = meter.pace.rates(now, counters).business();
        let claim = histories.claim(index, business, period);
        if claim != Claim::Not {
            meter.history.get_or_insert_default().close(period, counts.shown(), done, idle);
        }
        if let Claim::Replaces(former) = claim { Some(former) } else { None }
    }
}

#[derive(Debug, Default)]
struct TubeSlot {
    generation: u32,
    tube: Option<Box<Tube>>,
}

/// All tubes.
#[derive(Debug, Default)]
pub(crate) struct Tubes {
    slots: Vec<TubeSlot>,
    free: Vec<TubeIndex>,
    by_name: HashMap<String, TubeIndex>,
    by_space: IntegerMap<SpaceId, TubeIndex>,
    /// By the space of the ready buffer.
    by_buffer: IntegerMap<SpaceId, TubeIndex>,
    by_id: BTreeMap<u64, TubeIndex>,
    /// Tasks of all tubes.
    total: KeptTasks,
    /// Tubes with a meter.
    meters: usize,
}

impl Tubes {
    /// Adds a tube. One that has the name already gives up its slot, with its counters.
    pub(crate) fn insert(&mut self, mut tube: Tube) -> TubeHandle {
        let index = match self.by_name.get(&tube.name) {
            Some(&index) => index,
            None => self.free.pop().unwrap_or_else(|| {
                self.slots.push(TubeSlot::default());
                self.slots.len() as TubeIndex - 1
            }),
        };
        if let Some(former) = self.slots[index as usize].tube.take() {
            self.forget(index, &former);
            tube.counters = former.counters;
            tube.observed = former.observed;
            tube.meter = former.meter;
            self.total.subtract(&former.counts);
        } else if self.meters < MAX_METERS {
            self.meters += 1;
            tube.meter = Some(Box::default());
        }
        self.total.add_all(&tube.counts);
        self.by_name.insert(tube.name.clone(), index);
        self.by_space.insert(tube.space, index);
        tube.buffer.map(|buffer| self.by_buffer.insert(buffer, index));
        self.by_id.insert(tube.id, index);
        let slot = &mut self.slots[index as usize];
        slot.tube = Some(Box::new(tube));
        TubeHandle { index, generation: slot.generation }
    }

    pub(crate) fn remove(&mut self, index: TubeIndex) -> Option<Box<Tube>> {
        let slot = self.slots.get_mut(index as usize)?;
        let tube = slot.tube.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        self.by_name.remove(&tube.name);
        self.total.subtract(&tube.counts);
        self.meters -= usize::from(tube.meter.is_some());
        self.forget(index, &tube);
        Some(tube)
    }

    /// Removes a tube from the maps, as far as no other tube has taken its place there.
    fn forget(&mut self, index: TubeIndex, tube: &Tube) {
        if self.by_space(tube.space) == Some(index) {
            self.by_space.remove(&tube.space);
        }
        if let Some(buffer) = tube.buffer.filter(|&buffer| self.by_buffer(buffer) == Some(index)) {
            self.by_buffer.remove(&buffer);
        }
        if self.by_id(tube.id) == Some(index) {
            self.by_id.remove(&tube.id);
        }
    }

    /// Takes something into account that was committed at `now`, and measures it.
    // Every operation comes here, and a call would cost a tenth of it.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    pub(crate) fn count(
        &mut self,
        counted: &Counted,
        totals: &mut Totals,
        histories: &mut Histories,
        now: u64,
    ) {
        let Self { slots, total, .. } = self;
        let Some(slot) = slots.get_mut(counted.tube as usize) else { return };
        let Some(tube) = slot.tube.as_deref_mut() else { return };
        // Before anything of the new period is counted.
        if tube.meter.as_ref().is_some_and(|meter| meter.pace.is_due(now)) {
            return self.count_in_new_period(counted, totals, histories, now);
        }
        let Event::Operation(operation) = counted.event else {
            return tube.count_without_operation(counted, total, totals);
        };
        total.apply(counted.from, counted.to);
        tube.counts.apply(counted.from, counted.to);
        tube.counters.add(operation);
        totals.measure(tube.meter.as_deref_mut(), operation, counted, tube.kind.layout().timed, now);
        if let Some(recount) = &mut tube.recount {
            recount.apply(counted);
        }
    }

    #[cold]
    fn count_in_new_period(
        &mut self,
        counted: &Counted,
        totals: &mut Totals,
        histories: &mut Histories,
        now: u64,
    ) {
        let closed = self.at_mut(counted.tube);
        let replaced = closed.and_then(|tube| tube.close_period(counted.tube, histories, now));
        if let Some(meter) = replaced.and_then(|index| self.at_mut(index)?.meter.as_deref_mut()) {
            meter.history = None;
        }
        self.count(counted, totals, histories, now);
    }

    /// Tasks of all tubes.
    pub(crate) fn total(&self) -> KeptTasks {
        self.total
    }

    /// Number of tubes.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The store holds other data: no tube is found by its space or its id until it was inserted again.
    pub(crate) fn detach(&mut self) {
        self.by_space.clear();
        self.by_buffer.clear();
        self.by_id.clear();
        for tube in self.slots.iter_mut().filter_map(|slot| slot.tube.as_deref_mut()) {
            tube.candidates_follow = false;
        }
    }

    /// The slots that have a tube.
    pub(crate) fn slots(&self) -> impl Iterator<Item = TubeIndex> {
        (0..).zip(&self.slots).filter(|(_, slot)| slot.tube.is_some()).map(|(index, _)| index)
    }

    /// The first tube behind an id, or behind none; with `itself` the tube of that id, if it exists. Its id and its slot.
    pub(crate) fn next(&self, id: Option<u64>, itself: bool) -> Option<(u64, TubeIndex)> {
        let first = match id {
            Some(id) if itself => Bound::Included(id),
            Some(id) => Bound::Excluded(id),
            None => Bound::Unbounded,
        };
        self.by_id.range((first, Bound::Unbounded)).next().map(|(&id, &index)| (id, index))
    }

    /// The tube of a handle, unless the tube was dropped.
    pub(crate) fn get(&self, handle: TubeHandle) -> Option<&Tube> {
        let slot = self.slots.get(handle.index as usize)?;
        slot.tube.as_deref().filter(|_| slot.generation == handle.generation)
    }

    pub(crate) fn at(&self, index: TubeIndex) -> Option<&Tube> {
        self.slots.get(index as usize)?.tube.as_deref()
    }

    pub(crate) fn at_mut(&mut self, index: TubeIndex) -> Option<&mut Tube> {
        self.slots.get_mut(index as usize)?.tube.as_deref_mut()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<TubeHandle> {
        self.by_name.get(name).map(|&index| self.handle(index))
    }

    pub(crate) fn by_id(&self, id: u64) -> Option<TubeIndex> {
        self.by_id.get(&id).copied()
    }

    /// The slot of the tube with that id and name.
    pub(crate) fn by_id_and_name(&self, id: u64, name: &str) -> Option<TubeIndex> {
        self.by_id(id).filter(|&index| self.at(index).is_some_and(|tube| tube.name == name))
    }

    pub(crate) fn by_space(&self, space: SpaceId) -> Option<TubeIndex> {
        self.by_space.get(&space).copied()
    }

    pub(crate) fn by_buffer(&self, space: SpaceId) -> Option<TubeIndex> {
        self.by_buffer.get(&space).copied()
    }

    /// The indexes of all tubes in the order of their ids.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = TubeIndex> {
        self.by_id.values().copied()
    }

    pub(crate) fn handle(&self, index: TubeIndex) -> TubeHandle {
        TubeHandle { index, generation: self.slots[index as usize].generation }
    }

    /// All tubes in the order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Tube> {
        self.indexes().filter_map(|index| self.at(index))
    }
}
