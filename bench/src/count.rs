//! `count`: the instructions that a cycle takes, for machines on which times are too noisy to see a change.
//!
//! The server runs twice under `valgrind --tool=callgrind`, the second time for so many more cycles. What the second
//! profile has beyond the first is what those cycles took, without the start and the end of the program. The kernel's
//! instructions are not counted. How many answers a turn of the server collects depends on time even so, hence the last
//! digits of the numbers are not always the same.

use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value as Json, json};

use crate::arguments::CountArguments;
use crate::contender::Contender;
use crate::load::Bound;
use crate::profile::{Profile, sorted};
use crate::trial::{Ground, Length};
use crate::workload::{Measured, Workload};

/// Cycles before those that are counted.
const WARMUP: u64 = 1_000;

pub(crate) fn count(arguments: &CountArguments) -> Result<()> {
    let workload = arguments.workload()?;
    ensure!(
        matches!(workload.measured, Measured::Cycles(_)),
        "`{}` does not consist of cycles",
        workload.name
    );
    let named = arguments.contender;
    let contender =
        workload.applied_to(named).with_context(|| format!("{} is not for {named}", workload.name))?;
    let ground = arguments.servers.ground()?;
    let shorter = profile(&ground, contender, &workload, 1)?;
    let longer = profile(&ground, contender, &workload, 1 + arguments.cycles)?;
    let counted = longer.beyond(&shorter);
    if arguments.json {
        println!("{:#}", json_of(contender, &workload, &counted, arguments.cycles));
    } else {
        print!("{}", text_of(contender, &workload, &counted, arguments));
    }
    Ok(())
}

/// Profiles a server that does so many cycles.
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

fn text_of(
    contender: Contender,
    workload: &Workload,
    counted: &Profile,
    arguments: &CountArguments,
) -> String {
    let per_cycle = |count: u64| count as f64 / arguments.cycles as f64;
    let list = |counts: &[(&str, u64)]| {
        let line = |(name, count): &(&str, u64)| format!("{:>9.0}  {name}\n", per_cycle(*count));
        counts.iter().filter(|&&(_, count)| per_cycle(count) >= 0.5).map(line).collect::<String>()
    };
    let functions = sorted(&counted.by_function);
    format!(
        "{contender}: {}\n{:.0} instructions for each of {} cycles\n\nby crate\n{}\nby function\n{}",
        workload.about,
        per_cycle(counted.total),
        arguments.cycles,
        list(&sorted(&counted.by_crate)),
        list(&functions[..functions.len().min(arguments.functions)])
    )
}

fn json_of(contender: Contender, workload: &Workload, counted: &Profile, cycles: u64) -> Json {
    let per_cycle = |count: u64| json!(count as f64 / cycles as f64);
    let of = |counts| {
        let counts = sorted(counts).into_iter().filter(|&(_, count)| count > 0);
        Json::Object(counts.map(|(name, count)| (name.to_owned(), per_cycle(count))).collect())
    };
    json!({
        "contender": contender.to_string(),
        "workload": workload.name,
        "cycles": cycles,
        "instructions_per_cycle": per_cycle(counted.total),
        "by_crate": of(&counted.by_crate),
        "by_function": of(&counted.by_function),
    })
}
