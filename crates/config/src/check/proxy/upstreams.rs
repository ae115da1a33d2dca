//! Groups of servers.

use std::time::Duration;

use route::{
    ActiveCheckSpec, BreakerSpec, EjectorSpec, HealthSpec, MAX_SERVERS, Policy, RetryBudgetSpec,
    UpstreamId,
};

use super::{Check, Draft, values};
use crate::{
    checked::{
        CheckKind, HostName, KeepAlive, ProxyProtocol, ServerAddress, StickyCookie, Upstream,
        UpstreamProtocol, UpstreamServer, UpstreamTls,
    },
    options::{EJECTION, HEALTH, KEEP_ALIVE, SERVER_ENTRY, STICKY, UPSTREAM_TLS},
    problem::{Problem, nearest},
    section::Section,
    tree::Key,
    value,
};

impl Check<'_> {
    /// One of `upstreams`.
    pub(super) fn named_upstream(&mut self, key: &Key, entry: &Section, draft: &mut Draft) {
        let name = key.text.as_str();
        let good = !name.is_empty()
            && name.len() <= 64
            && !name.contains([':', '/'])
            && !name.chars().any(char::is_control);
        if !good {
            let problem = Problem::new(
                &key.place,
                "the name of an upstream has 1 to 64 bytes, without : and /",
            );
            self.findings
                .problem(problem.help("a text with : or / is the address of a server"));
            return;
        }
        let before = self.findings.problems();
        let upstream = self.upstream(name, entry);
        if upstream.servers.iter().all(|server| server.spec.backup)
            && self.findings.problems() == before
        {
            let message = match upstream.servers.is_empty() {
                true => format!("the upstream `{name}` has no servers"),
                false => format!("all servers of the upstream `{name}` are backups"),
            };
            self.findings
                .problem(Problem::new(&entry.place, message).help("write `servers: [HOST:PORT]`"));
        }
        // Kept where it has mistakes, so that routes to it are not reported as well.
        let id = self.add_upstream(upstream, draft);
        draft.names.insert(name.to_owned(), id);
    }

    pub(super) fn add_upstream(&mut self, upstream: Upstream, draft: &mut Draft) -> UpstreamId {
        draft.upstreams.push(upstream);
        UpstreamId(draft.upstreams.len() as u32 - 1)
    }

    fn upstream(&mut self, name: &str, entry: &Section) -> Upstream {
        let mut upstream = Upstream::new(name, Vec::new());
        let mut tls_said = Vec::new();
        for node in entry.nodes("servers") {
            let server = Section::read_short(&SERVER_ENTRY, node, &mut self.findings);
            if let Some((server, tls)) = self.upstream_server(&server) {
                if upstream
                    .servers
                    .iter()
                    .any(|other| other.address == server.address)
                {
                    self.findings.problem(Problem::new(
                        &node.place,
                        format!("the server {} is given twice", server.address),
                    ));
                }
                upstream.servers.push(server);
                tls_said.extend(tls);
            }
        }
        if upstream.servers.len() > MAX_SERVERS {
            let problem = format!("the upstream `{name}` has more than {MAX_SERVERS} servers");
            self.findings
                .problem(Problem::new(entry.place_of("servers"), problem));
        }
        self.balance(entry, &mut upstream);
        self.upstream_protocol(entry, &mut upstream, &tls_said);
        self.upstream_health(entry, &mut upstream);
        let findings = &mut self.findings;
        if let Some(node) = entry.node("keepAlive") {
            let section = Section::read(&KEEP_ALIVE, node, findings);
            let basis = KeepAlive::default();
            upstream.keep_alive = KeepAlive {
                connections: section
                    .count("connections", findings)
                    .unwrap_or(basis.connections),
                idle: section.duration("idle", findings).unwrap_or(basis.idle),
                requests: section
                    .count("requests", findings)
                    .unwrap_or(basis.requests),
            };
        }
        let basis = BreakerSpec::default();
        upstream.breaker = BreakerSpec {
            max_active: entry
                .count("maxRequests", findings)
                .unwrap_or(basis.max_active),
            max_queue: entry.count("queue", findings).unwrap_or(basis.max_queue),
            queue_time: entry
                .duration("queueTimeout", findings)
                .unwrap_or(basis.queue_time),
        };
        let basis = RetryBudgetSpec::default();
        upstream.retries = RetryBudgetSpec {
            percent: entry
                .count("retryPercent", findings)
                .unwrap_or(basis.percent),
            ..basis
        };
        upstream
    }

    fn upstream_server(&mut self, entry: &Section) -> Option<(UpstreamServer, Option<bool>)> {
        let findings = &mut self.findings;
        let address = entry.one("addr", findings, value::server_address);
        let weight = entry.count("weight", findings);
        let backup = entry.boolean("backup", findings).unwrap_or(false);
        let down = entry.boolean("down", findings).unwrap_or(false);
        let max_active = entry.count("maxConnections", findings);
        if !entry.has("addr") && !findings.has_problems() {
            findings.problem(
                Problem::new(&entry.place, "a server needs `addr`")
                    .help("write `addr: 127.0.0.1:3000`"),
            );
        }
        let (address, tls) = address?;
        let mut server = UpstreamServer::new(address);
        server.spec.weight = weight.unwrap_or(1);
        server.spec.backup = backup;
        server.spec.down = down;
        server.spec.max_active = max_active;
        Some((server, tls))
    }

    fn balance(&mut self, entry: &Section, upstream: &mut Upstream) {
        let findings = &mut self.findings;
        let hash_key = entry.one("hashKey", findings, values::hash_key);
        let load_factor = entry.count("hashLoad", findings);
        upstream.policy = match entry.choice("balance", findings) {
            Some("least-connections") => Policy::LeastConnections,
            Some("two-choices") => Policy::TwoChoices,
            Some("peak-ewma") => Policy::PeakEwma,
            Some("hash") => Policy::Hash { load_factor },
            _ => Policy::RoundRobin,
        };
        if !matches!(upstream.policy, Policy::Hash { .. }) {
            for name in ["hashKey", "hashLoad"] {
                if entry.has(name) {
                    findings.warn(
                        Some(entry.place_of(name)),
                        format!("`{name}` does nothing without `balance: hash`"),
                    );
                }
            }
        }
        upstream.hash_key = hash_key.unwrap_or(upstream.hash_key.clone());
        upstream.slow_start = entry
            .duration("slowStart", findings)
            .unwrap_or(Duration::ZERO);
        if let Some(node) = entry.node("sticky") {
            let section = Section::read_short(&STICKY, node, findings);
            upstream.sticky = Some(StickyCookie {
                name: section
                    .one("cookie", findings, values::token)
                    .unwrap_or_else(|| "gt".into())
                    .into(),
                max_age: section
                    .duration("maxAge", findings)
                    .filter(|time| !time.is_zero()),
                secret: section
                    .node("secret")
                    .and_then(|node| self.secret_value(node, "secret")),
            });
        }
    }

    fn upstream_protocol(&mut self, entry: &Section, upstream: &mut Upstream, tls_said: &[bool]) {
        upstream.protocol = match entry.choice("protocol", &mut self.findings) {
            Some("h2c") => UpstreamProtocol::H2c,
            Some("h2") => UpstreamProtocol::H2,
            Some("auto") => UpstreamProtocol::Auto,
            _ => UpstreamProtocol::Http1,
        };
        upstream.proxy_protocol = match entry.choice("proxyProtocol", &mut self.findings) {
            Some("v1") => Some(ProxyProtocol::V1),
            Some(_) => Some(ProxyProtocol::V2),
            None => None,
        };
        upstream.tls = match entry.node("tls") {
            Some(node) => {
                let section = Section::read(&UPSTREAM_TLS, node, &mut self.findings);
                Some(self.upstream_tls(&section))
            }
            None => tls_said.contains(&true).then(UpstreamTls::default),
        };
        let mixed = match entry.has("tls") {
            true => tls_said.contains(&false),
            false => {
                tls_said.contains(&true)
                    && (tls_said.contains(&false) || tls_said.len() < upstream.servers.len())
            }
        };
        if mixed {
            let problem = Problem::new(
                entry.place_of("servers"),
                "some servers of one upstream are to be spoken to with TLS and some without",
            );
            self.findings
                .problem(problem.help("make two upstreams, or write all addresses as https://"));
        }
        match (upstream.protocol, &upstream.tls) {
            (protocol @ (UpstreamProtocol::H2 | UpstreamProtocol::Auto), None) => {
                let word = match protocol {
                    UpstreamProtocol::H2 => "h2",
                    _ => "auto",
                };
                let message = format!("`protocol: {word}` needs `tls`");
                let problem = Problem::new(entry.place_of("protocol"), message);
                self.findings.problem(
                    problem.help("give `tls: {}`, or use `protocol: h2c` for HTTP/2 without TLS"),
                );
            }
            (UpstreamProtocol::H2c, Some(_)) => {
                let problem = Problem::new(
                    entry.place_of("protocol"),
                    "`protocol: h2c` is HTTP/2 without TLS, but there is TLS",
                );
                self.findings.problem(problem.help("use `protocol: h2`"));
            }
            _ => {}
        }
        let unnamed = |server: &UpstreamServer| matches!(server.address, ServerAddress::Unix(_));
        let nameless = upstream
            .tls
            .as_ref()
            .is_some_and(|tls| tls.verify && tls.server_name.is_none());
        if nameless && upstream.servers.iter().any(unnamed) {
            let problem = Problem::new(
                entry.place_of("servers"),
                "a Unix socket has no name to verify a certificate by",
            );
            self.findings
                .problem(problem.help("give `tls: {serverName: …}`"));
        }
    }

    fn upstream_tls(&mut self, section: &Section) -> UpstreamTls {
        let tls = UpstreamTls {
            verify: section
                .boolean("verify", &mut self.findings)
                .unwrap_or(true),
            ca: self.readable(section, "ca"),
            server_name: section.one("serverName", &mut self.findings, |text| {
                Ok(HostName::new(text)?)
            }),
            certificate: self.readable_certificate(section),
        };
        if !tls.verify {
            let text = "the certificates of the servers are not verified: whoever is in between can read and change everything";
            self.findings.warn(Some(section.place_of("verify")), text);
        }
        tls
    }

    fn upstream_health(&mut self, entry: &Section, upstream: &mut Upstream) {
        if let Some(node) = entry.node("health") {
            let section = Section::read(&HEALTH, node, &mut self.findings);
            let (spec, kind) = self.active_check(&section);
            let unix = |server: &UpstreamServer| matches!(server.address, ServerAddress::Unix(_));
            if section.has("port") && upstream.servers.iter().any(unix) {
                let problem =
                    Problem::new(section.place_of("port"), "a Unix socket has no other port");
                self.findings.problem(problem.help("take `port` out"));
            }
            upstream.health.active = Some(spec);
            upstream.check = Some(kind);
        }
        if let Some(node) = entry.node("ejection") {
            let findings = &mut self.findings;
            let section = Section::read(&EJECTION, node, findings);
            let basis = EjectorSpec::default();
            let spec = EjectorSpec {
                failures: section
                    .count("failures", findings)
                    .unwrap_or(basis.failures),
                time: section.duration("time", findings).unwrap_or(basis.time),
                max_percent: section
                    .count("maxPercent", findings)
                    .unwrap_or(basis.max_percent),
            };
            upstream.health = HealthSpec {
                passive: (spec.failures > 0).then_some(spec),
                ..upstream.health
            };
        }
    }

    pub(in crate::check) fn active_check(
        &mut self,
        section: &Section,
    ) -> (ActiveCheckSpec, CheckKind) {
        let findings = &mut self.findings;
        let basis = ActiveCheckSpec::default();
        let spec = ActiveCheckSpec {
            interval: section
                .duration("interval", findings)
                .unwrap_or(basis.interval),
            timeout: section
                .duration("timeout", findings)
                .unwrap_or(basis.timeout),
            fall: section.count("fall", findings).unwrap_or(basis.fall),
            rise: section.count("rise", findings).unwrap_or(basis.rise),
            ..basis
        };
        let port = section.one("port", findings, |text| match value::port(text)? {
            0 => Err(value::ValueError::NotPort),
            port => Ok(port),
        });
        let path = section.one("path", findings, values::plain_path);
        let host = section.one("host", findings, values::line);
        let mut status = section.all("status", findings, values::status_range);
        if status.is_empty() {
            status = vec![200..=399];
        }
        let http = match section.choice("type", findings) {
            Some(kind) => kind == "http",
            None => section.has("path"),
        };
        if !http {
            for name in ["path", "host", "status"] {
                if section.has(name) {
                    findings.warn(
                        Some(section.place_of(name)),
                        format!("`{name}` does nothing in a TCP check"),
                    );
                }
            }
            return (spec, CheckKind::Tcp { port });
        }
        let path = path.unwrap_or_else(|| "/".into()).into();
        (
            spec,
            CheckKind::Http {
                port,
                path,
                host: host.map(Into::into),
                status,
            },
        )
    }

    /// `to`: an upstream by its name, or one server.
    pub(super) fn target(&mut self, entry: &Section, draft: &mut Draft) -> Option<UpstreamId> {
        let place = entry.place_of("to").clone();
        let text = entry.one("to", &mut self.findings, |text| Ok(text.to_owned()))?;
        if let Some(id) = draft.names.get(&text) {
            return Some(*id);
        }
        if text.contains([':', '/']) {
            let (address, tls) = entry.one("to", &mut self.findings, value::server_address)?;
            let mut upstream = Upstream::new(&text, vec![UpstreamServer::new(address)]);
            upstream.tls = (tls == Some(true)).then(UpstreamTls::default);
            // Routes that name the same server share its connections.
            if let Some(same) = draft
                .upstreams
                .iter()
                .position(|other| other.name == upstream.name)
            {
                return Some(UpstreamId(same as u32));
            }
            return Some(self.add_upstream(upstream, draft));
        }
        let shown = match entry.node("to").is_some_and(|node| node.interpolated) {
            true => String::new(),
            false => format!(" `{text}`"),
        };
        let problem = Problem::new(&place, format!("there is no upstream{shown}"));
        self.findings.problem(
            match nearest(&text, draft.names.keys().map(String::as_str)) {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => {
                    problem.help("name one of `upstreams`, or give an address, as 127.0.0.1:3000")
                }
            },
        );
        None
    }

    /// The servers of the quick form.
    pub(super) fn quick_upstream(
        &mut self,
        options: &Section,
        draft: &mut Draft,
    ) -> Option<UpstreamId> {
        let servers = options.all("to", &mut self.findings, value::server_address);
        let tls = servers.iter().filter(|(_, tls)| *tls == Some(true)).count();
        if tls > 0 && tls < servers.len() {
            let problem = Problem::new(
                options.place_of("to"),
                "some servers are to be spoken to with TLS and some without",
            );
            self.findings.problem(
                problem.help("write all addresses as https://, or use a file with two upstreams"),
            );
        }
        let mut upstream = Upstream::new("to", Vec::new());
        for (address, _) in servers {
            if upstream
                .servers
                .iter()
                .any(|other| other.address == address)
            {
                self.findings.problem(Problem::new(
                    options.place_of("to"),
                    format!("the server {address} is given twice"),
                ));
            }
            upstream.servers.push(UpstreamServer::new(address));
        }
        upstream.tls = (tls > 0).then(UpstreamTls::default);
        (!upstream.servers.is_empty()).then(|| self.add_upstream(upstream, draft))
    }
}
