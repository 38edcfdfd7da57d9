//! Calls that come over HTTP to a member: the leader makes them.
//!
//! The bridge of HTTP ([`crate::http::bridge`]) hands an [`Order`] over where its own node does not lead, or leads no more. The node sends
//! the order on a connection between members and waits for the outcomes. A connection carries one order at a time and is kept
//! for the next one. An HTTP client that goes away ends the connection, so that the leader takes a waiting call back; tasks in
//! an answer that no client reads go back to the leader ([`Forwarder::give_back`]).
//!
//! [`Attempts`] say when an order is sent again.
//!
//! Absent: probes, metrics and settings, which each node answers about itself.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use lycosa_engine::group::attempts::{Attempts, Setback};
use lycosa_instance::{Forwarded, OUTCOME_UNKNOWN, Once, TokenDigest};
use lycosa_iproto::error::ErrorObject;
use lycosa_tuple::mp::Reader as Values;
use lycosa_tuple::value::Value;
use tokio::io::AsyncReadExt;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::clients::{LATE_ANSWERS, are_elsewhere};
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

impl Forwarder {
    pub(crate) fn new(member: Rc<Member>, bridge: Bridge) -> Rc<Self> {
        Rc::new(Self { member, bridge, idle: RefCell::default() })
    }

    /// Whether orders are another node's.
    pub(crate) fn is_elsewhere(&self) -> bool {
        are_elsewhere(&self.member)
    }

    /// Sends an order to the leader, and its outcomes back to the HTTP thread. `setback`: of an attempt that this node has made as the
    /// leader.
    pub(crate) fn forward(self: &Rc<Self>, order: Order, setback: Option<Setback>) {
        let own = self.clone();
        spawn_local(async move { own.carry(order, setback).await });
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

    async fn carry(self: Rc<Self>, order: Order, mut setback: Option<Setback>) {
        let Order { request, since, mut reply, .. } = order;
        let mut attempts = Attempts::new(request.repetition.is_harmless(), Instant::now()).behind(setback);
        let outcomes = loop {
            if let Some(setback) = setback {
                if let Some(error) = attempts.failed(setback, Instant::now()) {
                    let unknown = u64::from(error.name() == Some(OUTCOME_UNKNOWN));
                    self.member.count_forwarded(Forwarded { unknown, ..Forwarded::default() });
                    break vec![Err(error); request.calls.len()];
                }
                tokio::select! {
                    () = reply.closed() => return,
                    () = sleep(PAUSE) => {}
                }
            }
            let request = request.after(since.elapsed());
            let attempt = tokio::select! {
                biased;
                () = reply.closed() => return,
                attempt = self.attempt(&request, &mut attempts) => attempt,
            };
            match attempt {
                Ok(outcomes) => break outcomes,
                Err(failed) => setback = Some(failed),
            }
        };
        if let (Err(outcomes), Some(tube)) = (reply.send(outcomes), request.returns) {
            self.give_back(tube, outcomes);
        }
    }

    /// Has the leader carry an order out, if there is one.
    async fn attempt(&self, request: &Request, attempts: &mut Attempts) -> Result<Vec<Outcome>, Setback> {
        let place = *self.member.place().borrow();
        let outcomes = match place {
            Place::Nowhere => return Err(Setback::NotDone),
            Place::At(leader) => self.ask(leader, request, attempts).await?,
            // The loop may have no place for the order now.
            Place::Here => {
                self.member.count_forwarded(attempts.sent());
                self.bridge.attempt(request.clone()).await.map_err(|_| Setback::NotDone)?
            }
        };
        Setback::told_by(&outcomes, request.repetition.is_harmless()).map_or(Ok(outcomes), Err)
    }

    async fn ask(
        &self,
        leader: u64,
        request: &Request,
        attempts: &mut Attempts,
    ) -> Result<Vec<Outcome>, Setback> {
        let mut place = self.member.place();
        place.mark_unchanged();
        let is_there = move |place: &Place| *place != Place::At(leader);
        let connected = tokio::select! {
            connected = self.connect(leader) => connected.ok(),
            _ = place.wait_for(is_there) => None,
        };
        let mut stream = connected.ok_or(Setback::NotDone)?;
        self.member.count_forwarded(attempts.sent());
        let asking = async {
            send_frame(&mut stream, &encode(request)).await?;
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
        let answer = answer.and_then(|answer| answer_of(&answer)).ok_or(Setback::Unknown)?;
        self.keep(leader, stream);
        answer.ok_or(Setback::NotDone)
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
                made = bridge.attempt(request) => made,
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
    /// [`Repetition::Reads`] and [`Repetition::Leases`] are the asking member's business alone.
    Order(Request),
    GiveBack {
        tube: String,
        outcomes: Vec<Outcome>,
    },
}

fn encode(request: &Request) -> Vec<u8> {
    let calls =
        request.calls.iter().map(|call| Value::array([Value::str(&call.function), Value::bin(&call.args)]));
    let once = match &request.repetition {
        Repetition::Once(once) => {
            Value::array([Value::str(&once.key), Value::str(&once.fingerprint), once.window.into()])
        }
        _ => Value::Nil,
    };
    let returns = request.returns.as_ref().map_or(Value::Nil, Value::str);
    let token = Value::str(request.token.as_str());
    Value::array([Value::from(ORDER), token, Value::array(calls), once, returns]).encode()
}

fn decode(bytes: &[u8]) -> Option<Asked> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let message = Value::decode(bytes).ok()?;
    match message.as_array()? {
        [kind, tube, outcomes] if kind.as_u64() == Some(GIVE_BACK) => {
            Some(Asked::GiveBack { tube: text(tube)?, outcomes: outcomes_of(outcomes)? })
        }
        [kind, token, calls, once, returns] if kind.as_u64() == Some(ORDER) => {
            let call = |call: &Value| match call.as_array()? {
                [function, args] => Some(Call { function: text(function)?, args: binary(args)?.to_vec() }),
                _ => None,
            };
            let repetition = match once.as_array() {
                Some([key, fingerprint, window]) => Repetition::Once(Once {
                    key: text(key)?,
                    fingerprint: text(fingerprint)?,
                    window: window.as_u64()?,
                }),
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
    use lycosa_engine::group::relay::outcome_unknown;

    use super::*;

    #[test]
    fn orders_and_outcomes_read_back() {
        let once = Once { key: "k".to_owned(), fingerprint: "f".to_owned(), window: 7 };
        let call = |function: &str| Call { function: function.to_owned(), args: vec![0x91, 5] };
        for (repetition, returns) in
            [(Repetition::ActsAgain, Some("mail".to_owned())), (Repetition::Once(once), None)]
        {
            let calls = vec![call("queue.statistics"), call("queue.tube.mail:put")];
            let request = Request { token: TokenDigest::of(b"secret"), calls, repetition, returns };
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
