//! Groups whose disks and links are at once: what each call of a node comes to. Faults are the simulator's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::disk::Disk;
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::meta::FileKind;
use lycosa_journal::writer;
use uuid::Uuid;

use super::*;
use crate::Limits;
use crate::base::FEATURE_LEVEL;
use crate::log::GroupLog;

const GROUP: Uuid = Uuid::from_u128(77);

struct Server {
    node: Node,
    log: GroupLog,
    disk: MemoryDisk,
    /// Rows that were handed out, or came with a snapshot.
    data: Vec<Vec<u8>>,
    events: Vec<Event>,
    is_slow: bool,
    /// Writes that a slow disk has not taken yet.
    held: Vec<Write>,
}

impl Server {
    fn messages(&mut self) -> Vec<Outgoing> {
        std::iter::from_fn(|| self.node.poll_message()).collect()
    }

    fn take_writes(&mut self) -> Vec<Outgoing> {
        for write in std::mem::take(&mut self.held) {
            if let Some(base) = &write.install {
                name_snapshot(&self.disk, base);
            }
            self.log.append(&write.records).and_then(|()| self.log.sync()).expect("written");
            self.node.persisted(write.number);
        }
        self.messages()
    }
}

#[derive(Default)]
struct Net {
    servers: BTreeMap<NodeId, Server>,
    /// Contents of snapshots by their numbers: the group has one history.
    snapshots: BTreeMap<u64, Vec<Vec<u8>>>,
    cut: BTreeSet<NodeId>,
    /// The next answer of this node to a snapshot gets lost, and no link tells.
    loses_answer: Option<NodeId>,
    messages: VecDeque<Outgoing>,
    now: u64,
}

fn settings(knows: u32) -> Settings {
    let limits =
        Limits { memory_bytes: 2_000, message_bytes: 1_000, uncommitted_bytes: 50_000, ..Limits::default() };
    Settings { limits, knows, ..Settings::default() }
}

fn name_snapshot(disk: &MemoryDisk, base: &Base) {
    base.write(&Directory::on(Arc::new(disk.clone())), b"").expect("written");
    // One snapshot may have several states.
    let _ = disk.create(&file_name(FileKind::Snapshot, base.signature));
    disk.sync().expect("synced");
}

impl Net {
    fn alone() -> Self {
        let mut net = Self::default();
        let base = Base::first(GROUP, 0, FEATURE_LEVEL, "n1:1".to_owned());
        net.snapshots.insert(0, Vec::new());
        net.start(1, 0, Some(&base), FEATURE_LEVEL);
        net.until(|net| net.leader() == Some(1));
        net
    }

    fn start(&mut self, node: NodeId, rank: u8, base: Option<&Base>, knows: u32) {
        let disk = MemoryDisk::new();
        if let Some(base) = base {
            name_snapshot(&disk, base);
        }
        let directory = Directory::on(Arc::new(disk.clone()));
        let identity = Identity { group: GROUP, node, rank };
        GroupLog::create(directory, writer::Settings::default(), identity, base).expect("a log");
        self.open(node, disk, knows);
    }

    fn open(&mut self, node: NodeId, disk: MemoryDisk, knows: u32) {
        let directory = Directory::on(Arc::new(disk.clone()));
        let opened = GroupLog::open(directory, writer::Settings::default(), knows).expect("a log");
        let data =
            opened.base.as_ref().map_or(Vec::new(), |(base, _)| self.snapshots[&base.signature].clone());
        let (node_, log) = Node::new(opened, settings(knows)).expect("sound settings");
        self.servers.insert(
            node,
            Server { node: node_, log, disk, data, events: Vec::new(), is_slow: false, held: Vec::new() },
        );
    }

    fn grown(count: u64) -> Self {
        let mut net = Self::alone();
        while (net.servers.len() as u64) < count {
            net.join(FEATURE_LEVEL);
        }
        net
    }

    fn join(&mut self, knows: u32) {
        let voters = self.servers.len() + 1;
        let address = format!("n{voters}:1");
        let (node, rank) = self.lead().node.add(&address).expect("added");
        self.start(node, rank, None, knows);
        self.until(|net| {
            let members = net.servers.values().map(|server| server.node.members());
            members.into_iter().all(|members| members.voters() == voters && !members.is_joint())
        });
    }

    fn leader(&self) -> Option<NodeId> {
        let leads = |server: &&Server| server.node.status().role == Role::Leader;
        let found = self.servers.values().filter(leads).max_by_key(|server| server.node.status().term);
        found.map(|server| server.node.identity().node)
    }

    fn lead(&mut self) -> &mut Server {
        let leader = self.leader().expect("a leader");
        self.server(leader)
    }

    fn server(&mut self, node: NodeId) -> &mut Server {
        self.servers.get_mut(&node).expect("a server")
    }

    fn until(&mut self, mut holds: impl FnMut(&mut Self) -> bool) {
        for _ in 0..400 {
            if holds(self) {
                return;
            }
            self.pass();
        }
        panic!("not within 10 s: {:?}", self.servers.values().map(|server| &server.node).collect::<Vec<_>>());
    }

    /// Lets a tick pass, and everything that follows from it.
    fn pass(&mut self) {
        self.now += 25_000;
        for server in self.servers.values_mut() {
            server.node.tick(self.now);
        }
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            for node in self.servers.keys().copied().collect::<Vec<_>>() {
                self.run(node);
            }
            let Some(message) = self.messages.pop_front() else { return };
            let incoming = Incoming::decode(&message.bytes).expect("a message");
            assert_eq!(incoming.base().cloned().map(Box::new), message.base);
            if self.loses_answer == Some(incoming.from())
                && incoming.message.get_msg_type() == MessageType::MsgAppendResponse
                && self
                    .server(incoming.from())
                    .events
                    .iter()
                    .any(|event| matches!(event, Event::Installed(_)))
            {
                self.loses_answer = None;
                continue;
            }
            let is_cut = self.cut.contains(&message.to) || self.cut.contains(&incoming.from());
            if is_cut {
                self.server(incoming.from()).node.link_lost(message.to);
            } else if let Some(server) = self.servers.get_mut(&message.to) {
                server.node.step(incoming).expect("taken");
            }
        }
    }

    fn run(&mut self, node: NodeId) {
        let Self { servers, messages, snapshots, now, .. } = self;
        let server = servers.get_mut(&node).expect("a server");
        while let Some(write) = server.node.poll(*now) {
            server.held.push(write);
            if !server.is_slow {
                messages.extend(server.take_writes());
            }
        }
        messages.extend(server.messages());
        while let Some(event) = server.node.next_event() {
            match &event {
                Event::Committed(Committed { payload: Payload::Rows(rows), .. }) => {
                    server.data.push(rows.to_vec());
                }
                Event::Installed(base) => server.data.clone_from(&snapshots[&base.signature]),
                Event::EntriesWanted(wanted) => {
                    let found = server.log.read(wanted).expect("read");
                    server.node.found(wanted, Some(found));
                }
                Event::SnapshotWanted { .. } => {
                    let signature = server.data.len() as u64;
                    if let Some(base) = server.node.base(signature) {
                        snapshots.insert(signature, server.data.clone());
                        name_snapshot(&server.disk, &base);
                        server.node.snapshot_taken(base);
                    }
                }
                Event::HandOverWanted(_) => _ = server.node.transfer(None),
                _ => {}
            }
            server.events.push(event);
        }
    }

    fn put(&mut self, row: &[u8]) -> Position {
        let position = self.lead().node.propose(row.to_vec()).expect("proposed");
        self.settle();
        position
    }

    fn data(&mut self, node: NodeId) -> Vec<Vec<u8>> {
        self.server(node).data.clone()
    }
    /// Cuts a node of three off until its rows are only in a snapshot, whose state is returned.
    fn outgrow(&mut self, node: NodeId) -> Base {
        self.cut.insert(node);
        for row in rows(0..100) {
            self.put(&row);
        }
        let Net { servers, snapshots, .. } = self;
        let leader =
            servers.values_mut().find(|server| server.node.status().role == Role::Leader).expect("a leader");
        let signature = leader.data.len() as u64;
        let base = leader.node.base(signature).expect("a state");
        name_snapshot(&leader.disk, &base);
        snapshots.insert(signature, leader.data.clone());
        leader.node.snapshot_taken(base.clone());
        leader.node.forget(base.index);
        leader.log.rotate().expect("rotated");
        leader.log.forget(&base, base.index).expect("removed");
        self.cut.clear();
        base
    }
}

fn rows(range: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    range.map(|number| [b"row ".as_slice(), &number.to_be_bytes(), &[0; 90]].concat()).collect()
}

#[test]
fn a_group_of_one_confirms_by_its_own_disk() {
    let mut net = Net::alone();
    let server = net.server(1);
    let position = server.node.propose(b"a".to_vec()).expect("proposed");
    let write = server.node.poll(0).expect("a write");
    assert_eq!((server.node.next_event(), server.node.status().committed), (None, position.index - 1));
    server.log.append(&write.records).and_then(|()| server.log.sync()).expect("written");
    server.node.persisted(write.number);
    assert_eq!(server.messages(), []);
    assert_eq!(server.node.next_event(), Some(Event::Confirmed(position)));
    let number = server.node.read().expect("asked");
    net.settle();
    assert_eq!(net.data(1), [b"a"]);
    assert!(net.server(1).events.contains(&Event::Read { number, index: position.index }));
}

#[test]
fn three_servers_are_handed_the_same_rows() {
    let mut net = Net::grown(3);
    for row in rows(0..50) {
        net.put(&row);
    }
    net.pass();
    for node in 1..=3 {
        assert_eq!(net.data(node), rows(0..50));
    }
    let status = net.lead().node.status();
    assert!(status.progress.iter().all(|progress| progress.is_active && progress.matched == status.last));
    assert!(status.memory_bytes <= 2_000 + 200, "{}", status.memory_bytes);
}

#[test]
fn a_leader_that_is_cut_off_loses_its_proposals_and_its_reads() {
    let mut net = Net::grown(3);
    net.put(b"before");
    net.cut.insert(1);
    let lost = net.put(b"lost");
    let number = net.server(1).node.read().expect("asked");
    net.settle();
    net.until(|net| net.leader().is_some_and(|leader| leader != 1));
    net.until(|net| net.server(1).node.status().role != Role::Leader);
    assert!(net.server(1).events.contains(&Event::ReadLost { number }));
    assert!(!net.server(1).events.contains(&Event::Confirmed(lost)));
    net.put(b"after");
    net.cut.clear();
    net.until(|net| net.data(1).len() == 2);
    for node in 1..=3 {
        assert_eq!(net.data(node), [b"before".as_slice(), b"after"]);
    }
    assert!(net.server(1).events.contains(&Event::Lost(lost)));
    let refused = net.server(1).node.propose(b"x".to_vec());
    let leader = net.leader();
    assert_eq!(refused, Err(Refusal::NotLeader { leader }));
}

#[test]
fn leadership_is_handed_over_on_request() {
    let mut net = Net::grown(3);
    assert_eq!(net.lead().node.transfer(Some(9)), Err(Refusal::Successor(9)));
    let leader = net.leader().expect("a leader");
    assert_eq!(net.lead().node.transfer(Some(leader)), Err(Refusal::Leads(leader)));
    assert_eq!(Net::alone().lead().node.transfer(None), Err(Refusal::NoSuccessor));
    assert_eq!(net.lead().node.transfer(Some(3)), Ok(3));
    assert_eq!(net.lead().node.propose(b"x".to_vec()), Err(Refusal::Transferring));
    net.settle();
    assert_eq!(net.leader(), Some(3));
    net.put(b"a");
    net.pass();
    assert_eq!(net.data(1), [b"a"]);
}

#[test]
fn a_voter_that_lacks_much_is_no_successor_until_it_has_caught_up() {
    let mut net = Net::grown(3);
    net.cut.insert(3);
    for row in rows(0..1_500) {
        net.put(&row);
    }
    net.cut.clear();
    let mut refused = Vec::new();
    // A transfer ends without effect where the rest does not arrive in time.
    net.until(|net| {
        let leads = net.leader() == Some(3);
        if !leads && let Some(1) = net.leader() {
            refused.extend(net.lead().node.transfer(Some(3)).err());
        }
        leads
    });
    let is_behind =
        |refusal: &Refusal| matches!(refusal, Refusal::Behind { node: 3, entries } if *entries > 1_000);
    assert!(refused.iter().any(is_behind), "{refused:?}");
}

#[test]
fn members_come_and_go_one_at_a_time() {
    let mut net = Net::grown(3);
    let leader = net.leader().expect("a leader");
    assert_eq!(net.lead().node.remove(leader), Err(Refusal::RemovesLeader(leader)));
    assert_eq!(net.lead().node.remove(8), Err(Refusal::NotMember(8)));
    assert_eq!(net.lead().node.add("n2:1"), Err(Refusal::Address("n2:1".to_owned())));
    assert_eq!(net.lead().node.remove(2), Ok(()));
    assert_eq!(net.lead().node.add("n9:1"), Err(Refusal::ChangePending));
    net.until(|net| net.lead().node.members().len() == 2);
    assert_eq!(net.lead().node.remove(3), Ok(()));
    net.until(|net| net.lead().node.members().len() == 1);
    let leader = net.leader().expect("a leader");
    assert_eq!(net.lead().node.remove(leader), Err(Refusal::LastVoter(leader)));
    net.put(b"alone");
    assert_eq!(net.data(leader), [b"alone"]);
    let mut net = Net::grown(5);
    assert_eq!(net.lead().node.add("n9:1"), Err(Refusal::Full(5)));
}

#[test]
fn a_server_that_was_away_gets_its_rows_from_files() {
    let mut net = Net::grown(3);
    net.cut.insert(3);
    for row in rows(0..100) {
        net.put(&row);
    }
    assert!(net.lead().node.status().memory_bytes < 3_000);
    net.cut.clear();
    net.until(|net| net.data(3).len() == 100);
    assert_eq!(net.data(3), rows(0..100));
    let leader = net.lead();
    assert!(leader.events.iter().any(|event| matches!(event, Event::EntriesWanted(_))));
    assert!(!net.server(3).events.iter().rev().take(100).any(|event| matches!(event, Event::Installed(_))));
}

#[test]
fn a_server_that_was_away_too_long_gets_a_snapshot() {
    let mut net = Net::grown(3);
    let base = net.outgrow(3);
    net.until(|net| net.data(3).len() == 100);
    let installed = Event::Installed(Box::new(base));
    assert!(net.server(3).events.contains(&installed));
    net.put(b"more");
    net.pass();
    assert_eq!(net.data(3)[100..], [b"more"]);
    // And it starts from there.
    let disk = net.server(3).disk.clone();
    net.open(3, disk, FEATURE_LEVEL);
    net.until(|net| net.data(3).len() == 101);
}

#[test]
fn an_answer_to_a_snapshot_may_get_lost() {
    let mut net = Net::grown(3);
    net.outgrow(3);
    net.loses_answer = Some(3);
    net.until(|net| net.data(3).len() == 100);
    net.put(b"more");
    net.until(|net| net.data(3).len() == 101);
    assert_eq!(net.loses_answer, None, "no answer was lost");
}

#[test]
fn a_restart_of_all_keeps_what_was_confirmed() {
    let mut net = Net::grown(3);
    for row in rows(0..20) {
        net.put(&row);
    }
    for node in 1..=3 {
        let disk = net.server(node).disk.clone();
        net.open(node, disk, FEATURE_LEVEL);
    }
    net.messages.clear();
    net.until(|net| (1..=3).all(|node| net.data(node).len() >= 20));
    for node in 1..=3 {
        assert_eq!(net.data(node), rows(0..20));
    }
}

#[test]
fn a_program_that_does_not_know_a_level_stops() {
    let mut net = Net::alone();
    net.join(FEATURE_LEVEL);
    let disk = net.server(1).disk.clone();
    net.open(1, disk, FEATURE_LEVEL + 1);
    net.until(|net| net.leader().is_some());
    if net.leader() != Some(1) {
        assert_eq!(
            net.lead().node.raise_level(FEATURE_LEVEL + 1),
            Err(Refusal::Level { wanted: FEATURE_LEVEL + 1, known: FEATURE_LEVEL })
        );
        net.lead().node.transfer(Some(1)).expect("a successor");
        net.settle();
    }
    net.server(1).node.raise_level(FEATURE_LEVEL + 1).expect("proposed");
    net.until(|net| {
        net.settle_refusing();
        net.server(2).events.contains(&Event::Halted { level: FEATURE_LEVEL + 1 })
    });
    assert_eq!(net.server(1).node.status().level, FEATURE_LEVEL + 1);
}

impl Net {
    /// As [`Net::settle`], where nodes may refuse messages.
    fn settle_refusing(&mut self) {
        self.now += 25_000;
        for server in self.servers.values_mut() {
            server.node.tick(self.now);
        }
        for _ in 0..100 {
            for node in self.servers.keys().copied().collect::<Vec<_>>() {
                self.run(node);
            }
            let Some(message) = self.messages.pop_front() else { return };
            let incoming = Incoming::decode(&message.bytes).expect("a message");
            let _ = self.server(message.to).node.step(incoming);
        }
    }
}

#[test]
fn a_leader_with_a_slow_disk_commits_by_the_others_and_hands_over() {
    let mut net = Net::grown(3);
    let leader = net.leader().expect("a leader");
    net.server(leader).is_slow = true;
    let position = net.put(b"a");
    assert!(net.server(leader).events.contains(&Event::Confirmed(position)), "two disks suffice");
    assert!(net.data(leader).is_empty(), "handed out once the own disk has it");
    let began = net.now;
    net.until(|net| net.leader().is_some_and(|now| now != leader));
    assert!(net.now - began >= Settings::default().disk_patience);
    let server = net.server(leader);
    assert!(server.events.contains(&Event::HandOverWanted(Ailment::SlowDisk)));
    server.is_slow = false;
    let messages = server.take_writes();
    net.messages.extend(messages);
    net.until(|net| net.data(leader) == [b"a"]);
}

/// Two leaders may both end a joint step: the second end changes nothing, on every node.
#[test]
fn a_second_end_of_a_joint_step_is_ignored() {
    let mut net = Net::grown(3);
    let before = net.lead().node.members().clone();
    for server in net.servers.values_mut() {
        assert!(!server.node.change_members(&Change::Leave));
        assert_eq!(*server.node.members(), before);
    }
    net.put(b"after");
    net.pass();
    assert_eq!(net.data(3), [b"after"]);
}

/// A commit that one answer brings and entries that are proposed before the messages leave: one append tells both.
#[test]
fn news_of_a_commit_travel_with_the_next_entries() {
    let mut net = Net::grown(3);
    let leader = net.leader().expect("a leader");
    let first = net.lead().node.propose(b"a".to_vec()).expect("proposed");
    net.run(leader);
    let sent = std::mem::take(&mut net.messages);
    assert_eq!(sent.len(), 2, "an append for each of the others");
    for Outgoing { to, bytes, .. } in sent {
        net.server(to).node.step(Incoming::decode(&bytes).expect("readable")).expect("taken");
        net.run(to);
    }
    let answers = std::mem::take(&mut net.messages);
    let server = net.lead();
    for answer in answers {
        server.node.step(Incoming::decode(&answer.bytes).expect("readable")).expect("taken");
        server.node.poll(0);
    }
    assert_eq!(server.node.status().committed, first.index);
    server.node.propose(b"b".to_vec()).expect("proposed");
    while let Some(write) = server.node.poll(0) {
        server.held.push(write);
    }
    let appends: Vec<Message> = server
        .messages()
        .iter()
        .map(|sent| Incoming::decode(&sent.bytes).expect("readable").message)
        .collect();
    let told = |message: &Message| (message.get_entries().len(), message.commit);
    assert_eq!(appends.iter().map(told).collect::<Vec<_>>(), [(1, first.index); 2], "{appends:?}");
}

/// A joiner of term 0 would panic here.
#[test]
fn a_joiner_refuses_a_vote_before_its_first_snapshot() {
    let mut net = Net::alone();
    net.start(2, 1, None, FEATURE_LEVEL);
    for kind in [MessageType::MsgRequestPreVote, MessageType::MsgRequestVote] {
        let mut message = Message { from: 9, to: 2, term: 1, index: 0, log_term: 0, ..Message::default() };
        message.set_msg_type(kind);
        message.commit = 5;
        let node = &mut net.server(2).node;
        node.step(Incoming { message, base: None }).expect("taken");
        assert!(node.poll(0).is_some() || node.poll_message().is_some());
        net.settle_refusing();
    }
}

/// The old leader begins to remove a follower, and only this one hears of it: it is elected, and hands over before it leaves.
#[test]
fn a_leader_that_is_being_removed_hands_over_first() {
    let mut net = Net::grown(4);
    if net.leader() != Some(1) {
        net.lead().node.transfer(Some(1)).expect("a successor");
        net.settle();
    }
    net.server(1).node.remove(2).expect("proposed");
    net.now += 1;
    net.run(1);
    // The entry reaches node 2, whose answer is lost with the leader.
    while let Some(message) = net.messages.pop_front() {
        if message.to == 2 {
            let incoming = Incoming::decode(&message.bytes).expect("a message");
            net.server(2).node.step(incoming).expect("taken");
        }
    }
    net.run(2);
    net.messages.clear();
    net.cut = [1].into();
    net.until(|net| net.servers.values().any(|server| server.events.contains(&Event::Removed)));
    let leads = |net: &Net, node: NodeId| net.servers[&node].node.status().role == Role::Leader;
    assert!(net.server(2).events.iter().any(|event| matches!(event, Event::Role { role: Role::Leader, .. })));
    net.until(|net| leads(net, 3) || leads(net, 4));
    assert!(!leads(&net, 2), "a leader outside the members");
    net.cut.clear();
    net.until(|net| net.server(1).node.members().len() == 3);
    net.put(b"after");
    net.pass();
    assert_eq!((net.data(1), net.data(3)), (vec![b"after".to_vec()], vec![b"after".to_vec()]));
}

#[test]
fn a_full_disk_takes_nothing_and_goes_on_later() {
    let mut net = Net::grown(3);
    let leader = net.leader().expect("a leader");
    let follower = if leader == 3 { 2 } else { 3 };
    net.server(follower).node.set_scarce(true);
    let last = net.put(b"a");
    net.pass();
    assert!(net.server(leader).events.contains(&Event::Confirmed(last)));
    assert_eq!((net.data(leader).len(), net.data(follower).len()), (1, 0));
    net.server(follower).node.set_scarce(false);
    net.until(|net| net.data(follower) == [b"a"]);

    net.server(leader).node.set_scarce(true);
    // What its owner has taken before is proposed still.
    let last = net.put(b"b");
    assert!(net.server(leader).events.contains(&Event::Confirmed(last)));
    net.until(|net| net.leader().is_some_and(|now| now != leader));
    assert!(net.server(leader).events.contains(&Event::HandOverWanted(Ailment::NoSpace)));
    net.put(b"c");
    net.pass();
    assert_eq!(net.data(leader).len(), 2);
    net.server(leader).node.set_scarce(false);
    net.until(|net| net.data(leader).len() == 3);
    // Where every disk is full, the leadership stays for a while where it is.
    for server in net.servers.values_mut() {
        server.node.set_scarce(true);
    }
    let term = net.lead().node.status().term;
    (0..150).for_each(|_| net.pass());
    assert!(net.lead().node.status().term <= term + 3);
}

/// A change that the window refuses must not stand in the way of the next one, though the log does not grow meanwhile.
#[test]
fn a_change_that_was_refused_can_be_asked_for_again() {
    let mut net = Net::grown(3);
    let leader = net.leader().expect("a leader");
    net.cut = net.servers.keys().copied().filter(|node| *node != leader).collect();
    net.put(&vec![7; 60_000]);
    assert_eq!(net.server(leader).node.propose(b"b".to_vec()), Err(Refusal::Busy));
    assert_eq!(net.server(leader).node.add("n9:1"), Err(Refusal::Busy));
    net.cut.clear();
    net.until(|net| net.data(leader).len() == 1);
    assert_eq!(net.leader(), Some(leader));
    assert_eq!(net.server(leader).node.add("n9:1"), Ok((4, 3)));
}

#[test]
fn a_node_that_lost_entries_is_told_so() {
    let mut net = Net::grown(3);
    let follower = if net.leader() == Some(3) { 2 } else { 3 };
    let old = net.server(follower).disk.crash(lycosa_journal::memory::Crash::Machine);
    for row in rows(0..5) {
        net.put(&row);
    }
    net.pass();
    net.open(follower, old, FEATURE_LEVEL);
    let mut refusals = Vec::new();
    for _ in 0..40 {
        net.now += 25_000;
        for server in net.servers.values_mut() {
            server.node.tick(net.now);
        }
        for node in net.servers.keys().copied().collect::<Vec<_>>() {
            net.run(node);
        }
        while let Some(message) = net.messages.pop_front() {
            let incoming = Incoming::decode(&message.bytes).expect("a message");
            refusals.extend(net.server(message.to).node.step(incoming).err());
            for node in net.servers.keys().copied().collect::<Vec<_>>() {
                net.run(node);
            }
        }
    }
    assert!(matches!(refusals[0], StepError::LostEntries { .. }), "{refusals:?}");
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let sound = settings(FEATURE_LEVEL);
    let start = |settings: Settings| {
        let (disk, base) = (MemoryDisk::new(), Base::first(GROUP, 0, FEATURE_LEVEL, "n1:1".to_owned()));
        name_snapshot(&disk, &base);
        let directory = Directory::on(Arc::new(disk));
        let identity = Identity { group: GROUP, node: 1, rank: 0 };
        GroupLog::create(directory.clone(), writer::Settings::default(), identity, Some(&base))
            .expect("a log");
        let opened = GroupLog::open(directory, writer::Settings::default(), FEATURE_LEVEL).expect("a log");
        Node::new(opened, settings).map(drop)
    };
    let with = |limits: Limits| start(Settings { limits, ..sound });
    let Limits { message_bytes: message, .. } = sound.limits;
    assert_eq!(with(Limits { uncommitted_bytes: message, ..sound.limits }), Ok(()));
    let uncommitted = message - 1;
    let refused = with(Limits { uncommitted_bytes: uncommitted, ..sound.limits });
    assert_eq!(refused, Err(SettingsError::Uncommitted { uncommitted, message }));
    assert_eq!(with(Limits { messages_in_flight: 0, ..sound.limits }), Err(SettingsError::InFlight));
    let short = ELECTION_TICKS as u64 - 1;
    let refused = start(Settings { election_timeout: short, ..sound });
    assert_eq!(refused, Err(SettingsError::ElectionTimeout(short)));
}
