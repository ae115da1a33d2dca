//! What a socket below is given, and when.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

use std::{collections::VecDeque, sync::atomic::AtomicUsize, sync::atomic::Ordering::SeqCst};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::*;

/// A system that notes what it is given, and has no room where it is told so.
#[derive(Debug, Default)]
struct System {
    state: Mutex<State>,
    /// Datagrams of one call; 0: 64.
    segments: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    /// For each call to come: whether there is room. After the last there always is.
    room: VecDeque<bool>,
    full: bool,
    waiting: Vec<Waker>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    to: SocketAddr,
    bytes: Vec<u8>,
    size: Option<usize>,
}

impl System {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    fn make_room(&self) {
        let mut state = self.state();
        state.full = false;
        for waker in state.waiting.drain(..) {
            waker.wake();
        }
    }
}

impl AsyncUdpSocket for System {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Waits(self))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let mut state = self.state();
        if state.full || !state.room.pop_front().unwrap_or(true) {
            state.full = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.calls.push(Call {
            to: transmit.destination,
            bytes: transmit.contents.to_vec(),
            size: transmit.segment_size,
        });
        Ok(())
    }

    fn poll_recv(
        &self,
        _: &mut Context<'_>,
        _: &mut [IoSliceMut<'_>],
        _: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(at(1))
    }

    fn max_transmit_segments(&self) -> usize {
        match self.segments.load(SeqCst) {
            0 => 64,
            segments => segments,
        }
    }
}

#[derive(Debug)]
struct Waits(Arc<System>);

impl UdpPoller for Waits {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        if state.full {
            state.waiting.push(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

fn at(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn piece(to: SocketAddr, contents: &[u8], size: usize) -> Transmit<'_> {
    Transmit {
        destination: to,
        ecn: None,
        contents,
        segment_size: (contents.len() > size).then_some(size),
        src_ip: None,
    }
}

fn on_runtime<R>(test: impl AsyncFnOnce(Arc<System>, Arc<Gathering>) -> R) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    runtime.block_on(async {
        let system = Arc::new(System::default());
        let socket = Arc::new(Gathering::new(
            Arc::clone(&system) as Arc<dyn AsyncUdpSocket>,
            1472,
        ));
        // The task of the turn's end takes its place.
        turn().await;
        test(system, socket).await
    })
}

/// Other tasks run until they have nothing to do.
async fn turn() {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn what_a_connection_says_in_a_turn_leaves_in_one_call_at_its_end() {
    on_runtime(async |system, socket| {
        let said: Vec<u8> = (0..24 * 1200).map(|n| n as u8).collect();
        for part in said.chunks(ASKED * 1200) {
            socket.try_send(&piece(at(9), part, 1200)).unwrap();
        }
        assert_eq!(system.calls(), []);
        turn().await;
        let call = Call {
            to: at(9),
            bytes: said,
            size: Some(1200),
        };
        assert_eq!(system.calls(), [call]);
    });
}

#[test]
fn the_end_of_a_burst_leaves_at_once_with_what_was_before_it() {
    on_runtime(async |system, socket| {
        let said = vec![7; (ASKED + 2) * 1200 + 5];
        let (long, short) = said.split_at(ASKED * 1200);
        socket.try_send(&piece(at(9), long, 1200)).unwrap();
        socket.try_send(&piece(at(9), short, 1200)).unwrap();
        assert_eq!(system.calls().len(), 1);
        assert_eq!(system.calls()[0].bytes.len(), said.len());
        // A single answer does not wait either.
        socket.try_send(&piece(at(9), &said[..40], 40)).unwrap();
        assert_eq!(system.calls().len(), 2);
    });
}

#[test]
fn one_call_is_filled_to_what_the_kernel_takes() {
    on_runtime(async |system, socket| {
        let said = vec![7; ASKED * 1452];
        for _ in 0..12 {
            socket.try_send(&piece(at(9), &said, 1452)).unwrap();
        }
        turn().await;
        let lengths: Vec<_> = system
            .calls()
            .iter()
            .map(|c| c.bytes.len() / 1452)
            .collect();
        assert_eq!(lengths, [45, 45, 6]);

        let small = vec![7; ASKED * 100];
        for _ in 0..9 {
            socket.try_send(&piece(at(9), &small, 100)).unwrap();
        }
        turn().await;
        let lengths: Vec<_> = system.calls()[3..]
            .iter()
            .map(|c| c.bytes.len() / 100)
            .collect();
        assert_eq!(lengths, [64, 8]);
    });
}

#[test]
fn the_largest_packets_are_sent_four_at_a_time_without_a_copy() {
    on_runtime(async |system, socket| {
        let size = usize::from(super::super::packet::LARGEST);
        let said = vec![7; ASKED * size];
        socket.try_send(&piece(at(9), &said, size)).unwrap();
        let lengths: Vec<_> = system.calls().iter().map(|c| c.bytes.len()).collect();
        assert_eq!(lengths, [4 * size, 4 * size]);
        assert_eq!(socket.shared.batch().bytes.capacity(), 0);
    });
}

#[test]
fn a_system_that_does_not_cut_gets_each_datagram_by_itself() {
    on_runtime(async |system, socket| {
        let said = vec![7; ASKED * 1200];
        socket.try_send(&piece(at(9), &said, 1200)).unwrap();
        system.segments.store(1, SeqCst);
        turn().await;
        let calls = system.calls();
        assert_eq!(calls.len(), ASKED);
        assert!(
            calls
                .iter()
                .all(|c| c.size.is_none() && c.bytes.len() == 1200)
        );
        assert_eq!(socket.max_transmit_segments(), 1);
        socket.try_send(&piece(at(9), &said[..1200], 1200)).unwrap();
        assert_eq!(system.calls().len(), ASKED + 1);
    });
}

#[test]
fn what_is_refused_waits_for_room_and_so_do_connections() {
    on_runtime(async |system, socket| {
        let said = vec![7; ASKED * 1200];
        socket.try_send(&piece(at(9), &said, 1200)).unwrap();
        system.state().full = true;
        turn().await;
        let error = socket.try_send(&piece(at(8), &said, 1200)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let mut poller = Arc::clone(&socket).create_io_poller();
        let mut wait = std::future::poll_fn(move |cx| poller.as_mut().poll_writable(cx));
        let waits = tokio::select! { biased; _ = &mut wait => false, () = turn() => true };
        assert!(waits);
        assert_eq!(system.calls(), []);
        system.make_room();
        wait.await.unwrap();
        assert_eq!(system.calls().len(), 1);
        // Without a connection that waits, the task does it.
        socket.try_send(&piece(at(9), &said, 1200)).unwrap();
        system.state().full = true;
        turn().await;
        system.make_room();
        turn().await;
        assert_eq!(system.calls().len(), 2);
    });
}

#[test]
fn last_words_are_sent_when_the_socket_is_dropped() {
    on_runtime(async |system, socket| {
        let said = vec![7; ASKED * 1200];
        socket.try_send(&piece(at(9), &said, 1200)).unwrap();
        drop(socket);
        assert_eq!(system.calls().len(), 1);
        turn().await;
        // Neither the task nor anything else holds it.
        assert_eq!(Arc::strong_count(&system), 1);
    });
}

/// Datagrams with their destinations, one after the other.
fn datagrams(call: &Call) -> Vec<(SocketAddr, Vec<u8>)> {
    let size = call.size.unwrap_or(call.bytes.len()).max(1);
    let parts = call.bytes.chunks(size);
    parts.map(|part| (call.to, part.to_vec())).collect()
}

async fn whatever_is_said_arrives(seed: u64, system: Arc<System>, socket: Arc<Gathering>) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut said = Vec::new();
    let mut number = 0_u32;
    for _ in 0..200 {
        let to = at(random.random_range(1..4));
        let size = [40, 1200, 1452, 8972, 16_368][random.random_range(0..5)];
        let count = random.random_range(1..=ASKED);
        let mut contents = Vec::new();
        for _ in 0..count {
            let mut datagram = vec![0; size];
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            number += 1;
            contents.extend_from_slice(&datagram);
        }
        if random.random_bool(0.2) {
            contents.truncate(contents.len() - random.random_range(0..size - 4));
        }
        let room = (0..random.random_range(0..4)).map(|_| random.random_bool(0.7));
        system.state().room = room.collect();
        let transmit = piece(to, &contents, size);
        let mut poller = Arc::clone(&socket).create_io_poller();
        while socket.try_send(&transmit).is_err() {
            let room = std::future::poll_fn(|cx| {
                // Which the next of its answers may take away again.
                system.make_room();
                let ready = poller.as_mut().poll_writable(cx);
                cx.waker().wake_by_ref();
                ready
            });
            room.await.unwrap();
        }
        said.extend(datagrams(&Call {
            to,
            size: transmit.segment_size,
            bytes: contents.clone(),
        }));
        if random.random_bool(0.1) {
            turn().await;
        }
    }
    system.state().room.clear();
    system.make_room();
    turn().await;
    let calls = system.calls();
    for call in &calls {
        assert!(call.bytes.len() <= MOST_BYTES);
        assert!(datagrams(call).len() <= MOST_DATAGRAMS);
    }
    let sent: Vec<_> = calls.iter().flat_map(datagrams).collect();
    assert!(sent == said, "{} datagrams of {}", sent.len(), said.len());
}

#[test]
fn every_datagram_leaves_once_and_in_order_whatever_the_system_refuses() {
    for seed in 0..20 {
        eprintln!("seed {seed}");
        on_runtime(async |system, socket| whatever_is_said_arrives(seed, system, socket).await);
    }
}
