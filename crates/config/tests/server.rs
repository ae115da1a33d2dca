//! What a server's file and flags become.

mod common;

use std::{num::NonZeroU64, time::Duration};

use common::{World, refused};
use config::{Certificate, LogFormat, LogLevel, TlsVersion};

const MIN: &str = "options: {addr: 80, id: a, secret: s}";

#[test]
fn the_benchmark_command_line_works() {
    let server = World::default()
        .server_flags("-addr 12080 -id id1 -secret secret1")
        .expect("it loads");
    assert_eq!(
        server.listeners.plain.map(|a| a.to_string()).as_deref(),
        Some("0.0.0.0:12080")
    );
    assert_eq!(server.users["id1"].secret.expose(), "secret1");
    assert!(server.warnings.is_empty());
}

#[test]
fn defaults_are_those_of_the_specification() {
    let server = World::default().server(MIN).expect("it loads");
    let user = &server.users["a"];
    assert_eq!(
        (
            user.limits.connections,
            user.limits.tcp_number,
            user.limits.host_number
        ),
        (10, 0, 0)
    );
    assert_eq!(
        (
            user.limits.speed,
            user.load_balance,
            user.limits.host_with_id
        ),
        (None, false, false)
    );
    assert!(user.limits.tcp_ranges.is_empty() && user.limits.host_regex.is_empty());
    assert_eq!(
        (server.throttle.failures, server.throttle.block),
        (3, Duration::from_secs(300))
    );
    assert_eq!(
        (server.timeouts.idle.after, server.timeouts.idle.one_way),
        (Some(Duration::from_secs(90)), false)
    );
    assert_eq!(
        (server.timeouts.handshake, server.timeouts.header),
        (Duration::from_secs(10), Duration::from_secs(10))
    );
    assert_eq!(
        (server.http_mux_header.as_str(), server.tls_min_version),
        ("host", TlsVersion::V1_2)
    );
    assert_eq!(
        (server.workers, server.allow_any_client, server.log.level),
        (None, false, None)
    );
    assert_eq!((server.log.max_size, server.log.max_count), (512 << 20, 7));
}

#[test]
fn every_form_of_an_address_is_understood() {
    for (written, expected) in [
        ("80", "0.0.0.0:80"),
        ("\":80\"", "0.0.0.0:80"),
        ("\"80\"", "0.0.0.0:80"),
        ("\"0.0.0.0:80\"", "0.0.0.0:80"),
        ("\"[::]:80\"", "[::]:80"),
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("0", "0.0.0.0:0"),
    ] {
        let server = World::default().server(&format!(
            "options: {{addr: {written}, allowAnyClient: true}}"
        ));
        let address = server
            .unwrap_or_else(|e| panic!("{written}: {e}"))
            .listeners
            .plain;
        assert_eq!(
            address.map(|a| a.to_string()).as_deref(),
            Some(expected),
            "{written}"
        );
    }
    for (written, why) in [
        ("localhost:80", "names a host"),
        ("65536", "not a port"),
        ("1.2.3.4:65536", "not a port"),
        ("1.2.3.4", "has no port"),
        ("web", "not an address"),
        ("-1", "not an address"),
        ("[80, 81]", "takes a single value"),
    ] {
        refused(
            World::default().server(&format!(
                "options: {{addr: {written}, allowAnyClient: true}}"
            )),
            &[why],
        );
    }
}

#[test]
fn bare_ports_of_the_api_stay_on_the_loopback_address() {
    let server = World::default()
        .server("options: {addr: 80, apiAddr: 81, allowAnyClient: on}")
        .expect("it loads");
    assert_eq!(
        server
            .listeners
            .api
            .map(|api| api.addr.to_string())
            .as_deref(),
        Some("127.0.0.1:81")
    );
}

#[test]
fn an_explicit_zero_stays_zero() {
    let text = "options: {addr: 80, id: a, secret: s, timeout: 0, reconnectTimes: 0, reconnectDuration: 0, speed: 0, \
                hostNumber: 0, tcpNumber: 0, logFileMaxCount: 0, logFileMaxSize: 0}\nusers: {b: {secret: s, speed: 0, tcpNumber: 0}}";
    let server = World::default().server(text).expect("it loads");
    assert_eq!(
        (
            server.timeouts.idle.after,
            server.throttle.failures,
            server.throttle.block
        ),
        (None, 0, Duration::ZERO)
    );
    assert_eq!((server.log.max_count, server.log.max_size), (0, 0));
    refused(
        World::default().server("options: {addr: 80, allowAnyClient: true, connections: 0}"),
        &["1 to 1000"],
    );
    // A user's 0 takes back what the server sets.
    let text = "options: {addr: 80, speed: 1KB, tcpNumber: 5, hostNumber: 4}\n\
                users: {b: {secret: s, speed: 0, tcpNumber: 0, host: {number: 0}}, c: {secret: s}}";
    let server = World::default().server(text).expect("it loads");
    let (b, c) = (&server.users["b"].limits, &server.users["c"].limits);
    assert_eq!((b.speed, b.tcp_number, b.host_number), (None, 0, 0));
    assert_eq!(
        (c.speed, c.tcp_number, c.host_number),
        (NonZeroU64::new(1000), 5, 4)
    );
}

#[test]
fn users_override_the_server_one_value_at_a_time() {
    let text = "
options: {addr: 80, speed: 1MiB, connections: 4, hostRegex: ^x, hostWithID: true}
tcp: [{range: 10000-20000}, {range: 30000}]
host: {number: 7}
users:
  a: {secret: s, tcp: {range: [1-2, 5]}, connections: 1, host: {regex: [^a, ^b]}}
  b: {secret: s}";
    let server = World::default().server(text).expect("it loads");
    let (a, b) = (&server.users["a"].limits, &server.users["b"].limits);
    assert_eq!(a.tcp_ranges, [1..=2, 5..=5]);
    assert_eq!(b.tcp_ranges, [10000..=20000, 30000..=30000]);
    assert_eq!(
        (a.connections, b.connections, a.speed),
        (1, 4, NonZeroU64::new(1 << 20))
    );
    assert_eq!(
        (
            a.host_regex.len(),
            b.host_regex.len(),
            a.host_number,
            a.host_with_id
        ),
        (2, 1, 7, true)
    );
    assert_eq!(server.defaults.host_number, 7);
}

#[test]
fn flags_win_over_the_users_file_and_that_over_the_file() {
    let file = "options: {addr: 80, users: users.yml, connections: 2, id: [p, q, r], secret: [file, file, file]}\n\
                users: {q: {secret: inline, connections: 3}, x: {secret: inline, speed: 5}}";
    let world = World::default().file("etc/gt.yml", file).file(
        "etc/users.yml",
        "q: {secret: usersfile}\nx: {secret: usersfile, connections: 9}\nr: {secret: usersfile}",
    );
    let server = world
        .server_flags("-c etc/gt.yml -connections 5 -id r -secret flag -id new -secret flag")
        .expect("it loads");
    let secret = |id: &str| server.users[id].secret.expose().to_string();
    assert_eq!(
        [
            secret("p"),
            secret("q"),
            secret("x"),
            secret("r"),
            secret("new")
        ],
        ["file", "usersfile", "usersfile", "flag", "flag"]
    );
    // Values that a stronger source does not name stay.
    assert_eq!(
        (
            server.users["q"].limits.connections,
            server.users["x"].limits.connections
        ),
        (3, 9)
    );
    assert_eq!(server.users["x"].limits.speed, NonZeroU64::new(5));
    assert_eq!(
        (
            server.users["p"].limits.connections,
            server.users["new"].limits.connections
        ),
        (5, 5)
    );
}

#[test]
fn a_users_file_reports_its_own_places() {
    let world = World::default()
        .file("etc/gt.yml", "options: {addr: 80, users: users.yml}")
        .file("etc/users.yml", "a:\n  secrt: x\n");
    refused(
        world.server_flags("-c etc/gt.yml"),
        &[
            "etc/users.yml:2:3: unknown key `secrt`",
            "did you mean `secret`?",
        ],
    );
    refused(
        World::default().server("options: {addr: 80, users: no.yml}"),
        &["etc/no.yml cannot be read"],
    );
}

#[test]
fn ids_and_secrets_come_in_pairs() {
    refused(
        World::default().server_flags("-addr 80 -id a -id b -secret s"),
        &["2 of `id` and 1 of `secret`"],
    );
    refused(
        World::default().server_flags("-addr 80 -id a -id a -secret s -secret t"),
        &["`a` is given twice"],
    );
    refused(
        World::default().server("options: {addr: 80}\nusers: {a: {speed: 1}}"),
        &["the user `a` has no secret"],
    );
    refused(
        World::default().server("options: {addr: 80}\nusers: {a b: {secret: s}}"),
        &["the id `a b` contains"],
    );
    let world = World::default().file("s", "from-file\n");
    let server = world
        .server_flags("-addr 80 -id a -secretFile s")
        .expect("it loads");
    assert_eq!(server.users["a"].secret.expose(), "from-file");
}

#[test]
fn a_server_that_nobody_can_use_is_refused() {
    refused(
        World::default().server("options: {id: a, secret: s}"),
        &["listens nowhere", "addr: 8080"],
    );
    refused(
        World::default().server("options: {addr: 80}"),
        &["no client may come", "allowAnyClient"],
    );
    refused(World::default().server(""), &["listens nowhere"]);
    refused(
        World::default().server("options: {quicAddr: 443, allowAnyClient: true}"),
        &["`quicAddr` needs a certificate"],
    );
    refused(
        World::default().server("options: {addr: 80, sniAddr: 80, allowAnyClient: true}"),
        &["`sniAddr` and `addr` are the same"],
    );
}

#[test]
fn http3_is_where_https_is_and_shares_it_with_quic_links_only() {
    let with = |more: &str| {
        World::default().server(&format!(
            "options: {{certFile: c, keyFile: k, http3: true, allowAnyClient: true, {more}}}"
        ))
    };
    refused(with("quicAddr: 443"), &["`http3` needs `tlsAddr`"]);
    refused(
        with("tlsAddr: 443, kcpAddr: 443"),
        &["`http3` and `kcpAddr` are at the same address"],
    );
    let shared = with("tlsAddr: 443, quicAddr: 443").expect("it loads");
    assert!(shared.listeners.http3 && shared.listeners.quic == shared.listeners.tls);
}

#[test]
fn certificates_and_keys_belong_together() {
    refused(
        World::default().server("options: {tlsAddr: 443, allowAnyClient: true}"),
        &["`tlsAddr` needs a certificate"],
    );
    refused(
        World::default().server("options: {tlsAddr: 443, certFile: c, allowAnyClient: true}"),
        &["`certFile` needs `keyFile`"],
    );
    let text = "options: {tlsAddr: 443, certFile: c, keyFile: /k, certificates: {certFile: d, keyFile: e}, allowAnyClient: true, tlsVersion: 1.3}";
    let server = World::default().server(text).expect("it loads");
    let pair = |c: &str, k: &str| Certificate {
        cert_file: c.into(),
        key_file: k.into(),
    };
    assert_eq!(
        server.certificates,
        [pair("etc/c", "/k"), pair("etc/d", "etc/e")]
    );
    assert_eq!(server.tls_min_version, TlsVersion::V1_3);
}

#[test]
fn options_of_other_builds_load_with_a_warning() {
    let text = "options: {addr: 80, id: a, secret: s, stunAddr: 1, sentryDSN: x, webAddr: 8000, bbr: false}";
    let server = World::default().server(text).expect("it loads");
    let warnings: Vec<String> = server.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(
        warnings[0].starts_with("etc/gt.yml:1:")
            && warnings[0].ends_with("`stunAddr` is not in this build and is ignored")
    );
}

#[test]
fn log_options_are_read() {
    let text = "options: {addr: 80, allowAnyClient: yes, logFile: x.log, logFileMaxSize: 1MB, logFileMaxCount: 2, logLevel: FATAL, logFormat: json, workers: 3}";
    let server = World::default().server(text).expect("it loads");
    assert_eq!(server.log.file.as_deref(), Some("etc/x.log".as_ref()));
    assert_eq!((server.log.max_size, server.log.max_count), (1_000_000, 2));
    assert_eq!(
        (server.log.level, server.log.format),
        (Some(LogLevel::Error), LogFormat::Json)
    );
    assert_eq!(server.workers.map(|n| n.get()), Some(3));
}

#[test]
fn a_flag_can_switch_off_what_the_file_switches_on() {
    let world = World::default().file(
        "g.yml",
        "options: {addr: 80, sniAddr: 81, allowAnyClient: true, id: a, secret: s}",
    );
    let server = world
        .server_flags("--config=g.yml --allowAnyClient=false -addr=")
        .expect("it loads");
    assert!(!server.allow_any_client && server.listeners.plain.is_none());
}

#[test]
fn the_password_and_the_names_of_the_api_are_read() {
    let world = World::default().file("etc/password", "from a file\n");
    let api = |options: &str| {
        let text = format!("options: {{addr: 80, id: a, secret: s, apiAddr: 9000, {options}}}");
        let server = world.server(&text)?;
        server.listeners.api.ok_or_else(|| "no API".to_owned())
    };
    let plain = api("apiHosts: [gt.example.com, GT2.example.com]").expect("it loads");
    assert!(plain.password.is_none());
    let names: Vec<_> = plain.hosts.iter().map(|host| host.as_str()).collect();
    assert_eq!(names, ["gt.example.com", "gt2.example.com"]);
    for option in [
        "apiPassword: {file: password}",
        "apiPasswordFile: password",
        "apiPassword: from a file",
    ] {
        let password = api(option).expect("it loads").password;
        assert_eq!(
            password.as_ref().map(|password| password.expose()),
            Some("from a file"),
            "{option}"
        );
    }
    refused(
        api("apiPassword: a, apiPasswordFile: password"),
        &["`apiPassword` and `apiPasswordFile` are both given"],
    );
    refused(
        api("apiPassword: [a]"),
        &["`apiPassword` takes a single value"],
    );
    refused(api("apiHosts: 'gt.example.com:80'"), &["apiHosts"]);
}

#[test]
fn connections_that_wait_are_bounded_and_0_is_no_limit() {
    let pending = |options: &str| {
        let text = format!("options: {{addr: 80, id: a, secret: s{options}}}");
        World::default().server(&text).expect("it loads").pending
    };
    let default = pending("");
    assert_eq!((default.total, default.per_address), (16_384, 1024));
    let given = pending(", pendingConnections: 0, pendingPerAddress: 7");
    assert_eq!((given.total, given.per_address), (0, 7));
}
