//! `lycosa check`: what it counts, what it finds damaged, and the digest that it tells.

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
