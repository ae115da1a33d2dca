//! A request from its head to its last byte, in the order in which it passes:
//!
//! ```text
//! decide (route, access) ─► own answers: own, files
//!                        └► forward (a server, tried again) ─► attempt (one exchange) ◄─ head (fields of both ways)
//!                                                                        └► note (log and counters)
//! ```
//!
//! What all of them need to know is in [`Context`]. Bodies are moved by `exchange`, connections to servers are kept by `upstream`.

mod attempt;
mod decide;
mod forward;
mod head;
mod note;
mod own;
mod relayed;

use std::{cell::OnceCell, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use h1::{Fields, Prepared, Request};
use route::{
    Action, BasicAuth, Forwarding, NoHeaders, RequestView, Route, Values, Visitor, VisitorView,
};

use crate::{
    answer::Turn,
    conn::Conn,
    relay::ServiceRules,
    visitor::{About, Connection},
    work::Work,
    worker::{Local, Worker},
};

pub(crate) use note::Told;
pub(crate) use own::Refusal;
use relayed::By;

/// What becomes of the visitor's connection.
pub(crate) enum Next {
    /// It goes on.
    Again(h1::Visitor),
    /// It goes on once the rest of the body that nobody wanted is read.
    Drain(h1::Drain),
    /// It ends behind the answer.
    Close,
    /// The answer is not whole: reset.
    Abort,
    /// It is over.
    Gone,
}

/// What every step of a request knows of it. What changes on the way (connection, buffers, the right to answer) goes beside it.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    /// The site that the request began with.
    pub(crate) local: &'a Local,
    pub(crate) about: &'a About,
    /// When its head was complete, on the worker's clock; only to a tick where neither a log nor a limit needs it.
    pub(crate) began: Duration,
    /// Who sent it, past trusted proxies.
    pub(crate) visitor: Visitor,
    /// `None` until one is found.
    pub(crate) route: Option<&'a Route>,
    /// It came as HTTP/2.
    pub(crate) http2: bool,
    /// Whose password was right, where the route or the service asks for one.
    pub(crate) user: Option<&'a str>,
    /// What servers are told of the visitor, where it was written down.
    introduction: Option<&'a [Prepared; 2]>,
    /// Of the relayed service, once it is found and if it has some.
    service: &'a OnceCell<Arc<ServiceRules>>,
}

impl<'a> Context<'a> {
    /// What the relayed service asks to be done to its requests.
    fn service(&self) -> Option<&'a ServiceRules> {
        self.service.get().map(|rules| &**rules)
    }

    /// The password that a visitor has to give, and did where there is a user. The route's goes before the service's.
    fn auth(&self) -> Option<&'a BasicAuth> {
        let of_route = self.route.and_then(|route| route.access.auth.as_deref());
        of_route.or_else(|| self.service()?.auth.as_ref())
    }

    /// What placeholders of the configuration stand for.
    pub(crate) fn values<'v>(
        &self,
        request: &Request<'v>,
        fields: &'v FieldView<'v>,
    ) -> Values<'v> {
        Values {
            request: request_view(request, self.about, fields),
            client: self.visitor.addr,
        }
    }

    /// What is left of the time for the whole exchange; `patience` if that is less.
    fn within_total(&self, patience: Duration) -> Duration {
        match self.route.and_then(|route| route.timeouts.total) {
            Some(total) => {
                let spent = self.worker.clock.precise().saturating_sub(self.began);
                patience.min(total.saturating_sub(spent))
            }
            None => patience,
        }
    }

    /// The time for the whole exchange is over.
    fn is_too_late(&self) -> bool {
        self.within_total(Duration::MAX).is_zero()
    }

    /// How long a visitor may take for a piece of an answer.
    pub(crate) fn patience(&self) -> Duration {
        self.route
            .map_or(ANSWER_PATIENCE, |route| route.timeouts.body)
    }
}

/// What servers are told of a visitor alike with each of its requests, for a connection that carries several.
#[derive(Debug, Default)]
pub(crate) struct Introduction {
    /// By whose rules it was written.
    of: Option<Rc<Local>>,
    /// What stands before and behind the first field that says what was asked for.
    fields: [Prepared; 2],
}

impl Introduction {
    /// The fields, which hold for a peer that is not trusted.
    fn fields(&mut self, local: &Rc<Local>, about: &About, value: &mut Vec<u8>) -> &[Prepared; 2] {
        if !self.of.as_ref().is_some_and(|of| Rc::ptr_eq(of, local)) {
            self.of = Some(Rc::clone(local));
            self.write(&local.site.forwarding, about, value);
        }
        &self.fields
    }

    fn write(&mut self, forwarding: &Forwarding, about: &About, value: &mut Vec<u8>) {
        let view = VisitorView {
            peer: about.peer,
            scheme: about.scheme,
            authority: b"",
            headers: &NoHeaders,
        };
        let visitor = Visitor {
            addr: SocketAddr::new(about.peer.ip().to_canonical(), about.peer.port()),
            via_trusted: false,
        };
        self.fields.iter_mut().for_each(Prepared::clear);
        let mut at = 0;
        forwarding.write(&view, &visitor, value, |name, value| {
            if Forwarding::is_of_request(name) {
                at = 1;
            } else if let Err(error) = self.fields[at].field(name.as_bytes(), value) {
                tracing::debug!(%error, "a field is left out");
            }
        });
    }
}

/// The fields of a head, for `route`.
pub(crate) struct FieldView<'b>(pub(crate) Fields<'b>);

impl route::Headers for FieldView<'_> {
    fn nth(&self, name: &str, n: usize) -> Option<&[u8]> {
        self.0.values(name.as_bytes()).nth(n)
    }
}

fn request_view<'a>(
    request: &Request<'a>,
    about: &About,
    fields: &'a FieldView<'a>,
) -> RequestView<'a> {
    RequestView {
        listener: about.listener,
        scheme: about.scheme,
        host: request.host(),
        port: request.port(),
        method: request.method(),
        path: request.path(),
        query: request.query(),
        headers: fields,
    }
}

/// Serves the request whose head is in `work.saved`; its body is in the connection.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    about: &About,
    connection: &mut Connection,
    introduction: &mut Introduction,
    visitor: h1::Visitor,
    work: &mut Work,
) -> Next {
    let local = worker.local();
    let Work {
        request: head,
        saved,
        turn,
        scratch,
        value,
        ..
    } = work;
    let Some(request) = head.view(saved) else {
        return Next::Abort;
    };
    let (body, responder) = visitor.begin(request);
    *turn = Some(Turn { body, responder });
    // The first of a connection is perhaps its last.
    let again = connection.requests > 1;
    let introduction = again.then(|| introduction.fields(&local, about, value));
    let service = OnceCell::new();
    let mut context = Context {
        worker,
        local: &local,
        about,
        began: match local.timed || worker.lines.is_some() {
            true => worker.clock.precise(),
            false => worker.clock.coarse(),
        },
        visitor: local.site.forwarding.visitor(&VisitorView {
            peer: about.peer,
            scheme: about.scheme,
            authority: request.authority(),
            headers: &FieldView(request.fields()),
        }),
        route: None,
        http2: matches!(connection.conn, Conn::H2(_)),
        user: None,
        introduction,
        service: &service,
    };
    let decided = decide::decide(&mut context, request, turn, scratch).await;
    if let Some(route) = context.route {
        connection.keep_alive = route.timeouts.keep_alive;
        // From here on: the head has a time of its own.
        connection.deadline.bound(route.timeouts.total);
    }
    match decided {
        Ok((route, by)) => act(&context, route, by, connection, work).await,
        Err(refusal) => context.refuse(connection, work, refusal).await,
    }
}

async fn act(
    context: &Context<'_>,
    route: &Route,
    by: By,
    connection: &mut Connection,
    work: &mut Work,
) -> Next {
    let Context { local, .. } = *context;
    let (to, upstream, relayed) = match (by, &route.action) {
        (By::Page(page), _) => return context.page(connection, work, &page).await,
        (By::Service(relayed), _) => match &local.relay {
            Some(upstream) => (&local.site.relay.to, upstream, Some(relayed)),
            None => return Next::Abort,
        },
        (By::Action, Action::Upstream(to)) => match local.upstream(to.upstream) {
            Some(upstream) => (to, upstream, None),
            None => {
                let refusal = Refusal::new(502, "The upstream of this route does not exist.");
                return context.refuse(connection, work, refusal).await;
            }
        },
        (By::Action, Action::Respond(respond)) => {
            return context.respond(connection, work, respond).await;
        }
        (By::Action, Action::Redirect(redirect)) => {
            return context.redirect(connection, work, redirect).await;
        }
        (By::Action, Action::Files(files)) => {
            let serving = crate::files::serve(context, connection, work, files);
            return Box::pin(serving).await;
        }
        (By::Action, Action::Service(_)) => {
            let refusal = relayed::away();
            return context.refuse(connection, work, refusal).await;
        }
    };
    let forward = forward::Forward {
        context,
        route,
        to,
        upstream,
        relayed,
    };
    forward.run(connection, work).await
}

/// For answers before a route is known.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
