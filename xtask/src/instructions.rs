//! The gate on instructions: what a cycle of put, take and ack takes in an instance, by type of tube, must not rise.
//!
//! `crates/instance/examples/cycles.rs` runs the cycles in one process, and valgrind counts its instructions. Two runs of one
//! binary differ by less than 0.1 %, because nothing in it depends on time. [`FIGURES`] has what was counted last. It goes with
//! the compiler that `rust-toolchain.toml` names and with x86-64: elsewhere nothing is compared.
//!
//! Absent: sockets, files and the threads around the instance, some 700 instructions of a cycle. `lycosa bench count` has
//! them, on a release build of the whole server.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::command::Program;
use crate::steps::target_folder;
use crate::top;

/// The recorded figures, in the repository: a JSON object of instructions for each cycle by type of tube.
const FIGURES: &str = "crates/instance/examples/cycles.json";

/// By how many percent a figure may rise. The same code counts up to 1 % more or less where memory is copied by other
/// instructions (a processor without AVX).
const TOLERANCE: f64 = 1.5;

/// Instructions for each cycle by type of tube.
type Figures = BTreeMap<String, u64>;

/// Counts and compares; with `record` writes the figures down instead.
pub(crate) fn check(record: bool) -> Result<()> {
    let path = top().join(FIGURES);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {FIGURES}"))?;
    let recorded: Figures = serde_json::from_str(&text)
        .with_context(|| format!("{FIGURES} is not what `count --record` writes"))?;
    if !cfg!(target_arch = "x86_64") {
        println!("the figures in {FIGURES} are those of x86-64: nothing to compare");
        return Ok(());
    }
    let build = ["build", "--release", "--quiet", "--package", "lycosa-instance", "--example", "cycles"];
    Program::cargo().arguments(build).run()?;
    let binary = target_folder()?.join("release/examples/cycles");
    let counted = recorded.keys().map(|tube_type| Ok((tube_type.clone(), count(&binary, tube_type)?)));
    let counted = counted.collect::<Result<Figures>>()?;
    if record {
        let text = format!("{:#}\n", serde_json::to_value(&counted)?);
        return fs::write(&path, text).with_context(|| format!("cannot write {FIGURES}"));
    }
    compare(&recorded, &counted)
}

/// Instructions for each cycle with a tube of that type.
fn count(binary: &Path, tube_type: &str) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let profile = folder.path().join("callgrind.out");
    let mut output = std::ffi::OsString::from("--callgrind-out-file=");
    output.push(&profile);
    let printed = Program::new("valgrind")
        .arguments([
            "--quiet",
            "--tool=callgrind",
            "--collect-atstart=no",
            "--toggle-collect=*serve_counted*",
        ])
        .arguments([output.as_os_str(), binary.as_os_str(), tube_type.as_ref()])
        .output()
        .context("valgrind is Debian's package of that name; `cargo xtask install` installs it")?;
    let cycles = printed.trim().parse::<u64>().context("`cycles` prints how many cycles were counted")?;
    let profile = fs::read_to_string(&profile).context("valgrind has left no profile")?;
    let total = total_of(&profile).context("valgrind's profile has no total")?;
    ensure!(total > 0, "no instruction was counted: is `serve_counted` still there?");
    Ok(total / cycles)
}

/// `totals: 51102345`, or in older versions `summary:`.
fn total_of(profile: &str) -> Option<u64> {
    let total = |name: &str| profile.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    total("totals:").or_else(|| total("summary:"))
}

fn compare(recorded: &Figures, counted: &Figures) -> Result<()> {
    let mut risen = Vec::new();
    for (tube_type, &now) in counted {
        let before = recorded.get(tube_type).copied().unwrap_or(now);
        let growth = (now as f64 / before as f64 - 1.0) * 100.0;
        println!("{tube_type}: {now} instructions for each cycle, {growth:+.1} % of the recorded {before}");
        if growth > TOLERANCE {
            risen.push(format!("{tube_type} {growth:+.1} %"));
        }
    }
    if !risen.is_empty() {
        bail!(
            "cycles take more instructions than recorded in {FIGURES}, by more than {TOLERANCE} %: {}. \
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
        assert!(compare(&recorded, &figures(10_150, 15_000)).is_ok());
        let refused = compare(&recorded, &figures(10_151, 20_400)).unwrap_err().to_string();
        assert!(refused.contains("by more than 1.5 %: fifo +1.5 %, utube +2.0 %."), "{refused}");
    }

    #[test]
    fn the_total_is_read() {
        assert_eq!(total_of("events: Ir\n\nfn=(1) main\n1 5\n\ntotals: 51102345\n"), Some(51_102_345));
        assert_eq!(total_of("summary: 7\nfn=(1)"), Some(7));
        assert_eq!(total_of("fn=(1) main\n1 5\n"), None);
    }
}
