//! Masters and replicas: ours with ours, and a real Tarantool on either side.
//!
//! Work runs on the master while the replica follows; either side is killed in the middle. At every pause both must have
//! the same vclock, and then the same definitions, indexes and rows. `oracle::replication/…` has a real Tarantool on one
//! side.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;

use crate::connection::{self, Connection, key, kind};
use crate::exchange::{compare_all, if_possible};
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup, tarantool_is_installed};
use crate::value::Value;

mod switches;

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
        add("compared", compared);
    }
    trials.push(Trial::test("replication::a-conflict-stops-or-is-skipped", || Ok(conflict()?)));
    trials.push(Trial::test("replication::promotion-and-the-way-back", || Ok(promotion()?)));
    trials.push(Trial::test("replication::a-rehearsal-tells-and-changes-nothing", || Ok(rehearsal()?)));
    trials.push(Trial::test("replication::one-put-waits-for-a-replica", || Ok(one_put_waits()?)));
    trials.push(Trial::test("replication::compare-finds-a-row-that-differs", || Ok(a_row_differs()?)));
    let came_true =
        Trial::test("oracle::replication/a-rehearsal-comes-true", || Ok(rehearsal_of_tarantool()?));
    trials.push(if_possible(came_true, tarantool_is_installed()));
    let followed = Trial::test("oracle::replication/follow", || Ok(follow()?));
    trials.push(if_possible(followed, tarantool_is_installed()));
    trials.push(Trial::test("replication::journals-are-kept", || Ok(journals_are_kept()?)));
    trials.push(Trial::test("replication::too-far-behind", || Ok(too_far_behind()?)));
    trials.push(Trial::test("replication::a-worker-follows-the-master", || Ok(worker()?)));
    trials.push(Trial::test("replication::replies-wait-for-replicas", || Ok(replies_wait()?)));
    trials.push(Trial::test("replication::changes-without-replicas-are-refused", || Ok(refuses_alone()?)));
    trials.push(Trial::test("replication::an-anonymous-replica", || Ok(anonymous()?)));
    trials.push(switches::trial());
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
            let reason = "Duplicate key exists in unique index 'primary' in space '_user'";
            wait_for(reason, || Ok(replica.log().contains(reason)))?;
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

/// What a command of the binary prints, asked of a server.
fn command(server: &Server, arguments: &[&str]) -> Result<String> {
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

/// The replica becomes the master with all tasks, and the old master, killed, becomes its replica.
fn promotion() -> Result<()> {
    let mut old = start_master(Peer::Lycosa)?;
    some_work(&old, 0)?;
    let mut new = start_replica(Peer::Lycosa, &old)?;
    some_work(&old, 1)?;
    compare(&old, &mut new)?;
    let waiting = Client::open(&old)?.ask("queue.statistics", vec![Value::str("plain")])?;
    let clock = command(&old, &["demote", "--json"])?;
    let clock = clock.split("\"vclock\":").nth(1).and_then(|rest| rest.split('}').next());
    let clock = clock.ok_or("demote tells no vclock")?.replace('"', "") + "}";
    let promoted = command(&new, &["promote", "--after", &clock])?;
    if !promoted.contains("its queue is RUNNING") {
        return Err(format!("promote says {promoted}"));
    }
    for (state, server) in [("WAITING", &old), ("RUNNING", &new)] {
        let said = Client::open(server)?.ask("queue.state", Vec::new())?;
        if said != Value::Array(vec![Value::str(state)]) {
            return Err(format!("the queue's state is {said}, not {state}"));
        }
    }
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

/// What the first seconds as the master would do is told, and nothing is done.
fn rehearsal() -> Result<()> {
    let master = start_master(Peer::Lycosa)?;
    let mut client = Client::open(&master)?;
    client.ask("queue.create_tube", vec![Value::str("plain"), Value::str("fifo")])?;
    client.ask("queue.create_tube", vec![Value::str("timed"), Value::str("fifottl")])?;
    for tube in ["plain", "timed"] {
        client.ask(&format!("queue.tube.{tube}:put"), vec![Value::str("x")])?;
        client.ask(&format!("queue.tube.{tube}:take"), vec![Value::Int(0)])?;
    }
    let delay = Value::Map(vec![(Value::str("delay"), Value::Int(3600))]);
    client.ask("queue.tube.timed:put", vec![Value::str("later"), delay])?;
    let refused = command(&master, &["promote", "--shadow"]);
    if !refused.as_ref().is_err_and(|error| error.contains("takes writes already")) {
        return Err(format!("a master rehearses: {refused:?}"));
    }
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    let before = vclock(&replica)?;
    let told = command(&replica, &["promote", "--shadow", "--horizon", "2h", "--json"])?;
    // Owners are not replicated without queue.in_replicaset: nobody holds the taken tasks there.
    for wanted in [
        r#""in_replicaset":false"#,
        r#""tube":"plain""#,
        r#""released_at_start":1"#,
        r#""delay_over":1"#,
        r#""complete":true"#,
    ] {
        if !told.contains(wanted) {
            return Err(format!("{wanted} is not in {told}"));
        }
    }
    let text = command(&replica, &["promote", "--shadow"])?;
    if !text.contains("nothing is changed") || !text.contains("all taken tasks become ready") {
        return Err(format!("it says {text}"));
    }
    let stats = command(&replica, &["stats"])?;
    if !stats.contains("takes no writes: read_only") || !stats.contains(": follow, lag") {
        return Err(format!("the statistics of a replica are {stats}"));
    }
    let state = Client::open(&replica)?.ask("queue.state", Vec::new())?;
    if state != Value::Array(vec![Value::str("INIT")]) || vclock(&replica)? != before {
        return Err(format!("the replica is in state {state} after a rehearsal"));
    }
    Ok(())
}

/// Behind a Tarantool with the tubes of `tarantool/queue`: what the rehearsal tells is what the promotion does.
fn rehearsal_of_tarantool() -> Result<()> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files/queue-single");
    let program = format!(
        "box.schema.user.passwd('admin', '{ADMIN_PASSWORD}')\n\
         box.schema.user.grant('guest', 'super', nil, nil, {{if_not_exists = true}})\n"
    );
    let master = Server::start(Peer::Tarantool, Setup { data: Some(data), program, ..Setup::default() })?;
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    let told = command(&replica, &["promote", "--shadow", "--json"])?;
    let told: serde_json::Value = serde_json::from_str(&told).map_err(|error| error.to_string())?;
    let tubes = told["tubes"].as_array().filter(|tubes| tubes.len() > 4).ok_or("tubes are missing")?;
    // What the Tarantool itself has: name, tasks in each state, tasks in all.
    let count = |state: &str| {
        let text = format!(
            "local found = {{}} for _, row in box.space._queue:pairs() do local s = box.space[row[3]]
             table.insert(found, s.index[1]:count('{state}')) end return found"
        );
        let counts = Client::open(&master)?.eval(&text)?;
        let counts = counts.as_array().and_then(|values| values.first()?.as_array().map(<[Value]>::to_vec));
        let counts = counts.ok_or("no counts")?;
        Ok::<_, String>(counts.iter().filter_map(Value::as_int).collect::<Vec<_>>())
    };
    let (taken, ready) = (count("t")?, count("r")?);
    let number = |tube: &serde_json::Value, name: &str| i128::from(tube[name].as_i64().unwrap_or(-1));
    let released: Vec<_> = tubes.iter().map(|tube| number(tube, "released_at_start")).collect();
    if released != taken || taken.iter().sum::<i128>() == 0 {
        return Err(format!("taken are {taken:?}, and released would be {released:?}"));
    }
    Client::open(&master)?.eval("box.cfg{read_only = true}")?;
    compare(&master, &mut replica)?;
    command(&replica, &["promote"])?;
    for (place, tube) in tubes.iter().enumerate() {
        let name = tube["tube"].as_str().unwrap_or_default();
        let wanted = |state: &str| {
            let statistics = Client::open(&replica)?.ask("queue.statistics", vec![Value::str(name)])?;
            let text = statistics.to_string();
            let rest = text.split(&format!("\"{state}\": ")).nth(1).unwrap_or_default().to_owned();
            let number = rest.split([',', '}']).next().and_then(|number| number.parse::<i128>().ok());
            number.ok_or_else(|| format!("{name}: no {state} in {text}"))
        };
        if wanted("taken")? != 0 {
            return Err(format!("{name}: a task is taken after the promotion"));
        }
        // Tasks with deadlines may die at once: the folder is older than they live.
        let has_deadlines = tube["type"].as_str().is_some_and(|kind| kind.ends_with("ttl"));
        let expected = ready[place] + taken[place];
        if !has_deadlines && wanted("ready")? != expected {
            return Err(format!("{name}: {} tasks are ready, not {expected}", wanted("ready")?));
        }
    }
    Ok(())
}

/// `lycosa put --replicas 1` is answered when the replica has the task, and refused where nobody could confirm it.
fn one_put_waits() -> Result<()> {
    let options = vec!["replication_timeout = 0.2".to_owned(), "replicas_missing = \"refuse\"".to_owned()];
    let master = Server::start(Peer::Lycosa, Setup { options, ..Setup::default() })?;
    Client::open(&master)?.ask("queue.create_tube", vec![Value::str("plain"), Value::str("fifo")])?;
    let refused = command(&master, &["put", "plain", "x", "--replicas", "1"]);
    if !refused.as_ref().is_err_and(|error| error.contains("0 replicas are connected and the put asks for 1"))
    {
        return Err(format!("a put that nobody can confirm: {refused:?}"));
    }
    command(&master, &["put", "plain", "cheap"])?;
    // The same from a program.
    let put = "return queue.tube.plain:put('of a program', {replicas = 1})";
    let refused = Client::open(&master)?.eval(put);
    if !refused.as_ref().is_err_and(|error| error.contains("0 replicas are connected and the put asks for 1"))
    {
        return Err(format!("a program's put that nobody can confirm: {refused:?}"));
    }
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    wait_for("the put that a replica confirms", || {
        Ok(command(&master, &["put", "plain", "dear", "--replicas", "1"]).is_ok())
    })?;
    let answered = Client::open(&master)?.eval(put)?;
    if vclock(&replica)? != vclock(&master)? {
        return Err(format!("a program's put was answered with {answered} before the replica had the task"));
    }
    compare(&master, &mut replica)
}

/// A master that keeps one snapshot, and `limit` bytes of journal for replicas.
fn start_frugal_master(limit: &str) -> Result<Server> {
    let options = [
        "replication_timeout = 0.2".to_owned(),
        "checkpoint_count = 1".to_owned(),
        format!("replication_journal_limit = \"{limit}\""),
    ];
    Server::start(Peer::Lycosa, Setup { options: options.to_vec(), ..Setup::default() })
}

/// Works and takes snapshots until nothing but the last of them would be left.
fn work_and_snapshots(master: &Server, round: i128) -> Result<()> {
    for part in 0..3 {
        some_work(master, round + part)?;
        Client::open(master)?.ask("box.snapshot", Vec::new())?;
    }
    Ok(())
}

/// Checkpoints remove no journal that a known replica needs, and the master says for whom they stay.
fn journals_are_kept() -> Result<()> {
    let master = start_frugal_master("1GiB")?;
    some_work(&master, 0)?;
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    replica.kill();
    work_and_snapshots(&master, 1)?;
    let kept = info(&master, "journals")?.to_string();
    if !kept.contains("\"held_by\": 2") {
        return Err(format!("nobody holds journals back: {kept}"));
    }
    replica.launch()?;
    compare(&master, &mut replica)?;
    if replica.log().contains("joins again") {
        return Err(format!("the replica has joined again: {}", replica.log()));
    }
    work_and_snapshots(&master, 10)?;
    compare(&master, &mut replica)
}

/// A replica for which no journal was kept joins again by itself, as the same instance, unless it may not.
fn too_far_behind() -> Result<()> {
    for rejoins in [true, false] {
        let master = start_frugal_master("0")?;
        some_work(&master, 0)?;
        let option = format!("replication_rejoin = {rejoins}");
        let mut replica = start_replica_with(Peer::Lycosa, &master, vec![option])?;
        compare(&master, &mut replica)?;
        let uuid = info(&replica, "uuid")?;
        replica.kill();
        work_and_snapshots(&master, 1)?;
        let lost = "it has to join again";
        wait_for(lost, || Ok(master.log().contains(lost)))?;
        replica.launch()?;
        if !rejoins {
            wait_for("the advice", || Ok(replica.log().contains("move its data folder away")))?;
            wait_for("the stop", || Ok(info(&replica, "replication")?.to_string().contains("stopped")))?;
            continue;
        }
        wait_for("the join", || Ok(replica.log().contains("were set aside")))?;
        wait_for("the second life", || Ok(Client::open(&replica).is_ok()))?;
        compare(&master, &mut replica)?;
        some_work(&master, 20)?;
        compare(&master, &mut replica)?;
        if info(&replica, "uuid")? != uuid || info(&replica, "id")? != Value::Int(2) {
            return Err("the replica is another instance now".to_owned());
        }
        replica.stop()?;
    }
    Ok(())
}

fn start_careful_master(missing: &str) -> Result<Server> {
    let options = [
        "replication_timeout = 0.2".to_owned(),
        "replicas_before_reply = 1".to_owned(),
        format!("replicas_missing = \"{missing}\""),
    ];
    Server::start(Peer::Lycosa, Setup { options: options.to_vec(), ..Setup::default() })
}

/// A reply leaves when a replica has the change too; what tells about the instance, and the replica's own way in, do
/// not wait.
fn replies_wait() -> Result<()> {
    let master = start_careful_master("wait")?;
    let mut client = Client::open(&master)?;
    let (sender, created) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let tube = vec![Value::str("t"), Value::str("fifo")];
        // Whoever waits for it has failed already if it cannot be told.
        let _ = sender.send(client.ask("queue.create_tube", tube).map(|_| client));
    });
    let waits = |what: &str| {
        let pause = Duration::from_millis(300);
        let early = created.recv_timeout(pause).is_ok();
        if early { Err(format!("{what}: a reply has not waited for a replica")) } else { Ok(()) }
    };
    waits("no replica is there")?;
    info(&master, "uuid")?;
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    let created = created.recv_timeout(REPLY_LIMIT).map_err(|error| error.to_string())?;
    let mut client = created?;
    for task in 0..20 {
        client.ask("queue.tube.t:put", vec![Value::Int(task)])?;
    }
    // What was answered is there, whatever becomes of the master now.
    let has = vclock(&replica)?;
    let own = vclock(&master)?;
    if has != own {
        return Err(format!("the master has answered at {own:?} and the replica is at {has:?}"));
    }
    replica.kill();
    replica.launch()?;
    client.ask("queue.tube.t:put", vec![Value::str("after the replica's return")])?;
    compare(&master, &mut replica)
}

/// Without enough replicas changes are refused, and reads are not.
fn refuses_alone() -> Result<()> {
    let master = start_careful_master("refuse")?;
    let tube = || vec![Value::str("t"), Value::str("fifo")];
    let alone = Client::open(&master)?.ask("queue.create_tube", tube());
    if !alone.as_ref().is_err_and(|error| error.contains("replicas_before_reply is 1")) {
        return Err(format!("a change without replicas is answered with {alone:?}"));
    }
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    wait_for("the replica", || Ok(Client::open(&master)?.ask("queue.create_tube", tube()).is_ok()))?;
    replica.kill();
    let put = || Client::open(&master)?.ask("queue.tube.t:put", vec![Value::Int(1)]);
    wait_for("the refusal", || Ok(put().is_err_and(|error| error.contains("0 replicas are connected"))))?;
    info(&master, "uuid")?;
    replica.launch()?;
    wait_for("the replica's return", || Ok(put().is_ok()))
}

/// `lycosa work` with both addresses goes on at the new master.
fn worker() -> Result<()> {
    let text = |error: std::io::Error| error.to_string();
    let old = start_master(Peer::Lycosa)?;
    let tube = vec![Value::str("jobs"), Value::str("fifo")];
    Client::open(&old)?.ask("queue.create_tube", tube)?;
    let new = start_replica(Peer::Lycosa, &old)?;
    let folder = tempfile::tempdir().map_err(text)?;
    let output = folder.path().join("done");
    let script = format!("cat >> '{}'", output.display());
    let addresses = format!("{},{}", old.address(), new.address());
    let mut worker = std::process::Command::new(env!("CARGO_BIN_EXE_lycosa"))
        .args(["work", "jobs", "--address", &addresses, "--", "sh", "-c", &script])
        .stderr(std::process::Stdio::null())
        .spawn()
        .map_err(text)?;
    let done = |word: &str| Ok(std::fs::read_to_string(&output).unwrap_or_default().contains(word));
    let work = || {
        Client::open(&old)?.ask("queue.tube.jobs:put", vec![Value::str("before;")])?;
        wait_for("the first task", || done("before"))?;
        command(&old, &["demote"])?;
        command(&new, &["promote"])?;
        Client::open(&new)?.ask("queue.tube.jobs:put", vec![Value::str("after;")])?;
        wait_for("the task at the new master", || done("after"))
    };
    let worked = work();
    worker.kill().and_then(|()| worker.wait()).map_err(text)?;
    worked
}

/// How `lycosa compare` of two servers ends, and what it prints.
fn comparison(a: &str, b: &str, more: &[&str]) -> Result<(Option<i32>, String)> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_lycosa"))
        .args(["compare", a, b])
        .args(more)
        .env_remove("LYCOSA_USER")
        .output()
        .map_err(|error| error.to_string())?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), said(&output.stdout) + &said(&output.stderr)))
}

fn expect(found: &(Option<i32>, String), code: i32, texts: &[&str]) -> Result<()> {
    let (status, said) = found;
    if *status == Some(code) && texts.iter().all(|text| said.contains(text)) {
        return Ok(());
    }
    Err(format!("expected exit code {code} and {texts:?}; got {status:?} and:\n{said}"))
}

/// `lycosa compare` finds master and replica equal.
fn compared(from: Peer, to: Peer) -> Result<()> {
    let master = start_master(from)?;
    some_work(&master, 0)?;
    let replica = start_replica(to, &master)?;
    some_work(&master, 1)?;
    let (a, b) = (format!("tarantool://{}", master.address()), format!("lycosa://{}", replica.address()));
    expect(&comparison(&a, &b, &["--timeout", "60"])?, 0, &[": the same", "_index", "_cluster"])
}

/// Two copies of one folder take a row each: the vclocks are equal, and one key differs, or is missing.
fn a_row_differs() -> Result<()> {
    let master = start_master(Peer::Lycosa)?;
    let mut client = Client::open(&master)?;
    let tube = vec![Value::str("t"), Value::str("fifo")];
    client.ask("queue.create_tube", tube)?;
    for task in 0..200 {
        client.ask("queue.tube.t:put", vec![Value::Int(task)])?;
    }
    drop(client);
    let mut first = master;
    first.stop()?;
    let setup = || Setup { data: Some(first.data_folder()), ..Setup::default() };
    let (a, b) = (Server::start(Peer::Lycosa, setup())?, Server::start(Peer::Lycosa, setup())?);
    let (at, to) = (a.address().to_string(), b.address().to_string());
    expect(&comparison(&at, &to, &[])?, 0, &[": the same"])?;
    Client::open(&a)?.ask("queue.tube.t:put", vec![Value::str("here")])?;
    expect(&comparison(&at, &to, &["--timeout", "0"])?, 1, &["the vclocks do not meet", "B lacks 1 rows"])?;
    let difference = ["[200] only in A", "1 differ"];
    expect(&comparison(&at, &to, &["--any-vclock"])?, 1, &difference)?;
    Client::open(&b)?.ask("queue.tube.t:put", vec![Value::str("there")])?;
    let found = comparison(&at, &to, &["--json"])?;
    expect(&found, 1, &["\"same\":false", "\"key\":[200]", "\"difference\":\"changed\""])?;
    expect(&comparison(&at, "nobody:x@127.0.0.1:1", &[])?, 4, &["B (nobody@127.0.0.1:1)"])?;
    expect(&comparison(&at, &format!("admin:wrong@{to}"), &[])?, 1, &["wrong user or password"])?;
    expect(&comparison(&at, "admin:wrong@here:x", &[])?, 2, &["is no address"])
}

/// `lycosa follow` joins a Tarantool, holds the same, and is promoted.
fn follow() -> Result<()> {
    let text = |error: std::io::Error| error.to_string();
    let master = start_master(Peer::Tarantool)?;
    some_work(&master, 0)?;
    let folder = tempfile::tempdir().map_err(text)?;
    let log = folder.path().join("log");
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
    let listen = listener.local_addr().map_err(text)?.to_string();
    drop(listener);
    let mut server = std::process::Command::new(env!("CARGO_BIN_EXE_lycosa"))
        .args(["follow", &format!("tarantool://guest@{}", master.address()), "--listen", &listen, "--data"])
        .arg(folder.path().join("data"))
        .current_dir(folder.path())
        .stderr(std::fs::File::create(&log).map_err(text)?)
        .spawn()
        .map_err(text)?;
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let work = || {
        let address = master.address().to_string();
        wait_for("the follower", || Ok(said().contains("is no orphan any more")))?;
        some_work(&master, 1)?;
        expect(&comparison(&address, &listen, &["--timeout", "60"])?, 0, &[": the same"])?;
        let heads = ["as a read-only replica", "next: `lycosa compare", "lycosa promote"];
        expect(&(Some(0), said()), 0, &heads)?;
        Client::open(&master)?.eval("box.cfg{read_only = true}")?;
        let at = listen.parse::<SocketAddr>().map_err(|error| error.to_string())?;
        let options = Value::Map(vec![(Value::str("read_only"), Value::Bool(false))]);
        Client::at(at)?.ask("box.cfg", vec![options])?;
        wait_for("the first write", || {
            let tube = vec![Value::str("after"), Value::str("fifo")];
            Ok(Client::at(at)?.ask("queue.create_tube", tube).is_ok())
        })
    };
    let worked = work().map_err(|error| format!("{error}; its log:\n{}", said()));
    server.kill().and_then(|()| server.wait()).map_err(text)?;
    worked
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
        (format!("nobody:x@{}", master.address()), "Incorrect password supplied for user 'nobody'"),
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
