//! One client under load: batches of operations in one write each, until the connection breaks or the server says that its
//! disk has failed.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use super::ledger::Ledger;
use super::{Dice, REPLY_LIMIT, Tube, WAL_IO};
use crate::connection::{self, Connection, Reply, kind};
use crate::value::Value;

const BATCH: u64 = 24;
/// A worker that holds more than this takes no more.
const MAX_HELD: usize = 40;
const LANES: u64 = 12;

#[derive(Debug)]
enum Operation {
    Put { payload: String },
    Take,
    Ack { id: u64 },
    Release { id: u64 },
    Bury { id: u64 },
    Delete { id: u64 },
}

pub(super) struct Worker {
    connection: Connection,
    tube: Tube,
    number: usize,
    round: u32,
    puts: u64,
    /// Ids of tasks that this worker has taken.
    held: Vec<u64>,
    ledger: Arc<Mutex<Ledger>>,
    dice: Dice,
}

impl Worker {
    pub(super) fn new(
        connection: Connection,
        tube: Tube,
        number: usize,
        round: u32,
        ledger: Arc<Mutex<Ledger>>,
        dice: Dice,
    ) -> Self {
        Self { connection, tube, number, round, puts: 0, held: Vec::new(), ledger, dice }
    }

    /// Works until the server is gone, or has contradicted itself.
    pub(super) fn work(mut self) {
        if let Err(reason) = self.work_until_cut() {
            // The connection is still open here.
            self.ledger().contradiction.get_or_insert(reason);
        }
    }

    fn work_until_cut(&mut self) -> Result<(), String> {
        loop {
            let batch = (0..1 + self.dice.below(BATCH)).map(|_| self.choose()).collect::<Vec<_>>();
            self.connection.cork();
            let mut sent = Vec::with_capacity(batch.len());
            for operation in batch {
                let body = self.body(&operation);
                let sync = self.connection.send(kind::CALL, &body).map_err(|error| error.to_string())?;
                sent.push((sync, operation));
            }
            if self.connection.uncork().is_err() {
                return Ok(());
            }
            let (mut is_cut, mut is_refused) = (false, false);
            for (sync, operation) in sent {
                match self.connection.reply(sync, Instant::now() + REPLY_LIMIT) {
                    Ok(reply) if self.is_refusal(&reply) => is_refused = true,
                    Ok(reply) => self.record(&operation, &reply)?,
                    Err(_) => is_cut = true,
                }
            }
            if is_refused && !is_cut {
                return Ok(());
            }
            if is_cut {
                // Cut off by the kill, or starved: the caller's check of the process tells which.
                return self
                    .connection
                    .wait_closed(Instant::now())
                    .map_err(|_| "no reply in time".to_owned());
            }
        }
    }

    /// Whether the server says that it cannot write. The request may have been done or not, as after a kill.
    fn is_refusal(&self, reply: &Reply) -> bool {
        let mut ledger = self.ledger();
        let is_refusal = ledger.may_refuse && reply.error == WAL_IO;
        ledger.refused += u64::from(is_refusal);
        is_refusal
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no worker panics while it holds the ledger")
    }

    /// The next operation, already entered in the account as perhaps done.
    fn choose(&mut self) -> Operation {
        let roll = self.dice.below(100);
        if roll < 38 {
            let lane = self.tube.lanes.then(|| format!("lane {}", self.dice.below(LANES)));
            self.puts += 1;
            let payload = format!("{}.{}.{}", self.round, self.number, self.puts);
            let payload = lane.as_ref().map_or(payload.clone(), |lane| format!("{payload} {lane}"));
            self.ledger().before_put(&payload, lane.as_deref());
            return Operation::Put { payload };
        }
        if roll < 72 && self.held.len() < MAX_HELD {
            return Operation::Take;
        }
        let buried = if roll < 76 { self.ledger().before_delete_of_buried() } else { None };
        if let Some(id) = buried {
            return Operation::Delete { id };
        }
        if self.held.is_empty() {
            return Operation::Take;
        }
        let at = self.dice.below(self.held.len() as u64) as usize;
        let id = self.held.swap_remove(at);
        let mut ledger = self.ledger();
        if roll < 86 {
            ledger.before_end(id);
            Operation::Ack { id }
        } else if roll < 94 {
            ledger.give_up(id);
            Operation::Release { id }
        } else {
            ledger.before_bury(id);
            Operation::Bury { id }
        }
    }

    fn body(&mut self, operation: &Operation) -> Value {
        let number = |id: &u64| vec![Value::Int(i128::from(*id))];
        let (method, arguments) = match operation {
            Operation::Put { payload } => ("put", vec![Value::str(payload), self.put_options(payload)]),
            Operation::Take => ("take", vec![Value::Int(0)]),
            Operation::Ack { id } => ("ack", number(id)),
            Operation::Release { id } => ("release", number(id)),
            Operation::Bury { id } => ("bury", number(id)),
            Operation::Delete { id } => ("delete", number(id)),
        };
        connection::call(&format!("queue.tube.t:{method}"), arguments)
    }

    fn put_options(&mut self, payload: &str) -> Value {
        let mut options = Vec::new();
        if let Some((_, lane)) = payload.split_once(' ') {
            options.push((Value::str("utube"), Value::str(lane)));
        }
        if self.tube.delays && self.dice.chance(20) {
            options.push((Value::str("delay"), Value::Double(0.05)));
        }
        if self.tube.delays && self.dice.chance(30) {
            options.push((Value::str("pri"), Value::Int(i128::from(self.dice.below(4)))));
        }
        Value::Map(options)
    }

    /// Enters a reply in the account.
    fn record(&mut self, operation: &Operation, reply: &Reply) -> Result<(), String> {
        if reply.error != 0 {
            return Err(format!("{operation:?} was refused: {}", reply.describe()));
        }
        let task = task(&reply.data());
        let unexpected = || format!("{operation:?} was answered by {}", reply.describe());
        match operation {
            Operation::Put { payload } => {
                let (id, _, shown) = task.ok_or_else(unexpected)?;
                if shown != *payload {
                    return Err(unexpected());
                }
                self.ledger().after_put(id, payload)
            }
            Operation::Take => {
                let Some((id, state, payload)) = task else { return Ok(()) };
                if state != "t" {
                    return Err(unexpected());
                }
                self.ledger().after_take(id, &payload, self.number)?;
                self.held.push(id);
                Ok(())
            }
            Operation::Ack { id } | Operation::Delete { id } => {
                if task.is_none_or(|(shown, state, _)| shown != *id || state != "-") {
                    return Err(unexpected());
                }
                self.ledger().after_end(*id);
                Ok(())
            }
            Operation::Release { id } => {
                if task.is_none_or(|(shown, state, _)| shown != *id || state != "r") {
                    return Err(unexpected());
                }
                self.ledger().after_release();
                Ok(())
            }
            Operation::Bury { id } => {
                if task.is_none_or(|(shown, state, _)| shown != *id || state != "!") {
                    return Err(unexpected());
                }
                self.ledger().after_bury(*id);
                Ok(())
            }
        }
    }
}

/// Id, state and payload of a task that a call returned.
fn task(data: &Value) -> Option<(u64, String, String)> {
    let [task] = data.as_array()? else { return None };
    match task.as_array()? {
        [id, state, payload] => Some((id.as_int()? as u64, state.as_text()?, payload.as_text()?)),
        _ => None,
    }
}
