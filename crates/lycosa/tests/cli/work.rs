//! `lycosa work` under signals, short deadlines and failing commands.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::support::{Server, wait_until};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value as Json, json};

/// A folder for what commands leave, and a server with a tube.
struct Fixture {
    server: Server,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new(kind: &str) -> Self {
        let server = Server::start();
        server.ok(&["tube", "create", "t", "--type", kind]);
        Self { server, folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// A worker in the background; `script` runs in the folder.
    fn worker(&self, flags: &[&str], script: &str) -> Child {
        let mut command = self.server.command(&[&["work", "t"], flags, &["--", "sh", "-c", script]].concat());
        command.current_dir(self.folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn counts(&self) -> Json {
        let line = self.server.ok(&["tube", "stats", "t", "--json"]);
        serde_json::from_str::<Json>(&line).unwrap()["statistics"]["tasks"].clone()
    }

    fn pids(&self) -> Vec<Pid> {
        let pid = |line: &str| Pid::from_raw(line.parse().ok()?);
        self.text("pids").lines().filter_map(pid).collect()
    }
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Whether a process exists and does not only wait to be collected by its parent.
fn lives(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    test_kill_process(pid).is_ok() && !matches!(state, None | Some('Z' | 'X'))
}

#[test]
fn sigterm_lets_the_running_command_end_and_settles_its_task() {
    for signal in [Signal::TERM, Signal::INT] {
        let place = Fixture::new("fifottl");
        place.server.ok(&["put", "t", "a", "b"]);
        let worker =
            place.worker(&[], "echo begun >> log; while [ ! -e go ]; do sleep 0.05; done; echo ended >> log");
        wait_until("the command runs", || place.text("log") == "begun\n");
        send(&worker, signal);
        fs::write(place.file("go"), "").unwrap();
        let output = worker.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(place.text("log"), "begun\nended\n");
        assert_eq!((&place.counts()["ready"], &place.counts()["total"]), (&json!(1), &json!(1)));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.ends_with("lycosa: 1 task done, 0 attempts failed, 0 tasks buried\n"), "{said}");
    }
}

const LONG: &str = "sleep 600 & echo $! >> pids; echo $$ >> pids; trap '' TERM; wait; sleep 600";

#[test]
fn a_second_signal_kills_process_groups_and_gives_tasks_back() {
    let place = Fixture::new("fifo");
    place.server.ok(&["put", "t", "a"]);
    let worker = place.worker(&[], LONG);
    wait_until("the command runs", || place.pids().len() == 2);
    send(&worker, Signal::TERM);
    wait_until("it is told", || place.counts()["taken"] == 1);
    send(&worker, Signal::TERM);
    // Two signals that come at the same moment are one.
    wait_until("the group is gone", || {
        let _ = kill_process(Pid::from_child(&worker), Signal::TERM);
        !place.pids().into_iter().any(lives)
    });
    assert_eq!(worker.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(place.counts()["ready"], 1);
}

#[test]
fn the_commands_of_a_worker_that_was_killed_die_with_it() {
    let place = Fixture::new("fifo");
    place.server.ok(&["put", "t", "a"]);
    let mut worker = place.worker(&[], LONG);
    wait_until("the command runs", || place.pids().len() == 2);
    worker.kill().unwrap();
    worker.wait().unwrap();
    wait_until("the group is gone", || !place.pids().into_iter().any(lives));
    wait_until("the task is released", || place.counts()["ready"] == 1);
}

/// The guard of a worker.
fn guard_of(worker: &Child) -> Option<Pid> {
    let parent = format!("PPid:\t{}\n", worker.id());
    fs::read_dir("/proc").unwrap().filter_map(Result::ok).find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        Pid::from_raw(pid).filter(|_| status.contains(&parent) && line.contains("work-guard"))
    })
}

#[test]
fn a_command_dies_with_a_worker_that_was_killed_together_with_its_guard() {
    let place = Fixture::new("fifo");
    place.server.ok(&["put", "t", "a"]);
    let mut worker = place.worker(&[], "echo $$ >> pids; exec sleep 600");
    wait_until("the command runs", || place.pids().len() == 1);
    let guard = guard_of(&worker).expect("a guard");
    kill_process(guard, Signal::KILL).unwrap();
    worker.kill().unwrap();
    worker.wait().unwrap();
    wait_until("the command is gone", || !place.pids().into_iter().any(lives));
    wait_until("the task is released", || place.counts()["ready"] == 1);
}

#[test]
fn a_task_that_kills_its_workers_is_buried() {
    let place = Fixture::new("fifo");
    place.server.ok(&["put", "t", "a"]);
    for attempt in 1..=2 {
        let mut worker = place.worker(&["--max-attempts", "2"], "echo $$ >> pids; sleep 600");
        wait_until("the command runs", || place.pids().len() == attempt);
        worker.kill().unwrap();
        worker.wait().unwrap();
        wait_until("the task is released", || place.counts()["ready"] == 1);
    }
    let last = place.worker(&["--max-attempts", "2", "--until-empty", "0"], "echo $$ >> pids");
    assert_eq!(last.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!((place.pids().len(), &place.counts()["buried"]), (2, &json!(1)));
    let shown = place.server.ok(&["peek", "t", "0"]);
    assert!(shown.contains("attempt 3 of at most 2"), "{shown}");
    // Who kicks the task wants it to be tried again.
    place.server.ok(&["kick", "t"]);
    let last = place.worker(&["--max-attempts", "2", "--until-empty", "0"], "echo $$ >> pids");
    assert_eq!(last.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!((place.pids().len(), &place.counts()["done"]), (3, &json!(1)));
}

#[test]
fn a_command_longer_than_its_task_s_ttr_runs_once() {
    // Where the machine pauses for most of the ttr, the task is rightly taken away: then another one is tried.
    let runs_once = (0..5).any(|_| {
        let place = Fixture::new("fifottl");
        place.server.ok(&["put", "t", "a", "--ttr", "2"]);
        let worker = place.worker(&["--jobs", "2", "--until-empty", "0.1"], "echo run >> log; sleep 6");
        let code = worker.wait_with_output().unwrap().status.code();
        assert_eq!(place.counts()["done"], 1);
        code == Some(0) && place.text("log") == "run\n"
    });
    assert!(runs_once, "the task was taken away in each of five attempts");
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_its_group() {
    let place = Fixture::new("fifottl");
    place.server.ok(&["put", "t", "a"]);
    let script = "sleep 600 & echo $! >> pids; wait";
    let flags = ["--timeout", "0.3", "--max-attempts", "1", "--until-empty", "0", "--json"];
    let output = place.worker(&flags, script).wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Json> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["settled"], "buried", "{out}");
    assert_eq!(lines[0]["reason"], "timed out after 300ms", "{out}");
    assert_eq!(lines[1], json!({"done": 0, "failed": 1, "buried": 1, "lost": 0, "given_back": 0}));
    wait_until("the group is gone", || !place.pids().into_iter().any(lives));
}

#[test]
fn json_and_the_output_of_commands_never_share_a_stream() {
    let place = Fixture::new("fifottl");
    place.server.ok(&["put", "t", "a", "b"]);
    let script = "echo to stdout; echo to stderr >&2; [ $(cat) = a ] || exit 7";
    let flags = ["--json", "--until-empty", "0", "--max-attempts", "1"];
    let output = place.worker(&flags, script).wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Json> = out.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let expected =
        json!({"id": 1, "attempt": 1, "exit": 7, "settled": "buried", "reason": "exit code 7: to stderr"});
    assert_eq!(lines[1], expected);
    assert_eq!(lines.len(), 3, "{out}");
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(err.matches("to stdout\n").count(), 2, "{err}");

    place.server.ok(&["put", "t", "a"]);
    let output = place.worker(&["--until-empty", "0"], script).wait_with_output().unwrap();
    assert_eq!(output.stdout, b"to stdout\n");
}

#[test]
fn until_empty_waits_for_the_next_attempt_of_what_failed() {
    let place = Fixture::new("fifottl");
    place.server.ok(&["put", "t", "a"]);
    let script = "echo $LYCOSA_ATTEMPT >> log; [ $LYCOSA_ATTEMPT = 3 ]";
    let worker = place.worker(&["--until-empty", "0", "--retry-delay", "0.2"], script);
    let output = worker.wait_with_output().unwrap();
    assert_eq!(place.text("log"), "1\n2\n3\n", "{output:?}");
    assert_eq!(place.counts()["done"], 1);
}

#[test]
fn a_command_that_cannot_be_run_ends_the_worker_and_costs_no_task() {
    let place = Fixture::new("fifo");
    place.server.ok(&["put", "t", "a"]);
    let run = place.server.run(&["work", "t", "--", "/no/such/program"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(
        run.stderr.matches("cannot run \"/no/such/program\": No such file or directory").count(),
        1,
        "{run:?}"
    );
    assert_eq!(place.counts()["ready"], 1);
    // What a shell says of a program that it does not find is the command's failure.
    let run = place.server.run(&[
        "work",
        "t",
        "--max-attempts",
        "1",
        "--until-empty",
        "0",
        "--",
        "sh",
        "-c",
        "/no/such/program",
    ]);
    assert_eq!((run.code, &place.counts()["buried"]), (0, &json!(1)), "{run:?}");
}

#[test]
fn a_task_that_is_settled_by_others_is_not_counted() {
    let place = Fixture::new("fifo");
    place.server.ok(&["put", "t", "a"]);
    let lycosa = env!("CARGO_BIN_EXE_lycosa");
    let script = format!("{lycosa} delete t $LYCOSA_TASK_ID >/dev/null");
    let output = place.worker(&["--until-empty", "0", "--json"], &script).wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let last: Json = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!((&last["done"], &last["lost"]), (&json!(0), &json!(1)), "{out}");
}

#[test]
fn attempts_are_counted_over_processes_and_the_reason_stays_with_the_task() {
    let place = Fixture::new("fifottl");
    place.server.ok(&["put", "t", "a"]);
    let attempt = |script: &str| {
        let flags = ["--until-empty", "0", "--max-attempts", "3", "--retry-delay", "0", "--json"];
        let output = place.worker(&flags, script).wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    // The first worker dies over its task: that was an attempt, too.
    let mut worker = place.worker(&[], "echo $$ >> pids; sleep 600");
    wait_until("the command runs", || !place.pids().is_empty());
    worker.kill().unwrap();
    worker.wait().unwrap();
    wait_until("the task is released", || place.counts()["ready"] == 1);
    let out = attempt("echo no such host >&2; exit 3");
    let settled: Vec<(u64, String)> = out
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).unwrap())
        .filter_map(|line| Some((line["attempt"].as_u64()?, line["settled"].as_str()?.to_owned())))
        .collect();
    assert_eq!(settled, [(2, "released".to_owned()), (3, "buried".to_owned())], "{out}");
}

#[test]
fn a_command_gets_no_password() {
    let place = Fixture::new("fifo");
    let mut add = place.server.command(&["user", "add", "bob", "--tube", "t"]);
    add.env("LYCOSA_PASSWORD", "hunter2");
    assert_eq!(crate::support::finish(add, "").code, 0);
    place.server.ok(&["put", "t", "x"]);
    let script = "env; ps -eo args 2>/dev/null || cat /proc/[0-9]*/cmdline | tr '\\0' ' '";
    let mut work =
        place.server.command(&["work", "t", "--user", "bob", "--until-empty", "0", "--", "sh", "-c", script]);
    work.env("LYCOSA_PASSWORD", "hunter2").env("LYCOSA_REPLICATION", "repl:hunter2@127.0.0.1:1");
    let run = crate::support::finish(work, "");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("LYCOSA_TASK_ID=0"), "{}", run.stdout);
    assert!(!run.stdout.contains("hunter2"), "{}", run.stdout);
}

/// Everything about a task works, over IPROTO and in Lua, while new tasks are refused.
fn is_drained(server: &Server, folder: &std::path::Path, refusal: &str) {
    let refused = server.run(&["put", "t", "g"]);
    assert!(refused.code == 1 && refused.stderr.contains(refusal), "{refused:?}");

    let data = server.data.path().to_str().unwrap();
    server.ok(&["token", "add", "drain", "--role", "operator", "--data-dir", data]);
    server.ok(&["pause", "t", "--reason", "a full server"]);
    server.ok(&["resume", "t"]);
    server.ok(&["token", "revoke", "drain", "--data-dir", data]);
    let password = folder.join("password");
    fs::write(&password, "secret").unwrap();
    let roles = ["--role", "replication", "--tube", "t", "--password-file", password.to_str().unwrap()];
    server.ok(&[&["user", "add", "ann", "--data-dir", data][..], &roles].concat());
    server.ok(&["user", "grant", "ann", "--tube", "*", "--data-dir", data]);
    server.ok(&["user", "revoke", "ann", "--tube", "*", "--data-dir", data]);
    server.ok(&["user", "drop", "ann", "--data-dir", data]);

    let program = "local t = queue.tube.t:take(0, {extended = true}) \
                   queue.tube.t:touch(t[1], 60) \
                   queue.tube.t:release(t[1], {reason = 'not now', delay = 0.01}) \
                   while queue.tube.t:peek(t[1])[2] ~= 'r' do require('fiber').sleep(0.01) end \
                   local f = require('fiber').new(function() \
                       local t = queue.tube.t:take(60, {extended = true}) \
                       queue.tube.t:bury(t[1], {reason = 'never'}) \
                       queue.tube.t:kick(1) \
                       t = queue.tube.t:take(60) \
                       queue.tube.t:ack(t[1]) \
                   end) \
                   f:set_joinable(true) \
                   return f:join(), queue.tube.t:delete(queue.tube.t:take(0)[1])[2]";
    let run = server.run_with(
        &["console", &server.data.path().join("admin.sock").display().to_string()],
        &format!("{program}\n"),
    );
    assert!(run.stdout.contains("- true") && run.stdout.contains("- '-'"), "{run:?}");

    let script = "read task; echo $task >> log; test $LYCOSA_ATTEMPT -gt 1 -a $task != f";
    let flags = ["work", "t", "--max-attempts", "2", "--retry-delay", "0.01", "--until-empty", "0.2"];
    let mut worker = server.command(&[&flags[..], &["--", "sh", "-c", script]].concat());
    worker.current_dir(folder);
    let run = crate::support::finish(worker, "");
    assert_eq!(run.code, 0, "{run:?}");
    let mut log: Vec<_> =
        fs::read_to_string(folder.join("log")).unwrap().lines().map(str::to_owned).collect();
    log.sort();
    assert_eq!(log, ["c", "c", "d", "d", "e", "e", "f", "f"]);
    let line = server.ok(&["tube", "stats", "t", "--json"]);
    let counts = &serde_json::from_str::<Json>(&line).unwrap()["statistics"]["tasks"];
    assert_eq!((&counts["total"], &counts["buried"]), (&json!(1), &json!(1)), "{line}");
    server.ok(&["delete", "t", "5"]);
}

/// A server with tasks "a" to "f", started anew with these flags.
fn filled(flags: &[&str], before: impl FnOnce(&Server)) -> Server {
    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "fifottl"]);
    server.ok(&["put", "t", "a", "b", "c", "d", "e", "f"]);
    before(&server);
    server.restart(flags)
}

#[test]
fn a_server_at_its_memory_limit_is_drained() {
    let place = tempfile::tempdir().unwrap();
    let server = filled(&["--memory-limit", "1MiB"], |server| {
        server.ok(&["tube", "create", "large"]);
        for _ in 0..2 {
            assert_eq!(server.run_with(&["put", "large"], &"x".repeat(800_000)).code, 0);
        }
    });
    is_drained(&server, place.path(), "memory_limit is 1MiB");
}

#[test]
fn a_server_whose_disk_is_short_of_space_is_drained() {
    let place = tempfile::tempdir().unwrap();
    let disk = rustix::fs::statvfs(place.path()).unwrap();
    let reserve = (disk.f_bavail * disk.f_frsize * 2).to_string();
    let server = filled(&["--disk-reserve", &reserve], |_| ());
    server.expect_log("less than disk_reserve");
    is_drained(&server, place.path(), "disk_reserve");
}
