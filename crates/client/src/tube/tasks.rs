//! Tasks of a tube, one by one: put, take, settle, look at.

use std::time::Duration;

use lycosa_tuple::mp::{self, Kind, Reader};
use lycosa_tuple::value::Value;

use super::{PutOptions, Tube, extended, seconds};
use crate::array::Array;
use crate::client::CallMode;
use crate::error::{Error, Result};
use crate::give_back::{GiveBack, unattempted};
use crate::payload::Payload;
use crate::procedures::Method;
use crate::response::Response;
use crate::task::Task;

impl Tube {
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

    async fn on_task(&self, method: Method, id: u64, mode: CallMode) -> Result<Task> {
        let args = Array::written(1, |out| mp::write_uint(out, id));
        self.task(&self.call(method, &args, mode).await?)
    }

    pub(super) fn task(&self, response: &Response) -> Result<Task> {
        self.optional_task(response)?.ok_or(Error::Unavailable)
    }

    /// The task of an answer: none if the answer is empty. Nil in a task's place means that the queue refused.
    pub(super) fn optional_task(&self, response: &Response) -> Result<Option<Task>> {
        let Some(first) = response.first() else {
            return Ok(None);
        };
        match Reader::new(first).kind()? {
            Kind::Nil => Err(Error::Unavailable),
            _ => Task::decode(self, first).map(Some),
        }
    }
}
