//! A shard as a member of a group: it leads or follows, and loads its data anew.

use super::Followed;
use crate::Result;
use crate::shard::Shard;
use crate::shard::admission::leads_no_more_error;
use lycosa_replication::applier::Row;

impl Shard {
    /// The shard is a member: it takes no writes until it leads.
    pub(crate) fn join_group(&mut self, now: u64) {
        self.data.conditions.set(|facts| facts.is_member = true);
        self.data.bookkeep().queue.join_group();
        self.set_read_only(true, now);
    }

    /// Says whether changes of owners are noted for the batch, in place of rows that are logged: every member knows them.
    pub(crate) fn note_owners(&mut self, notes_owners: bool) {
        self.data.note_owners(notes_owners);
    }

    /// The leader's time is `time` at `now`, both in microseconds since the epoch.
    pub(crate) fn hear_leader_time(&mut self, time: u64, now: u64) {
        self.leader_time.ahead = time.cast_signed() - now.cast_signed();
    }

    /// By how many microseconds the leader's time was ahead of this member's, when the leader told it last; 0 on the leader.
    pub(crate) fn leader_ahead(&self) -> i64 {
        if self.is_read_only() { self.leader_time.ahead } else { 0 }
    }

    /// The member leads: it takes writes. Returns by how many microseconds the leader before was ahead of `now`.
    pub(crate) fn lead(&mut self, now: u64) -> i64 {
        let ahead = self.leader_time.ahead_of(now);
        // The own time becomes the group's.
        self.leader_time.ahead = 0;
        self.data.now = now.saturating_add_signed(ahead);
        self.data.journaling.confirm_reads(true);
        self.set_read_only(false, self.data.now);
        ahead
    }

    /// The member is about to hand over, or goes on to lead after all: meanwhile it takes no writes, and confirms reads and the
    /// earlier writes still.
    pub(crate) fn hand_over(&mut self, is_handing_over: bool, now: u64) {
        self.data.conditions.set(|facts| facts.is_handing_over = is_handing_over);
        if !is_handing_over {
            self.data.bookkeep().queue.keep_temporary();
        }
        self.update_read_only(now);
    }

    /// Refuses a request that a member has passed on to this one, unless this one leads. The member makes the request again at the
    /// leader: it may have connected while this one led, and have asked when it led no more.
    #[inline]
    pub(crate) fn check_leads(&self) -> Result<()> {
        if self.data.journaling.confirms_reads() { Ok(()) } else { Err(leads_no_more_error()) }
    }

    /// The member follows: it takes no writes.
    pub(crate) fn stop_leading(&mut self, now: u64) -> Followed {
        let has_led = self.data.journaling.confirms_reads();
        self.data.journaling.confirm_reads(false);
        self.data.conditions.set(|facts| facts.is_handing_over = false);
        self.set_read_only(true, now);
        // What the queue does about the change of its role is as void as the rows before.
        match self.data.journaling.has_unconfirmed_rows() {
            true => Followed::Ahead,
            false if has_led => Followed::Clean,
            false => Followed::Unchanged,
        }
    }

    /// The data give way to others: until then they are neither read nor changed, and give their memory back in steps.
    pub(crate) fn suspend(&mut self) {
        self.data.journaling.suspend();
        self.data.conditions.set(|facts| facts.is_suspended = true);
        self.data.upkeep().vacate();
    }

    /// Whether the data are suspended and have given their memory back.
    pub(crate) fn is_vacated(&self) -> bool {
        self.data.conditions.facts().is_suspended
            && self.former.is_empty()
            && !self.data.store().has_garbage()
    }

    /// Applies the transactions of an entry that the group has decided on.
    pub(crate) fn apply_entry(
        &mut self,
        transactions: &[Vec<Row<'_>>],
        owners: &[u8],
        now: u64,
    ) -> Result<()> {
        let version = self.data.journaling.system_version();
        for rows in transactions {
            self.data.apply_decided(rows)?;
        }
        if !owners.is_empty() {
            self.data.follow_owners(owners)?;
        }
        self.data.journaling.decided();
        if let Some((header, _)) = transactions.last().and_then(|rows| rows.last()) {
            self.leader_time.last = self.leader_time.last.max((header.timestamp * 1e6) as u64);
        }
        self.await_replicas();
        if self.data.journaling.system_version() != version {
            self.update_read_only(now);
        }
        Ok(())
    }
}
