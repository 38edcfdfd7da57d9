//! The requests of clients: mostly sensible ones, about existing tasks.
//!
//! The workload looks into the model to find tasks worth asking about, so that acks hit and sub-queues fill; that it
//! sometimes knows more than a client could is no harm.

use lycosa_instance::Trust;
use lycosa_queue::SessionId;
use lycosa_store::Store;
use lycosa_tuple::value::Value;

use crate::keyed::{KeyedPut, Keys};
use crate::model::{Model, SessionKey, Task, Tube};
use crate::names::Names;
use crate::plan::{Kind, Plan, Wish};
use crate::random::Random;
use crate::request::{Malformed, Payload, PutOptions, Request, RowChange, Settlement, Span};
use crate::steering;
use crate::worker::{self, Form, Remark, TakeNames, TakeOptions};

/// Draws requests.
#[derive(Debug)]
pub(crate) struct Workload {
    random: Random,
    puts: u64,
    names: TakeNames,
    keys: Keys,
}

/// What the next request depends on.
pub(crate) struct WorkloadContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) model: &'a Model,
    pub(crate) store: &'a Store,
    /// Among others, tokens of leases, in force or stale.
    pub(crate) names: &'a Names,
    /// The client's connection.
    pub(crate) connection: u64,
    pub(crate) trust: Trust,
    pub(crate) now: u64,
}

impl Workload {
    pub(crate) fn new(random: Random) -> Self {
        Self { random, puts: 0, names: TakeNames::default(), keys: Keys::default() }
    }

    /// The next request of a client.
    pub(crate) fn request(&mut self, view: &WorkloadContext<'_>) -> Request {
        let wish = self.random.weighted(&view.plan.wishes);
        let tube = self.random.below(view.plan.tubes.len() as u64) as usize;
        let Some(known) = view.model.tubes.get(&tube) else {
            return match wish {
                Wish::Ping
                | Wish::Snapshot
                | Wish::Malformed
                | Wish::Identify
                | Wish::Configure
                | Wish::Statistics => self.wished(wish, view, tube, None),
                _ if self.random.one_in(10) => self.wished(wish, view, tube, None),
                _ => Request::Create { tube },
            };
        };
        let is_full = known.tasks.len() >= view.plan.fullest;
        let wish = match wish {
            Wish::Put if is_full => Wish::Take,
            Wish::PutMany if is_full => Wish::TakeMany,
            wish => wish,
        };
        self.wished(wish, view, tube, Some(known))
    }

    fn wished(
        &mut self,
        wish: Wish,
        view: &WorkloadContext<'_>,
        tube: usize,
        known: Option<&Tube>,
    ) -> Request {
        let own = |task: &Task| {
            let session = view.model.connections.get(&view.connection);
            task.owner.is_some_and(|owner| Some(&owner.session) == session)
        };
        let random = &mut self.random;
        match wish {
            Wish::Put => self.put(view, tube),
            Wish::PutMany => self.put_many(view, tube),
            Wish::Take | Wish::WaitingTake | Wish::TakeMany | Wish::TakeLeased => self.take(wish, view, tube),
            Wish::Settle => {
                let how = settlement(random, view);
                let (tube, token) = token(random, view, tube);
                Request::Settle { tube, token, how }
            }
            Wish::Ack => Request::Ack { tube, id: id(random, known, own) },
            Wish::AckMany => Request::AckMany { tube, ids: ids(random, known, own) },
            Wish::ReleaseMany => {
                let delay = Some(span(random)).filter(|_| random.one_in(2));
                let ids = ids(random, known, own);
                Request::ReleaseMany { tube, ids, delay, remark: remark(random, view) }
            }
            Wish::Release => {
                let delay = Some(span(random)).filter(|_| random.one_in(2));
                let id = id(random, known, own);
                Request::Release { tube, id, delay, remark: remark(random, view) }
            }
            Wish::Touch => Request::Touch { tube, id: id(random, known, own), delta: span(random) },
            Wish::Bury => {
                let id = id(random, known, |_| true);
                Request::Bury { tube, id, remark: Remark { is_untried: false, ..remark(random, view) } }
            }
            Wish::Kick => Request::Kick { tube, count: random.below(4) },
            Wish::Delete => Request::Delete { tube, id: id(random, known, |_| true) },
            Wish::Peek => {
                let id = id(random, known, |_| true);
                Request::Peek { tube, id, is_extended: view.plan.has_workers && random.one_in(2) }
            }
            Wish::ReleaseAll => Request::ReleaseAll { tube },
            Wish::Pause => Request::Pause { tube, paused: true },
            Wish::Resume => Request::Pause { tube, paused: false },
            Wish::Truncate => Request::Truncate { tube },
            Wish::Statistics => Request::Statistics { tube },
            Wish::Identify => Request::Identify { session: session(random, view.names.ids()) },
            Wish::Configure => {
                Request::Configure { ttr: *random.pick(&[Span(0), Span(250_000), Span(4_000_000)]) }
            }
            Wish::Create => Request::Create { tube },
            Wish::Drop => Request::Drop { tube },
            Wish::Ping => Request::Ping,
            Wish::Snapshot => Request::Snapshot,
            Wish::Row => self.row(view, tube, known),
            Wish::Steer => {
                let what = steering::draw(random, view.plan, view.model, tube);
                Request::Steer { tube, what }
            }
            Wish::Malformed => Request::Malformed { tube, how: *random.pick(&MALFORMED) },
        }
    }

    fn put(&mut self, view: &WorkloadContext<'_>, tube: usize) -> Request {
        let options = self.options(view.plan, tube);
        Request::Put { tube, data: self.payload(view.plan.largest), options }
    }

    /// The next put with a key: a new one, or a repeated one, which differs from the first once in a while. `None`: there is no tube
    /// for it.
    pub(crate) fn keyed_put(&mut self, plan: &Plan, model: &Model) -> Option<KeyedPut> {
        let recent = self.keys.recent();
        if !recent.is_empty() && self.random.one_in(2) {
            let mut put = self.random.pick(recent).clone();
            if self.random.one_in(8) {
                put.data = self.payload(plan.largest);
            }
            return Some(put);
        }
        let is_open =
            |number: &usize| model.tubes.get(number).is_some_and(|tube| tube.tasks.len() < plan.fullest);
        let open: Vec<usize> = (0..plan.tubes.len()).filter(is_open).collect();
        if open.is_empty() {
            return None;
        }
        let tube = *self.random.pick(&open);
        let window = Span(*self.random.pick(&[500_000, 5_000_000, 3_600_000_000]));
        let (kind, mut options) = (plan.tubes[tube].kind, self.options(plan, tube));
        // Over HTTP an option that means nothing to the tube's type is refused.
        options.utube = options.utube.filter(|_| kind.has_sub_queues());
        options.timeout = options.timeout.filter(|_| kind == Kind::LimFifoTtl);
        let data = self.payload(plan.largest);
        Some(self.keys.first(tube, window, (data, options)))
    }

    fn put_many(&mut self, view: &WorkloadContext<'_>, tube: usize) -> Request {
        let count = self.random.below(6) as usize;
        let are_shared = count == 0 || self.random.one_in(2);
        let options =
            (0..if are_shared { 1 } else { count }).map(|_| self.options(view.plan, tube)).collect();
        Request::PutMany {
            tube,
            data: (0..count).map(|_| self.payload(view.plan.largest)).collect(),
            options,
        }
    }

    fn options(&mut self, plan: &Plan, tube: usize) -> PutOptions {
        let random = &mut self.random;
        let timed = plan.tubes[tube].kind.is_timed();
        let mut maybe = |times: u64| random.one_in(times).then(|| span(random));
        let mut options = PutOptions { timeout: maybe(2), ..PutOptions::default() };
        if timed {
            options = PutOptions { ttl: maybe(4), ttr: maybe(3), delay: maybe(4), ..options };
            options.pri = random.one_in(2).then(|| random.below(3));
        }
        if plan.memory.is_some() {
            // Whether memory suffices is seen at once and by the task alone.
            options.timeout = None;
            options.ttl = options.ttl.filter(|ttl| ttl.0 > 0);
        }
        options.utube = (!random.one_in(6)).then(|| random.below(4) as u8);
        options.headers = (plan.has_workers && random.one_in(3)).then(|| random.below(4) as u8);
        options
    }

    fn take_options(&mut self, view: &WorkloadContext<'_>, tube: usize, form: Form) -> TakeOptions {
        match view.plan.has_workers {
            true => self.names.draw(&mut self.random, form, view.connection, tube),
            false => TakeOptions { form, ..TakeOptions::default() },
        }
    }

    fn take(&mut self, wish: Wish, view: &WorkloadContext<'_>, tube: usize) -> Request {
        let random = &mut self.random;
        let mut wait = || Some(span(random)).filter(|_| !random.one_in(4));
        let (timeout, form, limit) = match wish {
            Wish::WaitingTake => (wait(), Form::Plain, None),
            Wish::TakeMany => (wait(), Form::Plain, Some(random.below(6))),
            Wish::TakeLeased => {
                let timeout = Some(if random.one_in(2) { span(random) } else { Span(0) });
                let form = Form::Leased(lasting(random));
                (timeout, form, random.one_in(4).then(|| 1 + random.below(5)))
            }
            _ => (Some(Span(0)), Form::Plain, None),
        };
        let options = self.take_options(view, tube, form);
        match limit {
            Some(limit) => Request::TakeMany { tube, limit, timeout, options },
            None => Request::Take { tube, timeout, options },
        }
    }

    /// A payload unlike every other.
    fn payload(&mut self, largest: u64) -> Payload {
        self.puts += 1;
        let number = self.puts;
        let random = &mut self.random;
        let value = match random.below(6) {
            0 => Value::from(number),
            1 => Value::array([Value::from(number), Value::Nil, Value::from(0.5)]),
            2 => Value::map([("number", Value::from(number)), ("list", Value::array([true, false]))]),
            3 => Value::bin(number.to_be_bytes()),
            _ => {
                let mut text = format!("{number}:").into_bytes();
                let length = random.below(largest);
                let filling = random.next();
                text.extend((0..length).map(|place| b'a' + (filling >> (place % 59) & 15) as u8));
                Value::str(text)
            }
        };
        Payload(value.encode())
    }

    fn row(&mut self, view: &WorkloadContext<'_>, tube: usize, known: Option<&Tube>) -> Request {
        let space =
            view.store.space_by_name(&view.plan.tubes[tube].name).map_or(9_999, lycosa_store::Space::id);
        let task = id(&mut self.random, known, |_| true);
        let (id, change) = match self.random.below(6) {
            0 => (task, RowChange::Delete),
            1 => (task, RowChange::SetStatus(*self.random.pick(&['r', '!']))),
            2 => (task, RowChange::SetData(self.payload(view.plan.largest))),
            3 if view.trust == Trust::Admin => self.new_row(view, known),
            _ => (task, RowChange::Select),
        };
        Request::Row { tube, space, id, change }
    }

    /// A row that a client writes past the queue, with an id that was never handed out.
    fn new_row(&mut self, view: &WorkloadContext<'_>, known: Option<&Tube>) -> (u64, RowChange) {
        let Some(tube) = known else { return (0, RowChange::Select) };
        let id = tube.next_id + self.random.below(3);
        let life = 1_000_000_000;
        let task = Task {
            status: 'r',
            next_event: view.now + life,
            ttl: life,
            ttr: life,
            pri: self.random.below(3),
            created: view.now,
            utube: "1".into(),
            data: self.payload(20).0.into(),
            owner: None,
            lease: None,
            attempts: None,
        };
        let mut tuple = Vec::new();
        task.write(id, tube.kind(), &mut tuple);
        (id, RowChange::Insert(Payload(tuple)))
    }
}

/// The ways in which a request may be malformed.
const MALFORMED: [Malformed; 6] = [
    Malformed::Length,
    Malformed::Header,
    Malformed::Body,
    Malformed::Type,
    Malformed::Name,
    Malformed::Arguments,
];

/// What a worker says of a task that it gives back, in a world with workers.
fn remark(random: &mut Random, view: &WorkloadContext<'_>) -> Remark {
    if view.plan.has_workers { worker::remark(random) } else { Remark::default() }
}

fn settlement(random: &mut Random, view: &WorkloadContext<'_>) -> Settlement {
    match random.below(5) {
        0 | 1 => Settlement::Ack,
        2 => {
            let delay = Some(span(random)).filter(|_| random.one_in(2));
            Settlement::Release(delay, remark(random, view))
        }
        3 => Settlement::Bury(Remark { is_untried: false, ..remark(random, view) }),
        _ => Settlement::Renew(lasting(random)),
    }
}

/// A span that makes deadlines coincide and that a run lives to see.
fn span(random: &mut Random) -> Span {
    let spans = [0, 250_000, 500_000, 1_000_000, 1_000_000, 2_500_000, 10_000_000, 3_600_000_000];
    Span(*random.pick(&spans))
}

/// The span of a lease.
fn lasting(random: &mut Random) -> Span {
    let spans = [250_000, 500_000, 1_000_000, 1_000_000, 2_500_000, 10_000_000, 3_600_000_000];
    Span(*random.pick(&spans))
}

/// A token that a lease has or had, and a tube: seldom another one than the lease's.
fn token(random: &mut Random, view: &WorkloadContext<'_>, tube: usize) -> (usize, String) {
    let tokens = view.names.tokens();
    if tokens.is_empty() || random.one_in(20) {
        return (tube, "0-0-1-0123456789abcdef".to_owned());
    }
    let recent = &tokens[tokens.len().saturating_sub(6)..];
    let among = if random.one_in(3) { tokens } else { recent };
    let (_, token) = random.pick(among);
    let own = view.model.tubes.iter().find(|(_, tube)| tube.id == token.tube).map(|(number, _)| *number);
    (own.filter(|_| !random.one_in(12)).unwrap_or(tube), token.to_string())
}

/// The id of a task that is `wanted`, or once in a while of any or none.
fn id(random: &mut Random, known: Option<&Tube>, wanted: impl Fn(&Task) -> bool) -> u64 {
    let Some(tube) = known else { return random.below(3) };
    let fitting: Vec<u64> = tube.tasks.iter().filter(|(_, task)| wanted(task)).map(|(id, _)| *id).collect();
    if fitting.is_empty() || random.one_in(8) {
        return random.below(tube.next_id + 2);
    }
    *random.pick(&fitting)
}

/// The ids of some tasks that are `wanted`; once in a while one that is not, or one of them twice.
fn ids(random: &mut Random, known: Option<&Tube>, wanted: impl Fn(&Task) -> bool) -> Vec<u64> {
    let tasks = known.into_iter().flat_map(|tube| &tube.tasks);
    let mut ids: Vec<u64> = tasks.filter(|(_, task)| wanted(task)).map(|(id, _)| *id).collect();
    while ids.len() > 1 && random.one_in(3) {
        ids.swap_remove(random.below(ids.len() as u64) as usize);
    }
    if random.one_in(8) {
        ids.push(id(random, known, |_| true));
    }
    ids
}

/// The id of a present or former session, or an unknown one; or none.
fn session(random: &mut Random, known: &[(SessionKey, SessionId)]) -> Option<SessionId> {
    if random.one_in(4) {
        return None;
    }
    if known.is_empty() || random.one_in(12) {
        return Some([0x5a; 16]);
    }
    let recent = &known[known.len().saturating_sub(6)..];
    let among = if random.one_in(3) { known } else { recent };
    Some(random.pick(among).1)
}
