//! The progress of a phase, in one line of a terminal.

use std::io::{IsTerminal, Write, stderr};

use super::phase::Phase;

/// Nanoseconds between two lines.
const PAUSE: u64 = 250_000_000;
/// Goes to the beginning of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// Says on a terminal how far a phase is; elsewhere it is silent.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    what: Option<&'a str>,
    next: u64,
}

impl<'a> Progress<'a> {
    /// `what` the phase does, if it is to be shown.
    pub(super) fn new(what: Option<&'a str>) -> Self {
        Self { what: what.filter(|_| stderr().is_terminal()), next: PAUSE }
    }

    /// Writes the line if it is time for it.
    pub(super) fn show(&mut self, phase: &Phase<'_>) {
        let Some(what) = self.what.filter(|_| phase.now() >= self.next) else { return };
        self.next = phase.now() + PAUSE;
        // A terminal that is gone is no reason to end the measurement.
        let _ = write!(stderr(), "{CLEAR}{what}: {}", phase.progress());
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.what.is_some() && self.next > PAUSE {
            let _ = write!(stderr(), "{CLEAR}");
        }
    }
}
