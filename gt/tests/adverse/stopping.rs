//! Planned stops: what runs may end, what comes is sent elsewhere, and who insists is obeyed.

use std::{
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use e2e::{
    Client, HttpConn, Server, ServerSpec, Transport, http, over_each_transport, pattern::Pattern,
    wait,
};

use crate::origin::Origin;

over_each_transport!(
    a_stopping_server_lets_a_transfer_end,
    a_stopping_client_lets_a_transfer_end,
    a_drained_client_moves_and_its_transfer_ends_on_the_old_link,
);

const LENGTH: u64 = 4 << 20;

fn pair(transport: Transport, origin: &Origin) -> (Server, Client) {
    let server = ServerSpec::new().user("web").start();
    let client = server
        .client(transport, "web")
        .service(format!("http://{}", origin.address()), "")
        .start_up();
    (server, client)
}

/// A visitor in the middle of a transfer.
fn begin(server: &Server, origin: &Origin) -> HttpConn<TcpStream> {
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("accepts"));
    visitor
        .send(format!(
            "GET /gated/{LENGTH}/5 HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n"
        ))
        .expect("writable");
    origin.wait_gated(1);
    visitor
}

#[track_caller]
fn assert_whole(mut visitor: HttpConn<TcpStream>) {
    let head = visitor.head().expect("a head");
    let mut pattern = Pattern::new(5);
    let body = visitor.body(&head, |piece| pattern.check(piece));
    body.expect("whole");
    assert_eq!(pattern.position(), LENGTH);
}

fn a_stopping_server_lets_a_transfer_end(transport: Transport) {
    let origin = Origin::http();
    let (mut server, _client) = pair(transport, &origin);
    let visitor = begin(&server, &origin);
    server.process.signal("TERM");
    server.process.wait_log(&["ending"]);
    wait::until("nobody new is accepted", || {
        TcpStream::connect(server.http()).is_err().then_some(())
    });
    assert_eq!(server.process.try_exit(), None, "it waits for the transfer");
    origin.open_gate();
    let began = Instant::now();
    assert_whole(visitor);
    assert_eq!(server.process.wait_exit().code(), Some(0));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

fn a_stopping_client_lets_a_transfer_end(transport: Transport) {
    let origin = Origin::http();
    let (server, mut client) = pair(transport, &origin);
    let visitor = begin(&server, &origin);
    client.process.signal("TERM");
    client.process.wait_log(&["ending"]);
    assert_eq!(client.process.try_exit(), None, "it waits for the transfer");
    origin.open_gate();
    assert_whole(visitor);
    assert_eq!(client.wait_exit().code(), Some(0));
    server.process.wait_log(&["INFO", "a client says goodbye"]);
}

fn a_drained_client_moves_and_its_transfer_ends_on_the_old_link(transport: Transport) {
    let origin = Origin::http();
    let mut old = ServerSpec::new().user("web").start();
    let new = ServerSpec::new().user("web").start();
    let client = old
        .client(transport, "web")
        .without("remoteCert")
        .option("remoteCertInsecure", "true")
        .option(
            "remote",
            format!(
                "[\"{}\", \"{}\"]",
                old.remote(transport),
                new.remote(transport)
            ),
        )
        .service(format!("http://{}", origin.address()), "")
        .start_up();
    let visitor = begin(&old, &origin);
    old.process.signal("TERM");
    client.process.wait_log(&["the server asks to move"]);
    let asked = Instant::now();
    http::get_until(new.http(), "web.test", "/", 200);
    println!("{transport:?}: moved within {:?}", asked.elapsed());
    assert_eq!(old.process.try_exit(), None, "the transfer holds it");
    origin.open_gate();
    assert_whole(visitor);
    assert_eq!(old.process.wait_exit().code(), Some(0));
}

#[test]
fn a_second_signal_ends_at_once() {
    let origin = Origin::http();
    let (mut server, _client) = pair(Transport::Tcp, &origin);
    let _visitor = begin(&server, &origin);
    server.process.signal("TERM");
    server.process.wait_log(&["ending"]);
    // Signals of one kind are not counted while one is on its way; the other kind is another signal in any case.
    thread::sleep(Duration::from_millis(100));
    let again = Instant::now();
    server.process.signal("INT");
    assert_eq!(server.process.wait_exit().code(), Some(1));
    let took = again.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_transfer_that_does_not_end_is_reset_after_the_servers_patience() {
    let origin = Origin::http();
    let (mut server, _client) = pair(Transport::Tcp, &origin);
    let mut visitor = begin(&server, &origin);
    let asked = Instant::now();
    server.process.signal("TERM");
    assert_eq!(server.process.wait_exit().code(), Some(0));
    let took = asked.elapsed();
    assert!(
        (Duration::from_secs(4)..Duration::from_secs(10)).contains(&took),
        "{took:?}"
    );
    let head = visitor.head().and_then(|head| visitor.body(&head, |_| {}));
    assert!(head.is_err(), "no part may be taken for the whole");
}
