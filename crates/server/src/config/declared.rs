//! Users, tubes and expiration tasks that the configuration file declares (`[[user]]`, `[[tube]]`, `[[expiration]]`).

use std::collections::BTreeSet;

use lycosa_queue::driver::{self, BUILT_IN};
use lycosa_tuple::value::Value;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::text::{nearest, toml_text};

/// A user that exists whenever the server runs. Its password and roles are set at each start and SIGHUP; rights that were
/// granted to it by other means stays.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredUser {
    /// The name to authenticate with. `guest` and `admin` exist already and may be given roles or a password.
    pub name: String,
    /// The password; absent: the user keeps the one it has, a new user cannot authenticate.
    pub password: Option<String>,
    /// Roles to grant, for example `super`.
    #[serde(default)]
    pub roles: Vec<String>,
    /// Tubes that the user may use (as `queue.tube.NAME:grant(user, {call = true})`); `"*"` stands for every tube and
    /// the right to create and drop tubes, and for nothing else.
    #[serde(default)]
    pub tubes: Vec<String>,
}

/// A tube that is created at start and at SIGHUP unless it exists.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct DeclaredTube {
    /// Its name.
    pub name: String,
    /// Its type: `fifo`, `fifottl`, `limfifottl`, `utube` or `utubettl`.
    #[serde(rename = "type", default = "default_type")]
    pub kind: String,
    /// Options of `queue.create_tube`: `ttl`, `ttr`, `pri`, `capacity`, `temporary`, `storage_mode` …
    #[serde(flatten)]
    pub options: toml::Table,
}

/// A field, index or space: by its number or its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum NumberOrName {
    /// Its number.
    Number(u32),
    /// Its name.
    Name(String),
}

/// An expiration task that runs whenever the server does. A task that exists and is declared otherwise is changed; one
/// that is not declared any more goes on until a client stops it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredExpiration {
    /// Its name.
    pub name: String,
    /// The name of its space or tube. The task begins when the space exists.
    pub space: String,
    /// The field with the deadline: its number from 1, or its name.
    pub field: NumberOrName,
    /// The field's unit: `s`, `ms` or `us`.
    pub unit: Option<String>,
    /// The index to walk.
    pub index: Option<NumberOrName>,
    /// The unique index to delete by.
    pub delete_by: Option<NumberOrName>,
    /// Tuples that one transaction looks at.
    pub scan_size: Option<u32>,
    /// Seconds of a pass over an index that is not ordered by deadline.
    pub scan_time: Option<u64>,
    /// Tuples that a slice may look at.
    pub budget_rows: Option<u32>,
    /// Microseconds that a slice may take.
    pub budget_us: Option<u32>,
    /// Percent of the loop's time while the task is behind.
    pub share: Option<u32>,
    /// Seconds of lag from which on the log warns.
    pub lag_limit: Option<f64>,
    /// The tube that expired tuples are put into.
    pub archive_tube: Option<String>,
    /// The space that expired tuples are put into.
    pub archive_space: Option<NumberOrName>,
}

impl DeclaredExpiration {
    /// The options of `expiration.start`.
    pub fn options(&self) -> Value {
        let mut options = toml::Table::try_from(self).expect("its members are numbers and texts");
        options.retain(|name, _| !["name", "space"].contains(&name));
        values(&options)
    }
}

/// Options as a map. All values but numbers and flags are texts: the file was checked when it was read.
fn values(options: &toml::Table) -> Value {
    let value = |value: &toml::Value| match value {
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Value::Double(*number),
        toml::Value::Boolean(flag) => Value::from(*flag),
        other => Value::from(other.as_str().unwrap_or_default()),
    };
    Value::Map(options.iter().map(|(name, option)| (name.as_str().into(), value(option))).collect())
}

fn default_type() -> String {
    "fifottl".to_owned()
}

impl DeclaredTube {
    /// The options of `queue.create_tube`.
    pub fn values(&self) -> Value {
        values(&self.options)
    }

    /// Refuses what `create_tube` would refuse or ignore, and makes seconds of times such as `1h30m`.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let Self { name, kind, options } = self;
        if name.contains(['.', ':']) {
            return Err(format!(
                "[[tube]] {name}: with '.' or ':' in its name no client can reach it; use letters, digits, '-' and '_'"
            ));
        }
        // Types of programs are not there yet when the file is read.
        if !BUILT_IN.contains(&kind.as_str()) {
            let known = BUILT_IN.map(str::to_owned);
            let nearest =
                nearest(kind, known.clone().into_iter()).map(|near| format!("; did you mean {near}?"));
            let advice = nearest.unwrap_or_else(|| format!(": one of {}", known.join(", ")));
            return Err(format!("[[tube]] {name}: there is no type '{kind}'{advice}"));
        }
        for (option, value) in options.iter_mut() {
            match driver::heeds(kind, option) {
                None => {
                    let known = driver::OPTIONS.iter().copied().chain(["name", "type"]);
                    let nearest = nearest(option, known.map(str::to_owned));
                    let advice = nearest.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
                    return Err(format!("[[tube]] {name}: there is no option {option}{advice}"));
                }
                Some(false) => {
                    return Err(format!("[[tube]] {name}: {option} means nothing to a tube of type {kind}"));
                }
                Some(true) => {}
            }
            let expected = match option.as_str() {
                "ttl" | "ttr" => match toml_text(value).parse::<f64>().ok().or_else(|| seconds(value)) {
                    Some(span) if span > 0.0 && span.is_finite() => {
                        let whole = (span.fract() == 0.0 && span < 1e15).then_some(span as i64);
                        *value = whole.map_or(toml::Value::Float(span), toml::Value::Integer);
                        continue;
                    }
                    _ => "a time, more than 0, such as 90, \"90s\" or \"1h30m\"",
                },
                "pri" | "capacity" => match value.as_integer() {
                    Some(0..) => continue,
                    _ => "a whole number, 0 or more",
                },
                "temporary" | "if_not_exists" if value.is_bool() => continue,
                "temporary" | "if_not_exists" => "true or false",
                "storage_mode" if matches!(value.as_str(), Some("default" | "ready_buffer")) => continue,
                "storage_mode" => "\"default\" or \"ready_buffer\"",
                _ if matches!(value.as_str(), Some("memtx" | "vinyl")) => continue,
                _ => "\"memtx\"",
            };
            return Err(format!("[[tube]] {name}: {option} = {value} is not valid: expected {expected}"));
        }
        Ok(())
    }
}

/// A time with units, in seconds.
fn seconds(value: &toml::Value) -> Option<f64> {
    let span = <std::time::Duration as super::SettingValue>::parse(value.as_str()?)?;
    Some(span.as_secs_f64())
}

/// Reads a list whose items have names. No name is declared twice.
pub(super) fn list<T: DeserializeOwned>(
    what: &str,
    value: toml::Value,
    name: impl Fn(&T) -> &str,
) -> Result<Vec<T>, String> {
    if !value.is_array() {
        return Err(format!("{what} is written with double brackets: [[{what}]]"));
    }
    let list: Vec<T> = value.try_into().map_err(|error| format!("[[{what}]]: {error}"))?;
    let mut seen = BTreeSet::new();
    for name in list.iter().map(name) {
        if name.is_empty() {
            return Err(format!("[[{what}]]: a name is empty"));
        }
        if !seen.insert(name) {
            return Err(format!("[[{what}]]: '{name}' is declared twice"));
        }
    }
    Ok(list)
}

/// Everything that the file declares.
#[derive(Debug, Clone, Default)]
pub struct Declared {
    /// Created or updated at start.
    pub users: Vec<DeclaredUser>,
    /// Created at start if they do not exist.
    pub tubes: Vec<DeclaredTube>,
    /// Begun at start, changed at SIGHUP.
    pub expirations: Vec<DeclaredExpiration>,
}
