//! A server in one line: HTTP/3 on a UDP port, HTTP/2 and 1.1 on the TCP port of the same number, each answer over TCP telling of HTTP/3 (Alt-Svc,
//! RFC 7838). One thread per core; a handler's future runs on one of them and need not be `Send`.

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    net::{SocketAddr, TcpListener},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::{Duration, SystemTime},
};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use net::{
    OwnSockets, Shutdown, Workers,
    tls::{TlsAcceptor, TlsConfigError, TlsServerOptions},
};
use tokio::sync::Notify;

use super::{Body, Received, exchange, tcp};
use crate::{
    ALPN_H3, BindError, Config, Endpoint, Incoming, Server, ServerTls, Stats,
    h3::{self, Added, Exchange, Settings, server::Arriving},
};

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Certificates; protocols in it have no meaning.
    pub tls: TlsServerOptions,
    /// The endpoints' limits.
    pub quic: Config,
    /// HTTP/3's limits; those for heads hold for HTTP/1 and 2 as well.
    pub http3: Settings,
    /// Threads; 0: one for each core.
    pub workers: usize,
    /// How long nothing of a request's body may come, or of a response's body be taken.
    pub body_time: Duration,
    /// Connections over TCP at once, for each worker; more are closed.
    pub tcp_connections: usize,
    /// For how long clients may remember that there is HTTP/3.
    pub alt_svc_age: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            tls: TlsServerOptions::default(),
            quic: Config::default(),
            http3: Settings::default(),
            workers: 0,
            body_time: Duration::from_secs(60),
            tcp_connections: 16_384,
            alt_svc_age: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// A server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// UDP.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// TCP.
    #[error("cannot listen on TCP {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The system's reason.
        error: io::Error,
    },
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// Threads.
    #[error("worker threads cannot be started: {0}")]
    Workers(io::Error),
}

/// Serves `handler` on `address` with these certificates until [`Serving`] is stopped or dropped.
///
/// Requests that came as early data (0-RTT) reach the handler if their method is safe, with `Early-Data: 1`; others are answered 425 (RFC 8470).
///
/// # Errors
/// [`ServeError`].
pub fn serve<H, Fut>(
    address: SocketAddr,
    tls: TlsServerOptions,
    handler: H,
) -> Result<Serving, ServeError>
where
    H: Fn(Request<Received>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Response<Body>> + 'static,
{
    let options = ServeOptions {
        tls,
        ..ServeOptions::default()
    };
    serve_with(address, options, handler)
}

/// As [`serve`], with limits of one's own.
///
/// # Errors
/// [`ServeError`].
pub fn serve_with<H, Fut>(
    address: SocketAddr,
    options: ServeOptions,
    handler: H,
) -> Result<Serving, ServeError>
where
    H: Fn(Request<Received>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Response<Body>> + 'static,
{
    let count = match options.workers {
        0 => net::default_worker_count(),
        count => count,
    };
    let mut tls = options.tls.clone();
    tls.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::new(&tls)?;
    let quic_tls = ServerTls::from_config(&acceptor.config(), &[ALPN_H3.to_vec()])?;
    let (listeners, server) = bind(address, count, quic_tls, &options)?;
    let address = server.local_addr();
    let workers = Workers::start(count, "http").map_err(ServeError::Workers)?;
    let stop = Shutdown::new();
    let shards = server.shards().map_err(ServeError::Workers)?;
    let (told, done) = std::sync::mpsc::channel();
    let patience = Arc::new(AtomicU64::new(0));
    let common = Common {
        options: Arc::new(options),
        acceptor,
        stop: stop.clone(),
        address,
        patience: Arc::clone(&patience),
    };
    for ((worker, shard), listener) in workers.handles().iter().zip(shards).zip(listeners) {
        let (common, handler, told) = (common.clone(), handler.clone(), told.clone());
        let started = worker.spawn(move || async move {
            let state = Rc::new(State {
                common,
                handler,
                open: Cell::new(0),
                ended: Notify::new(),
            });
            run(&state, shard, listener).await;
            let _ = told.send(());
        });
        started.map_err(|_| ServeError::Workers(io::ErrorKind::BrokenPipe.into()))?;
    }
    Ok(Serving {
        workers,
        server,
        stop,
        done,
        patience,
    })
}

/// A server that runs. Dropping it ends it at once.
#[derive(Debug)]
pub struct Serving {
    workers: Workers,
    server: Server,
    stop: Shutdown,
    done: std::sync::mpsc::Receiver<()>,
    patience: Arc<AtomicU64>,
}

impl Serving {
    /// Where it listens, UDP and TCP alike.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// What happened to QUIC connections.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.server.stats()
    }

    /// Serves until the process ends, or something fails for good.
    pub fn wait(self) {
        let _ = self.done.recv();
    }

    /// Ends in order: takes no more connections and requests, lets those under way end for at most `patience`, then closes what is left.
    pub fn shutdown(self, patience: Duration) {
        let limit = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.patience.store(limit, Relaxed);
        self.server.refuse_new();
        self.stop.trigger();
        let until = std::time::Instant::now() + patience + LAST_WORDS;
        for _ in self.workers.handles() {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if self.done.recv_timeout(left).is_err() {
                break;
            }
        }
        if let Err(error) = self.workers.shutdown(LAST_WORDS) {
            tracing::warn!(%error, "a server ends although its workers are still busy");
        }
    }
}

#[derive(Clone)]
pub(super) struct Common {
    pub(super) options: Arc<ServeOptions>,
    pub(super) acceptor: TlsAcceptor,
    pub(super) stop: Shutdown,
    pub(super) address: SocketAddr,
    /// Milliseconds that are left for what is under way once it is told to stop.
    patience: Arc<AtomicU64>,
}

/// What a worker's tasks share.
pub(super) struct State<H> {
    pub(super) common: Common,
    pub(super) handler: H,
    /// Connections over TCP and exchanges over QUIC.
    open: Cell<usize>,
    ended: Notify,
}

/// Counts something that is under way.
pub(super) struct Busy<H>(Rc<State<H>>);

impl<H> State<H> {
    pub(super) fn busy(self: &Rc<Self>) -> Busy<H> {
        self.open.set(self.open.get() + 1);
        Busy(Rc::clone(self))
    }

    pub(super) fn open(&self) -> usize {
        self.open.get()
    }
}

impl<H> Drop for Busy<H> {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get().saturating_sub(1));
        self.0.ended.notify_waiters();
    }
}

/// TCP and UDP on the same port number; where any will do, several are tried.
fn bind(
    address: SocketAddr,
    count: usize,
    tls: ServerTls,
    options: &ServeOptions,
) -> Result<(Vec<TcpListener>, Server), ServeError> {
    let mut attempts = if address.port() == 0 { ATTEMPTS } else { 1 };
    loop {
        let listen = |error| ServeError::Listen { address, error };
        let listeners = net::listen_tcp_group(address, count).map_err(listen)?;
        let bound = listeners[0].local_addr().map_err(listen)?;
        let (tls, quic) = (tls.clone(), options.quic.clone());
        attempts -= 1;
        match Server::bind(&OwnSockets, "", bound, count, tls, quic) {
            Ok(server) => return Ok((listeners, server)),
            Err(_) if attempts > 0 => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn run<H, Fut>(state: &Rc<State<H>>, shard: crate::Shard, listener: TcpListener)
where
    H: Fn(Request<Received>) -> Fut + Clone + 'static,
    Fut: Future<Output = Response<Body>> + 'static,
{
    let endpoint = match shard.start() {
        Ok(endpoint) => endpoint,
        Err(error) => return tracing::error!(%error, "a QUIC endpoint does not start"),
    };
    tokio::task::spawn_local(tcp::accept(Rc::clone(state), listener));
    let stop = state.common.stop.clone();
    loop {
        let incoming = tokio::select! {
            biased;
            () = stop.wait() => break,
            incoming = endpoint.accept() => incoming,
        };
        let Some(incoming) = incoming else { break };
        tokio::task::spawn_local(connection(Rc::clone(state), incoming));
    }
    drain(state, &endpoint).await;
}

/// Waits until nothing is under way, for as long as [`Serving::shutdown`] allows, then says goodbye.
async fn drain<H>(state: &Rc<State<H>>, endpoint: &Endpoint) {
    let patience = Duration::from_millis(state.common.patience.load(Relaxed));
    let idle = async {
        loop {
            let ended = state.ended.notified();
            if state.open.get() == 0 {
                break;
            }
            ended.await;
        }
    };
    let _ = tokio::time::timeout(patience, idle).await;
    endpoint
        .close(h3::Code::NO_ERROR.var(), b"", LAST_WORDS / 2)
        .await;
}

async fn connection<H, Fut>(state: Rc<State<H>>, incoming: Incoming)
where
    H: Fn(Request<Received>) -> Fut + Clone + 'static,
    Fut: Future<Output = Response<Body>> + 'static,
{
    let settings = state.common.options.http3.clone();
    let Ok(mut connection) = h3::server::Connection::start(incoming, settings).await else {
        return;
    };
    let stop = state.common.stop.clone();
    let mut stopped = pin!(stop.wait());
    let mut draining = false;
    loop {
        tokio::select! {
            biased;
            () = &mut stopped, if !draining => {
                draining = true;
                connection.drain().await;
            }
            arriving = connection.accept() => {
                let Some(arriving) = arriving else { return };
                begin(Box::pin(exchange(state.busy(), arriving))).await;
            }
        }
    }
}

/// Most requests are answered as soon as they are seen: a task for each would cost as much as the answer. What has to wait goes on as a task. A panic ends this
/// exchange, whose halves are reset, and nothing else, either way.
async fn begin<F: Future<Output = ()> + 'static>(mut exchange: Pin<Box<F>>) {
    let first = poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| exchange.as_mut().poll(cx)));
        Poll::Ready(polled.unwrap_or(Poll::Ready(())))
    });
    if first.await.is_pending() {
        tokio::task::spawn_local(exchange);
    }
}

async fn exchange<H, Fut>(busy: Busy<H>, arriving: Arriving)
where
    H: Fn(Request<Received>) -> Fut,
    Fut: Future<Output = Response<Body>>,
{
    if let Ok(exchange) = arriving.resolve().await {
        let answered = answer(&busy.0, exchange).await;
        if let Err(error) = answered {
            tracing::debug!(%error, "a response did not arrive");
        }
    }
}

async fn answer<H, Fut>(state: &State<H>, exchange: Exchange) -> Result<(), h3::Error>
where
    H: Fn(Request<Received>) -> Fut,
    Fut: Future<Output = Response<Body>>,
{
    let Exchange {
        request,
        early,
        receive,
        mut send,
    } = exchange;
    let patience = state.common.options.body_time;
    let head_only = request.method() == Method::HEAD;
    let mut response = if early && !request.method().is_safe() {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::TOO_EARLY;
        response
    } else {
        let request = request.map(|()| Received::http3(receive, patience));
        let mut handler = pin!((state.handler)(request));
        // Whether the client is still there is asked only where there is something to wait for.
        match poll_fn(|cx| Poll::Ready(handler.as_mut().poll(cx))).await {
            Poll::Ready(response) => response,
            Poll::Pending => {
                let gone = send.stopped();
                tokio::select! {
                    biased;
                    response = handler => response,
                    () = gone => return Err(h3::Error::Reset(h3::Code::REQUEST_CANCELLED)),
                }
            }
        }
    };
    let added = added(&response);
    let bodiless = head_only
        || response.status() == StatusCode::NO_CONTENT
        || response.status() == StatusCode::NOT_MODIFIED;
    *response.version_mut() = http::Version::HTTP_3;
    send.response_with(&response, &added)?;
    let body = if bodiless {
        Body::empty()
    } else {
        response.into_body()
    };
    if !body.is_end_stream() && body.size_hint().exact().is_none() {
        // Its maker may take long for the first part.
        exchange::flush(&mut send, patience).await?;
    }
    exchange::send_body(&mut send, body, patience).await
}

/// What every response has: a date (RFC 9110 §6.6.1), and the body's length where it is known.
fn added(response: &Response<Body>) -> Added {
    let (status, headers) = (response.status(), response.headers());
    let lengthy = !status.is_informational()
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::NOT_MODIFIED;
    let length = response.body().size_hint().exact();
    Added {
        length: length.filter(|_| lengthy && !headers.contains_key(header::CONTENT_LENGTH)),
        date: (!headers.contains_key(header::DATE)).then(date),
    }
}

/// Now, as HTTP says it; made once a second.
fn date() -> HeaderValue {
    thread_local! {
        static DATE: Cell<Option<(u64, HeaderValue)>> = const { Cell::new(None) };
    }
    let now = SystemTime::now();
    let second = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    DATE.with(|date| {
        let value = match date.take() {
            Some((known, value)) if known == second => value,
            _ => HeaderValue::from_str(&httpdate::fmt_http_date(now))
                .unwrap_or_else(|_| HeaderValue::from_static("")),
        };
        date.set(Some((second, value.clone())));
        value
    })
}

/// Ports tried where any will do.
const ATTEMPTS: u32 = 16;
/// For closing what is left.
const LAST_WORDS: Duration = Duration::from_secs(2);
