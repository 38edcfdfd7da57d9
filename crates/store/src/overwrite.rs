//! Changes of a tuple where it lies: new bytes in the place of as many others.
//!
//! An UPDATE whose operations only assign ends here if the new values are as long as the old ones. A caller that knows where
//! the fields of its tuples lie (the queue: the state of a task) gives the bytes themselves, as an [`Overwrite`]; then no
//! operations are parsed, and no field is searched.
//!
//! Invariant: an [`Overwrite`] does what its operations do. Debug builds compare the two.

use lycosa_tuple::field::FieldSet;
use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::update;

use crate::access::{Access, Object};
use crate::arena::{Arena, Handle};
use crate::error::Error;
use crate::space::Space;
use crate::statement::Statement;
use crate::{SpaceId, Store, system, user};

/// New bytes for some fields of a tuple that follow each other, of the kinds that stood there.
#[derive(Debug)]
pub struct Overwrite<'a> {
    /// The fields, none of them in the primary key.
    pub fields: FieldSet,
    /// Where in the tuple the bytes belong.
    pub offset: usize,
    /// The bytes, in the place of as many others. Afterwards the bytes that stood there, if the tuple was changed in place.
    pub bytes: &'a mut [u8],
    /// The same change as an UPDATE says it, with fields from 0: what the journal gets.
    pub operations: &'a [u8],
}

impl Space {
    /// Whether no hook or special index uses the former tuple where these fields change, and the new one keeps its place in the
    /// primary index.
    #[inline]
    fn may_overwrite(&self, fields: FieldSet) -> bool {
        let keeps_key = self.primary_key().is_some_and(|key| fields.is_disjoint(key.fields()));
        keeps_key && !self.hooks.any() && !self.has_special && self.def.id > system::MAX
    }
}

/// A key of one number.
pub(crate) fn number_key(number: u64) -> Vec<u8> {
    let mut key = vec![0x91];
    mp::write_uint(&mut key, number);
    key
}

impl Store {
    /// Changes the tuple whose primary key is a number as the UPDATE by `change.operations` does, in the open transaction.
    /// Returns the changed tuple; nothing if no tuple has that key.
    ///
    /// # Errors
    /// As [`Store::execute`].
    pub fn overwrite(
        &mut self,
        id: SpaceId,
        number: u64,
        change: Overwrite<'_>,
    ) -> Result<Option<&[u8]>, Error> {
        let Overwrite { fields, offset, bytes, operations } = change;
        let space = self.space(id)?;
        let (temporary, local) = (space.def.temporary, space.def.local);
        let is_open = self.transaction.is_open && space.def.engine.has_tuples();
        let may_overwrite = is_open && space.may_overwrite(fields);
        let found = if may_overwrite { space.find_number(&self.arena, number) } else { None };
        let Some(handle) = found.filter(|&handle| !self.transaction.has_record(handle)) else {
            let key = &number_key(number);
            return self.execute(&Statement::Update { space: id, index: 0, key, operations, base: 0 });
        };
        if self.transaction.user != user::ADMIN {
            self.check_access(self.transaction.user, Object::Space(id), Access::WRITE)?;
        }
        debug_assert!(
            self.is_what_operations_do(id, handle, (fields, offset, bytes), operations),
            "an overwrite does what its operations do"
        );
        self.put_bytes(id, handle, (fields, offset), bytes)?;
        if !temporary {
            self.log_keyed(id, handle, Some((operations, 0)), local);
        }
        Ok(Some(self.arena.get(handle)))
    }

    /// Whether these fields of a tuple may be changed in place: no hook, special index or undo record uses the old tuple, and
    /// the new one keeps its place in the primary index.
    #[inline]
    pub(crate) fn may_overwrite(&mut self, id: SpaceId, handle: Handle, fields: FieldSet) -> bool {
        self.catalog.get(id).is_some_and(|space| space.may_overwrite(fields))
            && !self.transaction.has_record(handle)
    }

    fn is_what_operations_do(
        &self,
        id: SpaceId,
        handle: Handle,
        (fields, offset, bytes): (FieldSet, usize, &[u8]),
        operations: &[u8],
    ) -> bool {
        let (Some(space), tuple) = (self.catalog.get(id), TupleRef::trusted(self.arena.get(handle))) else {
            return false;
        };
        let mut out = Vec::new();
        let assigned = update::assign(operations, tuple, &space.format, 0, |_| true, &mut out);
        assigned == Some(update::Assigned { fields, offset: Some(offset) }) && out == bytes
    }

    /// Changes a tuple in place: these fields, to which the bytes from `offset` on belong. `bytes` are then what stood there.
    pub(crate) fn put_bytes(
        &mut self,
        id: SpaceId,
        handle: Handle,
        (fields, offset): (FieldSet, usize),
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        self.notify_read_view(id, Some(handle), Some(handle));
        let Some(space) = self.catalog.get_mut(id) else { return Err(Error::NoSuchSpace(id.to_string())) };
        let swap = |arena: &mut Arena| arena.swap(handle, offset, bytes);
        space.overwrite(&mut self.arena, handle, fields, swap)?;
        self.record_overwritten(id, handle, fields, offset, bytes);
        self.count_statement();
        Ok(())
    }
}
