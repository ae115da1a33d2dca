//! Serves one stream: finds its service, dials it, and joins the two.

use std::{io, rc::Rc, time::Duration};

use config::{Local, Page, ProxyProtocol, Service};
use link::{JoinOptions, Stream};
use net::tls::TlsError;
use tokio::io::AsyncWriteExt;
use tunnel::{ResetReason, ServiceId, StreamHeader, StreamProtocol};

use crate::{
    agent::Agent,
    dial::{DialError, connect},
    host::rewrite_host,
    pages, udp,
};

/// Why the service did not get the visit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalError {
    #[error("no such service: the server's list is older than this client's")]
    NoService,
    #[error("{0}")]
    Dial(#[from] DialError),
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("no connection within {0:?}")]
    Timeout(Duration),
}

impl LocalError {
    /// What the server, and through it the visitor, is told.
    fn reason(&self) -> ResetReason {
        match self {
            Self::NoService => ResetReason::NoService,
            Self::Timeout(_) => ResetReason::DialTimeout,
            Self::Dial(DialError::Tls(TlsError::Io(_))) | Self::Io(_) => ResetReason::Unreachable,
            Self::Dial(DialError::Tls(_)) => ResetReason::DialTls,
            Self::Dial(DialError::Connect(error))
                if error.kind() == io::ErrorKind::ConnectionRefused =>
            {
                ResetReason::Refused
            }
            Self::Dial(_) => ResetReason::Unreachable,
        }
    }
}

/// Carries one visit from the link to the service and back.
pub(crate) async fn serve(agent: Rc<Agent>, header: Vec<u8>, stream: Stream) {
    let Ok(header) = StreamHeader::decode(&header) else {
        return stream.reset(ResetReason::Protocol);
    };
    let Some(service) = agent.service(header.service) else {
        tracing::warn!(service = header.service.0, error = %LocalError::NoService, "a visit was refused");
        return stream.reset(LocalError::NoService.reason());
    };
    let service = &*service;
    match &service.local {
        Local::Builtin(Page::Demo) => pages::demo(&agent, stream).await,
        Local::Builtin(Page::Status) => pages::status(&agent, stream).await,
        Local::Udp { host, port } => udp::serve(host, *port, stream).await,
        Local::Http { .. } | Local::Https { .. } | Local::Tcp { .. } | Local::Unix(_) => {
            let dialled = Box::pin(dial(&agent, service, &header)).await;
            let (stream, socket) = match dialled {
                Ok(socket) => match Box::pin(prepare(service, &header, stream, socket)).await {
                    Ok(ready) => ready,
                    Err(error) => {
                        return tracing::warn!(service = service.name, %error, "a visit was cut short");
                    }
                },
                Err(error) => {
                    agent
                        .shared
                        .visits_failed_total
                        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    tracing::warn!(service = service.name, local = %service.local, %error, "a visit did not reach its service");
                    return stream.reset(error.reason());
                }
            };
            let outcome = stream.join(socket, JoinOptions::default()).await;
            tracing::debug!(service = service.name, end = ?outcome.end, "a visit ended");
            if let Some(socket) = outcome.socket {
                socket.abort();
            }
        }
    }
}

/// A connection as a visitor's would be, but for nobody. `port` is another than the service's own. The caller bounds the time.
pub(crate) async fn dial_to_check(
    agent: &Agent,
    service: &Service,
    port: Option<u16>,
) -> Result<net::Stream, LocalError> {
    let header = StreamHeader {
        service: ServiceId(0),
        protocol: StreamProtocol::Http1,
        visitor: None,
        local: None,
        server_name: None,
    };
    open(agent, service, &header, port).await
}

async fn open(
    agent: &Agent,
    service: &Service,
    header: &StreamHeader<'_>,
    other_port: Option<u16>,
) -> Result<net::Stream, LocalError> {
    let (mut socket, tls_name) = match &service.local {
        Local::Http { host, port } | Local::Tcp { host, port } => {
            (connect(host, other_port.unwrap_or(*port)).await?, None)
        }
        Local::Https { host, port } => {
            // The visitor's own TLS is passed through; decrypted visitors are encrypted again towards the service.
            let decrypted = matches!(header.protocol, StreamProtocol::Http1 | StreamProtocol::H2c);
            let socket = connect(host, other_port.unwrap_or(*port)).await?;
            (socket, decrypted.then_some(host))
        }
        Local::Unix(path) => (
            net::connect_unix(path).await.map_err(DialError::Connect)?,
            None,
        ),
        Local::Udp { .. } | Local::Builtin(_) => return Err(LocalError::NoService),
    };
    net::tune_visitor(&socket)?;
    if let Some(version) = service.proxy_protocol {
        let mut head = Vec::new();
        write_proxy_header(version, header, &mut head);
        socket.write_all(&head).await?;
    }
    match tls_name.zip(agent.shared.tls_of(service)) {
        Some((name, tls)) => Ok(tls.connect(socket, name).await.map_err(DialError::Tls)?),
        None => Ok(socket),
    }
}

async fn dial(
    agent: &Agent,
    service: &Service,
    header: &StreamHeader<'_>,
) -> Result<net::Stream, LocalError> {
    let opening = open(agent, service, header, None);
    match service.local_timeout {
        Some(limit) => tokio::time::timeout(limit, opening)
            .await
            .map_err(|_| LocalError::Timeout(limit))?,
        None => opening.await,
    }
}

/// What must be changed in the visitor's first bytes before the streams are joined.
async fn prepare(
    service: &Service,
    header: &StreamHeader<'_>,
    stream: Stream,
    mut socket: net::Stream,
) -> io::Result<(Stream, net::Stream)> {
    // In HTTP mode the server writes it, into every request.
    let here = service.use_local_as_http_host && !service.http_mode;
    if !here || header.protocol != StreamProtocol::Http1 {
        return Ok((stream, socket));
    }
    let (stream, head) = rewrite_host(stream, &authority(&service.local)).await?;
    socket.write_all(&head).await?;
    socket.flush().await?;
    Ok((stream, socket))
}

/// The local address as it would stand in a Host header.
pub(crate) fn authority(local: &Local) -> String {
    let (host, port, usual) = match local {
        Local::Http { host, port } => (host, *port, 80),
        Local::Https { host, port } => (host, *port, 443),
        Local::Tcp { host, port } | Local::Udp { host, port } => (host, *port, 0),
        Local::Unix(_) | Local::Builtin(_) => return "localhost".to_owned(),
    };
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.clone()
    };
    if port == usual {
        host
    } else {
        format!("{host}:{port}")
    }
}

/// Says that the addresses are unknown where they are: a service that trusts the header must not take 0.0.0.0 for a visitor.
fn write_proxy_header(version: ProxyProtocol, header: &StreamHeader<'_>, out: &mut Vec<u8>) {
    use sniff::proxy::{write_v1, write_v1_unknown, write_v2, write_v2_local};
    match (version, header.visitor.zip(header.local)) {
        (ProxyProtocol::V1, Some((source, destination))) => write_v1(source, destination, out),
        (ProxyProtocol::V2, Some((source, destination))) => write_v2(source, destination, out),
        (ProxyProtocol::V1, None) => write_v1_unknown(out),
        (ProxyProtocol::V2, None) => write_v2_local(out),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn written(
        version: ProxyProtocol,
        visitor: Option<SocketAddr>,
        local: Option<SocketAddr>,
    ) -> Vec<u8> {
        let header = StreamHeader {
            service: ServiceId(1),
            protocol: StreamProtocol::Tcp,
            visitor,
            local,
            server_name: None,
        };
        let mut out = Vec::new();
        write_proxy_header(version, &header, &mut out);
        out
    }

    #[test]
    fn known_addresses_are_told_to_the_service() {
        let (visitor, local) = ("192.0.2.1:5".parse().ok(), "198.51.100.1:80".parse().ok());
        assert_eq!(
            written(ProxyProtocol::V1, visitor, local),
            b"PROXY TCP4 192.0.2.1 198.51.100.1 5 80\r\n"
        );
        assert_eq!(
            written(ProxyProtocol::V2, visitor, local)[12..16],
            [0x21, 0x11, 0, 12]
        );
    }

    #[test]
    fn unknown_addresses_are_called_unknown_and_never_zero() {
        let address = "192.0.2.1:5".parse().ok();
        for (visitor, local) in [(None, None), (None, address), (address, None)] {
            assert_eq!(
                written(ProxyProtocol::V1, visitor, local),
                b"PROXY UNKNOWN\r\n"
            );
            // PROXY v2 §2.2: version 2, command LOCAL, no addresses.
            assert_eq!(
                written(ProxyProtocol::V2, visitor, local)[12..],
                [0x20, 0, 0, 0]
            );
        }
    }
}
