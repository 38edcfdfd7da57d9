//! Work without a connection: take, settle, and the workers that docs/http.md shows, while everything is killed.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};

use super::client::{Answer, Door};
use crate::addresses::free_address;
use crate::support::{Server, finish, wait_for_progress, wait_until};

fn door() -> (Door, String) {
    let door = Door::open(&[]);
    door.server.ok(&["tube", "create", "mail"]);
    let token = door.token("worker", "operator", "*");
    (door, token)
}

fn put(door: &Door, token: &str, count: u64) {
    let tasks: Vec<Json> = (0..count).map(|number| json!({"payload": number})).collect();
    assert_eq!(door.ask_json("POST /v1/tubes/mail/tasks", token, &tasks.into()).status, 201);
}

fn take(door: &Door, token: &str, query: &str) -> Vec<Json> {
    let answer = door.ask(&format!("POST /v1/tubes/mail/take{query}"), token, "", b"");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["tasks"].as_array().unwrap().clone()
}

fn settle(door: &Door, token: &str, body: &Json) -> Answer {
    door.ask_json("POST /v1/tubes/mail/settle", token, body)
}

fn tasks(door: &Door, token: &str, state: &str) -> u64 {
    door.ask("GET /v1/tubes/mail", token, "", b"").json()["tasks"][state].as_u64().unwrap()
}

#[test]
fn tasks_are_taken_by_lease_and_settled_each_on_its_own() {
    let (door, token) = door();
    put(&door, &token, 5);
    let taken = take(&door, &token, "?max=5&lease=60");
    let leases: Vec<&str> = taken.iter().map(|task| task["lease"].as_str().unwrap()).collect();
    assert_eq!(taken.iter().map(|task| &task["id"]).collect::<Vec<_>>(), ["0", "1", "2", "3", "4"]);
    assert!(take(&door, &token, "").is_empty());
    let answer = settle(
        &door,
        &token,
        &json!({
            "acks": [leases[0], "1-0-1-0123456789abcdef"],
            "releases": [{"lease": leases[1], "delay": 60, "reason": "later"}],
            "buries": [{"lease": leases[2], "reason": "never"}],
            "touches": [{"lease": leases[3], "seconds": 600}],
        }),
    );
    let results = answer.json();
    assert_eq!(answer.status, 200);
    assert_eq!((&results["acks"][0]["done"], &results["acks"][0]["id"]), (&json!(true), &json!("0")));
    assert_eq!(results["acks"][1]["problem"]["type"], "urn:lycosa:problem:stale-lease");
    assert_eq!(
        (&results["releases"][0]["state"], &results["buries"][0]["state"]),
        (&json!("delayed"), &json!("buried"))
    );
    let (ends, before) = (&results["touches"][0]["lease_ends"], &taken[3]["lease_ends"]);
    assert!(ends.as_f64() > before.as_f64(), "{ends} {before}");
    let task = door.ask("GET /v1/tubes/mail/tasks/2", &token, "", b"").json();
    assert_eq!((&task["last_error"], task.get("lease")), (&json!("never"), None));
    // A request about one task has its status.
    for again in [json!({"acks": [leases[0]]}), json!({"touches": [{"lease": leases[2], "seconds": 5}]})] {
        let answer = settle(&door, &token, &again);
        assert_eq!((answer.status, answer.problem().as_str()), (409, "stale-lease"), "{again}");
    }
    for wrong in [json!({}), json!({"acks": vec!["x"; 257]}), json!({"ack": ["x"]})] {
        assert_eq!(settle(&door, &token, &wrong).problem(), "malformed");
    }
    for wrong in ["?max=0", "?max=1001", "?wait=-1", "?wait=601", "?wait=x", "?ttl=1"] {
        let answer = door.ask(&format!("POST /v1/tubes/mail/take{wrong}"), &token, "", b"");
        assert_eq!(answer.problem(), "malformed", "{wrong}");
    }
    let answer = door.ask("POST /v1/tubes/mail/take?lease=0", &token, "", b"");
    assert_eq!(answer.status, 400, "{answer:?}");
}

#[test]
fn leases_outlive_the_server_and_stale_ones_settle_nothing() {
    let (door, token) = door();
    put(&door, &token, 2);
    let taken = take(&door, &token, "?max=2&lease=86400");
    let door = Door::of(door.server.restart(&["--http-listen", "127.0.0.1:0"]));
    assert_eq!(tasks(&door, &token, "taken"), 2);
    assert_eq!(settle(&door, &token, &json!({"acks": [taken[0]["lease"]]})).status, 200);
    // The second one is taken away from its worker.
    assert_eq!(settle(&door, &token, &json!({"releases": [{"lease": taken[1]["lease"]}]})).status, 200);
    let again = take(&door, &token, "");
    assert_eq!((&again[0]["id"], &again[0]["attempts"]), (&json!("1"), &json!(2)));
    let stale = settle(&door, &token, &json!({"acks": [taken[1]["lease"]]}));
    assert_eq!(stale.problem(), "stale-lease");
    assert_eq!(tasks(&door, &token, "taken"), 1);
}

/// A take that waits is answered by the put, and gives up its place when its client goes away.
#[test]
fn a_take_waits_and_ends_with_its_client() {
    let (door, token) = door();
    let mut waiting = door.connect();
    let request = |wait: &str| {
        format!(
            "POST /v1/tubes/mail/take?wait={wait} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: 0\r\n\r\n",
            door.address
        )
    };
    waiting.write_all(request("600").as_bytes()).unwrap();
    wait_until("the call to wait", || door.waiting_takes(&token, "mail") == 1);
    drop(waiting);
    wait_until("the call to be given up", || door.waiting_takes(&token, "mail") == 0);
    put(&door, &token, 1);
    assert_eq!((tasks(&door, &token, "ready"), tasks(&door, &token, "taken")), (1, 0));
    std::thread::scope(|scope| {
        assert_eq!(take(&door, &token, "").len(), 1);
        let second = scope.spawn(|| take(&door, &token, "?wait=600"));
        wait_until("the call to wait", || door.waiting_takes(&token, "mail") == 1);
        put(&door, &token, 1);
        assert_eq!(second.join().unwrap()[0]["id"], "1");
    });
}

/// A waiting call of a token that is revoked is refused at once.
#[test]
fn a_revoked_token_waits_no_more() {
    let (door, token) = door();
    let other = door.token("other", "operator", "*");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| door.ask("POST /v1/tubes/mail/take?wait=600", &token, "", b""));
        wait_until("the call to wait", || door.waiting_takes(&other, "mail") == 1);
        let data = door.server.data.path().to_str().unwrap();
        let run = finish(door.server.command(&["token", "revoke", "worker", "--data-dir", data]), "");
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(waits.join().unwrap().problem(), "invalid-token");
    });
    put(&door, &other, 1);
    assert_eq!(tasks(&door, &other, "ready"), 1);
}

/// A server that ends answers waiting calls and does not wait for them.
#[test]
fn a_server_that_ends_refuses_what_waits() {
    let (mut door, token) = door();
    let address = door.address.clone();
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(crate::support::LIMIT)).unwrap();
    write!(
        stream,
        "POST /v1/tubes/mail/take?wait=600 HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: 0\r\n\r\n"
    )
    .unwrap();
    wait_until("the call to wait", || door.waiting_takes(&token, "mail") == 1);
    door.server.signal(rustix::process::Signal::TERM);
    let answers = super::client::answers(&super::client::read_all(&mut stream));
    assert_eq!((answers[0].status, answers[0].problem().as_str()), (503, "unavailable"));
    assert_eq!(door.server.wait_for_end(), Some(0));
}

/// The block of docs/http.md that begins with this comment, with leases that the test need not wait for.
fn documented(name: &str) -> String {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http.md");
    let text = std::fs::read_to_string(document).unwrap();
    let begin = text.find(&format!("# {name}")).unwrap();
    let block = text[begin..].split("\n```").next().unwrap();
    assert!(block.contains("lease=30") || block.contains("\"lease\": 30"), "{block}");
    block.replace("lease=30", "lease=5").replace("\"lease\": 30", "\"lease\": 5")
}

/// Runs a worker again and again: its log has the payloads that it has handled.
fn worker(name: &str, folder: &Path, url: &str, token: &str) -> Child {
    let log = folder.join("handled");
    let mut command = if name == "worker.sh" {
        std::fs::write(folder.join("handler"), "#!/bin/sh\necho \"$1\" >> handled\n").unwrap();
        std::fs::set_permissions(folder.join("handler"), PermissionsExt::from_mode(0o700)).unwrap();
        let mut command = Command::new("bash");
        command.args(["-c", &documented(name)]).env("URL", url).env("TOKEN", token);
        command
    } else {
        let handle = format!(
            "def handle(payload):\n    with open({:?}, 'a') as log: print(payload, file=log)\n",
            log.display().to_string()
        );
        let mut command = Command::new("python3");
        command.args(["-c", &(handle + &documented(name)), url, token]);
        command
    };
    let errors = std::fs::File::options().create(true).append(true).open(folder.join("errors")).unwrap();
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().unwrap()
}

/// Every task is handled although the server is killed three times and the worker twice.
fn works_off(name: &str, count: u64) {
    let address = free_address().to_string();
    let flags = ["--http-listen", &address];
    let mut server = Server::configured(&flags);
    server.ok(&["tube", "create", "mail"]);
    let door = Door::of(server);
    let token = door.token("worker", "operator", "mail");
    put(&door, &token, count);
    server = door.server;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{address}/v1/tubes/mail");
    let handled = || std::fs::read_to_string(folder.path().join("handled")).unwrap_or_default();
    let mut child = worker(name, folder.path(), &url, &token);
    for (kill, part) in [1, 2, 3, 4, 5].into_iter().enumerate() {
        let wanted = usize::try_from(count * part / 6).unwrap();
        wait_for_progress("a part of the tasks", || handled().lines().count(), |&count| count >= wanted);
        if kill % 2 == 0 {
            server = server.restart(&flags);
        } else {
            child.kill().unwrap();
            child.wait().unwrap();
            child = worker(name, folder.path(), &url, &token);
        }
    }
    let door = Door::of(server);
    wait_for_progress("every task to be done", || tasks(&door, &token, "total"), |&left| left == 0);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut numbers: Vec<u64> = handled().lines().map(|line| line.trim().parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let errors = std::fs::read_to_string(folder.path().join("errors")).unwrap();
    assert_eq!(numbers, (0..count).collect::<Vec<_>>(), "{errors}");
}

#[test]
fn the_worker_of_curl_works_off_everything_while_all_is_killed() {
    works_off("worker.sh", 60);
}

#[test]
fn the_worker_of_python_works_off_everything_while_all_is_killed() {
    works_off("worker.py", 600);
}
