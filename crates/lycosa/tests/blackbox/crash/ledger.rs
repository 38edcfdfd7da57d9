//! The clients' account: what the server has acknowledged, and what it may have done without saying so.

use std::collections::{HashMap, HashSet};

/// A task's row as the server shows it after a start.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) state: String,
    pub(super) payload: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Buried {
    No,
    /// A bury was sent; its reply has not come.
    Perhaps,
    Yes,
}

#[derive(Debug)]
struct Task {
    payload: String,
    lane: Option<String>,
    buried: Buried,
}

/// Shared by all workers. A change is entered *before* the request that gives something up is sent, and *after* the
/// reply that gains something, so that what two entries contradict the server has contradicted.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Must be there.
    here: HashMap<u64, Task>,
    /// An ack or delete was sent; its reply has not come.
    perhaps_gone: HashMap<u64, Task>,
    /// An ack or delete was acknowledged.
    gone: HashSet<u64>,
    /// Payloads (with their lanes) whose put was sent; its reply has not come.
    perhaps_put: HashMap<String, Option<String>>,
    owners: HashMap<u64, usize>,
    /// Taken tasks by sub-queue.
    lanes: HashMap<String, u64>,
    acknowledged: u64,
    in_doubt: u64,
    /// The disk may fail, and requests be refused for that.
    pub(super) may_refuse: bool,
    /// Requests that were.
    pub(super) refused: u64,
    /// What a worker found first. Its connection closes with it, which sets its tasks free: what others find afterwards
    /// may be no more than that.
    pub(super) contradiction: Option<String>,
}

impl Ledger {
    /// Operations that the server has acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    pub(super) fn before_put(&mut self, payload: &str, lane: Option<&str>) {
        self.perhaps_put.insert(payload.to_owned(), lane.map(str::to_owned));
    }

    pub(super) fn after_put(&mut self, id: u64, payload: &str) -> Result<(), String> {
        self.acknowledged += 1;
        // Absent if another worker took the task before this reply was read.
        match self.perhaps_put.remove(payload) {
            Some(lane) => self.record(id, payload, lane),
            None => Ok(()),
        }
    }

    /// A task that the account did not know by its id.
    fn record(&mut self, id: u64, payload: &str, lane: Option<String>) -> Result<(), String> {
        if self.gone.contains(&id) || self.perhaps_gone.contains_key(&id) {
            return Err(format!("id {id} was given out again, for {payload}"));
        }
        let task = Task { payload: payload.to_owned(), lane, buried: Buried::No };
        match self.here.insert(id, task) {
            Some(other) => Err(format!("id {id} was given to {} and to {payload}", other.payload)),
            None => Ok(()),
        }
    }

    pub(super) fn after_take(&mut self, id: u64, payload: &str, worker: usize) -> Result<(), String> {
        self.acknowledged += 1;
        if !self.here.contains_key(&id) {
            let lane = self.perhaps_put.remove(payload);
            let lane = lane.ok_or_else(|| format!("task {id} ({payload}) was finished and came back"))?;
            self.record(id, payload, lane)?;
        }
        let task = &self.here[&id];
        if task.payload != payload {
            return Err(format!("task {id} was put as {} and taken as {payload}", task.payload));
        }
        if task.buried != Buried::No {
            return Err(format!("task {id} is buried and was taken"));
        }
        if let Some(other) = self.owners.insert(id, worker) {
            return Err(format!("task {id} is owned by workers {other} and {worker}"));
        }
        if let Some(lane) = &task.lane
            && let Some(other) = self.lanes.insert(lane.clone(), id)
        {
            return Err(format!("tasks {other} and {id} of sub-queue {lane} are taken at once"));
        }
        Ok(())
    }

    /// Before a release, and first of all before what ends a task.
    pub(super) fn give_up(&mut self, id: u64) {
        self.owners.remove(&id);
        if let Some(lane) = self.here.get(&id).and_then(|task| task.lane.as_ref())
            && self.lanes.get(lane) == Some(&id)
        {
            self.lanes.remove(lane);
        }
    }

    /// Before an ack or a delete.
    pub(super) fn before_end(&mut self, id: u64) {
        self.give_up(id);
        if let Some(task) = self.here.remove(&id) {
            self.perhaps_gone.insert(id, task);
        }
    }

    pub(super) fn after_end(&mut self, id: u64) {
        self.acknowledged += 1;
        self.perhaps_gone.remove(&id);
        self.gone.insert(id);
    }

    pub(super) fn before_bury(&mut self, id: u64) {
        self.give_up(id);
        self.set_buried(id, Buried::Perhaps);
    }

    pub(super) fn after_bury(&mut self, id: u64) {
        self.acknowledged += 1;
        self.set_buried(id, Buried::Yes);
    }

    pub(super) fn after_release(&mut self) {
        self.acknowledged += 1;
    }

    fn set_buried(&mut self, id: u64, buried: Buried) {
        if let Some(task) = self.here.get_mut(&id) {
            task.buried = buried;
        }
    }

    /// Before the delete of a task that is surely buried, if there is one; no other worker will choose it.
    pub(super) fn before_delete_of_buried(&mut self) -> Option<u64> {
        let id = self.here.iter().find(|(_, task)| task.buried == Buried::Yes).map(|(id, _)| *id)?;
        self.before_end(id);
        Some(id)
    }

    /// Compares with the server's data after a start, and makes doubtful operations certain.
    pub(super) fn reconcile(&mut self, rows: &HashMap<u64, Row>, delays: bool) -> Result<(), String> {
        self.owners.clear();
        self.lanes.clear();
        self.in_doubt += (self.perhaps_gone.len() + self.perhaps_put.len()) as u64;
        for (id, task) in &mut self.here {
            let row = rows.get(id).ok_or_else(|| format!("task {id} ({}) is lost", task.payload))?;
            if row.payload != task.payload {
                return Err(format!("task {id} was put as {} and is {}", task.payload, row.payload));
            }
            let wanted: &[&str] = match (task.buried, delays) {
                (Buried::Yes, _) => &["!"],
                (Buried::Perhaps, false) => &["!", "r"],
                (Buried::No, false) => &["r"],
                (Buried::Perhaps, true) => &["!", "r", "~"],
                (Buried::No, true) => &["r", "~"],
            };
            if !wanted.contains(&row.state.as_str()) {
                return Err(format!("task {id} is in state {}, wanted one of {wanted:?}", row.state));
            }
            task.buried = if row.state == "!" { Buried::Yes } else { Buried::No };
        }
        for (id, task) in std::mem::take(&mut self.perhaps_gone) {
            match rows.get(&id) {
                Some(row) if row.payload != task.payload => {
                    return Err(format!("task {id} was put as {} and is {}", task.payload, row.payload));
                }
                Some(row) => {
                    let buried = if row.state == "!" { Buried::Yes } else { Buried::No };
                    self.here.insert(id, Task { buried, ..task });
                }
                None => {
                    self.gone.insert(id);
                }
            }
        }
        for (id, row) in rows.iter().filter(|(id, _)| !self.here.contains_key(id)).collect::<Vec<_>>() {
            if self.gone.contains(id) {
                return Err(format!("task {id} ({}) was finished and is there again", row.payload));
            }
            let lane = self.perhaps_put.remove(&row.payload);
            let lane = lane.ok_or_else(|| format!("nobody put task {id} ({})", row.payload))?;
            self.record(*id, &row.payload, lane)?;
        }
        self.perhaps_put.clear();
        Ok(())
    }

    /// All that was buried is ready again.
    pub(super) fn kicked(&mut self) {
        self.here.values_mut().for_each(|task| task.buried = Buried::No);
    }

    pub(super) fn summary(&self) -> String {
        let Ledger { here, gone, acknowledged, in_doubt, .. } = self;
        format!(
            "{acknowledged} operations acknowledged, {in_doubt} in doubt, {} tasks finished, {} left",
            gone.len(),
            here.len()
        )
    }
}
