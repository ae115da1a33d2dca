//! What the server says on a link: visitors, answers to declared services, and when a link is to go.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use config::Remote;
use link::{Handler, Link, Stream};
use tokio::sync::Notify;
use tunnel::{ControlMessage, Role, ServicesAnswer};

use crate::{
    agent::{Agent, Shared, lock},
    declare, local,
};

/// Hears what the server says on one link.
pub(crate) struct Server {
    pub(crate) agent: Rc<Agent>,
    pub(crate) remote: Remote,
    pub(crate) drained: Notify,
    /// How long the server lets a link that is to be replaced go on.
    pub(crate) deadline: Cell<Duration>,
}

impl Handler for Server {
    fn opened(&self, _: &Link, header: Vec<u8>, stream: Stream) {
        self.agent.shared.visits_total.fetch_add(1, Relaxed);
        let visit = Visit::begin(&self.agent.shared);
        let serving = local::serve(Rc::clone(&self.agent), header, stream);
        tokio::task::spawn_local(async move {
            serving.await;
            drop(visit);
        });
    }

    fn control(&self, link: &Link, message: &[u8]) {
        match ControlMessage::decode(message) {
            Ok(Some(message)) if message.sender().is_none_or(|sender| sender == Role::Server) => {
                self.told(link, message)
            }
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => {
                tracing::warn!(server = %self.remote, "a link is closed: the server's control message cannot be read");
                link.close();
            }
        }
    }
}

impl Server {
    fn told(&self, link: &Link, message: ControlMessage) {
        match message {
            ControlMessage::ServicesAnswer(answer) => self.answered(answer),
            ControlMessage::Drain(drain) => {
                tracing::info!(server = %self.remote, reason = %drain.reason, "the server asks to move this link");
                self.deadline.set(drain.deadline);
                self.drained.notify_one();
            }
            ControlMessage::Notice(notice) => {
                tracing::info!(server = %self.remote, notice = %notice.text, "the server says")
            }
            ControlMessage::Goodbye(goodbye) => {
                tracing::info!(server = %self.remote, code = %goodbye.code, message = %goodbye.message, "the server says goodbye");
                link.close();
            }
            ControlMessage::Services(_) | ControlMessage::Leave | ControlMessage::LeaveLink(_) => {}
        }
    }

    fn answered(&self, answer: ServicesAnswer) {
        let Ok(Some((_, results))) = self.agent.answers.borrow_mut().push(answer) else {
            return;
        };
        let offer = self.agent.shared.offer.load();
        let mut status = lock(&self.agent.shared.status);
        for result in results {
            let Some(entry) = offer
                .index(result.id)
                .and_then(|index| status.services.get_mut(index))
            else {
                continue;
            };
            let outcome = match result.result {
                Ok(granted) => Ok(granted
                    .endpoints
                    .iter()
                    .map(|endpoint| declare::endpoint(endpoint.as_str(), &self.remote))
                    .collect::<Vec<_>>()),
                Err(refusal) => Err(format!("{}: {}", refusal.code, refusal.message)),
            };
            if entry.2 != outcome {
                match &outcome {
                    Ok(endpoints) => tracing::info!(
                        service = entry.0,
                        local = entry.1,
                        reachable_at = endpoints.join(" and "),
                        "a service is up"
                    ),
                    Err(reason) => tracing::error!(
                        service = entry.0,
                        local = entry.1,
                        reason,
                        "the server refuses a service"
                    ),
                }
            }
            entry.2 = outcome;
        }
    }
}

/// Counts a visit until it is dropped.
struct Visit(Arc<Shared>);

impl Visit {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.visits_open.fetch_add(1, Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.visits_open.fetch_sub(1, Relaxed);
    }
}
