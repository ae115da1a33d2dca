//! A request from its head to its last byte: which route it takes, whether it may, and what answers it.

use std::{net::SocketAddr, rc::Rc, time::Duration};

use h1::{
    Fields, Framing, HeadWriter, Request, RequestLine, Responder, Response, Sent, Version,
    WriteError,
};
use route::{
    Action, AuthDecision, HostField, Outcome, PickRequest, RateDecision, Report as Health,
    RequestView, Route, Tried, Values, VisitorView,
};

use crate::{
    answer::{self, Answer, Turn},
    exchange::{Behind, Exchange, Failed, Patience, Report, Side},
    flow::{BadBody, Flow},
    log::{EndedBy, Entry, Phase},
    site::UpstreamServer,
    tunnel::{self, TunnelEnd},
    upstream::{Lease, NoConnection, Picked, Upstream},
    visitor::{About, Connection},
    work::Work,
    worker::{Local, Worker},
};

/// What becomes of the visitor's connection.
pub(crate) enum Next {
    /// It goes on.
    Again(h1::Visitor),
    /// It ends behind the answer.
    Close,
    /// The answer is not whole: reset.
    Abort,
    /// It is over.
    Gone,
}

/// The fields of a head, for `route`.
pub(crate) struct FieldView<'b>(pub(crate) Fields<'b>);

impl route::Headers for FieldView<'_> {
    fn nth(&self, name: &str, n: usize) -> Option<&[u8]> {
        self.0.values(name.as_bytes()).nth(n)
    }
}

/// What is known when the exchange is over, for log and counters.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    status: u16,
    sent: u64,
    received: u64,
    head_after: Option<Duration>,
    ended_by: EndedBy,
    phase: Phase,
    /// The server's place, if one was asked.
    server: Option<route::ServerIndex>,
}

/// Serves the request whose head is in `work.saved`; its body is in the connection.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    about: &About,
    connection: &mut Connection,
    visitor: h1::Visitor,
    work: &mut Work,
) -> Next {
    let local = worker.local();
    let began = worker.clock.precise();
    let Work {
        request: head,
        saved,
        scratch,
        ..
    } = work;
    let Some(request) = head.view(saved) else {
        return Next::Abort;
    };
    let (body, responder) = visitor.begin(request);
    let mut turn = Turn { body, responder };
    let fields = FieldView(request.fields());
    let view = request_view(&request, about, &fields);
    let route = match local.site.routes.match_request(&view, scratch) {
        Ok(route) => route.map(|route| route.id),
        Err(bad) => {
            let text = bad.to_string();
            return refuse(
                worker,
                about,
                connection,
                work,
                began,
                turn,
                None,
                (400, text.as_str()),
            )
            .await;
        }
    };
    let Some(route) = route.and_then(|id| local.site.routes.get(id)) else {
        let text = "Nothing here answers for this host and path.";
        return refuse(
            worker,
            about,
            connection,
            work,
            began,
            turn,
            None,
            (404, text),
        )
        .await;
    };
    connection.keep_alive = route.timeouts.keep_alive;
    let visitor = local.site.forwarding.visitor(&VisitorView {
        peer: about.peer,
        scheme: about.scheme,
        authority: request.authority(),
        headers: &fields,
    });
    match check(worker, &local, route, &request, visitor.addr).await {
        Pass::Yes => {}
        Pass::No(status, text) => {
            worker.metrics.proxy_denied_total.add_one();
            return refuse(
                worker,
                about,
                connection,
                work,
                began,
                turn,
                Some(route),
                (status, text),
            )
            .await;
        }
        Pass::Later(after) => {
            worker.metrics.proxy_denied_total.add_one();
            return too_many(worker, about, connection, work, began, turn, route, after).await;
        }
    }
    if request.method() == b"CONNECT" {
        let text = "This is a reverse proxy: it opens no tunnels.";
        return refuse(
            worker,
            about,
            connection,
            work,
            began,
            turn,
            Some(route),
            (405, text),
        )
        .await;
    }
    if let Some(limit) = route.limits.body_bytes
        && turn.body.set_limit(limit).is_err()
    {
        let text = "The body is larger than this service accepts.";
        return refuse(
            worker,
            about,
            connection,
            work,
            began,
            turn,
            Some(route),
            (413, text),
        )
        .await;
    }
    match &route.action {
        Action::Upstream(to) => {
            let Some(upstream) = local.upstream(to.upstream) else {
                let text = "The upstream of this route does not exist.";
                return refuse(
                    worker,
                    about,
                    connection,
                    work,
                    began,
                    turn,
                    Some(route),
                    (502, text),
                )
                .await;
            };
            let upstream = Rc::clone(upstream);
            let forward = Forward {
                worker,
                about,
                local: &local,
                route,
                to,
                upstream: &upstream,
                visitor,
                began,
            };
            forward.run(connection, turn, work).await
        }
        Action::Respond(respond) => {
            let (kind, body) = (respond.content_type.clone(), respond.body.clone());
            own(
                worker,
                about,
                connection,
                work,
                began,
                turn,
                route,
                respond.status,
                &kind,
                &body,
                None,
            )
            .await
        }
        Action::Redirect(redirect) => {
            let values = Values {
                request: view,
                client: visitor.addr,
            };
            let mut location = Vec::new();
            redirect.write_location(&values, &mut location);
            own(
                worker,
                about,
                connection,
                work,
                began,
                turn,
                route,
                redirect.status(),
                "",
                b"",
                Some(&location),
            )
            .await
        }
        Action::Files(files) => {
            Box::pin(crate::files::serve(
                worker, about, connection, work, began, turn, route, files,
            ))
            .await
        }
        Action::Service(_) => {
            let text = "Relayed services are reached through gt server only.";
            refuse(
                worker,
                about,
                connection,
                work,
                began,
                turn,
                Some(route),
                (502, text),
            )
            .await
        }
    }
}

pub(crate) fn request_view<'a>(
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

/// Whether a request may pass.
enum Pass {
    Yes,
    No(u16, &'static str),
    Later(Duration),
}

async fn check(
    worker: &Worker,
    local: &Rc<Local>,
    route: &Route,
    request: &Request<'_>,
    visitor: SocketAddr,
) -> Pass {
    let access = &route.access;
    if !access.ip.permits(visitor.ip()) {
        return Pass::No(
            403,
            "This service does not accept visitors from your address.",
        );
    }
    let fields = FieldView(request.fields());
    if let (Some(limit), Some(table)) = (&access.rate, local.rate(route.id)) {
        let now = worker.clock.precise();
        let decision = table.borrow_mut().check(limit, now, visitor.ip(), &fields);
        if let RateDecision::Limited { retry_after } = decision {
            return Pass::Later(retry_after);
        }
    }
    let Some(auth) = &access.auth else {
        return Pass::Yes;
    };
    let now = worker.clock.coarse();
    let decision = auth.check(&local.passwords.borrow(), now, &fields);
    match decision {
        AuthDecision::Allowed { .. } => Pass::Yes,
        AuthDecision::Refused => Pass::No(401, "A name and a password are needed."),
        AuthDecision::Check { check, .. } => Box::pin(check_password(worker, local, check)).await,
    }
}

/// Bcrypt takes tens of milliseconds: on another thread, and not many at a time.
async fn check_password(worker: &Worker, local: &Local, check: route::PasswordCheck) -> Pass {
    if local.checks.get() >= MOST_CHECKS {
        return Pass::No(503, "Too many passwords are being checked. Try again soon.");
    }
    local.checks.set(local.checks.get() + 1);
    let good = tokio::task::spawn_blocking(move || check.run()).await;
    local.checks.set(local.checks.get() - 1);
    match good {
        Ok(Some(good)) => {
            let now = worker.clock.coarse();
            local.passwords.borrow_mut().accept(good, now);
            Pass::Yes
        }
        _ => Pass::No(401, "A name and a password are needed."),
    }
}

/// What a request is told that is not served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a> {
    status: u16,
    text: &'a str,
    phase: Phase,
}

impl<'a> From<(u16, &'a str)> for Refusal<'a> {
    fn from((status, text): (u16, &'a str)) -> Self {
        Self {
            status,
            text,
            phase: Phase::Request,
        }
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "what an answer of the proxy's own depends on"
)]
pub(crate) async fn refuse(
    worker: &Rc<Worker>,
    about: &About,
    connection: &mut Connection,
    work: &mut Work,
    began: Duration,
    mut turn: Turn,
    route: Option<&Route>,
    refusal: impl Into<Refusal<'_>>,
) -> Next {
    let Refusal {
        status,
        text,
        phase,
    } = refusal.into();
    turn.goes_on_if(!worker.is_draining());
    let challenge = route
        .filter(|_| status == 401)
        .and_then(|route| route.access.auth.as_ref())
        .map(|auth| auth.challenge());
    let next = Answer { status, text }.write(turn, &mut work.answer, |writer| {
        if let Some(challenge) = challenge {
            add(writer, b"WWW-Authenticate", challenge.as_bytes());
        }
    });
    let told = Told {
        status,
        ended_by: EndedBy::Proxy,
        phase,
        ..Told::default()
    };
    finish(worker, about, connection, work, began, route, next, told).await
}

#[expect(
    clippy::too_many_arguments,
    reason = "what an answer of the proxy's own depends on"
)]
async fn too_many(
    worker: &Rc<Worker>,
    about: &About,
    connection: &mut Connection,
    work: &mut Work,
    began: Duration,
    mut turn: Turn,
    route: &Route,
    after: Duration,
) -> Next {
    turn.goes_on_if(!worker.is_draining());
    let answer = Answer {
        status: 429,
        text: "Too many requests. Try again later.",
    };
    let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    let next = answer.write(turn, &mut work.answer, |writer| {
        add(writer, b"Retry-After", seconds.to_string().as_bytes());
    });
    let told = Told {
        status: 429,
        ended_by: EndedBy::Proxy,
        ..Told::default()
    };
    finish(
        worker,
        about,
        connection,
        work,
        began,
        Some(route),
        next,
        told,
    )
    .await
}

#[expect(
    clippy::too_many_arguments,
    reason = "what an answer of the proxy's own depends on"
)]
async fn own(
    worker: &Rc<Worker>,
    about: &About,
    connection: &mut Connection,
    work: &mut Work,
    began: Duration,
    mut turn: Turn,
    route: &Route,
    status: u16,
    kind: &str,
    body: &[u8],
    location: Option<&[u8]>,
) -> Next {
    turn.goes_on_if(!worker.is_draining());
    let Some(request) = work.request.view(&work.saved) else {
        return Next::Abort;
    };
    let fields = FieldView(request.fields());
    let values = Values {
        request: request_view(&request, about, &fields),
        client: about.peer,
    };
    let value = &mut work.value;
    let next = answer::write(turn, status, kind, body, &mut work.answer, |writer| {
        if let Some(location) = location {
            add(writer, b"Location", location);
        }
        for edit in route.response_headers.writes() {
            value.clear();
            edit.value.write(&values, value);
            add(writer, edit.name.as_bytes(), value);
        }
        Ok(())
    });
    let told = Told {
        status,
        sent: body.len() as u64,
        ..Told::default()
    };
    finish(
        worker,
        about,
        connection,
        work,
        began,
        Some(route),
        next,
        told,
    )
    .await
}

/// Sends what is in the work's answer, counts and logs it.
#[expect(
    clippy::too_many_arguments,
    reason = "what an answer of the proxy's own depends on"
)]
async fn finish(
    worker: &Rc<Worker>,
    about: &About,
    connection: &mut Connection,
    work: &mut Work,
    began: Duration,
    route: Option<&Route>,
    next: Result<h1::Next, WriteError>,
    mut told: Told,
) -> Next {
    let patience = route.map_or(ANSWER_PATIENCE, |route| route.timeouts.body);
    let written = connection.write_answer(work, patience).await;
    if !written {
        told.ended_by = EndedBy::Visitor;
        told.phase = Phase::Data;
        worker.metrics.proxy_visitors_lost_total.add_one();
    }
    worker.metrics.count_answer(told.status);
    note(worker, about, work, began, route, None, told);
    match next {
        Ok(h1::Next::Idle(visitor)) if written => Next::Again(visitor),
        Ok(_) if written => Next::Close,
        _ => Next::Abort,
    }
}

/// Adds a field that a configuration or a visitor has put together. One that cannot be sent is left out: nobody forges a head with it.
fn add<N>(writer: &mut HeadWriter<'_, N>, name: &[u8], value: &[u8]) {
    if let Err(error) = writer.field(name, value) {
        tracing::debug!(%error, "a field is left out");
    }
}

/// A request on its way to an upstream.
struct Forward<'a> {
    worker: &'a Rc<Worker>,
    about: &'a About,
    local: &'a Local,
    route: &'a Route,
    to: &'a route::ToUpstream,
    upstream: &'a Rc<Upstream>,
    visitor: route::Visitor,
    began: Duration,
}

impl Forward<'_> {
    async fn run(&self, connection: &mut Connection, mut turn: Turn, work: &mut Work) -> Next {
        let worker = self.worker;
        let _admitted = match self.upstream.try_enter(worker.clock.coarse()) {
            Ok(admitted) => admitted,
            Err(queued) => {
                let waited = match queued {
                    Some(queued) => Box::pin(queued.wait()).await,
                    None => None,
                };
                match waited {
                    Some(admitted) => admitted,
                    None => {
                        worker.metrics.proxy_unavailable_total.add_one();
                        let text =
                            "The service has as many requests as it can take. Try again soon.";
                        return self
                            .refuse(connection, turn, work, 503, text, Phase::Queue)
                            .await;
                    }
                }
            }
        };
        let mut tried = Tried::default();
        let mut retries = 0;
        let mut failed = None;
        loop {
            let Some(picked) = self.pick(work, tried) else {
                if let Some(failed) = &failed {
                    return self.no_connection(connection, turn, work, failed).await;
                }
                worker.metrics.proxy_unavailable_total.add_one();
                let text = "No server of this service is available now.";
                return self
                    .refuse(connection, turn, work, 503, text, Phase::Queue)
                    .await;
            };
            let server = picked.server;
            let now = worker.clock.coarse();
            let waiting = self.upstream.waiting_connection(server, now);
            let reused = waiting.is_some();
            let lease = match waiting {
                Some(lease) => lease,
                None => match Box::pin(self.connect(&picked)).await {
                    Ok(lease) => lease,
                    Err(error) => {
                        self.upstream.report(server, Health::Unreachable, now);
                        picked.finish(now, Outcome::Failed);
                        tried.insert(server);
                        if self.may_retry(&mut retries) {
                            failed = Some(error);
                            continue;
                        }
                        return self.no_connection(connection, turn, work, &error).await;
                    }
                },
            };
            if reused {
                worker.metrics.proxy_upstream_reused_total.add_one();
            }
            match self.exchange(connection, turn, work, &picked, lease).await {
                Done::Over(next) => return next,
                Done::Unanswered(back) => {
                    turn = back;
                    let now = worker.clock.coarse();
                    picked.finish(now, Outcome::Failed);
                    // One that was kept and closed meanwhile says nothing of the server.
                    if !reused {
                        self.upstream.report(server, Health::ServerError, now);
                        tried.insert(server);
                    }
                    if work.request.view(&work.saved).is_some_and(is_repeatable)
                        && self.may_retry(&mut retries)
                    {
                        continue;
                    }
                    worker.metrics.proxy_upstream_broken_total.add_one();
                    let text =
                        "The server behind this proxy closed the connection without an answer.";
                    return self
                        .refuse(connection, turn, work, 502, text, Phase::Answer)
                        .await;
                }
            }
        }
    }

    fn pick(&self, work: &Work, tried: Tried) -> Option<Picked> {
        let request = work.request.view(&work.saved)?;
        let fields = FieldView(request.fields());
        let spec = self.upstream.spec();
        let key = spec
            .hash_key
            .as_ref()
            .and_then(|key| key.of(self.visitor.addr.ip(), &fields));
        let sticky = spec
            .sticky
            .as_ref()
            .and_then(|(cookie, _)| route::cookie(&fields, &cookie.name));
        self.upstream.pick(&PickRequest {
            now: self.worker.clock.coarse(),
            key,
            sticky,
            tried,
            random: random(),
        })
    }

    async fn connect(&self, picked: &Picked) -> Result<Lease, NoConnection> {
        let patience = self.route.timeouts.connect;
        let visitor = Some((self.visitor.addr, self.about.local));
        self.upstream
            .connect(
                picked.server,
                visitor,
                patience,
                &self.worker.clock,
                &self.worker.metrics,
            )
            .await
    }

    fn may_retry(&self, retries: &mut u8) -> bool {
        let may = *retries < self.to.retries && self.upstream.may_retry(self.worker.clock.coarse());
        if may {
            *retries += 1;
            self.worker.metrics.proxy_upstream_retries_total.add_one();
        }
        may
    }

    async fn refuse(
        &self,
        connection: &mut Connection,
        turn: Turn,
        work: &mut Work,
        status: u16,
        text: &str,
        phase: Phase,
    ) -> Next {
        let refusal = Refusal {
            status,
            text,
            phase,
        };
        refuse(
            self.worker,
            self.about,
            connection,
            work,
            self.began,
            turn,
            Some(self.route),
            refusal,
        )
        .await
    }

    async fn no_connection(
        &self,
        connection: &mut Connection,
        turn: Turn,
        work: &mut Work,
        failed: &NoConnection,
    ) -> Next {
        let (status, text) = match failed {
            NoConnection::Failed(error) => {
                tracing::debug!(%error, upstream = %self.upstream.spec().name, "no server could be reached");
                (502, "The server behind this proxy cannot be reached.")
            }
            NoConnection::TimedOut => {
                self.worker.metrics.proxy_upstream_timeouts_total.add_one();
                (
                    504,
                    "The server behind this proxy could not be reached in time.",
                )
            }
        };
        self.refuse(connection, turn, work, status, text, Phase::Connect)
            .await
    }

    /// One attempt on one connection.
    async fn exchange(
        &self,
        connection: &mut Connection,
        turn: Turn,
        work: &mut Work,
        picked: &Picked,
        mut lease: Lease,
    ) -> Done {
        let worker = self.worker;
        let server = self.upstream.server(picked.server);
        let Work {
            request: head,
            response,
            saved,
            answer,
            from_upstream,
            to_upstream,
            value,
            path,
            ..
        } = work;
        let Some(request) = head.view(saved) else {
            return Done::Over(Next::Abort);
        };
        let upgrade = self.to.websocket && wants_websocket(request);
        let Turn { body, responder } = turn;
        *to_upstream = Default::default();
        let written = self.write_request(
            request,
            server,
            upgrade,
            responder,
            to_upstream.buffer(),
            value,
            path,
        );
        let sent = match written {
            Ok(sent) => sent,
            Err(responder) => {
                let turn = Turn { body, responder };
                let text = "The path of this request cannot be rewritten as this service wants.";
                let refused = self.refuse(connection, turn, work, 400, text, Phase::Request);
                return Done::Over(refused.await);
            }
        };
        let keep = connection.requests < self.route.limits.requests_per_connection;
        let mut head_after = None;
        let mut on_head = |answer: Response<'_>,
                           mut responder: Responder,
                           behind: Behind<'_>,
                           out: &mut Vec<u8>| {
            head_after = Some(worker.clock.precise().saturating_sub(self.began));
            match behind {
                Behind::Body(body) => {
                    if !keep || worker.is_draining() {
                        responder.close();
                    }
                    let writer = responder.forward(body, answer, out)?;
                    Ok(Some(
                        self.write_answer(writer, request, answer, picked, value),
                    ))
                }
                Behind::Tunnel(body) => {
                    let protocol = answer.upgrade().unwrap_or_default();
                    let (status, reason) = (answer.status(), answer.reason());
                    let writer = responder.tunnel(body, status, reason, protocol, out)?;
                    self.write_answer(writer, request, answer, picked, value);
                    Ok(None)
                }
            }
        };
        let report = Exchange {
            visitor: Side {
                conn: &mut connection.conn,
                input: &mut connection.input,
                output: answer,
            },
            upstream: Side {
                conn: &mut lease.conn,
                input: from_upstream,
                output: to_upstream,
            },
            head: response,
            awaiting: Some(sent.awaiting),
            limits: self.local.heads.limits,
            request: Some(Flow::new(body, sent.body)),
            patience: Patience {
                response: self.route.timeouts.response,
                body: self.route.timeouts.body,
            },
            deadline: &connection.deadline,
            on_head: &mut on_head,
        }
        .run()
        .await;
        response.clear();
        to_upstream.rest();
        // Some of the request's body may be gone, so that it cannot be sent again. Without one nothing is.
        let silent = report.end == Err(Failed::UpstreamGone { silent: true });
        match report {
            Report {
                turn: Some(turn),
                received: 0,
                ..
            } if silent => Done::Unanswered(turn),
            report => {
                self.conclude(connection, work, picked, lease, report, head_after)
                    .await
            }
        }
    }

    async fn conclude(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        picked: &Picked,
        lease: Lease,
        report: Report,
        head_after: Option<Duration>,
    ) -> Done {
        let worker = self.worker;
        let now = worker.clock.coarse();
        let (ended_by, phase) = blame(&report);
        let health = match (report.status, report.end) {
            (Some(500..), _) => Some(Health::ServerError),
            (Some(_), Ok(())) => Some(Health::Good),
            (_, Err(_)) if ended_by == EndedBy::Upstream => Some(Health::ServerError),
            _ => None,
        };
        if let Some(health) = health {
            self.upstream.report(picked.server, health, now);
        }
        let mut told = Told {
            status: report.status.unwrap_or_default(),
            sent: report.sent,
            received: report.received,
            head_after,
            ended_by,
            phase,
            server: Some(picked.server),
        };
        if report.tunnel && report.end.is_ok() {
            return Done::Over(self.tunnel(connection, work, lease, told).await);
        }
        if report.reusable && self.upstream.server(picked.server).send_proxy.is_none() {
            self.upstream.keep(picked.server, lease, now);
        } else if report.end.is_err() {
            lease.conn.abort();
        }
        let Err(failed) = report.end else {
            worker.metrics.count_answer(told.status);
            note(
                worker,
                self.about,
                work,
                self.began,
                Some(self.route),
                Some(self.upstream),
                told,
            );
            return Done::Over(match report.next {
                Some(h1::Next::Idle(visitor)) => Next::Again(visitor),
                _ => Next::Close,
            });
        };
        self.count_failure(failed);
        let turn = report
            .turn
            .filter(|_| failed != Failed::VisitorGone && report.status.is_none());
        let Some(mut turn) = turn else {
            worker.metrics.count_answer(told.status);
            note(
                worker,
                self.about,
                work,
                self.began,
                Some(self.route),
                Some(self.upstream),
                told,
            );
            return Done::Over(Next::Abort);
        };
        let (status, text) = explain(failed);
        told.status = status;
        // What an interim answer left there goes first.
        turn.goes_on_if(!worker.is_draining());
        let next = Answer { status, text }.write(turn, &mut work.answer, |_| {});
        Done::Over(
            finish(
                worker,
                self.about,
                connection,
                work,
                self.began,
                Some(self.route),
                next,
                told,
            )
            .await,
        )
    }

    async fn tunnel(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        mut lease: Lease,
        mut told: Told,
    ) -> Next {
        let metrics = &self.worker.metrics;
        metrics.proxy_upgrades_total.add_one();
        metrics.count_answer(told.status);
        let up = std::mem::take(&mut connection.input);
        let down = std::mem::take(&mut work.from_upstream);
        let idle = Some(self.route.timeouts.tunnel_idle);
        let (end, moved) = Box::pin(tunnel::run(
            &mut connection.conn,
            &mut lease.conn,
            up,
            down,
            idle,
            &connection.deadline,
        ))
        .await;
        told.received = moved.up;
        told.sent = moved.down;
        told.phase = Phase::Data;
        told.ended_by = match end {
            TunnelEnd::Finished => EndedBy::Nobody,
            TunnelEnd::Idle => EndedBy::Proxy,
            TunnelEnd::Broken => EndedBy::Upstream,
        };
        note(
            self.worker,
            self.about,
            work,
            self.began,
            Some(self.route),
            Some(self.upstream),
            told,
        );
        match end {
            TunnelEnd::Finished => Next::Gone,
            _ => {
                lease.conn.abort();
                Next::Abort
            }
        }
    }

    fn count_failure(&self, failed: Failed) {
        let metrics = &self.worker.metrics;
        match failed {
            Failed::VisitorGone | Failed::VisitorSlow => {
                metrics.proxy_visitors_lost_total.add_one()
            }
            Failed::VisitorBody(_) => metrics.proxy_requests_refused_total.add_one(),
            Failed::UpstreamSlow => metrics.proxy_upstream_timeouts_total.add_one(),
            Failed::UpstreamGone { .. } | Failed::UpstreamBody => {
                metrics.proxy_upstream_broken_total.add_one()
            }
            Failed::UpstreamHead(error) => {
                metrics.proxy_upstream_broken_total.add_one();
                tracing::debug!(%error, upstream = %self.upstream.spec().name, "an answer is not valid HTTP");
            }
        }
    }

    /// The request's head as the upstream gets it. The responder comes back if there is no such request.
    #[expect(clippy::too_many_arguments, reason = "what a request is made of")]
    fn write_request(
        &self,
        request: Request<'_>,
        server: &UpstreamServer,
        upgrade: bool,
        responder: Responder,
        out: &mut Vec<u8>,
        value: &mut Vec<u8>,
        path: &mut Vec<u8>,
    ) -> Result<Sent<Responder>, Responder> {
        let fields = FieldView(request.fields());
        let values = Values {
            request: request_view(&request, self.about, &fields),
            client: self.visitor.addr,
        };
        let Ok(line) = self.request_line(request, &values, server, upgrade, value, path) else {
            return Err(responder);
        };
        let upstream = h1::Upstream::new(&self.local.heads.limits);
        let mut writer = upstream.send(&line, responder, out);
        let forwarding = &self.local.site.forwarding;
        let edits = &self.route.request_headers;
        let auth = self.route.access.auth.as_ref();
        let edited = !edits.is_empty();
        writer.copy(request.fields(), |field| {
            // RFC 9110 §10.1.1: never without a body, which some servers then wait for; not from HTTP/1.0.
            let unfounded = field.known == h1::Known::Expect && !request.expects_continue();
            let dropped = unfounded
                || forwarding.replaces(field.name, &self.visitor)
                || (edited && edits.removes(field.name))
                || auth.is_some_and(|auth| is_for_us(auth, field.name));
            !dropped
        });
        let came = VisitorView {
            peer: self.about.peer,
            scheme: self.about.scheme,
            authority: request.authority(),
            headers: &fields,
        };
        forwarding.write(&came, &self.visitor, value, |name, value| {
            add(&mut writer, name.as_bytes(), value);
        });
        for edit in edits.writes() {
            value.clear();
            edit.value.write(&values, value);
            add(&mut writer, edit.name.as_bytes(), value);
        }
        Ok(writer.finish())
    }

    /// What is asked, and of whom. `host` and `path` hold what is put together.
    fn request_line<'l>(
        &self,
        request: Request<'l>,
        values: &Values<'_>,
        server: &'l UpstreamServer,
        upgrade: bool,
        host: &'l mut Vec<u8>,
        path: &'l mut Vec<u8>,
    ) -> Result<RequestLine<'l>, WriteError> {
        let mut line = RequestLine::of(request);
        if !upgrade {
            line = line.without_upgrade();
        }
        line = match &self.to.host {
            HostField::Visitor if !request.authority().is_empty() => line,
            HostField::Visitor | HostField::Server => {
                line.with_host(server.authority.as_bytes())?
            }
            HostField::Fixed(template) => {
                host.clear();
                template.write(values, host);
                line.with_host(host)?
            }
        };
        let Some(rewrite) = &self.to.rewrite else {
            return Ok(line);
        };
        path.clear();
        rewrite.write(request.path(), path);
        if let Some(query) = request.query() {
            path.push(b'?');
            path.extend_from_slice(query);
        }
        line.with_target(path)
    }

    /// The fields of the answer as the visitor gets them.
    fn write_answer<N>(
        &self,
        mut writer: HeadWriter<'_, N>,
        request: Request<'_>,
        answer: Response<'_>,
        picked: &Picked,
        value: &mut Vec<u8>,
    ) -> N {
        let edits = &self.route.response_headers;
        let edited = !edits.is_empty();
        writer.copy(answer.fields(), |field| {
            !(edited && edits.removes(field.name))
        });
        if edited {
            let fields = FieldView(request.fields());
            let values = Values {
                request: request_view(&request, self.about, &fields),
                client: self.visitor.addr,
            };
            for edit in edits.writes() {
                value.clear();
                edit.value.write(&values, value);
                add(&mut writer, edit.name.as_bytes(), value);
            }
        }
        if let Some((cookie, _)) = &picked.upstream().spec().sticky
            && !picked.sticky
        {
            value.clear();
            value.extend_from_slice(cookie.name.as_bytes());
            value.push(b'=');
            picked.upstream().write_sticky_tag(picked.server, value);
            value.extend_from_slice(b"; Path=/; HttpOnly; SameSite=Lax");
            if let Some(age) = cookie.max_age {
                let _ =
                    std::io::Write::write_fmt(value, format_args!("; Max-Age={}", age.as_secs()));
            }
            add(&mut writer, b"Set-Cookie", value);
        }
        writer.finish()
    }
}

/// What came of an attempt.
enum Done {
    Over(Next),
    /// The connection ended before a byte of an answer, and nothing of the request is lost.
    Unanswered(Turn),
}

/// Fields that are between the visitor and this proxy.
fn is_for_us(auth: &route::BasicAuth, name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"authorization")
        || auth
            .user_header()
            .is_some_and(|header| header.as_bytes().eq_ignore_ascii_case(name))
}

/// Only WebSocket: an upgrade to h2c would be a way around every rule of the proxy.
fn wants_websocket(request: Request<'_>) -> bool {
    request.method() == b"GET"
        && request
            .upgrade()
            .is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
}

/// Safe to send twice (RFC 9110 §9.2.2), and all of it still here.
fn is_repeatable(request: Request<'_>) -> bool {
    request.framing() == Framing::None
        && matches!(
            request.method(),
            b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE"
        )
}

fn blame(report: &Report) -> (EndedBy, Phase) {
    let Err(failed) = report.end else {
        return (EndedBy::Nobody, Phase::Data);
    };
    let phase = match report.status {
        Some(_) => Phase::Data,
        None => Phase::Answer,
    };
    match failed {
        Failed::VisitorGone | Failed::VisitorSlow => (EndedBy::Visitor, phase),
        Failed::VisitorBody(_) => (EndedBy::Visitor, Phase::Request),
        Failed::UpstreamGone { .. }
        | Failed::UpstreamSlow
        | Failed::UpstreamHead(_)
        | Failed::UpstreamBody => (EndedBy::Upstream, phase),
    }
}

fn explain(failed: Failed) -> (u16, &'static str) {
    match failed {
        Failed::VisitorSlow => (408, "The request's body did not come in time."),
        Failed::VisitorBody(BadBody::TooLarge) => {
            (413, "The body is larger than this service accepts.")
        }
        Failed::VisitorBody(_) | Failed::VisitorGone => {
            (400, "The request's body is not framed as HTTP/1.1 says.")
        }
        Failed::UpstreamGone { .. } => (
            502,
            "The server behind this proxy closed the connection within its answer.",
        ),
        Failed::UpstreamSlow => (504, "The server behind this proxy did not answer in time."),
        Failed::UpstreamHead(_) | Failed::UpstreamBody => (
            502,
            "The server behind this proxy answered with something that is not valid HTTP.",
        ),
    }
}

/// Logs an exchange.
fn note(
    worker: &Worker,
    about: &About,
    work: &Work,
    began: Duration,
    route: Option<&Route>,
    upstream: Option<&Rc<Upstream>>,
    told: Told,
) {
    let Some(lines) = &worker.lines else { return };
    let Some(request) = work.request.view(&work.saved) else {
        return;
    };
    let fields = request.fields();
    let first = |name: &[u8]| fields.values(name).next().unwrap_or_default();
    let server = upstream
        .zip(told.server)
        .map(|(upstream, server)| &*upstream.server(server).spec.name);
    lines.add(&Entry {
        visitor: about.peer.ip(),
        method: request.method(),
        target: request.raw_target(),
        version: match request.version() {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        },
        host: request.authority(),
        referer: first(b"referer"),
        user_agent: first(b"user-agent"),
        status: told.status,
        sent: told.sent,
        received: told.received,
        took: worker.clock.precise().saturating_sub(began),
        head_after: told.head_after,
        upstream: server.unwrap_or_default(),
        route: route.map_or("", |route| &*route.name),
        ended_by: told.ended_by,
        phase: told.phase,
    });
}

/// Logs an answer that came from this process.
#[expect(clippy::too_many_arguments, reason = "what a line of the log says")]
pub(crate) fn note_own(
    worker: &Worker,
    about: &About,
    work: &Work,
    began: Duration,
    route: &Route,
    status: u16,
    sent: u64,
    whole: bool,
) {
    let told = Told {
        status,
        sent,
        ended_by: if whole {
            EndedBy::Nobody
        } else {
            EndedBy::Visitor
        },
        phase: Phase::Data,
        ..Told::default()
    };
    note(worker, about, work, began, Some(route), None, told);
}

/// For balancing: fast, and good enough for choices nobody gains from guessing.
fn random() -> u64 {
    use std::cell::Cell;
    thread_local! {
        static STATE: Cell<u64> = Cell::new(rand::random::<u64>() | 1);
    }
    STATE.with(|state| {
        // xorshift64* (Marsaglia 2003; Vigna 2016).
        let mut x = state.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        state.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    })
}

/// For answers before a route is known.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// Password checks of a worker at one time.
const MOST_CHECKS: u32 = 8;
