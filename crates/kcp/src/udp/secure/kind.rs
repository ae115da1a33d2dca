//! What the driver does for sessions of gt's own mode.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::mpsc;

use super::{
    Elsewhere, Passed,
    link::{Common, State},
    stream::Stream,
};
use crate::{
    Time,
    secure::{Gate, Reply, Session, Stats, receiver},
    udp::{
        driver::{Core, Kind, SESSION_SENDS},
        link::{Link, Shared},
        outbox::Outbox,
        table::{Entry, Gone},
    },
};

/// Datagrams from other sockets of the group per turn.
const PASSED_PER_TURN: usize = 256;
/// Answers to handshakes and to peers of sessions that are gone that wait to be sent; more are dropped.
const ANSWERS: usize = 256;
/// How long a session whose stream is gone may go on until its data has arrived.
const LINGER: Duration = Duration::from_secs(5);
/// How long, and for how many sessions that are gone, the last datagram is kept for a peer that has not heard of the end.
const REMEMBER: Duration = Duration::from_secs(30);
const REMEMBER_MOST: usize = 4096;
/// A peer that goes on sending is told so often.
const SAY_AGAIN: Duration = Duration::from_millis(200);

/// What a listening socket has beside its sessions.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) gate: Gate,
    pub(super) index: u8,
    pub(super) epoch: u8,
    pub(super) elsewhere: Option<Box<dyn Elsewhere>>,
    pub(super) sessions: usize,
    pub(super) accepts: mpsc::Sender<Stream>,
    pub(super) passed: mpsc::Receiver<Passed>,
    pub(super) others: Arc<[mpsc::Sender<Passed>]>,
}

/// Sessions by id, each with keys of its own.
pub(in crate::udp) struct Secure {
    server: Option<Server>,
    by_id: HashMap<u64, usize>,
    gone: Gone<u64, Farewell>,
    answers: Vec<(SocketAddr, Vec<u8>)>,
}

/// Whose session it is, and what of its figures is in the sums.
pub(in crate::udp) struct Note {
    id: u64,
    counted: Stats,
}

/// Last words.
#[derive(Debug)]
struct Farewell {
    to: SocketAddr,
    words: Vec<u8>,
    said: Option<Time>,
}

impl Secure {
    pub(super) fn new(server: Option<Server>) -> Self {
        Self {
            server,
            by_id: HashMap::new(),
            gone: Gone::new(REMEMBER, REMEMBER_MOST),
            answers: Vec::new(),
        }
    }

    /// Takes a session; `None` if its id is in use.
    pub(super) fn add(&mut self, core: &mut Core<Self>, session: Session) -> Option<Stream> {
        let id = session.local_id();
        if self.by_id.contains_key(&id) {
            return None;
        }
        let key = core.table.next_key();
        let state = State::new(session);
        let link = Arc::new(Link::new(key, Arc::clone(&core.shared), state));
        let counted = Stats::default();
        core.table.insert(Arc::clone(&link), Note { id, counted });
        self.by_id.insert(id, key);
        core.queue(key);
        Some(Stream::new(link))
    }

    fn on_sealed(
        &mut self,
        core: &mut Core<Self>,
        now: Time,
        from: SocketAddr,
        id: u64,
        datagram: &mut [u8],
    ) {
        if let Some(&key) = self.by_id.get(&id)
            && let Some(entry) = core.table.get(key)
        {
            let mut state = entry.link.lock();
            // Counted in the session.
            if state.session.handle_datagram(now, from, datagram).is_ok() {
                state.wake();
                drop(state);
                core.queue(key);
            }
            return;
        }
        let length = datagram.len();
        if let Some(server) = &mut self.server
            && let Some(session) = server.gate.confirm(now, from, id, datagram)
        {
            return self.accept(core, session);
        }
        core.shared.common.totals.strays.fetch_add(1, Relaxed);
        if let Some((to, words)) = self.farewell(id, now, length) {
            self.reply(to, words);
        }
    }

    /// What to say to the peer of a session that is gone and from which a datagram of `length` bytes came. The words go to where the peer
    /// was last, and are never longer than what they answer.
    fn farewell(&mut self, id: u64, now: Time, length: usize) -> Option<(SocketAddr, Vec<u8>)> {
        let gone = self.gone.get(now, id)?;
        let soon = gone.said.is_some_and(|said| now.since(said) < SAY_AGAIN);
        if soon || gone.words.len() > length {
            return None;
        }
        gone.said = Some(now);
        Some((gone.to, gone.words.clone()))
    }

    fn accept(&mut self, core: &mut Core<Self>, mut session: Session) {
        let Some(server) = &self.server else { return };
        let accepts = server.accepts.clone();
        let Ok(place) = accepts.try_reserve() else {
            // Nobody takes it up: the client is told at once.
            if let Some(farewell) = session.farewell() {
                self.reply(session.remote(), farewell);
            }
            return;
        };
        if let Some(stream) = self.add(core, session) {
            place.send(stream);
        }
    }

    fn on_handshake(
        &mut self,
        core: &mut Core<Self>,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
    ) {
        let totals = &core.shared.common.totals;
        let Some(server) = &mut self.server else {
            totals.strays.fetch_add(1, Relaxed);
            return;
        };
        totals.handshakes.fetch_add(1, Relaxed);
        let full = core.table.len() >= server.sessions || server.accepts.is_closed();
        let random = |bytes: &mut [u8; 72]| rand::fill(bytes);
        if let Reply::Send(reply) = server
            .gate
            .handle_handshake(now, from, datagram, full, random)
        {
            self.reply(from, reply);
        }
    }

    fn reply(&mut self, to: SocketAddr, datagram: Vec<u8>) {
        if self.answers.len() < ANSWERS {
            self.answers.push((to, datagram));
        }
    }

    /// Puts in what a session has made. Returns how many datagrams, and whether there may be more.
    fn send_all(
        core: &mut Core<Self>,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        state: &mut State,
        now: Time,
    ) -> (usize, bool) {
        let most = core.shared.socket.max_segments();
        out.begin(most);
        for sent in 0..SESSION_SENDS {
            if out.space().is_none() && !core.flush(cx, out) {
                return (sent, true);
            }
            let made = out
                .space()
                .and_then(|space| state.session.poll_transmit(now, space));
            let Some(made) = made else {
                return (sent, false);
            };
            out.push(made.to, made.length);
        }
        (SESSION_SENDS, true)
    }

    fn close(&mut self, core: &mut Core<Self>, key: usize, now: Time) {
        let Some(entry) = core.table.remove(key) else {
            return;
        };
        let Note { id, counted } = entry.note;
        self.by_id.remove(&id);
        let mut state = entry.link.lock();
        let farewell = state.session.farewell();
        let to = state.session.remote();
        state.wake();
        let stats = state.session.stats();
        drop(state);
        core.shared.common.totals.add(&counted, &stats);
        let Some(words) = farewell else { return };
        if self.server.is_none() {
            // The socket ends with its session, so that the peer cannot ask again.
            core.shared.socket.send_now(to, &words);
        }
        let said = None;
        self.gone.add(now, id, Farewell { to, words, said });
    }
}

impl Kind for Secure {
    type State = State;
    type Common = Common;
    type Note = Note;
    /// Figures are summed up that often.
    const SWEEP: Duration = Duration::from_secs(1);

    /// Takes what other sockets of the group got for sessions of this one.
    fn receive_passed(&mut self, core: &mut Core<Self>, cx: &mut Context<'_>) -> bool {
        let now = core.shared.clock.now();
        for _ in 0..PASSED_PER_TURN {
            let Some(server) = &mut self.server else {
                return false;
            };
            let Poll::Ready(Some((from, mut datagram))) = server.passed.poll_recv(cx) else {
                return false;
            };
            if let Some(id) = receiver(&datagram) {
                self.on_sealed(core, now, from, id, &mut datagram);
            }
        }
        true
    }

    fn reads(&self, core: &Core<Self>) -> bool {
        !core.shared.common.is_retired()
    }

    fn on_datagram(
        &mut self,
        core: &mut Core<Self>,
        now: Time,
        from: SocketAddr,
        datagram: &mut [u8],
    ) {
        let Some(id) = receiver(datagram) else {
            return self.on_handshake(core, now, from, datagram);
        };
        if let Some(server) = &mut self.server {
            let [.., epoch, owner] = id.to_le_bytes();
            if epoch != server.epoch {
                match &mut server.elsewhere {
                    Some(elsewhere) => elsewhere.pass(epoch, from, datagram),
                    None => drop(core.shared.common.totals.strays.fetch_add(1, Relaxed)),
                }
                return;
            }
            if owner != server.index {
                // Full or no such socket: lost, as on any path.
                if let Some(other) = server.others.get(usize::from(owner)) {
                    let _ = other.try_send((from, datagram.to_vec()));
                }
                return;
            }
        }
        self.on_sealed(core, now, from, id, datagram);
    }

    fn received(&mut self) {
        if let Some(elsewhere) = self.server.as_mut().and_then(|s| s.elsewhere.as_mut()) {
            elsewhere.flush();
        }
    }

    fn expire(&mut self, now: Time) {
        if let Some(server) = &mut self.server {
            server.gate.expire(now);
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.server.as_ref()?.gate.poll_timeout()
    }

    fn answer(&mut self, core: &mut Core<Self>, cx: &mut Context<'_>) {
        for (to, answer) in self.answers.drain(..) {
            // One that finds no room is lost, as on any path.
            let _ = core.shared.socket.poll_send(cx, to, &answer, answer.len());
        }
    }

    fn turn(
        &mut self,
        core: &mut Core<Self>,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        key: usize,
        now: Time,
    ) -> usize {
        let Some(link) = core.begin_turn(key, now) else {
            return 0;
        };
        let mut state = link.lock();
        let mut linger = None;
        if state.dropped {
            // Nobody reads any more: what comes is answered with a reset, as TCP does.
            if state.session.readable() > 0
                || (state.session.is_flushed() && state.session.is_shut())
            {
                state.session.reset();
            }
            state.session.shutdown(now);
            linger = core
                .table
                .get(key)
                .map(|entry| *entry.linger.get_or_insert(now + LINGER));
            if linger.is_some_and(|until| until <= now) {
                state.session.reset();
            }
        }
        state.session.handle_timeout(now);
        let (sent, again) = Self::send_all(core, cx, out, &mut state, now);
        state.wake();
        let over = state.session.end().is_some();
        let deadline = state.session.poll_timeout();
        drop(state);
        if over {
            self.close(core, key, now);
        } else {
            core.end_turn(key, again, deadline.into_iter().chain(linger).min());
        }
        sent
    }

    fn sweep(common: &Common, entry: &mut Entry<Self>, active: bool) {
        let mut state = entry.link.lock();
        if active {
            let stats = state.session.stats();
            common.totals.add(&entry.note.counted, &stats);
            entry.note.counted = stats;
        } else {
            state.session.trim();
        }
    }

    fn is_closed(&self) -> bool {
        self.server
            .as_ref()
            .is_none_or(|server| server.accepts.is_closed())
    }

    /// Peers need not find out by silence.
    fn leave(shared: &Shared<Self>, state: &mut State) {
        if let Some(words) = state.session.farewell() {
            shared.socket.send_now(state.session.remote(), &words);
        }
        state.orphaned = true;
        state.wake();
    }
}
