//! The cost of a promotion for a replica on which many tasks wait.
//!
//! A master in this process makes the tasks, takes [`TAKEN`] of them and dies; a replica has applied its rows. The measured
//! part is the turn in which the replica becomes the master. Nothing in it depends on time, so valgrind counts the same
//! instructions in every run:
//!
//! ```sh no_run
//! cargo build --release --package lycosa-instance --example promotion
//! valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*promote_counted*' target/release/examples/promotion utube 100000
//! ```
//!
//! Without valgrind the program prints the microseconds that the turn took.

use std::error::Error;
use std::time::Instant;

use lycosa_instance::{Batch, Buffers, Identity, Instance, Origin, Process, Settings, Trust};
use lycosa_iproto::frame::{DEFAULT_LIMIT, Split, split};
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body};
use lycosa_iproto::row::{RowBody, RowHeader, decode_row};
use lycosa_iproto::vclock::Vclock;
use lycosa_queue::{Configuration, Queue, QueueState, Seconds};
use lycosa_store::Store;
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;
use uuid::Uuid;

/// Tasks that are taken when the master changes.
const TAKEN: u64 = 100;
/// Tasks of one call of `put_many`.
const BATCH: u64 = 1000;
/// Seconds since the epoch when the instances start.
const START: u64 = 1_700_000_000;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let usage = "usage: promotion TUBE_TYPE TASKS";
    let tube_type = std::env::args().nth(1).ok_or(usage)?;
    let tasks: u64 = std::env::args().nth(2).and_then(|tasks| tasks.parse().ok()).ok_or(usage)?;
    let now = START * 1_000_000;
    let mut master = instance(1, now)?;
    let mut replica = instance(2, now)?;
    replica.set_read_only(true, now);
    master.start(now)?;
    let slot = master.connect(Origin { peer: "127.0.0.1:40000".to_owned(), trust: Trust::Admin }, now)?;
    let mut call = |name: &str, arguments: Vec<Value>| -> Outcome {
        let args = Value::Array(arguments).encode();
        let mut frame = Vec::new();
        request::encode(&mut frame, 1, &Body::Call { name: name.as_bytes(), args: &args });
        let Split::Frame { content, .. } = split(&frame, DEFAULT_LIMIT)? else {
            return Err("half a frame".into());
        };
        let sent = master.output(slot).len();
        master.consume(slot, sent);
        master.handle_frame(slot, content, now).map_err(|_| "a malformed request")?;
        while let Some(Batch { rows, ends, lsn, .. }) = master.poll_append() {
            replicate(&mut replica, &rows, now)?;
            master.handle_durable(lsn, Buffers { rows, ends });
        }
        let answer = master.output(slot);
        let Split::Frame { content, .. } = split(answer, DEFAULT_LIMIT)? else {
            return Err("no answer".into());
        };
        match reply::decode(content)?.content {
            Content::Ok { .. } => Ok(()),
            other => Err(format!("{name}: {other:?}").into()),
        }
    };
    call("queue.create_tube", vec!["bench".into(), tube_type.as_str().into()])?;
    let has_sub_queues = tube_type.starts_with("utube");
    for first in (0..tasks).step_by(BATCH as usize) {
        let numbers = first..tasks.min(first + BATCH);
        let payloads = numbers.clone().map(|_| Value::from("payload"));
        let mut arguments = vec![Value::Array(payloads.collect())];
        if has_sub_queues {
            // As many sub-queues as tasks.
            let options = numbers.map(|number| Value::map([("utube", Value::from(number))]));
            arguments.push(Value::Array(options.collect()));
        }
        call("queue.tube.bench:put_many", arguments)?;
    }
    call("queue.tube.bench:take_many", vec![Value::from(TAKEN), Value::from(0)])?;
    drop(master);
    let began = Instant::now();
    promote_counted(&mut replica, now);
    let elapsed = began.elapsed();
    if replica.queue().state() != QueueState::Running {
        return Err(format!("the queue is in state {}", replica.queue().state()).into());
    }
    println!("{tube_type}, {tasks} tasks: {} µs", elapsed.as_micros());
    Ok(())
}

/// An instance without data, whose queue has not started.
fn instance(replica_id: u32, now: u64) -> Outcome<Instance> {
    let cluster = Uuid::from_bytes([0x22; 16]);
    let first = Uuid::from_bytes([1; 16]);
    let mut store = Store::new(lycosa_store::Settings { memory_limit: 8 << 30, ..Default::default() });
    store.bootstrap(&cluster.to_string(), &first.to_string())?;
    let mut sessions = u128::from(replica_id) << 64;
    let new_session_id = Box::new(move || {
        sessions += 1;
        sessions.to_be_bytes()
    });
    let ttr = Some(Seconds::from_double(60.0));
    let queue = Queue::new(Configuration { ttr, in_replicaset: true }, new_session_id);
    let process = Process { id: 1, entropy: Box::new(|bytes| bytes.fill(7)) };
    let identity = Identity { instance: Uuid::from_bytes([replica_id as u8; 16]), cluster, replica_id };
    Ok(Instance::new(Settings::default(), identity, process, store, queue, Vclock::new(), now))
}

/// Applies the rows of a batch, transaction by transaction.
fn replicate(replica: &mut Instance, rows: &[u8], now: u64) -> Outcome {
    let mut reader = Reader::new(rows);
    let mut transaction: Vec<(RowHeader, RowBody<'_>)> = Vec::new();
    while !reader.is_empty() {
        transaction.push(decode_row(&mut reader)?);
        if transaction.last().is_some_and(|(header, _)| header.is_commit) {
            let applied = replica.apply(&transaction, now).map_err(|error| error.message);
            applied?;
            transaction.clear();
        }
    }
    settle(replica);
    Ok(())
}

/// Everything that the instance has written is on its disk.
fn settle(instance: &mut Instance) {
    while let Some(Batch { rows, ends, lsn, .. }) = instance.poll_append() {
        instance.handle_durable(lsn, Buffers { rows, ends });
    }
}

/// The turn in which the replica becomes the master.
#[inline(never)]
fn promote_counted(instance: &mut Instance, now: u64) {
    instance.set_read_only(false, now);
    instance.tick(now);
    settle(instance);
}
