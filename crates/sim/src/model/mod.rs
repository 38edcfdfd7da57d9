//! The queue as it ought to be, written down as plainly as possible.
//!
//! The model gets the inputs of the instance: requests in the order in which they are handled, the times of ticks,
//! the ends of connections. It says what clients must be answered and what the spaces must hold afterwards. It looks
//! through everything for everything, and knows nothing of indexes, transactions, journals or bytes of the protocol.
//!
//! What follows from it when instance and model agree: a task has one owner at a time, and a sub-queue at most one
//! taken task. A waiting call is served in its turn and only with what it may have. An id is handed out once. A
//! deadline fires at the first tick that is not before it and never earlier.
//!
//! Absent: errors for want of memory, space or rights, the limits of a connection, and the budget of a tick, which runs keep
//! clear of.

mod answer;
mod jobs;
mod repeat;
mod session;
mod tube;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use lycosa_queue::Operation;
use lycosa_tuple::mp;

pub(crate) use answer::{Answer, ExtendedTask};
pub(crate) use jobs::{Job, Jobs, Kept, State as JobState};
pub(crate) use session::{Session, SessionKey};
pub(crate) use tube::{Attempts, Fields, LONGEST, Lease, LeaseKey, NEVER, Owner, Task, Tube, data_field};

use crate::keyed::KeptAnswer;
use crate::plan::{Plan, TubePlan};
use crate::request::{Payload, PutOptions, Request, RowChange, Settlement, Span};
use crate::shared::Shared;
use crate::worker::{Form, TakeOptions};
use tube::{Waiter, Wanted};

/// A call: its connection's number and its sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token {
    pub(crate) connection: u64,
    pub(crate) sync: u64,
}

/// Everything that the queue knows. Copies are cheap: a world keeps one for each moment that a start may end with.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    plans: Rc<[TubePlan]>,
    /// By number in the plan.
    pub(crate) tubes: BTreeMap<usize, Shared<Tube>>,
    pub(crate) sessions: BTreeMap<SessionKey, Session>,
    /// Connections that have a session.
    pub(crate) connections: BTreeMap<u64, SessionKey>,
    pub(crate) last_session: u32,
    pub(crate) last_lease: u32,
    pub(crate) jobs: Shared<Jobs>,
    /// Kept answers of puts with keys, by key.
    pub(crate) answers: Shared<BTreeMap<u64, KeptAnswer>>,
    /// Connections of `admin`; all others are `guest`'s.
    pub(crate) admins: BTreeSet<u64>,
    /// How long a session outlives its last connection.
    ttr: Span,
    configured_ttr: Span,
    in_replicaset: bool,
    /// The last repetition of each take that was made again, by session and name.
    repetitions: BTreeMap<(SessionKey, u64), u64>,
    woken: Vec<(Token, Answer)>,
}

impl Model {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            plans: plan.tubes.clone().into(),
            tubes: BTreeMap::new(),
            sessions: BTreeMap::new(),
            connections: BTreeMap::new(),
            last_session: 0,
            last_lease: 0,
            jobs: Shared::default(),
            answers: Shared::default(),
            admins: BTreeSet::new(),
            ttr: plan.session_ttr,
            configured_ttr: plan.session_ttr,
            in_replicaset: plan.in_replicaset,
            repetitions: BTreeMap::new(),
            woken: Vec::new(),
        }
    }

    /// The part that is left after the process has ended.
    pub(crate) fn end_process(&mut self) {
        self.connections.clear();
        self.admins.clear();
        self.woken.clear();
        self.repetitions.clear();
        self.jobs.restart();
        self.ttr = self.configured_ttr;
        if !self.in_replicaset {
            self.sessions.clear();
        }
        for tube in self.tubes.values_mut() {
            tube.restart();
            if !self.in_replicaset {
                tube.tasks.values_mut().for_each(|task| task.owner = None);
            }
        }
    }

    /// The queue comes up on recovered data. Returns how many tasks it found without an owner.
    pub(crate) fn start(&mut self, now: u64) -> u64 {
        let mut released = 0;
        for tube in self.tubes.values_mut() {
            for id in tube.in_state('t') {
                let Task { owner, lease, .. } = tube.tasks[&id];
                if lease.is_none() && owner.is_none_or(|owner| !self.sessions.contains_key(&owner.session)) {
                    tube.release(id, None, now);
                    released += 1;
                }
            }
        }
        let sessions: Vec<SessionKey> = self.sessions.keys().copied().collect();
        for key in sessions {
            if self.ttr.0 == 0 {
                self.close(key, now);
            } else if let Some(session) = self.sessions.get_mut(&key) {
                session.expires.get_or_insert(now + self.ttr.0);
            }
        }
        self.tubes.values_mut().for_each(|tube| tube.correct_events());
        self.serve(now);
        released
    }

    /// Answers of calls that were waiting.
    pub(crate) fn take_woken(&mut self) -> Vec<(Token, Answer)> {
        std::mem::take(&mut self.woken)
    }

    /// Does what a request asks; `None`: the call waits.
    pub(crate) fn request(&mut self, token: Token, request: &Request, now: u64) -> Option<Answer> {
        let answer = self.answer(token, request, now);
        self.serve(now);
        answer
    }

    fn answer(&mut self, token: Token, request: &Request, now: u64) -> Option<Answer> {
        let connection = token.connection;
        Some(match *request {
            Request::Ping => Answer::nothing(),
            Request::Malformed { .. } => Answer::AnyFailure,
            Request::Snapshot => Answer::Snapshot,
            Request::Configure { ttr } => {
                self.ttr = ttr;
                Answer::nothing()
            }
            Request::Identify { .. } => unreachable!("the id of a session has to be translated first"),
            Request::Create { tube } => self.create(tube),
            Request::Statistics { tube } => {
                self.tubes.get(&tube).map_or_else(Answer::nothing_to_index, |tube| tube.statistics())
            }
            Request::Row { tube, id, ref change, .. } => self.change_row(tube, id, change),
            Request::Take { tube, timeout, options } => {
                return self.take_or_wait(token, tube, (timeout, options), now);
            }
            Request::TakeMany { tube, limit, timeout, options } => {
                return self.take_many_or_wait(token, tube, limit, (timeout, options), now);
            }
            Request::Settle { .. } => unreachable!("the token of a lease has to be translated first"),
            Request::Put { tube, ref data, ref options } => {
                return self.put_or_wait(token, tube, data, options, now);
            }
            Request::PutMany { tube, ref data, ref options } => {
                return self.put_many_or_wait(token, tube, data, options, now);
            }
            Request::AckMany { tube, ref ids } => {
                self.each_owned(connection, tube, ids, "ack_many", |tube, id| tube.remove(id, Operation::Ack))
            }
            Request::ReleaseMany { tube, ref ids, delay, remark } => {
                self.each_owned(connection, tube, ids, "release_many", |tube, id| {
                    tube.give_back(id, (delay, remark), now)
                })
            }
            Request::Drop { tube } => self.drop_tube(tube, now),
            Request::Ack { tube, id } => {
                self.with_owned(connection, tube, id, "ack", |tube| tube.remove(id, Operation::Ack))
            }
            Request::Release { tube, id, delay, remark } => {
                self.with_owned(connection, tube, id, "release", |tube| {
                    tube.give_back(id, (delay, remark), now)
                })
            }
            Request::Touch { tube, id, delta } => self.touch(connection, tube, id, delta, now),
            Request::Bury { tube, id, remark } => self.with_tube(tube, "bury", |tube| {
                tube.bury(id, remark, now).unwrap_or_else(|| Answer::not_found(id))
            }),
            Request::Delete { tube, id } => self.with_tube(tube, "delete", |tube| {
                tube.remove(id, Operation::Delete).unwrap_or_else(|| Answer::not_found(id))
            }),
            Request::Peek { tube, id, is_extended } => self.with_tube(tube, "peek", |tube| {
                tube.shown(id, is_extended).unwrap_or_else(|| Answer::not_found(id))
            }),
            Request::Kick { tube, count } => self.with_tube(tube, "kick", |tube| kick(tube, count)),
            Request::ReleaseAll { tube } => {
                self.with_tube(tube, "release_all", |tube| release_all(tube, now))
            }
            Request::Pause { tube, paused } => self.set_paused(tube, paused),
            Request::Truncate { tube } => self.truncate(tube, now),
            Request::Steer { tube, ref what } => self.steer(tube, what, now),
        })
    }

    fn missing(&self, tube: usize, method: &str) -> Answer {
        Answer::no_procedure(&format!("queue.tube.{}:{method}", self.plans[tube].name))
    }

    fn with_tube(&mut self, tube: usize, method: &str, act: impl FnOnce(&mut Tube) -> Answer) -> Answer {
        match self.tubes.get_mut(&tube) {
            Some(tube) => act(tube),
            None => self.missing(tube, method),
        }
    }

    fn owns(&self, connection: u64, tube: usize, id: u64) -> bool {
        let task = self.tubes.get(&tube).and_then(|tube| tube.tasks.get(&id));
        let owner = task.and_then(|task| task.owner).map(|owner| owner.session);
        owner.is_some() && owner == self.connections.get(&connection).copied()
    }

    fn with_owned(
        &mut self,
        connection: u64,
        tube: usize,
        id: u64,
        method: &str,
        act: impl FnOnce(&mut Tube) -> Option<Answer>,
    ) -> Answer {
        let owns = self.owns(connection, tube, id);
        self.with_tube(tube, method, |tube| match owns {
            true => act(tube).unwrap_or_else(|| Answer::not_found(id)),
            false => Answer::not_taken(),
        })
    }

    /// Does something to all tasks, or to none if one of them is not the caller's when its turn comes.
    fn each_owned(
        &mut self,
        connection: u64,
        number: usize,
        ids: &[u64],
        method: &str,
        act: impl Fn(&mut Tube, u64) -> Option<Answer>,
    ) -> Answer {
        let Some(before) = self.tubes.get(&number).cloned() else { return self.missing(number, method) };
        let mut done = Vec::new();
        for &id in ids {
            match self.with_owned(connection, number, id, method, |tube| act(tube, id)) {
                task @ Answer::Values { .. } => done.push(task),
                refused => {
                    self.tubes.insert(number, before);
                    return Answer::in_batch(id, refused);
                }
            }
        }
        Answer::tasks(&done)
    }

    fn touch(&mut self, connection: u64, tube: usize, id: u64, delta: Span, now: u64) -> Answer {
        let session = self.connections.get(&connection).copied();
        let owns = self.owns(connection, tube, id);
        self.with_tube(tube, "touch", |tube| match session {
            _ if delta.0 == 0 => Answer::nothing(),
            Some(session) if owns && tube.is_timed() => {
                let owner = Owner { session, connection, since: now, name: None };
                tube.touch(id, delta, owner).unwrap_or_else(|| Answer::not_found(id))
            }
            Some(_) if owns => Answer::no_touch(tube.kind().name()),
            _ => Answer::not_taken(),
        })
    }

    fn set_paused(&mut self, tube: usize, paused: bool) -> Answer {
        self.with_tube(tube, if paused { "pause" } else { "resume" }, |tube| {
            let has_changed = std::mem::replace(&mut tube.paused, paused) != paused;
            Answer::one(|out| mp::write_bool(out, has_changed))
        })
    }

    fn truncate(&mut self, tube: usize, now: u64) -> Answer {
        if let Some(tube) = self.tubes.get(&tube) {
            self.jobs.void(tube.id, now);
        }
        self.with_tube(tube, "truncate", |tube| {
            tube.tasks.clear();
            (tube.next_id, tube.reserved) = (0, 0);
            Answer::nothing()
        })
    }

    fn create(&mut self, number: usize) -> Answer {
        let next = self.tubes.values().map(|tube| tube.id + 1).max().unwrap_or(0);
        let plan = &self.plans[number];
        let tube = self.tubes.entry(number).or_insert_with(|| Shared::new(Tube::new(plan, next)));
        Answer::one(|out| {
            mp::write_map(out, 3);
            for (name, value) in [("name", plan.name.as_str()), ("type", plan.kind.name())] {
                mp::write_str(out, name.as_bytes());
                mp::write_str(out, value.as_bytes());
            }
            mp::write_str(out, b"tube_id");
            mp::write_uint(out, tube.id);
        })
    }

    fn drop_tube(&mut self, number: usize, now: u64) -> Answer {
        let Some(tube) = self.tubes.get(&number) else { return self.missing(number, "drop") };
        if tube.waits(true).is_some() {
            return Answer::has_consumers();
        }
        if tube.tasks.values().any(|task| task.owner.is_some() || task.lease.is_some()) {
            return Answer::has_taken_tasks();
        }
        self.jobs.void(tube.id, now);
        let dropped = self.tubes.remove(&number);
        let waiters = dropped.iter().flat_map(|tube| &tube.waiters);
        self.woken.extend(waiters.map(|waiter| (waiter.token, Answer::no_tube())));
        Answer::one(|out| mp::write_bool(out, true))
    }

    fn take_or_wait(
        &mut self,
        token: Token,
        number: usize,
        (timeout, options): (Option<Span>, TakeOptions),
        now: u64,
    ) -> Option<Answer> {
        if !self.tubes.contains_key(&number) {
            return Some(self.missing(number, "take"));
        }
        if let Some(answer) = self.take(number, token.connection, options, now) {
            return Some(answer);
        }
        let deadline = timeout.map_or(NEVER, |timeout| now + timeout.0);
        if deadline <= now {
            return Some(Answer::nothing());
        }
        self.wait(number, Waiter { token, since: now, deadline, wanted: Wanted::Task(options) });
        None
    }

    fn take_many_or_wait(
        &mut self,
        token: Token,
        number: usize,
        limit: u64,
        (timeout, options): (Option<Span>, TakeOptions),
        now: u64,
    ) -> Option<Answer> {
        if !self.tubes.contains_key(&number) {
            return Some(self.missing(number, "take_many"));
        }
        if limit == 0 {
            return Some(Answer::no_such_limit());
        }
        if let Some(answer) = self.take_many(number, token.connection, (limit, options), now) {
            return Some(answer);
        }
        let deadline = timeout.map_or(NEVER, |timeout| now + timeout.0);
        if deadline <= now {
            return Some(Answer::tasks(&[]));
        }
        self.wait(number, Waiter { token, since: now, deadline, wanted: Wanted::Tasks(limit, options) });
        None
    }

    fn put_or_wait(
        &mut self,
        token: Token,
        number: usize,
        data: &[u8],
        options: &PutOptions,
        now: u64,
    ) -> Option<Answer> {
        let data: Rc<[u8]> = data.into();
        let Some(tube) = self.tubes.get_mut(&number) else { return Some(self.missing(number, "put")) };
        if tube.may_put() {
            return Some(tube.put(&data, options, now));
        }
        let timeout = options.timeout.map_or(0, |timeout| timeout.0);
        if timeout == 0 {
            return Some(Answer::null());
        }
        let wanted = Wanted::Room(data, *options);
        self.wait(number, Waiter { token, since: now, deadline: now + timeout, wanted });
        None
    }

    fn put_many_or_wait(
        &mut self,
        token: Token,
        number: usize,
        data: &[Payload],
        options: &[PutOptions],
        now: u64,
    ) -> Option<Answer> {
        let Some(tube) = self.tubes.get_mut(&number) else { return Some(self.missing(number, "put_many")) };
        let tasks: Rc<[_]> = data
            .iter()
            .zip(options.iter().cycle())
            .map(|(data, options)| (Rc::from(&**data), *options))
            .collect();
        let capacity = tube.plan.capacity;
        if capacity > 0 && tasks.len() as u64 > capacity {
            return Some(Answer::beyond_capacity(tasks.len(), capacity));
        }
        if tasks.is_empty() || (tube.has_room(tasks.len()) && !tube.is_kept_for_batch()) {
            return Some(tube.put_many(&tasks, now));
        }
        let timeout = options.iter().filter_map(|options| options.timeout).max().map_or(0, |span| span.0);
        if timeout == 0 {
            return Some(Answer::null());
        }
        let wanted = Wanted::RoomForMany(tasks);
        self.wait(number, Waiter { token, since: now, deadline: now + timeout, wanted });
        None
    }

    fn wait(&mut self, number: usize, waiter: Waiter) {
        if let Some(tube) = self.tubes.get_mut(&number) {
            tube.waiters.push(waiter);
        }
    }

    /// Gives a connection's session, or a lease, the next task; removes dead ones on the way.
    fn take(&mut self, number: usize, connection: u64, options: TakeOptions, now: u64) -> Option<Answer> {
        loop {
            let tube = self.tubes.get_mut(&number)?;
            let id = tube.next()?;
            if tube.is_dead(id, now) {
                tube.remove(id, Operation::Ttl);
                continue;
            }
            if let Form::Leased(span) = options.form {
                self.last_lease += 1;
                let lease = Lease { key: LeaseKey(self.last_lease), ends: now + span.0, since: now };
                return self.tubes.get_mut(&number)?.lease(id, lease);
            }
            let session = self.session_of(connection);
            let tube = self.tubes.get_mut(&number)?;
            let owner = Owner { session, connection, since: now, name: options.name() };
            return tube.take(id, owner, options.is_extended());
        }
    }

    /// Gives a connection's session the next tasks, up to the limit; `None` if there is none.
    fn take_many(
        &mut self,
        number: usize,
        connection: u64,
        (limit, options): (u64, TakeOptions),
        now: u64,
    ) -> Option<Answer> {
        let taken: Vec<Answer> =
            (0..limit).map_while(|_| self.take(number, connection, options, now)).collect();
        (!taken.is_empty()).then(|| Answer::tasks(&taken))
    }

    /// Serves waiting calls until none can be served.
    pub(crate) fn serve(&mut self, now: u64) {
        let numbers: Vec<usize> = self.tubes.keys().copied().collect();
        for number in numbers {
            self.serve_tube(number, now);
        }
    }

    /// Serves the calls that wait in a tube, one after the other: a put as soon as the tube has a place for it, otherwise a take, each
    /// in the order of arrival. A take that finds only dead tasks removes them, which makes places too.
    fn serve_tube(&mut self, number: usize, now: u64) {
        while self.serve_put(number, now)
            || self.serve_take(number, now)
            || self.tubes.get(&number).is_some_and(|tube| tube.has_room_for_waiter())
        {}
    }

    fn serve_put(&mut self, number: usize, now: u64) -> bool {
        let Some(tube) = self.tubes.get_mut(&number) else { return false };
        let Some(place) = tube.waits(false).filter(|_| tube.has_room_for_waiter()) else { return false };
        let waiter = tube.waiters.remove(place);
        let answer = match &waiter.wanted {
            Wanted::Room(data, options) => tube.put(data, options, now),
            Wanted::RoomForMany(tasks) => tube.put_many(tasks, now),
            Wanted::Task(_) | Wanted::Tasks(..) => unreachable!("these wait in the other line"),
        };
        self.woken.push((waiter.token, answer));
        true
    }

    fn serve_take(&mut self, number: usize, now: u64) -> bool {
        let Some((place, token, limit, options)) = self.first_take(number) else { return false };
        let taken = match limit {
            None => self.take(number, token.connection, options, now),
            Some(limit) => self.take_many(number, token.connection, (limit, options), now),
        };
        let Some(answer) = taken else { return false };
        if let Some(tube) = self.tubes.get_mut(&number) {
            tube.waiters.remove(place);
        }
        self.woken.push((token, answer));
        true
    }

    /// The call that waits longest for tasks: the place, the call, how many it wants if it is one for many, and its options.
    fn first_take(&self, number: usize) -> Option<(usize, Token, Option<u64>, TakeOptions)> {
        let tube = self.tubes.get(&number)?;
        let place = tube.waits(true)?;
        let Waiter { token, wanted, .. } = &tube.waiters[place];
        Some(match wanted {
            Wanted::Tasks(limit, options) => (place, *token, Some(*limit), *options),
            Wanted::Task(options) => (place, *token, None, *options),
            Wanted::Room(..) | Wanted::RoomForMany(_) => unreachable!("these wait in the other line"),
        })
    }

    /// A client changes a row past the queue.
    fn change_row(&mut self, number: usize, id: u64, change: &RowChange) -> Answer {
        let Some(tube) = self.tubes.get_mut(&number) else { return Answer::AnyFailure };
        let kind = tube.kind();
        if let RowChange::Insert(tuple) = change {
            if tube.tasks.contains_key(&id) {
                return Answer::AnyFailure;
            }
            let Some(task) = Task::read(tuple, kind) else { return Answer::AnyFailure };
            tube.tasks.insert(id, task);
            tube.next_id = tube.next_id.max(id + 1);
        }
        let Some(task) = tube.tasks.get_mut(&id) else { return Answer::nothing() };
        match change {
            RowChange::SetData(data) => task.data = (**data).into(),
            RowChange::SetStatus(status) => {
                task.status = *status;
                (task.owner, task.lease) = (None, None);
            }
            RowChange::Delete | RowChange::Select | RowChange::Insert(_) => {}
        }
        let answer = Answer::one(|out| task.write(id, kind, out));
        if *change == RowChange::Delete {
            tube.tasks.remove(&id);
        }
        answer
    }

    /// A client settles, or renews, by the token of a lease. `key`: `None` for a token that no lease ever had.
    pub(crate) fn settle(
        &mut self,
        number: usize,
        (token, key): (&str, Option<LeaseKey>),
        how: Settlement,
        now: u64,
    ) -> Answer {
        let method = match how {
            Settlement::Ack => "ack",
            Settlement::Release(..) => "release",
            Settlement::Bury(_) => "bury",
            Settlement::Renew(_) => "touch",
        };
        let answer = self.with_tube(number, method, |tube| {
            let id = key.and_then(|key| tube.leased(key, now));
            let settled = id.and_then(|id| match how {
                Settlement::Ack => tube.remove(id, Operation::Ack),
                Settlement::Release(delay, remark) => tube.give_back(id, (delay, remark), now),
                Settlement::Bury(remark) => tube.bury(id, remark, now),
                Settlement::Renew(span) => tube.renew(id, span, now),
            });
            settled.unwrap_or_else(|| Answer::stale(token))
        });
        self.serve(now);
        answer
    }

    /// `queue.identify`. `wanted`: `Some(None)` for an id that no session ever had.
    pub(crate) fn identify(
        &mut self,
        connection: u64,
        wanted: Option<Option<SessionKey>>,
        now: u64,
    ) -> Answer {
        let key = match wanted {
            None => self.session_of(connection),
            Some(Some(key)) if self.sessions.contains_key(&key) => {
                let is_admins = self.sessions[&key].is_admins;
                if is_admins && !self.admins.contains(&connection) {
                    return Answer::AnyFailure;
                }
                if self.connections.get(&connection) != Some(&key) {
                    self.leave(connection, now);
                }
                self.connections.insert(connection, key);
                self.sessions.insert(key, Session { expires: None, is_admins });
                key
            }
            Some(_) => return Answer::AnyFailure,
        };
        self.serve(now);
        Answer::Session(key)
    }

    /// The session of a connection, made if there is none.
    fn session_of(&mut self, connection: u64) -> SessionKey {
        if let Some(key) = self.connections.get(&connection) {
            return *key;
        }
        self.last_session += 1;
        let key = SessionKey(self.last_session);
        let is_admins = self.admins.contains(&connection);
        self.sessions.insert(key, Session { expires: None, is_admins });
        self.connections.insert(connection, key);
        key
    }

    /// The connection has its session no more; the session expires or ends if that was its last one.
    fn leave(&mut self, connection: u64, now: u64) {
        let Some(key) = self.connections.remove(&connection) else { return };
        if self.connections.values().any(|other| *other == key) {
            return;
        }
        match self.ttr.0 {
            0 => self.close(key, now),
            ttr => {
                if let Some(session) = self.sessions.get_mut(&key) {
                    session.expires = Some(now + ttr);
                }
            }
        }
    }

    /// The session ends: its tasks are released.
    fn close(&mut self, key: SessionKey, now: u64) {
        self.sessions.remove(&key);
        for tube in self.tubes.values_mut() {
            for id in tube.in_state('t') {
                if tube.tasks[&id].owner.is_some_and(|owner| owner.session == key) {
                    tube.release(id, None, now);
                }
            }
        }
    }

    /// A connection is gone.
    pub(crate) fn disconnect(&mut self, connection: u64, now: u64) {
        for tube in self.tubes.values_mut() {
            if tube.waiters.iter().any(|waiter| waiter.token.connection == connection) {
                tube.waiters.retain(|waiter| waiter.token.connection != connection);
            }
        }
        self.leave(connection, now);
        self.serve(now);
    }

    /// Does everything that is due, and then everything that is due because of that: a call whose time is over may leave its place to
    /// a put whose task has no life at all.
    pub(crate) fn tick(&mut self, now: u64) {
        self.tick_once(now);
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.tick_once(now);
        }
    }

    fn tick_once(&mut self, now: u64) {
        for tube in self.tubes.values_mut().filter(|tube| tube.is_lease_over(now)) {
            tube.end_leases(now);
        }
        self.serve(now);
        let numbers: Vec<usize> = self.tubes.keys().copied().collect();
        for number in numbers {
            while self.tubes.get_mut(&number).is_some_and(|tube| tube.is_event_due(now) && tube.expire(now)) {
                self.serve_tube(number, now);
            }
        }
        let over = |session: &Session| session.expires.is_some_and(|expires| expires <= now);
        let ended: BTreeSet<SessionKey> =
            self.sessions.iter().filter(|(_, session)| over(session)).map(|(key, _)| *key).collect();
        for key in ended {
            self.close(key, now);
        }
        self.serve(now);
        for tube in self.tubes.values_mut().filter(|tube| tube.is_wait_over(now)) {
            let (over, waiting) =
                std::mem::take(&mut tube.waiters).into_iter().partition(|waiter| waiter.deadline <= now);
            tube.waiters = waiting;
            let over: Vec<Waiter> = over;
            self.woken.extend(over.into_iter().map(|waiter| (waiter.token, waiter.wanted.in_vain())));
        }
        self.serve(now);
    }

    /// The same with the jobs, which are not due as tasks are: a turn gives them steps. Never 0.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let jobs = self.jobs.next_deadline().map(|due| due.max(1));
        self.next_deadline().into_iter().chain(jobs).min()
    }

    /// Number of calls that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.tubes.values().map(|tube| tube.waiters.len()).sum()
    }

    /// Number of calls of one connection that wait.
    pub(crate) fn waiting_on(&self, connection: u64) -> usize {
        let waiters = self.tubes.values().flat_map(|tube| &tube.waiters);
        waiters.filter(|waiter| waiter.token.connection == connection).count()
    }

    /// When something has to happen without a request, at the earliest.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let tasks = self.tubes.values().filter(|tube| tube.is_timed()).flat_map(|tube| tube.tasks.values());
        let waiters = self.tubes.values().flat_map(|tube| &tube.waiters);
        let sessions = self.sessions.values().filter_map(|session| session.expires);
        let leased = self.tubes.values().flat_map(|tube| tube.tasks.values()).filter_map(|task| task.lease);
        let sessions = sessions.chain(leased.map(|lease| lease.ends));
        let all =
            tasks.map(|task| task.next_event).chain(waiters.map(|waiter| waiter.deadline)).chain(sessions);
        all.filter(|moment| *moment != NEVER).min()
    }
}

fn kick(tube: &mut Tube, count: u64) -> Answer {
    let ids: Vec<u64> = tube.in_state('!').into_iter().take(count as usize).collect();
    for id in &ids {
        tube.change(*id, 'r', Operation::Kick);
    }
    Answer::one(|out| mp::write_uint(out, ids.len() as u64))
}

fn release_all(tube: &mut Tube, now: u64) -> Answer {
    for id in tube.in_state('t') {
        tube.release(id, None, now);
    }
    Answer::nothing()
}
