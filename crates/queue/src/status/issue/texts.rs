//! The issues of a tube: its faults as texts, with the act against each.

use super::{Fault, Issue, TubeFacts};
use crate::status::spell::{count, counted, duration};
use crate::status::view::TubeStatus;

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

    #[test]
    fn a_command_is_for_names_that_a_shell_takes_as_they_are() {
        let plain = ["mail", "mail-2", "a.b", "_x", "7"].map(is_plain);
        assert_eq!(plain, [true; 5]);
        let others = ["", "-rf", ".x", "a b", "a;b", "ä", "$x", "a\nb"].map(is_plain);
        assert_eq!(others, [false; 8]);
    }
}
