//! A tube: where tasks are put and taken.

mod batch;
mod steer;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use lycosa_tuple::mp;
use lycosa_tuple::value::Value;

use crate::array::Array;
use crate::client::{CallMode, Client};
use crate::error::{Error, Result};
use crate::procedures::{Method, Procedures, procedure};
use crate::response::Response;
use crate::statistics::Statistics;
use crate::status::StatusWatch;

/// A tube of a server. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Tube {
    client: Client,
    named: Arc<Named>,
}

#[derive(Debug)]
struct Named {
    name: String,
    procedures: Procedures,
}

impl Tube {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        Self { client, named: Arc::new(Named { name: name.to_owned(), procedures: Procedures::of(name) }) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.named.name
    }

    /// The status of the client that it belongs to, to be waited for.
    pub(crate) fn watch(&self) -> StatusWatch {
        self.client.watch()
    }

    pub(crate) fn release_procedure(&self) -> Arc<str> {
        Arc::clone(self.named.procedures.name(Method::Release))
    }

    /// Makes up to `count` buried tasks ready again; returns how many there were.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn kick(&self, count: u64) -> Result<u64> {
        let response = self.call(Method::Kick, &Array::from([Value::from(count)]), CallMode::CHANGE).await?;
        let kicked = response.first_value()?;
        kicked.as_u64().ok_or_else(|| Error::protocol(format!("kick gave {kicked}")))
    }

    /// Removes all tasks.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn truncate(&self) -> Result<()> {
        self.call(Method::Truncate, &Array::from(()), CallMode::CHANGE).await.map(drop)
    }

    /// Removes the tube.
    ///
    /// # Errors
    /// A client waits for its tasks or has taken some; the tube does not exist; see [`Error`].
    pub async fn drop(&self) -> Result<()> {
        self.call(Method::Drop, &Array::from(()), CallMode::CHANGE).await.map(drop)
    }

    /// Gives back every taken task of every session.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn release_all(&self) -> Result<()> {
        self.call(Method::ReleaseAll, &Array::from(()), CallMode::CHANGE).await.map(drop)
    }

    /// What the tube counts.
    ///
    /// # Errors
    /// There is no such tube; see [`Error`].
    pub async fn statistics(&self) -> Result<Statistics> {
        let args = Array::from([Value::from(self.name())]);
        let response = self.client.call("queue.statistics", &args, CallMode::READ).await?;
        Statistics::from_value(&response.first_value()?)
    }

    /// Calls any other method, such as `grant` or those of a custom type.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn call_method(&self, method: &str, args: impl Into<Array>) -> Result<Response> {
        self.client.call(&procedure(self.name(), method), &args.into(), CallMode::OWNED).await
    }

    pub(crate) async fn call(&self, method: Method, args: &Array, mode: CallMode) -> Result<Response> {
        self.client.call(self.named.procedures.name(method), args, mode).await
    }
}

/// Options of a new task. The server ignores options that the tube's type does not have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PutOptions {
    ttl: Option<Duration>,
    ttr: Option<Duration>,
    delay: Option<Duration>,
    priority: Option<u64>,
    utube: Option<String>,
    timeout: Option<Duration>,
    replicas: Option<u64>,
    headers: Vec<(String, String)>,
}

impl PutOptions {
    /// None: the tube's own defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the task lives; then it is deleted.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long it may stay taken; then it is ready again.
    pub fn ttr(mut self, ttr: Duration) -> Self {
        self.ttr = Some(ttr);
        self
    }

    /// How long until it can be taken. The lifetime begins after it.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Its priority; 0 is taken first.
    pub fn priority(mut self, priority: u64) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Its sub-queue (utube, utubettl).
    pub fn utube(mut self, name: impl Into<String>) -> Self {
        self.utube = Some(name.into());
        self
    }

    /// How long to wait for space in a full tube (limfifottl).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many replicas must have the task on their disks before the put is answered, where that is more than the server's
    /// `replicas_before_reply`.
    pub fn replicas(mut self, replicas: u64) -> Self {
        self.replicas = Some(replicas);
        self
    }

    /// Keeps a text with the task under this name, such as `traceparent`; a server that keeps none ignores it. Workers see it in
    /// [`TaskInfo::headers`](crate::TaskInfo::headers).
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    fn write(&self, out: &mut Vec<u8>) {
        let durations =
            [("ttl", self.ttl), ("ttr", self.ttr), ("delay", self.delay), ("timeout", self.timeout)];
        let given = durations.iter().filter(|(_, duration)| duration.is_some()).count() as u32;
        let others = [
            self.priority.is_some(),
            self.utube.is_some(),
            self.replicas.is_some(),
            !self.headers.is_empty(),
        ];
        mp::write_map(out, given + others.into_iter().map(u32::from).sum::<u32>());
        for (name, duration) in durations {
            if let Some(duration) = duration {
                mp::write_str(out, name.as_bytes());
                seconds(duration).write(out);
            }
        }
        if let Some(priority) = self.priority {
            mp::write_str(out, b"pri");
            mp::write_uint(out, priority);
        }
        if let Some(utube) = &self.utube {
            mp::write_str(out, b"utube");
            mp::write_str(out, utube.as_bytes());
        }
        if let Some(replicas) = self.replicas {
            mp::write_str(out, b"replicas");
            mp::write_uint(out, replicas);
        }
        if !self.headers.is_empty() {
            mp::write_str(out, b"headers");
            mp::write_map(out, self.headers.len() as u32);
            for (name, value) in &self.headers {
                mp::write_str(out, name.as_bytes());
                mp::write_str(out, value.as_bytes());
            }
        }
    }
}

/// The option that asks for [`Task::info`](crate::Task::info).
fn extended() -> Value {
    Value::map([("extended", true)])
}

/// A duration as the queue takes it: seconds, an integer if it is whole.
pub(crate) fn seconds(duration: Duration) -> Value {
    match duration.subsec_nanos() {
        0 => Value::Uint(duration.as_secs()),
        _ => Value::Double(duration.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests;
