//! Cycles of put, take and ack through a whole instance, for the gate on instructions (`cargo xtask count`).
//!
//! The program is the loop of a server without sockets, files and threads: eight connections with 32 requests under way on
//! each, turn by turn, every reply checked. `fifo:100` sends batches instead: each connection has one request of 100 tasks
//! under way (`put_many`, `take_many`, `ack_many`), and a cycle is still that of one task. Nothing in it depends on time or
//! on other processes, so two runs of one binary execute the same instructions. Valgrind counts those below
//! [`serve_counted`], which are the instance's alone.
//!
//! ```sh no_run
//! cargo build --release --package lycosa-instance --example cycles
//! valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*serve_counted*' target/release/examples/cycles fifottl
//! ```

use std::error::Error;

use lycosa_instance::{Batch, Buffers, ConnectionSlot, Identity, Instance, Origin, Process, Settings, Trust};
use lycosa_iproto::frame::{DEFAULT_LIMIT, Split, split};
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body};
use lycosa_iproto::vclock::Vclock;
use lycosa_queue::{Configuration, Queue};
use lycosa_store::Store;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::value::Value;
use uuid::Uuid;

/// Connections.
const CONNECTIONS: usize = 8;
/// Requests under way on each, where a request is about one task.
const DEPTH: usize = 32;
/// Bytes of a payload.
const PAYLOAD: usize = 100;
/// Cycles of each slot before the count begins.
const WARMUP: usize = 4;
/// Cycles of each slot that are counted.
const COUNTED: usize = 16;
/// What a turn takes, in microseconds.
const TURN: u64 = 50;
/// Seconds since the epoch when the instance starts.
const START: u64 = 1_700_000_000;

/// The steps of a cycle, in order.
const STEPS: [&str; 3] = ["put", "take", "ack"];

fn main() -> Result<(), Box<dyn Error>> {
    let what = std::env::args().nth(1).ok_or("usage: cycles TUBE_TYPE[:TASKS_OF_A_BATCH]")?;
    let (tube_type, batch) = match what.split_once(':') {
        Some((tube_type, batch)) => (tube_type, Some(batch.parse()?)),
        None => (what.as_str(), None),
    };
    let mut load = Load::new(tube_type, batch)?;
    for _ in 0..WARMUP * STEPS.len() {
        load.step(serve)?;
    }
    for _ in 0..COUNTED * STEPS.len() {
        load.step(serve_counted)?;
    }
    println!("{}", CONNECTIONS * load.form.tasks() * COUNTED);
    Ok(())
}

/// What the requests of the load are like.
#[derive(Clone, Copy)]
struct Form {
    has_sub_queues: bool,
    /// Tasks of a request that is about many; `None`: each request is about one task.
    batch: Option<usize>,
}

impl Form {
    /// Tasks in flight on a connection.
    fn tasks(self) -> usize {
        self.batch.unwrap_or(DEPTH)
    }
}

/// One connection of the load.
struct Client {
    slot: ConnectionSlot,
    /// Number of the connection's first task in flight, from which sub-queues are named.
    first: u64,
    step: usize,
    /// The tasks that the connection has taken, as MessagePack.
    taken: Vec<Vec<u8>>,
}

struct Load {
    instance: Instance,
    clients: Vec<Client>,
    /// Microseconds since the epoch.
    now: u64,
    form: Form,
}

impl Load {
    fn new(tube_type: &str, batch: Option<usize>) -> Result<Self, Box<dyn Error>> {
        let identity = Identity {
            instance: Uuid::from_bytes([0x11; 16]),
            cluster: Uuid::from_bytes([0x22; 16]),
            replica_id: 1,
        };
        let mut store = Store::new(lycosa_store::Settings::default());
        store.bootstrap(&identity.cluster.to_string(), &identity.instance.to_string())?;
        let mut sessions = 0_u128;
        let new_session_id = Box::new(move || {
            sessions += 1;
            sessions.to_be_bytes()
        });
        let queue = Queue::new(Configuration::default(), new_session_id);
        let process = Process { id: 1, entropy: Box::new(|bytes| bytes.fill(7)) };
        let now = START * 1_000_000;
        let mut instance =
            Instance::new(Settings::default(), identity, process, store, queue, Vclock::new(), now);
        instance.start(now)?;
        let form = Form { has_sub_queues: tube_type.starts_with("utube"), batch };
        let mut load = Self { instance, clients: Vec::new(), now, form };
        for number in 0..CONNECTIONS {
            let origin = Origin { peer: "127.0.0.1:40000".to_owned(), trust: Trust::Admin };
            let slot = load.instance.connect(origin, load.now)?;
            let first = (number * form.tasks()) as u64;
            load.clients.push(Client { slot, first, step: 0, taken: Vec::new() });
        }
        load.serve_frames(0, &[], serve);
        let arguments = Value::Array(vec!["bench".into(), tube_type.into()]).encode();
        let mut frame = Vec::new();
        request::encode(&mut frame, 1, &Body::Call { name: b"queue.create_tube", args: &arguments });
        let replies = load.serve_frames(0, &frame, serve);
        values(&replies)?;
        Ok(load)
    }

    /// Lets every connection do one step with all its tasks, one connection a turn.
    fn step(&mut self, serve: Serve) -> Result<(), Box<dyn Error>> {
        for number in 0..self.clients.len() {
            let frames = match self.form.batch {
                Some(tasks) => self.clients[number].batch(tasks, self.form.has_sub_queues),
                None => self.clients[number].requests(self.form.has_sub_queues),
            };
            let replies = self.serve_frames(number, &frames, serve);
            self.clients[number].note(&replies, self.form)?;
        }
        Ok(())
    }

    /// One turn, with these bytes from one connection; what the connection is sent.
    fn serve_frames(&mut self, number: usize, frames: &[u8], serve: Serve) -> Vec<u8> {
        self.now += TURN;
        let mut sent = Vec::with_capacity(64 << 10);
        serve(&mut self.instance, self.clients[number].slot, frames, self.now, &mut sent);
        sent
    }
}

impl Client {
    /// The requests of the present step, back to back.
    fn requests(&self, has_sub_queues: bool) -> Vec<u8> {
        let mut frames = Vec::new();
        for slot in 0..DEPTH {
            let mut arguments = Vec::new();
            match STEPS[self.step] {
                "put" => {
                    mp::write_array(&mut arguments, 1 + u32::from(has_sub_queues));
                    mp::write_str(&mut arguments, &[b'x'; PAYLOAD]);
                    if has_sub_queues {
                        self.write_sub_queue(slot, &mut arguments);
                    }
                }
                "take" => arguments.extend_from_slice(&[0x91, 0]),
                _ => {
                    mp::write_array(&mut arguments, 1);
                    arguments.extend_from_slice(&self.taken[slot]);
                }
            }
            let name = format!("queue.tube.bench:{}", STEPS[self.step]);
            let body = Body::Call { name: name.as_bytes(), args: &arguments };
            request::encode(&mut frames, (slot * STEPS.len() + self.step) as u64, &body);
        }
        frames
    }

    /// The request of the present step about all tasks of a batch.
    fn batch(&self, tasks: usize, has_sub_queues: bool) -> Vec<u8> {
        let (mut frame, mut arguments) = (Vec::new(), Vec::new());
        let count = u32::try_from(tasks).unwrap_or(u32::MAX);
        match STEPS[self.step] {
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
        let name = format!("queue.tube.bench:{}_many", STEPS[self.step]);
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
    fn note(&mut self, replies: &[u8], form: Form) -> Result<(), Box<dyn Error>> {
        let state = ["r", "t", "-"][self.step].as_bytes();
        self.taken.clear();
        for values in values(replies)? {
            let mut reader = Reader::new(&values);
            let shown = || format!("{} was answered with {values:02x?}", STEPS[self.step]);
            if reader.array()? != 1 {
                return Err(shown().into());
            }
            let tasks = if form.batch.is_some() { reader.array()? } else { 1 };
            for _ in 0..tasks {
                if reader.array()? != 3 {
                    return Err(shown().into());
                }
                let id = reader.raw()?;
                if reader.str()? != state || reader.str()? != [b'x'; PAYLOAD] {
                    return Err(shown().into());
                }
                self.taken.push(id.to_vec());
            }
        }
        if self.taken.len() != form.tasks() {
            return Err(format!("{} tasks were asked for, {} shown", form.tasks(), self.taken.len()).into());
        }
        self.step = (self.step + 1) % STEPS.len();
        Ok(())
    }
}

/// The values of replies that all say OK.
fn values(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
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

/// What a turn of a server does with the bytes that one connection has sent.
type Serve = fn(&mut Instance, ConnectionSlot, &[u8], u64, &mut Vec<u8>);

/// [`serve`], in which instructions are counted.
#[inline(never)]
fn serve_counted(instance: &mut Instance, slot: ConnectionSlot, bytes: &[u8], now: u64, sent: &mut Vec<u8>) {
    serve(instance, slot, bytes, now, sent);
    // Without this the two functions end up as one.
    std::hint::black_box(sent);
}

#[inline(never)]
fn serve(instance: &mut Instance, slot: ConnectionSlot, bytes: &[u8], now: u64, sent: &mut Vec<u8>) {
    let mut rest = bytes;
    while !instance.is_paused(slot)
        && let Ok(Split::Frame { content, consumed }) = split(rest, instance.max_frame_size())
    {
        if instance.handle_frame(slot, content, now).is_err() {
            break;
        }
        rest = &rest[consumed..];
    }
    instance.account_output(slot);
    instance.tick(now);
    while let Some(Batch { rows, ends, lsn, .. }) = instance.poll_append() {
        instance.handle_durable(lsn, Buffers { rows, ends });
    }
    while let Some(slot) = instance.poll_ready() {
        let ready = instance.output(slot);
        let length = ready.len();
        sent.extend_from_slice(ready);
        instance.consume(slot, length);
    }
}
