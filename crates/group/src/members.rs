//! The members of a group, and the changes that lead from one list to the next.
//!
//! A list is data: the log carries each [`Change`] in an entry, every node applies it at the same index, and a snapshot's
//! state carries the list itself. A server joins as a learner, is promoted once it has caught up, and is removed. Promotion
//! and removal are joint steps: the group first needs majorities of the voters before and after the change, then
//! [`Change::Leave`] ends that.
//!
//! Invariants:
//! - a node's number is never used again, so a server that comes back with an old log is a stranger;
//! - ranks of members differ; a node keeps its rank for life, because its election timeout follows from it;
//! - at least one member is a voter of the list that a joint step leads to.
//!
//! Absent: which server leads, and how far a learner has caught up ([`crate::node`]).

use lycosa_tuple::mp::{self, Reader};
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};

use crate::codec::{CodecError, exhausted, fields, text, uint8};

/// The number of a node in its group; never 0.
pub type NodeId = u64;

/// Members that a group has at most.
pub const MAX_MEMBERS: usize = 5;
/// The longest address, in bytes.
pub const MAX_ADDRESS_BYTES: usize = 1024;

/// How a member takes part in decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Gets the log and decides nothing.
    Learner,
    /// Decides.
    Voter,
    /// In a joint step: decides in the list after it, and was a learner before.
    Joining,
    /// In a joint step: decides in the list before it, and is no member after.
    Leaving,
}

impl Standing {
    const ALL: [Self; 4] = [Self::Learner, Self::Voter, Self::Joining, Self::Leaving];

    fn code(self) -> u8 {
        match self {
            Self::Learner => 0,
            Self::Voter => 1,
            Self::Joining => 2,
            Self::Leaving => 3,
        }
    }

    /// The name, as operators read it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Learner => "learner",
            Self::Voter => "voter",
            Self::Joining => "joining",
            Self::Leaving => "leaving",
        }
    }

    /// Whether the member decides once the present step is over.
    #[must_use]
    pub fn stays_voter(self) -> bool {
        matches!(self, Self::Voter | Self::Joining)
    }
}

/// A server of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub node: NodeId,
    /// Its place among the election timeouts, from 0 on: lower ranks campaign earlier.
    pub rank: u8,
    /// Where the other members reach it.
    pub address: String,
    /// How it takes part.
    pub standing: Standing,
}

/// What an entry of the log does to the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A server becomes a learner.
    Add {
        /// Its number, which no node had before.
        node: NodeId,
        /// Its rank, which no member has.
        rank: u8,
        /// Where it is reached.
        address: String,
    },
    /// A learner begins to become a voter: a joint step.
    Promote(NodeId),
    /// A member begins to leave: a joint step.
    Remove(NodeId),
    /// Ends a joint step.
    Leave,
}

/// The list. See the module for what holds of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// By ascending number.
    list: Vec<Member>,
    is_joint: bool,
    /// Greater than every number that a member ever had.
    next: NodeId,
}

impl Members {
    /// The list of a new group, which has one voter: number 1, rank 0.
    #[must_use]
    pub fn first(address: String) -> Self {
        let member = Member { node: 1, rank: 0, address, standing: Standing::Voter };
        Self { list: vec![member], is_joint: false, next: 2 }
    }

    /// The members by ascending number.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.list.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none, as a node sees it that waits for its first snapshot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The member with this number.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<&Member> {
        let at = self.list.binary_search_by_key(&node, |member| member.node).ok()?;
        Some(&self.list[at])
    }

    /// Whether a joint step is under way.
    #[must_use]
    pub fn is_joint(&self) -> bool {
        self.is_joint
    }

    /// Members that decide once the present step is over.
    #[must_use]
    pub fn voters(&self) -> usize {
        self.list.iter().filter(|member| member.standing.stays_voter()).count()
    }

    /// The change that makes a server at `address` a learner. `None` when the group is full.
    #[must_use]
    pub fn addition(&self, address: String) -> Option<Change> {
        let is_free = |rank: &u8| self.list.iter().all(|member| member.rank != *rank);
        let rank = (0..MAX_MEMBERS as u8).find(is_free)?;
        Some(Change::Add { node: self.next, rank, address })
    }

    /// Applies a change. False if it does not fit the list, which is then as before.
    #[must_use]
    pub fn apply(&mut self, change: &Change) -> bool {
        let mut next = self.clone();
        let fits = next.try_apply(change);
        if fits {
            *self = next;
        }
        fits
    }

    fn try_apply(&mut self, change: &Change) -> bool {
        let joint =
            std::mem::replace(&mut self.is_joint, matches!(change, Change::Promote(_) | Change::Remove(_)));
        if joint != (*change == Change::Leave) {
            return false;
        }
        match change {
            Change::Add { node, rank, address } => {
                if *node < self.next || self.list.iter().any(|member| member.rank == *rank) {
                    return false;
                }
                let standing = Standing::Learner;
                self.list.push(Member { node: *node, rank: *rank, address: address.clone(), standing });
                self.next = node + 1;
                true
            }
            Change::Promote(node) => self.turn(*node, Standing::Learner, Standing::Joining),
            Change::Remove(node) => {
                let fits = self.turn(*node, Standing::Voter, Standing::Leaving) || self.drop_learner(*node);
                fits && self.voters() > 0
            }
            Change::Leave => {
                self.list.retain(|member| member.standing != Standing::Leaving);
                for member in &mut self.list {
                    if member.standing == Standing::Joining {
                        member.standing = Standing::Voter;
                    }
                }
                true
            }
        }
    }

    fn turn(&mut self, node: NodeId, from: Standing, to: Standing) -> bool {
        let found = self.list.iter_mut().find(|member| member.node == node && member.standing == from);
        found.map(|member| member.standing = to).is_some()
    }

    /// A learner decides nothing, so it is gone when the step begins.
    fn drop_learner(&mut self, node: NodeId) -> bool {
        let before = self.list.len();
        self.list.retain(|member| member.node != node || member.standing != Standing::Learner);
        self.list.len() < before
    }

    /// The same as `raft` has it.
    pub(crate) fn conf_state(&self) -> ConfState {
        let mut state = ConfState::default();
        for member in &self.list {
            let node = member.node;
            match member.standing {
                Standing::Learner => state.mut_learners().push(node),
                Standing::Voter | Standing::Joining => state.mut_voters().push(node),
                Standing::Leaving => {}
            }
            if self.is_joint && matches!(member.standing, Standing::Voter | Standing::Leaving) {
                state.mut_voters_outgoing().push(node);
            }
        }
        state
    }

    /// Appends the list to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        mp::write_array(out, 3);
        mp::write_bool(out, self.is_joint);
        mp::write_uint(out, self.next);
        mp::write_array(
            out,
            u32::try_from(self.list.len()).expect("a group has at most MAX_MEMBERS members"),
        );
        for member in &self.list {
            mp::write_array(out, 4);
            mp::write_uint(out, member.node);
            mp::write_uint(out, member.rank.into());
            mp::write_str(out, member.address.as_bytes());
            mp::write_uint(out, member.standing.code().into());
        }
    }

    /// Reads a list and checks that it is one.
    ///
    /// # Errors
    /// [`CodecError`].
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        fields(reader, 3)?;
        let is_joint = reader.bool()?;
        let next = reader.uint()?;
        let count = reader.array()?;
        let mut list: Vec<Member> = Vec::new();
        for _ in 0..count {
            fields(reader, 4)?;
            let node = reader.uint()?;
            let rank = uint8(reader, "rank")?;
            let address = text(reader, MAX_ADDRESS_BYTES)?;
            let code = uint8(reader, "standing")?;
            let standing = Standing::ALL.into_iter().find(|standing| standing.code() == code);
            let standing = standing.ok_or(CodecError::Value("standing", code.into()))?;
            list.push(Member { node, rank, address, standing });
        }
        let members = Self { list, is_joint, next };
        members.check().map(|()| members)
    }

    fn check(&self) -> Result<(), CodecError> {
        let numbers = self.list.iter().map(|member| member.node);
        let ascend = numbers.clone().zip(numbers.clone().skip(1)).all(|(before, after)| before < after);
        let are_used = numbers.into_iter().all(|node| node != 0 && node < self.next);
        let ranks_differ = self
            .list
            .iter()
            .enumerate()
            .all(|(at, member)| self.list[..at].iter().all(|earlier| earlier.rank != member.rank));
        let steps = |standing| self.list.iter().filter(|member| member.standing == standing).count();
        let moving = steps(Standing::Joining) + steps(Standing::Leaving);
        let is_step = moving <= usize::from(self.is_joint);
        let decides = self.list.is_empty() || self.voters() > 0;
        let is_list = ascend && are_used && ranks_differ && is_step && decides;
        if is_list && self.list.len() <= MAX_MEMBERS { Ok(()) } else { Err(CodecError::Members) }
    }
}

impl Change {
    /// Appends the change to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Add { node, rank, address } => {
                mp::write_array(out, 4);
                mp::write_uint(out, 0);
                mp::write_uint(out, *node);
                mp::write_uint(out, (*rank).into());
                mp::write_str(out, address.as_bytes());
            }
            Self::Promote(node) | Self::Remove(node) => {
                mp::write_array(out, 2);
                mp::write_uint(out, if matches!(self, Self::Promote(_)) { 1 } else { 2 });
                mp::write_uint(out, *node);
            }
            Self::Leave => {
                mp::write_array(out, 1);
                mp::write_uint(out, 3);
            }
        }
    }

    /// Reads a change, which is all of `bytes`.
    ///
    /// # Errors
    /// [`CodecError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let reader = &mut reader;
        let count = reader.array()?;
        let kind = reader.uint()?;
        let change = match (kind, count) {
            (0, 4) => Self::Add {
                node: reader.uint()?,
                rank: uint8(reader, "rank")?,
                address: text(reader, MAX_ADDRESS_BYTES)?,
            },
            (1, 2) => Self::Promote(reader.uint()?),
            (2, 2) => Self::Remove(reader.uint()?),
            (3, 1) => Self::Leave,
            _ => return Err(CodecError::Value("kind of a change", kind)),
        };
        exhausted(reader).map(|()| change)
    }

    /// The same as `raft` takes it: a learner comes in one step, and all else is a joint step that this crate ends.
    pub(crate) fn conf_change(&self) -> ConfChangeV2 {
        let (transition, single) = match self {
            Self::Add { node, .. } => {
                (ConfChangeTransition::Auto, Some((*node, ConfChangeType::AddLearnerNode)))
            }
            Self::Promote(node) => (ConfChangeTransition::Explicit, Some((*node, ConfChangeType::AddNode))),
            Self::Remove(node) => (ConfChangeTransition::Explicit, Some((*node, ConfChangeType::RemoveNode))),
            Self::Leave => (ConfChangeTransition::Auto, None),
        };
        let mut change = ConfChangeV2::default();
        change.set_transition(transition);
        let single = single.map(|(node, kind)| {
            let mut single = ConfChangeSingle { node_id: node, ..ConfChangeSingle::default() };
            single.set_change_type(kind);
            single
        });
        change.set_changes(single.into_iter().collect::<Vec<_>>().into());
        change
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grown(count: usize) -> Members {
        let mut members = Members::first("a:1".to_owned());
        while members.len() < count {
            let change = members.addition(format!("n{}:1", members.len())).expect("a free rank");
            let Change::Add { node, .. } = change else { panic!("{change:?}") };
            assert!(members.apply(&change) && members.apply(&Change::Promote(node)));
            assert!(members.apply(&Change::Leave));
        }
        members
    }

    fn read(members: &Members) -> Result<Members, CodecError> {
        let mut bytes = Vec::new();
        members.encode(&mut bytes);
        Members::decode(&mut Reader::new(&bytes))
    }

    #[test]
    fn a_server_joins_in_three_steps_and_leaves_in_two() {
        let mut members = Members::first("a:1".to_owned());
        let change = members.addition("b:1".to_owned()).expect("a free rank");
        assert_eq!(change, Change::Add { node: 2, rank: 1, address: "b:1".to_owned() });
        assert!(members.apply(&change));
        assert_eq!(members.get(2).map(|member| member.standing), Some(Standing::Learner));
        assert!(members.apply(&Change::Promote(2)) && members.is_joint());
        assert_eq!((members.conf_state().voters.len(), members.conf_state().voters_outgoing.len()), (2, 1));
        assert!(members.apply(&Change::Leave) && !members.is_joint());
        assert!(members.apply(&Change::Remove(1)));
        assert_eq!(members.conf_state().voters_outgoing, [1, 2]);
        assert!(members.apply(&Change::Leave));
        assert_eq!(members.iter().map(|member| member.node).collect::<Vec<_>>(), [2]);
        // The rank is free again, the number is not.
        assert_eq!(
            members.addition("c:1".to_owned()),
            Some(Change::Add { node: 3, rank: 0, address: "c:1".to_owned() })
        );
    }

    #[test]
    fn changes_that_do_not_fit_change_nothing() {
        let mut members = grown(2);
        let before = members.clone();
        let add = Change::Add { node: 2, rank: 4, address: String::new() };
        let taken = Change::Add { node: 9, rank: 1, address: String::new() };
        for change in [add, taken, Change::Leave, Change::Promote(1), Change::Promote(7), Change::Remove(7)] {
            assert!(!members.apply(&change), "{change:?}");
            assert_eq!(members, before);
        }
        let mut alone = grown(1);
        assert!(!alone.apply(&Change::Remove(1)));
        assert!(members.apply(&Change::Remove(1)));
        assert!(!members.apply(&Change::Remove(2)), "one step at a time");
        assert_eq!(grown(MAX_MEMBERS).addition(String::new()), None);
    }

    #[test]
    fn a_learner_is_gone_when_its_removal_begins() {
        let mut members = grown(2);
        let change = members.addition("c:1".to_owned()).expect("a free rank");
        assert!(members.apply(&change) && members.apply(&Change::Remove(3)));
        assert_eq!(members.get(3), None);
        assert!(members.is_joint() && members.apply(&Change::Leave));
        assert_eq!(members.len(), 2);
    }

    #[test]
    fn lists_that_cannot_be_are_refused() {
        let sound = grown(3);
        assert_eq!(read(&sound), Ok(sound.clone()));
        let wrong = |spoil: fn(&mut Members)| {
            let mut members = sound.clone();
            spoil(&mut members);
            assert_eq!(read(&members), Err(CodecError::Members), "{members:?}");
        };
        wrong(|members| members.list.swap(0, 1));
        wrong(|members| members.next = 3);
        wrong(|members| members.list[0].node = 0);
        wrong(|members| members.list[0].rank = 1);
        wrong(|members| members.list[0].standing = Standing::Leaving);
        wrong(|members| members.list.iter_mut().for_each(|member| member.standing = Standing::Learner));
    }

    proptest! {
        #[test]
        fn a_change_reads_back(kind in 0..4, node in 1_u64.., rank in 0_u8..5, address in "[a-z:0-9]{0,20}") {
            let change = match kind {
                0 => Change::Add { node, rank, address },
                1 => Change::Promote(node),
                2 => Change::Remove(node),
                _ => Change::Leave,
            };
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            prop_assert_eq!(Change::decode(&bytes), Ok(change));
            bytes.push(0);
            prop_assert!(Change::decode(&bytes).is_err());
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Change::decode(&bytes);
            let _ = Members::decode(&mut Reader::new(&bytes));
        }
    }
}
