//! The processes of a soak: a gt server, and clients whose links go through a forwarder each.
//!
//! ```text
//! visitor ─► gt server ◄─ forwarder ◄─ gt client ─► data service
//!            (TCP port, HTTP)          (tcp, tls, ws)  HTTP service
//! ```
//!
//! With [`Links::Auto`] the clients choose among QUIC, KCP and TLS; both ways over UDP go through forwarders that can block them and give the client
//! another address.
//!
//! Forwarders and services run in the soak itself, so that it can cut, freeze, stop and reset them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bench::lab::{Lab, Line, Program};
use bench::peers::Certificate;
use bench::visit::until_ready;
use e2e::lossy::{LossyPath, Path as UdpPath};

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
    /// Between it and the server, for links over TCP.
    pub forwarder: Forwarder,
    /// The same for links over UDP: QUIC and KCP, or none.
    pub udp: Vec<LossyPath>,
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

/// How clients come to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// One client for each of [`SCHEMES`].
    OneEach,
    /// As many clients, each of which keeps its links on the best of several ways.
    Auto,
}

impl Relay {
    /// Starts all of it and waits until visitors get through to every service.
    ///
    /// # Errors
    /// When something does not start, with the ends of its logs.
    pub fn start(gt: &Path, links: Links) -> Result<Self> {
        let lab = Lab::new("soak")?;
        let certificate = Certificate::in_lab(&lab)?;
        let (plain, secure, api) = (lab.address()?, lab.address()?, lab.address()?);
        let (quic, kcp) = (lab.address()?, lab.address()?);

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
        if links == Links::Auto {
            line = line.args(["-quicAddr", &quic.to_string()]);
            line = line.args(["-kcpAddr", &kcp.to_string()]);
        }
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
            let (scheme, udp) = match links {
                Links::OneEach => (scheme, Vec::new()),
                Links::Auto => ("tls", vec![udp_path(quic), udp_path(kcp)]),
            };
            let target = if scheme == "tls" { secure } else { plain };
            clients.push(Client::start(
                &lab,
                gt,
                number,
                (scheme, target),
                udp,
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
        (scheme, target): (&str, SocketAddr),
        udp: Vec<LossyPath>,
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
        for (scheme, path) in ["quic", "kcp"].iter().zip(&udp) {
            let remote = format!("{scheme}://{}", path.address());
            line = line.args(["-remote", &remote, "-remoteChoice", "best"]);
        }
        line = line.args([
            "-remote",
            &format!("{scheme}://{}", forwarder.at()),
            "-reconnectDelay",
            "1s",
            "-logLevel",
            // Which way links go is said at this level.
            if udp.is_empty() { "warn" } else { "info" },
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
            udp,
            data,
            http,
            route,
            line,
        })
    }
}

fn udp_path(target: SocketAddr) -> LossyPath {
    let clear = UdpPath {
        delay: Duration::ZERO,
        loss_per_mille: 0,
        seed: 1,
    };
    LossyPath::to(target, clear)
}

/// Longest time from the end of a kill until visitors get through again.
pub const RECOVERY: Duration = Duration::from_secs(40);

const PROBE: Duration = Duration::from_secs(3);
