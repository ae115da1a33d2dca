//! smux against Go's smux, in both roles and versions, over TCP.
//!
//! The peer is built from `testing/interop/smux`. Without Go the tests say so loudly and pass.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Stdio,
    sync::OnceLock,
    time::Duration,
};

use mux::smux::{Config, Version, io::Session};
use testkit::Go;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::timeout,
};

const HANG: Duration = Duration::from_secs(60);
const STREAMS: usize = 8;
const VERSIONS: [Version; 2] = [Version::V1, Version::V2];

/// The peer program, built once; `None` without Go.
fn peer() -> Option<&'static Path> {
    static PEER: OnceLock<Option<PathBuf>> = OnceLock::new();
    PEER.get_or_init(|| {
        let go = Go {
            module: "smux",
            package: ".",
            flags: &[],
        };
        go.build_or_skip(env!("CARGO_TARGET_TMPDIR"), "smux-peer", "Go's smux")
    })
    .as_deref()
}

fn start(args: &[&str]) -> Option<Child> {
    let child = Command::new(peer()?)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    Some(child.expect("the peer runs"))
}

/// A peer that serves, and its address.
async fn serving(version: Version) -> Option<(Child, SocketAddr)> {
    let mut child = start(&["serve", number(version)])?;
    let stdout = child.stdout.take().expect("piped");
    let port = timeout(HANG, BufReader::new(stdout).lines().next_line())
        .await
        .expect("in time")
        .expect("readable")
        .expect("a line");
    let port = port.parse().expect("a port");
    Some((child, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)))
}

fn number(version: Version) -> &'static str {
    match version {
        Version::V1 => "1",
        Version::V2 => "2",
    }
}

/// Windows smaller and larger than what Go assumes, and frames of odd sizes. An echo stops reading while it cannot write, so the
/// buffer has room for what Go sends on all streams before it is told a window: see the head of `mux::smux`.
fn configs(version: Version) -> [Config; 2] {
    [
        Config {
            version,
            ..Config::default()
        },
        Config {
            version,
            receive_buffer: 3 << 20,
            stream_buffer: 20_000,
            max_frame: 1000,
            output_limit: 3000,
            ..Config::default()
        },
    ]
}

#[tokio::test]
async fn we_open_streams_and_go_echoes() {
    for version in VERSIONS {
        let Some((_child, address)) = serving(version).await else {
            return;
        };
        for config in configs(version) {
            let transport = TcpStream::connect(address).await.expect("connected");
            let session = Session::client(transport, config);
            let mut tasks = Vec::new();
            for i in 0..STREAMS {
                let stream = session.open().await.expect("opened");
                tasks.push(tokio::spawn(async move {
                    let data: Vec<u8> = (0..1_000_000 + i)
                        .map(|n| (n * 7 + (n >> 9) + i) as u8)
                        .collect();
                    let mut got = vec![0; data.len()];
                    let (mut reader, mut writer) = tokio::io::split(stream);
                    let (sent, read) =
                        tokio::join!(writer.write_all(&data), reader.read_exact(&mut got));
                    sent.expect("sent");
                    read.expect("read");
                    assert!(got == data, "the echo of stream {i} differs");
                    writer.shutdown().await.expect("open");
                    let n = reader.read(&mut got).await.expect("the end");
                    assert_eq!(n, 0, "Go closes when it has read the end");
                }));
            }
            for task in tasks {
                timeout(HANG, task)
                    .await
                    .expect("in time")
                    .expect("no panic");
            }
        }
    }
}

#[tokio::test]
async fn go_opens_streams_and_we_echo() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let port = listener.local_addr().expect("bound").port().to_string();
    for version in VERSIONS {
        for config in configs(version) {
            let streams = STREAMS.to_string();
            let Some(child) = start(&["dial", &port, number(version), &streams, "1000003"]) else {
                return;
            };
            let (transport, _) = timeout(HANG, listener.accept())
                .await
                .expect("in time")
                .expect("accepted");
            let session = Session::server(transport, config);

            let serve = async {
                while let Ok(stream) = session.accept().await {
                    tokio::spawn(async move {
                        let (mut reader, mut writer) = tokio::io::split(stream);
                        tokio::io::copy(&mut reader, &mut writer).await?;
                        writer.shutdown().await
                    });
                }
            };
            let (output, ()) = tokio::join!(timeout(HANG, child.wait_with_output()), serve);
            let output = output.expect("in time").expect("output");
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "ok");
        }
    }
}

#[tokio::test]
async fn go_answers_after_our_end_while_the_window_lasts() {
    for version in VERSIONS {
        let Some((_child, address)) = serving(version).await else {
            return;
        };
        let transport = TcpStream::connect(address).await.expect("connected");
        let config = Config {
            version,
            ..Config::default()
        };
        let session = Session::client(transport, config);
        let mut stream = session.open().await.expect("opened");
        let data = vec![5; 200_000];
        stream.write_all(&data).await.expect("sent");
        stream.shutdown().await.expect("open");
        let mut got = Vec::new();
        timeout(HANG, stream.read_to_end(&mut got))
            .await
            .expect("in time")
            .expect("read");
        assert!(got == data);
    }
}

#[tokio::test]
async fn another_version_than_gos_ends_the_session() {
    let Some((_child, address)) = serving(Version::V1).await else {
        return;
    };
    let transport = TcpStream::connect(address).await.expect("connected");
    let config = Config {
        version: Version::V2,
        keep_alive: Duration::from_millis(100),
        keep_alive_timeout: Duration::from_secs(1),
        ..Config::default()
    };
    let session = Session::client(transport, config);
    let mut stream = session.open().await.expect("opened");
    // Go goes silent when it sees another version, it does not say so.
    let read = timeout(HANG, stream.read(&mut [0; 10])).await;
    assert!(read.expect("in time").is_err());
}
