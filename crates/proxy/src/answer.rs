//! Answers that the proxy makes itself: refusals, errors, redirects, fixed texts. Written into the visitor's output like any other head.

use std::io::Write as _;

use h1::{Framing, HeadWriter, Version};

use crate::buffer::Output;

/// An answer for people, and for programs by its status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) text: &'a str,
}

/// What the visitor's request makes of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) version: Version,
    pub(crate) head_only: bool,
    /// The connection ends behind it.
    pub(crate) close: bool,
    /// The visitor's own version has to hear that the connection goes on.
    pub(crate) say_keep_alive: bool,
}

impl Answer<'_> {
    /// Appends the whole answer; `more` adds fields.
    pub(crate) fn write(
        &self,
        manner: Manner,
        output: &mut Output,
        more: impl FnOnce(&mut HeadWriter<'_>),
    ) {
        let reason = reason(self.status);
        let mut body = Vec::new();
        let _ = writeln!(body, "{} {reason}: {}", self.status, self.text);
        write(
            manner,
            self.status,
            "text/plain; charset=utf-8",
            &body,
            output,
            |writer| {
                writer.field(b"Cache-Control", b"no-store");
                writer.field(b"X-Content-Type-Options", b"nosniff");
                more(writer);
            },
        );
    }
}

/// Appends an answer with a body that is at hand.
pub(crate) fn write(
    manner: Manner,
    status: u16,
    content_type: &str,
    body: &[u8],
    output: &mut Output,
    more: impl FnOnce(&mut HeadWriter<'_>),
) {
    let bodiless = matches!(status, 204 | 304);
    let out = output.buffer();
    let mut writer = HeadWriter::response(out, manner.version, status, reason(status).as_bytes());
    if !bodiless && !content_type.is_empty() {
        writer.field(b"Content-Type", content_type.as_bytes());
    }
    more(&mut writer);
    connection(&mut writer, manner);
    writer.finish(if bodiless {
        Framing::None
    } else {
        Framing::Length(body.len() as u64)
    });
    if !bodiless && !manner.head_only {
        output.buffer().extend_from_slice(body);
    }
}

/// Says whether the connection goes on.
pub(crate) fn connection(writer: &mut HeadWriter<'_>, manner: Manner) {
    if manner.close {
        writer.close();
    } else if manner.say_keep_alive {
        writer.keep_alive();
    }
}

/// The reason phrase of RFC 9110; empty for a status it does not know.
pub(crate) fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or_default()
}
