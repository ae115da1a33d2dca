//! What is said when the system does not give UDP sockets the room they were to have. Alone in its process: it is said once.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use common::{loopback, tls};
use net::OwnSockets;
use quic::{Config, Server};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// What was said of buffers.
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().filter(|line| line.contains("net.core."));
        lines.map(str::to_owned).collect()
    }
}

#[test]
fn a_system_that_gives_less_room_is_named_once_with_what_to_set() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    let bind = |socket_buffer| {
        let config = Config {
            socket_buffer,
            ..Config::default()
        };
        let tls = tls(&[b"test"]);
        Server::bind(&OwnSockets, "test", loopback(), 2, tls, config).unwrap()
    };
    tracing::subscriber::with_default(subscriber, || {
        // Every system gives that.
        let _server = bind(16 << 10);
        assert_eq!(log.lines(), [""; 0]);
        // None does that: the kernel counts in 32 bits, with a sign, and doubles.
        let wanted = 1_100 << 20;
        let _servers = [bind(wanted), bind(wanted)];
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        for part in [
            "WARN",
            "net.core.rmem_max",
            "net.core.wmem_max",
            &format!("wanted={wanted}"),
        ] {
            assert!(lines[0].contains(part), "{part} in {}", lines[0]);
        }
    });
}
