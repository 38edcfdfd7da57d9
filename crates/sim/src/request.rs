//! Requests of clients, and their bytes.

use std::fmt;
use std::ops::Deref;

use lycosa_iproto::request::{self, Body};
use lycosa_queue::SessionId;
use lycosa_tuple::mp;
use lycosa_tuple::value::Value;

use crate::plan::TubePlan;
use crate::steering::Steering;
use crate::worker::{self, Remark, TakeOptions};

/// A payload, encoded. A course shows its length and a digest: a quarter of a world's time would go into its bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Payload(pub(crate) Vec<u8>);

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.0.iter().fold(self.0.len() as u64, |digest, byte| {
            (digest.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        write!(f, "<{} bytes {:08x}>", self.0.len(), digest >> 32)
    }
}

/// A span of time, in microseconds. Clients give it in seconds, so it is a multiple of a quarter of one, which a double
/// holds exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) u64);

impl Span {
    pub(crate) fn value(self) -> Value {
        match self.0 % 1_000_000 {
            0 => Value::from(self.0 / 1_000_000),
            _ => Value::from(self.0 as f64 / 1e6),
        }
    }
}

/// Options of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PutOptions {
    pub(crate) ttl: Option<Span>,
    pub(crate) ttr: Option<Span>,
    pub(crate) pri: Option<u64>,
    pub(crate) delay: Option<Span>,
    pub(crate) timeout: Option<Span>,
    /// Number of the sub-queue.
    pub(crate) utube: Option<u8>,
    /// What the one header says; 0: there are no headers in the map.
    pub(crate) headers: Option<u8>,
}

impl PutOptions {
    pub(crate) fn value(&self) -> Value {
        let spans = [("ttl", self.ttl), ("ttr", self.ttr), ("delay", self.delay), ("timeout", self.timeout)];
        let mut pairs: Vec<(&str, Value)> =
            spans.iter().filter_map(|&(name, span)| Some((name, span?.value()))).collect();
        pairs.extend(self.pri.map(|pri| ("pri", Value::from(pri))));
        pairs.extend(self.utube.map(|utube| ("utube", Value::from(u64::from(utube)))));
        pairs.extend(self.headers.map(|number| ("headers", worker::headers(number))));
        Value::map(pairs)
    }
}

/// What a client does to a row of a tube's space, past the queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RowChange {
    Select,
    Delete,
    /// The status becomes ready or buried.
    SetStatus(char),
    /// The payload, encoded.
    SetData(Payload),
    /// A row with the id, encoded.
    Insert(Payload),
}

/// Requests that no client should send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// A length prefix that is none: the end of the connection.
    Length,
    /// A frame whose header is no map. Its `sync` is 0, as it cannot be read.
    Header,
    /// A CALL without a name.
    Body,
    /// A type that does not exist.
    Type,
    /// A function that does not exist.
    Name,
    /// A method of the tube with arguments of the wrong types.
    Arguments,
}

/// What a client does with the task of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    Ack,
    Release(Option<Span>, Remark),
    Bury(Remark),
    Renew(Span),
}

/// Something that a client asks for. `tube` is the number of the tube in the plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Request {
    Create {
        tube: usize,
    },
    Drop {
        tube: usize,
    },
    Put {
        tube: usize,
        data: Payload,
        options: PutOptions,
    },
    /// With one set of options for all payloads, or one for each.
    PutMany {
        tube: usize,
        data: Vec<Payload>,
        options: Vec<PutOptions>,
    },
    Take {
        tube: usize,
        timeout: Option<Span>,
        options: TakeOptions,
    },
    TakeMany {
        tube: usize,
        limit: u64,
        timeout: Option<Span>,
        options: TakeOptions,
    },
    /// By the token of a lease, in force or stale.
    Settle {
        tube: usize,
        token: String,
        how: Settlement,
    },
    Ack {
        tube: usize,
        id: u64,
    },
    AckMany {
        tube: usize,
        ids: Vec<u64>,
    },
    Release {
        tube: usize,
        id: u64,
        delay: Option<Span>,
        remark: Remark,
    },
    ReleaseMany {
        tube: usize,
        ids: Vec<u64>,
        delay: Option<Span>,
        remark: Remark,
    },
    Touch {
        tube: usize,
        id: u64,
        delta: Span,
    },
    Bury {
        tube: usize,
        id: u64,
        remark: Remark,
    },
    Kick {
        tube: usize,
        count: u64,
    },
    Delete {
        tube: usize,
        id: u64,
    },
    Peek {
        tube: usize,
        id: u64,
        is_extended: bool,
    },
    ReleaseAll {
        tube: usize,
    },
    /// `pause` or `resume`
    Pause {
        tube: usize,
        paused: bool,
    },
    Truncate {
        tube: usize,
    },
    Statistics {
        tube: usize,
    },
    /// An operator's.
    Steer {
        tube: usize,
        what: Steering,
    },
    Identify {
        session: Option<SessionId>,
    },
    Configure {
        ttr: Span,
    },
    Ping,
    /// `box.snapshot`
    Snapshot,
    Row {
        tube: usize,
        space: u32,
        id: u64,
        change: RowChange,
    },
    Malformed {
        tube: usize,
        how: Malformed,
    },
}

impl Request {
    /// The tube that it is about.
    pub(crate) fn tube(&self) -> Option<usize> {
        match *self {
            Self::Create { tube }
            | Self::Drop { tube }
            | Self::Put { tube, .. }
            | Self::PutMany { tube, .. }
            | Self::Take { tube, .. }
            | Self::TakeMany { tube, .. }
            | Self::Settle { tube, .. }
            | Self::Ack { tube, .. }
            | Self::AckMany { tube, .. }
            | Self::Release { tube, .. }
            | Self::ReleaseMany { tube, .. }
            | Self::Touch { tube, .. }
            | Self::Bury { tube, .. }
            | Self::Kick { tube, .. }
            | Self::Delete { tube, .. }
            | Self::Peek { tube, .. }
            | Self::ReleaseAll { tube }
            | Self::Pause { tube, .. }
            | Self::Truncate { tube }
            | Self::Statistics { tube }
            | Self::Steer { tube, .. }
            | Self::Row { tube, .. } => Some(tube),
            Self::Identify { .. }
            | Self::Configure { .. }
            | Self::Ping
            | Self::Snapshot
            | Self::Malformed { .. } => None,
        }
    }

    /// Appends the request as a client sends it.
    pub(crate) fn encode(&self, tubes: &[TubePlan], sync: u64, is_call_16: bool, out: &mut Vec<u8>) {
        match self {
            Self::Ping => request::encode(out, sync, &Body::Ping),
            Self::Row { tube, space, id, change } => row(*space, *id, change, &tubes[*tube], sync, out),
            Self::Malformed { tube, how } => malformed(*how, &tubes[*tube].name, sync, out),
            call => {
                let (name, arguments) = call.call(tubes);
                let args = Value::Array(arguments).encode();
                let name = name.as_bytes();
                let body = match is_call_16 {
                    true => Body::Call16 { name, args: &args },
                    false => Body::Call { name, args: &args },
                };
                request::encode(out, sync, &body);
            }
        }
    }

    /// The function that it calls, and its arguments.
    pub(crate) fn call(&self, tubes: &[TubePlan]) -> (String, Vec<Value>) {
        let method = |tube: usize, method: &str| format!("queue.tube.{}:{method}", tubes[tube].name);
        let of_task = |tube: usize, name: &str, id: u64| (method(tube, name), vec![Value::from(id)]);
        let function = |name: &str| format!("queue.{name}");
        match self {
            Self::Create { tube } => (function("create_tube"), create_arguments(&tubes[*tube])),
            Self::Drop { tube } => (method(*tube, "drop"), vec![]),
            Self::Put { tube, data, options } => {
                let data = Value::decode(data).unwrap_or(Value::Nil);
                (method(*tube, "put"), vec![data, options.value()])
            }
            Self::PutMany { tube, data, options } => {
                let data = data.iter().map(|data| Value::decode(data).unwrap_or(Value::Nil));
                let options = match options.as_slice() {
                    [shared] => shared.value(),
                    each => Value::array(each.iter().map(PutOptions::value)),
                };
                (method(*tube, "put_many"), vec![Value::array(data), options])
            }
            Self::TakeMany { tube, limit, timeout, options } => {
                (method(*tube, "take_many"), arguments(*limit, waiting(*timeout, options)))
            }
            Self::Settle { tube, token, how } => {
                let (name, option) = match how {
                    Settlement::Ack => ("ack", None),
                    Settlement::Release(delay, remark) => ("release", giving_back(*delay, remark)),
                    Settlement::Bury(remark) => ("bury", giving_back(None, remark)),
                    Settlement::Renew(span) => ("touch", Some(span.value())),
                };
                (method(*tube, name), arguments(Value::str(token), option))
            }
            Self::AckMany { tube, ids } => {
                (method(*tube, "ack_many"), vec![Value::array(ids.iter().copied())])
            }
            Self::ReleaseMany { tube, ids, delay, remark } => {
                let ids = Value::array(ids.iter().copied());
                (method(*tube, "release_many"), arguments(ids, giving_back(*delay, remark)))
            }
            Self::Take { tube, timeout, options } => (method(*tube, "take"), waiting(*timeout, options)),
            Self::Ack { tube, id } => of_task(*tube, "ack", *id),
            Self::Release { tube, id, delay, remark } => {
                (method(*tube, "release"), arguments(*id, giving_back(*delay, remark)))
            }
            Self::Touch { tube, id, delta } => {
                (method(*tube, "touch"), vec![Value::from(*id), delta.value()])
            }
            Self::Bury { tube, id, remark } => {
                (method(*tube, "bury"), arguments(*id, giving_back(None, remark)))
            }
            Self::Kick { tube, count } => (method(*tube, "kick"), vec![Value::from(*count)]),
            Self::Delete { tube, id } => of_task(*tube, "delete", *id),
            Self::Peek { tube, id, is_extended } => {
                let options = is_extended.then(|| Value::map([("extended", true)]));
                (method(*tube, "peek"), arguments(*id, options))
            }
            Self::ReleaseAll { tube } => (method(*tube, "release_all"), vec![]),
            Self::Pause { tube, paused } => (method(*tube, if *paused { "pause" } else { "resume" }), vec![]),
            Self::Truncate { tube } => (method(*tube, "truncate"), vec![]),
            Self::Steer { tube, what } => {
                let (name, arguments) = what.call(tubes);
                (method(*tube, name), arguments)
            }
            Self::Statistics { tube } => (function("statistics"), vec![Value::str(&tubes[*tube].name)]),
            Self::Identify { session } => (function("identify"), session.iter().map(Value::str).collect()),
            Self::Configure { ttr } => (function("cfg"), vec![Value::map([("ttr", ttr.value())])]),
            Self::Snapshot => ("box.snapshot".to_owned(), vec![]),
            Self::Ping | Self::Row { .. } | Self::Malformed { .. } => unreachable!("these are no calls"),
        }
    }
}

/// The arguments of a call: the first one, and what follows.
fn arguments(first: impl Into<Value>, others: impl IntoIterator<Item = Value>) -> Vec<Value> {
    std::iter::once(first.into()).chain(others).collect()
}

/// The options of a worker that gives tasks back.
fn giving_back(delay: Option<Span>, remark: &Remark) -> Option<Value> {
    let mut options: Vec<_> = delay.map(|delay| ("delay", delay.value())).into_iter().collect();
    options.extend(remark.options());
    (!options.is_empty()).then(|| Value::map(options))
}

/// The arguments of a take behind its limit.
fn waiting(timeout: Option<Span>, options: &TakeOptions) -> Vec<Value> {
    match (timeout.map(Span::value), options.value()) {
        (None, None) => Vec::new(),
        (timeout, options) => std::iter::once(timeout.unwrap_or(Value::Nil)).chain(options).collect(),
    }
}

fn create_arguments(tube: &TubePlan) -> Vec<Value> {
    let mut options = vec![("if_not_exists", Value::from(true))];
    if tube.temporary {
        options.push(("temporary", Value::from(true)));
    }
    if tube.ready_buffer {
        options.push(("storage_mode", Value::str("ready_buffer")));
    }
    options.extend(tube.ttl.map(|ttl| ("ttl", ttl.value())));
    options.extend(tube.ttr.map(|ttr| ("ttr", ttr.value())));
    if tube.pri > 0 {
        options.push(("pri", Value::from(tube.pri)));
    }
    if tube.capacity > 0 {
        options.push(("capacity", Value::from(tube.capacity)));
    }
    vec![Value::str(&tube.name), Value::str(tube.kind.name()), Value::map(options)]
}

/// Number of the status's field in every tube's space.
const STATUS: u64 = 1;

fn row(space: u32, id: u64, change: &RowChange, tube: &TubePlan, sync: u64, out: &mut Vec<u8>) {
    let key = Value::array([id]).encode();
    let assign = |field: u64, value: &[u8]| {
        let mut operations = vec![0x91, 0x93, 0xa1, b'='];
        mp::write_uint(&mut operations, field);
        operations.extend_from_slice(value);
        operations
    };
    let operations;
    let body = match change {
        RowChange::Select => Body::Select { space, index: 0, limit: 1, offset: 0, iterator: 0, key: &key },
        RowChange::Delete => Body::Delete { space, index: 0, key: &key },
        RowChange::SetStatus(status) => {
            operations = assign(STATUS, &Value::str(status.to_string()).encode());
            Body::Update { space, index: 0, base: 0, key: &key, operations: &operations }
        }
        RowChange::SetData(data) => {
            operations = assign(crate::model::data_field(tube.kind), data);
            Body::Update { space, index: 0, base: 0, key: &key, operations: &operations }
        }
        RowChange::Insert(tuple) => Body::Insert { space, tuple },
    };
    request::encode(out, sync, &body);
}

fn malformed(how: Malformed, tube: &str, sync: u64, out: &mut Vec<u8>) {
    let frame = |out: &mut Vec<u8>, content: &[u8]| {
        mp::write_u32_wide(out, content.len() as u32);
        out.extend_from_slice(content);
    };
    match how {
        Malformed::Length => out.extend_from_slice(&[0xa3, b'w', b'h', b'y']),
        Malformed::Header => frame(out, &[0x93, 0x01, 0x02, 0x03]),
        Malformed::Body | Malformed::Type => {
            let mut content = vec![0x82, 0x00, if how == Malformed::Body { 0x0a } else { 0x3e }, 0x01];
            mp::write_uint(&mut content, sync);
            content.push(0x80);
            frame(out, &content);
        }
        Malformed::Name => {
            request::encode(out, sync, &Body::Call { name: b"queue.tube.no:such", args: &[0x90] });
        }
        Malformed::Arguments => {
            let name = format!("queue.tube.{tube}:ack");
            let args = Value::array([Value::str("first"), Value::Nil]).encode();
            request::encode(out, sync, &Body::Call { name: name.as_bytes(), args: &args });
        }
    }
}
