//! Stream headers and reset reasons.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;

use std::net::{IpAddr, SocketAddr};

use common::{Rng, seeds};
use tunnel::*;

fn arbitrary_address(rng: &mut Rng) -> Option<SocketAddr> {
    let ip = match rng.below(3) {
        0 => return None,
        1 => IpAddr::V4((rng.next() as u32).into()),
        _ => IpAddr::V6((u128::from(rng.next()) << 64 | u128::from(rng.next())).into()),
    };
    Some(SocketAddr::new(ip, rng.next() as u16))
}

#[test]
fn headers_survive_the_wire_within_their_bound() {
    seeds(2000, |rng| {
        let name: String = (0..1 + rng.below(255))
            .map(|_| char::from(0x21 + rng.below(94) as u8))
            .collect();
        let header = StreamHeader {
            protocol: StreamProtocol::from(rng.next() as u8),
            service: ServiceId(rng.next() as u16),
            visitor: arbitrary_address(rng),
            local: arbitrary_address(rng),
            server_name: (rng.below(2) == 0).then(|| ServerName::new(&name).unwrap()),
        };
        let mut bytes = b"before".to_vec();
        header.encode(&mut bytes);
        let bytes = &bytes[6..];
        assert!(bytes.len() <= 298 && bytes.len() <= MAX_STREAM_HEADER);
        assert_eq!(StreamHeader::decode(bytes), Ok(header));
        for end in 0..bytes.len() {
            assert_eq!(
                StreamHeader::decode(&bytes[..end]),
                Err(StreamHeaderError::Truncated)
            );
        }
        let longer = [bytes, &[0]].concat();
        assert_eq!(
            StreamHeader::decode(&longer),
            Err(StreamHeaderError::TrailingBytes)
        );
    });
}

#[test]
fn encoding_does_not_allocate_past_the_buffer() {
    let header = StreamHeader {
        protocol: StreamProtocol::Tcp,
        service: ServiceId(1),
        visitor: Some("[2001:db8::1]:1".parse().unwrap()),
        local: Some("[2001:db8::2]:2".parse().unwrap()),
        server_name: Some(ServerName::new("abc.example.com").unwrap()),
    };
    let mut bytes = Vec::with_capacity(MAX_STREAM_HEADER);
    let before = bytes.as_ptr();
    header.encode(&mut bytes);
    assert_eq!(
        (bytes.as_ptr(), bytes.capacity()),
        (before, MAX_STREAM_HEADER)
    );
}

#[test]
fn misshapen_headers_are_refused() {
    for (bytes, error) in [
        (&[0x20, 1, 0, 0, 0, 0][..], StreamHeaderError::Version(0x20)),
        (&[0x12, 1, 0, 0, 0, 0], StreamHeaderError::Version(0x12)),
        (&[0x10, 1, 0, 0, 5, 0], StreamHeaderError::AddressKind(5)),
        (&[0x11, 1, 0, 0, 0, 0, 0], StreamHeaderError::ServerName),
        (
            &[0x11, 1, 0, 0, 0, 0, 1, b'\n'],
            StreamHeaderError::ServerName,
        ),
        (
            &[0x11, 1, 0, 0, 0, 0, 2, 0xC3, 0xA4],
            StreamHeaderError::ServerName,
        ),
    ] {
        assert_eq!(StreamHeader::decode(bytes), Err(error));
    }
}

#[test]
fn every_reset_reason_survives_the_wire_and_can_be_read() {
    for number in 0..=u16::MAX {
        let reason = ResetReason::from(number);
        assert_eq!(u16::from(reason), number);
        assert!(!reason.to_string().is_empty());
    }
    assert_eq!(ResetReason::from(13), ResetReason::Reset);
    assert_eq!(ResetReason::from(14), ResetReason::Unknown(14));
    assert_eq!(
        ResetReason::Refused.to_string(),
        "the service refused the connection"
    );
}
