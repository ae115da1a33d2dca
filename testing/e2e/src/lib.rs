//! Harness of the end-to-end tests: starts `gt` as users do, with services beside the client and visitors in front of the server.
//!
//! ```text
//!  visitor (http, tls, pattern) ─► gt server ─► link (Transport) ─► gt client ─► service, nginx
//! ```
//!
//! Processes listen on ports that the kernel chose and tell them in their logs; tests wait for log lines, answers and accepted
//! connections, never for time to pass. Everything is ended when it is dropped, and a failing test prints the log of every process.
//! The tests themselves are in `gt/tests`, where cargo builds the binary for them.

pub mod cert;
pub mod http;
pub mod lossy;
pub mod netns;
pub mod nginx;
pub mod pattern;
pub mod ports;
pub mod process;
pub mod relay;
pub mod service;
pub mod tls;
pub mod wait;

mod dir;

pub use cert::Cert;
pub use dir::TempDir;
pub use http::{Head, HttpConn, Response};
pub use nginx::Nginx;
pub use ports::PortRange;
pub use process::Process;
pub use relay::{Client, ClientSpec, Server, ServerSpec, Transport};
pub use service::{Exchange, Service, UdpService};

use std::time::Duration;

/// How long anything that should happen at once may take before a test fails: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// [`PATIENCE`] for what takes many round trips: six times as much on a path made bad by `GT_E2E_PATH`.
#[must_use]
pub fn patience() -> Duration {
    if is_path_bad() {
        PATIENCE * 6
    } else {
        PATIENCE
    }
}

/// Whether the environment's `GT_E2E_PATH` makes links over UDP slow and lossy.
#[must_use]
pub fn is_path_bad() -> bool {
    std::env::var_os("GT_E2E_PATH").is_some()
}

/// Bytes of a large transfer: 64 MiB, 1 GiB when the environment has `GT_E2E_BIG=1`.
#[must_use]
pub fn big() -> u64 {
    if std::env::var("GT_E2E_BIG").is_ok_and(|value| value == "1") {
        1 << 30
    } else {
        64 << 20
    }
}

/// Makes a module of tests `tcp`, `tls`, `ws`, `kcp` and `quic` for each function over a [`Transport`].
#[macro_export]
macro_rules! over_each_transport {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {$(
        $crate::over_transports! {
            $(#[$attribute])* $name: tcp Tcp, tls Tls, ws Ws, kcp Kcp, quic Quic
        }
    )+};
}

/// As [`over_each_transport`], without `kcp` and `quic`: for tests that have a proxy for TCP between client and server.
#[macro_export]
macro_rules! over_each_tcp_transport {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {$(
        $crate::over_transports! { $(#[$attribute])* $name: tcp Tcp, tls Tls, ws Ws }
    )+};
}

/// A module of tests for one function, each over the [`Transport`] after its name.
#[macro_export]
macro_rules! over_transports {
    ($(#[$attribute:meta])* $name:ident: $($test:ident $transport:ident),+) => {
        $(#[$attribute])*
        mod $name {$(
            #[test]
            fn $test() {
                super::$name($crate::Transport::$transport);
            }
        )+}
    };
}
