//! Tasks of a whole file at once, and what their exit codes say.

use super::*;

/// What `lycosa` answers on this server; the exit code must be `code`.
fn answer(server: &Server, code: i32, arguments: &[&str]) -> Run {
    let run = lycosa(&[arguments, &["--address", &server.address]].concat());
    assert_eq!(run.code, code, "{arguments:?}: {run:?}");
    run
}

#[test]
fn nothing_on_standard_input_is_no_task() {
    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "fifo"]);
    let put = |input: &str| {
        let mut command = command();
        command.args(["put", "t", "--address", &server.address]);
        finish(command, input)
    };
    let run = put("");
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
    assert!(run.stderr.contains("nothing came on standard input"), "{run:?}");
    assert_eq!(put("a").stdout, "0\n");
    assert_eq!(answer(&server, 0, &["put", "t", ""]).stdout, "1\n");
    // The request for the counts counts itself if it waits in the slow lane, as on a processor with other work.
    let nothing = "unread replies    0 B of 256 MiB\npartial requests  0 B of 256 MiB\n";
    wait_until("nothing waits", || server.ok(&["stats"]).contains(nothing));
}

#[test]
fn lines_are_put_in_batches() {
    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "fifottl"]);
    let put = |arguments: &[&str], input: &str| {
        let mut command = command();
        command.args(["put", "t", "--lines", "--address", &server.address]).args(arguments);
        finish(command, input)
    };
    let lines: String = (0..2500).map(|line| format!("{line}\n")).collect();
    let run = put(&["--batch", "1000", "--pri", "3"], &lines);
    assert_eq!((run.code, run.stdout.as_str()), (0, "put 2500 tasks\n"), "{run:?}");
    let run = put(&["--batch", "2", "--json", "--as", "json"], "1\n[2]\n\"3\"\n");
    assert_eq!(run.lines().last().unwrap(), &json!({ "id": 2502, "state": "r", "data": "3" }));
    assert_eq!(run.lines().len(), 3);
    // What `redis-cli --raw` prints of an empty list. Empty lines beside others are tasks.
    for input in ["\n", "\r\n"] {
        let run = put(&[], input);
        assert_eq!((run.code, run.stdout.as_str()), (0, "put 0 tasks\n"), "{run:?}");
        assert!(run.stderr.contains("there is one line, and it is empty"), "{run:?}");
    }
    server.ok(&["tube", "create", "blank"]);
    let mut blank = command();
    blank.args(["put", "blank", "--lines", "--address", &server.address]);
    assert_eq!(finish(blank, "\n\n").stdout, "put 2 tasks\n");

    let run = put(&["--batch", "10", "--as", "json"], "1\n2\nnonsense\n4\n");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("line 3 was refused: the payload is not JSON"), "{run:?}");
    let statistics = answer(&server, 0, &["tube", "stats", "t", "--json"]).lines();
    assert_eq!(statistics[0]["statistics"]["tasks"]["ready"], json!(2505));

    server.ok(&["tube", "create", "small", "--type", "limfifottl", "--capacity", "3"]);
    let full = answer(&server, 1, &["put", "small", "a", "b", "c", "d", "--batch", "2"]);
    assert_eq!(full.stdout, "0\n1\n");
    assert!(full.stderr.contains("task 3-4 was refused: the tube is full"), "{full:?}");
    let beyond = answer(&server, 1, &["put", "small", "a", "b", "c", "d", "--batch", "4"]);
    assert!(beyond.stderr.contains("task 1-4 was refused: 4 tasks do not fit"), "{beyond:?}");
}

#[test]
fn tasks_are_taken_and_settled_in_batches() {
    let server = Server::configured(&["--queue-ttr", "60"]);
    server.ok(&["tube", "create", "t"]);
    server.ok(&["put", "t", "a", "b", "c", "--batch", "3"]);
    let taken = answer(&server, 0, &["take", "t", "--limit", "2", "--json"]).lines();
    assert_eq!(taken.len(), 2, "{taken:?}");
    let session = taken[0]["session"].as_str().unwrap();

    let settle =
        |code: i32, arguments: &[&str]| answer(&server, code, &[arguments, &["--session", session]].concat());
    let refused = settle(1, &["ack", "t", "0", "1", "2"]);
    assert_eq!(
        (refused.stdout.as_str(), refused.stderr.starts_with("lycosa: t: task 2: Task was not taken: ")),
        ("", true)
    );
    assert_eq!(settle(0, &["release", "t", "1", "0"]).stdout, "1\tr\tb\n0\tr\ta\n");
    assert_eq!(settle(0, &["take", "t", "--limit", "5"]).stdout, "0\tt\ta\n1\tt\tb\n2\tt\tc\n");
    assert_eq!(settle(0, &["ack", "t", "2", "0"]).stdout, "2\t-\tc\n0\t-\ta\n");
    assert_eq!(settle(0, &["ack", "t", "1"]).stdout, "1\t-\tb\n");

    answer(&server, 3, &["take", "t", "--limit", "5"]);
    answer(&server, 2, &["take", "t", "--limit", "0"]);
    answer(&server, 2, &["put", "t", "a", "--batch", "10001"]);
    server.ok(&["put", "t", "d", "e"]);
    assert_eq!(answer(&server, 0, &["take", "t", "--limit", "5", "--ack"]).stdout, "3\tt\td\n4\tt\te\n");
    let absent = answer(&server, 1, &["ack", "absent", "0", "1"]);
    assert!(absent.stderr.contains("tube \"absent\" does not exist"), "{absent:?}");
}
