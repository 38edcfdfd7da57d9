//! The start of a server as clients see it: how far it is, and what connections get until it is over.
//!
//! Reading a data folder holds the loop. Meanwhile a thread accepts connections and keeps them, and the loop serves them as
//! soon as the instance exists; a client notices a late greeting and nothing else. A PING before the greeting asks for a sign
//! of life: the client gets the progress of the start in place of a greeting, and its connection ends.
//!
//! Absent: TLS. Its sockets are bound and their connections wait in the system's queue until the start is over.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting;
use lycosa_iproto::request::{self, Body};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{notify, tls};

/// Connections that are kept; further ones wait in the socket's queue.
const MAX_CONNECTIONS: usize = 1024;

/// Bytes of a client that are looked at; a PING is shorter.
const LOOKED_AT: usize = 64;

/// Pause after an error that a retry at once would repeat (no file descriptors left, for example).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Pause between two messages to the service manager.
const NEWS_INTERVAL: Duration = Duration::from_secs(1);

/// How much longer the service manager waits after each progress.
const EXTENSION: Duration = Duration::from_secs(15 * 60);

lycosa_queue::named! {
    /// A part of the start. The name is what clients read while the progress has no numbers.
    pub(crate) enum Stage {
        /// The first part.
        Opening = "it opens its data folder",
        /// Rows of snapshot and journal are read.
        Reading = "it reads its data",
        /// The log of a group is read, before its entries are applied as a part of [`Self::Reading`].
        Loading = "it reads its data folder",
        /// The rows are read, and indexes are built over them.
        Indexing = "it has read its data and builds the indexes",
        /// A new replica, or member of a group, receives the data.
        Joining = "it receives the data from another server",
        /// An empty server waits for a group that takes it in.
        Awaiting = "it waits for a group to take it in (lycosa cluster add)",
        /// The queue finds its tasks, the program starts.
        Queue = "it has its data and starts the queue",
    }
}

/// How far the start is. The loop writes it, all threads read it.
#[derive(Debug)]
pub(crate) struct Progress {
    begun: Instant,
    stage: AtomicU8,
    /// Bytes of the data folder that were read, or of another server's data that were received, and all of them; 0 where their
    /// number is not known.
    read: AtomicU64,
    total: AtomicU64,
    is_over: AtomicBool,
}

impl Default for Progress {
    fn default() -> Self {
        let (stage, read, total, is_over) = Default::default();
        Self { begun: Instant::now(), stage, read, total, is_over }
    }
}

impl Progress {
    /// Seconds since the start began.
    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Bytes of the data folder are read.
    pub(crate) fn read(&self, done: u64, total: u64) {
        self.read.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// Bytes of another server's data are received; `total` is 0 where that is not known.
    pub(crate) fn receive(&self, done: u64, total: u64) {
        self.read(done, total);
        self.enter(Stage::Joining);
    }

    /// The server serves.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// `the server is starting: it has read 3.1 of 10.2 GB (30 %)`.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(greeting::STARTING)?;
        let (read, total) = (self.read.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        match Stage::ALL.get(usize::from(self.stage.load(Ordering::Relaxed))).unwrap_or(&Stage::Opening) {
            Stage::Reading => write!(f, "it has read {}", Share { done: read, total }),
            Stage::Joining if read > 0 => write!(f, "it has received {}", Share { done: read, total }),
            stage => f.write_str(stage.name()),
        }
    }
}

/// `3.1 of 10.2 GB (30 %)`, or `3.1 GB` of a total that is not known.
struct Share {
    done: u64,
    total: u64,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = unit_of(self.total.max(self.done));
        let (done, total) = (self.done as f64 / factor, self.total as f64 / factor);
        let digits = usize::from(factor > 1.0);
        if self.total == 0 {
            return write!(f, "{done:.digits$} {unit}");
        }
        let share = (done / total * 100.0).floor();
        write!(f, "{done:.digits$} of {total:.digits$} {unit} ({share:.0} %)")
    }
}

/// The unit in which a number of bytes is shown, and its bytes.
fn unit_of(bytes: u64) -> (&'static str, f64) {
    match bytes {
        0..10_000 => ("bytes", 1.0),
        10_000..1_000_000 => ("kB", 1e3),
        1_000_000..1_000_000_000 => ("MB", 1e6),
        _ => ("GB", 1e9),
    }
}

/// A connection for the loop to serve, and its client's address. The client was sent nothing.
type Kept = (StdStream, SocketAddr);

/// The thread that keeps connections until the start is over.
pub(crate) struct Keeper {
    thread: Option<JoinHandle<Vec<Kept>>>,
    stop: watch::Sender<bool>,
}

impl Keeper {
    /// Begins to accept. The loop must not accept from these sockets before [`Self::end`].
    ///
    /// # Errors
    /// No thread, no event loop.
    pub(crate) fn begin(listeners: &[TcpListener], progress: Arc<Progress>) -> io::Result<Self> {
        let own = listeners.iter().map(|listener| listener.as_fd().try_clone_to_owned());
        let own = own.map(|socket| socket.map(StdListener::from)).collect::<io::Result<Vec<_>>>()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopping) = watch::channel(false);
        let thread = thread::Builder::new()
            .name("start".to_owned())
            .spawn(move || runtime.block_on(keep_all(own, progress, stopping)))?;
        Ok(Self { thread: Some(thread), stop })
    }

    /// The start is over: the connections that wait.
    pub(crate) fn end(mut self) -> Vec<Kept> {
        self.join()
    }

    fn join(&mut self) -> Vec<Kept> {
        self.stop.send_replace(true);
        let Some(thread) = self.thread.take() else { return Vec::new() };
        thread.join().unwrap_or_else(|_| {
            tracing::error!("the thread of the start has panicked: connections that it kept are lost");
            Vec::new()
        })
    }
}

/// A start that fails closes the connections.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.join();
    }
}

async fn keep_all(
    listeners: Vec<StdListener>,
    progress: Arc<Progress>,
    stopping: watch::Receiver<bool>,
) -> Vec<Kept> {
    let mut all = Vec::new();
    let mut kept = JoinSet::new();
    let mut accepting = JoinSet::new();
    let (sender, mut accepted) = tokio::sync::mpsc::channel(1);
    for listener in listeners {
        // The loop serves the socket all the same, once the start is over.
        let listener = TcpListener::from_std(listener).inspect_err(|error| {
            tracing::warn!("clients get no answer until the start is over: {error}");
        });
        let Ok(listener) = listener else { continue };
        accepting.spawn(accept(listener, sender.clone(), stopping.clone()));
    }
    drop(sender);
    let mut stopped = stopping.clone();
    let mut news = tokio::time::interval(NEWS_INTERVAL);
    news.tick().await;
    let mut told = progress.to_string();
    loop {
        let has_room = kept.len() < MAX_CONNECTIONS;
        tokio::select! {
            biased;
            _ = stopped.changed() => break,
            Some((stream, peer)) = accepted.recv(), if has_room => {
                kept.spawn(keep(stream, peer, progress.clone(), stopping.clone()));
            }
            // A client left or has its answer. Or the start is over, and a connection heard of that before this task.
            Some(ended) = kept.join_next(), if !kept.is_empty() => all.extend(ended.ok().flatten()),
            _ = news.tick() => {
                let text = progress.to_string();
                if text != told {
                    notify::starting(&text, EXTENSION);
                    told = text;
                }
            }
        }
    }
    while accepting.join_next().await.is_some() {}
    while let Ok((stream, peer)) = accepted.try_recv() {
        all.extend(stream.into_std().map(|stream| (stream, peer)));
    }
    while let Some(ended) = kept.join_next().await {
        all.extend(ended.ok().flatten());
    }
    all
}

/// Accepts until the start is over.
async fn accept(
    listener: TcpListener,
    accepted: tokio::sync::mpsc::Sender<(TcpStream, SocketAddr)>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        // A place first: what waits for one stays in the socket's queue.
        let place = tokio::select! {
            biased;
            _ = stopping.changed() => return,
            place = accepted.reserve() => place,
        };
        let Ok(place) = place else { return };
        tokio::select! {
            biased;
            _ = stopping.changed() => return,
            connection = listener.accept() => match connection {
                Ok(connection) => place.send(connection),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}

/// Keeps a connection until the start is over; none if it has ended before.
async fn keep(
    mut stream: TcpStream,
    peer: SocketAddr,
    progress: Arc<Progress>,
    mut stopping: watch::Receiver<bool>,
) -> Option<Kept> {
    let Some(asked) = until(&mut stopping, asks(&stream)).await else {
        return stream.into_std().ok().map(|stream| (stream, peer));
    };
    if asked {
        let text = greeting::refusal(&progress.to_string());
        let _ = until(&mut stopping, tls::tell(&mut stream, &text)).await;
    }
    None
}

/// The work's result, unless the start is over before.
async fn until<T>(stopping: &mut watch::Receiver<bool>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = stopping.changed() => None,
        done = work => Some(done),
    }
}

/// Waits for a PING of the client; false if the client leaves. All bytes stay unread.
async fn asks(stream: &TcpStream) -> bool {
    let mut bytes = [0; LOOKED_AT];
    let mut seen = 0;
    loop {
        let length = stream.peek(&mut bytes).await.unwrap_or(0);
        if length == 0 {
            return false;
        }
        match frame::split(&bytes[..length], LOOKED_AT) {
            Ok(Split::Frame { content, .. })
                if request::decode(content).is_ok_and(|request| matches!(request.body, Body::Ping)) =>
            {
                return true;
            }
            // The frame is not complete yet.
            Ok(Split::NeedMore(_)) if length > seen && length < LOOKED_AT => {
                seen = length;
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_start_tells_in_few_words_how_far_it_is() {
        let progress = Progress::default();
        let said = |stage| {
            progress.enter(stage);
            progress.to_string()
        };
        progress.read(3_149_000_000, 10_151_000_000);
        assert_eq!(said(Stage::Reading), "the server is starting: it has read 3.1 of 10.2 GB (31 %)");
        progress.read(999, 1_000);
        assert_eq!(said(Stage::Reading), "the server is starting: it has read 999 of 1000 bytes (99 %)");
        progress.receive(52_000_000, 0);
        assert_eq!(progress.to_string(), "the server is starting: it has received 52.0 MB");
        progress.receive(52_000_000, 104_000_000);
        assert_eq!(progress.to_string(), "the server is starting: it has received 52.0 of 104.0 MB (50 %)");
        for stage in Stage::ALL {
            progress.read(u64::MAX - 1, u64::MAX);
            let said = said(stage);
            assert!(said.len() < greeting::GREETING_SIZE - greeting::REFUSAL_PREFIX.len(), "{said}");
        }
    }

    /// The end of the start meets connections in every state: accepted, between two tasks, not accepted yet.
    #[test]
    fn no_connection_is_lost_at_the_end_of_the_start() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _context = runtime.enter();
        for round in 0..200 {
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            let keeper =
                Keeper::begin(std::slice::from_ref(&listener), Arc::new(Progress::default())).unwrap();
            let clients: Vec<_> = (0..round % 8 + 1).map(|_| StdStream::connect(address).unwrap()).collect();
            let mut found: Vec<_> = keeper.end().iter().map(|(_, peer)| *peer).collect();
            // Further ones wait in the socket's queue.
            while found.len() < clients.len() {
                found.push(runtime.block_on(listener.accept()).unwrap().1);
            }
            for client in &clients {
                assert!(found.contains(&client.local_addr().unwrap()), "{round}");
            }
        }
    }

    #[test]
    fn clients_that_wait_are_handed_over_and_those_that_ask_are_told() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _context = runtime.enter();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let progress = Arc::new(Progress::default());
        progress.enter(Stage::Indexing);
        let keeper = Keeper::begin(std::slice::from_ref(&listener), progress).unwrap();

        let mut silent = StdStream::connect(address).unwrap();
        let mut hasty = StdStream::connect(address).unwrap();
        hasty.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        drop(StdStream::connect(address).unwrap());
        let mut asking = StdStream::connect(address).unwrap();
        let mut ping = Vec::new();
        request::encode(&mut ping, 7, &Body::Ping);
        let (first, rest) = ping.split_at(2);
        asking.write_all(first).unwrap();
        asking.write_all(rest).unwrap();
        let mut said = String::new();
        asking.read_to_string(&mut said).unwrap();
        assert_eq!(
            said.trim_end(),
            "Lycosa: the server is starting: it has read its data and builds the indexes"
        );

        // The answer came behind the earlier connections.
        let kept = keeper.end();
        let peers: Vec<_> = kept.iter().map(|(_, peer)| *peer).collect();
        for waiting in [&silent, &hasty] {
            assert!(peers.contains(&waiting.local_addr().unwrap()), "{peers:?}");
        }
        for (mut stream, peer) in kept {
            if peer == hasty.local_addr().unwrap() {
                stream.set_nonblocking(false).unwrap();
                let mut unread = [0; 3];
                stream.read_exact(&mut unread).unwrap();
                assert_eq!(&unread, b"GET");
            }
        }
        assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0, "nothing was said to a client that waits");
    }
}
