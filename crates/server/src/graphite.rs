//! Numbers of tubes for Graphite, once a period, over UDP or TCP.
//!
//! A task of the loop reads the status page by page and hands the pages to a thread of its own, which writes them as lines and
//! sends them. The loop therefore never waits for Graphite: while the thread is busy a period is left out. A connection that
//! fails is opened again in the next period, and the log says so once until it works again.

use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use lycosa_instance::Caller;
use lycosa_metrics::Snapshot;
use lycosa_queue::status::Page;
use tokio::task::{JoinHandle, spawn_local, yield_now};
use tokio::time::MissedTickBehavior;

use crate::clock::now;
use crate::config::{Config, is_address};
use crate::turn::Core;

/// How long a connection, or a write to one, may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of a datagram: what fits a frame of Ethernet.
const DATAGRAM: usize = 1400;

/// Where lines are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Destination {
    Udp(String),
    Tcp(String),
}

impl Destination {
    /// Reads `udp://HOST:PORT` or `tcp://HOST:PORT`.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let (scheme, address) = text.split_once("://").unwrap_or(("", text));
        let has_port = is_address(address);
        match scheme {
            "udp" if has_port => Ok(Self::Udp(address.to_owned())),
            "tcp" if has_port => Ok(Self::Tcp(address.to_owned())),
            _ => bail!("graphite.server is {text:?}: expected udp://HOST:PORT or tcp://HOST:PORT"),
        }
    }
}

/// Pages of the status, and when they were read, in seconds since the epoch.
struct Report {
    pages: Vec<Vec<u8>>,
    time: u64,
}

/// Starts sending, if a server is named.
///
/// # Errors
/// The name of the server is malformed; no thread.
pub(crate) fn start(core: &Rc<Core>, config: &Config) -> anyhow::Result<Option<JoinHandle<()>>> {
    if config.graphite_server.is_empty() {
        return Ok(None);
    }
    let destination = Destination::parse(&config.graphite_server)?;
    let (server, prefix) = (config.graphite_server.clone(), config.graphite_prefix.clone());
    let (reports, received) = sync_channel(1);
    let send = move || send_all(&received, &server, &destination, &prefix);
    thread::Builder::new().name("graphite".to_owned()).spawn(send).context("no thread for Graphite")?;
    Ok(Some(spawn_local(report(core.clone(), reports, config.graphite_period))))
}

/// Reads the status once a period.
async fn report(core: Rc<Core>, reports: SyncSender<Report>, period: Duration) {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let report = read(&core).await;
        if let Err(std::sync::mpsc::TrySendError::Disconnected(_)) = reports.try_send(report) {
            return;
        }
    }
}

async fn read(core: &Core) -> Report {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        {
            let mut instance = core.instance.borrow_mut();
            instance.set_now(now());
            let mut bytes = Vec::new();
            let page = Page { after, limit: Page::MAX_TUBES, ..Page::default() };
            // A page of tubes whose spaces are gone is left out.
            let next = instance.write_status(&Caller::internal(), page, &mut bytes).ok();
            pages.extend(next.map(|_| bytes));
            after = next.flatten();
        }
        if after.is_none() {
            return Report { pages, time: now() / 1_000_000 };
        }
        yield_now().await;
    }
}

/// Sends reports until the server ends.
fn send_all(reports: &Receiver<Report>, server: &str, destination: &Destination, prefix: &str) {
    let mut connection = None;
    let mut is_failing = false;
    while let Ok(Report { pages, time }) = reports.recv() {
        let mut snapshot = Snapshot::default();
        let read = pages.iter().try_for_each(|page| snapshot.add_page(page).map(drop));
        let mut text = String::new();
        lycosa_metrics::graphite_lines(&snapshot, prefix, time, &mut text);
        let sent = read.map_err(io::Error::other).and_then(|()| send(destination, &mut connection, &text));
        match &sent {
            Ok(()) if is_failing => tracing::info!("Graphite takes numbers again"),
            Err(error) if !is_failing => tracing::warn!("Graphite at {server} takes no numbers: {error}"),
            _ => {}
        }
        is_failing = sent.is_err();
    }
}

fn send(destination: &Destination, connection: &mut Option<TcpStream>, text: &str) -> io::Result<()> {
    match destination {
        Destination::Udp(address) => {
            let address = resolve(address)?;
            let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(local)?;
            datagrams(text).try_for_each(|datagram| socket.send_to(datagram.as_bytes(), address).map(drop))
        }
        Destination::Tcp(address) => {
            if !connection.as_ref().is_some_and(is_open) {
                let stream = TcpStream::connect_timeout(&resolve(address)?, PATIENCE)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                *connection = Some(stream);
            }
            let written = connection.as_mut().map_or(Ok(()), |stream| stream.write_all(text.as_bytes()));
            if written.is_err() {
                *connection = None;
            }
            written
        }
    }
}

/// Whether the other side has not closed the connection. Graphite sends nothing.
fn is_open(stream: &TcpStream) -> bool {
    let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let is_open = matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    is_open && stream.set_nonblocking(false).is_ok()
}

fn resolve(address: &str) -> io::Result<std::net::SocketAddr> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    address.to_socket_addrs()?.next().ok_or_else(missing)
}

/// Whole lines in pieces that fit a datagram.
fn datagrams(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = match rest.as_bytes().get(..DATAGRAM) {
            None => rest.len(),
            Some(first) => match first.iter().rposition(|byte| *byte == b'\n') {
                Some(last) => last + 1,
                // A line that is longer goes alone.
                None => rest.find('\n').map_or(rest.len(), |end| end + 1),
            },
        };
        let (datagram, behind) = rest.split_at(end);
        rest = behind;
        Some(datagram)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_protocol_and_a_port() {
        assert_eq!(
            Destination::parse("udp://localhost:2003").unwrap(),
            Destination::Udp("localhost:2003".into())
        );
        assert_eq!(Destination::parse("tcp://[::1]:2003").unwrap(), Destination::Tcp("[::1]:2003".into()));
        for wrong in
            ["localhost:2003", "http://localhost:2003", "udp://localhost", "tcp://:2003", "udp://a:b"]
        {
            assert!(Destination::parse(wrong).unwrap_err().to_string().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn datagrams_have_whole_lines_and_all_of_them() {
        let line = |number: usize| format!("queue.stats.tube.tasks.ready {number} 1700000000\n");
        let text: String = (0..1000).map(line).collect();
        let all: Vec<&str> = datagrams(&text).collect();
        assert!(all.iter().all(|datagram| datagram.len() <= DATAGRAM && datagram.ends_with('\n')));
        assert_eq!(all.concat(), text);
        let long = format!("{}\n{}", "x".repeat(2 * DATAGRAM), line(1));
        assert_eq!(datagrams(&long).collect::<Vec<_>>().concat(), long);
        assert_eq!(datagrams("").count(), 0);
    }

    #[test]
    fn a_connection_that_was_closed_is_opened_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let destination = Destination::Tcp(listener.local_addr().unwrap().to_string());
        let mut connection = None;
        send(&destination, &mut connection, "a 1 1\n").unwrap();
        drop(listener.accept().unwrap());
        // The end arrives on its own time.
        while is_open(connection.as_ref().unwrap()) {
            thread::yield_now();
        }
        send(&destination, &mut connection, "b 2 2\n").unwrap();
        let (mut second, _) = listener.accept().unwrap();
        connection = None;
        let mut text = String::new();
        io::Read::read_to_string(&mut second, &mut text).unwrap();
        assert_eq!((text.as_str(), connection.is_none()), ("b 2 2\n", true));
    }
}
