//! One connection with a replica at its other end.
//!
//! After JOIN, FETCH_SNAPSHOT and REGISTER the connection makes requests again; a SUBSCRIBE lasts as long as the
//! connection.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use lycosa_instance::{ConnectionSlot, ReplicaRequest};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::vclock::Vclock;
use lycosa_replication::lineage;
use lycosa_replication::relay::{Cursor, LogRows, Pulse, Relay, SubscribeRequest};
use lycosa_replication::stream::{self, StreamError};
use tokio::io::AsyncReadExt;
use uuid::Uuid;

use super::files::{self, Piece, Pieces, ReadEnd};
use crate::clock::now;
use crate::config::WalMode;
use crate::socket::Reader;
use crate::turn::{Core, Link};

/// Bytes that are read from a replica at once: ACKs.
const READ_SIZE: usize = 4096;

/// How often replies that wait for the disk are looked after before a replica is served.
const FLUSH_POLL: Duration = Duration::from_millis(1);

/// Why a replica is not served any more.
enum ReplicaEnd {
    /// It gets an error that says why.
    Refused(ErrorObject),
    /// It is gone, or must go.
    Gone(String),
}

impl From<ErrorObject> for ReplicaEnd {
    fn from(error: ErrorObject) -> Self {
        Self::Refused(error)
    }
}

impl From<io::Error> for ReplicaEnd {
    fn from(error: io::Error) -> Self {
        Self::Gone(error.to_string())
    }
}

/// Where a subscribed replica is served from.
enum RowSource {
    Files,
    Window(Cursor),
}

/// A replica on a connection.
pub(crate) struct Replica<'a> {
    pub(crate) core: &'a Rc<Core>,
    /// Of the connection.
    pub(crate) slot: ConnectionSlot,
    pub(crate) peer: &'a str,
    pub(crate) link: &'a Rc<Link>,
    pub(crate) reader: &'a mut Reader,
    /// Bytes behind the request.
    pub(crate) received: Vec<u8>,
}

impl Replica<'_> {
    /// Does what the replica has asked for. Returns bytes behind the request if the connection goes on with requests.
    pub(crate) async fn serve(mut self) -> Option<Vec<u8>> {
        let request = self.core.instance.borrow_mut().take_replica(self.slot)?;
        let is_stream = matches!(request, ReplicaRequest::Subscribe(..));
        let serving = async {
            self.flush().await?;
            self.answer(request).await
        };
        match serving.await {
            Ok(()) => Some(self.received),
            Err(ReplicaEnd::Gone(cause)) => {
                tracing::info!("replica {}: the connection ended: {cause}", self.peer);
                None
            }
            Err(ReplicaEnd::Refused(error)) => {
                if !lineage::is_divergence(&error) {
                    // The instance says that itself, once.
                    tracing::warn!("replica {}: {}", self.peer, error.message);
                }
                let mut out = Vec::new();
                let version = self.core.instance.borrow().store().schema_version();
                stream::error(&mut out, version, &error);
                let told = self.send(&out, None).await.is_ok();
                (told && !is_stream).then_some(self.received)
            }
        }
    }

    async fn answer(&mut self, request: ReplicaRequest) -> Result<(), ReplicaEnd> {
        if self.core.hub.config.borrow().wal_mode == WalMode::None {
            let message = "Replication does not support wal_mode = 'none'";
            return Err(ErrorObject::client(ErrorCode::Unsupported, message).into());
        }
        match request {
            ReplicaRequest::Join(request) => self.join(request.replica).await,
            ReplicaRequest::FetchSnapshot => {
                let vclock = self.send_snapshot(None).await?;
                self.send_vclock(&vclock).await
            }
            ReplicaRequest::Register(request, vclock) => {
                let id = self.register(request.replica).await?;
                tracing::info!("replica {}: instance {} has number {id} now", self.peer, request.replica);
                self.send_log(LogRows::after(&vclock)).await
            }
            ReplicaRequest::Subscribe(request, id) => self.serve_subscription(&request, id).await,
        }
    }

    /// All data from files: the newest snapshot, then the log since, which ends with the replica's own number.
    async fn join(&mut self, replica: Uuid) -> Result<(), ReplicaEnd> {
        tracing::info!("replica {}: instance {replica} joins", self.peer);
        {
            let mut instance = self.core.instance.borrow_mut();
            instance.replicas_mut().joining(replica, now());
            self.core.hub.hold_journals(&instance);
        }
        let result = self.finish_join(replica).await;
        self.core.instance.borrow_mut().replicas_mut().joined(replica);
        result
    }

    async fn finish_join(&mut self, replica: Uuid) -> Result<(), ReplicaEnd> {
        let snapshot = &self.send_snapshot(Some(replica)).await?;
        let id = self.register(replica).await?;
        self.core.instance.borrow_mut().replicas_mut().reached(replica, id, snapshot, now());
        let vclock = self.core.instance.borrow().durable_vclock().replicated();
        self.send_vclock(&vclock).await?;
        self.send_log(LogRows::after(snapshot)).await?;
        tracing::info!("replica {}: instance {replica} has joined with number {id}", self.peer);
        Ok(())
    }

    /// Gives the replica a number and waits until that is on the disk.
    async fn register(&mut self, replica: Uuid) -> Result<u32, ReplicaEnd> {
        let (id, wanted) = {
            let mut instance = self.core.instance.borrow_mut();
            let id = instance.register_replica(replica, now())?;
            (id, instance.vclock().signature())
        };
        self.core.end.notify_one();
        loop {
            let changed = self.core.hub.changed.notified();
            if self.core.instance.borrow().durable_vclock().signature() >= wanted {
                return Ok(id);
            }
            tokio::select! {
                () = changed => {}
                () = self.link.wake.notified() => self.check_open()?,
            }
        }
    }

    /// The newest snapshot. Returns its clock. Journals since then are kept for a replica that joins.
    async fn send_snapshot(&mut self, joining: Option<Uuid>) -> Result<Vclock, ReplicaEnd> {
        let mut pieces = files::snapshot(self.core.hub.directory.clone())?;
        let mut clock = Vclock::new();
        loop {
            match self.next_piece(&mut pieces, None).await? {
                Piece::Snapshot(vclock) => {
                    clock = vclock.replicated();
                    if let Some(replica) = joining {
                        let mut instance = self.core.instance.borrow_mut();
                        instance.replicas_mut().reached(replica, 0, &clock, now());
                    }
                    self.send_vclock(&clock).await?;
                }
                Piece::Frames(frames) => self.send(&frames, None).await?,
                Piece::End(_) => return Ok(clock),
            }
        }
    }

    /// The log up to the last durable row, and its clock.
    async fn send_log(&mut self, rows: LogRows) -> Result<(), ReplicaEnd> {
        let durable = self.core.instance.borrow().durable_vclock().clone();
        self.send_rows(rows, durable.signature(), None).await?;
        self.send_vclock(&durable.replicated()).await
    }

    /// The log up to the clock with the signature `until`. Returns what the replica has then.
    async fn send_rows(
        &mut self,
        rows: LogRows,
        until: u64,
        mut relay: Option<&mut Relay>,
    ) -> Result<Option<LogRows>, ReplicaEnd> {
        let mut pieces = files::log(self.core.hub.directory.clone(), rows, until)?;
        loop {
            match self.next_piece(&mut pieces, relay.as_deref_mut()).await? {
                Piece::Snapshot(_) => {}
                Piece::Frames(frames) => self.send(&frames, relay.as_deref_mut()).await?,
                Piece::End(rows) => return Ok(rows),
            }
        }
    }

    async fn serve_subscription(&mut self, request: &SubscribeRequest, id: u32) -> Result<(), ReplicaEnd> {
        let core = self.core.clone();
        let (mut relay, mut out) = {
            let mut instance = core.instance.borrow_mut();
            let durable = instance.durable_vclock().clone();
            let relay = Relay::new(request, id, &durable, now());
            let identity = instance.identity();
            let mut out = Vec::new();
            let (own, set) = (identity.replica_id, identity.cluster);
            stream::subscribed(&mut out, own, &durable.replicated(), set, request.lineage.is_some());
            let admitted = instance.replicas_mut().subscribed(request.replica, id, &request.vclock, now());
            admitted.map_err(|refusal| refusal.0)?;
            core.hub.hold_journals(&instance);
            (relay, out)
        };
        tracing::info!("replica {}: instance {} follows from {}", self.peer, request.replica, request.vclock);
        let durable = core.instance.borrow().durable_vclock().clone();
        let subscribed = core.hub.subscribe(&durable);
        let pending = std::mem::take(&mut self.received);
        let relaying = async {
            self.heard(Some(&mut relay), &pending)?;
            self.relay(&mut relay, &mut out).await
        };
        let result = relaying.await;
        drop(subscribed);
        core.instance.borrow_mut().replicas_mut().unsubscribed(request.replica);
        core.end.notify_one();
        result
    }

    /// Sends the log until the replica goes.
    async fn relay(&mut self, relay: &mut Relay, out: &mut Vec<u8>) -> Result<(), ReplicaEnd> {
        let core = self.core.clone();
        let mut source = RowSource::Files;
        loop {
            let changed = core.hub.changed.notified();
            tokio::pin!(changed);
            // From here on no batch is missed.
            changed.as_mut().enable();
            source = match source {
                RowSource::Files => self.catch_up(relay, out).await?,
                RowSource::Window(cursor) => self.send_window(relay, cursor, out).await?,
            };
            if matches!(source, RowSource::Files) {
                continue;
            }
            let Some(wait) = self.pulse(relay, out).await? else { continue };
            tokio::select! {
                () = changed => {}
                bytes = read(self.reader) => self.heard(Some(relay), &bytes?)?,
                () = tokio::time::sleep(wait) => {}
                () = self.link.wake.notified() => self.check_open()?,
            }
        }
    }

    /// A heartbeat if one is due (None), else how long until the next.
    async fn pulse(&mut self, relay: &mut Relay, out: &mut Vec<u8>) -> Result<Option<Duration>, ReplicaEnd> {
        let own = self.core.instance.borrow().identity().replica_id;
        let now = now();
        match relay.pulse(own, self.core.hub.timeout(), now, out) {
            Pulse::Wait(until) => Ok(Some(Duration::from_micros(until.saturating_sub(now)))),
            Pulse::Beat => {
                let beat = std::mem::take(out);
                self.send(&beat, Some(relay)).await?;
                Ok(None)
            }
            Pulse::Dead => Err(gone("the replica has been silent for too long")),
        }
    }

    /// Sends the durable rows that the replica lacks, from files if there are any.
    async fn catch_up(&mut self, relay: &mut Relay, out: &mut Vec<u8>) -> Result<RowSource, ReplicaEnd> {
        let place = self.core.hub.with_window(|window| (window.end().clone(), window.next()));
        let (durable, cursor) = place.ok_or_else(|| gone("the window of the newest rows is gone"))?;
        let rows = relay.log_rows();
        let is_complete = durable.iter().all(|(id, lsn)| id == 0 || lsn <= rows.position().get(id));
        self.send(&std::mem::take(out), Some(relay)).await?;
        if !is_complete {
            let sent = self.send_rows(rows, durable.signature(), Some(relay)).await?;
            sent.into_iter().for_each(|rows| relay.resume(rows, now()));
        }
        Ok(RowSource::Window(cursor))
    }

    /// Rows that the replica needs are gone.
    fn gap(&self, relay: Option<&mut Relay>, oldest: &Vclock) -> ReplicaEnd {
        let Some(relay) = relay else { return unreadable("journals were removed; try again") };
        self.core.instance.borrow_mut().replicas_mut().lose(relay.replica());
        let wanted = relay.acknowledged();
        let message = format!(
            "Missing .xlog file between LSN {} {wanted} and {} {oldest}: the replica has to join again",
            wanted.signature(),
            oldest.signature()
        );
        ErrorObject::client(ErrorCode::InvalidXlog, message).into()
    }

    /// Sends what the window has from `cursor` on.
    async fn send_window(
        &mut self,
        relay: &mut Relay,
        mut cursor: Cursor,
        out: &mut Vec<u8>,
    ) -> Result<RowSource, ReplicaEnd> {
        let core = self.core.clone();
        loop {
            let found = core.hub.with_window(|window| {
                (window.has_passed(cursor)).then_some(Err(())).or_else(|| window.get(cursor).cloned().map(Ok))
            });
            match found.flatten() {
                None => return Ok(RowSource::Window(cursor)),
                Some(Err(())) => return Ok(RowSource::Files),
                Some(Ok(batch)) => {
                    if relay.takes_whole(&batch) {
                        relay.sent_whole(&batch, now());
                        self.send(batch.bytes(), Some(relay)).await?;
                    } else {
                        let sent = relay.send_part(&batch, now(), out);
                        sent.map_err(|error| unreadable(&error.to_string()))?;
                        self.send(&std::mem::take(out), Some(relay)).await?;
                    }
                    cursor = cursor.next();
                }
            }
        }
    }

    /// What a thread hands over next. A replica that waits for it gets heartbeats.
    async fn next_piece(
        &mut self,
        pieces: &mut Pieces,
        mut relay: Option<&mut Relay>,
    ) -> Result<Piece, ReplicaEnd> {
        loop {
            let wait = match relay.as_deref_mut() {
                Some(relay) => self.pulse(relay, &mut Vec::new()).await?,
                None => Some(Duration::from_micros(self.core.hub.timeout())),
            };
            let Some(wait) = wait else { continue };
            tokio::select! {
                piece = pieces.recv() => return match piece {
                    Some(Ok(piece)) => Ok(piece),
                    Some(Err(ReadEnd::Failed(cause))) => Err(unreadable(&cause)),
                    Some(Err(ReadEnd::Gap(oldest))) => Err(self.gap(relay, &oldest)),
                    None => Err(unreadable("the thread that reads them has ended")),
                },
                bytes = read(self.reader), if relay.is_some() => self.heard(relay.as_deref_mut(), &bytes?)?,
                () = tokio::time::sleep(wait) => {}
                () = self.link.wake.notified() => self.check_open()?,
            }
        }
    }

    async fn send_vclock(&mut self, vclock: &Vclock) -> Result<(), ReplicaEnd> {
        let mut out = Vec::new();
        stream::vclock(&mut out, vclock);
        self.send(&out, None).await
    }

    /// Takes what a subscribed replica says.
    fn heard(&self, relay: Option<&mut Relay>, bytes: &[u8]) -> Result<(), ReplicaEnd> {
        let Some(relay) = relay else { return Ok(()) };
        let now = now();
        let mut instance = self.core.instance.borrow_mut();
        let received = relay.receive(bytes, &instance.own_rows(), now);
        instance.replicas_mut().acknowledged(relay.replica(), relay.acknowledged(), now);
        if let Err(StreamError::Parted(divergence)) = &received {
            instance.report_parted(relay.replica(), relay.id(), divergence);
        }
        drop(instance);
        self.core.hear_term(relay.term());
        match received {
            Ok(advanced) => {
                if advanced {
                    self.core.end.notify_one();
                }
                Ok(())
            }
            Err(StreamError::Parted(divergence)) => Err(ReplicaEnd::Refused(divergence.object())),
            Err(error) => Err(ReplicaEnd::Gone(error.to_string())),
        }
    }

    /// Writes all of `bytes`, however slowly the replica reads; meanwhile takes what a subscribed replica says.
    async fn send(&mut self, bytes: &[u8], mut relay: Option<&mut Relay>) -> Result<(), ReplicaEnd> {
        let mut rest = bytes;
        while !rest.is_empty() || self.link.writer.has_backlog() {
            match self.link.writer.try_write(rest) {
                Ok(0) if !rest.is_empty() => return Err(gone("the replica takes no more bytes")),
                Ok(count) if count > 0 => {
                    rest = &rest[count..];
                    continue;
                }
                Ok(_) if !self.link.writer.has_backlog() => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            let patience = self.core.hub.disconnect_timeout();
            tokio::select! {
                writable = self.link.writer.writable() => writable?,
                bytes = read(self.reader), if relay.is_some() => self.heard(relay.as_deref_mut(), &bytes?)?,
                () = self.link.wake.notified() => self.check_open()?,
                () = tokio::time::sleep(patience) => return Err(gone("the replica does not read")),
            }
        }
        Ok(())
    }

    /// Lets replies to requests before this one leave.
    async fn flush(&mut self) -> Result<(), ReplicaEnd> {
        loop {
            self.core.end.notify_one();
            tokio::task::yield_now().await;
            if self.core.instance.borrow().pending_bytes(self.slot) == 0 {
                return Ok(());
            }
            tokio::select! {
                () = self.link.wake.notified() => self.check_open()?,
                writable = self.link.writer.writable(), if self.link.blocked.get() => {
                    writable?;
                    self.core.writable(self.slot, self.link);
                }
                () = tokio::time::sleep(FLUSH_POLL) => {}
            }
        }
    }

    fn check_open(&self) -> Result<(), ReplicaEnd> {
        if self.link.closing.get() { Err(gone("the server closes it")) } else { Ok(()) }
    }
}

fn gone(cause: &str) -> ReplicaEnd {
    ReplicaEnd::Gone(cause.to_owned())
}

fn unreadable(cause: &str) -> ReplicaEnd {
    let message = format!("the data cannot be read for a replica: {cause}");
    ReplicaEnd::Refused(ErrorObject::client(ErrorCode::InvalidXlog, message))
}

/// Reads once.
async fn read(reader: &mut Reader) -> Result<Vec<u8>, ReplicaEnd> {
    let mut bytes = [0; READ_SIZE];
    match reader.read(&mut bytes).await? {
        0 => Err(gone("the replica has closed it")),
        count => Ok(bytes[..count].to_vec()),
    }
}
