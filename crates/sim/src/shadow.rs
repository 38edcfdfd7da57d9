//! The data after the rows of a prefix of the log, and of nothing else.
//!
//! The shadow takes the batches that the instance hands to the journal and never touches a file. It applies their
//! transactions to a store of its own when they are known to be durable, or when a recovery has found them. So it
//! says where a recovery may end, and with which digest.

use std::collections::VecDeque;

use lycosa_instance::{Batch, statement};
use lycosa_iproto::row;
use lycosa_store::{Statement, Store};
use lycosa_tuple::mp::Reader;

use crate::storage;
use crate::violation::{Checked, Violation, hold};

/// A transaction as the instance encoded it.
#[derive(Debug, Clone)]
struct Transaction {
    /// The signature after its last row.
    signature: u64,
    rows: Vec<u8>,
}

/// The data after the first `signature` rows, and the transactions that follow.
#[derive(Debug)]
pub(crate) struct Shadow {
    store: Store,
    signature: u64,
    last: u64,
    pending: VecDeque<Transaction>,
    /// The moment of a snapshot, and the digest of the data then, once it is known.
    marked: Option<(u64, Option<u128>)>,
}

fn broken(error: impl std::fmt::Display) -> Violation {
    Violation(format!("the rows of the journal cannot be applied: {error}"))
}

impl Shadow {
    /// The shadow of a new instance.
    pub(crate) fn new() -> Checked<Self> {
        Self::of(&storage::new_store().map_err(broken)?, 0)
    }

    /// Another one that is as far as this and knows the same.
    pub(crate) fn copy(&self) -> Checked<Self> {
        let copy = Self::of(&self.store, self.signature)?;
        hold!(copy.digest() == self.digest(), "what a snapshot holds is not what was put into it");
        Ok(Self { last: self.last, pending: self.pending.clone(), ..copy })
    }

    /// The shadow of data that are all there is after `signature` rows.
    fn of(origin: &Store, signature: u64) -> Checked<Self> {
        let mut store = Store::new(lycosa_store::Settings::default());
        let mut refused = None;
        origin.for_each_snapshot_row(&mut |space, tuple, _| {
            if let Err(error) = store.recover(&Statement::Insert { space, tuple }) {
                refused.get_or_insert(error);
            }
        });
        refused.map_or(Ok(()), Err).map_err(broken)?;
        store.finish_snapshot().map_err(broken)?;
        Ok(Self { store, signature, last: signature, pending: VecDeque::new(), marked: None })
    }

    /// The signature up to which rows were [applied](Self::advance).
    pub(crate) fn signature(&self) -> u64 {
        self.signature
    }

    /// The signature after every row that the instance has handed out.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Takes a batch that was handed to the journal.
    pub(crate) fn append(&mut self, batch: &Batch) -> Checked {
        let mut begin = 0;
        for &end in &batch.ends {
            let rows = &batch.rows[begin..end as usize];
            begin = end as usize;
            let mut reader = Reader::new(rows);
            let mut count = 0;
            while !reader.is_empty() {
                let (header, _) = row::decode_row(&mut reader).map_err(broken)?;
                count += 1;
                hold!(
                    header.is_commit == reader.is_empty(),
                    "the row with LSN {} of a transaction of {count} or more rows is marked wrongly as its end",
                    header.lsn
                );
            }
            self.last += count;
            self.pending.push_back(Transaction { signature: self.last, rows: rows.to_vec() });
        }
        hold!(begin == batch.rows.len(), "a batch has rows after its last transaction");
        hold!(
            self.last == batch.lsn && batch.lsn == batch.vclock.signature(),
            "a batch ends with LSN {} and vclock {}, but its rows with {}",
            batch.lsn,
            batch.vclock,
            self.last
        );
        Ok(())
    }

    /// Applies the transactions up to `signature`, which must be the end of one of them.
    pub(crate) fn advance(&mut self, signature: u64) -> Checked {
        while let Some(transaction) = self.pending.pop_front_if(|first| first.signature <= signature) {
            let mut reader = Reader::new(&transaction.rows);
            while !reader.is_empty() {
                let (_, body) = row::decode_row(&mut reader).map_err(broken)?;
                if let Some(statement) = statement(&body) {
                    self.store.recover(&statement).map_err(broken)?;
                }
            }
            self.signature = transaction.signature;
            self.note_mark();
        }
        hold!(
            self.signature == signature,
            "LSN {signature} is not the end of a transaction; the one before it ends with {}",
            self.signature
        );
        Ok(())
    }

    /// Remembers the digest of the data after the row `signature`, which may be yet to come; and no other one.
    pub(crate) fn mark(&mut self, signature: u64) {
        self.marked = Some((signature, None));
        self.note_mark();
    }

    fn note_mark(&mut self) {
        if let Some((signature, digest)) = &mut self.marked
            && *signature == self.signature
        {
            *digest = Some(self.store.digest());
        }
    }

    /// The digest of the data after the row `signature`, which was [marked](Self::mark).
    pub(crate) fn marked(&self, signature: u64) -> Option<u128> {
        self.marked.filter(|(marked, _)| *marked == signature)?.1
    }

    /// Forgets the transactions after the row `signature`, which were lost.
    pub(crate) fn forget_after(&mut self, signature: u64) {
        self.pending.retain(|transaction| transaction.signature <= signature);
        self.last = signature;
    }

    /// The digest of the data after [`Self::advance`].
    pub(crate) fn digest(&self) -> u128 {
        self.store.digest()
    }
}
