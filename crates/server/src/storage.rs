//! From a data folder to a store and an open log; from nothing to a new instance.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use lycosa_instance::Identity;
use lycosa_iproto::row::RowBody;
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::block::DEFAULT_COMPRESSION_LEVEL;
use lycosa_journal::decision::{Mode, Settled};
use lycosa_journal::directory::Directory;
use lycosa_journal::log::WalMode as LogMode;
use lycosa_journal::recovery::{ApplyError, Recovered, Recovery, Source, Target, Transaction};
use lycosa_journal::snap::SnapshotWriter;
use lycosa_journal::writer::{Settings as WriterSettings, XlogWriter};
use lycosa_store::{IndexBuild, IteratorType, Statement, Store, system};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::config::{ByteSize, Config, WalMode};
use crate::inspect;
use crate::turn::now;

/// How often recovery tells how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Rows between two looks at the clock.
const PROGRESS_ROWS: u64 = 1 << 14;

/// Field of `_space` with the flags, from 0.
const SPACE_FLAGS: u32 = 5;

/// `replica_id` of an instance that begins a replica set.
const FIRST_REPLICA_ID: u32 = 1;

/// What an instance is started on.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) identity: Identity,
    pub(crate) vclock: Vclock,
    pub(crate) log: XlogWriter,
    /// Signature of the snapshot that the data come from.
    pub(crate) snapshot: u64,
    /// Whether files are damaged, and the start was forced: a checkpoint has to follow.
    pub(crate) is_damaged: bool,
}

/// Opens the data in a folder, or begins a new instance in an empty one.
///
/// # Errors
/// Damage that the operator has to decide about, a disk that does not work, rows that this version cannot apply.
pub(crate) fn open(directory: Directory, config: &Config) -> anyhow::Result<Opened> {
    let mode = if config.force_recovery { Mode::Force } else { Mode::Strict };
    match Recovery::open(&directory, mode)? {
        Some(recovery) => recover(directory, recovery, config),
        None => bootstrap(directory, config),
    }
}

pub(crate) fn store_settings(config: &Config) -> lycosa_store::Settings {
    lycosa_store::Settings {
        memory_limit: config.memory_limit.0,
        max_tuple_size: u32::try_from(config.max_tuple_size.0).unwrap_or(u32::MAX),
    }
}

pub(crate) fn instance_settings(config: &Config) -> lycosa_instance::Settings {
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    lycosa_instance::Settings {
        max_frame_size: size(config.max_frame_size.0),
        max_connections: size(config.max_connections),
        max_in_flight: config.max_in_flight,
        max_waiting: size(config.max_waiting),
        max_output: size(config.max_output.0),
        guest_on_loopback: config.guest_on_loopback,
        checkpoint_interval: u64::try_from(config.checkpoint_interval.as_micros()).unwrap_or(u64::MAX),
        checkpoint_wal_threshold: config.checkpoint_wal_threshold.0,
        checkpoint_count: size(config.checkpoint_count),
        ..lycosa_instance::Settings::default()
    }
}

/// What `queue.cfg` is at start.
pub(crate) fn queue_settings(config: &Config) -> lycosa_queue::Configuration {
    let ttr = config.queue_ttr.as_secs_f64();
    lycosa_queue::Configuration {
        ttr: (ttr > 0.0).then(|| lycosa_queue::Seconds::from_double(ttr)),
        in_replicaset: config.queue_in_replicaset,
    }
}

fn writer_settings(config: &Config) -> WriterSettings {
    WriterSettings {
        mode: match config.wal_mode {
            WalMode::Fsync => LogMode::Fsync,
            WalMode::Write => LogMode::Write,
            WalMode::None => LogMode::None,
        },
        max_file_bytes: config.wal_max_size.0,
        compression_level: config.wal_compression.then_some(DEFAULT_COMPRESSION_LEVEL),
    }
}

fn bootstrap(directory: Directory, config: &Config) -> anyhow::Result<Opened> {
    let identity =
        Identity { instance: Uuid::new_v4(), cluster: Uuid::new_v4(), replica_id: FIRST_REPLICA_ID };
    tracing::info!("the data folder is empty: beginning instance {}", identity.instance);
    directory.remove_left_overs().context("cannot remove unfinished files")?;
    let mut store = Store::new(store_settings(config));
    store.bootstrap(&identity.cluster.to_string(), &identity.instance.to_string())?;
    let vclock = Vclock::new();
    write_snapshot(directory.clone(), &store, &identity, &vclock)
        .context("cannot write the first snapshot")?;
    let log = XlogWriter::create(directory, writer_settings(config), identity.instance, vclock.clone())?;
    Ok(Opened { store, identity, vclock, log, snapshot: 0, is_damaged: false })
}

fn write_snapshot(
    directory: Directory,
    store: &Store,
    identity: &Identity,
    vclock: &Vclock,
) -> anyhow::Result<()> {
    let mut writer = SnapshotWriter::create(directory, identity.instance, vclock, now() as f64 / 1e6)?;
    let mut failed = None;
    store.for_each_snapshot_row(&mut |space, tuple, is_local| {
        if failed.is_none() {
            failed = writer.add(u32::from(is_local), space, tuple).err();
        }
    });
    match failed {
        Some(error) => Err(error.into()),
        None => {
            writer.finish()?;
            Ok(())
        }
    }
}

fn recover(directory: Directory, recovery: Recovery, config: &Config) -> anyhow::Result<Opened> {
    let instance = recovery.instance();
    let total = recovery.progress().bytes_total;
    tracing::info!("recovering instance {instance} from {} bytes", total);
    let started = Instant::now();
    let mut target = Replay {
        store: Store::new(store_settings(config)),
        rows: 0,
        started,
        reported: started,
        synchronous: HashSet::new(),
    };
    let recovered = recovery.run(&mut target)?;
    let Replay { mut store, rows, .. } = target;
    store.finish_recovery_with(build_indexes).context("the recovered data are not consistent")?;
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
    let identity = identify(&store, &recovered)?;
    let vclock = recovered.vclock.clone();
    let log = XlogWriter::resume(directory, writer_settings(config), &recovered)?;
    let (snapshot, is_damaged) = (recovered.snapshot.signature(), recovered.has_lost_data());
    Ok(Opened { store, identity, vclock, log, snapshot, is_damaged })
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

/// Who the data say this instance is.
fn identify(store: &Store, recovered: &Recovered) -> anyhow::Result<Identity> {
    let mut key = Vec::new();
    mp::write_array(&mut key, 1);
    mp::write_str(&mut key, b"cluster");
    let cluster = store.get(system::SCHEMA, 0, &key)?.and_then(|tuple| text_field(tuple, 1));
    let cluster = cluster.and_then(|text| Uuid::parse_str(text).ok());
    let cluster = cluster.context("_schema names no replica set (row 'cluster')")?;
    key.clear();
    mp::write_array(&mut key, 1);
    mp::write_str(&mut key, recovered.instance.to_string().as_bytes());
    let replica = store.first(system::CLUSTER, 1, IteratorType::Eq, &key)?;
    let replica_id = replica.and_then(|tuple| {
        let mut reader = Reader::new(tuple);
        reader.array().ok()?;
        reader.uint().ok().and_then(|id| u32::try_from(id).ok())
    });
    let replica_id = replica_id.with_context(|| {
        format!(
            "_cluster does not list instance {}; an anonymous replica cannot be started alone",
            recovered.instance
        )
    })?;
    Ok(Identity { instance: recovered.instance, cluster, replica_id })
}

fn text_field(tuple: &[u8], field: u32) -> Option<&str> {
    let mut reader = Reader::new(tuple);
    if reader.array().ok()? <= field {
        return None;
    }
    for _ in 0..field {
        reader.skip().ok()?;
    }
    std::str::from_utf8(reader.str().ok()?).ok()
}

/// Applies recovered rows to a store and tells how far it is.
struct Replay {
    store: Store,
    rows: u64,
    started: Instant,
    reported: Instant,
    /// Spaces whose transactions count only once they are confirmed.
    synchronous: HashSet<u32>,
}

impl Replay {
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

impl Target for Replay {
    fn apply(&mut self, transaction: &Transaction<'_>) -> Result<(), ApplyError> {
        for row in transaction.rows {
            if let Some(statement) = statement(&row.body) {
                self.store.recover(&statement)?;
                self.synchronous.extend(synchronous_space(&statement));
            }
            self.rows += 1;
            if self.rows.is_multiple_of(PROGRESS_ROWS) {
                self.report_progress(transaction);
            }
        }
        Ok(())
    }

    fn end_of_snapshot(&mut self) -> Result<(), ApplyError> {
        Ok(self.store.finish_snapshot()?)
    }

    fn is_synchronous(&self, space: u32) -> bool {
        self.synchronous.contains(&space)
    }

    fn report(&mut self, settled: &Settled) {
        if settled.loses_data() {
            tracing::error!("{settled}");
        } else {
            tracing::warn!("{settled}");
        }
    }
}

/// The space that a statement defines as one whose transactions wait for a CONFIRM row.
pub(crate) fn synchronous_space(statement: &Statement<'_>) -> Option<u32> {
    let Statement::Insert { space: system::SPACE, tuple } = statement else { return None };
    let tuple = TupleRef::trusted(tuple);
    let id = Reader::new(tuple.field(0)?).uint().ok()?;
    let flags = Value::decode(tuple.field(SPACE_FLAGS)?).ok()?;
    let is_synchronous = flags.get("is_sync").and_then(Value::as_bool) == Some(true);
    u32::try_from(id).ok().filter(|_| is_synchronous)
}

/// The change of data that a row is, if it is one.
pub(crate) fn statement<'a>(body: &RowBody<'a>) -> Option<Statement<'a>> {
    Some(match *body {
        RowBody::Insert { space, tuple } => Statement::Insert { space, tuple },
        RowBody::Replace { space, tuple } => Statement::Replace { space, tuple },
        RowBody::Update { space, index, base, key, operations } => {
            Statement::Update { space, index, key, operations, base }
        }
        RowBody::Upsert { space, base, tuple, operations } => {
            Statement::Upsert { space, tuple, operations, base }
        }
        RowBody::Delete { space, index, key } => Statement::Delete { space, index, key },
        RowBody::Nop | RowBody::Confirm { .. } | RowBody::Rollback { .. } | RowBody::Unknown { .. } => {
            return None;
        }
    })
}
