//! The log of a group's node and the states of its snapshots: records as lines, and the rows of entries below them.
//!
//! Each entry is marked unless it is known to be committed. Filters for rows leave out every record but the entries of the rows that
//! they let through.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use lycosa_engine::group::listing::{EntryState, LogRecord, Marks, records};
use lycosa_engine::group::{Base, Change, Member, Payload, entry};
use lycosa_folder::file::JournalFile;
use lycosa_journal::decision::Category;
use lycosa_journal::directory::Directory;
use lycosa_journal::reader::{Damage, DamageKind, End, Step};
use serde_json::{Value as Json, json};

use super::Cat;
use super::print::{Printed, RowPosition, state_name};
use crate::arguments::CatArguments;

/// The place in a log.
#[derive(Debug, Default)]
pub(super) struct LogPlace {
    /// What the file and the files after it tell.
    marks: Marks,
    /// The number of the next record.
    next: u64,
    /// The index of the entry before.
    last: u64,
}

impl LogPlace {
    /// The file with the number `signature` begins.
    pub(super) fn turn_to(&mut self, directory: &Directory, signature: u64) -> io::Result<()> {
        let marks = Marks::of(directory, signature)?;
        *self = Self { marks, next: signature, last: 0 };
        Ok(())
    }

    /// Goes on to a record. Returns its number.
    fn pass(&mut self, record: &LogRecord) -> u64 {
        let number = self.next;
        if number >= self.marks.next() {
            self.marks.apply(record);
        }
        self.next += 1;
        number
    }
}

/// A line about a record: for people and as JSON.
pub(super) struct Line {
    pub(super) word: &'static str,
    pub(super) text: String,
    json: Json,
}

impl Cat<'_> {
    /// Prints the records of a log from the reader's place on, as [`Cat::read`] does with rows.
    pub(super) fn read_log(&mut self, file: &mut JournalFile) -> anyhow::Result<Option<End>> {
        let JournalFile { path, reader, .. } = file;
        loop {
            let step = reader.next_block().with_context(|| format!("cannot print {}", path.display()))?;
            let (damage, is_passed) = match step {
                Step::End(end) => return Ok(Some(end)),
                Step::Damage(damage) => (damage, false),
                Step::Block(block) => {
                    let offset = block.offset;
                    let mut damage = None;
                    for record in records(block.rows) {
                        match record.map_err(|error| error.to_string()) {
                            Ok(record) => damage = self.record(path, record)?,
                            Err(reason) => damage = Some(reason),
                        }
                        if self.is_full() {
                            return Ok(None);
                        }
                        if damage.is_some() {
                            break;
                        }
                    }
                    let Some(reason) = damage else { continue };
                    (Damage { offset, kind: DamageKind::Row { at: 0, reason } }, true)
                }
            };
            self.fault(path, Category::Damaged, &damage)?;
            if !self.arguments.force {
                return Ok(None);
            }
            let resumes = if is_passed { Some(reader.offset()) } else { reader.skip_damage()? };
            match resumes {
                Some(offset) => self.say(path, format_args!("going on at offset {offset}"))?,
                None => self.say(path, "nothing sound follows")?,
            }
        }
    }

    /// Prints the state of a snapshot.
    pub(super) fn read_state(&mut self, file: &mut JournalFile) -> anyhow::Result<Option<End>> {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match Base::read_from(&mut file.reader, &name) {
            Ok((base, beside)) => {
                self.line(&file.path, state(&base, beside.len()))?;
                Ok(Some(End::Open))
            }
            Err(error) => {
                self.fault(&file.path, Category::Damaged, error)?;
                Ok(None)
            }
        }
    }

    /// Prints a record, and the rows of an entry. Returns the fault of an entry that cannot be read.
    fn record(&mut self, path: &Path, record: LogRecord) -> anyhow::Result<Option<String>> {
        let number = self.log.pass(&record);
        let CatArguments { from, to, types, space, .. } = self.arguments;
        let shows_records = from.or(*to).is_none() && types.is_empty() && space.is_empty();
        let LogRecord::Entry { position, payload } = record else {
            match &record {
                LogRecord::Begin(begin) => self.log.last = begin.last.index,
                LogRecord::Reset(position) => self.log.last = position.index,
                LogRecord::Ballot(_) | LogRecord::Entry { .. } => {}
            }
            if shows_records {
                self.line(path, other(&record))?;
            }
            return Ok(None);
        };
        let state = self.log.marks.state(number, position.index);
        if shows_records && position.index <= self.log.last {
            self.line(path, cut(position.index, self.log.last))?;
        }
        self.log.last = position.index;
        let mut head = Some(head(position.index, position.term, &payload, state));
        if shows_records && let Some(head) = head.take() {
            self.line(path, head)?;
        }
        let Payload::Rows(rows) = payload else { return Ok(None) };
        let read = entry::decode(&rows).and_then(|entry| {
            let owners = entry.owner_rows()?;
            Ok((entry.transactions, owners))
        });
        let (transactions, owners) = match read {
            Ok(read) => read,
            Err(error) => return Ok(Some(error.to_string())),
        };
        let entry = Some((position.index, state));
        let rows = transactions.iter().flat_map(|rows| {
            let place = |at| RowPosition::of(at, rows.len());
            rows.iter().zip(0..).map(move |((header, body), at)| Printed {
                header,
                body,
                place: place(at),
                entry,
            })
        });
        // Changes of owners have no stamps: they count once the last row does.
        let last = transactions.last().and_then(|rows| rows.last());
        let owners = last.into_iter().flat_map(|(header, _)| {
            owners.iter().map(move |body| Printed { header, body, place: RowPosition::Alone, entry })
        });
        for row in rows.chain(owners) {
            if self.is_full() {
                break;
            }
            self.row(path, row, &mut head)?;
        }
        Ok(None)
    }

    fn line(&mut self, path: &Path, line: Line) -> io::Result<()> {
        if self.is_full() {
            return Ok(());
        }
        self.printed += 1;
        let Line { word, text, mut json } = line;
        if !self.arguments.json {
            return writeln!(self.out, "{word:<10} {text}");
        }
        if self.arguments.files.len() > 1 {
            json["file"] = path.display().to_string().into();
        }
        json["record"] = word.into();
        writeln!(self.out, "{json}")
    }
}

fn head(index: u64, term: u64, payload: &Payload, state: EntryState) -> Line {
    let (kind, text, more) = match payload {
        Payload::Nothing => ("nothing", ": nothing".to_owned(), None),
        Payload::Rows(_) => ("rows", String::new(), None),
        Payload::Level(level) => {
            ("level", format!(": the group rises to level {level}"), Some(("level", Json::from(*level))))
        }
        Payload::Change(change) => {
            let text = change_text(change);
            ("members", format!(": {text}"), Some(("change", Json::from(text))))
        }
    };
    let mark = match state {
        EntryState::Committed => "",
        EntryState::Unknown => " (not known to be committed)",
        EntryState::GaveWay => " (gave way to other entries)",
    };
    let mut json = json!({"index": index, "term": term, "state": state_name(state), "kind": kind});
    if let Some((name, value)) = more {
        json[name] = value;
    }
    Line { word: "entry", text: format!("{index} of term {term}{mark}{text}"), json }
}

fn change_text(change: &Change) -> String {
    match change {
        Change::Add { node, address, .. } => format!("node {node} at {address} becomes a learner"),
        Change::Promote(node) => format!("node {node} begins to become a voter"),
        Change::Remove(node) => format!("node {node} begins to leave"),
        Change::Leave => "the change of the members ends".to_owned(),
    }
}

fn cut(from: u64, to: u64) -> Line {
    let text = format!("entries {from} to {to} are replaced by the entries that follow");
    Line { word: "truncation", text, json: json!({"from": from, "to": to}) }
}

/// A record that is no entry.
fn other(record: &LogRecord) -> Line {
    let stand = |(term, vote, commit): (u64, u64, u64)| {
        let vote = if vote == 0 { "no vote".to_owned() } else { format!("vote for node {vote}") };
        format!("term {term}, {vote}, committed up to {commit}")
    };
    match record {
        LogRecord::Begin(begin) => {
            let (identity, ballot, last, level) = (begin.identity, begin.ballot, begin.last, begin.level);
            let (node, group) = (identity.node, identity.group.to_string());
            let text = format!(
                "node {node} of group {group}, level {level}; behind entry {} of term {}; {}",
                last.index,
                last.term,
                stand((ballot.term, ballot.vote, ballot.commit))
            );
            let json = json!({
                "group": group, "node": node, "rank": identity.rank, "level": level, "last_index": last.index,
                "last_term": last.term, "term": ballot.term, "vote": ballot.vote, "committed": ballot.commit,
            });
            Line { word: "begin", text, json }
        }
        LogRecord::Ballot(ballot) => Line {
            word: "ballot",
            text: stand((ballot.term, ballot.vote, ballot.commit)),
            json: json!({"term": ballot.term, "vote": ballot.vote, "committed": ballot.commit}),
        },
        LogRecord::Reset(position) => Line {
            word: "reset",
            text: format!(
                "a snapshot takes the place of everything up to entry {} of term {}",
                position.index, position.term
            ),
            json: json!({"index": position.index, "term": position.term}),
        },
        LogRecord::Entry { position, payload } => {
            head(position.index, position.term, payload, EntryState::Unknown)
        }
    }
}

fn state(base: &Base, beside: usize) -> Line {
    let Base { group, index, term, signature, level, .. } = base;
    let (mut members, mut listed) = (Vec::new(), Vec::new());
    for Member { node, address, standing, .. } in base.members.iter() {
        let standing = standing.name();
        listed.push(format!("node {node} at {address} ({standing})"));
        members.push(json!({"node": node, "address": address, "standing": standing}));
    }
    let listed = listed.join(", ");
    let text =
        format!("group {group}, entry {index} of term {term}, snapshot {signature}, level {level}; {listed}");
    let json = json!({
        "group": group.to_string(), "index": index, "term": term, "snapshot": signature, "level": level,
        "members": members, "beside_bytes": beside,
    });
    Line { word: "state", text, json }
}
