//! Worlds in which a promise was broken once, by the server or in the eyes of a checker that was wrong: the crate's documentation
//! says which. Each is run again by `lycosa-sim --kept`, because a fault comes back where it was.

use std::num::NonZero;

use crate::{Broken, Kind, Order, Until, run_order};

/// A world and what it is kept for.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// What the world is about.
    pub kind: Kind,
    /// Its seed.
    pub seed: u64,
    /// Its steps.
    pub steps: u64,
    /// What happens in it.
    pub why: &'static str,
    /// It was found before half of the worlds of its kind had leases, workers, or jobs that name tasks or reschedule them. Its seed
    /// must draw none of them: they would lead the world elsewhere.
    pub is_former: bool,
}

const fn queue(seed: u64, steps: u64, why: &'static str) -> Kept {
    Kept { kind: Kind::Queue, seed, steps, why, is_former: false }
}

const fn expiration(seed: u64, steps: u64, why: &'static str) -> Kept {
    Kept { kind: Kind::Expiration, seed, steps, why, is_former: false }
}

const fn steering(seed: u64, steps: u64, why: &'static str) -> Kept {
    Kept { kind: Kind::Steering, seed, steps, why, is_former: false }
}

const fn replicas(seed: u64, steps: u64, why: &'static str) -> Kept {
    Kept { kind: Kind::Replicas, seed, steps, why, is_former: false }
}

const fn group(seed: u64, steps: u64, why: &'static str) -> Kept {
    Kept { kind: Kind::Group, seed, steps, why, is_former: false }
}

const fn members(seed: u64, steps: u64, why: &'static str) -> Kept {
    Kept { kind: Kind::Members, seed, steps, why, is_former: false }
}

const fn former(kept: Kept) -> Kept {
    Kept { is_former: true, ..kept }
}

const CORRECTED: &str =
    "a start corrects next_event of buried tasks, and of ready ones in tubes without sub-queues";
const REFUSED: &str =
    "a row whose task is dead, which a waiting take would remove at once, is refused for memory";
const AT_REST: &str = "two replicas, both too far behind the master, waited for each other";
const TWICE: &str = "an instance ahead of its master: LSNs were handed out twice";

/// All kept worlds.
pub const ALL: &[Kept] = &[
    former(queue(2_055_162_165, 1_500, "a checker was wrong")),
    former(queue(2_055_162_963, 1_500, "a checker was wrong")),
    former(queue(1_000_107, 1_500, "a checker was wrong")),
    former(queue(2_226_660_278, 2_349, "a checker was wrong")),
    former(queue(307_255_977, 3_000, "a checker was wrong")),
    former(queue(3_428_903_472, 2_400, "a checker was wrong")),
    former(queue(770_065, 3_000, CORRECTED)),
    former(queue(770_069, 3_000, CORRECTED)),
    former(queue(770_129, 3_000, CORRECTED)),
    former(queue(770_350, 3_000, CORRECTED)),
    former(queue(
        770_169,
        3_000,
        "the newest snapshot rots where the machine died after the xlog of the one before was removed",
    )),
    former(queue(51_000_720, 3_000, "dead tasks make room for a put that is served before the next take")),
    former(queue(51_000_794, 3_000, REFUSED)),
    former(queue(62_000_101, 12_000, REFUSED)),
    former(queue(
        85_000_466,
        3_000,
        "a session with more tasks than one step of the queue releases ends while calls wait",
    )),
    former(queue(424_287, 3_000, "a checker was wrong")),
    former(steering(108, 1_500, "a tick told no deadline of tasks that a job had moved in it")),
    former(steering(118, 1_500, "a checker was wrong")),
    former(steering(164, 1_500, "a checker was wrong")),
    steering(
        4_060_081_591,
        2_947,
        "a new tube had the id of a dropped one, and with it the dropped one's jobs",
    ),
    steering(
        502_005_720,
        1_024,
        "what was deleted before a tube was made anew came back when the clock was put back",
    ),
    steering(3_955_460_053, 2_367, "a page looked at more than 64 tasks; a checker was wrong"),
    replicas(
        2_650_968_511,
        1_146,
        "the answer of a former master came after the next master's about the same task; a checker was wrong",
    ),
    expiration(2_077_501_664, 2_818, "a pass took longer the more of its tuples it had deleted"),
    expiration(968_293_197, 4_034, "a start panicked over a file that ends with the first byte of a header"),
    former(replicas(819_827_553, 2_142, "a client was wrong")),
    former(replicas(51_000_334, 3_000, AT_REST)),
    former(replicas(51_000_434, 3_000, AT_REST)),
    former(replicas(
        51_000_769,
        3_000,
        "a master that had to skip a long journal was given up by the instance that joined it",
    )),
    former(replicas(62_000_144, 12_000, AT_REST)),
    former(replicas(51_000_390, 3_000, TWICE)),
    former(replicas(51_000_491, 3_000, TWICE)),
    former(replicas(51_000_668, 3_000, TWICE)),
    former(replicas(
        51_000_583,
        3_000,
        "replication stopped at a duplicate key, whose row an instance ahead of its master had written",
    )),
    former(replicas(71_000_964, 3_000, TWICE)),
    replicas(
        1_053_935_238,
        12_000,
        "an older lease was released while a session acknowledged the task; a checker was wrong",
    ),
    replicas(
        1_180_107_537,
        532,
        "a master died before the operator had a replica with a void row join again; the checker took the replica for a candidate",
    ),
    replicas(
        1_460_237_447,
        3_000,
        "an older lease was released while the task was acknowledged; a checker was wrong",
    ),
    former(replicas(251_630_653, 2_867, "a promoted replica had rows that its former master has not")),
    group(
        2_245_519_910,
        3_000,
        "a member's answer to a snapshot was lost, and its leader sent it nothing more",
    ),
    group(
        45,
        1_444,
        "an entry that gave way in its proposer's memory was confirmed after all; a checker was wrong",
    ),
    group(
        2_805,
        3_000,
        "a proposal that should show that the group is at rest was refused by a leader that handed over; a checker was wrong",
    ),
    group(
        363_646_787,
        3_000,
        "a newer snapshot arrived while the disk had yet to install an older one; the simulated disk lost the older file",
    ),
    group(
        2_606_138_854,
        3_000,
        "a newer snapshot arrived before the node had asked for an older one to be installed, and the node refused the newer; \
         the simulated disk had lost the older file",
    ),
    group(
        149_527_292,
        550,
        "a leader that did not know of its successor gave a new server a number that the successor had given; a checker was wrong",
    ),
    group(
        205_346_904,
        1_006,
        "a state of the group was written again after a failed sync, and a power loss took its name",
    ),
    members(
        5_064,
        3_000,
        "a new leader took a session that had not expired from its connection, and with it the tasks taken since",
    ),
    members(30_402, 1_223, "a follower that was behind called a session unknown"),
    members(5_057, 3_000, "the disk of a server that joined failed, and the server waited for ever"),
    members(1_966_042_819, 3_000, "a checker was wrong"),
    members(
        3_752_472_597,
        3_000,
        "the last client stayed with a leader that had handed over; a checker was wrong",
    ),
    members(
        2_393_841_535,
        2_912,
        "a former holder's refused ack made a task that another client had finished count as stored; a checker was wrong",
    ),
    members(
        3_889_849_059,
        1_950,
        "the answer of a former leader to a take came behind the next leader's to the task's ack; a checker was wrong",
    ),
    members(
        22_414,
        926,
        "a leader that had refused a client's session in a hand-over led on, and executed a request without it",
    ),
    members(
        490,
        413,
        "a put over HTTP was answered as refused by the leader's failed disk, and the other members confirmed the put",
    ),
    members(
        2_226_098_191,
        12_000,
        "a former holder's refused ack made a task that another client had finished count as stored once more; a checker was wrong",
    ),
    members(20, 3_000, "a snapshot had the owners of tasks in a temporary tube, which no other member has"),
];

/// Runs all kept worlds, `jobs` at once. Returns the worlds that broke a promise, in the order of [`ALL`].
///
/// # Panics
/// A thread cannot be started.
#[must_use]
pub fn run(jobs: NonZero<usize>) -> Vec<Broken> {
    // The runner's seeds are places in the list, and its one kind stands for all.
    let order = Order {
        kinds: vec![Kind::Queue],
        first: 0,
        until: Until::Worlds(ALL.len() as u64),
        jobs: jobs.get(),
        stops_at_failure: false,
        verbose: false,
    };
    let outcome = run_order(&order, |_, place, trace| {
        let Kept { kind, seed, steps, .. } = ALL[place as usize];
        kind.run(seed, steps, trace)
    });
    let kind_of = |seed| ALL.iter().find(|kept| kept.seed == seed).map_or(Kind::Queue, |kept| kept.kind);
    let named = |broken: Broken| Broken { kind: kind_of(broken.failure.seed), ..broken };
    outcome.broken.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;

    /// A failure names its seed alone.
    #[test]
    fn no_seed_is_kept_twice() {
        let mut seeds = ALL.iter().map(|kept| kept.seed).collect::<Vec<_>>();
        seeds.sort_unstable();
        assert!(seeds.windows(2).all(|pair| pair[0] < pair[1]), "{seeds:?}");
    }

    #[test]
    fn former_worlds_have_no_more_than_they_had() {
        for Kept { kind, seed, .. } in ALL.iter().filter(|kept| kept.is_former) {
            let has_more = match kind {
                Kind::Queue => plan::has_workers(*seed),
                Kind::Steering => {
                    let draws = [plan::has_workers, plan::names_tasks, plan::reschedules];
                    draws.iter().any(|draws| draws(*seed))
                }
                Kind::Replicas => crate::replicas::has_leases(*seed),
                _ => false,
            };
            assert!(!has_more, "{} {seed}", kind.name());
        }
    }
}
