//! A check that the machine keeps up with the times of the scenarios.
//!
//! A scenario that puts a task with a ttr of 0.3 s and takes it needs a machine that runs both requests within that time.
//! A machine with more work than processors may not. A thread that only sleeps measures it: what it oversleeps, others
//! were kept waiting for too. Invariant: a stall excuses a failure only while it was measured during the failed run.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A shorter stall does not disturb a scenario: their times are 0.2 s and more.
pub(super) const STALL: Duration = Duration::from_millis(40);
const NAP: Duration = Duration::from_millis(5);
/// The machine counts as calm when it kept up for this long.
const CALM: Duration = Duration::from_millis(500);
/// Then a run begins even on a machine that is not calm.
const PATIENCE: Duration = Duration::from_secs(20);

/// Measures from its start to its end.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ended: bool,
    longest: Duration,
}

impl Watch {
    pub(super) fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.measure())
        };
        Self { shared, thread: Some(thread) }
    }

    /// The longest time so far for which the machine did not run a thread that was due.
    pub(super) fn longest(&self) -> Duration {
        self.shared.state.lock().expect("no thread panics holding it").longest
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.state.lock().expect("no thread panics holding it").ended = true;
        self.shared.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread only sleeps");
        }
    }
}

impl Shared {
    fn measure(&self) {
        let mut state = self.state.lock().expect("no thread panics holding it");
        while !state.ended {
            let before = Instant::now();
            state = self.ended.wait_timeout(state, NAP).expect("no thread panics holding it").0;
            state.longest = state.longest.max(before.elapsed().saturating_sub(NAP));
        }
    }
}

/// Waits until the machine has kept up for a while, or has not for long.
pub(super) fn wait() {
    let give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up {
        let watch = Watch::start();
        thread::sleep(CALM);
        if watch.longest() < STALL {
            return;
        }
    }
}
