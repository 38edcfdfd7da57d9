//! A comparison: contenders under workloads, in rounds.
//!
//! Every round runs each contender once under each workload, so that a disturbance of the machine disturbs
//! all of them. Of several rounds the median counts. A ratio is formed in each round between runs that are neighbours
//! in time; the report has its median and its extremes.

use std::collections::BTreeSet;
use std::time::SystemTime;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value as Json, json};

use crate::contender::{Contender, Program};
use crate::machine::Machine;
use crate::measurement::{Measurement, PERCENTILES};
use crate::program::Files;
use crate::protocol::Operation;
use crate::trial::{Ground, Length};
use crate::workload::Workload;

/// The runs of one contender under one workload, one for each round.
#[derive(Debug)]
pub(crate) struct ContenderRuns {
    /// With the type of tube that the workload is about.
    pub(crate) contender: Contender,
    /// The error's text for a run that failed.
    pub(crate) runs: Vec<Result<Measurement, String>>,
}

/// A workload and its contender.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) workload: Workload,
    pub(crate) entries: Vec<ContenderRuns>,
}

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) machine: Machine,
    /// Each program with what it says about its version.
    pub(crate) versions: Vec<(&'static str, String)>,
    /// Programs that could not take part, with the reasons.
    pub(crate) skipped: Vec<(&'static str, String)>,
    pub(crate) groups: Vec<Group>,
    rounds: usize,
}

/// Contenders that take part, and contenders that cannot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Field {
    pub(crate) contenders: Vec<Contender>,
    /// Programs with the reasons.
    pub(crate) skipped: Vec<(&'static str, String)>,
}

impl Field {
    /// Of these contenders the ones that can be started.
    pub(crate) fn of(contenders: impl IntoIterator<Item = Contender>, files: &Files) -> Self {
        let mut field = Self::default();
        for contender in contenders {
            match contender.program.check(files) {
                Ok(()) => field.contenders.push(contender),
                Err(error) => {
                    let skipped = (contender.program.shown(), format!("{error:#}"));
                    if !field.skipped.contains(&skipped) {
                        field.skipped.push(skipped);
                    }
                }
            }
        }
        field
    }
}

/// The middle of some values, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

impl Spread {
    /// `None` without a value.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values = values.collect::<Vec<_>>();
        values.sort_by(f64::total_cmp);
        let (least, greatest) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, least, greatest })
    }

    fn json(self) -> Json {
        json!({"median": self.median, "least": self.least, "greatest": self.greatest})
    }
}

impl ContenderRuns {
    fn successes(&self) -> impl Iterator<Item = &Measurement> {
        self.runs.iter().flatten()
    }

    /// The first failure's text.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| run.as_ref().err()).map(String::as_str)
    }

    /// Rounds for each second.
    pub(crate) fn rate(&self) -> Option<Spread> {
        Spread::of(self.successes().map(Measurement::rounds_per_second))
    }

    /// Microseconds of the server's processor time for each round.
    pub(crate) fn processor_time(&self) -> Option<Spread> {
        Spread::of(self.successes().filter_map(Measurement::processor_time_per_round))
    }

    /// Microseconds of each round in user mode and in the kernel, by the names of the server's threads.
    pub(crate) fn threads(&self) -> Vec<(String, Spread, Spread)> {
        let names = self.successes().flat_map(|run| run.threads.keys()).collect::<BTreeSet<_>>();
        let of = |name: &String| {
            let times = || self.successes().filter_map(|run| run.thread_time_per_round(name));
            let user = Spread::of(times().map(|(user, _)| user))?;
            Some((name.clone(), user, Spread::of(times().map(|(_, kernel)| kernel))?))
        };
        names.into_iter().filter_map(of).collect()
    }

    /// How much of the server's processor time was spent in the kernel.
    pub(crate) fn kernel_share(&self) -> Option<Spread> {
        Spread::of(self.successes().filter_map(Measurement::kernel_share))
    }

    /// How much of a core the load generator used at the most.
    pub(crate) fn greatest_load_share(&self) -> Option<f64> {
        Some(Spread::of(self.successes().map(Measurement::load_share))?.greatest)
    }

    /// Bytes for each task that stays.
    pub(crate) fn memory(&self) -> Option<Spread> {
        Spread::of(self.successes().filter_map(|run| run.memory_per_round))
    }

    /// What to know before the rates are trusted.
    pub(crate) fn warning(&self) -> Option<String> {
        self.successes().find_map(Measurement::warning)
    }

    /// Percentiles of all runs together, in microseconds; `None` for an operation that did not happen.
    pub(crate) fn latencies(&self, operation: Operation) -> Option<[f64; PERCENTILES.len()]> {
        let mut all: Option<Histogram<u64>> = None;
        for run in self.successes() {
            let latencies = &run.outcome.latencies[operation as usize];
            match &mut all {
                // All histograms have the same bounds, so that they can be added.
                Some(all) => all.add(latencies).ok()?,
                None => all = Some(latencies.clone()),
            }
        }
        let all = all.filter(|all| !all.is_empty())?;
        Some(PERCENTILES.map(|(_, percentile)| all.value_at_percentile(percentile) as f64 / 1e3))
    }

    /// `metric` of this entry divided by that of `other`, round by round.
    fn ratio(&self, other: &Self, metric: impl Fn(&Measurement) -> Option<f64>) -> Option<Spread> {
        let of_round = |(ours, theirs): (&Result<Measurement, _>, &Result<Measurement, _>)| {
            Some(metric(ours.as_ref().ok()?)? / metric(theirs.as_ref().ok()?)?)
        };
        Spread::of(self.runs.iter().zip(&other.runs).filter_map(of_round).filter(|ratio| ratio.is_finite()))
    }

    fn json(&self) -> Json {
        let latencies = Operation::ALL.into_iter().filter_map(|operation| {
            let values = PERCENTILES.into_iter().zip(self.latencies(operation)?);
            let values = values.map(|((name, _), value)| (name.to_owned(), json!(value))).collect();
            Some((operation.name().to_owned(), Json::Object(values)))
        });
        json!({
            "contender": self.contender.to_string(),
            "rounds_per_second": self.rate().map(Spread::json),
            "server_cpu_us_per_round": self.processor_time().map(Spread::json),
            "server_kernel_share": self.kernel_share().map(Spread::json),
            "load_share_of_core": self.greatest_load_share(),
            "bytes_per_task": self.memory().map(Spread::json),
            "latency_us": Json::Object(latencies.collect()),
            "failure": self.failure(),
            "runs": self.successes().map(Measurement::json).collect::<Vec<_>>(),
        })
    }
}

impl Group {
    fn entry(&self, contender: Contender) -> Option<&ContenderRuns> {
        self.entries.iter().find(|entry| entry.contender == contender)
    }

    /// The entry of Lycosa with which a peer is compared: of the same durability, and of the same type of tube if the
    /// peer has one; else of the type that does what the peer does, if it takes part.
    fn counterpart(&self, peer: Contender) -> Option<&ContenderRuns> {
        if matches!(peer.program, Program::Lycosa(_)) {
            return None;
        }
        let wanted = Contender { program: Program::Lycosa(peer.comparable_tube()), ..peer };
        let other = |entry: &&ContenderRuns| {
            matches!(entry.contender.program, Program::Lycosa(_))
                && entry.contender.durability == peer.durability
        };
        self.entry(wanted).or_else(|| self.entries.iter().find(other).filter(|_| peer.tube_type().is_none()))
    }

    /// How many times as fast as `peer` its counterpart is.
    pub(crate) fn advantage_over(&self, peer: &ContenderRuns) -> Option<Spread> {
        let ours = self.counterpart(peer.contender)?;
        ours.ratio(peer, |run| Some(run.rounds_per_second()))
    }

    /// How many times as much processor time a round takes of `peer` as of its counterpart.
    pub(crate) fn cost_of(&self, peer: &ContenderRuns) -> Option<Spread> {
        let ours = self.counterpart(peer.contender)?;
        peer.ratio(ours, Measurement::processor_time_per_round)
    }
}

impl Comparison {
    /// Holds all trials. `said` hears of each, before it begins.
    pub(crate) fn hold(
        ground: &Ground,
        field: &Field,
        workloads: Vec<Workload>,
        rounds: usize,
        length: Length,
        mut said: impl FnMut(&str),
    ) -> Result<Self> {
        let contenders = &field.contenders;
        let mut groups =
            workloads.into_iter().map(|workload| Group::new(workload, contenders)).collect::<Vec<_>>();
        groups.retain(|group| !group.entries.is_empty());
        ensure!(!groups.is_empty(), "no contender can do any of the workloads");
        for round in 1..=rounds {
            for Group { workload, entries } in &mut groups {
                for ContenderRuns { contender, runs } in entries {
                    said(&format!("round {round} of {rounds}, {}: {contender}", workload.name));
                    let run = ground.hold_trial(*contender, workload, length);
                    let run = run.map_err(|error| format!("{error:#}"));
                    if let Err(error) = &run {
                        said(&format!("  failed: {error}"));
                    }
                    runs.push(run);
                }
            }
        }
        let mut versions = Vec::new();
        for contender in contenders {
            let version = contender.program.version(&ground.files)?;
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        Ok(Self { machine: Machine::this()?, versions, skipped: field.skipped.clone(), groups, rounds })
    }

    /// The cores that others used in the runs: an idle machine has next to none.
    pub(crate) fn other_cores(&self) -> Option<Spread> {
        let entries = self.groups.iter().flat_map(|group| &group.entries);
        Spread::of(entries.flat_map(ContenderRuns::successes).filter_map(Measurement::other_cores))
    }

    /// How far the rates of one contender lie apart, in its median: what the machine does to a number.
    pub(crate) fn noise(&self) -> Option<Spread> {
        let entries = self.groups.iter().flat_map(|group| &group.entries);
        let rates = entries.filter(|entry| entry.runs.len() > 1).filter_map(ContenderRuns::rate);
        Spread::of(rates.map(|rate| (rate.greatest - rate.least) / rate.median))
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    /// Runs that failed.
    pub(crate) fn failures(&self) -> usize {
        let entries = self.groups.iter().flat_map(|group| &group.entries);
        entries.flat_map(|entry| &entry.runs).filter(|run| run.is_err()).count()
    }

    /// For each workload with a baseline, for each contender of both: the cost of a round compared with the baseline's.
    pub(crate) fn costs(&self) -> Vec<Cost<'_>> {
        let mut costs = Vec::new();
        for group in &self.groups {
            let Some(name) = group.workload.baseline else { continue };
            let Some(baseline) = self.groups.iter().find(|group| group.workload.name == name) else {
                continue;
            };
            for entry in &group.entries {
                let Some(before) = baseline.entry(entry.contender) else { continue };
                let rate = entry.ratio(before, |run| Some(run.rounds_per_second()));
                let cost = entry.ratio(before, Measurement::processor_time_per_round);
                if let Some((rate, cost)) = rate.zip(cost) {
                    let (workload, contender) = (&group.workload, entry.contender);
                    costs.push(Cost { workload, baseline: name, contender, cost, rate });
                }
            }
        }
        costs
    }

    pub(crate) fn json(&self) -> Json {
        let seconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_secs());
        let groups = self.groups.iter().map(|group| {
            let advantages = group
                .entries
                .iter()
                .filter_map(|entry| Some((entry.contender.to_string(), group.advantage_over(entry)?.json())));
            let costs = group
                .entries
                .iter()
                .filter_map(|entry| Some((entry.contender.to_string(), group.cost_of(entry)?.json())));
            json!({
                "workload": group.workload.name,
                "about": group.workload.about,
                "contenders": group.entries.iter().map(ContenderRuns::json).collect::<Vec<_>>(),
                "lycosa_times_as_fast_as": advantages.collect::<serde_json::Map<_, _>>(),
                "server_cpu_in_that_of_lycosa": costs.collect::<serde_json::Map<_, _>>(),
            })
        });
        let costs = self.costs().into_iter().map(|cost| {
            json!({
                "workload": cost.workload.name,
                "baseline": cost.baseline,
                "contender": cost.contender.to_string(),
                "server_cpu": cost.cost.json(),
                "rounds_per_second": cost.rate.json(),
            })
        });
        let versions = self.versions.iter().map(|(name, version)| ((*name).to_owned(), json!(version)));
        let skipped = self.skipped.iter().map(|(name, reason)| ((*name).to_owned(), json!(reason)));
        json!({
            "unix_time": seconds,
            "machine": self.machine.json(),
            "versions": versions.collect::<serde_json::Map<_, _>>(),
            "skipped": skipped.collect::<serde_json::Map<_, _>>(),
            "rounds": self.rounds,
            "cores_used_by_others": self.other_cores().map(Spread::json),
            "groups": groups.collect::<Vec<_>>(),
            "compared_with_baseline": costs.collect::<Vec<_>>(),
        })
    }
}

/// What a round costs the server under a workload, compared with another workload.
#[derive(Debug)]
pub(crate) struct Cost<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) baseline: &'static str,
    pub(crate) contender: Contender,
    /// Of the server's processor time for each round.
    pub(crate) cost: Spread,
    /// Of rounds for each second.
    pub(crate) rate: Spread,
}

impl Group {
    /// Nothing measured yet; only of those contenders that can do the workload.
    fn new(workload: Workload, contenders: &[Contender]) -> Self {
        let mut entries: Vec<ContenderRuns> = Vec::new();
        for contender in contenders.iter().filter_map(|contender| workload.applied_to(*contender)) {
            if !entries.iter().any(|entry| entry.contender == contender) {
                entries.push(ContenderRuns { contender, runs: Vec::new() });
            }
        }
        Self { workload, entries }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::load::{Outcome, Shape};
    use crate::machine::ProcessorTime;
    use crate::protocol::iproto::TubeType;
    use crate::workload::Need;

    fn run(rounds: u64, processor_time: u64) -> Result<Measurement, String> {
        let outcome = Outcome::without_requests(rounds, Duration::from_secs(1)).unwrap();
        let processor_time =
            Some(ProcessorTime { user: Duration::from_millis(processor_time), kernel: Duration::ZERO });
        Ok(Measurement {
            outcome,
            processor_time,
            threads: BTreeMap::new(),
            load_time: Duration::ZERO,
            other_time: None,
            memory_per_round: None,
        })
    }

    fn group(contenders: &[(&str, &[Result<Measurement, String>])]) -> Group {
        let shape = Shape { connections: 1, depth: 1 };
        let entries = contenders.iter().map(|(name, runs)| ContenderRuns {
            contender: name.parse().unwrap(),
            runs: runs.iter().map(|run| run.as_ref().map(copy).map_err(Clone::clone)).collect(),
        });
        Group { workload: Workload::cycles("x", shape, 100), entries: entries.collect() }
    }

    fn copy(run: &Measurement) -> Measurement {
        let outcome = Outcome::without_requests(run.outcome.rounds, run.outcome.elapsed).unwrap();
        let threads = run.threads.clone();
        Measurement { outcome, threads, ..*run }
    }

    #[test]
    fn medians_and_extremes() {
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter()).unwrap();
        assert_eq!(spread, Spread { median: 2.0, least: 1.0, greatest: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0].into_iter()).unwrap().median, 2.5);
        assert_eq!(Spread::of(std::iter::empty()), None);
    }

    #[test]
    fn ratios_are_formed_round_by_round() {
        let group = group(&[
            ("lycosa:fifottl:fsync", &[run(300, 3), run(100, 1)]),
            ("lycosa:fifo:fsync", &[run(500, 3), run(500, 1)]),
            ("redis-list:fsync", &[run(150, 1), run(25, 1)]),
            ("tarantool:fifo:fsync", &[run(50, 1), Err("x".to_owned())]),
            ("nats:write", &[run(1, 1), run(1, 1)]),
        ]);
        let advantage = |at: usize| group.advantage_over(&group.entries[at]);
        assert_eq!(advantage(0), None);
        assert_eq!(advantage(2).unwrap(), Spread { median: 3.0, least: 2.0, greatest: 4.0 });
        assert_eq!(advantage(3).unwrap(), Spread { median: 10.0, least: 10.0, greatest: 10.0 });
        let cost = group.cost_of(&group.entries[2]).unwrap();
        assert_eq!(
            [cost.least, cost.median, cost.greatest].map(|ratio| (ratio * 3.0).round()),
            [2.0, 7.0, 12.0]
        );
        assert_eq!(advantage(4), None);
        assert_eq!(group.entries[3].failure(), Some("x"));
    }

    #[test]
    fn contenders_that_become_the_same_run_once() {
        let workload =
            Workload { tube_type: Some(TubeType::Utube), need: Need::Tubes, ..group(&[]).workload };
        let contenders = ["lycosa:fifo", "lycosa:fifottl", "redis-list"].map(|name| name.parse().unwrap());
        let group = Group::new(workload, &contenders);
        let names = group.entries.iter().map(|entry| entry.contender.to_string()).collect::<Vec<_>>();
        assert_eq!(names, ["lycosa:utube:fsync"]);
    }
}
