//! NATS JetStream: a stream with work-queue retention and a pull consumer that all connections share.
//!
//! A put is a publication that the stream acknowledges, a take is a request for one message, and an acknowledgement
//! asks for its confirmation. So each of the three is a request with an answer, as with the other protocols. Every
//! slot subscribes to an inbox of its own, and the number of the subscription tells the slot of an answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value as Json, json};

use super::resp::push_decimal;
use super::{Answer, Dialogue, Heard, Operation, Protocol, Request, Shown};
use crate::connect;
use crate::wire::Wire;

const STREAM: &str = "lycosa_bench";
const SUBJECT: &str = "lycosa_bench.tasks";
const CONSUMER: &str = "workers";
/// What a client says about itself. Without `verbose` nothing is confirmed that need not be.
const CONNECT: &[u8] =
    b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\
    \"lang\":\"rust\",\"version\":\"0\",\"protocol\":1}\r\n";
/// Nanoseconds after which the server takes back a message that was not acknowledged; longer than any run.
const ACK_WAIT: u64 = 100_000 * 1_000_000_000;
/// Messages that may be taken, and takes that may wait, at a time.
const MAX_PENDING: u64 = 1_000_000;
/// Asks for one message, within half a minute. (With `no_wait` the server looks before it has seen the newest message.)
const NEXT: &[u8] = b"{\"batch\":1,\"expires\":30000000000}";

/// Where the stream is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    File,
    Memory,
}

/// One stream with one consumer.
#[derive(Debug)]
pub(crate) struct JetStream {
    pub(crate) storage: Storage,
}

impl Protocol for JetStream {
    fn prepare(&self, address: SocketAddr) -> Result<()> {
        let mut stream = connect(address)?;
        greet(&mut stream)?;
        let storage = match self.storage {
            Storage::File => "file",
            Storage::Memory => "memory",
        };
        let deletion = call(&mut stream, &format!("STREAM.DELETE.{STREAM}"), &json!({}))?;
        ensure!(
            deletion["error"].is_null() || deletion["error"]["code"] == 404,
            "cannot delete the stream: {deletion}"
        );
        let config = json!({
            "name": STREAM, "subjects": [SUBJECT], "retention": "workqueue", "storage": storage, "num_replicas": 1,
            "max_msgs": -1, "max_bytes": -1, "max_age": 0, "discard": "new",
        });
        let creation = call(&mut stream, &format!("STREAM.CREATE.{STREAM}"), &config)?;
        ensure!(creation["error"].is_null(), "cannot create the stream: {creation}");
        let config = json!({
            "stream_name": STREAM,
            "config": {
                "durable_name": CONSUMER, "deliver_policy": "all", "ack_policy": "explicit",
                "ack_wait": ACK_WAIT, "max_ack_pending": MAX_PENDING, "max_waiting": MAX_PENDING,
            },
        });
        let creation = call(&mut stream, &format!("CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}"), &config)?;
        ensure!(creation["error"].is_null(), "cannot create the consumer: {creation}");
        Ok(())
    }

    fn count_tasks(&self, address: SocketAddr) -> Result<u64> {
        let mut stream = connect(address)?;
        greet(&mut stream)?;
        let info = call(&mut stream, &format!("STREAM.INFO.{STREAM}"), &json!({}))?;
        info["state"]["messages"]
            .as_u64()
            .with_context(|| format!("the stream does not count its messages: {info}"))
    }

    fn open(&self, stream: &mut Wire<TcpStream>, index: usize, slots: usize) -> Result<Box<dyn Dialogue>> {
        greet(stream)?;
        let mut out = Vec::new();
        let dialogue = JetStreamDialogue::new(index, slots);
        dialogue.subscribe(&mut out);
        stream.write_all(&out)?;
        wait_for_pong(stream)?;
        Ok(Box::new(dialogue))
    }
}

/// Reads what the server says about itself and says the same of ourselves.
fn greet<S: Read + Write>(stream: &mut S) -> Result<()> {
    let line = read_line(stream)?;
    ensure!(line.starts_with(b"INFO "), "the server does not speak the NATS protocol: {}", Shown(&line));
    stream.write_all(CONNECT)?;
    wait_for_pong(stream)
}

/// Makes sure that the server has seen everything so far.
fn wait_for_pong<S: Read + Write>(stream: &mut S) -> Result<()> {
    stream.write_all(b"PING\r\n")?;
    loop {
        let line = read_line(stream)?;
        match &line[..] {
            b"PONG" => return Ok(()),
            b"PING" => stream.write_all(b"PONG\r\n")?,
            line if line.starts_with(b"INFO ") => {}
            line => bail!("the server answered {}", Shown(line)),
        }
    }
}

/// Reads a line without its end.
fn read_line<S: Read + Write>(stream: &mut S) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).context("the server closed the connection")?;
        line.extend_from_slice(&byte);
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

/// Calls the API of JetStream on a connection without subscriptions.
fn call<S: Read + Write>(stream: &mut S, name: &str, request: &Json) -> Result<Json> {
    const INBOX: &str = "_INBOX.lycosa_bench.api";
    let request = request.to_string();
    let length = request.len();
    let message =
        format!("SUB {INBOX} 1\r\nPUB $JS.API.{name} {INBOX} {length}\r\n{request}\r\nUNSUB 1 1\r\n");
    stream.write_all(message.as_bytes())?;
    loop {
        let line = read_line(stream)?;
        if line == b"PING" {
            stream.write_all(b"PONG\r\n")?;
            continue;
        }
        let head = Head::read(&line)?;
        let mut body = vec![0; head.size + 2];
        stream.read_exact(&mut body)?;
        ensure!(!head.has_headers(), "JetStream does not answer: {}", Shown(&body));
        return serde_json::from_slice(&body[..head.size]).context("JetStream's answer is not JSON");
    }
}

/// The line before a message: `MSG subject sid [reply] size` or `HMSG subject sid [reply] header-size size`.
#[derive(Debug, PartialEq, Eq)]
struct Head<'a> {
    subscription: usize,
    /// The subject to answer to; empty if there is none.
    reply: &'a [u8],
    /// Bytes of the header at the beginning of the content.
    header_size: usize,
    /// Bytes of the content.
    size: usize,
}

impl<'a> Head<'a> {
    fn read(line: &'a [u8]) -> Result<Self> {
        let mut words = [&line[..0]; 6];
        let mut count = 0;
        for word in line.split(|&byte| byte == b' ') {
            *words.get_mut(count).with_context(|| format!("too many words: {}", Shown(line)))? = word;
            count += 1;
        }
        let (subscription, reply, header_size, size) = match (words[0], count) {
            (b"MSG", 4) => (words[2], &b""[..], &b"0"[..], words[3]),
            (b"MSG", 5) => (words[2], words[3], &b"0"[..], words[4]),
            (b"HMSG", 5) => (words[2], &b""[..], words[3], words[4]),
            (b"HMSG", 6) => (words[2], words[3], words[4], words[5]),
            _ => bail!("the server said {}", Shown(line)),
        };
        let (header_size, size) = (decimal(header_size)?, decimal(size)?);
        ensure!(header_size <= size, "the header is longer than the message: {}", Shown(line));
        Ok(Self { subscription: decimal(subscription)?, reply, header_size, size })
    }

    fn has_headers(&self) -> bool {
        self.header_size > 0
    }
}

fn decimal(text: &[u8]) -> Result<usize> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.with_context(|| format!("`{}` is not a number", Shown(text)))
}

#[derive(Debug)]
struct JetStreamDialogue {
    /// The inbox of each slot.
    inboxes: Vec<String>,
    /// What each slot has asked for.
    asked: Vec<Operation>,
}

impl JetStreamDialogue {
    fn new(index: usize, slots: usize) -> Self {
        Self {
            inboxes: (0..slots).map(|slot| format!("_INBOX.lycosa_bench.{index}.{slot}")).collect(),
            asked: vec![Operation::Put; slots],
        }
    }

    /// Subscribes to all inboxes; the number of a subscription is that of its slot plus one.
    fn subscribe(&self, out: &mut Vec<u8>) {
        for (slot, inbox) in self.inboxes.iter().enumerate() {
            out.extend_from_slice(format!("SUB {inbox} {}\r\n", slot + 1).as_bytes());
        }
    }
}

impl Dialogue for JetStreamDialogue {
    fn ask(&mut self, slot: usize, request: &Request<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PUB ");
        let content = match *request {
            Request::Put { payload, .. } => {
                out.extend_from_slice(SUBJECT.as_bytes());
                payload
            }
            Request::Take { .. } => {
                out.extend_from_slice(b"$JS.API.CONSUMER.MSG.NEXT.");
                out.extend_from_slice(STREAM.as_bytes());
                out.push(b'.');
                out.extend_from_slice(CONSUMER.as_bytes());
                NEXT
            }
            Request::Ack { receipt } => {
                out.extend_from_slice(receipt);
                b"+ACK"
            }
        };
        out.push(b' ');
        out.extend_from_slice(self.inboxes[slot].as_bytes());
        out.push(b' ');
        push_decimal(out, content.len() as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(content);
        out.extend_from_slice(b"\r\n");
        self.asked[slot] = request.operation();
    }

    fn hear<'a>(&mut self, input: &'a [u8], out: &mut Vec<u8>) -> Result<Heard<'a>> {
        let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else { return Ok(Heard::NeedMore) };
        let (line, consumed) = (&input[..end], end + 2);
        if line == b"PING" {
            out.extend_from_slice(b"PONG\r\n");
            return Ok(Heard::Skipped { consumed });
        }
        if line.starts_with(b"INFO ") {
            return Ok(Heard::Skipped { consumed });
        }
        let head = Head::read(line)?;
        let rest = &input[consumed..];
        if rest.len() < head.size + 2 {
            return Ok(Heard::NeedMore);
        }
        let content = &rest[..head.size];
        ensure!(rest[head.size..].starts_with(b"\r\n"), "a message does not end where it says");
        let consumed = consumed + head.size + 2;
        let slot = head.subscription.wrapping_sub(1);
        let operation = self.asked.get(slot).with_context(|| format!("an answer to slot {slot}"))?;
        let answer = match operation {
            _ if head.has_headers() => status(&content[..head.header_size])?,
            Operation::Put => confirmation(content)?,
            Operation::Take => Answer::Task { receipt: head.reply, payload: content },
            Operation::Ack if content.is_empty() => Answer::Done,
            Operation::Ack => Answer::Refused(Shown(content).to_string()),
        };
        Ok(Heard::Answer { consumed, slot, answer })
    }
}

/// What a header without a message says: `NATS/1.0 404 No Messages`.
fn status<'a>(header: &[u8]) -> Result<Answer<'a>> {
    let text = String::from_utf8_lossy(header);
    let code = text.strip_prefix("NATS/1.0 ").context("a message has an unknown header")?;
    match code.get(..3) {
        Some("404" | "408") => Ok(Answer::NoTask),
        _ => Ok(Answer::Refused(code.trim().to_owned())),
    }
}

/// What a stream says to a publication: `{"stream":"…","seq":1}` or `{"error":…}`.
fn confirmation<'a>(content: &[u8]) -> Result<Answer<'a>> {
    const SUCCESS: &[u8] = b"{\"stream\":";
    if content.starts_with(SUCCESS) {
        return Ok(Answer::Done);
    }
    let json = serde_json::from_slice::<Json>(content).context("the confirmation of a put is not JSON")?;
    Ok(match &json["error"] {
        Json::Null => Answer::Done,
        error => Answer::Refused(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PutOptions;

    #[test]
    fn a_dialogue() {
        let mut dialogue = JetStreamDialogue::new(3, 2);
        let mut out = Vec::new();
        dialogue.subscribe(&mut out);
        dialogue.ask(0, &Request::Put { payload: b"abc", options: PutOptions::default() }, &mut out);
        dialogue.ask(1, &Request::Take { waits: false }, &mut out);
        let expected = b"SUB _INBOX.lycosa_bench.3.0 1\r\nSUB _INBOX.lycosa_bench.3.1 2\r\n\
            PUB lycosa_bench.tasks _INBOX.lycosa_bench.3.0 3\r\nabc\r\n\
            PUB $JS.API.CONSUMER.MSG.NEXT.lycosa_bench.workers _INBOX.lycosa_bench.3.1 33\r\n\
            {\"batch\":1,\"expires\":30000000000}\r\n";
        assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());

        let mut hear = |input: &'static [u8]| dialogue.hear(input, &mut Vec::new()).unwrap();
        let put = b"MSG _INBOX.lycosa_bench.3.0 1 34\r\n{\"stream\":\"lycosa_bench\", \"seq\":1}\r\n";
        assert_eq!(hear(put), Heard::Answer { consumed: put.len(), slot: 0, answer: Answer::Done });
        let task =
            b"MSG lycosa_bench.tasks 2 $JS.ACK.lycosa_bench.workers.1.1.1.1700000000.0 5\r\na\r\nbc\r\n";
        for length in 0..task.len() {
            assert_eq!(hear(&task[..length]), Heard::NeedMore, "{length}");
        }
        let receipt = b"$JS.ACK.lycosa_bench.workers.1.1.1.1700000000.0";
        let answer = Answer::Task { receipt, payload: b"a\r\nbc" };
        assert_eq!(hear(task), Heard::Answer { consumed: task.len(), slot: 1, answer });

        out.clear();
        dialogue.ask(1, &Request::Ack { receipt }, &mut out);
        assert!(out.starts_with(
            b"PUB $JS.ACK.lycosa_bench.workers.1.1.1.1700000000.0 _INBOX.lycosa_bench.3.1 4\r\n"
        ));
        assert!(out.ends_with(b"+ACK\r\n"));
        let done = b"MSG _INBOX.lycosa_bench.3.1 2 0\r\n\r\n";
        let heard = dialogue.hear(done, &mut out).unwrap();
        assert_eq!(heard, Heard::Answer { consumed: done.len(), slot: 1, answer: Answer::Done });
    }

    #[test]
    fn none_errors_and_pings() {
        let mut dialogue = JetStreamDialogue::new(0, 2);
        let mut out = Vec::new();
        dialogue.ask(0, &Request::Take { waits: false }, &mut out);
        dialogue.ask(1, &Request::Put { payload: b"", options: PutOptions::default() }, &mut out);
        out.clear();
        assert_eq!(dialogue.hear(b"PING\r\nMSG", &mut out).unwrap(), Heard::Skipped { consumed: 6 });
        assert_eq!(out, b"PONG\r\n");
        let mut hear = |input: &'static [u8]| dialogue.hear(input, &mut Vec::new());
        let none = b"HMSG _INBOX.lycosa_bench.0.0 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n";
        let answer = Answer::NoTask;
        assert_eq!(hear(none).unwrap(), Heard::Answer { consumed: none.len(), slot: 0, answer });
        let full = b"MSG _INBOX.lycosa_bench.0.1 2 30\r\n{\"error\":{\"code\":503},\"seq\":0}\r\n";
        let answer = Answer::Refused("{\"code\":503}".to_owned());
        assert_eq!(hear(full).unwrap(), Heard::Answer { consumed: full.len(), slot: 1, answer });
        for wrong in [
            "-ERR 'x'\r\n",
            "MSG a 9 0\r\n\r\n",
            "MSG a 1 x\r\n",
            "HMSG a 1 2 1\r\na\r\n",
            "MSG a 1 2\r\nabcd",
        ] {
            assert!(hear(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
