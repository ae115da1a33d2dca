//! What WebSocket visitors send: sound and unsound frames (RFC 6455, RFC 7692), masked and cut as a seed says.

mod deflate;
mod frame;
mod frames;
mod sound;
mod words;

use std::fmt::Write;

use frame::{Frame, Random, close, frame, text};

/// A visit.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) handshake: String,
    /// Written one after the other.
    pub(crate) pieces: Vec<Vec<u8>>,
    /// The visitor ends its direction behind the last piece.
    pub(crate) breaks_off: bool,
}

/// All of them, with so many at random.
pub(crate) fn all(seed: u64, random: usize) -> Vec<Case> {
    let mut list = List {
        random: Random(seed | 1),
        cases: Vec::new(),
    };
    list.handshakes();
    list.messages();
    list.pings();
    list.broken_frames();
    list.fragments();
    list.utf8();
    list.closing();
    list.compression();
    for n in 0..random {
        list.at_random(seed, n);
    }
    list.cases
}

struct List {
    random: Random,
    cases: Vec<Case>,
}

impl List {
    /// Frames as given, in one piece.
    fn add(&mut self, name: impl Into<String>, frames: &[Frame]) {
        self.add_cut(name, frames, usize::MAX);
    }

    /// Frames in pieces of so many bytes.
    fn add_cut(&mut self, name: impl Into<String>, frames: &[Frame], size: usize) {
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|frame| frame.bytes(&mut self.random))
            .collect();
        self.cases.push(Case {
            name: name.into(),
            handshake: handshake(""),
            pieces: bytes.chunks(size.max(1)).map(<[u8]>::to_vec).collect(),
            breaks_off: false,
        });
    }

    fn last(&mut self) -> &mut Case {
        self.cases.last_mut().expect("a case")
    }

    /// Sound frames, then perhaps an unsound one, which ends it; cut at random.
    fn at_random(&mut self, seed: u64, n: usize) {
        let mut frames = Vec::new();
        let mut open = false;
        for _ in 0..self.random.below(30) {
            let length = [0, 3, 100, 126, 5000, 70_000][self.random.below(6)];
            let payload: Vec<u8> = (0..length)
                .map(|_| b' ' + self.random.below(90) as u8)
                .collect();
            let end = self.random.below(2) == 0;
            if self.random.below(4) == 0 {
                let opcode = 9 + self.random.below(2) as u8;
                frames.push(frame(opcode, &payload[..payload.len().min(125)]));
            } else {
                let opcode = if open {
                    0
                } else {
                    1 + self.random.below(2) as u8
                };
                open = !end;
                frames.push(Frame {
                    end,
                    ..frame(opcode, &payload)
                });
            }
        }
        frames.push(match self.random.below(4) {
            0 => Frame {
                bits: 1 + self.random.below(7) as u8,
                ..text(b"bad")
            },
            1 => frame(3 + self.random.below(5) as u8, b"bad"),
            _ => close(1000 + self.random.below(15) as u16),
        });
        let cut = 1 + self.random.below(20_000);
        self.add_cut(format!("random-{seed}-{n}"), &frames, cut);
    }
}

fn handshake(more: &str) -> String {
    let mut out = String::from(
        "GET /socket HTTP/1.1\r\nHost: zoo.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    );
    let _ = write!(
        out,
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    );
    out
}
