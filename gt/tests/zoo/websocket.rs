//! WebSocket visitors through the proxy: whatever they send, what comes back is to the byte what the server itself sends back.
//!
//! The cases are of the kinds that Autobahn's fuzzing client has: framing, pings, reserved bits, opcodes, fragments, UTF-8, closing, sizes and compression, and
//! some of them at random. Replay one with GT_CASE=NAME.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use e2e::{PortRange, Process, TempDir, wait};

use crate::{
    proxies::Proxy,
    tools::{node_packages, program, zoo},
    ws_cases::{self, Case},
};

#[test]
fn websockets_of_node_are_the_same_through_the_proxy() {
    of_node(ws_cases::all(1, 100));
}

#[test]
#[ignore = "the long form: make interop-proxy"]
fn many_websockets_of_node_are_the_same_through_the_proxy() {
    of_node(ws_cases::all(2, 2000));
}

fn of_node(cases: Vec<Case>) {
    let port = PortRange::claim(1);
    let _server = ws_server(&port);
    compare(port.first(), cases);
}

/// A server on the npm package `ws` that sends back what it gets.
pub(crate) fn ws_server(port: &PortRange) -> Process {
    let mut node = Command::new(program("node", "Debian's nodejs"));
    node.arg(zoo("ws/server.mjs"))
        .arg(port.first().to_string())
        .arg(node_packages());
    Process::start("ws", node, TempDir::new())
}

/// What a server has said.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    /// Of the head what the two ends agree on.
    head: Vec<String>,
    frames: Vec<u8>,
    /// Whether the connection ended in time.
    ended: bool,
}

fn compare(port: u16, mut cases: Vec<Case>) {
    let direct = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait::until_accepting(direct);
    let gt = Proxy::gt(&[direct]);
    if let Ok(only) = std::env::var("GT_CASE") {
        cases.retain(|case| case.name == only);
    }
    let next = AtomicUsize::new(0);
    let take = || cases.get(next.fetch_add(1, Relaxed));
    let wrong: Vec<String> = thread::scope(|scope| {
        let work = || {
            let mut wrong = Vec::new();
            while let Some(case) = take() {
                let (own, through) = (play(direct, case), play(gt.address(0), case));
                if own != through || !own.ended {
                    wrong.push(format!(
                        "{}: {} but {}",
                        case.name,
                        show(&own),
                        show(&through)
                    ));
                }
            }
            wrong
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a worker"))
            .collect()
    });
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        cases.len(),
        wrong[..wrong.len().min(10)].join("\n")
    );
    println!("{} cases", cases.len());
}

/// Plays a case and ends the connection when the server has closed, or shows that it will not. Frames follow the server's consent.
fn play(to: SocketAddr, case: &Case) -> Said {
    let mut stream = e2e::http::connect(to).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
        .write_all(case.handshake.as_bytes())
        .expect("written");
    let mut bytes = Vec::new();
    while head_length(&bytes).is_none() && more(&mut stream, &mut bytes) {}
    let at = head_length(&bytes).unwrap_or(bytes.len());
    let mut frames = bytes.split_off(at);
    let head = bytes;
    // The body of a refusal is no concern here, nor whether the connection goes on behind it.
    let switched = head.starts_with(b"HTTP/1.1 101 ");
    let ended = !switched || converse(&mut stream, &mut frames, case);
    if !switched {
        frames.clear();
    }
    let matters = |line: &&str| {
        let line = line.to_ascii_lowercase();
        let names = ["http/", "sec-websocket-", "upgrade:"];
        names.iter().any(|name| line.starts_with(name))
    };
    let text = String::from_utf8_lossy(&head);
    let mut head: Vec<String> = text.lines().filter(matters).map(str::to_owned).collect();
    head.sort_unstable();
    Said {
        head,
        frames,
        ended,
    }
}

/// Sends a case's frames and reads to the end; whether that came in time.
fn converse(stream: &mut TcpStream, frames: &mut Vec<u8>, case: &Case) -> bool {
    thread::scope(|scope| {
        let writer = stream.try_clone().expect("another handle");
        // On a thread of its own: large messages go both ways at once.
        scope.spawn(move || send(writer, case));
        let deadline = Instant::now() + PATIENCE;
        let mut told = false;
        loop {
            if !told && closes(frames) {
                told = stream.shutdown(Shutdown::Write).is_ok();
            }
            // A reset behind the server's last word is an end: it had bytes of this end unread.
            if !more(stream, frames) {
                return Instant::now() < deadline;
            }
        }
    })
}

fn send(mut stream: TcpStream, case: &Case) {
    for piece in &case.pieces {
        if stream.write_all(piece).is_err() {
            return;
        }
    }
    if case.breaks_off {
        let _ = stream.shutdown(Shutdown::Write);
    }
}

fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> bool {
    let mut piece = [0; 64 << 10];
    let n = stream.read(&mut piece).unwrap_or_default();
    bytes.extend_from_slice(&piece[..n]);
    n > 0
}

fn head_length(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map(|at| at + 4)
}

/// Whether a whole Close frame of a server is there.
fn closes(mut bytes: &[u8]) -> bool {
    while let [first, second, ..] = *bytes {
        let (length, head) = match second & 127 {
            126 => (
                bytes
                    .get(2..4)
                    .map(|n| usize::from(u16::from_be_bytes([n[0], n[1]]))),
                4,
            ),
            127 => (
                bytes
                    .get(2..10)
                    .and_then(|n| u64::from_be_bytes(n.try_into().ok()?).try_into().ok()),
                10,
            ),
            short => (Some(usize::from(short)), 2),
        };
        let Some(rest) = length.and_then(|length| bytes.get(head + length..)) else {
            return false;
        };
        if first & 15 == 8 {
            return true;
        }
        bytes = rest;
    }
    false
}

fn show(said: &Said) -> String {
    let (length, most) = (said.frames.len(), said.frames.len().min(60));
    let ended = if said.ended { "ended" } else { "not ended" };
    format!(
        "{:?} {length} bytes {:02x?} {ended}",
        said.head,
        &said.frames[..most]
    )
}

const PATIENCE: Duration = Duration::from_secs(15);
