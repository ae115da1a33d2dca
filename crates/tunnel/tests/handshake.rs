//! Both ends of the handshake against each other: what they agree on, and the messages of disagreement.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;

use std::time::Duration;

use common::*;
use tunnel::*;

#[test]
fn both_ends_agree_on_everything_said() {
    let outcome = honest();
    let (client, server) = (outcome.client.unwrap(), outcome.server.unwrap());
    assert_eq!(client.grant, grant());
    assert_eq!(server.grant, grant());
    assert!(client.server_proved);
    assert_eq!(server.authentication, Authentication::Mutual);
    assert_eq!((client.version, server.client.version), (VERSION, VERSION));
    assert_eq!(server.client.id, id());
    assert_eq!(server.client.software.as_str(), "gt 0.1.0");
    assert_eq!(server.client.session, None);
}

#[test]
fn fragmentation_changes_nothing_and_bytes_after_the_handshake_stay() {
    seeds(300, |rng| {
        let (mut client, mut server) = (client(client_config()), server());
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let (mut tail_sent, mut client_done, mut server_done) = (false, None, None);
        for _ in 0..20_000 {
            up.extend_from_slice(&client.output());
            down.extend_from_slice(&server.output());
            let piece = rng.below(40).min(up.len());
            let taken = server.handle_input(&up[..piece]).unwrap();
            up.drain(..taken);
            if let Some(ServerStep::Authenticate(request)) = server.poll_step() {
                assert!(request.verify(&key()));
                server.accept_with_key(&key(), grant()).unwrap();
            }
            down.extend_from_slice(&server.output());
            server_done = server_done.or(server.established());
            if server_done.is_some() && !tail_sent {
                tail_sent = true;
                down.extend_from_slice(b"first frames of the multiplexer");
                up.extend_from_slice(b"and the client's");
            }
            let piece = rng.below(40).min(down.len());
            let taken = client.handle_input(&down[..piece]).unwrap();
            down.drain(..taken);
            client_done = client_done.or(client.established());
            if client_done.is_some() && client.handle_input(&down).unwrap() == 0 {
                break;
            }
        }
        assert_eq!(client_done.unwrap().grant, server_done.unwrap().grant);
        assert_eq!(down, b"first frames of the multiplexer");
        assert_eq!(server.handle_input(&up).unwrap(), 0);
        assert_eq!(up, b"and the client's");
    });
}

#[test]
fn a_session_to_join_and_all_client_facts_reach_the_server() {
    let session = SessionId::from_bytes([3; 16]);
    let config = ClientConfig {
        session: Some(session),
        windows: Windows {
            stream: 1,
            link: u32::MAX,
        },
        transport: TransportKind::Wss,
        features: Features(0b110),
        ..client_config()
    };
    let server = ServerHandshake::new(
        ServerConfig {
            features: Features(0b011),
            ..ServerConfig::default()
        },
        SERVER_NONCE,
        ChannelBinding::None,
    );
    let outcome = run(client(config), server, with_key, untouched);
    let seen = outcome.server.unwrap().client;
    assert_eq!(seen.session, Some(session));
    assert_eq!(
        seen.windows,
        Windows {
            stream: 1,
            link: u32::MAX
        }
    );
    assert_eq!(seen.transport, TransportKind::Wss);
    assert_eq!(
        (seen.features, outcome.client.unwrap().features),
        (Features(0b010), Features(0b010))
    );
}

#[test]
fn versions_agree_on_the_newest_common_one() {
    let outcome = run(
        client(ClientConfig {
            versions: VersionRange { min: 1, max: 7 },
            ..client_config()
        }),
        ServerHandshake::new(
            ServerConfig {
                versions: VersionRange { min: 1, max: 4 },
                ..ServerConfig::default()
            },
            SERVER_NONCE,
            ChannelBinding::None,
        ),
        with_key,
        untouched,
    );
    assert_eq!(outcome.client.unwrap().version, 4);
}

#[test]
fn no_common_version_is_told_to_both_with_both_ranges() {
    let config = ClientConfig {
        versions: VersionRange { min: 5, max: 7 },
        ..client_config()
    };
    let outcome = run(client(config), server(), with_key, untouched);
    let ours = outcome.server.unwrap_err();
    assert!(matches!(ours, HandshakeError::Version { .. }));
    let HandshakeError::Rejected(rejection) = outcome.client.unwrap_err() else {
        panic!("not rejected")
    };
    assert_eq!(rejection.code, RejectCode::UnsupportedVersion);
    assert_eq!(
        rejection.message.as_str(),
        "no common protocol version: the client speaks 5 to 7, this server 1"
    );
    assert!(rejection.code.is_permanent());
}

#[test]
fn a_hello_of_a_later_version_is_refused_by_version_whatever_else_it_says() {
    let hello = message(
        1,
        &[
            (1, vec![0, 9]),
            (2, vec![0, 9]),
            (4, b"new kind of id!".to_vec()),
        ],
    );
    let mut server = server();
    let error = server
        .handle_input(&[&MAGIC[..], &hello].concat())
        .unwrap_err();
    assert!(matches!(error, HandshakeError::Version { .. }), "{error}");
    assert_eq!(server.output()[0], 5);
}

#[test]
fn a_foreign_server_is_reported_with_what_it_answered() {
    for (answer, told) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n"[..],
            "\"HTTP/1.1 400 Bad Request\"",
        ),
        (b"\x15\x03\x03\x00\x02\x02\x46", "a TLS record"),
        (b"SSH-2.0-OpenSSH\x1b[31m", "bytes 53 53 48"),
        (b"\x00\x01", "bytes 00 01"),
    ] {
        let error = client(client_config()).handle_input(answer).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("the peer is not a gt server: it answered "),
            "{text}"
        );
        assert!(text.contains(told), "{text}");
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert_eq!(error.fault(), Fault::Peer);
    }
}

#[test]
fn a_wrong_magic_is_reported_and_not_answered() {
    for input in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\xF7gt2",
        b"\x16\x03\x01\x02\x00",
    ] {
        let mut server = server();
        let error = server.handle_input(input).unwrap_err();
        assert!(
            matches!(error, HandshakeError::NotAClient { .. }),
            "{error}"
        );
        assert!(server.output().is_empty());
        assert_eq!(
            server.handle_input(b"more").unwrap_err(),
            error,
            "it stays failed"
        );
    }
}

#[test]
fn a_refusal_reaches_the_client_with_its_time_and_text() {
    let refusal = Rejection::new(RejectCode::Throttled, "too many\u{1b}[2J")
        .retry_after(Duration::from_millis(1500));
    let answer =
        |server: &mut ServerHandshake, _: &AuthRequest| server.reject(refusal.clone()).unwrap();
    let outcome = run(client(client_config()), server(), answer, untouched);
    assert!(matches!(outcome.server, Err(HandshakeError::Refused(_))));
    let error = outcome.client.unwrap_err();
    let HandshakeError::Rejected(rejection) = &error else {
        panic!("{error}")
    };
    assert_eq!(rejection.retry_after, Some(Duration::from_millis(1500)));
    assert_eq!(rejection.message.as_str(), "too many?[2J");
    assert!(!error.is_permanent());
    assert!(error.to_string().contains("retry in 2 s"), "{error}");
}

#[test]
fn a_server_may_refuse_before_the_hello() {
    let mut server = server();
    server
        .reject(Rejection::new(RejectCode::ShuttingDown, ""))
        .unwrap();
    let mut client = client(client_config());
    let error = client.handle_input(&server.output()).unwrap_err();
    assert!(matches!(error, HandshakeError::Rejected(r) if r.code == RejectCode::ShuttingDown));
}

#[test]
fn every_reject_code_survives_the_wire_and_has_a_hint() {
    for number in (0..20).chain([u16::MAX]) {
        let code = RejectCode::from(number);
        let answer = |server: &mut ServerHandshake, _: &AuthRequest| {
            server.reject(Rejection::new(code, "")).unwrap()
        };
        let outcome = run(client(client_config()), server(), answer, untouched);
        assert!(
            matches!(outcome.client, Err(HandshakeError::Rejected(r)) if r.code == code && u16::from(code) == number)
        );
        assert!(!code.hint().is_empty() && !code.to_string().is_empty());
    }
    assert!(!RejectCode::Unknown(999).is_permanent());
}

#[test]
fn a_server_without_proof_is_taken_only_by_clients_that_say_so() {
    type Accept = fn(&mut ServerHandshake, Grant) -> Result<(), HandshakeError>;
    let ways: [(Accept, Authentication); 2] = [
        (ServerHandshake::accept_verified, Authentication::Client),
        (ServerHandshake::accept_unverified, Authentication::None),
    ];
    for (accept, authentication) in ways {
        let answer =
            |server: &mut ServerHandshake, _: &AuthRequest| accept(server, grant()).unwrap();
        let strict = run(client(client_config()), server(), answer, untouched);
        let error = strict.client.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the server did not prove that it knows the secret"
        );

        let config = ClientConfig {
            server_proof: ServerProof::Optional,
            ..client_config()
        };
        let lax = run(client(config), server(), answer, untouched);
        assert_eq!(lax.server.unwrap().authentication, authentication);
        assert!(!lax.client.unwrap().server_proved);
    }
}

#[test]
fn decisions_out_of_turn_are_the_callers_error_and_change_nothing() {
    let mut server = server();
    assert_eq!(
        server.accept_with_key(&key(), grant()),
        Err(HandshakeError::NoDecisionDue)
    );
    assert_eq!(
        server.accept_unverified(grant()),
        Err(HandshakeError::NoDecisionDue)
    );
    assert_eq!(
        server.reject_unknown_id(),
        Err(HandshakeError::NoDecisionDue)
    );
    let outcome = run(client(client_config()), server, with_key, untouched);
    assert!(outcome.client.is_ok() && outcome.server.is_ok());
}

#[test]
fn the_connections_end_is_told_with_what_was_due() {
    let (mut client, mut server) = (client(client_config()), server());
    assert_eq!(
        client.closed(),
        HandshakeError::Closed("the server's Challenge")
    );
    assert_eq!(
        server.closed(),
        HandshakeError::Closed("the client's Hello")
    );
    server.handle_input(&client.output()).unwrap();
    assert_eq!(
        server.closed(),
        HandshakeError::Closed("the client's Proof")
    );
    client.handle_input(&server.output()).unwrap();
    assert_eq!(
        client.closed(),
        HandshakeError::Closed("the server's Accept")
    );
    assert!(!client.closed().is_permanent());
}

#[test]
fn secrets_are_not_printed() {
    let printed = format!(
        "{:?} {:?} {:?}",
        client_config(),
        key(),
        ChannelBinding::TlsExporter([7; 32])
    );
    assert!(
        printed.contains("Secret(..)") && printed.contains("Key(..)"),
        "{printed}"
    );
    assert!(
        !printed.contains("nobody guesses") && !printed.contains("7, 7"),
        "{printed}"
    );
    assert_eq!(
        format!("{:?}", SessionId::from_bytes([0xAB; 16])),
        "SessionId(abababab..)"
    );
}

#[test]
fn values_have_bounds() {
    assert!(
        Secret::new("").is_err()
            && Secret::new([0; 1025]).is_err()
            && Secret::new([0; 1024]).is_ok()
    );
    for bad in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
        assert!(ClientId::new(bad).is_err(), "{bad}");
    }
    assert!(ClientId::new(&"x".repeat(64)).is_ok());
    assert!(Key::from_hex(&"0g".repeat(32)).is_err() && Key::from_hex("00").is_err());
    assert!(Key::from_hex(&"é".repeat(32)).is_err());
    assert_eq!(Name::new("\u{202e}abc\n").as_str(), "?abc?");
    assert_eq!(Name::new(&"ä".repeat(40)).as_str().len(), 64);
    assert_eq!(
        Name::new(&format!("a{}", "ä".repeat(40))).as_str().len(),
        63
    );
}
