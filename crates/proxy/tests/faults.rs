//! Origins that fail: at every byte, when they were kept, when there are none.

mod common;

use std::{
    io::{Read, Write},
    net::Shutdown,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use common::*;

#[test]
fn an_answer_cut_off_at_any_byte_is_never_taken_for_whole() {
    let answers: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5;x\r\n56789\r\n0\r\nT: 1\r\n\r\n",
        b"HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    ];
    for whole in answers {
        for rude in [false, true] {
            let cut = Arc::new(AtomicUsize::new(0));
            let at = Arc::clone(&cut);
            let origin = Origin::new(move |mut stream, _| {
                while read_message(&mut stream).is_some() {
                    let cut = at.load(SeqCst);
                    if stream.write_all(&whole[..cut]).is_err() {
                        return;
                    }
                    if cut == whole.len() {
                        continue;
                    }
                    if rude {
                        reset(stream);
                    } else {
                        let _ = stream.shutdown(Shutdown::Write);
                        let _ = stream.read(&mut [0]);
                    }
                    return;
                }
            });
            let proxy = before(&origin);
            let head_end = whole
                .windows(4)
                .rposition(|four| four == b"\r\n\r\n")
                .map_or(0, |at| at + 4);
            let head_end = if whole.starts_with(b"HTTP/1.1 200 OK\r\nTransfer") {
                whole
                    .windows(4)
                    .position(|four| four == b"\r\n\r\n")
                    .map_or(0, |at| at + 4)
            } else {
                head_end
            };
            for n in 0..whole.len() {
                cut.store(n, SeqCst);
                // POST, so that no retry hides what happened.
                let mut stream = connect(&proxy);
                stream
                    .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
                    .expect("sent");
                let mut answer = Vec::new();
                let mut buffer = [0; 512];
                let clean = loop {
                    match stream.read(&mut buffer) {
                        Ok(0) => break true,
                        Ok(n) => {
                            answer.extend_from_slice(&buffer[..n]);
                            if text(&answer).contains("HTTP/1.1 502 ") && answer.ends_with(b"\n") {
                                break true;
                            }
                        }
                        Err(error) => {
                            assert_ne!(
                                error.kind(),
                                std::io::ErrorKind::WouldBlock,
                                "it hangs, cut at {n}"
                            );
                            break false;
                        }
                    }
                };
                let answer = text(&answer);
                // A reset may overtake what was sent before it: then less arrives, never something else.
                if n < head_end && !(rude && n > 0 && answer.is_empty()) {
                    assert!(
                        answer.contains("HTTP/1.1 502 "),
                        "cut at {n}, rude {rude}: {answer:?}"
                    );
                } else {
                    assert!(
                        !clean,
                        "cut at {n} of {}, rude {rude}: {answer:?} looks whole",
                        whole.len()
                    );
                }
                assert!(
                    !answer.contains("\r\n0\r\n\r\n"),
                    "cut at {n}: an end was made up: {answer:?}"
                );
            }
            cut.store(whole.len(), SeqCst);
            let (answer, clean) = exchange(
                &proxy,
                b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            );
            assert!(
                clean && text(&answer).contains("HTTP/1.1 200 OK"),
                "{}",
                text(&answer)
            );
            await_metric(&proxy, "proxy_visitors_open", 0);
        }
    }
}

#[test]
fn nonsense_from_an_origin_is_a_bad_gateway() {
    let nonsense: [&[u8]; 6] = [
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 1\n\na",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ];
    for bytes in nonsense {
        let (origin, _told) = Origin::answering(bytes);
        let proxy = before(&origin);
        let (answer, clean) = exchange(
            &proxy,
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        );
        assert!(
            clean && text(&answer).starts_with("HTTP/1.1 502 "),
            "{:?}: {}",
            text(bytes),
            text(&answer)
        );
    }
}

#[test]
fn bytes_behind_an_answer_are_no_answer_to_the_next_request() {
    let origin = Origin::new(|mut stream, n| {
        while read_message(&mut stream).is_some() {
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let proxy = before(&origin);
    let mut stream = connect(&proxy);
    for n in 0..5 {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        let answer = text(&read_message(&mut stream).expect("an answer"));
        assert!(answer.ends_with(&format!("\r\n\r\n{n}")), "{answer}");
    }
}

#[test]
fn a_kept_connection_that_was_closed_costs_a_get_nothing_and_a_post_is_not_sent_twice() {
    let posts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&posts);
    // Closes without an answer, on every second request of a connection.
    let origin = Origin::new(move |mut stream, _| {
        let mut first = true;
        while let Some(request) = read_message(&mut stream) {
            if request.starts_with(b"POST") {
                seen.lock().expect("a lock").push(text(&request));
            }
            if !first {
                return;
            }
            first = false;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let proxy = before(&origin);
    let mut stream = connect(&proxy);
    for n in 0..10 {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        let answer = text(&read_message(&mut stream).expect("an answer"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{n}: {answer}");
    }
    assert!(metric(&proxy, "proxy_upstream_retries_total") >= 5);
    // The kept connection has served one request, so this one is swallowed.
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    let _ = read_message(&mut stream).expect("an answer");
    let mut refused = 0;
    for n in 0..6 {
        let post = format!("POST /{n} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
        stream.write_all(post.as_bytes()).expect("sent");
        let answer = text(&read_message(&mut stream).expect("an answer"));
        refused += usize::from(answer.starts_with("HTTP/1.1 502 "));
    }
    assert!(refused > 0, "at least one was swallowed");
    let posts = posts.lock().expect("a lock");
    for n in 0..6 {
        let times = posts
            .iter()
            .filter(|post| post.starts_with(&format!("POST /{n} ")))
            .count();
        assert_eq!(times, 1, "POST /{n}");
    }
}

#[test]
fn a_server_that_is_away_is_passed_over_and_without_any_the_visitor_is_told() {
    let (origin, _told) = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("an address")
    };
    let both = vec![upstream(vec![server(gone), server(origin.address)])];
    let proxy = start(site(route(), both));
    for _ in 0..10 {
        let (answer, _) = exchange(
            &proxy,
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
        );
        assert!(
            text(&answer).starts_with("HTTP/1.1 200 "),
            "{}",
            text(&answer)
        );
    }
    let proxy = start(site(route(), vec![upstream(vec![server(gone)])]));
    let mut stream = connect(&proxy);
    for _ in 0..3 {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        let answer = text(&read_message(&mut stream).expect("an answer"));
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    }
}

#[test]
fn stopping_lets_an_exchange_end_and_closes_what_is_idle() {
    let origin = Origin::new(|mut stream, _| {
        while read_message(&mut stream).is_some() {
            std::thread::sleep(Duration::from_millis(300));
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let proxy = before(&origin);
    let mut idle = connect(&proxy);
    let mut busy = connect(&proxy);
    busy.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    await_metric(&proxy, "proxy_requests_total", 1);
    let stopping = std::thread::spawn(move || proxy.stop(PATIENCE));
    let answer = text(&read_message(&mut busy).expect("an answer"));
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("Connection: close\r\n"),
        "{answer}"
    );
    assert_eq!(idle.read(&mut [0]).expect("a clean end"), 0);
    stopping.join().expect("it stops");
}
