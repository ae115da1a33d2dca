//! What `Authority::parse` takes, refuses and normalises.

mod common;

use common::for_seeds;
use rand::Rng;
use sniff::host::{Authority, AuthorityError, Host};

fn parse(text: &str) -> Result<Authority, AuthorityError> {
    Authority::parse(text)
}

#[test]
fn names_are_lowered_and_lose_their_trailing_dot() {
    let a = parse("Alice.Example.COM.:8080").expect("good");
    assert_eq!(
        (a.name(), a.port(), a.first_label()),
        (Some("alice.example.com"), Some(8080), Some("alice"))
    );
    assert_eq!(a.to_string(), "alice.example.com:8080");
    assert_eq!(parse("a_b-c:").expect("good").to_string(), "a_b-c");
}

#[test]
fn a_single_label_is_its_own_prefix() {
    assert_eq!(
        parse("localhost:1").expect("good").first_label(),
        Some("localhost")
    );
}

#[test]
fn addresses_have_no_prefix() {
    for (text, shown) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.:80", "127.0.0.1:80"),
        ("[::1]", "[::1]"),
        ("[2001:DB8::1]:443", "[2001:db8::1]:443"),
        ("[::ffff:1.2.3.4]:", "[::ffff:1.2.3.4]"),
    ] {
        let a = parse(text).expect(text);
        assert!(matches!(a.host(), Host::Ip(_)), "{text}");
        assert_eq!(
            (a.first_label(), a.name(), a.to_string().as_str()),
            (None, None, shown)
        );
    }
}

#[test]
fn bounds_are_those_of_dns() {
    let label = "a".repeat(63);
    let longest = [&label[..], &label, &label, &label[..61]].join(".");
    assert_eq!(longest.len(), 253);
    assert!(parse(&longest).is_ok());
    assert!(parse(&format!("{longest}.")).is_ok());
    assert_eq!(parse(&format!("{longest}a")), Err(AuthorityError::TooLong));
    assert_eq!(parse(&"a".repeat(64)), Err(AuthorityError::TooLong));
}

#[test]
fn everything_else_is_refused() {
    use AuthorityError::*;
    for (text, error) in [
        ("", Empty),
        (":80", Empty),
        (".", EmptyLabel),
        ("a..b", EmptyLabel),
        (".a", EmptyLabel),
        ("a..", EmptyLabel),
        ("a b", BadCharacter),
        (" a", BadCharacter),
        ("a/b", BadCharacter),
        ("u@a", BadCharacter),
        ("a%2eb", BadCharacter),
        ("ä.de", BadCharacter),
        ("a,b", BadCharacter),
        ("a\0", BadCharacter),
        ("a:80:90", BadPort),
        ("::1", BadPort),
        ("a:65536", BadPort),
        ("a:-1", BadPort),
        ("a:+1", BadPort),
        ("a:000080", BadPort),
        ("a: 80", BadPort),
        ("[::1", BadIpv6),
        ("[::1%25eth0]", BadIpv6),
        ("[v1.x]", BadIpv6),
        ("[1.2.3.4]", BadIpv6),
        ("[]", BadIpv6),
        ("[::1]80", BadPort),
        ("[::1]:x", BadPort),
    ] {
        assert_eq!(parse(text), Err(error), "{text:?}");
    }
}

#[test]
fn what_is_shown_reads_back_as_the_same() {
    for_seeds(20_000, |rng| {
        let alphabet = b"aZ09-_..::[]1f@ ";
        let text: String = (0..rng.random_range(0..20))
            .map(|_| alphabet[rng.random_range(0..alphabet.len())] as char)
            .collect();
        if let Ok(a) = parse(&text) {
            assert_eq!(parse(&a.to_string()), Ok(a), "{text:?}");
        }
    });
}
