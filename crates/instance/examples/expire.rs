//! The cost of an expired tuple for the loop.
//!
//! An instance in this process has a space with a primary index and one over the deadline; all tuples have expired. The
//! measured part deletes all of them, in slices of `ROWS` tuples, with the rows for the journal. Nothing in it depends
//! on time, so valgrind counts the same instructions in every run:
//!
//! ```sh no_run
//! cargo build --release --package lycosa-instance --example expire
//! valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*expire_counted*' target/release/examples/expire 100000 256
//! ```
//!
//! Without valgrind the program prints the nanoseconds, and in any case what a slice did at the most: tuples, and bytes of
//! the journal.

use std::error::Error;
use std::time::Instant;

use lycosa_instance::{Batch, Buffers, ConnectionSlot, Identity, Instance, Origin, Process, Settings, Trust};
use lycosa_iproto::frame::{DEFAULT_LIMIT, Split, split};
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body};
use lycosa_iproto::vclock::Vclock;
use lycosa_queue::{Configuration, Queue};
use lycosa_store::Store;
use lycosa_tuple::value::Value;
use uuid::Uuid;

/// Seconds since the epoch when the instance starts.
const START: u64 = 1_700_000_000;
/// The space.
const SPACE: u32 = 4000;
/// System spaces.
const SPACES: u32 = 280;
const INDEXES: u32 = 288;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let usage = "usage: expire TUPLES ROWS";
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u64>());
    let (Some(Ok(tuples)), Some(Ok(rows))) = (numbers.next(), numbers.next()) else {
        return Err(usage.into());
    };
    let now = START * 1_000_000;
    let mut instance = instance(now)?;
    instance.start(now)?;
    let slot = instance.connect(Origin { peer: "127.0.0.1:40000".to_owned(), trust: Trust::Admin }, now)?;
    make_space(&mut instance, slot, now)?;
    for number in 0..tuples {
        // Neighbors by deadline are no neighbors by id.
        let deadline = number * 7_919 % tuples;
        let row = vec![number.into(), format!("user{number}@example.org").into(), deadline.into()];
        let tuple = Value::Array(row).encode();
        ask(&mut instance, slot, &Body::Insert { space: SPACE, tuple: &tuple }, now)?;
    }
    let options = Value::map([("field", 3_u64), ("scan_size", rows), ("budget_rows", rows), ("share", 100)]);
    let args = Value::Array(vec!["bench".into(), SPACE.into(), options]).encode();
    // Only the number of tuples ends a slice: the clock stands still.
    instance.set_elapsed(Box::new(|| 0));
    ask(&mut instance, slot, &Body::Call { name: b"expiration.start", args: &args }, now)?;
    let before = instance.status().expiration.expired;
    let began = Instant::now();
    let (most_bytes, mut last) = expire_counted(&mut instance, now);
    let elapsed = began.elapsed();
    last -= before;
    println!(
        "{last} tuples in slices of {rows}: {} ns each; a turn made {most_bytes} bytes of rows at the most",
        elapsed.as_nanos() / u128::from(last.max(1))
    );
    Ok(())
}

/// Lets everything expire. The most bytes of rows that a turn made, and the tuples that are gone.
#[inline(never)]
fn expire_counted(instance: &mut Instance, now: u64) -> (usize, u64) {
    let mut most = 0;
    loop {
        let next = instance.tick(now);
        while let Some(Batch { rows, ends, lsn, .. }) = instance.poll_append() {
            most = most.max(rows.len());
            instance.handle_durable(lsn, Buffers { rows, ends });
        }
        if next.is_none_or(|next| next > now) {
            return (most, instance.status().expiration.expired);
        }
    }
}

/// Sends one request and checks its reply.
fn ask(instance: &mut Instance, slot: ConnectionSlot, body: &Body<'_>, now: u64) -> Outcome {
    let mut frame = Vec::new();
    request::encode(&mut frame, 1, body);
    let Split::Frame { content, .. } = split(&frame, DEFAULT_LIMIT)? else {
        return Err("half a frame".into());
    };
    let sent = instance.output(slot).len();
    instance.consume(slot, sent);
    instance.handle_frame(slot, content, now).map_err(|_| "a malformed request")?;
    while let Some(Batch { rows, ends, lsn, .. }) = instance.poll_append() {
        instance.handle_durable(lsn, Buffers { rows, ends });
    }
    let Split::Frame { content, .. } = split(instance.output(slot), DEFAULT_LIMIT)? else {
        return Err("no reply".into());
    };
    match reply::decode(content)?.content {
        Content::Ok { .. } => Ok(()),
        other => Err(format!("{body:?}: {other:?}").into()),
    }
}

fn make_space(instance: &mut Instance, slot: ConnectionSlot, now: u64) -> Outcome {
    let array = Value::Array;
    let row = array(vec![
        SPACE.into(),
        1_u32.into(),
        "expiring".into(),
        "memtx".into(),
        0_u32.into(),
        Value::Map(vec![]),
        array(vec![]),
    ]);
    ask(instance, slot, &Body::Insert { space: SPACES, tuple: &row.encode() }, now)?;
    for (id, name, field) in [(0_u32, "primary", 0_u32), (1, "deadline", 2)] {
        let parts = array(vec![array(vec![field.into(), "unsigned".into()])]);
        let unique = Value::map([("unique", id == 0)]);
        let row = array(vec![SPACE.into(), id.into(), name.into(), "tree".into(), unique, parts]);
        ask(instance, slot, &Body::Insert { space: INDEXES, tuple: &row.encode() }, now)?;
    }
    Ok(())
}

/// An instance without data, whose queue has not started.
fn instance(now: u64) -> Outcome<Instance> {
    let cluster = Uuid::from_bytes([0x22; 16]);
    let first = Uuid::from_bytes([1; 16]);
    let mut store = Store::new(lycosa_store::Settings { memory_limit: 8 << 30, ..Default::default() });
    store.bootstrap(&cluster.to_string(), &first.to_string())?;
    let queue = Queue::new(Configuration::default(), Box::new(|| [3; 16]));
    let process = Process { id: 1, entropy: Box::new(|bytes| bytes.fill(7)) };
    let identity = Identity { instance: first, cluster, replica_id: 1 };
    Ok(Instance::new(Settings::default(), identity, process, store, queue, Vclock::new(), now))
}
