//! Members of a group: instances whose journal is the group's log.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod owners;
mod world;

use std::sync::Arc;

use lycosa_engine::group;
use lycosa_instance::{FreeSpace, HANDING_OVER, OUTCOME_UNKNOWN};
use lycosa_journal::directory::Directory;
use lycosa_tuple::value::Value;

use world::{BEGINNING, IDENTITY, World};

fn put(world: &mut World, node: u64, payload: u64) {
    let told = world.call(node, "queue.tube.work:put", &[Value::from(payload)]);
    assert!(told.is_ok(), "{told:?}");
}

fn create(world: &mut World, node: u64) {
    world.call(node, "queue.create_tube", &[Value::from("work"), Value::from("fifo")]).unwrap();
}

fn payload_of(told: &world::Told) -> Option<u64> {
    let values = told.as_ref().ok()?;
    values.first()?.as_array()?.get(2)?.as_u64()
}

#[test]
fn a_group_of_one_serves_and_is_found_again_after_a_restart() {
    let mut world = World::new();
    create(&mut world, 1);
    for payload in 0..20 {
        put(&mut world, 1, payload);
    }
    let taken = world.call(1, "queue.tube.work:take", &[Value::from(0_u64)]);
    assert_eq!(payload_of(&taken), Some(0));
    world.kill(1);
    world.start(1);
    world.until("it leads again", |world| world.leads(1));
    put(&mut world, 1, 99);
    // The connection that had taken a task is gone, and so is its session.
    for payload in (0..20).chain([99]) {
        let taken = world.call(1, "queue.tube.work:take", &[Value::from(0_u64)]);
        assert_eq!(payload_of(&taken), Some(payload));
    }
}

#[test]
fn followers_apply_what_the_leader_confirms_and_the_next_leader_goes_on() {
    let mut world = World::of(3);
    create(&mut world, 1);
    for payload in 0..10 {
        put(&mut world, 1, payload);
    }
    world.pass(20);
    let digest = world.digest(1);
    assert_eq!((world.digest(2), world.digest(3)), (digest, digest));
    let refused = world.call(2, "box.space._queue:insert", &[Value::array([Value::from(1_u64)])]);
    assert!(refused.is_err(), "a follower takes no writes: {refused:?}");
    world.kill(1);
    world.until("another node leads", |world| world.leader().is_some());
    let leader = world.leader().unwrap();
    let taken = world.call(leader, "queue.tube.work:take", &[Value::from(1_u64)]);
    assert_eq!(payload_of(&taken), Some(0));
    world.start(1);
    world.until("the old leader has everything", |world| {
        world.digest(1) == world.digest(leader) && world.digest(2) == world.digest(3)
    });
}

#[test]
fn a_leader_that_was_stopped_confirms_nothing_and_loads_what_the_group_decided() {
    let mut world = World::of(3);
    create(&mut world, 1);
    put(&mut world, 1, 1);
    world.pass(20);
    world.stop(1, true);
    world.until("another node leads", |world| world.leader().is_some());
    let leader = world.leader().unwrap();
    let acked = world.call(leader, "queue.tube.work:take", &[Value::from(1_u64)]);
    assert_eq!(payload_of(&acked), Some(1));
    // The requests wait at the door of the process that was stopped.
    let (read, write) = (
        world.send(1, "queue.tube.work:peek", &[Value::from(0_u64)]),
        world.send(1, "queue.tube.work:put", &[Value::from(2_u64)]),
    );
    world.stop(1, false);
    world.until("both are answered", |world| {
        [read, write].iter().all(|sync| world.running(1).told.iter().any(|(told, _)| told == sync))
    });
    for sync in [read, write] {
        assert_eq!(world.told(1, sync), Some(Err(OUTCOME_UNKNOWN.to_owned())));
    }
    world.until("it has the group's data", |world| world.digest(1) == world.digest(leader));
    assert!(!world.running(1).instance.is_suspended());
}

/// What it has taken is confirmed before another node leads; what it has not taken is refused.
#[test]
fn a_leader_that_hands_over_under_load_keeps_its_data_and_leaves_nothing_open() {
    let mut world = World::of(3);
    create(&mut world, 1);
    let put = |world: &mut World, payload: u64| world.send(1, "queue.tube.work:put", &[Value::from(payload)]);
    let mut sent: Vec<u64> = (0..20).map(|payload| put(&mut world, payload)).collect();
    world.running(1).journal.transfer(Some(2)).unwrap();
    assert!(world.running(1).journal.transfer(Some(3)).is_err(), "one hand-over at a time");
    let mut looks = Vec::new();
    for payload in 20.. {
        if !world.leads(1) {
            break;
        }
        sent.push(put(&mut world, payload));
        looks.push(world.send(1, "queue.tube.work:peek", &[Value::from(0_u64)]));
        world.pass(1);
    }
    world.until("node 2 leads", |world| {
        assert!(!world.running(1).instance.is_suspended(), "everything of node 1 is confirmed");
        world.leads(2)
    });
    world.pass(20);
    // A queue that does not run would answer that there is no such task, or nothing.
    for sync in looks {
        let told = world.told(1, sync).expect("an answer");
        assert!(payload_of(&told) == Some(0) || told == Err(HANDING_OVER.to_owned()), "{told:?}");
    }
    let (mut done, mut refused) = (0, 0);
    for sync in sent {
        match world.told(1, sync).expect("an answer") {
            Ok(_) => done += 1,
            Err(name) if name == HANDING_OVER => refused += 1,
            Err(name) => panic!("{name}"),
        }
    }
    assert!(done >= 20 && refused > 0, "{done} done, {refused} refused");
    assert_eq!(world.digest(1), world.digest(2));
    let taken = world.call(2, "queue.tube.work:take_many", &[Value::from(100_u64), Value::from(0_u64)]);
    assert_eq!(taken.unwrap()[0].as_array().unwrap().len(), done);
}

/// Puts go on at node 1 until another node leads. What it has taken is confirmed and its data stay; the number of tasks is returned.
fn put_until_handed_over(world: &mut World) -> usize {
    let mut sent = Vec::new();
    for payload in 0.. {
        if !world.leads(1) {
            break;
        }
        sent.push(world.send(1, "queue.tube.work:put", &[Value::from(payload)]));
        world.pass(1);
    }
    world.until("another node leads", |world| {
        assert!(!world.running(1).instance.is_suspended(), "everything of node 1 is confirmed");
        world.leader().is_some_and(|leader| leader != 1)
    });
    let mut done = 0;
    for sync in sent {
        match world.told(1, sync).expect("an answer") {
            Ok(_) => done += 1,
            // Before the hand-over a full disk takes no task, and after that the node none at all.
            Err(name) => assert!(name == HANDING_OVER || name.contains("disk_reserve"), "{name}"),
        }
    }
    done
}

fn equal(world: &mut World) -> bool {
    let digest = world.digest(1);
    digest == world.digest(2) && digest == world.digest(3)
}

#[test]
fn a_leader_with_a_slow_disk_hands_over_keeps_its_data_and_leaves_nothing_open() {
    let mut world = World::of(3);
    create(&mut world, 1);
    put(&mut world, 1, 1_000_000);
    world.servers.get_mut(&1).unwrap().is_slow = true;
    let began = world.now;
    let done = put_until_handed_over(&mut world);
    assert!(world.now - began >= group::Settings::default().disk_patience && done > 100, "{done} tasks");
    let note = world.running(1).journal.poll_note().unwrap();
    assert!(note.contains("does not answer: this node hands the group over to node"), "{note}");
    let leader = world.leader().unwrap();
    put(&mut world, leader, 1);
    world.servers.get_mut(&1).unwrap().is_slow = false;
    world.until("all are equal", equal);
    let taken =
        world.call(leader, "queue.tube.work:take_many", &[Value::from(10_000_u64), Value::from(0_u64)]);
    assert_eq!(taken.unwrap()[0].as_array().unwrap().len(), done + 2);
}

#[test]
fn a_leader_with_a_full_disk_hands_over_keeps_its_data_and_leaves_nothing_open() {
    let mut world = World::of(3);
    create(&mut world, 1);
    for payload in 0..10 {
        put(&mut world, 1, payload);
    }
    let taken = world.call(1, "queue.tube.work:take", &[Value::from(0_u64)]).unwrap();
    let task = taken[0].as_array().unwrap()[0].clone();
    // A task ends while the disk is short, from the reserve.
    let ended = world.send(1, "queue.tube.work:ack", &[task]);
    let running = world.running(1);
    running.journal.set_scarce(true);
    running.instance.handle_free_space(Some(FreeSpace::new(1 << 20, 2 << 20)));
    let done = put_until_handed_over(&mut world);
    assert_eq!(done, 0);
    assert!(world.told(1, ended).unwrap().is_ok());
    let note = world.running(1).journal.poll_note().unwrap();
    assert!(note.contains("than its reserve: this node hands the group over to node"), "{note}");
    let leader = world.leader().unwrap();
    put(&mut world, leader, 1);
    world.pass(100);
    assert!(!equal(&mut world), "it takes nothing");
    world.running(1).journal.set_scarce(false);
    world.until("all are equal", equal);
}

/// A successor that does not come to lead: the leader goes on.
#[test]
fn a_leader_whose_successor_is_gone_takes_writes_again() {
    let mut world = World::of(3);
    create(&mut world, 1);
    world.stop(2, true);
    world.running(1).journal.transfer(Some(2)).unwrap();
    world.until("it is refused", |world| {
        world.call(1, "queue.tube.work:put", &[Value::from(1_u64)]) == Err(HANDING_OVER.to_owned())
    });
    world.until("it takes writes", |world| {
        world.call(1, "queue.tube.work:put", &[Value::from(2_u64)]).is_ok()
    });
    world.stop(2, false);
    world.until("all are equal", |world| {
        world.digest(2) == world.digest(1) && world.digest(3) == world.digest(1)
    });
    assert!(world.leads(1) && !world.running(1).instance.is_suspended());
}

#[test]
fn a_read_waits_for_the_majority() {
    let mut world = World::of(3);
    create(&mut world, 1);
    put(&mut world, 1, 1);
    world.pass(20);
    world.stop(2, true);
    world.stop(3, true);
    let read = world.send(1, "queue.tube.work:peek", &[Value::from(0_u64)]);
    world.pass(10);
    assert_eq!(world.told(1, read), None, "nobody has confirmed that the node leads");
    world.stop(3, false);
    world.until("the read is answered", |world| !world.running(1).told.is_empty());
    assert!(world.told(1, read).is_some_and(|told| told.is_ok()));
}

#[test]
fn a_follower_that_is_far_behind_gets_a_snapshot_and_goes_on_behind_it() {
    let mut world = World::of(3);
    create(&mut world, 1);
    world.kill(3);
    for payload in 0..30 {
        put(&mut world, 1, payload);
    }
    for _ in 0..2 {
        put(&mut world, 1, 77);
        assert!(world.running(1).instance.request_checkpoint());
        world.until("the snapshot is complete", |world| !world.running(1).instance.has_checkpoint());
    }
    let kept = world.running(1).disk.directory().list().unwrap();
    assert!(kept.xlogs.is_empty() && !kept.group_states.is_empty(), "{kept:?}");
    world.start(3);
    world.until("it has everything", |world| world.digest(3) == world.digest(1));
    put(&mut world, 1, 1000);
    world.until("it follows", |world| world.digest(3) == world.digest(1));
    world.kill(3);
    world.start(3);
    world.until("its own disk has it", |world| world.digest(3) == world.digest(1));
}

/// An entry is sent as a whole: a leader with one that takes too long would lose its followers.
#[test]
fn a_transaction_that_would_take_too_long_to_send_is_refused_and_changes_nothing() {
    let mut world = World::of(2);
    create(&mut world, 1);
    let digest = world.digest(1);
    let put_many = |world: &mut World, count: u64| {
        let payloads = (0..count).map(|_| Value::from("x".repeat(1_000_000))).collect();
        world.call(1, "queue.tube.work:put_many", &[Value::Array(payloads)])
    };
    let refused = put_many(&mut world, 40).unwrap_err();
    let text = "Lycosa does not support a transaction with more than 32 MiB of rows here: make several of it";
    assert!(refused.contains(text), "{refused}");
    assert_eq!(world.digest(1), digest);
    put_many(&mut world, 30).expect("a smaller one is confirmed");
    world.until("the follower has it", |world| world.digest(2) == world.digest(1));
}

/// The link of a sending breaks behind the file and before its announcement, and the member catches up by entries.
#[test]
fn a_snapshot_that_was_received_and_not_installed_goes_with_the_next_one() {
    let mut world = World::of(2);
    create(&mut world, 1);
    let directory = world.running(2).disk.directory().clone();
    let received = |directory: &Directory| directory.list().unwrap().in_progress;
    let (own, _) = group::Base::newest(&directory).unwrap().expect("a member has a state");
    let mut names = Vec::new();
    for signature in [own.signature + 1, own.signature + 1_000_000] {
        let base = group::Base { signature, ..own.clone() };
        let mut receiver = group::transfer::Receiver::begin(&directory, &base, 4).unwrap();
        receiver.add(b"rows").unwrap();
        receiver.finish().unwrap();
        names.extend(
            received(&directory).into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>(),
        );
    }
    assert_eq!(names.len(), 2);
    (0..10).for_each(|payload| put(&mut world, 1, payload));
    let digest = world.digest(1);
    world.until("the follower has everything", |world| world.digest(2) == digest);
    assert_eq!(received(&directory), names);
    assert!(world.running(2).instance.request_checkpoint());
    world.until("the snapshot is complete", |world| !world.running(2).instance.has_checkpoint());
    world.until("the older one is gone", |_| received(&directory).len() < 2);
    assert_eq!(received(&directory), names[1..]);
}

/// In microseconds.
const HOUR: u64 = 3_600_000_000;

#[test]
fn the_time_of_the_next_leader_goes_on_from_that_of_the_last() {
    let mut world = World::of(1);
    world.servers.get_mut(&1).unwrap().ahead = HOUR;
    world.grow(3);
    create(&mut world, 1);
    put(&mut world, 1, 1);
    world.pass(200);
    // The leader tells its time to the members that ask. Its rows would tell how old they are.
    for node in [2, 3] {
        let now = world.now;
        world.running(node).instance.hear_leader_time(now + HOUR, now);
    }
    world.kill(1);
    world.until("another node leads", |world| world.leader().is_some());
    let leader = world.leader().unwrap();
    let behind = world.running(leader).ahead_by;
    assert!(behind.abs_diff(HOUR.cast_signed()) < 1_000_000, "{behind}");
}

#[test]
fn a_group_whose_members_have_just_started_goes_on_with_their_own_time() {
    let mut world = World::of(1);
    world.grow(3);
    create(&mut world, 1);
    put(&mut world, 1, 1);
    world.pass(200);
    for node in 1..=3 {
        world.kill(node);
    }
    world.now += HOUR;
    for node in 1..=3 {
        world.start(node);
    }
    world.until("a node leads", |world| world.leader().is_some());
    let leader = world.leader().unwrap();
    assert_eq!(world.running(leader).ahead_by, 0, "the rows of the log are an hour old");
}

/// Its data are loaded for seconds, in which the leader may take the next snapshot: the entries behind the first one are kept.
#[test]
fn a_new_member_gets_one_snapshot_though_the_leader_takes_another_meanwhile() {
    let mut world = World::of(2);
    create(&mut world, 1);
    (0..20).for_each(|payload| put(&mut world, 1, payload));
    let (sent, taken) = (world.snapshots_sent, world.running(1).snapshots_taken);
    let member = world.add(1);
    world.holds_snapshots = true;
    world.until("the snapshot is on its way", |world| world.snapshots_sent > sent);
    assert_eq!(world.running(1).snapshots_taken, taken + 1, "one that names the new member");
    (20..25).for_each(|payload| put(&mut world, 1, payload));
    assert!(world.running(1).instance.request_checkpoint());
    world.until("the next snapshot is there", |world| world.running(1).snapshots_taken > taken + 1);
    world.pass(100);
    world.holds_snapshots = false;
    world.until("the new member votes", |world| {
        let members = world.running(1).journal.members();
        members.iter().all(|member| member.standing == group::Standing::Voter) && !members.is_joint()
    });
    world.until("it has the data", |world| world.digest(member) == world.digest(1));
    assert_eq!(world.snapshots_sent, sent + 1);
}

/// A snapshot takes many turns, and in each of them the new member is in need of one.
#[test]
fn one_snapshot_is_taken_for_a_new_member() {
    let mut world = World::of(2);
    create(&mut world, 1);
    let payloads = Value::Array((0..10_000_u64).map(Value::from).collect());
    for _ in 0..3 {
        world.call(1, "queue.tube.work:put_many", std::slice::from_ref(&payloads)).unwrap();
    }
    let taken = world.running(1).snapshots_taken;
    let member = world.add(1);
    for payload in 0..50 {
        put(&mut world, 1, payload);
    }
    world.until("it has the data", |world| {
        matches!(world.servers[&member].life, world::Life::Running(_))
            && world.digest(member) == world.digest(1)
    });
    world.pass(100);
    assert_eq!(world.running(1).snapshots_taken, taken + 1);
}

#[test]
fn the_last_member_leaves_with_everything() {
    let mut world = World::new();
    create(&mut world, 1);
    (0..5).for_each(|payload| put(&mut world, 1, payload));
    let digest = world.digest(1);
    world.kill(1);
    let folder = Directory::on(Arc::new(world.servers[&1].folder.clone()));
    let (store, writer) = (lycosa_store::Settings::default(), lycosa_journal::writer::Settings::default());
    group::leave(&folder, store, writer, &IDENTITY, false, BEGINNING).unwrap();
    let opened = lycosa_engine::folder::open(&folder, store, writer, &IDENTITY, BEGINNING).unwrap();
    assert_eq!(opened.store.digest(), digest);
    let listing = folder.list().unwrap();
    assert!(listing.group_logs.is_empty() && listing.group_states.is_empty(), "{listing:?}");
}
