//! Data folders of earlier states of this repository: each is checked, printed, started on and worked off.
//!
//! `account.json` in a folder has the answers of its writer about it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::addresses::free_address;
use crate::support::{Server, lycosa, wait_until};

const SINGLE: [&str; 4] =
    ["lycosa-0.1-2026-11-22", "lycosa-0.1-2026-11-23", "lycosa-0.1-2026-11-24", "lycosa-0.1-2026-11-28"];
const MEMBERS: [&str; 2] = ["lycosa-0.1-2026-11-24-group", "lycosa-0.1-2026-11-28-group"];

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files").join(name)
}

/// A copy of a folder's data.
fn copy(name: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(corpus(name)).unwrap() {
        let path = entry.unwrap().path();
        let is_data = path.extension().is_some_and(|kind| {
            ["snap", "xlog", "group", "grouplog"].iter().any(|data| kind.to_str() == Some(*data))
        });
        if is_data {
            fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    copy
}

fn account(name: &str) -> Json {
    serde_json::from_slice(&fs::read(corpus(name).join("account.json")).unwrap()).unwrap()
}

/// Lines of an export after a start: a task that a session had taken is ready again, and the temporary tube is empty.
fn settled<'a>(lines: impl IntoIterator<Item = &'a Json>) -> Vec<Json> {
    let settle = |line: &Json| {
        let mut line = line.clone();
        if line["state"] == "t" {
            line["state"] = json!("r");
        }
        line
    };
    let stays = |line: &&Json| line["tube"] != "passing" || line.get("id").is_none();
    lines.into_iter().filter(stays).map(settle).collect()
}

fn exported(server: &Server) -> Vec<Json> {
    let data = server.data.path().to_str().unwrap();
    server
        .ok(&["export", "--data-dir", data])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_check_and_a_listing_agree_with_the_writer() {
    for name in SINGLE.into_iter().chain(MEMBERS) {
        let (data, account) = (copy(name), account(name));
        let run = lycosa(&["check", data.path().to_str().unwrap(), "--json"]);
        assert_eq!(run.code, 0, "{name}: {run:?}");
        let lines = run.lines();
        let spaces: BTreeMap<&str, &Json> = lines
            .iter()
            .filter(|line| line["id"].as_u64() > Some(511))
            .map(|line| (line["space"].as_str().unwrap(), &line["tuples"]))
            .collect();
        assert_eq!(json!(spaces), account["spaces"], "{name}");
        let tubes: Vec<&Json> = lines.iter().filter(|line| line.get("tube").is_some()).collect();
        assert_eq!(json!(tubes), account["tubes"], "{name}");
        let digest = fs::read_to_string(corpus(name).join("digest")).unwrap();
        assert_eq!(lines.last().unwrap()["digest"], json!(digest.trim()), "{name}");
        let files: Vec<&Json> = lines.iter().filter(|line| line.get("file").is_some()).collect();
        assert!(files.len() >= 4, "{name}: {files:?}");
        for file in files {
            let path = data.path().join(file["file"].as_str().unwrap());
            let printed = lycosa(&["cat", path.to_str().unwrap(), "--json"]);
            // The writers were killed.
            let complaints = printed.stderr.lines().filter(|line| !line.contains("no end marker"));
            assert_eq!((printed.code, complaints.collect::<Vec<_>>()), (0, Vec::new()), "{path:?}");
            if let Some(rows) = file["rows"].as_u64().filter(|_| path.extension().unwrap() != "grouplog") {
                assert!(printed.lines().len() as u64 >= rows, "{path:?}: {rows} rows");
            }
        }
    }
}

/// Kicks the buried tasks of the tubes, and works until none is ready; the numbers of delayed ones that are left.
fn work_off(server: &Server, tubes: &[String]) -> Vec<(String, u64)> {
    tubes
        .iter()
        .map(|tube| {
            server.ok(&["kick", tube, "--limit", "100", "--yes"]);
            let count = |state: &str| {
                let said: Json = serde_json::from_str(&server.ok(&["explain", tube, "--json"])).unwrap();
                said["tasks"][state].as_u64().unwrap()
            };
            // A take finds nothing while its sub-queue is at work.
            wait_until("all is worked off", || {
                server.ok(&["work", tube, "--until-empty", "0", "--", "true"]);
                count("ready") + count("taken") + count("buried") == 0
            });
            (tube.clone(), count("delayed"))
        })
        .collect()
}

#[test]
fn a_server_starts_on_each_folder_and_works_its_tasks_off() {
    for name in SINGLE {
        let account = account(name);
        let server = Server::over(copy(name), &[]);
        let data = &server.data.path().to_str().unwrap().to_owned();
        let lease = account["lease"].as_str();
        if let Some(token) = lease {
            // A lease outlives a restart. This one is of 2026-11-28, for less than a day; it may have ended since.
            let released = server.run(&["release", "leased", "--token", token]);
            assert!(released.code == 0 || released.stderr.contains("is stale"), "{name}: {released:?}");
            wait_until("no lease holds a task", || {
                let tasks: Json = serde_json::from_str(&server.ok(&["explain", "leased", "--json"])).unwrap();
                tasks["tasks"]["taken"] == 0
            });
        }
        let wanted = account["export"].as_array().unwrap();
        assert_eq!(exported(&server), settled(wanted), "{name}");

        let mut put = server.command(&["put", "fifo", "from ann", "--user", "ann"]);
        put.env("LYCOSA_PASSWORD", "secret of ann");
        let put = crate::support::finish(put, "");
        assert_eq!(put.code, 0, "{name}: {put:?}");
        server.ok(&["delete", "fifo", put.stdout.split_whitespace().next().unwrap()]);

        if name != SINGLE[0] {
            let listed = server.ok(&["expiration", "list", "--data-dir", data]);
            assert!(listed.contains("letters-end") && listed.contains("letters"), "{name}: {listed}");
            let said = server.run_with(
                &["console", &format!("{data}/admin.sock")],
                "return box.space.letters:count(), box.space.letters.index.to:select('user 3')[1].id\n\
                 return box.sequence.numbers:next(), box.schema.func.exists('tell')\n",
            );
            for part in ["- 5\n- 3\n", "- 3\n- true\n"] {
                assert!(said.stdout.contains(part), "{name}: {part:?} is not in {said:?}");
            }
        }
        if lease.is_some() {
            let paused = server.ok(&["explain", "paused"]);
            assert!(paused.contains("held back"), "{name}: {paused}");
            assert!(server.ok(&["resume", "paused"]).contains("tube paused resumed"), "{name}");
            assert!(server.ok(&["token", "list", "--data-dir", data]).contains("monitor"), "{name}");
            assert!(server.ok(&["audit"]).contains("an old reason"), "{name}");
        }

        let tubes: BTreeMap<String, u64> = account["tubes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tube| (tube["tube"].as_str().unwrap().to_owned(), tube["delayed"].as_u64().unwrap()))
            .collect();
        let names: Vec<String> = tubes.keys().cloned().collect();
        let left: Vec<_> = tubes.iter().map(|(tube, delayed)| (tube.clone(), *delayed)).collect();
        assert_eq!(work_off(&server, &names), left, "{name}");
        server.ok(&["checkpoint", "--data-dir", data]);
        let before = exported(&server);
        let server = server.restart(&[]);
        assert_eq!(exported(&server), before, "{name}: after a restart on what this version wrote");
    }
}

#[test]
fn a_member_of_a_group_goes_on() {
    for name in MEMBERS {
        let data = copy(name);
        let secret = data.path().join("secret");
        fs::write(&secret, "c2VjcmV0IG9mIGFuIG9sZCBncm91cCwgMzIgYnl0ZXM=").unwrap();
        fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let listen = free_address().to_string();
        let flags = ["--cluster-listen", listen.as_str(), "--cluster-secret-file", secret.to_str().unwrap()];
        let server = Server::over(data, &flags);
        server.expect_log("this node leads the group");
        wait_until("it takes writes", || server.run(&["put", "mail", "new", "--sub-queue", "new"]).code == 0);
        server.ok(&["delete", "mail", "--state", "ready", "--sub-queue", "new", "--yes"]);
        let account = account(name);
        assert_eq!(exported(&server), settled(account["export"].as_array().unwrap()), "{name}");
        let names = ["before".to_owned(), "mail".to_owned()];
        assert_eq!(work_off(&server, &names), [("before".to_owned(), 0), ("mail".to_owned(), 1)]);
    }
}
