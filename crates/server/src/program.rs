//! Lua programs: `lycosa init.lua` runs one, with an instance as soon as it calls `box.cfg`.
//!
//! The program's fibers run on the loop's thread, between turns. One task resumes them: when a turn has brought requests,
//! answers or durable rows, when a deadline has come, when standard input has a line. The instance is lent to a fiber for
//! the moment of a call ([`Host::instance`]); the task never holds it while fibers run.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use lycosa_instance::{Caller, Instance, Invoke};
use lycosa_lua::fiber::Ticket;
use lycosa_lua::{Host, Limits, Runtime};
use lycosa_queue::TaskEvent;
use lycosa_tuple::value::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

use crate::config::{Addresses, ByteSize, Config, Flags, WalMode};
use crate::serve::{self, Running};
use crate::turn::{Core, Listener, now};

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// The file; none if there are only expressions.
    pub file: Option<PathBuf>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Expressions that run before the file (`-e`).
    pub expressions: Vec<String>,
    /// Modules that are required before the file (`-l`).
    pub modules: Vec<String>,
    /// A console follows the file (`-i`).
    pub interactive: bool,
}

/// The longest sleep without a deadline.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A line of standard input; `None` is its end.
type Line = Option<String>;

/// The program's side of the server.
struct Program {
    core: OnceCell<Rc<Core>>,
    /// There is something to do for the fibers.
    news: Notify,
    invokes: RefCell<VecDeque<Invoke>>,
    sessions: RefCell<VecDeque<(Caller, String, bool)>>,
    peers: RefCell<HashMap<u64, String>>,
    /// What `box.cfg` asks for, and who waits for it.
    request: RefCell<Option<(Config, Ticket)>>,
    configured: RefCell<Result<(), String>>,
    options: RefCell<Vec<(String, Value)>>,
    exit: Cell<Option<i32>>,
    events: RefCell<VecDeque<TaskEvent>>,
    waits: Cell<bool>,
    lines: RefCell<VecDeque<Line>>,
    reader: Cell<Option<Ticket>>,
    input: RefCell<Option<UnboundedSender<Line>>>,
}

impl Host for Program {
    fn instance(&self) -> Option<RefMut<'_, Instance>> {
        Some(self.core.get()?.instance.borrow_mut())
    }

    fn touch(&self) {
        if let Some(core) = self.core.get() {
            core.end.notify_one();
        }
    }

    fn configure(&self, options: &[(String, Value)], ticket: Ticket) -> Result<bool, String> {
        if self.core.get().is_some() {
            return self.reconfigure(options).map(|()| true);
        }
        if self.request.borrow().is_some() {
            return Err("box.cfg is under way in another fiber".to_owned());
        }
        let config = config_of(options)?;
        *self.options.borrow_mut() = options.to_vec();
        *self.request.borrow_mut() = Some((config, ticket));
        self.news.notify_one();
        Ok(false)
    }

    fn configured(&self) -> Result<(), String> {
        self.configured.borrow().clone()
    }

    fn exit(&self, code: i32) {
        self.exit.set(Some(code));
        self.news.notify_one();
    }

    fn read_line(&self, ticket: Ticket) -> Option<Line> {
        if let Some(line) = self.lines.borrow_mut().pop_front() {
            return Some(line);
        }
        self.reader.set(Some(ticket));
        if let Some(input) = self.input.borrow_mut().take() {
            read_standard_input(input);
        }
        None
    }
}

impl Listener for Program {
    fn turn_ended(&self, instance: &mut Instance) {
        let mut invokes = self.invokes.borrow_mut();
        while let Some(invoke) = instance.poll_invoke() {
            invokes.push_back(invoke);
        }
        let mut events = self.events.borrow_mut();
        while let Some(event) = instance.poll_event() {
            events.push_back(event);
        }
        if !invokes.is_empty() || !events.is_empty() || self.waits.get() {
            self.news.notify_one();
        }
    }

    fn connected(&self, caller: Caller, peer: &str) {
        self.peers.borrow_mut().insert(caller.session, peer.to_owned());
        self.sessions.borrow_mut().push_back((caller, peer.to_owned(), true));
        self.news.notify_one();
    }

    fn disconnected(&self, caller: Caller, peer: &str) {
        self.peers.borrow_mut().remove(&caller.session);
        self.sessions.borrow_mut().push_back((caller, peer.to_owned(), false));
        self.news.notify_one();
    }
}

impl Program {
    fn new() -> (Rc<Program>, UnboundedReceiver<Line>) {
        let (input, lines) = unbounded_channel();
        let program = Program {
            core: OnceCell::new(),
            news: Notify::new(),
            invokes: RefCell::default(),
            sessions: RefCell::default(),
            peers: RefCell::default(),
            request: RefCell::default(),
            configured: RefCell::new(Ok(())),
            options: RefCell::default(),
            exit: Cell::new(None),
            events: RefCell::default(),
            waits: Cell::new(false),
            lines: RefCell::default(),
            reader: Cell::new(None),
            input: RefCell::new(Some(input)),
        };
        (Rc::new(program), lines)
    }

    /// `box.cfg` of a running instance: what can change changes; what stays the same is accepted.
    fn reconfigure(&self, options: &[(String, Value)]) -> Result<(), String> {
        let known = self.options.borrow().clone();
        for (name, value) in options {
            match (name.as_str(), value.as_bool()) {
                ("read_only", Some(read_only)) => {
                    if let Some(core) = self.core.get() {
                        core.instance.borrow_mut().set_read_only(read_only, now());
                        core.end.notify_one();
                    }
                }
                ("log_level" | "too_long_threshold" | "replication_timeout", _) => {}
                _ if known.iter().any(|(other, old)| other == name && old == value) => {}
                _ => {
                    return Err(format!(
                        "Can't set option '{name}' dynamically: set it in the first box.cfg and restart"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The configuration that the options of `box.cfg` ask for. Without `listen` nobody can connect; without a folder the data
/// are in the working directory, as in Tarantool.
fn config_of(options: &[(String, Value)]) -> Result<Config, String> {
    let none = std::iter::empty::<(String, String)>();
    let mut config = Config::load(None, none, &Flags::default()).map_err(|error| error.to_string())?;
    config.listen = Addresses(Vec::new());
    config.data_dir = PathBuf::from(".");
    let text_of = |value: &Value| match value {
        Value::Str(text) => String::from_utf8_lossy(text).into_owned(),
        other => other.as_u64().map_or_else(String::new, |number| number.to_string()),
    };
    for (name, value) in options {
        let text = text_of(value);
        let wrong = || format!("Incorrect value for option '{name}': {text:?} is not possible here");
        match name.as_str() {
            "listen" => config.listen = Addresses(vec![address_of(&text).ok_or_else(wrong)?]),
            "memtx_dir" | "wal_dir" | "work_dir" => config.data_dir = PathBuf::from(text),
            "memtx_memory" => config.memory_limit = ByteSize(value.as_u64().ok_or_else(wrong)?),
            "memtx_max_tuple_size" => config.max_tuple_size = ByteSize(value.as_u64().ok_or_else(wrong)?),
            "wal_max_size" => config.wal_max_size = ByteSize(value.as_u64().ok_or_else(wrong)?),
            "wal_mode" => {
                config.wal_mode = match text.as_str() {
                    "none" => WalMode::None,
                    "write" => WalMode::Write,
                    "fsync" => WalMode::Fsync,
                    _ => return Err(wrong()),
                }
            }
            "read_only" => config.read_only = value.as_bool().ok_or_else(wrong)?,
            "force_recovery" => config.force_recovery = value.as_bool().ok_or_else(wrong)?,
            "checkpoint_interval" => {
                config.checkpoint_interval = Duration::from_secs(value.as_u64().ok_or_else(wrong)?);
            }
            "checkpoint_count" => config.checkpoint_count = value.as_u64().ok_or_else(wrong)?,
            _ => {}
        }
    }
    Ok(config)
}

/// `3301`, `:3301`, `host:3301`, `*:3301`.
fn address_of(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    port.parse::<u16>().ok()?;
    let host = if host.is_empty() || host == "*" { "0.0.0.0" } else { host };
    Some(format!("{host}:{port}"))
}

/// Reads lines in a thread of its own: standard input may be a terminal or a pipe that never ends.
fn read_standard_input(input: UnboundedSender<Line>) {
    let reading = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if input.send(Some(line)).is_err() {
                return;
            }
        }
        let _ = input.send(None);
    });
    if let Err(error) = reading {
        tracing::error!("standard input cannot be read: {error}");
    }
}

/// Runs a program to its end.
///
/// # Errors
/// The program cannot be started, or its server cannot be ended cleanly.
pub fn run(script: Script) -> anyhow::Result<ExitCode> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    let code = local.block_on(&tokio, run_script(script))?;
    Ok(ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1)))
}

async fn run_script(script: Script) -> anyhow::Result<i32> {
    let (program, mut lines) = Program::new();
    // A program's own code has no time limit: it is the operator's, as under `tarantool`.
    let limits = Limits { time_budget: Duration::ZERO, memory: 2 << 30 };
    let failed =
        |error: &lycosa_lua::Error, runtime: &Runtime| anyhow::anyhow!("{}", error.message(runtime.main()));
    let runtime = match Runtime::new(limits) {
        Ok(runtime) => runtime,
        Err(_) => anyhow::bail!("Lua cannot be started: is there memory?"),
    };
    runtime.attach(program.clone()).map_err(|error| failed(&error, &runtime))?;
    let main =
        runtime.spawn("main", move |lua| run_main(lua, &script)).map_err(|error| failed(&error, &runtime))?;
    main.set_joinable(true);
    let mut server: Option<(Running, Config)> = None;
    let code = drive(&program, &runtime, &main, &mut server, &mut lines).await?;
    drop(runtime);
    if let Some((running, config)) = server {
        running.stop(&config).await?;
    }
    Ok(code)
}

/// Runs Lua beside a server whose instance is there: the program `app`, if one is named, and what clients call. Ends with
/// the task.
///
/// # Errors
/// Lua cannot be started.
pub(crate) fn start_beside(core: &Rc<Core>, config: &Config) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let (program, mut lines) = Program::new();
    let memory = usize::try_from(config.lua_memory.0).unwrap_or(usize::MAX);
    let limits = Limits { time_budget: config.lua_time_budget, memory };
    let Ok(runtime) = Runtime::new(limits) else { anyhow::bail!("Lua cannot be started: is there memory?") };
    let _ = program.core.set(core.clone());
    runtime.attach(program.clone()).map_err(|error| anyhow::anyhow!("{}", error.message(runtime.main())))?;
    core.listen(program.clone());
    core.allow_programs();
    let app = config.app.clone();
    let main = runtime
        .spawn("main", move |lua| {
            lua.load(b"box.cfg{} rawset(_G, 'queue', require('queue'))", "=start")?;
            lua.call(0, 0)?;
            let file = (!app.is_empty()).then(|| app.into());
            run_main(lua, &Script { file, ..Script::default() })
        })
        .map_err(|error| anyhow::anyhow!("{}", error.message(runtime.main())))?;
    main.set_joinable(true);
    Ok(tokio::task::spawn_local(async move {
        let mut server = None;
        match drive(&program, &runtime, &main, &mut server, &mut lines).await {
            Ok(code) => {
                tracing::info!("the program has ended with code {code}; the server goes on without it");
            }
            Err(error) => tracing::error!("Lua has ended: {error:#}"),
        }
    }))
}

/// The main fiber: expressions, modules, the file, a console.
fn run_main(lua: lycosa_lua::Lua, script: &Script) -> Result<i32, lycosa_lua::Error> {
    for module in &script.modules {
        lua.push_global("require");
        lua.push_str(module);
        lua.call(1, 0)?;
    }
    for expression in &script.expressions {
        lua.load(expression.as_bytes(), "=(command line)")?;
        lua.call(0, 0)?;
    }
    if let Some(file) = &script.file {
        lua.push_global("require");
        lua.push_str("lycosa.program");
        lua.call(1, 1)?;
        lua.raw_field(-1, "run");
        lua.push_str(file.to_string_lossy().as_bytes());
        for argument in &script.arguments {
            lua.push_str(argument);
        }
        let count = i32::try_from(script.arguments.len()).unwrap_or(0);
        lua.call(1 + count, 0)?;
    }
    if script.interactive {
        lua.push_global("require");
        lua.push_str("console");
        lua.call(1, 1)?;
        lua.raw_field(-1, "start");
        lua.call(0, 0)?;
    }
    Ok(0)
}

/// Resumes fibers until the program ends; returns its exit code.
async fn drive(
    program: &Rc<Program>,
    runtime: &Runtime,
    main: &lycosa_lua::fiber::Fiber,
    server: &mut Option<(Running, Config)>,
    lines: &mut UnboundedReceiver<Line>,
) -> anyhow::Result<i32> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let is_beside = program.core.get().is_some();
    let mut is_over = false;
    loop {
        deliver(program, runtime);
        runtime.handle_news();
        let next = runtime.resume_ready(now());
        program.waits.set(runtime.waits_for_instance());
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
        let request = program.request.borrow_mut().take();
        if let Some((config, ticket)) = request {
            let started = serve::start(&config).await;
            *program.configured.borrow_mut() = match started {
                Ok(running) => {
                    running.core.listen(program.clone());
                    running.core.allow_programs();
                    let _ = program.core.set(running.core.clone());
                    *server = Some((running, config));
                    Ok(())
                }
                Err(error) => Err(format!("{error:#}")),
            };
            runtime.wake(ticket);
            continue;
        }
        let now = now();
        if is_over && program.core.get().is_none() && next.is_none() {
            return Ok(0);
        }
        let wait = next
            .map_or(LONGEST_SLEEP, |next| Duration::from_micros(next.saturating_sub(now)).min(LONGEST_SLEEP));
        if wait.is_zero() {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = program.news.notified() => {}
            () = tokio::time::sleep(wait) => {}
            Some(line) = lines.recv() => {
                program.lines.borrow_mut().push_back(line);
                if let Some(reader) = program.reader.take() {
                    runtime.wake(reader);
                }
            }
            _ = terminate.recv() => return Ok(0),
            _ = interrupt.recv() => return Ok(0),
        }
    }
}

/// Starts fibers for what clients ask and for the triggers of sessions.
fn deliver(program: &Program, runtime: &Runtime) {
    loop {
        let session = program.sessions.borrow_mut().pop_front();
        let Some((caller, peer, connected)) = session else { break };
        if let Err(error) = runtime.run_session_triggers(caller, peer, connected) {
            tracing::error!("session triggers did not run: {}", error.message(runtime.main()));
        }
    }
    loop {
        let event = program.events.borrow_mut().pop_front();
        let Some(TaskEvent { tube, operation, tuple }) = event else { break };
        if let Err(error) = runtime.run_task_callback(tube, operation.name().to_owned(), tuple) {
            tracing::error!("on_task_change did not run: {}", error.message(runtime.main()));
        }
    }
    loop {
        let invoke = program.invokes.borrow_mut().pop_front();
        let Some(invoke) = invoke else { break };
        let (request, session) = (invoke.request, invoke.caller.session);
        let peer = program.peers.borrow().get(&session).cloned().unwrap_or_default();
        if let Err(error) = runtime.run_invoke(invoke, peer) {
            let text = error.message(runtime.main());
            if let Some(core) = program.core.get() {
                let error = lycosa_iproto::error::ErrorObject::lua(text);
                core.instance.borrow_mut().finish_invoke(request, Err(error));
                core.end.notify_one();
            }
        }
    }
}
