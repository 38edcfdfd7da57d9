//! This server as a node of a group: links to the other nodes, and the sockets and threads of the group.
//!
//! | module | what it does |
//! |---|---|
//! | [`port`] | accepts members at `cluster.listen`, and starts the node |
//! | [`handshake`], [`secret`] | a connection begins with a proof of the group's secret on both sides |
//! | [`links`] | messages of the consensus: one connection per pair and direction |
//! | [`snapshots`] | the file of a snapshot for a member that is far behind |
//! | [`member`] | the node on the loop, its log in a thread |
//! | [`clients`] | clients of a node that does not lead are served by the leader |
//! | [`http`] | calls over HTTP at a node that does not lead, likewise |
//! | [`control`] | orders of operators: `lycosa cluster` |
//! | [`folder`] | the data folder becomes a member's, and a single server's again |
//!
//! Absent: who leads, and what rows mean, which the crates `group` and `engine` know.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use lycosa_engine::group;
use lycosa_instance::Election;
use lycosa_journal::directory::Directory;
use lycosa_tls::rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, spawn_local};

use crate::appender::Unclosed;
use crate::certificates::Certificates;
use crate::clock;
use crate::config::{Config, MemberAddress, WalMode};
use crate::declarations;
use crate::http::bridge::Bridge;
use crate::socket::bind_for_command;
use crate::starting::Progress;
use crate::storage;
use crate::turn::Core;
use handshake::Purpose;
use links::Dialer;
use member::{Member, Place};
use port::{Port, Visit};
use secret::Secret;

pub(crate) mod clients;
pub mod control;
pub mod folder;
pub(crate) mod handshake;
pub(crate) mod http;
pub(crate) mod links;
pub(crate) mod member;
pub(crate) mod port;
pub(crate) mod secret;
pub(crate) mod snapshots;

/// The age at which the list of members that the instance shows is made anew.
const MEMBERS_AGE: Duration = Duration::from_millis(200);

/// How often a member asks its leader for the time. Between two answers the clocks of two processes differ by at most a tenth of
/// the time that passes.
const TIME_PERIOD: Duration = Duration::from_secs(5);
/// An answer that took longer tells nothing: the leader was frozen before it read its clock, or after.
const TIME_PATIENCE: Duration = Duration::from_secs(1);
/// How long a leader that ends waits until another member leads.
const HAND_OVER_PATIENCE: Duration = Duration::from_secs(1);

/// Where clients and orders that other members bring go, once there is an instance.
type Visitors = Rc<std::cell::RefCell<Option<(Rc<Core>, Bridge)>>>;

/// The node's port and what runs beside the loop for it.
pub(crate) struct Tasks {
    pub(crate) member: Rc<Member>,
    port: Rc<Port>,
    /// The clients and orders that other members bring, once there is an instance.
    visitors: Visitors,
    running: Vec<JoinHandle<()>>,
    socket: Option<PathBuf>,
}

/// Starts the node of a group, if the configuration names an address for members. An empty folder waits here until a
/// group takes it in.
///
/// # Errors
/// A setting that a group does not allow, a folder of a single server, a folder of a member without `cluster.listen`, or one
/// that cannot be loaded.
pub(crate) async fn start(
    config: &Config,
    directory: &Directory,
    certificates: &Certificates,
    progress: &Arc<Progress>,
) -> anyhow::Result<Option<(storage::Opened, Tasks)>> {
    let found = group::folder::member_of(directory)?;
    let folder = config.data_dir.display();
    let Some(listen) = &config.cluster_listen else {
        if let Some(member) = found {
            bail!(
                "the data folder {folder} is that of node {} of group {}: set cluster.listen and cluster.secret_file, or make \
                 it a single server's with `lycosa cluster leave --data-dir {folder}`",
                member.node,
                member.group
            );
        }
        return Ok(None);
    };
    check(config)?;
    let secret = config.cluster_secret_file.as_ref().context(
        "cluster.listen is set and cluster.secret_file is not: name the file with the secret that all members share",
    )?;
    let secret = Rc::new(Secret::read(secret)?);
    let listing = directory.list().context("cannot read the data folder")?;
    if found.is_none() && !(listing.snapshots.is_empty() && listing.xlogs.is_empty()) {
        bail!(
            "the data folder {folder} is that of a single server, and cluster.listen is set: `lycosa cluster init --data-dir \
             {folder}` makes it the first member of a new group. A server that joins a group needs an empty folder"
        );
    }
    let (listener, tls) = listen_for_members(listen, certificates).await?;
    let dialer = Dialer { secret, tls: certificates.client.clone() };
    let port = Port::new(config, directory.clone(), dialer, tls, progress.clone());
    let visitors = Rc::new(std::cell::RefCell::new(None));
    let mut running =
        vec![spawn_local(port::accept(port.clone(), listener, Rc::new(visit_with(&port, &visitors))))];
    let orders = bind_for_command(&config.data_dir, control::CLUSTER_SOCKET, "lycosa cluster");
    let (orders, socket) = orders.unzip();
    running.extend(orders.map(|orders| spawn_local(control::accept(port.clone(), orders))));
    let (member, opened) = port.open_with_data().await?;
    Ok(Some((opened, Tasks { member, port, visitors, running, socket })))
}

/// Listens for the other members, with the certificate that `tls://` takes.
async fn listen_for_members(
    listen: &MemberAddress,
    certificates: &Certificates,
) -> anyhow::Result<(TcpListener, Option<Arc<ServerConfig>>)> {
    let listener = TcpListener::bind(&listen.address).await.with_context(|| {
        format!("cannot listen on {listen} for members: is another server running? choose another with --cluster-listen")
    })?;
    if !listen.is_tls {
        return Ok((listener, None));
    }
    let certificate =
        certificates.member.clone().context("cluster.listen is a tls:// address and has no certificate")?;
    Ok((listener, Some(certificate)))
}

/// Refuses settings that mean something else than a group does.
fn check(config: &Config) -> anyhow::Result<()> {
    ensure!(
        config.replication.0.is_empty(),
        "cluster.listen and replication are both set: members of a group get their data from the group. Leave replication out"
    );
    ensure!(
        config.replicas_before_reply == 0,
        "cluster.listen and replicas_before_reply are both set: in a group each reply waits for a majority of the disks. \
         Leave replicas_before_reply out"
    );
    ensure!(
        !config.read_only,
        "cluster.listen and read_only are both set: the group decides which member takes writes. Leave read_only out"
    );
    ensure!(
        config.wal_mode == WalMode::Fsync,
        "wal_mode is {}, and a member of a group needs fsync: what it has confirmed to the others must survive a power failure",
        config.text("wal_mode")
    );
    Ok(())
}

/// Tells the instance the time of the group's leader, so that this member can go on with it.
async fn follow_time(core: Rc<Core>, member: Rc<Member>) {
    let mut place = member.place();
    loop {
        let asked = *place.borrow_and_update();
        if let Place::At(leader) = asked {
            let answer = tokio::time::timeout(TIME_PATIENCE, control::time_of(&member, leader)).await;
            // Without an answer the next one counts: a leader that says nothing is not the leader for long.
            if let Ok(Ok(Some(time))) = answer
                && *place.borrow() == asked
            {
                let now = clock::now();
                core.instance.borrow_mut().hear_leader_time(time, now);
                member.set_leader_ahead(Some(time.cast_signed() - now.cast_signed()));
            }
        } else {
            member.set_leader_ahead(None);
        }
        // The member, which this task holds, has the sender: there is no other error than the end of the time.
        let _ = tokio::time::timeout(TIME_PERIOD, place.changed()).await;
    }
}

/// Serves what another member brings.
fn visit_with(port: &Rc<Port>, visitors: &Visitors) -> impl Fn(Visit) + use<> {
    let (port, visitors) = (port.clone(), visitors.clone());
    move |visit: Visit| {
        let Some(member) = port.member() else { return };
        let served = visitors.borrow().clone();
        match (visit.purpose, served) {
            (Purpose::Order, _) => drop(spawn_local(control::visit(member, visit))),
            (Purpose::Client, Some((core, _))) => drop(spawn_local(clients::visit(core, member, visit))),
            (Purpose::Http, Some((_, bridge))) => drop(spawn_local(http::visit(bridge, member, visit))),
            _ => {}
        }
    }
}

impl Tasks {
    /// The instance exists: clients of other members are served, turns follow the node's news, and a node that leads makes what the
    /// configuration declares.
    pub(crate) fn serve(&mut self, core: &Rc<Core>, bridge: Bridge, config: &Config) {
        *self.visitors.borrow_mut() = Some((core.clone(), bridge));
        self.running.push(spawn_local(follow_time(core.clone(), self.member.clone())));
        let (core, member, config) = (core.clone(), self.member.clone(), config.clone());
        self.running.push(spawn_local(async move {
            let mut last_error = String::new();
            let (mut shown, mut members) = (None, Vec::new());
            let mut looked: Option<Instant> = None;
            loop {
                member.wake.notified().await;
                let known = member.journal().election();
                // A busy leader is woken for each batch, so its list of members is made anew now and then.
                let is_due = looked.is_none_or(|at| at.elapsed() >= MEMBERS_AGE);
                if is_due {
                    members = member.members();
                    looked = Some(Instant::now());
                }
                if is_due || shown.as_ref() != Some(&known) {
                    let forwarded = member.forwarded();
                    let election = Election { forwarded, members: members.clone(), ..known.clone() };
                    core.instance.borrow_mut().set_election(election);
                    shown = Some(known);
                }
                let successor = core.instance.borrow_mut().poll_hand_over();
                if let Some(node) = successor {
                    let (core, member) = (core.clone(), member.clone());
                    // A change of the leader voids calls that are not answered. The end of the next turn writes the answer to
                    // this call, or hands it to HTTP.
                    spawn_local(async move {
                        core.turned().await;
                        if let Err(refusal) = member.call(|journal| journal.transfer(Some(node))) {
                            tracing::warn!("the group is not handed over to node {node}: {refusal}");
                        }
                    });
                }
                core.end.notify_one();
                if core.has_to_declare.get() && !core.instance.borrow().is_rebuilding() {
                    let mut instance = core.instance.borrow_mut();
                    let declared = declarations::declare(&mut instance, &config)
                        .and_then(|()| declarations::declare_expirations(&mut instance, &config));
                    match declared {
                        Ok(()) => core.has_to_declare.set(false),
                        Err(error) if error != last_error => {
                            tracing::warn!("what the configuration declares cannot be made yet: {error}");
                            last_error = error;
                        }
                        Err(_) => {}
                    }
                }
            }
        }));
    }

    /// Lets another member lead before this one ends, so that clients need not wait for an election. Nothing happens if this member does
    /// not lead, or no other can.
    pub(crate) async fn hand_over(&self) {
        let mut place = self.member.place();
        if *place.borrow_and_update() != Place::Here {
            return;
        }
        match self.member.call(|journal| journal.transfer(None)) {
            Ok(node) => {
                tracing::info!("the group is handed over to node {node}, since this one ends");
                let is_elsewhere = |place: &Place| matches!(place, Place::At(_));
                // If the successor does not lead by then, the members that stay elect a leader.
                let _ = tokio::time::timeout(HAND_OVER_PATIENCE, place.wait_for(is_elsewhere)).await;
            }
            Err(refusal) => tracing::debug!("no other member leads before this one ends: {refusal}"),
        }
    }

    /// Ends the node in order.
    ///
    /// # Errors
    /// The log was not closed cleanly.
    pub(crate) fn close(self) -> Result<(), Unclosed> {
        self.running.iter().for_each(JoinHandle::abort);
        *self.visitors.borrow_mut() = None;
        if let Some(path) = self.socket {
            // A socket that is left behind is replaced at the next start.
            let _ = std::fs::remove_file(path);
        }
        self.port.close()
    }
}
