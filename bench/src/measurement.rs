//! The measurement of one run of one contender, and its text.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use lycosa_picture::{Panel, Scale, Series};
use serde_json::{Value as Json, json};

use crate::load::Outcome;
use crate::machine::ProcessorTime;
use crate::protocol::Operation;

/// Percentiles that are reported, with their names.
pub(crate) const PERCENTILES: [(&str, f64); 3] = [("p50", 50.0), ("p99", 99.0), ("p999", 99.9)];

/// One measured run.
#[derive(Debug)]
pub(crate) struct Measurement {
    pub(crate) outcome: Outcome,
    /// Processor time of the server; `None` if its process is not known.
    pub(crate) processor_time: Option<ProcessorTime>,
    /// The same by the names of the server's threads; empty if it is not known.
    pub(crate) threads: BTreeMap<String, ProcessorTime>,
    /// Processor time of the load generator.
    pub(crate) load_time: Duration,
    /// Processor time of all other programs and of the kernel's own threads. `None` if the server is not known.
    pub(crate) other_time: Option<Duration>,
    /// Bytes by which the server grew for each task, where tasks stayed.
    pub(crate) memory_per_round: Option<f64>,
}

impl Measurement {
    pub(crate) fn rounds_per_second(&self) -> f64 {
        self.outcome.rounds as f64 / self.outcome.elapsed.as_secs_f64()
    }

    /// Processor time of the server for each round, in microseconds.
    pub(crate) fn processor_time_per_round(&self) -> Option<f64> {
        self.processor_time.map(|time| self.per_round(time.total()))
    }

    /// Processor time of the threads of that name for each round, in microseconds: in user mode and in the kernel.
    pub(crate) fn thread_time_per_round(&self, name: &str) -> Option<(f64, f64)> {
        self.threads.get(name).map(|time| (self.per_round(time.user), self.per_round(time.kernel)))
    }

    /// How much of the server's processor time was spent in the kernel, from 0 to 1.
    pub(crate) fn kernel_share(&self) -> Option<f64> {
        let time = self.processor_time.filter(|time| !time.total().is_zero())?;
        Some(time.kernel.as_secs_f64() / time.total().as_secs_f64())
    }

    /// How much of a core the load generator used, from 0 to 1. Near 1 it may be what limited the rate.
    pub(crate) fn load_share(&self) -> f64 {
        self.load_time.as_secs_f64() / self.outcome.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// What to know before the rate is trusted.
    pub(crate) fn warning(&self) -> Option<String> {
        const BUSY: f64 = 0.9;
        let share = self.load_share();
        (share > BUSY).then(|| {
            format!(
                "the load generator used {:.0} % of its core: the server may be faster than it could ask",
                share * 100.0
            )
        })
    }

    /// How many cores all programs but server and load have used on average.
    pub(crate) fn other_cores(&self) -> Option<f64> {
        self.other_time.map(|time| time.as_secs_f64() / self.outcome.elapsed.as_secs_f64())
    }

    /// `time` divided by the rounds, in microseconds.
    fn per_round(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.outcome.rounds.max(1) as f64
    }

    /// Operations that happened, with their latencies.
    fn latencies(&self) -> impl Iterator<Item = (Operation, &Histogram<u64>)> {
        Operation::ALL.into_iter().zip(&self.outcome.latencies).filter(|(_, latencies)| !latencies.is_empty())
    }

    /// Lines for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{:.0} per second ({} in {:.2} s)",
            self.rounds_per_second(),
            self.outcome.rounds,
            self.outcome.elapsed.as_secs_f64()
        );
        if let Some(time) = self.processor_time_per_round() {
            text += &format!(", {time:.2} µs of the server's processor time for each");
        }
        if let Some(share) = self.kernel_share() {
            text += &format!(" ({:.0} % in the kernel)", share * 100.0);
        }
        if let Some(bytes) = self.memory_per_round {
            text += &format!(", {bytes:.0} bytes of its memory");
        }
        for (operation, latencies) in self.latencies() {
            text += &format!("\n{:<5}", operation.name());
            for (name, percentile) in PERCENTILES {
                let microseconds = latencies.value_at_percentile(percentile) as f64 / 1e3;
                text += &format!(" {name} {microseconds:>9.1} µs");
            }
        }
        text += &format!("\nthe load generator used {:.0} % of its core", self.load_share() * 100.0);
        text
    }

    /// The rate over the time, and the latencies by percentile, where there are any.
    pub(crate) fn panels(&self) -> Vec<Panel> {
        let course = &self.outcome.course;
        let rates = course.rates();
        let mut panels = Vec::new();
        if rates.len() > 1 {
            panels.push(Panel {
                title: format!("Rounds a second, by {} ms", course.slice().as_millis()),
                begin: "0 s".to_owned(),
                end: format!("{:.1} s", course.slice().as_secs_f64() * rates.len() as f64),
                scale: Scale::Shared,
                series: vec![Series {
                    name: "rounds".to_owned(),
                    points: rates.into_iter().map(Some).collect(),
                }],
                show: |rate| format!("{rate:.0}/s"),
            });
        }
        let by_percentile = |latencies: &Histogram<u64>| {
            let at = |percentile: u32| latencies.value_at_percentile(percentile.into()) as f64 / 1e3;
            (1..=99).map(|percentile| Some(at(percentile))).collect()
        };
        let latencies = self.latencies().map(|(operation, latencies)| Series {
            name: operation.name().to_owned(),
            points: by_percentile(latencies),
        });
        let latencies: Vec<Series> = latencies.collect();
        if !latencies.is_empty() {
            panels.push(Panel {
                title: "Latency by percentile".to_owned(),
                begin: "p1".to_owned(),
                end: "p99".to_owned(),
                scale: Scale::Shared,
                series: latencies,
                show: |micros| format!("{micros:.0} µs"),
            });
        }
        panels
    }

    pub(crate) fn json(&self) -> Json {
        let latencies = self.latencies().map(|(operation, latencies)| {
            let of_percentile = |(name, percentile): (&str, f64)| {
                (name.to_owned(), json!(latencies.value_at_percentile(percentile) as f64 / 1e3))
            };
            let values = PERCENTILES.into_iter().map(of_percentile).collect::<serde_json::Map<_, _>>();
            (operation.name().to_owned(), Json::Object(values))
        });
        let threads = self.threads.iter().map(|(name, time)| {
            let [user, kernel] = [time.user, time.kernel].map(|time| self.per_round(time));
            (name.clone(), json!({"user": user, "kernel": kernel}))
        });
        json!({
            "rounds": self.outcome.rounds,
            "seconds": self.outcome.elapsed.as_secs_f64(),
            "rounds_per_second": self.rounds_per_second(),
            "server_cpu_us_per_round": self.processor_time_per_round(),
            "server_kernel_share": self.kernel_share(),
            "server_threads_us_per_round": Json::Object(threads.collect()),
            "load_cpu_us_per_round": self.per_round(self.load_time),
            "load_share_of_core": self.load_share(),
            "cores_used_by_others": self.other_cores(),
            "bytes_per_task": self.memory_per_round,
            "course": {
                "seconds": self.outcome.course.slice().as_secs_f64(),
                "rounds_per_second": self.outcome.course.rates(),
            },
            "latency_us": Json::Object(latencies.collect()),
        })
    }
}
