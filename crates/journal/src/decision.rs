//! Decisions of recovery: one table of findings and what follows from each.
//!
//! [`Finding`] lists every case, [`decide`] says what follows from it in either [`Mode`]. [`crate::recovery`]
//! does no more than find and obey.
//!
//! The line that the table draws: what an interrupted write explains is cut and said, because nothing of it
//! was ever reported durable; everything else stops the start, because going on would lose data without being
//! asked to. `--force-recovery` is how one asks.

use std::fmt;

use lycosa_iproto::vclock::Vclock;
use uuid::Uuid;

use crate::meta::MetaError;
use crate::reader::{Damage, Torn};

/// How much recovery may lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nothing that was ever reported durable.
    #[default]
    Strict,
    /// Every row that can be read, each loss reported (`--force-recovery`).
    Force,
}

/// What recovery came upon in the data folder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// A file with a suffix of ours and a name that is not.
    #[error("'{file}' is not the name of a journal file")]
    Stranger {
        /// Its name.
        file: String,
    },
    /// A file that was being made when its writer ended.
    #[error("'{file}' was never completed")]
    LeftOver {
        /// Its name.
        file: String,
    },
    /// There are xlogs and no snapshot.
    #[error("there are {xlogs} xlog(s) but no snapshot, and an xlog has only the changes since its snapshot")]
    NoSnapshot {
        /// How many xlogs there are.
        xlogs: usize,
    },
    /// A snapshot that is not whole.
    #[error("the snapshot '{file}' is not sound: {defect}")]
    SnapshotUnsound {
        /// Its name.
        file: String,
        /// The fault.
        defect: Defect,
        /// Whether an older snapshot exists, and an xlog that begins where the snapshot ends.
        older: bool,
    },
    /// The xlogs after an older snapshot end before the newest, unsound one was made.
    #[error(
        "the snapshot '{file}' is not sound, and the xlogs that were to make up for it end at {reached}, \
         before {needed}"
    )]
    FallBackTooShort {
        /// Name of the unsound snapshot.
        file: String,
        /// Where the xlogs end.
        reached: Box<Vclock>,
        /// Where the snapshot stands.
        needed: String,
    },
    /// A key of a text header that is not known.
    #[error("unknown meta item '{key}' in '{file}'")]
    UnknownKey {
        /// Name of the file.
        file: String,
        /// The key.
        key: String,
    },
    /// An xlog whose text header is wrong.
    #[error("the header of '{file}' is not readable: {error}")]
    BadHeader {
        /// Name of the xlog.
        file: String,
        /// The fault.
        error: HeaderDefect,
    },
    /// An xlog of another instance.
    #[error("'{file}' belongs to instance {theirs}, not to {ours} (invalid instance UUID)")]
    Foreign {
        /// Name of the xlog.
        file: String,
        /// Whose it is.
        theirs: Uuid,
        /// Whose the snapshot is.
        ours: Uuid,
    },
    /// An xlog that ends inside its text header.
    #[error(
        "'{file}' ends inside its text header after {} byte(s): it was being created and has no rows",
        .torn.bytes
    )]
    TornHeader {
        /// Name of the xlog.
        file: String,
        /// The whole of it.
        torn: Torn,
    },
    /// An xlog begins after the place that was reached.
    #[error(
        "Missing .xlog file between LSN {} {reached} and {} {begins}: '{file}' is the next one",
        .reached.signature(),
        .begins.signature()
    )]
    Gap {
        /// Name of the xlog after the gap.
        file: String,
        /// The clock reached before it.
        reached: Box<Vclock>,
        /// Where it begins.
        begins: Box<Vclock>,
    },
    /// An xlog without an end marker.
    #[error("file '{file}' wasn't correctly closed: its writer was stopped between two writes")]
    NotClosed {
        /// Name of the xlog.
        file: String,
    },
    /// An xlog with a torn tail.
    #[error("'{file}' has a torn tail after {reached}: {torn}")]
    TornTail {
        /// Name of the xlog.
        file: String,
        /// The tail.
        torn: Torn,
        /// The clock where it begins.
        reached: Box<Vclock>,
    },
    /// A place in an xlog or in the only snapshot that is wrong.
    #[error("'{file}' is damaged: {damage}")]
    Damaged {
        /// Name of the file.
        file: String,
        /// The place.
        damage: Damage,
        /// Where sound data goes on in the file, if it does.
        resumes: Option<u64>,
    },
    /// LSNs are missing between two rows of one file.
    #[error(
        "LSN {first} to {last} of replica {replica_id} ({} row(s)) are missing in '{file}' before offset {offset}",
        .last - .first + 1
    )]
    RowsMissing {
        /// Name of the file.
        file: String,
        /// Where the block after the missing rows begins.
        offset: u64,
        /// Whose rows; 0 for local ones, and for those of a snapshot.
        replica_id: u32,
        /// LSN of the first one.
        first: u64,
        /// LSN of the last one.
        last: u64,
    },
    /// A sound transaction of an xlog that does not fit the recovered data.
    #[error("can't apply the transaction of LSN {lsn} from '{file}' (block at offset {offset}): {cause}")]
    Inapplicable {
        /// Name of the xlog.
        file: String,
        /// Where the block begins.
        offset: u64,
        /// LSN of the transaction's first row.
        lsn: u64,
        /// What does not fit.
        cause: String,
    },
    /// The same, of this many further transactions of an xlog.
    #[error("can't apply {transactions} more transaction(s) from '{file}'")]
    MoreInapplicable {
        /// Name of the xlog.
        file: String,
        /// How many.
        transactions: u64,
    },
    /// Synchronous transactions whose fate the log does not tell.
    #[error(
        "{transactions} synchronous transaction(s) from LSN {lsn} of replica {replica_id} on were neither \
         confirmed nor rolled back"
    )]
    Unconfirmed {
        /// How many.
        transactions: usize,
        /// Whose.
        replica_id: u32,
        /// First LSN among them.
        lsn: u64,
    },
}

/// Faults of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// Its text header.
    #[error(transparent)]
    Header(#[from] HeaderDefect),
    /// A block.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// It ends too early.
    #[error(transparent)]
    Torn(#[from] Torn),
    /// It ends after a block, without the end marker.
    #[error("it has no end marker")]
    NoEnd,
}

/// Faults of a text header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderDefect {
    /// It cannot be read.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// It ends too early.
    #[error(transparent)]
    Torn(#[from] Torn),
    /// The file is named by another number than its vclock's signature.
    #[error("the file's name says {name}, its vclock {vclock} says {}", .vclock.signature())]
    Signature {
        /// The number in the name.
        name: u64,
        /// The vclock in the header.
        vclock: Box<Vclock>,
    },
}

/// What follows from a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is lost: go on.
    Accept,
    /// Remove the file when the log is opened.
    Remove,
    /// Leave the tail unread; the next row goes into a new file.
    Cut,
    /// Move the file out of the way when the log is opened.
    SetAside,
    /// Start from the snapshot before it.
    FallBack,
    /// Go on after it; the rows in it are lost.
    Skip,
    /// Stop the start.
    Refuse(Category),
}

/// Why a start was refused, for the exit code. The numbers are those of `sysexits.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// Data is damaged: 65.
    Damaged,
    /// Files are missing: 66.
    Missing,
    /// The disk does not read or write: 74.
    Disk,
    /// The folder is in use: 75.
    Locked,
    /// Files are of another instance or version: 78.
    Foreign,
}

impl Category {
    /// The exit code of a process that ends for this.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Damaged => 65,
            Self::Missing => 66,
            Self::Disk => 74,
            Self::Locked => 75,
            Self::Foreign => 78,
        }
    }
}

/// The table.
#[must_use]
pub fn decide(finding: &Finding, mode: Mode) -> Decision {
    use Decision::{Accept, Cut, FallBack, Refuse, Remove, SetAside, Skip};
    let unless_forced = |category, forced| if mode == Mode::Force { forced } else { Refuse(category) };
    match finding {
        Finding::Stranger { .. } | Finding::UnknownKey { .. } => Accept,
        Finding::LeftOver { .. } => Remove,
        Finding::NoSnapshot { .. } => Refuse(Category::Missing),
        Finding::SnapshotUnsound { older: true, .. } => FallBack,
        Finding::SnapshotUnsound { defect: Defect::Header(_), older: false, .. } => Refuse(Category::Damaged),
        Finding::SnapshotUnsound { older: false, .. } => unless_forced(Category::Damaged, Skip),
        Finding::FallBackTooShort { .. } => unless_forced(Category::Damaged, Skip),
        Finding::BadHeader { error: HeaderDefect::Meta(MetaError::FormatVersion(_)), .. } => {
            unless_forced(Category::Foreign, SetAside)
        }
        Finding::BadHeader { .. } => unless_forced(Category::Damaged, SetAside),
        Finding::Foreign { .. } => unless_forced(Category::Foreign, SetAside),
        Finding::TornHeader { .. } => SetAside,
        Finding::Gap { .. } => unless_forced(Category::Missing, Skip),
        Finding::NotClosed { .. } => Accept,
        Finding::TornTail { .. } => Cut,
        Finding::Damaged { .. } | Finding::Inapplicable { .. } | Finding::MoreInapplicable { .. } => {
            unless_forced(Category::Damaged, Skip)
        }
        Finding::RowsMissing { .. } | Finding::Unconfirmed { .. } => Accept,
    }
}

impl Finding {
    /// The decision and its reason, or the operator's choices: the second half of a
    /// message.
    #[must_use]
    pub fn advice(&self, decision: Decision) -> &'static str {
        match (self, decision) {
            (Self::Stranger { .. }, _) => "left alone",
            (Self::LeftOver { .. }, _) => "removed: its rows stand elsewhere too",
            (Self::NoSnapshot { .. }, _) => {
                "put the snapshot back, or move the xlogs away to begin with an empty database"
            }
            (Self::UnknownKey { .. }, _) => "skipped",
            (Self::SnapshotUnsound { .. }, Decision::FallBack) => {
                "starting from the snapshot before it and all xlogs since: nothing is lost"
            }
            (Self::SnapshotUnsound { defect: Defect::Header(_), .. }, Decision::Refuse(_)) => {
                "put a sound copy of it back: without its header nothing says where the xlogs go on"
            }
            (Self::BadHeader { .. }, Decision::Refuse(Category::Foreign)) => {
                "start the version that wrote it, or start with --force-recovery to go on without its rows"
            }
            (
                Self::Damaged { .. } | Self::BadHeader { .. } | Self::SnapshotUnsound { .. },
                Decision::Refuse(_),
            ) => {
                "an interrupted write does not do this: put a sound copy back, \
                 or start with --force-recovery to go on without what cannot be read"
            }
            (Self::Inapplicable { .. } | Self::MoreInapplicable { .. }, Decision::Refuse(_)) => {
                "rows that it needs are missing, or another version has written it: put sound copies of all files \
                 back, or start with --force-recovery to go on without it"
            }
            (Self::Inapplicable { .. } | Self::MoreInapplicable { .. }, Decision::Skip) => {
                "going on without what does not fit, as asked; `lycosa cat` shows its rows"
            }
            (Self::Foreign { .. }, Decision::Refuse(_)) => {
                "move it away, or start with --force-recovery to have it moved away"
            }
            (Self::Gap { .. } | Self::FallBackTooShort { .. }, Decision::Refuse(_)) => {
                "put the missing file back, or start with --force-recovery to go on without it"
            }
            (Self::TornTail { .. }, _) => {
                "not read: the write of these bytes never completed, so nothing in them was reported durable"
            }
            (Self::TornHeader { .. }, _) => "set aside: a file gets its rows after its header is written",
            (Self::NotClosed { .. } | Self::RowsMissing { .. }, _) => "going on",
            (Self::Unconfirmed { .. }, _) => "kept, as their rows are in the log",
            (_, Decision::SetAside) => "set aside: its rows are lost",
            (_, Decision::Skip) => "going on without what cannot be read, as asked",
            (_, Decision::Accept | Decision::Remove | Decision::Cut | Decision::FallBack) => "",
        }
    }
}

/// A finding and the decision about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The finding.
    pub finding: Finding,
    /// The decision.
    pub decision: Decision,
}

impl Resolution {
    /// Whether data that was once reported durable is given up by it.
    #[must_use]
    pub fn loses_data(&self) -> bool {
        match self.decision {
            Decision::Skip => true,
            Decision::SetAside => !matches!(self.finding, Finding::TornHeader { .. }),
            Decision::Accept
            | Decision::Remove
            | Decision::Cut
            | Decision::FallBack
            | Decision::Refuse(_) => false,
        }
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = self.finding.advice(self.decision);
        if advice.is_empty() { self.finding.fmt(f) } else { write!(f, "{}; {advice}", self.finding) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::{DamageKind, TornCause};

    const DOCUMENT: &str = include_str!("../../../docs/formats.md");

    /// One finding for each row of the table, under the name it has in the document.
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn samples() -> Vec<(&'static str, Finding)> {
        let clock = |lsn| {
            let mut clock = Vclock::new();
            clock.set(1, lsn).unwrap();
            Box::new(clock)
        };
        let file = || "X.xlog".to_owned();
        let snap = || "X.snap".to_owned();
        let torn = Torn { offset: 887, bytes: 35, cause: TornCause::Body };
        let damage =
            Damage { offset: 887, kind: DamageKind::Checksum { stored: 0x64ce_055c, computed: 0x64de_055c } };
        let header = |error: MetaError| HeaderDefect::Meta(error);
        vec![
            ("a name that is not ours", Finding::Stranger { file: "5.snap".to_owned() }),
            ("a left-over", Finding::LeftOver { file: "X.snap.inprogress".to_owned() }),
            ("xlogs without a snapshot", Finding::NoSnapshot { xlogs: 4 }),
            (
                "an unsound snapshot, an older one reachable",
                Finding::SnapshotUnsound { file: snap(), defect: Defect::NoEnd, older: true },
            ),
            (
                "an unsound snapshot, no other",
                Finding::SnapshotUnsound { file: snap(), defect: damage.clone().into(), older: false },
            ),
            (
                "an unreadable snapshot header, no other",
                Finding::SnapshotUnsound {
                    file: snap(),
                    defect: header(MetaError::Unfinished).into(),
                    older: false,
                },
            ),
            (
                "xlogs that do not reach the unsound snapshot",
                Finding::FallBackTooShort { file: snap(), reached: clock(60), needed: "{1: 63}".to_owned() },
            ),
            ("an unknown key", Finding::UnknownKey { file: file(), key: "Colour".to_owned() }),
            (
                "an unreadable xlog header",
                Finding::BadHeader { file: file(), error: header(MetaError::Missing("VClock")) },
            ),
            (
                "an unknown format version",
                Finding::BadHeader {
                    file: file(),
                    error: header(MetaError::FormatVersion("0.99".to_owned())),
                },
            ),
            (
                "an xlog of another instance",
                Finding::Foreign { file: file(), theirs: Uuid::from_u128(1), ours: Uuid::from_u128(2) },
            ),
            (
                "an xlog torn in its header",
                Finding::TornHeader {
                    file: file(),
                    torn: Torn { offset: 0, bytes: 30, cause: TornCause::Meta },
                },
            ),
            ("a gap between files", Finding::Gap { file: file(), reached: clock(23), begins: clock(43) }),
            ("an xlog without an end marker", Finding::NotClosed { file: file() }),
            ("a torn tail", Finding::TornTail { file: file(), torn, reached: clock(78) }),
            ("a damaged block", Finding::Damaged { file: file(), damage, resumes: Some(938) }),
            (
                "a gap inside a file",
                Finding::RowsMissing { file: file(), offset: 938, replica_id: 1, first: 79, last: 79 },
            ),
            (
                "a sound transaction that does not fit",
                Finding::Inapplicable {
                    file: file(),
                    offset: 938,
                    lsn: 79,
                    cause: "Space '512' does not exist".to_owned(),
                },
            ),
            ("more of the same file", Finding::MoreInapplicable { file: file(), transactions: 7 }),
            (
                "synchronous transactions without a verdict",
                Finding::Unconfirmed { transactions: 2, replica_id: 1, lsn: 20 },
            ),
        ]
    }

    fn word(decision: Decision) -> String {
        match decision {
            Decision::Refuse(category) => format!("**refuse**, exit {}", category.exit_code()),
            Decision::Accept => "go on".to_owned(),
            Decision::Remove => "remove".to_owned(),
            Decision::Cut => "cut".to_owned(),
            Decision::SetAside => "set aside".to_owned(),
            Decision::FallBack => "fall back".to_owned(),
            Decision::Skip => "skip".to_owned(),
        }
    }

    #[test]
    fn the_document_has_the_table() {
        for (name, finding) in samples() {
            let decision = decide(&finding, Mode::Strict);
            let forced = decide(&finding, Mode::Force);
            let message = Resolution { finding, decision };
            let row = format!("| {name} | {} | {} | {message} |\n", word(decision), word(forced));
            assert!(DOCUMENT.contains(&row), "docs/formats.md lacks this row:\n{row}");
        }
    }

    #[test]
    fn nothing_is_lost_without_force() {
        for (name, finding) in samples() {
            let decision = decide(&finding, Mode::Strict);
            assert!(!Resolution { finding: finding.clone(), decision }.loses_data(), "{name}");
            let forced = decide(&finding, Mode::Force);
            let is_refused = matches!(decision, Decision::Refuse(_));
            assert_eq!(is_refused, decision != forced || matches!(forced, Decision::Refuse(_)), "{name}");
        }
    }
}
