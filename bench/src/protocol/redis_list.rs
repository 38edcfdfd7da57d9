//! A Redis list as a queue, in the way that its documentation calls reliable: LPUSH to put; LMOVE into a list of the
//! taker's own to take; RPOP from that list when the task is done.
//!
//! The list has no further guarantees of a queue (owners that are checked, tasks that come back when their taker ends, delays)
//! of its own: a program has to empty the list of a taker that died.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail};

use super::resp::{Replies, Value, command, count, execute};
use super::{Answer, Dialogue, Heard, Operation, Protocol, Request, Shown};
use crate::wire::Wire;

const READY: &[u8] = b"lycosa_bench";

/// One list of ready tasks, and one of taken tasks for each connection.
#[derive(Debug)]
pub(crate) struct RedisList;

impl Protocol for RedisList {
    fn prepare(&self, address: SocketAddr) -> Result<()> {
        execute(address, &[&[b"FLUSHALL"]]).map(drop)
    }

    fn count_tasks(&self, address: SocketAddr) -> Result<u64> {
        count(address, &[b"LLEN", READY])
    }

    fn open(&self, _stream: &mut Wire<TcpStream>, index: usize, _slots: usize) -> Result<Box<dyn Dialogue>> {
        Ok(Box::new(ListDialogue::new(index)))
    }
}

#[derive(Debug)]
struct ListDialogue {
    taken: Vec<u8>,
    /// Slots whose answers are under way, in their order.
    asked: VecDeque<(usize, Operation)>,
}

impl ListDialogue {
    fn new(index: usize) -> Self {
        Self { taken: format!("lycosa_bench_taken_{index}").into_bytes(), asked: VecDeque::new() }
    }
}

impl Dialogue for ListDialogue {
    fn ask(&mut self, slot: usize, request: &Request<'_>, out: &mut Vec<u8>) {
        match *request {
            Request::Put { payload, .. } => command(out, &[b"LPUSH", READY, payload]),
            Request::Take { waits: false } => {
                command(out, &[b"LMOVE", READY, &self.taken, b"RIGHT", b"LEFT"]);
            }
            Request::Take { waits: true } => {
                command(out, &[b"BLMOVE", READY, &self.taken, b"RIGHT", b"LEFT", b"0"]);
            }
            Request::Ack { .. } => command(out, &[b"RPOP", &self.taken]),
        }
        self.asked.push_back((slot, request.operation()));
    }

    fn hear<'a>(&mut self, input: &'a [u8], _out: &mut Vec<u8>) -> Result<Heard<'a>> {
        let mut replies = Replies::new(input);
        let Some(value) = replies.value()? else { return Ok(Heard::NeedMore) };
        let (slot, operation) = self.asked.pop_front().context("an answer that nobody asked for")?;
        let answer = match (operation, value) {
            (_, Value::Error(text)) => Answer::Refused(Shown(text).to_string()),
            (Operation::Put, Value::Integer(_)) => Answer::Done,
            (Operation::Take | Operation::Ack, Value::Bulk(payload)) => {
                Answer::Task { receipt: b"", payload }
            }
            (Operation::Take | Operation::Ack, Value::Nil) => Answer::NoTask,
            (operation, value) => bail!("{} was answered with {value:?}", operation.name()),
        };
        Ok(Heard::Answer { consumed: replies.position(), slot, answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PutOptions;

    #[test]
    fn a_dialogue() {
        let mut dialogue = ListDialogue::new(2);
        let mut out = Vec::new();
        dialogue.ask(0, &Request::Put { payload: b"abc", options: PutOptions::default() }, &mut out);
        dialogue.ask(1, &Request::Take { waits: false }, &mut out);
        dialogue.ask(2, &Request::Ack { receipt: b"" }, &mut out);
        dialogue.ask(3, &Request::Take { waits: true }, &mut out);
        let expected = b"*3\r\n$5\r\nLPUSH\r\n$12\r\nlycosa_bench\r\n$3\r\nabc\r\n\
            *5\r\n$5\r\nLMOVE\r\n$12\r\nlycosa_bench\r\n$20\r\nlycosa_bench_taken_2\r\n$5\r\nRIGHT\r\n$4\r\nLEFT\r\n\
            *2\r\n$4\r\nRPOP\r\n$20\r\nlycosa_bench_taken_2\r\n\
            *6\r\n$6\r\nBLMOVE\r\n$12\r\nlycosa_bench\r\n$20\r\nlycosa_bench_taken_2\r\n$5\r\nRIGHT\r\n$4\r\nLEFT\r\n$1\r\n0\r\n";
        assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());

        let mut hear = |input: &'static [u8]| dialogue.hear(input, &mut Vec::new()).unwrap();
        assert_eq!(hear(b":1\r"), Heard::NeedMore);
        assert_eq!(hear(b":1\r\n$3"), Heard::Answer { consumed: 4, slot: 0, answer: Answer::Done });
        let task = Answer::Task { receipt: b"", payload: b"abc" };
        assert_eq!(hear(b"$3\r\nabc\r\n"), Heard::Answer { consumed: 9, slot: 1, answer: task.clone() });
        assert_eq!(hear(b"$3\r\nabc\r\n"), Heard::Answer { consumed: 9, slot: 2, answer: task });
        assert_eq!(hear(b"$-1\r\n"), Heard::Answer { consumed: 5, slot: 3, answer: Answer::NoTask });
        assert!(dialogue.hear(b":1\r\n", &mut Vec::new()).is_err());
    }
}
