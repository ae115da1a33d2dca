//! PROXY headers: written, read, refused.

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use common::{for_seeds, mutate, same_however_split};
use rand::{Rng, rngs::StdRng};
use sniff::proxy::{
    Addresses, Header, HeaderSniffer, Limits, MAX_V1, ProxyError, Transport, V2_SIGNATURE, Version,
    write_v1, write_v1_unknown, write_v2, write_v2_local, write_v2_transport,
};

fn sniff(bytes: &[u8]) -> Result<Option<Header>, ProxyError> {
    HeaderSniffer::new(Limits::default()).advance(bytes)
}

fn header(bytes: &[u8]) -> Header {
    sniff(bytes).expect("accepted").expect("complete")
}

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("short").to_be_bytes();
    [&V2_SIGNATURE[..], &[command, family], &length, body].concat()
}

fn any_address(rng: &mut StdRng) -> SocketAddr {
    let ip = match rng.random_range(0..3) {
        0 => IpAddr::V4(Ipv4Addr::from(rng.random::<u32>())),
        1 => IpAddr::V6(Ipv4Addr::from(rng.random::<u32>()).to_ipv6_mapped()),
        _ => IpAddr::V6(Ipv6Addr::from(rng.random::<u128>())),
    };
    SocketAddr::new(ip, rng.random())
}

#[test]
fn what_is_written_is_read_back() {
    for_seeds(2_000, |rng| {
        let (source, destination) = (any_address(rng), any_address(rng));
        let transport = if rng.random() {
            Transport::Stream
        } else {
            Transport::Datagram
        };
        let mut text = Vec::new();
        write_v1(source, destination, &mut text);
        assert!(text.len() <= MAX_V1);
        let mut binary = Vec::new();
        write_v2_transport(transport, source, destination, &mut binary);
        for (mut bytes, version, transport) in [
            (text, Version::V1, Transport::Stream),
            (binary, Version::V2, transport),
        ] {
            let len = bytes.len();
            bytes.extend_from_slice(b"GET /");
            let make = || HeaderSniffer::new(Limits::default());
            let read = same_however_split(&bytes, rng, make, HeaderSniffer::advance)
                .expect("good")
                .expect("whole");
            assert_eq!(
                (read.version, read.len, read.tlvs.clone()),
                (version, len, len..len)
            );
            let Addresses::Ip {
                transport: read_transport,
                source: s,
                destination: d,
            } = read.addresses
            else {
                panic!("addresses")
            };
            assert_eq!(read_transport, transport);
            assert_eq!(s.is_ipv4(), d.is_ipv4());
            for (was, is) in [(source, s), (destination, d)] {
                assert_eq!(
                    (was.ip().to_canonical(), was.port()),
                    (is.ip().to_canonical(), is.port())
                );
            }
        }
    });
}

#[test]
fn headers_have_the_bytes_of_the_specification() {
    let (source, destination) = (
        SocketAddr::from(([192, 168, 0, 1], 56324)),
        SocketAddr::from(([192, 168, 0, 11], 443)),
    );
    let mut out = Vec::new();
    write_v1(source, destination, &mut out);
    assert_eq!(out, b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n");
    out.clear();
    write_v2(source, destination, &mut out);
    let body = [192, 168, 0, 1, 192, 168, 0, 11, 0xDC, 0x04, 0x01, 0xBB];
    assert_eq!(out, v2(0x21, 0x11, &body));
    out.clear();
    write_v1_unknown(&mut out);
    assert_eq!(header(&out).addresses, Addresses::Unknown);
    out.clear();
    write_v2_local(&mut out);
    assert_eq!(header(&out).addresses, Addresses::Local);
    let sides = [
        SocketAddr::from(([1, 2, 3, 4], 5)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, 6)),
    ];
    out.clear();
    write_v1(sides[0], sides[1], &mut out);
    assert_eq!(out, b"PROXY TCP6 ::ffff:1.2.3.4 ::1 5 6\r\n");
}

#[test]
fn unknown_and_local_tell_nothing() {
    assert_eq!(header(b"PROXY UNKNOWN\r\n").source(), None);
    assert_eq!(
        header(b"PROXY UNKNOWN \xFF anything 1 2\r\nx").addresses,
        Addresses::Unknown
    );
    assert_eq!(
        header(&v2(0x20, 0x11, &[1; 12])).addresses,
        Addresses::Local
    );
    assert_eq!(header(&v2(0x20, 0x11, &[1; 3])).tlvs, 19..19);
    for family in [0x00, 0x01, 0x10, 0x13, 0x41, 0xF1] {
        assert_eq!(
            header(&v2(0x21, family, &[1; 40])).addresses,
            Addresses::Unknown,
            "{family:#x}"
        );
    }
}

#[test]
fn unix_paths_lose_their_padding() {
    let mut body = [0; 216];
    body[..5].copy_from_slice(b"/run/");
    body[108..112].copy_from_slice(b"\0abc");
    let expected = Addresses::Unix {
        transport: Transport::Stream,
        source: b"/run/".to_vec(),
        destination: b"\0abc".to_vec(),
    };
    assert_eq!(header(&v2(0x21, 0x31, &body)).addresses, expected);
}

#[test]
fn tlvs_are_skipped_within_the_limit() {
    let mut body = [7; 536 - 16];
    body[..4].copy_from_slice(&[10, 0, 0, 1]);
    let bytes = v2(0x21, 0x11, &body);
    let read = header(&bytes);
    assert_eq!((read.len, read.tlvs), (536, 28..536));
    let longer = v2(0x21, 0x11, &[7; 536 - 15]);
    assert_eq!(sniff(&longer), Err(ProxyError::TooLong));
    assert_eq!(
        sniff(&longer[..16]),
        Err(ProxyError::TooLong),
        "told by its length"
    );
    let generous = HeaderSniffer::new(Limits { v2: 537 }).advance(&longer);
    assert_eq!(generous.expect("good").expect("whole").len, 537);
}

#[test]
fn odd_headers_are_refused() {
    for bad in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n",
        "PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
        "PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
        "PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY tcp4 1.2.3.4 1.2.3.4 1 2\r\n",
    ] {
        assert_eq!(sniff(bad.as_bytes()), Err(ProxyError::BadLine), "{bad:?}");
    }
    let padded = |len: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(len - 16));
    assert_eq!(header(padded(107).as_bytes()).len, 107);
    assert_eq!(sniff(padded(108).as_bytes()), Err(ProxyError::TooLong));
    for not in [&b"POST"[..], b"G", b"\r\n\r\n\0\r\nQUIX"] {
        assert_eq!(sniff(not), Err(ProxyError::NotProxy));
    }
    assert_eq!(
        sniff(&v2(0x11, 0x11, &[0; 12])),
        Err(ProxyError::BadCommand)
    );
    assert_eq!(
        sniff(&v2(0x22, 0x11, &[0; 12])),
        Err(ProxyError::BadCommand)
    );
    for (family, short) in [(0x11, 11), (0x21, 35), (0x31, 215)] {
        assert_eq!(
            sniff(&v2(0x21, family, &vec![0; short])),
            Err(ProxyError::TooShort)
        );
    }
}

#[test]
fn no_split_changes_the_answer() {
    let words: [&[u8]; 5] = [b"\r\n", b" ", b"UNKNOWN", b"\x21\x11", b"\0\x0C"];
    for_seeds(20_000, |rng| {
        let mut bytes = Vec::new();
        let (source, destination) = (any_address(rng), any_address(rng));
        if rng.random() {
            write_v1(source, destination, &mut bytes)
        } else {
            write_v2(source, destination, &mut bytes)
        }
        bytes.extend_from_slice(&[b'x'; 80]);
        mutate(&mut bytes, rng, &words);
        let limits = Limits {
            v2: rng.random_range(16..100),
        };
        let _ = same_however_split(
            &bytes,
            rng,
            || HeaderSniffer::new(limits),
            HeaderSniffer::advance,
        );
    });
}
