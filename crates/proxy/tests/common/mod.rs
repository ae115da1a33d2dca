//! A proxy in front of an origin that does exactly what a test says, and visitors that send exactly the bytes that they are given.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use proxy::{
    Address, Check, KeepAlive, Listener, Options, Protocol, Proxy, Site, UpstreamServer,
    UpstreamSpec,
};
use route::{
    Action, BreakerSpec, HealthSpec, IpSet, Match, Policy, RetryBudgetSpec, Route, Routes,
    ServerSpec, ToUpstream, UpstreamId,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn server(address: SocketAddr) -> UpstreamServer {
    UpstreamServer {
        spec: ServerSpec::new(&address.to_string()),
        address: Address::Tcp(address.ip().to_string().into(), address.port()),
        authority: address.to_string().into(),
        tls: None,
        send_proxy: None,
    }
}

pub(crate) fn upstream(servers: Vec<UpstreamServer>) -> UpstreamSpec {
    UpstreamSpec {
        name: "app".into(),
        servers,
        policy: Policy::default(),
        hash_key: None,
        sticky: None,
        slow_start: Duration::ZERO,
        health: HealthSpec::default(),
        check: Check::default(),
        check_port: None,
        breaker: BreakerSpec::default(),
        retry: RetryBudgetSpec::default(),
        keep_alive: KeepAlive::default(),
        protocol: proxy::ServerProtocol::default(),
    }
}

pub(crate) fn route() -> Route {
    Route::new("all", Action::Upstream(ToUpstream::new(UpstreamId(0))))
}

pub(crate) fn site(route: Route, upstreams: Vec<UpstreamSpec>) -> Site {
    Site {
        routes: std::sync::Arc::new(
            Routes::new(vec![(Match::default(), route)]).expect("one route"),
        ),
        upstreams,
        ..Site::default()
    }
}

pub(crate) fn start(site: Site) -> Proxy {
    Proxy::start(Options {
        workers: Some(1),
        listeners: vec![Listener {
            address: "127.0.0.1:0".parse().expect("an address"),
            protocol: Protocol::Http { http2: true },
            proxy_from: IpSet::default(),
            http3: false,
        }],
        site,
        access_log: None,
    })
    .expect("a free port")
}

/// A proxy with one route to one origin.
pub(crate) fn before(origin: &Origin) -> Proxy {
    start(site(route(), vec![upstream(vec![server(origin.address)])]))
}

pub(crate) fn metric(proxy: &Proxy, name: &str) -> u64 {
    let all = proxy.metrics();
    let found = all.iter().find(|(other, ..)| *other == name);
    found.unwrap_or_else(|| panic!("no metric {name}")).3
}

/// Waits until a metric has a value: counters are written by other threads.
pub(crate) fn await_metric(proxy: &Proxy, name: &str, value: u64) {
    let until = Instant::now() + PATIENCE;
    while metric(proxy, name) != value {
        assert!(
            Instant::now() < until,
            "{name} is {}, not {value}",
            metric(proxy, name)
        );
        thread::yield_now();
    }
}

/// Listens, and runs a function for every connection.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pub(crate) accepted: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Origin {
    pub(crate) fn new(serve: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (accepted, stop) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, stopped) = (Arc::clone(&accepted), Arc::clone(&stop));
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { return };
                let _ = stream.set_nodelay(true);
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let n = count.fetch_add(1, SeqCst);
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream, n));
            }
        });
        Self {
            address,
            accepted,
            stop,
        }
    }

    /// Answers every request with `answer` and tells what it was sent.
    pub(crate) fn answering(answer: &'static [u8]) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (tell, told) = mpsc::channel();
        let origin = Self::new(move |mut stream, _| {
            while let Some(request) = read_message(&mut stream) {
                let _ = tell.send(request);
                if stream.write_all(answer).is_err() {
                    return;
                }
            }
        });
        (origin, told)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Resets the connection instead of closing it.
pub(crate) fn reset(stream: TcpStream) {
    let socket = socket2::Socket::from(stream);
    let _ = socket.set_linger(Some(Duration::ZERO));
}

pub(crate) fn connect(proxy: &Proxy) -> TcpStream {
    connect_to(proxy.addresses()[0])
}

pub(crate) fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// A head, without its body.
pub(crate) fn read_head(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(head)
}

/// A head and its body, framed by Content-Length or chunks; as it came.
pub(crate) fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut message = read_head(stream)?;
    let text = String::from_utf8_lossy(&message).to_ascii_lowercase();
    if let Some(length) = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
    {
        let mut body = vec![0; length.parse().ok()?];
        stream.read_exact(&mut body).ok()?;
        message.extend_from_slice(&body);
    } else if text.contains("transfer-encoding: chunked") {
        let head = message.len();
        let mut byte = [0];
        while !(message[head..].ends_with(b"\r\n\r\n") && ends_chunks(&message[head..])) {
            stream.read_exact(&mut byte).ok()?;
            message.push(byte[0]);
        }
    }
    Some(message)
}

/// Whether these are chunks up to the last.
fn ends_chunks(mut body: &[u8]) -> bool {
    loop {
        let Some(at) = body.windows(2).position(|two| two == b"\r\n") else {
            return false;
        };
        let line = String::from_utf8_lossy(&body[..at]);
        let digits = line.split(';').next().unwrap_or_default();
        let Ok(size) = usize::from_str_radix(digits, 16) else {
            return false;
        };
        if size == 0 {
            return true;
        }
        let Some(rest) = body.get(at + 2 + size + 2..) else {
            return false;
        };
        body = rest;
    }
}

/// Sends bytes on a connection of its own and reads until the proxy closes. The second value is false if it was reset.
pub(crate) fn exchange(proxy: &Proxy, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut stream = connect(proxy);
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let clean = stream.read_to_end(&mut answer).is_ok();
    (answer, clean)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
