//! What the two kcptun examples are made of: `TCP ↔ relay ↔ smux ↔ [snappy] ↔ KCP ↔ UDP`.
#![allow(dead_code, reason = "each program uses a part of it")]

pub(crate) mod client;
pub(crate) mod options;
mod relay;
pub(crate) mod server;
mod snappy;

use std::time::Duration;

use kcp::udp::Session as KcpSession;
use mux::smux::io::Session;

use options::Tunnel;

/// smux on a KCP session; compressed unless that is switched off.
fn stack(kcp: KcpSession, tunnel: &Tunnel, side: mux::Side) -> Session {
    let config = tunnel.smux();
    match (side, tunnel.nocomp) {
        (mux::Side::Initiator, true) => Session::client(kcp, config),
        (mux::Side::Initiator, false) => Session::client(snappy::Snappy::new(kcp), config),
        (mux::Side::Acceptor, true) => Session::server(kcp, config),
        (mux::Side::Acceptor, false) => Session::server(snappy::Snappy::new(kcp), config),
    }
}

/// Rest after an error of the system (no descriptors, say) before the next try.
const REST: Duration = Duration::from_millis(100);
