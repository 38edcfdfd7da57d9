//! A pair of servers that replicate, the requests to them, and how they are compared.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Result;
use crate::connection::{self, Connection, key, kind};
use crate::exchange::compare_all;
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup};
use crate::value::Value;

pub(super) const REPLY_LIMIT: Duration = Duration::from_secs(120);
/// How long a replica may take to have what its master has.
pub(super) const SYNC_LIMIT: Duration = Duration::from_secs(60);

/// A connection that asks one thing at a time.
pub(super) struct Client(pub(super) Connection);

impl Client {
    pub(super) fn open(server: &Server) -> Result<Self> {
        Self::at(server.address())
    }

    pub(super) fn at(address: SocketAddr) -> Result<Self> {
        Connection::open(address).map(Self).map_err(|error| error.to_string())
    }

    pub(super) fn ask(&mut self, name: &str, arguments: Vec<Value>) -> Result<Value> {
        let reply = self.0.ask(kind::CALL, &connection::call(name, arguments), REPLY_LIMIT)?;
        if reply.error == 0 { Ok(reply.data()) } else { Err(format!("{name}: {}", reply.describe())) }
    }

    pub(super) fn eval(&mut self, text: &str) -> Result<Value> {
        let body =
            connection::body([(key::EXPRESSION, Value::str(text)), (key::TUPLE, Value::Array(Vec::new()))]);
        let reply = self.0.ask(kind::EVAL, &body, REPLY_LIMIT)?;
        if reply.error == 0 { Ok(reply.data()) } else { Err(format!("{text}: {}", reply.describe())) }
    }

    pub(super) fn send(&mut self, kind: u32, space: i128, pairs: Vec<(i128, Value)>) -> Result<Value> {
        let body = connection::body(std::iter::once((key::SPACE, Value::Int(space))).chain(pairs));
        let reply = self.0.ask(kind, &body, REPLY_LIMIT)?;
        if reply.error == 0 { Ok(reply.data()) } else { Err(format!("type {kind}: {}", reply.describe())) }
    }

    pub(super) fn insert(&mut self, space: i128, tuple: Vec<Value>) -> Result<Value> {
        self.send(kind::INSERT, space, vec![(key::TUPLE, Value::Array(tuple))])
    }

    pub(super) fn replace(&mut self, space: i128, tuple: Vec<Value>) -> Result<Value> {
        self.send(kind::REPLACE, space, vec![(key::TUPLE, Value::Array(tuple))])
    }
}

/// What `box.info` says under a name.
pub(super) fn info(server: &Server, name: &str) -> Result<Value> {
    let mut client = Client::open(server)?;
    let answer = match server.peer() {
        Peer::Lycosa => client.ask("box.info", Vec::new())?,
        Peer::Tarantool => client.eval(&format!("return {{{name} = box.info.{name}}}"))?,
    };
    let map = answer.as_array().and_then(|values| values.first()).cloned().unwrap_or(Value::Nil);
    let Value::Map(pairs) = map else { return Err(format!("box.info is {answer}")) };
    let found = pairs.into_iter().find(|(key, _)| *key == Value::str(name));
    found.map(|(_, value)| value).ok_or_else(|| format!("box.info has no {name}"))
}

/// The replicated part of a vclock, sorted.
pub(super) fn vclock(server: &Server) -> Result<Vec<(i128, i128)>> {
    let pairs = match info(server, "vclock")? {
        Value::Map(pairs) => pairs,
        // A Lua table with the keys 1, 2, … is an array to MessagePack.
        Value::Array(items) => (1..).map(Value::Int).zip(items).collect(),
        other => return Err(format!("a vclock is {other}")),
    };
    let number = |value: &Value| value.as_int();
    let mut clock: Vec<_> = pairs
        .iter()
        .filter_map(|(id, lsn)| Some((number(id)?, number(lsn)?)))
        .filter(|pair| pair.0 != 0)
        .collect();
    clock.sort_unstable();
    Ok(clock)
}

/// Waits until both have the same vclock, then compares everything that is replicated. A deadline of a task may come in
/// between, however busy the machine is: then it is done again.
pub(super) fn compare(master: &Server, replica: &mut Server) -> Result<()> {
    let deadline = Instant::now() + SYNC_LIMIT;
    loop {
        let (wanted, reached) = (vclock(master)?, vclock(replica)?);
        if wanted == reached {
            let compared = compare_all(master, replica);
            let is_past = Instant::now() > deadline;
            if compared.is_ok() || is_past || (vclock(master)? == wanted && vclock(replica)? == wanted) {
                return compared;
            }
            continue;
        }
        replica.check_alive()?;
        if Instant::now() > deadline {
            return Err(format!(
                "after {SYNC_LIMIT:?} the master is at {wanted:?} and the replica at {reached:?}; its log:\n{}",
                replica.log()
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn start_master(peer: Peer) -> Result<Server> {
    let options = vec!["replication_timeout = 0.2".to_owned()];
    Server::start(peer, Setup { options, ..Setup::default() })
}

pub(super) fn start_replica(peer: Peer, master: &Server) -> Result<Server> {
    start_replica_with(peer, master, Vec::new())
}

pub(super) fn start_replica_with(peer: Peer, master: &Server, further: Vec<String>) -> Result<Server> {
    let uri = format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), master.address());
    let uri = if peer == Peer::Tarantool { format!("guest@{}", master.address()) } else { uri };
    let mut options = vec![
        format!("replication = \"{uri}\""),
        "replication_timeout = 0.2".to_owned(),
        "read_only = true".to_owned(),
    ];
    options.extend(further);
    Server::start(peer, Setup { options, replicates: Some(uri), ..Setup::default() })
}

/// Puts, takes and finishes tasks, or what a Tarantool without the module can do instead.
pub(super) fn some_work(master: &Server, round: i128) -> Result<()> {
    let mut client = Client::open(master)?;
    if master.peer() == Peer::Tarantool {
        let text = "
            local round = ...
            local s = box.space.jobs or box.schema.space.create('jobs')
            if s.index.pk == nil then s:create_index('pk', {sequence = true}) end
            if s.index.state == nil then
                s:create_index('state', {unique = false, parts = {{2, 'string'}, {1, 'unsigned'}}})
            end
            for i = 1, 50 do
                local job = s:insert{box.NULL, 'r', 'payload ' .. i}
                box.begin()
                s:update(job[1], {{'=', 2, 't'}})
                if i % 3 == 0 then s:delete(job[1]) end
                box.commit()
                s:upsert({job[1], 'x'}, {{'=', 2, 'u'}, {'=', 9, 'too far'}})
            end
            local own = box.space.own or box.schema.space.create('own', {is_local = true})
            if own.index.pk == nil then own:create_index('pk') end
            box.begin() s:insert{box.NULL, 'mixed'} own:replace{1, 'stays here'} box.commit()";
        return client.eval(text).map(drop);
    }
    let number = Value::Int(round);
    if round == 0 {
        for (name, kind) in
            [("plain", "fifo"), ("timed", "fifottl"), ("keyed", "utube"), ("both", "utubettl")]
        {
            client.ask("queue.create_tube", vec![Value::str(name), Value::str(kind)])?;
        }
    }
    for task in 0..30 {
        let text = Value::str(&format!("task {task}"));
        client.ask("queue.tube.plain:put", vec![text.clone()])?;
        let delay = Value::Map(vec![(Value::str("delay"), Value::Int(task % 2 * 1000))]);
        client.ask("queue.tube.timed:put", vec![text.clone(), delay])?;
        let utube = Value::Map(vec![(Value::str("utube"), Value::str(&format!("u{}", task % 4)))]);
        client.ask("queue.tube.keyed:put", vec![text.clone(), utube.clone()])?;
        client.ask("queue.tube.both:put", vec![text, utube])?;
        for tube in ["plain", "timed", "keyed", "both"] {
            let taken = client.ask(&format!("queue.tube.{tube}:take"), vec![Value::Int(0)])?;
            let id = taken.as_array().and_then(|v| v.first()?.as_array()?.first().cloned());
            let Some(id) = id else { continue };
            let done = ["ack", "release", "bury"][(task % 3) as usize];
            client.ask(&format!("queue.tube.{tube}:{done}"), vec![id])?;
        }
    }
    client.ask("queue.tube.plain:put", vec![number]).map(drop)
}

pub(super) fn wait_for(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + SYNC_LIMIT;
    while Instant::now() < deadline {
        if holds()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("{what} did not happen within {SYNC_LIMIT:?}"))
}

pub(super) fn set_read_only(server: &Server, read_only: bool) -> Result<()> {
    let options = Value::Map(vec![(Value::str("read_only"), Value::Bool(read_only))]);
    let mut client = Client::open(server)?;
    client.ask("box.cfg", vec![options])?;
    let wanted = if read_only { ["INIT", "WAITING"] } else { ["RUNNING", "RUNNING"] };
    wait_for("the queue's state", || {
        let state = Client::open(server)?.ask("queue.state", Vec::new())?;
        Ok(wanted.iter().any(|wanted| state == Value::Array(vec![Value::str(wanted)])))
    })
}

/// What a command of the binary prints, asked of a server.
pub(super) fn command(server: &Server, arguments: &[&str]) -> Result<String> {
    let address = server.address().to_string();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_lycosa"))
        .args(arguments)
        .args(["--address", &address])
        .output()
        .map_err(|error| error.to_string())?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(said(&output.stdout))
    } else {
        Err(format!("{arguments:?}: {}", said(&output.stderr)))
    }
}
