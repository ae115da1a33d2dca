//! Takes KCP sessions; each stream of them becomes a connection to the service.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use kcp::udp::{Listener, Session as KcpSession};
use mux::smux::io::Stream;
use tokio::{
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::{
    options::{ServerOptions, resolve},
    relay::relay,
    stack,
};

/// A server that listens.
pub(crate) struct Server {
    listener: Listener,
    options: Arc<ServerOptions>,
}

impl Server {
    /// Checks the options and listens.
    pub(crate) async fn bind(options: ServerOptions) -> io::Result<Self> {
        let kcp = options.tunnel.kcp((1024, 1024))?;
        let listener = Listener::bind(resolve(&options.listen).await?, kcp)?;
        eprintln!("listening on: {}", listener.local_addr());
        let options = Arc::new(options);
        Ok(Self { listener, options })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves until the socket fails.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        loop {
            let session = self.listener.accept().await?;
            tokio::spawn(serve(session, Arc::clone(&self.options)));
        }
    }
}

/// All streams of one client. A client that says nothing is dropped by smux's keep-alive.
async fn serve(kcp: KcpSession, options: Arc<ServerOptions>) {
    let from = kcp.remote_addr();
    let session = stack(kcp, &options.tunnel, mux::Side::Acceptor);
    loop {
        match session.accept().await {
            Ok(stream) => {
                let options = Arc::clone(&options);
                tokio::spawn(async move {
                    let result = join(stream, &options).await;
                    if let Err(error) = result
                        && !options.tunnel.quiet
                    {
                        eprintln!("stream of {from}: {error}");
                    }
                });
            }
            Err(error) => {
                if !options.tunnel.quiet {
                    eprintln!("session of {from}: {error}");
                }
                return;
            }
        }
    }
}

async fn join(stream: Stream, options: &ServerOptions) -> io::Result<()> {
    let wait = Duration::from_secs(options.tunnel.closewait);
    // As kcptun does: what is no address is a unix socket's path.
    if !options.target.contains(':') {
        let service = timeout(DIAL, UnixStream::connect(Path::new(&options.target))).await??;
        return relay(service, stream, wait).await;
    }
    let service = timeout(DIAL, TcpStream::connect(&options.target)).await??;
    let _ = service.set_nodelay(true);
    relay(service, stream, wait).await
}

/// How long the service may take to accept.
const DIAL: Duration = Duration::from_secs(10);
