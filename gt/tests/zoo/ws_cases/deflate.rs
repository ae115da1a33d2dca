//! Compressed messages (RFC 7692).

use super::{
    List,
    frame::{Frame, close, frame, text},
    handshake,
};

impl List {
    pub(super) fn compression(&mut self) {
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
