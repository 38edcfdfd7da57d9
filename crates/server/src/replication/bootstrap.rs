//! A new instance of an existing replica set: gets all data from a master before it serves.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use lycosa_engine::folder;
use lycosa_engine::replay::Replay;
use lycosa_instance::Identity;
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::Directory;
use lycosa_journal::writer::XlogWriter;
use lycosa_replication::applier::{Ballot, JoinEvent, JoinKind, Session};
use lycosa_replication::stream::StreamError;
use lycosa_replication::uri::{DEFAULT_USER, Uri};
use lycosa_store::Store;
use lycosa_tls::rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::Instant;
use uuid::Uuid;

use super::applier::{self, Reached};
use crate::clock::now;
use crate::config::Config;
use crate::socket::Stream;
use crate::starting::Progress;
use crate::storage::{self, Opened};

/// Bytes that are read at once.
const READ_SIZE: usize = 1 << 20;

/// Pause before the masters are asked again.
const RETRY: Duration = Duration::from_millis(300);

/// How long all masters have to answer before each is asked again.
const ROUND: Duration = Duration::from_secs(5);

/// How long the other masters have to answer once one was found.
const GRACE: Duration = Duration::from_secs(1);

/// Rows between two lines of progress.
const PROGRESS_ROWS: u64 = 1 << 20;

/// Why the data of a master did not come.
enum JoinError {
    /// The connection ended, or the master could not go on: it may go better the next time.
    Lost(String),
    /// What the master sends cannot be loaded.
    Unfit(anyhow::Error),
}

impl From<std::io::Error> for JoinError {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl From<anyhow::Error> for JoinError {
    fn from(error: anyhow::Error) -> Self {
        Self::Unfit(error)
    }
}

impl From<StreamError> for JoinError {
    fn from(error: StreamError) -> Self {
        let StreamError::Refused(refusal) = &error else { return Self::Unfit(error.into()) };
        let passes = [
            // Its disk fails, its files have changed, or it is about to stop.
            ErrorCode::InvalidXlog,
            ErrorCode::WalIo,
            ErrorCode::Readonly,
            ErrorCode::Loading,
            // The master's program has made the user and has not granted the role yet.
            ErrorCode::AccessDenied,
        ]
        .iter()
        .any(|code| refusal.code == u32::from(*code));
        let text = format!("{error}{}", super::advice(refusal));
        if passes { Self::Lost(text) } else { Self::Unfit(anyhow::Error::msg(text)) }
    }
}

/// Joins the first master that takes it, as `instance`. A join that breaks off begins anew.
///
/// # Errors
/// For `replication_connect_timeout` no master could be joined, or each attempt broke off; what a master sends cannot be loaded
/// or stored.
pub(crate) async fn join(
    directory: Directory,
    config: &Config,
    instance: Uuid,
    tls: Option<&Arc<ClientConfig>>,
    progress: &Progress,
) -> anyhow::Result<Opened> {
    let patience = config.replication_connect_timeout;
    let mut deadline = Instant::now() + patience;
    tracing::info!("the data folder is empty: joining a replica set as instance {instance}");
    directory.remove_left_overs().context("cannot remove unfinished files")?;
    let mut said = String::new();
    let (store, vclock) = loop {
        let (uri, stream, session) = find(config, tls, deadline).await?;
        let kind = if config.replication_anon { JoinKind::Anonymous } else { JoinKind::Named(instance) };
        tracing::info!("joining {uri} (instance {})", session.peer);
        let begun = Instant::now();
        match receive(stream, session, kind, config, progress).await {
            Ok(received) => break received,
            Err(JoinError::Unfit(error)) => return Err(error.context(format!("cannot join {uri}"))),
            Err(JoinError::Lost(cause)) => {
                if begun.elapsed() >= patience {
                    // A long one that broke off late says nothing about the next.
                    deadline = Instant::now() + patience;
                }
                if Instant::now() + RETRY >= deadline {
                    bail!("cannot join {uri}: {cause}");
                }
                if cause != said {
                    tracing::warn!("cannot join {uri}: {cause}; trying again");
                    said = cause;
                }
            }
        }
        tokio::time::sleep(RETRY).await;
    };
    let Identity { cluster, mut replica_id, .. } = storage::identity_of(&store, instance)?;
    if config.replication_anon {
        replica_id = 0;
    } else {
        ensure!(replica_id > 0, "the master has not registered instance {instance} in _cluster");
    }
    let identity = Identity { instance, cluster, replica_id };
    folder::write_snapshot(&directory, &store, &identity, &vclock, now())
        .context("cannot write the first snapshot")?;
    let settings = storage::writer_settings(config);
    let log = XlogWriter::create(directory, settings, instance, vclock.clone())?;
    tracing::info!("joined replica set {cluster} as number {replica_id}, vclock {vclock}");
    let snapshot = vclock.signature();
    Ok(Opened { store, identity, vclock, log: Some(log), snapshot, is_damaged: false, is_begun: false })
}

/// Whether a new instance that its configuration lets begin a replica set joins one instead, because another of its masters
/// has data already or is about to: this folder may have been emptied, or each of two new programs names itself first.
///
/// Of several new instances that start together, the instance with the least address begins. An instance with a greater address
/// waits for it, for [`GRACE`] twice.
pub(crate) async fn is_forestalled(config: &Config, tls: Option<&Arc<ClientConfig>>) -> bool {
    let (own, others): (Vec<_>, Vec<_>) =
        config.replication.0.iter().partition(|uri| storage::is_own(config, uri));
    let Some(own) = own.first() else { return false };
    let deadline = Instant::now() + 2 * GRACE;
    loop {
        let mut is_behind = false;
        for (uri, peer) in ask(&others, tls).await {
            match peer {
                Peer::HasData => {
                    tracing::info!("{uri} has data: this instance joins instead of beginning a replica set");
                    return true;
                }
                Peer::IsNew => is_behind |= uri.address < own.address,
                Peer::IsSilent => {}
            }
        }
        if !is_behind || Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// A peer, as another new instance has to know it.
enum Peer {
    HasData,
    /// It starts, and has no data yet.
    IsNew,
    /// It does not run, or says nothing.
    IsSilent,
}

/// Asks the peers in parallel for their ballots. It sends no password: the account need not exist yet.
async fn ask<'a>(uris: &[&'a Uri], tls: Option<&Arc<ClientConfig>>) -> Vec<(&'a Uri, Peer)> {
    let mut asked = Vec::new();
    for &uri in uris {
        let (anonymous, tls) =
            (Uri { user: DEFAULT_USER.to_owned(), password: String::new(), ..uri.clone() }, tls.cloned());
        let asking = async move {
            let opened = tokio::time::timeout(GRACE, applier::open(&anonymous, tls, None)).await;
            let Ok(Ok(Reached::Peer(_, session))) = opened else { return Peer::IsSilent };
            let ballot = &session.ballot;
            // A new instance of this program has no UUID yet; a Tarantool has one from the begin.
            let has_data = ballot.vclock.signature() > 0 || !ballot.is_read_only;
            if !session.peer.is_nil() && has_data { Peer::HasData } else { Peer::IsNew }
        };
        asked.push((uri, spawn_local(asking)));
    }
    let mut peers = Vec::new();
    for (uri, asking) in asked {
        peers.push((uri, asking.await.unwrap_or(Peer::IsSilent)));
    }
    peers
}

/// Connects to the master that is best to join, when there is one.
async fn find(
    config: &Config,
    tls: Option<&Arc<ClientConfig>>,
    deadline: Instant,
) -> anyhow::Result<(Uri, Stream, Session)> {
    // This instance listens already, and would not answer itself.
    let uris: Vec<_> = config.replication.0.iter().filter(|uri| !storage::is_own(config, uri)).collect();
    let mut said = String::new();
    loop {
        // The last one has time enough for what it says, too.
        let round = (Instant::now() + ROUND).min(deadline).max(Instant::now() + GRACE);
        match choose(config, &uris, tls, round).await {
            Ok(found) => return Ok(found),
            Err(causes) if Instant::now() + RETRY >= deadline => {
                bail!(
                    "no master can be joined: {causes}. Look whether the master runs, and at the address, the user and the \
                     password in `replication`; to begin a new replica set on this instance, leave `replication` empty or \
                     name its own `listen` address first"
                );
            }
            // The same cause a hundred times would only hide what else the log has.
            Err(causes) if causes == said => {}
            Err(causes) => {
                tracing::info!(
                    "no master can be joined yet: {causes}; trying again for {:.0} s",
                    (deadline - Instant::now()).as_secs_f64()
                );
                said = causes;
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Asks all masters at once until `deadline`, and takes the writable one with the most data. Once one is found, all further ones
/// have [`GRACE`] to answer. Else says why none can be joined.
async fn choose(
    config: &Config,
    uris: &[&Uri],
    tls: Option<&Arc<ClientConfig>>,
    mut deadline: Instant,
) -> Result<(Uri, Stream, Session), String> {
    if uris.is_empty() {
        return Err("`replication` names this instance only".to_owned());
    }
    let mut attempts = JoinSet::new();
    for (place, &uri) in uris.iter().enumerate() {
        let (uri, tls) = (uri.clone(), tls.cloned());
        // No answer is taken for this instance's own, which has no UUID yet.
        attempts.spawn_local(async move { (place, applier::open(&uri, tls, None).await) });
    }
    let mut causes = vec![None; uris.len()];
    let mut best: Option<(Uri, Stream, Session)> = None;
    while let Ok(Some(Ok((place, opened)))) = tokio::time::timeout_at(deadline, attempts.join_next()).await {
        let uri = uris[place];
        causes[place] = match opened {
            Ok(Reached::Twin { .. }) => Some(format!("{uri} is this instance")),
            Ok(Reached::Peer(stream, session)) => match unwritable(uri, &session.ballot) {
                Some(cause) if !config.replication_anon => Some(cause),
                _ => {
                    let rank = session.ballot.vclock.signature();
                    if best.as_ref().is_none_or(|(_, _, known)| known.ballot.vclock.signature() < rank) {
                        best = Some((uri.clone(), stream, session));
                    }
                    deadline = deadline.min(Instant::now() + GRACE);
                    None
                }
            },
            Err(cause) => Some(format!("{uri}: {cause}")),
        };
    }
    best.ok_or_else(|| {
        let told = |(cause, uri): (Option<String>, &&Uri)| {
            cause.unwrap_or_else(|| format!("{uri}: it accepts connections, or drops them, and says nothing"))
        };
        causes.into_iter().zip(uris).map(told).collect::<Vec<_>>().join("; ")
    })
}

/// Why a master cannot give this instance a number.
fn unwritable(uri: &Uri, ballot: &Ballot) -> Option<String> {
    match (ballot.is_read_only, ballot.is_read_only_configured) {
        (false, _) => None,
        (true, true) => Some(format!("{uri} is read-only")),
        (true, false) => Some(format!(
            "{uri} is an orphan: it takes no writes before it is in sync with masters of its own. If it waits for this \
             instance, set replication_connect_quorum there to one less than it has masters, and send it SIGHUP"
        )),
    }
}

async fn receive(
    mut stream: Stream,
    session: Session,
    kind: JoinKind,
    config: &Config,
    progress: &Progress,
) -> Result<(Store, Vclock), JoinError> {
    let mut received = 0;
    let mut replay = Replay::new(Store::new(storage::store_settings(config)));
    let mut out = Vec::new();
    let mut join = session.join(kind, &mut out);
    stream.write_all(&out).await?;
    stream.flush().await?;
    let mut buffer = vec![0; READ_SIZE];
    let vclock = 'joined: loop {
        let patience = config.replication_connect_timeout.max(Duration::from_secs(30));
        let read = tokio::time::timeout(patience, stream.read(&mut buffer)).await;
        let silent = |_| JoinError::Lost(format!("the master has been silent for {} s", patience.as_secs()));
        let count = read.map_err(silent)??;
        if count == 0 {
            let rows = replay.rows();
            return Err(JoinError::Lost(format!("the master has closed the connection after {rows} rows")));
        }
        join.receive(&buffer[..count]);
        received += count as u64;
        progress.receive(received, 0);
        while let Some(event) = join.next(applier::MAX_TRANSACTION)? {
            let body = match event {
                JoinEvent::StartOfSnapshot(_) => continue,
                JoinEvent::EndOfSnapshot(_) => {
                    replay.end_snapshot().map_err(anyhow::Error::from)?;
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
