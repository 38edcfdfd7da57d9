//! Lua programs: `lycosa init.lua` runs one, with an instance as soon as it calls `box.cfg`.
//!
//! The program's fibers run on the loop's thread, between turns. One task resumes them: when a turn has brought requests,
//! answers or durable rows, at a deadline, when standard input has a line. The instance is lent to a fiber for
//! the moment of a call ([`Host::instance`]); the task never holds it while fibers run.

mod delivery;

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::iter;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use lycosa_instance::{Caller, Instance, LoginAttempt, Programs};
use lycosa_iproto::error::ErrorObject;
use lycosa_lua::fiber::{Fiber, Ticket};
use lycosa_lua::{Host, Input, Limits, Lua, Runtime, SessionEvent};
use lycosa_queue::TaskEvent;
use lycosa_store::OwnedChange;
use lycosa_tuple::value::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::LocalSet;
use uuid::Uuid;

use crate::clock::now;
use crate::config::{Config, WalMode};
use crate::early::Awaited;
use crate::logging;
use crate::program_listen::{Accepting, Bound, Place};
use crate::program_masters::wait_for_masters;
use crate::program_options::{
    CHANGEABLE, changes_nothing, check_change, check_folders, config_of_programs, enter_work_dir, place_of,
    set_options, text_option,
};
use crate::replication;
use crate::running::{self, Running};
use crate::script::{Script, run_main};
use crate::storage;
use crate::stuck::{self, Ends};
use crate::terminal::{Event, Modes, Terminal};
use crate::turn::{Core, Listener};

/// Statements before a program beside a server.
const START_WITH_QUEUE: &[u8] = b"box.cfg{} rawset(_G, 'queue', require('queue'))";
const START_WITHOUT_QUEUE: &[u8] = b"require('lycosa.program').no_native_queue = true box.cfg{}";

/// Microseconds for which fibers run one round after the other. Then the loop serves sockets and the queue.
const LONGEST_SPELL: u64 = 300;

/// Microseconds after which a round of fibers is interrupted. A single function may exceed this: fibers are not preempted.
const LONGEST_ROUND: u64 = 1000;

/// The longest sleep without a deadline.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The program's side of the server.
#[derive(Default)]
struct Program {
    core: OnceCell<Rc<Core>>,
    /// There is something to do for the fibers: [`drive`] is to be woken.
    news: Notify,
    /// The same while fibers run.
    has_news: Cell<bool>,
    /// Fibers run, or a turn is ended for them.
    works: Cell<bool>,
    /// Fibers have done what a turn has to be ended for.
    touched: Cell<bool>,
    sessions: RefCell<VecDeque<(Caller, Rc<str>, SessionEvent)>>,
    /// Whether connections that begin, and log-ins, wait for triggers.
    watched: Cell<(bool, bool)>,
    peers: RefCell<HashMap<u64, Rc<str>>>,
    /// The settings of `box.cfg`, and the fiber that waits for them.
    request: RefCell<Option<(Config, Ticket)>>,
    /// The first `box.cfg` is under way.
    starts: Cell<bool>,
    /// The program's own server, with its configuration.
    server: RefCell<Option<(Running, Config)>>,
    /// Fibers that have changed the masters, and the configuration whose masters they wait for.
    connecting: RefCell<Vec<(Config, Ticket)>>,
    /// Those of them that need not wait any more.
    connected: RefCell<Vec<Ticket>>,
    /// Why the server of the first `box.cfg` has not started.
    not_configured: RefCell<Option<String>>,
    options: RefCell<Vec<(String, Value)>>,
    /// The configuration of the server that the program runs beside.
    base: OnceCell<Config>,
    /// `wal_mode` is `none`.
    keeps_no_journal: Cell<bool>,
    exit: Cell<Option<i32>>,
    /// The addresses that the program's `listen` has bound, until the instance exists.
    bound: RefCell<Option<Bound>>,
    /// The acceptor of connections for the program.
    accepting: RefCell<Option<Accepting>>,
    /// There is a file to load again.
    has_file: Cell<bool>,
    /// The program has a queue of its own (`--no-native-queue`).
    no_native_queue: Cell<bool>,
    events: RefCell<VecDeque<TaskEvent>>,
    changes: RefCell<Vec<OwnedChange>>,
    denied: RefCell<Vec<(Caller, ErrorObject)>>,
    waits: Cell<bool>,
    terminal: Terminal,
}

impl Host for Program {
    fn instance(&self) -> Option<RefMut<'_, Instance>> {
        Some(self.core.get()?.instance.borrow_mut())
    }

    fn touch(&self) {
        if self.works.get() {
            self.touched.set(true);
        } else if let Some(core) = self.core.get() {
            core.end.notify_one();
        }
    }

    fn waits_for_nothing(&self) -> bool {
        self.keeps_no_journal.get()
    }

    fn configure(&self, options: &[(String, Value)], ticket: Ticket) -> Result<bool, String> {
        if self.core.get().is_some() {
            let Some(config) = self.reconfigure(options)? else { return Ok(true) };
            self.connecting.borrow_mut().push((config, ticket));
            self.news.notify_one();
            return Ok(false);
        }
        if self.starts.get() {
            return Err("box.cfg is under way in another fiber".to_owned());
        }
        enter_work_dir(options)?;
        check_folders(options)?;
        let mut config = self.config_of(options)?;
        config.native_queue = !self.no_native_queue.get();
        if let Some(target) = text_option(options, "log") {
            logging::write_to(&target)?;
        }
        *self.bound.borrow_mut() = place_of(options)?.map(|place| place.bind()).transpose()?;
        *self.options.borrow_mut() = options.to_vec();
        self.starts.set(true);
        *self.request.borrow_mut() = Some((config, ticket));
        self.news.notify_one();
        Ok(false)
    }

    fn configured(&self) -> Result<(), String> {
        self.not_configured.borrow().clone().map_or(Ok(()), Err)
    }

    fn listening(&self) -> Option<String> {
        let accepting = self.accepting.borrow().as_ref().map(|accepting| accepting.address.clone());
        accepting.or_else(|| self.base.get()?.listen.0.first().cloned())
    }

    fn watch_sessions(&self, begins: bool, logins: bool) {
        self.watched.set((begins, logins));
        if let Some(core) = self.core.get() {
            core.instance.borrow_mut().watch_sessions(begins, logins);
        }
    }

    fn option(&self, name: &str) -> Option<Value> {
        replication::options::get(self.core.get()?, name)
    }

    fn data_dir(&self) -> String {
        let config = self.config_of(&self.options.borrow());
        config.map_or_else(|_| ".".to_owned(), |config| config.data_dir.display().to_string())
    }

    fn reopen_log(&self) -> Result<(), String> {
        logging::reopen()
    }

    fn log_to(&self, target: &str) -> Result<(), String> {
        logging::write_to(target)
    }

    fn log_as(&self, level: usize, is_json: bool) {
        logging::set_of_program(level, is_json);
    }

    fn exit(&self, code: i32) {
        self.exit.set(Some(code));
        self.news.notify_one();
    }

    fn read_line(&self, ticket: Ticket, prompt: &str) -> Option<Input> {
        self.terminal.read_line(ticket, prompt)
    }

    fn remember(&self, statement: &str) {
        self.terminal.remember(statement);
    }
}

impl Listener for Program {
    fn turn_ended(&self, instance: &mut Instance) {
        let mut events = self.events.borrow_mut();
        events.extend(iter::from_fn(|| instance.poll_event()));
        let mut changes = self.changes.borrow_mut();
        changes.extend(iter::from_fn(|| instance.poll_hooked()));
        let mut denied = self.denied.borrow_mut();
        denied.extend(iter::from_fn(|| instance.poll_denied()));
        let mut sessions = self.sessions.borrow_mut();
        let before = sessions.len();
        while let Some(LoginAttempt { caller, name, is_right }) = instance.poll_login() {
            let peer = self.peers.borrow().get(&caller.session).cloned().unwrap_or_default();
            sessions.push_back((caller, peer, SessionEvent::Login { name, is_right }));
        }
        let has_logins = sessions.len() > before;
        drop(sessions);
        let has_news = has_logins || !events.is_empty() || !changes.is_empty() || !denied.is_empty();
        if has_news || instance.has_invokes() || self.waits.get() {
            self.tell();
        }
    }

    fn connected(&self, caller: Caller, peer: &str) {
        let peer: Rc<str> = peer.into();
        self.peers.borrow_mut().insert(caller.session, peer.clone());
        self.sessions.borrow_mut().push_back((caller, peer, SessionEvent::Begin));
        self.news.notify_one();
    }

    fn disconnected(&self, caller: Caller, peer: &str) {
        let shared = self.peers.borrow_mut().remove(&caller.session);
        let peer = shared.unwrap_or_else(|| peer.into());
        self.sessions.borrow_mut().push_back((caller, peer, SessionEvent::End));
        self.news.notify_one();
    }
}

impl Program {
    fn new() -> (Rc<Program>, UnboundedReceiver<Event>) {
        let program = Program { has_file: Cell::new(true), ..Program::default() };
        let events = program.terminal.events();
        (Rc::new(program), events)
    }

    /// There is something to do for the fibers.
    fn tell(&self) {
        if self.works.get() {
            self.has_news.set(true);
        } else {
            self.news.notify_one();
        }
    }

    /// Whether the program waits for what only [`drive`] does, or is to end.
    fn is_interrupted(&self) -> bool {
        self.exit.get().is_some()
            || self.request.borrow().is_some()
            || !self.connecting.borrow().is_empty()
            || !self.connected.borrow().is_empty()
    }

    /// The configuration that the options of `box.cfg` ask for.
    fn config_of(&self, options: &[(String, Value)]) -> Result<Config, String> {
        let mut config = self.base.get().cloned().map_or_else(config_of_programs, Ok)?;
        set_options(&mut config, options)?;
        Ok(config)
    }

    /// Refuses a value of `replication_anon` that a running instance cannot take.
    fn check_anonymous(&self, wanted: Option<bool>) -> Result<(), String> {
        let Some(core) = self.core.get() else { return Ok(()) };
        let instance = core.instance.borrow();
        let is_anonymous = instance.identity().replica_id == 0;
        let reason = match wanted {
            Some(wanted) if wanted == is_anonymous => return Ok(()),
            Some(true) if !instance.is_read_only_configured() => {
                "the value may be set to true only when the instance is read-only"
            }
            Some(true) => "cannot be turned on after bootstrap",
            _ => {
                "an anonymous replica cannot get a number while it runs: stop it, move its data folder away, and start it \
                 without replication_anon, so that it joins"
            }
        };
        Err(format!("Incorrect value for option 'replication_anon': {reason}"))
    }

    /// Accepts connections where `listen` says.
    fn accept(&self, core: Awaited) {
        let Some(bound) = self.bound.take() else { return };
        let address = bound.address().to_owned();
        match bound.accept(core) {
            Ok(accepting) => *self.accepting.borrow_mut() = Some(accepting),
            Err(error) => tracing::error!("the program does not listen on {address}: {error}"),
        }
    }

    /// Says where the instance listens.
    fn announce(&self) {
        if let Some(accepting) = &*self.accepting.borrow() {
            tracing::info!("the program listens on {}", accepting.address);
        }
    }

    /// Starts the instance that `box.cfg` asks for. The program's fibers and its early clients are served meanwhile.
    async fn start(self: &Rc<Self>, config: Config) -> anyhow::Result<()> {
        let (there, awaited) = watch::channel(None);
        self.accept(awaited);
        let running = running::start_for_program(&config).await?;
        let (core, is_begun) = (running.core.clone(), running.is_begun);
        *self.server.borrow_mut() = Some((running, config.clone()));
        core.listen(Some(self.clone()));
        let (begins, logins) = self.watched.get();
        core.instance.borrow_mut().watch_sessions(begins, logins);
        self.keeps_no_journal.set(config.wal_mode == WalMode::None);
        let _ = self.core.set(core.clone());
        // This instance may be one of its own masters.
        there.send_replace(Some(core.clone()));
        self.announce();
        // A replica set that has just begun has no masters yet: replicas join it later, as a user that the program may create.
        if !is_begun {
            wait_for_masters(&core, &config).await;
        }
        core.allow_programs();
        Ok(())
    }

    /// Listens where `listen` says now. An address of the configured server needs nothing.
    fn listen_again(&self, core: &Rc<Core>, options: &[(String, Value)]) -> Result<(), String> {
        if text_option(options, "listen").as_deref() == Some("") {
            self.accepting.take();
            return Ok(());
        }
        let Some(place) = place_of(options)? else { return Ok(()) };
        if let (Place::Tcp(address), Some(base)) = (&place, self.base.get())
            && base.listen.0.contains(address)
        {
            return Ok(());
        }
        *self.bound.borrow_mut() = Some(place.bind()?);
        self.accepting.take();
        self.accept(watch::channel(Some(core.clone())).1);
        self.announce();
        Ok(())
    }

    /// Whether the option names the UUID that the instance, or its replica set, has already.
    fn is_own_uuid(&self, option: &str, value: &Value) -> bool {
        let (Some(core), Some(text)) = (self.core.get(), value.as_str()) else { return false };
        let identity = core.instance.borrow().identity();
        let own = if option == "instance_uuid" { identity.instance } else { identity.cluster };
        Uuid::parse_str(text).is_ok_and(|uuid| uuid == own)
    }

    /// `box.cfg` of a running instance: what can change changes; what stays the same is accepted; if anything is refused,
    /// nothing changes. Beside a configured server its configuration stands: further options of a program are named in the
    /// log. Returns the configuration if its masters are to be waited for.
    fn reconfigure(&self, options: &[(String, Value)]) -> Result<Option<Config>, String> {
        let mut known = self.options.borrow().clone();
        let mut replication = Vec::new();
        let mut read_only = None;
        let mut changed = Vec::new();
        for (name, value) in options {
            let is_known = known.iter().any(|(other, old)| other == name && old == value);
            match name.as_str() {
                "read_only" => read_only = value.as_bool(),
                _ if is_known && name != "replication" => {}
                name if changes_nothing(name) => {}
                name if CHANGEABLE.contains(&name) => {
                    check_change(name, value, known.iter().find(|(other, _)| other == name))?;
                    changed.push((name.to_owned(), value.clone()));
                }
                "replication_anon" => self.check_anonymous(value.as_bool())?,
                "instance_uuid" | "replicaset_uuid" if self.is_own_uuid(name, value) => {}
                name if replication::options::is_one(name) => {
                    replication.push((name.to_owned(), value.clone()));
                }
                "log" => return Err("Incorrect value for option 'log': can't be set dynamically".to_owned()),
                _ if self.base.get().is_some() => {
                    tracing::warn!(
                        "box.cfg: '{name}' is not changed: the configuration of the server says it"
                    );
                }
                _ => return Err(format!("Can't set option '{name}' dynamically")),
            }
        }
        let has_masters = replication.iter().any(|(name, _)| name == "replication");
        let changes = !replication.is_empty();
        known.retain(|(name, _)| replication.iter().chain(&changed).all(|(new, _)| new != name));
        known.append(&mut replication);
        let is_changed = !changed.is_empty();
        known.extend(changed.iter().cloned());
        let config = self.config_of(&known)?;
        let Some(core) = self.core.get() else { return Ok(None) };
        self.listen_again(core, &changed)?;
        if is_changed {
            storage::reconfigure(&mut core.instance.borrow_mut(), &config);
            *self.options.borrow_mut() = known.clone();
        }
        if let Some(read_only) = read_only {
            core.instance.borrow_mut().set_read_only(read_only, now());
            core.end.notify_one();
        }
        if !changes {
            return Ok(None);
        }
        *core.hub.config.borrow_mut() = config.clone();
        *self.options.borrow_mut() = known;
        replication::options::apply(core, &config);
        if has_masters {
            core.hub.appliers.borrow_mut().start(core, &config.replication.0);
        } else {
            replication::applier::update_sync(core);
        }
        Ok(has_masters.then_some(config))
    }
}

/// Runs a program to its end.
///
/// # Errors
/// The program cannot be started, or its server cannot be ended cleanly.
pub fn run(script: Script) -> anyhow::Result<ExitCode> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    stuck::start()?;
    let local = LocalSet::new();
    let modes = Modes::of_terminal();
    let code = local.block_on(&tokio, run_script(script));
    modes.restore();
    let code = code?;
    Ok(ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1)))
}

/// From how long on the log says that code of a program with data keeps everything waiting.
const LONG_RUN: Duration = Duration::from_secs(3);

async fn run_script(script: Script) -> anyhow::Result<i32> {
    let (program, mut events) = Program::new();
    program.no_native_queue.set(script.no_native_queue);
    // A program's own code has no time limit: it is the operator's, as under `tarantool`.
    let limits =
        Limits { time_budget: Duration::ZERO, hook_time_budget: Duration::from_secs(5), memory: 2 << 30 };
    let (runtime, main) = spawn_main(&program, limits, move |lua| run_main(lua, &script))?;
    let code = drive(&program, &runtime, &main, &mut events).await?;
    drop(runtime);
    program.accepting.take();
    if let Some((running, config)) = program.server.take() {
        // A program that has removed its folder ends as it wanted to; what could not be written is said.
        if let Err(error) = running.stop(&config).await {
            if program.exit.get().is_none() {
                return Err(error);
            }
            tracing::error!("the data were not closed cleanly: {error:#}");
        }
    }
    Ok(code)
}

/// Runs Lua beside a server whose instance exists: the program `app`, if one is named, and functions that clients call. Ends with
/// the task.
///
/// # Errors
/// Lua cannot be started.
pub(crate) fn start_beside(core: &Rc<Core>, config: &Config) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let (program, mut events) = Program::new();
    let memory = config.lua_memory.bytes();
    let limits =
        Limits { time_budget: config.lua_time_budget, hook_time_budget: config.hook_time_budget, memory };
    stuck::start()?;
    let _ = program.core.set(core.clone());
    let _ = program.base.set(config.clone());
    program.keeps_no_journal.set(config.wal_mode == WalMode::None);
    program.has_file.set(!config.app.is_empty());
    let file = Some(config.app.clone()).filter(|app| !app.is_empty());
    let start = if config.native_queue { START_WITH_QUEUE } else { START_WITHOUT_QUEUE };
    let (runtime, main) = spawn_main(&program, limits, move |lua| {
        lua.load(start, "=start")?;
        lua.call(0, 0)?;
        run_main(lua, &Script { file, ..Script::default() })
    })?;
    core.listen(Some(program.clone()));
    core.allow_programs();
    let core = core.clone();
    Ok(tokio::task::spawn_local(async move {
        let driven = drive(&program, &runtime, &main, &mut events).await;
        let code = driven.unwrap_or_else(|error| {
            tracing::error!("Lua has ended: {error:#}");
            1
        });
        // Requests for programs would wait without end if the server went on.
        core.exit_code.set(Some(code));
        core.told_to_exit.notify_one();
    }))
}

/// Starts Lua with the program's main fiber.
fn spawn_main(
    program: &Rc<Program>,
    limits: Limits,
    run: impl FnOnce(Lua) -> Result<i32, lycosa_lua::Error> + 'static,
) -> anyhow::Result<(Runtime, Rc<Fiber>)> {
    let Ok(runtime) = Runtime::new(limits) else { anyhow::bail!("Lua cannot be started: is there memory?") };
    let attached = runtime.attach(program.clone());
    let main = attached.and_then(|()| runtime.spawn("main", run));
    let main = main.map_err(|error| anyhow::anyhow!("{}", error.message(runtime.main())))?;
    main.set_joinable(true);
    Ok((runtime, main))
}

/// Resumes fibers until the program ends; returns its exit code.
async fn drive(
    program: &Rc<Program>,
    runtime: &Runtime,
    main: &Fiber,
    events: &mut UnboundedReceiver<Event>,
) -> anyhow::Result<i32> {
    let mut ends = Ends::new()?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let is_beside = program.core.get().is_some();
    let files = runtime.watch_files()?;
    let (starting, mut started) = unbounded_channel();
    let mut is_over = false;
    loop {
        let begun = Instant::now();
        if program.server.borrow().is_some() {
            runtime.report_long_runs(LONG_RUN);
        }
        let next = work(program, runtime);
        let spell = begun.elapsed();
        if let Some(code) = program.exit.get() {
            return Ok(code);
        }
        if !is_over && runtime.is_dead(main) {
            is_over = true;
            if let Err(message) = runtime.result(main) {
                if is_beside {
                    tracing::error!("the program has failed, the server goes on: {message}");
                    continue;
                }
                eprintln!("LuajitError: {message}\nfatal error, exiting the event loop");
                return Ok(1);
            }
        }
        if begin_start(program, &starting) {
            continue;
        }
        begin_connections(program);
        let connected = program.connected.take();
        if !connected.is_empty() {
            connected.into_iter().for_each(|ticket| _ = runtime.wake(ticket));
            continue;
        }
        let now = now();
        let has_server = program.core.get().is_some() || program.starts.get();
        if is_over && !has_server && next.is_none() && !runtime.waits_for_files() {
            return Ok(0);
        }
        let wait = next
            .map_or(LONGEST_SLEEP, |next| Duration::from_micros(next.saturating_sub(now)).min(LONGEST_SLEEP));
        if wait.is_zero() {
            give_way(program, runtime, spell).await;
            continue;
        }
        tokio::select! {
            () = program.news.notified() => {}
            () = tokio::time::sleep(wait) => {}
            ready = files.readable() => {
                ready?.clear_ready();
                runtime.wake_files(Some(Duration::ZERO));
            }
            Some((started, ticket)) = started.recv() => end_start(program, runtime, started, ticket),
            Some(event) = events.recv() => hear_terminal(program, runtime, event),
            _ = ends.next() => end(runtime),
            _ = hang_up.recv(), if program.has_file.get() => reload(runtime),
        }
    }
}

/// Begins the start of the server that `box.cfg` has asked for. Whether there is one to begin.
fn begin_start(program: &Rc<Program>, starting: &UnboundedSender<(anyhow::Result<()>, Ticket)>) -> bool {
    let Some((config, ticket)) = program.request.borrow_mut().take() else { return false };
    let (program, starting) = (program.clone(), starting.clone());
    tokio::task::spawn_local(async move {
        let started = program.start(config).await;
        // Else the program has ended meanwhile.
        let _ = starting.send((started, ticket));
    });
    true
}

/// The start of the server has ended.
fn end_start(program: &Program, runtime: &Runtime, started: anyhow::Result<()>, ticket: Ticket) {
    program.starts.set(false);
    if started.is_err() {
        program.accepting.take();
    }
    *program.not_configured.borrow_mut() = started.err().map(|error| format!("{error:#}"));
    runtime.wake(ticket);
}

/// Lets everything else have a turn before the next fibers run. The last ones have run for `spell`.
async fn give_way(program: &Program, runtime: &Runtime, spell: Duration) {
    if runtime.waits_for_files() {
        runtime.wake_files(Some(Duration::ZERO));
    }
    match program.core.get() {
        // A function has held the loop: before the next one runs, the queue has as much time as that one took.
        Some(core) if spell > Duration::from_micros(LONGEST_ROUND) => core.settle(spell).await,
        _ => tokio::task::yield_now().await,
    }
}

/// Begins to wait for the masters that `box.cfg` has named.
fn begin_connections(program: &Rc<Program>) {
    for (config, ticket) in program.connecting.take() {
        let (program, core) = (program.clone(), program.core.get().cloned());
        tokio::task::spawn_local(async move {
            if let Some(core) = core {
                wait_for_masters(&core, &config).await;
            }
            program.connected.borrow_mut().push(ticket);
            program.news.notify_one();
        });
    }
}

/// The terminal has brought a line, or asks for words that complete one.
fn hear_terminal(program: &Program, runtime: &Runtime, event: Event) {
    match event {
        Event::Input(input) => {
            if let Some(reader) = program.terminal.receive(input) {
                runtime.wake(reader);
            }
        }
        Event::Complete { line, place, answer } => {
            // A terminal that waits for no answer any more has ended.
            let tell = move |start, words| drop(answer.send((start, words)));
            if let Err(error) = runtime.complete(line, place, tell) {
                tracing::warn!("nothing is completed: {}", error.message(runtime.main()));
            }
        }
    }
}

/// Resumes fibers, round after round, until all of them wait or their time is over, and ends a turn after each round that
/// asks for one. Returns when to call again, as [`Runtime::resume_ready`] does.
fn work(program: &Program, runtime: &Runtime) -> Option<u64> {
    program.works.set(true);
    let begun = now();
    let mut time = begun;
    let next = loop {
        program.has_news.set(false);
        program.deliver(runtime);
        runtime.handle_news();
        // Clients and timers are not polled while fibers only wake each other.
        let left = LONGEST_SPELL.saturating_sub(time.saturating_sub(begun));
        let round = Duration::from_micros(LONGEST_ROUND.saturating_sub(time.saturating_sub(begun)));
        let next = runtime.resume_rounds(time, round, |elapsed| {
            let is_asked = program.touched.get() || program.has_news.get() || program.is_interrupted();
            !is_asked && elapsed.as_micros() < u128::from(left)
        });
        program.waits.set(runtime.waits_for_instance());
        // More may begin once others have ended.
        if program.may_begin_requests(runtime) {
            program.has_news.set(true);
        }
        if program.touched.replace(false)
            && let Some(core) = program.core.get()
        {
            core.end_turn_at_once();
            runtime.handle_news();
        }
        if program.is_interrupted() || !(runtime.has_ready() || program.has_news.get()) {
            break next;
        }
        time = now();
        if time.saturating_sub(begun) > LONGEST_SPELL {
            break Some(time);
        }
    };
    if let Some(core) = program.core.get() {
        let programs = Programs { memory: runtime.memory(), errors: runtime.errors() };
        core.instance.borrow_mut().set_programs(programs);
    }
    program.works.set(false);
    next
}

/// Ends the program as `os.exit(0)` does, with the triggers of its end. A program that does not come to that is not waited
/// for: see `LAST_WORDS`.
fn end(runtime: &Runtime) {
    stuck::heard();
    if let Err(error) = spawn(runtime, "shutdown", b"os.exit(0)") {
        tracing::error!("the program's triggers did not run: {error}");
    }
}

/// Loads the program again (`package.reload`). If that fails the former one goes on; it says why itself.
fn reload(runtime: &Runtime) {
    tracing::info!("SIGHUP: loading the program again");
    if let Err(error) = spawn(runtime, "reload", b"pcall(require('package.reload'))") {
        tracing::error!("the program was not loaded again: {error}");
    }
}

/// Begins a fiber of the server's own statement.
fn spawn(runtime: &Runtime, name: &'static str, statement: &'static [u8]) -> Result<(), String> {
    let run = move |lua: Lua| {
        lua.load(statement, &format!("={name}"))?;
        lua.call(0, 0)?;
        Ok(0)
    };
    runtime.spawn(name, run).map(drop).map_err(|error| error.message(runtime.main()))
}
