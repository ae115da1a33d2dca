//! Visitors reach services through `gt server` and `gt client`, as users run them: what must work, over each transport of links.
//!
//! Long forms: `GT_E2E_BIG=1` transfers 1 GiB instead of 64 MiB, `GT_E2E_LONG=1` waits 20 s where a second shows the same.

mod auth;
mod early;
mod grpc;
mod http;
mod http_mode;
mod leaving;
mod limits;
mod lossy;
mod moving;
mod names;
mod ports;
mod requests;
mod rules;
mod section;
mod speed;
mod streams;
mod tls;
mod udp;
mod visitors;
mod ways;
mod websocket;

use e2e::{Server, ServerSpec};

/// A server with one user `web`.
fn server() -> Server {
    ServerSpec::new().user("web").start()
}

/// Ports for TCP and UDP services, and a server that lets user `web` have them.
fn server_with_ports(count: u16) -> (e2e::PortRange, Server) {
    let ports = e2e::PortRange::claim(count);
    let server = ServerSpec::new().user("web").ports(&ports).start();
    (ports, server)
}

/// How long a connection is left silent to show that silence does no harm.
fn silence() -> std::time::Duration {
    let long = std::env::var("GT_E2E_LONG").is_ok_and(|value| value == "1");
    std::time::Duration::from_secs(if long { 20 } else { 1 })
}
