//! Clients of the group: their connections, requests and replies.
//!
//! In half of the worlds members open half of the connections for their clients, to the leader that they know of. That node may lead
//! no more. In half of the worlds members pass the requests of half of the clients on ([`super::relays`]).

use lycosa_group::members::NodeId;
use lycosa_instance::{Origin, Trust};
use lycosa_iproto::greeting::SALT_SIZE;

use super::super::client::{Ask, Connection};
use super::super::server::Server;
use super::{World, violation};
use crate::violation::Checked;

impl World<'_> {
    /// A client does something: it connects, asks, or goes to another node.
    pub(super) fn client(&mut self) -> Checked {
        let number = self.random.below(self.clients.len() as u64) as usize;
        let Some((node, slot)) = self.clients[number].connection.as_ref().map(|c| (c.node, c.slot)) else {
            if self.are_relayed && self.random.one_in(2) {
                return self.connect_through(number);
            }
            let to_leader = !self.random.one_in(4);
            return self.connect(number, to_leader);
        };
        let is_misplaced = slot.is_some() && !self.servers.get(&node).is_some_and(Server::leads);
        let patience = if is_misplaced { 3 } else { 60 };
        if self.random.one_in(patience) {
            return self.disconnect(number);
        }
        if self.clients[number].pending.is_some() {
            return Ok(());
        }
        let ask = self.clients[number].next(&mut self.random, &mut self.ledger);
        self.ask(number, ask)
    }

    pub(super) fn connect(&mut self, number: usize, to_leader: bool) -> Checked {
        if self.clients[number].connection.is_some() {
            return Ok(());
        }
        let all: Vec<NodeId> = self.servers.keys().copied().collect();
        let some = *self.random.pick(&all);
        let node = if to_leader { self.leader().unwrap_or(some) } else { some };
        let is_forwarded = self.are_forwarded && self.random.one_in(2);
        let now = self.now;
        let server = self.server(node);
        let time = server.instance_time(now);
        if !server.is_awake(now) {
            return Ok(());
        }
        let Some(body) = server.body_mut() else { return Ok(()) };
        let origin = Origin { peer: format!("client {number}"), trust: Trust::Admin };
        let slot = match is_forwarded {
            true => body.instance.connect_forwarded(origin, [number as u8; SALT_SIZE], time),
            false => body.instance.connect(origin, time),
        };
        let connection = Connection::new(node, Some(slot.map_err(violation)?), is_forwarded);
        self.clients[number].connection = Some(connection);
        Ok(())
    }

    pub(super) fn disconnect(&mut self, number: usize) -> Checked {
        let Some(connection) = &self.clients[number].connection else { return Ok(()) };
        let (node, slot) = (connection.node, connection.slot);
        let Some(slot) = slot else { return self.part(number) };
        self.clients[number].lose_connection();
        let now = self.now;
        let Some(server) = self.servers.get_mut(&node) else { return Ok(()) };
        let time = server.instance_time(now);
        if let Some(body) = server.body_mut() {
            body.instance.disconnect(slot, time);
        }
        self.work(node)
    }

    pub(super) fn ask(&mut self, number: usize, ask: Ask) -> Checked {
        let Some(connection) = &self.clients[number].connection else { return Ok(()) };
        let (node, slot) = (connection.node, connection.slot);
        let now = self.now;
        let Some(server) = self.servers.get_mut(&node) else { return self.disconnect(number) };
        let Some(slot) = slot else { return self.ask_through(number, ask) };
        // A process that is stopped finds the request at its door; the model does without that door.
        if !server.is_awake(now) {
            return Ok(());
        }
        let (leads, time, reign) = (server.leads(), server.instance_time(now), server.reign());
        let frame = self.clients[number].send(ask, reign, &mut self.ledger);
        self.trace.line(format_args!("client {number} asks {node}: {ask:?}"));
        if let Some(connection) = &mut self.clients[number].connection {
            connection.led = leads;
        }
        let Some(body) = self.server(node).body_mut() else { return Ok(()) };
        let whole = lycosa_iproto::frame::split(&frame, lycosa_iproto::frame::DEFAULT_LIMIT);
        let Ok(lycosa_iproto::frame::Split::Frame { content, .. }) = whole else {
            return Err(violation("a request is no frame"));
        };
        body.instance.handle_frame(slot, content, time).map_err(|broken| violation(broken.error.message))?;
        // Several requests may come between two turns.
        if self.random.one_in(2) { self.work(node) } else { Ok(()) }
    }

    pub(super) fn read_replies(&mut self, node: NodeId) -> Checked {
        for number in 0..self.clients.len() {
            let Some(connection) = &self.clients[number].connection else { continue };
            if connection.node != node {
                continue;
            }
            let Some(slot) = connection.slot else { continue };
            let Some(server) = self.servers.get_mut(&node) else { continue };
            let now = (server.leads(), server.reign());
            let Some(body) = server.body_mut() else { continue };
            loop {
                let ready = body.instance.output(slot).to_vec();
                if ready.is_empty() {
                    break;
                }
                body.instance.consume(slot, ready.len());
                self.trace.bytes(&ready);
                self.clients[number].receive(&ready, now, &mut self.ledger)?;
            }
            if body.instance.wants_close(slot) {
                self.clients[number].lose_connection();
            }
        }
        Ok(())
    }

    /// A client asks the leader. A server that was removed confirms nothing, and does not say so; a follower greets a session
    /// without the group.
    pub(super) fn insist(&mut self, number: usize) -> Checked {
        let node = self.clients[number].connection.as_ref().map(|connection| connection.node);
        if node.is_some() && node != self.leader() {
            self.disconnect(number)?;
        }
        self.connect(number, true)?;
        if self.clients[number].pending.is_none() {
            let ask = self.clients[number].next(&mut self.random, &mut self.ledger);
            self.ask(number, ask)?;
        }
        Ok(())
    }
}
