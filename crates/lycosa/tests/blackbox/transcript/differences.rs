//! Permitted differences from the recording: `corpus/wire/differences.json`.
//!
//! For each server (`lycosa`, `tarantool`) and recording a list of entries, each with its frames' numbers and a reason:
//!
//! | key | meaning |
//! |---|---|
//! | `why` | the reason, in words |
//! | `frames` | frames of the recording, counted from 0, log lines not counted |
//! | `want` | a regex that our reply, as a failure would print it, must match; absent: these frames are not compared at all |
//! | `race` | (with `want`) chance decides: the reply may also be as recorded, which fails with all other entries |
//! | `closed` | instead of these the server closes the connection; what the recording sends on it then goes over a new one |
//! | `more_rows` | the reply has the recorded rows in their order, and others between them |
//! | `instead` | (with frames: a request and its reply) calls to make in their place, each `[NAME, [ARGUMENT, …]]` |
//! | `any_order` | (instead of frames) maps may have their keys in any order: a Lua made them |
//! | `skip` | (instead of frames) the whole recording is not replayed |
//! | `queue` | (instead of frames) the recording needs the module `queue` |

use std::collections::HashMap;
use std::path::Path;

use regex::Regex;
use serde_json::Value as Json;

use crate::scenario::value_of;
use crate::server::Peer;
use crate::value::Value;

#[derive(Debug, Default)]
pub(crate) struct Differences {
    pub(crate) skip: Option<String>,
    pub(crate) needs_queue: bool,
    pub(crate) any_order: bool,
    frames: HashMap<usize, Difference>,
    instead: HashMap<usize, Vec<(String, Vec<Value>)>>,
}

/// How one frame differs from the recording.
#[derive(Debug, Clone)]
pub(crate) enum Difference {
    /// Its reply is another one, like this.
    Like(Regex),
    /// Its reply is as recorded or like this: a race.
    Race(Regex),
    MoreRows,
    NotCompared,
    /// The server has closed the connection instead.
    Closed,
    /// Never sent here: the reply to a request that is replaced.
    Absent,
}

impl Differences {
    pub(crate) fn load(folder: &Path, peer: Peer, recording: &str) -> Result<Self, String> {
        let file = folder.join("differences.json");
        let fail = |reason: &dyn std::fmt::Display| format!("{}: {reason}", file.display());
        let text = std::fs::read_to_string(&file).map_err(|error| fail(&error))?;
        let json: Json = serde_json::from_str(&text).map_err(|error| fail(&error))?;
        let side = if peer == Peer::Lycosa { "lycosa" } else { "tarantool" };
        let mut loaded = Self::default();
        for entry in json[side][recording].as_array().into_iter().flatten() {
            loaded.add(entry).map_err(|reason| fail(&format!("{side}, {recording}: {reason}: {entry}")))?;
        }
        Ok(loaded)
    }

    /// `None`: the frame must be as it was recorded.
    pub(crate) fn of(&self, frame: usize) -> Option<&Difference> {
        self.frames.get(&frame)
    }

    /// Calls to make in place of a request, each a name and its arguments.
    pub(crate) fn instead_of(&self, frame: usize) -> Option<&[(String, Vec<Value>)]> {
        self.instead.get(&frame).map(Vec::as_slice)
    }

    fn add(&mut self, entry: &Json) -> Result<(), String> {
        let why = entry["why"].as_str().ok_or("an entry has no reason")?;
        if entry["skip"] == true {
            self.skip = Some(why.to_owned());
            return Ok(());
        }
        if entry["queue"] == true {
            self.needs_queue = true;
            return Ok(());
        }
        if entry["any_order"] == true {
            self.any_order = true;
            return Ok(());
        }
        if let Some(calls) = entry["instead"].as_array() {
            let (Some(request), Some(reply)) = (entry["frames"][0].as_u64(), entry["frames"][1].as_u64())
            else {
                return Err("`instead` goes with the frames of a request and its reply".into());
            };
            self.instead.insert(request as usize, calls.iter().map(call).collect::<Result<_, _>>()?);
            self.frames.insert(reply as usize, Difference::Absent);
            return Ok(());
        }
        let difference = match entry["want"].as_str() {
            Some(pattern) => {
                let pattern = Regex::new(pattern).map_err(|error| error.to_string())?;
                if entry["race"] == true { Difference::Race(pattern) } else { Difference::Like(pattern) }
            }
            None if entry["closed"] == true => Difference::Closed,
            None if entry["more_rows"] == true => Difference::MoreRows,
            None => Difference::NotCompared,
        };
        for frame in entry["frames"].as_array().ok_or("an entry names no frames")? {
            let frame = frame.as_u64().ok_or("a frame is a number")? as usize;
            if self.frames.insert(frame, difference.clone()).is_some() {
                return Err(format!("frame {frame} is named twice"));
            }
        }
        Ok(())
    }
}

fn call(json: &Json) -> Result<(String, Vec<Value>), String> {
    let name = json[0].as_str().ok_or("a call has a name")?;
    let arguments = json[1].as_array().ok_or("a call has arguments")?;
    Ok((name.to_owned(), arguments.iter().map(value_of).collect::<Result<_, _>>()?))
}
