//! The status as MessagePack, as `queue.status` returns it. Times are seconds, but for sums of histograms (µs).

use lycosa_tuple::mp;

use super::issue::Issue;
use super::rates::Rates;
use super::view::{QueueStatus, TubeStatus};
use crate::driver::{TubeOptions, heeds};
use crate::members::Members;
use crate::statistics::{Counters, Operation, Redelivery};

fn write_counters(counters: &Counters, map: &mut Members<'_>) {
    let mut operations = Members::wide(map.name("operations"));
    Operation::ALL.iter().for_each(|operation| operations.number(operation.name(), counters.get(*operation)));
    map.number("done", counters.done());
    let mut redeliveries = Members::wide(map.name("redeliveries"));
    Redelivery::ALL.iter().for_each(|why| redeliveries.number(why.name(), counters.redelivered(*why)));
}

fn write_rates(rates: &Rates, out: &mut Vec<u8>) {
    let mut map = Members::wide(out);
    for (name, rates) in [("puts", rates.puts), ("takes", rates.takes), ("acks", rates.acks)] {
        let out = map.name(name);
        mp::write_array(out, 3);
        rates.iter().for_each(|rate| mp::write_double(out, f64::from(*rate)));
    }
}

/// Writes the options of a tube; the defaults of puts only where the tube has deadlines.
fn write_options(options: &TubeOptions, has_deadlines: Option<bool>, out: &mut Vec<u8>) {
    let mut map = Members::wide(out);
    mp::write_bool(map.name("temporary"), options.temporary);
    if options.ready_buffer {
        map.text("storage_mode", "ready_buffer");
    }
    if has_deadlines == Some(true) {
        map.fraction("ttl", Some(options.ttl.duration()));
        map.fraction("ttr", Some(options.ttr.duration()));
        map.number("pri", options.pri);
    }
}

impl TubeStatus {
    /// Appends it as a map.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut map = Members::wide(out);
        map.text("name", &self.name);
        map.text("type", &self.kind);
        map.number("id", self.id);
        self.tasks.write(map.name("tasks"));
        write_counters(&self.counters, &mut map);
        map.number("bytes", self.bytes);
        map.optional("capacity", self.capacity);
        mp::write_bool(map.name("paused"), self.paused);
        if let Some(options) = &self.options {
            write_options(options, heeds(&self.kind, "ttl"), map.name("options"));
        }
        map.number("waiting_takes", self.waiting_takes.into());
        map.number("waiting_puts", self.waiting_puts.into());
        map.fraction("oldest_ready_age", self.oldest_ready_age);
        map.fraction("oldest_taken_age", self.oldest_taken_age);
        map.optional("ready_keys", self.ready_keys);
        map.optional("busy_keys", self.busy_keys);
        if let Some(seconds) = self.drain_seconds() {
            mp::write_double(map.name("drain"), seconds);
        }
        if let (Some(wait), Some(work), Some(rates)) = (&self.wait, &self.work, &self.rates) {
            wait.write(map.name("wait"));
            work.write(map.name("work"));
            write_rates(rates, map.name("rates"));
        }
        if !self.sub_queues.is_empty() {
            let out = map.name("sub_queues");
            mp::write_array(out, self.sub_queues.len() as u32);
            for sub_queue in &self.sub_queues {
                let mut map = Members::wide(out);
                mp::write_str(map.name("name"), &sub_queue.name);
                sub_queue.tasks.write(map.name("tasks"));
            }
        }
        if let Some(history) = &self.history {
            history.write(map.name("history"));
        }
        if let Some(issues) = &self.issues {
            Issue::write_all(issues, map.name("issues"));
        }
    }
}

impl QueueStatus {
    /// Appends it as a map; its history only if it is asked for.
    pub fn write(&self, history: bool, out: &mut Vec<u8>) {
        let mut map = Members::wide(out);
        map.number("tubes", self.tubes as u64);
        self.tasks.write(map.name("tasks"));
        write_counters(&self.counters, &mut map);
        map.number("sessions", self.sessions as u64);
        map.number("waiting", self.waiting as u64);
        self.wait.write(map.name("wait"));
        self.work.write(map.name("work"));
        self.lateness.write(map.name("lateness"));
        map.number("overdue", self.overdue);
        write_rates(&self.rates, map.name("rates"));
        if history {
            self.history.write(map.name("history"));
        }
    }
}
