//! A replica becomes the master: rehearsed, done, and what workers notice of it.

use std::net::SocketAddr;
use std::path::Path;

use super::pair::{Client, command, compare, some_work, start_master, start_replica, vclock, wait_for};
use super::{Result, comparison, expect};
use crate::addresses::free_address;
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup};
use crate::value::Value;

/// The replica becomes the master with all tasks, and the old master, killed, becomes its replica.
pub(super) fn promotion() -> Result<()> {
    let mut old = start_master(Peer::Lycosa)?;
    some_work(&old, 0)?;
    let mut new = start_replica(Peer::Lycosa, &old)?;
    some_work(&old, 1)?;
    let lease = Value::Map(vec![(Value::str("lease"), Value::Int(3600))]);
    let leased = Client::open(&old)?.ask("queue.tube.plain:take", vec![Value::Int(0), lease])?.to_string();
    let token = leased.split("\"lease\": \"").nth(1).and_then(|rest| rest.split('"').next());
    let token = token.ok_or_else(|| format!("no token is in {leased}"))?.to_owned();
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
    // Operations are counted by each process; the numbers of tasks must be the same.
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
    // A lease of the old master goes on, once.
    client.ask("queue.tube.plain:ack", vec![Value::str(&token)])?;
    let again = client.ask("queue.tube.plain:ack", vec![Value::str(&token)]);
    if !again.as_ref().is_err_and(|error| error.contains("is stale")) {
        return Err(format!("a token settles twice: {again:?}"));
    }
    old.kill();
    let uri = format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), new.address());
    old.replicate(uri);
    old.launch()?;
    compare(&new, &mut old)
}

/// The effects of the first seconds as the master are named, and none happens.
pub(super) fn rehearsal() -> Result<()> {
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
    client.ask("queue.tube.plain:put", vec![Value::str("leased")])?;
    let lease = Value::Map(vec![(Value::str("lease"), Value::Int(3600))]);
    client.ask("queue.tube.plain:take", vec![Value::Int(0), lease])?;
    let refused = command(&master, &["promote", "--shadow"]);
    if !refused.as_ref().is_err_and(|error| error.contains("takes writes already")) {
        return Err(format!("a master rehearses: {refused:?}"));
    }
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    let before = vclock(&replica)?;
    let told = command(&replica, &["promote", "--shadow", "--horizon", "2h", "--json"])?;
    // Owners are not replicated without queue.in_replicaset: the taken tasks have no holder there.
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
    if !text.contains("nothing is changed")
        || !text.contains("all taken tasks become ready, but for 1 with a lease")
    {
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
pub(super) fn rehearsal_of_tarantool() -> Result<()> {
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

/// `lycosa work` with both addresses goes on at the new master.
pub(super) fn worker() -> Result<()> {
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

/// `lycosa follow` joins a Tarantool, holds the same, and is promoted.
pub(super) fn follow() -> Result<()> {
    let text = |error: std::io::Error| error.to_string();
    let master = start_master(Peer::Tarantool)?;
    some_work(&master, 0)?;
    let folder = tempfile::tempdir().map_err(text)?;
    let log = folder.path().join("log");
    let listen = free_address().to_string();
    let mut server = std::process::Command::new(env!("CARGO_BIN_EXE_lycosa"))
        .args([
            "follow",
            &format!("tarantool://guest@{}", master.address()),
            "--listen",
            &listen,
            "--http-listen",
            "",
            "--data",
        ])
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
