//! The listening sockets of HTTP, and the HTTP thread.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use lycosa_tls::rustls::ServerConfig;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use super::bridge::Bridge;
use super::patience::Patient;
use super::places::{Place, Places};
use super::{LARGEST_BODIES, Peer, Shared, State, guard, routes};
use crate::config::{Config, length};
use crate::socket::bind_tcp;
use crate::starting::Progress;

/// Pause after an error that a retry at once would repeat.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Heads have at most this number of fields.
const MAX_FIELDS: usize = 64;

/// The least buffer that `hyper` needs to read a head, in bytes.
const LEAST_BUFFER: usize = 8 << 10;

/// A listening socket of the door.
pub(crate) struct Bound {
    listener: StdListener,
    address: SocketAddr,
    is_tls: bool,
}

impl Bound {
    /// `http://127.0.0.1:8081`.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.address)
    }
}

/// Binds the door's addresses. The default address may be taken by another server: then the door stays closed.
///
/// # Errors
/// An address that was asked for cannot be had.
pub(crate) async fn bind(config: &Config) -> anyhow::Result<Vec<Bound>> {
    let mut bound = Vec::new();
    let plain = config.http_listen.0.iter().map(|address| (address, false));
    for (address, is_tls) in plain.chain(config.http_listen_tls.0.iter().map(|address| (address, true))) {
        let flag = if is_tls { "http-listen-tls" } else { "http-listen" };
        let listener = match bind_tcp(address, flag).await {
            Ok(listener) => listener,
            Err(error) if !is_tls && config.is_default("http.listen") => {
                tracing::warn!(
                    "no HTTP: cannot listen on {address}: {}. Name another address with --http-listen, or \
                     none with --http-listen \"\"",
                    error.root_cause()
                );
                continue;
            }
            Err(error) => return Err(error),
        };
        let address = listener.local_addr()?;
        bound.push(Bound { listener: listener.into_std()?, address, is_tls });
    }
    Ok(bound)
}

/// The door while it is open.
pub(crate) struct Door {
    thread: JoinHandle<()>,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
    tls: watch::Sender<Option<Arc<ServerConfig>>>,
    settings: Arc<Mutex<Json>>,
    /// Where it is reached.
    pub(crate) urls: Vec<String>,
}

impl Door {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread, no event loop.
    pub(crate) fn open(
        bound: Vec<Bound>,
        config: &Config,
        tls: Option<Arc<ServerConfig>>,
        bridge: Bridge,
        progress: Arc<Progress>,
    ) -> io::Result<Self> {
        let urls = bound.iter().map(Bound::url).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopping) = watch::channel(false);
        let (tls, certificates) = watch::channel(tls);
        let (end, ended) = oneshot::channel();
        let bodies = Arc::new(Semaphore::new(config.http_max_body.bytes().saturating_mul(LARGEST_BODIES)));
        let of_address = length(config.http_max_connections_per_address);
        let places = Places::new(length(config.http_max_connections), of_address);
        let settings: Arc<Mutex<Json>> = Arc::default();
        let (config, kept, readings) = (config.clone(), settings.clone(), Default::default());
        let shared = Arc::new(State { bridge, config, bodies, places, progress, readings, settings: kept });
        let thread = thread::Builder::new().name("http".to_owned()).spawn(move || {
            runtime.block_on(accept_all(bound, &shared, &certificates, &stopping));
            drop(shared);
            drop(end);
        })?;
        Ok(Self { thread, stop, ended, tls, settings, urls })
    }

    /// Presents these certificates from now on.
    pub(crate) fn present(&self, tls: Option<Arc<ServerConfig>>) {
        self.tls.send_replace(tls);
    }

    /// Shows these settings from now on, each with its source.
    pub(crate) fn show_settings(&self, config: &Config) {
        let shown = config.effective().map(|(setting, text, source)| {
            json!({
                "key": setting.key,
                "value": text,
                "source": source.to_string(),
                "default": setting.default,
                "reloads": setting.reloads,
                "help": setting.help,
            })
        });
        // A thread that panicked with the lock has at most left the former settings.
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = shown.collect();
    }

    /// Accepts nothing more; requests that are under way are answered.
    pub(crate) fn close(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for the end of the thread, for at most `limit`; one that has not ended by then ends with the process.
    pub(crate) async fn join(self, limit: Duration) {
        self.close();
        if tokio::time::timeout(limit, self.ended).await.is_ok() && self.thread.join().is_err() {
            tracing::error!("the HTTP thread has panicked");
        }
    }
}

/// Serves all listeners until the door is closed and every connection has ended.
async fn accept_all(
    bound: Vec<Bound>,
    shared: &Shared,
    tls: &watch::Receiver<Option<Arc<ServerConfig>>>,
    stopping: &watch::Receiver<bool>,
) {
    let router = routes::table::router(shared.clone());
    let acceptors: Vec<_> = bound
        .into_iter()
        .filter_map(|Bound { listener, is_tls, .. }| {
            let listener = TcpListener::from_std(listener);
            let listener =
                listener.inspect_err(|error| tracing::error!("the HTTP listener: {error}")).ok()?;
            let tls = is_tls.then(|| tls.clone());
            let door = Acceptor { router: router.clone(), shared: shared.clone(), tls };
            Some(tokio::spawn(door.accept(listener, stopping.clone())))
        })
        .collect();
    for acceptor in acceptors {
        // No code aborts this task.
        let _ = acceptor.await;
    }
    shared.places.wait_for_all().await;
}

#[derive(Clone)]
struct Acceptor {
    router: Router,
    shared: Shared,
    tls: Option<watch::Receiver<Option<Arc<ServerConfig>>>>,
}

impl Acceptor {
    async fn accept(self, listener: TcpListener, mut stopping: watch::Receiver<bool>) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                // A dropped sender stops the door too.
                _ = stopping.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Beyond the bound the connection is closed at once.
                    if let Some(place) = self.shared.places.take(peer.ip()) {
                        tokio::spawn(self.clone().serve(stream, peer, place, stopping.clone()));
                    }
                }
                Err(error) => {
                    tracing::debug!("cannot accept an HTTP connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        _place: Place,
        stopping: watch::Receiver<bool>,
    ) {
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let patience = self.shared.config.http_timeout;
        let Some(tls) = &self.tls else {
            return self.converse(Patient::new(stream, patience), peer, stopping).await;
        };
        let Some(config) = tls.borrow().clone() else { return };
        match tokio::time::timeout(patience, TlsAcceptor::from(config).accept(stream)).await {
            Ok(Ok(stream)) => self.converse(Patient::new(stream, patience), peer, stopping).await,
            Ok(Err(error)) => tracing::debug!("HTTP connection from {peer}: no TLS handshake: {error}"),
            Err(_) => {}
        }
    }

    /// Serves the requests of a connection.
    async fn converse<S>(self, stream: S, peer: SocketAddr, mut stopping: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let config = &self.shared.config;
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(config.http_timeout)
            .max_buf_size(config.http_max_header.bytes().max(LEAST_BUFFER))
            .max_headers(MAX_FIELDS)
            .half_close(false);
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            self.respond(request)
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            _ = async { stopping.wait_for(|stop| *stop).await.is_ok() } => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!("HTTP connection from {peer}: {error}");
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Result<Response, Infallible> {
        if let Err(problem) = guard::check(&request, &self.shared.config.http_hosts.0) {
            return Ok(finish(problem.into_response(), true));
        }
        let is_last = guard::ends_connection(request.headers());
        let response = self.router.clone().call(request.map(Body::new)).await?;
        Ok(finish(response, is_last))
    }
}

/// Adds the headers of every response.
fn finish(mut response: Response, is_last: bool) -> Response {
    let headers = response.headers_mut();
    let mut set = |name, value| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::CACHE_CONTROL, "no-store");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::X_FRAME_OPTIONS, "DENY");
    if is_last {
        set(header::CONNECTION, "close");
    }
    response
}
