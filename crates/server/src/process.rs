//! The system's numbers about this process, for metrics: read from `/proc` by the thread that wants them, never by the loop.

use std::fs;

use lycosa_metrics::Process;

/// The numbers at this moment. What cannot be read is 0.
pub(crate) fn measure() -> Process {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program may have blanks; the fields behind it have numbers from 3 on.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
    let page = rustix::param::page_size() as u64;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    Process {
        cpu_seconds: (field(14) + field(15)) as f64 / ticks,
        resident_bytes: field(24) * page,
        virtual_bytes: field(23),
        open_files: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
        max_files: limit.current.unwrap_or(u64::MAX),
        start_time: boot_time().unwrap_or(0) as f64 + field(22) as f64 / ticks,
        http_connections: None,
    }
}

/// When the system was started, in seconds since the epoch.
fn boot_time() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_process_is_measured() {
        let process = super::measure();
        assert!(process.resident_bytes > 0 && process.virtual_bytes > process.resident_bytes, "{process:?}");
        assert!(process.open_files > 2 && process.max_files >= process.open_files, "{process:?}");
        assert!(process.start_time > 1.0e9, "{process:?}");
    }
}
