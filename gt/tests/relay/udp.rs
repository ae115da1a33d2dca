//! UDP services: each visitor's address is a conversation of its own.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use e2e::{
    PortRange, Server, ServerSpec, Transport, UdpService, http,
    lossy::{LossyPath, Path},
    over_each_transport,
    pattern::Pattern,
    relay::field,
    wait,
};

use crate::server_with_ports;

over_each_transport!(
    two_visitors_get_their_own_answers,
    datagrams_of_all_sizes_keep_their_bounds,
    a_speed_limit_drops_datagrams_and_does_not_delay_them,
);

fn visitor(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(address).expect("an address");
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .expect("a timeout");
    socket
}

/// Sends until the answer to this datagram comes: UDP may lose any of them.
fn ask(visitor: &UdpSocket, datagram: &[u8]) -> Vec<u8> {
    wait::until("an answer to a datagram", || {
        visitor.send(datagram).ok()?;
        let mut answer = vec![0; 1 << 16];
        loop {
            let n = visitor.recv(&mut answer).ok()?;
            if answer[..n].ends_with(datagram) {
                answer.truncate(n);
                return Some(answer);
            }
        }
    })
}

fn two_visitors_get_their_own_answers(transport: Transport) {
    let service = UdpService::echo("echo ");
    let (ports, server) = server_with_ports(1);
    let client = server
        .client(transport, "web")
        .service(
            format!("udp://{}", service.address()),
            "name: echo, remoteUDPRandom: true",
        )
        .start_up();
    let port = client.port_of("echo");
    assert!(ports.contains(port));
    let visitors = [visitor(server.port(port)), visitor(server.port(port))];
    for round in 0..20 {
        for (name, visitor) in ["one", "two"].iter().zip(&visitors) {
            let said = format!("{name} {round}");
            assert_eq!(
                ask(visitor, said.as_bytes()),
                format!("echo {said}").into_bytes()
            );
        }
    }
    // Nobody got what was meant for the other, not even late.
    for (other, visitor) in ["two", "one"].iter().zip(&visitors) {
        let mut late = [0; 100];
        while let Ok(n) = visitor.recv(&mut late) {
            let late = String::from_utf8_lossy(&late[..n]).into_owned();
            assert!(!late.contains(other), "{late:?} went to the wrong visitor");
        }
    }
}

fn datagrams_of_all_sizes_keep_their_bounds(transport: Transport) {
    let service = UdpService::echo("");
    let (ports, server) = server_with_ports(1);
    let more = format!("remoteUDPPort: {}", ports.first());
    let _client = server
        .client(transport, "web")
        .service(format!("udp://{}", service.address()), &more)
        .start_up();
    let visitor = visitor(server.port(ports.first()));
    let mut pattern = Pattern::new(9);
    for size in [1, 2, 512, 1200, 1472, 9000, 65_000] {
        let datagram = pattern.bytes(size);
        assert!(
            ask(&visitor, &datagram) == datagram,
            "a datagram of {size} bytes came back changed"
        );
    }
}

/// A service that counts what it hears, and sends a burst of 100 datagrams a second for three seconds to whoever says "burst".
fn bursting() -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address");
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    thread::spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok((n, visitor)) = socket.recv_from(&mut datagram) {
            if &datagram[..n] != b"burst" {
                count.fetch_add(1, Relaxed);
                continue;
            }
            let socket = socket.try_clone().expect("a clone");
            thread::spawn(move || flood(|bytes| socket.send_to(bytes, visitor).is_ok()));
        }
    });
    (address, heard)
}

/// 100 datagrams of 1000 bytes a second, for three seconds. Each says when it was sent.
fn flood(send: impl Fn(&[u8]) -> bool) {
    let began = Instant::now();
    for n in 0..300 {
        let at = began + Duration::from_millis(10) * n;
        thread::sleep(at.saturating_duration_since(Instant::now()));
        let mut datagram = [b'x'; 1000];
        datagram[..8].copy_from_slice(&micros().to_be_bytes());
        if !send(&datagram) {
            return;
        }
    }
}

/// On a clock that all threads share.
fn micros() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(ORIGIN.elapsed().as_micros()).expect("not that long")
}

fn a_speed_limit_drops_datagrams_and_does_not_delay_them(transport: Transport) {
    let (service, heard) = bursting();
    let ports = PortRange::claim(2);
    let server = ServerSpec::new()
        .user("web")
        .ports(&ports)
        .option("speed", 20_000)
        .option("apiAddr", "\"127.0.0.1:0\"")
        .start();
    let more = format!("remoteUDPPort: {}", ports.first());
    let _client = server
        .client(transport, "web")
        .service(format!("udp://{service}"), &more)
        .start_up();
    let address = server.port(ports.first());
    // Both directions at one time: neither takes from the other.
    let up = thread::spawn(move || {
        let visitor = visitor(address);
        flood(|bytes| visitor.send(bytes).is_ok());
    });
    let down = visitor(address);
    down.send(b"burst").expect("sent");
    let began = Instant::now();
    let (mut came, mut late, mut last) = (0, 0, began);
    let mut datagram = [0; 1000];
    while last.elapsed() < SILENCE {
        if down.recv(&mut datagram).is_ok() {
            let (sent, _) = datagram.split_first_chunk().expect("long enough");
            late = late.max(micros() - u64::from_be_bytes(*sent));
            (came, last) = (came + 1, Instant::now());
        }
    }
    up.join().expect("no panic");
    // Each loss is counted.
    let arrived = wait::until("600 datagrams that came or were counted", || {
        let arrived = heard.load(Relaxed);
        let dropped = metric(&server, "gt_datagrams_dropped_total");
        (dropped + arrived + came == 600).then_some(arrived)
    });
    // 20 a second for three seconds, or longer on a busy machine, what waits, and the start.
    let most = 15 + (began.elapsed() - SILENCE).as_millis() as usize / 50;
    for (way, count) in [("up", arrived), ("down", came)] {
        assert!((45..=most).contains(&count), "{count} of 300 came {way}");
    }
    let late = Duration::from_micros(late);
    println!("{arrived} and {came} of 300, at most {late:?} on their way");
    assert!(late < Duration::from_millis(800), "{late:?} on its way");
}

/// Nothing waits as long as this.
const SILENCE: Duration = Duration::from_secs(2);

/// The sum of its samples.
fn metric(server: &Server, name: &str) -> usize {
    let line = server
        .process
        .wait_log(&["listening", "option=\"apiAddr\""]);
    let api = field(&line, "address").and_then(|address| address.parse().ok());
    let metrics = http::get(api.expect("an address"), "localhost", "/metrics").expect("metrics");
    let text = metrics.text();
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = rest.rsplit(' ').next()?;
        Some(value.parse::<usize>().expect("a whole number"))
    });
    samples.sum()
}

#[test]
fn datagrams_over_quic_are_repaired_where_both_ends_were_told_to() {
    let service = UdpService::echo("");
    let ports = PortRange::claim(1);
    let server = ServerSpec::new()
        .user("web")
        .ports(&ports)
        .option("apiAddr", "\"127.0.0.1:0\"")
        .option("udpFEC", "4/4")
        // CUBIC takes each loss for a full path, and leaves no room for parity at times.
        .option("bbr", "true")
        .start();
    let path = LossyPath::to(
        server.quic(),
        Path {
            delay: Duration::from_millis(5),
            loss_per_mille: 50,
            seed: 3,
        },
    );
    let client = server
        .client(Transport::Quic, "web")
        .option("remote", format!("quic://{}", path.address()))
        .option("udpFEC", "4/4")
        .option("bbr", "true")
        .service(
            format!("udp://{}", service.address()),
            "name: echo, remoteUDPRandom: true",
        )
        .start_up();
    let visitor = visitor(server.port(client.port_of("echo")));
    ask(&visitor, b"begin");
    visitor
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a timeout");
    let mut back = vec![0_u32; COUNT as usize];
    let mut buffer = [0; 100];
    // No more at a time than any queue on the way holds.
    for first in (0..COUNT).step_by(AT_ONCE) {
        let numbers = first as usize..(first as usize + AT_ONCE).min(COUNT as usize);
        for number in numbers.clone() {
            visitor.send(&(number as u32).to_be_bytes()).expect("sent");
        }
        while back[numbers.clone()].contains(&0)
            && let Ok(length) = visitor.recv(&mut buffer)
        {
            let number = buffer[..length].first_chunk();
            let number = number.map(|number| u32::from_be_bytes(*number) as usize);
            if let Some(seen) = number.and_then(|number| back.get_mut(number)) {
                *seen += 1;
            }
        }
    }
    assert!(back.iter().all(|seen| *seen <= 1), "one came twice");
    let missing = back.iter().filter(|seen| **seen == 0).count();
    // Without parity 10 of 100 do not come back.
    assert!(
        missing < COUNT as usize / 40,
        "{missing} of {COUNT} did not come back"
    );
    let repaired = metric(&server, "gt_quic_link_datagrams_recovered_total");
    // One of twenty is lost on its way to the server, nearly all of them are repaired.
    assert!(repaired > COUNT as usize / 50, "{repaired} repaired");
}

/// Of datagrams that go there and back over a path that loses one of twenty.
const COUNT: u32 = 1000;
const AT_ONCE: usize = 16;
