//! Rows of `_truncate`: a change of a space's row removes all tuples of the space.

use crate::Store;
use crate::access::{Access, Object};
use crate::arena::Handle;
use crate::error::Error;
use crate::schema::row::Row;
use crate::transaction::SchemaUndo;

impl Store {
    /// A row of `_truncate` came or went. Rows of a snapshot only say that there was a truncation once.
    ///
    /// Every user may write the space itself, so the right to each row's space is checked. A stranger could otherwise fill
    /// the journal with such rows.
    pub(crate) fn truncate_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        if self.is_loading() {
            return Ok(());
        }
        let Some(new) = new else { return old.map_or(Ok(()), |old| self.check_forgotten_truncation(old)) };
        let id = Row::new(self.arena.get(new)).id(0)?;
        let space = self.space(id)?;
        if space.is_system() {
            return Err(Error::TruncateSystemSpace(space.def.name.clone()));
        }
        self.check_access(self.acting_user(), Object::Space(id), Access::WRITE)?;
        let primary = space.primary_key().cloned();
        let empty: Vec<_> = space.indexes.iter().map(|index| index.emptied(primary.as_ref())).collect();
        if let Some(space) = self.catalog.get_mut(id) {
            let (bytes, tuples) = (space.bytes(), space.len());
            let indexes = std::mem::replace(&mut space.indexes, empty);
            space.weight.subtract_all(bytes, tuples);
            self.undo_schema(SchemaUndo::Truncated { space: id, indexes, bytes });
        }
        Ok(())
    }

    /// The row of a space that exists may go if its user may write or drop the space.
    fn check_forgotten_truncation(&self, row: Handle) -> Result<(), Error> {
        let id = Row::new(self.arena.get(row)).id(0)?;
        let (user, space) = (self.acting_user(), Object::Space(id));
        if self.space(id).is_err() || self.check_access(user, space, Access::DROP).is_ok() {
            return Ok(());
        }
        self.check_access(user, space, Access::WRITE)
    }
}
