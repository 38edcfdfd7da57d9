//! What a journal that is not local can do: lose rows that it was given, and go on.
//!
//! A failed disk ends a process ([`Instance::handle_failed`](crate::Instance::handle_failed)): nobody knows what a restart finds.
//! A replicated journal does know. When another instance becomes the leader, the rows that were not confirmed are void, and
//! [`Instance::handle_lost`](crate::Instance::handle_lost) goes back, in place, to the data that are.
//!
//! | what | after a loss |
//! |---|---|
//! | replies that wait for a lost row, answers that no fiber has taken | the error [`OUTCOME_UNKNOWN`]: the request may have been done or not |
//! | fibers that wait until a lost row is durable | the same error, from [`Instance::is_durable`](crate::Instance::is_durable) |
//! | replies that wait for confirmed rows | leave as before, with what they say |
//! | connections, their log-ins and their queue sessions | stay. A connection whose user is not what it was (the user was made or changed by a lost row) is closed |
//! | waiting takes and puts | go on waiting, in their order, if their tube is in the confirmed data; else the error |
//! | long calls, long SELECTs | the error |
//! | programs that run | go on; an open transaction is rolled back |
//! | taken tasks | in replica set mode (`in_replicaset`) owners are rows: who owns a task by a confirmed row goes on to own it. Otherwise only the process knows who owns what, and a lost row may have changed it: every taken task is released, as after a restart, and a late `ack` is refused |
//! | rows of temporary spaces | are gone, as after a restart |
//! | expiration tasks | begin anew from the rows of `_expiration`; transient ones have ended |
//! | a checkpoint | is given up, unless all its rows are with the writer of snapshots: these were durable |
//! | triggers of programs | stay with spaces of the same number and name |
//! | numbers of rows ([`Lsn`](crate::Lsn)) | are never given again, so nobody takes a later row for a lost one. LSNs of the vclock are |
//! | rows of masters | [`Instance::apply`](crate::Instance::apply) refuses what would leave a gap; the applier asks again from the present vclock |
//! | rows for replicas | are never lost: a relay sends durable rows only |
//!
//! The queue comes up on the confirmed data in steps of many turns, each with the budget of a source of deadlines
//! ([`crate::deadlines`]), and so the memory of the former data is given back. Until the queue is up whoever reads or
//! changes data is refused with `ER_LOADING`, whose text says that nothing was done; [`Instance::is_rebuilding`] tells.
//! Another loss meanwhile begins anew. The turn that hears of the loss costs O(connections + waiting calls + tubes).

use std::collections::HashSet;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::reply;
use lycosa_iproto::vclock::Vclock;
use lycosa_queue::Rebuilt;
use lycosa_store::{Store, user};

use crate::selects::LongSelects;
use crate::wire_error::named;
use crate::{Instance, Lsn, RequestId};

/// The name of the kind of error (field `name` of the error object) of a request whose rows were lost.
pub const OUTCOME_UNKNOWN: &str = "OUTCOME_UNKNOWN";

/// Data that a journal has confirmed.
#[derive(Debug)]
pub struct Confirmed {
    /// The data, ready to be used.
    pub store: Store,
    /// The clock of the last row in them.
    pub vclock: Vclock,
}

/// The answer to a request whose rows were lost.
pub(crate) fn outcome_unknown() -> ErrorObject {
    let message = "The outcome of this request is unknown: the journal has not confirmed its rows. \
                   Look whether it was done before it is repeated";
    named(ErrorObject::client(ErrorCode::SyncRollback, message), Some(OUTCOME_UNKNOWN))
}

impl Instance {
    /// The journal has lost every row behind `from`, a durable one, and goes on. The instance goes back to `confirmed`, the
    /// data at `from`; see the source of this module for what becomes of connections, sessions, waiting calls and tasks.
    pub fn handle_lost(&mut self, from: Lsn, confirmed: Confirmed, now: u64) {
        if self.data.conditions.has_failed() {
            return;
        }
        self.input(now, |instance| instance.go_back(from, confirmed));
    }

    fn go_back(&mut self, from: Lsn, confirmed: Confirmed) {
        let error = outcome_unknown();
        self.abandon_checkpoint("the journal has lost rows");
        let schema_version = self.data.store().schema_version();
        self.connections.lose(self.data.journaling.last_kept(from), |frame, out| {
            if !reply::is_push(frame) {
                reply::error(out, reply::sync_of(frame).unwrap_or(0), schema_version, &error);
            }
        });
        self.parked.void_answers(&error);
        let former = self.data.lose(from, confirmed, self.identity.replica_id);
        self.expiring.restart();
        self.selects = LongSelects::default();
        let waiting = self.data.queue().waiting_requests().collect();
        self.void_calls(&waiting);
        let is_same = |id| {
            let known = |store: &Store| store.user(id).map(|user| (user.name.clone(), user.hash2));
            matches!(id, user::GUEST | user::ADMIN) || known(&former) == known(self.data.store())
        };
        self.connections.break_off(|connection| !is_same(connection.user));
        self.await_replicas();
        self.connections.release(self.data.journaling.released());
        self.former.push(former.retire());
    }

    /// Whether the instance goes back to confirmed data, and refuses to read or change them until it has.
    pub fn is_rebuilding(&self) -> bool {
        self.data.conditions.is_rebuilding()
    }

    /// Lets the queue come up a little further on the confirmed data. Whether there is more to do.
    pub(crate) fn step_rebuild(&mut self, budget: usize) -> bool {
        if !self.data.conditions.is_rebuilding() {
            return false;
        }
        if let Some(Rebuilt { waiting, started }) = self.data.rebuild_step(budget) {
            if started.is_err() {
                self.deadlines.retry_queue(self.data.now);
            }
            self.void_calls(&waiting);
        }
        self.data.conditions.is_rebuilding()
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

    /// Answers the calls that wait for something which is lost: all but these, and those that wait for a snapshot.
    fn void_calls(&mut self, waiting: &HashSet<RequestId>) {
        let mut void = self.parked.waiting_calls();
        let kept = self.checkpoints.waiting_calls();
        void.retain(|request| !kept.contains(request) && !waiting.contains(request));
        for request in void {
            self.answer(request, Err(outcome_unknown()));
        }
    }
}
