//! Runs checked configurations until they end. Thin: the work is in `server` and `agent`.

use config::{Checked, Client, Server};

/// Why running ended badly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The data plane is not part of this build.
    #[error("cannot run {0}: the data plane is not linked into this build yet")]
    NotLinked(String),
}

/// Runs all of them, each on its own, until all have ended or one has failed.
pub(crate) fn run(configurations: Vec<Checked>) -> Result<(), RunError> {
    for configuration in configurations {
        match &configuration {
            Checked::Server(server) => run_server(server)?,
            Checked::Client(client) => run_client(client)?,
        }
    }
    Ok(())
}

fn run_server(server: &Server) -> Result<(), RunError> {
    Err(RunError::NotLinked(describe_server(server)))
}

fn run_client(client: &Client) -> Result<(), RunError> {
    Err(RunError::NotLinked(describe_client(client)))
}

/// One line without secrets: what it is and where.
pub(crate) fn describe(configuration: &Checked) -> String {
    match configuration {
        Checked::Server(server) => describe_server(server),
        Checked::Client(client) => describe_client(client),
    }
}

fn describe_server(server: &Server) -> String {
    let at = &server.listeners;
    let listeners = [("plain", at.plain), ("TLS", at.tls), ("SNI", at.sni)];
    let listeners: Vec<_> = listeners
        .iter()
        .filter_map(|(name, address)| address.map(|address| format!("{name} {address}")))
        .collect();
    format!(
        "server on {}, {} users",
        listeners.join(", "),
        server.users.len()
    )
}

fn describe_client(client: &Client) -> String {
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
