//! How many links one id may have, and what becomes of two clients with one id.

use std::collections::HashMap;

use e2e::{Client, Server, ServerSpec, Service, Transport, http, over_each_transport, wait};

over_each_transport!(
    three_of_five_links_are_let_in,
    a_users_own_number_of_links_goes_before_the_servers,
    two_clients_with_one_id_share_the_visitors,
    the_newer_of_two_clients_with_one_id_is_refused,
);

fn links(server: &Server, id: &str) -> usize {
    let up = server
        .process
        .count_log(&["a client's link is up", &format!("id=\"{id}\"")]);
    up - server
        .process
        .count_log(&["a client's link is down", &format!("id=\"{id}\"")])
}

fn three_of_five_links_are_let_in(transport: Transport) {
    // Five clients with one link each: an honest client does not even ask for more links than it was told it may have.
    let server = ServerSpec::new()
        .option("connections", 3)
        .user_with("web", "loadBalance: true")
        .start();
    let service = Service::text("here");
    let clients: Vec<Client> = (0..5)
        .map(|_| {
            server
                .client(transport, "web")
                .option("remoteConnections", 1)
                .service(service.url("http"), "")
                .start()
        })
        .collect();
    server
        .process
        .wait_log(&["a link was refused", "too many links"]);
    wait::until("three links are up", || {
        (links(&server, "web") == 3).then_some(())
    });
    let (mut inside, mut outside) = (0, 0);
    wait::until("each client knows", || {
        inside = clients
            .iter()
            .filter(|client| client.process.count_log(&["connected"]) > 0)
            .count();
        outside = clients
            .iter()
            .filter(|client| client.process.count_log(&["no link", "too many links"]) > 0)
            .count();
        (inside + outside >= 5).then_some(())
    });
    assert_eq!((inside, outside), (3, 2));
    assert_eq!(
        http::get(server.http(), "web.example.com", "/")
            .expect("an answer")
            .text(),
        "here"
    );
}

fn a_users_own_number_of_links_goes_before_the_servers(transport: Transport) {
    let server = ServerSpec::new()
        .option("connections", 3)
        .user("three")
        .user_with("two", "connections: 2")
        .start();
    let service = Service::text("here");
    for (id, allowed) in [("three", 3), ("two", 2)] {
        let client = server
            .client(transport, id)
            .option("remoteConnections", 5)
            .service(service.url("http"), "")
            .start_up();
        client.process.wait_log_times(&["connected"], allowed);
        wait::until("the server counts them too", || {
            (links(&server, id) == allowed).then_some(())
        });
        assert_eq!(
            client.process.count_log(&["no link"]),
            0,
            "it asks for no more than it may have"
        );
        for _ in 0..10 {
            assert_eq!(
                http::get(server.http(), &format!("{id}.example.com"), "/")
                    .expect("an answer")
                    .text(),
                "here"
            );
        }
    }
}

fn two_clients_with_one_id_share_the_visitors(transport: Transport) {
    let server = ServerSpec::new()
        .user_with("web", "loadBalance: true")
        .start();
    let services = [Service::text("left"), Service::text("right")];
    let mut clients: Vec<_> = services
        .iter()
        .map(|service| {
            server
                .client(transport, "web")
                .service(service.url("http"), "loadBalance: pages")
                .start_up()
        })
        .collect();
    let mut counts = HashMap::new();
    for _ in 0..40 {
        let text = http::get(server.http(), "web.example.com", "/")
            .expect("an answer")
            .text();
        *counts.entry(text).or_insert(0) += 1;
    }
    // They take turns; a declaration that arrives meanwhile may begin the turns anew.
    let share = 15..=25;
    let fair = ["left", "right"].map(|name| share.contains(counts.get(name).unwrap_or(&0)));
    assert_eq!(fair, [true, true], "{counts:?}");
    // When one goes, the other serves all; nobody sees an error once the server has noticed.
    clients[0].process.signal("TERM");
    clients[0].wait_exit();
    server.process.wait_log(&["a client's link is down"]);
    for _ in 0..20 {
        assert_eq!(
            http::get(server.http(), "web.example.com", "/")
                .expect("an answer")
                .text(),
            "right"
        );
    }
}

fn the_newer_of_two_clients_with_one_id_is_refused(transport: Transport) {
    let server = crate::server();
    let services = [Service::text("older"), Service::text("newer")];
    let mut older = server
        .client(transport, "web")
        .service(services[0].url("http"), "")
        .start_up();
    let newer = server
        .client(transport, "web")
        .service(services[1].url("http"), "")
        .start();
    let line = newer.process.wait_log(&["no link", "the id is in use"]);
    assert!(line.contains("allow load balancing for this id"), "{line}");
    server
        .process
        .wait_log(&["a link was refused", "the id is in use"]);
    assert_eq!(
        http::get(server.http(), "web.example.com", "/")
            .expect("an answer")
            .text(),
        "older"
    );
    // It goes on trying, and takes over when the older one is gone.
    older.process.signal("TERM");
    older.wait_exit();
    newer.wait_up();
    assert_eq!(
        http::get_until(server.http(), "web.example.com", "/", 200).text(),
        "newer"
    );
}

/// A link carries any number of visitors, so links are not opened for them: `remoteIdleConnections` is what is kept at least.
#[test]
fn idle_links_are_kept_where_the_server_asks_for_fewer() {
    let service = Service::text("here");
    let server = ServerSpec::new().user("web").option("workers", 1).start();
    for (options, links) in [
        (&[][..], 1),
        (&[("remoteIdleConnections", 3)][..], 3),
        (&[("remoteIdleConnections", 0)][..], 1),
        (
            &[("remoteConnections", 4), ("remoteIdleConnections", 2)][..],
            4,
        ),
    ] {
        let mut spec = server.client(Transport::Tcp, "web");
        for (name, value) in options {
            spec = spec.option(name, value);
        }
        let mut client = spec.service(service.url("http"), "").start_up();
        client.process.wait_log_times(&["connected"], links);
        // One more would have begun by the time a visitor was served.
        for _ in 0..10 {
            http::get_until(server.http(), "web.example.com", "/", 200);
        }
        assert_eq!(
            client.process.count_log(&["connected"]),
            links,
            "{options:?}"
        );
        client.process.signal("TERM");
        client.wait_exit();
    }
}
