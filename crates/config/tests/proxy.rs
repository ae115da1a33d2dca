//! What the `proxy` section, the quick form and NiubiX's `apps` become, and what is wrong with those that do not.

mod common;

use std::{net::IpAddr, path::Path, time::Duration};

use common::{World, refused};
use config::{
    AccessLogFormat, CheckKind, Checked, ListenerProtocol, Proxy, Role, ServerAddress,
    UpstreamProtocol, check_text,
};
use route::{Action, HashKey, NoHeaders, Policy, RequestView, Route, Scheme, Scratch, UpstreamId};

fn load(text: &str) -> Proxy {
    world().proxy(text).unwrap_or_else(|e| panic!("{e}"))
}

fn world() -> World {
    World::default()
        .file("etc/c.pem", "chain")
        .file("etc/k.pem", "key")
}

/// A section with one listener, one upstream `app` and these routes.
fn routed(routes: &str) -> String {
    format!(
        "proxy:\n  listeners: {{addr: 8080}}\n  upstreams: {{app: {{servers: 'h:1'}}}}\n  routes:\n{routes}"
    )
}

fn route<'a>(proxy: &'a Proxy, host: &str, path: &str) -> Option<&'a Route> {
    let request = RequestView::new(
        Scheme::Http,
        host.as_bytes(),
        b"GET",
        path.as_bytes(),
        &NoHeaders,
    );
    let found = proxy
        .proxy
        .routes
        .match_request(&request, &mut Scratch::default());
    found.expect("a good path")
}

fn upstream(proxy: &Proxy, host: &str, path: &str) -> Option<String> {
    match &route(proxy, host, path)?.action {
        Action::Upstream(to) => Some(
            proxy.proxy.upstreams[to.upstream.0 as usize]
                .name
                .to_string(),
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_section_becomes_listeners_upstreams_and_routes() {
    let proxy = load(
        "type: proxy
proxy:
  listeners:
    - {addr: 80}
    - {addr: 443, name: tls, certFile: c.pem, keyFile: k.pem, http2: false}
  upstreams:
    app: {servers: [10.0.0.1:3000, {addr: 'https://[2001:db8::1]', weight: 3, backup: true}], tls: {}}
    api: {servers: unix:/run/api.sock, balance: hash, hashKey: cookie:Sid, hashLoad: 150, protocol: h2c}
  routes:
    - {to: app}
    - {host: [a.test, '*.b.test'], path: [/x, =/y, '~^/z[0-9]$'], to: api}
    - {path: /direct, to: '127.0.0.1:9'}
    - {path: /direct2, to: '127.0.0.1:9'}
",
    );
    assert_eq!(proxy.warnings, []);
    let config = &proxy.proxy;
    assert_eq!(config.listeners[0].addr, "0.0.0.0:80".parse().unwrap());
    assert!(matches!(
        config.listeners[0].protocol,
        ListenerProtocol::Http { http2: true }
    ));
    let ListenerProtocol::Https {
        http2: false,
        http3: false,
        tls,
    } = &config.listeners[1].protocol
    else {
        panic!("{:?}", config.listeners[1])
    };
    assert_eq!(tls.certificates[0].cert_file, Path::new("etc/c.pem"));
    let app = &config.upstreams[0];
    assert_eq!(app.servers[0].address.to_string(), "10.0.0.1:3000");
    assert_eq!(app.servers[1].address.to_string(), "[2001:db8::1]:443");
    assert_eq!(
        (app.servers[1].spec.weight, app.servers[1].spec.backup),
        (3, true)
    );
    assert!(app.tls.as_ref().is_some_and(|tls| tls.verify));
    let api = &config.upstreams[1];
    assert_eq!(
        api.servers[0].address,
        ServerAddress::Unix("/run/api.sock".into())
    );
    assert_eq!(
        api.policy,
        Policy::Hash {
            load_factor: Some(150)
        }
    );
    assert_eq!(api.hash_key, HashKey::Cookie("Sid".into()));
    assert_eq!(api.protocol, UpstreamProtocol::H2c);
    assert_eq!(
        config.upstreams.len(),
        3,
        "two routes to one address share an upstream"
    );
    for (host, path, expected) in [
        ("c.test", "/x", "app"),
        ("a.test", "/x/1", "api"),
        ("a.test", "/y", "api"),
        ("a.test", "/z1", "api"),
        ("q.b.test", "/x", "api"),
        ("a.test", "/other", "app"),
        ("a.test", "/direct", "127.0.0.1:9"),
        ("c.test", "/direct2", "127.0.0.1:9"),
    ] {
        assert_eq!(
            upstream(&proxy, host, path).as_deref(),
            Some(expected),
            "{host}{path}"
        );
    }
    let name = |host, path| route(&proxy, host, path).map(|route| route.name.to_string());
    assert_eq!(name("a.test", "/x").as_deref(), Some("a.test/x"));
    assert_eq!(name("c.test", "/").as_deref(), Some("*"));
}

#[test]
fn defaults_are_those_of_the_specification() {
    let proxy = load(&routed("    - {to: app}"));
    let route = route(&proxy, "h", "/").unwrap();
    let seconds = Duration::from_secs;
    assert_eq!(
        (route.limits.header_bytes, route.limits.header_list_bytes),
        (16 << 10, 64 << 10)
    );
    assert_eq!(
        (route.limits.header_fields, route.limits.body_bytes),
        (100, None)
    );
    assert_eq!(route.limits.requests_per_connection, 1_000_000);
    assert_eq!(
        (route.timeouts.header, route.timeouts.body),
        (seconds(10), seconds(60))
    );
    assert_eq!(
        (route.timeouts.keep_alive, route.timeouts.connect),
        (seconds(75), seconds(5))
    );
    assert_eq!(
        (route.timeouts.response, route.timeouts.tunnel_idle),
        (seconds(60), seconds(3600))
    );
    assert_eq!(route.timeouts.total, None);
    assert!(route.compress.is_none() && route.access.rate.is_none() && route.access.auth.is_none());
    let upstream = &proxy.proxy.upstreams[0];
    assert_eq!(
        (upstream.policy, upstream.check.as_ref()),
        (Policy::RoundRobin, None)
    );
    let passive = upstream.health.passive.unwrap();
    assert_eq!(
        (passive.failures, passive.time, passive.max_percent),
        (5, seconds(30), 50)
    );
    assert_eq!(upstream.retries.percent, 20);
    let forwarding = &proxy.proxy.forwarding;
    assert!(
        forwarding.x_forwarded_for
            && forwarding.x_real_ip
            && !forwarding.forwarded
            && !proxy.proxy.via
    );
    assert!(forwarding.trusted.is_empty());
}

#[test]
fn checks_have_their_defaults_and_are_http_where_there_is_a_path() {
    let check = |health: &str| {
        let text = format!(
            "proxy: {{listeners: {{addr: 1}}, routes: {{to: u}}, upstreams: {{u: {{servers: 'h:1', health: {health}}}}}}}"
        );
        let upstream = load(&text).proxy.upstreams.remove(0);
        (upstream.health.active.unwrap(), upstream.check.unwrap())
    };
    let (spec, kind) = check("{}");
    let seconds = Duration::from_secs;
    assert_eq!(
        (spec.interval, spec.timeout, spec.fall, spec.rise),
        (seconds(2), seconds(2), 3, 2)
    );
    assert_eq!(kind, CheckKind::Tcp { port: None });
    let (spec, kind) = check("{path: '/h?x=1', status: [200, 301-302], port: 81, fall: 1}");
    assert_eq!(spec.fall, 1);
    let status = vec![200..=200, 301..=302];
    assert_eq!(
        kind,
        CheckKind::Http {
            port: Some(81),
            path: "/h?x=1".into(),
            host: None,
            status
        }
    );
}

#[test]
fn the_rules_of_a_route_are_read() {
    let proxy = world()
        .file(
            "etc/pass",
            "# users\nbob:$2y$04$wXSYmw5a1qkJ0X9lXyJmSuFcsVVKwI1Tk7cvGJ3XOpnc9jmEvCqDq\n",
        )
        .proxy(&routed(
            "    - path: /api
      to: app
      stripPrefix: true
      hostHeader: server
      websocket: false
      multiplex: true
      retries: 0
      requestHeaders: {set: {X-Ip: '{clientIp}'}, add: {X-A: b}, remove: [X-C, x-d]}
      allow: 10.0.0.0/8
      deny: [10.1.0.0/16]
      rateLimit: {key: 'header:X-Key', requests: 5, per: 1m, burst: 7}
      basicAuth: {passwords: {ann: secret}, usersFile: pass, userHeader: X-User}
      limits: {body: 1MiB}
      timeouts: {response: 5m, total: 1h}
    - path: /moved
      redirect: {to: 'https://{host}/new{uri}', status: 301}
    - path: /files
      files: www
      stripPrefix: true
    - path: /old
      to: app
      rewrite: {prefix: /new}
    - path: ~^/u/
      to: app
      rewrite: {regex: '^/u/(.*)', to: '/user/$1'}
    - path: =/503
      respond: {status: 503, body: later, contentType: text/html}
",
        ))
        .unwrap_or_else(|e| panic!("{e}"));
    let api = route(&proxy, "h", "/api/x").unwrap();
    let Action::Upstream(to) = &api.action else {
        panic!()
    };
    assert!(!to.websocket && to.multiplex && to.retries == 0);
    let rewritten = |path: &str| {
        let Action::Upstream(to) = &route(&proxy, "h", path).unwrap().action else {
            panic!()
        };
        let mut out = Vec::new();
        to.rewrite
            .as_ref()
            .unwrap()
            .write(path.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(rewritten("/api/x"), "/x");
    assert_eq!(rewritten("/old/x"), "/new/x");
    assert_eq!(rewritten("/u/7"), "/user/7");
    assert!(api.request_headers.removes(b"X-C") && api.request_headers.writes().count() == 2);
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert!(api.access.ip.permits(ip("10.0.0.1")) && !api.access.ip.permits(ip("10.1.0.1")));
    let rate = api.access.rate.as_ref().unwrap();
    assert_eq!(
        (rate.burst(), rate.interval()),
        (7, Duration::from_secs(12))
    );
    assert_eq!(
        api.access.auth.as_ref().unwrap().user_header(),
        Some("x-user")
    );
    assert_eq!(
        (api.limits.body_bytes, api.timeouts.total),
        (Some(1 << 20), Some(Duration::from_secs(3600)))
    );
    let Action::Files(files) = &route(&proxy, "h", "/files/a").unwrap().action else {
        panic!()
    };
    assert_eq!(
        files.resolve(b"/files/a/b").as_deref(),
        Ok(Path::new("etc/www/a/b"))
    );
    let Action::Redirect(redirect) = &route(&proxy, "h", "/moved").unwrap().action else {
        panic!()
    };
    assert_eq!(redirect.status(), 301);
    let Action::Respond(respond) = &route(&proxy, "h", "/503").unwrap().action else {
        panic!()
    };
    assert_eq!((respond.status, &*respond.body), (503, b"later".as_slice()));
}

#[test]
fn limits_of_the_section_are_those_of_routes_that_set_none() {
    let proxy = load(
        "proxy: {listeners: {addr: 1}, limits: {body: 5}, timeouts: {connect: 1s, body: 9s}, routes: [{to: 'h:1'}, {path: /x, to: 'h:1', timeouts: {connect: 2s}}]}",
    );
    let at = |path| route(&proxy, "h", path).unwrap();
    assert_eq!(
        (at("/").limits.body_bytes, at("/").timeouts.connect),
        (Some(5), Duration::from_secs(1))
    );
    assert_eq!(
        (at("/x").timeouts.connect, at("/x").timeouts.body),
        (Duration::from_secs(2), Duration::from_secs(9))
    );
    assert_eq!(at("/x").limits.body_bytes, Some(5));
}

#[test]
fn streams_are_routed_by_listener_and_server_name() {
    let proxy = load(
        "proxy:
  listeners:
    - {name: db, addr: 1, protocol: tcp, to: 'h:5432'}
    - {name: pass, addr: 2, protocol: tls, to: 'h:1'}
  routes:
    - {listener: pass, host: [a.test, '*.b.test'], to: 'h:2'}
",
    );
    let find =
        |listener, name: Option<&str>| proxy.proxy.streams.find(listener, name.map(str::as_bytes));
    assert_eq!(find(0, None), Some(UpstreamId(0)));
    assert_eq!(find(1, Some("a.test")), find(1, Some("x.b.test")));
    assert_ne!(find(1, Some("a.test")), find(1, Some("other.test")));
    assert!(proxy.proxy.routes.is_empty());
    refused(world().proxy("proxy: {listeners: {name: l, addr: 1, protocol: tcp}, routes: {listener: l, host: a.test, path: /x, to: 'h:1'}}"), &[
        "a TCP connection names no host",
        "`path` is for requests",
    ]);
    refused(world().proxy("proxy: {listeners: [{name: l, addr: 1, protocol: tcp}, {name: m, addr: 2}], routes: {listener: [l, m], to: 'h:1'}}"), &[
        "names listeners of requests and of streams",
    ]);
    refused(
        world().proxy("proxy: {listeners: {addr: 1, to: 'h:1'}}"),
        &["`to` of a listener is for `protocol: tcp` and `tls`"],
    );
}

#[test]
fn the_quick_form_needs_no_file() {
    let proxy = world()
        .proxy_flags("--listen :8080 --listen 127.0.0.1:81 --to 127.0.0.1:3000 --to 127.0.0.1:3001")
        .unwrap();
    let addrs: Vec<String> = proxy
        .proxy
        .listeners
        .iter()
        .map(|listener| listener.addr.to_string())
        .collect();
    assert_eq!(addrs, ["0.0.0.0:8080", "127.0.0.1:81"]);
    assert_eq!(proxy.proxy.upstreams[0].servers.len(), 2);
    assert_eq!(upstream(&proxy, "any", "/x").as_deref(), Some("to"));
    let tls = world()
        .proxy_flags("-listen 443 -certFile etc/c.pem -keyFile etc/k.pem -to https://h")
        .unwrap();
    assert!(matches!(
        tls.proxy.listeners[0].protocol,
        ListenerProtocol::Https { .. }
    ));
    assert!(tls.proxy.upstreams[0].tls.is_some());
    refused(world().proxy_flags("-listen 1"), &["`listen` needs `to`"]);
    refused(world().proxy_flags("-to h:1"), &["`to` needs `listen`"]);
    refused(
        world().proxy_flags("-listen 1 -to h"),
        &["the value `h` of `to` has no port"],
    );
    refused(
        world().proxy_flags("-listen 1 -listen 1 -to h:1"),
        &["the same address"],
    );
    refused(
        world().proxy_flags("-listn 1 -to h:1"),
        &["unknown flag of gt proxy", "did you mean -listen?"],
    );
    refused(
        world().proxy_flags("-hostNumber 1"),
        &["it is a flag of gt server"],
    );
}

#[test]
fn apps_of_niubix_become_the_same_types() {
    let proxy = load(
        "apps:
  - name: one
    listen: ':8081'
    http_host: default
    balance_policy: iphash
    connect_backend_timeout: 1000
    x-real-ip: false
    backends:
      - {host: 10.0.0.3:8080, weight: 50, health_check_uri: /x, health_check_period: 1500, health_check_timeout: 700}
      - {host: 10.0.0.4:8080, down: true}
  - {name: two, listen: 8081, http_host: two.test, balance_policy: random, backends: {host: 'h:1'}}
  - {name: three, listen: '[]:82', protocol: tcp, backends: {host: 'h:2'}}
",
    );
    let config = &proxy.proxy;
    let addrs: Vec<String> = config
        .listeners
        .iter()
        .map(|listener| listener.addr.to_string())
        .collect();
    assert_eq!(addrs, ["0.0.0.0:8081", "[::]:82"]);
    assert_eq!(upstream(&proxy, "two.test", "/").as_deref(), Some("two"));
    assert_eq!(upstream(&proxy, "other", "/").as_deref(), Some("one"));
    assert_eq!(config.streams.find(1, None), Some(UpstreamId(2)));
    let one = &config.upstreams[0];
    assert_eq!(one.policy, Policy::Hash { load_factor: None });
    assert_eq!(
        (one.servers[0].spec.weight, one.servers[1].spec.down),
        (50, true)
    );
    let check = one.health.active.unwrap();
    assert_eq!(
        (check.interval, check.timeout),
        (Duration::from_millis(1500), Duration::from_millis(700))
    );
    assert_eq!(config.upstreams[1].policy, Policy::TwoChoices);
    let timeouts = route(&proxy, "other", "/").unwrap().timeouts;
    let seconds = Duration::from_secs;
    assert_eq!(
        (timeouts.connect, timeouts.header, timeouts.keep_alive),
        (seconds(1), seconds(5), seconds(10))
    );
    assert!(config.forwarding.x_forwarded_for && !config.forwarding.x_real_ip);
    refused(
        world()
            .proxy("apps: [{name: a, listen: 1, backends: {host: 'h:1'}}, {name: a, listen: 2}]"),
        &["there are two of the name `a`"],
    );
    refused(world().proxy("apps: {listen: 1}"), &["has no `backends`"]);
}

#[test]
fn a_server_may_have_a_proxy_section_with_its_services_behind_it() {
    let text = "options: {addr: 80, id: a, secret: s}\nproxy: {listeners: {addr: 81}, routes: [{to: 'h:1'}, {path: /x, service: blog}]}";
    let server = world().server(text).unwrap();
    let proxy = server.proxy.unwrap();
    assert!(
        matches!(&proxy.routes.iter().nth(1).unwrap().action, Action::Service(name) if &*name.0 == "blog")
    );
    refused(
        world().server(&text.replace("addr: 80,", "addr: 80, apiAddr: '0.0.0.0:81',")),
        &["`0.0.0.0:81` and `apiAddr` of the server are the same address"],
    );
    refused(
        world().proxy("proxy: {listeners: {addr: 81}, routes: {service: blog}}"),
        &["a relay service needs a server"],
    );
}

#[test]
fn a_listener_may_stand_on_an_address_of_its_server() {
    let text = |listener: &str| {
        format!(
            "options: {{addr: 80, tlsAddr: 443, certFile: cert.pem, keyFile: key.pem, id: a, secret: s}}\n\
             proxy: {{listeners: [{listener}], routes: [{{to: 'h:1'}}]}}"
        )
    };
    let protocol = |listener: &str| {
        let server = world().server(&text(listener)).unwrap();
        server.proxy.unwrap().listeners.remove(0).protocol
    };
    assert!(matches!(
        protocol("{addr: 80}"),
        ListenerProtocol::OfServer { tls: false }
    ));
    assert!(matches!(
        protocol("{addr: 443, protocol: https}"),
        ListenerProtocol::OfServer { tls: true }
    ));
    assert!(matches!(
        protocol("{addr: 81}"),
        ListenerProtocol::Http { .. }
    ));
    refused(
        world().server(&text("{addr: 443, certFile: cert.pem, keyFile: key.pem}")),
        &["`certFile` on the address of `tlsAddr`, which is the server's"],
    );
    refused(
        world().server(&text("{addr: 80, protocol: tcp}")),
        &["`protocol: tcp` on the address of `addr`"],
    );
    refused(
        world().server(&text("{addr: 80}, {addr: 80, name: again}")),
        &["are the same address"],
    );
}

#[test]
fn a_file_without_type_is_known_by_its_keys() {
    let role = |text: &str| match check_text(Path::new("x.yml"), text, None, &world()) {
        Ok(Checked::Proxy(_)) => Role::Proxy,
        Ok(Checked::Server(_)) => Role::Server,
        Ok(Checked::Client(_)) => Role::Client,
        Err(errors) => panic!("{errors}"),
    };
    let section = "proxy: {listeners: {addr: 81}, routes: {to: 'h:1'}}";
    assert_eq!(role(section), Role::Proxy);
    assert_eq!(
        role(&format!("options: {{workers: 1}}\n{section}")),
        Role::Proxy
    );
    assert_eq!(
        role(&format!(
            "options: {{addr: 80, id: a, secret: s}}\n{section}"
        )),
        Role::Server
    );
    assert_eq!(
        role("apps: {listen: 1, backends: {host: 'h:1'}}"),
        Role::Proxy
    );
    refused(
        world().server("type: proxy"),
        &["configures a proxy, but the command is gt server"],
    );
}

#[test]
fn mistakes_are_shown_where_they_are_with_a_remedy() {
    let show = |routes: &str| world().proxy(&routed(routes)).expect_err("it is refused");
    assert!(show("    - to: ap\n").starts_with("etc/gt.yml:5:11: there is no upstream `ap`\n  5 |     - to: ap\n    |           ^^\n  help: did you mean `app`?"), "{}", show("    - to: ap\n"));
    for (routes, parts) in [
        (
            "    - to: app\n      path: ~^/a(b",
            vec![
                "is not a regular expression: unclosed group",
                "look at character 5",
            ],
        ),
        (
            "    - to: app\n      host: a b",
            vec!["the value `a b` of `host` is not a host"],
        ),
        ("    - to: app\n      path: x", vec!["`path` is not a path"]),
        (
            "    - to: app\n      path: //x",
            vec!["is a path that no request has"],
        ),
        (
            "    - to: app\n      method: G T",
            vec!["`method` is not a method"],
        ),
        (
            "    - to: app\n      files: /x",
            vec!["`to` and `files` are both given"],
        ),
        ("    - host: a", vec!["a route needs an action"]),
        (
            "    - redirect: {to: /x, status: 304}",
            vec!["304 is not the status of a redirect"],
        ),
        (
            "    - redirect: '{nope}'",
            vec!["has the placeholder {nope}, which does not exist"],
        ),
        (
            "    - to: app\n      stripPrefix: true",
            vec!["there is no prefix to change"],
        ),
        (
            "    - to: app\n      requestHeaders: {set: {Host: x}}",
            vec!["the field `host` is a header field that only the proxy itself writes"],
        ),
        (
            "    - to: app\n      requestHeaders: {remove: content-length}",
            vec!["only the proxy itself writes"],
        ),
        (
            "    - to: app\n      headers: {x: '~('}",
            vec!["the condition is not a regular expression"],
        ),
        (
            "    - to: app\n      rateLimit: {burst: 2}",
            vec!["a rate limit needs `requests`"],
        ),
        (
            "    - to: app\n      basicAuth: {}",
            vec!["`basicAuth` has no users"],
        ),
        (
            "    - to: app\n      basicAuth: {usersFile: none}",
            vec!["the file etc/none of `usersFile` cannot be read"],
        ),
        (
            "    - to: app\n      listener: w",
            vec!["there is no listener `w`"],
        ),
        (
            "    - to: app\n      limits: {header: 1GiB}",
            vec!["256 bytes to 1 MiB are allowed"],
        ),
        (
            "    - to: app\n      weight: 3",
            vec!["unknown key `weight` in route"],
        ),
        (
            "    - to: app\n      balance: hash",
            vec!["`balance` is a key of one of the `upstreams:` of a proxy"],
        ),
        ("    - to: ftp://h", vec!["has the scheme `ftp`"]),
    ] {
        let text = show(routes);
        for part in parts {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
    }
}

#[test]
fn upstreams_and_listeners_that_cannot_work_are_refused() {
    let with = |upstream: &str| {
        world().proxy(&format!(
            "proxy: {{listeners: {{addr: 1}}, routes: {{to: u}}, upstreams: {{u: {upstream}}}}}"
        ))
    };
    refused(with("{}"), &["the upstream `u` has no servers"]);
    refused(
        with("{servers: {addr: 'h:1', backup: true}}"),
        &["all servers of the upstream `u` are backups"],
    );
    refused(
        with("{servers: ['h:1', 'h:1']}"),
        &["the server h:1 is given twice"],
    );
    refused(
        with("{servers: 'h:1', protocol: h2}"),
        &["`protocol: h2` needs `tls`"],
    );
    refused(
        with("{servers: 'https://h', protocol: h2c}"),
        &["HTTP/2 without TLS, but there is TLS"],
    );
    refused(
        with("{servers: ['https://h', 'g:1']}"),
        &["some servers of one upstream"],
    );
    refused(
        with("{servers: ['http://h'], tls: {}}"),
        &["some servers of one upstream"],
    );
    refused(
        with("{servers: unix:/s, tls: {}}"),
        &["a Unix socket has no name"],
    );
    refused(
        with("{servers: 'h:1', tls: {ca: none.pem}}"),
        &["the file etc/none.pem of `ca` cannot be read"],
    );
    refused(
        with("{servers: h}"),
        &["the value `h` of `addr` has no port"],
    );
    refused(
        with("{servers: 'h:1', balance: best}"),
        &["is none of round-robin"],
    );
    let listeners = |listeners: &str| {
        world().proxy(&format!(
            "proxy: {{listeners: {listeners}, routes: {{to: 'h:1'}}}}"
        ))
    };
    refused(listeners("[]"), &["the proxy listens nowhere"]);
    refused(
        listeners("[{addr: 1}, {addr: 1}]"),
        &["`0.0.0.0:1` and `0.0.0.0:1` are the same address"],
    );
    refused(
        listeners("{addr: 1, protocol: https}"),
        &["`protocol: https` needs a certificate"],
    );
    refused(
        listeners("{addr: 1, certFile: no.pem, keyFile: k.pem}"),
        &["the file etc/no.pem of `certFile` cannot be read"],
    );
    refused(
        listeners("{addr: 1, certFile: c.pem}"),
        &["`certFile` needs `keyFile`"],
    );
    refused(listeners("{name: x}"), &["a listener needs `addr`"]);
    refused(
        world().proxy("proxy: {listeners: {addr: 1}}"),
        &["there is no route"],
    );
    refused(
        world()
            .proxy("proxy: {listeners: {addr: 1, protocol: tcp, to: 'h:1'}, routes: {to: 'h:1'}}"),
        &["no http or https listener"],
    );
}

#[test]
fn what_is_allowed_but_odd_is_warned_of() {
    let warnings = |text: &str| {
        let proxy = load(text);
        proxy
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let shadowed = warnings(&routed(
        "    - {host: a.test, path: /x, to: app}\n    - {path: /x, host: [b.test, A.test], to: 'h:9'}\n    - {host: a.test, path: /x, method: GET, to: app}",
    ));
    assert!(
        shadowed.contains("etc/gt.yml:6:7: this route is never taken: the one at etc/gt.yml:5:7"),
        "{shadowed}"
    );
    assert_eq!(shadowed.lines().count(), 1, "{shadowed}");
    for (text, expected) in [
        (
            "proxy: {listeners: {addr: 1}, routes: {to: 'h:1'}, upstreams: {u: {servers: 'h:2'}}}",
            "no route leads to the upstream `u`",
        ),
        (
            "proxy: {listeners: {addr: 1, tlsVersion: 1.3}, routes: {to: 'h:1'}}",
            "`tlsVersion` does nothing with `protocol: http`",
        ),
        (
            "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: 'h:1', hashKey: ip}}}",
            "`hashKey` does nothing without `balance: hash`",
        ),
        (
            "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: 'h:1', tls: {verify: false}}}}",
            "are not verified",
        ),
        (
            "proxy: {listeners: {addr: 1}, routes: {redirect: /x, retries: 1}}",
            "`retries` does nothing with `redirect`",
        ),
    ] {
        let found = warnings(text);
        assert!(found.contains(expected), "no {expected:?} in: {found}");
    }
}

#[test]
fn passwords_do_not_show() {
    let text = routed(
        "    - to: app\n      basicAuth:\n        passwords:\n          ann: hunter2\n          bob: $2y$99$hunter2\n      pth: 1",
    );
    let errors = world().proxy(&text).expect_err("it is refused");
    assert!(
        errors.contains("bcrypt") && !errors.contains("hunter2"),
        "{errors}"
    );
    let flow = routed("    - {to: app, basicAuth: {passwords: {ann: hunter2}}, pth: 1}");
    let errors = world().proxy(&flow).expect_err("it is refused");
    assert!(
        errors.contains("unknown key `pth`") && !errors.contains("hunter2"),
        "{errors}"
    );
    let file = world()
        .file("etc/pass", "hunter2\n")
        .proxy(&routed("    - to: app\n      basicAuth: {usersFile: pass}"));
    let errors = file.expect_err("it is refused");
    assert!(
        errors.contains("line 1 of the file is not NAME:HASH") && !errors.contains("hunter2"),
        "{errors}"
    );
    let good = load(&routed(
        "    - to: app\n      basicAuth: {passwords: {ann: hunter2}}",
    ));
    assert!(!format!("{good:?}").contains("hunter2"));
}

#[test]
fn an_access_log_is_a_path_or_more() {
    let base = "proxy: {listeners: {addr: 1}, routes: [{to: 'h:1'}, {path: /quiet, to: 'h:1', accessLog: false}], accessLog: LOG}";
    let load = |log: &str| World::default().proxy(&base.replace("LOG", log));
    let short = load("logs/access.log").expect("a good file").proxy;
    let log = short.access_log.expect("a log");
    assert!(log.path.ends_with("logs/access.log"), "{log:?}");
    assert_eq!(
        (log.format, log.sample, log.buffer),
        (AccessLogFormat::Combined, 1, 4 << 20)
    );
    let logged: Vec<bool> = short.routes.iter().map(|route| route.log).collect();
    assert_eq!(logged, [true, false]);
    let long = load("{path: /a, format: json, sample: 100, buffer: 1MiB}").expect("a good file");
    let log = long.proxy.access_log.expect("a log");
    assert_eq!(
        (log.format, log.sample, log.buffer),
        (AccessLogFormat::Json, 100, 1 << 20)
    );
    for (bad, said) in [
        ("{format: json}", "an access log needs `path`"),
        ("{path: /a, buffer: 1KiB}", "64 KiB to 1 GiB"),
        ("{path: /a, sample: 0}", "1 to 1000000"),
        ("{path: /a, format: xml}", "combined, json"),
    ] {
        let error = load(bad).expect_err(bad);
        assert!(error.contains(said), "{bad}: {error}");
    }
}

#[test]
fn compression_is_switched_on_or_described() {
    let load = |value: &str| {
        let text = "proxy: {listeners: {addr: 1}, routes: {to: 'h:1', compress: VALUE}}";
        let proxy = World::default().proxy(&text.replace("VALUE", value))?;
        let route = proxy.proxy.routes.iter().next().expect("a route").clone();
        Ok::<_, String>(route.compress)
    };
    assert!(load("false").expect("good").is_none());
    assert!(
        load("{on: false, types: text/css}")
            .expect("good")
            .is_none()
    );
    let plain = load("true").expect("good").expect("on");
    assert_eq!(
        format!("{plain:?}"),
        format!("{:?}", route::Compress::default())
    );
    let own = load("{codings: [br, gzip], types: [image/*], minLength: 10KiB}").expect("good");
    let expected = route::Compress::new(
        &[route::Coding::Brotli, route::Coding::Gzip],
        ["image/*"],
        10 << 10,
    );
    assert_eq!(
        format!("{:?}", own.expect("on")),
        format!("{:?}", expected.expect("good"))
    );
    for (bad, said) in [
        ("{codings: lz4}", "zstd, br, gzip"),
        ("{types: text}", "types"),
        ("sometimes", "sometimes"),
    ] {
        let error = load(bad).expect_err(bad);
        assert!(error.contains(said), "{bad}: {error}");
    }
}

#[test]
fn listeners_of_streams_have_times_of_their_own() {
    let text = "proxy: {timeouts: {connect: 7s}, listeners: [{addr: 1, protocol: tcp, to: 'h:1', timeouts: {tunnel: 9s}}, {addr: 2, protocol: tcp, to: 'h:1'}]}";
    let times = World::default()
        .proxy(text)
        .expect("good")
        .proxy
        .stream_timeouts;
    let found: Vec<_> = times
        .iter()
        .map(|times| (times.connect.as_secs(), times.tunnel_idle.as_secs()))
        .collect();
    assert_eq!(found, [(7, 9), (7, 3600)]);
    let text = "proxy: {listeners: {addr: 1, timeouts: {tunnel: 9s}}, routes: {to: 'h:1'}}";
    let warnings = World::default().proxy(text).expect("good").warnings;
    assert!(
        format!("{warnings:?}").contains("for `protocol: tcp` and `tls`"),
        "{warnings:?}"
    );
    let text = "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: 'unix:/run/a', health: {port: 5}}}}";
    let error = World::default().proxy(text).expect_err("no port");
    assert!(error.contains("a Unix socket has no other port"), "{error}");
}
