//! Everything that a client can make grow has a bound.

use lycosa_instance::{CLOSED, Origin, Refused, Settings, Trust};
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::request::Body;
use lycosa_tuple::value::Value;

use crate::rig::{Client, Rig, options, refused, syncs, task, values};

const SPACE: u32 = 600;

fn rig(settings: Settings) -> Rig {
    let mut rig = Rig::with(settings);
    rig.create_space(SPACE, "s", options! {});
    rig
}

fn replace(rig: &mut Rig, client: &mut Client, id: u64, bytes: usize) {
    let tuple = values![id, Value::bin(vec![0; bytes])];
    rig.send(client, &Body::Replace { space: SPACE, tuple: &tuple.encode() });
}

#[test]
fn replies_in_flight_pause_their_connection_alone() {
    let mut rig = rig(Settings { max_in_flight: 3, ..Settings::default() });
    let (mut client, other) = (rig.admin(), rig.admin());
    for id in 0..2 {
        replace(&mut rig, &mut client, id, 1);
        assert!(!rig.instance.is_paused(client.slot));
    }
    replace(&mut rig, &mut client, 2, 1);
    assert!(rig.instance.is_paused(client.slot));
    assert!(!rig.instance.is_paused(other.slot));
    rig.sync_journal();
    assert!(!rig.instance.is_paused(client.slot), "nothing waits for the journal any more");
}

#[test]
fn replies_to_a_slow_reader_pause_its_connection() {
    let mut rig = rig(Settings { max_output: 10_000, ..Settings::default() });
    let (mut client, other) = (rig.admin(), rig.admin());
    while !rig.instance.is_paused(client.slot) {
        assert!(rig.instance.pending_bytes(client.slot) <= 10_000);
        replace(&mut rig, &mut client, 1, 1000);
        rig.sync_journal();
    }
    assert!(!rig.instance.is_paused(other.slot));
    let excess = rig.instance.pending_bytes(client.slot) - 10_000;
    rig.instance.consume(client.slot, excess - 1);
    assert!(rig.instance.is_paused(client.slot));
    rig.instance.consume(client.slot, 1);
    assert!(!rig.instance.is_paused(client.slot));
}

/// What the server does after a read of a socket.
fn ask_and_account(rig: &mut Rig, client: &mut Client, size: usize) {
    replace(rig, client, 1, size);
    rig.instance.account_output(client.slot);
    rig.sync_journal();
}

#[test]
fn replies_to_all_slow_readers_share_one_bound() {
    const TOTAL: usize = 1_000_000;
    let mut rig = rig(Settings { max_output: 100_000, max_output_total: TOTAL, ..Settings::default() });
    let mut clients: Vec<_> = (0..50).map(|_| rig.admin()).collect();
    let mut worker = rig.admin();
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for client in &mut clients {
            if !rig.instance.is_paused(client.slot) {
                ask_and_account(&mut rig, client, 1000);
                goes_on = true;
            }
        }
    }
    let unread = rig.instance.status().unread_output;
    let pending: Vec<_> = clients.iter().map(|client| rig.instance.pending_bytes(client.slot)).collect();
    assert_eq!(unread, pending.iter().sum::<usize>() + rig.instance.pending_bytes(worker.slot));
    assert!(unread > TOTAL / 2 && unread < TOTAL, "{unread}");
    let (least, most) = (pending.iter().min().unwrap(), pending.iter().max().unwrap());
    assert!(most - least < 5_000, "they share alike: {least} to {most}");
    assert_eq!(rig.instance.poll_excess(), None);

    // A client that reads goes on beside any number of clients that do not.
    for _ in 0..100 {
        assert!(!rig.instance.is_paused(worker.slot));
        ask_and_account(&mut rig, &mut worker, 1000);
        let ready = rig.instance.output(worker.slot).len();
        rig.instance.consume(worker.slot, ready);
    }
    rig.disconnect(&clients[0]);
    assert_eq!(rig.instance.status().unread_output, unread - pending[0]);
}

#[test]
fn the_worst_reader_ends_when_replies_that_come_by_themselves_exceed_the_bound() {
    const TOTAL: usize = 100_000;
    let mut rig = rig(Settings { max_output_total: TOTAL, ..Settings::default() });
    rig.create_tube("t", "fifo");
    let (mut idle, mut modest, mut producer) = (rig.guest(), rig.guest(), rig.guest());
    let take = values![60];
    let take = Body::Call { name: b"queue.tube.t:take", args: &take.encode() };
    rig.send(&mut modest, &take);
    for _ in 0..60 {
        rig.send(&mut idle, &take);
    }
    let payload = "x".repeat(2000);
    for _ in 0..61 {
        rig.call(&mut producer, "queue.tube.t:put", &values![payload.as_str()]).expect("a task");
        let ready = rig.instance.output(producer.slot).len();
        rig.instance.consume(producer.slot, ready);
    }
    let unread = rig.instance.status().unread_output;
    assert!(unread > TOTAL, "{unread}");
    rig.advance(2 * crate::rig::SECOND);
    let excess = rig.instance.poll_excess().expect("too much waits");
    assert_eq!((excess.slot, rig.instance.pending_bytes(idle.slot)), (idle.slot, 0));
    assert!(excess.bytes > TOTAL / 2 && rig.instance.wants_close(idle.slot));
    assert_eq!(rig.instance.poll_excess(), None, "the others fit");
    assert!(!rig.instance.wants_close(modest.slot) && !rig.instance.wants_close(producer.slot));
    assert_eq!(rig.instance.status().closed_for_output, 1);
}

#[test]
fn requests_that_do_not_come_as_a_whole_share_one_bound() {
    const FRAME: usize = 1 << 20;
    let settings = Settings { max_frame_size: FRAME, max_input_total: 10 * FRAME, ..Settings::default() };
    let mut rig = rig(settings);
    let attackers: Vec<_> = (0..12).map(|_| rig.guest()).collect();
    let honest = rig.guest();
    let second = crate::rig::SECOND;
    for attacker in &attackers[..10] {
        rig.instance.account_input(attacker.slot, FRAME - 1, second);
        assert_eq!(rig.instance.poll_input_excess(second), None);
    }
    // The rest of its request comes soon: it has the most bytes and stays.
    rig.instance.account_input(honest.slot, FRAME, 2 * second);
    let excess = rig.instance.poll_input_excess(2 * second).expect("too much waits");
    assert!(excess.slot != honest.slot && excess.bytes == FRAME - 1);
    assert!(rig.instance.wants_close(excess.slot) && !rig.instance.wants_close(honest.slot));
    assert_eq!(rig.instance.poll_input_excess(2 * second), None, "the others fit");
    rig.instance.account_input(honest.slot, 0, 2 * second);

    // If no sender is late, the connection with the most bytes ends.
    rig.instance.account_input(attackers[10].slot, FRAME, 2 * second);
    for attacker in &attackers[..10] {
        rig.instance.account_input(attacker.slot, FRAME - 1, 2 * second);
    }
    let excess = rig.instance.poll_input_excess(2 * second).expect("too much waits");
    assert_eq!((excess.slot, excess.bytes), (attackers[10].slot, FRAME));
    let status = rig.instance.status();
    assert_eq!((status.unserved_input, status.requests.closed_for_input), (10 * (FRAME - 1), 2));
    for attacker in &attackers {
        rig.disconnect(attacker);
    }
    assert_eq!(rig.instance.status().unserved_input, 0);
}

#[test]
fn requests_for_programs_keep_their_bytes_until_they_end() {
    const FRAME: usize = 1 << 20;
    const TOTAL: usize = 8 * FRAME;
    let settings =
        Settings { lua: true, max_frame_size: FRAME, max_input_total: TOTAL, ..Settings::default() };
    let mut rig = rig(settings);
    let large = values!["x".repeat(FRAME / 2).as_str()].encode();
    let eval = Body::Eval { text: b"f()", args: &large };
    let mut clients: Vec<_> = (0..20).map(|_| rig.admin()).collect();
    for client in &mut clients {
        while !rig.instance.is_paused(client.slot) {
            rig.send(client, &eval);
        }
    }
    let waiting = rig.instance.status().unserved_input;
    assert!(waiting > TOTAL / 2 && waiting < TOTAL + 20 * FRAME, "{waiting}");
    assert!(rig.instance.poll_input_excess(0).is_some(), "twenty are more than the sum bears");
    while rig.instance.poll_input_excess(0).is_some() {}
    assert!(rig.instance.status().unserved_input <= TOTAL);

    // A request ends, also one whose connection is to be closed.
    let before = rig.instance.status().unserved_input;
    let open = |rig: &Rig, session: u64| {
        clients.iter().any(|client| {
            !rig.instance.wants_close(client.slot)
                && rig.instance.caller(client.slot).is_some_and(|caller| caller.session == session)
        })
    };
    let mut freed = 0;
    while let Some(invoke) = rig.instance.poll_invoke(|_| true) {
        freed += usize::from(open(&rig, invoke.request.session));
        rig.instance.finish_invoke(invoke.request, Ok((0, &[])));
    }
    assert!(freed > 0 && before >= freed * FRAME / 2);
    assert_eq!(rig.instance.status().unserved_input, 0);
    clients.iter().for_each(|client| rig.disconnect(client));
    assert_eq!(rig.instance.status().unserved_input, 0);
}

#[test]
fn a_closed_connection_leaves_its_programs_to_the_line_and_no_bytes() {
    let mut rig = rig(Settings { lua: true, ..Settings::default() });
    let (mut gone, mut other) = (rig.admin(), rig.admin());
    for client in [&mut gone, &mut other] {
        for name in ["first", "second"] {
            rig.start_call(client, name, &values![]);
        }
    }
    let [ended, session] =
        [&gone, &other].map(|client| rig.instance.caller(client.slot).expect("it is there").session);
    let bytes = rig.instance.status().unserved_input;
    rig.disconnect(&gone);
    assert_eq!(rig.instance.status().unserved_input, bytes / 2);
    let next: Vec<_> = std::iter::from_fn(|| rig.instance.poll_invoke(|_| true)).collect();
    let order: Vec<_> = next.iter().map(|invoke| (invoke.request.session, invoke.share)).collect();
    assert_eq!(order, [(session, session), (ended, CLOSED), (session, session), (ended, CLOSED)]);
    assert!(!rig.instance.is_awaited(next[1].request) && rig.instance.is_awaited(next[0].request));
}

#[test]
fn four_of_the_largest_requests_always_fit() {
    const FRAME: usize = 1 << 20;
    let mut rig = rig(Settings { max_frame_size: FRAME, max_input_total: 1, ..Settings::default() });
    for _ in 0..4 {
        let client = rig.guest();
        rig.instance.account_input(client.slot, FRAME, 0);
        assert_eq!(rig.instance.poll_input_excess(0), None);
    }
    assert_eq!(rig.instance.status().max_input_total, 4 * FRAME);
}

#[test]
fn a_journal_that_is_behind_pauses_everybody() {
    let mut rig = rig(Settings { max_journal_backlog: 1000, ..Settings::default() });
    let (mut client, other) = (rig.admin(), rig.guest());
    replace(&mut rig, &mut client, 1, 500);
    assert!(!rig.instance.is_paused(other.slot));
    replace(&mut rig, &mut client, 2, 500);
    assert!(rig.instance.is_paused(client.slot) && rig.instance.is_paused(other.slot));
    let batch = rig.batch();
    assert!(!rig.instance.is_paused(other.slot), "the journal has taken the rows");
    rig.make_durable(batch);
}

#[test]
fn deadlines_wait_for_a_journal_that_is_behind() {
    let mut rig = rig(Settings { max_journal_backlog: 1000, ..Settings::default() });
    rig.create_tube("t", "fifottl");
    let mut client = rig.admin();
    rig.call(&mut client, "queue.tube.t:put", &values!["a", options! { ttl: 1 }]).expect("a task");
    replace(&mut rig, &mut client, 1, 2000);
    assert_eq!(rig.advance(10 * crate::rig::SECOND), None);
    assert_eq!(rig.batch().ends.len(), 1, "the task has not expired yet");
    rig.advance(0);
    assert_eq!(rig.batch().ends.len(), 1, "now it has");
}

#[test]
fn much_at_once_becomes_several_batches() {
    let mut rig = rig(Settings::default());
    let mut client = rig.admin();
    for id in 0..140 {
        replace(&mut rig, &mut client, id % 4, 1 << 19);
    }
    let batches: Vec<_> = std::iter::from_fn(|| rig.instance.poll_append()).collect();
    assert_eq!(batches.len(), 24, "six rows each, and two");
    assert_eq!(batches.iter().map(|batch| batch.ends.len()).sum::<usize>(), 140);
    let mut last = None;
    for batch in batches {
        assert!(batch.rows.len() < 4 << 20, "{}", batch.rows.len());
        assert_eq!(batch.ends.last().map(|&end| end as usize), Some(batch.rows.len()));
        let answered = batch.ends.len();
        assert!(last.is_none_or(|last| last + answered as u64 == batch.lsn));
        last = Some(batch.lsn);
        rig.make_durable(batch);
        assert_eq!(rig.replies(&client).len(), answered);
    }
    assert!(rig.instance.is_drained());
}

#[test]
fn connections_are_counted() {
    let mut rig = Rig::with(Settings { max_connections: 2, ..Settings::default() });
    let first = rig.guest();
    rig.guest();
    let origin = Origin { peer: "192.0.2.1:5".to_owned(), trust: Trust::Nobody };
    let refusal = rig.instance.connect(origin.clone(), rig.now).expect_err("two are open");
    assert_eq!(refusal, Refused::TooMany(2, "192.0.2.1:5".to_owned()));
    assert_eq!(
        refusal.to_string(),
        "2 connections are open, which is max_connections; 192.0.2.1:5 was turned away"
    );
    let status = rig.instance.status();
    assert_eq!((status.connections, status.requests.refused_connections), (2, 1));
    let admins: Vec<_> = (0..16).map(|_| rig.admin()).collect();
    let origin_of_admin = Origin { peer: "admin.sock".to_owned(), trust: Trust::Admin };
    assert!(
        rig.instance.connect(origin_of_admin, rig.now).is_err(),
        "the administrator's places are counted, too"
    );
    admins.iter().for_each(|admin| rig.disconnect(admin));
    assert!(rig.instance.connect(origin.clone(), rig.now).is_err());
    rig.disconnect(&first);
    rig.disconnect(&first);
    assert!(rig.instance.connect(origin, rig.now).is_ok());
    assert_eq!(rig.instance.status().connections, 2);
}

#[test]
fn waiting_calls_are_counted() {
    let mut rig = Rig::with(Settings { max_waiting: 2, ..Settings::default() });
    rig.create_tube("t", "fifo");
    let (mut worker, mut other) = (rig.guest(), rig.guest());
    let take = "queue.tube.t:take";
    let first = rig.start_call(&mut worker, take, &values![]);
    rig.start_call(&mut worker, take, &values![10]);
    for timeout in [values![], values![Value::Nil], values![5], values![0.5]] {
        let (code, text) = refused(rig.call(&mut worker, take, &timeout));
        assert_eq!(code, ErrorCode::ProcLua);
        assert!(text.starts_with("2 calls of this connection wait already"), "{text}");
    }
    rig.call(&mut other, "queue.create_tube", &values!["full", "limfifottl", options! { capacity: 1 }])
        .expect("a tube");
    let put = values!["a", options! { timeout: 1 }];
    rig.call(&mut worker, "queue.tube.full:put", &put).expect("this one does not wait");
    assert_eq!(refused(rig.call(&mut worker, "queue.tube.full:put", &put)).0, ErrorCode::ProcLua);
    let put = values![values!["a"], options! { timeout: 1 }];
    assert_eq!(refused(rig.call(&mut worker, "queue.tube.full:put_many", &put)).0, ErrorCode::ProcLua);
    let many = "queue.tube.t:take_many";
    assert_eq!(refused(rig.call(&mut worker, many, &values![5])).0, ErrorCode::ProcLua);
    assert_eq!(rig.call(&mut worker, many, &values![5, 0]), Ok(vec![values![]]), "nor does this one");
    assert_eq!(rig.call(&mut worker, take, &values![0]), Ok(vec![]), "this one does not wait");
    assert_eq!(rig.call(&mut worker, take, &values![-1.5]), Ok(vec![]));
    rig.start_call(&mut other, take, &values![]);
    assert_eq!(rig.instance.status().waiting_calls, 3);

    rig.call(&mut other, "queue.tube.t:put", &values!["a"]).expect("a task");
    assert_eq!(syncs(&rig.replies(&worker)), [first]);
    rig.start_call(&mut worker, take, &values![]);
    assert_eq!(rig.instance.status().waiting_calls, 3);
}

#[test]
fn a_call_with_a_task_at_hand_is_taken_whatever_waits() {
    let mut rig = Rig::with(Settings { max_waiting: 0, ..Settings::default() });
    rig.create_tube("t", "fifo");
    let mut worker = rig.guest();
    assert_eq!(rig.call(&mut worker, "queue.tube.t:put", &values!["a"]), Ok(task(0, "r", "a")));
    assert_eq!(rig.call(&mut worker, "queue.tube.t:take", &values![0]), Ok(task(0, "t", "a")));
}

#[test]
fn a_full_memory_refuses_inserts_and_nothing_else() {
    let mut rig = Rig::new();
    rig.create_space(SPACE, "s", options! {});
    rig.create_tube("t", "fifo");
    let (mut admin, mut guest) = (rig.admin(), rig.guest());
    for id in 0..100 {
        rig.insert(&mut admin, SPACE, &values![id, Value::bin([1; 1000])]).expect("room");
        rig.call(&mut guest, "queue.tube.t:put", &values!["a"]).expect("room");
    }
    rig.call(&mut guest, "queue.tube.t:take", &values![0]).expect("a task");
    let used = rig.instance.status().memory.used;
    rig.instance.reconfigure(rig.settings.clone(), used);
    assert_eq!(rig.instance.status().memory.limit, used);

    let refusal = refused(rig.insert(&mut admin, SPACE, &values![1000, Value::bin([1; 1000])]));
    assert_eq!(refusal.0, ErrorCode::MemoryIssue);
    assert!(refusal.1.starts_with("Failed to allocate "), "{}", refusal.1);
    let put = rig.call(&mut guest, "queue.tube.t:put", &values!["a"]);
    assert_eq!(refused(put).0, ErrorCode::MemoryIssue);

    assert_eq!(rig.call(&mut guest, "queue.tube.t:ack", &values![0]), Ok(task(0, "-", "a")));
    let key = values![0].encode();
    let deleted = rig.ask(&mut admin, &Body::Delete { space: SPACE, index: 0, key: &key });
    assert_eq!(deleted.map(|tuples| tuples.len()), Ok(1));
    assert_eq!(rig.select(&mut admin, SPACE, 0, &values![1]).map(|tuples| tuples.len()), Ok(1));

    for id in 1..100 {
        let key = values![id].encode();
        rig.ask(&mut admin, &Body::Delete { space: SPACE, index: 0, key: &key }).expect("a delete");
    }
    rig.insert(&mut admin, SPACE, &values![1000, Value::bin([1; 1000])]).expect("room again");
}
