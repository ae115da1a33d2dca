//! The bridge between namespaces: needs root, /dev/net/tun and `ip`; says why when it cannot run.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a helper is a failure of the test"
)]

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use netem::{Options, Plan, TunBridge, TunOptions, available};
use rustix::{
    net::sockopt::set_socket_recv_buffer_size_force,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// A bridge, or one line why there is none.
fn bridge(up: &str, down: &str) -> Option<(TunOptions, TunBridge)> {
    if let Err(reason) = available() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let path = Options {
        up: Plan::parse(up).unwrap(),
        down: Plan::parse(down).unwrap(),
        seed: 3,
        spin: Duration::ZERO,
    };
    let options = TunOptions::new(path);
    let bridge = TunBridge::start(&options).unwrap();
    Some((options, bridge))
}

/// Runs on a thread inside a namespace.
fn inside<T: Send + 'static>(
    namespace: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).unwrap();
    thread::spawn(move || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind).unwrap();
        work()
    })
}

fn listen(options: &TunOptions) -> (SocketAddr, TcpListener) {
    let address = options.right.address;
    let listener = inside(&options.right.namespace, move || {
        TcpListener::bind((address, 0)).unwrap()
    })
    .join()
    .unwrap();
    (listener.local_addr().unwrap(), listener)
}

#[test]
fn tcp_passes_whole_and_at_the_path_s_rate() {
    let Some((options, bridge)) = bridge("rate=40mbit,delay=5ms", "delay=5ms") else {
        return;
    };
    let (address, listener) = listen(&options);
    let sent: Vec<u8> = (0..5_000_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let copy = sent.clone();
    let sender = inside(&options.left.namespace, move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&copy).unwrap();
    });
    let (mut stream, _) = listener.accept().unwrap();
    let begun = Instant::now();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    let time = begun.elapsed();
    sender.join().unwrap();
    assert!(got == sent, "the bytes differ");
    // One second at 5 MB/s without headers; never faster, whatever the machine does. The first window comes for free.
    assert!(time > Duration::from_millis(950), "{time:?}");
    let report = bridge.running.stop().unwrap();
    assert!(report.up.bytes_in > 5_000_000, "{report}");
    assert_eq!(report.refused, 0, "{report}");
}

#[test]
fn datagrams_are_delayed_and_lost_as_asked() {
    let Some((options, bridge)) = bridge("delay=20ms,loss=25%", "delay=0") else {
        return;
    };
    let right = options.right.address;
    let receiver = inside(&options.right.namespace, move || {
        let socket = UdpSocket::bind((right, 0)).unwrap();
        // All arrive at once, and a packet from a device counts for some kilobytes.
        set_socket_recv_buffer_size_force(&socket, 4 << 20).unwrap();
        socket
    })
    .join()
    .unwrap();
    let address = receiver.local_addr().unwrap();
    let left = options.left.address;
    let sender = inside(&options.left.namespace, move || {
        UdpSocket::bind((left, 0)).unwrap()
    })
    .join()
    .unwrap();
    let begun = Instant::now();
    for number in 0..400u16 {
        sender.send_to(&number.to_be_bytes(), address).unwrap();
    }
    let deadline = begun + Duration::from_secs(10);
    let report = loop {
        let report = bridge.running.report();
        if report.up.packets_in == 400 && report.up.packets_out + report.up.lost == 400 {
            break report;
        }
        assert!(Instant::now() < deadline, "{report}");
        thread::yield_now();
    };
    assert!(begun.elapsed() >= Duration::from_millis(20));
    assert!((50..150).contains(&report.up.lost), "{report}");
    let mut buffer = [0; 8];
    let mut got = 0;
    receiver
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    while got < 400 - report.up.lost {
        let (length, from) = receiver.recv_from(&mut buffer).unwrap();
        assert_eq!((length, from.ip()), (2, std::net::IpAddr::V4(left)));
        got += 1;
    }
}

#[test]
fn namespaces_that_were_made_are_removed_and_others_stay() {
    let exists = |name: &str| std::path::Path::new("/run/netns").join(name).exists();
    let Some((options, first)) = bridge("delay=0", "delay=0") else {
        return;
    };
    let (left, right) = (&options.left.namespace, &options.right.namespace);
    assert!(exists(left) && exists(right));
    // A second bridge between the same ones, with other addresses, leaves them alone.
    let mut again = options.clone();
    again.left.address = Ipv4Addr::new(10, 78, 0, 1);
    again.right.address = Ipv4Addr::new(10, 78, 0, 2);
    drop(TunBridge::start(&again).unwrap());
    assert!(exists(left) && exists(right));
    drop(first);
    assert!(!exists(left) && !exists(right));
}

#[test]
fn the_binary_runs_a_command_on_the_left_and_hands_on_its_exit_code() {
    if let Err(reason) = available() {
        eprintln!("skipped: {reason}");
        return;
    }
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_netem"))
        .args(["tun", "--delay", "1ms", "--seed", "1", "--", "sh", "-c"])
        .arg("ip route get $NETEM_RIGHT_IP >&2; exit 7")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("10.77.0.2 dev nm"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("own lateness"));
}
