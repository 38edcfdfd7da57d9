//! Writes the rows of takes that wait, and erases rows of takes that wait no longer.

use std::collections::BTreeMap;

use lycosa_store::{IteratorType, SpaceId, Statement, Store, system};
use lycosa_tuple::mp;

use super::ConsumerRows;
use crate::error::Result;
use crate::system::CONSUMERS;
use crate::task::{ShortKey, taken_key};
use crate::transaction::Undo;
use crate::tube::Tubes;
use crate::tube::handle::TubeIndex;
use crate::turn::{Common, Turn, WaitersTurn};
use crate::waiter::{Waiter, Waiters};

impl ConsumerRows {
    /// Writes the missing rows and erases the surplus ones.
    fn write(&self, store: &mut Store, (space, tubes, waiters): (SpaceId, &Tubes, &Waiters)) -> Result<()> {
        for &(connection, request) in &self.surplus {
            let key = ShortKey::numbers(&[connection, request]);
            // A client may have deleted it.
            if store.get(space, 0, &key)?.is_some() {
                store.execute(&Statement::Delete { space, index: 0, key: &key })?;
            }
        }
        for &(connection, request) in &self.missing {
            if let Some((index, waiter)) = waiters.get(connection, request)
                && let Some(row) = consumer_row(tubes, index, waiter)
            {
                store.execute(&Statement::Replace { space, tuple: &row })?;
            }
        }
        Ok(())
    }
}

/// The row of a take that waits in a tube.
fn consumer_row(tubes: &Tubes, index: TubeIndex, waiter: &Waiter) -> Option<Vec<u8>> {
    let tube = tubes.at(index)?;
    let mut row = Vec::with_capacity(48);
    mp::write_array(&mut row, 5);
    for number in [waiter.connection, waiter.request, tube.id, waiter.deadline, waiter.since] {
        mp::write_uint(&mut row, number);
    }
    Some(row)
}

impl Common {
    /// Whether a client that reads or changes `space` may miss rows of waiting takes, or see rows of takes that wait no longer: the
    /// space is `_queue_consumers`, or `_truncate`, whose rows empty it.
    #[inline]
    pub(crate) fn consumers_differ(&self, space: SpaceId) -> bool {
        (space == self.spaces.consumers || space == system::TRUNCATE)
            && self.spaces.consumers != 0
            && !self.waiters.rows.is_empty()
    }

    /// The rows that `_queue_consumers` has, or would have if all were written, in order.
    pub(crate) fn consumer_rows(&self, store: &Store, tubes: &Tubes) -> Result<Vec<Vec<u8>>> {
        let rows = &self.waiters.rows;
        let mut all = BTreeMap::new();
        let Some(space) = CONSUMERS.known(store, self.spaces.consumers) else { return Ok(Vec::new()) };
        for row in store.range(space, 0, IteratorType::All, &[0x90], 0)? {
            // Its key has the form of that of `_queue_taken_2`: two numbers.
            if let Some(key) = taken_key(row).filter(|key| !rows.surplus.contains(key)) {
                all.insert(key, row.to_vec());
            }
        }
        for &(connection, request) in &rows.missing {
            let waiter = self.waiters.get(connection, request);
            let row = waiter.and_then(|(index, waiter)| consumer_row(tubes, index, waiter));
            all.extend(row.map(|row| ((connection, request), row)));
        }
        Ok(all.into_values().collect())
    }
}

impl WaitersTurn<'_> {
    /// Gives `_queue_consumers` a row for each waiting take, and no other.
    pub(crate) fn write_rows(&mut self) -> Result<()> {
        let noted = std::mem::take(&mut self.turn.common.waiters.rows);
        self.write_noted(noted)
    }

    /// Writes rows that are noted beyond the bound. A row that the store refuses stays noted.
    #[inline]
    pub(crate) fn bound_rows(&mut self) {
        if self.turn.common.waiters.rows.is_bounded() {
            return;
        }
        let excess = self.turn.common.waiters.rows.take_excess();
        if let Err(error) = self.write_noted(excess) {
            self.turn.common.log_failure("a change of _queue_consumers", &error);
        }
    }

    fn write_noted(&mut self, noted: ConsumerRows) -> Result<()> {
        self.turn.transact(|turn| {
            let Turn { store, tubes, common, .. } = turn;
            let written = noted.write(store, (common.spaces.consumers, tubes, &common.waiters));
            common.pending.undo.push(Undo::Consumers(noted));
            written
        })
    }
}
