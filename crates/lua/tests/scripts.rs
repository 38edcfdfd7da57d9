//! Runs every script of `tests/scripts` in a runtime of its own process.
//!
//! A script passes when it ends without an error. One whose first line is `-- oracle` also runs under `tarantool`, if that
//! is installed, and both must print the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libtest_mimic::{Arguments, Failed, Trial};
use lycosa_lua::{Limits, Runtime};

/// Set for the child process that is to run a script.
const VARIABLE: &str = "LYCOSA_LUA_SCRIPT";

fn main() -> ExitCode {
    if let Some(script) = std::env::var_os(VARIABLE) {
        return run_script(Path::new(&script));
    }
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut scripts: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the folder of scripts is part of the crate")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "lua"))
        .collect();
    scripts.sort();
    let has_oracle = Command::new("tarantool").arg("--version").output().is_ok();
    let trials = scripts.into_iter().map(|script| {
        let name = script.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Trial::test(name, move || check(&script, has_oracle))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn check(script: &Path, has_oracle: bool) -> Result<(), Failed> {
    let ours = output(Command::new(std::env::current_exe()?).env(VARIABLE, script))?;
    let source = fs::read_to_string(script)?;
    if has_oracle && source.starts_with("-- oracle") {
        let theirs = output(Command::new("tarantool").arg(script))?;
        if ours.stdout != theirs.stdout {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            return Err(format!("ours:\n{}\ntarantool:\n{}", text(&ours.stdout), text(&theirs.stdout)).into());
        }
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<Output, Failed> {
    let folder = tempfile::tempdir()?;
    let output = command.current_dir(folder.path()).output()?;
    if output.status.success() {
        return Ok(output);
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{command:?}: {}\n{out}\n{err}", output.status).into())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Runs a script to its end, as a fiber of its own. A script may set the limits with `-- memory: MIB` and
/// `-- budget: MS` in its first lines.
fn run_script(script: &Path) -> ExitCode {
    let source = fs::read(script).expect("the script was listed");
    let text = String::from_utf8_lossy(&source);
    let setting = |name: &str| {
        let line = text.lines().take(3).find_map(|line| line.strip_prefix(&format!("-- {name}: ")));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let mut limits = Limits { time_budget: Duration::ZERO, ..Limits::default() };
    if let Some(budget) = setting("budget") {
        limits.time_budget = Duration::from_millis(budget);
    }
    if let Some(memory) = setting("memory") {
        limits.memory = (memory as usize) << 20;
    }
    let runtime = Runtime::new(limits).expect("a state can be made");
    let name = format!("@{}", script.file_name().unwrap_or_default().to_string_lossy());
    let fiber = runtime
        .spawn("main", move |lua| {
            lua.load(&source, &name)?;
            lua.call(0, 0)?;
            Ok(0)
        })
        .expect("a fiber can be made");
    fiber.set_joinable(true);
    while !runtime.is_dead(&fiber) {
        match runtime.resume_ready(now()) {
            Some(next) => {
                runtime.wake_files(Some(Duration::from_micros(next.saturating_sub(now()))));
            }
            None if runtime.waits_for_files() => runtime.wake_files(None),
            None => {
                if !runtime.is_dead(&fiber) {
                    eprintln!("the script waits for something that never comes");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    match runtime.result(&fiber) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
