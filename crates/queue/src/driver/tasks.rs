//! The tasks of one tube, to look at: drivers, counts and candidates read tasks through [`Tasks`] only.

use lycosa_store::{IndexId, IteratorType, SpaceId, Store};

use crate::error::Result;
use crate::task::{ShortKey, State};

/// The ids of a tube's indexes in its space. One that the type of tube lacks is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Indexes {
    /// (status, \[pri,\] id)
    pub status: IndexId,
    /// (status, next event)
    pub watch: IndexId,
    /// (status, sub-queue, id)
    pub utube: IndexId,
    /// (status, sub-queue, pri, id)
    pub utube_pri: IndexId,
}

/// The tasks of one tube, to look at.
#[derive(Debug, Clone, Copy)]
pub struct Tasks<'a> {
    /// The store.
    pub store: &'a Store,
    /// The tube's space.
    pub space: SpaceId,
    /// Its indexes.
    pub indexes: Indexes,
}

impl<'a> Tasks<'a> {
    /// The task with that id.
    ///
    /// # Errors
    /// The space is gone.
    pub fn get(self, id: u64) -> Result<Option<&'a [u8]>> {
        #[cfg(test)]
        crate::cost::count_look_up();
        Ok(self.store.get(self.space, 0, &ShortKey::id(id))?)
    }

    /// The first task of an index whose key begins with `key`.
    ///
    /// # Errors
    /// The space or the index is gone.
    pub fn first(self, index: IndexId, key: &[u8]) -> Result<Option<&'a [u8]>> {
        #[cfg(test)]
        crate::cost::count_look_up();
        Ok(self.store.first(self.space, index, IteratorType::Eq, key)?)
    }

    /// The first task of that state in the order in which tasks are taken and kicked.
    ///
    /// # Errors
    /// The space or the index is gone.
    pub fn first_in_state(self, state: State) -> Result<Option<&'a [u8]>> {
        self.first(self.indexes.status, &ShortKey::state(state, &[]))
    }

    /// Number of tasks of that state, in O(log n).
    ///
    /// # Errors
    /// The space or the index is gone.
    pub fn count(self, state: State) -> Result<u64> {
        let key = ShortKey::state(state, &[]);
        Ok(self.store.count(self.space, self.indexes.status, IteratorType::Eq, &key)?)
    }
}
