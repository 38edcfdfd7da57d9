//! Loopback addresses for servers that tests start.
//!
//! A test that binds port 0, looks at the number and closes the socket has a port that the system may give to any client
//! in the same moment. The ports here lie below the range from which the system gives ports to clients, and each is given
//! once: the test that has one holds the lock of a file named by the number until its process ends. So a server that is
//! killed finds its port free again.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::Mutex;

const PORTS: Range<u16> = 10_000..30_000;

/// Locks of this process, kept until it ends.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A loopback address without a listener, which no other test has or gets while this process runs.
///
/// # Panics
///
/// If no port of the range is free, or the folder of locks cannot be written.
pub(crate) fn free_address() -> SocketAddr {
    let folder = std::env::temp_dir().join("lycosa-test-ports");
    fs::create_dir_all(&folder).expect("a folder for the locks of ports");
    let count = u32::from(PORTS.end - PORTS.start);
    // Processes that run side by side begin at different places, so that few of them meet a locked file.
    let first = std::process::id().wrapping_mul(41) % count;
    for step in 0..count {
        let offset = u16::try_from((first + step) % count).expect("an offset is below the count of ports");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORTS.start + offset));
        let lock =
            File::create(folder.join(address.port().to_string())).expect("a file for the lock of a port");
        if lock.try_lock().is_ok() && TcpListener::bind(address).is_ok() {
            HELD.lock().expect("no holder of the lock panics").push(lock);
            return address;
        }
    }
    panic!("no free port of {PORTS:?} on the loopback interface")
}
