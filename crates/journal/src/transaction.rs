//! Transactions, read from blocks.
//!
//! A block of an xlog holds whole transactions, as written by us and by Tarantool. A transaction that goes on
//! in the next block is read all the same; one that never ends is what a crash left, and none of it counts.

use std::ops::Range;

use lycosa_iproto::row::{RowBody, RowHeader, decode_row};
use lycosa_tuple::mp;

use crate::reader::DamageKind;

/// A row of a journal file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row<'a> {
    /// Whose it is, its place in the log and in its transaction.
    pub header: RowHeader,
    /// What it does.
    pub body: RowBody<'a>,
}

/// What [`Transactions::next`] came upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A whole transaction; where it stands in the bytes.
    Transaction(Range<usize>),
    /// The bytes end inside the transaction that begins here.
    Partial(usize),
    /// The bytes end after a transaction.
    End,
}

/// Cuts rows, back to back, into transactions.
#[derive(Debug, Clone)]
pub struct Transactions<'a> {
    reader: mp::Reader<'a>,
}

impl<'a> Transactions<'a> {
    /// The transactions in `rows`.
    #[must_use]
    pub fn new(rows: &'a [u8]) -> Self {
        Self { reader: mp::Reader::new(rows) }
    }

    /// Puts the rows of the next transaction into `rows`, in place of its content.
    ///
    /// # Errors
    /// [`DamageKind::Row`] when bytes are no row, or a row of another transaction comes before the last one
    /// has ended.
    pub fn next(&mut self, rows: &mut Vec<Row<'a>>) -> Result<Next, DamageKind> {
        rows.clear();
        let begin = self.reader.position();
        while !self.reader.is_empty() {
            let at = self.reader.position();
            let damaged = |reason: String| DamageKind::Row { at, reason };
            let (header, body) = decode_row(&mut self.reader).map_err(|error| damaged(error.to_string()))?;
            if let Some(first) = rows.first()
                && first.header.tsn != header.tsn
            {
                return Err(damaged("the transaction before it has no end".to_owned()));
            }
            rows.push(Row { header, body });
            if header.is_commit {
                return Ok(Next::Transaction(begin..self.reader.position()));
            }
        }
        Ok(if rows.is_empty() { Next::End } else { Next::Partial(begin) })
    }
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::row::encode_row;

    use super::*;

    fn row(out: &mut Vec<u8>, lsn: u64, tsn: u64, is_commit: bool) {
        let header = RowHeader { replica_id: 1, group_id: 0, lsn, timestamp: 1.5, tsn, is_commit };
        encode_row(out, &header, &RowBody::Insert { space: 512, tuple: &[0x91, 0x01] });
    }

    fn lsns(rows: &[Row<'_>]) -> Vec<u64> {
        rows.iter().map(|row| row.header.lsn).collect()
    }

    #[test]
    fn rows_are_grouped_until_the_last_one_says_so() {
        let mut bytes = Vec::new();
        row(&mut bytes, 1, 1, true);
        let first = bytes.len();
        row(&mut bytes, 2, 2, false);
        row(&mut bytes, 3, 2, false);
        row(&mut bytes, 4, 2, true);
        let second = bytes.len();
        row(&mut bytes, 5, 5, false);

        let mut rows = Vec::new();
        let mut transactions = Transactions::new(&bytes);
        assert_eq!(transactions.next(&mut rows), Ok(Next::Transaction(0..first)));
        assert_eq!(lsns(&rows), [1]);
        assert_eq!(transactions.next(&mut rows), Ok(Next::Transaction(first..second)));
        assert_eq!(lsns(&rows), [2, 3, 4]);
        assert_eq!(transactions.next(&mut rows), Ok(Next::Partial(second)));
        assert_eq!(Transactions::new(&[]).next(&mut Vec::new()), Ok(Next::End));
    }

    #[test]
    fn a_transaction_inside_another_is_damage() {
        let mut bytes = Vec::new();
        row(&mut bytes, 2, 2, false);
        let at = bytes.len();
        row(&mut bytes, 3, 3, true);
        let found = Transactions::new(&bytes).next(&mut Vec::new());
        assert!(matches!(found, Err(DamageKind::Row { at: found, .. }) if found == at));
    }

    #[test]
    fn bytes_that_are_no_row_are_damage() {
        let found = Transactions::new(&[0xc1]).next(&mut Vec::new());
        assert!(matches!(found, Err(DamageKind::Row { at: 0, .. })));
    }
}
