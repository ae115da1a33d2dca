//! HTTP/3 visitors when the worker of their proxy is replaced: they are asked to go elsewhere, and what they asked for before is answered.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use bytes::Bytes;
use e2e::{Cert, relay::field, wait};
use http::Request;
use net::tls::{TlsClientOptions, Trust};
use quic::{
    ALPN_H3, Client, ClientConfig, VarInt,
    h3::{Settings, client::Connection},
};

use crate::rig::Gt;

/// Of a download.
const LENGTH: usize = 32 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

struct Site {
    gt: Gt,
    text: String,
    address: SocketAddr,
    _cert: Cert,
}

impl Site {
    fn start() -> Self {
        let cert = Cert::self_signed(&["localhost"]);
        let origin = origin();
        let text = format!(
            "type: proxy\noptions: {{workers: 2}}\nproxy:\n  listeners:\n    - {{addr: \"127.0.0.1:0\", certFile: \"{}\", keyFile: \"{}\", http3: true}}\n  \
             routes:\n    - {{to: \"{origin}\"}}\n",
            cert.cert_file().display(),
            cert.key_file().display()
        );
        let gt = Gt::start("proxy", &text);
        let line = gt.process.wait_log(&["listening", "option=\"listeners\""]);
        let address = field(&line, "address").and_then(|address| address.parse().ok());
        Self {
            gt,
            text,
            address: address.expect("an address"),
            _cert: cert,
        }
    }

    fn replace_worker(&self, threads: u32) {
        let text = self
            .text
            .replace("workers: 2", &format!("workers: {threads}"));
        self.gt.write(&text);
        let said = self.gt.done(&["reload"]);
        assert!(said.contains("a new worker serves"), "{said}");
    }
}

/// Sends as much as is asked for, for as long as anybody asks.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            thread::spawn(move || {
                let mut asked = [0; 4096];
                while stream.read(&mut asked).is_ok_and(|length| length > 0) {
                    let length = if asked.starts_with(b"GET /long") {
                        LENGTH
                    } else {
                        5
                    };
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                    let body: Vec<u8> = (0..length).map(byte).collect();
                    if stream
                        .write_all(head.as_bytes())
                        .and_then(|()| stream.write_all(&body))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn byte(n: usize) -> u8 {
    (n * 31 + n / 253) as u8
}

async fn connect(address: SocketAddr) -> (Client, Connection) {
    let client = Client::new(ClientConfig {
        tls: TlsClientOptions {
            trust: Trust::InsecureNoVerification,
            ..TlsClientOptions::default()
        },
        ..ClientConfig::default()
    });
    let client = client.expect("a client");
    let quinn = client.connect(address, "localhost", &[ALPN_H3]).await;
    let connection = Connection::start(quinn.expect("a connection"), Settings::default()).await;
    (client, connection.expect("HTTP/3"))
}

/// A response whose body has been read up to some byte.
struct Download {
    body: quic::h3::ReceiveHalf,
    read: usize,
}

impl Download {
    async fn start(connection: &Connection, path: &str) -> Self {
        let uri = format!("https://localhost{path}");
        let request = Request::builder().uri(uri).body(()).expect("a request");
        let pending = connection.begin(&request).await.expect("a stream");
        let (mut send, mut response) = pending.split();
        send.finish();
        assert_eq!(response.head().await.expect("an answer").status(), 200);
        let body = response.into_body();
        Self { body, read: 0 }
    }

    /// False at the end.
    async fn more(&mut self) -> bool {
        let Some(piece) = self.body.piece().await.expect("the rest of the body") else {
            return false;
        };
        if let quic::h3::Piece::Data(data) = piece {
            self.take(&data);
        }
        true
    }

    fn take(&mut self, data: &Bytes) {
        let right = data
            .iter()
            .enumerate()
            .all(|(n, got)| *got == byte(self.read + n));
        assert!(right, "other bytes from {} on", self.read);
        self.read += data.len();
    }

    async fn finish(mut self, length: usize) {
        while self.more().await {}
        assert_eq!(self.read, length);
    }
}

/// Runs `visit` on this thread.
fn local(visit: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let local = tokio::task::LocalSet::new();
    runtime.block_on(async {
        let visit = tokio::time::timeout(PATIENCE, local.run_until(visit));
        visit.await.expect("in time");
    });
}

#[test]
fn downloads_over_http3_end_as_they_began_and_idle_connections_are_sent_away() {
    local(async {
        let site = Arc::new(Site::start());
        let (first, _) = site.gt.serving();
        let mut downloads = Vec::new();
        for threads in [1, 3] {
            let (client, busy) = connect(site.address).await;
            let mut download = Download::start(&busy, "/long").await;
            // What is not read fills the windows: the rest is still to come when the worker changes.
            while download.read < LENGTH / 8 {
                assert!(download.more().await);
            }
            downloads.push((client, busy, download));
            let (idle, quiet) = connect(site.address).await;
            Download::start(&quiet, "/").await.finish(5).await;
            let replacing = tokio::task::spawn_blocking({
                let site = Arc::clone(&site);
                move || site.replace_worker(threads)
            });
            // Visitors come and go meanwhile.
            while !replacing.is_finished() {
                let (client, short) = connect(site.address).await;
                Download::start(&short, "/").await.finish(5).await;
                client.close(VarInt::from_u32(0), b"", PATIENCE).await;
            }
            replacing.await.expect("replaced");
            // GOAWAY, and the end of a connection that nobody needs any more.
            assert!(matches!(
                quiet.quinn().closed().await,
                quic::ConnectionError::ApplicationClosed(_)
            ));
            assert!(!downloads.iter().any(|(_, busy, _)| busy.takes_requests()));
            idle.close(VarInt::from_u32(0), b"", PATIENCE).await;
        }
        assert_eq!(site.gt.workers().len(), 3, "two of them drain");
        for (client, connection, download) in downloads {
            download.finish(LENGTH).await;
            connection.quinn().closed().await;
            client.close(VarInt::from_u32(0), b"", PATIENCE).await;
        }
        let gone = || site.gt.workers().iter().all(|(pid, ..)| *pid != first);
        wait::until("the old workers end", || gone().then_some(()));
    });
}
