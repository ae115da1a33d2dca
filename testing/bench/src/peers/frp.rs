//! frp: one link with its multiplexer (`tcpMux`, on by default), a stream per visitor.
//!
//! Its client encrypts the link by default; the plain kinds switch that off, to be compared with plain links of the others.
//! Everything else is frp's default: no pool, no compression.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::Result;

use super::{HOST, Plan, Running};
use crate::lab::{Lab, Line};
use crate::tools::Tools;

/// What frp is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Encrypt the link.
    pub tls: bool,
    /// HTTP proxy by Host instead of a TCP port.
    pub http: bool,
}

/// Starts `frp-run server` and `frp-run client`.
///
/// # Errors
/// When `frp-run` is missing or does not start.
pub fn start(kind: Kind, plan: &Plan<'_>, lab: &Lab, tools: &Tools) -> Result<Running> {
    let program = tools.peer("frp-run")?;
    let control = lab.port()?;
    let name = match kind {
        Kind { http: true, .. } => "frp-http",
        Kind { tls: true, .. } => "frp-tls",
        _ => "frp-tcp",
    };
    let mut doors: Vec<SocketAddr> = Vec::new();
    let common = "auth.token = \"secret1\"\nlog.level = \"error\"\n";
    let mut server = format!("bindAddr = \"127.0.0.1\"\nbindPort = {control}\n{common}");
    let mut client = format!(
        "serverAddr = \"127.0.0.1\"\nserverPort = {control}\ntransport.tls.enable = {}\n{common}",
        kind.tls
    );
    let shared_door = lab.address()?;
    if kind.http {
        let _ = writeln!(server, "vhostHTTPPort = {}", shared_door.port());
    }
    for (number, origin) in plan.origins.iter().enumerate() {
        let door = if kind.http {
            shared_door
        } else {
            lab.address()?
        };
        let place = if kind.http {
            format!("type = \"http\"\ncustomDomains = [\"{HOST}\"]")
        } else {
            format!("type = \"tcp\"\nremotePort = {}", door.port())
        };
        let _ = writeln!(
            client,
            "[[proxies]]\nname = \"s{number}\"\n{place}\nlocalIP = \"{}\"\nlocalPort = {}",
            origin.ip(),
            origin.port()
        );
        doors.push(door);
    }
    let server = lab.write(&format!("{name}-server.toml"), &server)?;
    let client = lab.write(&format!("{name}-client.toml"), &client)?;

    let line = |role: &str, config| Line::new(&program).arg(role).arg(config);
    let server = lab.start(
        &format!("{name}-server"),
        &line("server", server),
        plan.core,
    )?;
    // frpc gives up when its first login fails.
    let at = (std::net::Ipv4Addr::LOCALHOST, control).into();
    crate::visit::until_ready(std::time::Duration::from_secs(10), || {
        crate::visit::connect(at, None)
    })?;
    let client = lab.start(
        &format!("{name}-client"),
        &line("client", client),
        plan.core,
    )?;
    Ok(Running {
        server,
        client,
        doors,
        host: HOST,
    })
}
