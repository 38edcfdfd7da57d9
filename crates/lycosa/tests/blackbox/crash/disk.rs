//! A disk that fails under the running process: `strace` lets one system call of the server's threads fail, at a random
//! one of their calls, once or from then on.
//!
//! When the journal is hit: every request that was sent is answered, if not by what it asked for, then by the error that
//! says so; PING and `lycosa stats` answer; reads and writes are refused. When a snapshot is hit, or the removal of an
//! old file, no client notices. Either way the process is killed, started again on a sound disk, and held against the
//! workers' account: nothing acknowledged is lost, nothing is owned twice.
//!
//! A journal that finds no space for its reserve goes on without one, so a refusal of that write stops nothing.
//!
//! `strace` counts calls for each thread separately. A call that it lets fail is not made, which is how a full disk or a
//! removed one behaves; a disk that says yes and keeps nothing is the simulator's (`crates/sim`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use libtest_mimic::Completion;

use super::ledger::Ledger;
use super::{BUSY, Dice, REPLY_LIMIT, Tube, WAL_IO, WORKERS, load, open, server_with, verify};
use crate::connection::{self, kind};
use crate::server::Server;
use crate::value::Value;

/// Operations of the load within which the fault comes, or does not come in this round.
const LOAD: u64 = 3_000;

/// Something that a disk can refuse.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    /// System calls, as `strace` names them.
    calls: &'static str,
    error: &'static str,
    /// It is one of the first N calls of a thread that fails.
    among: u64,
    /// Whether it stops a journal that meets it.
    is_fatal: bool,
}

const REFUSALS: [Refusal; 7] = [
    Refusal { calls: "fdatasync", error: "EIO", among: 40, is_fatal: true },
    Refusal { calls: "pwrite64", error: "ENOSPC", among: 50, is_fatal: true },
    Refusal { calls: "fsync", error: "EIO", among: 4, is_fatal: true },
    Refusal { calls: "pwrite64", error: "EIO", among: 50, is_fatal: true },
    Refusal { calls: "/^rename", error: "EIO", among: 4, is_fatal: true },
    Refusal { calls: "openat", error: "EMFILE", among: 4, is_fatal: true },
    Refusal { calls: "/^unlink", error: "EIO", among: 3, is_fatal: false },
];

/// How a write of a reserve begins, as `strace` shows it: the header alone, not one that ends a batch.
const RESERVE: &str = r#", "\325\272\v\253\317"#;

/// Whether there is a program `strace`.
pub(crate) fn strace_is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("strace").is_file())
}

/// Whether a process may be traced that is no child of the tracer.
pub(crate) fn ptrace_is_permitted() -> Result<bool, String> {
    let failed = |error| format!("cannot try strace: {error}");
    let mut sleeper = Command::new("sleep").arg("60").spawn().map_err(failed)?;
    let watcher = Command::new("strace")
        .args(["-f", "-qq", "-Y", "-e", "trace=none", "-p", &sleeper.id().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let is_traced = watcher.map(|mut watcher| {
        let is_traced = wait_traced(sleeper.id(), &mut watcher);
        end(&mut watcher);
        is_traced
    });
    end(&mut sleeper);
    is_traced.map_err(failed)
}

/// Waits until all threads of a process are traced. False if `watcher` ends before, or it takes too long.
pub(crate) fn wait_traced(pid: u32, watcher: &mut Child) -> bool {
    let deadline = Instant::now() + REPLY_LIMIT;
    while Instant::now() < deadline {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut statuses = threads.map(|thread| fs::read_to_string(thread.path().join("status")));
        if statuses.all(|status| status.is_ok_and(|status| !status.contains("TracerPid:\t0\n"))) {
            return true;
        }
        if !matches!(watcher.try_wait(), Ok(None)) {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

fn end(child: &mut Child) {
    // It may have ended already, as wanted.
    let _ = child.kill();
    let _ = child.wait();
}

/// An attached `strace`.
struct Saboteur {
    child: Child,
    report: PathBuf,
}

impl Saboteur {
    fn attach(server: &Server, folder: &Path, refusal: Refusal, dice: &mut Dice) -> Result<Self, String> {
        let pid = server.pid().ok_or("the server is stopped")?;
        let report = folder.join("strace");
        let Refusal { calls, error, among, .. } = refusal;
        let lasting = if dice.chance(50) { "+" } else { "" };
        let when = 1 + dice.below(among);
        let mut child = Command::new("strace")
            .args(["-f", "-qq", "-Y", "-o"])
            .arg(&report)
            .args(["-e", &format!("trace={calls}"), "-e", "signal=none"])
            .args(["-e", &format!("inject={calls}:error={error}:when={when}{lasting}")])
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start strace: {error}"))?;
        if !wait_traced(pid, &mut child) {
            end(&mut child);
            return Err("strace cannot be attached".to_owned());
        }
        Ok(Self { child, report })
    }

    /// Names of the threads whose calls have failed.
    fn victims(&self) -> Vec<String> {
        let report = fs::read_to_string(&self.report).unwrap_or_default();
        // The reserved part begins with a header that no block has, and may be refused for want of space.
        let is_tolerated = |line: &&str| line.contains("ENOSPC") && line.contains(RESERVE);
        let injected = report.lines().filter(|line| line.contains("(INJECTED)") && !is_tolerated(line));
        let name = |line: &str| Some(line.split_once('<')?.1.split_once('>')?.0.to_owned());
        injected.map(|line| name(line).unwrap_or_else(|| line.to_owned())).collect()
    }
}

impl Saboteur {
    /// Whose calls have failed, and whether the server has: it does exactly if the journal met what stops it, though a
    /// fault that happens just now shows in one before the other.
    fn outcome(&self, server: &Server, refusal: Refusal) -> Result<(Vec<String>, bool), String> {
        let deadline = Instant::now() + REPLY_LIMIT;
        loop {
            let has_failed = has_failed(server)?;
            let victims = self.victims();
            if has_failed == (is_journal(&victims) && refusal.is_fatal) {
                return Ok((victims, has_failed));
            }
            if Instant::now() > deadline {
                return Err(format!("of {victims:?} calls have failed; the server has: {has_failed}"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether the journal is among them.
fn is_journal(victims: &[String]) -> bool {
    victims.iter().any(|name| name == "journal")
}

impl Drop for Saboteur {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// What came of one round.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    journal: u64,
    others: u64,
}

/// Lets the disk of a server fail `faults` times. Ignored where processes cannot be traced.
pub(super) fn torture(tube: Tube, faults: u64, dice: &mut Dice) -> Result<Completion, String> {
    if !strace_is_installed() {
        return Ok(Completion::ignored_with("strace is not installed"));
    }
    if !ptrace_is_permitted()? {
        return Ok(Completion::ignored_with("ptrace is not permitted here"));
    }
    let mut server = server_with(tube, &BUSY)?;
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let mut ledger = Ledger::default();
    ledger.may_refuse = true;
    let ledger = Arc::new(Mutex::new(ledger));
    let mut tally = Tally::default();
    let first = dice.below(REFUSALS.len() as u64) as usize;
    while tally.journal + tally.others < faults {
        if tally.kills > 3 * faults + 6 {
            return Err(format!("faults do not reach the server: {tally:?}"));
        }
        tally.kills += 1;
        let refusal = REFUSALS[(first + tally.kills as usize) % REFUSALS.len()];
        let round = tally.kills as u32;
        let failed = |reason: String| format!("round {round}, {refusal:?}: {reason}");
        let is_hit =
            load_and_fail(&mut server, tube, &ledger, round, refusal, &folder, dice).map_err(failed)?;
        tally.journal += u64::from(is_hit == Some(true));
        tally.others += u64::from(is_hit == Some(false));
        server.launch().map_err(failed)?;
        verify(&server, tube, &ledger).map_err(failed)?;
    }
    let ledger = ledger.lock().expect("no worker panicked");
    let Tally { kills, journal, others } = tally;
    println!(
        "    {} {}: the journal failed {journal} times, something else {others} times, {kills} kills, {} requests refused, {}",
        tube.kind,
        tube.options,
        ledger.refused,
        ledger.summary()
    );
    Ok(Completion::Completed)
}

/// Runs the load until the disk fails, and ends the server. Whether it was the journal's; `None` if nothing failed.
fn load_and_fail(
    server: &mut Server,
    tube: Tube,
    ledger: &Arc<Mutex<Ledger>>,
    round: u32,
    refusal: Refusal,
    folder: &TempDir,
    dice: &mut Dice,
) -> Result<Option<bool>, String> {
    let saboteur = Saboteur::attach(server, folder.path(), refusal, dice)?;
    let workers = load(server, tube, ledger, round, dice)?;
    let acknowledged = || ledger.lock().expect("no worker panicked").acknowledged();
    let enough = acknowledged() + LOAD;
    while saboteur.victims().is_empty() && acknowledged() < enough {
        if workers.iter().all(JoinHandle::is_finished) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    // What else the disk refuses, and what the clients make of it.
    thread::sleep(Duration::from_millis(100 + dice.below(300)));
    server.check_alive()?;
    let (victims, has_failed) = saboteur.outcome(server, refusal)?;
    if has_failed {
        // Each ends when it is refused.
        let deadline = Instant::now() + REPLY_LIMIT;
        while !workers.iter().all(JoinHandle::is_finished) {
            if Instant::now() > deadline {
                return Err("requests that were under way are not answered".to_owned());
            }
            thread::sleep(Duration::from_millis(5));
        }
        check_failed(server)?;
    } else if workers.iter().filter(|worker| worker.is_finished()).count() == WORKERS {
        return Err("nobody works, although the journal has not failed".to_owned());
    }
    server.kill();
    drop(saboteur);
    super::join(workers, ledger)?;
    Ok(if victims.is_empty() { None } else { Some(is_journal(&victims)) })
}

/// Whether the server says that its journal has failed.
fn has_failed(server: &Server) -> Result<bool, String> {
    let peek = connection::call("queue.statistics", vec![Value::str("t")]);
    let reply = open(server)?.ask(kind::CALL, &peek, REPLY_LIMIT)?;
    match reply.error {
        0 => Ok(false),
        WAL_IO => Ok(true),
        _ => Err(reply.describe()),
    }
}

/// A server whose journal has failed shows no data and takes none, and says so to every client.
fn check_failed(server: &Server) -> Result<(), String> {
    let mut connection = open(server)?;
    let ping = connection.ask(kind::PING, &connection::body([]), REPLY_LIMIT)?;
    if ping.error != 0 {
        return Err(format!("PING is answered {}", ping.describe()));
    }
    let put = connection::call("queue.tube.t:put", vec![Value::str("too late")]);
    let take = connection::call("queue.tube.t:take", vec![Value::Int(0)]);
    let peek = connection::call("queue.tube.t:peek", vec![Value::Int(0)]);
    for request in [put, take, peek] {
        let reply = connection.ask(kind::CALL, &request, REPLY_LIMIT)?;
        if reply.error != WAL_IO || !reply.message().starts_with("Failed to write to disk") {
            return Err(format!("{request} is answered {}", reply.describe()));
        }
    }
    let stats = Command::new(env!("CARGO_BIN_EXE_lycosa"))
        .args(["stats", "--json", "--address", &server.address().to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("lycosa stats: {error}"))?;
    let said = String::from_utf8_lossy(&stats.stdout);
    if !said.contains("\"failed\"") {
        let complaint = String::from_utf8_lossy(&stats.stderr);
        return Err(format!("`lycosa stats` does not say that the journal has failed: {said} {complaint}"));
    }
    Ok(())
}
