//! Calls that come over HTTP to a node that does not lead: the leader makes them.
//!
//! The bridge of HTTP ([`crate::http::bridge`]) hands an [`Order`] over instead of asking its own instance. The node sends
//! the order on a connection between members and waits for the outcomes. A connection carries one order at a time and is kept
//! for the next one. An HTTP client that goes away ends the connection, so that the leader takes a waiting call back; tasks in
//! an answer that no client reads go back to the leader ([`Forwarder::give_back`]).
//!
//! | an order that was | what becomes of it |
//! |---|---|
//! | not carried out, because nobody leads or the leader hands over | it waits for a leader, at most [`LEADERLESS`], and is sent again |
//! | sent, and not answered when the leader changes | its outcome is unknown; where a repetition does nothing ([`Repetition`]), it is sent again |
//!
//! *Invariant:* no order that may have been carried out is answered with an error that says the opposite.
//!
//! Absent: probes, metrics and settings, which each node answers about itself.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use lycosa_engine::group::relay::outcome_unknown;
use lycosa_instance::{HANDING_OVER, OUTCOME_UNKNOWN, Once, TokenDigest};
use lycosa_iproto::error::ErrorObject;
use lycosa_tuple::mp::Reader as Values;
use lycosa_tuple::value::Value;
use tokio::io::AsyncReadExt;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};

use super::clients::{LATE_ANSWERS, LEADERLESS, NO_LEADER, are_elsewhere, no_leader};
use super::handshake::{Purpose, frame, next_frame, read_frame, send_frame};
use super::member::{Member, Place};
use super::port::Visit;
use crate::http::bridge::{self, Bridge, Call, Order, Outcome, Repetition, Request};
use crate::socket::Stream;

/// Pause before the next attempt to reach a leader.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of an order or of its outcomes: more than HTTP lets a body have.
const MAX_FRAME: usize = 1 << 30;
/// Connections without an order that are kept.
const MAX_IDLE: usize = 16;

/// The first value of a frame.
const ORDER: u64 = 0;
const GIVE_BACK: u64 = 1;
/// The first value of an answer.
const DONE: u64 = 0;
const NOT_LEADER: u64 = 1;

/// Forwards orders to the leader while this node does not lead.
pub(crate) struct Forwarder {
    member: Rc<Member>,
    bridge: Bridge,
    /// Connections to the leader that carry no order, each with the leader's number.
    idle: RefCell<Vec<(u64, Stream)>>,
}

/// What became of an attempt to have an order carried out.
#[derive(Debug)]
enum Attempt {
    /// The leader has carried the order out, or refused it for a reason that is not about the leader.
    Answered(Vec<Outcome>),
    /// The order was not carried out.
    NotDone,
    /// The order may have been carried out: it was sent, and the leader is gone or has lost its rows.
    Unknown,
}

/// What is known of an order after its attempts.
struct Progress {
    /// A repetition of the order does nothing.
    is_repeatable: bool,
    /// An attempt has an unknown outcome.
    may_be_done: bool,
    /// When the order stops waiting for a leader.
    until: Instant,
}

impl Progress {
    fn new(request: &Request, now: Instant) -> Self {
        Self { is_repeatable: is_repeatable(request), may_be_done: false, until: now + LEADERLESS }
    }

    /// The outcomes for the client; `None`: the order is to be sent again.
    fn after(&mut self, attempt: Attempt, calls: usize, now: Instant) -> Option<Vec<Outcome>> {
        let for_all = |error| Some(vec![Err(error); calls]);
        match attempt {
            Attempt::Answered(outcomes) => Some(outcomes),
            Attempt::Unknown if !self.is_repeatable => for_all(outcome_unknown()),
            Attempt::Unknown => {
                (self.may_be_done, self.until) = (true, now + LEADERLESS);
                None
            }
            Attempt::NotDone if now < self.until => None,
            Attempt::NotDone if self.may_be_done => for_all(outcome_unknown()),
            Attempt::NotDone => for_all(no_leader()),
        }
    }
}

fn is_repeatable(request: &Request) -> bool {
    request.repetition != Repetition::ActsAgain
}

/// What outcomes of a leader say. A leader that does not know the outcome itself has answered an order that is not repeatable.
fn attempt_of(outcomes: Vec<Outcome>, is_repeatable: bool) -> Attempt {
    let all_are = |names: &[&str]| {
        let is_one = |outcome: &Outcome| {
            outcome.as_ref().is_err_and(|error| error.name().is_some_and(|name| names.contains(&name)))
        };
        !outcomes.is_empty() && outcomes.iter().all(is_one)
    };
    if all_are(&[HANDING_OVER, NO_LEADER]) {
        Attempt::NotDone
    } else if is_repeatable && all_are(&[OUTCOME_UNKNOWN]) {
        Attempt::Unknown
    } else {
        Attempt::Answered(outcomes)
    }
}

impl Forwarder {
    pub(crate) fn new(member: Rc<Member>, bridge: Bridge) -> Rc<Self> {
        Rc::new(Self { member, bridge, idle: RefCell::default() })
    }

    /// Whether orders are another node's.
    pub(crate) fn is_elsewhere(&self) -> bool {
        are_elsewhere(&self.member)
    }

    /// Sends an order to the leader, and its outcomes back to the HTTP thread.
    pub(crate) fn forward(self: &Rc<Self>, order: Order) {
        let own = self.clone();
        spawn_local(async move { own.carry(order).await });
    }

    /// Gives the leader tasks back that are in an answer which no client reads.
    pub(crate) fn give_back(self: &Rc<Self>, tube: String, outcomes: Vec<Outcome>) {
        let own = self.clone();
        spawn_local(async move {
            let leader = match *own.member.place().borrow() {
                Place::At(leader) => leader,
                Place::Here => return own.bridge.give_back(tube, outcomes),
                Place::Nowhere => return,
            };
            let message = Value::array([Value::from(GIVE_BACK), tube.into(), outcomes_value(&outcomes)]);
            let given = async {
                let mut stream = own.connect(leader).await?;
                send_frame(&mut stream, &message.encode()).await?;
                io::Result::Ok(stream)
            };
            match given.await {
                Ok(stream) => own.keep(leader, stream),
                // The tasks are ready again when their leases end.
                Err(error) => {
                    tracing::debug!("an unread answer was not given back to node {leader}: {error}");
                }
            }
        });
    }

    async fn carry(self: Rc<Self>, order: Order) {
        let Order { request, mut reply, .. } = order;
        let content = encode(&request);
        let mut progress = Progress::new(&request, Instant::now());
        let outcomes = loop {
            let attempt = tokio::select! {
                biased;
                () = reply.closed() => return,
                attempt = self.attempt(&request, &content) => attempt,
            };
            if let Some(outcomes) = progress.after(attempt, request.calls.len(), Instant::now()) {
                break outcomes;
            }
            tokio::select! {
                () = reply.closed() => return,
                () = sleep(PAUSE) => {}
            }
        };
        if let (Err(outcomes), Some(tube)) = (reply.send(outcomes), request.returns) {
            self.give_back(tube, outcomes);
        }
    }

    /// Has the leader carry an order out, if there is one. `content`: the request as a frame.
    async fn attempt(&self, request: &Request, content: &[u8]) -> Attempt {
        let place = *self.member.place().borrow();
        match place {
            Place::Nowhere => Attempt::NotDone,
            Place::At(leader) => self.ask(leader, content, is_repeatable(request)).await,
            Place::Here => match self.bridge.made(request.clone()).await {
                Ok(outcomes) => attempt_of(outcomes, is_repeatable(request)),
                // The loop has no place for the order now.
                Err(_) => Attempt::NotDone,
            },
        }
    }

    async fn ask(&self, leader: u64, content: &[u8], is_repeatable: bool) -> Attempt {
        let mut place = self.member.place();
        place.mark_unchanged();
        let is_there = move |place: &Place| *place != Place::At(leader);
        let connected = tokio::select! {
            connected = self.connect(leader) => connected.ok(),
            _ = place.wait_for(is_there) => None,
        };
        let Some(mut stream) = connected else { return Attempt::NotDone };
        let asking = async {
            send_frame(&mut stream, content).await?;
            read_frame(&mut stream, MAX_FRAME).await
        };
        let mut asking = Box::pin(asking);
        let answered = tokio::select! {
            answer = &mut asking => Some(answer),
            _ = place.wait_for(is_there) => None,
        };
        // A leader that has handed over still answers what it has carried out.
        let answer = match answered {
            Some(answer) => answer.ok(),
            None => timeout(LATE_ANSWERS, &mut asking).await.ok().and_then(Result::ok),
        };
        drop(asking);
        match answer.and_then(|answer| answer_of(&answer)) {
            Some(outcomes) => {
                self.keep(leader, stream);
                outcomes.map_or(Attempt::NotDone, |outcomes| attempt_of(outcomes, is_repeatable))
            }
            None => Attempt::Unknown,
        }
    }

    /// A connection to the leader: one that is kept, or a new one.
    async fn connect(&self, leader: u64) -> io::Result<Stream> {
        self.idle.borrow_mut().retain(|(node, _)| *node == leader);
        loop {
            let kept = self.idle.borrow_mut().pop();
            let Some((_, mut stream)) = kept else { break };
            // The other side says nothing unasked: what can be read is the end.
            let mut byte = [0];
            let is_alive = tokio::select! {
                biased;
                _ = stream.read(&mut byte) => false,
                () = std::future::ready(()) => true,
            };
            if is_alive {
                return Ok(stream);
            }
        }
        self.member.dial(leader, Purpose::Http).await
    }

    fn keep(&self, leader: u64, stream: Stream) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MAX_IDLE {
            idle.push((leader, stream));
        }
    }
}

/// Makes the calls of another member, as the leader, until its connection ends.
pub(crate) async fn visit(bridge: Bridge, member: Rc<Member>, visit: Visit) {
    let Visit { mut reader, writer, .. } = visit;
    while let Ok(Some(message)) = next_frame(&mut reader, MAX_FRAME).await {
        let request = match decode(&message) {
            None => return,
            Some(Asked::Order(request)) => request,
            Some(Asked::GiveBack { tube, outcomes }) => {
                bridge.give_back(tube, outcomes);
                continue;
            }
        };
        let returns = request.returns.clone();
        let (mut byte, mut outcomes) = ([0], Vec::new());
        let answer = if are_elsewhere(&member) {
            Value::array([Value::from(NOT_LEADER)])
        } else {
            let made = tokio::select! {
                made = bridge.made(request) => made,
                // The other member sends nothing before it has the answer: its client is gone.
                _ = reader.read(&mut byte) => return,
            };
            let Ok(made) = made else { return };
            outcomes = made;
            Value::array([Value::from(DONE), outcomes_value(&outcomes)])
        };
        if writer.write_all(&frame(&answer.encode())).await.is_err() {
            if let Some(tube) = returns {
                bridge.give_back(tube, outcomes);
            }
            return;
        }
    }
}

/// A request of another member.
enum Asked {
    Order(Request),
    GiveBack { tube: String, outcomes: Vec<Outcome> },
}

fn encode(request: &Request) -> Vec<u8> {
    let calls =
        request.calls.iter().map(|call| Value::array([Value::str(&call.function), Value::bin(&call.args)]));
    let repetition = match &request.repetition {
        Repetition::ActsAgain => Value::Nil,
        Repetition::Reads => Value::Bool(true),
        Repetition::Once(once) => {
            Value::array([Value::str(&once.key), Value::str(&once.fingerprint), once.window.into()])
        }
    };
    let returns = request.returns.as_ref().map_or(Value::Nil, Value::str);
    let token = Value::str(request.token.as_str());
    Value::array([Value::from(ORDER), token, Value::array(calls), repetition, returns]).encode()
}

fn decode(bytes: &[u8]) -> Option<Asked> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let message = Value::decode(bytes).ok()?;
    match message.as_array()? {
        [kind, tube, outcomes] if kind.as_u64() == Some(GIVE_BACK) => {
            Some(Asked::GiveBack { tube: text(tube)?, outcomes: outcomes_of(outcomes)? })
        }
        [kind, token, calls, repetition, returns] if kind.as_u64() == Some(ORDER) => {
            let call = |call: &Value| match call.as_array()? {
                [function, args] => Some(Call { function: text(function)?, args: binary(args)?.to_vec() }),
                _ => None,
            };
            let repetition = match repetition {
                Value::Bool(true) => Repetition::Reads,
                Value::Array(once) => match once.as_slice() {
                    [key, fingerprint, window] => Repetition::Once(Once {
                        key: text(key)?,
                        fingerprint: text(fingerprint)?,
                        window: window.as_u64()?,
                    }),
                    _ => return None,
                },
                _ => Repetition::ActsAgain,
            };
            let calls = calls.as_array()?.iter().map(call).collect::<Option<_>>()?;
            let token = TokenDigest::from_text(text(token)?);
            Some(Asked::Order(Request { token, calls, repetition, returns: text(returns) }))
        }
        _ => None,
    }
}

fn outcomes_value(outcomes: &[Outcome]) -> Value {
    Value::array(outcomes.iter().map(|outcome| match outcome {
        Ok(values) => Value::array([Value::from(u64::from(values.count)), Value::bin(&values.bytes)]),
        Err(error) => {
            let mut bytes = Vec::new();
            error.encode(&mut bytes);
            Value::array([Value::bin(bytes)])
        }
    }))
}

fn outcomes_of(value: &Value) -> Option<Vec<Outcome>> {
    let outcome = |outcome: &Value| match outcome.as_array()? {
        [count, bytes] => {
            let count = u32::try_from(count.as_u64()?).ok()?;
            Some(Ok(bridge::Values { count, bytes: binary(bytes)?.to_vec() }))
        }
        [error] => Some(Err(ErrorObject::decode(&mut Values::new(binary(error)?)).ok()?)),
        _ => None,
    };
    value.as_array()?.iter().map(outcome).collect()
}

fn binary(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bin(bytes) => Some(bytes),
        _ => None,
    }
}

/// The outcomes in an answer; `Some(None)`: the other node does not lead.
fn answer_of(bytes: &[u8]) -> Option<Option<Vec<Outcome>>> {
    let answer = Value::decode(bytes).ok()?;
    match answer.as_array()? {
        [kind, outcomes] if kind.as_u64() == Some(DONE) => outcomes_of(outcomes).map(Some),
        [kind] if kind.as_u64() == Some(NOT_LEADER) => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use lycosa_iproto::error::ErrorCode;

    use super::*;

    fn request(repetition: Repetition) -> Request {
        let call = |function: &str| Call { function: function.to_owned(), args: vec![0x91, 5] };
        let calls = vec![call("queue.statistics"), call("queue.tube.mail:put")];
        let returns = (repetition == Repetition::ActsAgain).then(|| "mail".to_owned());
        Request { token: TokenDigest::of(b"secret"), calls, repetition, returns }
    }

    fn repetitions() -> [Repetition; 3] {
        let once = Once { key: "k".to_owned(), fingerprint: "f".to_owned(), window: 7 };
        [Repetition::ActsAgain, Repetition::Reads, Repetition::Once(once)]
    }

    /// What the client hears: the kinds of the errors, or that the leader has answered.
    fn told(outcomes: Option<Vec<Outcome>>) -> Option<Vec<Result<(), String>>> {
        let kind = |outcome: Outcome| outcome.map(drop).map_err(|error| error.name().unwrap().to_owned());
        outcomes.map(|outcomes| outcomes.into_iter().map(kind).collect())
    }

    fn done() -> Outcome {
        Ok(bridge::Values { count: 1, bytes: vec![9] })
    }

    fn refused(name: &str) -> Outcome {
        Err(ErrorObject::client(ErrorCode::Readonly, "no").with_name(name))
    }

    #[test]
    fn an_order_that_was_not_done_waits_for_a_leader_and_hears_that_nothing_was_done() {
        let start = Instant::now();
        for repetition in repetitions() {
            let mut progress = Progress::new(&request(repetition), start);
            let soon = start + LEADERLESS - Duration::from_micros(1);
            assert_eq!(told(progress.after(Attempt::NotDone, 2, soon)), None);
            let late = told(progress.after(Attempt::NotDone, 2, start + LEADERLESS));
            assert_eq!(late, Some(vec![Err(NO_LEADER.to_owned()); 2]));
            let answered = progress.after(Attempt::Answered(vec![done()]), 1, start + LEADERLESS);
            assert_eq!(told(answered), Some(vec![Ok(())]));
        }
    }

    #[test]
    fn an_order_that_may_have_been_done_is_sent_again_where_that_does_nothing() {
        let start = Instant::now();
        let unknown = || Some(vec![Err(OUTCOME_UNKNOWN.to_owned())]);
        let [acts_again, repeatable @ ..] = repetitions();
        let mut progress = Progress::new(&request(acts_again), start);
        assert_eq!(told(progress.after(Attempt::Unknown, 1, start)), unknown());
        for repetition in repeatable {
            let mut progress = Progress::new(&request(repetition), start);
            // The order waits for the next leader as long as for the first one, and never hears that nothing was done.
            let lost = start + LEADERLESS;
            assert_eq!(told(progress.after(Attempt::Unknown, 1, lost)), None);
            let soon = lost + LEADERLESS - Duration::from_micros(1);
            assert_eq!(told(progress.after(Attempt::NotDone, 1, soon)), None);
            assert_eq!(told(progress.after(Attempt::NotDone, 1, lost + LEADERLESS)), unknown());
        }
    }

    #[test]
    fn a_leader_s_refusal_about_itself_is_told_from_an_answer() {
        for is_repeatable in [false, true] {
            for name in [HANDING_OVER, NO_LEADER] {
                let attempt = attempt_of(vec![refused(name), refused(HANDING_OVER)], is_repeatable);
                assert!(matches!(attempt, Attempt::NotDone), "{attempt:?}");
            }
            let partly = attempt_of(vec![done(), refused(HANDING_OVER)], is_repeatable);
            assert!(matches!(partly, Attempt::Answered(_)), "{partly:?}");
            assert!(matches!(attempt_of(Vec::new(), is_repeatable), Attempt::Answered(_)));
            let other = attempt_of(vec![refused("NO_SUCH_TUBE")], is_repeatable);
            assert!(matches!(other, Attempt::Answered(_)), "{other:?}");
            let unknown = attempt_of(vec![Err(outcome_unknown())], is_repeatable);
            assert_eq!(matches!(unknown, Attempt::Unknown), is_repeatable, "{unknown:?}");
        }
    }

    #[test]
    fn orders_and_outcomes_read_back() {
        for repetition in repetitions() {
            let request = request(repetition);
            let bytes = encode(&request);
            assert!(matches!(decode(&bytes), Some(Asked::Order(found)) if found == request));
            (0..bytes.len()).for_each(|length| assert!(decode(&bytes[..length]).is_none(), "{length} bytes"));
        }
        let outcomes = vec![Ok(bridge::Values { count: 1, bytes: vec![9] }), Err(outcome_unknown())];
        let answer = Value::array([Value::from(DONE), outcomes_value(&outcomes)]).encode();
        assert_eq!(answer_of(&answer), Some(Some(outcomes.clone())));
        assert_eq!(answer_of(&Value::array([Value::from(NOT_LEADER)]).encode()), Some(None));
        let back = Value::array([Value::from(GIVE_BACK), "mail".into(), outcomes_value(&outcomes)]).encode();
        assert!(
            matches!(decode(&back), Some(Asked::GiveBack { tube, outcomes: found }) if tube == "mail" && found == outcomes)
        );
    }
}
