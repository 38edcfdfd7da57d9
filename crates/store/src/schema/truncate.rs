//! Rows of `_truncate`: a change of a space's row removes all tuples of the space.

use crate::Store;
use crate::access::{Access, Object};
use crate::arena::Handle;
use crate::error::Error;
use crate::schema::row::Row;
use crate::transaction::SchemaUndo;

impl Store {
    /// A row of `_truncate` came. Rows of a snapshot only say that there was a truncation once.
    pub(crate) fn truncate_row_changed(&mut self, new: Option<Handle>) -> Result<(), Error> {
        let Some(new) = new.filter(|_| !self.is_loading()) else {
            return Ok(());
        };
        let id = Row::new(self.arena.get(new)).id(0)?;
        let space = self.space(id)?;
        if space.is_system() {
            return Err(Error::TruncateSystemSpace(space.def.name.clone()));
        }
        self.check_access(self.acting_user(), Object::Space(id), Access::WRITE)?;
        let primary = space.primary_key().cloned();
        let empty: Vec<_> = space.indexes.iter().map(|index| index.emptied(primary.as_ref())).collect();
        if let Some(space) = self.catalog.get_mut(id) {
            let indexes = std::mem::replace(&mut space.indexes, empty);
            let bytes = std::mem::take(&mut space.bytes);
            self.undo_schema(SchemaUndo::Truncated { space: id, indexes, bytes });
        }
        Ok(())
    }
}
