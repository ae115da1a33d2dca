use std::time::Duration;

use super::*;

/// A floor on its own thread, which serves until the process ends. None: there is no io_uring here.
fn floor(driver: Driver, tricks: Tricks) -> Option<(TcpListener, SocketAddr)> {
    if driver != Driver::Epoll
        && let Err(error) = uring::ring::build(&tricks)
    {
        // Containers forbid it, and old kernels have not all of it; anything else is a defect.
        let known = [libc::EPERM, libc::ENOSYS, libc::EINVAL].map(Some);
        assert!(known.contains(&error.raw_os_error()), "{error}");
        eprintln!("no io_uring here, nothing tested: {error}");
        return None;
    }
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = origin.local_addr().unwrap();
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || serve_on(&listener, to, driver, &tricks).unwrap());
    Some((origin, at))
}

fn connect(at: SocketAddr) -> TcpStream {
    let visitor = TcpStream::connect(at).unwrap();
    visitor.set_read_timeout(Some(PATIENCE)).unwrap();
    visitor.set_write_timeout(Some(PATIENCE)).unwrap();
    visitor
}

fn ask(visitor: &mut TcpStream, behind: &mut TcpStream) {
    visitor
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut asked = vec![0; WANTED.len()];
    behind.read_exact(&mut asked).unwrap();
    assert_eq!(asked, WANTED.as_bytes());
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    behind.write_all(answer).unwrap();
    let mut answered = vec![0; answer.len()];
    visitor.read_exact(&mut answered).unwrap();
    assert_eq!(answered, answer);
}

/// Requests get two fields; answers come back, those too that no socket holds; ends are passed on, and places are used again.
fn relays(driver: Driver, tricks: Tricks) {
    let Some((origin, at)) = floor(driver, tricks) else {
        return;
    };
    for _ in 0..3 {
        let mut visitor = connect(at);
        let (mut behind, _) = origin.accept().unwrap();
        behind.set_read_timeout(Some(PATIENCE)).unwrap();
        for _ in 0..3 {
            ask(&mut visitor, &mut behind);
        }
        // Two at once.
        visitor
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut asked = vec![0; 2 * WANTED.len()];
        behind.read_exact(&mut asked).unwrap();
        assert_eq!(asked, WANTED.repeat(2).as_bytes());
        // More than sockets hold, and no two parts of it alike: what the visitor does not take yet is neither lost nor out of order.
        let large: Vec<u8> = (0..4_u32 << 20).flat_map(u32::to_le_bytes).collect();
        let sent = large.clone();
        let sending = std::thread::spawn(move || {
            behind.write_all(&sent).unwrap();
            drop(behind);
        });
        let mut got = Vec::new();
        visitor.read_to_end(&mut got).unwrap();
        sending.join().unwrap();
        assert!(got == large, "{} bytes of {}", got.len(), large.len());
    }
    // The other end.
    let visitor = connect(at);
    let (mut behind, _) = origin.accept().unwrap();
    behind.set_read_timeout(Some(PATIENCE)).unwrap();
    drop(visitor);
    assert_eq!(behind.read(&mut [0]).unwrap(), 0);
    // An origin that is gone.
    drop(origin);
    assert_eq!(connect(at).read(&mut [0]).unwrap_or(0), 0);
}

/// Visitors who read one after the other: the first one's share of the buffers is bounded, or all would wait for him.
fn a_slow_visitor_does_not_stop_others(driver: Driver, tricks: Tricks) {
    let Some((origin, at)) = floor(driver, tricks) else {
        return;
    };
    let mut pairs: Vec<_> = (0..8)
        .map(|_| {
            let visitor = connect(at);
            let (behind, _) = origin.accept().unwrap();
            behind.set_read_timeout(Some(PATIENCE)).unwrap();
            (visitor, behind)
        })
        .collect();
    let part: Vec<u8> = (0..2_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let (slow, mut behind) = pairs.remove(0);
    let sent = part.repeat(4);
    let sending = std::thread::spawn(move || behind.write_all(&sent).unwrap());
    for (visitor, behind) in &mut pairs {
        ask(visitor, behind);
        let mut got = vec![0; part.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| behind.write_all(&part).unwrap());
            visitor.read_exact(&mut got).unwrap();
        });
        assert!(got == part);
        ask(visitor, behind);
    }
    let mut slow = slow;
    let mut got = Vec::new();
    slow.read_to_end(&mut got).unwrap();
    sending.join().unwrap();
    assert!(got == part.repeat(4));
}

#[test]
fn epoll_relays() {
    relays(Driver::Epoll, Tricks::default());
}

#[test]
fn hybrid_relays() {
    relays(Driver::Hybrid, Tricks::default());
}

#[test]
fn epoll_with_late_sends_relays() {
    relays(Driver::Late, Tricks::default());
}

#[test]
fn io_uring_relays() {
    relays(Driver::IoUring, Tricks::default());
}

#[test]
fn io_uring_relays_without_any_trick() {
    let tricks = Tricks {
        task_run: TaskRun::Interrupt,
        receive: Receive::Single,
        direct: false,
        ring_fd: false,
        no_sqarray: false,
        skip_success: false,
        ..Tricks::default()
    };
    relays(Driver::IoUring, tricks);
}

#[test]
fn io_uring_relays_with_receives_that_wait_first_and_fewer_wakeups() {
    let tricks = Tricks {
        task_run: TaskRun::Coop,
        receive: Receive::PollFirst,
        min_wait: Some((8, 50)),
        ..Tricks::default()
    };
    relays(Driver::IoUring, tricks);
}

#[test]
fn io_uring_relays_with_few_buffers() {
    for (bundle, skip_success) in [(false, true), (true, true), (true, false)] {
        let tricks = Tricks {
            bundle,
            skip_success,
            buffers: 4,
            buffer: Some(1024),
            ..Tricks::default()
        };
        relays(Driver::IoUring, tricks);
    }
}

#[test]
fn a_slow_visitor_does_not_stop_others_by_any_driver() {
    for driver in [Driver::Epoll, Driver::Late, Driver::Hybrid, Driver::IoUring] {
        a_slow_visitor_does_not_stop_others(driver, Tricks::default());
    }
    let tricks = Tricks {
        receive: Receive::PollFirst,
        buffers: 256,
        ..Tricks::default()
    };
    a_slow_visitor_does_not_stop_others(Driver::IoUring, tricks);
}

const WANTED: &str =
    "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\n\r\n";
/// So long a step may take on a busy machine before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
