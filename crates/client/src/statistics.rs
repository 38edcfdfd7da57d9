//! Statistics of a tube.

use std::collections::BTreeMap;

use lycosa_tuple::value::Value;

use crate::error::{Error, Result};

/// What a tube counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Tasks by state, now.
    pub tasks: TaskCounts,
    /// Calls that succeeded and timers that ran, by name, since the server started or the tube was made. Among them
    /// `put`, `take`, `ack`, `release`, `touch`, `bury`, `kick`, `delete`, `ttl`, `ttr`, `delay`.
    pub calls: BTreeMap<String, u64>,
}

/// Tasks by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Waiting to be taken.
    pub ready: u64,
    /// Taken by a session.
    pub taken: u64,
    /// Waiting for their delay to be over.
    pub delayed: u64,
    /// Put aside.
    pub buried: u64,
    /// Done since the server started; they are no longer there.
    pub done: u64,
    /// All tasks of the tube.
    pub total: u64,
}

impl Statistics {
    /// Reads the map of one tube: `{tasks: {…}, calls: {…}}`.
    pub(crate) fn from_value(value: &Value) -> Result<Self> {
        let tasks = value.get("tasks").ok_or_else(|| Error::protocol("statistics without `tasks`"))?;
        let count = |state: &str| tasks.get(state).and_then(Value::as_u64).unwrap_or(0);
        let tasks = TaskCounts {
            ready: count("ready"),
            taken: count("taken"),
            delayed: count("delayed"),
            buried: count("buried"),
            done: count("done"),
            total: count("total"),
        };
        let Some(Value::Map(calls)) = value.get("calls") else {
            return Err(Error::protocol("statistics without `calls`"));
        };
        let calls =
            calls.iter().filter_map(|(name, count)| Some((name.as_str()?.to_owned(), count.as_u64()?)));
        Ok(Self { tasks, calls: calls.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tube_and_no_tube() {
        let counts = |pairs: &[(&str, u64)]| Value::map(pairs.iter().map(|&(name, count)| (name, count)));
        let value = Value::map([
            ("tasks", counts(&[("ready", 2), ("taken", 1), ("total", 3), ("done", 7)])),
            ("calls", counts(&[("put", 10), ("take", 8)])),
        ]);
        let statistics = Statistics::from_value(&value).expect("statistics");
        assert_eq!(
            statistics.tasks,
            TaskCounts { ready: 2, taken: 1, total: 3, done: 7, ..TaskCounts::default() }
        );
        assert_eq!(statistics.calls.get("put"), Some(&10));
        assert!(Statistics::from_value(&Value::Nil).is_err());
        assert!(Statistics::from_value(&Value::map([("tasks", Value::Nil)])).is_err());
    }
}
