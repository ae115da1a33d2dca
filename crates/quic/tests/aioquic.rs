//! aioquic as the other side, of HTTP/3 and of a protocol without HTTP: its clients check this server, and this client asks its server.
//!
//! The peer is `testing/interop/quic/python/aio.py`; its packages are installed below the target directory.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use common::{
    on_worker,
    site::{Part, Parts, a_tunnel_follows_to, client, early_data_is_taken_from, server},
};
use http::Request;
use quic::{bytes::Bytes, http::Body};

#[test]
fn its_clients_are_content_with_this_server() {
    let server = server(|_| {});
    let steps = "methods body trailers early datagrams path keys versions cancel";
    check(server.local_addr(), steps);
}

#[test]
fn its_client_proves_its_address_where_that_is_asked() {
    let server = server(|options| options.quic.retry_from = 0);
    // Not early data: aioquic forgets what it sent before a Retry.
    check(server.local_addr(), "methods body path");
    assert!(server.stats().retried > 0);
}

#[test]
fn its_client_speaks_a_protocol_without_http() {
    let running = common::start(
        2,
        common::tls(&[quic::ALPN_H3, b"raw"]),
        quic::Config::default(),
        |_, incoming| async move {
            assert_eq!(incoming.alpn, b"raw");
            let connection = incoming.connection;
            let datagrams = connection.clone();
            tokio::task::spawn_local(async move {
                while let Ok(datagram) = datagrams.read_datagram().await {
                    let _ = datagrams.send_datagram(datagram);
                }
            });
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                tokio::task::spawn_local(async move {
                    while let Ok(Some(chunk)) = receive.read_chunk(4096, true).await {
                        send.write_all(&chunk.bytes).await.unwrap();
                    }
                    let _ = send.finish();
                });
            }
        },
    );
    check(running.address(), "raw");
}

#[test]
fn its_server_is_understood() {
    for retry in [false, true] {
        let peer = Peer::start(retry);
        let port = peer.port;
        on_worker(move || async move {
            let client = client(|_| {});
            let site = format!("https://localhost:{port}");
            for method in ["GET", "POST", "DELETE"] {
                let request = Request::builder().method(method);
                let request = request.uri(format!("{site}/about")).body(Body::empty());
                let response = client.request(request.unwrap()).await.unwrap();
                assert_eq!(response.headers()["content-type"], "text/plain");
                let (said, _) = response.into_body().collect_up_to(100).await.unwrap();
                assert_eq!(said, format!("{method} HTTP/3.0 early=false"));
            }
            let data: Vec<u8> = (0..800_000u32).map(|n| (n % 251) as u8).collect();
            let response = client.post(&format!("{site}/echo"), data.clone()).await;
            let body = response.unwrap().into_body();
            let (back, _) = body.collect_up_to(data.len()).await.unwrap();
            assert!(back == data);
            let with_trailers = Body::stream(Parts([Part::Data("x"), Part::Trailer].into()));
            let response = client
                .post(&format!("{site}/trailers"), with_trailers)
                .await;
            let body = response.unwrap().into_body();
            let (said, trailers) = body.collect_up_to(100).await.unwrap();
            assert_eq!(said, "seen yes");
            assert_eq!(trailers.unwrap()["x-end"], "yes");
        });
    }
}

#[test]
fn its_server_takes_early_data() {
    let peer = Peer::start(false);
    early_data_is_taken_from(peer.port);
}

#[test]
fn its_server_tunnels_and_follows_a_changed_address() {
    let peer = Peer::start(false);
    a_tunnel_follows_to(peer.port);
}

#[test]
fn its_server_speaks_a_protocol_without_http() {
    let peer = Peer::start(false);
    let address = SocketAddr::from(([127, 0, 0, 1], peer.port));
    on_worker(move || async move {
        let client = common::client(|_| {});
        let connection = client
            .connect(address, "localhost", &[b"raw"])
            .await
            .unwrap();
        let data: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        let (sent, back) = tokio::join!(
            async {
                send.write_all(&data).await?;
                send.finish()?;
                Ok::<(), quic::quinn::WriteError>(())
            },
            receive.read_to_end(data.len() + 1)
        );
        sent.unwrap();
        assert!(back.unwrap() == data);
        for _ in 0..50 {
            connection
                .send_datagram(Bytes::from_static(b"a datagram"))
                .unwrap();
            let wait = tokio::time::timeout(Duration::from_millis(200), connection.read_datagram());
            if let Ok(datagram) = wait.await {
                assert_eq!(datagram.unwrap(), "a datagram");
                return;
            }
        }
        panic!("no datagram came back");
    });
}

/// Lets its clients ask a server in these ways.
fn check(server: SocketAddr, steps: &str) {
    let output = python()
        .args(["client", &server.port().to_string()])
        .args(steps.split(' '))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{why}");
    for step in steps.split(' ') {
        assert!(said.contains(&format!("ok {step}\n")), "{said}\n{why}");
    }
}

/// A server of the peer's; it ends when this is dropped.
struct Peer {
    child: Child,
    port: u16,
}

impl Peer {
    fn start(retry: bool) -> Self {
        let mut child = python()
            .arg("server")
            .args(retry.then_some("retry"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let port = line.trim().parse();
        Self {
            child,
            port: port.unwrap(),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `aio.py`, with its arguments to follow.
fn python() -> Command {
    let folder: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/interop/quic/python");
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("aioquic");
    let python = e2e::tools::python(&home, &folder.join("requirements.txt"));
    let mut command = Command::new(python);
    command.arg(folder.join("aio.py"));
    command
}
