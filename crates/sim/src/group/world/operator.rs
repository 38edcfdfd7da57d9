//! The operator of a world: adds and removes servers, hands over, and raises the group's level.

use lycosa_group::members::{MAX_MEMBERS, NodeId};
use lycosa_journal::memory::Crash;

use super::{NEWER, Server, World, violation};
use crate::violation::{Checked, hold};

impl World<'_> {
    /// The operator adds an empty server.
    pub(in crate::group) fn operate_add(&mut self) -> Checked<()> {
        let living = self.servers.values().filter(|server| !server.is_removed).count();
        let Some(leader) = self.some_leader().filter(|_| living < MAX_MEMBERS) else { return Ok(()) };
        let address = format!("n{}", self.next_address);
        self.next_address += 1;
        let running = self.server(leader).running.as_mut().expect("it leads");
        let Ok((node, rank)) = running.node.add(&address) else { return Ok(()) };
        let term = running.node.status().term;
        // The server of an earlier attempt that failed is still empty.
        if let Some(earlier) = self.servers.get(&node) {
            if self.history.has_led_since(term) {
                return Ok(());
            }
            hold!(earlier.is_empty(), "the number {node} is used twice");
            self.end(node, Crash::Process)?;
        }
        let joiner = Server::joiner(node, rank).map_err(violation)?;
        self.settle_in(joiner)
    }

    pub(super) fn operate_remove(&mut self, node: NodeId) -> Checked<()> {
        let Some(leader) = self.some_leader() else { return Ok(()) };
        let running = self.server(leader).running.as_mut().expect("it leads");
        if running.node.members().voters() > 2 {
            // A refusal is an answer.
            let _ = running.node.remove(node);
        }
        // A server that was removed is taken away some time.
        let is_gone = self.servers[&node].is_removed && self.random.one_in(2);
        if is_gone {
            self.take_away(node)?;
        }
        Ok(())
    }

    fn take_away(&mut self, node: NodeId) -> Checked<()> {
        self.end(node, Crash::Process)?;
        self.servers.remove(&node);
        self.links.retain(|(from, to), _| *from != node && *to != node);
        Ok(())
    }

    pub(in crate::group) fn operate_transfer(&mut self, node: NodeId) -> Checked<()> {
        let Some(leader) = self.some_leader() else { return Ok(()) };
        let to = if self.random.one_in(2) { Some(node) } else { None };
        let running = self.server(leader).running.as_mut().expect("it leads");
        self.totals.transfers += u64::from(running.node.transfer(to).is_ok());
        self.events(leader, false)
    }

    /// The group rises once every server knows the level.
    pub(super) fn operate_raise(&mut self) -> Checked<()> {
        let all_know = self.servers.values().all(|server| server.knows >= NEWER);
        let Some(leader) = self.some_leader().filter(|_| all_know && !self.is_raised) else { return Ok(()) };
        let running = self.server(leader).running.as_mut().expect("it leads");
        self.is_raised = running.node.raise_level(NEWER).is_ok();
        self.events(leader, false)
    }
}
