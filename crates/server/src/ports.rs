//! TCP and UDP ports of services: which are free for whom, and the listeners behind them. A port's listener outlives its service
//! for a moment, so that a client that comes back finds its port and nobody who connects meanwhile is refused.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use net::{ListenSource, OwnSockets, Shutdown};
use tunnel::{Message, Refusal, RefusalCode, ServiceId};

use crate::{
    routing::Route,
    session::{Service, SessionKey},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

/// What stands behind one open port; the accept loops read it.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    pub(crate) route: ArcSwap<Route>,
    pub(crate) closed: Shutdown,
}

/// The sockets of a port that was just opened.
pub(crate) enum Opened {
    /// One listener per worker.
    Tcp(Vec<TcpListener>),
    Udp(UdpSocket),
}

/// Starts the loops that serve a port.
pub(crate) type Serve = Box<dyn Fn(Arc<Port>, Opened) + Send>;

/// All ports that are open for services.
pub(crate) struct Ports {
    address: IpAddr,
    workers: usize,
    serve: Serve,
    sockets: Arc<dyn ListenSource>,
    open: HashMap<(Protocol, u16), Held>,
}

struct Held {
    port: Arc<Port>,
    unused_since: Option<Instant>,
}

impl Default for Ports {
    fn default() -> Self {
        Self::new(
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            1,
            Arc::new(OwnSockets),
            Box::new(|_, _| {}),
        )
    }
}

impl Ports {
    pub(crate) fn new(
        address: IpAddr,
        workers: usize,
        sockets: Arc<dyn ListenSource>,
        serve: Serve,
    ) -> Self {
        Self {
            address,
            workers,
            serve,
            sockets,
            open: HashMap::new(),
        }
    }

    /// Where the ports are.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Gives the service the port it asks for, or any of its client's, as it wishes. `held` is how many its session has.
    pub(crate) fn grant(
        &mut self,
        protocol: Protocol,
        service: &Arc<Service>,
        held: usize,
    ) -> Result<u16, Refusal> {
        let limits = service.session.account.limits();
        let refuse = |code, message: &str| {
            Err(Refusal {
                code,
                message: Message::new(message),
            })
        };
        if limits.tcp_ranges.is_empty() {
            return refuse(
                RefusalCode::PortNotAllowed,
                "this client may not use ports: the server's tcpRange is empty for it",
            );
        }
        let number = usize::from(limits.tcp_number);
        if number > 0 && held >= number {
            return refuse(
                RefusalCode::TooMany,
                &format!("this client may hold {number} ports (tcpNumber)"),
            );
        }
        let wished = service
            .declared
            .port
            .map(|port| self.try_port(protocol, port, service));
        let refusal = match wished {
            Some(Ok(port)) => return Ok(port),
            Some(Err(refusal)) if !service.declared.port_random => return Err(refusal),
            other => other.and_then(Result::err),
        };
        for port in candidates(&limits.tcp_ranges, service.session.key) {
            if self
                .open
                .get(&(protocol, port))
                .is_none_or(|held| held.unused_since.is_some())
                && let Ok(port) = self.try_port(protocol, port, service)
            {
                return Ok(port);
            }
        }
        let message = format!("no free port in {}", ranges(&limits.tcp_ranges));
        Err(refusal.unwrap_or(Refusal {
            code: RefusalCode::NoPortFree,
            message: Message::new(&message),
        }))
    }

    fn try_port(
        &mut self,
        protocol: Protocol,
        port: u16,
        service: &Arc<Service>,
    ) -> Result<u16, Refusal> {
        let limits = service.session.account.limits();
        if !limits.tcp_ranges.iter().any(|range| range.contains(&port)) {
            let message = format!(
                "port {port} is not in {} (tcpRange)",
                ranges(&limits.tcp_ranges)
            );
            return Err(Refusal {
                code: RefusalCode::PortNotAllowed,
                message: Message::new(&message),
            });
        }
        let key = (protocol, port);
        if let Some(held) = self.open.get_mut(&key) {
            let route = held.port.route.load();
            if !route.services.iter().all(|other| shares(service, other)) {
                let message = format!("port {port} is already used by another service");
                return Err(Refusal {
                    code: RefusalCode::PortTaken,
                    message: Message::new(&message),
                });
            }
            let mut route = Route::clone(&route);
            route.services.push(Arc::clone(service));
            held.port.route.store(Arc::new(route));
            held.unused_since = None;
            return Ok(port);
        }
        let sockets = self.bind(protocol, port).map_err(|error| Refusal {
            code: RefusalCode::PortTaken,
            message: Message::new(&format!(
                "port {port} cannot be opened on the server: {error}"
            )),
        })?;
        let mut route = Route::default();
        route.services.push(Arc::clone(service));
        let port = Arc::new(Port {
            number: port,
            route: ArcSwap::from_pointee(route),
            closed: Shutdown::new(),
        });
        self.open.insert(
            key,
            Held {
                port: Arc::clone(&port),
                unused_since: None,
            },
        );
        let number = port.number;
        (self.serve)(port, sockets);
        Ok(number)
    }

    fn bind(&self, protocol: Protocol, port: u16) -> io::Result<Opened> {
        let address = SocketAddr::new(self.address, port);
        Ok(match protocol {
            Protocol::Tcp => Opened::Tcp(self.sockets.tcp("", address, self.workers)?),
            Protocol::Udp => {
                let mut sockets = self.sockets.udp("", address, 1)?;
                let socket = sockets.pop().ok_or(io::ErrorKind::AddrNotAvailable)?;
                Opened::Udp(socket)
            }
        })
    }

    /// The session's service no longer serves the port.
    pub(crate) fn withdraw(
        &mut self,
        protocol: Protocol,
        port: u16,
        session: SessionKey,
        id: ServiceId,
    ) {
        let Some(held) = self.open.get_mut(&(protocol, port)) else {
            return;
        };
        let mut route = Route::clone(&held.port.route.load());
        route
            .services
            .retain(|service| service.session.key != session || service.declared.id != id);
        if route.services.is_empty() {
            held.unused_since = Some(Instant::now());
        }
        held.port.route.store(Arc::new(route));
    }

    /// Closes the ports that have had no service for a while.
    pub(crate) fn close_unused(&mut self) {
        let (sockets, address) = (&self.sockets, self.address);
        self.open.retain(|(protocol, port), held| {
            let keep = held
                .unused_since
                .is_none_or(|since| since.elapsed() < LINGER);
            if !keep {
                held.port.closed.trigger();
                sockets.release(
                    "",
                    SocketAddr::new(address, *port),
                    *protocol == Protocol::Udp,
                );
            }
            keep
        });
    }
}

fn shares(service: &Service, other: &Service) -> bool {
    let (session, others) = (&service.session, &other.session);
    session.account.id == others.account.id
        && session.key != others.key
        && (session.account.load_balance()
            || service.declared.load_balance.is_some()
                && service.declared.load_balance == other.declared.load_balance)
}

/// The ports of the ranges in an order that differs by session, so that clients do not compete for the same ones; bounded.
fn candidates(ranges: &[RangeInclusive<u16>], key: SessionKey) -> impl Iterator<Item = u16> {
    let total: u32 = ranges
        .iter()
        .map(|range| u32::from(range.end() - range.start()) + 1)
        .sum();
    // A step that shares no factor with the total visits every port once.
    let hash = key.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let start = u32::try_from(hash >> 33).unwrap_or(0) % total.max(1);
    let ranges = ranges.to_vec();
    (0..total.min(MOST_TRIES)).filter_map(move |step| {
        let mut at = (start + step) % total;
        for range in &ranges {
            let length = u32::from(range.end() - range.start()) + 1;
            if at < length {
                return u16::try_from(u32::from(*range.start()) + at).ok();
            }
            at -= length;
        }
        None
    })
}

fn ranges(ranges: &[RangeInclusive<u16>]) -> String {
    let texts: Vec<String> = ranges
        .iter()
        .map(|range| format!("{}-{}", range.start(), range.end()))
        .collect();
    texts.join(", ")
}

/// How long a port without a service stays open.
const LINGER: Duration = Duration::from_secs(2);
/// Ports tried for a client that takes any: enough to find one in a crowded range, few enough to be done at once.
const MOST_TRIES: u32 = 1000;
