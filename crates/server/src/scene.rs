//! What tests inside the crate begin with: a server on loopback, and a client that is there without a link.

use std::{num::NonZeroUsize, sync::Arc};

use tunnel::{HostPrefix, HttpMode, ServiceDecl, ServiceId, ServiceKind, SessionId};

use crate::{
    registry::Registry,
    server::Server,
    session::{Account, Session},
};

/// A server with so many workers that lets anybody in.
pub(crate) fn server(workers: usize) -> Server {
    let config = config::Server {
        listeners: config::Listeners {
            plain: "127.0.0.1:0".parse().ok(),
            ..config::Listeners::default()
        },
        workers: NonZeroUsize::new(workers),
        allow_any_client: true,
        ..config::Server::default()
    };
    Server::start(config).expect("a server")
}

/// The client with the id `name` comes and says that it serves this prefix.
pub(crate) fn come(registry: &Registry, name: &str, http: Option<HttpMode>) -> Arc<Session> {
    let account = registry.account(name, || {
        Account::new(name, config::Limits::default(), false)
    });
    let fresh = SessionId::from_bytes(rand::random());
    let session = registry.admit(&account, None, fresh).expect("room");
    let declared = ServiceDecl {
        host_prefix: HostPrefix::new(name).ok(),
        http,
        ..ServiceDecl::new(ServiceId(1), ServiceKind::Http)
    };
    let results = registry.declare(&session, &[declared]);
    assert!(results.iter().all(|result| result.result.is_ok()));
    session.arrival_ended();
    session
}
