//! The house rules that a machine can check.
//!
//! Each rule adds to a list of [`Fault`]s and knows no other rule; `cargo xtask tidy` prints all of them at once.
//! A rule that needs judgement is not here: it belongs into a review.

mod arrows;
mod circles;
mod dependencies;
mod foreign;
mod links;
mod lock;
mod modules;
mod sentences;
mod text;
mod unused;
mod vague;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::Program;
use crate::{steps, top};

/// Something against a rule: where, and what.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    place: String,
    what: String,
}

impl Fault {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }

    /// In a line, counted from 1.
    fn at(path: &Path, line: usize, what: impl Into<String>) -> Self {
        Self::new(format!("{}:{line}", path.display()), what)
    }
}

/// A file of the repository that people wrote.
#[derive(Debug)]
pub(crate) struct Source {
    /// From the top of the repository.
    path: PathBuf,
    text: String,
}

impl Source {
    fn has_extension(&self, wanted: &[&str]) -> bool {
        self.path.extension().is_some_and(|extension| wanted.iter().any(|wanted| extension == *wanted))
    }
}

/// Checks every rule; prints each fault in a line.
pub(crate) fn check() -> Result<()> {
    let sources = sources()?;
    let metadata = steps::metadata()?;
    let mut faults = Vec::new();
    arrows::check(&metadata, &mut faults)?;
    dependencies::check(&metadata, &mut faults)?;
    lock::check(&metadata, &mut faults)?;
    let all = steps::metadata_with_dependencies()?;
    foreign::check(&all, &mut faults)?;
    unused::check(&all, &sources, &mut faults)?;
    for source in &sources {
        text::check(source, &mut faults);
        modules::check(source, &mut faults);
        sentences::check(source, &mut faults);
    }
    circles::check(&sources, &mut faults);
    links::check(&sources, &mut faults);
    vague::check(&sources, &mut faults)?;
    for (patch, reason) in crate::faults::unfit()? {
        faults.push(Fault::new(patch, format!("does not fit the code any more: {reason}")));
    }
    for fault in &faults {
        println!("{}: {}", fault.place, fault.what);
    }
    for warning in sources.iter().filter_map(text::long_file) {
        println!("{}: {} (only a warning)", warning.place, warning.what);
    }
    for (name, versions) in foreign::several_versions(&all) {
        let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
        println!("Cargo.lock: `{name}` in several versions: {versions} (only a warning)");
    }
    if !faults.is_empty() {
        bail!("{} against the house rules", faults.len());
    }
    println!("{} files follow the house rules", sources.len());
    Ok(())
}

/// Lists the imports of a crate that stand in circles of its files.
pub(crate) fn circles(folder: &Path) -> Result<()> {
    circles::list(&sources()?, folder);
    Ok(())
}

/// Lists the lines with words that stand where a noun belongs, or writes the counts down.
pub(crate) fn words(folder: Option<&str>, record: bool) -> Result<()> {
    let sources = sources()?;
    if record {
        vague::record(&sources)?;
    }
    vague::list(&sources, folder);
    Ok(())
}

/// Text files that git knows or would take, but recorded data.
fn sources() -> Result<Vec<Source>> {
    const RECORDED: [&str; 2] = ["corpus/", "fuzz/corpus/"];
    const EXTENSIONS: [&str; 13] =
        ["rs", "toml", "md", "py", "js", "html", "css", "lua", "txt", "json", "yml", "yaml", "sh"];
    let listed = Program::new("git")
        .arguments(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("tidy asks git for the list of files")?;
    let mut sources = Vec::new();
    for path in listed.lines().map(PathBuf::from) {
        let is_recorded =
            RECORDED.iter().any(|folder| path.starts_with(folder)) && path.extension() != Some("md".as_ref());
        let source = Source { path, text: String::new() };
        if is_recorded || !(source.has_extension(&EXTENSIONS) || source.path.starts_with(".ci")) {
            continue;
        }
        // A file that was removed and not committed yet is still listed.
        let Ok(bytes) = fs::read(top().join(&source.path)) else { continue };
        let text =
            String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", source.path.display()))?;
        sources.push(Source { text, ..source });
    }
    Ok(sources)
}
