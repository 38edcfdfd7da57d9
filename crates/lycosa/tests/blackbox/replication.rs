//! Masters and replicas: ours with ours, and a real Tarantool on either side.
//!
//! Work runs on the master while the replica follows; either side is killed in the middle. At every pause both must have
//! the same vclock, and then the same definitions, indexes and rows. `oracle::replication/…` has a real Tarantool on one
//! side.

use std::time::Duration;

use libtest_mimic::Trial;

use crate::connection::{key, kind};
use crate::exchange::if_possible;
use crate::server::{Peer, Server, Setup, tarantool_is_installed};
use crate::value::Value;

mod clients;
mod copies;
mod disks;
mod frozen;
mod histories;
mod journals;
mod masters;
mod namespaces;
mod pair;
mod peculiar;
mod promotion;
mod random_work;
mod rehearsed;
mod replies;
mod round_trip;
mod states;
mod switches;

use pair::{
    Client, compare, info, set_read_only, some_work, start_master, start_replica, start_replica_with, vclock,
    wait_for,
};

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
    trials.push(Trial::test("replication::promotion-and-the-way-back", || Ok(promotion::promotion()?)));
    trials.push(Trial::test("replication::a-rehearsal-tells-and-changes-nothing", || {
        Ok(promotion::rehearsal()?)
    }));
    trials.push(Trial::test("replication::one-put-waits-for-a-replica", || Ok(replies::one_put_waits()?)));
    trials.push(Trial::test("replication::compare-finds-a-row-that-differs", || Ok(a_row_differs()?)));
    let came_true =
        Trial::test(
            "oracle::replication/a-rehearsal-comes-true",
            || Ok(promotion::rehearsal_of_tarantool()?),
        );
    trials.push(if_possible(came_true, tarantool_is_installed()));
    let followed = Trial::test("oracle::replication/follow", || Ok(promotion::follow()?));
    trials.push(if_possible(followed, tarantool_is_installed()));
    trials.push(Trial::test("replication::journals-are-kept", || Ok(journals::journals_are_kept()?)));
    trials.push(Trial::test("replication::too-far-behind", || Ok(journals::too_far_behind()?)));
    trials.push(Trial::test("replication::two-replicas-too-far-behind-do-not-wait-for-each-other", || {
        Ok(journals::too_far_behind_together()?)
    }));
    trials.push(Trial::test("replication::a-worker-follows-the-master", || Ok(promotion::worker()?)));
    trials.push(Trial::test("replication::replies-wait-for-replicas", || Ok(replies::replies_wait()?)));
    trials.push(Trial::test("replication::changes-without-replicas-are-refused", || {
        Ok(replies::refuses_alone()?)
    }));
    trials.push(Trial::test("replication::an-anonymous-replica", || Ok(anonymous()?)));
    trials.extend(switches::trials());
    trials.push(clients::trial());
    trials.extend(states::trials());
    trials.extend(round_trip::trials());
    trials.extend(peculiar::trials());
    trials.extend(frozen::trials());
    trials.extend(random_work::trials());
    trials.extend(disks::trials());
    trials.extend(copies::trials());
    trials.extend(histories::trials());
    trials.extend(masters::trials());
    trials.push(rehearsed::trial());
    trials.push(Trial::test("replication::who-may-not-is-told", || Ok(refusals()?)));
    Ok(trials)
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
    client.eval("box.schema.space.create('shared'):create_index('pk')")?;
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
    // What a user may not see does not differ.
    let mut client = Client::open(&b)?;
    let password = Value::Map(vec![(Value::str("password"), Value::str("x"))]);
    client.ask("box.schema.user.create", vec![Value::str("some"), password])?;
    let grant = ["some", "read", "space", "shared"].map(Value::str);
    client.ask("box.schema.user.grant", grant.to_vec())?;
    let told = ["_space", "not read", "only what both users may read", "with A at"];
    expect(&comparison(&at, &format!("some:x@{to}"), &["--any-vclock"])?, 0, &told)?;
    expect(&comparison(&at, "nobody:x@127.0.0.1:1", &[])?, 4, &["B (nobody@127.0.0.1:1)"])?;
    expect(&comparison(&at, &format!("admin:wrong@{to}"), &[])?, 1, &["wrong user or password"])?;
    expect(&comparison(&at, "admin:wrong@here:x", &[])?, 2, &["is no address"])
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
