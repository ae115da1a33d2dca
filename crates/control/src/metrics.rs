//! `GET /metrics`: the Prometheus text format 0.0.4.
//!
//! Every metric of gt begins with `gt_`; those of the process have the names that Prometheus' own libraries give them. Series of
//! clients and services are summed over sessions, because two sessions may share one id.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
};

use agent::Status;
use server::{QuicLinkSnapshot, Snapshot};

use crate::{Source, process};

/// All metrics of the source and of the process.
pub(crate) fn text(source: &Source) -> String {
    let mut out = Exposition::default();
    let build = out.family(
        "gt_build_info",
        "gauge",
        "1, with the version that runs as label.",
    );
    build.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    match source {
        Source::Server(server) => of_server(&mut out, &server.snapshot()),
        Source::Client(client) => of_client(&mut out, &client.status()),
        Source::Proxy(proxy) => of_proxy(&mut out, proxy),
    }
    of_process(&mut out);
    out.single(
        "gt_log_lines_lost_total",
        "counter",
        "Lines of the log that could not be written.",
        crate::lost_log_lines(),
    );
    out.text
}

fn of_server(out: &mut Exposition, snapshot: &Snapshot) {
    out.single(
        "gt_uptime_seconds",
        "gauge",
        UPTIME,
        snapshot.uptime.as_secs_f64(),
    );
    for (name, help, kind, value) in &snapshot.metrics {
        out.single(&format!("gt_{name}"), kind, help, value);
    }
    of_clients(out, snapshot);
    of_services(out, snapshot);
    of_quic_links(out, snapshot);
}

/// A link has the labels `client`, `session` (from 0, where several share the id) and `link` (its number in the session).
fn of_quic_links(out: &mut Exposition, snapshot: &Snapshot) {
    let mut links = Vec::new();
    let mut before: (&str, u32) = ("", 0);
    for session in &snapshot.sessions {
        let place = if before.0 == session.client {
            before.1 + 1
        } else {
            0
        };
        before = (&session.client, place);
        for link in &session.quic_links {
            let number = (place.to_string(), link.number.to_string());
            links.push((session.client.as_str(), number, link));
        }
    }
    for (name, kind, help, value) in QUIC_LINK {
        let family = out.family(&format!("gt_quic_link_{name}"), kind, help);
        for (client, (session, number), link) in &links {
            let labels = [("client", *client), ("session", session), ("link", number)];
            family.sample(&labels, value(link));
        }
    }
    let family = out.family(
        "gt_quic_link_bytes_total",
        "counter",
        "Bytes of UDP payload that were received and sent on a QUIC link.",
    );
    for (client, (session, number), link) in &links {
        for (direction, bytes) in [("received", link.received_bytes), ("sent", link.sent_bytes)] {
            let labels = [
                ("client", *client),
                ("session", session),
                ("link", number),
                ("direction", direction),
            ];
            family.sample(&labels, bytes);
        }
    }
}

type QuicLinkMetric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&QuicLinkSnapshot) -> f64,
);

/// Name behind `gt_quic_link_`, kind, help, value.
const QUIC_LINK: [QuicLinkMetric; 8] = [
    (
        "rtt_seconds",
        "gauge",
        "The smoothed round-trip time of a QUIC link.",
        |link| link.rtt.as_secs_f64(),
    ),
    (
        "congestion_window_bytes",
        "gauge",
        "What may be on its way to the client unacknowledged.",
        |link| link.congestion_window as f64,
    ),
    (
        "mtu_bytes",
        "gauge",
        "The largest UDP payload that is sent on a QUIC link.",
        |link| f64::from(link.mtu),
    ),
    (
        "packets_sent_total",
        "counter",
        "Packets sent on a QUIC link.",
        |link| link.packets as f64,
    ),
    (
        "packets_lost_total",
        "counter",
        "Packets to the client that were lost.",
        |link| link.lost as f64,
    ),
    (
        "black_holes_total",
        "counter",
        "Times when large packets were lost and small ones were not.",
        |link| link.black_holes as f64,
    ),
    (
        "path_validations_total",
        "counter",
        "Proofs that the client is where its packets come from: one or two for each change of its address.",
        |link| link.path_validations as f64,
    ),
    (
        "datagrams_recovered_total",
        "counter",
        "Datagrams from the client that were lost and that parity gave back.",
        |link| link.recovered as f64,
    ),
];

fn of_clients(out: &mut Exposition, snapshot: &Snapshot) {
    let clients = &snapshot.clients;
    let open = out.family(
        "gt_client_streams_open",
        "gauge",
        "Visitors that a client has now.",
    );
    for client in clients {
        open.sample(&[("client", &client.id)], client.streams_open);
    }
    let total = out.family(
        "gt_client_streams_total",
        "counter",
        "Visitors that a client has had.",
    );
    for client in clients {
        total.sample(&[("client", &client.id)], client.streams_total);
    }
    let bytes = out.family(
        "gt_client_bytes_total",
        "counter",
        "Bytes from (received) and to (sent) a client's visitors.",
    );
    for client in clients {
        for (direction, value) in [
            ("received", client.received_bytes),
            ("sent", client.sent_bytes),
        ] {
            bytes.sample(&[("client", &client.id), ("direction", direction)], value);
        }
    }
}

/// Visitors, bytes received, bytes sent.
type ServiceSums<'a> = BTreeMap<(&'a str, &'a str), (u64, u64, u64)>;

fn of_services(out: &mut Exposition, snapshot: &Snapshot) {
    let mut links: BTreeMap<&str, u64> = BTreeMap::new();
    let mut services = ServiceSums::new();
    for session in &snapshot.sessions {
        *links.entry(&session.client).or_default() += u64::from(session.links);
        for service in &session.services {
            let sums = services
                .entry((&session.client, &service.name))
                .or_default();
            sums.0 += service.visitors_total;
            sums.1 += service.received_bytes;
            sums.2 += service.sent_bytes;
        }
    }
    let family = out.family("gt_session_links", "gauge", "Links that a client has now.");
    for (client, links) in links {
        family.sample(&[("client", client)], links);
    }
    let family = out.family(
        "gt_service_visitors_total",
        "counter",
        "Visitors of a service since its client declared it.",
    );
    for ((client, service), (visitors, ..)) in &services {
        family.sample(&[("client", client), ("service", service)], visitors);
    }
    let family = out.family(
        "gt_service_bytes_total",
        "counter",
        "Bytes from (received) and to (sent) a service's visitors since its client declared it.",
    );
    for ((client, service), (_, received, sent)) in &services {
        for (direction, value) in [("received", received), ("sent", sent)] {
            let labels = [
                ("client", *client),
                ("service", *service),
                ("direction", direction),
            ];
            family.sample(&labels, value);
        }
    }
}

fn of_proxy(out: &mut Exposition, proxy: &proxy::Observer) {
    out.single(
        "gt_uptime_seconds",
        "gauge",
        UPTIME,
        proxy.uptime().as_secs_f64(),
    );
    for (name, help, kind, value) in proxy.metrics() {
        out.single(&format!("gt_{name}"), kind, help, value);
    }
}

fn of_client(out: &mut Exposition, status: &Status) {
    out.single(
        "gt_uptime_seconds",
        "gauge",
        UPTIME,
        status.uptime.as_secs_f64(),
    );
    out.single("gt_links_open", "gauge", "Links that are up.", status.links);
    let (total, failed) = status.visits;
    out.single(
        "gt_visits_total",
        "counter",
        "Visits that the server has sent.",
        total,
    );
    out.single(
        "gt_visits_failed_total",
        "counter",
        "Visits whose service could not be reached.",
        failed,
    );
    if !status.ways.is_empty() {
        of_ways(out, status);
    }
    let mut services: BTreeMap<&str, bool> = BTreeMap::new();
    for (name, _, outcome) in &status.services {
        *services.entry(name).or_insert(true) &= status.links > 0 && outcome.is_ok();
    }
    let up = out.family(
        "gt_service_up",
        "gauge",
        "1 when the server has granted the service and a link is up, else 0.",
    );
    for (service, is_up) in services {
        up.sample(&[("service", service)], u8::from(is_up));
    }
}

fn of_ways(out: &mut Exposition, status: &Status) {
    out.single(
        "gt_way_moves_total",
        "counter",
        "Times that the links went another way to the server.",
        status.moves,
    );
    let mut family = |name: &str, help: &str, value: &dyn Fn(&agent::WayStatus) -> Option<f64>| {
        let family = out.family(name, "gauge", help);
        for way in &status.ways {
            if let Some(value) = value(way) {
                family.sample(&[("way", &way.remote)], value);
            }
        }
    };
    let flag = |flag: bool| f64::from(u8::from(flag));
    family(
        "gt_way_in_use",
        "1 for the way that links go, else 0.",
        &|way| Some(flag(way.in_use)),
    );
    family(
        "gt_way_works",
        "1 when the way works, 0 when it does not; absent before it was tried.",
        &|way| way.works.map(flag),
    );
    family(
        "gt_way_rtt_seconds",
        "The shortest round-trip time of the way in the last minute.",
        &|way| way.rtt.map(|rtt| rtt.as_secs_f64()),
    );
    family(
        "gt_way_loss",
        "Share of packets that the way loses, where its transport tells.",
        &|way| way.loss,
    );
    family(
        "gt_way_goodput_bytes_per_second",
        "What the way carried when it was busy, of late; absent where it was not.",
        &|way| way.goodput,
    );
}

fn of_process(out: &mut Exposition) {
    if let Some(bytes) = process::resident_bytes() {
        let help = "Resident memory of the process in bytes.";
        out.single("process_resident_memory_bytes", "gauge", help, bytes);
    }
    if let Some(files) = process::open_fds() {
        let help = "Open files of the process, sockets included.";
        out.single("process_open_fds", "gauge", help, files);
    }
    if let Some(seconds) = process::cpu_seconds() {
        let help = "User and system processor time of the process in seconds.";
        out.single("process_cpu_seconds_total", "counter", help, seconds);
    }
}

const UPTIME: &str = "Seconds since start.";

/// A text in the making: families one after the other, each with its samples.
#[derive(Default)]
struct Exposition {
    text: String,
    family: String,
}

impl Exposition {
    /// Begins a family; its samples follow at once.
    fn family(&mut self, name: &str, kind: &str, help: &str) -> &mut Self {
        let help = help.trim().replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string does not fail, here and below.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        name.clone_into(&mut self.family);
        self
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(&self.family);
        for (index, (name, label)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escape(label));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }
}

/// As the format wants label values.
fn escape(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use server::{ServiceSnapshot, SessionSnapshot};

    use super::*;

    fn session(service: &str, visitors_total: u64) -> SessionSnapshot {
        SessionSnapshot {
            client: "shared".into(),
            links: 2,
            kcp_links: Vec::new(),
            quic_links: Vec::new(),
            services: vec![ServiceSnapshot {
                name: service.into(),
                kind: "http".into(),
                endpoints: Vec::new(),
                visitors_total,
                received_bytes: 1,
                sent_bytes: 2,
            }],
        }
    }

    #[test]
    fn labels_cannot_break_out_of_their_line() {
        let mut out = Exposition::default();
        out.family("gt_x", "gauge", "Two\nlines.")
            .sample(&[("service", "a\"} 1\n\\")], 7);
        assert_eq!(
            out.text,
            "# HELP gt_x Two\\nlines.\n# TYPE gt_x gauge\ngt_x{service=\"a\\\"} 1\\n\\\\\"} 7\n"
        );
    }

    #[test]
    fn quic_links_have_figures_of_their_own_also_where_sessions_share_an_id() {
        let link = |number, mtu| QuicLinkSnapshot {
            number,
            rtt: std::time::Duration::from_millis(20),
            loss: 0.1,
            sent: 90,
            packets: 100,
            received: 80,
            lost: 10,
            congestion_window: 12_000,
            sent_bytes: 9000,
            received_bytes: 8000,
            mtu,
            black_holes: 1,
            path_validations: 2,
            recovered: 3,
        };
        let (mut one, mut two) = (session("web", 1), session("web", 2));
        one.quic_links = vec![link(0, 1200), link(1, 1300)];
        two.quic_links = vec![link(0, 1400)];
        let mut out = Exposition::default();
        let snapshot = Snapshot {
            sessions: vec![one, two],
            ..Snapshot::default()
        };
        of_server(&mut out, &snapshot);
        let line = |start: &str| {
            let lines = out.text.lines().filter(|line| line.starts_with(start));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(
            line("gt_quic_link_mtu_bytes"),
            [
                "gt_quic_link_mtu_bytes{client=\"shared\",session=\"0\",link=\"0\"} 1200",
                "gt_quic_link_mtu_bytes{client=\"shared\",session=\"0\",link=\"1\"} 1300",
                "gt_quic_link_mtu_bytes{client=\"shared\",session=\"1\",link=\"0\"} 1400",
            ]
        );
        for (name, value) in [
            ("rtt_seconds", "0.02"),
            ("congestion_window_bytes", "12000"),
            ("packets_sent_total", "100"),
            ("packets_lost_total", "10"),
            ("black_holes_total", "1"),
            ("path_validations_total", "2"),
            ("datagrams_recovered_total", "3"),
        ] {
            let lines = line(&format!("gt_quic_link_{name}"));
            assert_eq!(lines.len(), 3);
            assert!(
                lines
                    .iter()
                    .all(|line| line.ends_with(&format!("}} {value}"))),
                "{lines:?}"
            );
        }
        assert_eq!(line("gt_quic_link_bytes_total").len(), 6);
    }

    #[test]
    fn sessions_that_share_an_id_are_one_series() {
        let mut out = Exposition::default();
        let snapshot = Snapshot {
            sessions: vec![session("web", 3), session("web", 4)],
            ..Snapshot::default()
        };
        of_server(&mut out, &snapshot);
        let lines: Vec<_> = out
            .text
            .lines()
            .filter(|line| line.contains("client=\"shared\""))
            .collect();
        assert_eq!(
            lines,
            [
                "gt_session_links{client=\"shared\"} 4",
                "gt_service_visitors_total{client=\"shared\",service=\"web\"} 7",
                "gt_service_bytes_total{client=\"shared\",service=\"web\",direction=\"received\"} 2",
                "gt_service_bytes_total{client=\"shared\",service=\"web\",direction=\"sent\"} 4",
            ]
        );
    }
}
