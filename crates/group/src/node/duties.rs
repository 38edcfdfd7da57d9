//! Duties of a leader besides replication: members, handing over, and getting out of the way of a slow disk.

use raft::StateRole;

use super::{Ailment, Event, Node, Refusal, Role};
use crate::members::{Change, MAX_ADDRESS_BYTES, NodeId, Standing};

/// A learner is promoted once it lacks at most this many entries.
const CAUGHT_UP_ENTRIES: u64 = 64;
/// A successor lacks at most this many entries of the leader's log. It gets them before it leads, while proposals are refused.
pub const MAX_HAND_OVER_LAG: u64 = 1_000;

impl Node {
    /// Takes a server in as a learner. The leader promotes it once it has caught up. Returns its number and rank,
    /// which the server needs to begin its log.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn add(&mut self, address: &str) -> Result<(NodeId, u8), Refusal> {
        self.check_change()?;
        let is_taken = self.members.iter().any(|member| member.address == address);
        if is_taken || address.len() > MAX_ADDRESS_BYTES {
            return Err(Refusal::Address(address.to_owned()));
        }
        let change = self.members.addition(address.to_owned()).ok_or(Refusal::Full(self.members.len()))?;
        let Change::Add { node, rank, .. } = change else { unreachable!("an addition adds") };
        self.propose_change(&change).map(|()| (node, rank))
    }

    /// Begins to remove a member; the leader ends the step later.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn remove(&mut self, node: NodeId) -> Result<(), Refusal> {
        self.check_change()?;
        let standing = self.members.get(node).ok_or(Refusal::NotMember(node))?.standing;
        if standing == Standing::Voter && self.members.voters() == 1 {
            return Err(Refusal::LastVoter(node));
        }
        if node == self.identity.node {
            return Err(Refusal::RemovesLeader(node));
        }
        self.propose_change(&Change::Remove(node))
    }

    /// Hands over to a voter, or to the one whose log is the longest. Returns which. Proposals are refused until the other
    /// node leads, or for an election timeout ([`Self::is_transferring`]).
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn transfer(&mut self, to: Option<NodeId>) -> Result<NodeId, Refusal> {
        let successor = self.successor(to)?;
        self.raw.transfer_leader(successor);
        self.account();
        Ok(successor)
    }

    /// Whether another node has been asked to lead, and this one leads still.
    #[must_use]
    pub fn is_transferring(&self) -> bool {
        self.raw.raft.state == StateRole::Leader && self.raw.raft.lead_transferee.is_some()
    }

    /// The voter that [`Self::transfer`] would hand over to now.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn successor(&self, to: Option<NodeId>) -> Result<NodeId, Refusal> {
        self.check_leader()?;
        let found = match to {
            Some(node) if node == self.identity.node => return Err(Refusal::Leads(node)),
            Some(node) => {
                let found = self.successors().find(|&(_, candidate)| candidate == node);
                found.ok_or(Refusal::Successor(node))
            }
            None => self.successors().max().ok_or(Refusal::NoSuccessor),
        };
        let (matched, successor) = found?;
        let entries = self.raw.raft.raft_log.last_index().saturating_sub(matched);
        if entries > MAX_HAND_OVER_LAG {
            return Err(Refusal::Behind { node: successor, entries });
        }
        Ok(successor)
    }

    /// Other voters of the list that the present step leads to, which have answered lately: each with its last entry.
    fn successors(&self) -> impl Iterator<Item = (u64, NodeId)> {
        let progress = self.raw.raft.prs();
        self.members.iter().filter_map(move |member| {
            let found = progress.get(member.node)?;
            let is_other = member.node != self.identity.node;
            let can_lead = member.standing.stays_voter() && is_other && self.is_active(member.node);
            can_lead.then_some((found.matched, member.node))
        })
    }

    fn check_change(&self) -> Result<(), Refusal> {
        self.check_leader()?;
        let is_pending = self.members.is_joint() || self.raw.raft.has_pending_conf();
        if is_pending { Err(Refusal::ChangePending) } else { Ok(()) }
    }

    fn propose_change(&mut self, change: &Change) -> Result<(), Refusal> {
        let mut context = Vec::new();
        change.encode(&mut context);
        // raft takes a change that it drops for one that is under way, until the log grows.
        let pending = self.raw.raft.pending_conf_index;
        let proposed = self.raw.propose_conf_change(context, change.conf_change());
        if proposed.is_err() {
            self.raw.raft.pending_conf_index = pending;
            return Err(Refusal::Busy);
        }
        self.account();
        Ok(())
    }

    /// A removal that this node did not propose takes it out while it leads: the best successor campaigns at once.
    pub(super) fn leave_office(&mut self) {
        if let Some((_, node)) = self.successors().max() {
            self.raw.raft.send_timeout_now(node);
        }
        let term = self.raw.raft.term;
        self.raw.raft.become_follower(term, raft::INVALID_ID);
    }

    /// At each tick.
    pub(super) fn do_duties(&mut self) {
        if self.raw.raft.state != StateRole::Leader {
            return;
        }
        if let Some(ailment) = self.ailment()
            && self.successor(None).is_ok()
            && !self.events.contains(&Event::HandOverWanted(ailment))
        {
            self.wanted_hand_over = Some(self.now);
            self.events.push_back(Event::HandOverWanted(ailment));
        }
        if !self.stays() {
            // Without a successor the present leader is still the best one.
            return;
        }
        if self.check_leader().is_err() || self.raw.raft.has_pending_conf() {
            return;
        }
        if self.members.is_joint() {
            // A refusal is repeated at the next tick.
            let _ = self.propose_change(&Change::Leave);
        } else if let Some(node) = self.learner_that_caught_up() {
            let _ = self.propose_change(&Change::Promote(node));
        }
    }

    /// Why another node should lead, if one should.
    fn ailment(&self) -> Option<Ailment> {
        if !self.stays() {
            return Some(Ailment::Removal);
        }
        let patience = self.settings.disk_patience;
        let has_passed = |since: u64| self.now.saturating_sub(since) >= patience;
        // Where all disks are bad, the leadership does not go round faster than that.
        if self.wanted_hand_over.is_some_and(|before| !has_passed(before)) {
            return None;
        }
        let oldest = self.flights.iter().find(|flight| flight.is_write);
        match oldest {
            Some(flight) if has_passed(flight.since) => Some(Ailment::SlowDisk),
            _ => self.is_scarce.then_some(Ailment::NoSpace),
        }
    }

    /// Whether this node is a voter of the list that the present step leads to.
    fn stays(&self) -> bool {
        self.members.get(self.identity.node).is_some_and(|member| member.standing.stays_voter())
    }

    /// A learner whose log meets this one's. Before that it would be a voter that confirms nothing.
    fn learner_that_caught_up(&self) -> Option<NodeId> {
        debug_assert_eq!(self.standing.0, Role::Leader);
        let log = &self.raw.raft.raft_log;
        let (first, last) = (log.first_index(), log.last_index());
        let has_caught_up = |node| {
            let progress = self.raw.raft.prs().get(node)?;
            let needs_snapshot =
                progress.state == raft::ProgressState::Snapshot || progress.matched + 1 < first;
            let is_near = !needs_snapshot && progress.matched + CAUGHT_UP_ENTRIES >= last;
            (is_near && self.is_active(node)).then_some(node)
        };
        let learners = self.members.iter().filter(|member| member.standing == Standing::Learner);
        learners.map(|member| member.node).find_map(has_caught_up)
    }
}
