//! The options of replication in a program's `box.cfg`.

use std::time::Duration;

use lycosa_tuple::value::Value;

use crate::config::{self, Config, Quorum, ReplicasMissing, SettingValue, Uris};
use crate::storage;
use crate::turn::Core;

/// The options that [`set`] knows.
const NAMES: [&str; 10] = [
    "replication",
    "replication_timeout",
    "replication_connect_timeout",
    "replication_connect_quorum",
    "replication_sync_lag",
    "replication_sync_timeout",
    "replication_skip_conflict",
    "replication_anon",
    "replicas_before_reply",
    "replicas_missing",
];

/// Whether it is an option of replication.
pub(crate) fn is_one(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Lets a running instance keep to what the configuration says of replies.
pub(crate) fn apply(core: &Core, config: &Config) {
    storage::reconfigure(&mut core.instance.borrow_mut(), config);
    core.end.notify_one();
}

/// The present value of an option, from any source; `None` if it has no value, or is none of these.
pub(crate) fn get(core: &Core, name: &str) -> Option<Value> {
    let config = core.hub.config.borrow();
    let instance = core.instance.borrow();
    Some(match name {
        "read_only" => Value::Bool(instance.is_read_only_configured()),
        "replication_timeout" => Value::Double(config.replication_timeout.as_secs_f64()),
        "replication_connect_timeout" => Value::Double(config.replication_connect_timeout.as_secs_f64()),
        "replication_sync_lag" => Value::Double(config.replication_sync_lag.as_secs_f64()),
        "replication_skip_conflict" => Value::Bool(config.replication_skip_conflict),
        "replication_anon" => Value::Bool(instance.identity().replica_id == 0),
        "replication_connect_quorum" => match config.replication_connect_quorum {
            Quorum::Of(count) => count.into(),
            Quorum::All => return None,
        },
        "replicas_before_reply" => (instance.settings().replicas_before_reply as u64).into(),
        "replicas_missing" => match instance.settings().refuses_without_replicas {
            true => ReplicasMissing::Refuse.name().into(),
            false => ReplicasMissing::Wait.name().into(),
        },
        _ => return None,
    })
}

/// Sets what the option says. False if it is none of replication.
///
/// # Errors
/// The value is not possible.
pub(crate) fn set(config: &mut Config, name: &str, value: &Value) -> Result<bool, String> {
    let wrong = |expected: &str| {
        format!("Incorrect value for option '{name}': should be {expected}, not {}", shown(value))
    };
    let number = number_of(value);
    if let Some(expected) = number.and_then(|number| config::fault_of_number(name, number)) {
        return Err(wrong(&expected));
    }
    let seconds = || {
        let span = number.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        span.ok_or_else(|| wrong("a number of seconds"))
    };
    let flag = || value.as_bool().ok_or_else(|| wrong("true or false"));
    match name {
        "replication" => {
            let texts = match value {
                Value::Array(values) => values.iter().map(text).collect::<Option<Vec<_>>>(),
                Value::Nil => Some(Vec::new()),
                Value::Map(pairs) if pairs.is_empty() => Some(Vec::new()),
                one => text(one).map(|text| vec![text]),
            };
            let uris = texts.and_then(|texts| Uris::parse(&texts.join(",")));
            config.replication =
                uris.ok_or_else(|| wrong("USER:PASSWORD@HOST:PORT, or a table of such addresses"))?;
        }
        "replication_timeout" => config.replication_timeout = seconds()?,
        "replication_connect_timeout" => config.replication_connect_timeout = seconds()?,
        "replication_sync_lag" => config.replication_sync_lag = seconds()?,
        "replication_skip_conflict" => config.replication_skip_conflict = flag()?,
        "replication_anon" => config.replication_anon = flag()?,
        "replication_connect_quorum" => {
            let masters = value.as_u64().ok_or_else(|| wrong("a number of masters"))?;
            config.replication_connect_quorum = Quorum::Of(masters);
        }
        "replication_sync_timeout" => config.replication_sync_timeout = seconds()?,
        "replicas_before_reply" => {
            config.replicas_before_reply = value.as_u64().ok_or_else(|| wrong("a number of replicas"))?;
        }
        "replicas_missing" => {
            let missing = value.as_str().and_then(ReplicasMissing::parse);
            config.replicas_missing = missing.ok_or_else(|| wrong("\"wait\" or \"refuse\""))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A number of Lua.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::Float(number) => Some(f64::from(*number)),
        Value::Int(number) => Some(*number as f64),
        other => other.as_u64().map(|number| number as f64),
    }
}

/// A value as a message shows it. An address may hold a password.
fn shown(value: &Value) -> String {
    match value {
        Value::Str(_) | Value::Array(_) | Value::Map(_)
            if value.as_str().is_none_or(|text| text.contains('@')) =>
        {
            "what was given".to_owned()
        }
        Value::Str(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
        Value::Double(number) => number.to_string(),
        Value::Int(number) => number.to_string(),
        other => other.as_u64().map_or_else(|| format!("{other:?}"), |number| number.to_string()),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Str(text) => String::from_utf8(text.clone()).ok(),
        // A port alone, as a number.
        value => value.as_u64().map(|port| port.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Flags;

    #[test]
    fn options_of_programs() {
        let none = std::iter::empty::<(String, String)>();
        let mut config = Config::load(None, none, &Flags::default()).unwrap();
        let mut set = |name: &str, value: Value| set(&mut config, name, &value);
        let masters = Value::Array(vec!["repl:x@h:1".into(), "repl:x@h:2".into()]);
        assert_eq!(set("replication", masters), Ok(true));
        assert_eq!(set("replication_timeout", Value::Double(0.5)), Ok(true));
        assert_eq!(set("replication_connect_quorum", Value::Uint(0)), Ok(true));
        assert_eq!(set("listen", Value::Uint(1)), Ok(false));
        assert!(set("replication_timeout", "x".into()).unwrap_err().contains("a number of seconds"));
        assert!(set("replication", Value::Array(vec![Value::Nil])).is_err());
        let refused = set("replication_timeout", Value::Uint(0)).unwrap_err();
        assert!(refused.contains("a time from 0.01 to 86400 seconds, not 0"), "{refused}");
        let refused = set("replication_connect_quorum", Value::Uint(32)).unwrap_err();
        assert!(refused.contains("a whole number from 0 to 31, not 32"), "{refused}");
        let secret = set("replication", Value::Str(b"repl:secret@nowhere:x".to_vec())).unwrap_err();
        assert!(!secret.contains("secret"), "{secret}");
        assert_eq!(set("replication_sync_timeout", Value::Uint(5)), Ok(true));
        assert_eq!(set("replicas_before_reply", Value::Uint(1)), Ok(true));
        assert_eq!(set("replicas_missing", "refuse".into()), Ok(true));
        assert!(set("replicas_missing", "never".into()).unwrap_err().contains("\"wait\" or \"refuse\""));
        assert_eq!(config.replication.0.len(), 2);
        assert_eq!(config.replication_timeout, Duration::from_millis(500));
        assert_eq!(super::set(&mut config, "replication", &Value::Array(Vec::new())), Ok(true));
        assert!(config.replication.0.is_empty());
        let mut one = |name: &str| super::set(&mut config, name, &Value::Nil) == Ok(false);
        assert!(NAMES.iter().all(|name| !one(name)) && one("listen"), "NAMES are the options that set knows");
    }
}
