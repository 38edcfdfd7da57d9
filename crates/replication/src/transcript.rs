//! Recorded replication sessions of a real server, for the tests of this crate.

use std::fs;
use std::path::Path;

/// One direction of one frame.
struct Frame {
    from_master: bool,
    note: String,
    bytes: Vec<u8>,
}

/// A transcript of `corpus/wire`.
pub(crate) struct Transcript(Vec<Frame>);

impl Transcript {
    /// Reads a transcript; each frame stands on a line of its own.
    pub(crate) fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/wire").join(name);
        let text = fs::read_to_string(path).expect("the transcript is in the repository");
        let frames = text.lines().filter_map(|line| {
            let field = |key: &str| {
                let from = line.find(key)? + key.len();
                let rest = line[from..].trim_start().strip_prefix('"')?;
                Some(&rest[..rest.find('"')?])
            };
            let bytes = unhex(field("\"hex\":")?);
            Some(Frame { from_master: field("\"d\":")? == "<", note: field("\"note\":")?.to_owned(), bytes })
        });
        Self(frames.collect())
    }

    /// The first frame of the master with that note.
    pub(crate) fn of_master(&self, note: &str) -> Option<&[u8]> {
        self.first(true, note)
    }

    /// The first frame of the replica with that note.
    pub(crate) fn of_replica(&self, note: &str) -> Option<&[u8]> {
        self.first(false, note)
    }

    fn first(&self, from_master: bool, note: &str) -> Option<&[u8]> {
        let mut frames = self.0.iter();
        frames.find(|frame| frame.from_master == from_master && frame.note == note).map(|frame| &*frame.bytes)
    }

    /// All frames of the master behind its greeting.
    pub(crate) fn frames_of_master(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(|frame| frame.from_master && frame.note != "greeting").map(|frame| &*frame.bytes)
    }

    /// What the master sent from the first frame with `note` on.
    pub(crate) fn stream_from(&self, note: &str) -> Vec<u8> {
        let from = self.0.iter().position(|frame| frame.from_master && frame.note == note);
        let frames = self.0[from.expect("recorded")..].iter();
        frames.filter(|frame| frame.from_master).flat_map(|frame| &frame.bytes).copied().collect()
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits"))
        .collect()
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
