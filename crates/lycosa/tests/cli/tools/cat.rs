//! `lycosa cat`: rows of files, and what selects them.

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
    let file = lines.iter().find(|line| line["faults"].as_array().is_some_and(|faults| !faults.is_empty()));
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
