//! Tokens: made, listed and revoked by `lycosa token`, enforced over HTTP.

use serde_json::json;

use super::client::Door;
use crate::support::finish;

/// Runs a command of the administrator.
fn run(door: &Door, arguments: &[&str]) -> crate::support::Run {
    let data = door.server.data.path().to_str().unwrap();
    let all = [arguments, &["--data-dir", data]].concat();
    finish(door.server.command(&all), "")
}

#[test]
fn each_role_may_do_its_part() {
    let door = Door::open(&[]);
    door.server.run(&["tube", "create", "mail"]);
    door.server.run(&["tube", "create", "other"]);
    let viewer = door.token("viewer", "viewer", "*");
    let worker = door.token("worker", "operator", "mail");
    let task = json!({"payload": 1});
    assert_eq!(door.ask_json("POST /v1/tubes/mail/tasks", &viewer, &task).problem(), "forbidden");
    assert_eq!(door.ask_json("POST /v1/tubes/mail/tasks", &worker, &task).status, 201);
    assert_eq!(door.ask_json("POST /v1/tubes/other/tasks", &worker, &task).problem(), "forbidden");
    assert_eq!(door.ask("GET /v1/tubes/mail/tasks/0", &viewer, "", b"").status, 200);
    assert_eq!(door.ask("DELETE /v1/tubes/mail/tasks/0", &viewer, "", b"").problem(), "forbidden");
    let names = |token: &str| {
        let listed = door.ask("GET /v1/tubes", token, "", b"").json();
        let tubes = listed["tubes"].as_array().unwrap();
        tubes.iter().map(|tube| tube["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&viewer).len(), 2);
    assert_eq!(names(&worker), ["mail"]);
    assert_eq!(door.ask("GET /v1/tubes/other", &worker, "", b"").problem(), "no-such-tube");
}

#[test]
fn a_revoked_token_ends_at_once_and_none_outlives_its_time() {
    let door = Door::open(&[]);
    let secret = door.token("ann", "viewer", "*");
    assert_eq!(door.ask("GET /v1/tubes", &secret, "", b"").status, 200);
    let again = run(&door, &["token", "add", "ann", "--role", "viewer"]);
    assert!(again.code == 1 && again.stderr.contains("token 'ann' exists"), "{}", again.stderr);
    let listed = run(&door, &["token", "list", "--json"]);
    assert_eq!(
        (listed.lines()[0]["name"].as_str(), listed.lines()[0]["role"].as_str()),
        (Some("ann"), Some("viewer"))
    );
    assert!(!listed.stdout.contains(&secret));
    assert_eq!(run(&door, &["token", "revoke", "ann"]).code, 0);
    assert_eq!(door.ask("GET /v1/tubes", &secret, "", b"").problem(), "invalid-token");
    let gone = run(&door, &["token", "revoke", "ann"]);
    assert!(gone.code == 1 && gone.stderr.contains("token 'ann' does not exist"), "{}", gone.stderr);
    let short = run(&door, &["token", "add", "short", "--role", "viewer", "--ttl", "0.001"]);
    crate::support::wait_until("the token to end", || {
        door.ask("GET /v1/tubes", short.stdout.trim(), "", b"").status == 401
    });
    assert!(run(&door, &["token", "list"]).stdout.contains("expired"));
}

#[test]
fn tokens_survive_a_restart() {
    let door = Door::open(&[]);
    let secret = door.token("ann", "viewer", "*");
    let door = Door::of(door.server.restart(&["--http-listen", "127.0.0.1:0"]));
    assert_eq!(door.ask("GET /v1/tubes", &secret, "", b"").status, 200);
}

#[test]
fn answers_are_shared_with_clients_that_take_them_a_little_old_and_with_no_other_token() {
    let door = Door::open(&[]);
    door.server.run(&["tube", "create", "mail"]);
    let secret = door.token("ann", "viewer", "*");
    let tubes = |headers: &str, token: &str| door.ask("GET /v1/status", token, headers, b"");
    let of_five_seconds = "Cache-Control: max-age=5\r\n";
    let first = tubes(of_five_seconds, &secret);
    assert_eq!((first.status, first.field("age")), (200, Some("0")));
    door.server.run(&["tube", "create", "other"]);
    let count = |token: &str, headers| tubes(headers, token).json()["tubes"].as_array().unwrap().len();
    assert_eq!(count(&secret, ""), 2, "without the header an answer is fresh");
    let other = door.token("bob", "viewer", "*");
    assert_eq!(count(&other, of_five_seconds), 2, "a token has readings of its own");
    let known = format!("{of_five_seconds}If-None-Match: {}\r\n", first.field("etag").unwrap());
    let again = tubes(&known, &secret);
    // On a slow machine five seconds may have passed.
    assert!(again.status == 304 || again.json()["tubes"].as_array().unwrap().len() == 2);
    assert_eq!(run(&door, &["token", "revoke", "ann"]).code, 0);
    assert_eq!(tubes(of_five_seconds, &secret).problem(), "invalid-token");
}
