//! HTTP/3 visitors of others before `gt proxy` and before a relayed service: a browser, curl as a browser says it, and aioquic.
//!
//! ```text
//!  Chromium, curl_cffi, aioquic ─► gt proxy (https, http3: true) ──────────────► pages, WebSocket
//!  Chromium, crate quic ─► gt server (tlsAddr, or a listener of its proxy section) ═► gt client ─► pages
//! ```
//!
//! A program that cannot be had is said loudly, and fails the test in a CI. Python's packages are installed below the target directory.

mod browser;
mod chromium;
mod python;
mod server;

use std::{io, net::SocketAddr, process::Command};

use e2e::{Cert, Process, Service, TempDir, relay::field};
use tungstenite::{Message, accept};

/// The name that all of them ask for.
const HOST: &str = "gt.test";

/// A site behind `gt proxy`: pages, and at `/chat` a WebSocket that sends messages back.
struct Site {
    gt: Process,
    address: SocketAddr,
    cert: Cert,
    _services: [Service; 2],
}

impl Site {
    fn start() -> Self {
        let (pages, chat) = (pages(), chat());
        let cert = certificate();
        let dir = TempDir::new();
        let file = dir.file(
            "proxy.yml",
            format!(
                "type: proxy\nproxy:\n  listeners: [{}]\n  routes:\n    - {{path: /chat, to: \"{}\"}}\n    - {{to: \"{}\"}}\n",
                listener(&cert),
                chat.address(),
                pages.address(),
            ),
        );
        let args = ["proxy".as_ref(), "-c".as_ref(), file.as_os_str()];
        let gt = Process::gt("proxy", args, dir);
        Self {
            address: listening(&gt),
            gt,
            cert,
            _services: [pages, chat],
        }
    }
}

fn certificate() -> Cert {
    Cert::self_signed(&[HOST, "localhost", "127.0.0.1"])
}

/// An https listener with HTTP/3.
fn listener(cert: &Cert) -> String {
    format!(
        "{{addr: \"{}\", certFile: {}, keyFile: {}, http3: true}}",
        free_port(),
        cert.cert_file().display(),
        cert.key_file().display()
    )
}

/// A port that is free over TCP and UDP: asked for any, the proxy takes one of TCP's, and another program may have that over UDP.
fn free_port() -> SocketAddr {
    loop {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = udp.local_addr().expect("its address");
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

fn listening(gt: &Process) -> SocketAddr {
    let line = gt.wait_log(&["listening", "option=\"listeners\""]);
    let address = field(&line, "address").expect("an address");
    address.parse().expect("an address")
}

/// A page at `/`, the request's length at `/length`, the method and body at `/echo`, `n` bytes at `/bytes/n`.
fn pages() -> Service {
    Service::http(|exchange| match exchange.target.as_str() {
        "/" => {
            let page = "<!doctype html><title>gt</title><p>a page</p>";
            exchange.write(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}",
                page.len()
            ))
        }
        "/length" => {
            let (length, _) = exchange.digest()?;
            exchange.respond(200, length.to_string())
        }
        "/echo" => {
            let body = exchange.content()?;
            let method = exchange.method.clone();
            exchange.respond(200, [method.as_bytes(), b" ", &body].concat())
        }
        target => match target.strip_prefix("/bytes/").map(str::parse::<usize>) {
            Some(Ok(length)) => exchange.respond(200, vec![b'x'; length]),
            _ => exchange.respond(404, ""),
        },
    })
}

/// Echoes messages.
fn chat() -> Service {
    Service::tcp(|stream| {
        let mut socket = accept(stream).map_err(io::Error::other)?;
        loop {
            match socket.read().map_err(io::Error::other)? {
                message @ (Message::Text(_) | Message::Binary(_)) => {
                    socket.send(message).map_err(io::Error::other)?;
                }
                _ => socket.flush().map_err(io::Error::other)?,
            }
        }
    })
}

/// SHA-256 of a certificate's public key, in Base64, as Chromium wants it.
fn key_digest(cert: &Cert) -> String {
    let pipe = "openssl x509 -in \"$0\" -noout -pubkey | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64";
    let output = Command::new("sh")
        .args(["-c", pipe])
        .arg(cert.cert_file())
        .output()
        .expect("sh and openssl");
    let digest = String::from_utf8(output.stdout).expect("text");
    assert_eq!(digest.trim().len(), 44, "openssl says {digest:?}");
    digest.trim().to_owned()
}
