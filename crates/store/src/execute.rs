//! Statements at work: what INSERT, REPLACE, UPDATE, UPSERT and DELETE do to a space.

use std::cmp::Ordering;
use std::collections::HashSet;

use lycosa_tuple::field::FieldSet;
use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::update::{self, Assigned};

use crate::access::{Access, Object};
use crate::arena::{Arena, Handle};
use crate::error::Error;
use crate::overwrite::number_key;
use crate::schema::row::Row;
use crate::space::{AttachedSequence, Engine, PutMode, Space, key_values};
use crate::statement::{IteratorType, Statement, StatementKind};
use crate::{IndexId, SpaceId, Store, garbage, system, user};

/// What Tarantool adds to a tuple's MessagePack before it compares with the largest size.
const TUPLE_OVERHEAD: u64 = 14;
/// How much larger than its predecessor a tuple may be to pass when memory is exhausted: the state of a task must still
/// be able to change.
const SLACK: usize = 64;
/// Statements after which the memory of indexes is counted anew.
const GAUGE_EVERY: u32 = 1024;

impl Store {
    /// Executes a statement in the open transaction. Returns the tuple that a reply shows: the new one, for DELETE the
    /// old one, nothing for UPSERT and if no tuple was hit.
    ///
    /// # Errors
    /// Everything that Tarantool refuses, with its codes and texts. A refused statement has changed nothing; the
    /// transaction goes on.
    pub fn execute(&mut self, statement: &Statement<'_>) -> Result<Option<&[u8]>, Error> {
        if !self.transaction.is_open {
            return Err(Error::NoTransaction);
        }
        let place = self.place();
        match self.apply(statement) {
            Ok(shown) => Ok(shown.map(|handle| self.arena.get(handle))),
            Err(error) => {
                self.undo_to(place);
                Err(error)
            }
        }
    }

    /// As [`Store::execute`], leaving no effect: the caller makes the change durable in another form.
    ///
    /// # Errors
    /// As [`Store::execute`].
    pub fn execute_unlogged(&mut self, statement: &Statement<'_>) -> Result<(), Error> {
        let was_logging = std::mem::replace(&mut self.is_logging, false);
        let executed = self.execute(statement).map(drop);
        self.is_logging = was_logging;
        executed
    }

    /// Adds a tuple, as INSERT does. Returns the stored tuple.
    ///
    /// # Errors
    /// As [`Store::execute`].
    pub fn insert(&mut self, id: SpaceId, tuple: &[u8]) -> Result<Option<&[u8]>, Error> {
        let space = self.space(id)?;
        let is_plain = self.transaction.is_open && space.def.engine.has_tuples();
        if !is_plain || self.transaction.user != user::ADMIN {
            return self.execute(&Statement::Insert { space: id, tuple });
        }
        let place = self.place();
        match self.put(id, tuple, PutMode::Insert, &mut Vec::new()) {
            Ok(new) => Ok(Some(self.arena.get(new))),
            Err(error) => {
                self.undo_to(place);
                Err(error)
            }
        }
    }

    /// Deletes the tuple whose primary key is a number, as DELETE does. Returns that tuple, if there is one.
    ///
    /// # Errors
    /// As [`Store::execute`].
    pub fn delete_number(&mut self, id: SpaceId, number: u64) -> Result<Option<&[u8]>, Error> {
        let space = self.space(id)?;
        let is_plain = self.transaction.is_open && space.def.engine.has_tuples() && id > system::MAX;
        let found = if is_plain { space.find_number(&self.arena, number) } else { None };
        let Some(old) = found else {
            return self.execute(&Statement::Delete { space: id, index: 0, key: &number_key(number) });
        };
        if self.transaction.user != user::ADMIN {
            self.check_access(self.transaction.user, Object::Space(id), Access::WRITE)?;
        }
        self.delete_found(id, old)?;
        Ok(Some(self.arena.get(old)))
    }

    /// As [`Store::execute`], without undoing a failed statement; for the rare callers.
    #[inline(never)]
    pub(crate) fn apply_rarely(&mut self, statement: &Statement<'_>) -> Result<Option<Handle>, Error> {
        self.apply(statement)
    }

    #[expect(clippy::inline_always, reason = "74 instructions of a cycle of put, take and ack")]
    #[inline(always)]
    fn apply(&mut self, statement: &Statement<'_>) -> Result<Option<Handle>, Error> {
        let id = statement.space();
        let space = self.space(id)?;
        if self.transaction.user != user::ADMIN {
            self.check_access(self.transaction.user, Object::Space(id), Access::WRITE)?;
        }
        if !space.def.engine.has_tuples() {
            return self.apply_without_tuples(statement);
        }
        let mut buffer = std::mem::take(&mut self.scratch);
        let result = self.apply_through(statement, id, &mut buffer);
        buffer.clear();
        self.scratch = buffer;
        result
    }

    /// `buffer`, which is empty, is for the tuple that a statement makes of another.
    fn apply_through(
        &mut self,
        statement: &Statement<'_>,
        id: SpaceId,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Handle>, Error> {
        match *statement {
            Statement::Insert { tuple, .. } => self.put(id, tuple, PutMode::Insert, buffer).map(Some),
            Statement::Replace { tuple, .. } => self.put(id, tuple, PutMode::Replace, buffer).map(Some),
            Statement::Update { index, key, operations, base, .. } => {
                self.update(id, (index, key), (operations, base), buffer)
            }
            Statement::Upsert { tuple, operations, base, .. } => {
                self.upsert(statement, id, tuple, operations, base)?;
                Ok(None)
            }
            Statement::Delete { index, key, .. } => self.delete(id, index, key),
        }
    }

    /// Views refuse, blackholes only let what they swallow be logged, and what the session keeps is not the store's.
    fn apply_without_tuples(&mut self, statement: &Statement<'_>) -> Result<Option<Handle>, Error> {
        let space = self.space(statement.space())?;
        let unsupported = |object: &str, feature: &str| {
            Err(Error::Unsupported { object: object.to_owned(), feature: feature.to_owned() })
        };
        match (space.def.engine, statement) {
            (Engine::Blackhole, Statement::Insert { tuple, .. } | Statement::Replace { tuple, .. }) => {
                check_is_array(tuple)?;
                space.check(tuple)?;
                self.check_tuple(space.def.id, tuple)?;
                let (temporary, local) = (space.def.temporary, space.def.local);
                let handle = self.allocate(statement.space(), tuple, None)?;
                self.record_shown(statement.space(), statement.kind(), handle);
                if !temporary {
                    self.log(statement, local);
                }
                Ok(Some(handle))
            }
            (Engine::Blackhole, Statement::Upsert { .. }) => unsupported("Blackhole", "upsert()"),
            (Engine::Blackhole, Statement::Update { .. }) => unsupported("Blackhole", "update()"),
            (Engine::Blackhole, Statement::Delete { .. }) => unsupported("Blackhole", "delete()"),
            (Engine::Service, Statement::Insert { .. } | Statement::Replace { .. }) => {
                unsupported("Session_settings space", "replace()")
            }
            (Engine::Service, Statement::Upsert { .. }) => unsupported("Session_settings space", "upsert()"),
            (Engine::Service, Statement::Delete { .. }) => unsupported("Session_settings space", "delete()"),
            (Engine::Service, _) => unsupported("Session_settings space", "update()"),
            _ => Err(Error::ViewIsRo(space.def.name.clone())),
        }
    }

    /// INSERT or REPLACE, by `mode`. `filled` is for the tuple with what a sequence gave it.
    pub(crate) fn put(
        &mut self,
        id: SpaceId,
        tuple: &[u8],
        mode: PutMode,
        filled: &mut Vec<u8>,
    ) -> Result<Handle, Error> {
        check_is_array(tuple)?;
        let space = self.space(id)?;
        if let Err(no_index) = space.primary() {
            if space.def.engine == Engine::Memtx {
                space.check(tuple)?;
            }
            return Err(no_index);
        }
        let attached = space.sequence.clone();
        let tuple = match &attached {
            Some(attached) if self.fill_sequence(attached, tuple, filled)? => filled.as_slice(),
            _ => tuple,
        };
        let space = self.space(id)?;
        space.check_as(tuple, self.is_history())?;
        let (temporary, local) = (space.def.temporary, space.def.local);
        let replaced = if mode == PutMode::Replace && self.is_short_of_memory(tuple.len()) {
            let primary = space.primary()?;
            primary.index.find(&self.arena, tuple)
        } else {
            None
        };
        let new = self.allocate(id, tuple, replaced)?;
        let kind = if mode == PutMode::Insert { StatementKind::Insert } else { StatementKind::Replace };
        self.exchange(id, new, mode, kind)?;
        if !temporary {
            let local = local || id == system::TRUNCATE && self.truncates_locally(tuple);
            if self.is_logging {
                self.effects.push_put(id, mode == PutMode::Insert, tuple, local);
            }
        }
        Ok(new)
    }

    /// `updated` is for the tuple that the operations make.
    fn update(
        &mut self,
        id: SpaceId,
        (index, key): (IndexId, &[u8]),
        (operations, base): (&[u8], i64),
        updated: &mut Vec<u8>,
    ) -> Result<Option<Handle>, Error> {
        let space = self.space(id)?;
        let (temporary, local) = (space.def.temporary, space.def.local);
        let Some(old) = space.find(&self.arena, index, key)? else {
            if !temporary {
                self.log(&Statement::Update { space: id, index, key, operations, base }, local);
            }
            return Ok(None);
        };
        let is_open_to_change = self.may_overwrite(id, old, FieldSet::default());
        let space = self.space(id)?;
        let old_tuple = TupleRef::trusted(self.arena.get(old));
        let primary = space.primary()?;
        let keeps_key = |fields: FieldSet| fields.is_disjoint(primary.def.key.fields());
        let in_place = |fields| is_open_to_change && keeps_key(fields);
        let assigned = space.updated(old_tuple, (operations, base), in_place, self.is_history(), updated)?;
        if let Some(Assigned { fields, offset: Some(offset) }) = assigned {
            self.put_bytes(id, old, (fields, offset), updated)?;
            if !temporary {
                self.log_keyed_rarely(id, old, Some((operations, base)), local);
            }
            return Ok(Some(old));
        }
        let keeps_key = assigned.is_some_and(|assigned| keeps_key(assigned.fields));
        if !keeps_key && primary.index.compare_tuples(old_tuple.bytes(), updated) != Ordering::Equal {
            let (index, space) = (primary.def.name.clone(), space.def.name.clone());
            return Err(match primary.index.find(&self.arena, updated) {
                Some(_) => Error::TupleFound { index, space },
                None => Error::CantUpdatePrimaryKey { index, space },
            });
        }
        let new = self.allocate(id, updated, Some(old))?;
        self.exchange(id, new, PutMode::InPlaceOf(old), StatementKind::Update)?;
        if !temporary {
            let local = local || id == system::TRUNCATE && self.truncates_locally(updated);
            self.log_keyed_rarely(id, new, Some((operations, base)), local);
        }
        Ok(Some(new))
    }

    fn upsert(
        &mut self,
        statement: &Statement<'_>,
        id: SpaceId,
        tuple: &[u8],
        operations: &[u8],
        base: i64,
    ) -> Result<(), Error> {
        check_is_array(tuple)?;
        let space = self.space(id)?;
        let primary = space.primary()?;
        space.check_as(tuple, self.is_history())?;
        update::check(operations, &space.format, base)?;
        let (temporary, local) = (space.def.temporary, space.def.local);
        let new = match primary.index.find(&self.arena, tuple) {
            None => {
                let new = self.allocate(id, tuple, None)?;
                self.exchange(id, new, PutMode::Insert, StatementKind::Upsert)?;
                Some(new)
            }
            Some(old) => {
                let old_tuple = TupleRef::trusted(self.arena.get(old));
                let result = update::apply(
                    operations,
                    old_tuple,
                    &space.format,
                    base,
                    update::Mode::Upsert,
                    self.step_limit(),
                )?;
                space.check_as(&result, self.is_history())?;
                if primary.index.compare_tuples(old_tuple.bytes(), &result) == Ordering::Equal {
                    let new = self.allocate(id, &result, Some(old))?;
                    self.exchange(id, new, PutMode::InPlaceOf(old), StatementKind::Upsert)?;
                    Some(new)
                } else {
                    // Tarantool: an UPSERT that would change the primary key does nothing.
                    None
                }
            }
        };
        if !temporary {
            let truncates_locally = || new.is_some_and(|new| self.truncates_locally(self.arena.get(new)));
            let local = local || id == system::TRUNCATE && truncates_locally();
            self.log(statement, local);
        }
        Ok(())
    }

    pub(crate) fn delete(
        &mut self,
        id: SpaceId,
        index: IndexId,
        key: &[u8],
    ) -> Result<Option<Handle>, Error> {
        let space = self.space(id)?;
        if let Some(old) = space.find(&self.arena, index, key)? {
            return self.delete_found(id, old).map(|()| Some(old));
        }
        let (temporary, local) = (space.def.temporary, space.def.local);
        if index == 0 && space.def.engine == Engine::Vinyl {
            self.record_missed(id);
        }
        if id == system::SEQUENCE_DATA {
            self.reset_unwritten_sequence(key);
        }
        if !temporary {
            self.log(&Statement::Delete { space: id, index, key }, local);
        }
        Ok(None)
    }

    /// Deletes a tuple of the space. After an error the caller undoes the change.
    #[inline]
    fn delete_found(&mut self, id: SpaceId, old: Handle) -> Result<(), Error> {
        let Some(space) = self.catalog.get_mut(id) else { return Err(Error::NoSuchSpace(id.to_string())) };
        let (temporary, local) = (space.def.temporary, space.def.local);
        space.remove(&self.arena, old);
        self.record_row(id, Some(old), None, StatementKind::Delete);
        self.row_changed(id, Some(old), None)?;
        if !temporary {
            self.log_keyed(id, old, None, local);
        }
        Ok(())
    }

    /// Deletes the tuples at the beginning of a walk, up to `limit` and as long as `f` says so, each as a DELETE by its
    /// primary key would. Returns how many. They are found once for all indexes, and the one that is walked gives them up a
    /// leaf at a time.
    ///
    /// # Errors
    /// As [`Store::range`] and [`Store::execute`]. Nothing has changed then.
    pub fn delete_along(
        &mut self,
        id: SpaceId,
        (index, iterator, key): (IndexId, IteratorType, &[u8]),
        limit: usize,
        f: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64, Error> {
        if !self.transaction.is_open {
            return Err(Error::NoTransaction);
        }
        if self.transaction.user != user::ADMIN {
            self.check_access(self.transaction.user, Object::Space(id), Access::WRITE)?;
        }
        let mut run = std::mem::take(&mut self.run);
        run.clear();
        self.find_run(&mut run, id, (index, iterator, key), limit, f)?;
        let savepoint = self.savepoint();
        let deleted = self.delete_run(id, index, &run);
        let count = run.len() as u64;
        self.run = run;
        match deleted {
            Ok(()) => Ok(count),
            Err(error) => {
                self.undo_since(savepoint);
                Err(error)
            }
        }
    }

    fn find_run(
        &self,
        run: &mut Vec<Handle>,
        id: SpaceId,
        (index, iterator, key): (IndexId, IteratorType, &[u8]),
        limit: usize,
        f: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Error> {
        let space = self.space(id)?;
        let walk = self.walk(space, index, iterator, key, 0)?;
        // A multikey index has a tuple under each of its keys.
        let mut seen = space.has_special.then(HashSet::new);
        for handle in walk.into_iter().flatten().take(limit) {
            if seen.as_mut().is_some_and(|seen| !seen.insert(handle)) {
                continue;
            }
            if !f(self.arena.get(handle)) {
                break;
            }
            run.push(handle);
        }
        Ok(())
    }

    /// Deletes tuples that follow each other in an index.
    fn delete_run(&mut self, id: SpaceId, index: IndexId, run: &[Handle]) -> Result<(), Error> {
        let Some(space) = self.catalog.get_mut(id) else { return Err(Error::NoSuchSpace(id.to_string())) };
        let (temporary, local) = (space.def.temporary, space.def.local);
        // The schema may refuse to let a row of a system space go; then those behind it have to be there.
        let is_refusable = id <= system::MAX;
        if !is_refusable {
            space.remove_run(&self.arena, index, run);
        }
        for &old in run {
            if is_refusable && let Some(space) = self.catalog.get_mut(id) {
                space.remove(&self.arena, old);
            }
            self.record_row(id, Some(old), None, StatementKind::Delete);
            self.row_changed(id, Some(old), None)?;
            if !temporary {
                self.log_keyed_rarely(id, old, None, local);
            }
        }
        Ok(())
    }

    /// Copies a tuple of the space `id` into the arena. `replaced` is the tuple whose place it is about to take.
    ///
    /// Limits are for new work. Accepted data are recovered under any limits, or a start could be refused for
    /// data that fitted while the process ran.
    fn allocate(&mut self, id: SpaceId, tuple: &[u8], replaced: Option<Handle>) -> Result<Handle, Error> {
        let size = tuple.len() as u64 + TUPLE_OVERHEAD;
        if self.is_recovering() {
            return self.arena.insert(tuple).ok_or(Error::MemoryIssue { bytes: size });
        }
        if size > u64::from(self.settings.max_tuple_size) {
            return Err(Error::MemtxMaxTupleSize(size));
        }
        if self.effects.may_exceed(self.settings.transaction_limit, tuple.len()) {
            self.check_transaction(id, tuple.len())?;
        }
        while self.is_short_of_memory(tuple.len()) && !self.garbage.is_empty() {
            self.collect_garbage(garbage::PORTION);
        }
        if self.is_short_of_memory(tuple.len()) {
            let room = replaced.map_or(0, |replaced| self.arena.get(replaced).len() + SLACK);
            if tuple.len() > room && !self.is_exempt_from_limit(id) {
                return Err(Error::MemoryIssue { bytes: size });
            }
        }
        self.arena.insert(tuple).ok_or(Error::MemoryIssue { bytes: size })
    }

    /// Refuses a further tuple of that length if it makes the open transaction too large.
    #[cold]
    fn check_transaction(&self, id: SpaceId, length: usize) -> Result<(), Error> {
        let limit = self.settings.transaction_limit;
        if self.effects.open_bytes(length) <= limit || self.limit_is_lifted || self.is_exempt_from_limit(id) {
            return Ok(());
        }
        Err(Error::lacks(&format!(
            "a transaction with more than {} MiB of rows here: make several of it",
            limit >> 20
        )))
    }

    /// Whether a tuple of that length would take the data over the memory limit.
    fn is_short_of_memory(&self, length: usize) -> bool {
        let wanted = Arena::slot_size(length) as u64;
        let is_beyond =
            self.arena.used_bytes() + self.catalog.counted_indexes() + wanted > self.settings.memory_limit;
        is_beyond && !self.limit_is_lifted
    }

    /// Puts an allocated tuple into its space and applies it to the schema. The tuple is freed if it is refused.
    fn exchange(
        &mut self,
        id: SpaceId,
        new: Handle,
        mode: PutMode,
        kind: StatementKind,
    ) -> Result<(), Error> {
        let exchanged = match self.catalog.get_mut(id) {
            Some(space) if space.has_special => self.exchange_special(id, new, mode),
            Some(space) => space.exchange(&self.arena, new, mode),
            None => Err(Error::NoSuchSpace(id.to_string())),
        };
        let old = exchanged.inspect_err(|_| self.arena.remove(new))?;
        self.record_row(id, old, Some(new), kind);
        self.count_statement();
        // A Tarantool takes an INSERT into `_truncate` for a row of a snapshot.
        if id == system::TRUNCATE && kind == StatementKind::Insert {
            let id = Row::new(self.arena.get(new)).id(0)?;
            if self.is_recovering() {
                return Ok(());
            }
            self.space(id)?;
            return self.check_access(self.acting_user(), Object::Space(id), Access::WRITE);
        }
        self.row_changed(id, old, Some(new))
    }

    pub(crate) fn count_statement(&mut self) {
        self.statements_since_gauge += 1;
        if self.statements_since_gauge >= GAUGE_EVERY {
            self.gauge_indexes();
        }
    }

    /// Counts the memory of all indexes anew.
    pub(crate) fn gauge_indexes(&mut self) {
        self.statements_since_gauge = 0;
        self.catalog.count_indexes();
    }

    /// Applies the row of the last undo record to the schema.
    fn row_changed(&mut self, id: SpaceId, old: Option<Handle>, new: Option<Handle>) -> Result<(), Error> {
        if id > system::MAX || !Self::is_schema_space(id) {
            return Ok(());
        }
        let record = self.recorded() - 1;
        self.system_row_changed(id, old, new)?;
        self.mark_applied(record);
        Ok(())
    }

    fn log(&mut self, statement: &Statement<'_>, local: bool) {
        if self.is_logging {
            self.effects.push(statement, local);
        }
    }

    /// As [`Self::log_keyed`], for the rare callers.
    #[inline(never)]
    fn log_keyed_rarely(&mut self, space: SpaceId, hit: Handle, update: Option<(&[u8], i64)>, local: bool) {
        self.log_keyed(space, hit, update, local);
    }

    /// Logs an UPDATE with these operations that has made the tuple `hit`, or a DELETE of that tuple, under its
    /// primary key.
    ///
    /// The key is the tuple's, not the client's, even if it came through the primary index: Tarantool compares integers of
    /// different widths as different when it replays a log, so that `cf 00…05` would not find a `05`.
    #[expect(clippy::inline_always, reason = "measured: each change of a task comes here")]
    #[inline(always)]
    pub(crate) fn log_keyed(
        &mut self,
        space: SpaceId,
        hit: Handle,
        update: Option<(&[u8], i64)>,
        local: bool,
    ) {
        if !self.is_logging {
            return;
        }
        let Self { catalog, arena, effects, .. } = self;
        effects.push_keyed(space, update, local, |out| {
            if let Some(primary) = catalog.get(space).and_then(Space::primary_key) {
                primary.extract_array(arena.get(hit), out);
            }
        });
    }

    /// Whether a row of `_truncate` is about a space whose rows stay here, or has none.
    fn truncates_locally(&self, row: &[u8]) -> bool {
        let space = Row::new(row).id(0).ok().and_then(|id| self.catalog.get(id));
        space.is_some_and(|space| space.def.local || space.def.temporary)
    }

    /// Lets a sequence fill the field that it is attached to: a nil gives way to the next value, written with the rest
    /// of the tuple to `filled`, and `true` is returned; any other integer moves the sequence on.
    pub(crate) fn fill_sequence(
        &mut self,
        attached: &AttachedSequence,
        tuple: &[u8],
        filled: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let Some(sequence) = self.schema.sequences.get(attached.sequence) else {
            return Ok(false);
        };
        let Some(mut reader) = attached.place_in(tuple) else {
            return Ok(false);
        };
        let (before, place) = (sequence.value, reader.position());
        if reader.nil().is_err() {
            let unsigned = reader.uint().map(i64::try_from);
            let stored = unsigned.or_else(|_| reader.int().map(i64::try_from)).ok().and_then(Result::ok);
            if let Some(value) = stored.and_then(|stored| sequence.after_storing(stored)) {
                self.move_sequence(attached.sequence, before, value);
            }
            return Ok(false);
        }
        let value = sequence.next()?;
        self.move_sequence(attached.sequence, before, value);
        filled.extend_from_slice(&tuple[..place]);
        mp::write_int(filled, value);
        filled.extend_from_slice(reader.rest());
        Ok(true)
    }

    fn move_sequence(&mut self, id: u32, before: Option<i64>, value: i64) {
        self.undo_sequence(id, before);
        self.schema.sequences.set(id, Some(value));
    }

    /// Whether some tuple of a system space has a key that begins with these ids.
    pub(crate) fn has_rows(&self, space: SpaceId, index: IndexId, ids: &[u32]) -> bool {
        let mut key = Vec::with_capacity(5 * ids.len());
        for &id in ids {
            mp::write_uint(&mut key, u64::from(id));
        }
        let index = self.catalog.get(space).and_then(|space| space.index(index));
        index.is_some_and(|index| {
            let count = ids.len() as u32;
            let key_fits = index.def.key.check_key(&key, count).is_ok();
            key_fits && index.index.count(&self.arena, IteratorType::Eq, &key, count).unwrap_or(0) > 0
        })
    }
}

/// Statements carry whole MessagePack values; that a tuple is an array is left to check.
pub(crate) fn check_is_array(tuple: &[u8]) -> Result<(), Error> {
    key_values(tuple).map(drop)
}
