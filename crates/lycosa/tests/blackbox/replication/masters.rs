//! Two masters that follow each other: tubes that one makes and the other uses, and definitions of both under one number.

use std::time::Instant;

use libtest_mimic::Trial;

use super::Result;
use super::pair::{
    Client, REPLY_LIMIT, command, compare, info, set_read_only, some_work, start_master, start_replica,
    vclock, wait_for,
};
use crate::addresses::free_address;
use crate::connection::{self, Connection, kind};
use crate::exchange::if_possible;
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup, tarantool_is_installed};
use crate::value::Value;

const USER: &str = "worker";
const PASSWORD: &str = "secret";
const CONFLICT: &str = "Duplicate key exists in unique index 'primary' in space '_space'";

pub(super) fn trials() -> Vec<Trial> {
    let conflicts = [
        (Peer::Lycosa, "replication::definitions-of-two-masters-conflict"),
        (Peer::Tarantool, "oracle::replication/definitions-of-two-masters-conflict"),
    ];
    let conflicts = conflicts.map(|(peer, name)| {
        let is_possible = peer == Peer::Lycosa || tarantool_is_installed();
        if_possible(Trial::test(name, move || Ok(definitions_conflict(peer)?)), is_possible)
    });
    let tubes = Trial::test("replication::tubes-of-another-master", || Ok(tubes_of_another_master()?));
    let conflict = Trial::test("replication::tubes-of-two-masters-conflict", || Ok(tubes_conflict()?));
    let pair = Trial::test("replication::a-pair-of-which-each-names-both", || Ok(each_names_both()?));
    let warned = Trial::test("replication::promote-warns-of-surprises", || Ok(promote_warns()?));
    conflicts.into_iter().chain([tubes, conflict, pair, warned]).collect()
}

fn uri(server: &Server) -> String {
    match server.peer() {
        Peer::Lycosa => format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), server.address()),
        Peer::Tarantool => format!("guest@{}", server.address()),
    }
}

/// Two servers that follow each other and take writes.
fn two_masters(peer: Peer) -> Result<(Server, Server)> {
    let first = start_master(peer)?;
    let mut second = start_replica(peer, &first)?;
    compare(&first, &mut second)?;
    match peer {
        Peer::Lycosa => set_read_only(&second, false)?,
        Peer::Tarantool => Client::open(&second)?.eval("box.cfg{read_only = false}").map(drop)?,
    }
    follow_whom(&first, &uri(&second))?;
    wait_upstream(&first, "follow")?;
    Ok((first, second))
}

/// From now on a server follows another one, or none.
fn follow_whom(server: &Server, uri: &str) -> Result<()> {
    let text = format!("box.cfg{{replication_connect_quorum = 0, replication = '{uri}'}}");
    Client::open(server)?.eval(&text).map(drop)
}

fn follow_nobody(first: &Server, second: &Server) -> Result<()> {
    follow_whom(first, "")?;
    follow_whom(second, "")
}

fn follow_each_other(first: &Server, second: &Server) -> Result<()> {
    follow_whom(first, &uri(second))?;
    follow_whom(second, &uri(first))
}

/// What a server says of the master that it follows.
fn upstream(server: &Server) -> Result<String> {
    let text = "local all = {} for _, other in pairs(box.info.replication) do
        if other.upstream ~= nil then
            table.insert(all, other.upstream.status)
            table.insert(all, other.upstream.message)
        end
    end return table.concat(all, ' ')";
    let told = Client::open(server)?.eval(text)?;
    Ok(told.as_array().and_then(|all| all.first()?.as_text()).unwrap_or_default())
}

fn wait_upstream(server: &Server, text: &str) -> Result<()> {
    let waited = wait_for(text, || Ok(upstream(server)?.contains(text)));
    waited.map_err(|error| {
        format!("{error}: {}; its log:\n{}", upstream(server).unwrap_or_default(), server.log())
    })
}

/// A connection of a user who logs in.
fn log_in(server: &Server, user: &str, password: &str) -> Result<Client> {
    let mut connection = Connection::open(server.address()).map_err(|error| error.to_string())?;
    let body = connection::auth(&connection.greeting(REPLY_LIMIT)?, user, password)?;
    let reply = connection.ask(kind::AUTH, &body, REPLY_LIMIT)?;
    if reply.error == 0 { Ok(Client(connection)) } else { Err(reply.describe()) }
}

fn expect(what: &str, found: Result<Value>, text: &str) -> Result<()> {
    match found {
        Ok(value) if value.to_string().contains(text) => Ok(()),
        other => Err(format!("{what} gives {other:?}, without \"{text}\"")),
    }
}

fn expect_refusal(what: &str, found: Result<Value>, text: &str) -> Result<()> {
    match found {
        Err(error) if error.contains(text) => Ok(()),
        other => Err(format!("{what} gives {other:?}, and no error with \"{text}\"")),
    }
}

/// Tubes that one master makes, grants and drops, at the other one while its queue runs.
fn tubes_of_another_master() -> Result<()> {
    let (mut first, mut second) = two_masters(Peer::Lycosa)?;
    some_work(&first, 0)?;
    compare(&first, &mut second)?;
    let options = Value::Map(vec![(Value::str("password"), Value::str(PASSWORD))]);
    Client::open(&first)?.ask("box.schema.user.create", vec![Value::str(USER), options])?;
    compare(&first, &mut second)?;
    let mut servers = [&mut first, &mut second];
    for kind in ["fifo", "fifottl", "utube", "utubettl", "limfifottl"] {
        let [maker, user] = &mut servers;
        one_tube(maker, user, kind).map_err(|error| format!("{kind}: {error}"))?;
        servers.swap(0, 1);
    }
    Ok(())
}

fn one_tube(maker: &mut Server, user: &mut Server, kind: &str) -> Result<()> {
    let name = format!("of_{kind}");
    let mut admin = log_in(maker, "admin", ADMIN_PASSWORD)?;
    let capacity = Value::Map(vec![(Value::str("capacity"), Value::Int(10))]);
    admin.ask("queue.create_tube", vec![Value::str(&name), Value::str(kind), capacity])?;
    let method = |name_of_method: &str| format!("queue.tube.{name}:{name_of_method}");
    let mut at_maker = |called: &str, arguments: Vec<Value>| admin.ask(&method(called), arguments);
    at_maker("put", vec![Value::str("of its maker")])?;
    compare(maker, user)?;
    if !user.log().contains(&format!("tube '{name}' was created by rows of another origin")) {
        return Err(format!("nothing is said of tube {name}:\n{}", user.log()));
    }
    // The grants of the other master hold here, later ones too.
    let mut worker = log_in(user, USER, PASSWORD)?;
    expect_refusal("a take without a grant", worker.ask(&method("take"), vec![Value::Int(0)]), "denied")?;
    let call = Value::Map(vec![(Value::str("call"), Value::Bool(true))]);
    at_maker("grant", vec![Value::str(USER), call])?;
    compare(maker, user)?;
    expect("a take of the other master", worker.ask(&method("take"), vec![Value::Int(0)]), "of its maker")?;
    compare(user, maker)?;
    expect("the task at its maker", at_maker("peek", vec![Value::Int(0)]), "\"t\"")?;
    worker.ask(&method("ack"), vec![Value::Int(0)])?;
    worker.ask(&method("put"), vec![Value::str("of the other")])?;
    compare(user, maker)?;
    // The maker counts on from the ids that the other master has given.
    expect("a put at the maker", at_maker("put", vec![Value::str("again")]), "[2,")?;
    expect("a take at the maker", at_maker("take", vec![Value::Int(0)]), "of the other")?;
    at_maker("ack", vec![Value::Int(1)])?;
    compare(maker, user)?;
    // The tube goes while one task is taken here and a call waits for another one.
    expect("a second take of the other master", worker.ask(&method("take"), vec![Value::Int(0)]), "again")?;
    let mut waiting = log_in(user, USER, PASSWORD)?.0;
    let take = connection::call(&method("take"), vec![Value::Int(1000)]);
    let sync = waiting.send(kind::CALL, &take).map_err(|error| error.to_string())?;
    compare(user, maker)?;
    at_maker("drop", Vec::new())?;
    compare(maker, user)?;
    let reply = waiting.reply(sync, Instant::now() + REPLY_LIMIT)?;
    if !reply.describe().contains("Tube not found") {
        return Err(format!("a call that waits in a tube that is dropped gets {}", reply.describe()));
    }
    for called in ["put", "ack"] {
        let refused = worker.ask(&method(called), vec![Value::Int(2)]);
        expect_refusal(called, refused, &format!("'{}' is not defined", method(called)))?;
    }
    Ok(())
}

/// Two masters make a space each while they do not hear each other, and both get the same number. Replication stops both
/// ways, both say why and take writes. With `replication_skip_conflict` it goes on, and each keeps its own space.
fn definitions_conflict(peer: Peer) -> Result<()> {
    let (first, second) = two_masters(peer)?;
    follow_nobody(&first, &second)?;
    for (server, name) in [(&first, "here"), (&second, "there")] {
        let text =
            format!("box.schema.space.create('{name}'):create_index('pk') box.space.{name}:insert{{1}}");
        Client::open(server)?.eval(&text)?;
    }
    follow_each_other(&first, &second)?;
    for server in [&first, &second] {
        wait_upstream(server, "stopped")?;
        wait_upstream(server, CONFLICT)?;
        let told = "return box.info.status .. ', read-only ' .. tostring(box.info.ro)";
        expect("its state", Client::open(server)?.eval(told), "running, read-only false")?;
    }
    for server in [&first, &second] {
        Client::open(server)?.eval("box.cfg{replication_skip_conflict = true, replication = ''}")?;
    }
    follow_each_other(&first, &second)?;
    wait_for("the same vclock", || Ok(vclock(&first)? == vclock(&second)?))?;
    for (server, name) in [(&first, "here"), (&second, "there")] {
        wait_upstream(server, "follow")?;
        let kept =
            "return box.space.here == nil and 'there' or 'here', (box.space.here or box.space.there):count()";
        expect("its space", Client::open(server)?.eval(kept), &format!("[\"{name}\", 1]"))?;
    }
    Ok(())
}

/// Two masters make a tube each under one number. Neither queue is hurt, and the way out that the guide names ends with all
/// tasks on both: the tasks of one tube are exported, its master joins anew, and the tasks are imported.
fn tubes_conflict() -> Result<()> {
    let (first, mut second) = two_masters(Peer::Lycosa)?;
    follow_nobody(&first, &second)?;
    for (server, tube) in [(&first, "here"), (&second, "there")] {
        Client::open(server)?.ask("queue.create_tube", vec![Value::str(tube), Value::str("fifo")])?;
        put(server, tube, 3)?;
    }
    follow_each_other(&first, &second)?;
    for server in [&first, &second] {
        wait_upstream(server, "stopped")?;
        wait_upstream(server, "Duplicate key exists in unique index")?;
    }
    // Both go on by themselves, each with its own tube.
    for (server, own, other) in [(&first, "here", "there"), (&second, "there", "here")] {
        put(server, own, 1)?;
        let refused = put(server, other, 1).map(|()| Value::Nil);
        expect_refusal("a put into the other's tube", refused, "is not defined")?;
    }
    follow_whom(&first, "")?;
    let exported = command(&second, &["export", "there"])?;
    if exported.lines().count() < 4 {
        return Err(format!("the export of 4 tasks is\n{exported}"));
    }
    second.kill();
    let emptied = std::fs::remove_dir_all(second.data_folder());
    emptied.and_then(|()| std::fs::create_dir(second.data_folder())).map_err(|error| error.to_string())?;
    second.launch()?;
    compare(&first, &mut second)?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("there.jsonl");
    std::fs::write(&file, exported).map_err(|error| error.to_string())?;
    command(&first, &["import", &file.display().to_string()])?;
    compare(&first, &mut second)?;
    for tube in ["here", "there"] {
        let count = format!("return box.space.{tube}:count()");
        expect(tube, Client::open(&second)?.eval(&count), "[4]")?;
    }
    Ok(())
}

fn put(server: &Server, tube: &str, count: usize) -> Result<()> {
    let mut client = Client::open(server)?;
    for _ in 0..count {
        client.ask(&format!("queue.tube.{tube}:put"), vec![Value::str(tube)])?;
    }
    Ok(())
}

/// Both have the same list of masters, themselves included. The first begins the replica set and takes writes before the second
/// one exists; that one joins, although one of the addresses, its own, does not answer.
fn each_names_both() -> Result<()> {
    for _ in 0..3 {
        let addresses = [free_address(), free_address()];
        let uris =
            addresses.map(|address| format!("\"admin:{}@{address}\"", ADMIN_PASSWORD.replace(' ', "%20")));
        let setup = |place: usize, more: &[&str]| {
            let mut options =
                vec![format!("replication = [{}]", uris.join(", ")), "replication_timeout = 0.2".to_owned()];
            options.extend(more.iter().map(|&option| option.to_owned()));
            Setup { options, listen: Some(addresses[place]), ..Setup::default() }
        };
        let first = Server::start(Peer::Lycosa, setup(0, &[]))?;
        some_work(&first, 0)?;
        let replicates = Some(uris[0].clone());
        let second = Setup { replicates, ..setup(1, &["read_only = true"]) };
        let mut second = Server::start(Peer::Lycosa, second)?;
        // Another program may have taken a port.
        if [first.address(), second.address()] != addresses {
            continue;
        }
        compare(&first, &mut second)?;
        // Each finds that one of the addresses is its own, and suspects no copied folder.
        for server in [&first, &second] {
            wait_for("itself", || Ok(server.log().contains("that is this instance itself")))?;
            if server.log().contains("is a copy of the other") {
                return Err(server.log());
            }
        }
        // Each follows the other one.
        wait_upstream(&first, "follow")?;
        set_read_only(&first, true)?;
        compare(&first, &mut second)?;
        set_read_only(&second, false)?;
        some_work(&second, 10)?;
        let mut first = first;
        return compare(&second, &mut first);
    }
    Err("other processes took each port".to_owned())
}

/// A promotion beside a master that takes writes, with replies that will wait, says both. After a planned change it says neither.
fn promote_warns() -> Result<()> {
    let master = start_master(Peer::Lycosa)?;
    let mut replica = start_replica(Peer::Lycosa, &master)?;
    compare(&master, &mut replica)?;
    let promote = || {
        let address = replica.address().to_string();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lycosa"));
        let output = command.args(["promote", "--address", &address]).output();
        let output = output.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    };
    let waits = "replicas_before_reply is 1 and 0 replicas follow";
    Client::open(&replica)?.eval("box.cfg{replicas_before_reply = 1}")?;
    let said = promote()?;
    if !said.contains(waits) {
        return Err(format!("promote says not \"{waits}\", but:\n{said}"));
    }
    // The old one hears, though no operator has told it to take no writes.
    wait_for("the fence", || Ok(info(&master, "ro")? == Value::Bool(true)))?;
    if info(&master, "ro_reason")? != Value::str("fenced") {
        return Err(format!("the old master takes no writes for {}", info(&master, "ro_reason")?));
    }
    Client::open(&replica)?.eval("box.cfg{replicas_before_reply = 0, read_only = true}")?;
    let said = promote()?;
    if said.contains("replicas follow") {
        return Err(format!("after a planned change promote says\n{said}"));
    }
    Ok(())
}
