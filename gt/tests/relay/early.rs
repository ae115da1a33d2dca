//! Services that answer before they have read all, and close: what they said reaches the visitor, whatever becomes of what they did not read.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    thread,
};

use e2e::{HttpConn, Service, Transport, http, over_each_transport};

use crate::{server, server_with_ports};

over_each_transport!(
    an_early_answer_reaches_a_visitor_of_http_mode,
    an_early_answer_reaches_a_visitor_of_stream_mode,
    what_was_said_before_an_orderly_end_ends_in_order,
);

/// More than all windows and buffers on the way hold, so that somebody is writing when the service goes.
const BODY: usize = 32 << 20;
/// So little that all of it is on its way at once.
const SMALL: usize = 20_000;
/// No more than the system has sent when the service closes: what it has not, a reset throws away at its source.
const SAID: usize = 16 << 10;

/// Reads a head, and waits until there is more that it will not read.
fn read_head_only(stream: &mut TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    stream.peek(&mut [0]).map(drop)
}

fn refusal() -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 413 Too Large\r\nContent-Length: {SAID}\r\nConnection: close\r\n\r\n")
            .into_bytes();
    answer.resize(answer.len() + SAID, b'x');
    answer
}

/// To close a socket with bytes unread resets the connection, behind what was written.
fn refuses() -> Service {
    Service::tcp(|mut stream| {
        read_head_only(&mut stream)?;
        stream.write_all(&refusal())
    })
}

/// Sends a request that is larger than anybody wants, until nobody takes it any more; its answer is for whoever reads meanwhile.
fn upload(visitor: &TcpStream, length: usize) -> thread::JoinHandle<io::Result<()>> {
    let mut visitor = visitor.try_clone().expect("another handle");
    thread::spawn(move || {
        visitor.write_all(
            format!("POST / HTTP/1.1\r\nHost: web.test\r\nContent-Length: {length}\r\n\r\n")
                .as_bytes(),
        )?;
        visitor.write_all(&vec![b'u'; length])
    })
}

fn an_early_answer_reaches_a_visitor_of_http_mode(transport: Transport) {
    let (service, good) = (refuses(), Service::text("alive"));
    let server = server();
    let client = server
        .client(transport, "web")
        .service(service.url("http"), "mode: http")
        .service(good.url("http"), "mode: http, hostPrefix: good")
        .start_up();
    for _ in 0..3 {
        let stream = http::connect(server.http()).expect("a connection");
        let sending = upload(&stream, BODY);
        let mut visitor = HttpConn::new(stream);
        let answer = visitor.response().expect("the service's answer");
        assert_eq!((answer.status, answer.body.len()), (413, SAID));
        drop(visitor);
        let _ = sending.join().expect("no panic");
    }
    let answer = http::get(server.http(), "good.test", "/").expect("an answer");
    assert_eq!(answer.text(), "alive");
    assert_eq!(client.process.count_log(&["a link was lost"]), 0);
}

fn an_early_answer_reaches_a_visitor_of_stream_mode(transport: Transport) {
    let service = refuses();
    let (_ports, server) = server_with_ports(1);
    let client = server
        .client(transport, "web")
        .service(service.url("tcp"), "name: raw, remoteTCPRandom: true")
        .start_up();
    for length in [BODY, SMALL] {
        let mut visitor = http::connect(server.port(client.port_of("raw"))).expect("a connection");
        let sending = upload(&visitor, length);
        let mut said = vec![0; refusal().len()];
        visitor.read_exact(&mut said).expect("the service's answer");
        assert!(said == refusal());
        let end = visitor.read(&mut [0]).map_err(|error| error.kind());
        // A reset is carried as one, behind what came before it. Whoever writes may be told of it first, and only once is it told.
        let sent = sending.join().expect("no panic");
        assert!(
            sent.is_err() || end == Err(ErrorKind::ConnectionReset),
            "{end:?}"
        );
    }
}

fn what_was_said_before_an_orderly_end_ends_in_order(transport: Transport) {
    let service = Service::tcp(|mut stream| {
        read_head_only(&mut stream)?;
        stream.write_all(&refusal())?;
        stream.shutdown(Shutdown::Write)
    });
    let (_ports, server) = server_with_ports(1);
    let client = server
        .client(transport, "web")
        .service(service.url("tcp"), "name: raw, remoteTCPRandom: true")
        .start_up();
    let mut visitor = http::connect(server.port(client.port_of("raw"))).expect("a connection");
    let sending = upload(&visitor, BODY);
    let mut said = Vec::new();
    visitor
        .read_to_end(&mut said)
        .expect("the answer and its end");
    assert!(said == refusal());
    // Nobody reads the rest, and that ends, too.
    drop(visitor);
    let _ = sending.join().expect("no panic");
}
