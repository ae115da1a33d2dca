//! The connections to one server: which has room for another request, and when one is given up.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};

use ::h2::client::{Builder, SendRequest};
use ::tunnel::ResetReason;
use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
};

use super::ServerStream;
use crate::site::KeepAlive;

/// The connections of a worker to one server.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    connections: RefCell<Vec<Rc<Connection>>>,
    /// Connections that are being opened.
    opening: Cell<usize>,
    /// A request has ended, or a connection was opened or failed.
    changed: Rc<Notify>,
}

/// What a request finds.
#[derive(Debug)]
pub(crate) enum Room {
    /// A connection with room: a stream of it.
    Stream(ServerStream),
    /// Another connection may be opened; it is counted until the guard is dropped.
    Open(Opening),
    /// All are full, and there may be no more: wait for a change.
    Full,
}

/// A connection that is being opened.
#[derive(Debug)]
pub(crate) struct Opening(Rc<Pool>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get() - 1);
        self.0.changed.notify_waiters();
    }
}

/// What is known of the stream below a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Below {
    /// TLS lies there.
    pub(crate) secure: bool,
    /// Why a relayed service's client gave it up, once it has.
    pub(crate) refusal: Rc<Cell<Option<ResetReason>>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    send: SendRequest<Bytes>,
    pub(super) below: Below,
    active: Cell<usize>,
    requests: Cell<u32>,
    /// It takes no more requests.
    closed: Cell<bool>,
    /// When the last request ended, on the worker's clock.
    since: Cell<Duration>,
    changed: Rc<Notify>,
}

/// A request's place on its connection.
#[derive(Debug)]
pub(super) struct Place(Rc<Connection>);

impl Place {
    pub(super) fn connection(&self) -> &Connection {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let connection = &self.0;
        connection.active.set(connection.active.get() - 1);
        connection.changed.notify_waiters();
    }
}

impl Connection {
    pub(super) fn sender(&self) -> SendRequest<Bytes> {
        self.send.clone()
    }

    /// It is not to be used again: it fails, or its server has fallen silent.
    pub(super) fn give_up(&self) {
        self.closed.set(true);
        self.changed.notify_waiters();
    }

    /// The server's own limit (SETTINGS_MAX_CONCURRENT_STREAMS), and ours.
    fn room(&self) -> bool {
        !self.closed.get() && self.active.get() < self.send.current_max_send_streams().min(STREAMS)
    }
}

impl Pool {
    /// A stream of a connection with room, if there is one.
    pub(crate) fn stream(&self, keep: KeepAlive, now: Duration) -> Option<ServerStream> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| !connection.closed.get());
        // The fullest that has room, so that the others can end.
        let connection = connections
            .iter()
            .filter(|connection| connection.room())
            .max_by_key(|connection| connection.active.get())?;
        Some(begin(connection, keep, now))
    }

    /// A stream, or what can be done for one. Its request counts from now on.
    pub(crate) fn room(self: &Rc<Self>, keep: KeepAlive, now: Duration) -> Room {
        if let Some(stream) = self.stream(keep, now) {
            return Room::Stream(stream);
        }
        if self.connections.borrow().len() + self.opening.get() < CONNECTIONS {
            self.opening.set(self.opening.get() + 1);
            return Room::Open(Opening(Rc::clone(self)));
        }
        Room::Full
    }

    /// Something that is asked for before a look, so that no change is missed.
    pub(crate) fn changes(&self) -> Rc<Notify> {
        Rc::clone(&self.changed)
    }

    /// Makes a connection of a stream on which nothing was sent, and begins a request on it.
    ///
    /// # Errors
    /// When the preface cannot be sent.
    pub(crate) async fn start<S>(
        self: &Rc<Self>,
        stream: S,
        below: Below,
        keep: KeepAlive,
        now: Duration,
    ) -> io::Result<ServerStream>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            // Until the server has said how many it allows.
            .initial_max_send_streams(1)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(HEADER_LIST);
        let (send, driver) = builder
            .handshake::<_, Bytes>(stream)
            .await
            .map_err(io::Error::other)?;
        let connection = Rc::new(Connection {
            send,
            below,
            active: Cell::new(0),
            requests: Cell::new(0),
            closed: Cell::new(false),
            since: Cell::new(now),
            changed: Rc::clone(&self.changed),
        });
        let watched = Rc::downgrade(&connection);
        tokio::task::spawn_local(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "an HTTP/2 connection to a server ended");
            }
            if let Some(connection) = watched.upgrade() {
                connection.give_up();
            }
        });
        let stream = begin(&connection, keep, now);
        self.connections.borrow_mut().push(connection);
        Ok(stream)
    }

    /// Ends connections that had no request for too long.
    pub(crate) fn sweep(&self, keep: KeepAlive, now: Duration) {
        self.connections.borrow_mut().retain(|connection| {
            if connection.active.get() > 0 {
                connection.since.set(now);
            }
            let idle = now.saturating_sub(connection.since.get()) >= keep.idle;
            !connection.closed.get() && !idle
        });
    }

    /// It has no connection, and none is being opened.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.borrow().is_empty() && self.opening.get() == 0
    }

    /// Gives all of them up; requests under way end on theirs.
    pub(crate) fn clear(&self) {
        self.connections.borrow_mut().clear();
    }
}

fn begin(connection: &Rc<Connection>, keep: KeepAlive, now: Duration) -> ServerStream {
    connection.active.set(connection.active.get() + 1);
    connection.since.set(now);
    let before = connection.requests.get();
    connection.requests.set(before.saturating_add(1));
    if connection.requests.get() >= keep.max_requests {
        connection.closed.set(true);
    }
    ServerStream::new(Place(Rc::clone(connection)), before)
}

/// Of one server and worker. Another is opened only when the server's limit of streams is reached on all.
const CONNECTIONS: usize = 8;
/// Requests of one connection at one time, if the server allows more.
const STREAMS: usize = 250;
/// What a server may send of one body before its visitor has read it.
const STREAM_WINDOW: u32 = 128 << 10;
/// Of all bodies of a connection: all streams' together, because visitors who do not read would else stop those who do.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS as u32;
/// What may wait for a server, per stream.
const SEND_BUFFER: usize = 256 << 10;
/// Of an answer.
const HEADER_LIST: u32 = 64 << 10;
