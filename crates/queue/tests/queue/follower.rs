//! A queue that does not run follows the rows that are applied, so that its start finds derived what it needs.
//!
//! Debug builds compare the candidates of each start with candidates derived from the rows, so every promotion here checks
//! them. The results of takes afterwards are compared with a queue that has recovered the same log.

use lycosa_queue::QueueState;
use lycosa_store::Statement;
use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, SECOND, args, options, task};

const TUBES: [(&str, &str, bool); 6] = [
    ("plain", "fifo", false),
    ("timed", "fifottl", false),
    ("keyed", "utube", false),
    ("keyed_buffer", "utube", true),
    ("both", "utubettl", false),
    ("both_buffer", "utubettl", true),
];

fn create(rig: &mut Rig, (name, tube_type, has_buffer): (&str, &str, bool)) {
    let mode = if has_buffer { "ready_buffer" } else { "default" };
    rig.create(name, tube_type, options([("storage_mode", Value::from(mode))]));
}

/// xorshift64
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// One call, or a change by other ways than the queue's calls. A refused step is refused again whenever its seed runs.
fn step(rig: &mut Rig, random: &mut Random) {
    let tube = TUBES[random.below(TUBES.len() as u64) as usize];
    let (name, connection, id) = (tube.0, random.below(3), random.below(12));
    let call = |rig: &mut Rig, method: &str, arguments| {
        rig.call(connection, &format!("queue.tube.{name}:{method}"), arguments)
    };
    match random.below(24) {
        0..=6 => {
            let given = options([
                ("utube", Value::from(random.below(4))),
                ("pri", Value::from(random.below(3))),
                ("delay", Value::from(random.below(3) / 2)),
                ("ttl", Value::from(1 + random.below(60))),
            ]);
            call(rig, "put", args!["x", given]);
        }
        7..=10 => _ = call(rig, "take", args![0]),
        11 | 12 => _ = call(rig, "ack", args![id]),
        13 => _ = call(rig, "release", args![id, options([("delay", Value::from(random.below(2)))])]),
        14 => _ = call(rig, "bury", args![id]),
        15 => _ = call(rig, "kick", args![3]),
        16 => _ = call(rig, "delete", args![id]),
        17 => rig.advance(random.below(3 * SECOND)),
        18 => rig.disconnect(connection),
        19 if random.below(4) == 0 => _ = call(rig, "truncate", args![]),
        20 if random.below(4) == 0 => {
            call(rig, "release_all", args![]);
            if call(rig, "drop", args![]) == Reply::Values(vec![Value::from(true)]) && random.below(2) == 0 {
                create(rig, tube);
            }
        }
        21 => {
            // Several changes of one sub-queue in one transaction.
            rig.begin();
            call(rig, "take", args![0]);
            call(rig, "release", args![id]);
            call(rig, "delete", args![id]);
            call(rig, "put", args!["y", options([("utube", Value::from(random.below(4)))])]);
            rig.commit();
        }
        22 if rig.queue.resolve(format!("queue.tube.{name}:put").as_bytes()).is_none() => create(rig, tube),
        _ => {
            // A row that a user moves into another sub-queue, or gives another state.
            let Some(space) = rig.store.space_by_name(name).map(lycosa_store::Space::id) else { return };
            let field = if name.starts_with("both") { 7 } else { 2 };
            let change = match random.below(2) {
                0 if tube.1.starts_with("utube") => ("=", field, Value::from(random.below(4).to_string())),
                _ => ("=", 1, Value::from(["r", "!"][random.below(2) as usize])),
            };
            let operations =
                Value::array([Value::array([Value::from(change.0), Value::from(change.1), change.2])]);
            let (key, operations) = (Value::array([id]).encode(), operations.encode());
            let update = Statement::Update { space, index: 0, key: &key, operations: &operations, base: 0 };
            let _ = rig.execute(&update);
        }
    }
}

/// What takes return, tube by tube, until nothing is left for a new session.
fn takes(rig: &mut Rig) -> Vec<(String, Vec<Value>)> {
    let mut taken = Vec::new();
    for (name, ..) in TUBES {
        while let Reply::Values(values) = rig.call(77, &format!("queue.tube.{name}:take"), args![0])
            && !values.is_empty()
        {
            taken.push((name.to_owned(), values));
        }
    }
    taken
}

#[test]
fn a_promoted_queue_is_that_of_a_restart() {
    for seed in 1..=20 {
        let mut random = Random(seed);
        let mut master = Rig::with_ttr(30.0, true);
        TUBES.into_iter().for_each(|tube| create(&mut master, tube));
        (0..random.below(40)).for_each(|_| step(&mut master, &mut random));
        let mut replica = Rig::replica_of(&master);
        for _ in 0..4 {
            for _ in 0..40 {
                step(&mut master, &mut random);
                let limit = random.below(3) as usize;
                replica.apply_of(&master, limit);
            }
            replica.now = master.now;
            replica.apply_of(&master, usize::MAX);
            master.demote(&replica);
            replica.promote();
            assert_eq!(replica.queue.state(), QueueState::Running);
            std::mem::swap(&mut master, &mut replica);
        }
        (0..3).for_each(|connection| master.disconnect(connection));
        let mut fresh = Rig::replica_of(&master);
        fresh.promote();
        for rig in [&mut master, &mut fresh] {
            rig.advance(100 * SECOND);
        }
        assert_eq!(takes(&mut master), takes(&mut fresh), "seed {seed}");
    }
}

/// A tube of the Lua module, whose rows are wrong where that writes them wrong.
fn followed_with_wrong_rows(wrong: u64) -> (Rig, Rig) {
    let mut master = Rig::with_ttr(30.0, true);
    create(&mut master, ("t", "utubettl", true));
    let mut replica = Rig::replica_of(&master);
    let (space, buffer) = (master.space_id("t"), master.space_id("t_ready_buffer"));
    let created = master.now;
    for id in 0..wrong {
        let row: Vec<Value> = args![id, "r", 1, 10 * SECOND, 0, 0, created, id.to_string(), "x"];
        master.execute(&Statement::Insert { space, tuple: &Value::from(row).encode() }).expect("an insert");
    }
    // The buffer shows one task in the place of another, one that does not exist, and one not at all.
    let row: Vec<Value> = args![2, "1", 0];
    for id in [0_u64, 1, 2] {
        let key = Value::array([id]).encode();
        master.execute(&Statement::Delete { space: buffer, index: 0, key: &key }).expect("a delete");
    }
    master
        .execute(&Statement::Insert { space: buffer, tuple: &Value::from(row).encode() })
        .expect("an insert");
    let row: Vec<Value> = args![500_000, "nobody", 0];
    master
        .execute(&Statement::Insert { space: buffer, tuple: &Value::from(row).encode() })
        .expect("an insert");
    replica.apply_of(&master, usize::MAX);
    (master, replica)
}

fn wrong_events(rig: &Rig) -> usize {
    rig.rows("t").iter().filter(|row| row.as_array().is_some_and(|row| row[2] == Value::from(1_u64))).count()
}

#[test]
fn wrong_rows_of_the_lua_module_are_corrected_a_portion_at_once() {
    for (wrong, at_once) in [(20, 20), (1000, 256)] {
        let (_, mut replica) = followed_with_wrong_rows(wrong);
        assert_eq!(wrong_events(&replica) as u64, wrong);
        replica.promote();
        assert_eq!(wrong_events(&replica) as u64, wrong - at_once);
        let said = std::iter::from_fn(|| replica.queue.poll_log()).map(|line| line.text);
        let expected = format!("tube 't': corrects next_event of {wrong} tasks");
        assert!(said.into_iter().any(|line| line.starts_with(&expected)));
        let mut shown: Vec<_> = replica.rows("t_ready_buffer");
        shown.sort_by_key(|row| row.as_array().and_then(|row| row[0].as_u64()));
        let expected = (0..wrong).map(|id| Value::from(args![id, id.to_string(), 0]));
        assert_eq!(shown, expected.collect::<Vec<_>>());
        replica.tick();
        assert_eq!(wrong_events(&replica), 0);
        replica.advance(10 * SECOND);
        assert_eq!(replica.rows("t").len(), 0);
    }
}

#[test]
fn a_wrong_row_that_is_corrected_by_the_master_is_forgotten() {
    let (mut master, mut replica) = followed_with_wrong_rows(20);
    master.tick();
    (0..10_u64).for_each(|id| _ = master.t(1, "delete", args![id]).values());
    master.t(1, "truncate", args![]).values();
    replica.apply_of(&master, usize::MAX);
    replica.promote();
    let said: Vec<_> = std::iter::from_fn(|| replica.queue.poll_log()).map(|line| line.text).collect();
    assert!(!said.iter().any(|line| line.contains("corrects")), "{said:?}");
    assert_eq!((replica.rows("t").len(), replica.rows("t_ready_buffer").len()), (0, 0));
}

/// A master whose space a program truncates, and a master whose tube does it, leave the same ids to the next master.
#[test]
fn a_truncation_by_a_statement_means_the_same_after_a_promotion() {
    for by_statement in [false, true] {
        let mut master = Rig::with_ttr(30.0, true);
        let mut replica = Rig::replica_of(&master);
        create(&mut master, ("t", "fifottl", false));
        (0..5).for_each(|_| drop(master.t(1, "put", args!["x"]).values()));
        replica.apply_of(&master, usize::MAX);
        match by_statement {
            true => master.truncate_space("t"),
            false => drop(master.t(1, "truncate", args![]).values()),
        }
        master.t(1, "put", args!["x"]).values();
        replica.apply_of(&master, usize::MAX);
        replica.promote();
        let next = replica.t(1, "put", args!["x"]).values();
        assert_eq!(next, task(1, "r", "x"), "by a statement: {by_statement}");
        match by_statement {
            true => replica.truncate_space("t"),
            false => drop(replica.t(1, "truncate", args![]).values()),
        }
        let next = replica.t(1, "put", args!["x"]).values();
        assert_eq!(next, task(0, "r", "x"), "by a statement: {by_statement}");
    }
}

#[test]
fn a_replica_that_never_ran_counts_tasks_and_knows_no_tubes() {
    let mut master = Rig::with_ttr(30.0, true);
    let mut replica = Rig::replica_of(&master);
    create(&mut master, ("t", "utube", true));
    master.t(1, "put", args!["x"]).values();
    replica.apply_of(&master, usize::MAX);
    assert_eq!(replica.queue.state(), QueueState::Init);
    assert_eq!(replica.t(1, "put", args!["x"]), Reply::Undefined);
    let counted = replica.call(1, "queue.statistics", args!["t"]).values();
    let ready = counted[0].get("tasks").and_then(|tasks| tasks.get("ready")).cloned();
    assert_eq!(ready, Some(Value::from(1_u64)));
    master.t(1, "take", args![0]).values();
    master.t(1, "ack", args![0]).values();
    master.t(1, "drop", args![]).values();
    replica.apply_of(&master, usize::MAX);
    assert_eq!(replica.call(1, "queue.statistics", args![]).values(), [Value::map([("", 0_u64); 0])]);
}

#[test]
fn what_a_closed_session_held_is_not_released_while_nothing_is_written() {
    let mut master = Rig::with_ttr(0.0, true);
    create(&mut master, ("t", "fifo", false));
    (0..1000).for_each(|_| _ = master.t(1, "put", args!["x"]).values());
    (0..1000).for_each(|_| _ = master.t(2, "take", args![0]).values());
    let mut other = Rig::replica_of(&master);
    // More tasks than are released at once.
    master.disconnect(2);
    other.apply_of(&master, usize::MAX);
    master.demote(&other);
    other.promote();
    other.tick();
    let taken = |rig: &Rig| rig.rows("_queue_taken_2").len();
    assert_eq!((taken(&master), taken(&other)), (1000 - 256, 0));
    master.apply_of(&other, 1);
    assert!(taken(&master) >= 1000 - 512);
    master.apply_of(&other, usize::MAX);
    assert_eq!(taken(&master), 0);
    master.promote();
    assert_eq!(master.t(3, "take", args![0]).values().len(), 1);
}

/// Makes the tubes of a master known to another one that runs too, and drops one of them there.
#[test]
fn a_running_queue_adopts_tubes_of_another_master() {
    let mut first = Rig::new();
    first.create("old", "fifo", Value::Nil);
    let mut second = Rig::replica_of(&first);
    second.promote();
    TUBES.into_iter().for_each(|tube| create(&mut first, tube));
    let given = || options([("utube", Value::from(1_u64)), ("delay", Value::from(0_u64))]);
    for (name, ..) in TUBES {
        first.call(1, &format!("queue.tube.{name}:put"), args!["x", given()]).values();
    }
    let before = second.transactions();
    second.apply_of(&first, usize::MAX);
    let applied = first.transactions() - before;
    assert!(applied >= TUBES.len() && second.transactions() - before == applied, "nothing is added");
    for (name, ..) in TUBES {
        let taken = second.call(1, &format!("queue.tube.{name}:take"), args![0]).values();
        assert_eq!(taken.len(), 1, "{name}");
        let put = second.call(1, &format!("queue.tube.{name}:put"), args!["y", given()]).values();
        assert_eq!(put[0].as_array().expect("a task")[0], Value::from(1_u64), "{name}: the ids go on");
    }
    // A consumer of a tube that is dropped elsewhere gets an answer, and its owners are forgotten.
    let token = second.call(2, "queue.tube.old:take", args![50]).token();
    first.call(1, "queue.tube.old:drop", args![]).values();
    first.create("old", "utube", Value::Nil);
    first.call(1, "queue.tube.plain:take", args![0]).values();
    first.call(1, "queue.tube.plain:ack", args![0]).values();
    first.call(1, "queue.tube.plain:drop", args![]).values();
    assert_eq!(second.rows("_queue_taken_2").len(), TUBES.len());
    second.apply_of(&first, usize::MAX);
    assert_eq!(
        second.rows("_queue_taken_2").len(),
        TUBES.len() - 1,
        "nobody owns a task of a tube that is gone"
    );
    assert_eq!(second.answer(token), Some(Reply::Error(lycosa_queue::Error::TubeNotFound)));
    assert_eq!(second.call(1, "queue.tube.plain:take", args![0]), Reply::Undefined);
    let values = second.call(1, "queue.tube.old:put", args!["z", given()]).values();
    assert_eq!(values[0].as_array().expect("a task")[1], Value::from("r"));
    // The tubes are those of a restart, too.
    second.restart();
    assert!(second.queue.resolve(b"queue.tube.plain:put").is_none());
    assert!(second.queue.resolve(b"queue.tube.both_buffer:put").is_some());
}

#[test]
fn a_tube_whose_rows_are_rolled_back_is_not_adopted() {
    let mut first = Rig::new();
    let mut second = Rig::replica_of(&first);
    second.promote();
    let begin = first.transactions();
    first.create("t", "fifo", Value::Nil);
    second.begin();
    second.execute_of(&first, begin);
    second.queue.rollback(&mut second.store);
    assert!(second.queue.resolve(b"queue.tube.t:put").is_none());
    second.apply_of(&first, usize::MAX);
    assert!(second.queue.resolve(b"queue.tube.t:put").is_some());
}
