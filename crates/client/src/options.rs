//! Options of a connection: addresses, the user, timeouts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::tls::TlsOptions;

/// What an address begins with whose server speaks TLS.
const TLS_SCHEME: &str = "tls://";

/// Port of an address that names none.
const DEFAULT_PORT: u16 = 3301;

/// The time that a server which is starting has for its answer, before [`ConnectOptions::connect_timeout`] is over.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Where to connect, as which user, and how long to wait.
///
/// Reads the form that Tarantool uses, `[user[:password]@]host[:port]`, with `tls://` before it for a server that
/// speaks TLS:
///
/// ```
/// use lycosa_client::{ConnectOptions, TlsOptions};
///
/// let options: ConnectOptions = "worker:secret@queue.example:3301".parse().unwrap();
/// assert_eq!(options.address, "queue.example:3301");
/// assert_eq!(options.user.as_deref(), Some("worker"));
///
/// let options: ConnectOptions = "worker:secret@one.example,two.example:3302".parse().unwrap();
/// assert_eq!(options.address, "one.example:3301,two.example:3302");
///
/// let options: ConnectOptions = "tls://worker:secret@queue.example:3302".parse().unwrap();
/// let options = options.tls(TlsOptions::new("ca.pem"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectOptions {
    /// `host:port` or `host`, which means port 3301; the host is a name or an IP address, an IPv6 address in brackets.
    /// Several, separated by commas, are the servers of one replica set: the one that takes writes is connected to.
    pub address: String,
    /// The user; `None` stays `guest`.
    pub user: Option<String>,
    /// The user's password.
    pub password: String,
    /// How to speak TLS; `None` does not.
    pub tls: Option<TlsOptions>,
    /// For name lookup, TCP, TLS, greeting and authentication together. Default 5 s.
    pub connect_timeout: Duration,
    /// After so long without a greeting the server is asked whether it is still starting: then the attempt ends with how far
    /// it is ([`Error::Starting`](crate::Error::Starting)). Default: a second before the end
    /// of [`Self::connect_timeout`].
    pub start_patience: Option<Duration>,
    /// For the answer to a request, from the moment it is made. Default 30 s. A `take` waits so much longer than it
    /// asks the server to.
    pub request_timeout: Duration,
    /// How many requests may await their answers at once; more wait their turn. A waiting `take` counts.
    /// Default 16384.
    pub max_in_flight: u32,
    /// After so long without a byte from the server, ask for a sign of life; after three times as long without one
    /// the connection counts as broken. Zero never asks. Default 10 s.
    pub keep_alive: Duration,
    /// Longest answer in bytes that is accepted. Default 256 MiB.
    pub max_answer_size: usize,
    /// Pause of a [`Client`](crate::Client) before its second attempt to reconnect; it doubles with each attempt.
    /// Default 50 ms.
    pub backoff_min: Duration,
    /// The longest pause. Default 5 s.
    pub backoff_max: Duration,
    /// How long the leader of a group is waited for when another member of the group has answered. 100 ms; a test that needs
    /// the leader on a machine of any speed waits longer.
    pub(crate) leader_grace: Duration,
    /// How long a sign of life may take, where all servers are members of one group. 200 ms; a test waits longer, as above.
    pub(crate) patience_in_group: Duration,
}

impl ConnectOptions {
    /// The defaults for `address`, as `guest`.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            user: None,
            password: String::new(),
            tls: None,
            connect_timeout: Duration::from_secs(5),
            start_patience: None,
            request_timeout: Duration::from_secs(30),
            max_in_flight: 16_384,
            keep_alive: Duration::from_secs(10),
            max_answer_size: 256 << 20,
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            leader_grace: Duration::from_millis(100),
            patience_in_group: Duration::from_millis(200),
        }
    }

    /// The addresses, each with the port that it names or the default one.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = String> {
        self.address.split(',').map(str::trim).map(|address| match split_port(address) {
            (_, Some(_)) => address.to_owned(),
            (host, None) => format!("{host}:{DEFAULT_PORT}"),
        })
    }

    /// Whether there are several addresses.
    pub(crate) fn has_several(&self) -> bool {
        self.address.contains(',')
    }

    /// The same, as `user`.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self.password = password.into();
        self
    }

    /// The same with TLS.
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The same with another [`Self::connect_timeout`].
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The same with another [`Self::start_patience`].
    pub fn start_patience(mut self, patience: Duration) -> Self {
        self.start_patience = Some(patience);
        self
    }

    pub(crate) fn ask_after(&self) -> Duration {
        let for_answer = (self.connect_timeout / 2).min(ANSWER_TIME);
        self.start_patience.unwrap_or(self.connect_timeout.saturating_sub(for_answer))
    }

    /// The same with another [`Self::request_timeout`].
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }
}

/// An address that is not of the form `[tls://][user[:password]@]host[:port]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address: expected [tls://][user[:password]@]host[:port][,host[:port]…]")]
pub struct AddressError(String);

impl FromStr for ConnectOptions {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (text, is_tls) = text.strip_prefix(TLS_SCHEME).map_or((text, false), |rest| (rest, true));
        // The text may hold a password, the error must not.
        let (credentials, address) =
            text.rsplit_once('@').map_or((None, text), |(left, right)| (Some(left), right));
        let addresses = address.split(',').map(|address| one_address(address.trim()));
        let mut options = Self::new(addresses.collect::<Result<Vec<_>, _>>()?.join(","));
        options.tls = is_tls.then(TlsOptions::default);
        Ok(match credentials.map(|text| text.split_once(':').unwrap_or((text, ""))) {
            Some((user, password)) => options.credentials(user, password),
            None => options,
        })
    }
}

/// `host[:port]` with the port.
fn one_address(address: &str) -> Result<String, AddressError> {
    let error = || AddressError(address.to_owned());
    let (host, port) = match split_port(address) {
        (host, Some(port)) => (host, port.parse::<u16>().map_err(|_| error())?),
        (host, None) => (host, DEFAULT_PORT),
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || host.contains(char::is_whitespace) || (host.contains(':') && !is_bracketed) {
        return Err(error());
    }
    Ok(format!("{host}:{port}"))
}

/// The host, and the text behind it that stands for a port.
fn split_port(address: &str) -> (&str, Option<&str>) {
    match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (address, None),
    }
}

/// Shows everything but the password.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("address", &self.address)
            .field("user", &self.user)
            .field("tls", &self.tls)
            .field("connect_timeout", &self.connect_timeout)
            .field("start_patience", &self.start_patience)
            .field("request_timeout", &self.request_timeout)
            .field("max_in_flight", &self.max_in_flight)
            .field("keep_alive", &self.keep_alive)
            .field("max_answer_size", &self.max_answer_size)
            .field("backoff_min", &self.backoff_min)
            .field("backoff_max", &self.backoff_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parsed = |text: &str| {
            let options: ConnectOptions = text.parse().expect("an address");
            (options.address, options.user, options.password)
        };
        let guest = |address: &str| (address.to_owned(), None, String::new());
        let user = |address: &str, user: &str, password: &str| {
            (address.to_owned(), Some(user.to_owned()), password.to_owned())
        };
        assert_eq!(parsed("localhost"), guest("localhost:3301"));
        assert_eq!(parsed("127.0.0.1:3302"), guest("127.0.0.1:3302"));
        assert_eq!(parsed("[::1]"), guest("[::1]:3301"));
        assert_eq!(parsed("[::1]:5"), guest("[::1]:5"));
        assert_eq!(parsed("h, [::1]:5"), guest("h:3301,[::1]:5"));
        assert!("h,".parse::<ConnectOptions>().is_err() && "h,g:x".parse::<ConnectOptions>().is_err());
        assert_eq!(parsed("me@h"), user("h:3301", "me", ""));
        assert_eq!(parsed("me:a:b@c@h:1"), user("h:1", "me", "a:b@c"));
    }

    #[test]
    fn a_scheme_asks_for_tls() {
        let options: ConnectOptions = "tls://me:a@h".parse().expect("an address");
        assert_eq!((options.address.as_str(), options.user.as_deref()), ("h:3301", Some("me")));
        assert_eq!(options.tls, Some(TlsOptions::default()));
        assert_eq!("h".parse::<ConnectOptions>().expect("an address").tls, None);
    }

    #[test]
    fn a_host_alone_has_the_default_port() {
        let port = |address: &str| ConnectOptions::new(address).addresses().collect::<Vec<_>>().join(" ");
        assert_eq!(port("queue.example"), "queue.example:3301");
        assert_eq!(port("[::1]"), "[::1]:3301");
        assert_eq!(port("[::1]:5"), "[::1]:5");
        assert_eq!(port("127.0.0.1:3302"), "127.0.0.1:3302");
    }

    #[test]
    fn other_texts() {
        for text in ["", ":3301", "host:", "host:x", "host:65536", "::1", "a b", "me:secret@"] {
            let error = text.parse::<ConnectOptions>().expect_err("no address");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let options = ConnectOptions::new("h:1").credentials("me", "secret");
        assert!(!format!("{options:?}").contains("secret"));
    }
}
