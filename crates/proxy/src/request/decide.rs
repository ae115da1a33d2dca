//! Whether a request may pass, and by which route: what is looked at before anything is done for it.

use std::sync::Arc;

use h1::Request;
use route::{AuthDecision, PasswordCheck, RateDecision, Route, Scratch};

use super::{
    Context, FieldView, Refusal,
    relayed::{self, By},
    request_view,
};
use crate::{
    answer::Turn,
    aside::Busy,
    worker::{Local, Worker},
};

/// The route that a request may take. The context knows it too as soon as it is found, also when the request is refused.
pub(super) async fn decide<'a>(
    context: &mut Context<'a>,
    request: Request<'_>,
    turn: &mut Option<Turn>,
    scratch: &mut Scratch,
) -> Result<(&'a Route, By), Refusal<'static>> {
    let routes = &context.local.site.routes;
    let fields = FieldView(request.fields());
    let view = request_view(&request, context.about, &fields);
    let found = match routes.match_request(&view, scratch) {
        Ok(found) => found,
        Err(bad) => return Err(Refusal::new(400, bad.to_string())),
    };
    let (route, by) = match relayed::unasked(context, found) {
        Some(route) => (route, By::Action),
        None => relayed::find(context, &request, found).await?,
    };
    context.route = Some(route);
    if let By::Service(relayed) = &by
        && !relayed.service.admits(context.visitor.addr.ip())
    {
        context.worker.metrics.proxy_denied_total.add_one();
        let text = "This service does not accept visitors from your address.";
        return Err(Refusal::new(403, text));
    }
    if let By::Service(relayed) = &by
        && let Some(rules) = relayed.service.rules()
    {
        let _ = context.service.set(Arc::clone(rules));
    }
    let admitted = match check(context, route, request) {
        Ok(Admitted::At(user)) => Ok(user),
        Ok(Admitted::If(user, password)) => {
            let checking = check_password(context.worker, context.local, password);
            Box::pin(checking).await.map(|()| Some(user))
        }
        Err(refusal) => Err(refusal),
    };
    match admitted {
        Ok(user) => context.user = user,
        Err(refusal) => {
            context.worker.metrics.proxy_denied_total.add_one();
            return Err(refusal);
        }
    }
    if request.method() == b"CONNECT" {
        let text = "This is a reverse proxy: it opens no tunnels.";
        return Err(Refusal::new(405, text));
    }
    if let Some(limit) = route.limits.body_bytes
        && let Some(Turn { body, .. }) = turn
        && body.set_limit(limit).is_err()
    {
        let text = "The body is larger than this service accepts.";
        return Err(Refusal::new(413, text));
    }
    Ok((route, by))
}

/// Who may pass.
enum Admitted<'a> {
    /// At once, under this name where one is asked for.
    At(Option<&'a str>),
    /// If the password is right.
    If(&'a str, PasswordCheck),
}

/// The route's own rules about who may pass, and the service's.
fn check<'a>(
    context: &Context<'a>,
    route: &'a Route,
    request: Request<'_>,
) -> Result<Admitted<'a>, Refusal<'static>> {
    let Context { worker, local, .. } = context;
    let visitor = context.visitor.addr.ip();
    let access = &route.access;
    if !access.ip.permits(visitor) {
        let text = "This service does not accept visitors from your address.";
        return Err(Refusal::new(403, text));
    }
    let fields = FieldView(request.fields());
    if let (Some(limit), Some(table)) = (&access.rate, local.rate(route.id)) {
        let now = worker.clock.precise();
        let decision = table.borrow_mut().check(limit, now, visitor, &fields);
        if let RateDecision::Limited { retry_after } = decision {
            return Err(Refusal::too_many(retry_after));
        }
    }
    let Some(auth) = context.auth() else {
        return Ok(Admitted::At(None));
    };
    let now = worker.clock.coarse();
    let decision = auth.check(&local.passwords.borrow(), now, &fields);
    match decision {
        AuthDecision::Allowed { user } => Ok(Admitted::At(Some(user))),
        AuthDecision::Refused => Err(unknown_user()),
        AuthDecision::Check { user, check } => Ok(Admitted::If(user, check)),
    }
}

/// Bcrypt takes tens of milliseconds: on another thread, and not many at a time.
async fn check_password(
    worker: &Worker,
    local: &Local,
    check: PasswordCheck,
) -> Result<(), Refusal<'static>> {
    match worker.aside.passwords.try_run(move || check.run()).await {
        Ok(Some(good)) => {
            let now = worker.clock.coarse();
            local.passwords.borrow_mut().accept(good, now);
            Ok(())
        }
        Ok(None) => Err(unknown_user()),
        Err(Busy) => {
            let text = "Too many passwords are being checked. Try again soon.";
            Err(Refusal::new(503, text))
        }
    }
}

fn unknown_user() -> Refusal<'static> {
    Refusal::new(401, "A name and a password are needed.")
}
