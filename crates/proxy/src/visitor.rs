//! A visitor's HTTP/1 connection: one request after the other, each answered before the next is looked at, so that answers come in order whatever
//! was sent ahead.

use std::{net::SocketAddr, rc::Rc, task::Poll, time::Duration};

use h1::{Drained, Framing, RequestError};
use net::tls::PeerCertificate;
use route::{Scheme, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    answer::Answer,
    buffer::{BUFFER, Input},
    clock::{Deadline, Late},
    conn::Conn,
    log, preface,
    request::{self, Introduction, Next},
    work::{Lent, Work},
    worker::Worker,
};

/// How a connection came.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// The other end, or who the PROXY header says it is.
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) scheme: Scheme,
    /// The listener's place in the configuration.
    pub(crate) listener: u16,
    /// The certificate that the visitor has shown, and that was accepted.
    pub(crate) certificate: Option<Rc<PeerCertificate>>,
    /// The UDP port where the same is to be had over HTTP/3; the visitor is told.
    pub(crate) http3: Option<u16>,
    pub(crate) entry: Entry,
    /// Whoever begins with HTTP/2's preface is spoken to in HTTP/2.
    pub(crate) preface: bool,
}

/// Who answers where no route does, and before which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nobody: a listener of the proxy alone.
    Proxy,
    /// Relay services, before routes that name no host: an address that proxy and server share.
    Shared,
    /// Relay services only.
    Relay,
}

impl Entry {
    /// At an address of a server, where the proxy has this listener, or none.
    pub(crate) fn of_server(listener: Option<u16>) -> Self {
        match listener {
            Some(_) => Self::Shared,
            None => Self::Relay,
        }
    }
}

/// Serves a connection until it ends. `Some`: the first bytes are HTTP/2's; they are in the input.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    conn: Conn,
    about: &About,
) -> Option<(net::Stream, Vec<u8>)> {
    let mut connection = Connection::new(worker, conn);
    let mut visitor = h1::Visitor::new(&worker.local().heads.limits);
    let end = loop {
        if connection.input.is_empty() {
            let time = if connection.requests == 0 {
                worker.local().heads.header
            } else {
                connection.keep_alive
            };
            match connection.wait(worker, time).await {
                Waited::Came => {}
                Waited::Late | Waited::Gone => break End::Gone,
            }
        }
        // What requests need is large, and lives only as long as they follow one another: a connection that waits has given it back.
        match Box::pin(connection.busy(worker, about, visitor)).await {
            Busy::Idle(idle) => visitor = idle,
            Busy::Over(end) => break end,
            Busy::Http2 => {
                let Conn::Socket(stream) = connection.conn else {
                    return None;
                };
                return Some((stream, connection.input.bytes().to_vec()));
            }
        }
    };
    if !connection.ends_at_once(&end) {
        Box::pin(connection.end(worker, about, end)).await;
    }
    None
}

/// Serves a stream of HTTP/2 or 3: one request, and nothing behind it. What requests need is not put apart, because the stream lasts no longer.
pub(crate) async fn serve_stream(worker: &Rc<Worker>, conn: Conn, about: &About) {
    let mut connection = Connection::new(worker, conn);
    let limits = worker.local().heads.limits;
    let visitor = h1::Visitor::new(&limits);
    let end = {
        let mut lent = Lent::new();
        let work = lent.work();
        let composed = connection
            .conn
            .compose(&limits, &mut work.request, &mut work.saved);
        match composed {
            Ok(()) => {
                worker.metrics.proxy_requests_total.add_one();
                connection.requests = 1;
                // Of use to the second request only, which a stream does not have.
                let introduction = &mut Introduction::default();
                let served =
                    request::serve(worker, about, &mut connection, introduction, visitor, work);
                match served.await {
                    Next::Again(_) | Next::Gone => End::Gone,
                    Next::Drain(_) | Next::Close => End::Close,
                    Next::Abort => End::Abort,
                }
            }
            Err(error) => {
                worker.metrics.proxy_requests_refused_total.add_one();
                End::Refused(error.status(), error.to_string())
            }
        }
    };
    connection.deadline.bound(None);
    if let (End::Gone, Conn::H2(stream)) = (&end, &mut connection.conn) {
        // Takes no time there.
        let _ = stream.poll_shutdown();
        return;
    }
    if !connection.ends_at_once(&end) {
        Box::pin(connection.end(worker, about, end)).await;
    }
}

/// What became of requests that followed one another.
enum Busy {
    /// No other has come for [`BRIEF`].
    Idle(h1::Visitor),
    Over(End),
    /// The first bytes were those of HTTP/2.
    Http2,
}

/// What came of waiting for a request.
enum Waited {
    Came,
    Late,
    /// The visitor has gone, or is to go.
    Gone,
}

/// How a connection ends.
enum End {
    /// The visitor has ended it, or a tunnel is over.
    Gone,
    /// Behind an answer that said so.
    Close,
    /// Likewise, and the visitor has said that it sends nothing more.
    Last,
    /// Within an answer: the visitor must not take what it has for all.
    Abort,
    /// With an answer to what was no request.
    Refused(u16, String),
    /// With what HTTP/2 has to say to bytes that are neither its preface nor HTTP/1.
    NoPreface,
}

/// Why there is no head.
enum Head {
    Bad(RequestError),
    Slow,
    Gone,
}

/// What lasts from request to request.
pub(crate) struct Connection {
    pub(crate) conn: Conn,
    pub(crate) input: Input,
    pub(crate) deadline: Deadline,
    /// How long it may wait for the next request.
    pub(crate) keep_alive: Duration,
    pub(crate) requests: u32,
}

impl Connection {
    fn new(worker: &Worker, conn: Conn) -> Self {
        Self {
            conn,
            input: Input::default(),
            deadline: worker.clock.deadline(),
            keep_alive: Timeouts::default().keep_alive,
            requests: 0,
        }
    }

    /// Serves requests for as long as one follows the other.
    async fn busy(&mut self, worker: &Rc<Worker>, about: &About, mut visitor: h1::Visitor) -> Busy {
        let mut introduction = Introduction::default();
        let mut in_a_row = 0u32;
        loop {
            let (last, next) = {
                let mut lent = Lent::new();
                let work = lent.work();
                let length = match self.parse_head(worker, work) {
                    Ok(Some(length)) => length,
                    Ok(None) => match Box::pin(self.read_head(worker, work)).await {
                        Ok(length) => length,
                        Err(why) => return self.without_head(worker, about, why),
                    },
                    Err(why) => return self.without_head(worker, about, why),
                };
                work.saved.extend_from_slice(self.input.slice(0..length));
                self.input.consume(length);
                // Most requests end with their head: while they are served their connection holds no buffer either.
                self.input.rest();
                worker.metrics.proxy_requests_total.add_one();
                self.requests += 1;
                let next = request::serve(worker, about, self, &mut introduction, visitor, work);
                let next = next.await;
                (matches!(next, Next::Close) && is_last(work), next)
            };
            self.deadline.bound(None);
            match next {
                Next::Again(idle) => visitor = idle,
                Next::Drain(rest) => match self.drain(rest).await {
                    Some(idle) => visitor = idle,
                    None => return Busy::Over(End::Close),
                },
                Next::Close if last && self.input.is_empty() => return Busy::Over(End::Last),
                Next::Close => return Busy::Over(End::Close),
                Next::Abort => return Busy::Over(End::Abort),
                Next::Gone => return Busy::Over(End::Gone),
            }
            if !self.input.is_empty() {
                in_a_row = in_a_row.wrapping_add(1);
                if in_a_row.is_multiple_of(IN_A_ROW) {
                    tokio::task::yield_now().await;
                }
                continue;
            }
            match self.wait(worker, BRIEF.min(self.keep_alive)).await {
                Waited::Came => {}
                Waited::Late => return Busy::Idle(visitor),
                Waited::Gone => return Busy::Over(End::Gone),
            }
        }
    }

    /// Waits for the first byte of a request.
    async fn wait(&mut self, worker: &Worker, time: Duration) -> Waited {
        self.input.rest();
        self.deadline.set(Some(time));
        let Self {
            conn,
            input,
            deadline,
            ..
        } = self;
        let mut hurried = false;
        let waiting = deadline.limit(|cx| {
            let filled = input.poll_fill(conn, BUFFER, cx);
            // A request may be on its way: it is served, and the answer says that it is the last.
            if filled.is_pending()
                && !hurried
                && let Some(last) = worker.last_request()
            {
                hurried = true;
                deadline.set(Some(time.min(last)));
            }
            filled
        });
        match waiting.await {
            Ok(Ok(1..)) => Waited::Came,
            Ok(_) => Waited::Gone,
            Err(Late) => Waited::Late,
        }
    }

    /// Reads what is left of a body, if that is little and soon there. `None`: the connection is to be closed.
    async fn drain(&mut self, mut rest: h1::Drain) -> Option<h1::Visitor> {
        let too_much = rest
            .remaining()
            .is_some_and(|left| left > DRAIN_BYTES as u64);
        if too_much {
            return None;
        }
        self.deadline.set(Some(LINGER));
        let mut budget = DRAIN_BYTES;
        loop {
            let (read, next) = rest.receive(self.input.bytes());
            self.input.consume(read);
            budget = budget.checked_sub(read)?;
            match next {
                Drained::Idle(visitor) => return Some(visitor),
                Drained::Close => return None,
                Drained::More(more) => rest = more,
            }
            let Self {
                conn,
                input,
                deadline,
                ..
            } = self;
            let filled = deadline.limit(|cx| input.poll_fill(conn, BUFFER, cx));
            let Ok(Ok(1..)) = filled.await else {
                return None;
            };
        }
    }

    /// The length of the head, if all of it has been read.
    fn parse_head(&self, worker: &Worker, work: &mut Work) -> Result<Option<usize>, Head> {
        let limits = &worker.local().heads.limits;
        let parsed = work.request.parse(self.input.bytes(), limits);
        parsed.map_err(Head::Bad)
    }

    /// Reads the rest of a head.
    async fn read_head(&mut self, worker: &Worker, work: &mut Work) -> Result<usize, Head> {
        let local = worker.local();
        let limits = &local.heads.limits;
        self.deadline.set(Some(local.heads.header));
        loop {
            let Self {
                conn,
                input,
                deadline,
                ..
            } = self;
            match deadline
                .limit(|cx| input.poll_fill(conn, limits.head.max(BUFFER), cx))
                .await
            {
                Ok(Ok(1..)) => {}
                Ok(_) => return Err(Head::Gone),
                Err(Late) => return Err(Head::Slow),
            }
            let parsed = work.request.parse(self.input.bytes(), limits);
            if let Some(length) = parsed.map_err(Head::Bad)? {
                return Ok(length);
            }
        }
    }

    #[cold]
    fn without_head(&self, worker: &Worker, about: &About, why: Head) -> Busy {
        let begins = self.requests == 0 && about.preface;
        Busy::Over(match why {
            Head::Bad(RequestError::Http2) if begins => return Busy::Http2,
            Head::Bad(_) if begins && preface::is_other(self.input.bytes()) => {
                worker.metrics.proxy_requests_refused_total.add_one();
                End::NoPreface
            }
            Head::Bad(error) => {
                worker.metrics.proxy_requests_refused_total.add_one();
                End::Refused(error.status(), error.to_string())
            }
            Head::Slow => End::Refused(408, "The request head did not come in time.".into()),
            Head::Gone => End::Gone,
        })
    }

    /// Writes all of the work's answer.
    pub(crate) async fn write_answer(&mut self, work: &mut Work, patience: Duration) -> bool {
        self.deadline.set(Some(patience));
        let Self { conn, deadline, .. } = self;
        let written = deadline.limit(|cx| {
            use std::pin::Pin;
            use tokio::io::AsyncWrite;
            while !work.answer.is_empty() {
                match Pin::new(&mut *conn).poll_write(cx, work.answer.bytes()) {
                    Poll::Ready(Ok(n @ 1..)) => work.answer.advance(n),
                    Poll::Ready(_) => return Poll::Ready(false),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Pin::new(&mut *conn)
                .poll_flush(cx)
                .map(|flushed| flushed.is_ok())
        });
        written.await.unwrap_or(false)
    }

    /// Whether nothing is lost by closing at once: what was to come has come, and what was to be sent is the kernel's.
    fn ends_at_once(&mut self, end: &End) -> bool {
        match end {
            End::Gone => !self.conn.needs_shutdown(),
            End::Last => !self.conn.needs_shutdown() && self.conn.is_quiet(),
            _ => false,
        }
    }

    async fn end(mut self, worker: &Worker, about: &About, end: End) {
        match end {
            End::Gone => {
                let shutdown = self.conn.shutdown();
                let _ = tokio::time::timeout(LINGER, shutdown).await;
            }
            End::Abort => self.conn.abort(),
            End::Close | End::Last => Box::pin(self.linger()).await,
            End::NoPreface => {
                let mut lent = Lent::new();
                let work = lent.work();
                work.answer.buffer().extend_from_slice(&preface::MISSING);
                if self.write_answer(work, LINGER).await {
                    Box::pin(self.linger()).await;
                }
            }
            End::Refused(status, text) => {
                worker.metrics.count_answer(status);
                if let Some(lines) = &worker.lines {
                    lines.add(&log::Entry::no_request(about.peer.ip(), status));
                }
                let mut lent = Lent::new();
                let work = lent.work();
                let answer = Answer {
                    status,
                    text: &text,
                };
                answer.write_last(&mut work.answer);
                if self.write_answer(work, LINGER).await {
                    Box::pin(self.linger()).await;
                }
            }
        }
    }

    /// Closing at once with the visitor's bytes unread would make the kernel send a reset that can overtake the answer.
    async fn linger(mut self) {
        let _ = tokio::time::timeout(LINGER, async {
            self.conn.shutdown().await?;
            let mut budget = LINGER_BYTES;
            let mut unread = [0; 1024];
            while budget > 0 {
                let n = self.conn.read(&mut unread).await?;
                if n == 0 {
                    break;
                }
                budget = budget.saturating_sub(n);
            }
            std::io::Result::Ok(())
        })
        .await;
    }
}

/// Whether the request says that no other follows (RFC 9112 §9.6), and has no body that could still be on its way.
fn is_last(work: &Work) -> bool {
    let request = work.request.view(&work.saved);
    request.is_some_and(|request| {
        !request.keep_alive() && matches!(request.framing(), Framing::None | Framing::Length(0))
    })
}

/// A request that comes within this after another finds everything as that one left it.
const BRIEF: Duration = Duration::from_millis(100);
/// Requests that were sent ahead, one behind the other, before others on this thread get their turn.
const IN_A_ROW: u32 = 16;
const LINGER: Duration = Duration::from_secs(2);
/// What is read of a body after an early answer, for the connection's sake.
const DRAIN_BYTES: usize = 64 << 10;
const LINGER_BYTES: usize = 1 << 20;
