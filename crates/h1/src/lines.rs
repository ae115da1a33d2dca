//! Lines of a head as they arrive: each byte is looked at once, however small the pieces are that it comes in.

use crate::error::FieldError;

/// What a message may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Start line and fields together, with their line ends, in bytes.
    pub head: usize,
    /// Number of fields.
    pub fields: usize,
    /// Length of a request target in bytes.
    pub target: usize,
}

impl Default for Limits {
    /// 16 KiB, 100 fields, and a target of 8 KiB.
    fn default() -> Self {
        Self {
            head: 16 << 10,
            fields: 100,
            target: 8 << 10,
        }
    }
}

/// How far a head has been read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Where the line begins that is not complete.
    pub(crate) line: usize,
    /// Up to here no line end was found.
    searched: usize,
}

impl Progress {
    /// The next line without its CRLF, or `None` until it has all arrived.
    pub(crate) fn next<'b>(
        &mut self,
        bytes: &'b [u8],
        limits: &Limits,
    ) -> Result<Option<(usize, &'b [u8])>, FieldError> {
        let from = self.searched.max(self.line);
        let Some(found) = memchr::memchr(b'\n', &bytes[from..]) else {
            self.searched = bytes.len();
            if bytes.len() >= limits.head {
                return Err(FieldError::TooLong);
            }
            return Ok(None);
        };
        let end = from + found;
        if end >= limits.head {
            return Err(FieldError::TooLong);
        }
        let start = self.line;
        let line = &bytes[start..end];
        let Some(line) = line.strip_suffix(b"\r") else {
            return Err(FieldError::BareLf);
        };
        self.line = end + 1;
        self.searched = end + 1;
        Ok(Some((start, line)))
    }
}
