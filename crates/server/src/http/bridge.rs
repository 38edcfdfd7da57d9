//! The bridge between the HTTP thread and the loop: calls go over, answers come back.
//!
//! One bounded channel carries [`Job`]s to the loop, where the task [`desk::serve`] makes each a call of a native function with
//! the caller of its token, on the same path as every other caller. The answer goes back through the job's own oneshot,
//! once what it has seen is durable. A call that waits is parked; when its client goes away it gives up its place.
//!
//! A task that a take has leased to a client that goes away before it has the answer is given back at once
//! ([`Returns`]). After the answer was written to the socket, the end of the lease does that.
//!
//! Calls of one token share a session. When a token ends, its session is closed and its waiting calls are refused.
//!
//! Absent: the work of the task, which is in [`desk`].

pub(crate) mod desk;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lycosa_instance::{Instance, Once, TokenDigest};
use lycosa_iproto::error::ErrorObject;
use lycosa_iproto::repeat;
use tokio::sync::{mpsc, oneshot};

use super::access::Access;
use super::problem::{Kind, Problem};

/// Jobs that wait for the loop; further ones are refused with 429.
const CAPACITY: usize = 1024;

/// Calls of one order.
pub(crate) const MAX_CALLS: usize = 256;

/// Values of an answer, back to back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) count: u32,
    pub(crate) bytes: Vec<u8>,
}

/// The outcome of a call.
pub(crate) type Outcome = Result<Values, ErrorObject>;

/// A native function and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) function: String,
    /// A MessagePack array.
    pub(crate) args: Vec<u8>,
}

/// Whose leased tasks an unread answer gives back: the tube.
pub(crate) type Returns = Option<String>;

/// What a second attempt at a request does. A node that does not know whether the leader has carried a request out decides by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// The request may change something once more.
    ActsAgain,
    /// Nothing: the request reads.
    Reads,
    /// The only call leases tasks. Tasks of a lost answer are ready again when their leases end.
    Leases,
    /// Nothing: the only call has a key.
    Once(Once),
}

impl Repetition {
    /// Whether a node may repeat a request without asking the client.
    pub(crate) fn is_harmless(&self) -> bool {
        *self != Self::ActsAgain
    }
}

/// Calls of one request, made one after the other in one pass of the loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) token: TokenDigest,
    pub(crate) calls: Vec<Call>,
    pub(crate) repetition: Repetition,
    pub(crate) returns: Returns,
}

impl Request {
    /// The request `elapsed` after it was made first: a take waits for the rest of its time.
    pub(crate) fn after(&self, elapsed: Duration) -> Cow<'_, Self> {
        if self.repetition != Repetition::Leases {
            return Cow::Borrowed(self);
        }
        let mut later = self.clone();
        for call in &mut later.calls {
            let at = repeat::timeout_at(call.function.as_bytes());
            if let Some(args) = at.and_then(|at| repeat::shortened(&call.args, at, elapsed)) {
                call.args = args;
            }
        }
        Cow::Owned(later)
    }
}

/// A request, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) request: Request,
    /// When the request was made.
    pub(crate) since: Instant,
    /// The caller decides what becomes of a request that was refused because this node leads no more. Else the loop decides.
    pub(crate) is_attempt: bool,
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
    /// Calls a native function with the rights of a token. Waits for at most `limit`. A caller that is dropped meanwhile takes a
    /// waiting call back. With a key the call is made once, see [`Instance::call_once`]; leased tasks of a tube that the
    /// function answers are given back if the client goes away before.
    ///
    /// # Errors
    /// What the function raises; no right; too many jobs; the key was used for another request; the loop ends or does not
    /// answer.
    pub(crate) async fn call(
        &self,
        access: &Access,
        call: Call,
        further: (Repetition, Returns),
        limit: Duration,
    ) -> Result<Values, Problem> {
        let outcomes = self.order(access, vec![call], further, limit).await?;
        outcomes.into_iter().next().ok_or_else(stopping)?.map_err(Problem::from)
    }

    /// Makes calls one after the other, each a transaction of its own. At most [`MAX_CALLS`]; a call
    /// waits only where it is the only one.
    ///
    /// # Errors
    /// Too many jobs; the loop ends or does not answer.
    pub(crate) async fn order(
        &self,
        access: &Access,
        calls: Vec<Call>,
        (repetition, returns): (Repetition, Returns),
        limit: Duration,
    ) -> Result<Vec<Outcome>, Problem> {
        let request = Request { token: access.0.clone(), calls, repetition, returns };
        let made = tokio::time::timeout(limit, self.answered(request, false)).await;
        let late = "the loop did not answer in time: the change may have happened or may happen yet";
        made.unwrap_or_else(|_| Err(Problem::new(Kind::OutcomeUnknown, late)))
    }

    /// Makes the calls of a request once, however long they wait: an attempt of a member. A caller that is dropped meanwhile takes a
    /// waiting call back.
    ///
    /// # Errors
    /// Too many jobs; the loop ends.
    pub(crate) async fn attempt(&self, request: Request) -> Result<Vec<Outcome>, Problem> {
        self.answered(request, true).await
    }

    async fn answered(&self, request: Request, is_attempt: bool) -> Result<Vec<Outcome>, Problem> {
        let (reply, answer) = oneshot::channel();
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let returns = request.returns.clone();
        self.send(Job::Order(Order { request, since: Instant::now(), is_attempt, ticket, reply }))?;
        let mut guard = Guard { bridge: self, ticket, returns, answer, is_answered: false };
        let answered = (&mut guard.answer).await;
        guard.is_answered = true;
        answered.map_err(|_| stopping())
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
        let late = || format!("the loop did not answer within {} s", limit.as_secs_f64());
        let seen = tokio::time::timeout(limit, answer).await;
        seen.map_err(|_| Problem::new(Kind::Unavailable, late()))?.map_err(|_| stopping())
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
