//! The gate on instructions: what a cycle of put, take and ack takes in an instance, by type of tube, must not rise.
//!
//! `crates/instance/examples/cycles.rs` runs the cycles in one process, and valgrind counts its instructions. Two runs of one
//! binary differ by less than 0.1 %, because nothing in it depends on time. [`FIGURES`] has the last count of a release build,
//! [`CHECKED_FIGURES`] that of the build which the tests have anyway. They go with
//! the compiler that `rust-toolchain.toml` names and with x86-64: elsewhere nothing is compared.
//!
//! `crates/engine/examples/group_cycles.rs` runs the same cycles through the leader of a group of three and through a single server,
//! with the turn of the loop around the instance. [`GROUP_FIGURES`] has both, and neither may rise. What the leader takes more is printed.
//!
//! `cargo xtask count` counts all of them, `cargo xtask test` the tests' build alone: two release builds and three servers under
//! valgrind take five minutes of a processor. A rise that only the optimiser across crates makes or avoids is for `cargo xtask count`.
//!
//! `crates/lua/instructions/queue.lua` is a queue in Lua, as programs have them. The binary of the tests runs it, so that
//! nothing is built for it: that build takes more instructions than a release build, but they rise where the work does.
//! All instructions of the process count, and Cachegrind has their sum in half of the time that Callgrind takes.
//! What 1 000 more cycles take is compared with [`PROGRAM_FIGURES`]. LuaJIT decides by chance what it compiles when: hence the
//! tolerance, and the fewest instructions of up to [`PROGRAM_COUNTS`] runs count.
//!
//! Absent: sockets, files and the threads around the instance, some 700 instructions of a cycle. `lycosa bench count` has
//! them, on a release build of the whole server.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::command::Program;
use crate::steps::{self, target_folder};
use crate::top;

/// The recorded figures, in the repository: a JSON object of instructions for each cycle by type of tube.
const FIGURES: &str = "crates/instance/examples/cycles.json";

/// By how many percent a figure may rise. The same code counts up to 1 % more or less where memory is copied by other
/// instructions (a processor without AVX).
const TOLERANCE: f64 = 1.5;

/// The figures of the tests' build: less optimised, a quarter more instructions.
const CHECKED_FIGURES: &str = "crates/instance/examples/cycles-checked.json";

/// By how many percent one of these may rise. What the compiler inlines changes more easily there.
const CHECKED_TOLERANCE: f64 = 2.5;

/// The recorded figures of servers, by `single` or `group:3` and type of tube.
const GROUP_FIGURES: &str = "crates/engine/examples/group_cycles.json";

/// By how many percent more instructions a cycle should take in the leader of a group of three than in a single server.
const GROUP_GROWTH: u64 = 25;

const PROGRAM: &str = "crates/lua/instructions/queue.lua";

/// The figure of [`PROGRAM`], in the same form.
const PROGRAM_FIGURES: &str = "crates/lua/instructions/queue.json";

/// By how many percent that one may rise.
const PROGRAM_TOLERANCE: f64 = 8.0;

/// Cycles of the two runs of [`PROGRAM`]. The first is long enough for LuaJIT to have compiled most of it.
const PROGRAM_CYCLES: [u64; 2] = [1000, 2000];

/// How often a figure of [`PROGRAM`] beyond the tolerance is counted again. Chance alone can be 12 % in one count.
const PROGRAM_COUNTS: u32 = 5;

/// Valgrind runs a program some fifty times slower than the processor does. The loop ends a round of fibers after a
/// millisecond, so the program's clock goes slower by as much: else the count would have fifty times as many rounds.
const SLOW_CLOCK: &str = "+0 x0.02";

/// Instructions for each cycle by type of tube, or by program.
type Figures = BTreeMap<String, u64>;

/// The step of `cargo xtask test`: the tests' build and the Lua program, compared with the record.
pub(crate) fn gate() -> Result<()> {
    if is_comparable() { count_checked(false) } else { Ok(()) }
}

/// Counts and compares all there is; with `record` writes the figures down instead.
pub(crate) fn check(record: bool) -> Result<()> {
    if !is_comparable() {
        return Ok(());
    }
    Program::cargo()
        .arguments(["build", "--release", "--quiet", "--package", "lycosa-instance", "--example", "cycles"])
        .arguments(["--package", "lycosa-engine", "--example", "group_cycles"])
        .run()?;
    let examples = target_folder()?.join("release/examples");
    count_cycles(FIGURES, TOLERANCE, record, &examples.join("cycles"))?;
    count_groups(&examples.join("group_cycles"), record)?;
    count_checked(record)
}

fn is_comparable() -> bool {
    if !cfg!(target_arch = "x86_64") {
        println!("the figures in {FIGURES} are those of x86-64: nothing to compare");
    }
    cfg!(target_arch = "x86_64")
}

/// The programs that the tests have built.
fn count_checked(record: bool) -> Result<()> {
    let [binary, cycles] = steps::counted_programs()?;
    count_cycles(CHECKED_FIGURES, CHECKED_TOLERANCE, record, &cycles)?;
    let count = |_: &str, recorded| {
        let limit = if record { 0 } else { limit_of(recorded, PROGRAM_TOLERANCE) };
        count_program(&binary, limit)
    };
    check_file(PROGRAM_FIGURES, PROGRAM_TOLERANCE, record, count).map(drop)
}

fn count_cycles(file: &str, tolerance: f64, record: bool, cycles: &Path) -> Result<()> {
    check_file(file, tolerance, record, |tube_type, _| count(cycles, "serve_counted", &[tube_type])).map(drop)
}

fn count_groups(binary: &Path, record: bool) -> Result<()> {
    let counted = check_file(GROUP_FIGURES, TOLERANCE, record, |what, _| {
        count(binary, "turn_counted", &what.split(' ').collect::<Vec<_>>())
    })?;
    for (tube_type, growth) in growth_in_group(&counted)? {
        println!(
            "{tube_type}: the leader of three takes {growth} % more than a single server; the goal is {GROUP_GROWTH} %"
        );
    }
    Ok(())
}

/// Counts what a file has figures of, and compares or records. `count` gets the recorded figure too.
fn check_file(
    file: &str,
    tolerance: f64,
    record: bool,
    count: impl Fn(&str, u64) -> Result<u64>,
) -> Result<Figures> {
    let path = top().join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
    let recorded: Figures =
        serde_json::from_str(&text).with_context(|| format!("{file} is not what `count --record` writes"))?;
    let counted = recorded.iter().map(|(what, &before)| Ok((what.clone(), count(what, before)?)));
    let counted = counted.collect::<Result<Figures>>()?;
    if record {
        let text = format!("{:#}\n", serde_json::to_value(&counted)?);
        fs::write(&path, text).with_context(|| format!("cannot write {file}"))?;
    } else {
        compare(file, tolerance, &recorded, &counted)?;
    }
    Ok(counted)
}

/// Instructions for each cycle below a function of an example.
fn count(binary: &Path, function: &str, arguments: &[&str]) -> Result<u64> {
    let toggle = format!("--toggle-collect=*{function}*");
    let options = ["--collect-atstart=no", &toggle];
    let (printed, total) = valgrind("callgrind", &options, binary, arguments)?;
    let cycles = printed.trim().parse::<u64>().context("an example prints how many cycles were counted")?;
    ensure!(total > 0, "no instruction was counted: is `{function}` still there?");
    Ok(total / cycles)
}

/// By how many percent more instructions a cycle takes in the leader of a group than in a single server.
fn growth_in_group(counted: &Figures) -> Result<Figures> {
    let in_group = counted.iter().filter_map(|(what, &group)| Some((what.strip_prefix("group:3 ")?, group)));
    let growth = in_group.map(|(tube_type, group)| {
        let single = counted.get(&format!("single {tube_type}"));
        let single = *single
            .with_context(|| format!("{GROUP_FIGURES} has no figure of a single server for {tube_type}"))?;
        Ok((tube_type.to_owned(), (group * 100 / single).saturating_sub(100)))
    });
    growth.collect()
}

/// Instructions for each cycle of [`PROGRAM`]: counted again while they are above the limit.
fn count_program(binary: &Path, limit: u64) -> Result<u64> {
    let program = top().join(PROGRAM).display().to_string();
    let total = |cycles: u64| {
        let arguments = [&program, &cycles.to_string()];
        let (_, total) = valgrind("cachegrind", &["--cache-sim=no"], binary, &arguments.map(String::as_str))?;
        Ok::<_, anyhow::Error>(total)
    };
    let [fewer, more] = PROGRAM_CYCLES;
    let (mut least_of_fewer, mut least_of_more, mut figure) = (u64::MAX, u64::MAX, u64::MAX);
    for _ in 0..PROGRAM_COUNTS {
        least_of_fewer = least_of_fewer.min(total(fewer)?);
        least_of_more = least_of_more.min(total(more)?);
        figure = least_of_more.saturating_sub(least_of_fewer) / (more - fewer);
        if figure <= limit {
            break;
        }
    }
    Ok(figure)
}

/// The largest figure within a tolerance in percent.
fn limit_of(recorded: u64, tolerance: f64) -> u64 {
    (recorded as f64 * (1.0 + tolerance / 100.0)) as u64
}

/// Runs a program in a new folder under a tool of valgrind. Returns what it printed, and the instructions.
fn valgrind(tool: &str, options: &[&str], binary: &Path, arguments: &[&str]) -> Result<(String, u64)> {
    forget_clocks();
    let folder = tempfile::tempdir()?;
    let profile = folder.path().join("profile");
    let output = format!("--{tool}-out-file={}", profile.display());
    // Cachegrind has warnings about caches which it does not simulate here.
    let log = folder.path().join("log");
    let messages = format!("--log-file={}", log.display());
    let printed = Program::new("faketime")
        .folder(folder.path())
        .arguments(["-f", SLOW_CLOCK, "valgrind", "--quiet", &format!("--tool={tool}"), &output, &messages])
        .arguments(options)
        .arguments([binary])
        .arguments(arguments)
        .output()
        .with_context(|| {
            let said = fs::read_to_string(&log).unwrap_or_default();
            format!("valgrind says: {said:?}. `cargo xtask install` installs faketime and valgrind where they are absent")
        })?;
    let profile = fs::read_to_string(&profile).context("valgrind has left no profile")?;
    let total = total_of(&profile).context("valgrind's profile has no total")?;
    Ok((printed, total))
}

/// Removes what `faketime` has left of processes that were killed: it refuses to run as a process with the same number.
fn forget_clocks() {
    let Ok(files) = fs::read_dir("/dev/shm") else { return };
    for file in files.flatten() {
        let name = file.file_name();
        let pid = name.to_str().and_then(|name| {
            ["faketime_shm_", "sem.faketime_sem_"].iter().find_map(|prefix| name.strip_prefix(prefix))
        });
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another run may have removed it.
            let _ = fs::remove_file(file.path());
        }
    }
}

/// `totals: 51102345` by Callgrind, or `summary: 51102345` by Cachegrind and older versions.
fn total_of(profile: &str) -> Option<u64> {
    let total = |name: &str| profile.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    total("totals:").or_else(|| total("summary:"))
}

fn compare(file: &str, tolerance: f64, recorded: &Figures, counted: &Figures) -> Result<()> {
    let mut risen = Vec::new();
    for (what, &now) in counted {
        let before = recorded.get(what).copied().unwrap_or(now);
        let growth = (now as f64 / before as f64 - 1.0) * 100.0;
        println!("{what}: {now} instructions for each cycle, {growth:+.1} % of the recorded {before}");
        if growth > tolerance {
            risen.push(format!("{what} {growth:+.1} %"));
        }
    }
    if !risen.is_empty() {
        bail!(
            "cycles take more instructions than recorded in {file}, by more than {tolerance} %: {}. \
             Make them cheaper; or, where they are worth it, say so in the commit and run `cargo xtask count --record`",
            risen.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(fifo: u64, utube: u64) -> Figures {
        [("fifo".to_owned(), fifo), ("utube".to_owned(), utube)].into()
    }

    #[test]
    fn a_rise_beyond_the_tolerance_fails() {
        let recorded = figures(10_000, 20_000);
        assert!(compare("x.json", 1.5, &recorded, &figures(10_150, 15_000)).is_ok());
        let refused = compare("x.json", 1.5, &recorded, &figures(10_151, 20_400)).unwrap_err().to_string();
        assert!(
            refused.contains("recorded in x.json, by more than 1.5 %: fifo +1.5 %, utube +2.0 %."),
            "{refused}"
        );
    }

    #[test]
    fn a_leader_is_compared_with_a_single_server() {
        let mut counted: Figures =
            [("group:3 fifo".to_owned(), 12_600), ("single fifo".to_owned(), 10_000)].into();
        assert_eq!(growth_in_group(&counted).unwrap(), [("fifo".to_owned(), 26)].into());
        counted.insert("group:3 utube".to_owned(), 1);
        let refused = growth_in_group(&counted).unwrap_err().to_string();
        assert!(refused.contains("no figure of a single server for utube"), "{refused}");
    }

    #[test]
    fn the_total_is_read() {
        assert_eq!(total_of("events: Ir\n\nfn=(1) main\n1 5\n\ntotals: 51102345\n"), Some(51_102_345));
        assert_eq!(total_of("summary: 7\nfn=(1)"), Some(7));
        assert_eq!(total_of("fn=(1) main\n1 5\n"), None);
    }
}
