//! Cycles of put, take and ack through a whole instance, for the gate on instructions (`cargo xtask count`).
//!
//! The program is the loop of a server without sockets, files and threads: eight connections with 32 requests under way on
//! each, turn by turn, every reply checked. `fifo:100` sends batches instead: each connection has one request of 100 tasks
//! under way (`put_many`, `take_many`, `ack_many`), and a cycle is still that of one task. With `fifo:wait` the takes come before
//! the puts that they wait for. Nothing in it depends on time or
//! on other processes, so two runs of one binary execute the same instructions. Valgrind counts those below
//! [`serve_counted`], which are the instance's alone.
//!
//! ```sh no_run
//! cargo build --release --package lycosa-instance --example cycles
//! valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*serve_counted*' target/release/examples/cycles fifottl
//! ```

mod load;

use std::error::Error;

use lycosa_instance::{Batch, Buffers, ConnectionSlot, Identity, Instance, Origin, Process, Settings, Trust};
use lycosa_iproto::frame::{Split, split};
use lycosa_iproto::vclock::Vclock;
use lycosa_queue::{Configuration, Queue};
use lycosa_store::Store;
use uuid::Uuid;

use crate::load::{CONNECTIONS, COUNTED, Client, Form, START, STEPS, TURN, WARMUP, create_tube, values};

fn main() -> Result<(), Box<dyn Error>> {
    let what = std::env::args().nth(1).ok_or("usage: cycles TUBE_TYPE[:TASKS_OF_A_BATCH|:wait]")?;
    let (tube_type, suffix) = what.split_once(':').unwrap_or((&what, ""));
    let waits = suffix == "wait";
    let batch = (!waits && !suffix.is_empty()).then(|| suffix.parse()).transpose()?;
    let form = Form { has_sub_queues: tube_type.starts_with("utube"), batch, waits };
    let mut load = Load::new(tube_type, form)?;
    for _ in 0..WARMUP * STEPS {
        load.step(serve)?;
    }
    for _ in 0..COUNTED * STEPS {
        load.step(serve_counted)?;
    }
    println!("{}", CONNECTIONS * load.form.tasks() * COUNTED);
    Ok(())
}

struct Load {
    instance: Instance,
    clients: Vec<Client>,
    /// Microseconds since the epoch.
    now: u64,
    form: Form,
}

impl Load {
    fn new(tube_type: &str, form: Form) -> Result<Self, Box<dyn Error>> {
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
        let mut load = Self { instance, clients: Vec::new(), now, form };
        for number in 0..CONNECTIONS {
            let origin = Origin { peer: "127.0.0.1:40000".to_owned(), trust: Trust::Admin };
            let slot = load.instance.connect(origin, load.now)?;
            load.clients.push(Client::new(slot, number, form));
        }
        load.serve_frames(0, &[], serve);
        let replies = load.serve_frames(0, &create_tube(tube_type), serve);
        values(&replies)?;
        Ok(load)
    }

    /// Lets every connection do one step with all its tasks, one connection a turn.
    fn step(&mut self, serve: Serve) -> Result<(), Box<dyn Error>> {
        for number in 0..self.clients.len() {
            let frames = self.clients[number].frames(self.form);
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
