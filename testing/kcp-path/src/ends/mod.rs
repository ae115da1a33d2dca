//! One end of a measurement, as a process: a byte stream over the subject's transport, and what is printed about it.
//!
//! The lines are those of the Go program (testing/interop/kcp/path): `ready`, `start`, `end BYTES NANOSECONDS`,
//! `sent RETRANSMITTED SENT`, `latency P50 P99 MAX COUNT`.

mod kcp;
mod quic;
mod tcp;

use std::{
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{MissedTickBehavior, interval, timeout_at},
};

use crate::subject::Subject;

pub(crate) use self::{kcp::WINDOW, quic::CERTIFICATE};

type Reader = Box<dyn AsyncRead + Unpin>;

/// A stream to the receiver, and how to ask it what was sent again.
struct Writer {
    stream: Box<dyn AsyncWrite + Unpin>,
    /// Retransmitted and sent packets so far.
    counters: Box<dyn Fn() -> (u64, u64)>,
}

pub(crate) fn run(end: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(end)
}

/// Takes a stream and says how much came between `warm` and `warm + seconds` after its first byte.
pub(crate) async fn receive(
    subject: Subject,
    address: SocketAddr,
    warm: u64,
    seconds: u64,
) -> anyhow::Result<()> {
    let mut reader = accept(subject, address).await?;
    let mut buffer = vec![0; 1 << 16];
    reader.read_exact(&mut buffer[..1]).await?;
    let first = Instant::now();
    let mut start = None;
    let mut total = 0;
    loop {
        let length = reader.read(&mut buffer).await?;
        anyhow::ensure!(length > 0, "the stream ended early");
        let now = Instant::now();
        match start {
            None if now - first >= Duration::from_secs(warm) => {
                start = Some(now);
                println!("start");
            }
            None => {}
            Some(start) => {
                total += length;
                if now - start >= Duration::from_secs(seconds) {
                    println!("end {total} {}", (now - start).as_nanos());
                    // Until it is ended: the sender shall find its peer alive.
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// Sends for some seconds, as fast as the transport takes it.
pub(crate) async fn send(
    subject: Subject,
    address: SocketAddr,
    seconds: u64,
) -> anyhow::Result<()> {
    let mut writer = dial(subject, address).await?;
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    let data = vec![0; 1 << 14];
    while let Ok(written) = timeout_at(end, writer.stream.write_all(&data)).await {
        written?;
    }
    let (again, sent) = (writer.counters)();
    println!("sent {again} {sent}");
    Ok(())
}

/// Takes messages of 64 bytes that begin with the time they were sent.
pub(crate) async fn listen(
    subject: Subject,
    address: SocketAddr,
    count: usize,
) -> anyhow::Result<()> {
    let mut reader = accept(subject, address).await?;
    let mut message = [0; 64];
    let mut late = Vec::with_capacity(count);
    for _ in 0..count {
        reader.read_exact(&mut message).await?;
        let now = unix_nanos()?;
        let mut stamp = [0; 8];
        stamp.copy_from_slice(&message[..8]);
        late.push(now.saturating_sub(u64::from_le_bytes(stamp)) / 1000);
    }
    late.sort_unstable();
    let at = |index: usize| late.get(index).copied().context("no messages");
    println!(
        "latency {} {} {} {count}",
        at(count / 2)?,
        at(count * 99 / 100)?,
        at(count - 1)?
    );
    std::future::pending().await
}

/// Sends a message every 20 ms until it is ended.
pub(crate) async fn talk(subject: Subject, address: SocketAddr) -> anyhow::Result<()> {
    let mut writer = dial(subject, address).await?;
    let mut tick = interval(Duration::from_millis(20));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut message = [0; 64];
    loop {
        tick.tick().await;
        message[..8].copy_from_slice(&unix_nanos()?.to_le_bytes());
        writer.stream.write_all(&message).await?;
    }
}

/// The wall clock: the one that programs in other languages read as well.
fn unix_nanos() -> anyhow::Result<u64> {
    Ok(SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)?
        .as_nanos() as u64)
}

async fn accept(subject: Subject, address: SocketAddr) -> anyhow::Result<Reader> {
    match subject {
        Subject::TcpCubic | Subject::TcpBbr => tcp::accept(address).await,
        Subject::QuicCubic | Subject::QuicBbr => quic::accept(address).await,
        _ => kcp::accept(subject, address).await,
    }
}

async fn dial(subject: Subject, address: SocketAddr) -> anyhow::Result<Writer> {
    match subject {
        Subject::TcpCubic => tcp::dial(address, "cubic").await,
        Subject::TcpBbr => tcp::dial(address, "bbr").await,
        Subject::QuicCubic => quic::dial(address, false).await,
        Subject::QuicBbr => quic::dial(address, true).await,
        _ => kcp::dial(subject, address),
    }
}
