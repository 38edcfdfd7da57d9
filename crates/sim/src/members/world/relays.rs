//! Clients whose member passes their requests on to the leader: the server's own [`Relay`], between simulated connections.
//!
//! A member finds out for itself who leads, connects there, and connects again when another node leads, when the connection breaks, or
//! when the relay says so. Bytes that a leader has not read, or that the member has not read, are lost with the connection. A frozen
//! leader reads nothing; a link that swallows messages passes nothing.
//!
//! Absent: log-ins, and the time that bytes take.

use std::time::{Duration, Instant};

use lycosa_engine::group::relay::{Relay, Verdict};
use lycosa_group::members::NodeId;
use lycosa_instance::{ConnectionSlot, Origin, Trust};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting::{GREETING_SIZE, SALT_SIZE};

use super::super::client::{Ask, Connection};
use super::super::server::Server;
use super::{World, violation};
use crate::violation::{Checked, hold};

/// A client's relay, and its connection to the node that the member takes for the leader.
pub(super) struct Passage {
    relay: Relay,
    leader: Option<(NodeId, ConnectionSlot)>,
}

impl World<'_> {
    /// A client connects to a member that passes its requests on.
    pub(super) fn connect_through(&mut self, number: usize) -> Checked {
        let all: Vec<NodeId> = self.servers.keys().copied().collect();
        let node = *self.random.pick(&all);
        let server = self.servers.get(&node).filter(|server| server.is_awake(self.now));
        if server.and_then(Server::body).is_none() {
            return Ok(());
        }
        let mut names = self.random.fork();
        let new_name = move || {
            let mut name = [0; 16];
            name[..8].copy_from_slice(&names.next().to_be_bytes());
            name
        };
        let relay = Relay::new(frame::DEFAULT_LIMIT, vec![0; GREETING_SIZE], Box::new(new_name));
        self.relays.insert(number, Passage { relay, leader: None });
        self.clients[number].connection = Some(Connection::new(node, None, false));
        self.trace.line(format_args!("client {number} connects to {node}, which passes its requests on"));
        self.relay(number)
    }

    /// A client sends a request to its member.
    pub(super) fn ask_through(&mut self, number: usize, ask: Ask) -> Checked {
        let Some(connection) = &self.clients[number].connection else { return Ok(()) };
        let node = connection.node;
        let reign = self.server(node).reign();
        let frame = self.clients[number].send(ask, reign, &mut self.ledger);
        self.trace.line(format_args!("client {number} asks {ask:?} through {node}"));
        if let Some(passage) = self.relays.get_mut(&number) {
            passage.relay.take(&frame);
        }
        if self.random.one_in(2) { self.relay(number) } else { Ok(()) }
    }

    /// Passes on what may pass now, for about half of the clients.
    pub(super) fn relay_some(&mut self) -> Checked {
        let numbers: Vec<usize> = self.relays.keys().copied().collect();
        for number in numbers {
            if self.random.one_in(2) {
                self.relay(number)?;
            }
        }
        Ok(())
    }

    /// Passes on what may pass now between a client and the leader.
    fn relay(&mut self, number: usize) -> Checked {
        let Some(connection) = &self.clients[number].connection else { return Ok(()) };
        let node = connection.node;
        if !self.servers.get(&node).is_some_and(|server| server.is_awake(self.now)) {
            return Ok(());
        }
        let place = self.servers.get(&node).and_then(Server::leader_known);
        let Some(passage) = self.relays.get(&number) else { return Ok(()) };
        match (passage.leader, place) {
            (Some((leader, _)), place) if Some(leader) != place => self.leave_leader(number, true)?,
            (Some((leader, slot)), _) => match self.links.get(&(node, leader)) {
                Some(link) if link.is_swallowing => {}
                Some(link) if link.is_blocked => self.leave_leader(number, false)?,
                _ => self.exchange(number, leader, slot)?,
            },
            (None, Some(leader)) => self.reach_leader(number, node, leader)?,
            (None, None) => {}
        }
        self.reply_through(number)
    }

    /// Connects to the leader that a member knows of. A node that does not lead refuses; a member does not ask itself.
    fn reach_leader(&mut self, number: usize, node: NodeId, leader: NodeId) -> Checked {
        let (now, is_blocked) =
            (self.now, self.links.get(&(node, leader)).is_some_and(|link| link.is_blocked));
        let Some(server) = self.servers.get_mut(&leader) else { return Ok(()) };
        let may_serve = leader == node || server.leads() && !is_blocked;
        if !may_serve || !server.is_awake(now) {
            return Ok(());
        }
        let time = server.instance_time(now);
        let Some(body) = server.body_mut() else { return Ok(()) };
        let origin = Origin { peer: format!("client {number} through {node}"), trust: Trust::Admin };
        let slot = body.instance.connect_forwarded(origin, [number as u8; SALT_SIZE], time);
        let slot = slot.map_err(violation)?;
        self.trace.line(format_args!("{node} reaches {leader} for client {number}"));
        if let Some(passage) = self.relays.get_mut(&number) {
            passage.relay.begin();
            passage.leader = Some((leader, slot));
        }
        Ok(())
    }

    /// Bytes pass in both directions.
    fn exchange(&mut self, number: usize, leader: NodeId, slot: ConnectionSlot) -> Checked {
        let now = self.now;
        let instant = self.instant();
        let (Some(server), Some(passage)) = (self.servers.get_mut(&leader), self.relays.get_mut(&number))
        else {
            return Ok(());
        };
        let (leads, reign, time) = (server.leads(), server.reign(), server.instance_time(now));
        if !server.is_awake(now) {
            return Ok(());
        }
        let Some(body) = server.body_mut() else { return Ok(()) };
        passage.relay.pass(instant);
        let output = passage.relay.output().to_vec();
        passage.relay.passed(output.len());
        let mut done = 0;
        while let Ok(Split::Frame { content, consumed }) = frame::split(&output[done..], frame::DEFAULT_LIMIT)
        {
            let handled = body.instance.handle_frame(slot, content, time);
            handled.map_err(|broken| violation(broken.error.message))?;
            done += consumed;
        }
        if done > 0
            && let Some(connection) = &mut self.clients[number].connection
        {
            connection.handled_by(leads, reign);
        }
        self.hear_leader(number, leader, slot, false);
        let verdict = self.relays.get(&number).map(|passage| passage.relay.verdict());
        hold!(verdict != Some(Verdict::EndClient), "the leader refuses a client that never logged in");
        if verdict == Some(Verdict::LeaveLeader) {
            self.leave_leader(number, false)?;
        }
        if done > 0 { self.work(leader) } else { Ok(()) }
    }

    /// The member reads what the leader has answered. `is_last`: the leader leads no more.
    fn hear_leader(&mut self, number: usize, leader: NodeId, slot: ConnectionSlot, is_last: bool) {
        let body = self.servers.get_mut(&leader).and_then(Server::body_mut);
        let (Some(body), Some(passage)) = (body, self.relays.get_mut(&number)) else { return };
        let ready = body.instance.output(slot).to_vec();
        body.instance.consume(slot, ready.len());
        self.trace.bytes(&ready);
        match is_last {
            false => passage.relay.hear(&ready),
            true => passage.relay.hear_last(&ready),
        }
    }

    /// The member gives the connection to the leader up. `is_last`: another node leads, and the member reads the last answers.
    fn leave_leader(&mut self, number: usize, is_last: bool) -> Checked {
        let (now, instant) = (self.now, self.instant());
        let Some((leader, slot)) = self.relays.get_mut(&number).and_then(|passage| passage.leader.take())
        else {
            return Ok(());
        };
        let is_awake = self.servers.get(&leader).is_some_and(|server| server.is_awake(now));
        if is_last && is_awake {
            self.hear_leader(number, leader, slot, true);
        }
        if let Some(server) = self.servers.get_mut(&leader) {
            let time = server.instance_time(now);
            if let Some(body) = server.body_mut() {
                body.instance.disconnect(slot, time);
            }
        }
        if let Some(passage) = self.relays.get_mut(&number) {
            passage.relay.lose(instant);
        }
        self.trace.line(format_args!("the member of client {number} leaves {leader}"));
        Ok(())
    }

    /// The client reads its replies.
    fn reply_through(&mut self, number: usize) -> Checked {
        let Some(passage) = self.relays.get_mut(&number) else { return Ok(()) };
        let replies = passage.relay.replies().to_vec();
        passage.relay.replied(replies.len());
        let from = passage.leader.map(|(leader, _)| leader);
        let from = from.or(self.clients[number].connection.as_ref().map(|connection| connection.node));
        let Some(server) = from.and_then(|from| self.servers.get(&from)) else { return Ok(()) };
        let now = (server.leads(), server.reign());
        self.clients[number].receive(&replies, now, &mut self.ledger)
    }

    /// The client of a member goes.
    pub(super) fn part(&mut self, number: usize) -> Checked {
        self.leave_leader(number, false)?;
        self.relays.remove(&number);
        self.clients[number].lose_connection();
        Ok(())
    }

    /// A process has ended: its clients are gone, and so are the connections that other members have to it.
    pub(super) fn end_relays(&mut self, node: NodeId) -> Checked {
        let numbers: Vec<usize> = self.relays.keys().copied().collect();
        for number in numbers {
            let is_of =
                self.clients[number].connection.as_ref().is_none_or(|connection| connection.node == node);
            let leader = self.relays.get(&number).and_then(|passage| passage.leader);
            if is_of {
                self.part(number)?;
            } else if leader.is_some_and(|(leader, _)| leader == node) {
                self.leave_leader(number, false)?;
                self.reply_through(number)?;
            }
        }
        Ok(())
    }

    /// The time on a clock that never goes back.
    pub(super) fn instant(&self) -> Instant {
        self.began + Duration::from_micros(self.now)
    }
}
