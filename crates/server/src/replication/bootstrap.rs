//! A new instance of an existing replica set: gets all data from a master before it serves.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use lycosa_engine::folder;
use lycosa_engine::replay::Replay;
use lycosa_instance::Identity;
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::Directory;
use lycosa_journal::writer::XlogWriter;
use lycosa_replication::applier::{JoinEvent, JoinKind, Session};
use lycosa_replication::uri::Uri;
use lycosa_store::Store;
use lycosa_tls::rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

use super::applier::{self, Stream};
use crate::clock::now;
use crate::config::Config;
use crate::storage::{self, Opened};

/// Bytes that are read at once.
const READ_SIZE: usize = 1 << 20;

/// Pause before the masters are asked again.
const RETRY: Duration = Duration::from_millis(300);

/// Rows between two lines of progress.
const PROGRESS_ROWS: u64 = 1 << 20;

/// Joins the first master that takes it, as `instance`.
///
/// # Errors
/// No master does within `replication_connect_timeout`; what it sends cannot be loaded or stored.
pub(crate) async fn join(
    directory: Directory,
    config: &Config,
    instance: Uuid,
    tls: Option<&Arc<ClientConfig>>,
) -> anyhow::Result<Opened> {
    let uris = &config.replication.0;
    let deadline = tokio::time::Instant::now() + config.replication_connect_timeout;
    tracing::info!("the data folder is empty: joining a replica set as instance {instance}");
    directory.remove_left_overs().context("cannot remove unfinished files")?;
    let (uri, stream, session) = loop {
        let attempt = tokio::time::timeout_at(deadline, choose(uris, tls, config.replication_anon));
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
    folder::write_snapshot(&directory, &store, &identity, &vclock, now())
        .context("cannot write the first snapshot")?;
    let settings = storage::writer_settings(config);
    let log = XlogWriter::create(directory, settings, instance, vclock.clone())?;
    tracing::info!("joined replica set {cluster} as number {replica_id}, vclock {vclock}");
    let snapshot = vclock.signature();
    Ok(Opened { store, identity, vclock, log, snapshot, is_damaged: false })
}

/// The masters that can be asked, the writable ones with the most data first. Else why none can.
async fn choose(
    uris: &[Uri],
    tls: Option<&Arc<ClientConfig>>,
    is_anonymous: bool,
) -> Result<(Uri, Stream, Session), String> {
    let mut best: Option<(Uri, Stream, Session)> = None;
    let mut causes = Vec::new();
    for uri in uris {
        match applier::open(uri, tls.cloned(), None).await {
            // Nobody is taken for this instance, which has no UUID yet.
            Ok(None) => {}
            Ok(Some((stream, session))) => {
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
    mut stream: Stream,
    session: Session,
    kind: JoinKind,
    config: &Config,
) -> anyhow::Result<(Store, Vclock)> {
    let mut replay = Replay::new(Store::new(storage::store_settings(config)));
    let mut out = Vec::new();
    let mut join = session.join(kind, &mut out);
    stream.write_all(&out).await?;
    stream.flush().await?;
    let mut buffer = vec![0; READ_SIZE];
    let vclock = 'joined: loop {
        let patience = config.replication_connect_timeout.max(Duration::from_secs(30));
        let read = tokio::time::timeout(patience, stream.read(&mut buffer)).await;
        let count =
            read.with_context(|| format!("the master has been silent for {} s", patience.as_secs()))??;
        if count == 0 {
            bail!("the master has closed the connection after {} rows", replay.rows());
        }
        join.receive(&buffer[..count]);
        while let Some(event) = join.next(applier::MAX_TRANSACTION)? {
            let body = match event {
                JoinEvent::StartOfSnapshot(_) => continue,
                JoinEvent::EndOfSnapshot(_) => {
                    replay.end_snapshot()?;
                    continue;
                }
                JoinEvent::End(vclock) => break 'joined vclock,
                JoinEvent::Snapshot(body) | JoinEvent::Row(_, body) => body,
            };
            let replay_rows = replay.rows();
            replay.apply(&body).with_context(|| {
                format!("row {} of the master cannot be loaded: {body:?}", replay_rows + 1)
            })?;
            if replay.rows().is_multiple_of(PROGRESS_ROWS) {
                tracing::info!("joining: {} rows so far", replay.rows());
            }
        }
    };
    let rows = replay.rows();
    let store =
        replay.finish_with(storage::build_indexes).context("the data of the master are not consistent")?;
    tracing::info!("received {rows} rows");
    Ok((store, vclock))
}
