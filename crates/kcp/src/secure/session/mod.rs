//! A session of gt's own mode: AEAD, FEC and ARQ joined, with keep-alive, ends, and the peer's address.
//!
//! Inwards: number seen? → open → frames → (FEC) → ARQ. Outwards: control frames, then parity, then what the ARQ has, each sealed under
//! the next number. After every `handle_*`, [`Session::write`], [`Session::read`], [`Session::shutdown`] and [`Session::reset`], call
//! [`Session::poll_transmit`] until it gives nothing, then [`Session::poll_timeout`]. What comes is in `input.rs`, what goes out in `output.rs`;
//! here are the parts, the stream's face, the deadlines and the end.

mod input;
mod output;

use std::{net::SocketAddr, time::Duration};

use super::{
    FecPolicy, GroupDecoder, GroupEncoder, Options, Ratio, ReplayWindow,
    control::Control,
    fec::GROUP,
    keys::{Direction, Keys, Role},
    path::Path,
    wire::{OVERHEAD, PARITY_HEAD, SIZE},
};
use crate::{
    Time,
    arq::{Arq, Conv},
};

/// Segments that may wait behind those in flight: what is written must soon be sent, so that the writer can still choose what goes first.
const QUEUE: usize = 32;
/// A server takes so little until it knows who the peer is: a stranger costs no more.
const STRANGER_WINDOW: u32 = 32;
/// What the address must have earned before anything is said there.
const LEAST: usize = OVERHEAD + Control::MOST;
/// A group that is not full is ended when nothing more came for so long.
const GROUP_PAUSE: Duration = Duration::from_millis(8);
/// Datagrams under one key; then the session ends and a new one has new keys. AES-GCM bears more (RFC 9001 §B.1 counts 2^23 for far larger
/// margins); at this, 1.4 KB each are 96 TB.
const MOST_DATAGRAMS: u64 = 1 << 36;

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both directions ended in order, and both ends know.
    Finished,
    /// This end gave it up.
    Abandoned,
    /// The peer gave it up.
    Reset,
    /// The peer does not answer.
    Dead,
    /// The peer broke the protocol.
    Protocol,
    /// The keys have been used as often as they may.
    Exhausted,
}

/// Figures of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Datagrams sent.
    pub sent: u64,
    /// Authentic datagrams received.
    pub received: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Packets recovered by FEC.
    pub recovered: u64,
    /// Parity datagrams sent.
    pub parity: u64,
    /// Datagrams refused as replayed or forged.
    pub refused: u64,
    /// Times the peer's address changed.
    pub moves: u64,
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// Its bytes.
    pub length: usize,
}

/// What a handshake has made.
pub(super) struct Setup {
    pub(super) role: Role,
    pub(super) local_id: u64,
    pub(super) remote_id: u64,
    pub(super) remote: SocketAddr,
    pub(super) mtu: usize,
    pub(super) keys: Keys,
    pub(super) seed: [u8; 32],
}

/// One end of a session.
#[derive(Debug)]
pub struct Session {
    local_id: u64,
    remote_id: u64,
    binding: [u8; 32],
    send: Direction,
    receive: Direction,
    /// The number of the next datagram; 0 was the Accept's.
    next: u64,
    replay: ReplayWindow,
    /// The newest datagram when the last report was made.
    report_mark: u64,
    path: Path,
    arq: Arq,
    mtu: usize,
    /// The full receive window, while less is offered.
    full_window: Option<(u32, Options)>,
    policy: FecPolicy,
    ratio: Ratio,
    encoder: GroupEncoder,
    /// When an open group is ended.
    group_due: Option<Time>,
    decoder: GroupDecoder,
    control: Control,
    written: u64,
    read: u64,
    end: Option<End>,
    stats: Stats,
}

impl Session {
    pub(super) fn new(setup: Setup, options: &Options, now: Time) -> Self {
        let Setup {
            role,
            local_id,
            remote_id,
            remote,
            mtu,
            keys,
            seed,
        } = setup;
        let stranger = role == Role::Server && options.recv_window > STRANGER_WINDOW;
        let offered = if stranger {
            STRANGER_WINDOW
        } else {
            options.recv_window
        };
        // Parity of a full packet must fit as well, and has the longer head.
        let room = mtu - OVERHEAD - PARITY_HEAD - SIZE;
        let mut control = Control::new(now, options, seed);
        if role == Role::Client {
            // The server knows of us only when it has heard something sealed.
            control.ping();
        }
        Self {
            local_id,
            remote_id,
            binding: keys.binding,
            send: keys.send,
            receive: keys.receive,
            next: 1,
            replay: ReplayWindow::default(),
            report_mark: 0,
            path: Path::new(remote, role == Role::Client),
            arq: Arq::new(Conv(0), options.arq(offered), room),
            mtu,
            full_window: stranger.then(|| (options.recv_window, options.clone())),
            policy: options.fec,
            ratio: Ratio::new(options.fec),
            encoder: GroupEncoder::default(),
            group_due: None,
            decoder: GroupDecoder::default(),
            control,
            written: 0,
            read: 0,
            end: None,
            stats: Stats::default(),
        }
    }

    /// This end's id: what datagrams to it are addressed with.
    pub fn local_id(&self) -> u64 {
        self.local_id
    }

    /// The same 32 bytes at both ends and in no other session: a proof over them holds for this channel only.
    pub fn binding(&self) -> &[u8; 32] {
        &self.binding
    }

    /// Where the peer is now.
    pub fn remote(&self) -> SocketAddr {
        self.path.remote()
    }

    /// How it ended; `None` while it goes on.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// The largest datagram, as both ends agreed.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// The smoothed round-trip time, once one was measured.
    pub fn srtt(&self) -> Option<Duration> {
        self.arq.srtt()
    }

    /// The share of this end's datagrams that does not arrive, as the peer reports, 0 to 1; what a full queue may have lost is left out.
    pub fn loss(&self) -> f64 {
        self.ratio.loss()
    }

    /// Parity packets per full group now.
    pub fn parity(&self) -> usize {
        self.ratio.parity()
    }

    /// What happened so far.
    pub fn stats(&self) -> Stats {
        Stats {
            retransmitted: self.arq.retransmitted(),
            ..self.stats
        }
    }

    /// When [`Self::handle_timeout`] wants to be called. `None`: the session is over.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        if self.end.is_some() {
            return None;
        }
        // What may not be sent now has no deadline that could be met.
        let credit = self.path.credit();
        let data = if credit < self.mtu {
            [None, None]
        } else {
            [self.arq.poll_timeout(), self.group_due]
        };
        let control = if credit < LEAST {
            self.control.dead_at()
        } else {
            self.control.due()
        };
        [data[0], data[1], self.path.due(LEAST), Some(control)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Acts on the deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.end.is_some() {
            return;
        }
        self.arq.handle_timeout(now);
        self.path.expire(now);
        if self.group_due.is_some_and(|due| due <= now) {
            self.group_due = None;
            self.encoder.end();
        }
        if self.control.expire(now) || self.arq.is_dead() {
            self.fail(End::Dead);
        }
    }

    /// Takes bytes to be sent: as many as there is room for, possibly none. None are taken after [`Self::shutdown`] or the end.
    pub fn write(&mut self, now: Time, data: &[u8]) -> usize {
        if self.end.is_some() || self.control.is_shut() {
            return 0;
        }
        let room = QUEUE.saturating_sub(self.arq.unsent()) * self.mss();
        let data = &data[..data.len().min(room)];
        let taken = self.arq.write(now, data).unwrap_or(0);
        self.written += taken as u64;
        taken
    }

    /// Whether a writer that waits should try again.
    pub fn has_room(&self) -> bool {
        self.arq.unsent() <= QUEUE / 2 && self.arq.is_writable()
    }

    /// Copies received bytes. Returns how many; 0 when there are none yet, or the peer's end was reached ([`Self::is_at_end`]).
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let count = self.arq.read(out);
        self.read += count as u64;
        self.settle();
        count
    }

    /// The peer is no stranger any more: from now on it gets the full receive window. A server calls this when a protocol above has
    /// proved who the peer is.
    pub fn admit(&mut self) {
        if let Some((window, options)) = self.full_window.take() {
            let room = self.arq.mtu();
            self.arq.reconfigure(options.arq(window), room);
        }
    }

    /// Bytes that [`Self::read`] would give now.
    pub fn readable(&self) -> usize {
        self.arq.readable()
    }

    /// Whether reading has opened a full window, which the peer waits to hear.
    pub fn has_window_news(&self) -> bool {
        self.arq.has_window_news()
    }

    /// Whether the peer has ended its direction and everything before that has been read.
    pub fn is_at_end(&self) -> bool {
        self.control.peer_total() == Some(self.read)
    }

    /// Ends this direction: the peer reads what was written, then the end.
    pub fn shutdown(&mut self, now: Time) {
        self.control.shut(now);
        self.settle();
    }

    /// Whether this direction was ended.
    pub fn is_shut(&self) -> bool {
        self.control.is_shut()
    }

    /// Whether the peer has everything that was written, and the end if there is one.
    pub fn is_flushed(&self) -> bool {
        self.arq.is_flushed() && self.control.end_is_known()
    }

    /// Gives the session up and says so to the peer.
    pub fn reset(&mut self) {
        if self.end.is_none() {
            self.fail(End::Abandoned);
        }
    }

    /// Gives back memory that only a busy session needs. To be called when nothing has happened for a while.
    pub fn trim(&mut self) {
        self.encoder.trim();
        self.decoder.trim();
    }

    /// The session is over if both directions are.
    fn settle(&mut self) {
        if self.end.is_none()
            && self.control.is_shut()
            && self.is_flushed()
            && self.is_at_end()
            && !self.control.owes_ack()
        {
            self.end = Some(End::Finished);
        }
    }

    fn fail(&mut self, end: End) {
        if self.end.is_none() {
            self.end = Some(end);
            if end != End::Reset {
                self.control.say_reset();
            }
        }
    }

    fn mss(&self) -> usize {
        self.arq.mtu() - crate::arq::HEADER
    }

    /// What is used of a full group and the policy, for tests and status pages.
    pub fn fec(&self) -> (FecPolicy, usize, usize) {
        (self.policy, GROUP, self.ratio.parity())
    }
}
