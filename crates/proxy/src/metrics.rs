//! What the proxy counts: one set per worker, added up when somebody looks, so that workers never share a cache line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A value that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, n: u64) {
        // Only the worker that owns the set writes it: a load and a store are enough, and cheaper than a locked addition.
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
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
    pub(crate) fn up(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_add(1), Relaxed);
    }

    pub(crate) fn down(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A set of counters with its list. The words `Counter` and `Gauge` mean the caller's types: the server has a set of its own, which all workers write.
#[doc(hidden)]
#[macro_export]
macro_rules! metrics {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $help:literal])+ $field:ident: $kind:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $name {
            $($(#[doc = $help])+ pub $field: $kind,)*
        }

        impl $name {
            /// Every metric: name without the `gt_` prefix, help text, Prometheus type, value.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, &'static str, &'static str, u64)> {
                vec![$((stringify!($field), concat!($($help),+), $crate::metrics!(@type $kind), self.$field.get()),)*]
            }
        }
    };
    (@type Counter) => { "counter" };
    (@type Gauge) => { "gauge" };
}

metrics! {
    /// One worker's counters.
    Metrics {
        /// Visitor connections that are open.
        proxy_visitors_open: Gauge,
        /// Visitor connections that were accepted.
        proxy_visitors_total: Counter,
        /// Requests whose head was understood.
        proxy_requests_total: Counter,
        /// Requests refused because they break HTTP's rules.
        proxy_requests_refused_total: Counter,
        /// Answers with a status below 400 that were passed on.
        proxy_answers_2xx_3xx_total: Counter,
        /// Answers with a status of 4xx that were passed on or made here.
        proxy_answers_4xx_total: Counter,
        /// Answers with a status of 5xx that were passed on or made here.
        proxy_answers_5xx_total: Counter,
        /// Connections that became tunnels (WebSocket and others).
        proxy_upgrades_total: Counter,
        /// Connections opened to upstream servers.
        proxy_upstream_connects_total: Counter,
        /// Attempts to connect to an upstream server that failed.
        proxy_upstream_connect_failures_total: Counter,
        /// Requests sent on an upstream connection that had served another before.
        proxy_upstream_reused_total: Counter,
        /// Requests sent a second time because the first connection failed.
        proxy_upstream_retries_total: Counter,
        /// Upstream connections that ended or talked nonsense within an answer.
        proxy_upstream_broken_total: Counter,
        /// Upstream servers that did not answer in time.
        proxy_upstream_timeouts_total: Counter,
        /// Visitors that went away or stalled within an exchange.
        proxy_visitors_lost_total: Counter,
        /// Requests refused by a rate limit, an IP rule or for want of credentials.
        proxy_denied_total: Counter,
        /// Requests refused because every server of the upstream was busy or ill.
        proxy_unavailable_total: Counter,
        /// Visitor connections over HTTP/3 that are open; they count among the others, too.
        proxy_http3_connections_open: Gauge,
        /// Visitor connections over HTTP/3 that were accepted.
        proxy_http3_connections_total: Counter,
        /// Bytes of UDP payload from visitors over HTTP/3.
        proxy_http3_received_bytes_total: Counter,
        /// Bytes of UDP payload to visitors over HTTP/3.
        proxy_http3_sent_bytes_total: Counter,
        /// Packets to visitors over HTTP/3.
        proxy_http3_packets_sent_total: Counter,
        /// Of them, those that were lost.
        proxy_http3_packets_lost_total: Counter,
        /// Times when large packets to a visitor were lost and small ones were not.
        proxy_http3_black_holes_total: Counter,
        /// Proofs that a visitor is where its packets come from: one or two for each change of its address.
        proxy_http3_path_validations_total: Counter,
    }
}

impl Metrics {
    /// Counts an answer by its class.
    pub(crate) fn count_answer(&self, status: u16) {
        match status {
            0 => {}
            1..400 => self.proxy_answers_2xx_3xx_total.add_one(),
            400..500 => self.proxy_answers_4xx_total.add_one(),
            _ => self.proxy_answers_5xx_total.add_one(),
        }
    }
}
