//! Which lines of an input were stored, which were refused, and how to go on.

use std::io;
use std::ops::RangeInclusive;

use serde_json::{Value as Json, json};

use crate::outcome::Outcome;
use crate::output;

/// What became of the lines (or tasks) of an input, by their numbers from 1.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    stored: Ranges,
    /// Ranges that were refused as a whole, and why.
    refused: Vec<(RangeInclusive<u64>, String)>,
    /// No reply came: each may be stored or not.
    unknown: Ranges,
    why_unknown: Option<String>,
    /// The last one that was read.
    pub(crate) last: u64,
}

/// Numbers as ranges; neighbors are merged when they are shown.
#[derive(Debug, Default)]
struct Ranges(Vec<RangeInclusive<u64>>);

impl Ranges {
    fn add(&mut self, range: RangeInclusive<u64>) {
        match self.0.last_mut() {
            Some(last) if *last.end() + 1 == *range.start() => *last = *last.start()..=*range.end(),
            _ => self.0.push(range),
        }
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end() - range.start() + 1).sum()
    }

    /// The ranges in ascending order, as few as possible.
    fn merged(&self) -> Vec<RangeInclusive<u64>> {
        let mut ranges = self.0.clone();
        ranges.sort_unstable_by_key(|range| *range.start());
        let mut merged = Self::default();
        ranges.into_iter().for_each(|range| merged.add(range));
        merged.0
    }

    fn text(&self) -> String {
        self.merged().iter().map(text).collect::<Vec<_>>().join(", ")
    }

    fn json(&self) -> Json {
        self.merged().iter().map(|range| json!([range.start(), range.end()])).collect()
    }
}

fn text(range: &RangeInclusive<u64>) -> String {
    if range.start() == range.end() {
        range.start().to_string()
    } else {
        format!("{}-{}", range.start(), range.end())
    }
}

impl Tally {
    pub(crate) fn stored(&mut self, range: RangeInclusive<u64>) {
        self.stored.add(range);
    }

    pub(crate) fn refused(&mut self, range: RangeInclusive<u64>, reason: impl Into<String>) {
        self.refused.push((range, reason.into()));
    }

    pub(crate) fn unknown(&mut self, range: RangeInclusive<u64>, reason: impl Into<String>) {
        self.unknown.add(range);
        self.why_unknown.get_or_insert(reason.into());
    }

    /// Whether everything so far was stored, or may be.
    pub(crate) fn is_clean(&self) -> bool {
        self.refused.is_empty() && self.unknown.0.is_empty()
    }

    pub(crate) fn stored_count(&self) -> u64 {
        self.stored.count()
    }

    pub(crate) fn refused_count(&self) -> u64 {
        self.refused.iter().map(|(range, _)| range.end() - range.start() + 1).sum()
    }

    /// Prints the failures and how to go on; nothing if all is well. `unit` is the noun of the numbers, `line` or `task`;
    /// `go_on` is the command that reads the rest from a given line.
    pub(crate) fn report(
        mut self,
        unit: &str,
        go_on: impl FnOnce(u64) -> String,
        as_json: bool,
    ) -> io::Result<Outcome> {
        if self.is_clean() {
            return Ok(Outcome::Done);
        }
        if unit == "task"
            && self.last == 1
            && let [(_, reason)] = self.refused.as_slice()
        {
            eprintln!("lycosa: {reason}");
            return Ok(Outcome::Refused);
        }
        self.refused.sort_by_key(|(range, _)| *range.start());
        let is_unknown = !self.unknown.0.is_empty();
        for (range, reason) in &self.refused {
            eprintln!("lycosa: {unit} {} was refused: {reason}", text(range));
        }
        if is_unknown {
            eprintln!(
                "lycosa: {unit} {} may or may not be stored, no reply came: {}",
                self.unknown.text(),
                self.why_unknown.as_deref().unwrap_or("the connection ended")
            );
        }
        let stored = match self.stored.0.is_empty() {
            true => "none".to_owned(),
            false => format!("{unit} {}", self.stored.text()),
        };
        let next = self.last + 1;
        eprintln!("lycosa: stored: {stored}; not read: from {unit} {next} on");
        if unit == "line" {
            let first = if is_unknown {
                "look which of the unknown lines are stored"
            } else {
                "correct and put the refused lines"
            };
            eprintln!("lycosa: to go on: {first}, then `{}`", go_on(next));
        }
        if as_json {
            let refused: Vec<Json> = self
                .refused
                .iter()
                .map(|(range, reason)| json!({ unit: [range.start(), range.end()], "reason": reason }))
                .collect();
            output::line(json!({
                "stored": self.stored.json(), "refused": refused, "unknown": self.unknown.json(), "next": next,
            }))?;
        }
        Ok(if is_unknown { Outcome::NoConnection } else { Outcome::Refused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_become_one_range() {
        let mut tally = Tally::default();
        for line in [5, 1, 2, 3, 7, 8] {
            tally.stored(line..=line);
        }
        tally.stored(9..=20);
        assert_eq!(tally.stored.text(), "1-3, 5, 7-20");
        assert_eq!(tally.stored_count(), 18);
        assert!(tally.is_clean());
        tally.refused(4..=4, "no");
        assert_eq!((tally.is_clean(), tally.refused_count()), (false, 1));
    }
}
