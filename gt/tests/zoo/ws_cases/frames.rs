//! Frames that break a rule, and messages in several frames.

use super::{
    List,
    frame::{Frame, close, frame, text},
};

impl List {
    pub(super) fn broken_frames(&mut self) {
        for bits in 1..8 {
            for (kind, good) in [
                ("text", text(b"hello")),
                ("ping", frame(9, b"x")),
                ("close", close(1000)),
                ("empty", text(b"")),
            ] {
                let bad = Frame { bits, ..good };
                self.add(format!("reserved-{bits}-{kind}"), &[text(b"before"), bad]);
            }
        }
        for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
            self.add(
                format!("opcode-{opcode}"),
                &[text(b"before"), frame(opcode, b"hello")],
            );
            self.add(format!("opcode-{opcode}-empty"), &[frame(opcode, b"")]);
        }
        self.add(
            "unmasked",
            &[
                text(b"before"),
                Frame {
                    mask: None,
                    ..text(b"hello")
                },
            ],
        );
        self.add(
            "unmasked-close",
            &[Frame {
                mask: None,
                ..close(1000)
            }],
        );
        for (name, head) in [
            ("length-16-small", &[0x81, 0xFE, 0, 5][..]),
            ("length-64-small", &[0x81, 0xFF, 0, 0, 0, 0, 0, 0, 0, 5]),
            (
                "length-highest-bit",
                &[0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 5],
            ),
            ("length-beyond-limit", &[0x82, 0xFF, 0, 0, 1, 0, 0, 0, 0, 5]),
        ] {
            self.add(name, &[]);
            let sent = [
                head,
                &[0, 0, 0, 0],
                b"hello",
                &[0x88, 0x82, 0, 0, 0, 0, 3, 232],
            ]
            .concat();
            let whole = if name.ends_with("small") {
                sent.len()
            } else {
                head.len() + 4
            };
            self.last().pieces = vec![sent[..whole].to_vec()];
        }
    }

    pub(super) fn fragments(&mut self) {
        let (first, more, last) = (
            |bytes: &[u8]| Frame {
                end: false,
                ..text(bytes)
            },
            |bytes: &[u8]| Frame {
                end: false,
                ..frame(0, bytes)
            },
            |bytes: &[u8]| frame(0, bytes),
        );
        let ping = frame(9, b"ping");
        let all: &[(&str, Vec<Frame>)] = &[
            ("two", vec![first(b"frag"), last(b"ment"), close(1000)]),
            (
                "ping-between",
                vec![first(b"frag"), ping.clone(), last(b"ment"), close(1000)],
            ),
            (
                "pong-between",
                vec![first(b"frag"), frame(10, b"x"), last(b"ment"), close(1000)],
            ),
            ("empty", vec![first(b""), more(b""), last(b""), close(1000)]),
            (
                "empty-but-middle",
                vec![first(b""), more(b"middle"), last(b""), close(1000)],
            ),
            ("close-between", vec![first(b"frag"), close(1000)]),
            (
                "ping-fragmented",
                vec![
                    Frame {
                        end: false,
                        ..ping.clone()
                    },
                    last(b"x"),
                ],
            ),
            (
                "close-fragmented",
                vec![Frame {
                    end: false,
                    ..close(1000)
                }],
            ),
            ("nothing-to-continue", vec![last(b"x")]),
            ("nothing-to-continue-open", vec![more(b"x")]),
            ("nothing-after-whole", vec![text(b"whole"), last(b"x")]),
            ("text-between", vec![first(b"frag"), text(b"whole")]),
            ("binary-between", vec![first(b"frag"), frame(2, b"whole")]),
            ("second-first", vec![first(b"frag"), first(b"ment")]),
            (
                "reserved-in-second",
                vec![
                    first(b"frag"),
                    Frame {
                        bits: 4,
                        ..last(b"ment")
                    },
                ],
            ),
        ];
        for (name, frames) in all {
            self.add(format!("fragments-{name}"), frames);
            self.add_cut(format!("fragments-{name}-cut"), frames, 1);
        }
        for (size, total) in [(1, 1000), (64, 1 << 16), (4096, 1 << 20), (65_536, 4 << 20)] {
            let count = total / size;
            let part = |n: usize| Frame {
                end: n + 1 == count,
                opcode: if n == 0 { 2 } else { 0 },
                ..frame(2, &vec![n as u8; size])
            };
            let frames: Vec<Frame> = (0..count).map(part).chain([close(1000)]).collect();
            self.add(format!("fragments-of-{size}"), &frames);
            let pinged: Vec<Frame> = frames
                .iter()
                .flat_map(|frame| [ping.clone(), frame.clone()])
                .collect();
            if count <= 1000 {
                self.add(format!("fragments-of-{size}-pinged"), &pinged);
            }
        }
    }
}
