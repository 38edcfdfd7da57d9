//! Places for HTTP connections: a bound for all of them, and a bound for each client address.
//!
//! Without the second bound one client holds every place, and no other reaches the page. IPv6 clients have whole networks, so
//! addresses are told apart by their first 64 bits there.
//!
//! Invariant: a place is free again when its [`Place`] is dropped.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Pause between two lines of the log about connections that were closed.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// All places.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    all: usize,
    of_address: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    by_address: HashMap<IpAddr, usize>,
    logged: Option<Instant>,
    /// Connections that were closed since the last line of the log.
    closed: u64,
}

/// The place of one connection.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    address: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// `of_address`: of one client address; 0 for no bound but `all`.
    pub(crate) fn new(all: usize, of_address: usize) -> Arc<Self> {
        let of_address = if of_address == 0 { all } else { of_address };
        Arc::new(Self { free: Arc::new(Semaphore::new(all)), all, of_address, taken: Mutex::default() })
    }

    /// A place for a connection of that address. `None`: a bound is met.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = network(address);
        let mut taken = self.taken();
        if taken.by_address.get(&address).copied().unwrap_or(0) >= self.of_address {
            let bound = self.of_address;
            taken.note_closed(&format!("{bound} are open from {address} (http.max_connections_per_address)"));
            return None;
        }
        let Ok(permit) = self.free.clone().try_acquire_owned() else {
            taken.note_closed(&format!("{} are open (http.max_connections)", self.all));
            return None;
        };
        *taken.by_address.entry(address).or_insert(0) += 1;
        drop(taken);
        Some(Place { places: self.clone(), address, _permit: permit })
    }

    /// Connections at the moment.
    pub(crate) fn in_use(&self) -> usize {
        self.all.saturating_sub(self.free.available_permits())
    }

    /// Waits until every connection has ended.
    pub(crate) async fn wait_for_all(&self) {
        // The semaphore is never closed.
        let _ = self.free.acquire_many(u32::try_from(self.all).unwrap_or(u32::MAX)).await;
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, Taken> {
        // A thread that panicked with the lock has at most counted one place too many.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn note_closed(&mut self, why: &str) {
        self.closed += 1;
        if self.logged.is_none_or(|logged| logged.elapsed() >= LOG_PAUSE) {
            let closed = std::mem::take(&mut self.closed);
            tracing::warn!("HTTP: closed {closed} connections at once: {why}");
            self.logged = Some(Instant::now());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

/// The address whose places are counted.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_its_own_bound_and_a_place_comes_back() {
        let places = Places::new(3, 2);
        let take = |text| places.take(address(text));
        let held = [take("10.0.0.1"), take("::ffff:10.0.0.1")];
        assert!(held.iter().all(Option::is_some));
        assert!(take("10.0.0.1").is_none(), "the third of the address");
        let other = take("10.0.0.2");
        assert!(other.is_some());
        assert_eq!(places.in_use(), 3);
        assert!(take("10.0.0.2").is_none(), "the fourth of all");
        drop(held);
        assert_eq!(places.in_use(), 1);
        assert!(take("10.0.0.1").is_some());
        drop(other);
        assert!(places.taken().by_address.is_empty(), "nothing is left of addresses that are gone");
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let places = Places::new(8, 1);
        let held = places.take(address("2001:db8:1:2::1"));
        assert!(held.is_some());
        assert!(places.take(address("2001:db8:1:2:ffff::9")).is_none());
        assert!(places.take(address("2001:db8:1:3::1")).is_some());
    }

    #[test]
    fn no_bound_of_addresses_is_the_bound_of_all() {
        let places = Places::new(2, 0);
        let held = [places.take(address("10.0.0.1")), places.take(address("10.0.0.1"))];
        assert!(held.iter().all(Option::is_some));
        assert!(places.take(address("10.0.0.1")).is_none());
    }
}
