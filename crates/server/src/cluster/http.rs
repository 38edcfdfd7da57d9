//! Calls that come over HTTP to a node that does not lead: the leader makes them.
//!
//! The bridge of HTTP ([`crate::http::bridge`]) hands an [`Order`] over instead of asking its own instance. The node sends
//! the order on a connection between members and waits for the outcomes. A connection carries one order at a time and is kept
//! for the next one. An HTTP client that goes away ends the connection, so that the leader takes a waiting call back; tasks in
//! an answer that no client reads go back to the leader ([`Forwarder::give_back`]).
//!
//! An order that was not sent waits for a leader, at most [`LEADERLESS`]. An order that was sent and not answered when the leader
//! changes has an unknown outcome.
//!
//! Absent: probes, metrics and settings, which each node answers about itself.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use lycosa_engine::group::relay::outcome_unknown;
use lycosa_instance::{HANDING_OVER, Once, TokenDigest};
use lycosa_iproto::error::ErrorObject;
use lycosa_tuple::mp::Reader as Values;
use lycosa_tuple::value::Value;
use tokio::io::AsyncReadExt;
use tokio::task::spawn_local;

use super::clients::{LATE_ANSWERS, LEADERLESS, are_elsewhere, no_leader};
use super::handshake::{Purpose, frame, next_frame, read_frame, send_frame};
use super::member::{Member, Place};
use super::port::Visit;
use crate::http::bridge::{self, Bridge, Call, Order, Outcome};
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

/// The outcome of an attempt.
enum Attempt {
    /// The outcomes, and the connection that they came over.
    Answered(Vec<Outcome>, Stream),
    /// The order was not carried out.
    NotSent,
    /// The order was sent, and the leader is gone.
    Unknown,
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
            let Place::At(leader) = *own.member.place().borrow() else { return };
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

    async fn carry(self: Rc<Self>, mut order: Order) {
        let content = encode(&order);
        let mut place = self.member.place();
        let until = tokio::time::Instant::now() + LEADERLESS;
        let outcome = loop {
            let at = *place.borrow_and_update();
            match at {
                Place::Here => return self.bridge.again(order),
                Place::Nowhere => {}
                Place::At(leader) => {
                    let attempt = tokio::select! {
                        biased;
                        () = order.reply.closed() => return,
                        attempt = self.attempt(leader, &content) => attempt,
                    };
                    match attempt {
                        Attempt::Answered(outcomes, stream) => {
                            self.keep(leader, stream);
                            if let (Err(outcomes), Some(tube)) = (order.reply.send(outcomes), order.returns) {
                                self.give_back(tube, outcomes);
                            }
                            return;
                        }
                        Attempt::Unknown => break outcome_unknown(),
                        Attempt::NotSent => {}
                    }
                }
            }
            if tokio::time::Instant::now() >= until {
                break no_leader();
            }
            tokio::select! {
                () = order.reply.closed() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        };
        let _ = order.reply.send(order.calls.iter().map(|_| Err(outcome.clone())).collect());
    }

    async fn attempt(&self, leader: u64, content: &[u8]) -> Attempt {
        let mut place = self.member.place();
        place.mark_unchanged();
        let is_there = move |place: &Place| *place != Place::At(leader);
        let connected = tokio::select! {
            connected = self.connect(leader) => connected.ok(),
            _ = place.wait_for(is_there) => None,
        };
        let Some(mut stream) = connected else { return Attempt::NotSent };
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
            None => tokio::time::timeout(LATE_ANSWERS, &mut asking).await.ok().and_then(Result::ok),
        };
        drop(asking);
        match answer.and_then(|answer| answer_of(&answer)) {
            Some(Some(outcomes)) if !are_refused(&outcomes) => Attempt::Answered(outcomes, stream),
            Some(_) => Attempt::NotSent,
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

/// Whether the leader has carried out none of the calls, because it hands over.
fn are_refused(outcomes: &[Outcome]) -> bool {
    let is_refused =
        |outcome: &Outcome| outcome.as_ref().is_err_and(|error| error.name() == Some(HANDING_OVER));
    !outcomes.is_empty() && outcomes.iter().all(is_refused)
}

/// Makes the calls of another member, as the leader, until its connection ends.
pub(crate) async fn visit(bridge: Bridge, member: Rc<Member>, visit: Visit) {
    let Visit { mut reader, writer, .. } = visit;
    while let Ok(Some(message)) = next_frame(&mut reader, MAX_FRAME).await {
        let (token, calls, once, returns) = match decode(&message) {
            None => return,
            Some(Asked::Order { token, calls, once, returns }) => (token, calls, once, returns),
            Some(Asked::GiveBack { tube, outcomes }) => {
                bridge.give_back(tube, outcomes);
                continue;
            }
        };
        let (mut byte, mut outcomes) = ([0], Vec::new());
        let answer = if are_elsewhere(&member) {
            Value::array([Value::from(NOT_LEADER)])
        } else {
            let made = tokio::select! {
                made = bridge.made(token, calls, (once, returns.clone())) => made,
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
    Order { token: TokenDigest, calls: Vec<Call>, once: Option<Once>, returns: bridge::Returns },
    GiveBack { tube: String, outcomes: Vec<Outcome> },
}

fn encode(order: &Order) -> Vec<u8> {
    let calls =
        order.calls.iter().map(|call| Value::array([Value::str(&call.function), Value::bin(&call.args)]));
    let once = order.once.as_ref().map_or(Value::Nil, |once| {
        Value::array([Value::str(&once.key), Value::str(&once.fingerprint), once.window.into()])
    });
    let returns = order.returns.as_ref().map_or(Value::Nil, Value::str);
    let token = Value::str(order.token.as_str());
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
            let once = match once.as_array() {
                Some([key, fingerprint, window]) => {
                    Some(Once { key: text(key)?, fingerprint: text(fingerprint)?, window: window.as_u64()? })
                }
                _ => None,
            };
            let calls = calls.as_array()?.iter().map(call).collect::<Option<_>>()?;
            let token = TokenDigest::from_text(text(token)?);
            Some(Asked::Order { token, calls, once, returns: text(returns) })
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
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn orders_and_outcomes_read_back() {
        let once = Once { key: "k".to_owned(), fingerprint: "f".to_owned(), window: 7 };
        let call = |function: &str| Call { function: function.to_owned(), args: vec![0x91, 5] };
        for (once, returns) in [(None, None), (Some(once), Some("mail".to_owned()))] {
            let order = Order {
                token: TokenDigest::of(b"secret"),
                calls: vec![call("queue.statistics"), call("queue.tube.mail:put")],
                once: once.clone(),
                returns: returns.clone(),
                ticket: 3,
                reply: oneshot::channel().0,
            };
            let bytes = encode(&order);
            let Some(Asked::Order { token, calls, once: found, returns: back }) = decode(&bytes) else {
                panic!("an order reads back");
            };
            assert_eq!(token, order.token);
            assert_eq!((found, back), (once, returns));
            let names: Vec<_> =
                calls.iter().map(|call| (call.function.as_str(), call.args.as_slice())).collect();
            assert_eq!(names, [("queue.statistics", &[0x91, 5][..]), ("queue.tube.mail:put", &[0x91, 5])]);
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
