//! Log-ins: a refused client gets the same error for every cause, a line in the log, and a delay.
//!
//! An unknown user and a wrong password have the same answer, which takes the same time, so that no client can find out
//! which users there are. (Tarantool 2.6 tells them apart, by codes 45 and 47.)
//!
//! Failures are counted for an address and a name together ([`Place`]). From the sixth on, every log-in there is answered with a
//! delay, the right ones too: who guesses on many connections at once would otherwise read a wrong guess off the silence.
//! The delay doubles up to [`MAX_DELAY`]. Answers at one place follow each other by at least [`INTERVAL`], however many
//! connections guess; a log-in that would wait longer than [`MAX_WAIT`] is refused without a look at its password.
//! Connections that have failed already have a line of their own: their guesses do not hold up a new connection.
//!
//! So a guesser locks no other user out: log-ins as other users from the same address, and as the same user from other
//! addresses, do not wait. Connections that exist go on undisturbed. Failures are forgotten by half every [`HALF_LIFE`].
//! What remains: who guesses the same user from the same address on ever new connections keeps others of that address
//! waiting or has them refused; the administrator's socket is open then.
//!
//! Invariants: at most [`MAX_PLACES`] places are remembered, the least recent one is forgotten first; a connection
//! whose log-in is delayed is not read, so that nothing overtakes it; the administrator's socket knows no delay.

mod authentication;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use lycosa_queue::sampled::{Sampled, with_held_back};
use lycosa_queue::{LogLevel, LogLine};
use lycosa_store::UserId;

use crate::Result;
use crate::front::caller::FrameReply;

/// Failures that cost nothing: people mistype.
const FREE_FAILURES: u32 = 5;

/// The first delay, in microseconds.
const FIRST_DELAY: u64 = 100_000;

/// The longest delay, in microseconds.
pub(crate) const MAX_DELAY: u64 = 2_000_000;

/// Microseconds without a failure after which half of an address's failures are forgotten.
const HALF_LIFE: u64 = 30_000_000;

/// Time between two delayed answers at one place and in one line, in microseconds: 8 guesses a second.
const INTERVAL: u64 = 125_000;

/// The longest time that a log-in waits for its turn and its delay, in microseconds.
const MAX_WAIT: u64 = 4_000_000;

/// Places whose failures are counted.
const MAX_PLACES: usize = 16_384;

/// Bytes of a name that the log and an answer show, and by which failures are counted together.
const SHOWN_NAME: usize = 256;

/// Where logins come from, as far as failures are counted together: an IPv4 address, an IPv6 network of 64 bits, or
/// this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum LoginSource {
    Loopback,
    Address(IpAddr),
}

impl LoginSource {
    /// Of a peer as [`crate::Origin`] names it; nothing for the administrator's socket.
    fn of(peer: &str) -> Option<Self> {
        let address = peer.parse::<SocketAddr>().ok()?.ip().to_canonical();
        Some(match address {
            address if address.is_loopback() => Self::Loopback,
            IpAddr::V4(_) => Self::Address(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::Address(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
        })
    }
}

/// Where failures are counted together: an address, and a name by a part of its hash, whether or not there is such a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    source: LoginSource,
    name: u8,
}

impl Place {
    fn of(peer: &str, name: &[u8]) -> Option<Self> {
        let name = &name[..name.len().min(SHOWN_NAME)];
        // FNV-1a. Names that share a place share its delay, which allows no further guesses.
        let hash = name
            .iter()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        Some(Self { source: LoginSource::of(peer)?, name: (hash ^ (hash >> 16) ^ (hash >> 8)) as u8 })
    }
}

/// The lines of log-ins that wait for a delayed answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitingLine {
    /// Connections whose first log-in it is, or whose earlier ones were right.
    New,
    /// Connections with a failed log-in.
    Failed,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: u64,
    /// When the next answer of each line may leave.
    next: [u64; 2],
}

impl Failures {
    /// How many still count.
    fn at(self, now: u64) -> u32 {
        let halves = now.saturating_sub(self.last) / HALF_LIFE;
        self.count.checked_shr(u32::try_from(halves).unwrap_or(u32::MAX)).unwrap_or(0)
    }
}

/// A log-in whose answer waits.
#[derive(Debug)]
struct Delayed {
    to: FrameReply,
    /// The connection's number, which tells it from a later one in its slot.
    connection: u64,
    name: String,
    outcome: Outcome,
}

/// The user, or the error.
pub(crate) type Outcome = Result<UserId>;

/// Failed log-ins by place, and answers that are delayed.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    failures: HashMap<Place, Failures>,
    /// The places of `failures` by the time of their last failure.
    recent: BTreeSet<(u64, Place)>,
    /// By the time of the answer, and a number that tells answers of one time apart.
    delayed: BTreeMap<(u64, u64), Delayed>,
    /// The number of the next delayed answer.
    next: u64,
    sampled: Sampled,
    log: VecDeque<LogLine>,
}

impl Logins {
    /// When the next answer at a place and in a line leaves, in microseconds from now; it takes that place in the line. `None`:
    /// too many wait already.
    fn delay(&mut self, peer: &str, name: &[u8], line: WaitingLine, now: u64) -> Option<u64> {
        let Some(failures) = Place::of(peer, name).and_then(|place| self.failures.get_mut(&place)) else {
            return Some(0);
        };
        let Some(excess) = failures.at(now).checked_sub(FREE_FAILURES + 1) else { return Some(0) };
        let own = FIRST_DELAY.checked_shl(excess).unwrap_or(MAX_DELAY).min(MAX_DELAY);
        let next = &mut failures.next[line as usize];
        // A clock that was set back must not leave log-ins waiting.
        let turn = if *next > now + MAX_WAIT + INTERVAL { now } else { *next };
        let at = turn.max(now + own);
        if at > now + MAX_WAIT {
            return None;
        }
        *next = at + INTERVAL;
        Some(at - now)
    }

    fn failed(&mut self, peer: &str, name: &[u8], now: u64) {
        if let Some(held_back) = self.sampled.event(now) {
            let text = format!("a log-in as {:?} from {peer} failed", shown(name));
            self.log(with_held_back(text, held_back));
        }
        let Some(place) = Place::of(peer, name) else { return };
        let mut failures = match self.failures.remove(&place) {
            Some(failures) => {
                self.recent.remove(&(failures.last, place));
                failures
            }
            None => Failures { count: 0, last: now, next: [0; 2] },
        };
        if self.failures.len() >= MAX_PLACES
            && let Some((_, oldest)) = self.recent.pop_first()
        {
            self.failures.remove(&oldest);
        }
        (failures.count, failures.last) = (failures.at(now).saturating_add(1), now);
        self.recent.insert((now, place));
        self.failures.insert(place, failures);
    }

    fn log(&mut self, text: String) {
        self.log.push_back(LogLine { level: LogLevel::Warning, text });
    }

    pub(crate) fn poll_log(&mut self) -> Option<LogLine> {
        self.log.pop_front()
    }

    /// When the next delayed answer is due.
    pub(crate) fn next(&self) -> Option<u64> {
        self.delayed.first_key_value().map(|((at, _), _)| *at)
    }

    fn hold(&mut self, at: u64, delayed: Delayed) {
        self.delayed.insert((at, self.next), delayed);
        self.next += 1;
    }

    fn take_due(&mut self, now: u64) -> Option<Delayed> {
        let first = self.delayed.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

/// A name for the log and for answers, cut at [`SHOWN_NAME`] bytes.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(SHOWN_NAME)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::authentication::wrong_credentials;
    use super::*;
    use crate::ConnectionSlot;

    const NOW: u64 = 1_700_000_000_000_000;

    fn delay(logins: &mut Logins, peer: &str, now: u64) -> u64 {
        // Each call takes a place in the waiting line, which this test does not examine.
        logins.failures.values_mut().for_each(|failures| failures.next = [0; 2]);
        logins.delay(peer, b"ann", WaitingLine::New, now).expect("nobody else waits")
    }

    fn after(logins: &mut Logins, peer: &str, count: u32) -> u64 {
        (0..count).for_each(|_| logins.failed(peer, b"ann", NOW));
        delay(logins, peer, NOW)
    }

    #[test]
    fn delays_grow_to_their_bound_and_fade() {
        let mut logins = Logins::default();
        let peer = "192.0.2.1:5000";
        assert_eq!(after(&mut logins, peer, FREE_FAILURES), 0);
        assert_eq!(after(&mut logins, peer, 1), FIRST_DELAY);
        assert_eq!(after(&mut logins, peer, 1), 2 * FIRST_DELAY);
        assert_eq!(after(&mut logins, peer, 1000), MAX_DELAY);
        assert_eq!(delay(&mut logins, "192.0.2.1:9", NOW), MAX_DELAY, "whatever the port");
        assert_eq!(delay(&mut logins, "[::ffff:192.0.2.1]:9", NOW), MAX_DELAY, "however it is written");
        assert_eq!(delay(&mut logins, "192.0.2.2:9", NOW), 0, "another address does not wait");
        assert_eq!(logins.delay(peer, b"bob", WaitingLine::New, NOW), Some(0), "nor does another user");
        assert_eq!(delay(&mut logins, peer, NOW + HALF_LIFE * 8), 0);
        assert_eq!(
            delay(&mut logins, peer, NOW - HALF_LIFE),
            MAX_DELAY,
            "a clock that goes back forgets nothing"
        );
    }

    /// A place answers one guess per [`INTERVAL`], from any number of connections, and refuses further guesses at once. A
    /// connection that has not failed yet waits only behind connections of that kind.
    #[test]
    fn answers_at_a_place_are_paced() {
        let mut logins = Logins::default();
        let peer = "192.0.2.1:5000";
        after(&mut logins, peer, 100);
        logins.failures.values_mut().for_each(|failures| failures.next = [0; 2]);
        let mut answered = Vec::new();
        for second in 0..10 {
            let now = NOW + second * 1_000_000;
            let given = (0..1000).filter_map(|_| logins.delay(peer, b"ann", WaitingLine::Failed, now));
            answered.extend(given.map(|delay| now + delay));
            logins.failed(peer, b"ann", now);
        }
        let most = (10_000_000 + MAX_WAIT) / INTERVAL;
        assert!(answered.len() as u64 <= most && answered.len() as u64 > most / 2, "{}", answered.len());
        assert!(answered.windows(2).all(|pair| pair[1] - pair[0] >= INTERVAL));
        let now = NOW + 9_000_000;
        assert_eq!(logins.delay(peer, b"ann", WaitingLine::Failed, now), None);
        assert_eq!(logins.delay(peer, b"ann", WaitingLine::New, now), Some(MAX_DELAY));
        let long_before = NOW - 3_600_000_000;
        assert_eq!(
            logins.delay(peer, b"ann", WaitingLine::Failed, long_before),
            Some(MAX_DELAY),
            "a clock set back"
        );
    }

    #[test]
    fn networks_and_this_machine_are_one_place() {
        let mut logins = Logins::default();
        assert_eq!(after(&mut logins, "[2001:db8::1]:1", 100), MAX_DELAY);
        assert_eq!(delay(&mut logins, "[2001:db8::ffff:2]:1", NOW), MAX_DELAY);
        assert_eq!(delay(&mut logins, "[2001:db8:0:1::1]:1", NOW), 0);
        assert_eq!(after(&mut logins, "127.0.0.2:1", 100), MAX_DELAY);
        assert_eq!(delay(&mut logins, "[::1]:1", NOW), MAX_DELAY);
        assert_eq!(after(&mut logins, "admin.sock", 100), 0);
    }

    #[test]
    fn delayed_answers_leave_in_the_order_of_their_times() {
        let mut logins = Logins::default();
        for (sync, at) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            let outcome = Err(wrong_credentials(b"ann"));
            let to = FrameReply::new(ConnectionSlot(0), sync);
            logins.hold(at, Delayed { to, connection: 7, name: "ann".to_owned(), outcome });
        }
        assert_eq!(logins.next(), Some(10));
        let mut due =
            |now: u64| std::iter::from_fn(|| logins.take_due(now)).map(|due| due.to.sync).collect::<Vec<_>>();
        assert_eq!(due(9), []);
        assert_eq!(due(20), [2, 4, 3]);
        assert_eq!(due(30), [1]);
        assert_eq!(logins.next(), None);
    }

    #[test]
    fn names_beyond_what_a_user_can_have_are_one_place() {
        let (long, longer) = (vec![b'x'; SHOWN_NAME], vec![b'x'; 15 << 20]);
        assert_eq!(Place::of("192.0.2.1:1", &long), Place::of("192.0.2.1:1", &longer));
    }

    #[test]
    fn the_table_and_the_log_are_bounded() {
        let mut logins = Logins::default();
        for number in 0..2 * MAX_PLACES as u64 {
            let peer = format!("10.{}.{}.1:1", number / 256, number % 256);
            logins.failed(&peer, b"ann", NOW + number);
        }
        assert_eq!(logins.failures.len(), MAX_PLACES);
        assert_eq!(logins.log.len(), Sampled::BURST as usize);
        assert!(logins.failures.values().all(|failures| failures.last >= NOW + MAX_PLACES as u64));
        assert_eq!(logins.recent.len(), MAX_PLACES);
        // A place that fails again is the most recent one.
        let peer = |number: u64| format!("10.{}.{}.1:1", number / 256, number % 256);
        let (oldest, second) = (MAX_PLACES as u64, MAX_PLACES as u64 + 1);
        logins.failed(&peer(oldest), b"ann", 2 * NOW);
        logins.failed("192.0.2.1:1", b"ann", 2 * NOW + 1);
        let known = |number: u64| {
            logins.failures.contains_key(&Place::of(&peer(number), b"ann").expect("it has an address"))
        };
        assert!(known(oldest) && !known(second) && known(second + 1));
        assert_eq!((logins.failures.len(), logins.recent.len()), (MAX_PLACES, MAX_PLACES));
        assert_eq!(shown(&[b'x'; 1000]).len(), SHOWN_NAME);
    }
}
