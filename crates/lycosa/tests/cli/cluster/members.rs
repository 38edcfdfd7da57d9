//! Members come and go: removed ones, new ones, the last one, and one that survives all other members.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{Group, lycosa, text};

#[test]
fn an_empty_server_takes_the_place_of_a_removed_member() {
    let mut group = Group::planned(4, "", &[]);
    group.begin_alone();
    let alone = group.order(0, &["remove", "1"]);
    assert!(!alone.status.success() && text(&alone).contains("leave"), "{}", text(&alone));
    for number in [1, 2] {
        group.start(number);
        group.take_in(0, number);
    }
    let leader = group.leader();
    let refused = group.order(leader, &["remove", &(leader + 1).to_string()]);
    assert!(
        !refused.status.success() && text(&refused).contains("transfer the leadership"),
        "{}",
        text(&refused)
    );
    let (gone, stays) = ((leader + 1) % 3, (leader + 2) % 3);
    group.put(gone, "before");
    let removed = group.order(stays, &["remove", &(gone + 1).to_string()]);
    assert!(removed.status.success(), "{}", text(&removed));
    group.until(stays, "two are left", |status| {
        let members = status["members"].as_array().unwrap();
        members.len() == 2 && members.iter().all(|member| member["standing"] == "voter")
    });
    group.until(gone, "it knows", |status| status["role"] == "removed");
    group.stop(gone);
    group.start(3);
    group.take_in(stays, 3);
    let status = group.status(3).unwrap();
    assert_eq!(status["node"], 4, "a member's number is never used again");
    group.kill(group.leader());
    group.put(3, "after");
    let payloads = group.payloads(3);
    assert!(payloads.len() == 2 && payloads[0].contains("before"), "{payloads:?}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story")]
fn the_last_member_is_a_single_server_with_all_data_and_a_tarantool_starts_on_it() {
    let mut group = Group::of(3);
    for number in 0..3 {
        group.put(number, &format!("task {number}"));
    }
    let leader = group.leader();
    let folder = group.members[leader].folder.to_str().unwrap().to_owned();
    let tasks = group.payloads(leader);
    assert_eq!(tasks.len(), 3);
    for number in (0..3).filter(|number| *number != leader) {
        let removed = group.order(leader, &["remove", &(number + 1).to_string()]);
        assert!(removed.status.success(), "{}", text(&removed));
        group.until(leader, "it is gone", |status| {
            let members = status["members"].as_array().unwrap();
            members.iter().all(|member| member["node"] != number + 1 && member["standing"] == "voter")
        });
        group.stop(number);
        let gone = group.members[number].folder.to_str().unwrap();
        let refused = lycosa(&["cluster", "leave", "--data-dir", gone]);
        assert!(!refused.status.success() && text(&refused).contains("was removed"), "{}", text(&refused));
    }
    group.put(leader, "task 3");
    let tasks = group.payloads(leader);
    group.stop(leader);
    let left = lycosa(&["cluster", "leave", "--data-dir", &folder]);
    assert!(left.status.success(), "{}", text(&left));
    let checked = lycosa(&["check", &folder, "--for-tarantool"]);
    assert!(checked.status.success(), "{}", text(&checked));
    let dumped = |folder: &str| {
        let dumped = lycosa(&["check", folder, "--json"]);
        assert!(dumped.status.success(), "{}", text(&dumped));
        let found: serde_json::Value = serde_json::from_str(text(&dumped).lines().last().unwrap()).unwrap();
        found["digest"].clone()
    };
    let digest = dumped(&folder);
    assert!(digest.is_string(), "{digest}");
    if Command::new("tarantool").arg("--version").output().is_ok() {
        let program = format!(
            "box.cfg{{work_dir = '{folder}', log_level = 1, feedback_enabled = false}} \
             local tasks = {{}} \
             for _, task in box.space.mail:pairs() do table.insert(tasks, tostring(task[#task])) end \
             print(#tasks, table.concat(tasks, ';')) os.exit(0)"
        );
        let asked = Command::new("tarantool").args(["-e", &program]).stdin(Stdio::null()).output().unwrap();
        let told = text(&asked);
        assert!(asked.status.success() && told.starts_with("4\t"), "{told}");
        (0..4).for_each(|number| assert!(told.contains(&format!("task {number}")), "{told}"));
        assert_eq!(dumped(&folder), digest, "a start of the original changes nothing");
    }
    // As a single server it has the same tasks.
    let member = &group.members[leader];
    let mut single = Command::new(env!("CARGO_BIN_EXE_lycosa"))
        .args([
            "serve",
            "--data-dir",
            &folder,
            "--listen",
            &member.listen,
            "--http-listen",
            "",
            "--lua",
            "false",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ping = |address: &str| lycosa(&["ping", "--address", address]).status.success();
    let begun = std::time::Instant::now();
    while !ping(&member.listen) {
        assert!(begun.elapsed() < super::LIMIT, "the single server does not answer");
    }
    assert_eq!(group.payloads(leader), tasks);
    single.kill().unwrap();
    single.wait().unwrap();
}

#[test]
fn the_folder_of_a_member_is_checked_with_the_group_s_log() {
    let mut group = Group::of(3);
    (0..3).for_each(|number| _ = group.put(number, &format!("task {number}")));
    let leader = group.leader();
    // The log learns of commits later than the leader: its last ballot may name an earlier entry.
    let committed = group.status(leader).unwrap()["committed"].as_u64().unwrap();
    (0..3).for_each(|number| group.stop(number));
    let checked: Vec<serde_json::Value> = (0..3)
        .map(|number| {
            let checked = lycosa(&["check", group.members[number].folder.to_str().unwrap(), "--json"]);
            assert!(checked.status.success(), "{}", text(&checked));
            serde_json::from_str(text(&checked).lines().last().unwrap()).unwrap()
        })
        .collect();
    for (number, verdict) in checked.iter().enumerate() {
        let found = &verdict["group"];
        let entries = |name: &str| found[name].as_u64().unwrap();
        assert_eq!(entries("node"), number as u64 + 1);
        assert!(entries("last") >= committed && entries("committed") <= entries("last"), "{found}");
    }
    // The tube lies in the log alone, behind the snapshot with which nodes 2 and 3 have joined.
    let folder = group.members[leader].folder.to_str().unwrap().to_owned();
    let shown = lycosa(&["check", &folder]);
    assert!(text(&shown).contains(&format!("node {} of", leader + 1)), "{}", text(&shown));
    assert!(text(&shown).contains("mail"), "{}", text(&shown));
    // Damage of the log is found.
    let logs = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let logs = logs.filter(|path| path.extension().is_some_and(|end| end == "grouplog"));
    // The file with the most entries: behind them there may be bytes that were never written.
    let written = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap();
        (bytes.iter().rposition(|byte| *byte != 0), path, bytes)
    };
    let (last, log, mut bytes) = logs.map(written).max().unwrap();
    bytes[last.unwrap() / 2] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let damaged = lycosa(&["check", &folder]);
    assert!(!damaged.status.success() && text(&damaged).contains(".grouplog"), "{}", text(&damaged));
}

#[test]
fn one_member_goes_on_after_the_others_are_lost_for_good() {
    let mut group = Group::of(3);
    for number in 0..3 {
        group.put(number, &format!("task {number}"));
    }
    let leader = group.leader();
    let kept = group.members[leader].folder.to_str().unwrap().to_owned();
    (0..3).for_each(|number| group.kill(number));
    let refused = lycosa(&["cluster", "recover", "--data-dir", &kept]);
    assert!(!refused.status.success() && text(&refused).contains("--force"), "{}", text(&refused));
    let any = ["cluster", "recover", "--force", "--data-dir", &kept, "--member-address", "0.0.0.0:3311"];
    let refused = lycosa(&any);
    assert!(!refused.status.success() && text(&refused).contains("every address"), "{}", text(&refused));
    let address = group.members[leader].address.clone();
    let recover =
        ["cluster", "recover", "--force", "--data-dir", &kept, "--member-address", &address, "--json"];
    let recovered = lycosa(&recover);
    assert!(recovered.status.success(), "{}", text(&recovered));
    let answer: serde_json::Value = serde_json::from_slice(&recovered.stdout).unwrap();
    assert_ne!(answer["group"], answer["former_group"]);
    group.start(leader);
    group.until(leader, "it leads", |status| status["leads"] == true && status["node"] == 1);
    assert_eq!(group.payloads(leader).len(), 3, "what it had is there");
    assert_eq!(group.put(leader, "task 3"), 1);
    // A member of the old group is none of the new one's.
    let old = (leader + 1) % 3;
    let other = group.members[old].address.clone();
    group.start(old);
    assert!(group.order(leader, &["add", &other]).status.success());
    group.until(leader, "the stranger is not connected", |status| {
        let mut members = status["members"].as_array().unwrap().iter();
        members.any(|member| member["address"] == other.as_str() && member["is_connected"] == false)
    });
    assert_eq!(group.payloads(leader).len(), 4);
}
