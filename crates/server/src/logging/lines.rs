//! Lines of text as `tracing-subscriber` writes them, in a third of the instructions: a program may log a line for
//! each request.
//!
//! Plain texts and numbers are copied; all other fields of a line, and every line for a terminal, are left to
//! `tracing-subscriber`. The date and the time of a second are made once.

use std::cell::RefCell;
use std::fmt::{self, Debug};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::{RecordFields, VisitFmt, VisitOutput};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime as Utc};

/// The field with the text of a line.
const MESSAGE: &str = "message";

/// When a line was written: `2026-11-23T21:23:45.012345Z`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time;

/// The last second of which a line was written, and its text up to the fraction.
#[derive(Default)]
struct Second {
    since_epoch: u64,
    text: String,
}

impl FormatTime for Time {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        thread_local!(static LAST: RefCell<Second> = RefCell::default());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        LAST.with_borrow_mut(|last| {
            if last.since_epoch != now.as_secs() || last.text.is_empty() {
                last.text.clear();
                Utc.format_time(&mut Writer::new(&mut last.text))?;
                let whole = last.text.find('.').unwrap_or(last.text.len());
                last.text.truncate(whole);
                last.since_epoch = now.as_secs();
            }
            let mut fraction = *b".000000Z";
            let mut rest = now.subsec_micros();
            for digit in fraction[1..7].iter_mut().rev() {
                *digit += (rest % 10) as u8;
                rest /= 10;
            }
            writer.write_str(&last.text)?;
            writer.write_str(str::from_utf8(&fraction).unwrap_or_default())
        })
    }
}

/// The content of a line: its text, and values by their names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields;

impl<'writer> FormatFields<'writer> for Fields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = Visitor { writer, is_empty: true, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.finish()
    }
}

struct Visitor<'writer> {
    writer: Writer<'writer>,
    is_empty: bool,
    result: fmt::Result,
}

/// Whether a text is shown as it is, in quotation marks too.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\')
}

impl Visitor<'_> {
    /// Writes the parts behind what stands there already.
    fn write(&mut self, parts: &[&str]) {
        let space = if self.is_empty { "" } else { " " };
        self.is_empty = false;
        for part in [space].iter().chain(parts) {
            self.result = self.result.and_then(|()| self.writer.write_str(part));
        }
    }

    fn leave(&mut self, record: impl FnOnce(&mut DefaultVisitor<'_>)) {
        if self.result.is_err() {
            return;
        }
        let mut visitor = DefaultVisitor::new(self.writer.by_ref(), self.is_empty);
        record(&mut visitor);
        self.result = visitor.finish();
        self.is_empty = false;
    }
}

impl Visit for Visitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            MESSAGE if is_plain(value) => self.write(&[value]),
            name if is_plain(value) && !name.starts_with("r#") => self.write(&[name, "=\"", value, "\""]),
            _ => self.leave(|visitor| visitor.record_str(field, value)),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            name if name != MESSAGE && !name.starts_with("r#") => {
                let (mut digits, mut at, mut rest) = ([b'0'; 20], 20, value);
                while rest > 0 || at == 20 {
                    at -= 1;
                    digits[at] += (rest % 10) as u8;
                    rest /= 10;
                }
                self.write(&[name, "=", str::from_utf8(&digits[at..]).unwrap_or_default()]);
            }
            _ => self.leave(|visitor| visitor.record_u64(field, value)),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.leave(|visitor| visitor.record_error(field, value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.leave(|visitor| visitor.record_debug(field, value));
    }
}

impl VisitOutput<fmt::Result> for Visitor<'_> {
    fn finish(self) -> fmt::Result {
        self.result
    }
}

impl VisitFmt for Visitor<'_> {
    fn writer(&mut self) -> &mut dyn fmt::Write {
        &mut self.writer
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn log_everything() {
        let texts = ["plain", "with \"marks\" and \\", "two\nlines", "\x1b[2J", "gr\u{fc}n", "", "\u{9b}x"];
        for text in texts {
            tracing::info!(message = text, fiber = 0_u64, name = text);
            tracing::warn!(fiber = u64::MAX, number = -7, ratio = 0.5, flag = true, "{text}");
            tracing::error!(r#type = text, r#for = 7_u64);
            let error = io::Error::other(text);
            tracing::error!(error = &error as &dyn std::error::Error, shown = %text, debug = ?text, "failed");
        }
    }

    #[test]
    fn lines_are_those_of_the_library() {
        let (ours, theirs) = (Lines::default(), Lines::default());
        let (to_ours, to_theirs) = (ours.clone(), theirs.clone());
        let builder = || fmt().with_ansi(false).with_target(false);
        let quick = builder().fmt_fields(Fields).with_timer(()).with_writer(move || to_ours.clone()).finish();
        tracing::subscriber::with_default(quick, log_everything);
        let plain = builder().with_timer(()).with_writer(move || to_theirs.clone()).finish();
        tracing::subscriber::with_default(plain, log_everything);
        assert_eq!(ours.text(), theirs.text());
        assert_eq!(ours.text().matches("fiber=18446744073709551615 number=-7").count(), 7);
    }

    #[test]
    fn the_time_is_that_of_the_library() {
        let shown = |time: &dyn FormatTime| {
            let mut text = String::new();
            time.format_time(&mut Writer::new(&mut text)).unwrap();
            text
        };
        for _ in 0..3 {
            let (before, ours, after) = (shown(&Utc), shown(&Time), shown(&Utc));
            assert_eq!(ours.len(), after.len());
            assert!(before <= ours && ours <= after, "{before} {ours} {after}");
        }
    }
}
