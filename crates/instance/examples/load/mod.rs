//! The load of the programs whose instructions are counted: `cycles`, and `group_cycles` of the engine. Connections do cycles of put,
//! take and ack in the tube `bench`, with many tasks under way, and check every reply.

use std::error::Error;

use lycosa_instance::ConnectionSlot;
use lycosa_iproto::frame::{DEFAULT_LIMIT, Split, split};
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::value::Value;

/// Connections.
pub(crate) const CONNECTIONS: usize = 8;
/// Requests under way on each, where a request is about one task.
pub(crate) const DEPTH: usize = 32;
/// Bytes of a payload.
pub(crate) const PAYLOAD: usize = 100;
/// Cycles of each slot before the count begins.
pub(crate) const WARMUP: usize = 4;
/// Cycles of each slot that are counted.
pub(crate) const COUNTED: usize = 16;
/// Seconds that a take waits.
const TIMEOUT: u8 = 60;
/// What a turn takes, in microseconds.
pub(crate) const TURN: u64 = 50;
/// Seconds since the epoch when the instance starts.
pub(crate) const START: u64 = 1_700_000_000;

/// Steps of a cycle.
pub(crate) const STEPS: usize = 3;

/// What the requests of the load are like.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) has_sub_queues: bool,
    /// Tasks of a request that is about many; `None`: each request is about one task.
    pub(crate) batch: Option<usize>,
    /// Takes come before puts, and wait.
    pub(crate) waits: bool,
}

impl Form {
    /// The steps of a cycle, in order.
    fn steps(self) -> [&'static str; STEPS] {
        if self.waits { ["take", "put", "ack"] } else { ["put", "take", "ack"] }
    }

    /// Tasks in flight on a connection.
    pub(crate) fn tasks(self) -> usize {
        self.batch.unwrap_or(DEPTH)
    }
}

/// One connection of the load.
pub(crate) struct Client {
    pub(crate) slot: ConnectionSlot,
    /// Number of the connection's first task in flight, from which sub-queues are named.
    first: u64,
    step: usize,
    /// The tasks that the connection has taken, as MessagePack.
    taken: Vec<Vec<u8>>,
}

impl Client {
    /// The client with this number, on a connection.
    pub(crate) fn new(slot: ConnectionSlot, number: usize, form: Form) -> Self {
        Self { slot, first: (number * form.tasks()) as u64, step: 0, taken: Vec::new() }
    }

    /// What the connection sends in the present step.
    pub(crate) fn frames(&self, form: Form) -> Vec<u8> {
        match form.batch {
            Some(tasks) => self.batch(tasks, form),
            None => self.requests(form),
        }
    }

    /// The requests of the present step, back to back.
    fn requests(&self, form: Form) -> Vec<u8> {
        let mut frames = Vec::new();
        let (step, has_sub_queues) = (form.steps()[self.step], form.has_sub_queues);
        for slot in 0..DEPTH {
            let mut arguments = Vec::new();
            match step {
                "put" => {
                    mp::write_array(&mut arguments, 1 + u32::from(has_sub_queues));
                    mp::write_str(&mut arguments, &[b'x'; PAYLOAD]);
                    if has_sub_queues {
                        self.write_sub_queue(slot, &mut arguments);
                    }
                }
                "take" => arguments.extend_from_slice(&[0x91, if form.waits { TIMEOUT } else { 0 }]),
                _ => {
                    mp::write_array(&mut arguments, 1);
                    arguments.extend_from_slice(&self.taken[slot]);
                }
            }
            let name = format!("queue.tube.bench:{step}");
            let body = Body::Call { name: name.as_bytes(), args: &arguments };
            request::encode(&mut frames, (slot * STEPS + self.step) as u64, &body);
        }
        frames
    }

    /// The request of the present step about all tasks of a batch.
    fn batch(&self, tasks: usize, form: Form) -> Vec<u8> {
        let (step, has_sub_queues) = (form.steps()[self.step], form.has_sub_queues);
        let (mut frame, mut arguments) = (Vec::new(), Vec::new());
        let count = u32::try_from(tasks).unwrap_or(u32::MAX);
        match step {
            "put" => {
                mp::write_array(&mut arguments, 1 + u32::from(has_sub_queues));
                mp::write_array(&mut arguments, count);
                (0..tasks).for_each(|_| mp::write_str(&mut arguments, &[b'x'; PAYLOAD]));
                if has_sub_queues {
                    mp::write_array(&mut arguments, count);
                    (0..tasks).for_each(|slot| self.write_sub_queue(slot, &mut arguments));
                }
            }
            "take" => {
                mp::write_array(&mut arguments, 2);
                mp::write_uint(&mut arguments, count.into());
                mp::write_uint(&mut arguments, 0);
            }
            _ => {
                mp::write_array(&mut arguments, 1);
                mp::write_array(&mut arguments, count);
                self.taken.iter().for_each(|id| arguments.extend_from_slice(id));
            }
        }
        let name = format!("queue.tube.bench:{step}_many");
        let body = Body::Call { name: name.as_bytes(), args: &arguments };
        request::encode(&mut frame, self.step as u64, &body);
        frame
    }

    fn write_sub_queue(&self, slot: usize, out: &mut Vec<u8>) {
        mp::write_map(out, 1);
        mp::write_str(out, b"utube");
        mp::write_uint(out, self.first + slot as u64);
    }

    /// Checks the replies to the present step, and goes on to the next.
    pub(crate) fn note(&mut self, replies: &[u8], form: Form) -> Result<(), Box<dyn Error>> {
        let step = form.steps()[self.step];
        // A put that wakes a take comes with the answer of that.
        let states: &[&[u8]] = match step {
            "put" if form.waits => &[b"r", b"t"],
            "put" => &[b"r"],
            "take" => &[b"t"],
            _ => &[b"-"],
        };
        self.taken.clear();
        for values in values(replies)? {
            let mut reader = Reader::new(&values);
            let shown = || format!("{step} was answered with {values:02x?}");
            if reader.array()? != 1 {
                return Err(shown().into());
            }
            let tasks = if form.batch.is_some() { reader.array()? } else { 1 };
            for _ in 0..tasks {
                if reader.array()? != 3 {
                    return Err(shown().into());
                }
                let id = reader.raw()?;
                let state = reader.str()?;
                if !states.contains(&state) || reader.str()? != [b'x'; PAYLOAD] {
                    return Err(shown().into());
                }
                if states.last() == Some(&state) {
                    self.taken.push(id.to_vec());
                }
            }
        }
        let expected = if form.waits && step == "take" { 0 } else { form.tasks() };
        if self.taken.len() != expected {
            return Err(format!("{step}: {expected} tasks were expected, {} shown", self.taken.len()).into());
        }
        self.step = (self.step + 1) % STEPS;
        Ok(())
    }
}

/// The request that makes the tube.
pub(crate) fn create_tube(tube_type: &str) -> Vec<u8> {
    let arguments = Value::Array(vec!["bench".into(), tube_type.into()]).encode();
    let mut frame = Vec::new();
    request::encode(&mut frame, 1, &Body::Call { name: b"queue.create_tube", args: &arguments });
    frame
}

/// The values of replies that all say OK.
pub(crate) fn values(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let mut values = Vec::new();
    while let Split::Frame { content, consumed } = split(bytes, DEFAULT_LIMIT)? {
        match reply::decode(content)?.content {
            Content::Ok { data, .. } => values.push(data.to_vec()),
            other => return Err(format!("a reply without values: {other:?}").into()),
        }
        bytes = &bytes[consumed..];
    }
    Ok(values)
}
