//! Many tasks in one call: all of them or, on an error, none.
//!
//! A server takes 10 000 tasks in a batch at most. One with the Lua module knows no batches.

use std::sync::Arc;
use std::time::Duration;

use lycosa_tuple::mp::{self, Kind, Reader};
use lycosa_tuple::value::Value;

use super::{PutOptions, Tube, extended, seconds};
use crate::array::Array;
use crate::client::CallMode;
use crate::error::{Error, Result};
use crate::give_back::GiveBack;
use crate::payload::Payload;
use crate::procedures::Method;
use crate::response::Response;
use crate::task::Task;

impl Tube {
    /// Adds many tasks, all with the same options: all of them or, on an error, none. They come back in order.
    ///
    /// A server takes 10 000 tasks in a batch at most. One with the Lua module knows no batches.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if they do not all fit the tube (limfifottl) or the queue is not running; see [`Error`].
    pub async fn put_many<T: Into<Payload>>(
        &self,
        tasks: impl IntoIterator<Item = T>,
        options: PutOptions,
    ) -> Result<Vec<Task>> {
        let (count, payloads) = joined(tasks, |task, out| out.extend_from_slice(task.into().encoded()));
        let args = Array::written(2, |out| {
            mp::write_array(out, count);
            out.extend_from_slice(&payloads);
            options.write(out);
        });
        self.put_all(&args, options.timeout).await
    }

    /// The same with options for each task. A batch that does not fit waits as long as the most patient of them.
    ///
    /// # Errors
    /// As [`Self::put_many`].
    pub async fn put_many_with<T: Into<Payload>>(
        &self,
        tasks: impl IntoIterator<Item = (T, PutOptions)>,
    ) -> Result<Vec<Task>> {
        let mut all_options = Vec::new();
        let mut timeout = None;
        let (count, payloads) = joined(tasks, |(task, options), out| {
            out.extend_from_slice(task.into().encoded());
            options.write(&mut all_options);
            timeout = timeout.max(options.timeout);
        });
        let args = Array::written(2, |out| {
            mp::write_array(out, count);
            out.extend_from_slice(&payloads);
            mp::write_array(out, count);
            out.extend_from_slice(&all_options);
        });
        self.put_all(&args, timeout).await
    }

    async fn put_all(&self, args: &Array, timeout: Option<Duration>) -> Result<Vec<Task>> {
        let mode = CallMode { extra_time: Some(timeout.unwrap_or_default()), ..CallMode::CHANGE };
        self.tasks(&self.call(Method::PutMany, args, mode).await?)
    }

    /// Takes up to `limit` tasks at once. If none is ready, the server waits for the first until `timeout` is over, with
    /// `None` for ever; it does not wait for more. Empty when the time is over.
    ///
    /// A server gives 10 000 tasks or 16 MiB at a time at most. The notes at [`Self::take`] hold for each task.
    ///
    /// # Errors
    /// `limit` is 0; [`Error::Unavailable`] if the queue is not running; see [`Error`].
    pub async fn take_many(&self, limit: u32, timeout: Option<Duration>) -> Result<Vec<Task>> {
        let limit = Value::from(limit);
        let args = match timeout {
            Some(timeout) => Array::from([limit, seconds(timeout)]),
            None => Array::from([limit]),
        };
        self.take_all(timeout, &args, GiveBack::Many).await
    }

    /// As [`take_many`](Self::take_many), and asks for what else is known of the tasks ([`Task::info`]): attempts, the
    /// last failure, deadlines.
    ///
    /// # Errors
    /// As [`take_many`](Self::take_many).
    pub async fn take_many_extended(&self, limit: u32, timeout: Option<Duration>) -> Result<Vec<Task>> {
        let wait = timeout.map_or(Value::Nil, seconds);
        let args = Array::from([Value::from(limit), wait, extended()]);
        self.take_all(timeout, &args, GiveBack::ManyCounted).await
    }

    async fn take_all(
        &self,
        timeout: Option<Duration>,
        args: &Array,
        give_back: fn(Arc<str>) -> GiveBack,
    ) -> Result<Vec<Task>> {
        self.take_all_in_mode(args, CallMode { extra_time: timeout, ..CallMode::OWNED }, give_back).await
    }

    pub(crate) async fn take_all_in_mode(
        &self,
        args: &Array,
        mode: CallMode,
        give_back: fn(Arc<str>) -> GiveBack,
    ) -> Result<Vec<Task>> {
        let procedures = &self.named.procedures;
        let give_back = give_back(Arc::clone(procedures.name(Method::ReleaseMany)));
        let name = procedures.name(Method::TakeMany);
        self.tasks(&self.client.take(name, args, mode, give_back).await?)
    }

    /// Says that taken tasks are done, which removes them.
    ///
    /// # Errors
    /// This session has not taken one of them ([`Error::is_not_taken`]), which the text names; see [`Error`].
    pub async fn ack_many(&self, ids: impl IntoIterator<Item = u64>) -> Result<Vec<Task>> {
        self.on_tasks(Method::AckMany, ids, &[], CallMode::OWNED).await
    }

    /// Gives taken tasks back, to be taken again at once or after `delay` (tubes with a ttl only).
    ///
    /// # Errors
    /// This session has not taken one of them ([`Error::is_not_taken`]), which the text names; see [`Error`].
    pub async fn release_many(
        &self,
        ids: impl IntoIterator<Item = u64>,
        delay: Option<Duration>,
    ) -> Result<Vec<Task>> {
        let options: Vec<_> = delay.map(|delay| ("delay", seconds(delay))).into_iter().collect();
        self.on_tasks(Method::ReleaseMany, ids, &options, CallMode::OWNED).await
    }

    /// As [`release_many`](Self::release_many), with the reason for it: the server keeps the reason with the tasks.
    ///
    /// # Errors
    /// As [`release_many`](Self::release_many).
    pub async fn release_many_because(
        &self,
        ids: impl IntoIterator<Item = u64>,
        delay: Option<Duration>,
        reason: &str,
    ) -> Result<Vec<Task>> {
        let mut options = vec![("reason", Value::from(reason))];
        options.extend(delay.map(|delay| ("delay", seconds(delay))));
        self.on_tasks(Method::ReleaseMany, ids, &options, CallMode::OWNED).await
    }

    /// Puts tasks aside until they are kicked, also tasks that another session has taken.
    ///
    /// # Errors
    /// One of them does not exist, which the text names; see [`Error`].
    pub async fn bury_many(&self, ids: impl IntoIterator<Item = u64>) -> Result<Vec<Task>> {
        self.on_tasks(Method::BuryMany, ids, &[], CallMode::OWNED).await
    }

    /// As [`bury_many`](Self::bury_many), with the reason for it: the server keeps the reason with the tasks.
    ///
    /// # Errors
    /// As [`bury_many`](Self::bury_many).
    pub async fn bury_many_because(
        &self,
        ids: impl IntoIterator<Item = u64>,
        reason: &str,
    ) -> Result<Vec<Task>> {
        self.on_tasks(Method::BuryMany, ids, &[("reason", Value::from(reason))], CallMode::OWNED).await
    }

    /// Makes these buried tasks ready again.
    ///
    /// # Errors
    /// One of them does not exist or is not buried, which the text names; see [`Error`].
    pub async fn kick_many(&self, ids: impl IntoIterator<Item = u64>) -> Result<Vec<Task>> {
        self.on_tasks(Method::KickMany, ids, &[], CallMode::CHANGE).await
    }

    /// Removes tasks in any state, also tasks that another session has taken.
    ///
    /// # Errors
    /// One of them does not exist, which the text names; see [`Error`].
    pub async fn delete_many(&self, ids: impl IntoIterator<Item = u64>) -> Result<Vec<Task>> {
        self.on_tasks(Method::DeleteMany, ids, &[], CallMode::CHANGE).await
    }

    /// Calls a method with an array of ids, and options if there are any.
    async fn on_tasks(
        &self,
        method: Method,
        ids: impl IntoIterator<Item = u64>,
        options: &[(&str, Value)],
        mode: CallMode,
    ) -> Result<Vec<Task>> {
        let (count, ids) = joined(ids, |id, out| mp::write_uint(out, id));
        let args = Array::written(1 + u32::from(!options.is_empty()), |out| {
            mp::write_array(out, count);
            out.extend_from_slice(&ids);
            if !options.is_empty() {
                Value::map(options.iter().cloned()).write(out);
            }
        });
        self.tasks(&self.call(method, &args, mode).await?)
    }

    /// The tasks of an answer that is an array of them. Nil in its place means that the queue refused.
    fn tasks(&self, response: &Response) -> Result<Vec<Task>> {
        let first = response.first().ok_or_else(|| Error::protocol("no array of tasks"))?;
        let mut reader = Reader::new(first);
        if reader.kind()? == Kind::Nil {
            return Err(Error::Unavailable);
        }
        let count = reader.array()?;
        (0..count).map(|_| Task::decode(self, reader.raw()?)).collect()
    }
}

/// What `write` appends for each of the items, and how many there are. More than 2^32 − 1 do not fit memory.
fn joined<T>(items: impl IntoIterator<Item = T>, mut write: impl FnMut(T, &mut Vec<u8>)) -> (u32, Vec<u8>) {
    let mut out = Vec::new();
    let mut count = 0;
    for item in items {
        write(item, &mut out);
        count += 1;
    }
    (count, out)
}
