//! Ports of UDP services: each visitor's address is a stream of datagrams. A visitor that is
//! silent for a while is forgotten.
//!
//! Speed limits hold for datagrams too. One that would wait for longer than [`STALE`] is dropped: late datagrams are of no use, and
//! whoever sends them finds his rate by their loss.

use std::{
    cell::Cell,
    collections::HashMap,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use link::Pacer;
use net::{UdpSocket, WorkerHandle};
use tokio::sync::mpsc;
use tunnel::{StreamHeader, StreamProtocol};

use crate::{metrics::Metrics, ports::Port, session::Service, worker::Worker};

/// Serves the socket on a worker that has a link of the service's client; moves when that changes.
pub(crate) fn serve(workers: &[WorkerHandle], port: Arc<Port>, socket: std::net::UdpSocket) {
    let target = port
        .route
        .load()
        .pick()
        .and_then(|service| service.session.workers_with_links(0).next())
        .unwrap_or(0);
    let Some(handle) = workers.get(target) else {
        return;
    };
    let workers = workers.to_vec();
    let _ = handle.spawn(move || async move {
        let Some(worker) = Worker::current() else {
            return;
        };
        let (closed, stopping) = (port.closed.clone(), worker.server.stopping.clone());
        let run = run(&worker, &port, socket);
        let moved = tokio::select! {
            moved = run => moved,
            () = closed.wait() => None,
            () = stopping.wait() => None,
        };
        if let Some(socket) = moved {
            serve(&workers, port, socket);
        }
    });
}

/// Visitors whose datagrams are on their way, by address.
type Visitors = HashMap<SocketAddr, Visitor>;

struct Visitor {
    datagrams: mpsc::Sender<Waiting>,
    heard_at: Rc<Cell<Instant>>,
}

/// A datagram that waits for its turn.
struct Waiting {
    since: Instant,
    datagram: Vec<u8>,
}

impl Waiting {
    fn new(datagram: Vec<u8>) -> Self {
        Self {
            since: Instant::now(),
            datagram,
        }
    }
}

/// The next datagram when its turn has come; those that have waited for too long are dropped.
async fn next(
    queue: &mut mpsc::Receiver<Waiting>,
    pacer: Option<&Pacer>,
    metrics: &Metrics,
) -> Option<Vec<u8>> {
    loop {
        let Waiting { since, datagram } = queue.recv().await?;
        let Some(pacer) = pacer else {
            return Some(datagram);
        };
        if since.elapsed() > STALE {
            metrics.datagrams_dropped_total.add_one();
            continue;
        }
        tokio::time::sleep_until(pacer.reserve(datagram.len()).into()).await;
        return Some(datagram);
    }
}

/// Returns the socket when the service's links are on another worker.
async fn run(
    worker: &Rc<Worker>,
    port: &Port,
    socket: std::net::UdpSocket,
) -> Option<std::net::UdpSocket> {
    let mut socket = match UdpSocket::from_std(socket) {
        Ok(socket) => Rc::new(socket),
        Err(error) => {
            tracing::error!(%error, port = port.number, "a UDP port cannot be served");
            return None;
        }
    };
    let mut visitors = Visitors::new();
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let mut sweep = tokio::time::interval(IDLE / 4);
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            _ = sweep.tick() => {
                visitors.retain(|_, visitor| !visitor.datagrams.is_closed() && visitor.heard_at.get().elapsed() < IDLE);
                continue;
            }
        };
        // An error here is an answer to an earlier send (ICMP); the socket goes on.
        let Ok((length, address)) = received else {
            continue;
        };
        let metrics = &worker.server.metrics;
        let Some(service) = port.route.load().pick().cloned() else {
            metrics.datagrams_dropped_total.add_one();
            continue;
        };
        if !service.admits(address.ip()) {
            metrics.denied_total.add_one();
            continue;
        }
        if worker.link(service.session.key).is_none() {
            metrics.datagrams_dropped_total.add_one();
            if service
                .session
                .next_with_link(worker.index)
                .is_some_and(|other| other != worker.index)
            {
                // The visitors' tasks let go of the socket when they are not just sending; else the next datagram tries again.
                visitors.clear();
                match Rc::try_unwrap(socket) {
                    Ok(socket) => return socket.into_std().ok(),
                    Err(busy) => socket = busy,
                }
            }
            continue;
        }
        let known = visitors
            .get(&address)
            .is_some_and(|visitor| !visitor.datagrams.is_closed());
        if !known {
            if visitors.len() >= MOST_VISITORS {
                metrics.datagrams_dropped_total.add_one();
                continue;
            }
            visitors.insert(address, admit(worker, &socket, service, address));
        }
        let Some(visitor) = visitors.get(&address) else {
            continue;
        };
        visitor.heard_at.set(Instant::now());
        if visitor
            .datagrams
            .try_send(Waiting::new(buffer[..length].to_vec()))
            .is_err()
        {
            metrics.datagrams_dropped_total.add_one();
        }
    }
}

fn admit(
    worker: &Rc<Worker>,
    socket: &Rc<UdpSocket>,
    service: Arc<Service>,
    address: SocketAddr,
) -> Visitor {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let heard_at = Rc::new(Cell::new(Instant::now()));
    let visitor = Visitor {
        datagrams: sender,
        heard_at: Rc::clone(&heard_at),
    };
    let (worker, socket) = (Rc::clone(worker), Rc::downgrade(socket));
    tokio::task::spawn_local(async move {
        let metrics = &worker.server.metrics;
        metrics.visitors_total.add_one();
        let _visitor = metrics.visitors_open.enter();
        let Some(_place) = service.session.account.enter() else {
            return metrics.limit_streams_total.add_one();
        };
        let ended = carry(&worker, &socket, &service, address, receiver, &heard_at).await;
        tracing::debug!(?ended, "a UDP visit ended");
    });
    visitor
}

async fn carry(
    worker: &Worker,
    socket: &std::rc::Weak<UdpSocket>,
    service: &Service,
    address: SocketAddr,
    mut datagrams: mpsc::Receiver<Waiting>,
    heard_at: &Cell<Instant>,
) -> io::Result<()> {
    let link = worker
        .link(service.session.key)
        .ok_or(io::ErrorKind::NotConnected)?;
    let mut header = Vec::new();
    StreamHeader {
        service: service.declared.id,
        protocol: StreamProtocol::Udp,
        visitor: Some(address),
        local: None,
        server_name: None,
    }
    .encode(&mut header);
    let stream = link
        .open_stream(&header, Some(Arc::clone(&service.traffic)))
        .map_err(io::Error::other)?;
    let metrics = &worker.server.metrics;
    metrics.streams_total.add_one();
    service
        .visitors_total
        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let _open = metrics.streams_open.enter();
    let (mut from_link, mut to_link) = stream.datagrams();
    let inward = async {
        while let Some(datagram) = next(&mut datagrams, service.upload.as_deref(), metrics).await {
            to_link.send(&datagram).await?;
        }
        // Forgotten for its silence, or the port is closed.
        Ok(())
    };
    let send = async |datagram: &[u8]| {
        let socket = socket.upgrade()?;
        let _ = socket.send_to(datagram, address).await;
        Some(())
    };
    // Under a limit they are read all the same: left on the link they would come later and later.
    let pacer = service.download.as_deref();
    let (waiting, mut queue) = mpsc::channel(QUEUE);
    let outward = async {
        let mut datagram = Vec::new();
        loop {
            from_link.receive(&mut datagram).await?;
            heard_at.set(Instant::now());
            if pacer.is_none() {
                if send(&datagram).await.is_none() {
                    return Ok(());
                }
            } else if waiting.try_send(Waiting::new(datagram.clone())).is_err() {
                metrics.datagrams_dropped_total.add_one();
            }
        }
    };
    let paced = async {
        while let Some(datagram) = next(&mut queue, pacer, metrics).await {
            if send(&datagram).await.is_none() {
                return;
            }
        }
    };
    tokio::select! {
        ended = inward => ended,
        ended = outward => ended,
        () = paced => Ok(()),
    }
}

/// Silence after which a visitor is forgotten (frp keeps 60 s; a NAT's mapping lives 30 s to 2 min, RFC 4787 §4.3).
const IDLE: Duration = Duration::from_secs(90);
/// Datagrams of one visitor that wait for the link; more are lost, as on any path.
const QUEUE: usize = 64;
/// What a datagram may wait for its turn under a speed limit: about what buffers on a path of the internet hold.
const STALE: Duration = Duration::from_millis(300);
const MOST_VISITORS: usize = 16_384;
