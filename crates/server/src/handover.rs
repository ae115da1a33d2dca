//! From one process of a server to the next: the new one waits for the clients of the old one, the old one asks them to come over, passes on
//! what belongs to the next and says what is left in it.

use std::time::{Duration, Instant};

use net::Shutdown;
use tunnel::{ControlMessage, Drain, Message};

use crate::{links, server::Server};

/// What becomes of links over one protocol on UDP when another process takes over.
#[derive(Default)]
pub(crate) struct Passing {
    /// It passes on what is for this one: links go on.
    pub(crate) steered: Shutdown,
    /// It does not: they end.
    pub(crate) cut: Shutdown,
}

impl Passing {
    fn decide(&self, steered: bool) {
        if steered {
            self.steered.trigger();
        } else {
            self.cut.trigger();
        }
    }
}

impl Server {
    /// As [`Server::serve`], where another process served until now: whoever asks for a name whose client has not come over yet waits
    /// for it, up to 5 s from now. `clients` are the ids that the other process had ([`Server::clients`]), if it could say.
    pub fn take_over(&mut self, clients: Option<Vec<String>>) {
        let clients = clients.map(|clients| clients.into_iter().collect());
        self.shared.registry.expect_arrivals(clients, ARRIVALS);
        self.serve();
    }

    /// Ids of the clients that are connected, or were a moment ago.
    #[must_use]
    pub fn clients(&self) -> Vec<String> {
        let mut ids = self.shared.registry.ids();
        ids.extend(self.shared.went.get().into_iter().flatten().cloned());
        ids.into_iter().collect()
    }

    /// Whether the clients of the process before this one have come over, or are not waited for any more. To replace this process
    /// before would lose visitors that wait for them here.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        self.shared.registry.have_arrived()
    }

    /// Stops accepting, and asks clients to open other links before these end, within `deadline`. Returns when nobody new is accepted,
    /// after half a second at most. What runs goes on: [`Server::left`] tells what is left, [`Server::stop`] ends it.
    pub fn leave(&self, deadline: Duration) {
        let shared = &self.shared;
        shared.kcp.decide(self.let_datagrams_in());
        shared.quic.decide(self.hand_quic_over());
        shared.replaced.trigger();
        let _ = shared.went.set(shared.registry.ids().into_iter().collect());
        shared.stopping.trigger();
        self.proxy.leave();
        let until = Instant::now() + LEAVE_TIME;
        let reads_quic = || {
            let mut over_quic = self.over_udp.over_quic();
            shared.quic.steered.is_triggered() && over_quic.any(::quic::Server::is_reading)
        };
        while (shared.accepting.get() > 0 || reads_quic()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let drain = ControlMessage::Drain(Drain {
            deadline,
            reason: Message::new("another process of this server takes over"),
        });
        shared.on_each(move |worker| links::broadcast(worker, &drain));
    }

    /// Whether the next process can pass on datagrams of the sessions that are left here.
    fn let_datagrams_in(&self) -> bool {
        let Some(entrance) = &self.over_udp.kcp else {
            return false;
        };
        let entrance = match entrance.open() {
            Ok(entrance) => entrance,
            Err(error) => {
                tracing::warn!(%error, "links over KCP end now: the next process has no way to pass on what comes for them");
                return false;
            }
        };
        let Some(first) = self.workers.handles().first() else {
            return false;
        };
        let served = first.spawn(move || async move {
            if let Err(error) = entrance.serve().await {
                tracing::error!(%error, "nothing more comes from the process that took over");
            }
        });
        served.is_ok()
    }

    /// The same for QUIC, whose sockets are not read any more then.
    fn hand_quic_over(&self) -> bool {
        let Some(first) = self.workers.handles().first() else {
            return false;
        };
        let mut handed_over = false;
        for quic in self.over_udp.over_quic() {
            if let Err(error) = quic.hand_over(first) {
                tracing::warn!(%error, address = %quic.local_addr(), "connections over QUIC end now: the next process has no way to pass on what comes for them");
                return false;
            }
            handed_over = true;
        }
        handed_over
    }

    /// Visits that run, and links.
    #[must_use]
    pub fn left(&self) -> (u64, u64) {
        let shared = &self.shared;
        // A UDP visitor has no connection, but a stream.
        let visits = shared
            .metrics
            .visitors_open
            .get()
            .max(shared.metrics.streams_open.get())
            .max(self.proxy.left());
        (
            visits + shared.sniffing.get(),
            shared.metrics.links_open.get(),
        )
    }
}

/// How long the clients of a process before this one are expected: they are told to come, or notice a broken link, at once.
const ARRIVALS: Duration = Duration::from_secs(5);
/// What accept loops may take to stop.
const LEAVE_TIME: Duration = Duration::from_millis(500);
