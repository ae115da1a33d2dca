//! One attempt: the request on one connection of one server, and what follows from how that ended.

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
    exchange::{Begun, Behind, Down, Exchange, Failed, Finished, Patience, Side, SoFar},
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
    /// The connection ended before a byte of an answer, and nothing of the request is lost; nor is the right to answer it.
    Unanswered(Why),
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
        work: &mut Work,
        picked: &Picked,
        mut lease: Lease,
    ) -> Done {
        let worker = self.context.worker;
        let Work {
            request: head,
            response,
            saved,
            turn,
            answer,
            from_upstream,
            to_upstream,
            value,
            path,
            ..
        } = work;
        let (Some(request), Some(Turn { body, responder })) = (head.view(saved), turn.take())
        else {
            return Done::Over(Next::Abort);
        };
        let outgoing = Outgoing {
            forward: self,
            request,
            server: self.upstream.server(picked.server),
            // Over HTTP/2 no connection changes its protocol.
            upgrade: self.to.websocket && wants_websocket(request) && !lease.conn.is_http2(),
        };
        *to_upstream = Default::default();
        let sent = match outgoing.write(responder, to_upstream.buffer(), value, path) {
            Ok(sent) => sent,
            Err(responder) => {
                *turn = Some(Turn { body, responder });
                let text = "The path of this request cannot be rewritten as this service wants.";
                let refusal = Refusal::new(400, text);
                // Rare, and as large as all else that is kept here while an answer is awaited.
                return Done::Over(Box::pin(self.refuse(connection, work, refusal)).await);
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
                    let mut writer = match &encoder {
                        None => responder.forward(body, answer, out)?,
                        Some(_) => {
                            responder.respond(body, status, reason, Framing::Chunked, out)?
                        }
                    };
                    incoming.write(&mut writer, value);
                    let mut writer = writer.finish();
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
                    let mut writer = responder.tunnel(body, status, reason, protocol, out)?;
                    incoming.write(&mut writer, value);
                    writer.finish();
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
            answer: Down::Awaited,
            so_far: SoFar::default(),
            patience: Patience {
                response: self.route.timeouts.response,
                body: self.route.timeouts.body,
            },
            deadline: &connection.deadline,
            on_head: &mut on_head,
        };
        let ended = exchange.run().await;
        let (received, sent) = exchange.moved();
        let status = exchange.so_far.status;
        let finished = match ended {
            Ok(()) => Ok(exchange.finish()),
            Err(failed) => {
                *turn = exchange.give_back();
                Err(failed)
            }
        };
        response.clear();
        to_upstream.rest();
        let told = Told {
            status: status.unwrap_or_default(),
            sent,
            received,
            head_after,
            phase: Phase::Data,
            server: self.server_name(picked.server),
            ..Told::default()
        };
        let server = picked.server;
        Done::Over(match finished {
            Ok(Some(finished)) => self.settle(work, server, lease, finished, &told),
            Ok(None) => {
                let over = self.tunnel(connection, work, server, lease, told);
                Box::pin(over).await
            }
            // Some of the request's body may be gone, so that it cannot be sent again. Without one nothing is.
            Err(Failed::UpstreamGone { silent: true }) if received == 0 && work.turn.is_some() => {
                return Done::Unanswered(Why {
                    reason: lease.conn.refusal(),
                    unprocessed: lease.conn.is_unprocessed(),
                });
            }
            Err(failed) => {
                let over = self.conclude(connection, work, server, lease, failed, told);
                Box::pin(over).await
            }
        })
    }

    /// An exchange that ended well: health, the server's connection, counters and log.
    fn settle(
        &self,
        work: &Work,
        server: ServerIndex,
        lease: Lease,
        finished: Finished,
        told: &Told<'_>,
    ) -> Next {
        let worker = self.context.worker;
        let now = worker.clock.coarse();
        let health = match told.status {
            500.. => Health::ServerError,
            _ => Health::Good,
        };
        self.upstream.report(server, health, now);
        if finished.reusable {
            self.keep(server, lease, now);
        }
        worker.metrics.count_answer(told.status);
        self.context.note(work, told);
        match finished.next {
            h1::Next::Idle(visitor) => Next::Again(visitor),
            h1::Next::Drain(rest) => Next::Drain(rest),
            h1::Next::Close => Next::Close,
        }
    }

    /// The same for one that failed; and an answer, if none was passed on and one can be.
    async fn conclude(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        server: ServerIndex,
        lease: Lease,
        failed: Failed,
        mut told: Told<'_>,
    ) -> Next {
        let worker = self.context.worker;
        let begun = told.status > 0;
        (told.ended_by, told.phase) = blame(failed, begun);
        if told.status >= 500 || told.ended_by == EndedBy::Upstream {
            let now = worker.clock.coarse();
            self.upstream.report(server, Health::ServerError, now);
        }
        let reason = lease.conn.refusal();
        lease.conn.abort();
        self.count_failure(failed);
        let turn = work.turn.take();
        let turn = turn.filter(|_| failed != Failed::VisitorGone && !begun);
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

    /// The same for one that became a tunnel, which runs now.
    async fn tunnel(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        server: ServerIndex,
        mut lease: Lease,
        mut told: Told<'_>,
    ) -> Next {
        let worker = self.context.worker;
        let now = worker.clock.coarse();
        self.upstream.report(server, Health::Good, now);
        let metrics = &worker.metrics;
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

/// `begun`: the answer's head was passed on.
fn blame(failed: Failed, begun: bool) -> (EndedBy, Phase) {
    let phase = match begun {
        true => Phase::Data,
        false => Phase::Answer,
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
