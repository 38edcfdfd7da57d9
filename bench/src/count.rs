//! `count`: the instructions that a cycle takes, for machines on which times are too noisy to see a change.
//!
//! The server runs twice under `valgrind --tool=callgrind`, the second time for more cycles. The surplus of the second
//! profile over the first is the cost of those cycles, without the start and the end of the program. The kernel's
//! instructions are not counted. How many answers a turn of the server collects depends on time even so, hence the last
//! digits of the numbers are not always the same.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value as Json, json};

use crate::arguments::CountArguments;
use crate::contender::Contender;
use crate::load::Bound;
use crate::profile::{Profile, sorted};
use crate::report;
use crate::trial::{Ground, Length};
use crate::workload::{Measured, Workload};

/// Uncounted cycles before the counted ones.
const WARMUP: u64 = 1_000;
/// What takes fewer instructions of a cycle than this has no line of its own.
const NEGLIGIBLE: f64 = 0.5;
/// The row of the whole, which is no crate's name.
const ALL: &str = "all";

/// What a cycle took of one contender.
#[derive(Debug)]
pub(crate) struct Counted {
    contender: Contender,
    workload: &'static str,
    cycles: u64,
    profile: Profile,
}

/// Instructions of a cycle, by crate, with the sum as [`ALL`].
type ByCrate = BTreeMap<String, f64>;

pub(crate) fn count(arguments: &CountArguments, server: Option<&Path>) -> Result<()> {
    let workload = arguments.workload()?;
    let before = arguments.against.as_deref().map(read_counts).transpose()?;
    let ground = arguments.servers.ground(arguments.servers.files(server))?;
    let mut counted = Vec::new();
    for &contender in &arguments.contenders {
        counted.push(Counted::hold(&ground, contender, &workload, arguments.cycles)?);
    }
    let before = before.unwrap_or_default();
    if arguments.json {
        println!("{:#}", json_of(&counted));
    } else {
        print!("{}, instructions for each cycle\n\n{}", workload.about, table(&counted, &before));
        for counted in counted.iter().filter(|_| arguments.functions > 0) {
            print!("\n{}\n{}", counted.contender, counted.functions(arguments.functions));
        }
    }
    let Some(tolerance) = arguments.tolerance else { return Ok(()) };
    let beyond = counted.iter().filter_map(|counted| {
        let growth = counted.growth(&before)?;
        (growth > tolerance).then(|| format!("{}: {growth:+.1} %", counted.contender))
    });
    let beyond = beyond.collect::<Vec<_>>();
    ensure!(beyond.is_empty(), "cycles take more instructions than before: {}", beyond.join(", "));
    Ok(())
}

impl Counted {
    /// Counts one contender's instructions under a workload of cycles.
    pub(crate) fn hold(
        ground: &Ground,
        contender: Contender,
        workload: &Workload,
        cycles: u64,
    ) -> Result<Self> {
        let consists_of_cycles = matches!(workload.measured, Measured::Cycles(_) | Measured::Batches(_));
        ensure!(consists_of_cycles, "`{}` does not consist of cycles", workload.name);
        let applied = workload.applied_to(contender);
        let contender = applied.with_context(|| format!("{} is not for {contender}", workload.name))?;
        let shorter = profile(ground, contender, workload, 1)?;
        let longer = profile(ground, contender, workload, 1 + cycles)?;
        Ok(Self { contender, workload: workload.name, cycles, profile: longer.beyond(&shorter) })
    }

    fn per_cycle(&self, count: u64) -> f64 {
        count as f64 / self.cycles as f64
    }

    fn by_crate(&self) -> ByCrate {
        let all = (ALL.to_owned(), self.per_cycle(self.profile.total));
        let crates = self.profile.by_crate.iter();
        crates.map(|(name, &count)| (name.clone(), self.per_cycle(count))).chain([all]).collect()
    }

    /// By how many percent a cycle takes more than it did.
    fn growth(&self, before: &BTreeMap<String, ByCrate>) -> Option<f64> {
        let before = before.get(&self.contender.to_string())?.get(ALL)?;
        Some((self.per_cycle(self.profile.total) / before - 1.0) * 100.0)
    }

    /// The functions that take the most.
    fn functions(&self, limit: usize) -> String {
        let functions = sorted(&self.profile.by_function);
        let shown = functions.iter().take(limit).map(|&(name, count)| (name, self.per_cycle(count)));
        shown.filter(|&(_, count)| count >= NEGLIGIBLE).fold(String::new(), |mut text, (name, count)| {
            let _ = writeln!(text, "{count:>9.0}  {name}");
            text
        })
    }
}

/// Profiles a server that does this number of cycles.
fn profile(ground: &Ground, contender: Contender, workload: &Workload, cycles: u64) -> Result<Profile> {
    let folder = tempfile::tempdir_in(&ground.folder)?;
    let file = folder.path().join("callgrind.out");
    let mut output = OsString::from("--callgrind-out-file=");
    output.push(&file);
    let wrapper = vec!["valgrind".into(), "--tool=callgrind".into(), "--fair-sched=yes".into(), output];
    let ground = Ground { wrapper, ..ground.clone() };
    let length = Length { warmup: Bound::Rounds(WARMUP), measured: Bound::Rounds(cycles) };
    ground.hold_trial(contender, workload, length).context("the run under valgrind failed")?;
    match fs::read_to_string(&file) {
        Ok(text) => Profile::read(&text),
        Err(error) => bail!("valgrind has left no profile: {error}"),
    }
}

/// A row for each crate, a column for each contender; behind a number its change from `before`, in percent.
pub(crate) fn table(counted: &[Counted], before: &BTreeMap<String, ByCrate>) -> String {
    let columns = counted.iter().map(Counted::by_crate).collect::<Vec<_>>();
    let mut names = columns.iter().flatten().filter(|&(_, &count)| count >= NEGLIGIBLE).collect::<Vec<_>>();
    names.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(a.cmp(b)));
    let mut rows = vec![vec!["crate".to_owned()]];
    rows[0].extend(counted.iter().map(|counted| counted.contender.to_string()));
    let mut shown = Vec::new();
    for (name, _) in names {
        if shown.contains(&name) {
            continue;
        }
        shown.push(name);
        let mut row = vec![name.clone()];
        row.extend(counted.iter().zip(&columns).map(|(counted, column)| {
            let now = column.get(name).copied().unwrap_or_default();
            let then = before.get(&counted.contender.to_string()).and_then(|then| then.get(name));
            match then.filter(|&&then| then >= NEGLIGIBLE) {
                Some(then) => format!("{now:.0} ({:+.1} %)", (now / then - 1.0) * 100.0),
                None => format!("{now:.0}"),
            }
        }));
        rows.push(row);
    }
    report::table(&rows)
}

pub(crate) fn json_of(counted: &[Counted]) -> Json {
    let of = |counted: &Counted| {
        let functions = sorted(&counted.profile.by_function).into_iter().filter(|&(_, count)| count > 0);
        let functions = functions.map(|(name, count)| (name.to_owned(), json!(counted.per_cycle(count))));
        json!({
            "contender": counted.contender.to_string(),
            "workload": counted.workload,
            "cycles": counted.cycles,
            "instructions_per_cycle": counted.by_crate(),
            "by_function": Json::Object(functions.collect()),
        })
    };
    json!({ "counts": counted.iter().map(of).collect::<Vec<_>>() })
}

/// What [`json_of`] wrote: instructions by crate, by contender.
fn read_counts(path: &Path) -> Result<BTreeMap<String, ByCrate>> {
    let shown = path.display();
    let text = fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let json = serde_json::from_slice::<Json>(&text).with_context(|| format!("{shown} is not JSON"))?;
    counts_of(&json).with_context(|| format!("{shown} is not what `count --json` writes"))
}

fn counts_of(json: &Json) -> Option<BTreeMap<String, ByCrate>> {
    let of = |count: &Json| {
        let by_crate = count["instructions_per_cycle"].as_object()?.iter();
        let by_crate = by_crate.map(|(name, count)| Some((name.clone(), count.as_f64()?)));
        Some((count["contender"].as_str()?.to_owned(), by_crate.collect::<Option<_>>()?))
    };
    json["counts"].as_array()?.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(contender: &str, queue: u64, std: u64) -> Counted {
        let by_crate = [("queue", queue), ("std", std), ("clap", 1)];
        let by_crate = by_crate.map(|(name, count)| (name.to_owned(), count)).into_iter().collect();
        let profile = Profile { total: queue + std + 1, by_crate, ..Profile::default() };
        Counted { contender: contender.parse().unwrap(), workload: "8x32", cycles: 10, profile }
    }

    #[test]
    fn what_grew_is_seen() {
        let before = counts_of(&json_of(&[counted("lycosa:fifo:write", 1000, 499)])).unwrap();
        let now = [counted("lycosa:fifo:write", 1150, 499), counted("lycosa:utube:write", 3000, 600)];
        assert_eq!(now[0].growth(&before).unwrap().round(), 10.0);
        assert_eq!(now[1].growth(&before), None);
        let expected = "\
| crate | lycosa:fifo:write | lycosa:utube:write |
|-------|------------------:|-------------------:|
| all   |     165 (+10.0 %) |                360 |
| queue |     115 (+15.0 %) |                300 |
| std   |        50 (+0.0 %) |                 60 |
";
        let found = table(&now, &before);
        let cells = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(cells(&found)[cells(&found).len() - 16..], cells(expected)[cells(expected).len() - 16..]);
    }

    #[test]
    fn other_json_is_refused() {
        for text in [
            "{}",
            r#"{"counts": [{}]}"#,
            r#"{"counts": [{"contender": "a", "instructions_per_cycle": {"x": "y"}}]}"#,
        ] {
            assert_eq!(counts_of(&serde_json::from_str(text).unwrap()), None, "{text}");
        }
    }
}
