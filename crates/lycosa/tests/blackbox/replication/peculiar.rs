//! What happens seldom: a journal that one master has lost and another one has, a program with a queue of its own on a
//! replica, temporary tubes that were truncated. And an old master that comes back with rows that no other server has.

use std::path::Path;

use libtest_mimic::Trial;

use super::journals::{start_frugal_master, work_and_snapshots};
use super::pair::{Client, command, compare, info, some_work, start_master, start_replica, wait_for};
use super::{Result, comparison, expect};
use crate::exchange::if_possible;
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup, tarantool_is_installed};
use crate::value::Value;

pub(super) fn trials() -> Vec<Trial> {
    let test = |name: &str, test: fn() -> Result<()>| {
        Trial::test(format!("replication::{name}"), move || Ok(test()?))
    };
    let own_queue = Trial::test("oracle::replication/without-the-native-queue", || Ok(own_queue()?));
    vec![
        test("what-one-journal-has-lost-another-has", another_journal),
        test("a-truncated-temporary-tube-differs-in-nothing", temporary_tube),
        test("an-old-master-with-rows-of-its-own-is-told", rows_of_its_own),
        test("an-orphan-is-none-without-masters", orphan_without_masters),
        if_possible(own_queue, tarantool_is_installed()),
    ]
}

fn uri(server: &Server) -> String {
    format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), server.address())
}

/// A replica of two: the journal of the first does not reach back to it, that of the second does.
fn another_journal() -> Result<()> {
    let first = start_frugal_master("0")?;
    some_work(&first, 0)?;
    let mut second = start_replica(Peer::Lycosa, &first)?;
    compare(&first, &mut second)?;
    let both = format!("{},{}", uri(&first), uri(&second));
    let options = vec![
        format!("replication = \"{both}\""),
        "replication_timeout = 0.2".to_owned(),
        "read_only = true".to_owned(),
    ];
    let setup = Setup { options, replicates: Some(both), ..Setup::default() };
    let mut third = Server::start(Peer::Lycosa, setup)?;
    compare(&first, &mut third)?;
    let known = info(&third, "uuid")?;
    third.kill();
    work_and_snapshots(&first, 1)?;
    let lost = "it has to join again";
    wait_for(lost, || Ok(first.log().contains(lost)))?;
    compare(&first, &mut second)?;
    third.launch()?;
    compare(&first, &mut third)?;
    if third.log().contains("joins again") || third.log().contains("were set aside") {
        return Err(format!("it has joined again, though another master has its rows:\n{}", third.log()));
    }
    // It follows the first, too, as soon as it has what that one's journal lacks.
    some_work(&first, 20)?;
    compare(&first, &mut third)?;
    if info(&third, "uuid")? == known { Ok(()) } else { Err("it is another instance".to_owned()) }
}

/// Rows of temporary tubes stay on their instance, and so does the row that says that one was truncated.
fn temporary_tube() -> Result<()> {
    let master = start_master(Peer::Lycosa)?;
    let replica = start_replica(Peer::Lycosa, &master)?;
    let mut client = Client::open(&master)?;
    let temporary = Value::Map(vec![(Value::str("temporary"), Value::Bool(true))]);
    client.ask("queue.create_tube", vec![Value::str("passing"), Value::str("fifo"), temporary])?;
    client.ask("queue.create_tube", vec![Value::str("lasting"), Value::str("fifo")])?;
    let same = || {
        let (a, b) = (master.address().to_string(), replica.address().to_string());
        expect(&comparison(&a, &b, &["--timeout", "60"])?, 0, &[": the same"])
    };
    for tube in ["passing", "lasting"] {
        client.ask(&format!("queue.tube.{tube}:put"), vec![Value::str("x")])?;
        client.ask(&format!("queue.tube.{tube}:truncate"), Vec::new())?;
        same()?;
    }
    client.ask("queue.tube.passing:drop", Vec::new())?;
    same()
}

/// A master dies with a row that its replica has never got, and follows that replica when it comes back.
fn rows_of_its_own() -> Result<()> {
    let mut old = start_master(Peer::Lycosa)?;
    some_work(&old, 0)?;
    let mut new = start_replica(Peer::Lycosa, &old)?;
    compare(&old, &mut new)?;
    new.lead()?;
    wait_for("the end of the replication", || Ok(info(&new, "masters")? == Value::Array(Vec::new())))?;
    Client::open(&old)?.ask("queue.tube.plain:put", vec![Value::str("nobody else has it")])?;
    old.kill();
    // By box.cfg: no term makes the row void.
    super::set_read_only(&new, false)?;
    old.replicate(uri(&new));
    old.launch()?;
    let warning = "1 row of its own that the master does not have";
    wait_for(warning, || Ok(old.log().contains(warning)))?;
    // One that has none gets no message.
    let third = start_replica(Peer::Lycosa, &new)?;
    wait_for("the third instance", || Ok(third.log().contains("is no orphan any more")))?;
    if third.log().contains("of its own") { Err(third.log()) } else { Ok(()) }
}

/// A replica that starts when its master is dead is an orphan until its configuration names no master any more.
fn orphan_without_masters() -> Result<()> {
    let mut master = start_master(Peer::Lycosa)?;
    some_work(&master, 0)?;
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    replica.kill();
    master.kill();
    replica.launch()?;
    if info(&replica, "status")? != Value::str("orphan") {
        return Err(format!("without its master the status is {}", info(&replica, "status")?));
    }
    replica.lead()?;
    wait_for("the end of the replication", || Ok(info(&replica, "masters")? == Value::Array(Vec::new())))?;
    let said = command(&replica, &["promote", "--force"])?;
    if !said.contains("its queue is RUNNING") {
        return Err(format!("promote says {said}"));
    }
    some_work(&replica, 10)
}

/// `native_queue = false` on a replica of a Tarantool with tubes: it holds the same, and takes over.
fn own_queue() -> Result<()> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files/queue-single");
    let program = format!(
        "box.schema.user.passwd('admin', '{ADMIN_PASSWORD}')\n\
         box.schema.user.grant('guest', 'super', nil, nil, {{if_not_exists = true}})\n"
    );
    let master = Server::start(Peer::Tarantool, Setup { data: Some(data), program, ..Setup::default() })?;
    let option = vec!["native_queue = false".to_owned()];
    let mut replica = super::pair::start_replica_with(Peer::Lycosa, &master, option)?;
    compare(&master, &mut replica)?;
    Client::open(&master)?.eval("box.cfg{read_only = true}")?;
    compare(&master, &mut replica)?;
    let said = command(&replica, &["promote"])?;
    if !said.contains("takes writes since") {
        return Err(format!("promote says {said}"));
    }
    let mut client = Client::open(&replica)?;
    let taken = "local n = 0 for _, row in box.space._queue:pairs() do n = n + box.space[row[3]].index[1]:count('t') end return n";
    let (here, there) = (client.eval(taken)?, Client::open(&master)?.eval(taken)?);
    if here != there || here == Value::Array(vec![Value::Int(0)]) {
        return Err(format!(
            "{there} tasks were taken, and {here} are: a queue that is not there has changed them"
        ));
    }
    let no_queue = client.ask("queue.state", Vec::new());
    if !no_queue.as_ref().is_err_and(|error| error.contains("! 33")) {
        return Err(format!("without the native queue `queue.state` is {no_queue:?}"));
    }
    client.eval("box.schema.space.create('own'):create_index('pk') return box.space.own:insert{1}").map(drop)
}
