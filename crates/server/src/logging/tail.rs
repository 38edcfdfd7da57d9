//! The newest lines of the log, in memory: what an administrator sees without access to the machine.
//!
//! Invariants: at most [`MAX_LINES`] lines and [`MAX_BYTES`] bytes; numbers of lines grow by one and never repeat, so a reader
//! sees what it has missed.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Lines that are kept.
pub(crate) const MAX_LINES: usize = 1000;
/// Bytes of all lines that are kept.
const MAX_BYTES: usize = 256 << 10;
/// Bytes of a line that are kept.
const MAX_LINE: usize = 4 << 10;

#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
    /// Number of the next line.
    next: u64,
}

static TAIL: Mutex<Tail> = Mutex::new(Tail { lines: VecDeque::new(), bytes: 0, next: 0 });

impl Tail {
    fn keep(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line.trim_ascii_end());
        let end = text.floor_char_boundary(MAX_LINE);
        let text = match end < text.len() {
            true => format!("{}…", &text[..end]),
            false => text.into_owned(),
        };
        self.bytes += text.len();
        self.lines.push_back(text);
        self.next += 1;
        while self.lines.len() > MAX_LINES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.len();
        }
    }

    fn after(&self, after: Option<u64>, limit: usize) -> Vec<(u64, String)> {
        let first = self.next - self.lines.len() as u64;
        let numbered = self.lines.iter().enumerate().map(|(place, line)| (first + place as u64, line));
        let newer = numbered.filter(|(number, _)| after.is_none_or(|after| *number > after));
        let mut newest: Vec<_> =
            newer.rev().take(limit).map(|(number, line)| (number, line.clone())).collect();
        newest.reverse();
        newest
    }
}

/// Keeps a line, without the sequences that color it.
pub(super) fn keep(line: &[u8]) {
    // A thread that panicked with the lock has at most lost a line.
    TAIL.lock().unwrap_or_else(PoisonError::into_inner).keep(line);
}

/// The newest lines, at most `limit`, with their numbers, the oldest first; with `after` those with larger numbers.
pub(crate) fn after(after: Option<u64>, limit: usize) -> Vec<(u64, String)> {
    TAIL.lock().unwrap_or_else(PoisonError::into_inner).after(after, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_stay_within_both_bounds() {
        let mut tail = Tail::default();
        (0..3000).for_each(|number| tail.keep(format!("line {number}\n").as_bytes()));
        let all = tail.after(None, usize::MAX);
        assert_eq!((all.len(), &*all[0].1), (MAX_LINES, "line 2000"));
        assert_eq!(all.last(), Some(&(2999, "line 2999".to_owned())));
        assert_eq!(tail.after(Some(2997), 10).iter().map(|line| line.0).collect::<Vec<_>>(), [2998, 2999]);
        assert_eq!(tail.after(None, 1), [(2999, "line 2999".to_owned())]);
        assert!(tail.after(Some(2999), 10).is_empty());
        (0..100).for_each(|_| tail.keep(&"ü".repeat(MAX_LINE).into_bytes()));
        assert!(tail.bytes <= MAX_BYTES && tail.lines.len() < 100, "{} lines", tail.lines.len());
        assert!(tail.lines.iter().all(|line| line.len() <= MAX_LINE + 3));
        assert_eq!(tail.bytes, tail.lines.iter().map(String::len).sum::<usize>());
    }
}
