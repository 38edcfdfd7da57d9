//! Steering a running server from the command line, from Rust and from Lua.

use lycosa_client::{Client, ConnectOptions, Queue};
use serde_json::Value as Json;

use crate::support::Server;

/// Runs a program of the typed client against a server.
fn with_queue(server: &Server, program: impl AsyncFnOnce(Queue)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options: ConnectOptions = server.address.parse().unwrap();
        program(Client::connect(options).await.unwrap().queue()).await;
    });
}

/// What a Lua program at the server returns.
fn lua(server: &Server, program: &str) -> String {
    let run = crate::support::finish(
        server.command(&["console", server.data.path().join("admin.sock").to_str().unwrap()]),
        program,
    );
    assert_eq!(run.code, 0, "{run:?}");
    run.stdout
}

#[test]
fn a_tube_is_paused_explained_and_resumed_over_a_restart() {
    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "fifottl"]);
    server.ok(&["put", "t", "one"]);
    let paused = server.ok(&["pause", "t", "--reason", "the relay is down"]);
    assert_eq!(paused, "tube t paused: takes wait until `lycosa resume`\n");
    assert_eq!(server.ok(&["pause", "t"]), "tube t was paused already\n");
    assert_eq!(server.run(&["take", "t"]).code, 3);
    let explained = "task 0 of tube t is ready\n  the tube is paused by guest: the relay is down\n";
    assert_eq!(server.ok(&["explain", "t", "0"]), explained);
    let server = server.restart(&[]);
    assert_eq!(server.run(&["take", "t"]).code, 3);
    assert_eq!(server.ok(&["explain", "t", "0"]), explained);
    let tube: Json = serde_json::from_str(&server.ok(&["explain", "t", "--json"])).unwrap();
    assert_eq!(tube["tasks"]["ready"], 1, "{tube}");
    assert_eq!(tube["reasons"][0]["reason"], "paused", "{tube}");
    assert_eq!(server.ok(&["resume", "t"]), "tube t resumed\n");
    assert_eq!(server.ok(&["take", "t", "--ack"]), "0\tt\tone\n");
    let audit = server.run(&["audit", "--json"]).lines();
    let operations: Vec<_> = audit.iter().map(|entry| entry["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["resume", "pause"]);
    assert_eq!((&audit[1]["user"], &audit[1]["reason"]), (&"guest".into(), &"the relay is down".into()));
    let missing = server.run(&["pause", "tt"]);
    assert!(missing.stderr.contains("tube \"tt\" does not exist (did you mean \"t\"?)"), "{missing:?}");
    let missing = server.run(&["explain", "t", "7"]);
    assert!(missing.code == 1 && missing.stderr.contains("Task 7 not found"), "{missing:?}");
}

#[test]
fn the_typed_client_and_lua_steer_as_the_command_line_does() {
    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "utube"]);
    with_queue(&server, async |queue| {
        let tube = queue.tube("t");
        let options = || lycosa_client::PutOptions::new().utube("x");
        tube.put("a", options()).await.unwrap();
        tube.put("b", options()).await.unwrap();
        let taken = tube.take(None).await.unwrap().unwrap();
        let blocked = tube.explain_task(1).await.unwrap();
        assert_eq!((blocked.reasons[0].reason.as_str(), blocked.is_next), ("blocked", false));
        assert_eq!(tube.explain_sub_queue("x").await.unwrap().reasons[0].reason, "blocked");
        taken.ack().await.unwrap();
        assert!(tube.explain_task(1).await.unwrap().is_next);
        assert!(tube.pause(Some("why not")).await.unwrap());
        assert!(!tube.pause(None).await.unwrap());
        assert_eq!(tube.explain().await.unwrap().reasons[0].reason, "paused");
        assert!(tube.resume(None).await.unwrap());
        let audit = queue.audit(10, None).await.unwrap();
        assert_eq!((audit[1].operation.as_str(), audit[1].reason.as_deref()), ("pause", Some("why not")));
        assert_eq!(queue.audit(10, Some(audit[0].id)).await.unwrap(), [audit[1].clone()]);
    });
    let said = lua(
        &server,
        "queue.tube.t:pause()\nqueue.tube.t:explain(1).reasons[1].reason\nqueue.audit({limit = 1})[1].operation\n",
    );
    assert!(said.contains("- true") && said.contains("- paused") && said.contains("- pause\n"), "{said}");
}
