//! What a path carries without gt: services and visitors of kernel TCP, whose bytes are counted where they arrive, and a bare session of
//! crate `kcp` as links use it.

use std::{
    future::Future,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use e2e::netns::inside;
use kcp::{
    secure::Options,
    udp::secure::{self, Limits, Stream},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the service to the visitor.
    Down,
    /// To the service.
    Up,
}

/// Services of TCP on all addresses of a namespace.
#[derive(Debug)]
pub(crate) struct Services {
    /// Sends without end.
    pub(crate) source: SocketAddr,
    /// Takes everything.
    pub(crate) sink: SocketAddr,
    /// Gives back what it gets.
    pub(crate) echo: SocketAddr,
    /// Bytes that the sink got.
    pub(crate) sunk: Arc<AtomicU64>,
}

impl Services {
    pub(crate) fn start() -> std::io::Result<Self> {
        let sunk = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sunk);
        Ok(Self {
            source: serve(|mut stream| while stream.write_all(&[7; 64 << 10]).is_ok() {})?,
            sink: serve(move |stream| drain(stream, &count))?,
            echo: serve(|mut stream| {
                let _ = stream.set_nodelay(true);
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            })?,
            sunk,
        })
    }
}

/// Gives each connection a thread.
fn serve(each: impl Fn(TcpStream) + Clone + Send + 'static) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                return;
            };
            let each = each.clone();
            thread::spawn(move || each(stream));
        }
    });
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

fn drain(mut stream: TcpStream, count: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        count.fetch_add(n as u64, Relaxed);
    }
}

/// Mbit/s that so many visitors in `namespace` get together, or get rid of, in `time` after `warm`.
pub(crate) fn visit(
    namespace: &str,
    address: SocketAddr,
    visitors: usize,
    sunk: Option<&AtomicU64>,
    (warm, time): (Duration, Duration),
) -> std::io::Result<f64> {
    let read = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    inside(namespace, || {
        let mut streams = Vec::new();
        for _ in 0..visitors {
            let stream = TcpStream::connect_timeout(&address, SILENCE)?;
            stream.set_read_timeout(Some(TICK))?;
            stream.set_write_timeout(Some(TICK))?;
            // What is still on its way when it is over must not meet the next one.
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            streams.push(stream);
        }
        thread::scope(|scope| {
            for mut stream in streams {
                let (read, stop) = (&read, &stop);
                scope.spawn(move || {
                    let mut buffer = vec![7; 64 << 10];
                    while !stop.load(Relaxed) {
                        let done = match sunk {
                            Some(_) => stream.write(&buffer),
                            None => stream.read(&mut buffer),
                        };
                        match done {
                            Ok(0) => return,
                            Ok(n) => {
                                read.fetch_add(n as u64, Relaxed);
                            }
                            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                            Err(_) => return,
                        }
                    }
                });
            }
            let rate = rate(sunk.unwrap_or(&read), warm, time);
            stop.store(true, Relaxed);
            Ok(rate)
        })
    })
}

fn rate(count: &AtomicU64, warm: Duration, time: Duration) -> f64 {
    thread::sleep(warm);
    let (before, began) = (count.load(Relaxed), Instant::now());
    thread::sleep(time);
    let bytes = count.load(Relaxed) - before;
    bytes as f64 * 8.0 / 1e6 / began.elapsed().as_secs_f64()
}

/// How long single bytes to an echo service and back take, one each 50 ms for `time`, sorted.
pub(crate) fn keys(
    namespace: &str,
    address: SocketAddr,
    warm: Duration,
    time: Duration,
) -> std::io::Result<Vec<Duration>> {
    inside(namespace, || {
        thread::sleep(warm);
        let mut stream = TcpStream::connect_timeout(&address, SILENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let end = Instant::now() + time;
        let mut took = Vec::new();
        while Instant::now() < end {
            let pressed = Instant::now();
            stream.write_all(&[1])?;
            stream.read_exact(&mut [0])?;
            took.push(pressed.elapsed());
            thread::sleep(Duration::from_millis(50).saturating_sub(pressed.elapsed()));
        }
        took.sort();
        Ok(took)
    })
}

/// Mbit/s of a bare KCP session, opened from the left as a client does, with the options of links.
pub(crate) fn kcp_session(
    (left, right): (&str, &str),
    address: SocketAddr,
    direction: Direction,
    (warm, time): (Duration, Duration),
) -> anyhow::Result<f64> {
    let count = AtomicU64::new(0);
    let all = warm + time + Duration::from_secs(1);
    let server = || {
        run(async {
            let socket = UdpSocket::bind(address)?;
            let mut shards = secure::shards(
                vec![socket],
                &Options::default(),
                Limits::default(),
                &Arc::default(),
            );
            let shard = shards.pop().ok_or(std::io::ErrorKind::NotFound)?;
            let stream = shard.listen()?.accept().await?;
            stream.admit();
            let _ = timeout(all, one_end(stream, direction == Direction::Up, &count)).await;
            Ok(())
        })
    };
    let client = || {
        run(async {
            let mut stream = secure::connect(address, Options::default()).await?;
            // The server has a session once something has come.
            stream.write_all(&[7]).await?;
            let _ = timeout(all, one_end(stream, direction == Direction::Down, &count)).await;
            Ok(())
        })
    };
    thread::scope(|scope| {
        let server = scope.spawn(|| inside(right, server));
        let client = scope.spawn(|| inside(left, client));
        let rate = rate(&count, warm, time);
        for end in [server, client] {
            let end = end.join();
            end.map_err(|_| anyhow::anyhow!("an end of the session panicked"))??;
        }
        Ok(rate)
    })
}

async fn one_end(mut stream: Stream, sends: bool, count: &AtomicU64) -> std::io::Result<()> {
    let mut buffer = vec![7; 64 << 10];
    loop {
        if sends {
            stream.write_all(&buffer).await?;
            continue;
        }
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            n => count.fetch_add(n as u64, Relaxed),
        };
    }
}

fn run(end: impl Future<Output = std::io::Result<()>>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(end)
}

/// How often threads look whether they should end.
const TICK: Duration = Duration::from_millis(100);
/// Longer than anything takes on these paths.
const SILENCE: Duration = Duration::from_secs(5);
