//! Connections that carry no HTTP, or none that is looked at: an upstream is chosen by listener and server name, then bytes are copied.

use std::{net::SocketAddr, rc::Rc, time::Duration};

use route::{Outcome, PickRequest, Report, Tried};
use sniff::tls::{HelloSniffer, Limits};
use tokio::io::AsyncReadExt;

use crate::{
    buffer::Input,
    conn::Conn,
    log::{EndedBy, Entry, Phase},
    site::StreamTimes,
    tunnel::{self, Moved, TunnelEnd},
    upstream::{Lease, Picked, Upstream},
    visitor::About,
    worker::{Local, Worker},
};

/// Carries a connection to its upstream and back until both have ended it.
pub(crate) async fn carry(
    worker: &Rc<Worker>,
    stream: net::Stream,
    about: &About,
    wants_name: bool,
) {
    let local = worker.local();
    let mut passage = Passage {
        worker,
        about,
        local: &local,
        wants_name,
        began: worker.clock.precise(),
        name: None,
    };
    let told = passage.run(stream).await;
    passage.note(&told);
}

/// One connection on its way.
struct Passage<'a> {
    worker: &'a Rc<Worker>,
    about: &'a About,
    local: &'a Local,
    wants_name: bool,
    began: Duration,
    /// The server name that it asks for.
    name: Option<String>,
}

/// What the log is told of it.
#[derive(Default)]
struct Told {
    moved: Moved,
    server: String,
    /// When its server was there.
    reached: Option<Duration>,
    ended_by: EndedBy,
    phase: Phase,
}

impl Told {
    fn ended(by: EndedBy, phase: Phase) -> Self {
        Self {
            ended_by: by,
            phase,
            ..Self::default()
        }
    }
}

impl Passage<'_> {
    async fn run(&mut self, mut stream: net::Stream) -> Told {
        let times = &self.local.site.stream_times;
        let Self { worker, about, .. } = *self;
        let times = times
            .get(usize::from(about.listener))
            .copied()
            .unwrap_or_default();
        let mut first = Vec::new();
        if self.wants_name {
            match tokio::time::timeout(times.hello, hello(&mut stream, &mut first)).await {
                Ok(Some(found)) => self.name = found,
                Ok(None) => return Told::ended(EndedBy::Visitor, Phase::Request),
                Err(_) => return Told::ended(EndedBy::Proxy, Phase::Request),
            }
        }
        let name = self.name.as_deref().map(str::as_bytes);
        let found = self.local.site.streams.find(about.listener, name);
        let Some(upstream) = found.and_then(|id| self.local.upstream(id)) else {
            if self.wants_name {
                let alert = sniff::tls::alert(sniff::tls::AlertDescription::UnrecognizedName);
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, &alert).await;
            }
            return Told::ended(EndedBy::Proxy, Phase::Request);
        };
        let now = worker.clock.coarse();
        let Ok(_admitted) = upstream.try_enter(now) else {
            worker.metrics.proxy_unavailable_total.add_one();
            stream.abort();
            return Told::ended(EndedBy::Proxy, Phase::Queue);
        };
        let Some((picked, lease)) = self.reach(upstream, times).await else {
            worker.metrics.proxy_unavailable_total.add_one();
            stream.abort();
            return Told::ended(EndedBy::Upstream, Phase::Connect);
        };
        let mut told = Told {
            server: upstream.server(picked.server).spec.name.to_string(),
            reached: Some(worker.clock.precise().saturating_sub(self.began)),
            phase: Phase::Data,
            ..Told::default()
        };
        (told.ended_by, told.moved) = self.copy(stream, lease, &first, times).await;
        told
    }

    /// A server that accepts the connection; some are tried.
    async fn reach(&self, upstream: &Rc<Upstream>, times: StreamTimes) -> Option<(Picked, Lease)> {
        let Self { worker, about, .. } = *self;
        let mut tried = Tried::default();
        for _ in 0..ATTEMPTS {
            let visitor = Some((about.peer, about.local));
            let picked = upstream.pick(&PickRequest {
                now: worker.clock.coarse(),
                key: key(about.peer),
                sticky: None,
                tried,
                random: rand::random(),
            })?;
            let server = picked.server;
            let (clock, metrics) = (&worker.clock, &worker.metrics);
            let opened = upstream
                .connect_bytes(server, visitor, times.connect, clock, metrics)
                .await;
            let now = worker.clock.coarse();
            match opened {
                Ok(lease) => {
                    upstream.report(server, Report::Good, now);
                    return Some((picked, lease));
                }
                Err(_) => {
                    upstream.report(server, Report::Unreachable, now);
                    picked.finish(now, Outcome::Failed);
                    tried.insert(server);
                }
            }
        }
        None
    }

    async fn copy(
        &self,
        stream: net::Stream,
        mut lease: Lease,
        first: &[u8],
        times: StreamTimes,
    ) -> (EndedBy, Moved) {
        let mut up = Input::default();
        up.fill(first);
        let mut visitor = Conn::Socket(stream);
        let deadline = self.worker.clock.deadline();
        let (end, moved) = tunnel::run(
            &mut visitor,
            &mut lease.conn,
            up,
            Input::default(),
            Some(times.idle),
            &deadline,
        )
        .await;
        let by = match end {
            TunnelEnd::Finished => return (EndedBy::Nobody, moved),
            TunnelEnd::Idle => EndedBy::Proxy,
            TunnelEnd::BrokenUp => EndedBy::Upstream,
            TunnelEnd::BrokenDown => EndedBy::Visitor,
        };
        visitor.abort();
        lease.conn.abort();
        (by, moved)
    }

    /// A line of the access log: the listener's address stands where a request has its target.
    fn note(&self, told: &Told) {
        let Some(lines) = &self.worker.lines else {
            return;
        };
        let took = self.worker.clock.precise().saturating_sub(self.began);
        let target = self.about.local.to_string();
        lines.add(&Entry {
            method: if self.wants_name { b"TLS" } else { b"TCP" },
            target: target.as_bytes(),
            version: "-",
            host: self.name.as_deref().unwrap_or_default().as_bytes(),
            sent: told.moved.down,
            received: told.moved.up,
            took,
            head_after: told.reached,
            upstream: &told.server,
            ended_by: told.ended_by,
            phase: told.phase,
            ..Entry::no_request(self.about.peer.ip(), 0)
        });
    }
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
