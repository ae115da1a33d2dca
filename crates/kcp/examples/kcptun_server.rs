//! kcptun's server: takes KCP sessions of kcptun clients, this one's or Go's, and connects their streams to one TCP service.
//!
//!     cargo run --release -p kcp --example kcptun_server -- -l :29900 -t 127.0.0.1:8388 -key SECRET -mode fast3

mod kcptun;

use kcptun::{options::ServerOptions, server::Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let options = ServerOptions::from_args(std::env::args().collect()).unwrap_or_else(|e| e.exit());
    Server::bind(options).await?.run().await
}
