//! A stream whose link is on another thread: what is carried, and how ends are told.

use std::{cell::RefCell, io::ErrorKind, rc::Rc, thread, time::Duration};

use link::{Handler, Link, LinkOptions, Side, Stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::{LocalSet, spawn_local},
};
use tunnel::ResetReason;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn run<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let task = async { tokio::time::timeout(PATIENCE, task).await };
    LocalSet::new().block_on(&runtime, task).expect("in time")
}

/// Gives the first stream that is opened away.
struct Take(RefCell<Option<oneshot::Sender<Stream>>>);

impl Handler for Take {
    fn opened(&self, _: &Link, _: Vec<u8>, stream: Stream) {
        if let Some(tell) = self.0.borrow_mut().take() {
            let _ = tell.send(stream);
        }
    }
    fn control(&self, _: &Link, _: &[u8]) {}
}

fn link(stream: TcpStream, side: Side, tell: Option<oneshot::Sender<Stream>>) -> Link {
    let options = LinkOptions {
        side,
        config: mux::Config::default(),
        sweep_every: PATIENCE,
        fec: None,
    };
    let handler = Rc::new(Take(RefCell::new(tell)));
    let (link, driver) = Link::start(net::Stream::from(stream).into(), &options, handler);
    spawn_local(driver);
    link
}

/// Carries `far` over a link of a thread of its own; `service` gets the stream's other end, and the link.
fn carry<F, Fut>(far: FarEnd, service: F) -> thread::JoinHandle<()>
where
    F: FnOnce(Stream, Link) -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    thread::spawn(move || {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let (opening, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let (tell, told) = oneshot::channel();
            let opener = link(opening.expect("connected"), Side::Acceptor, None);
            let served = link(accepted.expect("accepted").0, Side::Initiator, Some(tell));
            let stream = opener.open_stream(b"header", None).expect("a stream");
            let serving = async {
                service(told.await.expect("a stream"), served).await;
            };
            tokio::join!(far.carry(RelayStream::here(stream, None, None)), serving);
        });
    })
}

#[test]
fn bytes_and_half_closes_pass_between_threads() {
    let (mut near, far) = RelayStream::there();
    let link = carry(far, async |mut stream: Stream, _link| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.expect("read");
        stream.write_all(&all).await.expect("written");
        stream.shutdown().await.expect("shut");
    });
    run(async {
        let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
        near.write_all(&sent).await.expect("written");
        near.shutdown().await.expect("shut");
        let mut got = Vec::new();
        near.read_to_end(&mut got).await.expect("the end");
        assert!(got == sent, "{} bytes came back changed", got.len());
        assert_eq!(near.refusal(), None);
    });
    link.join().expect("ended");
}

#[test]
fn a_reset_is_told_with_its_reason_and_never_as_an_end() {
    let (mut near, far) = RelayStream::there();
    let link = carry(far, async |mut stream: Stream, _link| {
        stream.write_all(b"half of it").await.expect("written");
        let mut byte = [0];
        stream.read_exact(&mut byte).await.expect("a byte");
        stream.reset(ResetReason::Refused);
    });
    run(async {
        let mut half = [0; 10];
        near.read_exact(&mut half).await.expect("half of it");
        near.write_all(b"x").await.expect("written");
        let end = near.read(&mut half).await.expect_err("no end");
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
        assert_eq!(near.refusal(), Some(ResetReason::Refused));
    });
    link.join().expect("ended");
}

#[test]
fn a_link_that_is_lost_is_no_end_either() {
    let (mut near, far) = RelayStream::there();
    let link = carry(far, async |mut stream: Stream, link: Link| {
        stream.write_all(b"half of it").await.expect("written");
        let mut byte = [0];
        stream.read_exact(&mut byte).await.expect("a byte");
        link.close();
    });
    run(async {
        let mut half = [0; 10];
        near.read_exact(&mut half).await.expect("half of it");
        near.write_all(b"x").await.expect("written");
        let end = near.read(&mut half).await.expect_err("no end");
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    });
    link.join().expect("ended");
}

#[test]
fn whoever_drops_its_end_resets_the_stream() {
    let (mut near, far) = RelayStream::there();
    let link = carry(far, async |mut stream: Stream, _link| {
        stream.write_all(b"x").await.expect("written");
        let end = stream.read(&mut [0]).await.expect_err("no end");
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    });
    run(async {
        near.read_exact(&mut [0]).await.expect("a byte");
    });
    drop(near);
    link.join().expect("ended");
}

#[test]
fn a_thread_that_cannot_carry_it_is_a_lost_link() {
    let (mut near, far) = RelayStream::there();
    drop(far);
    run(async {
        let end = near.read(&mut [0; 8]).await.expect_err("no end");
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
        assert_eq!(near.refusal(), Some(ResetReason::LinkLost));
    });
}
