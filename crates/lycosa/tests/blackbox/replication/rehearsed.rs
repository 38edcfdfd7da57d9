//! `lycosa follow --shadow`: a rehearsal by a server that runs for it, and by one that follows already.

use std::path::Path;
use std::process::{Command, Output};

use libtest_mimic::Trial;

use super::Result;
use super::pair::{Client, command, compare, start_master, start_replica};
use crate::addresses::free_address;
use crate::server::{Peer, Server, Setup};
use crate::value::Value;

pub(super) fn trial() -> Trial {
    Trial::test("replication::follow-rehearses", || Ok(rehearsed()?))
}

fn follow(master: &Server, data: &Path, more: &[&str]) -> Result<Output> {
    let listen = free_address().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lycosa"));
    command.args(["follow", &format!("tarantool://guest@{}", master.address()), "--shadow", "--data-dir"]);
    command.arg(data).args(["--listen", &listen]).args(more);
    command.output().map_err(|error| error.to_string())
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{:?}: {}{}", output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn rehearsed() -> Result<()> {
    let master = start_master(Peer::Lycosa)?;
    let mut client = Client::open(&master)?;
    client.ask("queue.create_tube", vec![Value::str("timed"), Value::str("fifottl")])?;
    let delay = Value::Map(vec![(Value::str("delay"), Value::Int(3600))]);
    client.ask("queue.tube.timed:put", vec![Value::str("later"), delay])?;
    client.ask("queue.tube.timed:put", vec![Value::str("now")])?;
    client.ask("queue.tube.timed:take", vec![Value::Int(0)])?;

    // A server for the rehearsal alone, twice: the second one goes on with the folder of the first.
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let data = folder.path().join("data");
    let first = follow(&master, &data, &["--json", "--horizon", "2h"])?;
    let json: serde_json::Value =
        serde_json::from_slice(&first.stdout).map_err(|error| format!("{error}: {}", said(&first)))?;
    let tube = &json["tubes"][0];
    if tube["tube"] != "timed" || tube["delay_over"] != 1 || tube["released_at_start"] != 1 {
        return Err(said(&first));
    }
    let second = follow(&master, &data, &[])?;
    let text = said(&second);
    if second.status.code() != Some(0) || !text.contains("nothing is changed") || !text.contains("timed") {
        return Err(text);
    }
    if text.contains("joined replica set") {
        return Err(format!("the second rehearsal has joined again: {text}"));
    }
    let nothing = follow(&master, &data, &["--horizon", "nonsense"])?;
    if nothing.status.code() != Some(2) {
        return Err(said(&nothing));
    }

    // One that runs already is asked, and goes on; it says what `promote --shadow` says.
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    let live = follow(&master, &replica.data_folder(), &["--json", "--horizon", "2h"])?;
    let other = command(&replica, &["promote", "--shadow", "--horizon", "2h", "--json"])?;
    let parse =
        |text: &str| serde_json::from_str::<serde_json::Value>(text).map_err(|error| error.to_string());
    let (told, expected) = (parse(&String::from_utf8_lossy(&live.stdout))?, parse(&other)?);
    if told["tubes"] != expected["tubes"] || told["tubes"] != json["tubes"] {
        return Err(format!("{told} and {expected} and {json}"));
    }
    replica.check_alive()?;
    of_an_old_module()?;
    let stranger = start_master(Peer::Lycosa)?;
    let refused = follow(&stranger, &replica.data_folder(), &[])?;
    if refused.status.success() || !said(&refused).contains("does not follow") {
        return Err(said(&refused));
    }
    Ok(())
}

/// The command names the queue of a module that does not know `_queue_taken_2`: on the way back it could take no tasks.
fn of_an_old_module() -> Result<()> {
    let options = vec!["replication_timeout = 0.2".to_owned(), "native_queue = false".to_owned()];
    let program = "
        local queue = box.schema.create_space('_queue')
        queue:create_index('tube', {parts = {1, 'string'}})
        queue:create_index('tube_id', {parts = {2, 'unsigned'}})
        box.schema.create_space('_queue_taken', {temporary = true})
            :create_index('pk', {parts = {1, 'unsigned', 2, 'unsigned', 3, 'unsigned'}})
        box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
        _G.queue = {state = function() return 'RUNNING' end}
    ";
    let setup = Setup { options, program: program.to_owned(), ..Setup::default() };
    let master = Server::start(Peer::Lycosa, setup)?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let output = follow(&master, &folder.path().join("data"), &[])?;
    let text = said(&output);
    if output.status.code() != Some(0) || !text.contains("has no space _queue_taken_2") {
        return Err(text);
    }
    Ok(())
}
