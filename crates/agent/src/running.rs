//! A link's time, from its handshake until it ends, is to be replaced, or the links go another way: services are declared on it, and it is
//! counted among those that are up.

use std::{
    cell::Cell,
    rc::Rc,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use config::Remote;
use link::{Fec, Handler, Link, LinkEnd, LinkOptions, Side, Transport};
use tokio::sync::Notify;
use tunnel::{ClientEstablished, ControlMessage, Features, ServiceDecl, Services};

use crate::{
    agent::{Agent, Shared, lock},
    declare::Offer,
    hearing::Server,
    keep::{WINDOWS, elsewhere},
    ways::Watched,
};

/// How a link's time ended.
pub(crate) enum Over {
    Ended,
    /// The server asked to move, and the link still finishes its visits.
    Drained,
    /// Links go another way; this one goes on until another has taken its place.
    Moved(Leaving),
}

/// A link whose place another takes.
pub(crate) struct Leaving {
    link: Link,
    number: u16,
}

impl Leaving {
    /// Its visits end there; no more are to come. It is told to the server on both links: the old one may not be heard any more.
    fn end(self, successor: &Link) {
        if let Ok(message) = ControlMessage::LeaveLink(self.number).encode() {
            successor.send_control(&message);
        }
        if let Ok(message) = ControlMessage::Leave.encode() {
            self.link.send_control(&message);
        }
        tokio::task::spawn_local(close_later(self.link, DRAIN + OVERTIME));
    }
}

/// Closes the link after `patience`, unless it has ended.
async fn close_later(link: Link, patience: Duration) {
    let deadline = Instant::now() + patience;
    while link.is_open() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    link.close();
}

/// Runs the link until its time is over.
pub(crate) async fn run(
    agent: &Rc<Agent>,
    stream: Transport,
    established: &ClientEstablished,
    remote: &Remote,
    leaving: Option<Leaving>,
) -> Over {
    let shared = &agent.shared;
    let grant = &established.grant;
    let keep_alive = grant
        .keepalive
        .max(Duration::from_secs(1))
        .min(shared.config.timeout / 2);
    let options = LinkOptions {
        side: Side::Initiator,
        config: mux::Config {
            stream_window: WINDOWS.stream,
            link_window: WINDOWS.link,
            peer_stream_window: grant.windows.stream,
            peer_link_window: grant.windows.link,
            keep_alive,
            max_streams: usize::try_from(grant.max_streams).unwrap_or(usize::MAX),
            ..mux::Config::default()
        },
        sweep_every: Duration::from_secs(10),
        fec: shared
            .config
            .udp_fec
            .filter(|_| established.features.contains(Features::DATAGRAM_FEC))
            .and_then(|form| Fec::new(form.data, form.parity)),
    };
    let handler = Rc::new(Server {
        agent: Rc::clone(agent),
        remote: remote.clone(),
        drained: Notify::new(),
        deadline: Cell::new(DRAIN),
    });
    let (link, driver) = Link::start(stream, &options, Rc::clone(&handler) as Rc<dyn Handler>);
    agent.links.borrow_mut().push(link.clone());
    if shared.ways.is_some() {
        let watched = Watched::new(link.clone(), remote.clone());
        agent.watched.borrow_mut().push(watched);
    }
    if let Some(leaving) = leaving {
        leaving.end(&link);
    }
    let links = shared.links_up.fetch_add(1, Relaxed) + 1;
    shared.links_open.fetch_add(1, Relaxed);
    tracing::info!(server = %remote, link = grant.link_number, links, proved = established.server_proved, "connected");
    if !grant.notice.is_empty() {
        tracing::info!(notice = %grant.notice, "the server says");
    }
    // Each new session, and each link that may have outlived a declaration, says what there is; the same set again changes nothing.
    let mut offered = shared.offered.subscribe();
    let features = established.features;
    declare_services(shared, &link, features);
    // Until it ends or is asked to move.
    let counted = Rc::new(Cell::new(true));
    let running = {
        let agent = Rc::clone(agent);
        let (link, remote, counted) = (link.clone(), remote.clone(), Rc::clone(&counted));
        let number = grant.link_number;
        tokio::task::spawn_local(async move {
            let end = driver.await;
            agent.links.borrow_mut().retain(|other| !other.is(&link));
            agent.watched.borrow_mut().retain(|other| !other.is(&link));
            agent.shared.links_open.fetch_sub(1, Relaxed);
            // Once: the server may have asked to replace it and closed it in one go.
            if counted.replace(false) {
                agent.shared.links_up.fetch_sub(1, Relaxed);
            }
            match end {
                LinkEnd::Closed => {
                    tracing::info!(server = %remote, link = number, "a link was closed")
                }
                end => {
                    tracing::warn!(server = %remote, link = number, reason = %end, "a link was lost")
                }
            }
        })
    };
    let redeclare = async {
        // Any link may say it for the session; the same set again changes nothing.
        while offered.changed().await.is_ok() {
            declare_services(shared, &link, features);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        // First: a server that has nothing left may close the link right after it has asked to replace it.
        biased;
        () = handler.drained.notified() => {
            // It is no reason to stay with this server, if another can be had.
            if counted.replace(false) {
                shared.links_up.fetch_sub(1, Relaxed);
            }
            // Its visits end in peace. Visitors that the server had accepted may still come, so it is the server that closes the link.
            let patience = handler.deadline.get().min(DRAIN) + OVERTIME;
            tokio::task::spawn_local(close_later(link.clone(), patience));
            Over::Drained
        }
        _ = running => Over::Ended,
        () = elsewhere(shared, remote) => {
            // It may be silent, and says nothing of the way any more.
            for watched in agent.watched.borrow_mut().iter_mut() {
                watched.leave(&link);
            }
            if counted.replace(false) {
                shared.links_up.fetch_sub(1, Relaxed);
            }
            Over::Moved(Leaving { link: link.clone(), number: grant.link_number })
        }
        () = redeclare => Over::Ended,
    }
}

fn declare_services(shared: &Shared, link: &Link, features: Features) {
    // Before the look, so that a newer set never says what was before.
    let generation = shared.generation.fetch_add(1, Relaxed);
    let offer = shared.offer.load();
    let mut services = offer.declarations.clone();
    if !features.contains(Features::HTTP_RULES) {
        services.retain(|service| !leave_out(shared, &offer, service));
    }
    {
        let down = lock(&shared.down);
        for service in &mut services {
            service.down = down.contains(&service.id);
        }
    }
    match Services::parts(generation, services) {
        Ok(parts) => parts
            .iter()
            .filter_map(|part| part.encode().ok())
            .for_each(|part| link.send_control(&part)),
        Err(error) => tracing::error!(%error, "the services cannot be declared"),
    }
}

/// A server that does not know a service's rules would let everybody in.
fn leave_out(shared: &Shared, offer: &Offer, service: &ServiceDecl) -> bool {
    let http2 = service.http.as_ref().is_some_and(|http| http.http2);
    if service.rules.is_empty() && !http2 {
        return false;
    }
    let mut status = lock(&shared.status);
    let index = offer.index(service.id);
    if let Some(entry) = index.and_then(|index| status.services.get_mut(index)) {
        let reason = "the server is too old for `headers`, `basicAuth` and `protocol` of a service";
        let told = Err(reason.to_owned());
        if entry.2 != told {
            tracing::error!(service = entry.0, reason, "a service is not declared");
        }
        entry.2 = told;
    }
    true
}

/// After its deadline a server ends the link by itself; this end does so then.
const OVERTIME: Duration = Duration::from_secs(5);
/// The longest that a link that is being replaced may finish its visits.
const DRAIN: Duration = Duration::from_secs(120);
