//! rathole: one TCP or TLS connection per visitor between its processes, made in advance from a pool.
//!
//! Defaults as they come: `nodelay` on, heartbeat every 30 s. TLS is native-tls with a PKCS #12 identity.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::Result;

use super::{Certificate, HOST, Plan, Running};
use crate::lab::{Lab, Line};
use crate::tools::Tools;

/// Starts `rathole --server` and `rathole --client`.
///
/// # Errors
/// When rathole is missing or does not start.
pub fn start(tls: bool, plan: &Plan<'_>, lab: &Lab, tools: &Tools) -> Result<Running> {
    let program = tools.peer("rathole")?;
    let control = lab.address()?;
    let doors: Vec<SocketAddr> = plan
        .origins
        .iter()
        .map(|_| lab.address())
        .collect::<Result<_>>()?;
    let name = if tls { "rathole-tls" } else { "rathole-tcp" };
    let (server_transport, client_transport) = if tls {
        transports(&Certificate::in_lab(lab)?)
    } else {
        Default::default()
    };

    let mut server = format!(
        "[server]\nbind_addr = \"{control}\"\ndefault_token = \"secret1\"\n{server_transport}"
    );
    let mut client = format!(
        "[client]\nremote_addr = \"{}\"\ndefault_token = \"secret1\"\n{client_transport}",
        remote(tls, control)
    );
    for (number, (door, origin)) in doors.iter().zip(plan.origins).enumerate() {
        let _ = write!(
            server,
            "[server.services.s{number}]\nbind_addr = \"{door}\"\n"
        );
        let _ = write!(
            client,
            "[client.services.s{number}]\nlocal_addr = \"{origin}\"\n"
        );
    }
    let server = lab.write(&format!("{name}-server.toml"), &server)?;
    let client = lab.write(&format!("{name}-client.toml"), &client)?;

    let line = |role: &str, config| {
        Line::new(&program)
            .arg(role)
            .arg(config)
            .env("RUST_LOG", "error")
    };
    let server = lab.start(
        &format!("{name}-server"),
        &line("--server", server),
        plan.core,
    )?;
    let client = lab.start(
        &format!("{name}-client"),
        &line("--client", client),
        plan.core,
    )?;
    Ok(Running {
        server,
        client,
        doors,
        host: HOST,
    })
}

fn transports(certificate: &Certificate) -> (String, String) {
    let identity = certificate.pkcs12.display();
    let password = Certificate::PASSWORD;
    let server = format!(
        "[server.transport]\ntype = \"tls\"\n[server.transport.tls]\npkcs12 = \"{identity}\"\npkcs12_password = \"{password}\"\n"
    );
    let root = certificate.cert.display();
    let client = format!(
        "[client.transport]\ntype = \"tls\"\n[client.transport.tls]\ntrusted_root = \"{root}\"\nhostname = \"localhost\"\n"
    );
    (server, client)
}

fn remote(tls: bool, control: SocketAddr) -> String {
    if tls {
        format!("localhost:{}", control.port())
    } else {
        control.to_string()
    }
}
