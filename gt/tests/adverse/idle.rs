//! What visitors cost who are there and do nothing.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Mutex, PoisonError},
    thread,
};

use e2e::{PATIENCE, Server, ServerSpec, Transport, http, wait};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::process::{descriptors, raise_files, wait_descriptors};

/// Kept-alive HTTP visitors between two requests: 10,000, or as many as there may be open files. One worker, so that all of them
/// are on one link.
#[test]
fn ten_thousand_idle_visitors_cost_less_than_4_kib_each() {
    idle_visitors_cost_little("stream", 10_000);
}

/// In HTTP mode they hold no stream between two requests.
#[test]
fn ten_thousand_idle_visitors_in_http_mode_cost_less_than_4_kib_each() {
    idle_visitors_cost_little("http", 10_000);
}

fn idle_visitors_cost_little(mode: &str, most: usize) {
    // One after the other: this process may not have the descriptors of both.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let origin = idle_origin();
    let server = ServerSpec::new()
        .user("web")
        .option("workers", 1)
        .option("timeout", 0)
        .start();
    let client = server
        .client(Transport::Tcp, "web")
        .service(format!("http://{origin}"), &format!("mode: {mode}"))
        .start_up();
    // This process holds both the visitors and what the service accepted.
    let files = raise_files(&server.process, 2 * 10_000 + SPARE)
        .min(raise_files(&client.process, 2 * 10_000 + SPARE));
    let visitors = usize::try_from((files - SPARE) / 2)
        .expect("fits")
        .min(most);
    // What the first visitors cost is not theirs: buffers of the worker, the allocator's arenas.
    let mut all: Vec<TcpStream> = (0..WARM).map(|_| idle_visitor(&server)).collect();
    let (before, client_before) = (server.process.rss_kib(), client.process.rss_kib());
    let files_before = descriptors(&server.process);
    all.extend((WARM..visitors).map(|_| idle_visitor(&server)));
    let more = (visitors - WARM) as u64;
    wait::until("all are there", || {
        (descriptors(&server.process) >= files_before + visitors - WARM).then_some(())
    });
    let grown = server.process.rss_kib().saturating_sub(before);
    let client_grown = client.process.rss_kib().saturating_sub(client_before);
    println!(
        "{visitors} idle visitors: {} bytes each in the server, {} in the client",
        (grown << 10) / more,
        (client_grown << 10) / more
    );
    assert!(grown < 4 * more, "{grown} KiB for {more} visitors");
    // They are served when they wake up.
    for visitor in all.iter_mut().step_by(997) {
        ask(visitor);
    }
    drop(all);
    wait_descriptors(&server.process, files_before - WARM);
}

fn idle_visitor(server: &Server) -> TcpStream {
    let mut visitor = http::connect(server.http()).expect("accepts");
    visitor.set_read_timeout(Some(PATIENCE)).expect("settable");
    ask(&mut visitor);
    visitor
}

fn ask(visitor: &mut TcpStream) {
    visitor
        .write_all(b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\n")
        .expect("writable");
    let mut answer = [0; ANSWER.len()];
    visitor.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, ANSWER);
}

/// Answers requests, on one thread: ten thousand would be the test's own weight.
fn idle_origin() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    listener.set_nonblocking(true).expect("settable");
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("usable");
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = [0; 512];
                    while stream.read(&mut request).await.is_ok_and(|n| n > 0)
                        && stream.write_all(ANSWER).await.is_ok()
                    {}
                });
            }
        });
    });
    address
}

const ANSWER: &[u8; 40] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const WARM: usize = 200;
/// Descriptors that are not visitors'.
const SPARE: u64 = 300;
