//! What a client says on its link: its services, that it leaves the link, or that it stops.

use std::{
    cell::Cell,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use link::{Handler, Link};
use tunnel::{ControlMessage, GoodbyeCode, ResetReason, Role, ServicesAnswer, SetError};

use crate::{server::Shared, session::Session, worker::Worker};

/// Hears what a client says on its links.
pub(super) struct Client {
    pub(super) server: Arc<Shared>,
    pub(super) session: Arc<Session>,
    /// It is no link of the session any more.
    pub(super) left: Cell<bool>,
}

impl Handler for Client {
    fn opened(&self, _: &Link, _: Vec<u8>, stream: link::Stream) {
        // Streams are opened by servers only.
        stream.reset(ResetReason::Protocol);
    }

    fn control(&self, link: &Link, message: &[u8]) {
        let id = &self.session.account.id;
        match ControlMessage::decode(message) {
            Ok(Some(message)) if message.sender().is_none_or(|sender| sender == Role::Client) => {
                self.told(link, message)
            }
            Ok(None) => {}
            Ok(Some(_)) => {
                tracing::warn!(
                    id,
                    "a link is closed: the client sent a message that only servers send"
                );
                link.close();
            }
            Err(error) => {
                tracing::warn!(id, %error, "a link is closed: the client sent a control message that cannot be read");
                link.close();
            }
        }
    }
}

impl Client {
    /// No more streams are opened on the link.
    pub(super) fn leave(&self, worker: &Worker, link: &Link) {
        if !self.left.replace(true) {
            worker.remove_link(self.session.key, link);
            self.session.link_ended(worker.index);
        }
    }

    /// Ends the link when its streams have ended.
    pub(super) fn depart(&self, worker: &Worker, link: &Link) {
        if self.left.get() {
            return;
        }
        let id = &self.session.account.id;
        tracing::info!(id, streams = link.stream_count(), "a client leaves a link");
        self.leave(worker, link);
        worker.add_leaving(link.clone());
        let link = link.clone();
        tokio::task::spawn_local(async move {
            let deadline = Instant::now() + LEAVING;
            while link.is_open() && link.stream_count() > 0 && Instant::now() < deadline {
                tokio::time::sleep(LOOK).await;
            }
            link.close();
        });
    }

    fn told(&self, link: &Link, message: ControlMessage) {
        let id = &self.session.account.id;
        match message {
            ControlMessage::Services(part) => {
                let mut arriving = self
                    .session
                    .arriving
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                match arriving.push(part) {
                    Ok(Some((generation, services))) => {
                        let results = self.server.registry.declare(&self.session, &services);
                        for result in &results {
                            log_service(id, &services, result);
                        }
                        let answers =
                            ServicesAnswer::parts(generation, results).unwrap_or_default();
                        answers
                            .iter()
                            .filter_map(|answer| answer.encode().ok())
                            .for_each(|answer| link.send_control(&answer));
                    }
                    Ok(None) => {}
                    // Links that come up together declare on different ways, so that the newer set can be here first.
                    Err(SetError::OldGeneration { got, last }) => {
                        tracing::debug!(id, got, last, "an older set of services is left out");
                    }
                    Err(error) => {
                        tracing::warn!(id, %error, "a link is closed: the client's services cannot be read");
                        link.close();
                    }
                }
            }
            ControlMessage::Leave => {
                let Some(worker) = Worker::current() else {
                    return;
                };
                self.depart(&worker, link);
            }
            ControlMessage::LeaveLink(number) => {
                let session = self.session.key;
                self.server
                    .on_each(move |worker| worker.leave_link(session, number));
            }
            ControlMessage::Goodbye(goodbye) => {
                tracing::info!(id, code = %goodbye.code, message = %goodbye.message, "a client says goodbye");
                // Only the client as a whole stops; other reasons are those of one link, and a link that was left is another process's.
                if !self.left.get()
                    && matches!(goodbye.code, GoodbyeCode::Done | GoodbyeCode::ShuttingDown)
                {
                    self.session.said_goodbye.store(true, Relaxed);
                }
                link.close();
            }
            _ => {}
        }
    }
}

fn log_service(id: &str, services: &[tunnel::ServiceDecl], result: &tunnel::ServiceResult) {
    let name = services
        .iter()
        .find(|service| service.id == result.id)
        .map_or("", |service| service.name.as_str());
    match &result.result {
        Ok(granted) => {
            let endpoints: Vec<&str> = granted
                .endpoints
                .iter()
                .map(tunnel::Endpoint::as_str)
                .collect();
            tracing::info!(
                id,
                service = name,
                endpoints = endpoints.join(" "),
                "a service is up"
            );
        }
        Err(refusal) => {
            tracing::warn!(id, service = name, code = %refusal.code, reason = %refusal.message, "a service was refused");
        }
    }
}

/// How long the streams of a link that its client leaves may go on.
const LEAVING: Duration = Duration::from_secs(150);
const LOOK: Duration = Duration::from_millis(20);
