//! From rows to a store, as at a start.

use lycosa_instance::statement;
use lycosa_journal::recovery::{ApplyError, Target, Transaction};
use lycosa_journal::transaction::{Next, Row, Transactions};
use lycosa_store::{Error, SpaceId, Statement, Store};

fn new_store() -> Store {
    Store::new(lycosa_store::Settings { memory_limit: 64 << 20, ..lycosa_store::Settings::default() })
}

/// Rows of a snapshot: space and tuple.
pub(crate) type SnapshotRows = Vec<(SpaceId, Vec<u8>)>;

/// The rows of a snapshot of the data.
pub(crate) fn snapshot(store: &Store) -> SnapshotRows {
    let mut rows = Vec::new();
    store.for_each_snapshot_row(&mut |space, tuple, _| rows.push((space, tuple.to_vec())));
    rows
}

/// A store with the rows of a snapshot; its log is still to come.
pub(crate) fn loaded(rows: &SnapshotRows) -> Result<Store, Error> {
    let mut store = new_store();
    for (space, tuple) in rows {
        store.recover(&Statement::Insert { space: *space, tuple })?;
    }
    store.finish_snapshot()?;
    Ok(store)
}

/// What a restart on a snapshot of the data finds.
///
/// # Errors
/// A row that cannot be loaded.
pub(crate) fn reloaded(store: &Store) -> Result<Store, Error> {
    let mut store = loaded(&snapshot(store))?;
    store.finish_recovery()?;
    Ok(store)
}

/// Applies what is recovered to a store.
pub(crate) struct Replay {
    pub(crate) store: Store,
}

impl Replay {
    pub(crate) fn new() -> Replay {
        Replay { store: new_store() }
    }

    fn apply_rows(&mut self, rows: &[Row<'_>]) -> Result<(), Error> {
        let mut statements = rows.iter().filter_map(|row| statement(&row.body));
        statements.try_for_each(|statement| self.store.recover(&statement))
    }
}

impl Target for Replay {
    fn apply(&mut self, transaction: &Transaction<'_>) -> Result<(), ApplyError> {
        Ok(self.apply_rows(transaction.rows)?)
    }

    fn end_of_snapshot(&mut self) -> Result<(), ApplyError> {
        Ok(self.store.finish_snapshot()?)
    }
}

/// Applies whole transactions, back to back.
pub(crate) fn replay_rows(replay: &mut Replay, bytes: &[u8]) -> Result<(), Error> {
    let mut transactions = Transactions::new(bytes);
    let mut rows = Vec::new();
    loop {
        match transactions.next(&mut rows).expect("rows") {
            Next::Transaction(_) => replay.apply_rows(&rows)?,
            Next::End => return Ok(()),
            Next::Partial(at) => panic!("the transaction at {at} has no end"),
        }
    }
}
