//! Applications as NiubiX writes them: each is a listener (or a host on one), an upstream and a route.

use std::time::Duration;

use route::{Action, ActiveCheckSpec, HashKey, HostPattern, Match, Policy, Route, ToUpstream};

use super::{Check, Draft, values};
use crate::{
    checked::{
        CheckKind, ListenerProtocol, ListenerTls, ProxyListener, TlsVersion, Upstream,
        UpstreamServer,
    },
    options::{APP, BACKEND},
    problem::Problem,
    section::Section,
    tree::Node,
    value,
};

impl Check<'_> {
    /// One of `apps`.
    pub(super) fn app(&mut self, node: &Node, draft: &mut Draft) {
        let app = Section::read(&APP, node, &mut self.findings);
        let name = self
            .text(&app, "name")
            .unwrap_or_else(|| format!("app {}", draft.upstreams.len() + 1));
        if draft.names.contains_key(&name) {
            self.findings.problem(Problem::new(
                app.place_of("name"),
                format!("there are two of the name `{name}`"),
            ));
            return;
        }
        let Some(listener) = self.app_listener(&app, draft) else {
            return;
        };
        let upstream = self.app_upstream(&name, &app);
        if upstream.servers.is_empty() && !app.has("backends") {
            self.findings.problem(Problem::new(
                &app.place,
                format!("the app `{name}` has no `backends`"),
            ));
        }
        let to = self.add_upstream(upstream, draft);
        draft.names.insert(name.clone(), to);
        self.app_forwarding(&app, draft);
        let http = draft.listeners[usize::from(listener)].protocol.is_http();
        let host = app.one("http_host", &mut self.findings, |text| match text {
            "default" | "" => Ok(HostPattern::default()),
            _ => Ok(HostPattern::new(text)?),
        });
        let host = host.unwrap_or_default();
        let mut timeouts = draft.timeouts;
        let mut time = |option, default| {
            let given = app.count::<u64>(option, &mut self.findings);
            Duration::from_millis(given.unwrap_or(default))
        };
        timeouts.connect = time("connect_backend_timeout", 2000);
        timeouts.header = time("frontend_a_complete_req_timeout", 5000);
        timeouts.keep_alive = time("frontend_idle_timeout", 10_000);
        if !http {
            if app.has("frontend_idle_timeout") {
                timeouts.tunnel_idle = timeouts.keep_alive;
            }
            draft.stream_timeouts.insert(listener, timeouts);
            draft.streams.push((listener, HostPattern::default(), to));
            return;
        }
        let mut route = Route::new(&name, Action::Upstream(ToUpstream::new(to)));
        (route.limits, route.timeouts) = (draft.limits, timeouts);
        draft
            .written
            .push((app.place.clone(), format!("{host:?} * [{listener}]")));
        draft.rules.push((
            Match {
                listeners: vec![listener],
                host,
                ..Match::default()
            },
            route,
        ));
    }

    fn app_listener(&mut self, app: &Section, draft: &mut Draft) -> Option<u16> {
        let addr = app.one("listen", &mut self.findings, |text| {
            // NiubiX writes []:8080 for all addresses of both kinds.
            let text = text.replace("[]:", "[::]:");
            value::listen_address(&text, std::net::Ipv4Addr::UNSPECIFIED)
        });
        let Some(addr) = addr.flatten() else {
            if !app.has("listen") {
                self.findings.problem(
                    Problem::new(&app.place, "an app needs `listen`")
                        .help("write `listen: \":8080\"`"),
                );
            }
            return None;
        };
        let protocol = app.choice("protocol", &mut self.findings).unwrap_or("http");
        app.choice("backend_protocol", &mut self.findings);
        let protocol = match (protocol, self.readable_certificate(app)) {
            ("tcp", _) => ListenerProtocol::Tcp,
            ("https", Some(certificate)) => ListenerProtocol::Https {
                http2: true,
                http3: false,
                tls: ListenerTls {
                    content: self.content([&certificate.cert_file, &certificate.key_file]),
                    certificates: vec![certificate],
                    min_version: TlsVersion::V1_2,
                    client_ca: None,
                    client_cert_optional: false,
                },
            },
            ("https", None) => {
                let problem = Problem::new(
                    app.place_of("protocol"),
                    "`protocol: https` needs a certificate",
                );
                self.findings
                    .problem(problem.help("give `certFile` and `keyFile`"));
                return None;
            }
            _ => ListenerProtocol::Http { http2: true },
        };
        let same = draft
            .listeners
            .iter()
            .position(|other| other.addr == addr && addr.port() != 0);
        if let Some(n) = same {
            let other = &draft.listeners[n].protocol;
            if format!("{other:?}") == format!("{protocol:?}") && protocol.is_http() {
                return Some(n as u16);
            }
        }
        let name = addr.to_string();
        if !self.claim(draft, addr, &name, app.place_of("listen")) {
            return None;
        }
        let proxy_protocol = route::IpSet::default();
        draft.listeners.push(ProxyListener {
            name: name.into(),
            addr,
            protocol,
            proxy_protocol,
        });
        Some(draft.listeners.len() as u16 - 1)
    }

    fn app_upstream(&mut self, name: &str, app: &Section) -> Upstream {
        let mut upstream = Upstream::new(name, Vec::new());
        (upstream.policy, upstream.hash_key) =
            match app.choice("balance_policy", &mut self.findings) {
                Some("random") => (Policy::TwoChoices, HashKey::Ip),
                Some("iphash") => (Policy::Hash { load_factor: None }, HashKey::Ip),
                _ => (Policy::RoundRobin, HashKey::Ip),
            };
        for (n, node) in app.nodes("backends").into_iter().enumerate() {
            let backend = Section::read(&BACKEND, node, &mut self.findings);
            let findings = &mut self.findings;
            let address = backend.one("host", findings, value::server_address);
            let weight = backend.count("weight", findings).unwrap_or(1);
            let down = backend.boolean("down", findings).unwrap_or(false);
            let uri = backend.one("health_check_uri", findings, |text| match text {
                "" => Ok(String::new()),
                _ => values::plain_path(text),
            });
            let period = backend.count::<u64>("health_check_period", findings);
            let timeout = backend.count::<u64>("health_check_timeout", findings);
            if let Some(path) = uri.filter(|uri| n == 0 && !uri.is_empty() && period != Some(0)) {
                let basis = ActiveCheckSpec::default();
                upstream.health.active = Some(ActiveCheckSpec {
                    interval: period
                        .map_or(basis.interval, |ms| Duration::from_millis(ms.max(100))),
                    timeout: timeout.map_or(basis.timeout, Duration::from_millis),
                    ..basis
                });
                upstream.check = Some(CheckKind::Http {
                    port: None,
                    path: path.into(),
                    host: None,
                    status: vec![200..=200],
                });
            }
            if !backend.has("host") {
                findings.problem(Problem::new(&node.place, "a backend needs `host`"));
            }
            if let Some((address, _)) = address {
                let mut server = UpstreamServer::new(address);
                (server.spec.weight, server.spec.down) = (weight, down);
                upstream.servers.push(server);
            }
        }
        upstream
    }

    /// These two hold for all apps here.
    fn app_forwarding(&mut self, app: &Section, draft: &mut Draft) {
        if let Some(on) = app.boolean("x-forwarded-for", &mut self.findings) {
            draft.forwarding.x_forwarded_for = on;
        }
        if let Some(on) = app.boolean("x-real-ip", &mut self.findings) {
            draft.forwarding.x_real_ip = on;
        }
    }
}
