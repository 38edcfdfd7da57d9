//! Wrong rows of a tube: the start corrects them, and a follower keeps the list of them up to date.

use std::collections::BTreeSet;

use crate::task::{State, Task, Times};
use crate::time::{MAX_TIMEOUT, MICROSECONDS, NEVER};

/// Microseconds by which a task's next event may differ from the end of its life: the Lua module asks for the time more
/// than once.
const EVENT_TOLERANCE: u64 = MICROSECONDS;

/// Wrong rows of a tube. A running queue writes no such rows; the Lua module did, and users may.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Amiss {
    /// The sub-queues whose candidate the ready buffer does not show.
    pub(crate) names: BTreeSet<Box<[u8]>>,
    /// Ids of tasks whose next event is wrong ([`is_event_amiss`]).
    pub(crate) events: BTreeSet<u64>,
}

impl Amiss {
    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.events.clear();
    }

    pub(crate) fn note_name(&mut self, name: &[u8], is_amiss: bool) {
        if is_amiss {
            self.names.insert(name.into());
        } else {
            self.names.remove(name);
        }
    }

    pub(crate) fn note_event(&mut self, id: u64, is_amiss: bool) {
        if is_amiss {
            self.events.insert(id);
        } else {
            self.events.remove(&id);
        }
    }
}

/// Whether a task's next event is wrong. Of a ready or buried task it is the end of its life, of a delayed one not later.
/// A taken task is not looked at: it ends with its session at the latest, which corrects it.
///
/// The Lua module's utubettl stores any number on release, its early versions kept the end of the ttr in a buried task.
pub(crate) fn is_event_amiss(task: &Task<'_>) -> bool {
    let Times { next_event, ttl, .. } = task.times;
    let death = task.times.death();
    let is_amiss = match task.state() {
        Some(State::Ready | State::Buried) => next_event.abs_diff(death) > EVENT_TOLERANCE,
        Some(State::Delayed) => next_event > death.saturating_add(EVENT_TOLERANCE),
        Some(State::Taken | State::Done) | None => false,
    };
    let is_endless = next_event == NEVER && ttl > MAX_TIMEOUT;
    is_amiss && !is_endless
}
