//! Least and greatest values of numeric settings: a value beyond them cannot work, or is a slip.

use std::time::Duration;

use lycosa_engine::group::FEATURE_LEVEL;
use tracing_subscriber::EnvFilter;

use super::{ByteSize, SettingValue};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DAY: u64 = 86_400;
const YEAR: u64 = 365 * DAY;
/// Members of a replica set have the numbers 1 to 31.
const MAX_REPLICAS: u64 = 31;

/// The unit of a bounded number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Seconds,
    Things,
}

use Unit::{Bytes, Seconds, Things};

/// Key, unit, least and greatest value.
const BOUNDS: &[(&str, Unit, f64, u64)] = &[
    ("http.max_connections", Things, 1.0, 1_000_000),
    ("http.max_connections_per_address", Things, 0.0, 1_000_000),
    ("http.max_header", Bytes, 8.0 * KIB as f64, MIB),
    ("http.max_body", Bytes, KIB as f64, GIB),
    ("http.timeout", Seconds, 0.1, DAY),
    ("http.idempotency_window", Seconds, 1.0, YEAR),
    ("metrics.tubes", Things, 0.0, 100_000),
    ("graphite.period", Seconds, 0.1, DAY),
    ("wal_max_size", Bytes, KIB as f64, 1024 * GIB),
    ("checkpoint_interval", Seconds, 0.1, YEAR),
    ("checkpoint_wal_threshold", Bytes, KIB as f64, 1024 * 1024 * GIB),
    ("checkpoint_count", Things, 1.0, 1000),
    ("disk_reserve", Bytes, 0.0, 1024 * GIB),
    ("memory_limit", Bytes, MIB as f64, 1024 * 1024 * GIB),
    ("max_tuple_size", Bytes, 256.0, GIB),
    ("replication_timeout", Seconds, 0.01, DAY),
    ("replication_connect_timeout", Seconds, 0.01, YEAR),
    ("replication_sync_lag", Seconds, 0.0, YEAR),
    ("replication_sync_timeout", Seconds, 0.0, YEAR),
    ("replication_window", Bytes, 0.0, 1024 * GIB),
    ("replication_journal_limit", Bytes, 0.0, 1024 * 1024 * GIB),
    ("replication_connect_quorum", Things, 0.0, MAX_REPLICAS),
    ("replicas_before_reply", Things, 0.0, MAX_REPLICAS),
    ("cluster.election_timeout", Seconds, 0.05, 60),
    ("cluster.level", Things, 0.0, FEATURE_LEVEL as u64),
    ("max_connections", Things, 1.0, 1_000_000),
    ("max_frame_size", Bytes, KIB as f64, 2 * GIB),
    ("max_in_flight", Things, 1.0, 1_000_000),
    ("max_waiting", Things, 0.0, 10_000_000),
    ("max_output", Bytes, KIB as f64, 1024 * GIB),
    ("max_output_total", Bytes, MIB as f64, 1024 * 1024 * GIB),
    ("max_input_total", Bytes, MIB as f64, 1024 * 1024 * GIB),
    ("drain_timeout", Seconds, 0.0, DAY),
    ("lua_memory", Bytes, MIB as f64, 1024 * GIB),
    ("lua_time_budget", Seconds, 0.001, YEAR),
    ("hook_time_budget", Seconds, 0.001, YEAR),
    ("queue.ttr", Seconds, 0.0, 100 * YEAR),
];

/// Settings whose 0 stands for "never" or "no limit", below the least value.
const ZERO_TOO: [&str; 3] = ["checkpoint_interval", "lua_time_budget", "hook_time_budget"];

/// The levels of the log.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// What would be right, if a valid text of the setting is out of its bounds.
pub(super) fn fault(key: &str, text: &str) -> Option<String> {
    if key == "log_level" {
        return fault_of_filter(text);
    }
    let &(_, unit, ..) = BOUNDS.iter().find(|(bounded, ..)| *bounded == key)?;
    let value = match unit {
        Bytes => ByteSize::parse(text)?.0 as f64,
        Seconds => Duration::parse(text)?.as_secs_f64(),
        // A quorum may be `all`.
        Things => u64::parse(text)? as f64,
    };
    fault_of_number(key, value)
}

/// What would be right, if a number that a program gives is out of the bounds of the setting.
pub(crate) fn fault_of_number(key: &str, value: f64) -> Option<String> {
    let &(_, unit, least, greatest) = BOUNDS.iter().find(|(bounded, ..)| *bounded == key)?;
    let zero_too = ZERO_TOO.contains(&key);
    if (least..=greatest as f64).contains(&value) || (zero_too && value == 0.0) {
        return None;
    }
    let range = range(key)?;
    let range = match unit {
        Bytes => format!("a size from {range}"),
        Seconds => format!("a time from {range} seconds"),
        Things => format!("a whole number from {range}"),
    };
    Some(if zero_too { format!("0, or {range}") } else { range })
}

/// `LEAST to GREATEST` of a numeric setting.
pub(super) fn range(key: &str) -> Option<String> {
    let &(_, unit, least, greatest) = BOUNDS.iter().find(|(bounded, ..)| *bounded == key)?;
    Some(match unit {
        Bytes => format!("{} to {}", ByteSize(least as u64), ByteSize(greatest)),
        Seconds | Things => format!("{least} to {greatest}"),
    })
}

/// A word that is no level would be the name of a module, and the log would be silent about all others.
fn fault_of_filter(text: &str) -> Option<String> {
    let is_level = |word: &str| LEVELS.contains(&word.to_ascii_lowercase().as_str());
    let mut parts = text.split(',').map(str::trim);
    let is_sound =
        parts.all(|part| part.contains(['=', '[']) || is_level(part)) && EnvFilter::try_new(text).is_ok();
    (!is_sound).then(|| format!("one of {}, or a filter such as info,lycosa_server=debug", LEVELS.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SETTINGS;

    #[test]
    fn every_bounded_setting_exists_and_its_default_is_within_its_bounds() {
        for (key, ..) in BOUNDS {
            let setting = SETTINGS.iter().find(|setting| setting.key == *key).expect(key);
            assert_eq!(fault(key, setting.default), None, "{key}");
        }
    }

    #[test]
    fn every_number_has_bounds() {
        let numbers = [ByteSize::EXPECTED, Duration::EXPECTED, u64::EXPECTED];
        for setting in SETTINGS.iter().filter(|setting| numbers.contains(&setting.expected)) {
            assert!(BOUNDS.iter().any(|(key, ..)| *key == setting.key), "{}", setting.key);
        }
    }

    #[test]
    fn zero_is_a_value_of_its_own_where_it_means_never() {
        assert_eq!(fault("checkpoint_interval", "0"), None);
        let expected = "0, or a time from 0.1 to 31536000 seconds";
        assert_eq!(fault("checkpoint_interval", "0.0000001").as_deref(), Some(expected));
        assert_eq!(fault("replication_connect_quorum", "all"), None);
        assert!(fault("replication_connect_quorum", "99").is_some());
    }

    #[test]
    fn a_level_that_does_not_exist_is_no_filter() {
        for sound in ["info", "WARN", "off", "info,lycosa_server=debug", "lycosa_queue=trace"] {
            assert_eq!(fault("log_level", sound), None, "{sound}");
        }
        for wrong in ["loud", "", "info,loud", "a=b=c", "info,lycosa=loud"] {
            assert!(fault("log_level", wrong).is_some(), "{wrong}");
        }
    }

    #[test]
    fn what_is_too_small_or_too_large_is_refused_with_the_range() {
        assert_eq!(fault("checkpoint_count", "0").as_deref(), Some("a whole number from 1 to 1000"));
        assert_eq!(fault("memory_limit", "10").as_deref(), Some("a size from 1MiB to 1048576GiB"));
        assert_eq!(fault("replication_timeout", "0").as_deref(), Some("a time from 0.01 to 86400 seconds"));
        assert_eq!(fault("queue.ttr", "1e18").as_deref(), Some("a time from 0 to 3153600000 seconds"));
        assert_eq!(fault("listen", "127.0.0.1:1"), None);
    }
}
