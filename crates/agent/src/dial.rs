//! Connects to a server by any transport a remote may name: the result is a byte stream on which the handshake can begin.

use std::{io, net::SocketAddr, time::Duration};

use config::{Remote, Scheme};
use link::Transport;
use net::{
    LinkTuning, Stream,
    tls::{TlsConnector, TlsError},
    ws::WsError,
};

/// Why a server could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error("the name {host:?} could not be looked up: {error}")]
    Lookup {
        /// The name.
        host: String,
        /// The resolver's answer.
        error: io::Error,
    },
    /// No address accepted a connection.
    #[error("could not connect: {0}")]
    Connect(io::Error),
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The WebSocket handshake failed.
    #[error("WebSocket: {0}")]
    Ws(#[from] WsError),
    /// The QUIC connection failed.
    #[error("QUIC: {0}{hint}", hint = hint(.0))]
    Quic(#[from] quic::ConnectError),
    /// It took too long.
    #[error("no answer in time")]
    Timeout,
}

fn hint(error: &quic::ConnectError) -> &'static str {
    match error {
        quic::ConnectError::Silence { .. } => ": is quicAddr open in the firewall, for UDP?",
        _ => "",
    }
}

/// How links are dialled, whatever the transport.
#[derive(Clone, Debug)]
pub(crate) struct Dialler {
    pub(crate) tls: TlsConnector,
    pub(crate) kcp: config::Kcp,
    pub(crate) quic: quic::ClientConfig,
}

/// Opens the transport. The caller bounds its time.
pub(crate) async fn dial(remote: &Remote, dialler: &Dialler) -> Result<Transport, DialError> {
    if remote.scheme == Scheme::Quic {
        // The connection keeps its socket.
        let (connection, _client) = dial_quic(remote, dialler).await?;
        let transport = Transport::quic_open(connection).await;
        return Ok(transport.map_err(quic::ConnectError::from)?);
    }
    Ok(dial_stream(remote, dialler).await?.into())
}

/// Connects to the first of the host's addresses that answers. Each link has a socket of its own, so that a server's workers share the links, and
/// networks their packets.
pub(crate) async fn dial_quic(
    remote: &Remote,
    dialler: &Dialler,
) -> Result<(quic::Connection, quic::Client), DialError> {
    let client = quic::Client::new(dialler.quic.clone()).map_err(quic::ConnectError::from)?;
    let addresses = lookup(&remote.host, remote.port).await?;
    let Some((last, others)) = addresses.split_last() else {
        return Err(DialError::Connect(io::ErrorKind::NotFound.into()));
    };
    for address in others {
        let attempt = client.connect(*address, &remote.host, &[tunnel::ALPN]);
        if let Ok(Ok(connection)) = tokio::time::timeout(ATTEMPT, attempt).await {
            return Ok((connection, client));
        }
    }
    let connection = client.connect(*last, &remote.host, &[tunnel::ALPN]).await?;
    Ok((connection, client))
}

pub(crate) async fn dial_stream(remote: &Remote, dialler: &Dialler) -> Result<Stream, DialError> {
    let Dialler { tls, kcp, .. } = dialler;
    if remote.scheme == Scheme::Kcp {
        let options = net::kcp::options(kcp.mode, kcp.fec, usize::from(kcp.mtu));
        let addresses = lookup(&remote.host, remote.port).await?;
        return net::kcp::connect(&addresses, &options)
            .await
            .map_err(DialError::Connect);
    }
    let tcp = connect(&remote.host, remote.port).await?;
    let tuning = LinkTuning {
        notsent_lowat: Some(link::UNSENT),
        ..LinkTuning::default()
    };
    net::tune_link(&tcp, &tuning).map_err(DialError::Connect)?;
    let stream = if remote.scheme.is_encrypted() {
        tls.connect(tcp, &remote.host).await?
    } else {
        tcp
    };
    match remote.scheme {
        Scheme::Tcp | Scheme::Tls | Scheme::Kcp | Scheme::Quic => Ok(stream),
        Scheme::Ws | Scheme::Wss => {
            let usual = if remote.scheme == Scheme::Wss {
                443
            } else {
                80
            };
            let host = if remote.host.contains(':') {
                format!("[{}]", remote.host)
            } else {
                remote.host.clone()
            };
            let host = if remote.port == usual {
                host
            } else {
                format!("{host}:{}", remote.port)
            };
            Ok(net::ws::connect_protocol(
                stream,
                &host,
                &remote.path,
                Some(tunnel::WEBSOCKET_PROTOCOL),
            )
            .await?)
        }
    }
}

/// Connects to any address of a host.
pub(crate) async fn connect(host: &str, port: u16) -> Result<Stream, DialError> {
    net::connect_tcp(&lookup(host, port).await?, None)
        .await
        .map_err(DialError::Connect)
}

async fn lookup(host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let failed = |error| DialError::Lookup {
        host: host.to_owned(),
        error,
    };
    let found = net::lookup_host((host, port)).await.map_err(failed)?;
    Ok(found.collect())
}

/// How long an address that is not the last one is tried over QUIC.
const ATTEMPT: Duration = Duration::from_secs(3);
