//! Who may pass: addresses, rates, passwords.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::{net::IpAddr, time::Duration};

use common::seeded;
use ipnet::IpNet;
use rand::Rng;
use route::{
    AuthDecision, AuthTable, BasicAuth, CredentialError, Headers, IpRules, IpSet, NoHeaders,
    PasswordHash, RateDecision, RateKey, RateLimit, RateTable,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn set(networks: &[&str]) -> IpSet {
    networks
        .iter()
        .map(|net| net.parse::<IpNet>().unwrap())
        .collect()
}

#[test]
fn a_set_holds_what_its_networks_hold() {
    seeded(20, |random| {
        let networks: Vec<IpNet> = (0..random.random_range(0..30))
            .map(|_| match random.random_bool(0.5) {
                // Few bits, so that networks overlap and addresses meet them.
                true => IpNet::new(
                    IpAddr::V4((random.random::<u32>() & 0x0f00_00ff).into()),
                    random.random_range(4..=32),
                )
                .unwrap(),
                false => IpNet::new(
                    IpAddr::V6((u128::from(random.random::<u8>()) << 100).into()),
                    random.random_range(16..=128),
                )
                .unwrap(),
            })
            .collect();
        let set: IpSet = networks.iter().copied().collect();
        for _ in 0..300 {
            let ip = match random.random_bool(0.5) {
                true => IpAddr::V4((random.random::<u32>() & 0x0f00_00ff).into()),
                false => IpAddr::V6((u128::from(random.random::<u8>()) << 100).into()),
            };
            assert_eq!(
                set.contains(ip),
                networks.iter().any(|net| net.contains(&ip)),
                "{ip} in {networks:?}"
            );
        }
    });
}

#[test]
fn ipv4_is_the_same_when_it_is_mapped_into_ipv6() {
    let plain = set(&["192.0.2.0/24"]);
    assert!(plain.contains(ip("::ffff:192.0.2.7")) && !plain.contains(ip("::ffff:192.0.3.7")));
    let mapped = set(&["::ffff:192.0.2.0/120"]);
    assert!(mapped.contains(ip("192.0.2.7")) && !mapped.contains(ip("192.0.3.7")));
    assert!(set(&["::ffff:0:0/96"]).contains(ip("8.8.8.8")));
    assert!(
        set(&["0.0.0.0/0"]).contains(ip("8.8.8.8"))
            && !set(&["0.0.0.0/0"]).contains(ip("2001:db8::1"))
    );
}

#[test]
fn deny_wins_and_an_empty_allow_means_all() {
    let rules = IpRules {
        allow: set(&["10.0.0.0/8"]),
        deny: set(&["10.1.0.0/16"]),
    };
    assert!(rules.permits(ip("10.0.0.1")));
    assert!(!rules.permits(ip("10.1.0.1")) && !rules.permits(ip("192.0.2.1")));
    let deny_only = IpRules {
        deny: set(&["::/0"]),
        ..IpRules::default()
    };
    assert!(deny_only.permits(ip("192.0.2.1")) && !deny_only.permits(ip("2001:db8::1")));
}

fn limited(decision: RateDecision) -> Option<Duration> {
    match decision {
        RateDecision::Allowed => None,
        RateDecision::Limited { retry_after } => Some(retry_after),
    }
}

#[test]
fn a_bucket_gives_its_burst_and_then_its_rate() {
    let limit = RateLimit::new(RateKey::Ip, 10, Duration::from_secs(1), 5);
    let mut table = RateTable::new(RateTable::DEFAULT_CAPACITY, 7);
    let mut at =
        |ms, ip: IpAddr| limited(table.check(&limit, Duration::from_millis(ms), ip, &NoHeaders));
    let visitor = ip("192.0.2.1");
    assert!((0..5).all(|_| at(1000, visitor).is_none()));
    assert_eq!(at(1000, visitor), Some(Duration::from_millis(100)));
    assert_eq!(at(1050, visitor), Some(Duration::from_millis(50)));
    assert_eq!(
        at(1000, ip("192.0.2.2")),
        None,
        "another visitor has a bucket of their own"
    );
    assert_eq!(at(1100, visitor), None);
    assert!(at(1100, visitor).is_some());
    assert!((0..5).all(|_| at(60_000, visitor).is_none()));
    assert!(at(60_000, visitor).is_some());
}

#[test]
fn one_ipv6_network_is_one_visitor() {
    let limit = RateLimit::new(RateKey::Ip, 1, Duration::from_secs(1), 1);
    let mut table = RateTable::new(64, 7);
    let mut at =
        |text| limited(table.check(&limit, Duration::from_secs(1), ip(text), &NoHeaders)).is_none();
    assert!(at("2001:db8::1") && !at("2001:db8::2") && at("2001:db8:0:1::1"));
    assert!(at("192.0.2.1") && !at("::ffff:192.0.2.1"));
}

struct Field(&'static str, Vec<u8>);

impl Headers for Field {
    fn nth(&self, name: &str, n: usize) -> Option<&[u8]> {
        (n == 0 && name == self.0).then_some(&self.1)
    }
}

#[test]
fn a_field_can_be_the_key() {
    let limit = RateLimit::new(
        RateKey::Header("x-key".into()),
        1,
        Duration::from_secs(1),
        1,
    );
    let mut table = RateTable::new(64, 7);
    let mut at = |headers: &dyn Headers| {
        limited(table.check(&limit, Duration::from_secs(1), ip("::1"), headers)).is_none()
    };
    let key = |text: &str| Field("x-key", text.into());
    assert!(at(&key("a")) && !at(&key("a")) && at(&key("b")));
    assert!(
        at(&NoHeaders) && !at(&NoHeaders),
        "those without it share one"
    );
}

#[test]
fn no_visitor_passes_more_often_than_the_rate_and_quiet_ones_are_not_limited() {
    seeded(10, |random| {
        // Far more visitors than there is room for.
        let limit = RateLimit::new(RateKey::Ip, 5, Duration::from_secs(1), 10);
        let mut table = RateTable::new(4096, random.random());
        let mut passed = 0;
        for ms in 0..10_000u64 {
            let now = Duration::from_millis(ms);
            if limited(table.check(&limit, now, ip("192.0.2.1"), &NoHeaders)).is_none() {
                passed += 1;
            }
            let other = IpAddr::V4((0x0a00_0000 | random.random_range(0..100_000u32)).into());
            assert_eq!(
                limited(table.check(&limit, now, other, &NoHeaders)),
                None,
                "it comes every 100 s"
            );
        }
        assert!(
            (55..=61).contains(&passed),
            "{passed} of at most 10 + 5 × 10 s"
        );
    });
}

// Made with: htpasswd -nbBC 4 ann secret
const ANN: &str = "$2y$04$wXSYmw5a1qkJ0X9lXyJmSuFcsVVKwI1Tk7cvGJ3XOpnc9jmEvCqDq";

fn basic(text: &str) -> Field {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut value = b"Basic ".to_vec();
    for group in text.as_bytes().chunks(3) {
        let mut bytes = [0; 4];
        bytes[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bytes);
        for n in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * n) & 63) as usize];
            value.push(if n <= group.len() { digit } else { b'=' });
        }
    }
    Field("authorization", value)
}

fn users(entries: &[(&str, &str)]) -> BasicAuth {
    let entries = entries
        .iter()
        .map(|(name, hash)| ((*name).to_owned(), PasswordHash::new(hash).unwrap()));
    BasicAuth::new("my \"site\"", entries).unwrap()
}

#[test]
fn plain_passwords_are_checked_at_once() {
    let auth = users(&[("bob", "pass:word"), ("eve", "x")]);
    let table = AuthTable::new(&[1; 32]);
    let passes = |text: &str| {
        matches!(
            auth.check(&table, Duration::ZERO, &basic(text)),
            AuthDecision::Allowed { .. }
        )
    };
    assert!(passes("bob:pass:word") && passes("eve:x"));
    for wrong in [
        "bob:pass:wor",
        "bob:",
        "bob",
        ":",
        "eve:pass:word",
        "BOB:pass:word",
        "nobody:x",
        "",
    ] {
        assert!(!passes(wrong), "{wrong}");
    }
    assert!(matches!(
        auth.check(&table, Duration::ZERO, &NoHeaders),
        AuthDecision::Refused
    ));
    assert_eq!(
        auth.challenge(),
        "Basic realm=\"my site\", charset=\"UTF-8\""
    );
}

#[test]
fn hashed_passwords_are_checked_once_and_then_known_for_a_while() {
    let hash = bcrypt::hash("secret", 4).unwrap();
    let auth = users(&[("ann", &hash)]);
    let mut table = AuthTable::new(&[1; 32]);
    let at = Duration::from_secs;
    let AuthDecision::Check { user, check } = auth.check(&table, at(1), &basic("ann:secret"))
    else {
        panic!()
    };
    assert_eq!(user, "ann");
    table.accept(check.run().unwrap(), at(1));
    assert!(matches!(
        auth.check(&table, at(300), &basic("ann:secret")),
        AuthDecision::Allowed { user: "ann" }
    ));
    assert!(matches!(
        auth.check(&table, at(301), &basic("ann:secret")),
        AuthDecision::Check { .. }
    ));
    for wrong in ["ann:Secret", "bob:secret"] {
        let AuthDecision::Check { check, .. } = auth.check(&table, at(2), &basic(wrong)) else {
            panic!()
        };
        assert!(check.run().is_none(), "{wrong}");
    }
    assert!(!format!("{auth:?} {table:?}").contains("secret"));
}

#[test]
fn the_table_of_good_passwords_is_bounded_and_forgets_the_oldest() {
    // bcrypt looks at 72 bytes, so that one hash has many passwords.
    let common = "x".repeat(72);
    let hash = bcrypt::hash(&common, 4).unwrap();
    let auth = users(&[("ann", &hash)]);
    let mut table = AuthTable::new(&[1; 32]);
    let sent = |n: usize| basic(&format!("ann:{common}{n}"));
    for n in 0..AuthTable::CAPACITY + 10 {
        let now = Duration::from_millis(n as u64);
        let AuthDecision::Check { check, .. } = auth.check(&table, now, &sent(n)) else {
            panic!("{n} was known")
        };
        table.accept(check.run().unwrap(), now);
    }
    assert_eq!(format!("{table:?}"), "AuthTable(1024 of 1024)");
    let known = |n| {
        matches!(
            auth.check(&table, Duration::from_secs(2), &sent(n)),
            AuthDecision::Allowed { .. }
        )
    };
    assert!(!known(9) && known(10) && known(1033));
}

#[test]
fn credentials_that_are_no_credentials_are_refused() {
    let auth = users(&[("bob", "x")]);
    let table = AuthTable::new(&[1; 32]);
    let long = format!("Basic {}", "A".repeat(5000));
    for value in [
        "",
        "Basic",
        "Basic ",
        "Bearer Ym9iOng=",
        "Basic Ym9iOn=",
        "Basic Ym9iOng=!",
        "Basic /w==",
        &long,
    ] {
        let field = Field("authorization", value.into());
        assert!(
            matches!(
                auth.check(&table, Duration::ZERO, &field),
                AuthDecision::Refused
            ),
            "{value}"
        );
    }
    let unpadded = Field("authorization", b"bAsIc Ym9iOng".to_vec());
    assert!(matches!(
        auth.check(&table, Duration::ZERO, &unpadded),
        AuthDecision::Allowed { user: "bob" }
    ));
    struct Twice(Field);
    impl Headers for Twice {
        fn nth(&self, name: &str, n: usize) -> Option<&[u8]> {
            self.0.nth(name, n.saturating_sub(1))
        }
    }
    assert!(matches!(
        auth.check(&table, Duration::ZERO, &Twice(basic("bob:x"))),
        AuthDecision::Refused
    ));
}

#[test]
fn bad_users_and_passwords_are_refused() {
    assert!(PasswordHash::new(ANN).is_ok());
    for hash in [
        "$2y$",
        "$2y$15$wXSYmw5a1qkJ0X9lXyJmSuFcsVVKwI1Tk7cvGJ3XOpnc9jmEvCqDq",
        &ANN[..59],
        "$2y$04$wXSYmw5a1qkJ0X9lXyJmSuFcsVVKwI1Tk7cvGJ3XOpnc9jmEvCq!!",
    ] {
        assert_eq!(
            PasswordHash::new(hash).err(),
            Some(CredentialError::Hash),
            "{hash}"
        );
    }
    assert_eq!(PasswordHash::new("").err(), Some(CredentialError::Password));
    for name in ["", "a:b", "a\nb", &"x".repeat(129)] {
        let user = (name.to_owned(), PasswordHash::new("x").unwrap());
        assert_eq!(
            BasicAuth::new("", [user]).err(),
            Some(CredentialError::User),
            "{name}"
        );
    }
}
