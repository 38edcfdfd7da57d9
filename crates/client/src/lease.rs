//! Leases: tasks that belong to a token and to no session.

use std::time::{Duration, SystemTime};

use lycosa_tuple::value::Value;

use crate::array::Array;
use crate::client::CallMode;
use crate::error::{Error, Result};
use crate::give_back::GiveBack;
use crate::procedures::Method;
use crate::task::Task;
use crate::tube::{Tube, seconds};

/// A lease of one task: its token settles the task until the lease ends, over any connection.
///
/// Every method fails with an error that [`Error::is_stale_lease`] if the lease ended, or if the task was settled.
#[derive(Debug, Clone)]
pub struct Lease {
    tube: Tube,
    token: String,
}

impl Lease {
    /// The token: a text for another process or a later one. It is a secret like a password.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Says that the task is done, which removes it.
    ///
    /// # Errors
    /// The lease is stale ([`Error::is_stale_lease`]); see [`Error`].
    pub async fn ack(&self) -> Result<()> {
        self.settle(Method::Ack, &[]).await
    }

    /// Gives the task back, to be taken again at once or after `delay` (tubes with a ttl only). The server keeps a reason with
    /// the task.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn release(&self, delay: Option<Duration>, reason: Option<&str>) -> Result<()> {
        let delay = delay.map(|delay| ("delay", seconds(delay)));
        let reason = reason.map(|reason| ("reason", Value::from(reason)));
        let options: Vec<_> = delay.into_iter().chain(reason).collect();
        self.settle(Method::Release, &options).await
    }

    /// Puts the task aside until a kick. The server keeps a reason with the task.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn bury(&self, reason: Option<&str>) -> Result<()> {
        let options: Vec<_> = reason.map(|reason| ("reason", Value::from(reason))).into_iter().collect();
        self.settle(Method::Bury, &options).await
    }

    /// Lets the lease end `span` from now, unless it ends later already. Returns when it ends. Repeating a renewal is
    /// harmless.
    ///
    /// # Errors
    /// `span` is zero or longer than a day; else as [`ack`](Self::ack).
    pub async fn renew(&self, span: Duration) -> Result<SystemTime> {
        let args = Array::from([Value::from(self.token.as_str()), seconds(span)]);
        let response = self.tube.call(Method::Touch, &args, CallMode::CHANGE).await?;
        let task = response.first().ok_or(Error::Unavailable)?;
        let ends = Task::decode(&self.tube, task)?.info.and_then(|info| info.lease_ends);
        ends.ok_or_else(|| Error::protocol("a renewed lease without an end"))
    }

    async fn settle(&self, method: Method, options: &[(&str, Value)]) -> Result<()> {
        let mut args = vec![Value::from(self.token.as_str())];
        if !options.is_empty() {
            args.push(Value::map(options.iter().cloned()));
        }
        self.tube.call(method, &Array::from(args), CallMode::CHANGE).await.map(drop)
    }
}

impl Tube {
    /// As [`take_extended`](Self::take_extended), for a lease of `span`, in place of this client's session: the task stays
    /// taken when the connection ends, and is ready again when the lease ends.
    ///
    /// # Errors
    /// `span` is zero or longer than a day; the server has no leases ([`Error::Protocol`]): then the task belongs to the
    /// session; else as [`take`](Self::take).
    pub async fn take_leased(
        &self,
        timeout: Option<Duration>,
        span: Duration,
    ) -> Result<Option<(Task, Lease)>> {
        let args = Array::from([timeout.map_or(Value::Nil, seconds), lease_of(span)]);
        let mode = CallMode { extra_time: timeout, ..CallMode::CHANGE };
        let give_back = GiveBack::OneLeased(self.release_procedure());
        let task = self.take_in_mode(&args, mode, give_back).await?;
        task.map(leased).transpose()
    }

    /// As [`take_many`](Self::take_many), with a lease of `span` for each task.
    ///
    /// # Errors
    /// As [`take_leased`](Self::take_leased) and [`take_many`](Self::take_many).
    pub async fn take_many_leased(
        &self,
        limit: u32,
        timeout: Option<Duration>,
        span: Duration,
    ) -> Result<Vec<(Task, Lease)>> {
        let args = Array::from([Value::from(limit), timeout.map_or(Value::Nil, seconds), lease_of(span)]);
        let mode = CallMode { extra_time: timeout, ..CallMode::CHANGE };
        let tasks = self.take_all_in_mode(&args, mode, GiveBack::ManyLeased).await?;
        tasks.into_iter().map(leased).collect()
    }

    /// The lease with this token, which [`Lease::token`] has told. Nothing is asked.
    pub fn lease(&self, token: impl Into<String>) -> Lease {
        Lease { tube: self.clone(), token: token.into() }
    }
}

fn lease_of(span: Duration) -> Value {
    Value::map([("lease", seconds(span))])
}

fn leased(task: Task) -> Result<(Task, Lease)> {
    let token = task.info.as_ref().and_then(|info| info.lease.clone());
    let token = token.ok_or_else(|| Error::protocol("a task without the lease that was asked for"))?;
    let lease = task.tube().lease(token);
    Ok((task, lease))
}
