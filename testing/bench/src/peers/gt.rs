//! gt: links as its defaults make them, a stream per visitor; flags only, so that the printed lines can be typed again.

use std::net::SocketAddr;

use anyhow::Result;

use super::{Certificate, HOST, Plan, Running};
use crate::lab::{Lab, Line};
use crate::tools::Tools;

/// The transport of gt's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Plain TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// WebSocket over plain TCP.
    Ws,
    /// QUIC.
    Quic,
}

impl Link {
    /// The scheme of `-remote`.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Quic => "quic",
        }
    }
}

/// Starts `gt server` and `gt client`.
///
/// # Errors
/// When there is no gt binary, or it does not start.
pub fn start(link: Link, http: bool, plan: &Plan<'_>, lab: &Lab, tools: &Tools) -> Result<Running> {
    let program = tools.gt()?;
    let plain = lab.address()?;
    let secure = lab.address()?;
    let name = if http {
        "gt-http".into()
    } else {
        format!("gt-{}", link.scheme())
    };

    let mut server = Line::new(&program).args([
        "server",
        "--no-supervisor",
        "-addr",
        &plain.to_string(),
        "-id",
        "id1",
        "-secret",
        "secret1",
    ]);
    server = server.args([
        "-tcpNumber",
        "0",
        "-tcpRange",
        "1024-65535",
        "-logLevel",
        "error",
    ]);
    let mut client = Line::new(&program).args([
        "client",
        "--no-supervisor",
        "-id",
        "id1",
        "-secret",
        "secret1",
        "-logLevel",
        "error",
    ]);
    if let Some(links) = plan.links {
        client = client.arg("-remoteConnections").arg(links.to_string());
    }
    let remote = match link {
        Link::Tcp | Link::Ws => plain,
        Link::Tls | Link::Quic => {
            let certificate = Certificate::in_lab(lab)?;
            let option = if link == Link::Tls {
                "-tlsAddr"
            } else {
                "-quicAddr"
            };
            server = server.arg(option).arg(secure.to_string());
            server = server
                .arg("-certFile")
                .arg(&certificate.cert)
                .arg("-keyFile")
                .arg(&certificate.key);
            client = client.arg("-remoteCert").arg(&certificate.cert);
            secure
        }
    };
    client = client
        .arg("-remote")
        .arg(format!("{}://{remote}", link.scheme()));

    let mut doors: Vec<SocketAddr> = Vec::new();
    for origin in plan.origins {
        // The flags after each -local belong to that service.
        if http {
            client = client.arg("-local").arg(format!("http://{origin}"));
            doors.push(plain);
        } else {
            let door = lab.address()?;
            client = client
                .arg("-local")
                .arg(format!("tcp://{origin}"))
                .arg("-remoteTCPPort")
                .arg(door.port().to_string());
            doors.push(door);
        }
    }
    let server = lab.start(&format!("{name}-server"), &server, plan.core)?;
    let client = lab.start(&format!("{name}-client"), &client, plan.core)?;
    Ok(Running {
        server,
        client,
        doors,
        host: HOST,
    })
}
