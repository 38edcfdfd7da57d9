//! Names of Tarantool's Grafana board, as far as they are true here.
//!
//! A board that was made for Tarantool shows a Lycosa then. Numbers that have no counterpart are left out: fibers, event loop
//! times, Vinyl.

use crate::exposition::{Exposition, Kind};
use crate::snapshot::Snapshot;

/// Appends the text.
pub fn write(snapshot: &Snapshot, out: &mut String) {
    let Some(instance) = &snapshot.instance else { return };
    let exposition = &mut Exposition::new(out);
    exposition.gauge("tnt_info_uptime", "Seconds since the start.", instance.uptime);
    exposition.gauge("tnt_info_memory_data", "Bytes of tuples.", instance.memory.data as f64);
    exposition.gauge("tnt_info_memory_index", "Bytes of indexes.", instance.memory.index as f64);
    exposition.gauge("tnt_info_memory_lua", "Bytes that Lua has allocated.", instance.lua_memory as f64);
    exposition.gauge("tnt_slab_quota_size", "Bytes that data may take.", instance.memory_limit as f64);
    exposition.gauge("tnt_slab_quota_used", "Bytes that data take.", instance.memory_used as f64);
    exposition.gauge("tnt_slab_arena_size", "Bytes reserved for tuples.", instance.memory_reserved as f64);
    exposition.gauge("tnt_slab_arena_used", "Bytes of tuples.", instance.memory.data as f64);
    exposition.counter("tnt_net_sent_total", "Bytes of replies.", instance.sent_bytes as f64);
    exposition.counter("tnt_net_received_total", "Bytes of requests.", instance.received_bytes as f64);
    exposition.gauge("tnt_net_connections_current", "Open connections.", instance.connections as f64);
    let help = "Connections since the start.";
    exposition.counter("tnt_net_connections_total", help, instance.connections_total as f64);
    let requests = instance.requests.values().map(|requests| requests.total).sum::<u64>();
    exposition.counter("tnt_net_requests_total", "Requests since the start.", requests as f64);
    let mut metric = exposition.metric(Kind::Counter, "tnt_stats_op_total", "Requests by type.");
    for (kind, requests) in &instance.requests {
        metric.sample(&[("operation", kind)], requests.total as f64);
    }
    let errors = instance.requests.values().map(|requests| requests.errors).sum::<u64>();
    metric.sample(&[("operation", "error")], errors as f64);
    let mut metric = exposition.metric(Kind::Gauge, "tnt_space_len", "Tasks of a tube's space.");
    for tube in &snapshot.tubes {
        let tasks = tube.tasks.named().into_iter().map(|(_, count)| count).sum::<u64>();
        metric.sample(&[("name", &tube.name), ("engine", "memtx")], tasks as f64);
    }
    let mut metric = exposition.metric(Kind::Gauge, "tnt_space_bsize", "Bytes of a tube's space.");
    for tube in &snapshot.tubes {
        metric.sample(&[("name", &tube.name), ("engine", "memtx")], tube.bytes as f64);
    }
    let mut metric = exposition.metric(Kind::Gauge, "tnt_replication_lsn", "LSN by instance.");
    for (id, peer) in &instance.replication {
        metric.sample(&[("id", &id.to_string()), ("type", "master")], peer.lsn as f64);
    }
    let mut metric =
        exposition.metric(Kind::Gauge, "tnt_replication_lag", "Seconds by which rows come late.");
    for (id, peer) in &instance.replication {
        let lag = peer.upstream.as_ref().map(|upstream| upstream.lag);
        metric.optional(&[("id", &id.to_string()), ("stream", "upstream")], lag);
    }
    let mut metric = exposition.metric(Kind::Gauge, "tnt_replication_status", "1: rows come.");
    for (id, peer) in &instance.replication {
        let up = peer.upstream.as_ref().map(|upstream| f64::from(u8::from(upstream.status == "follow")));
        metric.optional(&[("id", &id.to_string()), ("stream", "upstream")], up);
    }
    let is_read_only = f64::from(u8::from(instance.read_only));
    exposition.gauge("tnt_read_only", "1: the instance takes no writes.", is_read_only);
    let expiration = &instance.expiration;
    exposition.counter("expirationd_checked_count", "Tuples looked at.", expiration.scanned as f64);
    exposition.counter("expirationd_expired_count", "Tuples deleted.", expiration.expired as f64);
}
