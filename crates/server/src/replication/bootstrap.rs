//! A new instance of an existing replica set: gets all data from a master before it serves.

use std::time::Duration;

use anyhow::{Context, bail};
use lycosa_instance::{Identity, statement};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::Directory;
use lycosa_journal::writer::XlogWriter;
use lycosa_replication::applier::{JoinEvent, JoinKind, Session};
use lycosa_replication::uri::Uri;
use lycosa_store::{Statement, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

use super::applier;
use crate::config::Config;
use crate::storage::{self, Opened};

/// Bytes that are read at once.
const READ_SIZE: usize = 1 << 20;

/// Pause before the masters are asked again.
const RETRY: Duration = Duration::from_millis(300);

/// Rows between two lines of progress.
const PROGRESS_ROWS: u64 = 1 << 20;

/// Joins the first master that takes it.
///
/// # Errors
/// No master does within `replication_connect_timeout`; what it sends cannot be loaded or stored.
pub(crate) async fn join(directory: Directory, config: &Config) -> anyhow::Result<Opened> {
    let uris = &config.replication.0;
    let instance = Uuid::new_v4();
    let deadline = tokio::time::Instant::now() + config.replication_connect_timeout;
    tracing::info!("the data folder is empty: joining a replica set as instance {instance}");
    directory.remove_left_overs().context("cannot remove unfinished files")?;
    let (uri, stream, session) = loop {
        let attempt = tokio::time::timeout_at(deadline, choose(uris, config.replication_anon));
        match attempt.await {
            Ok(Ok(found)) => break found,
            Ok(Err(causes)) if tokio::time::Instant::now() + RETRY >= deadline => {
                bail!(
                    "no master can be joined: {causes}. Start the master first; to begin a new replica set on this \
                     instance, leave `replication` empty or name its own `listen` address first"
                );
            }
            Ok(Err(causes)) => tracing::info!("no master can be joined yet: {causes}"),
            Err(_) => bail!(
                "no master has answered within replication_connect_timeout ({} s)",
                config.replication_connect_timeout.as_secs_f64()
            ),
        }
        tokio::time::sleep(RETRY).await;
    };
    let kind = if config.replication_anon { JoinKind::Anonymous } else { JoinKind::Named(instance) };
    tracing::info!("joining {uri} (instance {})", session.peer);
    let (store, vclock) =
        receive(stream, session, kind, config).await.with_context(|| format!("cannot join {uri}"))?;
    let cluster = storage::cluster_of(&store)?;
    let replica_id = if config.replication_anon {
        0
    } else {
        let id = storage::replica_id_of(&store, instance)?;
        id.with_context(|| format!("{uri} has not registered instance {instance} in _cluster"))?
    };
    let identity = Identity { instance, cluster, replica_id };
    storage::write_snapshot(directory.clone(), &store, &identity, &vclock)
        .context("cannot write the first snapshot")?;
    let settings = storage::writer_settings(config);
    let log = XlogWriter::create(directory, settings, instance, vclock.clone())?;
    tracing::info!("joined replica set {cluster} as number {replica_id}, vclock {vclock}");
    let snapshot = vclock.signature();
    Ok(Opened { store, identity, vclock, log, snapshot, is_damaged: false })
}

/// The masters that can be asked, the writable ones with the most data first. Else why none can.
async fn choose(uris: &[Uri], is_anonymous: bool) -> Result<(Uri, TcpStream, Session), String> {
    let mut best: Option<(Uri, TcpStream, Session)> = None;
    let mut causes = Vec::new();
    for uri in uris {
        match applier::open(uri).await {
            Ok((stream, session)) => {
                if session.ballot.is_read_only && !is_anonymous {
                    causes.push(format!("{uri} is read-only"));
                    continue;
                }
                let rank = session.ballot.vclock.signature();
                if best.as_ref().is_none_or(|(_, _, known)| known.ballot.vclock.signature() < rank) {
                    best = Some((uri.clone(), stream, session));
                }
            }
            Err(cause) => causes.push(format!("{uri}: {cause}")),
        }
    }
    best.ok_or_else(|| causes.join("; "))
}

async fn receive(
    mut stream: TcpStream,
    session: Session,
    kind: JoinKind,
    config: &Config,
) -> anyhow::Result<(Store, Vclock)> {
    let mut store = Store::new(storage::store_settings(config));
    let mut out = Vec::new();
    let mut join = session.join(kind, &mut out);
    stream.write_all(&out).await?;
    let mut buffer = vec![0; READ_SIZE];
    let mut rows = 0_u64;
    let vclock = 'joined: loop {
        let patience = config.replication_connect_timeout.max(Duration::from_secs(30));
        let read = tokio::time::timeout(patience, stream.read(&mut buffer)).await;
        let count =
            read.with_context(|| format!("the master has been silent for {} s", patience.as_secs()))??;
        if count == 0 {
            bail!("the master has closed the connection after {rows} rows");
        }
        join.receive(&buffer[..count]);
        while let Some(event) = join.next(applier::MAX_TRANSACTION)? {
            let body = match event {
                JoinEvent::StartOfSnapshot(_) => continue,
                JoinEvent::EndOfSnapshot(_) => {
                    store.finish_snapshot()?;
                    continue;
                }
                JoinEvent::End(vclock) => break 'joined vclock,
                JoinEvent::Snapshot(body) | JoinEvent::Row(_, body) => body,
            };
            if let Some(statement) = statement(&body) {
                load(&mut store, &statement, rows)?;
            }
            rows += 1;
            if rows.is_multiple_of(PROGRESS_ROWS) {
                tracing::info!("joining: {rows} rows so far");
            }
        }
    };
    lycosa_queue::prepare_tubes(&mut store);
    store
        .finish_recovery_with(storage::build_indexes)
        .context("the data of the master are not consistent")?;
    tracing::info!("received {rows} rows");
    Ok((store, vclock))
}

fn load(store: &mut Store, statement: &Statement<'_>, row: u64) -> anyhow::Result<()> {
    store.recover(statement).with_context(|| {
        format!("row {} of the master (space {}) cannot be loaded", row + 1, statement.space())
    })
}
