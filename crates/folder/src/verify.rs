//! Verifying every file of a data folder, those too that a start would not read.
//!
//! Each block's checksum, each row, each file's place in the history: an xlog begins where the one before it ends, and
//! all files belong to one instance. A state that an interrupted write explains is a [`State`], one that nothing explains a
//! [`Fault`]; a remark without a fault is a note.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use lycosa_iproto::keys::GROUP_LOCAL;
use lycosa_iproto::vclock::{VCLOCK_MAX, Vclock};
use lycosa_journal::decision::Category;
use lycosa_journal::directory::{Directory, Listing, SET_ASIDE, file_name};
use lycosa_journal::meta::{FileKind, MetaError};
use lycosa_journal::reader::{End, FileReader, OpenError};
use lycosa_journal::transaction::Row;
use uuid::Uuid;

use crate::journal_walk::{Walk, WalkEnd};

mod group;

/// Notes about missing LSNs of one file beyond which they are only counted.
const MAX_NOTES: usize = 10;

/// How a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Whole, with its end marker.
    Closed,
    /// Without an end marker: it is still written, or its writer was stopped between two writes.
    Open,
    /// Its last write did not complete.
    Torn,
    /// Wrong.
    Damaged,
    /// It was being made when it was looked at, or its writer was stopped; never read.
    LeftOver,
    /// Moved out of the way by a start; never read.
    SetAside,
    /// Not the name of a journal file; never read.
    Stranger,
    /// Removed since the folder was listed.
    Gone,
}

impl State {
    /// The state in a word or two, in capitals where it is a fault.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Closed => "sound",
            State::Open => "open",
            State::Torn => "torn tail",
            State::Damaged => "DAMAGED",
            State::LeftOver => "left over",
            State::SetAside => "set aside",
            State::Stranger => "not ours",
            State::Gone => "gone",
        }
    }
}

/// Something that nothing explains but damage or loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What kind of fault, which decides an exit code.
    pub category: Category,
    /// The fault, its place included.
    pub text: String,
}

/// The findings about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// The file's name.
    pub name: String,
    /// How it is.
    pub state: State,
    /// Its size.
    pub bytes: u64,
    /// Its rows, as far as they could be read.
    pub rows: u64,
    /// Its transactions, as far as they could be read.
    pub transactions: u64,
    /// The clock in its header.
    pub begins: Option<Vclock>,
    /// The clock after its last row.
    pub ends: Option<Vclock>,
    /// What nothing explains but damage or loss.
    pub faults: Vec<Fault>,
    /// Remarks without a fault.
    pub notes: Vec<String>,
}

impl FileReport {
    fn new(directory: &Directory, name: String, state: State) -> Self {
        let bytes = directory.disk().open(&name).and_then(|file| file.size()).unwrap_or(0);
        Self {
            name,
            state,
            bytes,
            rows: 0,
            transactions: 0,
            begins: None,
            ends: None,
            faults: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn fault(&mut self, category: Category, text: &dyn Display) {
        self.faults.push(Fault { category, text: text.to_string() });
        self.state = State::Damaged;
    }

    fn note(&mut self, text: &dyn Display) {
        self.notes.push(text.to_string());
    }
}

/// The verification of one folder.
struct Verification<'a> {
    directory: &'a Directory,
    /// Bytes of the files before the one that is read, and rows of all so far.
    done: (u64, u64),
    progress: &'a mut dyn FnMut(u64, u64),
    /// Whose the first readable file is.
    instance: Option<Uuid>,
    /// The clock after the xlogs so far.
    reached: Option<Vclock>,
    /// Header of the last xlog.
    last_xlog: Option<Vclock>,
    /// Xlogs before which rows are missing, by the number of their report.
    gaps: Vec<Gap>,
}

/// Rows are missing before an xlog.
struct Gap {
    report: usize,
    text: String,
    /// Where the xlog begins.
    begins: Vclock,
}

/// Verifies the files of `directory`, in the order of the history. `progress` gets bytes and rows.
///
/// # Errors
/// When the folder cannot be read. A file that cannot be is a fault.
pub fn verify(
    directory: &Directory,
    listing: Listing,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<Vec<FileReport>> {
    let snapshots = listing.snapshots.iter().map(|&signature| (signature, FileKind::Snapshot));
    let xlogs = listing.xlogs.iter().map(|&signature| (signature, FileKind::Xlog));
    let mut files: Vec<_> = snapshots.chain(xlogs).collect();
    files.sort_unstable();
    let mut verification = Verification {
        directory,
        done: (0, 0),
        progress,
        instance: None,
        reached: None,
        last_xlog: None,
        gaps: Vec::new(),
    };
    let mut reports = Vec::new();
    for (signature, kind) in files {
        let report = verification.file(kind, signature, reports.len());
        reports.push(report);
    }
    settle_gaps(&mut reports, std::mem::take(&mut verification.gaps));
    verification.group(&listing, &mut reports);
    let set_aside = directory.disk().list()?.into_iter().filter(|name| name.contains(SET_ASIDE));
    let unread = (listing.in_progress.into_iter().map(|name| (name, State::LeftOver)))
        .chain(listing.strangers.into_iter().map(|name| (name, State::Stranger)))
        .chain(set_aside.map(|name| (name, State::SetAside)));
    reports.extend(unread.map(|(name, state)| FileReport::new(directory, name, state)));
    Ok(reports)
}

/// Missing rows are a fault unless no start needs them: a sound snapshot holds them, or a running server has removed
/// their file since the folder was listed.
fn settle_gaps(reports: &mut [FileReport], gaps: Vec<Gap>) {
    for Gap { report, text, begins } in gaps {
        let holds = |snapshot: &&FileReport| {
            let is_sound =
                snapshot.name.ends_with(FileKind::Snapshot.suffix()) && snapshot.state == State::Closed;
            is_sound && snapshot.begins.as_ref().is_some_and(|vclock| begins <= *vclock)
        };
        let holder = reports.iter().rfind(holds).map(|snapshot| snapshot.name.clone());
        let was_removed = reports[..report].iter().any(|report| report.state == State::Gone);
        let report = &mut reports[report];
        match holder {
            Some(holder) => report.note(&format_args!("{text}; no start needs it, as {holder} has it")),
            None if was_removed => {
                report.note(&format_args!("{text}; it was removed while the folder was checked"));
            }
            None => report.fault(Category::Missing, &text),
        }
    }
}

/// The component of the clock that counts a row.
fn component(row: &Row<'_>) -> u32 {
    if row.header.group_id == GROUP_LOCAL { 0 } else { row.header.replica_id }
}

impl Verification<'_> {
    fn file(&mut self, kind: FileKind, signature: u64, number: usize) -> FileReport {
        let (mut report, reader) = self.opened(kind, signature);
        if let Some(mut reader) = reader {
            self.header(&mut report, &reader, signature);
            let read = if kind == FileKind::Snapshot {
                self.snapshot(&mut report, &mut reader)
            } else {
                self.xlog(&mut report, &mut reader, number)
            };
            if let Err(error) = read {
                report.fault(Category::Disk, &error);
            }
        }
        self.done.0 += report.bytes;
        (self.progress)(self.done.0, self.done.1);
        report
    }

    /// Opens a file for a report. Without a reader the report says why.
    fn opened(&self, kind: FileKind, signature: u64) -> (FileReport, Option<FileReader>) {
        let mut report = FileReport::new(self.directory, file_name(kind, signature), State::Closed);
        match self.directory.read(kind, signature) {
            Ok(reader) => return (report, Some(reader)),
            Err(OpenError::Io(error)) if error.kind() == ErrorKind::NotFound => {
                report.state = State::Gone;
                report.note(&"removed while the folder was checked, as a running server does with old files");
            }
            Err(OpenError::Io(error)) => report.fault(Category::Disk, &error),
            Err(OpenError::Torn(torn)) if matches!(kind, FileKind::Xlog | FileKind::GroupLog) => {
                report.state = State::Torn;
                report.note(&format_args!("{torn}; it has no rows"));
            }
            Err(OpenError::Torn(torn)) => report.fault(Category::Damaged, &torn),
            Err(OpenError::Meta(error @ MetaError::FormatVersion(_))) => {
                report.fault(Category::Foreign, &error);
            }
            Err(OpenError::Meta(error)) => {
                report.fault(Category::Damaged, &format_args!("the text header is not readable: {error}"));
            }
        }
        (report, None)
    }

    fn header(&mut self, report: &mut FileReport, reader: &FileReader, signature: u64) {
        let meta = reader.meta();
        report.begins = Some(meta.vclock.clone());
        if meta.vclock.signature() != signature {
            let text = format!("its vclock {} does not belong to its name", meta.vclock);
            report.fault(Category::Damaged, &text);
        }
        let ours = *self.instance.get_or_insert(meta.instance);
        if meta.instance != ours {
            let text = format!("it belongs to instance {}, the files before it to {ours}", meta.instance);
            report.fault(Category::Foreign, &text);
        }
        for key in reader.unknown_keys() {
            report.note(&format_args!("unknown meta item '{key}'"));
        }
    }

    fn snapshot(&mut self, report: &mut FileReport, reader: &mut FileReader) -> io::Result<()> {
        let mut next_lsn = 0;
        let mut missing = Vec::new();
        let end = self.read(report, reader, &mut |rows| {
            for row in rows {
                if row.header.lsn > next_lsn {
                    missing.push(format!("rows {next_lsn} to {} are missing", row.header.lsn - 1));
                }
                next_lsn = row.header.lsn.wrapping_add(1);
            }
            Ok(())
        })?;
        note_missing(report, missing);
        match end {
            End::Marker => {}
            End::Open => report.fault(Category::Damaged, &"it has no end marker"),
            End::Torn(torn) => report.fault(Category::Damaged, &torn),
        }
        Ok(())
    }

    fn xlog(&mut self, report: &mut FileReport, reader: &mut FileReader, number: usize) -> io::Result<()> {
        let meta = reader.meta();
        let begins = meta.vclock.clone();
        let mut reached = self.reached.take().unwrap_or_else(|| begins.clone());
        if begins.iter().any(|(id, lsn)| lsn > reached.get(id)) {
            let text = format!(
                "the xlog before it ends at {reached} and it begins at {begins}: what is between is missing"
            );
            self.gaps.push(Gap { report: number, text, begins: begins.clone() });
        }
        for (id, lsn) in begins.iter() {
            reached.set(id, lsn.max(reached.get(id))).expect("the id comes from a vclock");
        }
        if let (Some(last), Some(previous)) = (&self.last_xlog, &meta.prev_vclock)
            && last != previous
        {
            report.note(&format_args!(
                "its header names {previous} as the xlog before it, which is {last} here"
            ));
        }
        self.last_xlog = Some(begins);
        let mut missing = Vec::new();
        let end = self.read(report, reader, &mut |rows| {
            for row in rows {
                let (id, lsn) = (component(row), row.header.lsn);
                if id as usize >= VCLOCK_MAX {
                    return Err(format!("replica id {id} is not below {VCLOCK_MAX}"));
                }
                let before = reached.get(id);
                if lsn > before.saturating_add(1) {
                    missing.push(format!("LSN {} to {} of replica {id} are missing", before + 1, lsn - 1));
                }
                reached.set(id, lsn.max(before)).map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        note_missing(report, missing);
        report.ends = Some(reached.clone());
        self.reached = Some(reached);
        match end? {
            End::Marker => {}
            // Earlier damage stays.
            _ if report.state == State::Damaged => {}
            End::Open => report.state = State::Open,
            End::Torn(torn) => {
                report.state = State::Torn;
                report.note(&torn);
            }
        }
        Ok(())
    }

    /// Reads a file to its end, past all damage. What `visit` does not like about a row is damage too.
    fn read(
        &mut self,
        report: &mut FileReport,
        reader: &mut FileReader,
        visit: &mut dyn FnMut(&[Row<'_>]) -> Result<(), String>,
    ) -> io::Result<End> {
        let mut walk = Walk::default();
        let mut strange = None;
        loop {
            let stop = walk.go(reader, &mut |rows, offset| {
                report.rows += rows.len() as u64;
                report.transactions += 1;
                self.done.1 += rows.len() as u64;
                (self.progress)(self.done.0 + offset, self.done.1);
                if let Err(text) = visit(rows) {
                    strange.get_or_insert(format!("{text} (in the block at offset {offset})"));
                }
                Ok(ControlFlow::Continue(()))
            })?;
            match stop {
                WalkEnd::Enough => {}
                WalkEnd::End(end) => {
                    if let Some(text) = strange {
                        report.fault(Category::Damaged, &text);
                    }
                    return Ok(end);
                }
                WalkEnd::Damage(damage) => {
                    let resumes = walk.skip(reader, &damage)?;
                    let text = match resumes {
                        Some(offset) => format!("{damage}; sound data goes on at offset {offset}"),
                        None => format!("{damage}; nothing sound follows"),
                    };
                    report.fault(Category::Damaged, &text);
                }
            }
        }
    }
}

fn note_missing(report: &mut FileReport, missing: Vec<String>) {
    let more = missing.len().saturating_sub(MAX_NOTES);
    report.notes.extend(missing.into_iter().take(MAX_NOTES));
    if more > 0 {
        report.note(&format_args!("and so on, {more} times"));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn reports(folder: &str) -> Vec<FileReport> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files").join(folder);
        let directory = Directory::inspect(&path).unwrap();
        let listing = directory.list().unwrap();
        verify(&directory, listing, &mut |_, _| {}).unwrap()
    }

    fn faults(folder: &str) -> Vec<(String, Category)> {
        let reports = reports(folder).into_iter();
        let faults = reports.flat_map(|report| {
            let name = report.name.trim_start_matches('0').to_owned();
            report.faults.into_iter().map(move |fault| (name.clone(), fault.category))
        });
        faults.collect()
    }

    #[test]
    fn a_sound_folder_has_no_faults_and_one_chain() {
        let reports = reports("corrupt/0-sound");
        assert!(reports.iter().all(|report| report.faults.is_empty()), "{reports:?}");
        let xlogs: Vec<_> = reports.iter().filter(|report| report.name.ends_with(".xlog")).collect();
        for pair in xlogs.windows(2) {
            assert_eq!(pair[0].ends, pair[1].begins);
        }
        assert_eq!(xlogs.iter().map(|report| report.rows).sum::<u64>(), 293);
    }

    #[test]
    fn each_kind_of_damage_has_its_category() {
        for folder in ["flip-crc", "flip-length", "flip-magic", "flip-plain", "flip-zstd"] {
            let faults = faults(&format!("corrupt/{folder}"));
            assert!(
                faults.iter().any(|(_, category)| *category == Category::Damaged),
                "{folder}: {faults:?}"
            );
        }
        assert_eq!(faults("corrupt/missing-xlog"), [("43.xlog".to_owned(), Category::Missing)]);
        assert_eq!(faults("corrupt/snap-crc"), [("23.snap".to_owned(), Category::Damaged)]);
        assert_eq!(faults("corrupt/snap-no-end"), [("23.snap".to_owned(), Category::Damaged)]);
        assert_eq!(faults("corrupt/instance").first().map(|fault| fault.1), Some(Category::Foreign));
        assert_eq!(faults("corrupt/version").first().map(|fault| fault.1), Some(Category::Foreign));
        assert_eq!(faults("corrupt/stray-files"), []);
    }

    #[test]
    fn a_torn_tail_is_no_fault() {
        for folder in ["1-text-header", "2-fixed-header", "3-plain-body", "4-zstd-body", "7-zeros"] {
            let reports = reports(&format!("torn/{folder}"));
            assert!(reports.iter().all(|report| report.faults.is_empty()), "{folder}: {reports:?}");
            assert!(reports.iter().any(|report| report.state == State::Torn), "{folder}: {reports:?}");
        }
    }
}
