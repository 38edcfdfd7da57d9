//! Two servers that are one replica: one of the two data folders is a copy of the other.

use libtest_mimic::Trial;

use super::Result;
use super::pair::{compare, some_work, start_master, start_replica, vclock, wait_for};
use crate::exchange::if_possible;
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup, tarantool_is_installed};

pub(super) fn trials() -> Vec<Trial> {
    use Peer::{Lycosa, Tarantool};
    let copies = [
        (Lycosa, Lycosa, "replication::a-copy-of-a-replica-is-refused"),
        (Tarantool, Lycosa, "oracle::replication/follows-tarantool/a-copy-of-a-replica-is-refused"),
        (Lycosa, Tarantool, "oracle::replication/tarantool-follows/a-copy-of-a-replica-is-refused"),
    ];
    let copies = copies.map(|(master, replica, name)| {
        let is_possible = [master, replica].iter().all(|peer| *peer == Lycosa) || tarantool_is_installed();
        if_possible(Trial::test(name, move || Ok(copy_of_a_replica(master, replica)?)), is_possible)
    });
    copies.into()
}

fn uri(server: &Server) -> String {
    format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), server.address())
}

/// A replica's folder is copied, and both are started: the second one gets an error, and follows once the first one is stopped.
fn copy_of_a_replica(from: Peer, to: Peer) -> Result<()> {
    let master = start_master(from)?;
    some_work(&master, 0)?;
    let mut replica = start_replica(to, &master)?;
    compare(&master, &mut replica)?;
    replica.kill();
    let uri = if to == Peer::Tarantool { format!("guest@{}", master.address()) } else { uri(&master) };
    let data = Some(replica.data_folder());
    let setup = match to {
        Peer::Lycosa => {
            let options = [
                &format!("replication = \"{uri}\""),
                "replication_timeout = 0.2",
                "read_only = true",
                "replication_connect_quorum = 0",
            ];
            let options = options.map(str::to_owned).into();
            Setup { options, replicates: Some(uri), data, ..Setup::default() }
        }
        // With a master in its first `box.cfg` it would not listen before it is in sync.
        Peer::Tarantool => {
            let program = format!(
                "box.cfg{{replication_connect_quorum = 0, replication_sync_timeout = 0.1, read_only = true}}\n\
                 box.cfg{{replication = '{uri}'}}\n"
            );
            Setup { program, data, ..Setup::default() }
        }
    };
    replica.launch()?;
    some_work(&master, 1)?;
    compare(&master, &mut replica)?;
    let mut both = [replica, Server::start(to, setup)?];
    let duplicate = "duplicate connection with the same replica UUID";
    let mut refused = None;
    wait_for(duplicate, || {
        refused = both.iter().position(|server| server.log().contains(duplicate));
        Ok(refused.is_some())
    })?;
    let log = both[refused.unwrap_or_default()].log();
    if to == Peer::Lycosa && !log.contains("move one of the two folders away") {
        return Err(format!("nobody is told what to do:\n{log}"));
    }
    let follower = the_follower(&master, &both)?;
    both[follower].kill();
    some_work(&master, 12)?;
    compare(&master, &mut both[1 - follower])
}

/// The place of the replica that follows alone. Where the machine pauses for longer than a silent link is kept, the other may
/// take its place, and both have everything: then there is more work to look at.
fn the_follower(master: &Server, both: &[Server; 2]) -> Result<usize> {
    for round in 2..12 {
        some_work(master, round)?;
        let mut follows = [false; 2];
        wait_for("a replica that follows", || {
            let wanted = vclock(master)?;
            follows = [vclock(&both[0])? == wanted, vclock(&both[1])? == wanted];
            Ok(follows.contains(&true))
        })?;
        if follows != [true; 2] {
            return Ok(usize::from(follows[1]));
        }
    }
    Err("both follow".to_owned())
}
