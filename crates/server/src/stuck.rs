//! Ends a process whose loop does not hear SIGTERM.
//!
//! A program's own Lua code has no time limit, not even in a pattern of `string.find` that backtracks, and nothing
//! interrupts an FFI call. Either keeps the loop's thread from everything else, signals included. A
//! thread of its own therefore hears SIGTERM and SIGINT too. It ends the process at the second signal, or when the loop
//! has not heard the first for [`PATIENCE`]. Nothing acknowledged is lost: replies leave after their rows are durable.
//!
//! Absent: an orderly end. The next start recovers the data folder as after a crash.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long the loop may take to hear a signal.
const PATIENCE: Duration = Duration::from_secs(3);

/// The exit code: what a shell shows for a process that SIGTERM has ended.
const CODE: i32 = 143;

/// The loop has heard the signal and ends in order.
static HEARD: AtomicBool = AtomicBool::new(false);

static STARTED: AtomicBool = AtomicBool::new(false);

/// The signals that end a process.
pub(crate) struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    pub(crate) fn new() -> std::io::Result<Self> {
        let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
        Ok(Self { terminate: terminate?, interrupt: interrupt? })
    }

    /// Waits for one; its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// The loop has heard SIGTERM or SIGINT.
pub(crate) fn heard() {
    HEARD.store(true, Ordering::Relaxed);
}

/// Starts the thread, which lasts as long as the process, if it does not run yet.
///
/// # Errors
/// There is no thread or descriptor left.
pub(crate) fn start() -> std::io::Result<()> {
    if STARTED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || tokio.block_on(watch())).map(drop)
}

async fn watch() {
    let Ok(mut ends) = Ends::new() else {
        tracing::warn!("no second SIGTERM will end a process that is stuck: signals cannot be watched");
        return;
    };
    ends.next().await;
    let why = match tokio::time::timeout(PATIENCE, ends.next()).await {
        Err(_) if !HEARD.load(Ordering::Relaxed) => "Lua code has not paused for 3 s since SIGTERM",
        Err(_) => {
            ends.next().await;
            "a second signal"
        }
        Ok(_) => "a second signal",
    };
    tracing::error!("{why}: the process ends at once, the next start recovers its data");
    std::process::exit(CODE);
}
