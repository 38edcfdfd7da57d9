//! An instance that joins: it holds nothing, and gets all data over a connection while work goes on.
//!
//! The ends are what `lycosa-server` has around the same machines: a [`Handshake`], a [`Join`] and a replay here; there a request
//! to the instance, the newest snapshot file, the number in `_cluster`, and the log until then. In each turn the master reads a
//! block of a file, or as many as it takes to have something to send, so rows are written, journals are removed and machines
//! die in the middle.

use lycosa_engine::replay::Replay;
use lycosa_instance::{ConnectionSlot, ReplicaRequest};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::Directory;
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{End, FileReader, Step as BlockStep};
use lycosa_journal::tail::Tail;
use lycosa_replication::applier::{Handshake, Join, JoinEvent, JoinKind, Step};
use lycosa_replication::relay::{LogRows, SnapshotRows};
use lycosa_replication::stream;
use lycosa_store::Store;
use uuid::Uuid;

use super::link::{MAX_TRANSACTION, Pipe};
use super::node::{Life, Node};
use crate::storage;
use crate::violation::{Checked, Violation};

/// Microseconds of silence after which an instance that joins gives the master up.
const PATIENCE: u64 = 2_000_000;

enum Joiner {
    Closed,
    Handshake(Option<Handshake>),
    Receiving { join: Box<Join>, replay: Box<Replay> },
}

enum Server {
    Closed,
    Requests {
        slot: ConnectionSlot,
        buffer: Vec<u8>,
    },
    Snapshot {
        slot: ConnectionSlot,
        replica: Uuid,
        reader: Box<FileReader>,
    },
    /// The number is being written to the disk.
    Registering {
        slot: ConnectionSlot,
        replica: Uuid,
        snapshot: Box<Vclock>,
        wanted: u64,
    },
    Log {
        slot: ConnectionSlot,
        replica: Uuid,
        rows: Box<LogRows>,
        until: Box<Vclock>,
        tail: Box<Tail>,
    },
}

/// What came of the bytes that reached an instance that joins.
pub(super) enum Progress {
    More,
    /// It gives this connection up.
    Failed(String),
    /// It has everything up to the clock.
    Done(Box<Store>, Box<Vclock>),
}

/// A connection on which an instance joins.
pub(super) struct Joining {
    pub(super) replica: usize,
    pub(super) master: usize,
    pub(super) up: Pipe,
    pub(super) down: Pipe,
    joiner: Joiner,
    server: Server,
    /// When the joining instance heard something last, by the world's clock.
    heard: u64,
}

/// Why a master does not go on with a JOIN.
fn unreadable(cause: impl std::fmt::Display) -> ErrorObject {
    let message = format!("the data cannot be read for a replica: {cause}");
    ErrorObject::client(ErrorCode::InvalidXlog, message)
}

impl Joining {
    /// An instance connects to a master. `None`: the master does not take the connection.
    pub(super) fn open(replica: usize, master: &mut Node, world: u64) -> Option<Self> {
        let (slot, handshake) = master.accept(format!("new instance {replica}"), world)?;
        Some(Self {
            replica,
            master: master.number,
            up: Pipe::default(),
            down: Pipe::default(),
            joiner: Joiner::Handshake(Some(handshake)),
            server: Server::Requests { slot, buffer: Vec::new() },
            heard: world,
        })
    }

    pub(super) fn is_joined_by(&self, replica: usize) -> bool {
        self.replica == replica && !matches!(self.joiner, Joiner::Closed)
    }

    pub(super) fn is_over(&self) -> bool {
        matches!((&self.joiner, &self.server), (Joiner::Closed, Server::Closed))
    }

    /// How far both ends are, for the report of a world that does not come to rest.
    pub(super) fn state(&self) -> String {
        let joiner = match &self.joiner {
            Joiner::Closed => "closed",
            Joiner::Handshake(_) => "handshake",
            Joiner::Receiving { .. } => "receiving",
        };
        let server = match &self.server {
            Server::Closed => "closed".to_owned(),
            Server::Requests { .. } => "requests".to_owned(),
            Server::Snapshot { .. } => "snapshot".to_owned(),
            Server::Registering { wanted, .. } => format!("registering, waits for {wanted}"),
            Server::Log { .. } => "log".to_owned(),
        };
        format!("{} joins {}: {joiner}, {server}", self.replica, self.master)
    }

    /// The joining instance's end is closed, or its process has died.
    pub(super) fn leave(&mut self) {
        self.joiner = Joiner::Closed;
        self.down.lose();
    }

    /// The master's end is closed, or its process has died.
    pub(super) fn dismiss(&mut self, master: &mut Node, world: u64) {
        let now = master.now(world);
        let (slot, replica) = match std::mem::replace(&mut self.server, Server::Closed) {
            Server::Closed => return,
            Server::Requests { slot, .. } => (slot, None),
            Server::Snapshot { slot, replica, .. }
            | Server::Registering { slot, replica, .. }
            | Server::Log { slot, replica, .. } => (slot, Some(replica)),
        };
        if let Some(life) = &mut master.life {
            replica.into_iter().for_each(|replica| life.instance.replicas_mut().joined(replica));
            life.instance.disconnect(slot, now);
        }
        self.up.lose();
    }

    /// Bytes reach the joining instance, at most `limit`.
    pub(super) fn deliver_down(&mut self, identity: Uuid, world: u64, limit: usize) -> Checked<Progress> {
        let bytes = self.down.take(limit);
        if !bytes.is_empty() {
            self.heard = world;
        }
        match &mut self.joiner {
            Joiner::Closed => {}
            Joiner::Handshake(handshake) => {
                let Some(machine) = handshake.take() else { return Ok(Progress::More) };
                let mut out = Vec::new();
                match machine.receive(&bytes, &mut out) {
                    Err(error) => return Ok(Progress::Failed(error.to_string())),
                    Ok(Step::More(machine)) => *handshake = Some(machine),
                    Ok(Step::Done(session)) if session.ballot.is_read_only => {
                        return Ok(Progress::Failed("the master is read-only".to_owned()));
                    }
                    Ok(Step::Done(session)) => {
                        let join = Box::new(session.join(JoinKind::Named(identity), &mut out));
                        let replay = Box::new(Replay::new(Store::new(lycosa_store::Settings::default())));
                        self.joiner = Joiner::Receiving { join, replay };
                    }
                }
                self.up.push(&out);
            }
            Joiner::Receiving { join, replay } => {
                join.receive(&bytes);
                loop {
                    let body = match join.next(MAX_TRANSACTION) {
                        Ok(None) => return Ok(Progress::More),
                        Ok(Some(JoinEvent::StartOfSnapshot(_))) => continue,
                        Ok(Some(JoinEvent::EndOfSnapshot(_))) => {
                            replay.end_snapshot().map_err(broken)?;
                            continue;
                        }
                        Ok(Some(JoinEvent::End(vclock))) => {
                            let Joiner::Receiving { replay, .. } =
                                std::mem::replace(&mut self.joiner, Joiner::Closed)
                            else {
                                return Ok(Progress::More);
                            };
                            let store = replay.finish().map_err(broken)?;
                            return Ok(Progress::Done(Box::new(store), Box::new(vclock)));
                        }
                        Ok(Some(JoinEvent::Snapshot(body) | JoinEvent::Row(_, body))) => body,
                        Err(stream::StreamError::Refused(error)) => {
                            return Ok(Progress::Failed(error.message));
                        }
                        Err(error) => return Err(broken(error)),
                    };
                    replay.apply(&body).map_err(broken)?;
                }
            }
        }
        Ok(Progress::More)
    }

    /// Whether the joining instance has waited for the master for too long.
    pub(super) fn is_silent(&self, world: u64) -> bool {
        world >= self.heard + PATIENCE
    }

    /// Bytes reach the master, at most `limit`. False: it closes the connection.
    pub(super) fn deliver_up(&mut self, master: &mut Node, world: u64, limit: usize) -> Checked<bool> {
        let bytes = self.up.take(limit);
        let now = master.now(world);
        let directory = storage::directory(&master.disk);
        let Some(life) = master.life.as_mut() else { return Ok(false) };
        // Behind a JOIN nothing comes before its end.
        let Server::Requests { slot, buffer } = &mut self.server else { return Ok(bytes.is_empty()) };
        let slot = *slot;
        buffer.extend_from_slice(&bytes);
        while let Ok(Split::Frame { content, consumed }) = frame::split(buffer, 1 << 20) {
            let content = content.to_vec();
            buffer.drain(..consumed);
            if life.instance.handle_frame(slot, &content, now).is_err() {
                return Ok(false);
            }
        }
        let Some(request) = life.instance.take_replica(slot) else {
            return Ok(!life.instance.wants_close(slot));
        };
        let ReplicaRequest::Join(request) = request else {
            return Err(Violation("an instance that joins asks for something else".to_owned()));
        };
        let answered = life.instance.output(slot).to_vec();
        life.instance.consume(slot, answered.len());
        self.down.push(&answered);
        let replica = request.replica;
        let opened = open_snapshot(&directory);
        let (reader, clock) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(self.refuse(schema_version(life), &error)),
        };
        let replicas = life.instance.replicas_mut();
        replicas.joining(replica, now);
        replicas.reached(replica, 0, &clock, now);
        let mut out = Vec::new();
        stream::vclock(&mut out, &clock);
        self.down.push(&out);
        self.server = Server::Snapshot { slot, replica, reader: Box::new(reader) };
        Ok(true)
    }

    /// The replica gets the reason for which the master gives up.
    fn refuse(&mut self, version: u32, error: &ErrorObject) -> bool {
        let mut out = Vec::new();
        stream::error(&mut out, version, error);
        self.down.push(&out);
        false
    }

    /// The master's share of a turn: a block of a file. False: it closes the connection, at the end or because it cannot go on.
    pub(super) fn serve_turn(&mut self, master: &mut Node, world: u64) -> Checked<bool> {
        let now = master.now(world);
        let directory = storage::directory(&master.disk);
        let Some(life) = master.life.as_mut() else { return Ok(true) };
        let version = schema_version(life);
        match self.advance(life, &directory, now) {
            Ok(goes_on) => Ok(goes_on),
            Err(error) if error.code == u32::from(ErrorCode::Protocol) => Err(Violation(error.message)),
            Err(error) => Ok(self.refuse(version, &error)),
        }
    }

    fn advance(&mut self, life: &mut Life, directory: &Directory, now: u64) -> Result<bool, ErrorObject> {
        let mut out = Vec::new();
        let next = match &mut self.server {
            Server::Closed => return Ok(true),
            Server::Requests { slot, .. } => {
                out = life.instance.output(*slot).to_vec();
                life.instance.consume(*slot, out.len());
                None
            }
            Server::Snapshot { slot, replica, reader } => match reader.next_block().map_err(unreadable)? {
                BlockStep::Block(block) => {
                    SnapshotRows.send(block.rows, &mut out).map_err(corrupt)?;
                    None
                }
                BlockStep::End(End::Marker) => {
                    let (slot, replica) = (*slot, *replica);
                    let snapshot = Box::new(reader.meta().vclock.replicated());
                    let id = life.instance.register_replica(replica, now)?;
                    life.instance.replicas_mut().reached(replica, id, &snapshot, now);
                    let wanted = life.instance.vclock().signature();
                    Some(Server::Registering { slot, replica, snapshot, wanted })
                }
                BlockStep::End(_) | BlockStep::Damage(_) => return Err(corrupt("a snapshot is damaged")),
            },
            Server::Registering { slot, replica, snapshot, wanted } => {
                let until = life.instance.durable_vclock().clone();
                if until.signature() < *wanted {
                    return Ok(true);
                }
                stream::vclock(&mut out, &until.replicated());
                let rows = Box::new(LogRows::after(snapshot));
                let tail = Box::new(Tail::after(directory, rows.position()).map_err(unreadable)?);
                let (slot, replica) = (*slot, *replica);
                Some(Server::Log { slot, replica, rows, until: Box::new(until), tail })
            }
            Server::Log { rows, until, tail, .. } => {
                // The file may begin long before the snapshot.
                while out.is_empty() {
                    if tail.clock().signature() >= until.signature() {
                        stream::vclock(&mut out, &until.replicated());
                        self.down.push(&out);
                        return Ok(false);
                    }
                    let block = tail.next_block().map_err(unreadable)?;
                    let block = block.ok_or_else(|| corrupt("the journal ends before what is durable"))?;
                    rows.send(&block, &mut out).map_err(corrupt)?;
                }
                None
            }
        };
        self.down.push(&out);
        self.server = match next {
            Some(next) => next,
            None => return Ok(true),
        };
        Ok(true)
    }
}

/// The newest snapshot, and its clock.
fn open_snapshot(directory: &Directory) -> Result<(FileReader, Vclock), ErrorObject> {
    let listing = directory.list().map_err(unreadable)?;
    let newest = *listing.snapshots.last().ok_or_else(|| unreadable("there is no snapshot"))?;
    let reader = directory.read(FileKind::Snapshot, newest).map_err(unreadable)?;
    let clock = reader.meta().vclock.replicated();
    Ok((reader, clock))
}

fn schema_version(life: &Life) -> u32 {
    life.instance.store().schema_version()
}

/// What no fault explains.
fn corrupt(cause: impl std::fmt::Display) -> ErrorObject {
    ErrorObject::client(ErrorCode::Protocol, format!("JOIN: {cause}"))
}

fn broken(error: impl std::fmt::Display) -> Violation {
    Violation(format!("a JOIN is broken: {error}"))
}
