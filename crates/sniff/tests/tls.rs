//! ClientHellos made by rustls, cut into records in every way, changed, and read beside rustls's own server.

mod common;

use std::{io::Cursor, sync::Arc};

use common::{for_seeds, mutate, same_however_split};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName,
    server::Acceptor,
};
use sniff::tls::{
    AlertDescription, ClientHello, HelloSniffer, Limits, MAX_PROTOCOLS, TlsError, alert,
};

fn sniff(bytes: &[u8]) -> Result<Option<ClientHello>, TlsError> {
    HelloSniffer::new(Limits::default()).advance(bytes)
}

/// What a real client sends first.
fn client_hello(name: &str, alpn: &[&[u8]], post_quantum: bool) -> Vec<u8> {
    let mut provider = aws_lc_rs::default_provider();
    if !post_quantum {
        provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut out = Vec::new();
    client.write_tls(&mut out).expect("a hello");
    out
}

/// The same handshake bytes in records of other lengths.
fn cut(hello: &[u8], rng: &mut StdRng, longest: usize) -> Vec<u8> {
    let mut rest = &hello[5..];
    let mut out = Vec::new();
    while !rest.is_empty() {
        let (fragment, after) = rest.split_at(rng.random_range(1..=longest.min(rest.len())));
        out.extend_from_slice(&[22, 3, 1]);
        out.extend_from_slice(&u16::try_from(fragment.len()).expect("short").to_be_bytes());
        out.extend_from_slice(fragment);
        rest = after;
    }
    out
}

fn record(body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("short");
    [&[22, 3, 1], &length.to_be_bytes()[..], body].concat()
}

/// A minimal hello with these extension bytes.
fn with_extensions(extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 0x01, 1, 0]);
    body.extend_from_slice(
        &u16::try_from(extensions.len())
            .expect("short")
            .to_be_bytes(),
    );
    body.extend_from_slice(extensions);
    let length = u32::try_from(body.len()).expect("short").to_be_bytes();
    record(&[&[1], &length[1..], &body].concat())
}

fn sni(name: &[u8]) -> Vec<u8> {
    let n = u8::try_from(name.len()).expect("short");
    [&[0, 0, 0, n + 5, 0, n + 3, 0, 0, n], name].concat()
}

#[test]
fn names_and_protocols_of_real_hellos_are_found() {
    for post_quantum in [false, true] {
        let hello = client_hello("Alice.Example.com", &[b"h2", b"http/1.1"], post_quantum);
        assert_eq!(hello.len() > 1200, post_quantum, "{} bytes", hello.len());
        let read = sniff(&hello).expect("good").expect("whole");
        assert_eq!(read.server_name.as_deref(), Some("alice.example.com"));
        assert_eq!(read.alpn, [&b"h2"[..], b"http/1.1"]);
        assert_eq!(read.len, hello.len());
        for n in 0..hello.len() {
            assert_eq!(sniff(&hello[..n]), Ok(None));
        }
    }
    let plain = sniff(&client_hello("192.0.2.1", &[], true))
        .expect("good")
        .expect("whole");
    assert_eq!((plain.server_name, plain.alpn.len()), (None, 0));
}

#[test]
fn a_hello_over_several_records_is_put_together() {
    for_seeds(300, |rng| {
        let hello = client_hello("a.example", &[b"gt"], rng.random());
        let longest = *[40, 100, 700].choose(rng).expect("some");
        let mut bytes = cut(&hello, rng, longest);
        let len = bytes.len();
        bytes.extend_from_slice(b"\x14\x03\x03 whatever");
        let limits = Limits {
            records: 1000,
            ..Limits::default()
        };
        let read = same_however_split(
            &bytes,
            rng,
            || HelloSniffer::new(limits),
            HelloSniffer::advance,
        );
        let read = read.expect("good").expect("whole");
        assert_eq!(
            (read.server_name.as_deref(), read.len),
            (Some("a.example"), len)
        );
    });
}

#[test]
fn rustls_reads_the_same() {
    let hellos = [
        client_hello("alice.example.com", &[b"h2", b"http/1.1"], false),
        client_hello("b.example", &[b"acme-tls/1"], true),
        client_hello("127.0.0.1", &[], false),
        with_extensions(&[sni(b"x.Example."), vec![0, 16, 0, 5, 0, 3, 2, b'h', b'2']].concat()),
    ];
    let words: [&[u8]; 6] = [
        &[0],
        &[0, 0],
        &[22, 3, 1],
        &[0, 16, 0, 5, 0, 3, 2, b'h', b'2'],
        b".",
        b"\xFF",
    ];
    let accepted = std::cell::Cell::new(0);
    for_seeds(20_000, |rng| {
        let mut bytes = hellos.choose(rng).expect("some").clone();
        if rng.random_ratio(1, 3) {
            bytes = cut(&bytes, rng, 300);
        }
        mutate(&mut bytes, rng, &words);
        let ours = same_however_split(
            &bytes,
            rng,
            || HelloSniffer::new(Limits::default()),
            HelloSniffer::advance,
        );
        let mut acceptor = Acceptor::default();
        let mut input = Cursor::new(&bytes);
        let theirs = loop {
            match acceptor.read_tls(&mut input) {
                Err(_) => break None,
                Ok(0) => break None,
                Ok(_) => {}
            }
            match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => break Some(accepted),
                Err(_) => break None,
            }
        };
        let Some(theirs) = theirs else { return };
        accepted.set(accepted.get() + 1);
        let theirs = theirs.client_hello();
        let ours = match ours {
            Ok(Some(ours)) => ours,
            other => panic!(
                "rustls accepts, and here: {other:?} of {}",
                bytes.escape_ascii()
            ),
        };
        let name = theirs
            .server_name()
            .map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        assert_eq!(ours.server_name, name);
        let alpn: Vec<_> = theirs.alpn().into_iter().flatten().collect();
        assert_eq!(ours.alpn, alpn);
    });
    if std::env::var_os("GT_SEED").is_none() {
        assert!(
            accepted.get() > 4_000,
            "most inputs should not be garbage: {}",
            accepted.get()
        );
    }
}

#[test]
fn garbage_is_told_by_its_first_wrong_byte() {
    for (bytes, error) in [
        (&b"G"[..], TlsError::NotHandshake),
        (&[21], TlsError::NotHandshake),
        (&[22, 2], TlsError::NotHandshake),
        (&[22, 3, 1, 0, 0], TlsError::RecordLength),
        (&[22, 3, 1, 0x40, 1], TlsError::RecordLength),
        (&[22, 3, 1, 0, 9, 2], TlsError::NotClientHello),
        (&[22, 3, 1, 0, 9, 1, 0, 0x40, 1], TlsError::TooLong),
        (&[22, 3, 1, 0, 9, 1, 0, 0, 5], TlsError::Malformed),
        (&[22, 3, 1, 0, 1, 1, 22, 3, 1, 0, 0], TlsError::RecordLength),
        (&[22, 3, 1, 0, 1, 1, 23], TlsError::NotHandshake),
    ] {
        assert_eq!(sniff(bytes), Err(error), "{bytes:?}");
        assert_eq!(sniff(&bytes[..bytes.len() - 1]), Ok(None), "{bytes:?}");
    }
    let mut long_session = [vec![22, 3, 1, 0, 99, 1, 0, 0, 95, 3, 3], vec![0; 32]].concat();
    assert_eq!(sniff(&long_session), Ok(None));
    long_session.push(33);
    assert_eq!(sniff(&long_session), Err(TlsError::Malformed));
}

#[test]
fn odd_extensions_are_refused() {
    let read =
        |extensions: &[u8]| sniff(&with_extensions(extensions)).map(|hello| hello.expect("whole"));
    assert_eq!(read(&[]).expect("good").server_name, None);
    assert_eq!(
        read(&sni(b"A.b.")).expect("good").server_name.as_deref(),
        Some("a.b")
    );
    assert_eq!(read(&sni(b"::1")).expect("good").server_name, None);
    assert!(read(&[0xFE, 0x0D, 0, 1, 0]).expect("good").encrypted_hello);
    for bad in [
        sni(b""),
        sni(b"a b"),
        sni(b"\xC3\xA4"),
        sni(b"a..b"),
        vec![0, 0, 0, 2, 0, 0],
        vec![0, 0, 0, 0],
    ] {
        assert_eq!(read(&bad), Err(TlsError::BadServerName), "{bad:?}");
    }
    let two = [0, 0, 0, 10, 0, 8, 0, 0, 1, b'a', 0, 0, 1, b'b'];
    assert_eq!(read(&two), Err(TlsError::BadServerName));
    for bad in [
        &[0, 16, 0, 2, 0, 0][..],
        &[0, 16, 0, 3, 0, 1, 0],
        &[0, 16, 0, 3, 0, 1, 9],
        &[0, 16, 0, 0],
    ] {
        assert_eq!(read(bad), Err(TlsError::BadAlpn), "{bad:?}");
    }
    assert_eq!(
        read(&[sni(b"a"), sni(b"a")].concat()),
        Err(TlsError::Repeated)
    );
    assert_eq!(read(&[0, 5, 0, 1]), Err(TlsError::Malformed));
    let names = |n: usize| {
        let list = [1, b'x'].repeat(n);
        let n = u8::try_from(list.len()).expect("short");
        [&[0, 16, 0, n + 2, 0, n], &list[..]].concat()
    };
    assert_eq!(
        read(&names(MAX_PROTOCOLS)).expect("good").alpn.len(),
        MAX_PROTOCOLS
    );
    assert_eq!(read(&names(MAX_PROTOCOLS + 1)), Err(TlsError::BadAlpn));
}

#[test]
fn limits_hold_to_the_byte() {
    let hello = client_hello("a", &[], false);
    let sniff = |bytes: &[u8], limits: Limits| {
        HelloSniffer::new(limits)
            .advance(bytes)
            .map(|hello| hello.is_some())
    };
    let length = hello.len() - 5;
    assert_eq!(
        sniff(
            &hello,
            Limits {
                hello: length,
                records: 1
            }
        ),
        Ok(true)
    );
    assert_eq!(
        sniff(
            &hello,
            Limits {
                hello: length - 1,
                records: 1
            }
        ),
        Err(TlsError::TooLong)
    );
    let mut halves = record(&hello[5..100]);
    halves.extend_from_slice(&record(&hello[100..]));
    assert_eq!(
        sniff(
            &halves,
            Limits {
                hello: length,
                records: 2
            }
        ),
        Ok(true)
    );
    assert_eq!(
        sniff(
            &halves,
            Limits {
                hello: length,
                records: 1
            }
        ),
        Err(TlsError::TooManyRecords)
    );
    assert_eq!(Limits::default().max_buffer(), 16 * 1024 + 4 + 64 * 5);
}

#[test]
fn a_megabyte_byte_by_byte_is_linear_work() {
    let mut hello = vec![1, 0x0F, 0xFF, 0xFF, 3, 3];
    hello.resize(0x0F_FFFF, 0);
    let bytes: Vec<u8> = hello.chunks(1000).flat_map(record).collect();
    let started = std::time::Instant::now();
    let mut sniffer = HelloSniffer::new(Limits {
        hello: 1 << 24,
        records: 1 << 20,
    });
    for n in 1..=bytes.len() {
        assert_eq!(sniffer.advance(&bytes[..n]), Ok(None));
    }
    // Linear: well below a second. Quadratic: 5 * 10^11 steps.
    assert!(started.elapsed().as_secs() < 20);
}

#[test]
fn an_alert_is_understood_by_a_client() {
    let bytes = alert(AlertDescription::UnrecognizedName);
    assert_eq!(bytes, [21, 3, 3, 0, 2, 2, 112]);
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("a.example").expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    client.write_tls(&mut Vec::new()).expect("a hello");
    client.read_tls(&mut &bytes[..]).expect("bytes");
    let error = client.process_new_packets().expect_err("an alert");
    assert_eq!(
        error,
        rustls::Error::AlertReceived(rustls::AlertDescription::UnrecognisedName)
    );
}
