//! The steps of `cargo xtask test`, in their order and by [lane](crate::lanes).

use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;

use crate::command::{self, Program};
use crate::count::{Count, Runner};
use crate::lanes::{self, Lane};
use crate::{fuzz, install, instructions, sim, tidy, top};

/// Which steps a run has.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) only: Vec<String>,
    pub(crate) skip: Vec<String>,
    pub(crate) fail_fast: bool,
}

struct Step {
    name: &'static str,
    /// What it checks, in a few words.
    about: &'static str,
    lane: Lane,
    needs: &'static [&'static str],
    action: Action,
}

impl lanes::Step for Step {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lane(&self) -> Lane {
        self.lane
    }

    fn needs(&self) -> &'static [&'static str] {
        self.needs
    }
}

enum Action {
    Chore(fn() -> Result<()>),
    /// A runner of tests that must not come back without having run one.
    Tests(fn() -> Result<(Runner, Program)>),
    /// One that may have nothing to run.
    PerhapsTests(fn() -> Result<(Runner, Program)>),
}

const fn step(
    name: &'static str,
    about: &'static str,
    lane: Lane,
    needs: &'static [&'static str],
    action: Action,
) -> Step {
    Step { name, about, lane, needs, action }
}

use Action::{Chore, PerhapsTests, Tests};
use Lane::{Binary, Browser, Cargo, Network, Valgrind, Worlds};

const STEPS: &[Step] = &[
    step("install", "what the tests need", Network, &[], Chore(install::all)),
    step("fmt", "formatting", Cargo, &[], Chore(|| format(true))),
    step("tidy", "the house rules", Cargo, &[], Chore(tidy::check)),
    step("build", "the server's binary and its tests", Cargo, &[], Chore(build_tests)),
    step("compile", "all other tests", Cargo, &[], Chore(compile_tests)),
    step("clippy", "lints, warnings as errors", Cargo, &[], Chore(lints)),
    step("doc", "examples in the documentation", Cargo, &[], PerhapsTests(documentation)),
    step("unit", "tests beside the code", Lane::Tests, &["install", "build", "compile"], Tests(unit)),
    step(
        "count",
        "instructions of a cycle, as recorded",
        Valgrind,
        &["install", "build"],
        Chore(instructions::gate),
    ),
    step("fuzz", "changed bytes for everything that reads bytes", Worlds, &["compile"], Chore(fuzz::check)),
    step("sim", "whole lives from seeds", Worlds, &["compile"], Chore(sim::check)),
    step(
        "scenarios",
        "golden scripts against the binary",
        Binary,
        &["build"],
        Tests(|| blackbox(&["scenario::"])),
    ),
    step(
        "transcripts",
        "recorded sessions against the binary",
        Binary,
        &["build"],
        Tests(|| blackbox(&["transcript::"])),
    ),
    step(
        "crash",
        "SIGKILL and failing disks under load",
        Binary,
        &["build", "install"],
        Tests(|| blackbox(&["crash::"])),
    ),
    step(
        "oracle",
        "the same against a real Tarantool",
        Binary,
        &["build", "install"],
        Tests(|| blackbox(&["oracle::"])),
    ),
    step(
        "disk",
        "disks that the server fills itself, one after the other",
        Binary,
        &["build", "install"],
        PerhapsTests(small_disks),
    ),
    step("python", "Python clients", Binary, &["build", "install"], Tests(python)),
    step("javascript", "a JavaScript client", Binary, &["build", "install"], Tests(javascript)),
    step(
        "doors",
        "everything else against the binary",
        Browser,
        &["build", "install"],
        Tests(other_blackbox),
    ),
    step(
        "links",
        "a group whose members cannot always hear each other",
        Browser,
        &["build", "install"],
        Tests(links),
    ),
    step("page", "the page in a browser", Browser, &["build", "install"], Tests(page)),
];

/// Seconds of the same steps when they are asked for by name without a duration.
const LONG: u64 = 60;

/// The steps' names, for the command line.
pub(crate) fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(STEPS.iter().map(|step| step.name))
}

/// What came of the steps so far.
#[derive(Debug, Default)]
struct Outcome {
    all: Count,
    ran: usize,
    failures: Vec<Failure>,
}

/// A step that is not green.
#[derive(Debug)]
struct Failure {
    step: &'static str,
    /// The error, and what the failed tests said; repeated at the end, as steps beside it print between its lines.
    account: Vec<String>,
}

/// What an action came to.
struct Done {
    count: Count,
    /// What failed tests said.
    told: Vec<String>,
    result: Result<()>,
}

/// Runs the chosen steps, each in its lane, and prints what came of them; an error if one failed.
pub(crate) fn run(choice: &Choice) -> Result<()> {
    let chosen = |step: &&Step| {
        let named = |names: &[String]| names.iter().any(|name| name == step.name);
        (choice.only.is_empty() || named(&choice.only)) && !named(&choice.skip)
    };
    let steps = STEPS.iter().filter(chosen).collect::<Vec<_>>();
    let started = Instant::now();
    let outcome = Mutex::new(Outcome::default());
    let note = |step: &Step, done: Done| {
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.ran += 1;
        outcome.all += done.count;
        if let Err(error) = done.result {
            let mut account = vec![format!("{error:#}")];
            account.extend(done.told);
            outcome.failures.push(Failure { step: step.name, account });
        }
    };
    let run = |step: &Step| {
        println!("== {}: {}", step.name, step.about);
        command::label(step.name);
        let began = Instant::now();
        let done = step.action.run();
        let spent = command::take_processor_time();
        println!("== {}: {}", step.name, verdict(done.count, &done.result, began.elapsed(), spent));
        if step.name == "oracle" {
            println!("== {}", against_the_real_thing(done.count));
        }
        let green = done.result.is_ok();
        note(step, done);
        green
    };
    let skipped = |step: &Step, reason: &anyhow::Error| {
        println!("== {}: NOT RUN: {reason}", step.name);
        let result = Err(anyhow::anyhow!("not run: {reason}"));
        note(step, Done { count: Count::default(), told: Vec::new(), result });
    };
    lanes::run(&steps, choice.fail_fast, run, skipped);
    let Outcome { all, ran, failures } = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    for Failure { step, account } in &failures {
        println!("\n-- {step}: what failed");
        account.iter().for_each(|line| println!("{step} | {line}"));
    }
    let names = failures.iter().map(|failure| failure.step).collect::<Vec<_>>();
    println!("\n{}", closing_line(all, ran, &names, started.elapsed()));
    if !names.is_empty() {
        bail!("failed: {}", names.join(", "));
    }
    Ok(())
}

impl Action {
    fn run(&self) -> Done {
        let chore = |result| Done { count: Count::default(), told: Vec::new(), result };
        let (make, may_be_empty) = match self {
            Chore(run) => return chore(run()),
            Tests(make) => (make, false),
            PerhapsTests(make) => (make, true),
        };
        let (runner, output, mut result) = match make().and_then(|(runner, program)| {
            let (output, result) = program.watched()?;
            Ok((runner, output, result))
        }) {
            Ok(ran) => ran,
            Err(error) => return chore(Err(error)),
        };
        let count = runner.count(&output);
        if result.is_ok() && count.passed == 0 && !may_be_empty {
            result = Err(anyhow::anyhow!("no test ran, where some should have"));
        }
        let told = match &result {
            Ok(()) => Vec::new(),
            Err(_) => runner.failures(&output).into_iter().map(ToOwned::to_owned).collect(),
        };
        Done { count, told, result }
    }
}

/// The part of the checks of our server that also ran against the server that it imitates.
fn against_the_real_thing(count: Count) -> String {
    let Count { passed, failed, skipped } = count;
    let ran = passed + failed;
    format!(
        "{ran} of {} scenarios, recordings and folders ran against the real thing; \
         the others need its queue module, which is in no package, or our server's own behavior",
        ran + skipped
    )
}

/// `took`: by the clock; `spent`: processor time of the programs, as far as it is known.
fn verdict(count: Count, outcome: &Result<()>, took: Duration, spent: Duration) -> String {
    let mut text = match outcome {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("FAILED: {error:#}"),
    };
    if count != Count::default() {
        text += &format!(", {} passed", count.passed);
        for (number, word) in [(count.failed, "failed"), (count.skipped, "skipped")] {
            if number > 0 {
                text += &format!(", {number} {word}");
            }
        }
    }
    text += &format!(", {:.1} s", took.as_secs_f64());
    if spent >= Duration::from_secs(1) {
        text += &format!(" ({:.0} s of processors)", spent.as_secs_f64());
    }
    text
}

fn closing_line(all: Count, steps: usize, failures: &[&str], took: Duration) -> String {
    let seconds = took.as_secs();
    let Count { passed, failed, skipped } = all;
    if failures.is_empty() {
        return format!("all green: {passed} tests in {steps} steps, {skipped} skipped, {seconds} s");
    }
    let which = failures.join(", ");
    format!(
        "not green: {which} failed; {passed} tests passed, {failed} failed, {skipped} skipped, {seconds} s"
    )
}

/// Formats all Rust code, or lists the lines that are not formatted.
pub(crate) fn format(check: bool) -> Result<()> {
    Program::cargo().arguments(["fmt", "--all"]).arguments(check.then_some("--check")).run()
}

/// Clippy over all targets, warnings as errors, without compiling.
pub(crate) fn clippy() -> Result<()> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    Program::cargo().arguments(arguments).run()
}

/// The step `clippy`: compiles the targets that no other step has compiled, and looks at what the compiler has said about all of
/// them. Cargo keeps that and says it again.
fn lints() -> Result<()> {
    let build = ["build", "--quiet", "--workspace", "--all-targets", "--color", "never"];
    let (said, built) = Program::linting_cargo().arguments(build).arguments(PROFILE).watched()?;
    built?;
    if said.lines().any(|line| line.starts_with("warning")) {
        bail!("the compiler warns: see above");
    }
    Ok(())
}

/// Kills servers under load and lets their disks fail.
pub(crate) fn crash(seconds: Option<u64>, kills: Option<u64>, faults: Option<u64>) -> Result<()> {
    let default = if kills.is_some() || faults.is_some() { 0 } else { LONG };
    let (_, program) = blackbox(&["crash::"])?;
    let mut program = program.variable("LYCOSA_TEST_CRASH_SECONDS", seconds.unwrap_or(default).to_string());
    for (name, number) in [("LYCOSA_TEST_CRASH_KILLS", kills), ("LYCOSA_TEST_CRASH_FAULTS", faults)] {
        if let Some(number) = number {
            program = program.variable(name, number.to_string());
        }
    }
    program.run()
}

/// The benchmark program with these arguments, on a release build of the server.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    Program::cargo()
        .arguments(["build", "--release", "--package", "lycosa", "--package", "lycosa-bench"])
        .run()?;
    let run = ["run", "--release", "--quiet", "--package", "lycosa-bench", "--"];
    Program::cargo().arguments(run).arguments(arguments.iter().map(String::as_str)).run()
}

/// Draws the screens of `lycosa top` and of the page that the documents show, by the tests that look at them.
pub(crate) fn pictures() -> Result<()> {
    let folder = top().join("docs/pictures");
    fs::create_dir_all(&folder).context("cannot make docs/pictures")?;
    built("lycosa")?;
    let test = ["test", "--workspace", "--bin", "lycosa"];
    let test = Program::linting_cargo().arguments(test).arguments(PROFILE);
    test.arguments(["--", "top::tests::screens_can_be_drawn"]).variable("LYCOSA_PICTURES", &folder).run()?;
    let (_, program) = node("tests/page/run.test.js")?;
    program.variable("LYCOSA_PICTURES", &folder).run()
}

/// Draws every screen of the page in every size, scheme and role, by the tests that go through them.
pub(crate) fn screens() -> Result<()> {
    built("lycosa")?;
    let (_, program) = page()?;
    program.variable("LYCOSA_SCREENS", target_folder()?.join("page")).run()
}

/// The profile of all that the tests run, as cargo's builds name it.
const PROFILE: [&str; 2] = ["--profile", PROFILE_NAME];
const PROFILE_NAME: &str = "checked";

/// Builds a program of the workspace as the tests run it, and returns its path. It has the features of the whole workspace, so that
/// every program and test shares the builds of the crates.
///
/// # Errors
/// The build fails.
pub(crate) fn built(program: &str) -> Result<PathBuf> {
    let arguments = ["build", "--quiet", "--workspace", "--bin", program];
    Program::linting_cargo().arguments(arguments).arguments(PROFILE).run()?;
    Ok(profile_folder()?.join(program))
}

/// The server and the example `cycles`, built like the tests, for counts of their instructions.
///
/// # Errors
/// The build fails.
pub(crate) fn counted_programs() -> Result<[PathBuf; 2]> {
    build_tests()?;
    Ok([binary()?, profile_folder()?.join("examples/cycles")])
}

/// Where cargo puts what it builds with the profile.
fn profile_folder() -> Result<PathBuf> {
    Ok(target_folder()?.join(PROFILE_NAME))
}

/// The server, the program of the black-box tests and the counted example, for the steps that run beside cargo.
fn build_tests() -> Result<()> {
    blackbox_binary().map(drop)
}

/// The tests of the step `unit`: all but the black-box program, which has steps of its own.
const UNIT: [&str; 2] = ["--filterset", "not binary(blackbox)"];

fn has_nextest() -> bool {
    Program::cargo().arguments(["nextest", "--version"]).succeeds()
}

/// Compiles all tests, once in a run, and lists their programs for nextest. With the list nextest runs them without cargo,
/// which would wait while another cargo compiles.
fn compile_tests() -> Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Acquire) {
        return Ok(());
    }
    if !has_nextest() {
        return unit_by_cargo().arguments(["--no-run"]).run();
    }
    let list = ["nextest", "list", "--workspace", "--list-type", "binaries-only", "--message-format", "json"];
    let profile = ["--cargo-profile", PROFILE_NAME];
    let binaries = Program::linting_cargo().arguments(list).arguments(profile).arguments(UNIT).output()?;
    let metadata = Program::cargo().arguments(["metadata", "--format-version", "1"]).output()?;
    for (file, text) in [(binaries_file()?, binaries), (metadata_file()?, metadata)] {
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    DONE.store(true, Ordering::Release);
    Ok(())
}

/// Where nextest's list of compiled tests is.
fn binaries_file() -> Result<PathBuf> {
    Ok(profile_folder()?.join("nextest-binaries.json"))
}

/// Where `cargo metadata` is kept for nextest.
fn metadata_file() -> Result<PathBuf> {
    Ok(profile_folder()?.join("nextest-metadata.json"))
}

/// The same by cargo alone.
fn unit_by_cargo() -> Program {
    Program::linting_cargo()
        .arguments(["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"])
        .arguments(PROFILE)
}

/// All tests without a step of their own.
fn unit() -> Result<(Runner, Program)> {
    if !has_nextest() {
        let skip = BLACKBOX.into_iter().flat_map(|prefix| ["--skip", prefix]);
        let program = unit_by_cargo().arguments(["--"]).arguments(skip);
        return Ok((Runner::Libtest, program));
    }
    // Where the step `compile` was not chosen.
    compile_tests()?;
    let (binaries, metadata) = (binaries_file()?, metadata_file()?);
    // Half of the time of these tests is waiting, for servers and for what they do later.
    let threads = 3 * thread::available_parallelism().map_or(1, NonZero::get);
    let program = Program::cargo()
        .arguments(["nextest", "run", "--no-fail-fast", "--status-level", "fail"])
        .arguments(["--binaries-metadata".as_ref(), binaries.as_os_str()])
        .arguments(["--cargo-metadata".as_ref(), metadata.as_os_str()])
        .arguments(["--test-threads", &threads.to_string()])
        .arguments(UNIT);
    Ok((Runner::Nextest, program))
}

fn documentation() -> Result<(Runner, Program)> {
    let program = Program::linting_cargo().arguments(["test", "--workspace", "--doc", "--quiet"]);
    Ok((Runner::Libtest, program.arguments(PROFILE)))
}

/// Black-box tests with steps of their own, by how their names begin.
const BLACKBOX: [&str; 5] = ["scenario::", "transcript::", "oracle::", "crash::", "full_disk::"];

/// The black-box tests that no other step runs, so that a new kind of them is not forgotten.
fn other_blackbox() -> Result<(Runner, Program)> {
    blackbox(&BLACKBOX.map(|prefix| ["--skip", prefix]).concat())
}

/// Small disks, one at a time: how much of one a test fills follows from how fast the server is beside it.
fn small_disks() -> Result<(Runner, Program)> {
    blackbox(&["full_disk::", "--test-threads", "1"])
}

/// The black-box tests with these arguments. Cargo has built them: while it builds something else, they run.
fn blackbox(arguments: &[&str]) -> Result<(Runner, Program)> {
    let folder = top().join("crates/lycosa");
    let program = Program::new(blackbox_binary()?).arguments(arguments).folder(&folder);
    Ok((Runner::Libtest, program.variable("CARGO_MANIFEST_DIR", folder)))
}

/// The program of the black-box tests, built once in a run.
fn blackbox_binary() -> Result<PathBuf> {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    if let Some(binary) = BINARY.get() {
        return Ok(binary.clone());
    }
    // The features of the whole workspace, as for all other tests.
    let arguments = ["build", "--quiet", "--workspace", "--bin", "lycosa", "--test", "blackbox"];
    let printed = Program::linting_cargo()
        .arguments(arguments)
        .arguments(["--example", "cycles"])
        .arguments(PROFILE)
        .arguments(["--message-format", "json-render-diagnostics"])
        .output()?;
    let messages = printed.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut binaries = messages.filter_map(|message| {
        let is_wanted = message["target"]["name"] == "blackbox";
        message["executable"].as_str().filter(|_| is_wanted).map(PathBuf::from)
    });
    let binary = binaries.next().context("cargo names no program of the black-box tests")?;
    Ok(BINARY.get_or_init(|| binary).clone())
}

/// The tests that change the machine's network. A browser drops its requests meanwhile, so the page is tested behind them.
const NETWORK_TESTS: &str = "tests/python/test_network.py";

fn python() -> Result<(Runner, Program)> {
    pytest(&["tests/python", "--ignore", NETWORK_TESTS])
}

fn links() -> Result<(Runner, Program)> {
    pytest(&[NETWORK_TESTS])
}

fn pytest(arguments: &[&str]) -> Result<(Runner, Program)> {
    let program = Program::new(install::python())
        .arguments(["-m", "pytest", "-p", "no:cacheprovider"])
        .arguments(arguments)
        .variable("PYTHONDONTWRITEBYTECODE", "1")
        .variable("LYCOSA_BIN", binary()?);
    Ok((Runner::Pytest, program))
}

fn javascript() -> Result<(Runner, Program)> {
    node("tests/js/")
}

fn page() -> Result<(Runner, Program)> {
    node("tests/page/")
}

/// The tests of a folder by Node's runner.
fn node(folder: &str) -> Result<(Runner, Program)> {
    let program = Program::new("node")
        .arguments(["--test", "--test-reporter=tap", folder])
        .variable("NODE_PATH", install::node_modules())
        .variable("LYCOSA_BIN", binary()?);
    Ok((Runner::Node, program))
}

/// The binary that the step `build` made.
fn binary() -> Result<PathBuf> {
    let binary = profile_folder()?.join("lycosa");
    if !binary.exists() {
        bail!("{} is not there: run `cargo xtask test --only build` first", binary.display());
    }
    Ok(binary)
}

/// Where cargo builds.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let folder = metadata()?["target_directory"].as_str().map(PathBuf::from);
    folder.context("cargo metadata names no target folder")
}

/// `cargo metadata` of the workspace, without the dependencies.
pub(crate) fn metadata() -> Result<serde_json::Value> {
    let output = Program::cargo().arguments(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    Ok(serde_json::from_str(&output)?)
}

/// `cargo metadata` with the crates of others, for every platform and feature. Cargo downloads missing ones.
pub(crate) fn metadata_with_dependencies() -> Result<serde_json::Value> {
    let arguments = ["metadata", "--quiet", "--all-features", "--format-version", "1"];
    Ok(serde_json::from_str(&Program::cargo().arguments(arguments).output()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_counts() {
        let all = Count { passed: 612, failed: 0, skipped: 9 };
        let line = closing_line(all, 14, &[], Duration::from_millis(312_400));
        assert_eq!(line, "all green: 612 tests in 14 steps, 9 skipped, 312 s");
        let all = Count { passed: 600, failed: 12, skipped: 9 };
        let line = closing_line(all, 14, &["clippy", "unit"], Duration::from_secs(3));
        assert_eq!(line, "not green: clippy, unit failed; 600 tests passed, 12 failed, 9 skipped, 3 s");
    }

    #[test]
    fn a_verdict_names_only_what_happened() {
        const TWO: Duration = Duration::from_secs(2);
        let count = Count { passed: 3, failed: 0, skipped: 1 };
        assert_eq!(
            verdict(count, &Ok(()), TWO, Duration::from_secs(40)),
            "ok, 3 passed, 1 skipped, 2.0 s (40 s of processors)"
        );
        let failed = Err(anyhow::anyhow!("no"));
        assert_eq!(verdict(Count::default(), &failed, TWO, Duration::ZERO), "FAILED: no, 2.0 s");
    }
}
