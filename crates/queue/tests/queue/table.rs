//! A tube as a plain table: what an operation, a moment or the end of a session makes of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::rig::SECOND;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Fifo,
    FifoTtl,
    LimFifoTtl,
    Utube,
    UtubeTtl,
}

pub(crate) const CAPACITY: usize = 4;
pub(crate) const FOREVER: u64 = 3_153_600_000 * SECOND;

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::FifoTtl => "fifottl",
            Self::LimFifoTtl => "limfifottl",
            Self::Utube => "utube",
            Self::UtubeTtl => "utubettl",
        }
    }

    pub(crate) fn timed(self) -> bool {
        !matches!(self, Self::Fifo | Self::Utube)
    }

    pub(crate) fn sub_queues(self) -> bool {
        matches!(self, Self::Utube | Self::UtubeTtl)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Task {
    pub(crate) status: char,
    pub(crate) next_event: u64,
    pub(crate) ttl: u64,
    pub(crate) ttr: u64,
    pub(crate) pri: u64,
    pub(crate) created: u64,
    pub(crate) utube: String,
    pub(crate) data: u64,
    pub(crate) owner: Option<u64>,
}

impl Task {
    pub(crate) fn death(&self) -> u64 {
        self.created + self.ttl
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wanted {
    Task,
    Tasks(u64),
    Room(Box<Task>),
    RoomForMany(Vec<Task>),
}

impl Wanted {
    pub(crate) fn is_take(&self) -> bool {
        matches!(self, Self::Task | Self::Tasks(_))
    }

    fn is_batch_of_puts(&self) -> bool {
        matches!(self, Self::RoomForMany(_))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) token: u64,
    pub(crate) connection: u64,
    pub(crate) deadline: u64,
    pub(crate) wanted: Wanted,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expected {
    Task(u64, char, u64),
    Tasks(Vec<(u64, char, u64)>),
    Nothing,
    Null,
    Number(u64),
    NotTaken,
    /// One of a batch was not taken.
    NotTakenAmong(u64),
    BeyondCapacity,
    NotFound,
    NoTouch,
    Parked,
}

impl Expected {
    /// The task of an answer that is one.
    pub(crate) fn task(self) -> (u64, char, u64) {
        match self {
            Self::Task(id, status, data) => (id, status, data),
            other => panic!("no task: {other:?}"),
        }
    }
}

pub(crate) struct Model {
    pub(crate) kind: Kind,
    pub(crate) ttr: u64,
    pub(crate) now: u64,
    pub(crate) tasks: BTreeMap<u64, Task>,
    pub(crate) next_id: u64,
    /// Ids below it are handed out, or would not be after a restart.
    pub(crate) reserved: u64,
    pub(crate) counts: HashMap<&'static str, u64>,
    pub(crate) done: u64,
    pub(crate) waiters: VecDeque<Waiter>,
    pub(crate) woken: HashMap<u64, Expected>,
    pub(crate) sessions: HashMap<u64, u64>,
    pub(crate) expiring: BTreeSet<(u64, u64)>,
    pub(crate) last_session: u64,
}

impl Model {
    pub(crate) fn count(&mut self, operation: &'static str) {
        *self.counts.entry(operation).or_default() += 1;
        if matches!(operation, "ack" | "delete") {
            self.done += 1;
        }
    }

    pub(crate) fn session(&mut self, connection: u64) -> u64 {
        let last = &mut self.last_session;
        *self.sessions.entry(connection).or_insert_with(|| {
            *last += 1;
            *last
        })
    }

    pub(crate) fn is_busy(&self, utube: &str) -> bool {
        self.kind.sub_queues() && self.tasks.values().any(|task| task.status == 't' && task.utube == utube)
    }

    pub(crate) fn order(&self, id: u64) -> (u64, u64) {
        (if self.kind.timed() { self.tasks[&id].pri } else { 0 }, id)
    }

    pub(crate) fn in_state(&self, status: char) -> Vec<u64> {
        let mut ids: Vec<_> =
            self.tasks.iter().filter(|(_, task)| task.status == status).map(|(id, _)| *id).collect();
        ids.sort_by_key(|id| self.order(*id));
        ids
    }

    pub(crate) fn next(&self) -> Option<u64> {
        self.in_state('r').into_iter().find(|id| !self.is_busy(&self.tasks[id].utube))
    }

    pub(crate) fn remove(&mut self, id: u64, operation: &'static str) -> Task {
        self.count(operation);
        if operation == "ttl" {
            self.count("delete");
        }
        self.tasks.remove(&id).expect("a task")
    }

    pub(crate) fn put(&mut self, task: Task) -> Expected {
        let id = self.next_id;
        self.next_id += 1;
        if id >= self.reserved {
            self.reserved = id + 1000;
        }
        self.count("put");
        let (status, data) = (task.status, task.data);
        self.tasks.insert(id, task);
        Expected::Task(id, status, data)
    }

    pub(crate) fn take(&mut self, connection: u64) -> Option<Expected> {
        loop {
            let id = self.next()?;
            let now = self.now;
            if self.kind.timed() && self.tasks[&id].death() <= now {
                self.remove(id, "ttl");
                continue;
            }
            let session = self.session(connection);
            self.count("take");
            let task = self.tasks.get_mut(&id).expect("a task");
            task.status = 't';
            task.owner = Some(session);
            task.next_event = (now + task.ttr).min(task.death());
            return Some(Expected::Task(id, 't', task.data));
        }
    }

    /// Everything but take and put: the new state of a task.
    pub(crate) fn change(&mut self, id: u64, status: char, operation: &'static str, delay: u64) -> Expected {
        self.count(operation);
        let (now, timed) = (self.now, self.kind.timed());
        let task = self.tasks.get_mut(&id).expect("a task");
        task.status = status;
        task.owner = None;
        if timed && delay > 0 {
            task.status = '~';
            task.next_event = now + delay;
            task.ttl += delay;
        } else if operation != "kick" {
            task.next_event = task.death();
        }
        Expected::Task(id, task.status, task.data)
    }

    pub(crate) fn owned(&self, connection: u64, id: u64) -> bool {
        let owner = self.tasks.get(&id).and_then(|task| task.owner);
        owner.is_some() && owner == self.sessions.get(&connection).copied()
    }

    fn has_room(&self, tasks: usize) -> bool {
        self.kind != Kind::LimFifoTtl || self.tasks.len() + tasks <= CAPACITY
    }

    /// Whether `tasks` more tasks fit, and no batch of puts waits before them.
    pub(crate) fn may_put(&self, tasks: usize) -> bool {
        let first = self.waiters.iter().find(|waiter| !waiter.wanted.is_take());
        self.has_room(tasks) && !first.is_some_and(|first| first.wanted.is_batch_of_puts())
    }

    /// The answer of a `put_many` of these tasks.
    pub(crate) fn put_many(&mut self, tasks: Vec<Task>) -> Expected {
        Expected::Tasks(tasks.into_iter().map(|task| self.put(task).task()).collect())
    }

    /// The tasks that up to `limit` takes return, until one finds none.
    pub(crate) fn take_many(&mut self, connection: u64, limit: u64) -> Vec<(u64, char, u64)> {
        (0..limit).map_while(|_| self.take(connection)).map(Expected::task).collect()
    }

    /// The first of the ids that a call for it alone, after those before it, would be refused for.
    pub(crate) fn first_not_owned(&self, connection: u64, ids: &[u64]) -> Option<u64> {
        let refused =
            |(place, id): &(usize, &u64)| !self.owned(connection, **id) || ids[..*place].contains(id);
        ids.iter().enumerate().find(refused).map(|(_, id)| *id)
    }

    /// Serves waiting calls.
    pub(crate) fn serve(&mut self) {
        // A take that finds nothing may have removed dead tasks, and so freed capacity.
        while self.serve_put() || self.serve_take() || self.serve_put() {}
    }

    fn serve_put(&mut self) -> bool {
        let put = self.waiters.iter().position(|waiter| !waiter.wanted.is_take());
        let Some(place) = put else { return false };
        let tasks =
            if let Wanted::RoomForMany(tasks) = &self.waiters[place].wanted { tasks.len() } else { 1 };
        if !self.has_room(tasks) {
            return false;
        }
        let waiter = self.waiters.remove(place).expect("a waiter");
        let now = self.now;
        let put_now = |mut task: Task| {
            task.next_event += now - task.created;
            task.created = now;
            task
        };
        let answer = match waiter.wanted {
            Wanted::Room(task) => self.put(put_now(*task)),
            Wanted::RoomForMany(tasks) => self.put_many(tasks.into_iter().map(put_now).collect()),
            Wanted::Task | Wanted::Tasks(_) => unreachable!("a take"),
        };
        self.woken.insert(waiter.token, answer);
        true
    }

    fn serve_take(&mut self) -> bool {
        let take = self.waiters.iter().position(|waiter| waiter.wanted.is_take());
        let Some(place) = take else { return false };
        let connection = self.waiters[place].connection;
        let answer = match self.waiters[place].wanted {
            Wanted::Tasks(limit) => {
                Some(self.take_many(connection, limit)).filter(|tasks| !tasks.is_empty()).map(Expected::Tasks)
            }
            _ => self.take(connection),
        };
        let Some(answer) = answer else { return false };
        let waiter = self.waiters.remove(place).expect("a waiter");
        self.woken.insert(waiter.token, answer);
        true
    }

    pub(crate) fn close(&mut self, session: u64) {
        let held: Vec<_> =
            self.tasks.iter().filter(|(_, task)| task.owner == Some(session)).map(|(id, _)| *id).collect();
        for id in held {
            self.change(id, 'r', "release", 0);
        }
    }

    pub(crate) fn leave(&mut self, connection: u64) {
        let Some(session) = self.sessions.remove(&connection) else { return };
        if self.sessions.values().any(|other| *other == session) {
            return;
        }
        if self.ttr > 0 {
            self.expiring.insert((self.now + self.ttr, session));
        } else {
            self.close(session);
        }
    }

    pub(crate) fn next_moment(&self) -> Option<u64> {
        let tasks = self.tasks.values().filter(|_| self.kind.timed()).map(|task| task.next_event);
        let waiters = self.waiters.iter().map(|waiter| waiter.deadline);
        tasks.chain(waiters).chain(self.expiring.iter().map(|(moment, _)| *moment)).min()
    }

    /// What of the tasks is due, until nothing is. False if nothing was.
    pub(crate) fn expire(&mut self) -> bool {
        let now = self.now;
        let mut any = false;
        while self.kind.timed() {
            let due = |model: &Self, status| -> Vec<u64> {
                let tasks = model.tasks.iter();
                tasks.filter(|(_, t)| t.status == status && t.next_event <= now).map(|(id, _)| *id).collect()
            };
            let mut idle = true;
            for (status, operation) in [('~', "delay"), ('r', "ttl"), ('!', "ttl"), ('t', "ttr")] {
                for id in due(self, status) {
                    idle = false;
                    if operation != "ttl" {
                        self.change(id, 'r', operation, 0);
                    } else if self.tasks[&id].death() <= now {
                        self.remove(id, "ttl");
                    } else {
                        let task = self.tasks.get_mut(&id).expect("a task");
                        task.next_event = task.death();
                    }
                }
            }
            if idle {
                break;
            }
            any = true;
        }
        any
    }

    pub(crate) fn tick(&mut self) {
        let now = self.now;
        while self.expire() {
            self.serve();
        }
        self.serve();
        while let Some(&(moment, session)) = self.expiring.first().filter(|(moment, _)| *moment <= now) {
            self.expiring.remove(&(moment, session));
            self.close(session);
        }
        self.serve();
        let (over, left) = self.waiters.drain(..).partition(|waiter: &Waiter| waiter.deadline <= now);
        self.waiters = left;
        for waiter in Vec::from(over as VecDeque<Waiter>) {
            let answer = match waiter.wanted {
                Wanted::Task => Expected::Nothing,
                Wanted::Tasks(_) => Expected::Tasks(Vec::new()),
                Wanted::Room(_) | Wanted::RoomForMany(_) => Expected::Null,
            };
            self.woken.insert(waiter.token, answer);
        }
        self.serve();
    }

    pub(crate) fn advance(&mut self, duration: u64) {
        let end = self.now + duration;
        while let Some(moment) = self.next_moment().filter(|moment| *moment <= end) {
            self.now = self.now.max(moment);
            self.tick();
        }
        self.now = end;
        self.tick();
    }
}
