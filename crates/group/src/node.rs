//! A node of a group: what it does about time, messages, proposals and a disk that takes its own time.
//!
//! The node has no I/O and no clock. Its owner calls [`Node::tick`], [`Node::step`] and [`Node::propose`], and then
//! [`Node::poll`] until it returns `None`, for records that the [`GroupLog`](crate::log::GroupLog) is to write; when these are
//! durable, it calls [`Node::persisted`]. Several writes may be with the disk. After each call the messages that
//! [`Node::poll_message`] returns may leave; a message that promises something about the log is among them once the log has
//! it. [`Node::next_event`] says what became of everything.
//!
//! # What `raft` is asked for
//!
//! | rule | why |
//! |---|---|
//! | election timeouts are fixed, by rank | random ones split votes; and `raft` draws them from a generator that no seed controls. With one possible value it draws that one |
//! | no priorities | a group with priorities was without a leader for 20 s |
//! | pre-vote and check-quorum | a server that was cut off neither disturbs a leader nor believes that it is one |
//! | reads ask the majority | a process that was stopped would answer from an expired lease |
//! | a group begins at term and index 1, with a snapshot; a joiner at term 1 | otherwise a joiner fails ("removed all voters"), and a refused pre-vote of term 0 panics |
//! | a joint step is ended by an entry of this crate | `raft` forgets to end it if the leader changes at the wrong time |
//! | a dropped change of the members leaves no trace | `raft` would take it for one under way until the log grows, and refuse others |
//! | a second end of a step is ignored, by every node alike | two leaders may both propose it |
//! | a leader is never outside the members | `raft` panics when such a leader commits. It is not removed by its own proposal; where it was elected meanwhile, it hands over first, and steps down if it is late |
//! | a snapshot counts once it is durable | the receiver's answer waits for it as for entries |
//! | a snapshot's entry is reported as applied once the snapshot is durable | `raft` looks for the entries before it at the next campaign otherwise, and panics |
//! | no tick while a snapshot is made durable | a campaign in that state fails an assertion |
//! | a snapshot has arrived when the receiver's heartbeat says so, too | the answer may be lost with a connection, and the leader would send that follower nothing more |
//! | each lost snapshot is reported | the leader sends that follower nothing otherwise |
//! | a snapshot's receiver is a member in its state | `raft` throws it away elsewhere |
//! | messages of a link stay in order | a connection that breaks loses everything behind a place, and nothing before it ([`crate::link`]) |
//!
//! A proposal is confirmed once `raft_log.committed` has reached it. `committed_entries` would come later: they also wait for the
//! leader's own disk, though two followers' disks suffice.
//!
//! Absent: what rows mean, connections, files, and when a snapshot is taken.

mod duties;
mod event;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use lycosa_tuple::mp;
use raft::eraftpb::{Entry, Message, MessageType};
use raft::{RawNode, ReadOnlyOption, StateRole};

pub use duties::MAX_HAND_OVER_LAG;
pub(crate) use event::payload;
pub use event::{
    Ailment, Committed, Event, Outgoing, Payload, Progress, Refusal, Role, Status, StepError, Write,
};
pub use settings::{ELECTION_TICKS, HEARTBEAT_TICKS, RANK_TICKS, Settings, SettingsError};

use crate::base::Base;
use crate::codec::CodecError;
use crate::log::{Found, Opened, Records, Wanted};
use crate::members::{Change, Members, NodeId};
use crate::message::{read_message, write_message};
use crate::record::{Ballot, Identity, Position};
use crate::window::Window;

/// Bytes of committed entries that are handed out at once, at least one entry.
const COMMITTED_BYTES: u64 = 1 << 20;

/// A message that was read and is not taken yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Incoming {
    message: Message,
    base: Option<Base>,
}

impl Incoming {
    /// Reads a message.
    ///
    /// # Errors
    /// [`CodecError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        read_message(bytes).map(|(message, base)| Self { message, base })
    }

    /// Who sent it.
    #[must_use]
    pub fn from(&self) -> NodeId {
        self.message.from
    }

    /// The state of the snapshot that it announces, whose files must have arrived before [`Node::step`].
    #[must_use]
    pub fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }
}

/// A round that is with the disk, or waits behind one that is.
#[derive(Debug)]
struct Flight {
    number: u64,
    /// When it was handed out.
    since: u64,
    is_write: bool,
    install: Option<Base>,
    messages: Vec<Message>,
}

/// A node of a group. See the module.
pub struct Node {
    raw: RawNode<Window>,
    identity: Identity,
    settings: Settings,
    members: Members,
    level: u32,
    /// Everything up to this index was handed out.
    applied: u64,
    now: u64,
    next_tick: Option<u64>,
    flights: VecDeque<Flight>,
    /// What the log has, or will have when the rounds that are with the disk are durable.
    written: Ballot,
    /// Proposals of this node that are neither confirmed nor lost, ascending.
    own: VecDeque<Position>,
    /// Reads that the majority is asked for.
    reads: Vec<u64>,
    /// Reads that wait for the first entry of the leader's term.
    waiting_reads: Vec<u64>,
    last_read: u64,
    standing: (Role, NodeId, u64),
    confirmed: u64,
    is_halted: bool,
    /// The disk is short of free space.
    is_scarce: bool,
    /// When the node last asked to hand over because of its disk.
    wanted_hand_over: Option<u64>,
    /// The time of each other node's last message. `raft` forgets all answers at each election timeout.
    heard: BTreeMap<NodeId, u64>,
    events: VecDeque<Event>,
    /// Messages that may leave, in order.
    outbox: VecDeque<Message>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("identity", &self.identity).field("status", &self.status()).finish()
    }
}

impl Node {
    /// A node that goes on from what its log came to. Its data are those of the log's snapshot; the entries behind that are
    /// handed out again as they become known to be committed.
    ///
    /// # Errors
    /// [`SettingsError`].
    ///
    /// # Panics
    /// When `raft` refuses a configuration that this crate has made of settings within their bounds.
    pub fn new(opened: Opened, settings: Settings) -> Result<(Self, crate::log::GroupLog), SettingsError> {
        settings.check()?;
        let Opened { log, base, ballot, entries } = opened;
        let identity = log.identity();
        let base = base.map(|(base, _)| base);
        let rank = usize::from(identity.rank);
        let timeout = ELECTION_TICKS + RANK_TICKS * rank;
        let config = raft::Config {
            id: identity.node,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            min_election_tick: timeout,
            max_election_tick: timeout + 1,
            applied: base.as_ref().map_or(0, |base| base.index),
            max_size_per_msg: settings.limits.message_bytes,
            max_inflight_msgs: settings.limits.messages_in_flight,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            max_uncommitted_size: settings.limits.uncommitted_bytes,
            max_committed_size_per_ready: COMMITTED_BYTES,
            ..raft::Config::default()
        };
        let members = base.as_ref().map_or(Members::default(), |base| base.members.clone());
        let level = base.as_ref().map_or(0, |base| base.level);
        let applied = config.applied;
        let window = Window::new(base, ballot, entries, settings.limits.memory_bytes);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, window, &logger)
            .expect("the settings were checked, and a node's number is not 0");
        let mut node = Self {
            raw,
            identity,
            settings,
            members,
            level,
            applied,
            now: 0,
            next_tick: None,
            flights: VecDeque::new(),
            written: ballot,
            own: VecDeque::new(),
            reads: Vec::new(),
            waiting_reads: Vec::new(),
            last_read: 0,
            standing: (Role::Follower, 0, ballot.term),
            confirmed: applied,
            is_halted: false,
            is_scarce: false,
            wanted_hand_over: None,
            heard: BTreeMap::new(),
            events: VecDeque::new(),
            outbox: VecDeque::new(),
        };
        node.account();
        Ok((node, log))
    }

    /// Whose node it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The members, as far as the entries that were handed out say.
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The term in which this node leads, if it does.
    #[must_use]
    pub fn leads(&self) -> Option<u64> {
        (self.standing.0 == Role::Leader).then_some(self.standing.2)
    }

    /// Microseconds between two ticks.
    #[must_use]
    pub fn period(&self) -> u64 {
        (self.settings.election_timeout / ELECTION_TICKS as u64).max(1)
    }

    /// [`Settings::election_timeout`].
    #[must_use]
    pub fn election_timeout(&self) -> u64 {
        self.settings.election_timeout
    }

    /// Lets time pass: `now` is in microseconds of a clock that never goes back. Returns when to call again. A node that was
    /// stopped for long has missed one tick, as if no time had passed.
    pub fn tick(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        let period = self.period();
        let due = *self.next_tick.get_or_insert(now + period);
        if now < due {
            return due;
        }
        let next = if now - due < period { due + period } else { now + period };
        self.next_tick = Some(next);
        if !self.is_halted && self.may_tick() {
            self.raw.tick();
            self.do_duties();
            self.account();
        }
        next
    }

    /// A campaign needs a log that is durable: no tick while a snapshot is with the disk, and none that could make the only
    /// voter the leader of entries that are.
    fn may_tick(&self) -> bool {
        let is_alone = self.members.voters() == 1 && !self.members.is_joint();
        let campaigns_alone = is_alone && self.standing.0 != Role::Leader && !self.is_log_durable();
        !self.is_installing() && !campaigns_alone
    }

    fn is_installing(&self) -> bool {
        self.flights.iter().any(|flight| flight.install.is_some())
    }

    fn is_log_durable(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        log.persisted == log.last_index()
    }

    /// Takes a message of another node. Of a snapshot, all files must have arrived.
    ///
    /// # Errors
    /// [`StepError`]: this node or the other one is not what the group takes it for. The node is as before; one whose own log
    /// contradicts the group's must leave its service.
    pub fn step(&mut self, incoming: Incoming) -> Result<(), StepError> {
        let Incoming { message, base } = incoming;
        if self.is_halted {
            return Err(StepError::Level { found: self.level, known: self.settings.knows });
        }
        if message.to != self.identity.node || message.from == self.identity.node {
            return Err(StepError::Addressee { to: message.to });
        }
        let log = &self.raw.raft.raft_log;
        match message.get_msg_type() {
            // The leader sends the entries again. Of a snapshot it has to hear that it is lost.
            MessageType::MsgAppend if self.is_scarce && !message.entries.is_empty() => return Ok(()),
            MessageType::MsgSnapshot if self.is_scarce => return Err(StepError::NoSpace),
            MessageType::MsgHeartbeat
                if message.term >= self.raw.raft.term && message.commit > log.last_index() =>
            {
                return Err(StepError::LostEntries { last: log.last_index(), confirmed: message.commit });
            }
            MessageType::MsgAppend if message.term >= self.raw.raft.term => {
                let contradicts = |entry: &&Entry| {
                    entry.index <= log.committed
                        && self.term_at(entry.index).is_some_and(|term| term != entry.term)
                };
                if let Some(entry) = message.get_entries().iter().find(contradicts) {
                    return Err(StepError::Contradiction { index: entry.index });
                }
            }
            MessageType::MsgTimeoutNow if !self.is_log_durable() => return Ok(()),
            _ => {}
        }
        if let Some(base) = base {
            if base.group != self.identity.group {
                return Err(StepError::Group { found: base.group });
            }
            if base.level > self.settings.knows {
                return Err(StepError::Level { found: base.level, known: self.settings.knows });
            }
        }
        let heartbeat_answered = message.get_msg_type() == MessageType::MsgHeartbeatResponse;
        let (from, commit) = (message.from, message.commit);
        self.heard.insert(from, self.now);
        // What raft refuses of a message from outside is a message that came too late.
        let _ = self.raw.step(message);
        if heartbeat_answered {
            self.settle_snapshot(from, commit);
        }
        self.account();
        Ok(())
    }

    /// A member that knows `commit` to be committed has every snapshot up to there. Its answer to the snapshot may have been
    /// lost with a connection, and `raft` would wait for that answer for good, sending nothing.
    fn settle_snapshot(&mut self, node: NodeId, commit: u64) {
        let arrived = self.raw.raft.prs().get(node).is_some_and(|progress| {
            progress.state == raft::ProgressState::Snapshot && progress.pending_snapshot <= commit
        });
        if arrived && self.standing.0 == Role::Leader {
            self.raw.report_snapshot(node, raft::SnapshotStatus::Finish);
        }
    }

    /// Says whether the disk has less free space than its reserve. While it has, a follower takes no entries and goes on
    /// later; a leader is to hand over ([`Event::HandOverWanted`]). Votes are still written, and so is what the leader's owner
    /// proposes until then: the reserve is for them.
    pub fn set_scarce(&mut self, is_scarce: bool) {
        self.is_scarce = is_scarce;
    }

    /// Proposes rows: returns where in the log they will stand, if the group takes them.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was proposed.
    pub fn propose(&mut self, rows: Vec<u8>) -> Result<Position, Refusal> {
        self.check_leader()?;
        if rows.is_empty() {
            return Err(Refusal::Empty);
        }
        self.propose_entry(Vec::new(), rows)
    }

    fn propose_entry(&mut self, context: Vec<u8>, data: Vec<u8>) -> Result<Position, Refusal> {
        self.raw.propose(context, data).map_err(|_| Refusal::Busy)?;
        let raft = &self.raw.raft;
        let position = Position { term: raft.term, index: raft.raft_log.last_index() };
        self.own.push_back(position);
        self.account();
        Ok(position)
    }

    /// Asks the group to rise to a level. Every member must know it: the owner has heard so from each.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn raise_level(&mut self, level: u32) -> Result<Position, Refusal> {
        self.check_leader()?;
        if level > self.settings.knows {
            return Err(Refusal::Level { wanted: level, known: self.settings.knows });
        }
        let mut context = Vec::new();
        mp::write_uint(&mut context, level.into());
        self.propose_entry(context, Vec::new())
    }

    /// Asks the majority whether this node still leads. [`Event::Read`] with the returned number comes once everything that
    /// was confirmed before this call is known here, or [`Event::ReadLost`].
    ///
    /// # Errors
    /// [`Refusal::NotLeader`].
    pub fn read(&mut self) -> Result<u64, Refusal> {
        if self.standing.0 != Role::Leader {
            return Err(self.not_leader());
        }
        self.last_read += 1;
        let number = self.last_read;
        // raft drops reads before the first entry of its leader's term.
        if self.raw.raft.commit_to_current_term() {
            self.ask(number);
        } else {
            self.waiting_reads.push(number);
        }
        Ok(number)
    }

    fn ask(&mut self, number: u64) {
        self.reads.push(number);
        self.raw.read_index(number.to_be_bytes().to_vec());
    }

    fn check_leader(&self) -> Result<(), Refusal> {
        match self.standing.0 {
            Role::Leader if self.raw.raft.lead_transferee.is_some() => Err(Refusal::Transferring),
            Role::Leader => Ok(()),
            _ => Err(self.not_leader()),
        }
    }

    fn not_leader(&self) -> Refusal {
        Refusal::NotLeader { leader: self.leader() }
    }

    /// The level of rows and records that this program knows.
    #[must_use]
    pub fn knows(&self) -> u32 {
        self.settings.knows
    }

    /// The leader that this node knows.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        (self.standing.1 != 0).then_some(self.standing.1)
    }

    /// What the log has to take, if anything. To be called until it returns `None`, after each other call.
    pub fn poll(&mut self, now: u64) -> Option<Write> {
        self.now = self.now.max(now);
        while !self.is_halted && self.raw.has_ready() {
            let write = self.round();
            self.account();
            if write.is_some() {
                return write;
            }
        }
        None
    }

    /// The next message that may leave. The messages to one node are to stay in order.
    pub fn poll_message(&mut self) -> Option<Outgoing> {
        while let Some(message) = self.outbox.pop_front() {
            let mut bytes = Vec::new();
            if write_message(&mut bytes, &message) {
                let has_base = message.get_msg_type() == MessageType::MsgSnapshot;
                let base = has_base.then(|| Base::decode(&message.get_snapshot().data).ok()).flatten();
                return Some(Outgoing { to: message.to, bytes, base: base.map(Box::new) });
            }
        }
        None
    }

    /// Queues a message. A queued append without entries gives way to a later append at the same place of the log, which tells at
    /// least as much.
    fn send(&mut self, message: Message) {
        if message.get_msg_type() == MessageType::MsgAppend
            && let Some(at) = self.outbox.iter().rposition(|queued| queued.to == message.to)
            && is_superseded(&self.outbox[at], &message)
        {
            self.outbox.remove(at);
        }
        self.outbox.push_back(message);
    }

    fn round(&mut self) -> Option<Write> {
        let mut ready = self.raw.ready();
        let number = ready.number();
        let mut later = ready.take_persisted_messages();
        // A leader's messages leave at once, but for answers that it gave before it led.
        for message in ready.take_messages() {
            if is_answer(&message) {
                later.push(message);
            } else {
                self.send(message);
            }
        }
        let snapshot = ready.snapshot().clone();
        let install = (!snapshot.is_empty())
            .then(|| Base::decode(&snapshot.data).expect("the state was read from its message already"));
        let entries = ready.take_entries();
        let committed = ready.take_committed_entries();
        let reads = ready.take_read_states();
        let must_sync = ready.must_sync();
        if let Some(base) = &install {
            self.raw.mut_store().install(base.clone());
        }
        self.raw.mut_store().append(entries.iter().cloned());
        self.raw.advance_append_async(ready);
        if let Some(base) = &install {
            self.members = base.members.clone();
            self.level = self.level.max(base.level);
            self.applied = base.index;
        }
        for entry in committed {
            self.hand_out(entry);
        }
        for read in reads {
            let number = read.request_ctx.as_slice().try_into().map_or(0, u64::from_be_bytes);
            // A read that is lost already stays lost.
            if let Some(at) = self.reads.iter().position(|pending| *pending == number) {
                self.reads.swap_remove(at);
                self.events.push_back(Event::Read { number, index: read.index });
            }
        }
        self.ask_for_missing();
        let mut write = None;
        if must_sync {
            let ballot = self.ballot();
            let reset = install.as_ref().map(|base| Position { term: base.term, index: base.index });
            let records = Records { reset, ballot: (ballot != self.written).then_some(ballot), entries };
            self.written = ballot;
            write = Some(Write { number, records, install: install.clone() });
        }
        if must_sync || !self.flights.is_empty() {
            let since = self.now;
            self.flights.push_back(Flight { number, since, is_write: must_sync, install, messages: later });
        } else {
            self.raw.on_persist_ready(number);
            later.into_iter().for_each(|message| self.send(message));
        }
        write
    }

    fn ballot(&self) -> Ballot {
        let hard = self.raw.raft.hard_state();
        // The commit index may be ahead of the records that are written so far.
        let last = self.raw.store().last();
        Ballot { term: hard.term, vote: hard.vote, commit: hard.commit.min(last) }
    }

    /// Writes up to this one are durable, with the snapshot that they install. Messages that waited for them may leave.
    pub fn persisted(&mut self, number: u64) {
        while self.flights.front().is_some_and(|flight| flight.number <= number || !flight.is_write)
            && let Some(flight) = self.flights.pop_front()
        {
            self.raw.on_persist_ready(flight.number);
            if let Some(base) = flight.install {
                // raft takes entries before the snapshot for unapplied ones until it hears of this.
                self.raw.advance_apply_to(base.index);
                self.events.push_back(Event::Members(base.members.clone()));
                self.events.push_back(Event::Installed(Box::new(base)));
            }
            flight.messages.into_iter().for_each(|message| self.send(message));
        }
        self.account();
    }

    /// What became of proposals, reads, members and the node, oldest first.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn hand_out(&mut self, entry: Entry) {
        let position = Position { term: entry.term, index: entry.index };
        let payload = payload(entry);
        let payload = match payload {
            Payload::Change(change) => {
                if self.change_members(&change) {
                    Payload::Change(change)
                } else {
                    Payload::Nothing
                }
            }
            Payload::Level(level) => {
                self.level = self.level.max(level);
                self.is_halted |= level > self.settings.knows;
                Payload::Level(level)
            }
            other => other,
        };
        self.applied = position.index;
        self.raw.advance_apply_to(position.index);
        self.events.push_back(Event::Committed(Committed { position, payload }));
        if self.is_halted {
            self.events.push_back(Event::Halted { level: self.level });
        }
    }

    /// Applies a change of the members; false if it does not fit, as a second end of a joint step.
    fn change_members(&mut self, change: &Change) -> bool {
        if !self.members.apply(change) {
            return false;
        }
        let found = self.raw.apply_conf_change(&change.conf_change());
        let state = found.expect("raft accepts what fits the list of members");
        debug_assert!(is_same(&state, &self.members.conf_state()), "{state:?} is not {:?}", self.members);
        self.events.push_back(Event::Members(self.members.clone()));
        let own = self.members.get(self.identity.node).map(|member| member.standing);
        if own.is_none() {
            self.events.push_back(Event::Removed);
        }
        if own.is_none() && self.raw.raft.state == StateRole::Leader {
            self.leave_office();
        }
        true
    }

    fn term_at(&self, index: u64) -> Option<u64> {
        self.raw.raft.raft_log.term(index).ok().filter(|term| *term != 0)
    }

    /// Derives what the owner hears of: role, confirmations, losses.
    fn account(&mut self) {
        let raft = &self.raw.raft;
        let role = match raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Follower => Role::Follower,
        };
        let standing = (role, raft.leader_id, raft.term);
        if standing != self.standing {
            let was_leader =
                self.standing.0 == Role::Leader && (role != Role::Leader || raft.term != self.standing.2);
            self.standing = standing;
            let (role, _, term) = standing;
            self.events.push_back(Event::Role { role, leader: self.leader(), term });
            if was_leader {
                for number in self.reads.drain(..).chain(self.waiting_reads.drain(..)) {
                    self.events.push_back(Event::ReadLost { number });
                }
            }
        }
        if self.standing.0 == Role::Leader && self.raw.raft.commit_to_current_term() {
            for number in std::mem::take(&mut self.waiting_reads) {
                self.ask(number);
            }
        }
        self.account_for_proposals();
        let needed = self.applied.min(self.raw.raft.raft_log.persisted);
        self.raw.mut_store().trim(needed);
    }

    fn account_for_proposals(&mut self) {
        let is_kept = |position: &Position| self.term_at(position.index) == Some(position.term);
        // The log of a leader that was replaced keeps a beginning of its own entries.
        let kept = if self.own.back().is_none_or(is_kept) {
            self.own.len()
        } else {
            self.own.partition_point(is_kept)
        };
        let committed = self.raw.raft.raft_log.committed;
        let confirmed = self.own.iter().take(kept).take_while(|position| position.index <= committed).count();
        if confirmed > 0 {
            let last = self.own[confirmed - 1];
            self.confirmed = last.index;
            self.events.push_back(Event::Confirmed(last));
        }
        if kept < self.own.len() {
            self.events.push_back(Event::Lost(self.own[kept]));
            self.own.truncate(kept);
        }
        self.own.drain(..confirmed);
    }

    fn ask_for_missing(&mut self) {
        for wanted in self.raw.mut_store().take_wanted() {
            self.events.push_back(Event::EntriesWanted(wanted));
        }
        if let Some((index, node)) = self.raw.mut_store().take_wanted_snapshot() {
            self.events.push_back(Event::SnapshotWanted { index, node });
        }
    }

    /// Entries that [`Event::EntriesWanted`] asked for; `None` if they could not be read.
    pub fn found(&mut self, wanted: &Wanted, found: Option<Found>) {
        let Some(found) = found else {
            self.raw.mut_store().give_up(wanted);
            return;
        };
        for context in self.raw.mut_store().serve(wanted, found) {
            self.raw.on_entries_fetched(context);
        }
        self.raw.mut_store().end_serving();
        self.ask_for_missing();
        self.account();
    }

    /// The state that a snapshot of the present data has: of everything that was handed out. `None` before the first
    /// snapshot, while one is being installed, and while events wait that change the data.
    #[must_use]
    pub fn base(&self, signature: u64) -> Option<Base> {
        let changes_data = |event: &Event| matches!(event, Event::Committed(_) | Event::Installed(_));
        if self.is_installing() || self.events.iter().any(changes_data) {
            return None;
        }
        let Identity { group, .. } = self.identity;
        let (index, level, members) = (self.applied, self.level, self.members.clone());
        let term = self.term_at(index)?;
        (!members.is_empty()).then_some(Base { group, index, term, signature, level, members })
    }

    /// A snapshot is durable, with its state. Followers that are far behind get this one from now on.
    pub fn snapshot_taken(&mut self, base: Base) {
        self.raw.mut_store().set_base(base);
    }

    /// Forgets entries up to `index`, as far as the newest snapshot holds them. A follower that needs them gets the snapshot.
    pub fn forget(&mut self, index: u64) {
        let base = self.raw.store().base().map_or(0, |base| base.index);
        self.raw.mut_store().remove(index.min(base).min(self.applied));
    }

    /// The link to a node broke: messages that were on it are lost.
    pub fn link_lost(&mut self, node: NodeId) {
        let state = self.raw.raft.prs().get(node).map(|progress| progress.state);
        self.raw.report_unreachable(node);
        if state == Some(raft::ProgressState::Snapshot) {
            self.raw.report_snapshot(node, raft::SnapshotStatus::Failure);
        }
        self.account();
    }

    /// Whether a node is this one, or has sent something within the last election timeout.
    fn is_active(&self, node: NodeId) -> bool {
        let since = self.heard.get(&node).map(|heard| self.now.saturating_sub(*heard));
        node == self.identity.node || since.is_some_and(|since| since <= self.settings.election_timeout)
    }

    /// Where the node stands.
    #[must_use]
    pub fn status(&self) -> Status {
        let raft = &self.raw.raft;
        let log = &raft.raft_log;
        let progress = |(node, progress): (&NodeId, &raft::Progress)| Progress {
            node: *node,
            matched: progress.matched,
            is_active: self.is_active(*node),
            snapshot: (progress.state == raft::ProgressState::Snapshot).then_some(progress.pending_snapshot),
        };
        let mut progress: Vec<Progress> = match self.standing.0 {
            Role::Leader => raft.prs().iter().map(progress).collect(),
            _ => Vec::new(),
        };
        progress.sort_unstable_by_key(|progress| progress.node);
        Status {
            role: self.standing.0,
            leader: self.leader(),
            term: raft.term,
            committed: log.committed,
            durable: log.persisted,
            applied: self.applied,
            last: log.last_index(),
            level: self.level,
            memory_bytes: self.raw.store().bytes(),
            progress,
        }
    }
}

/// Messages that promise something about the sender's log.
fn is_answer(message: &Message) -> bool {
    matches!(
        message.get_msg_type(),
        MessageType::MsgAppendResponse
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVoteResponse
    )
}

/// Whether a queued append holds nothing that a later append to the same node does not say again.
fn is_superseded(queued: &Message, later: &Message) -> bool {
    queued.get_msg_type() == MessageType::MsgAppend
        && queued.entries.is_empty()
        && (queued.term, queued.index, queued.log_term) == (later.term, later.index, later.log_term)
        && queued.commit <= later.commit
}

fn is_same(found: &raft::eraftpb::ConfState, expected: &raft::eraftpb::ConfState) -> bool {
    let sorted = |nodes: &[NodeId]| {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        nodes
    };
    let of = |state: &raft::eraftpb::ConfState| {
        [&state.voters, &state.learners, &state.voters_outgoing, &state.learners_next]
            .map(|nodes| sorted(nodes))
    };
    of(found) == of(expected)
}
