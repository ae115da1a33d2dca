//! What the tests share: a worker's runtime, connected streams of every kind, seeded randomness.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "each test file uses its own part, and ends where a helper fails"
)]

use std::future::Future;
use std::net::SocketAddr;

use net::tls::{
    Certificate, TlsAcceptor, TlsClientOptions, TlsConnector, TlsServerOptions, Trust, self_signed,
};
use net::{Acceptor, Stream, connect_tcp, listen_tcp_group, ws};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, LocalOptions};

/// Runs a test the way a worker runs its tasks.
pub(crate) fn on_worker<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap()
        .block_on(test)
}

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A listener and its address.
pub(crate) fn listener() -> (Acceptor, SocketAddr) {
    let acceptor = Acceptor::new(listen_tcp_group(loopback(), 1).unwrap().remove(0)).unwrap();
    let addr = acceptor.local_addr().unwrap();
    (acceptor, addr)
}

/// (client, server)
pub(crate) async fn tcp_pair() -> (Stream, Stream) {
    let (mut acceptor, addr) = listener();
    let client = connect_tcp(&[addr], None).await.unwrap();
    let (server, _) = acceptor.accept().await.unwrap();
    (client, server)
}

pub(crate) fn certificate(names: &[&str]) -> Certificate {
    self_signed(
        &names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>(),
    )
    .unwrap()
}

pub(crate) fn acceptor(certificates: Vec<Certificate>) -> TlsAcceptor {
    TlsAcceptor::new(&TlsServerOptions {
        certificates,
        ..TlsServerOptions::default()
    })
    .unwrap()
}

pub(crate) fn trusting() -> TlsConnector {
    let options = TlsClientOptions {
        trust: Trust::InsecureNoVerification,
        ..TlsClientOptions::default()
    };
    TlsConnector::new(&options).unwrap()
}

/// TLS over what `below` gives.
pub(crate) async fn tls_over((client, server): (Stream, Stream)) -> (Stream, Stream) {
    let acceptor = acceptor(vec![certificate(&["localhost"])]);
    let connector = trusting();
    let (client, server) = tokio::join!(
        connector.connect(client, "localhost"),
        acceptor.accept(server)
    );
    (client.unwrap(), server.unwrap())
}

/// WebSocket over what `below` gives.
pub(crate) async fn ws_over((client, server): (Stream, Stream)) -> (Stream, Stream) {
    let (client, server) = tokio::join!(
        ws::connect(client, "localhost", "/"),
        ws::accept(server, b"")
    );
    (client.unwrap(), server.unwrap())
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport {
    Tcp,
    Unix,
    Tls,
    Ws,
    Wss,
    TlsOverUnix,
}

pub(crate) const ALL: [Transport; 6] = [
    Transport::Tcp,
    Transport::Unix,
    Transport::Tls,
    Transport::Ws,
    Transport::Wss,
    Transport::TlsOverUnix,
];

/// (client, server)
pub(crate) async fn pair(transport: Transport) -> (Stream, Stream) {
    match transport {
        Transport::Tcp => tcp_pair().await,
        Transport::Unix => Stream::pair().unwrap(),
        Transport::Tls => tls_over(tcp_pair().await).await,
        Transport::Ws => ws_over(tcp_pair().await).await,
        Transport::Wss => ws_over(tls_over(tcp_pair().await).await).await,
        Transport::TlsOverUnix => tls_over(Stream::pair().unwrap()).await,
    }
}

/// Randomness that a failed run can be repeated with.
pub(crate) fn seeded(test: &str) -> StdRng {
    let seed = std::env::var("NET_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random::<u64>);
    println!("replay: NET_SEED={seed} cargo test -p net {test}");
    StdRng::seed_from_u64(seed)
}

/// The byte at `position` of an endless pattern without short periods, so that loss, repetition and reordering show.
pub(crate) fn pattern(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Writes `total` bytes of the pattern in pieces of odd sizes, then ends the direction.
pub(crate) async fn send_pattern<W: tokio::io::AsyncWrite + Unpin>(
    to: &mut W,
    total: u64,
    mut rng: StdRng,
) {
    let mut sent = 0;
    while sent < total {
        let most = max_piece(&mut rng);
        let len = rng.random_range(1..=most).min(total - sent);
        let piece: Vec<u8> = (sent..sent + len).map(pattern).collect();
        to.write_all(&piece).await.unwrap();
        sent += len;
    }
    to.shutdown().await.unwrap();
}

/// Reads the pattern in pieces of odd sizes until the end, which must come after `total` bytes.
pub(crate) async fn expect_pattern<R: tokio::io::AsyncRead + Unpin>(
    from: &mut R,
    total: u64,
    mut rng: StdRng,
) {
    let mut seen = 0;
    let mut buf = vec![0; 100_000];
    loop {
        let most = max_piece(&mut rng);
        let room = rng.random_range(1..=most) as usize;
        let n = from.read(&mut buf[..room]).await.unwrap();
        if n == 0 {
            break;
        }
        for (index, byte) in buf[..n].iter().enumerate() {
            assert_eq!(
                *byte,
                pattern(seen + index as u64),
                "byte {}",
                seen + index as u64
            );
        }
        seen += n as u64;
    }
    assert_eq!(seen, total);
}

/// Mostly large, sometimes tiny.
fn max_piece(rng: &mut StdRng) -> u64 {
    if rng.random_bool(0.05) { 5 } else { 100_000 }
}
