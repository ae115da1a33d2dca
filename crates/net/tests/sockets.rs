//! Listening groups, accepting under shortage, connecting.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Duration;

use common::{listener, loopback, on_worker};
use net::{Acceptor, bind_udp_group, connect_tcp, connect_unix, listen_tcp_group};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_group_shares_one_port_and_every_member_gets_connections() {
    let group = listen_tcp_group(loopback(), 3).unwrap();
    let addr = group[0].local_addr().unwrap();
    assert!(
        group
            .iter()
            .all(|member| member.local_addr().unwrap() == addr)
    );
    let clients: Vec<_> = (0..120)
        .map(|_| TcpStream::connect(addr).unwrap())
        .collect();
    let counts: Vec<usize> = group
        .iter()
        .map(|member| std::iter::from_fn(|| member.accept().ok()).count())
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), clients.len());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn a_port_that_is_served_cannot_be_joined() {
    for n in [1, 2] {
        let first = listen_tcp_group(loopback(), n).unwrap();
        let addr = first[0].local_addr().unwrap();
        assert_eq!(
            listen_tcp_group(addr, 2).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        assert_eq!(
            listen_tcp_group(addr, 1).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        drop(first);
        listen_tcp_group(addr, 2).unwrap();
    }
    // Somebody who would share it.
    let sharing = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    sharing.set_reuse_address(true).unwrap();
    sharing.set_reuse_port(true).unwrap();
    sharing.bind(&loopback().into()).unwrap();
    sharing.listen(1).unwrap();
    let addr = sharing.local_addr().unwrap().as_socket().unwrap();
    assert_eq!(
        listen_tcp_group(addr, 2).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
}

#[test]
fn a_port_can_be_listened_on_again_while_old_connections_linger() {
    let group = listen_tcp_group(loopback(), 2).unwrap();
    let addr = group[0].local_addr().unwrap();
    let client = TcpStream::connect(addr).unwrap();
    let server = group
        .iter()
        .find_map(|member| member.accept().ok())
        .unwrap()
        .0;
    // The server's side closes first and stays behind in TIME_WAIT.
    drop(server);
    drop(client);
    drop(group);
    listen_tcp_group(addr, 2).unwrap();
}

#[test]
fn a_udp_group_shares_one_port_and_nobody_joins() {
    let group = bind_udp_group(loopback(), 2).unwrap();
    let addr = group[0].local_addr().unwrap();
    assert_eq!(
        bind_udp_group(addr, 2).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
    let clients: Vec<_> = (0..64)
        .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
        .collect();
    for client in &clients {
        client.send_to(b"x", addr).unwrap();
    }
    let counts: Vec<usize> = group
        .iter()
        .map(|member| std::iter::from_fn(|| member.recv_from(&mut [0; 4]).ok()).count())
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), clients.len());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn the_unspecified_ipv6_address_takes_ipv4_too() {
    let Ok(group) = listen_tcp_group("[::]:0".parse().unwrap(), 2) else {
        println!("no IPv6 here");
        return;
    };
    let port = group[0].local_addr().unwrap().port();
    TcpStream::connect(("127.0.0.1", port)).unwrap();
    TcpStream::connect(("::1", port)).unwrap();
}

#[test]
fn connecting_goes_past_addresses_that_refuse_or_stay_silent() {
    on_worker(async {
        let (mut good, good_addr) = listener();
        // A closed port refuses. A full queue stays silent: the kernel drops what does not fit.
        let refusing = listen_tcp_group(loopback(), 1).unwrap()[0]
            .local_addr()
            .unwrap();
        let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        silent.bind(&loopback().into()).unwrap();
        silent.listen(0).unwrap();
        let silent_addr = silent.local_addr().unwrap().as_socket().unwrap();
        let _fill: Vec<_> = (0..4).map(|_| fill_queue(silent_addr)).collect();
        let addrs = [refusing, silent_addr, good_addr];
        let (client, server) =
            tokio::join!(timeout(LONG, connect_tcp(&addrs, None)), good.accept());
        assert_eq!(client.unwrap().unwrap().peer_addr().unwrap(), good_addr);
        drop(server.unwrap());
    });
}

fn fill_queue(addr: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    let _ = socket.connect(&addr.into());
    socket
}

#[test]
fn connecting_tells_why_it_failed() {
    on_worker(async {
        let closed = listen_tcp_group(loopback(), 1).unwrap()[0]
            .local_addr()
            .unwrap();
        assert_eq!(
            connect_tcp(&[closed, closed], None)
                .await
                .unwrap_err()
                .kind(),
            ErrorKind::ConnectionRefused
        );
        assert_eq!(
            connect_tcp(&[], None).await.unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        let v6 = Some("::1".parse().unwrap());
        assert_eq!(
            connect_tcp(&[closed], v6).await.unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    });
}

#[test]
fn connecting_uses_the_local_address_it_is_given() {
    on_worker(async {
        let (mut acceptor, addr) = listener();
        let bind = "127.0.0.7".parse().unwrap();
        let addrs = [addr];
        let (client, server) = tokio::join!(connect_tcp(&addrs, Some(bind)), acceptor.accept());
        assert_eq!(server.unwrap().1.ip(), bind);
        assert_eq!(client.unwrap().local_addr().unwrap().ip(), bind);
    });
}

#[test]
fn a_unix_socket_is_connected_to_by_its_path() {
    on_worker(async {
        let path = std::env::temp_dir().join(format!(
            "net-{}-{:x}.sock",
            std::process::id(),
            rand::random::<u64>()
        ));
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = connect_unix(&path).await.unwrap();
        let (server, _) = listener.accept().unwrap();
        let mut server = net::Detached::from(server).attach().unwrap();
        client.write_all(b"hello").await.unwrap();
        let mut got = [0; 5];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"hello");
        assert_eq!(
            client.peer_addr().unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        std::fs::remove_file(&path).unwrap();
    });
}

/// The limit of open files belongs to a whole process, so the test runs itself again in one of its own.
#[test]
fn accepting_survives_a_shortage_of_descriptors() {
    const CHILD: &str = "NET_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(CHILD).is_some() {
        on_worker(timeout_or_panic(accept_with_few_descriptors()));
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 40 && exec \"$0\" --exact accepting_survives_a_shortage_of_descriptors --nocapture"])
        .arg(&exe)
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("served after the shortage"),
        "{output:?}"
    );
}

async fn timeout_or_panic(test: impl Future<Output = ()>) {
    timeout(LONG, test).await.unwrap();
}

async fn accept_with_few_descriptors() {
    let (mut acceptor, addr) = listener();
    let mut client = connect_tcp(&[addr], None).await.unwrap();
    // Every descriptor is taken, with the connection still in the queue.
    let mut hoard = Vec::new();
    let error = loop {
        match Socket::new(Domain::IPV4, Type::STREAM, None) {
            Ok(socket) => hoard.push(socket),
            Err(error) => break error,
        }
    };
    assert_eq!(
        error.raw_os_error(),
        io::Error::from_raw_os_error(24).raw_os_error(),
        "EMFILE"
    );
    assert!(
        timeout(Duration::from_millis(300), acceptor.accept())
            .await
            .is_err(),
        "accepted without a descriptor"
    );
    hoard.clear();
    let (mut server, _) = acceptor.accept().await.unwrap();
    server.write_all(b"ok").await.unwrap();
    client.read_exact(&mut [0; 2]).await.unwrap();
    println!("served after the shortage");
}

#[test]
fn a_listener_handed_over_is_made_fit_for_the_runtime() {
    on_worker(async {
        let blocking = std::net::TcpListener::bind(loopback()).unwrap();
        let mut acceptor = Acceptor::new(blocking).unwrap();
        let waited = timeout(Duration::from_millis(10), acceptor.accept()).await;
        assert!(waited.is_err());
    });
}

/// Only where the system is set to BBR there is something to see.
#[test]
fn connections_within_the_machine_are_not_paced() {
    let system = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let wanted = match system.trim() {
        name if name.starts_with("bbr") => "reno",
        name => name,
    };
    for everywhere in [false, true] {
        on_worker(async {
            let ip = match everywhere {
                true => Ipv4Addr::UNSPECIFIED,
                false => Ipv4Addr::LOCALHOST,
            };
            let group = listen_tcp_group((ip, 0).into(), 1).unwrap();
            let mut acceptor = Acceptor::new(group.into_iter().next().unwrap()).unwrap();
            let at: SocketAddr =
                (Ipv4Addr::LOCALHOST, acceptor.local_addr().unwrap().port()).into();
            let addrs = [at];
            let (connected, accepted) = tokio::join!(connect_tcp(&addrs, None), acceptor.accept());
            let both = (connected.unwrap(), accepted.unwrap());
            let port = at.port();
            let filter = format!("( sport = :{port} or dport = :{port} )");
            let ss = Command::new("ss")
                .args(["-tinH", &filter])
                .output()
                .unwrap();
            let said = String::from_utf8(ss.stdout).unwrap();
            let words = said.split_whitespace().filter(|word| *word == wanted);
            assert_eq!(words.count(), 2, "{said}");
            drop(both);
        });
    }
}
