//! `box.stat`: the number of requests and of programs' statements of each kind, in all and per second.

use lycosa_iproto::keys::RequestType;
use lycosa_tuple::value::Value;

use super::arguments::Arguments;
use crate::{Instance, Result, Status};

/// The rows of `box.stat` in Tarantool's words; CALL_16 counts as CALL.
const ROWS: [(&str, &[RequestType]); 11] = [
    ("SELECT", &[RequestType::Select]),
    ("INSERT", &[RequestType::Insert]),
    ("REPLACE", &[RequestType::Replace]),
    ("UPDATE", &[RequestType::Update]),
    ("UPSERT", &[RequestType::Upsert]),
    ("DELETE", &[RequestType::Delete]),
    ("CALL", &[RequestType::Call, RequestType::Call16]),
    ("EVAL", &[RequestType::Eval]),
    ("AUTH", &[RequestType::Auth]),
    ("EXECUTE", &[RequestType::Execute]),
    ("PREPARE", &[RequestType::Prepare]),
];

impl Instance {
    pub(super) fn box_stat(&self, args: &[u8]) -> Result<Value> {
        let arguments = Arguments::decode("box.stat([name])", args)?;
        let rows = self.stat_rows();
        let Some(name) = arguments.optional_text(0)? else { return Ok(rows) };
        Ok(rows.get(name).cloned().unwrap_or(Value::Nil))
    }

    fn stat_rows(&self) -> Value {
        let status = self.status();
        let count = |kinds: &[RequestType]| {
            kinds.iter().map(|&kind| status.requests.with_statements(kind)).sum::<u64>()
        };
        let mut rows: Vec<_> = ROWS.iter().map(|(name, kinds)| (*name, status.rate(count(kinds)))).collect();
        rows.push(("ERROR", status.rate(status.requests.errors)));
        Value::map(rows)
    }

    pub(super) fn box_stat_net(&self) -> Value {
        let status = self.status();
        Value::map([
            (
                "CONNECTIONS",
                Value::map([
                    ("current", Value::from(status.connections as u64)),
                    ("total", status.requests.connections.into()),
                    ("rps", status.per_second(status.requests.connections)),
                    ("refused", status.requests.refused_connections.into()),
                ]),
            ),
            (
                "OUTPUT",
                Value::map([
                    ("current", Value::from(status.unread_output as u64)),
                    ("limit", (status.max_output_total as u64).into()),
                    ("closed", status.closed_for_output.into()),
                ]),
            ),
            (
                "INPUT",
                Value::map([
                    ("current", Value::from(status.unserved_input as u64)),
                    ("limit", (status.max_input_total as u64).into()),
                    ("closed", status.requests.closed_for_input.into()),
                ]),
            ),
            (
                "REQUESTS",
                Value::map([
                    ("total", Value::from(status.requests.total())),
                    ("current", Value::from(status.waiting_calls as u64)),
                    ("rps", status.per_second(status.requests.total())),
                    ("malformed", status.requests.malformed.into()),
                ]),
            ),
            ("RECEIVED", status.rate(status.received)),
            ("SENT", status.rate(status.sent)),
        ])
    }
}

impl Status {
    /// A counter as `{rps, total}`.
    fn rate(&self, total: u64) -> Value {
        Value::map([("rps", self.per_second(total)), ("total", total.into())])
    }

    /// The mean since the start.
    fn per_second(&self, total: u64) -> Value {
        (total / (self.standing.uptime / 1_000_000).max(1)).into()
    }
}
