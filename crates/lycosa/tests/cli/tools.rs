//! The command line, run as a person runs it: `cat`, `check`, `export`, `import`, and tasks in batches.
//!
//! Data folders are copies of `corpus/files`, which a real Tarantool wrote; `expected.json` is what it says is in them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::support::{Run, Server, command, finish, lycosa, wait_until};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

fn corpus(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files").join(folder)
}

/// A copy of a folder of the corpus.
fn copy(folder: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(corpus(folder)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if path.is_file() && !name.to_string_lossy().ends_with(".json") {
            fs::copy(&path, copy.path().join(name)).unwrap();
        }
    }
    copy
}

/// What the real server found in a folder: tuples by name of the space.
fn expected_counts(folder: &str) -> BTreeMap<String, u64> {
    let text = fs::read(corpus(folder).join("expected.json")).unwrap();
    let expected: Json = serde_json::from_slice(&text).unwrap();
    let spaces = expected["spaces"].as_array().unwrap().iter();
    spaces
        .map(|space| (space["name"].as_str().unwrap().to_owned(), space["count"].as_u64().unwrap()))
        .collect()
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

fn folder(folder: &TempDir) -> &str {
    folder.path().to_str().unwrap()
}

mod check {
    use super::*;

    fn counts(run: &Run) -> BTreeMap<String, u64> {
        let spaces = run.lines().into_iter().filter(|line| line["id"].as_u64() > Some(511));
        spaces
            .map(|line| (line["space"].as_str().unwrap().to_owned(), line["tuples"].as_u64().unwrap()))
            .collect()
    }

    fn verdict(run: &Run) -> Json {
        run.lines().pop().unwrap()
    }

    #[test]
    fn a_sound_folder_is_sound_and_holds_what_the_real_server_found() {
        for name in ["empty", "plain", "queue-single", "raw-bodies", "synchro"] {
            let data = copy(name);
            let run = lycosa(&["check", folder(&data), "--json"]);
            assert_eq!(run.code, 0, "{name}: {run:?}");
            assert_eq!(counts(&run), expected_counts(name), "{name}");
            let verdict = verdict(&run);
            assert_eq!(verdict["sound"], json!(true), "{name}");
            assert_eq!(verdict["digest"].as_str().unwrap().len(), 32, "{name}");
        }
    }

    /// In folders of a Tarantool's own there is nothing.
    #[test]
    fn a_tarantool_refuses_nothing_of_its_own() {
        for name in ["empty", "plain", "queue-single", "lycosa-0.1"] {
            let data = copy(name);
            let run = lycosa(&["check", folder(&data), "--for-tarantool"]);
            assert_eq!(run.code, 0, "{name}: {run:?}");
            assert!(run.stdout.contains("a Tarantool 2.6 finds nothing to refuse"), "{name}: {run:?}");
        }
    }

    /// Tarantool 2.6 starts on the folders with exit code 0 and refuses all further ones (`Missing .xlog file between LSN …`). Without a
    /// snapshot it begins anew, which loses everything; `check` does not call that sound.
    #[test]
    fn gaps_are_judged_as_a_tarantool_judges_them() {
        let cases = [
            ("missing-first-xlog", 0, "a Tarantool 2.6 finds nothing to refuse"),
            ("missing-last-xlog", 0, "a Tarantool 2.6 finds nothing to refuse"),
            ("missing-xlog", 66, "Missing .xlog file between LSN 23 {1: 23} and 43 {1: 43}"),
            ("missing-snaps", 66, "no snapshot"),
        ];
        for (case, code, text) in cases {
            let data = copy(&format!("corrupt/{case}"));
            let run = lycosa(&["check", folder(&data), "--for-tarantool"]);
            assert_eq!(run.code, code, "{case}: {run:?}");
            assert!(run.stdout.contains(text), "{case}: {run:?}");
        }
    }

    /// Logs that no start needs are removed by a server, or by hand; a log that the newest snapshot does not replace is not.
    #[test]
    fn old_logs_may_be_unlinked() {
        let data = copy("plain");
        let digest = || verdict(&lycosa(&["check", folder(&data), "--json"]))["digest"].clone();
        let whole = digest();
        for name in ["00000000000000000268.xlog", "00000000000000000000.xlog", "00000000000000000000.snap"] {
            fs::remove_file(path(&data, name)).unwrap();
            let run = lycosa(&["check", folder(&data)]);
            assert_eq!(run.code, 0, "without {name}: {run:?}");
            assert_eq!(digest(), whole, "without {name}");
        }
        fs::remove_file(path(&data, "00000000000000003450.xlog")).unwrap();
        let run = lycosa(&["check", folder(&data)]);
        assert_eq!(run.code, 66, "{run:?}");
        assert!(run.stdout.contains("Missing .xlog file between LSN"), "{run:?}");
    }

    /// What each version has left in the corpus; a new version adds a line.
    const OWN_FOLDERS: &[&str] = &["lycosa-0.1"];

    #[test]
    fn folders_of_earlier_versions_hold_what_they_held() {
        for &version in OWN_FOLDERS {
            let data = copy(version);
            let run = lycosa(&["check", folder(&data), "--json"]);
            assert_eq!(run.code, 0, "{version}: {run:?}");
            let digest = fs::read_to_string(corpus(version).join("digest")).unwrap();
            assert_eq!(verdict(&run)["digest"], json!(digest.trim()), "{version}");
        }
    }

    #[test]
    fn tasks_are_counted_by_state() {
        let data = copy("queue-single");
        let run = lycosa(&["check", folder(&data), "--json"]);
        let spaces = counts(&run);
        let mut tubes = 0;
        for tube in run.lines().iter().filter(|line| line.get("tube").is_some()) {
            let count = |state: &str| tube[state].as_u64().unwrap();
            let tasks = count("ready") + count("taken") + count("delayed") + count("buried");
            assert_eq!((tasks, count("other")), (spaces[tube["tube"].as_str().unwrap()], 0), "{tube}");
            tubes += 1;
        }
        assert_eq!(tubes, 13);
        let people = lycosa(&["check", folder(&data)]);
        assert_eq!(people.code, 0, "{people:?}");
        for part in ["ft_default", "digest", "all is sound", "has no end marker", "rows/s"] {
            assert!(people.stdout.contains(part), "{part}: {}", people.stdout);
        }
    }

    #[test]
    fn what_a_killed_writer_leaves_is_sound() {
        for case in fs::read_dir(corpus("torn")).unwrap() {
            let case = case.unwrap();
            if case.path().is_dir() {
                let data = copy(&format!("torn/{}", case.file_name().to_str().unwrap()));
                let run = lycosa(&["check", folder(&data), "--json"]);
                assert_eq!((run.code, &verdict(&run)["sound"]), (0, &json!(true)), "{case:?}: {run:?}");
            }
        }
    }

    #[test]
    fn each_kind_of_damage_has_its_exit_code() {
        let cases = [
            ("0-sound", 0),
            ("filetype", 65),
            ("flip-crc", 65),
            ("flip-length", 65),
            ("flip-magic", 65),
            ("flip-plain", 65),
            ("flip-zstd", 65),
            ("instance", 78),
            ("missing-first-xlog", 0),
            ("missing-last-xlog", 0),
            ("missing-snaps", 66),
            ("missing-xlog", 66),
            // The snapshot before them would do for a start; the folder is not sound for that.
            ("snap-body", 65),
            ("snap-crc", 65),
            ("snap-header", 65),
            ("snap-no-end", 65),
            ("snap-body-only", 65),
            ("snap-inprogress", 0),
            ("stray-files", 0),
            ("unknown-key", 0),
            ("vclock", 65),
            ("version", 78),
        ];
        for (case, code) in cases {
            let data = copy(&format!("corrupt/{case}"));
            let before = names(&data);
            let run = lycosa(&["check", folder(&data), "--json"]);
            assert_eq!(run.code, code, "{case}: {run:?}");
            assert_eq!(verdict(&run)["exit"], json!(code), "{case}");
            assert_eq!(names(&data), before, "{case}: nothing is changed");
            assert_eq!(lycosa(&["check", folder(&data)]).code, code, "{case}");
        }
    }

    fn names(data: &TempDir) -> Vec<String> {
        let entries = fs::read_dir(data.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_folder_without_data_is_said_to_be_one() {
        let nothing = tempfile::tempdir().unwrap();
        let run = lycosa(&["check", folder(&nothing)]);
        assert_eq!(run.code, 66, "{run:?}");
        assert!(run.stderr.contains("neither snapshots nor xlogs"), "{run:?}");
        assert_eq!(lycosa(&["check", &path(&nothing, "absent")]).code, 66);
    }

    #[test]
    fn the_digest_follows_the_data() {
        let digest = |name: &str| {
            let data = copy(name);
            verdict(&lycosa(&["check", folder(&data), "--json"]))["digest"].clone()
        };
        let sound = digest("corrupt/0-sound");
        assert_eq!(sound, digest("corrupt/stray-files"));
        assert_ne!(sound, digest("corrupt/missing-last-xlog"));
        // Beside a server that writes there.
        let server = Server::over(copy("corrupt/0-sound"), &[]);
        let run = lycosa(&["check", folder(&server.data), "--json"]);
        assert_eq!(run.code, 0, "{run:?}");
    }
}

mod cat {
    use super::*;

    const SNAPSHOT: &str = "00000000000000000275.snap";
    const XLOG: &str = "00000000000000000275.xlog";

    #[test]
    fn every_row_of_every_file_is_printed() {
        for name in ["plain", "queue-single", "synchro"] {
            let data = copy(name);
            let checked = lycosa(&["check", folder(&data), "--json"]);
            for file in checked.lines().iter().filter(|line| line.get("file").is_some()) {
                let path = path(&data, file["file"].as_str().unwrap());
                let run = lycosa(&["cat", &path, "--json"]);
                assert_eq!(run.code, 0, "{path}: {}", run.stderr);
                assert_eq!(run.lines().len() as u64, file["rows"].as_u64().unwrap(), "{path}");
                assert_eq!(lycosa(&["cat", &path]).stdout.lines().count(), run.lines().len(), "{path}");
            }
        }
    }

    #[test]
    fn a_folder_is_no_file() {
        let data = copy("empty");
        let run = lycosa(&["cat", folder(&data)]);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains("is a folder") && run.stderr.contains("lycosa check"), "{run:?}");
    }

    #[test]
    fn rows_have_the_names_of_their_spaces() {
        let data = copy("queue-single");
        // The names stand in the snapshot before the file.
        let run = lycosa(&["cat", &path(&data, XLOG), "--json", "--space", "ft", "--type", "update,insert"]);
        assert_eq!(run.code, 0, "{run:?}");
        let lines = run.lines();
        assert!(lines.len() > 5, "{run:?}");
        for line in &lines {
            assert_eq!((&line["space"], &line["space_name"]), (&json!(518), &json!("ft")));
            assert!(["update", "insert"].contains(&line["type"].as_str().unwrap()), "{line}");
        }
        let by_number =
            lycosa(&["cat", &path(&data, XLOG), "--json", "--space", "518", "--type", "update,insert"]);
        assert_eq!(by_number.stdout, run.stdout);
        let first = &lines[0];
        assert_eq!(first["lsn"], json!(290));
        assert_eq!(first["key"], json!([0]));
        assert_eq!(first["operations"], json!([["=", 2, "t"], ["=", 3, 1_952_848_471_040_940_u64]]));
        let unseen = lycosa(&["cat", &path(&data, XLOG), "--space", "nobody"]);
        assert_eq!((unseen.code, unseen.stdout.as_str()), (0, ""));
        assert!(unseen.stderr.contains("no row of a space 'nobody' was seen"), "{unseen:?}");
    }

    #[test]
    fn rows_are_chosen_by_lsn_and_number() {
        let data = copy("queue-single");
        let file = path(&data, XLOG);
        let lsns = |arguments: &[&str]| -> Vec<u64> {
            let run = lycosa(&[&["cat", &file, "--json"], arguments].concat());
            run.lines().iter().map(|line| line["lsn"].as_u64().unwrap()).collect()
        };
        assert_eq!(lsns(&["--from", "300", "--to", "303"]), [300, 301, 302, 303]);
        assert_eq!(lsns(&["--limit", "2"]), [276, 277]);
    }

    #[test]
    fn the_header_is_printed_as_it_stands() {
        let data = copy("queue-single");
        let run = lycosa(&["cat", &path(&data, SNAPSHOT), "--header", "--limit", "1"]);
        assert!(run.stdout.starts_with("SNAP\n0.13\nVersion: 2.6.0"), "{run:?}");
        let run = lycosa(&["cat", &path(&data, XLOG), "--header", "--limit", "1", "--json"]);
        let header = &run.lines()[0]["header"];
        assert_eq!((&header["kind"], &header["vclock"]), (&json!("XLOG"), &json!({ "1": 275 })));
    }

    #[test]
    fn a_torn_tail_is_named_and_no_fault() {
        for case in ["2-fixed-header", "3-plain-body", "4-zstd-body", "7-zeros"] {
            let data = copy(&format!("torn/{case}"));
            let run = lycosa(&["cat", &path(&data, "00000000000000000063.xlog")]);
            assert_eq!(run.code, 0, "{case}: {run:?}");
            assert!(run.stderr.contains("torn tail: "), "{case}: {run:?}");
            assert!(run.stdout.lines().count() > 0, "{case}: {run:?}");
        }
        let data = copy("torn/1-text-header");
        let run = lycosa(&["cat", &path(&data, "00000000000000000063.xlog")]);
        assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:?}");
        assert!(run.stderr.contains("it has no rows"), "{run:?}");
    }

    #[test]
    fn damage_ends_a_file_unless_forced() {
        let sound = copy("corrupt/0-sound");
        let file = "00000000000000000063.xlog";
        let all = lycosa(&["cat", &path(&sound, file)]).stdout;
        for case in ["flip-crc", "flip-length", "flip-magic", "flip-plain"] {
            let data = copy(&format!("corrupt/{case}"));
            let damaged = names_with_faults(&data);
            let path = path(&data, &damaged);
            let run = lycosa(&["cat", &path]);
            assert_eq!(run.code, 65, "{case}: {run:?}");
            assert!(run.stderr.contains("at offset"), "{case}: {run:?}");
            let forced = lycosa(&["cat", &path, "--force"]);
            assert_eq!(forced.code, 65, "{case}: {forced:?}");
            assert!(forced.stdout.starts_with(&run.stdout), "{case}");
            assert!(forced.stdout.len() > run.stdout.len(), "{case}: {forced:?}");
            if damaged == file {
                assert!(forced.stdout.lines().all(|line| all.contains(line)), "{case}");
            }
        }
    }

    /// The file of a folder in which `check` finds a fault.
    fn names_with_faults(data: &TempDir) -> String {
        let run = lycosa(&["check", folder(data), "--json"]);
        let lines = run.lines();
        let file =
            lines.iter().find(|line| line["faults"].as_array().is_some_and(|faults| !faults.is_empty()));
        file.unwrap()["file"].as_str().unwrap().to_owned()
    }

    #[test]
    fn files_that_cannot_be_read_have_exit_codes() {
        let data = copy("corrupt/version");
        let run = lycosa(&["cat", &path(&data, &names_with_faults(&data))]);
        assert_eq!(run.code, 78, "{run:?}");
        assert_eq!(lycosa(&["cat", &path(&data, "absent.xlog")]).code, 66);
        let notes = path(&data, "notes.txt");
        fs::write(&notes, "no journal\n").unwrap();
        assert_eq!(lycosa(&["cat", &notes]).code, 65);
        // What can be read is read all the same.
        let sound = path(&data, "00000000000000000000.xlog");
        let run = lycosa(&["cat", &notes, &sound, "--json", "--limit", "1"]);
        assert_eq!((run.code, &run.lines()[0]["file"]), (65, &json!(sound)), "{run:?}");
    }

    /// A `cat --follow` that runs.
    struct Following {
        child: Child,
        lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    }

    impl Following {
        fn start(file: &str) -> Self {
            let mut command = command();
            command.args(["cat", file, "--follow", "--json"]).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            Self { child, lines }
        }

        fn next(&mut self) -> Json {
            serde_json::from_str(&self.lines.next().expect("more rows").unwrap()).unwrap()
        }

        fn interrupt(mut self) -> Option<i32> {
            let pid = rustix::process::Pid::from_child(&self.child);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            self.child.wait().unwrap().code()
        }
    }

    #[test]
    fn a_file_is_followed_into_the_next_one() {
        let all = copy("corrupt/0-sound");
        let data = tempfile::tempdir().unwrap();
        let come = |name: &str| {
            let (new, place) = (path(&data, "new"), path(&data, name));
            fs::copy(path(&all, name), &new).unwrap();
            fs::rename(new, place).unwrap();
        };
        come("00000000000000000023.xlog");
        let mut following = Following::start(&path(&data, "00000000000000000023.xlog"));
        for lsn in 24..=43 {
            assert_eq!(following.next()["lsn"], json!(lsn));
        }
        come("00000000000000000043.xlog");
        for lsn in 44..=63 {
            assert_eq!(following.next()["lsn"], json!(lsn));
        }
        assert_eq!(following.interrupt(), Some(0));
    }

    #[test]
    fn a_growing_file_is_followed() {
        let server = Server::start();
        let xlog = path(&server.data, "00000000000000000000.xlog");
        server.ok(&["tube", "create", "grows", "--type", "fifo"]);
        let mut following = Following::start(&xlog);
        for payload in ["one", "two", "three"] {
            server.ok(&["put", "grows", payload]);
            let row = loop {
                let row = following.next();
                if row["space_name"] == json!("grows") {
                    break row;
                }
            };
            assert_eq!((&row["type"], &row["tuple"][2]), (&json!("insert"), &json!(payload)));
        }
        assert_eq!(following.interrupt(), Some(0));
    }
}

mod transfer {
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
        let put: Vec<Json> = lines[1..]
            .iter()
            .map(|line| serde_json::from_str::<Json>(line).unwrap()["data"].clone())
            .collect();
        assert_eq!(data, put);
        assert_eq!(run.lines()[0], serde_json::from_str::<Json>(lines[0]).unwrap());
    }

    #[test]
    fn many_tasks_are_read_in_pages_in_their_order() {
        let server = Server::start();
        server.ok(&["tube", "create", "many", "--type", "utube"]);
        let lines: String = (0..3000)
            .map(|n| format!("{{\"tube\":\"many\",\"data\":{n},\"utube\":\"{}\"}}\n", n % 7))
            .collect();
        let run = import(&server, &lines);
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.stdout.contains("imported 3000 tasks"), "{run:?}");
        let run = lycosa(&["export", "many", "--data-dir", folder(&server.data)]);
        let numbers: Vec<u64> =
            run.lines().iter().skip(1).map(|line| line["data"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..3000).collect::<Vec<_>>());
    }

    #[test]
    fn a_wrong_line_ends_an_import_and_is_named() {
        let server = Server::start();
        let head = r#"{"tube":"t","type":"fifottl"}"#;
        let run = import(
            &server,
            &format!("{head}\n{{\"tube\":\"t\",\"data\":1}}\n{{\"tube\":\"t\",\"prio\":1}}\n"),
        );
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
}

mod batches {
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
        let counts = server.ok(&["stats"]);
        assert!(
            counts.contains("unread replies    0 B of 256 MiB\npartial requests  0 B of 256 MiB\n"),
            "{counts}"
        );
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

        let settle = |code: i32, arguments: &[&str]| {
            answer(&server, code, &[arguments, &["--session", session]].concat())
        };
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
}

mod backup {
    use super::*;

    fn server() -> Server {
        let server = Server::start();
        server.ok(&["tube", "create", "mail"]);
        server.ok(&["put", "mail", "a", "b"]);
        server
    }

    fn digest(folder: &str) -> String {
        let run = lycosa(&["check", folder, "--json"]);
        run.lines().last().unwrap()["digest"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_running_server_is_backed_up_and_restored() {
        let server = server();
        let place = tempfile::tempdir().unwrap();
        let (saved, restored) = (path(&place, "saved"), path(&place, "restored"));
        let data = folder(&server.data);
        let run = lycosa(&["backup", &saved, "--data-dir", data]);
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.stdout.contains(&format!("`lycosa restore {saved} --data-dir FOLDER`")), "{run:?}");
        // Later rows are not in the backup, and the server serves clients meanwhile.
        server.ok(&["put", "mail", "c"]);
        assert_eq!(digest(&saved), {
            let label: Json =
                serde_json::from_slice(&fs::read(path(&place, "saved/backup.json")).unwrap()).unwrap();
            label["digest"].as_str().unwrap().to_owned()
        });
        let run = lycosa(&["restore", &saved, "--data-dir", &restored, "--json"]);
        assert_eq!(run.code, 0, "{run:?}");
        assert_eq!(run.lines()[0]["other_instances"], 0);
        assert_eq!(digest(&saved), digest(&restored));
        assert!(!Path::new(&restored).join("backup.json").exists(), "it is no file of a data folder");
        let again = Server::over(at(&restored), &[]);
        assert_eq!(again.ok(&["take", "mail", "--limit", "5"]), "0\tt\ta\n1\tt\tb\n");
    }

    /// A folder that exists, as one that goes away.
    fn at(path: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::remove_dir(folder.path()).unwrap();
        fs::rename(path, folder.path()).unwrap();
        folder
    }

    #[test]
    fn a_checkpoint_first_makes_it_small() {
        let server = server();
        let place = tempfile::tempdir().unwrap();
        let run = lycosa(&[
            "backup",
            &path(&place, "b"),
            "--checkpoint",
            "--data-dir",
            folder(&server.data),
            "--json",
        ]);
        assert_eq!(run.code, 0, "{run:?}");
        let names = fs::read_dir(place.path().join("b")).unwrap().map(|entry| entry.unwrap().file_name());
        let snapshots = names.filter(|name| name.to_string_lossy().ends_with(".snap")).count();
        assert_eq!(snapshots, 1, "{run:?}");
    }

    #[test]
    fn nothing_that_exists_is_touched() {
        let server = server();
        let place = tempfile::tempdir().unwrap();
        let (saved, data) = (path(&place, "saved"), folder(&server.data));
        assert_eq!(lycosa(&["backup", &saved, "--data-dir", data]).code, 0);
        for arguments in [["backup", &saved, "--data-dir", data], ["restore", &saved, "--data-dir", data]] {
            let run = lycosa(&arguments);
            assert_eq!(run.code, 1, "{run:?}");
            assert!(run.stderr.contains("it is not empty"), "{run:?}");
        }
        let run = lycosa(&[
            "backup",
            &path(&place, "x"),
            "--data-dir",
            place.path().join("nothing").to_str().unwrap(),
        ]);
        assert_eq!(run.code, 66, "{run:?}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "no half of a backup is left");
        let inside = server.data.path().join("backups/today");
        let run = lycosa(&["backup", inside.to_str().unwrap(), "--data-dir", data]);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stderr.contains("it is inside the data folder"), "{run:?}");
        assert!(!inside.parent().unwrap().exists(), "nothing was made");
    }

    /// Backups of a server that takes writes all the time, beside checkpoints that collect the files under them: each has
    /// every task that was acknowledged before it began.
    #[test]
    fn a_backup_beside_writes_and_checkpoints_has_all_that_was_acknowledged_before() {
        use std::io::{BufRead, BufReader, Write};
        use std::process::Stdio;
        use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

        let server = Server::configured(&["--checkpoint-count", "1"]);
        server.ok(&["tube", "create", "mail"]);
        let data = folder(&server.data);
        let (acknowledged, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut command = server.command(&["put", "mail", "--lines", "--json"]);
        let mut writer = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut lines, replies) = (writer.stdin.take().unwrap(), writer.stdout.take().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    writeln!(lines, "{}", "x".repeat(200)).unwrap();
                }
                drop(lines);
            });
            scope.spawn(|| {
                for _ in BufReader::new(replies).lines().map_while(Result::ok) {
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(lycosa(&["checkpoint", "--data-dir", data]).code, 0);
                }
            });
            let backed_up = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for number in 1..=3_u64 {
                    wait_until("more tasks are acknowledged", || {
                        acknowledged.load(Ordering::SeqCst) > 1000 * number
                    });
                    let before = acknowledged.load(Ordering::SeqCst);
                    let place = tempfile::tempdir().unwrap();
                    let (saved, restored) = (path(&place, "saved"), path(&place, "restored"));
                    let run = lycosa(&["backup", &saved, "--data-dir", data]);
                    assert_eq!(run.code, 0, "{run:?}");
                    let run = lycosa(&["restore", &saved, "--data-dir", &restored]);
                    assert_eq!(run.code, 0, "{run:?}");
                    let again = Server::over(at(&restored), &[]);
                    let stats = again.ok(&["stats", "mail", "--json"]);
                    let stats: Json = serde_json::from_str(stats.lines().next().unwrap()).unwrap();
                    let total = stats["statistics"]["tasks"]["total"].as_u64().unwrap();
                    assert!(total >= before, "{total} of {before} tasks are in backup {number}");
                }
            }));
            is_over.store(true, Ordering::Relaxed);
            if let Err(panic) = backed_up {
                std::panic::resume_unwind(panic);
            }
        });
        assert!(writer.wait().unwrap().success());
    }

    #[test]
    fn a_backup_that_is_not_whole_is_not_restored() {
        let server = server();
        let place = tempfile::tempdir().unwrap();
        let (saved, target) = (path(&place, "saved"), path(&place, "target"));
        assert_eq!(lycosa(&["backup", &saved, "--data-dir", folder(&server.data)]).code, 0);
        let label = path(&place, "saved/backup.json");
        let text = fs::read_to_string(&label).unwrap();
        fs::write(&label, text.replace("\"digest\":\"", "\"digest\":\"0")).unwrap();
        let run = lycosa(&["restore", &saved, "--data-dir", &target]);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stderr.contains("does not hold what was backed up"), "{run:?}");
        assert!(!Path::new(&target).exists(), "{run:?}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "no half of a folder is left");
    }
}
