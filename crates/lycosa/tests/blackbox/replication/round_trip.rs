//! From a Tarantool to Lycosa and back: a Lycosa follows a Tarantool that has tubes, takes over, works, and gives the
//! mastery back. Tasks, ids, owners and clocks go on, and both hold the same at every step.

use std::path::Path;

use libtest_mimic::Trial;

use super::pair::{Client, command, info, start_replica, vclock, wait_for};
use super::{Result, comparison, expect};
use crate::exchange::if_possible;
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup, tarantool_is_installed};
use crate::value::Value;

/// Data folders of a Tarantool with the module `queue`, and whether owners are durable there.
const FOLDERS: [(&str, bool); 2] = [("queue-single", false), ("queue-replicaset", true)];

pub(super) fn trials() -> Vec<Trial> {
    let trials = FOLDERS.map(|(folder, in_replicaset)| {
        let name = format!("oracle::replication/there-and-back/{folder}");
        let trial = Trial::test(name, move || Ok(there_and_back(folder, in_replicaset)?));
        if_possible(trial, tarantool_is_installed())
    });
    trials.into()
}

/// A value that a Lua text returns in the Tarantool.
fn lua(server: &Server, text: &str) -> Result<Value> {
    let values = Client::open(server)?.eval(text)?;
    Ok(values.as_array().and_then(|values| values.first()).cloned().unwrap_or(Value::Nil))
}

/// Name, type and rows of each tube, as the Tarantool has them.
const TUBES: &str = "
    local found = {}
    for _, row in box.space._queue:pairs() do
        local last = box.space[row[3]].index[0]:max()
        table.insert(found, {row[1], row[4], box.space[row[3]]:len(), last and last[1] or -1})
    end
    return found";

/// How many tasks belong to sessions that go on.
const OWNED: &str = "
    local owned = 0
    for _, row in box.space._queue_taken_2:pairs() do
        local session = box.space._queue_shared_sessions:get(row[4])
        if session and session[3] then owned = owned + 1 end
    end
    return owned";

fn wait_clock(of: &Server, as_of: &Server) -> Result<()> {
    let wanted = vclock(as_of)?;
    wait_for("the other's vclock", || Ok(vclock(of)? == wanted))
}

fn the_same(tarantool: &Server, lycosa: &Server) -> Result<()> {
    let (a, b) = (tarantool.address().to_string(), lycosa.address().to_string());
    expect(&comparison(&a, &b, &["--timeout", "60"])?, 0, &[": the same"])
}

#[expect(clippy::too_many_lines, reason = "one story")]
fn there_and_back(folder: &str, in_replicaset: bool) -> Result<()> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files").join(folder);
    let program = format!(
        "box.schema.user.passwd('admin', '{ADMIN_PASSWORD}')\n\
         box.schema.user.grant('guest', 'super', nil, nil, {{if_not_exists = true}})\n"
    );
    let tarantool = Server::start(Peer::Tarantool, Setup { data: Some(data), program, ..Setup::default() })?;
    let lycosa = start_replica(Peer::Lycosa, &tarantool)?;
    the_same(&tarantool, &lycosa)?;

    // The Tarantool goes on working while it is followed.
    lua(&tarantool, "local s = box.schema.space.create('beside') s:create_index('pk', {sequence = true})")?;
    lua(&tarantool, "for i = 1, 100 do box.space.beside:insert{box.NULL, 'row ' .. i} end")?;
    the_same(&tarantool, &lycosa)?;
    let tubes = lua(&tarantool, TUBES)?;
    let tubes = tubes.as_array().filter(|tubes| !tubes.is_empty()).ok_or("the folder has no tubes")?.to_vec();
    let owned = if in_replicaset { lua(&tarantool, OWNED)?.as_int().unwrap_or_default() } else { 0 };

    // The change-over.
    lua(&tarantool, "box.cfg{read_only = true}")?;
    the_same(&tarantool, &lycosa)?;
    let clock = vclock(&tarantool)?;
    let clock = clock.iter().map(|(id, lsn)| format!("{id}: {lsn}")).collect::<Vec<_>>().join(", ");
    let options = if in_replicaset { "{in_replicaset = true, ttr = 3600}" } else { "{}" };
    if in_replicaset {
        Client::open(&lycosa)?.eval(&format!("queue.cfg({options})"))?;
    }
    command(&lycosa, &["promote", "--after", &format!("{{{clock}}}")])?;
    let mut client = Client::open(&lycosa)?;
    if in_replicaset {
        if owned == 0 {
            return Err("nobody owns a task in the folder".to_owned());
        }
        // Sessions that had ended lose their tasks at once, all others keep them.
        wait_for("the owners", || {
            let still = Client::open(&lycosa)?.eval("return box.space._queue_taken_2:len()")?;
            Ok(still == Value::Array(vec![Value::Int(owned)]))
        })?;
    }

    // Ids go on where they were, in every tube that takes a plain task.
    for tube in &tubes {
        let [Value::Str(name), kind, _, Value::Int(last)] = tube.as_array().unwrap_or_default() else {
            return Err(format!("a tube is {tube}"));
        };
        if *kind == Value::str("limfifottl") {
            // It is full.
            continue;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let put = client.ask(&format!("queue.tube.{name}:put"), vec![Value::str("after the change-over")])?;
        let id = put.as_array().and_then(|values| values.first()?.as_array()?.first()?.as_int());
        if id.is_none_or(|id| id <= *last) {
            return Err(format!("{name}: the last id was {last}, and a put answers {put}"));
        }
        client.ask(&format!("queue.tube.{name}:take"), vec![Value::Int(0)])?;
    }
    for round in 0..30 {
        client.ask("queue.tubes", Vec::new())?;
        client.eval(&format!("return box.space.beside:insert{{box.NULL, 'of Lycosa {round}'}}"))?;
    }
    let next = client.eval("return box.space.beside:insert{box.NULL, 'the last'}[1]")?;
    if next != Value::Array(vec![Value::Int(131)]) {
        return Err(format!("the sequence went on with {next}"));
    }

    // The way back: the Tarantool follows, holds the same, and is the master again.
    lua(&tarantool, &format!("box.cfg{{replication = 'guest@{}'}}", lycosa.address()))?;
    wait_clock(&tarantool, &lycosa)?;
    the_same(&tarantool, &lycosa)?;
    drop(client);
    command(&lycosa, &["demote"])?;
    wait_clock(&tarantool, &lycosa)?;
    the_same(&tarantool, &lycosa)?;
    let before = vclock(&tarantool)?;
    lua(&tarantool, "box.cfg{read_only = false, replication = {}}")?;
    let own = info(&tarantool, "id")?.as_int().unwrap_or_default();
    let id = lua(&tarantool, "return box.space.beside:insert{box.NULL, 'of the Tarantool again'}[1]")?;
    if id != Value::Int(132) {
        return Err(format!("the sequence went on with {id} in the Tarantool"));
    }
    let after = vclock(&tarantool)?;
    let grew = |(id, lsn): &(i128, i128)| {
        let former = before.iter().find(|former| former.0 == *id).map_or(0, |former| former.1);
        if *id == own { *lsn > former } else { *lsn == former }
    };
    if !after.iter().all(grew) {
        return Err(format!("the vclock was {before:?} and is {after:?}"));
    }
    // The Lycosa follows it all the while.
    the_same(&tarantool, &lycosa)
}
