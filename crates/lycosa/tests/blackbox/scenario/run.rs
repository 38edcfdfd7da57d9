//! Runs one parsed scenario against a server of its own.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write;
use std::time::{Duration, Instant, SystemTime};

use super::calm;
use super::parse::{Action, Answer, Scenario, Tag, Times};
use super::request::Request;
use super::want::Captures;
use crate::connection::{self, Connection, Reply, frame, key, kind};
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup};
use crate::value;

/// A reply that nothing else is said about must come within this.
const REPLY_LIMIT: Duration = Duration::from_secs(60);
/// After a close, so that the server has noticed.
const CLOSE_PAUSE: Duration = Duration::from_millis(150);
const CLOSED_LIMIT: Duration = Duration::from_secs(30);
const PENDING_PAUSE: Duration = Duration::from_millis(50);
const UNTIL_PAUSE: Duration = Duration::from_millis(50);
/// Syncs of the runner's own PINGs begin here, far above the syncs that a scenario counts.
const FIRST_PROBE: u64 = 1 << 48;
/// A file that goes wrong goes wrong everywhere; this many lines are enough to see why.
const MAX_FAILURES: usize = 4;

/// Why a run failed.
#[derive(Debug)]
pub(crate) struct Broken {
    /// One paragraph for each failed line.
    pub(crate) message: String,
    /// The longest time for which the machine or the server did not go on during the run.
    pub(crate) stall: Duration,
}

/// Runs the scenario and gives the server that it ran on, without its connections.
pub(crate) fn run(name: &str, text: &str, scenario: &Scenario, peer: Peer) -> Result<Server, Broken> {
    let watch = calm::Watch::start();
    let needs_lua = text.lines().any(|line| matches!(line.trim(), "needs: lua" | "needs: drivers"));
    let options = needs_lua.then(|| "lua = true".to_owned()).into_iter().collect();
    let setup = Setup { queue: scenario.queue.clone(), options, ..Setup::default() };
    let server = Server::start(peer, setup);
    let server =
        server.map_err(|reason| Broken { message: format!("{name}: {reason}"), stall: Duration::ZERO })?;
    let mut run = Run {
        server,
        clients: BTreeMap::new(),
        captures: Captures::new(),
        marks: HashMap::new(),
        failures: Vec::new(),
        probes: 0,
        slowest: Duration::ZERO,
    };
    let ended = run.all(scenario);
    let mut failures = run.failures;
    failures.extend(ended.err());
    if failures.is_empty() {
        return Ok(run.server);
    }
    let lines = text.lines().collect::<Vec<_>>();
    let mut message = String::new();
    for Failure { line, reason } in &failures {
        let shown = lines.get(line.wrapping_sub(1)).map_or("", |line| line.trim());
        let _ = writeln!(message, "{name}:{line}: {reason}\n    line: {shown}");
    }
    message.push_str(&run.server.why_silent());
    Err(Broken { message, stall: watch.longest().max(run.slowest) })
}

#[derive(Debug)]
struct Failure {
    line: usize,
    reason: String,
}

/// A connection with its requests that are not awaited yet.
struct Client {
    connection: Connection,
    /// Without a tag, oldest first.
    untagged: VecDeque<u64>,
    /// The last request sent under each tag.
    tagged: HashMap<String, u64>,
    sent: HashMap<u64, Instant>,
    /// Whether bytes were sent that may be no whole frame.
    has_bytes: bool,
}

struct Run {
    server: Server,
    clients: BTreeMap<String, Client>,
    captures: Captures,
    marks: HashMap<String, Instant>,
    failures: Vec<Failure>,
    /// PINGs of the runner's own.
    probes: u64,
    /// The longest wait for a reply that nothing holds back.
    slowest: Duration,
}

impl Run {
    /// Goes on after a reply that differs, stops at what makes the rest meaningless.
    fn all(&mut self, scenario: &Scenario) -> Result<(), Failure> {
        self.set_up(scenario)?;
        for step in &scenario.steps {
            let outcome = self.step(&step.action);
            outcome.map_err(|reason| Failure { line: step.line, reason })?;
            if self.failures.len() >= MAX_FAILURES {
                return Ok(());
            }
        }
        self.server.check_alive().map_err(|reason| Failure { line: 0, reason })
    }

    fn set_up(&mut self, scenario: &Scenario) -> Result<(), Failure> {
        if scenario.setup.is_empty() {
            return Ok(());
        }
        let at = |line: usize| move |reason: String| Failure { line, reason: format!("setup: {reason}") };
        let mut admin = Connection::open(self.server.address()).map_err(|error| at(0)(error.to_string()))?;
        let greeting = admin.greeting(REPLY_LIMIT).map_err(at(0))?;
        let auth = connection::auth(&greeting, "admin", ADMIN_PASSWORD).map_err(at(0))?;
        let reply = admin.ask(kind::AUTH, &auth, REPLY_LIMIT).map_err(at(0))?;
        if reply.error != 0 {
            return Err(at(0)(reply.describe()));
        }
        for (line, requests) in &scenario.setup {
            for request in requests {
                let (kind, body) = request.encode(&mut admin, &self.captures).map_err(at(*line))?;
                let sync = admin.send_raw(kind, &body).map_err(|error| at(*line)(error.to_string()))?;
                let reply = admin.reply(sync, Instant::now() + REPLY_LIMIT).map_err(at(*line))?;
                if reply.error != 0 {
                    return Err(at(*line)(reply.describe()));
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_lines, reason = "one match over all steps")]
    fn step(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Ask { connection, request, until, answer } => {
                self.ask(connection, request, *until, answer)
            }
            Action::Send { connection, request, tag, times } => self.send(connection, request, tag, *times),
            Action::Await { connection, tag, answer } => {
                let sync = self.resolve(connection, tag)?;
                let reply = self.wait(connection, sync, &answer.times)?;
                self.check(connection, &reply, answer);
                Ok(())
            }
            Action::Rest { connection, want } => {
                while self.client(connection)?.untagged.front().is_some() {
                    let sync = self.resolve(connection, &Tag::Next)?;
                    let reply = self.wait(connection, sync, &Times::default())?;
                    if !want.matches(&reply, SystemTime::now(), &mut self.captures) {
                        return Err(format!("got {}", reply.describe()));
                    }
                }
                Ok(())
            }
            Action::Cork { connection } => {
                self.client(connection)?.connection.cork();
                Ok(())
            }
            Action::Uncork { connection } => {
                self.client(connection)?.connection.uncork().map_err(|error| error.to_string())
            }
            Action::Bytes { connection, bytes } => {
                let client = self.client(connection)?;
                client.has_bytes = true;
                client.connection.write(bytes).map_err(|error| error.to_string())
            }
            Action::Arrived { connection, tags } => self.arrived(connection, tags),
            Action::Pending { connection, tags } => self.pending(connection, tags),
            Action::Close { connection, at_once } => {
                // Sockets close when the last handle goes: the reader's goes with the shutdown.
                self.clients.remove(connection);
                if !at_once {
                    std::thread::sleep(CLOSE_PAUSE);
                }
                Ok(())
            }
            Action::Closed { connection } => {
                self.client(connection)?.connection.wait_closed(Instant::now() + CLOSED_LIMIT)
            }
            Action::Greeting { connection, pattern } => {
                let greeting = self.client(connection)?.connection.greeting(REPLY_LIMIT)?;
                let greeting = String::from_utf8_lossy(&greeting);
                if pattern.is_match(&greeting) {
                    Ok(())
                } else {
                    Err(format!("the greeting is {greeting:?}"))
                }
            }
            Action::Sleep { seconds } => {
                self.until_handled()?;
                std::thread::sleep(Duration::from_secs_f64(*seconds));
                Ok(())
            }
            Action::Mark { name } => {
                self.marks.insert(name.clone(), Instant::now());
                Ok(())
            }
            Action::Restart { kill, down } => {
                self.clients.clear();
                if *kill {
                    self.server.kill();
                } else {
                    self.server.stop()?;
                }
                std::thread::sleep(Duration::from_secs_f64(*down));
                self.server.launch()
            }
        }
    }

    fn client(&mut self, name: &str) -> Result<&mut Client, String> {
        if !self.clients.contains_key(name) {
            let connection = Connection::open(self.server.address());
            let connection = connection.map_err(|error| format!("cannot connect: {error}"))?;
            let client = Client {
                connection,
                untagged: VecDeque::new(),
                tagged: HashMap::new(),
                sent: HashMap::new(),
                has_bytes: false,
            };
            self.clients.insert(name.to_owned(), client);
        }
        Ok(self.clients.get_mut(name).expect("it was inserted where it was missing"))
    }

    fn ask(
        &mut self,
        name: &str,
        request: &Request,
        until: Option<f64>,
        answer: &Answer,
    ) -> Result<(), String> {
        let give_up = Instant::now() + Duration::from_secs_f64(until.unwrap_or(0.0));
        loop {
            let sync = self.send_once(name, request)?;
            let reply = self.wait(name, sync, &answer.times)?;
            if answer.times.after.is_none() {
                let sent = self.origin(name, sync, None)?;
                self.slowest = self.slowest.max(reply.at.duration_since(sent));
            }
            let fits = self.judge(name, &reply, answer);
            if fits.is_err() && Instant::now() < give_up {
                std::thread::sleep(UNTIL_PAUSE);
                continue;
            }
            if let Err(reason) = fits {
                self.failures.push(Failure { line: answer.line, reason });
            }
            return Ok(());
        }
    }

    /// Waits until the server has handled every request that was sent.
    ///
    /// A server handles the requests of a connection in their order. So the reply to a PING says that it knows the
    /// calls before it, waiting ones too. Connections that are corked or that were sent bytes are left out.
    fn until_handled(&mut self) -> Result<(), String> {
        let mut probes = Vec::new();
        for (name, client) in &mut self.clients {
            if client.has_bytes || client.connection.is_corked() || client.sent.is_empty() {
                continue;
            }
            self.probes += 1;
            let sync = FIRST_PROBE + self.probes;
            let ping = frame(kind::PING, sync, &value::encode(&connection::body([])));
            // The server may have closed the connection, as the scenario says later.
            if client.connection.write(&ping).is_ok() {
                probes.push((name.clone(), sync, Instant::now()));
            }
        }
        for (name, sync, sent) in probes {
            if let Ok(reply) = self.client(&name)?.connection.reply(sync, sent + REPLY_LIMIT) {
                self.slowest = self.slowest.max(reply.at.duration_since(sent));
            }
        }
        Ok(())
    }

    fn send_once(&mut self, name: &str, request: &Request) -> Result<u64, String> {
        self.client(name)?;
        let client = self.clients.get_mut(name).expect("opened above");
        let (kind, body) = request.encode(&mut client.connection, &self.captures)?;
        let sent_at = Instant::now();
        let sync =
            client.connection.send_raw(kind, &body).map_err(|error| format!("cannot send: {error}"))?;
        client.sent.insert(sync, sent_at);
        Ok(sync)
    }

    fn send(&mut self, name: &str, request: &Request, tag: &Tag, times: u32) -> Result<(), String> {
        let mut syncs = Vec::new();
        if times == 1 {
            syncs.push(self.send_once(name, request)?);
        } else {
            self.client(name)?;
            let client = self.clients.get_mut(name).expect("opened above");
            let (kind, body) = request.encode(&mut client.connection, &self.captures)?;
            let mut burst = Vec::new();
            let sent_at = Instant::now();
            for _ in 0..times {
                let sync = client.connection.next_sync();
                burst.extend_from_slice(&frame(kind, sync, &body));
                client.sent.insert(sync, sent_at);
                syncs.push(sync);
            }
            client.connection.write(&burst).map_err(|error| format!("cannot send: {error}"))?;
        }
        let client = self.client(name)?;
        for sync in syncs {
            match tag {
                Tag::Next => client.untagged.push_back(sync),
                Tag::Name(tag) => {
                    client.tagged.insert(tag.clone(), sync);
                }
                Tag::Sync(_) => return Err("a request cannot be sent under a sync".into()),
            }
        }
        Ok(())
    }

    /// The sync that a tag stands for; `Next` is used up by this.
    fn resolve(&mut self, name: &str, tag: &Tag) -> Result<u64, String> {
        let client = self.client(name)?;
        match tag {
            Tag::Sync(sync) => Ok(*sync),
            Tag::Name(tag) => {
                client.tagged.get(tag).copied().ok_or_else(|| format!("nothing was sent as {tag}"))
            }
            Tag::Next => client.untagged.pop_front().ok_or_else(|| "no request is awaited".into()),
        }
    }

    fn wait(&mut self, name: &str, sync: u64, times: &Times) -> Result<Reply, String> {
        let mut deadline = Instant::now() + REPLY_LIMIT;
        if let Some((limit, mark)) = &times.within {
            // A late reply is better named as late than as missing.
            let from = self.origin(name, sync, mark.as_deref())?;
            deadline = deadline.max(from + Duration::from_secs_f64(limit * 2.0));
        }
        let reply = self.client(name)?.connection.reply(sync, deadline);
        reply.map_err(|reason| match self.server.check_alive() {
            Ok(()) => reason,
            Err(ended) => ended,
        })
    }

    /// The moment from which a time limit counts.
    fn origin(&mut self, name: &str, sync: u64, mark: Option<&str>) -> Result<Instant, String> {
        match mark {
            Some(mark) => self.marks.get(mark).copied().ok_or_else(|| format!("there is no mark {mark}")),
            None => {
                let sent = self.client(name)?.sent.get(&sync).copied();
                sent.ok_or_else(|| format!("request {sync} was sent as bytes: its moment is not known"))
            }
        }
    }

    fn check(&mut self, name: &str, reply: &Reply, answer: &Answer) {
        if let Err(reason) = self.judge(name, reply, answer) {
            self.failures.push(Failure { line: answer.line, reason });
        }
    }

    fn judge(&mut self, name: &str, reply: &Reply, answer: &Answer) -> Result<(), String> {
        for wanted in [key::CODE, key::SYNC, key::SCHEMA_VERSION] {
            if reply.header.get(wanted).is_none() {
                return Err(format!("the reply's header has no key {wanted:#04x}: {}", reply.header));
            }
        }
        // The clock was read a little later than the reply came; `$now` has tolerances of seconds.
        if !answer.want.matches(reply, SystemTime::now(), &mut self.captures) {
            return Err(format!("got {}", reply.describe()));
        }
        if let Some((limit, mark)) = &answer.times.after {
            let took = reply.at.duration_since(self.origin(name, reply.sync, mark.as_deref())?).as_secs_f64();
            if took < *limit {
                return Err(format!("the reply came after {took:.3} s, wanted not before {limit} s"));
            }
        }
        if let Some((limit, mark)) = &answer.times.within {
            let took = reply.at.duration_since(self.origin(name, reply.sync, mark.as_deref())?).as_secs_f64();
            if took > *limit {
                return Err(format!("the reply came after {took:.3} s, wanted within {limit} s"));
            }
        }
        Ok(())
    }

    fn arrived(&mut self, name: &str, tags: &[Tag]) -> Result<(), String> {
        let deadline = Instant::now() + REPLY_LIMIT;
        let mut places = Vec::new();
        for tag in tags {
            let sync = self.peek(name, tag)?;
            places.push(self.client(name)?.connection.wait_arrived(sync, deadline)?);
        }
        if places.is_sorted() { Ok(()) } else { Err(format!("the replies came at places {places:?}")) }
    }

    fn pending(&mut self, name: &str, tags: &[Tag]) -> Result<(), String> {
        self.until_handled()?;
        std::thread::sleep(PENDING_PAUSE);
        for tag in if tags.is_empty() { &[Tag::Next] } else { tags } {
            let sync = self.peek(name, tag)?;
            if self.client(name)?.connection.arrived(sync).is_some() {
                return Err(format!("the reply of {tag:?} has come already"));
            }
        }
        Ok(())
    }

    /// The sync that a tag stands for, without using it up.
    fn peek(&mut self, name: &str, tag: &Tag) -> Result<u64, String> {
        match tag {
            Tag::Next => {
                let next = self.client(name)?.untagged.front().copied();
                next.ok_or_else(|| "no request is awaited".into())
            }
            named => self.resolve(name, named),
        }
    }
}
