//! The vectors in `docs/protocol/tunnel.md`, computed here a second time from the document's formulas alone.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;

use std::time::Duration;

use aws_lc_rs::{digest, hmac};
use common::*;
use tunnel::*;

const DOCUMENT: &str = include_str!("../../../docs/protocol/tunnel.md");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The values of the document's `text vectors` block: a name, then hexadecimal digits on one or more lines.
fn documented(name: &str) -> String {
    let block = DOCUMENT
        .split("```text vectors\n")
        .nth(1)
        .expect("a block of vectors")
        .split("```")
        .next()
        .unwrap();
    let mut value = None;
    for line in block.lines() {
        match (line.strip_prefix("  "), &mut value) {
            (Some(digits), Some(value)) => *value += digits,
            (Some(_), None) => {}
            (None, Some(_)) => break,
            (None, none) => *none = (line == name).then(String::new),
        }
    }
    value.unwrap_or_else(|| panic!("{name} is not in the document"))
}

#[track_caller]
fn check(name: &str, bytes: &[u8]) {
    assert_eq!(documented(name), hex(bytes), "{name}");
}

fn hmac256(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
        .as_ref()
        .to_vec()
}

fn sha256(parts: &[&[u8]]) -> Vec<u8> {
    digest::digest(&digest::SHA256, &parts.concat())
        .as_ref()
        .to_vec()
}

#[test]
fn the_documents_handshakes_are_what_this_crate_says() {
    for (suffix, binding, binding_bytes) in [
        ("", ChannelBinding::None, vec![0, 0, 0]),
        (
            " (bound)",
            ChannelBinding::TlsExporter([0xEB; 32]),
            [&[1, 0, 32][..], &[0xEB; 32]].concat(),
        ),
    ] {
        let client = ClientHandshake::new(client_config(), CLIENT_NONCE, binding.clone());
        let server = ServerHandshake::new(ServerConfig::default(), SERVER_NONCE, binding);
        let mut messages = Vec::new();
        let outcome = run(client, server, with_key, |_, bytes| {
            messages.push(bytes.clone());
            bytes
        });
        assert!(outcome.client.is_ok() && outcome.server.is_ok());
        let [hello, challenge, proof, accept, ..] = &messages[..] else {
            panic!("four messages")
        };

        let key = hmac256(
            b"a secret that nobody guesses",
            b"gt auth v1\0laptop.home_1-a",
        );
        let transcript = sha256(&[b"gt handshake v1\0", hello, challenge, &binding_bytes]);
        let client_proof = hmac256(&key, &[&b"client\0"[..], &transcript].concat());
        assert_eq!(proof[6..], client_proof);
        let (covered, field) = accept.split_at(accept.len() - 35);
        let transcript2 = sha256(&[
            b"gt handshake v1\0",
            hello,
            challenge,
            proof,
            covered,
            &binding_bytes,
        ]);
        let server_proof = hmac256(&key, &[&b"server\0"[..], &transcript2].concat());
        assert_eq!(field[3..], server_proof);

        for (name, bytes) in [
            ("magic and Hello", hello),
            ("Challenge", challenge),
            ("T", &transcript),
            ("Proof", proof),
            ("T'", &transcript2),
            ("Accept", accept),
        ] {
            println!("{name}{suffix}\n  {}", hex(bytes));
            check(&format!("{name}{suffix}"), bytes);
        }
        println!("K\n  {}", hex(&key));
        check("K", &key);
    }
}

#[test]
fn the_documents_other_messages_are_what_this_crate_says() {
    let service = ServiceDecl {
        host_prefix: Some(HostPrefix::new("shop").unwrap()),
        allow: vec!["10.0.0.0/8".parse().unwrap()],
        ..ServiceDecl::new(ServiceId(1), ServiceKind::Http)
    };
    let granted = Granted {
        endpoints: vec!["http://shop.example.com".into()],
        port: None,
    };
    let refusal = Refusal {
        code: RefusalCode::PortTaken,
        message: "22 is in use".into(),
    };
    let results = vec![
        ServiceResult {
            id: ServiceId(1),
            result: Ok(granted),
        },
        ServiceResult {
            id: ServiceId(2),
            result: Err(refusal),
        },
    ];
    let drain = Drain {
        deadline: Duration::from_secs(30),
        reason: "update".into(),
    };
    for (name, message) in [
        (
            "Services",
            ControlMessage::Services(Services {
                generation: 1,
                more: false,
                services: vec![service],
            }),
        ),
        (
            "ServicesAnswer",
            ControlMessage::ServicesAnswer(ServicesAnswer {
                generation: 1,
                more: false,
                results,
            }),
        ),
        ("Drain", ControlMessage::Drain(drain)),
    ] {
        let bytes = message.encode().unwrap();
        println!("{name}\n  {}", hex(&bytes));
        check(name, &bytes);
    }
    let mut server = server();
    server
        .reject(
            Rejection::new(RejectCode::Throttled, "slow down").retry_after(Duration::from_secs(5)),
        )
        .unwrap();
    let reject = server.output();
    println!("Reject\n  {}", hex(&reject));
    check("Reject", &reject);

    let header = StreamHeader {
        protocol: StreamProtocol::Http1,
        service: ServiceId(1),
        visitor: Some("192.0.2.7:50000".parse().unwrap()),
        local: Some("[2001:db8::1]:443".parse().unwrap()),
        server_name: Some(ServerName::new("shop.example.com").unwrap()),
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    println!("stream header\n  {}", hex(&bytes));
    check("stream header", &bytes);
}
