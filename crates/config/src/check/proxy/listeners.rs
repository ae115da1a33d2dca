//! Where visitors come in.

use route::{HostPattern, IpSet};

use super::{Check, Draft};
use crate::{
    checked::{Certificate, ListenerProtocol, ListenerTls, ProxyListener, TlsVersion},
    options::CERTIFICATE,
    problem::Problem,
    section::Section,
};

/// Most listeners: their number is sent along with every request.
const MAX_LISTENERS: usize = 1000;

impl Check<'_> {
    /// One of `listeners`; its place among them.
    pub(super) fn listener(&mut self, entry: &Section, draft: &mut Draft) -> Option<u16> {
        let addr = match entry.listen("addr", &mut self.findings) {
            Some(addr) => addr,
            None if entry.has("addr") => return None,
            None => {
                let problem = Problem::new(&entry.place, "a listener needs `addr`");
                self.findings.problem(problem.help("write `addr: 8080`"));
                return None;
            }
        };
        let name = self.text(entry, "name").unwrap_or_else(|| addr.to_string());
        self.claim(draft, addr, &name, entry.place_of("addr"));
        if draft.listeners.iter().any(|other| *other.name == *name) {
            self.findings.problem(Problem::new(
                entry.place_of("name"),
                format!("two listeners are called `{name}`"),
            ));
            return None;
        }
        if draft.listeners.len() >= MAX_LISTENERS {
            self.findings.problem(Problem::new(
                &entry.place,
                format!("there are more than {MAX_LISTENERS} listeners"),
            ));
            return None;
        }
        let protocol = match draft.shared.get(&addr) {
            Some(tls) => self.protocol_of_server(entry, *tls),
            None => self.listener_protocol(entry),
        };
        let proxy_protocol = self.networks(entry, "proxyProtocol");
        let id = draft.listeners.len() as u16;
        draft.listeners.push(ProxyListener {
            name: name.into(),
            addr,
            protocol,
            proxy_protocol,
        });
        Some(id)
    }

    /// A listener on an address of the server: what is done there before the first request is the server's to say.
    fn protocol_of_server(&mut self, entry: &Section, tls: bool) -> ListenerProtocol {
        let (option, fits) = if tls {
            ("tlsAddr", "https")
        } else {
            ("addr", "http")
        };
        let protocol = entry.choice("protocol", &mut self.findings);
        if let Some(other) = protocol.filter(|protocol| *protocol != fits) {
            let message = format!("`protocol: {other}` on the address of `{option}`");
            let problem = Problem::new(entry.place_of("protocol"), message);
            self.findings
                .problem(problem.help("give it an address of its own"));
        }
        let of_server = [
            "certFile",
            "keyFile",
            "certificates",
            "tlsVersion",
            "clientCA",
            "clientCertOptional",
            "http2",
            "proxyProtocol",
        ];
        for name in of_server.into_iter().filter(|name| entry.has(name)) {
            let message = format!("`{name}` on the address of `{option}`, which is the server's");
            let problem = Problem::new(entry.place_of(name), message);
            self.findings
                .problem(problem.help("take it out, or give the listener an address of its own"));
        }
        ListenerProtocol::OfServer { tls }
    }

    fn listener_protocol(&mut self, entry: &Section) -> ListenerProtocol {
        let mut certificates: Vec<Certificate> =
            self.readable_certificate(entry).into_iter().collect();
        for node in entry.nodes("certificates") {
            let one = Section::read(&CERTIFICATE, node, &mut self.findings);
            match self.readable_certificate(&one) {
                Some(certificate) => certificates.push(certificate),
                None if one.has("certFile") || one.has("keyFile") => {}
                None => {
                    let problem =
                        Problem::new(&node.place, "a certificate needs `certFile` and `keyFile`");
                    self.findings.problem(problem);
                }
            }
        }
        let min_version = match entry.choice("tlsVersion", &mut self.findings) {
            Some("1.3" | "tls1.3") => TlsVersion::V1_3,
            _ => TlsVersion::V1_2,
        };
        let client_ca = self.readable(entry, "clientCA");
        let client_cert_optional = entry
            .boolean("clientCertOptional", &mut self.findings)
            .unwrap_or(false);
        let http2 = entry.boolean("http2", &mut self.findings).unwrap_or(true);
        let http3 = entry.boolean("http3", &mut self.findings).unwrap_or(false);
        let given = ["certFile", "keyFile", "certificates", "clientCA"]
            .into_iter()
            .find(|name| entry.has(name));
        let protocol = entry.choice("protocol", &mut self.findings);
        let protocol = protocol.unwrap_or(if given.is_some() { "https" } else { "http" });
        if protocol != "https" {
            for name in given
                .into_iter()
                .chain(entry.has("tlsVersion").then_some("tlsVersion"))
                .chain(http3.then_some("http3"))
            {
                self.findings.warn(
                    Some(entry.place_of(name)),
                    format!("`{name}` does nothing with `protocol: {protocol}`"),
                );
            }
        }
        if client_cert_optional && client_ca.is_none() {
            self.findings.warn(
                Some(entry.place_of("clientCertOptional")),
                "`clientCertOptional` does nothing without `clientCA`",
            );
        }
        match protocol {
            "tcp" => ListenerProtocol::Tcp,
            "tls" => ListenerProtocol::Tls,
            "http" => ListenerProtocol::Http { http2 },
            _ => {
                if certificates.is_empty() && !entry.has("certFile") && !entry.has("certificates") {
                    let problem = Problem::new(
                        entry.place_of("protocol"),
                        "`protocol: https` needs a certificate",
                    );
                    self.findings.problem(problem.help(
                        "give `certFile` and `keyFile`, or use `protocol: tls` to pass TLS through",
                    ));
                }
                let files = certificates
                    .iter()
                    .flat_map(|pair| [&pair.cert_file, &pair.key_file]);
                let tls = ListenerTls {
                    content: self.content(files.chain(&client_ca)),
                    certificates,
                    min_version,
                    client_ca,
                    client_cert_optional,
                };
                ListenerProtocol::Https { http2, http3, tls }
            }
        }
    }

    /// `to` of a listener, once upstreams are known.
    pub(super) fn listener_target(&mut self, id: u16, entry: &Section, draft: &mut Draft) {
        let http = draft.listeners[usize::from(id)].protocol.is_http();
        if entry.has("timeouts") {
            let times = self.timeouts_of(entry, draft.timeouts);
            draft.stream_timeouts.insert(id, times);
            if http {
                let text = "`timeouts` of a listener are for `protocol: tcp` and `tls`; requests have those of their routes";
                self.findings.warn(Some(entry.place_of("timeouts")), text);
            }
        }
        match (entry.node("to"), http) {
            (Some(node), true) => {
                let problem = Problem::new(
                    &node.place,
                    "`to` of a listener is for `protocol: tcp` and `tls`",
                );
                self.findings
                    .problem(problem.help("give a route: `routes: [{to: …}]`"));
            }
            (Some(_), false) => {
                if let Some(to) = self.target(entry, draft) {
                    draft.streams.push((id, HostPattern::default(), to));
                }
            }
            (None, _) => {}
        }
    }

    /// `listen` and `to` of `gt proxy`.
    pub(super) fn quick_form(&mut self, options: &Section, draft: &mut Draft) {
        let nodes: Vec<_> = options.nodes("listen").into_iter().cloned().collect();
        if nodes.is_empty() && !options.has("to") {
            return;
        }
        for (has, lacks) in [("listen", "to"), ("to", "listen")] {
            if options.has(has) && !options.has(lacks) {
                let problem =
                    Problem::new(options.place_of(has), format!("`{has}` needs `{lacks}`"));
                self.findings
                    .problem(problem.help("gt proxy --listen :8080 --to 127.0.0.1:3000"));
            }
        }
        let certificate = self.readable_certificate(options);
        let default_ip = std::net::Ipv4Addr::UNSPECIFIED;
        let addrs = options.all("listen", &mut self.findings, |text| {
            crate::value::listen_address(text, default_ip)
        });
        for (addr, node) in addrs.into_iter().zip(&nodes) {
            let Some(addr) = addr else { continue };
            self.claim(draft, addr, "listen", &node.place);
            let protocol = match &certificate {
                None => ListenerProtocol::Http { http2: true },
                Some(certificate) => ListenerProtocol::Https {
                    http2: true,
                    http3: false,
                    tls: ListenerTls {
                        content: self.content([&certificate.cert_file, &certificate.key_file]),
                        certificates: vec![certificate.clone()],
                        min_version: TlsVersion::V1_2,
                        client_ca: None,
                        client_cert_optional: false,
                    },
                },
            };
            draft.listeners.push(ProxyListener {
                name: addr.to_string().into(),
                addr,
                protocol,
                proxy_protocol: IpSet::default(),
            });
        }
        self.quick_route(options, draft);
    }
}
