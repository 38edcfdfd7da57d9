//! `lycosa-fuzz-run`: runs fuzz targets for a while.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use lycosa_fuzz::driver::{self, Broken};
use lycosa_fuzz::{TARGETS, Target};

/// Runs fuzz targets on changed inputs of the corpus.
#[derive(Debug, Parser)]
#[command(name = "lycosa-fuzz-run", version)]
struct Arguments {
    /// Seconds, shared among the targets
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where the changes come from; random if absent
    #[arg(long)]
    seed: Option<u64>,
    /// Run this input only, once
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
    /// Write the inputs that targets begin with into this folder, one folder for each target, and end
    #[arg(long, value_name = "FOLDER", conflicts_with = "input")]
    write_seeds: Option<PathBuf>,
    /// One target; all if absent
    #[arg(value_parser = names())]
    target: Option<String>,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(TARGETS.iter().map(|target| target.name))
}

fn report(broken: &Broken) -> Result<()> {
    let Broken { target, seed, message, input } = broken;
    let path = driver::save(target, input)?;
    println!("{target} BROKE: {message}");
    println!("  seed {seed}; the input has {} bytes: {}", input.len(), path.display());
    if input.len() <= 512 {
        println!("  {}", input.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }
    println!("  again: cargo run -p lycosa-fuzz -- --input {} {target}", path.display());
    Ok(())
}

fn fuzz(targets: &[&'static Target], seed: u64, seconds: u64) -> Result<bool> {
    let share = Duration::from_secs(seconds) / targets.len() as u32;
    let mut all_held = true;
    for target in targets {
        match driver::run(target, seed, share)? {
            Ok(totals) => {
                println!("{}: {} inputs, {} kept", target.name, totals.inputs, totals.kept);
            }
            Err(broken) => {
                report(&broken)?;
                all_held = false;
            }
        }
    }
    Ok(all_held)
}

fn write_seeds(targets: &[&'static Target], folder: &Path) -> Result<()> {
    for target in targets {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        for (number, input) in (target.seeds)()?.iter().enumerate() {
            let path = folder.join(format!("seed-{number}"));
            fs::write(&path, input).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let is_chosen = |target: &&Target| arguments.target.as_ref().is_none_or(|name| name == target.name);
    let targets: Vec<_> = TARGETS.iter().filter(is_chosen).collect();
    if let Some(folder) = &arguments.write_seeds {
        write_seeds(&targets, folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let held = match (&arguments.input, targets.first()) {
        (Some(path), Some(target)) => {
            let input = fs::read(path).with_context(|| path.display().to_string())?;
            let outcome = driver::execute(target, &input);
            println!("{}: {}", target.name, outcome.as_ref().err().map_or("held", String::as_str));
            outcome.is_ok()
        }
        _ => {
            let seed = arguments.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
            println!("seed {seed}");
            fuzz(&targets, seed, arguments.seconds)?
        }
    };
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
