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

#[test]
fn tasks_are_found_changed_and_brought_back_by_a_filter() {
    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "fifottl"]);
    server.ok(&["tube", "create", "dead", "--type", "fifo"]);
    for name in ["ann", "bob", "ann"] {
        server.ok(&["put", "t", &format!(r#"{{"user": {{"name": "{name}"}}, "n": 7}}"#), "--as", "json"]);
    }
    let ids = |server: &Server, arguments: &[&str]| -> Vec<u64> {
        let run = server.run(&[&["find", "t", "--json"], arguments].concat());
        run.lines().iter().map(|task| task["id"].as_u64().unwrap()).collect()
    };
    assert_eq!(ids(&server, &[]), [0, 1, 2]);
    let ann = ["--field", "user.name", "--equals", "ann"];
    assert_eq!(ids(&server, &ann), [0, 2]);
    assert_eq!(ids(&server, &["--field", "n", "--equals", "7", "--id-from", "1"]), [1, 2]);
    assert_eq!(server.ok(&["find", "t", "--field", "user.name", "--contains", "o", "--count"]), "1\n");
    let run = server.run(&["find", "t", "--limit", "1"]);
    assert!(run.stderr.contains("scanned 1 of 3 tasks; --limit finds more"), "{run:?}");

    let counted = server.run(&[&["apply", "t", "delete"][..], &ann].concat());
    assert!(
        counted.stderr.contains("delete would change 2 tasks of tube \"t\"; --yes does it"),
        "{counted:?}"
    );
    assert_eq!(ids(&server, &[]), [0, 1, 2]);
    let deleted = server.ok(&[&["apply", "t", "delete", "--yes"][..], &ann].concat());
    assert!(
        deleted.starts_with("job 4 (delete) is done: scanned 3 of 3, 2 matched, 2 changed\n"),
        "{deleted}"
    );
    assert!(deleted.contains("`lycosa undo t 4` brings 2 of them back"), "{deleted}");
    let server = server.restart(&[]);
    assert_eq!(ids(&server, &[]), [1]);
    assert_eq!(
        server.ok(&["undo", "t", "4", "--yes", "--reason", "wrong filter"]),
        "job 5 is done: 2 of 2 undone, 0 were taken or changed since, 0 are gone\n"
    );
    assert_eq!(ids(&server, &[]), [0, 1, 2]);
    let moved = server.ok(&["apply", "t", "move", "--all", "--to", "dead", "--yes"]);
    assert!(moved.contains("3 matched, 3 changed"), "{moved}");
    assert_eq!(server.ok(&["find", "dead", "--count"]), "3\n");
    let jobs = server.run(&["job", "t", "--json"]).lines();
    let operations: Vec<_> = jobs.iter().map(|job| job["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["move", "undo", "delete", "delete", "delete", "count"]);
    assert_eq!(server.run(&["audit", "--json"]).lines().len(), 3);

    for (arguments, part) in [
        (&["apply", "t", "delete", "--yes"][..], "--all means every task of tube \"t\""),
        (&["apply", "t", "move", "--all", "--yes"], "--to <TUBE>"),
        (&["apply", "t", "reschedule", "--all", "--yes"], "reschedule needs --delay, --pri or both"),
        (&["find", "t", "--equals", "1"], "--field <PATH>"),
    ] {
        let run = server.run(arguments);
        assert!(run.code == 2 && run.stderr.contains(part), "{run:?}");
    }
    let run = server.run(&["undo", "t", "9", "--yes"]);
    assert!(run.code == 1 && run.stderr.contains("tube \"t\" has no job 9"), "{run:?}");
}

#[test]
fn delays_and_priorities_are_changed_by_a_filter() {
    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "fifottl"]);
    server.ok(&["tube", "create", "plain", "--type", "fifo"]);
    server.ok(&["put", "t", "a", "b", "c", "--pri", "5"]);
    let counted = server.run(&["apply", "t", "reschedule", "--all", "--delay", "1h"]);
    assert!(counted.stderr.contains("reschedule would change 3 tasks of tube \"t\""), "{counted:?}");
    let one = [
        "apply",
        "t",
        "reschedule",
        "--id-from",
        "1",
        "--id-to",
        "1",
        "--delay",
        "1h",
        "--pri",
        "0",
        "--yes",
    ];
    assert!(server.ok(&one).contains("(reschedule) is done: scanned 1 of 1, 1 matched, 1 changed"));
    let states = || -> Vec<_> {
        let found = server.run(&["find", "t", "--json"]).lines();
        found.iter().map(|task| (task["state"].clone(), task["pri"].as_u64())).collect()
    };
    assert_eq!(states()[..2], [("r".into(), Some(5)), ("~".into(), Some(0))]);
    assert!(server.ok(&["undo", "t", "3", "--yes"]).contains("1 of 1 undone"));
    assert_eq!(states()[1], ("r".into(), Some(5)));
    let ignored = server.run(&["apply", "plain", "reschedule", "--all", "--pri", "1", "--yes"]);
    assert!(ignored.code != 0 && ignored.stderr.contains("--pri"), "{ignored:?}");
}

#[test]
fn the_typed_client_finds_changes_and_undoes() {
    use lycosa_client::{ApplyOptions, Filter, JobState, Operation, PutOptions, TaskState, TubeJob};

    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "fifottl"]);
    server.ok(&["tube", "create", "u", "--type", "fifottl"]);
    with_queue(&server, async |queue| {
        let tube = queue.tube("t");
        for n in 0..5_u64 {
            tube.put(lycosa_client::Value::from(n), PutOptions::new().priority(n)).await.unwrap();
        }
        let over = async |mut job: TubeJob| {
            while !job.state.is_over() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                job = tube.job(job.id).await.unwrap();
            }
            assert_eq!(job.state, JobState::Done);
            job
        };
        let high = Filter::new().priorities(2..=9).state(TaskState::Ready);
        let page = tube.find(&high, 2, None).await.unwrap();
        assert_eq!((page.tasks[0].id, page.tasks.len(), page.total), (2, 2, 5));
        let rest = tube.find(&high, 2, page.cursor.as_deref()).await.unwrap();
        assert_eq!((rest.tasks[0].id, rest.tasks.len(), rest.cursor), (4, 1, None));
        assert_eq!(over(tube.count(&high).await.unwrap()).await.matched, 3);
        let refused = tube.apply(&Operation::Delete, &Filter::new(), &ApplyOptions::default()).await;
        assert!(refused.unwrap_err().to_string().contains("the filter is empty"));
        let operation = Operation::Move { to: "u".to_owned() };
        let dry = ApplyOptions { dry_run: true, ..ApplyOptions::default() };
        let counted = over(tube.apply(&operation, &high, &dry).await.unwrap()).await;
        assert_eq!(counted.matched, 3);
        let refused = tube.apply(&operation, &high, &ApplyOptions::default()).await;
        assert!(refused.unwrap_err().to_string().contains("the tasks of this filter were not counted"));
        let counted = ApplyOptions { counted: Some(counted.id), ..ApplyOptions::default() };
        let moved = over(tube.apply(&operation, &high, &counted).await.unwrap()).await;
        assert_eq!((moved.changed, moved.kept), (3, 3));
        let delay = Some(std::time::Duration::from_secs(60));
        let later = Operation::Reschedule { delay, priority: Some(1) };
        let first = Filter::new().ids(0..=0);
        let later = over(tube.apply(&later, &first, &ApplyOptions::default()).await.unwrap()).await;
        assert_eq!(later.changed, 1);
        let task = tube.peek_extended(0).await.unwrap();
        assert_eq!((task.state, task.info.unwrap().priority), (TaskState::Delayed, Some(1)));
        over(tube.undo(later.id, None).await.unwrap()).await;
        queue.tube("u").take(None).await.unwrap().unwrap();
        let undone = over(tube.undo(moved.id, Some("back")).await.unwrap()).await;
        assert_eq!((undone.undone, undone.touched_since, undone.gone), (2, 1, 0));
        let slow =
            ApplyOptions { rate: Some(1), reason: Some("slowly".to_owned()), ..ApplyOptions::default() };
        let slow = tube.apply(&Operation::Bury, &Filter::all(), &slow).await.unwrap();
        assert_eq!(tube.pause_job(slow.id).await.unwrap().state, JobState::Paused);
        assert_eq!(tube.set_job_rate(slow.id, 2).await.unwrap().state, JobState::Paused);
        assert_eq!(tube.resume_job(slow.id).await.unwrap().state, JobState::Running);
        assert_eq!(tube.cancel_job(slow.id).await.unwrap().state, JobState::Cancelled);
        assert_eq!(tube.jobs().await.unwrap()[0].id, slow.id);
    });
    let said = lua(
        &server,
        "#queue.tube.t:find({state = 'ready'}, {limit = 1}).tasks\nqueue.tube.t:apply('kick', {all = true}).operation\n",
    );
    assert!(said.contains("- 1\n") && said.contains("- kick\n"), "{said}");
}
