//! The server's life: start, serve until a signal, end cleanly; a replica that joins again has several lives.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::LocalSet;
use uuid::Uuid;

use crate::certificates::Certificates;
use crate::clock::now;
use crate::config::{Addresses, Config, Flags};
use crate::declarations::{declare, declare_expirations, effective_values};
use crate::logging::LogHandle;
use crate::replication::rejoin;
use crate::running::{present, start};
use crate::startup::shown;
use crate::stuck::{self, Ends};
use crate::turn::Core;
use crate::{notify, program, replication, startup, storage};

/// The arguments of `lycosa serve` besides the configuration's values: how to read it again.
#[derive(Debug, Clone)]
pub struct Reload {
    /// The configuration file, if one was named.
    pub file: Option<PathBuf>,
    /// The flags.
    pub flags: Flags,
}

/// How long the server's end waits for what a program does at its end (`box.ctl.on_shutdown`).
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Runs the server until SIGTERM, SIGINT or a program's `os.exit`; returns the process's exit code.
///
/// # Errors
/// What keeps the server from starting: an address in use, a locked or damaged data folder, a declaration that cannot be
/// carried out. Each says what to do.
pub fn run(config: Config, reload: &Reload, log: &LogHandle) -> anyhow::Result<i32> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = None;
    let mut life = Life { config, rejoins: None };
    loop {
        // What a life has left behind, the lock on the folder above all, ends with its tasks.
        let local = LocalSet::new();
        let next = local.block_on(&runtime, serve(life, reload, log, &mut signals))?;
        drop(local);
        let next = match next {
            ControlFlow::Break(code) => return Ok(code),
            ControlFlow::Continue(life) => life,
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

/// Serves until a signal, and returns the exit code; or until this instance has to join again: then the next life.
async fn serve(
    life: Life,
    reload: &Reload,
    log: &LogHandle,
    signals: &mut Option<Signals>,
) -> anyhow::Result<ControlFlow<i32, Life>> {
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
            () = told_to_end(&mut signals.ends) => {
                stuck::heard();
                return Ok(ControlFlow::Break(0));
            }
        },
    };
    let signals = match signals {
        Some(signals) => signals,
        None => signals.insert(Signals { ends: Ends::new()?, hang_up: signal(SignalKind::hangup())? }),
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
        let time = if end.is_none() { Duration::ZERO } else { LAST_WORDS };
        if tokio::time::timeout(time, &mut program).await.is_err() {
            program.abort();
        }
        running.core.listen(None);
    }
    let next = match end {
        Some(code) => {
            notify::stopping();
            ControlFlow::Break(code)
        }
        None => {
            let instance = running.core.instance.borrow().identity().instance;
            // A port that the system has chosen stays the same.
            let (tls, plain): (Vec<_>, Vec<_>) =
                running.addresses.iter().cloned().partition(|address| address.starts_with("tls://"));
            keep_ports(&mut config.listen, &plain, "");
            keep_ports(&mut config.listen_tls, &tls, "tls://");
            keep_ports(&mut config.http_listen, &urls, "http://");
            keep_ports(&mut config.http_listen_tls, &urls, "https://");
            ControlFlow::Continue(Life { config: config.clone(), rejoins: Some((instance, PathBuf::new())) })
        }
    };
    let stopped = running.stop(&config).await;
    // The end may take long; the service manager gets news until then.
    if let Some(watchdog) = watchdog {
        watchdog.abort();
    }
    stopped?;
    Ok(next)
}

/// Ports that the system has chosen stay the same in the next life.
fn keep_ports(addresses: &mut Addresses, bound: &[String], scheme: &str) {
    if addresses.0.iter().any(|address| address.ends_with(":0")) {
        let bound = bound.iter().filter_map(|url| url.strip_prefix(scheme));
        addresses.0 = bound.map(str::to_owned).collect();
    }
}

/// The status text of a ready server for a service manager.
fn readiness(addresses: &[String]) -> String {
    format!("serving on {}", addresses.join(", "))
}

/// The signals that the server obeys.
struct Signals {
    ends: Ends,
    hang_up: Signal,
}

/// Waits for a signal that ends the server.
async fn told_to_end(ends: &mut Ends) {
    let name = ends.next().await;
    tracing::info!("{name}: no new connections, finishing what is under way");
}

/// Waits for what ends this life; applies the configuration again at each SIGHUP. Returns the configuration in force, and the exit
/// code; `None`: this instance has to join again.
async fn wait_for_end(
    core: &Rc<Core>,
    mut config: Config,
    reload: &Reload,
    log: &LogHandle,
    signals: &mut Signals,
) -> (Config, Option<i32>) {
    loop {
        tokio::select! {
            // A signal reaches the program too, whose end is then no news.
            biased;
            () = told_to_end(&mut signals.ends) => return (config, Some(0)),
            () = core.told_to_exit.notified() => {
                let code = core.exit_code.get().unwrap_or_default();
                tracing::info!("os.exit({code}) in Lua: no new connections, finishing what is under way");
                return (config, Some(code));
            }
            () = core.hub.too_far_behind.notified() => return (config, None),
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
    *core.hub.config.borrow_mut() = fresh.clone();
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
    if (&fresh.declared.users, &fresh.declared.tubes) != (&old.declared.users, &old.declared.tubes)
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
