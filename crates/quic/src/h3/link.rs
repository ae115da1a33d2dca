//! What the streams of an HTTP/3 connection share: settings, control streams, datagrams.
//!
//! [`Link::start`] opens this end's control stream; [`Link::serve`] reads the peer's until the connection ends. Requests go beside it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use net::Shutdown;
use quinn::{ReadError, VarInt};
use tokio::sync::mpsc;

use super::{
    Code, Error, Settings, datagram,
    frame::{self, Frame, Frames, Role},
    qpack::Limits,
    varint,
};

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) quinn: quinn::Connection,
    pub(crate) limits: Limits,
    pub(crate) side: Side,
    settings: Settings,
    peer: Mutex<Option<PeerSettings>>,
    /// Raised when the peer's settings are known.
    pub(crate) settled: Shutdown,
    control: tokio::sync::Mutex<Option<quinn::SendStream>>,
    datagrams: Mutex<HashMap<u64, mpsc::Sender<Bytes>>>,
    /// The first request the peer does not serve; `u64::MAX`: it serves all.
    goaway: AtomicU64,
    /// The most pushes that a client has said it would take, and one more.
    pushes: AtomicU64,
    /// The handshake is complete.
    pub(crate) established: AtomicBool,
    /// Kinds of streams that came already: control, encoder, decoder.
    seen: [AtomicBool; 3],
}

/// What the peer says of itself (RFC 9114 §7.2.4.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSettings {
    pub(crate) section_bytes: u64,
    pub(crate) extended_connect: bool,
    pub(crate) datagrams: bool,
}

impl Link {
    pub(crate) fn new(quinn: quinn::Connection, side: Side, settings: &Settings) -> Arc<Self> {
        Arc::new(Self {
            quinn,
            side,
            limits: Limits {
                size: settings.section_bytes,
                count: settings.fields,
            },
            settings: settings.clone(),
            peer: Mutex::default(),
            settled: Shutdown::new(),
            control: tokio::sync::Mutex::default(),
            datagrams: Mutex::default(),
            goaway: AtomicU64::new(u64::MAX),
            pushes: AtomicU64::new(0),
            established: AtomicBool::new(true),
            seen: Default::default(),
        })
    }

    /// Opens the control stream and says the settings (§6.2.1, §7.2.4).
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), Error> {
        let mut settings = Vec::new();
        let mut say = |id, value| {
            varint::write(&mut settings, id);
            varint::write(&mut settings, value);
        };
        say(TABLE_CAPACITY, 0);
        say(SECTION_BYTES, self.settings.section_bytes as u64);
        say(BLOCKED_STREAMS, 0);
        if self.side == Side::Server && self.settings.extended_connect {
            say(EXTENDED_CONNECT, 1);
        }
        if self.settings.datagrams {
            say(DATAGRAMS, 1);
        }
        let mut bytes = Vec::new();
        varint::write(&mut bytes, CONTROL);
        frame::write_header(&mut bytes, frame::SETTINGS, settings.len());
        bytes.extend_from_slice(&settings);
        let mut stream = self.quinn.open_uni().await?;
        if stream.write_all(&bytes).await.is_err() {
            return Err(self.fail(Code::CLOSED_CRITICAL_STREAM));
        }
        let (stopped, link) = (stream.stopped(), Arc::downgrade(self));
        tokio::task::spawn_local(async move {
            // §6.2.1: nobody may ask for its end.
            if let (Ok(Some(_)), Some(link)) = (stopped.await, link.upgrade()) {
                link.fail(Code::CLOSED_CRITICAL_STREAM);
            }
        });
        *self.control.lock().await = Some(stream);
        Ok(())
    }

    /// Reads what is not a request, until the connection ends. Each stream is a task on the current thread.
    pub(crate) async fn serve(self: Arc<Self>) {
        loop {
            tokio::select! {
                stream = self.quinn.accept_uni() => match stream {
                    Ok(stream) => {
                        let link = Arc::clone(&self);
                        tokio::task::spawn_local(async move {
                            if let Err(code) = link.uni(stream).await {
                                link.fail(code);
                            }
                        });
                    }
                    Err(_) => return,
                },
                // §6.1: only clients begin exchanges.
                begun = self.quinn.accept_bi(), if self.side == Side::Client => {
                    if begun.is_ok() {
                        self.fail(Code::STREAM_CREATION_ERROR);
                    }
                    return;
                }
                datagram = self.quinn.read_datagram() => match datagram {
                    Ok(datagram) => self.sort(datagram),
                    Err(_) => return,
                },
            }
        }
    }

    /// Says that requests from `first` on are not served (§5.2).
    pub(crate) async fn send_goaway(&self, first: u64) {
        let mut bytes = Vec::new();
        let mut id = Vec::new();
        varint::write(&mut id, first);
        frame::write_header(&mut bytes, frame::GOAWAY, id.len());
        bytes.extend_from_slice(&id);
        if let Some(stream) = &mut *self.control.lock().await {
            let _ = stream.write_all(&bytes).await;
        }
    }

    /// Ends the connection because of the peer.
    pub(crate) fn fail(&self, code: Code) -> Error {
        tracing::debug!(?code, "an HTTP/3 connection is ended because of its peer");
        self.quinn.close(code.var(), b"");
        Error::Protocol(code)
    }

    pub(crate) fn peer(&self) -> Option<PeerSettings> {
        *lock(&self.peer)
    }

    /// The first request that the peer refuses.
    pub(crate) fn refused_from(&self) -> u64 {
        self.goaway.load(Relaxed)
    }

    pub(crate) fn peer_takes_datagrams(&self) -> bool {
        self.settings.datagrams && self.peer().is_some_and(|peer| peer.datagrams)
    }

    pub(crate) fn keep_datagrams(&self, quarter: u64, sender: mpsc::Sender<Bytes>) {
        lock(&self.datagrams).insert(quarter, sender);
    }

    pub(crate) fn forget_datagrams(&self, quarter: u64) {
        lock(&self.datagrams).remove(&quarter);
    }

    fn sort(&self, bytes: Bytes) {
        let Some((quarter, payload)) = datagram::parse(bytes) else {
            self.fail(Code::DATAGRAM_ERROR);
            return;
        };
        // One that comes before its request, or behind its end, is lost, as it may be.
        if let Some(sender) = lock(&self.datagrams).get(&quarter) {
            let _ = sender.try_send(payload);
        }
    }

    async fn uni(&self, mut stream: quinn::RecvStream) -> Result<(), Code> {
        let Some(kind) = read_kind(&mut stream).await else {
            return Ok(());
        };
        let critical = match kind {
            CONTROL => &self.seen[0],
            ENCODER => &self.seen[1],
            DECODER => &self.seen[2],
            // §4.6: only servers push, and only to clients that allow it, which these do not.
            PUSH if self.side == Side::Server => return Err(Code::STREAM_CREATION_ERROR),
            PUSH => return Err(Code::ID_ERROR),
            _ => {
                let _ = stream.stop(Code::STREAM_CREATION_ERROR.var());
                return Ok(());
            }
        };
        if critical.swap(true, Relaxed) {
            return Err(Code::STREAM_CREATION_ERROR);
        }
        match kind {
            CONTROL => self.control(stream).await,
            ENCODER => instructions(stream, encoder_says).await,
            _ => {
                let mut within = 0;
                instructions(stream, |byte| decoder_says(byte, &mut within)).await
            }
        }
    }

    async fn control(&self, mut stream: quinn::RecvStream) -> Result<(), Code> {
        let mut frames = Frames::new(Role::Control, 0);
        while let Some(bytes) = critical(&mut stream).await? {
            frames.push(bytes);
            while let Some(frame) = frames.next()? {
                match frame {
                    // They are the first frame, or it is refused by `frames`.
                    Frame::Settings(settings) if self.peer().is_none() => self.settle(&settings)?,
                    Frame::Goaway(id) => self.heed_goaway(id)?,
                    Frame::MaxPushId(id) => self.heed_pushes(id)?,
                    // §7.2.3: nobody has promised a push here, or allowed one.
                    Frame::CancelPush => return Err(Code::ID_ERROR),
                    Frame::Settings(_) | Frame::Data(_) | Frame::Headers(_) => {
                        return Err(Code::FRAME_UNEXPECTED);
                    }
                }
            }
        }
        Ok(())
    }

    /// §7.2.7: said by clients only, and never less than before.
    fn heed_pushes(&self, id: u64) -> Result<(), Code> {
        if self.side == Side::Client {
            return Err(Code::FRAME_UNEXPECTED);
        }
        if self.pushes.fetch_max(id.saturating_add(1), Relaxed) > id.saturating_add(1) {
            return Err(Code::ID_ERROR);
        }
        Ok(())
    }

    fn settle(&self, settings: &[(u64, u64)]) -> Result<(), Code> {
        let value = |id| {
            settings
                .iter()
                .find(|(known, _)| *known == id)
                .map(|(_, value)| *value)
        };
        let flag = |id| match value(id) {
            None | Some(0) => Ok(false),
            Some(1) => Ok(true),
            // RFC 9220 §3, RFC 9297 §2.1.1.
            Some(_) => Err(Code::SETTINGS_ERROR),
        };
        *lock(&self.peer) = Some(PeerSettings {
            section_bytes: value(SECTION_BYTES).unwrap_or(u64::MAX),
            extended_connect: flag(EXTENDED_CONNECT)?,
            datagrams: flag(DATAGRAMS)?,
        });
        self.settled.trigger();
        Ok(())
    }

    fn heed_goaway(&self, id: u64) -> Result<(), Code> {
        // §5.2: to a client, the id of a request; never more than before. To a server it is about pushes.
        if self.side == Side::Client && !id.is_multiple_of(4) {
            return Err(Code::ID_ERROR);
        }
        if self.goaway.fetch_min(id, Relaxed) < id {
            return Err(Code::ID_ERROR);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a stream is for (§6.2). One that ends before it says so is none.
async fn read_kind(stream: &mut quinn::RecvStream) -> Option<u64> {
    let mut bytes = Vec::with_capacity(8);
    loop {
        if let Some((kind, _)) = varint::read(&bytes) {
            return Some(kind);
        }
        let mut byte = [0];
        stream.read_exact(&mut byte).await.ok()?;
        bytes.push(byte[0]);
    }
}

/// The next bytes of a stream that must not end (§6.2.1); `None` when the connection does.
async fn critical(stream: &mut quinn::RecvStream) -> Result<Option<Bytes>, Code> {
    match stream.read_chunk(PORTION, true).await {
        Ok(Some(chunk)) => Ok(Some(chunk.bytes)),
        Ok(None) | Err(ReadError::Reset(_)) => Err(Code::CLOSED_CRITICAL_STREAM),
        Err(_) => Ok(None),
    }
}

async fn instructions(
    mut stream: quinn::RecvStream,
    mut judge: impl FnMut(u8) -> Result<(), Code>,
) -> Result<(), Code> {
    while let Some(bytes) = critical(&mut stream).await? {
        bytes.iter().copied().try_for_each(&mut judge)?;
    }
    Ok(())
}

/// RFC 9204 §4.3: with no room in the table there is nothing to say but that its capacity is 0.
fn encoder_says(byte: u8) -> Result<(), Code> {
    if byte == 0x20 {
        Ok(())
    } else {
        Err(Code::ENCODER_STREAM_ERROR)
    }
}

/// RFC 9204 §4.4: sections that refer to no table are not acknowledged; streams may be cancelled. `within`: bytes of a number so far, 0 where none is
/// under way.
pub(crate) fn decoder_says(byte: u8, within: &mut u32) -> Result<(), Code> {
    let goes_on = match *within {
        0 if byte & 0xc0 == 0x40 => byte & 0x3f == 0x3f,
        // §4.1.1: no number is longer.
        1..LONGEST => byte & 0x80 != 0,
        _ => return Err(Code::DECODER_STREAM_ERROR),
    };
    *within = if goes_on { *within + 1 } else { 0 };
    Ok(())
}

/// The id of a stream as a number.
pub(crate) fn number(id: quinn::StreamId) -> u64 {
    VarInt::from(id).into_inner()
}

const CONTROL: u64 = 0x00;
const PUSH: u64 = 0x01;
const ENCODER: u64 = 0x02;
const DECODER: u64 = 0x03;

const TABLE_CAPACITY: u64 = 0x01;
const SECTION_BYTES: u64 = 0x06;
const BLOCKED_STREAMS: u64 = 0x07;
const EXTENDED_CONNECT: u64 = 0x08;
const DATAGRAMS: u64 = 0x33;

const PORTION: usize = 4096;
/// Bytes of a number of 62 bits, with its beginning.
pub(crate) const LONGEST: u32 = 10;
