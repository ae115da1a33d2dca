//! Fuzz checks of the WebSocket unframer of crate `net`: whatever a peer sends and however it is split, nothing panics, the same bytes
//! come out, and what was framed here is found again.

use std::io::IoSlice;

use net::ws::frame::{BINARY, Control, Role, Unframer, Violation, build};

/// Runs one input; panics on a finding. The first byte chooses the role and a way to split, the rest is what the peer sends.
pub fn check(data: &[u8]) {
    let Some((choice, sent)) = data.split_first() else {
        return;
    };
    let role = if choice & 1 == 0 {
        Role::Server
    } else {
        Role::Client
    };
    let whole = unframe(role, sent, usize::MAX);
    for piece in [1, 2, 7, usize::from(choice >> 1) + 1] {
        assert_eq!(unframe(role, sent, piece), whole, "in pieces of {piece}");
    }
    round_trip(sent, usize::from(*choice) + 1);
}

/// All that was heard of a peer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    payload: Vec<u8>,
    pings: Vec<Vec<u8>>,
    closed: bool,
    violation: Option<Violation>,
}

fn unframe(role: Role, sent: &[u8], piece: usize) -> Heard {
    let mut unframer = Unframer::new(role);
    let mut heard = Heard::default();
    for piece in sent.chunks(piece.min(sent.len().max(1))) {
        let mut bytes = piece.to_vec();
        let stripped = unframer.strip(&mut bytes, |Control::Ping(data)| {
            assert!(data.len() <= 125);
            heard.pings.push(data.to_vec());
        });
        let (length, violation) = match stripped {
            Ok(length) => (length, None),
            Err((length, violation)) => (length, Some(violation)),
        };
        assert!(length <= piece.len(), "more payload than bytes");
        assert!(!heard.closed || length == 0, "payload after Close");
        heard.payload.extend_from_slice(&bytes[..length]);
        heard.closed = unframer.closed();
        heard.violation = violation;
        // A stream asks no more after that.
        if violation.is_some() {
            break;
        }
    }
    heard
}

/// Frames of either role come out as they went in at the other.
fn round_trip(data: &[u8], payload: usize) {
    for (from, to) in [(Role::Client, Role::Server), (Role::Server, Role::Client)] {
        let mut framed = Vec::new();
        for piece in data.chunks(payload) {
            let mut frame = vec![0; piece.len() + 14];
            // In two parts, as a vectored write may be.
            let (head, tail) = piece.split_at(piece.len() / 3);
            let parts = [IoSlice::new(head), IoSlice::new(tail)];
            let length = build(&mut frame, from, BINARY, &parts, piece.len());
            framed.extend_from_slice(&frame[..length]);
        }
        for piece in [1, 13, usize::MAX] {
            let heard = unframe(to, &framed, piece);
            let expected = Heard {
                payload: data.to_vec(),
                ..Heard::default()
            };
            assert_eq!(heard, expected, "in pieces of {piece}");
        }
    }
}
