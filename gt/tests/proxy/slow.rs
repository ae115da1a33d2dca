//! Visitors who read slowly, or not at all: what they are given at once, and what others notice of them.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use e2e::{Nginx, Process, TempDir, http, wait};
use socket2::{Domain, Socket, Type};

use super::address;

fn start() -> (Process, Nginx) {
    let nginx = Nginx::plain(|dir| {
        let file = fs::File::create(dir.path().join("files/big")).expect("a file");
        file.set_len(64 << 20).expect("room");
        dir.file("files/small", "small");
    });
    let to = nginx.address(0).to_string();
    let args = ["proxy", "--listen", "127.0.0.1:0", "--to", &to];
    (Process::gt("proxy", args, TempDir::new()), nginx)
}

/// Asks for the large file; `room` is what the visitor's kernel takes before it reads.
fn ask(at: SocketAddr, room: usize) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(room).expect("set");
    socket.connect(&at.into()).expect("connected");
    let mut stream = TcpStream::from(socket);
    stream
        .write_all(b"GET /big HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .expect("sent");
    stream
}

/// Bytes that gt's kernel holds for a visitor: written and not acknowledged.
fn held(at: SocketAddr, visitor: SocketAddr) -> Option<u64> {
    let hex = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => {
            let ip = u32::from_le_bytes(v4.ip().octets());
            format!("{ip:08X}:{:04X}", v4.port())
        }
        SocketAddr::V6(_) => String::new(),
    };
    let table = fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let line = table.lines().find(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some(&hex(at)) && words.next() == Some(&hex(visitor))
    })?;
    let queues = line.split_whitespace().nth(4)?;
    u64::from_str_radix(queues.split(':').next()?, 16).ok()
}

/// The kernel would take megabytes, which is memory that no limit of gt counts, and time that other visitors wait.
#[test]
fn a_visitor_who_does_not_read_is_given_little() {
    let (gt, _nginx) = start();
    let at = address(&gt);
    let visitor = ask(at, 32 << 10);
    let me = visitor.local_addr().expect("an address");
    let mut before = 0;
    let held = wait::until("nothing more is written", || {
        thread::sleep(Duration::from_millis(200));
        let now = held(at, me)?;
        let same = now > 0 && now == before;
        before = now;
        same.then_some(now)
    });
    assert!(held < 512 << 10, "{held} bytes wait in the kernel");
}

/// The slower ones of some visits: the place of the fifth slowest of a hundred.
fn slow_visit(at: SocketAddr) -> Duration {
    let visit = |_| {
        let began = Instant::now();
        let answer = http::get(at, "a.test", "/small").expect("an answer");
        assert_eq!(answer.text(), "small");
        began.elapsed()
    };
    let mut took: Vec<Duration> = (0..100).map(visit).collect();
    took.sort_unstable();
    took[95]
}

#[test]
fn others_hardly_notice_two_hundred_visitors_who_read_slowly() {
    let (gt, _nginx) = start();
    let at = address(&gt);
    let alone = slow_visit(at);
    let over = Arc::new(AtomicBool::new(false));
    let reading = thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let mut slow: Vec<TcpStream> = (0..200).map(|_| ask(at, 64 << 10)).collect();
            for visitor in &slow {
                visitor.set_nonblocking(true).expect("set");
            }
            let (mut buffer, mut read) = (vec![0; 8 << 10], 0);
            while !over.load(Relaxed) {
                for visitor in &mut slow {
                    match visitor.read(&mut buffer) {
                        Ok(n) => read += n,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                    }
                }
                thread::sleep(Duration::from_millis(50));
            }
            read
        }
    });
    // One of three rounds: what else the machine does is no fault of theirs.
    let bound = alone * 5 + Duration::from_millis(100);
    let rounds: Vec<Duration> = (0..3).map(|_| slow_visit(at)).collect();
    over.store(true, Relaxed);
    let read = reading.join().expect("the readers");
    assert!(read > 1 << 20, "they read {read} bytes only");
    assert!(
        rounds.iter().any(|took| *took < bound),
        "{rounds:?} beside them, {alone:?} alone"
    );
}
