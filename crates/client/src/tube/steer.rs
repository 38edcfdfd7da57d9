//! Steering a tube: pause, resume, explain.

use lycosa_tuple::value::Value;

use super::Tube;
use crate::array::Array;
use crate::client::CallMode;
use crate::error::{Error, Result};
use crate::procedures::procedure;
use crate::steering::Explanation;

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
