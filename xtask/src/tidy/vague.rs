//! Words that stand where a noun belongs ("whoever", "so many", "what is due"): counted by folder, never more than recorded.
//!
//! Such a word is not always wrong, so no line is a fault by itself. Each folder's number of lines with one stands in
//! [`RECORD`]; `tidy` fails where a folder has more, and `cargo xtask words --record` writes lower numbers down. A folder
//! without a number may have [`PER_THOUSAND`] lines of a thousand.
//!
//! Lines are those of comments in Rust and of prose in documents; text between backticks does not count.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Fault, Source, sentences};
use crate::top;

/// The number of lines that each folder may have.
const RECORD: &str = "xtask/vague-words.txt";

/// The goal for every folder, and the bound of a new one: lines with a vague word, of a thousand.
const PER_THOUSAND: usize = 8;

/// Each makes the reader search for the thing that is meant. Lower case; whole words.
const VAGUE: &[&str] = &[
    "whoever",
    "whomever",
    "whatever",
    "nobody",
    "anybody",
    "everybody",
    "somebody",
    "who is",
    "whom",
    "so many",
    "that many",
    "those that",
    "those who",
    "what is",
    "what was",
    "what comes",
    "what has",
    "it is told",
    "is told",
    "by itself",
    "on their way",
    "on its way",
    "is there",
    "are there",
    "has come",
    "have come",
    "has gone",
    "have gone",
    "the others",
    "room",
    "in earnest",
    "moments",
    "arrears",
    "who asks",
    "who waits",
    "who has",
    "who holds",
    "who needs",
    "who reads",
    "and who",
    "of who",
    "to who",
];

/// Lines of one folder.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// All lines that were looked at.
    lines: usize,
    /// Places of the lines with a vague word, each with the line.
    vague: Vec<(String, String)>,
}

/// Fails for each folder that has more lines with a vague word than recorded.
pub(super) fn check(sources: &[Source], faults: &mut Vec<Fault>) -> Result<()> {
    let record = read_record()?;
    for (folder, tally) in tallies(sources) {
        let bound = record.get(&folder).copied().unwrap_or(tally.lines * PER_THOUSAND / 1000);
        let count = tally.vague.len();
        if count > bound {
            let what = format!(
                "{count} lines have a word where a noun belongs, {bound} are recorded: `cargo xtask words {folder}` \
                 lists the lines"
            );
            faults.push(Fault::new(folder, what));
        }
    }
    Ok(())
}

/// Prints the lines of `folder` that have a vague word, or each folder's count.
pub(super) fn list(sources: &[Source], folder: Option<&str>) {
    let mut all = Tally::default();
    for (name, tally) in tallies(sources) {
        if folder.is_some_and(|wanted| wanted.trim_end_matches('/') != name) {
            continue;
        }
        if folder.is_some() {
            tally.vague.iter().for_each(|(place, line)| println!("{place}: {line}"));
        }
        println!("{name}: {}", tally.rate());
        all.lines += tally.lines;
        all.vague.extend(tally.vague);
    }
    if folder.is_none() {
        println!("all: {}", all.rate());
    }
}

/// Writes each folder's count down where it is lower than the recorded one, or where none is recorded.
pub(super) fn record(sources: &[Source]) -> Result<()> {
    let mut record = read_record()?;
    let tallies = tallies(sources);
    record.retain(|folder, _| tallies.contains_key(folder));
    for (folder, tally) in tallies {
        let bound = record.entry(folder).or_insert(usize::MAX);
        *bound = tally.vague.len().min(*bound);
    }
    let text: String = record.iter().map(|(folder, count)| format!("{folder} {count}\n")).collect();
    fs::write(top().join(RECORD), text).with_context(|| format!("cannot write {RECORD}"))
}

impl Tally {
    fn rate(&self) -> String {
        let count = self.vague.len();
        let rate = (count * 1000).checked_div(self.lines).unwrap_or(0);
        format!("{count} of {} lines, {rate} per thousand (the goal is {PER_THOUSAND})", self.lines)
    }
}

fn read_record() -> Result<BTreeMap<String, usize>> {
    let text = fs::read_to_string(top().join(RECORD)).with_context(|| format!("cannot read {RECORD}"))?;
    let entry = |line: &str| {
        let (folder, count) = line.split_once(' ')?;
        Some((folder.to_owned(), count.parse().ok()?))
    };
    text.lines()
        .map(|line| {
            entry(line).with_context(|| format!("{RECORD} has the line {line:?}; wanted: FOLDER COUNT"))
        })
        .collect()
}

fn tallies(sources: &[Source]) -> BTreeMap<String, Tally> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for source in sources {
        let is_code = source.has_extension(&["rs"]);
        // The words themselves stand here.
        if source.path.ends_with("tidy/vague.rs") || !(is_code || source.has_extension(&["md"])) {
            continue;
        }
        let tally = tallies.entry(folder_of(&source.path)).or_default();
        let mut in_block = false;
        for (at, line) in source.text.lines().enumerate() {
            let Some(text) = (if is_code { sentences::comment(line) } else { Some(line) }) else { continue };
            let is_fence = text.trim().starts_with("```");
            in_block ^= is_fence;
            if in_block || is_fence || text.trim().is_empty() {
                continue;
            }
            tally.lines += 1;
            if is_vague(text) {
                tally.vague.push((format!("{}:{}", source.path.display(), at + 1), text.trim().to_owned()));
            }
        }
    }
    tallies
}

/// The crate of a file under `crates/`, else the first folder, else `.`.
fn folder_of(path: &Path) -> String {
    let parts: Vec<_> = path.parent().into_iter().flat_map(Path::iter).collect();
    let depth = if path.starts_with("crates") { 2 } else { 1 };
    let parts: Vec<_> = parts.iter().take(depth).map(|part| part.to_string_lossy()).collect();
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

fn is_vague(text: &str) -> bool {
    // Every second piece stands between backticks.
    let prose: Vec<&str> = text.split('`').step_by(2).collect();
    let words: String = prose
        .join(" ` ")
        .chars()
        .map(|c| if c.is_alphanumeric() || c == '`' { c.to_ascii_lowercase() } else { ' ' })
        .collect();
    let words = format!(" {} ", words.split_whitespace().collect::<Vec<_>>().join(" "));
    VAGUE.iter().any(|vague| words.contains(&format!(" {vague} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.to_owned() }
    }

    #[test]
    fn vague_words_are_whole_words_outside_code() {
        assert!(is_vague("Whoever takes it"));
        assert!(is_vague("sorted by what is due"));
        assert!(is_vague("(nobody)"));
        assert!(!is_vague("the mushroom and the rooms"));
        assert!(!is_vague("`nobody` is a user's name"));
        assert!(!is_vague("a timeout, by the clock itself"));
    }

    #[test]
    fn lines_are_counted_by_folder() {
        let sources = [
            source("crates/tuple/src/a.rs", "/// Whoever asks.\n/// The client.\nlet nobody = 1;\n"),
            source("crates/tuple/src/b/c.rs", "    // so many rows\n"),
            source("docs/a.md", "Nobody.\n```\nnobody\n```\n"),
            source("README.md", "The server.\n"),
        ];
        let counts: Vec<_> = tallies(&sources)
            .into_iter()
            .map(|(folder, tally)| (folder, tally.lines, tally.vague.len()))
            .collect();
        let expected = [(".", 1, 0), ("crates/tuple", 3, 2), ("docs", 1, 1)];
        assert_eq!(counts, expected.map(|(folder, lines, vague)| (folder.to_owned(), lines, vague)));
    }
}
