//! Links that are cut and processes that are killed, in the middle of transfers. Nobody may take a part for the whole, others are not
//! harmed, and the way is back soon: how soon is printed.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use e2e::{
    Client, HttpConn, PATIENCE, PortRange, Server, ServerSpec, Transport, http,
    over_each_transport, pattern::Pattern, wait,
};

use crate::{client_through, origin::Origin, way_in, wire::Wire};

over_each_transport!(
    a_cut_link_breaks_its_transfers_visibly_and_comes_back,
    a_killed_client_breaks_its_transfers_visibly_and_comes_back,
    a_killed_server_breaks_its_transfers_visibly_and_clients_come_back,
    of_two_links_the_one_that_is_not_cut_keeps_its_streams,
);

/// Two visitors of `web` in the middle of their transfers (HTTP with a length; TCP, whose length nobody knows), and one of `other`.
struct Scene {
    http: HttpConn<TcpStream>,
    until_close: HttpConn<TcpStream>,
    tcp: TcpStream,
    other: HttpConn<TcpStream>,
    other_origin: Origin,
    _other_client: Client,
}

const LENGTH: u64 = 8 << 20;

impl Scene {
    /// `client` has the [`services`].
    fn new(server: &Server, client: &Client, transport: Transport) -> Self {
        let other_origin = Origin::http();
        let other_client = server
            .client(transport, "other")
            .service(format!("http://{}", other_origin.address()), "")
            .start_up();
        let asked = |host: &str, target: &str| {
            let mut visitor = HttpConn::new(http::connect(server.http()).expect("accepts"));
            let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            visitor.send(request).expect("writable");
            visitor
        };
        let http = asked("web.test", &format!("/gated/{LENGTH}/1"));
        let until_close = asked("web.test", &format!("/until-close/{LENGTH}/2"));
        let mut raw = http::connect(server.port(client.port_of("tcp"))).expect("accepts");
        writeln!(raw, "gated {LENGTH} 3").expect("writable");
        let mut other = asked("other.test", &format!("/gated/{LENGTH}/4"));
        // All of them have begun: heads are here, and first bytes.
        raw.read_exact(&mut [0]).expect("begins");
        let head = other.head().expect("begins");
        assert_eq!(head.status, 200);
        let (mut http, mut until_close) = (http, until_close);
        assert_eq!(http.head().expect("begins").status, 200);
        assert_eq!(until_close.head().expect("begins").status, 200);
        Self {
            http,
            until_close,
            tcp: raw,
            other,
            other_origin,
            _other_client: other_client,
        }
    }

    /// None of them can be taken for whole.
    fn assert_broken(&mut self) {
        self.assert_shorter_than_announced();
        // Where the end of the connection is the end of the content, only a reset tells.
        for stream in [self.until_close.stream(), &mut self.tcp] {
            match drain(stream) {
                Ok(read) => panic!("{read} bytes and an orderly end"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
    }

    fn assert_shorter_than_announced(&mut self) {
        match drain(self.http.stream()) {
            Ok(read) => assert!(read < LENGTH / 2, "{read} bytes"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }

    /// The other client's visitor gets all of it.
    fn assert_other_unharmed(self) {
        self.other_origin.open_gate();
        let (mut stream, read) = self.other.into_parts();
        let mut pattern = Pattern::new(4);
        pattern.check(&read);
        let left = LENGTH - pattern.position();
        pattern.read_from(&mut stream, left).expect("whole");
    }
}

/// The only link of `web` is gone for the server, too.
fn wait_down(server: &Server) {
    server
        .process
        .wait_log(&["a client's link is down", "id=\"web\""]);
}

fn drain(stream: &mut TcpStream) -> io::Result<u64> {
    stream.set_read_timeout(Some(PATIENCE))?;
    io::copy(stream, &mut io::sink())
}

fn services(spec: e2e::ClientSpec, web: &Origin, tcp: &Origin) -> e2e::ClientSpec {
    spec.service(format!("http://{}", web.address()), "")
        .service(
            format!("tcp://{}", tcp.address()),
            "name: tcp, remoteTCPRandom: true",
        )
}

/// Asks until the service answers; returns how long that took from `since`.
fn recovery(server: &Server, since: Instant) -> Duration {
    http::get_until(server.http(), "web.test", "/", 200);
    since.elapsed()
}

fn a_cut_link_breaks_its_transfers_visibly_and_comes_back(transport: Transport) {
    let (web, tcp, ports) = (Origin::http(), Origin::tcp(), PortRange::claim(4));
    let server = ServerSpec::new()
        .user("web")
        .user("other")
        .ports(&ports)
        .start();
    let wire = Wire::to(way_in(&server, transport));
    let spec = client_through(&wire, &server, transport, "web").option("remoteConnections", 1);
    let client = services(spec, &web, &tcp).start_up();
    let mut scene = Scene::new(&server, &client, transport);
    wire.cut();
    let cut = Instant::now();
    scene.assert_broken();
    let noticed = cut.elapsed();
    wait_down(&server);
    // A visitor who comes now waits for the link instead of being refused.
    let response = http::get(server.http(), "web.test", "/").expect("an answer");
    assert_eq!(response.status, 200);
    let recovered = cut.elapsed();
    println!(
        "{transport:?}: link cut, visitors told after {noticed:?}, served again after {recovered:?}"
    );
    assert!(recovered < Duration::from_secs(3), "{recovered:?}");
    scene.assert_other_unharmed();
}

fn a_killed_client_breaks_its_transfers_visibly_and_comes_back(transport: Transport) {
    let (web, tcp, ports) = (Origin::http(), Origin::tcp(), PortRange::claim(4));
    let server = ServerSpec::new()
        .user("web")
        .user("other")
        .ports(&ports)
        .start();
    let mut client = services(
        server
            .client(transport, "web")
            .option("remoteConnections", 1),
        &web,
        &tcp,
    )
    .start_up();
    let mut scene = Scene::new(&server, &client, transport);
    client.process.kill();
    scene.assert_broken();
    wait_down(&server);
    let began = Instant::now();
    let away = http::get(server.http(), "web.test", "/").expect("an answer");
    let waited = began.elapsed();
    assert_eq!(away.status, 503);
    assert!(away.header("retry-after").is_some());
    assert!(
        (Duration::from_secs(2)..Duration::from_secs(5)).contains(&waited),
        "waits a little for the client: {waited:?}"
    );
    let restarted = Instant::now();
    let _client = services(server.client(transport, "web"), &web, &tcp).start();
    let recovered = recovery(&server, restarted);
    println!("{transport:?}: client killed, served again {recovered:?} after its restart");
    assert!(recovered < Duration::from_secs(3), "{recovered:?}");
    scene.assert_other_unharmed();
}

fn a_killed_server_breaks_its_transfers_visibly_and_clients_come_back(transport: Transport) {
    let (web, tcp) = (Origin::http(), Origin::tcp());
    // The server's own addresses must be the same after its restart.
    let (ports, own) = (PortRange::claim(4), PortRange::claim(3));
    let cert = || e2e::Cert::self_signed(&["localhost", "127.0.0.1"]);
    let spec = || {
        let at = |n: u16| format!("\"127.0.0.1:{}\"", own.first() + n);
        ServerSpec::new()
            .user("web")
            .user("other")
            .ports(&ports)
            .cert(cert())
            .option("addr", at(0))
            .option("tlsAddr", at(1))
            .option("sniAddr", at(2))
    };
    let mut server = spec().start();
    let insecure = |spec: e2e::ClientSpec| {
        spec.without("remoteCert")
            .option("remoteCertInsecure", "true")
    };
    let client = services(insecure(server.client(transport, "web")), &web, &tcp).start_up();
    let mut scene = Scene::new(&server, &client, transport);
    let anchor = server.cert().der().clone();
    let config = e2e::tls::client_config(&[anchor], &[]);
    let stream = e2e::tls::connect(server.https(), "localhost", config).expect("a handshake");
    let mut secured = HttpConn::new(stream);
    let request = format!("GET /until-close/{LENGTH}/5 HTTP/1.1\r\nHost: web.test\r\n\r\n");
    secured.send(request).expect("writable");
    assert_eq!(secured.head().expect("begins").status, 200);
    server.process.kill();
    // The kernel closes what a killed process had, in order: without an announced length and without TLS nobody could tell.
    scene.assert_shorter_than_announced();
    let end = io::copy(secured.stream(), &mut io::sink()).expect_err("no orderly end of TLS");
    assert!(
        matches!(
            end.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
        ),
        "{end}"
    );
    let mut client = client;
    assert_eq!(client.process.try_exit(), None, "the client stays");
    client.process.wait_log(&["a link was lost"]);
    let server = spec().start();
    let recovered = recovery(&server, Instant::now());
    println!("{transport:?}: server killed, served again {recovered:?} after its restart");
    assert!(recovered < Duration::from_secs(3), "{recovered:?}");
}

fn of_two_links_the_one_that_is_not_cut_keeps_its_streams(transport: Transport) {
    let origin = Origin::http();
    let server = ServerSpec::new().user("web").option("workers", 2).start();
    let wire = Wire::to(way_in(&server, transport));
    let client = client_through(&wire, &server, transport, "web")
        .option("remoteConnections", 2)
        .service(format!("http://{}", origin.address()), "")
        .start_up();
    server.process.wait_log_times(&["a client's link is up"], 2);
    // The kernel spreads visitors over the workers: enough of them, and both links carry some.
    let mut downloads = Vec::new();
    let before = wire.bytes();
    wait::until("both links carry transfers", || {
        let mut visitor = HttpConn::new(http::connect(server.http()).ok()?);
        let seed = downloads.len();
        let request = format!("GET /gated/{LENGTH}/{seed} HTTP/1.1\r\nHost: web.test\r\n\r\n");
        visitor.send(request).ok()?;
        downloads.push(visitor);
        origin.wait_gated(downloads.len());
        let grown = wire
            .bytes()
            .iter()
            .zip(&before)
            .filter(|(now, before)| *now - *before > 200_000)
            .count();
        (grown == 2 || downloads.len() > 60).then_some(())
    });
    wire.cut_one(1);
    client.process.wait_log(&["a link was lost"]);
    origin.open_gate();
    let finish = |(seed, mut visitor): (usize, HttpConn<TcpStream>)| {
        thread::spawn(move || {
            let mut pattern = Pattern::new(seed as u64);
            // A visitor whose answer had not begun when the link died is told so: 503.
            let whole = visitor.head().and_then(|head| match head.status {
                200 => visitor.body(&head, |piece| pattern.check(piece)),
                status => Err(io::Error::other(format!("status {status}"))),
            });
            whole.is_ok() && pattern.position() == LENGTH
        })
    };
    let ends: Vec<_> = downloads.into_iter().enumerate().map(finish).collect();
    let ends: Vec<bool> = ends
        .into_iter()
        .map(|end| end.join().expect("no wrong byte"))
        .collect();
    let whole = ends.iter().filter(|whole| **whole).count();
    println!(
        "{transport:?}: {whole} of {} transfers are whole",
        ends.len()
    );
    assert!(whole >= 1, "the link that was not cut lost its streams");
    assert!(whole < ends.len(), "the cut link's streams cannot be whole");
    assert_eq!(client.process.count_log(&["a link was lost"]), 1);
}
