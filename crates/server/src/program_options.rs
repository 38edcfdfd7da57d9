//! The options of `box.cfg`: their effect on a configuration, and which of them may change while a program runs.
//!
//! Lua has checked their names and types; here are the values. Errors are the texts that a program sees. Absent: the
//! options of replication ([`crate::replication::options`]), and the socket that `listen` binds ([`crate::program_listen`]).

use std::path::PathBuf;
use std::time::Duration;

use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::config::{Addresses, ByteSize, Config, Flags, SettingValue, WalMode};
use crate::program_listen::Place;
use crate::replication::{self, options::number_of};

/// The configuration of a program before its first `box.cfg`. Without `listen` no client can connect; without a folder
/// the data are in the working directory, as in Tarantool.
pub(crate) fn config_of_programs() -> Result<Config, String> {
    let none = std::iter::empty::<(String, String)>();
    let mut config = Config::load(None, none, &Flags::default()).map_err(|error| error.to_string())?;
    config.listen = Addresses(Vec::new());
    config.data_dir = PathBuf::from(".");
    // A program cannot be begun anew in the middle.
    config.replication_rejoin = false;
    // A program that never asks for the queue has its first space with the first number, as in Tarantool.
    config.queue_on_demand = true;
    config.may_begin_read_only = false;
    Ok(config)
}

/// Changes a configuration as the options of `box.cfg` ask for.
pub(crate) fn set_options(config: &mut Config, options: &[(String, Value)]) -> Result<(), String> {
    let text_of = |value: &Value| match value {
        Value::Str(text) => String::from_utf8_lossy(text).into_owned(),
        other => other.to_string(),
    };
    let has = |wanted: &str| options.iter().any(|(name, _)| name == wanted);
    for (name, value) in options {
        let text = text_of(value);
        let wrong = || format!("Incorrect value for option '{name}': {text:?} is not possible here");
        match name.as_str() {
            "wal_dir" => config.data_dir = PathBuf::from(text),
            // One folder holds everything; that of the journal counts.
            "memtx_dir" if !has("wal_dir") => config.data_dir = PathBuf::from(text),
            "memtx_dir" | "work_dir" | "log" => {}
            // The program binds it; here it says which of the masters is this instance.
            "listen" => {
                config.listen.0 = match Place::parse(&text) {
                    Some(Place::Tcp(address)) => vec![address],
                    _ => Vec::new(),
                }
            }
            "memtx_memory" => config.memory_limit = ByteSize(whole(value).ok_or_else(wrong)?),
            "memtx_max_tuple_size" => config.max_tuple_size = ByteSize(whole(value).ok_or_else(wrong)?),
            "wal_max_size" => config.wal_max_size = ByteSize(whole(value).ok_or_else(wrong)?),
            "wal_mode" => config.wal_mode = WalMode::parse(&text).ok_or_else(wrong)?,
            "instance_uuid" => config.wanted.instance = Some(uuid_of(name, &text)?),
            "replicaset_uuid" => config.wanted.cluster = Some(uuid_of(name, &text)?),
            "read_only" => config.read_only = value.as_bool().ok_or_else(wrong)?,
            "force_recovery" => config.force_recovery = value.as_bool().ok_or_else(wrong)?,
            "checkpoint_interval" => {
                // 0 for none, as a negative number in Tarantool.
                let seconds = number_of(value).map(|seconds| if seconds < 0.0 { 0.0 } else { seconds });
                let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                config.checkpoint_interval = span.ok_or_else(wrong)?;
            }
            "checkpoint_wal_threshold" => {
                config.checkpoint_wal_threshold = ByteSize(number_of(value).ok_or_else(wrong)? as u64);
            }
            "checkpoint_count" => config.checkpoint_count = whole(value).ok_or_else(wrong)?,
            name => drop(replication::options::set(config, name, value)?),
        }
    }
    Ok(())
}

/// A UUID as Tarantool reads it: 36 characters.
fn uuid_of(name: &str, text: &str) -> Result<Uuid, String> {
    const LENGTH: usize = 36;
    Some(text)
        .filter(|text| text.len() == LENGTH)
        .and_then(|text| Uuid::parse_str(text).ok())
        .ok_or_else(|| format!("Incorrect value for option '{name}': {text}"))
}

/// Refuses folders that do not exist: a wrong name would begin an empty instance beside the data.
pub(crate) fn check_folders(options: &[(String, Value)]) -> Result<(), String> {
    for name in ["memtx_dir", "wal_dir"] {
        let Some(folder) = text_option(options, name).filter(|folder| !folder.is_empty()) else { continue };
        std::fs::read_dir(&folder).map_err(|error| {
            format!("Incorrect value for option '{name}': error reading directory '{folder}' ({error}); create it first")
        })?;
    }
    Ok(())
}

/// Options that may change while the program runs.
pub(crate) const CHANGEABLE: [&str; 6] = [
    "listen",
    "memtx_memory",
    "memtx_max_tuple_size",
    "checkpoint_interval",
    "checkpoint_count",
    "checkpoint_wal_threshold",
];

/// Options that may be set at any time and mean nothing here.
pub(crate) fn changes_nothing(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "log_level",
        "log_format",
        "too_long_threshold",
        "io_collect_interval",
        "readahead",
        "snap_io_rate_limit",
        "worker_pool_threads",
        "custom_proc_title",
        "sql_cache_size",
        "wal_dir_rescan_delay",
        // It concerns starts.
        "force_recovery",
    ];
    NAMES.contains(&name)
        || name == "net_msg_max"
        || name.starts_with("feedback_")
        // There are no synchronous spaces; `box.cfg` has checked the value.
        || name.starts_with("replication_synchro_")
        || name.starts_with("vinyl_")
}

/// `memtx_memory` of a program that says nothing.
const DEFAULT_MEMORY: f64 = 268_435_456.0;

/// Refuses a value that an option cannot take while the program runs.
pub(crate) fn check_change(
    name: &str,
    value: &Value,
    former: Option<&(String, Value)>,
) -> Result<(), String> {
    let number = number_of(value).unwrap_or_default();
    let wrong = |reason: &str| Err(format!("Incorrect value for option '{name}': {reason}"));
    match name {
        "memtx_memory"
            if number < former.and_then(|(_, former)| number_of(former)).unwrap_or(DEFAULT_MEMORY) =>
        {
            wrong("cannot decrease memory size at runtime")
        }
        "checkpoint_count" if number < 1.0 => wrong("the value must not be less than one"),
        _ => Ok(()),
    }
}

/// A size or a count. Lua has one type of numbers, and `0.1 * 1024 ^ 3` is a size there: the fraction is cut off.
fn whole(value: &Value) -> Option<u64> {
    let number = number_of(value).filter(|number| number.is_finite() && *number >= 0.0)?;
    value.as_u64().or(Some(number as u64))
}

pub(crate) fn text_option(options: &[(String, Value)], wanted: &str) -> Option<String> {
    let (_, value) = options.iter().find(|(name, _)| name == wanted)?;
    match value {
        Value::Str(text) => Some(String::from_utf8_lossy(text).into_owned()),
        other => other.as_u64().map(|number| number.to_string()),
    }
}

/// Where the options ask to listen.
pub(crate) fn place_of(options: &[(String, Value)]) -> Result<Option<Place>, String> {
    let Some(text) = text_option(options, "listen").filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = "Incorrect value for option 'listen': expected host:service or /unix.socket";
    Place::parse(&text).map(Some).ok_or_else(|| wrong.to_owned())
}

/// As in Tarantool the process works in `work_dir`, so that relative paths of a program are in there.
pub(crate) fn enter_work_dir(options: &[(String, Value)]) -> Result<(), String> {
    let Some(folder) = text_option(options, "work_dir") else { return Ok(()) };
    std::env::set_current_dir(&folder)
        .map_err(|error| format!("Incorrect value for option 'work_dir': can't chdir to {folder:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{config_of_programs, set_options};
    use lycosa_tuple::value::Value;

    #[test]
    fn a_size_may_have_a_fraction_and_none_may_be_negative() {
        let mut config = config_of_programs().expect("defaults");
        let memory = |number: f64| [("memtx_memory".to_owned(), Value::Double(number))];
        set_options(&mut config, &memory(0.1 * 1024.0 * 1024.0 * 1024.0)).expect("a tenth of a GiB");
        assert_eq!(config.memory_limit.0, 107_374_182);
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            let message = set_options(&mut config, &memory(wrong)).expect_err("no size");
            assert!(message.contains("'memtx_memory'") && message.contains(&wrong.to_string()), "{message}");
        }
        assert_eq!(config.memory_limit.0, 107_374_182);
    }
}
