//! The metrics of `docs/monitoring.md`, as Prometheus reads them.

use crate::autoscaler::Target;
use crate::exposition::{Exposition, Kind};
use crate::snapshot::{Forwarded, Histogram, Instance, Process, Snapshot, Tube};

/// Tubes with labels of their own, unless a setting says otherwise.
pub const DEFAULT_TUBES: usize = 100;

/// The label `tube` of the sum of all tubes without labels of their own. No tube has this name: it is no identifier of a space.
pub const OTHERS: &str = "\u{2026}others";

/// The extent of an exposition.
#[derive(Debug, Clone, Copy)]
pub enum Scope {
    /// The instance, this number of its busiest tubes, and the sum of all further ones.
    All(usize),
    /// The tubes of the snapshot, without the instance.
    Tubes,
}

/// Appends the text. `target` is that of the desired workers.
pub fn write(snapshot: &Snapshot, process: Option<&Process>, scope: Scope, target: Target, out: &mut String) {
    let exposition = &mut Exposition::new(out);
    let limit = match scope {
        Scope::All(limit) => limit,
        Scope::Tubes => usize::MAX,
    };
    let (tubes, others, sum) = snapshot.busiest(limit);
    let mut rows: Vec<(&str, &Tube)> = tubes.into_iter().map(|tube| (tube.name.as_str(), tube)).collect();
    if others > 0 {
        rows.push((OTHERS, &sum));
    }
    write_tubes(&rows, target, exposition);
    if let Scope::All(_) = scope {
        if let Some(instance) = &snapshot.instance {
            write_instance(instance, process, exposition);
            exposition.gauge("lycosa_tubes", "Tubes.", instance.queue.tubes as f64);
        }
        exposition.gauge(
            "lycosa_tubes_without_labels",
            "Tubes that are summed under one label.",
            others as f64,
        );
    }
    if let Some(process) = process {
        write_process(process, exposition);
    }
}

fn write_tubes(rows: &[(&str, &Tube)], target: Target, exposition: &mut Exposition<'_>) {
    let mut metric = exposition.metric(Kind::Gauge, "lycosa_tube_tasks", "Tasks by state.");
    for (name, tube) in rows {
        for (state, count) in tube.tasks.named() {
            metric.sample(&[("tube", name), ("state", state)], count as f64);
        }
    }
    gauges(exposition, rows, "lycosa_tube_bytes", "Bytes of all tasks.", |tube| Some(tube.bytes as f64));
    let help = "Tasks that the tube may hold, where it has a limit.";
    gauges(exposition, rows, "lycosa_tube_capacity_tasks", help, |tube| {
        tube.capacity.map(|tasks| tasks as f64)
    });
    let help = "Operations since the start.";
    let mut metric = exposition.metric(Kind::Counter, "lycosa_tube_operations_total", help);
    for (name, tube) in rows {
        for (operation, count) in tube.operations.named() {
            metric.sample(&[("tube", name), ("operation", operation)], count as f64);
        }
    }
    let help = "Calls that wait for tasks.";
    gauges(exposition, rows, "lycosa_tube_waiting_consumers", help, |tube| Some(tube.waiting_takes as f64));
    let help = "Calls that wait for free space.";
    gauges(exposition, rows, "lycosa_tube_waiting_producers", help, |tube| Some(tube.waiting_puts as f64));
    let help = "Time since the put of the oldest ready task.";
    gauges(exposition, rows, "lycosa_tube_oldest_ready_age_seconds", help, |tube| {
        tube.oldest_ready_age.or((tube.tasks.ready == 0).then_some(0.0))
    });
    let help = "Time since the take of the task that is taken longest.";
    gauges(exposition, rows, "lycosa_tube_oldest_taken_age_seconds", help, |tube| {
        tube.oldest_taken_age.or((tube.tasks.taken == 0).then_some(0.0))
    });
    histograms(exposition, rows, "lycosa_tube_wait_seconds", "From put to take.", |tube| tube.wait.as_ref());
    histograms(exposition, rows, "lycosa_tube_work_seconds", "From take to ack.", |tube| tube.work.as_ref());
    let help = "Taken tasks that became ready again, by the reason.";
    let mut metric = exposition.metric(Kind::Counter, "lycosa_tube_redeliveries_total", help);
    for (name, tube) in rows {
        for (reason, count) in tube.redeliveries.named() {
            metric.sample(&[("tube", name), ("reason", reason)], count as f64);
        }
    }
    let help = "Sub-queues with a task to take, and with a taken task.";
    let mut metric = exposition.metric(Kind::Gauge, "lycosa_tube_keys", help);
    for (name, tube) in rows {
        for (state, count) in [("ready", tube.ready_keys), ("taken", tube.busy_keys)] {
            metric.optional(&[("tube", name), ("state", state)], count.map(|count| count as f64));
        }
    }
    let help = "1: the tube hands out no tasks.";
    let is_tube = |name: &str| name != OTHERS;
    let mut metric = exposition.metric(Kind::Gauge, "lycosa_tube_paused", help);
    for (name, tube) in rows.iter().filter(|(name, _)| is_tube(name)) {
        metric.sample(&[("tube", name)], f64::from(u8::from(tube.paused)));
    }
    let help = "Workers that keep the oldest ready task below the target age.";
    let mut metric = exposition.metric(Kind::Gauge, "lycosa_tube_desired_workers", help);
    for (name, tube) in rows.iter().filter(|(name, _)| is_tube(name)) {
        metric.sample(&[("tube", name)], target.desired_workers(tube) as f64);
    }
}

fn gauges(
    exposition: &mut Exposition<'_>,
    rows: &[(&str, &Tube)],
    name: &'static str,
    help: &'static str,
    value: impl Fn(&Tube) -> Option<f64>,
) {
    let mut metric = exposition.metric(Kind::Gauge, name, help);
    rows.iter().for_each(|(name, tube)| metric.optional(&[("tube", name)], value(tube)));
}

fn histograms(
    exposition: &mut Exposition<'_>,
    rows: &[(&str, &Tube)],
    name: &'static str,
    help: &'static str,
    value: impl Fn(&Tube) -> Option<&Histogram>,
) {
    let mut metric = exposition.metric(Kind::Histogram, name, help);
    for (name, tube) in rows {
        value(tube).into_iter().for_each(|histogram| metric.histogram(&[("tube", name)], histogram));
    }
}

fn write_instance(instance: &Instance, process: Option<&Process>, exposition: &mut Exposition<'_>) {
    let help = "1, with what runs.";
    let id = instance.id.to_string();
    let labels = [("version", instance.version.as_str()), ("uuid", &instance.uuid), ("id", &id)];
    exposition.metric(Kind::Gauge, "lycosa_build_info", help).sample(&labels, 1.0);
    let mut metric = exposition.metric(Kind::Gauge, "lycosa_state", "1 at the state of the instance.");
    for state in ["running", "orphan", "failed"] {
        let is_it = f64::from(u8::from(instance.state == state));
        metric.sample(&[("state", state)], is_it);
    }
    let is_read_only = f64::from(u8::from(instance.read_only));
    exposition.gauge("lycosa_read_only", "1: the instance takes no writes.", is_read_only);
    exposition.gauge("lycosa_uptime_seconds", "Since the start.", instance.uptime);
    let mut metric = exposition.metric(Kind::Gauge, "lycosa_connections", "Open connections.");
    metric.sample(&[("door", "iproto")], instance.connections as f64);
    let http = process.and_then(|process| process.http_connections);
    metric.optional(&[("door", "http")], http.map(|connections| connections as f64));
    let help = "Connections with a queue session.";
    exposition.gauge("lycosa_sessions", help, instance.queue.sessions as f64);
    let help = "Requests that were answered; errors of calls that waited count as calls.";
    let mut metric = exposition.metric(Kind::Counter, "lycosa_requests_total", help);
    for (kind, requests) in &instance.requests {
        let ok = requests.total.saturating_sub(requests.errors);
        for (result, count) in [("ok", ok), ("error", requests.errors)] {
            metric.sample(&[("door", "iproto"), ("type", kind), ("result", result)], count as f64);
        }
    }
    let help = "Bytes of requests and replies.";
    let mut metric = exposition.metric(Kind::Counter, "lycosa_network_bytes_total", help);
    metric.sample(&[("direction", "received")], instance.received_bytes as f64);
    metric.sample(&[("direction", "sent")], instance.sent_bytes as f64);
    exposition.histogram("lycosa_turn_seconds", "Lengths of the loop's turns.", &instance.turn);
    let help = "From the hand-over of rows to the journal to their confirmation.";
    exposition.histogram("lycosa_journal_sync_seconds", help, &instance.journal_sync);
    write_files(instance, exposition);
    write_deadlines(instance, exposition);
    write_replication(instance, exposition);
    exposition.gauge("lycosa_memory_used_bytes", "Bytes of tuples and indexes.", instance.memory_used as f64);
    exposition.gauge("lycosa_memory_limit_bytes", "What these may take.", instance.memory_limit as f64);
    exposition.gauge("lycosa_lua_memory_bytes", "Bytes that Lua has allocated.", instance.lua_memory as f64);
    let help = "Calls, triggers and callbacks that ended with an error of Lua.";
    exposition.counter("lycosa_lua_errors_total", help, instance.lua_errors as f64);
}

/// The journal and checkpoints.
fn write_files(instance: &Instance, exposition: &mut Exposition<'_>) {
    let help = "Rows of the journal since the beginning of the data.";
    exposition.counter("lycosa_journal_rows_total", help, instance.journal_rows as f64);
    exposition.counter("lycosa_journal_bytes_total", "Bytes of the journal.", instance.journal_bytes as f64);
    let help = "Failures of the journal and losses of rows.";
    exposition.counter("lycosa_journal_errors_total", help, instance.journal_errors as f64);
    let checkpoint = &instance.checkpoint;
    exposition.gauge("lycosa_disk_bytes", "Bytes of snapshots and journals.", checkpoint.disk_used as f64);
    exposition.gauge("lycosa_disk_limit_bytes", "What these may take.", checkpoint.disk_bound as f64);
    let help = "Since the last checkpoint of this process.";
    let age = checkpoint.last.map(|last| (instance.now - last.time).max(0.0));
    exposition.metric(Kind::Gauge, "lycosa_checkpoint_age_seconds", help).optional(&[], age);
    let help = "Checkpoints that were given up.";
    exposition.counter("lycosa_checkpoint_failures_total", help, checkpoint.failures as f64);
}

/// Deadlines of tasks, and expiration.
fn write_deadlines(instance: &Instance, exposition: &mut Exposition<'_>) {
    let help = "From a deadline of a task to its effect.";
    exposition.histogram("lycosa_timer_lateness_seconds", help, &instance.queue.lateness);
    let help = "Tasks whose deadlines have passed without an effect yet.";
    exposition.gauge("lycosa_timers_overdue", help, instance.queue.overdue as f64);
    let expiration = &instance.expiration;
    let help = "Tuples that expiration tasks have looked at.";
    exposition.counter("lycosa_expiration_checked_total", help, expiration.scanned as f64);
    let help = "Tuples that expiration tasks have deleted.";
    exposition.counter("lycosa_expiration_expired_total", help, expiration.expired as f64);
    let help = "Since the deadline of the oldest tuple that is due.";
    exposition.gauge("lycosa_expiration_lag_seconds", help, expiration.lag_us as f64 / 1e6);
}

/// The masters of the instance, and its group.
fn write_replication(instance: &Instance, exposition: &mut Exposition<'_>) {
    let help = "Time by which the rows of a master come late.";
    let mut metric = exposition.metric(Kind::Gauge, "lycosa_replication_lag_seconds", help);
    for (id, peer) in &instance.replication {
        let lag = peer.upstream.as_ref().map(|upstream| upstream.lag);
        metric.optional(&[("peer", &id.to_string())], lag);
    }
    let help = "1: the rows of the master come.";
    let mut metric = exposition.metric(Kind::Gauge, "lycosa_replication_up", help);
    for (id, peer) in &instance.replication {
        let up = peer.upstream.as_ref().map(|upstream| f64::from(u8::from(upstream.status == "follow")));
        metric.optional(&[("peer", &id.to_string())], up);
    }
    if let Some(election) = &instance.election {
        let help = "1: this member of a group leads it.";
        exposition.gauge("lycosa_group_leads", help, f64::from(u8::from(election.state == "leader")));
        let help = "1: this member knows a leader of its group.";
        exposition.gauge("lycosa_group_has_leader", help, f64::from(u8::from(election.leader != 0)));
        exposition.gauge("lycosa_group_term", "The term of the group's election.", election.term as f64);
        exposition.gauge("lycosa_group_voters", "Members of the group that vote.", election.voters as f64);
        let help = "Entries that the group has confirmed and this member has not applied.";
        exposition.gauge("lycosa_group_behind_entries", help, election.behind as f64);
        let Forwarded { requests, repeated, unknown } = election.forwarded;
        let help = "Requests of this member's clients that were sent to a leader, repetitions included.";
        exposition.counter("lycosa_group_forwarded_requests_total", help, requests as f64);
        let help = "Further attempts at such requests, because a leader was gone or handed over.";
        exposition.counter("lycosa_group_repeated_requests_total", help, repeated as f64);
        let help = "Requests that this member answered as of unknown outcome, because their leader was gone.";
        exposition.counter("lycosa_group_unknown_outcomes_total", help, unknown as f64);
    }
}

fn write_process(process: &Process, exposition: &mut Exposition<'_>) {
    exposition.counter("process_cpu_seconds_total", "Time of the processor.", process.cpu_seconds);
    exposition.gauge("process_resident_memory_bytes", "Bytes in memory.", process.resident_bytes as f64);
    exposition.gauge("process_virtual_memory_bytes", "Bytes of address space.", process.virtual_bytes as f64);
    exposition.gauge("process_open_fds", "Open file descriptors.", process.open_files as f64);
    exposition.gauge("process_max_fds", "What they may be.", process.max_files as f64);
    exposition.gauge("process_start_time_seconds", "Since the epoch.", process.start_time);
}
