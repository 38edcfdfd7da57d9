//! Tasks that are taken by a lease, and settled by its token in another process.

use serde_json::Value as Json;

use crate::support::{Run, Server};

#[track_caller]
fn answer(server: &Server, code: i32, arguments: &[&str]) -> Run {
    let run = server.run(arguments);
    assert_eq!(run.code, code, "{arguments:?}: {run:?}");
    run
}

/// Takes the next task by a lease of a minute. Returns its token.
#[track_caller]
fn take(server: &Server) -> String {
    let taken = answer(server, 0, &["take", "t", "--lease", "1m", "--json"]).lines();
    assert!(taken[0]["session"].is_null() && taken[0]["lease_ends"].as_f64() > Some(0.0), "{taken:?}");
    taken[0]["lease"].as_str().expect("a token").to_owned()
}

#[test]
fn a_token_settles_a_task_in_another_process() {
    let server = Server::start();
    server.ok(&["tube", "create", "t"]);
    server.ok(&["put", "t", "a", "b", "c", "d"]);
    let token = take(&server);
    assert_eq!(server.ok(&["touch", "t", "5m", "--token", &token]), format!("0\tt\t{token}\ta\n"));
    let peeked = server.ok(&["peek", "t", "0"]);
    assert!(peeked.contains("lease ends") && !peeked.contains(&token), "{peeked}");
    assert!(server.ok(&["list", "t", "--state", "taken"]).contains("a lease"));
    assert_eq!(server.ok(&["ack", "t", "--token", &token]), "0\t-\ta\n");
    let stale = answer(&server, 1, &["ack", "t", "--token", &token]);
    assert!(stale.stderr.contains("is stale: it ended, or its task was settled"), "{stale:?}");

    let token = take(&server);
    let reason = ["release", "t", "--token", &token, "--reason", "no such host", "--json"];
    let released: Json = serde_json::from_str(&server.ok(&reason)).expect("an object");
    assert_eq!((&released["id"], &released["state"]), (&1.into(), &"r".into()));
    let (first, second) = (take(&server), take(&server));
    assert_eq!(server.ok(&["bury", "t", "--token", &first]), "1\t!\tb\n");
    assert_eq!(server.ok(&["delete", "t", "--token", &second]), "2\t-\tc\n");
    let batch = answer(&server, 0, &["take", "t", "--limit", "5", "--lease", "1h"]).stdout;
    let fields: Vec<&str> = batch.trim_end().split('\t').collect();
    assert_eq!((fields.len(), fields[0], fields[1], fields[3]), (4, "3", "t", "d"));
    assert_eq!(server.ok(&["ack", "t", "--token", fields[2]]), "3\t-\td\n");
}

#[test]
fn what_does_not_go_with_a_lease_is_refused() {
    let server = Server::start();
    for arguments in [
        &["take", "t", "--lease", "2d"][..],
        &["take", "t", "--lease", "0"],
        &["take", "t", "--lease", "1m", "--ack"],
        &["ack", "t", "--token", "7"],
        &["ack", "t"],
        &["ack", "t", "1", "--token", "1-2-3-0000000000000004"],
        &["release", "t", "--force", "--token", "1-2-3-0000000000000004"],
        &["delete", "t", "--state", "ready", "--token", "1-2-3-0000000000000004"],
    ] {
        answer(&server, 2, arguments);
    }
}
