//! HTTP/3 visitors, on the UDP port of the same number as an https listener's. As with HTTP/2, each stream is made to look like an HTTP/1.1 connection
//! with one request; a WebSocket comes as an extended CONNECT (RFC 9220).
//!
//! What is no HTTP/3, or no message, is refused in crate `quic` and never gets here. Early data (0-RTT) may be a copy: safe methods go on with
//! `Early-Data: 1`, others are answered 425 (RFC 8470).

use std::{
    cell::{Cell, RefCell},
    fmt, io,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use h1::{Answer, Awaiting, ResponseBody, ResponseHead};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use net::tls::PeerCertificate;
use quic::h3::{
    Code, Exchange, Piece, Protocol, ReceiveHalf, SendHalf, Settings, server::Connection,
};
use route::Scheme;
use tokio::io::ReadBuf;

use crate::{
    conn::Conn,
    ingress::{Door, Open},
    visitor::{self, About, Entry},
    words::{Reading, UNLIMITED, awaiting, chunk, field, invalid, translate, write_head},
    worker::Worker,
};

/// Where connections come in, and who answers there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entrance {
    pub(crate) local: SocketAddr,
    pub(crate) listener: u16,
    pub(crate) entry: Entry,
}

/// Serves the connections of one socket until the proxy leaves, and then those it has.
pub(crate) async fn accept(worker: Rc<Worker>, door: &Door, shard: quic::Shard) {
    let endpoint = match shard.start() {
        Ok(endpoint) => endpoint,
        Err(error) => return tracing::error!(%error, "a QUIC endpoint does not start"),
    };
    let entrance = Entrance {
        local: door.address,
        listener: door.index,
        entry: Entry::Proxy,
    };
    while let Some(incoming) = endpoint.accept().await {
        tokio::task::spawn_local(serve(Rc::clone(&worker), entrance, incoming));
    }
    // The socket is another process's too: it is let go of as soon as nobody here needs it.
    while !endpoint.drained(LOOK).await {}
}

/// Serves one connection until it ends.
pub(crate) async fn serve(worker: Rc<Worker>, entrance: Entrance, incoming: quic::Incoming) {
    worker.metrics.proxy_visitors_total.add_one();
    worker.metrics.proxy_visitors_open.up();
    let _open = Open(&worker);
    let settings = settings(&worker);
    let Ok(mut connection) = Connection::start(incoming, settings).await else {
        return;
    };
    let mut tally = Tally::new(&worker, connection.quinn().clone());
    let deadline = worker.clock.deadline();
    let open = Rc::new(Unacknowledged::default());
    let mut phase = Phase::Open;
    let mut certificate = None;
    loop {
        let idle = Rc::strong_count(&open) == 1;
        tally.look();
        match phase {
            Phase::Closing if idle && open.is_empty() => return connection.close(),
            Phase::Announced(until) if until <= worker.clock.precise() => {
                phase = Phase::Closing;
                connection.drain().await;
                continue;
            }
            _ => {}
        }
        deadline.set(Some(match phase {
            Phase::Open if idle => IDLE,
            Phase::Open => LOOK,
            Phase::Announced(until) => until.saturating_sub(worker.clock.precise()),
            Phase::Closing => SOON,
        }));
        let accepted = {
            let mut accepting = pin!(connection.accept());
            deadline
                .limit(|cx| {
                    if worker.is_draining() && matches!(phase, Phase::Open) {
                        return Poll::Ready(None);
                    }
                    accepting.as_mut().poll(cx).map(Some)
                })
                .await
        };
        match accepted {
            Ok(Some(Some(arriving))) => {
                let (worker, open) = (Rc::clone(&worker), Rc::clone(&open));
                // Known with the first request: it comes behind the handshake's end, or in a session that remembers it.
                certificate = certificate.or_else(|| shown(connection.quinn()));
                let about = About {
                    peer: unmapped(connection.quinn().remote_address()),
                    local: entrance.local,
                    scheme: Scheme::Https,
                    listener: entrance.listener,
                    http3: None,
                    entry: entrance.entry,
                    preface: false,
                    certificate: certificate.clone(),
                };
                tokio::task::spawn_local(async move {
                    if let Ok(exchange) = arriving.resolve().await
                        && let Some(stream) = H3Stream::new(exchange, &open).await
                    {
                        let conn = Conn::H3(Box::new(stream));
                        visitor::serve_stream(&worker, conn, &about).await;
                    }
                });
            }
            Ok(Some(None)) => return,
            Ok(None) => {
                // Requests that are on their way are its client's last ones here.
                let trip = connection.quinn().rtt() * 2;
                phase = Phase::Announced(
                    worker.clock.precise() + trip.clamp(LEAST_NOTICE, MOST_NOTICE),
                );
                open.closing.set(true);
                connection.announce().await;
            }
            Err(_) if idle && matches!(phase, Phase::Open) => {
                phase = Phase::Closing;
                connection.drain().await;
            }
            Err(_) => {}
        }
    }
}

/// How far a connection's end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Its client was asked to go elsewhere; what it asked before it could know is taken until then.
    Announced(Duration),
    /// Nothing more is taken.
    Closing,
}

/// Adds what happens on a connection to the worker's counters, about once a second at most, and at its end.
struct Tally<'a> {
    worker: &'a Worker,
    connection: quic::Connection,
    counted: [u64; 6],
    looked: Duration,
}

impl<'a> Tally<'a> {
    fn new(worker: &'a Worker, connection: quic::Connection) -> Self {
        worker.metrics.proxy_http3_connections_total.add_one();
        worker.metrics.proxy_http3_connections_open.up();
        Self {
            worker,
            connection,
            counted: [0; 6],
            looked: worker.clock.coarse(),
        }
    }

    fn look(&mut self) {
        let now = self.worker.clock.coarse();
        if now.saturating_sub(self.looked) >= TALLY {
            self.looked = now;
            self.add();
        }
    }

    fn add(&mut self) {
        let stats = self.connection.stats();
        let now = [
            stats.udp_rx.bytes,
            stats.udp_tx.bytes,
            stats.path.sent_packets,
            stats.path.lost_packets,
            stats.path.black_holes_detected,
            stats.frame_rx.path_response,
        ];
        let metrics = &self.worker.metrics;
        let counters = [
            &metrics.proxy_http3_received_bytes_total,
            &metrics.proxy_http3_sent_bytes_total,
            &metrics.proxy_http3_packets_sent_total,
            &metrics.proxy_http3_packets_lost_total,
            &metrics.proxy_http3_black_holes_total,
            &metrics.proxy_http3_path_validations_total,
        ];
        for ((counter, now), before) in counters.into_iter().zip(now).zip(&mut self.counted) {
            counter.add(now.saturating_sub(*before));
            *before = now;
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.add();
        self.worker.metrics.proxy_http3_connections_open.down();
    }
}

/// Answers that were written and may not have arrived: to close the connection would cut them off.
#[derive(Default)]
struct Unacknowledged {
    /// Short ones count, too.
    closing: Cell<bool>,
    answers: RefCell<Vec<Delivery>>,
}

type Delivery = Pin<Box<dyn Future<Output = ()>>>;

impl Unacknowledged {
    fn add(&self, send: &SendHalf, length: u64) {
        if length >= LONG_ANSWER || self.closing.get() {
            let mut answers = self.answers.borrow_mut();
            if answers.len() >= MANY {
                answers.retain_mut(is_pending);
            }
            answers.push(Box::pin(send.delivered()));
        }
    }

    fn is_empty(&self) -> bool {
        let mut answers = self.answers.borrow_mut();
        answers.retain_mut(is_pending);
        answers.is_empty()
    }
}

impl fmt::Debug for Unacknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unacknowledged")
    }
}

fn is_pending(delivery: &mut Delivery) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    delivery.as_mut().poll(&mut cx).is_pending()
}

/// What holds before a route is known: the most that any route allows.
fn settings(worker: &Worker) -> Settings {
    let local = worker.local();
    let routes = local.site.routes.iter();
    let list = routes.map(|route| route.limits.header_list_bytes).max();
    let defaults = Settings::default();
    Settings {
        section_bytes: list.map_or(defaults.section_bytes, |bytes| bytes as usize),
        fields: local.heads.limits.fields,
        head_time: local.heads.header,
        // A proxy that knows nothing of a datagram's protocol cannot pass it on.
        datagrams: false,
        extended_connect: true,
    }
}

/// The certificate that the visitor has shown.
fn shown(connection: &quic::Connection) -> Option<Rc<PeerCertificate>> {
    let der = quic::peer_certificate(connection)?;
    PeerCertificate::read(&der).map(Rc::new)
}

/// An address of IPv4, also where the socket takes both kinds.
fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// One stream, as an HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct H3Stream {
    /// Made and not yet read.
    made: Bytes,
    /// Read before the head was made.
    first: Option<Piece>,
    receive: ReceiveHalf,
    reading: Reading,
    send: SendHalf,
    head: ResponseHead,
    /// An answer's head that is not complete.
    unparsed: Vec<u8>,
    writing: Writing,
    /// Bytes of the answer's body.
    length: u64,
    /// Of the connection, which is busy while this is held.
    unacknowledged: Rc<Unacknowledged>,
}

#[derive(Debug)]
enum Writing {
    Head(Awaiting<()>),
    Body(ResponseBody),
    Tunnel,
    /// All is queued; the stream ends when it has been sent.
    Ending,
    Ended,
}

impl H3Stream {
    /// `None` if the request cannot be said in HTTP/1.1, or not now; it has been answered then.
    async fn new(exchange: Exchange, unacknowledged: &Rc<Unacknowledged>) -> Option<Self> {
        let Exchange {
            request,
            early,
            mut receive,
            mut send,
        } = exchange;
        let (parts, ()) = request.into_parts();
        let protocol = parts.extensions.get::<Protocol>();
        let websocket = protocol.is_some_and(|protocol| protocol.0 == "websocket");
        if early && !parts.method.is_safe() {
            refuse(send, receive, StatusCode::TOO_EARLY).await;
            return None;
        }
        if parts.method == Method::CONNECT && !websocket {
            let status = match protocol {
                // RFC 9220 §3.
                Some(_) => StatusCode::NOT_IMPLEMENTED,
                None => StatusCode::METHOD_NOT_ALLOWED,
            };
            refuse(send, receive, status).await;
            return None;
        }
        let sized = parts.headers.contains_key(header::CONTENT_LENGTH);
        let first = if websocket || sized {
            None
        } else {
            match begin_body(&parts.method, &mut receive).await {
                Ok(first) => first,
                Err(error) => {
                    end_for(&error, &mut send);
                    return None;
                }
            }
        };
        let (made, reading) = write_head(&parts, receive.is_ended(), websocket);
        let awaiting = awaiting(parts.method == Method::HEAD, websocket);
        Some(Self {
            made: made.into(),
            first,
            receive,
            reading,
            send,
            head: ResponseHead::default(),
            unparsed: Vec::new(),
            writing: Writing::Head(awaiting),
            length: 0,
            unacknowledged: Rc::clone(unacknowledged),
        })
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.made.is_empty() {
                let n = self.made.len().min(buffer.remaining());
                buffer.put_slice(&self.made[..n]);
                self.made.advance(n);
                return Poll::Ready(Ok(()));
            }
            if matches!(self.reading, Reading::Ended | Reading::Trailers) {
                return Poll::Ready(Ok(()));
            }
            let piece = match self.first.take() {
                Some(piece) => Some(piece),
                None => match ready!(self.receive.poll_piece(cx)) {
                    Ok(piece) => piece,
                    Err(error) => {
                        end_for(&error, &mut self.send);
                        return Poll::Ready(Err(broken(error)));
                    }
                },
            };
            self.take(piece);
        }
    }

    /// Puts what came into HTTP/1.1's words.
    fn take(&mut self, piece: Option<Piece>) {
        let chunked = self.reading == Reading::Chunks;
        match piece {
            Some(Piece::Data(data)) if chunked => self.made = chunk(&data),
            Some(Piece::Data(data)) => self.made = data,
            // A body whose length was said has no place for trailers in HTTP/1.1.
            Some(Piece::Trailers(_)) | None if !chunked => self.reading = Reading::Ended,
            end => {
                let mut made = b"0\r\n".to_vec();
                if let Some(Piece::Trailers(trailers)) = end {
                    for (name, value) in &trailers {
                        field(&mut made, name.as_str(), value.as_bytes());
                    }
                }
                made.extend_from_slice(b"\r\n");
                self.made = made.into();
                self.reading = Reading::Ended;
            }
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // One portion at a time: what the visitor does not take stays where it is.
        ready!(self.send.poll_flush(cx)).map_err(broken)?;
        let taken = match &mut self.writing {
            Writing::Head(_) => self.write_head(bytes)?,
            Writing::Tunnel => {
                let n = bytes.len().min(PORTION);
                self.send.data(Bytes::copy_from_slice(&bytes[..n]));
                self.length += n as u64;
                n
            }
            Writing::Ending | Writing::Ended => {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            Writing::Body(body) => {
                let n = bytes.len().min(PORTION);
                let decoded = body.decoder().decode(&bytes[..n]).map_err(|_| invalid())?;
                if !decoded.data.is_empty() {
                    let data = Bytes::copy_from_slice(&bytes[decoded.data]);
                    self.length += data.len() as u64;
                    self.send.data(data);
                }
                let (consumed, end) = (decoded.consumed, decoded.end);
                if end {
                    self.end_body()?;
                }
                consumed
            }
        };
        match self.poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    /// Sends what is queued, and the end behind it if there is no more.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.send.poll_flush(cx)).map_err(broken)?;
        if matches!(self.writing, Writing::Ending) {
            self.writing = Writing::Ended;
            self.send.finish();
            self.unacknowledged.add(&self.send, self.length);
        }
        Poll::Ready(Ok(()))
    }

    /// Whether something is queued.
    pub(crate) fn needs_flush(&self) -> bool {
        matches!(self.writing, Writing::Ending) || self.send.queued() > 0
    }

    /// Ends the direction towards the visitor.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.writing, Writing::Tunnel) {
            self.writing = Writing::Ending;
        }
        self.poll_flush(cx)
    }

    pub(crate) fn abort(mut self) {
        self.writing = Writing::Ended;
        self.send.reset(Code::INTERNAL_ERROR);
    }

    fn write_head(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let before = self.unparsed.len();
        let mut head = bytes;
        if before > 0 {
            self.unparsed.extend_from_slice(bytes);
            head = &self.unparsed;
        }
        let parsed = self.head.parse(head, &UNLIMITED);
        let Some(length) = parsed.map_err(|_| invalid())? else {
            if before == 0 {
                self.unparsed.extend_from_slice(bytes);
            }
            return Ok(bytes.len());
        };
        let text = Bytes::copy_from_slice(&head[..length]);
        let Some(answer) = self.head.view(&text) else {
            return Err(invalid());
        };
        let Writing::Head(awaiting) = std::mem::replace(&mut self.writing, Writing::Ended) else {
            return Err(invalid());
        };
        let (response, next) = match awaiting.answer(answer).map_err(|_| invalid())? {
            Answer::Interim(awaiting) => {
                self.writing = Writing::Head(awaiting);
                self.head.clear();
                self.unparsed.clear();
                return Ok(length - before);
            }
            Answer::Tunnel { .. } => {
                self.reading = Reading::Plain;
                (translate(&text, &answer, true), Writing::Tunnel)
            }
            Answer::Final { body, .. } if body.is_complete() => {
                (translate(&text, &answer, false), Writing::Ending)
            }
            Answer::Final { body, .. } => (translate(&text, &answer, false), Writing::Body(body)),
        };
        self.send.response(&response).map_err(broken)?;
        self.writing = next;
        self.head.clear();
        self.unparsed.clear();
        Ok(length - before)
    }

    fn end_body(&mut self) -> io::Result<()> {
        let mut trailers = HeaderMap::new();
        if let Writing::Body(body) = &mut self.writing {
            for (name, value) in body.decoder().trailers().iter() {
                let name = HeaderName::from_bytes(name);
                if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                    trailers.append(name, value);
                }
            }
        }
        if !trailers.is_empty() {
            self.send.trailers(&trailers).map_err(broken)?;
        }
        self.writing = Writing::Ending;
        Ok(())
    }
}

/// Whether there is a body at all HTTP/3 does not say with the head, but HTTP/1.1 has to. Methods that have none as a rule wait for their stream's end,
/// which travels with the head; others only look.
async fn begin_body(
    method: &Method,
    receive: &mut ReceiveHalf,
) -> Result<Option<Piece>, quic::h3::Error> {
    let usual = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
    let patience = if usual { Duration::ZERO } else { FIRST };
    let piece = tokio::time::timeout(patience, receive.piece()).await;
    piece.unwrap_or(Ok(None))
}

/// A body that contradicts its head ends the whole stream, and says so (RFC 9114 §4.1.2).
fn end_for(error: &quic::h3::Error, send: &mut SendHalf) {
    if matches!(error, quic::h3::Error::Malformed) {
        send.reset(Code::MESSAGE_ERROR);
    }
}

async fn refuse(mut send: SendHalf, mut receive: ReceiveHalf, status: StatusCode) {
    receive.stop(Code::NO_ERROR);
    let mut response = Response::new(());
    *response.status_mut() = status;
    if send.response(&response).is_ok() && send.flush().await.is_ok() {
        send.finish();
    }
}

fn broken(error: quic::h3::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

/// What is copied of an answer at a time.
const PORTION: usize = 16 << 10;
/// How long a request that seldom has a body may leave open whether it has one.
const FIRST: Duration = Duration::from_secs(5);
/// Without a request.
const IDLE: Duration = Duration::from_secs(75);
/// How often a connection's figures are added up, at most.
const TALLY: Duration = Duration::from_secs(1);
/// Bounds of what clients are given to hear that they should go elsewhere.
const LEAST_NOTICE: Duration = Duration::from_millis(200);
const MOST_NOTICE: Duration = Duration::from_secs(2);
/// How often it is asked whether the last answers have arrived.
const SOON: Duration = Duration::from_millis(100);
/// Shorter answers have arrived when a connection ends, unless it ends at once.
const LONG_ANSWER: u64 = 64 << 10;
/// Answers to keep in mind before it is asked which of them have arrived; a client has no more streams than this.
const MANY: usize = 128;
/// How often it is asked whether there are requests.
const LOOK: Duration = Duration::from_secs(5);
