//! `lycosa cat`: the rows of journal files, and the records of a group's log.
//!
//! Files are read as they are, by any writer. Where a file is damaged, everything before the place is printed and
//! the place is named; a torn tail is left by a killed writer, and no fault. Rows of a transaction that has no end
//! are not printed: a start would not recover them either.

mod group;
mod print;

use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use lycosa_folder::file::JournalFile;
use lycosa_folder::journal_walk::WalkEnd;
use lycosa_folder::names::SpaceNames;
use lycosa_iproto::row::{RowBody, RowHeader};
use lycosa_journal::decision::Category;
use lycosa_journal::meta::{FileKind, Meta, MetaError};
use lycosa_journal::reader::{End, OpenError};
use lycosa_journal::transaction::Row;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::CatArguments;
use crate::outcome::{Outcome, Usage};
use crate::session::runtime;
use crate::{output, terminal};
use group::{Line, LogPlace};
use print::{Printed, RowPosition};

/// How often a file that is followed is looked at.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn run(arguments: &CatArguments) -> anyhow::Result<Outcome> {
    if let Some(folder) = arguments.files.iter().find(|path| path.is_dir()) {
        let shown = folder.display();
        anyhow::bail!(Usage(format!(
            "{shown} is a folder: name .xlog, .snap and .grouplog files in it, or `lycosa check {shown}`"
        )));
    }
    let mut cat = Cat::new(arguments);
    let ended = if arguments.follow { follow(&mut cat) } else { print_all(&mut cat) };
    cat.out.flush()?;
    ended?;
    for name in cat.unseen.iter().filter(|_| !cat.is_full()) {
        eprintln!("lycosa: no row of a space '{name}' was seen");
    }
    Ok(cat.worst.map_or(Outcome::Done, Outcome::Unsound))
}

fn print_all(cat: &mut Cat<'_>) -> anyhow::Result<()> {
    for path in &cat.arguments.files {
        if let Some(mut file) = cat.open(path)?
            && let Some(end) = cat.read(&mut file)?
        {
            cat.say_end(&file, end)?;
        }
        if cat.is_full() {
            break;
        }
    }
    Ok(())
}

/// Prints a file, the rows that are added to it, and the files after it, until Ctrl-C.
fn follow(cat: &mut Cat<'_>) -> anyhow::Result<()> {
    let [path] = &*cat.arguments.files else { anyhow::bail!("--follow takes one file") };
    let Some(mut file) = cat.open(path)? else { return Ok(()) };
    anyhow::ensure!(
        matches!(file.reader.meta().kind, FileKind::Xlog | FileKind::GroupLog),
        "{} is a snapshot or belongs to one, and nothing is added to it; follow the newest .xlog or .grouplog",
        path.display()
    );
    let runtime = runtime()?;
    let mut interrupt = {
        let _inside = runtime.enter();
        signal(SignalKind::interrupt())?
    };
    loop {
        // Looked for before the file is read: when there is a next one, everything is in this one.
        let next = file.next()?;
        let Some(end) = cat.read(&mut file)? else { return Ok(()) };
        match next {
            Some(next) if !matches!(JournalFile::open(&next)?, Err(OpenError::Torn(_))) => {
                cat.say_end(&file, end)?;
                let Some(successor) = cat.open(&next)? else { return Ok(()) };
                file = successor;
            }
            // The next file's header is not written yet.
            Some(_) | None => {
                cat.out.flush()?;
                let wait = async { tokio::time::timeout(FOLLOW_INTERVAL, interrupt.recv()).await };
                if runtime.block_on(wait).is_ok() {
                    return Ok(());
                }
            }
        }
    }
}

/// The printing of files.
struct Cat<'a> {
    arguments: &'a CatArguments,
    out: BufWriter<terminal::Stdout>,
    names: SpaceNames,
    /// Where the reader is in a group's log.
    log: LogPlace,
    /// Names of spaces that were asked for and not seen yet.
    unseen: Vec<&'a str>,
    printed: u64,
    worst: Option<Category>,
}

impl<'a> Cat<'a> {
    fn new(arguments: &'a CatArguments) -> Self {
        let names = arguments.space.iter().map(String::as_str);
        Self {
            arguments,
            out: BufWriter::with_capacity(1 << 16, terminal::stdout()),
            names: SpaceNames::default(),
            log: LogPlace::default(),
            unseen: names.filter(|name| name.parse::<u32>().is_err()).collect(),
            printed: 0,
            worst: None,
        }
    }

    fn is_full(&self) -> bool {
        self.arguments.limit.is_some_and(|limit| self.printed >= limit)
    }

    /// Names the fault of a file. Lines that were printed before come first on a terminal too.
    fn say(&mut self, path: &Path, text: impl std::fmt::Display) -> io::Result<()> {
        self.out.flush()?;
        eprintln!("lycosa: {}: {text}", path.display());
        Ok(())
    }

    fn fault(&mut self, path: &Path, category: Category, text: impl std::fmt::Display) -> io::Result<()> {
        self.worst.get_or_insert(category);
        self.say(path, text)
    }

    /// Opens a file and prints its header if it is asked for. `None` if there is nothing to read, which has been said.
    fn open(&mut self, path: &Path) -> anyhow::Result<Option<JournalFile>> {
        let fault = match JournalFile::open(path)? {
            Ok(file) => {
                self.begin(&file)?;
                return Ok(Some(file));
            }
            Err(OpenError::Torn(torn)) => {
                self.say(path, format_args!("{torn}; it has no rows"))?;
                return Ok(None);
            }
            Err(OpenError::Io(error)) if error.kind() == ErrorKind::NotFound => {
                (Category::Missing, error.to_string())
            }
            Err(OpenError::Io(error)) => (Category::Disk, error.to_string()),
            Err(OpenError::Meta(error @ MetaError::FormatVersion(_))) => {
                (Category::Foreign, error.to_string())
            }
            Err(OpenError::Meta(error)) => {
                (Category::Damaged, format!("the text header is not readable: {error}"))
            }
        };
        self.fault(path, fault.0, fault.1)?;
        Ok(None)
    }

    fn begin(&mut self, file: &JournalFile) -> anyhow::Result<()> {
        let (kind, signature) = (file.reader.meta().kind, file.reader.meta().vclock.signature());
        self.names.turn_to(&file.directory, kind, signature);
        if kind == FileKind::GroupLog {
            self.log.turn_to(&file.directory, signature)?;
        }
        if !self.arguments.header {
            return Ok(());
        }
        if self.arguments.json {
            let (path, header) = (file.path.display().to_string(), header_json(file.reader.meta()));
            writeln!(self.out, "{}", json!({ "file": path, "header": header }))?;
        } else {
            let mut text = vec![0; usize::try_from(file.reader.first_block())?];
            std::fs::File::open(&file.path)?.read_exact(&mut text)?;
            self.out.write_all(&text)?;
        }
        Ok(())
    }

    /// Prints the rows from the reader's place on. `None` when no more will follow: enough rows were
    /// printed, or damage ended it.
    fn read(&mut self, file: &mut JournalFile) -> anyhow::Result<Option<End>> {
        match file.reader.meta().kind {
            FileKind::GroupLog => return self.read_log(file),
            FileKind::GroupState => return self.read_state(file),
            FileKind::Snapshot | FileKind::Xlog => {}
        }
        let JournalFile { path, reader, walk, .. } = file;
        loop {
            let stop = walk.go(reader, &mut |rows, _| self.transaction(path, rows));
            let damage = match stop.with_context(|| format!("cannot print {}", path.display()))? {
                WalkEnd::End(end) => return Ok(Some(end)),
                WalkEnd::Enough => return Ok(None),
                WalkEnd::Damage(damage) => damage,
            };
            self.fault(path, Category::Damaged, &damage)?;
            if !self.arguments.force {
                return Ok(None);
            }
            match walk.skip(reader, &damage)? {
                Some(offset) => self.say(path, format_args!("going on at offset {offset}"))?,
                None => self.say(path, "nothing sound follows")?,
            }
        }
    }

    fn transaction(&mut self, path: &Path, rows: &[Row<'_>]) -> io::Result<ControlFlow<()>> {
        for (at, row) in rows.iter().enumerate() {
            let place = RowPosition::of(at, rows.len());
            let row = Printed { header: &row.header, body: &row.body, place, entry: None };
            self.row(path, row, &mut None)?;
            if self.is_full() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Prints a row if it is asked for, and before it for people the line of its entry if that has not been printed.
    fn row(&mut self, path: &Path, row: Printed<'_>, head: &mut Option<Line>) -> io::Result<()> {
        self.names.learn(row.body);
        if !self.is_wanted(row.header, row.body) {
            return Ok(());
        }
        if let Some(Line { word, text, .. }) = head.take().filter(|_| !self.arguments.json) {
            writeln!(self.out, "{word:<10} {text}")?;
        }
        let name = row.body.space().and_then(|space| self.names.of(space));
        if self.arguments.json {
            let file = (self.arguments.files.len() > 1).then(|| path.display().to_string());
            print::json(&mut self.out, file.as_deref(), row, name)?;
        } else {
            print::text(&mut self.out, row, name)?;
        }
        self.printed += 1;
        Ok(())
    }

    fn is_wanted(&mut self, header: &RowHeader, body: &RowBody<'_>) -> bool {
        let CatArguments { from, to, types, space: spaces, .. } = self.arguments;
        let lsns = from.unwrap_or(0)..=to.unwrap_or(u64::MAX);
        if !lsns.contains(&header.lsn) || !types.is_empty() && !types.contains(&print::row_type(body)) {
            return false;
        }
        if spaces.is_empty() {
            return true;
        }
        let Some(space) = body.space() else { return false };
        let name = self.names.of(space);
        self.unseen.retain(|unseen| Some(*unseen) != name);
        spaces.iter().any(|wanted| Some(wanted.as_str()) == name || wanted.parse() == Ok(space))
    }

    /// Says how a file ends, if it is not in order.
    fn say_end(&mut self, file: &JournalFile, end: End) -> io::Result<()> {
        let path = &file.path;
        match (end, file.reader.meta().kind) {
            (End::Marker, _) | (End::Open, FileKind::GroupState) => Ok(()),
            (End::Open, FileKind::Snapshot) => {
                self.fault(path, Category::Damaged, "the snapshot has no end marker: it is not complete")
            }
            (End::Open, _) => self.say(path, "no end marker: it is still written, or its writer was stopped"),
            (End::Torn(torn), _) => self.say(path, format_args!("torn tail: {torn}")),
        }
    }
}

fn header_json(meta: &Meta) -> serde_json::Value {
    json!({
        "kind": meta.kind.title(),
        "version": meta.written_by,
        "instance": meta.instance.to_string(),
        "vclock": output::vclock(&meta.vclock),
        "prev_vclock": meta.prev_vclock.as_ref().map(output::vclock),
    })
}
