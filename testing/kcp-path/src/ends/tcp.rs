//! Kernel TCP. What was sent again is asked of the kernel by `ss`, from outside.

use std::net::SocketAddr;

use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};
use tokio::net::{TcpListener, TcpSocket};

use super::{Reader, Writer};

pub(super) async fn accept(address: SocketAddr) -> anyhow::Result<Reader> {
    let listener = TcpListener::bind(address).await?;
    println!("ready");
    Ok(Box::new(listener.accept().await?.0))
}

pub(super) async fn dial(address: SocketAddr, congestion: &str) -> anyhow::Result<Writer> {
    let socket = TcpSocket::new_v4()?;
    set_tcp_congestion(&socket, congestion)?;
    anyhow::ensure!(tcp_congestion(&socket)? == congestion);
    Ok(Writer {
        stream: Box::new(socket.connect(address).await?),
        counters: Box::new(|| (0, 0)),
    })
}
