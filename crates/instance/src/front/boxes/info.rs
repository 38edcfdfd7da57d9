//! `box.info`: the identity and the state of this instance.

use lycosa_tuple::value::Value;

use crate::shard::group::Election;
use crate::shard::replication::vclock_value;
use crate::{CheckpointStatus, Instance, Lag, LastCheckpoint, LongestTurn, PROTOCOL_VERSION, Status};

/// Expiration tasks in a few numbers.
fn expiration(summary: &lycosa_expiration::Summary) -> Value {
    Value::map([
        ("tasks", Value::from(summary.tasks)),
        ("behind", summary.behind.into()),
        ("failing", summary.failing.into()),
        ("scanned", summary.scanned.into()),
        ("expired", summary.expired.into()),
        ("lag_us", summary.lag_us.into()),
        ("longest_hold_us", summary.longest_hold_us.into()),
        ("longest_hold_cpu_us", summary.longest_hold_cpu_us.into()),
        ("next_us", summary.next.map_or(Value::Nil, Value::Uint)),
    ])
}

fn longest_turn(turn: Option<&LongestTurn>) -> Value {
    turn.map_or(Value::Nil, LongestTurn::value)
}

/// What waits for the clients and from them, beside its bounds: bytes of replies that no client has read yet, and of requests
/// whose rest has not come.
fn net_value(status: &Status) -> Value {
    let part = |current: usize, limit: usize| {
        vec![("current", Value::from(current as u64)), ("limit", (limit as u64).into())]
    };
    let mut output = part(status.unread_output, status.max_output_total);
    output.push(("closed", status.closed_for_output.into()));
    let input = part(status.incomplete_input, status.max_input_total);
    Value::map([("output", Value::map(output)), ("input", Value::map(input))])
}

/// A function that returns a part of `box.info`.
type Part = fn(&Instance) -> Option<Value>;

/// The parts of `box.info` in their order. One that is absent has no value at the moment.
///
/// Clocks and LSNs count durable rows only: an operator who promotes a replica by them must not count on rows that a crash
/// would lose.
const PARTS: &[(&str, Part)] = &[
    ("version", |_| Some(PROTOCOL_VERSION.into())),
    ("lycosa", |_| Some(env!("CARGO_PKG_VERSION").into())),
    ("id", |instance| Some(i64::from(instance.shard.identity().replica_id).into())),
    ("uuid", |instance| Some(instance.shard.identity().instance.to_string().into())),
    ("pid", |instance| Some(u64::from(instance.front.process.id).into())),
    ("status", |instance| Some(instance.state().into())),
    ("ro", |instance| Some(instance.shard.is_read_only().into())),
    ("uptime", |instance| Some((instance.shard.uptime() / 1_000_000).into())),
    ("lsn", |instance| Some(instance.durable_vclock().get(instance.shard.identity().replica_id).into())),
    ("signature", |instance| Some(instance.shard.journaling().durable_vclock().signature().into())),
    ("vclock", |instance| Some(vclock_value(instance.durable_vclock()))),
    ("pending_rows", |instance| Some(instance.pending_rows())),
    ("cluster", |instance| {
        Some(Value::map([("uuid", Value::from(instance.shard.identity().cluster.to_string()))]))
    }),
    ("replication", |instance| Some(instance.shard.replication_value())),
    ("replication_anon", |instance| Some(Value::map([("count", Value::from(instance.shard.guests()))]))),
    ("election", |instance| instance.shard.election().map(Election::value)),
    ("masters", |instance| Some(instance.shard.masters_value())),
    ("memory", |instance| Some(instance.box_info_memory())),
    ("net", |instance| Some(net_value(&instance.status()))),
    ("checkpoint", |instance| Some(checkpoint(&instance.checkpoint_status()))),
    ("deadline_lag", |instance| {
        let Lag { last, longest } = instance.shard.lag();
        Some(Value::map([("last_us", Value::from(last)), ("longest_us", longest.into())]))
    }),
    ("longest_turns_us", |instance| Some(Value::map(instance.loop_time.longest()))),
    ("longest_turns_cpu_us", |instance| Some(Value::map(instance.loop_time.longest_cpu()))),
    ("longest_turn", |instance| Some(longest_turn(instance.loop_time.longest_turns()[0].as_ref()))),
    ("longest_turn_cpu", |instance| Some(longest_turn(instance.loop_time.longest_turns()[1].as_ref()))),
    ("ro_reason", Instance::read_only_reason),
    ("term", |instance| instance.shard.term_value()),
    ("journals", |instance| Some(instance.shard.journals_value())),
    ("expiration", |instance| Some(expiration(&instance.shard.expiration_summary()))),
    ("failure", |instance| instance.shard.trouble().map(Value::from)),
];

impl Instance {
    /// The instance at this moment.
    pub fn status(&self) -> Status {
        let memory = self.shard.store().memory();
        let [longest_turn, longest_turn_cpu] = self.loop_time.longest_turns();
        Status {
            status: self.state(),
            failure: self.shard.trouble().map(str::to_owned),
            is_read_only: self.shard.is_read_only(),
            uptime: self.shard.uptime(),
            signature: self.shard.journaling().signature(),
            durable_signature: self.shard.journaling().durable_vclock().signature(),
            connections: self.front.connections.len(),
            waiting_calls: self.front.parked.len(),
            unread_output: self.front.unread_output(),
            max_output_total: self.front.settings.max_output_total,
            closed_for_output: self.front.output.closed(),
            incomplete_input: self.front.connections.incomplete(),
            max_input_total: self.front.settings.input_limit(),
            memory_used: memory.used,
            memory_limit: memory.limit,
            checkpoint: self.checkpoint_status(),
            lag: self.shard.lag(),
            longest_turns: self.loop_time.longest(),
            longest_turns_cpu: self.loop_time.longest_cpu(),
            longest_turn,
            longest_turn_cpu,
            expiration: self.shard.expiration_summary(),
            requests: self.front.counts.clone(),
        }
    }

    pub(super) fn box_info(&self) -> Value {
        let parts = PARTS.iter().filter_map(|(name, part)| Some((*name, part(self)?)));
        Value::map(parts.collect::<Vec<_>>())
    }

    /// One part of `box.info`, for monitors that poll nothing else.
    pub fn info_part(&self, name: &str) -> Option<Value> {
        let (_, part) = PARTS.iter().find(|(known, _)| *known == name)?;
        part(self)
    }

    fn state(&self) -> &'static str {
        match (self.shard.trouble(), self.is_orphan()) {
            (Some(_), _) => "failed",
            (None, true) => "orphan",
            (None, false) => "running",
        }
    }

    fn read_only_reason(&self) -> Option<Value> {
        let is_configured = self.shard.is_read_only_configured() || self.shard.identity().replica_id == 0;
        let reason = match (is_configured, self.shard.is_orphan()) {
            (true, _) => "config",
            (false, true) => "orphan",
            (false, false) => "fenced",
        };
        self.shard.is_read_only().then(|| reason.into())
    }

    fn pending_rows(&self) -> Value {
        let durable = self.shard.journaling().durable_vclock().signature();
        (self.shard.journaling().signature() - durable).into()
    }

    pub(super) fn box_info_memory(&self) -> Value {
        let memory = self.shard.store().memory();
        let net = self.front.unread_output() + self.front.connections.incomplete();
        // There is no cache of tuples, and a transaction keeps what it has changed with the tuples.
        Value::map([
            ("cache", 0),
            ("data", memory.tuples),
            ("index", memory.indexes),
            ("limit", memory.limit),
            ("lua", self.measures.programs.memory),
            ("net", net as u64),
            ("tx", 0),
        ])
    }

    pub(super) fn box_slab_info(&self) -> Value {
        let memory = self.shard.store().memory();
        let share = |part: u64, whole: u64| {
            let percent = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
            Value::from(format!("{percent:.2}%"))
        };
        Value::map([
            ("quota_size", Value::from(memory.limit)),
            ("quota_used", memory.used.into()),
            ("quota_used_ratio", share(memory.used, memory.limit)),
            ("arena_size", memory.reserved.into()),
            ("arena_used", memory.tuples.into()),
            ("arena_used_ratio", share(memory.tuples, memory.reserved)),
            ("items_size", memory.reserved.into()),
            ("items_used", memory.tuples.into()),
            ("items_used_ratio", share(memory.tuples, memory.reserved)),
        ])
    }
}

/// The map of `box.info().checkpoint`: sizes in bytes, spans in microseconds, the time in seconds.
fn checkpoint(status: &CheckpointStatus) -> Value {
    let mut shown = vec![
        ("state", Value::from(status.state)),
        ("count", status.count.into()),
        ("failures", status.failures.into()),
        ("longest_pause_us", status.longest_pause.into()),
        ("memory", status.memory.into()),
        ("journal_bytes", status.journal_bytes.into()),
        ("journal_limit", status.journal_limit.into()),
        ("disk_used", status.disk_used.into()),
        ("disk_bound", status.disk_bound.into()),
        ("disk_excesses", status.disk_excesses.into()),
    ];
    if let Some(failure) = &status.failure {
        shown.push(("failure", failure.as_str().into()));
    }
    if let Some(LastCheckpoint { vclock, at, rows, bytes, duration }) = &status.last {
        let last = [
            ("vclock", vclock_value(vclock)),
            ("signature", vclock.signature().into()),
            ("time", Value::Double(*at as f64 / 1e6)),
            ("rows", (*rows).into()),
            ("bytes", (*bytes).into()),
            ("duration_us", (*duration).into()),
        ];
        shown.push(("last", Value::map(last)));
    }
    Value::map(shown)
}
