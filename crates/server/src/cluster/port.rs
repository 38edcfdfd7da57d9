//! The port for members, `cluster.listen`, and the node behind it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use lycosa_engine::group::{self, Identity, NodeId};
use lycosa_instance::Confirmed;
use lycosa_journal::directory::Directory;
use lycosa_queue::sampled::{Sampled, with_held_back};
use lycosa_tls::rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};

use super::folder::level;
use super::handshake::{Doorway, HandshakeError, Known, Purpose, refuse, welcome};
use super::links::{Dialer, Links, Owner, prepare};
use super::member::{self, Member};
use super::snapshots;
use crate::appender::RoomWatch;
use crate::clock::{micros, now};
use crate::config::Config;
use crate::logging::one_line;
use crate::socket::{Reader, Writer, split_tcp, split_tls};
use crate::starting::{Progress, Stage};
use crate::storage::{self, Opened};
use crate::tls;

/// The node behind the port, as links and connections find it.
pub(crate) struct Port {
    config: Config,
    directory: Directory,
    links: RefCell<Option<Rc<Links>>>,
    /// The node that runs, and its task.
    running: RefCell<Option<(Rc<Member>, JoinHandle<()>)>>,
    /// A member has said who this node is.
    joined: Notify,
    door: Doorway,
    refusals: RefCell<Refusals>,
    tls: Option<Arc<ServerConfig>>,
    progress: Arc<Progress>,
}

/// The refusals that the log has: each address and cause once, until a member connects from that address.
#[derive(Default)]
struct Refusals {
    told: VecDeque<(IpAddr, String)>,
    sampled: Sampled,
}

impl Refusals {
    /// Refusals that are known, at most: beyond it the oldest is forgotten. A stranger with more addresses fills no log either,
    /// since lines are [`Sampled`].
    const MAX_TOLD: usize = 64;

    /// The line for the log, if this refusal is news.
    fn line(&mut self, peer: SocketAddr, cause: &str, now: u64) -> Option<String> {
        if self.told.iter().any(|(address, known)| *address == peer.ip() && known == cause) {
            return None;
        }
        let held_back = self.sampled.event(now)?;
        if self.told.len() >= Self::MAX_TOLD {
            self.told.pop_front();
        }
        self.told.push_back((peer.ip(), cause.to_owned()));
        Some(with_held_back(format!("connection from {peer} to cluster.listen refused: {cause}"), held_back))
    }

    /// A member has connected.
    fn forget(&mut self, peer: SocketAddr) {
        self.told.retain(|(address, _)| *address != peer.ip());
    }
}

impl Port {
    pub(crate) fn new(
        config: &Config,
        directory: Directory,
        dialer: Dialer,
        tls: Option<Arc<ServerConfig>>,
        progress: Arc<Progress>,
    ) -> Rc<Self> {
        let port = Rc::new(Self {
            config: config.clone(),
            directory,
            links: RefCell::default(),
            running: RefCell::default(),
            joined: Notify::new(),
            door: Doorway::default(),
            refusals: RefCell::default(),
            tls,
            progress,
        });
        *port.links.borrow_mut() = Some(Links::new(dialer, port.clone()));
        port
    }

    fn links(&self) -> Rc<Links> {
        self.links.borrow().clone().expect("set when the port was made, and kept until its end")
    }

    /// Opens the folder of this node and starts the node. Returns its data, if it has any. `told` hears how far it is.
    pub(crate) fn open(&self, told: group::Told<'_>) -> anyhow::Result<(Rc<Member>, Option<Opened>)> {
        if let Some((member, task)) = self.running.borrow_mut().take() {
            task.abort();
            member.close()?;
        }
        let timeout = micros(self.config.cluster_election_timeout);
        let knows = level(&self.config);
        let settings = group::Settings { election_timeout: timeout, knows, ..group::Settings::default() };
        let (store, writer) = (storage::store_settings(&self.config), storage::writer_settings(&self.config));
        let opened = group::open_told(&self.directory, store, writer, settings, told).map_err(|error| {
            let error = anyhow::Error::new(error);
            if knows == group::FEATURE_LEVEL {
                error
            } else {
                error.context(format!("cluster.level is {knows}"))
            }
        })?;
        let group::Opened { data, instance, snapshot, journal, disk } = opened;
        let opened = match data {
            None => None,
            Some(Confirmed { store, vclock, .. }) => {
                let instance = instance.context("a snapshot names its instance")?;
                let identity = storage::identity_of(&store, instance)?;
                ensure!(identity.replica_id > 0, "_cluster does not list instance {instance}");
                let (is_damaged, is_begun) = (false, false);
                Some(Opened { store, identity, vclock, log: None, snapshot, is_damaged, is_begun })
            }
        };
        let room = RoomWatch::new(self.config.data_dir.clone(), self.config.disk_reserve.0);
        let (member, said) = Member::start(journal, disk, room, self.links())?;
        let task = spawn_local(member::live(member.clone(), said));
        *self.running.borrow_mut() = Some((member.clone(), task));
        Ok((member, opened))
    }

    /// Waits until the folder has data: a member's, or the group's, which an empty server receives.
    ///
    /// # Errors
    /// The folder cannot be opened, or the node leaves its service before it has data.
    pub(crate) async fn open_with_data(&self) -> anyhow::Result<(Rc<Member>, Opened)> {
        let progress = &self.progress;
        let told = |done, total| {
            progress.read(done, total);
            progress.enter(Stage::Reading);
        };
        if group::folder::member_of(&self.directory)?.is_none() {
            let address = self.config.text("cluster.listen");
            tracing::info!(
                "the data folder is empty: waiting to be taken into a group; `lycosa cluster add {address}` on a member does it"
            );
            progress.enter(Stage::Awaiting);
            self.joined.notified().await;
        } else {
            progress.enter(Stage::Loading);
            if let (member, Some(opened)) = self.open(&told)? {
                return Ok((member, opened));
            }
        }
        progress.enter(Stage::Joining);
        loop {
            let member = self.member().context("the node runs since a member has called it")?;
            while !member.journal().has_snapshot() {
                if let Some(cause) = member.journal().failure() {
                    bail!("this server cannot join the group: {cause}");
                }
                member.wake.notified().await;
            }
            tracing::info!("the first snapshot of the group is here");
            drop(member);
            if let (member, Some(opened)) = self.open(&told)? {
                return Ok((member, opened));
            }
        }
    }

    /// The node, once it runs.
    pub(crate) fn member(&self) -> Option<Rc<Member>> {
        self.running.borrow().as_ref().map(|(member, _)| member.clone())
    }

    /// Logs that the connection of a peer is refused.
    fn note_refusal(&self, peer: SocketAddr, cause: &str) {
        if let Some(line) = self.refusals.borrow_mut().line(peer, &one_line(cause), now()) {
            tracing::warn!("{line}");
        }
    }

    /// Ends the node and its links.
    ///
    /// # Errors
    /// The log was not closed cleanly.
    pub(crate) fn close(&self) -> Result<(), crate::appender::Unclosed> {
        let running = self.running.borrow_mut().take();
        let links = self.links.borrow_mut().take();
        if let Some(links) = links {
            links.end();
        }
        running.map_or(Ok(()), |(member, task)| {
            task.abort();
            member.close()
        })
    }

    async fn prepare(&self, stream: TcpStream) -> Result<(Reader, Writer), HandshakeError> {
        prepare(&stream)?;
        let Some(config) = &self.tls else { return Ok(split_tcp(stream)) };
        let mut first = [0];
        stream.peek(&mut first).await?;
        if first != [tls::HANDSHAKE_RECORD] {
            return Err(HandshakeError::Plain);
        }
        let accepted = tls::accept(stream, config.clone()).await.map_err(io::Error::other)?;
        accepted.map(split_tls).ok_or(HandshakeError::Plain)
    }
}

impl Owner for Port {
    fn message(&self, bytes: Vec<u8>) -> Result<(), String> {
        self.member().map_or(Ok(()), |member| member.receive(&bytes))
    }

    fn link_lost(&self, node: NodeId) {
        if let Some(member) = self.member() {
            member.link_lost(node);
        }
    }

    fn join(&self, identity: Identity) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| format!("this server cannot join: {error}");
        group::join(&self.directory, storage::writer_settings(&self.config), identity)
            .map_err(|error| text(&error))?;
        self.open(&|_, _| {}).map_err(|error| text(&error))?;
        tracing::info!("joining group {} as node {}", identity.group, identity.node);
        self.joined.notify_one();
        Ok(())
    }
}

/// A connection that a member has opened for something else than messages and files.
pub(crate) struct Visit {
    pub(crate) purpose: Purpose,
    pub(crate) peer: String,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
}

/// Accepts members until the task is dropped. `visit` serves clients and orders that they bring.
pub(crate) async fn accept(port: Rc<Port>, listener: TcpListener, visit: Rc<dyn Fn(Visit)>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (port, visit) = (port.clone(), visit.clone());
                spawn_local(async move {
                    if let Err(cause) = serve(&port, stream, peer, &*visit).await {
                        tracing::debug!("connection of a member from {peer} ended: {cause}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept a member: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(
    port: &Rc<Port>,
    stream: TcpStream,
    peer: SocketAddr,
    visit: &dyn Fn(Visit),
) -> Result<(), String> {
    let secret = port.links().dialer().secret;
    let accepted = port.door.accept(port.prepare(stream), &secret).await;
    let (Known { purpose, group }, mut reader, writer) = accepted.map_err(|error| {
        let cause = error.to_string();
        if error.is_of_peer() {
            port.note_refusal(peer, &cause);
        }
        cause
    })?;
    let own = port.links().identity().map(|identity| identity.group);
    if own.is_some_and(|own| own != group) || own.is_none() && purpose != Purpose::Messages {
        let cause = match own {
            Some(own) => format!("this server belongs to group {own}"),
            None => "this server belongs to no group yet".to_owned(),
        };
        port.note_refusal(peer, &format!("it belongs to group {group}, and {cause}"));
        refuse(&writer, &cause).await;
        return Err(cause);
    }
    port.refusals.borrow_mut().forget(peer);
    welcome(&writer).await.map_err(|error| error.to_string())?;
    match purpose {
        Purpose::Messages => port.links().receive(&mut reader).await,
        Purpose::Snapshot => {
            let received = snapshots::receive(&port.directory, &mut reader, &writer, &port.progress).await;
            received.map_err(|error| error.to_string())
        }
        Purpose::Client | Purpose::Order | Purpose::Http => {
            visit(Visit { purpose, peer: peer.to_string(), reader, writer });
            Ok(())
        }
    }
}
