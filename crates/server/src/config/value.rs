//! The types that a setting may have, each read from text.
//!
//! One textual form serves the command line, the environment, `lycosa.toml` and `lycosa config`, so that the output
//! can be pasted back.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lycosa_replication::uri::Uri;

/// A type that a setting may have.
pub trait SettingValue: Sized {
    /// What a valid text looks like, for error messages.
    const EXPECTED: &'static str;
    /// Reads the value; `None` if the text is not of the form [`Self::EXPECTED`].
    fn parse(text: &str) -> Option<Self>;
}

/// Settings whose values have names.
macro_rules! named_setting {
    ($of:ident = $expected:literal) => {
        impl SettingValue for $of {
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|known| known.name() == text)
            }
        }
    };
}

/// A number of bytes: `4096`, `64KiB`, `256MiB`, `2GiB` (or `KB`, `MB`, `GB` in powers of ten).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 9] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("G", 1 << 30),
    ("M", 1 << 20),
    ("K", 1 << 10),
];

impl SettingValue for ByteSize {
    const EXPECTED: &'static str = "a size such as 4096, 64KiB, 256MiB or 2GiB";

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        for (unit, factor) in UNITS {
            if let Some(number) = text.strip_suffix(unit) {
                let number: u64 = number.trim().parse().ok()?;
                return number.checked_mul(factor).map(ByteSize);
            }
        }
        text.strip_suffix('B').unwrap_or(text).trim().parse().ok().map(ByteSize)
    }
}

impl ByteSize {
    /// As a length in memory.
    pub(crate) fn bytes(self) -> usize {
        length(self.0)
    }
}

/// A number of things in memory.
pub(crate) fn length(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in &UNITS[..3] {
            if self.0 >= *factor && self.0.is_multiple_of(*factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// Whether a text has the form `HOST:PORT`.
pub(crate) fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Addresses to listen on, separated by commas; none if the text is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses(pub Vec<String>);

impl SettingValue for Addresses {
    const EXPECTED: &'static str = "HOST:PORT, several separated by commas, or nothing";

    fn parse(text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            return Some(Addresses(Vec::new()));
        }
        let list: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
        list.iter().all(|address| is_address(address)).then_some(Addresses(list))
    }
}

/// Where the members of a group reach a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberAddress {
    /// `HOST:PORT`.
    pub address: String,
    /// Whether the members speak TLS there.
    pub is_tls: bool,
}

impl SettingValue for MemberAddress {
    const EXPECTED: &'static str = "HOST:PORT or tls://HOST:PORT";

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (address, is_tls) = text.strip_prefix("tls://").map_or((text, false), |address| (address, true));
        let Addresses(list) = Addresses::parse(address)?;
        let [address] = <[String; 1]>::try_from(list).ok()?;
        Some(Self { address, is_tls })
    }
}

impl fmt::Display for MemberAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_tls { "tls://" } else { "" }, self.address)
    }
}

/// Names of hosts, separated by commas; none if the text is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names(pub Vec<String>);

impl SettingValue for Names {
    const EXPECTED: &'static str = "host names such as queue.example.org, separated by commas, or nothing";

    fn parse(text: &str) -> Option<Self> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let is_name =
            |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        names.map(|name| is_name(name).then(|| name.to_owned())).collect::<Option<_>>().map(Self)
    }
}

/// Masters, separated by commas; none if the text is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Uris(pub Vec<Uri>);

impl fmt::Display for Uris {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }
}

impl SettingValue for Uris {
    const EXPECTED: &'static str =
        "addresses such as USER:PASSWORD@HOST:PORT, separated by commas, or nothing";

    fn parse(text: &str) -> Option<Self> {
        let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        texts.map(|text| text.parse().ok()).collect::<Option<_>>().map(Self)
    }
}

/// How many masters must be in sync before an instance takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quorum {
    /// All that are configured.
    All,
    /// This number.
    Of(u64),
}

impl Quorum {
    /// How many that are, of `masters` that are configured.
    #[must_use]
    pub fn of(self, masters: usize) -> usize {
        match self {
            Self::All => masters,
            Self::Of(count) => usize::try_from(count).map_or(masters, |count| count.min(masters)),
        }
    }
}

impl SettingValue for Quorum {
    const EXPECTED: &'static str = "all, or a whole number";

    fn parse(text: &str) -> Option<Self> {
        if text == "all" { Some(Self::All) } else { u64::parse(text).map(Self::Of) }
    }
}

lycosa_queue::named! {
    /// The treatment of changes while too few replicas are connected.
    pub enum ReplicasMissing {
        /// Their replies wait.
        Wait = "wait",
        /// They are refused.
        Refuse = "refuse",
    }
}

named_setting! { ReplicasMissing = "one of wait, refuse" }

/// The badge of a page: tells the servers of production from others at a glance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Badge {
    /// One of [`Badge::COLORS`].
    pub color: &'static str,
    /// At most [`Badge::MAX_CHARACTERS`], without control characters; empty for no badge.
    pub text: String,
}

impl Badge {
    /// The first one is the color of a badge that names none.
    pub const COLORS: [&str; 5] = ["red", "amber", "green", "blue", "grey"];
    /// Characters of the text.
    pub const MAX_CHARACTERS: usize = 32;
}

/// The text that [`Badge::parse`] reads back as the same badge.
impl fmt::Display for Badge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.text.as_str(), self.color) {
            ("", _) => Ok(()),
            (text, color) if color == Self::COLORS[0] => f.write_str(text),
            (text, color) => write!(f, "{color}:{text}"),
        }
    }
}

impl SettingValue for Badge {
    const EXPECTED: &'static str =
        "TEXT or COLOR:TEXT of at most 32 characters, COLOR one of red, amber, green, blue, grey";

    fn parse(text: &str) -> Option<Self> {
        let (color, text) = text.split_once(':').unwrap_or((Self::COLORS[0], text));
        let (color, text) = (color.trim(), text.trim());
        let color = Self::COLORS.into_iter().find(|known| *known == color)?;
        let is_plain = text.chars().count() <= Self::MAX_CHARACTERS && !text.chars().any(char::is_control);
        is_plain.then(|| Self { color, text: text.to_owned() })
    }
}

lycosa_queue::named! {
    /// When a reply to a change may leave.
    pub enum WalMode {
        /// After the rows are written and synced to the disk.
        Fsync = "fsync",
        /// After the rows are handed to the operating system; a power failure may lose the last of them.
        Write = "write",
        /// At once; nothing is journaled and a restart begins at the last snapshot.
        None = "none",
    }
}

named_setting! { WalMode = "one of fsync, write, none" }

lycosa_queue::named! {
    /// How log lines are printed.
    pub enum LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

named_setting! { LogFormat = "text or json" }

impl SettingValue for bool {
    const EXPECTED: &'static str = "true or false";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl SettingValue for u64 {
    const EXPECTED: &'static str = "a whole number";

    fn parse(text: &str) -> Option<Self> {
        text.replace('_', "").parse().ok()
    }
}

impl SettingValue for String {
    const EXPECTED: &'static str = "text";

    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl SettingValue for PathBuf {
    const EXPECTED: &'static str = "a path";

    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| PathBuf::from(text))
    }
}

/// A path that may be absent: empty text.
impl SettingValue for Option<MemberAddress> {
    const EXPECTED: &'static str = "HOST:PORT or tls://HOST:PORT, or nothing";

    fn parse(text: &str) -> Option<Self> {
        if text.trim().is_empty() { Some(None) } else { MemberAddress::parse(text).map(Some) }
    }
}

impl SettingValue for Option<PathBuf> {
    const EXPECTED: &'static str = "a path, or nothing";

    fn parse(text: &str) -> Option<Self> {
        Some((!text.is_empty()).then(|| PathBuf::from(text)))
    }
}

/// Units of time spans with their seconds. A unit that begins like another stands before it.
const SPANS: [(&str, f64); 7] =
    [("ms", 0.001), ("min", 60.0), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0), ("w", 604_800.0)];

/// A time span: a number of seconds, fractions allowed, or numbers with units (`1h30m`, `500ms`).
impl SettingValue for Duration {
    const EXPECTED: &'static str =
        "seconds, 0 or more, such as 5 or 0.5, or a time such as 500ms, 90s, 1h30m or 7d";

    fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim();
        if let Ok(seconds) = rest.parse() {
            return Duration::try_from_secs_f64(seconds).ok();
        }
        let mut seconds = 0.0;
        while !rest.is_empty() {
            let end = rest.find(|digit: char| !digit.is_ascii_digit() && digit != '.')?;
            let number: f64 = rest[..end].parse().ok()?;
            rest = rest[end..].trim_start();
            let (unit, factor) = SPANS.iter().find(|(unit, _)| rest.starts_with(unit))?;
            seconds += number * factor;
            rest = rest[unit.len()..].trim_start();
        }
        Duration::try_from_secs_f64(seconds).ok().filter(|_| !text.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back_as_printed() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("64KiB", 65536), ("256 MiB", 256 << 20), ("2GB", 2_000_000_000)]
        {
            let size = ByteSize::parse(text).expect(text);
            assert_eq!(size.0, bytes, "{text}");
            assert_eq!(ByteSize::parse(&size.to_string()), Some(size), "{text}");
        }
        for text in ["", "-1", "1.5GiB", "MiB", "12 apples", "99999999999GiB"] {
            assert_eq!(ByteSize::parse(text), None, "{text}");
        }
    }

    #[test]
    fn badges_have_a_known_color_and_a_short_text() {
        let badge =
            |text| Badge::parse(text).map(|badge| (badge.color, badge.text.clone(), badge.to_string()));
        assert_eq!(badge(""), Some(("red", String::new(), String::new())));
        assert_eq!(badge("production"), Some(("red", "production".into(), "production".into())));
        assert_eq!(badge("green: staging"), Some(("green", "staging".into(), "green:staging".into())));
        for wrong in ["pink:x", "a\nb", "production: Berlin", &"x".repeat(33)] {
            assert_eq!(badge(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn addresses_need_host_and_port() {
        assert_eq!(Addresses::parse("127.0.0.1:3301, [::1]:3301").map(|a| a.0.len()), Some(2));
        assert_eq!(Addresses::parse("").map(|a| a.0.len()), Some(0));
        for text in ["3301", ":3301", "localhost", "localhost:99999", "a:1,"] {
            assert_eq!(Addresses::parse(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_seconds_or_have_units() {
        for (text, milliseconds) in [
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("2min 5s", 125_000),
            ("250ms", 250),
            ("1w2d", 777_600_000),
        ] {
            assert_eq!(Duration::parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", " ", "h", "1x", "1h30", "-1h", "1h-30m", "1.2.3s", "inf", "1e30"] {
            assert_eq!(Duration::parse(text), None, "{text}");
        }
        assert_eq!(Duration::parse("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(Duration::parse("5s"), Some(Duration::from_secs(5)));
        assert_eq!(Duration::parse("-1"), None);
        assert_eq!(Duration::parse("nan"), None);
    }
}
