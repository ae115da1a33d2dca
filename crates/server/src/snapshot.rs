//! What the server can tell about itself at a moment, for status pages and metrics. Plain values; no format.

use std::{net::SocketAddr, sync::atomic::Ordering::Relaxed, time::Duration};

use link::Traffic;

use crate::server::Shared;

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
    /// What it serves.
    pub services: Vec<ServiceSnapshot>,
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
            .map(|(session, services)| SessionSnapshot {
                client: session.account.id.clone(),
                links: session.link_count(),
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
