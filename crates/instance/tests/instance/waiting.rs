//! Calls that wait: parked, woken, timed out, dropped.

use lycosa_tuple::value::Value;

use crate::rig::{Rig, SECOND, options, refused, syncs, task, values};

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    rig
}

fn waiting(rig: &Rig) -> usize {
    rig.instance.status().waiting_calls
}

#[test]
fn a_put_of_another_connection_wakes_a_take() {
    let mut rig = rig();
    let (mut worker, mut producer) = (rig.guest(), rig.guest());
    let take = rig.start_call(&mut worker, "queue.tube.t:take", &values![]);
    rig.sync_journal();
    assert_eq!((waiting(&rig), rig.replies(&worker)), (1, vec![]));

    rig.start_call(&mut producer, "queue.tube.t:put", &values!["a"]);
    assert_eq!(waiting(&rig), 0);
    assert_eq!((rig.replies(&worker), rig.replies(&producer)), (vec![], vec![]), "not durable yet");
    let batch = rig.batch();
    assert_eq!(batch.ends.len(), 2, "the put and the take are transactions of their own");
    rig.make_durable(batch);
    assert_eq!(rig.ready(), [worker.slot, producer.slot]);
    let replies = rig.replies(&worker);
    assert_eq!((syncs(&replies), &replies[0].answer), (vec![take], &Ok(task(0, "t", "a"))));
    assert_eq!(rig.replies(&producer)[0].answer, Ok(task(0, "r", "a")));
}

#[test]
fn requests_overtake_a_call_that_waits() {
    let mut rig = rig();
    let mut client = rig.guest();
    let take = rig.start_call(&mut client, "queue.tube.t:take", &values![]);
    assert_eq!(rig.ping(&mut client), Ok(vec![]));
    let put = rig.start_call(&mut client, "queue.tube.t:put", &values!["a"]);
    rig.sync_journal();
    let mut replies = rig.replies(&client);
    replies.sort_by_key(|reply| reply.sync);
    assert_eq!(syncs(&replies), [take, put]);
    assert_eq!(replies[0].answer, Ok(task(0, "t", "a")));
    assert_eq!(replies[1].answer, Ok(task(0, "r", "a")));
}

#[test]
fn an_insert_into_the_tubes_space_wakes_a_take() {
    let mut rig = rig();
    let (mut worker, mut admin) = (rig.guest(), rig.admin());
    let space = rig.instance.store().space_by_name("t").expect("the tube's space").id();
    rig.start_call(&mut worker, "queue.tube.t:take", &values![]);
    rig.insert(&mut admin, space, &values![7, "r", "by hand"]).expect("a row");
    let replies = rig.replies(&worker);
    assert_eq!(replies[0].answer, Ok(task(7, "t", "by hand")));
}

#[test]
fn a_take_ends_at_its_deadline() {
    let mut rig = rig();
    let mut worker = rig.guest();
    let take = rig.start_call(&mut worker, "queue.tube.t:take", &values![1.5]);
    rig.sync_journal();
    let due = rig.now + 1_500_000;
    assert_eq!(rig.advance(0), Some(due));
    rig.advance(1_499_999);
    assert_eq!((waiting(&rig), rig.replies(&worker)), (1, vec![]));
    rig.advance(1);
    assert_eq!(waiting(&rig), 0);
    rig.sync_journal();
    let replies = rig.replies(&worker);
    assert_eq!((syncs(&replies), &replies[0].answer), (vec![take], &Ok(vec![])));
    assert_eq!(rig.instance.status().lag.last, 0);
}

#[test]
fn a_late_tick_is_told() {
    let mut rig = rig();
    let mut worker = rig.guest();
    rig.start_call(&mut worker, "queue.tube.t:take", &values![1]);
    rig.advance(SECOND + 250);
    let lag = rig.instance.status().lag;
    assert_eq!((lag.last, lag.longest), (250, 250));
}

#[test]
fn a_take_of_no_time_does_not_wait() {
    let mut rig = rig();
    let mut worker = rig.guest();
    assert_eq!(rig.call(&mut worker, "queue.tube.t:take", &values![0]), Ok(vec![]));
    assert_eq!(rig.call(&mut worker, "queue.tube.t:take", &values![-1]), Ok(vec![]));
}

#[test]
fn who_disconnects_waits_no_longer() {
    let mut rig = rig();
    let (mut gone, mut worker, mut producer) = (rig.guest(), rig.guest(), rig.guest());
    rig.start_call(&mut gone, "queue.tube.t:take", &values![]);
    rig.start_call(&mut worker, "queue.tube.t:take", &values![]);
    rig.disconnect(&gone);
    assert_eq!(waiting(&rig), 1);
    rig.call(&mut producer, "queue.tube.t:put", &values!["a"]).expect("a task");
    assert_eq!(rig.replies(&worker)[0].answer, Ok(task(0, "t", "a")));
    assert_eq!(rig.instance.output(gone.slot), b"");
}

#[test]
fn a_task_of_who_disconnects_goes_to_who_waits() {
    let mut rig = rig();
    let (mut holder, mut worker) = (rig.guest(), rig.guest());
    rig.call(&mut holder, "queue.tube.t:put", &values!["a"]).expect("a task");
    rig.call(&mut holder, "queue.tube.t:take", &values![]).expect("a task");
    rig.start_call(&mut worker, "queue.tube.t:take", &values![]);
    rig.disconnect(&holder);
    rig.advance(0);
    rig.sync_journal();
    assert_eq!(rig.replies(&worker)[0].answer, Ok(task(0, "t", "a")));
}

#[test]
fn a_slot_that_is_used_again_gets_no_foreign_replies() {
    let mut rig = rig();
    let mut gone = rig.guest();
    rig.start_call(&mut gone, "queue.tube.t:put", &values!["a"]);
    rig.start_call(&mut gone, "queue.tube.t:take", &values![]);
    rig.start_call(&mut gone, "queue.tube.t:take", &values![]);
    rig.disconnect(&gone);
    let mut newcomer = rig.guest();
    assert_eq!(newcomer.slot, gone.slot);
    rig.sync_journal();
    assert_eq!(rig.replies(&newcomer), []);
    let put = rig.start_call(&mut newcomer, "queue.tube.t:put", &values!["b"]);
    rig.sync_journal();
    assert_eq!(rig.ready(), [newcomer.slot]);
    assert_eq!(rig.ready(), [], "a slot is listed once");
    assert_eq!(syncs(&rig.replies(&newcomer)), [put]);
}

#[test]
fn a_put_waits_for_room() {
    let mut rig = Rig::new();
    let mut client = rig.guest();
    let kind = options! { capacity: 1 };
    rig.call(&mut client, "queue.create_tube", &values!["l", "limfifottl", kind]).expect("a tube");
    let put = |data: &str, timeout: u64| values![data, options! { timeout: timeout }];
    assert_eq!(rig.call(&mut client, "queue.tube.l:put", &put("a", 0)), Ok(task(0, "r", "a")));
    let waits = rig.start_call(&mut client, "queue.tube.l:put", &put("b", 5));
    let gives_up = rig.start_call(&mut client, "queue.tube.l:put", &put("c", 1));
    rig.advance(SECOND);
    rig.sync_journal();
    let replies = rig.replies(&client);
    assert_eq!((syncs(&replies), &replies[0].answer), (vec![gives_up], &Ok(vec![Value::Nil])));
    let delete = rig.start_call(&mut client, "queue.tube.l:delete", &values![0]);
    rig.sync_journal();
    let mut replies = rig.replies(&client);
    replies.sort_by_key(|reply| reply.sync);
    assert_eq!(syncs(&replies), [waits, delete]);
    assert_eq!(replies[0].answer, Ok(task(1, "r", "b")));
}

#[test]
fn a_tube_with_waiting_calls_is_not_dropped() {
    let mut rig = rig();
    let (mut worker, mut admin) = (rig.guest(), rig.admin());
    rig.start_call(&mut worker, "queue.tube.t:take", &values![]);
    let refusal = refused(rig.call(&mut admin, "queue.tube.t:drop", &values![])).1;
    assert_eq!(refusal, "There are consumers connected the tube");
}

#[test]
fn a_long_call_is_answered_when_it_is_done_and_holds_no_turn() {
    let mut rig = rig();
    let (mut worker, mut admin, mut other) = (rig.guest(), rig.admin(), rig.guest());
    let payloads = Value::from(vec![0.into(); 5000]);
    rig.call(&mut admin, "queue.tube.t:put_many", &values![payloads]).expect("tasks");
    rig.call(&mut worker, "queue.tube.t:take_many", &values![5000]).expect("tasks");
    let clock = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let elapsed = clock.clone();
    rig.instance.set_elapsed(Box::new(move || elapsed.fetch_add(100, std::sync::atomic::Ordering::Relaxed)));
    let release = rig.start_call(&mut admin, "queue.tube.t:release_all", &values![]);
    let mut turns = 0;
    while rig.replies(&admin).is_empty() {
        let next = rig.advance(0);
        rig.sync_journal();
        assert!(turns < 1000, "the call {release} is answered at last: {next:?}");
        rig.call(&mut other, "queue.tube.t:peek", &values![4999]).expect("others come in between");
        turns += 1;
    }
    assert!(turns > 10, "{turns}");
    let status = rig.instance.status();
    let longest = status.longest_turns.iter().find(|(name, _)| *name == "queue").map(|(_, longest)| *longest);
    assert!(longest.is_some_and(|longest| 0 < longest && longest < 1000), "{longest:?}");
    let ready = rig.call(&mut other, "queue.tube.t:take_many", &values![9999, 0]).expect("tasks");
    assert_eq!(ready[0].as_array().map(<[_]>::len), Some(5000));
}

#[test]
fn a_tick_that_works_on_a_job_tells_the_deadlines_of_the_tasks_that_it_has_moved() {
    let mut rig = rig();
    let mut admin = rig.admin();
    let short = values!["short", "fifottl", options! {ttl: 5}];
    rig.call(&mut admin, "queue.create_tube", &short).expect("a tube");
    rig.call(&mut admin, "queue.tube.t:put", &values!["a"]).expect("a task");
    let moving = values!["move", options! {all: true}, options! {to: "short"}];
    rig.call(&mut admin, "queue.tube.t:apply", &moving).expect("a job");
    // The queue is asked for its deadlines before the job has its turn.
    let due = rig.advance(0).expect("the task's life ends");
    assert!(due <= rig.now + 5 * SECOND, "{due} instead of {}", rig.now + 5 * SECOND);
    rig.sync_journal();
    rig.call(&mut admin, "queue.tube.short:peek", &values![0]).expect("it was moved");
    rig.advance(5 * SECOND);
    rig.sync_journal();
    assert_eq!(refused(rig.call(&mut admin, "queue.tube.short:peek", &values![0])).1, "Task 0 not found");
}
