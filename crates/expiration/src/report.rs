//! Reports of tasks: state, counters, times.

use lycosa_store::Store;
use lycosa_tuple::value::Value;

use crate::task::{State, Task};
use crate::{Admit, Definition, Expiration, name_of, row};

/// All tasks in a few numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Tasks.
    pub tasks: u64,
    /// Of them, tasks whose last slice failed.
    pub failing: u64,
    /// Of them, tasks that have more to delete than a slice could.
    pub behind: u64,
    /// Tuples looked at since the process began, by the tasks that there are.
    pub scanned: u64,
    /// Tuples deleted since the process began, by the tasks that there are.
    pub expired: u64,
    /// The largest lag, µs: the time since the deadline of the oldest tuple that is due.
    pub lag_us: u64,
    /// The longest that a slice held the loop, µs.
    pub longest_hold_us: u64,
    /// The most processor time that a slice took, µs.
    pub longest_hold_cpu_us: u64,
    /// When the next slice is due, µs since the epoch.
    pub next: Option<u64>,
}

impl Expiration {
    /// All tasks in a few numbers.
    #[must_use]
    pub fn summary(&self, store: &Store, now: u64) -> Summary {
        let mut summary = Summary { next: self.next(), ..Summary::default() };
        for task in self.tasks.iter().filter(|task| !task.definition.dry_run) {
            summary.tasks += 1;
            summary.failing += u64::from(task.state() == State::Failing);
            summary.behind += u64::from(task.state() == State::Behind);
            summary.scanned += task.statistics.scanned;
            summary.expired += task.statistics.expired;
            summary.lag_us = summary.lag_us.max(task.measure(store, now).0);
            summary.longest_hold_us = summary.longest_hold_us.max(task.statistics.longest_hold_us);
            summary.longest_hold_cpu_us =
                summary.longest_hold_cpu_us.max(task.statistics.longest_hold_cpu_us);
        }
        summary
    }

    /// The tasks whose last slice failed, with the error.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        let failing = self.tasks.iter().filter(|task| !task.definition.dry_run);
        failing
            .filter_map(|task| Some((task.definition.name.as_str(), task.failure.as_ref()?.message.as_str())))
    }

    /// The definitions of the tasks of which the caller may know, and their states, in the order of the names.
    #[must_use]
    pub fn list(&self, store: &Store, admit: Admit<'_>) -> Value {
        let known = self.tasks.iter().filter(|task| admit(task.definition.space).is_ok());
        Value::Array(known.map(|task| self.described(task, store)).collect())
    }

    /// What a task has done, and how it is. `None`: there is no such task.
    #[must_use]
    pub fn statistics(&self, store: &Store, name: &str, now: u64) -> Option<Value> {
        let position = self.position(name).ok()?;
        Some(self.report(&self.tasks[position], store, now))
    }

    /// The same for all tasks of which the caller may know: a map by name.
    #[must_use]
    pub fn all_statistics(&self, store: &Store, now: u64, admit: Admit<'_>) -> Value {
        let known = self.tasks.iter().filter(|task| admit(task.definition.space).is_ok());
        let one = |task: &Task| (task.definition.name.as_str().into(), self.report(task, store, now));
        Value::Map(known.map(one).collect())
    }

    /// The definition of a task and its state, as [`Self::list`] has it.
    #[must_use]
    pub fn describe(&self, store: &Store, name: &str) -> Option<Value> {
        let position = self.position(name).ok()?;
        Some(self.described(&self.tasks[position], store))
    }

    fn state_name(&self, task: &Task) -> &'static str {
        match task.state() {
            state @ (State::Idle | State::Done) => state.name(),
            _ if !self.is_running(task) => "paused",
            state => state.name(),
        }
    }

    fn described(&self, task: &Task, store: &Store) -> Value {
        let Definition { name, space, transient, dry_run, .. } = &task.definition;
        let mut pairs: Vec<(Value, Value)> = vec![
            ("name".into(), name.as_str().into()),
            ("space_id".into(), (*space).into()),
            ("space".into(), name_of(store, *space).into()),
            ("state".into(), self.state_name(task).into()),
            ("mode".into(), mode(task, store).into()),
            ("transient".into(), Value::Bool(*transient)),
            ("dry_run".into(), Value::Bool(*dry_run)),
        ];
        if let Value::Map(options) = row::options(&task.definition) {
            pairs.extend(options);
        }
        Value::Map(pairs)
    }

    fn report(&self, task: &Task, store: &Store, now: u64) -> Value {
        let numbers = &task.statistics;
        let (lag, undated) = task.measure(store, now);
        let mut pairs: Vec<(Value, Value)> = Vec::new();
        let mut add = |name: &str, value: Value| pairs.push((name.into(), value));
        add("state", self.state_name(task).into());
        add("mode", mode(task, store).into());
        add("scanned", numbers.scanned.into());
        if task.definition.dry_run {
            add("due", numbers.expired.into());
            add("oldest_us", optional(task.due.0));
            add("newest_us", optional(task.due.1));
            add("done", Value::Bool(task.state() == State::Done));
        } else {
            add("expired", numbers.expired.into());
        }
        add("changed", numbers.changed.into());
        add("undated", undated.into());
        add("slices", numbers.slices.into());
        add("passes", numbers.passes.into());
        add("last_pass_us", optional(numbers.last_pass));
        add("last_pass_took_us", numbers.last_pass_us.into());
        let is_waiting = !matches!(task.state(), State::Idle | State::Done);
        add(
            "next_us",
            optional(Some(task.wakes(self.is_idle)).filter(|&next| is_waiting && next != crate::task::NEVER)),
        );
        add("lag_us", lag.into());
        add("longest_lag_us", numbers.longest_lag_us.into());
        add("longest_hold_us", numbers.longest_hold_us.into());
        add("longest_hold_cpu_us", numbers.longest_hold_cpu_us.into());
        add("longest_slice", task.holds.longest());
        add("hold_p9999_us", task.holds.percentile_9999().into());
        add("slices_over_1ms", task.holds.long().into());
        add("errors", numbers.errors.into());
        if let Some(failure) = &task.failure {
            add("error", failure.message.as_str().into());
            add("attempts", failure.attempts.into());
        }
        Value::Map(pairs)
    }
}

fn mode(task: &Task, store: &Store) -> &'static str {
    if task.ordered(store).is_some() { "indexed" } else { "scan" }
}

fn optional(value: Option<u64>) -> Value {
    value.map_or(Value::Nil, Value::Uint)
}
