//! Rows of `_schema` and `_cluster`: the identity of this replica set and its members.

use uuid::Uuid;

use crate::Store;
use crate::arena::Handle;
use crate::error::Error;
use crate::schema::row::Row;

/// Numbers of instances are below: a vclock has this number of components.
const REPLICA_MAX: u32 = 32;

fn parse_uuid(text: &str) -> Result<Uuid, Error> {
    let invalid = || Error::InvalidUuid(text.to_owned());
    let uuid = Uuid::try_parse(text).map_err(|_| invalid())?;
    // The hyphenated form is the only one that Tarantool reads.
    if text.len() == 36 { Ok(uuid) } else { Err(invalid()) }
}

impl Store {
    /// Tells which row of `_cluster` is the instance itself: that row cannot be changed. 0: none yet.
    pub fn set_replica_id(&mut self, id: u32) {
        self.replica_id = id;
    }

    /// The number of this instance in `_cluster`; 0 if it was not told.
    #[must_use]
    pub fn replica_id(&self) -> u32 {
        self.replica_id
    }

    /// A row of `_schema` was replaced, added or removed. What stands under `cluster` must be a UUID and stay one.
    pub(crate) fn schema_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        let Some(row) = new.or(old) else {
            return Ok(());
        };
        let row = Row::new(self.arena.get(row));
        match row.bytes(0)? {
            b"cluster" => {}
            // Both are needed to load the data again, by a Tarantool too.
            b"version" if old.is_some() && !self.is_history() => {
                let is_same =
                    new.zip(old).is_some_and(|(new, old)| self.arena.get(new) == self.arena.get(old));
                return if is_same { Ok(()) } else { Err(Error::lacks("a change of the schema's version")) };
            }
            b"max_id" if !self.is_history() => {
                let is_id = |row: Handle| Row::new(self.arena.get(row)).uint(1).is_ok();
                return if new.is_some_and(is_id) {
                    Ok(())
                } else {
                    Err(Error::lacks("a max_id that is no number"))
                };
            }
            _ => return Ok(()),
        }
        if new.is_none() {
            return Err(Error::ReplicasetUuidIsRo);
        }
        parse_uuid(&row.text(1)?).map(drop)
    }

    /// A row of `_cluster` was replaced, added or removed.
    pub(crate) fn cluster_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        let Some(row) = new.or(old) else {
            return Ok(());
        };
        let id = Row::new(self.arena.get(row)).uint(0)?;
        if id == 0 {
            return Err(Error::ReplicaIdIsReserved(0));
        }
        if id >= u64::from(REPLICA_MAX) {
            return Err(Error::ReplicaMax(REPLICA_MAX));
        }
        let uuid_of = |handle: Handle| Row::new(self.arena.get(handle)).text(1);
        let is_own = old.is_some() && id == u64::from(self.replica_id) && !self.is_recovering();
        let uuid = new.map(|new| parse_uuid(&uuid_of(new)?)).transpose();
        let uuid = match uuid {
            Err(_) if is_own => return Err(Error::LocalInstanceIdIsReadOnly(self.replica_id)),
            uuid => uuid?,
        };
        if uuid.is_some_and(|uuid| uuid.is_nil()) {
            return Err(Error::InvalidUuid(Uuid::nil().to_string()));
        }
        let Some(old) = old else {
            return Ok(());
        };
        if uuid.is_some() && uuid == parse_uuid(&uuid_of(old)?).ok() {
            return Ok(());
        }
        if is_own {
            return Err(Error::LocalInstanceIdIsReadOnly(self.replica_id));
        }
        if new.is_some() {
            let feature = "updates of instance uuid".to_owned();
            return Err(Error::Unsupported { object: "Space _cluster".to_owned(), feature });
        }
        Ok(())
    }
}
