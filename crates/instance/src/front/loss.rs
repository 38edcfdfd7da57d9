//! Loss of rows: a replicated journal drops rows that were not confirmed, and goes on.
//!
//! A failed disk ends a process ([`Instance::handle_failed`](crate::Instance::handle_failed)): the outcome of a restart is unknown.
//! A replicated journal does know. When another instance becomes the leader, the rows that were not confirmed are void, and
//! [`Instance::handle_lost`](crate::Instance::handle_lost) goes back, in place, to the data that are.
//!
//! | what | after a loss |
//! |---|---|
//! | replies that wait for a lost row, answers that no fiber has taken | the error [`OUTCOME_UNKNOWN`](crate::shard::wire_error::OUTCOME_UNKNOWN): the request may have been done or not |
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
//! | numbers of rows ([`Lsn`](crate::Lsn)) | are never given again, so no caller takes a later row for a lost one. LSNs of the vclock are |
//! | rows of masters | [`Instance::apply`](crate::Instance::apply) refuses what would leave a gap; the applier asks again from the present vclock |
//! | rows for replicas | are never lost: a relay sends durable rows only |
//!
//! The queue comes up on the confirmed data in steps of many turns, each with the budget of a source of deadlines
//! ([`crate::front::deadlines`]), and so the memory of the former data is given back. Until the queue is up a client that reads or
//! changes data is refused with `ER_LOADING`, whose text says that nothing was done; [`Instance::is_rebuilding`] tells.
//! Another loss meanwhile begins anew. The turn that hears of the loss costs O(connections + waiting calls + tubes).

use std::collections::HashSet;

use lycosa_store::UserId;

use crate::front::Front;
use crate::front::selects::LongSelects;
use crate::front::void_reply;
use crate::shard::Shard;
use crate::shard::data::Confirmed;
use crate::shard::loss::outcome_unknown;
use crate::{Instance, Lsn, RequestId};

impl Instance {
    /// The journal has lost every row behind `from`, a durable one, and goes on. The instance goes back to `confirmed`, the
    /// data at `from`; see the source of this module for what becomes of connections, sessions, waiting calls and tasks.
    pub fn handle_lost(&mut self, from: Lsn, confirmed: Confirmed, now: u64) {
        if !self.shard.conditions().has_failed() {
            self.input(now, |instance| instance.go_back(from, confirmed));
        }
    }

    fn go_back(&mut self, from: Lsn, confirmed: Confirmed) {
        let error = outcome_unknown();
        self.measures.journal_errors += 1;
        self.settle(|instance| instance.shard.abandon_checkpoint("the journal has lost rows"));
        let schema_version = self.store().schema_version();
        self.front.connections.lose(self.shard.journaling().last_kept(from), |frame, out| {
            void_reply::replace(frame, schema_version, &error, out);
        });
        self.front.parked.void_answers(&error);
        self.front.selects = LongSelects::default();
        self.replace_data(|shard, users| shard.lose(from, confirmed, users));
    }

    /// Replaces the data, and breaks off the connections of users that others have replaced.
    pub(crate) fn replace_data(
        &mut self,
        replace: impl FnOnce(&mut Shard, HashSet<UserId>) -> HashSet<UserId>,
    ) {
        let users = self.front.connections.iter().map(|connection| connection.user).collect();
        let changed = self.settle(|instance| replace(&mut instance.shard, users));
        self.front.connections.break_off(|connection| changed.contains(&connection.user));
        self.front.connections.release(self.shard.journaling().released());
    }

    /// Whether the instance goes back to confirmed data, and refuses to read or change them until it has.
    pub fn is_rebuilding(&self) -> bool {
        self.shard.conditions().facts().is_rebuilding
    }
}

impl Front {
    /// Answers the calls that wait for something which is lost: all but these.
    pub(crate) fn void_calls(&mut self, shard: &Shard, kept: &HashSet<RequestId>) {
        let mut void = self.parked.waiting_calls();
        void.retain(|request| !kept.contains(request));
        void.into_iter().for_each(|request| self.answer(shard, request, Err(outcome_unknown())));
    }
}
