//! A server at work: its data are opened, its threads and tasks started; its end closes them in order.
//!
//! Every thread and channel of the process is made here. The *main thread* is the one that calls [`crate::serve::run`]; the binary
//! calls it on a thread of its own, for the allocator's sake.
//!
//! ```text
//!  main thread ── one tokio loop, owns the instance ───────────────┐
//!    task per connection: reads, hands frames to the instance      │ std::sync::mpsc: one batch at a time
//!    task "turns": ends turns, writes replies                      ├──────────────► thread "journal": append, sync
//!    tasks "accept": one per listening socket                      │◄────────────── tokio mpsc: durable LSN
//!    task "signals": SIGTERM, SIGINT, SIGHUP                       │ std::sync::mpsc, bounded: chunks of a snapshot
//!                                                                  ├──────────────► thread "checkpoint": write, remove
//!                                                                  │◄────────────── tokio mpsc: wants the next chunk
//!    task "bridge": calls that came over HTTP                      │ tokio mpsc, bounded: calls
//!                                                                  │◄────────────── thread "http", if HTTP is served: sockets
//!                                                                  │                of its own; a oneshot for each answer
//!    at the start: takes over connections                           │ the join of the thread
//!                                                                  │◄────────────── thread "start": keeps connections until
//!                                                                  │                the data are read
//!    task per master: connects, applies its log                    │ tokio mpsc, bounded: frames of files
//!                                                                  │◄────────────── threads "join", "catch-up": one for each
//!                                                                  │                replica that is behind, while it is
//!  ────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Tasks of the main thread share the instance through [`Core`], without locks; the other threads share nothing. The
//! loop waits for neither of them: it sends a batch when the journal thread is idle, and a chunk when it was asked
//! for. There is a journal thread with `wal_mode` `fsync` only (see [`crate::journal`]).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use lycosa_engine::journal::News;
use lycosa_engine::snapshots::{LOOK_AFTER, Settings};
use lycosa_journal::directory::Directory;
use lycosa_journal::writer::XlogWriter;
use rustix::fs::Mode;
use rustix::process::umask;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinHandle, spawn_local};
use uuid::Uuid;

use crate::appender::{Appender, RoomWatch, Watch};
use crate::certificates::Certificates;
use crate::checkpoint_thread::{CheckpointThread, Holds};
use crate::cluster::member::MemberJournal;
use crate::config::{Addresses, Config, WalMode};
use crate::file_limit::raise_file_limit;
use crate::http::{self, Door};
use crate::instance::{instance_on, standing_of};
use crate::journal::{Appends, ServerJournal};
use crate::journal_thread::JournalThread;
use crate::listener::AdminListener;
use crate::opening::open_or_join;
use crate::replication::Hub;
use crate::socket::{bind_for_command, bind_tcp};
use crate::starting::{Keeper, Progress, Stage};
use crate::startup::shown;
use crate::turn::Core;
use crate::{cluster, graphite, listener};

/// How long the server's end may wait for the journal after the connections are closed.
const DRAIN_POLL: Duration = Duration::from_millis(2);

/// A server at work: its threads and its tasks.
pub(crate) struct Running {
    pub(crate) core: Rc<Core>,
    /// Where it listens.
    pub(crate) addresses: Vec<String>,
    /// It has begun a replica set just now: its masters can only join it.
    pub(crate) is_begun: bool,
    /// Ends turns; admits connections to the slow lane.
    turns: [JoinHandle<()>; 2],
    accepting: Vec<JoinHandle<()>>,
    /// Handles calls over HTTP, if it is served.
    bridge: Option<JoinHandle<()>>,
    graphite: Option<JoinHandle<()>>,
    journal_thread: Option<JournalThread>,
    checkpoints: CheckpointThread,
    admin_path: Option<PathBuf>,
    /// The node's port and tasks, where this server belongs to a group.
    cluster: Option<cluster::Tasks>,
    directory: Directory,
}

/// Opens the data, starts the threads and listens.
pub(crate) async fn start(config: &Config, rejoins: Option<Uuid>) -> anyhow::Result<Running> {
    let plain = bind(&config.listen, "listen").await?;
    let tls = bind(&config.listen_tls, "listen-tls").await?;
    let http = http::bind(config).await?;
    start_with(config, rejoins, Bound { plain, tls, http }).await
}

/// As [`start`], for a program that has bound what it listens on itself. Requests for the program are refused with
/// `ER_LOADING` until it takes them ([`Core::allow_programs`]).
pub(crate) async fn start_for_program(config: &Config) -> anyhow::Result<Running> {
    let running = start_with(config, None, Bound::default()).await?;
    running.core.instance.borrow_mut().set_loading();
    Ok(running)
}

/// The sockets that a server listens on.
#[derive(Default)]
struct Bound {
    plain: Vec<TcpListener>,
    tls: Vec<TcpListener>,
    http: Vec<http::Bound>,
}

async fn start_with(config: &Config, rejoins: Option<Uuid>, bound: Bound) -> anyhow::Result<Running> {
    raise_file_limit(config.max_connections);
    // What the process creates is its own account's alone, from the moment of its creation.
    umask(Mode::RWXG | Mode::RWXO);
    let directory = Directory::open(&config.data_dir)?;
    warn_if_open_to_others(&config.data_dir);
    let certificates = Certificates::read(config)?;
    let progress = Arc::new(Progress::default());
    let keeper = Keeper::begin(&bound.plain, progress.clone()).context("no thread for the start")?;
    let (calls, inbox) = http::bridge::bridge();
    let door = open_door(config, bound.http, &certificates, calls.clone(), progress.clone())?;
    let (mut opened, mut cluster) = match cluster::start(config, &directory, &certificates, &progress).await?
    {
        Some((opened, cluster)) => (opened, Some(cluster)),
        None => {
            let tls = certificates.client.as_ref();
            (open_or_join(directory.clone(), config, rejoins, tls, &progress).await?, None)
        }
    };
    progress.enter(Stage::Queue);
    let masters = if opened.is_begun { 0 } else { config.replication.0.len() };
    let standing = standing_of(cluster.is_some(), masters);
    let (identity, snapshot, is_begun) = (opened.identity, opened.snapshot, opened.is_begun);
    let log = opened.log.take();
    let instance = instance_on(config, &directory, opened, standing)?;
    let (appends, journal_thread, done) = match (log, &cluster) {
        (Some(log), _) => begin_appends(config, &directory, log)?,
        (None, Some(cluster)) => (Appends::Group(MemberJournal(cluster.member.clone())), None, None),
        (None, None) => anyhow::bail!("the data folder has neither a journal nor the log of a group"),
    };
    let (files, folder) = (directory.clone(), directory.clone());
    let holds = Holds::default();
    let (reserve, instance_uuid) = (config.disk_reserve.0, identity.instance);
    let settings =
        Settings { directory, reserve, look_after: LOOK_AFTER, instance: instance_uuid, sound: snapshot };
    let (checkpoints, orders, checkpoint_news) =
        CheckpointThread::spawn(settings, config.data_dir.clone(), holds.clone())?;
    let hub = Hub::new(files, holds, config, masters);
    let core = Core::new(instance, ServerJournal::new(appends), orders, hub);
    *core.door.borrow_mut() = door;
    let graphite = graphite::start(&core, config)?;
    present(&core, certificates);
    core.hub.appliers.borrow_mut().start(&core, &config.replication.0);
    // A member makes calls for HTTP clients of further members, too.
    let has_callers = cluster.is_some() || core.door.borrow().is_some();
    if let Some(cluster) = &mut cluster {
        cluster.serve(&core, calls.clone(), config);
    }
    let bridge = has_callers.then(|| spawn_local(http::bridge::desk::serve(core.clone(), calls, inbox)));

    let turns = core.spawn(done, checkpoint_news);
    let admin = bind_for_command(&config.data_dir, listener::ADMIN_SOCKET, "lycosa user");
    let (admin, admin_path) = admin.unzip();
    let (addresses, accepting) = accept(&core, admin, bound.plain, bound.tls, keeper)?;
    core.end.notify_one();
    progress.end();
    Ok(Running {
        core,
        addresses,
        is_begun,
        turns,
        accepting,
        bridge,
        graphite,
        journal_thread,
        checkpoints,
        admin_path,
        cluster,
        directory: folder,
    })
}

/// Accepts connections from now on, and serves the ones that were kept during the start. Returns the addresses and the tasks.
fn accept(
    core: &Rc<Core>,
    admin: Option<UnixListener>,
    plain: Vec<TcpListener>,
    tls: Vec<TcpListener>,
    keeper: Keeper,
) -> anyhow::Result<(Vec<String>, Vec<JoinHandle<()>>)> {
    let mut addresses = Vec::new();
    for listener in &plain {
        addresses.push(listener.local_addr()?.to_string());
    }
    for listener in &tls {
        addresses.push(format!("tls://{}", listener.local_addr()?));
    }
    for (stream, peer) in keeper.end() {
        listener::serve_kept(core, stream, peer);
    }
    let admin = admin.map(|listener| spawn_local(listener::accept(core.clone(), AdminListener(listener))));
    let plain = plain.into_iter().map(|listener| spawn_local(listener::accept(core.clone(), listener)));
    let tls = tls.into_iter().map(|listener| spawn_local(listener::accept_tls(core.clone(), listener)));
    Ok((addresses, admin.into_iter().chain(plain).chain(tls).collect()))
}

/// Begins to append to the journal: on a thread where each batch is synced, else here. Returns the thread, and what it tells.
fn begin_appends(
    config: &Config,
    directory: &Directory,
    log: XlogWriter,
) -> anyhow::Result<(Appends, Option<JournalThread>, Option<UnboundedReceiver<News>>)> {
    let room = RoomWatch::new(config.data_dir.clone(), config.disk_reserve.0);
    let appender = Appender { log, watch: Watch::new(directory.clone(), room) };
    if config.wal_mode != WalMode::Fsync {
        return Ok((Appends::Here(Box::new(appender)), None, None));
    }
    let (thread, sender, done) = JournalThread::spawn(appender)?;
    Ok((Appends::Thread(sender), Some(thread), Some(done)))
}

/// Opens the door of HTTP, if an address was bound for it; calls go over the bridge. Until the start is over the door answers
/// probes alone.
fn open_door(
    config: &Config,
    bound: Vec<http::Bound>,
    certificates: &Certificates,
    bridge: http::bridge::Bridge,
    progress: Arc<Progress>,
) -> anyhow::Result<Option<Door>> {
    if bound.is_empty() {
        return Ok(None);
    }
    let tls = certificates.http.clone();
    let door = Door::open(bound, config, tls, bridge, progress);
    let door = door.context("HTTP cannot be served")?;
    door.show_settings(config);
    tracing::info!("HTTP on {}", door.urls.join(", "));
    Ok(Some(door))
}

impl Running {
    /// Ends the server: finishes the running requests, closes the files.
    pub(crate) async fn stop(self, config: &Config) -> anyhow::Result<()> {
        let core = &self.core;
        if let Some(cluster) = &self.cluster {
            cluster.hand_over().await;
        }
        core.hub.appliers.borrow_mut().stop();
        self.accepting.iter().chain(&self.graphite).for_each(JoinHandle::abort);
        let door = core.door.borrow_mut().take();
        if let Some(door) = &door {
            door.close();
        }
        core.instance.borrow_mut().abandon_checkpoint("the server ends");
        // Every row is durable then, and every reply that can leave has left.
        let drained = tokio::time::timeout(config.drain_timeout, until(core, || core.is_drained())).await;
        core.close_all();
        // Finished answers have left the loop; waiting calls are refused.
        if let Some(bridge) = self.bridge {
            bridge.abort();
        }
        if let Some(door) = door {
            door.join(config.drain_timeout).await;
        }
        if drained.is_err() {
            tracing::warn!("drain_timeout passed; some replies did not reach their clients");
        }
        let is_closed = || core.instance.borrow().status().connections == 0 && core.journal_is_idle();
        let _ = tokio::time::timeout(config.drain_timeout, until(core, is_closed)).await;
        let kept = if config.wal_mode == WalMode::None { take_last_checkpoint(core).await } else { Ok(()) };
        self.turns.iter().for_each(JoinHandle::abort);
        let closed = match (self.journal_thread, self.cluster) {
            (Some(thread), _) => thread.close(),
            (None, Some(cluster)) => cluster.close(),
            (None, None) => core.close_journal(),
        };
        self.checkpoints.close();
        // In another folder at the path of ours, the socket is that of another server.
        if let Some(path) = self.admin_path
            && self.directory.disk().check_place().is_ok()
        {
            let _ = std::fs::remove_file(path);
        }
        if let Err(error) = &closed {
            tracing::error!("{error}");
        }
        tracing::info!("ended");
        kept.and(closed.map_err(Into::into))
    }
}

/// Binds the addresses of a setting.
async fn bind(addresses: &Addresses, flag: &str) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for address in &addresses.0 {
        listeners.push(bind_tcp(address, flag).await?);
    }
    Ok(listeners)
}

/// Presents these certificates from now on; connections that exist keep theirs.
pub(crate) fn present(core: &Core, certificates: Certificates) {
    *core.tls.borrow_mut() = certificates.server;
    *core.hub.tls.borrow_mut() = certificates.client;
    if let Some(door) = &*core.door.borrow() {
        door.present(certificates.http);
    }
}

/// Says so if other accounts can enter a data folder that was there before.
fn warn_if_open_to_others(folder: &Path) {
    let mode = std::fs::metadata(folder).map_or(0, |metadata| metadata.permissions().mode());
    if mode & (Mode::RWXG | Mode::RWXO).bits() != 0 {
        let folder = shown(folder);
        tracing::warn!(
            "other accounts can enter the data folder {folder}: `chmod 700 {folder}` keeps them out"
        );
    }
}

/// Without a journal a snapshot is all that a restart finds: takes one, however long it takes.
async fn take_last_checkpoint(core: &Core) -> anyhow::Result<()> {
    if !core.instance.borrow_mut().request_checkpoint() {
        return Ok(());
    }
    tracing::info!("nothing was journaled: writing all data into a snapshot");
    until(core, || !core.instance.borrow().has_checkpoint()).await;
    match core.instance.borrow().checkpoint_status().failure {
        None => Ok(()),
        Some(cause) => anyhow::bail!("everything since the last checkpoint is lost: {cause}"),
    }
}

/// Ends turns until something holds.
async fn until(core: &Core, holds: impl Fn() -> bool) {
    while !holds() {
        core.end.notify_one();
        tokio::time::sleep(DRAIN_POLL).await;
    }
}

#[cfg(test)]
mod tests;
