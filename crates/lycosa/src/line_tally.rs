//! The tally of an input's lines: stored ones, refused ones, and how to go on.

use std::io;
use std::ops::RangeInclusive;

use serde_json::{Value as Json, json};

use crate::outcome::Outcome;
use crate::output;

/// What became of the lines (or tasks) of an input, by their numbers from 1.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    stored: Ranges,
    refused: Vec<Refusal>,
    /// No reply came: each may be stored or not.
    unknown: Ranges,
    why_unknown: Option<String>,
    /// The last one that was read.
    pub(crate) last: u64,
}

/// A range that was refused as a whole.
#[derive(Debug)]
struct Refusal {
    range: RangeInclusive<u64>,
    reason: String,
    /// The server takes no tasks at the moment, whichever they are.
    is_of_server: bool,
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
    match (range.start(), range.end()) {
        (start, end) if start == end => start.to_string(),
        (start, end) => format!("{start}-{end}"),
    }
}

impl Tally {
    pub(crate) fn stored(&mut self, range: RangeInclusive<u64>) {
        self.stored.add(range);
    }

    pub(crate) fn refused(&mut self, range: RangeInclusive<u64>, reason: impl Into<String>) {
        self.refused.push(Refusal { range, reason: reason.into(), is_of_server: false });
    }

    /// The same for a reason that lies with the server: its disk is full, for example. Neighbors are told as one range with the
    /// first reason.
    pub(crate) fn refused_for_now(&mut self, range: RangeInclusive<u64>, reason: impl Into<String>) {
        match self.refused.last_mut() {
            Some(last) if last.is_of_server && *last.range.end() + 1 == *range.start() => {
                last.range = *last.range.start()..=*range.end();
            }
            _ => self.refused.push(Refusal { range, reason: reason.into(), is_of_server: true }),
        }
    }

    /// The first of the lines to put again as they are: the server took none from there on, and nothing is wrong with them.
    fn to_repeat(&self) -> Option<u64> {
        let [Refusal { range, is_of_server: true, .. }] = self.refused.as_slice() else { return None };
        let is_last = self.unknown.0.is_empty() && *range.end() == self.last;
        is_last.then_some(*range.start())
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
        self.refused.iter().map(|Refusal { range, .. }| range.end() - range.start() + 1).sum()
    }

    /// Prints the failures and how to go on; nothing if all is well. `unit` is the noun of the numbers, `line` or `task`;
    /// `go_on` is the command that reads the rest from a given line.
    pub(crate) fn report(
        mut self,
        unit: &str,
        go_on: impl Fn(u64) -> String,
        as_json: bool,
    ) -> io::Result<Outcome> {
        if self.is_clean() {
            return Ok(Outcome::Done);
        }
        if unit == "task"
            && self.last == 1
            && let [Refusal { reason, .. }] = self.refused.as_slice()
        {
            eprintln!("lycosa: {reason}");
            return Ok(Outcome::Refused);
        }
        self.refused.sort_by_key(|refusal| *refusal.range.start());
        let is_unknown = !self.unknown.0.is_empty();
        for Refusal { range, reason, .. } in &self.refused {
            eprintln!("lycosa: {unit} {} was refused: {reason}", text(range));
        }
        if is_unknown {
            let (unknown, why) = (self.unknown.text(), self.why_unknown.as_deref());
            let why = why.unwrap_or("the connection ended");
            eprintln!("lycosa: {unit} {unknown} may or may not be stored, no reply came: {why}");
        }
        let stored = match self.stored.0.is_empty() {
            true => "none".to_owned(),
            false => format!("{unit} {}", self.stored.text()),
        };
        let repeated = self.to_repeat();
        let next = self.last + 1;
        eprintln!("lycosa: stored: {stored}; not read: from {unit} {next} on");
        if unit == "line" {
            let first = match (is_unknown, repeated) {
                (true, _) => "look which of the unknown lines are stored",
                (false, Some(_)) => "remove the cause at the server",
                (false, None) => "correct and put the refused lines",
            };
            eprintln!("lycosa: to go on: {first}, then `{}`", go_on(repeated.unwrap_or(next)));
        }
        if as_json {
            let refusal = |Refusal { range, reason, .. }: &Refusal| json!({ unit: [range.start(), range.end()], "reason": reason });
            let refused: Json = self.refused.iter().map(refusal).collect();
            let (stored, unknown) = (self.stored.json(), self.unknown.json());
            output::line(json!({ "stored": stored, "refused": refused, "unknown": unknown, "next": next }))?;
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

    #[test]
    fn lines_that_a_full_server_refused_are_one_range_to_repeat() {
        let mut tally = Tally { last: 600, ..Tally::default() };
        tally.stored(1..=88);
        for line in 89..=600 {
            tally.refused_for_now(line..=line, format!("only {line} bytes are free"));
        }
        assert_eq!(tally.refused.len(), 1);
        assert_eq!((tally.refused_count(), tally.to_repeat()), (512, Some(89)));
        // A task in between was stored: two ranges are left.
        let mut tally = Tally { last: 4, ..Tally::default() };
        tally.refused_for_now(1..=2, "full");
        tally.stored(3..=3);
        tally.refused_for_now(4..=4, "full");
        assert_eq!((tally.refused.len(), tally.to_repeat()), (2, None));
        // A wrong line is not to be put again as it is.
        let mut tally = Tally { last: 1, ..Tally::default() };
        tally.refused(1..=1, "no JSON");
        assert_eq!(tally.to_repeat(), None);
    }
}
