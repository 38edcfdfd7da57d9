//! Endurance: worlds, fuzz targets and killed servers in turn, from fresh seeds, for hours; and the record of it.
//!
//! A run goes through rounds of four slices: worlds of usual length, long worlds, fuzz targets under coverage, servers that
//! are killed and whose disks fail. After each slice the run's row in the record is written anew, so that an interrupt, a
//! crash or a power cut costs the record one slice. A finding ends the run; its seed stands in the record.
//!
//! All programs inherit the lowest priority. After a SIGTERM the slice's programs end within two minutes; Ctrl-C ends them too.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::command::{Program, children_time};
use crate::count::value_before;
use crate::record::{Column, Record, Row};
use crate::{fuzz, sim, top};

/// Worlds of each kind in a slice, and their steps: some 60 s of a processor.
const WORLDS: (u64, u64) = (100, 3_000);
/// A tenth as many, four times as long.
const LONG_WORLDS: (u64, u64) = (10, 12_000);
/// As many times more worlds where there is one kind alone.
const KINDS: u64 = 7;
/// Seconds of a slice of fuzzing: many times what the slowest target needs to read its collected inputs.
const FUZZ_SECONDS: u64 = 120;
/// Seconds for which a slice tortures each type of tube, and operations of the disk that it lets fail.
const KILL_SECONDS: &str = "10";
const DISK_FAULTS: &str = "12";

/// A part of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Simulated worlds of every kind
    Worlds,
    /// Fuzz targets, guided by coverage
    Fuzz,
    /// Servers that are killed under load, and disks that fail (needs strace)
    Kills,
}

/// What a run is asked for.
#[derive(Debug)]
pub(crate) struct Order {
    /// No slice begins after this time.
    pub(crate) hours: f64,
    pub(crate) jobs: Option<NonZero<usize>>,
    pub(crate) parts: Vec<Part>,
    /// The only kind of worlds, as the simulator calls it.
    pub(crate) world: Option<String>,
    /// Whether a finding does not end the run.
    pub(crate) keep_going: bool,
    /// The file of the record.
    pub(crate) record: PathBuf,
}

/// What a slice came to.
#[derive(Debug, Default, PartialEq)]
struct Slice {
    row: Row,
    findings: Vec<String>,
    /// A fuzz target was still reading its collected inputs when the time was over: the time is not the record's.
    is_void: bool,
}

/// Runs rounds until the time is over or something is found.
///
/// # Errors
/// A finding, unless the order is to go on; a program that cannot be built or run; a record that cannot be read or written.
pub(crate) fn run(order: &Order) -> Result<()> {
    let end = Duration::try_from_secs_f64(order.hours * 3600.0);
    let end = end.with_context(|| format!("--hours {}: this is no length of time", order.hours))?;
    let mut record = Record::begin(&order.record, &commit()?)?;
    let mut round = Round::prepare(order)?;
    let begun = Instant::now();
    record.sum_up()?;
    be_nice()?;
    while begun.elapsed() < end {
        let before = processor_seconds()?;
        let (time, mut slice) = round.next_slice()?;
        if !slice.is_void {
            slice.row[time] += (processor_seconds()? - before) / 3600.0;
        }
        record.add(&slice.row, &slice.findings)?;
        if !slice.findings.is_empty() && !order.keep_going {
            bail!("found, and written to {}: {}", order.record.display(), slice.findings.join("; "));
        }
    }
    Ok(())
}

/// The slices of a round, one after the other, again and again.
struct Round {
    slices: Vec<Kind>,
    number: usize,
    jobs: usize,
    keep_going: bool,
}

/// A kind of slice, with its program.
enum Kind {
    /// Worlds of each kind, and the steps of a world.
    Worlds {
        program: PathBuf,
        worlds: u64,
        steps: u64,
        kind: Option<String>,
    },
    Fuzz(fuzz::Fuzzer),
    Kills,
}

impl Round {
    /// Builds everything: the time of builds is not the record's.
    fn prepare(order: &Order) -> Result<Self> {
        let has = |part: Part| order.parts.is_empty() || order.parts.contains(&part);
        let mut slices = Vec::new();
        if order.hours > 0.0 && has(Part::Worlds) {
            let program = sim::build()?;
            for (worlds, steps) in [WORLDS, LONG_WORLDS] {
                let kind = order.world.clone();
                let worlds = if kind.is_some() { worlds * KINDS } else { worlds };
                slices.push(Kind::Worlds { program: program.clone(), worlds, steps, kind });
            }
        }
        if order.hours > 0.0 && has(Part::Fuzz) {
            let fuzzer = fuzz::Fuzzer::build()?;
            fuzzer.targets().iter().try_for_each(|target| fuzzer.condense(target))?;
            slices.push(Kind::Fuzz(fuzzer));
        }
        if order.hours > 0.0 && has(Part::Kills) {
            Program::cargo().arguments(BLACKBOX).arguments(["--no-run"]).run()?;
            slices.push(Kind::Kills);
        }
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let jobs = order.jobs.map_or(processors, NonZero::get);
        Ok(Self { slices, number: 0, jobs, keep_going: order.keep_going })
    }

    /// Runs the next slice. Returns the column of its processor time, too.
    fn next_slice(&mut self) -> Result<(Column, Slice)> {
        let (round, place) = (self.number / self.slices.len(), self.number % self.slices.len());
        self.number += 1;
        match &self.slices[place] {
            Kind::Worlds { program, worlds, steps, kind } => {
                let run = Program::new(program)
                    .arguments(["--worlds", &worlds.to_string(), "--steps", &steps.to_string()])
                    .arguments(["--jobs", &self.jobs.to_string()])
                    .arguments(kind.iter().flat_map(|kind| ["--world", kind]))
                    .arguments(self.keep_going.then_some("--keep-going"));
                let (output, outcome) = run.watched()?;
                Ok((Column::WorldsTime, read_worlds(&output, outcome)?))
            }
            Kind::Fuzz(fuzzer) => Ok((Column::FuzzTime, fuzz_slice(fuzzer, round * self.jobs, self.jobs))),
            Kind::Kills => Ok((Column::KillsTime, kills(self.jobs)?)),
        }
    }
}

/// What the simulator printed: a line of sums for each kind, two lines for each failure.
fn read_worlds(output: &str, outcome: Result<()>) -> Result<Slice> {
    let mut slice = Slice::default();
    for line in output.lines() {
        let Some((kind, sums)) = line.split_once(": ") else { continue };
        if kind == "repeat it" {
            slice.findings.push(sums.trim_end_matches(" --verbose").to_owned());
            continue;
        }
        if !sums.contains(" simulated hours") {
            continue;
        }
        let worlds = Column::of_worlds(kind);
        let worlds =
            worlds.with_context(|| format!("the record has no column for worlds of the kind `{kind}`"))?;
        let numbers = [
            (worlds, "worlds"),
            (worlds, "world"),
            (Column::SimulatedTime, "simulated"),
            (Column::Crashes, "crashes"),
            (Column::Losses, "losses"),
            (Column::Faults, "faults"),
            (Column::Cuts, "cuts"),
        ];
        for (column, word) in numbers {
            slice.row[column] += value_before(sums, word).unwrap_or(0.0);
        }
        if matches!(worlds, Column::Group | Column::Members) {
            slice.row[Column::GroupTime] += value_before(sums, "simulated").unwrap_or(0.0);
        }
    }
    if let (Err(error), true) = (outcome, slice.findings.is_empty()) {
        return Err(error.context("the simulator ended without a finding"));
    }
    Ok(slice)
}

/// As many fuzz targets at once as there are jobs, from the target with the number `first` on.
fn fuzz_slice(fuzzer: &fuzz::Fuzzer, first: usize, jobs: usize) -> Slice {
    let targets = fuzzer.targets();
    let chosen = (0..jobs.min(targets.len())).map(|job| &targets[(first + job) % targets.len()]);
    let seed = fuzz::seed_of_the_clock();
    let runs: Vec<Result<fuzz::Statistics>> = thread::scope(|scope| {
        let threads = chosen.map(|target| scope.spawn(move || fuzzer.run(target, FUZZ_SECONDS, seed)));
        let threads = threads.collect::<Vec<_>>();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("a run does not panic");
        threads.into_iter().map(join).collect()
    });
    sum_of(runs)
}

/// What runs of fuzz targets beside each other came to.
fn sum_of(runs: impl IntoIterator<Item = Result<fuzz::Statistics>>) -> Slice {
    let mut slice = Slice::default();
    for run in runs {
        match run {
            Ok(statistics) => {
                println!("{statistics}");
                slice.row[Column::Inputs] += statistics.inputs as f64;
                slice.is_void |= statistics.inputs == 0;
            }
            Err(error) => slice.findings.push(format!("{error:#}")),
        }
    }
    slice
}

const BLACKBOX: [&str; 6] = ["test", "--quiet", "--package", "lycosa", "--test", "blackbox"];

/// Servers that are killed under load, and whose disks fail.
fn kills(jobs: usize) -> Result<Slice> {
    let seed = fuzz::seed_of_the_clock().to_string();
    let run = Program::cargo()
        .arguments(BLACKBOX)
        .arguments(["--", "crash::", "--test-threads", &jobs.to_string()])
        .variable("LYCOSA_TEST_CRASH_SECONDS", KILL_SECONDS)
        .variable("LYCOSA_TEST_CRASH_FAULTS", DISK_FAULTS)
        .variable("LYCOSA_TEST_SEED", &seed);
    let (output, outcome) = run.watched()?;
    let mut slice = Slice { row: read_kills(&output), ..Slice::default() };
    if outcome.is_err() {
        slice.findings.push(format!("LYCOSA_TEST_SEED={seed} cargo xtask crash --seconds {KILL_SECONDS}"));
    }
    Ok(slice)
}

/// The tests print a line for each type of tube: `fifo {}: 12 kills, …`, and behind the name of a tube whose disk failed
/// `the journal failed 2 times, something else 1 times, 5 kills, …`.
fn read_kills(output: &str) -> Row {
    let mut row = Row::default();
    for line in output.lines() {
        row[Column::Kills] += value_before(line, "kills").unwrap_or(0.0);
        for event in ["the journal failed ", "something else "] {
            let count = line.split_once(event).and_then(|(_, rest)| value_before(rest, "times"));
            row[Column::Refusals] += count.unwrap_or(0.0);
        }
    }
    row
}

/// Lowers the priority of this process, which all programs that it starts inherit.
fn be_nice() -> Result<()> {
    let own = std::process::id().to_string();
    Program::new("renice").arguments(["-n", "19", "-p", &own]).output().map(drop)
}

/// Seconds of a processor that ended children have used, and theirs.
fn processor_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    Ok(children_time(&stat).context("/proc/self/stat has another form")?.as_secs_f64())
}

/// The commit that is checked out, and whether files differ from it.
fn commit() -> Result<String> {
    let commit = Program::new("git").arguments(["rev-parse", "--short=10", "HEAD"]).output()?;
    let source = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"];
    let is_changed = !Program::new("git").arguments(source).output()?.trim().is_empty();
    Ok(format!("{}{}", commit.trim(), if is_changed { "+" } else { "" }))
}

/// Where the record is unless the caller names a file.
pub(crate) fn default_record() -> PathBuf {
    top().join("docs/record.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "queue: 100 worlds, 10.83 simulated hours, 26 crashes, 14 losses, 20 faults, 9 crashes while a \
                           snapshot was written, 4846 requests; hash adb66e35b78e8680\n\
                           masters: 1 world, 0.04 simulated hours, 106 crashes, 116 cuts; hash ebac83ecc46e97e3\n\
                           group: 3 worlds, 0.05 simulated hours, 2 crashes, 1 faults; hash 0badc0de0badc0de\n\
                           members: 2 worlds, 0.02 simulated hours, 1 crashes, 1 faults; hash 0badc0de0badc0de\n";

    #[test]
    fn the_time_of_a_target_that_only_read_is_not_the_record_s() {
        let run = |inputs| Ok(fuzz::Statistics::new("row", inputs));
        assert!(!sum_of([run(7), run(1)]).is_void);
        let slice = sum_of([run(7), run(0)]);
        assert!(slice.is_void && slice.findings.is_empty());
        assert_eq!(slice.row[Column::Inputs], 7.0);
        let broken = sum_of([Err(anyhow::anyhow!("the target row broke")), run(1)]);
        assert!(!broken.is_void && broken.findings == ["the target row broke"]);
    }

    #[test]
    fn sums_of_the_simulator_are_read() {
        let slice = read_worlds(PRINTED, Ok(())).unwrap();
        let wanted = [
            (Column::Queue, 100.0),
            (Column::Masters, 1.0),
            (Column::Replicas, 0.0),
            (Column::Group, 3.0),
            (Column::Members, 2.0),
            (Column::Crashes, 135.0),
            (Column::Losses, 14.0),
            (Column::Faults, 22.0),
            (Column::Cuts, 116.0),
        ];
        for (column, number) in wanted {
            assert_eq!(slice.row[column], number, "{column:?}");
        }
        assert!((slice.row[Column::SimulatedTime] - 10.94).abs() < 1e-9);
        assert_eq!(slice.findings, Vec::<String>::new());
    }

    #[test]
    fn a_failing_world_is_a_finding_and_a_simulator_that_cannot_run_an_error() {
        let failed = || Err(anyhow::anyhow!("exit status: 1"));
        let output = "FAILED: queue seed 5, step 7: no\n\
                      repeat it: cargo xtask sim --world queue --seed 5 --steps 7 --verbose\n";
        let slice = read_worlds(output, failed()).unwrap();
        assert_eq!(slice.findings, ["cargo xtask sim --world queue --seed 5 --steps 7"]);
        assert!(read_worlds("", failed()).is_err());
    }

    #[test]
    fn worlds_of_a_kind_without_a_column_are_not_left_out_silently() {
        let error =
            read_worlds("rings: 4 worlds, 0.10 simulated hours, 1 crashes; hash 1\n", Ok(())).unwrap_err();
        assert!(error.to_string().contains("no column for worlds of the kind `rings`"), "{error}");
    }

    #[test]
    fn kills_and_refusals_are_read() {
        let output = "    fifo {}: 12 kills, 20 operations acknowledged, 3 in doubt, 4 tasks finished, 5 left\n    \
                      utube {}: the journal failed 2 times, something else 1 times, 5 kills, 7 requests refused, 8 \
                      operations acknowledged\n";
        let row = read_kills(output);
        assert_eq!((row[Column::Kills], row[Column::Refusals]), (17.0, 3.0));
    }

    #[test]
    fn ended_children_have_used_a_processor() {
        let before = processor_seconds().unwrap();
        let count = ["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"];
        Program::new("sh").arguments(count).output().unwrap();
        assert!(processor_seconds().unwrap() > before);
    }
}
