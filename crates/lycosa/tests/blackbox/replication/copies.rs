//! Two servers that are one replica: one of the two data folders is a copy of the other.

use libtest_mimic::Trial;

use super::Result;
use super::pair::{compare, some_work, start_master, start_replica, vclock, wait_for};
use crate::exchange::if_possible;
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup, tarantool_is_installed};

pub(super) fn trials() -> Vec<Trial> {
    let copies = [
        (Peer::Lycosa, "replication::a-copy-of-a-replica-is-refused"),
        (Peer::Tarantool, "oracle::replication/follows-tarantool/a-copy-of-a-replica-is-refused"),
    ];
    let copies = copies.map(|(master, name)| {
        let is_possible = master == Peer::Lycosa || tarantool_is_installed();
        if_possible(Trial::test(name, move || Ok(copy_of_a_replica(master)?)), is_possible)
    });
    copies.into()
}

fn uri(server: &Server) -> String {
    format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), server.address())
}

/// A replica's folder is copied, and both are started: the second one is told, and follows when the first one is gone.
fn copy_of_a_replica(from: Peer) -> Result<()> {
    let master = start_master(from)?;
    some_work(&master, 0)?;
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    replica.kill();
    let uri = uri(&master);
    let options = [
        &format!("replication = \"{uri}\""),
        "replication_timeout = 0.2",
        "read_only = true",
        "replication_connect_quorum = 0",
    ];
    let setup = Setup {
        options: options.map(str::to_owned).into(),
        replicates: Some(uri.clone()),
        data: Some(replica.data_folder()),
        ..Setup::default()
    };
    replica.launch()?;
    some_work(&master, 1)?;
    compare(&master, &mut replica)?;
    let mut copy = Server::start(Peer::Lycosa, setup)?;
    let duplicate = "duplicate connection with the same replica UUID";
    wait_for(duplicate, || Ok(copy.log().contains(duplicate)))?;
    if !copy.log().contains("move one of the two folders away") {
        return Err(format!("the copy is not told what to do:\n{}", copy.log()));
    }
    some_work(&master, 2)?;
    compare(&master, &mut replica)?;
    if vclock(&copy)? == vclock(&master)? {
        return Err("the copy follows, too".to_owned());
    }
    replica.kill();
    some_work(&master, 3)?;
    compare(&master, &mut copy)
}
