//! Replay of rows into a store, as at a start.

use lycosa_engine::replay::Replay;
use lycosa_iproto::row::RowBody;
use lycosa_journal::transaction::{Next, Transactions};
use lycosa_store::{Error, SpaceId, Store};

/// An empty store that takes rows.
pub(crate) fn new_replay() -> Replay {
    Replay::new(Store::new(lycosa_store::Settings {
        memory_limit: 64 << 20,
        ..lycosa_store::Settings::default()
    }))
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
pub(crate) fn loaded(rows: &SnapshotRows) -> Result<Replay, Error> {
    let mut replay = new_replay();
    rows.iter().try_for_each(|(space, tuple)| replay.apply(&RowBody::Insert { space: *space, tuple }))?;
    replay.end_snapshot()?;
    Ok(replay)
}

/// What a restart on a snapshot of the data finds.
///
/// # Errors
/// A row that cannot be loaded.
pub(crate) fn reloaded(store: &Store) -> Result<Store, Error> {
    loaded(&snapshot(store))?.finish()
}

/// Applies whole transactions, back to back.
pub(crate) fn replay_rows(replay: &mut Replay, bytes: &[u8]) -> Result<(), Error> {
    let mut transactions = Transactions::new(bytes);
    let mut rows = Vec::new();
    loop {
        match transactions.next(&mut rows).expect("rows") {
            Next::Transaction(_) => rows.iter().try_for_each(|row| replay.apply(&row.body))?,
            Next::End => return Ok(()),
            Next::Partial(at) => panic!("the transaction at {at} has no end"),
        }
    }
}
