//! Effects of committed transactions: the canonical statements that a journal keeps.
//!
//! Statements are copied once, when they are executed, into one buffer; a rolled-back tail is cut off, a commit only
//! marks a boundary, and the consumer borrows from the buffer while it drains it.

use std::ops::Range;

use crate::statement::Statement;
use crate::{IndexId, SpaceId};

/// One statement of a committed transaction in the form in which it is logged: an update or delete that hit a tuple
/// has the primary key, an insert has the number that a sequence gave it, and the bytes are the sent ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect<'a> {
    /// The statement.
    pub statement: Statement<'a>,
    /// The row stays on this instance: local spaces, and truncation of local and temporary ones.
    pub local: bool,
}

/// One committed transaction with at least one effect.
#[derive(Debug, Clone, Copy)]
pub struct Committed<'a> {
    records: &'a [Record],
    bytes: &'a [u8],
}

impl<'a> Committed<'a> {
    /// Number of effects; at least one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Never true; here because `len` is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The effect, if there is just one.
    #[must_use]
    #[inline]
    pub fn single(&self) -> Option<Effect<'a>> {
        match self.records {
            [record] => Some(record.effect(self.bytes)),
            _ => None,
        }
    }

    /// The transaction without its first `count` effects; None if it has no others.
    #[must_use]
    pub fn behind(&self, count: usize) -> Option<Committed<'a>> {
        let records = self.records.get(count..).filter(|rest| !rest.is_empty())?;
        Some(Committed { records, bytes: self.bytes })
    }

    /// The effects in the order of execution.
    pub fn effects(&self) -> impl DoubleEndedIterator<Item = Effect<'a>> + ExactSizeIterator + 'a {
        let bytes = self.bytes;
        self.records.iter().map(move |record| record.effect(bytes))
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Insert,
    Replace,
    Update,
    Upsert,
    Delete,
}

/// A statement whose bytes are `start..middle` (tuple or key) and `middle..end` (operations) of the buffer.
#[derive(Debug, Clone, Copy)]
struct Record {
    kind: Kind,
    local: bool,
    space: SpaceId,
    index: IndexId,
    base: i64,
    start: usize,
    middle: usize,
    end: usize,
}

impl Record {
    #[inline]
    fn effect(self, bytes: &[u8]) -> Effect<'_> {
        let first = &bytes[self.start..self.middle];
        let second = &bytes[self.middle..self.end];
        let Self { space, index, base, local, .. } = self;
        let statement = match self.kind {
            Kind::Insert => Statement::Insert { space, tuple: first },
            Kind::Replace => Statement::Replace { space, tuple: first },
            Kind::Update => Statement::Update { space, index, key: first, operations: second, base },
            Kind::Upsert => Statement::Upsert { space, tuple: first, operations: second, base },
            Kind::Delete => Statement::Delete { space, index, key: first },
        };
        Effect { statement, local }
    }
}

/// A place in the buffers to which a rollback cuts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EffectMark {
    records: usize,
    bytes: usize,
}

/// The effects of all committed transactions that were not drained yet and of the open one.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    records: Vec<Record>,
    bytes: Vec<u8>,
    /// For each committed transaction, the number of records up to and with it.
    ends: Vec<usize>,
}

impl Effects {
    /// What a row takes in a journal beside the bytes of its statement, about: its header and its keys.
    const ROW_OVERHEAD: usize = 48;
    /// Largest buffer that is kept after a drain.
    const KEPT_BYTES: usize = 4 << 20;

    /// Effects of the open transaction.
    pub(crate) fn open(&self) -> usize {
        self.records.len() - self.ends.last().copied().unwrap_or(0)
    }

    /// Bytes that the rows of the open transaction take in a journal, about, with a further tuple of that length.
    pub(crate) fn open_bytes(&self, length: usize) -> u64 {
        let bytes = self.bytes.len() - self.committed().bytes;
        (bytes + length + (self.open() + 1) * Self::ROW_OVERHEAD) as u64
    }

    /// Whether [`Self::open_bytes`] may be more than `limit`: a cheap look at all that waits, which is rarely so much.
    #[inline]
    pub(crate) fn may_exceed(&self, limit: u64, length: usize) -> bool {
        (self.bytes.len() + length + (self.records.len() + 1) * Self::ROW_OVERHEAD) as u64 > limit
    }

    pub(crate) fn push(&mut self, statement: &Statement<'_>, local: bool) {
        let start = self.bytes.len();
        let (kind, space, index, base, first, second): (_, _, _, _, &[u8], &[u8]) = match *statement {
            Statement::Insert { space, tuple } => (Kind::Insert, space, 0, 0, tuple, &[]),
            Statement::Replace { space, tuple } => (Kind::Replace, space, 0, 0, tuple, &[]),
            Statement::Update { space, index, key, operations, base } => {
                (Kind::Update, space, index, base, key, operations)
            }
            Statement::Upsert { space, tuple, operations, base } => {
                (Kind::Upsert, space, 0, base, tuple, operations)
            }
            Statement::Delete { space, index, key } => (Kind::Delete, space, index, 0, key, &[]),
        };
        self.bytes.extend_from_slice(first);
        let middle = self.bytes.len();
        if !second.is_empty() {
            self.bytes.extend_from_slice(second);
        }
        let end = self.bytes.len();
        self.records.push(Record { kind, local, space, index, base, start, middle, end });
    }

    /// Adds an INSERT or a REPLACE.
    #[inline]
    pub(crate) fn push_put(&mut self, space: SpaceId, is_insert: bool, tuple: &[u8], local: bool) {
        let kind = if is_insert { Kind::Insert } else { Kind::Replace };
        let start = self.bytes.len();
        self.bytes.extend_from_slice(tuple);
        let end = self.bytes.len();
        self.records.push(Record { kind, local, space, index: 0, base: 0, start, middle: end, end });
    }

    /// Adds an UPDATE with these operations and this base, or a DELETE, by the primary key that `key` appends.
    #[expect(clippy::inline_always, reason = "measured: each change of a task comes here")]
    #[inline(always)]
    pub(crate) fn push_keyed(
        &mut self,
        space: SpaceId,
        update: Option<(&[u8], i64)>,
        local: bool,
        key: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.bytes.len();
        key(&mut self.bytes);
        let middle = self.bytes.len();
        let (kind, base) = match update {
            Some((operations, base)) => {
                self.bytes.extend_from_slice(operations);
                (Kind::Update, base)
            }
            None => (Kind::Delete, 0),
        };
        let end = self.bytes.len();
        self.records.push(Record { kind, local, space, index: 0, base, start, middle, end });
    }

    pub(crate) fn mark(&self) -> EffectMark {
        EffectMark { records: self.records.len(), bytes: self.bytes.len() }
    }

    pub(crate) fn cut(&mut self, mark: EffectMark) {
        self.records.truncate(mark.records);
        self.bytes.truncate(mark.bytes);
    }

    /// Closes the open transaction, if it left anything.
    pub(crate) fn commit(&mut self) {
        if self.ends.last().copied().unwrap_or(0) < self.records.len() {
            self.ends.push(self.records.len());
        }
    }

    /// The mark of the end of the last committed transaction.
    pub(crate) fn committed(&self) -> EffectMark {
        let records = self.ends.last().copied().unwrap_or(0);
        let bytes = if records == 0 { 0 } else { self.records[records - 1].end };
        EffectMark { records, bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Hands out every committed transaction and forgets them. Must not be called while a transaction is open.
    #[inline]
    pub(crate) fn drain(&mut self, f: &mut impl FnMut(Committed<'_>)) {
        let mut from = 0;
        for &to in &self.ends {
            let Range { start, end } = from..to;
            f(Committed { records: &self.records[start..end], bytes: &self.bytes });
            from = to;
        }
        self.ends.clear();
        self.records.clear();
        self.bytes.clear();
        if self.bytes.capacity() > Self::KEPT_BYTES {
            self.bytes.shrink_to(Self::KEPT_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(effects: &mut Effects) -> Vec<Vec<(SpaceId, bool)>> {
        let mut all = Vec::new();
        effects.drain(&mut |committed| {
            all.push(committed.effects().map(|e| (e.statement.space(), e.local)).collect());
        });
        all
    }

    #[test]
    fn transactions_keep_their_boundaries() {
        let mut effects = Effects::default();
        effects.push(&Statement::Insert { space: 512, tuple: &[0x91, 1] }, false);
        effects.push(&Statement::Delete { space: 513, index: 0, key: &[0x91, 1] }, true);
        effects.commit();
        effects.commit();
        effects.push(&Statement::Replace { space: 514, tuple: &[0x90] }, false);
        let mark = effects.mark();
        effects.push(&Statement::Replace { space: 515, tuple: &[0x90] }, false);
        effects.cut(mark);
        effects.commit();
        assert_eq!(drained(&mut effects), vec![vec![(512, false), (513, true)], vec![(514, false)]]);
        assert!(effects.is_empty());
        assert!(drained(&mut effects).is_empty());
    }

    #[test]
    fn a_tuple_that_is_put_is_a_statement_like_others() {
        let mut effects = Effects::default();
        effects.push_put(1, true, &[0x91, 7], false);
        effects.push_put(2, false, &[0x91, 8], true);
        effects.commit();
        effects.drain(&mut |committed| {
            let back: Vec<_> = committed.effects().collect();
            let insert = Statement::Insert { space: 1, tuple: &[0x91, 7] };
            let replace = Statement::Replace { space: 2, tuple: &[0x91, 8] };
            let expected =
                [Effect { statement: insert, local: false }, Effect { statement: replace, local: true }];
            assert_eq!(back, expected);
        });
    }

    #[test]
    fn statements_come_back_as_they_went_in() {
        let statements = [
            Statement::Insert { space: 1, tuple: &[0x91, 7] },
            Statement::Update { space: 2, index: 1, key: &[0x91, 8], operations: &[0x90], base: -1 },
            Statement::Upsert { space: 3, tuple: &[0x91, 9], operations: &[0x91, 0x90], base: 1 },
            Statement::Delete { space: 4, index: 2, key: &[0x90] },
        ];
        let mut effects = Effects::default();
        for statement in &statements {
            effects.push(statement, false);
        }
        effects.commit();
        effects.drain(&mut |committed| {
            let back: Vec<_> = committed.effects().map(|effect| effect.statement).collect();
            assert_eq!(back, statements);
        });
    }
}
