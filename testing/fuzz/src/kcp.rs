//! Fuzz checks of crate `kcp`: whatever a peer sends, a session neither panics nor outgrows its bounds, and what it accepts
//! by FEC is consistent with what was sent.
//!
//! The first byte of an input chooses options; the rest is a list of steps, each with a head that says what to do and how
//! many of the following bytes it takes.

use std::sync::Arc;

use kcp::{
    Config, Counters, MTU_MAX, Mode, Peek, Pipeline, Shards, Time,
    arq::{Conv, HEADER, Segments},
    fec::{Decoder, Encoder},
    seal::{Cipher, Seal},
};

const CONV: Conv = Conv(0x0403_0201);

/// Runs one input; panics on a finding.
pub fn check(data: &[u8]) {
    let Some((&options, data)) = data.split_first() else {
        return;
    };
    match options & 3 {
        0 => check_open(data),
        1 => check_recovery(data),
        _ => check_session(options, data),
    }
}

/// Every cipher refuses what it did not seal, without a panic; what passes for a body can be looked at.
fn check_open(data: &[u8]) {
    for cipher in Cipher::ALL {
        let seal = Seal::new(cipher, &[7; 32]).expect("a key of 32 bytes");
        let mut packet = data.to_vec();
        if let Ok(body) = seal.open(&mut packet) {
            let _ = Peek::of(body);
            for segment in Segments::new(body) {
                let Ok((_, payload)) = segment else { break };
                assert!(payload.len() + HEADER <= data.len());
            }
        }
    }
}

/// A session that takes hostile datagrams between its own work.
fn check_session(options: u8, mut data: &[u8]) {
    let fec = if options & 4 == 0 {
        None
    } else {
        Shards::new(1 + usize::from(options >> 6), 2).ok()
    };
    let config = Config {
        mode: if options & 8 == 0 {
            Mode::FAST3
        } else {
            Mode::CLASSIC
        },
        send_window: 16,
        recv_window: 16,
        mtu: 600,
        stream: options & 16 == 0,
        write_delay: options & 32 != 0,
        fec,
        ..Config::default()
    };
    let seal = Arc::new(Seal::new(Cipher::Null, &[]).expect("no key"));
    let mut session = Pipeline::new(CONV, config, seal, [0; 32]).expect("valid");
    let mut now = Time::from_millis(1000);
    while let [action, count, rest @ ..] = data {
        let (input, rest) = rest.split_at(rest.len().min(usize::from(*count)));
        data = rest;
        step(&mut session, &mut now, *action, input);
        check_bounds(&mut session, now);
    }
}

fn step(session: &mut Pipeline, now: &mut Time, action: u8, input: &[u8]) {
    match action % 8 {
        0 => {
            // Unopened: with the null cipher all bytes are the body.
            let _ = session.handle_datagram(*now, &mut input.to_vec());
        }
        1 => {
            // A segment with a sound conversation and length, and hostile fields.
            let mut segment = vec![0; HEADER];
            segment[..4].copy_from_slice(&CONV.0.to_le_bytes());
            segment[4] = 81 + action / 8 % 4;
            for (to, from) in segment[5..20].iter_mut().zip(input) {
                *to = *from;
            }
            let payload = input.get(15..).unwrap_or(&[]);
            segment[20..24].copy_from_slice(&(payload.len() as u32).to_le_bytes());
            segment.extend_from_slice(payload);
            let _ = session.handle_datagram(*now, &mut segment);
        }
        2 => {
            let _ = session.write(*now, input);
        }
        3 => {
            let _ = session.write_message(*now, &input.repeat(20));
        }
        4 => *now = *now + std::time::Duration::from_millis(u64::from(action) * input.len() as u64),
        5 => {
            session.read(&mut vec![0; input.len()]);
        }
        6 => {
            let _ = session.send_oob(input);
            let _ = session.read_message(&mut Vec::new());
        }
        _ => {
            // What it sent comes back to it.
            let mut out = [0; MTU_MAX];
            if let Some(length) = session.poll_transmit(*now, &mut out) {
                let _ = session.handle_datagram(*now, &mut out[..length]);
            }
        }
    }
    session.handle_timeout(*now);
}

fn check_bounds(session: &mut Pipeline, now: Time) {
    let mut out = [0; MTU_MAX];
    let mut sent = 0;
    while let Some(length) = session.poll_transmit(now, &mut out) {
        assert!(length <= session.config().mtu);
        sent += 1;
        // Acknowledgements of at most 4096 segments, two windows of data, parity, out-of-band messages.
        assert!(sent < 1000, "sending without end");
    }
    assert!(session.readable() <= 16 * MTU_MAX);
    assert!(session.unacknowledged() <= 32);
    assert!(
        session.poll_timeout().is_none_or(|at| at > now),
        "a deadline that has passed was not acted on"
    );
    while session.recv_oob().is_some() {}
}

/// An honest sender's packets with the input saying which arrive, how often and in what order: recovery invents nothing.
fn check_recovery(data: &[u8]) {
    let [d, p, believed_d, believed_p, order @ ..] = data else {
        return;
    };
    let shards =
        |d: u8, p: u8| Shards::new(1 + usize::from(d) % 24, 1 + usize::from(p) % 8).expect("valid");
    let mut encoder = Encoder::new(shards(*d, *p));
    let mut packets = Vec::new();
    let mut sent = Vec::new();
    while packets.len() < 256 {
        let payload = vec![sent.len() as u8; 1 + sent.len() * 7 % 40];
        let mut packet = vec![0; kcp::fec::DATA_HEADER];
        packet.extend_from_slice(&payload);
        encoder.seal(Time::ZERO, &mut packet);
        sent.push(payload);
        packets.push(packet);
        while let Some(length) = encoder.parity_len() {
            let mut packet = vec![0; length];
            assert!(encoder.parity(&mut packet));
            packets.push(packet);
        }
    }
    let mut decoder = Decoder::new(shards(*believed_d, *believed_p));
    let honest = decoder.shards() == encoder.shards();
    let mut counters = Counters::default();
    let mut at = 0;
    for &step in order {
        at = (at + usize::from(step)) % packets.len();
        decoder.handle(&packets[at], &mut counters);
        while let Some(payload) = decoder.pop() {
            // With other parameters believed, a chosen subset may pass for another code; a network does not choose.
            assert!(!honest || sent.contains(&payload), "invented {payload:?}");
        }
    }
}
