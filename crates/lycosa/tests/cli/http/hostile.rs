//! Requests that mean no good get nothing and hold nothing.

use std::io::{Read, Write};

use serde_json::json;

use super::client::{Door, answers, connect_from, read_all};

fn tasks(door: &Door, token: &str) -> u64 {
    door.ask("GET /v1/tubes/mail", token, "", b"").json()["tasks"]["total"].as_u64().unwrap()
}

fn door(flags: &[&str]) -> (Door, String) {
    let door = Door::open(flags);
    door.server.run(&["tube", "create", "mail"]);
    let token = door.token("worker", "operator", "*");
    (door, token)
}

/// The head of a put with these fields, Host among them.
fn put_head(token: &str, fields: &str) -> String {
    format!(
        "POST /v1/tubes/mail/tasks HTTP/1.1\r\nContent-Type: text/plain\r\nAuthorization: Bearer {token}\r\n{fields}\r\n"
    )
}

#[test]
fn pages_of_other_sites_and_rebound_names_are_refused_before_the_body_is_read() {
    let (door, token) = door(&["--http-hosts", "queue.example"]);
    let host = format!("Host: {}\r\n", door.address);
    let length = "Content-Length: 1000000\r\n";
    let cases = [
        (format!("{host}Origin: http://evil.example\r\n"), 403, "cross-site"),
        (format!("{host}Origin: null\r\n"), 403, "cross-site"),
        (format!("{host}Sec-Fetch-Site: cross-site\r\n"), 403, "cross-site"),
        (format!("{host}Sec-Fetch-Site: same-site\r\n"), 403, "cross-site"),
        ("Host: evil.example\r\n".to_owned(), 421, "wrong-host"),
        ("Host: evil.example:8081\r\nOrigin: http://evil.example:8081\r\n".to_owned(), 421, "wrong-host"),
        (String::new(), 400, "malformed"),
        (format!("{host}{host}"), 400, "malformed"),
    ];
    for (fields, status, problem) in cases {
        // Nothing of the body is sent: an answer comes all the same.
        let bytes = door.raw(put_head(&token, &format!("{fields}{length}")).as_bytes());
        let answer = answers(&bytes).remove(0);
        assert_eq!((answer.status, answer.problem().as_str()), (status, problem), "{fields}");
        assert_eq!(answer.field("connection"), Some("close"));
        assert!(answer.field("access-control-allow-origin").is_none());
    }
    let ours = "Host: queue.example\r\nConnection: close\r\nContent-Length: 1\r\n";
    let bytes = door.raw(format!("{}x", put_head(&token, ours)).as_bytes());
    assert_eq!(answers(&bytes)[0].status, 201);
    let same = format!("{host}Origin: http://{}\r\nConnection: close\r\nContent-Length: 1\r\n", door.address);
    let bytes = door.raw(format!("{}x", put_head(&token, &same)).as_bytes());
    assert_eq!(answers(&bytes)[0].status, 201);
    assert_eq!(tasks(&door, &token), 2);
}

#[test]
fn no_request_is_smuggled_behind_an_unclear_length() {
    let (door, token) = door(&[]);
    let host = format!("Host: {}\r\n", door.address);
    let inner = format!("{}y", put_head(&token, &format!("{host}Content-Length: 1\r\n")));
    let unclear = [
        "Content-Length: 1\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x1\r\n",
    ];
    for fields in unclear {
        let outer = put_head(&token, &format!("{host}{fields}"));
        let bytes = door.raw(format!("{outer}0\r\n\r\n{inner}").as_bytes());
        let answers = answers(&bytes);
        assert!(answers.len() <= 1, "{fields}: {}", String::from_utf8_lossy(&bytes));
        assert!(answers.iter().all(|answer| answer.status >= 400), "{fields}: {answers:?}");
    }
    assert_eq!(tasks(&door, &token), 0);
    // A chunked body is one request, also beside a length, and the last one of its connection.
    let chunked = [
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    ];
    for (id, fields) in chunked.into_iter().enumerate() {
        let outer = put_head(&token, &format!("{host}{fields}"));
        let bytes = door.raw(format!("{outer}1\r\nx\r\n0\r\n\r\n{inner}").as_bytes());
        let answers = answers(&bytes);
        assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [201], "{fields}");
        assert_eq!(answers[0].field("connection"), Some("close"), "{fields}");
        let task = door.ask(&format!("GET /v1/tubes/mail/tasks/{id}"), &token, "", b"").json();
        assert_eq!(task["payload"], "x", "{fields}");
    }
    assert_eq!(tasks(&door, &token), 3);
}

#[test]
fn paths_lead_nowhere_else() {
    let (door, token) = door(&[]);
    for path in [
        "/v1/tubes/../../etc/passwd",
        "/v1/tubes/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/v1/tubes/mail%00",
        "/v1/tubes/mail%0d%0aX-Evil:%201",
        "/v1/tubes/mail/",
        "//v1/tubes",
        "/v1/tubes/mail/tasks/0/../../..",
        "/V1/tubes",
        "/v1/tubes/mail:truncate",
        "/v1/tubes/mail%3aput",
        "/v1/tubes/%ff",
        "/v1/tubes/mail/tasks/18446744073709551616",
        "/v1/tubes/mail/tasks/-1",
        "/v1/tubes/mail/tasks/0x0",
    ] {
        let answer = door.ask(&format!("GET {path}"), &token, "", b"");
        assert!((400..=404).contains(&answer.status), "{path}: {answer:?}");
        assert!(answer.field("x-evil").is_none());
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let (door, token) = door(&["--http-max-body", "64KiB", "--http-max-header", "8KiB"]);
    let host = format!("Host: {}\r\n", door.address);
    // The length alone is enough; nothing of the body is sent.
    let head = put_head(&token, &format!("{host}Content-Length: 65537\r\n"));
    let answer = answers(&door.raw(head.as_bytes())).remove(0);
    assert_eq!((answer.status, answer.problem().as_str()), (413, "too-large"));
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(65536));
    let head = put_head(&token, &format!("{host}Transfer-Encoding: chunked\r\n"));
    let answer = answers(&door.raw(format!("{head}{chunk}{chunk}").as_bytes())).remove(0);
    assert_eq!((answer.status, answer.problem().as_str()), (413, "too-large"));
    let long = format!("GET /livez HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(20 << 10));
    assert_eq!(answers(&door.raw(long.as_bytes()))[0].status, 431);
    let many = format!("GET /livez HTTP/1.1\r\n{host}{}\r\n", "X: y\r\n".repeat(65));
    assert_eq!(answers(&door.raw(many.as_bytes()))[0].status, 431);
    assert_eq!(tasks(&door, &token), 0);
}

/// Heads and bodies that do not come, and connections that say nothing, end by themselves; others are served meanwhile.
#[test]
fn slow_clients_are_ended_and_cost_the_others_nothing() {
    let (door, token) = door(&["--http-timeout", "0.3"]);
    let host = format!("Host: {}\r\n", door.address);
    let slow_head = format!("GET /livez HTTP/1.1\r\n{host}");
    let slow_body = put_head(&token, &format!("{host}Content-Length: 9\r\n"));
    let mut slow: Vec<_> = ["", &slow_head, &slow_body]
        .iter()
        .map(|beginning| {
            let mut stream = door.connect();
            stream.write_all(beginning.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(door.ask_json("POST /v1/tubes/mail/tasks", &token, &json!({"payload": 1})).status, 201);
    for stream in &mut slow {
        let bytes = read_all(stream);
        let answers = answers(&bytes);
        assert!(answers.iter().all(|answer| answer.status == 408), "{answers:?}");
    }
    assert_eq!(tasks(&door, &token), 1);
}

#[test]
fn connections_beyond_the_bound_are_closed_and_take_no_place_of_others() {
    let (door, token) = door(&["--http-max-connections", "3"]);
    let mut held: Vec<_> = (0..3).map(|_| door.connect()).collect();
    // Each is served, so all three are counted.
    for stream in &mut held {
        write!(stream, "GET /livez HTTP/1.1\r\nHost: {}\r\n\r\n", door.address).unwrap();
        let mut bytes = [0; 12];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"HTTP/1.1 200");
    }
    for _ in 0..50 {
        assert_eq!(read_all(&mut door.connect()), b"");
    }
    drop(held);
    crate::support::wait_until("a place", || {
        let answer = door.raw(
            format!("GET /livez HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", door.address).as_bytes(),
        );
        !answer.is_empty()
    });
    assert_eq!(tasks(&door, &token), 0);
}

/// The whole of 127.0.0.0/8 is this machine: a client can have several addresses.
#[test]
fn one_address_cannot_hold_all_places() {
    let (door, _) = door(&["--http-max-connections", "8", "--http-max-connections-per-address", "3"]);
    let live = format!("GET /livez HTTP/1.1\r\nHost: {}\r\n\r\n", door.address);
    let mut held: Vec<_> = (0..3).map(|_| connect_from("127.0.0.2", &door.address)).collect();
    for stream in &mut held {
        // Served once, and held on.
        stream.write_all(live.as_bytes()).unwrap();
        let mut bytes = [0; 12];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"HTTP/1.1 200");
    }
    for _ in 0..50 {
        assert_eq!(read_all(&mut connect_from("127.0.0.2", &door.address)), b"");
    }
    for _ in 0..5 {
        assert_eq!(door.ask("GET /livez", "", "", b"").status, 200, "others are served");
    }
    assert!(door.server.log().contains("http.max_connections_per_address"), "{}", door.server.log());
    drop(held);
    crate::support::wait_until("a place of the address", || {
        let mut stream = connect_from("127.0.0.2", &door.address);
        let _ = stream.write_all(live.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes());
        !read_all(&mut stream).is_empty()
    });
}

#[test]
fn tokens_that_are_none_get_nothing() {
    let (door, token) = door(&[]);
    let put = |authorization: &str| {
        door.ask(
            "POST /v1/tubes/mail/tasks",
            "",
            &format!("Content-Type: text/plain\r\n{authorization}"),
            b"x",
        )
    };
    for (authorization, problem) in [
        ("", "no-token"),
        ("Authorization: Basic YTpi\r\n", "no-token"),
        ("Authorization: Bearer\r\n", "no-token"),
        ("Authorization: Bearer \r\n", "no-token"),
        ("Authorization: Bearer lycosa_0\r\n", "invalid-token"),
        (&format!("Authorization: Bearer {token}0\r\n"), "invalid-token"),
        (&format!("Authorization: Bearer {}\r\n", token.to_uppercase()), "invalid-token"),
        (&format!("Authorization: Bearer x\r\nAuthorization: Bearer {token}\r\n"), "malformed"),
    ] {
        let answer = put(authorization);
        assert_eq!(answer.problem(), problem, "{authorization}");
        assert_eq!(answer.field("www-authenticate").is_some(), answer.status == 401);
    }
    // Nor in the query, where logs and histories keep it.
    let answer = door.ask(&format!("POST /v1/tubes/mail/tasks?access_token={token}"), "", "", b"x");
    assert_eq!(answer.problem(), "no-token");
    assert_eq!(tasks(&door, &token), 0);
}
