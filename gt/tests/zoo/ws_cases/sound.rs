//! What every server has to understand: handshakes, messages of all sizes, pings.

use super::{
    List,
    frame::{Frame, close, frame, text},
    handshake,
};

impl List {
    pub(super) fn handshakes(&mut self) {
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

    pub(super) fn messages(&mut self) {
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

    pub(super) fn pings(&mut self) {
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
}
