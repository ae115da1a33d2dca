//! The processes of a soak: a gt server, and clients whose links go through a forwarder each.
//!
//! ```text
//! visitor ─► gt server ◄─ forwarder ◄─ gt client ─► data service
//!            (TCP port, HTTP)          (tcp, tls, ws)  HTTP service
//! ```
//!
//! Forwarders and services run in the soak itself, so that it can cut, freeze, stop and reset them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bench::lab::{Lab, Line, Program};
use bench::peers::Certificate;
use bench::visit::until_ready;

use crate::acceptor::Acceptor;
use crate::forwarder::Forwarder;
use crate::service;
use crate::visitor::{Kind, Outcome, Route, Visit};

/// Everything that runs.
pub struct Relay {
    /// The server.
    pub server: Program,
    /// The clients, one per kind of link.
    pub clients: Vec<Client>,
    /// The server's API address, for metrics.
    pub api: SocketAddr,
    lab: Lab,
}

/// A client with its link's forwarder and its services.
pub struct Client {
    /// Name, for messages.
    pub name: String,
    /// The process.
    pub program: Program,
    /// Between it and the server.
    pub forwarder: Forwarder,
    /// Its data service.
    pub data: Acceptor,
    /// Its HTTP service.
    pub http: Acceptor,
    /// How visitors reach its services.
    pub route: Route,
    line: Line,
}

/// Schemes of the clients' links.
pub const SCHEMES: [&str; 3] = ["tcp", "tls", "ws"];

impl Relay {
    /// Starts all of it and waits until visitors get through to every service.
    ///
    /// # Errors
    /// When something does not start, with the ends of its logs.
    pub fn start(gt: &Path) -> Result<Self> {
        let lab = Lab::new("soak")?;
        let certificate = Certificate::in_lab(&lab)?;
        let (plain, secure, api) = (lab.address()?, lab.address()?, lab.address()?);

        let mut line = Line::new(gt).args(["server", "--no-supervisor"]).args([
            "-addr",
            &plain.to_string(),
            "-tlsAddr",
            &secure.to_string(),
        ]);
        line = line
            .arg("-certFile")
            .arg(&certificate.cert)
            .arg("-keyFile")
            .arg(&certificate.key);
        line = line.args(["-apiAddr", &api.to_string(), "-logLevel", "warn"]);
        for number in 0..SCHEMES.len() {
            line = line.args([
                "-id",
                &format!("id{number}"),
                "-secret",
                &format!("secret{number}"),
            ]);
        }
        line = line.args(["-tcpNumber", "0", "-tcpRange", "1024-65535"]);
        let server = lab.start("server", &line, None)?;

        let mut clients = Vec::new();
        for (number, scheme) in SCHEMES.into_iter().enumerate() {
            let target = if scheme == "tls" { secure } else { plain };
            clients.push(Client::start(
                &lab,
                gt,
                number,
                scheme,
                target,
                plain,
                &certificate,
            )?);
        }
        let relay = Self {
            server,
            clients,
            api,
            lab,
        };
        for number in 0..relay.clients.len() {
            relay.await_through(number)?;
        }
        Ok(relay)
    }

    /// Waits until both services of a client answer visitors.
    ///
    /// # Errors
    /// When they do not within [`RECOVERY`].
    pub fn await_through(&self, number: usize) -> Result<()> {
        let client = &self.clients[number];
        let probe = || {
            for kind in [
                Kind::Download {
                    size: 1000,
                    slow: false,
                },
                Kind::Requests {
                    count: 2,
                    most: 1000,
                },
            ] {
                match (Visit { seed: 1, kind }).make(&client.route, PROBE) {
                    Outcome::Right => {}
                    other => bail!("probe of {}: {other}", client.name),
                }
            }
            Ok(())
        };
        let logs = || {
            format!(
                "server: {}\n{}: {}",
                self.server.log_tail(),
                client.name,
                client.program.log_tail()
            )
        };
        until_ready(RECOVERY, probe).with_context(logs)
    }

    /// Kills a client at once and starts it again.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart_client(&mut self, number: usize) -> Result<()> {
        let client = &mut self.clients[number];
        client.program.kill();
        client.program = self.lab.start(&client.name, &client.line, None)?;
        Ok(())
    }

    /// That server and clients still run.
    ///
    /// # Errors
    /// The first one that has died on its own, with the end of its log.
    pub fn check_running(&mut self) -> Result<()> {
        ensure!(
            self.server.is_running(),
            "the server died:\n{}",
            self.server.log_tail()
        );
        for client in &mut self.clients {
            ensure!(
                client.program.is_running(),
                "{} died:\n{}",
                client.name,
                client.program.log_tail()
            );
        }
        Ok(())
    }
}

impl Client {
    fn start(
        lab: &Lab,
        gt: &Path,
        number: usize,
        scheme: &str,
        target: SocketAddr,
        http_door: SocketAddr,
        certificate: &Certificate,
    ) -> Result<Self> {
        let name = format!("client{number}-{scheme}");
        let forwarder = Forwarder::open(lab.address()?, target)?;
        let data = service::data(lab.address()?)?;
        let http = service::http(lab.address()?)?;
        let door = lab.address()?;
        let mut line = Line::new(gt).args(["client", "--no-supervisor"]).args([
            "-id",
            &format!("id{number}"),
            "-secret",
            &format!("secret{number}"),
        ]);
        line = line.args([
            "-remote",
            &format!("{scheme}://{}", forwarder.at()),
            "-reconnectDelay",
            "1s",
            "-logLevel",
            "warn",
        ]);
        if scheme == "tls" {
            line = line.arg("-remoteCert").arg(&certificate.cert);
        }
        // The flags after each -local belong to that service.
        line = line.args([
            "-local",
            &format!("tcp://{}", data.at()),
            "-remoteTCPPort",
            &door.port().to_string(),
        ]);
        line = line.args(["-local", &format!("http://{}", http.at())]);
        let program = lab.start(&name, &line, None)?;
        let route = Route {
            data: door,
            http: http_door,
            host: format!("id{number}.example.com"),
        };
        Ok(Self {
            name,
            program,
            forwarder,
            data,
            http,
            route,
            line,
        })
    }
}

/// Longest time from the end of a kill until visitors get through again.
pub const RECOVERY: Duration = Duration::from_secs(40);

const PROBE: Duration = Duration::from_secs(3);
