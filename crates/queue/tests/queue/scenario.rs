//! Scenario files, run against a queue in this process with a clock that jumps.
//!
//! The built server is tested with the same files; here a hundred of them take a second, and a failure points
//! into the queue. Scenarios that need a real connection or Lua are left out. The folder is `scenarios` at the top of the
//! repository, or the value of `LYCOSA_SCENARIOS`.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use lycosa_queue::{Error, Seconds};
use lycosa_store::{Access, IteratorType, Object, Statement, ddl, user};
use lycosa_tuple::value::Value;
use serde_json::Value as Json;

use crate::rig::{Reply, Rig, SECOND};
use crate::want::{Matcher, search, unhex};

/// Folders whose files speak to the queue and to its spaces only.
const FOLDERS: [&str; 11] = [
    "errors",
    "fifo",
    "fifottl",
    "limfifottl",
    "restart",
    "sessions",
    "spaces",
    "stats",
    "utube",
    "utubettl",
    "wire",
];

#[test]
fn scenarios() {
    let named = std::env::var_os("LYCOSA_SCENARIOS").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios"));
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|name| collect(&folder.join(name), &mut files));
    files.sort();
    let mut failures = Vec::new();
    let mut run = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a readable file");
        if is_for_us(&text) {
            run += 1;
            if let Err(failure) = Script::new(&text).run(&text) {
                failures.push(format!("{}: {failure}", file.display()));
            }
        }
    }
    assert!(run > 0, "no scenarios in {}", folder.display());
    assert!(failures.is_empty(), "{} of {run} failed:\n{}", failures.len(), failures.join("\n"));
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "txt") {
            files.push(path);
        }
    }
}

/// Whether a file needs nothing but a queue: no Lua, no bytes on a socket, no passwords.
fn is_for_us(text: &str) -> bool {
    const ELSEWHERE: [&str; 8] = [
        " bytes ",
        " greeting ",
        "> RAW ",
        "> EVAL ",
        ">> EVAL",
        "needs: lua",
        "only: real",
        "AUTH bob wrong",
    ];
    !text.lines().any(|line| ELSEWHERE.iter().any(|word| line.contains(word)))
}

type Failure = String;

struct Sent {
    tag: String,
    reply: Reply,
    at: u64,
    /// The call was a CALL_16.
    wrapped: bool,
}

struct Connection {
    number: u64,
    sent: VecDeque<Sent>,
    arrived: Vec<String>,
}

#[derive(Default)]
struct Limits {
    after: Option<(f64, Option<String>)>,
    within: Option<(f64, Option<String>)>,
}

struct Script {
    rig: Rig,
    connections: HashMap<String, Connection>,
    last_connection: u64,
    marks: HashMap<String, u64>,
    captured: HashMap<String, Value>,
    limits: Limits,
    until: Option<f64>,
    times: usize,
}

/// A line with its prefix of the server it is for removed; None if it is for the real thing.
fn ours(line: &str) -> Option<&str> {
    let line = line.trim();
    if line.starts_with("real:") {
        return None;
    }
    Some(line.strip_prefix("ours:").unwrap_or(line).trim())
}

/// Splits JSON from what follows it.
fn json(text: &str) -> Result<(Json, &str), Failure> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Json>();
    let value = stream.next().ok_or("JSON expected")?.map_err(|error| format!("{error} in {text}"))?;
    Ok((value, &text[stream.byte_offset()..]))
}

impl Script {
    fn new(text: &str) -> Self {
        let mut ttr = None;
        let mut in_replicaset = false;
        for line in text.lines().filter_map(ours) {
            if let Some(options) = line.strip_prefix("setup: queue.cfg ") {
                let (options, _) = json(options).expect("options");
                ttr = options.get("ttr").and_then(Json::as_f64).map(Seconds::from_double);
                in_replicaset = options.get("in_replicaset") == Some(&Json::Bool(true));
            }
        }
        let mut rig = Rig::configured(lycosa_queue::Configuration { ttr, in_replicaset });
        rig.begin();
        ddl::grant(&mut rig.store, "guest", "execute", "role", "super", true).expect("a grant");
        for line in text.lines().filter_map(ours).filter_map(|line| line.strip_prefix("setup: ")) {
            let words: Vec<_> = line.split_whitespace().collect();
            match words.as_slice() {
                ["user", name, ..] => ddl::create_user(&mut rig.store, name, None, true).expect("a user"),
                ["grant", name, privileges, kind, rest @ ..] => {
                    let object = rest.first().copied().unwrap_or("");
                    ddl::grant(&mut rig.store, *name, privileges, kind, object, true).expect("a grant");
                }
                _ => {}
            }
        }
        rig.commit();
        Self {
            rig,
            connections: HashMap::new(),
            last_connection: 10,
            marks: HashMap::new(),
            captured: HashMap::new(),
            limits: Limits::default(),
            until: None,
            times: 1,
        }
    }

    fn run(&mut self, text: &str) -> Result<(), Failure> {
        let lines: Vec<_> = text.lines().enumerate().collect();
        let mut position = 0;
        while position < lines.len() {
            let (number, line) = lines[position];
            position += 1;
            let Some(line) = ours(line) else { continue };
            if line.is_empty()
                || line.starts_with('#')
                || line.starts_with("setup:")
                || line.starts_with("only:")
            {
                continue;
            }
            let answer = lines[position..].iter().filter_map(|(_, line)| ours(line));
            self.line(line, answer)
                .map_err(|failure| format!("line {}: {line}\n    {failure}", number + 1))?;
        }
        Ok(())
    }

    fn line<'a>(&mut self, line: &'a str, following: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "sleep" => self.rig.advance((number(rest)? * SECOND as f64) as u64),
            "mark" => _ = self.marks.insert(rest.into(), self.rig.now),
            "after" => self.limits.after = Some(limit(rest)?),
            "within" => self.limits.within = Some(limit(rest)?),
            "until" => self.until = Some(number(rest)?),
            "times" => self.times = rest.parse().map_err(|_| "a number expected")?,
            "restart" | "kill" => {
                self.connections.clear();
                let pause = rest.split_whitespace().last().and_then(|pause| pause.parse::<f64>().ok());
                self.rig.now += (pause.filter(|pause| *pause > 0.0).unwrap_or(0.0) * SECOND as f64) as u64;
                self.rig.restart();
            }
            _ => return self.connection_line(word, rest, following),
        }
        Ok(())
    }

    fn connection_line<'a>(
        &mut self,
        word: &str,
        rest: &str,
        mut following: impl Iterator<Item = &'a str>,
    ) -> Result<(), Failure> {
        let end = word
            .find(|letter: char| !letter.is_ascii_uppercase() && !letter.is_ascii_digit() && letter != '_');
        let (name, sign) = word.split_at(end.unwrap_or(word.len()));
        match sign {
            ">" => {
                if let Some(seconds) = self.until.take() {
                    let wanted = following.find(|line| is_reply(line, name)).ok_or("no reply line")?;
                    return self.repeat(name, rest, wanted, seconds);
                }
                self.send(name, "\0", rest)
            }
            "<" | "!" => self.check(name, "\0", sign, rest),
            "~" => Ok(()),
            "" => self.connection_command(name, rest),
            _ if sign.starts_with(">>") => {
                for _ in 0..std::mem::replace(&mut self.times, 1) {
                    self.send(name, &sign[2..], rest)?;
                }
                Ok(())
            }
            _ if sign.starts_with("~~") => Ok(()),
            _ if sign.starts_with("<<") || sign.starts_with("!!") => {
                self.check(name, &sign[2..], &sign[..1], rest)
            }
            _ => Err("a line that cannot be read".into()),
        }
    }

    fn connection_command(&mut self, name: &str, rest: &str) -> Result<(), Failure> {
        let (command, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match command {
            "cork" | "uncork" => {}
            "close" => {
                if let Some(connection) = self.connections.remove(name) {
                    self.rig.disconnect(connection.number);
                }
                if rest != "now" {
                    self.rig.advance(150_000);
                }
            }
            "pending" => {
                self.rig.advance(50_000);
                self.collect(name);
                let connection = self.connections.get(name).ok_or("no such connection")?;
                let wanted: Vec<_> = rest.split_whitespace().collect();
                let pending = |sent: &Sent| matches!(sent.reply, Reply::Parked(_));
                let ok = if wanted.is_empty() {
                    connection.sent.iter().find(|sent| sent.tag.is_empty()).is_some_and(pending)
                } else {
                    wanted
                        .iter()
                        .all(|tag| connection.sent.iter().find(|s| s.tag == *tag).is_some_and(pending))
                };
                return if ok { Ok(()) } else { Err("there is a reply already".into()) };
            }
            "arrived" => {
                let connection = self.connections.get(name).ok_or("no such connection")?;
                let wanted: Vec<_> = rest.split_whitespace().map(str::to_owned).collect();
                let seen: Vec<_> =
                    connection.arrived.iter().filter(|tag| wanted.contains(tag)).cloned().collect();
                return if seen == wanted { Ok(()) } else { Err(format!("the order was {seen:?}")) };
            }
            "rest" => loop {
                let connection = self.connections.get(name).ok_or("no such connection")?;
                if !connection.sent.iter().any(|sent| sent.tag.is_empty()) {
                    break;
                }
                self.check(name, "", "<", rest)?;
            },
            _ => return Err("an unknown command".into()),
        }
        Ok(())
    }

    fn connection(&mut self, name: &str) -> &mut Connection {
        let last = &mut self.last_connection;
        let users = &mut self.rig.users;
        self.connections.entry(name.into()).or_insert_with(|| {
            *last += 1;
            users.insert(*last, user::GUEST);
            Connection { number: *last, sent: VecDeque::new(), arrived: Vec::new() }
        })
    }

    fn send(&mut self, name: &str, tag: &str, request: &str) -> Result<(), Failure> {
        let number = self.connection(name).number;
        let at = self.rig.now;
        let (reply, wrapped) = self.request(number, request)?;
        self.collect(name);
        let connection = self.connection(name);
        if !matches!(reply, Reply::Parked(_)) {
            connection.arrived.push(tag.into());
        }
        connection.sent.push_back(Sent { tag: tag.into(), reply, at, wrapped });
        Ok(())
    }

    /// Moves arrived answers to the requests that they belong to.
    fn collect(&mut self, name: &str) {
        for token in self.rig.arrived() {
            let connection = self.connections.get_mut(name).expect("an open connection");
            let sent = connection.sent.iter_mut().find(|sent| sent.reply == Reply::Parked(token));
            if let Some(sent) = sent
                && let Some(reply) = self.rig.answer(token)
            {
                sent.reply = reply;
                connection.arrived.push(sent.tag.clone());
            }
        }
    }

    fn check(&mut self, name: &str, tag: &str, sign: &str, want: &str) -> Result<(), Failure> {
        let deadline = self.rig.now + 12 * SECOND;
        loop {
            self.collect(name);
            let connection = self.connections.get(name).ok_or("no such connection")?;
            let position =
                connection.sent.iter().position(|sent| sent.tag == tag).ok_or("nothing was sent")?;
            if !matches!(connection.sent[position].reply, Reply::Parked(_)) {
                break;
            }
            let next = self
                .rig
                .queue
                .next_deadline()
                .into_iter()
                .chain(self.rig.queue.next_work())
                .min()
                .filter(|next| *next <= deadline);
            let next = next.ok_or("no reply within 12 s")?;
            self.rig.advance(next.saturating_sub(self.rig.now));
        }
        let now = self.rig.now;
        let connection = self.connections.get_mut(name).ok_or("no such connection")?;
        let position = connection.sent.iter().position(|sent| sent.tag == tag).ok_or("nothing was sent")?;
        let sent = connection.sent.remove(position).ok_or("nothing was sent")?;
        let limits = std::mem::take(&mut self.limits);
        let since = |mark: &Option<String>| {
            let at = mark.as_ref().and_then(|mark| self.marks.get(mark)).copied().unwrap_or(sent.at);
            (now - at) as f64 / SECOND as f64
        };
        if let Some((seconds, mark)) = &limits.after
            && since(mark) < *seconds
        {
            return Err(format!("too early, after {} s", since(mark)));
        }
        if let Some((seconds, mark)) = &limits.within
            && since(mark) > *seconds
        {
            return Err(format!("too late, after {} s", since(mark)));
        }
        self.compare(&sent.reply, sent.wrapped, sign, want)
    }

    fn repeat(&mut self, name: &str, request: &str, wanted: &str, seconds: f64) -> Result<(), Failure> {
        let end = self.rig.now + (seconds * SECOND as f64) as u64;
        let (word, want) = wanted.split_once(' ').unwrap_or((wanted, ""));
        let sign = &word[name.len()..];
        loop {
            let number = self.connection(name).number;
            let at = self.rig.now;
            let (reply, wrapped) = self.request(number, request)?;
            let compared = self.compare(&reply, wrapped, sign, want.trim());
            if compared.is_ok() || self.rig.now >= end {
                let connection = self.connection(name);
                connection.sent.push_back(Sent { tag: "\0".into(), reply, at, wrapped });
                return compared;
            }
            self.rig.advance(50_000);
        }
    }

    fn compare(&mut self, reply: &Reply, wrapped: bool, sign: &str, want: &str) -> Result<(), Failure> {
        match (sign, reply) {
            ("<", Reply::Values(_)) if want.starts_with("ok") || want.starts_with("done") => Ok(()),
            ("<", Reply::Values(values)) => {
                let (want, _) = json(want)?;
                if want == serde_json::json!({}) && values.is_empty() {
                    return Ok(());
                }
                let values = if wrapped { wrap(values) } else { Value::from(values.clone()) };
                let mut captured = self.captured.clone();
                if (Matcher { now: self.rig.now, captured: &mut captured }).matches(&want, &values) {
                    self.captured = captured;
                    Ok(())
                } else {
                    Err(format!("got {values}, wanted {want}"))
                }
            }
            ("!", Reply::Error(_) | Reply::Undefined) => compare_error(reply, want),
            _ => Err(format!("got {reply:?}, wanted {want}")),
        }
    }

    fn request(&mut self, connection: u64, text: &str) -> Result<(Reply, bool), Failure> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let reply = match word {
            "PING" => Reply::Values(Vec::new()),
            "AUTH" => {
                let name = rest.split_whitespace().next().unwrap_or("");
                let id = self.rig.store.user_by_name(name).ok_or("no such user")?.id;
                self.rig.users.insert(connection, id);
                Reply::Values(Vec::new())
            }
            "SELECT" => self.select(connection, rest)?,
            "INSERT" | "REPLACE" | "DELETE" | "UPDATE" | "UPSERT" => self.change(word, rest)?,
            "CALL_16" => return Ok((self.call(connection, rest)?, true)),
            "CALL" => self.call(connection, rest)?,
            _ => self.call(connection, text)?,
        };
        Ok((reply, false))
    }

    fn call(&mut self, connection: u64, text: &str) -> Result<Reply, Failure> {
        let (name, rest) = if text.starts_with('"') {
            let (name, rest) = json(text)?;
            (name.as_str().unwrap_or("").to_owned(), rest)
        } else {
            let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
            (name.to_owned(), rest)
        };
        let rest = rest.trim();
        let arguments =
            if rest.is_empty() || rest.starts_with('#') { Json::Array(Vec::new()) } else { json(rest)?.0 };
        let arguments = self.value(&arguments)?;
        let access =
            self.rig.store.check_access(self.rig.user(connection), Object::Function(&name), Access::EXECUTE);
        if let Err(error) = access {
            return Ok(Reply::Error(Error::Store(error)));
        }
        if name == "box.cfg" {
            let read_only = arguments_flag(&arguments);
            let now = self.rig.now;
            self.rig.queue.set_read_only(&mut self.rig.store, read_only, now).map_err(|e| e.to_string())?;
            self.rig.collect_committed();
            return Ok(Reply::Values(Vec::new()));
        }
        Ok(self.rig.call_with(connection, &name, &arguments.encode()))
    }

    fn select(&mut self, connection: u64, text: &str) -> Result<Reply, Failure> {
        let mut words = text.splitn(6, ' ');
        let mut word = || words.next().unwrap_or("");
        let (space, index, iterator) = (word(), word(), word());
        let (limit, offset) = (number(word())? as u64, number(word())? as u64);
        let key = word().trim();
        let key = if key.is_empty() { Value::Array(Vec::new()) } else { self.value(&json(key)?.0)? };
        let (space, index) = match self.index(space, index) {
            Ok(found) => found,
            Err(error) => return Ok(Reply::Error(error)),
        };
        let names = ["EQ", "REQ", "ALL", "LT", "LE", "GE", "GT"];
        let iterator = names.iter().position(|name| *name == iterator).ok_or("an unknown iterator")?;
        let iterator = IteratorType::try_from(iterator as u32).map_err(|error| error.to_string())?;
        let mut tuples = Vec::new();
        let asking = self.rig.user(connection);
        self.rig.queue.read(&mut self.rig.store, space, 0, 0, self.rig.now).expect("the space is there");
        let selected = self.rig.store.select(
            asking,
            space,
            index,
            iterator,
            &key.encode(),
            offset,
            limit,
            &mut |tuple| tuples.push(Value::decode(tuple).expect("a tuple")),
        );
        Ok(match selected {
            Ok(()) => Reply::Values(tuples),
            Err(error) => Reply::Error(error.into()),
        })
    }

    fn index(&self, space: &str, index: &str) -> Result<(u32, u32), Error> {
        let id = space.parse().unwrap_or_else(|_| self.rig.space_id(space));
        let found = self.rig.store.space(id)?;
        let index =
            index.parse().ok().or_else(|| found.index_by_name(index).map(lycosa_store::SpaceIndex::id));
        Ok((id, index.unwrap_or(u32::MAX)))
    }

    fn change(&mut self, word: &str, text: &str) -> Result<Reply, Failure> {
        let (space, rest) = text.split_once(' ').ok_or("a space expected")?;
        let indexed = matches!(word, "DELETE" | "UPDATE");
        let (index, rest) =
            if indexed { rest.split_once(' ').ok_or("an index expected")? } else { ("0", rest) };
        let (space, index) = self.index(space, index).map_err(|error| error.to_string())?;
        let (first, rest) = json(rest.trim())?;
        let first = self.value(&first)?.encode();
        let second =
            if rest.trim().is_empty() { Vec::new() } else { self.value(&json(rest.trim())?.0)?.encode() };
        let statement = match word {
            "INSERT" => Statement::Insert { space, tuple: &first },
            "REPLACE" => Statement::Replace { space, tuple: &first },
            "DELETE" => Statement::Delete { space, index, key: &first },
            "UPDATE" => Statement::Update { space, index, key: &first, operations: &second, base: 0 },
            _ => Statement::Upsert { space, tuple: &first, operations: &second, base: 0 },
        };
        Ok(match self.rig.execute(&statement) {
            Ok(()) => Reply::Values(Vec::new()),
            Err(error) => Reply::Error(error),
        })
    }

    /// A value of a request.
    fn value(&self, json: &Json) -> Result<Value, Failure> {
        Ok(match json {
            Json::Null => Value::Nil,
            Json::Bool(value) => Value::from(*value),
            Json::Number(number) => number
                .as_u64()
                .map(Value::from)
                .or_else(|| number.as_i64().map(Value::from))
                .or_else(|| number.as_f64().map(Value::from))
                .ok_or("a number out of range")?,
            Json::String(text) => Value::str(text),
            Json::Array(values) => {
                Value::Array(values.iter().map(|value| self.value(value)).collect::<Result<_, _>>()?)
            }
            Json::Object(map) => match map.iter().next() {
                Some((key, value)) if key.starts_with('$') => self.special(key, value, json)?,
                _ => Value::Map(
                    map.iter()
                        .map(|(key, value)| Ok((Value::str(key), self.value(value)?)))
                        .collect::<Result<_, Failure>>()?,
                ),
            },
        })
    }

    fn special(&self, key: &str, value: &Json, whole: &Json) -> Result<Value, Failure> {
        let text = || value.as_str().ok_or("text expected");
        let captured =
            |name: &str| self.captured.get(name).cloned().ok_or(format!("{name} was not captured"));
        Ok(match key {
            "$bin" => Value::Bin(unhex(text()?)),
            "$str" => Value::Str(unhex(text()?)),
            "$let" => captured(text()?)?,
            "$uuid16" => match (captured(text()?)?, whole.get("as")) {
                (Value::Str(bytes), Some(_)) => Value::Bin(bytes),
                (other, _) => other,
            },
            "$repeat" => {
                let count = value[1].as_u64().ok_or("a count expected")?;
                Value::str(value[0].as_str().ok_or("text expected")?.repeat(count as usize))
            }
            "$range" => {
                let bound = |place: usize| value[place].as_u64().ok_or("a bound expected");
                Value::array(bound(0)?..bound(1)?)
            }
            "$map" => Value::Map(
                value
                    .as_array()
                    .ok_or("pairs expected")?
                    .iter()
                    .map(|pair| Ok((self.value(&pair[0])?, self.value(&pair[1])?)))
                    .collect::<Result<_, Failure>>()?,
            ),
            _ => return Err(format!("{key} in a request")),
        })
    }
}

fn arguments_flag(arguments: &Value) -> bool {
    let options = arguments.as_array().and_then(<[Value]>::first);
    options.and_then(|options| options.get("read_only")).and_then(Value::as_bool).unwrap_or(false)
}

/// CALL_16 wraps a value that is no tuple in one.
fn wrap(values: &[Value]) -> Value {
    Value::Array(
        values
            .iter()
            .map(|value| match value {
                Value::Array(_) => value.clone(),
                other => Value::Array(vec![other.clone()]),
            })
            .collect(),
    )
}

fn is_reply(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.starts_with("< ") || rest.starts_with("! "))
}

fn number(text: &str) -> Result<f64, Failure> {
    text.split_whitespace()
        .next()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("{text}: no number"))
}

fn limit(text: &str) -> Result<(f64, Option<String>), Failure> {
    Ok((
        number(text)?,
        text.split_whitespace().nth(1).filter(|word| !word.starts_with('#')).map(str::to_owned),
    ))
}

/// `CODE [/REGEX/]`: the kind of the error, and its text.
fn compare_error(reply: &Reply, want: &str) -> Result<(), Failure> {
    let (code, pattern) = want.split_once(' ').unwrap_or((want, ""));
    let pattern = pattern.trim().trim_start_matches('/');
    let pattern = pattern.rfind('/').map_or("", |end| &pattern[..end]);
    let ok = match reply {
        Reply::Undefined => code == "33",
        Reply::Error(error) => (code == "32") == error.is_lua() && search(pattern, &error.to_string()),
        _ => false,
    };
    if ok { Ok(()) } else { Err(format!("got {reply:?}, wanted {want}")) }
}
