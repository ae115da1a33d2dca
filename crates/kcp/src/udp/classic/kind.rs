//! What the driver does for sessions as kcp-go's.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    task::Context,
    time::Duration,
};

use tokio::sync::mpsc;

use super::{
    link::{End, State},
    rate::Rate,
    session::Session,
};
use crate::{
    Counters, InputError, Peek, Pipeline, Time,
    arq::Conv,
    udp::{
        Options,
        driver::{Core, Kind, SESSION_SENDS},
        link::{Link, Shared, lock},
        outbox::Outbox,
        table::{Entry, Gone},
    },
};

/// How long a session that is gone is remembered, so that its peer's late datagrams do not make a new one.
const REMEMBER: Duration = Duration::from_secs(60);
/// Most that are remembered.
const REMEMBER_MOST: usize = 8192;

/// Sessions by address, with the key that all of a socket's sessions share.
pub(in crate::udp) struct Classic {
    options: Options,
    /// Where a listener's new sessions go.
    accepts: Option<mpsc::Sender<Session>>,
    by_remote: HashMap<SocketAddr, usize>,
    gone: Gone<(SocketAddr, Conv), ()>,
}

/// Whose session it is.
pub(in crate::udp) struct Note {
    remote: SocketAddr,
    conv: Conv,
}

impl Classic {
    pub(super) fn new(options: Options, accepts: Option<mpsc::Sender<Session>>) -> Self {
        Self {
            options,
            accepts,
            by_remote: HashMap::new(),
            gone: Gone::new(REMEMBER, REMEMBER_MOST),
        }
    }

    /// Adds the session `conv` with `remote` and gives its handle. The configuration has been checked.
    pub(super) fn open(
        &mut self,
        core: &mut Core<Self>,
        remote: SocketAddr,
        conv: Conv,
    ) -> Option<Session> {
        let options = &self.options;
        let pipeline = Pipeline::new(
            conv,
            options.config.clone(),
            Arc::clone(&options.seal),
            rand::random(),
        )
        .ok()?;
        let now = core.shared.clock.now();
        let rate = options.rate_limit.map(|rate| Rate::new(rate, now));
        let key = core.table.next_key();
        let state = State::new(pipeline, rate);
        let link = Arc::new(Link::new(key, Arc::clone(&core.shared), state));
        core.table.insert(Arc::clone(&link), Note { remote, conv });
        self.by_remote.insert(remote, key);
        let mut counters = lock(&core.shared.common);
        counters.curr_estab += 1;
        counters.max_conn = counters.max_conn.max(counters.curr_estab);
        *(if self.accepts.is_some() {
            &mut counters.passive_opens
        } else {
            &mut counters.active_opens
        }) += 1;
        Some(Session::new(link, remote))
    }

    /// Whose datagram it is; a listener may make a session for it.
    fn session_for(
        &mut self,
        core: &mut Core<Self>,
        now: Time,
        from: SocketAddr,
        peek: Peek,
    ) -> Option<usize> {
        let existing = self.by_remote.get(&from).copied();
        if let Some(key) = existing {
            let conv = core.table.get(key)?.note.conv;
            if peek.conv.is_none_or(|other| other == conv) {
                return Some(key);
            }
        }
        let conv = peek.conv?;
        let accepts = self.accepts.clone()?;
        let allowed = if existing.is_some() {
            peek.replaces()
        } else {
            peek.opens(self.options.config.recv_window)
        };
        if !allowed || self.gone.get(now, (from, conv)).is_some() {
            return None;
        }
        // A place in the queue first: nothing is replaced that cannot be taken up.
        let place = accepts.try_reserve().ok()?;
        if let Some(key) = existing {
            self.close(core, key, now, End::Replaced);
        } else if core.table.len() >= self.options.max_sessions {
            return None;
        }
        let key = core.table.next_key();
        let session = self.open(core, from, conv)?;
        place.send(session);
        Some(key)
    }

    /// Puts in what a session has made. Returns how many datagrams, whether there may be more, and until when the rate limit
    /// holds them back.
    fn send_all(
        core: &mut Core<Self>,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        state: &mut State,
        to: SocketAddr,
        now: Time,
    ) -> (usize, bool, Option<Time>) {
        let most = core.shared.socket.max_segments();
        let mut sent = 0;
        let mut begin = out.begin(most);
        let State { pipeline, rate, .. } = state;
        let (again, wait) = loop {
            let wait = rate.as_mut().and_then(|rate| rate.wait(now));
            if wait.is_some() || sent >= SESSION_SENDS {
                break (wait.is_none(), wait);
            }
            let Some(space) = out.space() else {
                out.seal(begin, |datagrams, size| {
                    pipeline.seal_batch(datagrams, size)
                });
                if !core.flush(cx, out) {
                    return (sent, true, None);
                }
                begin = out.begin(most);
                continue;
            };
            let Some(length) = pipeline.poll_unsealed(now, space) else {
                break (false, None);
            };
            out.push(to, length);
            sent += 1;
            if let Some(rate) = rate {
                rate.spend(length);
            }
        };
        out.seal(begin, |datagrams, size| {
            pipeline.seal_batch(datagrams, size)
        });
        (sent, again, wait)
    }

    fn close(&mut self, core: &mut Core<Self>, key: usize, now: Time, end: End) {
        let Some(entry) = core.table.remove(key) else {
            return;
        };
        let Note { remote, conv } = entry.note;
        if self.by_remote.get(&remote) == Some(&key) {
            self.by_remote.remove(&remote);
        }
        self.gone.add(now, (remote, conv), ());
        let mut state = entry.link.lock();
        state.finish(end);
        let counters = state.pipeline.counters();
        drop(state);
        let mut total = lock(&core.shared.common);
        total.add_totals(&counters);
        total.curr_estab = total.curr_estab.saturating_sub(1);
    }
}

impl Kind for Classic {
    type State = State;
    /// Counts of the socket itself and of sessions that are gone.
    type Common = Mutex<Counters>;
    type Note = Note;
    const SWEEP: Duration = Duration::from_secs(5);

    fn on_datagram(
        &mut self,
        core: &mut Core<Self>,
        now: Time,
        from: SocketAddr,
        datagram: &mut [u8],
    ) {
        let body = match self.options.seal.open(datagram) {
            Ok(body) => body,
            Err(error) => {
                let mut counters = lock(&core.shared.common);
                *(if error == InputError::Unsealed {
                    &mut counters.in_csum_errors
                } else {
                    &mut counters.in_errs
                }) += 1;
                return;
            }
        };
        let Some(peek) = Peek::of(body) else {
            lock(&core.shared.common).kcp_in_errors += 1;
            return;
        };
        let Some(key) = self.session_for(core, now, from, peek) else {
            return;
        };
        let Some(entry) = core.table.get(key) else {
            return;
        };
        let mut state = entry.link.lock();
        // Counted in the pipeline.
        let _ = state.pipeline.handle_opened(now, body);
        state.wake();
        drop(state);
        core.queue(key);
    }

    fn on_error(&mut self, core: &Core<Self>) {
        lock(&core.shared.common).in_errs += 1;
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
        let Some(remote) = core.table.get(key).map(|entry| entry.note.remote) else {
            return 0;
        };
        let mut state = link.lock();
        state.pipeline.handle_timeout(now);
        if state.dropped {
            state.pipeline.answer_now(now);
        }
        let (sent, again, wait) = Self::send_all(core, cx, out, &mut state, remote, now);
        let dead = state.pipeline.is_dead();
        let mut deadline = state.pipeline.poll_timeout();
        let (dropped, flushed) = (state.dropped, state.pipeline.is_flushed());
        drop(state);
        if dead {
            self.close(core, key, now, End::Dead);
            return sent;
        }
        let linger = self.options.linger;
        if dropped && let Some(entry) = core.table.get(key) {
            let until = *entry.linger.get_or_insert(now + linger);
            if flushed || until <= now {
                self.close(core, key, now, End::Socket);
                return sent;
            }
            deadline = deadline.min(Some(until)).or(Some(until));
        }
        // What the rate limit holds back has no deadline before.
        let held = deadline.map(|at| wait.map_or(at, |wait| at.max(wait)));
        core.end_turn(key, again, held.into_iter().chain(wait).min());
        sent
    }

    fn sweep(_: &Self::Common, entry: &mut Entry<Self>, active: bool) {
        if !active {
            entry.link.lock().pipeline.trim();
        }
    }

    fn is_closed(&self) -> bool {
        self.accepts.as_ref().is_none_or(mpsc::Sender::is_closed)
    }

    fn leave(_: &Shared<Self>, state: &mut State) {
        state.finish(End::Socket);
    }
}
