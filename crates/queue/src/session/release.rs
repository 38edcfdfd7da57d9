//! Releases of tasks by the session that owns them: it has ended, an operator asks for its tasks, or its row has vanished.
//!
//! Tasks are released in batches, each in a transaction of its own, as far as the allowance of the turn goes. The next tick does the
//! rest, and after a failure a pause comes first.

use lycosa_store::IteratorType;

use super::{Relief, SessionId, text};
use crate::Caller;
use crate::audit::Steered;
use crate::error::{Error, Result};
use crate::owners::owner::Owner;
use crate::system::{TAKEN_BY_SESSION, rows_after};
use crate::task::{ShortKey, TaskKey, string_key, taken_key};
use crate::turn::{Common, Often, SessionsTurn, TubeTurn, Turn};

impl SessionsTurn<'_> {
    /// An operator releases everything that the session of a connection has taken before, in slices; the session goes on. The
    /// audit log has an entry. False: the connection has no session.
    pub(crate) fn release(&mut self, caller: &Caller, connection: u64, entry: &Steered<'_>) -> Result<bool> {
        let Some(session) = self.turn.common.sessions.of(connection) else { return Ok(false) };
        if self.turn.store.in_transaction() {
            return Err(Error::InTransaction("release"));
        }
        self.turn.transact(|turn| turn.audit().note(caller, entry))?;
        self.turn.common.sessions.reliefs.push_back(Relief { session, before: self.turn.now, after: None });
        self.release_at_once();
        self.turn.waiters().serve();
        Ok(true)
    }

    /// Nothing is released before the pause is over.
    pub(super) fn hold_off(&mut self, what: &str, error: &Error) {
        self.turn.common.log_failure(what, error);
        self.turn.common.sessions.retry_at = self.turn.now + Turn::RETRY;
    }

    /// Releases tasks of closing sessions as far as the allowance goes; the next tick does the rest.
    pub(crate) fn release_at_once(&mut self) {
        if !self.turn.common.is_running() {
            return;
        }
        let allowance = self.turn.common.allowance;
        self.turn.common.allowance = allowance.saturating_sub(self.release_closing(allowance));
    }

    /// Releases tasks of closing sessions and tasks without an owner, at most `budget`. Returns how many were looked at.
    pub(crate) fn release_closing(&mut self, budget: usize) -> usize {
        let mut done = self.release_disowned(budget);
        while done < budget
            && self.turn.common.sessions.retry_at <= self.turn.now
            && let Some(&session) = self.turn.common.sessions.closing.front()
        {
            let batch = (budget - done).min(Turn::BATCH);
            match self.turn.transact(|turn| turn.sessions().release_tasks(&session, batch)) {
                Ok(count) => {
                    done += count;
                    if count < batch {
                        self.turn.common.sessions.closing.pop_front();
                    }
                }
                Err(error) => self.hold_off("release of a closed session's tasks", &error),
            }
        }
        done + self.relieve(budget.saturating_sub(done))
    }

    /// Goes on with the release of what sessions hold that go on. Returns how many owners were looked at.
    fn relieve(&mut self, budget: usize) -> usize {
        let mut done = 0;
        while done < budget
            && self.turn.common.sessions.retry_at <= self.turn.now
            && let Some(mut relief) = self.turn.common.sessions.reliefs.front().copied()
        {
            let batch = (budget - done).min(Turn::BATCH);
            match self.turn.transact(|turn| turn.sessions().relieve_some(&mut relief, batch)) {
                Ok((count, is_over)) => {
                    done += count;
                    let reliefs = &mut self.turn.common.sessions.reliefs;
                    if is_over { _ = reliefs.pop_front() } else { reliefs[0] = relief }
                }
                Err(error) => self.hold_off("release of what a session holds", &error),
            }
        }
        done
    }

    /// Runs a slice of `relief`. Returns the number of owners looked at, and whether the relief is over. Cached owners come
    /// first: an owner that is written back meanwhile is met by the walk over the rows.
    fn relieve_some(&mut self, relief: &mut Relief, limit: usize) -> Result<(usize, bool)> {
        let Relief { session, before, .. } = *relief;
        let line = |(_, id): TaskKey| {
            move |name: &str| format!("release task {id}({name}) of session {}, as was asked", text(&session))
        };
        let cached = self.turn.common.owners.cached_of(&session, before, limit);
        if !cached.is_empty() {
            cached.iter().try_for_each(|&task| self.release_owned(task, line(task)))?;
            return Ok((cached.len(), false));
        }
        let after = relief.after.map(|task| ShortKey::numbers(&[task.0, task.1]));
        let owners = rows_after(self.turn.store, self.turn.common.spaces.taken, 0, after.as_deref(), limit)?;
        for row in &owners {
            let Some(task) = taken_key(row) else { continue };
            relief.after = Some(task);
            if Owner::read(row).is_some_and(|owner| owner.session == session && owner.moment < before) {
                self.release_owned(task, line(task))?;
            }
        }
        Ok((owners.len(), owners.len() < limit))
    }

    /// Releases tasks whose owner's row has vanished, or names a session that does not exist. A program has changed
    /// `_queue_taken_2` by other ways than the queue's functions; a task that no session can finish must not stay taken.
    fn release_disowned(&mut self, budget: usize) -> usize {
        let mut done = 0;
        while done < budget && self.turn.common.sessions.retry_at <= self.turn.now {
            let disowned = &self.turn.common.sessions.disowned;
            let tasks: Vec<_> = disowned.iter().take((budget - done).min(Turn::BATCH)).copied().collect();
            if tasks.is_empty() {
                break;
            }
            let release = |turn: &mut Turn<'_>| {
                tasks.iter().try_for_each(|&task| turn.sessions().release_if_disowned(task))
            };
            match self.turn.transact(release) {
                Ok(()) => {
                    done += tasks.len();
                    self.turn.common.sessions.disowned.drain(..tasks.len());
                }
                Err(error) => self.hold_off("release of tasks without an owner", &error),
            }
        }
        done
    }

    fn release_if_disowned(&mut self, task: TaskKey) -> Result<()> {
        if let Some(session) = self.turn.common.owners.session_of(self.turn.store, task)?
            && (self.turn.common.is_known(self.turn.store, &session)?
                || self.turn.common.sessions.closing.contains(&session))
        {
            return Ok(());
        }
        let is_leased = self.turn.common.owners.leases.of(self.turn.store, task)?.is_some();
        if is_leased || self.turn.tubes.by_id(task.0).is_none() {
            return Ok(());
        }
        let id = task.1;
        self.release_owned(task, |name| {
            format!("the owner of task {id}({name}) is gone from _queue_taken_2 or _lycosa_leases, release")
        })
    }

    fn release_tasks(&mut self, session: &SessionId, batch: usize) -> Result<usize> {
        let mut count = 0;
        let space = self.turn.common.spaces.taken;
        let line = |(_, id): TaskKey| {
            move |name: &str| format!("Session {} closed, release task {id}({name})", text(session))
        };
        let key = string_key(session);
        // Each look would search the deferred entries again, a millisecond for a thousand of them.
        self.turn.store.read(space, TAKEN_BY_SESSION, 0)?;
        while count < batch {
            let row = self.turn.store.first(space, TAKEN_BY_SESSION, IteratorType::Eq, &key)?;
            let Some(task) = row.and_then(taken_key) else { break };
            count += 1;
            self.release_owned(task, line(task))?;
        }
        for task in self.turn.common.owners.cached_of(session, u64::MAX, batch - count) {
            count += 1;
            self.release_owned(task, line(task))?;
        }
        Ok(count)
    }

    /// Releases a task that has lost its owner, and logs a line about it. The owner is forgotten even if the task is gone.
    fn release_owned(&mut self, task: TaskKey, line: impl FnOnce(&str) -> String) -> Result<()> {
        let Common { owners, pending, .. } = &mut *self.turn.common;
        owners.forget(self.turn.store, pending, task)?;
        let Some(index) = self.turn.tubes.by_id(task.0) else { return Ok(()) };
        let mut tube = self.turn.tube(index)?;
        if tube.release_disowned(task.1)? {
            let TubeTurn { common, tube, now, .. } = tube;
            common.log_often(Often::Release, now, || line(&tube.name));
        }
        Ok(())
    }
}
