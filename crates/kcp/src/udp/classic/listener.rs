//! A socket that takes sessions from anybody who has the key.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::sync::mpsc;

use super::{kind::Classic, session::Session};
use crate::{
    Counters, Pipeline,
    arq::Conv,
    udp::{
        Clock, Options,
        driver::Driver,
        link::{Shared, lock},
        socket::Socket,
    },
};

/// Accepts sessions, one per remote address.
///
/// A session begins with the first datagram of it that carries data, so the client must speak first. The address and
/// conversation of a session that is gone are refused for a minute, as late datagrams look like new ones: a client that
/// comes back from the same port must choose another conversation, as kcp-go does. Dropping the listener ends accepting;
/// sessions go on.
#[derive(Debug)]
pub struct Listener {
    shared: Arc<Shared<Classic>>,
    accepts: mpsc::Receiver<Session>,
}

impl Listener {
    /// Listens on `local`. Must be called within a tokio runtime, where its task then runs.
    pub fn bind(local: SocketAddr, options: Options) -> io::Result<Self> {
        check(&options)?;
        let socket = Socket::bind(local, &options)?;
        let shared = Shared::new(Clock::start(), socket, Mutex::default())?;
        let (sender, accepts) = mpsc::channel(options.backlog.max(1));
        let kind = Classic::new(options, Some(sender));
        tokio::spawn(Driver::new(Arc::clone(&shared), kind));
        Ok(Self { shared, accepts })
    }

    /// The next session. Fails when the socket has.
    pub async fn accept(&mut self) -> io::Result<Session> {
        let gone = || {
            io::Error::new(
                io::ErrorKind::NotConnected,
                "the UDP socket of the KCP listener is closed",
            )
        };
        self.accepts.recv().await.ok_or_else(gone)
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local
    }

    /// What happened on the socket, and in sessions that are gone.
    pub fn counters(&self) -> Counters {
        lock(&self.shared.common).clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepts.close();
        self.shared.wake_driver();
    }
}

/// Refuses a configuration that no session could be made with.
pub(super) fn check(options: &Options) -> io::Result<()> {
    Pipeline::new(
        Conv(0),
        options.config.clone(),
        Arc::clone(&options.seal),
        [0; 32],
    )
    .map(|_| ())
    .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}
