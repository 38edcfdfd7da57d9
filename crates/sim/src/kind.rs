//! The kinds of worlds, and what a world of any kind came to in numbers with names.

use std::time::Duration;

use clap::ValueEnum;

use crate::{
    ExpirationTotals, Failure, GroupTotals, MasterTotals, MemberTotals, ReplicaTotals, Report, Totals, Trace,
};

/// What a world is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Tubes, their clients and snapshots
    Queue,
    /// The same with operators, who find and change many tasks at once
    Steering,
    /// Spaces whose tuples expire
    Expiration,
    /// Instances that replicate each other while masters change
    Replicas,
    /// Two masters that follow each other, with conflicts
    Masters,
    /// A group of servers with faulty disks, links and clocks, and its operator
    Group,
    /// A group whose members are whole instances, with clients
    Members,
}

impl Kind {
    /// The kinds of which each seed has a world, in the order in which these run.
    pub const ALL: [Self; 7] = [
        Self::Queue,
        Self::Steering,
        Self::Expiration,
        Self::Replicas,
        Self::Masters,
        Self::Group,
        Self::Members,
    ];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Steering => "steering",
            Self::Expiration => "expiration",
            Self::Replicas => "replicas",
            Self::Masters => "masters",
            Self::Group => "group",
            Self::Members => "members",
        }
    }

    /// Runs the world of `seed` for `steps` steps.
    ///
    /// # Errors
    /// The first promise that was broken.
    pub fn run(self, seed: u64, steps: u64, trace: &mut Trace) -> Result<Summary, Failure> {
        match self {
            Self::Queue => crate::run(seed, steps, trace).map(|report| summary(&report, queue)),
            Self::Steering => {
                crate::run_steering(seed, steps, trace).map(|report| summary(&report, steering))
            }
            Self::Expiration => {
                crate::run_expiration(seed, steps, trace).map(|report| summary(&report, expiration))
            }
            Self::Replicas => {
                crate::run_replicas(seed, steps, trace).map(|report| summary(&report, replicas))
            }
            Self::Masters => crate::run_masters(seed, steps, trace).map(|report| summary(&report, masters)),
            Self::Group => crate::run_group(seed, steps, trace).map(|report| summary(&report, group)),
            Self::Members => crate::run_members(seed, steps, trace).map(|report| summary(&report, members)),
        }
    }
}

/// Numbers with their names, in the order in which they are printed. Equal names mean the same in every kind: `crashes`
/// are processes and machines that died, `losses` are crashes that took rows which the world's settings do not promise to
/// keep, `faults` disks that refused, `cuts` connections that were cut or swallowed bytes.
pub type Counts = Vec<(&'static str, u64)>;

/// What a world of any kind came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Stands for everything that happened: two runs of one seed have the same.
    pub hash: u64,
    /// How far the world's clock came.
    pub simulated: Duration,
    /// What happened.
    pub counts: Counts,
}

fn summary<T>(report: &Report<T>, counts: fn(&T) -> Counts) -> Summary {
    Summary { hash: report.hash, simulated: report.simulated, counts: counts(&report.totals) }
}

fn queue(totals: &Totals) -> Counts {
    let Totals {
        requests,
        replies,
        batches,
        crashes,
        stops,
        snapshots,
        snapshot_failures,
        crashes_writing,
        crashes_unreported,
        crashes_collecting,
        failures,
        losses,
        waits,
        leases,
        extended,
        again,
        keyed,
        kept,
        stale,
        jobs: _,
        changed: _,
        undone: _,
        pages: _,
    } = *totals;
    vec![
        ("crashes", crashes),
        ("losses", losses),
        ("faults", failures + snapshot_failures),
        ("crashes while a snapshot was written", crashes_writing),
        ("crashes before a snapshot was reported", crashes_unreported),
        ("crashes while old files were removed", crashes_collecting),
        ("stops", stops),
        ("snapshots", snapshots),
        ("requests", requests),
        ("replies", replies),
        ("leases told to clients", leases),
        ("stale tokens refused", stale),
        ("tasks in extended form", extended),
        ("takes answered again", again),
        ("puts with a key", keyed),
        ("puts answered as before", kept),
        ("batches", batches),
        ("turns that waited for more rows", waits),
    ]
}

fn steering(totals: &Totals) -> Counts {
    let Totals { jobs, changed, undone, pages, .. } = *totals;
    let mut counts = queue(totals);
    counts.extend([
        ("jobs", jobs),
        ("tasks changed by jobs", changed),
        ("tasks brought back", undone),
        ("pages of find", pages),
    ]);
    counts
}

fn expiration(totals: &ExpirationTotals) -> Counts {
    let ExpirationTotals {
        puts,
        expired,
        archived,
        starts,
        refused,
        failures,
        bounded,
        crashes,
        losses,
        stops,
    } = *totals;
    vec![
        ("crashes", crashes),
        ("losses", losses),
        ("stops", stops),
        ("puts", puts),
        ("tuples expired", expired),
        ("tuples archived", archived),
        ("tuples expired within a bound", bounded),
        ("tasks started", starts),
        ("calls refused", refused),
        ("slices failed", failures),
    ]
}

fn replicas(totals: &ReplicaTotals) -> Counts {
    let ReplicaTotals {
        switches,
        taken_back,
        failovers,
        rejoins,
        returns,
        joins,
        broken_joins,
        prunes,
        crashes,
        cuts,
        faults,
        replies,
        finished,
        leases,
        ended,
        stale,
        comparisons,
    } = *totals;
    vec![
        ("crashes", crashes),
        ("faults", faults),
        ("cuts", cuts),
        ("planned switches", switches),
        ("switches taken back", taken_back),
        ("fail-overs", failovers),
        ("rejoins over rows of their own", rejoins),
        ("rejoins over removed journals", returns),
        ("joins over a connection", joins),
        ("joins broken off", broken_joins),
        ("removals of journals", prunes),
        ("replies", replies),
        ("tasks finished", finished),
        ("leases told to clients", leases),
        ("tasks taken again after a lease", ended),
        ("stale tokens refused", stale),
        ("digests compared", comparisons),
    ]
}

fn masters(totals: &MasterTotals) -> Counts {
    let MasterTotals { transactions, stops, skipped, tubes, crashes, cuts } = *totals;
    vec![
        ("crashes", crashes),
        ("cuts", cuts),
        ("transactions", transactions),
        ("stops over a conflict", stops),
        ("contested keys that differ", skipped),
        ("tubes used by the other master", tubes),
    ]
}

fn group(totals: &GroupTotals) -> Counts {
    let GroupTotals {
        elections,
        confirmed,
        lost,
        reads,
        lost_reads,
        snapshots,
        installs,
        lost_snapshots,
        readings,
        joins,
        removals,
        removed_leaders,
        transfers,
        hand_overs,
        levels,
        crashes,
        torn_writes,
        faults,
        shortages,
        cuts,
        late_messages,
        stops,
    } = *totals;
    vec![
        ("crashes", crashes),
        ("faults", faults),
        ("cuts", cuts),
        ("crashes in a write", torn_writes),
        ("full disks", shortages),
        ("stops", stops),
        ("messages of old connections", late_messages),
        ("elections", elections),
        ("operations confirmed", confirmed),
        ("operations lost", lost),
        ("reads", reads),
        ("reads lost", lost_reads),
        ("snapshots", snapshots),
        ("snapshots installed", installs),
        ("snapshots lost on the way", lost_snapshots),
        ("readings of files", readings),
        ("joins", joins),
        ("removals", removals),
        ("removals of a leader", removed_leaders),
        ("hand-overs ordered", transfers),
        ("hand-overs of ailing leaders", hand_overs),
        ("rises of the level", levels),
    ]
}

fn members(totals: &MemberTotals) -> Counts {
    let MemberTotals {
        elections,
        puts,
        brief,
        ordered,
        finished,
        peeks,
        unknown,
        refused,
        replies,
        forwarded,
        loads,
        snapshots,
        sent_snapshots,
        lost_snapshots,
        joins,
        removals,
        transfers,
        hand_overs,
        crashes,
        torn_writes,
        faults,
        cuts,
        stops,
        shortages,
        comparisons,
    } = *totals;
    vec![
        ("crashes", crashes),
        ("faults", faults),
        ("cuts", cuts),
        ("crashes in a write", torn_writes),
        ("full disks", shortages),
        ("stops", stops),
        ("leaders", elections),
        ("puts", puts),
        ("puts in a temporary tube", brief),
        ("puts with a key", ordered),
        ("tasks finished", finished),
        ("looks at a leader", peeks),
        ("unknown outcomes", unknown),
        ("requests refused", refused),
        ("replies", replies),
        ("replies to requests that a member passed on", forwarded),
        ("data loaded anew", loads),
        ("snapshots", snapshots),
        ("snapshots sent", sent_snapshots),
        ("snapshots lost on the way", lost_snapshots),
        ("joins", joins),
        ("removals", removals),
        ("hand-overs ordered", transfers),
        ("hand-overs of ailing leaders", hand_overs),
        ("digests compared", comparisons),
    ]
}
