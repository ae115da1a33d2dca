//! Another configuration for a client that runs: what is different, and what of it can be taken as it runs.

use std::{collections::BTreeSet, fmt::Debug};

use config::Service;

/// What is different in another configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// All of it, one line each, without secrets.
    pub changes: Vec<String>,
    /// Those of them that need another process.
    pub needs_process: Vec<String>,
}

/// Compares two configurations. Services change in place ([`Client::offer`](crate::Client::offer)), the rest needs another process.
#[must_use]
pub fn compare(old: &config::Client, new: &config::Client) -> Difference {
    let mut found = Difference::default();
    let names: BTreeSet<&str> = old
        .services
        .iter()
        .chain(&new.services)
        .map(|service| service.name.as_str())
        .collect();
    for name in names {
        let of = |config: &'_ config::Client| -> Option<Service> {
            let mut services = config.services.iter();
            services.find(|service| service.name == name).cloned()
        };
        match (of(old), of(new)) {
            (None, Some(_)) => found.changes.push(format!("service {name} is new")),
            (Some(_), None) => found.changes.push(format!("service {name} is gone")),
            // `Debug` shows no password.
            (Some(was), Some(is)) if differ(&was, &is) || was.basic_auth != is.basic_auth => {
                found.changes.push(format!("service {name} is different"));
            }
            _ => {}
        }
    }
    let secret = old.secret.expose() != new.secret.expose();
    let process = [
        ("id", old.id != new.id),
        ("secret", secret),
        ("remote", old.remotes != new.remotes),
        ("remoteChoice", old.choose != new.choose),
        ("bbr", old.bbr != new.bbr),
        ("udpFEC", old.udp_fec != new.udp_fec),
        ("remoteAPI", old.remote_api != new.remote_api),
        ("remoteCert", old.trust != new.trust),
        ("remoteConnections", old.links != new.links),
        ("remoteIdleConnections", old.idle_links != new.idle_links),
        ("remoteTimeout", old.timeout != new.timeout),
        ("reconnectDelay", old.reconnect_delay != new.reconnect_delay),
        ("kcpMode, kcpFEC, kcpMTU", differ(&old.kcp, &new.kcp)),
        ("workers", old.workers != new.workers),
        ("the API", api_differs(old.api.as_ref(), new.api.as_ref())),
        ("the log", old.log != new.log),
    ];
    for (name, _) in process.iter().filter(|(_, differs)| *differs) {
        found.changes.push((*name).to_owned());
        found.needs_process.push((*name).to_owned());
    }
    found
}

fn differ<T: Debug>(old: &T, new: &T) -> bool {
    format!("{old:?}") != format!("{new:?}")
}

/// `Debug` does not show the password.
fn api_differs(old: Option<&config::ApiListener>, new: Option<&config::ApiListener>) -> bool {
    let password = |api: Option<&config::ApiListener>| {
        let password = api?.password.as_ref()?;
        Some(password.expose().to_owned())
    };
    differ(&old, &new) || password(old) != password(new)
}
