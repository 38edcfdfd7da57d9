//! Masters whose history is no longer that of their replicas: one that lost its newest rows, and one that was replaced and is
//! started again.

use std::fs;
use std::path::Path;

use libtest_mimic::Trial;
use rustix::process::Signal;

use super::Result;
use super::pair::{Client, command, compare, info, some_work, start_replica, vclock, wait_for};
use super::switches::signal;
use crate::exchange::if_possible;
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup, tarantool_is_installed};
use crate::value::Value;

pub(super) fn trials() -> Vec<Trial> {
    let lost = |peer| move || Ok(lost_tail(peer)?);
    let tarantool =
        Trial::test("oracle::replication/tarantool-follows/a-master-that-lost-rows", lost(Peer::Tarantool));
    vec![
        Trial::test("replication::a-master-that-lost-rows-refuses-its-replica", lost(Peer::Lycosa)),
        if_possible(tarantool, tarantool_is_installed()),
        Trial::test("replication::a-replaced-master-is-fenced", || Ok(replaced_master()?)),
        Trial::test("replication::a-fence-outlives-a-restart", || Ok(fence_is_kept()?)),
    ]
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).map_err(text)?;
    for entry in fs::read_dir(from).map_err(text)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            fs::copy(entry.path(), to.join(entry.file_name())).map_err(text)?;
        }
    }
    Ok(())
}

fn put(server: &Server, count: usize) -> Result<()> {
    let mut client = Client::open(server)?;
    (0..count).try_for_each(|task| {
        client.ask("queue.tube.plain:put", vec![Value::str(&format!("put {task}"))]).map(drop)
    })
}

fn logs(server: &Server, line: &str) -> Result<()> {
    let waited = wait_for(line, || Ok(server.log().contains(line)));
    waited.map_err(|error| format!("{error}; its log:\n{}", server.log()))
}

/// A master is restored from a backup: its replica is ahead, and nothing is confirmed. It hands LSNs out again until the
/// numbers are beyond those of the replica: the histories have parted.
fn lost_tail(peer: Peer) -> Result<()> {
    let options = vec!["replication_timeout = 0.2".to_owned()];
    let mut master = Server::start(Peer::Lycosa, Setup { options, ..Setup::default() })?;
    some_work(&master, 0)?;
    let mut replica = start_replica(peer, &master)?;
    compare(&master, &mut replica)?;
    let backup = tempfile::tempdir().map_err(text)?;
    let kept = backup.path().join("data");
    master.stop()?;
    copy(&master.data_folder(), &kept)?;
    master.launch()?;
    put(&master, 60)?;
    compare(&master, &mut replica)?;
    let had = vclock(&replica)?;
    master.kill();
    copy(&kept, &master.data_folder())?;
    master.launch()?;
    // A Tarantool knows no epochs, and is ahead as long as the master has not written more than it has lost.
    let said = match peer {
        Peer::Lycosa => "the two instances have different rows of instance 1",
        Peer::Tarantool => "it has lost its newest rows",
    };
    logs(&master, said)?;
    logs(&replica, said)?;
    Client::open(&master)?.eval("box.cfg{replicas_before_reply = 1, replicas_missing = 'refuse'}")?;
    let refused = put(&master, 1);
    if !refused.as_ref().is_err_and(|error| error.contains("0 replicas are connected")) {
        return Err(format!("without its replica the master answers {refused:?}"));
    }
    if peer == Peer::Tarantool {
        return Ok(());
    }
    // Now the LSNs alone would say that the replica lacks rows.
    Client::open(&master)?.eval("box.cfg{replicas_before_reply = 0}")?;
    replica.kill();
    put(&master, 90)?;
    let before = replica.log().len();
    replica.launch()?;
    wait_for(said, || Ok(replica.log()[before..].contains(said)))?;
    if vclock(&replica)? != had {
        return Err(format!("the replica was at {had:?} and is at {:?}", vclock(&replica)?));
    }
    Ok(())
}

/// A pair whose old master was killed, and whose replica was promoted while the old one could not hear of it.
fn replaced() -> Result<(Server, Server)> {
    let options = ["replication_timeout = 0.2", "replication_connect_quorum = 0"].map(str::to_owned);
    let mut old = Server::start(Peer::Lycosa, Setup { options: options.into(), ..Setup::default() })?;
    some_work(&old, 0)?;
    let mut new = start_replica(Peer::Lycosa, &old)?;
    compare(&old, &mut new)?;
    old.kill();
    wait_for("the end of the connection", || Ok(!info(&new, "masters")?.to_string().contains("\"follow\"")))?;
    let refused = command(&new, &["promote"]);
    if !refused.as_ref().is_err_and(|error| error.contains("would not hear") && error.contains("--force")) {
        return Err(format!("promote beside a dead master says {refused:?}"));
    }
    if info(&new, "ro")? != Value::Bool(true) {
        return Err("promote has done what it refused".to_owned());
    }
    command(&new, &["promote", "--force"])?;
    Ok((old, new))
}

/// A supervisor starts the old master, which takes writes until the new one reaches it; these are void.
fn replaced_master() -> Result<()> {
    let (mut old, new) = replaced()?;
    put(&new, 10)?;
    signal(&new, Signal::STOP)?;
    old.launch()?;
    put(&old, 3)?;
    let (void, valid) = (vclock(&old)?, {
        signal(&new, Signal::CONT)?;
        vclock(&new)?
    });
    logs(&old, "instance 2 was promoted (term 1): this instance takes no writes")?;
    wait_for("the fence", || Ok(info(&old, "ro_reason").is_ok_and(|reason| reason == Value::str("fenced"))))?;
    let stats = command(&old, &["stats"])?;
    if !stats.contains("takes no writes: instance 2 was promoted (term 1)") {
        return Err(format!("the statistics of a fenced master are {stats}"));
    }
    let options = Value::Map(vec![(Value::str("read_only"), Value::Bool(false))]);
    let refused = Client::open(&old)?.ask("box.cfg", vec![options]);
    if !refused.as_ref().is_err_and(|error| error.contains("lycosa promote")) {
        return Err(format!("a fenced master is told to take writes, and answers {refused:?}"));
    }
    logs(&new, "are void")?;
    logs(&old, "are void")?;
    put(&new, 10)?;
    let lsn = |clock: &[(i128, i128)]| clock.iter().find(|(id, _)| *id == 1).map(|(_, lsn)| *lsn);
    if lsn(&vclock(&new)?) != lsn(&valid) || lsn(&void) <= lsn(&valid) {
        return Err(format!("void rows up to {void:?} have reached the new master, {:?}", vclock(&new)?));
    }
    Ok(())
}

/// The old master is started again while its peer is down.
fn fence_is_kept() -> Result<()> {
    let (mut old, mut new) = replaced()?;
    signal(&new, Signal::STOP)?;
    old.launch()?;
    signal(&new, Signal::CONT)?;
    logs(&old, "instance 2 was promoted (term 1)")?;
    wait_for("the file", || Ok(old.data_folder().join("fence").exists()))?;
    let nowhere = format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), new.address());
    new.kill();
    old.kill();
    old.replicate(nowhere);
    old.may_write();
    old.launch()?;
    if info(&old, "ro_reason")? != Value::str("fenced") {
        return Err(format!("after a restart ro_reason is {}", info(&old, "ro_reason")?));
    }
    // The operator decides otherwise.
    command(&old, &["promote", "--force"])?;
    put(&old, 1)
}
