//! What passes through untouched is in the access log too; and what a listener says to those who speak something else.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener},
};

use e2e::{Process, Service, TempDir, http, wait};

use super::address;

fn start(listener: &str, to: SocketAddr, format: &str) -> Process {
    let dir = TempDir::new();
    let text = format!(
        "type: proxy\nproxy:\n  accessLog: {{path: access.log, format: {format}}}\n  upstreams: {{one: {{servers: \"{to}\"}}}}\n  \
         listeners: [{{addr: \"127.0.0.1:0\", {listener}}}]\n"
    );
    let file = dir.file("proxy.yml", text);
    let args = ["proxy".as_ref(), "-c".as_ref(), file.as_os_str()];
    Process::gt("proxy", args, dir)
}

fn line(gt: &Process) -> String {
    let path = gt.dir().path().join("access.log");
    wait::until("a line of the log", || {
        let text = fs::read_to_string(&path).ok()?;
        text.lines().next().map(str::to_owned)
    })
}

#[test]
fn streams_are_in_the_access_log() {
    let service = Service::echo();
    let gt = start("protocol: tcp, to: one", service.address(), "json");
    let at = address(&gt);
    let mut visitor = http::connect(at).expect("connected");
    visitor.write_all(b"five!").expect("sent");
    visitor.shutdown(Shutdown::Write).expect("half closed");
    let mut back = String::new();
    visitor.read_to_string(&mut back).expect("an echo");
    assert_eq!(back, "five!");
    let line = line(&gt);
    for part in [
        "\"method\":\"TCP\"",
        "\"visitor\":\"127.0.0.1\"",
        "\"sent\":5,\"received\":5",
        "\"headSeconds\":",
        "\"end\":\"--\"",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(line.contains(&format!("\"target\":\"{at}\"")), "{line}");
    let upstream = format!("\"upstream\":\"{}", service.address());
    assert!(line.contains(&upstream), "{line}");
}

#[test]
fn a_stream_that_reaches_no_server_is_in_the_access_log() {
    // Bound and let go: nobody listens there.
    let dead = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let dead = dead.expect("an address");
    let gt = start("protocol: tcp, to: one", dead, "combined");
    // The reset may come before this end has looked whether it is connected.
    if let Ok(mut visitor) = http::connect(address(&gt)) {
        let _ = visitor.read(&mut [0]);
    }
    let line = line(&gt);
    assert!(line.contains("\"TCP 127.0.0.1:"), "{line}");
    assert!(line.ends_with(" end=SC"), "{line}");
}

/// RFC 9113 §3.4: what is no preface ends the connection in HTTP/2's words; a request that is only wrong has an answer in HTTP/1's.
#[test]
fn what_is_neither_http1_nor_a_preface_is_told_so_in_http2() {
    let service = Service::text("hello");
    let to = service.address().to_string();
    let args = ["proxy", "--listen", "127.0.0.1:0", "--to", &to];
    let gt = Process::gt("proxy", args, TempDir::new());
    let said = |bytes: &[u8]| {
        let mut visitor = http::connect(address(&gt)).expect("connected");
        visitor.write_all(bytes).expect("sent");
        let mut back = Vec::new();
        let _ = visitor.read_to_end(&mut back);
        back
    };
    let goaway = [
        0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
    ];
    for other in [
        &b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"[..],
        b"PRI * HTTP/3.0\r\n\r\n",
        b"INVALID CONNECTION PREFACE\r\n\r\n",
    ] {
        assert_eq!(said(other), goaway, "{}", String::from_utf8_lossy(other));
    }
    for wrong in [
        &b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"[..],
        b"G@T / HTTP/1.1\r\n\r\n",
        b"GET /#there HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let back = said(wrong);
        assert!(
            back.starts_with(b"HTTP/1.1 400 "),
            "{}",
            String::from_utf8_lossy(&back)
        );
    }
}
