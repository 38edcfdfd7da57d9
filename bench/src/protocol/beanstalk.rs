//! The beanstalk protocol: `put`, `reserve`, `delete` on one tube. Commands are answered in their order.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

use super::resp::push_decimal;
use super::{Answer, Dialogue, Heard, Operation, Protocol, Request, Shown};
use crate::connect;
use crate::wire::Wire;

const TUBE: &str = "lycosa_bench";
/// Priority of tasks that are put without one, as the protocol's document recommends it.
const PRIORITY: u64 = 1024;
/// Seconds that a task may be held; longer than any run.
const TIME_TO_RUN: u64 = 100_000;

/// One tube.
#[derive(Debug)]
pub(crate) struct Beanstalk;

impl Protocol for Beanstalk {
    fn prepare(&self, address: SocketAddr) -> Result<()> {
        let mut stream = connect(address)?;
        choose_tube(&mut stream)?;
        let mut input = BufReader::new(stream.try_clone()?);
        let mut answer = String::new();
        loop {
            stream.write_all(b"reserve-with-timeout 0\r\n")?;
            answer.clear();
            input.read_line(&mut answer)?;
            let words = answer.split_whitespace().collect::<Vec<_>>();
            let ["RESERVED", id, size] = words[..] else {
                ensure!(words == ["TIMED_OUT"], "reserve was answered with {answer}");
                return Ok(());
            };
            let mut body = vec![0; size.parse::<usize>()? + 2];
            input.read_exact(&mut body)?;
            stream.write_all(format!("delete {id}\r\n").as_bytes())?;
            answer.clear();
            input.read_line(&mut answer)?;
        }
    }

    fn count_tasks(&self, address: SocketAddr) -> Result<u64> {
        let mut stream = connect(address)?;
        stream.write_all(format!("stats-tube {TUBE}\r\n").as_bytes())?;
        let mut input = BufReader::new(stream);
        let mut line = String::new();
        input.read_line(&mut line)?;
        let size = line.strip_prefix("OK ").and_then(|size| size.trim().parse().ok());
        // A tube that is empty and has no watcher does not exist.
        let Some(size) = size else { return Ok(0) };
        let mut statistics = vec![0; size];
        input.read_exact(&mut statistics)?;
        Ok(waiting_jobs(&String::from_utf8_lossy(&statistics)))
    }

    fn open(&self, stream: &mut Wire<TcpStream>, _index: usize, _slots: usize) -> Result<Box<dyn Dialogue>> {
        choose_tube(stream)?;
        Ok(Box::new(BeanstalkDialogue::default()))
    }
}

/// Puts into and takes from our tube only.
fn choose_tube<S: Read + Write>(stream: &mut S) -> Result<()> {
    let expected = format!("USING {TUBE}\r\nWATCHING 2\r\nWATCHING 1\r\n");
    stream.write_all(format!("use {TUBE}\r\nwatch {TUBE}\r\nignore default\r\n").as_bytes())?;
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).context("the server does not speak the beanstalk protocol")?;
    ensure!(answer == expected.as_bytes(), "the choice of the tube was answered with {}", Shown(&answer));
    Ok(())
}

/// The sum of ready and delayed jobs in the answer to `stats-tube`.
fn waiting_jobs(statistics: &str) -> u64 {
    let of_line = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        matches!(name, "current-jobs-ready" | "current-jobs-delayed").then_some(value)?.parse::<u64>().ok()
    };
    statistics.lines().filter_map(of_line).sum()
}

#[derive(Debug, Default)]
struct BeanstalkDialogue {
    asked: VecDeque<(usize, Operation)>,
}

impl Dialogue for BeanstalkDialogue {
    fn ask(&mut self, slot: usize, request: &Request<'_>, out: &mut Vec<u8>) {
        match *request {
            Request::Put { payload, options } => {
                let priority = options.priority.unwrap_or(PRIORITY);
                let delay = options.delay_seconds.unwrap_or(0);
                out.extend_from_slice(b"put");
                for number in [priority, delay.into(), TIME_TO_RUN, payload.len() as u64] {
                    out.push(b' ');
                    push_decimal(out, number);
                }
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(payload);
            }
            Request::Take { waits: false } => out.extend_from_slice(b"reserve-with-timeout 0"),
            Request::Take { waits: true } => out.extend_from_slice(b"reserve"),
            Request::Ack { receipt } => {
                out.extend_from_slice(b"delete ");
                out.extend_from_slice(receipt);
            }
        }
        out.extend_from_slice(b"\r\n");
        self.asked.push_back((slot, request.operation()));
    }

    fn hear<'a>(&mut self, input: &'a [u8], _out: &mut Vec<u8>) -> Result<Heard<'a>> {
        let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else { return Ok(Heard::NeedMore) };
        let (line, mut consumed) = (&input[..end], end + 2);
        let &(slot, operation) = self.asked.front().context("an answer that nobody asked for")?;
        let mut words = line.split(|&byte| byte == b' ');
        let answer = match (operation, words.next().unwrap_or_default()) {
            (Operation::Put, b"INSERTED") | (Operation::Ack, b"DELETED") => Answer::Done,
            (Operation::Take, b"TIMED_OUT") => Answer::NoTask,
            (Operation::Take, b"RESERVED") => {
                let (receipt, size) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let size = str::from_utf8(size).ok().and_then(|size| size.parse::<usize>().ok());
                let size = size.with_context(|| format!("there is no size in {}", Shown(line)))?;
                let Some((payload, rest)) = input[consumed..].split_at_checked(size) else {
                    return Ok(Heard::NeedMore);
                };
                if rest.len() < 2 {
                    return Ok(Heard::NeedMore);
                }
                ensure!(rest.starts_with(b"\r\n"), "a task does not end where it says");
                consumed += size + 2;
                Answer::Task { receipt, payload }
            }
            (
                _,
                b"OUT_OF_MEMORY" | b"INTERNAL_ERROR" | b"DRAINING" | b"JOB_TOO_BIG" | b"NOT_FOUND"
                | b"BURIED",
            ) => Answer::Refused(Shown(line).to_string()),
            (operation, _) => bail!("{} was answered with {}", operation.name(), Shown(line)),
        };
        self.asked.pop_front();
        Ok(Heard::Answer { consumed, slot, answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PutOptions;

    #[test]
    fn statistics_are_summed_up() {
        let statistics =
            "---\nname: x\ncurrent-jobs-urgent: 1\ncurrent-jobs-ready: 3\ncurrent-jobs-delayed: 2\n";
        assert_eq!(waiting_jobs(statistics), 5);
    }

    #[test]
    fn a_dialogue() {
        let mut dialogue = BeanstalkDialogue::default();
        let mut out = Vec::new();
        let options = PutOptions { priority: Some(7), delay_seconds: Some(60), sub_queue: None };
        dialogue.ask(0, &Request::Put { payload: b"abc", options }, &mut out);
        dialogue.ask(1, &Request::Put { payload: b"d", options: PutOptions::default() }, &mut out);
        dialogue.ask(2, &Request::Take { waits: false }, &mut out);
        dialogue.ask(3, &Request::Take { waits: true }, &mut out);
        dialogue.ask(4, &Request::Ack { receipt: b"17" }, &mut out);
        let expected = b"put 7 60 100000 3\r\nabc\r\nput 1024 0 100000 1\r\nd\r\n\
            reserve-with-timeout 0\r\nreserve\r\ndelete 17\r\n";
        assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());

        let mut hear = |input: &'static [u8]| dialogue.hear(input, &mut Vec::new()).unwrap();
        let put = hear(b"INSERTED 17\r\nINSERTED 18\r\n");
        assert_eq!(put, Heard::Answer { consumed: 13, slot: 0, answer: Answer::Done });
        let refused = Answer::Refused("OUT_OF_MEMORY".to_owned());
        assert_eq!(hear(b"OUT_OF_MEMORY\r\n"), Heard::Answer { consumed: 15, slot: 1, answer: refused });
        assert_eq!(hear(b"TIMED_OUT\r\n"), Heard::Answer { consumed: 11, slot: 2, answer: Answer::NoTask });
        let task = b"RESERVED 17 5\r\na\r\nbc\r\n";
        for length in 0..task.len() {
            assert_eq!(hear(&task[..length]), Heard::NeedMore, "{length}");
        }
        let answer = Answer::Task { receipt: b"17", payload: b"a\r\nbc" };
        assert_eq!(hear(task), Heard::Answer { consumed: task.len(), slot: 3, answer });
        assert_eq!(hear(b"DELETED\r\n"), Heard::Answer { consumed: 9, slot: 4, answer: Answer::Done });
        assert!(dialogue.hear(b"DELETED\r\n", &mut Vec::new()).is_err());
    }
}
