//! Every workload, small, against the built server, and every peer that is installed: the benchmark cannot rot, and its
//! account of the tasks checks the server once more. Nothing is said about speed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

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

/// What a run of the benchmark printed, and whether it succeeded.
fn bench(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(BENCH).args(arguments).output().expect("the benchmark starts");
    let text = |bytes| String::from_utf8(bytes).expect("it prints UTF-8");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// Runs a small comparison and gives its report.
fn compare(arguments: &[&str]) -> serde_json::Value {
    let server = server();
    let common =
        ["compare", "--small", "--rounds", "1", "--json", "--server", server.to_str().expect("UTF-8")];
    let (is_good, printed, said) = bench(&[&common[..], arguments].concat());
    assert!(is_good, "{said}\n{printed}");
    serde_json::from_str(&printed).expect("the report is JSON")
}

fn is_installed(program: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

#[test]
fn every_workload() {
    let (is_good, list, said) = bench(&["list"]);
    assert!(is_good, "{said}");
    let mut arguments = vec!["--contender", "lycosa:fifottl:write"];
    for name in list.lines().filter_map(|line| line.split_whitespace().next()) {
        arguments.extend(["--workload", name]);
    }
    let report = compare(&arguments);
    let groups = report["groups"].as_array().unwrap();
    assert_eq!(groups.len(), list.lines().count());
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
    let chart = fs::read_to_string(chart).unwrap();
    for contender in contenders {
        let name = contender["contender"].as_str().unwrap().split(':').next().unwrap();
        assert!(chart.contains(name), "{name} is not in the chart");
    }
    assert!(report["skipped"]["tutorial"].as_str().unwrap().contains("--tutorial"), "{report}");
}

#[test]
fn the_report_is_written_between_its_marks() {
    let folder = tempfile::tempdir().unwrap();
    let (docs, server) = (folder.path().to_str().unwrap(), server());
    let report = ["report", "--small", "--rounds", "1", "--docs", docs, "--server", server.to_str().unwrap()];
    let document = folder.path().join("performance.md");
    fs::write(&document, "# Nothing\n").unwrap();
    let (is_good, _, said) = bench(&report);
    assert!(!is_good && said.contains("measured: begin"), "{said}");

    fs::write(&document, "# Before\n\n<!-- measured: begin -->\n<!-- measured: end -->\n\nAfter\n").unwrap();
    let (is_good, _, said) = bench(&report);
    assert!(is_good, "{said}");
    let text = fs::read_to_string(&document).unwrap();
    assert!(text.starts_with("# Before\n") && text.ends_with("\nAfter\n"), "{text}");
    for expected in ["lycosa:fifottl:fsync", "## As work grows", "start-snapshot", "performance.svg"] {
        assert!(text.contains(expected), "{expected} is missing in {text}");
    }
    assert!(fs::read_to_string(folder.path().join("performance.svg")).unwrap().contains("</svg>"));
}

/// A queue in the tutorial's manner, in an article.
const ARTICLE: &str = "Final files: **queue.lua:**
```
local space = box.schema.create_space('queue', {if_not_exists = true})
space:format({{name = 'id', type = 'number'}, {name = 'status', type = 'string'}, {name = 'data', type = '*'}})
space:create_index('primary', {parts = {1, 'number'}, if_not_exists = true})
space:create_index('status', {parts = {2, 'string', 1, 'number'}, if_not_exists = true})
local last = 0ULL
local queue = {}
function queue.put(data)
    last = last + 1
    return space:insert{last, 'R', data}:tomap{names_only = true}
end
function queue.take(timeout)
    local found = space.index.status:pairs({'R'}):nth(1)
    return found and space:update({found.id}, {{'=', 2, 'T'}}):tomap{names_only = true}
end
function queue.ack(id)
    return space:delete{id}:tomap{names_only = true}
end
function queue.stats()
    return {ready = space.index.status:count{'R'}, waiting = 0}
end
return queue
```
";

#[test]
fn the_tutorial_is_taken_from_its_text() {
    if !is_installed("tarantool") {
        eprintln!("tarantool is not installed: nothing is tested");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("article.txt"), ARTICLE).unwrap();
    let tutorial = folder.path().to_str().unwrap();
    let report = compare(&["-w", "8x32", "-w", "drain", "-c", "tutorial:write", "--tutorial", tutorial]);
    assert_eq!(report["groups"][1]["contenders"][0]["contender"], "tutorial:write");
}

/// The server's binary, away from any settings.
fn lycosa() -> Command {
    let mut command = Command::new(server());
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LYCOSA_")) {
        command.env_remove(name);
    }
    command
}

/// A running server with an empty folder, which is killed in the end.
struct Running {
    process: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = lycosa();
        command.args(["serve", "--wal-mode", "write", "--listen", &address, "--data-dir"]).arg(folder.path());
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while TcpStream::connect(&address).is_err() {
            assert!(process.try_wait().unwrap().is_none(), "the server ended");
            thread::sleep(Duration::from_millis(20));
        }
        Self { process, address, _folder: folder }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_running_server_is_left_as_it_was() {
    let running = Running::start();
    let run = ["run", "--address", &running.address, "--cycles", "500", "--warmup", "0", "--json"];
    for _ in 0..2 {
        // The second run would find the tube of the first one.
        let (is_good, printed, said) = bench(&run);
        assert!(is_good, "{said}");
        let json = serde_json::from_str::<serde_json::Value>(&printed).unwrap();
        assert_eq!(json["rounds"], 500);
    }
    let lycosa = |arguments: &[&str]| {
        let output = lycosa().args(arguments).args(["--address", &running.address]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(!lycosa(&["tube", "list"]).contains("lycosa_bench"));

    lycosa(&["tube", "create", "lycosa_bench"]);
    lycosa(&["put", "lycosa_bench", "mine"]);
    let (is_good, _, said) = bench(&run);
    assert!(!is_good && said.contains("has a tube `lycosa_bench` already"), "{said}");
    assert!(lycosa(&["take", "lycosa_bench", "--ack"]).contains("mine"));

    let (is_good, _, said) = bench(&["run", "redis-list", "--address", &running.address]);
    assert!(!is_good && said.contains("--address is for servers with tubes"), "{said}");
}
