//! One subscribed replica: its rows, its heartbeats, and its progress.

use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::row::RowError;
use lycosa_iproto::vclock::Vclock;
use uuid::Uuid;

use super::request::SubscribeRequest;
use super::snapshot::LogRows;
use super::window::Framed;
use crate::disconnect_timeout;
use crate::lineage::{Confirmation, Divergence, Epoch, Lineage, TermMark};
use crate::stream::{self, Message, StreamError, span};

/// Longest frame that a replica sends: an ACK with all components of a vclock takes some 400 bytes.
const MAX_ACK: usize = 4096;

/// What a relay has to do about time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulse {
    /// Nothing before that moment.
    Wait(u64),
    /// A heartbeat was appended.
    Beat,
    /// The replica has been silent for too long: close the connection.
    Dead,
}

/// The log for one replica. Times are microseconds since the epoch.
#[derive(Debug)]
pub struct Relay {
    replica: Uuid,
    id: u32,
    log: LogRows,
    acknowledged: Vclock,
    /// The latest term that the replica has named.
    term: TermMark,
    sent_at: u64,
    heard_at: u64,
    incoming: Vec<u8>,
}

/// What a master's own rows are, for what its replicas say of them.
#[derive(Debug, Clone, Copy)]
pub struct OwnRows<'a> {
    /// The master's number in `_cluster`.
    pub id: u32,
    /// The master's vclock of durable rows.
    pub durable: &'a Vclock,
    /// The last epoch of its rows, if there is one.
    pub epoch: Option<Epoch>,
}

impl OwnRows<'_> {
    /// Whether a replica can have `vclock`. Without a confirmation only its LSNs tell.
    fn check(&self, vclock: &Vclock, confirmation: Option<&Confirmation>) -> Result<(), Divergence> {
        let (own, theirs) = (self.durable.get(self.id), vclock.get(self.id));
        match (self.epoch, confirmation) {
            (Some(epoch), Some(confirmation)) if confirmation.epoch != epoch.mark && theirs > epoch.begin => {
                Err(Divergence::Parted { id: self.id, common: epoch.begin })
            }
            _ if self.id != 0 && theirs > own => Err(Divergence::Ahead { id: self.id, own, theirs }),
            _ => Ok(()),
        }
    }
}

impl Relay {
    /// A relay for the replica with number `id` (0 for an anonymous one), which has just asked. `own` is this
    /// instance's vclock now: rows of the replica itself that it has lost are sent back to it.
    #[must_use]
    pub fn new(request: &SubscribeRequest, id: u32, own: &Vclock, now: u64) -> Self {
        let acknowledged = request.vclock.replicated();
        let mut position = acknowledged.clone();
        if id != 0 && position.get(id) >= own.get(id) {
            // What the replica makes from now on it need not be told.
            position.set(id, u64::MAX).expect("the number of a registered replica is below the limit");
        }
        Self {
            replica: request.replica,
            id,
            log: LogRows::new(position, request.filter),
            acknowledged,
            term: request.lineage.as_ref().map_or_else(TermMark::default, Lineage::term_mark),
            sent_at: 0,
            heard_at: now,
            incoming: Vec::new(),
        }
    }

    /// The replica.
    #[must_use]
    pub fn replica(&self) -> Uuid {
        self.replica
    }

    /// Its number, 0 if it is anonymous.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Up to where the replica has made rows durable.
    #[must_use]
    pub fn acknowledged(&self) -> &Vclock {
        &self.acknowledged
    }

    /// The latest term that the replica has heard of, as far as it has said.
    #[must_use]
    pub fn term(&self) -> TermMark {
        self.term
    }

    /// When the replica was heard last.
    #[must_use]
    pub fn heard_at(&self) -> u64 {
        self.heard_at
    }

    /// The part to be sent from files, perhaps on another thread; [`Self::resume`] takes it back.
    #[must_use]
    pub fn log_rows(&self) -> LogRows {
        self.log.clone()
    }

    /// What [`Self::log_rows`] has given out was sent.
    pub fn resume(&mut self, log: LogRows, now: u64) {
        self.log = log;
        self.sent_at = now;
    }

    /// Appends the frames of the rows in `rows`, whole transactions of the log, that the replica does not have and
    /// wants.
    ///
    /// # Errors
    /// Bytes that are no row.
    pub fn send_log(&mut self, rows: &[u8], now: u64, out: &mut Vec<u8>) -> Result<(), RowError> {
        let before = out.len();
        self.log.send(rows, out)?;
        if out.len() > before {
            self.sent_at = now;
        }
        Ok(())
    }

    /// Whether the replica gets a batch of the window as it is.
    #[must_use]
    pub fn takes_whole(&self, batch: &Framed) -> bool {
        !self.log.filter().excludes_any(batch.origins())
            && batch.origin_ids().all(|id| self.log.position().get(id) <= batch.before().get(id))
    }

    /// The replica was sent a batch as it is ([`Self::takes_whole`]).
    pub fn sent_whole(&mut self, batch: &Framed, now: u64) {
        for id in batch.origin_ids() {
            self.log
                .position_mut()
                .set(id, batch.after().get(id))
                .expect("the id of a component is below the limit");
        }
        self.sent_at = now;
    }

    /// Appends those frames of a batch that the replica does not have and wants.
    ///
    /// # Errors
    /// Bytes that are no row.
    pub fn send_part(&mut self, batch: &Framed, now: u64, out: &mut Vec<u8>) -> Result<(), RowError> {
        let mut rest = batch.bytes();
        while rest.len() >= stream::PREFIX {
            let row = span(&rest[stream::PREFIX..]).map_err(|_| RowError::Header)?;
            let (frame, tail) = rest.split_at(stream::PREFIX + row.length);
            rest = tail;
            let is_known = row.lsn <= self.log.position().get(row.replica_id);
            if !is_known && !self.log.filter().excludes(row.replica_id) {
                self.log.position_mut().set(row.replica_id, row.lsn).map_err(|_| RowError::Header)?;
                out.extend_from_slice(frame);
                self.sent_at = now;
            }
        }
        Ok(())
    }

    /// Takes a message of the replica. Returns whether its clock has grown.
    ///
    /// # Errors
    /// Anything but ACKs; an ACK of rows that the master does not have ([`StreamError::Parted`]). What came before it counts.
    pub fn receive(&mut self, bytes: &[u8], own: &OwnRows<'_>, now: u64) -> Result<bool, StreamError> {
        self.incoming.extend_from_slice(bytes);
        let mut done = 0;
        let mut advanced = false;
        loop {
            match frame::split(&self.incoming[done..], MAX_ACK)? {
                Split::NeedMore(_) => break,
                Split::Frame { content, consumed } => {
                    done += consumed;
                    let Message::Ok(_, body) = stream::decode(content)? else {
                        return Err(StreamError::Unexpected { kind: 0, expected: "an ACK" });
                    };
                    let vclock =
                        body.vclock.ok_or(StreamError::Missing { request: "ACK", field: "vclock" })?;
                    let vclock = vclock.replicated();
                    if let Some(confirmation) = &body.confirmation {
                        self.term = self.term.max(confirmation.term);
                    }
                    own.check(&vclock, body.confirmation.as_ref())?;
                    advanced |= vclock != self.acknowledged;
                    self.acknowledged = vclock;
                    self.heard_at = now;
                }
            }
        }
        self.incoming.drain(..done);
        Ok(advanced)
    }

    /// Appends a heartbeat of instance `own` if nothing was sent for a period of `timeout` microseconds. The first one
    /// is due at once.
    pub fn pulse(&mut self, own: u32, timeout: u64, now: u64, out: &mut Vec<u8>) -> Pulse {
        let dead_at = self.heard_at.saturating_add(disconnect_timeout(timeout));
        if now >= dead_at {
            return Pulse::Dead;
        }
        let due = if self.sent_at == 0 { now } else { self.sent_at.saturating_add(timeout) };
        if now < due {
            return Pulse::Wait(due.min(dead_at));
        }
        stream::heartbeat(out, own, now as f64 / 1e6);
        self.sent_at = now;
        Pulse::Beat
    }
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::row::{RowBody, RowHeader, encode_row};
    use proptest::prelude::*;

    use super::super::request::IdFilter;
    use super::super::window::Window;
    use super::*;

    fn clock(components: &[(u32, u64)]) -> Vclock {
        let mut clock = Vclock::new();
        components.iter().for_each(|&(id, lsn)| clock.set(id, lsn).expect("an id below 32"));
        clock
    }

    fn request(vclock: Vclock, filter: IdFilter) -> SubscribeRequest {
        SubscribeRequest {
            replica: Uuid::from_u128(7),
            cluster: None,
            vclock,
            is_anonymous: false,
            filter,
            lineage: None,
        }
    }

    fn put(rows: &mut Vec<u8>, replica_id: u32, lsn: u64) {
        let group_id = u32::from(replica_id == 0);
        let header = RowHeader { replica_id, group_id, lsn, timestamp: 1.5, tsn: lsn, is_commit: true };
        encode_row(rows, &header, &RowBody::Insert { space: 512, tuple: &[0x91, 0x01] });
    }

    fn sent(out: &[u8]) -> Vec<(u32, u64)> {
        let mut rows = Vec::new();
        let mut rest = out;
        while let Ok(Split::Frame { content, consumed }) = frame::split(rest, 1 << 20) {
            if let Ok(Message::Row(header, _)) = stream::decode(content) {
                rows.push((header.replica_id, header.lsn));
            }
            rest = &rest[consumed..];
        }
        rows
    }

    #[test]
    fn a_replica_gets_neither_its_own_rows_nor_local_ones() {
        let mut rows = Vec::new();
        [(1, 5), (0, 1), (2, 3), (3, 1), (1, 6)].iter().for_each(|&(id, lsn)| put(&mut rows, id, lsn));
        let own = clock(&[(1, 4), (2, 2)]);
        let subscribe = request(clock(&[(1, 5), (2, 2)]), IdFilter::default().with(3));
        let mut relay = Relay::new(&subscribe, 2, &own, 10);
        let mut out = Vec::new();
        relay.send_log(&rows, 11, &mut out).expect("rows");
        assert_eq!(sent(&out), [(1, 6)]);
    }

    #[test]
    fn a_replica_that_lost_rows_of_its_own_gets_them_back() {
        let mut rows = Vec::new();
        (1..=4).for_each(|lsn| put(&mut rows, 2, lsn));
        let mut relay = Relay::new(&request(clock(&[(2, 2)]), IdFilter::default()), 2, &clock(&[(2, 4)]), 10);
        let mut out = Vec::new();
        relay.send_log(&rows, 11, &mut out).expect("rows");
        assert_eq!(sent(&out), [(2, 3), (2, 4)]);
    }

    #[test]
    fn acknowledgements_move_the_replica_and_silence_ends_it() {
        let mut relay = Relay::new(&request(Vclock::new(), IdFilter::default()), 2, &Vclock::new(), 1000);
        let durable = clock(&[(1, 3)]);
        let own = OwnRows { id: 1, durable: &durable, epoch: None };
        let mut out = Vec::new();
        assert_eq!(relay.pulse(1, 100, 1000, &mut out), Pulse::Beat);
        assert_eq!(relay.pulse(1, 100, 1050, &mut out), Pulse::Wait(1100));
        assert_eq!(relay.pulse(1, 100, 1100, &mut out), Pulse::Beat);
        let mut ack = Vec::new();
        stream::vclock(&mut ack, &clock(&[(0, 9), (1, 3)]));
        assert_eq!(relay.receive(&ack[..4], &own, 1150), Ok(false));
        assert_eq!(relay.heard_at(), 1000);
        assert_eq!(relay.receive(&ack[4..], &own, 1150), Ok(true));
        assert_eq!((relay.acknowledged().to_string(), relay.heard_at()), ("{1: 3}".to_owned(), 1150));
        assert_eq!(relay.receive(&ack, &own, 1160), Ok(false));
        out.clear();
        assert_eq!(relay.pulse(1, 100, 1560, &mut out), Pulse::Dead);
        assert!(out.is_empty());
        let mut odd = Vec::new();
        stream::heartbeat(&mut odd, 2, 1.0);
        assert!(relay.receive(&odd, &own, 1170).is_err());
        assert!(relay.receive(&[0xce, 0xff, 0, 0, 0], &own, 1170).is_err());
    }

    #[test]
    fn an_ack_counts_rows_and_not_numbers() {
        let durable = clock(&[(1, 30)]);
        let own = OwnRows { id: 1, durable: &durable, epoch: Some(Epoch { mark: 7, begin: 20 }) };
        let told = |acknowledged: &[(u32, u64)], confirmation: Option<(u64, u64)>| {
            let mut relay = Relay::new(&request(Vclock::new(), IdFilter::default()), 2, &durable, 1);
            let mut ack = Vec::new();
            match confirmation {
                None => stream::vclock(&mut ack, &clock(acknowledged)),
                Some((number, epoch)) => {
                    let confirmation = Confirmation { term: TermMark { number, owner: 2 }, epoch };
                    stream::acknowledgement(&mut ack, &clock(acknowledged), &confirmation);
                }
            }
            let taken = relay.receive(&ack, &own, 2);
            (taken, relay.acknowledged().get(1), relay.term().number)
        };
        assert_eq!(told(&[(1, 30)], Some((0, 7))), (Ok(true), 30, 0));
        assert_eq!(told(&[(1, 20)], Some((3, 6))), (Ok(true), 20, 3));
        let parted = StreamError::Parted(Divergence::Parted { id: 1, common: 20 });
        assert_eq!(told(&[(1, 21)], Some((4, 6))), (Err(parted), 0, 4));
        let ahead = StreamError::Parted(Divergence::Ahead { id: 1, own: 30, theirs: 31 });
        assert_eq!(told(&[(1, 31)], Some((0, 7))), (Err(ahead.clone()), 0, 0));
        assert_eq!(told(&[(1, 31)], None), (Err(ahead), 0, 0));
        assert_eq!(told(&[(1, 30), (3, 99)], None), (Ok(true), 30, 0));
    }

    proptest! {
        /// Each wanted row is sent once and in order, for any batches and any reads.
        #[test]
        fn the_window_and_the_files_send_the_same(
            origins in prop::collection::vec(0_u32..4, 1..60),
            cuts in prop::collection::vec(1_usize..7, 1..30),
            filtered in 0_u32..5,
            seen in prop::collection::vec(0_u64..20, 4),
        ) {
            let mut lsns = [0_u64; 4];
            let mut rows = Vec::new();
            let mut window = Window::new(Vclock::new(), usize::MAX);
            let mut batch = Vec::new();
            let mut cuts = cuts.into_iter().cycle();
            let mut left = cuts.next().unwrap_or(1);
            let total = origins.len();
            for (position, origin) in origins.into_iter().enumerate() {
                lsns[origin as usize] += 1;
                put(&mut batch, origin, lsns[origin as usize]);
                left -= 1;
                if left == 0 || position + 1 == total {
                    let after = clock(&[(0, lsns[0]), (1, lsns[1]), (2, lsns[2]), (3, lsns[3])]);
                    window.push(&batch, &after).expect("rows");
                    rows.append(&mut batch);
                    left = cuts.next().unwrap_or(1);
                }
            }
            let own = window.end().clone();
            let filter = IdFilter::default().with(if filtered == 4 { 31 } else { filtered });
            let known = clock(&[(1, seen[1].min(lsns[1])), (2, seen[2].min(lsns[2])), (3, seen[3].min(lsns[3]))]);
            let wanted = request(known, filter);
            let (mut by_log, mut by_window) = (Vec::new(), Vec::new());
            Relay::new(&wanted, 3, &own, 1).send_log(&rows, 1, &mut by_log).expect("rows");
            let mut relay = Relay::new(&wanted, 3, &own, 1);
            let mut cursor = window.first();
            while let Some(batch) = window.get(cursor) {
                if relay.takes_whole(batch) {
                    by_window.extend_from_slice(batch.bytes());
                    relay.sent_whole(batch, 1);
                } else {
                    relay.send_part(batch, 1, &mut by_window).expect("rows");
                }
                cursor = cursor.next();
            }
            prop_assert_eq!(sent(&by_window), sent(&by_log));
            prop_assert!(sent(&by_log).iter().all(|&(id, lsn)| id != 0 && !filter.excludes(id) && lsn > wanted.vclock.get(id)));
        }
    }
}
