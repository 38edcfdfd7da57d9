//! The bridge between the HTTP thread and the loop: calls go over, answers come back.
//!
//! One bounded channel carries [`Job`]s to the loop, where the task [`serve`] makes each a call of a native function with
//! the caller of its token, on the same path as every other caller. The answer goes back through the job's own oneshot,
//! once what it has seen is durable. A call that waits is parked; when its client goes away it gives up its place.
//!
//! Calls of one token share a session. When a token ends, its session is closed and its waiting calls are refused.
//!
//! Invariants: a pass handles at most [`SHARE`] jobs before the loop serves its other tasks; the loop never waits for the
//! HTTP thread; without a listener for HTTP this task does not exist.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lycosa_instance::{Called, Instance, Lsn, RequestId, TokenDigest, TokenId};
use lycosa_iproto::error::ErrorObject;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;

use super::access::Access;
use super::problem::{Kind, Problem};
use crate::clock::now;
use crate::turn::Core;

/// Jobs that wait for the loop; further ones are refused with 429.
const CAPACITY: usize = 1024;

/// Jobs that a pass handles.
const SHARE: usize = 32;

/// How often expired tokens are looked for, in microseconds.
const EXPIRY_CHECK: u64 = 1_000_000;

/// Values of an answer, back to back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) count: u32,
    pub(crate) bytes: Vec<u8>,
}

type Outcome = Result<Values, ErrorObject>;

/// A call of a native function.
#[derive(Debug)]
struct Call {
    token: TokenDigest,
    function: String,
    /// A MessagePack array.
    args: Vec<u8>,
    /// Names the call in [`Gone`].
    ticket: u64,
    reply: oneshot::Sender<Outcome>,
}

/// What the HTTP thread asks of the loop.
enum Job {
    Call(Call),
    /// Looks at the instance, without a token's rights: probes and metrics.
    Look(Box<dyn FnOnce(&mut Instance) + Send>),
}

/// The client of a waiting call closed its connection.
struct Gone {
    ticket: u64,
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

/// Tells the loop when a call is given up.
struct Guard<'a> {
    bridge: &'a Bridge,
    ticket: u64,
    is_answered: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            // A loop that has ended knows.
            let _ = self.bridge.gone.send(Gone { ticket: self.ticket });
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
        let (reply, answer) = oneshot::channel();
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        self.send(Job::Call(Call { token: access.0.clone(), function, args, ticket, reply }))?;
        let mut guard = Guard { bridge: self, ticket, is_answered: false };
        let answered = tokio::time::timeout(limit, answer).await;
        guard.is_answered = answered.is_ok();
        match answered {
            Ok(Ok(outcome)) => outcome.map_err(Problem::from),
            Ok(Err(_)) => Err(stopping()),
            Err(_) => {
                let detail =
                    "the loop did not answer in time: the change may have happened or may happen yet";
                Err(Problem::new(Kind::OutcomeUnknown, detail))
            }
        }
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
    reply: oneshot::Sender<Outcome>,
}

/// An answer whose rows are not durable yet.
struct Held {
    lsn: Lsn,
    outcome: Outcome,
    reply: oneshot::Sender<Outcome>,
}

/// The loop's record of unanswered calls.
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
pub(crate) async fn serve(core: Rc<Core>, mut inbox: Inbox) {
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
            Some(Gone { ticket }) = inbox.gone.recv() => {
                desk.cancel(&mut core.instance.borrow_mut(), ticket);
                core.end.notify_one();
            }
            count = inbox.jobs.recv_many(&mut jobs, SHARE) => {
                if count == 0 {
                    return;
                }
                desk.handle_all(&mut core.instance.borrow_mut(), &mut jobs);
                core.received(count as u64);
                core.end.notify_one();
                yield_now().await;
            }
        }
    }
}

impl Desk {
    /// Whether the end of a turn may bring answers, or sessions may have to end.
    fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.held.is_empty() || !self.sessions.is_empty()
    }

    fn handle_all(&mut self, instance: &mut Instance, jobs: &mut Vec<Job>) {
        jobs.drain(..).for_each(|job| self.handle(instance, job));
    }

    fn handle(&mut self, instance: &mut Instance, job: Job) {
        instance.set_now(now());
        let Call { token, function, args, ticket, reply } = match job {
            Job::Call(call) => call,
            Job::Look(look) => return look(instance),
        };
        // The client has closed its connection already.
        if reply.is_closed() {
            return;
        }
        let mut caller = match instance.token_caller(&token, 0) {
            Ok(caller) => caller,
            Err(error) => return drop(reply.send(Err(error))),
        };
        let Some(token) = caller.token else { return };
        caller.session = *self.sessions.entry(token).or_insert_with(|| instance.open_session());
        let mut bytes = Vec::new();
        let outcome = match instance.call(&caller, function.as_bytes(), &args, &mut bytes) {
            Ok(Called::Parked(request)) => {
                self.by_ticket.insert(ticket, request);
                self.waiting.insert(request, Waiting { ticket, token, reply });
                return;
            }
            Ok(Called::Done { count }) => Ok(Values { count, bytes }),
            Err(error) => Err(error),
        };
        let lsn = instance.awaited();
        self.hold(Held { lsn, outcome, reply });
    }

    fn hold(&mut self, held: Held) {
        // Nearly always behind all others: a later answer has seen later rows.
        let later = self.held.iter().rev().take_while(|other| other.lsn > held.lsn).count();
        self.held.insert(self.held.len() - later, held);
    }

    fn cancel(&mut self, instance: &mut Instance, ticket: u64) {
        if let Some(request) = self.by_ticket.remove(&ticket) {
            self.waiting.remove(&request);
            instance.cancel(request);
        }
    }

    /// Sends the answers whose rows are durable.
    fn deliver(&mut self, instance: &mut Instance) {
        while let Some(answered) = instance.poll_http_answer() {
            if let Some(Waiting { ticket, reply, .. }) = self.waiting.remove(&answered.request) {
                self.by_ticket.remove(&ticket);
                let outcome = answered.result.map(|(count, bytes)| Values { count, bytes });
                self.hold(Held { lsn: answered.lsn, outcome, reply });
            }
        }
        self.end_tokens(instance);
        while let Some(held) = self.held.front() {
            let lost = match instance.is_durable(held.lsn) {
                Ok(false) => break,
                Ok(true) => None,
                Err(error) => Some(error),
            };
            let Some(Held { outcome, reply, .. }) = self.held.pop_front() else { break };
            // A closed connection needs no answer.
            let _ = reply.send(lost.map_or(outcome, Err));
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
                    let _ = reply.send(Err(Instance::invalid_token()));
                }
            }
            instance.close_session(session, now);
        }
    }
}
