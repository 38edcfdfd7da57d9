//! Reads: one tuple by its key, walks over an index, counts.

use std::ops::ControlFlow;

use crate::access::{Access, Object};
use crate::arena::{Arena, Handle};
use crate::error::Error;
use crate::index_walk::Walk;
use crate::space::{Engine, IndexKind, Space, key_values};
use crate::statement::IteratorType;
use crate::{IndexId, SpaceId, Store, UserId};

/// The tuples of a walk over an index, in its order. See [`Store::range`].
#[derive(Debug, Clone)]
pub struct Range<'a> {
    arena: &'a Arena,
    walk: Option<Walk<'a>>,
}

impl<'a> Iterator for Range<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.walk.as_mut()?.next().map(|handle| self.arena.get(handle))
    }
}

impl Store {
    /// The space with that id.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`].
    #[inline]
    pub fn space(&self, id: SpaceId) -> Result<&Space, Error> {
        self.catalog.get(id).ok_or_else(|| Error::NoSuchSpace(id.to_string()))
    }

    /// The space with that name.
    #[must_use]
    pub fn space_by_name(&self, name: &str) -> Option<&Space> {
        self.catalog.by_name(name)
    }

    /// All spaces in id order.
    pub fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.catalog.iter()
    }

    /// The tuple with that key in a unique index. `key` is a MessagePack array of all parts. No checks of access, no
    /// views.
    ///
    /// # Errors
    /// No such space or index, the index is not unique, or the key does not fit it.
    #[inline]
    pub fn get(&self, space: SpaceId, index: IndexId, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        let found = self.space(space)?.find(&self.arena, index, key)?;
        Ok(found.map(|handle| self.arena.get(handle)))
    }

    /// As [`Store::get`], if `user` sees the tuple: a view shows what stands in the space behind it. No checks of access.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_seen(
        &self,
        user: UserId,
        space: SpaceId,
        index: IndexId,
        key: &[u8],
    ) -> Result<Option<&[u8]>, Error> {
        // The index of a view decides what can be asked.
        let found = self.get(space, index, key)?;
        let space = self.space(space)?;
        match Self::base_of_view(space.def.id).filter(|_| space.def.engine == Engine::Sysview) {
            Some(base) => Ok(self.get(base, index, key)?.filter(|tuple| self.is_visible(user, base, tuple))),
            None => Ok(found.filter(|tuple| self.shows_row(user, space, tuple))),
        }
    }

    /// Walks an index from an offset on. `key` is a MessagePack array; it may have fewer parts than the index. No checks
    /// of access, no views.
    ///
    /// # Errors
    /// No such space or index, the index cannot be walked so, or the key does not fit it.
    pub fn range<'a>(
        &'a self,
        space: SpaceId,
        index: IndexId,
        iterator: IteratorType,
        key: &'a [u8],
        offset: u64,
    ) -> Result<Range<'a>, Error> {
        let walk = self.walk(self.space(space)?, index, iterator, key, offset)?;
        Ok(Range { arena: &self.arena, walk })
    }

    /// Checks that an index can be walked so, without a walk of a TREE index. A space or index that is not there has nothing
    /// to say.
    ///
    /// # Errors
    /// The index cannot be walked so, or the key does not fit it.
    pub fn check_iterator(
        &self,
        space: SpaceId,
        index: IndexId,
        iterator: IteratorType,
        key: &[u8],
    ) -> Result<(), Error> {
        use IteratorType::{All, Eq, Ge, Gt, Le, Lt, Req};

        let Ok(found) = self.space(space) else { return Ok(()) };
        let Ok(on) = found.require_index(index) else { return Ok(()) };
        let (values, count) = key_values(key)?;
        on.check_key(iterator, values, count)?;
        if on.def.kind == IndexKind::Tree && matches!(iterator, All | Eq | Ge | Gt | Le | Lt | Req) {
            return Ok(());
        }
        self.walk(found, index, iterator, key, 0).map(|_| ())
    }

    /// `None` stands for a space that never has tuples.
    pub(crate) fn walk<'a>(
        &'a self,
        space: &'a Space,
        index: IndexId,
        iterator: IteratorType,
        key: &'a [u8],
        offset: u64,
    ) -> Result<Option<Walk<'a>>, Error> {
        let index = space.require_index(index)?;
        let (values, count) = key_values(key)?;
        index.check_key(iterator, values, count)?;
        let walk = index.walk(&self.arena, iterator, values, count, offset);
        let walk = walk.map_err(|error| space.select_error(index, error))?;
        Ok(space.def.engine.has_tuples().then_some(walk))
    }

    /// Hands out tuples of a space or view as `user` may see them.
    ///
    /// # Errors
    /// As [`Store::range`], and [`Error::AccessDenied`].
    #[expect(clippy::too_many_arguments, reason = "these are the fields of a SELECT request")]
    pub fn select(
        &self,
        user: UserId,
        space: SpaceId,
        index: IndexId,
        iterator: IteratorType,
        key: &[u8],
        offset: u64,
        limit: u64,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Error> {
        let space = self.space(space)?;
        self.check_access(user, Object::Space(space.def.id), Access::READ)?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if space.def.engine == Engine::Sysview {
            return self.select_view(user, space, index, iterator, key, offset, limit, f);
        }
        if self.hides_rows(user, space) {
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            let walk = self.walk(space, index, iterator, key, 0)?;
            let tuples = walk.into_iter().flatten().map(|handle| self.arena.get(handle));
            let seen = tuples.filter(|tuple| self.shows_row(user, space, tuple));
            seen.skip(offset).take(limit).for_each(f);
            return Ok(());
        }
        let walk = self.walk(space, index, iterator, key, offset)?;
        for handle in walk.into_iter().flatten().take(limit) {
            f(self.arena.get(handle));
        }
        Ok(())
    }

    /// A view shows the tuples of another space that `user` may see, through the index with the same id.
    #[expect(clippy::too_many_arguments, reason = "these are the fields of a SELECT request")]
    fn select_view(
        &self,
        user: UserId,
        view: &Space,
        index: IndexId,
        iterator: IteratorType,
        key: &[u8],
        offset: u64,
        limit: usize,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Error> {
        // The index of the view decides what can be asked; what it shows comes from the space behind.
        self.walk(view, index, iterator, key, 0)?;
        let Some(base) = Self::base_of_view(view.def.id) else {
            return Ok(());
        };
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let walk = self.walk(self.space(base)?, index, iterator, key, 0)?;
        let seen = walk
            .into_iter()
            .flatten()
            .map(|handle| self.arena.get(handle))
            .filter(|tuple| self.is_visible(user, base, tuple));
        for tuple in seen.skip(offset).take(limit) {
            f(tuple);
        }
        Ok(())
    }

    /// Walks an index until `f` breaks or the tuples end. No checks of access, no views.
    ///
    /// # Errors
    /// As [`Store::range`].
    pub fn scan(
        &self,
        space: SpaceId,
        index: IndexId,
        iterator: IteratorType,
        key: &[u8],
        f: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        for tuple in self.range(space, index, iterator, key, 0)? {
            if f(tuple).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The first tuple of a walk. No checks of access, no views.
    ///
    /// # Errors
    /// As [`Store::range`].
    #[inline]
    pub fn first(
        &self,
        space: SpaceId,
        index: IndexId,
        iterator: IteratorType,
        key: &[u8],
    ) -> Result<Option<&[u8]>, Error> {
        let space = self.space(space)?;
        let first: Option<Handle> = match space.require_index(index)? {
            index if iterator == IteratorType::Eq && index.def.kind == IndexKind::Tree => {
                index.first(&self.arena, key)?
            }
            index
                if matches!(iterator, IteratorType::Ge | IteratorType::Gt)
                    && index.def.kind == IndexKind::Tree
                    && space.def.engine.has_tuples() =>
            {
                let (values, count) = key_values(key)?;
                index.check_key(iterator, values, count)?;
                let first = index.first_from(&self.arena, iterator, values, count);
                first.map_err(|error| space.select_error(index, error))?
            }
            _ => self.walk(space, index, iterator, key, 0)?.and_then(|mut walk| walk.next()),
        };
        space.last_found.set(first);
        Ok(first.map(|handle| self.arena.get(handle)))
    }

    /// The first tuple whose key in an index begins with `key`. A tuple [beyond the bound](crate::Deferral::Beyond)
    /// is found only if its entry is not deferred any more.
    ///
    /// # Errors
    /// As [`Store::range`].
    pub fn first_within(
        &mut self,
        space: SpaceId,
        index: IndexId,
        key: &[u8],
    ) -> Result<Option<&[u8]>, Error> {
        let found = self.space(space)?.require_index(index)?;
        let (values, count) = key_values(key)?;
        found.def.key.check_key(values, count)?;
        if found.has_deferred()
            && let Some(index) = self.catalog.get_mut(space).and_then(|space| space.index_mut(index))
        {
            index.flush_few(&self.arena);
        }
        let first = self.space(space)?.require_index(index)?.index.get(&self.arena, values, count);
        Ok(first.map(|handle| self.arena.get(handle)))
    }

    /// The number of tuples of a walk, in O(log n) but for deferred entries. No checks of access, no views.
    ///
    /// # Errors
    /// As [`Store::range`].
    pub fn count(
        &self,
        space: SpaceId,
        index: IndexId,
        iterator: IteratorType,
        key: &[u8],
    ) -> Result<u64, Error> {
        let space = self.space(space)?;
        let index = space.require_index(index)?;
        let (values, count) = key_values(key)?;
        index.check_key(iterator, values, count)?;
        let counted = index.count(&self.arena, iterator, values, count);
        counted.map_err(|error| space.select_error(index, error))
    }

    /// As [`Store::count`], of the tuples that `user` sees. The tuples of a view are counted one by one.
    ///
    /// # Errors
    /// As [`Store::select`].
    pub fn count_seen(
        &self,
        user: UserId,
        space: SpaceId,
        index: IndexId,
        iterator: IteratorType,
        key: &[u8],
    ) -> Result<u64, Error> {
        let of = self.space(space)?;
        if of.def.engine != Engine::Sysview && !self.hides_rows(user, of) {
            self.check_access(user, Object::Space(space), Access::READ)?;
            return self.count(space, index, iterator, key);
        }
        let mut count = 0;
        self.select(user, space, index, iterator, key, 0, u64::MAX, &mut |_| count += 1)?;
        Ok(count)
    }
}
