//! Values of flags: each parser says what would be right.

use std::time::Duration;

use lycosa_client::{ConnectOptions, Value};
use lycosa_server::config::SettingValue;

/// A time span: seconds, or a text such as `1h30m`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    <Duration as SettingValue>::parse(text)
        .ok_or_else(|| format!("expected {}", <Duration as SettingValue>::EXPECTED))
}

/// A priority.
pub(crate) fn priority(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a whole number, 0 or more; 0 is taken first".to_owned())
}

/// `HOST` or `HOST:PORT`.
pub(crate) fn address(text: &str) -> Result<String, String> {
    if text.contains('@') {
        return Err("expected HOST or HOST:PORT; name the user with --user".to_owned());
    }
    match text.parse::<ConnectOptions>() {
        Ok(options) => Ok(options.address),
        Err(_) => Err("expected HOST or HOST:PORT, an IPv6 address in brackets".to_owned()),
    }
}

/// A time span as the queue takes it: seconds.
pub(crate) fn seconds(span: Duration) -> Value {
    match span.subsec_nanos() {
        0 => Value::Uint(span.as_secs()),
        _ => Value::Double(span.as_secs_f64()),
    }
}

/// A number of bytes for people: `1.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut size = count as f64;
    let mut unit = "B";
    for larger in UNITS {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = larger;
    }
    if unit == "B" || size >= 100.0 || size.fract() < 0.05 {
        format!("{size:.0} {unit}")
    } else {
        format!("{size:.1} {unit}")
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
    fn flags_say_what_would_be_right() {
        assert_eq!(span("1h30m"), Ok(Duration::from_secs(5400)));
        assert!(span("-5").unwrap_err().starts_with("expected seconds, 0 or more"));
        assert_eq!(priority("-1").unwrap_err(), "expected a whole number, 0 or more; 0 is taken first");
        assert_eq!(address("localhost"), Ok("localhost:3301".to_owned()));
        assert!(address("ann:secret@h").unwrap_err().contains("--user"));
        assert!(address("h:x").is_err());
    }
}
