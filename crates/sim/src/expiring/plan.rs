//! The plan of a world of expiration tasks, drawn from the seed before the first step.

use lycosa_journal::log::WalMode;
use lycosa_journal::writer;
use lycosa_store::IndexKind;
use lycosa_tuple::value::Value;

use crate::random::Random;

/// The space that archived tuples go to.
pub(super) const ARCHIVE: &str = "archive";
/// The tube that archived tuples go to.
pub(super) const GRAVE: &str = "grave";

/// Where tuples of a space go when they expire, whichever task finds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Nowhere,
    Space,
    Tube,
}

/// A space whose tuples expire: `[id, text, deadline]`.
#[derive(Debug, Clone)]
pub(super) struct SpacePlan {
    pub(super) name: String,
    pub(super) kind: IndexKind,
    /// An index begins with the deadline.
    pub(super) is_ordered: bool,
    pub(super) kept: Kept,
    /// Microseconds of the unit in which deadlines are told, and its name.
    pub(super) unit: (u64, &'static str),
}

/// A task that may be started.
#[derive(Debug, Clone)]
pub(super) struct TaskPlan {
    pub(super) name: String,
    /// Number of the space in the plan.
    pub(super) space: usize,
    /// It passes over the primary index even if there is one over the deadline.
    pub(super) scans: bool,
    pub(super) transient: bool,
    pub(super) scan_size: u32,
    /// Seconds.
    pub(super) scan_time: u32,
    pub(super) budget_rows: u32,
}

/// What can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A tuple is written, or an existing one gets another deadline.
    Put,
    Delete,
    Truncate,
    /// The space is dropped, and made anew.
    Drop,
    Rename,
    /// The index over the deadline is dropped, or made again.
    Index,
    /// A task is started that may run already.
    Start,
    /// A task is stopped that may not run.
    Stop,
    /// The tube of archived tuples is emptied.
    Drain,
    /// Reads only, or reads and writes again.
    ReadOnly,
    Turn,
    Journal,
    Advance,
    /// Nothing hinders the tasks any more; due tuples must go within their bound.
    Settle,
    Crash,
    /// A stop in order, and a start.
    Restart,
}

/// The choices of one run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) spaces: Vec<SpacePlan>,
    pub(super) tasks: Vec<TaskPlan>,
    pub(super) actions: Vec<(u32, Action)>,
    /// Tasks that the tube of archived tuples may hold; 0: any number.
    pub(super) capacity: u64,
    pub(super) writer: writer::Settings,
    /// Tuples that a space may hold before clients stop filling it.
    pub(super) fullest: usize,
}

impl Plan {
    pub(super) fn new(random: &mut Random) -> Self {
        let spaces = random.between(1, 3);
        let spaces: Vec<SpacePlan> = (0..spaces).map(|number| space(random, number)).collect();
        let tasks = random.between(1, 5);
        Self {
            tasks: (0..tasks).map(|number| task(random, number, spaces.len())).collect(),
            spaces,
            actions: actions(random),
            capacity: *random.pick(&[0, 0, 3, 20]),
            writer: writer::Settings {
                mode: if random.one_in(4) { WalMode::Write } else { WalMode::Fsync },
                max_file_bytes: *random.pick(&[0, 3_000, 256 << 20]),
                compression_level: *random.pick(&[None, Some(3)]),
                preallocated_bytes: *random.pick(&[0, 2_000]),
            },
            fullest: *random.pick(&[6, 30, 90]),
        }
    }
}

fn space(random: &mut Random, number: u64) -> SpacePlan {
    SpacePlan {
        name: format!("s{number}"),
        kind: if random.one_in(3) { IndexKind::Hash } else { IndexKind::Tree },
        is_ordered: !random.one_in(3),
        kept: *random.pick(&[Kept::Nowhere, Kept::Space, Kept::Tube]),
        unit: *random.pick(&[(1_000_000, "s"), (1_000, "ms"), (1, "us")]),
    }
}

fn task(random: &mut Random, number: u64, spaces: usize) -> TaskPlan {
    TaskPlan {
        name: format!("t{number}"),
        space: random.below(spaces as u64) as usize,
        scans: random.one_in(4),
        transient: random.one_in(3),
        scan_size: *random.pick(&[1, 3, 10, 1024]),
        scan_time: *random.pick(&[0, 1, 7]),
        budget_rows: *random.pick(&[1, 5, 10_000]),
    }
}

fn actions(random: &mut Random) -> Vec<(u32, Action)> {
    let mut some = |low, high| random.between(low, high) as u32;
    vec![
        (some(100, 300), Action::Put),
        (some(0, 30), Action::Delete),
        (some(0, 3), Action::Truncate),
        (some(0, 3), Action::Drop),
        (some(0, 3), Action::Rename),
        (some(0, 4), Action::Index),
        (some(5, 15), Action::Start),
        (some(0, 8), Action::Stop),
        (some(1, 20), Action::Drain),
        (some(0, 6), Action::ReadOnly),
        (some(60, 150), Action::Turn),
        (some(60, 300), Action::Journal),
        (some(10, 60), Action::Advance),
        (some(1, 5), Action::Settle),
        (some(0, 5), Action::Crash),
        (some(0, 3), Action::Restart),
    ]
}

/// A deadline as a tuple tells it, and what it means in µs since the epoch; `None` is never.
pub(super) fn deadline(random: &mut Random, now: u64, (unit, _): (u64, &str)) -> (Value, Option<u64>) {
    let offset = *random.pick(&[0, 1, 1_000, 250_000, 1_000_000, 5_000_000, 60_000_000]);
    let moment = if random.one_in(6) { now - offset } else { now + offset };
    let count = moment / unit;
    match random.below(12) {
        0 => (Value::Nil, None),
        1 => (Value::from(-1), None),
        // A fraction that a double holds exactly, of the coarse units only.
        2 | 3 if unit >= 1_000 => (Value::Double(count as f64 + 0.25), Some(count * unit + unit / 4)),
        _ => (Value::from(count), Some(count * unit)),
    }
}
