//! Users and tubes that the configuration file declares (`[[user]]`, `[[tube]]`).

use serde::Deserialize;

/// A user that exists whenever the server runs. Its password and roles are set at each start; what was granted to it
/// by other means stays.
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
    /// the right to create and drop tubes.
    #[serde(default)]
    pub tubes: Vec<String>,
}

/// A tube that is created at start unless it exists.
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

fn default_type() -> String {
    "fifo".to_owned()
}

#[derive(Deserialize)]
struct List<T> {
    list: Vec<T>,
}

fn list<T: serde::de::DeserializeOwned>(what: &str, value: toml::Value) -> Result<Vec<T>, String> {
    if !value.is_array() {
        return Err(format!("{what} is written with double brackets: [[{what}]]"));
    }
    let mut table = toml::Table::new();
    table.insert("list".to_owned(), value);
    let list: List<T> =
        toml::Value::Table(table).try_into().map_err(|error| format!("[[{what}]]: {error}"))?;
    Ok(list.list)
}

pub(super) fn users(value: toml::Value) -> Result<Vec<DeclaredUser>, String> {
    list("user", value)
}

pub(super) fn tubes(value: toml::Value) -> Result<Vec<DeclaredTube>, String> {
    list("tube", value)
}
