//! A tube of the model: a map of tasks through which it looks for everything.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use lycosa_queue::Operation;
use lycosa_tuple::mp;

use super::Token;
use super::answer::{Answer, ExtendedTask};
use super::session::SessionKey;
use crate::plan::{Kind, TubePlan};
use crate::request::{PutOptions, Span};
use crate::steering::REASON;
use crate::worker::{REASONS, Remark, TakeOptions};

/// The moment that never comes, as the queue stores it.
pub(crate) const NEVER: u64 = u64::MAX;

/// A hundred years: the ttl of a task without one. A time that is this far away is not shown.
pub(crate) const LONGEST: Span = Span(3_153_600_000_000_000);

/// The holder of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) session: SessionKey,
    /// Number of the connection that took or touched it last.
    pub(crate) connection: u64,
    /// When.
    pub(crate) since: u64,
    /// The name of the take, if it had one and the owner has not touched the task since.
    pub(crate) name: Option<u64>,
}

/// A lease, by the order in which the model came to know it. Its token is another matter: the instance draws it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseKey(pub(crate) u32);

/// A lease of a task, which has no owner then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) key: LeaseKey,
    /// µs since the epoch.
    pub(crate) ends: u64,
    /// When the task was taken.
    pub(crate) since: u64,
}

/// The last failure of a task whose lease ended.
const LEASE_ENDED: &str = "the lease ended";

/// The attempts of a task, as its row in `_lycosa_attempts` has to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    /// Takes in extended form since the task was put or kicked.
    pub(crate) attempts: u64,
    /// Why the task failed last; empty if it never did.
    pub(crate) last_error: &'static str,
    /// The moment of the last failure, µs since the epoch; 0 if the task never failed.
    pub(crate) failed_at: u64,
    /// What the task's header says, if it has one.
    pub(crate) header: Option<u8>,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) status: char,
    pub(crate) next_event: u64,
    pub(crate) ttl: u64,
    pub(crate) ttr: u64,
    pub(crate) pri: u64,
    pub(crate) created: u64,
    pub(crate) utube: Rc<str>,
    /// The payload, encoded.
    pub(crate) data: Rc<[u8]>,
    pub(crate) owner: Option<Owner>,
    pub(crate) lease: Option<Lease>,
    /// `None`: there is no row.
    pub(crate) attempts: Option<Attempts>,
}

impl Attempts {
    /// The reason with this text, or the empty text. `None`: a world has no such reason.
    pub(crate) fn known_reason(text: &[u8]) -> Option<&'static str> {
        let known = ["", REASON, LEASE_ENDED].into_iter().chain(REASONS);
        known.into_iter().find(|known| known.as_bytes() == text)
    }
}

impl Task {
    /// The task gets the attempts that it had before, or had in another tube. A row is written only where it changes something.
    pub(crate) fn restore_attempts(&mut self, former: Option<Attempts>) {
        let former = former.unwrap_or_default();
        if self.attempts.unwrap_or_default() != former {
            self.attempts = Some(former);
        }
    }

    pub(crate) fn death(&self) -> u64 {
        self.created.saturating_add(self.ttl)
    }

    /// The tuple that the space has to hold.
    pub(crate) fn write(&self, id: u64, kind: Kind, out: &mut Vec<u8>) {
        let fields = 3 + if kind.is_timed() { 5 } else { 0 } + u32::from(kind.has_sub_queues());
        mp::write_array(out, fields);
        mp::write_uint(out, id);
        mp::write_str(out, &[self.status as u8]);
        if kind.is_timed() {
            for number in [self.next_event, self.ttl, self.ttr, self.pri, self.created] {
                mp::write_uint(out, number);
            }
        }
        if kind.has_sub_queues() {
            mp::write_str(out, self.utube.as_bytes());
        }
        out.extend_from_slice(&self.data);
    }
}

/// Number of the payload's field.
pub(crate) fn data_field(kind: Kind) -> u64 {
    2 + if kind.is_timed() { 5 } else { 0 } + u64::from(kind.has_sub_queues())
}

/// What a call waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    Task(TakeOptions),
    /// As many as there are, up to the limit.
    Tasks(u64, TakeOptions),
    Room(Rc<[u8]>, PutOptions),
    /// For all of them. Puts that came later stand behind.
    RoomForMany(Rc<[(Rc<[u8]>, PutOptions)]>),
}

impl Wanted {
    pub(crate) fn is_take(&self) -> bool {
        matches!(self, Self::Task(_) | Self::Tasks(..))
    }

    /// The answer to a call that has waited in vain.
    pub(crate) fn in_vain(&self) -> Answer {
        match self {
            Self::Task(_) => Answer::no_tasks(true),
            Self::Tasks(..) => Answer::no_tasks(false),
            Self::Room(..) | Self::RoomForMany(_) => Answer::null(),
        }
    }

    /// The name of a take that has one.
    pub(crate) fn name(&self) -> Option<u64> {
        match self {
            Self::Task(options) | Self::Tasks(_, options) => options.name(),
            Self::Room(..) | Self::RoomForMany(_) => None,
        }
    }
}

/// A call that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) token: Token,
    pub(crate) since: u64,
    pub(crate) deadline: u64,
    pub(crate) wanted: Wanted,
}

/// Ids that a temporary tube reserves at once.
const RESERVED_IDS: u64 = 1000;

/// A tube. Waiters stand in the order of their arrival.
#[derive(Debug, Clone)]
pub(crate) struct Tube {
    pub(crate) plan: TubePlan,
    pub(crate) id: u64,
    pub(crate) tasks: BTreeMap<u64, Task>,
    pub(crate) next_id: u64,
    /// Where the ids of a temporary tube go on after a restart.
    pub(crate) reserved: u64,
    pub(crate) waiters: Vec<Waiter>,
    /// It hands out no tasks.
    pub(crate) paused: bool,
    counts: [u64; Operation::ALL.len()],
    done: u64,
}

impl Tube {
    pub(crate) fn new(plan: &TubePlan, id: u64) -> Self {
        Self {
            plan: plan.clone(),
            id,
            tasks: BTreeMap::new(),
            next_id: 0,
            reserved: 0,
            waiters: Vec::new(),
            paused: false,
            counts: [0; Operation::ALL.len()],
            done: 0,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.plan.kind
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.kind().is_timed()
    }

    pub(super) fn count(&mut self, operation: Operation) {
        self.counts[operation as usize] += 1;
        self.done += u64::from(matches!(operation, Operation::Ack | Operation::Delete));
    }

    /// Forgets what a process keeps in memory only.
    pub(crate) fn restart(&mut self) {
        self.counts = [0; Operation::ALL.len()];
        self.done = 0;
        self.waiters.clear();
        if self.plan.temporary {
            self.tasks.clear();
            self.next_id = self.reserved;
        }
    }

    pub(crate) fn has_room(&self, tasks: usize) -> bool {
        self.plan.capacity == 0 || (self.tasks.len() + tasks) as u64 <= self.plan.capacity
    }

    /// The place of the call that waits longest for a task, or for a place in the tube.
    pub(crate) fn waits(&self, for_task: bool) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.wanted.is_take() == for_task)
    }

    /// Whether a batch of puts waits for places before all other puts.
    pub(crate) fn is_kept_for_batch(&self) -> bool {
        self.waits(false).is_some_and(|place| matches!(self.waiters[place].wanted, Wanted::RoomForMany(_)))
    }

    /// Whether a task may be put now.
    pub(crate) fn may_put(&self) -> bool {
        self.has_room(1) && !self.is_kept_for_batch()
    }

    /// Whether the tube has a place for the put that waits longest.
    pub(crate) fn has_room_for_waiter(&self) -> bool {
        self.waits(false).is_some_and(|place| match &self.waiters[place].wanted {
            Wanted::RoomForMany(tasks) => self.has_room(tasks.len()),
            _ => self.has_room(1),
        })
    }

    /// The tasks of a state in the order in which they are taken and kicked.
    pub(crate) fn in_state(&self, status: char) -> Vec<u64> {
        let mut found: Vec<_> = self.tasks.iter().filter(|(_, task)| task.status == status).collect();
        if self.is_timed() {
            found.sort_by_key(|&(id, task)| (task.pri, *id));
        }
        found.into_iter().map(|(id, _)| *id).collect()
    }

    /// The names of the sub-queues with a taken task.
    fn busy(&self) -> BTreeSet<&str> {
        let taken = self.tasks.values().filter(|task| self.kind().has_sub_queues() && task.status == 't');
        taken.map(|task| &*task.utube).collect()
    }

    /// The ready tasks that no taken task of their sub-queue stands before, each with its place in the order of takes.
    fn free(&self) -> impl Iterator<Item = ((u64, u64), &Task)> {
        let (busy, is_timed) = (self.busy(), self.is_timed());
        let ready = self.tasks.iter().filter(|(_, task)| task.status == 'r');
        let free = ready.filter(move |(_, task)| !busy.contains(&*task.utube));
        free.map(move |(id, task)| ((if is_timed { task.pri } else { 0 }, *id), task))
    }

    /// The task that the next take gets, dead or alive.
    pub(crate) fn next(&self) -> Option<u64> {
        let first = if self.paused { None } else { self.free().map(|(place, _)| place).min() };
        first.map(|(_, id)| id)
    }

    pub(crate) fn is_dead(&self, id: u64, now: u64) -> bool {
        self.is_timed() && self.tasks[&id].death() <= now
    }

    pub(crate) fn put(&mut self, data: &Rc<[u8]>, options: &PutOptions, now: u64) -> Answer {
        let timed = self.is_timed();
        let ttl = options.ttl.or(self.plan.ttl).unwrap_or(LONGEST).0;
        let ttr = options.ttr.or(self.plan.ttr).or(self.plan.ttl).unwrap_or(LONGEST).0;
        let delay = options.delay.filter(|delay| timed && delay.0 > 0).map(|delay| delay.0);
        let status = if delay.is_some() { '~' } else { 'r' };
        let header = options.headers.filter(|number| *number > 0);
        let task = Task {
            status,
            next_event: now + delay.unwrap_or(ttl),
            ttl: ttl + delay.unwrap_or(0),
            ttr,
            pri: options.pri.unwrap_or(self.plan.pri),
            created: now,
            utube: options.utube.map_or_else(|| "nil".into(), |utube| utube.to_string().into()),
            data: data.clone(),
            owner: None,
            lease: None,
            attempts: header.map(|number| Attempts { header: Some(number), ..Attempts::default() }),
        };
        let id = self.next_id;
        self.next_id += 1;
        if self.plan.temporary && id >= self.reserved {
            self.reserved = id + RESERVED_IDS;
        }
        self.tasks.insert(id, task);
        self.count(Operation::Put);
        Answer::task(id, status, data)
    }

    pub(crate) fn put_many(&mut self, tasks: &[(Rc<[u8]>, PutOptions)], now: u64) -> Answer {
        let put: Vec<Answer> = tasks.iter().map(|(data, options)| self.put(data, options, now)).collect();
        Answer::tasks(&put)
    }

    pub(crate) fn take(&mut self, id: u64, owner: Owner, is_extended: bool) -> Option<Answer> {
        self.count(Operation::Take);
        let task = self.tasks.get_mut(&id)?;
        task.status = 't';
        task.next_event = owner.since.saturating_add(task.ttr).min(task.death());
        task.owner = Some(owner);
        if is_extended {
            task.attempts.get_or_insert_default().attempts += 1;
        }
        self.shown(id, is_extended)
    }

    /// A task as an answer shows it, without the token of its lease.
    pub(crate) fn shown(&self, id: u64, is_extended: bool) -> Option<Answer> {
        let task = self.tasks.get(&id)?;
        match is_extended {
            true => self.extended(id, false),
            false => Some(Answer::task(id, task.status, &task.data)),
        }
    }

    fn extended(&self, id: u64, has_token: bool) -> Option<Answer> {
        let task = self.tasks.get(&id)?.clone();
        Some(Answer::extended(ExtendedTask { id, task, kind: self.kind(), has_token }))
    }

    /// Gives a task to a lease, which ends with the task's life at the latest.
    pub(crate) fn lease(&mut self, id: u64, mut lease: Lease) -> Option<Answer> {
        self.count(Operation::Take);
        let is_timed = self.is_timed();
        let task = self.tasks.get_mut(&id)?;
        if is_timed {
            lease.ends = lease.ends.min(task.death());
        }
        task.status = 't';
        (task.next_event, task.lease) = (lease.ends, Some(lease));
        task.attempts.get_or_insert_default().attempts += 1;
        self.extended(id, true)
    }

    /// The task that a lease in force owns.
    pub(crate) fn leased(&self, key: LeaseKey, now: u64) -> Option<u64> {
        let is_held = |task: &Task| task.lease.is_some_and(|lease| lease.key == key && lease.ends > now);
        self.tasks.iter().find(|(_, task)| is_held(task)).map(|(id, _)| *id)
    }

    /// Moves the end of a lease, and that of the task's life if it would come before.
    pub(crate) fn renew(&mut self, id: u64, span: Span, now: u64) -> Option<Answer> {
        let is_timed = self.is_timed();
        let task = self.tasks.get_mut(&id)?;
        let lease = task.lease.as_mut()?;
        lease.ends = lease.ends.max(now + span.0);
        let lease = *lease;
        task.next_event = lease.ends;
        if is_timed && lease.ends > task.death() {
            task.ttl = lease.ends - task.created;
        }
        self.count(Operation::Touch);
        self.extended(id, true)
    }

    /// Whether [`Self::end_leases`] has something to do.
    pub(crate) fn is_lease_over(&self, now: u64) -> bool {
        self.tasks.values().any(|task| task.lease.is_some_and(|lease| lease.ends <= now))
    }

    /// Whether [`Self::expire`] may have something to do.
    pub(crate) fn is_event_due(&self, now: u64) -> bool {
        self.is_timed() && self.tasks.values().any(|task| task.next_event <= now)
    }

    /// Whether some call has waited long enough.
    pub(crate) fn is_wait_over(&self, now: u64) -> bool {
        self.waiters.iter().any(|waiter| waiter.deadline <= now)
    }

    /// Ends the leases that are over.
    pub(crate) fn end_leases(&mut self, now: u64) {
        let is_over = |task: &Task| task.lease.is_some_and(|lease| lease.ends <= now);
        let over: Vec<u64> = self.tasks.iter().filter(|(_, task)| is_over(task)).map(|(id, _)| *id).collect();
        for id in over {
            self.end_take(id, now);
        }
    }

    pub(crate) fn remove(&mut self, id: u64, operation: Operation) -> Option<Answer> {
        let task = self.tasks.remove(&id)?;
        self.count(operation);
        if operation == Operation::Ttl {
            self.count(Operation::Delete);
        }
        Some(Answer::task(id, '-', &task.data))
    }

    /// The task goes into another state by anything but a take.
    pub(crate) fn change(&mut self, id: u64, status: char, operation: Operation) -> Option<Answer> {
        let task = self.tasks.get_mut(&id)?;
        task.status = status;
        (task.owner, task.lease) = (None, None);
        if operation != Operation::Kick {
            task.next_event = task.death();
        } else if let Some(attempts) = &mut task.attempts {
            attempts.attempts = 0;
        }
        let answer = Answer::task(id, status, &task.data);
        self.count(operation);
        Some(answer)
    }

    /// A worker gives a task back.
    pub(crate) fn give_back(
        &mut self,
        id: u64,
        (delay, remark): (Option<Span>, Remark),
        now: u64,
    ) -> Option<Answer> {
        self.note(id, remark, now);
        self.release(id, delay, now)
    }

    /// A worker puts a task out of the way. A buried task stays as it is.
    pub(crate) fn bury(&mut self, id: u64, remark: Remark, now: u64) -> Option<Answer> {
        if self.tasks.get(&id)?.status == '!' {
            return self.shown(id, false);
        }
        self.note(id, remark, now);
        self.change(id, '!', Operation::Bury)
    }

    /// A worker says how it fared with a task.
    fn note(&mut self, id: u64, remark: Remark, now: u64) {
        if remark.is_untried
            && let Some(attempts) = self.tasks.get_mut(&id).and_then(|task| task.attempts.as_mut())
        {
            attempts.attempts = attempts.attempts.saturating_sub(1);
        }
        if let Some(reason) = remark.reason {
            self.note_failure(id, reason, now);
        }
    }

    /// A worker, a job or the end of a lease tells why a task has failed.
    pub(crate) fn note_failure(&mut self, id: u64, last_error: &'static str, now: u64) {
        if let Some(task) = self.tasks.get_mut(&id) {
            let noted = task.attempts.get_or_insert_default();
            (noted.attempts, noted.last_error, noted.failed_at) = (noted.attempts.max(1), last_error, now);
        }
    }

    /// The time for which a task was taken is over.
    fn end_take(&mut self, id: u64, now: u64) {
        if self.tasks.get(&id).is_some_and(|task| task.lease.is_some()) {
            self.note_failure(id, LEASE_ENDED, now);
        }
        self.change(id, 'r', Operation::Ttr);
    }

    pub(crate) fn release(&mut self, id: u64, delay: Option<Span>, now: u64) -> Option<Answer> {
        match delay.filter(|delay| self.is_timed() && delay.0 > 0) {
            None => self.change(id, 'r', Operation::Release),
            Some(delay) => {
                let answer = self.change(id, '~', Operation::Release);
                let task = self.tasks.get_mut(&id)?;
                task.next_event = now + delay.0;
                task.ttl = task.ttl.saturating_add(delay.0);
                answer
            }
        }
    }

    pub(crate) fn touch(&mut self, id: u64, delta: Span, owner: Owner) -> Option<Answer> {
        let task = self.tasks.get_mut(&id)?;
        for time in [&mut task.next_event, &mut task.ttl, &mut task.ttr] {
            *time = time.saturating_add(delta.0);
        }
        task.owner = Some(owner);
        let answer = Answer::task(id, 't', &task.data);
        self.count(Operation::Touch);
        Some(answer)
    }

    /// Carries out the deadlines of tasks. True if there was one.
    pub(crate) fn expire(&mut self, now: u64) -> bool {
        let mut any = false;
        while self.is_timed() && self.expire_once(now) {
            any = true;
        }
        any
    }

    fn expire_once(&mut self, now: u64) -> bool {
        let mut any = false;
        for status in ['~', 'r', '!', 't'] {
            let due: Vec<u64> = self
                .tasks
                .iter()
                .filter(|(_, task)| task.status == status && task.next_event <= now)
                .map(|(id, _)| *id)
                .collect();
            for id in due {
                any = true;
                match status {
                    '~' => _ = self.change(id, 'r', Operation::Delay),
                    't' => self.end_take(id, now),
                    _ if self.is_dead(id, now) => _ = self.remove(id, Operation::Ttl),
                    _ => self.postpone(id),
                }
            }
        }
        any
    }

    /// A start corrects each `next_event` that cannot be right, in tubes of all types with deadlines: that of a ready or
    /// buried task is the end of its life, that of a delayed one not later, give or take a second. A taken task keeps its own.
    pub(crate) fn correct_events(&mut self) {
        if !self.is_timed() {
            return;
        }
        for task in self.tasks.values_mut() {
            let (death, tolerance) = (task.death(), 1_000_000);
            let is_wrong = match task.status {
                'r' | '!' => task.next_event.abs_diff(death) > tolerance,
                '~' => task.next_event > death.saturating_add(tolerance),
                _ => false,
            };
            let is_endless = task.next_event == NEVER && task.ttl > LONGEST.0;
            if is_wrong && !is_endless {
                task.next_event = death;
            }
        }
    }

    /// A deadline that a client wrote past the queue is corrected, not obeyed.
    fn postpone(&mut self, id: u64) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.next_event = task.death();
        }
    }

    /// What `queue.statistics` answers.
    pub(crate) fn statistics(&self) -> Answer {
        let number = |status| self.tasks.values().filter(|task| task.status == status).count() as u64;
        let tasks = [
            ("taken", number('t')),
            ("buried", number('!')),
            ("ready", number('r')),
            ("done", self.done),
            ("delayed", number('~')),
            ("total", self.tasks.len() as u64),
        ];
        let calls = Operation::ALL.map(|operation| (operation.name(), self.counts[operation as usize]));
        let write = |out: &mut Vec<u8>, name: &str, counts: &[(&str, u64)]| {
            mp::write_str(out, name.as_bytes());
            mp::write_map(out, counts.len() as u32);
            for (name, count) in counts {
                mp::write_str(out, name.as_bytes());
                mp::write_uint(out, *count);
            }
        };
        Answer::one(|out| {
            mp::write_map(out, 2);
            write(out, "tasks", &tasks);
            write(out, "calls", &calls);
        })
    }

    /// The rows that a ready buffer has to hold.
    pub(crate) fn candidates(&self) -> Vec<Vec<u8>> {
        let mut shown: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (place, task) in self.free() {
            let first = shown.entry(&task.utube).or_insert(place);
            *first = place.min(*first);
        }
        let mut ids: Vec<u64> = shown.into_values().map(|(_, id)| id).collect();
        ids.sort_unstable();
        let row = |id: u64| {
            let task = &self.tasks[&id];
            let mut row = Vec::new();
            mp::write_array(&mut row, 2 + u32::from(self.is_timed()));
            mp::write_uint(&mut row, id);
            mp::write_str(&mut row, task.utube.as_bytes());
            if self.is_timed() {
                mp::write_uint(&mut row, task.pri);
            }
            row
        };
        ids.into_iter().map(row).collect()
    }
}

impl Task {
    /// Reads a tuple of the space.
    pub(crate) fn read(tuple: &[u8], kind: Kind) -> Option<Self> {
        let Fields { status, times: [next_event, ttl, ttr, pri, created], utube, data, .. } =
            Fields::read(tuple, kind)?;
        Some(Self {
            status,
            next_event,
            ttl,
            ttr,
            pri,
            created,
            utube: utube.into(),
            data: data.into(),
            owner: None,
            lease: None,
            attempts: None,
        })
    }
}

/// The fields of a task's tuple, where they stand.
pub(crate) struct Fields<'a> {
    pub(crate) id: u64,
    pub(crate) status: char,
    /// In the order of the fields; zeros in a tube without deadlines.
    times: [u64; 5],
    /// Nothing in a tube without sub-queues.
    pub(crate) utube: &'a str,
    /// The payload, encoded.
    data: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn read(tuple: &'a [u8], kind: Kind) -> Option<Self> {
        let mut reader = mp::Reader::new(tuple);
        reader.array().ok()?;
        let id = reader.uint().ok()?;
        let status = char::from(*reader.str().ok()?.first()?);
        let mut times = [0; 5];
        if kind.is_timed() {
            for time in &mut times {
                *time = reader.uint().ok()?;
            }
        }
        let utube = if kind.has_sub_queues() { reader.str().ok()? } else { b"" };
        let utube = std::str::from_utf8(utube).ok()?;
        Some(Self { id, status, times, utube, data: reader.rest() })
    }
}
