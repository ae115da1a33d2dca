//! The task of one QUIC link: control messages both ways, streams that the peer opens, datagrams, the look for idle streams, the end.
//! The bytes of streams do not pass here: each stream's own task moves them.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use quinn::{ConnectionError, ReadExactError, RecvStream, SendStream, VarInt};
use tokio::{task::coop::consume_budget, time::timeout};
use tunnel::ResetReason;

use super::{
    control::{Control, Inbox},
    link::{Link, Pair, Shared},
    stream::Stream,
    windows::STREAMS_AT_FIRST,
};
use crate::{end::LinkEnd, link::Handler};

/// Resolves when the link has ended.
pub(crate) type Driver = Pin<Box<dyn Future<Output = LinkEnd>>>;

/// Ends the link when it is dropped, however that happens.
struct Alive(Rc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.end_all();
    }
}

pub(super) async fn run(
    link: Link,
    control: Control,
    handler: Rc<dyn Handler>,
    sweep_every: Duration,
) -> LinkEnd {
    let shared = Rc::clone(&link.shared);
    let _alive = Alive(Rc::clone(&shared));
    let Control {
        mut send,
        mut receive,
        unread,
        closing: _closing,
        ..
    } = control;
    let mut inbox = Inbox::new(&unread);
    let end = tokio::select! {
        biased;
        end = hear(&link, &*handler, &mut inbox, &mut receive) => end,
        end = say(&shared, &mut send) => end,
        end = accept(&link, &handler) => end,
        never = datagrams(&shared) => match never {},
        never = sweep(&shared, sweep_every) => match never {},
        never = cover(&shared) => match never {},
    };
    match end {
        Ended::Closing => close(&shared, &mut send).await,
        Ended::ByPeer => closed_by_peer(&shared, &mut send).await,
        Ended::Lost(end) => end,
    }
}

/// Why the work is over.
enum Ended {
    /// This end wants it so.
    Closing,
    /// The peer has said its last word.
    ByPeer,
    Lost(LinkEnd),
}

enum Never {}

impl From<ConnectionError> for Ended {
    fn from(error: ConnectionError) -> Self {
        Self::Lost(link_end(error))
    }
}

/// Hears the peer's control messages.
async fn hear(
    link: &Link,
    handler: &dyn Handler,
    inbox: &mut Inbox,
    stream: &mut RecvStream,
) -> Ended {
    let public = crate::Link::quic(link.clone());
    loop {
        while let Some(message) = inbox.pop() {
            handler.control(&public, &message);
        }
        // The peer asks but does not read: it is not listened to until it does.
        while link.shared.outbox.borrow().is_crowded() {
            tokio::time::sleep(CROWDED).await;
        }
        match inbox.read(stream).await {
            Ok(true) => {}
            Ok(false) => return Ended::ByPeer,
            Err(quinn::ReadError::ConnectionLost(error)) => return error.into(),
            // Only a whole link can be given up, not its first stream.
            Err(error) => return Ended::Lost(LinkEnd::Transport(error.into())),
        }
    }
}

/// Sends control messages; ends when the link is to be closed and nothing is left to say.
async fn say(shared: &Shared, stream: &mut SendStream) -> Ended {
    loop {
        let next = shared.outbox.borrow_mut().pop();
        match next {
            Some(message) => {
                if let Err(error) = stream.write_chunk(message).await {
                    return match error {
                        quinn::WriteError::ConnectionLost(error) => error.into(),
                        error => Ended::Lost(LinkEnd::Transport(error.into())),
                    };
                }
            }
            None if shared.closing.get() => return Ended::Closing,
            None => shared.news.notified().await,
        }
    }
}

/// Takes the streams that the peer opens.
async fn accept(link: &Link, handler: &Rc<dyn Handler>) -> Ended {
    let mut admitted = STREAMS_AT_FIRST as usize;
    loop {
        let (send, receive) = match link.shared.connection.accept_bi().await {
            Ok(pair) => pair,
            Err(error) => return error.into(),
        };
        if link.shared.stream_count() > admitted / 2 && admitted < link.shared.most_streams() {
            admitted = (admitted * 2).min(link.shared.most_streams());
            let number = u32::try_from(admitted).unwrap_or(u32::MAX);
            link.shared
                .connection
                .set_max_concurrent_bi_streams(VarInt::from_u32(number));
        }
        let mut begin = Box::pin(begin(link.clone(), Rc::clone(handler), (send, receive)));
        // The header is nearly always here already; a task that waits for it costs more than the look.
        let look = begin.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if look.is_pending() {
            tokio::task::spawn_local(begin);
        }
    }
}

/// Reads a stream's header and tells the handler.
async fn begin(link: Link, handler: Rc<dyn Handler>, (mut send, mut receive): Pair) {
    let header = match read_header(&mut receive).await {
        Ok(header) => header,
        Err(reason) => {
            let code = VarInt::from_u32(u16::from(reason).into());
            let _ = send.reset(code);
            let _ = receive.stop(code);
            return;
        }
    };
    if !link.shared.is_open() {
        return;
    }
    let slot = link.shared.add();
    let shared = Rc::clone(&link.shared);
    let stream = Stream::new(shared, slot, (send, receive), Bytes::new(), None);
    handler.opened(&crate::Link::quic(link), header, stream.into());
}

async fn read_header(stream: &mut RecvStream) -> Result<Vec<u8>, ResetReason> {
    let mut head = [0; 2];
    let mut read =
        async |buffer: &mut [u8]| match timeout(HEADER_TIME, stream.read_exact(buffer)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ReadExactError::FinishedEarly(_))) => Err(ResetReason::Protocol),
            Ok(Err(ReadExactError::ReadError(_))) => Err(ResetReason::Cancelled),
            Err(_) => Err(ResetReason::IdleTimeout),
        };
    read(&mut head).await?;
    let length = usize::from(u16::from_be_bytes(head));
    if length > tunnel::MAX_STREAM_HEADER {
        return Err(ResetReason::Protocol);
    }
    let mut header = vec![0; length];
    read(&mut header).await?;
    Ok(header)
}

/// Brings datagrams to their streams.
async fn datagrams(shared: &Shared) -> Never {
    // An error is the connection's end, which others tell.
    while let Ok(datagram) = shared.connection.read_datagram().await {
        shared.channels.borrow_mut().deliver(datagram);
        // Thousands of small ones may be here; nobody else's streams wait for them.
        consume_budget().await;
    }
    std::future::pending().await
}

/// Brings covered datagrams into QUIC.
async fn cover(shared: &Shared) -> Never {
    if let Some(cover) = &shared.cover {
        tokio::join!(cover.flush(), cover.spread());
    }
    std::future::pending().await
}

async fn sweep(shared: &Shared, every: Duration) -> Never {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.sweep();
    }
}

/// Everything said has gone into QUIC. It is delivered before the connection is closed, which would cut it off; so are the streams that
/// have just ended.
async fn close(shared: &Shared, control: &mut SendStream) -> LinkEnd {
    let _ = control.finish();
    let delivered = async {
        let _ = control.stopped().await;
        for (_, stream) in shared.take_lingering() {
            let _ = stream.stopped().await;
        }
    };
    let mut delivered = pin!(timeout(CLOSE_TIME, delivered));
    tokio::select! {
        in_time = &mut delivered => match in_time {
            Ok(()) => LinkEnd::Closed,
            Err(_) => LinkEnd::Stuck(CLOSE_TIME),
        },
        _ = shared.connection.closed() => LinkEnd::Closed,
    }
}

/// The peer closes the link: what it has sent still arrives, until it closes the connection.
async fn closed_by_peer(shared: &Shared, control: &mut SendStream) -> LinkEnd {
    shared.closing.set(true);
    let _ = control.finish();
    let _ = timeout(CLOSE_TIME, shared.connection.closed()).await;
    LinkEnd::PeerClosed
}

fn link_end(error: ConnectionError) -> LinkEnd {
    match error {
        ConnectionError::ApplicationClosed(_) | ConnectionError::ConnectionClosed(_) => {
            LinkEnd::PeerClosed
        }
        ConnectionError::LocallyClosed => LinkEnd::Closed,
        ConnectionError::TimedOut | ConnectionError::Reset => LinkEnd::Lost(error),
        error => LinkEnd::Transport(io::Error::from(error)),
    }
}

/// What a closing link may take to deliver its last words.
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// What a stream's header may take.
const HEADER_TIME: Duration = Duration::from_secs(10);
const CROWDED: Duration = Duration::from_millis(20);
