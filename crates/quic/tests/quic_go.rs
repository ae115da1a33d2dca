//! quic-go as the other side: its client checks this server, and this client asks its server.
//!
//! The peer is built from `testing/interop/quic`. Without Go the tests say so loudly and pass.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use common::{
    on_worker,
    site::{Part, Parts, a_tunnel_follows_to, client, early_data_is_taken_from, server},
};
use http::Request;
use quic::http::Body;
use testkit::Go;

#[test]
fn its_client_is_content_with_this_server() {
    let Some(peer) = peer() else { return };
    let server = server(|_| {});
    let output = Command::new(peer)
        .arg("client")
        .arg(server.local_addr().to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    for step in ["methods", "body", "trailers", "early", "datagrams", "path"] {
        assert!(said.contains(&format!("ok {step}\n")), "{said}");
    }
}

#[test]
fn its_server_is_understood() {
    let Some(peer) = peer() else { return };
    let (_running, port) = start(peer);
    on_worker(move || async move {
        let client = client(|_| {});
        let about = format!("https://localhost:{port}/about");
        for method in ["GET", "POST", "DELETE"] {
            let request = Request::builder()
                .method(method)
                .uri(&about)
                .body(Body::empty());
            let response = client.request(request.unwrap()).await.unwrap();
            let (said, _) = response.into_body().collect_up_to(100).await.unwrap();
            assert_eq!(said, format!("{method} HTTP/3.0 early=false"));
        }
        let data: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
        let response = client
            .post(&about.replace("about", "echo"), data.clone())
            .await
            .unwrap();
        let (back, _) = response
            .into_body()
            .collect_up_to(data.len())
            .await
            .unwrap();
        assert!(back == data);
        let with_trailers = Body::stream(Parts([Part::Data("x"), Part::Trailer].into()));
        let response = client
            .post(&about.replace("about", "trailers"), with_trailers)
            .await;
        let (said, trailers) = response
            .unwrap()
            .into_body()
            .collect_up_to(100)
            .await
            .unwrap();
        assert_eq!(said, "seen yes");
        assert_eq!(trailers.unwrap()["x-end"], "yes");
    });
}

#[test]
fn its_server_takes_early_data() {
    let Some(peer) = peer() else { return };
    let (_running, port) = start(peer);
    early_data_is_taken_from(port);
}

#[test]
fn its_server_tunnels_and_follows_a_changed_address() {
    let Some(peer) = peer() else { return };
    let (_running, port) = start(peer);
    a_tunnel_follows_to(port);
}

/// A server of the peer's; it ends when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(peer: &Path) -> (Running, u16) {
    let mut child = Command::new(peer)
        .arg("server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let running = Running(child);
    (running, line.trim().parse().unwrap())
}

/// The program, built once; `None` without Go.
fn peer() -> Option<&'static Path> {
    static PEER: OnceLock<Option<PathBuf>> = OnceLock::new();
    PEER.get_or_init(|| {
        let go = Go {
            module: "quic",
            package: "./peer",
            flags: &[],
        };
        go.build_or_skip(env!("CARGO_TARGET_TMPDIR"), "quic-go-peer", "quic-go")
    })
    .as_deref()
}
