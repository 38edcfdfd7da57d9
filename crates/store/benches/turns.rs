//! The longest step of work that a turn of the loop does in steps, and the work that is not done in steps.
//!
//! `cargo bench -p lycosa-store --bench turns [-- NUMBER]` measures with NUMBER tasks, by default five million. With
//! `--test`, or if it is not cargo's `bench` that runs it, it runs small, to show that it works.

use std::time::{Duration, Instant};

use lycosa_store::ddl::{self, IndexSpec, PartSpec, SpaceSpec};
use lycosa_store::{
    Budget, Cursor, Deferral, Error, FLUSH_PORTION, IteratorType, Progress, Settings, SpaceId, Statement,
    Store, user,
};
use lycosa_tuple::mp;

const PAYLOAD: usize = 60;
const STATUS: u32 = 1;
const WATCH: u32 = 2;
/// A task's next event if nothing will happen to it.
const NEVER: u64 = 16_725_225_600_000_000;
const BEYOND: u64 = 4_102_444_800_000_000;

/// The steps of one piece of work.
struct Steps {
    name: &'static str,
    count: u64,
    longest: Duration,
    all: Duration,
}

impl Steps {
    /// Takes steps as long as there are more.
    fn take(name: &'static str, mut step: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
        let mut steps = Self { name, count: 0, longest: Duration::ZERO, all: Duration::ZERO };
        loop {
            let start = Instant::now();
            let has_more = step()?;
            let took = start.elapsed();
            steps.count += 1;
            steps.all += took;
            steps.longest = steps.longest.max(took);
            if !has_more {
                break;
            }
        }
        let (all, longest) = (steps.all.as_secs_f64() * 1e3, steps.longest.as_secs_f64() * 1e6);
        println!("{:42} {:9} steps, longest {longest:9.0} µs, all {all:9.1} ms", steps.name, steps.count);
        Ok(())
    }

    fn once(name: &'static str, mut work: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        Self::take(name, || work().map(|()| false))
    }
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let told = arguments.iter().find_map(|argument| argument.parse().ok());
    let count: u64 = told.unwrap_or(if has("--bench") && !has("--test") { 5_000_000 } else { 20_000 });
    println!("{count} tasks");
    let mut store = Store::new(Settings { memory_limit: u64::MAX, ..Settings::default() });
    store.bootstrap("a9224992-9578-42f4-b33e-0ab2104f5a60", "457d9794-5488-4899-a2ad-4853b0feda40")?;
    let tube = new_tube(&mut store)?;
    let mut tuple = Vec::new();
    let mut put = |store: &mut Store, ids: std::ops::Range<u64>, state: &[u8], event: u64| {
        ids.into_iter().try_for_each(|id| {
            task(&mut tuple, id, state, event);
            transaction(store, &Statement::Insert { space: tube, tuple: &tuple })
        })
    };
    put(&mut store, 0..count, b"r", NEVER)?;
    let few = 12_000.min(count);
    put(&mut store, count..count + few, b"t", NEVER)?;
    put(&mut store, count + few..count + 2 * few, b"r", BEYOND - 1)?;
    let ready = key(b"r");
    let taken = key(b"t");

    Steps::once("first of the deferred part, merged", || {
        store.first(tube, STATUS, IteratorType::Eq, &taken).map(drop)
    })?;
    Steps::once("a walk over the states, merged", || {
        store.range(tube, STATUS, IteratorType::All, &[0x90], 0).map(drop)
    })?;
    Steps::once("prepare the states", || store.read(tube, STATUS, 0).map(drop))?;
    Steps::once("due tasks, few deferred", || store.first_within(tube, WATCH, &ready).map(drop))?;
    Steps::take("prepare the deadlines", || Ok(store.read(tube, WATCH, FLUSH_PORTION)?.is_none()))?;
    let mut cursor = Cursor::new(user::ADMIN, tube, WATCH, IteratorType::All, &[0x90]);
    let mut bytes = 0;
    Steps::take("a cursor over the deadlines, 1024 a step", || {
        let budget = Budget::of_rows(1024);
        let progress = store.advance(&mut cursor, budget, &mut |tuple| bytes += tuple.len());
        Ok(progress.expect("the space stays") == Progress::More)
    })?;
    Steps::once("create an index, in one turn", || {
        let parts = [PartSpec::new(1, "string"), PartSpec::new(2, "unsigned")];
        commit(&mut store, |s| {
            ddl::create_index(s, tube, &IndexSpec { unique: false, ..IndexSpec::new("new", &parts) })
        })
        .map(drop)
    })?;
    Steps::once("drop the space", || commit(&mut store, |s| ddl::drop_space(s, tube)))?;
    Steps::take("free it, 256 tuples a step", || Ok(store.collect_garbage(256)))?;
    Ok(())
}

fn new_tube(store: &mut Store) -> Result<SpaceId, Error> {
    let part = PartSpec::new;
    let tube = commit(store, |s| {
        let tube = ddl::create_space(s, &SpaceSpec::new("tube", &[]))?;
        ddl::create_index(s, tube, &IndexSpec::new("task_id", &[part(0, "unsigned")]))?;
        ddl::create_index(s, tube, &IndexSpec::new("status", &[part(1, "string"), part(0, "unsigned")]))?;
        let parts = [part(1, "string"), part(2, "unsigned")];
        ddl::create_index(s, tube, &IndexSpec { unique: false, ..IndexSpec::new("watch", &parts) })?;
        Ok(tube)
    })?;
    store.defer_entries(tube, STATUS, Deferral::Parts { cached: Some(b"\xa1r"), deferred: b"\xa1t" });
    store.defer_entries(tube, WATCH, Deferral::Beyond { field: 2, bound: BEYOND });
    Ok(tube)
}

fn commit<T>(store: &mut Store, work: impl FnOnce(&mut Store) -> Result<T, Error>) -> Result<T, Error> {
    store.begin(user::ADMIN);
    let result = work(store)?;
    store.commit();
    store.drain_committed(&mut |_| {});
    Ok(result)
}

fn transaction(store: &mut Store, statement: &Statement<'_>) -> Result<(), Error> {
    commit(store, |s| s.execute(statement).map(drop))
}

fn task(out: &mut Vec<u8>, id: u64, state: &[u8], event: u64) {
    out.clear();
    mp::write_array(out, 4);
    mp::write_uint(out, id);
    mp::write_str(out, state);
    mp::write_uint(out, event);
    mp::write_str(out, &[b'.'; PAYLOAD]);
}

fn key(state: &[u8]) -> Vec<u8> {
    let mut key = vec![0x91];
    mp::write_str(&mut key, state);
    key
}
