//! The compiler of the suite's builds, as cargo calls it (`RUSTC_WORKSPACE_WRAPPER`): Clippy's for all code, once, and no
//! optimisation of tests.
//!
//! Cargo compiles a library or program in a folder `src` twice, as itself and with its tests. The tests' build has all code of the
//! other one, so Clippy's compiler has the tests' build alone. The plain compiler also inlines functions before it generates code,
//! which Clippy's does not: `store` takes 44 s of processors instead of 50.
//!
//! Invariant: no code of the workspace is left out of its tests' build by `cfg`. `tidy` refuses it, as Clippy would not see such code.
//!
//! The profile `checked` optimises the crates that worlds run through. Cargo's profiles know crates, not targets, so the tests of
//! these crates would be optimised too: four times as long to compile (118 s of processors instead of 29 for `tuple`, `store` and
//! `queue`), for tests that run 12 s longer. Tests in a folder `tests` are linked with the optimised crate; tests beside the code are
//! compiled with the crate's code, which is not optimised then. Examples and benchmarks are only compiled here, so they are not
//! optimised either, but for the example whose instructions are counted.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::LazyLock;

use crate::command::Program;

/// Names Clippy's compiler; a process with this variable is a compiler.
const DRIVER: &str = "XTASK_DRIVER";

/// The variables that make a cargo compile with this.
pub(crate) fn variables() -> [(&'static str, OsString); 2] {
    static VARIABLES: LazyLock<[OsString; 2]> = LazyLock::new(|| {
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let sysroot = Program::new(rustc).arguments(["--print", "sysroot"]).output().unwrap_or_default();
        let beside = Path::new(sysroot.trim()).join("bin/clippy-driver");
        // The name alone finds one where the compiler's folder has none, as with packages of a distribution.
        let driver = if beside.exists() { beside.into() } else { "clippy-driver".into() };
        match env::current_exe() {
            Ok(wrapper) => [wrapper.into(), driver],
            // Slower to compile, and the same tests.
            Err(_) => [driver.clone(), driver],
        }
    });
    let [wrapper, driver] = VARIABLES.clone();
    [("RUSTC_WORKSPACE_WRAPPER", wrapper), (DRIVER, driver)]
}

/// The example whose instructions the step `count` compares.
const COUNTED: &str = "examples/cycles.rs";

/// Compiles, if cargo has called this process for that.
pub(crate) fn compile() -> Option<ExitCode> {
    let driver = env::var_os(DRIVER)?;
    let command = command(driver, env::args_os().skip(1).collect());
    let [compiler, arguments @ ..] = command.as_slice() else { return Some(ExitCode::FAILURE) };
    let error = Command::new(compiler).args(arguments).exec();
    eprintln!("cannot run {}: {error}", compiler.display());
    Some(ExitCode::FAILURE)
}

/// The compiler and its arguments for what cargo has asked for: the plain compiler and the arguments of that one.
fn command(driver: OsString, asked: Vec<OsString>) -> Vec<OsString> {
    if is_test(&asked) || !asked.iter().any(|argument| is_in_src(argument)) {
        return [driver].into_iter().chain(unoptimised(asked)).collect();
    }
    asked
}

fn is_test(arguments: &[OsString]) -> bool {
    arguments.iter().any(|argument| argument == OsStr::new("--test"))
}

/// Whether an argument names code of a library or program, which is compiled with its tests too.
fn is_in_src(argument: &OsStr) -> bool {
    let path = Path::new(argument);
    path.extension().is_some_and(|kind| kind == "rs") && path.iter().any(|folder| folder == "src")
}

/// Whether an argument names the code of an example or benchmark that the tests do not run.
fn is_only_compiled(argument: &OsStr) -> bool {
    let path = Path::new(argument);
    let is_source = path.extension().is_some_and(|kind| kind == "rs");
    is_source
        && path.iter().any(|folder| folder == "examples" || folder == "benches")
        && !path.ends_with(COUNTED)
}

/// The arguments of the compiler, without optimisation if a test is compiled or a program that nothing runs. The last level counts.
fn unoptimised(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if is_test(&arguments) || arguments.iter().any(|argument| is_only_compiled(argument)) {
        arguments.extend(["-C", "opt-level=0"].map(OsString::from));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clippy_has_all_code_once() {
        let chosen = |arguments: &[&str]| {
            let asked = ["rustc", "--crate-name", "queue"].iter().chain(arguments).map(OsString::from);
            let command = command("clippy-driver".into(), asked.collect());
            command.into_iter().next()
        };
        let clippy = Some(OsString::from("clippy-driver"));
        assert_eq!(chosen(&["crates/queue/src/lib.rs", "--crate-type", "lib"]), Some("rustc".into()));
        assert_eq!(chosen(&["crates/queue/src/lib.rs", "--test"]), clippy);
        assert_eq!(chosen(&["crates/queue/tests/queue/main.rs", "--test"]), clippy);
        assert_eq!(chosen(&["crates/queue/benches/cycle.rs", "--crate-type", "bin"]), clippy);
        assert_eq!(chosen(&["crates/lua/build.rs", "--crate-type", "bin"]), clippy);
    }

    #[test]
    fn tests_and_programs_that_nothing_runs_are_not_optimised() {
        let of = |arguments: &[&str]| unoptimised(arguments.iter().map(OsString::from).collect());
        let library = ["rustc", "--crate-name", "queue", "-C", "opt-level=2"];
        assert_eq!(of(&library), library.map(OsString::from));
        let counted = ["rustc", "crates/instance/examples/cycles.rs", "-C", "opt-level=2"];
        assert_eq!(of(&counted), counted.map(OsString::from));
        let test = ["rustc", "--crate-name", "queue", "-C", "opt-level=2", "--test"];
        let example = ["rustc", "crates/engine/examples/group_cycles.rs", "-C", "opt-level=2"];
        for unoptimised in [&test[..], &example] {
            let expected = [unoptimised, &["-C", "opt-level=0"]].concat();
            assert_eq!(of(unoptimised), expected.into_iter().map(OsString::from).collect::<Vec<_>>());
        }
    }
}
