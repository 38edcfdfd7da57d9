//! `lycosa bench`: the binary measures itself, and says as every command when no server answers.

use std::process::{Command, Output};

use serde_json::Value as Json;

use crate::addresses::free_address;

fn lycosa(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lycosa"));
    command.args(arguments).current_dir(folder.path());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LYCOSA_")) {
        command.env_remove(name);
    }
    command.output().unwrap()
}

#[test]
fn the_binary_measures_itself() {
    let output = lycosa(&["bench", "lycosa:utube:write", "--cycles", "300", "--warmup", "0", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = serde_json::from_slice::<Json>(&output.stdout).unwrap();
    assert_eq!((&json["rounds"], &json["contender"]), (&300.into(), &"lycosa:utube:write".into()));
}

#[test]
fn a_run_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("course.svg");
    let length = ["--seconds", "0.5", "--warmup", "0", "--svg", file.to_str().unwrap()];
    let output = lycosa(&[&["bench", "lycosa:fifo:write"][..], &length].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["\nRounds a second, by 100 ms\n", "\nrounds ", "\nLatency by percentile\n", "\nack ", " p99"]
    {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
    let drawing = std::fs::read_to_string(file).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.contains(">Latency by percentile<"), "{drawing}");
    assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
}

#[test]
fn tuples_expire_while_tasks_go_through_a_tube() {
    for flags in [&["--spread", "1"][..], &["--scan", "--scan-time", "0"][..]] {
        let short = [
            "--tuples",
            "3000",
            "--warmup",
            "0",
            "--cycles",
            "300",
            "--machine",
            "0.01",
            "--json",
            "-c",
            "lycosa:fifo:write",
        ];
        let output = lycosa(&[&["bench", "expire"][..], &short, flags].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json = serde_json::from_slice::<Json>(&output.stdout).unwrap();
        assert_eq!((&json["tuples"], &json["contender"]), (&3000.into(), &"lycosa:fifo:write".into()));
        assert!(json["scanned"].as_u64().unwrap() >= 3000, "{json}");
        assert!(json["with"]["p99_us"]["take"].as_f64().unwrap() > 0.0, "{json}");
        let slices = &json["slices"];
        assert!(slices["count"].as_u64() >= Some(3000 / 512) && slices["over_1ms"].is_u64(), "{json}");
        assert!(slices["p9999_us"].as_u64() <= json["longest_hold_cpu_us"].as_u64(), "{json}");
        assert!(slices["longest"]["expired"].as_u64() <= Some(512), "{json}");
        assert!(slices["longest_turn"]["part"].is_string(), "{json}");
        assert!(json["machine"]["over_1ms"].is_u64(), "{json}");
    }
}

#[test]
fn programs_are_measured_beside_a_tarantool() {
    if Command::new("tarantool").arg("--version").output().is_err() {
        return;
    }
    let output = lycosa(&["bench", "programs", "--rounds", "1", "--scale", "0.01", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Vec<Json> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(found.len(), 11);
    for found in &found {
        let rounds = |name: &str| found[name].as_array().unwrap().len();
        assert_eq!((rounds("lycosa_us"), rounds("tarantool_us")), (1, 1), "{found}");
    }
    let wrong = lycosa(&["bench", "programs", "--case", "nosuch"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", String::from_utf8_lossy(&wrong.stderr));
}

#[test]
fn the_longest_turns_are_told_case_by_case() {
    let output = lycosa(&["bench", "turns", "--scale", "0.0004", "--machine", "0.01", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Vec<Json> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let cases: Vec<&str> = found.iter().map(|found| found["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["drop", "kick", "disconnect", "watch", "deadlines"]);
    for found in &found {
        let sources: Vec<&str> =
            found["turns"].as_array().unwrap().iter().map(|turn| turn["source"].as_str().unwrap()).collect();
        for part in ["queue", "disconnects", "journal", "replies"] {
            assert!(sources.contains(&part), "{part}: {found}");
        }
        assert!(found["machine"]["longest_us"].as_u64().is_some(), "{found}");
        assert!(found["longest_us"].as_u64() >= found["longest_cpu_us"].as_u64(), "{found}");
    }
    let wrong = lycosa(&["bench", "turns", "--scale", "0"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", String::from_utf8_lossy(&wrong.stderr));
}

#[test]
fn a_replica_and_its_master_are_measured() {
    let short = ["--tasks", "2000", "--warmup", "0", "--cycles", "300", "--connections", "2", "--depth", "4"];
    let output = lycosa(&[&["bench", "replicas", "--json"][..], &short].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Vec<Json> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let parts: Vec<&str> = found.iter().map(|found| found["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["throughput", "catch-up", "switch", "join", "frozen"]);
    let [throughput, catch_up, switch, join, frozen] = found.try_into().unwrap();
    let runs: Vec<&str> =
        throughput["runs"].as_array().unwrap().iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(runs, ["alone", "a replica", "a replica before each reply"]);
    assert!(
        catch_up["rows"].is_u64() && catch_up["written_per_second"].as_f64().unwrap() > 0.0,
        "{catch_up}"
    );
    assert_eq!((&switch["tasks"], &join["tasks"]), (&2000.into(), &2000.into()));
    assert!(switch["stopped_ms"].as_f64().unwrap() > 0.0, "{switch}");
    assert!(frozen["p99_ratio"].as_f64().unwrap() > 0.0, "{frozen}");
    for (contender, reason) in [("lycosa:none", "no journal"), ("redis-list", "no replicas")] {
        let wrong = lycosa(&["bench", "replicas", "-c", contender]);
        let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
        assert!(wrong.status.code() == Some(1) && said.contains(reason), "{said}");
    }
}

#[test]
fn nobody_to_measure_is_no_connection() {
    let address = free_address().to_string();
    let output = lycosa(&["bench", "--address", &address]);
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_user_without_a_password_is_wrong() {
    let output = lycosa(&["bench", "--address", "127.0.0.1:1", "--user", "ann"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("needs a password"), "{said}");
}
