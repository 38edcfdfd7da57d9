//! A server in the same process that answers as a test says.

use std::io;
use std::sync::Arc;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::keys;
use lycosa_iproto::reply;
use lycosa_iproto::request::{self, Body, Request};
use lycosa_tuple::value::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::options::ConnectOptions;

/// The greeting of a real server.
pub(crate) const GREETING: &str = concat!(
    "Tarantool 2.6.0 (Binary) e9af5baf-c3a3-4d3d-b079-23966f11467e  \n",
    "zKrGEDjXByDu6P/3CSkDENIHSSYfqX6uEq/etuLg1kY=                   \n",
);

const SCHEMA_VERSION: u32 = 101;

/// What a test has the server do about a request.
pub(crate) enum Act {
    /// Send these bytes, if any.
    Send(Vec<u8>),
    /// Close the connection.
    HangUp,
}

/// A server on a loopback port. It ends with the test's runtime.
pub(crate) struct FakeServer {
    address: String,
    open: watch::Receiver<usize>,
}

impl FakeServer {
    /// Starts a server that asks `act` about each request; connections count from 1.
    pub(crate) async fn start(act: impl Fn(usize, &Request<'_>) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let act = Arc::new(act);
        let (count, open) = watch::channel(0);
        tokio::spawn(async move {
            for connection in 1.. {
                let (stream, _) = listener.accept().await.expect("a connection");
                let (act, count) = (Arc::clone(&act), count.clone());
                count.send_modify(|open| *open += 1);
                tokio::spawn(async move {
                    let _ = serve(stream, |request| act(connection, request)).await;
                    count.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { address, open }
    }

    /// Options that find it.
    pub(crate) fn options(&self) -> ConnectOptions {
        ConnectOptions::new(self.address.as_str())
    }

    /// Waits until this number of connections are open.
    pub(crate) async fn wait_for_open(&mut self, count: usize) {
        self.open.wait_for(|&open| open == count).await.expect("the server lives");
    }
}

async fn serve(mut stream: TcpStream, act: impl Fn(&Request<'_>) -> Act) -> io::Result<()> {
    stream.write_all(GREETING.as_bytes()).await?;
    let mut input = Vec::new();
    loop {
        while let Ok(Split::Frame { content, consumed }) = frame::split(&input, frame::DEFAULT_LIMIT) {
            let request = request::decode(content).expect("a request");
            match act(&request) {
                Act::Send(bytes) => stream.write_all(&bytes).await?,
                Act::HangUp => return Ok(()),
            }
            drop(input.drain(..consumed));
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

/// A reply with these values.
pub(crate) fn ok(request: &Request<'_>, values: &[Value]) -> Act {
    Act::Send(ok_bytes(request.header.sync, values))
}

/// The bytes of a reply with these values.
pub(crate) fn ok_bytes(sync: u64, values: &[Value]) -> Vec<u8> {
    let mut encoded = Vec::new();
    values.iter().for_each(|value| value.write(&mut encoded));
    let mut out = Vec::new();
    reply::ok_data(&mut out, sync, SCHEMA_VERSION, values.len() as u32, &encoded);
    out
}

/// A reply that says nothing but OK.
pub(crate) fn empty(request: &Request<'_>) -> Act {
    let mut out = Vec::new();
    reply::ok_empty(&mut out, request.header.sync, SCHEMA_VERSION);
    Act::Send(out)
}

/// The answer to VOTE of a server that tells nothing about replicas.
pub(crate) fn ballot(request: &Request<'_>, is_read_only: bool) -> Act {
    vote(request, vec![(Value::from(u64::from(keys::ballot::IS_READ_ONLY)), is_read_only.into())])
}

/// The answer to VOTE of a server that takes writes, followed by this many replicas, each reply of which waits for one.
pub(crate) fn ballot_of_master(request: &Request<'_>, following: u64) -> Act {
    let field = |key: u8, value: u64| (Value::from(u64::from(key)), Value::from(value));
    let replicas = field(keys::ballot::REPLICAS_FOLLOWING, following);
    vote(request, vec![replicas, field(keys::ballot::REPLICAS_BEFORE_REPLY, 1)])
}

/// The answer to VOTE of a member of a group, which leads it or passes requests on to the leader.
pub(crate) fn ballot_of_member(request: &Request<'_>, is_forwarded: bool) -> Act {
    let election = Value::array([Value::from(7_u64), is_forwarded.into()]);
    vote(request, vec![(Value::from(u64::from(keys::ballot::ELECTION)), election)])
}

fn vote(request: &Request<'_>, fields: Vec<(Value, Value)>) -> Act {
    let mut out = Vec::new();
    let start = reply::begin(&mut out, 0, request.header.sync, SCHEMA_VERSION);
    out.extend_from_slice(&[0x81, keys::BALLOT]);
    Value::Map(fields).write(&mut out);
    reply::finish(&mut out, start);
    Act::Send(out)
}

/// An error reply.
pub(crate) fn fail(request: &Request<'_>, code: ErrorCode, message: &str) -> Act {
    let mut out = Vec::new();
    reply::error(&mut out, request.header.sync, SCHEMA_VERSION, &ErrorObject::client(code, message));
    Act::Send(out)
}

/// The name and the arguments of a CALL.
pub(crate) fn call(request: &Request<'_>) -> (String, Vec<Value>) {
    let Body::Call { name, args } = request.body else {
        panic!("not a call: {request:?}");
    };
    let args = Value::decode(args).expect("arguments");
    (String::from_utf8_lossy(name).into_owned(), args.as_array().expect("an array").to_vec())
}
