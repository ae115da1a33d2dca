//! What WebSocket visitors send: sound and unsound frames (RFC 6455, RFC 7692), masked and cut as a seed says.

use std::fmt::Write;

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

    fn handshakes(&mut self) {
        for (name, more) in [
            ("protocol", "Sec-WebSocket-Protocol: chat, superchat\r\n"),
            ("origin", "Origin: http://example.com\r\n"),
            (
                "offer-unknown",
                "Sec-WebSocket-Extensions: x-unknown; a=b\r\n",
            ),
            (
                "offer-odd",
                "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99\r\n",
            ),
            (
                "offer-bits",
                "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=10\r\n",
            ),
            (
                "offer-no-takeover",
                "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n",
            ),
        ] {
            self.add(format!("handshake-{name}"), &[text(b"hello"), close(1000)]);
            self.last().handshake = handshake(more);
        }
        // Those the server refuses.
        for (name, from, to) in [
            ("version", "Version: 13", "Version: 12"),
            ("key", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""),
            ("key-short", "dGhlIHNhbXBsZSBub25jZQ==", "dGhl"),
        ] {
            self.add(format!("refused-{name}"), &[]);
            let case = self.last();
            case.handshake = case
                .handshake
                .replace(from, to)
                .replace("Connection: Upgrade", "Connection: close, Upgrade");
        }
    }

    fn messages(&mut self) {
        for size in [
            0,
            1,
            125,
            126,
            127,
            128,
            1000,
            65_535,
            65_536,
            65_537,
            1 << 18,
            1 << 20,
            4 << 20,
            16 << 20,
        ] {
            for (kind, opcode) in [("text", 1), ("binary", 2)] {
                self.add(
                    format!("{kind}-{size}"),
                    &[frame(opcode, &vec![b'*'; size]), close(1000)],
                );
            }
        }
        for size in [1, 125, 126, 65_536] {
            for cut in [1, 7, 1460] {
                let cut = if size > 1000 { cut * 997 } else { cut };
                self.add_cut(
                    format!("text-{size}-in-{cut}"),
                    &[text(&vec![b'*'; size]), close(1000)],
                    cut,
                );
            }
        }
        for mask in [
            [0, 0, 0, 0],
            [255, 255, 255, 255],
            [0, 1, 2, 3],
            [10, 13, 10, 13],
        ] {
            let masked = |frame: Frame| Frame {
                mask: Some(Some(mask)),
                ..frame
            };
            self.add(
                format!("mask-{mask:?}"),
                &[masked(text(b"hello")), masked(close(1000))],
            );
        }
        let many: Vec<Frame> = (0..500)
            .map(|n| text(format!("message {n}").as_bytes()))
            .chain([close(1000)])
            .collect();
        self.add("many-messages", &many);
        self.add_cut("many-messages-cut", &many, 333);
        self.add("breaks-off", &[text(b"hello")]);
        self.last().breaks_off = true;
        self.add("breaks-off-within", &[text(&[b'*'; 100])]);
        let case = self.last();
        case.pieces[0].truncate(50);
        case.breaks_off = true;
    }

    fn pings(&mut self) {
        for (name, payload) in [
            ("empty", &b""[..]),
            ("text", b"hello"),
            ("binary", &[0, 255, 254, 253, 0]),
            ("longest", &[254; 125]),
        ] {
            self.add(format!("ping-{name}"), &[frame(9, payload), close(1000)]);
            self.add_cut(
                format!("ping-{name}-cut"),
                &[frame(9, payload), close(1000)],
                1,
            );
            self.add(
                format!("pong-{name}"),
                &[frame(10, payload), frame(9, b"x"), close(1000)],
            );
        }
        self.add("ping-too-long", &[frame(9, &[254; 126])]);
        self.add("pong-too-long", &[frame(10, &[254; 126])]);
        let ten: Vec<Frame> = (0..10)
            .map(|n| frame(9, &[n]))
            .chain([close(1000)])
            .collect();
        self.add("pings", &ten);
        self.add_cut("pings-cut", &ten, 1);
    }

    fn broken_frames(&mut self) {
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

    fn fragments(&mut self) {
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

    fn utf8(&mut self) {
        let sound: [&[u8]; 8] = [
            "κόσμε".as_bytes(),
            "\u{0}".as_bytes(),
            "\u{7FF}\u{800}\u{FFFF}\u{10000}\u{10FFFF}".as_bytes(),
            "\u{FFFD}\u{FFFE}".as_bytes(),
            "\u{D7FF}\u{E000}".as_bytes(),
            "\u{7F}\u{80}".as_bytes(),
            "Hello-µ@ßöäüàá-UTF-8!!".as_bytes(),
            "\u{1FFFF}\u{2FFFE}".as_bytes(),
        ];
        for (n, bytes) in sound.into_iter().enumerate() {
            self.add(format!("utf8-{n}"), &[text(bytes), close(1000)]);
            // Between any two bytes.
            let parts = bytes.len();
            let part = |n: usize| Frame {
                end: n + 1 == parts,
                opcode: u8::from(n == 0),
                ..frame(0, &bytes[n..=n])
            };
            let frames: Vec<Frame> = (0..parts).map(part).chain([close(1000)]).collect();
            self.add_cut(format!("utf8-{n}-split"), &frames, 3);
        }
        let broken: [&[u8]; 22] = [
            b"\x80",
            b"\xbf",
            b"\xc0\xaf",
            b"\xc1\xbf",
            b"\xc2",
            b"\xe0\x80\xaf",
            b"\xe0\x9f\xbf",
            b"\xe1\x80",
            b"\xed\xa0\x80",
            b"\xed\xbf\xbf",
            b"\xed\xa0\x80\xed\xb0\x80",
            b"\xf0\x80\x80\xaf",
            b"\xf0\x8f\xbf\xbf",
            b"\xf0\x90\x80",
            b"\xf4\x90\x80\x80",
            b"\xf5\x80\x80\x80",
            b"\xf8\x88\x80\x80\x80",
            b"\xfc\x84\x80\x80\x80\x80",
            b"\xfe",
            b"\xff",
            b"good\xffgood",
            b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited",
        ];
        for (n, bytes) in broken.into_iter().enumerate() {
            self.add(format!("utf8-broken-{n}"), &[text(b"before"), text(bytes)]);
            let (head, tail) = bytes.split_at(bytes.len() / 2);
            self.add(
                format!("utf8-broken-{n}-fragments"),
                &[
                    Frame {
                        end: false,
                        ..text(head)
                    },
                    frame(0, tail),
                ],
            );
            self.add(
                format!("utf8-broken-{n}-binary"),
                &[frame(2, bytes), close(1000)],
            );
            let reason = [&1000u16.to_be_bytes()[..], bytes].concat();
            self.add(format!("utf8-broken-{n}-reason"), &[frame(8, &reason)]);
        }
    }

    fn closing(&mut self) {
        for code in [
            1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999,
            4000, 4999, 0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535,
        ] {
            self.add(format!("close-{code}"), &[text(b"before"), close(code)]);
        }
        self.add("close-empty", &[frame(8, b"")]);
        self.add("close-one-byte", &[frame(8, b"\x03")]);
        for (name, length) in [
            ("reason", 5),
            ("reason-longest", 123),
            ("reason-too-long", 124),
        ] {
            self.add(
                format!("close-{name}"),
                &[frame(
                    8,
                    &[&1000u16.to_be_bytes()[..], &vec![b'*'; length]].concat(),
                )],
            );
        }
        self.add("close-twice", &[close(1000), close(1000)]);
        self.add("close-then-text", &[close(1000), text(b"late")]);
        self.add("close-then-ping", &[close(1000), frame(9, b"late")]);
        self.add_cut("close-cut", &[frame(8, b"\x03\xe8reason")], 1);
        self.add(
            "close-behind-large",
            &[text(&vec![b'*'; 256 << 10]), close(1000)],
        );
    }

    fn compression(&mut self) {
        let offer =
            handshake("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n");
        let packed = |bytes: &[u8]| Frame {
            bits: 4,
            ..text(&stored(bytes))
        };
        let split = |bytes: &[u8]| {
            let all = stored(bytes);
            let (head, tail) = all.split_at(all.len() / 2);
            vec![
                Frame {
                    bits: 4,
                    end: false,
                    ..text(head)
                },
                frame(9, b"x"),
                frame(0, tail),
                close(1000),
            ]
        };
        let cases: Vec<(&str, Vec<Frame>)> = vec![
            ("plain", vec![text(b"hello"), close(1000)]),
            ("hello", vec![packed(b"hello"), close(1000)]),
            ("empty", vec![packed(b""), close(1000)]),
            (
                "twice",
                vec![
                    packed(b"hello hello hello"),
                    packed(b"hello hello hello"),
                    close(1000),
                ],
            ),
            ("large", vec![packed(&vec![b'*'; 60_000]), close(1000)]),
            (
                "varied",
                vec![
                    packed(
                        &(0..60_000u32)
                            .map(|n| b'a' + (n.wrapping_mul(n) % 23) as u8)
                            .collect::<Vec<u8>>(),
                    ),
                    close(1000),
                ],
            ),
            ("fragments", split(b"hello in two fragments")),
            (
                "in-second-fragment",
                vec![
                    Frame {
                        end: false,
                        ..text(b"a")
                    },
                    Frame {
                        bits: 4,
                        ..frame(0, b"b")
                    },
                ],
            ),
            (
                "on-ping",
                vec![Frame {
                    bits: 4,
                    ..frame(9, b"x")
                }],
            ),
            (
                "broken",
                vec![Frame {
                    bits: 4,
                    ..text(b"\xff\xff\xff\xff")
                }],
            ),
            (
                "reserved-2",
                vec![Frame {
                    bits: 6,
                    ..text(&stored(b"hello"))
                }],
            ),
            ("utf8-broken", vec![packed(b"\xff")]),
        ];
        for (name, frames) in cases {
            self.add(format!("deflate-{name}"), &frames);
            self.last().handshake.clone_from(&offer);
            self.add_cut(format!("deflate-{name}-cut"), &frames, 100);
            self.last().handshake.clone_from(&offer);
        }
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

#[derive(Clone, Debug)]
struct Frame {
    end: bool,
    /// RSV1 to RSV3.
    bits: u8,
    opcode: u8,
    /// `Some(None)`: any. `None`: not masked, which a visitor must not do.
    mask: Option<Option<[u8; 4]>>,
    payload: Vec<u8>,
}

fn frame(opcode: u8, payload: &[u8]) -> Frame {
    Frame {
        end: true,
        bits: 0,
        opcode,
        mask: Some(None),
        payload: payload.to_vec(),
    }
}

fn text(payload: &[u8]) -> Frame {
    frame(1, payload)
}

fn close(code: u16) -> Frame {
    frame(8, &code.to_be_bytes())
}

impl Frame {
    fn bytes(&self, random: &mut Random) -> Vec<u8> {
        let masked = if self.mask.is_some() { 128 } else { 0 };
        let mut out = vec![u8::from(self.end) << 7 | self.bits << 4 | self.opcode];
        match self.payload.len() {
            short @ 0..126 => out.push(masked | short as u8),
            middle @ 126..65_536 => {
                out.push(masked | 126);
                out.extend_from_slice(&(middle as u16).to_be_bytes());
            }
            long => {
                out.push(masked | 127);
                out.extend_from_slice(&(long as u64).to_be_bytes());
            }
        }
        let Some(mask) = self.mask else {
            out.extend_from_slice(&self.payload);
            return out;
        };
        let mask = mask.unwrap_or_else(|| (random.next() as u32).to_be_bytes());
        out.extend_from_slice(&mask);
        out.extend(
            self.payload
                .iter()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        out
    }
}

/// A message in one stored block of DEFLATE (RFC 1951 §3.2.4), as RFC 7692 §7.2.1 has it: without the end of the flush. At most 65,535 bytes.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("one block");
    let mut out = vec![0];
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(bytes);
    out.push(0);
    out
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
