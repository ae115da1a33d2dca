//! What a session is granted of what it declares: names and ports by its account's rules, and by what others hold.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock, atomic::AtomicU64},
};

use config::HostPrefix;
use link::{Pacer, Traffic};
use tunnel::{
    Endpoint, Granted, Message, Refusal, RefusalCode, ServiceDecl, ServiceId, ServiceKind,
};

use super::{Held, Inner, Name, Registry};
use crate::{
    ports::Protocol,
    routing::{Expected as _, Kind},
    session::{Account, Service, Session},
};

impl Inner {
    pub(super) fn grant(
        &mut self,
        session: &Arc<Session>,
        declared: &ServiceDecl,
        registry: &Registry,
    ) -> Result<Granted, Refusal> {
        let service = Arc::new(service(session, declared));
        let mut granted = Granted {
            endpoints: Vec::new(),
            port: None,
        };
        let names = names(&session.account, declared)?;
        for name in &names {
            self.check_name(session, name, declared, registry)?;
        }
        let protocol = match declared.kind {
            ServiceKind::Udp => Protocol::Udp,
            _ => Protocol::Tcp,
        };
        if declared.port.is_some() || declared.port_random {
            let held = self
                .sessions
                .get(&session.id)
                .map_or(0, |held| held.ports.len());
            let port = self
                .ports
                .grant(protocol, &service, held)
                .inspect_err(|_| registry.metrics.limit_ports_total.add_one())?;
            granted.port = Some(port);
            let scheme = if protocol == Protocol::Udp {
                "udp"
            } else {
                "tcp"
            };
            let address = SocketAddr::new(self.ports.address(), port);
            granted
                .endpoints
                .push(Endpoint::new(&format!("{scheme}://{address}")));
        }
        granted.endpoints.extend(
            names
                .iter()
                .flat_map(|name| registry.endpoints(name))
                .map(|url| Endpoint::new(&url)),
        );
        let _ = service.endpoints.set(
            granted
                .endpoints
                .iter()
                .map(|endpoint| endpoint.as_str().to_owned())
                .collect(),
        );
        if let Some(held) = self.sessions.get_mut(&session.id) {
            held.names
                .extend(names.into_iter().map(|name| (name, declared.id)));
            held.ports
                .extend(granted.port.map(|port| (protocol, port, declared.id)));
            held.services.push(service);
        }
        Ok(granted)
    }

    fn check_name(
        &self,
        session: &Session,
        name: &Name,
        declared: &ServiceDecl,
        registry: &Registry,
    ) -> Result<(), Refusal> {
        let refuse = |code, message: String| {
            registry.metrics.limit_hosts_total.add_one();
            Err(Refusal {
                code,
                message: Message::new(&message),
            })
        };
        let taken = match name {
            Name::Host(..) => RefusalCode::HostTaken,
            Name::Prefix(..) => RefusalCode::PrefixTaken,
        };
        let account = &session.account;
        let (text, label) = match name {
            Name::Host(_, host) => (host, host.split('.').next().unwrap_or(host)),
            Name::Prefix(_, prefix) => (prefix, prefix.as_str()),
        };
        let status = registry.rules.status_prefix.load();
        if status.as_deref().map(HostPrefix::as_str) == Some(label) {
            return refuse(
                taken,
                format!("{text:?} is the server's status page (statusHostPrefix)"),
            );
        }
        let own = label.eq_ignore_ascii_case(&account.id);
        let limits = account.limits();
        if !own && registry.rules.expected.expects(label) {
            return refuse(
                taken,
                format!("{text:?} is reserved for the client with that id"),
            );
        }
        if !own
            && !limits.host_regex.is_empty()
            && !limits.host_regex.iter().any(|regex| regex.is_match(text))
        {
            return refuse(
                RefusalCode::HostNotAllowed,
                format!("{text:?} does not match any hostRegex of this client"),
            );
        }
        let number = limits.host_number as usize;
        let mut distinct: Vec<&str> = self.names_of(&account.id).collect();
        distinct.sort_unstable();
        distinct.dedup();
        if number > 0 && !distinct.contains(&text.as_str()) && distinct.len() >= number {
            return refuse(
                RefusalCode::TooMany,
                format!("this client may hold {number} host names or prefixes (hostNumber)"),
            );
        }
        if self.clashes(session, name, declared) {
            return refuse(
                taken,
                format!("{text:?} is already used by another service"),
            );
        }
        Ok(())
    }

    /// Whether a service that may not share the name has it, or one that would answer in its stead.
    fn clashes(&self, session: &Session, name: &Name, declared: &ServiceDecl) -> bool {
        let id = &session.account.id;
        let mut others = self
            .sessions
            .values()
            .flat_map(|held| held.names.iter().map(move |(name, id)| (held, name, id)));
        others.any(|(held, other, of)| match (name, other) {
            (Name::Host(a, x), Name::Prefix(b, y)) | (Name::Prefix(b, y), Name::Host(a, x)) => {
                a == b && x.split('.').next() == Some(y) && held.session.account.id != *id
            }
            (name, other) => name == other && !shares(session, declared, held, *of),
        })
    }

    fn names_of<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a str> {
        let held = self
            .sessions
            .values()
            .filter(move |held| held.session.account.id == id);
        held.flat_map(|held| &held.names)
            .map(|(name, _)| match name {
                Name::Host(_, text) | Name::Prefix(_, text) => text.as_str(),
            })
    }
}

/// Whether the new service may stand beside the one that has the name already.
fn shares(session: &Session, declared: &ServiceDecl, held: &Held, id: ServiceId) -> bool {
    if held.session.key == session.key || held.session.account.id != session.account.id {
        return false;
    }
    let other = held
        .services
        .iter()
        .find(|service| service.declared.id == id);
    session.account.load_balance()
        || declared.load_balance.is_some()
            && other.is_some_and(|other| other.declared.load_balance == declared.load_balance)
}

impl Registry {
    /// What to tell the client. `*` stands for the name under which the server is reached, which only the client knows.
    fn endpoints(&self, name: &Name) -> Vec<String> {
        let (kind, host) = match name {
            Name::Host(kind, host) => (kind, host.clone()),
            Name::Prefix(kind, prefix) => (kind, format!("{prefix}.*")),
        };
        let url = |scheme: &str, usual: u16, address: SocketAddr| match address.port() {
            port if port == usual => format!("{scheme}://{host}"),
            port => format!("{scheme}://{host}:{port}"),
        };
        match kind {
            Kind::Http => {
                let http = self.rules.http.map(|address| url("http", 80, address));
                http.into_iter()
                    .chain(self.rules.https.map(|address| url("https", 443, address)))
                    .collect()
            }
            Kind::Tls => self
                .rules
                .sni
                .map(|address| url("https", 443, address))
                .into_iter()
                .collect(),
        }
    }
}

/// The names a service asks for, with the account's rules applied.
fn names(account: &Account, declared: &ServiceDecl) -> Result<Vec<Name>, Refusal> {
    let invalid = |message| {
        Err(Refusal {
            code: RefusalCode::Invalid,
            message: Message::new(message),
        })
    };
    let kinds: &[Kind] = match declared.kind {
        ServiceKind::Http => &[Kind::Http],
        // The client can also dial TLS itself for visitors whose TLS ended at the server.
        ServiceKind::Tls => &[Kind::Tls, Kind::Http],
        ServiceKind::Tcp | ServiceKind::Udp => &[],
        ServiceKind::Unknown(_) => {
            return invalid("this server does not know this kind of service; update it");
        }
    };
    let named = declared.host.is_some() || declared.host_prefix.is_some();
    if kinds.is_empty() && named {
        return invalid("only http and https services are reached by host name");
    }
    if !named && declared.port.is_none() && !declared.port_random {
        return invalid("the service asks for no host name, prefix or port");
    }
    let prefix = declared.host_prefix.as_ref().map(|prefix| {
        let id = account.id.to_ascii_lowercase();
        let with_id = account.limits().host_with_id && prefix.as_str() != id;
        if with_id {
            format!("{id}-{}", prefix.as_str())
        } else {
            prefix.as_str().to_owned()
        }
    });
    let mut names = Vec::new();
    for kind in kinds {
        names.extend(
            declared
                .host
                .as_ref()
                .map(|host| Name::Host(*kind, host.as_str().to_owned())),
        );
        names.extend(prefix.clone().map(|prefix| Name::Prefix(*kind, prefix)));
    }
    Ok(names)
}

fn service(session: &Arc<Session>, declared: &ServiceDecl) -> Service {
    let account = &session.account;
    let pacer = |whole: &Option<Arc<Pacer>>| {
        declared
            .bandwidth
            .map(|bandwidth| Arc::new(Pacer::new(bandwidth, whole.clone())))
            .or_else(|| whole.clone())
    };
    Service {
        session: Arc::clone(session),
        upload: pacer(&account.upload),
        download: pacer(&account.download),
        traffic: Arc::new(Traffic {
            parent: Some(Arc::clone(&account.traffic)),
            ..Traffic::default()
        }),
        visitors_total: AtomicU64::new(0),
        endpoints: OnceLock::new(),
        declared: declared.clone(),
    }
}
