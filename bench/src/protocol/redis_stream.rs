//! A Redis stream as a queue: XADD to put; XREADGROUP to take; XACK and XDEL together when the task is done, so that the
//! stream does not grow for ever.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

use super::resp::{Replies, Value, command, count, execute};
use super::{Answer, Dialogue, Heard, Operation, Protocol, Request, Shown};
use crate::wire::Wire;

const STREAM: &[u8] = b"lycosa_bench";
const GROUP: &[u8] = b"workers";
/// Name of the only field of an entry.
const FIELD: &[u8] = b"d";

/// One stream with one consumer group; each connection is a consumer.
#[derive(Debug)]
pub(crate) struct RedisStream;

impl Protocol for RedisStream {
    fn prepare(&self, address: SocketAddr) -> Result<()> {
        execute(address, &[&[b"FLUSHALL"], &[b"XGROUP", b"CREATE", STREAM, GROUP, b"0", b"MKSTREAM"]])
            .map(drop)
    }

    /// Entries that were taken and not acknowledged are counted too.
    fn count_tasks(&self, address: SocketAddr) -> Result<u64> {
        count(address, &[b"XLEN", STREAM])
    }

    fn open(&self, _stream: &mut Wire<TcpStream>, index: usize, _slots: usize) -> Result<Box<dyn Dialogue>> {
        Ok(Box::new(StreamDialogue::new(index)))
    }
}

/// A reply that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// The only or the last one of an operation.
    Last(Operation),
    /// That of XACK, after which that of XDEL comes.
    Acknowledged,
}

#[derive(Debug)]
struct StreamDialogue {
    consumer: Vec<u8>,
    asked: VecDeque<(usize, Expected)>,
}

impl StreamDialogue {
    fn new(index: usize) -> Self {
        Self { consumer: format!("consumer_{index}").into_bytes(), asked: VecDeque::new() }
    }
}

impl Dialogue for StreamDialogue {
    fn ask(&mut self, slot: usize, request: &Request<'_>, out: &mut Vec<u8>) {
        match *request {
            Request::Put { payload, .. } => command(out, &[b"XADD", STREAM, b"*", FIELD, payload]),
            Request::Take { waits } => {
                let mut words: Vec<&[u8]> =
                    vec![b"XREADGROUP", b"GROUP", GROUP, &self.consumer, b"COUNT", b"1"];
                if waits {
                    words.extend([&b"BLOCK"[..], b"0"]);
                }
                words.extend([&b"STREAMS"[..], STREAM, b">"]);
                command(out, &words);
            }
            Request::Ack { receipt } => {
                command(out, &[b"XACK", STREAM, GROUP, receipt]);
                command(out, &[b"XDEL", STREAM, receipt]);
                self.asked.push_back((slot, Expected::Acknowledged));
            }
        }
        self.asked.push_back((slot, Expected::Last(request.operation())));
    }

    fn hear<'a>(&mut self, input: &'a [u8], _out: &mut Vec<u8>) -> Result<Heard<'a>> {
        let mut replies = Replies::new(input);
        let Some(value) = replies.value()? else { return Ok(Heard::NeedMore) };
        let &(slot, expected) = self.asked.front().context("an answer that nobody asked for")?;
        let answer = match (expected, value) {
            (_, Value::Error(text)) => Answer::Refused(Shown(text).to_string()),
            (Expected::Acknowledged, Value::Integer(1)) => {
                self.asked.pop_front();
                return Ok(Heard::Skipped { consumed: replies.position() });
            }
            (Expected::Last(Operation::Put), Value::Bulk(_))
            | (Expected::Last(Operation::Ack), Value::Integer(1)) => Answer::Done,
            (Expected::Last(Operation::Take), Value::Nil) => Answer::NoTask,
            (Expected::Last(Operation::Take), Value::Array(1)) => match entry(&mut replies)? {
                Some((id, payload)) => Answer::Task { receipt: id, payload },
                None => return Ok(Heard::NeedMore),
            },
            (expected, value) => bail!("{expected:?} was answered with {value:?}"),
        };
        self.asked.pop_front();
        Ok(Heard::Answer { consumed: replies.position(), slot, answer })
    }
}

/// Reads `[stream, [[id, [field, payload]]]]`; `None` if it is not all there.
fn entry<'a>(replies: &mut Replies<'a>) -> Result<Option<(&'a [u8], &'a [u8])>> {
    let mut values = [Value::Nil; 8];
    for value in &mut values {
        match replies.value()? {
            Some(next) => *value = next,
            None => return Ok(None),
        }
    }
    let [
        Value::Array(2),
        Value::Bulk(STREAM),
        Value::Array(1),
        Value::Array(2),
        Value::Bulk(id),
        Value::Array(2),
        Value::Bulk(FIELD),
        Value::Bulk(payload),
    ] = values
    else {
        ensure!(false, "this is not one entry of the stream: {values:?}");
        return Ok(None);
    };
    Ok(Some((id, payload)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PutOptions;

    #[test]
    fn a_dialogue() {
        let mut dialogue = StreamDialogue::new(0);
        let mut out = Vec::new();
        dialogue.ask(0, &Request::Put { payload: b"abc", options: PutOptions::default() }, &mut out);
        dialogue.ask(1, &Request::Take { waits: false }, &mut out);
        dialogue.ask(2, &Request::Ack { receipt: b"1-0" }, &mut out);
        let expected = b"*5\r\n$4\r\nXADD\r\n$12\r\nlycosa_bench\r\n$1\r\n*\r\n$1\r\nd\r\n$3\r\nabc\r\n\
            *9\r\n$10\r\nXREADGROUP\r\n$5\r\nGROUP\r\n$7\r\nworkers\r\n$10\r\nconsumer_0\r\n$5\r\nCOUNT\r\n$1\r\n1\r\n\
            $7\r\nSTREAMS\r\n$12\r\nlycosa_bench\r\n$1\r\n>\r\n\
            *4\r\n$4\r\nXACK\r\n$12\r\nlycosa_bench\r\n$7\r\nworkers\r\n$3\r\n1-0\r\n\
            *3\r\n$4\r\nXDEL\r\n$12\r\nlycosa_bench\r\n$3\r\n1-0\r\n";
        assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());

        let mut hear = |input: &'static [u8]| dialogue.hear(input, &mut Vec::new()).unwrap();
        let put = hear(b"$3\r\n1-0\r\n");
        assert_eq!(put, Heard::Answer { consumed: 9, slot: 0, answer: Answer::Done });
        let task =
            b"*1\r\n*2\r\n$12\r\nlycosa_bench\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nd\r\n$3\r\nabc\r\n";
        for length in 0..task.len() {
            assert_eq!(hear(&task[..length]), Heard::NeedMore, "{length}");
        }
        let answer = Answer::Task { receipt: b"1-0", payload: b"abc" };
        assert_eq!(hear(task), Heard::Answer { consumed: task.len(), slot: 1, answer });
        assert_eq!(hear(b":1\r\n:1\r\n"), Heard::Skipped { consumed: 4 });
        assert_eq!(hear(b":1\r\n"), Heard::Answer { consumed: 4, slot: 2, answer: Answer::Done });
    }

    #[test]
    fn none_and_errors() {
        let mut dialogue = StreamDialogue::new(0);
        let mut out = Vec::new();
        for slot in 0..2 {
            dialogue.ask(slot, &Request::Take { waits: true }, &mut out);
        }
        assert!(out.windows(17).any(|window| window == b"$5\r\nBLOCK\r\n$1\r\n0\r"));
        dialogue.ask(2, &Request::Ack { receipt: b"1-0" }, &mut out);
        let mut hear = |input: &'static [u8]| dialogue.hear(input, &mut Vec::new());
        assert_eq!(hear(b"*-1\r\n").unwrap(), Heard::Answer { consumed: 5, slot: 0, answer: Answer::NoTask });
        let refused = Answer::Refused("ERR x".to_owned());
        assert_eq!(hear(b"-ERR x\r\n").unwrap(), Heard::Answer { consumed: 8, slot: 1, answer: refused });
        assert!(hear(b":0\r\n").is_err());
    }
}
