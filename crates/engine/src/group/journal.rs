//! The node of a group as a journal: batches become proposals, and entries of other leaders come as news.
//!
//! Entries are numbered by the group, rows by the instance. The journal keeps which entry the data hold ([`GroupJournal::held`]):
//! a committed entry behind it is handed to the instance, one up to it is in the data already, as an own proposal or as a
//! part of the loaded data.
//!
//! Batches may be proposed while this node leads in the very term of which the instance was told. A batch that cannot be proposed
//! waits: for free space in the group's window, or for the end of a hand-over.
//!
//! A leader that is to hand over, by an order or because of its own disk, first refuses writes and waits until its batches are
//! confirmed. Then another node may lead, and this one keeps its data, since it has no unconfirmed rows. The wait ends after an
//! election timeout.
//!
//! Invariants:
//! - A batch is [`News::Durable`] when the majority has it. The batch at which a snapshot is taken also waits until this node
//!   has handed it out, since the snapshot's state is known then.
//! - An event of the node is taken when the news before it are taken, and none while the data are loaded or the queue comes up.
//!   So entries reach the instance in order and only when it can apply them.
//! - While data are loaded the node does not campaign.
//!
//! Absent: the log's disk ([`super::disk`]), links, the clock.

use std::collections::VecDeque;
use std::mem::take;

use lycosa_group::base::Base;
use lycosa_group::members::{Members, NodeId};
use lycosa_group::node::{
    Committed, Event, Incoming, Node, Outgoing, Payload, Progress, Refusal, Role, Status, StepError,
};
use lycosa_group::record::{Identity, Position};
use lycosa_instance::{Batch, Buffers, Election, Forwarded, Lsn};

use super::disk::{Done, Order};
use super::entry;
use crate::journal::{Journal, Membership, News, Pace};

/// Batches in flight at most. Further rows gather for the next one.
const MAX_IN_FLIGHT: usize = 32;

/// Where the node stands, as far as the instance knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Follows,
    /// The node leads in that term and has not handed out every entry of earlier ones.
    Elected(u64),
    /// The instance takes writes.
    Leads(u64),
}

/// A batch that was proposed.
#[derive(Debug)]
struct Own {
    position: Position,
    lsn: Lsn,
    buffers: Buffers,
    /// The number of the snapshot that is taken behind it.
    snapshot: Option<u64>,
}

/// A hand-over of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandOver {
    /// What the instance has taken is being confirmed, until this time, in microseconds of the node's clock.
    Drains { successor: NodeId, until: u64 },
    /// The successor was asked.
    Asked,
}

/// Where a member stands, for people and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// The node.
    pub identity: Identity,
    /// What the node says.
    pub node: Status,
    /// The members, as of the entries that the data hold.
    pub members: Members,
    /// The instance takes writes here.
    pub leads: bool,
    /// The data are being loaded: after a loss of unconfirmed rows, or from the leader's snapshot.
    pub is_loading: bool,
    /// The data hold every entry up to here.
    pub held: u64,
    /// Batches that are not confirmed.
    pub in_flight: usize,
    /// The group has removed this node.
    pub is_removed: bool,
}

/// See the module.
#[derive(Debug)]
pub struct GroupJournal {
    node: Node,
    now: u64,
    /// As of the last event that was taken from the node.
    members: Members,
    level: u32,
    taken: Position,
    /// The data hold every entry up to here.
    held: u64,
    phase: Phase,
    hand_over: Option<HandOver>,
    /// The term of this node in which it has asked for a higher level that is not decided.
    raised_in: Option<u64>,
    leader: Option<NodeId>,
    /// Proposals that were not handed out, the oldest first, and how many of them the instance knows to be durable.
    own: VecDeque<Own>,
    told: usize,
    confirmed: u64,
    /// Batches that are not proposed yet.
    waiting: VecDeque<Batch>,
    /// Batches are dropped until the instance has heard of its loss.
    is_losing: bool,
    /// The data are being loaded, or will be once the former ones have given their memory back.
    is_loading: bool,
    /// The queue comes up on loaded data.
    is_paused: bool,
    is_removed: bool,
    /// Why the node leaves its service, once it does.
    failure: Option<String>,
    /// States of snapshots that are being taken, the newest last.
    bases: VecDeque<Base>,
    /// The newest snapshot.
    snapshot: Option<Base>,
    reads: VecDeque<(u64, Lsn)>,
    news: VecDeque<News>,
    orders: VecDeque<Order>,
    notes: VecDeque<String>,
}

impl GroupJournal {
    /// `base` is the newest snapshot's; the data hold every entry up to `held`.
    pub(super) fn new(node: Node, base: Option<Base>, held: u64) -> Self {
        let members = base.as_ref().map_or(Members::default(), |base| base.members.clone());
        let level = base.as_ref().map_or(0, |base| base.level);
        let taken =
            base.as_ref().map_or(Position::default(), |base| Position { term: base.term, index: base.index });
        Self {
            node,
            now: 0,
            members,
            level,
            taken,
            held,
            phase: Phase::Follows,
            hand_over: None,
            raised_in: None,
            leader: None,
            own: VecDeque::new(),
            told: 0,
            confirmed: 0,
            waiting: VecDeque::new(),
            is_losing: false,
            is_loading: false,
            is_paused: false,
            is_removed: false,
            failure: None,
            bases: VecDeque::new(),
            snapshot: base,
            reads: VecDeque::new(),
            news: VecDeque::new(),
            orders: VecDeque::new(),
            notes: VecDeque::new(),
        }
    }

    /// Lets time pass: `now` is in microseconds of a clock that never goes back. Returns when to call again.
    pub fn tick(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        let next = if self.is_loading {
            // A campaign would be won by a node that cannot serve.
            self.now + self.node.period()
        } else {
            self.node.tick(self.now)
        };
        self.go_on_handing_over();
        self.propose_waiting();
        self.work();
        next
    }

    /// Takes a message of another member. Of a snapshot, the file must have arrived.
    ///
    /// # Errors
    /// [`StepError`]: the link is to be closed. Where this node's log contradicts the group's, or lacks what it has confirmed,
    /// or its program is too old, there is also [`News::Failed`].
    pub fn receive(&mut self, message: Incoming) -> Result<(), StepError> {
        let taken = self.node.step(message);
        if let Err(
            error @ (StepError::LostEntries { .. }
            | StepError::Contradiction { .. }
            | StepError::Level { .. }),
        ) = &taken
        {
            self.fail(error.to_string());
        }
        self.work();
        taken
    }

    /// What came of an order.
    pub fn handle(&mut self, done: Done) {
        match done {
            Done::Written(number) => self.node.persisted(number),
            Done::Read(wanted, found) => self.node.found(&wanted, found),
            Done::Restored { index, confirmed } => {
                self.is_loading = false;
                self.held = index;
                self.news.push_back(News::Restored { confirmed });
            }
            Done::State(base) => self.take_snapshot(*base),
            Done::Failed(cause) => self.fail(cause),
            Done::Note(text) => self.notes.push_back(text),
        }
        self.work();
    }

    /// The next thing for the disk, in order.
    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// The next message for another member, in order.
    pub fn poll_message(&mut self) -> Option<Outgoing> {
        self.node.poll_message()
    }

    /// Something for the log of the process.
    pub fn poll_note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }

    /// The link to a member broke: messages that were on it are lost.
    pub fn link_lost(&mut self, node: NodeId) {
        self.node.link_lost(node);
        self.work();
    }

    /// Whether the disk has less free space than its reserve: see [`Node::set_scarce`].
    pub fn set_scarce(&mut self, is_scarce: bool) {
        self.node.set_scarce(is_scarce);
    }

    /// Takes the empty server at `address` in: it catches up, then it becomes a voter. Returns its number and rank, for
    /// [`join`](super::join).
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn add(&mut self, address: &str) -> Result<(NodeId, u8), Refusal> {
        let added = self.node.add(address);
        self.work();
        added
    }

    /// Begins to remove a member.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn remove(&mut self, node: NodeId) -> Result<(), Refusal> {
        let removed = self.node.remove(node);
        self.work();
        removed
    }

    /// Begins to hand over to a voter, or to the one whose log is the longest. Returns which.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn transfer(&mut self, to: Option<NodeId>) -> Result<NodeId, Refusal> {
        if self.hand_over.is_some() {
            return Err(Refusal::Transferring);
        }
        let successor = self.node.successor(to)?;
        if self.leads() {
            let until = self.now + self.node.election_timeout();
            self.hand_over = Some(HandOver::Drains { successor, until });
            self.news.push_back(News::HandsOver);
        } else {
            // The instance has not heard that this node leads, and has taken nothing.
            self.node.transfer(Some(successor))?;
            self.work();
        }
        Ok(successor)
    }

    /// Asks the successor to lead.
    fn ask_successor(&mut self) {
        let Some(HandOver::Drains { successor, .. }) = self.hand_over else { return };
        self.hand_over = Some(HandOver::Asked);
        if let Err(refusal) = self.node.transfer(Some(successor)) {
            self.notes.push_back(format!("the group is not handed over to node {successor}: {refusal}"));
        }
        self.work();
    }

    /// At each tick: a drain that takes too long ends, and a leader whose successor does not lead goes on.
    fn go_on_handing_over(&mut self) {
        match self.hand_over {
            Some(HandOver::Drains { until, .. }) if until <= self.now => self.ask_successor(),
            Some(HandOver::Asked) if !self.node.is_transferring() && self.node.leads().is_some() => {
                self.hand_over = None;
                self.news.push_back(News::GoesOn);
            }
            _ => {}
        }
    }

    /// Asks the group to rise to a level of rows that every member knows.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn raise_level(&mut self, level: u32) -> Result<(), Refusal> {
        let raised = self.node.raise_level(level);
        self.work();
        raised.map(drop)
    }

    /// Asks the group to rise to the newest level that every member's program knows, as far as `knows` tells. For the leader;
    /// nothing happens elsewhere, and while an earlier rise is not decided.
    pub fn raise_to_known(&mut self, knows: impl Fn(NodeId) -> Option<u32>) {
        let Phase::Leads(term) = self.phase else { return };
        if self.level >= self.node.knows() || self.raised_in == Some(term) {
            return;
        }
        let own = self.node.identity().node;
        let others = self.members.iter().filter(|member| member.node != own);
        let least = others.map(|member| knows(member.node).unwrap_or(0)).min();
        let level = least.unwrap_or(u32::MAX).min(self.node.knows());
        if level > self.level && self.raise_level(level).is_ok() {
            self.raised_in = Some(term);
        }
    }

    /// The level of rows and records that this node goes up to.
    #[must_use]
    pub fn knows(&self) -> u32 {
        self.node.knows()
    }

    /// Who this node is in the group.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.node.identity()
    }

    /// The members, as of the entries that the instance has heard of.
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The leader that the node knows, perhaps this one.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        self.node.leader()
    }

    /// Whether the instance takes writes here.
    #[must_use]
    pub fn leads(&self) -> bool {
        matches!(self.phase, Phase::Leads(_))
    }

    /// Whether the group has removed this node.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// Why the node leaves its service, once it does. The news say so too; a server that waits for its first snapshot has no
    /// instance that would hear them.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether the folder has a snapshot. A server that joins gets its first one from the leader.
    #[must_use]
    pub fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// The state of the newest snapshot: one that is complete here, or was received and is durable.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Base> {
        self.snapshot.as_ref()
    }

    /// The data hold every entry up to here.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Where the node stands.
    #[must_use]
    pub fn status(&self) -> GroupStatus {
        GroupStatus {
            identity: self.node.identity(),
            node: self.node.status(),
            members: self.members.clone(),
            leads: self.leads(),
            is_loading: self.is_loading,
            held: self.held,
            in_flight: self.own.len() - self.told + self.waiting.len(),
            is_removed: self.is_removed,
        }
    }

    /// The state of the election, as the instance shows it; the caller adds the members and the counts of forwarded requests.
    #[must_use]
    pub fn election(&self) -> Election {
        let Status { role, leader, term, committed, .. } = self.node.status();
        let state = match role {
            _ if self.is_removed => "removed",
            Role::Leader => "leader",
            Role::Candidate => "candidate",
            Role::Follower => "follower",
        };
        let (node, voters) = (self.node.identity().node, self.members.voters() as u64);
        let behind = committed.saturating_sub(self.held);
        let forwarded = Forwarded::default();
        Election { state, node, leader, term, voters, behind, forwarded, members: Vec::new() }
    }

    /// The state of the snapshot with that number, which is being taken. It has to be durable ([`Base::write`]) before the
    /// snapshot gets its name: see [`Snapshots::seal_with`](crate::snapshots::Snapshots::seal_with). Known once the instance
    /// orders to complete the snapshot.
    #[must_use]
    pub fn base_of(&self, signature: u64) -> Option<&Base> {
        self.bases.iter().rev().find(|base| base.signature == signature)
    }

    /// The snapshot with that number is complete, with its state. Followers that are far behind get it from now on, and older
    /// entries may go.
    pub fn snapshot_taken(&mut self, signature: u64) {
        let Some(at) = self.bases.iter().position(|base| base.signature == signature) else { return };
        let base = self.bases.remove(at).expect("it was found");
        self.bases.retain(|other| other.index > base.index);
        self.take_snapshot(base);
        self.work();
    }

    fn take_snapshot(&mut self, base: Base) {
        // Members that answer and are a little behind, or load the snapshot before this one, are spared a snapshot, for at most one
        // more.
        let status = self.node.status();
        let is_near = |member: &&Progress| member.is_active || member.snapshot.is_some();
        let slowest =
            status.progress.iter().filter(is_near).map(Progress::reaches).min().unwrap_or(base.index);
        let before = self.snapshot.as_ref().map_or(base.index, |before| before.index);
        let index = base.index.min(slowest.max(before));
        self.node.snapshot_taken(base.clone());
        self.node.forget(index);
        self.snapshot = Some(base.clone());
        self.orders.push_back(Order::Forget { base: Box::new(base), index });
    }

    /// The node leaves its service.
    fn fail(&mut self, cause: String) {
        if self.failure.is_none() {
            self.news.push_back(News::Failed(cause.clone()));
            self.failure = Some(cause);
        }
    }

    /// Takes what the node has to write.
    fn work(&mut self) {
        while self.failure.is_none()
            && let Some(write) = self.node.poll(self.now)
        {
            self.orders.push_back(Order::Write(write));
        }
        if self.snapshot.is_none() {
            self.await_snapshot();
        }
    }

    /// A server that joins has no instance that would take events. All but its first snapshot come again once it has one.
    fn await_snapshot(&mut self) {
        while let Some(event) = self.node.next_event() {
            if let Event::Installed(base) = event {
                self.snapshot = Some(*base);
            }
        }
    }

    fn propose_waiting(&mut self) {
        while let Some(batch) = self.waiting.front() {
            let last = self.own.back().map_or(self.taken, |own| own.position);
            let position = if batch.rows.is_empty() {
                last
            } else {
                match self.phase {
                    Phase::Leads(term) if self.node.leads() == Some(term) => {}
                    _ => return,
                }
                match self.node.propose(entry::encode(&batch.rows, &batch.ends, &batch.owners)) {
                    Ok(position) => position,
                    // It is tried again at the next tick.
                    Err(_) => return,
                }
            };
            let Some(Batch { rows, ends, vclock, lsn, ends_file, .. }) = self.waiting.pop_front() else {
                return;
            };
            let snapshot = ends_file.then(|| vclock.signature());
            self.own.push_back(Own { position, lsn, buffers: Buffers { rows, ends }, snapshot });
        }
        self.hand_out_own();
    }

    /// Tells the instance of own batches that are durable, and forgets the batches that were handed out.
    fn hand_out_own(&mut self) {
        while let Some(own) = self.own.get_mut(self.told) {
            let is_taken = own.position.index <= self.taken.index;
            if !is_taken && (own.position.index > self.confirmed || own.snapshot.is_some()) {
                break;
            }
            if let Some(signature) = own.snapshot {
                let Position { term, index } = own.position;
                let group = self.node.identity().group;
                let (level, members) = (self.level, self.members.clone());
                self.bases.push_back(Base { group, index, term, signature, level, members });
                if self.bases.len() > 2 {
                    self.bases.pop_front();
                }
            }
            self.news.push_back(News::Durable { lsn: own.lsn, buffers: take(&mut own.buffers) });
            self.told += 1;
        }
        while self.told > 0 && self.own.front().is_some_and(|own| own.position.index <= self.taken.index) {
            self.own.pop_front();
            self.told -= 1;
        }
    }

    /// Takes an event of the node.
    fn event(&mut self, event: Event) {
        match event {
            Event::Role { role, leader, term } => self.role(role, leader, term),
            Event::Confirmed(position) => {
                self.confirmed = self.confirmed.max(position.index);
                self.hand_out_own();
            }
            Event::Committed(committed) => self.committed(committed),
            Event::Read { number, .. } => {
                let asked = self.reads.iter().rposition(|(read, _)| *read == number);
                if let Some(at) = asked {
                    let lsn = self.reads[at].1;
                    self.reads.drain(..=at);
                    self.news.push_back(News::Read { lsn });
                }
            }
            // The role has changed, and with it everything is void that was asked.
            Event::Lost(_) | Event::ReadLost { .. } => {}
            Event::Installed(base) => {
                self.taken = Position { term: base.term, index: base.index };
                (self.members, self.level) = (base.members.clone(), self.level.max(base.level));
                self.orders.push_back(Order::Level(self.level));
                let index = base.index;
                self.snapshot = Some(*base.clone());
                if index > self.held {
                    self.news.push_back(News::Suspended);
                    self.suspend();
                }
                self.orders.push_back(Order::Forget { base, index });
            }
            Event::Members(members) => self.members = members,
            Event::Removed => self.is_removed = true,
            Event::EntriesWanted(wanted) => self.orders.push_back(Order::Read(wanted)),
            Event::SnapshotWanted { .. } => self.news.push_back(News::SnapshotWanted),
            Event::HandOverWanted(ailment) => {
                // It is refused where a hand-over is under way, or where this node does not lead any more.
                if let Ok(successor) = self.transfer(None) {
                    self.notes
                        .push_back(format!("{ailment}: this node hands the group over to node {successor}"));
                }
            }
            Event::Halted { level } => {
                self.fail(format!(
                    "the group has risen to level {level}, which this program does not know: start a newer version"
                ));
            }
        }
    }

    fn role(&mut self, role: Role, leader: Option<NodeId>, term: u64) {
        let is_another = match self.phase {
            Phase::Follows => leader != self.leader,
            Phase::Elected(own) | Phase::Leads(own) => role != Role::Leader || own != term,
        };
        self.leader = leader;
        if is_another {
            self.hand_over = None;
            if let Phase::Leads(_) = std::mem::replace(&mut self.phase, Phase::Follows) {
                // Of batches with rows the instance says that its data are ahead; the other batches end a file for a snapshot
                // that is given up.
                self.own.truncate(self.told);
                self.waiting.clear();
            }
            self.reads.clear();
            self.news.push_back(News::Follows { leader });
        }
        if role == Role::Leader && self.phase == Phase::Follows {
            self.phase = Phase::Elected(term);
        }
    }

    fn committed(&mut self, committed: Committed) {
        let Committed { position, payload } = committed;
        self.taken = position;
        if let Payload::Level(level) = payload {
            self.level = self.level.max(level);
            self.raised_in = None;
            self.orders.push_back(Order::Level(level));
            self.news.push_back(News::Level(self.level));
        }
        let is_own = self.own.iter().any(|own| own.position == position);
        if position.index > self.held {
            self.held = position.index;
            if let Payload::Rows(data) = payload
                && !is_own
            {
                self.news.push_back(News::Entry { data: data.into() });
            }
        }
        self.hand_out_own();
        if self.phase == Phase::Elected(position.term) {
            self.phase = Phase::Leads(position.term);
            self.news.push_back(News::Level(self.level));
            self.news.push_back(News::Leads);
        }
    }
}

impl Journal for GroupJournal {
    type Membership = Self;

    fn pace(&self) -> Pace {
        Pace::Pipelined(MAX_IN_FLIGHT)
    }

    fn submit(&mut self, batch: Batch) {
        if self.is_losing || self.failure.is_some() {
            return;
        }
        self.waiting.push_back(batch);
        self.propose_waiting();
        self.work();
    }

    fn poll(&mut self) -> Option<News> {
        loop {
            if let Some(news) = self.news.pop_front() {
                if matches!(news, News::Restored { .. }) {
                    self.is_losing = false;
                }
                return Some(news);
            }
            if self.is_loading || self.is_paused || self.failure.is_some() {
                return None;
            }
            let event = self.node.next_event()?;
            self.event(event);
        }
    }

    fn membership(&mut self) -> Option<&mut Self> {
        Some(self)
    }
}

impl Membership for GroupJournal {
    fn read(&mut self, lsn: Lsn) {
        if let Phase::Leads(term) = self.phase
            && self.node.leads() == Some(term)
            && let Ok(number) = self.node.read()
        {
            self.reads.push_back((number, lsn));
            self.work();
        }
    }

    fn hand_over(&mut self) {
        self.ask_successor();
    }

    fn suspend(&mut self) {
        self.own.clear();
        self.told = 0;
        self.waiting.clear();
        self.reads.clear();
        self.is_losing = true;
        self.is_loading = true;
    }

    fn restore(&mut self) {
        self.orders.push_back(Order::Restore { index: self.taken.index });
    }

    fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    fn restate(&mut self, signature: u64) {
        let is_clean = self.own.is_empty() && self.waiting.is_empty();
        let Position { term, index } = self.taken;
        if is_clean
            && self.snapshot.as_ref().is_some_and(|base| base.signature == signature && base.index < index)
        {
            let group = self.node.identity().group;
            let base =
                Base { group, index, term, signature, level: self.level, members: self.members.clone() };
            self.orders.push_back(Order::State(Box::new(base)));
        }
    }
}
