//! Odd definitions: what one server accepts and the other refuses, and whether a folder that we accepted opens there.
//!
//! From a seed come rows of the system spaces as an administrator's mistake or a broken program could write them
//! (`rows`). `oracle::definitions/…` sends the same rows to our server and to a real Tarantool: the same rows must be
//! refused, for the same reason, and a Tarantool must open the folder that ours leaves behind. `own::administrator/…`
//! needs our binary alone: after such rows it must start again with the same content, from the log and from a
//! snapshot.
//!
//! Of a row with several faults each server names the one that it looks for first; with `LYCOSA_TEST_STRICT` such
//! differences are shown, too.
//!
//! `LYCOSA_TEST_SEED` gives the first seed, `LYCOSA_TEST_DEFINITIONS` the number of seeds.

mod queue;
mod rows;

use std::collections::BTreeMap;
use std::time::Duration;

use libtest_mimic::Trial;

use self::rows::{Change, Statement};
use crate::connection::{self, Connection, Reply, key, kind};
use crate::crash::Dice;
use crate::exchange::if_possible;
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup};
use crate::value::Value;

const REPLY_LIMIT: Duration = Duration::from_secs(120);
/// Statements of a seed.
const STATEMENTS: usize = 250;
/// Seeds without `LYCOSA_TEST_DEFINITIONS`.
const SEEDS: u64 = 3;
const SEQUENCE_DATA: i128 = 285;

pub(crate) fn trials() -> Result<Vec<Trial>, String> {
    let first = number_from("LYCOSA_TEST_SEED")?.unwrap_or(1);
    let count = number_from("LYCOSA_TEST_DEFINITIONS")?.unwrap_or(SEEDS);
    let is_possible = crate::server::tarantool_is_installed();
    let mut trials = Vec::new();
    for seed in first..first + count {
        let failed = move |reason: String| format!("{reason}\n  (LYCOSA_TEST_SEED={seed})").into();
        let trial = Trial::test(format!("oracle::definitions/{seed}"), move || compare(seed).map_err(failed));
        trials.push(if_possible(trial, is_possible));
        let name = format!("own::administrator/{seed}");
        trials.push(Trial::test(name, move || restart(seed).map_err(failed)));
        let name = format!("own::queue-spaces/{seed}");
        trials.push(Trial::test(name, move || queue::restarts(seed).map_err(failed)));
    }
    trials.push(Trial::test("own::for-tarantool", || Ok(judged()?)));
    Ok(trials)
}

fn number_from(variable: &str) -> Result<Option<u64>, String> {
    match std::env::var(variable) {
        Ok(text) => text.parse().map(Some).map_err(|_| format!("{variable}={text} is not a number")),
        Err(_) => Ok(None),
    }
}

/// An administrator's connection.
struct Admin(Connection);

impl Admin {
    fn open(server: &Server) -> Result<Self, String> {
        let mut connection = Connection::open(server.address()).map_err(|error| error.to_string())?;
        let greeting = connection.greeting(REPLY_LIMIT)?;
        let auth = connection::auth(&greeting, "admin", ADMIN_PASSWORD)?;
        let reply = connection.ask(kind::AUTH, &auth, REPLY_LIMIT)?;
        if reply.error == 0 { Ok(Self(connection)) } else { Err(reply.describe()) }
    }

    fn run(&mut self, statement: &Statement) -> Result<Reply, String> {
        let (kind, body) = statement.request();
        let asked = self.0.ask(kind, &body, REPLY_LIMIT);
        asked.map_err(|reason| format!("{}: {reason}", statement.shown()))
    }

    /// Rows of a space by a key; `None` if it cannot be read.
    fn select(&mut self, space: i128, at: &[Value]) -> Result<Option<Vec<Value>>, String> {
        const ALL: i128 = 2;
        let body = connection::body([
            (key::SPACE, Value::Int(space)),
            (key::LIMIT, Value::Int(1_000_000)),
            (key::ITERATOR, Value::Int(if at.is_empty() { ALL } else { 0 })),
            (key::KEY, Value::Array(at.to_vec())),
        ]);
        let reply = self.0.ask(kind::SELECT, &body, REPLY_LIMIT)?;
        match (reply.error, reply.data()) {
            (0, Value::Array(mut rows)) => {
                rows.sort_by_cached_key(crate::value::encode);
                Ok(Some(rows))
            }
            _ => Ok(None),
        }
    }

    /// Every space that can be read, by its number.
    fn content(&mut self) -> Result<BTreeMap<i128, Vec<Value>>, String> {
        let mut content = BTreeMap::new();
        let spaces = self.select(280, &[])?.ok_or("_space cannot be read")?;
        let ids = spaces.iter().filter_map(|row| row.as_array()?.first()?.as_int()).filter(|id| *id >= 512);
        for id in ids.chain(rows::system_spaces()) {
            if let Some(rows) = self.select(id, &[])? {
                content.insert(id, rows);
            }
        }
        Ok(content)
    }
}

/// Whether a statement makes the space of vinyl, which seeds that hand over a snapshot do without.
fn is_of_vinyl(statement: &Statement) -> bool {
    statement.shown().contains("vinyl") || statement.shown().starts_with("288 INSERT [601")
}

fn server(peer: Peer, data: Option<std::path::PathBuf>) -> Result<Server, String> {
    let options = vec!["wal_mode = \"write\"".to_owned()];
    Server::start(peer, Setup { data, options, ..Setup::default() })
}

/// The same statements to both servers.
fn compare(seed: u64) -> Result<(), String> {
    let takes_snapshot = seed.is_multiple_of(2);
    let (ours, theirs) = (server(Peer::Lycosa, None)?, server(Peer::Tarantool, None)?);
    let mut pair = [Admin::open(&ours)?, Admin::open(&theirs)?];
    for statement in rows::foundation() {
        if takes_snapshot && is_of_vinyl(&statement) {
            continue;
        }
        for admin in &mut pair {
            let reply = admin.run(&statement)?;
            if reply.error != 0 {
                return Err(format!("{}: {}", statement.shown(), reply.describe()));
            }
        }
    }
    let is_strict = std::env::var_os("LYCOSA_TEST_STRICT").is_some();
    let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut differences = Vec::new();
    for _ in 0..STATEMENTS {
        let statement = rows::statement(&mut dice);
        if takes_snapshot && is_of_vinyl(&statement) {
            continue;
        }
        let [ours, theirs] = &mut pair;
        let mine = ours.run(&statement)?;
        // A Tarantool cuts such a number to 32 bits: index 2^33 is its index 0 (seed 5121), which could not be put right again.
        if statement.adds_long_key() {
            if mine.error == 0 {
                differences.push(format!("{}\n    ours: accepted, more than 32 bits", statement.shown()));
            }
            continue;
        }
        // A Tarantool may end with a fault of its own.
        let Ok(other) = theirs.run(&statement) else { break };
        if mine.error == other.error && (mine.error == 0 || is_same_text(&mine, &other)) {
            continue;
        }
        let is_refused_by_both = mine.error != 0 && other.error != 0;
        let is_known = is_documented(&statement, &mine);
        if !is_known && (is_strict || !is_refused_by_both) {
            let shown = statement.shown();
            let outcome = |reply: &Reply| {
                if reply.error == 0 { "accepted".to_owned() } else { reply.describe() }
            };
            differences.push(format!(
                "{shown}\n    ours:   {}\n    theirs: {}",
                outcome(&mine),
                outcome(&other)
            ));
        }
        if (mine.error == 0) != (other.error == 0) && !align(&statement, mine.error == 0, &mut pair)? {
            break;
        }
    }
    let [mut admin, _] = pair;
    if let Err(reason) = opens(ours, &mut admin, takes_snapshot) {
        differences.push(reason);
    }
    if differences.is_empty() { Ok(()) } else { Err(differences.join("\n  ")) }
}

/// Whether two refusals of one code say the same. A Tarantool shows names of functions with the bytes behind them,
/// and leaves the fault of a locale to ICU.
fn is_same_text(ours: &Reply, theirs: &Reply) -> bool {
    const CREATE_FUNCTION: u32 = 50;
    let theirs_is_odd = matches!(theirs.error, CREATE_FUNCTION | COLLATION);
    theirs_is_odd || ours.message() == theirs.message().replace(" to vinyl ", " to space ")
}

const COLLATION: u32 = 150;

/// Differences that `docs/protocol.md` names: features that Lycosa does not have are refused, whichever error a Tarantool gives; it
/// refuses numbers over 32 bits where a Tarantool forgets their upper half.
fn is_documented(statement: &Statement, ours: &Reply) -> bool {
    let is_absent = ours.message().contains("Lycosa does not support")
        || ours.message().starts_with("Can't drop collation")
        || ours.message().ends_with("the user has objects")
        || ours.message().ends_with("can not attach generated sequence")
        || ours.error == COLLATION
            && ["unsupported option", "invalid locale"].iter().any(|reason| ours.message().contains(reason));
    // A Tarantool guesses the type of the byte that MessagePack never uses from what lies behind it.
    is_absent || (statement.has_long_number() || statement.has_never()) && ours.error != 0
}

/// Takes back what only one server has accepted; whether that was possible.
fn align(statement: &Statement, mine: bool, pair: &mut [Admin; 2]) -> Result<bool, String> {
    let Some(key) = statement.key() else { return Ok(false) };
    let [ours, theirs] = pair;
    let (from, to) = if mine { (theirs, ours) } else { (ours, theirs) };
    let change = match from.select(statement.space, &key)? {
        None => return Ok(false),
        Some(rows) => match rows.first().and_then(Value::as_array) {
            Some(row) => Change::Replace(row.to_vec()),
            None => Change::Delete(key),
        },
    };
    Ok(to.run(&Statement { space: statement.space, change })?.error == 0)
}

/// Names the first space in which two contents differ.
fn first_difference(was: &BTreeMap<i128, Vec<Value>>, is: &BTreeMap<i128, Vec<Value>>) -> Result<(), String> {
    for (space, rows) in was {
        let Some(found) = is.get(space) else { return Err(format!("space {space} cannot be read")) };
        if rows != found {
            let only = |a: &[Value], b: &[Value]| {
                let rows = a.iter().filter(|row| !b.contains(row)).take(3).map(Value::to_string);
                rows.collect::<Vec<_>>().join(" ")
            };
            let (lost, new) = (only(rows, found), only(found, rows));
            return Err(format!("space {space}: had {lost}, has {new}"));
        }
    }
    Ok(())
}

/// Whether a Tarantool opens the folder that our server leaves behind, and sees what it had.
fn opens(mut ours: Server, admin: &mut Admin, from_snapshot: bool) -> Result<(), String> {
    let mut content = admin.content()?;
    // A Tarantool keeps an account of its own of vinyl's indexes, which is not in the files that the two share.
    let has_vinyl = content[&280].iter().any(|row| row.to_string().contains(r#", "vinyl","#));
    if from_snapshot && !has_vinyl {
        let reply = admin.0.ask(kind::CALL, &connection::call("box.snapshot", Vec::new()), REPLY_LIMIT)?;
        if reply.error != 0 {
            return Err(format!("box.snapshot: {}", reply.describe()));
        }
    }
    ours.stop()?;
    let theirs = server(Peer::Tarantool, Some(ours.data_folder()))
        .map_err(|reason| format!("a Tarantool does not open our folder: {reason}"))?;
    // A Tarantool shows the last written values of sequences, and nothing of temporary spaces.
    let temporary = |row: &Value| row.to_string().contains(r#""temporary": true"#);
    let gone: Vec<i128> = content[&280]
        .iter()
        .filter(|row| temporary(row))
        .filter_map(|row| row.as_array()?.first()?.as_int())
        .collect();
    content.retain(|space, _| *space != SEQUENCE_DATA && !gone.contains(space));
    let seen = Admin::open(&theirs)?.content()?;
    first_difference(&content, &seen)
        .map_err(|reason| format!("a Tarantool reads our folder differently: {reason}"))
}

/// Rows of an administrator, then starts from the log and from a snapshot.
fn restart(seed: u64) -> Result<(), String> {
    let mut server = server(Peer::Lycosa, None)?;
    let mut admin = Admin::open(&server)?;
    for statement in rows::foundation() {
        admin.run(&statement)?;
    }
    let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xadb0);
    let mut accepted = Vec::new();
    for _ in 0..STATEMENTS {
        let statement = rows::statement(&mut dice);
        if admin.run(&statement)?.error == 0 {
            accepted.push(statement.shown());
        }
    }
    let failed = |what: &str, reason: String| format!("{what}: {reason}\n  after {}", accepted.join("\n  "));
    // A snapshot holds the true last values of sequences.
    let content = |admin: &mut Admin| {
        admin.content().map(|mut content| {
            content.remove(&SEQUENCE_DATA);
            // Each process of a replica set begins an epoch.
            let schema = content.entry(272).or_default();
            schema.retain(|row| !row.to_string().starts_with(r#"["lycosa.epochs."#));
            // The configuration sets this password, and grants `super` to guest, at each start.
            let users = content.entry(304).or_default();
            users.retain(|row| row.as_array().and_then(|row| row.first()) != Some(&Value::Int(1)));
            let grants = content.entry(312).or_default();
            let of_guest = [Value::Int(0), Value::str("role"), Value::Int(31)];
            grants.retain(|row| row.as_array().and_then(|row| row.get(1..4)) != Some(&of_guest));
            content
        })
    };
    let before = content(&mut admin)?;
    server.kill();
    for what in ["a start from the log", "a start from a snapshot"] {
        server.launch().map_err(|reason| failed(what, reason))?;
        let mut admin = Admin::open(&server).map_err(|reason| failed(what, reason))?;
        first_difference(&before, &content(&mut admin)?).map_err(|reason| failed(what, reason))?;
        let reply = admin.0.ask(kind::CALL, &connection::call("box.snapshot", Vec::new()), REPLY_LIMIT)?;
        if reply.error != 0 {
            return Err(failed("a snapshot", reply.describe()));
        }
        server.stop()?;
    }
    Ok(())
}

/// `lycosa check --for-tarantool` names an index of vinyl in a snapshot; without a snapshot there is nothing to name.
fn judged() -> Result<(), String> {
    let mut server = server(Peer::Lycosa, None)?;
    let mut admin = Admin::open(&server)?;
    for statement in rows::foundation() {
        admin.run(&statement)?;
    }
    server.stop()?;
    let check = |server: &Server| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lycosa"));
        command.arg("check").arg(server.data_folder()).arg("--for-tarantool");
        let output = command.output().map_err(|error| error.to_string())?;
        Ok::<_, String>((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    let (code, text) = check(&server)?;
    if code != Some(0) || !text.contains("finds nothing to refuse") {
        return Err(format!("exit code {code:?}: {text}"));
    }
    server.launch()?;
    let snapshot = connection::call("box.snapshot", Vec::new());
    let reply = Admin::open(&server)?.0.ask(kind::CALL, &snapshot, REPLY_LIMIT)?;
    if reply.error != 0 {
        return Err(reply.describe());
    }
    server.stop()?;
    let (code, text) = check(&server)?;
    let named = "vinyl space 's601' in the snapshot: there is no .vylog file";
    if code != Some(78) || !text.contains(named) {
        return Err(format!("exit code {code:?}: {text}"));
    }
    Ok(())
}
