//! Host names and prefixes: who may claim which, and how many services find their way.

use std::time::{Duration, Instant};

use e2e::{
    PortRange, ServerSpec, Service, Transport, http, over_each_tcp_transport, over_each_transport,
    relay::field,
};

use crate::server;

over_each_transport!(
    sixteen_services_of_two_clients_are_told_apart,
    host_number_bounds_the_names_of_a_client,
    host_regex_decides_which_names_are_allowed,
    host_with_id_puts_the_id_before_each_prefix,
    a_prefix_belongs_to_the_first_who_claims_it,
    a_full_host_wins_over_a_prefix,
    another_header_can_choose_the_service,
);

// Over UDP a killed client is noticed by its silence only, after 10 to 30 s.
over_each_tcp_transport!(a_name_is_kept_for_a_client_whose_link_was_lost);

fn sixteen_services_of_two_clients_are_told_apart(transport: Transport) {
    let ports = PortRange::claim(8);
    let server = ServerSpec::new()
        .user("one")
        .user("two")
        .ports(&ports)
        .start();
    let mut services = Vec::new();
    let mut clients = Vec::new();
    for (id, first) in [("one", ports.first()), ("two", ports.first() + 4)] {
        let mut spec = server.client(transport, id);
        for n in 0..8 {
            let service = Service::text(&format!("{id} {n}"));
            let more = match n {
                0..4 => format!("hostPrefix: {id}-{n}"),
                _ => format!("remoteTCPPort: {}", first + n - 4),
            };
            spec = spec.service(service.url(if n < 4 { "http" } else { "tcp" }), &more);
            services.push(service);
        }
        clients.push(spec.start_up());
    }
    for (id, first) in [("one", ports.first()), ("two", ports.first() + 4)] {
        for n in 0..8_u16 {
            let (address, host) = match n {
                0..4 => (server.http(), format!("{id}-{n}.example.com")),
                _ => (server.port(first + n - 4), "any.example.com".to_owned()),
            };
            let response = http::get(address, &host, "/").expect("an answer");
            assert_eq!(
                (response.status, response.text()),
                (200, format!("{id} {n}"))
            );
        }
    }
}

fn host_number_bounds_the_names_of_a_client(transport: Transport) {
    let service = Service::text("here");
    // A user's own number goes before the server's.
    let server = ServerSpec::new()
        .option("hostNumber", 2)
        .user("few")
        .user_with("more", "host: {number: 3}")
        .start();
    for (id, allowed) in [("few", 2), ("more", 3)] {
        let mut spec = server.client(transport, id);
        for n in 0..4 {
            spec = spec.service(
                service.url("http"),
                &format!("name: s{n}, hostPrefix: {id}{n}"),
            );
        }
        let client = spec.start();
        for n in allowed..4 {
            let line = client.wait_refused(&format!("s{n}"));
            assert!(
                line.contains(&format!("{allowed} host names or prefixes (hostNumber)")),
                "{line}"
            );
        }
        for n in 0..4 {
            let status = http::get(server.http(), &format!("{id}{n}.example.com"), "/")
                .expect("an answer")
                .status;
            assert_eq!(status, if n < allowed { 200 } else { 404 }, "{id}{n}");
        }
    }
}

fn host_regex_decides_which_names_are_allowed(transport: Transport) {
    let service = Service::text("here");
    let server = ServerSpec::new()
        .option("hostRegex", "'^web-[a-z]+$'")
        .user("one")
        .user_with("two", "host: {regex: '^db-'}")
        .start();
    let client = |id: &str| {
        server
            .client(transport, id)
            .service(service.url("http"), &format!("name: own, hostPrefix: {id}"))
            .service(
                service.url("http"),
                &format!("name: web, hostPrefix: web-{id}"),
            )
            .service(
                service.url("http"),
                &format!("name: db, hostPrefix: db-{id}"),
            )
            .start()
    };
    let (one, two) = (client("one"), client("two"));
    for (client, refused) in [(&one, "db"), (&two, "web")] {
        let line = client.wait_refused(refused);
        assert!(line.contains("does not match any hostRegex"), "{line}");
    }
    // The own id is always allowed.
    for (prefix, status) in [
        ("one", 200),
        ("two", 200),
        ("web-one", 200),
        ("db-one", 404),
        ("web-two", 404),
        ("db-two", 200),
    ] {
        let response =
            http::get_until(server.http(), &format!("{prefix}.example.com"), "/", status);
        assert_eq!(response.status, status, "{prefix}");
    }
}

fn host_with_id_puts_the_id_before_each_prefix(transport: Transport) {
    let service = Service::text("here");
    let server = ServerSpec::new()
        .option("hostWithID", true)
        .user("web")
        .start();
    let client = server
        .client(transport, "web")
        .service(service.url("http"), "name: blog, hostPrefix: blog")
        .start_up();
    let line = client
        .process
        .wait_log(&["a service is up", "service=\"blog\""]);
    assert!(
        field(&line, "reachable_at").is_some() && line.contains("web-blog"),
        "{line}"
    );
    let status = |host: &str| {
        http::get(server.http(), host, "/")
            .expect("an answer")
            .status
    };
    assert_eq!(
        (status("web-blog.example.com"), status("blog.example.com")),
        (200, 404)
    );
}

fn a_prefix_belongs_to_the_first_who_claims_it(transport: Transport) {
    let (first, second) = (Service::text("first"), Service::text("second"));
    let server = ServerSpec::new().user("one").user("two").start();
    let mut one = server
        .client(transport, "one")
        .service(first.url("http"), "name: shop, hostPrefix: shop")
        .start_up();
    let two = || {
        server
            .client(transport, "two")
            .service(second.url("http"), "name: shop, hostPrefix: shop")
            .service(second.url("http"), "name: own, hostPrefix: two")
            .service(second.url("http"), "name: id, hostPrefix: one")
            .start()
    };
    let mut refused = two();
    let line = refused.wait_refused("shop");
    assert!(line.contains("already used by another service"), "{line}");
    let line = refused.wait_refused("id");
    assert!(
        line.contains("reserved for the client with that id"),
        "{line}"
    );
    server
        .process
        .wait_log(&["a service was refused", "id=\"two\"", "service=\"shop\""]);
    let shop = || {
        http::get(server.http(), "shop.example.com", "/")
            .expect("an answer")
            .text()
    };
    assert_eq!(shop(), "first");
    assert_eq!(
        http::get_until(server.http(), "two.example.com", "/", 200).text(),
        "second"
    );
    // When the first has said goodbye, the name is free at once. The other goes in order too: over UDP a killed one keeps its id for a while.
    refused.process.signal("TERM");
    refused.wait_exit();
    one.process.signal("TERM");
    one.wait_exit();
    let left = Instant::now();
    server
        .process
        .wait_log(&["a client has gone", "id=\"one\""]);
    let took = left.elapsed();
    assert!(took < Duration::from_secs(5), "kept for {took:?}");
    let _two = two();
    e2e::wait::until("the second client has the prefix", || {
        let response = http::get(server.http(), "shop.example.com", "/").ok()?;
        (response.text() == "second").then_some(())
    });
}

fn a_name_is_kept_for_a_client_whose_link_was_lost(transport: Transport) {
    let (first, second) = (Service::text("first"), Service::text("second"));
    let server = ServerSpec::new().user("one").user("two").start();
    let client = |id: &str, service: &Service| {
        server
            .client(transport, id)
            .service(service.url("http"), "name: shop, hostPrefix: shop")
    };
    let mut one = client("one", &first).start_up();
    one.process.kill();
    server
        .process
        .wait_log(&["a client's link is down", "id=\"one\""]);
    let line = client("two", &second).start().wait_refused("shop");
    assert!(line.contains("already used by another service"), "{line}");
    // It comes back as the same client, and has its name.
    let _one = client("one", &first).start_up();
    let response = http::get_until(server.http(), "shop.example.com", "/", 200);
    assert_eq!(response.text(), "first");
}

fn a_full_host_wins_over_a_prefix(transport: Transport) {
    let (prefixed, hosted) = (Service::text("prefix"), Service::text("host"));
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(prefixed.url("http"), "hostPrefix: api")
        .service(hosted.url("http"), "host: api.example.com")
        .start_up();
    let text = |host: &str| {
        http::get(server.http(), host, "/")
            .expect("an answer")
            .text()
    };
    assert_eq!(text("api.example.com"), "host");
    assert_eq!(text("API.Example.COM:8080"), "host");
    assert_eq!(text("api.example.org"), "prefix");
}

fn another_header_can_choose_the_service(transport: Transport) {
    let service = Service::text("here");
    let server = ServerSpec::new()
        .option("httpMUXHeader", "X-Target")
        .user("web")
        .start();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    let mut visitor = e2e::HttpConn::new(http::connect(server.http()).expect("a connection"));
    visitor
        .send("GET / HTTP/1.1\r\nHost: elsewhere.example.com\r\nx-target: web.internal\r\n\r\n")
        .expect("sent");
    assert_eq!(visitor.response().expect("an answer").text(), "here");
}
