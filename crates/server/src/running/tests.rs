#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream as Peer;
use std::path::Path;

use lycosa_instance::{Origin, Trust};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::request::{Body, encode};
use lycosa_tuple::value::Value;
use tokio::net::UnixStream;
use tokio::task::{LocalSet, spawn_local};

use super::*;
use crate::clock::now;
use crate::config::Flags;
use crate::connection;
use crate::socket::{Accepted, split_unix};
use crate::turn::Link;

/// Whether the end of a turn was asked for since the last call.
async fn is_turn_asked_for(core: &Core) -> bool {
    tokio::select! {
        biased;
        () = core.end.notified() => true,
        () = std::future::ready(()) => false,
    }
}

/// Runs a test with tasks that stay in its thread, as the tasks of the server's loop do.
fn on_a_loop(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

/// A server without a listener.
async fn start_in(folder: &Path) -> Running {
    let mut config = Config::load(None, std::iter::empty(), &Flags::default()).unwrap();
    config.data_dir = folder.to_owned();
    config.wal_mode = WalMode::Write;
    start_with(&config, None, Bound::default()).await.unwrap()
}

fn read_all(peer: &mut Peer) -> usize {
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    while let Ok(count @ 1..) = peer.read(&mut buffer) {
        total += count;
    }
    total
}

/// A reply of several chunks, to a client that reads only when the socket is full: whenever the socket takes bytes again the
/// loop is asked for a turn, which writes the next chunks. No timer takes part: turns end only here.
#[test]
fn a_turn_follows_whenever_a_socket_takes_bytes_again() {
    const TASKS: usize = 300;
    on_a_loop(async {
        let folder = tempfile::tempdir().unwrap();
        let running = start_in(folder.path()).await;
        let core = running.core.clone();
        let [turns, _] = running.turns;
        turns.abort();
        assert!(turns.await.unwrap_err().is_cancelled());

        let (mut peer, socket) = Peer::pair().unwrap();
        peer.set_nonblocking(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (_reader, writer) = split_unix(UnixStream::from_std(socket).unwrap());
        let origin = Origin { peer: "a slow reader".to_owned(), trust: Trust::Admin };
        let slot = core.instance.borrow_mut().connect(origin, now()).unwrap();
        let link = Link::new(writer);
        core.attach(slot, link.clone());
        let send = |body: &Body<'_>| {
            let mut bytes = Vec::new();
            encode(&mut bytes, 1, body);
            let Ok(Split::Frame { content, .. }) = frame::split(&bytes, bytes.len()) else {
                panic!("a whole frame")
            };
            core.instance.borrow_mut().handle_frame(slot, content, now()).unwrap();
        };
        let args = Value::array([Value::from("t"), "fifo".into()]).encode();
        send(&Body::Call { name: b"queue.create_tube", args: &args });
        let args = Value::array([Value::from("x".repeat(10_000).as_str())]).encode();
        for _ in 0..TASKS {
            send(&Body::Call { name: b"queue.tube.t:put", args: &args });
        }
        while core.instance.borrow().pending_bytes(slot) > 0 {
            core.end_turn_at_once();
            read_all(&mut peer);
            link.writer.writable().await.unwrap();
            core.writable(slot, &link);
        }
        let space = core.instance.borrow().store().space_by_name("t").unwrap().id();
        let select = Body::Select { space, index: 0, limit: u32::MAX, offset: 0, iterator: 2, key: &[0x90] };
        send(&select);
        core.end.notify_one();
        let (mut total, mut stalls) = (0, 0);
        while total < TASKS * 10_000 {
            while is_turn_asked_for(&core).await {
                core.end_turn_at_once();
            }
            assert!(link.blocked.get(), "after {total} bytes nobody goes on");
            stalls += 1;
            total += read_all(&mut peer);
            link.writer.writable().await.unwrap();
            core.writable(slot, &link);
        }
        assert!(stalls > 5, "{total} bytes came with {stalls} stalls");
        running.checkpoints.close();
    });
}

/// Eight clients that come with a large batch each, and one with a PING behind them: all have been sent before the loop looks.
#[test]
fn a_ping_waits_for_one_large_batch_and_not_for_all_of_them() {
    const BATCH: u64 = 1_000;
    on_a_loop(async {
        let folder = tempfile::tempdir().unwrap();
        let running = start_in(folder.path()).await;
        let core = running.core.clone();
        let call = |name: &[u8], args: Value| {
            let mut bytes = Vec::new();
            encode(&mut bytes, 1, &Body::Call { name, args: &args.encode() });
            bytes
        };
        let mut peers = Vec::new();
        let mut connect = |request: &[u8]| {
            let (mut peer, socket) = Peer::pair().unwrap();
            peer.write_all(request).unwrap();
            peer.set_nonblocking(true).unwrap();
            socket.set_nonblocking(true).unwrap();
            let origin = Origin { peer: "a client".to_owned(), trust: Trust::Admin };
            let accepted = Accepted::new(split_unix(UnixStream::from_std(socket).unwrap()), origin);
            spawn_local(connection::serve(core.clone(), accepted, None));
            peers.push(peer);
        };
        connect(&call(b"queue.create_tube", Value::array([Value::from("t"), "fifo".into()])));
        let tasks = || core.instance.borrow().store().space_by_name("t").map(lycosa_store::Space::len);
        while tasks().is_none() {
            tokio::task::yield_now().await;
        }
        let batch = Value::Array((0..BATCH).map(Value::from).collect());
        for _ in 0..8 {
            connect(&call(b"queue.tube.t:put_many", Value::array([batch.clone()])));
        }
        let mut ping = Vec::new();
        encode(&mut ping, 1, &Body::Ping);
        connect(&ping);
        let mut pinging = peers.pop().unwrap();
        // The greeting comes first.
        let mut received = 0;
        while received <= 128 {
            tokio::task::yield_now().await;
            received += read_all(&mut pinging);
        }
        let before = tasks().unwrap();
        assert!(before <= 2 * BATCH, "{before} tasks were put before the PING was answered");
        while tasks().unwrap() < 8 * BATCH {
            tokio::task::yield_now().await;
        }
        running.checkpoints.close();
    });
}
