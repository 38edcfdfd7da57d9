//! Every way to start and stop a task, in pseudo-random order, against a model of the names that are taken; and what each
//! of them answers to wrong arguments. The seed is fixed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use lycosa_client::{ConnectOptions, Connection, Error};
use lycosa_tuple::value::Value;
use rustix::process::Signal;
use tokio::runtime::Runtime;

use super::{MAIL, expiration, json, ok};
use crate::support::{Server, wait_until};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: usize = 400;

/// Code and text of a refusal.
type Refusal = (u32, String);

/// A connection of one user.
struct Face<'a> {
    runtime: &'a Runtime,
    connection: Connection,
}

impl<'a> Face<'a> {
    fn new(runtime: &'a Runtime, server: &Server, login: Option<(&str, &str)>) -> Self {
        let mut options = ConnectOptions::new(&server.address);
        if let Some((user, password)) = login {
            options.user = Some(user.to_owned());
            options.password = password.to_owned();
        }
        Self { runtime, connection: runtime.block_on(Connection::connect(&options)).unwrap() }
    }

    fn answer(&self, response: lycosa_client::Result<lycosa_client::Response>) -> Result<Value, Refusal> {
        match response {
            Ok(response) => match Value::decode(response.data()).unwrap() {
                Value::Array(values) => Ok(values.into_iter().next().unwrap_or(Value::Nil)),
                value => Ok(value),
            },
            Err(Error::Server { code, message, .. }) => Err((code, message)),
            Err(error) => panic!("{error}"),
        }
    }

    fn call(&self, name: &str, arguments: Vec<Value>) -> Result<Value, Refusal> {
        self.answer(self.runtime.block_on(self.connection.call(name, arguments)))
    }

    fn eval(&self, text: &str, arguments: Vec<Value>) -> Result<Value, Refusal> {
        self.answer(self.runtime.block_on(self.connection.eval(text, arguments)))
    }

    /// What an `expirationd` call has said, if it was refused.
    fn expirationd(&self, call: &str, arguments: Vec<Value>) -> Option<String> {
        let text = format!(
            "local done, message = pcall({call}) if not done then return tostring(message) end return box.NULL"
        );
        let refused = self.eval(&text, arguments).unwrap();
        refused.as_str().map(str::to_owned)
    }
}

/// An index as `net.box` sends it.
fn index(id: u32, unique: bool) -> Value {
    Value::map([("unique", Value::Bool(unique)), ("id", id.into()), ("type", "TREE".into())])
}

fn seven(name: impl Into<Value>, space: impl Into<Value>) -> Vec<Value> {
    let (size, time) = (1024_u32.into(), 3600_u32.into());
    vec![name.into(), space.into(), index(0, true), index(1, false), 3_u32.into(), size, time]
}

fn native(name: impl Into<Value>, space: impl Into<Value>, options: Vec<(&str, Value)>) -> Vec<Value> {
    vec![name.into(), space.into(), Value::map(options)]
}

fn field() -> (&'static str, Value) {
    ("field", 3_u32.into())
}

/// What the module `expirationd` has of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Module {
    /// A task of the server.
    Native,
    /// A task with callbacks; the server knows nothing of it.
    Callbacks,
}

/// The names that are taken.
#[derive(Debug, Default)]
struct Model {
    transient: BTreeSet<&'static str>,
    kept: BTreeSet<&'static str>,
    module: BTreeMap<&'static str, Module>,
}

impl Model {
    fn has(&self, name: &str) -> bool {
        self.transient.contains(name) || self.kept.contains(name)
    }

    fn start(&mut self, name: &'static str, is_transient: bool) -> bool {
        let is_free = !self.has(name);
        if is_free {
            if is_transient {
                self.transient.insert(name)
            } else {
                self.kept.insert(name)
            };
        }
        is_free
    }

    fn stop(&mut self, name: &str) -> bool {
        self.transient.remove(name) || self.kept.remove(name)
    }

    fn names(&self) -> Vec<String> {
        self.transient.union(&self.kept).map(|name| (*name).to_owned()).collect()
    }
}

/// Pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % count
    }
}

/// What a refused start of a taken name says.
fn taken(name: &str) -> String {
    format!("Illegal parameters, expiration task '{name}' already exists")
}

fn listed(admin: &Face<'_>) -> Vec<String> {
    let list = admin.call("expiration.list", vec![]).unwrap();
    let names =
        list.as_array().unwrap().iter().map(|task| task.get("name").unwrap().as_str().unwrap().to_owned());
    names.collect()
}

const PROGRAM: &str = "
    expirationd = require('expirationd')
    for _, name in ipairs({'start', 'kill'}) do
        box.schema.func.create('libcapped-expirationd.' .. name, {language = 'C', if_not_exists = true})
        box.schema.func.create('expiration.' .. (name == 'kill' and 'stop' or name), {if_not_exists = true})
    end
    for _, name in ipairs({'plain', 'caller'}) do
        box.schema.user.create(name, {password = 'secret', if_not_exists = true})
    end
    for _, name in ipairs({'expiration.start', 'expiration.stop', 'libcapped-expirationd.start',
        'libcapped-expirationd.kill'}) do
        box.schema.user.grant('caller', 'execute', 'function', name, {if_not_exists = true})
    end
";

#[test]
#[expect(clippy::too_many_lines, reason = "one story")]
fn every_face_starts_and_stops_in_every_order() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("lycosa.toml");
    let declare = |text: &str| fs::write(&config, text).unwrap();
    declare("");
    let data = tempfile::tempdir().unwrap();
    let script = data.path().join("app.lua");
    fs::write(&script, format!("{PROGRAM}{MAIL}")).unwrap();
    let flags = ["--config", config.to_str().unwrap(), "--app", script.to_str().unwrap()].map(str::to_owned);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let is_up = |server: &Server| {
        wait_until("the program has run", || {
            server.run(&["ping"]).code == 0 && super::eval(server, "return is_up") == Ok(Value::Bool(true))
        });
    };
    let mut server = Server::over(data, &flags);
    is_up(&server);
    let mut model = Model::default();
    let mut dice = Dice(0x5eed_cafe);
    let mut size = 2000;
    // The steps that were done at all: a machine that never comes to a step proves nothing of it.
    let mut done: BTreeMap<&str, [usize; 2]> = BTreeMap::new();

    let mut step = 0;
    while step < STEPS {
        let admin = Face::new(&runtime, &server, None);
        let plain = Face::new(&runtime, &server, Some(("plain", "secret")));
        let caller = Face::new(&runtime, &server, Some(("caller", "secret")));
        let space = admin.eval("return box.space.mail.id", vec![]).unwrap();
        let is_killed = loop {
            step += 1;
            let name = NAMES[dice.below(NAMES.len())];
            let face = if dice.below(2) == 0 { &admin } else { &caller };
            let (what, is_done) = match dice.below(40) {
                0..8 => {
                    let is_transient = dice.below(2) == 0;
                    let walked = dice.below(2) as u64;
                    let options =
                        vec![field(), ("transient", Value::Bool(is_transient)), ("index", walked.into())];
                    let answer = face.call("expiration.start", native(name, space.clone(), options));
                    let is_new = model.start(name, is_transient);
                    match answer {
                        Ok(task) => {
                            assert!(is_new && task.get("name") == Some(&name.into()), "{step}: {task:?}");
                        }
                        Err(refusal) => assert_eq!((is_new, refusal), (false, (1, taken(name))), "{step}"),
                    }
                    ("start", is_new)
                }
                8..13 => {
                    let answer = face.call("expiration.stop", vec![name.into()]);
                    let was_there = model.stop(name);
                    match answer {
                        Ok(_) => assert!(was_there, "{step}"),
                        Err((code, text)) => {
                            let missing =
                                format!("Illegal parameters, expiration task '{name}' does not exist");
                            assert!(!was_there && code == 1 && text.starts_with(&missing), "{step}: {text}");
                        }
                    }
                    ("stop", was_there)
                }
                13..16 => {
                    let answer = face.call("libcapped-expirationd.start", seven(name, space.clone()));
                    let is_new = model.start(name, false);
                    let wanted = if is_new { Ok(Value::Array(vec![])) } else { Err((1, taken(name))) };
                    assert_eq!(answer, wanted, "{step}");
                    ("capped start", is_new)
                }
                16..18 => {
                    let answer = face.call("libcapped-expirationd.kill", vec![name.into()]);
                    assert_eq!(answer, Ok(Value::Array(vec![])), "{step}: also if there is none");
                    ("capped kill", model.stop(name))
                }
                18..21 => {
                    let refused = admin
                        .expirationd("expirationd.start, ..., 'mail', nil, {field = 3}", vec![name.into()]);
                    if model.module.get(name) == Some(&Module::Native) {
                        model.stop(name);
                    }
                    let is_new = model.start(name, true);
                    if is_new {
                        // One with callbacks ends; if the name is taken it goes on.
                        model.module.insert(name, Module::Native);
                    }
                    assert_eq!(refused.is_none(), is_new, "{step}: {refused:?}");
                    ("module start by field", is_new)
                }
                21..23 => {
                    let call = "expirationd.start, ..., 'mail', function(_, tuple) return tuple[3] < 100 end, \
                                {full_scan_delay = 0.01}";
                    assert_eq!(admin.expirationd(call, vec![name.into()]), None, "{step}");
                    if model.module.insert(name, Module::Callbacks) == Some(Module::Native) {
                        model.stop(name);
                    }
                    ("module start by callback", true)
                }
                23..25 => {
                    let refused = admin.expirationd("expirationd.kill, ...", vec![name.into()]);
                    let known = model.module.remove(name);
                    assert_eq!(refused.is_none(), known.is_some(), "{step}: {refused:?}");
                    if known == Some(Module::Native) {
                        model.stop(name);
                    }
                    ("module kill", known.is_some())
                }
                // Wrong options end nothing that runs under the name.
                25 => {
                    let wrong = "expirationd.start, ..., 'mail', nil, {field = 3, unit = 'h'}";
                    let text = admin.expirationd(wrong, vec![name.into()]).expect("an error");
                    assert!(text.contains("unit is s, ms or us, not 'h'"), "{step}: {text}");
                    ("module start refused", false)
                }
                26..28 => {
                    let run = expiration(&server, &["start", name, "mail", "--field", "3"]);
                    let is_new = model.start(name, false);
                    assert_eq!(run.code, i32::from(!is_new), "{step}: {run:?}");
                    assert!(is_new || run.stderr.contains("already exists"), "{step}: {run:?}");
                    ("command start", is_new)
                }
                28 => {
                    let run = expiration(&server, &["stop", name]);
                    let was_there = model.stop(name);
                    assert_eq!(run.code, i32::from(!was_there), "{step}: {run:?}");
                    ("command stop", was_there)
                }
                29 => {
                    size += 1;
                    declare(&format!(
                        "[[expiration]]\nname = \"{name}\"\nspace = \"mail\"\nfield = 3\nscan_size = {size}\n"
                    ));
                    server.signal(Signal::HUP);
                    wait_until("the declared task runs", || {
                        let list = admin.call("expiration.list", vec![]).unwrap();
                        let size = Value::from(size);
                        list.as_array().unwrap().iter().any(|task| task.get("scan_size") == Some(&size))
                    });
                    declare("");
                    model.transient.remove(name);
                    model.kept.insert(name);
                    ("declaration", true)
                }
                30 | 31 => {
                    let text =
                        "if box.space._expiration then return box.space._expiration:delete(...) ~= nil end
                                return false";
                    let answer = admin.eval(text, vec![name.into()]).unwrap();
                    assert_eq!(answer, Value::Bool(model.kept.remove(name)), "{step}");
                    ("row deleted", answer == Value::Bool(true))
                }
                32 if !model.has(name) => {
                    let text = "if box.space._expiration then
                                    return box.space._expiration:insert{..., box.space.mail.id, {field = 3}} ~= nil
                                end
                                return false";
                    let is_done = admin.eval(text, vec![name.into()]).unwrap() == Value::Bool(true);
                    if is_done {
                        model.kept.insert(name);
                    }
                    ("row inserted", is_done)
                }
                33 => {
                    admin.eval("box.space.mail:drop() mail()", vec![]).unwrap();
                    model.transient.clear();
                    model.kept.clear();
                    // The space has another number now.
                    done.entry("space dropped").or_default()[1] += 1;
                    break false;
                }
                34 => {
                    admin.eval("box.cfg{read_only = true}", vec![]).unwrap();
                    let start = face.call("expiration.start", native(name, space.clone(), vec![field()]));
                    assert_eq!(start.unwrap_err().0, 7, "{step}");
                    if model.kept.contains(name) {
                        let stop = face.call("expiration.stop", vec![name.into()]);
                        assert_eq!(stop.unwrap_err().0, 7, "{step}");
                    }
                    admin.eval("box.cfg{read_only = false}", vec![]).unwrap();
                    ("read-only", true)
                }
                35 | 36 => {
                    let starts = [
                        ("expiration.start", native(name, space.clone(), vec![field()])),
                        ("libcapped-expirationd.start", seven(name, space.clone())),
                    ];
                    for (function, arguments) in starts {
                        let (code, text) = plain.call(function, arguments).unwrap_err();
                        let denied = "is denied for user 'plain'";
                        assert!(code == 42 && text.contains(denied), "{step}: {function}: {text}");
                    }
                    if model.has(name) {
                        for function in ["expiration.stop", "libcapped-expirationd.kill"] {
                            let (code, text) = plain.call(function, vec![name.into()]).unwrap_err();
                            assert_eq!(code, 42, "{step}: {function}: {text}");
                        }
                    }
                    ("without rights", true)
                }
                37 | 38 => {
                    let (function, arguments, code, text) =
                        wrong(name, &space).swap_remove(dice.below(WRONG));
                    let refusal = face.call(function, arguments).unwrap_err();
                    assert_eq!(refusal, (code, text.to_owned()), "{step}: {function}");
                    ("wrong arguments", true)
                }
                39 => break true,
                _ => ("nothing", true),
            };
            done.entry(what).or_default()[usize::from(is_done)] += 1;
            assert_eq!(listed(&admin), model.names(), "step {step}: {what} {name}");
            if step >= STEPS {
                break false;
            }
        };
        if is_killed {
            done.entry("killed").or_default()[1] += 1;
            drop((admin, plain, caller));
            server = server.restart(&flags);
            is_up(&server);
            model.transient.clear();
            model.module.clear();
        }
        let admin = Face::new(&runtime, &server, None);
        assert_eq!(listed(&admin), model.names(), "step {step}");
    }

    // Everything can be stopped, and nothing is left.
    let admin = Face::new(&runtime, &server, None);
    for name in model.module.keys() {
        assert_eq!(admin.expirationd("expirationd.kill, ...", vec![(*name).into()]), None);
    }
    for name in listed(&admin) {
        admin.call("expiration.stop", vec![name.as_str().into()]).unwrap();
    }
    let left = "return #expirationd.tasks() + box.space._expiration:count()";
    assert_eq!(admin.eval(left, vec![]), Ok(Value::Uint(0)));
    assert_eq!(admin.call("expiration.stats", vec![]), Ok(Value::Map(vec![])));
    for both in ["start", "stop", "capped start", "module start by field", "module kill", "command start"] {
        assert!(done[both].iter().all(|count| *count > 0), "{both}: {done:?}");
    }
    for what in
        ["declaration", "row deleted", "row inserted", "space dropped", "killed", "read-only", "command stop"]
    {
        assert!(done.get(what).is_some_and(|count| count[1] > 0), "{what}: {done:?}");
    }
}

/// Calls that are refused in any state: function, arguments, code, text.
type Wrong = (&'static str, Vec<Value>, u32, &'static str);

const WRONG: usize = 40;

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn wrong(name: &'static str, space: &Value) -> Vec<Wrong> {
    let start = "expiration.start";
    let capped = "libcapped-expirationd.start";
    let with = |more: Vec<(&'static str, Value)>| {
        (start, native(name, space.clone(), [vec![field()], more].concat()))
    };
    let seven_with = |place: usize, value: Value| {
        let mut arguments = seven(name, space.clone());
        arguments[place] = value;
        (capped, arguments)
    };
    let text = |(function, arguments): (&'static str, Vec<Value>), text: &'static str| {
        (function, arguments, 1, text)
    };
    let list = vec![
        text(
            (start, vec![]),
            "Illegal parameters, expected expiration.start(name, space, {field = …}), got 0 arguments",
        ),
        text(
            (start, vec![name.into()]),
            "Illegal parameters, expected expiration.start(name, space, {field = …}), got 1 arguments",
        ),
        text(
            (start, native(5_u32, space.clone(), vec![field()])),
            "Illegal parameters, the name of an expiration task is a string, not 5",
        ),
        text(
            (start, native(Value::Nil, space.clone(), vec![field()])),
            "Illegal parameters, the name of an expiration task is a string, not nil",
        ),
        text(
            (start, native("", space.clone(), vec![field()])),
            "Illegal parameters, the name of an expiration task has 1 to 255 bytes, not 0",
        ),
        text(
            (start, native(name, "mial", vec![field()])),
            "Illegal parameters, space 'mial' does not exist (did you mean 'mail'?)",
        ),
        text(
            (start, native(name, Value::Double(1.5), vec![field()])),
            "Illegal parameters, the space is a number or a name, not 1.5",
        ),
        (start, native(name, 99_999_u32, vec![field()]), 36, "Space '99999' does not exist"),
        text(
            (start, native(name, "_queue_taken_2", vec![field()])),
            "Illegal parameters, space '_queue_taken_2' is the server's own: no task may delete from it",
        ),
        text(
            (start, vec![name.into(), space.clone()]),
            "Illegal parameters, field is missing: the number (from 1) or the name of the field with the deadline",
        ),
        text(
            (start, vec![name.into(), space.clone(), "field".into()]),
            "Illegal parameters, options are a map, not a string",
        ),
        text(
            (start, vec![name.into(), space.clone(), Value::Map(vec![(1_u32.into(), 2_u32.into())])]),
            "Illegal parameters, the name of an option is a string, not an integer",
        ),
        text(with(vec![("field", 3_u32.into())]), "Illegal parameters, option 'field' is given twice"),
        text(
            with(vec![("bogus", 3_u32.into())]),
            "Illegal parameters, there is no option 'bogus'; the options are field, unit, index, delete_by, scan_size, scan_time, budget_rows, budget_us, share, lag_limit, archive_tube, archive_space, transient, dry_run, if_not_exists",
        ),
        text(
            (start, native(name, space.clone(), vec![("field", 0_u32.into())])),
            "Illegal parameters, fields are counted from 1: there is no field 0",
        ),
        text(
            (start, native(name, space.clone(), vec![("field", (-1_i64).into())])),
            "Illegal parameters, field is a number from 1 or a name, not -1",
        ),
        text(
            (start, native(name, space.clone(), vec![("field", "dead".into())])),
            "Illegal parameters, the format of space 'mail' has no field 'dead'",
        ),
        text(with(vec![("unit", "h".into())]), "Illegal parameters, unit is s, ms or us, not 'h'"),
        text(
            with(vec![("index", "ex".into())]),
            "Illegal parameters, space 'mail' has no index 'ex' (did you mean 'exp'?)",
        ),
        (start, with(vec![("index", 7_u32.into())]).1, 35, "No index #7 is defined in space 'mail'"),
        text(
            with(vec![("delete_by", "exp".into())]),
            "Illegal parameters, index 'exp' of space 'mail' is not unique: tuples are deleted by a unique index",
        ),
        text(
            with(vec![("scan_size", Value::Double(0.5))]),
            "Illegal parameters, scan_size is a whole number, not 0.5",
        ),
        text(
            with(vec![("scan_time", u64::MAX.into())]),
            "Illegal parameters, scan_time is 0 to 3153600000, not 18446744073709551615",
        ),
        text(
            with(vec![("budget_rows", 0_u32.into())]),
            "Illegal parameters, budget_rows is 1 to 100000, not 0",
        ),
        text(
            with(vec![("budget_us", 801_u32.into())]),
            "Illegal parameters, budget_us is 10 to 800, not 801",
        ),
        text(with(vec![("share", 0_u32.into())]), "Illegal parameters, share is 1 to 100, not 0"),
        text(
            with(vec![("transient", "yes".into())]),
            "Illegal parameters, transient is true or false, not 'yes'",
        ),
        text(
            with(vec![("archive_tube", "none".into())]),
            "Illegal parameters, the archive is the tube 'none', which does not exist",
        ),
        text(
            with(vec![("archive_space", space.clone())]),
            "Illegal parameters, space 'mail' cannot be the archive of its own tuples",
        ),
        text(
            ("expiration.stop", vec![]),
            "Illegal parameters, expected expiration.stop(name[, {if_exists = true}])",
        ),
        text(
            ("expiration.stop", vec!["none".into()]),
            "Illegal parameters, expiration task 'none' does not exist",
        ),
        text(
            ("expiration.stop", vec![name.into(), Value::map([("if_exist", true)])]),
            "Illegal parameters, the only option of expiration.stop is if_exists, true or false",
        ),
        text(
            ("expiration.list", vec![1_u32.into()]),
            "Illegal parameters, expiration.list() has no arguments",
        ),
        text(
            ("expiration.stats", vec!["none".into()]),
            "Illegal parameters, expiration task 'none' does not exist",
        ),
        text(
            (capped, seven(name, space.clone())[..6].to_vec()),
            "Illegal parameters, expected 7 arguments (name, space id, index to delete by, index to walk, field number, scan size, scan time), got 6",
        ),
        text(seven_with(1, "mail".into()), "Illegal parameters, the space id is a whole number, not 'mail'"),
        text(seven_with(2, index(0, false)), "Illegal parameters, the index to delete by is not unique"),
        text(
            seven_with(3, 1_u32.into()),
            "Illegal parameters, the index to walk is a map such as box.space.S.index.I, not 1",
        ),
        text(seven_with(6, Value::Nil), "Illegal parameters, the scan time is a whole number, not nil"),
        text(("libcapped-expirationd.kill", vec![]), "Illegal parameters, expected 1 argument (name), got 0"),
    ];
    assert_eq!(list.len(), WRONG);
    list
}

#[test]
fn wrong_arguments_have_a_code_and_a_text() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = super::with_program(&format!("{PROGRAM}{MAIL}"), &[]);
    let admin = Face::new(&runtime, &server, None);
    let space = admin.eval("return box.space.mail.id", vec![]).unwrap();
    for (function, arguments, code, text) in wrong("t", &space) {
        let refusal = admin.call(function, arguments.clone()).unwrap_err();
        assert_eq!(refusal, (code, text.to_owned()), "{function} {arguments:?}");
        assert_eq!(listed(&admin), [""; 0], "{function} {arguments:?}");
    }
    assert_eq!(json(&ok(&server, &["list", "--json"])).len(), 0);
    assert_eq!(super::count(&server, "mail"), 10, "nothing was deleted");
    admin.call("expiration.start", native("t", space, vec![field()])).unwrap();
}
