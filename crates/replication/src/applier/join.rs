//! Receiving all data.
//!
//! ```text
//! JOIN            OK {vclock}, rows of a snapshot, OK {vclock}, rows of the log, OK {vclock}
//! FETCH_SNAPSHOT  OK {vclock}, rows of a snapshot, OK {vclock}
//! REGISTER                                                      rows of the log, OK {vclock}
//! ```

use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting::Version;
use lycosa_iproto::row::{RowBody, RowHeader};
use lycosa_iproto::vclock::Vclock;
use uuid::Uuid;

use super::follower::check_origin;
use super::handshake::{Ballot, Session};
use super::request;
use crate::stream::{self, Message, StreamError};

/// With or without a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// This instance becomes a member of the replica set.
    Named(Uuid),
    /// It stays anonymous.
    Anonymous,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The clock of the snapshot is to come.
    Start,
    Snapshot,
    Log,
    Done,
}

/// What came.
#[derive(Debug, Clone, PartialEq)]
pub enum JoinEvent<'a> {
    /// The master has begun; the clock of its snapshot.
    StartOfSnapshot(Vclock),
    /// A row of the snapshot.
    Snapshot(RowBody<'a>),
    /// The snapshot is complete; its clock. Rows of the log follow.
    EndOfSnapshot(Vclock),
    /// A row of the log, with its origin's header.
    Row(RowHeader, RowBody<'a>),
    /// All rows up to this clock have arrived.
    End(Vclock),
}

/// A master that sends all data.
#[derive(Debug)]
pub struct Join {
    kind: JoinKind,
    stage: Stage,
    vclock: Vclock,
    peer: Uuid,
    version: Option<Version>,
    ballot: Box<Ballot>,
    incoming: Vec<u8>,
    done: usize,
}

impl Session {
    /// Asks for all data, with or without a number in the replica set.
    #[must_use]
    pub fn join(self, kind: JoinKind, out: &mut Vec<u8>) -> Join {
        match kind {
            JoinKind::Named(instance) => request::join(out, instance),
            JoinKind::Anonymous => request::fetch_snapshot(out),
        }
        Join::new(kind, self)
    }

    /// Asks for a number, as an anonymous replica at `vclock`.
    #[must_use]
    pub fn register(self, instance: Uuid, vclock: &Vclock, out: &mut Vec<u8>) -> Join {
        request::register(out, instance, vclock);
        Join::registering(instance, self, vclock)
    }
}

impl Join {
    fn new(kind: JoinKind, session: Session) -> Self {
        let (peer, version, ballot, incoming) = session.into_incoming();
        Self { kind, stage: Stage::Start, vclock: Vclock::new(), peer, version, ballot, incoming, done: 0 }
    }

    fn registering(instance: Uuid, session: Session, vclock: &Vclock) -> Self {
        let join = Self::new(JoinKind::Named(instance), session);
        Self { stage: Stage::Log, vclock: vclock.replicated(), ..join }
    }

    /// Takes bytes of the master.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.incoming.drain(..self.done);
        self.done = 0;
        self.incoming.extend_from_slice(bytes);
    }

    /// The next row; None: more bytes are needed, or all rows have arrived. A row may have `limit` bytes.
    ///
    /// # Errors
    /// The master refuses, or sends what does not belong into a JOIN.
    pub fn next(&mut self, limit: usize) -> Result<Option<JoinEvent<'_>>, StreamError> {
        if self.stage == Stage::Done {
            return Ok(None);
        }
        let Split::Frame { content, consumed } = frame::split(&self.incoming[self.done..], limit)? else {
            return Ok(None);
        };
        self.done += consumed;
        let message = stream::decode(content)?;
        match (self.stage, message) {
            (Stage::Start, Message::Ok(_, body)) => {
                self.vclock = body.vclock.ok_or(StreamError::Missing { request: "JOIN", field: "vclock" })?;
                self.stage = Stage::Snapshot;
                Ok(Some(JoinEvent::StartOfSnapshot(self.vclock.replicated())))
            }
            (Stage::Snapshot, Message::Row(_, body)) => Ok(Some(JoinEvent::Snapshot(body))),
            (Stage::Snapshot, Message::Ok(..)) if self.kind == JoinKind::Anonymous => {
                self.stage = Stage::Done;
                Ok(Some(JoinEvent::End(self.vclock.replicated())))
            }
            (Stage::Snapshot, Message::Ok(..)) => {
                self.stage = Stage::Log;
                Ok(Some(JoinEvent::EndOfSnapshot(self.vclock.replicated())))
            }
            (Stage::Log, Message::Row(header, body)) => {
                check_origin(&header)?;
                self.vclock
                    .set(header.replica_id, header.lsn)
                    .map_err(|error| StreamError::Transaction(error.to_string()))?;
                Ok(Some(JoinEvent::Row(header, body)))
            }
            (Stage::Log, Message::Ok(..)) => {
                self.stage = Stage::Done;
                Ok(Some(JoinEvent::End(self.vclock.replicated())))
            }
            (Stage::Start, Message::Row(_, body)) => {
                Err(StreamError::Unexpected { kind: body.kind(), expected: "the vclock of a snapshot" })
            }
            (_, Message::Heartbeat(_)) | (Stage::Done, _) => {
                Err(StreamError::Unexpected { kind: 0, expected: "a row" })
            }
        }
    }

    /// The master takes requests again, once all rows have arrived.
    ///
    /// # Panics
    /// If the last event was not [`JoinEvent::End`].
    #[must_use]
    pub fn into_session(mut self) -> Session {
        assert!(self.stage == Stage::Done, "a JOIN is over when its last OK has come");
        let rest = self.incoming.split_off(self.done);
        Session::resumed(self.peer, self.version, self.ballot, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::handshake::{Handshake, Step};
    use super::*;
    use crate::transcript::Transcript;

    const LIMIT: usize = 1 << 20;

    fn session(transcript: &Transcript) -> Session {
        let bytes =
            ["greeting", "ballot", ""].map(|note| transcript.of_master(note).expect("recorded")).concat();
        let uri = "repl:repl-secret@h:1".parse().expect("an address");
        match Handshake::new(uri).receive(&bytes, &mut Vec::new()).expect("a master") {
            Step::Done(session) => session,
            Step::More(_) => panic!("the handshake did not end"),
        }
    }

    #[test]
    fn a_recorded_join_in_pieces_of_any_size() {
        let transcript = Transcript::read("20-replication-join.json");
        let stream = transcript.stream_from("vclock answer");
        for size in [1, 7, 4096, stream.len()] {
            let mut out = Vec::new();
            let instance = Uuid::parse_str("903c193a-566d-49be-bd4b-f6416a074827").expect("a UUID");
            let mut join = session(&transcript).join(JoinKind::Named(instance), &mut out);
            assert_eq!(out, transcript.of_replica("JOIN").expect("recorded"));
            let (mut snapshot, mut log, mut ends) = (0, Vec::new(), Vec::new());
            for piece in stream.chunks(size) {
                join.receive(piece);
                while let Some(event) = join.next(LIMIT).expect("a JOIN") {
                    match event {
                        JoinEvent::StartOfSnapshot(vclock) => assert_eq!(vclock.to_string(), "{1: 24}"),
                        JoinEvent::Snapshot(_) => snapshot += 1,
                        JoinEvent::EndOfSnapshot(vclock) | JoinEvent::End(vclock) => {
                            ends.push(vclock.to_string());
                        }
                        JoinEvent::Row(header, _) => log.push((header.replica_id, header.lsn)),
                    }
                }
                if ends.len() == 2 {
                    break;
                }
            }
            assert_eq!(
                (snapshot, log, ends),
                (534, vec![(1, 25)], vec!["{1: 24}".to_owned(), "{1: 25}".to_owned()])
            );
            let _ = join.into_session();
        }
    }

    #[test]
    fn a_recorded_anonymous_join_has_no_log() {
        let transcript = Transcript::read("22-replication-anonymous.json");
        let mut out = Vec::new();
        let mut join = session(&transcript).join(JoinKind::Anonymous, &mut out);
        assert_eq!(out, transcript.of_replica("FETCH_SNAPSHOT").expect("recorded"));
        join.receive(&transcript.stream_from("vclock answer"));
        let mut rows = 0;
        loop {
            match join.next(LIMIT).expect("a JOIN").expect("the recording is complete") {
                JoinEvent::StartOfSnapshot(_) => {}
                JoinEvent::Snapshot(_) => rows += 1,
                JoinEvent::End(vclock) => break assert_eq!(vclock.to_string(), "{1: 42}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(rows, 538);
    }

    #[test]
    fn what_does_not_belong_into_a_join_ends_it() {
        let transcript = Transcript::read("20-replication-join.json");
        let mut frame = Vec::new();
        stream::heartbeat(&mut frame, 1, 1.0);
        let mut join = session(&transcript).join(JoinKind::Anonymous, &mut Vec::new());
        join.receive(&frame);
        assert!(matches!(join.next(LIMIT), Err(StreamError::Unexpected { .. })));
        let mut join = session(&transcript).join(JoinKind::Anonymous, &mut Vec::new());
        join.receive(transcript.of_master("row of space 272").expect("recorded"));
        assert!(matches!(join.next(LIMIT), Err(StreamError::Unexpected { kind: 2, .. })));
        let mut join = session(&transcript).join(JoinKind::Anonymous, &mut Vec::new());
        join.receive(&[0xce, 0x7f, 0xff, 0xff, 0xff]);
        assert!(matches!(join.next(LIMIT), Err(StreamError::Frame(_))));
    }

    /// Rows of the log that belong to no instance, or to a group, change no clock.
    #[test]
    fn rows_that_no_master_sends_are_refused() {
        let transcript = Transcript::read("20-replication-join.json");
        for (replica_id, group_id) in [(0, 0), (32, 0), (1, 1), (1, u32::MAX)] {
            let mut join = Join::registering(Uuid::from_u128(3), session(&transcript), &Vclock::new());
            let header = RowHeader { group_id, ..RowHeader::single(replica_id, 7, 1.0) };
            let mut bytes = Vec::new();
            stream::frame(&mut bytes, |out| lycosa_iproto::row::encode_row(out, &header, &RowBody::Nop));
            join.receive(&bytes);
            let refused = join.next(LIMIT).map(drop);
            assert!(
                matches!(refused, Err(StreamError::Transaction(_))),
                "{replica_id} {group_id}: {refused:?}"
            );
        }
    }
}
