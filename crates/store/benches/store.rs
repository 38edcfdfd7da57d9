//! Costs of a store: nanoseconds per statement of a queue's day, and per row of a snapshot or log.
//!
//! `cargo bench -p lycosa-store --bench store [-- NUMBER]` measures with NUMBER tasks, by default a million. With
//! `--test`, or if it is not cargo's `bench` that runs it, it runs small, to show that it works.

use std::time::Instant;

use lycosa_store::ddl::{self, IndexSpec, PartSpec, SpaceSpec};
use lycosa_store::{Error, IteratorType, Settings, SpaceId, Statement, Store, system, user};
use lycosa_tuple::mp::{self, Reader};

const PAYLOAD: usize = 100;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let told = arguments.iter().find_map(|argument| argument.parse().ok());
    let count: u64 = told.unwrap_or(if has("--bench") && !has("--test") { 1_000_000 } else { 1000 });
    println!("{count} tasks with {PAYLOAD} bytes of payload");
    let (mut store, tube) = new_tube()?;
    let mut tuple = Vec::new();
    time("put", count, || {
        for id in 0..count {
            task(&mut tuple, id, b"r");
            transaction(&mut store, &Statement::Insert { space: tube, tuple: &tuple })?;
        }
        Ok(())
    })?;
    let memory = store.memory();
    println!("{:8} bytes per task ({} in indexes)", memory.used / count, memory.indexes / count);
    let snapshot = snapshot_of(&store);
    time("snapshot row", snapshot.len() as u64, || load(&snapshot, &[]).map(drop))?;
    let ready = key(b"r");
    let mut log = Vec::new();
    time("take", count, || {
        for _ in 0..count {
            let id = store.first(tube, 1, IteratorType::Eq, &ready)?.and_then(id_of).unwrap_or_default();
            let key = id_key(id);
            let operations = b"\x91\x93\xa1=\x01\xa1t";
            transaction(
                &mut store,
                &Statement::Update { space: tube, index: 0, key: &key, operations, base: 0 },
            )?;
            log.push(key);
        }
        Ok(())
    })?;
    time("log row", count, || load(&snapshot, &log).map(drop))?;
    time("ack", count, || {
        for key in &log {
            transaction(&mut store, &Statement::Delete { space: tube, index: 0, key })?;
        }
        Ok(())
    })
}

fn time(name: &str, count: u64, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let start = Instant::now();
    work()?;
    println!("{:8.0} ns per {name}", start.elapsed().as_nanos() as f64 / count as f64);
    Ok(())
}

/// One statement as an instance executes it: with its effects taken out.
fn transaction(store: &mut Store, statement: &Statement<'_>) -> Result<(), Error> {
    store.begin(user::ADMIN);
    store.execute(statement)?;
    store.commit();
    store.drain_committed(&mut |committed| assert_eq!(committed.len(), 1));
    Ok(())
}

/// A store with the space of a tube: tasks by id, and by status and id.
fn new_tube() -> Result<(Store, SpaceId), Error> {
    let mut store = Store::new(Settings { memory_limit: u64::MAX, ..Settings::default() });
    store.bootstrap("a9224992-9578-42f4-b33e-0ab2104f5a60", "457d9794-5488-4899-a2ad-4853b0feda40")?;
    store.begin(user::ADMIN);
    let tube = ddl::create_space(&mut store, &SpaceSpec::new("tube", &[]))?;
    let (id, status) = (PartSpec::new(0, "unsigned"), PartSpec::new(1, "string"));
    ddl::create_index(&mut store, tube, &IndexSpec::new("task_id", &[id]))?;
    ddl::create_index(&mut store, tube, &IndexSpec::new("status", &[status, id]))?;
    store.commit();
    store.drain_committed(&mut |_| {});
    Ok((store, tube))
}

fn task(out: &mut Vec<u8>, id: u64, status: &[u8]) {
    out.clear();
    mp::write_array(out, 3);
    mp::write_uint(out, id);
    mp::write_str(out, status);
    mp::write_str(out, &[b'.'; PAYLOAD]);
}

fn key(status: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    mp::write_array(&mut key, 1);
    mp::write_str(&mut key, status);
    key
}

fn id_key(id: u64) -> Vec<u8> {
    let mut key = Vec::new();
    mp::write_array(&mut key, 1);
    mp::write_uint(&mut key, id);
    key
}

fn id_of(tuple: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(tuple);
    reader.array().and_then(|_| reader.uint()).ok()
}

fn snapshot_of(store: &Store) -> Vec<(SpaceId, Vec<u8>)> {
    let mut rows = Vec::new();
    store.for_each_snapshot_row(&mut |space, tuple, _| rows.push((space, tuple.to_vec())));
    rows
}

/// Recovers a store from a snapshot and a log of updates.
fn load(snapshot: &[(SpaceId, Vec<u8>)], log: &[Vec<u8>]) -> Result<Store, Error> {
    let mut store = Store::new(Settings { memory_limit: u64::MAX, ..Settings::default() });
    for (space, tuple) in snapshot {
        store.recover(&Statement::Insert { space: *space, tuple })?;
    }
    store.finish_snapshot()?;
    let start = Instant::now();
    for key in log {
        let operations = b"\x91\x93\xa1=\x01\xa1t";
        let space = system::MAX + 1;
        store.recover(&Statement::Update { space, index: 0, key, operations, base: 0 })?;
    }
    if !log.is_empty() {
        println!("{:8.0} ns per row of the log alone", start.elapsed().as_nanos() as f64 / log.len() as f64);
    }
    store.finish_recovery()?;
    Ok(store)
}
