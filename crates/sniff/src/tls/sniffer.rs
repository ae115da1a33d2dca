//! Puts a ClientHello together from records.
//!
//! A hello within one record, the usual case, is read in place. One that spans records is gathered, each byte copied once. Checks
//! are made in the order of the bytes and as soon as the byte they need is there, so that other protocols are told early and
//! always in the same way.

use super::{TlsError, hello::ClientHello};

/// Bounds of a ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest handshake message in bytes, its 4-byte header included. At most 2^24 + 3 makes a difference.
    pub hello: usize,
    /// Most records that it may span.
    pub records: usize,
}

impl Default for Limits {
    /// 16 KiB and the header, over 64 records. Hellos of today have 200 to 2,000 bytes.
    fn default() -> Self {
        Self {
            hello: 16 * 1024 + HANDSHAKE_HEADER,
            records: 64,
        }
    }
}

impl Limits {
    /// Most bytes that a sniffer with these limits needs before it answers.
    #[must_use]
    pub fn max_buffer(&self) -> usize {
        self.hello
            .saturating_add(self.records.saturating_mul(RECORD_HEADER))
    }
}

/// Reads one ClientHello from a growing buffer.
#[derive(Clone, Debug)]
pub struct HelloSniffer {
    limits: Limits,
    /// Everything before this was taken.
    next: usize,
    /// Bytes of the current record that were not taken yet.
    left: usize,
    records: usize,
    /// The message so far, when it does not fit into the first record.
    gathered: Vec<u8>,
    /// What was answered.
    end: Option<End>,
}

#[derive(Clone, Copy, Debug)]
enum End {
    /// The message ends here, and the one to read is gathered or in the first record.
    Hello {
        len: usize,
    },
    Failed(TlsError),
}

const RECORD_HEADER: usize = 5;
const HANDSHAKE_HEADER: usize = 4;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// RFC 8446 §5.1: a record carries at most 2^14 bytes.
const MAX_RECORD: usize = 1 << 14;
/// version, random, session id length, cipher suites length and one suite, compression length and one method
const MIN_BODY: usize = 2 + 32 + 1 + 2 + 2 + 1 + 1;

impl HelloSniffer {
    /// A sniffer that has seen nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            next: 0,
            left: 0,
            records: 0,
            gathered: Vec::new(),
            end: None,
        }
    }

    /// Looks at what is new in `buf`, the whole buffer from the first byte of TLS. `None`: the hello is not complete. Once it is,
    /// or is refused, the answer stays the same.
    ///
    /// # Errors
    /// This is no ClientHello to route by; see [`TlsError`].
    pub fn advance(&mut self, buf: &[u8]) -> Result<Option<ClientHello>, TlsError> {
        let result = match self.end {
            None => self.complete(buf),
            Some(End::Hello { len }) => Ok(Some(len)),
            Some(End::Failed(error)) => return Err(error),
        };
        let result = match result {
            Ok(None) => return Ok(None),
            Ok(Some(len)) => {
                self.end = Some(End::Hello { len });
                ClientHello::parse(self.message(buf, len), len)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            self.end = Some(End::Failed(error));
        }
        result.map(Some)
    }

    /// The message, once complete: gathered, or in the first record.
    fn message<'b>(&'b self, buf: &'b [u8], len: usize) -> &'b [u8] {
        if self.gathered.is_empty() {
            buf.get(RECORD_HEADER..len).unwrap_or_default()
        } else {
            &self.gathered
        }
    }

    /// Walks the records. Gives the position in `buf` where the hello ends, when it is complete.
    fn complete(&mut self, buf: &[u8]) -> Result<Option<usize>, TlsError> {
        while let Some(rest) = buf.get(self.next..) {
            if self.left == 0 {
                let Some(length) = record_header(rest)? else {
                    return Ok(None);
                };
                self.records += 1;
                if self.records > self.limits.records {
                    return Err(TlsError::TooManyRecords);
                }
                self.left = length;
                self.next += RECORD_HEADER;
                continue;
            }
            let fragment = &rest[..rest.len().min(self.left)];
            if self.records == 1 && self.gathered.is_empty() {
                let total = self.check(fragment)?;
                match total {
                    Some(total) if total <= self.left => {
                        // The whole message is or will be in this record.
                        return Ok((total <= fragment.len()).then_some(self.next + total));
                    }
                    None if fragment.len() < self.left => return Ok(None),
                    _ => {}
                }
            }
            if fragment.is_empty() {
                return Ok(None);
            }
            let before = self.gathered.len();
            self.gathered.extend_from_slice(fragment);
            if let Some(total) = self.check(&self.gathered)?
                && total <= self.gathered.len()
            {
                self.gathered.truncate(total);
                return Ok(Some(self.next + (total - before)));
            }
            self.next += fragment.len();
            self.left -= fragment.len();
        }
        Ok(None)
    }

    /// Checks as much of the message as is there; gives its length when that is known. Constant time.
    fn check(&self, message: &[u8]) -> Result<Option<usize>, TlsError> {
        let Some(&kind) = message.first() else {
            return Ok(None);
        };
        if kind != CLIENT_HELLO {
            return Err(TlsError::NotClientHello);
        }
        let [_, a, b, c, body @ ..] = message else {
            return Ok(None);
        };
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        if length + HANDSHAKE_HEADER > self.limits.hello {
            return Err(TlsError::TooLong);
        }
        // The session id has at most 32 bytes. Any version is taken: to negotiate is the server's (RFC 8446 §4.1.2).
        if length < MIN_BODY || body.get(34).is_some_and(|&id| id > 32) {
            return Err(TlsError::Malformed);
        }
        Ok(Some(length + HANDSHAKE_HEADER))
    }
}

/// The length that a record header announces, when it is complete; each byte is checked as soon as it is there.
fn record_header(bytes: &[u8]) -> Result<Option<usize>, TlsError> {
    if bytes.first().is_some_and(|&kind| kind != HANDSHAKE)
        || bytes.get(1).is_some_and(|&major| major != 3)
    {
        return Err(TlsError::NotHandshake);
    }
    let [_, _, _, high, low, ..] = bytes else {
        return Ok(None);
    };
    match usize::from(*high) << 8 | usize::from(*low) {
        length @ 1..=MAX_RECORD => Ok(Some(length)),
        _ => Err(TlsError::RecordLength),
    }
}
