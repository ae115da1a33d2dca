//! What is said: UTF-8, sound and broken, and the codes of a close.

use super::{
    List,
    frame::{Frame, close, frame, text},
};

impl List {
    pub(super) fn utf8(&mut self) {
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

    pub(super) fn closing(&mut self) {
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
}
