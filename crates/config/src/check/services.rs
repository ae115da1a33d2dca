//! The services of a client, and what several of them together may not do.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use super::Check;
use crate::{
    checked::{HostName, HostPrefix, Id, Local, ProxyProtocol, Service},
    options::SERVICE,
    problem::Problem,
    section::Section,
    source::Place,
    tree::Node,
    value,
};

/// Most services of one client (the relay protocol's bound for a session).
const MAX_SERVICES: usize = 1024;

/// A service whose claims are known, with where it was written.
pub(super) struct Draft {
    service: Service,
    place: Place,
    named: bool,
}

impl Check<'_> {
    pub(super) fn services(
        &mut self,
        nodes: &[Node],
        id: Option<&Id>,
        client: &Place,
    ) -> Vec<Draft> {
        if nodes.is_empty() {
            let problem = Problem::new(client, "the client has no service");
            self.findings.problem(problem.help("give one, as `services: [{local: http://127.0.0.1:80}]` or `-local http://127.0.0.1:80`"));
        }
        if nodes.len() > MAX_SERVICES {
            self.findings.problem(Problem::new(
                client,
                format!("{} services; {MAX_SERVICES} are allowed", nodes.len()),
            ));
            return Vec::new();
        }
        let drafts: Vec<_> = nodes.iter().filter_map(|node| self.service(node)).collect();
        if let Some(id) = id {
            self.default_prefix(&drafts, id);
        }
        self.conflicts(&drafts, id);
        self.bounded_together(drafts.iter().map(|draft| &draft.service), client);
        drafts
    }

    /// Services without any claim get the id as their prefix; all get a name of their own. `checked`: the id was known to
    /// [`Self::services`] already.
    pub(super) fn finished(&mut self, drafts: Vec<Draft>, id: &Id, checked: bool) -> Vec<Service> {
        let default_prefix = self.default_prefix_unless(checked, &drafts, id);
        let named = drafts.iter().filter(|draft| draft.named);
        let mut taken: HashSet<String> = named.map(|draft| draft.service.name.clone()).collect();
        drafts
            .into_iter()
            .map(|mut draft| {
                if draft.needs_prefix() {
                    draft.service.host_prefix.clone_from(&default_prefix);
                }
                if !draft.named {
                    draft.service.name = free_name(&draft.service, &taken);
                    taken.insert(draft.service.name.clone());
                }
                draft.service
            })
            .collect()
    }

    fn default_prefix_unless(
        &mut self,
        checked: bool,
        drafts: &[Draft],
        id: &Id,
    ) -> Option<HostPrefix> {
        if checked {
            return HostPrefix::new(id.as_str()).ok();
        }
        self.conflicts(drafts, Some(id));
        self.default_prefix(drafts, id)
    }

    /// The id as a host prefix; a problem if it is none and a service needs one.
    fn default_prefix(&mut self, drafts: &[Draft], id: &Id) -> Option<HostPrefix> {
        let error = match HostPrefix::new(id.as_str()) {
            Ok(prefix) => return Some(prefix),
            Err(error) => error,
        };
        if let Some(draft) = drafts.iter().find(|draft| draft.needs_prefix()) {
            let message = format!("the service needs a `hostPrefix`: the id `{id}` {error}");
            let problem = Problem::new(&draft.place, message);
            self.findings
                .problem(problem.help("give the service a `hostPrefix`"));
        }
        None
    }

    fn service(&mut self, node: &Node) -> Option<Draft> {
        let before = self.findings.problems();
        let section = Section::read(&SERVICE, node, &mut self.findings);
        if !section.has("local") && self.findings.problems() == before {
            let problem = Problem::new(&section.place, "the service has no `local`");
            self.findings
                .problem(problem.help("say where it is, as `local: http://127.0.0.1:80`"));
        }
        let local = section.one("local", &mut self.findings, value::local);
        let mut service = Service::new(
            "",
            local
                .clone()
                .unwrap_or(Local::Builtin(crate::checked::Page::Demo)),
        );
        let name = self.text(&section, "name");
        let load_balance = self.text(&section, "loadBalance");
        let findings = &mut self.findings;
        service.host_prefix =
            section.one("hostPrefix", findings, |text| Ok(HostPrefix::new(text)?));
        service.host = section.one("host", findings, |text| Ok(HostName::new(text)?));
        service.local_timeout = match section.duration("localTimeout", findings) {
            Some(time) if time.is_zero() => None,
            Some(time) => Some(time),
            None => service.local_timeout,
        };
        service.use_local_as_http_host = section
            .boolean("useLocalAsHTTPHost", findings)
            .unwrap_or(false);
        service.remote_tcp_port = port(&section, "remoteTCPPort", findings);
        service.remote_tcp_random = section
            .boolean("remoteTCPRandom", findings)
            .unwrap_or(false);
        service.remote_udp_port = port(&section, "remoteUDPPort", findings);
        service.remote_udp_random = section
            .boolean("remoteUDPRandom", findings)
            .unwrap_or(false);
        service.proxy_protocol = section
            .choice("proxyProtocol", findings)
            .map(|word| match word {
                "v1" => ProxyProtocol::V1,
                _ => ProxyProtocol::V2,
            });
        service.allow = section.all("allow", findings, value::network);
        service.deny = section.all("deny", findings, value::network);
        service.bandwidth = section.speed("bandwidth", findings).unwrap_or(None);
        service.load_balance = load_balance;
        self.requests(&section, &mut service);
        service.local_cert = self.local_cert(&section);
        service.local_cert_content = self.content(&service.local_cert);
        local?;
        let sound = self.findings.problems() == before;
        self.fitting(&section, &mut service, sound);
        let named = name.is_some();
        service.name = name.unwrap_or_default();
        Some(Draft {
            service,
            place: section.place,
            named,
        })
    }

    /// What the kind of a service needs and what has no meaning for it.
    fn fitting(&mut self, section: &Section, service: &mut Service, sound: bool) {
        let (tcp, udp) = (
            matches!(service.local, Local::Tcp { .. }),
            matches!(service.local, Local::Udp { .. }),
        );
        let local = section.place_of("local");
        // A port that is wrong is reported; that it is missing would then be no news.
        if tcp && sound && !service.has_tcp_port() {
            let problem = Problem::new(
                local,
                "a tcp:// service needs a port on the server: `remoteTCPPort` or `remoteTCPRandom`",
            );
            self.findings.problem(problem.help(
                "only HTTP and TLS visitors say which host they want; write `remoteTCPRandom: true` for any free port, \
                 or http:// or https:// if the service speaks that",
            ));
        }
        if udp && sound && service.remote_udp_port.is_none() && !service.remote_udp_random {
            let problem = Problem::new(
                local,
                "a udp:// service needs a port on the server: `remoteUDPPort` or `remoteUDPRandom`",
            );
            self.findings
                .problem(problem.help("write `remoteUDPRandom: true` for any free port"));
        }
        let without_meaning: &[(&'static str, bool)] = &[
            ("headers", tcp || udp),
            ("protocol", service.http2 && (tcp || udp)),
            ("hostPrefix", tcp || udp),
            ("host", tcp || udp),
            ("remoteTCPPort", udp),
            ("remoteTCPRandom", udp),
            ("remoteUDPPort", !udp),
            ("remoteUDPRandom", !udp),
            ("proxyProtocol", udp),
            (
                "useLocalAsHTTPHost",
                !matches!(service.local, Local::Http { .. } | Local::Https { .. }),
            ),
            ("localCert", !matches!(service.local, Local::Https { .. })),
            ("mode", service.http_mode && (tcp || udp)),
        ];
        for &(option, wrong) in without_meaning {
            if wrong && section.has(option) && !section.is_off(option) {
                let text = format!(
                    "`{option}` has no meaning for {} and is ignored",
                    service.local
                );
                self.findings.warn(Some(section.place_of(option)), text);
            }
        }
        self.requests_fit(section, service);
        if tcp || udp {
            service.http_mode = false;
            (service.host_prefix, service.host) = (None, None);
        }
        if udp {
            (
                service.remote_tcp_port,
                service.remote_tcp_random,
                service.proxy_protocol,
            ) = (None, false, None);
        } else {
            (service.remote_udp_port, service.remote_udp_random) = (None, false);
        }
        service.use_local_as_http_host &=
            matches!(service.local, Local::Http { .. } | Local::Https { .. });
        if !matches!(service.local, Local::Https { .. }) {
            service.local_cert = None;
        }
    }

    /// The file of `localCert`, which must be readable and hold a certificate: a mistake would else show with the first visitor
    /// at the earliest.
    fn local_cert(&mut self, section: &Section) -> Option<PathBuf> {
        let path = self.path(section, "localCert")?;
        let problem = match self.surroundings.read(&path) {
            Ok(file) if file.text.contains("-----BEGIN CERTIFICATE-----") => return Some(path),
            Ok(_) => "the file of `localCert` holds no certificate in PEM form".to_owned(),
            Err(error) => format!("the file of `localCert` cannot be read: {error}"),
        };
        let place = section.place_of("localCert");
        self.findings.problem(
            Problem::new(place, problem)
                .help("it is the certificate of the authority that signed the service's, or the service's own"),
        );
        None
    }

    /// Claims that two services make: the visitor could go to either.
    fn conflicts(&mut self, drafts: &[Draft], id: Option<&Id>) {
        let default_prefix = id.map_or_else(
            || "the client's id".to_string(),
            |id| id.as_str().to_ascii_lowercase(),
        );
        let mut claims: HashMap<String, &Place> = HashMap::new();
        for draft in drafts {
            let service = &draft.service;
            // HTTP is told apart from passed-through TLS, so these two may share a name.
            let kind = if matches!(service.local, Local::Https { .. }) && !service.has_rules() {
                "TLS"
            } else {
                "HTTP"
            };
            let prefix = match &service.host_prefix {
                Some(prefix) => Some(prefix.to_string()),
                None if draft.needs_prefix() => Some(default_prefix.clone()),
                None => None,
            };
            let wanted = [
                prefix.map(|prefix| format!("the {kind} host prefix `{prefix}`")),
                service
                    .host
                    .as_ref()
                    .map(|host| format!("the {kind} host `{host}`")),
                service
                    .remote_tcp_port
                    .map(|port| format!("the TCP port {port}")),
                service
                    .remote_udp_port
                    .map(|port| format!("the UDP port {port}")),
                draft.named.then(|| format!("the name `{}`", service.name)),
            ];
            for claim in wanted.into_iter().flatten() {
                if let Some(first) = claims.get(&claim) {
                    let problem = Problem::new(&draft.place, format!("two services have {claim}"));
                    self.findings.problem(
                        problem.help(format!("the other one is at {first}; give each its own")),
                    );
                } else {
                    claims.insert(claim, &draft.place);
                }
            }
        }
    }
}

impl Draft {
    fn needs_prefix(&self) -> bool {
        let service = &self.service;
        let by_host = !matches!(service.local, Local::Tcp { .. } | Local::Udp { .. });
        by_host
            && service.host_prefix.is_none()
            && service.host.is_none()
            && !service.has_tcp_port()
    }
}

impl Service {
    fn has_tcp_port(&self) -> bool {
        self.remote_tcp_port.is_some() || self.remote_tcp_random
    }
}

fn port(
    section: &Section,
    name: &'static str,
    findings: &mut crate::problem::Findings,
) -> Option<u16> {
    // GT's files may say `remoteTCPPort: 0` for "none".
    section
        .one(name, findings, value::port)
        .filter(|port| *port != 0)
}

/// A name that says what the service is and that no other service has.
fn free_name(service: &Service, taken: &HashSet<String>) -> String {
    let basis = match (
        &service.host,
        &service.host_prefix,
        service.remote_tcp_port,
        service.remote_udp_port,
    ) {
        (Some(host), ..) => host.to_string(),
        (_, Some(prefix), ..) => prefix.to_string(),
        (_, _, Some(port), _) => format!("tcp-{port}"),
        (_, _, _, Some(port)) => format!("udp-{port}"),
        _ => service.local.to_string(),
    };
    // Room for the number; every part of the basis is ASCII or a path.
    let basis: String = basis.chars().filter(char::is_ascii).take(58).collect();
    let numbered = (2u32..).map(|n| format!("{basis}-{n}"));
    std::iter::once(basis.clone())
        .chain(numbered)
        .find(|name| !taken.contains(name))
        .unwrap_or(basis)
}
