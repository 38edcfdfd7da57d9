//! The server's life: open the data, start the instance, listen, serve until a signal, end cleanly.
//!
//! Every thread and channel of the process is made here:
//!
//! ```text
//!  main thread ── one tokio loop, owns the instance ───────────────┐
//!    task per connection: reads, hands frames to the instance      │ std::sync::mpsc: one batch at a time
//!    task "turns": ends turns, writes replies                      ├──────────────► thread "journal": append, sync
//!    tasks "accept": one per listening socket                      │◄────────────── tokio mpsc: durable LSN
//!    task "signals": SIGTERM, SIGINT, SIGHUP                       │ std::sync::mpsc, bounded: chunks of a snapshot
//!                                                                  ├──────────────► thread "checkpoint": write, remove
//!                                                                  │◄────────────── tokio mpsc: wants the next chunk
//!    task per master: connects, applies its log                    │ tokio mpsc, bounded: frames of files
//!                                                                  │◄────────────── threads "join", "catch-up": one for each
//!                                                                  │                replica that is behind, while it is
//!  ────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Tasks of the main thread share the instance through [`Core`], without locks; the other threads share nothing. The loop
//! waits for neither of them: it sends a batch when the journal thread is idle, and a chunk when it was asked for. There is a
//! journal thread with `wal_mode` `fsync` only (see [`crate::journal`]).

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use lycosa_instance::{DeclaredTube, DeclaredUser, Identity, Instance};
use lycosa_journal::directory::Directory;
use lycosa_journal::retention::Inventory;
use lycosa_queue::Queue;
use lycosa_tuple::value::Value;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{LocalSet, spawn_local};

use crate::checkpoint_thread::{self, CheckpointThread, Place};
use crate::config::{Addresses, Config, Flags, WalMode};
use crate::journal::{Appender, Journal, RoomWatch};
use crate::journal_thread::JournalThread;
use crate::logging::LogHandle;
use crate::replication::Hub;
use crate::turn::{Core, now};
use crate::{listener, program, replication, startup, storage};

/// What `lycosa serve` was told besides the configuration's values: how to read it again.
#[derive(Debug, Clone)]
pub struct Reload {
    /// The configuration file, if one was named.
    pub file: Option<PathBuf>,
    /// The flags.
    pub flags: Flags,
}

/// How long the server's end may wait for the journal after the connections are closed.
const DRAIN_POLL: Duration = Duration::from_millis(2);

/// Runs the server until SIGTERM or SIGINT.
///
/// # Errors
/// What keeps the server from starting: an address in use, a locked or damaged data folder, a declaration that cannot be
/// carried out. Each says what to do.
pub fn run(config: Config, reload: Reload, log: LogHandle) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, serve(config, reload, log))
}

async fn serve(config: Config, reload: Reload, log: LogHandle) -> anyhow::Result<()> {
    let running = start(&config).await?;
    startup::announce(&config, &running.addresses, &running.core.instance.borrow());
    let lua = config.lua || !config.app.is_empty();
    let program = lua.then(|| program::start_beside(&running.core, &config)).transpose()?;
    let config = wait_for_end(&running.core, config, &reload, &log).await?;
    if let Some(program) = program {
        program.abort();
    }
    running.stop(&config).await
}

/// A server at work: its threads and its tasks.
pub(crate) struct Running {
    pub(crate) core: Rc<Core>,
    /// Where it listens.
    pub(crate) addresses: Vec<String>,
    turns: tokio::task::JoinHandle<()>,
    accepting: Vec<tokio::task::JoinHandle<()>>,
    journal_thread: Option<JournalThread>,
    checkpoints: CheckpointThread,
    admin_path: Option<PathBuf>,
}

/// Opens the data, starts the threads and listens.
pub(crate) async fn start(config: &Config) -> anyhow::Result<Running> {
    raise_file_limit(config.max_connections);
    // What the process creates is its own account's alone, from the moment of its creation.
    umask(Mode::RWXG | Mode::RWXO);
    let directory = Directory::open(&config.data_dir)?;
    warn_if_open_to_others(&config.data_dir);
    let mut listeners = Vec::new();
    for address in &config.listen.0 {
        let listener = listener::bind_tcp(address).await.with_context(|| {
            format!("cannot listen on {address}: is another server running? choose another with --listen")
        })?;
        listeners.push(listener);
    }
    let opened = storage::open_or_join(directory.clone(), config).await?;
    let mut instance = start_instance(config, opened.identity, opened.store, opened.vclock)?;
    instance.set_configuration(effective_values(config));
    let inventory = Inventory::of(&directory).context("cannot read the sizes of the files")?;
    instance.set_checkpoint_base(opened.snapshot, checkpoint_thread::files(&inventory, opened.snapshot));
    if opened.is_damaged {
        instance.force_checkpoint();
    }
    let room = RoomWatch::new(config.data_dir.clone(), config.disk_reserve.0);
    let appender = Appender::new(Box::new(opened.log), room);
    let (journal, journal_thread, done) = if config.wal_mode == WalMode::Fsync {
        let (thread, sender, done) = JournalThread::spawn(appender)?;
        (Journal::Thread(sender), Some(thread), Some(done))
    } else {
        (Journal::Here(Box::new(RefCell::new(appender))), None, None)
    };
    let files = directory.clone();
    let (checkpoints, orders, checkpoint_news) = CheckpointThread::spawn(Place {
        directory,
        folder: config.data_dir.clone(),
        reserve: config.disk_reserve.0,
        instance: opened.identity.instance,
        sound: opened.snapshot,
    })?;
    let hub = Hub::new(files, replication::Settings::of(config), config.replication.0.len());
    let core = Core::new(instance, journal, orders, hub);
    core.hub.appliers.borrow_mut().start(&core, &config.replication.0);

    let admin = bind_admin(&config.data_dir);
    let addresses =
        listeners.iter().map(|l| Ok(l.local_addr()?.to_string())).collect::<anyhow::Result<Vec<_>>>()?;
    let turns = spawn_local(core.clone().run(done, checkpoint_news));
    let mut accepting = Vec::new();
    let admin_path = admin.map(|(listener, path)| {
        accepting.push(spawn_local(listener::accept_admin(core.clone(), listener)));
        path
    });
    for listener in listeners {
        accepting.push(spawn_local(listener::accept_tcp(core.clone(), listener)));
    }
    core.end.notify_one();
    Ok(Running { core, addresses, turns, accepting, journal_thread, checkpoints, admin_path })
}

impl Running {
    /// Ends the server: finishes what is under way, closes the files.
    pub(crate) async fn stop(self, config: &Config) -> anyhow::Result<()> {
        let core = &self.core;
        core.hub.appliers.borrow_mut().stop();
        self.accepting.iter().for_each(tokio::task::JoinHandle::abort);
        core.instance.borrow_mut().abandon_checkpoint("the server ends");
        let drained = drain(core, config.drain_timeout).await;
        core.close_all();
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
        self.turns.abort();
        match self.journal_thread {
            Some(thread) => thread.close(),
            None => core.close_journal(),
        }
        self.checkpoints.close();
        if let Some(path) = self.admin_path {
            let _ = std::fs::remove_file(path);
        }
        tracing::info!("ended");
        kept
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

/// File descriptors that the server needs beside those of its connections: files, listeners, the loop.
const OTHER_FILES: u64 = 64;

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
             raise it with `ulimit -n {wanted}` or LimitNOFILE"
        );
    }
}

/// Starts the queue, with the users and tubes that the configuration declares.
fn start_instance(
    config: &Config,
    identity: Identity,
    store: lycosa_store::Store,
    vclock: lycosa_iproto::vclock::Vclock,
) -> anyhow::Result<Instance> {
    let queue = Queue::new(storage::queue_settings(config));
    let mut instance =
        Instance::new(storage::instance_settings(config), identity, store, queue, vclock, now());
    if !config.replication.0.is_empty() {
        // The queue starts when the instance may write: rows of its own now would be in the way of its masters'.
        instance.set_orphan(true, now());
        instance.set_read_only(config.read_only, now());
        return Ok(instance);
    }
    let report = instance.start(now()).context("the queue cannot start on this data")?;
    startup::report(&report);
    let users: Vec<_> = config.users.iter().map(declared_user).collect();
    let tubes = config.tubes.iter().map(declared_tube).collect::<anyhow::Result<Vec<_>>>()?;
    let declared =
        instance.declare(&users, &tubes, now()).map_err(|error| anyhow::anyhow!("{}", error.message))?;
    if !declared.users.is_empty() {
        tracing::info!("created users of the configuration: {}", declared.users.join(", "));
    }
    if !declared.tubes.is_empty() {
        tracing::info!("created tubes of the configuration: {}", declared.tubes.join(", "));
    }
    declare_expirations(&mut instance, config).map_err(|error| anyhow::anyhow!("{error}"))?;
    instance.set_read_only(config.read_only, now());
    Ok(instance)
}

/// Begins the expiration tasks that the configuration declares, and changes those that it declares differently now.
fn declare_expirations(instance: &mut Instance, config: &Config) -> Result<(), String> {
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

fn declared_tube(tube: &crate::config::DeclaredTube) -> anyhow::Result<DeclaredTube> {
    let mut options = Vec::new();
    for (name, value) in &tube.options {
        let value = match value {
            toml::Value::Integer(number) => Value::from(*number),
            toml::Value::Float(number) => Value::Double(*number),
            toml::Value::Boolean(flag) => Value::from(*flag),
            toml::Value::String(text) => Value::from(text.as_str()),
            other => {
                anyhow::bail!("tube '{}' of the configuration: option {name} cannot be {other}", tube.name)
            }
        };
        options.push((Value::from(name.as_str()), value));
    }
    Ok(DeclaredTube { name: tube.name.clone(), kind: tube.kind.clone(), options: Value::Map(options) })
}

/// The configuration as `box.cfg` shows it.
fn effective_values(config: &Config) -> Vec<(String, Value)> {
    config
        .effective()
        .map(|(setting, text, _)| (setting.key.replace('.', "_"), Value::from(&*text)))
        .collect()
}

/// Waits for SIGTERM or SIGINT; applies the configuration again at each SIGHUP. Returns the configuration in force.
async fn wait_for_end(
    core: &Rc<Core>,
    mut config: Config,
    reload: &Reload,
    log: &LogHandle,
) -> anyhow::Result<Config> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => {
                tracing::info!("SIGTERM: no new connections, finishing what is under way");
                return Ok(config);
            }
            _ = interrupt.recv() => {
                tracing::info!("SIGINT: no new connections, finishing what is under way");
                return Ok(config);
            }
            _ = hang_up.recv() => {
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
    *core.hub.settings.borrow_mut() = replication::Settings::of(&fresh);
    let mut instance = core.instance.borrow_mut();
    instance.reconfigure(storage::instance_settings(&fresh), fresh.memory_limit.0);
    instance.set_read_only(fresh.read_only, now());
    instance.set_configuration(effective_values(&fresh));
    if let Err(error) = declare_expirations(&mut instance, &fresh) {
        tracing::error!("SIGHUP: {error}");
    }
    drop(instance);
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
