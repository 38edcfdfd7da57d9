//! Cursors: walks over an index that stop after any number of tuples and go on later, after any changes.
//!
//! A [`Cursor`] holds no reference into an index. It remembers the whole key of the last tuple that it passed: the parts of
//! the index followed by those of the primary key, so that the position is exact even among equal keys. Each call of
//! [`Store::advance`] seeks that key again, which costs O(log n), and hands out tuples until its budget is spent.
//! Expiration, sliced operations, SELECT replies in chunks and the iterators of Lua programs are built on cursors.
//!
//! What a full pass guarantees while other statements run between the steps:
//! - a tuple that stays in the index under the same key is met exactly once, in a TREE and in a HASH alike: a HASH is
//!   ordered by the hash of its key, and that order does not depend on what else the index holds;
//! - a tuple that is inserted ahead of the cursor is met, one that is inserted behind it is not;
//! - a tuple whose key changes is met again if it moves ahead of the cursor, and missed if it moves behind it unmet;
//! - a cursor that has reached the end stays there until [`Cursor::rewind`].
//!
//! A cursor reads what the open transaction has done so far, and survives its rollback. Renaming, truncating and a new
//! format leave it as it is. It reports a dropped space or index, and an index of another order, see [`CursorError`].

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;

use lycosa_tuple::mp;

use crate::access::{Access, Object};
use crate::budget::Budget;
use crate::error::Error;
use crate::index::{Bookmark, IndexKind};
use crate::space::{Engine, key_values};
use crate::statement::IteratorType;
use crate::{IndexId, SpaceId, Store, UserId};

/// A walk over an index that can be interrupted. See the [module's documentation](self).
#[derive(Debug)]
pub struct Cursor {
    user: UserId,
    space: SpaceId,
    index: IndexId,
    iterator: IteratorType,
    /// A MessagePack array.
    key: Vec<u8>,
    /// Tuples to skip before the first one.
    offset: u64,
    /// Tuples to hand out, at most.
    limit: u64,
    handed_out: u64,
    /// What the first step found.
    walked: Option<Walked>,
    position: Position,
}

#[derive(Debug)]
enum Position {
    Start,
    Behind(Bookmark),
    /// In an index without an order to which a walk could return: tuples were listed by their primary keys.
    Listed(Box<Listed>),
    End,
}

/// A walk over a BITSET or RTREE. Each list is found by a walk of its own, twice as long as the one before, and no tuple is
/// listed twice: so the whole costs about two walks.
#[derive(Debug, Default)]
struct Listed {
    /// Primary keys, each a MessagePack array, of tuples to be handed out.
    ready: VecDeque<Vec<u8>>,
    /// All that were listed.
    seen: HashSet<Vec<u8>>,
    /// The length of the next list.
    length: usize,
    /// Nothing is left to be listed.
    is_over: bool,
}

/// The length of the first list of a BITSET or RTREE.
const FIRST_LIST: usize = 64;

/// The index that a cursor walks. The numbers of a space and of an index can be given to others when they are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Walked {
    space_identity: u64,
    index_identity: u64,
}

/// The rest for the next call of [`Store::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The budget is spent; there may be more tuples.
    More,
    /// The walk is over.
    End,
}

/// Why a cursor cannot go on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CursorError {
    /// The space was dropped, even if there is another one with its number now.
    #[error("the space with id {0} was dropped while a cursor walked it")]
    SpaceDropped(SpaceId),
    /// The index was dropped.
    #[error("index {index} of space '{space}' was dropped while a cursor walked it")]
    IndexDropped {
        /// Name of the space.
        space: String,
        /// Number of the index.
        index: IndexId,
    },
    /// The index was built anew, in another order: after [`Cursor::rewind`] the cursor starts again.
    #[error("index '{index}' of space '{space}' was altered while a cursor walked it: start the walk again")]
    IndexAltered {
        /// Name of the space.
        space: String,
        /// Name of the index.
        index: String,
    },
    /// The walk was refused; a started one only for want of rights.
    #[error(transparent)]
    Refused(#[from] Error),
}

impl Cursor {
    /// A walk that starts where [`Store::select`] does. `key` is a MessagePack array; the first step reports faults of the key and missing
    /// rights of the user.
    #[must_use]
    pub fn new(user: UserId, space: SpaceId, index: IndexId, iterator: IteratorType, key: &[u8]) -> Self {
        Self {
            user,
            space,
            index,
            iterator,
            key: key.to_vec(),
            offset: 0,
            limit: u64::MAX,
            handed_out: 0,
            walked: None,
            position: Position::Start,
        }
    }

    /// Skips `offset` tuples at the start of the walk. In a space this costs O(log n), in a view a look at each.
    #[must_use]
    pub fn with_offset(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// Ends the walk after `limit` tuples.
    #[must_use]
    pub fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// Starts the walk again, with the same offset and limit.
    pub fn rewind(&mut self) {
        self.position = Position::Start;
        self.walked = None;
        self.handed_out = 0;
    }

    /// Number of the space.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Number of the index.
    #[must_use]
    pub fn index(&self) -> IndexId {
        self.index
    }

    /// Tuples handed out since the start of the walk.
    #[must_use]
    pub fn handed_out(&self) -> u64 {
        self.handed_out
    }

    /// Whether the walk is over.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        matches!(self.position, Position::End)
    }
}

impl Store {
    /// Goes on with a walk: hands out tuples until the budget is spent, the limit is reached or the tuples end.
    /// Deferred index entries are flushed first, [`FLUSH_PORTION`](crate::FLUSH_PORTION) in a step, so a step may
    /// hand out nothing and still be of use.
    ///
    /// # Errors
    /// See [`CursorError`]. The cursor stays where it was.
    pub fn advance(
        &mut self,
        cursor: &mut Cursor,
        budget: Budget<'_>,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<Progress, CursorError> {
        self.advance_while(cursor, budget, &mut |tuple| {
            f(tuple);
            ControlFlow::Continue(())
        })
    }

    /// As [`Self::advance`], for a caller whose work on a tuple costs more than the tuple's bytes tell: the step ends behind
    /// the tuple at which `f` breaks, as if the budget were spent.
    ///
    /// # Errors
    /// As [`Self::advance`].
    pub fn advance_while(
        &mut self,
        cursor: &mut Cursor,
        mut budget: Budget<'_>,
        f: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Progress, CursorError> {
        if cursor.is_at_end() {
            return Ok(Progress::End);
        }
        let walked = self.walked_by(cursor)?;
        let Some(base) = self.check_walk(cursor)? else {
            cursor.position = Position::End;
            return Ok(Progress::End);
        };
        if self.read(base, cursor.index, 0)?.is_none() {
            return Ok(Progress::More);
        }
        cursor.walked = Some(walked);
        let is_view = base != cursor.space;
        let space = self.space(base)?;
        let index = space.require_index(cursor.index)?;
        let (values, count) = key_values(&cursor.key)?;
        let is_partial = is_view || self.hides_rows(cursor.user, space);
        let (mut to_skip, offset) = if is_partial { (cursor.offset, 0) } else { (0, cursor.offset) };
        if matches!(index.def.kind, IndexKind::Bitset | IndexKind::Rtree { .. }) {
            return self.advance_listed(cursor, budget, f);
        }
        let walk = match &cursor.position {
            Position::Behind(position) => {
                to_skip = 0;
                index.resume(&self.arena, cursor.iterator, values, count, position)
            }
            _ => index.walk(&self.arena, cursor.iterator, values, count, offset),
        };
        let mut walk = walk.map_err(|error| space.select_error(index, error))?;
        let mut last = None;
        let progress = loop {
            if cursor.handed_out >= cursor.limit {
                break Progress::End;
            }
            // The tuples to skip in a view count for nothing, or the offset would be lost between two steps.
            if budget.is_spent() && to_skip == 0 {
                break Progress::More;
            }
            let Some(handle) = walk.next() else { break Progress::End };
            last = Some(handle);
            let tuple = self.arena.get(handle);
            let is_hidden = is_partial
                && !(self.shows_row(cursor.user, space, tuple)
                    && (!is_view || self.is_visible(cursor.user, base, tuple)));
            if is_hidden {
                budget.spend(0);
            } else if to_skip > 0 {
                to_skip -= 1;
            } else {
                budget.spend(tuple.len());
                cursor.handed_out += 1;
                if f(tuple).is_break() {
                    break Progress::More;
                }
            }
        };
        match (progress, last) {
            (Progress::End, _) => cursor.position = Position::End,
            (Progress::More, Some(last)) => {
                if let Some(place) = index.bookmark(&self.arena, &walk, last) {
                    cursor.position = Position::Behind(place);
                }
            }
            (Progress::More, None) => {}
        }
        Ok(progress)
    }

    /// [`Store::advance_while`] over an index without an order to which a walk could return. A tuple that was deleted since it
    /// was listed is passed over; one that was changed since is handed out as it is now.
    fn advance_listed(
        &self,
        cursor: &mut Cursor,
        mut budget: Budget<'_>,
        f: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Progress, CursorError> {
        let mut listed = match std::mem::replace(&mut cursor.position, Position::End) {
            Position::Listed(listed) => listed,
            _ => Box::new(Listed { length: FIRST_LIST, ..Listed::default() }),
        };
        let space = self.space(cursor.space)?;
        let hides = self.hides_rows(cursor.user, space);
        while cursor.handed_out < cursor.limit {
            if budget.is_spent() {
                cursor.position = Position::Listed(listed);
                return Ok(Progress::More);
            }
            let Some(key) = listed.ready.pop_front() else {
                if listed.is_over {
                    return Ok(Progress::End);
                }
                if let Err(error) = self.list(cursor, &mut listed) {
                    cursor.position = Position::Listed(listed);
                    return Err(error.into());
                }
                continue;
            };
            let found = space.find(&self.arena, 0, &key).ok().flatten().map(|handle| self.arena.get(handle));
            let Some(tuple) = found.filter(|tuple| !hides || self.shows_row(cursor.user, space, tuple))
            else {
                budget.spend(0);
                continue;
            };
            budget.spend(tuple.len());
            cursor.handed_out += 1;
            if f(tuple).is_break() {
                cursor.position = Position::Listed(listed);
                return Ok(Progress::More);
            }
        }
        Ok(Progress::End)
    }

    /// Lists the next tuples of a walk.
    fn list(&self, cursor: &Cursor, listed: &mut Listed) -> Result<(), Error> {
        let space = self.space(cursor.space)?;
        let primary = &space.primary()?.def.key;
        let offset = if listed.seen.is_empty() { cursor.offset } else { 0 };
        let walk = self.walk(space, cursor.index, cursor.iterator, &cursor.key, offset)?;
        let mut key = Vec::new();
        for handle in walk.into_iter().flatten() {
            if listed.ready.len() == listed.length {
                listed.length *= 2;
                return Ok(());
            }
            key.clear();
            mp::write_array(&mut key, primary.part_count());
            primary.extract(self.arena.get(handle), &mut key);
            if listed.seen.insert(key.clone()) {
                listed.ready.push_back(key.clone());
            }
        }
        listed.is_over = true;
        Ok(())
    }

    /// What a cursor walks now; an error if it walked something else before.
    fn walked_by(&self, cursor: &Cursor) -> Result<Walked, CursorError> {
        let Some(space) = self.catalog.get(cursor.space) else {
            return Err(match cursor.walked {
                Some(_) => CursorError::SpaceDropped(cursor.space),
                None => Error::NoSuchSpace(cursor.space.to_string()).into(),
            });
        };
        let is_other_space = |walked: &Walked| walked.space_identity != space.identity;
        if cursor.walked.as_ref().is_some_and(is_other_space) {
            return Err(CursorError::SpaceDropped(cursor.space));
        }
        self.check_access(cursor.user, Object::Space(cursor.space), Access::READ)?;
        let index = match space.index(cursor.index) {
            Some(index) => index,
            None if cursor.walked.is_some() => {
                let space = space.name().to_owned();
                return Err(CursorError::IndexDropped { space, index: cursor.index });
            }
            None => space.require_index(cursor.index)?,
        };
        let walked = Walked { space_identity: space.identity, index_identity: index.identity };
        if cursor.walked.is_some_and(|before| before != walked) {
            let (space, index) = (space.name().to_owned(), index.name().to_owned());
            return Err(CursorError::IndexAltered { space, index });
        }
        Ok(walked)
    }

    /// Checks that the index can be walked as the cursor asks. Returns the space that has the tuples: for a view the one
    /// behind it, for a space without tuples none.
    fn check_walk(&self, cursor: &Cursor) -> Result<Option<SpaceId>, Error> {
        let space = self.space(cursor.space)?;
        if matches!(cursor.position, Position::Start) {
            let index = space.require_index(cursor.index)?;
            let (values, count) = key_values(&cursor.key)?;
            index.check_key(cursor.iterator, values, count)?;
            let walk = index.walk(&self.arena, cursor.iterator, values, count, 0);
            walk.map_err(|error| space.select_error(index, error))?;
        }
        Ok(match space.def.engine {
            Engine::Sysview => Self::base_of_view(cursor.space),
            engine => engine.has_tuples().then_some(cursor.space),
        })
    }
}
