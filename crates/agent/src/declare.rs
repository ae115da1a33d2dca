//! The configured services in the words of the protocol, and what a server's answer means to a person.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use config::{FieldChanges, Local, Remote, Service, VisitorAuth};
use tunnel::{
    AuthRules, Cidr, FieldRules, HostName, HostPrefix, HttpMode, HttpRules, InvalidValue, Name,
    ServiceDecl, ServiceId, ServiceKind,
};

use crate::local::authority;

/// The services at one time, with the ids that servers know them by.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    services: Vec<(ServiceId, Arc<Service>)>,
    pub(crate) declarations: Vec<ServiceDecl>,
    /// The id that was given out last.
    last: u16,
}

impl Offer {
    /// The services of a configuration. What has the same name as before keeps its id, so that a stream that is on its way finds it; an
    /// id that is free is not used again soon.
    pub(crate) fn new(
        services: &[Service],
        before: &Self,
        secret: &[u8],
    ) -> Result<Self, InvalidValue> {
        let mut offer = Self {
            last: before.last,
            ..Self::default()
        };
        for service in services {
            let known = before
                .services
                .iter()
                .find(|(_, other)| other.name == service.name);
            let id = match known {
                Some((id, _)) => *id,
                None => offer.fresh(before),
            };
            let mut declared = declaration(service, id)?;
            // Hashes of passwords that have not changed are not made again.
            declared.rules.auth = match (&service.basic_auth, known) {
                (None, _) => None,
                (Some(auth), Some((id, known))) if known.basic_auth.as_ref() == Some(auth) => {
                    let before = before.declarations.iter().find(|other| other.id == *id);
                    before.and_then(|before| before.rules.auth.clone())
                }
                (Some(auth), _) => Some(auth_rules(&service.name, auth, secret)),
            };
            offer.declarations.push(declared);
            offer.services.push((id, Arc::new(service.clone())));
        }
        Ok(offer)
    }

    /// There are 65,535 ids and 1024 services at most.
    fn fresh(&mut self, before: &Self) -> ServiceId {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            let id = ServiceId(self.last);
            if before.get(id).is_none() && self.get(id).is_none() {
                return id;
            }
        }
    }

    /// The service that a server means.
    pub(crate) fn get(&self, id: ServiceId) -> Option<&Arc<Service>> {
        self.services
            .iter()
            .find(|(other, _)| *other == id)
            .map(|(_, service)| service)
    }

    /// All of them.
    pub(crate) fn services(&self) -> impl Iterator<Item = &(ServiceId, Arc<Service>)> {
        self.services.iter()
    }

    /// Its place among the services.
    pub(crate) fn index(&self, id: ServiceId) -> Option<usize> {
        self.services.iter().position(|(other, _)| *other == id)
    }
}

fn declaration(service: &Service, id: ServiceId) -> Result<ServiceDecl, InvalidValue> {
    let named = service.host.is_some() || service.host_prefix.is_some();
    let kind = match service.local {
        Local::Udp { .. } => ServiceKind::Udp,
        // Nothing can be done to requests in passed-through TLS, and nobody may come that way.
        Local::Https { .. } if named && !service.has_rules() => ServiceKind::Tls,
        _ if named => ServiceKind::Http,
        _ => ServiceKind::Tcp,
    };
    let nets = |nets: &[ipnet::IpNet]| {
        nets.iter()
            .map(|net| Cidr::new(net.addr(), net.prefix_len()))
            .collect::<Result<Vec<_>, _>>()
    };
    let (port, port_random) = match kind {
        ServiceKind::Udp => (service.remote_udp_port, service.remote_udp_random),
        _ => (service.remote_tcp_port, service.remote_tcp_random),
    };
    Ok(ServiceDecl {
        name: Name::new(&service.name),
        host_prefix: service
            .host_prefix
            .as_ref()
            .map(|prefix| HostPrefix::new(prefix.as_str()))
            .transpose()?,
        host: service
            .host
            .as_ref()
            .map(|host| HostName::new(host.as_str()))
            .transpose()?,
        port,
        port_random,
        allow: nets(&service.allow)?,
        deny: nets(&service.deny)?,
        load_balance: service.load_balance.as_deref().map(Name::new),
        bandwidth: service.bandwidth.map(std::num::NonZeroU64::get),
        http: service.http_mode.then(|| http_mode(service)),
        rules: HttpRules {
            request: field_rules(&service.request_headers),
            response: field_rules(&service.response_headers),
            auth: None,
        },
        ..ServiceDecl::new(id, kind)
    })
}

fn http_mode(service: &Service) -> HttpMode {
    let mut behind = DefaultHasher::new();
    // Whatever differs, streams to what was there before are not to be used for what is there now.
    format!("{service:?}").hash(&mut behind);
    HttpMode {
        behind: behind.finish() as u32,
        one_visitor: service.proxy_protocol.is_some(),
        http2: service.http2,
        host: service
            .use_local_as_http_host
            .then(|| authority(&service.local).into()),
    }
}

fn field_rules(changes: &FieldChanges) -> FieldRules {
    let pairs = |pairs: &[(String, String)]| -> Vec<(Box<str>, Box<str>)> {
        let pair = |(name, value): &(String, String)| (name.as_str().into(), value.as_str().into());
        pairs.iter().map(pair).collect()
    };
    FieldRules {
        set: pairs(&changes.set),
        add: pairs(&changes.add),
        remove: changes
            .remove
            .iter()
            .map(|name| name.as_str().into())
            .collect(),
    }
}

/// The server gets hashes, never passwords. A user whose hash cannot be made cannot come; the configuration has refused such passwords.
fn auth_rules(service: &str, auth: &VisitorAuth, secret: &[u8]) -> AuthRules {
    let hashed = |(name, password): &(String, route::PasswordHash)| {
        let hash = password.hashed(secret, &format!("{service}\0{name}"));
        Some((name.as_str().into(), (&*hash.ok()?).into()))
    };
    AuthRules {
        realm: auth.realm.as_str().into(),
        users: auth.users.iter().filter_map(hashed).collect(),
        user_header: auth.user_header.as_deref().map(Into::into),
    }
}

/// A server's endpoint as a visitor would write it. The server does not know under which name it is reached: `*` and unspecified
/// addresses are filled in from the address this client used.
pub(crate) fn endpoint(endpoint: &str, remote: &Remote) -> String {
    let host = &remote.host;
    if let Some((scheme, rest)) = endpoint.split_once("://")
        && let Some((prefix, port)) = rest.split_once(".*")
    {
        if host.parse::<std::net::IpAddr>().is_ok() {
            let shown = if host.contains(':') {
                format!("[{host}]")
            } else {
                host.clone()
            };
            return format!("{scheme}://{shown}{port} with the host name {prefix}.ANYTHING");
        }
        // `id1.example.com` is the usual way to name the server: then the prefix is there already.
        let domain = host
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix('.'))
            .unwrap_or(host);
        return format!("{scheme}://{prefix}.{domain}{port}");
    }
    let shown = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.clone()
    };
    for unspecified in ["0.0.0.0", "[::]"] {
        if let Some(rest) = endpoint
            .split_once("://")
            .and_then(|(_, rest)| rest.strip_prefix(unspecified))
        {
            let scheme = endpoint.split("://").next().unwrap_or_default();
            return format!("{scheme}://{shown}{rest}");
        }
    }
    endpoint.to_owned()
}

#[cfg(test)]
mod tests {
    use config::Scheme;

    use super::*;

    fn remote(host: &str) -> Remote {
        Remote {
            scheme: Scheme::Tcp,
            host: host.to_owned(),
            port: 8080,
            path: "/".to_owned(),
        }
    }

    #[test]
    fn endpoints_are_told_under_the_name_that_the_client_used() {
        let told = |text, host| endpoint(text, &remote(host));
        assert_eq!(
            told("http://id1.*:8080", "id1.example.com"),
            "http://id1.example.com:8080"
        );
        assert_eq!(
            told("http://web.*", "gt.example.com"),
            "http://web.gt.example.com"
        );
        assert_eq!(
            told("http://web.*:80", "127.0.0.1"),
            "http://127.0.0.1:80 with the host name web.ANYTHING"
        );
        assert_eq!(
            told("tcp://0.0.0.0:22", "example.com"),
            "tcp://example.com:22"
        );
        assert_eq!(told("tcp://[::]:22", "::1"), "tcp://[::1]:22");
        assert_eq!(
            told("http://api.example.com", "192.0.2.1"),
            "http://api.example.com"
        );
    }
}
