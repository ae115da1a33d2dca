//! Connections to the servers of an upstream: names, sockets, PROXY headers, TLS, and streams of HTTP/2.

use std::{io, net::SocketAddr, rc::Rc, time::Duration};

use net::tls::TlsConnector;
use route::ServerIndex;
use tokio::io::AsyncWriteExt;

use super::{Lease, NoConnection, Resolved, Upstream};
use crate::{
    clock::Clock,
    h2_server::{Below, Room},
    metrics::Metrics,
    site::{Address, Check, ProxyVersion, ServerProtocol},
};

impl Upstream {
    /// A connection for a request: one with room for it, where HTTP/2 is spoken, else a new one.
    pub(crate) async fn connect(
        &self,
        server: ServerIndex,
        visitor: Option<(SocketAddr, SocketAddr)>,
        patience: Duration,
        clock: &Clock,
        metrics: &Metrics,
    ) -> Result<Lease, NoConnection> {
        if !self.speaks_http2(server) {
            return self
                .connect_bytes(server, visitor, patience, clock, metrics)
                .await;
        }
        let opening = self.open_http2(server, visitor, clock, metrics);
        in_time(patience, opening, metrics).await
    }

    /// A connection for a check, which has no visitor and may have a port of its own.
    pub(crate) async fn connect_to_check(
        &self,
        server: ServerIndex,
        patience: Duration,
        clock: &Clock,
        metrics: &Metrics,
    ) -> Result<Lease, NoConnection> {
        let port = self.spec().check_port;
        if matches!(self.spec().check, Check::Http { .. }) && port.is_none() {
            return self.connect(server, None, patience, clock, metrics).await;
        }
        metrics.proxy_upstream_connects_total.add_one();
        let opening = async { Ok(Lease::socket(self.open(server, port, None, clock).await?)) };
        in_time(patience, opening, metrics).await
    }

    /// A new connection for bytes of any kind, with TLS and PROXY header where the server wants them.
    pub(crate) async fn connect_bytes(
        &self,
        server: ServerIndex,
        visitor: Option<(SocketAddr, SocketAddr)>,
        patience: Duration,
        clock: &Clock,
        metrics: &Metrics,
    ) -> Result<Lease, NoConnection> {
        metrics.proxy_upstream_connects_total.add_one();
        let opening = async {
            Ok(Lease::socket(
                self.open(server, None, visitor, clock).await?,
            ))
        };
        in_time(patience, opening, metrics).await
    }

    pub(super) fn speaks_http2(&self, server: ServerIndex) -> bool {
        match self.spec().protocol {
            ServerProtocol::Http1 => false,
            ServerProtocol::Http2 => true,
            ServerProtocol::Agreed => !self.servers[usize::from(server.0)].chose_http1.get(),
        }
    }

    /// A stream of a connection that has room, of a new one, or of one on which another request has ended meanwhile.
    async fn open_http2(
        &self,
        server: ServerIndex,
        visitor: Option<(SocketAddr, SocketAddr)>,
        clock: &Clock,
        metrics: &Metrics,
    ) -> io::Result<Lease> {
        let known = &self.servers[usize::from(server.0)];
        let (keep, changes) = (self.spec().keep_alive, known.http2.changes());
        let opening = loop {
            // Before the look, so that no change is missed between the two.
            let changed = changes.notified();
            match known.http2.room(keep, clock.coarse()) {
                Room::Stream(stream) => return Ok(Lease::http2(stream)),
                Room::Open(opening) => break opening,
                // That a server allows more than at first is no change that anybody tells.
                Room::Full => {
                    let _ = tokio::time::timeout(LOOK, changed).await;
                }
            }
        };
        metrics.proxy_upstream_connects_total.add_one();
        let stream = self.open(server, None, visitor, clock).await?;
        let agreed = stream.alpn() == Some(b"h2");
        match self.spec().protocol {
            ServerProtocol::Agreed if !agreed => {
                known.chose_http1.set(true);
                return Ok(Lease::socket(stream));
            }
            _ if !agreed && stream.is_encrypted() => {
                return Err(io::Error::other("the server does not agree to HTTP/2"));
            }
            _ => {}
        }
        let below = Below {
            secure: stream.is_encrypted(),
            ..Below::default()
        };
        let started = known.http2.start(stream, below, keep, clock.coarse());
        let stream = started.await?;
        drop(opening);
        Ok(Lease::http2(stream))
    }

    async fn open(
        &self,
        server: ServerIndex,
        other_port: Option<u16>,
        visitor: Option<(SocketAddr, SocketAddr)>,
        clock: &Clock,
    ) -> io::Result<net::Stream> {
        let wanted = self.server(server);
        let mut stream = match &wanted.address {
            Address::Tcp(host, port) => {
                let mut addresses = self.resolve(server, host, *port, clock).await?;
                if let Some(port) = other_port {
                    addresses = addresses
                        .iter()
                        .map(|address| SocketAddr::new(address.ip(), port))
                        .collect();
                }
                let stream = net::connect_tcp(&addresses, None).await?;
                let _ = net::tune_visitor(&stream);
                stream
            }
            Address::Unix(path) => net::connect_unix(path).await?,
        };
        if let Some(version) = wanted.send_proxy {
            stream.write_all(&proxy_header(version, visitor)).await?;
        }
        if let Some((connector, name)) = &wanted.tls {
            stream = start_tls(connector, name, stream).await?;
        }
        Ok(stream)
    }

    async fn resolve(
        &self,
        server: ServerIndex,
        host: &str,
        port: u16,
        clock: &Clock,
    ) -> io::Result<Rc<[SocketAddr]>> {
        if let Ok(ip) = host.parse() {
            return Ok(Rc::new([SocketAddr::new(ip, port)]));
        }
        let known = &self.servers[usize::from(server.0)].resolved;
        let now = clock.coarse();
        let last = known.borrow().clone();
        if let Some(last) = &last
            && now.saturating_sub(last.at) < Address::RESOLVED_FOR
        {
            return Ok(Rc::clone(&last.addresses));
        }
        match net::lookup_host((host, port)).await {
            Ok(found) => {
                let addresses: Rc<[SocketAddr]> = found.collect();
                *known.borrow_mut() = Some(Resolved {
                    at: now,
                    addresses: Rc::clone(&addresses),
                });
                Ok(addresses)
            }
            // A resolver that is away does not take the servers with it.
            Err(error) => last.map(|last| last.addresses).ok_or(error),
        }
    }
}

async fn in_time(
    patience: Duration,
    opening: impl Future<Output = io::Result<Lease>>,
    metrics: &Metrics,
) -> Result<Lease, NoConnection> {
    let opened = match tokio::time::timeout(patience, opening).await {
        Ok(Ok(lease)) => Ok(lease),
        Ok(Err(error)) => Err(NoConnection::Failed(error)),
        Err(_) => Err(NoConnection::TimedOut),
    };
    if opened.is_err() {
        metrics.proxy_upstream_connect_failures_total.add_one();
    }
    opened
}

async fn start_tls(
    connector: &TlsConnector,
    name: &str,
    stream: net::Stream,
) -> io::Result<net::Stream> {
    connector
        .connect(stream, name)
        .await
        .map_err(|error| io::Error::other(error.to_string()))
}

/// How often it is looked whether a server allows more streams.
const LOOK: Duration = Duration::from_millis(20);

fn proxy_header(version: ProxyVersion, visitor: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let mut out = Vec::new();
    match (version, visitor) {
        (ProxyVersion::V1, Some((from, to))) => sniff::proxy::write_v1(from, to, &mut out),
        (ProxyVersion::V2, Some((from, to))) => sniff::proxy::write_v2(from, to, &mut out),
        (ProxyVersion::V1, None) => sniff::proxy::write_v1_unknown(&mut out),
        (ProxyVersion::V2, None) => sniff::proxy::write_v2_local(&mut out),
    }
    out
}
