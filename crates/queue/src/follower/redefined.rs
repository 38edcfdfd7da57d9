//! The definitions that a transaction changes: tubes, their spaces and indexes, and pauses. The tubes load again after its commit.

use std::collections::BTreeSet;

use lycosa_store::{Change, SpaceId, Store, system};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;

use crate::pause::PAUSED;
use crate::system::QUEUE;
use crate::task::id_of;
use crate::tube::Tubes;
use crate::tube_row::{BUFFER_SUFFIX, TubeRow};

/// The definitions that a transaction has changed. It may name more than has changed.
#[derive(Debug, Default)]
pub(crate) struct Redefined {
    /// Names of the tubes that are to be loaded again.
    pub(super) tubes: BTreeSet<String>,
    /// `_queue` was created, dropped or truncated: any tube may have been created or dropped.
    pub(super) all: bool,
    /// A tube may have been paused or resumed.
    pub(super) pauses: bool,
}

impl Redefined {
    pub(super) fn is_empty(&self) -> bool {
        !self.all && !self.pauses && self.tubes.is_empty()
    }

    /// Notes a change if it is one of a definition.
    pub(crate) fn note_any(&mut self, change: &Change<'_>, store: &Store, tubes: &Tubes, queue: SpaceId) {
        if change.space == system::TRUNCATE {
            self.all |= change.came().and_then(id_of) == Some(queue.into());
        } else if [queue, system::SPACE, system::INDEX].contains(&change.space) {
            self.note(change, store, tubes, queue);
        }
    }

    /// Notes a change if it is one of a row about a pause.
    pub(crate) fn note_pause(&mut self, change: &Change<'_>, pauses: SpaceId) {
        self.pauses |= pauses != 0 && change.space == pauses;
    }

    /// Notes a change of a row of a system space, or of `_queue`.
    pub(super) fn note(&mut self, change: &Change<'_>, store: &Store, tubes: &Tubes, queue: SpaceId) {
        let gone = change.gone();
        for row in [gone.as_deref(), change.came()].into_iter().flatten() {
            if change.space == queue {
                self.tubes.extend(TubeRow::read(row).map(|row| row.name.to_owned()));
                continue;
            }
            let Some(space) = id_of(row).and_then(|id| SpaceId::try_from(id).ok()) else { continue };
            self.all |= space == queue;
            let known = tubes.by_space(space).or(tubes.by_buffer(space)).and_then(|index| tubes.at(index));
            self.tubes.extend(known.map(|tube| tube.name.clone()));
            let present = store.space(space).ok().map(|space| space.name().to_owned());
            let former = if change.space == system::SPACE { name_of_space(row) } else { None };
            for name in present.into_iter().chain(former) {
                self.all |= name == QUEUE.name;
                self.pauses |= name == PAUSED.name;
                self.tubes.extend(name.strip_suffix(BUFFER_SUFFIX).map(str::to_owned));
                self.tubes.insert(name);
            }
        }
    }
}

/// The name in a row of `_space`.
fn name_of_space(row: &[u8]) -> Option<String> {
    let name = Reader::new(TupleRef::trusted(row).field(2)?).str().ok()?;
    str::from_utf8(name).ok().map(str::to_owned)
}
