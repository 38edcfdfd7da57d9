//! A replica whose process is frozen: it costs others nothing, or what `replicas_before_reply` and `replicas_missing` say.

use libtest_mimic::Trial;
use rustix::process::Signal;

use super::Result;
use super::pair::{Client, compare, some_work, start_master, start_replica, wait_for};
use super::replies::start_careful_master;
use super::switches::{signal, wait_downstream};
use crate::connection::{self, Connection, kind};
use crate::server::{Peer, Server};
use crate::value::Value;

pub(super) fn trials() -> Vec<Trial> {
    let test = |name: &str, test: fn() -> Result<()>| {
        Trial::test(format!("replication::frozen-replica/{name}"), move || Ok(test()?))
    };
    vec![test("costs-nothing", costs_nothing), test("is-waited-for", waits), test("refuses-changes", refuses)]
}

fn freeze(replica: &Server, master: &Server) -> Result<()> {
    signal(replica, Signal::STOP)?;
    wait_downstream(master, "stopped")
}

fn costs_nothing() -> Result<()> {
    let master = start_master(Peer::Lycosa)?;
    some_work(&master, 0)?;
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    signal(&replica, Signal::STOP)?;
    // While the master does not know it yet, and when it does.
    some_work(&master, 1)?;
    wait_downstream(&master, "stopped")?;
    some_work(&master, 2)?;
    signal(&replica, Signal::CONT)?;
    compare(&master, &mut replica)
}

fn pair(missing: &str) -> Result<(Server, Server)> {
    let master = start_careful_master(missing)?;
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    wait_for("the tube", || {
        let tube = vec![Value::str("t"), Value::str("fifo")];
        Ok(Client::open(&master)?.ask("queue.create_tube", tube).is_ok())
    })?;
    compare(&master, &mut replica)?;
    Ok((master, replica))
}

fn waits() -> Result<()> {
    let (master, mut replica) = pair("wait")?;
    freeze(&replica, &master)?;
    let mut client = Connection::open(master.address()).map_err(|error| error.to_string())?;
    let put = connection::call("queue.tube.t:put", vec![Value::str("x")]);
    let sync = client.send(kind::CALL, &put).map_err(|error| error.to_string())?;
    // Others are answered meanwhile, if it is about the instance.
    for _ in 0..20 {
        Client::open(&master)?.ask("box.info", Vec::new())?;
    }
    if client.arrived(sync).is_some() {
        return Err("a put was answered that no replica has".to_owned());
    }
    signal(&replica, Signal::CONT)?;
    wait_for("the answer", || Ok(client.arrived(sync).is_some()))?;
    compare(&master, &mut replica)
}

fn refuses() -> Result<()> {
    let (master, mut replica) = pair("refuse")?;
    freeze(&replica, &master)?;
    let put = || Client::open(&master)?.ask("queue.tube.t:put", vec![Value::Int(1)]);
    let refused = put();
    if !refused
        .as_ref()
        .is_err_and(|error| error.contains("! 216") && error.contains("0 replicas are connected"))
    {
        return Err(format!("a put that nobody can confirm: {refused:?}"));
    }
    Client::open(&master)?.ask("queue.statistics", vec![Value::str("t")])?;
    signal(&replica, Signal::CONT)?;
    wait_for("the replica's return", || Ok(put().is_ok()))?;
    compare(&master, &mut replica)
}
