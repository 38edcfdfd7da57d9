//! Lua programs under the built binary: what they print is what Tarantool prints; the tutorial's queue works.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn lycosa() -> &'static str {
    env!("CARGO_BIN_EXE_lycosa")
}

fn run(program: &str, script: &Path, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(program);
    command.arg(script).args(arguments).current_dir(folder.path()).stdin(std::process::Stdio::null());
    command.output().expect("the program runs")
}

fn has_tarantool() -> bool {
    Command::new("tarantool").arg("--version").output().is_ok()
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// The same program under both prints the same and ends the same.
fn compare(name: &str, arguments: &[&str]) {
    let script = programs().join(name);
    let ours = run(lycosa(), &script, arguments);
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ours.stderr).into_owned();
    assert!(ours.status.code().is_some(), "{errors}");
    if !has_tarantool() {
        return;
    }
    let theirs = run("tarantool", &script, arguments);
    let (ours_text, theirs_text) = (text(&ours), text(&theirs));
    let mut differences = Vec::new();
    for (number, (our, their)) in ours_text.lines().zip(theirs_text.lines()).enumerate() {
        if our != their {
            differences.push(format!("line {}\n  ours      {our}\n  tarantool {their}", number + 1));
        }
    }
    assert!(differences.is_empty(), "{}\n{errors}", differences.join("\n"));
    assert_eq!(ours_text.lines().count(), theirs_text.lines().count(), "{ours_text}\n{errors}");
    assert_eq!(ours.status.code(), theirs.status.code(), "{errors}");
}

#[test]
fn a_program_sees_the_box_that_it_knows() {
    compare("box.lua", &["one", "two"]);
}
