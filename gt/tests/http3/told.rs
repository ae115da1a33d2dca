//! Alt-Svc: whoever comes over TCP is told of HTTP/3, also by answers that are gt's own.

use std::net::SocketAddr;

use e2e::{
    Cert, HttpConn, Process, Response, Server, ServerSpec, TempDir, Transport, http::STUCK, tls,
};

use crate::{HOST, certificate, listener, listening, pages};

/// One GET over TLS and HTTP/1.1, on a connection of its own.
fn get(address: SocketAddr, cert: &Cert, host: &str, target: &str) -> Response {
    let config = tls::client_config(&[cert.der().clone()], &[b"http/1.1"]);
    let stream = tls::connect(address, HOST, config).expect("TLS");
    stream.sock.set_read_timeout(Some(STUCK)).expect("settable");
    HttpConn::new(stream).get(host, target).expect("an answer")
}

/// The answer's status, after a look at what it tells of.
#[track_caller]
fn told(address: SocketAddr, answer: &Response) -> u16 {
    let expected = format!("h3=\":{}\"; ma=86400", address.port());
    let told = answer.header("alt-svc");
    assert_eq!(told, Some(expected.as_str()), "{answer:?}");
    answer.status
}

#[test]
fn own_answers_of_a_proxy_tell_of_http3() {
    let (cert, dir) = (certificate(), TempDir::new());
    let files = dir.path().join("files");
    std::fs::create_dir(&files).expect("a folder");
    std::fs::write(files.join("page.txt"), "a page").expect("written");
    // Nobody listens there while the claim lives.
    let dead = e2e::PortRange::claim(1);
    let file = dir.file(
        "proxy.yml",
        format!(
            "type: proxy\nproxy:\n  listeners: [{}]\n  routes:\n    - {{path: /moved, redirect: /there}}\n    - {{path: /fixed, respond: {{body: here}}}}\n    \
             - {{path: /files, files: {}, stripPrefix: true}}\n    - {{path: /denied, deny: [127.0.0.1], respond: {{body: no}}}}\n    - {{path: /silent, responseHeaders: {{remove: [alt-svc]}}, respond: {{body: here}}}}\n    \
             - {{path: /dead, to: \"127.0.0.1:{}\"}}\n",
            listener(&cert),
            files.display(),
            dead.first(),
        ),
    );
    let args = ["proxy".as_ref(), "-c".as_ref(), file.as_os_str()];
    let gt = Process::gt("proxy", args, dir);
    let address = listening(&gt);
    for (target, status) in [
        ("/moved", 308),
        ("/fixed", 200),
        ("/files/page.txt", 200),
        ("/files/none.txt", 404),
        ("/denied", 403),
        ("/dead", 502),
        ("/nowhere", 404),
    ] {
        let answer = get(address, &cert, HOST, target);
        assert_eq!(told(address, &answer), status, "{target}");
    }
    let answer = get(address, &cert, HOST, "/silent");
    assert_eq!((answer.status, answer.header("alt-svc")), (200, None));
}

#[test]
fn own_answers_of_a_server_tell_of_http3() {
    let (cert, pages) = (certificate(), pages());
    let server: Server = ServerSpec::new()
        .user("web")
        .proxy(&format!(
            "{{listeners: [{}], routes: [{{host: {HOST}, service: web}}]}}",
            listener(&cert)
        ))
        .start();
    let address = listening(&server.process);
    let mut client = server
        .client(Transport::Tcp, "web")
        .service(pages.url("http"), "mode: http")
        .start_up();
    let status = |host: &str| {
        let answer = get(address, &cert, host, "/");
        told(address, &answer)
    };
    assert_eq!(status(HOST), 200);
    assert_eq!(status("nobody.test"), 404);
    client.process.kill();
    assert_eq!(status(HOST), 503);
}
