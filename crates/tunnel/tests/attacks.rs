//! What a hostile peer, or somebody between the two ends, can try.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;

use common::*;
use tunnel::*;

#[test]
fn a_wrong_secret_and_an_unknown_id_look_the_same_outside_and_different_inside() {
    let wrong = Key::derive(&Secret::new("another").unwrap(), &id());
    let answer = |server: &mut ServerHandshake, request: &AuthRequest| {
        assert!(!request.verify(&wrong));
        let error = server.accept_with_key(&wrong, grant()).unwrap_err();
        assert_eq!(error, HandshakeError::Auth(AuthFailure::WrongProof));
    };
    let wrong_secret = run(client(client_config()), server(), answer, untouched);
    let unknown_id = run(
        client(client_config()),
        server(),
        |s, _| s.reject_unknown_id().unwrap(),
        untouched,
    );
    assert_eq!(wrong_secret.recorded, unknown_id.recorded);
    assert_eq!(
        wrong_secret.server.unwrap_err(),
        HandshakeError::Auth(AuthFailure::WrongProof)
    );
    assert_eq!(
        unknown_id.server.unwrap_err(),
        HandshakeError::Auth(AuthFailure::UnknownId)
    );
    let HandshakeError::Rejected(rejection) = wrong_secret.client.unwrap_err() else {
        panic!("not rejected")
    };
    assert_eq!(rejection, Rejection::new(RejectCode::AuthFailed, ""));
}

#[test]
fn the_same_secret_under_another_id_does_not_fit() {
    let other = Key::derive(&secret(), &ClientId::new("other").unwrap());
    let answer = |server: &mut ServerHandshake, _: &AuthRequest| {
        let _ = server.accept_with_key(&other, grant());
    };
    let outcome = run(client(client_config()), server(), answer, untouched);
    assert!(outcome.client.is_err() && outcome.server.is_err());
}

#[test]
fn no_flipped_bit_of_a_handshake_leaves_both_ends_established() {
    let honest = honest();
    assert!(honest.client.is_ok() && honest.server.is_ok());
    // All bytes before Accept decide for both ends; Accept itself only for the client.
    let challenge = 3 + usize::from(u16::from_be_bytes([
        honest.recorded.1[1],
        honest.recorded.1[2],
    ]));
    for (way, length) in [
        (Way::ToServer, honest.recorded.0.len()),
        (Way::ToClient, honest.recorded.1.len()),
    ] {
        for offset in 0..length {
            for bit in 0..8 {
                let mut passed = 0;
                let outcome = run(
                    client(client_config()),
                    server(),
                    with_key,
                    |w, mut bytes| {
                        if w == way {
                            if let Some(byte) =
                                offset.checked_sub(passed).and_then(|at| bytes.get_mut(at))
                            {
                                *byte ^= 1 << bit;
                            }
                            passed += bytes.len();
                        }
                        bytes
                    },
                );
                assert!(outcome.client.is_err(), "{way:?} byte {offset} bit {bit}");
                if way == Way::ToServer || offset < challenge {
                    assert!(outcome.server.is_err(), "{way:?} byte {offset} bit {bit}");
                }
            }
        }
    }
}

#[test]
fn seeded_tampering_never_leaves_both_ends_established() {
    seeds(2000, |rng| {
        let mut touched = false;
        let outcome = run(
            client(client_config()),
            server(),
            with_key,
            |_, mut bytes| {
                if !bytes.is_empty() && rng.below(3) == 0 {
                    let before = bytes.clone();
                    let at = rng.below(bytes.len());
                    match rng.below(4) {
                        0 => bytes.truncate(at),
                        1 => bytes.insert(at, rng.next().to_le_bytes()[0]),
                        2 => bytes[at] = rng.next().to_le_bytes()[0],
                        _ => {
                            bytes.remove(at);
                        }
                    }
                    touched |= bytes != before;
                }
                bytes
            },
        );
        assert_eq!(
            touched,
            outcome.client.is_err() || outcome.server.is_err(),
            "{outcome:?}"
        );
    });
}

#[test]
fn a_replayed_client_is_refused() {
    let recorded = honest().recorded.0;
    let mut server = ServerHandshake::new(
        ServerConfig::default(),
        Nonce([0x77; 32]),
        ChannelBinding::None,
    );
    server.handle_input(&recorded).unwrap();
    let Some(ServerStep::Authenticate(request)) = server.poll_step() else {
        panic!("no question")
    };
    assert!(!request.verify(&key()));
    assert_eq!(
        server.accept_with_key(&key(), grant()),
        Err(HandshakeError::Auth(AuthFailure::WrongProof))
    );
    assert!(server.established().is_none());
}

#[test]
fn a_replayed_server_is_refused() {
    let recorded = honest().recorded.1;
    let mut client = ClientHandshake::new(client_config(), Nonce([0x77; 32]), ChannelBinding::None);
    assert_eq!(
        client.handle_input(&recorded),
        Err(HandshakeError::ServerUnproven)
    );
}

#[test]
fn a_clients_own_proof_does_not_come_back_as_the_servers() {
    let mut client = client(client_config());
    let mut server = server();
    server.handle_input(&client.output()).unwrap();
    client.handle_input(&server.output()).unwrap();
    let proof = client.output();
    let mut accept = fields(&honest().recorded.1[message_length(&honest().recorded.1)..]);
    accept.last_mut().unwrap().1 = fields(&proof)[0].1.clone();
    assert_eq!(
        client.handle_input(&message(4, &accept)),
        Err(HandshakeError::ServerUnproven)
    );
}

#[test]
fn a_server_without_the_key_cannot_prove() {
    let mut accept = fields(&honest().recorded.1[message_length(&honest().recorded.1)..]);
    for proof in [[0; 32], [0xFF; 32]] {
        for policy in [ServerProof::Required, ServerProof::Optional] {
            let config = ClientConfig {
                server_proof: policy,
                ..client_config()
            };
            let mut client = client(config);
            client
                .handle_input(&honest().recorded.1[..message_length(&honest().recorded.1)])
                .unwrap();
            accept.last_mut().unwrap().1 = proof.to_vec();
            let error = client.handle_input(&message(4, &accept)).unwrap_err();
            assert_eq!(
                error,
                HandshakeError::ServerUnproven,
                "a wrong proof is never optional"
            );
            assert!(client.established().is_none());
        }
    }
}

#[test]
fn a_proof_that_does_not_cover_the_whole_accept_is_refused() {
    let mut client = client(client_config());
    let challenge = message_length(&honest().recorded.1);
    client
        .handle_input(&honest().recorded.1[..challenge])
        .unwrap();
    let mut accept = fields(&honest().recorded.1[challenge..]);
    accept.push((200, b"added".to_vec()));
    let error = client.handle_input(&message(4, &accept)).unwrap_err();
    assert!(error.to_string().contains("not the last field"), "{error}");
}

#[test]
fn somebody_between_two_encrypted_channels_is_found_out() {
    let bound = |byte| ChannelBinding::TlsExporter([byte; 32]);
    for (client_side, server_side, good) in [(1, 1, true), (1, 2, false)] {
        let client = ClientHandshake::new(client_config(), CLIENT_NONCE, bound(client_side));
        let server =
            ServerHandshake::new(ServerConfig::default(), SERVER_NONCE, bound(server_side));
        let outcome = run(client, server, with_key, untouched);
        assert_eq!(outcome.client.is_ok(), good);
        assert_eq!(outcome.server.is_ok(), good);
        if !good {
            assert_eq!(
                outcome.server.unwrap_err(),
                HandshakeError::Auth(AuthFailure::WrongProof)
            );
        }
    }
}

#[test]
fn binding_is_agreed_by_policy() {
    use BindingPolicy::{Always, Optional, WhenPossible};
    let (none, bound) = (ChannelBinding::None, ChannelBinding::TlsExporter([1; 32]));
    for (client_side, server_side, policy, agreed) in [
        (&none, &none, WhenPossible, true),
        (&none, &none, Optional, true),
        (&none, &none, Always, false),
        (&none, &bound, WhenPossible, false),
        (&none, &bound, Always, false),
        (&none, &bound, Optional, true),
        (&bound, &none, WhenPossible, false),
        (&bound, &none, Optional, false),
        (&bound, &bound, Optional, true),
        (&bound, &bound, Always, true),
    ] {
        let client = ClientHandshake::new(client_config(), CLIENT_NONCE, client_side.clone());
        let config = ServerConfig {
            binding: policy,
            ..ServerConfig::default()
        };
        let server = ServerHandshake::new(config, SERVER_NONCE, server_side.clone());
        let outcome = run(client, server, with_key, untouched);
        assert_eq!(
            outcome.client.is_ok(),
            agreed,
            "{client_side:?} {server_side:?} {policy:?}"
        );
        match outcome.client {
            Ok(_) => assert_eq!(outcome.server.unwrap().client.binding, client_side.kind()),
            Err(HandshakeError::Rejected(r)) => assert_eq!(r.code, RejectCode::BindingMismatch),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_server_cannot_choose_what_was_not_offered() {
    for (fields, what) in [
        (
            vec![(1, vec![0, 2]), (2, vec![0; 8]), (3, vec![5; 32])],
            "protocol version",
        ),
        (
            vec![
                (1, vec![0, 1]),
                (2, vec![0, 0, 0, 0, 0, 0, 0, 1]),
                (3, vec![5; 32]),
            ],
            "feature",
        ),
    ] {
        let mut client = client(client_config());
        assert_eq!(
            client.handle_input(&message(2, &fields)),
            Err(HandshakeError::NotOffered(what))
        );
        let _hello = client.output();
        assert!(client.output().is_empty(), "nothing is proved to it");
    }
}

#[test]
fn a_hello_is_refused_for_every_missing_doubled_or_misshapen_field() {
    let all = fields(&honest().recorded.0[4..4 + message_length(&honest().recorded.0[4..])]);
    let optional = [7, 8];
    for (n, (tag, value)) in all.iter().enumerate() {
        let mut missing = all.clone();
        missing.remove(n);
        let mut doubled = all.clone();
        doubled.push((*tag, value.clone()));
        let mut longer = all.clone();
        longer[n].1.extend_from_slice(&[0xFF; 70]);
        for (fields, refused) in [
            (missing, !optional.contains(tag)),
            (doubled, true),
            (longer, true),
        ] {
            let mut server = server();
            let result = server.handle_input(&[&MAGIC[..], &message(1, &fields)].concat());
            assert_eq!(result.is_err(), refused, "tag {tag}: {result:?}");
            assert_eq!(server.output()[0], if refused { 5 } else { 2 });
        }
    }
    let mut more = all.clone();
    more.extend([(99, vec![1; 100]), (99, vec![]), (255, vec![2])]);
    server()
        .handle_input(&[&MAGIC[..], &message(1, &more)].concat())
        .expect("unknown tags are passed over");
}

#[test]
fn too_long_a_message_is_refused_by_its_head() {
    let mut server = server();
    server.handle_input(&MAGIC).unwrap();
    let error = server.handle_input(&[1, 0x0F, 0xFE]).unwrap_err();
    assert!(
        matches!(
            error,
            HandshakeError::Malformed {
                error: DecodeError::TooLong,
                ..
            }
        ),
        "{error}"
    );
    let mut client = client(client_config());
    assert!(client.handle_input(&[2, 0xFF, 0xFF]).is_err());
}

#[test]
fn a_truncated_handshake_never_establishes_and_never_errs_early() {
    let recorded = honest().recorded;
    for end in 0..recorded.1.len() {
        let mut client = client(client_config());
        assert_eq!(client.handle_input(&recorded.1[..end]), Ok(end));
        assert!(client.established().is_none());
        assert!(matches!(client.closed(), HandshakeError::Closed(_)));
    }
    for end in 0..recorded.0.len() {
        let mut server = server();
        assert_eq!(server.handle_input(&recorded.0[..end]), Ok(end));
        assert!(server.poll_step().is_none());
        assert!(matches!(server.closed(), HandshakeError::Closed(_)));
    }
}

#[test]
fn messages_out_of_order_are_refused() {
    let recorded = honest().recorded;
    let hello_end = 4 + message_length(&recorded.0[4..]);
    let mut early_proof = server();
    let error = early_proof
        .handle_input(&[&MAGIC[..], &recorded.0[hello_end..]].concat())
        .unwrap_err();
    assert_eq!(
        error,
        HandshakeError::Unexpected {
            got: 3,
            expected: "Hello"
        }
    );
    let mut two_hellos = server();
    two_hellos.handle_input(&recorded.0[..hello_end]).unwrap();
    let error = two_hellos
        .handle_input(&recorded.0[4..hello_end])
        .unwrap_err();
    assert_eq!(
        error,
        HandshakeError::Unexpected {
            got: 1,
            expected: "Proof"
        }
    );
    let mut two_challenges = client(client_config());
    let challenge = &recorded.1[..message_length(&recorded.1)];
    two_challenges.handle_input(challenge).unwrap();
    assert_eq!(
        two_challenges.handle_input(challenge),
        Err(HandshakeError::Unexpected {
            got: 2,
            expected: "Accept"
        })
    );
}

fn message_length(bytes: &[u8]) -> usize {
    3 + usize::from(u16::from_be_bytes([bytes[1], bytes[2]]))
}
