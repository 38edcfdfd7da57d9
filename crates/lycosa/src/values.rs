//! Values of flags: each parser says what would be right.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use lycosa_client::{ConnectOptions, Value};
use lycosa_iproto::vclock::{Vclock, VclockError};
pub(crate) use lycosa_metrics::spell::{bytes, count};
use lycosa_server::config::SettingValue;
use lycosa_tuple::mp::Reader;

/// The longest time span: 100 years, which a tube takes for "without an end".
const MAX_SPAN: Duration = Duration::from_secs(36_500 * 86_400);

/// A time span: seconds, or a text such as `1h30m`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let span = <Duration as SettingValue>::parse(text)
        .ok_or_else(|| format!("expected {}", <Duration as SettingValue>::EXPECTED))?;
    if span > MAX_SPAN { Err("expected at most 36500d (100 years)".to_owned()) } else { Ok(span) }
}

/// A time span that is to last: a task that lives for no time is gone before any client sees it.
pub(crate) fn lasting(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    if span < Duration::from_millis(1) { Err("expected 1ms or more".to_owned()) } else { Ok(span) }
}

/// The span of a lease, or of its renewal.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    let span = lasting(text)?;
    if span > Duration::from_secs(86_400) { Err("expected at most 1d".to_owned()) } else { Ok(span) }
}

/// The token of a lease.
pub(crate) fn token(text: &str) -> Result<String, String> {
    if text.split('-').count() == 4 && !text.contains(char::is_whitespace) {
        Ok(text.to_owned())
    } else {
        Err("expected a token as `lycosa take --lease` prints it: TUBE-TASK-EPOCH-SECRET".to_owned())
    }
}

/// A time span between two looks: long enough for the server to do something else.
pub(crate) fn pause(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    if span < Duration::from_millis(100) { Err("expected 100ms or more".to_owned()) } else { Ok(span) }
}

/// The id of a task.
pub(crate) fn task_id(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected the id of a task: a whole number, 0 or more".to_owned())
}

/// A header of a task: its name and its text, as `NAME=TEXT`.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=TEXT with a name before the \"=\", such as origin=cron".to_owned()),
    }
}

/// A priority.
pub(crate) fn priority(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a whole number, 0 or more; 0 is taken first".to_owned())
}

/// How many, at least one.
pub(crate) fn positive(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "expected a whole number, 1 or more".to_owned())
}

/// How many replicas.
pub(crate) fn replicas(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number <= 31);
    number.ok_or_else(|| "expected a whole number from 0 to 31".to_owned())
}

/// `HOST` or `HOST:PORT`, or several of them with commas between them; with `tls://` before them for TLS.
pub(crate) fn address(text: &str) -> Result<String, String> {
    if text.contains('@') {
        return Err("expected HOST or HOST:PORT; name the user with --user".to_owned());
    }
    match text.parse::<ConnectOptions>() {
        Ok(ConnectOptions { address, tls: Some(_), .. }) => Ok(format!("tls://{address}")),
        Ok(options) => Ok(options.address),
        Err(_) => {
            Err("expected HOST, HOST:PORT or tls://HOST:PORT, an IPv6 address in brackets; several as A,B"
                .to_owned())
        }
    }
}

/// The time since the epoch.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A time span as the queue takes it: seconds.
pub(crate) fn seconds(span: Duration) -> Value {
    match span.subsec_nanos() {
        0 => Value::Uint(span.as_secs()),
        _ => Value::Double(span.as_secs_f64()),
    }
}

/// The name of a value on the command line, under which the server knows it too.
pub(crate) fn name_of(value: &impl ValueEnum) -> String {
    let known = value.to_possible_value().expect("no variant is `#[value(skip)]`");
    known.get_name().to_owned()
}

/// A number with its noun: `1 task`, `2500 tasks`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Operations a second for people: `0.5/s`, `1,234/s`.
pub(crate) fn rate(number: f64) -> String {
    match number {
        number if number > 0.0 && number < 0.05 => "<0.1/s".to_owned(),
        number if number < 99.95 => format!("{number:.1}/s"),
        number => format!("{}/s", count(number.round() as u64)),
    }
}

/// Seconds for people, from microseconds to days: `16 µs`, `1.5 s`, `1h 30m`.
pub(crate) fn lapse(seconds: f64) -> String {
    /// A digit behind the point where there is one digit before it.
    fn short(number: f64, unit: &str) -> String {
        if number < 9.95 && number.fract() >= 0.05 {
            format!("{number:.1} {unit}")
        } else {
            format!("{number:.0} {unit}")
        }
    }

    match seconds {
        seconds if seconds <= 0.0 => "0 s".to_owned(),
        seconds if seconds < 0.001 => short(seconds * 1e6, "µs"),
        seconds if seconds < 1.0 => short(seconds * 1e3, "ms"),
        seconds if seconds < 9.95 => short(seconds, "s"),
        seconds => Duration::try_from_secs_f64(seconds).map_or_else(|_| "-".to_owned(), time),
    }
}

/// A time span for people: its two largest units, such as `1h 30m`.
pub(crate) fn time(span: Duration) -> String {
    let seconds = span.as_secs();
    if seconds < 1 {
        return format!("{} ms", span.as_millis());
    }
    let parts =
        [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    let shown = parts[first..].iter().take(2).filter(|(count, _)| *count > 0);
    shown.map(|(count, unit)| format!("{count}{unit}")).collect::<Vec<_>>().join(" ")
}

/// A member of a reply, of a member of it, and so on.
pub(crate) fn inside<'a>(map: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(map, |map, name| map.get(name))
}

/// A member of a reply that is a whole number; 0 without it.
pub(crate) fn number_of(map: &Value, name: &str) -> u64 {
    map.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// A number, whole or not.
pub(crate) fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        value => value.as_u64().map(|number| number as f64),
    }
}

/// Whether a member of a reply is true.
pub(crate) fn is_true(map: &Value, name: &str) -> bool {
    map.get(name) == Some(&Value::Bool(true))
}

/// A member of a reply that is an array; empty without it.
pub(crate) fn array_of<'a>(map: &'a Value, name: &str) -> &'a [Value] {
    map.get(name).and_then(Value::as_array).unwrap_or_default()
}

/// The pairs of a map; none of any other value.
pub(crate) fn pairs(map: Option<&Value>) -> &[(Value, Value)] {
    match map {
        Some(Value::Map(pairs)) => pairs,
        _ => &[],
    }
}

/// The vclock of a reply, without the component of local rows.
pub(crate) fn vclock(value: &Value) -> Result<Vclock, VclockError> {
    Ok(Vclock::decode(&mut Reader::new(&value.encode()))?.replicated())
}

/// The cell of a value that may be missing.
pub(crate) fn cell<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// A member of a reply that is text; empty without it.
pub(crate) fn text_of<'a>(map: &'a Value, name: &str) -> &'a str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_for_people() {
        let sizes: Vec<_> = [0, 1023, 1024, 1_572_864, 268_435_456, 5 << 40].map(bytes).into();
        assert_eq!(sizes, ["0 B", "1023 B", "1 KiB", "1.5 MiB", "256 MiB", "5 TiB"]);
        let times: Vec<_> =
            [0, 1, 59, 60, 5_400, 86_400, 90_061].map(|s| time(Duration::from_secs(s))).into();
        assert_eq!(times, ["0 ms", "1s", "59s", "1m", "1h 30m", "1d", "1d 1h"]);
        assert_eq!(time(Duration::from_millis(250)), "250 ms");
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            [0.0, 16e-6, 0.0015, 0.25, 1.5, 59.4, 5_400.0, f64::INFINITY].map(lapse),
            ["0 s", "16 µs", "1.5 ms", "250 ms", "1.5 s", "59s", "1h 30m", "-"]
        );
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 0.01, 0.5, 99.9, 1_234.4].map(rate),
            ["0.0/s", "<0.1/s", "0.5/s", "99.9/s", "1,234/s"]
        );
    }

    #[test]
    fn flags_say_what_would_be_right() {
        assert_eq!(span("1h30m"), Ok(Duration::from_secs(5400)));
        assert!(span("36500d").is_ok());
        for (text, part) in [
            ("36501d", "at most 36500d"),
            ("1e15", "at most 36500d"),
            ("1e308", "expected seconds"),
            ("nan", "expected seconds"),
            ("inf", "expected seconds"),
            ("", "expected seconds"),
        ] {
            assert!(span(text).unwrap_err().contains(part), "{text}");
        }
        for text in ["0", "0.0001", "0ms"] {
            assert_eq!(lasting(text).unwrap_err(), "expected 1ms or more");
        }
        assert!(span("-5").unwrap_err().starts_with("expected seconds, 0 or more"));
        assert_eq!(priority("-1").unwrap_err(), "expected a whole number, 0 or more; 0 is taken first");
        assert_eq!(address("localhost"), Ok("localhost:3301".to_owned()));
        assert_eq!(address("tls://localhost"), Ok("tls://localhost:3301".to_owned()));
        assert!(address("ann:secret@h").unwrap_err().contains("--user"));
        assert!(address("h:x").is_err());
    }
}
