//! `box.info`: who this instance is and how it is.

use lycosa_iproto::vclock::Vclock;
use lycosa_tuple::value::Value;

use crate::{CheckpointStatus, Instance, Lag, LastCheckpoint, LongestTurn, PROTOCOL_VERSION, Status};

/// Expiration tasks in a few numbers.
fn expiration(summary: &lycosa_expiration::Summary) -> Value {
    Value::map([
        ("tasks", Value::from(summary.tasks)),
        ("behind", summary.behind.into()),
        ("failing", summary.failing.into()),
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

/// What waits for the clients and from them, beside its bounds: bytes of replies that nobody has read yet, and of requests
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

impl Instance {
    /// The instance at this moment.
    pub fn status(&self) -> Status {
        let memory = self.data.store().memory();
        let failure = self.data.failure.clone().or_else(|| self.data.displaced.clone());
        let [longest_turn, longest_turn_cpu] = self.loop_time.longest_turns();
        Status {
            status: match (&failure, self.is_orphan()) {
                (Some(_), _) => "failed",
                (None, true) => "orphan",
                (None, false) => "running",
            },
            failure,
            is_read_only: self.data.read_only,
            uptime: self.data.now.saturating_sub(self.started_at),
            signature: self.data.journaling.signature(),
            durable_signature: self.data.journaling.durable_vclock().signature(),
            connections: self.connections.len(),
            waiting_calls: self.parked.len(),
            unread_output: self.unread_output(),
            max_output_total: self.settings.max_output_total,
            closed_for_output: self.output.closed(),
            incomplete_input: self.connections.incomplete(),
            max_input_total: self.settings.input_limit(),
            memory_used: memory.used,
            memory_limit: memory.limit,
            checkpoint: self.checkpoint_status(),
            lag: self.lag,
            longest_turns: self.loop_time.longest(),
            longest_turns_cpu: self.loop_time.longest_cpu(),
            longest_turn,
            longest_turn_cpu,
            expiration: self.expiration_summary(),
            requests: self.counts.clone(),
        }
    }

    pub(super) fn box_info(&self) -> Value {
        let status = self.status();
        // Only what is durable: whoever promotes a replica by its vclock must not count on rows that a crash would take.
        let durable = self.durable_vclock();
        let vclock = vclock_value(durable);
        let own = i64::from(self.identity.replica_id);
        let lsn = durable.get(self.identity.replica_id);
        let uuid = self.identity.instance.to_string();
        let Lag { last, longest } = status.lag;
        let mut info = vec![
            ("version", Value::from(PROTOCOL_VERSION)),
            ("lycosa", Value::from(env!("CARGO_PKG_VERSION"))),
            ("id", own.into()),
            ("uuid", uuid.into()),
            ("pid", u64::from(self.process.id).into()),
            ("status", status.status.into()),
            ("ro", status.is_read_only.into()),
            ("uptime", (status.uptime / 1_000_000).into()),
            ("lsn", lsn.into()),
            ("signature", status.durable_signature.into()),
            ("vclock", vclock),
            ("pending_rows", (status.signature - status.durable_signature).into()),
            ("cluster", Value::map([("uuid", Value::from(self.identity.cluster.to_string()))])),
            ("replication", self.replication_value()),
            ("replication_anon", Value::map([("count", Value::from(self.guests()))])),
            ("masters", self.masters_value()),
            ("memory", self.box_info_memory()),
            ("net", net_value(&status)),
            ("checkpoint", checkpoint(&status.checkpoint)),
            ("deadline_lag", Value::map([("last_us", Value::from(last)), ("longest_us", longest.into())])),
            ("longest_turns_us", Value::map(status.longest_turns)),
            ("longest_turns_cpu_us", Value::map(status.longest_turns_cpu)),
            ("longest_turn", longest_turn(status.longest_turn.as_ref())),
            ("longest_turn_cpu", longest_turn(status.longest_turn_cpu.as_ref())),
        ];
        let is_configured = self.replication.is_read_only_configured || own == 0;
        let reason = if is_configured { "config" } else { "orphan" };
        if status.is_read_only {
            info.push(("ro_reason", reason.into()));
        }
        info.push(("journals", self.journals_value()));
        info.push(("expiration", expiration(&status.expiration)));
        if let Some(failure) = status.failure {
            info.push(("failure", failure.into()));
        }
        Value::map(info)
    }

    pub(super) fn box_info_memory(&self) -> Value {
        let memory = self.data.store().memory();
        Value::map([("data", memory.tuples), ("index", memory.indexes), ("limit", memory.limit)])
    }

    pub(super) fn box_slab_info(&self) -> Value {
        let memory = self.data.store().memory();
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

pub(crate) fn vclock_value(vclock: &Vclock) -> Value {
    Value::Map(vclock.iter().map(|(id, lsn)| (u64::from(id).into(), lsn.into())).collect())
}

/// What `box.info().checkpoint` shows: sizes in bytes, spans in microseconds, the time in seconds.
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
