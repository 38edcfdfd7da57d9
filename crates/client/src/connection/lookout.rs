//! A server that says nothing while another one serves is left.
//!
//! A frozen server, or one that is cut off, keeps its connections and says nothing. A busy one does the same for a while. The
//! other addresses tell them apart: a member of a group answers a VOTE through the leader that there is now, so an answer of
//! another member proves that a frozen leader has a successor. A server that is asked anew and answers is not left.
//!
//! A server without a request to answer is asked for a sign of life once a second, one with a new request after a tenth.

use std::sync::Arc;
use std::time::Duration;

use super::{Connection, Shared};
use crate::options::ConnectOptions;

/// How often the connection is looked at.
const TICK: Duration = Duration::from_millis(100);
/// Ticks without a new request after which the server is asked for a sign of life.
const IDLE_TICKS: u32 = 10;
/// How long a sign of life may take from servers whose rows another one may lack.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long all servers may take to answer before they are asked again.
const ROUND: Duration = Duration::from_secs(1);

/// Counts of a connection at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    received: u64,
    made: u64,
}

impl Seen {
    fn of(shared: &Shared) -> Self {
        let state = shared.state();
        Self { received: state.received, made: state.made }
    }
}

/// Looks at a connection until it ends, unless the options ask for no signs of life.
pub(super) fn begin(connection: &Connection, options: &ConnectOptions, is_in_group: bool) {
    if options.keep_alive.is_zero() {
        return;
    }
    let (shared, address) = (Arc::clone(&connection.handle.shared), connection.address().to_owned());
    let instance = is_in_group.then(|| connection.greeting().uuid);
    let options = options.clone();
    tokio::spawn(async move {
        let mut end = shared.end.subscribe();
        tokio::select! {
            _ = end.wait_for(Option::is_some) => {}
            () = silence(&shared, &address, &options, instance) => {
                shared.finish(&format!("{address} says nothing, and another server takes its place"));
            }
        }
    });
}

/// Returns once the server is silent and another one serves. `instance` is the UUID in the greetings of its group.
async fn silence(shared: &Shared, address: &str, options: &ConnectOptions, instance: Option<uuid::Uuid>) {
    let patience = if instance.is_some() { options.patience_in_group } else { PATIENCE };
    let (mut known, mut quiet) = (Seen::of(shared), 0);
    loop {
        tokio::time::sleep(TICK).await;
        let seen = Seen::of(shared);
        if seen.received != known.received {
            (known, quiet) = (seen, 0);
            continue;
        }
        quiet += 1;
        if seen.made == known.made && quiet < IDLE_TICKS {
            continue;
        }
        let hears = || Seen::of(shared).received != seen.received;
        shared.ping();
        tokio::time::sleep(patience).await;
        if !hears() && is_replaced(address, options, instance, patience).await && !hears() {
            return;
        }
        (known, quiet) = (Seen { made: known.made, ..Seen::of(shared) }, 0);
    }
}

/// Whether the server says nothing to a new client either, while another one serves.
async fn is_replaced(
    address: &str,
    options: &ConnectOptions,
    instance: Option<uuid::Uuid>,
    patience: Duration,
) -> bool {
    let mut answers = Connection::ask_all(options, options.addresses());
    let (patient, round) = (tokio::time::sleep(patience), tokio::time::sleep(patience + ROUND));
    tokio::pin!(patient, round);
    let (mut is_patient, mut others) = (true, false);
    loop {
        tokio::select! {
            () = &mut patient, if is_patient => is_patient = false,
            () = &mut round => return false,
            answer = answers.join_next() => match answer {
                Some(Ok((Ok(_), from))) if from == address => return false,
                Some(Ok((Ok((connection, standing)), _))) => {
                    others |= match instance {
                        Some(instance) => standing.takes_writes && connection.greeting().uuid == instance,
                        None => standing.is_sound(),
                    };
                }
                Some(_) => {}
                None => return others,
            },
        }
        if others && !is_patient {
            return true;
        }
    }
}
