//! Issues: faults, their meaning, and the act against each. The page, `lycosa top` and HTTP show them and add no rule of their own.
//!
//! A fault of a tube is a rule over few numbers of the tube. A survey of all tubes asks for the gravity of the gravest fault
//! alone; a status that is asked for its issues has the texts.

mod texts;

use std::borrow::Cow;

use lycosa_tuple::mp;

use crate::members::Members;
use crate::statistics::TaskCounts;

/// How long a ready task may wait where no call waits for it, µs.
const PATIENCE: u64 = 60_000_000;
/// How long a task may wait or be taken before that is a fault, µs.
const LONG: u64 = 600_000_000;

named! {
    /// How grave a fault is.
    #[derive(PartialOrd, Ord)]
    pub enum Gravity {
        /// Work stands still, or soon will.
        Bad = "bad",
        /// Something to look at.
        Warn = "warn",
        /// Something to know.
        Note = "note",
    }
}

/// Something that is wrong with the owner of the list in which it stands: a tube, or the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The rule, for programs.
    pub kind: &'static str,
    /// How grave it is.
    pub gravity: Gravity,
    /// The one of several things of which the rule speaks, such as a replica.
    pub subject: Option<String>,
    /// Since when, µs since the epoch, if that is known.
    pub since: Option<u64>,
    /// The fault.
    pub title: Cow<'static, str>,
    /// What it means.
    pub means: Cow<'static, str>,
    /// What to do.
    pub act: Cow<'static, str>,
    /// A command that helps.
    pub command: Option<String>,
}

impl Issue {
    /// An issue without a subject, a time and a command.
    pub fn new(
        (kind, gravity): (&'static str, Gravity),
        title: impl Into<Cow<'static, str>>,
        means: impl Into<Cow<'static, str>>,
        act: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (title, means, act) = (title.into(), means.into(), act.into());
        Self { kind, gravity, subject: None, since: None, title, means, act, command: None }
    }

    /// With the command that helps.
    #[must_use]
    pub fn with_command(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }

    /// With the thing of which it speaks.
    #[must_use]
    pub fn about(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// Since `age` µs before `now`.
    #[must_use]
    pub fn for_long(self, age: u64, now: u64) -> Self {
        Self { since: Some(now.saturating_sub(age)), ..self }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Self { kind, gravity, subject, since, title, means, act, command } = self;
        let mut map = Members::wide(out);
        map.text("kind", kind);
        map.text("gravity", gravity.name());
        map.fraction("since", *since);
        for (name, text) in [("subject", subject.as_deref()), ("command", command.as_deref())] {
            text.into_iter().for_each(|text| map.text(name, text));
        }
        for (name, text) in [("title", title), ("means", means), ("act", act)] {
            map.text(name, text.as_bytes());
        }
    }

    /// Appends issues as an array of maps.
    pub fn write_all(issues: &[Self], out: &mut Vec<u8>) {
        mp::write_array(out, issues.len() as u32);
        issues.iter().for_each(|issue| issue.write(out));
    }
}

/// What the rules about a tube look at. Ages are in µs.
#[derive(Debug, Clone, Copy)]
pub(super) struct TubeFacts {
    pub(super) tasks: TaskCounts,
    pub(super) is_paused: bool,
    pub(super) waiting_takes: u32,
    pub(super) oldest_ready_age: Option<u64>,
    pub(super) oldest_taken_age: Option<u64>,
    pub(super) capacity: Option<u64>,
    /// Sub-queues with a taken task.
    pub(super) busy_keys: u64,
}

/// A fault of a tube.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Paused,
    NoWorker { age: u64 },
    Late { age: u64 },
    Blocked { age: u64 },
    Held { age: u64, is_blocking: bool },
    Buried,
    Full { capacity: u64 },
}

impl Fault {
    pub(super) const fn gravity(self) -> Gravity {
        match self {
            Self::NoWorker { .. } => Gravity::Bad,
            Self::Paused | Self::Held { is_blocking: false, .. } => Gravity::Note,
            Self::Late { .. }
            | Self::Blocked { .. }
            | Self::Held { .. }
            | Self::Buried
            | Self::Full { .. } => Gravity::Warn,
        }
    }
}

impl TubeFacts {
    /// All faults of the tube. `is_taken_from`: whether a task was taken within the last minutes.
    pub(super) fn faults(self, is_taken_from: impl FnOnce() -> bool) -> impl Iterator<Item = Fault> {
        let Self { tasks, is_paused, waiting_takes, capacity, busy_keys, .. } = self;
        let age = self.oldest_ready_age.filter(|_| tasks.ready > 0).unwrap_or(0);
        let held = self.oldest_taken_age.unwrap_or(0);
        let flow = if is_paused {
            Some(Fault::Paused)
        } else if age > PATIENCE && waiting_takes == 0 && !is_taken_from() {
            Some(Fault::NoWorker { age })
        } else if age > LONG && waiting_takes > 0 && busy_keys > 0 {
            Some(Fault::Blocked { age })
        } else {
            (age > LONG).then_some(Fault::Late { age })
        };
        let is_blocking = busy_keys > 0 && tasks.ready > 0;
        let full = capacity.filter(|capacity| *capacity > 0 && tasks.total() >= *capacity);
        flow.into_iter()
            .chain((held > LONG).then_some(Fault::Held { age: held, is_blocking }))
            .chain((tasks.buried > 0).then_some(Fault::Buried))
            .chain(full.map(|capacity| Fault::Full { capacity }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn fine() -> TubeFacts {
        TubeFacts {
            tasks: TaskCounts { ready: 2, taken: 1, delayed: 0, buried: 0 },
            is_paused: false,
            waiting_takes: 1,
            oldest_ready_age: Some(600 * SECOND),
            oldest_taken_age: Some(600 * SECOND),
            capacity: Some(4),
            busy_keys: 1,
        }
    }

    #[test]
    fn each_rule_holds_from_its_threshold_on() {
        let found = |facts: TubeFacts, is_taken_from| facts.faults(|| is_taken_from).collect::<Vec<_>>();
        assert_eq!(found(fine(), false), []);
        let (minute, long) = (60 * SECOND, 601 * SECOND);
        let waiting = |age| TubeFacts { waiting_takes: 0, oldest_ready_age: Some(age), ..fine() };
        let held = TubeFacts { oldest_taken_age: Some(long), ..fine() };
        assert_eq!(found(waiting(minute), false), []);
        let buried = TaskCounts { buried: 1, ..fine().tasks };
        let none_ready = TaskCounts { ready: 0, taken: 1, delayed: 0, buried: 0 };
        let cases = [
            (waiting(minute + 1), false, Fault::NoWorker { age: minute + 1 }),
            (TubeFacts { is_paused: true, ..waiting(long) }, false, Fault::Paused),
            (TubeFacts { waiting_takes: 1, ..waiting(long) }, false, Fault::Blocked { age: long }),
            (TubeFacts { waiting_takes: 1, busy_keys: 0, ..waiting(long) }, false, Fault::Late { age: long }),
            (waiting(long), true, Fault::Late { age: long }),
            (held, true, Fault::Held { age: long, is_blocking: true }),
            (TubeFacts { busy_keys: 0, ..held }, true, Fault::Held { age: long, is_blocking: false }),
            (TubeFacts { tasks: none_ready, ..held }, true, Fault::Held { age: long, is_blocking: false }),
            (TubeFacts { tasks: buried, capacity: Some(5), ..fine() }, true, Fault::Buried),
            (TubeFacts { capacity: Some(3), ..fine() }, true, Fault::Full { capacity: 3 }),
        ];
        for (facts, is_taken_from, fault) in cases {
            assert_eq!(found(facts, is_taken_from), [fault], "{facts:?}");
        }
    }

    /// An alert and an issue of one name have one threshold.
    #[test]
    fn alerts_have_the_thresholds_of_issues() {
        let rules = include_str!("../../../../packaging/monitoring/lycosa.rules.yml");
        let alert = |issue: &str| {
            let alerts =
                rules.split("- alert: ").filter(|alert| alert.contains(&format!("issue: {issue}}}")));
            alerts.collect::<String>()
        };
        for (issue, condition) in [
            ("no_worker", format!("lycosa_tube_oldest_ready_age_seconds > {}\n", PATIENCE / SECOND)),
            ("late", format!("lycosa_tube_oldest_ready_age_seconds > {} and", LONG / SECOND)),
            ("held", format!("lycosa_tube_oldest_taken_age_seconds > {}\n", LONG / SECOND)),
            ("buried", "lycosa_tube_tasks{state=\"buried\"} > 0 and".to_owned()),
            ("full", "lycosa_tube_capacity_tasks >= 1\n".to_owned()),
        ] {
            assert!(alert(issue).contains(&condition), "{issue}: {condition} is not in {}", alert(issue));
        }
    }
}
