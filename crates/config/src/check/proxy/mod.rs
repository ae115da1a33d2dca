//! The `proxy` section to [`ProxyConfig`]: listeners first, then upstreams, then routes, because each names those before it.
//! The quick form of `gt proxy` and the `apps` of NiubiX become the same drafts.

mod actions;
mod apps;
mod auth;
mod listeners;
mod routes;
mod upstreams;
mod values;

use std::{collections::HashMap, net::SocketAddr, num::NonZeroUsize, path::PathBuf, sync::Arc};

use route::{
    ClientIpSource, Forwarding, HostPattern, IpSet, Limits, Match, Route, Routes, StreamRoutes,
    Timeouts, UpstreamId,
};

use super::Check;
use crate::{
    checked::{AccessLog, AccessLogFormat, Proxy, ProxyConfig, ProxyListener, Upstream},
    options::{ACCESS_LOG, LIMITS, LISTENER, PROXY, ROUTE, TIMEOUTS, UPSTREAM},
    problem::{Errors, Problem},
    section::Section,
    source::Place,
    tree::{Node, Value},
    value,
};

/// Checks a proxy's file and flags. `options` are those of the file, with the flags over them.
pub(crate) fn check_proxy(
    mut check: Check<'_>,
    top: &Section,
    options: &Section,
) -> Result<Proxy, Errors> {
    let log = check.log(options);
    let workers = options
        .count::<usize>("workers", &mut check.findings)
        .and_then(NonZeroUsize::new);
    let api = check.api(options, None);
    let mut draft = Draft::default();
    let section = match top.node("proxy") {
        Some(node) => Section::read(&PROXY, node, &mut check.findings),
        None => Section::empty(&PROXY, &top.place),
    };
    check.proxy_basis(&section, &mut draft);
    check.quick_form(options, &mut draft);
    check.proxy_section(&section, &mut draft);
    for node in top.nodes("apps") {
        check.app(node, &mut draft);
    }
    if let Some(api) = &api {
        check.claim(&mut draft, api.addr, "apiAddr", options.place_of("apiAddr"));
    }
    let proxy = check.finish_proxy(draft, &section, false);
    let warnings = check.findings.finish()?;
    Ok(Proxy {
        proxy,
        api,
        workers,
        log,
        warnings,
    })
}

/// What a section becomes, piece by piece.
#[derive(Default)]
pub(super) struct Draft {
    listeners: Vec<ProxyListener>,
    upstreams: Vec<Upstream>,
    /// Upstreams that have a name in the file.
    names: HashMap<String, UpstreamId>,
    rules: Vec<(Match, Route)>,
    /// Where each rule was written, and a listing of its conditions by which two are the same.
    written: Vec<(Place, String)>,
    streams: Vec<(u16, HostPattern, UpstreamId)>,
    /// Addresses that are taken, with what took them.
    taken: HashMap<SocketAddr, String>,
    forwarding: Forwarding,
    via: bool,
    access_log: Option<AccessLog>,
    limits: Limits,
    timeouts: Timeouts,
    /// Those of a tcp or tls listener, where they differ.
    stream_timeouts: HashMap<u16, Timeouts>,
    /// Relay services can be routed to.
    in_server: bool,
    /// Addresses of the server itself on which listeners may stand too; whether TLS is ended there.
    shared: HashMap<SocketAddr, bool>,
}

impl Check<'_> {
    /// The `proxy` section of a server's file. `taken` are addresses that the server itself listens on; on `shared` it speaks HTTP, with TLS
    /// or without.
    pub(super) fn proxy_of_server(
        &mut self,
        node: &Node,
        taken: &[(&str, SocketAddr)],
        shared: &[(Option<SocketAddr>, bool)],
    ) -> ProxyConfig {
        let section = Section::read(&PROXY, node, &mut self.findings);
        let mut draft = Draft {
            in_server: true,
            ..Draft::default()
        };
        for (name, addr) in taken {
            draft.taken.insert(*addr, format!("`{name}` of the server"));
        }
        // Port 0 is a free port, a different one each time.
        let shared = shared
            .iter()
            .filter_map(|(addr, tls)| Some(((*addr)?, *tls)));
        draft.shared = shared.filter(|(addr, _)| addr.port() != 0).collect();
        self.proxy_basis(&section, &mut draft);
        self.proxy_section(&section, &mut draft);
        self.finish_proxy(draft, &section, true)
    }

    /// What holds for all routes.
    fn proxy_basis(&mut self, section: &Section, draft: &mut Draft) {
        let findings = &mut self.findings;
        let mut flag = |name, default| section.boolean(name, findings).unwrap_or(default);
        draft.forwarding = Forwarding {
            x_forwarded_for: flag("xForwardedFor", true),
            x_forwarded_proto: flag("xForwardedProto", true),
            x_forwarded_host: flag("xForwardedHost", true),
            x_real_ip: flag("xRealIP", true),
            forwarded: flag("forwarded", false),
            ..Forwarding::default()
        };
        draft.via = flag("via", false);
        draft.access_log = self.access_log(section);
        draft.forwarding.trusted = self.networks(section, "trustedProxies");
        draft.forwarding.client_ip = match section.choice("clientIP", &mut self.findings) {
            Some("forwarded") => ClientIpSource::Forwarded,
            Some("x-real-ip") => ClientIpSource::XRealIp,
            _ => ClientIpSource::XForwardedFor,
        };
        draft.limits = self.limits_of(section, Limits::default());
        draft.timeouts = self.timeouts_of(section, Timeouts::default());
    }

    fn access_log(&mut self, section: &Section) -> Option<AccessLog> {
        let node = section.node("accessLog")?;
        let log = Section::read_short(&ACCESS_LOG, node, &mut self.findings);
        if !log.has("path") {
            let problem = Problem::new(&log.place, "an access log needs `path`");
            self.findings
                .problem(problem.help("write `accessLog: /var/log/gt/access.log`"));
        }
        let path = self.path(&log, "path");
        let findings = &mut self.findings;
        let buffer = log.one("buffer", findings, |text| match value::size(text)? {
            size @ 0x1_0000..=0x4000_0000 => Ok(size),
            _ => Err(value::ValueError::OutOfBounds(
                "64 KiB to 1 GiB are allowed".into(),
            )),
        });
        Some(AccessLog {
            format: match log.choice("format", findings) {
                Some("json") => AccessLogFormat::Json,
                _ => AccessLogFormat::Combined,
            },
            sample: log.count("sample", findings).unwrap_or(1),
            buffer: buffer.unwrap_or(4 << 20),
            path: path?,
        })
    }

    fn proxy_section(&mut self, section: &Section, draft: &mut Draft) {
        let mut listeners = Vec::new();
        for node in section.nodes("listeners") {
            let entry = Section::read(&LISTENER, node, &mut self.findings);
            if let Some(id) = self.listener(&entry, draft) {
                listeners.push((id, entry));
            }
        }
        match section.node("upstreams").map(|node| (&node.value, node)) {
            None => {}
            Some((Value::Map(entries), _)) => {
                for (key, node) in entries {
                    let mut entry = Section::read(&UPSTREAM, node, &mut self.findings);
                    entry.place = key.place.clone();
                    self.named_upstream(key, &entry, draft);
                }
            }
            Some((_, node)) => self.findings.problem(
                Problem::new(
                    &node.place,
                    format!("upstreams are a mapping of names, not {}", node.kind()),
                )
                .help("write `NAME: {servers: [HOST:PORT]}` below it"),
            ),
        }
        for (id, entry) in &listeners {
            self.listener_target(*id, entry, draft);
        }
        for node in section.nodes("routes") {
            let entry = Section::read(&ROUTE, node, &mut self.findings);
            self.route(&entry, draft);
        }
    }

    fn finish_proxy(&mut self, draft: Draft, section: &Section, in_server: bool) -> ProxyConfig {
        // After another mistake these would be no news.
        if !self.findings.has_problems() {
            self.look_at_the_whole(&draft, section, in_server);
        }
        let routes = Routes::new(draft.rules).unwrap_or_else(|error| {
            self.findings.problem(Problem::new(
                &section.place,
                format!("the number of routes {error}"),
            ));
            Routes::default()
        });
        let stream_timeouts = (0..draft.listeners.len())
            .map(|n| {
                let own = u16::try_from(n)
                    .ok()
                    .and_then(|n| draft.stream_timeouts.get(&n));
                own.copied().unwrap_or(draft.timeouts)
            })
            .collect();
        ProxyConfig {
            listeners: draft.listeners,
            stream_timeouts,
            upstreams: draft.upstreams,
            routes: Arc::new(routes),
            streams: StreamRoutes::new(draft.streams),
            forwarding: draft.forwarding,
            via: draft.via,
            access_log: draft.access_log,
        }
    }

    fn look_at_the_whole(&mut self, draft: &Draft, section: &Section, in_server: bool) {
        if draft.listeners.is_empty() {
            let help = match in_server {
                true => "give it `listeners`, as `- addr: 8080`",
                false => {
                    "give `listeners`, or the quick form: gt proxy --listen :8080 --to 127.0.0.1:3000"
                }
            };
            self.findings
                .problem(Problem::new(&section.place, "the proxy listens nowhere").help(help));
        }
        let http = draft
            .listeners
            .iter()
            .any(|listener| listener.protocol.is_http());
        if http && draft.rules.is_empty() {
            let problem = Problem::new(
                &section.place,
                "there is no route: every request would get 404",
            );
            self.findings
                .problem(problem.help("give `routes`, as `- to: 127.0.0.1:3000`"));
        }
        if !http && !draft.rules.is_empty() {
            let problem = Problem::new(
                &section.place,
                "there are routes of requests, but no http or https listener",
            );
            self.findings.problem(problem);
        }
        let mut first: HashMap<&str, &Place> = HashMap::new();
        for (place, conditions) in &draft.written {
            if let Some(earlier) = first.get(conditions.as_str()) {
                let text = format!(
                    "this route is never taken: the one at {earlier} has the same conditions and stands before it"
                );
                self.findings.warn(Some(place), text);
            } else {
                first.insert(conditions, place);
            }
        }
        let routed = |id: usize| {
            let id = UpstreamId(id as u32);
            draft.streams.iter().any(|(.., to)| *to == id)
                || draft.rules.iter().any(|(_, route)| matches!(&route.action, route::Action::Upstream(to) if to.upstream == id))
        };
        for (_, upstream) in draft
            .upstreams
            .iter()
            .enumerate()
            .filter(|(n, _)| !routed(*n))
        {
            self.findings.warn(
                Some(&section.place),
                format!("no route leads to the upstream `{}`", upstream.name),
            );
        }
    }

    /// Takes an address, or says who has it.
    fn claim(&mut self, draft: &mut Draft, addr: SocketAddr, name: &str, place: &Place) -> bool {
        // Port 0 is a free port, a different one each time.
        if addr.port() == 0 {
            return true;
        }
        match draft.taken.insert(addr, format!("`{name}`")) {
            None => true,
            Some(other) => {
                let message = format!("`{name}` and {other} are the same address, {addr}");
                self.findings
                    .problem(Problem::new(place, message).help("give each its own port"));
                false
            }
        }
    }

    fn networks(&mut self, section: &Section, name: &'static str) -> IpSet {
        section
            .all(name, &mut self.findings, value::network)
            .into_iter()
            .collect()
    }

    /// A file that must be there when gt starts.
    fn readable(&mut self, section: &Section, name: &'static str) -> Option<PathBuf> {
        let path = self.path(section, name)?;
        if let Err(error) = self.surroundings.read(&path) {
            let node = section.node(name);
            let shown = match node.is_some_and(|node| node.interpolated) {
                true => String::new(),
                false => format!(" {}", path.display()),
            };
            let message = format!("the file{shown} of `{name}` cannot be read: {error}");
            self.findings
                .problem(Problem::new(section.place_of(name), message));
        }
        Some(path)
    }

    /// A certificate and its key, both readable.
    fn readable_certificate(&mut self, section: &Section) -> Option<crate::checked::Certificate> {
        let certificate = self.certificate(section, "certFile", "keyFile")?;
        self.readable(section, "certFile");
        self.readable(section, "keyFile");
        Some(certificate)
    }

    fn limits_of(&mut self, section: &Section, basis: Limits) -> Limits {
        let Some(node) = section.node("limits") else {
            return basis;
        };
        let limits = Section::read(&LIMITS, node, &mut self.findings);
        let findings = &mut self.findings;
        let mut head = |name, default| {
            let size = limits.one(name, findings, |text| match value::size(text)? {
                size @ 256..=0x10_0000 => Ok(size as u32),
                _ => Err(value::ValueError::OutOfBounds(
                    "256 bytes to 1 MiB are allowed".into(),
                )),
            });
            size.unwrap_or(default)
        };
        Limits {
            header_bytes: head("header", basis.header_bytes),
            header_list_bytes: head("headerList", basis.header_list_bytes),
            header_fields: limits
                .count("headerFields", findings)
                .unwrap_or(basis.header_fields),
            body_bytes: match limits.one("body", findings, value::size) {
                Some(0) => None,
                Some(size) => Some(size),
                None => basis.body_bytes,
            },
            requests_per_connection: limits
                .count("requests", findings)
                .unwrap_or(basis.requests_per_connection),
        }
    }

    fn timeouts_of(&mut self, section: &Section, basis: Timeouts) -> Timeouts {
        let Some(node) = section.node("timeouts") else {
            return basis;
        };
        let times = Section::read(&TIMEOUTS, node, &mut self.findings);
        let findings = &mut self.findings;
        let mut time = |name, default| times.duration(name, findings).unwrap_or(default);
        Timeouts {
            header: time("header", basis.header),
            body: time("body", basis.body),
            keep_alive: time("keepAlive", basis.keep_alive),
            connect: time("connect", basis.connect),
            response: time("response", basis.response),
            tunnel_idle: time("tunnel", basis.tunnel_idle),
            total: match times.duration("total", findings) {
                Some(time) if time.is_zero() => None,
                Some(time) => Some(time),
                None => basis.total,
            },
        }
    }
}
