//! Certificate files with something wrong, and TLS against OpenSSL where it is installed.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use common::{acceptor, listener, on_worker};
use net::tls::{
    TlsClientOptions, TlsConfigError, TlsConnector, TlsError, TlsFileError, Trust,
    load_certificates, self_signed,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A directory removed at the end, with files OpenSSL made in it.
struct Dir(PathBuf);

impl Dir {
    /// `None` where OpenSSL is not installed.
    fn new() -> Option<Self> {
        if Command::new("openssl")
            .arg("version")
            .stdout(Stdio::null())
            .status()
            .is_err()
        {
            println!("skipped: openssl is not installed");
            return None;
        }
        let path = std::env::temp_dir().join(format!(
            "net-{}-{:x}",
            std::process::id(),
            rand::random::<u64>()
        ));
        std::fs::create_dir(&path).unwrap();
        Some(Self(path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn openssl(&self, args: &str) {
        let output = Command::new("openssl")
            .args(args.split_whitespace())
            .current_dir(&self.0)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{args}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// `{name}.crt` and `{name}.key`, signed by itself.
    fn self_signed(&self, name: &str, more: &str) {
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.crt {more}"
        ));
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn names_come_from_alternative_names_and_else_from_the_common_name() {
    let Some(dir) = Dir::new() else { return };
    dir.self_signed("san", "-days 3 -subj /CN=ignored.test -addext subjectAltName=DNS:A.test,DNS:*.b.test,IP:127.0.0.1");
    dir.self_signed("cn", "-days 3 -subj /CN=Common.test");
    let load = |name: &str| {
        load_certificates(
            &dir.path(&format!("{name}.crt")),
            &dir.path(&format!("{name}.key")),
        )
        .unwrap()
    };
    assert_eq!(load("san").names(), ["a.test", "*.b.test"]);
    assert_eq!(load("cn").names(), ["common.test"]);
    let left = load("cn")
        .not_after()
        .duration_since(SystemTime::now())
        .unwrap();
    assert!(
        left > Duration::from_secs(2 * 86_400) && left <= Duration::from_secs(3 * 86_400),
        "{left:?}"
    );
    assert!(load("cn").is_expired(SystemTime::now() + left + Duration::from_secs(1)));
}

#[test]
fn what_is_wrong_with_a_pair_of_files_is_said_with_the_file() {
    let Some(dir) = Dir::new() else { return };
    dir.self_signed("a", "-days 3 -subj /CN=a.test");
    dir.self_signed("b", "-days 3 -subj /CN=b.test");
    dir.openssl("pkey -in a.key -out locked.key -aes256 -passout pass:x");
    std::fs::write(dir.path("empty"), "").unwrap();
    std::fs::write(dir.path("torn.crt"), "-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap();
    std::fs::write(
        dir.path("junk.crt"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    std::fs::write(
        dir.path("junk.key"),
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    )
    .unwrap();
    let load = |certificate: &str, key: &str| {
        load_certificates(&dir.path(certificate), &dir.path(key)).unwrap_err()
    };
    let cases: [(TlsFileError, &[&str]); 9] = [
        (load("none.crt", "a.key"), &["cannot read", "none.crt"]),
        (load("empty", "a.key"), &["empty has no PEM certificate"]),
        (load("a.key", "a.key"), &["a.key has no PEM certificate"]),
        (load("torn.crt", "a.key"), &["torn.crt is damaged PEM"]),
        (
            load("junk.crt", "a.key"),
            &["certificate number 1 in", "junk.crt"],
        ),
        (load("a.crt", "a.crt"), &["a.crt has no PEM private key"]),
        (
            load("a.crt", "locked.key"),
            &["locked.key has no PEM private key", "not encrypted"],
        ),
        (
            load("a.crt", "junk.key"),
            &["private key in", "junk.key", "cannot be used"],
        ),
        (
            load("a.crt", "b.key"),
            &["b.key does not match the first certificate in", "a.crt"],
        ),
    ];
    for (error, expected) in cases {
        let text = error.to_string();
        assert!(
            expected.iter().all(|part| text.contains(part)),
            "{text} lacks one of {expected:?}"
        );
    }
    let options = |trust| TlsClientOptions {
        trust,
        ..TlsClientOptions::default()
    };
    let error = TlsConnector::new(&options(Trust::OnlyFile(dir.path("junk.crt")))).unwrap_err();
    assert!(
        matches!(&error, TlsConfigError::Authority { .. })
            && error.to_string().contains("junk.crt"),
        "{error}"
    );
}

#[test]
fn a_pair_in_one_file_is_loaded() {
    let Some(dir) = Dir::new() else { return };
    dir.self_signed("a", "-days 3 -subj /CN=a.test");
    let both = std::fs::read_to_string(dir.path("a.key")).unwrap()
        + &std::fs::read_to_string(dir.path("a.crt")).unwrap();
    std::fs::write(dir.path("both.pem"), both).unwrap();
    assert_eq!(
        load_certificates(&dir.path("both.pem"), &dir.path("both.pem"))
            .unwrap()
            .names(),
        ["a.test"]
    );
}

#[test]
fn names_that_cannot_stand_in_a_certificate_are_refused() {
    assert!(matches!(
        self_signed(&["bücher".to_owned()]),
        Err(TlsConfigError::Setup(_))
    ));
}

/// OpenSSL makes self-signed certificates that call themselves authorities; such a one must be pinnable too.
#[test]
fn openssl_server_is_trusted_by_pin_by_authority_and_not_otherwise() {
    let Some(dir) = Dir::new() else { return };
    dir.self_signed("own", "-days 3 -subj /CN=own.test");
    dir.self_signed("ca", "-days 3 -subj /CN=authority");
    dir.openssl("req -newkey rsa:2048 -nodes -keyout leaf.key -out leaf.csr -subj /CN=leaf.test");
    std::fs::write(dir.path("ext"), "subjectAltName=DNS:leaf.test\n").unwrap();
    dir.openssl("x509 -req -in leaf.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3 -extfile ext -out leaf.crt");
    dir.openssl("x509 -req -in leaf.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days -1 -extfile ext -out old.crt");
    let cases = [
        (
            "own.crt",
            "own.key",
            Trust::OnlyFile(dir.path("own.crt")),
            "relay.test",
            Ok(()),
        ),
        (
            "leaf.crt",
            "leaf.key",
            Trust::OnlyFile(dir.path("ca.crt")),
            "leaf.test",
            Ok(()),
        ),
        (
            "leaf.crt",
            "leaf.key",
            Trust::PublicAuthoritiesAnd(dir.path("ca.crt")),
            "leaf.test",
            Ok(()),
        ),
        (
            "leaf.crt",
            "leaf.key",
            Trust::InsecureNoVerification,
            "any.test",
            Ok(()),
        ),
        (
            "leaf.crt",
            "leaf.key",
            Trust::OnlyFile(dir.path("ca.crt")),
            "other.test",
            Err("for other names"),
        ),
        (
            "old.crt",
            "leaf.key",
            Trust::OnlyFile(dir.path("ca.crt")),
            "leaf.test",
            Err("has expired"),
        ),
        (
            "leaf.crt",
            "leaf.key",
            Trust::PublicAuthorities,
            "leaf.test",
            Err("no authority that is trusted here"),
        ),
        (
            "own.crt",
            "own.key",
            Trust::PublicAuthorities,
            "own.test",
            Err("PEM file"),
        ),
        (
            "own.crt",
            "own.key",
            Trust::OnlyFile(dir.path("ca.crt")),
            "own.test",
            Err("no authority that is trusted here"),
        ),
    ];
    for (certificate, key, trust, name, expected) in cases {
        let (mut server, addr) = openssl_server(&dir, certificate, key);
        on_worker(async {
            let connector = TlsConnector::new(&TlsClientOptions {
                trust: trust.clone(),
                ..TlsClientOptions::default()
            })
            .unwrap();
            let stream = net::connect_tcp(&[addr], None).await.unwrap();
            match (connector.connect(stream, name).await, expected) {
                (Ok(mut stream), Ok(())) => {
                    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
                    stream.flush().await.unwrap();
                    let mut answer = vec![0; 12];
                    stream.read_exact(&mut answer).await.unwrap();
                    assert_eq!(&answer, b"HTTP/1.0 200");
                }
                (Err(TlsError::Certificate { name: of, reason }), Err(part)) => {
                    assert!(
                        of == name && reason.contains(part),
                        "{certificate} {trust:?} {name}: {reason}"
                    );
                }
                (outcome, _) => panic!("{certificate} {trust:?} {name}: {outcome:?}"),
            }
        });
        let _ = server.kill();
        let _ = server.wait();
    }
}

/// `openssl s_server` with a status page, on a port of its own choice.
fn openssl_server(dir: &Dir, certificate: &str, key: &str) -> (Child, std::net::SocketAddr) {
    let mut server = Command::new("openssl")
        .args([
            "s_server",
            "-accept",
            "127.0.0.1:0",
            "-www",
            "-cert",
            certificate,
            "-key",
            key,
        ])
        .current_dir(&dir.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = lines
        .find_map(|line| line.ok()?.strip_prefix("ACCEPT ").map(str::to_owned))
        .unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    (server, line.trim().parse().unwrap())
}

#[test]
fn openssl_client_exchanges_bytes_with_a_server_of_ours() {
    let Some(dir) = Dir::new() else { return };
    dir.self_signed(
        "own",
        "-days 3 -subj /CN=own.test -addext subjectAltName=DNS:own.test",
    );
    for version in ["-tls1_2", "-tls1_3"] {
        let acceptor = acceptor(vec![
            load_certificates(&dir.path("own.crt"), &dir.path("own.key")).unwrap(),
        ]);
        on_worker(async {
            let (mut listening, addr) = listener();
            let client = openssl_client(&dir.path("own.crt"), &addr.to_string(), version);
            let (stream, _) = listening.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            assert_eq!(stream.server_name(), Some("own.test"));
            let mut got = vec![0; 200_000];
            stream.read_exact(&mut got).await.unwrap();
            assert!(
                got.iter()
                    .enumerate()
                    .all(|(at, byte)| *byte == b'a' + (at % 7) as u8),
                "{version}"
            );
            stream.write_all(b"answer from gt\n").await.unwrap();
            stream.shutdown().await.unwrap();
            let _ = stream.read(&mut got).await;
            let text = tokio::task::spawn_blocking(move || client.join().unwrap())
                .await
                .unwrap();
            assert!(
                text.contains("answer from gt") && text.contains("Verify return code: 0"),
                "{version}: {text}"
            );
        });
    }
}

fn openssl_client(trusted: &Path, addr: &str, version: &str) -> std::thread::JoinHandle<String> {
    let mut client = Command::new("openssl")
        .args([
            "s_client",
            "-connect",
            addr,
            "-servername",
            "own.test",
            "-nocommands",
            version,
            "-CAfile",
        ])
        .arg(trusted)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::spawn(move || {
        let mut input = client.stdin.take().unwrap();
        let bytes: Vec<u8> = (0..200_000).map(|at| b'a' + (at % 7) as u8).collect();
        input.write_all(&bytes).unwrap();
        let mut text = Vec::new();
        client
            .stdout
            .take()
            .unwrap()
            .read_to_end(&mut text)
            .unwrap();
        drop(input);
        let _ = client.wait();
        String::from_utf8_lossy(&text).into_owned()
    })
}
