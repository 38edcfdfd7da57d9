//! Issues: each names a fault and the act against it. The page of the server finds the same (`server/page/issues.js`).

use lycosa_metrics::{Instance, Snapshot, Tube};

use crate::values::{bytes, count, lapse};

/// Seconds that a ready task may wait where no call waits for it.
const PATIENCE: f64 = 60.0;
/// Seconds that a replica with rows to get may be silent.
const LATE: f64 = 10.0;
/// Seconds that a task may wait or be taken before that is worth a look.
const LONG: f64 = 600.0;

/// Seconds of a sync, at p99 over a minute, from which the disk is slow, and from which it holds up all clients.
const SLOW_SYNC: f64 = 0.1;
const STUCK_SYNC: f64 = 1.0;
/// Seconds by which clocks may differ.
const APART: f64 = 1.0;

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gravity {
    Bad,
    Warn,
    Note,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Issue {
    pub(super) gravity: Gravity,
    pub(super) tube: Option<String>,
    pub(super) title: String,
    pub(super) act: String,
}

fn of(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

fn of_instance(instance: &Instance, found: &mut Vec<Issue>) {
    let mut add = |gravity, title: String, act: &str| {
        found.push(Issue { gravity, tube: None, title, act: act.to_owned() });
    };
    if let Some(failure) = &instance.failure {
        add(Gravity::Bad, format!("The server has failed: {failure}"), "See its log; restart it.");
    } else if instance.state != "running" {
        add(Gravity::Bad, format!("The server is {}", instance.state), "See its log.");
    }
    if instance.read_only {
        add(Gravity::Note, "This server takes no writes".to_owned(), "Ask its master to change anything.");
    }
    let used = instance.memory.data + instance.memory.index;
    if instance.memory_limit > 0 && used as f64 > 0.9 * instance.memory_limit as f64 {
        add(
            Gravity::Bad,
            "Memory is nearly full: puts are refused then".to_owned(),
            "Raise memory_limit, or delete tasks.",
        );
    }
    if let Some(failure) = &instance.checkpoint.failure {
        add(Gravity::Bad, format!("Checkpoints fail: {failure}"), "Look at the disk: the journal grows.");
    }
    if instance.expiration.failing > 0 {
        let failing = of(instance.expiration.failing, "failing expiration task");
        add(Gravity::Warn, failing, "The log of the server says why.");
    }
    for (id, peer) in &instance.replication {
        if let Some(downstream) = &peer.downstream {
            let behind = downstream.behind.unwrap_or(0);
            let silence = lapse(downstream.idle);
            let title = match downstream.status.as_str() {
                "stopped" => Some(format!("Replica {id} is not connected")),
                _ if behind > 0 && downstream.idle > LATE => {
                    Some(format!("Replica {id} has been silent for {silence}"))
                }
                _ => None,
            };
            let act = format!("It is {} behind: see its log.", of(behind, "row"));
            title.into_iter().for_each(|title| add(Gravity::Warn, title, &act));
        }
        if let Some(upstream) =
            peer.upstream.as_ref().filter(|up| !matches!(up.status.as_str(), "follow" | "sync"))
        {
            let message = upstream.message.as_deref().unwrap_or("no changes come");
            let title = format!("Replication from {id} is {}: {message}", upstream.status);
            add(Gravity::Bad, title, "See docs/replication.md.");
        }
    }
}

/// Disk and clocks.
fn of_machine(instance: &Instance, found: &mut Vec<Issue>) {
    let mut add = |gravity, title: String, act: &str| {
        found.push(Issue { gravity, tube: None, title, act: act.to_owned() });
    };
    if let Some(short) = instance.disk_short {
        let refused = if short.exhausted { "puts and acks are refused" } else { "puts are refused" };
        add(
            Gravity::Bad,
            format!("The disk is short, {} free: {refused}", bytes(short.free)),
            "Free space on the disk of data_dir, then lycosa checkpoint.",
        );
    }
    if let Some(sync) = instance.recent_sync.filter(|sync| *sync >= SLOW_SYNC) {
        let gravity = if sync >= STUCK_SYNC { Gravity::Bad } else { Gravity::Warn };
        let title = format!("The disk is slow: a sync takes {}", lapse(sync));
        add(gravity, title, "See what else writes to the disk of data_dir: iostat -x 1.");
    }
    if let Some(ahead) = instance.clock_ahead.filter(|ahead| ahead.abs() >= APART) {
        let side = if ahead > 0.0 { "ahead of" } else { "behind" };
        let title = format!("The system's clock is {} {side} the server's time", lapse(ahead.abs()));
        add(Gravity::Warn, title, "Synchronize the time; a restart takes it at once.");
    }
    if let Some(ahead) = instance.leader_ahead.filter(|ahead| ahead.abs() >= APART) {
        let side = if ahead > 0.0 { "ahead of" } else { "behind" };
        let title = format!("The leader's time is {} {side} this member's", lapse(ahead.abs()));
        add(Gravity::Warn, title, "Synchronize the clocks of the members.");
    }
}

fn of_tube(tube: &Tube, found: &mut Vec<Issue>) {
    let mut add = |gravity, title: String, act: &str| {
        found.push(Issue { gravity, tube: Some(tube.name.clone()), title, act: act.to_owned() });
    };
    let age = tube.oldest_ready_age.unwrap_or(0.0);
    let takes = tube.rates.map_or(0.0, |rates| rates.takes[0]);
    if tube.paused {
        add(Gravity::Note, "paused: it hands out no task".to_owned(), "P resumes it.");
    } else if tube.tasks.ready > 0 && age > PATIENCE && tube.waiting_takes == 0 && takes == 0.0 {
        let title =
            format!("{} and no worker, the oldest for {}", of(tube.tasks.ready, "ready task"), lapse(age));
        add(Gravity::Bad, title, "Start workers.");
    } else if tube.tasks.ready > 0 && age > LONG {
        add(Gravity::Warn, format!("the oldest ready task waits for {}", lapse(age)), "Add workers.");
    }
    let held = tube.oldest_taken_age.unwrap_or(0.0);
    if held > LONG {
        let is_blocking = tube.busy_keys.is_some_and(|keys| keys > 0) && tube.tasks.ready > 0;
        let (gravity, what) = match is_blocking {
            true => (Gravity::Warn, ", and blocks its sub-queue"),
            false => (Gravity::Note, ""),
        };
        let title = format!("a task has been taken for {}{what}", lapse(held));
        add(gravity, title, "See who holds it; R releases it.");
    }
    if tube.tasks.buried > 0 {
        add(
            Gravity::Warn,
            of(tube.tasks.buried, "buried task"),
            "See their errors, then kick or delete them.",
        );
    }
    if tube.capacity.is_some_and(|capacity| capacity > 0 && tube.tasks.total() >= capacity) {
        add(Gravity::Warn, "full: puts wait for free space".to_owned(), "Add workers.");
    }
}

/// Everything that is wrong, the gravest first.
pub(super) fn find(snapshot: &Snapshot) -> Vec<Issue> {
    let mut found = Vec::new();
    if let Some(instance) = &snapshot.instance {
        of_instance(instance, &mut found);
        of_machine(instance, &mut found);
    }
    snapshot.tubes.iter().for_each(|tube| of_tube(tube, &mut found));
    found.sort_by_key(|issue| issue.gravity);
    found
}

#[cfg(test)]
mod tests {
    use lycosa_metrics::{DiskShort, Downstream, Peer, Tasks};

    use super::*;

    fn titles(snapshot: &Snapshot) -> Vec<(Gravity, String)> {
        find(snapshot).into_iter().map(|issue| (issue.gravity, issue.title)).collect()
    }

    #[test]
    fn a_task_that_is_taken_for_long_is_graver_where_it_blocks_a_sub_queue() {
        let tasks = Tasks { ready: 2, taken: 1, ..Tasks::default() };
        let held = Tube { tasks, oldest_taken_age: Some(720.0), waiting_takes: 1, ..Tube::default() };
        let blocking = Tube { busy_keys: Some(1), ..held.clone() };
        let short = Tube { oldest_taken_age: Some(599.0), ..blocking.clone() };
        let late = Tube { oldest_ready_age: Some(601.0), oldest_taken_age: None, ..blocking.clone() };
        let snapshot = Snapshot { tubes: vec![held, blocking, short, late], ..Snapshot::default() };
        let wanted = [
            (Gravity::Warn, "a task has been taken for 12m, and blocks its sub-queue"),
            (Gravity::Warn, "the oldest ready task waits for 10m 1s"),
            (Gravity::Note, "a task has been taken for 12m"),
        ];
        assert_eq!(titles(&snapshot), wanted.map(|(gravity, title)| (gravity, title.to_owned())));
    }

    #[test]
    fn a_disk_or_a_clock_out_of_order_is_an_issue() {
        let fine = Instance {
            state: "running".to_owned(),
            recent_sync: Some(0.099),
            clock_ahead: Some(-0.9),
            leader_ahead: Some(0.9),
            ..Instance::default()
        };
        let faulty = Instance {
            disk_short: Some(DiskShort { free: 1 << 20, reserve: 64 << 20, exhausted: false }),
            recent_sync: Some(2.0),
            clock_ahead: Some(-3600.0),
            leader_ahead: Some(5.0),
            ..fine.clone()
        };
        let seen = |instance| titles(&Snapshot { instance: Some(instance), ..Snapshot::default() });
        assert_eq!(seen(fine), []);
        let wanted = [
            (Gravity::Bad, "The disk is short, 1 MiB free: puts are refused"),
            (Gravity::Bad, "The disk is slow: a sync takes 2 s"),
            (Gravity::Warn, "The system's clock is 1h behind the server's time"),
            (Gravity::Warn, "The leader's time is 5 s ahead of this member's"),
        ];
        assert_eq!(seen(faulty), wanted.map(|(gravity, title)| (gravity, title.to_owned())));
    }

    #[test]
    fn a_replica_that_is_away_or_silent_is_an_issue() {
        let replica = |status: &str, idle, behind| {
            let downstream = Downstream { status: status.to_owned(), idle, behind: Some(behind) };
            Peer { downstream: Some(downstream), ..Peer::default() }
        };
        let replicas = [replica("stopped", 3.0, 0), replica("follow", 11.0, 0), replica("follow", 11.0, 7)];
        let mut instance = Instance { state: "running".to_owned(), ..Instance::default() };
        for (id, replica) in (2..).zip(replicas) {
            instance.replication.insert(id, replica);
        }
        let snapshot = Snapshot { instance: Some(instance), ..Snapshot::default() };
        let wanted = ["Replica 2 is not connected", "Replica 4 has been silent for 11s"];
        assert_eq!(titles(&snapshot), wanted.map(|title| (Gravity::Warn, title.to_owned())));
    }
}
