//! Events of the group: snapshots, broken links, deaths and starts of machines, and orders of the operator.

use lycosa_engine::group::FEATURE_LEVEL;
use lycosa_group::members::NodeId;
use lycosa_journal::memory::{Crash, Fault};

use super::super::server::Server;
use super::{World, violation};
use crate::violation::{Checked, hold};

impl World<'_> {
    pub(super) fn snapshot(&mut self, node: NodeId) -> Checked {
        let now = self.now;
        let server = self.server(node);
        if server.is_awake(now)
            && let Some(body) = server.body_mut()
            && !body.instance.is_suspended()
            && !body.instance.is_rebuilding()
        {
            body.instance.request_checkpoint();
        }
        self.work(node)
    }

    pub(super) fn cut(&mut self, from: NodeId, to: NodeId) -> Checked {
        let lingers = self.random.one_in(3);
        let delay = self.random.below(100_000);
        let Some(link) = self.links.get_mut(&(from, to)) else { return Ok(()) };
        if link.open.is_none() {
            return Ok(());
        }
        self.trace.line(format_args!("the link from {from} to {to} breaks"));
        self.totals.cuts += 1;
        self.totals.lost_snapshots += link.close(lingers, delay);
        self.tell_lost(from, to)
    }

    /// No message passes between a server and another one, or all others.
    pub(super) fn separate(&mut self, node: NodeId, other: Option<NodeId>, swallows: bool) -> Checked {
        self.trace.line(format_args!("{node} is separated from {other:?}, without a word: {swallows}"));
        let others: Vec<NodeId> = match other {
            Some(other) => vec![other],
            None => self.servers.keys().copied().filter(|other| *other != node).collect(),
        };
        for other in others {
            for pair in [(node, other), (other, node)] {
                let link = self.links.entry(pair).or_default();
                (link.is_blocked, link.is_swallowing) = (true, swallows);
                if !swallows {
                    self.cut(pair.0, pair.1)?;
                }
            }
        }
        Ok(())
    }

    /// Links work again. A link that swallowed messages breaks first.
    pub(super) fn heal(&mut self) -> Checked {
        let pairs: Vec<(NodeId, NodeId)> = self.links.keys().copied().collect();
        for (from, to) in pairs {
            let link = self.links.get_mut(&(from, to)).expect("a link that was listed");
            link.is_blocked = false;
            if std::mem::take(&mut link.is_swallowing) && link.open.is_some() {
                self.totals.cuts += 1;
                self.totals.lost_snapshots += link.close(false, 0);
                self.tell_lost(from, to)?;
            }
        }
        Ok(())
    }

    /// A machine dies, often in the middle of a write.
    pub(super) fn crash(&mut self, node: NodeId) -> Checked {
        let (seed, operations) = (self.random.next(), self.random.below(8));
        let server = self.server(node);
        let has_orders = server.running.as_ref().is_some_and(|running| !running.core.orders.is_empty());
        if has_orders {
            server.disk.fail_after(operations, Fault::Freeze);
            // The machine is gone, and its last messages with it.
            server.write(u64::MAX);
            self.totals.torn_writes += 1;
        }
        let crash = if self.random.one_in(3) { Crash::Machine } else { Crash::Scattered(seed) };
        self.end(node, crash)
    }

    pub(super) fn end(&mut self, node: NodeId, crash: Crash) -> Checked {
        let server = self.server(node);
        let Some(running) = server.running.take() else { return Ok(()) };
        if let Some(body) = &running.body {
            let (taken, restored) = (body.snapshots_taken, body.restored);
            self.totals.snapshots += taken;
            self.totals.loads += restored;
        }
        let server = self.server(node);
        drop(running);
        server.disk = server.disk.crash(crash);
        server.stopped_until = 0;
        self.trace.line(format_args!("{node} dies: {crash:?}"));
        self.totals.crashes += 1;
        for client in &mut self.clients {
            if client.connection.as_ref().is_some_and(|connection| connection.node == node) {
                client.lose_connection();
            }
        }
        self.end_relays(node)?;
        self.end_orders(node)?;
        let pairs: Vec<(NodeId, NodeId)> = self.links.keys().copied().collect();
        for pair in pairs.into_iter().filter(|(from, to)| *from == node || *to == node) {
            let lingers = self.random.one_in(3);
            let link = self.links.get_mut(&pair).expect("a link that was listed");
            if pair.0 == node {
                // What it has sent still arrives, or not.
                link.close(lingers, 0);
            } else {
                self.totals.lost_snapshots += link.close(false, 0);
                link.vanish();
                self.tell_lost(pair.0, node)?;
            }
        }
        Ok(())
    }

    pub(super) fn start(&mut self, node: NodeId) -> Checked {
        let now = self.now;
        let Self { servers, random, plan, .. } = self;
        let server = servers.get_mut(&node).expect("a node that was picked from the servers");
        if server.running.is_some() {
            return Ok(());
        }
        server.stalled_until = 0;
        if random.one_in(3) {
            server.knows = FEATURE_LEVEL;
        }
        if let Err(error) = server.start(plan, random, now) {
            // Its disk has refused something, or its program is too old. The next start must do.
            server.knows = FEATURE_LEVEL;
            server.disk = server.disk.crash(Crash::Process);
            let again = server.start(plan, random, now);
            again.map_err(|again| {
                violation(format!("{node} does not start: {again}; and before that: {error}"))
            })?;
            self.totals.faults += 1;
        }
        self.trace.line(format_args!("{node} starts"));
        self.work(node)
    }

    /// The operator adds an empty server.
    pub(super) fn operate_add(&mut self) -> Checked {
        let Some(leader) = self.leader().filter(|_| self.servers.len() < 5) else { return Ok(()) };
        let address = format!("n{}", self.next_address);
        self.next_address += 1;
        let running = self.server(leader).running.as_mut().expect("it leads");
        let Ok((node, rank)) = running.core.journal.add(&address) else { return Ok(()) };
        let term = running.core.journal.status().node.term;
        self.work(leader)?;
        // The server of an earlier attempt that failed is still empty.
        if let Some(earlier) = self.servers.get(&node) {
            // What a leader proposes that has a successor comes to nothing.
            if self.leaders.keys().next_back().is_some_and(|newest| *newest > term) {
                return Ok(());
            }
            hold!(earlier.is_empty(), "the number {node} is used twice");
            self.end(node, Crash::Process)?;
        }
        let joiner = Server::joiner(&self.plan, node, rank)?;
        self.settle_in(joiner)
    }

    pub(super) fn operate_remove(&mut self, node: NodeId) -> Checked {
        let Some(leader) = self.leader() else { return Ok(()) };
        let running = self.server(leader).running.as_mut().expect("it leads");
        let members = running.core.journal.members();
        if members.voters() > 2 {
            // A refusal is an answer.
            self.totals.removals += u64::from(running.core.journal.remove(node).is_ok());
            self.work(leader)?;
        }
        Ok(())
    }

    pub(super) fn operate_transfer(&mut self, node: NodeId) -> Checked {
        let Some(leader) = self.leader() else { return Ok(()) };
        let to = if self.random.one_in(2) { Some(node) } else { None };
        let running = self.server(leader).running.as_mut().expect("it leads");
        let successor = running.core.journal.transfer(to).ok();
        self.totals.transfers += u64::from(successor.is_some());
        if let Some(successor) = successor.filter(|_| self.are_relayed && self.random.one_in(2)) {
            // The leader goes on after a while, and serves clients that it has refused.
            let until = self.now + 4_000_000;
            self.trace.line(format_args!("{successor} stops"));
            self.server(successor).stopped_until = until;
        }
        self.work(leader)
    }
}
