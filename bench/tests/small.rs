//! Every workload, small, against the built server, and every peer that is installed: the benchmark cannot rot, and its
//! account of the tasks checks the server once more. Nothing is said about speed.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const BENCH: &str = env!("CARGO_BIN_EXE_lycosa-bench");

/// The server's binary: the one in `LYCOSA_BIN`, or the one beside our own, which is built if it is not there.
fn server() -> PathBuf {
    if let Some(path) = env::var_os("LYCOSA_BIN") {
        return path.into();
    }
    let server = PathBuf::from(BENCH).with_file_name("lycosa");
    if !server.exists() {
        let status =
            Command::new(env!("CARGO")).args(["build", "--package", "lycosa", "--bin", "lycosa"]).status();
        assert!(status.expect("cargo runs").success(), "the server cannot be built");
    }
    server
}

/// Runs a small comparison and gives its report.
fn compare(arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(BENCH)
        .args(["compare", "--small", "--rounds", "1", "--json"])
        .args(arguments)
        .arg("--server")
        .arg(server())
        .output()
        .expect("the benchmark starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

#[test]
fn every_workload() {
    let list = Command::new(BENCH).arg("list").output().expect("the benchmark starts").stdout;
    let list = String::from_utf8(list).expect("names are text");
    let mut arguments = vec!["--contender", "lycosa:fifottl:write"];
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    // The server writes no snapshots.
    for name in names.filter(|&name| name != "start-snapshot") {
        arguments.extend(["--workload", name]);
    }
    let report = compare(&arguments);
    let groups = report["groups"].as_array().unwrap();
    assert!(groups.len() > 20);
    for group in groups {
        let run = &group["contenders"][0]["runs"][0];
        assert!(run["rounds"].as_u64().unwrap() > 0, "{group}");
    }
}

#[test]
fn everybody_who_is_installed() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("chart.svg");
    let report = compare(&["--workload", "8x32", "--svg", chart.to_str().unwrap()]);
    let contenders = report["groups"][0]["contenders"].as_array().unwrap();
    let chart = std::fs::read_to_string(chart).unwrap();
    for contender in contenders {
        let name = contender["contender"].as_str().unwrap();
        assert!(chart.contains(&format!(">{name}<")), "{name} is not in the chart");
    }
}
