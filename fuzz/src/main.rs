//! `lycosa-fuzz-seeds`: writes the inputs that fuzzing begins with.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use lycosa_fuzz::TARGETS;

/// Writes the inputs that fuzz targets begin with, one folder for each target.
#[derive(Debug, Parser)]
#[command(name = "lycosa-fuzz-seeds", version)]
struct Arguments {
    /// Where the folders of the targets are made
    folder: PathBuf,
}

fn main() -> Result<()> {
    let Arguments { folder } = Arguments::parse();
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
