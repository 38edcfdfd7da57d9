//! `lycosa check`: whether a data folder is sound, and its content.
//!
//! First every file is verified ([`verify`](mod@crate::verify)), then the data are loaded as a start does
//! ([`lycosa_engine::inspect`]). Nothing is locked and nothing is changed.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use lycosa_engine::inspect::{self, Contents, Judge, Unsupported};
use lycosa_engine::replay::LoadError;
use lycosa_journal::decision::Category;
use lycosa_journal::directory::{Directory, DirectoryError};
use lycosa_journal::recovery::{Progress, RecoveryError};
use serde_json::{Value as Json, json};

use crate::arguments::CheckArguments;
use crate::commands::progress_bar;
use crate::metrics;
use crate::outcome::Outcome;
use crate::output::{line, table, vclock};
use crate::verify::{self, Fault, FileReport, State};

/// End of the names of the files in which a Tarantool keeps tuples of vinyl spaces.
const RUN_FILE: &str = "run";

/// How often the loading begins anew at most because a running server has removed a file that was to be read.
const MAX_LOADS: usize = 5;

/// How often the progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<Outcome> {
    let folder = &arguments.folder;
    if arguments.recount {
        return metrics::recount(folder, arguments.json);
    }
    let directory = match Directory::inspect(folder) {
        Ok(directory) => directory,
        Err(error @ DirectoryError::Io { .. }) => {
            eprintln!("lycosa: {error}");
            return Ok(Outcome::Unsound(Category::Missing));
        }
        Err(error) => return Err(error.into()),
    };
    let listing = directory.list()?;
    if listing.snapshots.is_empty() && listing.xlogs.is_empty() {
        eprintln!("lycosa: there are neither snapshots nor xlogs in {}", folder.display());
        return Ok(Outcome::Unsound(Category::Missing));
    }

    let mut meter = Meter::new("verifying");
    let names = directory.disk().list()?;
    let total = names.iter().filter_map(|name| directory.disk().open(name).ok()?.size().ok()).sum();
    let files = verify::verify(&directory, listing, &mut |bytes, rows| meter.show(bytes, total, rows))?;
    meter.finish();
    let verified: u64 = files.iter().map(|file| file.rows).sum();
    let verified_in = meter.started.elapsed();

    let mut meter = Meter::new("loading");
    let mut show = |progress: Progress| meter.show(progress.bytes_done, progress.bytes_total, progress.rows);
    let mut load = || {
        if !arguments.for_tarantool {
            return (inspect::load(&directory, &mut show), Vec::new());
        }
        let mut judge = Judge::default();
        let loaded = inspect::judge(&directory, &mut judge, &mut show);
        (loaded, judge.objections())
    };
    let (mut loaded, mut objections) = load();
    for _ in 1..MAX_LOADS {
        if !matches!(&loaded, Err(error) if is_gone(error)) {
            break;
        }
        (loaded, objections) = load();
    }
    meter.finish();
    let loaded_in = meter.started.elapsed();

    let contents = loaded.as_ref().ok().and_then(Option::as_ref);
    let mut report = Report { faults: Vec::new(), json: arguments.json };
    report.files(&files)?;
    report.rate("verified", verified, verified_in)?;
    match (&loaded, contents) {
        (Err(error), _) => report.refusal(error)?,
        (Ok(_), Some(contents)) => {
            report.findings(contents)?;
            report.rate("loaded", contents.rows, loaded_in)?;
            report.contents(contents)?;
            report.unsupported(folder, &contents.unsupported)?;
            if arguments.for_tarantool {
                report.objections(&objections)?;
            }
        }
        (Ok(_), None) => {}
    }
    let refused = loaded.as_ref().err().map(LoadError::category);
    let category = refused.or_else(|| report.faults.first().map(|fault| fault.category));
    report.verdict(contents, category, &files)?;
    Ok(category.map_or(Outcome::Done, Outcome::Unsound))
}

/// Whether a file was removed between two looks at the folder, as a running server does with old ones.
fn is_gone(error: &LoadError) -> bool {
    matches!(error, LoadError::Recovery(RecoveryError::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound)
}

/// A progress bar with rows per second.
struct Meter {
    bar: Option<ProgressBar>,
    what: &'static str,
    started: Instant,
    shown: Instant,
}

impl Meter {
    fn new(what: &'static str) -> Self {
        let now = Instant::now();
        Self { bar: None, what, started: now, shown: now }
    }

    fn show(&mut self, bytes: u64, total: u64, rows: u64) {
        if self.shown.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.shown = Instant::now();
        let bar = self.bar.get_or_insert_with(|| progress_bar(Some(total)));
        bar.set_position(bytes);
        let rate = per_second(rows, self.started.elapsed());
        bar.set_message(format!("{}: {rows} rows, {rate} rows/s", self.what));
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn per_second(rows: u64, elapsed: Duration) -> u64 {
    (rows as f64 / elapsed.as_secs_f64().max(1e-6)) as u64
}

/// The printed report.
struct Report {
    /// Everything for which the folder is not sound.
    faults: Vec<Fault>,
    json: bool,
}

impl Report {
    fn files(&mut self, files: &[FileReport]) -> anyhow::Result<()> {
        if self.json {
            files.iter().try_for_each(|file| line(file_json(file)))?;
        } else {
            let clock = |clock: &Option<_>| clock.as_ref().map_or(String::new(), ToString::to_string);
            let rows: Vec<Vec<String>> = files
                .iter()
                .map(|file| {
                    let (bytes, rows) = (file.bytes.to_string(), file.rows.to_string());
                    let (begins, ends) = (clock(&file.begins), clock(&file.ends));
                    vec![file.name.clone(), bytes, rows, begins, ends, file.state.name().to_owned()]
                })
                .collect();
            table(&["file", "bytes", "rows", "begins", "ends", "state"], &rows)?;
            for file in files {
                for fault in &file.faults {
                    line(format_args!("FAULT in {}: {}", file.name, fault.text))?;
                }
                for note in &file.notes {
                    line(format_args!("note on {}: {note}", file.name))?;
                }
            }
        }
        let faults = files.iter().flat_map(|file| &file.faults);
        self.faults.extend(faults.cloned());
        Ok(())
    }

    fn rate(&self, what: &str, rows: u64, elapsed: Duration) -> anyhow::Result<()> {
        if !self.json {
            let rate = per_second(rows, elapsed);
            line(format_args!("{what} {rows} rows in {elapsed:.2?} ({rate} rows/s)\n"))?;
        }
        Ok(())
    }

    fn refusal(&mut self, error: &LoadError) -> anyhow::Result<()> {
        let text = format!("a start would be refused: {error}");
        if !self.json {
            line(format_args!("FAULT: {text}"))?;
        }
        self.faults.push(Fault { category: error.category(), text });
        Ok(())
    }

    /// What a start would say about the files.
    fn findings(&self, contents: &Contents) -> anyhow::Result<()> {
        for resolution in &contents.resolutions {
            if self.json {
                line(json!({ "finding": resolution.to_string() }))?;
            } else {
                line(format_args!("a start says: {resolution}"))?;
            }
        }
        Ok(())
    }

    fn contents(&self, contents: &Contents) -> anyhow::Result<()> {
        if self.json {
            for space in &contents.spaces {
                line(json!({
                    "space": space.name, "id": space.id, "engine": space.engine, "indexes": space.indexes,
                    "tuples": space.tuples, "bytes": space.bytes,
                }))?;
            }
            for tube in &contents.tubes {
                line(json!({
                    "tube": tube.name, "type": tube.kind, "has_space": tube.has_space, "ready": tube.ready,
                    "taken": tube.taken, "delayed": tube.delayed, "buried": tube.buried, "other": tube.other,
                }))?;
            }
            return Ok(());
        }
        let (system, users): (Vec<_>, Vec<_>) = contents.spaces.iter().partition(|space| space.is_system());
        let count = |spaces: &[&inspect::SpaceContents]| {
            let tuples: u64 = spaces.iter().map(|space| space.tuples).sum();
            let bytes: u64 = spaces.iter().map(|space| space.bytes).sum();
            (tuples.to_string(), bytes.to_string())
        };
        let mut rows: Vec<Vec<String>> = users
            .iter()
            .map(|space| {
                let (id, indexes) = (space.id.to_string(), space.indexes.to_string());
                let (tuples, bytes) = count(&[space]);
                vec![space.name.clone(), id, space.engine.to_owned(), indexes, tuples, bytes]
            })
            .collect();
        let (tuples, bytes) = count(&system);
        let indexes: usize = system.iter().map(|space| space.indexes).sum();
        let name = format!("{} of the system", system.len());
        rows.push(vec![name, String::new(), String::new(), indexes.to_string(), tuples, bytes]);
        table(&["space", "id", "engine", "indexes", "tuples", "bytes"], &rows)?;
        line("")?;
        if contents.tubes.is_empty() {
            return Ok(());
        }
        let rows: Vec<Vec<String>> = contents
            .tubes
            .iter()
            .map(|tube| {
                let counts = [tube.ready, tube.taken, tube.delayed, tube.buried, tube.other];
                let names = [tube.name.clone(), tube.kind.clone()];
                names.into_iter().chain(counts.map(|count| count.to_string())).collect()
            })
            .collect();
        table(&["tube", "type", "ready", "taken", "delayed", "buried", "other"], &rows)?;
        line("")?;
        for tube in contents.tubes.iter().filter(|tube| !tube.has_space) {
            line(format_args!("note on tube {}: its space is not there", tube.name))?;
        }
        Ok(())
    }

    fn unsupported(&mut self, folder: &Path, unsupported: &[Unsupported]) -> anyhow::Result<()> {
        for found in unsupported {
            if self.json {
                line(json!({ "unsupported": found.what(), "here": found.here(), "advice": found.advice() }))?;
            } else {
                line(format_args!("not run here: {found}"))?;
            }
            let Unsupported::Vinyl { id, space } = found else { continue };
            let files = run_files(&folder.join(id.to_string()));
            if files > 0 {
                let text =
                    format!("{files} .run file(s) in {id}/ with tuples of space '{space}' are not read");
                if !self.json {
                    line(format_args!("FAULT: {text}"))?;
                }
                self.faults.push(Fault { category: Category::Foreign, text });
            }
        }
        Ok(())
    }

    /// What a Tarantool would refuse.
    fn objections(&mut self, objections: &[String]) -> anyhow::Result<()> {
        if objections.is_empty() && !self.json {
            line("a Tarantool 2.6 finds nothing to refuse, as far as can be told without SQL and Lua")?;
        }
        for text in objections {
            if self.json {
                line(json!({ "for_tarantool": text }))?;
            } else {
                line(format_args!("a Tarantool refuses: {text}"))?;
            }
            self.faults
                .push(Fault { category: Category::Foreign, text: format!("a Tarantool refuses {text}") });
        }
        Ok(())
    }

    fn verdict(
        &self,
        contents: Option<&Contents>,
        category: Option<Category>,
        files: &[FileReport],
    ) -> anyhow::Result<()> {
        if self.json {
            line(json!({
                "sound": category.is_none(),
                "exit": category.map_or(0, Category::exit_code),
                "faults": self.faults.iter().map(|fault| fault.text.as_str()).collect::<Vec<_>>(),
                "instance": contents.map(|contents| contents.instance.to_string()),
                "vclock": contents.map(|contents| vclock(&contents.vclock)),
                "digest": contents.map(digest),
            }))?;
            return Ok(());
        }
        if let Some(contents) = contents {
            line(format_args!("instance  {}", contents.instance))?;
            line(format_args!("vclock    {}", contents.vclock))?;
            line(format_args!("digest    {}", digest(contents)))?;
        }
        if let Some(newest) = files.iter().rfind(|file| file.name.ends_with(".xlog"))
            && matches!(newest.state, State::Open | State::Torn)
        {
            line(format_args!(
                "{} has no end marker: if a server is running, its last rows may still be on the way",
                newest.name
            ))?;
        }
        match category {
            None => line("all is sound")?,
            Some(category) => line(format_args!("NOT SOUND, exit code {}", category.exit_code()))?,
        }
        Ok(())
    }
}

pub(crate) fn digest(contents: &Contents) -> String {
    format!("{:032x}", contents.digest)
}

fn file_json(file: &FileReport) -> Json {
    json!({
        "file": file.name,
        "state": file.state.name().to_lowercase(),
        "bytes": file.bytes,
        "rows": file.rows,
        "transactions": file.transactions,
        "begins": file.begins.as_ref().map(vclock),
        "ends": file.ends.as_ref().map(vclock),
        "faults": file.faults.iter().map(|fault| fault.text.as_str()).collect::<Vec<_>>(),
        "notes": file.notes,
    })
}

/// How many files with tuples of a vinyl space there are below its folder: one folder for each index.
fn run_files(folder: &Path) -> usize {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let indexes = entries(folder).map(|entry| entry.path());
    let files = indexes.flat_map(|index| entries(&index).map(|entry| entry.path()).collect::<Vec<_>>());
    files.filter(|file| file.extension().is_some_and(|extension| extension == RUN_FILE)).count()
}
