//! Which server of an upstream gets the next request.
//!
//! A pick goes through these steps, and the first that finds a server ends it:
//!
//! 1. *sticky*: the server that the visitor's cookie names, if it is available, has room and was not tried;
//! 2. *primaries*: by policy, among those that are available and have room. When there are available ones and none has room, nothing is
//!    picked: the request waits or is refused;
//! 3. *backups*: likewise, when no primary is available;
//! 4. *panic*: when nothing is available at all, health counts no more and the policy picks among all that are not down or tried: what health
//!    says is more likely wrong than every server is gone, and an answer of the server says more than a 503.
//!
//! A server with weight 0 gets only visitors whose cookie names it; a server that is `down` gets nobody. Counts are those of one worker.

mod ewma;
mod hash;
mod set;
mod sticky;

use std::time::Duration;

pub use hash::HashKey;
pub use set::Tried;
pub use sticky::{Sticky, StickyTag};

use crate::BuildError;
use ewma::Ewma;

/// Most servers of one upstream.
pub const MAX_SERVERS: usize = 512;
/// Largest weight.
pub const MAX_WEIGHT: u32 = 1000;

/// A server's place in its upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerIndex(pub u16);

impl ServerIndex {
    fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// How a server is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Smooth weighted round robin: in any run of as many picks as the weights add up to, each server gets exactly its weight, spread evenly.
    #[default]
    RoundRobin,
    /// The least `(requests under way + 1) / weight`; equals take turns.
    LeastConnections,
    /// Two servers at random by weight, and of these the one with fewer requests under way. Does not herd when many workers choose.
    TwoChoices,
    /// Two at random by weight, and of these the one with the less `peak response time × (requests under way + 1)`.
    PeakEwma,
    /// Weighted rendezvous hashing of [`PickRequest::key`]: a server that leaves or comes moves only its own share. Without a key, round robin.
    Hash {
        /// No server gets more than this many per cent of its share of the requests under way (at least 101); `None` = no bound.
        load_factor: Option<u32>,
    },
}

/// A server as configured.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// The address as configured: what hashing and sticky cookies know it by.
    pub name: Box<str>,
    /// From 0 to [`MAX_WEIGHT`].
    pub weight: u32,
    /// Used only when no other is available.
    pub backup: bool,
    /// Not used.
    pub down: bool,
    /// Requests under way, per worker.
    pub max_active: Option<u32>,
}

impl ServerSpec {
    /// A server of weight 1.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            weight: 1,
            backup: false,
            down: false,
            max_active: None,
        }
    }
}

/// What a server is picked for.
#[derive(Debug, Clone, Copy)]
pub struct PickRequest<'a> {
    /// The time.
    pub now: Duration,
    /// What [`HashKey::of`] says.
    pub key: Option<u64>,
    /// The value of the sticky cookie.
    pub sticky: Option<&'a [u8]>,
    /// Servers that have failed this request.
    pub tried: Tried,
    /// Random bits.
    pub random: u64,
}

/// A server that was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// Which one.
    pub server: ServerIndex,
    /// No server was available, and health was set aside.
    pub panic: bool,
    /// The visitor's cookie named it: it does not need to be set again.
    pub sticky: bool,
}

/// How a request on a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A response head came after this time.
    Answered(Duration),
    /// None came.
    Failed,
}

/// Picks servers of one upstream, for one worker.
#[derive(Debug)]
pub struct Balancer {
    policy: Policy,
    slow_start: Duration,
    servers: Box<[Server]>,
    sticky: Option<Box<[StickyTag]>>,
    /// Where the search for the least begins, so that equals take turns.
    turn: usize,
    active: u64,
}

#[derive(Debug)]
struct Server {
    /// Known by this to hashing.
    id: u64,
    weight: u32,
    backup: bool,
    down: bool,
    max_active: u32,
    active: u32,
    /// Smooth round robin's running credit.
    current: i64,
    /// Since when its share grows.
    warming_since: Option<Duration>,
    ewma: Ewma,
}

/// A weight's unit, so that a part of a weight can be expressed while a server warms up.
const SCALE: u64 = 256;

impl Balancer {
    /// A balancer for these servers. A server that comes back ([`Self::came_up`]) gets its share over `slow_start`; zero = at once.
    ///
    /// # Errors
    /// [`BuildError::TooMany`] for more than [`MAX_SERVERS`] servers or a weight above [`MAX_WEIGHT`].
    pub fn new(
        policy: Policy,
        slow_start: Duration,
        servers: &[ServerSpec],
    ) -> Result<Self, BuildError> {
        if servers.len() > MAX_SERVERS {
            return Err(BuildError::TooMany(MAX_SERVERS));
        }
        if servers.iter().any(|server| server.weight > MAX_WEIGHT) {
            return Err(BuildError::TooMany(MAX_WEIGHT as usize));
        }
        let servers = servers.iter().map(|spec| Server {
            id: crate::hash_bytes(0, spec.name.as_bytes()),
            weight: spec.weight,
            backup: spec.backup,
            down: spec.down,
            max_active: spec.max_active.unwrap_or(u32::MAX),
            active: 0,
            current: 0,
            warming_since: None,
            ewma: Ewma::default(),
        });
        Ok(Self {
            policy,
            slow_start,
            servers: servers.collect(),
            sticky: None,
            turn: 0,
            active: 0,
        })
    }

    /// Visitors stay with their server by a cookie.
    #[must_use]
    pub fn with_sticky(mut self, sticky: &Sticky, servers: &[ServerSpec]) -> Self {
        self.sticky = Some(
            servers
                .iter()
                .map(|server| sticky.tag(&server.name))
                .collect(),
        );
        self
    }

    /// What the cookie of a server's visitors says; `None` without sticky sessions.
    pub fn sticky_tag(&self, server: ServerIndex) -> Option<&StickyTag> {
        self.sticky.as_ref()?.get(server.at())
    }

    /// Picks a server, see the module's steps. `available` is what health says, [`Health::available`](crate::Health::available). `None`: there is no server, or none with room.
    pub fn pick(
        &mut self,
        request: &PickRequest<'_>,
        available: impl Fn(ServerIndex) -> bool,
    ) -> Option<Pick> {
        if let Some(server) = self.sticky_server(request, &available) {
            return Some(Pick {
                server: index(server),
                panic: false,
                sticky: true,
            });
        }
        // Where there is no choice, as behind most proxies, nothing has to be weighed.
        if let [only] = &self.servers[..] {
            let possible = !only.down && only.weight > 0 && only.active < only.max_active;
            return (possible && !request.tried.has(index(0))).then(|| Pick {
                server: index(0),
                panic: !available(index(0)),
                sticky: false,
            });
        }
        let mut found = [Tried::default(); 4];
        let [primaries, backups, all, all_backups] = &mut found;
        for (n, server) in self.servers.iter().enumerate() {
            if server.down || server.weight == 0 || request.tried.has(index(n)) {
                continue;
            }
            let (healthy, any) = match server.backup {
                false => (&mut *primaries, &mut *all),
                true => (&mut *backups, &mut *all_backups),
            };
            any.insert(index(n));
            if available(index(n)) {
                healthy.insert(index(n));
            }
        }
        let (step, candidates) = found.iter().enumerate().find(|(_, set)| !set.is_empty())?;
        let mut candidates = *candidates;
        candidates.retain(|n| self.servers[n].active < self.servers[n].max_active);
        let server = self.choose(request, &candidates)?;
        Some(Pick {
            server: index(server),
            panic: step >= 2,
            sticky: false,
        })
    }

    /// A request begins on a server.
    pub fn started(&mut self, server: ServerIndex) {
        if let Some(server) = self.servers.get_mut(server.at()) {
            server.active += 1;
            self.active += 1;
        }
    }

    /// A request that [`started`](Self::started) has ended.
    pub fn finished(&mut self, server: ServerIndex, now: Duration, outcome: Outcome) {
        if let Some(server) = self.servers.get_mut(server.at()) {
            debug_assert!(server.active > 0, "a request ended that did not begin");
            server.active = server.active.saturating_sub(1);
            self.active = self.active.saturating_sub(1);
            if let Outcome::Answered(time) = outcome {
                server.ewma.observe(now, time);
            }
        }
    }

    /// Health says that a server is back: its share grows from a tenth to all over the slow start.
    pub fn came_up(&mut self, server: ServerIndex, now: Duration) {
        if let Some(server) = self.servers.get_mut(server.at()) {
            server.warming_since = (!self.slow_start.is_zero()).then_some(now);
        }
    }

    /// Changes a weight, up to [`MAX_WEIGHT`].
    pub fn set_weight(&mut self, server: ServerIndex, weight: u32) {
        if let Some(server) = self.servers.get_mut(server.at()) {
            server.weight = weight.min(MAX_WEIGHT);
        }
    }

    /// Takes a server out, or puts it back.
    pub fn set_down(&mut self, server: ServerIndex, down: bool) {
        if let Some(server) = self.servers.get_mut(server.at()) {
            server.down = down;
        }
    }

    /// Requests under way on a server.
    pub fn active(&self, server: ServerIndex) -> u32 {
        self.servers
            .get(server.at())
            .map_or(0, |server| server.active)
    }

    /// How many servers there are.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    fn sticky_server(
        &self,
        request: &PickRequest<'_>,
        available: &impl Fn(ServerIndex) -> bool,
    ) -> Option<usize> {
        let (tags, cookie) = (self.sticky.as_ref()?, request.sticky?);
        let n = tags.iter().position(|tag| tag.as_bytes() == cookie)?;
        let server = &self.servers[n];
        let fits = !server.down
            && server.active < server.max_active
            && !request.tried.has(index(n))
            && available(index(n));
        fits.then_some(n)
    }

    fn choose(&mut self, request: &PickRequest<'_>, among: &Tried) -> Option<usize> {
        self.finish_warming(request.now);
        match (self.policy, request.key) {
            (Policy::Hash { load_factor }, Some(key)) => self.by_hash(key, load_factor, among),
            (Policy::RoundRobin | Policy::Hash { .. }, _) => self.by_turns(request.now, among),
            (Policy::LeastConnections, _) => self.by_least(request.now, among),
            (Policy::TwoChoices, _) => {
                self.of_two(request, among, |server, _| f64::from(server.active + 1))
            }
            (Policy::PeakEwma, _) => {
                let unknown = self.mean_time(request.now, among);
                self.of_two(request, among, |server, now| {
                    server.ewma.read(now).unwrap_or(unknown) * f64::from(server.active + 1)
                })
            }
        }
    }

    fn by_turns(&mut self, now: Duration, among: &Tried) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<usize> = None;
        for n in among.iter() {
            let weight = self.share(n, now).cast_signed();
            let server = &mut self.servers[n];
            server.current += weight;
            total += weight;
            let current = server.current;
            if best.is_none_or(|best| current > self.servers[best].current) {
                best = Some(n);
            }
        }
        self.servers[best?].current -= total;
        best
    }

    fn by_least(&mut self, now: Duration, among: &Tried) -> Option<usize> {
        let count = self.servers.len();
        let mut best: Option<(usize, u64, u64)> = None;
        for n in (0..count)
            .map(|n| (n + self.turn) % count)
            .filter(|n| among.has(index(*n)))
        {
            let (load, share) = (u64::from(self.servers[n].active) + 1, self.share(n, now));
            // load / share < best load / best share, without division.
            if best.is_none_or(|(_, best_load, best_share)| load * best_share < best_load * share) {
                best = Some((n, load, share));
            }
        }
        let (n, ..) = best?;
        self.turn = (n + 1) % count;
        Some(n)
    }

    fn of_two(
        &mut self,
        request: &PickRequest<'_>,
        among: &Tried,
        cost: impl Fn(&Server, Duration) -> f64,
    ) -> Option<usize> {
        let now = request.now;
        let first = self.at_random(now, among, request.random)?;
        let mut others = *among;
        others.remove(index(first));
        let Some(second) = self.at_random(now, &others, crate::hash::mix(request.random)) else {
            return Some(first);
        };
        let [a, b] = [first, second].map(|n| cost(&self.servers[n], now));
        // By weight they were drawn already.
        Some(if b < a { second } else { first })
    }

    fn at_random(&self, now: Duration, among: &Tried, random: u64) -> Option<usize> {
        let total: u64 = among.iter().map(|n| self.share(n, now)).sum();
        // The upper half of a product of 128 bits: evenly spread, without division (total is far below 2^32).
        let mut point = ((u128::from(random) * u128::from(total)) >> 64) as u64;
        among.iter().find(|n| {
            let share = self.share(*n, now);
            let here = point < share;
            point = point.wrapping_sub(share);
            here
        })
    }

    fn by_hash(&self, key: u64, load_factor: Option<u32>, among: &Tried) -> Option<usize> {
        let total: u64 = among
            .iter()
            .map(|n| u64::from(self.servers[n].weight))
            .sum();
        let roomy = |server: &Server| {
            load_factor.is_none_or(|percent| {
                // active + 1 <= ceil(factor × (all + 1) × weight / total)
                let all = u128::from(self.active + 1)
                    * u128::from(percent.max(101))
                    * u128::from(server.weight);
                u128::from(server.active) < all.div_ceil(100 * u128::from(total.max(1)))
            })
        };
        let best = |filter: &dyn Fn(&Server) -> bool| {
            among
                .iter()
                .filter(|n| filter(&self.servers[*n]))
                .map(|n| {
                    (
                        n,
                        hash::distance(key, self.servers[n].id, self.servers[n].weight),
                    )
                })
                .min_by(|a, b| a.1.total_cmp(&b.1))
                .map(|(n, _)| n)
        };
        best(&roomy).or_else(|| best(&|_| true))
    }

    /// The weight that counts now.
    fn share(&self, n: usize, now: Duration) -> u64 {
        let server = &self.servers[n];
        let full = u64::from(server.weight) * SCALE;
        match server.warming_since {
            None => full,
            Some(since) => {
                let part = now.saturating_sub(since).as_secs_f64() / self.slow_start.as_secs_f64();
                ((full as f64 * part.clamp(0.1, 1.0)) as u64).max(1)
            }
        }
    }

    fn finish_warming(&mut self, now: Duration) {
        if self.slow_start.is_zero() {
            return;
        }
        for server in &mut self.servers {
            let warm = |since: Duration| now.saturating_sub(since) >= self.slow_start;
            if server.warming_since.is_some_and(warm) {
                server.warming_since = None;
            }
        }
    }

    /// What is assumed of a server that has not answered yet.
    fn mean_time(&self, now: Duration, among: &Tried) -> f64 {
        let known = || among.iter().filter_map(|n| self.servers[n].ewma.read(now));
        match known().count() {
            0 => 1.0,
            count => known().sum::<f64>() / count as f64,
        }
    }
}

fn index(n: usize) -> ServerIndex {
    // MAX_SERVERS fits.
    ServerIndex(n as u16)
}
