//! The text header of a journal file: what the file is, whose it is, and where it stands in the history.
//!
//! Lines ended by `\n`, closed by an empty line. The first names the kind of file, the second the version of
//! the format; then `Key: value` lines in any order. Keys that are not known are skipped and reported: a
//! newer version may add some.
//!
//! The format has no checksum for it, so our headers have one more line, which a real Tarantool skips as it
//! skips every key that it does not know: `Checksum`, eight hexadecimal digits, of all other lines. A header with that
//! line is believed only if it is right; one without it, as Tarantool writes it, is believed as it stands.
//!
//! `SyncedLength: 1` is a line of ours too: the blocks' headers have the field of [`crate::synced`].
//!
//! Absent: the files' names (see [`crate::directory`]) and any judgement on whether a header fits its
//! neighbours (see [`crate::recovery`]).

use std::fmt;

use lycosa_iproto::vclock::Vclock;
use uuid::Uuid;

use crate::block;

/// The version of the format that is written.
pub const FORMAT_VERSION: &str = "0.13";
/// The versions that are read.
pub const READABLE_VERSIONS: [&str; 2] = ["0.12", FORMAT_VERSION];
/// The longest header that is read, in bytes: two full vclocks and space for future keys.
pub const MAX_META_BYTES: usize = 8192;

const VERSION: &str = "Version";
const INSTANCE: &str = "Instance";
const VCLOCK: &str = "VClock";
const PREV_VCLOCK: &str = "PrevVClock";
const SYNCED_LENGTH: &str = "SyncedLength";
const CHECKSUM: &str = "Checksum";
const END: &[u8] = b"\n\n";

/// The kinds of journal files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// All data at one moment: `.snap`.
    Snapshot,
    /// The changes since a moment: `.xlog`.
    Xlog,
    /// What a group of servers knows of a snapshot: `.group`, by the number of an entry of its log. The crate `group`
    /// writes it; its rows are not rows of spaces.
    GroupState,
    /// The consensus log of a node of a group: `.grouplog`. The crate `group` writes its records.
    GroupLog,
}

impl FileKind {
    /// The first line of such a file.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Snapshot => "SNAP",
            Self::Xlog => "XLOG",
            Self::GroupState => "GROUP",
            Self::GroupLog => "GROUPLOG",
        }
    }

    /// The end of such a file's name, with the dot.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Snapshot => ".snap",
            Self::Xlog => ".xlog",
            Self::GroupState => ".group",
            Self::GroupLog => ".grouplog",
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snapshot => "snapshot",
            Self::Xlog => "xlog",
            Self::GroupState => "group state",
            Self::GroupLog => "group log",
        })
    }
}

/// A text header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// What the file is.
    pub kind: FileKind,
    /// The program that wrote it. No reader checks it.
    pub written_by: String,
    /// The instance whose file it is.
    pub instance: Uuid,
    /// Snapshot: the clock of its content. Xlog: the clock before its first row.
    pub vclock: Vclock,
    /// Logs only: [`vclock`](Self::vclock) of the file before it, if the writer knew one.
    pub prev_vclock: Option<Vclock>,
    /// Logs only: each block says how much of the file was synced when it was written ([`crate::synced`]).
    pub has_synced_length: bool,
}

/// Why bytes are not a text header. The texts are Tarantool's where it has one for the case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// The bytes end, or [`MAX_META_BYTES`] are over, before the empty line.
    #[error("Unexpected end of file")]
    Unfinished,
    /// The first line names another kind of file.
    #[error("Invalid xlog type: expected {expected}, got {found}")]
    Kind {
        /// The line as it had to be.
        expected: &'static str,
        /// The line as it is.
        found: String,
    },
    /// The second line is not one of [`READABLE_VERSIONS`].
    #[error("unsupported file format version {0}")]
    FormatVersion(String),
    /// A line without `": "`, or not text.
    #[error("can't extract meta key and value from '{0}'")]
    Line(String),
    /// The value of `Instance` is not a UUID.
    #[error("can't parse instance UUID '{0}'")]
    Instance(String),
    /// The value of `VClock` or `PrevVClock` is not a vclock.
    #[error("{key}: {reason}")]
    Vclock {
        /// The line's key.
        key: &'static str,
        /// The fault of its value.
        reason: String,
    },
    /// `Instance` or `VClock` is not there.
    #[error("the header has no {0}")]
    Missing(&'static str),
    /// The header is not the one that was written.
    #[error("the header's checksum is {computed:08x}, its line {CHECKSUM} says {stored}")]
    Checksum {
        /// What the line says.
        stored: String,
        /// What the other lines have.
        computed: u32,
    },
}

impl Meta {
    /// The header as it stands in a file, its checksum and its empty line included.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = format!(
            "{}\n{FORMAT_VERSION}\n{VERSION}: {}\n{INSTANCE}: {}\n{VCLOCK}: {}\n",
            self.kind.title(),
            self.written_by,
            self.instance,
            self.vclock
        );
        if let Some(prev) = &self.prev_vclock {
            text.push_str(&format!("{PREV_VCLOCK}: {prev}\n"));
        }
        if self.has_synced_length {
            text.push_str(&format!("{SYNCED_LENGTH}: 1\n"));
        }
        let checksum = block::checksum(text.as_bytes());
        text.push_str(&format!("{CHECKSUM}: {checksum:08x}\n\n"));
        text
    }

    /// Reads the header at the start of `file`.
    ///
    /// # Errors
    /// [`MetaError`]. [`MetaError::Unfinished`] says that all lines so far are right and more of the file may
    /// complete them; every other error stays, no matter which bytes follow.
    pub fn decode(file: &[u8], kind: FileKind) -> Result<Decoded, MetaError> {
        let file = &file[..file.len().min(MAX_META_BYTES)];
        let end = file.windows(END.len()).position(|window| window == END);
        let complete = end.is_some();
        // Without an empty line only the lines that are whole can be judged.
        let end = end.or_else(|| file.iter().rposition(|&byte| byte == b'\n')).unwrap_or(0);
        let mut lines = file[..end].split(|&byte| byte == b'\n').filter(|_| end > 0);

        if let Some(line) = lines.next()
            && line != kind.title().as_bytes()
        {
            return Err(MetaError::Kind { expected: kind.title(), found: quote(line) });
        }
        if let Some(line) = lines.next()
            && !READABLE_VERSIONS.iter().any(|version| line == version.as_bytes())
        {
            return Err(MetaError::FormatVersion(quote(line)));
        }
        let (mut written_by, mut instance, mut vclock, mut prev_vclock) = (String::new(), None, None, None);
        let mut unknown_keys = Vec::new();
        let (mut stored_checksum, mut synced_length) = (None, None);
        for line in lines {
            let text = std::str::from_utf8(line).map_err(|_| MetaError::Line(quote(line)))?;
            let (key, value) = text.split_once(": ").ok_or_else(|| MetaError::Line(quote(line)))?;
            match key {
                VERSION => value.clone_into(&mut written_by),
                INSTANCE => {
                    instance = Some(
                        value.parse::<Uuid>().map_err(|_| MetaError::Instance(quote(value.as_bytes())))?,
                    );
                }
                VCLOCK => vclock = Some(parse_vclock(VCLOCK, value)?),
                PREV_VCLOCK => prev_vclock = Some(parse_vclock(PREV_VCLOCK, value)?),
                SYNCED_LENGTH => synced_length = Some(value),
                CHECKSUM => stored_checksum = Some((line, value)),
                _ => unknown_keys.push(quote(key.as_bytes())),
            }
        }
        if !complete {
            return Err(MetaError::Unfinished);
        }
        if let Some((line, stored)) = stored_checksum {
            let others = file[..end].split(|&byte| byte == b'\n').filter(|&other| !std::ptr::eq(other, line));
            let computed =
                block::checksum(&others.flat_map(|other| [other, b"\n"]).collect::<Vec<_>>().concat());
            if stored != format!("{computed:08x}") {
                return Err(MetaError::Checksum { stored: quote(stored.as_bytes()), computed });
            }
        }
        if let Some(unknown) = synced_length.filter(|&value| value != "1") {
            let unknown = quote(unknown.as_bytes());
            return Err(MetaError::FormatVersion(format!("{FORMAT_VERSION} with {SYNCED_LENGTH} {unknown}")));
        }
        let meta = Self {
            kind,
            written_by,
            instance: instance.ok_or(MetaError::Missing(INSTANCE))?,
            vclock: vclock.ok_or(MetaError::Missing(VCLOCK))?,
            prev_vclock,
            has_synced_length: synced_length.is_some(),
        };
        Ok(Decoded { meta, unknown_keys, length: end + END.len() })
    }
}

/// A header and what else there is to know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The header.
    pub meta: Meta,
    /// Keys that were skipped, in order.
    pub unknown_keys: Vec<String>,
    /// Bytes of the header, its empty line included: where the first block begins.
    pub length: usize,
}

fn parse_vclock(key: &'static str, value: &str) -> Result<Vclock, MetaError> {
    value.parse().map_err(|error: lycosa_iproto::vclock::VclockError| MetaError::Vclock {
        key,
        reason: error.to_string(),
    })
}

/// Bytes of a damaged line, fit for a message.
fn quote(line: &[u8]) -> String {
    const LONGEST: usize = 64;
    let shown = &line[..line.len().min(LONGEST)];
    let mut text = shown.escape_ascii().to_string();
    if shown.len() < line.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REAL: &str = "XLOG\n0.13\nVersion: 2.6.0-0-g47aa4e01e\nInstance: 19fa1ff9-7297-49ca-bfc6-f1b6763f6bd8\n\
                        VClock: {0: 8, 1: 5301}\nPrevVClock: {0: 5, 1: 5113}\n\n";

    #[test]
    fn a_real_header_is_read_and_written_alike() {
        let decoded = Meta::decode(REAL.as_bytes(), FileKind::Xlog).unwrap();
        assert_eq!(decoded.length, REAL.len());
        assert_eq!(decoded.meta.vclock.signature(), 5309);
        assert_eq!(decoded.meta.prev_vclock.as_ref().unwrap().signature(), 5118);
        assert!(decoded.unknown_keys.is_empty());
        let written = decoded.meta.encode();
        assert_eq!(written.replace("Checksum: 95a9712c\n", ""), REAL);
        let ours = Meta::decode(written.as_bytes(), FileKind::Xlog).unwrap();
        assert_eq!((ours.meta, ours.unknown_keys), (decoded.meta, Vec::new()));
    }

    #[test]
    fn every_bit_of_our_own_header_is_covered() {
        let whole = Meta::decode(REAL.as_bytes(), FileKind::Xlog).unwrap().meta.encode();
        for bit in 0..8 * whole.len() {
            let mut wrong = whole.clone().into_bytes();
            wrong[bit / 8] ^= 1 << (bit % 8);
            // A checksum under another name is a key that is reported.
            let is_believed =
                Meta::decode(&wrong, FileKind::Xlog).is_ok_and(|found| found.unknown_keys.is_empty());
            assert!(!is_believed, "bit {bit} of {:?}", String::from_utf8_lossy(&wrong));
        }
    }

    #[test]
    fn the_checksum_covers_the_lines_around_it() {
        let whole = Meta::decode(REAL.as_bytes(), FileKind::Xlog).unwrap().meta.encode();
        let (before, after) = whole.split_once("Checksum").unwrap();
        let checksum = format!("Checksum{}\n", after.trim_end());
        let begin = before.find("VClock").unwrap();
        let elsewhere = format!("{}{checksum}{}\n", &before[..begin], &before[begin..]);
        Meta::decode(elsewhere.as_bytes(), FileKind::Xlog).unwrap();
        let wrong = elsewhere.replace("5301", "5303");
        let refusal = Meta::decode(wrong.as_bytes(), FileKind::Xlog).unwrap_err();
        assert!(matches!(refusal, MetaError::Checksum { .. }), "{refusal}");
    }

    #[test]
    fn the_older_format_and_unknown_keys_are_read() {
        let text = REAL.replace("0.13", "0.12").replace("VClock: {0: 8", "Colour: red\nVClock: {0: 8");
        let decoded = Meta::decode(text.as_bytes(), FileKind::Xlog).unwrap();
        assert_eq!(decoded.unknown_keys, ["Colour"]);
        assert_eq!(decoded.length, text.len());
    }

    #[test]
    fn each_defect_has_its_error() {
        let error = |from: &str, to: &str| {
            Meta::decode(REAL.replace(from, to).as_bytes(), FileKind::Xlog).unwrap_err().to_string()
        };
        assert_eq!(error("XLOG", "XLOH"), "Invalid xlog type: expected XLOG, got XLOH");
        assert_eq!(error("0.13", "0.99"), "unsupported file format version 0.99");
        assert_eq!(error("VClock: {0: 8", "VClock: {0; 8"), "VClock: can't parse a vclock at offset 2");
        assert_eq!(
            error("Instance: 19fa", "Instance: ------"),
            "can't parse instance UUID '------1ff9-7297-49ca-bfc6-f1b6763f6bd8'"
        );
        assert_eq!(
            error("Version: ", "Version:"),
            "can't extract meta key and value from 'Version:2.6.0-0-g47aa4e01e'"
        );
        assert_eq!(error("Instance: 1", "Distance: 1"), "the header has no Instance");
        assert_eq!(error("XLOG", "X\0\0G"), "Invalid xlog type: expected XLOG, got X\\x00\\x00G");
    }

    #[test]
    fn every_prefix_is_unfinished_and_nothing_else() {
        for cut in 0..REAL.len() {
            assert_eq!(
                Meta::decode(&REAL.as_bytes()[..cut], FileKind::Xlog),
                Err(MetaError::Unfinished),
                "cut at {cut}"
            );
        }
        assert!(matches!(Meta::decode(b"XLOH\n0.1", FileKind::Xlog), Err(MetaError::Kind { .. })));
        assert_eq!(Meta::decode(&[b'x'; 3 * MAX_META_BYTES], FileKind::Xlog), Err(MetaError::Unfinished));
    }

    proptest! {
        #[test]
        fn a_header_reads_back(
            local in 0_u64..1 << 40,
            own in 0_u64..1 << 40,
            id in 1_u32..32,
            prev in any::<bool>(),
        ) {
            let mut vclock = Vclock::new();
            vclock.set(0, local).unwrap();
            vclock.set(id, own).unwrap();
            let meta = Meta {
                kind: FileKind::Snapshot,
                written_by: "somebody".to_owned(),
                instance: Uuid::from_u128(u128::from(local) << 64 | u128::from(own)),
                prev_vclock: prev.then(|| vclock.clone()),
                has_synced_length: prev,
                vclock,
            };
            let text = meta.encode();
            let decoded = Meta::decode(text.as_bytes(), FileKind::Snapshot).unwrap();
            prop_assert_eq!(decoded.meta, meta);
            prop_assert_eq!(decoded.length, text.len());
        }

        #[test]
        fn nothing_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0_usize..200,
            flip in any::<u8>(),
        ) {
            let _ = Meta::decode(&bytes, FileKind::Xlog);
            let mut real = REAL.as_bytes().to_vec();
            let at = at % real.len();
            real[at] ^= flip;
            let _ = Meta::decode(&real, FileKind::Xlog);
        }
    }
}
