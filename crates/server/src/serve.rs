//! The server's life: open the data, start the instance, listen, serve until a signal, end cleanly.
//!
//! Every thread and channel of the process is made here. The *main thread* is the one that calls [`run`]; the binary calls it
//! on a thread of its own, for the allocator's sake.
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
use lycosa_engine::snapshots;
use lycosa_instance::{DeclaredTube, DeclaredUser, Identity, Instance, Process};
use lycosa_journal::directory::Directory;
use lycosa_journal::retention::Inventory;
use lycosa_journal::writer::XlogWriter;
use lycosa_queue::Queue;
use lycosa_tuple::value::Value;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use uuid::Uuid;

use crate::certificates::Certificates;
use crate::checkpoint_thread::{CheckpointThread, Holds, SnapshotFolder};
use crate::clock::now;
use crate::cluster::member::MemberJournal;
use crate::config::{Addresses, Config, Flags, WalMode};
use crate::graphite;
use crate::http::{self, Door};
use crate::journal::{Appender, Appends, RoomWatch, ServerJournal};
use crate::journal_thread::JournalThread;
use crate::listener::AdminListener;
use crate::logging::LogHandle;
use crate::replication::{Hub, rejoin};
use crate::starting::{Keeper, Kept, Progress, Stage};
use crate::turn::Core;
use crate::{cluster, listener, notify, program, replication, startup, storage};

/// The arguments of `lycosa serve` besides the configuration's values: how to read it again.
#[derive(Debug, Clone)]
pub struct Reload {
    /// The configuration file, if one was named.
    pub file: Option<PathBuf>,
    /// The flags.
    pub flags: Flags,
}

/// Seconds for which a queue session outlives its last connection in a group, if nothing else is configured, and the least number.
const MEMBER_TTR: f64 = 60.0;
const LEAST_MEMBER_TTR: f64 = 2.0;

/// How long the server's end waits for what a program does at its end (`box.ctl.on_shutdown`).
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How long the server's end may wait for the journal after the connections are closed.
const DRAIN_POLL: Duration = Duration::from_millis(2);

/// Runs the server until SIGTERM, SIGINT or a program's `os.exit`; returns the process's exit code.
///
/// # Errors
/// What keeps the server from starting: an address in use, a locked or damaged data folder, a declaration that cannot be
/// carried out. Each says what to do.
pub fn run(config: Config, reload: &Reload, log: &LogHandle) -> anyhow::Result<i32> {
    anyhow::ensure!(
        !config.listen.0.is_empty() || !config.listen_tls.0.is_empty(),
        "there is no address to listen on: name one with --listen or --listen-tls"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = None;
    let mut life = Life { config, rejoins: None };
    loop {
        // What a life has left behind, the lock on the folder above all, ends with its tasks.
        let local = LocalSet::new();
        let next = local.block_on(&runtime, serve(life, reload, log, &mut signals))?;
        drop(local);
        let next = match next {
            Next::End(code) => return Ok(code),
            Next::Life(life) => *life,
        };
        let aside = rejoin::set_aside(&next.config.data_dir, now() / 1_000_000)?;
        tracing::info!("the files of this instance were set aside: {}", shown(&aside));
        life = Life { rejoins: next.rejoins.map(|(instance, _)| (instance, aside)), ..next };
    }
}

/// The input of one life of the server: a replica that joins again has several lives.
struct Life {
    config: Config,
    /// The instance that joins again, and where its files are.
    rejoins: Option<(Uuid, PathBuf)>,
}

/// The next step after a life of the server.
enum Next {
    /// The process's end, with this exit code.
    End(i32),
    Life(Box<Life>),
}

/// Serves until a signal, or until this instance has to join again: then the next life.
async fn serve(
    life: Life,
    reload: &Reload,
    log: &LogHandle,
    signals: &mut Option<Signals>,
) -> anyhow::Result<Next> {
    let Life { config, rejoins } = life;
    // A program's server, in contrast, may have no address to listen on.
    anyhow::ensure!(
        !config.listen.0.is_empty() || !config.listen_tls.0.is_empty(),
        "there is no address to listen on: name one with --listen or --listen-tls"
    );
    anyhow::ensure!(
        config.lua || config.app.is_empty(),
        "lua = false, but app = \"{}\" is a Lua program: leave one of the two out",
        config.app
    );
    let instance = rejoins.as_ref().map(|(instance, _)| *instance);
    let running = match signals {
        // Until the first start a signal ends the process at once.
        None => start(&config, instance).await?,
        Some(signals) => tokio::select! {
            running = start(&config, instance) => running?,
            () = signals.end() => return Ok(Next::End(0)),
        },
    };
    let signals = match signals {
        Some(signals) => signals,
        None => signals.insert(Signals::new()?),
    };
    if let Some((_, aside)) = rejoins {
        rejoin::remove_older(&config.data_dir, &aside);
    }
    let urls = running.core.door.borrow().as_ref().map_or_else(Vec::new, |door| door.urls.clone());
    startup::announce(&config, &running.addresses, &urls, &running.core.instance.borrow());
    notify::ready(&readiness(&running.addresses));
    let watchdog = notify::start_watchdog();
    let program = config.lua.then(|| program::start_beside(&running.core, &config)).transpose()?;
    let (mut config, end) = wait_for_end(&running.core, config, reload, log, signals).await;
    if let Some(mut program) = program {
        // The program hears of a signal too; its triggers of the end get some time. In the next life it starts again.
        let time = if matches!(end, End::Rejoin) { Duration::ZERO } else { LAST_WORDS };
        if tokio::time::timeout(time, &mut program).await.is_err() {
            program.abort();
        }
        running.core.forget_program();
    }
    let next = match end {
        End::Told => Next::End(0),
        End::Exit(code) => Next::End(code),
        End::Rejoin => {
            let instance = running.core.instance.borrow().identity().instance;
            // A port that the system has chosen stays the same.
            let (tls, plain): (Vec<_>, Vec<_>) =
                running.addresses.iter().cloned().partition(|address| address.starts_with("tls://"));
            let any = |addresses: &Addresses| addresses.0.iter().any(|address| address.ends_with(":0"));
            if any(&config.listen) {
                config.listen.0 = plain;
            }
            if any(&config.listen_tls) {
                config.listen_tls.0 =
                    tls.iter().map(|address| address.trim_start_matches("tls://").to_owned()).collect();
            }
            keep_http_ports(&running.core, &mut config);
            Next::Life(Box::new(Life { config: config.clone(), rejoins: Some((instance, PathBuf::new())) }))
        }
    };
    if matches!(next, Next::End(_)) {
        notify::stopping();
    }
    let stopped = running.stop(&config).await;
    // The end may take long; the service manager gets news until then.
    if let Some(watchdog) = watchdog {
        watchdog.abort();
    }
    stopped?;
    Ok(next)
}

/// Ports of HTTP that the system has chosen stay the same in the next life.
fn keep_http_ports(core: &Core, config: &mut Config) {
    let door = core.door.borrow();
    let Some(door) = &*door else { return };
    for (addresses, scheme) in
        [(&mut config.http_listen, "http://"), (&mut config.http_listen_tls, "https://")]
    {
        if addresses.0.iter().any(|address| address.ends_with(":0")) {
            let bound = door.urls.iter().filter_map(|url| url.strip_prefix(scheme));
            addresses.0 = bound.map(str::to_owned).collect();
        }
    }
}

/// The status text of a ready server for a service manager.
fn readiness(addresses: &[String]) -> String {
    format!("serving on {}", addresses.join(", "))
}

/// Why a life of the server ends.
enum End {
    /// By a signal.
    Told,
    /// By a program, with this exit code.
    Exit(i32),
    /// To join again.
    Rejoin,
}

/// The signals that the server obeys.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one that ends the server.
    async fn end(&mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        crate::stuck::heard();
        tracing::info!("{name}: no new connections, finishing what is under way");
    }
}

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
async fn start(config: &Config, rejoins: Option<Uuid>) -> anyhow::Result<Running> {
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
    let (mut opened, cluster) = match cluster::start(config, &directory, &certificates, &progress).await? {
        Some(cluster) => (cluster.opened, Some((cluster.member, cluster.tasks))),
        None => {
            let tls = certificates.client.as_ref();
            (storage::open_or_join(directory.clone(), config, rejoins, tls, &progress).await?, None)
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
        (None, Some((member, _))) => (Appends::Group(MemberJournal(member.clone())), None, None),
        (None, None) => anyhow::bail!("the data folder has neither a journal nor the log of a group"),
    };
    let (files, folder) = (directory.clone(), directory.clone());
    let holds = Holds::default();
    let (checkpoints, orders, checkpoint_news) = CheckpointThread::spawn(SnapshotFolder {
        directory,
        folder: config.data_dir.clone(),
        reserve: config.disk_reserve.0,
        instance: identity.instance,
        sound: snapshot,
        holds: holds.clone(),
    })?;
    let hub = Hub::new(files, config.data_dir.clone(), holds, replication::Settings::of(config), masters);
    let core = Core::new(instance, ServerJournal::new(appends), orders, hub);
    *core.door.borrow_mut() = door;
    let graphite = graphite::start(&core, config)?;
    present(&core, certificates);
    core.hub.appliers.borrow_mut().start(&core, &config.replication.0);
    // A member makes calls for HTTP clients of further members, too.
    let has_callers = cluster.is_some() || core.door.borrow().is_some();
    let cluster = cluster.map(|(member, mut tasks)| {
        tasks.serve(&core, calls.clone(), &member, config);
        tasks
    });
    let bridge = has_callers.then(|| spawn_local(http::bridge::serve(core.clone(), calls, inbox)));

    let turns = core.spawn(done, checkpoint_news);
    let Accepting { addresses, tasks: accepting, admin_path } =
        accept(&core, &config.data_dir, bound.plain, bound.tls, keeper)?;
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

/// What the instance of a server is at its start.
fn standing_of(is_member: bool, masters: usize) -> Standing {
    match (is_member, masters) {
        (true, _) => Standing::Member,
        (false, 0) => Standing::Single,
        (false, _) => Standing::Orphan,
    }
}

/// Where a server listens, and its tasks that accept connections.
struct Accepting {
    addresses: Vec<String>,
    tasks: Vec<JoinHandle<()>>,
    admin_path: Option<PathBuf>,
}

/// Accepts connections from now on, and serves the ones that were kept during the start.
fn accept(
    core: &Rc<Core>,
    folder: &Path,
    plain: Vec<TcpListener>,
    tls: Vec<TcpListener>,
    keeper: Keeper,
) -> anyhow::Result<Accepting> {
    let (admin, admin_path) = bind_admin(folder).unzip();
    let mut addresses = Vec::new();
    for listener in &plain {
        addresses.push(listener.local_addr()?.to_string());
    }
    for listener in &tls {
        addresses.push(format!("tls://{}", listener.local_addr()?));
    }
    for Kept { stream, peer } in keeper.end() {
        listener::serve_kept(core, stream, peer);
    }
    let admin = admin.map(|listener| spawn_local(listener::accept(core.clone(), AdminListener(listener))));
    let plain = plain.into_iter().map(|listener| spawn_local(listener::accept(core.clone(), listener)));
    let tls = tls.into_iter().map(|listener| spawn_local(listener::accept_tls(core.clone(), listener)));
    Ok(Accepting { addresses, tasks: admin.into_iter().chain(plain).chain(tls).collect(), admin_path })
}

/// The instance on data that were opened.
fn instance_on(
    config: &Config,
    directory: &Directory,
    opened: storage::Opened,
    standing: Standing,
) -> anyhow::Result<Instance> {
    let storage::Opened { mut store, identity, vclock, snapshot, is_damaged, .. } = opened;
    store.set_body_check(lycosa_lua::check_body);
    let mut instance = start_instance(config, identity, store, vclock, standing)?;
    instance.set_configuration(effective_values(config));
    instance.keep_history();
    let inventory = Inventory::of(directory).context("cannot read the sizes of the files")?;
    instance.set_checkpoint_base(snapshot, snapshots::measure(directory, &inventory, snapshot));
    if is_damaged {
        instance.force_checkpoint();
    }
    Ok(instance)
}

/// Begins to append to the journal: on a thread where each batch is synced, else here. Returns the thread, and what it tells.
fn begin_appends(
    config: &Config,
    directory: &Directory,
    log: XlogWriter,
) -> anyhow::Result<(Appends, Option<JournalThread>, Option<UnboundedReceiver<News>>)> {
    let room = RoomWatch::new(config.data_dir.clone(), config.disk_reserve.0);
    let appender = Appender::new(log, directory.clone(), room);
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
    let door = Door::open(bound, http::Limits::of(config), tls, bridge, progress);
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
        let drained = drain(core, config.drain_timeout).await;
        core.close_all();
        // Finished answers have left the loop; waiting calls are refused.
        if let Some(bridge) = self.bridge {
            bridge.abort();
        }
        if let Some(door) = door {
            door.join(config.drain_timeout).await;
        }
        if !drained {
            tracing::warn!("drain_timeout passed; some replies did not reach their clients");
        }
        let closed = tokio::time::timeout(config.drain_timeout, async {
            while core.instance.borrow().status().connections > 0 || !core.journal_is_idle() {
                core.end.notify_one();
                tokio::time::sleep(DRAIN_POLL).await;
            }
        });
        let _ = closed.await;
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
        let listener = listener::bind_tcp(address).await.with_context(|| {
            format!("cannot listen on {address}: is another server running? choose another with --{flag}")
        })?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Presents these certificates from now on; connections that exist keep theirs.
fn present(core: &Core, certificates: Certificates) {
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
    while core.instance.borrow().has_checkpoint() {
        core.end.notify_one();
        tokio::time::sleep(DRAIN_POLL).await;
    }
    match core.instance.borrow().checkpoint_status().failure {
        None => Ok(()),
        Some(cause) => anyhow::bail!("everything since the last checkpoint is lost: {cause}"),
    }
}

/// The administrator's socket; a server without it serves all the same (its path may be too long for a socket).
fn bind_admin(folder: &Path) -> Option<(UnixListener, PathBuf)> {
    listener::bind_admin(folder)
        .inspect_err(|error| {
            let (name, folder) = (listener::ADMIN_SOCKET, folder.display());
            tracing::warn!("no {name} in {folder}, so that `lycosa user` cannot work: {error}");
        })
        .ok()
}

/// File descriptors that the server needs beside those of its connections: files, listeners, the loop, and the
/// administrator's connections.
const OTHER_FILES: u64 = 128;

/// Allows as many open files as `max_connections` needs, as far as the system lets us.
fn raise_file_limit(max_connections: u64) {
    let wanted = max_connections.saturating_add(OTHER_FILES);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let current = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    if raised.is_err() || current < wanted {
        tracing::warn!(
            "the system allows {current} open files, which is fewer than max_connections {max_connections} needs: \
             {} connections are taken; raise it with `ulimit -n {wanted}` or LimitNOFILE",
            allowed_connections(max_connections)
        );
    }
}

/// `max_connections`, as far as the limit of open files allows: connections that used up the last descriptor would keep the
/// administrator out, and snapshots and journals from being opened.
pub(crate) fn allowed_connections(max_connections: u64) -> u64 {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return max_connections };
    max_connections.min(limit.saturating_sub(OTHER_FILES).max(limit / 4))
}

/// Random bytes.
pub(crate) fn fill_randomly(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random bytes");
}

/// How an instance begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It takes writes.
    Single,
    /// It waits for masters.
    Orphan,
    /// It is a member of a group.
    Member,
}

/// Starts the queue, with the users and tubes that the configuration declares.
fn start_instance(
    config: &Config,
    identity: Identity,
    store: lycosa_store::Store,
    vclock: lycosa_iproto::vclock::Vclock,
    standing: Standing,
) -> anyhow::Result<Instance> {
    let mut queue = storage::queue_settings(config);
    // A new leader knows the owners of tasks from rows.
    if standing == Standing::Member {
        queue.in_replicaset = true;
        // Sessions outlive a change of the leader.
        let ttr = if config.is_default("queue.ttr") {
            MEMBER_TTR
        } else {
            config.queue_ttr.as_secs_f64().max(LEAST_MEMBER_TTR)
        };
        queue.ttr = Some(lycosa_queue::Seconds::from_double(ttr));
    }
    let queue = Queue::new(queue, Box::new(|| Uuid::new_v4().into_bytes()));
    let process = Process { id: std::process::id(), entropy: Box::new(fill_randomly) };
    let settings = storage::instance_settings(config);
    let mut instance = Instance::new(settings, identity, process, store, queue, vclock, now());
    instance.set_native_queue(config.native_queue);
    instance.set_queue_on_demand(config.queue_on_demand);
    instance.recall_term(replication::fence::read(&config.data_dir, identity.cluster)?);
    let is_orphan = standing == Standing::Orphan;
    if standing == Standing::Member {
        // The group says when it takes writes; then its queue starts.
        instance.join_group(now());
        return Ok(instance);
    }
    if !is_orphan && instance.is_fenced() {
        instance.set_read_only(config.read_only, now());
        return Ok(instance);
    }
    if is_orphan {
        // The queue starts when the instance may write: rows of its own now would be in the way of its masters'.
        instance.set_orphan(true, now());
        instance.set_read_only(config.read_only, now());
        return Ok(instance);
    }
    let waits = config.queue_on_demand && config.tubes.is_empty();
    if !config.native_queue || waits {
        instance.set_read_only(config.read_only, now());
        return Ok(instance);
    }
    let report = instance.start(now()).context("the queue cannot start on this data")?;
    startup::report(&report);
    declare(&mut instance, config).map_err(|error| anyhow::anyhow!("{error}"))?;
    declare_expirations(&mut instance, config).map_err(|error| anyhow::anyhow!("{error}"))?;
    instance.set_read_only(config.read_only, now());
    Ok(instance)
}

/// Makes the users and tubes that the configuration declares, and says what differs from what exists.
pub(crate) fn declare(instance: &mut Instance, config: &Config) -> Result<(), String> {
    let users: Vec<_> = config.users.iter().map(declared_user).collect();
    let tubes: Vec<_> = config.tubes.iter().map(declared_tube).collect();
    let declared = instance.declare(&users, &tubes, now()).map_err(|error| error.message)?;
    if !declared.users.is_empty() {
        tracing::info!("created users of the configuration: {}", declared.users.join(", "));
    }
    if !declared.tubes.is_empty() {
        tracing::info!("created tubes of the configuration: {}", declared.tubes.join(", "));
    }
    for difference in &declared.differences {
        tracing::warn!("{difference}");
    }
    Ok(())
}

/// Begins the expiration tasks that the configuration declares, and changes the tasks that it declares differently now.
pub(crate) fn declare_expirations(instance: &mut Instance, config: &Config) -> Result<(), String> {
    let declare = |task: &crate::config::DeclaredExpiration| lycosa_instance::DeclaredExpiration {
        name: task.name.clone(),
        space: task.space.clone(),
        options: task.options(),
    };
    let declared: Vec<_> = config.expirations.iter().map(declare).collect();
    let begun = instance.declare_expirations(&declared, now()).map_err(|error| error.message)?;
    if !begun.is_empty() {
        tracing::info!("began expiration tasks of the configuration: {}", begun.join(", "));
    }
    Ok(())
}

fn declared_user(user: &crate::config::DeclaredUser) -> DeclaredUser {
    DeclaredUser {
        name: user.name.clone(),
        password: user.password.clone(),
        roles: user.roles.clone(),
        tubes: user.tubes.clone(),
    }
}

fn declared_tube(tube: &crate::config::DeclaredTube) -> DeclaredTube {
    let options = tube.options.iter().map(|(name, value)| {
        let value = match value {
            toml::Value::Integer(number) => Value::from(*number),
            toml::Value::Float(number) => Value::Double(*number),
            toml::Value::Boolean(flag) => Value::from(*flag),
            // The configuration refuses anything else that is no text.
            other => Value::from(other.as_str().unwrap_or_default()),
        };
        (Value::from(name.as_str()), value)
    });
    DeclaredTube { name: tube.name.clone(), kind: tube.kind.clone(), options: Value::Map(options.collect()) }
}

/// The configuration as `box.cfg` shows it.
fn effective_values(config: &Config) -> Vec<(String, Value)> {
    config
        .effective()
        .map(|(setting, text, _)| (setting.key.replace('.', "_"), Value::from(&*text)))
        .collect()
}

/// Waits for what ends this life; applies the configuration again at each SIGHUP. Returns the configuration in force.
async fn wait_for_end(
    core: &Rc<Core>,
    mut config: Config,
    reload: &Reload,
    log: &LogHandle,
    signals: &mut Signals,
) -> (Config, End) {
    loop {
        tokio::select! {
            // A signal reaches the program too, whose end is then no news.
            biased;
            _ = signals.terminate.recv() => {
                tracing::info!("SIGTERM: no new connections, finishing what is under way");
                return (config, End::Told);
            }
            _ = signals.interrupt.recv() => {
                tracing::info!("SIGINT: no new connections, finishing what is under way");
                return (config, End::Told);
            }
            () = core.told_to_exit.notified() => {
                let code = core.exit_code.get().unwrap_or_default();
                tracing::info!("os.exit({code}) in Lua: no new connections, finishing what is under way");
                return (config, End::Exit(code));
            }
            () = core.hub.too_far_behind.notified() => return (config, End::Rejoin),
            _ = signals.hang_up.recv() => {
                notify::reloading();
                match Config::load(reload.file.as_deref(), std::env::vars(), &reload.flags) {
                    Ok(fresh) => {
                        let former = config.replication.clone();
                        config = apply(core, &config, fresh, log);
                        if config.replication != former {
                            core.hub.appliers.borrow_mut().start(core, &config.replication.0);
                        }
                    }
                    Err(error) => tracing::error!("SIGHUP: the configuration stays as it is: {error}"),
                }
                notify::ready("serving, the configuration was read again");
            }
        }
    }
}

/// Applies what can change while the server runs and says what cannot.
fn apply(core: &Core, old: &Config, mut fresh: Config, log: &LogHandle) -> Config {
    for setting in old.differences(&fresh) {
        if setting.reloads {
            tracing::info!("SIGHUP: {} is now {}", setting.key, fresh.text(setting.key));
        } else {
            tracing::warn!(
                "SIGHUP: {} cannot change while the server runs; it stays {} until a restart",
                setting.key,
                old.text(setting.key)
            );
        }
    }
    fresh.keep_fixed(old);
    if let Err(error) = log.set_level(&fresh.log_level) {
        tracing::error!("SIGHUP: log_level {:?} is not a filter: {error}", fresh.log_level);
    }
    match Certificates::read(&fresh) {
        Ok(certificates) => {
            if certificates.server.is_some() || certificates.client.is_some() {
                tracing::info!("SIGHUP: the certificates were read again");
            }
            present(core, certificates);
        }
        Err(error) => tracing::error!("SIGHUP: the certificates stay as they are: {error:#}"),
    }
    *core.hub.settings.borrow_mut() = replication::Settings::of(&fresh);
    let mut instance = core.instance.borrow_mut();
    storage::reconfigure(&mut instance, &fresh);
    // What `promote`, `demote` or `box.cfg` have set stays, unless the configuration says something new.
    if fresh.read_only != old.read_only && fresh.cluster_listen.is_none() {
        instance.set_read_only(fresh.read_only, now());
    }
    instance.set_configuration(effective_values(&fresh));
    if let Some(door) = &*core.door.borrow() {
        door.show_settings(&fresh);
    }
    if (&fresh.users, &fresh.tubes) != (&old.users, &old.tubes)
        && let Err(error) = declare(&mut instance, &fresh)
    {
        tracing::error!("SIGHUP: {error}");
    }
    if let Err(error) = declare_expirations(&mut instance, &fresh) {
        tracing::error!("SIGHUP: {error}");
    }
    drop(instance);
    replication::applier::update_sync(core);
    core.end.notify_one();
    fresh
}

/// Waits until every row is durable and every reply that can leave has left, at most for `limit`.
async fn drain(core: &Core, limit: Duration) -> bool {
    let drained = async {
        while !core.is_drained() {
            core.end.notify_one();
            tokio::time::sleep(DRAIN_POLL).await;
        }
    };
    tokio::time::timeout(limit, drained).await.is_ok()
}

/// Whether every address is one that only this machine can reach.
pub(crate) fn is_loopback_only(addresses: &Addresses) -> bool {
    addresses.0.iter().all(|address| {
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

/// The folder of the data, for messages.
pub(crate) fn shown(path: &Path) -> String {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests;
