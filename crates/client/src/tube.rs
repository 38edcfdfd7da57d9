//! A tube: where tasks are put and taken.

mod batch;
mod steer;

use std::sync::Arc;
use std::time::Duration;

use lycosa_tuple::mp::{self, Kind, Reader};
use lycosa_tuple::value::Value;

use crate::array::Array;
use crate::client::{CallMode, Client};
use crate::error::{Error, Result};
use crate::give_back::{GiveBack, unattempted};
use crate::payload::Payload;
use crate::procedures::{Method, Procedures, procedure};
use crate::response::Response;
use crate::statistics::Statistics;
use crate::status::StatusWatch;
use crate::task::Task;

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

    /// Adds a task.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the tube is full (limfifottl) or the queue is not running; see [`Error`].
    pub async fn put(&self, data: impl Into<Payload>, options: PutOptions) -> Result<Task> {
        let data = data.into();
        let extra_time = options.timeout.unwrap_or_default();
        let args = Array::written(2, |out| {
            out.extend_from_slice(data.encoded());
            options.write(out);
        });
        let mode = CallMode { extra_time: Some(extra_time), ..CallMode::CHANGE };
        self.task(&self.call(Method::Put, &args, mode).await?)
    }

    /// Takes the next task. If none is ready, the server waits for one until `timeout` is over, with `None` for ever.
    ///
    /// A task that is taken stays this session's until it is acknowledged, released, buried or deleted, or until its
    /// ttr or the session is over. A task that comes after the future has been dropped is released again.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the queue is not running; see [`Error`].
    pub async fn take(&self, timeout: Option<Duration>) -> Result<Option<Task>> {
        let args = match timeout {
            Some(timeout) => Array::from([seconds(timeout)]),
            None => Array::from(()),
        };
        let give_back = GiveBack::One(self.release_procedure());
        self.take_with(timeout, &args, give_back).await
    }

    /// As [`take`](Self::take), and asks for what else is known of the task ([`Task::info`]): attempts, the last
    /// failure, deadlines. A server without this extension answers without it.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub async fn take_extended(&self, timeout: Option<Duration>) -> Result<Option<Task>> {
        let wait = timeout.map_or(Value::Nil, seconds);
        let give_back = GiveBack::OneCounted(self.release_procedure());
        self.take_with(timeout, &Array::from([wait, extended()]), give_back).await
    }

    pub(crate) fn release_procedure(&self) -> Arc<str> {
        Arc::clone(self.named.procedures.name(Method::Release))
    }

    async fn take_with(
        &self,
        timeout: Option<Duration>,
        args: &Array,
        give_back: GiveBack,
    ) -> Result<Option<Task>> {
        let mode = CallMode { extra_time: timeout, ..CallMode::OWNED };
        self.take_in_mode(args, mode, give_back).await
    }

    pub(crate) async fn take_in_mode(
        &self,
        args: &Array,
        mode: CallMode,
        give_back: GiveBack,
    ) -> Result<Option<Task>> {
        let name = self.named.procedures.name(Method::Take);
        let response = self.client.take(name, args, mode, give_back).await?;
        self.optional_task(&response)
    }

    /// Says that a taken task is done, which removes it.
    ///
    /// # Errors
    /// This session has not taken it ([`Error::is_not_taken`]); see [`Error`].
    pub async fn ack(&self, id: u64) -> Result<Task> {
        self.on_task(Method::Ack, id, CallMode::OWNED).await
    }

    /// Gives a taken task back, to be taken again at once or after `delay` (tubes with a ttl only).
    ///
    /// # Errors
    /// This session has not taken it ([`Error::is_not_taken`]); see [`Error`].
    pub async fn release(&self, id: u64, delay: Option<Duration>) -> Result<Task> {
        let Some(delay) = delay else {
            return self.on_task(Method::Release, id, CallMode::OWNED).await;
        };
        let options = Value::map([("delay", seconds(delay))]);
        let args = Array::from([Value::from(id), options]);
        self.task(&self.call(Method::Release, &args, CallMode::OWNED).await?)
    }

    /// As [`release`](Self::release), with the reason for it: the server keeps the reason with the task.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub async fn release_because(&self, id: u64, delay: Option<Duration>, reason: &str) -> Result<Task> {
        let mut options = vec![(Value::from("reason"), Value::from(reason))];
        options.extend(delay.map(|delay| (Value::from("delay"), seconds(delay))));
        let args = Array::from([Value::from(id), Value::Map(options)]);
        self.task(&self.call(Method::Release, &args, CallMode::OWNED).await?)
    }

    /// As [`release`](Self::release) at once, of an untried task: the take does not count as an
    /// attempt. A server without this extension releases the task all the same.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub async fn release_unattempted(&self, id: u64) -> Result<Task> {
        let args = Array::from([Value::from(id), unattempted()]);
        self.task(&self.call(Method::Release, &args, CallMode::OWNED).await?)
    }

    /// Makes a taken task's time to run and lifetime longer (tubes with a ttl only). `None` if there was nothing to
    /// do because `increment` is zero.
    ///
    /// # Errors
    /// This session has not taken it ([`Error::is_not_taken`]), the tube has no ttl; see [`Error`].
    pub async fn touch(&self, id: u64, increment: Duration) -> Result<Option<Task>> {
        let args = Array::from([Value::from(id), seconds(increment)]);
        self.optional_task(&self.call(Method::Touch, &args, CallMode::OWNED).await?)
    }

    /// Puts a task aside until it is kicked, also one that another session has taken.
    ///
    /// # Errors
    /// There is no such task; see [`Error`].
    pub async fn bury(&self, id: u64) -> Result<Task> {
        self.on_task(Method::Bury, id, CallMode::OWNED).await
    }

    /// As [`bury`](Self::bury), with the reason for it: the server keeps the reason with the task.
    ///
    /// # Errors
    /// As [`bury`](Self::bury).
    pub async fn bury_because(&self, id: u64, reason: &str) -> Result<Task> {
        let args = Array::from([Value::from(id), Value::map([("reason", reason)])]);
        self.task(&self.call(Method::Bury, &args, CallMode::OWNED).await?)
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

    /// Looks at a task without changing it.
    ///
    /// # Errors
    /// There is no such task; see [`Error`].
    pub async fn peek(&self, id: u64) -> Result<Task> {
        self.on_task(Method::Peek, id, CallMode::READ).await
    }

    /// As [`peek`](Self::peek), and asks for what else is known of the task ([`Task::info`]).
    ///
    /// # Errors
    /// As [`peek`](Self::peek).
    pub async fn peek_extended(&self, id: u64) -> Result<Task> {
        let args = Array::from([Value::from(id), extended()]);
        self.task(&self.call(Method::Peek, &args, CallMode::READ).await?)
    }

    /// Removes a task in any state, also one that another session has taken.
    ///
    /// # Errors
    /// There is no such task; see [`Error`].
    pub async fn delete(&self, id: u64) -> Result<Task> {
        self.on_task(Method::Delete, id, CallMode::CHANGE).await
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

    async fn on_task(&self, method: Method, id: u64, mode: CallMode) -> Result<Task> {
        let args = Array::written(1, |out| mp::write_uint(out, id));
        self.task(&self.call(method, &args, mode).await?)
    }

    pub(crate) async fn call(&self, method: Method, args: &Array, mode: CallMode) -> Result<Response> {
        self.client.call(self.named.procedures.name(method), args, mode).await
    }

    fn task(&self, response: &Response) -> Result<Task> {
        self.optional_task(response)?.ok_or(Error::Unavailable)
    }

    /// The task of an answer: none if the answer is empty. Nil in a task's place means that the queue refused.
    fn optional_task(&self, response: &Response) -> Result<Option<Task>> {
        let Some(first) = response.first() else {
            return Ok(None);
        };
        match Reader::new(first).kind()? {
            Kind::Nil => Err(Error::Unavailable),
            _ => Task::decode(self, first).map(Some),
        }
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

/// The option that asks for [`Task::info`].
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
