//! End-to-end tests of what goes wrong: refused clients, dead services, visitors that do not read, broken links, killed processes,
//! intruders, stops. Each looks at all sides: what the visitor gets, what both logs say, and that others are not harmed.

mod breaks;
mod idle;
mod intruders;
mod limits;
mod origin;
mod pending;
mod process;
mod raw;
mod refusals;
mod services;
mod stopping;
mod versions;
mod wire;

use std::time::Duration;

use e2e::{ClientSpec, Server, Transport};

/// The address of a link's way in, for a [`wire::Wire`].
fn way_in(server: &Server, transport: Transport) -> std::net::SocketAddr {
    match transport {
        Transport::Tcp | Transport::Ws => server.http(),
        Transport::Tls => server.https(),
        Transport::Kcp => server.kcp(),
        Transport::Quic => server.quic(),
    }
}

/// A client of `server` that reaches it through `wire`.
fn client_through(
    wire: &wire::Wire,
    server: &Server,
    transport: Transport,
    id: &str,
) -> ClientSpec {
    let scheme = match transport {
        Transport::Tcp => "tcp",
        Transport::Tls => "tls",
        Transport::Ws => "ws",
        Transport::Kcp => "kcp",
        Transport::Quic => "quic",
    };
    server
        .client(transport, id)
        .option("remote", format!("{scheme}://{}", wire.address()))
}

/// The time in which a test looks whether something happens that should not.
const WATCH: Duration = Duration::from_secs(3);
