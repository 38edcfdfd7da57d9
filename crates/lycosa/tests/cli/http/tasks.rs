//! Tasks over HTTP.

use serde_json::json;

use super::client::Door;

fn door() -> (Door, String) {
    let door = Door::open(&[]);
    door.server.run(&["tube", "create", "mail"]);
    let token = door.token("worker", "operator", "*");
    (door, token)
}

#[test]
fn a_task_is_put_looked_at_and_deleted() {
    let (door, token) = door();
    let payload = json!({"to": "ann", "n": 9_007_199_254_740_993_u64, "f": 1.5});
    let put = json!({"payload": payload, "delay": 60, "pri": 3});
    let answer = door.ask_json("POST /v1/tubes/mail/tasks", &token, &put);
    assert_eq!((answer.status, answer.json()), (201, json!({"id": "0", "state": "delayed"})));
    assert_eq!(answer.field("location"), Some("/v1/tubes/mail/tasks/0"));
    let task = door.ask("GET /v1/tubes/mail/tasks/0", &token, "", b"").json();
    assert_eq!((&task["payload"], &task["pri"], &task["id"]), (&payload, &json!(3), &json!("0")));
    let gone = door.ask("DELETE /v1/tubes/mail/tasks/0", &token, "", b"");
    assert_eq!((gone.status, gone.json()["state"].as_str()), (200, Some("done")));
    assert_eq!(door.ask("GET /v1/tubes/mail/tasks/0", &token, "", b"").problem(), "no-such-task");
    assert_eq!(door.ask("GET /v1/tubes/mail/tasks/x", &token, "", b"").problem(), "no-such-task");
    assert_eq!(door.ask_json("POST /v1/tubes/none/tasks", &token, &put).problem(), "no-such-tube");
}

#[test]
fn an_option_that_the_tube_would_ignore_refuses_the_request() {
    let (door, token) = door();
    door.server.run(&["tube", "create", "plain", "--type", "fifo"]);
    let put = |tube: &str, body: &serde_json::Value| {
        door.ask_json(&format!("POST /v1/tubes/{tube}/tasks"), &token, body)
    };
    for (tube, body, place) in [
        ("mail", json!({"payload": 1, "utube": "ann"}), "put: tubes of type fifottl ignore option 'utube'"),
        ("plain", json!({"payload": 1, "delay": 5}), "put: tubes of type fifo ignore option 'delay'"),
        (
            "plain",
            json!([{"payload": 1}, {"payload": 2, "ttl": 5}]),
            "#2: put_many: tubes of type fifo ignore option 'ttl'",
        ),
    ] {
        let refused = put(tube, &body);
        assert_eq!((refused.status, refused.problem().as_str()), (400, "refused"), "{body}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with(place), "{detail}");
    }
    assert_eq!(put("plain", &json!({"payload": 1})).status, 201);
    let taken = door.ask("POST /v1/tubes/plain/take", &token, "", b"").json();
    let lease = taken["tasks"][0]["lease"].as_str().expect("a token").to_owned();
    let release = json!({"releases": [{"lease": lease, "delay": 5}]});
    let settled = door.ask_json("POST /v1/tubes/plain/settle", &token, &release).json();
    assert!(settled.to_string().contains("tubes of type fifo ignore option 'delay'"), "{settled}");
    let administrator = door.token("boss", "administrator", "*");
    let tube = json!({"type": "fifo", "options": {"capacity": 5}});
    let refused = door.ask_json("PUT /v1/tubes/new", &administrator, &tube);
    assert_eq!((refused.status, refused.problem().as_str()), (400, "refused"));
    assert_eq!(door.ask("GET /v1/tubes/new", &administrator, "", b"").problem(), "no-such-tube");
    let existing = |kind: &str| door.ask_json("PUT /v1/tubes/plain", &administrator, &json!({"type": kind}));
    assert_eq!(existing("fifo").status, 200);
    let refused = existing("fifottl");
    assert_eq!((refused.status, refused.problem().as_str()), (409, "conflict"));
    assert_eq!(refused.json()["detail"], "tube \"plain\" exists, and its type is fifo, not fifottl");
}

#[test]
fn headers_come_back_with_the_task_that_is_taken() {
    let (door, token) = door();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let fields = format!("Traceparent: {trace}\r\nTracestate: a=1\r\n");
    let put = |content: &str, body: &str| {
        let fields = format!("Content-Type: {content}\r\n{fields}");
        door.ask("POST /v1/tubes/mail/tasks", &token, &fields, body.as_bytes()).status
    };
    let own = json!([
        {"payload": 1, "headers": {"origin": "cron"}},
        {"payload": 2, "headers": {"traceparent": "own"}},
    ]);
    assert_eq!(put("application/json", &own.to_string()), 201);
    assert_eq!(put("text/plain", "x"), 201);
    let post = |task| door.ask_json("POST /v1/tubes/mail/tasks", &token, &task);
    assert_eq!(post(json!({"payload": 4})).status, 201);
    let long = format!("Content-Type: text/plain\r\nTraceparent: {}\r\n", "x".repeat(513));
    assert_eq!(door.ask("POST /v1/tubes/mail/tasks", &token, &long, b"y").status, 201);
    let refused = post(json!({"payload": 1, "headers": {"a": 1}}));
    assert_eq!((refused.status, refused.problem().as_str()), (400, "refused"));
    assert!(refused.json()["detail"].as_str().unwrap().contains("option headers has a value of \"a\""));
    // They are on the disk, and on the command line.
    let Door { server, .. } = door;
    let door = Door::of(server.restart(&["--http-listen", "127.0.0.1:0"]));
    let taken = door.ask("POST /v1/tubes/mail/take?max=9", &token, "", b"").json();
    let tasks = taken["tasks"].as_array().unwrap();
    let headers: Vec<_> = tasks.iter().map(|task| task["headers"].clone()).collect();
    let traced = json!({"traceparent": trace, "tracestate": "a=1"});
    let both = json!({"traceparent": trace, "tracestate": "a=1", "origin": "cron"});
    assert_eq!(headers, [both, json!({"traceparent": "own"}), traced, json!(null), json!(null)]);
    door.server.run(&["put", "mail", "z", "--header", "origin=a=b"]);
    let peeked = door.server.run(&["peek", "mail", "5", "--json"]).stdout;
    assert!(peeked.contains(r#""headers":{"origin":"a=b"}"#), "{peeked}");
}

#[test]
fn batches_come_as_an_array_or_as_lines_and_are_whole() {
    let (door, token) = door();
    let batch = json!([{"payload": null}, {"payload": "b", "delay": 9}]);
    let answer = door.ask_json("POST /v1/tubes/mail/tasks", &token, &batch).json();
    assert_eq!(answer, json!({"tasks": [{"id": "0", "state": "ready"}, {"id": "1", "state": "delayed"}]}));
    let lines = b"{\"payload\": 1}\n\n{\"payload\": 2}\n";
    let ndjson = "Content-Type: application/x-ndjson\r\n";
    let answer = door.ask("POST /v1/tubes/mail/tasks", &token, ndjson, lines).json();
    assert_eq!(answer["tasks"].as_array().unwrap().len(), 2);
    let broken =
        door.ask("POST /v1/tubes/mail/tasks", &token, ndjson, b"{\"payload\": 1}\n{\"payload\": }\n");
    assert_eq!(broken.problem(), "malformed");
    assert!(broken.json()["detail"].as_str().unwrap().starts_with("line 2: "), "{broken:?}");
    let refused = json!([{"payload": 1}, {"payload": 1, "pri": -1}]);
    let answer = door.ask_json("POST /v1/tubes/mail/tasks", &token, &refused);
    assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed"));
    let tube = door.ask("GET /v1/tubes/mail", &token, "", b"").json();
    assert_eq!(tube["tasks"]["total"], 4, "{tube}");
}

#[test]
fn payloads_of_every_kind_come_back() {
    let (door, token) = door();
    let put = |fields: &str, body: &[u8]| door.ask("POST /v1/tubes/mail/tasks?delay=5", &token, fields, body);
    assert_eq!(put("Content-Type: text/plain; charset=utf-8\r\n", "grüß".as_bytes()).status, 201);
    assert_eq!(put("Content-Type: application/octet-stream\r\n", b"\0\xff").status, 201);
    assert_eq!(put("Content-Type: text/plain\r\n", b"\xff").problem(), "malformed");
    assert_eq!(put("Content-Type: text/html\r\n", b"x").problem(), "wrong-type");
    assert_eq!(put("Content-Type: application/json\r\n", b"{\"payload\": 1}").problem(), "malformed");
    let peek = |id: u64| door.ask(&format!("GET /v1/tubes/mail/tasks/{id}"), &token, "", b"").json();
    assert_eq!((&peek(0)["payload"], &peek(0)["state"]), (&json!("grüß"), &json!("delayed")));
    assert_eq!(peek(1)["payload_base64"], "AP8=");
    let post = |task: serde_json::Value| door.ask_json("POST /v1/tubes/mail/tasks", &token, &task);
    assert_eq!(post(json!({"payload_base64": "AP8="})).status, 201);
    // A map whose key is a number.
    assert_eq!(post(json!({"payload_msgpack": "gQEC"})).status, 201);
    assert_eq!(peek(2)["payload_base64"], "AP8=");
    assert_eq!(peek(3)["payload_msgpack"], "gQEC");
    for wrong in [
        json!({"payload_msgpack": "gQE="}),
        json!({"payload_base64": "?"}),
        json!({"payload": 1, "payload_base64": ""}),
        json!({}),
        json!({"payload": 1, "dealy": 5}),
        json!(1),
    ] {
        assert_eq!(post(wrong.clone()).problem(), "malformed", "{wrong}");
    }
}

#[test]
fn a_full_tube_asks_to_come_again() {
    let (door, token) = door();
    door.server.run(&["tube", "create", "small", "--type", "limfifottl", "--capacity", "1"]);
    let put = || door.ask_json("POST /v1/tubes/small/tasks", &token, &json!({"payload": 1}));
    assert_eq!(put().status, 201);
    let full = put();
    assert_eq!((full.status, full.problem().as_str(), full.field("retry-after")), (429, "full", Some("1")));
}

/// A put with a key is done once, also when the server is killed between the two requests.
#[test]
fn a_put_with_a_key_is_done_once() {
    let (door, token) = door();
    let put = |door: &Door, token: &str, key: &str, body: &serde_json::Value| {
        let fields = format!("Content-Type: application/json\r\n{key}");
        door.ask("POST /v1/tubes/mail/tasks", token, &fields, body.to_string().as_bytes())
    };
    let key = "Idempotency-Key: order-7\r\n";
    let batch = json!([{"payload": 1}, {"payload": 2, "delay": 60}]);
    let first = put(&door, &token, key, &batch).json();
    assert_eq!(put(&door, &token, key, &batch).json(), first);
    let other = put(&door, &token, key, &json!({"payload": 1}));
    assert_eq!((other.status, other.problem().as_str()), (422, "other-request"));
    let door = Door::of(door.server.restart(&["--http-listen", "127.0.0.1:0"]));
    let again = put(&door, &token, key, &batch);
    assert_eq!((again.status, again.json()), (201, first));
    assert_eq!(door.ask("GET /v1/tubes/mail", &token, "", b"").json()["tasks"]["total"], 2);
    // Keys of other tokens are others.
    let second = door.token("second", "operator", "mail");
    assert_eq!(put(&door, &second, key, &batch).json()["tasks"][0]["id"], "2");
    for wrong in [
        "Idempotency-Key: \r\n".to_owned(),
        format!("Idempotency-Key: {}\r\n", "x".repeat(256)),
        "Idempotency-Key: a\r\nIdempotency-Key: b\r\n".to_owned(),
    ] {
        assert_eq!(put(&door, &token, &wrong, &batch).problem(), "malformed", "{wrong}");
    }
}

/// What a put says is kept as it was said, or refused with the member and its value: nothing is guessed.
#[test]
fn a_put_is_refused_where_its_meaning_is_unclear_or_lost() {
    let (door, token) = door();
    let put = |content: &str, query: &str, body: &str| {
        let request = format!("POST /v1/tubes/mail/tasks{query}");
        door.ask(&request, &token, &format!("Content-Type: {content}\r\n"), body.as_bytes())
    };
    let json = "application/json";
    let cases = [
        (r#"{"payload": 1, "payload": 2}"#, "duplicate field `payload`"),
        (r#"{"payload": 1, "delay": 5, "delay": 0}"#, "duplicate field `delay`"),
        (r#"[{"payload": 1}, {"payload": 1, "pri": 1, "pri": 2}]"#, "#2: duplicate field `pri`"),
        (
            "[[1, null, null, 0, 0, 0, 0, null, {}]]",
            "#1: invalid type: sequence, expected a task, which is an object",
        ),
        ("[1]", "#1: invalid type: integer `1`, expected a task, which is an object"),
        (r#"{"payload": 18446744073709551616}"#, "18446744073709551616 has more than 64 bits"),
        (r#"[{"payload": {"n": [-9223372036854775809]}}]"#, "-9223372036854775809 has more than 64 bits"),
        (r#"{"payload": 1, "delay": -1}"#, "delay is -1: use seconds, 0 or more"),
        (r#"[{"payload": 1}, {"payload": 1, "ttr": -0.5}]"#, "#2: ttr is -0.5"),
        (r#"{"payload": 1, "delay": "5"}"#, "expected a number"),
        (r#"{"payload": 1, "pri": -1}"#, "expected a whole number, 0 or more"),
    ];
    for (body, meant) in cases {
        let answer = put(json, "", body);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed"), "{body}: {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(meant), "{body}: {answer:?}");
    }
    let lines = put("application/x-ndjson", "", "{\"payload\": 1}\n{\"payload\": 99999999999999999999}\n");
    assert!(
        lines.json()["detail"].as_str().unwrap().starts_with("line 2: 99999999999999999999"),
        "{lines:?}"
    );
    let broken = put("application/x-ndjson", "", "{\"payload\": 1}\n{\"payload\": }\n");
    assert_eq!(broken.json()["detail"], "line 2: expected value at column 13");
    let many = put("application/x-ndjson", "", &"{\"payload\": 1}\n".repeat(10_001));
    assert_eq!(many.json()["detail"], "10001 tasks are to be put: put at most 10000 in one request");
    for (query, meant) in [
        ("?delay=1e999", "delay is inf"),
        ("?ttl=NaN", "ttl is NaN"),
        ("?delay=-1", "delay is -1"),
        ("?delay=soon", "delay: expected a number"),
        ("?pri=", "pri: expected a whole number"),
    ] {
        let answer = put("text/plain", query, "x");
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().starts_with(meant), "{query}: {answer:?}");
    }
    // Bytes that are compressed for the way would be kept compressed.
    let packed = "Content-Type: application/octet-stream\r\nContent-Encoding: gzip\r\n";
    let answer = door.ask("POST /v1/tubes/mail/tasks", &token, packed, b"\x1f\x8b");
    assert_eq!((answer.status, answer.problem().as_str()), (415, "wrong-type"), "{answer:?}");
    let total = || door.ask("GET /v1/tubes/mail", &token, "", b"").json()["tasks"]["total"].clone();
    assert_eq!(total(), 0);

    let kept = r#"[{"payload": [18446744073709551615, -9223372036854775808, 1e300]}, {"payload": "99999999999999999999"}]"#;
    assert_eq!(put(json, "", kept).status, 201);
    let task = |id: &str| door.ask(&format!("GET /v1/tubes/mail/tasks/{id}"), &token, "", b"");
    assert_eq!(task("0").json()["payload"], json!([u64::MAX, i64::MIN, 1e300]));
    assert_eq!(task("1").json()["payload"], "99999999999999999999");
    assert_eq!(task("+1").problem(), "no-such-task");
    assert_eq!(total(), 2);
}

#[test]
fn a_missing_tube_is_named_without_the_names_of_methods() {
    let (door, token) = door();
    for request in ["GET /v1/tubes/mial/tasks/0", "POST /v1/tubes/mial/take", "DELETE /v1/tubes/mial/tasks/1"]
    {
        let answer = door.ask(request, &token, "", b"");
        assert_eq!(answer.problem(), "no-such-tube", "{answer:?}");
        assert_eq!(answer.json()["detail"], "tube \"mial\" does not exist", "{request}");
    }
}

/// As the health checks of load balancers ask.
#[test]
fn a_probe_of_http_1_0_needs_no_host() {
    let (door, _) = door();
    let answer = String::from_utf8(door.raw(b"GET /livez HTTP/1.0\r\n\r\n")).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    let stranger = String::from_utf8(door.raw(b"GET /v1/tubes HTTP/1.0\r\n\r\n")).unwrap();
    assert!(stranger.starts_with("HTTP/1.0 401 "), "{stranger}");
}

#[test]
fn used_up_memory_is_named_by_its_setting() {
    let door = Door::open(&["--memory-limit", "8MiB"]);
    door.server.run(&["tube", "create", "mail"]);
    door.server.run(&["tube", "create", "other"]);
    let token = door.token("worker", "operator", "*");
    let body = vec![b'x'; 500_000];
    let put = || door.ask("POST /v1/tubes/mail/tasks", &token, "Content-Type: text/plain\r\n", &body);
    let full = (0..40).map(|_| put()).find(|answer| answer.status != 201).expect("40 of these need 20 MB");
    assert_eq!((full.status, full.problem().as_str()), (429, "full"));
    assert!(full.json()["detail"].as_str().unwrap().contains("(memory_limit)"), "{full:?}");
    let moved = door.server.run(&["apply", "mail", "move", "--all", "--to", "other", "--yes"]);
    assert_eq!(moved.code, 1, "{moved:?}");
    assert!(moved.stderr.contains("(memory_limit)") && moved.stderr.contains("--resume"), "{moved:?}");
}
