//! Connections of a client: which kind to use for a server, and how each is made.

use std::{
    io,
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use net::Shutdown;
use tokio::{task::JoinHandle, time::timeout};

use super::{Client, Http3, Origin, RequestError, Server, Tcp, Versions};
use crate::{ALPN_H3, ConnectError, h3::client::Connection, http::tcp::LocalTasks};

impl Client {
    /// A connection to send a request on.
    pub(super) async fn connection(
        &self,
        origin: &Origin,
        server: &Rc<Server>,
        versions: Versions,
        may_be_early: bool,
    ) -> Result<Chosen, RequestError> {
        let options = &self.inner.options;
        if let Some(http3) = server.usable(may_be_early).await {
            return Ok(Chosen::Http3(http3));
        }
        if versions == Versions::OnlyHttp3 {
            let http3 = self.connect_http3(origin, server, may_be_early).await?;
            return Ok(Chosen::Http3(http3));
        }
        if let Some(tcp) = server.kept_tcp() {
            if !server.avoids_quic() && !server.asking.get() {
                // Complete: no request may wait for a server that is silent over QUIC while TCP works.
                self.attempt_http3(origin, server, false);
            }
            return Ok(Chosen::Tcp(tcp));
        }
        if server.avoids_quic() {
            return Ok(Chosen::Tcp(self.connect_tcp(origin, server).await?));
        }
        // It goes on when TCP was faster, so that the next request has it.
        let attempt = self.attempt_http3(origin, server, may_be_early);
        let mut attempt = std::pin::pin!(async move {
            match attempt.await {
                Ok(result) => result,
                Err(_) => Err(RequestError::Late),
            }
        });
        let first = timeout(options.head_start, attempt.as_mut()).await;
        let tcp = self.connect_tcp(origin, server);
        match first {
            Ok(Ok(http3)) => Ok(Chosen::Http3(http3)),
            Ok(Err(_)) => Ok(Chosen::Tcp(tcp.await?)),
            Err(_) => {
                let mut tcp = std::pin::pin!(tcp);
                tokio::select! {
                    http3 = attempt.as_mut() => match http3 {
                        Ok(http3) => Ok(Chosen::Http3(http3)),
                        Err(_) => Ok(Chosen::Tcp(tcp.await?)),
                    },
                    connected = tcp.as_mut() => match connected {
                        Ok(tcp) => Ok(Chosen::Tcp(tcp)),
                        Err(error) => attempt.await.map(Chosen::Http3).map_err(|_| error),
                    },
                }
            }
        }
    }

    /// Connects over QUIC whether or not anybody waits for it; a server that is silent is avoided for some time.
    fn attempt_http3(
        &self,
        origin: &Origin,
        server: &Rc<Server>,
        may_be_early: bool,
    ) -> JoinHandle<Result<Http3, RequestError>> {
        server.asking.set(true);
        let (client, origin, server) = (self.clone(), origin.clone(), Rc::clone(server));
        tokio::task::spawn_local(async move {
            let result = client.connect_http3(&origin, &server, may_be_early).await;
            server.asking.set(false);
            if result.is_err() {
                let until = Instant::now() + client.inner.options.avoid_time;
                *server.avoid_until.borrow_mut() = Some(until);
            }
            result
        })
    }

    /// One at a time for each server; who waited finds the connection.
    async fn connect_http3(
        &self,
        origin: &Origin,
        server: &Rc<Server>,
        may_be_early: bool,
    ) -> Result<Http3, RequestError> {
        let options = &self.inner.options;
        let _connecting = server.connecting.lock().await;
        if let Some(http3) = server.usable(may_be_early).await {
            return Ok(http3);
        }
        let addresses = resolve(origin).await?;
        let mut last = None;
        for address in addresses {
            let connected = self.connect_quic(address, origin, may_be_early).await;
            match connected {
                Ok((quinn, accepted)) => {
                    let connection = Connection::start(quinn, options.http3.clone()).await?;
                    let established = Shutdown::new();
                    let http3 = Http3 {
                        connection,
                        established: established.clone(),
                    };
                    match accepted {
                        None => established.trigger(),
                        Some(accepted) => {
                            let limit = options.connect_time.min(EARLY);
                            let connection = http3.connection.clone();
                            tokio::task::spawn_local(async move {
                                match timeout(limit, accepted).await {
                                    Ok(true) => established.trigger(),
                                    // Its control stream is lost with the rest: of no use any more.
                                    Ok(false) | Err(_) => connection.close(),
                                }
                            });
                        }
                    }
                    *server.http3.borrow_mut() = Some(http3.clone());
                    return Ok(http3);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or(RequestError::Late, RequestError::Quic))
    }

    async fn connect_quic(
        &self,
        address: SocketAddr,
        origin: &Origin,
        may_be_early: bool,
    ) -> Result<(quinn::Connection, Option<quinn::ZeroRttAccepted>), ConnectError> {
        let name = origin.bare_host();
        if may_be_early {
            self.inner
                .quic
                .connect_early(address, name, &[ALPN_H3])
                .await
        } else {
            let connection = self.inner.quic.connect(address, name, &[ALPN_H3]).await?;
            Ok((connection, None))
        }
    }

    pub(super) async fn connect_tcp(
        &self,
        origin: &Origin,
        server: &Rc<Server>,
    ) -> Result<Tcp, RequestError> {
        let connecting = self.connect_tcp_in_any_time(origin, server);
        let connected = timeout(self.inner.options.connect_time, connecting).await;
        connected.map_err(|_| RequestError::Late)?
    }

    async fn connect_tcp_in_any_time(
        &self,
        origin: &Origin,
        server: &Rc<Server>,
    ) -> Result<Tcp, RequestError> {
        let options = &self.inner.options;
        let addresses = resolve(origin).await?;
        let stream = net::connect_tcp(&addresses, None).await?;
        let _ = net::tune_visitor(&stream);
        let stream = if origin.secure {
            self.inner.tls.connect(stream, origin.bare_host()).await?
        } else {
            stream
        };
        if stream.alpn() == Some(b"h2") {
            let mut builder = http2::Builder::new(LocalTasks);
            builder
                .timer(TokioTimer::new())
                .max_header_list_size(
                    u32::try_from(options.http3.section_bytes).unwrap_or(u32::MAX),
                )
                .keep_alive_interval(options.transport.idle);
            let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
            tokio::task::spawn_local(connection);
            *server.http2.borrow_mut() = Some(sender.clone());
            Ok(Tcp::Two(sender))
        } else {
            let mut builder = http1::Builder::new();
            builder
                .max_headers(options.http3.fields)
                .max_buf_size(options.http3.section_bytes.max(8192));
            let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
            tokio::task::spawn_local(connection);
            Ok(Tcp::One(sender))
        }
    }
}

/// What a request goes out on.
pub(super) enum Chosen {
    Http3(Http3),
    Tcp(Tcp),
}

impl Server {
    /// The QUIC connection, if there is one that takes requests; complete, unless the request may be early.
    async fn usable(&self, may_be_early: bool) -> Option<Http3> {
        let http3 = self.http3.borrow().clone()?;
        if !http3.connection.takes_requests() {
            self.http3.borrow_mut().take();
            return None;
        }
        if !may_be_early {
            tokio::select! {
                () = http3.established.wait() => {}
                _ = http3.connection.quinn().closed() => return None,
            }
        }
        Some(http3)
    }

    pub(super) fn kept_tcp(&self) -> Option<Tcp> {
        let mut two = self.http2.borrow_mut();
        if let Some(sender) = &*two {
            if !sender.is_closed() {
                return Some(Tcp::Two(sender.clone()));
            }
            *two = None;
        }
        let mut kept = self.http1.borrow_mut();
        while let Some(sender) = kept.pop() {
            if sender.is_ready() {
                return Some(Tcp::One(sender));
            }
        }
        None
    }

    fn avoids_quic(&self) -> bool {
        self.avoid_until
            .borrow()
            .is_some_and(|until| Instant::now() < until)
    }
}

async fn resolve(origin: &Origin) -> Result<Vec<SocketAddr>, RequestError> {
    let failed = |error| RequestError::Resolve {
        host: origin.host.clone(),
        error,
    };
    let found = net::lookup_host((origin.bare_host(), origin.port)).await;
    let addresses: Vec<_> = found.map_err(failed)?.take(ADDRESSES).collect();
    if addresses.is_empty() {
        return Err(failed(io::ErrorKind::NotFound.into()));
    }
    Ok(addresses)
}

/// How long a server that is known may stay silent before it is asked anew: long for any path, short for whoever waits.
const EARLY: Duration = Duration::from_secs(3);
/// Addresses of a name that are tried.
const ADDRESSES: usize = 8;
