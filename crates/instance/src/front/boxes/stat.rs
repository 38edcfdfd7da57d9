//! `box.stat`: the number of requests and of programs' statements of each kind, in all and per second.

use lycosa_iproto::keys::RequestType;
use lycosa_tuple::value::Value;

use super::arguments::Arguments;
use super::status::TYPES;
use crate::{Instance, Result, Status};

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
        // In Tarantool's words; CALL_16 counts as CALL.
        let shown = TYPES.iter().filter(|(name, _)| !matches!(*name, "ping" | "other"));
        let rows = shown.map(|(name, kinds)| (name.to_uppercase(), status.rate(count(kinds))));
        Value::map(rows.chain([("ERROR".to_owned(), status.rate(status.requests.errors))]))
    }

    pub(super) fn box_stat_net(&self) -> Value {
        let status = self.status();
        let counts = &status.requests;
        let connections = [
            ("current", Value::from(status.connections as u64)),
            ("total", counts.connections.into()),
            ("rps", status.per_second(counts.connections)),
            ("refused", counts.refused_connections.into()),
        ];
        let buffer = |current: usize, limit: usize, closed: u64| {
            Value::map([("current", current as u64), ("limit", limit as u64), ("closed", closed)])
        };
        let (output, input) = (status.unread_output, status.unserved_input);
        let requests = [
            ("total", Value::from(counts.total())),
            ("current", Value::from(status.waiting_calls as u64)),
            ("rps", status.per_second(counts.total())),
            ("malformed", counts.malformed.into()),
        ];
        Value::map([
            ("CONNECTIONS", Value::map(connections)),
            ("OUTPUT", buffer(output, status.max_output_total, status.closed_for_output)),
            ("INPUT", buffer(input, status.max_input_total, counts.closed_for_input)),
            ("REQUESTS", Value::map(requests)),
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
