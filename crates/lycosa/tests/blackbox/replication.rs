//! Masters and replicas: ours with ours, and a real Tarantool on either side.
//!
//! Work runs on the master while the replica follows; either side is killed in the middle. At every pause both must have
//! the same vclock, and then the same definitions, indexes and rows. `oracle::replication/…` has a real Tarantool on one
//! side.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;

use crate::connection::{self, Connection, key, kind};
use crate::exchange::{compare_all, if_possible};
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup, tarantool_is_installed};
use crate::value::Value;

const REPLY_LIMIT: Duration = Duration::from_secs(30);
/// How long a replica may take to have what its master has.
const SYNC_LIMIT: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, String>;

pub(crate) fn trials() -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    let pairs = [
        (Peer::Lycosa, Peer::Lycosa, "replication::lycosa"),
        (Peer::Lycosa, Peer::Tarantool, "oracle::replication/tarantool-follows"),
        (Peer::Tarantool, Peer::Lycosa, "oracle::replication/follows-tarantool"),
    ];
    for (master, replica, name) in pairs {
        let is_possible =
            [master, replica].iter().all(|peer| *peer == Peer::Lycosa) || tarantool_is_installed();
        let mut add = |what: &str, test: fn(Peer, Peer) -> Result<()>| {
            let trial = Trial::test(format!("{name}/{what}"), move || Ok(test(master, replica)?));
            trials.push(if_possible(trial, is_possible));
        };
        add("work", work);
        add("replica-is-killed", replica_is_killed);
        add("master-is-killed", master_is_killed);
        add("definitions", definitions);
    }
    trials.push(Trial::test("replication::a-conflict-stops-or-is-skipped", || Ok(conflict()?)));
    trials.push(Trial::test("replication::promotion-and-the-way-back", || Ok(promotion()?)));
    trials.push(Trial::test("replication::an-anonymous-replica", || Ok(anonymous()?)));
    trials.push(Trial::test("replication::who-may-not-is-told", || Ok(refusals()?)));
    Ok(trials)
}

/// A connection that asks one thing at a time.
struct Client(Connection);

impl Client {
    fn open(server: &Server) -> Result<Self> {
        Self::at(server.address())
    }

    fn at(address: SocketAddr) -> Result<Self> {
        Connection::open(address).map(Self).map_err(|error| error.to_string())
    }

    fn ask(&mut self, name: &str, arguments: Vec<Value>) -> Result<Value> {
        let reply = self.0.ask(kind::CALL, &connection::call(name, arguments), REPLY_LIMIT)?;
        if reply.error == 0 { Ok(reply.data()) } else { Err(format!("{name}: {}", reply.describe())) }
    }

    fn eval(&mut self, text: &str) -> Result<Value> {
        let body =
            connection::body([(key::EXPRESSION, Value::str(text)), (key::TUPLE, Value::Array(Vec::new()))]);
        let reply = self.0.ask(kind::EVAL, &body, REPLY_LIMIT)?;
        if reply.error == 0 { Ok(reply.data()) } else { Err(format!("{text}: {}", reply.describe())) }
    }

    fn send(&mut self, kind: u32, space: i128, pairs: Vec<(i128, Value)>) -> Result<Value> {
        let body = connection::body(std::iter::once((key::SPACE, Value::Int(space))).chain(pairs));
        let reply = self.0.ask(kind, &body, REPLY_LIMIT)?;
        if reply.error == 0 { Ok(reply.data()) } else { Err(format!("type {kind}: {}", reply.describe())) }
    }

    fn insert(&mut self, space: i128, tuple: Vec<Value>) -> Result<Value> {
        self.send(kind::INSERT, space, vec![(key::TUPLE, Value::Array(tuple))])
    }

    fn replace(&mut self, space: i128, tuple: Vec<Value>) -> Result<Value> {
        self.send(kind::REPLACE, space, vec![(key::TUPLE, Value::Array(tuple))])
    }
}

/// What `box.info` says under a name.
fn info(server: &Server, name: &str) -> Result<Value> {
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
fn vclock(server: &Server) -> Result<Vec<(i128, i128)>> {
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

/// Waits until both have the same vclock, then compares everything that is replicated.
fn compare(master: &Server, replica: &mut Server) -> Result<()> {
    let deadline = Instant::now() + SYNC_LIMIT;
    loop {
        let (wanted, reached) = (vclock(master)?, vclock(replica)?);
        if wanted == reached {
            break;
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
    compare_all(master, replica)
}

fn start_master(peer: Peer) -> Result<Server> {
    let options = vec!["replication_timeout = 0.2".to_owned()];
    Server::start(peer, Setup { options, ..Setup::default() })
}

fn start_replica(peer: Peer, master: &Server) -> Result<Server> {
    start_replica_with(peer, master, Vec::new())
}

fn start_replica_with(peer: Peer, master: &Server, further: Vec<String>) -> Result<Server> {
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
fn some_work(master: &Server, round: i128) -> Result<()> {
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

fn work(from: Peer, to: Peer) -> Result<()> {
    let master = start_master(from)?;
    some_work(&master, 0)?;
    let mut replica = start_replica(to, &master)?;
    compare(&master, &mut replica)?;
    for round in 1..4 {
        some_work(&master, round)?;
        compare(&master, &mut replica)?;
    }
    Ok(())
}

fn replica_is_killed(from: Peer, to: Peer) -> Result<()> {
    let master = start_master(from)?;
    some_work(&master, 0)?;
    let mut replica = start_replica(to, &master)?;
    for round in 1..4 {
        some_work(&master, round)?;
        replica.kill();
        some_work(&master, round + 10)?;
        replica.launch()?;
        compare(&master, &mut replica)?;
    }
    Ok(())
}

fn master_is_killed(from: Peer, to: Peer) -> Result<()> {
    let mut master = start_master(from)?;
    some_work(&master, 0)?;
    let mut replica = start_replica(to, &master)?;
    for round in 1..3 {
        some_work(&master, round)?;
        master.kill();
        std::thread::sleep(Duration::from_millis(300));
        master.launch()?;
        some_work(&master, round + 10)?;
        compare(&master, &mut replica)?;
    }
    Ok(())
}

/// Spaces, indexes, sequences, users, grants and truncation, by the rows that define them.
fn definitions(from: Peer, to: Peer) -> Result<()> {
    let master = start_master(from)?;
    let mut replica = start_replica(to, &master)?;
    let mut client = Client::open(&master)?;
    let map = || Value::Map(Vec::new());
    let unique = |is| Value::Map(vec![(Value::str("unique"), Value::Bool(is))]);
    let parts =
        |field: i128, kind: &str| Value::Array(vec![Value::Array(vec![Value::Int(field), Value::str(kind)])]);
    let (text, int) = (Value::str, Value::Int);
    client.insert(
        280,
        vec![int(700), int(1), text("s"), text("memtx"), int(0), map(), Value::Array(Vec::new())],
    )?;
    client
        .insert(288, vec![int(700), int(0), text("pk"), text("tree"), unique(true), parts(0, "unsigned")])?;
    client.insert(
        284,
        vec![int(9), int(1), text("q"), int(1), int(1), int(1_000_000), int(1), int(0), Value::Bool(false)],
    )?;
    client.insert(340, vec![int(700), int(9), Value::Bool(false), int(0), text("")])?;
    for number in 0..20 {
        client.insert(700, vec![Value::Nil, text(&format!("row {number}"))])?;
    }
    compare(&master, &mut replica)?;
    client.insert(
        288,
        vec![int(700), int(1), text("by_text"), text("tree"), unique(false), parts(1, "string")],
    )?;
    client.replace(285, vec![int(9), int(500)])?;
    client.insert(700, vec![Value::Nil, text("after the sequence was set")])?;
    let auth = Value::Map(vec![(text("chap-sha1"), text("vhvewKp0tNyweZQ+cFKAlsyphfg="))]);
    client.insert(304, vec![int(40), int(1), text("someone"), text("user"), auth])?;
    client.insert(312, vec![int(1), int(40), text("universe"), int(0), int(24)])?;
    compare(&master, &mut replica)?;
    let increment = Value::Array(vec![Value::Array(vec![text("+"), int(1), int(1)])]);
    let truncated = Value::Array(vec![int(700), int(1)]);
    client.send(kind::UPSERT, 330, vec![(key::TUPLE, truncated), (key::OPERATIONS, increment)])?;
    client.insert(700, vec![Value::Nil, text("after truncation")])?;
    client.send(kind::DELETE, 288, vec![(key::KEY, Value::Array(vec![int(700), int(1)]))])?;
    compare(&master, &mut replica)
}

fn wait_for(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + SYNC_LIMIT;
    while Instant::now() < deadline {
        if holds()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("{what} did not happen within {SYNC_LIMIT:?}"))
}

/// Both write the same key: the replica stops and says why, or skips the row if it was told to.
fn conflict() -> Result<()> {
    for skips in [false, true] {
        let master = start_master(Peer::Lycosa)?;
        some_work(&master, 0)?;
        let option = format!("replication_skip_conflict = {skips}");
        let mut replica = start_replica_with(Peer::Lycosa, &master, vec![option])?;
        compare(&master, &mut replica)?;
        set_read_only(&replica, false)?;
        let auth = || Value::Map(Vec::new());
        let user =
            |name: &str| vec![Value::Int(50), Value::Int(1), Value::str(name), Value::str("user"), auth()];
        Client::open(&replica)?.insert(304, user("there"))?;
        let mut client = Client::open(&master)?;
        client.insert(304, user("here"))?;
        client.ask("queue.tube.plain:put", vec![Value::str("behind the conflict")])?;
        if skips {
            let own = |server: &Server| vclock(server).map(|clock| clock.first().copied());
            wait_for("the row behind the conflict", || Ok(own(&replica)? == own(&master)?))?;
        } else {
            wait_for("the stop", || Ok(info(&replica, "replication")?.to_string().contains("stopped")))?;
            let log = replica.log();
            if !log.contains("Duplicate key exists in unique index 'primary' in space '_user'") {
                return Err(format!("the reason is not told: {log}"));
            }
        }
    }
    Ok(())
}

fn set_read_only(server: &Server, read_only: bool) -> Result<()> {
    let options = Value::Map(vec![(Value::str("read_only"), Value::Bool(read_only))]);
    let mut client = Client::open(server)?;
    client.ask("box.cfg", vec![options])?;
    let wanted = if read_only { ["INIT", "WAITING"] } else { ["RUNNING", "RUNNING"] };
    wait_for("the queue's state", || {
        let state = Client::open(server)?.ask("queue.state", Vec::new())?;
        Ok(wanted.iter().any(|wanted| state == Value::Array(vec![Value::str(wanted)])))
    })
}

/// The replica becomes the master with all tasks, and the old master, killed, becomes its replica.
fn promotion() -> Result<()> {
    let mut old = start_master(Peer::Lycosa)?;
    some_work(&old, 0)?;
    let mut new = start_replica(Peer::Lycosa, &old)?;
    some_work(&old, 1)?;
    compare(&old, &mut new)?;
    let waiting = Client::open(&old)?.ask("queue.statistics", vec![Value::str("plain")])?;
    set_read_only(&old, true)?;
    set_read_only(&new, false)?;
    let now = Client::open(&new)?.ask("queue.statistics", vec![Value::str("plain")])?;
    // What was done is counted by each process; what is there must be the same.
    let tasks = |statistics: &Value| {
        let text = statistics.to_string();
        ["ready", "taken", "buried", "delayed", "total"].map(|state| {
            let rest = text.split(&format!("\"{state}\": ")).nth(1).unwrap_or_default();
            rest.split([',', '}']).next().unwrap_or_default().to_owned()
        })
    };
    if tasks(&waiting) != tasks(&now) {
        return Err(format!("the tasks were {waiting} and are {now}"));
    }
    let mut client = Client::open(&new)?;
    let taken = client.ask("queue.tube.plain:take", vec![Value::Int(0)])?;
    if taken == Value::Array(Vec::new()) {
        return Err("the new master has no task".to_owned());
    }
    client.ask("queue.tube.plain:put", vec![Value::str("on the new master")])?;
    old.kill();
    let uri = format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), new.address());
    old.replicate(uri);
    old.launch()?;
    compare(&new, &mut old)
}

fn anonymous() -> Result<()> {
    let master = start_master(Peer::Lycosa)?;
    some_work(&master, 0)?;
    let mut replica = start_replica_with(Peer::Lycosa, &master, vec!["replication_anon = true".to_owned()])?;
    some_work(&master, 1)?;
    compare(&master, &mut replica)?;
    if info(&replica, "id")? != Value::Int(0) {
        return Err(format!("an anonymous replica has number {}", info(&replica, "id")?));
    }
    replica.kill();
    some_work(&master, 2)?;
    replica.launch()?;
    compare(&master, &mut replica)
}

/// A peer without the right, of another replica set, or with a wrong password says why it does not replicate.
fn refusals() -> Result<()> {
    let master = start_master(Peer::Lycosa)?;
    let other = start_master(Peer::Lycosa)?;
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    replica.kill();
    for (uri, expected) in [
        (format!("guest@{}", other.address()), "Replica set UUID mismatch"),
        (format!("admin:wrong@{}", master.address()), "Incorrect password supplied for user 'admin'"),
        (format!("nobody:x@{}", master.address()), "User 'nobody' is not found"),
    ] {
        replica.replicate(uri);
        replica.launch()?;
        wait_for(expected, || Ok(replica.log().contains(expected)))?;
        if info(&replica, "status")? != Value::str("orphan") {
            return Err(format!("without a master the status is {}", info(&replica, "status")?));
        }
        replica.kill();
    }
    Ok(())
}
