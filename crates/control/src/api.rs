//! The API's listener: accepts on a thread of its own, bounds connections and their time, ends TLS, and hands requests to
//! [`answers`](crate::answers).

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, rc::Rc, sync::Arc, time::Duration};

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use net::{
    Acceptor, Stream, Workers,
    tls::{
        MinVersion, PLAIN_HTTP_ANSWER, TlsAcceptor, TlsConfigError, TlsError, TlsFileError,
        TlsServerOptions, UnknownName,
    },
};
use tokio::{
    io::AsyncWriteExt,
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::{
    Source,
    access::{Access, Refused},
    answers,
};

/// Why an API did not start. Nothing is left listening.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The address cannot be listened on.
    #[error("apiAddr: cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("apiAddr: its certificate (apiCertFile, apiKeyFile) cannot be used: {0}")]
    Certificate(#[from] TlsFileError),
    /// TLS cannot be set up.
    #[error("apiAddr: {0}")]
    Tls(#[from] TlsConfigError),
    /// The thread cannot be started.
    #[error("apiAddr: its thread cannot be started: {0}")]
    Thread(io::Error),
}

/// A running API. Dropping it closes its connections and ends its thread, without waiting.
#[derive(Debug)]
pub struct Api {
    address: SocketAddr,
    _thread: Workers,
}

impl Api {
    /// Listens, and answers for `source` on a thread of its own.
    ///
    /// At most 64 connections are served at one time, others wait to be accepted. A connection ends after 10 s of silence and takes no
    /// new request after a minute.
    ///
    /// # Errors
    /// [`ApiError`]; every text names `apiAddr`.
    pub fn start(listener: &config::ApiListener, source: Source) -> Result<Self, ApiError> {
        Self::start_on(listener, source, &net::OwnSockets)
    }

    /// As [`Api::start`], with a socket of `sockets`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn start_on(
        listener: &config::ApiListener,
        source: Source,
        sockets: &dyn net::ListenSource,
    ) -> Result<Self, ApiError> {
        let address = listener.addr;
        let failed = |error| ApiError::Listen { address, error };
        let tls = listener.certificate.as_ref().map(acceptor).transpose()?;
        let thread = Workers::start(1, "gt-api").map_err(ApiError::Thread)?;
        let sockets = sockets.tcp("apiAddr", address, 1).map_err(failed)?;
        let (Some(socket), Some(handle)) = (sockets.into_iter().next(), thread.handles().first())
        else {
            return Err(ApiError::Thread(io::ErrorKind::Other.into()));
        };
        let address = socket.local_addr().map_err(failed)?;
        let encrypted = tls.is_some();
        let site = Site {
            tls,
            source,
            access: Access::new(listener),
        };
        let _ = handle.spawn(move || accept(socket, site));
        tracing::info!(option = "apiAddr", %address, encrypted, "listening");
        if !address.ip().is_loopback() && !encrypted {
            if listener.password.is_none() {
                tracing::warn!(%address, "the API is not encrypted and can be read by anyone who reaches this address");
            } else {
                tracing::warn!(%address, "the API is not encrypted: its password can be read on the way");
            }
        }
        Ok(Self {
            address,
            _thread: thread,
        })
    }

    /// Where it listens, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn acceptor(files: &config::Certificate) -> Result<TlsAcceptor, ApiError> {
    let certificate = net::tls::load_certificates(&files.cert_file, &files.key_file)?;
    Ok(TlsAcceptor::new(&TlsServerOptions {
        certificates: vec![certificate],
        min_version: MinVersion::Tls12,
        alpn: vec![b"http/1.1".to_vec()],
        unknown_name: UnknownName::ServeDefault,
        ..TlsServerOptions::default()
    })?)
}

/// What connections need.
struct Site {
    tls: Option<TlsAcceptor>,
    source: Source,
    access: Access,
}

async fn accept(listener: std::net::TcpListener, site: Site) {
    let mut acceptor = match Acceptor::new(listener) {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "the API cannot be served"),
    };
    let site = Rc::new(site);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    // The semaphore is never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match acceptor.accept().await {
            Ok((stream, _)) => {
                let site = Rc::clone(&site);
                tokio::task::spawn_local(async move {
                    let _ = net::tune_visitor(&stream);
                    if let Some(stream) = site.open(stream).await {
                        site.serve(stream).await;
                    }
                    drop(place);
                });
            }
            Err(error) => return tracing::error!(%error, "the API has failed and accepts no more"),
        }
    }
}

impl Site {
    async fn open(&self, stream: Stream) -> Option<Stream> {
        let Some(tls) = &self.tls else {
            return Some(stream);
        };
        match timeout(SILENCE, tls.accept(stream)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(TlsError::PlainHttp(mut stream))) => {
                let _ = timeout(SILENCE, stream.write_all(PLAIN_HTTP_ANSWER)).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake with the API failed"),
            Err(_) => tracing::debug!("a TLS handshake with the API took too long"),
        }
        None
    }

    async fn serve(&self, stream: Stream) {
        let answer = async |request: Request<Incoming>| {
            let (uri, headers) = (request.uri(), request.headers());
            let answer = match self.access.check(uri, headers) {
                Ok(()) => answers::answer(&self.source, request.method(), uri.path()),
                Err(refused) => {
                    if refused == Refused::WrongPassword {
                        sleep(GUESS).await;
                    }
                    answers::refusal(refused)
                }
            };
            Ok::<_, Infallible>(answer)
        };
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(SILENCE)
                .max_buf_size(BUFFER)
                .serve_connection(TokioIo::new(stream), service_fn(answer))
        );
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            // A peer that asks and does not read the answer holds its place until here, and no longer.
            () = sleep(LIFE) => {
                connection.as_mut().graceful_shutdown();
                timeout(SILENCE, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection to the API ended");
        }
    }
}

/// Monitoring needs a few.
const MOST_CONNECTIONS: usize = 64;
/// For a TLS handshake, for the head of a request, between requests.
const SILENCE: Duration = Duration::from_secs(10);
const LIFE: Duration = Duration::from_secs(60);
/// What a wrong password costs; with the bound of connections at most 64 guesses a second.
const GUESS: Duration = Duration::from_secs(1);
/// For request heads; also what one answer may hold unsent beyond itself.
const BUFFER: usize = 16 << 10;
