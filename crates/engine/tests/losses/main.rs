//! A journal that has several unconfirmed batches and loses some, as a replicated log does when its leader
//! changes: after any losses the data are what the confirmed rows make, no acknowledged task is missing, no task has two
//! owners, and a snapshot has the data of one moment. `LYCOSA_TEST_WORLDS` is the number of worlds with new seeds (2).

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod world;

use std::hash::{BuildHasher, Hasher, RandomState};

use lycosa_instance::{Lsn, OUTCOME_UNKNOWN};
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::row::{RowBody, RowHeader};
use lycosa_store::{Decision, Error as StoreError, Hooks, Statement, system, user};
use lycosa_tuple::value::Value;

use world::{Random, SECOND, World};

fn run(seed: u64, is_replica_set: bool) -> (u64, u64, usize, usize) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World::new(seed, is_replica_set);
    for _ in 0..400 {
        let (client, tube) = (random.below(4) as usize, random.below(3) as usize);
        match random.below(25) {
            0..=6 => world.put_task(client, tube),
            7..=11 => {
                let timeout = random.below(3);
                world.take_task(client, tube, timeout);
            }
            12..=14 => world.settle_task(&mut random),
            15..=18 => world.end_turn(),
            19..=20 => _ = world.journal.confirm(),
            21 => world.now += random.below(SECOND),
            22 if random.below(3) == 0 => world.rest(),
            24 => _ = world.instance.request_checkpoint(),
            _ if random.below(4) == 0 => {
                for _ in 0..random.below(3) {
                    world.journal.confirm();
                }
                world.journal.lose();
            }
            _ => {}
        }
    }
    world.check();
    (world.losses, world.unknown, world.journal.most_in_flight, world.snapshots.len())
}

#[test]
fn whatever_is_lost_the_data_are_what_was_confirmed() {
    let (mut losses, mut unknown, mut most, mut snapshots) = (0, 0, 0, 0);
    // The same worlds each time, and others. In the fourth and fifth a client releases a task that it held before a loss and
    // takes again meanwhile; in the fifth the next owner's reply is read before its own.
    let others: u64 = std::env::var("LYCOSA_TEST_WORLDS").map_or(2, |number| number.parse().unwrap());
    let any = RandomState::new().build_hasher().finish();
    let others = (0..others).map(|number| any.wrapping_add(number));
    for seed in [1, 2, 3, 17_532_499_852_812_719_821, 9_567_929_817_256_912_669].into_iter().chain(others) {
        for is_replica_set in [false, true] {
            println!("seed {seed}, replica set: {is_replica_set}");
            let of_world = run(seed, is_replica_set);
            losses += of_world.0;
            unknown += of_world.1;
            most = most.max(of_world.2);
            snapshots += of_world.3;
        }
    }
    assert!(losses > 10 && unknown > 10, "{losses} losses, {unknown} requests with an unknown outcome");
    assert_eq!(most, 4, "several batches were on their way");
    assert!(snapshots > 0, "snapshots were taken between the losses");
}

fn insert(world: &mut World, key: u64) -> Lsn {
    let tuple = Value::array([Value::from(format!("key{key}")), Value::from(key)]).encode();
    let statement = Statement::Insert { space: system::SCHEMA, tuple: &tuple };
    world.instance.execute(user::ADMIN, &statement, &mut Vec::new()).unwrap();
    world.instance.awaited()
}

#[test]
fn who_waits_for_a_lost_row_hears_of_it_and_takes_no_later_row_for_it() {
    let mut world = World::new(1, false);
    let kept = insert(&mut world, 1);
    world.end_turn();
    world.journal.confirm();
    let lost = insert(&mut world, 2);
    world.end_turn();
    assert_eq!(world.instance.is_durable(lost), Ok(false));
    world.journal.lose();
    world.end_turn();
    let later = insert(&mut world, 3);
    for _ in 0..2 {
        assert_eq!(world.instance.is_durable(kept), Ok(true));
        let error = world.instance.is_durable(lost).unwrap_err();
        assert!(error.fields.iter().any(|(_, name)| name == OUTCOME_UNKNOWN), "{error:?}");
        world.rest();
    }
    assert!(later > lost && world.instance.is_durable(later) == Ok(true));
    let gone = Value::array([Value::from("key2")]).encode();
    assert!(world.instance.store().get(system::SCHEMA, 0, &gone).unwrap().is_none());
}

#[test]
fn a_call_that_waits_goes_on_waiting_over_a_loss() {
    let mut world = World::new(2, false);
    world.take_task(1, 0, 50);
    world.end_turn();
    world.put_task(0, 1);
    world.end_turn();
    world.journal.lose();
    world.end_turn();
    assert_eq!(world.unknown, 1, "the put was lost");
    assert_eq!(world.clients[1].asked.len(), 1, "the take waits");
    world.put_task(0, 0);
    world.rest();
    assert_eq!(world.clients[1].asked.len(), 0, "the take has the task that was put after the loss");
    world.check();
}

#[test]
fn rows_of_a_master_leave_no_gap_where_some_were_lost() {
    let mut world = World::new(3, false);
    let apply = |world: &mut World, lsn: u64| {
        let header = RowHeader { replica_id: 2, group_id: 0, lsn, timestamp: 1.5, tsn: lsn, is_commit: true };
        world.instance.apply(&[(header, RowBody::Nop)], world.now)
    };
    apply(&mut world, 1).unwrap();
    world.rest();
    let before = world.instance.vclock().get(1);
    apply(&mut world, 2).unwrap();
    apply(&mut world, 3).unwrap();
    assert_eq!(world.instance.vclock().get(2), 3);
    assert_eq!(world.instance.vclock().get(1), before, "rows of another instance are none of its own");
    world.end_turn();
    world.journal.lose();
    world.end_turn();
    assert_eq!(world.instance.vclock().get(2), 1);
    assert!(apply(&mut world, 4).unwrap_err().message.contains("subscribe again"));
    for lsn in 2..5 {
        apply(&mut world, lsn).unwrap();
    }
    world.rest();
    assert_eq!(world.instance.durable_vclock().get(2), 4);
}

#[test]
fn a_checkpoint_in_the_middle_of_a_loss_is_given_up_and_the_next_one_is_whole() {
    for rows in [0, 1, 60] {
        let mut world = World::new(4, false);
        world.put_task(0, 0);
        world.rest();
        assert!(world.instance.request_checkpoint());
        while world.snapshot.is_none() || world.snapshot_rows < rows {
            world.put_task(0, 1);
            world.end_turn();
            world.journal.confirm();
        }
        world.put_task(0, 2);
        world.end_turn();
        world.journal.lose();
        world.rest();
        assert_eq!((world.abandoned, world.snapshots.len()), (1, 0), "after {rows} rows");
        assert!(world.instance.request_checkpoint());
        world.put_task(1, 0);
        while world.snapshots.is_empty() {
            world.end_turn();
            world.journal.confirm();
        }
        world.check();
    }
}

/// A space by the rows that define it, with the fields 1 (the key) and 2 as numbers.
fn create_space(world: &mut World, id: u32, name: &str) {
    let format = Value::Array(Vec::new());
    let row = Value::array([
        Value::from(id),
        1.into(),
        name.into(),
        "memtx".into(),
        0.into(),
        Value::Map(Vec::new()),
        format,
    ]);
    let part = Value::array([Value::from(0_u64), "unsigned".into()]);
    let index = Value::array([
        Value::from(id),
        0.into(),
        "pk".into(),
        "tree".into(),
        Value::map([("unique", Value::from(true))]),
        Value::array([part]),
    ]);
    for (space, row) in [(system::SPACE, row), (system::INDEX, index)] {
        let statement = Statement::Insert { space, tuple: &row.encode() };
        world.instance.execute(user::ADMIN, &statement, &mut Vec::new()).unwrap();
    }
}

fn row(key: u64, value: u64) -> Vec<u8> {
    Value::array([Value::from(key), Value::from(value)]).encode()
}

fn count(world: &mut World, space: u32) -> usize {
    world.instance.store().space(space).map_or(0, |space| space.len() as usize)
}

#[test]
fn a_program_s_transaction_and_triggers_meet_a_loss() {
    let mut world = World::new(5, false);
    create_space(&mut world, 600, "kept");
    let hooks = Hooks { before: true, after: true };
    let set = |world: &mut World, space| {
        let set = world.instance.transaction(user::ADMIN, |store| {
            store.set_hooks(space, hooks).map_err(|error| lycosa_instance::store_error(&error))
        });
        set.unwrap();
    };
    set(&mut world, 600);
    world.rest();
    create_space(&mut world, 601, "lost");
    set(&mut world, 601);
    world.end_turn();

    // A program has a transaction open, a statement proposed to its trigger, and a savepoint.
    world.instance.begin(user::ADMIN).unwrap();
    let tuple = row(1, 1);
    let statement = Statement::Insert { space: 600, tuple: &tuple };
    let savepoint = world.instance.savepoint();
    let proposal = world.instance.submit(user::ADMIN, &statement, &mut Vec::new()).unwrap().unwrap();
    world.journal.lose();
    world.end_turn();
    assert!(!world.instance.in_transaction(), "the loss has rolled it back");
    let decide = |world: &mut World, proposal| {
        world.instance.decide(user::ADMIN, &statement, proposal, Decision::Proceed, &mut Vec::new())
    };
    let error = decide(&mut world, proposal).unwrap_err();
    assert_eq!(error.code, lycosa_instance::store_error(&StoreError::NoTransaction).code);
    assert!(world.instance.store().space(601).is_err());
    assert_eq!(world.instance.store().hooks(600), hooks, "triggers stay with a space that is kept");
    assert_eq!((count(&mut world, 600), world.instance.poll_hooked().is_none()), (0, true));

    // The savepoint is not taken for one of the next transactions, no matter their numbers.
    for key in 2..40 {
        world.instance.begin(user::ADMIN).unwrap();
        let tuple = row(key, 1);
        let statement = Statement::Insert { space: 600, tuple: &tuple };
        let proposal = world.instance.submit(user::ADMIN, &statement, &mut Vec::new()).unwrap().unwrap();
        world.instance.decide(user::ADMIN, &statement, proposal, Decision::Proceed, &mut Vec::new()).unwrap();
        assert!(world.instance.rollback_to(savepoint).is_err(), "transaction {key}");
        world.instance.commit().unwrap();
    }
    world.rest();
    assert_eq!(count(&mut world, 600), 38);
    world.check();
}

#[test]
fn expiration_tasks_begin_anew_from_the_confirmed_rows() {
    let mut world = World::new(6, false);
    create_space(&mut world, 600, "tester");
    let start = |world: &mut World, task: &str| {
        let options = Value::map([("field", Value::from(2_u64))]);
        let mut out = Vec::new();
        let args = Value::array([task.into(), "tester".into(), options]).encode();
        let caller = lycosa_instance::Caller::internal();
        world.instance.call_native(&caller, b"expiration.start", &args, &mut out).unwrap();
    };
    let insert = |world: &mut World, key: u64, seconds: u64| {
        let tuple = row(key, world.now / SECOND + seconds);
        let statement = Statement::Insert { space: 600, tuple: &tuple };
        world.instance.execute(user::ADMIN, &statement, &mut Vec::new()).unwrap();
    };
    start(&mut world, "kept");
    insert(&mut world, 1, 5);
    insert(&mut world, 2, 5000);
    world.rest();
    start(&mut world, "lost");
    insert(&mut world, 3, 5);
    world.end_turn();
    // The deletions of the tasks are lost too. The kept task deletes tuple 1 again, and later ones.
    world.now += 10 * SECOND;
    world.end_turn();
    world.end_turn();
    assert_eq!(count(&mut world, 600), 1, "the tuples 1 and 3 have expired");
    world.journal.lose();
    world.end_turn();
    insert(&mut world, 4, 5);
    world.rest();
    assert_eq!(count(&mut world, 600), 2, "the tuples 2 and 4 live");
    world.now += 10 * SECOND;
    world.rest();
    assert_eq!(count(&mut world, 600), 1, "the task goes on");
    let tasks = world.instance.store().space_by_name("_expiration").unwrap().len();
    assert_eq!(tasks, 1, "the task that was lost is none");
    world.check();
}

/// Until the queue is up no client sees data, and a turn does a bounded part of it.
#[test]
fn a_large_tube_comes_up_in_many_turns() {
    let mut world = World::new(7, false);
    for _ in 0..4000 {
        world.put_task(0, 0);
    }
    world.rest();
    for _ in 0..3500 {
        world.take_task(1, 0, 0);
    }
    world.rest();
    world.put_task(0, 1);
    world.end_turn();
    world.journal.lose();
    let mut turns = 0;
    loop {
        world.end_turn();
        if !world.instance.is_rebuilding() {
            break;
        }
        turns += 1;
        let statement = Statement::Insert { space: system::SCHEMA, tuple: &row(1, 1) };
        let refused = world.instance.execute(user::ADMIN, &statement, &mut Vec::new()).unwrap_err();
        assert_eq!(refused.code, u32::from(ErrorCode::Loading));
        let refused = world.instance.read(system::SCHEMA, 0).map(drop).unwrap_err();
        assert_eq!(refused.code, u32::from(ErrorCode::Loading));
        assert!(world.instance.begin(user::ADMIN).is_err());
        // A change of the role waits.
        world.instance.set_read_only(turns % 2 == 1, world.now);
        match turns {
            1 => world.put_task(0, 1),
            2 => _ = world.journal.confirm(),
            3 => world.journal.lose(),
            _ => {}
        }
    }
    assert!(turns > 4, "{turns} turns");
    assert_eq!((world.refused, world.losses), (1, 2), "the put in the middle was refused");
    world.instance.set_read_only(false, world.now);
    world.rest();
    world.rest();
    assert_eq!(world.instance.queue().state(), lycosa_queue::QueueState::Running);
    world.put_task(0, 0);
    world.rest();
}
