//! Loss of rows: the data of a shard go back to the rows that the journal has confirmed.
//!
//! Connections, calls and replies after a loss are in `front/loss.rs`.

use std::collections::HashSet;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_queue::Rebuilt;
use lycosa_store::{Store, UserId, user};

use crate::shard::Shard;
use crate::shard::data::{Confirmed, Lsn};
use crate::shard::request::{Answer, RequestId};
use crate::shard::wire_error::OUTCOME_UNKNOWN;

/// The answer to a request whose rows were lost.
pub(crate) fn outcome_unknown() -> ErrorObject {
    let message = "The outcome of this request is unknown: the journal has not confirmed its rows. \
                   Look whether it was done before it is repeated";
    ErrorObject::client(ErrorCode::SyncRollback, message).with_name(OUTCOME_UNKNOWN)
}

impl Shard {
    /// The journal has lost every row behind `from`, a durable one, and goes on: goes back to `confirmed`, the data at `from`.
    /// Returns which of the users are not the accounts that they were.
    pub(crate) fn lose(
        &mut self,
        from: Lsn,
        confirmed: Confirmed,
        users: HashSet<UserId>,
    ) -> HashSet<UserId> {
        let former = self.data.lose(from, confirmed, self.identity.replica_id);
        self.follow_data(former, users)
    }

    /// The data that the journal has confirmed are loaded anew: goes on with them. As [`Self::lose`].
    pub(crate) fn restore(&mut self, confirmed: Confirmed, users: HashSet<UserId>) -> HashSet<UserId> {
        let former = self.data.restore(confirmed, self.identity.replica_id);
        self.follow_data(former, users)
    }

    /// Other data have taken the place of `former`.
    fn follow_data(&mut self, former: Store, mut users: HashSet<UserId>) -> HashSet<UserId> {
        // Its row may be lost, too.
        self.roles.has_begun_epoch = false;
        self.expiring.restart();
        let waiting = self.data.queue().waiting_requests().collect();
        self.void_calls(&waiting);
        let account = |store: &Store, id| store.user(id).map(|user| (user.name.clone(), user.hash2));
        let store = self.data.store();
        users.retain(|&id| {
            !matches!(id, user::GUEST | user::ADMIN) && account(&former, id) != account(store, id)
        });
        self.await_replicas();
        self.former.push(former.retire());
        users
    }

    /// Lets the queue come up a little further on the confirmed data. Whether there is more to do.
    pub(crate) fn step_rebuild(&mut self, budget: usize) -> bool {
        if !self.data.conditions.facts().is_rebuilding {
            return false;
        }
        if let Some(Rebuilt { waiting, started }) = self.data.rebuild_step(budget) {
            if started.is_err() {
                self.role.retry_queue(self.data.now);
            }
            self.void_calls(&waiting);
        }
        self.data.conditions.facts().is_rebuilding
    }

    /// Gives back a little of the memory of former data. Whether some is left.
    pub(crate) fn free_former(&mut self, budget: u64) -> bool {
        if let Some(former) = self.former.last_mut()
            && !former.free(budget)
        {
            self.former.pop();
        }
        !self.former.is_empty()
    }

    /// Calls that waited for lost rows have an unknown outcome: all but calls that wait in the queue and calls that wait for a
    /// snapshot.
    fn void_calls(&mut self, waiting: &HashSet<(u64, u64)>) {
        let waiting = waiting.iter().map(|&(session, number)| RequestId { session, number });
        let mut waiting: HashSet<_> = waiting.collect();
        self.replication.write_concerns.retain_waiting(&waiting);
        waiting.extend(self.checkpoints.waiting_calls());
        self.answers.push_back(Answer::AllBut(waiting));
    }
}
