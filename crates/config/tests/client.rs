//! What a client's file and flags become.

mod common;

use std::time::Duration;

use common::{World, refused};
use config::{Local, ProxyProtocol, Scheme};

fn with_services(services: &str) -> String {
    format!("options: {{id: a, secret: s, remote: 'tcp://h:1'}}\nservices: {services}")
}

#[test]
fn the_benchmark_command_line_works() {
    let line =
        "-local http://127.0.0.1:80 -remote tcp://id1.example.com:12080 -id id1 -secret secret1";
    let client = World::default().client_flags(line).expect("it loads");
    assert_eq!(
        (client.id.as_str(), client.secret.expose()),
        ("id1", "secret1")
    );
    assert_eq!(client.remotes[0].to_string(), "tcp://id1.example.com:12080");
    assert_eq!(
        client.services[0].local,
        Local::Http {
            host: "127.0.0.1".into(),
            port: 80
        }
    );
    assert_eq!(
        client.services[0].host_prefix.as_ref().map(|p| p.as_str()),
        Some("id1")
    );
    assert_eq!(
        (client.timeout, client.reconnect_delay),
        (Duration::from_secs(45), Duration::from_secs(5))
    );
    assert_eq!(
        (
            client.links,
            client.idle_links,
            client.services[0].local_timeout
        ),
        (None, 1, Some(Duration::from_secs(120)))
    );
}

#[test]
fn flags_belong_to_the_local_before_them() {
    let line = "-id Home -secret s -local http://127.0.0.1:1 -hostPrefix WWW -localTimeout 1m30s --useLocalAsHTTPHost \
                -remote tls://gt.example.com -local=tcp://127.0.0.1:22 -remoteTCPPort=10022 -remoteTCPRandom -proxyProtocol v2 \
                -name ssh -allow 10.0.0.0/8 -allow ::1 -local unix:/run/x";
    let client = World::default().client_flags(line).expect("it loads");
    let [web, ssh, unix] = client.services.as_slice() else {
        panic!("{:?}", client.services)
    };
    assert_eq!(web.host_prefix.as_ref().map(|p| p.as_str()), Some("www"));
    assert_eq!(
        (web.local_timeout, web.use_local_as_http_host),
        (Some(Duration::from_secs(90)), true)
    );
    assert_eq!(
        (
            ssh.remote_tcp_port,
            ssh.remote_tcp_random,
            ssh.proxy_protocol
        ),
        (Some(10022), true, Some(ProxyProtocol::V2))
    );
    assert_eq!(
        (
            ssh.name.as_str(),
            ssh.allow.len(),
            ssh.host_prefix.is_none()
        ),
        ("ssh", 2, true)
    );
    assert_eq!(unix.local, Local::Unix("/run/x".into()));
    assert_eq!(
        unix.host_prefix.as_ref().map(|p| p.as_str()),
        Some("home"),
        "the id, in lower case"
    );
    assert_eq!(
        (client.remotes[0].scheme, client.remotes[0].port),
        (Scheme::Tls, 443)
    );
    refused(
        World::default().client_flags("-hostPrefix x -local http://h"),
        &["-hostPrefix: `hostPrefix` stands before any `-local`"],
    );
}

#[test]
fn flags_win_over_the_file() {
    let world = World::default().file("c.yml", &with_services("{local: 'http://h'}"));
    let client = world
        .client_flags("-c c.yml -remote tls://other -id b -secret t")
        .expect("it loads");
    assert_eq!(
        (
            client.id.as_str(),
            client.secret.expose(),
            client.services.len()
        ),
        ("b", "t", 1)
    );
    assert_eq!(client.remotes[0].to_string(), "tls://other:443");
    let client = world
        .client_flags("-c c.yml -local builtin:status")
        .expect("it loads");
    assert_eq!(client.services[0].local.to_string(), "builtin:status");
}

#[test]
fn servers_are_named_by_url() {
    for (written, expected) in [
        ("tcp://h", "tcp://h:80"),
        ("TCP://H:1/", "tcp://h:1"),
        ("tls://[2001:db8::1]:7", "tls://[2001:db8::1]:7"),
        ("ws://h/a/b?c=d", "ws://h:80/a/b?c=d"),
        ("wss://h", "wss://h:443"),
    ] {
        let client = World::default().client_flags(&format!(
            "-local builtin:demo -id a -secret s -remote {written}"
        ));
        assert_eq!(
            client.unwrap_or_else(|e| panic!("{written}: {e}")).remotes[0].to_string(),
            expected
        );
    }
    for (written, why) in [
        ("h:80", "has no scheme"),
        ("http://h", "scheme `http`, which is not known"),
        ("tcp://", "names no host"),
        ("tcp://h:0", "not a port"),
        ("tcp://h:99999", "not a port"),
        ("tcp://h/path", "has a path"),
        ("tcp://[::1", "names no host"),
        ("tcp://a_b..c", "a part that is empty"),
        ("ws://h/#x", "has a path"),
    ] {
        refused(
            World::default().client_flags(&format!(
                "-local builtin:demo -id a -secret s -remote {written}"
            )),
            &[why],
        );
    }
}

#[test]
fn passwords_in_addresses_are_refused_and_not_repeated() {
    for option in [
        "remote: 'tcp://me:hunter2@h'",
        "remoteAPI: 'https://me:hunter2@h/'",
    ] {
        let error = World::default().client(&format!(
            "options:\n  {option}\nservices: {{local: builtin:demo}}"
        ));
        let text = error.expect_err("it is refused");
        assert!(
            text.contains("user name or password") && !text.contains("hunter2"),
            "{text}"
        );
    }
}

#[test]
fn auto_stands_for_several_ways_to_one_server() {
    let line = "-local builtin:demo -id a -secret s -remote quic://h -remote tcp://h:1";
    let client = World::default().client_flags(line).expect("it loads");
    let texts: Vec<String> = client.remotes.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["quic://h:443", "tcp://h:1"]);
    assert!(!client.choose, "in order, unless asked for");
    let best = format!("{line} -remoteChoice best");
    let client = World::default().client_flags(&best).expect("it loads");
    assert!(client.choose && client.remotes.len() == 2);
    let line = "-local builtin:demo -id a -secret s -remote auto://[::1]:444 -remote kcp://h";
    let client = World::default().client_flags(line).expect("it loads");
    let texts: Vec<String> = client.remotes.iter().map(ToString::to_string).collect();
    let ways = [
        "quic://[::1]:444",
        "tls://[::1]:444",
        "wss://[::1]:444",
        "kcp://h:29900",
    ];
    assert_eq!(texts, ways);
    assert!(client.choose);
    refused(
        World::default().client_flags("-local builtin:demo -id a -secret s -remote auto://h/x"),
        &["auto://h/x"],
    );
    refused(
        World::default().client_flags("-local builtin:demo -id a -secret s"),
        &["no server to go to"],
    );
    let client = World::default()
        .client_flags("-local builtin:demo -id a -secret s -remoteAPI https://h/x")
        .expect("it loads");
    assert_eq!(
        client.remote_api.map(|url| url.to_string()).as_deref(),
        Some("https://h/x")
    );
}

#[test]
fn a_tcp_service_needs_a_port_and_says_why() {
    refused(
        World::default().client(&with_services("{local: 'tcp://h:22'}")),
        &[
            "remoteTCPPort",
            "remoteTCPRandom: true",
            "only HTTP and TLS",
        ],
    );
    refused(
        World::default().client(&with_services("{local: 'tcp://h:22', remoteTCPPort: 0}")),
        &["needs a port on the server"],
    );
    refused(
        World::default().client(&with_services("{local: 'udp://h:53'}")),
        &["remoteUDPPort"],
    );
    refused(
        World::default().client(&with_services("{local: 'tcp://h', remoteTCPRandom: true}")),
        &["has no port"],
    );
    let client = World::default()
        .client(&with_services(
            "{local: 'udp://h:53', remoteUDPPort: 53, hostPrefix: x}",
        ))
        .expect("it loads");
    assert_eq!(
        (
            client.services[0].remote_udp_port,
            client.services[0].host_prefix.is_none()
        ),
        (Some(53), true)
    );
    assert_eq!(client.warnings.len(), 1);
}

#[test]
fn two_services_cannot_claim_the_same() {
    for (services, why) in [
        (
            "[{local: 'http://h'}, {local: 'http://h:2'}]",
            "host prefix `a`",
        ),
        (
            "[{local: 'http://h', hostPrefix: A}, {local: unix:/x}]",
            "host prefix `a`",
        ),
        (
            "[{local: 'https://h', host: X.y}, {local: 'https://h', host: x.Y.}]",
            "host `x.y`",
        ),
        (
            "[{local: 'tcp://h:1', remoteTCPPort: 9}, {local: 'http://h', remoteTCPPort: 9}]",
            "TCP port 9",
        ),
        (
            "[{local: 'http://h', name: n}, {local: 'https://h', name: n}]",
            "name `n`",
        ),
    ] {
        refused(
            World::default().client(&with_services(services)),
            &[
                "two services have",
                why,
                "the other one is at etc/gt.yml:2:",
            ],
        );
    }
    // The kept id counts too, though it is known only late.
    let text = "options: {remote: 'tcp://h'}\nservices: [{local: 'http://h'}, {local: 'http://h', hostPrefix: kept}]";
    refused(World::default().client(text), &["host prefix `kept`"]);
    World::default()
        .client(&with_services(
            "[{local: 'http://h'}, {local: 'https://h'}]",
        ))
        .expect("HTTP and TLS share a prefix");
}

#[test]
fn services_get_names_of_their_own() {
    let text = with_services(
        "[{local: 'http://h'}, {local: 'https://h'}, {local: 'tcp://h:1', remoteTCPRandom: true}, \
         {local: 'tcp://h:1', remoteTCPRandom: true}, {local: builtin:demo, name: tcp-9, hostPrefix: q}, {local: 'tcp://h:1', remoteTCPPort: 9}]",
    );
    let client = World::default().client(&text).expect("it loads");
    let names: Vec<_> = client
        .services
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["a", "a-2", "tcp://h:1", "tcp://h:1-2", "tcp-9", "tcp-9-2"]
    );
}

#[test]
fn an_id_that_is_no_host_label_needs_a_prefix() {
    let text = "options: {id: a.b, secret: s, remote: 'tcp://h'}\nservices: {local: 'http://h'}";
    refused(
        World::default().client(text),
        &["needs a `hostPrefix`", "the id `a.b`"],
    );
    let text = "options: {id: a.b, secret: s, remote: 'tcp://h'}\nservices: {local: 'http://h', hostPrefix: x}";
    World::default().client(text).expect("it loads");
}

#[test]
fn rules_for_requests_put_a_service_in_http_mode() {
    let hash = "$2y$05$.BkDQiYu4Dc1QqHZp1wZdeZ9MXXW.hkjBGYqQ7MkLh3V6V1YjyrFG";
    let text = format!(
        "{{local: 'http://h', headers: {{request: {{set: {{X-A: '{{clientIp}}'}}, remove: Cookie}}, response: {{add: {{X-B: b}}}}}}, \
         basicAuth: {{realm: here, passwords: {{ann: '{hash}', bob: hunter2}}, userHeader: X-User}}, healthCheck: {{path: /up, fall: 2}}}}"
    );
    let client = World::default().client(&with_services(&text));
    let client = client.expect("it loads");
    let service = &client.services[0];
    assert!(service.http_mode && service.has_rules());
    let set = [("x-a".to_owned(), "{clientIp}".to_owned())];
    assert_eq!(service.request_headers.set, set);
    assert_eq!(service.request_headers.remove, ["cookie"]);
    assert_eq!(service.response_headers.add.len(), 1);
    let auth = service.basic_auth.as_ref().expect("passwords");
    assert_eq!((auth.users.len(), auth.realm.as_str()), (2, "here"));
    assert_eq!(auth.user_header.as_deref(), Some("x-user"));
    let health = service.health.as_ref().expect("a check");
    assert_eq!((health.spec.fall, health.spec.rise), (2, 2));
    // No password is ever shown.
    let shown = format!("{client:?}");
    assert!(
        !shown.contains("hunter2") && !shown.contains(hash),
        "{shown}"
    );
    let h2c = World::default().client(&with_services("{local: 'http://h', protocol: h2c}"));
    let h2c = h2c.expect("it loads");
    assert!(h2c.services[0].http2 && h2c.services[0].http_mode);
}

#[test]
fn rules_that_could_be_gone_around_are_refused() {
    let auth = "basicAuth: {passwords: {ann: word}}";
    for (service, words) in [
        (format!("{{local: 'http://h', mode: stream, {auth}}}"), "needs `mode: http`"),
        (format!("{{local: 'http://h', remoteTCPPort: 1, {auth}}}"), "TCP port would not be asked"),
        (format!("{{local: 'tcp://h:1', remoteTCPPort: 1, {auth}}}"), "nobody can be asked"),
        ("{local: 'http://h', basicAuth: {realm: x}}".to_owned(), "has no users"),
        ("{local: 'http://h', headers: {request: {set: {Host: a}}}}".to_owned(), "`host`"),
        ("{local: 'http://h', headers: {request: {set: {X: '{nothing}'}}}}".to_owned(), "`x`"),
        ("{local: 'http://h', headers: {set: {a: b}}}".to_owned(), "`set`"),
        ("{local: 'https://h', protocol: h2c}".to_owned(), "no meaning"),
        ("{local: 'http://h', protocol: h2c, proxyProtocol: v2}".to_owned(), "PROXY header"),
        ("{local: 'http://h', protocol: h2c, healthCheck: {path: /}}".to_owned(), "HTTP/1.1"),
        ("{local: 'udp://h:1', remoteUDPPort: 1, healthCheck: {}}".to_owned(), "cannot be checked"),
        (
            format!("{{local: 'http://h', basicAuth: {{passwords: {{ann: '{}'}}}}}}", "w".repeat(73)),
            "72 bytes",
        ),
        (
            "{local: 'http://h', basicAuth: {passwords: {ann: '$2y$13$.BkDQiYu4Dc1QqHZp1wZdeZ9MXXW.hkjBGYqQ7MkLh3V6V1YjyrFG'}}}".to_owned(),
            "costs more than 12",
        ),
        (
            format!("{{local: 'http://h', headers: {{request: {{set: {{X: '{}'}}}}}}}}", "v".repeat(9000)),
            "bytes",
        ),
    ] {
        refused(World::default().client(&with_services(&service)), &[words]);
    }
}

#[test]
fn a_service_is_in_stream_mode_unless_it_asks_for_http() {
    let mode = |service: &str| {
        let client = World::default().client(&with_services(service));
        let client = client.expect("it loads");
        (client.services[0].http_mode, client.warnings.len())
    };
    assert_eq!(mode("{local: 'http://h'}"), (false, 0));
    assert_eq!(mode("{local: 'http://h', mode: stream}"), (false, 0));
    assert_eq!(mode("{local: 'http://h', mode: http}"), (true, 0));
    assert_eq!(mode("{local: 'unix:/run/s', mode: http}"), (true, 0));
    assert_eq!(
        mode("{local: 'tcp://h:1', remoteTCPPort: 1, mode: http}"),
        (false, 1)
    );
}

#[test]
fn a_missing_identity_is_asked_for_only_when_all_else_is_right() {
    let world = World::default();
    let client = world
        .client("options: {remote: 'tcp://h'}\nservices: {local: 'http://h'}")
        .expect("it loads");
    assert_eq!(
        (
            client.id.as_str(),
            client.secret.expose(),
            world.identities_asked.get()
        ),
        ("kept", "kept-secret", 1)
    );
    refused(
        world.client(
            "options: {remote: 'tcp://h', remoteTimeout: x}\nservices: {local: 'http://h'}",
        ),
        &["not a duration"],
    );
    refused(
        world.client("options: {remote: 'tcp://h', secret: s}\nservices: {local: 'http://h'}"),
        &["no `id`"],
    );
    assert_eq!(world.identities_asked.get(), 1);
}

#[test]
fn bounds_are_told() {
    let with = |option: &str| {
        World::default().client(&format!("options: {{id: a, secret: s, remote: 'tcp://h', {option}}}\nservices: {{local: builtin:demo}}"))
    };
    refused(with("remoteConnections: 0"), &["1 to 64 are allowed"]);
    refused(
        with("remoteConnections: 1, remoteIdleConnections: 2"),
        &["more than `remoteConnections`"],
    );
    refused(with("reconnectDelay: 2h"), &["100ms to 1h are allowed"]);
    refused(with("remoteTimeout: 0"), &["1s to 365d are allowed"]);
    refused(
        with("remoteCert: x, remoteCertInsecure: true"),
        &["contradict"],
    );
    refused(
        World::default().client("options: {id: a, secret: s, remote: 'tcp://h'}"),
        &["no service"],
    );
}

#[test]
fn other_content_under_the_same_name_is_another_configuration() {
    let with = |content: &str| {
        let world = World::default().file("etc/ca.pem", content);
        let client = world.client(
            "options: {id: a, secret: s, remote: 'tls://h', remoteCert: ca.pem}\nservices: {local: 'https://h', hostPrefix: p, localCert: ca.pem}",
        );
        let client = client.expect("it loads");
        (client.trust.content, client.services[0].local_cert_content)
    };
    let (first, second) = (
        "-----BEGIN CERTIFICATE-----\none",
        "-----BEGIN CERTIFICATE-----\ntwo",
    );
    assert_eq!(with(first), with(first));
    assert_ne!(with(first).0, with(second).0);
    assert_ne!(with(first).1, with(second).1);
}

#[test]
fn the_file_of_local_cert_is_looked_at_before_anybody_visits() {
    let world = World::default()
        .file("etc/ca.pem", "-----BEGIN CERTIFICATE-----\n")
        .file("etc/key.pem", "-----BEGIN PRIVATE KEY-----\n");
    let with = |local: &str, file: &str| {
        world.client(&format!(
            "options: {{id: a, secret: s, remote: 'tcp://h'}}\nservices: {{local: '{local}', hostPrefix: p, localCert: {file}}}"
        ))
    };
    let client = with("https://h", "ca.pem").expect("it loads");
    assert_eq!(
        client.services[0].local_cert.as_deref(),
        Some(std::path::Path::new("etc/ca.pem"))
    );
    refused(
        with("https://h", "none.pem"),
        &["the file of `localCert` cannot be read", "gt.yml:2:"],
    );
    refused(with("https://h", "key.pem"), &["holds no certificate"]);
    let plain = with("http://h", "ca.pem").expect("it loads");
    assert_eq!(plain.services[0].local_cert, None);
    assert!(
        plain.warnings[0]
            .to_string()
            .contains("`localCert` has no meaning for http://h:80"),
        "{}",
        plain.warnings[0]
    );
}
