//! Puts with a key, as a member makes them for its clients over HTTP: the leader's instance is called without a connection, and
//! [`Attempts`] say when the put is sent again.
//!
//! A client asks until it hears that its put was done or refused. It asks another member if its own one dies, and then has a key that
//! was used before. In the end each such put has put one task, or none if it was refused.
//!
//! Absent: HTTP, tokens, and the time that bytes take.

use lycosa_engine::group::attempts::{self, Attempts, NO_LEADER, Setback};
use lycosa_engine::group::relay::outcome_unknown;
use lycosa_group::members::NodeId;
use lycosa_instance::{Called, Caller, CallerKind, Lsn, Once};
use lycosa_iproto::error::ErrorObject;
use lycosa_tuple::value::Value;

use super::super::client::{TEMPORARY, TUBES};
use super::super::server::Server;
use super::{World, violation};
use crate::random::Random;
use crate::violation::{Checked, Violation};

/// Draws the worlds with such puts, and what happens to the puts. None of the kept worlds has any.
const ORDERS: u64 = 1_697;
/// How long an answer is kept: longer than a world lasts, in µs.
const WINDOW: u64 = 1_000_000_000_000;
/// Puts under way at most.
const MAX_OPEN: usize = 3;

/// Puts with a key that are under way.
pub(super) struct Orders {
    random: Random,
    open: Vec<Order>,
    /// Attempts that their members have given up, and that may reach the leader still.
    late: Vec<(Put, Sent)>,
}

impl Orders {
    /// `None`: the world has no such puts.
    pub(super) fn new(seed: u64) -> Option<Self> {
        let mut random = Random::new(seed ^ ORDERS);
        random.one_in(2).then(|| Self { random, open: Vec::new(), late: Vec::new() })
    }

    /// Whether the next step of the world is about such a put, too.
    pub(super) fn is_next(&mut self) -> bool {
        self.random.one_in(4)
    }

    /// Whether no put is under way.
    pub(super) fn are_done(&self) -> bool {
        self.open.is_empty()
    }
}

/// A put with a key.
#[derive(Debug, Clone, Copy)]
struct Put {
    tube: usize,
    payload: u64,
}

/// A put of a client that waits for an answer.
struct Order {
    put: Put,
    /// The member that the client asks, and what the member knows. `None`: the client is to ask another one.
    asked: Option<(NodeId, Attempts)>,
    attempt: Option<Attempt>,
    /// The client has heard that its put may have been done, or nothing.
    may_be_done: bool,
}

/// The process that a member takes for the leader.
#[derive(Debug, Clone, Copy)]
struct Sent {
    leader: NodeId,
    process: u64,
}

struct Attempt {
    sent: Sent,
    /// `None`: the leader has not read the call yet.
    made: Option<Made>,
}

/// A call of the leader's instance whose answer waits for its rows.
struct Made {
    lsn: Lsn,
    outcome: Result<Value, ErrorObject>,
}

impl World<'_> {
    /// A client over HTTP or its member does something.
    pub(super) fn order(&mut self) -> Checked {
        let Some(orders) = &mut self.orders else { return Ok(()) };
        if orders.open.len() < MAX_OPEN && orders.random.one_in(3) {
            let tube = orders.random.below(TEMPORARY as u64) as usize;
            let payload = self.ledger.ordered();
            let put = Put { tube, payload };
            let order = Order { put, asked: None, attempt: None, may_be_done: false };
            orders.open.push(order);
        }
        if !orders.late.is_empty() && orders.random.one_in(3) {
            let (put, sent) = orders.late.swap_remove(0);
            self.make(put, sent)?;
        }
        let Some(orders) = &mut self.orders else { return Ok(()) };
        if orders.open.is_empty() {
            return Ok(());
        }
        let place = orders.random.below(orders.open.len() as u64) as usize;
        self.go_on(place)
    }

    /// Every client asks, and every member goes on.
    pub(super) fn finish_orders(&mut self) -> Checked {
        for place in (0..self.orders.as_ref().map_or(0, |orders| orders.open.len())).rev() {
            self.go_on(place)?;
        }
        Ok(())
    }

    fn go_on(&mut self, place: usize) -> Checked {
        let instant = self.instant();
        let all: Vec<NodeId> = self.servers.keys().copied().collect();
        let Some(orders) = &mut self.orders else { return Ok(()) };
        let asked = &mut orders.open[place].asked;
        let node = match asked {
            Some((node, _)) => *node,
            None => {
                let node = *orders.random.pick(&all);
                if self.servers.get(&node).and_then(Server::body).is_some() {
                    *asked = Some((node, Attempts::new(true, instant)));
                }
                return Ok(());
            }
        };
        let Some(server) = self.servers.get(&node) else { return Ok(()) };
        if !server.is_awake(self.now) {
            return Ok(());
        }
        let known = server.leader_known();
        let put = orders.open[place].put;
        let Some(attempt) = &mut orders.open[place].attempt else {
            return match known {
                Some(leader) => self.send_order(place, node, leader),
                None => self.set_back(place, Setback::NotDone),
            };
        };
        let sent = attempt.sent;
        let is_blocked = self.links.get(&(node, sent.leader)).is_some_and(|link| link.is_blocked);
        // A member waits a moment for the last answer of a leader that leads no more.
        if (known != Some(sent.leader) || is_blocked) && orders.random.one_in(2) {
            if attempt.made.is_none() && !is_blocked {
                orders.late.push((put, sent));
            }
            orders.open[place].attempt = None;
            return self.set_back(place, Setback::Unknown);
        }
        if attempt.made.is_none() && orders.random.one_in(2) {
            return self.make_attempt(place, put, sent);
        }
        Ok(())
    }

    /// A member sends a put to the node that it takes for the leader.
    fn send_order(&mut self, place: usize, node: NodeId, leader: NodeId) -> Checked {
        let link = self.links.get(&(node, leader)).filter(|_| leader != node);
        let is_cut_off = link.is_some_and(|link| link.is_blocked || link.is_swallowing);
        let server = self.servers.get(&leader).filter(|server| server.running.is_some() && !is_cut_off);
        let Some(server) = server else { return self.set_back(place, Setback::NotDone) };
        let sent = Sent { leader, process: server.reign().process };
        if let Some(orders) = &mut self.orders {
            orders.open[place].attempt = Some(Attempt { sent, made: None });
        }
        self.go_on(place)
    }

    /// The leader makes the call that a member waits for.
    fn make_attempt(&mut self, place: usize, put: Put, sent: Sent) -> Checked {
        let payload = put.payload;
        let is_there = |server: &&Server| server.reign().process == sent.process && server.running.is_some();
        let Some(server) = self.servers.get(&sent.leader).filter(is_there) else { return Ok(()) };
        if !server.is_awake(self.now) {
            return Ok(());
        }
        if !server.leads() {
            if let Some(orders) = &mut self.orders {
                orders.open[place].attempt = None;
            }
            return self.set_back(place, Setback::NotDone);
        }
        let made = self.make(put, sent)?;
        let attempt = self.orders.as_mut().and_then(|orders| {
            let order = orders.open.iter_mut().find(|order| order.put.payload == payload)?;
            order.attempt.as_mut().filter(|attempt| attempt.made.is_none())
        });
        if let Some(attempt) = attempt {
            attempt.made = made;
        }
        self.work(sent.leader)
    }

    /// The instance of a node that leads makes a call.
    fn make(&mut self, put: Put, sent: Sent) -> Checked<Option<Made>> {
        let now = self.now;
        let is_there = |server: &&mut Server| server.reign().process == sent.process && server.is_awake(now);
        let Some(server) = self.servers.get_mut(&sent.leader).filter(is_there) else { return Ok(None) };
        if !server.leads() {
            return Ok(None);
        }
        let time = server.instance_time(now);
        let Some(body) = server.body_mut() else { return Ok(None) };
        let Put { tube, payload } = put;
        let fingerprint = Once::fingerprint(&[&payload.to_le_bytes()]);
        let once = Once { key: format!("key {payload}"), fingerprint, window: WINDOW };
        // Over HTTP an option that means nothing to the type of the tube is refused.
        let options = TUBES[tube].1.starts_with("utube").then(|| ("utube", Value::from(payload % 3)));
        let options = Value::map(options);
        let args = Value::array([Value::from(payload), options]).encode();
        let name = format!("queue.tube.{}:put", TUBES[tube].0);
        let caller = Caller { kind: CallerKind::Http, ..Caller::internal() };
        let mut out = Vec::new();
        body.instance.set_now(time);
        let outcome = match body.instance.call_once(&caller, &once, name.as_bytes(), &args, &mut out) {
            Ok(Called::Done { count: 1 }) => Ok(Value::decode(&out).map_err(violation)?),
            Ok(other) => return Err(violation(format!("a put with a key is answered {other:?}"))),
            Err(error) => Err(error),
        };
        let lsn = body.instance.awaited();
        self.trace.line(format_args!("{sent:?} makes {put:?} once: {outcome:?}"));
        Ok(Some(Made { lsn, outcome }))
    }

    /// An attempt has failed.
    fn set_back(&mut self, place: usize, setback: Setback) -> Checked {
        let instant = self.instant();
        let Some(orders) = &mut self.orders else { return Ok(()) };
        let order = &mut orders.open[place];
        let Some((node, attempts)) = &mut order.asked else { return Ok(()) };
        let Some(error) = attempts.failed(setback, instant) else { return Ok(()) };
        self.trace.line(format_args!("{node} answers the put of {}: {:?}", order.put.payload, error.name()));
        order.asked = None;
        let is_undone = error.name() == Some(NO_LEADER) && !order.may_be_done;
        order.may_be_done = !is_undone;
        if is_undone {
            // The client gives up.
            self.ledger.refuse(order.put.payload);
            orders.open.swap_remove(place);
        }
        Ok(())
    }

    /// Members hear the answers of a node whose rows are confirmed.
    pub(super) fn answer_orders(&mut self, node: NodeId) -> Checked {
        let open = self.orders.as_ref().map_or(0, |orders| orders.open.len());
        for place in (0..open).rev() {
            let Some(orders) = &mut self.orders else { return Ok(()) };
            let order = &mut orders.open[place];
            let Some((asked, _)) = order.asked else { continue };
            // No answer arrives over a link that is cut off.
            let link = self.links.get(&(asked, node)).filter(|_| asked != node);
            if link.is_some_and(|link| link.is_blocked || link.is_swallowing) {
                continue;
            }
            let Some(Attempt { sent, made: Some(made) }) = &order.attempt else { continue };
            if sent.leader != node {
                continue;
            }
            let server = self.servers.get(&node).filter(|server| server.reign().process == sent.process);
            let is_durable = server.and_then(Server::body).map(|body| body.instance.is_durable(made.lsn));
            let mut outcomes = [made.outcome.clone()];
            match is_durable {
                Some(Ok(false)) => continue,
                Some(Ok(true)) => {}
                Some(Err(error)) => attempts::lose(&mut outcomes, &error),
                None => outcomes = [Err(outcome_unknown())],
            }
            order.attempt = None;
            self.heard(place, outcomes)?;
        }
        Ok(())
    }

    /// A member hears the outcome of an attempt.
    fn heard(&mut self, place: usize, outcomes: [Result<Value, ErrorObject>; 1]) -> Checked {
        if let Some(setback) = Setback::told_by(&outcomes, true) {
            return self.set_back(place, setback);
        }
        let [outcome] = outcomes;
        let Some(orders) = &mut self.orders else { return Ok(()) };
        let Put { tube, payload } = orders.open.swap_remove(place).put;
        self.trace.line(format_args!("the put of {payload} is answered {outcome:?}"));
        match outcome {
            Ok(task) => {
                let id = task.as_array().and_then(|task| task.first()).and_then(Value::as_u64);
                let id = id.ok_or_else(|| Violation(format!("a put with a key is answered {task:?}")))?;
                self.ledger.stored((tube, payload), id);
                self.totals.ordered += 1;
            }
            // The leader has looked for the key: no attempt has put anything, but for one that is to arrive yet.
            Err(_) if orders.late.iter().any(|(late, _)| late.payload == payload) => {}
            Err(_) => self.ledger.refuse(payload),
        }
        Ok(())
    }

    /// A process has ended. Its clients ask other members, and its answers are lost.
    pub(super) fn end_orders(&mut self, node: NodeId) -> Checked {
        let open = self.orders.as_ref().map_or(0, |orders| orders.open.len());
        for place in (0..open).rev() {
            let Some(orders) = &mut self.orders else { return Ok(()) };
            let order = &mut orders.open[place];
            let lost = order.attempt.take_if(|attempt| attempt.sent.leader == node);
            if order.asked.as_ref().is_some_and(|(asked, _)| *asked == node) {
                (order.asked, order.attempt, order.may_be_done) = (None, None, true);
            } else if lost.is_some() {
                self.set_back(place, Setback::Unknown)?;
            }
        }
        Ok(())
    }
}
