//! `GET /status` as JSON and `GET /` as a page. The JSON's fields are an interface (`docs/operation.md`): fields may be added, none is
//! renamed or removed.

use std::collections::BTreeMap;

use page::escape;
use serde::Serialize;
use server::Snapshot;

use crate::Source;

/// Everything that the source tells, one JSON object and a line end.
pub(crate) fn json(source: &Source) -> String {
    let text = match source {
        Source::Server(server) => serde_json::to_string(&ServerStatus::new(&server.snapshot())),
        Source::Client(client) => serde_json::to_string(&ClientStatus::new(&client.status())),
        Source::Proxy(proxy) => serde_json::to_string(&ProxyStatus::new(proxy)),
    };
    // Nothing in it can fail: every key is a string.
    text.unwrap_or_default() + "\n"
}

/// Title and body of the page for people.
pub(crate) fn page(source: &Source) -> (&'static str, String) {
    match source {
        Source::Server(server) => {
            let snapshot = server.snapshot();
            let body = server::status_page(&snapshot) + &clients_table(&snapshot) + LINKS;
            ("gt server", body)
        }
        Source::Client(client) => {
            let status = client.status();
            let body = agent::status_page(&status) + &agent::ways_table(&status) + LINKS;
            ("gt client", body)
        }
        Source::Proxy(proxy) => ("gt proxy", proxy_page(proxy) + LINKS),
    }
}

fn proxy_page(proxy: &proxy::Observer) -> String {
    let row = |(name, help, _, value): (&str, &str, &str, u64)| {
        format!("<tr><td>{}<td>{}<td>{value}", escape(name), escape(help))
    };
    let state = if proxy.is_stopping() {
        "<p>The proxy is about to stop.</p>"
    } else {
        "<p class=\"ok\">The proxy works.</p>"
    };
    format!(
        "{state}<p>Up for {}.</p><h2>Counters</h2><table><tr><th>Name<th>Meaning<th>Value{}</table>",
        page::duration(proxy.uptime()),
        proxy.metrics().into_iter().map(row).collect::<String>(),
    )
}

fn clients_table(snapshot: &Snapshot) -> String {
    let mut links: BTreeMap<&str, u32> = BTreeMap::new();
    for session in &snapshot.sessions {
        *links.entry(&session.client).or_default() += session.links;
    }
    let row = |client: &server::ClientSnapshot| {
        format!(
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            escape(&client.id),
            links.get(client.id.as_str()).unwrap_or(&0),
            client.streams_open,
            client.streams_total,
            client.received_bytes,
            client.sent_bytes,
        )
    };
    format!(
        "<h2>Clients</h2><table><tr><th>Id<th>Links<th>Visitors<th>Since start<th>Bytes from them<th>Bytes to them{}</table>",
        snapshot.clients.iter().map(row).collect::<String>()
    )
}

const LINKS: &str = "<p><a href=\"/status\">/status</a> tells the same as JSON, <a href=\"/metrics\">/metrics</a> as Prometheus text.</p>";

#[derive(Serialize)]
struct ServerStatus<'a> {
    role: &'static str,
    version: &'static str,
    uptime_seconds: f64,
    stopping: bool,
    listeners: Vec<Listener>,
    metrics: BTreeMap<&'a str, u64>,
    clients: Vec<Client<'a>>,
    sessions: Vec<Session<'a>>,
}

#[derive(Serialize)]
struct ProxyStatus {
    role: &'static str,
    version: &'static str,
    uptime_seconds: f64,
    stopping: bool,
    listeners: Vec<Listener>,
    metrics: BTreeMap<&'static str, u64>,
}

impl ProxyStatus {
    fn new(proxy: &proxy::Observer) -> Self {
        let listener = |address: &std::net::SocketAddr| Listener {
            option: "listeners",
            address: address.to_string(),
        };
        let metrics = proxy.metrics().into_iter();
        Self {
            role: "proxy",
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: proxy.uptime().as_secs_f64(),
            stopping: proxy.is_stopping(),
            listeners: proxy.addresses().iter().map(listener).collect(),
            metrics: metrics.map(|(name, _, _, value)| (name, value)).collect(),
        }
    }
}

#[derive(Serialize)]
struct Listener {
    option: &'static str,
    address: String,
}

#[derive(Serialize)]
struct Client<'a> {
    id: &'a str,
    streams_open: u32,
    streams_total: u64,
    received_bytes: u64,
    sent_bytes: u64,
}

#[derive(Serialize)]
struct Session<'a> {
    client: &'a str,
    links: u32,
    kcp_links: Vec<KcpLink>,
    quic_links: Vec<QuicLink>,
    services: Vec<Service<'a>>,
}

#[derive(Serialize)]
struct KcpLink {
    number: u16,
    /// `null` before the first measurement.
    rtt_seconds: Option<f64>,
    /// 0 to 1.
    loss: f64,
    sent: u64,
    received: u64,
    retransmitted: u64,
    recovered: u64,
}

impl From<&server::KcpLinkSnapshot> for KcpLink {
    fn from(link: &server::KcpLinkSnapshot) -> Self {
        Self {
            number: link.number,
            rtt_seconds: link.rtt.map(|rtt| rtt.as_secs_f64()),
            loss: link.loss,
            sent: link.sent,
            received: link.received,
            retransmitted: link.retransmitted,
            recovered: link.recovered,
        }
    }
}

#[derive(Serialize)]
struct QuicLink {
    number: u16,
    rtt_seconds: f64,
    /// 0 to 1.
    loss: f64,
    sent: u64,
    received: u64,
    lost: u64,
    congestion_window: u64,
    sent_bytes: u64,
    received_bytes: u64,
    mtu: u16,
    black_holes: u64,
    path_validations: u64,
    recovered: u64,
}

impl From<&server::QuicLinkSnapshot> for QuicLink {
    fn from(link: &server::QuicLinkSnapshot) -> Self {
        Self {
            number: link.number,
            rtt_seconds: link.rtt.as_secs_f64(),
            loss: link.loss,
            sent: link.sent,
            received: link.received,
            lost: link.lost,
            congestion_window: link.congestion_window,
            sent_bytes: link.sent_bytes,
            received_bytes: link.received_bytes,
            mtu: link.mtu,
            black_holes: link.black_holes,
            path_validations: link.path_validations,
            recovered: link.recovered,
        }
    }
}

#[derive(Serialize)]
struct Service<'a> {
    name: &'a str,
    kind: &'a str,
    endpoints: &'a [String],
    visitors_total: u64,
    received_bytes: u64,
    sent_bytes: u64,
}

impl<'a> ServerStatus<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let listeners = snapshot.listeners.iter().map(|(option, address)| Listener {
            option,
            address: address.to_string(),
        });
        let clients = snapshot.clients.iter().map(|client| Client {
            id: &client.id,
            streams_open: client.streams_open,
            streams_total: client.streams_total,
            received_bytes: client.received_bytes,
            sent_bytes: client.sent_bytes,
        });
        let sessions = snapshot.sessions.iter().map(|session| Session {
            client: &session.client,
            links: session.links,
            kcp_links: session.kcp_links.iter().map(KcpLink::from).collect(),
            quic_links: session.quic_links.iter().map(QuicLink::from).collect(),
            services: session.services.iter().map(Service::new).collect(),
        });
        Self {
            role: "server",
            version: VERSION,
            uptime_seconds: snapshot.uptime.as_secs_f64(),
            stopping: snapshot.stopping,
            listeners: listeners.collect(),
            metrics: snapshot
                .metrics
                .iter()
                .map(|(name, _, _, value)| (*name, *value))
                .collect(),
            clients: clients.collect(),
            sessions: sessions.collect(),
        }
    }
}

impl<'a> Service<'a> {
    fn new(service: &'a server::ServiceSnapshot) -> Self {
        Self {
            name: &service.name,
            kind: &service.kind,
            endpoints: &service.endpoints,
            visitors_total: service.visitors_total,
            received_bytes: service.received_bytes,
            sent_bytes: service.sent_bytes,
        }
    }
}

#[derive(Serialize)]
struct ClientStatus<'a> {
    role: &'static str,
    version: &'static str,
    uptime_seconds: f64,
    stopping: bool,
    server: Option<&'a str>,
    links: u32,
    /// Empty where there is one way only.
    ways: Vec<Way<'a>>,
    moves_total: u64,
    /// `null` while the links are where they began.
    last_move: Option<LastMove<'a>>,
    visits_total: u64,
    visits_failed_total: u64,
    services: Vec<Offered<'a>>,
}

#[derive(Serialize)]
struct LastMove<'a> {
    seconds_ago: f64,
    /// With the figures, as in the log.
    reason: &'a str,
}

/// A way to the server, where the client keeps the best of several.
#[derive(Serialize)]
struct Way<'a> {
    remote: &'a str,
    in_use: bool,
    /// `null` before it was tried.
    works: Option<bool>,
    rtt_seconds: Option<f64>,
    /// 0 to 1; `null` where the transport does not tell.
    loss: Option<f64>,
    /// When it was busy, of late.
    bytes_per_second: Option<f64>,
}

impl<'a> From<&'a agent::WayStatus> for Way<'a> {
    fn from(way: &'a agent::WayStatus) -> Self {
        Self {
            remote: &way.remote,
            in_use: way.in_use,
            works: way.works,
            rtt_seconds: way.rtt.map(|rtt| rtt.as_secs_f64()),
            loss: way.loss,
            bytes_per_second: way.goodput,
        }
    }
}

/// A service at its client.
#[derive(Serialize)]
struct Offered<'a> {
    name: &'a str,
    local: &'a str,
    endpoints: &'a [String],
    /// Why it is not served; `null` when it is.
    problem: Option<&'a str>,
}

impl<'a> ClientStatus<'a> {
    fn new(status: &'a agent::Status) -> Self {
        let services = status
            .services
            .iter()
            .map(|(name, local, outcome)| Offered {
                name,
                local,
                endpoints: outcome.as_deref().unwrap_or_default(),
                problem: outcome.as_ref().err().map(String::as_str),
            });
        Self {
            role: "client",
            version: VERSION,
            uptime_seconds: status.uptime.as_secs_f64(),
            stopping: status.stopping,
            server: status.server.as_deref(),
            links: status.links,
            ways: status.ways.iter().map(Way::from).collect(),
            moves_total: status.moves,
            last_move: status.last_move.as_ref().map(|last| LastMove {
                seconds_ago: last.ago.as_secs_f64(),
                reason: &last.reason,
            }),
            visits_total: status.visits.0,
            visits_failed_total: status.visits.1,
            services: services.collect(),
        }
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
