//! Both ends of a QUIC link in one thread, without the handshake of the relay protocol.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{cell::RefCell, future::Future, net::SocketAddr, path::PathBuf, rc::Rc, time::Duration};

use link::{
    Fec, Handler, Link, LinkEnd, LinkOptions, Side, Stream, Transport,
    quic::{client_transport, server_transport},
};
use net::tls::{TlsClientOptions, TlsServerOptions, Trust};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
};

/// Hands on what it is told.
pub(crate) struct Told {
    pub(crate) streams: mpsc::UnboundedSender<(Vec<u8>, Stream)>,
    pub(crate) messages: RefCell<Vec<Vec<u8>>>,
}

impl Handler for Told {
    fn opened(&self, _: &Link, header: Vec<u8>, stream: Stream) {
        let _ = self.streams.send((header, stream));
    }

    fn control(&self, _: &Link, message: &[u8]) {
        self.messages.borrow_mut().push(message.to_vec());
    }
}

/// One end of a link that runs.
pub(crate) struct EndOfLink {
    pub(crate) link: Link,
    pub(crate) told: Rc<Told>,
    pub(crate) streams: mpsc::UnboundedReceiver<(Vec<u8>, Stream)>,
    pub(crate) ended: tokio::task::JoinHandle<LinkEnd>,
    pub(crate) connection: quic::Connection,
}

impl EndOfLink {
    pub(crate) fn start(
        transport: Transport,
        side: Side,
        max_streams: usize,
        fec: Option<Fec>,
    ) -> Self {
        let connection = transport.as_quic().expect("QUIC").clone();
        let (sender, streams) = mpsc::unbounded_channel();
        let told = Rc::new(Told {
            streams: sender,
            messages: RefCell::default(),
        });
        let options = LinkOptions {
            side,
            config: mux::Config {
                max_streams,
                ..mux::Config::default()
            },
            sweep_every: Duration::from_millis(100),
            fec,
        };
        let (link, driver) = Link::start(transport, &options, Rc::clone(&told) as Rc<dyn Handler>);
        Self {
            link,
            told,
            streams,
            ended: tokio::task::spawn_local(driver),
            connection,
        }
    }

    pub(crate) async fn next(&mut self) -> (Vec<u8>, Stream) {
        self.streams.recv().await.expect("a stream")
    }
}

struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A connection: the client's end and the server's.
/// The client sends to what `via` makes of the server's address.
pub(crate) async fn connect(
    via: impl FnOnce(SocketAddr) -> SocketAddr,
) -> (quic::Connection, quic::Connection) {
    connect_with(false, via).await
}

/// The same with BBR at both ends, or CUBIC.
async fn connect_with(
    bbr: bool,
    via: impl FnOnce(SocketAddr) -> SocketAddr,
) -> (quic::Connection, quic::Connection) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a key");
    let mark: u64 = rand::random();
    let files = Files(std::env::temp_dir().join(format!("gt-link-{mark:x}")));
    std::fs::create_dir(&files.0).expect("a folder");
    let (cert, key) = (files.0.join("cert.pem"), files.0.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let tls = quic::ServerTls::new(&TlsServerOptions {
        certificates: vec![net::tls::load_certificates(&cert, &key).expect("a pair")],
        alpn: vec![tunnel::ALPN.to_vec()],
        ..TlsServerOptions::default()
    });
    let config = quic::Config {
        transport: server_transport(bbr),
        ..quic::Config::default()
    };
    let address: SocketAddr = ([127, 0, 0, 1], 0).into();
    let tls = tls.expect("TLS");
    let server = quic::Server::bind(&net::OwnSockets, "", address, 1, tls, config).expect("a port");
    let address = via(server.local_addr());
    let shard = server.shards().expect("sockets").remove(0);
    let endpoint = shard.start().expect("an endpoint");
    let client = quic::Client::new(quic::ClientConfig {
        tls: TlsClientOptions {
            trust: Trust::OnlyFile(cert),
            ..TlsClientOptions::default()
        },
        transport: client_transport(bbr, Duration::from_secs(5), Duration::from_secs(1)),
        ..quic::ClientConfig::default()
    });
    let client = client.expect("a client");
    let (near, far) = tokio::join!(
        client.connect(address, "localhost", &[tunnel::ALPN]),
        endpoint.accept()
    );
    let far = far.expect("a connection").connection;
    // Both keep their sockets as long as they live; the listener may go.
    (near.expect("a connection"), far)
}

pub(crate) async fn pair(max_streams: usize) -> (EndOfLink, EndOfLink) {
    pair_through(|address| address, max_streams, None, false).await
}

/// Both ends send their datagrams like that.
pub(crate) async fn pair_through(
    via: impl FnOnce(SocketAddr) -> SocketAddr,
    max_streams: usize,
    fec: Option<Fec>,
    bbr: bool,
) -> (EndOfLink, EndOfLink) {
    let (near, far) = connect_with(bbr, via).await;
    let near = Transport::quic_open(near).await.expect("open");
    // Its first bytes make the stream known to the server.
    let mut near = near;
    near.write_all(b"!").await.expect("written");
    let mut far = Transport::quic_accept(far).await.expect("open");
    assert_eq!(far.read_u8().await.expect("a byte"), b'!');
    let label = tunnel::EXPORTER_LABEL;
    assert!(near.channel_binding(label).is_some());
    assert_eq!(near.channel_binding(label), far.channel_binding(label));
    (
        EndOfLink::start(near, Side::Initiator, max_streams, fec),
        EndOfLink::start(far, Side::Acceptor, max_streams, fec),
    )
}

pub(crate) fn run<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    local.block_on(&runtime, limited).expect("in time");
}
