//! Random programs: statements, calls of modules and folders beside Tarantool, indexes beside a plain walk. A failure names the
//! seed that repeats it.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::addresses::free_address;
use crate::programs::{has_tarantool, lycosa, programs, run};

/// Random statements from a few seeds. With `LYCOSA_TEST_ALL=1` sixty further seeds follow; the clock gives the first of them, and a
/// failure prints its seed. A seed with which Tarantool itself crashes says nothing.
#[test]
fn random_statements_do_what_they_do_there() {
    use std::time::{SystemTime, UNIX_EPOCH};

    const STATEMENTS: &str = "2000";
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs() % 1_000_000);
    let more = if std::env::var_os("LYCOSA_TEST_ALL").is_some() { 60 } else { 0 };
    for seed in (20..24).chain(fresh..fresh + more) {
        let script = programs().join("differential.lua");
        let arguments = [&seed.to_string(), STATEMENTS];
        let ours = run(lycosa(), &script, &arguments.map(AsRef::as_ref));
        assert_eq!(ours.status.code(), Some(0), "seed {seed}: {}", String::from_utf8_lossy(&ours.stderr));
        if !has_tarantool() {
            continue;
        }
        let theirs = run("tarantool", &script, &arguments.map(AsRef::as_ref));
        if theirs.status.code() != Some(0) {
            continue;
        }
        let (ours, theirs) = (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&theirs.stdout));
        assert_eq!(ours.lines().count(), theirs.lines().count(), "seed {seed}");
        let first = ours.lines().zip(theirs.lines()).find(|(our, their)| our != their);
        assert!(first.is_none(), "seed {seed}: {first:#?}");
    }
}

/// Random queries over several spaces from a few seeds, with `LYCOSA_TEST_ALL=1` from twenty further ones. In very few of them Tarantool
/// 2.6 itself loses rows of a LEFT JOIN, so the first seeds are such on which both agree.
#[test]
fn random_joins_have_their_rows() {
    const QUERIES: &str = "500";
    let more = if std::env::var_os("LYCOSA_TEST_ALL").is_some() { 20 } else { 0 };
    let script = programs().join("joins.lua");
    for seed in (2..5).chain(100..100 + more) {
        let arguments = [&seed.to_string(), QUERIES];
        let ours = run(lycosa(), &script, &arguments.map(AsRef::as_ref));
        assert_eq!(ours.status.code(), Some(0), "seed {seed}: {}", String::from_utf8_lossy(&ours.stderr));
        if !has_tarantool() {
            continue;
        }
        let theirs = run("tarantool", &script, &arguments.map(AsRef::as_ref));
        let (ours, theirs) = (lines(&ours), lines(&theirs));
        assert_eq!(ours.len(), theirs.len(), "seed {seed}");
        let different = ours.iter().zip(&theirs).filter(|(our, their)| our != their).count();
        let first = ours.iter().zip(&theirs).find(|(our, their)| our != their);
        let allowed = if seed < 100 { 0 } else { ours.len() / 100 };
        assert!(different <= allowed, "seed {seed}: {different} differences, the first is {first:#?}");
    }
}

/// Random calls of `fio`, `socket` and `popen`, from a few seeds of each. With `LYCOSA_TEST_ALL=1` ten times as many follow, from seeds
/// that the clock gives.
#[test]
fn random_calls_do_what_they_do_there() {
    use std::time::{SystemTime, UNIX_EPOCH};

    const CALLS: &str = "400";
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs() % 1_000_000);
    let more = if std::env::var_os("LYCOSA_TEST_ALL").is_some() { 30 } else { 0 };
    let script = programs().join("calls.lua");
    for seed in (1..4).chain(fresh..fresh + more) {
        for module in ["fio", "socket", "popen"] {
            let arguments = [module, &seed.to_string(), CALLS];
            let ours = run(lycosa(), &script, &arguments);
            let errors = String::from_utf8_lossy(&ours.stderr);
            assert_eq!(ours.status.code(), Some(0), "{module}, seed {seed}: {errors}");
            if !has_tarantool() {
                continue;
            }
            let theirs = run("tarantool", &script, &arguments);
            let (ours, theirs) = (lines(&ours), lines(&theirs));
            let first = ours.iter().zip(&theirs).position(|(our, their)| our != their);
            if let Some(place) = first {
                let call = &ours[place.saturating_sub(1)];
                panic!(
                    "{module}, seed {seed}: {call}\n  ours      {}\n  tarantool {}",
                    ours[place], theirs[place]
                );
            }
            assert_eq!(ours.len(), theirs.len(), "{module}, seed {seed}");
        }
    }
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Folders of random content, written by one server and opened by the other, both ways: the same spaces, indexes, rows,
/// sequences, users and functions. `LYCOSA_TEST_SEED` names another first seed.
#[test]
fn folders_of_each_server_open_in_the_other() {
    if !has_tarantool() {
        return;
    }
    let first: u32 = std::env::var("LYCOSA_TEST_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let script = programs().join("folders.lua");
    for (seed, writer, other) in (first..)
        .step_by(2)
        .take(3)
        .flat_map(|seed| [(seed, lycosa(), "tarantool"), (seed + 1, "tarantool", lycosa())])
        // Drops a space whose sequence was moved by inserts alone.
        .chain([(872, lycosa(), "tarantool")])
    {
        let folder = tempfile::tempdir().expect("a folder");
        let run = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command
                .arg(&script)
                .args(arguments)
                .current_dir(folder.path())
                .stdin(std::process::Stdio::null());
            let output = command.output().expect("the program runs");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{program} {arguments:?}, seed {seed}: {errors}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        run(writer, &["write", &seed.to_string()]);
        let (own, others) = (run(writer, &["read"]), run(other, &["read"]));
        assert!(own.contains("own_words"), "seed {seed}: {own}");
        for (number, (own, other)) in own.lines().zip(others.lines()).enumerate() {
            assert_eq!(own, other, "seed {seed}, written by {writer}, line {}", number + 1);
        }
        assert_eq!(own.lines().count(), others.lines().count(), "seed {seed}, written by {writer}");
    }
}

/// Programs of `random.lua`, the same each time. `LYCOSA_TEST_SEED` names another one.
#[test]
fn random_programs_never_crash_the_process() {
    use std::os::unix::process::ExitStatusExt;
    const STEPS: &str = "100";
    const LIMIT: Duration = Duration::from_secs(60);
    let wanted = std::env::var("LYCOSA_TEST_SEED").ok();
    let seeds = match wanted {
        Some(seed) => vec![seed],
        None => [1, 2, 3, 5, 8, 201].iter().map(ToString::to_string).collect(),
    };
    for seed in seeds {
        let folder = tempfile::tempdir().expect("a folder");
        let errors = std::fs::File::create(folder.path().join("errors")).expect("a file");
        let mut child = Command::new(lycosa())
            .arg(programs().join("random.lua"))
            .args([seed.as_str(), STEPS])
            .current_dir(folder.path())
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(errors)
            .spawn()
            .expect("the program runs");
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("it is a child") {
                break Some(status);
            }
            if began.elapsed() > LIMIT {
                // A loop without end is no crash: such a program has no time limit.
                child.kill().expect("it is a child");
                child.wait().expect("it is a child");
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let said = std::fs::read(folder.path().join("errors")).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let signal = status.and_then(|status| status.signal());
        assert!(signal.is_none(), "LYCOSA_TEST_SEED={seed}: signal {signal:?}\n{said}");
        assert!(!said.contains("panicked"), "LYCOSA_TEST_SEED={seed}:\n{said}");
    }
}

/// Runs `kinds_walk.lua` in the folder until it kills itself; what it says of its end, if what it found was as expected.
fn walk(folder: &Path, arguments: &[&str], expected: Option<&str>) -> String {
    use std::os::unix::process::ExitStatusExt;

    let mut command = Command::new(lycosa());
    command.arg(programs().join("kinds_walk.lua")).args(arguments);
    let output = command.current_dir(folder).stdin(std::process::Stdio::null()).output();
    let output = output.expect("the program runs");
    let (said, errors) = (lines(&output), String::from_utf8_lossy(&output.stderr).into_owned());
    assert_eq!(output.status.signal(), Some(9), "{arguments:?}: {said:?}\n{errors}");
    let [found, left] = said.as_slice() else { panic!("{arguments:?}: {said:?}\n{errors}") };
    if let Some(expected) = expected {
        assert_eq!(found.strip_prefix("found "), Some(expected), "{arguments:?}");
    }
    left.strip_prefix("left ").expect("its last line").to_owned()
}

/// Multikey, functional, BITSET and RTREE indexes find what a walk over all tuples finds, each time their server was killed.
#[test]
fn indexes_of_every_kind_are_a_plain_walk_behind_each_kill() {
    for seed in [1_u32, 100, 200] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut left = None;
        for round in 0..4 {
            let seed = (seed + round).to_string();
            left = Some(walk(folder.path(), &["work", &seed, "600"], left.as_deref()));
        }
    }
}

/// The same in a replica that joins in the middle, and behind a start from its own folder.
#[test]
fn indexes_of_every_kind_are_a_plain_walk_in_a_replica() {
    for seed in ["7", "8"] {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_address().port().to_string();
        walk(folder.path(), &["lead", seed, "1000", &port], None);
    }
}

/// The same while the memory is full, which refuses changes, and behind a kill.
#[test]
fn indexes_of_every_kind_are_a_plain_walk_at_the_memory_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let left = walk(folder.path(), &["full", "3", "100"], None);
    walk(folder.path(), &["full", "4", "50"], Some(&left));
}
