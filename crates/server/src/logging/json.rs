//! Lines of a program that asks for `log_format = 'json'`: one object each, with the members of Tarantool.

use std::fmt::{self, Debug, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::lines::Time;

static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Whether lines are JSON from now on.
pub(super) fn switch(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
}

/// A format for text, which the lines have until they are JSON.
pub(super) struct OrText<F>(pub F);

impl<S, N, F> FormatEvent<S, N> for OrText<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if IS_JSON.load(Ordering::Relaxed) {
            write_json(writer, event)
        } else {
            self.0.format_event(context, writer, event)
        }
    }
}

fn write_json(mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
    let mut members = Members::default();
    event.record(&mut members);
    let level = match *event.metadata().level() {
        Level::ERROR => "ERROR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        Level::DEBUG => "VERBOSE",
        Level::TRACE => "DEBUG",
    };
    writer.write_str("{\"time\": \"")?;
    Time.format_time(&mut writer)?;
    write!(writer, "\", \"level\": \"{level}\"")?;
    // The members of a table become members of the line.
    let inner = members.message.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    match inner.filter(|_| members.is_table) {
        Some("") => {}
        Some(inner) => write!(writer, ", {inner}")?,
        None => write!(writer, ", \"message\": {}", quoted(&members.message))?,
    }
    writeln!(writer, ", \"pid\": {}, \"cord_name\": \"main\"{}}}", std::process::id(), members.others)
}

/// What a line tells.
#[derive(Default)]
struct Members {
    message: String,
    /// The message is a table of the program, as JSON.
    is_table: bool,
    /// The further members, each behind a comma.
    others: String,
}

impl Members {
    fn add(&mut self, field: &Field, value: impl fmt::Display) {
        let name = match field.name() {
            "fiber" => "fiber_id",
            "name" => "fiber_name",
            other => other,
        };
        // Writing to a text does not fail.
        _ = write!(self.others, ", {}: {value}", quoted(name));
    }
}

impl Visit for Members {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            "file" if value.is_empty() => {}
            _ => self.add(field, quoted(value)),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "is_table" {
            self.is_table = value;
        } else {
            self.add(field, value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() != "line" || value > 0 {
            self.add(field, value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() { self.add(field, value) } else { self.add(field, quoted(&value.to_string())) }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.add(field, quoted(&text));
        }
    }
}

/// A text in quotation marks.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_text_ends_where_its_quotation_marks_do() {
        assert_eq!(quoted("a\"b\\c\n\u{1b}ä"), r#""a\"b\\c\n\u001bä""#);
    }
}
