//! Control messages and service sets: what goes in comes out, and what breaks a bound does not.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;

use std::{net::IpAddr, time::Duration};

use common::{Rng, field, seeds};
use tunnel::*;

fn round_trip(message: &ControlMessage) {
    let bytes = message.encode().unwrap();
    assert!(bytes.len() <= MAX_CONTROL);
    assert_eq!(
        ControlMessage::decode(&bytes).unwrap().as_ref(),
        Some(message)
    );
}

fn full_service(id: u16) -> ServiceDecl {
    ServiceDecl {
        name: Name::new("web"),
        host_prefix: Some(HostPrefix::new("Shop").unwrap()),
        host: Some(HostName::new("API.example.com.").unwrap()),
        port: Some(10_022),
        port_random: true,
        allow: vec![
            "10.0.0.0/8".parse().unwrap(),
            "2001:db8::/32".parse().unwrap(),
        ],
        deny: vec!["10.1.2.3".parse().unwrap()],
        load_balance: Some(Name::new("group")),
        bandwidth: Some(1 << 40),
        http: Some(HttpMode {
            behind: 7,
            one_visitor: true,
            http2: true,
            host: Some("localhost:3000".into()),
        }),
        rules: HttpRules {
            request: FieldRules {
                set: vec![("x-a".into(), "{clientIp}: a".into())],
                add: vec![("x-b".into(), "".into())],
                remove: vec!["cookie".into()],
            },
            response: FieldRules {
                remove: vec!["server".into(), "x-powered-by".into()],
                ..FieldRules::default()
            },
            auth: Some(AuthRules {
                realm: "private".into(),
                users: vec![("ann".into(), "$2y$05$hash".into())],
                user_header: Some("x-user".into()),
            }),
        },
        down: true,
        ..ServiceDecl::new(ServiceId(id), ServiceKind::Http)
    }
}

fn arbitrary_service(rng: &mut Rng, id: u16) -> ServiceDecl {
    let cidrs = |rng: &mut Rng| -> Vec<Cidr> {
        (0..rng.below(12))
            .map(|_| {
                let bits = u128::from(rng.next()) << 64 | u128::from(rng.next());
                let v4 = rng.below(2) == 0;
                let address = if v4 {
                    IpAddr::V4((rng.next() as u32).into())
                } else {
                    IpAddr::V6(bits.into())
                };
                Cidr::new(address, rng.below(if v4 { 33 } else { 129 }) as u8).unwrap()
            })
            .collect()
    };
    let (allow, deny) = (cidrs(rng), cidrs(rng));
    ServiceDecl {
        name: Name::new(&"näme\t".repeat(rng.below(20))),
        host_prefix: (rng.below(2) == 0)
            .then(|| HostPrefix::new(&"x".repeat(1 + rng.below(63))).unwrap()),
        host: (rng.below(2) == 0).then(|| HostName::new(&"ab.".repeat(1 + rng.below(80))).unwrap()),
        port: (rng.below(2) == 0).then(|| rng.next() as u16),
        port_random: rng.below(2) == 0,
        allow,
        deny,
        load_balance: (rng.below(2) == 0).then(|| Name::new("g")),
        bandwidth: (rng.below(2) == 0).then(|| rng.next() | 1),
        http: (rng.below(2) == 0).then(|| HttpMode {
            behind: rng.next() as u32,
            one_visitor: rng.below(2) == 0,
            http2: rng.below(2) == 0,
            host: (rng.below(2) == 0).then(|| "h".repeat(1 + rng.below(270)).into()),
        }),
        rules: arbitrary_rules(rng),
        down: rng.below(2) == 0,
        ..ServiceDecl::new(ServiceId(id), ServiceKind::from(rng.next() as u8))
    }
}

fn arbitrary_rules(rng: &mut Rng) -> HttpRules {
    let pairs = |rng: &mut Rng, most: usize| -> Vec<(Box<str>, Box<str>)> {
        let pair = |n| (format!("n{n}").into(), ":v".repeat(n % 7).into());
        (0..rng.below(most)).map(pair).collect()
    };
    let fields = |rng: &mut Rng| FieldRules {
        set: pairs(rng, 5),
        add: pairs(rng, 5),
        remove: (0..rng.below(5)).map(|n| format!("r{n}").into()).collect(),
    };
    let users = pairs(rng, 20);
    HttpRules {
        request: fields(rng),
        response: fields(rng),
        auth: (!users.is_empty()).then(|| AuthRules {
            realm: "r".repeat(rng.below(64)).into(),
            users,
            user_header: (rng.below(2) == 0).then(|| "x-user".into()),
        }),
    }
}

#[test]
fn rules_over_their_bounds_are_neither_sent_nor_read() {
    let with = |rules: HttpRules| ServiceDecl {
        rules,
        ..ServiceDecl::new(ServiceId(1), ServiceKind::Http)
    };
    let set = |set| HttpRules {
        request: FieldRules {
            set,
            ..FieldRules::default()
        },
        ..HttpRules::default()
    };
    let refused = |rules| Services::parts(1, vec![with(rules)]).is_err();
    assert!(!refused(set(vec![("x".into(), "y".repeat(8000).into())])));
    assert!(refused(set(vec![("x".into(), "y".repeat(8192).into())])));
    assert!(refused(set(vec![("x".into(), "y".into()); 65])));
    // Its end would be taken for a part of the value.
    assert!(refused(set(vec![("x:y".into(), "z".into())])));
    let nobody = AuthRules {
        realm: "gt".into(),
        ..AuthRules::default()
    };
    assert!(refused(HttpRules {
        auth: Some(nobody),
        ..HttpRules::default()
    }));
    // All services of a session together.
    let long = set(vec![("x".into(), "y".repeat(8000).into())]);
    let many = |count: u16| -> Vec<ServiceDecl> {
        let one = |id| ServiceDecl {
            rules: long.clone(),
            ..ServiceDecl::new(ServiceId(id), ServiceKind::Http)
        };
        (1..=count).map(one).collect()
    };
    assert!(Services::parts(1, many(32)).is_ok());
    assert!(Services::parts(1, many(33)).is_err());
    let mut arriving = Assembler::<ServiceDecl>::default();
    let part = Services {
        generation: 1,
        more: false,
        services: many(33),
    };
    assert_eq!(arriving.push(part), Err(SetError::TooManyRules));
}

#[test]
fn every_message_survives_the_wire() {
    round_trip(&ControlMessage::Services(Services {
        generation: 7,
        more: true,
        services: vec![full_service(3)],
    }));
    round_trip(&ControlMessage::Services(Services {
        generation: 0,
        more: false,
        services: vec![],
    }));
    round_trip(&ControlMessage::ServicesAnswer(ServicesAnswer {
        generation: u32::MAX,
        more: false,
        results: vec![
            ServiceResult {
                id: ServiceId(0),
                result: Ok(Granted {
                    endpoints: vec![
                        "http://abc.example.com:8080".into(),
                        "tcp://0.0.0.0:10022".into(),
                    ],
                    port: Some(10_022),
                }),
            },
            ServiceResult {
                id: ServiceId(65_535),
                result: Err(Refusal {
                    code: RefusalCode::PrefixTaken,
                    message: "by somebody else".into(),
                }),
            },
            ServiceResult {
                id: ServiceId(1),
                result: Ok(Granted::default()),
            },
        ],
    }));
    round_trip(&ControlMessage::Leave);
    round_trip(&ControlMessage::LeaveLink(3));
    round_trip(&ControlMessage::Drain(Drain {
        deadline: Duration::from_millis(30_001),
        reason: "update".into(),
    }));
    round_trip(&ControlMessage::Goodbye(Goodbye {
        code: GoodbyeCode::Unknown(77),
        message: Message::default(),
    }));
    round_trip(&ControlMessage::Notice(Notice {
        level: NoticeLevel::Warning,
        text: "quota: 80 %".into(),
    }));
}

#[test]
fn arbitrary_sets_survive_cutting_and_assembling() {
    seeds(60, |rng| {
        let count = [0, 1, 40, MAX_SERVICES][rng.below(4)];
        let mut services: Vec<_> = (0..count)
            .map(|id| arbitrary_service(rng, id as u16))
            .collect();
        for service in services.iter_mut().skip(400) {
            service.allow.clear();
            service.deny.clear();
        }
        let (mut assembler, mut whole) = (Assembler::<ServiceDecl>::default(), None);
        let messages = Services::parts(5, services.clone()).unwrap();
        for (n, message) in messages.iter().enumerate() {
            let bytes = message.encode().unwrap();
            assert!(bytes.len() <= MAX_PART, "{}", bytes.len());
            let Some(ControlMessage::Services(part)) = ControlMessage::decode(&bytes).unwrap()
            else {
                panic!()
            };
            assert_eq!(part.more, n + 1 < messages.len());
            assert!(whole.is_none());
            whole = assembler.push(part).unwrap();
        }
        assert_eq!(whole, Some((5, services)));
    });
}

#[test]
fn the_longest_answers_and_services_fit_a_part() {
    let endpoint = Endpoint::new(&"e".repeat(400));
    let granted = Granted {
        endpoints: vec![endpoint; MAX_ENDPOINTS],
        port: Some(1),
    };
    let results: Vec<_> = (0..1024)
        .map(|id| ServiceResult {
            id: ServiceId(id),
            result: Ok(granted.clone()),
        })
        .collect();
    let mut assembler = Assembler::<ServiceResult>::default();
    let mut whole = None;
    for message in ServicesAnswer::parts(1, results.clone()).unwrap() {
        assert!(message.encode().unwrap().len() <= MAX_PART);
        let ControlMessage::ServicesAnswer(part) = message else {
            panic!()
        };
        whole = assembler.push(part).unwrap();
    }
    assert_eq!(whole, Some((1, results)));
    let range: Cidr = "aaaa:bbbb:cccc:dddd:eeee:ffff:aaaa:bbbb/128"
        .parse()
        .unwrap();
    let service = ServiceDecl {
        allow: vec![range; MAX_CIDRS],
        deny: vec![range; MAX_CIDRS],
        rules: HttpRules {
            request: FieldRules {
                set: vec![("x".into(), "y".repeat(MAX_RULES - 5).into())],
                ..FieldRules::default()
            },
            ..HttpRules::default()
        },
        ..full_service(1)
    };
    let [message] = &Services::parts(1, vec![service]).unwrap()[..] else {
        panic!("more than one part")
    };
    round_trip(message);
}

#[test]
fn a_newer_set_replaces_one_that_is_still_arriving() {
    let part = |generation, more, id| Services {
        generation,
        more,
        services: vec![full_service(id)],
    };
    let mut assembler = Assembler::<ServiceDecl>::default();
    assert_eq!(assembler.push(part(1, true, 1)), Ok(None));
    assert_eq!(assembler.push(part(2, true, 1)), Ok(None));
    assert_eq!(
        assembler.push(part(1, false, 2)),
        Err(SetError::OldGeneration { got: 1, last: 2 }),
        "the older one is not resumed"
    );
    assert_eq!(
        assembler.push(part(3, false, 9)),
        Ok(Some((3, vec![full_service(9)])))
    );
    assert_eq!(
        assembler.push(part(3, false, 9)),
        Err(SetError::OldGeneration { got: 3, last: 3 })
    );
}

#[test]
fn a_late_part_of_an_older_set_does_not_harm_the_newer_one() {
    let part = |generation, more, id| Services {
        generation,
        more,
        services: vec![full_service(id)],
    };
    let mut assembler = Assembler::<ServiceDecl>::default();
    assert_eq!(assembler.push(part(2, true, 1)), Ok(None));
    // From another link of the session.
    assert_eq!(
        assembler.push(part(1, false, 1)),
        Err(SetError::OldGeneration { got: 1, last: 2 })
    );
    let whole = vec![full_service(1), full_service(2)];
    assert_eq!(assembler.push(part(2, false, 2)), Ok(Some((2, whole))));
}

#[test]
fn sets_over_a_bound_are_refused_on_both_ends() {
    let plain = |id: usize| ServiceDecl::new(ServiceId(id as u16), ServiceKind::Tcp);
    let too_many: Vec<_> = (0..=MAX_SERVICES).map(plain).collect();
    assert_eq!(
        Services::parts(1, too_many.clone()),
        Err(DecodeError::TooMany("services"))
    );
    let mut assembler = Assembler::<ServiceDecl>::default();
    let (first, second) = too_many.split_at(1000);
    let push = |assembler: &mut Assembler<ServiceDecl>, more, services: &[ServiceDecl]| {
        assembler.push(Services {
            generation: 1,
            more,
            services: services.to_vec(),
        })
    };
    assert_eq!(push(&mut assembler, true, first), Ok(None));
    assert_eq!(
        push(&mut assembler, false, second),
        Err(SetError::TooManyServices)
    );

    let twice = [plain(4), plain(4)];
    assert_eq!(
        Services::parts(1, twice.to_vec()),
        Err(DecodeError::Duplicate("id"))
    );
    assert_eq!(
        push(&mut Assembler::<ServiceDecl>::default(), false, &twice),
        Err(SetError::DuplicateId(ServiceId(4)))
    );

    let range: Cidr = "10.0.0.0/8".parse().unwrap();
    let wide: Vec<_> = (0..129)
        .map(|id| ServiceDecl {
            allow: vec![range; MAX_CIDRS],
            ..plain(id)
        })
        .collect();
    assert_eq!(
        Services::parts(1, wide.clone()),
        Err(DecodeError::TooMany("address ranges"))
    );
    assert_eq!(
        push(&mut Assembler::<ServiceDecl>::default(), false, &wide),
        Err(SetError::TooManyRanges)
    );

    let too_wide = ServiceDecl {
        deny: vec![range; MAX_CIDRS + 1],
        ..plain(1)
    };
    assert_eq!(
        Services::parts(1, vec![too_wide]),
        Err(DecodeError::TooMany("deny"))
    );
}

#[test]
fn a_message_that_is_too_long_is_not_made_and_not_read() {
    let services: Vec<_> = (0..1024).map(full_service).collect();
    let whole = ControlMessage::Services(Services {
        generation: 1,
        more: false,
        services,
    });
    assert_eq!(whole.encode(), Err(DecodeError::TooLong));
    assert_eq!(
        ControlMessage::decode(&vec![5; MAX_CONTROL + 1]),
        Err(DecodeError::TooLong)
    );
}

#[test]
fn unknown_messages_and_fields_are_passed_over() {
    assert_eq!(ControlMessage::decode(&[0]), Ok(None));
    assert_eq!(ControlMessage::decode(&[99, 1, 2, 3]), Ok(None));
    let drain = Drain {
        deadline: Duration::ZERO,
        reason: "r".into(),
    };
    let mut bytes = ControlMessage::Drain(drain.clone()).encode().unwrap();
    bytes.extend(field(200, b"later"));
    assert_eq!(
        ControlMessage::decode(&bytes),
        Ok(Some(ControlMessage::Drain(drain)))
    );
}

#[test]
fn misshapen_messages_are_refused() {
    for (bytes, error) in [
        (vec![], DecodeError::Truncated),
        (vec![3, 1, 0, 4, 0], DecodeError::Truncated),
        (vec![3, 1, 0], DecodeError::Truncated),
        (vec![3], DecodeError::Missing("deadline_ms")),
        (
            [vec![4], field(1, &[0, 1]), field(1, &[0, 1])].concat(),
            DecodeError::Duplicate("code"),
        ),
        (
            [vec![5], field(1, &[1]), field(2, &[b'x'; 257])].concat(),
            DecodeError::Invalid {
                field: "text",
                why: "too long",
            },
        ),
        (
            [vec![5], field(1, &[1]), field(2, b"\xFF")].concat(),
            DecodeError::Invalid {
                field: "text",
                why: "not UTF-8",
            },
        ),
        (
            [vec![1], field(2, b"")].concat(),
            DecodeError::Missing("generation"),
        ),
    ] {
        assert_eq!(ControlMessage::decode(&bytes), Err(error), "{bytes:?}");
    }
}

#[test]
fn the_sender_of_each_message_is_known() {
    let services = ControlMessage::Services(Services {
        generation: 1,
        more: false,
        services: vec![],
    });
    let goodbye = ControlMessage::Goodbye(Goodbye {
        code: GoodbyeCode::Done,
        message: Message::default(),
    });
    assert_eq!(services.sender(), Some(Role::Client));
    assert_eq!(goodbye.sender(), None);
}

#[test]
fn host_names_and_ranges_are_checked() {
    for bad in ["", "-a", "a-", "a.b", "ä", "a b", &"x".repeat(64)] {
        assert!(HostPrefix::new(bad).is_err(), "{bad}");
    }
    for bad in [
        "",
        ".",
        "a..b",
        ".a",
        "a.b..",
        "*.example.com",
        "a/b",
        &"abc.".repeat(64),
    ] {
        assert!(HostName::new(bad).is_err(), "{bad}");
    }
    assert_eq!(
        HostName::new("Example.COM.").unwrap().as_str(),
        "example.com"
    );
    for bad in [
        "",
        "/",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/+8",
        "10.0.0.0/",
        "10.0.0/8",
        "10.0.0.0/8/8",
        "::1%lo/64",
    ] {
        assert!(bad.parse::<Cidr>().is_err(), "{bad}");
    }
}

#[test]
fn ranges_contain_what_they_say() {
    for (range, address, inside) in [
        ("10.0.0.0/8", "10.255.0.1", true),
        ("10.0.0.0/8", "11.0.0.0", false),
        ("10.0.0.0/8", "::ffff:10.1.1.1", true),
        ("10.0.0.0/8", "::10.1.1.1", false),
        ("::ffff:10.0.0.0/104", "10.2.3.4", true),
        ("0.0.0.0/0", "255.255.255.255", true),
        ("0.0.0.0/0", "::1", false),
        ("::/0", "2001:db8::1", true),
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.0", false),
        ("2001:db8::/33", "2001:db8:8000::", false),
        ("2001:db8::1", "2001:db8::1", true),
    ] {
        let range: Cidr = range.parse().unwrap();
        assert_eq!(
            range.contains(address.parse().unwrap()),
            inside,
            "{range} {address}"
        );
    }
}
