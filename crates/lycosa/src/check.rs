//! `lycosa check`: whether a data folder is sound, and its content.
//!
//! `lycosa_folder::examine` verifies every file and loads the data as a start does; this module prints what it has found.

use std::io;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use lycosa_engine::inspect::{self, Contents, GroupContents};
use lycosa_folder::examine::{Examination, ExamineError, Progress, Stage, examine};
use lycosa_folder::verify::{FileReport, State};
use lycosa_journal::decision::Category;
use lycosa_journal::directory::DirectoryError;
use serde_json::{Value as Json, json};

use crate::arguments::CheckArguments;
use crate::commands::bytes_bar;
use crate::metrics;
use crate::outcome::Outcome;
use crate::output::{either, line, table, vclock};

/// How often the progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<Outcome> {
    let folder = &arguments.folder;
    if arguments.recount {
        return metrics::recount(folder, arguments.json);
    }
    let now = Instant::now();
    let mut meter = Meter { shown: None, began: now, last: now };
    let sql = arguments.for_tarantool.then_some(lycosa_server::SQL_KNOWLEDGE);
    let examined = examine(folder, sql, &mut |progress| meter.show(progress));
    meter.finish();
    let examination = match examined {
        Ok(examination) => examination,
        Err(error @ (ExamineError::Empty(_) | ExamineError::Folder(DirectoryError::Io { .. }))) => {
            eprintln!("lycosa: {error}");
            return Ok(Outcome::Unsound(Category::Missing));
        }
        Err(error) => return Err(error.into()),
    };
    Report { examination: &examination, json: arguments.json }.print(arguments.for_tarantool)?;
    Ok(examination.category().map_or(Outcome::Done, Outcome::Unsound))
}

/// A progress bar with rows per second, anew for each stage.
struct Meter {
    shown: Option<(Stage, ProgressBar)>,
    began: Instant,
    last: Instant,
}

impl Meter {
    fn show(&mut self, Progress { stage, bytes_done, bytes_total, rows }: Progress) {
        if self.last.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.last = Instant::now();
        if self.shown.as_ref().is_none_or(|(shown, _)| *shown != stage) {
            self.finish();
            self.began = self.last;
            self.shown = Some((stage, bytes_bar(Some(bytes_total))));
        }
        let Some((_, bar)) = &self.shown else { return };
        bar.set_position(bytes_done);
        let rate = per_second(rows, self.began.elapsed());
        let what = match stage {
            Stage::Verifying => "verifying",
            Stage::Loading => "loading",
        };
        bar.set_message(format!("{what}: {rows} rows, {rate} rows/s"));
    }

    fn finish(&mut self) {
        if let Some((_, bar)) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

fn per_second(rows: u64, elapsed: Duration) -> u64 {
    (rows as f64 / elapsed.as_secs_f64().max(1e-6)) as u64
}

/// The printed report.
struct Report<'a> {
    examination: &'a Examination,
    json: bool,
}

impl Report<'_> {
    fn print(&self, for_tarantool: bool) -> anyhow::Result<()> {
        let Examination { files, objections, verified_in, loaded_in, .. } = self.examination;
        self.files(files)?;
        self.rate("verified", self.examination.verified_rows(), *verified_in)?;
        if let Some(contents) = self.examination.contents() {
            // What a start would say about the files.
            self.findings(&contents.resolutions, |resolution| {
                (json!({ "finding": resolution.to_string() }), format!("a start says: {resolution}"))
            })?;
            self.rate("loaded", contents.rows, *loaded_in)?;
            self.contents(contents)?;
            self.findings(&contents.unsupported, |found| {
                let object =
                    json!({ "unsupported": found.what(), "here": found.here(), "advice": found.advice() });
                (object, format!("not run here: {found}"))
            })?;
            if for_tarantool && objections.is_empty() && !self.json {
                line("a Tarantool 2.6 finds nothing to refuse, as far as can be told without SQL and Lua")?;
            }
            self.findings(objections.iter().filter(|_| for_tarantool), |text| {
                (json!({ "for_tarantool": text }), format!("a Tarantool refuses: {text}"))
            })?;
        }
        // Objections have been printed as such.
        let said = self.examination.contents().map_or(0, |_| objections.len());
        let faults = &self.examination.faults;
        for fault in faults.iter().take(faults.len() - said).filter(|_| !self.json) {
            line(format_args!("FAULT: {}", fault.text))?;
        }
        self.verdict()
    }

    fn files(&self, files: &[FileReport]) -> anyhow::Result<()> {
        if self.json {
            return Ok(files.iter().try_for_each(|file| line(file_json(file)))?);
        }
        let clock = |clock: &Option<_>| clock.as_ref().map_or(String::new(), ToString::to_string);
        let rows = files.iter().map(|file| {
            let (bytes, rows) = (file.bytes.to_string(), file.rows.to_string());
            let (begins, ends) = (clock(&file.begins), clock(&file.ends));
            [file.name.clone(), bytes, rows, begins, ends, file.state.name().to_owned()]
        });
        table(&["file", "bytes", "rows", "begins", "ends", "state"], rows)?;
        for file in files {
            for fault in &file.faults {
                line(format_args!("FAULT in {}: {}", file.name, fault.text))?;
            }
            for note in &file.notes {
                line(format_args!("note on {}: {note}", file.name))?;
            }
        }
        Ok(())
    }

    fn rate(&self, what: &str, rows: u64, elapsed: Duration) -> anyhow::Result<()> {
        if !self.json {
            let rate = per_second(rows, elapsed);
            line(format_args!("{what} {rows} rows in {elapsed:.2?} ({rate} rows/s)\n"))?;
        }
        Ok(())
    }

    /// Prints each finding as an object, or in words.
    fn findings<T>(
        &self,
        found: impl IntoIterator<Item = T>,
        show: impl Fn(T) -> (Json, String),
    ) -> io::Result<()> {
        found.into_iter().map(show).try_for_each(|(object, words)| either(self.json, object, words))
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
        let row = |name: String, id: String, engine: &str, spaces: &[&inspect::SpaceContents]| {
            let indexes: usize = spaces.iter().map(|space| space.indexes).sum();
            let tuples: u64 = spaces.iter().map(|space| space.tuples).sum();
            let bytes: u64 = spaces.iter().map(|space| space.bytes).sum();
            [name, id, engine.to_owned(), indexes.to_string(), tuples.to_string(), bytes.to_string()]
        };
        let rows =
            users.iter().map(|space| row(space.name.clone(), space.id.to_string(), space.engine, &[space]));
        let last = row(format!("{} of the system", system.len()), String::new(), "", &system);
        table(&["space", "id", "engine", "indexes", "tuples", "bytes"], rows.chain([last]))?;
        line("")?;
        if contents.tubes.is_empty() {
            return Ok(());
        }
        let rows = contents.tubes.iter().map(|tube| -> Vec<String> {
            let counts = [tube.ready, tube.taken, tube.delayed, tube.buried, tube.other];
            let names = [tube.name.clone(), tube.kind.clone()];
            names.into_iter().chain(counts.map(|count| count.to_string())).collect()
        });
        table(&["tube", "type", "ready", "taken", "delayed", "buried", "other"], rows)?;
        line("")?;
        for tube in contents.tubes.iter().filter(|tube| !tube.has_space) {
            line(format_args!("note on tube {}: its space is not there", tube.name))?;
        }
        Ok(())
    }

    fn verdict(&self) -> anyhow::Result<()> {
        let (contents, category) = (self.examination.contents(), self.examination.category());
        if self.json {
            line(json!({
                "sound": category.is_none(),
                "exit": category.map_or(0, Category::exit_code),
                "faults": self.examination.all_faults().map(|fault| fault.text.as_str()).collect::<Vec<_>>(),
                "instance": contents.map(|contents| contents.instance.to_string()),
                "vclock": contents.map(|contents| vclock(&contents.vclock)),
                "digest": contents.map(digest),
                "group": contents.and_then(|contents| contents.group).map(group_json),
            }))?;
            return Ok(());
        }
        if let Some(contents) = contents {
            line(format_args!("instance  {}", contents.instance))?;
            line(format_args!("vclock    {}", contents.vclock))?;
            line(format_args!("digest    {}", digest(contents)))?;
            if let Some(group) = &contents.group {
                line(format_args!("group     {}", group_text(group)))?;
            }
        }
        if let Some(newest) = self.examination.files.iter().rfind(|file| file.name.ends_with(".xlog"))
            && matches!(newest.state, State::Open | State::Torn)
        {
            let name = &newest.name;
            line(format_args!(
                "{name} has no end marker: if a server is running, its last rows may still be on the way"
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

fn group_json(group: GroupContents) -> Json {
    json!({
        "group": group.identity.group.to_string(), "node": group.identity.node, "committed": group.committed,
        "last": group.last,
    })
}

fn group_text(group: &GroupContents) -> String {
    let GroupContents { identity, committed, last } = group;
    let behind = match last.saturating_sub(*committed) {
        0 => String::new(),
        count => format!("; {count} behind it are not known to be committed, and are not in the data"),
    };
    format!("node {} of {}, entries up to {committed}{behind}", identity.node, identity.group)
}
