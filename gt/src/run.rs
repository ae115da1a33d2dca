//! Runs checked configurations, each with its API, until a signal ends them. Thin: the work is in `server`, `agent`, `proxy` and `control`.

use std::{io, time::Duration};

use agent::{Client, ClientError};
use config::{ApiListener, Checked, ListenerProtocol};
use control::{Api, ApiError, Source};
use server::{Server, StartError};
use tokio::signal::unix::{SignalKind, signal};

/// Why running ended badly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// A server cannot be started.
    #[error("the server cannot start: {0}")]
    Server(#[from] StartError),
    /// A client cannot be started, or was refused for good.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// An API cannot be started.
    #[error("the API cannot start: {0}")]
    Api(#[from] ApiError),
    /// A proxy cannot be started.
    #[error("the proxy cannot start: {0}")]
    Proxy(#[from] proxy::StartError),
    /// What a proxy's configuration names cannot be used.
    #[error("the proxy cannot start: {0}")]
    Configured(#[from] proxy::ConfiguredError),
    /// Signals cannot be received.
    #[error("signals cannot be received: {0}")]
    Signals(io::Error),
}

/// What is running.
enum Running {
    Server(Box<Server>),
    Client(Box<Client>),
    Proxy(Box<proxy::Proxy>),
}

/// Runs all of them until SIGINT or SIGTERM; a second signal ends at once. If one cannot be started, none runs.
pub(crate) fn run(configurations: Vec<Checked>) -> Result<(), RunError> {
    let mut running = Vec::new();
    // They answer until all else has stopped.
    let mut apis = Vec::new();
    for configuration in configurations {
        let listener = api_listener(&configuration);
        let one = match configuration {
            Checked::Proxy(proxy) => {
                Running::Proxy(Box::new(proxy::Proxy::start(proxy_options(&proxy)?)?))
            }
            Checked::Server(server) => Running::Server(Box::new(Server::start(*server)?)),
            Checked::Client(client) => Running::Client(Box::new(Client::start(*client)?)),
        };
        if let Some(listener) = listener {
            apis.push(Api::start(&listener, one.source())?);
        }
        running.push(one);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Signals)?;
    let ended = runtime.block_on(until_ended(&running));
    // A second signal must not wait for the first one's patience.
    std::thread::spawn(move || {
        if runtime.block_on(signalled()).is_ok() {
            tracing::warn!("a second signal: ending at once");
            std::process::exit(1);
        }
    });
    for running in running {
        match running {
            Running::Server(server) => server.stop(PATIENCE),
            Running::Client(client) => client.stop(PATIENCE),
            Running::Proxy(proxy) => proxy.stop(PATIENCE),
        }
    }
    drop(apis);
    tracing::info!("ended");
    ended
}

impl Running {
    fn source(&self) -> Source {
        match self {
            Self::Server(server) => Source::Server(server.observer()),
            Self::Client(client) => Source::Client(client.observer()),
            Self::Proxy(proxy) => Source::Proxy(proxy.observer()),
        }
    }
}

pub(crate) fn api_listener(configuration: &Checked) -> Option<ApiListener> {
    match configuration {
        Checked::Server(server) => server.listeners.api.clone(),
        Checked::Client(client) => client.api.clone(),
        Checked::Proxy(proxy) => proxy.api.clone(),
    }
}

/// What the data plane is started with.
pub(crate) fn proxy_options(
    proxy: &config::Proxy,
) -> Result<proxy::Options, proxy::ConfiguredError> {
    proxy::options(&proxy.proxy, proxy.workers.map(usize::from))
}

async fn until_ended(running: &[Running]) -> Result<(), RunError> {
    let refused = async {
        let clients = running.iter().filter_map(|running| match running {
            Running::Client(client) => Some(Box::pin(client.refused())),
            Running::Server(_) | Running::Proxy(_) => None,
        });
        let mut clients: Vec<_> = clients.collect();
        std::future::poll_fn(|cx| {
            let refused = clients
                .iter_mut()
                .find_map(|client| match client.as_mut().poll(cx) {
                    std::task::Poll::Ready(error) => Some(error),
                    std::task::Poll::Pending => None,
                });
            refused.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await
    };
    tokio::select! {
        name = signalled() => {
            tracing::info!(signal = name?, patience = ?PATIENCE, "ending; a second signal ends at once");
            Ok(())
        }
        error = refused => Err(error.into()),
    }
}

pub(crate) async fn signalled() -> Result<&'static str, RunError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    Ok(tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    })
}

/// How long visits may take to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// One line without secrets: what it is and where.
pub(crate) fn describe(configuration: &Checked) -> String {
    match configuration {
        Checked::Server(server) => describe_server(server),
        Checked::Client(client) => describe_client(client),
        Checked::Proxy(proxy) => format!("proxy on {}", describe_proxy(&proxy.proxy)),
    }
}

fn describe_proxy(proxy: &config::ProxyConfig) -> String {
    let listeners = proxy.listeners.iter().map(|listener| {
        let protocol = match listener.protocol {
            ListenerProtocol::Http { .. } | ListenerProtocol::OfServer { tls: false } => "http",
            ListenerProtocol::Https { .. } | ListenerProtocol::OfServer { tls: true } => "https",
            ListenerProtocol::Tcp => "tcp",
            ListenerProtocol::Tls => "tls",
        };
        format!("{protocol} {}", listener.addr)
    });
    format!(
        "{}, {} routes, {} upstreams",
        listeners.collect::<Vec<_>>().join(", "),
        proxy.routes.len(),
        proxy.upstreams.len()
    )
}

fn describe_server(server: &config::Server) -> String {
    let at = &server.listeners;
    let listeners = [("plain", at.plain), ("TLS", at.tls), ("SNI", at.sni)];
    let listeners: Vec<_> = listeners
        .iter()
        .filter_map(|(name, address)| address.map(|address| format!("{name} {address}")))
        .collect();
    let proxy = match &server.proxy {
        Some(proxy) => format!("; proxy on {}", describe_proxy(proxy)),
        None => String::new(),
    };
    format!(
        "server on {}, {} users{proxy}",
        listeners.join(", "),
        server.users.len()
    )
}

fn describe_client(client: &config::Client) -> String {
    let remotes: Vec<_> = client.remotes.iter().map(ToString::to_string).collect();
    let remotes = if remotes.is_empty() {
        "the server that remoteAPI names".into()
    } else {
        remotes.join(", ")
    };
    format!(
        "client `{}` of {remotes}, {} services",
        client.id,
        client.services.len()
    )
}
