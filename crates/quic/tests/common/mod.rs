//! Servers on workers, and clients that trust them.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod mistakes;
pub(crate) mod raw;
pub(crate) mod site;

use std::{future::Future, net::SocketAddr, sync::mpsc, time::Duration};

use net::{
    OwnSockets, Workers,
    tls::{Certificate, TlsClientOptions, TlsServerOptions, Trust, self_signed},
};
use quic::{Client, ClientConfig, Config, Incoming, Server, ServerTls};

pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(crate) fn certificate() -> Certificate {
    self_signed(&["localhost".into(), "127.0.0.1".into()]).unwrap()
}

pub(crate) fn tls(alpn: &[&[u8]]) -> ServerTls {
    ServerTls::new(&TlsServerOptions {
        certificates: vec![certificate()],
        alpn: alpn.iter().map(|name| name.to_vec()).collect(),
        ..TlsServerOptions::default()
    })
    .unwrap()
}

/// Trusts anybody: these tests are not about trust.
pub(crate) fn client(change: impl FnOnce(&mut ClientConfig)) -> Client {
    let mut config = ClientConfig {
        tls: TlsClientOptions {
            trust: Trust::InsecureNoVerification,
            ..TlsClientOptions::default()
        },
        ..ClientConfig::default()
    };
    change(&mut config);
    Client::new(config).unwrap()
}

/// A server on `workers` threads that gives each connection to `handle`, with its worker.
pub(crate) struct Running {
    pub(crate) workers: Workers,
    pub(crate) server: Server,
}

pub(crate) fn start<F, Fut>(workers: usize, tls: ServerTls, config: Config, handle: F) -> Running
where
    F: Fn(usize, Incoming) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let workers = Workers::start(workers, "quic").unwrap();
    let handles = workers.handles();
    let server = Server::bind(&OwnSockets, "test", loopback(), handles.len(), tls, config).unwrap();
    for shard in server.shards().unwrap() {
        let handle = handle.clone();
        let index = shard.index();
        handles[index]
            .spawn(move || async move {
                let endpoint = shard.start().unwrap();
                while let Some(incoming) = endpoint.accept().await {
                    tokio::task::spawn_local(handle(index, incoming));
                }
                endpoint.drained(LONG).await;
            })
            .unwrap();
    }
    Running { workers, server }
}

impl Running {
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }
}

/// Runs a future on a worker of its own and gives what came of it.
pub(crate) fn on_worker<F, Fut, T>(make: F) -> T
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let workers = Workers::start(1, "test").unwrap();
    let (tell, told) = mpsc::channel();
    workers.handles()[0]
        .spawn(move || async move {
            let result = tokio::time::timeout(LONG * 2, make()).await;
            let _ = tell.send(result.expect("the test takes too long"));
        })
        .unwrap();
    told.recv().expect("the test has panicked")
}
