//! Accepted sockets: who they come from (PROXY protocol), TLS, and which codec they need.

use std::{net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use net::tls::{PLAIN_HTTP_ANSWER, TlsAcceptor, TlsError};
use route::{IpSet, Scheme};
use sniff::proxy::{HeaderSniffer, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    conn::Conn,
    streams, visitor,
    visitor::{About, Entry},
    worker::Worker,
};

/// What a listener speaks.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// HTTP/1, and HTTP/2 with prior knowledge if it is wanted.
    Http {
        /// Whether it is.
        http2: bool,
    },
    /// The same over TLS, HTTP/2 by ALPN.
    Https(TlsAcceptor),
    /// Whatever it is goes on as it is.
    Tcp,
    /// TLS that goes on as it is, routed by its server name.
    Tls,
    /// HTTP that a server has accepted and brings here: see [`Doorway`](crate::Doorway).
    OfServer,
}

/// What is done with the connections of one listener.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) index: u16,
    pub(crate) protocol: Protocol,
    /// These begin with a PROXY header; others must not.
    pub(crate) proxy_from: Arc<IpSet>,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// HTTP/3 on the UDP port of the same number.
    pub(crate) http3: bool,
}

/// Serves one accepted connection.
pub(crate) async fn visit(worker: &Rc<Worker>, door: &Door, stream: net::Stream, peer: SocketAddr) {
    worker.metrics.proxy_visitors_total.add_one();
    worker.metrics.proxy_visitors_open.up();
    let _open = Open(worker);
    // Who listens on one address has been reached there; else the system has to say where.
    let local = match door.address.ip().is_unspecified() {
        true => stream.local_addr().unwrap_or(peer),
        false => door.address,
    };
    let mut about = About {
        peer,
        local,
        scheme: Scheme::Http,
        listener: door.index,
        certificate: None,
        http3: door.http3.then(|| door.address.port()),
        entry: Entry::Proxy,
        preface: !matches!(door.protocol, Protocol::Http { http2: false }),
    };
    let Some(stream) = begin(worker, door, stream, &mut about).await else {
        return;
    };
    match door.protocol {
        Protocol::Tcp | Protocol::Tls => {
            let wants_name = matches!(door.protocol, Protocol::Tls);
            Box::pin(streams::carry(worker, stream, &about, wants_name)).await;
        }
        Protocol::Http { .. } | Protocol::Https(_) | Protocol::OfServer => {
            requests(worker, stream, about).await;
        }
    }
}

/// Serves a connection that a server has accepted.
pub(crate) async fn visit_of_server(worker: Rc<Worker>, stream: net::Stream, about: About) {
    worker.metrics.proxy_visitors_total.add_one();
    worker.metrics.proxy_visitors_open.up();
    let _open = Open(&worker);
    requests(&worker, stream, about).await;
}

async fn requests(worker: &Rc<Worker>, stream: net::Stream, about: About) {
    if stream.alpn() == Some(b"h2") {
        return Box::pin(crate::h2::serve(worker.clone(), stream, about)).await;
    }
    if let Some((stream, first)) = visitor::serve(worker, Conn::Socket(stream), &about).await {
        let stream = stream.with_prefix(first);
        Box::pin(crate::h2::serve(worker.clone(), stream, about)).await;
    }
}

/// PROXY header and TLS, boxed where they happen, so that a connection without them holds no place for them.
async fn begin(
    worker: &Rc<Worker>,
    door: &Door,
    stream: net::Stream,
    about: &mut About,
) -> Option<net::Stream> {
    let stream = if door.proxy_from.contains(about.peer.ip()) {
        Box::pin(proxy_header(worker, stream, about)).await?
    } else {
        stream
    };
    match &door.protocol {
        Protocol::Https(acceptor) => {
            about.scheme = Scheme::Https;
            let stream = Box::pin(accept_tls(acceptor, stream)).await?;
            about.certificate = stream.peer_certificate().map(Rc::new);
            Some(stream)
        }
        _ => Some(stream),
    }
}

async fn proxy_header(
    worker: &Worker,
    mut stream: net::Stream,
    about: &mut About,
) -> Option<net::Stream> {
    let mut sniffer = HeaderSniffer::new(Limits::default());
    let mut read = Vec::with_capacity(256);
    let reading = async {
        loop {
            if !read.is_empty() {
                match sniffer.advance(&read) {
                    Ok(Some(header)) => return Some(header),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::debug!(%error, "a trusted peer sent no PROXY header");
                        return None;
                    }
                }
            }
            match stream.read_buf(&mut read).await {
                Ok(1..) => {}
                _ => return None,
            }
        }
    };
    let patience = worker.local().heads.header;
    let header = tokio::time::timeout(patience, reading)
        .await
        .ok()
        .flatten()?;
    if let Some(source) = header.source() {
        about.peer = source;
    }
    if let Some(destination) = header.destination() {
        about.local = destination;
    }
    read.drain(..header.len);
    Some(stream.with_prefix(read))
}

async fn accept_tls(acceptor: &TlsAcceptor, stream: net::Stream) -> Option<net::Stream> {
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(TlsError::PlainHttp(mut stream))) => {
            let _ = tokio::time::timeout(Duration::from_secs(2), async {
                stream.write_all(PLAIN_HTTP_ANSWER).await?;
                stream.shutdown().await
            })
            .await;
            None
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}

/// Counts a visitor's connection until it ends.
pub(crate) struct Open<'a>(pub(crate) &'a Worker);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.metrics.proxy_visitors_open.down();
    }
}

/// For a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
