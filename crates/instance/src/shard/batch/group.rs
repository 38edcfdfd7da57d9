//! The journal's batch in a group: reads that the majority confirms, rows of other leaders, and data that are replaced.
//!
//! A reply of the leader waits for a row of its own turn, because only an entry proposed after the reply was encoded proves
//! that this node still led then. A turn without new rows has a read instead. The read takes the number that the next row would
//! have had, so that replies wait for it as for a row. If a row comes in the same turn after all, it gets that number, and
//! nothing has to be read.
//!
//! Invariants: numbers ascend, and none is given twice; a read's number is durable when the majority has confirmed it and
//! every row before it is durable.

use lycosa_iproto::vclock::Vclock;
use lycosa_queue::Queue;
use lycosa_replication::applier::Row;
use lycosa_store::Store;

use super::Journaling;

impl Journaling {
    /// Whether replies without a new row wait for a read.
    pub(crate) fn confirm_reads(&mut self, are_confirmed: bool) {
        self.reads.are_confirmed = are_confirmed;
        self.is_plain = !self.has_failed && !are_confirmed;
    }

    /// Whether they do: this node leads a group.
    pub(crate) fn confirms_reads(&self) -> bool {
        self.reads.are_confirmed
    }

    #[cold]
    pub(super) fn awaited_beyond_rows(&self) -> u64 {
        if self.has_failed {
            return 0;
        }
        if !self.rows.is_empty() || !self.full.is_empty() {
            return self.lsn;
        }
        self.reads.wanted.set(self.lsn + 1);
        self.lsn + 1
    }

    /// The read of this turn, if replies wait for one.
    pub(crate) fn begin_read(&mut self) -> Option<u64> {
        let number = self.reads.wanted.take();
        if number <= self.lsn {
            // A row has taken the number.
            return None;
        }
        let before = self.closed;
        self.lsn = number;
        self.offset += 1;
        self.reads.pending.push_back((number, before));
        Some(number)
    }

    /// The majority has confirmed the read with that number, and so those before it.
    pub(crate) fn confirm_read(&mut self, number: u64) {
        self.reads.confirmed = self.reads.confirmed.max(number);
        self.advance_reads();
    }

    #[inline]
    pub(super) fn advance_reads(&mut self) {
        while let Some(&(number, before)) = self.reads.pending.front() {
            if number > self.durable {
                if number > self.reads.confirmed || before > self.confirmed {
                    break;
                }
                self.durable = number;
            }
            self.reads.pending.pop_front();
        }
    }

    /// Whether the data have rows that are not confirmed.
    pub(crate) fn has_unconfirmed_rows(&self) -> bool {
        self.confirmed < self.closed || !self.rows.is_empty() || !self.full.is_empty()
    }

    /// Takes over what the store has committed since the last call, with the changes of owners that belong to it: both stand in one
    /// batch, since a member that knew only one of them would give a task out twice.
    pub(crate) fn collect_with_owners(&mut self, store: &mut Store, queue: &mut Queue, now: u64) {
        if self.has_failed || self.is_suspended {
            queue.take_owner_changes(&mut Vec::new());
            return store.drain_committed(&mut |_| {});
        }
        if store.nothing_committed() {
            // The journal takes no batch without rows.
            self.add_nop(now);
        }
        let timestamp = now as f64 / 1e6;
        store.drain_committed(&mut |transaction| self.encode(&transaction, timestamp));
        queue.take_owner_changes(&mut self.owners);
        self.close_full();
    }

    /// Takes over the rows of an entry that the group has decided on, whose statements the store has committed. They are durable, and
    /// go into no batch. False: the store has committed more than these rows.
    pub(crate) fn collect_decided(&mut self, store: &mut Store, rows: &[Row<'_>], effects: usize) -> bool {
        let mut committed = 0;
        store.drain_committed(&mut |transaction| committed += transaction.len());
        self.follow(rows);
        (self.closed, self.confirmed, self.durable) = (self.lsn, self.lsn, self.lsn);
        committed == effects
    }

    /// Every row so far is durable, by instance too.
    pub(crate) fn decided(&mut self) {
        self.durable_vclock = self.vclock.clone();
    }

    /// Nothing that is not durable will be: what waits for it is void. Returns the last number that is kept.
    pub(crate) fn void(&mut self) -> u64 {
        let kept = self.durable;
        if kept < self.lsn {
            self.note_loss(kept);
        }
        self.lsn += 1;
        self.offset += 1;
        (self.closed, self.confirmed, self.durable) = (self.lsn, self.lsn, self.lsn);
        self.reads.pending.clear();
        self.reads.wanted.set(0);
        self.clear_rows();
        kept
    }

    /// The data wait for others: rows are dropped until [`Self::restore`]. To be called behind [`Self::void`].
    pub(crate) fn suspend(&mut self) {
        self.is_suspended = true;
    }

    /// The data are those of `vclock`, which may be ahead of everything before.
    pub(crate) fn restore(&mut self, vclock: Vclock) {
        self.void();
        self.is_suspended = false;
        self.lsn = self.lsn.max(vclock.signature());
        self.offset = self.lsn - vclock.signature();
        (self.closed, self.confirmed, self.durable) = (self.lsn, self.lsn, self.lsn);
        self.durable_vclock = vclock.clone();
        self.vclock = vclock;
        self.bump_system_version();
    }
}
