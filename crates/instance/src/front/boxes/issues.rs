//! Issues of the instance, for its status: the rules and the texts. Issues of tubes are the queue's.

use lycosa_queue::QueueState;
use lycosa_queue::status::spell::{bytes, counted, duration};
use lycosa_queue::status::{Gravity, Issue};
use lycosa_replication::relay::Peer;
use lycosa_replication::sync::UpstreamState;

use crate::{CheckpointStatus, Election, FreeSpace, GroupMember, Instance, Upstream};

/// Silence of a replica with rows to get, from which it is an issue, µs.
const LATE: u64 = 10_000_000;
/// A sync, at p99 over a minute, from which the disk is slow, and from which it holds up all clients, in seconds.
const SLOW_SYNC: f64 = 0.1;
const STUCK_SYNC: f64 = 1.0;
/// By how many µs clocks may differ.
const APART: i64 = 1_000_000;
/// Percent of `memory_limit` from which memory is nearly full.
const FULL: u64 = 90;
/// Percent of `replica_journal_limit` from which the journals for replicas are worth a look.
const HELD: u64 = 50;

impl Instance {
    /// Why tasks cannot be put and taken here: names for programs, and texts for people. A member of a group that follows
    /// passes calls on to the leader.
    pub fn unready(&self) -> Vec<(&'static str, String)> {
        let mut reasons = Vec::new();
        let mut add = |name, text: &str| reasons.push((name, text.to_owned()));
        let is_read_only = self.shard.is_read_only();
        let follows = self.election().filter(|election| election.state != "leader");
        if let Some(failure) = self.shard.trouble() {
            add("failed", failure);
        }
        if self.settings().loading {
            add("loading", "the program of this server is not ready yet");
        }
        if self.is_orphan() {
            add("orphan", "the masters of this server are not in sync yet");
        } else if let Some(election) = follows {
            if election.state == "removed" {
                add("removed", "this server is no member of the group any more: stop it");
            } else if election.leader.is_none() {
                let text =
                    "the group has no leader: a majority of its voters has to run and reach each other";
                add("no_leader", text);
            }
        } else if is_read_only {
            add("read_only", "this server takes no writes: read_only, or a replica");
        }
        let state = self.queue().state();
        if state != QueueState::Running && !is_read_only && self.settings().native_queue {
            add("queue", &format!("the queue is in {state} state"));
        }
        reasons
    }

    /// The issues of the instance, the gravest first.
    pub(super) fn issues(&self) -> Vec<Issue> {
        let now = self.shard.now();
        let mut found: Vec<Issue> = self.unready().into_iter().map(of_unready).collect();
        found.extend(self.shard.election().into_iter().flat_map(of_group));
        found.extend(self.of_memory());
        found.extend(of_checkpoints(&self.shard.checkpoint_status()));
        found.extend(self.shard.failing_expiration().map(of_expiration));
        found.extend(self.shard.conditions().facts().missing_replicas.map(of_missing_replicas));
        let peers = self.shard.replicas().iter().filter(|peer| peer.id != 0);
        found.extend(peers.filter_map(|peer| {
            let behind = peer.acknowledged.as_ref().map(|acknowledged| self.shard.rows_behind(acknowledged));
            of_replica(peer, behind, now)
        }));
        found.extend(self.shard.upstreams().iter().filter_map(of_master));
        found.extend(self.shard.scarce_space().map(of_disk));
        found.extend(self.recent_sync().and_then(of_sync));
        found.extend(of_clock(self.measures.clock_ahead));
        found.extend(of_leader_clock(self.shard.leader_ahead()));
        found.extend(of_programs(self.recent_program_errors()));
        found.sort_by_key(|issue| issue.gravity);
        found
    }

    fn of_memory(&self) -> Option<Issue> {
        let memory = self.shard.store().memory();
        let is_full = memory.limit > 0 && memory.used > memory.limit / 100 * FULL;
        is_full.then(|| {
            Issue::new(
                ("memory", Gravity::Bad),
                format!("Memory is nearly full: {} of {}", bytes(memory.used), bytes(memory.limit)),
                "Puts are refused when it is. Tasks can still be taken and finished.",
                "Let workers finish tasks, delete buried ones, or raise memory_limit and send SIGHUP.",
            )
            .with_command("lycosa stats")
        })
    }
}

fn of_unready((name, text): (&'static str, String)) -> Issue {
    let (gravity, title, act) = match name {
        "failed" => (Gravity::Bad, "The server has failed", "See its log, then restart it."),
        "loading" => (Gravity::Bad, "The program of this server is not ready", "See its log."),
        "orphan" => (
            Gravity::Bad,
            "The server waits for its masters",
            "See that the masters run and can be reached from here.",
        ),
        "removed" => (Gravity::Bad, "The server is no member of its group any more", "Stop it."),
        "no_leader" => (Gravity::Bad, "The group has no leader", "Start the members that do not run."),
        "read_only" => (Gravity::Note, "This server takes no writes", "Go to its master to change anything."),
        _ => (Gravity::Bad, "The queue is not running", "See the log of the server."),
    };
    let mut means = text;
    if let Some(first) = means.get(0..1).map(str::to_uppercase) {
        means.replace_range(0..1, &first);
    }
    Issue::new((name, gravity), title, means, act)
}

fn of_checkpoints(status: &CheckpointStatus) -> impl Iterator<Item = Issue> + use<> {
    let failure = status.failure.clone().map(|failure| {
        Issue::new(
            ("checkpoint", Gravity::Bad),
            "Checkpoints fail",
            failure,
            "The journal grows until one succeeds: look at the disk.",
        )
        .with_command("lycosa checkpoint")
    });
    let (held, limit) = (status.replica_bytes, status.replica_limit);
    let journals = (limit > 0 && held > limit / 100 * HELD).then(|| {
        Issue::new(
            ("replica_journals", Gravity::Warn),
            format!("Journals for a replica take {} of {}", bytes(held), bytes(limit)),
            "They stay until the replica has got them. Beyond the bound they go, and it has to join again.",
            "Start the replica, or remove it for good.",
        )
        .with_command("lycosa stats")
    });
    failure.into_iter().chain(journals)
}

fn of_expiration((name, error): (&str, &str)) -> Issue {
    Issue::new(
        ("expiration", Gravity::Warn),
        format!("Expiration task {name} fails"),
        format!("{error}. Tuples that should expire stay; the task is tried again."),
        "Mend the cause, or stop the task.",
    )
    .about(name)
    .with_command("lycosa expiration stats")
}

fn of_missing_replicas((following, wanted): (usize, usize)) -> Issue {
    Issue::new(
        ("replicas", Gravity::Bad),
        format!("Replicas are missing: {following} of {wanted}"),
        "Changes are refused: replicas_before_reply asks for more replicas than follow.",
        "Start the replicas, or lower replicas_before_reply and send SIGHUP.",
    )
}

fn of_replica(peer: &Peer, behind: Option<u64>, now: u64) -> Option<Issue> {
    let behind = behind.or_else(|| peer.is_connected().then_some(0))?;
    let silence = now.saturating_sub(peer.heard_at);
    let title = if !peer.is_connected() {
        format!("Replica {} is not connected", peer.id)
    } else if behind > 0 && silence > LATE {
        format!("Replica {} has been silent for {}", peer.id, duration(silence))
    } else {
        return None;
    };
    let means = if peer.is_lost {
        "Journals that it needs were removed: it has to join again with an empty folder.".to_owned()
    } else if behind > 0 {
        format!("It is {} behind: a promotion now would lose them.", counted(behind, "row"))
    } else {
        "It has all rows, and gets no new ones.".to_owned()
    };
    let act = "See its log, and the network between.";
    let issue = Issue::new(("replica", Gravity::Warn), title, means, act).about(peer.id.to_string());
    Some(if peer.heard_at > 0 { issue.for_long(silence, now) } else { issue })
}

fn of_master(upstream: &Upstream) -> Option<Issue> {
    use UpstreamState::{Following, Myself, Syncing};
    if matches!(upstream.state, Following | Syncing | Myself) {
        return None;
    }
    let unknown = || "This server does not get the changes of its master.".to_owned();
    let means = upstream.message.clone().unwrap_or_else(unknown);
    let title = format!("Replication from {} is in state {}", upstream.peer, upstream.state.name());
    let act = "See that the master runs and can be reached from here, and the logs of both.";
    let issue = Issue::new(("master", Gravity::Bad), title, means, act).about(&*upstream.peer);
    Some(issue.with_command("lycosa stats"))
}

impl GroupMember {
    /// Its fault, if it has one.
    fn fault(&self) -> Option<&'static str> {
        match self.progress {
            Some(progress) if progress.awaits_snapshot => Some("gets a snapshot"),
            _ if !self.is_connected => Some("not connected"),
            Some(progress) if !progress.is_active => Some("does not answer"),
            _ => None,
        }
    }
}

fn of_group(election: &Election) -> impl Iterator<Item = Issue> {
    let lost = election.members.iter().filter_map(|member| Some((member, member.fault()?)));
    let members = lost.clone().map(|(member, fault)| {
        let means = match member.progress {
            Some(progress) => format!("It is {} behind.", counted(progress.lag, "entry")),
            None => "It may lack changes of the group.".to_owned(),
        };
        Issue::new(
            ("member", Gravity::Warn),
            format!("Member {} at {}: {fault}", member.node, member.address),
            means,
            "See that its server runs and reaches the others at cluster.listen.",
        )
        .about(member.node.to_string())
        .with_command("lycosa cluster status")
    });
    let sound = |member: &&GroupMember| member.standing == "voter" && member.fault().is_none();
    let rest = election.members.iter().filter(sound).count() as u64;
    let is_close = lost.count() > 0 && rest * 2 <= election.voters + 1;
    let majority = is_close.then(|| {
        Issue::new(
            ("majority", Gravity::Bad),
            "One more lost member stops the group",
            format!("{rest} of {} answer.", counted(election.voters, "voter")),
            "Bring a member back, or remove it and add an empty server.",
        )
        .with_command("lycosa cluster status")
    });
    members.chain(majority)
}

fn of_disk(space: FreeSpace) -> Issue {
    let reserve = bytes(space.reserve);
    let means = match space.is_exhausted() {
        true => "Tasks can neither be put nor finished: the rest is for a snapshot.".to_owned(),
        false => {
            format!("Puts are refused below disk_reserve ({reserve}). Tasks can still be taken and finished.")
        }
    };
    Issue::new(
        ("disk", Gravity::Bad),
        format!("The disk is short: {} free", bytes(space.free)),
        means,
        "Free space on the disk of data_dir. Finished and deleted tasks give theirs back with a checkpoint.",
    )
    .with_command("lycosa checkpoint")
}

fn of_sync(seconds: f64) -> Option<Issue> {
    let gravity = if seconds >= STUCK_SYNC { Gravity::Bad } else { Gravity::Warn };
    (seconds >= SLOW_SYNC).then(|| {
        Issue::new(
            ("sync", gravity),
            format!("The disk is slow: a sync takes {}", duration((seconds * 1e6) as u64)),
            "Replies to changes wait for it (p99 of the last minute).",
            "See what else writes to the disk of data_dir, or move data_dir to a faster one.",
        )
        .with_command("iostat -x 1")
    })
}

fn apart(ahead: i64) -> Option<(String, &'static str)> {
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    (ahead.abs() >= APART).then(|| (duration(ahead.unsigned_abs()), side))
}

fn of_clock(ahead: i64) -> Option<Issue> {
    let (difference, side) = apart(ahead)?;
    let issue = Issue::new(
        ("clock", Gravity::Warn),
        format!("The system's clock is {difference} {side} the server's time"),
        "It was set, or the machine slept. Deadlines do not jump: the server follows by at most 6 minutes an hour.",
        "See that the time is synchronized. A restart takes the time of the system at once.",
    );
    Some(issue.with_command("timedatectl"))
}

fn of_leader_clock(ahead: i64) -> Option<Issue> {
    let (difference, side) = apart(ahead)?;
    let issue = Issue::new(
        ("leader_clock", Gravity::Warn),
        format!("The leader's time is {difference} {side} this member's"),
        "Deadlines go by the time of the leader. A new leader goes on with it.",
        "Synchronize the clocks of the members.",
    );
    Some(issue.with_command("timedatectl"))
}

fn of_programs(errors: u64) -> Option<Issue> {
    (errors > 0).then(|| {
        Issue::new(
            ("programs", Gravity::Note),
            format!("{} of programs in the last minute", counted(errors, "error")),
            "Calls, triggers or callbacks in Lua ended with an error. Their callers got it.",
            "See the log of the server, and what the callers were told.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Forwarded, MemberProgress};

    fn said(issues: impl IntoIterator<Item = Issue>) -> Vec<(Gravity, String)> {
        issues.into_iter().map(|issue| (issue.gravity, issue.title.into_owned())).collect()
    }

    /// An alert and an issue of one name have one threshold.
    #[test]
    fn alerts_have_the_thresholds_of_issues() {
        let rules = include_str!("../../../../../packaging/monitoring/lycosa.rules.yml");
        let alerts = |issue: &str| {
            let alerts =
                rules.split("- alert: ").filter(|alert| alert.contains(&format!("issue: {issue}}}")));
            alerts.collect::<String>()
        };
        for (issue, condition) in [
            ("memory", format!("lycosa_memory_limit_bytes > {}\n", FULL as f64 / 100.0)),
            ("sync", format!("lycosa_journal_sync_seconds_bucket[5m])) >= {SLOW_SYNC}\n")),
            ("sync", format!("lycosa_journal_sync_seconds_bucket[5m])) >= {STUCK_SYNC}\n")),
            ("replica", format!("lycosa_replication_lag_seconds > {}\n", LATE / 1_000_000)),
        ] {
            assert!(alerts(issue).contains(&condition), "{issue}: {condition} is not in {}", alerts(issue));
        }
    }

    #[test]
    fn a_disk_or_a_clock_out_of_order_is_an_issue() {
        assert_eq!(said(of_sync(0.099)), []);
        assert_eq!(said(of_clock(-900_000)), []);
        assert_eq!(said(of_leader_clock(900_000)), []);
        assert_eq!(said(of_programs(0)), []);
        let found = [
            of_sync(0.25),
            of_sync(2.0),
            of_clock(-3_600_000_000),
            of_leader_clock(5_000_000),
            of_programs(2),
            Some(of_disk(FreeSpace::new(1 << 20, 64 << 20))),
        ];
        let wanted = [
            (Gravity::Warn, "The disk is slow: a sync takes 250 ms"),
            (Gravity::Bad, "The disk is slow: a sync takes 2 s"),
            (Gravity::Warn, "The system's clock is 1 h behind the server's time"),
            (Gravity::Warn, "The leader's time is 5 s ahead of this member's"),
            (Gravity::Note, "2 errors of programs in the last minute"),
            (Gravity::Bad, "The disk is short: 1 MiB free"),
        ];
        assert_eq!(
            said(found.into_iter().flatten()),
            wanted.map(|(gravity, title)| (gravity, title.to_owned()))
        );
    }

    #[test]
    fn a_group_that_can_lose_no_further_member_says_so() {
        let member = |node, progress| GroupMember {
            node,
            address: format!("host{node}:3300"),
            standing: "voter",
            is_connected: node != 3,
            progress,
        };
        let sound = MemberProgress { lag: 0, is_close: true, is_active: true, awaits_snapshot: false };
        let election = Election {
            state: "leader",
            node: 1,
            leader: Some(1),
            term: 2,
            voters: 3,
            behind: 0,
            forwarded: Forwarded::default(),
            members: vec![member(1, None), member(2, Some(sound))],
        };
        assert_eq!(said(of_group(&election)), []);
        let lost = MemberProgress { lag: 2, ..sound };
        let election = Election {
            members: vec![member(1, None), member(2, Some(sound)), member(3, Some(lost))],
            ..election
        };
        let wanted = [
            (Gravity::Warn, "Member 3 at host3:3300: not connected"),
            (Gravity::Bad, "One more lost member stops the group"),
        ];
        assert_eq!(said(of_group(&election)), wanted.map(|(gravity, title)| (gravity, title.to_owned())));
        let slow = MemberProgress { is_active: false, ..lost };
        let joining = MemberProgress { awaits_snapshot: true, ..sound };
        assert_eq!(member(2, Some(slow)).fault(), Some("does not answer"));
        assert_eq!(member(2, Some(joining)).fault(), Some("gets a snapshot"));
    }
}
