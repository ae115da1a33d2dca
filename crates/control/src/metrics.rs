//! `GET /metrics`: the Prometheus text format 0.0.4.
//!
//! Every metric of gt begins with `gt_`; those of the process have the names that Prometheus' own libraries give them. Series of
//! clients and services are summed over sessions, because two sessions may share one id.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
};

use agent::Status;
use server::Snapshot;

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
}

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
        "Round-trip time of the way.",
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
