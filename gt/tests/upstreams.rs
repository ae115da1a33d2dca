//! What `gt proxy` speaks with servers that are programs of others: HTTP/2 without TLS, with it, and what TLS agrees on.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use bytes::Bytes;
use e2e::{
    Cert, Nginx, PATIENCE, Process, Service, TempDir, http as plain, pattern::Pattern, relay::field,
};
use h2::{SendStream, client::SendRequest};
use http::Request;
use testkit::Go;
use tokio::net::TcpStream;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Go's HTTP/2 server, built once; `None` without Go.
fn peer() -> Option<&'static Path> {
    static PEER: OnceLock<Option<PathBuf>> = OnceLock::new();
    PEER.get_or_init(|| {
        let go = Go {
            module: "h2",
            package: ".",
            flags: &[],
        };
        go.build_or_skip(env!("CARGO_TARGET_TMPDIR"), "h2-peer", "Go's HTTP/2")
    })
    .as_deref()
}

/// A running peer; ended when dropped.
struct Peer {
    child: std::process::Child,
    port: u16,
}

impl Peer {
    fn start(tls: Option<&Cert>) -> Option<Self> {
        let mut command = Command::new(peer()?);
        if let Some(cert) = tls {
            command.args([cert.cert_file(), cert.key_file()]);
        }
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the peer runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("a port");
        let port = line.trim().parse().expect("a port");
        Some(Self { child, port })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A proxy with one upstream.
fn proxy(upstream: &str) -> (Process, SocketAddr) {
    let dir = TempDir::new();
    let file = dir.file(
        "proxy.yml",
        format!(
            "type: proxy\nproxy:\n  listeners: [{{addr: \"127.0.0.1:0\"}}]\n  upstreams: {{app: {upstream}}}\n  routes: [{{to: app}}]\n"
        ),
    );
    let args = ["proxy".as_ref(), "-c".as_ref(), file.as_os_str()];
    let gt = Process::gt("gt proxy", args, dir);
    let line = gt.wait_log(&["listening", "option=\"listeners\""]);
    let at = field(&line, "address").expect("an address");
    let at = at.parse().expect("an address");
    (gt, at)
}

fn run(visit: impl Future<Output = Result<(), Failure>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let visited = runtime.block_on(async { tokio::time::timeout(PATIENCE, visit).await });
    visited.expect("in time").expect("no failure");
}

async fn connect(at: SocketAddr) -> Result<SendRequest<Bytes>, Failure> {
    let (sender, connection) = h2::client::handshake(TcpStream::connect(at).await?).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn send(out: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), Failure> {
    while !bytes.is_empty() {
        out.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|cx| out.poll_capacity(cx)).await;
        out.send_data(
            bytes.split_to(room.ok_or("reset")??.min(bytes.len())),
            false,
        )?;
    }
    Ok(())
}

/// A gRPC-like call: each message comes back before the next is sent; then trailers.
async fn call(sender: SendRequest<Bytes>, seed: u64, messages: usize) -> Result<(), Failure> {
    let request = Request::post("http://app.test/echo.Echo/Chat")
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(())?;
    let (answer, mut out) = sender.ready().await?.send_request(request, false)?;
    let answer = answer.await?;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["x-proto"], "HTTP/2.0");
    assert_eq!(answer.headers()["x-seen-for"], "127.0.0.1");
    assert_eq!(answer.headers()["x-seen-te"], "trailers");
    assert_eq!(answer.headers()["x-seen-host"], "app.test");
    let mut back = answer.into_body();
    let (mut pattern, mut length) = (Pattern::new(seed), 0);
    for n in 0..messages {
        let message = Bytes::from(pattern.bytes(1 + n * 331 % 20_000));
        length += message.len();
        send(&mut out, message.clone()).await?;
        let mut got = Vec::new();
        while got.len() < message.len() {
            let piece = back.data().await.ok_or("the call ended early")??;
            back.flow_control().release_capacity(piece.len())?;
            got.extend_from_slice(&piece);
        }
        assert!(
            got == message,
            "message {n} of call {seed} came back changed"
        );
    }
    out.send_data(Bytes::new(), true)?;
    assert!(back.data().await.is_none());
    let trailers = back.trailers().await?.ok_or("no trailers")?;
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["x-length"], length.to_string());
    Ok(())
}

async fn calls(at: SocketAddr) -> Result<(), Failure> {
    let sender = connect(at).await?;
    // A unary call first, then several that stream at the same time.
    call(sender.clone(), 100, 1).await?;
    let calls: Vec<_> = (0..8)
        .map(|seed| tokio::spawn(call(sender.clone(), seed, 40)))
        .collect();
    for call in calls {
        call.await??;
    }
    Ok(())
}

#[test]
fn calls_reach_a_go_server_over_http2_without_tls() {
    let Some(peer) = Peer::start(None) else {
        return;
    };
    let (_gt, at) = proxy(&format!(
        "{{servers: \"127.0.0.1:{}\", protocol: h2c}}",
        peer.port
    ));
    run(calls(at));
}

#[test]
fn calls_reach_a_go_server_over_tls() {
    let cert = Cert::self_signed(&["localhost"]);
    let Some(peer) = Peer::start(Some(&cert)) else {
        return;
    };
    for protocol in ["h2", "auto"] {
        let (_gt, at) = proxy(&format!(
            "{{servers: \"https://localhost:{}\", protocol: {protocol}, tls: {{ca: \"{}\"}}}}",
            peer.port,
            cert.cert_file().display()
        ));
        run(calls(at));
    }
    // Whoever is not believed gets nothing.
    let (_gt, at) = proxy(&format!(
        "{{servers: \"https://localhost:{}\", protocol: h2}}",
        peer.port
    ));
    assert_eq!(
        plain::get(at, "app.test", "/").expect("an answer").status,
        502
    );
}

#[test]
fn auto_speaks_http1_where_the_server_does() {
    let cert = Cert::self_signed(&["localhost"]);
    let service = Service::https(&cert, |exchange| {
        exchange.discard()?;
        exchange.respond(200, "one")
    });
    let (_gt, at) = proxy(&format!(
        "{{servers: \"https://localhost:{}\", protocol: auto, tls: {{ca: \"{}\"}}}}",
        service.address().port(),
        cert.cert_file().display()
    ));
    for _ in 0..3 {
        assert_eq!(
            plain::get(at, "app.test", "/").expect("an answer").text(),
            "one"
        );
    }
}

#[test]
fn nginx_is_spoken_to_in_http2() {
    let block = "listen {listen} http2; root files; location = /proto { return 200 \"$server_protocol $http_host $http_x_forwarded_for\"; }";
    let length = 3 << 20;
    let nginx = Nginx::start(&[block], |dir| {
        let file = std::fs::File::create(dir.path().join("files/big")).expect("a file");
        Pattern::new(5).write_to(file, length).expect("written");
    });
    let (_gt, at) = proxy(&format!(
        "{{servers: \"{}\", protocol: h2c, health: {{path: /proto}}}}",
        nginx.address(0)
    ));
    let answer = plain::get(at, "app.test", "/proto").expect("an answer");
    assert_eq!(answer.text(), "HTTP/2.0 app.test 127.0.0.1");
    let mut visitor = e2e::HttpConn::new(plain::connect(at).expect("a connection"));
    for _ in 0..3 {
        visitor
            .send("GET /big HTTP/1.1\r\nHost: app.test\r\n\r\n")
            .expect("sent");
        let (head, got, digest) = visitor.digest().expect("an answer");
        assert_eq!((head.status, got), (200, length));
        assert_eq!(digest, e2e::pattern::Sha256::of_pattern(5, length));
    }
    assert_eq!(
        visitor.get("app.test", "/none").expect("an answer").status,
        404
    );
}
