//! The server's handshakes: what a listener does before there is a session.
//!
//! Nothing is kept about a client that has not shown, with a cookie, that it receives at its address. Then a half-open session is kept until the
//! first authentic datagram proves that the client has the keys. Half-open sessions are bounded in number, in time, and per network;
//! answers are bounded in rate, and shorter than what they answer.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::{
    INITIATE_LEN, MTU_DEFAULT, Options, VERSION,
    cookie::Cookies,
    keys::{Ephemeral, Role},
    session::{Session, Setup},
    wire::{self, Accept, INITIATE_HASHED, Initiate},
};
use crate::{MTU_MAX, Time};

/// A half-open session is given up after this: several retransmissions of a client.
const HALF_OPEN_TIME: Duration = Duration::from_secs(10);

/// Bounds of a [`Gate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// Half-open sessions, all together.
    pub half_open: usize,
    /// Half-open sessions from one IPv4 address or IPv6 /64.
    pub half_open_per_network: usize,
    /// Answers per second; the rest of what comes is dropped.
    pub answers_per_second: u32,
}

impl Default for GateLimits {
    /// 1024 half-open sessions, 64 per network, 5000 answers per second.
    fn default() -> Self {
        Self {
            half_open: 1024,
            half_open_per_network: 64,
            answers_per_second: 5000,
        }
    }
}

/// What to do about a handshake datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing.
    Ignore,
    /// Send this back to where the datagram came from.
    Send(Vec<u8>),
}

/// The door of a listener.
pub struct Gate {
    /// The last byte of the ids it gives out: which socket of a group a session belongs to.
    shard: u8,
    /// The byte before it: which process.
    epoch: u8,
    options: Options,
    limits: GateLimits,
    cookies: Cookies,
    half_open: HashMap<u64, HalfOpen>,
    by_client: HashMap<(SocketAddr, u64), u64>,
    networks: HashMap<IpAddr, usize>,
    /// Half-open sessions by age; some are gone already.
    ages: VecDeque<(Time, u64)>,
    /// Answers that may be given now, and when that was reckoned.
    answers: (u32, Time),
}

struct HalfOpen {
    session: Session,
    accept: Vec<u8>,
    from: SocketAddr,
    client: u64,
}

impl Gate {
    /// A door. `secret` is what its cookies are made with: random, and the same for all sockets of a group, as a client may come to another
    /// one with its cookie.
    pub fn new(shard: u8, options: Options, limits: GateLimits, secret: &[u8; 32]) -> Self {
        Self {
            shard,
            epoch: 0,
            options,
            limits,
            cookies: Cookies::new(secret),
            half_open: HashMap::new(),
            by_client: HashMap::new(),
            networks: HashMap::new(),
            ages: VecDeque::new(),
            answers: (limits.answers_per_second, Time::ZERO),
        }
    }

    /// Has the ids name the process too, where several follow one another on the same sockets.
    #[must_use]
    pub fn with_epoch(mut self, epoch: u8) -> Self {
        self.epoch = epoch;
        self
    }

    /// Takes a datagram that is no sealed one. `random` fills a buffer with random bytes. `full`: no more sessions can be taken, and who asks is told.
    pub fn handle_handshake(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
        full: bool,
        random: impl FnOnce(&mut [u8; 72]),
    ) -> Reply {
        self.expire(now);
        let Some((version, client)) = Initiate::peek(datagram) else {
            return Reply::Ignore;
        };
        if !self.may_answer(now) {
            return Reply::Ignore;
        }
        if version != VERSION {
            return Reply::Send(wire::encode_versions(client));
        }
        let Some(initiate) = Initiate::decode(datagram) else {
            return Reply::Ignore;
        };
        if !self.cookies.is_good(now, from, &initiate) {
            let cookie = self.cookies.bake(now, from, &initiate);
            return Reply::Send(wire::encode_retry(client, &cookie));
        }
        if let Some(known) = self
            .by_client
            .get(&(from, client))
            .and_then(|id| self.half_open.get(id))
        {
            return Reply::Send(known.accept.clone());
        }
        if full || !self.has_room(from) {
            return Reply::Send(wire::encode_refuse(client));
        }
        let mut bytes = [0; 72];
        random(&mut bytes);
        match self.begin(now, from, &initiate, datagram, &bytes) {
            Some(accept) => Reply::Send(accept),
            None => Reply::Ignore,
        }
    }

    fn begin(
        &mut self,
        now: Time,
        from: SocketAddr,
        initiate: &Initiate,
        datagram: &[u8],
        random: &[u8; 72],
    ) -> Option<Vec<u8>> {
        let (id, random) = random.split_first_chunk::<8>()?;
        let (private, random) = random.split_first_chunk::<32>()?;
        let mut id = *id;
        id[7] = self.shard;
        id[6] = self.epoch;
        let server = u64::from_le_bytes(id);
        let ephemeral = Ephemeral::new(private)?;
        let cipher = self.options.ciphers.choose(initiate.ciphers)?;
        let mtu = usize::from(initiate.mtu)
            .clamp(INITIATE_LEN, MTU_MAX)
            .min(self.options.mtu());
        let mut accept = Accept {
            client: initiate.client,
            server,
            key: ephemeral.public,
            cipher,
            mtu: u16::try_from(mtu).unwrap_or(MTU_DEFAULT as u16),
        }
        .encode_open();
        let hashed = datagram.get(..INITIATE_HASHED)?;
        let keys = ephemeral.agree(&initiate.key, hashed, &accept, cipher, Role::Server)?;
        let tag = keys.send.seal(0, &accept, &mut [])?;
        accept.extend_from_slice(&tag);
        let setup = Setup {
            role: Role::Server,
            local_id: server,
            remote_id: initiate.client,
            remote: from,
            mtu,
            keys,
            seed: *random.first_chunk()?,
        };
        let half_open = HalfOpen {
            session: Session::new(setup, &self.options, now),
            accept: accept.clone(),
            from,
            client: initiate.client,
        };
        if self.half_open.contains_key(&server) {
            return None;
        }
        self.half_open.insert(server, half_open);
        self.by_client.insert((from, initiate.client), server);
        *self.networks.entry(network(from)).or_default() += 1;
        self.ages.push_back((now, server));
        Some(accept)
    }

    /// Takes a sealed datagram for `id`. If that is half open and the datagram is authentic, the session is handed over.
    pub fn confirm(
        &mut self,
        now: Time,
        from: SocketAddr,
        id: u64,
        datagram: &mut [u8],
    ) -> Option<Session> {
        let half_open = self.half_open.get_mut(&id)?;
        half_open
            .session
            .handle_datagram(now, from, datagram)
            .ok()?;
        self.remove(id).map(|half_open| half_open.session)
    }

    /// Gives up what is too old. Called by [`Self::handle_handshake`]; only a quiet listener needs to call it itself.
    pub fn expire(&mut self, now: Time) {
        while let Some(&(born, id)) = self.ages.front()
            && (now.since(born) >= HALF_OPEN_TIME || !self.half_open.contains_key(&id))
        {
            self.ages.pop_front();
            self.remove(id);
        }
    }

    /// When [`Self::expire`] has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.ages.front().map(|&(born, _)| born + HALF_OPEN_TIME)
    }

    /// Half-open sessions.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    fn remove(&mut self, id: u64) -> Option<HalfOpen> {
        let half_open = self.half_open.remove(&id)?;
        self.by_client.remove(&(half_open.from, half_open.client));
        let network = network(half_open.from);
        if let Some(count) = self.networks.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.networks.remove(&network);
            }
        }
        Some(half_open)
    }

    fn has_room(&self, from: SocketAddr) -> bool {
        let of_network = self.networks.get(&network(from)).copied().unwrap_or(0);
        self.half_open.len() < self.limits.half_open && of_network < self.limits.half_open_per_network
            // Confirmed ones leave their age behind for a while.
            && self.ages.len() < 8 * self.limits.half_open
    }

    fn may_answer(&mut self, now: Time) -> bool {
        let rate = self.limits.answers_per_second;
        let (left, at) = &mut self.answers;
        let micros = u64::try_from(now.since(*at).as_micros()).unwrap_or(u64::MAX);
        let earned = micros.saturating_mul(u64::from(rate)) / 1_000_000;
        if earned > 0 {
            *left = u32::try_from(earned)
                .unwrap_or(rate)
                .saturating_add(*left)
                .min(rate);
            *at = now;
        }
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("shard", &self.shard)
            .field("half_open", &self.half_open.len())
            .finish_non_exhaustive()
    }
}

/// Whom a bound is for: one IPv4 address, or the /64 that one IPv6 host has.
fn network(from: SocketAddr) -> IpAddr {
    match from.ip().to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}
