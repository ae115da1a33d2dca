//! Text from a peer that people will read in a log or a terminal: bounded and printable, whatever was sent.

use std::fmt;

use crate::error::DecodeError;

/// At most `MAX` bytes of UTF-8 without control characters and without marks that reorder or hide text.
///
/// Making one never fails: what is not printable becomes `?`, and what is too long is cut at a character.
#[derive(Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Text<const MAX: usize>(Box<str>);

/// A sentence for a person: 256 bytes.
pub type Message = Text<256>;

/// A short name: 64 bytes.
pub type Name = Text<64>;

impl<const MAX: usize> Text<MAX> {
    /// Takes what is printable of `text`, up to `MAX` bytes.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut kept = String::with_capacity(text.len().min(MAX));
        for c in text.chars() {
            let c = if is_printable(c) { c } else { '?' };
            if kept.len() + c.len_utf8() > MAX {
                break;
            }
            kept.push(c);
        }
        Self(kept.into_boxed_str())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A field of a peer's message. Too long or not UTF-8 is an error; unprintable characters are replaced.
    pub(crate) fn from_wire(field: &'static str, value: &[u8]) -> Result<Self, DecodeError> {
        if value.len() > MAX {
            return Err(DecodeError::Invalid {
                field,
                why: "too long",
            });
        }
        let text = std::str::from_utf8(value).map_err(|_| DecodeError::Invalid {
            field,
            why: "not UTF-8",
        })?;
        Ok(Self::new(text))
    }
}

impl<const MAX: usize> From<&str> for Text<MAX> {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl<const MAX: usize> fmt::Display for Text<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const MAX: usize> fmt::Debug for Text<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// What a foreign peer answered, fit for one line of a log: the first line of at most 64 bytes.
pub(crate) fn snippet(bytes: &[u8]) -> String {
    if let [0x14..=0x17, 0x03, ..] = bytes {
        return "a TLS record (is this a TLS port?)".to_owned();
    }
    let end = bytes.len().min(64);
    let line = bytes[..end]
        .split(|b| matches!(b, b'\r' | b'\n'))
        .next()
        .unwrap_or_default();
    if !line.is_empty() && line.iter().all(|b| matches!(b, 0x20..=0x7E)) {
        return format!("{:?}", String::from_utf8_lossy(line));
    }
    let mut text = String::from("bytes");
    for b in &bytes[..bytes.len().min(16)] {
        text.push_str(&format!(" {b:02x}"));
    }
    text
}

/// Control characters could drive a terminal; the others reorder, hide or split lines (Unicode bidi controls, zero-width
/// characters, line separators, the tag block).
fn is_printable(c: char) -> bool {
    !(c.is_control()
        || matches!(
            c,
            '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
                | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}'
        ))
}
