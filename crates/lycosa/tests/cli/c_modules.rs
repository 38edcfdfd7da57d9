//! Modules in C: the binary exports the API that they call, and `require` finds their files.

use std::path::Path;
use std::process::{Command, Stdio};

fn programs() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Compiles a file in C of the programs into a folder.
fn compile(source: &str, folder: &Path) {
    let name = source.replace(".c", ".so");
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(folder.join(name));
    let output =
        command.arg(programs().join(source)).output().expect("a compiler of C, which the build needs too");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_module_in_c_runs_as_in_tarantool() {
    let run = |program: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        compile("c_module.c", folder.path());
        let mut command = Command::new(program);
        command.arg(programs().join("c_module.lua")).current_dir(folder.path()).stdin(Stdio::null());
        let output = command.output().expect("the program runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program}: {}\n{errors}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let ours = run(env!("CARGO_BIN_EXE_lycosa"));
    assert!(ours.contains("1;4;9;16;\n"), "{ours}");
    if Command::new("tarantool").arg("--version").output().is_ok() {
        let theirs = run("tarantool");
        let first = ours.lines().zip(theirs.lines()).find(|(our, their)| our != their);
        assert!(first.is_none() && ours.lines().count() == theirs.lines().count(), "{first:#?}\n{ours}");
    }
}
