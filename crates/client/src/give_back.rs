//! Tasks that arrive after their caller has stopped waiting.

use std::sync::Arc;

use lycosa_tuple::mp::{Kind, Reader};
use lycosa_tuple::value::Value;

use crate::array::Array;
use crate::response::Response;

/// How the tasks of an answer without a reader are given back: by calling this procedure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GiveBack {
    /// The answer is a task, or nothing; the procedure wants its id.
    One(Arc<str>),
    /// The answer is an array of tasks; the procedure wants an array of their ids.
    Many(Arc<str>),
    /// As [`Self::One`], of a take that counts as an attempt, which this was none.
    OneCounted(Arc<str>),
    /// As [`Self::Many`], of takes that count as attempts, which these were none.
    ManyCounted(Arc<str>),
    /// As [`Self::OneCounted`]; the procedure wants the token of the task's lease.
    OneLeased(Arc<str>),
    /// As [`Self::ManyCounted`]; the procedure wants the tokens of the tasks' leases.
    ManyLeased(Arc<str>),
}

/// The options with which a take is not counted as an attempt.
pub(crate) fn unattempted() -> Value {
    Value::map([("attempted", false)])
}

impl GiveBack {
    /// The procedure's name and arguments; `None` if there is no task in the answer.
    pub(crate) fn call(&self, response: &Response) -> Option<(&str, Array)> {
        let first = response.first()?;
        match self {
            Self::One(procedure) => Some((procedure, Array::from([self.named(first)?]))),
            Self::OneCounted(procedure) | Self::OneLeased(procedure) => {
                Some((procedure, Array::from([self.named(first)?, unattempted()])))
            }
            Self::Many(procedure) | Self::ManyCounted(procedure) | Self::ManyLeased(procedure) => {
                let mut reader = Reader::new(first);
                let count = reader.array().ok().filter(|count| *count > 0)?;
                let ids: Option<Vec<Value>> = (0..count).map(|_| self.named(reader.raw().ok()?)).collect();
                let options = (!matches!(self, Self::Many(_))).then(unattempted);
                let arguments: Vec<_> = std::iter::once(Value::Array(ids?)).chain(options).collect();
                Some((procedure, Array::from(arguments)))
            }
        }
    }

    /// What the procedure calls a task.
    fn named(&self, task: &[u8]) -> Option<Value> {
        match self {
            Self::OneLeased(_) | Self::ManyLeased(_) => {
                Value::decode(task).ok()?.as_array()?.get(3)?.get("lease").cloned()
            }
            _ => task_id(task).map(Value::from),
        }
    }
}

fn task_id(task: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(task);
    if reader.kind().ok()? != Kind::Array || reader.array().ok()? == 0 {
        return None;
    }
    reader.uint().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_to_give_back() {
        let (one, many) = (GiveBack::One("release".into()), GiveBack::Many("release_many".into()));
        let task = |id: u64| Value::Array(vec![Value::from(id), Value::from("t"), Value::Nil]);
        let answer = |values: &[Value]| Response::new(Array::from(values).as_bytes().to_vec(), 1);
        let call = |name: &'static str, value: Value| Some((name, Array::from([value])));
        assert_eq!(one.call(&answer(&[task(7)])), call("release", Value::from(7)));
        let tasks = Value::array([task(7), task(300)]);
        assert_eq!(many.call(&answer(&[tasks])), call("release_many", Value::array([7, 300])));
        let counted = [GiveBack::OneCounted("release".into()), GiveBack::ManyCounted("release_many".into())];
        let told: Vec<_> = counted
            .iter()
            .zip([answer(&[task(7)]), answer(&[Value::array([task(7)])])])
            .filter_map(|(give_back, answer)| Some(give_back.call(&answer)?.1))
            .collect();
        let seven = [Value::from(7), Value::array([7])];
        assert_eq!(told, seven.map(|seven| Array::from([seven, unattempted()])));
        let leased = |token: &str| {
            let info = Value::map([("lease", token)]);
            Value::Array(vec![Value::from(7), Value::from("t"), Value::Nil, info])
        };
        let one_leased = GiveBack::OneLeased("release".into());
        let expected = Array::from([Value::from("1-7-2-0"), unattempted()]);
        assert_eq!(one_leased.call(&answer(&[leased("1-7-2-0")])), Some(("release", expected)));
        let many_leased = GiveBack::ManyLeased("release_many".into());
        let tokens = Value::array([Value::from("1-7-2-0"), Value::from("1-7-3-0")]);
        let tasks = Value::array([leased("1-7-2-0"), leased("1-7-3-0")]);
        let expected = Array::from([tokens, unattempted()]);
        assert_eq!(many_leased.call(&answer(&[tasks])), Some(("release_many", expected)));
        for nothing in [answer(&[]), answer(&[Value::Nil]), answer(&[Value::Array(Vec::new())])] {
            assert_eq!(one.call(&nothing), None);
            assert_eq!(many.call(&nothing), None);
        }
    }
}
