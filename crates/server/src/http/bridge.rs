//! The bridge between the HTTP thread and the loop: calls go over, answers come back.
//!
//! One bounded channel carries [`Job`]s to the loop, where the task [`serve`] makes each a call of a native function with
//! the caller of its token, on the same path as every other caller. The answer goes back through the job's own oneshot,
//! once what it has seen is durable. A call that waits is parked; when its client goes away it gives up its place.
//!
//! A task that a take has leased to a client that goes away before it has the answer is given back at once
//! ([`Returns`]). After the answer was written to the socket, the end of the lease does that.
//!
//! Calls of one token share a session. When a token ends, its session is closed and its waiting calls are refused.
//!
//! Invariants: a pass handles at most [`SHARE`] jobs, and ends when it has held the loop for [`QUANTUM`]; the loop never waits for the
//! HTTP thread; without a listener for HTTP this task exists in members of a group alone, whose leader makes the calls of the
//! other members' clients ([`crate::cluster::http`]).

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lycosa_instance::{Called, Caller, Instance, Lsn, Once, RequestId, TokenDigest, TokenId};
use lycosa_iproto::error::ErrorObject;
use lycosa_tuple::value::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;

use super::access::Access;
use super::problem::{Kind, Problem};
use crate::clock::now;
use crate::cluster::http::Forwarder;
use crate::slow_lane::QUANTUM;
use crate::turn::Core;

/// Jobs that wait for the loop; further ones are refused with 429.
const CAPACITY: usize = 1024;

/// Jobs that a pass handles.
const SHARE: usize = 32;

/// Calls of one order.
pub(crate) const MAX_CALLS: usize = 256;

/// How often expired tokens are looked for, in microseconds.
const EXPIRY_CHECK: u64 = 1_000_000;

/// Values of an answer, back to back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) count: u32,
    pub(crate) bytes: Vec<u8>,
}

/// The outcome of a call.
pub(crate) type Outcome = Result<Values, ErrorObject>;

/// A native function and its arguments.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: String,
    /// A MessagePack array.
    pub(crate) args: Vec<u8>,
}

/// Whose leased tasks an unread answer gives back: the tube.
pub(crate) type Returns = Option<String>;

/// Calls of one request, made one after the other in one pass of the loop.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) token: TokenDigest,
    pub(crate) calls: Vec<Call>,
    /// The key of the only call, if it has one.
    pub(crate) once: Option<Once>,
    pub(crate) returns: Returns,
    /// Names the order in [`Gone`].
    pub(crate) ticket: u64,
    pub(crate) reply: oneshot::Sender<Vec<Outcome>>,
}

/// Requests of the HTTP thread to the loop.
enum Job {
    Order(Order),
    /// Looks at the instance, without a token's rights: probes and metrics.
    Look(Box<dyn FnOnce(&mut Instance) + Send>),
}

/// The client of an order closed its connection.
struct Gone {
    ticket: u64,
    /// The answer that it has not read, and the tube of its tasks.
    unread: Option<(String, Vec<Outcome>)>,
}

/// The HTTP thread's end.
#[derive(Debug, Clone)]
pub(crate) struct Bridge {
    jobs: mpsc::Sender<Job>,
    /// Bounded by the calls that wait.
    gone: mpsc::UnboundedSender<Gone>,
    tickets: Arc<AtomicU64>,
}

/// The loop's end.
pub(crate) struct Inbox {
    jobs: mpsc::Receiver<Job>,
    gone: mpsc::UnboundedReceiver<Gone>,
}

/// Both ends.
pub(crate) fn bridge() -> (Bridge, Inbox) {
    let (jobs, inbox) = mpsc::channel(CAPACITY);
    let (gone, departures) = mpsc::unbounded_channel();
    (Bridge { jobs, gone, tickets: Arc::default() }, Inbox { jobs: inbox, gone: departures })
}

/// Tells the loop when an order is given up.
struct Guard<'a> {
    bridge: &'a Bridge,
    ticket: u64,
    returns: Returns,
    answer: oneshot::Receiver<Vec<Outcome>>,
    is_answered: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answer.close();
            let unread = self.returns.take().zip(self.answer.try_recv().ok());
            // A loop that has ended knows.
            let _ = self.bridge.gone.send(Gone { ticket: self.ticket, unread });
        }
    }
}

impl Bridge {
    /// Calls a native function with the rights of a token; `args` is a MessagePack array. Waits for at most `limit`. A caller
    /// that is dropped meanwhile takes a waiting call back.
    ///
    /// # Errors
    /// What the function raises; no right; too many jobs; the loop ends or does not answer.
    pub(crate) async fn call(
        &self,
        access: &Access,
        function: String,
        args: Vec<u8>,
        limit: Duration,
    ) -> Result<Values, Problem> {
        let outcomes = self.order(access, vec![Call { function, args }], (None, None), limit).await?;
        outcomes.into_iter().next().ok_or_else(stopping)?.map_err(Problem::from)
    }

    /// As [`Self::call`]; with a key the call is made once, see [`Instance::call_once`].
    ///
    /// # Errors
    /// As [`Self::call`]; the key was used for another request.
    pub(crate) async fn call_once(
        &self,
        access: &Access,
        once: Option<Once>,
        call: Call,
        limit: Duration,
    ) -> Result<Values, Problem> {
        let outcomes = self.order(access, vec![call], (once, None), limit).await?;
        outcomes.into_iter().next().ok_or_else(stopping)?.map_err(Problem::from)
    }

    /// As [`Self::call`], for a function that answers an array of leased tasks of `tube`.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub(crate) async fn take(
        &self,
        access: &Access,
        tube: &str,
        call: Call,
        limit: Duration,
    ) -> Result<Values, Problem> {
        let outcomes = self.order(access, vec![call], (None, Some(tube.to_owned())), limit).await?;
        outcomes.into_iter().next().ok_or_else(stopping)?.map_err(Problem::from)
    }

    /// Makes calls that never wait one after the other, each a transaction of its own. At most [`MAX_CALLS`].
    ///
    /// # Errors
    /// Too many jobs; the loop ends or does not answer.
    pub(crate) async fn calls(
        &self,
        access: &Access,
        calls: Vec<Call>,
        limit: Duration,
    ) -> Result<Vec<Result<Values, Problem>>, Problem> {
        let outcomes = self.order(access, calls, (None, None), limit).await?;
        Ok(outcomes.into_iter().map(|outcome| outcome.map_err(Problem::from)).collect())
    }

    async fn order(
        &self,
        access: &Access,
        calls: Vec<Call>,
        (once, returns): (Option<Once>, Returns),
        limit: Duration,
    ) -> Result<Vec<Outcome>, Problem> {
        let mut guard = self.place(access.0.clone(), calls, (once, returns))?;
        let answered = tokio::time::timeout(limit, &mut guard.answer).await;
        guard.is_answered = answered.is_ok();
        match answered {
            Ok(Ok(outcomes)) => Ok(outcomes),
            Ok(Err(_)) => Err(stopping()),
            Err(_) => {
                let detail =
                    "the loop did not answer in time: the change may have happened or may happen yet";
                Err(Problem::new(Kind::OutcomeUnknown, detail))
            }
        }
    }

    fn place(
        &self,
        token: TokenDigest,
        calls: Vec<Call>,
        (once, returns): (Option<Once>, Returns),
    ) -> Result<Guard<'_>, Problem> {
        let (reply, answer) = oneshot::channel();
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        self.send(Job::Order(Order { token, calls, once, returns: returns.clone(), ticket, reply }))?;
        Ok(Guard { bridge: self, ticket, returns, answer, is_answered: false })
    }

    /// Makes the calls of another member's client, however long they wait. A caller that is dropped meanwhile takes a waiting call
    /// back.
    ///
    /// # Errors
    /// Too many jobs; the loop ends.
    pub(crate) async fn made(
        &self,
        token: TokenDigest,
        calls: Vec<Call>,
        further: (Option<Once>, Returns),
    ) -> Result<Vec<Outcome>, Problem> {
        let mut guard = self.place(token, calls, further)?;
        let answered = (&mut guard.answer).await;
        guard.is_answered = true;
        answered.map_err(|_| stopping())
    }

    /// Hands an order in again that another node was to have carried out, and that this one leads now.
    pub(crate) fn again(&self, order: Order) {
        // The order is dropped where the loop has no place for it, and its client hears that.
        let _ = self.send(Job::Order(order));
    }

    /// Gives the tasks of an answer back that another member's client did not read.
    pub(crate) fn give_back(&self, tube: String, outcomes: Vec<Outcome>) {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        // A loop that has ended knows.
        let _ = self.gone.send(Gone { ticket, unread: Some((tube, outcomes)) });
    }

    /// Lets the loop look at the instance, for some microseconds. Waits for at most `limit`.
    ///
    /// # Errors
    /// Too many jobs; the loop ends or does not answer.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        limit: Duration,
        look: impl FnOnce(&mut Instance) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Look(Box::new(move |instance| drop(reply.send(look(instance))))))?;
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(seen)) => Ok(seen),
            Ok(Err(_)) => Err(stopping()),
            Err(_) => {
                let detail = format!("the loop did not answer within {} s", limit.as_secs_f64());
                Err(Problem::new(Kind::Unavailable, detail))
            }
        }
    }

    fn send(&self, job: Job) -> Result<(), Problem> {
        self.jobs.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Problem::new(Kind::Busy, format!("{CAPACITY} requests wait for the loop"))
            }
            mpsc::error::TrySendError::Closed(_) => stopping(),
        })
    }
}

fn stopping() -> Problem {
    Problem::new(Kind::Unavailable, "the server ends").closing()
}

/// A call that is parked in the instance.
struct Waiting {
    ticket: u64,
    token: TokenId,
    returns: Returns,
    reply: oneshot::Sender<Vec<Outcome>>,
}

/// Answers whose rows are not durable yet.
struct Held {
    lsn: Lsn,
    outcomes: Vec<Outcome>,
    returns: Returns,
    reply: oneshot::Sender<Vec<Outcome>>,
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
            desk.deliver(&mut core.instance.borrow_mut());
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
                if let Some(forwarder) = elsewhere() {
                    let orders = jobs.extract_if(.., |job| matches!(job, Job::Order(_)));
                    orders.for_each(|job| if let Job::Order(order) = job { forwarder.forward(order) });
                }
                let mut jobs: VecDeque<Job> = jobs.drain(..).collect();
                while !jobs.is_empty() {
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
        let Order { token, calls, once, returns, ticket, reply } = match job {
            Job::Order(order) => order,
            Job::Look(look) => return look(instance),
        };
        // The client has closed its connection already.
        if reply.is_closed() {
            return;
        }
        let mut caller = match instance.token_caller(&token, 0) {
            Ok(caller) => caller,
            Err(error) => return drop(reply.send(calls.iter().map(|_| Err(error.clone())).collect())),
        };
        let Some(token) = caller.token else { return };
        caller.session = *self.sessions.entry(token).or_insert_with(|| instance.open_token_session(token));
        caller.may_wait = calls.len() == 1;
        let mut outcomes = Vec::with_capacity(calls.len());
        for Call { function, args } in calls {
            let mut bytes = Vec::new();
            let called = match &once {
                Some(once) => instance.call_once(&caller, once, function.as_bytes(), &args, &mut bytes),
                None => instance.call(&caller, function.as_bytes(), &args, &mut bytes),
            };
            outcomes.push(match called {
                // The only call of its order.
                Ok(Called::Parked(request)) => {
                    self.by_ticket.insert(ticket, request);
                    self.waiting.insert(request, Waiting { ticket, token, returns, reply });
                    return;
                }
                Ok(Called::Done { count }) => Ok(Values { count, bytes }),
                Err(error) => Err(error),
            });
        }
        let lsn = instance.awaited();
        self.hold(Held { lsn, outcomes, returns, reply });
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

    /// Sends the answers whose rows are durable.
    fn deliver(&mut self, instance: &mut Instance) {
        while let Some(answered) = instance.poll_http_answer() {
            if let Some(Waiting { ticket, returns, reply, .. }) = self.waiting.remove(&answered.request) {
                self.by_ticket.remove(&ticket);
                let outcome = answered.result.map(|(count, bytes)| Values { count, bytes });
                self.hold(Held { lsn: answered.lsn, outcomes: vec![outcome], returns, reply });
            }
        }
        self.end_tokens(instance);
        while let Some(held) = self.held.front() {
            let lost = match instance.is_durable(held.lsn) {
                Ok(false) => break,
                Ok(true) => None,
                Err(error) => Some(error),
            };
            let Some(Held { mut outcomes, returns, reply, .. }) = self.held.pop_front() else { break };
            if let Some(error) = lost {
                outcomes.iter_mut().for_each(|outcome| *outcome = Err(error.clone()));
            }
            if let (Err(outcomes), Some(tube)) = (reply.send(outcomes), returns) {
                instance.set_now(now());
                give_back(instance, &tube, &outcomes);
            }
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
        let ended: Vec<_> =
            self.sessions.iter().filter(|(token, _)| instance.token(**token).is_none()).collect();
        let ended: Vec<(TokenId, u64)> =
            ended.into_iter().map(|(token, session)| (*token, *session)).collect();
        for (token, session) in ended {
            self.sessions.remove(&token);
            let calls: Vec<RequestId> = self
                .waiting
                .iter()
                .filter(|(_, waiting)| waiting.token == token)
                .map(|(request, _)| *request)
                .collect();
            for request in calls {
                instance.cancel(request);
                if let Some(Waiting { ticket, reply, .. }) = self.waiting.remove(&request) {
                    self.by_ticket.remove(&ticket);
                    let _ = reply.send(vec![Err(Instance::invalid_token())]);
                }
            }
            instance.close_session(session, now);
        }
    }
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
