//! Synchronous transactions between their rows and their verdict.
//!
//! A transaction on a synchronous space is logged before a quorum has it; a later CONFIRM or ROLLBACK row
//! says what became of it. Until then every transaction after it, synchronous or not, waits behind it, as it
//! did on the instance that wrote the log. So recovery holds back from the first synchronous transaction on,
//! and lets go in the order of the log.
//!
//! Absent: quorums. Transactions still here when the log ends were neither acknowledged nor refused, and are
//! recovered.

use std::collections::VecDeque;

use lycosa_iproto::row::encode_row;

use crate::transaction::Row;

#[derive(Debug)]
struct Waiting {
    /// Whose rows they are; 0 if all are local.
    replica_id: u32,
    /// Greatest LSN among them.
    lsn: u64,
    is_synchronous: bool,
    rows: Vec<u8>,
}

/// The transactions that wait, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    waiting: VecDeque<Waiting>,
}

/// The transactions of a [`Limbo`] that will get no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Undecided {
    pub(crate) transactions: usize,
    pub(crate) replica_id: u32,
    pub(crate) lsn: u64,
}

impl Limbo {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Lets a transaction wait.
    pub(crate) fn push(&mut self, rows: &[Row<'_>], is_synchronous: bool) {
        let mut waiting = Waiting { replica_id: 0, lsn: 0, is_synchronous, rows: Vec::new() };
        for row in rows {
            if row.header.replica_id != 0 {
                waiting.replica_id = row.header.replica_id;
                waiting.lsn = waiting.lsn.max(row.header.lsn);
            }
            encode_row(&mut waiting.rows, &row.header, &row.body);
        }
        self.waiting.push_back(waiting);
    }

    /// The transactions that a CONFIRM up to `lsn` makes final, encoded: those of the replica, all before
    /// them, and those after them up to the next synchronous one.
    pub(crate) fn confirm(&mut self, replica_id: u32, lsn: u64) -> Vec<Vec<u8>> {
        let confirmed =
            self.waiting.iter().rposition(|entry| entry.replica_id == replica_id && entry.lsn <= lsn);
        let Some(last) = confirmed else { return Vec::new() };
        let free = self.waiting.iter().skip(last + 1).take_while(|entry| !entry.is_synchronous).count();
        self.waiting.drain(..=last + free).map(|entry| entry.rows).collect()
    }

    /// Drops the transactions that a ROLLBACK from `lsn` on makes void, with all that wait behind them.
    pub(crate) fn roll_back(&mut self, replica_id: u32, lsn: u64) {
        let first = self.waiting.iter().position(|entry| entry.replica_id == replica_id && entry.lsn >= lsn);
        self.waiting.truncate(first.unwrap_or(self.waiting.len()));
    }

    /// What waits, if anything does.
    pub(crate) fn undecided(&self) -> Option<Undecided> {
        let first = self.waiting.front()?;
        let transactions = self.waiting.iter().filter(|entry| entry.is_synchronous).count();
        Some(Undecided { transactions, replica_id: first.replica_id, lsn: first.lsn })
    }

    /// Lets everything go.
    pub(crate) fn release(&mut self) -> Vec<Vec<u8>> {
        self.waiting.drain(..).map(|entry| entry.rows).collect()
    }
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::row::{RowBody, RowHeader};

    use super::*;

    fn filled(transactions: &[(u64, bool)]) -> Limbo {
        let mut limbo = Limbo::default();
        for &(lsn, is_synchronous) in transactions {
            let body = RowBody::Insert { space: 512, tuple: &[0x90] };
            limbo.push(&[Row { header: RowHeader::single(1, lsn, 0.0), body }], is_synchronous);
        }
        limbo
    }

    #[test]
    fn a_confirm_frees_what_waits_behind_it_up_to_the_next_synchronous_one() {
        let mut limbo = filled(&[(1, true), (2, false), (3, true), (4, false)]);
        assert_eq!(limbo.confirm(1, 1).len(), 2);
        assert_eq!(limbo.confirm(2, 9).len(), 0);
        assert_eq!(limbo.undecided(), Some(Undecided { transactions: 1, replica_id: 1, lsn: 3 }));
        assert_eq!(limbo.confirm(1, 3).len(), 2);
        assert!(limbo.is_empty());
    }

    #[test]
    fn a_rollback_takes_everything_behind_it() {
        let mut limbo = filled(&[(1, true), (2, true), (3, false)]);
        limbo.roll_back(1, 2);
        assert_eq!(limbo.release().len(), 1);
        assert_eq!(limbo.undecided(), None);
    }
}
