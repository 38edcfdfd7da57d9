//! Replies that wait until replicas have the change, and refusals where too few replicas are connected.

use std::time::Duration;

use super::Result;
use super::pair::{Client, REPLY_LIMIT, command, compare, info, start_replica, vclock, wait_for};
use crate::server::{Peer, Server, Setup};
use crate::value::Value;

/// The request of a replica that joins, and its key for who it is.
const JOIN: u32 = 65;
const INSTANCE_UUID: i128 = 0x24;

/// `lycosa put --replicas 1` is answered when the replica has the task, and refused where no replica could confirm it.
pub(super) fn one_put_waits() -> Result<()> {
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

pub(super) fn start_careful_master(missing: &str) -> Result<Server> {
    let options = [
        "replication_timeout = 0.2".to_owned(),
        "replicas_before_reply = 1".to_owned(),
        format!("replicas_missing = \"{missing}\""),
    ];
    Server::start(Peer::Lycosa, Setup { options: options.to_vec(), ..Setup::default() })
}

/// A reply leaves when a replica has the change too; what tells about the instance, and the replica's own way in, do
/// not wait.
pub(super) fn replies_wait() -> Result<()> {
    let master = start_careful_master("wait")?;
    let mut client = Client::open(&master)?;
    let (sender, created) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let tube = vec![Value::str("t"), Value::str("fifo")];
        // The receiver has failed already if the message cannot be sent.
        let _ = sender.send(client.ask("queue.create_tube", tube).map(|_| client));
    });
    let waits = |what: &str| {
        let pause = Duration::from_millis(300);
        let early = created.recv_timeout(pause).is_ok();
        if early { Err(format!("{what}: a reply has not waited for a replica")) } else { Ok(()) }
    };
    waits("no replica is there")?;
    let uuid = info(&master, "uuid")?;
    // A replica that is refused, here because it names the master itself, gets the error at once.
    let join = Client::open(&master)?.send(JOIN, 0, vec![(INSTANCE_UUID, uuid)]);
    if !join.as_ref().is_err_and(|error| error.contains("Connection to self")) {
        return Err(format!("a replica that is refused: {join:?}"));
    }
    // A command without an answer says why.
    wait_for("the reason", || {
        let told = command(&master, &["tube", "list", "--request-timeout", "1s"]);
        Ok(told.is_err_and(|said| said.contains("replicas_before_reply is 1, and 0 follow")))
    })?;
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    let created = created.recv_timeout(REPLY_LIMIT).map_err(|error| error.to_string())?;
    let mut client = created?;
    for task in 0..20 {
        client.ask("queue.tube.t:put", vec![Value::Int(task)])?;
    }
    // Answered changes are kept, even if the master dies now.
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
pub(super) fn refuses_alone() -> Result<()> {
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
