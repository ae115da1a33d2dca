//! Certificates of visitors and of the proxy itself, and checks on a port of their own; from a file, as users write it.

mod common;

use std::{
    fs,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use common::*;
use config::{Checked, System};
use net::tls::{Certificate, TlsClientOptions, TlsConnector, Trust, load_certificates};
use proxy::Proxy;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A folder with two authorities, a server's certificate and those of visitors.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("certificates-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        let folder = Self(path);
        let ours = folder.authority("ca");
        let others = folder.authority("other");
        folder.leaf("server", "localhost", &ours);
        folder.leaf("ann", "ann, CN=root", &ours);
        folder.leaf("gateway", "gateway", &ours);
        folder.leaf("stranger", "stranger", &others);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    fn authority(&self, name: &str) -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        self.write(&format!("{name}.pem"), &certificate.pem());
        Issuer::new(params, key)
    }

    fn leaf(&self, name: &str, subject: &str, issuer: &Issuer<'_, KeyPair>) {
        let mut params = CertificateParams::new(vec!["localhost".into()]).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Example");
        params.distinguished_name.push(DnType::CommonName, subject);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, issuer).expect("a certificate");
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn certificate(&self, name: &str) -> Certificate {
        let key = self.path(&format!("{name}.key"));
        load_certificates(&self.path(&format!("{name}.pem")), &key).expect("a certificate")
    }

    fn start(&self, text: &str) -> Proxy {
        self.write("proxy.yml", text);
        let system = System {
            create_identity: false,
        };
        let checked = config::load_path(&self.path("proxy.yml"), &system).expect("a good file");
        let Some(Checked::Proxy(config)) = checked.into_iter().next() else {
            panic!("no proxy");
        };
        let options = proxy::options(&config.proxy, Some(1)).expect("options");
        Proxy::start(options).expect("a free port")
    }
}

fn https(more: &str, to: &str) -> String {
    format!(
        "type: proxy\nproxy:\n  trustedProxies: [127.0.0.9]\n  listeners:\n    - {{addr: \"127.0.0.1:0\", certFile: server.pem, keyFile: server.key, {more}}}\n  \
         routes:\n    - {{to: \"{to}\"}}\n"
    )
}

/// Sends a request over TLS and reads until the end; `Err` if the proxy does not want the visitor.
fn ask(proxy: &Proxy, own: Option<Certificate>, fields: &str) -> Result<String, String> {
    let options = TlsClientOptions {
        trust: Trust::InsecureNoVerification,
        alpn: vec![b"http/1.1".to_vec()],
        certificate: own,
        ..TlsClientOptions::default()
    };
    let connector = TlsConnector::new(&options).expect("a connector");
    let address = proxy.addresses()[0];
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let asking = async {
        let stream = net::connect_tcp(&[address], None).await.expect("connected");
        let connected = connector.connect(stream, "localhost").await;
        let mut stream = connected.map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        // In TLS 1.3 a refusal comes behind the handshake.
        let sent = stream.write_all(request.as_bytes()).await;
        let read = stream.read_to_end(&mut answer).await;
        match sent.and(read) {
            Ok(1..) => Ok(text(&answer)),
            Ok(_) => Err("closed".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, asking)
            .await
            .expect("in time")
    })
}

#[test]
fn only_visitors_with_a_certificate_come_in_and_the_upstream_is_told_who_they_are() {
    let folder = Folder::new("required");
    let (origin, told) = Origin::answering(OK);
    let proxy = folder.start(&https("clientCA: ca.pem", &origin.address.to_string()));
    assert!(ask(&proxy, None, "").is_err());
    assert!(ask(&proxy, Some(folder.certificate("stranger")), "").is_err());
    assert!(told.try_recv().is_err(), "nobody came in");
    let spoof = "X-Client-Cert-Subject: CN=root\r\nx_client_cert_fingerprint: 00\r\n";
    let answer = ask(&proxy, Some(folder.certificate("ann")), spoof).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let seen = text(&told.recv_timeout(PATIENCE).expect("a request")).to_ascii_lowercase();
    assert!(
        seen.contains("\r\nx-client-cert-subject: cn=ann\\, cn\\=root,o=example\r\n"),
        "{seen}"
    );
    let expected = net::tls::PeerCertificate::read(&folder.certificate("ann").chain()[0]);
    let fingerprint = expected.expect("a certificate").fingerprint;
    assert_eq!(fingerprint.len(), 64);
    assert!(
        seen.contains(&format!("\r\nx-client-cert-fingerprint: {fingerprint}\r\n")),
        "{seen}"
    );
    assert_eq!(seen.matches("client").count(), 2, "{seen}");
}

#[test]
fn where_certificates_are_optional_nobody_can_claim_to_have_one() {
    let folder = Folder::new("optional");
    let (origin, told) = Origin::answering(OK);
    let more = "clientCA: ca.pem, clientCertOptional: true";
    let proxy = folder.start(&https(more, &origin.address.to_string()));
    assert!(
        ask(&proxy, Some(folder.certificate("stranger")), "").is_err(),
        "a wrong one is not none"
    );
    let spoof = "X-Client-Cert-Subject: CN=root\r\nX_Client_Cert_Fingerprint: 00\r\n";
    ask(&proxy, None, spoof).expect("an answer");
    let seen = text(&told.recv_timeout(PATIENCE).expect("a request")).to_ascii_lowercase();
    assert!(!seen.contains("client"), "{seen}");
    ask(&proxy, Some(folder.certificate("ann")), "").expect("an answer");
    let seen = text(&told.recv_timeout(PATIENCE).expect("a request"));
    assert!(seen.contains("x-client-cert-subject: CN=ann"), "{seen}");
}

#[test]
fn the_proxy_shows_a_certificate_of_its_own_to_servers_that_ask() {
    let folder = Folder::new("own");
    let (origin, told) = Origin::answering(OK);
    let inner = folder.start(&https("clientCA: ca.pem", &origin.address.to_string()));
    let port = inner.addresses()[0].port();
    let outer = |own: &str| {
        folder.start(&format!(
            "type: proxy\nproxy:\n  listeners: [{{addr: \"127.0.0.1:0\"}}]\n  upstreams:\n    app: {{servers: \"127.0.0.1:{port}\", tls: {{ca: ca.pem, serverName: localhost{own}}}}}\n  \
             routes: [{{to: app}}]\n"
        ))
    };
    let request =
        b"GET / HTTP/1.1\r\nHost: a\r\nX-Client-Cert-Subject: CN=root\r\nConnection: close\r\n\r\n";
    let (answer, _) = exchange(&outer(""), request);
    assert!(
        text(&answer).starts_with("HTTP/1.1 502 "),
        "{}",
        text(&answer)
    );
    let (answer, _) = exchange(
        &outer(", certFile: gateway.pem, keyFile: gateway.key"),
        request,
    );
    assert!(
        text(&answer).starts_with("HTTP/1.1 200 "),
        "{}",
        text(&answer)
    );
    let seen = text(&told.recv_timeout(PATIENCE).expect("a request"));
    assert!(
        seen.contains("x-client-cert-subject: CN=gateway,O=Example\r\n"),
        "{seen}"
    );
    assert!(!seen.contains("root"), "{seen}");
}

/// Answers every request with one text and tells what it was sent.
fn answering(listener: TcpListener, answer: &'static [u8]) -> mpsc::Receiver<Vec<u8>> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let tell = tell.clone();
            thread::spawn(move || {
                while let Some(request) = read_head(&mut stream) {
                    let _ = tell.send(request);
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    told
}

/// One port of two addresses.
fn two_of_one_port() -> (TcpListener, TcpListener) {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = first.local_addr().expect("an address").port();
        if let Ok(second) = TcpListener::bind(("127.0.0.2", port)) {
            return (first, second);
        }
    }
    panic!("no port is free at both addresses");
}

#[test]
fn a_check_may_ask_another_port_and_keeps_its_interval() {
    let folder = Folder::new("checks");
    let (first, told) = Origin::answering(OK);
    let (ill, well) = two_of_one_port();
    let port = ill.local_addr().expect("an address").port();
    let asked = answering(ill, b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let _well = answering(well, OK);
    let second = TcpListener::bind("127.0.0.2:0").expect("a free port");
    let second_port = second.local_addr().expect("an address").port();
    let _second = answering(
        second,
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond",
    );
    let proxy = folder.start(&format!(
        "type: proxy\nproxy:\n  listeners: [{{addr: \"127.0.0.1:0\"}}]\n  upstreams:\n    app:\n      servers: [\"{}\", \"127.0.0.2:{second_port}\"]\n      \
         health: {{path: /health, port: {port}, interval: 100ms, fall: 1, rise: 1}}\n  routes: [{{to: app}}]\n",
        first.address,
    ));
    let began = Instant::now();
    for _ in 0..8 {
        let check = text(&asked.recv_timeout(PATIENCE).expect("a check"));
        assert!(check.starts_with("GET /health "), "{check}");
    }
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    // All but the last have been counted.
    for _ in 0..10 {
        let (answer, _) = exchange(
            &proxy,
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        );
        assert!(text(&answer).ends_with("second"), "{}", text(&answer));
    }
    assert!(told.try_recv().is_err(), "the first server was asked");
}
