//! Stalls: the tests run while processes of theirs stand still at random, as on a machine that has no processor for them.
//!
//! A verdict that changes then depends on the speed of the machine. A busy machine rarely stops a process for a second, and not where
//! it matters; this command does so all the time. The tests run in a control group of their own. A process that is moved to a second
//! group, which is always frozen, stands still; moved back it goes on. At times the whole first group is frozen, as if the machine
//! itself had been stopped. A process notices nothing but the time, and that a read with a limit of time ends early (EINTR). Signals
//! would not do: some tests stop servers with SIGSTOP.
//!
//! - When the tests end, nothing stays frozen: processes are moved back before a group is removed. A command that is killed leaves
//!   its groups, and the next one does this with them.
//! - One seed draws the same stalls, but not of the same processes: these differ from run to run.
//!
//! Absent: a verdict. That of the tests is the command's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::top;

/// The processes of a group, one number in each line. A number that is written moves a process.
const PROCESSES: &str = "cgroup.procs";

/// How the names of the two groups begin; the number of the command's process follows.
const RUNNING: &str = "lycosa-running-";
const STOPPED: &str = "lycosa-stopped-";

/// How the tests are stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stalls {
    /// Seconds, more than 0. Short stalls are drawn as often as long ones: each from 20 ms up, by its order of magnitude.
    pub(crate) longest: f64,
    /// Seconds at most from one stall to the next.
    pub(crate) pause: f64,
    pub(crate) seed: u32,
}

const SHORTEST: f64 = 0.02;

/// Runs `cargo xtask test` with these arguments, and stops its processes meanwhile.
///
/// # Errors
/// The tests fail; control groups cannot be made, which needs root and the kernel's second version of them.
pub(crate) fn run(stalls: Stalls, arguments: &[String]) -> Result<()> {
    if !(stalls.longest > SHORTEST && stalls.longest < 3600.0 && (0.0..3600.0).contains(&stalls.pause)) {
        bail!("--longest is between {SHORTEST} and 3600 seconds, --pause is less than 3600 seconds");
    }
    let groups = Groups::new(&mount()?)?;
    println!("stalls of up to {} s, seed {}", stalls.longest, stalls.seed);
    let is_over = AtomicBool::new(false);
    let (status, count) = thread::scope(|scope| {
        let stalling = scope.spawn(|| stall(&groups, stalls, &is_over));
        let status = tests(&groups, arguments).status();
        is_over.store(true, Ordering::Release);
        (status, stalling.join().expect("the thread that stalls does not panic"))
    });
    println!("{} stalls of processes, {} of all of them", count.processes, count.all);
    let status = status.context("cannot run the tests")?;
    if !status.success() {
        bail!("the tests failed: {status}");
    }
    Ok(())
}

/// The tests, which move themselves to their group first, so that all their processes are in it.
fn tests(groups: &Groups, arguments: &[String]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(groups.running.join(PROCESSES));
    command.arg(std::env::current_exe().unwrap_or_else(|_| "cargo-xtask".into())).arg("test");
    command.args(arguments).current_dir(top());
    command
}

/// Where the second version of control groups is mounted.
fn mount() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").context("cannot read /proc/mounts")?;
    let place = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind) = (fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(place))
    });
    place.context("no control groups of the second version (cgroup2) are mounted: stalls need their freezer")
}

/// The group of the tests, and the one in which a process stands still.
#[derive(Debug)]
struct Groups {
    above: PathBuf,
    running: PathBuf,
    stopped: PathBuf,
}

impl Groups {
    fn new(mount: &Path) -> Result<Self> {
        for left in fs::read_dir(mount).context("cannot list control groups")?.filter_map(io::Result::ok) {
            let name = left.file_name().to_string_lossy().into_owned();
            if let Some(process) = name.strip_prefix(RUNNING)
                && !Path::new("/proc").join(process).exists()
            {
                drop(Self::of(mount, process));
            }
        }
        let groups = Self::of(mount, &std::process::id().to_string());
        for group in [&groups.running, &groups.stopped] {
            fs::create_dir(group).with_context(|| {
                format!("cannot make the control group {}: stalls need root", group.display())
            })?;
        }
        freeze(&groups.stopped, true).context("cannot freeze a control group")?;
        Ok(groups)
    }

    /// The groups of the command with this process number.
    fn of(mount: &Path, process: &str) -> Self {
        let group = |begin: &str| mount.join(format!("{begin}{process}"));
        Self { above: mount.to_owned(), running: group(RUNNING), stopped: group(STOPPED) }
    }

    fn processes(group: &Path) -> Vec<String> {
        let listed = fs::read_to_string(group.join(PROCESSES)).unwrap_or_default();
        listed.lines().map(str::to_owned).collect()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in [&self.stopped, &self.running] {
            // What cannot be undone here is said by the removal below.
            let _ = freeze(group, false);
            for process in Self::processes(group) {
                let _ = move_to(&self.above, &process);
            }
            match fs::remove_dir(group) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    eprintln!("the control group {} stays: {error}", group.display());
                }
                _ => {}
            }
        }
    }
}

fn freeze(group: &Path, is_frozen: bool) -> io::Result<()> {
    fs::write(group.join("cgroup.freeze"), if is_frozen { "1" } else { "0" })
}

/// Moves a process to a group. One that has ended meanwhile cannot be moved.
fn move_to(group: &Path, process: &str) -> io::Result<()> {
    fs::write(group.join(PROCESSES), process)
}

#[derive(Debug, Default)]
struct Count {
    processes: u64,
    all: u64,
}

/// Stops one to three processes at a time, and all of them one time in four, until `is_over`.
fn stall(groups: &Groups, stalls: Stalls, is_over: &AtomicBool) -> Count {
    let mut random = fastrand::Rng::with_seed(stalls.seed.into());
    let mut count = Count::default();
    while !is_over.load(Ordering::Acquire) {
        let stall = Duration::from_secs_f64(SHORTEST * (stalls.longest / SHORTEST).powf(random.f64()));
        if random.u8(..4) == 0 {
            count.all += u64::from(freeze(&groups.running, true).is_ok());
            thread::sleep(stall);
            let _ = freeze(&groups.running, false);
        } else {
            let mut processes = Groups::processes(&groups.running);
            let mut stopped = Vec::new();
            for _ in 0..processes.len().min(random.usize(1..=3)) {
                let process = processes.swap_remove(random.usize(..processes.len()));
                if move_to(&groups.stopped, &process).is_ok() {
                    stopped.push(process);
                }
            }
            thread::sleep(stall);
            count.processes += stopped.len() as u64;
            for process in stopped {
                let _ = move_to(&groups.running, &process);
            }
        }
        thread::sleep(Duration::from_secs_f64(stalls.pause * random.f64()));
    }
    count
}
