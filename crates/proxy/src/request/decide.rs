//! Whether a request may pass, and by which route: what is looked at before anything is done for it.

use std::time::Duration;

use h1::Request;
use route::{AuthDecision, RateDecision, Route, Scratch};

use super::{
    Context, FieldView, Refusal,
    relayed::{self, By},
    request_view,
};
use crate::{
    answer::Turn,
    worker::{Local, Worker},
};

/// The route that a request may take. The context knows it too as soon as it is found, also when the request is refused.
pub(super) async fn decide<'a>(
    context: &mut Context<'a>,
    request: Request<'_>,
    turn: &mut Turn,
    scratch: &mut Scratch,
) -> Result<(&'a Route, By), Refusal> {
    let routes = &context.local.site.routes;
    let fields = FieldView(request.fields());
    let view = request_view(&request, context.about, &fields);
    let found = match routes.match_request(&view, scratch) {
        Ok(found) => found,
        Err(bad) => return Err(Refusal::new(400, bad.to_string())),
    };
    let (route, by) = relayed::find(context, &request, found).await?;
    context.route = Some(route);
    if let By::Service(relayed) = &by
        && !relayed.service.admits(context.visitor.addr.ip())
    {
        context.worker.metrics.proxy_denied_total.add_one();
        let text = "This service does not accept visitors from your address.";
        return Err(Refusal::new(403, text));
    }
    if let Err(refusal) = check(context, route, request).await {
        context.worker.metrics.proxy_denied_total.add_one();
        return Err(refusal);
    }
    if request.method() == b"CONNECT" {
        let text = "This is a reverse proxy: it opens no tunnels.";
        return Err(Refusal::new(405, text));
    }
    if let Some(limit) = route.limits.body_bytes
        && turn.body.set_limit(limit).is_err()
    {
        let text = "The body is larger than this service accepts.";
        return Err(Refusal::new(413, text));
    }
    Ok((route, by))
}

/// The route's own rules about who may pass.
async fn check(context: &Context<'_>, route: &Route, request: Request<'_>) -> Result<(), Refusal> {
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
    let Some(auth) = &access.auth else {
        return Ok(());
    };
    let now = worker.clock.coarse();
    let decision = auth.check(&local.passwords.borrow(), now, &fields);
    match decision {
        AuthDecision::Allowed { .. } => Ok(()),
        AuthDecision::Refused => Err(unknown_user()),
        AuthDecision::Check { check, .. } => Box::pin(check_password(worker, local, check)).await,
    }
}

/// Bcrypt takes tens of milliseconds: on another thread, and not many at a time.
async fn check_password(
    worker: &Worker,
    local: &Local,
    check: route::PasswordCheck,
) -> Result<(), Refusal> {
    if local.checks.get() >= MOST_CHECKS {
        let text = "Too many passwords are being checked. Try again soon.";
        return Err(Refusal::new(503, text));
    }
    local.checks.set(local.checks.get() + 1);
    let good = tokio::task::spawn_blocking(move || check.run()).await;
    local.checks.set(local.checks.get() - 1);
    match good {
        Ok(Some(good)) => {
            let now: Duration = worker.clock.coarse();
            local.passwords.borrow_mut().accept(good, now);
            Ok(())
        }
        _ => Err(unknown_user()),
    }
}

fn unknown_user() -> Refusal {
    Refusal::new(401, "A name and a password are needed.")
}

/// Password checks of a worker at one time.
const MOST_CHECKS: u32 = 8;
