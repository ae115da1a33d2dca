//! One attempt: the request on one connection of one server, and what follows from how that ended.

use std::time::Duration;

use ::tunnel::ResetReason;
use h1::{Framing, Request, Responder, Response};
use route::{Compression, Report as Health, ServerIndex};

use super::{
    Next, Refusal, Told,
    forward::Forward,
    head::{Incoming, Outgoing},
    own::TOO_LATE,
};
use crate::{
    answer::{Answer, Turn},
    exchange::{Begun, Behind, Exchange, Failed, Patience, Report, Side},
    flow::{BadBody, Flow},
    log::{EndedBy, Phase},
    tunnel::{self, TunnelEnd},
    upstream::{Lease, Picked},
    visitor::Connection,
    work::Work,
};

/// What came of an attempt.
pub(super) enum Done {
    Over(Next),
    /// The connection ended before a byte of an answer, and nothing of the request is lost.
    Unanswered(Box<Turn>, Why),
}

/// What is known of a request that got no answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Why {
    /// What a relayed service's client said.
    pub(super) reason: Option<ResetReason>,
    /// The server has said that it has not looked at the request.
    pub(super) unprocessed: bool,
}

impl Forward<'_> {
    /// One attempt on one connection.
    pub(super) async fn exchange(
        &self,
        connection: &mut Connection,
        turn: Turn,
        work: &mut Work,
        picked: &Picked,
        mut lease: Lease,
    ) -> Done {
        let worker = self.context.worker;
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
        let outgoing = Outgoing {
            forward: self,
            request,
            server: self.upstream.server(picked.server),
            // Over HTTP/2 no connection changes its protocol.
            upgrade: self.to.websocket && wants_websocket(request) && !lease.conn.is_http2(),
        };
        let Turn { body, responder } = turn;
        *to_upstream = Default::default();
        let sent = match outgoing.write(responder, to_upstream.buffer(), value, path) {
            Ok(sent) => sent,
            Err(responder) => {
                let turn = Turn { body, responder };
                let text = "The path of this request cannot be rewritten as this service wants.";
                let refusal = Refusal::new(400, text);
                return Done::Over(self.refuse(connection, work, turn, refusal).await);
            }
        };
        let keep = connection.requests < self.route.limits.requests_per_connection;
        let mut head_after = None;
        let mut on_head = |answer: Response<'_>,
                           mut responder: Responder,
                           behind: Behind<'_>,
                           out: &mut Vec<u8>| {
            // Only the log wants to know.
            if worker.lines.is_some() {
                head_after = Some(worker.clock.precise().saturating_sub(self.context.began));
            }
            let (status, reason) = (answer.status(), answer.reason());
            let mut incoming = Incoming {
                forward: self,
                request,
                answer,
                picked,
                compression: Compression::Untouched,
                revalidated: false,
            };
            match behind {
                Behind::Body(body) => {
                    if !keep || worker.is_draining() {
                        responder.close();
                    }
                    let encoder = incoming.choose();
                    let writer = match &encoder {
                        None => responder.forward(body, answer, out)?,
                        Some(_) => {
                            responder.respond(body, status, reason, Framing::Chunked, out)?
                        }
                    };
                    let mut writer = incoming.write(writer, value);
                    Ok(match encoder {
                        // HEAD has no body, whatever the head says.
                        Some(encoder) if !writer.encoder().is_complete() => {
                            Begun::Compressed(writer, encoder)
                        }
                        _ => Begun::Body(writer),
                    })
                }
                Behind::Tunnel(body) => {
                    let protocol = answer.upgrade().unwrap_or_default();
                    let writer = responder.tunnel(body, status, reason, protocol, out)?;
                    incoming.write(writer, value);
                    Ok(Begun::Tunnel)
                }
            }
        };
        let mut exchange = Exchange {
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
            limits: &self.context.local.heads.limits,
            request: Some(Flow::new(body, sent.body)),
            patience: Patience {
                response: self.route.timeouts.response,
                body: self.route.timeouts.body,
            },
            deadline: &connection.deadline,
            on_head: &mut on_head,
        };
        let mut report = exchange.run().await;
        response.clear();
        to_upstream.rest();
        // Some of the request's body may be gone, so that it cannot be sent again. Without one nothing is.
        let silent = report.end == Err(Failed::UpstreamGone { silent: true });
        if silent
            && report.received == 0
            && let Some(turn) = report.turn.take()
        {
            let why = Why {
                reason: lease.conn.refusal(),
                unprocessed: lease.conn.is_unprocessed(),
            };
            return Done::Unanswered(Box::new(turn), why);
        }
        let told = Told {
            status: report.status.unwrap_or_default(),
            sent: report.sent,
            received: report.received,
            head_after,
            phase: Phase::Data,
            server: self.server_name(picked.server),
            ..Told::default()
        };
        if report.end.is_ok() && !report.tunnel {
            return Done::Over(self.settle(work, picked.server, lease, &mut report, &told));
        }
        let over = self.conclude(connection, work, picked.server, lease, &mut report, told);
        Done::Over(Box::pin(over).await)
    }

    /// An exchange that ended well: health, the server's connection, counters and log.
    fn settle(
        &self,
        work: &Work,
        server: ServerIndex,
        lease: Lease,
        report: &mut Report,
        told: &Told<'_>,
    ) -> Next {
        let worker = self.context.worker;
        let now = worker.clock.coarse();
        self.report(server, report, EndedBy::Nobody, now);
        if report.reusable {
            self.keep(server, lease, now);
        }
        worker.metrics.count_answer(told.status);
        self.context.note(work, told);
        match report.next.take() {
            Some(h1::Next::Idle(visitor)) => Next::Again(visitor),
            Some(h1::Next::Drain(rest)) => Next::Drain(Box::new(rest)),
            _ => Next::Close,
        }
    }

    /// Says how the server did.
    fn report(&self, server: ServerIndex, report: &Report, ended_by: EndedBy, now: Duration) {
        let health = match (report.status, report.end) {
            (Some(500..), _) => Health::ServerError,
            (Some(_), Ok(())) => Health::Good,
            (_, Err(_)) if ended_by == EndedBy::Upstream => Health::ServerError,
            _ => return,
        };
        self.upstream.report(server, health, now);
    }

    /// The same for one that became a tunnel, which runs now, or failed; and an answer, if none was passed on and one can be.
    async fn conclude(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        server: ServerIndex,
        lease: Lease,
        report: &mut Report,
        mut told: Told<'_>,
    ) -> Next {
        let worker = self.context.worker;
        let now = worker.clock.coarse();
        (told.ended_by, told.phase) = blame(report);
        self.report(server, report, told.ended_by, now);
        let reason = lease.conn.refusal();
        let Err(failed) = report.end else {
            return self.tunnel(connection, work, lease, told).await;
        };
        if report.reusable {
            self.keep(server, lease, now);
        } else {
            lease.conn.abort();
        }
        self.count_failure(failed);
        let turn = report
            .turn
            .take()
            .filter(|_| failed != Failed::VisitorGone && report.status.is_none());
        let Some(mut turn) = turn else {
            worker.metrics.count_answer(told.status);
            self.context.note(work, &told);
            return Next::Abort;
        };
        let (status, text) = self.words(reason).unwrap_or_else(|| explain(failed));
        told.status = status;
        // What an interim answer left there goes first.
        turn.goes_on_if(!worker.is_draining());
        let Work { answer, value, .. } = &mut *work;
        let next = Answer { status, text }.write(turn, answer, |writer| {
            self.context.add_alt_svc(writer, value);
        });
        self.context.finish(connection, work, next, told).await
    }

    async fn tunnel(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        mut lease: Lease,
        mut told: Told<'_>,
    ) -> Next {
        let metrics = &self.context.worker.metrics;
        metrics.proxy_upgrades_total.add_one();
        metrics.count_answer(told.status);
        let up = std::mem::take(&mut connection.input);
        let down = std::mem::take(&mut work.from_upstream);
        let idle = Some(self.route.timeouts.tunnel_idle);
        // A tunnel is no exchange that has to end.
        connection.deadline.bound(None);
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
            TunnelEnd::BrokenUp => EndedBy::Upstream,
            TunnelEnd::BrokenDown => EndedBy::Visitor,
        };
        self.context.note(work, &told);
        match end {
            TunnelEnd::Finished => Next::Gone,
            _ => {
                lease.conn.abort();
                Next::Abort
            }
        }
    }

    fn count_failure(&self, failed: Failed) {
        let metrics = &self.context.worker.metrics;
        match failed {
            Failed::VisitorGone | Failed::VisitorSlow => {
                metrics.proxy_visitors_lost_total.add_one()
            }
            Failed::VisitorBody(_) => metrics.proxy_requests_refused_total.add_one(),
            Failed::UpstreamSlow | Failed::TooLong => {
                metrics.proxy_upstream_timeouts_total.add_one()
            }
            Failed::UpstreamGone { .. } | Failed::UpstreamBody => {
                metrics.proxy_upstream_broken_total.add_one()
            }
            Failed::UpstreamHead(error) => {
                metrics.proxy_upstream_broken_total.add_one();
                tracing::debug!(%error, upstream = %self.upstream.spec().name, "an answer is not valid HTTP");
            }
        }
    }
}

/// Only WebSocket: an upgrade to h2c would be a way around every rule of the proxy.
fn wants_websocket(request: Request<'_>) -> bool {
    request.method() == b"GET"
        && request
            .upgrade()
            .is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
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
        Failed::TooLong => (EndedBy::Proxy, phase),
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
        Failed::TooLong => (504, TOO_LATE),
        Failed::UpstreamSlow => (504, "The server behind this proxy did not answer in time."),
        Failed::UpstreamHead(_) | Failed::UpstreamBody => (
            502,
            "The server behind this proxy answered with something that is not valid HTTP.",
        ),
    }
}
