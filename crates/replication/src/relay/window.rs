//! The newest batches of the log in memory, framed once for all relays.
//!
//! A relay that has the whole log so far follows here and touches no file. A relay that is too slow finds that the
//! window has moved on and reads the files again.

use std::collections::VecDeque;
use std::sync::Arc;

use lycosa_iproto::row::RowError;
use lycosa_iproto::vclock::Vclock;

use crate::stream::{self, span};

/// The place of a batch among all batches that the window has ever had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(u64);

impl Cursor {
    /// The batch after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A batch as it is sent: frames of all rows that are not local.
#[derive(Debug)]
pub struct Framed {
    bytes: Vec<u8>,
    origins: u32,
    before: Vclock,
    after: Vclock,
}

impl Framed {
    /// The frames, back to back.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The clock before the first row.
    #[must_use]
    pub fn before(&self) -> &Vclock {
        &self.before
    }

    /// The clock after the last row.
    #[must_use]
    pub fn after(&self) -> &Vclock {
        &self.after
    }

    pub(crate) fn origins(&self) -> u32 {
        self.origins
    }

    pub(crate) fn origin_ids(&self) -> impl Iterator<Item = u32> + use<> {
        let origins = self.origins;
        (0..u32::BITS).filter(move |id| origins & (1 << id) != 0)
    }
}

/// Batches in the order of the log, the newest last, in at most `limit` bytes; the newest stays at any size.
#[derive(Debug)]
pub struct Window {
    batches: VecDeque<Arc<Framed>>,
    first: u64,
    bytes: usize,
    limit: usize,
    end: Vclock,
}

impl Window {
    /// An empty window at `end`, the clock after the last row of the log.
    #[must_use]
    pub fn new(end: Vclock, limit: usize) -> Self {
        Self { batches: VecDeque::new(), first: 0, bytes: 0, limit, end }
    }

    /// Adds a batch that is durable: encoded rows back to back, and the clock after them.
    ///
    /// # Errors
    /// Bytes that are no row. The window is then as before.
    pub fn push(&mut self, rows: &[u8], after: &Vclock) -> Result<(), RowError> {
        let mut framed = Framed {
            bytes: Vec::with_capacity(rows.len() + rows.len() / 8),
            origins: 0,
            before: self.end.clone(),
            after: after.clone(),
        };
        let mut rest = rows;
        while !rest.is_empty() {
            let row = span(rest).map_err(|_| RowError::Header)?;
            let (encoded, tail) = rest.split_at(row.length);
            rest = tail;
            if !row.is_local {
                framed.origins |= 1_u32.checked_shl(row.replica_id).ok_or(RowError::Header)?;
                stream::row(&mut framed.bytes, encoded);
            }
        }
        self.end = after.clone();
        self.bytes += framed.bytes.len();
        self.batches.push_back(Arc::new(framed));
        while self.bytes > self.limit && self.batches.len() > 1 {
            self.bytes -= self.batches.pop_front().map_or(0, |batch| batch.bytes.len());
            self.first += 1;
        }
        Ok(())
    }

    /// Forgets all batches and goes on behind `end`.
    pub fn restart(&mut self, end: Vclock) {
        self.first += self.batches.len() as u64;
        self.batches.clear();
        self.bytes = 0;
        self.end = end;
    }

    /// The clock after the newest batch.
    #[must_use]
    pub fn end(&self) -> &Vclock {
        &self.end
    }

    /// The oldest batch in the window.
    #[must_use]
    pub fn first(&self) -> Cursor {
        Cursor(self.first)
    }

    /// Where the next batch will be.
    #[must_use]
    pub fn next(&self) -> Cursor {
        Cursor(self.first + self.batches.len() as u64)
    }

    /// Whether the batch at `cursor` was there and is no more.
    #[must_use]
    pub fn has_passed(&self, cursor: Cursor) -> bool {
        cursor.0 < self.first
    }

    /// The batch at `cursor`, unless it is not there yet or no more.
    #[must_use]
    pub fn get(&self, cursor: Cursor) -> Option<&Arc<Framed>> {
        let position = cursor.0.checked_sub(self.first)?;
        self.batches.get(usize::try_from(position).ok()?)
    }

    /// Bytes of all frames.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::row::{RowBody, RowHeader, encode_row};

    use super::*;

    #[test]
    fn the_oldest_batches_go_first() {
        let mut window = Window::new(Vclock::new(), 100);
        let mut clock = Vclock::new();
        let start = window.next();
        for lsn in 1..=5 {
            let mut rows = Vec::new();
            encode_row(&mut rows, &RowHeader::single(1, lsn, 1.0), &RowBody::Nop);
            clock.set(1, lsn).expect("an id below 32");
            window.push(&rows, &clock).expect("a row");
        }
        assert!(window.has_passed(start) && window.get(start).is_none());
        assert!(window.bytes() <= 100);
        let newest = window.get(window.first()).expect("the window is not empty");
        assert_eq!(newest.after().get(1), newest.before().get(1) + 1);
        assert!(window.get(window.next()).is_none() && !window.has_passed(window.next()));
        window.restart(Vclock::new());
        assert_eq!((window.first(), window.bytes()), (window.next(), 0));
    }

    #[test]
    fn a_batch_that_is_larger_than_the_window_stays_until_the_next() {
        let mut window = Window::new(Vclock::new(), 10);
        let tuple = [&[0x91, 0xc4, 200][..], &[7; 200]].concat();
        let mut rows = Vec::new();
        encode_row(&mut rows, &RowHeader::single(1, 1, 1.0), &RowBody::Insert { space: 512, tuple: &tuple });
        window.push(&rows, &Vclock::new()).expect("a row");
        assert!(window.get(window.first()).is_some());
        assert!(window.push(&[0xc1], &Vclock::new()).is_err());
        assert!(window.get(window.first()).is_some());
    }
}
