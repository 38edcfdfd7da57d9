//! `lycosa export` and `lycosa import`.

use super::*;

fn import(server: &Server, lines: &str) -> Run {
    server.run_with(&["import"], lines)
}

/// The lines of an export, tasks by tube.
fn tasks(lines: &[Json]) -> BTreeMap<String, Vec<Json>> {
    let mut tubes = BTreeMap::new();
    for line in lines {
        let tube = tubes.entry(line["tube"].as_str().unwrap().to_owned()).or_insert_with(Vec::new);
        if line.get("type").is_none() {
            tube.push(line.clone());
        }
    }
    tubes
}

fn heads(lines: &[Json]) -> Vec<Json> {
    lines.iter().filter(|line| line.get("type").is_some()).cloned().collect()
}

/// Seconds since the epoch at which a task ends and becomes ready.
fn moments(task: &Json) -> (Option<f64>, Option<f64>) {
    let moment = |name: &str| Some(task["created"].as_f64()? + task[name].as_f64()?);
    (moment("ttl"), moment("delay"))
}

fn is_close(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() < 2.0,
        (a, b) => a.is_none() && b.is_none(),
    }
}

#[test]
fn tubes_go_from_one_server_to_another_and_are_the_same() {
    let from = Server::over(copy("queue-single"), &[]);
    let file = tempfile::tempdir().unwrap();
    let lines = path(&file, "tubes.jsonl");
    let run = lycosa(&["export", "--data-dir", folder(&from.data), "-o", &lines]);
    assert_eq!(run.code, 0, "{run:?}");
    let exported = fs::read_to_string(&lines).unwrap();
    let exported: Vec<Json> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts = expected_counts("queue-single");
    for (tube, tasks) in tasks(&exported) {
        assert_eq!(tasks.len() as u64, counts[&tube], "{tube}");
    }

    let to = Server::start();
    let run = lycosa(&["import", &lines, "--address", &to.address, "--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let total: u64 = tasks(&exported).values().map(|tasks| tasks.len() as u64).sum();
    assert_eq!((&run.lines()[0]["tasks"], &run.lines()[0]["tubes"]), (&json!(total), &json!(13)));

    let again = lycosa(&["export", "--data-dir", folder(&to.data)]);
    assert_eq!(again.code, 0, "{again:?}");
    let again = again.lines();
    assert_eq!(heads(&again), heads(&exported));
    let (before, after) = (tasks(&exported), tasks(&again));
    for (tube, before) in &before {
        assert_eq!(after[tube].len(), before.len(), "{tube}");
        for (before, after) in before.iter().zip(&after[tube]) {
            for name in ["data", "pri", "utube", "ttr"] {
                assert_eq!(before[name], after[name], "{tube}: {before} {after}");
            }
            assert_eq!(before["state"], after["state"], "{tube}: {before} {after}");
            let ((death, ready), (death_after, ready_after)) = (moments(before), moments(after));
            assert!(is_close(death, death_after), "{tube}: {before} {after}");
            assert!(is_close(ready, ready_after), "{tube}: {before} {after}");
        }
    }
}

#[test]
fn payloads_keep_their_bytes() {
    let server = Server::start();
    let lines = [
        r#"{"tube":"bytes","type":"fifo","options":{}}"#,
        r#"{"tube":"bytes","data":{"base16":"00ff"}}"#,
        r#"{"tube":"bytes","data":{"base16":"ff","type":"string"}}"#,
        r#"{"tube":"bytes","data":{"base16":"cc05","type":"msgpack"}}"#,
        r#"{"tube":"bytes","data":[1.0,{"to":"änn"},18446744073709551615,{"base16":"01","type":-3}]}"#,
    ];
    let run = import(&server, &lines.join("\n"));
    assert_eq!(run.code, 0, "{run:?}");
    let run = lycosa(&["export", "bytes", "--data-dir", folder(&server.data)]);
    let data: Vec<Json> = run.lines().iter().skip(1).map(|line| line["data"].clone()).collect();
    let put: Vec<Json> =
        lines[1..].iter().map(|line| serde_json::from_str::<Json>(line).unwrap()["data"].clone()).collect();
    assert_eq!(data, put);
    assert_eq!(run.lines()[0], serde_json::from_str::<Json>(lines[0]).unwrap());
}

#[test]
fn many_tasks_are_read_in_pages_in_their_order() {
    let server = Server::start();
    server.ok(&["tube", "create", "many", "--type", "utube"]);
    let lines: String =
        (0..3000).map(|n| format!("{{\"tube\":\"many\",\"data\":{n},\"utube\":\"{}\"}}\n", n % 7)).collect();
    let run = import(&server, &lines);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("imported 3000 tasks"), "{run:?}");
    let run = lycosa(&["export", "many", "--data-dir", folder(&server.data)]);
    let numbers: Vec<u64> = run.lines().iter().skip(1).map(|line| line["data"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..3000).collect::<Vec<_>>());
}

#[test]
fn a_wrong_line_ends_an_import_and_is_named() {
    let server = Server::start();
    let head = r#"{"tube":"t","type":"fifottl"}"#;
    let run =
        import(&server, &format!("{head}\n{{\"tube\":\"t\",\"data\":1}}\n{{\"tube\":\"t\",\"prio\":1}}\n"));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("line 3 was refused: unknown field `prio`"), "{run:?}");
    assert!(run.stdout.contains("imported 1 task,"), "{run:?}");
    let run = import(&server, r#"{"tube":"absent","data":1}"#);
    assert!(
        run.code == 1 && run.stderr.contains("line 1 was refused: tube \"absent\" does not exist"),
        "{run:?}"
    );
    let run = import(&server, r#"{"tube":"t","type":"fifo"}"#);
    assert!(run.code == 1 && run.stderr.contains("of type fifottl, not fifo"), "{run:?}");
    let run = import(&server, r#"{"tube":"t","data":1,"created":1000,"ttl":60}"#);
    assert!(run.code == 0 && run.stdout.contains("1 were left out"), "{run:?}");
}

#[test]
fn a_taken_task_becomes_ready_and_a_buried_one_stays_buried() {
    let server = Server::start();
    let lines = [
        r#"{"tube":"t","type":"fifo"}"#,
        r#"{"tube":"t","data":"taken","state":"t"}"#,
        r#"{"tube":"t","data":"buried","state":"!"}"#,
    ];
    let run = import(&server, &lines.join("\n"));
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.stdout, "imported 2 tasks, 1 tube; 1 are buried; 1 were taken and are ready\n");
    let run = lycosa(&["export", "t", "--data-dir", folder(&server.data)]);
    let states: Vec<Json> = run.lines().iter().skip(1).map(|line| line["state"].clone()).collect();
    assert_eq!(states, ["r", "!"]);
}

#[test]
fn a_full_tube_refuses_the_line() {
    let server = Server::start();
    let lines = [
        r#"{"tube":"small","type":"limfifottl","options":{"capacity":1}}"#,
        r#"{"tube":"small","data":1}"#,
        r#"{"tube":"small","data":2}"#,
    ];
    let run = import(&server, &lines.join("\n"));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("line 3 was refused: the tube is full"), "{run:?}");
}

#[test]
fn who_may_not_read_is_told_what_to_do() {
    let server = Server::start();
    server.ok(&["tube", "create", "t"]);
    let run = lycosa(&["export", "--address", &server.address]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("--data-dir"), "{run:?}");
    let run = lycosa(&["export", "absent", "--data-dir", folder(&server.data)]);
    assert!(run.code == 1 && run.stderr.contains("tube \"absent\" does not exist"), "{run:?}");
}
