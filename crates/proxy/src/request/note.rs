//! What is told of an exchange when it is over: a line of the access log.

use std::time::Duration;

use h1::Version;

use super::Context;
use crate::{
    log::{EndedBy, Entry, Phase},
    work::Work,
};

/// How an exchange ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told<'a> {
    pub(crate) status: u16,
    /// Bytes of bodies.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// From the request's head to the answer's.
    pub(crate) head_after: Option<Duration>,
    pub(crate) ended_by: EndedBy,
    pub(crate) phase: Phase,
    /// The name of the server that was asked last; empty if none was.
    pub(crate) server: &'a str,
}

impl Context<'_> {
    /// Logs the exchange.
    pub(crate) fn note(&self, work: &Work, told: &Told<'_>) {
        let Some(lines) = &self.worker.lines else {
            return;
        };
        if self.route.is_some_and(|route| !route.log) {
            return;
        }
        let Some(request) = work.request.view(&work.saved) else {
            return;
        };
        let fields = request.fields();
        let first = |name: &[u8]| fields.values(name).next().unwrap_or_default();
        lines.add(&Entry {
            visitor: self.visitor.addr.ip(),
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
            took: self.worker.clock.precise().saturating_sub(self.began),
            head_after: told.head_after,
            upstream: told.server,
            route: self.route.map_or("", |route| &*route.name),
            ended_by: told.ended_by,
            phase: told.phase,
        });
    }
}
