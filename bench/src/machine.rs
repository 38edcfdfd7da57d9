//! The operating system: processor time and memory of a process, cores to run on, folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value as Json, json};

/// Processor time, by where it was spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    pub(crate) user: Duration,
    /// In the kernel, on behalf of the process.
    pub(crate) kernel: Duration,
}

impl ProcessorTime {
    pub(crate) fn total(self) -> Duration {
        self.user + self.kernel
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            kernel: self.kernel.saturating_sub(before.kernel),
        }
    }
}

/// Processor time that all threads of process `pid` have used. Known to a tick, mostly 10 ms.
pub(crate) fn processor_time(pid: Pid) -> Result<ProcessorTime> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let (user, kernel) = ticks_of(&stat).with_context(|| format!("{path} has no times"))?;
    Ok(ProcessorTime { user: time_of(user), kernel: time_of(kernel) })
}

fn time_of(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The same for each name of a thread; those of the same name are added up.
pub(crate) fn thread_times(pid: Pid) -> Result<BTreeMap<String, ProcessorTime>> {
    let path = format!("/proc/{pid}/task");
    let mut times = BTreeMap::<String, ProcessorTime>::new();
    for thread in fs::read_dir(&path).with_context(|| format!("cannot read {path}"))? {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else { continue };
        let (user, kernel) = ticks_of(&stat).with_context(|| format!("{path} has no times"))?;
        let time = times.entry(name_of(&stat).to_owned()).or_default();
        time.user += time_of(user);
        time.kernel += time_of(kernel);
    }
    Ok(times)
}

/// The name in parentheses in a line of `/proc/<pid>/stat`.
fn name_of(stat: &str) -> &str {
    let inner = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
    inner.map_or("", |(name, _)| name)
}

/// utime and stime, fields 14 and 15, of a line of `/proc/<pid>/stat`.
fn ticks_of(stat: &str) -> Option<(u64, u64)> {
    // The second field is the program's name in parentheses and may contain anything.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some((next()?, next()?))
}

/// Processor time that everything on this machine has used since it was started, time that the machine's host used for
/// others included.
pub(crate) fn total_processor_time() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    busy_ticks_of(&stat).map(time_of).context("/proc/stat has no times")
}

/// The sum of all times but `idle` and `iowait` in the first line of `/proc/stat`: user, nice, system, idle, iowait, irq,
/// softirq, steal. The guests' times behind them are part of user and nice.
fn busy_ticks_of(stat: &str) -> Option<u64> {
    let times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let times = times.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
    let (&[user, nice, system, _idle, _iowait], others) = times.split_first_chunk()?;
    Some(user + nice + system + others.iter().sum::<u64>())
}

/// Bytes of process `pid` that are in memory and belong to no file.
pub(crate) fn resident_memory(pid: Pid) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    anonymous_bytes_of(&status).with_context(|| format!("{path} has no RssAnon"))
}

fn anonymous_bytes_of(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// The cores on which the calling thread may run.
pub(crate) fn allowed_cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot ask for the allowed cores")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Confines the calling thread, and the processes that it starts from then on, to these cores.
pub(crate) fn run_on(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on the cores {cores:?}"))
}

/// Whether a sync in `folder` only reaches memory.
pub(crate) fn is_in_memory(folder: &Path) -> Result<bool> {
    const TMPFS: u64 = 0x0102_1994;
    let kind = rustix::fs::statfs(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    Ok(kind.f_type as u64 == TMPFS)
}

/// The machine on which a measurement is made.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
}

impl Machine {
    pub(crate) fn this() -> Result<Self> {
        let processors = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
        let kernel =
            fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot read the kernel's version")?;
        Ok(Self {
            processor: model_of(&processors).unwrap_or("unknown processor").to_owned(),
            cores: processors.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: format!("Linux {}", kernel.trim()),
        })
    }

    pub(crate) fn json(&self) -> Json {
        json!({"processor": self.processor, "cores": self.cores, "kernel": self.kernel})
    }
}

fn model_of(processors: &str) -> Option<&str> {
    let line = processors.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_behind_the_name() {
        let stat = "4242 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 2 0 100 0 0";
        assert_eq!(ticks_of(stat), Some((250, 50)));
        assert_eq!(name_of(stat), "a (b) c");
        assert_eq!(ticks_of("4242 (cut"), None);
        assert_eq!(ticks_of("4242 (cut) S 1 2"), None);
    }

    #[test]
    fn idle_time_is_not_busy() {
        assert_eq!(busy_ticks_of("cpu  1 2 4 1000 1000 8 16 32 5000 5000\ncpu0 1 2\n"), Some(63));
        assert_eq!(busy_ticks_of("cpu0 1 2 4 1000 1000 8 16 32 0 0\n"), None);
        assert_eq!(busy_ticks_of("cpu  1 2\n"), None);
    }

    #[test]
    fn memory_is_in_kilobytes() {
        assert_eq!(anonymous_bytes_of("VmRSS:\t  12 kB\nRssAnon:\t    8 kB\n"), Some(8192));
        assert_eq!(anonymous_bytes_of("VmRSS:\t  12 kB\n"), None);
    }

    #[test]
    fn this_process_is_known() {
        let pid = rustix::process::getpid();
        assert!(processor_time(pid).unwrap().total() <= total_processor_time().unwrap());
        assert!(!thread_times(pid).unwrap().is_empty());
        assert!(resident_memory(pid).unwrap() > 0);
        assert!(!allowed_cores().unwrap().is_empty());
    }
}
