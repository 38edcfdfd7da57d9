//! Puts with a key, as clients over HTTP make them: of all calls with one key within a window the first takes effect, and later calls
//! get the first answer.
//!
//! Worlds with workers have such puts. The server's HTTP desk calls the instance itself, without a connection, and so does the world. A
//! client hears an answer when the rows of the answer are durable. The key and the answer are a row of the transaction that puts the
//! task, so that a start finds the key and the task, or neither.
//!
//! Absent: HTTP, tokens, and calls with a key that do something else than put one task.

use std::collections::BTreeMap;

use lycosa_instance::{Called, Caller, CallerKind, Lsn, Once};
use lycosa_store::Store;
use lycosa_tuple::value::Value;

use crate::agreement::walk_any;
use crate::model::Model;
use crate::request::{Payload, PutOptions, Request, Span};
use crate::simulation::Simulation;
use crate::violation::{Checked, Violation, hold};

/// The space of keys and answers.
const SPACE: &str = "_lycosa_once";

/// A put with a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyedPut {
    pub(crate) key: u64,
    /// How long the answer is kept.
    pub(crate) window: Span,
    pub(crate) tube: usize,
    pub(crate) data: Payload,
    pub(crate) options: PutOptions,
}

impl KeyedPut {
    fn request(&self) -> Request {
        Request::Put { tube: self.tube, data: self.data.clone(), options: self.options }
    }

    /// A digest of the request, which is the same in each call with this key.
    pub(crate) fn fingerprint(&self) -> String {
        Once::fingerprint(&[&self.tube.to_le_bytes(), &self.data, &self.options.value().encode()])
    }

    fn once(&self) -> Once {
        Once { key: key_text(self.key), fingerprint: self.fingerprint(), window: self.window.0 }
    }
}

/// As a client writes the key: in the order of texts keys are in the order of their numbers.
fn key_text(key: u64) -> String {
    format!("key {key:08}")
}

/// What the instance has to say of a put with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Refused,
    /// The tube is full.
    Null,
    /// The task is put: its id and state.
    Put(u64, char),
    /// It was put by an earlier call with the key.
    Kept(u64, char),
}

/// A kept answer, as its row has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptAnswer {
    pub(crate) fingerprint: String,
    /// µs since the epoch.
    pub(crate) expires: u64,
    pub(crate) id: u64,
    pub(crate) status: char,
}

/// An answer that waits for its rows.
#[derive(Debug)]
pub(crate) struct Held {
    lsn: Lsn,
    /// The signature of everything that the answer has seen.
    seen: u64,
    sent: u64,
    request: Request,
    /// The values of the answer, if it is the one of a new task.
    values: Option<Vec<u8>>,
}

impl Simulation<'_> {
    /// A client over HTTP puts with a key.
    pub(crate) fn put_keyed(&mut self) -> Checked {
        if self.life.has_failed {
            return Ok(());
        }
        let Some(put) = self.workload.keyed_put(&self.plan, &self.model) else { return Ok(()) };
        self.trace.line(format_args!("{} at {} a client puts once: {put:?}", self.step, self.now));
        self.totals.keyed += 1;
        let request = put.request();
        self.ledger.sent(&request);
        let before = self.model.clone();
        let mut expected = self.model.put_keyed(&put, self.wants_room(&request), self.now);
        let (name, args) = request.call(&self.plan.tubes);
        let caller = Caller { kind: CallerKind::Http, may_wait: true, ..Caller::internal() };
        let (once, args) = (put.once(), Value::Array(args).encode());
        let (instance, mut out) = (&mut self.life.instance, Vec::new());
        instance.set_now(self.now);
        let called = instance.call_once(&caller, &once, name.as_bytes(), &args, &mut out);
        self.life.turn.received(1);
        if called.is_err() && self.plan.memory.is_some() && matches!(expected, Expected::Put(..)) {
            (self.model, expected) = (before, Expected::Refused);
        }
        let answer = match &called {
            Ok(Called::Done { count: 1 }) => Some(Value::decode(&out).unwrap_or(Value::Nil)),
            Ok(other) => return Err(Violation(format!("a put with a key is answered {other:?}"))),
            Err(_) => None,
        };
        let task = |id: u64, status: char, data: Value| {
            Some(Value::array([Value::from(id), Value::str(status.to_string()), data]))
        };
        let wanted = match expected {
            Expected::Refused => None,
            Expected::Null => Some(Value::Nil),
            Expected::Put(id, status) => task(id, status, Value::decode(&put.data).unwrap_or(Value::Nil)),
            Expected::Kept(id, status) => task(id, status, Value::Nil),
        };
        hold!(answer == wanted, "{put:?} is answered {called:?}, {answer:?} instead of {expected:?}");
        self.totals.kept += u64::from(matches!(expected, Expected::Kept(..)));
        self.check_answers(Vec::new())?;
        let (lsn, seen) = (self.life.instance.awaited(), self.life.instance.vclock().signature());
        let values = matches!(expected, Expected::Put(..)).then(|| [&[0x91], &out[..]].concat());
        self.life.held.push_back(Held { lsn, seen, sent: self.step, request, values });
        Ok(())
    }

    /// Tells clients over HTTP the answers whose rows are durable.
    pub(crate) fn tell_held(&mut self) -> Checked {
        while let Some(held) = self.life.held.front() {
            let is_durable = self.life.instance.is_durable(held.lsn);
            if is_durable == Ok(false) {
                break;
            }
            let Some(Held { seen, sent, request, values, .. }) = self.life.held.pop_front() else { break };
            let durable = self.life.journal.durable();
            match is_durable {
                Ok(_) => {
                    hold!(
                        seen <= durable,
                        "the answer to {request:?} with a key has seen row {seen}, but only {durable} are durable"
                    );
                    self.ledger.answered(&request, sent, self.step, values.as_deref(), &self.plan.tubes);
                }
                Err(error) => {
                    hold!(self.life.has_failed, "the rows of {request:?} are lost: {}", error.message);
                    self.ledger.abandoned(&request, self.step);
                }
            }
        }
        Ok(())
    }

    /// No client over HTTP gets an answer any more.
    pub(crate) fn abandon_held(&mut self) {
        for held in std::mem::take(&mut self.life.held) {
            self.ledger.abandoned(&held.request, self.step);
        }
    }
}

/// The answers that a space keeps, by key.
fn answers(store: &Store) -> Checked<BTreeMap<u64, KeptAnswer>> {
    let read = |row: &[u8]| {
        let row = Value::decode(row).ok()?;
        let fields = row.as_array()?;
        let key = fields.get(1)?.as_str()?.strip_prefix("key ")?.parse().ok()?;
        let task = fields.get(4)?.as_array()?.first()?.as_array()?;
        let kept = KeptAnswer {
            fingerprint: fields.get(2)?.as_str()?.to_owned(),
            expires: fields.get(3)?.as_u64()?,
            id: task.first()?.as_u64()?,
            status: task.get(1)?.as_str()?.chars().next()?,
        };
        (task.get(2) == Some(&Value::Nil)).then_some((key, kept))
    };
    let unreadable = || Violation(format!("a row of {SPACE} has not the fields that it ought to have"));
    walk_any(store, SPACE)?.map(|row| read(row).ok_or_else(unreadable)).collect()
}

/// The space keeps the answers that the model keeps.
pub(crate) fn answers_agree(store: &Store, model: &Model) -> Checked {
    let found = answers(store)?;
    hold!(found == *model.answers, "kept answers are {found:?} instead of {:?}", *model.answers);
    Ok(())
}

/// The model takes over the kept answers of recovered data, which end in the middle of a step; see [`crate::agreement::adopt`].
pub(crate) fn adopt_answers(store: &Store, model: &mut Model, after: &Model) -> Checked {
    let found = answers(store)?;
    for (key, kept) in model.answers.iter().filter(|(key, kept)| after.answers.get(key) == Some(kept)) {
        hold!(found.get(key) == Some(kept), "the answer of key {key} was changed by a step without it");
    }
    *model.answers = found;
    Ok(())
}

impl Model {
    /// Expired answers that a new one removes.
    const PRUNED: usize = 4;

    /// Does what a put with a key asks. `is_short`: there is no space for new rows.
    pub(crate) fn put_keyed(&mut self, put: &KeyedPut, is_short: bool, now: u64) -> Expected {
        let Some(tube) = self.tubes.get_mut(&put.tube) else { return Expected::Refused };
        if let Some(kept) = self.answers.get(&put.key).filter(|kept| kept.expires > now) {
            return match kept.fingerprint == put.fingerprint() {
                true => Expected::Kept(kept.id, kept.status),
                false => Expected::Refused,
            };
        }
        if is_short {
            return Expected::Refused;
        }
        // A call with a key never waits.
        if !tube.may_put() {
            return Expected::Null;
        }
        let id = tube.next_id;
        tube.put(&put.data[..].into(), &put.options, now);
        let status = tube.tasks.get(&id).map_or('r', |task| task.status);
        self.keep_answer(put, (id, status), now);
        self.serve(now);
        Expected::Put(id, status)
    }

    fn keep_answer(&mut self, put: &KeyedPut, (id, status): (u64, char), now: u64) {
        let expired = self.answers.iter().filter(|(_, kept)| kept.expires <= now);
        let mut expired: Vec<(u64, u64)> = expired.map(|(key, kept)| (kept.expires, *key)).collect();
        expired.sort_unstable();
        for (_, key) in expired.into_iter().take(Self::PRUNED) {
            self.answers.remove(&key);
        }
        let (fingerprint, expires) = (put.fingerprint(), now + put.window.0);
        self.answers.insert(put.key, KeptAnswer { fingerprint, expires, id, status });
    }
}

/// Draws puts with keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    last: u64,
    recent: Vec<KeyedPut>,
}

impl Keys {
    /// Puts that may be repeated.
    const KEPT: usize = 6;

    /// A put that is to be repeated.
    pub(crate) fn recent(&self) -> &[KeyedPut] {
        &self.recent
    }

    /// Gives a put a key of its own.
    pub(crate) fn first(
        &mut self,
        tube: usize,
        window: Span,
        (data, options): (Payload, PutOptions),
    ) -> KeyedPut {
        self.last += 1;
        let put = KeyedPut { key: self.last, window, tube, data, options };
        self.recent.push(put.clone());
        if self.recent.len() > Self::KEPT {
            self.recent.remove(0);
        }
        put
    }
}
