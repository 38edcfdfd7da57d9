//! Walks: what a SELECT with an iterator type, a key and an offset yields.

use std::cmp::Ordering;

use super::tree::{Cursor, Entry, Order, Probe};
use super::{Bookmark, Index, IndexKind};
use crate::arena::{Arena, Handle};
use crate::statement::IteratorType;

/// A walk over an index, one handle at a time. It reads no more of the index than it yields.
#[derive(Debug, Clone)]
pub struct Select<'a> {
    order: Order<'a>,
    cursor: Cursor<'a>,
    descending: bool,
    /// The walk ends at the first tuple without this key.
    within: Option<Probe<'a>>,
    ended: bool,
}

/// Why an index cannot be walked so. The error's text depends on names that only the space knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The kind of index has no such iterator (UNSUPPORTED_INDEX_FEATURE, code 112).
    #[error("the index does not support requested iterator type")]
    Iterator,
    /// A functional index has no row in `_func_index` (UNSUPPORTED_INDEX_FEATURE, code 112).
    #[error("the index does not support read view")]
    Disabled,
    /// A HASH index was given less than a whole key (PARTIAL_KEY, code 136).
    #[error("the index does not support selects via a partial key (expected {expected} parts, got {got})")]
    PartialKey {
        /// Parts of the index.
        expected: u32,
        /// Parts of the key.
        got: u32,
    },
}

impl Iterator for Select<'_> {
    type Item = Handle;

    #[inline]
    fn next(&mut self) -> Option<Handle> {
        self.next_entry().map(|entry| entry.handle)
    }
}

impl Select<'_> {
    /// The next tuple with its hint.
    #[inline]
    pub fn next_entry(&mut self) -> Option<Entry> {
        if self.ended {
            return None;
        }
        let step = if self.descending { self.cursor.backward() } else { self.cursor.forward() };
        let found = step.filter(|&entry| self.reaches(entry));
        self.ended = found.is_none();
        found
    }

    /// Which of two tuples, in the index or not, comes first on this walk.
    pub fn compare(&self, a: Entry, b: Entry) -> Ordering {
        let Order { arena, key, .. } = self.order;
        let by_key = || key.compare(arena.get(a.handle), arena.get(b.handle));
        let ascending = a.hint.cmp(&b.hint).then_with(by_key);
        if self.descending { ascending.reverse() } else { ascending }
    }

    fn reaches(&self, entry: Entry) -> bool {
        self.within.as_ref().is_none_or(|probe| probe.matches(self.order, entry))
    }
}

impl Index {
    /// Walks the tuples that `iterator` yields for the first `part_count` values in `key`, after the first `offset`
    /// of them. An empty key means the whole index, and ALL with a key is GE. In a HASH, ALL means the whole index.
    /// GT in a HASH means the tuples after the one with that key; an unknown key gives none.
    ///
    /// The key must fit the index ([`lycosa_tuple::key::KeyDef::check_key`]) and have at most [`Index::own_parts`] values.
    ///
    /// # Errors
    /// The kind of index does not have the iterator, or not for such a key.
    pub fn select<'a>(
        &'a self,
        arena: &'a Arena,
        iterator: IteratorType,
        key: &'a [u8],
        part_count: u32,
        offset: u64,
    ) -> Result<Select<'a>, SelectError> {
        let mut walk = self.walk(arena, iterator, key, part_count)?;
        if offset > 0 {
            let rank = walk.cursor.rank();
            walk.cursor = self.entries.at(if walk.descending {
                rank.saturating_sub(offset)
            } else {
                rank.saturating_add(offset)
            });
        }
        Ok(walk)
    }

    /// Goes on with a walk of [`Index::select`] behind a position that it has reached, after any changes since.
    ///
    /// # Errors
    /// As [`Index::select`].
    pub fn resume<'a>(
        &'a self,
        arena: &'a Arena,
        iterator: IteratorType,
        key: &'a [u8],
        part_count: u32,
        position: &Bookmark,
    ) -> Result<Select<'a>, SelectError> {
        let mut walk = self.walk(arena, iterator, key, part_count)?;
        let probe = self.probe(&position.key, self.key.part_count());
        walk.cursor = if walk.descending {
            self.entries.lower_bound(walk.order, &probe)
        } else {
            self.entries.upper_bound(walk.order, &probe)
        };
        Ok(walk)
    }

    /// How many tuples [`Index::select`] would yield without an offset.
    ///
    /// # Errors
    /// As [`Index::select`].
    pub fn count(
        &self,
        arena: &Arena,
        iterator: IteratorType,
        key: &[u8],
        part_count: u32,
    ) -> Result<u64, SelectError> {
        let walk = self.walk(arena, iterator, key, part_count)?;
        let from = walk.cursor.rank();
        let to = match &walk.within {
            Some(probe) if walk.descending => self.entries.lower_bound(walk.order, probe).rank(),
            Some(probe) => self.entries.upper_bound(walk.order, probe).rank(),
            None if walk.descending => 0,
            None => self.len(),
        };
        Ok(from.abs_diff(to))
    }

    fn walk<'a>(
        &'a self,
        arena: &'a Arena,
        iterator: IteratorType,
        key: &'a [u8],
        part_count: u32,
    ) -> Result<Select<'a>, SelectError> {
        match self.kind {
            IndexKind::Hash => self.walk_hash(arena, iterator, key, part_count),
            _ => self.walk_tree(arena, iterator, key, part_count),
        }
    }

    fn walk_tree<'a>(
        &'a self,
        arena: &'a Arena,
        iterator: IteratorType,
        key: &'a [u8],
        part_count: u32,
    ) -> Result<Select<'a>, SelectError> {
        use IteratorType::{All, Eq, Ge, Gt, Le, Lt, Req};
        let descending = match iterator {
            Eq | All | Ge | Gt => false,
            Req | Lt | Le => true,
            _ => return Err(SelectError::Iterator),
        };
        if part_count == 0 {
            let cursor = if descending { self.entries.end() } else { self.entries.start() };
            return Ok(self.start_at(arena, cursor, descending, None));
        }
        let (order, probe) = (self.order(arena), self.probe(key, part_count));
        let cursor = match iterator {
            Req | Le | Gt => self.entries.upper_bound(order, &probe),
            _ => self.entries.lower_bound(order, &probe),
        };
        let within = matches!(iterator, Eq | Req).then_some(probe);
        Ok(self.start_at(arena, cursor, descending, within))
    }

    fn walk_hash<'a>(
        &'a self,
        arena: &'a Arena,
        iterator: IteratorType,
        key: &'a [u8],
        part_count: u32,
    ) -> Result<Select<'a>, SelectError> {
        use IteratorType::{All, Eq, Gt};
        if iterator == All || iterator == Gt && part_count == 0 {
            return Ok(self.start_at(arena, self.entries.start(), false, None));
        }
        if part_count < self.own_parts {
            return Err(SelectError::PartialKey { expected: self.own_parts, got: part_count });
        }
        let (order, probe) = (self.order(arena), self.probe(key, part_count));
        let cursor = self.entries.lower_bound(order, &probe);
        match iterator {
            Eq => Ok(self.start_at(arena, cursor, false, Some(probe))),
            Gt => {
                let mut behind = cursor;
                let is_there = behind.forward().is_some_and(|entry| probe.matches(order, entry));
                Ok(self.start_at(arena, if is_there { behind } else { self.entries.end() }, false, None))
            }
            _ => Err(SelectError::Iterator),
        }
    }

    fn start_at<'a>(
        &'a self,
        arena: &'a Arena,
        cursor: Cursor<'a>,
        descending: bool,
        within: Option<Probe<'a>>,
    ) -> Select<'a> {
        Select { order: self.order(arena), cursor, descending, within, ended: false }
    }
}
