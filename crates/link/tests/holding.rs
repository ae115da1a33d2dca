//! What waits unsent below a link follows how fast its path is.
#![cfg(target_os = "linux")]

use std::{io::Read, net::TcpStream, rc::Rc, thread, time::Duration};

use link::{Handler, Link, LinkOptions, Side, Stream};
use socket2::SockRef;
use tokio::io::AsyncWriteExt;

struct Deaf;

impl Handler for Deaf {
    fn opened(&self, _: &Link, _: Vec<u8>, _: Stream) {}

    fn control(&self, _: &Link, _: &[u8]) {}
}

/// Reads so much, some each few milliseconds.
fn read_slowly(mut socket: TcpStream, length: usize, pause: Duration) {
    let mut buffer = [0; 4 << 10];
    let mut left = length;
    while left > 0 {
        match socket.read(&mut buffer) {
            Ok(n @ 1..) => left = left.saturating_sub(n),
            _ => return,
        }
        thread::sleep(pause);
    }
}

#[tokio::test(flavor = "local")]
async fn a_slow_path_holds_little_unsent() {
    const LENGTH: usize = 1 << 20;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let near = tokio::net::TcpStream::connect(listener.local_addr().expect("bound"))
        .await
        .expect("accepts");
    let (far, _) = listener.accept().await.expect("connected");
    let far = far.into_std().expect("a socket");
    far.set_nonblocking(false).expect("settable");
    // 4 KiB each 2 ms at most: 2 MB/s, of which 10 ms are 20 kB.
    let reading = thread::spawn(move || read_slowly(far, LENGTH, Duration::from_millis(2)));

    let kept = near.into_std().expect("a socket");
    let near =
        tokio::net::TcpStream::from_std(kept.try_clone().expect("a descriptor")).expect("a socket");
    SockRef::from(&kept)
        .set_tcp_notsent_lowat(link::UNSENT)
        .expect("settable");
    let options = LinkOptions {
        side: Side::Initiator,
        config: mux::Config {
            peer_stream_window: 4 << 20,
            ..mux::Config::default()
        },
        sweep_every: Duration::from_secs(10),
        fec: None,
    };
    let (link, driver) = Link::start(net::Stream::from(near).into(), &options, Rc::new(Deaf));
    let driver = tokio::task::spawn_local(driver);
    let mut stream = link.open_stream(b"header", None).expect("room");
    stream.write_all(&vec![7; LENGTH]).await.expect("taken");
    tokio::task::spawn_blocking(move || reading.join())
        .await
        .expect("no panic")
        .expect("all read");
    let unsent = SockRef::from(&kept).tcp_notsent_lowat().expect("readable");
    assert!(
        (16 << 10..=64 << 10).contains(&unsent),
        "{unsent} bytes may wait"
    );
    driver.abort();
}
