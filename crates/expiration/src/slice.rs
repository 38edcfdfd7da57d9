//! A slice: reads a few tuples, and deletes the expired ones in the open transaction.
//!
//! An index that is ordered by the field is read from its front up to the first tuple that lives. Any other index is
//! walked with a cursor that goes on where the slice before stopped. Tuples that are due are noted by their primary keys
//! and looked at again right before they are deleted, because a deletion can change other tuples.

use std::ops::ControlFlow;

use lycosa_store::{Cursor, IteratorType, Progress, SpaceId, Statement, Store};
use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;

use crate::deadline::deadline;
use crate::definition::{Archive, Order, Plan};
use crate::error::Error;

/// Tuples between two looks at the clock.
const CHUNK: u32 = 32;
/// Deletions between two looks at the clock.
const DELETIONS: usize = 8;
/// Deletions of one slice at most, at any speed: about a million instructions with their commit
/// (`crates/instance/examples/expire.rs` counts them).
pub const MAX_DELETIONS: u64 = 512;

/// What a slice needs of the world around the store.
pub trait Host {
    /// Microseconds since the slice began, by a clock that never goes back.
    fn elapsed(&mut self) -> u64;

    /// Puts a task with this payload into a tube, in the open transaction.
    ///
    /// # Errors
    /// Why the tube does not take it: there is none, or it is full.
    fn put(&mut self, store: &mut Store, tube: &str, payload: &[u8]) -> Result<(), String>;

    /// Stores a tuple in a space, in place of one with the same primary key, in the open transaction.
    ///
    /// # Errors
    /// Why the space does not take it.
    fn keep(&mut self, store: &mut Store, space: SpaceId, tuple: &[u8]) -> Result<(), String>;
}

/// Primary keys of tuples that were due when they were seen.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    keys: Vec<u8>,
    /// The end of each key.
    ends: Vec<usize>,
    /// How many are dealt with.
    done: usize,
}

impl Victims {
    fn push(&mut self, store: &Store, space: SpaceId, tuple: &[u8]) -> Result<(), Error> {
        let space = store.space(space)?;
        let missing = || lycosa_store::Error::NoSuchIndexId { index: 0, space: space.name().to_owned() };
        let primary = space.index(0).ok_or_else(missing)?.key();
        mp::write_array(&mut self.keys, primary.part_count());
        primary.extract(tuple, &mut self.keys);
        self.ends.push(self.keys.len());
        Ok(())
    }

    fn next(&self) -> Option<&[u8]> {
        let end = *self.ends.get(self.done)?;
        let start = self.done.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.keys[start..end])
    }

    fn is_empty(&self) -> bool {
        self.done == self.ends.len()
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
        self.done = 0;
    }
}

/// What a slice may do, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits<'a> {
    /// µs since the epoch.
    pub(crate) now: u64,
    pub(crate) rows: u32,
    pub(crate) microseconds: u64,
    pub(crate) archive: Option<&'a Archive>,
    /// Nothing is deleted.
    pub(crate) dry_run: bool,
}

/// What a slice has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Slice {
    /// Tuples that it looked at.
    pub(crate) looked: u64,
    /// Tuples that it deleted; in a dry run, that are due.
    pub(crate) expired: u64,
    /// Tuples that were due when they were seen, and no longer when it was their turn.
    pub(crate) changed: u64,
    /// Tuples without a deadline.
    pub(crate) undated: u64,
    /// Tuples that exist although they were deleted.
    pub(crate) kept: u64,
    /// The earliest and the latest deadline of the expired tuples, µs since the epoch.
    pub(crate) oldest: Option<u64>,
    pub(crate) newest: Option<u64>,
    /// The earliest future deadline among the tuples that it saw.
    pub(crate) earliest: Option<u64>,
    /// Nothing more is due, or the pass is over.
    pub(crate) is_over: bool,
}

impl Slice {
    /// Notes the deadline of a tuple; whether it is due.
    fn note(&mut self, deadline: Option<u64>, now: u64) -> bool {
        self.looked += 1;
        match deadline {
            None => {
                self.undated += 1;
                false
            }
            Some(deadline) if deadline <= now => {
                self.oldest = Some(self.oldest.map_or(deadline, |oldest| oldest.min(deadline)));
                self.newest = Some(self.newest.map_or(deadline, |newest| newest.max(deadline)));
                true
            }
            Some(deadline) => {
                self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
                false
            }
        }
    }
}

impl Plan {
    fn deadline_of(&self, tuple: &[u8]) -> Option<u64> {
        deadline(TupleRef::trusted(tuple).field(self.field)?, self.unit)
    }

    /// The first deadline of an index that is ordered by it. An index that has to flush deferred entries first has
    /// none yet: then `now` is it.
    pub(crate) fn first(&self, store: &mut Store, order: Order, now: u64) -> Result<Option<u64>, Error> {
        match store.read(self.space, self.index, u64::from(CHUNK))? {
            Some(store) => self.first_flushed(store, order),
            None => Ok(Some(now)),
        }
    }

    /// The same where nothing is deferred.
    pub(crate) fn first_flushed(&self, store: &Store, order: Order) -> Result<Option<u64>, Error> {
        let key = order.key(0, self.unit);
        let first = store.first(self.space, self.index, IteratorType::Ge, &key)?;
        Ok(first.and_then(|tuple| self.deadline_of(tuple)))
    }

    /// Reads the front of an index that is ordered by the field, and deletes expired tuples. With an archive the tuples are
    /// noted first: what puts them there can change others.
    pub(crate) fn expire_front(
        &self,
        store: &mut Store,
        order: Order,
        victims: &mut Victims,
        limits: &Limits<'_>,
        host: &mut dyn Host,
    ) -> Result<Slice, Error> {
        let mut slice = Slice::default();
        let from = order.key(0, self.unit);
        if limits.archive.is_none() {
            self.delete_front(store, &from, limits, host, &mut slice)?;
            return Ok(slice);
        }
        while slice.looked < u64::from(limits.rows) {
            if store.read(self.space, self.index, u64::from(CHUNK))?.is_none() {
                break;
            }
            let left = u64::from(limits.rows) - slice.looked;
            let until = slice.looked + left.min(u64::from(CHUNK));
            victims.clear();
            let mut failed = Ok(());
            slice.is_over = true;
            store.scan(self.space, self.index, IteratorType::Ge, &from, &mut |tuple| {
                if !slice.note(self.deadline_of(tuple), limits.now) {
                    return ControlFlow::Break(());
                }
                failed = victims.push(store, self.space, tuple);
                if slice.looked < until && failed.is_ok() {
                    return ControlFlow::Continue(());
                }
                slice.is_over = false;
                ControlFlow::Break(())
            })?;
            failed?;
            let before = slice.kept;
            let in_time = self.delete(store, victims, limits, host, &mut slice)?;
            slice.is_over &= in_time && slice.kept == 0;
            // What cannot be deleted stands in front, and would be met again and again.
            if slice.is_over || !in_time || slice.kept > before {
                break;
            }
        }
        Ok(slice)
    }

    /// Deletes expired tuples at the front of an index that is ordered by the field, and keeps nothing of them. Nothing runs
    /// between the look at a tuple and its deletion, so no tuple has to be looked at twice.
    fn delete_front(
        &self,
        store: &mut Store,
        from: &[u8],
        limits: &Limits<'_>,
        host: &mut dyn Host,
        slice: &mut Slice,
    ) -> Result<(), Error> {
        loop {
            let left = u64::from(limits.rows).saturating_sub(slice.looked);
            let limit = left.min(MAX_DELETIONS.saturating_sub(slice.expired)).min(DELETIONS as u64);
            if limit == 0 || store.read(self.space, self.index, u64::from(CHUNK))?.is_none() {
                return Ok(());
            }
            let walk = (self.index, IteratorType::Ge, from);
            let deleted = store.delete_along(self.space, walk, limit as usize, &mut |tuple| {
                slice.note(self.deadline_of(tuple), limits.now)
            })?;
            slice.expired += deleted;
            slice.is_over = deleted < limit;
            if slice.is_over || host.elapsed() >= limits.microseconds {
                return Ok(());
            }
        }
    }

    /// Goes on with a walk over any index, and deletes expired tuples.
    pub(crate) fn expire_along(
        &self,
        store: &mut Store,
        cursor: &mut Cursor,
        victims: &mut Victims,
        limits: &Limits<'_>,
        host: &mut dyn Host,
    ) -> Result<Slice, Error> {
        let mut slice = Slice::default();
        let mut is_at_end = cursor.is_at_end();
        loop {
            if !self.delete(store, victims, limits, host, &mut slice)? {
                return Ok(slice);
            }
            victims.clear();
            if is_at_end {
                slice.is_over = true;
                return Ok(slice);
            }
            let left = u64::from(limits.rows).saturating_sub(slice.looked);
            if left == 0 || slice.looked > 0 && host.elapsed() >= limits.microseconds {
                return Ok(slice);
            }
            let rows = u32::try_from(left.min(u64::from(CHUNK))).unwrap_or(CHUNK);
            let budget = lycosa_store::Budget::of_rows(rows);
            let mut due: Vec<Vec<u8>> = Vec::new();
            let before = slice.looked;
            let progress = store.advance(cursor, budget, &mut |tuple| {
                if slice.note(self.deadline_of(tuple), limits.now) {
                    if limits.dry_run {
                        slice.expired += 1;
                    } else {
                        due.push(tuple.to_vec());
                    }
                }
            })?;
            for tuple in &due {
                victims.push(store, self.space, tuple)?;
            }
            is_at_end = progress == Progress::End;
            if slice.looked == before && !is_at_end {
                // Deferred index entries were flushed; the next slice goes on.
                return Ok(slice);
            }
        }
    }

    /// Deletes the noted tuples that are still due. False if the time was over before that, or [`MAX_DELETIONS`] were reached,
    /// or the archive is full.
    fn delete(
        &self,
        store: &mut Store,
        victims: &mut Victims,
        limits: &Limits<'_>,
        host: &mut dyn Host,
        slice: &mut Slice,
    ) -> Result<bool, Error> {
        let between = if limits.archive.is_some() { 1 } else { DELETIONS };
        let mut since_look = 0;
        while let Some(key) = victims.next() {
            if slice.expired >= MAX_DELETIONS {
                return Ok(false);
            }
            if since_look == between {
                since_look = 0;
                if host.elapsed() >= limits.microseconds {
                    return Ok(false);
                }
            }
            since_look += 1;
            let tuple = store.get(self.space, 0, key)?;
            match tuple.filter(|tuple| self.deadline_of(tuple).is_some_and(|due| due <= limits.now)) {
                None => slice.changed += 1,
                Some(tuple) => {
                    if let Some(archive) = limits.archive {
                        let tuple = tuple.to_vec();
                        match keep(store, archive, &tuple, host) {
                            // Earlier archived tuples stay archived; the next slice begins with this tuple, and fails.
                            Err(_) if slice.expired > 0 => return Ok(false),
                            kept => kept?,
                        }
                    }
                    let deleted =
                        store.execute(&Statement::Delete { space: self.space, index: 0, key })?.is_some();
                    slice.expired += u64::from(deleted);
                    slice.kept += u64::from(!deleted);
                }
            }
            victims.done += 1;
        }
        debug_assert!(victims.is_empty());
        Ok(true)
    }
}

/// Puts a tuple into the archive.
fn keep(store: &mut Store, archive: &Archive, tuple: &[u8], host: &mut dyn Host) -> Result<(), Error> {
    match archive {
        Archive::Tube(tube) => {
            host.put(store, tube, tuple).map_err(|reason| Error::Archive(format!("tube '{tube}': {reason}")))
        }
        Archive::Space(space) => host.keep(store, *space, tuple).map_err(Error::Archive),
    }
}

/// The expired tuples in an index that is ordered by the field: their number, the earliest and the latest deadline.
pub(crate) fn count_due(
    plan: &Plan,
    store: &Store,
    order: Order,
    now: u64,
) -> Result<(u64, Option<u64>, Option<u64>), Error> {
    let (from, until) = (order.key(0, plan.unit), order.key(now, plan.unit));
    let dated = store.count(plan.space, plan.index, IteratorType::Ge, &from)?;
    let alive = store.count(plan.space, plan.index, IteratorType::Gt, &until)?;
    let count = dated.saturating_sub(alive);
    if count == 0 {
        return Ok((0, None, None));
    }
    let oldest = plan.first_flushed(store, order)?;
    let newest = store.first(plan.space, plan.index, IteratorType::Le, &until)?;
    Ok((count, oldest, newest.and_then(|tuple| plan.deadline_of(tuple))))
}
