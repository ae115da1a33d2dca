//! What the server can tell about itself at a moment, for status pages and metrics. Plain values; no format.

use std::{net::SocketAddr, sync::atomic::Ordering::Relaxed, time::Duration};

use link::Traffic;

use crate::{server::Shared, session::Monitor};

/// The server at a moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Time since start.
    pub uptime: Duration,
    /// About to stop.
    pub stopping: bool,
    /// Where it listens: option and address.
    pub listeners: Vec<(&'static str, SocketAddr)>,
    /// Name without prefix, help, Prometheus type, value.
    pub metrics: Vec<(&'static str, &'static str, &'static str, u64)>,
    /// Every id that has connected, or may by configuration and has.
    pub clients: Vec<ClientSnapshot>,
    /// Clients that are connected.
    pub sessions: Vec<SessionSnapshot>,
}

/// Counters of one id.
#[derive(Clone, Debug)]
pub struct ClientSnapshot {
    /// The id.
    pub id: String,
    /// Visitors now.
    pub streams_open: u32,
    /// Visitors since start.
    pub streams_total: u64,
    /// Bytes from visitors.
    pub received_bytes: u64,
    /// Bytes to visitors.
    pub sent_bytes: u64,
}

/// One connected client.
#[derive(Clone, Debug)]
pub struct SessionSnapshot {
    /// The client's id.
    pub client: String,
    /// Links now.
    pub links: u32,
    /// Those of them that are KCP.
    pub kcp_links: Vec<KcpLinkSnapshot>,
    /// Those of them that are QUIC.
    pub quic_links: Vec<QuicLinkSnapshot>,
    /// What it serves.
    pub services: Vec<ServiceSnapshot>,
}

/// One KCP link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KcpLinkSnapshot {
    /// Its number in the session.
    pub number: u16,
    /// The smoothed round-trip time, once one was measured.
    pub rtt: Option<Duration>,
    /// The share of datagrams to the client that does not arrive, as the client reports, 0 to 1.
    pub loss: f64,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Packets recovered by FEC.
    pub recovered: u64,
}

/// One QUIC link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuicLinkSnapshot {
    /// Its number in the session.
    pub number: u16,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The share of packets to the client that were lost, 0 to 1, since the link began.
    pub loss: f64,
    /// UDP datagrams sent.
    pub sent: u64,
    /// UDP datagrams received.
    pub received: u64,
    /// Packets sent; a datagram holds one or more.
    pub packets: u64,
    /// Packets lost.
    pub lost: u64,
    /// The congestion window in bytes.
    pub congestion_window: u64,
    /// Bytes sent in UDP datagrams.
    pub sent_bytes: u64,
    /// Bytes received in UDP datagrams.
    pub received_bytes: u64,
    /// The largest UDP payload that is sent, in bytes, as far as the path was explored.
    pub mtu: u16,
    /// Times when large packets were lost and small ones were not (RFC 8899 §4.3).
    pub black_holes: u64,
    /// Answers to questions whether the client is where its packets come from: one or two for each change of its address (RFC 9000 §8.2).
    pub path_validations: u64,
    /// Datagrams of UDP services that the client sent, that were lost, and that parity gave back (`udpFEC`).
    pub recovered: u64,
}

fn quic_link((number, monitor): &(u16, Monitor)) -> Option<QuicLinkSnapshot> {
    let Monitor::Quic(connection, repaired) = monitor else {
        return None;
    };
    let stats = connection.stats();
    let (sent, lost) = (stats.path.sent_packets, stats.path.lost_packets);
    Some(QuicLinkSnapshot {
        number: *number,
        rtt: stats.path.rtt,
        loss: lost as f64 / sent.max(1) as f64,
        sent: stats.udp_tx.datagrams,
        received: stats.udp_rx.datagrams,
        packets: sent,
        lost,
        congestion_window: stats.path.cwnd,
        sent_bytes: stats.udp_tx.bytes,
        received_bytes: stats.udp_rx.bytes,
        mtu: stats.path.current_mtu,
        black_holes: stats.path.black_holes_detected,
        path_validations: stats.frame_rx.path_response,
        recovered: repaired.load(Relaxed),
    })
}

fn kcp_link((number, monitor): &(u16, Monitor)) -> Option<KcpLinkSnapshot> {
    let Monitor::Kcp(monitor) = monitor else {
        return None;
    };
    let stats = monitor.stats();
    Some(KcpLinkSnapshot {
        number: *number,
        rtt: monitor.rtt(),
        loss: monitor.loss(),
        sent: stats.sent,
        received: stats.received,
        retransmitted: stats.retransmitted,
        recovered: stats.recovered,
    })
}

/// One service.
#[derive(Clone, Debug)]
pub struct ServiceSnapshot {
    /// Its name at the client.
    pub name: String,
    /// `http`, `tls`, `tcp` or `udp`.
    pub kind: String,
    /// Its public addresses.
    pub endpoints: Vec<String>,
    /// Visitors since it was declared.
    pub visitors_total: u64,
    /// Bytes from visitors.
    pub received_bytes: u64,
    /// Bytes to visitors.
    pub sent_bytes: u64,
}

/// From and to visitors.
fn bytes(traffic: &Traffic) -> (u64, u64) {
    (traffic.sent.load(Relaxed), traffic.received.load(Relaxed))
}

/// Sums over all KCP links.
fn kcp_metrics(
    totals: &net::kcp::Totals,
) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> {
    let stats = totals.stats();
    [
        ("kcp_sent_total", "Datagrams sent on KCP links.", stats.sent),
        (
            "kcp_received_total",
            "Authentic datagrams received on KCP links.",
            stats.received,
        ),
        (
            "kcp_retransmitted_total",
            "Segments sent again on KCP links.",
            stats.retransmitted,
        ),
        (
            "kcp_parity_total",
            "Parity datagrams sent on KCP links.",
            stats.parity,
        ),
        (
            "kcp_recovered_total",
            "Packets of KCP links that FEC recovered.",
            stats.recovered,
        ),
        (
            "kcp_refused_total",
            "Datagrams to KCP links that were replayed or forged.",
            stats.refused,
        ),
        (
            "kcp_moves_total",
            "Times that a KCP link's client changed its address.",
            stats.moves,
        ),
        (
            "kcp_strays_total",
            "Datagrams to kcpAddr that belong to no link.",
            totals.strays(),
        ),
        (
            "kcp_handshakes_total",
            "Handshake datagrams to kcpAddr.",
            totals.handshakes(),
        ),
    ]
    .into_iter()
    .map(|(name, help, value)| (name, help, "counter", value))
}

impl Shared {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let clients = self.registry.accounts().into_iter().map(|account| {
            let (received_bytes, sent_bytes) = bytes(&account.traffic);
            ClientSnapshot {
                id: account.id.clone(),
                streams_open: account.streams.load(Relaxed),
                streams_total: account.streams_total.load(Relaxed),
                received_bytes,
                sent_bytes,
            }
        });
        let sessions = self
            .registry
            .sessions()
            .into_iter()
            .map(|(session, services)| {
                let monitors = session.monitors().clone();
                SessionSnapshot {
                    client: session.account.id.clone(),
                    links: session.link_count(),
                    kcp_links: monitors.iter().filter_map(kcp_link).collect(),
                    quic_links: monitors.iter().filter_map(quic_link).collect(),
                    services: services
                        .into_iter()
                        .map(|service| {
                            let (received_bytes, sent_bytes) = bytes(&service.traffic);
                            ServiceSnapshot {
                                name: service.declared.name.as_str().to_owned(),
                                kind: service.declared.kind.to_string(),
                                endpoints: service.endpoints.get().cloned().unwrap_or_default(),
                                visitors_total: service.visitors_total.load(Relaxed),
                                received_bytes,
                                sent_bytes,
                            }
                        })
                        .collect(),
                }
            });
        let mut clients: Vec<_> = clients.collect();
        clients.sort_by(|a, b| a.id.cmp(&b.id));
        let mut sessions: Vec<_> = sessions.collect();
        sessions.sort_by(|a, b| a.client.cmp(&b.client));
        let mut metrics = self.metrics.list();
        metrics.push((
            "sessions_open",
            "Clients with a link, or within the time for coming back.",
            "gauge",
            sessions.len() as u64,
        ));
        metrics.push((
            "log_lines_throttled_total",
            "Lines about strangers that were counted instead of written.",
            "counter",
            self.complaints.unwritten(),
        ));
        metrics.extend(kcp_metrics(&self.kcp_totals));
        metrics.extend(self.proxy.metrics());
        Snapshot {
            uptime: self.started.elapsed(),
            stopping: self.stopping.is_triggered(),
            listeners: self.listeners.clone(),
            metrics,
            clients,
            sessions,
        }
    }
}
