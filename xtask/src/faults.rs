//! Faults that are put into the server on purpose, to see that the simulator's worlds find them.
//!
//! A fault is a patch in `crates/sim/faults`: two lines name the server's fault and the kind of world that has to find it, and behind
//! them stands the diff. Each patch is applied alone, to a copy of the last commit in the target folder; the tree itself is
//! never changed. `cargo xtask tidy` says which patches do not fit the code any more ([`unfit`]).
//!
//! Absent: a record. The table that the command prints is pasted into `docs/record.md`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::command::Program;
use crate::sim::SAME_WORLDS;
use crate::top;

const FOLDER: &str = "crates/sim/faults";

/// Characters of a world's words that the table shows.
const LONGEST_TEXT: usize = 140;

/// A patch, with its first two lines.
#[derive(Debug, PartialEq)]
struct Fault {
    /// The file's name without its ending.
    name: String,
    patch: PathBuf,
    /// The server's fault.
    what: String,
    /// The kind of world that has to find it.
    world: String,
}

/// What a world says of a fault.
#[derive(Debug, PartialEq)]
struct Finding {
    seed: String,
    text: String,
}

/// Puts each fault in, or the faults with these names, and runs the worlds that each `cargo xtask test` runs.
///
/// # Errors
/// A name that no fault has; a patch that does not fit or compile; a fault that no world finds.
pub(crate) fn run(names: &[String]) -> Result<()> {
    let faults = all()?;
    for name in names {
        let known = || faults.iter().map(|fault| &*fault.name).collect::<Vec<_>>().join(", ");
        ensure!(
            faults.iter().any(|fault| fault.name == *name),
            "there is no fault `{name}`, but {}",
            known()
        );
    }
    let place = crate::steps::target_folder()?.join("faults");
    let tree = place.join("tree");
    copy_of_the_last_commit(&tree)?;
    let mut rows = vec![
        "| fault | world | first seed | what the world says |".to_owned(),
        "|---|---|--:|---|".to_owned(),
    ];
    let mut missed = Vec::new();
    for fault in faults.iter().filter(|fault| names.is_empty() || names.contains(&fault.name)) {
        println!("== {}: {}", fault.name, fault.what);
        let found = fault.find(&tree, &place.join("target"))?;
        let (seed, text) = found.as_ref().map_or(("", "nothing"), |found| (&found.seed, &found.text));
        rows.push(format!("| {} | {} | {seed} | {text} |", fault.what, fault.world));
        if found.is_none() {
            missed.push(&*fault.name);
        }
    }
    rows.iter().for_each(|row| println!("{row}"));
    ensure!(missed.is_empty(), "no world finds {}", missed.join(", "));
    Ok(())
}

/// The patches that cannot be applied to the tree as it is, with the reasons of `git apply`.
///
/// # Errors
/// A patch that cannot be read.
pub(crate) fn unfit() -> Result<Vec<(String, String)>> {
    let reason = |fault: Fault| {
        let check = Program::new("git").arguments(["apply", "--check"]).arguments([&fault.patch]);
        let name = format!("{FOLDER}/{}.patch", fault.name);
        check.output().err().map(|error| (name, format!("{error:#}").replace('\n', " ")))
    };
    Ok(all()?.into_iter().filter_map(reason).collect())
}

fn all() -> Result<Vec<Fault>> {
    let listed = fs::read_dir(top().join(FOLDER)).with_context(|| format!("cannot list {FOLDER}"))?;
    let mut patches = listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    patches.into_iter().map(Fault::read).collect()
}

/// Makes the folder a new clone of this repository.
fn copy_of_the_last_commit(tree: &Path) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    Program::new("git").arguments(["clone", "--quiet", "--shared"]).arguments([top(), tree.to_owned()]).run()
}

impl Fault {
    fn read(patch: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&patch).with_context(|| format!("cannot read {}", patch.display()))?;
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let said = |what: &str| text.lines().find_map(|line| line.strip_prefix(what)).map(str::to_owned);
        let (Some(what), Some(world)) = (said("fault: "), said("world: ")) else {
            bail!(
                "{} begins with `fault: …` and `world: …`: the server's fault, and the kind of world that finds it",
                patch.display()
            );
        };
        Ok(Self { name, patch, what, world })
    }

    /// Builds the simulator with the fault, and looks for the first world that finds it.
    fn find(&self, tree: &Path, target: &Path) -> Result<Option<Finding>> {
        let apply = |direction: &[&str]| {
            let git = Program::new("git").folder(tree).arguments(["apply"]).arguments(direction);
            git.arguments([&self.patch]).run()
        };
        apply(&[])?;
        let build = ["build", "--quiet", "--package", "lycosa-sim", "--profile", "checked"];
        let built = Program::cargo().folder(tree).arguments(build);
        let built =
            built.variable("CARGO_TARGET_DIR", target).variable("RUSTFLAGS", "--allow=warnings").run();
        apply(&["--reverse"])?;
        built.with_context(|| format!("the fault {} does not compile", self.name))?;
        let (worlds, seed) = SAME_WORLDS;
        let run = Program::new(target.join("checked/lycosa-sim")).arguments(["--world", &*self.world]);
        // One after the other, so that the first is the first.
        let run = run.arguments(["--worlds", worlds, "--seed", seed, "--jobs", "1"]);
        Finding::read(&run.watched()?)
    }
}

impl Finding {
    /// What the simulator printed, and how it ended.
    fn read((output, outcome): &(String, Result<()>)) -> Result<Option<Self>> {
        let after = |start: &str| output.lines().find_map(|line| line.strip_prefix(start));
        let seed = after("repeat it: ").and_then(|line| line.split(" --seed ").nth(1)?.split(' ').next());
        match (outcome, seed, after("FAILED: ")) {
            (Err(_), Some(seed), Some(text)) => {
                // Kind, seed and step come first.
                let text = text.split_once(": ").map_or(text, |(_, text)| text);
                let is_long = text.chars().nth(LONGEST_TEXT).is_some();
                let short = text.chars().take(LONGEST_TEXT).collect::<String>().replace('|', "\\|");
                let text = if is_long { short + " …" } else { short };
                Ok(Some(Self { seed: seed.to_owned(), text }))
            }
            (Ok(()), None, None) => Ok(None),
            _ => bail!("the simulator ended in another way: {outcome:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the patches fit is the affair of `tidy`.
    #[test]
    fn every_patch_says_what_it_does() {
        let faults = all().unwrap();
        assert!(faults.len() >= 10, "{faults:?}");
    }

    #[test]
    fn a_finding_is_read() {
        let output = "what happened last:\n  x\nFAILED: queue seed 7, step 3: a | b\nrepeat it: cargo xtask sim --world queue --seed 7 --steps 3 --verbose\n";
        let found = Finding::read(&(output.to_owned(), Err(anyhow::anyhow!("exit code 1")))).unwrap();
        assert_eq!(found, Some(Finding { seed: "7".to_owned(), text: "a \\| b".to_owned() }));
        assert_eq!(Finding::read(&("150 worlds: every promise was kept".to_owned(), Ok(()))).unwrap(), None);
        assert!(Finding::read(&(String::new(), Err(anyhow::anyhow!("killed")))).is_err());
    }
}
