//! What fails in a world: links, processes and machines; and how they come back.

use lycosa_group::members::NodeId;
use lycosa_journal::memory::{Crash, Fault};

use super::{NEWER, World, violation};
use crate::violation::Checked;

impl World<'_> {
    pub(in crate::group) fn cut(&mut self, from: NodeId, to: NodeId) -> Checked<()> {
        let lingers = self.random.one_in(3);
        let delay = self.random.below(100_000);
        let Some(link) = self.links.get_mut(&(from, to)) else { return Ok(()) };
        if link.open.is_none() {
            return Ok(());
        }
        self.trace.line(format_args!("the link from {from} to {to} breaks"));
        self.totals.cuts += 1;
        self.totals.lost_snapshots += link.close(lingers, delay);
        self.tell_lost(from, to);
        self.events(from, false)
    }

    /// No message passes between a server and another one, or all others.
    pub(in crate::group) fn separate(
        &mut self,
        node: NodeId,
        other: Option<NodeId>,
        swallows: bool,
    ) -> Checked<()> {
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
    pub(in crate::group) fn heal(&mut self) {
        let pairs: Vec<(NodeId, NodeId)> = self.links.keys().copied().collect();
        for (from, to) in pairs {
            let link = self.links.get_mut(&(from, to)).expect("a link that was listed");
            link.is_blocked = false;
            if std::mem::take(&mut link.is_swallowing) && link.open.is_some() {
                self.totals.cuts += 1;
                self.totals.lost_snapshots += link.close(false, 0);
                self.tell_lost(from, to);
            }
        }
    }

    pub(in crate::group) fn kill(&mut self, node: NodeId) -> Checked<()> {
        self.end(node, Crash::Process)
    }

    /// A machine dies, often in the middle of a write.
    pub(in crate::group) fn crash(&mut self, node: NodeId) -> Checked<()> {
        let (seed, operations) = (self.random.next(), self.random.below(8));
        let server = self.server(node);
        let has_writes = server.running.as_ref().is_some_and(|running| !running.writes.is_empty());
        if has_writes {
            server.disk.fail_after(operations, Fault::Freeze);
            // The machine is gone, and its last messages with it.
            let _ = server.write(u64::MAX);
            self.totals.torn_writes += 1;
        }
        let crash = if self.random.one_in(3) { Crash::Machine } else { Crash::Scattered(seed) };
        self.end(node, crash)
    }

    pub(super) fn end(&mut self, node: NodeId, crash: Crash) -> Checked<()> {
        let server = self.server(node);
        if server.running.take().is_none() {
            return Ok(());
        }
        server.disk = server.disk.crash(crash);
        server.stopped_until = 0;
        self.trace.line(format_args!("{node} dies: {crash:?}"));
        self.totals.crashes += 1;
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
                self.tell_lost(pair.0, node);
                self.events(pair.0, false)?;
            }
        }
        Ok(())
    }

    pub(in crate::group) fn start(&mut self, node: NodeId) -> Checked<()> {
        let (now, upgrades) = (self.now, self.random.one_in(3));
        let server = self.server(node);
        if server.running.is_some() {
            return Ok(());
        }
        if upgrades {
            server.knows = NEWER;
        }
        server.stalled_until = 0;
        if let Err(error) = server.start(now) {
            // Its disk has refused something. The next start must do.
            server.disk = server.disk.crash(Crash::Process);
            let again = server.start(now);
            again.map_err(|again| {
                violation(format!("{node} does not start: {again}; and before that: {error}"))
            })?;
            self.totals.faults += 1;
        }
        self.trace.line(format_args!("{node} starts"));
        Ok(())
    }
}
