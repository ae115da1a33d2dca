//! Another configuration for a server that runs: what is different, what of it can be taken as it runs, and taking it.
//!
//! Users, limits, routes, certificates and times change in place. Addresses, threads and the log belong to the process.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use config::{Id, User};
use tunnel::{ControlMessage, Goodbye, GoodbyeCode, Message};

use crate::{
    live::{Live, proxy_site},
    server::{Server, StartError},
    session::SessionKey,
};

/// What is different in another configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// All of it, one line each, without secrets.
    pub changes: Vec<String>,
    /// Those of them that need another process.
    pub needs_process: Vec<String>,
}

impl Server {
    /// Compares the configuration with that of this server.
    #[must_use]
    pub fn compare(&self, new: &config::Server) -> Difference {
        let live = self.shared.live();
        let old = &live.config;
        let mut found = Difference::default();
        let mut process = |name: &str, differs: bool| {
            if differs {
                found.needs_process.push(name.to_owned());
                found.changes.push(name.to_owned());
            }
        };
        let (was, is) = (&old.listeners, &new.listeners);
        process("addr", was.plain != is.plain);
        process("tlsAddr", was.tls != is.tls);
        process("sniAddr", was.sni != is.sni);
        process("kcpAddr", was.kcp != is.kcp);
        process("quicAddr", was.quic != is.quic);
        process("http3", was.http3 != is.http3);
        process("bbr", old.bbr != new.bbr);
        process("udpFEC", old.udp_fec != new.udp_fec);
        process("kcpMode, kcpFEC, kcpMTU", differ(&old.kcp, &new.kcp));
        process("the API", api_differs(was.api.as_ref(), is.api.as_ref()));
        process(
            "pendingConnections, pendingPerAddress",
            differ(&old.pending, &new.pending),
        );
        process("workers", old.workers != new.workers);
        process("the log", old.log != new.log);
        let listeners = match (&old.proxy, &new.proxy) {
            (Some(old), Some(new)) => proxy::same_listeners(old, new),
            (None, None) => true,
            _ => false,
        };
        process("proxy: listeners", !listeners);
        let access_log = |config: &config::Server| {
            let proxy = config.proxy.as_ref();
            proxy.and_then(|proxy| proxy.access_log.clone())
        };
        process("proxy: accessLog", access_log(old) != access_log(new));
        users(old, new, &mut found);
        let mut in_place = |name: &str, differs: bool| {
            if differs {
                found.changes.push(name.to_owned());
            }
        };
        in_place(
            "allowAnyClient",
            old.allow_any_client != new.allow_any_client,
        );
        in_place("authAPI", old.auth_api != new.auth_api);
        in_place(
            "the limits of other clients",
            differ(&old.defaults, &new.defaults),
        );
        in_place("loadBalance", old.load_balance != new.load_balance);
        in_place("httpMUXHeader", old.http_mux_header != new.http_mux_header);
        in_place("timeouts", old.timeouts != new.timeouts);
        in_place(
            "reconnectTimes, reconnectDuration",
            old.throttle != new.throttle,
        );
        in_place("statusHostPrefix", old.status_prefix != new.status_prefix);
        let files = old.certificates != new.certificates;
        let tls = files || old.tls_min_version != new.tls_min_version;
        // The files may have new content under the same name.
        let shown = new.listeners.tls.is_some() || new.listeners.quic.is_some();
        let content = !tls && shown && certificates(old) != live.certificates;
        in_place("certificates", tls || content);
        // They hold compiled expressions, so they are read anew whether or not they differ.
        in_place(
            "proxy: routes and upstreams",
            listeners && new.proxy.is_some(),
        );
        found
    }

    /// Takes the configuration, as far as no other process is needed: nothing else is different by [`Server::compare`]. Clients that may
    /// not come any more, or not with the same secret, are sent away; all other visits and links go on.
    ///
    /// # Errors
    /// [`StartError`] when files cannot be used; nothing has changed then.
    pub fn apply(&self, new: config::Server) -> Result<(), StartError> {
        let shared = &self.shared;
        let before = shared.live();
        let live = Live::new(new)?;
        let new = &live.config;
        self.proxy.reload(proxy_site(new)?);
        shared.throttle.set(&new.throttle);
        shared.registry.reconfigure(new, |id| {
            let known = Id::new(id).ok().and_then(|id| new.users.get(&id).cloned());
            match known {
                Some(User {
                    limits,
                    load_balance,
                    ..
                }) => Some((limits, load_balance)),
                // What an authentication service has said of a client stays until it comes again.
                None if new.auth_api.is_some() => None,
                None => Some((new.defaults.clone(), false)),
            }
        });
        let gone: BTreeSet<SessionKey> = shared
            .registry
            .sessions()
            .iter()
            .filter(|(session, _)| !still_welcome(&before.config, new, &session.account.id))
            .map(|(session, _)| session.key)
            .collect();
        self.over_udp.show(&live);
        shared.replace_live(live);
        if !gone.is_empty() {
            let gone = Arc::new(gone);
            let goodbye = ControlMessage::Goodbye(Goodbye {
                code: GoodbyeCode::Revoked,
                message: Message::new("the server's users have changed"),
            });
            shared.on_each(move |worker| {
                for link in worker.links_of(|session| gone.contains(&session)) {
                    if let Ok(message) = goodbye.encode() {
                        link.send_control(&message);
                    }
                    link.close();
                }
            });
        }
        Ok(())
    }
}

/// Whether a client that is connected could come again as it came.
fn still_welcome(old: &config::Server, new: &config::Server, id: &str) -> bool {
    let user = |config: &config::Server| {
        let id = Id::new(id).ok()?;
        let user = config.users.get(&id)?;
        Some(user.secret.expose().to_owned())
    };
    match (user(old), user(new)) {
        (Some(was), Some(is)) => was == is,
        (None, None) => {
            new.auth_api.is_some() && new.auth_api == old.auth_api || new.allow_any_client
        }
        (Some(_), None) => new.allow_any_client,
        (None, Some(_)) => false,
    }
}

fn users(old: &config::Server, new: &config::Server, found: &mut Difference) {
    let ids: BTreeSet<&str> = old
        .users
        .keys()
        .chain(new.users.keys())
        .map(Id::as_str)
        .collect();
    for id in ids {
        let of = |config: &config::Server| {
            let id = Id::new(id).ok()?;
            config.users.get(&id).cloned()
        };
        match (of(old), of(new)) {
            (None, Some(_)) => found.changes.push(format!("user {id} is new")),
            (Some(_), None) => found.changes.push(format!("user {id} is gone")),
            (Some(was), Some(is)) => {
                if was.secret.expose() != is.secret.expose() {
                    found.changes.push(format!("user {id} has another secret"));
                }
                if differ(&was.limits, &is.limits) || was.load_balance != is.load_balance {
                    found.changes.push(format!("user {id} has other limits"));
                }
                if was.limits.speed.is_some() != is.limits.speed.is_some() {
                    // Streams that run are paced, or not, for their whole life.
                    let text = format!("user {id} has a speed limit now, or has none any more");
                    found.needs_process.push(text);
                }
            }
            (None, None) => {}
        }
    }
    if old.defaults.speed.is_some() != new.defaults.speed.is_some() {
        let text = "other clients have a speed limit now, or have none any more";
        found.needs_process.push(text.to_owned());
    }
}

/// Regular expressions compare by their text only, which is what `Debug` shows.
fn differ<T: Debug>(old: &T, new: &T) -> bool {
    format!("{old:?}") != format!("{new:?}")
}

/// What the certificate files hold, to notice new ones. Keys are left out: a new certificate comes with them or without.
pub(crate) fn certificates(config: &config::Server) -> Vec<Vec<u8>> {
    config
        .certificates
        .iter()
        .map(|files| std::fs::read(&files.cert_file).unwrap_or_default())
        .collect()
}

/// `Debug` does not show the password.
fn api_differs(old: Option<&config::ApiListener>, new: Option<&config::ApiListener>) -> bool {
    let password = |api: Option<&config::ApiListener>| {
        let password = api?.password.as_ref()?;
        Some(password.expose().to_owned())
    };
    differ(&old, &new) || password(old) != password(new)
}
