//! Fuzz checks of gt's own mode of crate `kcp`: strangers' datagrams at a listener and at a client that connects, and frames of a hostile
//! peer that has the keys.
//!
//! The first byte of an input chooses what is checked; the rest is a list of pieces, each behind its length: two bytes, little-endian.

use std::{net::SocketAddr, time::Duration};

use kcp::{
    MTU_MAX, Time,
    secure::{
        Connecting, Gate, GateLimits, INITIATE_LEN, Options, PacketKind, Reply, Session, receiver,
    },
};

/// Runs one input; panics on a finding.
pub fn check(data: &[u8]) {
    let Some((&what, data)) = data.split_first() else {
        return;
    };
    match what % 3 {
        0 => check_strangers(data),
        1 => check_connecting(data),
        _ => check_peer(what / 3, data),
    }
}

/// Nothing that a stranger sends is answered with more, and nothing is kept without a cookie.
fn check_strangers(data: &[u8]) {
    let (mut gate, mut now) = (gate(), Time::ZERO);
    for (i, piece) in pieces(data).enumerate() {
        // Initiates are of one length only.
        let mut datagram = piece.to_vec();
        if PacketKind::of(piece) == Some(PacketKind::Initiate) {
            datagram.resize(INITIATE_LEN, 0);
        }
        if let Some(id) = receiver(&datagram) {
            assert!(gate.confirm(now, from(), id, &mut datagram).is_none());
        }
        match gate.handle_handshake(now, from(), &datagram, false, |bytes| bytes.fill(i as u8)) {
            Reply::Send(reply) => assert!(reply.len() < datagram.len()),
            Reply::Ignore => {}
        }
        assert_eq!(gate.half_open(), 0);
        now = now + Duration::from_millis(100);
    }
}

/// A client that waits for an answer believes none that is not right.
fn check_connecting(data: &[u8]) {
    let mut connecting = connecting();
    let mut now = Time::ZERO;
    for piece in pieces(data) {
        if let Some(datagram) = connecting.poll_transmit(now) {
            assert_eq!(datagram.len(), INITIATE_LEN);
        }
        match connecting.handle_datagram(now, piece) {
            Ok(session) => assert!(session.is_none()),
            Err(_) => return,
        }
        now = now + Duration::from_millis(300);
    }
}

/// A peer that has the keys and sends what it likes: bounds hold, and time goes on.
fn check_peer(admitted: u8, data: &[u8]) {
    let Some((mut peer, mut session)) = pair() else {
        panic!("no session");
    };
    if admitted & 1 == 1 {
        session.admit();
    }
    let (mut now, mut out) = (Time::from_millis(10), [0; MTU_MAX]);
    session.write(now, &[7; 5000]);
    for piece in pieces(data) {
        let frames = &piece[..piece.len().min(1400)];
        let Some(mut datagram) = peer.seal_frames(frames) else {
            continue;
        };
        let _ = session.handle_datagram(now, from(), &mut datagram);
        session.handle_timeout(now);
        let mut sent = 0;
        while let Some(made) = session.poll_transmit(now, &mut out) {
            assert!(made.length <= session.mtu());
            sent += 1;
            assert!(sent < 5000, "one datagram makes no flood");
        }
        assert!(session.readable() <= 4096 * MTU_MAX);
        if frames.len() % 3 == 0 {
            session.read(&mut [0; 4096]);
        }
        if session.end().is_none() {
            let due = session
                .poll_timeout()
                .expect("a session that goes on has a deadline");
            now = due.max(now).min(now + Duration::from_millis(50));
        } else {
            assert!(session.farewell().is_none_or(|words| words.len() <= 64));
        }
    }
}

/// The pieces of an input; the last one takes what is left.
fn pieces(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        data = rest;
        Some(piece)
    })
}

fn from() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 5))
}

fn gate() -> Gate {
    Gate::new(0, Options::default(), GateLimits::default(), &[3; 32])
}

fn connecting() -> Connecting {
    let to = SocketAddr::from(([10, 0, 0, 1], 1));
    Connecting::new(Time::ZERO, to, Options::default(), &[9; 72]).expect("a key")
}

/// A client's end and a server's, after the handshake.
fn pair() -> Option<(Session, Session)> {
    let (mut gate, mut connecting, now) = (gate(), connecting(), Time::ZERO);
    let mut client = loop {
        let datagram = connecting.poll_transmit(now)?.to_vec();
        let reply = gate.handle_handshake(now, from(), &datagram, false, |bytes| bytes.fill(5));
        let Reply::Send(reply) = reply else {
            return None;
        };
        if let Ok(Some(session)) = connecting.handle_datagram(now, &reply) {
            break session;
        }
    };
    let mut first = [0; MTU_MAX];
    let made = client.poll_transmit(now, &mut first)?;
    let datagram = &mut first[..made.length];
    let server = gate.confirm(now, from(), receiver(datagram)?, datagram)?;
    Some((client, server))
}
