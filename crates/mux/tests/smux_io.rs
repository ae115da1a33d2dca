//! smux sessions over tokio, end to end over an in-memory transport of a few bytes.

use std::{io, time::Duration};

use mux::smux::{
    Config, Version,
    io::{Session, Stream},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::{sleep, timeout},
};

fn config(version: Version) -> Config {
    Config {
        version,
        ..Config::default()
    }
}

fn pair_with(config: Config, capacity: usize) -> (Session, Session) {
    let (a, b) = duplex(capacity);
    (Session::client(a, config), Session::server(b, config))
}

fn pair(version: Version) -> (Session, Session) {
    pair_with(config(version), 5000)
}

async fn streams(client: &Session, server: &Session) -> (Stream, Stream) {
    let (opened, accepted) = tokio::join!(client.open(), server.accept());
    (opened.expect("opened"), accepted.expect("accepted"))
}

fn bytes(n: usize, salt: usize) -> Vec<u8> {
    (0..n)
        .map(|i| (i * 31 + (i >> 8) + salt * 101) as u8)
        .collect()
}

const VERSIONS: [Version; 2] = [Version::V1, Version::V2];

#[tokio::test]
async fn many_streams_echo_at_once() {
    for version in VERSIONS {
        let (client, server) = pair(version);
        tokio::spawn(async move {
            while let Ok(stream) = server.accept().await {
                tokio::spawn(async move {
                    let (mut reader, mut writer) = tokio::io::split(stream);
                    tokio::io::copy(&mut reader, &mut writer).await?;
                    writer.shutdown().await
                });
            }
        });
        let mut tasks = Vec::new();
        for i in 0..20 {
            let stream = client.open().await.expect("opened");
            tasks.push(tokio::spawn(async move {
                let data = bytes(100_000 + 7 * i, i);
                let (mut reader, mut writer) = tokio::io::split(stream);
                let mut got = Vec::new();
                let send = async {
                    writer.write_all(&data).await?;
                    writer.shutdown().await
                };
                let (sent, read) = tokio::join!(send, reader.read_to_end(&mut got));
                sent.expect("sent");
                read.expect("read");
                assert!(got == data, "the echo of stream {i} differs");
            }));
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(client.stream_count(), 0);
    }
}

#[tokio::test]
async fn either_end_opens_streams() {
    for version in VERSIONS {
        let (client, server) = pair(version);
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (mut opened, mut accepted) = streams(from, to).await;
            opened.write_all(b"ping").await.expect("written");
            let mut got = [0; 4];
            accepted.read_exact(&mut got).await.expect("read");
            assert_eq!(&got, b"ping");
        }
    }
}

#[tokio::test]
async fn half_close_leaves_the_other_direction_open() {
    for version in VERSIONS {
        let (client, server) = pair(version);
        let (mut a, mut b) = streams(&client, &server).await;
        a.write_all(b"question").await.expect("written");
        a.shutdown().await.expect("shut down");
        assert!(a.write_all(b"more").await.is_err());
        let mut got = Vec::new();
        b.read_to_end(&mut got).await.expect("read");
        assert_eq!(got, b"question");
        // Longer than the window, so that the window must still be opened.
        let answer = bytes(3 << 20, 1);
        let mut got = Vec::new();
        let send = async {
            b.write_all(&answer).await.expect("written");
            b.shutdown().await.expect("shut down");
        };
        let ((), read) = tokio::join!(send, a.read_to_end(&mut got));
        read.expect("read");
        assert!(got == answer);
    }
}

#[tokio::test]
async fn what_was_written_arrives_though_the_stream_is_dropped() {
    for version in VERSIONS {
        let (client, server) = pair(version);
        let (mut a, mut b) = streams(&client, &server).await;
        let data = bytes(150_000, 3);
        let expected = data.clone();
        let writer = tokio::spawn(async move {
            a.write_all(&data).await.expect("written");
            drop(a);
            drop(client);
        });
        let mut got = Vec::new();
        b.read_to_end(&mut got).await.expect("read");
        assert!(got == expected);
        writer.await.expect("no panic");
        drop(b);
        // The client is deserted: its transport ends, and so does the server.
        let error = server.accept().await.expect_err("ended");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
}

#[tokio::test]
async fn a_stream_that_is_not_read_stops_itself_in_version_2() {
    let (client, server) = pair(Version::V2);
    let (mut full, _unread) = streams(&client, &server).await;
    let filler = tokio::spawn(async move { full.write_all(&vec![0; 10 << 20]).await });
    let (mut a, mut b) = streams(&client, &server).await;
    let data = bytes(5 << 20, 4);
    let mut got = vec![0; data.len()];
    let (sent, read) = tokio::join!(a.write_all(&data), b.read_exact(&mut got));
    sent.expect("sent");
    read.expect("read");
    assert!(got == data);
    assert!(!filler.is_finished());
}

#[tokio::test]
async fn a_stream_that_is_not_read_stops_all_in_version_1_until_it_is() {
    let config = Config {
        receive_buffer: 100_000,
        ..config(Version::V1)
    };
    let (client, server) = pair_with(config, 5000);
    let (mut full, mut unread) = streams(&client, &server).await;
    let (mut a, mut b) = streams(&client, &server).await;
    let filler = tokio::spawn(async move { full.write_all(&vec![0; 1 << 20]).await });
    let writer = tokio::spawn(async move {
        // Behind the other's bytes.
        tokio::task::yield_now().await;
        a.write_all(&vec![1; 1 << 20]).await
    });
    let mut total = 0;
    let mut buffer = vec![0; 65_536];
    // Some may come before the buffer is full, not all.
    while let Ok(n) = timeout(Duration::from_millis(200), b.read(&mut buffer)).await {
        total += n.expect("open");
        assert!(total < 1 << 20, "a stream passed one that is not read");
    }
    let drain = tokio::spawn(async move {
        let mut left = 1 << 20;
        while left > 0 {
            left -= unread.read(&mut buffer).await.expect("open");
        }
        unread
    });
    let mut rest = vec![0; (1 << 20) - total];
    b.read_exact(&mut rest).await.expect("read");
    writer.await.expect("no panic").expect("written");
    filler.await.expect("no panic").expect("written");
    drain.await.expect("no panic");
}

#[tokio::test]
async fn the_reason_of_an_end_is_told() {
    // The transport ends.
    let (a, b) = duplex(100);
    let session = Session::client(a, config(Version::V2));
    let mut stream = session.open().await.expect("opened");
    drop(b);
    let error = stream.read(&mut [0; 10]).await.expect_err("ended");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    assert!(session.open().await.is_err() && session.is_closed());

    // Versions differ.
    let (a, b) = duplex(100);
    let client = Session::client(a, config(Version::V1));
    let server = Session::server(b, config(Version::V2));
    let _stream = client.open().await.expect("opened");
    let error = server.accept().await.expect_err("another version");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("version 1"), "{error}");

    // Closed here.
    let (client, server) = pair(Version::V1);
    let (mut a, _b) = streams(&client, &server).await;
    client.close();
    let error = a.write_all(b"x").await.expect_err("closed");
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_lives_and_one_without_an_answer_dies() {
    let (client, server) = pair(Version::V1);
    let (mut a, mut b) = streams(&client, &server).await;
    sleep(Duration::from_secs(1000)).await;
    a.write_all(b"still here").await.expect("open");
    b.read_exact(&mut [0; 10]).await.expect("open");

    let (a, _silent): (DuplexStream, DuplexStream) = duplex(1000);
    let session = Session::client(a, config(Version::V1));
    let began = tokio::time::Instant::now();
    let error = session.accept().await.expect_err("dead");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_writer_whose_peer_has_left_is_told() {
    let (client, server) = pair(Version::V2);
    let (mut a, b) = streams(&client, &server).await;
    // It closes as Go does: it reads no more.
    drop(b);
    let error = timeout(Duration::from_secs(120), a.write_all(&vec![0; 10 << 20]))
        .await
        .expect("given up in time")
        .expect_err("nobody reads");
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}
