//! What a request's head says, in the bytes that it was read from.

use super::RequestHead;
use crate::{
    body::Framing,
    fields::{Fields, Known},
    target::Form,
    token::Version,
};

/// A request's head in the bytes it came as.
#[derive(Clone, Copy, Debug)]
pub struct Request<'b> {
    pub(super) head: &'b RequestHead,
    pub(super) bytes: &'b [u8],
}

impl<'b> Request<'b> {
    /// The method.
    #[must_use]
    pub fn method(self) -> &'b [u8] {
        &self.bytes[self.head.method.clone()]
    }

    /// The target as it goes on: for an absolute form what follows the authority, `/` if that is nothing, `*` for OPTIONS with nothing
    /// (RFC 9112 §3.2.1, §3.2.4).
    #[must_use]
    pub fn target(self) -> &'b [u8] {
        let target = self.raw_target();
        if self.head.parts.form != Form::Absolute {
            return target;
        }
        let parts = &self.head.parts;
        if parts.path.is_empty() {
            return if self.method() == b"OPTIONS" {
                b"*"
            } else {
                b"/"
            };
        }
        &target[parts.path.start..]
    }

    /// The target as sent.
    #[must_use]
    pub fn raw_target(self) -> &'b [u8] {
        &self.bytes[self.head.target.clone()]
    }

    /// The path without query; `*` or empty for targets that have none.
    #[must_use]
    pub fn path(self) -> &'b [u8] {
        let path = &self.raw_target()[self.head.parts.path.clone()];
        if path.is_empty() && self.head.parts.form == Form::Absolute {
            return b"/";
        }
        path
    }

    /// What follows the `?`.
    #[must_use]
    pub fn query(self) -> Option<&'b [u8]> {
        Some(&self.raw_target()[self.head.parts.query.clone()?])
    }

    /// The scheme, where the target is an absolute URL: true for `https`.
    #[must_use]
    pub fn says_https(self) -> Option<bool> {
        let parts = &self.head.parts;
        (parts.form == Form::Absolute).then_some(parts.scheme_is_https)
    }

    /// Host and port as asked for, checked; empty if the request names none, which only HTTP/1.0 may.
    #[must_use]
    pub fn authority(self) -> &'b [u8] {
        &self.bytes[self.head.host.clone()]
    }

    /// The host without port, an IPv6 address in brackets.
    #[must_use]
    pub fn host(self) -> &'b [u8] {
        &self.authority()[..self.head.host_name]
    }

    /// The port that was asked for.
    #[must_use]
    pub fn port(self) -> Option<u16> {
        self.head.port
    }

    /// The version.
    #[must_use]
    pub fn version(self) -> Version {
        self.head.version
    }

    /// The request line and Host's behind it, if they are such as this crate would write for the same request.
    pub(crate) fn lines(self) -> Option<&'b [u8]> {
        let RequestHead {
            method,
            parts,
            version,
            places,
            ..
        } = self.head;
        let usual = parts.form == Form::Origin && *version == Version::Http11;
        if !usual {
            return None;
        }
        // Between the words of a request line there is one space and nothing else.
        let end = places.first_line_end(b"Host: ", self.bytes)?;
        Some(&self.bytes[method.start..end])
    }

    /// The fields.
    #[must_use]
    pub fn fields(self) -> Fields<'b> {
        self.head.places.view(self.bytes)
    }

    /// How the body is framed.
    #[must_use]
    pub fn framing(self) -> Framing {
        self.head.facts.framing
    }

    /// Whether the visitor wants to go on after this exchange.
    #[must_use]
    pub fn keep_alive(self) -> bool {
        self.head.facts.keep_alive
    }

    /// The protocol it asks to go on with on this connection (Connection: upgrade, and one Upgrade with one protocol that is not h2c). `None`
    /// also behind a body and in HTTP/1.0.
    #[must_use]
    pub fn upgrade(self) -> Option<&'b [u8]> {
        let wish = self.head.facts.upgrade;
        wish.then(|| self.fields().first(Known::Upgrade)).flatten()
    }

    /// Whether it waits for 100 before it sends the body.
    #[must_use]
    pub fn expects_continue(self) -> bool {
        self.head.facts.expects_continue
    }

    /// Whether it takes trailers (TE: trailers).
    #[must_use]
    pub fn accepts_trailers(self) -> bool {
        self.head.facts.accepts_trailers
    }

    /// Length of the head in bytes, with the empty line that ends it and one that came before it.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a head is never empty")]
    pub fn len(self) -> usize {
        self.bytes.len()
    }
}
