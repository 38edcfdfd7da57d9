//! `lycosa-fuzz`: runs fuzz targets over counted inputs, and writes the inputs that fuzzing under coverage begins with.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use lycosa_fuzz::{TARGETS, counted};

/// Fuzz targets without coverage, and the inputs that they begin with.
#[derive(Debug, Parser)]
#[command(name = "lycosa-fuzz", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Give targets a fixed number of changed inputs, the same for each seed on every machine
    Run {
        /// Inputs of each target
        #[arg(long, value_name = "N", default_value_t = 10_000)]
        inputs: u64,
        /// Where the changes come from
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
        /// The number of the first input
        #[arg(long, value_name = "N", default_value_t = 0)]
        first: u64,
        /// One target; all if absent
        #[arg(value_name = "TARGET")]
        target: Option<String>,
    },
    /// Write the inputs that fuzz targets begin with, one folder for each target
    Seeds {
        /// Where the folders of the targets are made
        folder: PathBuf,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Run { inputs, seed, first, target } => run(inputs, seed, first, target.as_deref()),
        Command::Seeds { folder } => write_seeds(&folder),
    }
}

fn run(inputs: u64, seed: u64, first: u64, only: Option<&str>) -> Result<()> {
    let chosen = TARGETS.iter().filter(|target| only.is_none_or(|only| target.name == only));
    let chosen = chosen.collect::<Vec<_>>();
    let names = TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    ensure!(
        !chosen.is_empty(),
        "there is no fuzz target {:?}; the targets are {names}",
        only.unwrap_or_default()
    );
    for target in chosen {
        counted::run(target, seed, first, inputs)?;
        println!("{}: {inputs} inputs from seed {seed}", target.name);
    }
    Ok(())
}

fn write_seeds(folder: &Path) -> Result<()> {
    for target in &TARGETS {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        for (number, input) in (target.seeds)()?.iter().enumerate() {
            let path = folder.join(format!("seed-{number}"));
            fs::write(&path, input).with_context(|| path.display().to_string())?;
        }
        println!("{}", target.name);
    }
    Ok(())
}
