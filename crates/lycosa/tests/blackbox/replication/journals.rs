//! Journals that a master keeps for its replicas, and what becomes of a replica that is too far behind.

use super::Result;
use super::pair::{Client, compare, info, some_work, start_replica, start_replica_with, wait_for};
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup};
use crate::value::Value;

/// A master that keeps one snapshot, and `limit` bytes of journal for replicas.
pub(super) fn start_frugal_master(limit: &str) -> Result<Server> {
    let options = [
        "replication_timeout = 0.2".to_owned(),
        "checkpoint_count = 1".to_owned(),
        format!("replication_journal_limit = \"{limit}\""),
    ];
    Server::start(Peer::Lycosa, Setup { options: options.to_vec(), ..Setup::default() })
}

/// Works and takes snapshots until nothing but the last of them would be left.
pub(super) fn work_and_snapshots(master: &Server, round: i128) -> Result<()> {
    for part in 0..3 {
        some_work(master, round + part)?;
        Client::open(master)?.ask("box.snapshot", Vec::new())?;
    }
    Ok(())
}

/// Checkpoints remove no journal that a known replica needs, and the master names the replica for which they stay.
pub(super) fn journals_are_kept() -> Result<()> {
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

/// A replica for which no journal was kept joins again without a command, as the same instance, unless it may not.
pub(super) fn too_far_behind() -> Result<()> {
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

/// Two replicas follow the master and each other, and both are too far behind it: neither waits for the other.
pub(super) fn too_far_behind_together() -> Result<()> {
    let uri = |server: &Server| format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), server.address());
    let master = start_frugal_master("0")?;
    some_work(&master, 0)?;
    let mut replicas = [start_replica(Peer::Lycosa, &master)?, start_replica(Peer::Lycosa, &master)?];
    for replica in &mut replicas {
        compare(&master, replica)?;
        replica.kill();
    }
    let both = [uri(&replicas[0]), uri(&replicas[1])];
    work_and_snapshots(&master, 1)?;
    let lost = "it has to join again";
    wait_for(lost, || Ok(master.log().matches(lost).count() >= 2))?;
    for (replica, other) in replicas.iter_mut().zip(both.iter().rev()) {
        replica.replicate(format!("{},{other}", uri(&master)));
        replica.launch()?;
    }
    for replica in &mut replicas {
        // While it joins it accepts no connections.
        wait_for("the join", || Ok(replica.log().contains("were set aside")))?;
        wait_for("the second life", || Ok(Client::open(replica).is_ok()))?;
        compare(&master, replica)?;
    }
    Ok(())
}
