//! A connection of a replica with a master: the bytes under way, and the machine at either end.
//!
//! The ends are what `lycosa-server` has around the same machines: a [`Handshake`] and a [`Follower`] here, requests to the
//! instance and then a [`Relay`] there, served from files until it has everything, and from the window after that.

use std::collections::VecDeque;

use lycosa_instance::{ConnectionSlot, ReplicaRequest};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::tail::{Tail, TailError};
use lycosa_replication::applier::{Follower, Handshake, Row, Step, Subscription, acknowledge};
use lycosa_replication::disconnect_timeout;
use lycosa_replication::lineage;
use lycosa_replication::relay::{Cursor, Pulse, Relay};
use lycosa_replication::stream::{self, StreamError};
use lycosa_replication::sync::UpstreamState;

use super::node::Node;
use crate::storage;
use crate::violation::{Checked, Violation};

/// Period of heartbeats, in microseconds.
pub(super) const TIMEOUT: u64 = 100_000;

/// Bytes of a transaction at most.
pub(super) const MAX_TRANSACTION: usize = 1 << 24;

/// Bytes in one direction.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    bytes: VecDeque<u8>,
    /// Bytes vanish, and no side gets an error.
    pub(super) is_swallowing: bool,
}

impl Pipe {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.is_swallowing {
            self.bytes.extend(bytes);
        }
    }

    pub(super) fn take(&mut self, limit: usize) -> Vec<u8> {
        let count = self.bytes.len().min(limit);
        self.bytes.drain(..count).collect()
    }

    pub(super) fn lose(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

enum ReplicaSide {
    Closed,
    Handshake { machine: Option<Handshake>, since: u64 },
    Following { follower: Box<Follower>, acknowledged: Vclock, wants_ack: bool },
}

enum Source {
    Files,
    Window(Cursor),
}

enum MasterSide {
    Closed,
    Requests { slot: ConnectionSlot, buffer: Vec<u8> },
    Relaying { slot: ConnectionSlot, relay: Box<Relay>, source: Source },
}

/// What becomes of a transaction that does not fit the replica's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conflicts {
    /// There is none in this world.
    AreViolations,
    /// A row whose key is taken changes nothing (`replication_skip_conflict`).
    AreSkipped,
    /// The replica stops following and says why ([`Link::stopped`]).
    Stop,
}

/// A connection.
pub(super) struct Link {
    pub(super) replica: usize,
    pub(super) master: usize,
    pub(super) up: Pipe,
    pub(super) down: Pipe,
    replica_side: ReplicaSide,
    master_side: MasterSide,
    /// The master's journals do not reach back to the replica.
    pub(super) is_too_far: bool,
    pub(super) conflicts: Conflicts,
    /// Why the replica has stopped following.
    pub(super) stopped: Option<String>,
    /// What the replica was told, or found, when its history was not the master's.
    pub(super) parted: Option<String>,
}

/// What the instance says about a transaction of a master.
enum FollowError {
    Stream(StreamError),
    Apply(Box<ErrorObject>),
}

impl From<StreamError> for FollowError {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl Link {
    /// The replica connects. `None`: the master does not take the connection.
    pub(super) fn open(replica: usize, master: &mut Node, world: u64) -> Option<Self> {
        let (slot, handshake) = master.accept(format!("replica {replica}"), world)?;
        Some(Self {
            replica,
            master: master.number,
            up: Pipe::default(),
            down: Pipe::default(),
            replica_side: ReplicaSide::Handshake { machine: Some(handshake), since: world },
            master_side: MasterSide::Requests { slot, buffer: Vec::new() },
            is_too_far: false,
            conflicts: Conflicts::AreViolations,
            stopped: None,
            parted: None,
        })
    }

    pub(super) fn is_followed(&self) -> bool {
        !matches!(self.replica_side, ReplicaSide::Closed)
    }

    pub(super) fn is_served(&self) -> bool {
        !matches!(self.master_side, MasterSide::Closed)
    }

    /// The replica's end is closed, or its process has died.
    pub(super) fn leave(&mut self, replica: &mut Node) {
        if self.is_followed() {
            self.replica_side = ReplicaSide::Closed;
            self.note(replica, UpstreamState::Disconnected);
        }
        self.down.lose();
    }

    /// The master's end is closed, or its process has died.
    pub(super) fn dismiss(&mut self, master: &mut Node, world: u64) {
        let now = master.now(world);
        let slot = match std::mem::replace(&mut self.master_side, MasterSide::Closed) {
            MasterSide::Closed => return,
            MasterSide::Requests { slot, .. } => slot,
            MasterSide::Relaying { slot, relay, .. } => {
                if let Some(life) = &mut master.life {
                    life.instance.replicas_mut().unsubscribed(relay.replica());
                }
                slot
            }
        };
        if let Some(life) = &mut master.life {
            life.instance.disconnect(slot, now);
        }
        self.up.lose();
    }

    fn note(&self, replica: &mut Node, state: UpstreamState) {
        if let Some(upstream) = replica.life.as_mut().and_then(|life| life.instance.upstream_mut(self.master))
        {
            upstream.state = state;
        }
    }

    /// Bytes reach the replica, at most `limit`. False: it closes the connection.
    pub(super) fn deliver_down(&mut self, replica: &mut Node, world: u64, limit: usize) -> Checked<bool> {
        let bytes = self.down.take(limit);
        let now = replica.now(world);
        let identity = replica.identity;
        let Some(life) = replica.life.as_mut() else { return Ok(false) };
        match &mut self.replica_side {
            ReplicaSide::Closed => return Ok(false),
            ReplicaSide::Handshake { machine: handshake, .. } => {
                let Some(machine) = handshake.take() else { return Ok(false) };
                let mut out = Vec::new();
                match machine.receive(&bytes, &mut out) {
                    Err(_) => return Ok(false),
                    Ok(Step::More(machine)) => *handshake = Some(machine),
                    Ok(Step::Done(session)) => {
                        life.instance.hear_term(session.ballot.term, now);
                        let vclock = life.instance.durable_vclock().replicated();
                        let lineage = Some(life.instance.lineage().clone());
                        let subscription = Subscription {
                            cluster: identity.cluster,
                            instance: identity.instance,
                            vclock: vclock.clone(),
                            version: 0,
                            is_anonymous: false,
                            filter: Vec::new(),
                            lineage,
                        };
                        let mut follower = session.subscribe(&subscription, &mut out);
                        follower.start(now);
                        self.replica_side = ReplicaSide::Following {
                            follower: Box::new(follower),
                            acknowledged: vclock,
                            wants_ack: false,
                        };
                    }
                }
                self.up.push(&out);
            }
            ReplicaSide::Following { .. } => return self.follow(replica, &bytes, now),
        }
        Ok(true)
    }

    /// Rows reach the replica. False: it closes the connection.
    fn follow(&mut self, replica: &mut Node, bytes: &[u8], now: u64) -> Checked<bool> {
        let number = replica.number;
        let (Some(life), ReplicaSide::Following { follower, wants_ack, .. }) =
            (replica.life.as_mut(), &mut self.replica_side)
        else {
            return Ok(false);
        };
        let instance = &mut life.instance;
        let was_answered = follower.progress().master_at_start.is_some();
        let conflicts = self.conflicts;
        let mut apply = |rows: &[Row<'_>]| {
            let applied = match conflicts {
                Conflicts::AreSkipped => instance.apply_skipping_conflicts(rows, now),
                Conflicts::AreViolations | Conflicts::Stop => instance.apply(rows, now),
            };
            applied.map(drop).map_err(|error| FollowError::Apply(Box::new(error)))
        };
        let received = follower.receive(bytes, MAX_TRANSACTION, now, &mut apply);
        match received {
            Ok(received) => *wants_ack |= received.wants_ack,
            Err(FollowError::Apply(error)) if error.code == u32::from(ErrorCode::WalIo) => {
                return Ok(false);
            }
            Err(FollowError::Apply(error)) if lineage::is_divergence(&error) => {
                self.parted = Some(error.message);
                return Ok(false);
            }
            Err(FollowError::Apply(error)) if self.conflicts == Conflicts::Stop => {
                self.stopped = Some(error.message);
                return Ok(false);
            }
            Err(FollowError::Apply(error)) => {
                return Err(Violation(format!("replication of {number} stops: {}", error.message)));
            }
            Err(FollowError::Stream(StreamError::Refused(error))) => {
                self.parted = lineage::is_divergence(&error).then_some(error.message);
                return Ok(false);
            }
            Err(FollowError::Stream(error)) => {
                return Err(Violation(format!("the stream from {} is broken: {error}", self.master)));
            }
        }
        let progress = follower.progress();
        if let Some(vclock) = progress.master_at_start.as_ref().filter(|_| !was_answered) {
            // What it has at the SUBSCRIBE confirms what this instance wrote as a master.
            let master = super::node::identity(self.master).instance;
            life.instance.replicas_mut().acknowledged(master, vclock, now);
        }
        let state = life.following(progress);
        if let Some(upstream) = life.instance.upstream_mut(self.master) {
            upstream.state = state;
            upstream.lag = progress.lag;
            upstream.heard_at = progress.heard_at;
        }
        life.update_sync(now);
        Ok(true)
    }

    /// Bytes reach the master, at most `limit`. False: it closes the connection.
    pub(super) fn deliver_up(&mut self, master: &mut Node, world: u64, limit: usize) -> Checked<bool> {
        let bytes = self.up.take(limit);
        let now = master.now(world);
        let identity = master.identity;
        let Some(life) = master.life.as_mut() else { return Ok(false) };
        match &mut self.master_side {
            MasterSide::Closed => Ok(false),
            MasterSide::Relaying { relay, .. } => {
                let heard = relay.receive(&bytes, &life.instance.own_rows(), now);
                life.instance.replicas_mut().acknowledged(relay.replica(), relay.acknowledged(), now);
                life.instance.hear_term(relay.term(), now);
                let Err(error) = heard else { return Ok(true) };
                if let StreamError::Parted(divergence) = error {
                    life.instance.report_parted(relay.replica(), relay.id(), &divergence);
                    let mut out = Vec::new();
                    stream::error(&mut out, life.instance.store().schema_version(), &divergence.object());
                    self.down.push(&out);
                }
                Ok(false)
            }
            MasterSide::Requests { slot, buffer } => {
                let slot = *slot;
                buffer.extend_from_slice(&bytes);
                while let Ok(Split::Frame { content, consumed }) = frame::split(buffer, 1 << 20) {
                    let content = content.to_vec();
                    buffer.drain(..consumed);
                    if life.instance.handle_frame(slot, &content, now).is_err() {
                        return Ok(false);
                    }
                    if life.instance.is_replica(slot) {
                        break;
                    }
                }
                let rest = std::mem::take(buffer);
                let Some(request) = life.instance.take_replica(slot) else {
                    *buffer = rest;
                    let answered = life.instance.output(slot).to_vec();
                    life.instance.consume(slot, answered.len());
                    self.down.push(&answered);
                    return Ok(!life.instance.wants_close(slot));
                };
                let ReplicaRequest::Subscribe(request, id) = request else {
                    return Err(Violation("a follower asks for something else than the log".to_owned()));
                };
                let answered = life.instance.output(slot).to_vec();
                life.instance.consume(slot, answered.len());
                let durable = life.instance.durable_vclock().clone();
                let mut relay = Relay::new(&request, id, &durable, now);
                let admitted =
                    life.instance.replicas_mut().subscribed(request.replica, id, &request.vclock, now);
                if let Err(refusal) = admitted {
                    // The other end of its last connection is still open here.
                    let mut out = answered;
                    stream::error(&mut out, life.instance.store().schema_version(), &refusal.0);
                    self.down.push(&out);
                    return Ok(false);
                }
                let mut out = answered;
                let (id, set) = (identity.replica_id, identity.cluster);
                stream::subscribed(&mut out, id, &durable.replicated(), set, request.lineage.is_some());
                let heard = relay.receive(&rest, &life.instance.own_rows(), now).is_ok();
                self.down.push(&out);
                self.master_side =
                    MasterSide::Relaying { slot, relay: Box::new(relay), source: Source::Files };
                Ok(heard)
            }
        }
    }

    /// The replica's share of a turn: what it acknowledges. False: the master is silent.
    pub(super) fn follow_turn(&mut self, replica: &mut Node, world: u64) -> bool {
        let now = replica.now(world);
        if let ReplicaSide::Handshake { since, .. } = self.replica_side {
            return world < since + disconnect_timeout(TIMEOUT);
        }
        let (ReplicaSide::Following { follower, acknowledged, wants_ack }, Some(life)) =
            (&mut self.replica_side, &mut replica.life)
        else {
            return true;
        };
        let durable = life.instance.durable_vclock().replicated();
        let is_answered = follower.progress().master_at_start.is_some();
        if *wants_ack || is_answered && durable != *acknowledged {
            let mut out = Vec::new();
            let confirmation = life.instance.confirmation(follower.progress().master_id);
            acknowledge(&mut out, &durable, &confirmation);
            self.up.push(&out);
            *acknowledged = durable;
            *wants_ack = false;
        }
        !follower.is_dead(TIMEOUT, now)
    }

    /// The master's share of a turn: what it sends. False: the replica is silent.
    pub(super) fn serve_turn(&mut self, master: &mut Node, world: u64) -> Checked<bool> {
        let now = master.now(world);
        let (identity, directory) = (master.identity, storage::directory(&master.disk));
        let Some(life) = master.life.as_mut() else { return Ok(true) };
        let unreadable = |error: &dyn std::fmt::Display| Violation(format!("a log is not relayed: {error}"));
        match &mut self.master_side {
            MasterSide::Closed => Ok(true),
            MasterSide::Requests { slot, .. } => {
                let bytes = life.instance.output(*slot).to_vec();
                life.instance.consume(*slot, bytes.len());
                self.down.push(&bytes);
                Ok(true)
            }
            MasterSide::Relaying { relay, source, .. } => {
                let mut out = Vec::new();
                loop {
                    match source {
                        Source::Files => {
                            let (durable, cursor) = (life.window.end().clone(), life.window.next());
                            let mut rows = relay.log_rows();
                            let is_complete =
                                durable.iter().all(|(id, lsn)| id == 0 || lsn <= rows.position().get(id));
                            if !is_complete {
                                let mut tail = match Tail::after(&directory, rows.position()) {
                                    Ok(tail) => tail,
                                    // Journals were removed, or the master has joined since: others may have the rows.
                                    Err(TailError::Gap { .. }) => {
                                        self.is_too_far = true;
                                        return Ok(false);
                                    }
                                    Err(error) => return Err(unreadable(&error)),
                                };
                                while tail.clock().signature() < durable.signature() {
                                    let block = tail.next_block().map_err(|e| unreadable(&e))?;
                                    let block = block.ok_or_else(|| unreadable(&"the journal ends early"))?;
                                    rows.send(&block, &mut out).map_err(|e| unreadable(&e))?;
                                }
                                relay.resume(rows, now);
                            }
                            *source = Source::Window(cursor);
                        }
                        Source::Window(cursor) if life.window.has_passed(*cursor) => *source = Source::Files,
                        Source::Window(cursor) => {
                            let Some(batch) = life.window.get(*cursor).cloned() else { break };
                            if relay.takes_whole(&batch) {
                                relay.sent_whole(&batch, now);
                                out.extend_from_slice(batch.bytes());
                            } else {
                                relay.send_part(&batch, now, &mut out).map_err(|e| unreadable(&e))?;
                            }
                            *cursor = cursor.next();
                        }
                    }
                }
                let pulse = relay.pulse(identity.replica_id, TIMEOUT, now, &mut out);
                self.down.push(&out);
                Ok(pulse != Pulse::Dead)
            }
        }
    }
}
