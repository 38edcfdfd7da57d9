//! The record of endurance: a Markdown file with a row for each run, the sums over all runs, and the findings.
//!
//! The table of runs is read back from the file, so that a row of another checkout can be pasted in; the sums follow with
//! the next run, or with `cargo xtask endure --hours 0`. What became of a finding is written by hand.
//!
//! A file from before a column existed gets the column with the next write. Its old rows have 0 there: their runs counted
//! nothing of it. A row is pasted into a table of the same columns.

use std::fs;
use std::ops::{AddAssign, Index, IndexMut};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::command::Program;

/// A number that the record keeps of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// Hours of a processor that worlds took.
    WorldsTime,
    FuzzTime,
    KillsTime,
    /// Hours that passed in the worlds.
    SimulatedTime,
    /// Of them, hours of worlds of groups.
    GroupTime,
    Queue,
    Expiration,
    Replicas,
    Masters,
    Group,
    Members,
    /// Simulated processes and machines that died.
    Crashes,
    /// Simulated machines whose death took rows without breaking a promise.
    Losses,
    /// Simulated disks that refused.
    Faults,
    /// Simulated connections that were cut or swallowed bytes.
    Cuts,
    /// Real servers that were killed under load.
    Kills,
    /// Calls of real servers that a disk refused.
    Refusals,
    /// Inputs that fuzz targets were given.
    Inputs,
}

impl Column {
    const ALL: [(Self, &str); 18] = [
        (Self::WorldsTime, "worlds, CPU h"),
        (Self::FuzzTime, "fuzz, CPU h"),
        (Self::KillsTime, "kills, CPU h"),
        (Self::SimulatedTime, "simulated h"),
        (Self::GroupTime, "of them in groups"),
        (Self::Queue, "queue"),
        (Self::Expiration, "expiration"),
        (Self::Replicas, "replicas"),
        (Self::Masters, "masters"),
        (Self::Group, "group"),
        (Self::Members, "members"),
        (Self::Crashes, "crashes"),
        (Self::Losses, "losses"),
        (Self::Faults, "faults"),
        (Self::Cuts, "cuts"),
        (Self::Kills, "kills"),
        (Self::Refusals, "refusals"),
        (Self::Inputs, "inputs"),
    ];

    fn is_time(self) -> bool {
        matches!(
            self,
            Self::WorldsTime | Self::FuzzTime | Self::KillsTime | Self::SimulatedTime | Self::GroupTime
        )
    }

    /// The column of the worlds that the simulator calls `kind`.
    pub(crate) fn of_worlds(kind: &str) -> Option<Self> {
        // Worlds of tubes with operators are worlds of tubes.
        let kind = if kind == "steering" { "queue" } else { kind };
        let worlds =
            [Self::Queue, Self::Expiration, Self::Replicas, Self::Masters, Self::Group, Self::Members];
        Self::ALL
            .into_iter()
            .find(|(column, name)| worlds.contains(column) && *name == kind)
            .map(|(column, _)| column)
    }
}

/// The numbers of a run, or of a part of one. Counts stay far below 2⁵³.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Row([f64; Column::ALL.len()]);

impl Index<Column> for Row {
    type Output = f64;

    fn index(&self, column: Column) -> &f64 {
        &self.0[column as usize]
    }
}

impl IndexMut<Column> for Row {
    fn index_mut(&mut self, column: Column) -> &mut f64 {
        &mut self.0[column as usize]
    }
}

impl AddAssign for Row {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, number)| *sum += number);
    }
}

impl Row {
    /// The cells of the table.
    fn cells(&self) -> String {
        let cells = Column::ALL.map(|(column, _)| match column.is_time() {
            true => format!("{:.2}", self[column]),
            false => format!("{:.0}", self[column]),
        });
        cells.join(" | ")
    }

    fn read(cells: &[&str]) -> Result<Self> {
        ensure!(
            cells.len() == Column::ALL.len(),
            "{} numbers where {} belong",
            cells.len(),
            Column::ALL.len()
        );
        let mut row = Self::default();
        for (number, cell) in row.0.iter_mut().zip(cells) {
            *number = cell.parse().with_context(|| format!("`{cell}` is not a number"))?;
        }
        Ok(row)
    }
}

/// The rows begin with time and commit, and end with the number of findings.
const FIRST: &str = "| begun (UTC) | commit |";
const LAST: &str = "findings |";
/// What stands in place of a time in the row of sums.
const SUMS: &str = "**all runs**";
/// The head of the table of findings.
const FINDINGS: &str = "| found (UTC) | commit | repeat it | what became of it |";
const OPEN: &str = "open";

/// The row of a run that is going on, in the record's file.
#[derive(Debug)]
pub(crate) struct Record {
    path: PathBuf,
    begun: String,
    commit: String,
    row: Row,
    findings: usize,
}

impl Record {
    /// A run that begins now. Nothing is written before its first slice has ended.
    ///
    /// # Errors
    /// The file cannot be read or lacks its tables.
    pub(crate) fn begin(path: &Path, commit: &str) -> Result<Self> {
        let record = Self {
            path: path.to_owned(),
            begun: now()?,
            commit: commit.to_owned(),
            row: Row::default(),
            findings: 0,
        };
        record.text().and_then(|text| with_sums(&text)).with_context(|| path.display().to_string())?;
        Ok(record)
    }

    /// Adds a slice to the run, and writes the run's row, the sums and the findings.
    ///
    /// # Errors
    /// The file cannot be read or written, or lost its tables.
    pub(crate) fn add(&mut self, slice: &Row, findings: &[String]) -> Result<()> {
        self.row += *slice;
        self.findings += findings.len();
        let run = format!("| {} | {} | {} | {} |", self.begun, self.commit, self.row.cells(), self.findings);
        let key = format!("| {} | {} |", self.begun, self.commit);
        let text = with_run(&self.text()?, &key, &run)?;
        let text = with_findings(&text, &now()?, &self.commit, findings)?;
        self.write(&with_sums(&text)?)
    }

    /// Writes the sums anew.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(crate) fn sum_up(&self) -> Result<()> {
        self.write(&with_sums(&self.text()?)?)
    }

    /// The file's text, with every column in the table of runs.
    fn text(&self) -> Result<String> {
        let text = fs::read_to_string(&self.path);
        with_all_columns(&text.with_context(|| format!("cannot read {}", self.path.display()))?)
    }

    /// The file is the old one or the new one, whenever the machine stops.
    fn write(&self, text: &str) -> Result<()> {
        let new = self.path.with_extension("md.new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path));
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The time of the day, without a library for it.
fn now() -> Result<String> {
    let now = Program::new("date").arguments(["-u", "+%Y-%m-%d %H:%M:%S"]).output()?;
    Ok(now.trim().to_owned())
}

/// The lines of the text, and which of them are rows below the head of the table of runs.
fn table(text: &str, head: impl Fn(&str) -> bool, name: &str) -> Result<(Vec<String>, usize, usize)> {
    let lines = text.lines().map(str::to_owned).collect::<Vec<_>>();
    let Some(head) = lines.iter().position(|line| head(line)) else {
        bail!("there is no table that begins with `{name}`");
    };
    let rows = lines.iter().skip(head + 2).take_while(|line| line.starts_with('|')).count();
    Ok((lines, head + 2, head + 2 + rows))
}

fn runs(text: &str) -> Result<(Vec<String>, usize, usize)> {
    let head = |line: &str| line.starts_with(FIRST) && line.ends_with(LAST);
    let (lines, from, to) = table(text, head, FIRST)?;
    let columns = Column::ALL.map(|(_, name)| name).join(" | ");
    let wanted = format!("{FIRST} {columns} | {LAST}");
    ensure!(lines[from - 2] == wanted, "the table of runs has other columns than `{wanted}`");
    Ok((lines, from, to))
}

/// The text with a table of runs that has every column, from one that may lack some. Missing numbers are 0.
fn with_all_columns(text: &str) -> Result<String> {
    let head = |line: &str| line.starts_with(FIRST) && line.ends_with(LAST);
    let (mut lines, from, to) = table(text, head, FIRST)?;
    let names = cells(&lines[from - 2]).map(str::to_owned).collect::<Vec<_>>();
    let [first @ .., findings] = &names[..] else { bail!("the table of runs has no columns") };
    let own = first.get(2..).unwrap_or_default();
    let known = |name: &String| Column::ALL.iter().any(|(_, column)| column == name);
    if let Some(unknown) = own.iter().find(|name| !known(name)) {
        bail!("the table of runs has a column `{unknown}`, which this program does not know");
    }
    let places = Column::ALL.map(|(_, name)| own.iter().position(|column| column == name));
    if own.len() == places.len() && places.iter().enumerate().all(|(at, place)| *place == Some(at)) {
        return Ok(text.to_owned());
    }
    let columns = Column::ALL.map(|(_, name)| name).join(" | ");
    lines[from - 2] = format!("{FIRST} {columns} | {findings} |");
    lines[from - 1] = format!("|---|---|{}", "--:|".repeat(Column::ALL.len() + 1));
    for line in &mut lines[from..to] {
        let cells = cells(line).collect::<Vec<_>>();
        ensure!(
            cells.len() == names.len(),
            "the row `{line}` has {} cells, its table {}",
            cells.len(),
            names.len()
        );
        let empty = Row::default().cells();
        let numbers =
            places.iter().zip(empty.split(" | ")).map(|(place, zero)| place.map_or(zero, |at| cells[at + 2]));
        let numbers = numbers.collect::<Vec<_>>().join(" | ");
        *line = format!("| {} | {} | {numbers} | {} |", cells[0], cells[1], cells[cells.len() - 1])
            .replace("|  |", "| |");
    }
    Ok(joined(&lines))
}

/// The cells of a row.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    let line = line.strip_prefix('|').unwrap_or(line);
    line.strip_suffix('|').unwrap_or(line).split('|').map(str::trim)
}

fn joined(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}

/// The text with this row of a run, in place of the row that begins with `key`, or as the last one.
fn with_run(text: &str, key: &str, run: &str) -> Result<String> {
    let (mut lines, from, to) = runs(text)?;
    match lines[from..to].iter().position(|line| line.starts_with(key)) {
        Some(at) => run.clone_into(&mut lines[from + at]),
        None => lines.insert(to, run.to_owned()),
    }
    Ok(joined(&lines))
}

/// The text with its row of sums, the first of the table.
fn with_sums(text: &str) -> Result<String> {
    let (mut lines, from, to) = runs(text)?;
    let (mut sum, mut findings) = (Row::default(), 0_u64);
    for line in lines[from..to].iter().filter(|line| !line.contains(SUMS)) {
        let cells = cells(line).collect::<Vec<_>>();
        let [_, _, numbers @ .., found] = &cells[..] else { bail!("the row `{line}` is too short") };
        sum += Row::read(numbers).with_context(|| format!("the row `{line}`"))?;
        findings += found.parse::<u64>().with_context(|| format!("the findings of the row `{line}`"))?;
    }
    let sums = format!("| {SUMS} | | {} | {findings} |", sum.cells());
    match lines[from..to].iter().position(|line| line.contains(SUMS)) {
        Some(at) => lines[from + at] = sums,
        None => lines.insert(from, sums),
    }
    Ok(joined(&lines))
}

/// The text with findings at the end of their table.
fn with_findings(text: &str, now: &str, commit: &str, findings: &[String]) -> Result<String> {
    let (mut lines, _, to) = table(text, |line| line == FINDINGS, FINDINGS)?;
    let rows = findings.iter().map(|finding| {
        let finding = finding.replace('|', "/").replace('`', "'").replace('\n', " ");
        format!("| {now} | {commit} | `{finding}` | {OPEN} |")
    });
    lines.splice(to..to, rows);
    Ok(joined(&lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> String {
        let columns = Column::ALL.map(|(_, name)| name).join(" | ");
        format!(
            "# Record\n\n{FIRST} {columns} | {LAST}\n|---|\n\nWords.\n\n{FINDINGS}\n|---|---|---|---|\n\nMore.\n"
        )
    }

    fn row(worlds: f64) -> Row {
        let mut row = Row::default();
        row[Column::WorldsTime] = 0.25;
        row[Column::Queue] = worlds;
        row
    }

    fn rows(text: &str) -> Vec<String> {
        let (lines, from, to) = runs(text).unwrap();
        lines[from..to].to_vec()
    }

    #[test]
    fn a_run_has_one_row_that_grows_and_the_sums_follow() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.md");
        fs::write(&path, empty()).unwrap();
        let mut first = Record::begin(&path, "aaa").unwrap();
        first.add(&row(100.0), &[]).unwrap();
        first.add(&row(40.0), &["cargo xtask sim --seed 5".to_owned()]).unwrap();
        let mut second = Record::begin(&path, "bbb").unwrap();
        second.add(&row(7.0), &[]).unwrap();
        first.add(&row(1.0), &[]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let rows = rows(&text);
        assert_eq!(rows.len(), 3, "{text}");
        let begins = |row: &str, begin: &str, number: &str| {
            assert!(row.contains(begin), "{row}");
            assert!(row.contains(&format!(" | {number} | ")), "{row}");
        };
        begins(&rows[0], "| **all runs** | | 1.00 | 0.00 |", "148");
        begins(&rows[1], "| aaa | 0.75 | 0.00 |", "141");
        begins(&rows[2], "| bbb | 0.25 | 0.00 |", "7");
        assert!(rows[0].ends_with("| 1 |") && rows[2].ends_with("| 0 |"));
        assert!(text.contains("| aaa | `cargo xtask sim --seed 5` | open |\n\nMore.\n"), "{text}");
    }

    #[test]
    fn a_row_that_was_pasted_in_counts_when_the_sums_are_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.md");
        let pasted = format!("| 2026-01-01 00:00:00 | ccc | {} | 2 |", row(30.0).cells());
        fs::write(&path, with_run(&empty(), "| x |", &pasted).unwrap()).unwrap();
        Record::begin(&path, "ddd").unwrap().sum_up().unwrap();
        let rows = rows(&fs::read_to_string(&path).unwrap());
        assert_eq!(rows.len(), 2);
        assert!(rows[0].contains(" | 30 | ") && rows[0].ends_with("| 2 |"), "{}", rows[0]);
    }

    #[test]
    fn a_file_from_before_a_column_gets_it_with_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.md");
        let mut old = row(30.0);
        old[Column::Masters] = 4.0;
        old[Column::Crashes] = 77.0;
        let cells = old.cells();
        // The table as it was before worlds of groups: the cells between those of masters and of crashes did not exist.
        let text =
            with_run(&empty(), "| x |", &format!("| 2026-01-01 00:00:00 | ccc | {cells} | 2 |")).unwrap();
        let text =
            text.replace(" | group | members | ", " | ").replace(" | 4 | 0 | 0 | 77 | ", " | 4 | 77 | ");
        assert!(runs(&text).is_err(), "the column is gone");
        fs::write(&path, text).unwrap();
        let mut record = Record::begin(&path, "ddd").unwrap();
        let mut new = Row::default();
        new[Column::Group] = 5.0;
        record.add(&new, &[]).unwrap();
        let rows = rows(&fs::read_to_string(&path).unwrap());
        assert_eq!(rows.len(), 3, "{rows:?}");
        assert!(rows[0].contains(" | 4 | 5 | 0 | 77 | ") && rows[0].ends_with("| 2 |"), "{}", rows[0]);
        assert_eq!(rows[1], format!("| 2026-01-01 00:00:00 | ccc | {cells} | 2 |"));
        assert!(rows[2].contains(" | 0 | 5 | 0 | 0 | "), "{}", rows[2]);
    }

    #[test]
    fn a_file_without_its_tables_is_refused_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.md");
        assert!(Record::begin(&path, "aaa").is_err(), "there is no file");
        fs::write(&path, "# Record\n").unwrap();
        assert!(Record::begin(&path, "aaa").is_err(), "there is no table");
        fs::write(&path, empty().replace("simulated h", "hours")).unwrap();
        assert!(Record::begin(&path, "aaa").is_err(), "the columns are others");
        let broken = with_run(&empty(), "| x |", "| 2026-01-01 | aaa | x | 0 |").unwrap();
        fs::write(&path, broken).unwrap();
        assert!(Record::begin(&path, "aaa").is_err(), "a row is broken");
    }
}
