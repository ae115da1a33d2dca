//! Answers that come from this process: refusals, redirects, fixed responses. Each is written whole into the work's answer, sent, counted and
//! logged.

use std::{borrow::Cow, time::Duration};

use h1::{HeadWriter, WriteError};
use route::{Redirect, Respond};

use super::{Context, FieldView, Next, Told};
use crate::{
    answer::{self, Answer, Turn},
    log::{EndedBy, Phase},
    relay::Page,
    visitor::Connection,
    work::Work,
};

/// What a request is told that is not served.
#[derive(Debug)]
pub(crate) struct Refusal<'a> {
    status: u16,
    text: Cow<'static, str>,
    /// How far the request had come.
    phase: Phase,
    ended_by: EndedBy,
    /// When it may be tried again.
    retry_after: Option<Duration>,
    /// The server that was asked last.
    server: &'a str,
}

impl<'a> Refusal<'a> {
    /// For what the request itself is refused for.
    pub(crate) fn new(status: u16, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            text: text.into(),
            phase: Phase::Request,
            ended_by: EndedBy::Proxy,
            retry_after: None,
            server: "",
        }
    }

    /// For want of a server.
    pub(super) fn unavailable(text: &'static str) -> Self {
        Self {
            phase: Phase::Queue,
            ..Self::new(503, text)
        }
    }

    /// For what a server has done, or not done.
    pub(super) fn failed(phase: Phase, status: u16, text: &'static str, server: &'a str) -> Self {
        Self {
            phase,
            ended_by: EndedBy::Upstream,
            server,
            ..Self::new(status, text)
        }
    }

    /// Because the whole exchange has taken too long.
    pub(super) fn too_late(phase: Phase, server: &'a str) -> Self {
        Self {
            phase,
            server,
            ..Self::new(504, TOO_LATE)
        }
    }

    /// It may be tried again after so long.
    pub(super) fn later(self, after: Duration) -> Self {
        Self {
            retry_after: Some(after),
            ..self
        }
    }

    pub(super) fn too_many(after: Duration) -> Self {
        Self {
            retry_after: Some(after),
            ..Self::new(429, "Too many requests. Try again later.")
        }
    }
}

/// An answer that is at hand.
struct Own<'a> {
    status: u16,
    kind: &'a str,
    body: &'a [u8],
    location: Option<&'a [u8]>,
}

impl Context<'_> {
    /// Says no.
    pub(crate) async fn refuse(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        refusal: Refusal<'_>,
    ) -> Next {
        let told = Told {
            status: refusal.status,
            ended_by: refusal.ended_by,
            phase: refusal.phase,
            server: refusal.server,
            ..Told::default()
        };
        let Some(turn) = work.turn.take() else {
            return Next::Abort;
        };
        let next = self.write_refusal(work, turn, &refusal);
        self.finish(connection, work, next, told).await
    }

    fn write_refusal(
        &self,
        work: &mut Work,
        mut turn: Turn,
        refusal: &Refusal<'_>,
    ) -> Result<h1::Next, WriteError> {
        turn.goes_on_if(!self.worker.is_draining());
        let answer = Answer {
            status: refusal.status,
            text: &refusal.text,
        };
        let asked = self.auth().filter(|_| refusal.status == 401);
        let challenge = asked.map(|auth| auth.challenge());
        let value = &mut work.value;
        answer.write(turn, &mut work.answer, |writer| {
            self.add_alt_svc(writer, value);
            if let Some(challenge) = challenge {
                add(writer, b"WWW-Authenticate", challenge.as_bytes());
            }
            if let Some(after) = refusal.retry_after {
                let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
                add(writer, b"Retry-After", seconds.to_string().as_bytes());
            }
        })
    }

    /// Tells a visitor where the same is to be had over HTTP/3 (RFC 7838 §3), unless the route's fields have the last word on that.
    pub(crate) fn add_alt_svc<N>(&self, writer: &mut HeadWriter<'_, N>, value: &mut Vec<u8>) {
        let Some(port) = self.about.http3 else {
            return;
        };
        let edited = |route: &route::Route| route.response_headers.removes(b"alt-svc");
        if !self.route.is_some_and(edited) {
            value.clear();
            // Writing to a Vec does not fail.
            let _ = std::io::Write::write_fmt(value, format_args!("h3=\":{port}\"; ma=86400"));
            add(writer, b"Alt-Svc", value);
        }
    }

    /// Answers with a fixed response.
    pub(super) async fn respond(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        respond: &Respond,
    ) -> Next {
        let own = Own {
            status: respond.status,
            kind: &respond.content_type,
            body: &respond.body,
            location: None,
        };
        self.answer(connection, work, own).await
    }

    /// Answers with a redirect.
    pub(super) async fn redirect(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        redirect: &Redirect,
    ) -> Next {
        let mut location = Vec::new();
        {
            let Some(request) = work.request.view(&work.saved) else {
                return Next::Abort;
            };
            let fields = FieldView(request.fields());
            redirect.write_location(&self.values(&request, &fields), &mut location);
        }
        let own = Own {
            status: redirect.status(),
            kind: "",
            body: b"",
            location: Some(&location),
        };
        self.answer(connection, work, own).await
    }

    /// Answers with a page of the server itself.
    pub(super) async fn page(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        page: &Page,
    ) -> Next {
        let own = Own {
            status: 200,
            kind: page.content_type,
            body: &page.body,
            location: None,
        };
        self.answer(connection, work, own).await
    }

    async fn answer(&self, connection: &mut Connection, work: &mut Work, own: Own<'_>) -> Next {
        let Some(mut turn) = work.turn.take() else {
            return Next::Abort;
        };
        turn.goes_on_if(!self.worker.is_draining());
        let next = {
            let Some(request) = work.request.view(&work.saved) else {
                return Next::Abort;
            };
            let fields = FieldView(request.fields());
            let values = self.values(&request, &fields);
            let (output, value) = (&mut work.answer, &mut work.value);
            answer::write(turn, own.status, own.kind, own.body, output, |writer| {
                if let Some(location) = own.location {
                    add(writer, b"Location", location);
                }
                let edits = self.route.map(|route| &route.response_headers);
                for edit in edits.into_iter().flat_map(route::HeaderEdits::writes) {
                    value.clear();
                    edit.value.write(&values, value);
                    add(writer, edit.name.as_bytes(), value);
                }
                self.add_alt_svc(writer, value);
                Ok(())
            })
        };
        let told = Told {
            status: own.status,
            sent: own.body.len() as u64,
            ..Told::default()
        };
        self.finish(connection, work, next, told).await
    }

    /// Sends what is in the work's answer, counts and logs it.
    pub(super) async fn finish(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        next: Result<h1::Next, WriteError>,
        mut told: Told<'_>,
    ) -> Next {
        // What ends because its time is over is told so all the same.
        connection.deadline.bound(None);
        let written = connection.write_answer(work, self.patience()).await;
        if !written {
            told.ended_by = EndedBy::Visitor;
            told.phase = Phase::Data;
            self.worker.metrics.proxy_visitors_lost_total.add_one();
        }
        self.worker.metrics.count_answer(told.status);
        self.note(work, &told);
        match next {
            Ok(h1::Next::Idle(visitor)) if written => Next::Again(visitor),
            Ok(h1::Next::Drain(rest)) if written => Next::Drain(rest),
            Ok(_) if written => Next::Close,
            _ => Next::Abort,
        }
    }
}

/// What is said when `timeouts.total` is over.
pub(super) const TOO_LATE: &str = "This exchange took longer than it may.";

/// Adds a field that a configuration or a visitor has put together. One that cannot be sent is left out: nobody forges a head with it.
pub(super) fn add<N>(writer: &mut HeadWriter<'_, N>, name: &[u8], value: &[u8]) {
    if let Err(error) = writer.field(name, value) {
        tracing::debug!(%error, "a field is left out");
    }
}
