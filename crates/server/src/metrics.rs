//! What the server counts. Written by data threads with relaxed atomics, read by the API; never reset.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A value that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A value that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Counts one more until the guard is dropped.
    pub(crate) fn enter(&self) -> GaugeGuard<'_> {
        self.0.fetch_add(1, Relaxed);
        GaugeGuard(self)
    }

    /// Counts one more if there are fewer than `most`; each success is followed by one [`Gauge::remove`].
    pub(crate) fn add_below(&self, most: Option<u64>) -> bool {
        let add = |n| most.is_none_or(|most| n < most).then_some(n + 1);
        self.0.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// See [`Gauge::enter`].
#[derive(Debug)]
pub(crate) struct GaugeGuard<'a>(&'a Gauge);

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// A visitor that is counted until it is dropped, on whichever worker.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Metrics>);

impl Counted {
    pub(crate) fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.visitors_total.add_one();
        metrics.visitors_open.0.fetch_add(1, Relaxed);
        Self(Arc::clone(metrics))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.visitors_open.0.fetch_sub(1, Relaxed);
    }
}

proxy::metrics! {
    /// All of the server's own metrics; per-client and per-service counters are with their sessions.
    Metrics {
        /// Visitor connections that are open, whatever they wait for.
        visitors_open: Gauge,
        /// Visitor connections that were accepted.
        visitors_total: Counter,
        /// Streams that are open on links.
        streams_open: Gauge,
        /// Streams that were opened.
        streams_total: Counter,
        /// Links whose handshake is done.
        links_open: Gauge,
        /// Links whose handshake was done.
        links_total: Counter,
        /// Connections that have not shown yet what they are, links in their handshake included.
        pending_open: Gauge,
        /// Connections closed at once because too many of them had not shown yet what they are.
        limit_pending_total: Counter,
        /// Connections that are in their handshake as links.
        handshakes_open: Gauge,
        /// Links whose handshake broke off or took too long.
        handshake_failures_total: Counter,
        /// Handshakes that failed for a wrong id or secret.
        auth_failures_total: Counter,
        /// Handshakes that were refused because of earlier failures.
        auth_throttled_total: Counter,
        /// Clients told to come back because the authentication service did not answer or too many waited for it.
        auth_api_failures_total: Counter,
        /// Links refused because the client has as many as it may.
        limit_links_total: Counter,
        /// Visitors refused because the client's streams are all in use.
        limit_streams_total: Counter,
        /// Services refused because of the client's host limits or conflicts.
        limit_hosts_total: Counter,
        /// Services refused because of the client's port limits or conflicts.
        limit_ports_total: Counter,
        /// Connections that said nothing in time.
        header_timeouts_total: Counter,
        /// Request heads over the limit of size or count.
        header_too_large_total: Counter,
        /// Connections that were neither a link nor a visitor that can be understood.
        unknown_protocol_total: Counter,
        /// Visitors for whom there is no route.
        no_route_total: Counter,
        /// Visitors whose client was away.
        client_away_total: Counter,
        /// Visitors whose service fails its client's checks.
        services_unfit_total: Counter,
        /// Visitors that the service's address rules refused.
        denied_total: Counter,
        /// Streams ended for having been silent too long.
        idle_timeouts_total: Counter,
        /// Streams that ended with a reset or a lost link.
        streams_broken_total: Counter,
        /// TLS handshakes with visitors or clients that failed.
        tls_failures_total: Counter,
        /// UDP datagrams dropped because their way was full or unknown, or for a speed limit.
        datagrams_dropped_total: Counter,
    }
}
