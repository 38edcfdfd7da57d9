//! Rows of `_sequence`, `_sequence_data` and `_space_sequence`: sequences of numbers and the fields that they fill.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use lycosa_tuple::field::FieldType;
use lycosa_tuple::key::KeyPart;
use lycosa_tuple::path::Path;

use crate::access::{Access, Object, ObjectType};
use crate::arena::Handle;
use crate::error::Error;
use crate::schema::SchemaObject;
use crate::schema::row::Row;
use crate::space::{AttachedSequence, IndexDef, Space};
use crate::{Store, UserId, system};

/// A sequence of numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Number.
    pub id: u32,
    /// Who created it.
    pub owner: UserId,
    /// Name, unique.
    pub name: String,
    /// Added for each value; not 0.
    pub step: i64,
    /// Least value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    /// First value.
    pub start: i64,
    /// Stored and shown, without effect, as in Tarantool.
    pub cache: i64,
    /// Begins anew at the other end instead of overflowing.
    pub cycle: bool,
    /// The last value that was handed out or set; `None` before the first.
    pub value: Option<i64>,
}

impl Sequence {
    /// Decodes a row of `_sequence`; `is_altered`: it changes a sequence.
    fn decode(row: Row<'_>, is_altered: bool) -> Result<Self, Error> {
        let wrong = |name: String, reason: &str| {
            let reason = reason.to_owned();
            if is_altered {
                Error::AlterSequence { name, reason }
            } else {
                Error::CreateSequence { name, reason }
            }
        };
        let name = row.name(2, |start| wrong(start, "sequence name is too long"))?;
        let sequence = Self {
            id: row.id(0)?,
            owner: row.id(1)?,
            name,
            step: row.int(3)?,
            min: row.int(4)?,
            max: row.int(5)?,
            start: row.int(6)?,
            cache: row.int(7)?,
            cycle: row.bool(8)?,
            value: None,
        };
        let Self { step, min, max, start, .. } = sequence;
        let reason = if step == 0 {
            "step option must be non-zero"
        } else if min > max {
            "max must be greater than or equal to min"
        } else if start < min || start > max {
            "start must be between min and max"
        } else {
            return Ok(sequence);
        };
        Err(wrong(sequence.name, reason))
    }

    /// The value after the last one.
    ///
    /// # Errors
    /// [`Error::SequenceOverflow`] at the end of a sequence that does not cycle.
    pub(crate) fn next(&self) -> Result<i64, Error> {
        let Some(value) = self.value else {
            return Ok(self.start);
        };
        let next = match value.checked_add(self.step) {
            // After a change of the limits a sequence may be outside of them: it goes on from the nearest.
            Some(_) if self.step > 0 && value < self.min => Some(self.min),
            Some(_) if self.step < 0 && value > self.max => Some(self.max),
            next => next.filter(|next| (self.min..=self.max).contains(next)),
        };
        match next {
            Some(next) => Ok(next),
            None if self.cycle => Ok(self.first_of_cycle()),
            None => Err(Error::SequenceOverflow(self.name.clone())),
        }
    }

    fn first_of_cycle(&self) -> i64 {
        if self.step > 0 { self.min } else { self.max }
    }

    /// The last value once `stored` stands in a tuple: the further one in the direction of the sequence. Where a cycle
    /// ends, its first value counts as further, so that a log which is replayed leads to the same values as the inserts
    /// that made it.
    pub(crate) fn after_storing(&self, stored: i64) -> Option<i64> {
        let is_further = self.value.is_none_or(|value| {
            let ahead = if self.step > 0 { stored > value } else { stored < value };
            ahead || self.cycle && stored == self.first_of_cycle() && self.next() == Ok(stored)
        });
        is_further.then_some(stored)
    }
}

/// All sequences.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    by_id: BTreeMap<u32, Sequence>,
    ids: HashMap<String, u32>,
    /// Last values of sequences whose rows a rollback is about to bring back.
    awaited: HashMap<u32, Option<i64>>,
}

impl Sequences {
    pub(crate) fn get(&self, id: u32) -> Option<&Sequence> {
        self.by_id.get(&id)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Sequence> {
        self.by_id.get(self.ids.get(name)?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.by_id.values()
    }

    /// Those with an id past this one, in id order.
    pub(crate) fn after(&self, id: Option<u32>) -> impl Iterator<Item = &Sequence> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((from, Bound::Unbounded)).map(|(_, sequence)| sequence)
    }

    /// Sets the last value.
    pub(crate) fn set(&mut self, id: u32, value: Option<i64>) {
        if let Some(sequence) = self.by_id.get_mut(&id) {
            sequence.value = value;
        }
    }

    /// Takes back a change of the last value, also of a sequence that will be there only when its row is back.
    pub(crate) fn undo(&mut self, id: u32, value: Option<i64>) {
        if self.by_id.contains_key(&id) {
            self.set(id, value);
        } else {
            self.awaited.insert(id, value);
        }
    }

    pub(crate) fn apply(&mut self, old: Option<Row<'_>>, new: Option<Row<'_>>) {
        let old = old.and_then(|row| row.id(0).ok()).and_then(|id| self.by_id.remove(&id));
        if let Some(old) = &old {
            self.ids.remove(&old.name);
        }
        if let Some(mut new) = new.and_then(|row| Sequence::decode(row, false).ok()) {
            let value = old.map(|old| old.value).or_else(|| self.awaited.remove(&new.id));
            new.value = value.flatten();
            self.ids.insert(new.name.clone(), new.id);
            self.by_id.insert(new.id, new);
        }
    }

    pub(crate) fn apply_data(&mut self, old: Option<Row<'_>>, new: Option<Row<'_>>) {
        if let Some(id) = new.or(old).and_then(|row| row.id(0).ok()) {
            self.set(id, new.and_then(|row| row.int(1).ok()));
        }
    }
}

/// Checks that a sequence can fill a field of the space if `primary` is its primary index.
pub(crate) fn check_filled_part(
    space: &Space,
    primary: &IndexDef,
    (field, path): (u32, Option<&Path>),
    lenient: bool,
) -> Result<(), Error> {
    let wrong = |reason| not_for_sequence(space, primary, reason);
    let is_meant =
        |part: &&KeyPart| part.field == field && (part.path.as_ref() == path || lenient && path.is_none());
    let part = primary.key.parts().iter().find(is_meant);
    let part = part.ok_or_else(|| wrong("sequence field must be a part of the index"))?;
    if !matches!(part.ty, FieldType::Unsigned | FieldType::Integer) {
        return Err(wrong("sequence cannot be used with a non-integer key"));
    }
    Ok(())
}

fn not_for_sequence(space: &Space, primary: &IndexDef, reason: &str) -> Error {
    Error::ModifyIndex {
        index: primary.name.clone(),
        space: space.def.name.clone(),
        reason: reason.to_owned(),
    }
}

impl Store {
    /// A row of `_sequence` was replaced, added or removed.
    pub(crate) fn sequence_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        let check = |sequence: &Sequence, access| {
            let Sequence { id, owner, name, .. } = sequence;
            let object = SchemaObject { kind: ObjectType::Sequence, id: *id, owner: *owner, name };
            self.check_schema_access(object, access)
        };
        if let Some(new) = new {
            let row = Row::new(self.arena.get(new));
            let present = row.id(0).ok().and_then(|id| self.schema.sequences.get(id));
            let sequence = Sequence::decode(row, present.is_some())?;
            match present {
                Some(present) => {
                    check(present, Access::ALTER)?;
                    let Sequence { id, owner, name, .. } = present;
                    let present = SchemaObject { kind: ObjectType::Sequence, id: *id, owner: *owner, name };
                    self.check_owner_stays(present, sequence.owner)?;
                }
                None => check(&sequence, Access::CREATE)?,
            }
        } else if let Some(old) = old {
            let id = Row::new(self.arena.get(old)).id(0)?;
            if let Some(sequence) = self.schema.sequences.get(id) {
                check(sequence, Access::DROP)?;
                let reason = if self.has_rows(system::SEQUENCE_DATA, 0, &[id]) {
                    "the sequence has data"
                } else if self.has_rows(system::SPACE_SEQUENCE, 1, &[id]) {
                    "the sequence is in use"
                } else if self.schema.users.has_grants(ObjectType::Sequence, id) {
                    "the sequence has grants"
                } else {
                    ""
                };
                if !reason.is_empty() {
                    return Err(Error::DropSequence {
                        name: sequence.name.clone(),
                        reason: reason.to_owned(),
                    });
                }
                let value = sequence.value;
                self.undo_sequence(id, value);
            }
        }
        self.apply_system_row(system::SEQUENCE, old, new);
        Ok(())
    }

    /// A row of `_sequence_data` was replaced, added or removed: the sequence's last value was set or forgotten.
    pub(crate) fn sequence_data_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        let Some(row) = new.or(old) else {
            return Ok(());
        };
        let row = Row::new(self.arena.get(row));
        let id = row.id(0)?;
        if new.is_some() && !self.is_history() {
            // A Tarantool ends when it reads a value that no sequence can have.
            row.int(1)?;
        }
        let value = self.schema.sequences.get(id).map(|sequence| sequence.value);
        let value = value.ok_or_else(|| Error::NoSuchSequence(id.to_string()))?;
        self.undo_sequence(id, value);
        self.apply_system_row(system::SEQUENCE_DATA, old, new);
        Ok(())
    }

    /// A row of `_space_sequence` was replaced, added or removed: a field is filled by a sequence, or no longer.
    pub(crate) fn space_sequence_row_changed(
        &mut self,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<(), Error> {
        let Some(row) = new.or(old) else {
            return Ok(());
        };
        if old.is_some() && new.is_some() && !self.is_history() {
            return Err(Error::Unsupported {
                object: "space \"_space_sequence\"".to_owned(),
                feature: "update".to_owned(),
            });
        }
        let row = Row::new(self.arena.get(row));
        let (space_id, sequence_id) = (row.id(0)?, row.id(1)?);
        let space = self.space(space_id)?;
        if self.schema.sequences.get(sequence_id).is_none() {
            return Err(Error::NoSuchSequence(sequence_id.to_string()));
        }
        self.check_schema_access(SchemaObject::of_space(space), Access::ALTER)?;
        if new.is_some() {
            let primary = &space.primary()?.def;
            let is_generated = row.bool(2)?;
            if !is_generated {
                // A user that inserts into the space will move the sequence without a check of rights on it.
                let acting = self.acting_user();
                self.check_access(acting, Object::Sequence(sequence_id), Access::READ | Access::WRITE)?;
            }
            // A snapshot's rows come in the order of the spaces: which was attached first cannot be told from them.
            if !self.is_history() && self.is_taken_elsewhere(sequence_id, space_id, is_generated) {
                let reason = "can not attach generated sequence".to_owned();
                return Err(Error::AlterSpace { name: space.def.name.clone(), reason });
            }
            let (field, path) = if row.len() > 3 { (row.id(3)?, row.text(4)?) } else { (0, String::new()) };
            let path = if path.is_empty() { None } else { Some(Path::parse(&path)) };
            let path = path.transpose().map_err(|_| {
                not_for_sequence(space, primary, "sequence field must be a part of the index")
            })?;
            check_filled_part(space, primary, (field, path.as_ref()), self.is_history())?;
        }
        self.apply_system_row(system::SPACE_SEQUENCE, old, new);
        Ok(())
    }

    /// Whether another space has the sequence as its own, or has it at all if it is to be a space's own.
    fn is_taken_elsewhere(&self, sequence: u32, space: u32, is_generated: bool) -> bool {
        self.catalog.iter().filter(|other| other.def.id != space).any(|other| {
            let attached = other.sequence.as_ref().filter(|attached| attached.sequence == sequence);
            attached.is_some_and(|attached| attached.is_generated || is_generated)
        })
    }

    pub(crate) fn apply_attachment(&mut self, old: Option<Handle>, new: Option<Handle>) {
        let Some(row) = new.or(old) else {
            return;
        };
        let row = Row::new(self.arena.get(row));
        let attached = AttachedSequence {
            sequence: row.id(1).unwrap_or(0),
            field: row.id(3).unwrap_or(0),
            path: row.text(4).ok().and_then(|path| Path::parse(path).ok()).map(Arc::new),
            is_generated: row.bool(2).unwrap_or(false),
        };
        let space = row.id(0).ok().and_then(|id| self.catalog.get_mut(id));
        if let Some(space) = space {
            space.sequence = new.map(|_| attached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(step: i64, min: i64, max: i64, start: i64, cycle: bool) -> Sequence {
        Sequence {
            id: 1,
            owner: 1,
            name: "q".to_owned(),
            step,
            min,
            max,
            start,
            cache: 0,
            cycle,
            value: None,
        }
    }

    fn take(sequence: &mut Sequence, count: usize) -> Vec<Option<i64>> {
        (0..count)
            .map(|_| {
                let next = sequence.next().ok();
                sequence.value = next.or(sequence.value);
                next
            })
            .collect()
    }

    #[test]
    fn ends_or_cycles() {
        assert_eq!(take(&mut sequence(1, 1, 3, 2, false), 3), [Some(2), Some(3), None]);
        assert_eq!(take(&mut sequence(1, 1, 3, 2, true), 4), [Some(2), Some(3), Some(1), Some(2)]);
        assert_eq!(take(&mut sequence(-2, -5, -1, -1, true), 4), [Some(-1), Some(-3), Some(-5), Some(-1)]);
        assert_eq!(take(&mut sequence(1, 1, i64::MAX, i64::MAX, false), 2), [Some(i64::MAX), None]);
    }

    #[test]
    fn replaying_what_was_stored_leads_to_the_same_value() {
        for cycle in [false, true] {
            for step in [1, 3, -1, -2] {
                let mut live = sequence(step, 1, 10, 5, cycle);
                let mut replayed = live.clone();
                for _ in 0..30 {
                    let Ok(next) = live.next() else { break };
                    live.value = Some(next);
                    replayed.value = replayed.after_storing(next).or(replayed.value);
                    assert_eq!(live.value, replayed.value, "step {step}, cycle {cycle}");
                }
            }
        }
    }
}
