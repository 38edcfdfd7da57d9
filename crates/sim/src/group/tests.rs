//! The rules for `raft`, each as a case with the events written out. Times are those of the world's clock.

use lycosa_group::members::NodeId;
use lycosa_group::node::Role;

use super::World;
use crate::Trace;
use crate::random::Random;

const SECOND: u64 = 1_000_000;

/// A group of `count` without faults of its own.
fn grown(seed: u64, count: usize, trace: &mut Trace) -> World<'_> {
    let mut world = World::quiet(Random::new(seed), trace).expect("a group of one");
    while world.servers.len() < count {
        world.operate_add().expect("added");
        world.pass(2 * SECOND).expect("a quiet world");
    }
    assert!(world.is_at_rest());
    world
}

impl World<'_> {
    fn role(&self, node: NodeId) -> Role {
        self.servers[&node].running.as_ref().expect("it runs").node.status().role
    }

    fn term(&self, node: NodeId) -> u64 {
        self.servers[&node].running.as_ref().expect("it runs").node.status().term
    }

    fn put(&mut self, count: usize) {
        for _ in 0..count {
            self.propose().and_then(|()| self.run()).expect("a quiet world");
            self.quiet_pass(20_000);
        }
    }

    fn quiet_pass(&mut self, time: u64) {
        self.pass(time).expect("a quiet world");
    }

    /// Time until another server leads, and has confirmed something.
    fn time_to_confirm(&mut self) -> u64 {
        let (began, confirmed) = (self.now, self.history.newest_confirmed);
        while self.history.newest_confirmed == confirmed {
            assert!(self.now < began + 10 * SECOND, "no leader in 10 s");
            self.quiet_pass(5_000);
            self.propose().and_then(|()| self.run()).expect("a quiet world");
        }
        self.now - began
    }

    fn follower(&self) -> NodeId {
        let leader = self.leader().expect("a leader");
        *self.servers.keys().rev().find(|node| **node != leader).expect("another server")
    }

    /// The servers but `follower` take snapshots, and forget the entries before these.
    fn forget(&mut self, follower: Option<NodeId>) {
        for server in self.servers.values_mut().filter(|server| Some(server.identity.node) != follower) {
            assert!(server.take_snapshot().expect("a sound disk"));
            server.forget(0).expect("a sound disk");
        }
    }

    fn committed(&self, node: NodeId) -> u64 {
        self.servers[&node].running.as_ref().expect("it runs").node.status().committed
    }
}

/// Fixed timeouts by rank: an operation is confirmed within a second of a leader's end, however the ticks lie.
#[test]
fn a_killed_leader_is_replaced_within_a_second() {
    let mut worst = 0;
    for seed in 0..4 {
        let mut trace = Trace::new(false);
        let mut world = grown(seed, 3, &mut trace);
        for round in 0..12 {
            let leader = world.leader().expect("a leader");
            if round % 2 == 0 {
                world.kill(leader).expect("killed");
            } else {
                world.server(leader).stopped_until = u64::MAX;
            }
            worst = worst.max(world.time_to_confirm());
            world.server(leader).stopped_until = 0;
            world.start(leader).expect("it starts");
            world.settle().expect("it comes to rest");
        }
    }
    assert!(worst < SECOND, "{worst} µs");
}

#[test]
fn a_leader_without_a_majority_steps_down_in_two_timeouts() {
    for swallows in [false, true] {
        let mut trace = Trace::new(false);
        let mut world = grown(1, 3, &mut trace);
        let leader = world.leader().expect("a leader");
        let committed = world.committed(leader);
        world.separate(leader, None, swallows).expect("separated");
        world.propose().and_then(|()| world.run()).expect("a quiet world");
        world.quiet_pass(650_000);
        assert_ne!(world.role(leader), Role::Leader);
        assert_eq!(world.committed(leader), committed, "the minority confirms nothing");
        world.settle().expect("it comes to rest");
    }
}

#[test]
fn a_server_that_was_cut_off_deposes_nobody() {
    let mut trace = Trace::new(false);
    let mut world = grown(2, 3, &mut trace);
    let (leader, follower) = (world.leader().expect("a leader"), world.follower());
    let term = world.term(leader);
    world.separate(follower, None, true).expect("separated");
    world.quiet_pass(5 * SECOND);
    assert_eq!(
        (world.role(follower), world.term(follower)),
        (Role::Candidate, term),
        "it asks before it votes"
    );
    world.heal();
    world.quiet_pass(2 * SECOND);
    assert_eq!((world.leader(), world.term(leader)), (Some(leader), term));
    assert_eq!(world.role(follower), Role::Follower);
}

/// A process that was stopped knows nothing of its successor. Its reads are not answered.
#[test]
fn a_leader_that_wakes_up_answers_no_read() {
    let mut trace = Trace::new(false);
    let mut world = grown(3, 3, &mut trace);
    let leader = world.leader().expect("a leader");
    world.server(leader).stopped_until = u64::MAX;
    world.time_to_confirm();
    world.put(3);
    world.server(leader).stopped_until = 0;
    let running = world.server(leader).running.as_mut().expect("it runs");
    assert_eq!(running.node.status().role, Role::Leader, "as it believes");
    let number = running.node.read().expect("asked");
    let least = world.history.newest_confirmed;
    world.server(leader).running.as_mut().expect("it runs").reads.push((number, least));
    let (reads, lost) = (world.totals.reads, world.totals.lost_reads);
    world.run().expect("a quiet world");
    world.quiet_pass(SECOND);
    assert_eq!((world.totals.reads, world.totals.lost_reads), (reads, lost + 1));
}

/// While the disk takes a snapshot, the receiver promises nothing and does not campaign, though its leader is gone.
#[test]
fn a_snapshot_counts_once_it_is_durable() {
    let mut trace = Trace::new(false);
    let mut world = grown(4, 3, &mut trace);
    let follower = world.follower();
    world.separate(follower, None, false).expect("separated");
    world.put(40);
    world.forget(Some(follower));
    world.server(follower).stalled_until = u64::MAX;
    world.heal();
    world.quiet_pass(SECOND);
    let is_installing = |world: &World<'_>| {
        let running = world.servers[&follower].running.as_ref().expect("it runs");
        running.writes.iter().any(|(_, write)| write.install.is_some())
    };
    assert!(is_installing(&world));
    let leader = world.leader().expect("a leader");
    let status = world.servers[&leader].running.as_ref().expect("it runs").node.status();
    let progress = status.progress.iter().find(|progress| progress.node == follower).expect("a member");
    assert!(progress.snapshot.is_some() && progress.matched < status.committed);
    world.kill(leader).expect("killed");
    world.quiet_pass(3 * SECOND);
    assert_eq!(world.role(follower), Role::Follower, "no tick");
    // The machine dies, and the snapshot with it: the leader sends it again.
    world.start(leader).expect("it starts");
    world.crash(follower).expect("it dies");
    let installs = world.totals.installs;
    world.settle().expect("it comes to rest");
    assert!(world.totals.installs > installs);
}

#[test]
fn a_snapshot_that_is_lost_with_its_link_is_sent_again() {
    let mut trace = Trace::new(false);
    let mut world = grown(5, 3, &mut trace);
    let (leader, follower) = (world.leader().expect("a leader"), world.follower());
    world.separate(follower, None, false).expect("separated");
    world.put(40);
    world.forget(Some(follower));
    world.heal();
    let (lost, installs) = (world.totals.lost_snapshots, world.totals.installs);
    while world.totals.lost_snapshots == lost {
        world.quiet_pass(1_000);
        if world.links[&(leader, follower)].brings_snapshot() {
            world.cut(leader, follower).expect("cut");
        }
        assert_eq!(world.totals.installs, installs, "it was there before the link broke");
    }
    world.quiet_pass(2 * SECOND);
    assert!(world.totals.installs > installs && world.is_at_rest());
}

/// The leader's snapshot is older than the joiner's membership: a newer state comes first.
#[test]
fn a_joiner_gets_a_snapshot_in_which_it_is_a_member() {
    let mut trace = Trace::new(false);
    let mut world = grown(6, 2, &mut trace);
    world.put(10);
    world.forget(None);
    let snapshots = world.totals.snapshots;
    world.operate_add().expect("added");
    world.quiet_pass(2 * SECOND);
    assert!(world.totals.snapshots > snapshots && world.is_at_rest());
    assert_eq!(world.servers.len(), 3);
}

/// The leader dies inside a joint step. The next one ends it.
#[test]
fn a_joint_step_outlives_its_leader() {
    let mut seen = 0;
    for delay in (0..60).map(|step| step * 1_000) {
        let mut trace = Trace::new(false);
        let mut world = grown(7, 4, &mut trace);
        let (leader, follower) = (world.leader().expect("a leader"), world.follower());
        let running = world.server(leader).running.as_mut().expect("it leads");
        running.node.remove(follower).expect("proposed");
        world.run().expect("a quiet world");
        world.quiet_pass(delay);
        let joint = |world: &World<'_>| {
            let mut others = world.servers.values().filter_map(|server| server.running.as_ref());
            others.any(|running| running.node.members().is_joint())
        };
        world.kill(leader).expect("killed");
        seen += u64::from(joint(&world));
        world.quiet_pass(3 * SECOND);
        assert!(!joint(&world), "after {delay} µs");
        world.start(leader).expect("it starts");
        world.settle().expect("it comes to rest");
    }
    assert!(seen > 0, "no leader died inside the step");
}

/// Messages of a connection that was given up arrive behind newer ones: they are dropped.
#[test]
fn messages_of_an_old_connection_are_dropped() {
    let mut trace = Trace::new(false);
    let mut world = grown(8, 3, &mut trace);
    let (leader, follower) = (world.leader().expect("a leader"), world.follower());
    let dropped = world.totals.late_messages;
    for _ in 0..200 {
        world.put(1);
        world.propose().and_then(|()| world.run()).expect("a quiet world");
        world.cut(leader, follower).expect("cut");
    }
    assert!(world.totals.late_messages > dropped);
    world.settle().expect("it comes to rest");
}

#[test]
fn a_slow_disk_of_the_leader_costs_its_office_and_nothing_else() {
    let mut trace = Trace::new(false);
    let mut world = grown(9, 3, &mut trace);
    let leader = world.leader().expect("a leader");
    world.server(leader).stalled_until = u64::MAX;
    let confirmed = world.history.newest_confirmed;
    world.put(20);
    assert!(world.history.newest_confirmed >= confirmed + 20, "two disks suffice");
    world.quiet_pass(5 * SECOND);
    assert_ne!(world.leader(), Some(leader));
    world.settle().expect("it comes to rest");
}
