//! Lines to a syslog daemon: `syslog:server=unix:PATH,identity=NAME,facility=NAME`, as `box.cfg` names it in Tarantool.
//!
//! Each line is a datagram of RFC 3164. A line that the daemon does not take at once is lost.

use std::io;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;

use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use super::lines::Time;

/// The daemon's sockets on this machine.
const LOCAL: [&str; 2] = ["/dev/log", "/var/run/syslog"];
const PORT: &str = "514";
const DEFAULT_IDENTITY: &str = "lycosa";
const DEFAULT_FACILITY: &str = "local7";

/// Facilities in the order of their numbers. An empty name stands for a number without one.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv", "ftp",
    "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A daemon that takes lines.
pub(super) struct Syslog {
    server: Server,
    identity: String,
    /// Eight times the number of the facility.
    facility: usize,
    socket: Option<Socket>,
}

#[derive(Debug, PartialEq, Eq)]
enum Server {
    Unix(String),
    Remote(String),
}

/// Sends a datagram over a connected socket.
type Socket = Box<dyn Fn(&[u8]) -> io::Result<usize> + Send>;

fn connect(server: &Server) -> io::Result<Socket> {
    match server {
        Server::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_nonblocking(true)?;
            Ok(Box::new(move |datagram| socket.send(datagram)))
        }
        Server::Remote(address) => {
            let open = |own: &str| {
                let socket = UdpSocket::bind(own)?;
                socket.connect(address)?;
                Ok::<_, io::Error>(socket)
            };
            let socket = open("0.0.0.0:0").or_else(|error| open("[::]:0").map_err(|_| error))?;
            socket.set_nonblocking(true)?;
            Ok(Box::new(move |datagram| socket.send(datagram)))
        }
    }
}

impl Syslog {
    /// Connects as the options ask for: what stands behind `syslog:`.
    ///
    /// # Errors
    /// An option is wrong, or nothing listens at a path.
    pub(super) fn open(options: &str) -> Result<Syslog, String> {
        let (server, identity, facility) = parse(options)?;
        let candidates = match server {
            Some(server) => vec![server],
            None => LOCAL.iter().map(|path| Server::Unix((*path).to_owned())).collect(),
        };
        let mut fault = String::new();
        for server in candidates {
            match connect(&server) {
                Ok(socket) => return Ok(Syslog { server, identity, facility, socket: Some(socket) }),
                Err(error) => {
                    fault = format!("syslog logger: {error}: no daemon at {server:?}; name it with server=");
                }
            }
        }
        Err(fault)
    }

    /// Sends a line. A daemon that has begun anew is connected again.
    pub(super) fn send(&mut self, level: Level, line: &[u8]) {
        let priority = self.facility + severity(level);
        let mut time = String::new();
        // Writing to a text does not fail.
        let _ = Time.format_time(&mut Writer::new(&mut time));
        let date = date_of(&time).unwrap_or_default();
        let head = format!("<{priority}>{date} {}[{}]: ", self.identity, std::process::id());
        let end = line.iter().rposition(|byte| *byte != b'\n').map_or(0, |last| last + 1);
        let datagram = [head.as_bytes(), without_time(&line[..end])].concat();
        let is_taken = |send: &Socket| match send(&datagram) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
        if !self.socket.as_ref().is_some_and(is_taken) {
            self.socket = connect(&self.server).ok();
            self.socket.iter().for_each(|send| drop(send(&datagram)));
        }
    }
}

fn severity(level: Level) -> usize {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// The line behind its time, which the datagram tells itself.
fn without_time(line: &[u8]) -> &[u8] {
    if !line.first().is_some_and(u8::is_ascii_digit) {
        return line;
    }
    let space = line.iter().position(|byte| *byte == b' ').unwrap_or(0);
    line[space..].trim_ascii_start()
}

/// `Nov 28 18:51:12`, of a time as lines of the log have it.
fn date_of(time: &str) -> Option<String> {
    let month = time.get(5..7)?.parse::<usize>().ok()?.checked_sub(1)?;
    let day: u8 = time.get(8..10)?.parse().ok()?;
    Some(format!("{} {day:2} {}", MONTHS.get(month)?, time.get(11..19)?))
}

fn parse(options: &str) -> Result<(Option<Server>, String, usize), String> {
    let (mut server, mut identity, mut facility) = (None, None, None);
    for option in options.split(',').take_while(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let is_repeated = match name {
            "server" => server.replace(value).is_some(),
            "identity" => identity.replace(value).is_some(),
            "facility" => facility.replace(value).is_some(),
            _ => return Err(format!("bad option '{option}': server, identity and facility are known")),
        };
        if is_repeated {
            return Err(format!("duplicate option '{name}'"));
        }
    }
    let name = facility.unwrap_or(DEFAULT_FACILITY);
    let facility = FACILITIES.iter().position(|known| *known == name);
    let facility = facility.ok_or_else(|| format!("bad syslog facility option '{name}'"))?;
    let server = server.map(|server| match server.strip_prefix("unix:") {
        Some(path) => Server::Unix(path.to_owned()),
        None if server.contains(':') => Server::Remote(server.to_owned()),
        None => Server::Remote(format!("{server}:{PORT}")),
    });
    Ok((server, identity.unwrap_or(DEFAULT_IDENTITY).to_owned(), facility * 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_as_tarantool_reads_them() {
        let unix = parse("server=unix:/dev/log,identity=shop,facility=user").expect("right");
        assert_eq!(unix, (Some(Server::Unix("/dev/log".to_owned())), "shop".to_owned(), 8));
        let remote = parse("server=logs.example").expect("right");
        assert_eq!(remote, (Some(Server::Remote("logs.example:514".to_owned())), "lycosa".to_owned(), 184));
        assert_eq!(parse("").expect("right").0, None);
        for wrong in ["colour=red", "identity=a,identity=b", "facility=none"] {
            parse(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn dates() {
        for (time, date) in [
            ("1970-01-01T00:00:00.000000Z", "Jan  1 00:00:00"),
            ("2000-02-29T00:00:00.000000Z", "Feb 29 00:00:00"),
            ("2026-11-28T18:51:12.000001Z", "Nov 28 18:51:12"),
            ("2026-12-31T23:59:59.999999Z", "Dec 31 23:59:59"),
        ] {
            assert_eq!(date_of(time).as_deref(), Some(date));
        }
        assert_eq!(date_of("Nov 28"), None);
    }

    #[test]
    fn a_line_reaches_a_daemon_that_has_begun_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let daemon = UnixDatagram::bind(&path).expect("a socket");
        let options = format!("server=unix:{},identity=shop", path.display());
        let mut syslog = Syslog::open(&options).expect("a daemon");
        let mut bytes = [0; 200];
        syslog.send(Level::WARN, b"2026-11-28T18:51:12.000001Z  WARN low on memory\n");
        let length = daemon.recv(&mut bytes).expect("a line");
        let line = String::from_utf8_lossy(&bytes[..length]).into_owned();
        assert!(line.starts_with("<188>") && line.ends_with("]: WARN low on memory"), "{line}");
        assert!(line.contains(" shop["), "{line}");
        drop(daemon);
        syslog.send(Level::INFO, b"lost\n");
        std::fs::remove_file(&path).expect("its socket");
        let daemon = UnixDatagram::bind(&path).expect("a socket");
        syslog.send(Level::INFO, b"{\"message\": 1}\n");
        let length = daemon.recv(&mut bytes).expect("a line");
        assert!(bytes[..length].ends_with(b"]: {\"message\": 1}"));
        assert!(Syslog::open("server=unix:/nowhere/log").is_err(), "no daemon");
    }
}
