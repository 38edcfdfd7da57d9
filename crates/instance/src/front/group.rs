//! An instance as a member of a group: news of the group's journal, and their effect on connections and calls.
//!
//! | what | then |
//! |---|---|
//! | the node leads | the instance takes writes and its queue comes up. A reply waits for a row of its turn; without one, for a read that the majority confirms |
//! | it is about to hand over | it takes no more writes; replies leave once their rows are confirmed |
//! | it stops leading | replies that wait for either become the error [`OUTCOME_UNKNOWN`](crate::OUTCOME_UNKNOWN); open transactions and long SELECTs end. Data with unconfirmed rows are suspended |
//! | data are suspended | nothing is read or changed; requests are refused with `ER_LOADING`. The memory of all tuples is given back in steps, before others are loaded |
//! | data are restored | as after a loss of rows (`front/loss.rs`): connections and log-ins stay, the queue comes up in portions |
//! | an entry of another leader | is applied with the stamps that it carries, and is in no batch |
//!
//! Invariants: a node that was stopped answers nothing from before, since no majority confirms its reads; an entry is applied
//! to data that hold everything before it.
//!
//! Absent: the node itself, and forwarding of requests to the leader.

use lycosa_replication::applier::Row;

use crate::front::void_reply;
use crate::shard::data::Confirmed;
use crate::shard::group::{Election, Followed};
use crate::shard::loss::outcome_unknown;
use crate::{Instance, Lsn, Result};

impl Instance {
    /// The instance is a member of a group: it takes no writes until [`Self::handle_leads`]. To be called before anything
    /// connects.
    pub fn join_group(&mut self, now: u64) {
        self.input(now, |instance| instance.shard.join_group(now));
    }

    /// The node leads its group, and the data hold every entry of earlier leaders: the instance takes writes. Returns by how
    /// many microseconds the time of the leader before is ahead of `now`. The caller's time goes on from there.
    pub fn handle_leads(&mut self, now: u64) -> i64 {
        self.input(now, |instance| instance.shard.lead(now))
    }

    /// The node is about to hand over: writes are refused, and earlier ones are confirmed still. Either [`Self::handle_goes_on`] or
    /// [`Self::handle_follows`] is next.
    pub fn handle_hands_over(&mut self, now: u64) {
        self.input(now, |instance| instance.shard.hand_over(true, now));
    }

    /// The successor does not lead: this node goes on, and takes writes again.
    pub fn handle_goes_on(&mut self, now: u64) {
        self.input(now, |instance| instance.shard.hand_over(false, now));
    }

    /// The node does not lead its group, or not any more. If [`Followed::Ahead`] comes of it, [`Self::handle_restored`] is to
    /// follow.
    pub fn handle_follows(&mut self, now: u64) -> Followed {
        self.input(now, |instance| {
            let followed = instance.shard.stop_leading(now);
            match followed {
                Followed::Unchanged => {}
                Followed::Clean => {
                    instance.settle(|instance| instance.shard.abandon_checkpoint("another node leads"));
                    instance.void_replies();
                }
                Followed::Ahead => instance.suspend(),
            }
            followed
        })
    }

    forward! { shard:
        /// The state of the election has changed, for `box.info.election` and the metrics.
        pub fn set_election(&mut self, election: Election);
        /// The state of the election. `None`: the instance is no member of a group.
        pub fn election(&self) -> Option<&Election>;
        /// The leader of the group has told its time, which is `time` at `now`; both in microseconds since the epoch. A member that
        /// leads after it goes on with this time. Without it, as where all members have just started, the own time counts.
        pub fn hear_leader_time(&mut self, time: u64, now: u64);
        /// Says whether changes of owners are noted for the batch ([`Batch::owners`](crate::Batch::owners)), in place of rows that are
        /// logged: every member of the group knows them. To be called before [`Self::handle_leads`], and when the group rises.
        pub fn note_owners(&mut self, notes_owners: bool);
        /// At the end of a turn: the number of a read that the turn's replies wait for, if they have seen no new row. The
        /// journal is to confirm it ([`Self::handle_read`]).
        pub fn begin_read(&mut self) -> Option<Lsn>;
        /// Whether the data give way to others and have given their memory back: others may be loaded.
        pub fn is_vacated(&self) -> bool;
    }

    /// The data give way to others, which [`Self::handle_restored`] brings.
    pub fn handle_suspended(&mut self, now: u64) {
        self.input(now, Self::suspend);
    }

    fn suspend(&mut self) {
        self.measures.journal_errors += 1;
        self.settle(|instance| instance.shard.abandon_checkpoint("the data are loaded anew"));
        self.void_replies();
        self.shard.suspend();
    }

    /// What waits for a row or a read that is not confirmed has an unknown outcome, but for a request that was not executed.
    fn void_replies(&mut self) {
        let error = outcome_unknown();
        let schema_version = self.store().schema_version();
        let kept = self.shard.void_rows();
        self.front.connections.lose(kept, |frame, out| {
            void_reply::replace(frame, schema_version, &error, out);
        });
        self.front.parked.void_answers(&error);
        for request in std::mem::take(&mut self.front.selects).requests() {
            self.front.answer(&self.shard, request, Err(error.clone()));
        }
        self.front.connections.release(self.shard.journaling().released());
    }

    /// The data are these now: as after a loss of rows, but perhaps ahead of everything before.
    pub fn handle_restored(&mut self, confirmed: Confirmed, now: u64) {
        if self.shard.conditions().has_failed() {
            return;
        }
        self.input(now, |instance| {
            instance.settle(|instance| instance.shard.abandon_checkpoint("the data are loaded anew"));
            instance.void_replies();
            instance.replace_data(|shard, users| shard.restore(confirmed, users));
        });
    }

    /// Applies an entry that the group has decided on: its transactions in order, each with the stamps that it carries, and the
    /// changes of owners that belong to them.
    ///
    /// # Errors
    /// The data do not take it, so they are not those of the group: the node must leave its service.
    pub fn apply_entry(&mut self, transactions: &[Vec<Row<'_>>], owners: &[u8], now: u64) -> Result<()> {
        let applied = self.input(now, |instance| instance.shard.apply_entry(transactions, owners, now));
        self.front.release_replies(&self.shard);
        applied
    }

    /// The majority has confirmed that this node led when [`Self::begin_read`] returned `lsn`.
    pub fn handle_read(&mut self, lsn: Lsn) {
        self.shard.confirm_read(lsn);
        self.front.release_replies(&self.shard);
    }

    /// Whether the data give way to others, which are not loaded yet.
    pub fn is_suspended(&self) -> bool {
        self.shard.conditions().facts().is_suspended
    }
}
