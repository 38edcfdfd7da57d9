//! Plays one recording against a server that starts from the recording's data folder.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use super::differences::{Difference, Differences};
use super::mask;
use super::recording::{Event, Frame, Recording};
use crate::connection::{self, Connection, Reply, decode_reply, key, kind, salt, scramble};
use crate::server::{Peer, Server, Setup};
use crate::value::Value;

const REPLY_LIMIT: Duration = Duration::from_secs(120);
const CLOSED_LIMIT: Duration = Duration::from_secs(120);
/// How long "nothing comes" is watched.
const SILENCE: Duration = Duration::from_millis(300);
const MAX_FAILURES: usize = 12;

/// The passwords that the recorder used, right and wrong.
const PASSWORDS: [&str; 12] = [
    "secret",
    "wrong",
    "x",
    "",
    "owner-secret",
    "reader-secret",
    "writer-secret",
    "nothing-secret",
    "repl-secret",
    "no_usage-secret",
    "bad",
    "pw",
];

/// A connection of the replay.
struct Client {
    connection: Connection,
    recorded_salt: [u8; 20],
    salt: [u8; 20],
    /// How many replies have been looked at.
    seen: usize,
    /// The server has closed the connection where the recording goes on.
    is_closed: bool,
}

struct Replay<'a> {
    server: Server,
    differences: &'a Differences,
    clients: HashMap<&'a str, Client>,
    /// The schema versions of the first replies, recorded and real: from here on both move alike.
    versions: Option<(i128, i128)>,
    failures: Vec<String>,
}

pub(crate) fn replay(
    recording: &Recording,
    peer: Peer,
    data: &Path,
    differences: &Differences,
) -> Result<(), String> {
    let setup = Setup {
        data: Some(data.to_owned()),
        program: recording.program.clone(),
        options: vec!["guest_on_loopback = false".into()],
        ..Setup::default()
    };
    let server = Server::start(peer, setup)?;
    let mut replay =
        Replay { server, differences, clients: HashMap::new(), versions: None, failures: Vec::new() };
    for (number, frame) in recording.frames.iter().enumerate() {
        if let Err(reason) = replay.frame(number, frame) {
            let note = if frame.note.is_empty() {
                previous_note(&recording.frames[..number], frame)
            } else {
                &frame.note
            };
            replay.failures.push(format!("frame {number} ({note}): {reason}"));
        }
        if replay.failures.len() >= MAX_FAILURES {
            replay.failures.push("and perhaps more".into());
            break;
        }
    }
    if replay.failures.is_empty() {
        return Ok(());
    }
    Err(format!("{}:\n  {}{}", recording.name, replay.failures.join("\n  "), replay.server.why_silent()))
}

/// The note of the request before a reply, on the same connection.
fn previous_note<'a>(before: &'a [Frame], frame: &Frame) -> &'a str {
    let mut same = before.iter().rev().filter(|other| other.connection == frame.connection);
    same.find(|other| !other.note.is_empty()).map_or("", |other| &other.note)
}

impl<'a> Replay<'a> {
    fn frame(&mut self, number: usize, frame: &'a Frame) -> Result<(), String> {
        let expected = self.differences.of(number);
        std::thread::sleep(frame.wait);
        match &frame.event {
            Event::Greeting(recorded) => self.connect(&frame.connection, recorded),
            Event::Sent(bytes) => match self.differences.instead_of(number) {
                Some(calls) => self.call(frame, calls),
                None => self.send(frame, bytes),
            },
            Event::Received(bytes) => self.compare(frame, bytes, expected),
            Event::Replies(number) => self.replies(frame, *number),
            Event::Silence => self.silence(frame, expected),
            Event::ServerClosed => self.server_closed(frame, expected),
            Event::ClientClosed => {
                self.clients.remove(frame.connection.as_str());
                Ok(())
            }
            Event::ClientShutDown => {
                self.client(frame)?.connection.shut_down_sending().map_err(|e| e.to_string())
            }
            Event::Stop => self.server.stop(),
        }
    }

    fn client(&mut self, frame: &'a Frame) -> Result<&mut Client, String> {
        self.clients.get_mut(frame.connection.as_str()).ok_or_else(|| "this connection is closed".into())
    }

    fn connect(&mut self, name: &'a str, recorded: &[u8]) -> Result<(), String> {
        let connection =
            Connection::open(self.server.address()).map_err(|error| format!("cannot connect: {error}"))?;
        let greeting = connection.greeting(REPLY_LIMIT)?;
        let client = Client {
            recorded_salt: salt(recorded)?,
            salt: salt(&greeting)?,
            connection,
            seen: 0,
            is_closed: false,
        };
        self.clients.insert(name, client);
        let shape = |greeting: &[u8]| {
            let mut greeting = greeting.to_vec();
            // The instance's UUID is that of the data; version and salt are each server's own.
            greeting[..b"Tarantool 2.6.0 ".len()].fill(b'v');
            greeting[64..108].fill(b's');
            String::from_utf8_lossy(&greeting).into_owned()
        };
        let (recorded, got) = (shape(recorded), shape(&greeting));
        if recorded == got { Ok(()) } else { Err(format!("the greeting is {got:?}, recorded {recorded:?}")) }
    }

    fn send(&mut self, frame: &'a Frame, bytes: &[u8]) -> Result<(), String> {
        self.reconnect(frame)?;
        let client = self.client(frame)?;
        let mut bytes = bytes.to_vec();
        for password in PASSWORDS {
            let recorded = scramble(&client.recorded_salt, password.as_bytes());
            if let Some(at) = bytes.windows(recorded.len()).position(|window| window == recorded) {
                bytes[at..at + recorded.len()].copy_from_slice(&scramble(&client.salt, password.as_bytes()));
            }
        }
        // The frames that follow name the bytes that a closed connection cannot take.
        let _ = client.connection.write(&bytes);
        Ok(())
    }

    /// Goes on over a new connection where ours was closed and the recorded one was not.
    fn reconnect(&mut self, frame: &'a Frame) -> Result<(), String> {
        let address = self.server.address();
        let client = self.client(frame)?;
        if client.is_closed {
            client.connection =
                Connection::open(address).map_err(|error| format!("cannot connect: {error}"))?;
            client.salt = salt(&client.connection.greeting(REPLY_LIMIT)?)?;
            client.seen = 0;
            client.is_closed = false;
        }
        Ok(())
    }

    /// The server closes the connection and sends nothing more than was looked at.
    fn closed(&mut self, frame: &'a Frame) -> Result<(), String> {
        let client = self.client(frame)?;
        client.connection.wait_closed(Instant::now() + CLOSED_LIMIT)?;
        client.is_closed = true;
        match client.connection.reply_at(client.seen, Instant::now()) {
            Ok(reply) => Err(format!("before it closed, the server sent {}", reply.describe())),
            Err(_) => Ok(()),
        }
    }

    /// Makes these calls where the recording has a request that only a Lua can serve.
    fn call(&mut self, frame: &'a Frame, calls: &[(String, Vec<Value>)]) -> Result<(), String> {
        for (name, arguments) in calls {
            let body = connection::call(name, arguments.clone());
            let client = self.client(frame)?;
            client.connection.send(kind::CALL, &body).map_err(|error| error.to_string())?;
            let reply = self.next_reply(frame)?;
            if reply.error != 0 {
                return Err(format!("{name}: {}", reply.describe()));
            }
        }
        Ok(())
    }

    fn next_reply(&mut self, frame: &'a Frame) -> Result<Reply, String> {
        let client = self.client(frame)?;
        let reply = client.connection.reply_at(client.seen, Instant::now() + REPLY_LIMIT)?;
        client.seen += 1;
        Ok(reply)
    }

    fn replies(&mut self, frame: &'a Frame, number: usize) -> Result<(), String> {
        let mut answered = HashSet::new();
        for _ in 0..number {
            let reply = self.next_reply(frame)?;
            let sync = reply.header.get(key::SYNC).and_then(Value::as_int);
            if reply.error != 0 || !answered.insert(sync) {
                return Err(format!("after {} replies: {}", answered.len(), reply.describe()));
            }
        }
        Ok(())
    }

    fn compare(
        &mut self,
        frame: &'a Frame,
        recorded: &[u8],
        expected: Option<&Difference>,
    ) -> Result<(), String> {
        match expected {
            Some(Difference::Absent) => return Ok(()),
            Some(Difference::Closed) => return self.closed(frame),
            // Whether or not a reply comes here, the ones behind it are found by their place.
            Some(Difference::NotCompared) => return self.next_reply(frame).map(drop).or(Ok(())),
            _ => {}
        }
        let recorded = decode_reply(recorded.to_vec(), Instant::now(), 0)?;
        let got = self.next_reply(frame)?;
        let difference = mask::difference(&recorded, &got, self.differences.any_order)
            .or_else(|| self.schema_difference(&recorded, &got));
        match (expected, difference) {
            (None, Some(difference)) => Err(difference),
            (Some(Difference::Race(_)), None) => Ok(()),
            (Some(_), None) => Err("is as recorded now: take it off the list of differences".into()),
            (Some(Difference::Like(pattern) | Difference::Race(pattern)), Some(_))
                if !pattern.is_match(&got.describe()) =>
            {
                Err(format!("got {}, the list of differences says /{pattern}/", got.describe()))
            }
            (Some(Difference::MoreRows), Some(difference)) if !mask::has_all_rows(&recorded, &got) => {
                Err(difference)
            }
            _ => Ok(()),
        }
    }

    /// The schema version must have moved as far as it had in the recording.
    fn schema_difference(&mut self, recorded: &Reply, got: &Reply) -> Option<String> {
        let version = |reply: &Reply| reply.header.get(key::SCHEMA_VERSION).and_then(Value::as_int);
        let (recorded, got) = (version(recorded)?, version(got)?);
        let (recorded_first, got_first) = *self.versions.get_or_insert((recorded, got));
        let (moved, wanted) = (got - got_first, recorded - recorded_first);
        (moved != wanted)
            .then(|| format!("the schema version moved by {moved} since the start, recorded {wanted}"))
    }

    fn silence(&mut self, frame: &'a Frame, expected: Option<&Difference>) -> Result<(), String> {
        match expected {
            Some(Difference::NotCompared) => return Ok(()),
            Some(Difference::Closed) => return self.closed(frame),
            _ => {}
        }
        let client = self.client(frame)?;
        match client.connection.reply_at(client.seen, Instant::now() + SILENCE) {
            Ok(reply) => Err(format!("a reply came where there was none: {}", reply.describe())),
            // It has closed already: that is an end, not silence.
            Err(_) if client.connection.wait_closed(Instant::now()).is_ok() => {
                Err("the server closed".into())
            }
            Err(_) => Ok(()),
        }
    }

    fn server_closed(&mut self, frame: &'a Frame, expected: Option<&Difference>) -> Result<(), String> {
        if matches!(expected, Some(Difference::NotCompared)) {
            return Ok(());
        }
        self.closed(frame)
    }
}
