//! Receiving the log: whole transactions, in order, none twice.

use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::row::{RowBody, RowHeader};
use lycosa_iproto::vclock::{VCLOCK_MAX, Vclock};
use uuid::Uuid;

use super::request::Subscription;
use crate::disconnect_timeout;
use crate::stream::{self, Message, PREFIX, StreamError};

/// One row of a transaction.
pub type Row<'a> = (RowHeader, RowBody<'a>);

/// What came of a piece of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    /// Whether the master wants to hear from this instance: it has sent a heartbeat, or has just answered.
    pub wants_ack: bool,
    /// Transactions that were handed over.
    pub transactions: u64,
}

/// A follower's progress.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// What the master had when it answered the SUBSCRIBE; None before that.
    pub master_at_start: Option<Vclock>,
    /// When the master was heard last, in microseconds since the epoch.
    pub heard_at: u64,
    /// Microseconds between the making of the last row, by the master's clock, and its arrival, by this one's. Heartbeats
    /// count as rows.
    pub lag: u64,
    /// The master's number in `_cluster`; 0 before it has answered.
    pub master_id: u32,
    /// Whether the master takes no writes once it hears of a later term. A Tarantool does not say so.
    pub honors_terms: bool,
}

/// A master that sends its log.
#[derive(Debug)]
pub struct Follower {
    peer: Uuid,
    cluster: Uuid,
    progress: Progress,
    incoming: Vec<u8>,
    /// Frames of an unfinished transaction at the start of `incoming` that were looked at already, and its tsn.
    scanned: usize,
    open: Option<(u32, u64)>,
}

impl Follower {
    pub(super) fn new(peer: Uuid, subscription: &Subscription, incoming: Vec<u8>) -> Self {
        let progress =
            Progress { master_at_start: None, heard_at: 0, lag: 0, master_id: 0, honors_terms: false };
        Self { peer, cluster: subscription.cluster, progress, incoming, scanned: 0, open: None }
    }

    /// The master.
    #[must_use]
    pub fn peer(&self) -> Uuid {
        self.peer
    }

    /// The progress.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Whether the master has been silent for too long. `timeout` is the period of its heartbeats, in microseconds.
    #[must_use]
    pub fn is_dead(&self, timeout: u64, now: u64) -> bool {
        now >= self.progress.heard_at.saturating_add(disconnect_timeout(timeout))
    }

    /// The stream begins to be followed at `now`.
    pub fn start(&mut self, now: u64) {
        self.progress.heard_at = now;
    }

    /// Takes bytes of the master and hands each complete transaction to `apply`. A transaction may have `limit` bytes.
    ///
    /// # Errors
    /// The master refuses or sends bytes that are no log; errors of `apply`. The stream cannot be used any more.
    pub fn receive<E: From<StreamError>>(
        &mut self,
        bytes: &[u8],
        limit: usize,
        now: u64,
        apply: &mut dyn FnMut(&[Row<'_>]) -> Result<(), E>,
    ) -> Result<Received, E> {
        self.incoming.extend_from_slice(bytes);
        let incoming = std::mem::take(&mut self.incoming);
        let (received, done) = self.take(&incoming, limit, now, apply)?;
        self.incoming = incoming;
        self.incoming.drain(..done);
        Ok(received)
    }

    /// The transactions in `bytes`; also how many bytes are done with.
    fn take<E: From<StreamError>>(
        &mut self,
        bytes: &[u8],
        limit: usize,
        now: u64,
        apply: &mut dyn FnMut(&[Row<'_>]) -> Result<(), E>,
    ) -> Result<(Received, usize), E> {
        let mut received = Received::default();
        let mut rows = Vec::new();
        // Where the open transaction begins, and where the next frame does.
        let (mut begin, mut at) = (0, self.scanned);
        loop {
            let (content, consumed) = match frame::split(&bytes[at..], limit).map_err(StreamError::from)? {
                Split::NeedMore(_) => break,
                Split::Frame { content, consumed } => (content, consumed),
            };
            at += consumed;
            if at - begin > limit {
                let text = format!("it has more than {limit} bytes");
                return Err(StreamError::Transaction(text).into());
            }
            match stream::decode(content)? {
                Message::Ok(header, body) => self.answered(&header, *body)?,
                Message::Heartbeat(header) => self.heard(&header, now),
                Message::Row(header, _) if !header.is_commit => {
                    self.continues(&header)?;
                    continue;
                }
                Message::Row(header, body) => {
                    self.continues(&header)?;
                    self.heard(&header, now);
                    self.open = None;
                    rows.clear();
                    reread(&bytes[begin..at - consumed], limit, &mut rows)?;
                    rows.push((header, body));
                    apply(&rows)?;
                    received.transactions += 1;
                    begin = at;
                    continue;
                }
            }
            if self.open.is_some() {
                return Err(StreamError::Transaction("something else stands in its middle".into()).into());
            }
            received.wants_ack = true;
            begin = at;
        }
        self.scanned = at - begin;
        Ok((received, begin))
    }

    /// A row must belong to the transaction that is open.
    fn continues(&mut self, header: &RowHeader) -> Result<(), StreamError> {
        check_origin(header)?;
        let transaction = (header.replica_id, header.tsn);
        if *self.open.get_or_insert(transaction) != transaction {
            let text = format!("LSN {} begins before the one before it has ended", header.lsn);
            return Err(StreamError::Transaction(text));
        }
        Ok(())
    }

    fn answered(&mut self, header: &RowHeader, body: stream::OkBody) -> Result<(), StreamError> {
        let missing = |field| StreamError::Missing { request: "SUBSCRIBE", field };
        let vclock = body.vclock.ok_or_else(|| missing("vclock"))?;
        if let Some(theirs) = body.cluster.filter(|&theirs| theirs != self.cluster) {
            return Err(StreamError::Transaction(format!(
                "the master is of replica set {theirs}, this instance of {}",
                self.cluster
            )));
        }
        self.progress.master_at_start = Some(vclock.replicated());
        self.progress.master_id = header.replica_id;
        self.progress.honors_terms = body.honors_terms;
        Ok(())
    }

    fn heard(&mut self, header: &RowHeader, now: u64) {
        self.progress.heard_at = now;
        let made = header.timestamp * 1e6;
        self.progress.lag = if made > 0.0 { (now as f64 - made).max(0.0) as u64 } else { 0 };
    }
}

/// Refuses a row that no master sends: one of an instance that cannot exist, or of a group. A row of group 1 is local to
/// the instance that made it. Journaled as it came it would count in component 0 of this instance's clock after a restart,
/// and would go to no replica.
pub(super) fn check_origin(header: &RowHeader) -> Result<(), StreamError> {
    let RowHeader { replica_id, group_id, lsn, .. } = *header;
    if replica_id == 0 || replica_id as usize >= VCLOCK_MAX {
        return Err(StreamError::Transaction(format!("a row comes from instance {replica_id}")));
    }
    if group_id != 0 {
        let text = format!(
            "the row of LSN {lsn} of instance {replica_id} is of group {group_id}, which never leaves it"
        );
        return Err(StreamError::Transaction(text));
    }
    Ok(())
}

/// The rows of the frames in `bytes`, which were read before.
fn reread<'a>(bytes: &'a [u8], limit: usize, rows: &mut Vec<Row<'a>>) -> Result<(), StreamError> {
    let mut rest = bytes;
    while rest.len() > PREFIX {
        let Split::Frame { content, consumed } = frame::split(rest, limit)? else { break };
        if let Message::Row(header, body) = stream::decode(content)? {
            rows.push((header, body));
        }
        rest = &rest[consumed..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::row::encode_row;
    use proptest::prelude::*;

    use super::*;
    use crate::transcript::Transcript;

    const LIMIT: usize = 1 << 20;

    fn follower() -> Follower {
        let cluster = Uuid::parse_str("f41503bb-357c-40a6-9cbd-13ed9c154af9").expect("a UUID");
        let subscription = Subscription {
            cluster,
            instance: Uuid::from_u128(3),
            vclock: Vclock::new(),
            version: 0,
            is_anonymous: false,
            filter: Vec::new(),
            lineage: None,
        };
        Follower::new(Uuid::from_u128(1), &subscription, Vec::new())
    }

    fn follow(follower: &mut Follower, bytes: &[u8]) -> Result<Vec<Vec<u64>>, StreamError> {
        let mut transactions = Vec::new();
        let mut apply = |rows: &[Row<'_>]| -> Result<(), StreamError> {
            transactions.push(rows.iter().map(|(header, _)| header.lsn).collect());
            Ok(())
        };
        follower.receive(bytes, LIMIT, 2_000_000_000_000_000, &mut apply)?;
        Ok(transactions)
    }

    #[test]
    fn a_recorded_log_in_pieces_of_any_size() {
        let stream =
            Transcript::read("20-replication-join.json").stream_from("vclock answer with cluster uuid");
        for size in [1, 3, 64, stream.len()] {
            let mut follower = follower();
            let mut transactions = Vec::new();
            for piece in stream.chunks(size) {
                transactions.extend(follow(&mut follower, piece).expect("a log"));
            }
            let expected: Vec<Vec<u64>> = vec![vec![26], vec![27, 28], vec![29, 30]];
            assert_eq!(transactions[..3], expected);
            assert_eq!(transactions[3..], (31..=39).map(|lsn| vec![lsn]).collect::<Vec<_>>());
            let start = follower.progress().master_at_start.clone().expect("the master has answered");
            assert_eq!(start.to_string(), "{1: 25}");
            assert!(follower.progress().lag > 0);
        }
    }

    #[test]
    fn silence_ends_a_stream() {
        let mut follower = follower();
        follower.start(1000);
        assert!(!follower.is_dead(100, 1399));
        assert!(follower.is_dead(100, 1400));
    }

    fn row(out: &mut Vec<u8>, header: RowHeader) {
        stream::frame(out, |out| encode_row(out, &header, &RowBody::Nop));
    }

    #[test]
    fn broken_transactions_are_refused() {
        let open = |replica_id, lsn, tsn| RowHeader {
            replica_id,
            group_id: 0,
            lsn,
            timestamp: 1.0,
            tsn,
            is_commit: false,
        };
        let mut other = Vec::new();
        row(&mut other, open(1, 5, 5));
        row(&mut other, open(1, 6, 6));
        assert!(matches!(follow(&mut follower(), &other), Err(StreamError::Transaction(_))));
        let mut interrupted = Vec::new();
        row(&mut interrupted, open(1, 5, 5));
        stream::heartbeat(&mut interrupted, 1, 1.0);
        assert!(matches!(follow(&mut follower(), &interrupted), Err(StreamError::Transaction(_))));
        for replica_id in [0, 32] {
            let mut nobody = Vec::new();
            row(&mut nobody, RowHeader { replica_id, ..RowHeader::single(1, 5, 1.0) });
            assert!(matches!(follow(&mut follower(), &nobody), Err(StreamError::Transaction(_))));
        }
        for group_id in [1, 2, u32::MAX] {
            let mut local = Vec::new();
            row(&mut local, RowHeader { group_id, ..RowHeader::single(2, 5, 1.0) });
            let refused = follow(&mut follower(), &local).expect_err("a row of a local space").to_string();
            assert!(refused.contains(&format!("of group {group_id}")), "{refused}");
        }
        let mut long = Vec::new();
        (0..200_000).for_each(|place| row(&mut long, open(1, 5 + place, 5)));
        assert!(matches!(follow(&mut follower(), &long), Err(StreamError::Transaction(_))));
        let mut foreign = Vec::new();
        stream::subscribed(&mut foreign, 1, &Vclock::new(), Uuid::from_u128(9), true);
        let refused = follow(&mut follower(), &foreign).expect_err("another replica set").to_string();
        assert!(refused.contains("replica set 00000000-0000-0000-0000-000000000009"), "{refused}");
    }

    proptest! {
        #[test]
        fn transactions_arrive_whole_however_the_bytes_do(
            sizes in prop::collection::vec(1_u64..5, 1..20),
            cuts in prop::collection::vec(1_usize..50, 1..40),
        ) {
            let (mut bytes, mut expected, mut lsn) = (Vec::new(), Vec::new(), 1);
            for size in sizes {
                let tsn = lsn;
                for place in 1..=size {
                    let is_commit = place == size;
                    row(&mut bytes, RowHeader { replica_id: 2, group_id: 0, lsn, timestamp: 1.0, tsn, is_commit });
                    lsn += 1;
                }
                expected.push((tsn..lsn).collect::<Vec<_>>());
                stream::heartbeat(&mut bytes, 2, 1.0);
            }
            let mut follower = follower();
            let mut transactions = Vec::new();
            let mut rest = bytes.as_slice();
            for cut in cuts.into_iter().cycle() {
                let (piece, tail) = rest.split_at(cut.min(rest.len()));
                transactions.extend(follow(&mut follower, piece).expect("a log"));
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(transactions, expected);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = follow(&mut follower(), &bytes);
        }
    }
}
