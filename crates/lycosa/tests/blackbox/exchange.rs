//! Data folders that change hands: what one server wrote, the other reads, row by row.
//!
//! A scenario is played on one server, that server stops, and the other one starts on a copy of its folder. Every
//! space of the user's must have the same definition, the same indexes and the same rows.
//! `oracle::files/to-tarantool/…` hands ours to a real Tarantool, `oracle::files/from-tarantool/…` the other way
//! round, and `oracle::files/killed/…` hands it ours after a SIGKILL: without an end marker, with a reserve behind
//! the last block.

use std::collections::BTreeMap;
use std::time::Duration;

use libtest_mimic::Trial;

use crate::connection::{self, Connection, key, kind};
use crate::scenario;
use crate::server::{Peer, Server, Setup};
use crate::value::Value;

/// Folders of scenarios that leave something behind worth reading.
const WORTH_READING: [&str; 6] = ["expiration/", "own/", "restart/", "spaces/", "stats/", "wire/"];
/// Folders of scenarios that are also handed over after a SIGKILL.
const WORTH_KILLING: &str = "stats/";
const REPLY_LIMIT: Duration = Duration::from_secs(120);
/// After the last connection closed: the tasks of its session are released.
const SETTLE: Duration = Duration::from_millis(150);

const SPACES: i128 = 280;
const INDEXES: i128 = 288;
const FIRST_OF_USERS: i128 = 512;

/// A space of the user's: its definition, its indexes, its rows.
#[derive(Debug)]
struct Space {
    definition: Value,
    indexes: Vec<Value>,
    rows: Vec<Value>,
}

impl Space {
    /// Names the first thing in which two servers differ.
    fn compare(&self, other: &Self) -> Result<(), String> {
        let first = |what: &str, ours: &[Value], theirs: &[Value]| {
            let at =
                ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
            let shown = |values: &[Value]| values.get(at).map_or("nothing".to_owned(), Value::to_string);
            if ours == theirs {
                Ok(())
            } else {
                Err(format!("{what} {at}: {}, {}", shown(ours), shown(theirs)))
            }
        };
        first("definition", std::slice::from_ref(&self.definition), std::slice::from_ref(&other.definition))?;
        first("index", &self.indexes, &other.indexes)?;
        first("row", &self.rows, &other.rows)
    }
}

/// The scenarios that both servers can be made to exchange.
pub(crate) fn trials() -> Result<Vec<Trial>, String> {
    let mut trials = Vec::new();
    let scripts = scenario::scripts()?;
    let readable =
        scripts.iter().filter(|script| WORTH_READING.iter().any(|folder| script.name.starts_with(folder)));
    for script in readable {
        for (from, to, direction) in
            [(Peer::Lycosa, Peer::Tarantool, "to"), (Peer::Tarantool, Peer::Lycosa, "from")]
        {
            if script.hindrance(from).is_none() {
                let name = format!("oracle::files/{direction}-tarantool/{}", script.name);
                let is_possible = crate::server::tarantool_is_installed();
                let script = script.clone();
                let played = script.clone();
                let trial = Trial::test(name, move || Ok(hand_over(script.play(from)?, to, false)?));
                trials.push(if_possible(trial, is_possible));
                if from == Peer::Lycosa && played.name.starts_with(WORTH_KILLING) {
                    let name = format!("oracle::files/killed/{}", played.name);
                    let trial = Trial::test(name, move || Ok(hand_over(played.play(from)?, to, true)?));
                    trials.push(if_possible(trial, is_possible));
                }
            }
        }
    }
    let is_possible = crate::server::tarantool_is_installed();
    let trial = Trial::test("oracle::files/killed/large-blocks", || {
        Ok(hand_over(with_large_blocks()?, Peer::Tarantool, true)?)
    });
    trials.push(if_possible(trial, is_possible));
    Ok(trials)
}

pub(crate) fn if_possible(trial: Trial, is_possible: bool) -> Trial {
    if is_possible { trial } else { trial.with_ignored_flag(true).with_kind("no tarantool") }
}

/// A server with tasks that do not compress: their blocks' lengths take all the digits that a header has.
fn with_large_blocks() -> Result<Server, String> {
    let server = Server::start(Peer::Lycosa, Setup::default())?;
    let mut connection = Connection::open(server.address()).map_err(|error| error.to_string())?;
    let mut call = |name: &str, arguments: Vec<Value>| {
        let reply = connection.ask(kind::CALL, &connection::call(name, arguments), REPLY_LIMIT)?;
        if reply.error == 0 { Ok(()) } else { Err(format!("{name}: {}", reply.describe())) }
    };
    call("queue.create_tube", vec![Value::str("t"), Value::str("fifo")])?;
    let mut state = 1_u32;
    for bytes in [10, 70_000, 200_000, 300, 90_000] {
        let payload = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b' ' + (state >> 24) as u8 % 95)
        });
        call("queue.tube.t:put", vec![Value::str(&payload.take(bytes).collect::<String>())])?;
    }
    Ok(server)
}

fn hand_over(mut first: Server, to: Peer, is_killed: bool) -> Result<(), String> {
    let from = first.peer();
    std::thread::sleep(SETTLE);
    let written = spaces(&first)?;
    if is_killed {
        first.kill();
    } else {
        first.stop()?;
    }
    let setup = Setup { data: Some(first.data_folder()), ..Setup::default() };
    let second =
        Server::start(to, setup).map_err(|reason| format!("{to:?} on the data of {from:?}: {reason}"))?;
    compare_spaces(&written, from, &spaces(&second)?, to)
}

/// Whether every space of the first is a space of the second, with the same definition, indexes and rows.
fn compare_spaces(
    written: &BTreeMap<String, Space>,
    from: Peer,
    read: &BTreeMap<String, Space>,
    to: Peer,
) -> Result<(), String> {
    for (name, space) in written {
        let other = read.get(name).ok_or_else(|| format!("{to:?} does not see the space {name}"))?;
        space.compare(other).map_err(|what| format!("space {name}: {from:?} and {to:?} differ in {what}"))?;
    }
    Ok(())
}

/// The system's spaces that a replica has from its master.
const REPLICATED_SYSTEM_SPACES: [i128; 9] = [272, 280, 284, 288, 304, 312, 320, 330, 340];

/// Whether two running servers hold the same: spaces of users but local ones, and what defines them.
pub(crate) fn compare_all(first: &Server, second: &Server) -> Result<(), String> {
    let is_local = |space: &Space| space.definition.to_string().contains("group_id");
    let mut written = spaces(first)?;
    written.retain(|_, space| !is_local(space));
    compare_spaces(&written, first.peer(), &spaces(second)?, second.peer())?;
    let open = |server: &Server| Connection::open(server.address()).map_err(|error| error.to_string());
    let (mut first, mut second) = (open(first)?, open(second)?);
    for space in REPLICATED_SYSTEM_SPACES {
        let (ours, theirs) = (rows(&mut first, space)?, rows(&mut second, space)?);
        if let Some((ours, theirs)) = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs) {
            return Err(format!("space {space} has {ours} and {theirs}"));
        }
        if ours.len() != theirs.len() {
            return Err(format!("space {space} has {} and {} rows", ours.len(), theirs.len()));
        }
    }
    Ok(())
}

/// All spaces of users by their names, but temporary ones: their rows are of one process.
fn spaces(server: &Server) -> Result<BTreeMap<String, Space>, String> {
    let mut connection = Connection::open(server.address()).map_err(|error| error.to_string())?;
    let mut spaces = BTreeMap::new();
    let indexes = rows(&mut connection, INDEXES)?;
    for definition in rows(&mut connection, SPACES)? {
        let Some([Value::Int(id), _, Value::Str(name), Value::Str(engine), _, Value::Map(flags), ..]) =
            definition.as_array()
        else {
            return Err(format!("a row of _space has another shape: {definition}"));
        };
        let is_temporary = flags.iter().any(|flag| *flag == (Value::str("temporary"), Value::Bool(true)));
        if *id < FIRST_OF_USERS || is_temporary || engine != b"memtx" {
            continue;
        }
        let own = |index: &&Value| index.as_array().and_then(|row| row.first()) == Some(&Value::Int(*id));
        let indexes = indexes.iter().filter(own).cloned().collect::<Vec<_>>();
        let rows = if indexes.is_empty() { Vec::new() } else { rows(&mut connection, *id)? };
        let name = String::from_utf8_lossy(name).into_owned();
        spaces.insert(name, Space { definition: definition.clone(), indexes, rows });
    }
    Ok(spaces)
}

/// All rows of a space; a HASH index gives them in any order, so they are sorted by their bytes.
fn rows(connection: &mut Connection, space: i128) -> Result<Vec<Value>, String> {
    const ALL: i128 = 2;
    let body = connection::body([
        (key::SPACE, Value::Int(space)),
        (key::LIMIT, Value::Int(1_000_000)),
        (key::ITERATOR, Value::Int(ALL)),
        (key::KEY, Value::Array(Vec::new())),
    ]);
    let reply = connection.ask(kind::SELECT, &body, REPLY_LIMIT)?;
    match (reply.error, reply.data()) {
        (0, Value::Array(mut rows)) => {
            rows.sort_by_cached_key(crate::value::encode);
            Ok(rows)
        }
        _ => Err(format!("SELECT from {space}: {}", reply.describe())),
    }
}
