//! HTTP against the built binary.

pub(crate) mod client;
mod hostile;
mod leases;
mod metrics;
mod steer;
mod tasks;
mod tokens;

use client::Door;

use crate::support::{Server, finish};

#[test]
fn probes_need_no_token() {
    let door = Door::open(&[]);
    for path in ["/livez", "/readyz", "/health", "/v1/openapi.json"] {
        let answer = door.ask(&format!("GET {path}"), "", "", b"");
        assert_eq!((answer.status, answer.field("content-type")), (200, Some("application/json")), "{path}");
        assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
    }
    assert_eq!(door.ask("GET /health", "", "", b"").json()["status"], "running");
    assert_eq!(door.ask("GET /v1/tubes", "", "", b"").problem(), "no-token");
    assert_eq!(door.ask("GET /v1/nothing", "", "", b"").problem(), "no-such-path");
    let wrong = door.ask("POST /v1/tubes", "", "", b"");
    assert_eq!((wrong.status, wrong.problem().as_str()), (405, "wrong-method"));
    assert!(wrong.field("allow").unwrap().contains("GET"), "{wrong:?}");
}

#[test]
fn a_server_that_takes_no_writes_says_why_it_is_not_ready() {
    let door = Door::open(&[]);
    let server = door.server.restart(&["--read-only", "true", "--http-listen", "127.0.0.1:0"]);
    let door = Door::of(server);
    let answer = door.ask("GET /readyz", "", "", b"");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["reasons"][0]["reason"], "read_only");
    assert_eq!(door.ask("GET /readyz?read_only=true", "", "", b"").status, 200);
    assert_eq!(door.ask("GET /livez", "", "", b"").status, 200);
}

/// The default port may be another server's; a port that was asked for may not.
#[test]
fn a_port_that_is_taken_closes_the_door_or_refuses_the_start() {
    let door = Door::open(&[]);
    let taken = door.address.clone();
    let data = tempfile::tempdir().unwrap();
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--http-listen",
        &taken,
        "--data-dir",
        data.path().to_str().unwrap(),
    ];
    let run = finish(door.server.command(&arguments), "");
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains(&taken) && run.stderr.contains("--http-listen"), "{}", run.stderr);
    let quiet = Server::configured(&["--http-listen", ""]);
    assert!(!quiet.log().contains("HTTP on"), "{}", quiet.log());
}

/// `curl` and its authorities are the client: it checks the certificate, as any worker does.
#[test]
fn a_worker_puts_takes_and_settles_over_tls() {
    let file = |name: &str| format!("{}/../tls/test-files/{name}", env!("CARGO_MANIFEST_DIR"));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (certificate, key, address) = (file("server.pem"), file("server.key"), free.to_string());
    let flags = ["--http-listen-tls", &address, "--tls-certificate", &certificate, "--tls-key", &key];
    let door = Door::open(&flags);
    door.server.run(&["tube", "create", "mail"]);
    let authorization = format!("Authorization: Bearer {}", door.token("worker", "operator", "mail"));
    let curl = |trusted: &str, scheme: &str, path: &str, more: &[&str]| {
        let url = format!("{scheme}://{address}{path}");
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "--cacert", trusted, "-H", &authorization]).args(more).arg(url);
        finish(curl, "")
    };
    let ca = file("ca.pem");
    let ask = |path: &str, more: &[&str]| {
        let run = curl(&ca, "https", path, more);
        assert_eq!(run.code, 0, "{path}: {run:?}");
        serde_json::from_str::<serde_json::Value>(&run.stdout)
            .unwrap_or_else(|error| panic!("{error}: {run:?}"))
    };
    let json = |body| ["-H", "Content-Type: application/json", "-d", body];
    let put = ask("/v1/tubes/mail/tasks", &json(r#"{"payload": "hello"}"#));
    assert_eq!(put["id"], "0", "{put}");
    let taken = ask("/v1/tubes/mail/take", &["-X", "POST"]);
    let lease = taken["tasks"][0]["lease"].as_str().expect("a lease").to_owned();
    ask("/v1/tubes/mail/settle", &json(&format!(r#"{{"acks": ["{lease}"]}}"#)));
    assert_eq!(ask("/v1/tubes/mail", &[])["tasks"]["total"], 0);
    // An authority that has not signed the certificate; and plain text where TLS is expected.
    let stranger = curl(&file("self.pem"), "https", "/livez", &[]);
    assert_eq!((stranger.code, stranger.stdout.as_str()), (60, ""), "{stranger:?}");
    let plain = curl(&ca, "http", "/livez", &[]);
    assert!(plain.code != 0 && !plain.stdout.contains("live"), "{plain:?}");
    assert_eq!(ask("/livez", &[])["live"], true);
}
