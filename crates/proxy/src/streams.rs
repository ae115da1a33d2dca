//! Connections that carry no HTTP, or none that is looked at: an upstream is chosen by listener and server name, then bytes are copied.

use std::{net::SocketAddr, rc::Rc};

use route::{Outcome, PickRequest, Report, Tried};
use sniff::tls::{HelloSniffer, Limits};
use tokio::io::AsyncReadExt;

use crate::{
    buffer::Input,
    conn::Conn,
    tunnel::{self, TunnelEnd},
    visitor::About,
    worker::Worker,
};

/// Carries a connection to its upstream and back until both have ended it.
pub(crate) async fn carry(
    worker: &Rc<Worker>,
    mut stream: net::Stream,
    about: &About,
    wants_name: bool,
) {
    let local = worker.local();
    let times = local
        .site
        .stream_times
        .get(usize::from(about.listener))
        .copied()
        .unwrap_or_default();
    let mut first = Vec::new();
    let mut name = None;
    if wants_name {
        match tokio::time::timeout(times.hello, hello(&mut stream, &mut first)).await {
            Ok(Some(found)) => name = found,
            _ => return,
        }
    }
    let found = local
        .site
        .streams
        .find(about.listener, name.as_deref().map(str::as_bytes));
    let Some(upstream) = found.and_then(|id| local.upstream(id)) else {
        if wants_name {
            let alert = sniff::tls::alert(sniff::tls::AlertDescription::UnrecognizedName);
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, &alert).await;
        }
        return;
    };
    let now = worker.clock.coarse();
    let Ok(_admitted) = upstream.try_enter(now) else {
        worker.metrics.proxy_unavailable_total.add_one();
        return stream.abort();
    };
    let mut tried = Tried::default();
    for _ in 0..ATTEMPTS {
        let visitor = Some((about.peer, about.local));
        let Some(picked) = upstream.pick(&PickRequest {
            now: worker.clock.coarse(),
            key: key(about.peer),
            sticky: None,
            tried,
            random: rand::random(),
        }) else {
            break;
        };
        let server = picked.server;
        let opened = upstream
            .connect_bytes(
                server,
                visitor,
                times.connect,
                &worker.clock,
                &worker.metrics,
            )
            .await;
        let now = worker.clock.coarse();
        let Ok(mut lease) = opened else {
            upstream.report(server, Report::Unreachable, now);
            picked.finish(now, Outcome::Failed);
            tried.insert(server);
            continue;
        };
        upstream.report(server, Report::Good, now);
        let mut up = Input::default();
        up.fill(&first);
        let mut visitor = Conn::Socket(stream);
        let deadline = worker.clock.deadline();
        let (end, _) = tunnel::run(
            &mut visitor,
            &mut lease.conn,
            up,
            Input::default(),
            Some(times.idle),
            &deadline,
        )
        .await;
        if !matches!(end, TunnelEnd::Finished) {
            visitor.abort();
            lease.conn.abort();
        }
        return;
    }
    worker.metrics.proxy_unavailable_total.add_one();
    stream.abort();
}

async fn hello(stream: &mut net::Stream, first: &mut Vec<u8>) -> Option<Option<String>> {
    let mut sniffer = HelloSniffer::new(Limits::default());
    loop {
        if !first.is_empty() {
            match sniffer.advance(first) {
                Ok(Some(hello)) => return Some(hello.server_name),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "no ClientHello on a passthrough port");
                    return None;
                }
            }
        }
        match stream.read_buf(first).await {
            Ok(1..) => {}
            _ => return None,
        }
    }
}

fn key(peer: SocketAddr) -> Option<u64> {
    route::HashKey::Ip.of(peer.ip(), &route::NoHeaders)
}

/// Servers that are tried.
const ATTEMPTS: usize = 3;
