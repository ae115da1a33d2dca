//! HTTP/3 at a server's `tlsAddr`: services in both modes, links beside visitors at one address, and certificates that change.

use std::{fs, net::SocketAddr, time::Duration};

use e2e::{
    Cert, HttpConn, Process, Server, ServerSpec, Service, TempDir, Transport,
    process::gt_binary,
    tls::{self, client_config},
};
use http::Request;
use net::tls::{TlsClientOptions, Trust};
use quic::{
    ALPN_H3, Client, ClientConfig, VarInt,
    h3::{Piece, Settings, client::Connection},
};

use crate::{free_port, pages};

const PATIENCE: Duration = Duration::from_secs(30);

/// What was answered.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: Vec<u8>,
}

/// A visitor who believes `cert` only, over HTTP/3.
struct Visitor {
    client: Client,
    connection: Connection,
}

impl Visitor {
    async fn come(address: SocketAddr, cert: &Cert) -> Result<Self, quic::ConnectError> {
        let client = Client::new(ClientConfig {
            tls: TlsClientOptions {
                trust: Trust::OnlyFile(cert.cert_file().to_owned()),
                ..TlsClientOptions::default()
            },
            ..ClientConfig::default()
        });
        let client = client.expect("a client");
        let quinn = client.connect(address, "localhost", &[ALPN_H3]).await?;
        let connection = Connection::start(quinn, Settings::default()).await;
        Ok(Self {
            connection: connection.expect("HTTP/3"),
            client,
        })
    }

    async fn get(&self, host: &str, path: &str) -> Answer {
        let uri = format!("https://{host}{path}");
        let request = Request::builder().uri(uri).body(()).expect("a request");
        let pending = self.connection.begin(&request).await.expect("a stream");
        let (mut send, mut response) = pending.split();
        send.finish();
        let status = response.head().await.expect("an answer").status().as_u16();
        let (mut rest, mut body) = (response.into_body(), Vec::new());
        while let Some(piece) = rest.piece().await.expect("a body") {
            if let Piece::Data(data) = piece {
                body.extend_from_slice(&data);
            }
        }
        Answer { status, body }
    }

    async fn go(self) {
        self.client.close(VarInt::from_u32(0), b"", PATIENCE).await;
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
        let visit = tokio::time::timeout(PATIENCE * 2, local.run_until(visit));
        visit.await.expect("in time");
    });
}

fn good(body: impl Into<Vec<u8>>) -> Answer {
    Answer {
        status: 200,
        body: body.into(),
    }
}

/// What an HTTPS visitor over TCP is told of HTTP/3.
fn alt_svc(server: &Server, host: &str) -> Option<String> {
    let config = client_config(&[server.cert().der().clone()], &[b"http/1.1"]);
    let stream = tls::connect(server.https(), "localhost", config).expect("TLS");
    let answer = HttpConn::new(stream).get(host, "/").expect("an answer");
    answer.header("alt-svc").map(str::to_owned)
}

/// Services in both modes, whose client comes over QUIC too.
fn both_modes(server: &Server, visitors: SocketAddr) {
    let (looked_at, copied) = (pages(), Service::text("untouched"));
    let _client = server
        .client(Transport::Quic, "web")
        .service(looked_at.url("http"), "hostPrefix: web, mode: http")
        .service(copied.url("http"), "hostPrefix: raw, mode: stream")
        .start_up();
    local(async {
        let visitor = Visitor::come(visitors, server.cert()).await;
        let visitor = visitor.expect("a connection");
        let long = visitor.get("web.test", "/bytes/3000000").await;
        assert_eq!(long, good(vec![b'x'; 3_000_000]));
        assert_eq!(visitor.get("raw.test", "/").await, good("untouched"));
        assert_eq!(visitor.get("nobody.test", "/").await.status, 404);
        visitor.go().await;
    });
    let port = server.https().port();
    let told = alt_svc(server, "web.test");
    assert_eq!(told, Some(format!("h3=\":{port}\"; ma=86400")));
    // Not gt's to say: the service's own bytes.
    assert_eq!(alt_svc(server, "raw.test"), None);
}

#[test]
fn visitors_and_links_share_an_address() {
    let address = free_port();
    let at = format!("\"{address}\"");
    let server = ServerSpec::new()
        .user("web")
        .option("tlsAddr", &at)
        .option("quicAddr", &at)
        .option("http3", true)
        .start();
    assert_eq!((server.https(), server.quic()), (address, address));
    both_modes(&server, address);
}

#[test]
fn visitors_have_the_address_alone_where_links_come_elsewhere() {
    let address = free_port();
    let server = ServerSpec::new()
        .user("web")
        .option("tlsAddr", format!("\"{address}\""))
        .option("http3", true)
        .start();
    assert_ne!(server.quic(), address);
    both_modes(&server, address);
}

#[test]
fn nothing_is_said_of_http3_where_it_is_not_served() {
    let service = pages();
    let server = ServerSpec::new().user("web").start();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(service.url("http"), "mode: http")
        .start_up();
    assert_eq!(alt_svc(&server, "web.test"), None);
}

/// A reload in place: no process is replaced, connections go on, and who comes from then on sees the new certificate.
#[test]
fn a_changed_certificate_is_shown_from_the_reload_on() {
    let (old, new) = (
        Cert::self_signed(&["localhost"]),
        Cert::self_signed(&["localhost"]),
    );
    let (shared, dir) = (free_port(), TempDir::new());
    let put = |cert: &Cert, dir: &std::path::Path| {
        fs::copy(cert.cert_file(), dir.join("cert.pem")).expect("copied");
        fs::copy(cert.key_file(), dir.join("key.pem")).expect("copied");
    };
    put(&old, dir.path());
    let text = format!(
        "type: server\noptions: {{tlsAddr: \"{shared}\", quicAddr: \"{shared}\", http3: true, certFile: cert.pem, keyFile: key.pem}}\n\
         users: {{web: {{secret: a secret of this test}}}}\n"
    );
    let file = dir.file("server.yml", text);
    let args = ["server".as_ref(), "-c".as_ref(), file.as_os_str()];
    let gt = Process::gt_supervised("server", &gt_binary(), args, dir);
    gt.wait_log(&["listening", "option=\"quicAddr\""]);
    local(async {
        let before = Visitor::come(shared, &old).await.expect("the old one");
        assert_eq!(before.get("nobody.test", "/").await.status, 404);
        put(&new, gt.dir().path());
        let ask = ["reload".as_ref(), "-c".as_ref(), file.as_os_str()];
        let said = gt.ask(&ask);
        assert!(said.status.success(), "{said:?}");
        let after = Visitor::come(shared, &new).await.expect("the new one");
        assert_eq!(after.get("nobody.test", "/").await.status, 404);
        let stale = Visitor::come(shared, &old).await.err();
        assert!(stale.is_some(), "the old certificate is not shown any more");
        assert_eq!(before.get("nobody.test", "/").await.status, 404);
        before.go().await;
        after.go().await;
    });
}
