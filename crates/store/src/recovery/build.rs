//! Indexes built at once over all tuples of a space.
//!
//! Invariant: a space's secondary indexes hold what its primary one holds, or the space says that they are stale, and then
//! nothing of them is read.

use lycosa_tuple::format::Format;
use lycosa_tuple::key::KeyDef;

use crate::arena::{Arena, Handle};
use crate::error::Error;
use crate::schema::catalog::Catalog;
use crate::space::{Space, SpaceIndex};

/// The build of one index, independent of all others.
#[derive(Debug)]
pub struct IndexBuild<'a> {
    arena: &'a Arena,
    index: &'a mut SpaceIndex,
    /// Of its space.
    format: &'a Format,
    primary: Option<KeyDef>,
    handles: &'a [Handle],
    outcome: &'a mut Outcome,
}

/// The result of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Pending,
    Built,
    /// Two tuples have one key, or a tuple has none.
    Refused,
}

impl IndexBuild<'_> {
    /// The number of tuples.
    #[must_use]
    pub fn tuples(&self) -> usize {
        self.handles.len()
    }

    /// Builds the index.
    pub fn run(self) {
        let built = self.index.build(self.arena, (self.format, self.primary.as_ref()), self.handles);
        *self.outcome = if built.is_ok() { Outcome::Built } else { Outcome::Refused };
    }
}

/// Builds the primary index of a space over its loaded tuples; the secondary ones are stale then.
pub(super) fn build_primary(space: &mut Space, arena: &Arena) -> Result<(), Error> {
    let loaded = std::mem::take(&mut space.loaded);
    let Some((primary, secondary)) = space.indexes.split_first_mut() else { return Ok(()) };
    if loaded.is_empty() {
        return Ok(());
    }
    if primary.index.build(arena, loaded).is_err() {
        return Err(duplicate(space, 0));
    }
    space.has_stale_indexes = !secondary.is_empty();
    Ok(())
}

/// Builds all indexes that are stale.
pub(super) fn build_secondary(
    catalog: &mut Catalog,
    arena: &Arena,
    run: impl FnOnce(Vec<IndexBuild<'_>>),
) -> Result<(), Error> {
    let mut stale: Vec<&mut Space> = catalog.iter_mut().filter(|space| space.has_stale_indexes).collect();
    let tuples: Vec<Vec<Handle>> = stale.iter().map(|space| primary_order(space)).collect();
    let mut outcomes: Vec<Vec<Outcome>> =
        stale.iter().map(|space| vec![Outcome::Pending; space.indexes.len().saturating_sub(1)]).collect();
    let mut builds = Vec::new();
    for ((space, handles), outcomes) in stale.iter_mut().zip(&tuples).zip(&mut outcomes) {
        let primary = space.primary_key().cloned();
        let Space { indexes, format, .. } = &mut **space;
        for (index, outcome) in indexes.iter_mut().skip(1).zip(outcomes) {
            builds.push(IndexBuild { arena, index, format, primary: primary.clone(), handles, outcome });
        }
    }
    run(builds);
    for (space, outcomes) in stale.into_iter().zip(outcomes) {
        assert!(!outcomes.contains(&Outcome::Pending), "every build is run");
        if let Some(refused) = outcomes.iter().position(|&outcome| outcome == Outcome::Refused) {
            return Err(duplicate(space, refused + 1));
        }
        space.has_stale_indexes = false;
    }
    Ok(())
}

/// Makes the indexes of one space right, if they are stale.
pub(super) fn refresh(space: &mut Space, arena: &Arena) -> Result<(), Error> {
    if !space.has_stale_indexes {
        return Ok(());
    }
    let handles = primary_order(space);
    let primary = space.primary_key().cloned();
    let Space { indexes, format, .. } = &mut *space;
    let refuses = |index: &mut SpaceIndex| index.build(arena, (format, primary.as_ref()), &handles).is_err();
    if let Some(refused) = indexes.iter_mut().skip(1).position(refuses) {
        return Err(duplicate(space, refused + 1));
    }
    space.has_stale_indexes = false;
    Ok(())
}

/// The tuples of a space as its primary index has them; none if it has no index.
fn primary_order(space: &Space) -> Vec<Handle> {
    space.indexes.first().map_or_else(Vec::new, |primary| primary.index.handles().collect())
}

fn duplicate(space: &mut Space, index: usize) -> Error {
    space.indexes[index].refusal(&space.def.name)
}
