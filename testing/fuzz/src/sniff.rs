//! Fuzz checks of crate `sniff`: no input panics, no split changes an answer, answers fit the input, and what is written reads
//! back.
//!
//! The first byte of an input chooses how the rest is split and which limits hold; every sniffer sees the rest.

use std::fmt::Debug;

use sniff::{Classified, MAX_CLASSIFY, classify, h2, host::Authority, http, proxy, tls};

const MAGIC: &[u8] = b"\xF7gt1";

/// Runs one input; panics on a finding.
pub fn check(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else {
        return;
    };
    let step = usize::from(how & 0x1F) + 1;
    let small = how & 0x20 != 0;
    let named = how & 0x40 != 0;
    check_classify(bytes);
    check_authority(bytes);
    check_http(bytes, step, small, named);
    check_h2(bytes, step, small, named);
    check_tls(bytes, step, small);
    check_proxy(bytes, step, small);
}

/// The answer to the whole, which single bytes and steps must get too, and asking again.
fn however_split<S, T: PartialEq + Debug, E: PartialEq + Debug>(
    bytes: &[u8],
    step: usize,
    make: impl Fn() -> S,
    advance: impl Fn(&mut S, &[u8]) -> Result<Option<T>, E>,
) -> Option<T> {
    let mut sniffer = make();
    let whole = advance(&mut sniffer, bytes);
    assert_eq!(whole, advance(&mut sniffer, bytes), "asked again");
    for step in [1, step] {
        let mut sniffer = make();
        let mut answer = Ok(None);
        let mut n = 0;
        while n < bytes.len() && answer == Ok(None) {
            n = bytes.len().min(n + step);
            answer = advance(&mut sniffer, &bytes[..n]);
        }
        assert_eq!(whole, answer, "in steps of {step}");
    }
    whole.ok().flatten()
}

fn check_classify(bytes: &[u8]) {
    let end = classify(bytes, MAGIC);
    assert!(end != Classified::NeedMore || bytes.len() < MAX_CLASSIFY);
    for n in 0..bytes.len().min(MAX_CLASSIFY) {
        let early = classify(&bytes[..n], MAGIC);
        assert!(early == Classified::NeedMore || early == end);
    }
}

fn check_authority(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(authority) = Authority::parse(text) {
        assert_eq!(Authority::parse(&authority.to_string()), Ok(authority));
    }
}

fn check_http(bytes: &[u8], step: usize, small: bool, named: bool) {
    let limits = if small {
        http::Limits {
            head: 64,
            headers: 2,
        }
    } else {
        http::Limits::default()
    };
    let make = || {
        let sniffer = http::HeadSniffer::new(limits);
        if named {
            sniffer.route_by("x-gt")
        } else {
            sniffer
        }
    };
    let Some(head) = however_split(bytes, step, make, http::HeadSniffer::advance) else {
        return;
    };
    assert!(head.len() <= limits.head && bytes[..head.len()].ends_with(b"\r\n\r\n"));
    assert_eq!(classify(bytes, MAGIC), expected_class(head.method(bytes)));
    let mut count = 0;
    for field in head.fields(bytes) {
        assert!(!field.name.is_empty() && &bytes[field.value_range] == field.value);
        count += 1;
    }
    assert!(count <= limits.headers);
    if let Some(range) = head.host_range() {
        assert_eq!(
            head.values(bytes, "HOST").collect::<Vec<_>>(),
            [&bytes[range]]
        );
    }
    let _ = head.websocket_key(bytes);
    assert_eq!(head.authority().is_some(), head.routed_by().is_some());
}

/// Heads are HTTP/1 but for methods that begin as SSH does.
fn expected_class(method: &[u8]) -> Classified {
    let ssh = [&b"SSH-2.0-"[..], b"SSH-1.99-", b"SSH-1.5-"]
        .iter()
        .any(|start| method.starts_with(start));
    if ssh {
        Classified::Ssh
    } else {
        Classified::Http1
    }
}

fn check_h2(bytes: &[u8], step: usize, small: bool, named: bool) {
    let limits = if small {
        h2::Limits {
            head: 80,
            list: 100,
        }
    } else {
        h2::Limits::default()
    };
    let make = |named: bool| {
        let sniffer = h2::HeadSniffer::new(limits);
        if named {
            sniffer.route_by("x-gt")
        } else {
            sniffer
        }
    };
    let check = |bytes: &[u8]| {
        let Some(head) = however_split(bytes, step, || make(named), h2::HeadSniffer::advance)
        else {
            return;
        };
        assert!(head.len <= limits.head && head.len <= bytes.len() && head.stream % 2 == 1);
        assert_eq!(head.authority.is_some(), head.routed_by.is_some());
        if let Some(ack) = head.settings_ack {
            assert_eq!(bytes[ack][..4], [0, 0, 0, 4]);
        }
    };
    check(bytes);
    // Past the preface, which luck alone does not find.
    check(&[&h2::PREFACE[..], &h2::EMPTY_SETTINGS, bytes].concat());
}

fn check_tls(bytes: &[u8], step: usize, small: bool) {
    let limits = if small {
        tls::Limits {
            hello: 200,
            records: 3,
        }
    } else {
        tls::Limits::default()
    };
    let make = || tls::HelloSniffer::new(limits);
    let Some(hello) = however_split(bytes, step, make, tls::HelloSniffer::advance) else {
        return;
    };
    assert!(hello.len <= bytes.len() && hello.len <= limits.max_buffer());
    assert_eq!(classify(bytes, MAGIC), Classified::Tls);
    assert!(
        hello.alpn.len() <= tls::MAX_PROTOCOLS && hello.alpn.iter().all(|name| !name.is_empty())
    );
    if let Some(name) = hello.server_name {
        let authority = Authority::parse(&name).expect("a name that routes");
        assert_eq!(authority.name(), Some(&name[..]));
    }
}

fn check_proxy(bytes: &[u8], step: usize, small: bool) {
    let limits = if small {
        proxy::Limits { v2: 60 }
    } else {
        proxy::Limits::default()
    };
    let make = || proxy::HeaderSniffer::new(limits);
    let Some(header) = however_split(bytes, step, make, proxy::HeaderSniffer::advance) else {
        return;
    };
    assert!(
        header.len <= bytes.len()
            && header.tlvs.end == header.len
            && header.tlvs.start <= header.len
    );
    let class = match header.version {
        proxy::Version::V1 => Classified::ProxyV1,
        proxy::Version::V2 => Classified::ProxyV2,
    };
    assert_eq!(classify(bytes, MAGIC), class);
    let (Some(source), Some(destination)) = (header.source(), header.destination()) else {
        return;
    };
    let mut out = Vec::new();
    for write in [proxy::write_v1, proxy::write_v2] {
        out.clear();
        write(source, destination, &mut out);
        let again = make()
            .advance(&out)
            .expect("a good header")
            .expect("a whole header");
        assert_eq!(again.len, out.len());
        assert_eq!(
            again.source().map(|a| a.ip().to_canonical()),
            Some(source.ip().to_canonical())
        );
        assert_eq!(
            again.destination().map(|a| a.port()),
            Some(destination.port())
        );
    }
}
