//! What a service in HTTP mode asks of the server for its requests, and how the client checks the service. The parts are those of the
//! reverse proxy; here is what they may not do together.

use super::Check;
use crate::{
    checked::{CheckKind, HealthCheck, Local, Service},
    options::{HEADERS, HEALTH},
    problem::Problem,
    section::Section,
};

/// Longest rules of one service in bytes, and of all of them (the relay protocol's bounds).
const MAX_RULES: usize = 8 * 1024;
const MAX_RULES_TOGETHER: usize = 256 * 1024;
/// Users of one service (likewise).
const MAX_USERS: usize = 100;
/// The server checks passwords for many clients: a hash may not cost it more than about a quarter of a second.
const MAX_COST: u32 = 12;
/// A bcrypt hash.
const HASH: usize = 60;

impl Check<'_> {
    /// Reads the options that need requests, and decides the mode.
    pub(super) fn requests(&mut self, section: &Section, service: &mut Service) {
        if let Some(node) = section.node("headers") {
            let headers = Section::read(&HEADERS, node, &mut self.findings);
            service.request_headers = self.field_changes(&headers, "request");
            service.response_headers = self.field_changes(&headers, "response");
        }
        service.basic_auth = self.visitor_auth(section);
        service.http2 = section.choice("protocol", &mut self.findings) == Some("h2c");
        let wants = [
            (
                "headers",
                !(service.request_headers.is_empty() && service.response_headers.is_empty()),
            ),
            ("basicAuth", service.basic_auth.is_some()),
            ("protocol", service.http2),
        ];
        let wants = wants.into_iter().find(|(_, wants)| *wants);
        let mode = section.choice("mode", &mut self.findings);
        service.http_mode = mode == Some("http") || (mode.is_none() && wants.is_some());
        if let (Some("stream"), Some((option, _))) = (mode, wants) {
            let message = format!("`{option}` needs `mode: http`, but the mode is stream");
            let problem = Problem::new(section.place_of("mode"), message);
            self.findings
                .problem(problem.help("write `mode: http`, or leave `mode` out"));
        }
        self.bounded(section, service);
    }

    /// After the kind of the service is known.
    pub(super) fn requests_fit(&mut self, section: &Section, service: &mut Service) {
        let by_port = service.remote_tcp_port.is_some() || service.remote_tcp_random;
        let no_http = matches!(service.local, Local::Tcp { .. } | Local::Udp { .. });
        if service.basic_auth.is_some() && (by_port || no_http) {
            let message = match no_http {
                true => format!("nobody can be asked for a password by {}", service.local),
                false => "visitors of the service's TCP port would not be asked for a password"
                    .to_owned(),
            };
            let problem = Problem::new(section.place_of("basicAuth"), message);
            self.findings.problem(problem.help(
                "`basicAuth` is for visitors that come by host: use http:// or https:// without `remoteTCPPort`",
            ));
        }
        if service.has_rules() && by_port && !no_http {
            let text = "visitors of the service's TCP port get and send header fields as they are";
            self.findings.warn(Some(section.place_of("headers")), text);
        }
        if no_http {
            service.basic_auth = None;
            (service.request_headers, service.response_headers) = Default::default();
            service.http2 = false;
        }
        if service.http2 && !matches!(service.local, Local::Http { .. } | Local::Unix(_)) {
            let message = format!("`protocol: h2c` has no meaning for {}", service.local);
            let problem = Problem::new(section.place_of("protocol"), message);
            self.findings
                .problem(problem.help("it is for http:// and unix: services"));
        }
        if service.http2 && service.proxy_protocol.is_some() {
            let message =
                "a PROXY header before HTTP/2 would name one visitor for the requests of all";
            let problem = Problem::new(section.place_of("proxyProtocol"), message);
            self.findings.problem(problem.help(
                "take `proxyProtocol` out: X-Forwarded-For and X-Real-IP name the visitor of each request",
            ));
        }
        service.health = self.service_check(section, service);
    }

    fn service_check(&mut self, section: &Section, service: &Service) -> Option<HealthCheck> {
        let node = section.node("healthCheck")?;
        let check = Section::read(&HEALTH, node, &mut self.findings);
        let (spec, kind) = self.active_check(&check);
        let place = section.place_of("healthCheck");
        let problem = match (&kind, &service.local) {
            (_, Local::Udp { .. } | Local::Builtin(_)) => Some((
                format!("{} cannot be checked", service.local),
                "take `healthCheck` out",
            )),
            (
                CheckKind::Tcp { port: Some(_) } | CheckKind::Http { port: Some(_), .. },
                Local::Unix(_),
            ) => Some((
                "a Unix socket has no other port".to_owned(),
                "take `port` out",
            )),
            (CheckKind::Http { port: None, .. }, _) if service.http2 => Some((
                "a service that speaks HTTP/2 is not checked over HTTP/1.1".to_owned(),
                "use `healthCheck: {}`, which connects, or give the `port` of an HTTP/1.1 check",
            )),
            _ => None,
        };
        if let Some((message, help)) = problem {
            self.findings
                .problem(Problem::new(place, message).help(help));
            return None;
        }
        Some(HealthCheck { spec, kind })
    }

    fn bounded(&mut self, section: &Section, service: &Service) {
        let mut problem = |option: &str, message: String| {
            let problem = Problem::new(section.place_of("basicAuth"), message);
            self.findings.problem(problem.help(format!("a route of the server's `proxy` section with `service` may have a longer `{option}`")));
        };
        if let Some(auth) = &service.basic_auth {
            if auth.users.len() > MAX_USERS {
                let n = auth.users.len();
                problem(
                    "basicAuth",
                    format!("{n} users; a service may have {MAX_USERS}"),
                );
            }
            for (name, hash) in &auth.users {
                let long = matches!(hash, route::PasswordHash::Plain(text) if text.len() > 72);
                if long || hash.cost().is_some_and(|cost| cost > MAX_COST) {
                    let why = match long {
                        true => "is longer than 72 bytes".to_owned(),
                        false => format!("costs more than {MAX_COST}"),
                    };
                    problem("basicAuth", format!("the password of `{name}` {why}"));
                }
            }
        }
        let length = length(service);
        if length > MAX_RULES {
            let message = format!(
                "`headers` and `basicAuth` of a service are {length} bytes; {MAX_RULES} are allowed"
            );
            let problem = Problem::new(&section.place, message);
            self.findings.problem(
                problem
                    .help("a route of the server's `proxy` section with `service` may have more"),
            );
        }
    }

    /// All services of a client.
    pub(super) fn bounded_together<'s>(
        &mut self,
        services: impl Iterator<Item = &'s Service>,
        place: &crate::source::Place,
    ) {
        let length: usize = services.map(length).sum();
        if length > MAX_RULES_TOGETHER {
            let message = format!(
                "`headers` and `basicAuth` of all services are {length} bytes; {MAX_RULES_TOGETHER} are allowed"
            );
            self.findings.problem(Problem::new(place, message));
        }
    }
}

/// What the rules come to when they travel; a little more than that.
fn length(service: &Service) -> usize {
    let users = |auth: &crate::checked::VisitorAuth| -> usize {
        let names: usize = auth
            .users
            .iter()
            .map(|(name, _)| name.len() + HASH + 4)
            .sum();
        names + auth.realm.len() + 3 + auth.user_header.as_ref().map_or(0, |name| name.len() + 3)
    };
    service.request_headers.length()
        + service.response_headers.length()
        + service.basic_auth.as_ref().map_or(0, users)
}
