//! Sockets become visits: accept loops on every worker, and what the first bytes mean.

mod first;
mod kcp;
mod plain;
mod quic;
mod sni;
mod tcp;
mod tls;
mod udp;

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use net::{Acceptor, ListenSource, Shutdown, Stream, WorkerHandle};

pub(crate) use self::tcp::serve_port;
use crate::{
    complaints::Complaint, gate::Place, live::Live, network::Network, server::StartError,
    worker::Worker,
};

type Group = Vec<std::net::TcpListener>;

/// The configured listeners, bound but not yet served: each is a group of one socket per worker.
pub(crate) struct Listeners {
    plain: Option<Group>,
    tls: Option<Group>,
    sni: Option<Group>,
    kcp: Option<Vec<std::net::UdpSocket>>,
    steering: Option<net::Steering>,
    quic: Option<Vec<std::net::UdpSocket>>,
    /// For HTTP/3 visitors, where they do not come to the sockets of `quic`.
    http3: Option<Vec<std::net::UdpSocket>>,
}

/// What listeners over UDP are served with.
pub(crate) struct UdpOptions<'a> {
    pub(crate) kcp: net::kcp::Options,
    pub(crate) kcp_totals: &'a Arc<net::kcp::Totals>,
    pub(crate) quic: Option<::quic::ServerTls>,
    pub(crate) http3: Option<::quic::ServerTls>,
    pub(crate) bbr: bool,
    /// HTTP/3 visitors come to this port, whichever of the two it belongs to.
    pub(crate) http3_port: Option<u16>,
}

impl Listeners {
    pub(crate) fn bind(
        config: &config::Server,
        workers: usize,
        sockets: &dyn ListenSource,
    ) -> Result<Self, StartError> {
        let bind = |option: &'static str, address: Option<SocketAddr>| {
            let listen = |address| {
                let group = sockets.tcp(option, address, workers);
                group.map_err(|error| StartError::Listen {
                    option,
                    address,
                    error,
                })
            };
            address.map(listen).transpose()
        };
        let udp = |option: &'static str, address: Option<SocketAddr>| {
            let bind = |address| {
                let group = sockets.udp(option, address, workers);
                group.map_err(|error| StartError::Listen {
                    option,
                    address,
                    error,
                })
            };
            address.map(bind).transpose()
        };
        let tls = bind("tlsAddr", config.listeners.tls)?;
        // A free port, which nobody has named, is the same for both.
        let http3 = address(tls.as_ref()).filter(|_| has_http3_alone(config));
        Ok(Self {
            plain: bind("addr", config.listeners.plain)?,
            tls,
            sni: bind("sniAddr", config.listeners.sni)?,
            kcp: udp("kcpAddr", config.listeners.kcp)?,
            quic: udp("quicAddr", config.listeners.quic)?,
            http3: udp("http3", http3)?,
            steering: sockets.steering(),
        })
    }

    pub(crate) fn plain_address(&self) -> Option<SocketAddr> {
        address(self.plain.as_ref())
    }

    pub(crate) fn tls_address(&self) -> Option<SocketAddr> {
        address(self.tls.as_ref())
    }

    pub(crate) fn sni_address(&self) -> Option<SocketAddr> {
        address(self.sni.as_ref())
    }

    /// Option and address of each.
    pub(crate) fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let all = [
            ("addr", self.plain_address()),
            ("tlsAddr", self.tls_address()),
            ("sniAddr", self.sni_address()),
            ("kcpAddr", udp_address(self.kcp.as_ref())),
            ("quicAddr", udp_address(self.quic.as_ref())),
            ("http3", udp_address(self.http3.as_ref())),
        ];
        all.into_iter()
            .filter_map(|(option, address)| Some((option, address?)))
            .collect()
    }

    /// Starts the accept loops. The workers must have been installed. Returns what the next process will have to be given.
    pub(crate) fn serve(self, workers: &[WorkerHandle], udp: UdpOptions<'_>) -> OverUdp {
        for (option, group) in [
            ("kcpAddr", &self.kcp),
            ("quicAddr", &self.quic),
            ("http3", &self.http3),
        ] {
            if let Some(address) = udp_address(group.as_ref()) {
                tracing::info!(option, %address, "listening");
            }
        }
        let serve_quic = |group: Option<Vec<std::net::UdpSocket>>, over: OverQuic| {
            let tls = over.tls.clone()?;
            over.serve(workers, group?, tls, self.steering.clone())
        };
        let shared = udp.http3.is_none() && udp.http3_port.is_some();
        let quic = serve_quic(
            self.quic,
            OverQuic {
                option: "quicAddr",
                tls: udp.quic,
                transport: transport_of_links(udp.bbr, shared),
            },
        );
        let http3 = serve_quic(
            self.http3,
            OverQuic {
                option: "http3",
                tls: udp.http3,
                transport: transport_of_visitors(udp.bbr),
            },
        );
        let sockets = self.kcp.unwrap_or_default();
        let shards = net::kcp::shards(sockets, &udp.kcp, udp.kcp_totals, self.steering.as_ref());
        let kcp = self
            .steering
            .and_then(|steering| net::kcp::Entrance::of(&shards, steering));
        // A former process with more threads has left more sockets than there are threads now: each of them must be read.
        for (handle, shard) in workers.iter().cycle().zip(shards) {
            let _ = handle.spawn(move || async move {
                if let Some(worker) = Worker::current() {
                    kcp::serve(worker, shard).await;
                }
            });
        }
        if let Some(group) = self.plain {
            serve_group(workers, group, "addr", |worker, arrival| {
                plain::visit(worker, arrival)
            });
        }
        if let Some(group) = self.tls {
            serve_group(workers, group, "tlsAddr", |worker, arrival| {
                tls::visit(worker, arrival)
            });
        }
        if let Some(group) = self.sni {
            serve_group(workers, group, "sniAddr", |worker, arrival| {
                sni::visit(worker, arrival)
            });
        }
        OverUdp { kcp, quic, http3 }
    }
}

/// Listeners over UDP when another process reads their sockets.
#[derive(Default)]
pub(crate) struct OverUdp {
    /// The way in for datagrams of KCP sessions.
    pub(crate) kcp: Option<net::kcp::Entrance>,
    pub(crate) quic: Option<::quic::Server>,
    pub(crate) http3: Option<::quic::Server>,
}

impl OverUdp {
    pub(crate) fn over_quic(&self) -> impl Iterator<Item = &::quic::Server> {
        self.quic.iter().chain(&self.http3)
    }

    /// Shows other certificates from now on.
    pub(crate) fn show(&self, live: &Live) {
        for (server, tls) in [(&self.quic, &live.quic), (&self.http3, &live.http3)] {
            if let (Some(server), Some(tls)) = (server, tls) {
                server.tls().replace(tls);
            }
        }
    }
}

/// Whether HTTP/3 has sockets of its own: it is served, and not where QUIC links come.
pub(crate) fn has_http3_alone(config: &config::Server) -> bool {
    let config::Listeners {
        tls, quic, http3, ..
    } = config.listeners;
    // Two free ports are two ports.
    let shared = tls.is_some_and(|tls| tls.port() != 0 && quic == Some(tls));
    http3 && !shared
}

/// A connection that was accepted on a port where it has to show what it is.
pub(crate) struct Arrival {
    pub(crate) stream: Stream,
    pub(crate) address: SocketAddr,
    /// Counts it until it has.
    pub(crate) place: Place,
}

impl Arrival {
    /// `None` when there are too many of them: the connection is closed.
    fn new(worker: &Worker, stream: Stream, address: SocketAddr) -> Option<Self> {
        let server = &worker.server;
        match server.gate.enter(address.ip()) {
            Ok(place) => Some(Self {
                stream,
                address,
                place,
            }),
            Err(full) => {
                if server.complaints.hear(Complaint::Pending, address.ip()) {
                    tracing::warn!(peer = %Network::of(address.ip()), reason = %full, "a connection was closed at once");
                }
                None
            }
        }
    }
}

fn udp_address(group: Option<&Vec<std::net::UdpSocket>>) -> Option<SocketAddr> {
    group?.first()?.local_addr().ok()
}

/// What comes over QUIC at one address.
struct OverQuic {
    option: &'static str,
    tls: Option<::quic::ServerTls>,
    transport: ::quic::Transport,
}

impl OverQuic {
    fn serve(
        self,
        workers: &[WorkerHandle],
        sockets: Vec<std::net::UdpSocket>,
        tls: ::quic::ServerTls,
        steering: Option<net::Steering>,
    ) -> Option<::quic::Server> {
        let config = ::quic::Config {
            transport: self.transport,
            ..::quic::Config::default()
        };
        let shards = ::quic::Server::from_sockets(sockets, tls, config, steering)
            .map_err(|error| error.to_string())
            .and_then(|server| {
                let shards = server.shards().map_err(|error| error.to_string())?;
                Ok((server, shards))
            });
        let (server, shards) = match shards {
            Ok(both) => both,
            Err(error) => {
                tracing::error!(error, option = self.option, "a listener cannot be served");
                return None;
            }
        };
        for shard in shards {
            let Some(handle) = workers.get(shard.index() % workers.len().max(1)) else {
                continue;
            };
            let server = server.clone();
            let _ = handle.spawn(move || async move {
                if let Some(worker) = Worker::current() {
                    quic::serve(worker, server, shard).await;
                }
            });
        }
        Some(server)
    }
}

/// Limits before anybody has said who he is; visitors who share the address need streams at once.
fn transport_of_links(bbr: bool, with_visitors: bool) -> ::quic::Transport {
    let links = link::quic::server_transport(bbr);
    if !with_visitors {
        return links;
    }
    let visitors = transport_of_visitors(bbr);
    ::quic::Transport {
        bidi_streams: visitors.bidi_streams,
        uni_streams: visitors.uni_streams,
        connection_window: visitors.connection_window,
        send_window: visitors.send_window,
        ..links
    }
}

fn transport_of_visitors(bbr: bool) -> ::quic::Transport {
    ::quic::Transport {
        congestion: link::quic::server_transport(bbr).congestion,
        ..::quic::Transport::default()
    }
}

fn address(group: Option<&Group>) -> Option<SocketAddr> {
    group?.first()?.local_addr().ok()
}

/// The sockets of a group with the worker that serves each.
pub(super) fn shares<'a>(
    workers: &'a [WorkerHandle],
    group: &[std::net::TcpListener],
) -> Vec<(&'a WorkerHandle, std::net::TcpListener)> {
    match net::spread(group, workers.len()) {
        Ok(spread) => spread
            .into_iter()
            .filter_map(|(worker, listener)| Some((workers.get(worker)?, listener)))
            .collect(),
        Err(error) => {
            tracing::error!(%error, "listeners cannot be shared between threads");
            Vec::new()
        }
    }
}

fn serve_group<F, Fut>(workers: &[WorkerHandle], group: Group, option: &'static str, visit: F)
where
    F: Fn(Rc<Worker>, Arrival) -> Fut + Copy + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    if let Some(address) = address(Some(&group)) {
        tracing::info!(option, %address, "listening");
    }
    for (handle, listener) in shares(workers, &group) {
        let _ = handle.spawn(move || async move {
            let Some(worker) = Worker::current() else {
                return;
            };
            let stop = worker.server.stopping.clone();
            accept_until(&worker, listener, &stop, |worker, stream, address| {
                let arrival = Arrival::new(&worker, stream, address)?;
                Some(visit(worker, arrival))
            })
            .await;
        });
    }
}

/// Accepts until told to stop; each connection gets a task of its own.
async fn accept_until<F, Fut>(
    worker: &Rc<Worker>,
    listener: std::net::TcpListener,
    stop: &Shutdown,
    visit: F,
) where
    F: Fn(Rc<Worker>, Stream, SocketAddr) -> Option<Fut>,
    Fut: Future<Output = ()> + 'static,
{
    let mut acceptor = match Acceptor::new(listener) {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "a listener cannot be served"),
    };
    let _accepting = worker.server.accepting.enter();
    loop {
        // Told to stop, it takes nobody more: who waits in the kernel's queue may be another process's.
        let accepted = tokio::select! {
            biased;
            () = stop.wait() => return,
            accepted = acceptor.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let _ = net::tune_visitor(&stream);
                if let Some(visit) = visit(Rc::clone(worker), stream, address) {
                    tokio::task::spawn_local(visit);
                }
            }
            Err(error) => {
                return tracing::error!(%error, "a listener has failed and accepts no more");
            }
        }
    }
}
