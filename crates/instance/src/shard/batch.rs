//! Batches: the rows of a turn, encoded once, for the journal.
//!
//! A row's stamp is its [`RowHeader`]: who made it, as which of its rows, when, and where its transaction begins and
//! ends. Rows of this instance get the next stamp here; rows of another keep the one that they came with.

use std::collections::VecDeque;

use lycosa_iproto::keys;
use lycosa_iproto::row::{self, RowBody, RowHeader};
use lycosa_iproto::vclock::Vclock;
use lycosa_replication::applier::Row;
use lycosa_store::{Committed, Effect, Statement, Store, system};

use reads::Reads;

/// Rows that become durable together: whole transactions, in the order of their commit.
#[derive(Debug)]
pub struct Batch {
    /// Rows as the journal stores them, back to back.
    pub rows: Vec<u8>,
    /// The offset in `rows` after each transaction.
    pub ends: Vec<u32>,
    /// In a group, changes of owners that belong to these rows: [`OwnerChanges`](lycosa_queue::OwnerChanges).
    pub owners: Vec<u8>,
    /// The vclock after the last row.
    pub vclock: Vclock,
    /// The LSN before the first row: where the batch before this one ended.
    pub previous: u64,
    /// The LSN of the last row. What to give to [`Instance::handle_durable`](crate::Instance::handle_durable).
    pub lsn: u64,
    /// A snapshot is taken at `vclock`: the journal file ends with this batch, which may be empty.
    pub ends_file: bool,
}

/// The allocations of a batch that was written, for the next one.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Of [`Batch::rows`].
    pub rows: Vec<u8>,
    /// Of [`Batch::ends`].
    pub ends: Vec<u32>,
}

/// Buffers that grew beyond this are not kept for the next batch.
const KEPT_CAPACITY: usize = 4 << 20;

/// Bytes that a batch takes in a journal file beside its rows, at most: the header of a block, a share of the file's own.
const BATCH_OVERHEAD: u64 = 32;

/// The size in bytes at which a batch gets [`KEPT_CAPACITY`] at once. The doublings of a buffer that grows step by step would
/// copy megabytes in the middle of a turn: 32 MiB take 10 ms.
const LARGE_BATCH: usize = 64 << 10;

/// The size in bytes at which a batch takes no further transactions: later ones go into the next batch. The rows of a slice
/// of work still fit into its buffer.
const FULL_BATCH: usize = 3 << 20;

/// Losses of which the numbers of the rows are remembered. A caller that waits for one hears of the loss in the same turn.
const MAX_LOSSES: usize = 64;

/// Collects committed transactions, numbers their rows and encodes them.
///
/// Every row that the store committed gets the next LSN of its counter: `vclock[replica_id]`, or `vclock[0]` for local
/// rows. Replies are parked on the row's number (see [`Lsn`](crate::Lsn)), which grows
/// with every row and also when rows are lost.
#[derive(Debug, Default)]
pub(crate) struct Journaling {
    replica_id: u32,
    vclock: Vclock,
    /// The number of the last row: the signature, and [`Self::offset`].
    lsn: u64,
    /// Where the last batch ended.
    closed: u64,
    /// The last row that the journal has confirmed.
    confirmed: u64,
    /// Numbers of rows that were lost; none is given twice.
    offset: u64,
    /// The numbers of lost rows: behind the first, up to the second. Of the latest losses.
    losses: VecDeque<(u64, u64)>,
    /// Rows of each instance up to here were here once, and some were lost.
    lost_vclock: Vclock,
    durable: u64,
    /// The last row that released replies may have seen: durable, on replicas too if they count.
    released: u64,
    /// The durable rows, by instance.
    durable_vclock: Vclock,
    /// Batches that were taken and are not durable yet: the LSN and the clock after each.
    taken: VecDeque<(u64, Vclock)>,
    /// Grows with every row of a system space: caches of the schema and of privileges are out of date then.
    system_version: u64,
    rows: Vec<u8>,
    ends: Vec<u32>,
    /// Changes of owners that belong to the rows.
    owners: Vec<u8>,
    /// Batches that were full before one was taken, the oldest first.
    full: VecDeque<Batch>,
    /// Bytes of rows in `full`.
    full_bytes: usize,
    spare: Buffers,
    /// Bytes that all batches so far take in the journal, at most.
    closed_bytes: u64,
    /// The journal takes no more rows.
    has_failed: bool,
    /// The data wait for others to take their place ([`Self::suspend`]): rows are dropped.
    is_suspended: bool,
    /// Replies wait for new rows and nothing else: no group confirms reads, and the journal has not failed.
    is_plain: bool,
    reads: Reads,
}

impl Journaling {
    pub(crate) fn new(replica_id: u32, vclock: Vclock) -> Self {
        let signature = vclock.signature();
        Journaling {
            replica_id,
            durable_vclock: vclock.clone(),
            vclock,
            lsn: signature,
            closed: signature,
            confirmed: signature,
            durable: signature,
            released: signature,
            system_version: 1,
            is_plain: true,
            ..Self::default()
        }
    }

    /// The number of the last row.
    pub(crate) fn lsn(&self) -> u64 {
        self.lsn
    }

    /// The sum of the vclock's counters: the names of files are made of it. As long as nothing was lost it is the number of
    /// the last row too.
    pub(crate) fn signature(&self) -> u64 {
        self.lsn - self.offset
    }

    /// The signature up to which replies may leave.
    pub(crate) fn released(&self) -> u64 {
        self.released
    }

    /// Replies may leave that have seen rows up to `lsn`.
    pub(crate) fn set_released(&mut self, lsn: u64) {
        self.released = lsn;
    }

    /// The signature up to which rows are durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// What a reply that is encoded now waits for: every row so far, because it may have seen any of them. Nothing once
    /// the journal has failed, when no reply shows data any more. In a group's leader, a row of this turn or a read.
    #[inline]
    pub(crate) fn awaited(&self) -> u64 {
        if self.is_plain { self.lsn } else { self.awaited_beyond_rows() }
    }

    /// The last row before the batch that is being filled: the rows behind it become durable together. No row if something
    /// else than rows is waited for.
    #[inline]
    pub(crate) fn batch(&self) -> u64 {
        if self.is_plain { self.closed } else { u64::MAX }
    }

    /// Whether every row is durable, or never will be.
    pub(crate) fn is_settled(&self) -> bool {
        self.has_failed || self.durable == self.lsn
    }

    /// Grows with every change of the schema or of privileges.
    pub(crate) fn system_version(&self) -> u64 {
        self.system_version
    }

    pub(crate) fn vclock(&self) -> &Vclock {
        &self.vclock
    }

    /// Rows that no batch has taken yet, in bytes.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.full_bytes + self.rows.len()
    }

    /// Bytes that all rows so far take in the journal, at most.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.closed_bytes + self.rows.len() as u64
    }

    /// Ends the journal file behind the rows so far: the next row goes into another one.
    pub(crate) fn end_file(&mut self, is_member: bool) {
        if self.has_failed {
            return;
        }
        if is_member {
            // Nothing but the end of this batch says that the group's state of the snapshot is known.
            self.lsn += 1;
            self.offset += 1;
        }
        let mut batch = self.close_batch();
        batch.ends_file = true;
        self.full_bytes += batch.rows.len();
        self.full.push_back(batch);
    }

    /// The durable rows, by instance.
    pub(crate) fn durable_vclock(&self) -> &Vclock {
        &self.durable_vclock
    }

    /// The clock after the batch that ended with `lsn`, if that was taken and is not known to be durable.
    pub(crate) fn taken_vclock(&self, lsn: u64) -> Option<&Vclock> {
        self.taken.iter().find(|(taken, _)| *taken == lsn).map(|(_, vclock)| vclock)
    }

    /// Adds a row that changes nothing, so that the vclock is one that there was not before.
    pub(crate) fn add_nop(&mut self, now: u64) {
        self.encode_row(false, &RowBody::Nop, &mut None, true, now as f64 / 1e6);
        self.end_transaction();
    }

    /// Declares what derives from the schema or from privileges out of date.
    pub(crate) fn bump_system_version(&mut self) {
        self.system_version += 1;
    }

    /// The journal takes no more rows: forgets the rows that wait for it, and all later ones.
    pub(crate) fn fail(&mut self) {
        self.has_failed = true;
        self.is_plain = false;
        self.rows = Vec::new();
        self.ends = Vec::new();
        self.owners = Vec::new();
        self.full.clear();
        self.full_bytes = 0;
    }

    /// Every row behind `from` is lost; `vclock` is the clock at `from`. The lost rows' numbers stay theirs, so a caller that
    /// still waits for one of them cannot take a later row for it.
    pub(crate) fn lose(&mut self, from: u64, vclock: Vclock) {
        assert!(
            self.confirmed <= from && from <= self.lsn,
            "durable rows are not lost, nor rows that never were"
        );
        for (id, lsn) in self.vclock.iter() {
            let lost = self.lost_vclock.get(id).max(lsn);
            self.lost_vclock.set(id, lost).expect("the id is one of a vclock");
        }
        self.note_loss(self.last_kept(from));
        self.lsn += 1;
        self.offset = self.lsn - vclock.signature();
        self.durable = self.lsn;
        self.confirmed = from;
        self.durable_vclock = vclock.clone();
        self.vclock = vclock;
        self.closed = from;
        self.clear_rows();
        self.bump_system_version();
    }

    /// Notes that the rows behind that one are lost.
    fn note_loss(&mut self, kept: u64) {
        if self.losses.len() == MAX_LOSSES {
            self.losses.pop_front();
        }
        self.losses.push_back((kept, self.lsn));
    }

    /// Forgets all rows that are not durable.
    fn clear_rows(&mut self) {
        self.taken.clear();
        self.rows.clear();
        self.ends.clear();
        self.owners.clear();
        self.full.clear();
        self.full_bytes = 0;
    }

    /// The last number that is not lost when every row behind `from` is. After a loss the numbers go on behind a number that
    /// is no row's.
    pub(crate) fn last_kept(&self, from: u64) -> u64 {
        self.durable.max(from)
    }

    /// Whether the row with that number was lost.
    pub(crate) fn is_lost(&self, lsn: u64) -> bool {
        self.losses.iter().any(|&(from, until)| from < lsn && lsn <= until)
    }

    /// Whether rows between the last row of an instance here and its row `lsn` were lost here.
    pub(crate) fn has_gap_before(&self, id: u32, lsn: u64) -> bool {
        let known = self.vclock.get(id);
        known < self.lost_vclock.get(id) && lsn > known + 1
    }

    /// Takes over what the store has committed since the last call.
    pub(crate) fn collect(&mut self, store: &mut Store, now: u64) {
        if self.has_failed || self.is_suspended {
            return store.drain_committed(&mut |_| {});
        }
        let timestamp = now as f64 / 1e6;
        store.drain_committed(&mut |transaction| {
            self.encode(&transaction, timestamp);
            self.close_full();
        });
    }

    /// Takes over a transaction of another instance, whose rows are not known yet, with the stamps that it came with. The
    /// first `effects` that the store has committed are what these rows did; what follows is this instance's own.
    pub(crate) fn collect_foreign(&mut self, store: &mut Store, now: u64, rows: &[Row<'_>], effects: usize) {
        if self.has_failed {
            return store.drain_committed(&mut |_| {});
        }
        rows.iter().for_each(|(header, body)| row::encode_row(&mut self.rows, header, body));
        self.follow(rows);
        self.end_transaction();
        self.close_full();
        let (mut foreign, timestamp) = (effects, now as f64 / 1e6);
        store.drain_committed(&mut |transaction| {
            let passed = foreign.min(transaction.len());
            foreign -= passed;
            if let Some(own) = transaction.behind(passed) {
                self.encode_rarely(&own, timestamp);
                self.close_full();
            }
        });
    }

    /// Brings the clock up to rows of another instance.
    fn follow(&mut self, rows: &[Row<'_>]) {
        for (header, body) in rows {
            if body.space().is_some_and(|space| space <= system::MAX) {
                self.system_version += 1;
            }
            self.vclock.set(header.replica_id, header.lsn).expect("the caller has checked the ids");
        }
        self.lsn = self.vclock.signature() + self.offset;
    }

    /// As [`Self::encode`], for the rare callers.
    #[inline(never)]
    fn encode_rarely(&mut self, transaction: &Committed<'_>, timestamp: f64) {
        self.encode(transaction, timestamp);
    }

    #[expect(clippy::inline_always, reason = "measured: each row comes here")]
    #[inline(always)]
    fn encode(&mut self, transaction: &Committed<'_>, timestamp: f64) {
        match transaction.single() {
            Some(effect) => self.encode_one(&effect, timestamp),
            None => self.encode_many(transaction, timestamp),
        }
        self.end_transaction();
    }

    /// Closes the batch if it is full.
    #[inline]
    fn close_full(&mut self) {
        if self.rows.len() >= LARGE_BATCH {
            self.close_or_grow();
        }
    }

    #[cold]
    fn close_or_grow(&mut self) {
        if self.rows.len() >= FULL_BATCH {
            let batch = self.close_batch();
            self.full_bytes += batch.rows.len();
            self.full.push_back(batch);
        } else if self.rows.capacity() < KEPT_CAPACITY {
            self.rows.reserve_exact(KEPT_CAPACITY - self.rows.len());
        }
    }

    /// Encodes a transaction of one row.
    #[expect(clippy::inline_always, reason = "measured: no statement is put together to be taken apart")]
    #[inline(always)]
    fn encode_one(&mut self, effect: &Effect<'_>, timestamp: f64) {
        let body = body(&effect.statement);
        if effect.local || effect.statement.space() <= system::MAX {
            return self.encode_effect(effect, &mut None, true, timestamp);
        }
        let replica_id = self.replica_id;
        let lsn = self.vclock.get(replica_id) + 1;
        self.vclock.set(replica_id, lsn).expect("replica ids are below the vclock's limit");
        self.lsn += 1;
        row::encode_single_row(&mut self.rows, replica_id, lsn, timestamp, &body);
    }

    #[inline(never)]
    fn encode_many(&mut self, transaction: &Committed<'_>, timestamp: f64) {
        let is_plain = |effect: Effect<'_>| !effect.local && effect.statement.space() > system::MAX;
        if transaction.effects().all(is_plain) {
            return self.encode_plain(transaction, timestamp);
        }
        let effects = transaction.effects();
        let all_local = transaction.effects().all(|effect| effect.local);
        let closing_nop = !all_local && transaction.effects().next_back().is_some_and(|effect| effect.local);
        let total = effects.len() + usize::from(closing_nop);
        let mut tsn = (!all_local).then(|| self.vclock.get(self.replica_id) + 1);
        for (position, effect) in effects.enumerate() {
            self.encode_effect(&effect, &mut tsn, position + 1 == total, timestamp);
        }
        if closing_nop {
            self.encode_row(false, &RowBody::Nop, &mut tsn, true, timestamp);
        }
    }

    /// Encodes a transaction whose rows are all replicated and about no system space, which moves counters once.
    fn encode_plain(&mut self, transaction: &Committed<'_>, timestamp: f64) {
        let replica_id = self.replica_id;
        let tsn = self.vclock.get(replica_id) + 1;
        let last = self.vclock.get(replica_id) + transaction.len() as u64;
        for (lsn, effect) in (tsn..).zip(transaction.effects()) {
            let header = RowHeader { replica_id, group_id: 0, lsn, timestamp, tsn, is_commit: lsn == last };
            row::encode_row(&mut self.rows, &header, &body(&effect.statement));
        }
        self.vclock.set(replica_id, last).expect("replica ids are below the vclock's limit");
        self.lsn += transaction.len() as u64;
    }

    fn encode_effect(&mut self, effect: &Effect<'_>, tsn: &mut Option<u64>, is_commit: bool, timestamp: f64) {
        if effect.statement.space() <= system::MAX {
            self.system_version += 1;
        }
        self.encode_row(effect.local, &body(&effect.statement), tsn, is_commit, timestamp);
    }

    #[inline]
    fn end_transaction(&mut self) {
        let end = u32::try_from(self.rows.len());
        self.ends.push(end.expect("a batch is full long before 4 GiB, and so is what one request changes"));
    }

    #[inline]
    fn encode_row(
        &mut self,
        local: bool,
        body: &RowBody<'_>,
        tsn: &mut Option<u64>,
        is_commit: bool,
        timestamp: f64,
    ) {
        let counter = if local { 0 } else { self.replica_id };
        let lsn = self.vclock.get(counter) + 1;
        self.vclock.set(counter, lsn).expect("replica ids are below the vclock's limit");
        self.lsn += 1;
        let header = RowHeader {
            replica_id: counter,
            group_id: if local { keys::GROUP_LOCAL } else { 0 },
            lsn,
            timestamp,
            tsn: *tsn.get_or_insert(lsn),
            is_commit,
        };
        row::encode_row(&mut self.rows, &header, body);
    }

    /// Whether the next batch has rows and is not closed yet.
    pub(crate) fn has_open_batch(&self) -> bool {
        self.full.is_empty() && !self.rows.is_empty()
    }

    /// The rows collected so far, if there are any, as far as they fit a batch.
    pub(crate) fn take(&mut self) -> Option<Batch> {
        let batch = match self.full.pop_front() {
            Some(batch) => {
                self.full_bytes -= batch.rows.len();
                batch
            }
            None if self.rows.is_empty() => return None,
            None => self.close_batch(),
        };
        self.taken.push_back((batch.lsn, batch.vclock.clone()));
        Some(batch)
    }

    fn close_batch(&mut self) -> Batch {
        self.closed_bytes += self.rows.len() as u64 + BATCH_OVERHEAD;
        let spare = std::mem::take(&mut self.spare);
        // The next batch has about as many changes.
        let owners = Vec::with_capacity(self.owners.len());
        Batch {
            rows: std::mem::replace(&mut self.rows, spare.rows),
            ends: std::mem::replace(&mut self.ends, spare.ends),
            owners: std::mem::replace(&mut self.owners, owners),
            vclock: self.vclock.clone(),
            previous: std::mem::replace(&mut self.closed, self.lsn),
            lsn: self.lsn,
            ends_file: false,
        }
    }

    /// Everything up to `lsn` is durable.
    pub(crate) fn mark_durable(&mut self, lsn: u64, mut buffers: Buffers) {
        assert!(
            self.durable <= lsn && lsn <= self.lsn,
            "rows become durable in order and only once they exist"
        );
        self.durable = lsn;
        self.confirmed = lsn;
        self.advance_reads();
        while let Some((_, vclock)) = self.taken.pop_front_if(|(taken, _)| *taken <= lsn) {
            self.durable_vclock = vclock;
        }
        if buffers.rows.capacity() <= KEPT_CAPACITY {
            buffers.rows.clear();
            buffers.ends.clear();
            self.spare = buffers;
        }
    }
}

#[inline]
fn body<'a>(statement: &Statement<'a>) -> RowBody<'a> {
    match *statement {
        Statement::Insert { space, tuple } => RowBody::Insert { space, tuple },
        Statement::Replace { space, tuple } => RowBody::Replace { space, tuple },
        Statement::Update { space, index, key, operations, base } => {
            RowBody::Update { space, index, base, key, operations }
        }
        Statement::Upsert { space, tuple, operations, base } => {
            RowBody::Upsert { space, base, tuple, operations }
        }
        Statement::Delete { space, index, key } => RowBody::Delete { space, index, key },
    }
}

/// The change of data that a row is, if it is one.
pub fn statement<'a>(body: &RowBody<'a>) -> Option<Statement<'a>> {
    Some(match *body {
        RowBody::Insert { space, tuple } => Statement::Insert { space, tuple },
        RowBody::Replace { space, tuple } => Statement::Replace { space, tuple },
        RowBody::Update { space, index, base, key, operations } => {
            Statement::Update { space, index, key, operations, base }
        }
        RowBody::Upsert { space, base, tuple, operations } => {
            Statement::Upsert { space, tuple, operations, base }
        }
        RowBody::Delete { space, index, key } => Statement::Delete { space, index, key },
        RowBody::Nop | RowBody::Confirm { .. } | RowBody::Rollback { .. } | RowBody::Unknown { .. } => {
            return None;
        }
    })
}

mod group;
mod reads;
#[cfg(test)]
mod tests;
