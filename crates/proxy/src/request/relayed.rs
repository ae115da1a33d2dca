//! Which requests go to relayed services, and what is different on the way there: the service's own rules, its streams, its words for failures.

use std::{sync::Arc, time::Duration};

use h1::Request;
use route::{Action, Route};

use super::{Context, FieldView, Refusal, forward::Forward};
use crate::{
    relay::{Found, Inside, NoStream, Page, RelayService, Tag, Visit, Wanted},
    upstream::{Lease, NoConnection},
    visitor::Entry,
};

/// What answers a request.
pub(super) enum By {
    /// The action of its route.
    Action,
    /// A relayed service.
    Service(Relayed),
    /// The server itself.
    Page(Page),
}

/// A service and the tag that it had when it was found.
pub(super) struct Relayed {
    pub(super) service: Arc<dyn RelayService>,
    pub(super) tag: Tag,
}

/// The route that fits best, where its own action answers and nobody has to be asked.
pub(super) fn unasked<'a>(context: &Context<'a>, found: Option<&'a Route>) -> Option<&'a Route> {
    let of_proxy = context.about.entry == Entry::Proxy;
    found.filter(|route| of_proxy && !matches!(route.action, Action::Service(_)))
}

/// Who answers: `found` is the route that fits best.
pub(super) async fn find<'a>(
    context: &Context<'a>,
    request: &Request<'_>,
    found: Option<&'a Route>,
) -> Result<(&'a Route, By), Refusal<'static>> {
    let nobody = || Refusal::new(404, "Nothing here answers for this host and path.");
    let named = found.filter(|route| {
        let entry = context.about.entry;
        entry == Entry::Proxy || entry == Entry::Shared && context.local.site.names_host(route.id)
    });
    if let Some(route) = named {
        return Ok((route, of_route(context, route).await?));
    }
    let (Some(relay), false) = (&context.worker.relay, context.about.entry == Entry::Proxy) else {
        return found.map(|route| (route, By::Action)).ok_or_else(nobody);
    };
    let fields = FieldView(request.fields());
    let wanted = Wanted::Request {
        host: request.host(),
        fields: &fields,
    };
    let any = found.filter(|_| context.about.entry == Entry::Shared);
    match (relay.find(wanted).await, any) {
        (Found::Nothing, Some(route)) => Ok((route, of_route(context, route).await?)),
        (Found::Nothing, None) => Err(nobody()),
        (found, _) => Ok((&context.local.site.relay.route, by(found)?)),
    }
}

/// A route may name a service; every other action is its own.
async fn of_route(context: &Context<'_>, route: &Route) -> Result<By, Refusal<'static>> {
    let Action::Service(name) = &route.action else {
        return Ok(By::Action);
    };
    match &context.worker.relay {
        Some(relay) => by(relay.find(Wanted::Name(&name.0)).await),
        None => Err(Refusal::new(
            502,
            "Relayed services are reached through gt server only.",
        )),
    }
}

fn by(found: Found) -> Result<By, Refusal<'static>> {
    match found {
        Found::Service(service) => Ok(By::Service(Relayed {
            tag: service.tag(),
            service,
        })),
        Found::Page(page) => Ok(By::Page(page)),
        Found::Away => Err(away()),
        Found::Nothing => Err(Refusal::new(404, "No client serves this name.")),
    }
}

/// As visitors are told whose bytes are only copied.
pub(super) fn away() -> Refusal<'static> {
    let text = "The service exists, but its client is not connected now. If it is yours, see whether gt client runs.";
    Refusal::unavailable(text).later(RETRY_AFTER)
}

fn overloaded() -> Refusal<'static> {
    let text = "The service has as many visitors as it may have. Try again soon.";
    Refusal::unavailable(text).later(RETRY_AFTER)
}

fn unfit() -> Refusal<'static> {
    let text = "The service fails the checks of its client. Try again soon.";
    Refusal::unavailable(text).later(RETRY_AFTER)
}

impl Relayed {
    /// A place among the client's requests.
    pub(super) fn enter(&self) -> Result<Inside, Refusal<'static>> {
        if !self.service.is_fit() {
            return Err(unfit());
        }
        Inside::enter(&self.service).ok_or_else(overloaded)
    }

    /// Opens a stream.
    pub(super) async fn open(
        &self,
        forward: &Forward<'_>,
        host: Box<str>,
    ) -> Result<Lease, NoConnection> {
        let Context { about, visitor, .. } = forward.context;
        let visit = Visit {
            visitor: visitor.addr,
            local: about.local,
            host,
        };
        if self.service.speaks_http2() {
            let Context { worker, .. } = forward.context;
            let now = worker.clock.coarse();
            let opened = worker.relayed.open(&self.service, self.tag, visit, now);
            let opened = Box::pin(opened).await;
            return opened.map(Lease::http2).map_err(NoConnection::Relay);
        }
        let opened = Arc::clone(&self.service).open(visit).await;
        opened.map(Lease::relayed).map_err(NoConnection::Relay)
    }
}

pub(super) fn no_stream(why: NoStream) -> Refusal<'static> {
    match why {
        NoStream::Away => away(),
        NoStream::Overloaded => overloaded(),
    }
}

/// What a visitor may wait before it tries again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
