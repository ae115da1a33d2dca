//! One visitor of a UDP service: the stream's datagrams, to and from a socket of its own, so
//! that the service can tell visitors apart by port.

use std::{cell::RefCell, io, net::SocketAddr};

use link::Stream;
use net::UdpSocket;
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
    let (mut from_link, mut to_link) = stream.datagrams();
    let inward = async {
        let mut datagram = Vec::new();
        loop {
            from_link.receive(&mut datagram).await?;
            // Refused or too large for the path: lost, as datagrams are.
            let _ = socket.send(&datagram).await;
        }
    };
    let outward = async {
        loop {
            socket.readable().await?;
            if let Some(datagram) = receive(&socket)? {
                to_link.send(&datagram).await?;
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

/// A datagram, if there is one. Read into a buffer that all visitors share: an idle one holds none.
fn receive(socket: &UdpSocket) -> io::Result<Option<Vec<u8>>> {
    SCRATCH.with_borrow_mut(|scratch| match socket.try_recv(scratch) {
        Ok(length) => Ok(Some(scratch[..length].to_vec())),
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
