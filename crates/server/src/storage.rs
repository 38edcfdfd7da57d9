//! Opens a data folder: recovers the store and opens the log, or bootstraps a new instance in an empty folder.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lycosa_engine::replay::{LoadError, Observer, Replay};
use lycosa_engine::{folder, inspect};
use lycosa_instance::{Identity, Instance};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::block::DEFAULT_COMPRESSION_LEVEL;
use lycosa_journal::decision::{Mode, Resolution};
use lycosa_journal::directory::Directory;
use lycosa_journal::log::WalMode as LogMode;
use lycosa_journal::recovery::{Recovery, Source, Transaction};
use lycosa_journal::writer::{PREALLOCATED_BYTES, Settings as WriterSettings, XlogWriter};
use lycosa_replication::uri::Uri;
use lycosa_store::{IndexBuild, IteratorType, Store, system};
use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::clock::{micros, now};
use crate::config::{ByteSize, Config, ReplicasMissing, WalMode, length};
use crate::file_limit::allowed_connections;
use crate::starting::{Progress, Stage};

/// How often recovery tells how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Rows between two looks at the clock.
const PROGRESS_ROWS: u64 = 1 << 14;

/// Bytes between two such looks, for data of few large rows.
const PROGRESS_BYTES: u64 = 32 << 20;

/// `replica_id` of an instance that begins a replica set.
const FIRST_REPLICA_ID: u32 = 1;

/// The data that an instance is started on.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) identity: Identity,
    pub(crate) vclock: Vclock,
    /// The journal; a member of a group has another one.
    pub(crate) log: Option<XlogWriter>,
    /// Signature of the snapshot that the data come from.
    pub(crate) snapshot: u64,
    /// Whether files are damaged, and the start was forced: a checkpoint has to follow.
    pub(crate) is_damaged: bool,
    /// Whether a replica set was begun just now: no other instance can have more rows than this one yet.
    pub(crate) is_begun: bool,
}

/// Opens the data in a folder, or begins a new instance in an empty one.
///
/// # Errors
/// Damage that the operator has to decide about, a disk that does not work, rows that this version cannot apply.
pub(crate) fn open(directory: Directory, config: &Config, progress: &Progress) -> anyhow::Result<Opened> {
    let mode = if config.force_recovery { Mode::Force } else { Mode::Strict };
    match Recovery::open(&directory, mode)? {
        Some(recovery) => recover(directory, recovery, config, progress),
        None => bootstrap(&directory, config),
    }
}

/// Whether a new instance begins a replica set: it has no masters, or is itself the first of them.
pub(crate) fn begins_replica_set(config: &Config) -> bool {
    config.replication.0.first().is_none_or(|first| is_own(config, first))
}

/// Whether a master is this instance, as far as the configuration tells: it has the same address by another name, or an address
/// of this machine where the instance listens on all of them. May ask the resolver for names with the port of this instance.
pub(crate) fn is_own(config: &Config, uri: &Uri) -> bool {
    let own = if uri.is_tls { &config.listen_tls } else { &config.listen };
    own.0.iter().any(|listen| *listen == uri.address || listens_at(listen, &uri.address))
}

fn listens_at(listen: &str, address: &str) -> bool {
    let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
    if port(listen) != port(address) {
        return false;
    }
    let resolve = |address: &str| address.to_socket_addrs().map(Vec::from_iter).unwrap_or_default();
    let own = resolve(listen);
    let is_any = own.iter().any(|own| own.ip().is_unspecified());
    // Only an address of this machine can be bound.
    let is_local = |ip: IpAddr| ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok();
    resolve(address).iter().any(|named| own.contains(named) || (is_any && is_local(named.ip())))
}

pub(crate) fn store_settings(config: &Config) -> lycosa_store::Settings {
    lycosa_store::Settings {
        memory_limit: config.memory_limit.0,
        max_tuple_size: u32::try_from(config.max_tuple_size.0).unwrap_or(u32::MAX),
        make_keys: Some(lycosa_store::KeyMaker(lycosa_lua::make_keys)),
        ..lycosa_store::Settings::default()
    }
}

/// Gives a running instance the limits and rules of a changed configuration.
pub(crate) fn reconfigure(instance: &mut Instance, config: &Config) {
    instance.reconfigure(instance_settings(config), config.memory_limit.0);
    instance.set_max_tuple_size(store_settings(config).max_tuple_size);
}

pub(crate) fn instance_settings(config: &Config) -> lycosa_instance::Settings {
    lycosa_instance::Settings {
        max_frame_size: config.max_frame_size.bytes(),
        max_connections: length(allowed_connections(config.max_connections)),
        max_in_flight: config.max_in_flight,
        max_waiting: length(config.max_waiting),
        max_output: config.max_output.bytes(),
        max_output_total: config.max_output_total.bytes(),
        max_input_total: config.max_input_total.bytes(),
        guest_on_loopback: config.guest_on_loopback,
        checkpoint_interval: micros(config.checkpoint_interval),
        checkpoint_wal_threshold: config.checkpoint_wal_threshold.0,
        checkpoint_count: length(config.checkpoint_count),
        replica_journal_limit: config.replication_journal_limit.0,
        replicas_before_reply: length(config.replicas_before_reply),
        refuses_without_replicas: config.replicas_missing == ReplicasMissing::Refuse,
        ..lycosa_instance::Settings::default()
    }
}

/// The options of `queue.cfg` at start.
pub(crate) fn queue_settings(config: &Config) -> lycosa_queue::Configuration {
    let ttr = config.queue_ttr.as_secs_f64();
    lycosa_queue::Configuration {
        ttr: (ttr > 0.0).then(|| lycosa_queue::Seconds::from_double(ttr)),
        in_replicaset: config.queue_in_replicaset,
    }
}

pub(crate) fn writer_settings(config: &Config) -> WriterSettings {
    WriterSettings {
        mode: match config.wal_mode {
            WalMode::Fsync => LogMode::Fsync,
            WalMode::Write => LogMode::Write,
            WalMode::None => LogMode::None,
        },
        max_file_bytes: config.wal_max_size.0,
        compression_level: config.wal_compression.then_some(DEFAULT_COMPRESSION_LEVEL),
        preallocated_bytes: PREALLOCATED_BYTES,
    }
}

fn bootstrap(directory: &Directory, config: &Config) -> anyhow::Result<Opened> {
    if config.read_only && !config.may_begin_read_only {
        anyhow::bail!("Trying to bootstrap a local read-only instance as master");
    }
    let identity = Identity {
        instance: config.wanted.instance.unwrap_or_else(Uuid::new_v4),
        cluster: config.wanted.cluster.unwrap_or_else(Uuid::new_v4),
        replica_id: FIRST_REPLICA_ID,
    };
    tracing::info!("the data folder is empty: beginning instance {}", identity.instance);
    let (settings, writer) = (store_settings(config), writer_settings(config));
    let (store, log) = folder::begin(directory, settings, writer, &identity, now())?;
    Ok(Opened {
        store,
        identity,
        vclock: Vclock::new(),
        log: Some(log),
        snapshot: 0,
        is_damaged: false,
        is_begun: true,
    })
}

fn recover(
    directory: Directory,
    recovery: Recovery,
    config: &Config,
    progress: &Progress,
) -> anyhow::Result<Opened> {
    let instance = recovery.instance();
    let total = recovery.progress().bytes_total;
    tracing::info!("recovering instance {instance} from {} bytes", total);
    let started = Instant::now();
    progress.read(0, total);
    progress.enter(Stage::Reading);
    let narrator = Narrator { progress, started, reported: started, looked_at: 0, looked_at_byte: 0 };
    let mut replay = Replay::observed(Store::new(store_settings(config)), narrator);
    let recovered = recovery.run(&mut replay)?;
    let rows = replay.rows();
    progress.enter(Stage::Indexing);
    let store = replay.finish_with(build_indexes).map_err(LoadError::Inconsistent)?;
    for unsupported in inspect::unsupported(&store) {
        tracing::warn!("{unsupported}");
    }
    let memory = store.memory();
    if memory.used > memory.limit {
        tracing::warn!(
            "the data take {} of memory and memory_limit is {}: nothing new is taken until there is room; raise memory_limit",
            ByteSize(memory.used),
            ByteSize(memory.limit),
        );
    }
    let elapsed = started.elapsed();
    tracing::info!(
        "recovered {rows} rows in {elapsed:.2?} ({:.0} rows/s), vclock {}",
        rows as f64 / elapsed.as_secs_f64().max(1e-6),
        recovered.vclock
    );
    let identity = identity_of(&store, recovered.instance)?;
    let vclock = recovered.vclock.clone();
    let log = XlogWriter::resume(directory, writer_settings(config), &recovered)?;
    let (snapshot, is_damaged) = (recovered.snapshot.signature(), recovered.has_lost_data());
    Ok(Opened { store, identity, vclock, log: Some(log), snapshot, is_damaged, is_begun: false })
}

/// Builds indexes on as many threads as there are processors, the largest first.
pub(crate) fn build_indexes(mut builds: Vec<IndexBuild<'_>>) {
    builds.sort_by_key(IndexBuild::tuples);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(builds.len());
    let builds = Mutex::new(builds);
    let work = || {
        loop {
            let next = builds.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(build) = next else { return };
            build.run();
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

/// The identity of an instance in its data. The number of one that `_cluster` does not list is 0: it is an anonymous replica.
pub(crate) fn identity_of(store: &Store, instance: Uuid) -> anyhow::Result<Identity> {
    let key = |name: &str| Value::array([Value::str(name)]).encode();
    let field = |tuple: &[u8], number: usize| Value::decode(tuple).ok()?.as_array()?.get(number).cloned();
    let cluster = store.get(system::SCHEMA, 0, &key("cluster"))?.and_then(|tuple| field(tuple, 1));
    let cluster = cluster.and_then(|text| Uuid::parse_str(text.as_str()?).ok());
    let replica = store.first(system::CLUSTER, 1, IteratorType::Eq, &key(&instance.to_string()))?;
    let replica_id = replica.and_then(|tuple| u32::try_from(field(tuple, 0)?.as_u64()?).ok()).unwrap_or(0);
    Ok(Identity { instance, cluster: cluster.ok_or(LoadError::NoReplicaSet)?, replica_id })
}

/// Tells the log how far recovery is.
struct Narrator<'a> {
    progress: &'a Progress,
    started: Instant,
    reported: Instant,
    /// Rows at the last look at the clock.
    looked_at: u64,
    /// Bytes at that time.
    looked_at_byte: u64,
}

impl Narrator<'_> {
    fn report_progress(&mut self, transaction: &Transaction<'_>) {
        if self.reported.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.reported = Instant::now();
        let progress = transaction.progress;
        let elapsed = self.started.elapsed().as_secs_f64();
        let share = progress.bytes_done as f64 / (progress.bytes_total as f64).max(1.0);
        let left = if share > 0.0 { elapsed / share - elapsed } else { 0.0 };
        tracing::info!(
            "recovering the {}: {:.0} %, {} rows, {:.0} rows/s, about {left:.0} s left",
            match transaction.source {
                Source::Snapshot => "snapshot",
                Source::Xlog => "journal",
            },
            share * 100.0,
            progress.rows,
            progress.rows as f64 / elapsed.max(1e-6),
        );
    }
}

impl Observer for Narrator<'_> {
    fn applied(&mut self, rows: u64, transaction: &Transaction<'_>) {
        let (bytes_done, bytes_total) = (transaction.progress.bytes_done, transaction.progress.bytes_total);
        self.progress.read(bytes_done, bytes_total);
        if rows - self.looked_at >= PROGRESS_ROWS || bytes_done - self.looked_at_byte >= PROGRESS_BYTES {
            self.looked_at = rows;
            self.looked_at_byte = bytes_done;
            self.report_progress(transaction);
        }
    }

    fn resolved(&mut self, resolution: &Resolution) {
        if resolution.loses_data() {
            tracing::error!("{resolution}");
        } else {
            tracing::warn!("{resolution}");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::sync::Arc;

    use lycosa_iproto::row::{RowBody, RowHeader, encode_row};
    use lycosa_journal::log::Batch;
    use lycosa_journal::memory::MemoryDisk;
    use lycosa_tuple::value::Value;

    use super::*;
    use crate::config::Flags;

    /// The forms in which programs write `listen` beside the full addresses of `replication`.
    #[test]
    fn an_instance_knows_its_own_address_by_other_names() {
        for (listen, address, is_one) in [
            ("127.0.0.1:3301", "127.0.0.1:3301", true),
            ("127.0.0.1:3301", "127.0.0.1:3302", false),
            ("127.0.0.1:3301", "127.0.0.2:3301", false),
            ("127.0.0.1:3301", "localhost:3301", true),
            ("0.0.0.0:3301", "127.0.0.1:3301", true),
            ("0.0.0.0:3301", "127.0.0.1:3302", false),
            // An address for documents, which no machine has.
            ("0.0.0.0:3301", "192.0.2.1:3301", false),
        ] {
            assert_eq!(listens_at(listen, address), is_one, "{listen} {address}");
        }
    }

    const SPACE: u32 = 512;

    /// Writes each row as a transaction of its own behind what the log has.
    fn append(log: &mut XlogWriter, vclock: &mut Vclock, rows: &[RowBody<'_>]) {
        let mut batch = Batch::default();
        for body in rows {
            let lsn = vclock.get(FIRST_REPLICA_ID) + 1;
            encode_row(&mut batch.rows, &RowHeader::single(FIRST_REPLICA_ID, lsn, 1.5), body);
            batch.end_transaction();
            vclock.set(FIRST_REPLICA_ID, lsn).unwrap();
        }
        batch.vclock = vclock.clone();
        log.append(&batch).unwrap();
    }

    fn array(fields: &[Value]) -> Vec<u8> {
        Value::Array(fields.to_vec()).encode()
    }

    #[test]
    fn a_space_that_becomes_synchronous_is_recovered_as_one() {
        let empty = || Value::Array(Vec::new());
        let flags = Value::map([("is_sync", true)]);
        let definition = |flags: Value| {
            array(&[SPACE.into(), 1_u32.into(), "s".into(), "memtx".into(), 0_u32.into(), flags, empty()])
        };
        let replaced = definition(flags.clone());
        let operations = Value::Array(vec![Value::Array(vec!["=".into(), 5_u32.into(), flags])]).encode();
        let key = array(&[SPACE.into()]);
        let update =
            RowBody::Update { space: system::SPACE, index: 0, base: 0, key: &key, operations: &operations };
        for change in [update, RowBody::Replace { space: system::SPACE, tuple: &replaced }] {
            let directory = Directory::on(Arc::new(MemoryDisk::new()));
            let config = Config::load(None, std::iter::empty(), &Flags::default()).unwrap();
            let Opened { log, mut vclock, .. } =
                open(directory.clone(), &config, &Progress::default()).unwrap();
            let mut log = log.unwrap();
            let plain = definition(Value::Map(Vec::new()));
            let part = Value::Array(vec![Value::Array(vec![0_u32.into(), "unsigned".into()])]);
            let unique = Value::map([("unique", true)]);
            let index = array(&[SPACE.into(), 0_u32.into(), "pk".into(), "tree".into(), unique, part]);
            let tuples = [1_u32, 2, 3].map(|id| array(&[id.into()]));
            let insert = |tuple| RowBody::Insert { space: SPACE, tuple };
            append(
                &mut log,
                &mut vclock,
                &[
                    RowBody::Insert { space: system::SPACE, tuple: &plain },
                    RowBody::Insert { space: system::INDEX, tuple: &index },
                    insert(&tuples[0]),
                    change,
                    insert(&tuples[1]),
                ],
            );
            let refused = vclock.get(FIRST_REPLICA_ID);
            let verdict = RowBody::Rollback { replica_id: FIRST_REPLICA_ID, lsn: refused };
            append(&mut log, &mut vclock, &[verdict, insert(&tuples[2])]);
            let confirmed = vclock.get(FIRST_REPLICA_ID);
            let verdict = RowBody::Confirm { replica_id: FIRST_REPLICA_ID, lsn: confirmed };
            append(&mut log, &mut vclock, &[verdict]);
            drop(log);

            let store = open(directory, &config, &Progress::default()).unwrap().store;
            let found = |id: usize| store.get(SPACE, 0, &tuples[id]).unwrap().is_some();
            assert_eq!([found(0), found(1), found(2)], [true, false, true]);
        }
    }
}
