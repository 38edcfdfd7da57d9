//! `box.info`: the identity and the state of this instance.

use lycosa_tuple::value::Value;

use crate::shard::replication::vclock_value;
use crate::{
    CheckpointStatus, Identity, Instance, LastCheckpoint, LongestTurn, PROTOCOL_VERSION, Standing, Status,
};

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
        ("next_us", summary.next.into()),
    ])
}

/// Microseconds as seconds.
pub(super) fn seconds(micros: u64) -> Value {
    Value::Double(micros as f64 / 1e6)
}

/// What waits for the clients and from them, beside its bounds: bytes of replies that no client has read yet, and of requests
/// whose rest has not come.
fn net_value(status: &Status) -> Value {
    let part = |current: usize, limit: usize| {
        vec![("current", Value::from(current as u64)), ("limit", (limit as u64).into())]
    };
    let mut output = part(status.unread_output, status.max_output_total);
    output.push(("closed", status.closed_for_output.into()));
    let input = part(status.unserved_input, status.max_input_total);
    Value::map([("output", Value::map(output)), ("input", Value::map(input))])
}

/// A map with the memory of the instance, in bytes.
pub(super) fn memory_value(status: &Status) -> Value {
    // There is no cache of tuples, and a transaction keeps what it has changed with the tuples.
    Value::map([
        ("cache", 0),
        ("data", status.memory.tuples),
        ("index", status.memory.indexes),
        ("limit", status.memory.limit),
        ("lua", status.lua_memory),
        ("net", (status.unread_output + status.unserved_input) as u64),
        ("tx", 0),
    ])
}

/// The parts of `box.info`, in their order.
const PARTS: [&str; 30] = [
    "version",
    "lycosa",
    "id",
    "uuid",
    "pid",
    "status",
    "ro",
    "uptime",
    "lsn",
    "signature",
    "vclock",
    "pending_rows",
    "cluster",
    "replication",
    "replication_anon",
    "election",
    "masters",
    "memory",
    "net",
    "checkpoint",
    "deadline_lag",
    "longest_turns_us",
    "longest_turns_cpu_us",
    "longest_turn",
    "longest_turn_cpu",
    "ro_reason",
    "term",
    "journals",
    "expiration",
    "failure",
];

impl Standing {
    /// The part of `box.info` with that name, if it is one of the standing.
    fn part(&self, name: &str) -> Option<Value> {
        let Identity { instance, cluster, replica_id } = self.identity;
        Some(match name {
            "version" => PROTOCOL_VERSION.into(),
            "lycosa" => env!("CARGO_PKG_VERSION").into(),
            "id" => i64::from(replica_id).into(),
            "uuid" => instance.to_string().into(),
            "pid" => u64::from(self.pid).into(),
            "status" => self.status.into(),
            "ro" => self.is_read_only.into(),
            // The second that has begun counts, as in Tarantool.
            "uptime" => (self.uptime / 1_000_000 + 1).into(),
            "lsn" => self.lsn.into(),
            "signature" => self.durable_signature.into(),
            "pending_rows" => (self.signature - self.durable_signature).into(),
            "cluster" => Value::map([("uuid", Value::from(cluster.to_string()))]),
            "ro_reason" => self.read_only_reason?.into(),
            _ => return None,
        })
    }
}

impl Status {
    /// The part of `box.info` with that name, if it has a value at the moment.
    pub(super) fn part(&self, name: &str) -> Option<Value> {
        Some(match name {
            "vclock" => vclock_value(&self.durable_vclock),
            "replication" => self.replication.clone(),
            "replication_anon" => Value::map([("count", Value::from(self.anonymous_replicas))]),
            "election" => self.election.as_ref()?.value(),
            "masters" => self.masters.clone(),
            "memory" => memory_value(self),
            "net" => net_value(self),
            "checkpoint" => checkpoint(&self.checkpoint),
            "deadline_lag" => Value::map([("last_us", self.lag.last), ("longest_us", self.lag.longest)]),
            "longest_turns_us" => Value::map(self.longest_turns.iter().copied()),
            "longest_turns_cpu_us" => Value::map(self.longest_turns_cpu.iter().copied()),
            "longest_turn" => self.longest_turn.as_ref().map(LongestTurn::value).into(),
            "longest_turn_cpu" => self.longest_turn_cpu.as_ref().map(LongestTurn::value).into(),
            "term" => self.term.clone()?,
            "journals" => self.journals.clone(),
            "expiration" => expiration(&self.expiration),
            "failure" => self.failure.as_deref()?.into(),
            _ => self.standing.part(name)?,
        })
    }
}

impl Instance {
    /// The instance at this moment.
    pub fn status(&self) -> Status {
        let [longest_turn, longest_turn_cpu] = self.loop_time.longest_turns();
        Status {
            standing: self.standing(),
            failure: self.shard.trouble().map(str::to_owned),
            durable_vclock: self.durable_vclock().clone(),
            replication: self.shard.replication_value(),
            anonymous_replicas: self.shard.guests(),
            masters: self.shard.masters_value(),
            journals: self.shard.journals_value(),
            term: self.shard.term_value(),
            election: self.shard.election().cloned(),
            connections: self.front.connections.len(),
            waiting_calls: self.front.parked.len(),
            unread_output: self.front.unread_output(),
            max_output_total: self.front.settings.max_output_total,
            closed_for_output: self.front.output.closed(),
            unserved_input: self.front.connections.unserved(),
            max_input_total: self.front.settings.input_limit(),
            memory: self.shard.store().memory(),
            lua_memory: self.measures.programs.memory,
            received: self.measures.received,
            sent: self.measures.sent,
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

    /// The state, the names and the rows of the instance at this moment.
    pub fn standing(&self) -> Standing {
        let (identity, durable) = (self.shard.identity(), self.durable_vclock());
        Standing {
            status: self.state(),
            identity,
            pid: self.front.process.id,
            is_read_only: self.shard.is_read_only(),
            read_only_reason: self.read_only_reason(),
            uptime: self.shard.uptime(),
            signature: self.shard.journaling().signature(),
            durable_signature: durable.signature(),
            lsn: durable.get(identity.replica_id),
        }
    }

    pub(super) fn box_info(&self) -> Value {
        let status = self.status();
        Value::map(PARTS.into_iter().filter_map(|name| Some((name, status.part(name)?))))
    }

    /// One part of `box.info`, for monitors that poll nothing else.
    pub fn info_part(&self, name: &str) -> Option<Value> {
        self.standing().part(name).or_else(|| self.status().part(name))
    }

    fn state(&self) -> &'static str {
        match (self.shard.trouble(), self.is_orphan()) {
            (Some(_), _) => "failed",
            (None, true) => "orphan",
            (None, false) => "running",
        }
    }

    fn read_only_reason(&self) -> Option<&'static str> {
        let is_configured = self.shard.is_read_only_configured() || self.shard.identity().replica_id == 0;
        let reason = match (is_configured, self.shard.is_orphan()) {
            (true, _) => "config",
            (false, true) => "orphan",
            (false, false) => "fenced",
        };
        self.shard.is_read_only().then_some(reason)
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
            ("time", seconds(*at)),
            ("rows", (*rows).into()),
            ("bytes", (*bytes).into()),
            ("duration_us", (*duration).into()),
        ];
        shown.push(("last", Value::map(last)));
    }
    Value::map(shown)
}
