//! As much of HTTP/3 (RFC 9114) as a load needs: requests as bytes made once, and a reader that lets nothing pass but the answer that is expected. It does little, so
//! that the load is not what limits a measurement.

use anyhow::{Result, bail, ensure};

use super::FILLING;

/// A control stream with empty settings (§6.2.1, §7.2.4).
pub(super) const CONTROL: [u8; 3] = [0x00, 0x04, 0x00];

/// A request's HEADERS frame. `method` is an index of QPACK's static table (RFC 9204 Appendix A).
pub(super) fn request(method: u8, path: &str) -> Vec<u8> {
    let mut section = vec![0, 0, 0xc0 | method, 0xc0 | HTTPS];
    for (name, value) in [(AUTHORITY, "localhost"), (PATH, path)] {
        section.push(0x50 | name);
        section.push(u8::try_from(value.len()).unwrap_or(0x7e) & 0x7f);
        section.extend_from_slice(value.as_bytes());
    }
    let mut frame = vec![HEADERS];
    varint(&mut frame, section.len() as u64);
    frame.extend_from_slice(&section);
    frame
}

/// The head of a DATA frame for a body of `length` bytes.
pub(super) fn data_head(length: u64) -> Vec<u8> {
    let mut head = vec![DATA];
    varint(&mut head, length);
    head
}

pub(super) const GET: u8 = 17;
pub(super) const PUT: u8 = 21;
const HTTPS: u8 = 23;
const AUTHORITY: u8 = 0;
const PATH: u8 = 1;
/// Status 200 as an indexed field.
const OK: u8 = 0xc0 | 25;

const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// Reads a response: a head with status 200, then a body.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// A frame's head that is not complete, or a HEADERS frame's content.
    held: Vec<u8>,
    at: At,
    headed: bool,
    /// Bytes of the body so far.
    pub(super) length: u64,
    /// The body, if it is short and not made of filling.
    pub(super) text: Vec<u8>,
}

#[derive(Debug, Default)]
enum At {
    #[default]
    Frame,
    Head(usize),
    Data(u64),
    Skip(u64),
}

impl Answer {
    /// Ready for another.
    pub(super) fn clear(&mut self) {
        (self.at, self.headed, self.length) = (At::Frame, false, 0);
        self.held.clear();
        self.text.clear();
    }

    /// Takes the next bytes.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match &mut self.at {
                At::Frame => {
                    self.held.push(bytes[0]);
                    bytes = &bytes[1..];
                    if let Some((kind, length)) = frame(&self.held) {
                        self.held.clear();
                        self.begin(kind, length)?;
                    }
                }
                At::Head(left) => {
                    let (now, rest) = bytes.split_at(bytes.len().min(*left));
                    self.held.extend_from_slice(now);
                    *left -= now.len();
                    bytes = rest;
                    if *left == 0 {
                        // Required insert count and base, then the status: nothing may come before it (RFC 9114 §4.3).
                        ensure!(self.held.get(2) == Some(&OK), "status is not 200");
                        self.held.clear();
                        (self.headed, self.at) = (true, At::Frame);
                    }
                }
                At::Data(left) => {
                    let n = bytes
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let (now, rest) = bytes.split_at(n);
                    *left -= n as u64;
                    if *left == 0 {
                        self.at = At::Frame;
                    }
                    if now[0] != FILLING && self.length < 20 {
                        self.text.extend_from_slice(now);
                    }
                    self.length += n as u64;
                    bytes = rest;
                }
                At::Skip(left) => {
                    let n = bytes
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= n as u64;
                    if *left == 0 {
                        self.at = At::Frame;
                    }
                    bytes = &bytes[n..];
                }
            }
        }
        Ok(())
    }

    /// The stream has ended: so must have the message.
    pub(super) fn end(&self) -> Result<()> {
        let whole = self.headed && self.held.is_empty() && matches!(self.at, At::Frame);
        ensure!(whole, "the answer is not complete");
        Ok(())
    }

    fn begin(&mut self, kind: u64, length: u64) -> Result<()> {
        self.at = match u8::try_from(kind) {
            Ok(HEADERS) if !self.headed && (3..4096).contains(&length) => At::Head(length as usize),
            Ok(DATA) if self.headed && length > 0 => At::Data(length),
            Ok(DATA) if self.headed => At::Frame,
            Ok(HEADERS | DATA) => bail!("a frame out of place"),
            _ if length > 0 => At::Skip(length),
            _ => At::Frame,
        };
        Ok(())
    }
}

fn frame(bytes: &[u8]) -> Option<(u64, u64)> {
    let (kind, used) = read(bytes)?;
    let (length, _) = read(bytes.get(used..)?)?;
    Some((kind, length))
}

/// RFC 9000 §16.
fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let rest = bytes.get(1..length)?;
    let fold = |value, byte: &u8| (value << 8) | u64::from(*byte);
    Some((rest.iter().fold(u64::from(first & 0x3f), fold), length))
}

fn varint(into: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x3f => into.push(value as u8),
        0x40..=0x3fff => into.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => {
            into.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes());
        }
        _ => into.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(portions: &[&[u8]]) -> Result<(u64, Vec<u8>)> {
        let mut answer = Answer::default();
        for portion in portions {
            answer.take(portion)?;
        }
        answer.end()?;
        Ok((answer.length, answer.text))
    }

    #[test]
    fn an_answer_is_read_in_any_portions() {
        let bytes = [
            &[HEADERS, 4, 0, 0, OK, 0xd9, DATA, 3][..],
            b"xxx",
            &[0x21, 1, 7, DATA, 1],
            b"x",
        ]
        .concat();
        for cut in 0..bytes.len() {
            let (one, two) = bytes.split_at(cut);
            assert_eq!(judged(&[one, two]).unwrap(), (4, vec![]));
        }
        let number = [&[HEADERS, 3, 0, 0, OK, DATA, 2][..], b"17"].concat();
        assert_eq!(judged(&[&number]).unwrap(), (2, b"17".to_vec()));
    }

    #[test]
    fn what_is_no_whole_good_answer_is_refused() {
        for bad in [
            &[HEADERS, 3, 0, 0, 0xc0 | 27][..],
            &[HEADERS, 3, 0, 0, OK, DATA, 3, FILLING],
            &[DATA, 1, FILLING],
            &[HEADERS, 3, 0, 0],
            &[],
        ] {
            assert!(judged(&[bad]).is_err(), "{bad:?}");
        }
    }
}
