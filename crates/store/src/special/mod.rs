//! Indexes that are no order of tuples: multikey and functional ones, BITSET and RTREE.
//!
//! They are secondary and few, and stay off the way of plain indexes: a [`SpaceIndex`](crate::space_index::SpaceIndex) of
//! such a kind keeps its plain index empty and asks the [`Special`] instead.
//!
//! Invariant: a special index holds every tuple that the plain indexes of its space hold, under each key that the tuple has.
//! A space with a special index does not overwrite tuples in place, so what a tuple's bytes say when it is removed is what
//! they said when it came.

mod bitset;
mod functional;
mod rtree;
#[cfg(test)]
mod tests;
mod wide;

use lycosa_tuple::format::Format;
use lycosa_tuple::key::KeyDef;

use self::bitset::{Bitset, BitsetWalk};
use self::functional::Functional;
use self::rtree::{Rtree, RtreeWalk};
use self::wide::{Wide, WideWalk};
use crate::arena::{Arena, Handle};
use crate::error::Error;
use crate::index::{Bookmark, Duplicate, IndexKind, SelectError};
use crate::schema::index::IndexDef;
use crate::space_index::Occupied;
use crate::statement::IteratorType;

pub(crate) use self::functional::{Fault, FunctionUse};
pub use self::functional::{KeyFault, KeyFunction, KeyMaker, MakeKeys};
pub use self::rtree::{Distance, MAX_DIMENSION};

/// What a special index holds; see the module's documentation.
#[derive(Debug)]
pub(crate) enum Special {
    Wide(Box<Wide>),
    Functional(Box<Functional>),
    Bitset(Box<Bitset>),
    Rtree(Box<Rtree>),
}

/// A walk over a special index.
#[derive(Debug, Clone)]
pub(crate) enum SpecialWalk<'a> {
    Wide(WideWalk<'a>),
    Bitset(BitsetWalk<'a>),
    Rtree(RtreeWalk<'a>),
}

impl Iterator for SpecialWalk<'_> {
    type Item = Handle;

    fn next(&mut self) -> Option<Handle> {
        match self {
            Self::Wide(walk) => walk.next(),
            Self::Bitset(walk) => walk.next(),
            Self::Rtree(walk) => walk.next(),
        }
    }
}

impl SpecialWalk<'_> {
    /// The place behind the last key that the walk has passed; `None` if the index has no order to which a walk could return.
    pub(crate) fn bookmark(&self) -> Option<Bookmark> {
        match self {
            Self::Wide(walk) => walk.bookmark(),
            Self::Bitset(_) | Self::Rtree(_) => None,
        }
    }
}

impl Special {
    /// An empty index of that definition; `None` if it is a plain one. `primary` orders tuples with equal keys.
    pub(crate) fn new(def: &IndexDef, primary: Option<&KeyDef>) -> Option<Self> {
        match def.kind {
            IndexKind::Tree | IndexKind::Hash => None,
            IndexKind::Functional => {
                let usage =
                    def.function.as_ref().expect("the definition of a functional index names a function");
                Some(Self::Functional(Box::new(Functional::new(def, usage, primary))))
            }
            IndexKind::Multikey => Some(Self::Wide(Box::new(Wide::new(def, primary)))),
            IndexKind::Bitset => Some(Self::Bitset(Box::new(Bitset::new(def.key.clone())))),
            IndexKind::Rtree { dimension, distance } => {
                Some(Self::Rtree(Box::new(Rtree::new(def.key.clone(), dimension, distance))))
            }
        }
    }

    /// Checks what no format can: that an RTREE finds coordinates in the tuple.
    pub(crate) fn check(&self, tuple: &[u8]) -> Result<(), Error> {
        match self {
            Self::Rtree(rtree) => rtree.check(tuple),
            Self::Wide(_) | Self::Functional(_) | Self::Bitset(_) => Ok(()),
        }
    }

    /// Checks whether `key` is `part_count` values that can be asked for.
    pub(crate) fn check_key(
        &self,
        def: &IndexDef,
        iterator: IteratorType,
        key: &[u8],
        part_count: u32,
    ) -> Result<(), Error> {
        match self {
            Self::Wide(_) | Self::Functional(_) => Ok(def.key.check_key(key, part_count)?),
            Self::Bitset(_) => {
                def.key.check_key(key, part_count)?;
                if part_count == 0 && iterator != IteratorType::All {
                    return Err(Error::PartialKey { kind: def.kind_name(), expected: 1, got: 0 });
                }
                Ok(())
            }
            Self::Rtree(_) if part_count == 0 && iterator == IteratorType::All => Ok(()),
            Self::Rtree(rtree) => rtree.read_key(key, part_count).map(drop),
        }
    }

    /// Puts `new` in, in the place of `old`. A refused tuple leaves the index as it was.
    pub(crate) fn put(&mut self, arena: &Arena, old: Option<Handle>, new: Handle) -> Result<(), Occupied> {
        match self {
            Self::Wide(wide) => return wide.put(arena, old, new),
            Self::Functional(functional) => return functional.put(old, new),
            Self::Bitset(_) | Self::Rtree(_) => {}
        }
        if let Some(old) = old {
            self.remove(arena, old);
        }
        match self {
            Self::Wide(_) | Self::Functional(_) => {}
            Self::Bitset(bitset) => bitset.insert(arena.get(new), new),
            Self::Rtree(rtree) => rtree.insert(arena.get(new), new),
        }
        Ok(())
    }

    /// Removes a tuple; nothing if it is not there.
    pub(crate) fn remove(&mut self, arena: &Arena, old: Handle) {
        match self {
            Self::Wide(wide) => wide.remove(arena, old),
            Self::Functional(functional) => functional.remove(old),
            Self::Bitset(bitset) => bitset.remove(arena.get(old), old),
            Self::Rtree(rtree) => rtree.remove(arena.get(old), old),
        }
    }

    /// To be called before [`Special::put`] of a tuple that is new: the keys of a functional index are made.
    pub(crate) fn prepare(&mut self, arena: &Arena, new: Handle, format: &Format) {
        if let Self::Functional(functional) = self {
            functional.prepare(arena, new, format);
        }
    }

    /// Takes the reason why the last tuple was refused, if there is another one than that a key is taken.
    pub(crate) fn take_fault(&mut self) -> Option<Fault> {
        match self {
            Self::Functional(functional) => functional.take_fault(),
            _ => None,
        }
    }

    /// The transaction has ended: no removed tuple comes back.
    pub(crate) fn forget_removed(&mut self) {
        if let Self::Functional(functional) = self {
            functional.forget_removed();
        }
    }

    /// Makes these tuples what the empty index holds.
    ///
    /// # Errors
    /// Two of them have one key in a unique index, or one has no keys ([`Special::take_fault`]) or is refused by
    /// [`Special::check`].
    pub(crate) fn build(
        &mut self,
        arena: &Arena,
        format: &Format,
        handles: impl Iterator<Item = Handle>,
    ) -> Result<(), Duplicate> {
        for new in handles {
            self.prepare(arena, new, format);
            if self.check(arena.get(new)).is_err() {
                return Err(Duplicate { old: new, new });
            }
            self.put(arena, None, new).map_err(|Occupied| Duplicate { old: new, new })?;
        }
        Ok(())
    }

    /// Walks what `iterator` yields for a key, after the first `offset` tuples.
    pub(crate) fn walk<'a>(
        &'a self,
        iterator: IteratorType,
        key: &'a [u8],
        part_count: u32,
        offset: u64,
    ) -> Result<SpecialWalk<'a>, SelectError> {
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut walk = match self {
            Self::Wide(wide) => return Ok(SpecialWalk::Wide(wide.walk(iterator, key, part_count, offset)?)),
            Self::Functional(functional) => {
                let wide = functional.readable()?;
                return Ok(SpecialWalk::Wide(wide.walk(iterator, key, part_count, offset)?));
            }
            Self::Bitset(bitset) => SpecialWalk::Bitset(bitset.walk(iterator, key)?),
            Self::Rtree(rtree) => SpecialWalk::Rtree(rtree.walk(iterator, key, part_count)?),
        };
        if skip > 0 {
            walk.nth(skip - 1);
        }
        Ok(walk)
    }

    /// Goes on with a walk behind a place that [`SpecialWalk::bookmark`] has told.
    pub(crate) fn resume<'a>(
        &'a self,
        iterator: IteratorType,
        key: &'a [u8],
        part_count: u32,
        position: &Bookmark,
    ) -> Result<SpecialWalk<'a>, SelectError> {
        match self {
            Self::Wide(wide) => Ok(SpecialWalk::Wide(wide.resume(iterator, key, part_count, position)?)),
            Self::Functional(functional) => {
                let wide = functional.readable()?;
                Ok(SpecialWalk::Wide(wide.resume(iterator, key, part_count, position)?))
            }
            Self::Bitset(_) | Self::Rtree(_) => Err(SelectError::Iterator),
        }
    }

    /// The number of tuples on a walk.
    pub(crate) fn count(
        &self,
        iterator: IteratorType,
        key: &[u8],
        part_count: u32,
    ) -> Result<u64, SelectError> {
        match self {
            Self::Wide(wide) => wide.count(iterator, key, part_count),
            Self::Functional(functional) => functional.readable()?.count(iterator, key, part_count),
            _ if part_count == 0 && iterator == IteratorType::All => Ok(self.len()),
            _ => Ok(self.walk(iterator, key, part_count, 0)?.count() as u64),
        }
    }

    /// The first tuple whose key is this whole one.
    pub(crate) fn get(&self, key: &[u8], part_count: u32) -> Result<Option<Handle>, SelectError> {
        match self {
            Self::Wide(wide) => Ok(wide.get(key, part_count)),
            Self::Functional(functional) => Ok(functional.readable()?.get(key, part_count)),
            Self::Bitset(_) | Self::Rtree(_) => Ok(None),
        }
    }

    /// The number of entries: keys in a multikey or functional index, tuples in a BITSET or RTREE.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Wide(wide) => wide.len(),
            Self::Functional(functional) => functional.wide().len(),
            Self::Bitset(bitset) => bitset.len(),
            Self::Rtree(rtree) => rtree.len(),
        }
    }

    /// Bytes that the index takes, about.
    pub(crate) fn memory(&self) -> u64 {
        match self {
            Self::Wide(wide) => wide.memory(),
            Self::Functional(functional) => functional.memory(),
            Self::Bitset(bitset) => bitset.memory(),
            Self::Rtree(rtree) => rtree.memory(),
        }
    }
}
