//! Moments that last microseconds in a running server, held still: what the counts say of a session's links is not what is there.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use link::{Handler, Link, LinkOptions, Side, Stream};
use proxy::{NoStream, RelayService};
use tokio::io::AsyncWriteExt;
use tunnel::{HttpMode, StreamProtocol};

use super::{AWAY_PATIENCE, Visit, carry};
use crate::{
    scene::{come, server},
    server::Server,
    session::{Service, Session},
    worker::Worker,
};

/// A server with two workers and a client with the prefix `web`, whose link is counted on worker 0 and is not there.
fn scene(http: Option<HttpMode>) -> (Server, Arc<Session>) {
    let server = server(2);
    let session = come(&server.shared.registry, "web", http);
    session.place_link(0);
    (server, session)
}

fn visitors(server: &Server) -> Vec<TcpStream> {
    let address = server.shared.listeners[0].1;
    let visit = |_| {
        let mut visitor = TcpStream::connect(address).expect("accepts");
        let request = b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\n";
        visitor.write_all(request).expect("sent");
        visitor
    };
    // The kernel spreads them over the workers: that none comes to worker 1 is a matter of 2^-24.
    (0..24).map(visit).collect()
}

/// The first bytes of an answer; `None` when there are none within `patience`.
fn answer(visitor: &mut TcpStream, patience: Duration) -> Option<String> {
    visitor
        .set_read_timeout(Some(patience.max(Duration::from_millis(1))))
        .expect("settable");
    let mut said = [0; 256];
    match visitor.read(&mut said) {
        Ok(n) => Some(String::from_utf8_lossy(&said[..n]).into_owned()),
        Err(error) => {
            assert!(
                matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                "{error}"
            );
            None
        }
    }
}

#[test]
fn a_visitor_who_arrives_at_a_worker_just_after_its_link_died_waits_for_another() {
    let (server, session) = scene(None);
    // Visitors of worker 1 are sent to worker 0, which is busy until the link's death is written down.
    let blocked = Duration::from_millis(500);
    let busy = server.shared.handle(0).expect("worker 0");
    let _ = busy.spawn(move || async move { std::thread::sleep(blocked) });
    let mut visitors = visitors(&server);
    std::thread::sleep(blocked / 2);
    session.link_ended(0);
    let until = Instant::now() + blocked + Duration::from_millis(700);
    for visitor in &mut visitors {
        let early = answer(visitor, until.saturating_duration_since(Instant::now()));
        assert_eq!(early, None, "answered instead of waiting");
    }
    // No link comes, and then the client is gone: nobody waits any longer.
    assert!(server.shared.registry.end_if_away(&session));
    for visitor in &mut visitors {
        let answer = answer(visitor, Duration::from_secs(2)).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
}

#[test]
fn a_visitor_of_a_link_that_is_counted_and_never_comes_is_answered_after_the_time_for_it() {
    let (server, _session) = scene(None);
    let began = Instant::now();
    for visitor in &mut visitors(&server) {
        let answer = answer(visitor, Duration::from_secs(6)).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(2900) && took < Duration::from_secs(5),
        "{took:?}"
    );
}

/// Answers every stream.
struct Answering;

impl Handler for Answering {
    fn opened(&self, _: &Link, _: Vec<u8>, mut stream: Stream) {
        tokio::task::spawn_local(async move {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            let _ = stream.write_all(answer).await;
            // It stays open until the other end has read and closed it.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        });
    }

    fn control(&self, _: &Link, _: &[u8]) {}
}

/// One end of a link, on a worker; `add` is told when it is there.
fn run_link(
    server: &Server,
    on: usize,
    side: Side,
    socket: TcpStream,
    add: impl FnOnce(&Worker, Link) + Send + 'static,
) {
    socket.set_nonblocking(true).expect("settable");
    let handle = server.shared.handle(on).expect("a worker");
    let _ = handle.spawn(move || async move {
        let stream = tokio::net::TcpStream::from_std(socket).expect("a socket");
        let options = LinkOptions {
            side,
            config: mux::Config::default(),
            sweep_every: Duration::from_secs(10),
            fec: None,
        };
        let transport = net::Stream::from(stream).into();
        let (link, driver) = Link::start(transport, &options, Rc::new(Answering));
        add(&Worker::current().expect("a worker"), link);
        driver.await;
    });
}

fn finds_a_link_that_comes_to_worker_0(http: Option<HttpMode>) {
    let (server, session) = scene(http);
    // On its way to worker 1, for good: each worker sends visitors to the other.
    session.place_link(1);
    let mut visitors = visitors(&server);
    std::thread::sleep(Duration::from_millis(300));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let far = TcpStream::connect(listener.local_addr().expect("bound")).expect("accepts");
    let (near, _) = listener.accept().expect("connected");
    run_link(&server, 1, Side::Initiator, far, |_, _| {});
    let of = Arc::clone(&session);
    run_link(&server, 0, Side::Acceptor, near, move |worker, link| {
        worker.add_link(of.key, link);
        of.change();
    });
    for visitor in &mut visitors {
        let answer = answer(visitor, Duration::from_secs(5)).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn visitors_find_the_link_that_comes_after_they_have_looked_at_every_worker() {
    finds_a_link_that_comes_to_worker_0(None);
}

#[test]
fn requests_find_the_link_that_comes_after_they_have_looked_at_every_worker() {
    finds_a_link_that_comes_to_worker_0(Some(HttpMode::default()));
}

/// The scene's client is gone for good; its service is as one finds it who asked just before. Runs `look` with it on worker 0.
fn found_too_late<F: Future<Output = ()> + 'static>(
    http: Option<HttpMode>,
    look: impl FnOnce(Rc<Worker>, Arc<Service>) -> F + Send + 'static,
) -> Server {
    let (server, session) = scene(http);
    let sessions = server.shared.registry.sessions();
    let service = Arc::clone(&sessions[0].1[0]);
    session.link_ended(0);
    assert!(server.shared.registry.end_if_away(&session));
    let handle = server.shared.handle(0).expect("worker 0");
    let _ = handle.spawn(move || look(Worker::current().expect("a worker"), service));
    server
}

#[test]
fn who_finds_a_service_as_its_client_goes_for_good_is_answered_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut visitor = TcpStream::connect(listener.local_addr().expect("bound")).expect("accepts");
    let (socket, from) = listener.accept().expect("connected");
    socket.set_nonblocking(true).expect("settable");
    let _server = found_too_late(None, move |worker, service| async move {
        let stream = tokio::net::TcpStream::from_std(socket).expect("a socket");
        let protocol = StreamProtocol::Http1;
        let visit = Visit::new(&worker.server, stream.into(), Vec::new(), from, protocol);
        carry(worker, visit, service).await;
    });
    let answer = answer(&mut visitor, AWAY_PATIENCE * 2 / 3).expect("an answer without waiting");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

#[test]
fn a_request_that_finds_a_service_as_its_client_goes_for_good_is_answered_at_once() {
    let (tell, told) = std::sync::mpsc::channel();
    let _server = found_too_late(Some(HttpMode::default()), move |_, service| async move {
        let visit = proxy::Visit {
            visitor: ([127, 0, 0, 1], 1).into(),
            local: ([127, 0, 0, 1], 2).into(),
            host: "web.test".into(),
        };
        let _ = tell.send(service.open(visit).await.err());
    });
    let why = told.recv_timeout(AWAY_PATIENCE * 2 / 3);
    assert_eq!(why, Ok(Some(NoStream::Away)));
}
