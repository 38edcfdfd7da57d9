//! Owners of tasks in a group: their changes travel beside the rows, and every member has the same owners.

use lycosa_engine::group::listing::{self, LogRecord};
use lycosa_engine::group::{FEATURE_LEVEL, OWNERS_LEVEL, Payload, entry};
use lycosa_iproto::row::RowBody;
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::Step;
use lycosa_tuple::value::Value;

use crate::world::{Told, World};
use crate::{create, payload_of, put};

/// More owners than a member keeps in its cache.
const MANY: u64 = 4200;

/// A group of three with a tube, whose sessions outlive a change of the leader.
fn three(level: u32) -> World {
    let mut world = World::at_level(level);
    world.session_ttr = Some(1000.0);
    world.kill(1);
    world.start(1);
    world.until("node 1 leads", |world| world.leads(1));
    world.grow(3);
    create(&mut world, 1);
    world
}

fn identify(world: &mut World, node: u64, session: Option<&Value>) -> Value {
    let told = world.call(node, "queue.identify", &session.cloned().into_iter().collect::<Vec<_>>());
    told.unwrap().remove(0)
}

fn take(world: &mut World, node: u64) -> Told {
    world.call(node, "queue.tube.work:take", &[Value::from(0_u64)])
}

fn ack(world: &mut World, node: u64, task: u64) -> Told {
    world.call(node, "queue.tube.work:ack", &[Value::from(task)])
}

/// Another node leads; the session goes on there.
fn depose(world: &mut World, leader: u64, session: &Value) -> u64 {
    world.kill(leader);
    world.until("another node leads", |world| world.leader().is_some());
    let next = world.leader().unwrap();
    identify(world, next, Some(session));
    next
}

/// Rows of `_queue_taken_2`, and changes of owners, in all logs of a member.
fn logged(world: &mut World, node: u64) -> (usize, usize) {
    let running = world.running(node);
    let space = running.instance.store().space_by_name("_queue_taken_2").unwrap().id();
    let directory = running.disk.directory().clone();
    let (mut rows, mut changes) = (0, 0);
    for log in directory.list().unwrap().group_logs {
        let mut reader = directory.read(FileKind::GroupLog, log).unwrap();
        while let Ok(Step::Block(block)) = reader.next_block() {
            for record in listing::records(block.rows) {
                let LogRecord::Entry { payload: Payload::Rows(bytes), .. } = record.unwrap() else {
                    continue;
                };
                let entry = entry::decode(&bytes).unwrap();
                let is_owner = |body: &RowBody<'_>| body.space() == Some(space);
                rows += entry.rows().filter(|(_, body)| is_owner(body)).count();
                changes += entry.owner_rows().unwrap().iter().filter(|body| is_owner(body)).count();
            }
        }
    }
    (rows, changes)
}

#[test]
fn a_cycle_logs_no_row_of_an_owner_and_the_next_leader_knows_who_holds_what() {
    let mut world = three(FEATURE_LEVEL);
    let session = identify(&mut world, 1, None);
    (0..3).for_each(|payload| put(&mut world, 1, payload));
    assert_eq!(payload_of(&take(&mut world, 1)), Some(0));
    assert_eq!(payload_of(&take(&mut world, 1)), Some(1));
    ack(&mut world, 1, 0).unwrap();
    world.pass(20);
    assert_eq!(logged(&mut world, 1), (0, 3), "two takes and an ack");
    let digest = world.digest(1);
    assert_eq!((world.digest(2), world.digest(3)), (digest, digest));
    let next = depose(&mut world, 1, &session);
    assert_eq!(payload_of(&take(&mut world, next)), Some(2), "task 1 is not given out twice");
    ack(&mut world, next, 1).unwrap();
    assert!(ack(&mut world, next, 0).is_err(), "it is gone");
    world.start(1);
    world.until("the old leader has everything", |world| world.digest(1) == world.digest(next));
}

#[test]
fn owners_are_found_again_after_a_restart_of_all_members_and_in_snapshots() {
    let mut world = three(FEATURE_LEVEL);
    let session = identify(&mut world, 1, None);
    (0..4).for_each(|payload| put(&mut world, 1, payload));
    for payload in 0..2 {
        assert_eq!(payload_of(&take(&mut world, 1)), Some(payload));
    }
    for node in 1..=3 {
        assert!(world.running(node).instance.request_checkpoint());
        world.until("the snapshot is complete", |world| !world.running(node).instance.has_checkpoint());
    }
    // Behind the snapshot: one owner more, and one of the snapshot's less.
    assert_eq!(payload_of(&take(&mut world, 1)), Some(2));
    ack(&mut world, 1, 0).unwrap();
    world.pass(20);
    let digest = world.digest(1);
    (1..=3).for_each(|node| world.kill(node));
    (1..=3).for_each(|node| world.start(node));
    for node in 1..=3 {
        world.until("it has everything", |world| {
            world.running(node).journal.held() == world.running(1).journal.held()
        });
    }
    world.until("a node leads", |world| world.leader().is_some());
    let leader = world.leader().unwrap();
    identify(&mut world, leader, Some(&session));
    for task in [1, 2] {
        ack(&mut world, leader, task).unwrap();
    }
    assert_ne!(world.digest(leader), digest);
    assert_eq!(payload_of(&take(&mut world, leader)), Some(3));
}

#[test]
fn a_member_that_gets_a_snapshot_has_the_owners_and_may_lead() {
    let mut world = three(FEATURE_LEVEL);
    let session = identify(&mut world, 1, None);
    world.kill(3);
    (0..6).for_each(|payload| put(&mut world, 1, payload));
    assert_eq!(payload_of(&take(&mut world, 1)), Some(0));
    for payload in 0..2 {
        put(&mut world, 1, 70 + payload);
        assert!(world.running(1).instance.request_checkpoint());
        world.until("the snapshot is complete", |world| !world.running(1).instance.has_checkpoint());
    }
    assert_eq!(payload_of(&take(&mut world, 1)), Some(1));
    world.start(3);
    world.until("it has everything", |world| world.digest(3) == world.digest(1));
    world.running(1).journal.transfer(Some(3)).unwrap();
    world.until("node 3 leads", |world| world.leads(3));
    identify(&mut world, 3, Some(&session));
    for task in [0, 1] {
        ack(&mut world, 3, task).unwrap();
    }
    assert_eq!(payload_of(&take(&mut world, 3)), Some(2));
}

#[test]
fn a_group_rises_once_all_members_know_the_level_and_owners_of_before_stay() {
    let mut world = three(OWNERS_LEVEL - 1);
    let session = identify(&mut world, 1, None);
    (0..4).for_each(|payload| put(&mut world, 1, payload));
    assert_eq!(payload_of(&take(&mut world, 1)), Some(0));
    assert_eq!(payload_of(&take(&mut world, 1)), Some(1));
    world.pass(20);
    assert_eq!(logged(&mut world, 1), (2, 0), "older programs need rows");
    let temporary =
        [Value::from("fleeting"), Value::from("fifo"), Value::map([("temporary", Value::from(true))])];
    assert!(world.call(1, "queue.create_tube", &temporary).is_err());
    world.running(1).journal.raise_to_known(|node| (node != 3).then_some(FEATURE_LEVEL));
    world.pass(20);
    assert_eq!(world.running(1).journal.status().node.level, OWNERS_LEVEL - 1, "node 3 may not know it");
    world.running(1).journal.raise_to_known(|_| Some(FEATURE_LEVEL));
    world.until("all have risen", |world| {
        (1..=3).all(|node| world.running(node).journal.status().node.level == FEATURE_LEVEL)
    });
    assert_eq!(payload_of(&take(&mut world, 1)), Some(2));
    ack(&mut world, 1, 0).unwrap();
    world.pass(20);
    assert_eq!(logged(&mut world, 1), (2, 2), "and nothing more");
    assert_eq!(world.digest(2), world.digest(1));
    let next = depose(&mut world, 1, &session);
    for task in [1, 2] {
        ack(&mut world, next, task).unwrap();
    }
    assert!(world.call(next, "queue.create_tube", &temporary).is_ok());
}

#[test]
fn more_owners_than_the_cache_holds_are_the_same_on_all_members() {
    let mut world = three(FEATURE_LEVEL);
    let session = identify(&mut world, 1, None);
    let payloads = Value::array((0..MANY).map(Value::from));
    world.call(1, "queue.tube.work:put_many", &[payloads]).unwrap();
    let mut taken = 0;
    while taken < MANY {
        let told = world.call(1, "queue.tube.work:take_many", &[Value::from(500_u64), Value::from(0_u64)]);
        taken += told.unwrap()[0].as_array().unwrap().len() as u64;
    }
    world.pass(20);
    assert_eq!(world.digest(2), world.digest(1));
    // The first owners are rows by now, the last ones are cached.
    for task in [0, 1, MANY - 1] {
        ack(&mut world, 1, task).unwrap();
    }
    world.pass(20);
    assert_eq!(world.digest(3), world.digest(1));
    let next = depose(&mut world, 1, &session);
    for task in [2, MANY - 2] {
        ack(&mut world, next, task).unwrap();
    }
    assert!(payload_of(&take(&mut world, next)).is_none(), "all tasks have an owner");
}

#[test]
fn a_temporary_tube_is_empty_at_a_new_leader_and_its_ids_go_on() {
    let mut world = three(FEATURE_LEVEL);
    let temporary =
        [Value::from("fleeting"), Value::from("utube"), Value::map([("temporary", Value::from(true))])];
    world.call(1, "queue.create_tube", &temporary).unwrap();
    let session = identify(&mut world, 1, None);
    let put = |world: &mut World, node: u64| {
        let told = world.call(node, "queue.tube.fleeting:put", &[Value::from(1_u64)]).unwrap();
        told[0].as_array().unwrap()[0].as_u64().unwrap()
    };
    let take = |world: &mut World, node: u64| {
        world.call(node, "queue.tube.fleeting:take", &[Value::from(0_u64)]).unwrap().pop()
    };
    assert_eq!([put(&mut world, 1), put(&mut world, 1)], [0, 1]);
    assert!(take(&mut world, 1).is_some());
    world.pass(20);
    assert_eq!(logged(&mut world, 1), (0, 0), "nobody else has the task");
    world.running(1).journal.transfer(Some(2)).unwrap();
    world.until("node 2 leads", |world| world.leads(2));
    identify(&mut world, 2, Some(&session));
    assert_eq!(take(&mut world, 2), None);
    let id = put(&mut world, 2);
    assert!(id > 1, "{id}");
    // The first leader still has the tasks of its time in memory when it leads again.
    world.running(2).journal.transfer(Some(1)).unwrap();
    world.until("node 1 leads", |world| world.leads(1));
    assert_eq!(take(&mut world, 1), None);
    assert!(put(&mut world, 1) > id);
    assert!(take(&mut world, 1).is_some());
    world.pass(20);
    assert_eq!((world.digest(2), world.digest(3)), (world.digest(1), world.digest(1)));
}

#[test]
fn what_a_client_changes_in_the_space_of_owners_is_the_same_on_all_members() {
    let mut world = three(FEATURE_LEVEL);
    let session = identify(&mut world, 1, None);
    (0..3).for_each(|payload| put(&mut world, 1, payload));
    (0..3).for_each(|_| drop(take(&mut world, 1).unwrap()));
    world.pass(20);
    let space = world.running(1).instance.store().space_by_name("_queue_taken_2").unwrap().id();
    let key = Value::array([Value::from(0_u64), Value::from(1_u64)]);
    world.delete(1, space, &key);
    world.until("the task is released", |world| world.digest(2) == world.digest(1));
    assert_eq!(world.digest(3), world.digest(1));
    assert_eq!(payload_of(&take(&mut world, 1)), Some(1), "its owner is gone");
    let next = depose(&mut world, 1, &session);
    for task in 0..3 {
        ack(&mut world, next, task).unwrap();
    }
}
