//! A TCP connection joined to a stream.

use std::{
    io,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::sleep,
};

/// Carries both directions until both have ended, or one has and the other is still for `wait`. An error ends both.
pub(super) async fn relay<A, B>(a: A, b: B, wait: Duration) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (mut a_reader, mut a_writer) = tokio::io::split(a);
    let (mut b_reader, mut b_writer) = tokio::io::split(b);
    let moved = AtomicU64::new(0);
    let mut there = pin!(carry(&mut a_reader, &mut b_writer, &moved));
    let mut back = pin!(carry(&mut b_reader, &mut a_writer, &moved));
    let there_first = tokio::select! {
        ended = &mut there => ended.map(|()| true),
        ended = &mut back => ended.map(|()| false),
    }?;
    let still = async {
        loop {
            let before = moved.load(Relaxed);
            sleep(wait).await;
            if moved.load(Relaxed) == before {
                return;
            }
        }
    };
    let rest = async {
        match there_first {
            true => back.await,
            false => there.await,
        }
    };
    tokio::select! {
        ended = rest => ended,
        () = still => Ok(()),
    }
}

/// One direction, to its end.
async fn carry(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    moved: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..n]).await?;
        moved.fetch_add(n as u64, Relaxed);
    }
}

/// Bytes read at a time.
const BUFFER: usize = 16 << 10;
