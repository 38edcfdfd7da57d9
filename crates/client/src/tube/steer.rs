//! Steering a tube: pause, resume, explain, find, apply, undo.

use lycosa_tuple::value::Value;

use super::Tube;
use crate::array::Array;
use crate::client::CallMode;
use crate::error::{Error, Result};
use crate::procedures::procedure;
use crate::steering::{ApplyOptions, Explanation, Filter, Operation, Page, TubeJob, text};
use crate::task::Task;

/// The options of a call that may have a reason.
fn options(reason: Option<&str>) -> Value {
    Value::Map(reason.map(|reason| (Value::from("reason"), Value::from(reason))).into_iter().collect())
}

impl Tube {
    /// Hands out no more tasks until [`resume`](Self::resume), also after a restart of the server. Everything else goes
    /// on. `false`: the tube was paused already.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn pause(&self, reason: Option<&str>) -> Result<bool> {
        self.flag("pause", reason).await
    }

    /// Hands out tasks again. `false`: the tube was not paused.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resume(&self, reason: Option<&str>) -> Result<bool> {
        self.flag("resume", reason).await
    }

    /// Why the tube hands out no task.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn explain(&self) -> Result<Explanation> {
        Explanation::read(self.steered("explain", &Array::from(()), CallMode::READ).await?)
    }

    /// Why no worker has the task, and until when.
    ///
    /// # Errors
    /// The task does not exist; see [`Error`].
    pub async fn explain_task(&self, id: u64) -> Result<Explanation> {
        Explanation::read(self.steered("explain", &Array::from([Value::from(id)]), CallMode::READ).await?)
    }

    /// Why the sub-queue hands out no task (utube, utubettl).
    ///
    /// # Errors
    /// The tube has no sub-queues; see [`Error`].
    pub async fn explain_sub_queue(&self, name: &str) -> Result<Explanation> {
        let subject = Array::from([Value::map([("utube", name)])]);
        Explanation::read(self.steered("explain", &subject, CallMode::READ).await?)
    }

    /// A page of the tasks that match: at most `limit` (up to 1 000), and from the second page on with the cursor of the page before.
    ///
    /// # Errors
    /// The filter can match no task of this tube; the cursor is of another filter; see [`Error`].
    pub async fn find(&self, filter: &Filter, limit: u32, cursor: Option<&str>) -> Result<Page> {
        let mut options = vec![(Value::from("limit"), Value::from(u64::from(limit)))];
        options.extend(cursor.map(|cursor| (Value::from("cursor"), Value::from(cursor))));
        let args = Array::from([filter.to_value(), Value::Map(options)]);
        let page = self.steered("find", &args, CallMode::READ).await?;
        let tasks = page.get("tasks").and_then(Value::as_array);
        let tasks = tasks.ok_or_else(|| Error::protocol(format!("a page without tasks: {page}")))?;
        let tasks = tasks.iter().map(|task| Task::decode(self, &task.encode())).collect::<Result<_>>()?;
        let number = |name: &str| page.get(name).and_then(Value::as_u64).unwrap_or(0);
        Ok(Page {
            tasks,
            scanned: number("scanned"),
            total: number("total"),
            cursor: text(page.get("cursor")),
        })
    }

    /// Begins to count the tasks that match.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub async fn count(&self, filter: &Filter) -> Result<TubeJob> {
        TubeJob::read(self.steered("count", &Array::from([filter.to_value()]), CallMode::CHANGE).await?)
    }

    /// Begins to change all tasks that match.
    ///
    /// # Errors
    /// As [`find`](Self::find); the filter is empty ([`Filter::all`] is every task); the tube to move to does not exist.
    pub async fn apply(
        &self,
        operation: &Operation,
        filter: &Filter,
        options: &ApplyOptions,
    ) -> Result<TubeJob> {
        let args =
            Array::from([Value::from(operation.name()), filter.to_value(), options.to_value(operation)]);
        TubeJob::read(self.steered("apply", &args, CallMode::CHANGE).await?)
    }

    /// How far a job is.
    ///
    /// # Errors
    /// The tube has no such job; see [`Error`].
    pub async fn job(&self, id: u64) -> Result<TubeJob> {
        TubeJob::read(self.steered("job", &Array::from([Value::from(id)]), CallMode::READ).await?)
    }

    /// The jobs of the tube that the server remembers, the newest first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn jobs(&self) -> Result<Vec<TubeJob>> {
        let jobs = self.steered("jobs", &Array::from(()), CallMode::READ).await?;
        let jobs =
            jobs.as_array().ok_or_else(|| Error::protocol(format!("jobs are not an array: {jobs}")))?;
        jobs.iter().cloned().map(TubeJob::read).collect()
    }

    /// Lets a job wait until it is resumed.
    ///
    /// # Errors
    /// The tube has no such job, or it is over; see [`Error`].
    pub async fn pause_job(&self, id: u64) -> Result<TubeJob> {
        self.control(id, "pause", Value::Nil).await
    }

    /// Lets a paused job go on.
    ///
    /// # Errors
    /// As [`pause_job`](Self::pause_job).
    pub async fn resume_job(&self, id: u64) -> Result<TubeJob> {
        self.control(id, "resume", Value::Nil).await
    }

    /// Ends a job where it is.
    ///
    /// # Errors
    /// As [`pause_job`](Self::pause_job).
    pub async fn cancel_job(&self, id: u64) -> Result<TubeJob> {
        self.control(id, "cancel", Value::Nil).await
    }

    /// Bounds the tasks that a job changes in a second.
    ///
    /// # Errors
    /// As [`pause_job`](Self::pause_job); the rate is 0.
    pub async fn set_job_rate(&self, id: u64, rate: u64) -> Result<TubeJob> {
        self.control(id, "rate", Value::map([("rate", rate)])).await
    }

    /// Begins to undo a job that is over.
    ///
    /// # Errors
    /// Nothing can be undone any more; see [`Error`].
    pub async fn undo(&self, id: u64, reason: Option<&str>) -> Result<TubeJob> {
        let args = Array::from([Value::from(id), options(reason)]);
        TubeJob::read(self.steered("undo", &args, CallMode::CHANGE).await?)
    }

    async fn control(&self, id: u64, action: &str, options: Value) -> Result<TubeJob> {
        let args = Array::from([Value::from(id), Value::from(action), options]);
        TubeJob::read(self.steered("control", &args, CallMode::CHANGE).await?)
    }

    async fn flag(&self, method: &str, reason: Option<&str>) -> Result<bool> {
        let reply = self.steered(method, &Array::from([options(reason)]), CallMode::CHANGE).await?;
        match reply {
            Value::Bool(flag) => Ok(flag),
            other => Err(Error::protocol(format!("{method} gave {other}"))),
        }
    }

    /// Calls a method that replies with one value. Nil is the reply of a queue that does not run.
    async fn steered(&self, method: &str, args: &Array, mode: CallMode) -> Result<Value> {
        let response = self.client.call(&procedure(self.name(), method), args, mode).await?;
        match response.first_value()? {
            Value::Nil => Err(Error::Unavailable),
            value => Ok(value),
        }
    }
}
