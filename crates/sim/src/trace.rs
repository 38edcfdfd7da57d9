//! The course of a world, line by line: hashed at once, so that two runs can be compared by one number; shown if a person
//! watches; the last lines kept for the report of a failure.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};

/// Lines that a failure shows.
const KEPT: usize = 60;

/// The course of a run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    verbose: bool,
    recent: VecDeque<String>,
}

impl Trace {
    /// An empty course. `verbose`: print every line as it comes.
    #[must_use]
    pub fn new(verbose: bool) -> Self {
        Self { hash: START, verbose, recent: VecDeque::with_capacity(KEPT) }
    }

    /// The hash of everything so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The last lines, oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &str> {
        self.recent.iter().map(String::as_str)
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, text: fmt::Arguments<'_>) {
        let mut line = match self.recent.len() {
            KEPT => self.recent.pop_front().unwrap_or_default(),
            _ => String::new(),
        };
        line.clear();
        let _ = line.write_fmt(text);
        self.bytes(line.as_bytes());
        if self.verbose {
            // A reader of the lines may have seen enough.
            let _ = writeln!(io::stdout(), "{line}");
        }
        self.recent.push_back(line);
    }

    /// Adds bytes that are not shown: only the hash knows them.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.hash = continued(self.hash, bytes);
    }
}

/// Where the hash of a course, or of bytes that it names, begins.
const START: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of bytes alone, by which a line may name them.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    continued(START, bytes)
}

/// FNV-1a, and the length.
fn continued(mut hash: u64, bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    }
    (hash ^ bytes.len() as u64).wrapping_mul(PRIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_knows_order_and_lengths() {
        let hash = |parts: &[&str]| {
            let mut trace = Trace::new(false);
            parts.iter().for_each(|part| trace.line(format_args!("{part}")));
            trace.hash()
        };
        assert_eq!(hash(&["ab", "c"]), hash(&["ab", "c"]));
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["a", "b"]), hash(&["b", "a"]));
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut trace = Trace::new(false);
        (0..100).for_each(|number| trace.line(format_args!("{number}")));
        assert_eq!(trace.recent().count(), KEPT);
        assert_eq!(trace.recent().last(), Some("99"));
    }
}
