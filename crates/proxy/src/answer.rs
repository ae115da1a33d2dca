//! Answers that the proxy makes itself: refusals, errors, redirects, fixed texts. Written into the visitor's output like any other head.

use std::io::Write as _;

use h1::{Framing, HeadWriter, Next, RequestBody, Responder, ResponseWriter, Trailers, WriteError};

use crate::buffer::Output;

/// The right to answer a request, and its body as far as it was read.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) body: RequestBody,
    pub(crate) responder: Responder,
}

impl Turn {
    /// Ends the connection behind the answer, unless all of the request was read and `goes_on`. An answer that needs no body does not wait for one.
    pub(crate) fn goes_on_if(&mut self, goes_on: bool) {
        if !goes_on || !self.body.is_complete() {
            self.responder.close();
        }
    }
}

/// An answer for people, and for programs by its status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) text: &'a str,
}

impl Answer<'_> {
    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let _ = writeln!(
            body,
            "{} {}: {}",
            self.status,
            reason(self.status),
            self.text
        );
        body
    }

    /// Appends the whole answer; `more` adds fields.
    pub(crate) fn write(
        &self,
        turn: Turn,
        output: &mut Output,
        more: impl FnOnce(&mut HeadWriter<'_, ResponseWriter>),
    ) -> Result<Next, WriteError> {
        let kind = "text/plain; charset=utf-8";
        write(turn, self.status, kind, &self.body(), output, |writer| {
            writer.field(b"Cache-Control", b"no-store")?;
            writer.field(b"X-Content-Type-Options", b"nosniff")?;
            more(writer);
            Ok(())
        })
    }

    /// Appends the whole answer to what was no request: nobody has the right to answer it in HTTP's states, and the connection ends behind it.
    pub(crate) fn write_last(&self, output: &mut Output) {
        let body = self.body();
        let out = output.buffer();
        let _ = write!(
            out,
            "HTTP/1.1 {} {}\r\nContent-Length: {}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n",
            self.status,
            reason(self.status),
            body.len(),
        );
        out.extend_from_slice(&body);
    }
}

/// Appends an answer with a body that is at hand.
pub(crate) fn write(
    turn: Turn,
    status: u16,
    content_type: &str,
    body: &[u8],
    output: &mut Output,
    more: impl FnOnce(&mut HeadWriter<'_, ResponseWriter>) -> Result<(), WriteError>,
) -> Result<Next, WriteError> {
    let bodiless = matches!(status, 204 | 304);
    let content = if bodiless {
        Framing::None
    } else {
        Framing::Length(body.len() as u64)
    };
    let Turn {
        body: request,
        responder,
    } = turn;
    let reason = reason(status).as_bytes();
    let mut writer = responder.respond(&request, status, reason, content, output.buffer())?;
    if !bodiless && !content_type.is_empty() {
        writer.field(b"Content-Type", content_type.as_bytes())?;
    }
    more(&mut writer)?;
    let mut writer = writer.finish();
    // HEAD has no body, whatever the head says.
    if !writer.encoder().is_complete() {
        writer.encoder().data(body.len())?;
        output.buffer().extend_from_slice(body);
        writer.encoder().finish(Trailers::NONE, output.buffer())?;
    }
    Ok(writer.finish(request))
}

/// The reason phrase of RFC 9110; empty for a status it does not know.
pub(crate) fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or_default()
}
