//! Requests as the scenarios write them, and their bodies.

use std::time::Duration;

use serde_json::Value as Json;

use super::parse::{json, only_comment, word};
use super::want::{Captures, to_send};
use crate::connection::{self, Connection, key, kind};
use crate::server::ADMIN_PASSWORD;
use crate::value::{self, Value};

/// A request before captures are filled in and names are looked up.
#[derive(Debug)]
pub(crate) enum Request {
    Call { kind: u32, name: String, arguments: Json },
    Eval { program: String, arguments: Json },
    Execute { statement: String, bindings: Json },
    Ping,
    Auth { user: String, password: String },
    Select { space: Name, index: Name, iterator: u32, limit: Json, offset: Json, key: Json },
    Insert { kind: u32, space: Name, tuple: Json },
    Delete { space: Name, index: Name, key: Json },
    Update { space: Name, index: Name, key: Json, operations: Json },
    Upsert { space: Name, tuple: Json, operations: Json },
    Raw { kind: u32, body: Vec<u8> },
}

/// A space or an index: its number, or a name that is looked up when the request is sent.
#[derive(Debug)]
pub(crate) enum Name {
    Id(u32),
    Text(String),
}

const VSPACE: u32 = 281;
const VINDEX: u32 = 289;
/// Of both views: the index by which names are looked up.
const BY_NAME: u32 = 2;
const ITERATORS: [&str; 7] = ["EQ", "REQ", "ALL", "LT", "LE", "GE", "GT"];
const LOOKUP_LIMIT: Duration = Duration::from_secs(120);

impl Request {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (first, rest) = word(text);
        let mut items = Items { rest };
        let request = match first {
            "CALL" | "CALL_16" => {
                let kind = if first == "CALL" { kind::CALL } else { kind::CALL_16 };
                Request::Call { kind, name: items.text()?, arguments: items.optional()? }
            }
            "EVAL" => Request::Eval { program: items.text()?, arguments: items.optional()? },
            "EXECUTE" => Request::Execute { statement: items.text()?, bindings: items.optional()? },
            "PING" => Request::Ping,
            "AUTH" => {
                let user = items.text()?;
                let password = match items.end() {
                    false => items.text()?,
                    true if user == "admin" => ADMIN_PASSWORD.to_owned(),
                    true => String::new(),
                };
                Request::Auth { user, password }
            }
            "SELECT" => Request::Select {
                space: items.name()?,
                index: items.name()?,
                iterator: {
                    let name = items.text()?;
                    let at = ITERATORS.iter().position(|known| *known == name);
                    at.ok_or_else(|| format!("unknown iterator {name}"))? as u32
                },
                limit: items.json()?,
                offset: items.json()?,
                key: items.optional()?,
            },
            "INSERT" | "REPLACE" => {
                let kind = if first == "INSERT" { kind::INSERT } else { kind::REPLACE };
                Request::Insert { kind, space: items.name()?, tuple: items.json()? }
            }
            "DELETE" => Request::Delete { space: items.name()?, index: items.name()?, key: items.json()? },
            "UPDATE" => Request::Update {
                space: items.name()?,
                index: items.name()?,
                key: items.json()?,
                operations: items.json()?,
            },
            "UPSERT" => {
                Request::Upsert { space: items.name()?, tuple: items.json()?, operations: items.json()? }
            }
            "RAW" => {
                let code = items.text()?;
                let kind = code.parse().map_err(|_| format!("not a request code: {code}"))?;
                let body = value::unhex(items.rest.split('#').next().unwrap_or_default())?;
                return Ok(Request::Raw { kind, body });
            }
            _ => {
                items.rest = text;
                Request::Call { kind: kind::CALL, name: items.text()?, arguments: items.optional()? }
            }
        };
        only_comment(items.rest)?;
        Ok(request)
    }

    /// What a `setup:` line other than `queue.cfg` asks for, as calls of `box.schema`.
    pub(crate) fn of_setup(words: &[&str]) -> Result<Vec<Self>, String> {
        let call = |name: &str, arguments: Json| Request::Call {
            kind: kind::CALL,
            name: name.to_owned(),
            arguments,
        };
        Ok(vec![match words {
            ["user", name] => call("box.schema.user.create", serde_json::json!([name])),
            ["user", name, password] => {
                call("box.schema.user.create", serde_json::json!([name, {"password": password}]))
            }
            ["role", name] => call("box.schema.role.create", serde_json::json!([name])),
            [grant @ ("grant" | "grant-role"), name, privileges, object @ ..] if !object.is_empty() => {
                let function =
                    if *grant == "grant" { "box.schema.user.grant" } else { "box.schema.role.grant" };
                let mut arguments = vec![Json::from(*name), Json::from(*privileges)];
                arguments.extend(object.iter().map(|word| Json::from(*word)));
                call(function, Json::Array(arguments))
            }
            ["func", name] => call("box.schema.func.create", serde_json::json!([name])),
            ["func", name, "setuid"] => {
                call("box.schema.func.create", serde_json::json!([name, {"setuid": true}]))
            }
            other => return Err(format!("unknown setup: {}", other.join(" "))),
        }])
    }

    /// The request's code and body for this connection; may ask the server for the numbers of names.
    #[expect(clippy::too_many_lines, reason = "one match over all requests")]
    pub(crate) fn encode(
        &self,
        connection: &mut Connection,
        captures: &Captures,
    ) -> Result<(u32, Vec<u8>), String> {
        let given = |json: &Json| to_send(json, captures);
        let number = |n: u32| Value::Int(i128::from(n));
        let (kind, body) = match self {
            Request::Call { kind, name, arguments } => (
                *kind,
                connection::body([(key::FUNCTION, Value::str(name)), (key::TUPLE, given(arguments)?)]),
            ),
            Request::Eval { program, arguments } => (
                kind::EVAL,
                connection::body([(key::EXPRESSION, Value::str(program)), (key::TUPLE, given(arguments)?)]),
            ),
            Request::Execute { statement, bindings } => (
                kind::EXECUTE,
                connection::body([(key::SQL_TEXT, Value::str(statement)), (key::SQL_BIND, given(bindings)?)]),
            ),
            Request::Ping => (kind::PING, connection::body([])),
            Request::Auth { user, password } => {
                let greeting = connection.greeting(LOOKUP_LIMIT)?;
                (kind::AUTH, connection::auth(&greeting, user, password)?)
            }
            Request::Select { space, index, iterator, limit, offset, key: from } => {
                let space = space.id(connection, VSPACE, Vec::new())?;
                let index = index.id(connection, VINDEX, vec![number(space)])?;
                let body = connection::body([
                    (key::SPACE, number(space)),
                    (key::INDEX, number(index)),
                    (key::LIMIT, given(limit)?),
                    (key::OFFSET, given(offset)?),
                    (key::ITERATOR, number(*iterator)),
                    (key::KEY, given(from)?),
                ]);
                (kind::SELECT, body)
            }
            Request::Insert { kind, space, tuple } => {
                let space = space.id(connection, VSPACE, Vec::new())?;
                (*kind, connection::body([(key::SPACE, number(space)), (key::TUPLE, given(tuple)?)]))
            }
            Request::Delete { space, index, key: of } => {
                let space = space.id(connection, VSPACE, Vec::new())?;
                let index = index.id(connection, VINDEX, vec![number(space)])?;
                let body = connection::body([
                    (key::SPACE, number(space)),
                    (key::INDEX, number(index)),
                    (key::KEY, given(of)?),
                ]);
                (kind::DELETE, body)
            }
            Request::Update { space, index, key: of, operations } => {
                let space = space.id(connection, VSPACE, Vec::new())?;
                let index = index.id(connection, VINDEX, vec![number(space)])?;
                let body = connection::body([
                    (key::SPACE, number(space)),
                    (key::INDEX, number(index)),
                    (key::INDEX_BASE, number(0)),
                    (key::KEY, given(of)?),
                    (key::TUPLE, given(operations)?),
                ]);
                (kind::UPDATE, body)
            }
            Request::Upsert { space, tuple, operations } => {
                let space = space.id(connection, VSPACE, Vec::new())?;
                let body = connection::body([
                    (key::SPACE, number(space)),
                    (key::INDEX_BASE, number(0)),
                    (key::TUPLE, given(tuple)?),
                    (key::OPERATIONS, given(operations)?),
                ]);
                (kind::UPSERT, body)
            }
            Request::Raw { kind, body } => return Ok((*kind, body.clone())),
        };
        Ok((kind, value::encode(&body)))
    }
}

impl Name {
    /// The number; a name is looked up in a view by the key `before ++ [name]`.
    fn id(&self, connection: &mut Connection, view: u32, before: Vec<Value>) -> Result<u32, String> {
        let name = match self {
            Name::Id(id) => return Ok(*id),
            Name::Text(name) => name,
        };
        if connection.is_corked() {
            return Err(format!("`{name}` cannot be looked up on a corked connection"));
        }
        let of_index = usize::from(view == VINDEX);
        let mut wanted = before;
        wanted.push(Value::str(name));
        let body = connection::body([
            (key::SPACE, Value::Int(i128::from(view))),
            (key::INDEX, Value::Int(i128::from(BY_NAME))),
            (key::LIMIT, Value::Int(1)),
            (key::KEY, Value::Array(wanted)),
        ]);
        let reply = connection.ask(kind::SELECT, &body, LOOKUP_LIMIT)?;
        let data = reply.data();
        let row = data.as_array().and_then(|rows| rows.first()).and_then(Value::as_array);
        let id = row.and_then(|row| row.get(of_index)).and_then(Value::as_int);
        id.map(|id| id as u32)
            .ok_or_else(|| format!("there is no `{name}` (looked up in {view}): {}", reply.describe()))
    }
}

/// The parts of a request line, one after the other.
struct Items<'a> {
    rest: &'a str,
}

impl Items<'_> {
    fn end(&self) -> bool {
        self.rest.is_empty() || self.rest.starts_with('#')
    }

    /// A word, or a JSON string where it has blanks.
    fn text(&mut self) -> Result<String, String> {
        if self.rest.starts_with('"') {
            let (text, rest) = json(self.rest)?;
            self.rest = rest;
            return Ok(text.as_str().expect("what begins with a quote is a string").to_owned());
        }
        let (first, rest) = word(self.rest);
        if first.is_empty() {
            return Err("something is missing at the end".into());
        }
        self.rest = rest;
        Ok(first.to_owned())
    }

    fn name(&mut self) -> Result<Name, String> {
        let name = self.text()?;
        Ok(name.parse().map_or(Name::Text(name), Name::Id))
    }

    fn json(&mut self) -> Result<Json, String> {
        let (value, rest) = json(self.rest)?;
        self.rest = rest;
        Ok(value)
    }

    /// JSON, or `[]` where there is none.
    fn optional(&mut self) -> Result<Json, String> {
        if self.end() { Ok(Json::Array(Vec::new())) } else { self.json() }
    }
}
