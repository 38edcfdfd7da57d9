//! Input and output of a node.

use bytes::Bytes;
use lycosa_tuple::mp::Reader;
use raft::eraftpb::{Entry, EntryType};
use uuid::Uuid;

use crate::base::Base;
use crate::log::{Records, Wanted};
use crate::members::{Change, Members, NodeId};
use crate::record::Position;

/// What a node does in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Takes the log from a leader.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Takes proposals.
    Leader,
}

/// A message for another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The other node.
    pub to: NodeId,
    /// The message, for [`Incoming::decode`](super::Incoming::decode) there.
    pub bytes: Vec<u8>,
    /// The message announces this snapshot: its files go over the link before it.
    pub base: Option<Box<Base>>,
}

/// Records for the log, which the disk takes in the order of their numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// For [`Node::persisted`](super::Node::persisted).
    pub number: u64,
    /// For [`GroupLog::append`](crate::log::GroupLog::append), which a sync follows.
    pub records: Records,
    /// The snapshot that replaces log and data. Its files get their names, and are durable, before the records are.
    pub install: Option<Base>,
}

/// What an entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: the first entry of a leader's term, or a change of the members that did not fit.
    Nothing,
    /// Rows, as proposed.
    Rows(Bytes),
    /// The members are others now.
    Change(Change),
    /// The group has risen to this level.
    Level(u32),
}

/// What an entry holds.
pub(crate) fn payload(entry: Entry) -> Payload {
    if entry.get_entry_type() != EntryType::EntryNormal {
        // The entry was read by this crate's codec or made by this node.
        return Change::decode(&entry.context).map_or(Payload::Nothing, Payload::Change);
    }
    if !entry.context.is_empty() {
        let level = Reader::new(&entry.context).uint().ok().and_then(|level| u32::try_from(level).ok());
        return level.map_or(Payload::Nothing, Payload::Level);
    }
    if entry.data.is_empty() { Payload::Nothing } else { Payload::Rows(entry.data) }
}

/// An entry that the group has decided on. Every node is handed the same ones in the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Where it stands.
    pub position: Position,
    /// What it holds.
    pub payload: Payload,
}

/// What became of something.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The node's role, its leader or its term changed.
    Role {
        /// Its role.
        role: Role,
        /// The leader that it knows.
        leader: Option<NodeId>,
        /// Its term.
        term: u64,
    },
    /// All own proposals up to this one will be handed out by every node: their outcome may be told.
    Confirmed(Position),
    /// The own proposal at this place, and all behind it, gave way to another leader's entries here: this node will not tell what
    /// becomes of them. A node that has them still may lead and confirm them, and so may this one, if it dies before the
    /// change is on its disk. If [`Event::Installed`] comes with it, a snapshot took their place, which may hold them.
    Lost(Position),
    /// The next entry. It comes after the node's own disk has it.
    Committed(Committed),
    /// This node led when [`Node::read`](super::Node::read) returned `number`: the entries up to `index` include every
    /// one that was confirmed before.
    Read {
        /// The read.
        number: u64,
        /// The index to wait for.
        index: u64,
    },
    /// The node stopped leading before the majority answered.
    ReadLost {
        /// The read.
        number: u64,
    },
    /// A snapshot is installed: the data are its content now, and the next entry is the one behind it.
    Installed(Box<Base>),
    /// The members are these now.
    Members(Members),
    /// This node is no member any more.
    Removed,
    /// The node wants these entries from its files ([`GroupLog::read`](crate::log::GroupLog::read)), for
    /// [`Node::found`](super::Node::found).
    EntriesWanted(Wanted),
    /// A follower needs a snapshot that holds at least `index`, with a state that names the follower as a member.
    SnapshotWanted {
        /// The least index.
        index: u64,
        /// The follower.
        node: NodeId,
    },
    /// The group has risen to a level that this program does not know. The node takes nothing more.
    Halted {
        /// The level.
        level: u32,
    },
    /// This node leads, and another one should: its owner is to hand over ([`Node::transfer`](super::Node::transfer)).
    HandOverWanted(Ailment),
}

/// Why a leader is to hand over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ailment {
    /// Its disk takes longer than [`Settings::disk_patience`](super::Settings::disk_patience).
    #[error("the disk of the group's log does not answer")]
    SlowDisk,
    /// Its disk is short of free space.
    #[error("the disk has less free space than its reserve")]
    NoSpace,
    /// It is being removed.
    #[error("this node is being removed from the group")]
    Removal,
}

/// Why a proposal was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The node does not lead.
    #[error("this node does not lead the group; {}", leader_text(*.leader))]
    NotLeader {
        /// The leader that it knows.
        leader: Option<NodeId>,
    },
    /// The leader is handing over.
    #[error("the leader is handing over to another node: try again in a moment")]
    Transferring,
    /// More is proposed and not committed than the window takes.
    #[error("the group has more uncommitted rows than its window takes: try again in a moment")]
    Busy,
    /// A proposal without rows.
    #[error("a proposal needs at least one row")]
    Empty,
    /// Another change of the members is under way.
    #[error("another change of the members is under way: one at a time")]
    ChangePending,
    /// The group has as many members as it may.
    #[error("the group has {0} members, which is its limit: remove one first")]
    Full(usize),
    /// An address of another member, or one that is no address.
    #[error("{0} is the address of a member already")]
    Address(String),
    /// No member has this number.
    #[error("node {0} is no member of the group")]
    NotMember(NodeId),
    /// The member is no learner.
    #[error("node {0} is a voter already")]
    NotLearner(NodeId),
    /// The leader was asked to remove itself.
    #[error("node {0} leads the group: transfer the leadership to another node first")]
    RemovesLeader(NodeId),
    /// The group would be without a voter.
    #[error("node {0} is the last voter: `leave` ends the group")]
    LastVoter(NodeId),
    /// The node is no voter that answers.
    #[error("node {0} cannot lead: it is no voter, or it does not answer")]
    Successor(NodeId),
    /// No other voter answers.
    #[error("no other voter answers: no member can lead in place of this one")]
    NoSuccessor,
    /// The leader was asked to hand over to itself.
    #[error("node {0} leads the group already")]
    Leads(NodeId),
    /// A voter that lacks too much of the leader's log.
    #[error(
        "node {node} lacks {entries} entries of the leader's log: hand over once it has caught up; \
         `lycosa cluster status` shows its lag"
    )]
    Behind {
        /// The voter.
        node: NodeId,
        /// Entries that it lacks.
        entries: u64,
    },
    /// A level that the program does not know.
    #[error("level {wanted} is unknown, this program knows level {known}")]
    Level {
        /// The level.
        wanted: u32,
        /// The program's.
        known: u32,
    },
}

fn leader_text(leader: Option<NodeId>) -> String {
    leader.map_or_else(|| "it knows no leader".to_owned(), |leader| format!("node {leader} does"))
}

/// Why a message was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// It is for another node.
    #[error("a message for node {to} came here")]
    Addressee {
        /// The other node.
        to: NodeId,
    },
    /// It is of another group.
    #[error("a snapshot of group {found} came here")]
    Group {
        /// The other group.
        found: Uuid,
    },
    /// The group counts on entries that this node does not have any more.
    #[error(
        "this node has confirmed entry {confirmed} and has {last} entries: its disk lost some. Remove it from the group, and add an empty server"
    )]
    LostEntries {
        /// The last entry that it has.
        last: u64,
        /// An entry that it confirmed.
        confirmed: u64,
    },
    /// The leader has another entry where this node has a committed one.
    #[error(
        "the leader's entry {index} contradicts a committed one here: one of the disks is wrong. Stop this node, and compare the logs"
    )]
    Contradiction {
        /// Which entry.
        index: u64,
    },
    /// A snapshot for a disk that is short of free space. The link is to be closed, so that the sender hears of the loss.
    #[error("a snapshot came, and the disk has less free space than its reserve: make space")]
    NoSpace,
    /// A level that the program does not know.
    #[error("the group has risen to level {found}, this program knows level {known}: start a newer version")]
    Level {
        /// The level.
        found: u32,
        /// The program's.
        known: u32,
    },
}

/// How far a member is, as the leader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The member.
    pub node: NodeId,
    /// Its log is the leader's up to this index.
    pub matched: u64,
    /// It has answered within the last election timeout.
    pub is_active: bool,
    /// The last entry of the snapshot that it is being sent, if it is sent one.
    pub snapshot: Option<u64>,
}

impl Progress {
    /// The last entry that it has, or will have with the snapshot that it is being sent.
    #[must_use]
    pub fn reaches(&self) -> u64 {
        self.snapshot.unwrap_or(self.matched)
    }
}

/// Where a node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Its role.
    pub role: Role,
    /// The leader that it knows.
    pub leader: Option<NodeId>,
    /// Its term.
    pub term: u64,
    /// Entries up to this index are committed.
    pub committed: u64,
    /// Entries up to this index are on the node's own disk.
    pub durable: u64,
    /// Entries up to this index were handed out.
    pub applied: u64,
    /// The last entry.
    pub last: u64,
    /// The level that the group has risen to.
    pub level: u32,
    /// Bytes of entries in memory.
    pub memory_bytes: u64,
    /// Of all members, while the node leads.
    pub progress: Vec<Progress>,
}
