//! Every call of the queue in every state that a client can find: INIT (a replica, and an orphan), RUNNING, WAITING; by
//! CALL and from a program. The answers are those of the Lua module.
//!
//! STARTUP needs a master that is behind, so the crate `instance` asks there (`tests/instance/states.rs`). ENDING begins
//! and ends inside of one call; the log has it.

use libtest_mimic::Trial;

use super::Result;
use super::pair::{Client, REPLY_LIMIT, compare, info, set_read_only, start_replica_with, wait_for};
use crate::connection::{self, key, kind};
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup};
use crate::value::Value;

/// What a call answers while the queue does not run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Quiet {
    Null,
    Nothing,
    /// As in every state.
    Works,
}

/// The calls, in an order in which each succeeds in a running queue; `t` is a tube of type fifottl.
fn calls() -> Vec<(&'static str, Vec<Value>, Quiet)> {
    use Quiet::{Nothing, Null, Works};
    let (text, int) = (|text: &str| Value::str(text), |number: i128| Value::Int(number));
    let ids = |ids: &[i128]| Value::Array(ids.iter().copied().map(Value::Int).collect());
    let texts = |texts: &[&str]| Value::Array(texts.iter().map(|text| Value::str(text)).collect());
    let map = |name: &str, value| Value::Map(vec![(Value::str(name), value)]);
    vec![
        ("queue.state", vec![], Works),
        ("queue.cfg", vec![map("ttr", int(600))], Works),
        ("queue.tube.t:put", vec![text("x")], Null),
        ("queue.tube.t:take", vec![int(0)], Null),
        ("queue.tube.t:touch", vec![int(0), int(1)], Nothing),
        ("queue.tube.t:release", vec![int(0)], Null),
        ("queue.tube.t:bury", vec![int(0)], Null),
        ("queue.tube.t:kick", vec![int(1)], Null),
        ("queue.tube.t:peek", vec![int(0)], Null),
        ("queue.tube.t:list", vec![], Null),
        ("queue.tube.t:delete", vec![int(0)], Null),
        ("queue.tube.t:put", vec![text("y"), map("delay", int(0))], Null),
        ("queue.tube.t:take", vec![], Null),
        ("queue.tube.t:ack", vec![int(1)], Null),
        ("queue.tube.t:put_many", vec![texts(&["a", "b", "c"])], Null),
        ("queue.tube.t:take_many", vec![int(3), int(0)], Null),
        ("queue.tube.t:release_many", vec![ids(&[2])], Null),
        ("queue.tube.t:bury_many", vec![ids(&[3])], Null),
        ("queue.tube.t:kick_many", vec![ids(&[3])], Null),
        ("queue.tube.t:ack_many", vec![ids(&[4])], Null),
        ("queue.tube.t:delete_many", vec![ids(&[2, 3])], Null),
        ("queue.tube.t:grant", vec![text("guest")], Nothing),
        ("queue.tube.t:grant_role", vec![text("super")], Nothing),
        ("queue.tube.t:release_all", vec![], Nothing),
        ("queue.tube.t:truncate", vec![], Nothing),
        ("queue.statistics", vec![text("t")], Works),
        ("queue.stats", vec![], Works),
        ("queue.tube", vec![text("t")], Works),
        ("queue.tubes", vec![], Works),
        ("queue.tube.t:drop", vec![], Null),
        ("queue.create_tube", vec![text("t"), text("fifottl")], Nothing),
    ]
}

/// How a queue that has never run answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Init {
    /// Nothing but `state` and `cfg` can be called.
    Single,
    /// Calls are reached, there are no tubes.
    InReplicaset,
}

/// The values of a call, or the number and the text of its error.
type Answer = std::result::Result<Vec<Value>, (u32, String)>;

struct Asker {
    client: Client,
    /// By EVAL of a Lua text, and not by CALL.
    from_lua: bool,
}

impl Asker {
    /// As `admin`, who may grant.
    fn open(server: &Server, from_lua: bool) -> Result<Self> {
        let mut client = Client::open(server)?;
        let greeting = client.0.greeting(REPLY_LIMIT)?;
        let auth = connection::auth(&greeting, "admin", ADMIN_PASSWORD)?;
        let reply = client.0.ask(kind::AUTH, &auth, REPLY_LIMIT)?;
        if reply.error == 0 { Ok(Self { client, from_lua }) } else { Err(reply.describe()) }
    }

    fn ask(&mut self, name: &str, arguments: &[Value]) -> Result<Answer> {
        let arguments = arguments.to_vec();
        // The module of a program lists its tubes by `queue.tube()`.
        let name = if self.from_lua && name == "queue.tubes" { "queue.tube" } else { name };
        let (kind, body) = if self.from_lua {
            // A method that returns nothing differs from one that returns nil.
            let (object, method) = name.rsplit_once(':').unwrap_or((name, ""));
            let called =
                if method.is_empty() { format!("{object}(...)") } else { format!("{object}:{method}(...)") };
            let text = Value::str(&format!("return {called}"));
            (kind::EVAL, connection::body([(key::EXPRESSION, text), (key::TUPLE, Value::Array(arguments))]))
        } else {
            (kind::CALL, connection::call(name, arguments))
        };
        let reply = self.client.0.ask(kind, &body, REPLY_LIMIT)?;
        if reply.error != 0 {
            return Ok(Err((reply.error, reply.message())));
        }
        reply.data().as_array().map(|values| Ok(values.to_vec())).ok_or_else(|| "no values".to_owned())
    }
}

fn setup(in_replicaset: bool) -> Setup {
    let queue = vec![("in_replicaset".to_owned(), in_replicaset.into()), ("ttr".to_owned(), 600.into())];
    Setup { options: vec!["replication_timeout = 0.2".to_owned()], queue, ..Setup::default() }
}

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (mode, in_replicaset) in [("single", false), ("in-replicaset", true)] {
        for (way, from_lua) in [("call", false), ("lua", true)] {
            trials.push(Trial::test(format!("replication::states/{mode}/{way}"), move || {
                Ok(every_state(in_replicaset, from_lua)?)
            }));
        }
    }
    trials
}

fn every_state(in_replicaset: bool, from_lua: bool) -> Result<()> {
    let mut master = Server::start(Peer::Lycosa, setup(in_replicaset))?;
    let open = |server: &Server| Asker::open(server, from_lua);
    Client::open(&master)?.ask("queue.create_tube", vec![Value::str("t"), Value::str("fifottl")])?;
    let lines = format!("replication_connect_timeout = 1\n[queue]\nin_replicaset = {in_replicaset}");
    let mut replica = start_replica_with(Peer::Lycosa, &master, vec![lines])?;
    compare(&master, &mut replica)?;

    let init = if in_replicaset { Init::InReplicaset } else { Init::Single };
    never_started(&mut open(&replica)?, init).map_err(|error| format!("on a replica: {error}"))?;

    running(&mut open(&master)?)?;
    compare(&master, &mut replica)?;
    set_read_only(&master, true)?;
    waiting(&mut open(&master)?, in_replicaset)?;
    for wanted in
        ["Queue state changed: ENDING", "Queue state changed: WAITING", "put: queue is in WAITING state"]
    {
        wait_for(wanted, || Ok(master.log().contains(wanted)))?;
    }
    set_read_only(&master, false)?;
    running(&mut open(&master)?)?;

    // An orphan: it may write, and has no master to be in sync with.
    compare(&master, &mut replica)?;
    master.kill();
    replica.kill();
    replica.may_write();
    replica.launch()?;
    if info(&replica, "status")? != Value::str("orphan") {
        return Err(format!("without its master the replica's status is {}", info(&replica, "status")?));
    }
    never_started(&mut open(&replica)?, init).map_err(|error| format!("on an orphan: {error}"))
}

fn running(asker: &mut Asker) -> Result<()> {
    for (name, arguments, quiet) in calls() {
        match asker.ask(name, &arguments)? {
            Ok(values) if quiet == Quiet::Null && (values == [Value::Nil] || values.is_empty()) => {
                return Err(format!("{name}{arguments:?} says nothing in state RUNNING"));
            }
            Ok(_) => {}
            Err(error) => return Err(format!("{name}{arguments:?} in state RUNNING: {error:?}")),
        }
    }
    state(asker, "RUNNING")
}

fn state(asker: &mut Asker, wanted: &str) -> Result<()> {
    let found = asker.ask("queue.state", &[])?;
    if found == Ok(vec![Value::str(wanted)]) { Ok(()) } else { Err(format!("the state is {found:?}")) }
}

fn waiting(asker: &mut Asker, in_replicaset: bool) -> Result<()> {
    state(asker, "WAITING")?;
    let statistics = in_order(asker.ask("queue.statistics", &[Value::str("t")])?);
    for (name, arguments, quiet) in calls() {
        let found = asker.ask(name, &arguments)?;
        let is_right = match quiet {
            Quiet::Null => found == Ok(vec![Value::Nil]),
            Quiet::Nothing => found == Ok(Vec::new()),
            Quiet::Works => found.is_ok(),
        };
        if !is_right {
            return Err(format!("{name}{arguments:?} in state WAITING, expected {quiet:?}: {found:?}"));
        }
    }
    let after = in_order(asker.ask("queue.statistics", &[Value::str("t")])?);
    if after != statistics {
        return Err(format!("a call in state WAITING has changed {statistics:?} to {after:?}"));
    }
    let unknown = asker.ask("queue.tube.nobody:put", &[Value::str("x")])?;
    if unknown.is_ok() {
        return Err(format!("a tube that is not there answers {unknown:?}"));
    }
    identify(asker, in_replicaset)?;
    // The mode of sessions is durable data.
    let mode = Value::Map(vec![(Value::str("in_replicaset"), Value::Bool(!in_replicaset))]);
    expect_error(asker, "queue.cfg", &[mode], 7)
}

/// An answer with the keys of its maps in order: those of a Lua table come in any.
fn in_order(answer: Answer) -> Answer {
    fn sorted(value: Value) -> Value {
        match value {
            Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
            Value::Map(pairs) => {
                let mut pairs: Vec<_> = pairs.into_iter().map(|(key, value)| (key, sorted(value))).collect();
                pairs.sort_by_key(|(key, _)| key.to_string());
                Value::Map(pairs)
            }
            other => other,
        }
    }
    answer.map(|values| values.into_iter().map(sorted).collect())
}

/// A session is in memory, or durable and then cannot begin where nothing can be written.
fn identify(asker: &mut Asker, in_replicaset: bool) -> Result<()> {
    if in_replicaset {
        return expect_error(asker, "queue.identify", &[], 7);
    }
    let session = asker.ask("queue.identify", &[])?;
    if session.as_ref().is_ok_and(|values| values.len() == 1) {
        return Ok(());
    }
    Err(format!("queue.identify: {session:?}"))
}

fn expect_error(asker: &mut Asker, name: &str, arguments: &[Value], code: u32) -> Result<()> {
    match asker.ask(name, arguments)? {
        Err((found, _)) if found == code => Ok(()),
        other => Err(format!("{name}{arguments:?}, expected error {code}: {other:?}")),
    }
}

fn never_started(asker: &mut Asker, init: Init) -> Result<()> {
    const NOT_CONFIGURED: &str = "Please configure box.cfg{} in read/write mode first";
    state(asker, "INIT")?;
    for (name, arguments, _) in calls() {
        if matches!(name, "queue.state" | "queue.cfg") {
            let found = asker.ask(name, &arguments)?;
            found.map_err(|error| format!("{name} in state INIT: {error:?}"))?;
            continue;
        }
        let found = asker.ask(name, &arguments)?;
        let is_right = match (init, &found) {
            (Init::Single, found) => {
                matches!(found, Err((32, text)) if text.contains(NOT_CONFIGURED))
            }
            // 33: no such procedure; a program indexes nil. Lycosa says which server takes writes.
            (Init::InReplicaset, Err((code, text))) if name.contains(".t:") => {
                let in_lua = asker.from_lua && text.contains("attempt to index");
                let names_master = *code == 7 && text.contains("server takes no writes; its master is ");
                *code == 33 || in_lua || names_master
            }
            (Init::InReplicaset, found) if name == "queue.create_tube" => *found == Ok(Vec::new()),
            (Init::InReplicaset, found) => found.is_ok(),
        };
        if !is_right {
            return Err(format!("{name}{arguments:?} in state INIT ({init:?}): {found:?}"));
        }
    }
    match init {
        Init::Single => {
            let unknown = asker.ask("queue.nosuch", &[])?;
            if unknown.as_ref().is_err_and(|(code, text)| *code == 32 && text.contains(NOT_CONFIGURED)) {
                return Ok(());
            }
            Err(format!("queue.nosuch in state INIT: {unknown:?}"))
        }
        Init::InReplicaset => identify(asker, true),
    }
}
