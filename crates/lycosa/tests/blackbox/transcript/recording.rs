//! A recorded session: who sent which bytes, in order.

use std::path::Path;
use std::time::Duration;

use serde_json::Value as Json;

use crate::connection::{self, kind};
use crate::value::{self, Value, unhex};

#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) name: String,
    /// Lua that the server ran besides.
    pub(crate) program: String,
    pub(crate) frames: Vec<Frame>,
}

#[derive(Debug)]
pub(crate) struct Frame {
    /// The connection's number or name.
    pub(crate) connection: String,
    pub(crate) event: Event,
    pub(crate) note: String,
    /// How long the recorder waited before it.
    pub(crate) wait: Duration,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// The server's first 128 bytes.
    Greeting(Vec<u8>),
    Sent(Vec<u8>),
    Received(Vec<u8>),
    /// This number of replies without errors, to different requests, in any order; the recorder kept only the number.
    Replies(usize),
    /// Nothing came for a while.
    Silence,
    /// The server closed the connection.
    ServerClosed,
    /// The client closed it.
    ClientClosed,
    /// The client closed its sending side.
    ClientShutDown,
    /// The server was told to stop.
    Stop,
}

impl Recording {
    pub(crate) fn load(file: &Path) -> Result<Self, String> {
        let fail = |reason: &dyn std::fmt::Display| format!("{}: {reason}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| fail(&error))?;
        let json: Json = serde_json::from_str(&text).map_err(|error| fail(&error))?;
        let frames = json["frames"].as_array().ok_or_else(|| fail(&"no frames"))?;
        let mut loaded = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            let event = event(frame).map_err(|reason| fail(&format!("frame {number}: {reason}")))?;
            loaded.extend(event.map(|event| Frame {
                event,
                connection: frame["c"].as_str().map_or_else(|| frame["c"].to_string(), str::to_owned),
                note: frame["note"].as_str().unwrap_or_default().to_owned(),
                wait: Duration::from_secs_f64(frame["wait"].as_f64().unwrap_or(0.0)),
            }));
        }
        Ok(Self {
            name: file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            program: json["server_lua"].as_str().unwrap_or_default().to_owned(),
            frames: loaded,
        })
    }
}

/// `None` for a line that is not part of the session (a line of the server's log).
fn event(frame: &Json) -> Result<Option<Event>, String> {
    let note = frame["note"].as_str().unwrap_or_default();
    let bytes = bytes(frame)?;
    Ok(Some(match frame["d"].as_str().unwrap_or_default() {
        ">" if frame["is"]["trailing"].as_u64() > Some(bytes.len() as u64) => {
            Event::Sent(calls(frame, note)?)
        }
        ">" => Event::Sent(bytes),
        "<" if bytes.starts_with(b"Tarantool ") => Event::Greeting(bytes),
        "<" if bytes.is_empty() => Event::Replies(number_of(note)?),
        "<" => Event::Received(bytes),
        "t" => Event::Silence,
        "x" => Event::ServerClosed,
        "-" if note.contains("shut") => Event::ClientShutDown,
        "-" => Event::ClientClosed,
        "stop" => Event::Stop,
        "log" => return Ok(None),
        other => return Err(format!("unknown direction {other}")),
    }))
}

/// The number of a note as "1000 replies; …" or "1000 CALL …".
fn number_of(note: &str) -> Result<usize, String> {
    let (number, _) = note.split_once(' ').ok_or("the frame is not whole, and its note tells no number")?;
    number.parse().map_err(|_| format!("the frame is not whole, and its note tells no number: {note}"))
}

/// The bytes of many calls, of which the recorder kept the first: each has its number as sync and argument.
fn calls(frame: &Json, note: &str) -> Result<Vec<u8>, String> {
    let name = frame["is"]["body"]["function_name"].as_str().ok_or("the first call has no name")?;
    let call = |number: usize| {
        let body = connection::call(name, vec![Value::Int(number as i128)]);
        connection::frame(kind::CALL, number as u64, &value::encode(&body))
    };
    Ok((1..=number_of(note)?).flat_map(call).collect())
}

/// The bytes of a frame. A long one is kept as its beginning and its end (`hex_tail`); between them the last byte of the
/// beginning repeats.
fn bytes(frame: &Json) -> Result<Vec<u8>, String> {
    let mut bytes = unhex(frame["hex"].as_str().unwrap_or_default())?;
    if let Some(whole) = frame["hex_cut_at"].as_u64() {
        let tail = frame["hex_tail"].as_str().ok_or("the frame was cut and its end is not known")?;
        let tail = unhex(tail)?;
        let last = *bytes.last().ok_or("a cut frame has a beginning")?;
        bytes.resize(whole as usize - tail.len(), last);
        bytes.extend_from_slice(&tail);
    }
    Ok(bytes)
}
