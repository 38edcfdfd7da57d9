//! Costs of the arena and the indexes: nanoseconds per operation and bytes per entry.
//!
//! `cargo bench -p lycosa-store --bench index [-- NUMBER]` measures with NUMBER tuples, by default a million.
//! With `--test`, or if it is not cargo's `bench` that runs it, it runs small, to show that it works.

use std::hint::black_box;
use std::time::Instant;

use lycosa_store::arena::{Arena, Handle};
use lycosa_store::index::Index;
use lycosa_store::statement::IteratorType;
use lycosa_tuple::field::FieldType;
use lycosa_tuple::key::{KeyDef, KeyPart};
use lycosa_tuple::mp;

const PAYLOAD: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let told = arguments.iter().find_map(|argument| argument.parse().ok());
    let count = told.unwrap_or(if has("--bench") && !has("--test") { 1_000_000 } else { 1000 });
    println!("{count} tuples with {PAYLOAD} bytes of payload");
    arena(count);
    index("TREE (id)", count, || Index::tree(primary(), 1, true), |id| number_key(&[id]));
    index("HASH (id)", count, || Index::hash(primary()), |id| number_key(&[id]));
    index("TREE (status, id)", count, by_status, status_key);
    queue(count);
}

fn primary() -> KeyDef {
    KeyDef::new(vec![KeyPart::new(0, FieldType::Unsigned)])
}

fn by_status() -> Index {
    let parts = vec![KeyPart::new(1, FieldType::String), KeyPart::new(0, FieldType::Unsigned)];
    Index::tree(KeyDef::new(parts), 2, true)
}

fn task(out: &mut Vec<u8>, id: u64, status: u8) {
    out.clear();
    mp::write_array(out, 3);
    mp::write_uint(out, id);
    mp::write_str(out, &[status]);
    mp::write_str(out, &[b'.'; PAYLOAD]);
}

fn number_key(numbers: &[u64]) -> Vec<u8> {
    let mut key = Vec::new();
    for &number in numbers {
        mp::write_uint(&mut key, number);
    }
    key
}

fn status_key(id: u64) -> Vec<u8> {
    let mut key = Vec::new();
    mp::write_str(&mut key, b"r");
    mp::write_uint(&mut key, id);
    key
}

/// The numbers below `count`, each once, scattered.
fn scattered(count: u64, seed: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed);
    for place in (1..numbers.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        numbers.swap(place, (state % (place as u64 + 1)) as usize);
    }
    numbers
}

fn measure(what: &str, count: u64, run: impl FnOnce()) {
    let start = Instant::now();
    run();
    let nanoseconds = start.elapsed().as_nanos() as f64 / count.max(1) as f64;
    println!("  {what:<34} {nanoseconds:>8.1} ns");
}

fn fill(arena: &mut Arena, ids: impl IntoIterator<Item = u64>) -> Vec<Handle> {
    let mut bytes = Vec::new();
    ids.into_iter()
        .map(|id| {
            task(&mut bytes, id, b'r');
            arena.insert(&bytes).expect("handles for all tuples")
        })
        .collect()
}

fn arena(count: u64) {
    println!("arena");
    let mut arena = Arena::new();
    let mut handles = Vec::new();
    measure("insert", count, || handles = fill(&mut arena, 0..count));
    let order = scattered(count, 1);
    measure("get, scattered", count, || {
        let lengths = order.iter().map(|&place| arena.get(handles[place as usize])[1] as usize);
        black_box(lengths.sum::<usize>());
    });
    println!("  {:<34} {:>8.1} bytes", "a tuple", arena.reserved_bytes() as f64 / count as f64);
    measure("remove, scattered", count, || {
        for &place in &order {
            arena.remove(handles[place as usize]);
        }
    });
}

/// Tuples lie in the order in which they are used, as if each had just been written, but for keys, which are looked up in
/// another order.
fn index(name: &str, count: u64, new: impl Fn() -> Index, key: impl Fn(u64) -> Vec<u8>) {
    println!("{name}");
    let mut arena = Arena::new();
    let handles = fill(&mut arena, scattered(count, 1));
    let copies = fill(&mut arena, scattered(count, 1));
    let order = scattered(count, 2);
    let keys: Vec<Vec<u8>> = order.iter().map(|&id| key(id)).collect();
    let part_count = new().own_parts();
    let per_entry = |what: &str, index: &Index| {
        println!("  {what:<34} {:>8.1} bytes", index.memory() as f64 / count as f64);
    };

    let mut index = new();
    measure("insert, scattered", count, || {
        for &handle in &handles {
            index.insert(&arena, handle);
        }
    });
    per_entry("an entry", &index);
    measure("get by key, scattered", count, || {
        for key in &keys {
            assert!(index.get(&arena, key, part_count).is_some());
        }
    });
    measure("replace, scattered", count, || {
        for (&old, &new) in handles.iter().zip(&copies) {
            index.replace(&arena, old, new);
        }
    });
    measure("walk", count, || {
        black_box(index.select(&arena, IteratorType::All, &[], 0, 0).expect("every index has ALL").count());
    });
    measure("count behind a key, scattered", count, || {
        let counts = keys.iter().map(|key| index.count(&arena, IteratorType::Gt, key, part_count));
        black_box(counts.map(|count| count.expect("every index has GT")).sum::<u64>());
    });
    measure("offset, scattered", count, || {
        for &offset in &order {
            let walk = index.select(&arena, IteratorType::All, &[], 0, offset);
            black_box(walk.expect("every index has ALL").next());
        }
    });
    measure("remove, scattered", count, || {
        for &handle in &copies {
            index.remove(&arena, handle);
        }
    });
    measure("build from scattered", count, || {
        index.build(&arena, handles.iter().copied()).expect("ids are unique");
    });
    per_entry("an entry", &index);
    index.clear();
    let handles = fill(&mut arena, 0..count);
    measure("insert, ascending ids", count, || {
        for &handle in &handles {
            index.insert(&arena, handle);
        }
    });
    per_entry("an entry", &index);
}

/// A queue's life: every cycle puts a task, takes the first ready one and removes it, in both indexes, with others waiting.
fn queue(count: u64) {
    println!("put, take, ack of a fifo task");
    let mut arena = Arena::new();
    let (mut ids, mut statuses) = (Index::tree(primary(), 1, true), by_status());
    let mut bytes = Vec::new();
    let mut put = |arena: &mut Arena, ids: &mut Index, statuses: &mut Index, id: u64| {
        task(&mut bytes, id, b'r');
        let handle = arena.insert(&bytes).expect("handles for all tuples");
        ids.insert(arena, handle);
        statuses.insert(arena, handle);
    };
    for id in 0..count {
        put(&mut arena, &mut ids, &mut statuses, id);
    }
    let memory = arena.reserved_bytes() + ids.memory() + statuses.memory();
    println!("  {:<34} {:>8.1} bytes", "a waiting task", memory as f64 / count as f64);
    let ready = &status_key(0)[..2];
    let mut taken = Vec::new();
    measure("a cycle", count, || {
        for id in count..2 * count {
            put(&mut arena, &mut ids, &mut statuses, id);
            let first = statuses.get(&arena, ready, 1).expect("a task is ready");
            taken.clear();
            taken.extend_from_slice(arena.get(first));
            let status = taken.len() - PAYLOAD - 3;
            taken[status] = b't';
            let new = arena.insert(&taken).expect("handles for all tuples");
            ids.replace(&arena, first, new);
            statuses.remove(&arena, first);
            statuses.insert(&arena, new);
            arena.remove(first);
            ids.remove(&arena, new);
            statuses.remove(&arena, new);
            arena.remove(new);
        }
    });
    let memory = arena.reserved_bytes() + ids.memory() + statuses.memory();
    println!("  {:<34} {:>8.1} bytes", "a waiting task", memory as f64 / count as f64);
}
