//! Finds the end of a head and reads its lines on the way, each byte once.
//!
//! The state is the position up to which bytes were looked at, the start of the line that it is in, and what the complete lines
//! said. Lines are judged in the order of their bytes, so an answer does not depend on how the bytes came in.

use std::ops::Range;

use super::{
    error::{Flaw, HeadError},
    head::{ContentLength, Head, Parts, RoutedBy, TransferEncoding, slice},
    line,
};
use crate::classify::MAX_EMPTY_LINES;

/// Bounds of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest head in bytes, its last empty line included.
    pub head: usize,
    /// Most fields.
    pub headers: usize,
}

impl Default for Limits {
    /// 16 KiB and 100 fields.
    fn default() -> Self {
        Self {
            head: 16 * 1024,
            headers: 100,
        }
    }
}

/// Reads one request head from a growing buffer.
#[derive(Clone, Debug)]
pub struct HeadSniffer {
    limits: Limits,
    /// The field that routes, when it is not Host.
    route_by: Option<Box<str>>,
    state: State,
    /// Everything before this was looked at.
    scanned: usize,
    /// Where the line that `scanned` is in begins.
    line: usize,
}

#[derive(Clone, Debug)]
enum State {
    RequestLine { empty_lines: usize },
    Fields { parts: Parts, count: usize },
    Done { parts: Parts },
    Failed(HeadError),
}

impl HeadSniffer {
    /// A sniffer that has seen nothing and routes by the target and the Host field.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            route_by: None,
            state: State::RequestLine { empty_lines: 0 },
            scanned: 0,
            line: 0,
        }
    }

    /// Routes by the field called `name` (whatever its case) and by nothing else. The Host rules are still enforced.
    #[must_use]
    pub fn route_by(mut self, name: &str) -> Self {
        self.route_by = (!name.eq_ignore_ascii_case("host")).then(|| name.into());
        self
    }

    /// Looks at what is new in `buf`, the whole buffer from the first byte of the request. `None`: the head is not complete. Once
    /// it is, or is refused, the answer stays the same.
    ///
    /// # Errors
    /// The head is refused; see [`HeadError`].
    pub fn advance(&mut self, buf: &[u8]) -> Result<Option<Head>, HeadError> {
        let result = self.try_advance(buf);
        if let Err(error) = result {
            self.state = State::Failed(error);
        }
        result
    }

    fn try_advance(&mut self, buf: &[u8]) -> Result<Option<Head>, HeadError> {
        match &self.state {
            State::Failed(error) => return Err(*error),
            State::Done { parts } => return self.head(parts.clone(), buf).map(Some),
            State::RequestLine { .. } | State::Fields { .. } => {}
        }
        let window = &buf[..buf.len().min(self.limits.head)];
        while let Some(rest) = window.get(self.scanned..) {
            let Some(ordinary) = rest.iter().position(|&b| is_control(b)) else {
                self.scanned = window.len();
                break;
            };
            let line_end = self.scanned + ordinary;
            match rest[ordinary..] {
                [b'\r'] => {
                    self.scanned = line_end;
                    break;
                }
                [b'\r', b'\n', ..] => {}
                [b'\r', ..] => return Err(Flaw::BareCr.into()),
                [b'\n', ..] => return Err(Flaw::BareLf.into()),
                _ => return Err(Flaw::Control.into()),
            }
            let line = self.line..line_end;
            self.line = line_end + 2;
            self.scanned = self.line;
            if let Some(parts) = self.take_line(buf, line)? {
                self.state = State::Done {
                    parts: parts.clone(),
                };
                return self.head(parts, buf).map(Some);
            }
        }
        match self.state {
            _ if buf.len() < self.limits.head => Ok(None),
            State::RequestLine { .. } => Err(HeadError::TargetTooLong),
            _ => Err(HeadError::TooLong),
        }
    }

    /// Reads one line; gives the parts when it was the last one.
    fn take_line(&mut self, buf: &[u8], range: Range<usize>) -> Result<Option<Parts>, HeadError> {
        let line = &buf[range.clone()];
        match &mut self.state {
            State::RequestLine { empty_lines } if line.is_empty() => {
                *empty_lines += 1;
                if *empty_lines > MAX_EMPTY_LINES {
                    return Err(Flaw::RequestLine.into());
                }
            }
            State::RequestLine { .. } => {
                let found = line::request_line(line)?;
                let parts = Parts::new(&found, range.start, self.line);
                self.state = State::Fields { parts, count: 0 };
            }
            State::Fields { parts, .. } if line.is_empty() => return Ok(Some(parts.clone())),
            State::Fields { parts, count } => {
                let (name, value) = line::field(line)?;
                *count += 1;
                if *count > self.limits.headers {
                    return Err(HeadError::TooManyHeaders);
                }
                parts.add(
                    buf,
                    &line[name],
                    range.start + value.start..range.start + value.end,
                    self.route_by.as_deref(),
                )?;
            }
            State::Done { .. } | State::Failed(_) => {}
        }
        Ok(None)
    }

    /// Finds the authority. The head ends where the next line would begin.
    fn head(&self, parts: Parts, buf: &[u8]) -> Result<Head, HeadError> {
        let target = line::target_authority(slice(buf, &parts.method), slice(buf, &parts.target))?;
        let host = match &parts.host {
            Some(range) if !range.is_empty() => Some(line::authority(slice(buf, range))?),
            Some(_) => None,
            None if parts.version == super::Version::Http11 => return Err(HeadError::NoHost),
            None => None,
        };
        if let (Some((target, default_port)), Some(host)) = (&target, &host)
            && !line::agree(target, host, *default_port)
        {
            return Err(HeadError::HostMismatch);
        }
        let authority = match (&self.route_by, target, host) {
            (Some(_), ..) => match &parts.named {
                Some(range) if !range.is_empty() => {
                    Some((line::authority(slice(buf, range))?, RoutedBy::NamedField))
                }
                _ => None,
            },
            (None, Some((target, _)), _) => Some((target, RoutedBy::Target)),
            (None, None, host) => host.map(|host| (host, RoutedBy::Host)),
        };
        Ok(Head {
            parts,
            len: self.line,
            authority,
        })
    }
}

impl Parts {
    fn new(found: &line::RequestLine, start: usize, fields: usize) -> Self {
        Self {
            method: start + found.method.start..start + found.method.end,
            target: start + found.target.start..start + found.target.end,
            version: found.version,
            fields,
            host: None,
            named: None,
            content_length: ContentLength::Absent,
            transfer_encoding: TransferEncoding::Absent,
            expect_continue: false,
            connection_upgrade: false,
            upgrade_websocket: false,
            websocket_key: None,
        }
    }

    fn add(
        &mut self,
        buf: &[u8],
        name: &[u8],
        at: Range<usize>,
        route_by: Option<&str>,
    ) -> Result<(), HeadError> {
        let value = &buf[at.clone()];
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        if is("host") && self.host.replace(at.clone()).is_some() {
            return Err(HeadError::SeveralHosts);
        }
        if route_by.is_some_and(is) && self.named.replace(at.clone()).is_some() {
            return Err(HeadError::SeveralHosts);
        }
        if is("content-length") {
            self.content_length = match (self.content_length, number(value)) {
                (ContentLength::Absent, Some(bytes)) => ContentLength::Bytes(bytes),
                _ => ContentLength::Odd,
            };
        } else if is("transfer-encoding") {
            let first = self.transfer_encoding == TransferEncoding::Absent;
            let chunked = first && value.eq_ignore_ascii_case(b"chunked");
            self.transfer_encoding = if chunked {
                TransferEncoding::Chunked
            } else {
                TransferEncoding::Other
            };
        } else if is("expect") {
            self.expect_continue |= line::list_has(value, b"100-continue");
        } else if is("connection") {
            self.connection_upgrade |= line::list_has(value, b"upgrade");
        } else if is("upgrade") {
            self.upgrade_websocket |= line::list_has(value, b"websocket");
        } else if is("sec-websocket-key") {
            // A second one makes both worthless: an empty position never is a key.
            self.websocket_key = Some(if self.websocket_key.is_none() {
                at
            } else {
                0..0
            });
        }
        Ok(())
    }
}

/// Control bytes (RFC 9110 §5.5) but HTAB.
fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7F
}

fn number(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}
