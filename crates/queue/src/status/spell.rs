//! Numbers as people read them in a sentence.

/// A whole number: `1,234,567`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 task`, `2,500 tasks`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    match (number, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (number, Some(stem)) => format!("{} {stem}ies", count(number)),
        (number, None) => format!("{} {noun}s", count(number)),
    }
}

/// Bytes: `512 B`, `1.5 MiB`, `64 MiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
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

/// A duration in µs: its two largest units, `250 ms`, `1.5 s`, `12 min 3 s`, `1 h`.
#[must_use]
pub fn duration(micros: u64) -> String {
    /// A unit in seconds, its name, and the next smaller one.
    const STEPS: [(u64, &str, u64, &str); 3] =
        [(86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")];
    let seconds = micros / 1_000_000;
    if seconds < 1 {
        return if micros < 1000 { format!("{micros} µs") } else { format!("{} ms", micros / 1000) };
    }
    if seconds < 10 {
        let tenths = micros % 1_000_000 / 100_000;
        return if tenths > 0 { format!("{seconds}.{tenths} s") } else { format!("{seconds} s") };
    }
    let Some((unit, name, part, part_name)) = STEPS.into_iter().find(|(unit, ..)| seconds >= *unit) else {
        return format!("{seconds} s");
    };
    match seconds % unit / part {
        0 => format!("{} {name}", count(seconds / unit)),
        rest => format!("{} {name} {rest} {part_name}", count(seconds / unit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_their_two_largest_units() {
        let spelled = [0, 999, 250_000, 1_000_000, 9_560_000, 59_900_000, 720_000_000, 723_000_000];
        let wanted = ["0 µs", "999 µs", "250 ms", "1 s", "9.5 s", "59 s", "12 min", "12 min 3 s"];
        assert_eq!(spelled.map(duration), wanted);
        assert_eq!(duration(3_600_000_000), "1 h");
        assert_eq!(duration(90_061_000_000), "1 d 1 h");
    }

    #[test]
    fn numbers_have_commas_and_nouns_a_plural() {
        assert_eq!([count(999), count(1_234_567)], ["999", "1,234,567"]);
        let nouns = [counted(1, "entry"), counted(0, "task"), counted(2500, "entry")];
        assert_eq!(nouns, ["1 entry", "0 tasks", "2,500 entries"]);
        assert_eq!([bytes(1023), bytes(1 << 20), bytes(3 << 19)], ["1023 B", "1 MiB", "1.5 MiB"]);
    }
}
