//! Takes TCP connections; each becomes a stream of one of the KCP sessions with the server.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use kcp::udp::{Options, Session as KcpSession};
use mux::smux::io::{Session, Stream};
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};

use super::{
    REST,
    options::{ClientOptions, resolve},
    relay::relay,
    stack,
};

/// A client that listens.
pub(crate) struct Client {
    listener: TcpListener,
    options: ClientOptions,
    kcp: Options,
    /// One place per connection; the round goes on at `next`.
    sessions: Vec<Option<(Arc<Session>, Instant)>>,
    next: usize,
}

impl Client {
    /// Checks the options and listens.
    pub(crate) async fn bind(options: ClientOptions) -> io::Result<Self> {
        let kcp = options.tunnel.kcp((128, 512))?;
        let listener = TcpListener::bind(resolve(&options.localaddr).await?).await?;
        eprintln!("listening on: {}", listener.local_addr()?);
        Ok(Self {
            listener,
            kcp,
            sessions: vec![None; usize::from(options.conn)],
            next: 0,
            options,
        })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves without end.
    pub(crate) async fn run(mut self) {
        loop {
            let (tcp, from) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    eprintln!("accept: {error}");
                    sleep(REST).await;
                    continue;
                }
            };
            match self.session().await {
                Ok(session) => {
                    let wait = Duration::from_secs(self.options.tunnel.closewait);
                    let quiet = self.options.tunnel.quiet;
                    tokio::spawn(serve(tcp, from, session, wait, quiet));
                }
                Err(error) => eprintln!("no session with {}: {error}", self.options.remoteaddr),
            }
        }
    }

    /// The next session in the round, made anew if it has ended or expired.
    async fn session(&mut self) -> io::Result<Arc<Session>> {
        self.next = (self.next + 1) % self.sessions.len();
        let expiry = Duration::from_secs(self.options.autoexpire);
        if let Some((session, since)) = &self.sessions[self.next] {
            let expired = !expiry.is_zero() && since.elapsed() >= expiry;
            if !session.is_closed() && !expired {
                return Ok(Arc::clone(session));
            }
        }
        if let Some((old, _)) = self.sessions[self.next].take() {
            tokio::spawn(scavenge(old, Duration::from_secs(self.options.scavengettl)));
        }
        let remote = resolve(&self.options.remoteaddr).await?;
        let kcp = KcpSession::connect(remote, self.kcp.clone())?;
        let session = Arc::new(stack(kcp, &self.options.tunnel, mux::Side::Initiator));
        self.sessions[self.next] = Some((Arc::clone(&session), Instant::now()));
        Ok(session)
    }
}

async fn serve(
    tcp: TcpStream,
    from: SocketAddr,
    session: Arc<Session>,
    wait: Duration,
    quiet: bool,
) {
    // Small writes of interactive programs must not wait for each other.
    let _ = tcp.set_nodelay(true);
    let joined = async {
        let stream: Stream = session.open().await?;
        // The session's end is not this connection's to hold up.
        drop(session);
        if !quiet {
            eprintln!("stream opened: {from}");
        }
        relay(tcp, stream, wait).await
    };
    let result = joined.await;
    if !quiet {
        match result {
            Ok(()) => eprintln!("stream closed: {from}"),
            Err(error) => eprintln!("stream closed: {from}: {error}"),
        }
    }
}

/// Lets an expired session end with its last stream, or at the end of its time.
async fn scavenge(session: Arc<Session>, time: Duration) {
    let began = Instant::now();
    while session.stream_count() > 0 && began.elapsed() < time && !session.is_closed() {
        sleep(Duration::from_secs(1)).await;
    }
    session.close();
}
