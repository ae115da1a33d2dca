//! A request that came by another version of HTTP, put together as if it had been read here: written once, looked at once, held to the same rules.
//!
//! ```text
//! RequestHead::compose ─► Composer ─ field, field, … ─► finish ─► RequestHead::view(out)
//! ```

use super::{MOST_METHOD, RequestHead, Stage};
use crate::{
    error::{FieldError, RequestError},
    lines::Limits,
    scan::{target_end, value_end},
    target,
    token::{Version, is_token},
};

/// Appends fields to a request's head. Dropped before [`Composer::finish`], the head stays incomplete.
#[derive(Debug)]
#[must_use = "a head is complete only when it is finished"]
pub struct Composer<'c> {
    head: &'c mut RequestHead,
    limits: &'c Limits,
    out: &'c mut Vec<u8>,
}

impl RequestHead {
    /// Begins a request of version 1.1, instead of [`RequestHead::parse`]. `out` is emptied, and holds the head's text at the end:
    /// [`RequestHead::view`] wants to see it. Call [`RequestHead::clear`] before the next request, as after parsing.
    ///
    /// # Errors
    /// What parsing the same request would have answered.
    pub fn compose<'c>(
        &'c mut self,
        method: &[u8],
        target: &[u8],
        limits: &'c Limits,
        out: &'c mut Vec<u8>,
    ) -> Result<Composer<'c>, RequestError> {
        self.clear();
        self.forget();
        out.clear();
        if !is_token(method) || method.len() > MOST_METHOD {
            return Err(RequestError::Method);
        }
        if target.len() > limits.target {
            return Err(RequestError::TargetTooLong);
        }
        if target.is_empty() || target_end(target, 0) < target.len() {
            return Err(RequestError::Target);
        }
        let parts = target::parse(method, target).ok_or(RequestError::Target)?;
        out.reserve(USUAL_HEAD);
        out.extend_from_slice(method);
        out.push(b' ');
        out.extend_from_slice(target);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        if out.len() >= limits.head {
            return Err(RequestError::TargetTooLong);
        }
        self.method = 0..method.len();
        self.target = method.len() + 1..method.len() + 1 + target.len();
        self.parts = parts;
        self.version = Version::Http11;
        Ok(Composer {
            head: self,
            limits,
            out,
        })
    }
}

impl Composer<'_> {
    /// Appends a field; white space around the value does not count.
    ///
    /// # Errors
    /// What parsing it would have answered; the request is to be refused then.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), RequestError> {
        if self.head.places.len() >= self.limits.fields {
            return Err(FieldError::TooMany.into());
        }
        if !is_token(name) {
            return Err(FieldError::Name.into());
        }
        if value_end(value, 0) < value.len() {
            return Err(FieldError::Value.into());
        }
        let start = self.out.len();
        // With its line end and that of the head.
        let end = start + name.len() + 2 + value.len();
        if end + 4 > self.limits.head {
            return Err(FieldError::TooLong.into());
        }
        // Once for all of it.
        self.out.reserve(name.len() + value.len() + 6);
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(value);
        let colon = start + name.len();
        self.head.places.add(self.out, start, colon, end);
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Ends the head and checks it as a whole; its length.
    ///
    /// # Errors
    /// What parsing it would have answered.
    pub fn finish(self) -> Result<usize, RequestError> {
        let Self { head, out, .. } = self;
        out.extend_from_slice(b"\r\n");
        head.check(out)?;
        head.stage = Stage::Done(out.len());
        Ok(out.len())
    }
}

/// Room that most heads do with.
const USUAL_HEAD: usize = 512;
