//! The configuration: flags over environment over file over defaults, each value with its origin.
//!
//! Every setting stands once, in the table [`SETTINGS`]: its key in `lycosa.toml`, its flag (`--data-dir`), its
//! variable (`LYCOSA_DATA_DIR`), its default, whether SIGHUP may change it, and one line of help. `lycosa serve
//! --help`, `lycosa config` and `docs/configuration.md` are read off this table.
//!
//! Invariants: an unknown key in the file, an unknown `LYCOSA_*` variable and a value of the wrong form are errors that
//! name the key, where it stands and what would be right; no setting is silently ignored.

mod bounds;
mod declared;
mod text;
mod value;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use declared::list;
use text::toml_text;

pub(crate) use bounds::fault_of_number;
pub use declared::{Declared, DeclaredExpiration, DeclaredTube, DeclaredUser, NumberOrName};
pub use text::nearest;
pub use value::{
    Addresses, Badge, ByteSize, LogFormat, MemberAddress, Names, Quorum, ReplicasMissing, SettingValue, Uris,
    WalMode,
};
pub(crate) use value::{is_address, length};

/// Where a setting's value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Built in.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// The named environment variable.
    Environment(String),
    /// The named flag of the command line.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => write!(f, "default"),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Environment(name) => write!(f, "${name}"),
            Source::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// A row of the table of settings.
#[derive(Debug)]
pub struct Setting {
    /// The key in `lycosa.toml`: `data_dir`, `queue.ttr`.
    pub key: &'static str,
    /// The default as text.
    pub default: &'static str,
    /// Whether SIGHUP applies a new value to the running server.
    pub reloads: bool,
    /// One line of help, with the unit.
    pub help: &'static str,
    expected: &'static str,
    valid: fn(&str) -> bool,
}

impl Setting {
    /// The flag without its dashes: `data-dir`, `queue-ttr`.
    pub fn flag(&self) -> String {
        self.key.replace(['_', '.'], "-")
    }

    /// The range of a number, `LEAST to GREATEST`. A 0 that means "never" may lie below it; the help says so.
    pub fn range(&self) -> Option<String> {
        bounds::range(self.key)
    }

    /// The environment variable: `LYCOSA_DATA_DIR`.
    pub fn variable(&self) -> String {
        format!("LYCOSA_{}", self.key.replace('.', "_").to_uppercase())
    }
}

/// Why a configuration cannot be used. Each error names the value, its place, and a right one.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value does not have the form of its setting.
    #[error("{place}: {key} = \"{text}\" is not valid: expected {expected}")]
    Value {
        /// Flag, variable or file.
        place: Source,
        /// The setting.
        key: String,
        /// The given value.
        text: String,
        /// A right value.
        expected: String,
    },
    /// The key or variable names no setting.
    #[error("{place}: there is no setting {key}{}", nearest.as_ref().map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
    Unknown {
        /// File or variable.
        place: Source,
        /// As written.
        key: String,
        /// The setting with the most similar name.
        nearest: Option<String>,
    },
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The file is not TOML, or a declared tube or user is incomplete.
    #[error("{}: {cause}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        cause: String,
    },
}

/// UUIDs that a program wants; without one a new instance chooses its own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WantedUuids {
    pub(crate) instance: Option<Uuid>,
    pub(crate) cluster: Option<Uuid>,
}

macro_rules! settings {
    ($( $field:ident : $type:ty = $default:literal, $key:literal, $reloads:literal, $help:literal; )*) => {
        /// Every setting, in the order in which they are printed.
        pub static SETTINGS: &[Setting] = &[ $( Setting {
            key: $key,
            default: $default,
            reloads: $reloads,
            help: $help,
            expected: <$type as SettingValue>::EXPECTED,
            valid: |text| <$type as SettingValue>::parse(text).is_some(),
        } ),* ];

        /// The effective configuration.
        #[derive(Debug, Clone)]
        pub struct Config {
            $( #[doc = $help] pub $field: $type, )*
            /// Users, tubes and expiration tasks that the file declares.
            pub declared: Declared,
            /// Whether the queue starts when it is asked for first. Programs set it; it is no setting.
            pub(crate) queue_on_demand: bool,
            /// The UUIDs that a program wants for itself and for its replica set.
            pub(crate) wanted: WantedUuids,
            /// Whether a new instance may begin a replica set though it is read-only.
            pub(crate) may_begin_read_only: bool,
            sources: BTreeMap<&'static str, (String, Source)>,
        }

        impl Config {
            fn from_layers(layers: &Layers) -> Config {
                Config {
                    $( $field: <$type as SettingValue>::parse(layers.text($key))
                        .expect("every layer was checked when it was added"), )*
                    declared: layers.declared.clone(),
                    queue_on_demand: false,
                    wanted: WantedUuids::default(),
                    may_begin_read_only: true,
                    sources: layers.values.clone(),
                }
            }
        }
    };
}

settings! {
    listen: Addresses = "127.0.0.1:3301", "listen", false,
        "Addresses of the binary protocol, HOST:PORT, several separated by commas; nothing for none";
    listen_tls: Addresses = "", "listen_tls", false,
        "Addresses of the binary protocol over TLS, with the certificate tls.certificate";
    tls_certificate: Option<PathBuf> = "", "tls.certificate", true,
        "PEM file with the certificate that listen_tls presents to clients, and replication to masters; SIGHUP reads it again";
    tls_key: Option<PathBuf> = "", "tls.key", true,
        "PEM file with the private key of tls.certificate, readable by the server's account alone";
    tls_client_ca: Option<PathBuf> = "", "tls.client_ca", true,
        "PEM file with authorities: with it listen_tls takes only clients that present a certificate of one of them";
    tls_ca: Option<PathBuf> = "", "tls.ca", true,
        "PEM file with the certificates that are trusted when this server connects to masters at tls:// addresses";
    http_listen: Addresses = "127.0.0.1:8081", "http.listen", false,
        "Addresses of HTTP, several separated by commas; nothing for none. If the default is taken, the server goes on without";
    http_listen_tls: Addresses = "", "http.listen_tls", false,
        "Addresses of HTTP over TLS, with the certificate tls.certificate";
    http_hosts: Names = "", "http.hosts", false,
        "Host names of this server in URLs, separated by commas, besides localhost and addresses; requests for others are refused";
    http_max_connections: u64 = "1024", "http.max_connections", false,
        "HTTP connections at a time; further ones are closed at once";
    http_max_connections_per_address: u64 = "512", "http.max_connections_per_address", false,
        "HTTP connections of one client address at a time; 0 for no bound but http.max_connections";
    http_max_header: ByteSize = "16KiB", "http.max_header", false,
        "Largest head of an HTTP request";
    http_max_body: ByteSize = "8MiB", "http.max_body", false,
        "Largest body of an HTTP request; all bodies together have at most 4 times that";
    http_timeout: Duration = "30", "http.timeout", false,
        "Seconds that the head or the body of an HTTP request, a reader that does not read, or the answer to a call may take";
    http_idempotency_window: Duration = "86400", "http.idempotency_window", false,
        "Seconds for which the answer to a put with an Idempotency-Key is kept, so that a repeated put changes nothing";
    http_hide_payloads: bool = "false", "http.hide_payloads", false,
        "Whether the page hides payloads and errors of tasks until a person asks for one; programs get them all the same";
    http_badge: Badge = "", "http.badge", false,
        "What the page shows beside its name and in its title, such as production; COLOR:TEXT for another color than red, nothing for none";
    metrics_tubes: u64 = "100", "metrics.tubes", false,
        "Tubes with labels of their own in /metrics, the busiest ones; all further ones are summed";
    metrics_tarantool: bool = "false", "metrics.tarantool", false,
        "Whether /metrics has the names of Tarantool's Grafana board too";
    graphite_server: String = "", "graphite.server", false,
        "Where numbers of tubes are sent for Graphite: udp://HOST:PORT or tcp://HOST:PORT; nothing for nowhere";
    graphite_period: Duration = "60", "graphite.period", false,
        "Seconds between two reports to Graphite";
    graphite_prefix: String = "queue.stats", "graphite.prefix", false,
        "Beginning of the keys in Graphite: queue.stats.TUBE.tasks.ready";
    data_dir: PathBuf = "data", "data_dir", false,
        "Folder of the journal and the snapshots; created if missing";
    wal_mode: WalMode = "fsync", "wal_mode", false,
        "When a change counts as done: fsync (synced to disk), write (handed to the system), none (not journaled)";
    wal_max_size: ByteSize = "256MiB", "wal_max_size", false,
        "Size at which a journal file is closed and the next one begun";
    wal_compression: bool = "false", "wal_compression", false,
        "Compress the journal with zstd: less than half the bytes, a microsecond more for each row";
    checkpoint_interval: Duration = "3600", "checkpoint_interval", true,
        "Seconds between snapshots, if anything has changed; 0 takes none for time's sake";
    checkpoint_wal_threshold: ByteSize = "256MiB", "checkpoint_wal_threshold", true,
        "Journal since the last snapshot before its size makes one due; the files take at most twice the data and 4 times this";
    checkpoint_count: u64 = "2", "checkpoint_count", true,
        "Snapshots that are kept, with the journal since the oldest, as long as the disk has space";
    disk_reserve: ByteSize = "64MiB", "disk_reserve", false,
        "Bytes kept free on the disk: below the reserve new tasks are refused; ack, release, bury and delete work down to a quarter of it; 0 never looks";
    force_recovery: bool = "false", "force_recovery", false,
        "Start on damaged files: skip unreadable rows and log which are lost";
    memory_limit: ByteSize = "256MiB", "memory_limit", true,
        "Memory for tuples; beyond it `put` and inserts are refused. Existing tasks can be taken, finished and failed with a reason; accepted tuples are always loaded";
    max_tuple_size: ByteSize = "1MiB", "max_tuple_size", true,
        "Largest tuple";
    read_only: bool = "false", "read_only", true,
        "Refuse every change";
    replication: Uris = "", "replication", true,
        "Masters to follow, [tls://]USER:PASSWORD@HOST:PORT, several separated by commas; a new instance joins the first that it can";
    replication_timeout: Duration = "1", "replication_timeout", true,
        "Seconds between heartbeats; a peer that is silent for four times as long counts as dead";
    replication_connect_timeout: Duration = "30", "replication_connect_timeout", true,
        "Seconds that a new instance tries to join before it gives up, and that one connection may take";
    replication_connect_quorum: Quorum = "all", "replication_connect_quorum", true,
        "Masters that must be in sync before the instance takes writes: all, or a number";
    replication_sync_lag: Duration = "10", "replication_sync_lag", true,
        "Seconds by which a master may be ahead and still count as in sync";
    replication_sync_timeout: Duration = "300", "replication_sync_timeout", true,
        "Seconds that box.cfg of a program waits for masters that are connected to be in sync, before it goes on as an orphan";
    replication_skip_conflict: bool = "false", "replication_skip_conflict", true,
        "Skip rows of masters whose key is taken here, instead of stopping";
    replication_anon: bool = "false", "replication_anon", false,
        "Join without a number in _cluster: a replica that can never take writes";
    replication_window: ByteSize = "64MiB", "replication_window", false,
        "Memory for the newest rows, from which replicas are served; replicas that are further behind are served from files";
    replication_journal_limit: ByteSize = "1GiB", "replication_journal_limit", true,
        "Journal kept for replicas alone; a replica that is further behind has to join again";
    replicas_before_reply: u64 = "0", "replicas_before_reply", true,
        "Replicas that must have a change on their disks before its reply leaves; 0 waits for none";
    replicas_missing: ReplicasMissing = "wait", "replicas_missing", true,
        "What happens to changes while fewer than replicas_before_reply replicas are connected: wait or refuse";
    replication_rejoin: bool = "true", "replication_rejoin", true,
        "Join again without a command when the masters' journals do not reach back to this replica; its files are set aside";
    cluster_listen: Option<MemberAddress> = "", "cluster.listen", false,
        "Address at which other members of the group reach this server, [tls://]HOST:PORT; nothing for a server without a group";
    cluster_secret_file: Option<PathBuf> = "", "cluster.secret_file", false,
        "File with the secret that all members of the group share, readable by the server's account alone";
    cluster_election_timeout: Duration = "0.3", "cluster.election_timeout", false,
        "Seconds without a leader before the first member asks for votes; each further member asks a third later. The same on all members";
    cluster_level: u64 = "0", "cluster.level", false,
        "Level to which this member lets its group rise, so that an older program can be started again; 0 is the newest that the program knows";
    max_connections: u64 = "10240", "max_connections", true,
        "Connections at a time; further ones are closed at once, except 16 on admin.sock";
    max_frame_size: ByteSize = "16MiB", "max_frame_size", true,
        "Largest request; a longer one is refused and its connection closed";
    max_in_flight: u64 = "4096", "max_in_flight", true,
        "Requests of one connection that wait for the journal or a program; reading from it pauses beyond that";
    max_waiting: u64 = "4096", "max_waiting", true,
        "Waiting calls (take, put on a full tube) of one connection; further ones are refused";
    max_output: ByteSize = "16MiB", "max_output", true,
        "Bytes that wait for a slow reader; reading from it pauses beyond that";
    max_output_total: ByteSize = "256MiB", "max_output_total", true,
        "The same of all connections together: each may have a quarter of the rest; beyond the bound the worst reader is closed";
    max_input_total: ByteSize = "256MiB", "max_input_total", true,
        "Bytes of requests of all connections that have not come as a whole or wait for programs, at least 4 times max_frame_size; beyond it the worst sender is closed";
    guest_on_loopback: bool = "true", "guest_on_loopback", true,
        "On a loopback address the user guest may use the queue and create tubes";
    drain_timeout: Duration = "5", "drain_timeout", true,
        "Seconds that SIGTERM waits for replies to reach their clients";
    log_level: String = "info", "log_level", true,
        "Lines in the log: error, warn, info, debug, trace, or a filter such as info,lycosa_server=debug";
    log_format: LogFormat = "text", "log_format", false,
        "How log lines look: text or json";
    lua: bool = "true", "lua", false,
        "Run Lua: EVAL by users with the right to execute everything, and CALL of functions of Lua; if not, nothing of it runs";
    app: String = "", "app", false,
        "Lua file that the server runs when it is ready";
    native_queue: bool = "true", "native_queue", false,
        "Run the queue; if not, a program has one of its own, the Lua module of Tarantool for example";
    lua_memory: ByteSize = "256MiB", "lua_memory", false,
        "Memory for Lua; beyond it Lua code gets an error";
    lua_time_budget: Duration = "5", "lua_time_budget", false,
        "Seconds that Lua code may run without a pause before it ends with an error; 0 for no limit";
    hook_time_budget: Duration = "1", "hook_time_budget", false,
        "Seconds that a trigger or a callback of a tube may run without a pause before it ends with an error; 0 for no limit";
    queue_ttr: Duration = "0", "queue.ttr", false,
        "Seconds for which a queue session outlives its last connection; 0 releases its tasks at once";
    queue_in_replicaset: bool = "false", "queue.in_replicaset", false,
        "Keep the queue's sessions and owners in the journal, as tarantool/queue does in a replica set";
}

/// Values by key, the later layers over the earlier ones.
#[derive(Debug)]
struct Layers {
    values: BTreeMap<&'static str, (String, Source)>,
    declared: Declared,
}

impl Layers {
    fn defaults() -> Layers {
        let default = |setting: &Setting| (setting.key, (setting.default.to_owned(), Source::Default));
        let values = SETTINGS.iter().map(default).collect();
        Layers { values, declared: Declared::default() }
    }

    fn text(&self, key: &str) -> &str {
        &self.values[key].0
    }

    fn set(&mut self, setting: &'static Setting, text: &str, source: Source) -> Result<(), ConfigError> {
        let fault = match (setting.valid)(text) {
            true => bounds::fault(setting.key, text),
            false => Some(setting.expected.to_owned()),
        };
        if let Some(expected) = fault {
            let (key, text) = (setting.key.to_owned(), text.to_owned());
            return Err(ConfigError::Value { place: source, key, text, expected });
        }
        self.values.insert(setting.key, (text.to_owned(), source));
        Ok(())
    }

    /// Sets the setting that `named` calls `name`.
    fn set_named(
        &mut self,
        name: String,
        named: fn(&Setting) -> String,
        text: &str,
        place: Source,
    ) -> Result<(), ConfigError> {
        let Some(setting) = SETTINGS.iter().find(|setting| named(setting) == name) else {
            let nearest = nearest(&name, SETTINGS.iter().map(named));
            return Err(ConfigError::Unknown { place, key: name, nearest });
        };
        self.set(setting, text, place)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| ConfigError::File { path: path.to_owned(), cause })?;
        let syntax = |cause: String| ConfigError::Syntax { path: path.to_owned(), cause };
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| syntax(error.to_string()))?;
        let (mut flat, declared) = (Vec::new(), &mut self.declared);
        for (key, value) in table {
            match (key.as_str(), value) {
                ("user", value) => {
                    declared.users = list(&key, value, |user: &DeclaredUser| &user.name).map_err(syntax)?;
                }
                ("tube", value) => {
                    declared.tubes = list(&key, value, |tube: &DeclaredTube| &tube.name).map_err(syntax)?;
                    declared.tubes.iter_mut().try_for_each(DeclaredTube::check).map_err(syntax)?;
                }
                ("expiration", value) => {
                    declared.expirations =
                        list(&key, value, |task: &DeclaredExpiration| &task.name).map_err(syntax)?;
                }
                (section, toml::Value::Table(inner)) => {
                    flat.extend(inner.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)));
                }
                (_, value) => flat.push((key, value)),
            }
        }
        for (key, value) in flat {
            let place = Source::File(path.to_owned());
            self.set_named(key, |setting| setting.key.to_owned(), &toml_text(&value), place)?;
        }
        Ok(())
    }

    fn read_environment(
        &mut self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        for (name, text) in variables {
            if !name.starts_with("LYCOSA_") || NOT_SETTINGS.contains(&name.as_str()) {
                continue;
            }
            let place = Source::Environment(name.clone());
            self.set_named(name, Setting::variable, &text, place)?;
        }
        Ok(())
    }
}

/// Variables that belong to the command line tools or name the configuration file itself.
const NOT_SETTINGS: [&str; 5] =
    ["LYCOSA_CONFIG", "LYCOSA_ADDRESS", "LYCOSA_USER", "LYCOSA_PASSWORD", "LYCOSA_TLS_SERVER_NAME"];

/// The file that is read when none is named, if it exists.
pub const DEFAULT_FILE: &str = "lycosa.toml";

/// The flags of the command line: `(flag without dashes, text)`.
pub type Flags = Vec<(String, String)>;

impl Config {
    /// Reads all layers: defaults, the file (`file`, else `lycosa.toml` if it exists), `variables`, `flags`.
    ///
    /// # Errors
    /// The first value that is unknown or of the wrong form.
    pub fn load(
        file: Option<&Path>,
        variables: impl Iterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<Config, ConfigError> {
        let mut layers = Layers::defaults();
        match file {
            Some(path) => layers.read_file(path)?,
            None if Path::new(DEFAULT_FILE).exists() => layers.read_file(Path::new(DEFAULT_FILE))?,
            None => {}
        }
        layers.read_environment(variables)?;
        for (flag, text) in flags {
            layers.set_named(flag.clone(), Setting::flag, text, Source::Flag(flag.clone()))?;
        }
        Ok(Config::from_layers(&layers))
    }

    /// Every setting with its effective text and where it came from, in the order of [`SETTINGS`]. Passwords are left out.
    pub fn effective(&self) -> impl Iterator<Item = (&'static Setting, Cow<'_, str>, &Source)> {
        SETTINGS.iter().map(|setting| (setting, self.text(setting.key), &self.sources[setting.key].1))
    }

    /// The effective text of the setting `key`, without passwords.
    ///
    /// # Panics
    /// When there is no such setting.
    pub fn text(&self, key: &str) -> Cow<'_, str> {
        let text = &self.sources[key].0;
        if key == "replication" { self.replication.to_string().into() } else { text.into() }
    }

    /// Whether nothing but the default says what the setting `key` is.
    ///
    /// # Panics
    /// When there is no such setting.
    pub fn is_default(&self, key: &str) -> bool {
        self.sources[key].1 == Source::Default
    }

    /// Takes the value that `running` has for every setting that cannot change while the server runs.
    pub fn keep_fixed(&mut self, running: &Config) {
        let mut layers = Layers { values: self.sources.clone(), declared: self.declared.clone() };
        for setting in SETTINGS.iter().filter(|setting| !setting.reloads) {
            layers.values.insert(setting.key, running.sources[setting.key].clone());
        }
        *self = Config::from_layers(&layers);
    }

    /// The settings whose text differs between `self` and `other`.
    pub fn differences<'a>(&'a self, other: &'a Config) -> impl Iterator<Item = &'static Setting> + 'a {
        SETTINGS.iter().filter(|setting| self.sources[setting.key].0 != other.sources[setting.key].0)
    }
}

#[cfg(test)]
mod tests;
