//! One visitor of a UDP service: datagrams on the stream, each with a two-byte length before it, to and from a socket of its own, so
//! that the service can tell visitors apart by port.

use std::{cell::RefCell, io, net::SocketAddr};

use link::Stream;
use net::UdpSocket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tunnel::ResetReason;

/// Ends when the server ends the stream (it keeps the idle time) or the socket fails for good.
pub(crate) async fn serve(host: &str, port: u16, stream: Stream) {
    let socket = match open(host, port).await {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, host, port, "the UDP service cannot be reached");
            return stream.reset(ResetReason::Unreachable);
        }
    };
    let (mut from_link, mut to_link) = tokio::io::split(stream);
    let inward = async {
        let mut datagram = Vec::new();
        loop {
            let length = usize::from(from_link.read_u16().await?);
            datagram.resize(length, 0);
            from_link.read_exact(&mut datagram).await?;
            // Refused or too large for the path: lost, as datagrams are.
            let _ = socket.send(&datagram).await;
        }
    };
    let outward = async {
        loop {
            socket.readable().await?;
            if let Some(framed) = receive(&socket)? {
                to_link.write_all(&framed).await?;
            }
        }
    };
    let ended: io::Result<()> = tokio::select! {
        ended = inward => ended,
        ended = outward => ended,
    };
    if let Err(error) = ended
        && !matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::TimedOut
        )
    {
        tracing::debug!(%error, "a UDP visit ended");
    }
}

/// A datagram behind its length, if there is one. Read into a buffer that all visitors share: an idle one holds none.
fn receive(socket: &UdpSocket) -> io::Result<Option<Vec<u8>>> {
    SCRATCH.with_borrow_mut(|scratch| match socket.try_recv(scratch) {
        Ok(length) => {
            let head = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
            Ok(Some([&head, &scratch[..length]].concat()))
        }
        // Nothing yet; or the service is not there now, and may come back.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    })
}

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; usize::from(u16::MAX)].into_boxed_slice());
}

async fn open(host: &str, port: u16) -> io::Result<UdpSocket> {
    let mut addresses = net::lookup_host((host, port)).await?;
    let address = addresses.next().ok_or(io::ErrorKind::NotFound)?;
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0_u16; 8], 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    Ok(socket)
}
