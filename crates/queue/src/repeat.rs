//! Repeated takes: a take may carry a name, and the session that made it may make it again.
//!
//! The answer to a take can be lost with a connection, although the queue gave a task out. The client then makes the take again,
//! with the same name, perhaps at another server: it gets the tasks that the lost answer had, or it waits in place of the lost call. The
//! name stands in the owner's row, so a new leader of a group knows it.
//!
//! | option of `take` and `take_many` | meaning |
//! |---|---|
//! | `request` | the name: 16 bytes, not used before in the session |
//! | `again` | a take with this name was made, and its answer was lost. A number that grows with each repetition; true is 1 |
//!
//! Repetitions may overtake each other, since each may go through another server: of two calls with one name the one with the
//! greater number has a caller that waits. The other one gets nothing, whichever comes first.
//!
//! *Absent:* leases. Each lease has an end of its own.

mod take;

use std::collections::{HashMap, VecDeque};

use crate::arguments::{Arguments, Table, string, unsigned};
use crate::error::{Error, Result};
use crate::leases::Form;
use crate::lua_text;
use crate::procedure::TubeMethod;
use crate::session::SessionId;

/// The name of a take, unique in its session.
pub(crate) type TakeName = [u8; 16];

/// The options of a take about its repetition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Repeat {
    /// The name, if the take has one.
    pub(crate) name: Option<TakeName>,
    /// Greater with each repetition; 0 for the first call.
    pub(crate) attempt: u64,
}

/// What becomes of a take with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeated {
    /// It was answered with the tasks that its session got.
    Answered,
    /// It was made again since: nothing reads its answer.
    Outdated,
    /// It is to be made.
    New,
}

/// The last repetition of each take that was repeated lately.
#[derive(Debug, Default)]
pub(crate) struct Repetitions {
    latest: HashMap<(SessionId, TakeName), u64>,
    /// Their keys, the oldest first.
    order: VecDeque<(SessionId, TakeName)>,
}

impl Repetitions {
    /// A call that is overtaken comes while its server and the network hold it up: more repetitions than this rarely lie between.
    const KEPT: usize = 1024;

    pub(crate) fn is_empty(&self) -> bool {
        self.latest.is_empty()
    }

    /// Notes a call. False after a later call.
    fn note(&mut self, session: SessionId, name: &TakeName, attempt: u64) -> bool {
        let key = (session, *name);
        if let Some(latest) = self.latest.get_mut(&key) {
            let is_current = attempt >= *latest;
            *latest = attempt.max(*latest);
            return is_current;
        }
        if attempt > 0 {
            if self.order.len() == Self::KEPT
                && let Some(oldest) = self.order.pop_front()
            {
                self.latest.remove(&oldest);
            }
            self.order.push_back(key);
            self.latest.insert(key, attempt);
        }
        true
    }
}

impl Repeat {
    /// What the options of a take ask for.
    pub(crate) fn of_take(options: Option<&[u8]>) -> Result<(Form, Self)> {
        let Some(options) = options else { return Ok((Form::Plain, Self::default())) };
        let form = Form::parse(options)?;
        Ok((form, Self::parse(options, form)?))
    }

    fn parse(options: &[u8], form: Form) -> Result<Self> {
        let table = || Table::parse(Some(options)).ok();
        let given = table().and_then(|table| table.get(b"request"));
        let Some(name) = given.filter(|_| !matches!(form, Form::Leased(_))) else {
            return Ok(Self::default());
        };
        let bytes = string(name).and_then(|bytes| bytes.try_into().ok());
        let bytes = bytes.ok_or_else(|| Error::TakeName(lua_text::type_name(Some(name))))?;
        let attempt = match table().and_then(|table| table.get(b"again")) {
            Some([0xc3]) => 1,
            again => again.and_then(unsigned).unwrap_or(0),
        };
        Ok(Self { name: Some(bytes), attempt })
    }

    fn is_again(self) -> bool {
        self.attempt > 0
    }
}

/// Whether a call is a take that was made before.
pub(crate) fn is_take_again(method: TubeMethod, arguments: &[u8]) -> bool {
    let place = match method {
        TubeMethod::Take => 1,
        TubeMethod::TakeMany => 2,
        _ => return false,
    };
    let arguments = Arguments::parse(arguments).ok();
    let options = arguments.and_then(|arguments| arguments.present(place));
    Repeat::of_take(options).is_ok_and(|(_, repeat)| repeat.is_again())
}

#[cfg(test)]
mod tests {
    use lycosa_tuple::value::Value;

    use super::*;

    fn parsed(options: &Value, form: Form) -> Result<Repeat, String> {
        Repeat::parse(&options.encode(), form).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_has_sixteen_bytes() {
        let name = [7; 16];
        let options = |name: Value| Value::map([("request", name), ("again", true.into())]);
        let named = Repeat { name: Some(name), attempt: 1 };
        assert_eq!(parsed(&options(Value::Bin(name.to_vec())), Form::Plain), Ok(named));
        assert_eq!(parsed(&options(Value::Str(name.to_vec())), Form::Extended), Ok(named));
        let third = Value::map([("request", Value::Bin(name.to_vec())), ("again", 6_u64.into())]);
        assert_eq!(parsed(&third, Form::Plain), Ok(Repeat { name: Some(name), attempt: 6 }));
        let first = Value::map([("request", Value::Bin(name.to_vec()))]);
        assert_eq!(parsed(&first, Form::Plain), Ok(Repeat { name: Some(name), attempt: 0 }));
        assert_eq!(parsed(&first, Form::Leased(1)), Ok(Repeat::default()));
        assert_eq!(parsed(&Value::map([("again", true)]), Form::Plain), Ok(Repeat::default()));
        for other in [Value::Bin(vec![7; 15]), Value::from(7_u64)] {
            let error = parsed(&options(other), Form::Plain).expect_err("no name");
            assert!(error.contains("16 bytes"), "{error}");
        }
    }
    #[test]
    fn the_latest_repetitions_are_known() {
        let mut repetitions = Repetitions::default();
        let name = |number: usize| (number as u128).to_be_bytes();
        assert!(repetitions.note([1; 16], &name(0), 0) && repetitions.is_empty());
        for number in 0..=Repetitions::KEPT {
            assert!(repetitions.note([1; 16], &name(number), 2));
        }
        assert_eq!(repetitions.latest.len(), Repetitions::KEPT);
        assert!(repetitions.note([1; 16], &name(0), 0), "forgotten");
        assert!(repetitions.note([2; 16], &name(1), 0), "another session's");
        assert!(!repetitions.note([1; 16], &name(1), 0));
        assert!(repetitions.note([1; 16], &name(1), 2) && repetitions.note([1; 16], &name(1), 4));
        assert!(!repetitions.note([1; 16], &name(1), 2));
    }
}
