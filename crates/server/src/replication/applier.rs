//! One task for each master: connects, follows its log, applies it, and connects again.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lycosa_instance::Upstream;
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::greeting::{SALT_SIZE, Version};
use lycosa_iproto::vclock::Vclock;
use lycosa_replication::applier::{
    Ballot, Follower, Handshake, Row, Session, Step, Subscription, acknowledge,
};
use lycosa_replication::backoff::Backoff;
use lycosa_replication::lineage;
use lycosa_replication::relay::Peer;
use lycosa_replication::stream::StreamError;
use lycosa_replication::sync::UpstreamState;
use lycosa_replication::uri::Uri;
use lycosa_tls::rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio_rustls::TlsConnector;
use uuid::Uuid;

use super::appliers::Appliers;
use crate::clock::now;
use crate::socket::Stream;
use crate::turn::Core;

/// Bytes that are read from a master at once: the part that is applied before other tasks have their turn.
const READ_SIZE: usize = 64 << 10;

/// Largest transaction of a master, in bytes.
pub(super) const MAX_TRANSACTION: usize = 1 << 30;

/// Pause while the journal is behind.
const BEHIND_POLL: Duration = Duration::from_millis(1);

/// What a text of a master begins with whose journals do not reach back to this instance.
const GAP: &str = "Missing .xlog file";

/// What a text of a master ends with that is followed on another connection with this instance's UUID.
const DUPLICATE: &str = "duplicate connection with the same replica UUID";

/// Version of this program, as masters see it.
pub(super) fn version() -> u32 {
    Version::parse(lycosa_instance::PROTOCOL_VERSION).map_or(0, Version::packed)
}

/// How one connection to a master ended.
enum End {
    /// Another attempt may work.
    Lost(String),
    /// It will not without an operator.
    Stopped(String),
    /// The master's journal does not reach back to this instance, which has to join again.
    TooFarBehind(String),
    /// The address is this instance's own, or that of a server with its UUID.
    Myself { is_certain: bool },
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

/// How often a master that has not what this instance needs is asked again while no other master brings any of it.
const PATIENCE: u32 = 10;

/// Errors of a piece of the log.
enum FollowError {
    Stream(StreamError),
    /// The transaction of a row, and why it does not fit.
    Apply {
        replica_id: u32,
        lsn: u64,
        cause: ErrorObject,
    },
}

impl From<StreamError> for FollowError {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl From<FollowError> for End {
    fn from(error: FollowError) -> Self {
        match error {
            // The disk is full or broken: that is no reason to give the master up.
            FollowError::Apply { cause, .. } if cause.code == u32::from(ErrorCode::WalIo) => {
                Self::Lost(cause.message)
            }
            FollowError::Apply { cause, .. } if lineage::is_divergence(&cause) => Self::Lost(cause.message),
            FollowError::Apply { replica_id, lsn, cause } => Self::Stopped(format!(
                "the transaction with LSN {lsn} of instance {replica_id} cannot be applied: {} (code {})",
                cause.message, cause.code
            )),
            FollowError::Stream(StreamError::Refused(error)) => Self::refused(error),
            FollowError::Stream(error) => Self::Lost(error.to_string()),
        }
    }
}

impl End {
    fn refused(error: Box<ErrorObject>) -> Self {
        let ErrorObject { code, message, .. } = &*error;
        if message.starts_with(GAP) {
            return Self::TooFarBehind(error.message);
        }
        // One of the two is going to join anew, and may do so at any time.
        if lineage::is_divergence(&error) {
            return Self::Lost(error.message);
        }
        Self::Lost(if message.ends_with(DUPLICATE) {
            format!(
                "{message}: the master has not noticed yet that the last connection of this instance has ended, or it is \
                 followed by another server whose data folder is a copy of this one: move one of the two folders away \
                 and join"
            )
        } else if *code == u32::from(ErrorCode::UnknownReplica) {
            format!(
                "{message}: this data folder belongs to another replica set, or the number of this instance was deleted from \
                 _cluster; to join, start with an empty data folder"
            )
        } else {
            let advice = super::advice(&error);
            format!("{}{advice}", StreamError::Refused(error))
        })
    }
}

impl Appliers {
    /// Follows exactly these masters from now on.
    pub(crate) fn start(&mut self, core: &Rc<Core>, uris: &[Uri]) {
        self.stop();
        let upstreams = uris.iter().map(|uri| Upstream { peer: uri.to_string(), ..Upstream::default() });
        core.instance.borrow_mut().set_upstreams(upstreams.collect());
        let spawn = |(place, uri): (usize, &Uri)| spawn_local(run(core.clone(), uri.clone(), place));
        self.0.extend(uris.iter().enumerate().map(spawn));
        update_sync(core);
    }
}

/// Looks whether the instance is still an orphan: a master has another state, or the settings are others.
pub(crate) fn update_sync(core: &Core) {
    let hub = &core.hub;
    let mut instance = core.instance.borrow_mut();
    let states: Vec<_> = instance.upstreams().iter().map(|upstream| upstream.state).collect();
    let quorum = hub.config.borrow().replication_connect_quorum.of(states.len());
    if hub.sync.borrow_mut().update(&hub.sync_rule(quorum), &states) {
        let masters = states.len();
        tracing::info!("{quorum} of {masters} masters are in sync: the instance is no orphan any more");
        instance.set_orphan(false, now());
        core.end.notify_one();
    }
}

async fn run(core: Rc<Core>, uri: Uri, place: usize) {
    let mut applier = Applier { core, uri, place, ballot: None, followed_since: None, is_refusing: false };
    let mut backoff = Backoff::new();
    // How often the master's journals have not reached back since this instance had `reached`.
    let (mut too_far, mut reached) = (0, Vclock::new());
    let mut said = String::new();
    loop {
        applier.set_state(UpstreamState::Connecting, None);
        let Err(end) = applier.session().await;
        let message = match (end, applier.failure()) {
            (End::Myself { is_certain }, _) => {
                if is_certain {
                    tracing::info!("master {}: that is this instance itself", applier.uri);
                } else {
                    tracing::warn!(
                        "master {}: another server has the UUID of this instance and is not followed: one of the two data \
                         folders is a copy of the other. Move this one away and join",
                        applier.uri
                    );
                }
                return applier.set_state(UpstreamState::Myself, None);
            }
            (End::Stopped(message), _) | (End::Lost(_), Some(message)) => {
                return applier.stop(message);
            }
            // What this one's journal does not hold any more comes from another one.
            (End::TooFarBehind(message), _) if applier.waits_for_another(&mut too_far, &mut reached) => {
                message
            }
            (End::TooFarBehind(message), _) => {
                let Some(reason) = applier.refuses_rejoin() else {
                    let message = format!("{message}; this instance joins again");
                    tracing::warn!("master {}: {message}", applier.uri);
                    applier.core.hub.too_far_behind.notify_one();
                    return applier.set_state(UpstreamState::Stopped, Some(message));
                };
                return applier.stop(format!(
                    "{message}; it does not do so by itself, because {reason}: stop it, move its data folder away, start it"
                ));
            }
            (End::Lost(message), None) => message,
        };
        // A connection that ends at once is no better than none: then the pauses go on growing.
        let timeout = applier.core.hub.timeout();
        let lasting = lycosa_replication::disconnect_timeout(timeout);
        if applier.followed_since.take().is_some_and(|since| now().saturating_sub(since) >= lasting) {
            backoff.succeeded();
        }
        if said != message {
            tracing::warn!("master {}: {message}; trying again", applier.uri);
            said.clone_from(&message);
        }
        applier.set_state(UpstreamState::Disconnected, Some(message));
        let wait = backoff.failed(timeout);
        tokio::time::sleep(Duration::from_micros(wait)).await;
    }
}

struct Applier {
    core: Rc<Core>,
    uri: Uri,
    place: usize,
    /// The master's last ballot.
    ballot: Option<Ballot>,
    /// Since when the master is followed on this connection.
    followed_since: Option<u64>,
    /// The last rows could not be applied: the disk is full.
    is_refusing: bool,
}

impl Applier {
    /// Why this instance takes no rows before it is started again.
    fn failure(&self) -> Option<String> {
        let instance = self.core.instance.borrow();
        let cause = instance.failure()?;
        Some(format!("this instance takes no more rows: {cause}; free or replace its disk and restart it"))
    }

    /// Why this instance may not join again without a command; `None` if it may. The master must have all its rows, no client
    /// may be writing here, and the master must be able to take it.
    fn refuses_rejoin(&self) -> Option<&'static str> {
        let instance = self.core.instance.borrow();
        let covers = |ballot: &Ballot| {
            instance.vclock().iter().all(|(id, lsn)| id == 0 || lsn <= ballot.vclock.get(id))
        };
        match &self.ballot {
            _ if !self.core.hub.may_rejoin() => Some("replication_rejoin does not allow it"),
            _ if !instance.is_read_only() => Some("it takes writes"),
            Some(ballot) if ballot.is_read_only => Some("the master is read-only"),
            Some(ballot) if covers(ballot) => None,
            _ => Some("it has rows that the master does not have"),
        }
    }

    /// Whether another master may send what this one's journals do not hold any more: it is connected, and at one of the
    /// last [`PATIENCE`] of the `tries` this instance had more than before. Two replicas that follow each other and are both
    /// too far behind the master wait for each other in vain.
    fn waits_for_another(&self, tries: &mut u32, reached: &mut Vclock) -> bool {
        use UpstreamState::{Connected, Connecting, Following, Syncing};
        let instance = self.core.instance.borrow();
        if instance.vclock() != reached {
            *reached = instance.vclock().clone();
            *tries = 0;
        }
        *tries += 1;
        let mut others = instance.upstreams().iter().enumerate().filter(|(place, _)| *place != self.place);
        *tries <= PATIENCE
            && others.any(|(_, other)| matches!(other.state, Following | Syncing | Connecting | Connected))
    }

    /// Says so if this instance has written what the master lacks, and the master does not follow it: an old master that
    /// comes back. To be asked when the master has told its vclock.
    fn warn_of_own_rows(&self, peer: Uuid, master: &Vclock) {
        let instance = self.core.instance.borrow();
        let id = instance.identity().replica_id;
        let extra = instance.durable_vclock().get(id).saturating_sub(master.get(id));
        let is_followed = instance.replicas().get(&peer).is_some_and(Peer::is_subscribed);
        if id == 0 || extra == 0 || is_followed || !instance.is_read_only() {
            return;
        }
        tracing::warn!(
            "master {}: this instance has {extra} row{} of its own that the master does not have and does not ask for; the \
             two differ for good. Let the master follow this instance for as long as it takes, or move this data folder \
             away and join again",
            self.uri,
            if extra == 1 { "" } else { "s" }
        );
    }

    fn stop(&self, message: String) {
        tracing::error!("master {}: replication has stopped: {message}", self.uri);
        self.set_state(UpstreamState::Stopped, Some(message));
    }

    fn set_state(&self, state: UpstreamState, message: Option<String>) {
        let is_changed = self.core.instance.borrow_mut().upstream_mut(self.place).is_some_and(|upstream| {
            upstream.message = message;
            std::mem::replace(&mut upstream.state, state) != state
        });
        if is_changed {
            tracing::debug!("master {}: {}", self.uri, state.name());
            update_sync(&self.core);
        }
    }

    async fn session(&mut self) -> Result<Infallible, End> {
        let patience = self.core.hub.config.borrow().replication_connect_timeout;
        let tls = self.core.hub.tls.borrow().clone();
        let own = self.core.instance.borrow().identity().instance;
        let connected = tokio::time::timeout(patience, open(&self.uri, tls, Some(own))).await;
        let opened = connected
            .map_err(|_| End::Lost(format!("no answer within {} s", patience.as_secs_f64())))?
            .map_err(End::Lost)?;
        let (stream, session) = match opened {
            Reached::Peer(stream, session) => (stream, session),
            Reached::Twin { salt } => {
                // The connection's other end lies in this process, and is open still: nothing was waited for since.
                let instance = self.core.instance.borrow();
                return Err(End::Myself { is_certain: salt.is_some_and(|salt| instance.has_greeted(&salt)) });
            }
        };
        self.ballot = Some((*session.ballot).clone());
        self.core.hear_term(session.ballot.term);
        let (subscription, vclock) = {
            let mut instance = self.core.instance.borrow_mut();
            let identity = instance.identity();
            if let Some(upstream) = instance.upstream_mut(self.place) {
                upstream.uuid = Some(session.peer);
            }
            let vclock = instance.durable_vclock().replicated();
            let is_anonymous = identity.replica_id == 0;
            let subscription = Subscription {
                cluster: identity.cluster,
                instance: identity.instance,
                vclock: vclock.clone(),
                version: version(),
                is_anonymous,
                filter: if is_anonymous { vec![0] } else { Vec::new() },
                lineage: Some(instance.lineage().clone()),
            };
            (subscription, vclock)
        };
        self.set_state(UpstreamState::Connected, None);
        let mut out = Vec::new();
        let peer = session.peer;
        let mut follower = session.subscribe(&subscription, &mut out);
        follower.start(now());
        self.apply_stream(stream, &mut follower, out, vclock, peer).await
    }

    async fn apply_stream(
        &mut self,
        stream: Stream,
        follower: &mut Follower,
        mut out: Vec<u8>,
        mut acknowledged: Vclock,
        peer: Uuid,
    ) -> Result<Infallible, End> {
        let core = self.core.clone();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut buffer = vec![0; READ_SIZE];
        let mut wants_ack = false;
        loop {
            let changed = core.hub.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(failure) = self.failure() {
                return Err(End::Lost(failure));
            }
            let durable = core.instance.borrow().durable_vclock().replicated();
            // Before the master has answered it is not known whose rows are acknowledged; the SUBSCRIBE has told the rest.
            let is_answered = follower.progress().master_at_start.is_some();
            if wants_ack || is_answered && durable != acknowledged {
                let master = follower.progress().master_id;
                acknowledge(&mut out, &durable, &core.instance.borrow_mut().confirmation(master));
                acknowledged = durable;
                wants_ack = false;
            }
            let timeout = core.hub.timeout();
            if !out.is_empty() {
                let patience = core.hub.disconnect_timeout();
                let writing = async {
                    writer.write_all(&out).await?;
                    writer.flush().await
                };
                let written = tokio::time::timeout(patience, writing).await;
                written.map_err(|_| End::Lost("the master does not read".to_owned()))??;
                out.clear();
            }
            while core.instance.borrow().is_behind() {
                tokio::time::sleep(BEHIND_POLL).await;
            }
            tokio::select! {
                () = changed => {}
                count = reader.read(&mut buffer) => {
                    let count = count?;
                    if count == 0 {
                        return Err(End::Lost("the master has closed the connection".to_owned()));
                    }
                    let was_answered = follower.progress().master_at_start.is_some();
                    wants_ack |= self.receive(follower, &buffer[..count])?;
                    if !was_answered && let Some(vclock) = &follower.progress().master_at_start {
                        // What this instance has written as a master is confirmed, though the replica that has become
                        // its master left before it had said so: replies may wait for that.
                        core.instance.borrow_mut().replicas_mut().acknowledged(peer, vclock, now());
                        self.warn_of_own_rows(peer, vclock);
                        self.followed_since = Some(now());
                        if !self.is_refusing {
                            tracing::info!("master {}: following instance {peer}", self.uri);
                        }
                    }
                    self.progress(follower);
                    core.end.notify_one();
                    tokio::task::yield_now().await;
                }
                () = tokio::time::sleep(Duration::from_micros(timeout)) => {
                    if follower.is_dead(timeout, now()) {
                        return Err(End::Lost("the master has been silent for too long".to_owned()));
                    }
                }
            }
        }
    }

    /// Applies a piece of the stream. Whether an ACK is wanted.
    fn receive(&mut self, follower: &mut Follower, bytes: &[u8]) -> Result<bool, End> {
        let now = now();
        let skips = self.core.hub.config.borrow().replication_skip_conflict;
        let mut apply = |rows: &[Row<'_>]| {
            let mut instance = self.core.instance.borrow_mut();
            let applied =
                if skips { instance.apply_skipping_conflicts(rows, now) } else { instance.apply(rows, now) };
            let (replica_id, lsn) = rows.first().map_or((0, 0), |(row, _)| (row.replica_id, row.lsn));
            applied.map(drop).map_err(|cause| FollowError::Apply { replica_id, lsn, cause })
        };
        let received = follower.receive(bytes, MAX_TRANSACTION, now, &mut apply);
        self.is_refusing |= matches!(received, Err(FollowError::Apply { .. }));
        let received = received?;
        if received.transactions > 0 && std::mem::take(&mut self.is_refusing) {
            tracing::info!("master {}: its rows are applied again", self.uri);
        }
        Ok(received.wants_ack)
    }

    fn progress(&self, follower: &Follower) {
        let progress = follower.progress();
        let is_synced = {
            let mut instance = self.core.instance.borrow_mut();
            if let Some(upstream) = instance.upstream_mut(self.place) {
                upstream.lag = progress.lag;
                upstream.heard_at = progress.heard_at;
                upstream.honors_terms = progress.honors_terms;
            }
            let rule = self.core.hub.sync_rule(0);
            rule.is_synced(progress.lag, instance.vclock(), progress.master_at_start.as_ref())
        };
        self.set_state(if is_synced { UpstreamState::Following } else { UpstreamState::Syncing }, None);
    }
}

/// The instance found at a master's address.
pub(super) enum Reached {
    Peer(Stream, Session),
    /// A server with this instance's UUID, and the salt of its greeting. If this instance has sent a greeting with that
    /// salt, it has reached itself; else one of two data folders is a copy of the other.
    Twin {
        salt: Option<[u8; SALT_SIZE]>,
    },
}

/// Connects and tells the peer this instance's UUID. `tls` has the authorities for `tls://` addresses. A peer with the UUID `own` gets
/// no password: this instance's own account need not exist yet.
pub(super) async fn open(
    uri: &Uri,
    tls: Option<Arc<ClientConfig>>,
    own: Option<Uuid>,
) -> Result<Reached, String> {
    let text = |error: std::io::Error| error.to_string();
    let stream = TcpStream::connect(&uri.address).await.map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    let mut stream: Stream = if uri.is_tls {
        let config = tls.ok_or("no certificates are trusted: name them with tls.ca")?;
        let name = lycosa_tls::server_name(&uri.address).map_err(|error| error.to_string())?;
        let connecting = TlsConnector::from(config).connect(name, stream);
        Box::new(connecting.await.map_err(|error| format!("no TLS: {}", crate::tls::explain(&error)))?)
    } else {
        Box::new(stream)
    };
    let mut handshake = Handshake::new(uri.clone());
    let mut buffer = vec![0; 4096];
    loop {
        let count = stream.read(&mut buffer).await.map_err(|error| crate::tls::explain(&error))?;
        if count == 0 {
            return Err("the peer has closed the connection".to_owned());
        }
        let mut out = Vec::new();
        let step = handshake.receive(&buffer[..count], &mut out).map_err(|error| error.to_string())?;
        handshake = match step {
            Step::Done(session) if Some(session.peer) == own => return Ok(Reached::Twin { salt: None }),
            Step::Done(session) => return Ok(Reached::Peer(stream, session)),
            Step::More(handshake) => match handshake.greeting() {
                Some(greeting) if Some(greeting.uuid) == own => {
                    return Ok(Reached::Twin { salt: Some(greeting.salt) });
                }
                _ => handshake,
            },
        };
        stream.write_all(&out).await.map_err(text)?;
        stream.flush().await.map_err(text)?;
    }
}
