//! The loop's end of the bridge: a task makes the calls of jobs, and delivers their answers once their rows are durable.
//!
//! Invariants:
//! - A pass handles at most [`SHARE`] jobs, and ends when it has held the loop for [`QUANTUM`].
//! - The loop never waits for the HTTP thread.
//! - Without a listener for HTTP this task exists in members of a group alone, whose leader makes the calls of the other members'
//!   clients ([`crate::cluster::http`]).

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use lycosa_engine::group::attempts::{self, Setback};
use lycosa_instance::{Called, Caller, Instance, Lsn, RequestId, TokenId};
use lycosa_iproto::error::ErrorObject;
use lycosa_tuple::value::Value;
use tokio::task::yield_now;

use super::{Bridge, Call, Gone, Inbox, Job, Order, Outcome, Repetition, Request, Values};
use crate::clock::now;
use crate::cluster::http::Forwarder;
use crate::slow_lane::QUANTUM;
use crate::turn::Core;

/// Jobs that a pass handles.
const SHARE: usize = 32;

/// How often expired tokens are looked for, in microseconds.
const EXPIRY_CHECK: u64 = 1_000_000;

/// A call that is parked in the instance.
struct Waiting {
    token: TokenId,
    order: Order,
}

/// Answers whose rows are not durable yet.
struct Held {
    lsn: Lsn,
    outcomes: Vec<Outcome>,
    order: Order,
}

/// The loop's record of unanswered orders.
#[derive(Default)]
struct Desk {
    /// The session of each token that has called.
    sessions: HashMap<TokenId, u64>,
    waiting: HashMap<RequestId, Waiting>,
    by_ticket: HashMap<u64, RequestId>,
    /// In the order of their rows.
    held: VecDeque<Held>,
    /// The revision of the tokens when they were last looked at, and when that was, µs since the epoch.
    looked: (Option<(u64, u64)>, u64),
}

/// Handles jobs until the task is dropped.
pub(crate) async fn serve(core: Rc<Core>, bridge: Bridge, mut inbox: Inbox) {
    let forwarder = core.member().map(|member| Forwarder::new(member, bridge));
    let elsewhere = || forwarder.as_ref().filter(|forwarder| forwarder.is_elsewhere());
    let mut desk = Desk::default();
    let mut jobs = Vec::with_capacity(SHARE);
    loop {
        let turned = core.turned();
        tokio::pin!(turned);
        turned.as_mut().enable();
        if desk.is_busy() {
            desk.deliver(&mut core.instance.borrow_mut(), forwarder.as_ref());
            if let Some(forwarder) = elsewhere() {
                desk.hand_on(&mut core.instance.borrow_mut(), forwarder);
            }
        }
        tokio::select! {
            biased;
            () = turned, if desk.is_busy() => {}
            Some(mut gone) = inbox.gone.recv() => {
                if let Some(forwarder) = elsewhere()
                    && let Some((tube, outcomes)) = gone.unread.take()
                {
                    forwarder.give_back(tube, outcomes);
                }
                desk.end(&mut core.instance.borrow_mut(), gone);
                core.end.notify_one();
            }
            count = inbox.jobs.recv_many(&mut jobs, SHARE) => {
                if count == 0 {
                    return;
                }
                let mut jobs: VecDeque<Job> = jobs.drain(..).collect();
                while !jobs.is_empty() {
                    // Another member may lead since the portion before.
                    if let Some(forwarder) = elsewhere() {
                        for job in std::mem::take(&mut jobs) {
                            match job {
                                Job::Order(order) if order.is_attempt => refuse(order, &Instance::leads_no_more()),
                                Job::Order(order) => forwarder.forward(order, None),
                                Job::Look(_) => jobs.push_back(job),
                            }
                        }
                    }
                    let handled = desk.handle_some(&mut core.instance.borrow_mut(), &mut jobs);
                    core.received(handled);
                    core.end.notify_one();
                    yield_now().await;
                }
            }
        }
    }
}

impl Desk {
    /// Whether the end of a turn may bring answers, or sessions may have to end.
    fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.held.is_empty() || !self.sessions.is_empty()
    }

    /// Handles jobs until they have held the loop for a quantum; returns their number.
    fn handle_some(&mut self, instance: &mut Instance, jobs: &mut VecDeque<Job>) -> u64 {
        let began = Instant::now();
        let mut handled = 0;
        while let Some(job) = jobs.pop_front() {
            self.handle(instance, job);
            handled += 1;
            if began.elapsed() >= QUANTUM {
                break;
            }
        }
        handled
    }

    fn handle(&mut self, instance: &mut Instance, job: Job) {
        instance.set_now(now());
        let order = match job {
            Job::Order(order) => order,
            Job::Look(look) => return look(instance),
        };
        // The client has closed its connection already.
        if order.reply.is_closed() {
            return;
        }
        let Request { token, calls, repetition, .. } = &order.request;
        let mut caller = match instance.token_caller(token, 0) {
            Ok(caller) => caller,
            Err(error) => return refuse(order, &error),
        };
        let Some(token) = caller.token else { return };
        caller.session = *self.sessions.entry(token).or_insert_with(|| instance.open_token_session(token));
        caller.may_wait = calls.len() == 1;
        let mut outcomes = Vec::with_capacity(calls.len());
        for Call { function, args } in calls {
            let mut bytes = Vec::new();
            let function = function.as_bytes();
            let called = match repetition {
                Repetition::Once(once) => instance.call_once(&caller, once, function, args, &mut bytes),
                _ => instance.call(&caller, function, args, &mut bytes),
            };
            outcomes.push(match called {
                // The only call of its order.
                Ok(Called::Parked(request)) => {
                    self.by_ticket.insert(order.ticket, request);
                    self.waiting.insert(request, Waiting { token, order });
                    return;
                }
                Ok(Called::Done { count }) => Ok(Values { count, bytes }),
                Err(error) => Err(error),
            });
        }
        let lsn = instance.awaited();
        self.hold(Held { lsn, outcomes, order });
    }

    fn hold(&mut self, held: Held) {
        // Nearly always behind all others: a later answer has seen later rows.
        let later = self.held.iter().rev().take_while(|other| other.lsn > held.lsn).count();
        self.held.insert(self.held.len() - later, held);
    }

    /// The client of an order closed its connection.
    fn end(&mut self, instance: &mut Instance, Gone { ticket, unread }: Gone) {
        instance.set_now(now());
        if let Some(request) = self.by_ticket.remove(&ticket) {
            self.waiting.remove(&request);
            instance.cancel(request);
        }
        if let Some((tube, outcomes)) = unread {
            give_back(instance, &tube, &outcomes);
        }
    }

    /// Sends the answers whose rows are durable. An order that failed because this node leads no more goes to the next leader.
    fn deliver(&mut self, instance: &mut Instance, forwarder: Option<&Rc<Forwarder>>) {
        while let Some(answered) = instance.poll_http_answer() {
            if let Some(Waiting { order, .. }) = self.waiting.remove(&answered.request) {
                self.by_ticket.remove(&order.ticket);
                let outcome = answered.result.map(|(count, bytes)| Values { count, bytes });
                self.hold(Held { lsn: answered.lsn, outcomes: vec![outcome], order });
            }
        }
        self.end_tokens(instance);
        while let Some(held) = self.held.front() {
            let lost = match instance.is_durable(held.lsn) {
                Ok(false) => break,
                Ok(true) => None,
                Err(error) => Some(error),
            };
            let Some(Held { mut outcomes, order, .. }) = self.held.pop_front() else { break };
            if let Some(error) = lost {
                attempts::lose(&mut outcomes, &error);
            }
            let setback = Setback::told_by(&outcomes, order.request.repetition.is_harmless());
            if let (Some(setback), Some(forwarder)) = (setback, forwarder.filter(|_| !order.is_attempt)) {
                forwarder.forward(order, Some(setback));
            } else if let (Err(outcomes), Some(tube)) = (order.reply.send(outcomes), order.request.returns) {
                instance.set_now(now());
                give_back(instance, &tube, &outcomes);
            }
        }
    }

    /// Another member leads: takes that wait here go to that member.
    fn hand_on(&mut self, instance: &mut Instance, forwarder: &Rc<Forwarder>) {
        let takes =
            |_: &RequestId, waiting: &mut Waiting| waiting.order.request.repetition == Repetition::Leases;
        for (request, Waiting { order, .. }) in self.waiting.extract_if(takes) {
            self.by_ticket.remove(&order.ticket);
            instance.cancel(request);
            forwarder.forward(order, Some(Setback::NotDone));
        }
    }

    /// Ends the sessions and the waiting calls of tokens that have ended.
    fn end_tokens(&mut self, instance: &mut Instance) {
        let (revision, now) = (instance.token_revision(), now());
        if self.looked.0 == revision && now.abs_diff(self.looked.1) < EXPIRY_CHECK {
            return;
        }
        self.looked = (revision, now);
        instance.set_now(now);
        let ended = self.sessions.extract_if(|token, _| instance.token(*token).is_none());
        let ended: HashMap<TokenId, u64> = ended.collect();
        for (request, waiting) in self.waiting.extract_if(|_, waiting| ended.contains_key(&waiting.token)) {
            instance.cancel(request);
            self.by_ticket.remove(&waiting.order.ticket);
            refuse(waiting.order, &Instance::invalid_token());
        }
        ended.values().for_each(|session| instance.close_session(*session, now));
    }
}

/// Answers each call of an order with an error.
fn refuse(order: Order, error: &ErrorObject) {
    let _ = order.reply.send(vec![Err(error.clone()); order.request.calls.len()]);
}

/// Gives the tasks of an unread answer back, as untried.
fn give_back(instance: &mut Instance, tube: &str, outcomes: &[Outcome]) {
    let tasks = outcomes.iter().flatten().filter_map(|values| Value::decode(&values.bytes).ok());
    let leases: Vec<Value> = tasks
        .flat_map(|tasks| tasks.as_array().map(<[Value]>::to_vec).unwrap_or_default())
        .filter_map(|task| task.as_array()?.get(3)?.get("lease").cloned())
        .collect();
    if leases.is_empty() {
        return;
    }
    let function = format!("queue.tube.{tube}:release_many");
    let options = Value::map([("attempted", false)]);
    let args = Value::Array(vec![Value::Array(leases), options]).encode();
    // What cannot be given back now is ready again when its lease ends.
    if let Err(error) = instance.call(&Caller::internal(), function.as_bytes(), &args, &mut Vec::new()) {
        tracing::debug!("{function} of an answer that no client reads: {}", error.message);
    }
}
