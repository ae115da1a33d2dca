//! A client: HTTP/3 where it works, HTTP/2 and 1.1 over TCP where it does not.
//!
//! For a server it does not know, QUIC gets a head start; when nothing came of it by then, TCP is tried beside it, and the first of both is used. A
//! server that was silent over QUIC is asked over TCP for some minutes, then over QUIC again, beside the requests that go on. Connections are
//! kept and shared by all requests to a server; sessions are remembered, so that a request with a safe method can go out with the first packet
//! of a connection (0-RTT).
//!
//! It lives on one thread: a `LocalRuntime` of tokio (as [`net::Workers`] have), or a `LocalSet`.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt, io,
    rc::Rc,
    time::{Duration, Instant},
};

use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::client::conn::{http1, http2};
use net::{
    Shutdown,
    tls::{TlsClientOptions, TlsConfigError, TlsConnector, TlsError},
};
use tokio::time::timeout;

use super::{Body, Protocol, Received, exchange};
use crate::{
    ConnectError,
    client::{Client as Connector, ClientConfig},
    h3::{self, Code, Settings, client::Connection},
};

mod connect;

use connect::Chosen;

/// Which versions of HTTP to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// HTTP/3, or what there is over TCP.
    #[default]
    All,
    /// HTTP/3 or nothing.
    OnlyHttp3,
    /// What there is over TCP.
    OnlyTcp,
}

/// How to ask.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Whom to trust.
    pub tls: TlsClientOptions,
    /// Each QUIC connection's limits.
    pub transport: crate::Transport,
    /// HTTP/3's limits.
    pub http3: Settings,
    /// Which versions to speak.
    pub versions: Versions,
    /// Whether requests with safe methods and without a body may be early data, which others can copy.
    pub early_data: bool,
    /// What QUIC gets ahead of TCP.
    pub head_start: Duration,
    /// How long a connection may take.
    pub connect_time: Duration,
    /// How long a response's head may take.
    pub head_time: Duration,
    /// How long nothing of a body may come, or be taken.
    pub body_time: Duration,
    /// For how long a server that was silent over QUIC is asked over TCP.
    pub avoid_time: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            tls: TlsClientOptions::default(),
            transport: ClientConfig::default().transport,
            http3: Settings::default(),
            versions: Versions::default(),
            early_data: true,
            head_start: Duration::from_millis(250),
            connect_time: Duration::from_secs(10),
            head_time: Duration::from_secs(60),
            body_time: Duration::from_secs(60),
            avoid_time: Duration::from_secs(300),
        }
    }
}

/// There is no response.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The caller's fault: not an absolute `https` or `http` address, or nothing such a server could have.
    #[error("{0} cannot be asked: it has to begin with https:// or http://, and name a host")]
    BadUri(Uri),
    /// The caller's fault: what was given makes no request.
    #[error("no request: {0}")]
    BadRequest(#[from] http::Error),
    /// The name has no address.
    #[error("{host} cannot be found: {error}")]
    Resolve {
        /// The name.
        host: String,
        /// The system's reason.
        error: io::Error,
    },
    /// No connection over QUIC.
    #[error("QUIC: {0}")]
    Quic(#[from] ConnectError),
    /// HTTP/3 failed.
    #[error("HTTP/3: {0}")]
    Http3(#[from] h3::Error),
    /// No connection over TCP.
    #[error("TCP: {0}")]
    Tcp(#[from] io::Error),
    /// TLS over TCP failed.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// HTTP/1 or 2 failed.
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// It took too long.
    #[error("no answer in time")]
    Late,
}

/// Sends requests. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    inner: Rc<Inner>,
}

struct Inner {
    options: ClientOptions,
    quic: Connector,
    tls: TlsConnector,
    origins: RefCell<HashMap<Origin, Rc<Server>>>,
}

/// Whom requests are for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Origin {
    host: String,
    port: u16,
    secure: bool,
}

/// What is known of a server.
#[derive(Default)]
struct Server {
    http3: RefCell<Option<Http3>>,
    /// Held by who connects over QUIC, so that others wait for that connection.
    connecting: tokio::sync::Mutex<()>,
    http2: RefCell<Option<http2::SendRequest<Body>>>,
    http1: RefCell<Vec<http1::SendRequest<Body>>>,
    avoid_until: RefCell<Option<Instant>>,
    /// Is being asked over QUIC, beside what goes over TCP.
    asking: Cell<bool>,
}

#[derive(Clone)]
struct Http3 {
    connection: Connection,
    /// Raised once the handshake is complete and everything sent was taken.
    established: Shutdown,
}

/// A connection over TCP.
enum Tcp {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

impl Client {
    /// A client with the defaults: it trusts the authorities that Mozilla trusts.
    ///
    /// # Errors
    /// [`TlsConfigError`], which the defaults do not cause.
    pub fn new() -> Result<Self, TlsConfigError> {
        Self::with(ClientOptions::default())
    }

    /// A client with other options.
    ///
    /// # Errors
    /// [`TlsConfigError`].
    pub fn with(options: ClientOptions) -> Result<Self, TlsConfigError> {
        let quic = Connector::new(ClientConfig {
            tls: options.tls.clone(),
            transport: options.transport.clone(),
            early_data: options.early_data,
            connect_time: options.connect_time,
            ..ClientConfig::default()
        })?;
        let tls = TlsConnector::new(&TlsClientOptions {
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            ..options.tls.clone()
        })?;
        Ok(Self {
            inner: Rc::new(Inner {
                options,
                quic,
                tls,
                origins: RefCell::default(),
            }),
        })
    }

    /// Asks for what is at `uri`.
    ///
    /// # Errors
    /// [`RequestError`]; a response that tells of an error is a response.
    pub async fn get(&self, uri: &str) -> Result<Response<Received>, RequestError> {
        self.request(Request::get(uri).body(Body::empty())?).await
    }

    /// Sends `body` to `uri`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn post(
        &self,
        uri: &str,
        body: impl Into<Body>,
    ) -> Result<Response<Received>, RequestError> {
        self.request(Request::post(uri).body(body.into())?).await
    }

    /// Sends a request and gives the response once its head has come; the request's body goes on being sent meanwhile. Redirects are
    /// responses. An extended CONNECT ([`Protocol`] in its extensions) is sent over HTTP/3 only.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn request(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Received>, RequestError> {
        let origin = Origin::of(request.uri())?;
        let server = self.server(&origin);
        let extended = request.extensions().get::<Protocol>().is_some();
        let versions = match self.inner.options.versions {
            _ if extended => Versions::OnlyHttp3,
            _ if !origin.secure => Versions::OnlyTcp,
            versions => versions,
        };
        if versions == Versions::OnlyTcp {
            return self.over_tcp(&origin, &server, request).await;
        }
        // What has no body and changes nothing may be said twice.
        let again =
            (request.method().is_safe() && request.body().is_empty()).then(|| copy(&request));
        match self
            .connection(&origin, &server, versions, again.is_some())
            .await?
        {
            Chosen::Tcp(tcp) => self.send_tcp(&server, tcp, request).await,
            Chosen::Http3(http3) => {
                let sent = self.over_http3(&http3, request).await;
                let Some(again) = again else { return sent };
                match sent {
                    // RFC 8470 §5.2: to be sent again once the handshake is complete.
                    Ok(response) if response.status() == StatusCode::TOO_EARLY => {
                        timeout(self.inner.options.connect_time, http3.established.wait())
                            .await
                            .map_err(|_| RequestError::Late)?;
                        self.over_http3(&http3, again).await
                    }
                    Err(error) if is_lost(&error) => {
                        // Early data that was not taken, or a connection that ended in between: another one, complete this time.
                        server.http3.borrow_mut().take();
                        match self.connection(&origin, &server, versions, false).await? {
                            Chosen::Tcp(tcp) => self.send_tcp(&server, tcp, again).await,
                            Chosen::Http3(http3) => self.over_http3(&http3, again).await,
                        }
                    }
                    sent => sent,
                }
            }
        }
    }

    /// Ends all connections.
    pub async fn close(&self, patience: Duration) {
        self.inner.origins.borrow_mut().clear();
        self.inner
            .quic
            .close(Code::NO_ERROR.var(), b"", patience)
            .await;
    }

    /// Moves QUIC connections to other local ports, as after a change of network; requests go on.
    ///
    /// # Errors
    /// The system's.
    pub fn rebind(&self) -> io::Result<()> {
        self.inner.quic.rebind()
    }

    fn server(&self, origin: &Origin) -> Rc<Server> {
        let mut origins = self.inner.origins.borrow_mut();
        if let Some(server) = origins.get(origin) {
            return Rc::clone(server);
        }
        if origins.len() >= ORIGINS {
            // Any will do: a client that asks so many servers comes back to few.
            let some = origins.keys().next().cloned();
            some.map(|origin| origins.remove(&origin));
        }
        Rc::clone(origins.entry(origin.clone()).or_default())
    }

    async fn over_tcp(
        &self,
        origin: &Origin,
        server: &Rc<Server>,
        request: Request<Body>,
    ) -> Result<Response<Received>, RequestError> {
        let tcp = match server.kept_tcp() {
            Some(tcp) => tcp,
            None => self.connect_tcp(origin, server).await?,
        };
        self.send_tcp(server, tcp, request).await
    }

    async fn send_tcp(
        &self,
        server: &Rc<Server>,
        tcp: Tcp,
        mut request: Request<Body>,
    ) -> Result<Response<Received>, RequestError> {
        let limit = self.inner.options.head_time;
        let response = match tcp {
            Tcp::Two(mut sender) => {
                sender.ready().await?;
                timeout(limit, sender.send_request(request)).await
            }
            Tcp::One(mut sender) => {
                to_origin_form(&mut request)?;
                let sent = timeout(limit, sender.send_request(request)).await;
                let server = Rc::clone(server);
                // Of use again when the response's body has been read.
                tokio::task::spawn_local(async move {
                    if sender.ready().await.is_ok() {
                        let mut kept = server.http1.borrow_mut();
                        if kept.len() < KEPT {
                            kept.push(sender);
                        }
                    }
                });
                sent
            }
        };
        let response = response.map_err(|_| RequestError::Late)??;
        let patience = self.inner.options.body_time;
        Ok(response.map(|body| Received::tcp(body, patience)))
    }

    async fn over_http3(
        &self,
        http3: &Http3,
        request: Request<Body>,
    ) -> Result<Response<Received>, RequestError> {
        let options = &self.inner.options;
        let (head, body) = split(request);
        let pending = timeout(options.head_time, http3.connection.begin(&head)).await;
        let (mut send, mut awaited) = pending.map_err(|_| RequestError::Late)??.split();
        let patience = options.body_time;
        if body.is_empty() {
            send.finish();
        } else {
            tokio::task::spawn_local(async move {
                if let Err(error) = exchange::send_body(&mut send, body, patience).await {
                    tracing::debug!(%error, "a request's body did not arrive");
                }
            });
        }
        let head = timeout(options.head_time, async {
            for _ in 0..INTERIM {
                let head = awaited.head().await?;
                if !head.status().is_informational() {
                    return Ok(head);
                }
            }
            Err(h3::Error::Malformed)
        });
        let head = head.await.map_err(|_| RequestError::Late)??;
        let (parts, ()) = head.into_parts();
        let body = Received::http3(awaited.into_body(), patience);
        Ok(Response::from_parts(parts, body))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Origin {
    fn of(uri: &Uri) -> Result<Self, RequestError> {
        let bad = || RequestError::BadUri(uri.clone());
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad()),
        };
        let authority = uri.authority().ok_or_else(bad)?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(bad());
        }
        let port = authority
            .port_u16()
            .unwrap_or(if secure { 443 } else { 80 });
        Ok(Self {
            host: authority.host().to_ascii_lowercase(),
            port,
            secure,
        })
    }

    /// Without the brackets of an IPv6 address.
    fn bare_host(&self) -> &str {
        let host = self.host.strip_prefix('[');
        host.and_then(|host| host.strip_suffix(']'))
            .unwrap_or(&self.host)
    }
}

fn copy(request: &Request<Body>) -> Request<Body> {
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

fn split(request: Request<Body>) -> (Request<()>, Body) {
    use http_body::Body as _;
    let (mut parts, body) = request.into_parts();
    let needs_length = parts.method != Method::CONNECT && !body.is_empty();
    if let Some(length) = body.size_hint().exact().filter(|_| needs_length) {
        let headers = &mut parts.headers;
        headers
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(|| length.into());
    }
    (Request::from_parts(parts, ()), body)
}

/// HTTP/1.1 says the host in a field, and only the path in the first line (RFC 9112 §3.2.1).
fn to_origin_form(request: &mut Request<Body>) -> Result<(), RequestError> {
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::from_str(authority.as_str()).map_err(http::Error::from)?;
        request.headers_mut().entry(header::HOST).or_insert(host);
    }
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    *request.uri_mut() = path
        .parse()
        .map_err(|error: http::uri::InvalidUri| http::Error::from(error))?;
    Ok(())
}

/// Whether the server has not seen the request, or nobody can tell.
fn is_lost(error: &RequestError) -> bool {
    use h3::Error::{Connection, EarlyRejected, Refused, Reset};
    matches!(
        error,
        RequestError::Http3(
            EarlyRejected | Connection(_) | Refused | Reset(Code::REQUEST_REJECTED)
        )
    )
}

/// Servers that are remembered.
const ORIGINS: usize = 256;
/// Idle connections of HTTP/1.1 to a server.
const KEPT: usize = 8;
/// Interim responses before the last one.
const INTERIM: usize = 16;
