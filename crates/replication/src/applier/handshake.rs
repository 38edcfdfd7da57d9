//! The handshake: from an open socket to a peer that knows the replica's user.
//!
//! The peer greets; this side sends VOTE, and AUTH unless it is `guest`; the peer answers both.

use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting::{GREETING_SIZE, Greeting, GreetingError, Version};
use lycosa_iproto::keys::{self, ballot};
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::vclock::Vclock;
use lycosa_tuple::mp::{MpError, Reader};
use uuid::Uuid;

use super::request;
use super::{Follower, Subscription};
use crate::lineage::TermMark;
use crate::stream::StreamError;
use crate::uri::{DEFAULT_USER, Uri};

/// Longest answer to VOTE or AUTH.
const MAX_ANSWER: usize = 64 << 10;

/// Why a peer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// It is no server of this protocol.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// It answers as no server does, or refuses.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl From<MpError> for HandshakeError {
    fn from(error: MpError) -> Self {
        Self::Stream(error.into())
    }
}

/// What a peer says about itself when it is asked for its vote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ballot {
    /// Whether it is configured read-only.
    pub is_read_only_configured: bool,
    /// Whether it takes no writes, for any reason.
    pub is_read_only: bool,
    /// What it has.
    pub vclock: Vclock,
    /// Where its oldest journal begins.
    pub oldest: Vclock,
    /// The latest term that it has heard of; the default one if it says nothing.
    pub term: TermMark,
}

impl Ballot {
    fn decode(body: &[u8]) -> Result<Self, StreamError> {
        let mut reader = Reader::new(body);
        let mut found = None;
        for _ in 0..reader.map()? {
            if reader.uint()? == u64::from(keys::BALLOT) {
                found = Some(Self::read(&mut reader)?);
            } else {
                reader.skip()?;
            }
        }
        found.ok_or(StreamError::Missing { request: "VOTE", field: "ballot" })
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, StreamError> {
        let mut read = Self::default();
        let vclock = |reader: &mut Reader<'_>| {
            Vclock::decode(reader).map_err(|_| StreamError::Missing { request: "VOTE", field: "vclock" })
        };
        for _ in 0..reader.map()? {
            match u8::try_from(reader.uint()?) {
                Ok(ballot::IS_READ_ONLY_CONFIGURED) => read.is_read_only_configured = reader.bool()?,
                Ok(ballot::IS_READ_ONLY) => read.is_read_only = reader.bool()?,
                Ok(ballot::VCLOCK) => read.vclock = vclock(reader)?,
                Ok(ballot::OLDEST_VCLOCK) => read.oldest = vclock(reader)?,
                Ok(ballot::TERM) => {
                    reader.array()?;
                    read.term = TermMark { number: reader.uint()?, owner: reader.uint()? as u32 };
                }
                _ => reader.skip()?,
            }
        }
        Ok(read)
    }
}

/// The next step.
#[derive(Debug)]
pub enum Step {
    /// More bytes of the peer.
    More(Handshake),
    /// The peer takes requests.
    Done(Session),
}

#[derive(Debug)]
enum Stage {
    Greeting,
    /// Answers that are still to come after the greeting: the ballot, then that to AUTH.
    Answers {
        greeting: Greeting,
        ballot: Option<Box<Ballot>>,
    },
}

/// A peer that was connected to and has to be asked who it is.
#[derive(Debug)]
pub struct Handshake {
    uri: Uri,
    stage: Stage,
    incoming: Vec<u8>,
}

impl Handshake {
    /// For a peer at that address; the account in it is used.
    #[must_use]
    pub fn new(uri: Uri) -> Self {
        Self { uri, stage: Stage::Greeting, incoming: Vec::new() }
    }

    /// The peer's first message, once it has arrived.
    #[must_use]
    pub fn greeting(&self) -> Option<&Greeting> {
        match &self.stage {
            Stage::Greeting => None,
            Stage::Answers { greeting, .. } => Some(greeting),
        }
    }

    fn authenticates(&self) -> bool {
        self.uri.user != DEFAULT_USER || !self.uri.password.is_empty()
    }

    /// Takes bytes of the peer; appends the reply.
    ///
    /// # Errors
    /// The peer is no server of this protocol, or refuses.
    pub fn receive(mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, HandshakeError> {
        self.incoming.extend_from_slice(bytes);
        if matches!(self.stage, Stage::Greeting) {
            let Some(first) = self.incoming.first_chunk::<GREETING_SIZE>() else {
                return Ok(Step::More(self));
            };
            let greeting = Greeting::decode(first)?;
            self.incoming.drain(..GREETING_SIZE);
            request::vote(out);
            if self.authenticates() {
                request::authenticate(out, &self.uri.user, &self.uri.password, &greeting.salt);
            }
            self.stage = Stage::Answers { greeting, ballot: None };
        }
        loop {
            let Split::Frame { content, consumed } =
                frame::split(&self.incoming, MAX_ANSWER).map_err(StreamError::from)?
            else {
                return Ok(Step::More(self));
            };
            let body = match reply::decode(content)?.content {
                Content::Ok { body, .. } => body.to_vec(),
                Content::Error(error) => return Err(StreamError::Refused(Box::new(error)).into()),
                Content::Push { .. } => {
                    return Err(
                        StreamError::Unexpected { kind: keys::CODE_PUSH, expected: "an answer" }.into()
                    );
                }
            };
            self.incoming.drain(..consumed);
            let is_last = !self.authenticates();
            let Stage::Answers { greeting, ballot } = &mut self.stage else {
                unreachable!("the greeting has been read above")
            };
            let session = |ballot: Box<Ballot>, incoming: Vec<u8>| Session {
                peer: greeting.uuid,
                version: Version::parse(&greeting.version),
                ballot,
                incoming,
            };
            match ballot.take() {
                None if is_last => {
                    return Ok(Step::Done(session(Box::new(Ballot::decode(&body)?), self.incoming)));
                }
                None => *ballot = Some(Box::new(Ballot::decode(&body)?)),
                Some(ballot) => return Ok(Step::Done(session(ballot, self.incoming))),
            }
        }
    }
}

/// A peer that knows the replica's user. One request makes it a [`Join`](super::Join) or a [`Follower`].
#[derive(Debug)]
pub struct Session {
    /// The peer.
    pub peer: Uuid,
    /// Its version, if its greeting has one.
    pub version: Option<Version>,
    /// What it says about itself.
    pub ballot: Box<Ballot>,
    incoming: Vec<u8>,
}

impl Session {
    pub(super) fn resumed(
        peer: Uuid,
        version: Option<Version>,
        ballot: Box<Ballot>,
        incoming: Vec<u8>,
    ) -> Self {
        Self { peer, version, ballot, incoming }
    }

    /// Asks for the log.
    #[must_use]
    pub fn subscribe(self, subscription: &Subscription, out: &mut Vec<u8>) -> Follower {
        subscription.encode(out);
        Follower::new(self.peer, subscription, self.incoming)
    }

    pub(super) fn into_incoming(self) -> (Uuid, Option<Version>, Box<Ballot>, Vec<u8>) {
        (self.peer, self.version, self.ballot, self.incoming)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::Transcript;

    fn uri(text: &str) -> Uri {
        text.parse().expect("an address")
    }

    #[test]
    fn a_recorded_handshake_byte_by_byte() {
        let transcript = Transcript::read("20-replication-join.json");
        let frames: Vec<&[u8]> =
            ["greeting", "ballot", ""].map(|note| transcript.of_master(note).expect("recorded")).to_vec();
        let mut handshake = Handshake::new(uri("repl:repl-secret@127.0.0.1:3301"));
        let mut sent = Vec::new();
        let bytes = frames.concat();
        for (position, byte) in bytes.iter().enumerate() {
            match handshake.receive(&[*byte], &mut sent).expect("a master") {
                Step::More(next) => handshake = next,
                Step::Done(session) => {
                    assert_eq!(position + 1, bytes.len());
                    assert_eq!(session.peer.to_string(), "d4798622-7d22-437a-9a3a-863cd68b3f5b");
                    assert_eq!(session.ballot.vclock.to_string(), "{1: 24}");
                    assert!(!session.ballot.is_read_only && !session.ballot.is_read_only_configured);
                    let expected: Vec<u8> = ["VOTE", "AUTH"]
                        .iter()
                        .flat_map(|note| transcript.of_replica(note).expect("recorded"))
                        .copied()
                        .collect();
                    assert_eq!(sent, expected);
                    return;
                }
            }
        }
        panic!("the handshake did not end");
    }

    #[test]
    fn a_guest_does_not_authenticate() {
        let transcript = Transcript::read("20-replication-join.json");
        let bytes = ["greeting", "ballot"].map(|note| transcript.of_master(note).expect("recorded")).concat();
        let mut sent = Vec::new();
        let step = Handshake::new(uri("127.0.0.1:3301")).receive(&bytes, &mut sent).expect("a master");
        assert!(matches!(step, Step::Done(_)));
        assert_eq!(sent, transcript.of_replica("VOTE").expect("recorded"));
    }

    #[test]
    fn other_servers_are_refused() {
        let mut out = Vec::new();
        let http = Handshake::new(uri("h:1")).receive(&[b'H'; GREETING_SIZE], &mut out);
        assert!(matches!(http, Err(HandshakeError::Greeting(_))));
        let transcript = Transcript::read("20-replication-join.json");
        let greeting = transcript.of_master("greeting").expect("recorded");
        let mut bytes = greeting.to_vec();
        let denied = lycosa_iproto::error::ErrorObject::access_denied("Session", "universe", "", "repl");
        reply::error(&mut bytes, 0, 1, &denied);
        let refused = Handshake::new(uri("h:1")).receive(&bytes, &mut out).expect_err("refused");
        assert!(refused.to_string().contains("Session access to universe ''"), "{refused}");
        assert!(Handshake::new(uri("h:1")).receive(&[greeting, &[0xff]].concat(), &mut out).is_err());
    }
}
