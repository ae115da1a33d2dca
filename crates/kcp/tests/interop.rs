//! Against kcp-go itself: an echo in either role, through a forwarder that loses datagrams by a seed.
//!
//! The peer is built from `testing/interop/kcp` for both pinned versions. Without Go the tests say so loudly and pass.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, OnceLock},
    time::Duration,
};

use kcp::{
    Config, Mode, Shards,
    seal::{Cipher, Seal, derive_key},
    udp::{Listener, Options, Session},
};
use testkit::Go;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UdpSocket,
    process::{Child, Command},
    time::timeout,
};

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const BYTES: usize = 256 * 1024;
const HANG: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug)]
enum Version {
    V5_6_1,
    V5_6_72,
}

/// The peer program, built once per version; `None` without Go.
fn peer(version: Version) -> Option<&'static Path> {
    static OLD: OnceLock<Option<PathBuf>> = OnceLock::new();
    static NEW: OnceLock<Option<PathBuf>> = OnceLock::new();
    let (slot, name, flags): (_, _, &[&str]) = match version {
        Version::V5_6_1 => (
            &OLD,
            "kcp-peer-5.6.1",
            &["-modfile", "kcp561.mod", "-tags", "kcp561"],
        ),
        Version::V5_6_72 => (&NEW, "kcp-peer-5.6.72", &[]),
    };
    let go = Go {
        module: "kcp",
        package: "./peer",
        flags,
    };
    slot.get_or_init(|| go.build_or_skip(env!("CARGO_TARGET_TMPDIR"), name, "kcp-go"))
        .as_deref()
}

#[derive(Clone, Copy, Debug)]
struct Case {
    version: Version,
    cipher: Cipher,
    ours: (usize, usize),
    theirs: (usize, usize),
    loss_percent: u32,
}

impl Case {
    fn options(&self) -> Options {
        let config = Config {
            mode: Mode::FAST2,
            send_window: 256,
            recv_window: 256,
            mtu: 1350,
            fec: Shards::new(self.ours.0, self.ours.1).ok(),
            ..Config::default()
        };
        let key = derive_key(b"it's a secrect");
        Options::new(
            config,
            Arc::new(Seal::new(self.cipher, &key).expect("a key of 32 bytes")),
        )
    }

    fn start(&self, program: &Path, role: &[&str]) -> Child {
        let (data, parity) = (self.theirs.0.to_string(), self.theirs.1.to_string());
        let (verb, port) = (role[0], &role[1..role.len().min(2)]);
        Command::new(program)
            .arg(verb)
            .args(port)
            .args([self.cipher.name(), &data, &parity])
            .args(&role[1 + port.len()..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the peer runs")
    }
}

/// The bytes that the Go peer makes too.
fn pattern() -> Vec<u8> {
    let mut state = 4_u32;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(BYTES)
    .collect()
}

/// Forwards between one client and `server`, losing datagrams of both directions. The seed is fixed; which datagram is
/// lost still depends on timing.
async fn forwarder(server: SocketAddr, loss_percent: u32) -> SocketAddr {
    let front = UdpSocket::bind(LOOPBACK).await.expect("a port");
    let back = UdpSocket::bind(LOOPBACK).await.expect("a port");
    let address = front.local_addr().expect("bound");
    tokio::spawn(async move {
        let (mut client, mut random) = (None, 0x1234_5678_u32);
        let (mut outward, mut inward) = (vec![0; 2048], vec![0; 2048]);
        loop {
            let (length, from_client) = tokio::select! {
                Ok((length, from)) = front.recv_from(&mut outward) => { client = Some(from); (length, true) }
                Ok((length, _)) = back.recv_from(&mut inward) => (length, false),
                else => return,
            };
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if (random >> 16) % 100 < loss_percent {
                continue;
            }
            // A full buffer loses datagrams as well.
            let _ = match (from_client, client) {
                (true, _) => back.send_to(&outward[..length], server).await,
                (false, Some(client)) => front.send_to(&inward[..length], client).await,
                (false, None) => continue,
            };
        }
    });
    address
}

/// We dial, kcp-go echoes.
async fn we_dial(case: Case, program: &Path) {
    let mut child = case.start(program, &["listen"]);
    let stdout = child.stdout.take().expect("piped");
    let mut lines = BufReader::new(stdout).lines();
    let port = timeout(HANG, lines.next_line())
        .await
        .expect("in time")
        .expect("readable")
        .expect("a line");
    let server = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port.parse().expect("a port"));
    let session = Session::connect(forwarder(server, case.loss_percent).await, case.options())
        .expect("a socket");
    let (mut reader, mut writer) = tokio::io::split(session);
    let data = pattern();
    let mut got = vec![0; data.len()];
    let (written, read) = timeout(HANG, async {
        tokio::join!(writer.write_all(&data), reader.read_exact(&mut got))
    })
    .await
    .unwrap_or_else(|_| panic!("{case:?}: the echo takes too long"));
    written.expect("written");
    read.expect("read");
    assert!(got == data, "{case:?}: the echo differs");
    let session = reader.unsplit(writer);
    let counters = session.counters();
    // With other parameters of theirs the tuner may not be done in so short a transfer.
    if case.loss_percent > 0 && case.theirs.0 > 0 && case.ours == case.theirs {
        assert!(counters.fec_recovered > 0, "{case:?}: {counters:?}");
    }
    assert_eq!(
        (
            counters.in_csum_errors,
            counters.kcp_in_errors,
            counters.fec_errs
        ),
        (0, 0, 0),
        "{case:?}"
    );
}

/// kcp-go dials, we echo.
async fn they_dial(case: Case, program: &Path) {
    let mut listener = Listener::bind(LOOPBACK, case.options()).expect("a port");
    let port = forwarder(listener.local_addr(), case.loss_percent)
        .await
        .port()
        .to_string();
    let bytes = BYTES.to_string();
    let child = case.start(program, &["dial", &port, &bytes]);
    let serve = async {
        let mut session = listener.accept().await.expect("a session");
        let mut buffer = vec![0; 65_536];
        loop {
            let count = session.read(&mut buffer).await.expect("open");
            session.write_all(&buffer[..count]).await.expect("open");
        }
    };
    let output = tokio::select! {
        output = timeout(HANG, child.wait_with_output()) => output.expect("in time").expect("output"),
        () = serve => unreachable!("it serves without end"),
    };
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "ok",
        "{case:?}"
    );
}

async fn both_roles(case: Case) {
    if let Some(program) = peer(case.version) {
        we_dial(case, program).await;
        they_dial(case, program).await;
    }
}

const NO_FEC: (usize, usize) = (0, 0);

#[tokio::test]
async fn every_cipher_talks_to_kcp_go() {
    for cipher in Cipher::ALL {
        let case = Case {
            version: Version::V5_6_72,
            cipher,
            ours: NO_FEC,
            theirs: NO_FEC,
            loss_percent: 0,
        };
        both_roles(case).await;
    }
}

#[tokio::test]
async fn fec_works_with_kcp_go() {
    for (cipher, loss_percent) in [
        (Cipher::Aes, 0),
        (Cipher::Salsa20, 10),
        (Cipher::Aes128Gcm, 10),
    ] {
        for shards in [(10, 3), (20, 10)] {
            let case = Case {
                version: Version::V5_6_72,
                cipher,
                ours: shards,
                theirs: shards,
                loss_percent,
            };
            both_roles(case).await;
        }
    }
}

#[tokio::test]
async fn loss_without_fec_is_repaired_with_kcp_go() {
    for cipher in [Cipher::Null, Cipher::Aes128] {
        let case = Case {
            version: Version::V5_6_72,
            cipher,
            ours: NO_FEC,
            theirs: NO_FEC,
            loss_percent: 10,
        };
        both_roles(case).await;
    }
}

#[tokio::test]
async fn mismatched_fec_works_with_kcp_go() {
    let cases = [
        ((10, 3), (20, 10), 0),
        ((10, 3), NO_FEC, 10),
        (NO_FEC, (10, 3), 10),
        ((5, 5), (10, 3), 10),
    ];
    for (ours, theirs, loss_percent) in cases {
        let case = Case {
            version: Version::V5_6_72,
            cipher: Cipher::Aes,
            ours,
            theirs,
            loss_percent,
        };
        both_roles(case).await;
    }
}

#[tokio::test]
async fn the_old_version_is_understood_too() {
    let cases = [
        (Cipher::Aes, NO_FEC, 10),
        (Cipher::Twofish, (10, 3), 10),
        (Cipher::Xor, (10, 3), 0),
    ];
    for (cipher, shards, loss_percent) in cases {
        let case = Case {
            version: Version::V5_6_1,
            cipher,
            ours: shards,
            theirs: shards,
            loss_percent,
        };
        both_roles(case).await;
    }
}
