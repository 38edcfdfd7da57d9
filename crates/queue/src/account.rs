//! The account of a change: updates the queue's memory beside the store when a task changes.
//!
//! Every operation of the queue emits a [`TaskChange`] after its statement, and changes that came another way (DML, a
//! program's transaction) are read from the open transaction into the same value. One function consumes it,
//! [`TubeTurn::account`]: next ids, counters, events, deadlines, candidates of sub-queues, calls that wait, owners.
//!
//! Counters and events wait in [`Pending`](crate::transaction::Pending) for the commit. What changes at once is taken back
//! by [`Undo`](crate::transaction::Undo); deadlines and the list of tubes to serve may say too much after a rollback, never too little.
//!
//! [`TubeTurn::account`]: crate::turn::TubeTurn::account

mod apply;

use std::ops::Range;

use lycosa_store::{Change, SpaceId, Statement, Store, system};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;

use crate::Client;
use crate::counted::Place;
use crate::driver::candidates::{Candidate, Growth, Touch};
use crate::error::Result;
use crate::leases::Leases;
use crate::statistics::Operation;
use crate::task::{Layout, State, Task, TaskKey, id_of, prospect, string_key, taken_key};
use crate::tube::Tubes;
use crate::tube::handle::TubeIndex;

/// One task before or after a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side<'a> {
    /// The state, unless a user has written another status.
    pub(crate) state: Option<State>,
    /// µs since the epoch; 0 in tubes without deadlines.
    pub(crate) next_event: u64,
    pub(crate) pri: u64,
    /// Name of the sub-queue; empty in tubes without.
    pub(crate) utube: &'a [u8],
}

impl<'a> Side<'a> {
    pub(crate) fn of(task: &Task<'a>) -> Self {
        Self { state: task.state(), next_event: task.times.next_event, pri: task.pri, utube: task.utube }
    }

    /// Reads a stored tuple; of tubes without sub-queues only the fields that count. None if its fields are not those of
    /// the layout.
    #[inline]
    pub(crate) fn read(tuple: &'a [u8], layout: &Layout) -> Option<Self> {
        if layout.utube.is_some() {
            return Task::read(tuple, layout).map(|task| Self::of(&task));
        }
        let (state, next_event) = prospect(tuple, layout)?;
        Some(Self { state, next_event, pri: 0, utube: &[] })
    }

    fn candidate(&self, id: u64) -> Candidate {
        Candidate { pri: self.pri, id }
    }
}

/// One change of one task.
#[derive(Debug)]
pub(crate) struct TaskChange<'a> {
    pub(crate) id: u64,
    /// None: the task is new.
    pub(crate) old: Option<Side<'a>>,
    /// None: the task is gone.
    pub(crate) new: Option<Side<'a>>,
    /// What the queue did. None: a program's or a master's row did it, or it counts as nothing.
    pub(crate) operation: Option<Operation>,
    /// Whose session owns the task from now on, and since when (µs since the epoch).
    pub(crate) taken_by: Option<(Client, u64)>,
    /// When the task was put, if it is taken now and the tube knows: µs since the epoch. Otherwise 0.
    pub(crate) created: u64,
    /// The stored tuple, the last one of a task that is gone; only of a tube that is observed.
    pub(crate) tuple: Option<Vec<u8>>,
}

impl TaskChange<'_> {
    /// Where the task was counted, and where it is from now on.
    #[inline]
    fn places(&self) -> [Place; 2] {
        let place =
            |side: &Option<Side<'_>>| side.as_ref().map_or(Place::Nowhere, |side| Place::of(side.state));
        [place(&self.old), place(&self.new)]
    }
}

/// The effect of a task's change on one sub-queue.
#[derive(Debug)]
pub(crate) struct Touched<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) touch: Touch,
    pub(crate) growth: Growth,
}

/// What a change of a task means for its sub-queue, or for both if it has moved. After a change that is not `alone` others
/// may have followed, so that only the store knows which task is first.
pub(crate) fn touches<'a>(
    id: u64,
    old: Option<Side<'a>>,
    new: Option<Side<'a>>,
    alone: bool,
) -> [Option<Touched<'a>>; 2] {
    let is_in = |side: Option<Side<'_>>, state| i32::from(side.is_some_and(|side| side.state == Some(state)));
    let growth = |old, new| Growth {
        taken: is_in(new, State::Taken) - is_in(old, State::Taken),
        ready: is_in(new, State::Ready) - is_in(old, State::Ready),
    };
    if let (Some(from), Some(to)) = (old, new)
        && from.utube != to.utube
    {
        let touched = |name, growth| Some(Touched { name, touch: Touch::Anyhow, growth });
        return [touched(from.utube, growth(old, None)), touched(to.utube, growth(None, new))];
    }
    let touched = new.or(old).zip(touch(id, old, new, alone));
    [touched.map(|(side, touch)| Touched { name: side.utube, touch, growth: growth(old, new) }), None]
}

/// The effect of a task's change on its sub-queue. None: no effect.
fn touch(id: u64, old: Option<Side<'_>>, new: Option<Side<'_>>, alone: bool) -> Option<Touch> {
    let state = |side: Option<Side<'_>>| side.and_then(|side| side.state);
    let candidate = |side: Option<Side<'_>>| side.map(|side| side.candidate(id));
    let touch = match (state(old), state(new)) {
        (_, Some(State::Taken)) | (Some(State::Taken), _) => Touch::Anyhow,
        (Some(State::Ready), Some(State::Ready)) if candidate(old) == candidate(new) => return None,
        (Some(State::Ready), Some(State::Ready)) => Touch::Anyhow,
        (Some(State::Ready), _) => Touch::Left(candidate(old)?),
        (_, Some(State::Ready)) => Touch::Arrived(candidate(new)?),
        _ => return None,
    };
    Some(if alone { touch } else { Touch::Anyhow })
}

/// A change that the queue did not make itself, in buffers of its own.
#[derive(Debug)]
enum Foreign {
    Task { index: TubeIndex, id: Option<u64>, old: Option<Kept>, new: Option<Kept> },
    Truncation(TubeIndex),
}

/// A [`Side`] whose sub-queue's name is in [`Read::names`].
#[derive(Debug)]
struct Kept {
    state: Option<State>,
    next_event: u64,
    pri: u64,
    utube: Range<usize>,
}

/// The read part of the open transaction; kept for its buffers.
#[derive(Debug, Default)]
pub(crate) struct Read {
    changes: Vec<Foreign>,
    names: Vec<u8>,
    /// Tasks whose owner's row or lease was changed or deleted.
    disowned: Vec<TaskKey>,
    /// All rows of owners were deleted.
    has_lost_owners: bool,
}

impl Read {
    fn read(&mut self, change: &Change<'_>, tubes: &Tubes, taken: SpaceId, leases: &mut Leases) {
        if let Some(index) = tubes.by_space(change.space) {
            let Some(tube) = tubes.at(index) else { return };
            let layout = tube.kind.layout();
            let (gone, came) = (change.gone(), change.came());
            let id = came.or(gone.as_deref()).and_then(id_of);
            let (old, new) = (self.keep(gone.as_deref(), layout), self.keep(came, layout));
            self.changes.push(Foreign::Task { index, id, old, new });
        } else if change.space == taken || leases.is_in(change.space) {
            let gone = change.gone();
            let tasks = [gone.as_deref(), change.came()].into_iter().flatten().filter_map(taken_key);
            self.disowned.extend(tasks);
            leases.look_again();
        } else if change.space == system::TRUNCATE
            && let Some(row) = change.came()
            && let Some(id) = TupleRef::trusted(row).field(0).and_then(|id| Reader::new(id).uint().ok())
            && let Ok(id) = SpaceId::try_from(id)
        {
            self.has_lost_owners |= id == taken || leases.is_in(id);
            self.changes.extend(tubes.by_space(id).map(Foreign::Truncation));
        }
    }

    fn keep(&mut self, tuple: Option<&[u8]>, layout: &Layout) -> Option<Kept> {
        let task = Task::read(tuple?, layout)?;
        let start = self.names.len();
        self.names.extend_from_slice(task.utube);
        let Side { state, next_event, pri, .. } = Side::of(&task);
        Some(Kept { state, next_event, pri, utube: start..self.names.len() })
    }

    fn side(&self, kept: &Option<Kept>) -> Option<Side<'_>> {
        let Kept { state, next_event, pri, utube } = kept.as_ref()?;
        let utube = &self.names[utube.clone()];
        Some(Side { state: *state, next_event: *next_event, pri: *pri, utube })
    }
}

/// Index `utube` of a ready buffer.
pub(crate) const BUFFER_BY_NAME: u32 = 1;

/// Makes the ready buffer show `candidate` for the sub-queue.
pub(crate) fn show_candidate(
    store: &mut Store,
    buffer: SpaceId,
    columns: usize,
    name: &[u8],
    candidate: Option<Candidate>,
) -> Result<()> {
    let key = string_key(name);
    if store.get(buffer, BUFFER_BY_NAME, &key)?.is_some() {
        store.execute(&Statement::Delete { space: buffer, index: BUFFER_BY_NAME, key: &key })?;
    }
    if let Some(Candidate { pri, id }) = candidate {
        let mut row = Vec::with_capacity(name.len() + 24);
        mp::write_array(&mut row, columns as u32);
        mp::write_uint(&mut row, id);
        mp::write_str(&mut row, name);
        if columns > 2 {
            mp::write_uint(&mut row, pri);
        }
        store.execute(&Statement::Replace { space: buffer, tuple: &row })?;
    }
    Ok(())
}
