use std::collections::HashSet;
use std::sync::Mutex as SyncMutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::request::Request;
use lycosa_tuple::value::Value;

use super::*;
use crate::fake_server::{
    Act, FakeServer, ballot, ballot_of_master, ballot_of_member, call, empty, fail, ok,
};
use crate::tube::PutOptions;

const FIRST: [u8; 16] = *b"first-session-id";
const SECOND: [u8; 16] = *b"second-sessionid";
const FOREVER: Duration = Duration::from_secs(3600);

fn quick(server: &FakeServer) -> ConnectOptions {
    let backoff_min = Duration::from_millis(1);
    ConnectOptions { backoff_min, backoff_max: Duration::from_millis(5), ..server.options() }
        .request_timeout(Duration::from_secs(5))
}

/// `queue.identify` of a server that knows one session or has forgotten it.
fn identified(request: &Request<'_>, args: &[Value], known: Option<[u8; 16]>) -> Act {
    match args {
        [] => ok(request, &[Value::str(known.unwrap_or(SECOND))]),
        [Value::Str(uuid)] if known.is_some_and(|known| known == uuid[..]) => {
            ok(request, &[Value::str(uuid)])
        }
        _ => {
            let message =
                "…/queue_session.lua:223: The UUID 73726966-2d74-6573-7373-696f6e2d6964 is unknown.";
            fail(request, ErrorCode::ProcLua, message)
        }
    }
}

fn task(state: &str) -> Value {
    Value::Array(vec![Value::from(0), Value::from(state), Value::from("x")])
}

/// Waits until the client has connected this number of times.
async fn connects(client: &Client, count: u64) -> Status {
    let mut watch = client.watch();
    loop {
        let status = watch.current();
        if status.connects == count && status.link == Link::Connected {
            return status;
        }
        watch.changed().await.expect("the client lives");
    }
}

#[tokio::test]
async fn a_session_outlives_its_connection() {
    let log = Arc::new(SyncMutex::new(Vec::new()));
    let written = Arc::clone(&log);
    let server = FakeServer::start(move |connection, request| {
        let (name, args) = call(request);
        written.lock().expect("not poisoned").push((connection, name.clone()));
        match name.as_str() {
            "queue.identify" => identified(request, &args, Some(FIRST)),
            "queue.tube.t:take" => ok(request, &[task("t")]),
            "queue.tube.t:ack" if connection == 1 => Act::HangUp,
            "queue.tube.t:ack" => ok(request, &[task("-")]),
            other => panic!("{other}"),
        }
    })
    .await;
    let client = Client::connect(quick(&server)).await.expect("a client");
    let tube = client.queue().tube("t");
    let task = tube.take(None).await.expect("an answer").expect("a task");
    assert_eq!(client.status().session, Some(Uuid::from_bytes_le(FIRST)));
    assert!(task.ack().await.expect_err("lost").is_disconnected());
    task.ack().await.expect("on the second connection");
    let status = client.status();
    assert_eq!((status.connects, status.session_changes), (2, 0));
    assert_eq!(status.session, Some(Uuid::from_bytes_le(FIRST)));
    let expected = [
        (1, "queue.identify"),
        (1, "queue.tube.t:take"),
        (1, "queue.tube.t:ack"),
        (2, "queue.identify"),
        (2, "queue.tube.t:ack"),
    ];
    let log = log.lock().expect("not poisoned");
    assert_eq!(*log, expected.map(|(connection, name)| (connection, name.to_owned())));
}

#[tokio::test]
async fn a_forgotten_session_is_replaced() {
    let server = FakeServer::start(move |connection, request| {
        let (name, args) = call(request);
        let known = if connection == 1 { Some(FIRST) } else { None };
        match name.as_str() {
            "queue.identify" => identified(request, &args, known),
            "queue.tube.t:take" => ok(request, &[]),
            _ => Act::HangUp,
        }
    })
    .await;
    let client = Client::connect(quick(&server)).await.expect("a client");
    let queue = client.queue();
    assert!(queue.tube("t").take(Some(Duration::ZERO)).await.expect("an answer").is_none());
    assert!(queue.cfg(&crate::QueueConfig::default()).await.expect_err("lost").is_disconnected());
    let status = connects(&client, 2).await;
    assert_eq!((status.session_changes, status.session), (1, Some(Uuid::from_bytes_le(SECOND))));
}

#[tokio::test]
async fn another_session_on_request() {
    let server = FakeServer::start(|_, request| {
        let (_, args) = call(request);
        identified(request, &args, Some(FIRST))
    })
    .await;
    let client = Client::connect(quick(&server)).await.expect("a client");
    let queue = client.queue();
    let session = Uuid::from_bytes_le(FIRST);
    assert_eq!(queue.identify(Some(session)).await.expect("known"), session);
    assert_eq!(client.status().session, Some(session));
    let error = queue.identify(Some(Uuid::nil())).await.expect_err("unknown");
    assert!(error.to_string().ends_with(" is unknown."), "{error}");
    assert_eq!(client.status().session, Some(session));
}

#[tokio::test]
async fn only_requests_that_change_nothing_are_repeated() {
    let server = FakeServer::start(|connection, request| match request.body {
        _ if connection % 2 == 1 => Act::HangUp,
        Body::Ping => empty(request),
        _ => ok(request, &[Value::from("RUNNING")]),
    })
    .await;
    let client = Client::connect(quick(&server)).await.expect("a client");
    client.ping().await.expect("repeated");
    assert_eq!(connects(&client, 2).await.connects, 2);

    let client = Client::connect(quick(&server)).await.expect("a client");
    assert_eq!(client.queue().state().await.expect("repeated"), crate::QueueState::Running);

    let client = Client::connect(quick(&server)).await.expect("a client");
    let error = client.queue().tube("t").put("x", PutOptions::new()).await.expect_err("lost");
    assert!(error.is_disconnected(), "{error}");
}

#[tokio::test]
async fn while_there_is_no_connection() {
    let mut server = FakeServer::start(|connection, request| match request.body {
        // A new connection is of no use until the session is back.
        Body::Ping => Act::HangUp,
        _ if connection > 1 => fail(request, ErrorCode::Loading, "Instance bootstrap hasn't finished yet"),
        _ => ok(request, &[Value::str(FIRST)]),
    })
    .await;
    let options = quick(&server).request_timeout(Duration::from_millis(50));
    let client = Client::connect(options).await.expect("a client");
    client.queue().identify(None).await.expect("a session");
    let connection = client.connection().await.expect("a connection");
    assert!(connection.ping().await.expect_err("lost").is_disconnected());
    let error = client.queue().tube("t").take(None).await.expect_err("no connection");
    assert!(error.is_disconnected(), "{error}");
    // The status tells of the lost connection first, then of the error of the next one.
    let mut watch = client.watch();
    while !matches!(watch.current().link, Link::Connecting { last_error } if &*last_error == "Instance bootstrap hasn't finished yet")
    {
        watch.changed().await.expect("the client lives");
    }

    client.close();
    assert_eq!(client.status().link, Link::Closed);
    assert!(client.ping().await.expect_err("closed").is_disconnected());
    server.wait_for_open(0).await;
}

#[tokio::test]
async fn the_last_clone_closes() {
    let mut server = FakeServer::start(|_, request| empty(request)).await;
    let client = Client::connect(quick(&server)).await.expect("a client");
    let mut watch = client.watch();
    let tube = client.queue().tube("t");
    drop(client);
    server.wait_for_open(1).await;
    drop(tube);
    server.wait_for_open(0).await;
    while let Some(status) = watch.changed().await {
        assert_eq!(status.link, Link::Closed);
    }
}

#[tokio::test]
async fn the_first_attempt_may_fail() {
    let server =
        FakeServer::start(|_, request| fail(request, ErrorCode::NoSuchUser, "User 'x' is not found")).await;
    let error = Client::connect(server.options().credentials("x", "")).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::NoSuchUser));
}

/// A server of a pair: the master is the one whose number `master` holds. Each knows the session of the other.
async fn member(number: usize, master: &Arc<AtomicUsize>) -> FakeServer {
    let master = Arc::clone(master);
    FakeServer::start(move |_, request| {
        let is_master = master.load(Ordering::Relaxed) == number;
        if matches!(request.body, Body::Vote) {
            return ballot(request, !is_master);
        }
        let (name, args) = call(request);
        match name.as_str() {
            "queue.identify" => identified(request, &args, Some(FIRST)),
            _ if !is_master => ok(request, &[Value::Nil]),
            "queue.tube.t:take" => ok(request, &[task("t")]),
            "queue.tube.t:put" => fail(request, ErrorCode::Readonly, "read-only"),
            _ => ok(request, &[task("-")]),
        }
    })
    .await
}

#[tokio::test]
async fn the_master_is_followed_with_the_session() {
    let master = Arc::new(AtomicUsize::new(2));
    let (first, second) = (member(1, &master).await, member(2, &master).await);
    let mut options = quick(&first);
    options.address = format!("{},{}", options.address, second.options().address);
    let client = Client::connect(options.clone()).await.expect("the second is the master");
    let tube = client.queue().tube("t");
    let task = tube.take(None).await.expect("an answer").expect("a task");
    // A refusal by a server that is the master still changes nothing.
    assert!(tube.put("x", PutOptions::new()).await.is_err());
    master.store(1, Ordering::Relaxed);
    assert!(matches!(tube.take(None).await, Err(Error::Unavailable)));
    let status = connects(&client, 2).await;
    assert_eq!((status.session, status.session_changes), (Some(Uuid::from_bytes_le(FIRST)), 0));
    task.ack().await.expect("at the new master, in the same session");
    master.store(0, Ordering::Relaxed);
    let Err(Error::NoMaster(causes)) = Client::connect(options).await else { panic!("nobody takes writes") };
    assert_eq!(causes.matches("takes no writes").count(), 2, "{causes}");
}

#[tokio::test]
async fn a_server_that_confirms_nothing_is_left_for_another_one() {
    for refuses in [false, true] {
        let (rival, looks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let cut_off = FakeServer::start(move |_, request| match request.body {
            Body::Vote => ballot_of_master(request, 0),
            Body::Ping => empty(request),
            _ if call(request).0 == "queue.identify" => ok(request, &[Value::str(FIRST)]),
            _ if refuses => fail(request, ErrorCode::SyncQuorumTimeout, "0 replicas are connected"),
            // Its reply waits for a replica.
            _ => Act::Send(Vec::new()),
        })
        .await;
        let (takes_writes, votes) = (Arc::clone(&rival), Arc::clone(&looks));
        let other = FakeServer::start(move |_, request| match request.body {
            Body::Vote => {
                votes.fetch_add(1, Ordering::Relaxed);
                match takes_writes.load(Ordering::Relaxed) {
                    0 => ballot(request, true),
                    number => ballot_of_master(request, number as u64 - 1),
                }
            }
            Body::Ping => empty(request),
            _ if call(request).0 == "queue.identify" => ok(request, &[Value::str(FIRST)]),
            _ => ok(request, &[task("r")]),
        })
        .await;
        let mut options = quick(&cut_off).request_timeout(Duration::from_millis(200));
        options.address = format!("{},{}", options.address, other.options().address);
        let client = Client::connect(options).await.expect("the first takes writes");
        let tube = client.queue().tube("t");
        client.queue().identify(None).await.expect("a session");
        // As long as no other server takes writes, it stays: its replica may come back.
        let error = tube.put("x", PutOptions::new()).await.expect_err("it confirms nothing");
        let wanted = if refuses { Some(Kind::ReplicasMissing) } else { None };
        assert_eq!(error.kind(), wanted, "{error}");
        // One look follows the other, and the first connection may have asked too: with the third vote one look is over.
        while looks.load(Ordering::Relaxed) < 3 {
            let _ = tube.put("x", PutOptions::new()).await;
        }
        assert_eq!(client.status().connects, 1);
        // Nor if the other one takes writes and confirms no more than this one does.
        rival.store(1, Ordering::Relaxed);
        let seen = looks.load(Ordering::Relaxed);
        while looks.load(Ordering::Relaxed) < seen + 2 {
            let _ = tube.put("x", PutOptions::new()).await;
        }
        assert_eq!(client.status().connects, 1);

        rival.store(2, Ordering::Relaxed);
        while client.status().connects == 1 {
            // Each doubt asks again.
            let _ = tube.put("x", PutOptions::new()).await;
        }
        let status = connects(&client, 2).await;
        assert_eq!((status.session, status.session_changes), (Some(Uuid::from_bytes_le(FIRST)), 0));
        tube.put("x", PutOptions::new()).await.expect("the other one confirms");
        // The first one takes writes still, as it believes, but no replica follows it.
        client.connection().await.expect("a connection").leave("a test");
        connects(&client, 3).await;
        tube.put("x", PutOptions::new()).await.expect("again at the other one");
    }
}

/// A `take` with a long wait looks the same at a master without tasks and at one that has taken a task and waits for
/// replicas that will not come.
#[tokio::test]
async fn a_long_wait_ends_at_a_server_that_confirms_nothing() {
    for confirms in [false, true] {
        let votes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&votes);
        // Answers of one connection keep their order.
        let blocked = Arc::new(SyncMutex::new(HashSet::new()));
        let blocking = Arc::clone(&blocked);
        let is_blocked = move |connection| blocked.lock().expect("not poisoned").contains(&connection);
        let blocks = move |connection| _ = blocking.lock().expect("not poisoned").insert(connection);
        let waiting = FakeServer::start(move |connection, request| match request.body {
            _ if is_blocked(connection) => Act::Send(Vec::new()),
            Body::Vote => {
                counted.fetch_add(1, Ordering::Relaxed);
                ballot_of_master(request, u64::from(confirms))
            }
            Body::Ping => empty(request),
            _ if call(request).0 == "queue.identify" => ok(request, &[Value::str(FIRST)]),
            _ => {
                blocks(connection);
                Act::Send(Vec::new())
            }
        })
        .await;
        let is_master = Arc::new(AtomicBool::new(false));
        let takes_writes = Arc::clone(&is_master);
        let other = FakeServer::start(move |_, request| match request.body {
            Body::Vote if takes_writes.load(Ordering::Relaxed) => ballot_of_master(request, 2),
            Body::Vote => ballot(request, true),
            Body::Ping => empty(request),
            _ if call(request).0 == "queue.identify" => ok(request, &[Value::str(FIRST)]),
            _ => ok(request, &[task("t")]),
        })
        .await;
        let mut options = quick(&waiting).request_timeout(Duration::from_millis(200));
        options.address = format!("{},{}", options.address, other.options().address);
        let client = Client::connect(options).await.expect("the first takes writes");
        while client.queue().identify(None).await.is_err() {}
        let tube = client.queue().tube("t");
        let take = tokio::spawn(async move { tube.take(Some(FOREVER)).await });
        is_master.store(true, Ordering::Relaxed);
        if confirms {
            let seen = votes.load(Ordering::Relaxed);
            while votes.load(Ordering::Relaxed) < seen + 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(!take.is_finished(), "a master that confirms is waited at");
            assert_eq!(client.status().connects, 1);
            continue;
        }
        let error = take.await.expect("no panic").expect_err("it was left");
        assert!(error.is_disconnected(), "{error}");
        let again = client.queue().tube("t");
        while again.take(Some(FOREVER)).await.is_err() {}
    }
}

#[tokio::test]
async fn a_busy_master_is_not_left_for_an_old_one() {
    let (is_busy, looks) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let busy = Arc::clone(&is_busy);
    let master = FakeServer::start(move |_, request| match request.body {
        Body::Vote => ballot_of_master(request, 1),
        Body::Ping => empty(request),
        _ if call(request).0 == "queue.identify" => ok(request, &[Value::str(FIRST)]),
        _ if busy.load(Ordering::Relaxed) => Act::Send(Vec::new()),
        _ => ok(request, &[task("r")]),
    })
    .await;
    // It was frozen when the other one took over, and takes writes still.
    let votes = Arc::clone(&looks);
    let old = FakeServer::start(move |_, request| match request.body {
        Body::Vote => {
            votes.fetch_add(1, Ordering::Relaxed);
            ballot_of_master(request, 0)
        }
        _ => panic!("the old master is asked: {request:?}"),
    })
    .await;
    let mut options = quick(&master).request_timeout(Duration::from_millis(200));
    options.address = format!("{},{}", old.options().address, options.address);
    let client = Client::connect(options).await.expect("the master");
    let tube = client.queue().tube("t");
    // One look follows the other, and the first connection may have asked too: with the third vote one look is over.
    while looks.load(Ordering::Relaxed) < 3 {
        assert!(matches!(tube.put("x", PutOptions::new()).await, Err(Error::Timeout(_))));
    }
    is_busy.store(false, Ordering::Relaxed);
    while tube.put("x", PutOptions::new()).await.is_err() {}
    // A client that connects anew goes to the master too, no matter which server answers first.
    client.connection().await.expect("a connection").leave("a test");
    connects(&client, 2).await;
    tube.put("x", PutOptions::new()).await.expect("again at the master");
    assert_eq!(client.status().connects, 2);
}

/// A member of a group. The leader answers at first and says nothing once `is_frozen`; its followers pass requests on, and
/// answer nothing before `has_successor`.
async fn group_member(
    number: usize,
    is_frozen: &Arc<AtomicBool>,
    has_successor: &Arc<AtomicBool>,
) -> FakeServer {
    let (is_frozen, has_successor) = (Arc::clone(is_frozen), Arc::clone(has_successor));
    FakeServer::start(move |_, request| {
        let (frozen, succeeded) = (is_frozen.load(Ordering::Relaxed), has_successor.load(Ordering::Relaxed));
        if frozen && (number == 1 || !succeeded) {
            return Act::Send(Vec::new());
        }
        match request.body {
            Body::Vote => ballot_of_member(request, number != 1),
            Body::Ping => empty(request),
            _ if call(request).0 == "queue.identify" => ok(request, &[Value::str(FIRST)]),
            // The leader has no tasks: a take waits.
            _ if !frozen => Act::Send(Vec::new()),
            _ => ok(request, &[task("t")]),
        }
    })
    .await
}

#[tokio::test]
async fn a_frozen_leader_is_left_once_another_member_answers() {
    let (is_frozen, has_successor) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let leader = group_member(1, &is_frozen, &has_successor).await;
    let followers = [
        group_member(2, &is_frozen, &has_successor).await,
        group_member(3, &is_frozen, &has_successor).await,
    ];
    let mut options = quick(&leader).request_timeout(FOREVER);
    options.leader_grace = FOREVER;
    for follower in &followers {
        options.address = format!("{},{}", follower.options().address, options.address);
    }
    let client = Client::connect(options).await.expect("the leader");
    client.queue().identify(None).await.expect("a session");
    let first = client.connection().await.expect("a connection");
    assert_eq!(
        first.address(),
        leader.options().address,
        "a follower passes requests on, the leader is better"
    );
    let tube = client.queue().tube("t");
    let (waiting, changing) = (tube.clone(), tube.clone());
    let take = tokio::spawn(async move { waiting.take(None).await });
    let put = tokio::spawn(async move { changing.put("x", PutOptions::new()).await });
    is_frozen.store(true, Ordering::Relaxed);
    // No other member answers before one of them leads: the client stays however long that takes.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!take.is_finished() && !put.is_finished() && client.status().connects == 1);
    has_successor.store(true, Ordering::Relaxed);
    let error = put.await.expect("no panic").expect_err("its leader was left, and the outcome is open");
    assert!(error.to_string().contains("says nothing"), "{error}");
    take.await.expect("no panic").expect("the take is made again").expect("a task of the new leader");
    let status = connects(&client, 2).await;
    assert_eq!((status.session, status.session_changes), (Some(Uuid::from_bytes_le(FIRST)), 0));
    tube.take(None).await.expect("an answer").expect("a task of the new leader");
}

/// One connection of a busy leader may be silent for long, as a reply waits for the disks of others.
#[tokio::test]
async fn a_leader_that_answers_new_clients_is_not_left() {
    let (blocked, votes) = (Arc::new(SyncMutex::new(HashSet::new())), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&votes);
    let leader = FakeServer::start(move |connection, request| {
        let is_blocked = blocked.lock().expect("not poisoned").contains(&connection);
        match request.body {
            _ if is_blocked => Act::Send(Vec::new()),
            Body::Vote => {
                counted.fetch_add(1, Ordering::Relaxed);
                ballot_of_member(request, false)
            }
            Body::Ping => empty(request),
            _ => {
                blocked.lock().expect("not poisoned").insert(connection);
                Act::Send(Vec::new())
            }
        }
    })
    .await;
    let follower = FakeServer::start(|_, request| match request.body {
        Body::Vote => ballot_of_member(request, true),
        _ => panic!("the leader was left: {request:?}"),
    })
    .await;
    let mut options = quick(&leader).request_timeout(FOREVER);
    (options.leader_grace, options.patience_in_group) = (FOREVER, Duration::from_secs(1));
    options.address = format!("{},{}", options.address, follower.options().address);
    let client = Client::connect(options).await.expect("the leader");
    let seen = votes.load(Ordering::Relaxed);
    let asked = client.clone();
    let put = tokio::spawn(async move { asked.queue().state().await });
    while votes.load(Ordering::Relaxed) < seen + 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!put.is_finished() && client.status().connects == 1);
}
