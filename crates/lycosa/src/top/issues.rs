//! Issues: each names a fault and the act against it. The page of the server finds the same (`server/page/issues.js`).

use lycosa_metrics::{Instance, Snapshot, Tube};

use crate::values::{count, lapse};

/// Seconds that a ready task may wait where no call waits for it.
const PATIENCE: f64 = 60.0;

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
        if let Some(upstream) =
            peer.upstream.as_ref().filter(|up| !matches!(up.status.as_str(), "follow" | "sync"))
        {
            let message = upstream.message.as_deref().unwrap_or("no changes come");
            let title = format!("Replication from {id} is {}: {message}", upstream.status);
            add(Gravity::Bad, title, "See docs/replication.md.");
        }
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
    }
    snapshot.tubes.iter().for_each(|tube| of_tube(tube, &mut found));
    found.sort_by_key(|issue| issue.gravity);
    found
}
