//! A client's link on the server: handshake, admission, and the worker it belongs to. What the client says on it is heard in `client`.

use std::{
    cell::Cell,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use link::{
    Accepting, Fec, Handler, HandshakeFailure, Link, LinkEnd, LinkOptions, Side, Transport,
};
use net::LinkTuning;
use tunnel::{
    AuthRequest, BindingPolicy, ChannelBinding, ControlMessage, EXPORTER_LABEL, Features, Grant,
    Key, Nonce, RejectCode, Rejection, ServerConfig, ServerEstablished, ServerHandshake, SessionId,
    Windows,
};

mod client;

use client::Client;

use crate::{
    auth::{Decision, decide},
    complaints::Complaint,
    gate::Place,
    server::Shared,
    session::{Account, Monitor, Session},
    worker::Worker,
};

/// Takes a connection whose first bytes said that it is a link. Ends when the link does, or has moved to its worker.
/// `place` is given back when the client has been let in, or not.
pub(crate) async fn accept(
    worker: &Rc<Worker>,
    stream: impl Into<Transport>,
    address: SocketAddr,
    place: Place,
) {
    let stream = stream.into();
    let server = &worker.server;
    let limit = server.timeouts().handshake;
    // Outlives the handshake, which may be cut off at any point: a session that was begun must not be forgotten.
    let mut entered = None;
    let admitted = {
        let _open = server.metrics.handshakes_open.enter();
        let admitting = Box::pin(admit(server, stream, address, &mut entered));
        tokio::time::timeout(limit, admitting).await
    };
    drop(place);
    let link = match admitted {
        Ok(Ok(link)) => link,
        failed => {
            server.metrics.handshake_failures_total.add_one();
            if server.complaints.hear(Complaint::Handshake, address.ip()) {
                let error = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => format!("its handshake took longer than {limit:?}"),
                };
                tracing::info!(%error, peer = %address, "a link was not established");
            }
            None
        }
    };
    let Some(session) = entered else { return };
    if let Some((stream, established)) = link {
        stream.peer_is_known();
        let place = if stream.can_move() {
            session.place_link(worker.index)
        } else {
            session.place_link_at(worker.index)
        };
        let target = place.worker;
        session.arrival_ended();
        if target == worker.index {
            return run(worker, stream, established, session).await;
        }
        if bring(worker, target, stream, established, &session) {
            return;
        }
        place.give_back();
    } else {
        session.arrival_ended();
    }
    if session.link_count() == 0 {
        leave(server, &session).await;
    }
}

/// Moves a link to the worker where its place is; returns whether it is on its way.
fn bring(
    worker: &Worker,
    target: usize,
    stream: Transport,
    established: ServerEstablished,
    session: &Arc<Session>,
) -> bool {
    let detached = stream.into_stream().and_then(|stream| stream.detach().ok());
    let Some((stream, handle)) = detached.zip(worker.server.handle(target)) else {
        return false;
    };
    let session = Arc::clone(session);
    let sent = handle.spawn(move || async move {
        let Some(worker) = Worker::current() else {
            return session.link_ended(target);
        };
        match stream.attach() {
            Ok(stream) => run(&worker, stream.into(), established, session).await,
            Err(error) => {
                tracing::warn!(%error, "a link was lost on its way to its worker");
                session.link_ended(target);
                if session.link_count() == 0 {
                    leave(&worker.server, &session).await;
                }
            }
        }
    });
    sent.is_ok()
}

type Admitted = (Transport, ServerEstablished);

/// `entered` is the session as soon as the client has been let in.
async fn admit(
    server: &Shared,
    stream: Transport,
    address: SocketAddr,
    entered: &mut Option<Arc<Session>>,
) -> Result<Option<Admitted>, HandshakeFailure> {
    let tuning = LinkTuning {
        notsent_lowat: Some(link::UNSENT),
        ..LinkTuning::default()
    };
    if let Some(stream) = stream.as_stream() {
        net::tune_link(stream, &tuning)?;
    }
    let binding = match stream.channel_binding(EXPORTER_LABEL) {
        Some(exported) => ChannelBinding::TlsExporter(exported),
        None => ChannelBinding::None,
    };
    // Whether to bind is the client's choice, which its proof covers: one that checked the certificate of a `wss://` server need not,
    // because something between may end TLS; one that did not check it always binds. KCP has no certificates, and nothing may end QUIC between, so there it is no choice.
    let config = ServerConfig {
        binding: if stream.needs_binding() {
            BindingPolicy::Always
        } else {
            BindingPolicy::Optional
        },
        features: Features::HTTP_RULES | Features::DATAGRAM_FEC,
        ..ServerConfig::default()
    };
    let machine = ServerHandshake::new(config, Nonce(rand::random()), binding);
    let mut accepting = Accepting::new(stream, machine);
    let request = accepting.request().await?;
    let id = request.client.id.as_str().to_owned();
    let peer = address.ip();
    let hear = |complaint| server.complaints.hear(complaint, peer);
    match decide(server, &request, peer).await {
        Decision::Known(key, account) => {
            enter(
                server,
                accepting,
                &request,
                &account,
                Some(key),
                peer,
                entered,
            )
            .await
        }
        Decision::Vouched(account) | Decision::Unverified(account) => {
            enter(server, accepting, &request, &account, None, peer, entered).await
        }
        Decision::WrongSecret(key) => {
            if hear(Complaint::WrongSecret) {
                tracing::warn!(id, peer = %address, "a client was refused: its secret is wrong");
            }
            let nothing = Grant::new(SessionId::from_bytes([0; 16]));
            accepting
                .refuse(|machine| machine.accept_with_key(&key, nothing))
                .await;
            Ok(None)
        }
        Decision::UnknownId => {
            if hear(Complaint::UnknownId) {
                tracing::warn!(id, peer = %address, "a client was refused: no user has this id");
            }
            accepting.refuse(ServerHandshake::reject_unknown_id).await;
            Ok(None)
        }
        Decision::Refused(rejection) => {
            if hear(Complaint::Refused) {
                tracing::warn!(id, peer = %address, reason = %rejection.code, "a client was refused");
            }
            accepting.refuse(|machine| machine.reject(rejection)).await;
            Ok(None)
        }
    }
}

async fn enter(
    server: &Shared,
    accepting: Accepting,
    request: &AuthRequest,
    account: &Arc<Account>,
    key: Option<Key>,
    peer: IpAddr,
    entered: &mut Option<Arc<Session>>,
) -> Result<Option<Admitted>, HandshakeFailure> {
    if server.stopping.is_triggered() {
        let rejection =
            Rejection::new(RejectCode::ShuttingDown, "").retry_after(Duration::from_millis(100));
        accepting.refuse(|machine| machine.reject(rejection)).await;
        return Ok(None);
    }
    let fresh = SessionId::from_bytes(rand::random());
    let session = match server
        .registry
        .admit(account, request.client.session, fresh)
    {
        Ok(session) => entered.insert(session),
        Err(not_admitted) => {
            if not_admitted.code() == RejectCode::TooManyLinks {
                server.metrics.limit_links_total.add_one();
            }
            if server.complaints.hear(Complaint::NotAdmitted, peer) {
                tracing::warn!(id = account.id, reason = %not_admitted.code(), "a link was refused");
            }
            let rejection =
                Rejection::new(not_admitted.code(), "").retry_after(Duration::from_secs(3));
            accepting.refuse(|machine| machine.reject(rejection)).await;
            return Ok(None);
        }
    };
    let limits = account.limits();
    let grant = Grant {
        link_number: u16::try_from(session.next_link_number()).unwrap_or(u16::MAX),
        max_links: limits.connections,
        wanted_links: u16::try_from(server.worker_count())
            .ok()
            .map(|workers| workers.min(limits.connections)),
        windows: WINDOWS,
        max_streams: limits.streams,
        ..Grant::new(session.id)
    };
    let answered = match &key {
        Some(key) => {
            accepting
                .answer(|machine| machine.accept_with_key(key, grant))
                .await
        }
        None => {
            accepting
                .answer(|machine| machine.accept_unverified(grant))
                .await
        }
    };
    answered.map(Some)
}

/// Runs a link on its worker until it ends.
async fn run(
    worker: &Rc<Worker>,
    stream: Transport,
    established: ServerEstablished,
    session: Arc<Session>,
) {
    let server = &worker.server;
    let (client, grant) = (&established.client, &established.grant);
    let options = LinkOptions {
        side: Side::Acceptor,
        config: mux::Config {
            stream_window: grant.windows.stream,
            link_window: grant.windows.link,
            peer_stream_window: client.windows.stream,
            peer_link_window: client.windows.link,
            keep_alive: grant.keepalive,
            max_streams: usize::try_from(session.account.limits().streams).unwrap_or(usize::MAX),
            ..mux::Config::default()
        },
        sweep_every: sweep_every(server),
        fec: server
            .live()
            .config
            .udp_fec
            .filter(|_| client.features.contains(Features::DATAGRAM_FEC))
            .and_then(|form| Fec::new(form.data, form.parity)),
    };
    let handler = Rc::new(Client {
        server: Arc::clone(server),
        session: Arc::clone(&session),
        left: Cell::new(false),
    });
    let monitor = Monitor::of(&stream);
    // Where nobody passes them on, its packets are read by whichever process is faster.
    let over_udp = !stream.can_move();
    let last = if stream.as_quic().is_some() {
        server.quic.cut.clone()
    } else {
        server.kcp.cut.clone()
    };
    let (link, driver) = Link::start(stream, &options, Rc::clone(&handler) as Rc<dyn Handler>);
    if let Some(monitor) = monitor {
        session.watch(grant.link_number, monitor.with(&link));
    }
    // Whoever comes back has not left.
    session.said_goodbye.store(false, Relaxed);
    worker.add_link(session.key, link.clone());
    let named = (session.key, grant.link_number);
    worker.on_leave(named, {
        let (handler, link) = (Rc::clone(&handler), link.clone());
        Rc::new(move |worker: &Worker| handler.depart(worker, &link))
    });
    session.change();
    server.metrics.links_total.add_one();
    tracing::info!(id = session.account.id, link = grant.link_number, transport = %client.transport,
        software = %client.software, links = session.link_count(), "a client's link is up");
    let end = {
        let _open = server.metrics.links_open.enter();
        let mut driver = driver;
        tokio::select! {
            end = &mut driver => end,
            () = last.wait(), if over_udp => {
                link.close();
                driver.await
            }
        }
    };
    worker.forget_leave(named);
    handler.leave(worker, &link);
    worker.remove_leaving(&link);
    session.unwatch(grant.link_number);
    match &end {
        LinkEnd::Closed | LinkEnd::PeerClosed => {
            tracing::info!(id = session.account.id, link = grant.link_number, reason = %end, "a client's link is down");
        }
        _ => {
            tracing::warn!(id = session.account.id, link = grant.link_number, reason = %end, "a client's link is down")
        }
    }
    if session.link_count() == 0 {
        leave(server, &session).await;
    }
}

/// The session's last link is gone: its names and ports are kept for a while, so that visitors wait instead of being refused. Not so
/// when the client has said that it leaves.
async fn leave(server: &Shared, session: &Arc<Session>) {
    let grace = if session.said_goodbye.load(Relaxed) {
        Duration::ZERO
    } else {
        GRACE
    };
    let seen = session.changes();
    if session.link_count() > 0 {
        return;
    }
    tokio::select! {
        () = tokio::time::sleep(grace) => {}
        () = server.stopping.wait() => {}
        () = session.changed_since(seen) => {}
    }
    if session.link_count() == 0
        && !session.ended.load(Relaxed)
        && server.registry.end_if_away(session)
    {
        tracing::info!(id = session.account.id, "a client has gone");
    }
}

/// Half the shortest idle time, so that a stream is ended at most half an idle time late.
fn sweep_every(server: &Shared) -> Duration {
    let idle = server.timeouts().idle.after.unwrap_or(MOST_SWEEP);
    (idle / 4).clamp(Duration::from_millis(250), MOST_SWEEP)
}

/// What a server is ready to receive: a stream may fill a path of 20 Mbit/s and 100 ms before its window grows; a link holds at most
/// this much for visitors that do not read.
const WINDOWS: Windows = Windows {
    stream: 256 << 10,
    link: 64 << 20,
};
/// How long a client that lost its last link keeps its names and ports.
const GRACE: Duration = Duration::from_secs(15);
const MOST_SWEEP: Duration = Duration::from_secs(10);

/// Sends a message on all links of this worker.
pub(crate) fn broadcast(worker: &Worker, message: &ControlMessage) {
    if let Ok(message) = message.encode() {
        worker
            .all_links()
            .iter()
            .for_each(|link| link.send_control(&message));
    }
}
