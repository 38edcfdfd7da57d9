//! Issues: faults, their meaning, and the act against each. The page, `lycosa top` and HTTP show them and add no rule of their own.
//!
//! A fault of a tube is a rule over few numbers of the tube. A survey of all tubes asks for the gravity of the gravest fault
//! alone; a status that is asked for its issues has the texts.

use std::borrow::Cow;

use lycosa_tuple::mp;

use super::spell::{count, counted, duration};
use super::view::TubeStatus;
use super::write::Map;
use crate::statistics::TaskCounts;

/// How long a ready task may wait where no call waits for it, µs.
const PATIENCE: u64 = 60_000_000;
/// How long a task may wait or be taken before that is a fault, µs.
const LONG: u64 = 600_000_000;

/// How grave a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// Work stands still, or soon will.
    Bad,
    /// Something to look at.
    Warn,
    /// Something to know.
    Note,
}

impl Gravity {
    /// Its name in answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Warn => "warn",
            Self::Note => "note",
        }
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
        let mut map = Map::begin(out);
        map.text("kind", kind);
        map.text("gravity", gravity.name());
        map.seconds("since", *since);
        for (name, text) in [("subject", subject.as_deref()), ("command", command.as_deref())] {
            text.into_iter().for_each(|text| map.text(name, text));
        }
        for (name, text) in [("title", title), ("means", means), ("act", act)] {
            map.text(name, text);
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
            Self::Late { .. }
            | Self::Blocked { .. }
            | Self::Held { is_blocking: true, .. }
            | Self::Buried
            | Self::Full { .. } => Gravity::Warn,
            Self::Paused | Self::Held { is_blocking: false, .. } => Gravity::Note,
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

/// Whether a shell needs no quotation of the name.
fn is_plain(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().next().is_some_and(is_word)
        && name.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

impl TubeStatus {
    fn facts(&self) -> TubeFacts {
        TubeFacts {
            tasks: self.tasks,
            is_paused: self.paused,
            waiting_takes: self.waiting_takes,
            oldest_ready_age: self.oldest_ready_age,
            oldest_taken_age: self.oldest_taken_age,
            capacity: self.capacity,
            busy_keys: self.busy_keys.unwrap_or(0),
        }
    }

    /// The issues of the tube at `now`, the time of the status.
    #[must_use]
    pub fn find_issues(&self, now: u64) -> Vec<Issue> {
        let is_taken_from = || self.rates.as_ref().is_some_and(|rates| rates.takes[0] > 0.0);
        self.facts().faults(is_taken_from).map(|fault| self.describe(fault, now)).collect()
    }

    fn describe(&self, fault: Fault, now: u64) -> Issue {
        let tasks = &self.tasks;
        let issue = |kind, title: String, means: &'static str, act: &'static str| {
            Issue::new((kind, fault.gravity()), title, means, act)
        };
        let issue = match fault {
            Fault::Paused => issue(
                "paused",
                "Paused".to_owned(),
                "The tube hands out no task until it is resumed.",
                "Resume it once the reason is gone.",
            ),
            Fault::NoWorker { age } => Issue::new(
                ("no_worker", fault.gravity()),
                format!("{} and no worker", counted(tasks.ready, "ready task")),
                format!(
                    "The oldest has waited for {}, no call waits for a task, and the last minutes saw no take.",
                    duration(age)
                ),
                "Start workers.",
            )
            .for_long(age, now),
            Fault::Late { age } => issue(
                "late",
                format!("The oldest ready task waits for {}", duration(age)),
                "Takes do not keep up with puts, or tasks of other priorities come first.",
                "Add workers.",
            )
            .for_long(age, now),
            Fault::Blocked { age } => issue(
                "blocked",
                format!("The oldest ready task is blocked for {}", duration(age)),
                "Calls wait for tasks, but a task of the same sub-queue is taken.",
                "See who holds it, and release it if the worker is lost.",
            )
            .for_long(age, now),
            Fault::Held { age, is_blocking } => {
                let means = if is_blocking {
                    "Its sub-queue hands out no other task before it ends."
                } else {
                    "Its worker may be stuck or lost."
                };
                let title = format!("A task has been taken for {}", duration(age));
                issue("held", title, means, "See who holds it, and release it if the worker is lost.")
                    .for_long(age, now)
            }
            Fault::Buried => issue(
                "buried",
                counted(tasks.buried, "buried task"),
                "Workers gave these tasks up. They wait until a kick, or until their ttl is over.",
                "Look at their last errors, mend the cause, then kick or delete them.",
            ),
            Fault::Full { capacity } => issue(
                "full",
                format!("Full: {} tasks", count(capacity)),
                "A put waits for a free place, up to its timeout.",
                "Add workers.",
            ),
        };
        Issue { command: self.command_for(fault), ..issue }
    }

    /// The command that acts on a fault or shows its cause. None for a name that a shell would not take as it is.
    fn command_for(&self, fault: Fault) -> Option<String> {
        let name = Some(&self.name).filter(|name| is_plain(name))?;
        match fault {
            Fault::Paused => Some(format!("lycosa resume {name}")),
            Fault::NoWorker { .. } => Some(format!("lycosa work {name} -- ./handler")),
            Fault::Blocked { .. } | Fault::Held { .. } => Some(format!("lycosa find {name} --state taken")),
            Fault::Buried => Some(format!("lycosa find {name} --state buried")),
            Fault::Late { .. } | Fault::Full { .. } => None,
        }
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

    #[test]
    fn a_command_is_for_names_that_a_shell_takes_as_they_are() {
        let plain = ["mail", "mail-2", "a.b", "_x", "7"].map(is_plain);
        assert_eq!(plain, [true; 5]);
        let others = ["", "-rf", ".x", "a b", "a;b", "ä", "$x", "a\nb"].map(is_plain);
        assert_eq!(others, [false; 8]);
    }
}
