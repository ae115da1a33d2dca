//! Sections of a server to the checked [`Server`].

use std::{collections::HashMap, net::SocketAddr};

use super::Check;
use crate::{
    checked::{
        Certificate, HostPrefix, IdleTimeout, Listeners, Pending, Server, ServerTimeouts, Throttle,
        TlsVersion, UdpFec,
    },
    options::CERTIFICATE,
    problem::{Errors, Problem},
    section::Section,
    value,
};

/// Checks one server. `file` and `flags` are its options from either source, `top` is the top level of its file.
pub(crate) fn check_server(
    mut check: Check<'_>,
    top: &Section,
    file: Section,
    flags: Section,
) -> Result<Server, Errors> {
    // Each source keeps its own lists of ids and secrets; all the rest is one section from here on.
    let options = &file.clone().overlay(flags.clone());
    let listeners = check.listeners(options);
    let needed = [("tlsAddr", listeners.tls), ("quicAddr", listeners.quic)];
    let needed = needed.into_iter().find(|(_, address)| address.is_some());
    let certificates = check.certificates(options, needed.map(|(name, _)| name));
    let defaults = check.default_limits(top, options);
    let load_balance = options
        .boolean("loadBalance", &mut check.findings)
        .unwrap_or(false);
    let users = check.users(top, &file, &flags, &defaults, load_balance);
    let log = check.log(options);
    let proxy = top.node("proxy").map(|node| {
        let taken = [
            ("sniAddr", listeners.sni),
            ("apiAddr", listeners.api.as_ref().map(|api| api.addr)),
        ];
        let taken: Vec<_> = taken
            .into_iter()
            .filter_map(|(name, addr)| Some((name, addr?)))
            .collect();
        let shared = [(listeners.plain, false), (listeners.tls, true)];
        check.proxy_of_server(node, &taken, &shared)
    });
    let kcp = check.kcp(options);
    let bbr = options.boolean("bbr", &mut check.findings);
    let udp_fec = options.choice("udpFEC", &mut check.findings);
    let findings = &mut check.findings;
    let basis = Server::default();
    let mut server = Server {
        tls_min_version: match options.choice("tlsVersion", findings) {
            Some("1.3" | "tls1.3") => TlsVersion::V1_3,
            _ => TlsVersion::V1_2,
        },
        allow_any_client: options.boolean("allowAnyClient", findings).unwrap_or(false),
        auth_api: options.one("authAPI", findings, value::http_url),
        http_mux_header: options
            .one("httpMUXHeader", findings, value::header_name)
            .unwrap_or(basis.http_mux_header),
        timeouts: ServerTimeouts {
            handshake: options
                .duration("handshakeTimeout", findings)
                .unwrap_or(basis.timeouts.handshake),
            header: options
                .duration("headerTimeout", findings)
                .unwrap_or(basis.timeouts.header),
            idle: IdleTimeout {
                after: match options.duration("timeout", findings) {
                    Some(time) if time.is_zero() => None,
                    Some(time) => Some(time),
                    None => basis.timeouts.idle.after,
                },
                one_way: options
                    .boolean("timeoutOnUnidirectionalTraffic", findings)
                    .unwrap_or(false),
            },
        },
        throttle: Throttle {
            failures: options
                .count("reconnectTimes", findings)
                .unwrap_or(basis.throttle.failures),
            block: options
                .duration("reconnectDuration", findings)
                .unwrap_or(basis.throttle.block),
        },
        pending: Pending {
            total: options
                .count("pendingConnections", findings)
                .unwrap_or(basis.pending.total),
            per_address: options
                .count("pendingPerAddress", findings)
                .unwrap_or(basis.pending.per_address),
        },
        workers: options
            .count::<usize>("workers", findings)
            .and_then(std::num::NonZeroUsize::new),
        status_prefix: options.one("statusHostPrefix", findings, |text| {
            Ok(HostPrefix::new(text)?)
        }),
        listeners,
        certificates,
        users,
        defaults,
        load_balance,
        kcp,
        bbr: bbr.unwrap_or(false),
        udp_fec: udp_fec.and_then(UdpFec::named),
        log,
        proxy,
        warnings: Vec::new(),
    };
    let nobody = server.users.is_empty() && !server.allow_any_client && server.auth_api.is_none();
    if nobody && !findings.has_problems() {
        let problem = Problem::new(&options.place, "no client may come: there is no user");
        findings.problem(
            problem.help(
                "give an `id` and a `secret`, `users`, an `authAPI`, or set `allowAnyClient`",
            ),
        );
    }
    server.warnings = check.findings.finish()?;
    Ok(server)
}

impl Check<'_> {
    fn listeners(&mut self, options: &Section) -> Listeners {
        let plain = options.listen("addr", &mut self.findings);
        let tls = options.listen("tlsAddr", &mut self.findings);
        let sni = options.listen("sniAddr", &mut self.findings);
        let kcp = options.listen("kcpAddr", &mut self.findings);
        let quic = options.listen("quicAddr", &mut self.findings);
        if quic.is_some_and(|quic| quic.port() != 0 && Some(quic) == kcp) {
            let problem = Problem::new(
                options.place_of("quicAddr"),
                "`quicAddr` and `kcpAddr` are the same address, and both are UDP",
            );
            self.findings
                .problem(problem.help("give each its own port"));
        }
        let http3 = options
            .boolean("http3", &mut self.findings)
            .unwrap_or(false);
        if http3 {
            self.http3(options, tls, kcp);
        }
        let certificate = self.certificate(options, "apiCertFile", "apiKeyFile");
        if certificate.is_some() && !options.has("apiAddr") {
            self.findings.warn(
                Some(options.place_of("apiCertFile")),
                "`apiCertFile` does nothing without `apiAddr`",
            );
        }
        let api = self.api(options, certificate);
        let mut seen: HashMap<SocketAddr, &str> = HashMap::new();
        for (name, address) in [
            ("addr", plain),
            ("tlsAddr", tls),
            ("sniAddr", sni),
            ("apiAddr", api.as_ref().map(|api| api.addr)),
        ] {
            // Port 0 is a free port, a different one each time.
            let Some(address) = address.filter(|address| address.port() != 0) else {
                continue;
            };
            if let Some(other) = seen.insert(address, name) {
                let message = format!("`{name}` and `{other}` are the same address, {address}");
                self.findings.problem(
                    Problem::new(options.place_of(name), message).help("give each its own port"),
                );
            }
        }
        // After another problem, such as a misspelt `addr`, this would be no news.
        let silent =
            plain.is_none() && tls.is_none() && sni.is_none() && kcp.is_none() && quic.is_none();
        if silent && !self.findings.has_problems() {
            let problem = Problem::new(&options.place, "the server listens nowhere");
            self.findings
                .problem(problem.help("give `addr`, `tlsAddr` or `sniAddr`, as `addr: 8080`"));
        }
        Listeners {
            plain,
            tls,
            sni,
            kcp,
            quic,
            http3,
            api,
        }
    }

    /// HTTP/3 has the port number of HTTPS, or browsers would not find it.
    fn http3(&mut self, options: &Section, tls: Option<SocketAddr>, kcp: Option<SocketAddr>) {
        let Some(tls) = tls else {
            if !options.has("tlsAddr") {
                let problem = Problem::new(options.place_of("http3"), "`http3` needs `tlsAddr`");
                let help = "give `tlsAddr`: HTTP/3 is served at the same address, on UDP";
                self.findings.problem(problem.help(help));
            }
            return;
        };
        if tls.port() != 0 && Some(tls) == kcp {
            let problem = Problem::new(
                options.place_of("http3"),
                "`http3` and `kcpAddr` are at the same address, and both are UDP",
            );
            let help = "give `kcpAddr` another port than `tlsAddr`";
            self.findings.problem(problem.help(help));
        }
    }

    fn certificates(
        &mut self,
        options: &Section,
        needed: Option<&'static str>,
    ) -> Vec<Certificate> {
        let mut certificates: Vec<_> = self
            .certificate(options, "certFile", "keyFile")
            .into_iter()
            .collect();
        for node in options.nodes("certificates") {
            let entry = Section::read(&CERTIFICATE, node, &mut self.findings);
            match self.certificate(&entry, "certFile", "keyFile") {
                Some(certificate) => certificates.push(certificate),
                None if entry.has("certFile") || entry.has("keyFile") => {}
                None => {
                    let problem =
                        Problem::new(&node.place, "a certificate needs `certFile` and `keyFile`");
                    self.findings.problem(problem);
                }
            }
        }
        let given = ["certFile", "keyFile", "certificates"]
            .into_iter()
            .find(|name| options.has(name));
        match given {
            None => {
                if let Some(name) = needed {
                    let text = format!("`{name}` needs a certificate");
                    let problem = Problem::new(options.place_of(name), text);
                    let help = if name == "tlsAddr" {
                        "give `certFile` and `keyFile`, or use `sniAddr` to pass TLS through"
                    } else {
                        "give `certFile` and `keyFile`"
                    };
                    self.findings.problem(problem.help(help));
                }
            }
            Some(given)
                if needed.is_none() && !options.has("tlsAddr") && !options.has("quicAddr") =>
            {
                self.findings.warn(
                    Some(options.place_of(given)),
                    format!("`{given}` does nothing without `tlsAddr` or `quicAddr`"),
                );
            }
            _ => {}
        }
        certificates
    }
}
