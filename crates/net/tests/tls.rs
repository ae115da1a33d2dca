//! TLS between ends of ours: certificates by name, trust, refusals, reload.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::cell::Cell;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::rc::Rc;

use common::{acceptor, certificate, on_worker, pair, tcp_pair, trusting};
use net::Stream;
use net::tls::{
    Certificate, MinVersion, PLAIN_HTTP_ANSWER, TlsAcceptor, TlsClientOptions, TlsConfigError,
    TlsConnector, TlsError, TlsServerOptions, Trust, UnknownName, looks_like_http,
};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A file with the certificates, removed at the end.
struct PemFile(PathBuf);

impl PemFile {
    fn new(chain: &[CertificateDer<'_>]) -> Self {
        let text: String = chain.iter().map(|der| pem(der)).collect();
        let path = std::env::temp_dir().join(format!(
            "net-{}-{:x}.pem",
            std::process::id(),
            rand::random::<u64>()
        ));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for PemFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn pem(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in der.chunks(48) {
        for group in line.chunks(3) {
            let bits = group
                .iter()
                .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte))
                << (8 * (3 - group.len()));
            for place in 0..4 {
                let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize] as char;
                text.push(if place <= group.len() { digit } else { '=' });
            }
        }
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

fn connector(trust: Trust) -> TlsConnector {
    TlsConnector::new(&TlsClientOptions {
        trust,
        ..TlsClientOptions::default()
    })
    .unwrap()
}

async fn handshake(
    acceptor: &TlsAcceptor,
    connector: &TlsConnector,
    name: &str,
) -> (Result<Stream, TlsError>, Result<Stream, TlsError>) {
    let (client, server) = tcp_pair().await;
    // The client reads at once: what the server refuses with shows in its handshake.
    tokio::join!(connector.connect(client, name), acceptor.accept(server))
}

#[test]
fn the_certificate_is_picked_by_name_and_the_first_is_the_default() {
    let certificates = [
        certificate(&["first.test"]),
        certificate(&["a.test", "*.wild.test"]),
        certificate(&["b.wild.test"]),
    ];
    let cases = [
        ("first.test", 0),
        ("a.test", 1),
        ("A.Test", 1),
        ("x.wild.test", 1),
        ("b.wild.test", 2),
        ("wild.test", 0),
        ("x.y.wild.test", 0),
        ("unknown.test", 0),
        ("127.0.0.1", 0),
    ];
    let acceptor = acceptor(certificates.to_vec());
    for (name, expected) in cases {
        on_worker(async {
            for (index, certificate) in certificates.iter().enumerate() {
                let only = PemFile::new(certificate.chain());
                let (client, _server) =
                    handshake(&acceptor, &connector(Trust::OnlyFile(only.0.clone())), name).await;
                assert_eq!(
                    client.is_ok(),
                    index == expected,
                    "{name}: certificate {index}: {client:?}"
                );
            }
        });
    }
    assert!(acceptor.knows("X.wild.test.") && !acceptor.knows("unknown.test"));
}

#[test]
fn an_unknown_name_is_refused_with_the_alert_where_configured() {
    let options = TlsServerOptions {
        certificates: vec![certificate(&["known.test"])],
        unknown_name: UnknownName::Refuse,
        ..TlsServerOptions::default()
    };
    let acceptor = TlsAcceptor::new(&options).unwrap();
    on_worker(async {
        let (client, server) = handshake(&acceptor, &trusting(), "other.test").await;
        assert!(matches!(server.unwrap_err(), TlsError::UnknownName));
        let error = client.unwrap_err().to_string();
        assert!(error.contains("UnrecognisedName"), "{error}");
        for name in ["known.test", "127.0.0.1"] {
            let (client, server) = handshake(&acceptor, &trusting(), name).await;
            assert!(client.is_ok() && server.is_ok());
        }
    });
}

#[test]
fn a_pinned_certificate_is_trusted_under_any_name_and_nothing_else_is() {
    on_worker(async {
        let (own, other) = (certificate(&["gt"]), certificate(&["gt"]));
        let pin = PemFile::new(own.chain());
        let connector = connector(Trust::OnlyFile(pin.0.clone()));
        let (client, server) = handshake(&acceptor(vec![own]), &connector, "relay.example").await;
        assert!(client.is_ok() && server.is_ok());
        let (client, server) = handshake(&acceptor(vec![other]), &connector, "gt").await;
        let error = client.unwrap_err();
        assert!(matches!(error, TlsError::Certificate { .. }), "{error:?}");
        assert!(server.is_err());
    });
}

#[test]
fn a_distrusted_certificate_is_explained() {
    on_worker(async {
        let acceptor = acceptor(vec![certificate(&["gt.test"])]);
        let (client, server) =
            handshake(&acceptor, &connector(Trust::PublicAuthorities), "gt.test").await;
        let error = client.unwrap_err().to_string();
        assert!(
            error.contains("the certificate of gt.test is not accepted"),
            "{error}"
        );
        assert!(
            error.contains("no authority that is trusted here has signed it"),
            "{error}"
        );
        // The server learns why from the alert.
        assert!(server.unwrap_err().to_string().contains("UnknownCA"));
    });
}

#[test]
fn a_name_that_is_none_is_refused_before_anything_is_sent() {
    on_worker(async {
        let (client, mut server) = tcp_pair().await;
        let error = trusting().connect(client, "no name").await.unwrap_err();
        assert!(matches!(error, TlsError::BadName { .. }), "{error}");
        assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
    });
}

#[test]
fn plain_http_on_a_tls_port_is_given_back_whole() {
    for piece in [1, 3, 100] {
        on_worker(async {
            let (mut client, server) = tcp_pair().await;
            let request = b"OPTIONS / HTTP/1.1\r\nHost: x\r\n\r\n";
            let acceptor = acceptor(vec![certificate(&["x"])]);
            let send = async {
                for piece in request.chunks(piece) {
                    client.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let (_, outcome) = tokio::join!(send, acceptor.accept(server));
            let Err(TlsError::PlainHttp(mut server)) = outcome else {
                panic!("{outcome:?}")
            };
            let mut got = vec![0; request.len()];
            server.read_exact(&mut got).await.unwrap();
            assert_eq!(got, request);
            server.write_all(PLAIN_HTTP_ANSWER).await.unwrap();
            server.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains(&format!("Content-Length: {}", body.len())),
                "{answer}"
            );
        });
    }
    assert!(
        !looks_like_http(b"GE")
            && looks_like_http(b"PRI * HTTP/2.0")
            && !looks_like_http(&[22, 3, 1])
    );
}

#[test]
fn nonsense_and_early_ends_are_refused_with_an_alert_or_a_close() {
    let close_notify = [21, 3, 3, 0, 2, 1, 0];
    let mut oversized = vec![22, 3, 1, 0xff, 0xff];
    oversized.extend([1; 70_000]);
    // A handshake message of 16 MiB, announced.
    let mut endless = Vec::new();
    for _ in 0..40 {
        endless.extend([22, 3, 1, 0x20, 0x00, 1, 0xff, 0xff, 0xff]);
        endless.extend([0; 0x2000 - 4]);
    }
    for wire in [
        b"\x00\x01\x02random bytes".to_vec(),
        close_notify.to_vec(),
        oversized,
        endless,
        b"\x16\x03".to_vec(),
    ] {
        on_worker(async {
            let (mut client, server) = tcp_pair().await;
            let acceptor = acceptor(vec![certificate(&["x"])]);
            let send = async {
                let _ = client.write_all(&wire).await;
                let _ = client.shutdown().await;
            };
            let (_, outcome) = tokio::join!(send, acceptor.accept(server));
            assert!(
                matches!(outcome, Err(TlsError::Protocol(_) | TlsError::Io(_))),
                "{outcome:?}"
            );
        });
    }
}

#[test]
fn a_damaged_record_is_an_error_and_not_an_end() {
    on_worker(async {
        let (client, server) = tcp_pair().await;
        let (relay_in, mut relay_out) = tcp_pair().await;
        // The client talks to a relay that flips one bit late in the stream.
        let acceptor = acceptor(vec![certificate(&["x"])]);
        let (mut relay_rx, mut relay_tx) = tokio::io::split(server);
        let (mut far_rx, mut far_tx) = {
            let (rx, tx) = tokio::io::split(relay_in);
            (rx, tx)
        };
        let forward = async {
            let mut buf = vec![0; 65_536];
            let mut passed = 0;
            loop {
                let n = relay_rx.read(&mut buf).await.unwrap();
                if n == 0 {
                    break;
                }
                passed += n;
                if passed > 100_000 {
                    buf[n / 2] ^= 1;
                }
                if far_tx.write_all(&buf[..n]).await.is_err() {
                    break;
                }
            }
        };
        let backward = async {
            let _ = tokio::io::copy(&mut far_rx, &mut relay_tx).await;
        };
        let talk = async {
            let mut client = trusting().connect(client, "x").await.unwrap();
            let _ = client.write_all(&[1; 300_000]).await;
            let _ = client.shutdown().await;
        };
        let serve = async {
            let (dummy, _) = Stream::pair().unwrap();
            let far = std::mem::replace(&mut relay_out, dummy);
            let mut server = acceptor.accept(far).await.unwrap();
            let mut got = Vec::new();
            let error = server.read_to_end(&mut got).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
            assert!(got.len() < 300_000 && got.iter().all(|byte| *byte == 1));
            assert_eq!(
                server.read(&mut [0; 8]).await.unwrap_err().kind(),
                ErrorKind::InvalidData
            );
        };
        tokio::select! { () = async { tokio::join!(forward, backward, talk); } => {}, () = serve => {} }
    });
}

#[test]
fn both_ends_agree_on_protocol_name_and_exported_keys() {
    on_worker(async {
        let options = TlsServerOptions {
            certificates: vec![certificate(&["x.test"])],
            alpn: vec![b"gt/1".to_vec(), b"http/1.1".to_vec()],
            min_version: MinVersion::Tls13,
            ..TlsServerOptions::default()
        };
        let acceptor = TlsAcceptor::new(&options).unwrap();
        let client_options = |alpn: &[&[u8]]| TlsClientOptions {
            trust: Trust::InsecureNoVerification,
            alpn: alpn.iter().map(|name| name.to_vec()).collect(),
            ..TlsClientOptions::default()
        };
        let connector = TlsConnector::new(&client_options(&[b"http/1.1", b"gt/1"])).unwrap();
        let (client, server) = handshake(&acceptor, &connector, "x.test").await;
        let (client, server) = (client.unwrap(), server.unwrap());
        assert_eq!(
            (client.alpn(), server.alpn()),
            (Some(&b"gt/1"[..]), Some(&b"gt/1"[..]))
        );
        assert_eq!(
            (client.server_name(), server.server_name()),
            (None, Some("x.test"))
        );
        let (mut one, mut other, mut third) = ([0; 32], [0; 32], [0; 32]);
        client
            .tls_exporter(b"EXPORTER-gt", Some(b"context"), &mut one)
            .unwrap();
        server
            .tls_exporter(b"EXPORTER-gt", Some(b"context"), &mut other)
            .unwrap();
        server
            .tls_exporter(b"EXPORTER-gt", None, &mut third)
            .unwrap();
        assert!(one == other && one != third && one != [0; 32]);

        let stranger = TlsConnector::new(&client_options(&[b"smtp"])).unwrap();
        let (client, server) = handshake(&acceptor, &stranger, "x.test").await;
        assert!(
            client
                .unwrap_err()
                .to_string()
                .contains("NoApplicationProtocol")
        );
        assert!(server.is_err());

        let (plain, _) = pair(common::Transport::Tcp).await;
        assert_eq!(
            plain.tls_exporter(b"x", None, &mut one).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    });
}

#[test]
fn reloading_changes_new_handshakes_and_leaves_old_connections_alone() {
    on_worker(async {
        let (old, new) = (certificate(&["x"]), certificate(&["x"]));
        let options = |certificate: &Certificate| TlsServerOptions {
            certificates: vec![certificate.clone()],
            ..TlsServerOptions::default()
        };
        let acceptor = TlsAcceptor::new(&options(&old)).unwrap();
        let pins = [PemFile::new(old.chain()), PemFile::new(new.chain())];
        let [old_trust, new_trust] = pins
            .each_ref()
            .map(|pin| connector(Trust::OnlyFile(pin.0.clone())));
        let (client, server) = handshake(&acceptor, &old_trust, "x").await;
        let (mut client, mut server) = (client.unwrap(), server.unwrap());

        assert!(matches!(
            acceptor.reload(&TlsServerOptions::default()),
            Err(TlsConfigError::NoCertificate)
        ));
        acceptor.reload(&options(&new)).unwrap();
        assert!(handshake(&acceptor, &new_trust, "x").await.0.is_ok());

        client.write_all(b"still here").await.unwrap();
        client.flush().await.unwrap();
        let mut got = [0; 10];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"still here");
    });
}

#[test]
fn sessions_are_resumed() {
    on_worker(async {
        let acceptor = acceptor(vec![certificate(&["x"])]);
        let connector = trusting();
        let mut bytes = Vec::new();
        for _ in 0..2 {
            let (near, far) = tcp_pair().await;
            let (mut relay_near, mut relay_far) = tcp_pair().await;
            let mut far = far;
            let relay = async {
                tokio::io::copy_bidirectional(&mut far, &mut relay_near)
                    .await
                    .unwrap()
                    .1
            };
            let talk = async {
                let server = async {
                    let (dummy, _) = Stream::pair().unwrap();
                    let mut server = acceptor
                        .accept(std::mem::replace(&mut relay_far, dummy))
                        .await
                        .unwrap();
                    server.write_all(b"!").await.unwrap();
                    server.shutdown().await.unwrap();
                    let _ = server.read(&mut [0; 1]).await;
                };
                let client = async {
                    let mut client = connector.connect(near, "x").await.unwrap();
                    client.read_to_end(&mut Vec::new()).await.unwrap();
                    client.shutdown().await.unwrap();
                };
                tokio::join!(server, client);
            };
            bytes.push(tokio::join!(relay, talk).0);
        }
        // The second time the server sends no certificate.
        assert!(bytes[1] + 200 < bytes[0], "{bytes:?}");
    });
}

/// `openssl` with or without the extended master secret, over TLS 1.2, with `args` after the command.
fn openssl(
    dir: &std::path::Path,
    command: &str,
    extended: bool,
    args: &[&str],
) -> std::process::Child {
    let configuration = dir.join(format!("{extended}.cnf"));
    let sign = if extended { "" } else { "-" };
    let text = format!(
        "openssl_conf = c\n[c]\nssl_conf = s\n[s]\nsystem_default = d\n[d]\nOptions = {sign}ExtendedMasterSecret\n"
    );
    std::fs::write(&configuration, text).unwrap();
    std::process::Command::new("openssl")
        .env("OPENSSL_CONF", &configuration)
        .arg(command)
        .args(["-tls1_2", "-quiet"])
        .args(args)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("install openssl")
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("net-{:x}", rand::random::<u64>()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Without it, the triple handshake gives two connections the same exported bytes.
#[test]
fn a_client_of_tls_1_2_without_extended_master_secret_cannot_be_bound_to() {
    let folder = Folder::new();
    for extended in [true, false] {
        let exported = on_worker(async {
            let (mut listener, address) = common::listener();
            let connect = ["-connect", &address.to_string()];
            let mut peer = openssl(&folder.0, "s_client", extended, &connect);
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor(vec![certificate(&["localhost"])]);
            let stream = acceptor.accept(stream).await.expect("a handshake");
            let exported = stream.tls_exporter(b"EXPORTER-test", None, &mut [0; 32]);
            let _ = peer.kill();
            let _ = peer.wait();
            exported
        });
        match exported {
            Ok(()) => assert!(extended, "bytes were exported"),
            Err(error) => {
                assert!(!extended, "{error}");
                assert_eq!(error.kind(), ErrorKind::Unsupported);
            }
        }
    }
}

#[test]
fn a_server_of_tls_1_2_without_extended_master_secret_is_refused_by_who_needs_it() {
    let folder = Folder::new();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.0.join(name));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let needing = TlsConnector::new(&TlsClientOptions {
        trust: Trust::OnlyFile(cert.clone()),
        require_extended_master_secret: true,
        ..TlsClientOptions::default()
    })
    .unwrap();
    let careless = connector(Trust::OnlyFile(cert.clone()));
    for extended in [true, false] {
        // Chosen by the kernel, free again at once.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let accept = port.to_string();
        let (cert, key) = (cert.to_string_lossy(), key.to_string_lossy());
        let args = ["-accept", &accept, "-cert", &cert, "-key", &key];
        let mut peer = openssl(&folder.0, "s_server", extended, &args);
        let connect = async |connector: &TlsConnector| {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
            loop {
                match net::connect_tcp(&[port], None).await {
                    Ok(stream) => return connector.connect(stream, "localhost").await,
                    Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        on_worker(async {
            let mut out = [0; 32];
            match connect(&needing).await {
                Ok(stream) => {
                    assert!(extended, "it was let in");
                    stream
                        .tls_exporter(b"EXPORTER-test", None, &mut out)
                        .expect("exported");
                }
                Err(error) => assert!(!extended, "{error}"),
            }
            // Who does not ask for it is let in, but cannot bind either.
            let stream = connect(&careless).await.expect("a handshake");
            let refused = stream.tls_exporter(b"EXPORTER-test", None, &mut out);
            assert_eq!(
                refused.expect_err("not known").kind(),
                ErrorKind::Unsupported
            );
        });
        let _ = peer.kill();
        let _ = peer.wait();
    }
}

#[test]
fn suites_with_aes_128_are_offered_first() {
    on_worker(async {
        let (client, mut server) = tcp_pair().await;
        let connector = trusting();
        let hello = async {
            let mut head = [0; 5 + 4 + 2 + 32 + 1];
            server.read_exact(&mut head).await.expect("a hello");
            // Behind an echoed session id of any length (RFC 8446 §4.1.2).
            let mut session = vec![0; usize::from(head[head.len() - 1])];
            server.read_exact(&mut session).await.expect("a session id");
            let bytes = server.read_u16().await.expect("a length");
            let mut suites = Vec::new();
            for _ in 0..bytes / 2 {
                suites.push(server.read_u16().await.expect("a suite"));
            }
            suites
        };
        let suites = tokio::select! {
            suites = hello => suites,
            end = connector.connect(client, "a.test") => panic!("nobody has answered: {end:?}"),
        };
        // TLS 1.3's, and those of TLS 1.2 with ECDSA and RSA.
        for (aes_128, aes_256) in [(0x1301, 0x1302), (0xc02b, 0xc02c), (0xc02f, 0xc030)] {
            let place = |wanted| suites.iter().position(|suite| *suite == wanted);
            let (first, second) = (place(aes_128), place(aes_256));
            assert!(first.is_some() && first < second, "{suites:x?}");
        }
    });
}

/// What a client says first.
async fn client_hello() -> Vec<u8> {
    let (client, mut server) = Stream::pair().unwrap();
    let connecting = tokio::task::spawn_local(async move {
        let connector = trusting();
        let _ = connector.connect(client, "localhost").await;
    });
    let mut hello = vec![0; 4096];
    let n = server.read(&mut hello).await.unwrap();
    hello.truncate(n);
    connecting.abort();
    hello
}

#[test]
fn who_is_connected_is_served_while_many_say_hello() {
    on_worker(async {
        let acceptor = acceptor(vec![certificate(&["localhost"])]);
        let hello = client_hello().await;
        let mut clients = Vec::new();
        for _ in 0..60 {
            let (mut client, server) = Stream::pair().unwrap();
            client.write_all(&hello).await.unwrap();
            let acceptor = acceptor.clone();
            tokio::task::spawn_local(async move { drop(acceptor.accept(server).await) });
            clients.push(client);
        }
        // Somebody who is connected, and asks again as soon as there is an answer.
        let (mut asking, mut answering) = Stream::pair().unwrap();
        let answered = Rc::new(Cell::new(0));
        let count = Rc::clone(&answered);
        tokio::task::spawn_local(async move {
            while answering.read_u8().await.is_ok() && answering.write_u8(0).await.is_ok() {}
        });
        tokio::task::spawn_local(async move {
            while asking.write_u8(0).await.is_ok() && asking.read_u8().await.is_ok() {
                count.set(count.get() + 1);
            }
        });
        for client in &mut clients {
            client.read_u8().await.unwrap();
        }
        // Two turns of the event loop for each, and one for each of most handshakes: about 30 then. Were all of them done in one, it would be 1.
        assert!(answered.get() >= 10, "answered {}", answered.get());
    });
}
