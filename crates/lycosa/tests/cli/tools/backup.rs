//! `lycosa backup`, and a folder that comes from one.

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
    let run =
        lycosa(&["backup", &path(&place, "b"), "--checkpoint", "--data-dir", folder(&server.data), "--json"]);
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
    let run =
        lycosa(&["backup", &path(&place, "x"), "--data-dir", place.path().join("nothing").to_str().unwrap()]);
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
