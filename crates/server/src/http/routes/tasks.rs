//! Routes of tasks: put, peek, delete.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::routing::{delete, get, post};
use lycosa_instance::Once;
use lycosa_queue::MAX_BATCH;
use lycosa_tuple::mp::{self, Reader};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value as Json, json};

use super::{
    Args, Client, Named, OPERATOR, Params, Reply, Route, VIEWER, answer, check_seconds, content_type, given,
    malformed, media_type, method, silent, task_id, unexpected,
};
use crate::http::bridge::Repetition;
use crate::http::problem::{Kind, Problem, reader_text};
use crate::http::{body, json};

pub(super) const ROUTES: &[Route] = &[
    Route::new("post", "/v1/tubes/{tube}/tasks", "putTasks", OPERATOR, "")
        .summary("Puts a task, or several in one transaction")
        .query(PUT_QUERY)
        .headers(&[
            ("Idempotency-Key", "a repetition with the same key puts nothing, and has the first answer"),
            ("traceparent", "kept with each task of the request that names none itself"),
            ("tracestate", "as traceparent"),
        ])
        .bodies(&[
            ("application/json", "NewTaskOrTasks"),
            ("application/x-ndjson", "NewTaskLines"),
            ("text/plain", "Text"),
            ("application/octet-stream", "Bytes"),
        ])
        .answers(&[(201, "PutTaskOrTasks")])
        .attach(|| post(put)),
    Route::new("get", "/v1/tubes/{tube}/tasks/{id}", "peekTask", VIEWER, "Task")
        .summary("A task in any state, without taking it")
        .query(&[("payload", "string", "`msgpack`: the payload as payload_msgpack, as it is stored")])
        .attach(|| get(peek)),
    Route::new("delete", "/v1/tubes/{tube}/tasks/{id}", "deleteTask", OPERATOR, "Task")
        .summary("Deletes a task in any state")
        .attach(|| delete(remove)),
];

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest key, in bytes.
const MAX_KEY: usize = 255;

/// Fields of a request that its tasks keep as headers: W3C Trace Context has these two.
const TRACE_FIELDS: [&str; 2] = ["traceparent", "tracestate"];

/// The longest value of such a field, in bytes. That document lets a longer one be dropped.
const MAX_TRACE_FIELD: usize = 512;

const PUT_QUERY: &[(&str, &str, &str)] = &[
    ("delay", "number", "seconds before the task is ready; of a text or bytes body, as the others"),
    ("ttl", "number", "seconds that the task lives"),
    ("ttr", "number", "seconds that the task may be held"),
    ("pri", "integer", "priority, lower first"),
    ("utube", "string", "the sub-queue"),
];

/// Options of a put, as the queue names them.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PutParams {
    delay: Option<f64>,
    ttl: Option<f64>,
    ttr: Option<f64>,
    pri: Option<u64>,
    utube: Option<String>,
}

/// A task to put. Exactly one of the payloads is given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTask {
    #[serde(default, deserialize_with = "present")]
    payload: Option<Json>,
    payload_base64: Option<String>,
    payload_msgpack: Option<String>,
    delay: Option<f64>,
    ttl: Option<f64>,
    ttr: Option<f64>,
    pri: Option<u64>,
    utube: Option<String>,
    #[serde(default)]
    headers: Map<String, Json>,
}

/// The tasks of a body in JSON: an object, or an array of such. A member is given once.
struct NewTasks {
    list: Vec<NewTask>,
    is_one: bool,
}

impl<'de> Deserialize<'de> for NewTasks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TasksVisitor)
    }
}

struct TasksVisitor;

impl<'de> Visitor<'de> for TasksVisitor {
    type Value = NewTasks;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a task, which is an object, or an array of tasks")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<NewTasks, A::Error> {
        TaskVisitor.visit_map(members).map(|OneTask(task)| NewTasks { list: vec![task], is_one: true })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<NewTasks, A::Error> {
        let mut list = Vec::new();
        loop {
            let place = list.len() + 1;
            match items.next_element().map_err(|error| A::Error::custom(format!("#{place}: {error}")))? {
                None => return Ok(NewTasks { list, is_one: false }),
                Some(OneTask(task)) => list.push(task),
            }
        }
    }
}

/// A task, which is an object.
struct OneTask(NewTask);

impl<'de> Deserialize<'de> for OneTask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TaskVisitor)
    }
}

struct TaskVisitor;

impl<'de> Visitor<'de> for TaskVisitor {
    type Value = OneTask;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a task, which is an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<OneTask, A::Error> {
        NewTask::deserialize(MapAccessDeserializer::new(members)).map(OneTask)
    }
}

/// Refuses numbers of which the payload would keep the first digits only.
fn check_numbers(place: &str, text: &[u8]) -> Result<(), Problem> {
    let Some(number) = json::wide_integer(text) else { return Ok(()) };
    let number: String = number.chars().take(40).collect();
    Err(malformed(format!(
        "{place}{number} has more than 64 bits: send it as text, or the payload as payload_msgpack"
    )))
}

/// Reads a member that is present, null included.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// A payload and its options, each one MessagePack value.
struct Encoded {
    payload: Vec<u8>,
    options: Vec<u8>,
}

/// What a request says of its trace. A field that is no short text is left out: its put is not at fault.
fn trace(fields: &HeaderMap) -> Map<String, Json> {
    let text = |name: &str| fields.get(name)?.to_str().ok().filter(|text| text.len() <= MAX_TRACE_FIELD);
    let named = TRACE_FIELDS.into_iter().filter_map(|name| Some((name.to_owned(), text(name)?.into())));
    named.collect()
}

impl PutParams {
    fn encode(&self, place: &str, headers: Map<String, Json>) -> Result<Vec<u8>, Problem> {
        for (name, seconds) in [("delay", self.delay), ("ttl", self.ttl), ("ttr", self.ttr)] {
            check_seconds(place, name, seconds)?;
        }
        let mut options = given(self);
        if !headers.is_empty() {
            options.insert("headers".to_owned(), headers.into());
        }
        let mut encoded = Vec::new();
        json::to_msgpack(&Json::Object(options), &mut encoded);
        Ok(encoded)
    }
}

impl NewTask {
    /// Encodes the task. `trace` is what the request says of its trace, for a task without a `traceparent` of its own: the two
    /// fields belong together.
    fn encode(self, place: &str, trace: &Map<String, Json>) -> Result<Encoded, Problem> {
        let wrong = |text: &str| Err(malformed(format!("{place}{text}")));
        let mut payload = Vec::new();
        match (self.payload, self.payload_base64, self.payload_msgpack) {
            (Some(value), None, None) => json::to_msgpack(&value, &mut payload),
            (None, Some(text), None) => match json::base64(&text) {
                Some(bytes) => mp::write_bin(&mut payload, &bytes),
                None => return wrong("payload_base64 is no base64"),
            },
            (None, None, Some(text)) => match json::base64(&text) {
                Some(bytes) if mp::check_values(&bytes, 1).is_ok() => payload = bytes,
                _ => return wrong("payload_msgpack is no base64 of one MessagePack value"),
            },
            _ => return wrong("a task has one of payload, payload_base64 and payload_msgpack"),
        }
        let Self { delay, ttl, ttr, pri, utube, mut headers, .. } = self;
        if !headers.contains_key(TRACE_FIELDS[0]) {
            headers.extend(trace.clone());
        }
        let options = PutParams { delay, ttl, ttr, pri, utube }.encode(place, headers)?;
        Ok(Encoded { payload, options })
    }
}

/// Reads the body of a put by its type: the tasks, and whether it is a task that is no item of a list.
fn tasks(
    fields: &HeaderMap,
    body: &[u8],
    params: &PutParams,
    has_params: bool,
) -> Result<(Vec<Encoded>, bool), Problem> {
    let content = content_type(fields);
    let trace = trace(fields);
    let media = media_type(content).to_ascii_lowercase();
    let is_json = matches!(&*media, "application/json" | "application/x-ndjson" | "application/jsonl");
    if has_params && is_json {
        return Err(malformed("options of a JSON task stand in the task, not in the query"));
    }
    match &*media {
        "application/json" => {
            let read = serde_json::from_slice(body);
            let NewTasks { list, is_one } =
                read.map_err(|error| malformed(reader_text(&error.to_string())))?;
            check_numbers("", body)?;
            let place = |at: usize| if is_one { String::new() } else { format!("#{}: ", at + 1) };
            let encode = |(at, task): (usize, NewTask)| task.encode(&place(at), &trace);
            Ok((list.into_iter().enumerate().map(encode).collect::<Result<_, _>>()?, is_one))
        }
        "application/x-ndjson" | "application/jsonl" => {
            let lines = body.split(|byte| *byte == b'\n').enumerate();
            let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
            let tasks: Result<_, _> = lines
                .map(|(number, line)| {
                    let place = format!("line {}: ", number + 1);
                    let OneTask(task) = serde_json::from_slice(line).map_err(|error| {
                        let text = reader_text(&error.to_string()).replace(" at line 1 column", " at column");
                        malformed(format!("{place}{text}"))
                    })?;
                    check_numbers(&place, line)?;
                    task.encode(&place, &trace)
                })
                .collect();
            Ok((tasks?, false))
        }
        "text/plain" | "application/octet-stream" => {
            let mut payload = Vec::with_capacity(body.len() + 5);
            if media != "text/plain" {
                mp::write_bin(&mut payload, body);
            } else if str::from_utf8(body).is_ok() {
                mp::write_str(&mut payload, body);
            } else {
                return Err(malformed("text is not UTF-8: send bytes as application/octet-stream"));
            }
            Ok((vec![Encoded { payload, options: params.encode("", trace)? }], true))
        }
        _ => Err(Problem::new(
            Kind::WrongType,
            format!(
                "Content-Type is {content:?}: use application/json, application/x-ndjson, text/plain or \
                 application/octet-stream"
            ),
        )),
    }
}

/// What a repetition of a put does: nothing where the request has a key.
fn repetition(headers: &HeaderMap, request: [&[u8]; 3], window: Duration) -> Result<Repetition, Problem> {
    let mut named = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = named.next() else { return Ok(Repetition::ActsAgain) };
    let key = key.to_str().ok().filter(|key| (1..=MAX_KEY).contains(&key.len()) && named.next().is_none());
    let wrong = || format!("a request has one Idempotency-Key of 1 to {MAX_KEY} visible ASCII characters");
    let key = key.ok_or_else(|| malformed(wrong()))?.to_owned();
    let window = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
    Ok(Repetition::Once(Once { key, fingerprint: Once::fingerprint(&request), window }))
}

async fn put(
    client: Client,
    Named(tube): Named<String>,
    Params(params): Params<PutParams>,
    uri: axum::http::Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    let state = &client.state;
    let body = body::read(state, &headers, body).await?;
    let content = content_type(&headers);
    let has_params = uri.query().is_some_and(|query| !query.is_empty());
    let (tasks, is_one) = tasks(&headers, &body, &params, has_params)?;
    let count = tasks.len();
    if count > MAX_BATCH as usize {
        return Err(malformed(format!(
            "{count} tasks are to be put: put at most {MAX_BATCH} in one request"
        )));
    }
    let (name, args) = match tasks.as_slice() {
        [task] if is_one => ("put", Args::new().raw(&task.payload).raw(&task.options)),
        tasks => {
            let (mut payloads, mut options) = (Vec::new(), Vec::new());
            mp::write_array(&mut payloads, json::count(count));
            mp::write_array(&mut options, json::count(count));
            for task in tasks {
                payloads.extend_from_slice(&task.payload);
                options.extend_from_slice(&task.options);
            }
            ("put_many", Args::new().raw(&payloads).raw(&options))
        }
    };
    let function = method(&tube, name);
    let (path, window) = (uri.to_string(), state.config.http_idempotency_window);
    let repetition = repetition(&headers, [path.as_bytes(), content.as_bytes(), &body], window)?;
    let values = client.call_with(&function, args, (repetition, None)).await?;
    let mut reader = Reader::new(&values.bytes);
    if reader.nil().is_ok() || values.count == 0 {
        return Err(silent(&client).await?.unwrap_or_else(|| {
            Problem::new(Kind::Full, format!("the tube {tube:?} takes no task now: it is full"))
        }));
    }
    let shown = if is_one {
        brief(&mut reader)
    } else {
        let count = reader.array().map_err(|_| unexpected(&function))?;
        let tasks: Option<Vec<Json>> = (0..count).map(|_| brief(&mut reader)).collect();
        tasks.map(|tasks| json!({ "tasks": tasks }))
    };
    let shown = shown.ok_or_else(|| unexpected(&function))?;
    let mut response = answer(StatusCode::CREATED, &shown);
    if let Some(id) = shown["id"].as_str()
        && let Ok(place) = HeaderValue::from_str(&format!("{}/{id}", uri.path()))
    {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

async fn peek(
    client: Client,
    Named((tube, id)): Named<(String, String)>,
    Params(PeekParams { payload }): Params<PeekParams>,
) -> Reply {
    let args = Args::new().json(task_id(&id)?).json(json!({ "extended": true }));
    let function = method(&tube, "peek");
    let values = client.call(&function, args).await?;
    let add = match payload {
        None => json::payload,
        Some(PayloadForm::Msgpack) => json::stored_payload,
    };
    let task = task_with(&mut Reader::new(&values.bytes), add).ok_or_else(|| unexpected(&function))?;
    Ok(answer(StatusCode::OK, &task))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PeekParams {
    payload: Option<PayloadForm>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PayloadForm {
    Msgpack,
}

async fn remove(client: Client, Named((tube, id)): Named<(String, String)>) -> Reply {
    let function = method(&tube, "delete");
    let values = client.call(&function, Args::new().json(task_id(&id)?)).await?;
    let task = whole(&mut Reader::new(&values.bytes)).ok_or_else(|| unexpected(&function))?;
    Ok(answer(StatusCode::OK, &task))
}

/// The name of a task's state.
fn state_name(letter: &str) -> &str {
    match letter {
        "r" => "ready",
        "t" => "taken",
        "~" => "delayed",
        "!" => "buried",
        "-" => "done",
        other => other,
    }
}

/// Reads the id and the state of a task; the number of its members that follow.
fn head(reader: &mut Reader<'_>) -> Option<(Map<String, Json>, u32)> {
    let count = reader.array().ok().filter(|count| *count >= 3)?;
    let id = reader.uint().ok()?;
    let state = str::from_utf8(reader.str().ok()?).ok()?;
    let mut task = Map::new();
    task.insert("id".to_owned(), id.to_string().into());
    task.insert("state".to_owned(), state_name(state).into());
    Some((task, count - 2))
}

/// A task without its payload, which the client has sent itself.
fn brief(reader: &mut Reader<'_>) -> Option<Json> {
    let (task, count) = head(reader)?;
    (0..count).try_for_each(|_| reader.skip()).ok()?;
    Some(task.into())
}

/// A task with its payload and what the extended form says.
pub(super) fn whole(reader: &mut Reader<'_>) -> Option<Json> {
    task_with(reader, json::payload)
}

fn task_with(reader: &mut Reader<'_>, add: fn(&mut Map<String, Json>, &[u8])) -> Option<Json> {
    let (mut task, count) = head(reader)?;
    add(&mut task, reader.raw().ok()?);
    for _ in 1..count {
        if let Some(members) = json::members(&mut Reader::new(reader.raw().ok()?)) {
            task.extend(members);
        }
    }
    Some(task.into())
}
