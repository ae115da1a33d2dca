//! Who may come in: each first packet is ignored, refused, asked for a proof of its address, or let into a handshake of bounded time.

use std::{rc::Rc, sync::Arc};

use net::RouteMtu;
use quinn::{
    Connecting, ConnectionError, VarInt, ZeroRttAccepted,
    crypto::rustls::{HandshakeData, QuicServerConfig},
};
use tokio::sync::{mpsc::Sender, oneshot};

use super::{ALPN_H3, Established, Incoming, Inner, Shared, config::Config, packet, stats::count};

/// Takes connections until the endpoint is closed or told to take no more.
pub(super) async fn run(inner: Rc<Inner>, arrived: Sender<Incoming>) {
    let shared = Arc::clone(&inner.server.shared);
    let mut prepared = Prepared::new(&shared);
    loop {
        let incoming = tokio::select! {
            biased;
            () = shared.stop.wait() => break,
            () = arrived.closed() => break,
            incoming = inner.quinn.accept() => incoming,
        };
        let Some(incoming) = incoming else { return };
        let counters = &shared.counters;
        let validated = incoming.remote_address_validated();
        match decide(
            &shared.config,
            inner.pending.get(),
            inner.quinn.open_connections(),
            validated,
        ) {
            Decision::Ignore => {
                count(&counters.ignored);
                incoming.ignore();
            }
            Decision::Refuse => {
                count(&counters.refused);
                incoming.refuse();
            }
            Decision::Retry => {
                count(&counters.retried);
                // Only a validated address cannot be asked again.
                let _ = incoming.retry();
            }
            Decision::Take => match prepare(&mut prepared, &shared, incoming) {
                Ok(connecting) => {
                    let guard = Pending::new(&inner);
                    tokio::task::spawn_local(handshake(guard, connecting, arrived.clone()));
                }
                Err(error) => {
                    count(&counters.failed);
                    tracing::debug!(%error, "a QUIC connection was not taken");
                }
            },
        }
    }
    // New clients hear nothing: another process may listen on the same socket.
    inner.quinn.set_server_config(None);
}

/// Takes it with the cryptography of the moment, and packets as large as the way to it may carry.
fn prepare(
    prepared: &mut Prepared,
    shared: &Shared,
    incoming: quinn::Incoming,
) -> Result<Connecting, ConnectionError> {
    let largest = packet::largest(
        &mut prepared.routes,
        shared.config.transport.largest_packet,
        incoming.remote_address(),
    );
    incoming.accept_with(prepared.config(shared, largest))
}

/// Configurations that connections are taken with.
///
/// A token is bound to the configuration whose key made it; the endpoint's own is used to judge it, so these are clones of one that differ in nothing
/// but the cryptography (after a reload) and the largest packet.
struct Prepared {
    crypto: Arc<QuicServerConfig>,
    base: quinn::ServerConfig,
    by_largest: Vec<(u16, Arc<quinn::ServerConfig>)>,
    routes: RouteMtu,
}

impl Prepared {
    fn new(shared: &Shared) -> Self {
        let crypto = shared.tls.current();
        Self {
            base: shared.config.quinn(crypto.clone(), &shared.token_key),
            crypto,
            by_largest: Vec::new(),
            routes: RouteMtu::new(),
        }
    }

    fn config(&mut self, shared: &Shared, largest: u16) -> Arc<quinn::ServerConfig> {
        let current = shared.tls.current();
        if !Arc::ptr_eq(&current, &self.crypto) {
            self.base.crypto = current.clone();
            self.crypto = current;
            self.by_largest.clear();
        }
        let known = self.by_largest.iter().find(|(known, _)| *known == largest);
        if let Some((_, config)) = known {
            return Arc::clone(config);
        }
        let mut config = self.base.clone();
        config.transport_config(Arc::new(shared.config.transport.quinn(largest)));
        let config = Arc::new(config);
        if self.by_largest.len() >= PREPARED {
            self.by_largest.clear();
        }
        self.by_largest.push((largest, Arc::clone(&config)));
        config
    }
}

/// Routes differ by the interfaces of the machine, of which it has a few.
const PREPARED: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Ignore,
    Refuse,
    Retry,
    Take,
}

fn decide(config: &Config, pending: usize, open: usize, validated: bool) -> Decision {
    if pending >= config.handshakes {
        Decision::Ignore
    } else if open >= config.connections {
        Decision::Refuse
    } else if pending >= config.retry_from && !validated {
        Decision::Retry
    } else {
        Decision::Take
    }
}

/// Counts a handshake that is under way.
struct Pending {
    inner: Rc<Inner>,
}

impl Pending {
    fn new(inner: &Rc<Inner>) -> Self {
        inner.pending.set(inner.pending.get() + 1);
        Self {
            inner: Rc::clone(inner),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.inner
            .pending
            .set(self.inner.pending.get().saturating_sub(1));
    }
}

async fn handshake(pending: Pending, connecting: Connecting, arrived: Sender<Incoming>) {
    let shared = Arc::clone(&pending.inner.server.shared);
    let time = shared.config.handshake_time;
    let result = tokio::time::timeout(time, establish(connecting)).await;
    let incoming = match result {
        Ok(Ok(incoming)) => incoming,
        Ok(Err(error)) => {
            count(&shared.counters.failed);
            return tracing::debug!(%error, "a QUIC handshake failed");
        }
        Err(_) => {
            count(&shared.counters.failed);
            return tracing::debug!("a QUIC handshake took too long");
        }
    };
    count(&shared.counters.accepted);
    let connection = incoming.incoming.connection.clone();
    if arrived.send(incoming.incoming).await.is_err() {
        connection.close(VarInt::from_u32(0), b"not served");
    }
    if let Some((accepted, tell)) = incoming.rest {
        match tokio::time::timeout(time, accepted).await {
            Ok(_) => {
                let _ = tell.send(());
            }
            Err(_) => connection.close(VarInt::from_u32(0), b"the handshake took too long"),
        }
    }
    drop(pending);
    connection.closed().await;
    count(&shared.counters.ended);
}

/// A connection, and what is left of its handshake.
struct Begun {
    incoming: Incoming,
    rest: Option<(ZeroRttAccepted, oneshot::Sender<()>)>,
}

/// HTTP/3 is given its connection before the handshake's end: it knows what to do with early requests. All others wait.
async fn establish(mut connecting: Connecting) -> Result<Begun, ConnectionError> {
    let data = connecting.handshake_data().await?;
    let (alpn, server_name) = match data.downcast::<HandshakeData>() {
        Ok(data) => (data.protocol.unwrap_or_default(), data.server_name),
        Err(_) => (Vec::new(), None),
    };
    let (connection, rest, established) = match early(connecting, &alpn) {
        Ok((connection, accepted)) => {
            let (tell, told) = oneshot::channel();
            (connection, Some((accepted, tell)), Some(Established(told)))
        }
        Err(connecting) => (connecting.await?, None, None),
    };
    let incoming = Incoming {
        connection,
        alpn,
        server_name,
        established,
    };
    Ok(Begun { incoming, rest })
}

fn early(
    connecting: Connecting,
    alpn: &[u8],
) -> Result<(quinn::Connection, ZeroRttAccepted), Connecting> {
    if alpn == ALPN_H3 {
        connecting.into_0rtt()
    } else {
        Err(connecting)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn load_asks_for_proof_then_turns_away() {
        let config = Config {
            connections: 10,
            handshakes: 4,
            retry_from: 2,
            handshake_time: Duration::from_secs(1),
            ..Config::default()
        };
        assert_eq!(decide(&config, 0, 0, false), Decision::Take);
        assert_eq!(decide(&config, 2, 2, false), Decision::Retry);
        assert_eq!(decide(&config, 2, 2, true), Decision::Take);
        assert_eq!(decide(&config, 2, 10, true), Decision::Refuse);
        assert_eq!(decide(&config, 4, 4, true), Decision::Ignore);
    }
}
