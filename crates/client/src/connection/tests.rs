use std::sync::Mutex as SyncMutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::reply;
use lycosa_tuple::value::Value;

use super::*;
use crate::fake_server::{Act, FakeServer, GREETING, call, empty, fail, ok, ok_bytes};

const SHORT: Duration = Duration::from_millis(30);

async fn connect(server: &FakeServer) -> Connection {
    Connection::connect(&server.options()).await.expect("a connection")
}

#[tokio::test]
async fn a_recorded_conversation() {
    let (client, mut server) = tokio::io::duplex(1024);
    let peer = tokio::spawn(async move {
        server.write_all(GREETING.as_bytes()).await?;
        let mut request = [0; 10];
        server.read_exact(&mut request).await?;
        let reply =
            b"\xce\x00\x00\x00\x18\x83\x00\xce\x00\x00\x00\x00\x01\xcf\x00\x00\x00\x00\x00\x00\x00\x00";
        server.write_all(reply).await?;
        server.write_all(b"\x05\xce\x00\x00\x00\x65\x80").await?;
        io::Result::Ok(request)
    });
    let connection = Connection::over(client, &ConnectOptions::new("")).await.expect("a connection");
    assert_eq!(connection.greeting().version, "2.6.0");
    let response = connection.request(&Body::Ping).await.expect("an answer");
    assert_eq!((response.data(), response.schema_version()), (&[0x90][..], 101));
    let request = peer.await.expect("the peer").expect("both ways");
    assert_eq!(request, *b"\xce\x00\x00\x00\x05\x82\x00\x40\x01\x00");
}

#[tokio::test]
async fn requests_carry_their_fields() {
    let server =
        FakeServer::start(|_, request| ok(request, &[Value::from(format!("{:?}", request.body))])).await;
    let connection = connect(&server).await;
    let shown = async |response: Result<Response>| match response.expect("an answer").first_value() {
        Ok(Value::Str(text)) => String::from_utf8(text).expect("UTF-8"),
        other => panic!("{other:?}"),
    };
    let one = || [Value::from(1)];
    assert_eq!(shown(connection.call("f", one()).await).await, "Call { name: [102], args: [145, 1] }");
    assert_eq!(shown(connection.call_16("f", ()).await).await, "Call16 { name: [102], args: [144] }");
    assert_eq!(shown(connection.eval("f", one()).await).await, "Eval { text: [102], args: [145, 1] }");
    assert_eq!(
        shown(connection.select(512, 1, 2, one(), 3, 4).await).await,
        "Select { space: 512, index: 1, limit: 4, offset: 3, iterator: 2, key: [145, 1] }"
    );
    assert_eq!(shown(connection.insert(9, one()).await).await, "Insert { space: 9, tuple: [145, 1] }");
    assert_eq!(shown(connection.replace(9, one()).await).await, "Replace { space: 9, tuple: [145, 1] }");
    assert_eq!(
        shown(connection.update(9, 1, one(), ()).await).await,
        "Update { space: 9, index: 1, base: 0, key: [145, 1], operations: [144] }"
    );
    assert_eq!(
        shown(connection.upsert(9, one(), ()).await).await,
        "Upsert { space: 9, base: 0, tuple: [145, 1], operations: [144] }"
    );
    assert_eq!(
        shown(connection.delete(9, 1, one()).await).await,
        "Delete { space: 9, index: 1, key: [145, 1] }"
    );
    connection.ping().await.expect("a sign of life");
}

#[tokio::test]
async fn authentication() {
    let stored = auth::hash2(b"secret");
    let greeting = Greeting::decode(GREETING.as_bytes().try_into().expect("128 bytes")).expect("a greeting");
    let server = FakeServer::start(move |_, request| {
        let Body::Auth { user: b"me", scramble: AuthTuple::ChapSha1(scramble) } = request.body else {
            panic!("not an AUTH of me: {request:?}");
        };
        if auth::check(scramble, &greeting.salt, &stored) {
            empty(request)
        } else {
            fail(request, ErrorCode::PasswordMismatch, "Incorrect password supplied for user 'me'")
        }
    })
    .await;
    assert!(Connection::connect(&server.options().credentials("me", "secret")).await.is_ok());
    let error = Connection::connect(&server.options().credentials("me", "other")).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::PasswordMismatch));
    assert_eq!(error.to_string(), "Incorrect password supplied for user 'me'");
}

#[tokio::test]
async fn answers_in_any_order() {
    const COUNT: usize = 100;
    let held = SyncMutex::new(Vec::new());
    let server = FakeServer::start(move |_, request| {
        let mut held = held.lock().expect("not poisoned");
        held.push(ok_bytes(request.header.sync, &call(request).1));
        if held.len() < COUNT {
            Act::Send(Vec::new())
        } else {
            Act::Send(held.drain(..).rev().flatten().collect())
        }
    })
    .await;
    let connection = connect(&server).await;
    let calls: Vec<_> = (0..COUNT as u64)
        .map(|number| {
            let connection = connection.clone();
            tokio::spawn(async move { (number, connection.call("echo", [Value::from(number)]).await) })
        })
        .collect();
    for call in calls {
        let (number, response) = call.await.expect("a task");
        assert_eq!(response.expect("an answer").first_value().expect("a value"), Value::Uint(number));
    }
}

#[tokio::test]
async fn pushed_packets_are_passed_over() {
    let server = FakeServer::start(|_, request| {
        let mut bytes = Vec::new();
        reply::push(&mut bytes, request.header.sync, 1, &[0xc3]);
        bytes.extend(ok_bytes(request.header.sync, &[Value::from("done")]));
        Act::Send(bytes)
    })
    .await;
    let response = connect(&server).await.call("f", ()).await.expect("an answer");
    assert_eq!(response.values().expect("values"), [Value::from("done")]);
}

#[tokio::test]
async fn refusals() {
    let server =
        FakeServer::start(|_, request| fail(request, ErrorCode::NoSuchProc, "Procedure 'f' is not defined"))
            .await;
    let error = connect(&server).await.call("f", ()).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::NoSuchProc));
    assert_eq!(error.to_string(), "Procedure 'f' is not defined");
}

#[tokio::test]
async fn a_late_answer_is_passed_over() {
    let late = SyncMutex::new(None);
    let server = FakeServer::start(move |_, request| {
        let mut late = late.lock().expect("not poisoned");
        let Some(sync) = late.replace(request.header.sync) else { return Act::Send(Vec::new()) };
        let mut bytes = ok_bytes(sync, &[Value::from("late")]);
        bytes.extend(ok_bytes(request.header.sync, &[Value::from("in time")]));
        Act::Send(bytes)
    })
    .await;
    let connection = connect(&server).await;
    let body = Body::Call { name: b"f", args: &[0x90] };
    let error = connection.request_within(&body, Some(SHORT)).await.expect_err("late");
    assert!(matches!(error, Error::Timeout(SHORT)));
    let response = connection.request(&body).await.expect("an answer");
    assert_eq!(response.values().expect("values"), [Value::from("in time")]);
}

#[tokio::test]
async fn a_lost_connection_ends_its_requests() {
    let seen = AtomicUsize::new(0);
    let server = FakeServer::start(move |_, _| match seen.fetch_add(1, Ordering::Relaxed) {
        0 => Act::Send(Vec::new()),
        _ => Act::HangUp,
    })
    .await;
    let connection = connect(&server).await;
    let (first, second) = tokio::join!(connection.ping(), connection.ping());
    for error in [first.expect_err("lost"), second.expect_err("lost")] {
        assert_eq!(error.to_string(), "disconnected: the server closed the connection");
        assert!(error.is_disconnected());
    }
    assert_eq!(&*connection.closed().await, "the server closed the connection");
    assert!(connection.is_closed());
    assert!(connection.ping().await.expect_err("closed").is_disconnected());
}

#[tokio::test]
async fn what_is_no_answer_ends_the_connection() {
    for bytes in
        [&b"\xa3abc"[..], b"\x01\xc0", b"\x05\x81\x00\x00\x90\x90", b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff"]
    {
        let server = FakeServer::start(move |_, _| Act::Send(bytes.to_vec())).await;
        let error = connect(&server).await.ping().await.expect_err("nonsense");
        assert!(error.is_disconnected(), "{error}");
    }
}

#[tokio::test]
async fn another_protocol() {
    let refused = async |greeting: String| {
        let (client, mut server) = tokio::io::duplex(1024);
        server.write_all(greeting.as_bytes()).await.expect("the pipe is long enough");
        Connection::over(client, &ConnectOptions::new("")).await.expect_err("no greeting")
    };
    let error = refused("HTTP/1.1 400 Bad Request\r\n".repeat(9)).await;
    assert!(error.is_disconnected() && error.to_string().contains("it speaks HTTP"), "{error}");
    let error = refused(GREETING.replace("Binary", "Lua con")).await;
    assert!(
        error.is_disconnected() && error.to_string().contains("it answers \"Tarantool 2.6.0 (Lua con"),
        "{error}"
    );
    let console = "Tarantool 2.6.0-0-g47aa4e01e (Lua console)";
    let error = refused(format!("{console:<63}\n{:<63}\n", "type 'help' for interactive help")).await;
    assert!(error.is_disconnected() && error.to_string().contains("a text console"), "{error}");
    let (client, _server) = tokio::io::duplex(1024);
    let error =
        Connection::over(client, &ConnectOptions::new("").connect_timeout(SHORT)).await.expect_err("silence");
    assert!(matches!(error, Error::Timeout(_)));
}

#[tokio::test]
async fn nobody_listens() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let error = Connection::connect(&ConnectOptions::new(address.as_str())).await.expect_err("nobody");
    assert!(error.to_string().starts_with(&format!("cannot connect to {address}: ")));
}

#[tokio::test]
async fn only_so_many_are_in_flight() {
    let (count, mut seen) = watch::channel(0);
    let server = FakeServer::start(move |_, request| {
        count.send_modify(|count| *count += 1);
        if matches!(request.body, Body::Ping) { empty(request) } else { Act::Send(Vec::new()) }
    })
    .await;
    let options = ConnectOptions { max_in_flight: 2, ..server.options() };
    let connection = Connection::connect(&options).await.expect("a connection");
    let (a, b, c) = tokio::join!(connection.ping(), connection.ping(), connection.ping());
    assert!(a.is_ok() && b.is_ok() && c.is_ok());

    let wait = || tokio::time::timeout(SHORT, connection.call("wait", ()));
    let (a, b, c) = tokio::join!(wait(), wait(), wait());
    assert!(a.is_err() && b.is_err() && c.is_err());
    // The two that were given up are still the server's work: the third has never been sent.
    assert_eq!(*seen.borrow_and_update(), 5);
}

#[tokio::test]
async fn the_last_clone_closes() {
    let mut server = FakeServer::start(|_, request| empty(request)).await;
    let connection = connect(&server).await;
    let other = connection.clone();
    drop(connection);
    other.ping().await.expect("still open");
    drop(other);
    server.wait_for_open(0).await;

    let connection = connect(&server).await;
    connection.close();
    assert_eq!(&*connection.closed().await, "closed by this client");
    server.wait_for_open(0).await;
}

#[tokio::test]
async fn a_silent_server_is_noticed() {
    let server = FakeServer::start(|_, _| Act::Send(Vec::new())).await;
    let options = ConnectOptions { keep_alive: Duration::from_millis(10), ..server.options() };
    let connection = Connection::connect(&options).await.expect("a connection");
    let body = Body::Call { name: b"wait", args: &[0x90] };
    let error = connection.request_within(&body, None).await.expect_err("silence");
    assert_eq!(error.to_string(), "disconnected: the server does not answer any more");
}

#[tokio::test]
async fn a_lively_server_is_kept() {
    let server = FakeServer::start(|_, request| match request.body {
        Body::Ping => empty(request),
        _ => Act::Send(Vec::new()),
    })
    .await;
    let options = ConnectOptions { keep_alive: Duration::from_millis(5), ..server.options() };
    let connection = Connection::connect(&options).await.expect("a connection");
    let body = Body::Call { name: b"wait", args: &[0x90] };
    let error =
        connection.request_within(&body, Some(Duration::from_millis(60))).await.expect_err("no answer");
    assert!(matches!(error, Error::Timeout(_)), "{error}");
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn a_task_that_nobody_waits_for_is_given_back() {
    let taken = SyncMutex::new(None);
    let (given_back, mut returned) = watch::channel(None);
    let server = FakeServer::start(move |_, request| {
        let mut taken = taken.lock().expect("not poisoned");
        match call(request) {
            (name, _) if name == "take" => {
                *taken = Some(request.header.sync);
                Act::Send(Vec::new())
            }
            (name, _) if name == "put" => {
                let task = Value::Array(vec![Value::from(7), Value::from("t"), Value::Nil]);
                let mut bytes = ok_bytes(taken.expect("a take came before"), &[task]);
                bytes.extend(ok_bytes(request.header.sync, &[]));
                Act::Send(bytes)
            }
            release => {
                given_back.send_replace(Some(release));
                empty(request)
            }
        }
    })
    .await;
    let connection = connect(&server).await;
    let body = Body::Call { name: b"take", args: &[0x90] };
    let late =
        connection.request_giving_back(&body, Some(SHORT), Some(GiveBack::One("release".into()))).await;
    assert!(matches!(late, Err(Error::Timeout(_))));
    connection.call("put", ()).await.expect("an answer");
    let returned = returned.wait_for(Option::is_some).await.expect("the server lives").clone();
    assert_eq!(returned, Some(("release".to_owned(), vec![Value::from(7)])));
}
