//! Error texts for people: the fault, its value, and what to do.

use std::fs;
use std::process::Stdio;

use crate::support::{Run, Server, lycosa, wait_until};

/// What a command said on standard error; its exit code must be `code`.
#[track_caller]
fn said(run: &Run, code: i32) -> &str {
    assert_eq!(run.code, code, "{run:?}");
    assert_eq!(run.stdout, "", "{run:?}");
    run.stderr.trim_end()
}

#[test]
fn a_missing_tube_is_named_by_every_command() {
    let server = Server::start();
    server.ok(&["tube", "create", "mail"]);
    let commands: [&[&str]; 11] = [
        &["put", "mial", "x"],
        &["take", "mial"],
        &["ack", "mial", "1"],
        &["ack", "mial", "1", "2"],
        &["peek", "mial", "1"],
        &["kick", "mial"],
        &["touch", "mial", "5", "1"],
        &["work", "mial", "--", "true"],
        &["tube", "stats", "mial"],
        &["tube", "drop", "mial"],
        &["export", "mial", "--data-dir", server.data.path().to_str().unwrap()],
    ];
    for command in commands {
        let run = server.run(command);
        let meant = "tube \"mial\" does not exist (did you mean \"mail\"?)";
        assert!(said(&run, 1).contains(meant), "{command:?}: {run:?}");
        assert_eq!(run.stderr.lines().filter(|line| line.contains(meant)).count(), 1, "{command:?}: {run:?}");
    }
    let other = server.run(&["take", "orders"]);
    assert!(said(&other, 1).contains("`lycosa tube create orders` makes this one"), "{other:?}");
}

#[test]
fn limits_have_the_names_of_their_settings() {
    let server = Server::configured(&["--memory-limit", "16MiB", "--max-frame-size", "2MiB"]);
    server.ok(&["tube", "create", "t"]);
    let large = server.run_with(&["put", "t"], &"x".repeat(1_200_000));
    assert!(said(&large, 1).contains("max_tuple_size is 1MiB"), "{large:?}");
    let huge = server.run_with(&["put", "t"], &"x".repeat(3_000_000));
    assert!(huge.stderr.contains("max_frame_size"), "{huge:?}");
    assert_eq!(huge.code, 1, "{huge:?}");

    let lines = format!("{}\n", "y".repeat(1000)).repeat(20_000);
    let full = server.run_with(&["put", "t", "--lines"], &lines);
    assert!(
        full.stderr.contains("the server's memory for tasks is used up: memory_limit is 16MiB"),
        "{full:?}"
    );
    assert_eq!(full.code, 1, "{full:?}");
}

#[test]
fn refused_lines_are_named_and_so_is_the_way_on() {
    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "fifottl"]);
    let file = server.data.path().join("lines.json");
    fs::write(&file, "1\n2\nnonsense\n4\n5\n").unwrap();
    let name = file.display().to_string();
    let run = server.run(&["put", "t", "--lines", "--as", "json", "--file", &name]);
    assert_eq!((run.code, run.stdout.as_str()), (1, "put 2 tasks\n"), "{run:?}");
    assert!(run.stderr.contains("line 3 was refused: the payload is not JSON"), "{run:?}");
    assert!(run.stderr.contains("stored: line 1-2; not read: from line 4 on"), "{run:?}");
    assert!(run.stderr.contains(&format!("`tail -n +4 {name} | lycosa put t --lines`")), "{run:?}");

    let run = server.run_with(
        &["import"],
        "{\"tube\":\"t\",\"data\":1}\n\n{\"tube\":\"t\"}\n{\"tube\":\"t\",\"data\":2}\n",
    );
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("line 3 was refused: missing field `data`"), "{run:?}");
    assert!(run.stderr.contains("stored: line 1; not read: from line 4 on"), "{run:?}");
    assert!(run.stderr.contains("`tail -n +4 INPUT | lycosa import`"), "{run:?}");

    let run = server.run(&["put", "t", "--lines", &name]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("give a file with -f FILE"), "{run:?}");

    // Exactly the lines that are said to be stored are stored.
    let stored = server.ok(&["tube", "stats", "t", "--json"]);
    assert!(stored.contains(r#""ready":3"#), "{stored}");
}

#[test]
fn advice_about_a_missing_grant_names_the_user() {
    let server = Server::start();
    for tube in ["mine", "other"] {
        server.ok(&["tube", "create", tube]);
    }
    let data = server.data.path().to_str().unwrap();
    let password = server.data.path().join("password");
    fs::write(&password, "secret\n").unwrap();
    let file = password.to_str().unwrap();
    server.ok(&["user", "add", "ann", "--tube", "mine", "--data-dir", data, "--password-file", file]);
    let run = server.run(&["put", "other", "x", "--user", "ann", "--password-file", file]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("`lycosa user grant ann --tube other` allows it"), "{run:?}");
}

#[test]
fn what_is_missing_or_means_nothing_is_named() {
    let server = Server::start();
    server.ok(&["tube", "create", "plain", "--type", "fifo"]);
    let folder = server.data.path().to_str().unwrap();
    let listed = server.run(&["session", "list", "plian"]);
    assert!(
        said(&listed, 1).contains("tube \"plian\" does not exist (did you mean \"plain\"?)"),
        "{listed:?}"
    );
    let idle = server.run(&["session", "list", "plain"]);
    assert!(said(&idle, 0).contains("holds a task of tube \"plain\""), "{idle:?}");
    let import = server.run(&["import", folder]);
    assert!(import.stderr.contains(&format!("cannot read {folder}: Is a directory")), "{import:?}");
    let compared = server.run(&["compare", &server.address, &server.address]);
    assert!(compared.stderr.contains("the role `replication` to guest on both servers"), "{compared:?}");
    let nowhere = server.data.path().join("nowhere");
    let restored = lycosa(&["restore", nowhere.to_str().unwrap(), "--data-dir", &format!("{folder}/new")]);
    assert_eq!(restored.code, 66, "as `check` has it: {restored:?}");
    let filters = [
        ["--utube", "a"],
        ["--older-than", "1h"],
        ["--younger-than", "1h"],
        ["--pri-from", "1"],
        ["--pri-to", "1"],
    ];
    for [filter, value] in filters {
        for command in [&["find", "plain"][..], &["apply", "plain", "delete", "--yes"]] {
            let run = server.run(&[command, &[filter, value]].concat());
            let meant = format!("{filter} means nothing to tube \"plain\" of type fifo");
            assert!(said(&run, 2).contains(&meant), "{command:?}: {run:?}");
        }
    }
}

#[test]
fn values_of_flags() {
    let usage = |arguments: &[&str]| {
        let run = lycosa(arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {run:?}");
        run.stderr
    };
    assert!(usage(&["put", "t", "x", "--pri", "-1"]).contains("a whole number, 0 or more"));
    assert!(usage(&["put", "t", "x", "--delay", "-5"]).contains("expected seconds, 0 or more"));
    assert!(usage(&["take", "t", "--timeout", "soon"]).contains("1h30m"));
    for negative in [&["kick", "t", "--count", "-3"][..], &["list", "t", "--limit", "-1"]] {
        let refusal = usage(negative);
        assert!(refusal.contains("expected a whole number, 1 or more"), "{negative:?}: {refusal}");
    }
    assert!(usage(&["take", "t", "-n", "-2"]).contains("-2 is not in 1..=10000"));
    let capacity = usage(&["tube", "create", "t", "--type", "limfifottl", "--capacity", "-1"]);
    assert!(capacity.contains("invalid value '-1' for '--capacity <COUNT>'"), "{capacity}");
    for [flag, value] in [["--memory-limit", "lots"], ["--wal-mode", "never"], ["--listen", "nonsense"]] {
        assert!(usage(&["serve", flag, value]).contains(&format!("{flag}: ")), "{flag}");
    }
    for flag in ["--ttl", "--ttr"] {
        assert!(usage(&["put", "t", "x", flag, "0"]).contains("expected 1ms or more"), "{flag}");
        assert!(usage(&["tube", "create", "t", flag, "0"]).contains("expected 1ms or more"), "{flag}");
    }
    assert!(usage(&["touch", "t", "0", "1"]).contains("expected 1ms or more"));
    assert!(usage(&["work", "t", "--timeout", "0", "--", "true"]).contains("expected 1ms or more"));
    assert!(usage(&["ping", "--request-timeout", "0"]).contains("expected 1ms or more"));
    assert!(usage(&["put", "t", "x", "--header", "=cron"]).contains("expected NAME=TEXT"));
    let token = "3-0-42-9f86d081884c7d65";
    assert!(usage(&["peek", "t", "--token", token]).contains("unexpected argument '--token'"));
    assert!(usage(&["touch", "t", "5m", "1", "--token", token]).contains("cannot be used with '--token"));
    for long in ["10000000d", "1e15"] {
        assert!(usage(&["put", "t", "x", "--ttl", long]).contains("at most 36500d"), "{long}");
    }
    let dry = ["expiration", "start", "x", "s", "--field", "1", "--dry-run", "--dry-run-timeout"];
    assert!(usage(&[&dry[..], &["9999999999"]].concat()).contains("at most 36500d"));
    for (flag, text) in [("--share", "x"), ("--budget-rows", ""), ("--scan-size", "1,5")] {
        let refusal = usage(&["expiration", "start", "x", "s", "--field", "1", flag, text]);
        assert!(refusal.contains("expected a whole number"), "{flag} {text}: {refusal}");
    }
    assert!(usage(&["bench", "--seconds", "1e308"]).contains("from 0 to 86400"));
    assert!(usage(&["ping", "--address", "host:port"]).contains("HOST:PORT"));
    assert!(usage(&["ping", "--address", "ann@host"]).contains("--user"));

    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "fifottl", "--ttl", "7d"]);
    server.ok(&["put", "t", "x", "--delay", "1h30m"]);
    assert!(server.ok(&["tube", "stats", "t", "--json"]).contains(r#""delayed":1"#));
    let port = server.address.rsplit(':').next().unwrap();
    assert_eq!(lycosa(&["ping", "--address", &format!("localhost:{port}")]).code, 0);
}

#[test]
fn no_server_and_no_task() {
    let none = lycosa(&["ping", "--address", "127.0.0.1:1"]);
    let text = said(&none, 4);
    assert_eq!(text.matches("Connection refused").count(), 1, "{text}");
    assert!(text.contains("Is a server running at 127.0.0.1:1?"), "{text}");

    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "fifottl"]);
    server.ok(&["put", "t", "x", "y", "--delay", "1h"]);
    let nothing = server.run(&["take", "t"]);
    assert_eq!(said(&nothing, 3), "lycosa: no task is ready in tube \"t\"; 2 delayed");
    let missing = server.run(&["peek", "t", "99"]);
    assert_eq!(said(&missing, 3), "lycosa: t 99: Task 99 not found");
    server.ok(&["put", "t", "z"]);
    let not_held = server.run(&["ack", "t", "2"]);
    assert!(said(&not_held, 1).contains("--session"), "{not_held:?}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    use std::io::Read;
    use std::process::Stdio;
    let mut command = crate::support::command();
    let mut child =
        command.args(["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[test]
fn the_log_names_options_that_a_tube_ignores() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("init.lua");
    fs::write(
        &program,
        "queue.create_tube('b', 'fifo', {capacity = 3})\nqueue.tube.b:put('a', {later = 5})\n",
    )
    .unwrap();
    let server = Server::configured(&["--app", program.to_str().unwrap()]);
    for line in [
        "create_tube by user 'admin' in tube 'b' (fifo): tubes of this type ignore option 'capacity'",
        "put by user 'admin' in tube 'b' (fifo): option 'later' does not exist and is ignored",
    ] {
        wait_until(line, || server.log().contains(line));
    }
}

#[test]
fn a_tube_that_exists_is_told_with_its_type() {
    let server = Server::start();
    assert_eq!(server.ok(&["tube", "create", "t"]), "created tube t (fifottl)\n");
    assert_eq!(server.ok(&["tube", "create", "t", "--if-not-exists"]), "tube t (fifottl) existed already\n");
    let again = server.run(&["tube", "create", "t"]);
    assert!(
        said(&again, 1).contains("\"t\" exists already, with the type fifottl; --if-not-exists"),
        "{again:?}"
    );
    let other = server.run(&["tube", "create", "t", "--type", "utube", "--if-not-exists"]);
    assert!(
        said(&other, 1).contains("\"t\" exists already, with the type fifottl; `lycosa tube drop t`"),
        "{other:?}"
    );
    for name in ["a.b", "a:b", ""] {
        for command in [&["tube", "create", name][..], &["put", name, "x", "--create"]] {
            assert_eq!(server.run(command).code, 2, "{command:?}");
        }
    }
    let missing = server.run(&["kick", "t", "--id", "99"]);
    assert_eq!(said(&missing, 1), "lycosa: t 99: Task 99 not found");
    for id in ["abc", "-1", "99999999999999999999"] {
        let run = server.run(&["ack", "t", id]);
        assert!(said(&run, 2).contains("expected the id of a task"), "{run:?}");
    }
}

/// A port that something else listens at, or nothing that speaks first.
#[test]
fn what_answers_at_another_s_port_is_said() {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    let answers: [(&[u8], &str); 6] = [
        (b"", "the peer closed the connection without a greeting: it is no Lycosa or Tarantool"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "it speaks HTTP: it answers \"HTTP/1.1 400 Bad Request\\r\\n\\r\\n\"",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it speaks SSH: it answers"),
        (b"-ERR unknown command\r\n", "it speaks the protocol of Redis: it answers"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "it speaks TLS: the address begins with tls:// then"),
        (&[b'z'; 200], "the peer is no Lycosa or Tarantool: it answers \"zzzz"),
    ];
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let run = lycosa(&["ping", "-a", &address, "--request-timeout", "0.3"]);
    assert!(said(&run, 4).contains("HTTP and TLS wait for the client to begin"), "{run:?}");

    for (answer, text) in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(answer).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the client has closed the connection.
            let _ = stream.read(&mut [0; 64]);
        });
        let run = lycosa(&["ping", "-a", &address]);
        assert!(said(&run, 4).contains(text), "{run:?}");
        assert!(!run.stderr.contains("early eof"), "{run:?}");
        peer.join().unwrap();
    }
}

#[test]
fn a_line_that_is_no_json_is_named_by_its_own_number() {
    let server = Server::start();
    let run = server.run_with(&["import", "--json"], "{\"tube\":\"t\",\"type\":\"fifo\"}\n{bad\n");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("line 2 was refused: the line is not JSON: key must be a string at column 2"),
        "{run:?}"
    );
}

/// Repeated from the start, the put would store its tasks twice.
#[test]
fn a_put_whose_ids_cannot_be_printed_says_that_its_tasks_are_stored() {
    let server = Server::start();
    server.ok(&["tube", "create", "t"]);
    let lines = server.data.path().join("lines");
    fs::write(&lines, "d\ne\n").unwrap();
    let by_lines = ["put", "t", "--lines", "-f", lines.to_str().unwrap()];
    for (arguments, stored, total) in
        [(&["put", "t", "a", "b", "c"][..], "3 tasks", "3\n"), (&by_lines, "2 tasks", "5\n")]
    {
        let mut put = server.command(arguments);
        put.stdin(Stdio::null()).stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        let output = put.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(74), "{said}");
        assert!(said.contains("cannot write to standard output: No space left on device"), "{said}");
        assert!(said.contains(&format!("{stored} stored all the same")), "{said}");
        assert_eq!(server.ok(&["find", "t", "--count"]), total);
    }
}
